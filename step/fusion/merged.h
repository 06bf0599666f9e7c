/* merged.h: operators whose tasks are launched as one. */
#pragma once

#include "step/program/step_index.h"

/* Of a step with merged_tasks: sets what the index has of them. Needs buckets. */
void step_find_merged(tandem_step *step);

/* The values that lie in memory one after the other with value v, since products of one launch read or write
 * them, in that order: their number; 0: v lies alone. Cost: O(1). */
int step_block_of_value(const tandem_step *step, int v, int block[TANDEM_MAX_MERGED_PRODUCTS]);
/* The one that is written first: then all have their memory. */
int step_first_of_block(const tandem_step *step, const int *block, int n);
/* The task from which on value v has its memory: the one that writes it, or the first of its block. */
int step_value_born(const tandem_step *step, int v);
