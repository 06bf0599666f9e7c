/* amax_histories.h: the amax histories of an executor's casts (delayed scaling, docs/rounding.md). They lie
 * where operands lie; a cast's kernel reads its range there and adds to it. Here they are made, found, and
 * put down in checkpoints and taken up again. */
#ifndef TANDEM_BACKEND_SCALING_H
#define TANDEM_BACKEND_SCALING_H

#include "backend/device/device_memory.h"

typedef struct tandem_amax_histories {
    const tandem_step *step;
    int n;                 /* 0 without delayed scaling */
    int *task;             /* [n] whose they are, ascending */
    uint64_t stride_bytes; /* from one to the next */
    unsigned char *memory; /* [n × stride_bytes], the caller's, where operands lie; tandem_memory.histories */
} tandem_amax_histories;

/* Finds which tasks have one. TANDEM_NO_MEMORY. */
tandem_status tandem_amax_histories_open(tandem_amax_histories *histories, const tandem_step *step,
                                         tandem_error *error);
/* an all-zero one is fine; leaves `memory` alone */
void tandem_amax_histories_close(tandem_amax_histories *histories);
/* All of them empty. TANDEM_NO_MEMORY, TANDEM_NO_DEVICE. */
tandem_status tandem_amax_histories_reset(tandem_amax_histories *histories, tandem_worker *worker,
                                          tandem_error *error);
/* That of a task that has one. */
tandem_amax_history *tandem_amax_histories_get(const tandem_amax_histories *histories, int task);

/* Those of all ranks, as a checkpoint holds them. A cast is known by its kind, operator and type: ids of
 * tasks change with how a step is laid out. */
typedef struct tandem_amax_record {
    char kind[16], to[8]; /* "gradient cast", "s8"; all zero: the rank has fewer than others */
    int32_t op, unused;
    tandem_amax_history history; /* as far as its window goes */
} tandem_amax_record;
typedef struct tandem_amax_snapshot {
    int32_t n_rank, n, window; /* n: records of a rank; 0 = there are none */
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

/* All ranks call together; every rank has the image, whose `record` becomes the caller's. TANDEM_NO_MEMORY,
 * TANDEM_NO_DEVICE. */
tandem_status tandem_amax_histories_gather(tandem_amax_snapshot *snapshot,
                                           const tandem_amax_histories *histories, tandem_worker *worker,
                                           tandem_error *error);
/* A rank's own casts go on with their histories. Of as many ranks and as long a window; else all begin anew,
 * and so does a cast that the image does not have. */
tandem_status tandem_amax_histories_restore(tandem_amax_histories *histories,
                                            const tandem_amax_snapshot *snapshot, tandem_worker *worker,
                                            tandem_error *error);

#endif
