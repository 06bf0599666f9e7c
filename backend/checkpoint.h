/* checkpoint.h: the file of a training's state: weights, optimizer state and steps done.
 *
 * Numbers are little-endian, without padding:
 *
 *     magic      8 bytes "tandemck"
 *     version    u32: 3 = with amax histories at the end, 2 = without
 *     n_array    u32: 1 + state arrays of the optimizer
 *     step       i64: steps done; the next step has this index, which decides samples and draws
 *     hash       u64 of the graph
 *     n_weight   i64: numbers in each array
 *     model      128 bytes, optimizer 16 bytes, train_config TANDEM_CHECKPOINT_TRAIN_CONFIG bytes:
 *                texts, padded with zeros
 *     n_running  i64: numbers of a rank's running statistics (batchnorm_stats.h); 0 without batchnorms
 *     skipped    i64: steps that updated nothing (grad_scaler.h)
 *     n_rank     u32: ranks whose running statistics the file holds
 *     good_steps u32: steps since the loss scale changed
 *     scale      f32: the loss scale, above 0, up to 2^64; 0 = no scaling
 *     array_crc  u32 of each of three arrays, 0 = no array; then u32 of the running statistics
 *     crc        u32 of all bytes before it
 *     arrays     f32 [n_array][n_weight]: weights, then the optimizer's state
 *     running    f32 [n_rank][n_running]
 *
 * and, after a training with delayed scaling:
 *
 *     n_record   u32: casts of the rank that has most; window u32: of their histories
 *     record_crc u32; crc u32 of these three
 *     records    [n_rank][n_record], each a tandem_amax_record (amax_histories.h) up to its window,
 *                padded to 8 bytes
 *
 * An array holds the parameters in the graph's order, without gaps, so that a file does not depend on the
 * buckets. CRCs are CRC-32, as zlib computes it. */
#pragma once

#include <stdio.h>

#include "backend/executor/grad_scaler.h"
#include "backend/executor/batchnorm_stats.h"
#include "backend/executor/amax_histories.h"

enum { TANDEM_CHECKPOINT_ARRAYS = 3 };

/* The state of a training in an executor: flat arrays in the step program's layout. */
typedef struct tandem_training_state {
    const tandem_step *step;
    int n_array;
    float *array[TANDEM_CHECKPOINT_ARRAYS]; /* [step->n_flat]: weights, state… */
    tandem_loss_scale loss_scale;
    int n_rank;           /* of `running_stats` */
    float *running_stats; /* [n_rank][tandem_batchnorm_stats_count] */
    tandem_amax_snapshot histories;
    /* Called before array k is written, and after it was read: arrays may share memory, and other ranks have
     * parts of them. NULL: nothing. An error ends the writing or reading. */
    tandem_status (*exchange)(void *context, int k, tandem_error *error);
    void *exchange_context;
} tandem_training_state;

/* CRC-32 of array k, parameter by parameter. */
uint32_t tandem_checkpoint_crc(const tandem_training_state *state, int k);

/* Writes the file whole or not at all (base/file.h). crc[n_array]: of every array. TANDEM_IO,
 * TANDEM_NO_MEMORY: an old file is unchanged. */
tandem_status tandem_checkpoint_write(const char *path, const tandem_training_state *state,
                                      const uint32_t *crc, int64_t step, const char *train_config,
                                      tandem_error *error);

/* A valid file, still open: replacing it by a rename meanwhile changes nothing here. */
typedef struct tandem_checkpoint {
    FILE *stream;
    tandem_checkpoint_info info;
    tandem_loss_scale loss_scale;
    int n_rank;                     /* ranks whose running statistics it holds */
    tandem_amax_snapshot histories; /* all but the records */
} tandem_checkpoint;

/* Reads the whole file once, and compares it with its CRCs and with the graph. TANDEM_WRONG_FORMAT (no
 * checkpoint, or another version), TANDEM_MALFORMED (cut short, damaged, a number out of range),
 * TANDEM_WRONG_MODEL (another model or optimizer), TANDEM_IO. *checkpoint unchanged on error. Cost: reading
 * the file. */
tandem_status tandem_checkpoint_open(tandem_checkpoint *checkpoint, const char *path,
                                     const tandem_graph *graph, tandem_error *error);
void tandem_checkpoint_close(tandem_checkpoint *checkpoint); /* an all-zero one is fine */
/* Fills the state's arrays, `running_stats` and histories' records, which must have room for the file's. The
 * state must be of the graph that the file was opened with. TANDEM_IO, TANDEM_MALFORMED (a history that no
 * cast has): the arrays then hold a mixture. */
tandem_status tandem_checkpoint_read(const tandem_checkpoint *checkpoint, const tandem_training_state *state,
                                     const char *path, tandem_error *error);

/* checkpoint_inspect of backend.h. */
tandem_status tandem_checkpoint_inspect(tandem_checkpoint_info *info, const char *path,
                                        const tandem_graph *graph, tandem_error *error);
