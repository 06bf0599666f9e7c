/* checkpoint.h: the file that a training is put down in: weights, optimizer state, and how far it has come.
 *
 * Numbers are little-endian; there is no padding:
 *
 *     magic      8 bytes "tandemck"
 *     version    u32: 3 = amax histories stand behind, 2 = they do not
 *     n_array    u32: 1 + state arrays of the optimizer
 *     step       i64: steps done; the next has this index, which decides samples and draws
 *     hash       u64 of the graph
 *     n_weight   i64: numbers in each array
 *     model      128 bytes, optimizer 16 bytes, recipe TANDEM_CHECKPOINT_TRAIN_CONFIG bytes: texts, filled up
 *                with zeros
 *     n_running  i64: numbers of a rank's running statistics (batchnorm_stats.h); 0 without batchnorms
 *     skipped    i64: steps that updated nothing (grad_scaler.h)
 *     n_rank     u32: ranks whose running statistics the file holds
 *     good_steps       u32, scale f32: steps since the loss's scale changed, and that scale (above 0, to
 *                      2^64); 0: there is none
 *     array_crc  u32 for each of three arrays, 0 where there is none; and one for the running statistics
 *     crc        u32 of everything before
 *     arrays     f32 [n_array][n_weight]: weights, then the optimizer's state
 *     running    f32 [n_rank][n_running]
 *
 * and of a training with delayed scaling
 *
 *     n_record   u32: casts of a rank, the most of all ranks; window u32: of their histories
 *     record_crc u32; crc u32 of these three
 *     records    [n_rank][n_record], each as tandem_amax_record (amax_histories.h) up to its window, padded
 *                to 8 bytes
 *
 * An array holds the parameters one behind the other in the graph's order, without gaps, so that a file does
 * not depend on how gradients are put into buckets. CRCs are those of zlib (CRC-32). */
#ifndef TANDEM_BACKEND_CHECKPOINT_H
#define TANDEM_BACKEND_CHECKPOINT_H

#include <stdio.h>

#include "backend/executor/grad_scaler.h"
#include "backend/executor/batchnorm_stats.h"
#include "backend/executor/amax_histories.h"

enum { TANDEM_CHECKPOINT_ARRAYS = 3 };

/* The state of a training as an executor holds it: flat arrays, laid out by the step program. */
typedef struct tandem_training_state {
    const tandem_step *step;
    int n_array;
    float *array[TANDEM_CHECKPOINT_ARRAYS]; /* [step->n_flat]: weights, state… */
    tandem_loss_scale loss_scale;
    int n_rank;           /* of `running` */
    float *running_stats; /* [n_rank][tandem_batchnorm_stats_count] */
    tandem_amax_snapshot histories;
} tandem_training_state;

/* CRC-32 of array k, parameter by parameter. */
uint32_t tandem_checkpoint_crc(const tandem_training_state *state, int k);

/* tandem_checkpoint_write: the file is old or new, never half; see base/file.h. `crc`: of every array.
 * TANDEM_IO, TANDEM_NO_MEMORY: the old file stands as it was. */
tandem_status tandem_checkpoint_write(const char *path, const tandem_training_state *state,
                                      const uint32_t *crc, int64_t step, const char *train_config,
                                      tandem_error *error);

/* A file that was found whole, still open: what is renamed over it meanwhile changes nothing. */
typedef struct tandem_checkpoint {
    FILE *stream;
    tandem_checkpoint_info info;
    tandem_loss_scale loss_scale;
    int n_rank;                     /* whose running statistics it holds */
    tandem_amax_snapshot histories; /* all but the records */
} tandem_checkpoint;

/* tandem_checkpoint_open: reads all of the file once, against its CRCs, and holds it against the graph.
 * TANDEM_WRONG_FORMAT (no checkpoint, or of another version), TANDEM_MALFORMED (cut short, damaged, a number
 * out of its range), TANDEM_WRONG_MODEL (another model or optimizer), TANDEM_IO. *checkpoint unchanged on
 * error. Cost: the file, once. */
tandem_status tandem_checkpoint_open(tandem_checkpoint *checkpoint, const char *path,
                                     const tandem_graph *graph, tandem_error *error);
void tandem_checkpoint_close(tandem_checkpoint *checkpoint); /* an all-zero one is fine */
/* Fills the state's arrays, which must be those of the graph that the file was opened with, and `running` and
 * the histories' records, which must have room for what the file has. TANDEM_IO, TANDEM_MALFORMED (a history
 * no cast has): the arrays hold some of both. */
tandem_status tandem_checkpoint_read(const tandem_checkpoint *checkpoint, const tandem_training_state *state,
                                     const char *path, tandem_error *error);

/* Without an executor: what backend.h has as checkpoint_inspect. */
tandem_status tandem_checkpoint_inspect(tandem_checkpoint_info *info, const char *path,
                                        const tandem_graph *graph, tandem_error *error);

#endif
