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

/* tandem_remedies_find, for the reader. */
json_t *replay_remedies_json(const tandem_remedy *remedy, int n, uint64_t peak_bytes);
int replay_remedies_print(const tandem_remedy *remedy, int n, uint64_t peak_bytes, uint64_t limit_bytes,
                          const char *device);
