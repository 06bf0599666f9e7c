/* replay_memory.h: the memory timeline of `tandem replay`, and remedies for a plan over its memory limit. */
#pragma once

#include "cli/prediction.h"

/* The memory of one class at each task of its plan. */
typedef struct replay_timeline {
    const tandem_step *step;
    const tandem_memory *memory;
    tandem_memory_row *row; /* [n_task] */
} replay_timeline;

/* Needs a run with TANDEM_REPLAY_MEMORY. TANDEM_NO_MEMORY. */
tandem_status replay_timeline_open(replay_timeline *timeline, const tandem_replayer *replayer, int c,
                                   tandem_error *error);
void replay_timeline_close(replay_timeline *timeline);
json_t *replay_timeline_json(const replay_timeline *timeline);
int replay_timeline_print(const replay_timeline *timeline, const char *device);
/* "dgrad of block0.mlp.fc1": the task at the peak. Returns text. */
enum { REPLAY_TASK_TEXT = 96 };
char *replay_task_print(char text[REPLAY_TASK_TEXT], const tandem_step *step, int task);

/* One change that saves memory, with the values of the changed plan. */
typedef struct replay_remedy {
    char what[128]; /* "--recompute sqrt" */
    uint64_t peak_bytes;
    int64_t step_ns; /* −1 = a cost is missing */
    int fits;
} replay_remedy;

enum { REPLAY_MAX_REMEDIES = 12 };
/* Finds changes that save memory for class c, which needs peak_bytes: the fastest fitting recomputation,
 * micro-steps, both, lower precisions, smaller buckets, and the largest fitting batch. */
tandem_status replay_remedies_find(replay_remedy remedy[REPLAY_MAX_REMEDIES], int *n,
                                   const cli_options *options, const tandem_workload *workload, int c,
                                   uint64_t peak_bytes, tandem_error *error);
json_t *replay_remedies_json(const replay_remedy *remedy, int n, uint64_t peak_bytes);
int replay_remedies_print(const replay_remedy *remedy, int n, uint64_t peak_bytes, uint64_t limit_bytes,
                          const char *device);
