/* amax_histories.h: the amax histories of an executor's casts, for delayed scaling (docs/rounding.md). They
 * lie in device memory, where each cast's kernel reads its range and adds the new amax. */
#pragma once

#include "backend/device/device_memory.h"

typedef struct tandem_amax_histories {
    const tandem_step *step;
    int n;                 /* 0 without delayed scaling */
    int *task;             /* [n] the tasks that have a history, ascending */
    uint64_t stride_bytes; /* from one history to the next */
    unsigned char *memory; /* [n × stride_bytes], of the caller, in device memory; tandem_memory.histories */
} tandem_amax_histories;

/* Finds the tasks that have a history. TANDEM_NO_MEMORY. */
tandem_status tandem_amax_histories_open(tandem_amax_histories *histories, const tandem_step *step,
                                         tandem_error *error);
/* an all-zero one is fine; does not free `memory` */
void tandem_amax_histories_close(tandem_amax_histories *histories);
/* Empties all histories. TANDEM_NO_MEMORY, TANDEM_NO_DEVICE. */
tandem_status tandem_amax_histories_reset(tandem_amax_histories *histories, tandem_worker *worker,
                                          tandem_error *error);
/* The history of a task that has one. */
tandem_amax_history *tandem_amax_histories_get(const tandem_amax_histories *histories, int task);

/* The histories of all ranks, as a checkpoint stores them. A cast is identified by kind, operator and dtype,
 * because task ids depend on the layout of the step. */
typedef struct tandem_amax_record {
    char kind[16], to[8]; /* "gradient cast", "s8"; all zero: unused, because the rank has fewer casts */
    int32_t op, unused;
    tandem_amax_history history; /* up to its window */
} tandem_amax_record;
typedef struct tandem_amax_snapshot {
    int32_t n_rank, n, window; /* n: records per rank; 0 = no histories */
    uint64_t record_bytes;
    unsigned char *record; /* [n_rank × n × record_bytes] */
} tandem_amax_snapshot;
static inline uint64_t tandem_amax_record_bytes(int window)
{
    return (offsetof(tandem_amax_record, history) + tandem_amax_history_bytes(window) + 7) / 8 * 8;
}
static inline uint64_t tandem_amax_snapshot_bytes(const tandem_amax_snapshot *snapshot)
{
    return (uint64_t)snapshot->n_rank * (uint64_t)snapshot->n * snapshot->record_bytes;
}

/* All ranks: every rank gets the snapshot, whose `record` the caller frees. TANDEM_NO_MEMORY,
 * TANDEM_NO_DEVICE. */
tandem_status tandem_amax_histories_gather(tandem_amax_snapshot *snapshot,
                                           const tandem_amax_histories *histories, tandem_worker *worker,
                                           tandem_error *error);
/* Sets this rank's histories from a snapshot with as many ranks and the same window. Otherwise all histories
 * begin empty, and so does a cast that the snapshot does not have. */
tandem_status tandem_amax_histories_restore(tandem_amax_histories *histories,
                                            const tandem_amax_snapshot *snapshot, tandem_worker *worker,
                                            tandem_error *error);
