/* batchnorm_stats.h: the running mean and variance of each batchnorm's channels, which evaluation uses.
 *
 * After each forward pass r becomes (1 − m)·r + m·b, where m is the operator's momentum, and b the batch's
 * mean, or n/(n − 1) times its variance over n numbers, as torch.nn.BatchNorm2d does. Source: Ioffe and
 * Szegedy, ICML 2015, algorithm 2, whose average over batches this is.
 *
 * Each rank updates its own statistics, without communication. Their mean over the ranks is used; because the
 * update is linear, this equals updating with the mean over the ranks' batches. */
#pragma once

#include "backend/device/device_memory.h"

typedef struct tandem_batchnorm_stats {
    int64_t n; /* numbers: 2 × channels of all batchnorms; 0 for a model without them */
    /* [n] of each batchnorm the means, then the variances; in device memory */
    float *value;
    int64_t *start; /* [n_op] the first number of an operator; −1: it is no batchnorm */
} tandem_batchnorm_stats;

/* Channels of an operator; 0: it is no batchnorm. */
static inline int64_t tandem_batchnorm_channels(const tandem_graph *graph, int op)
{
    return tandem_op_is_batchnorm(&graph->op[op]) ? tandem_shape_last(&graph->op[op].shape) : 0;
}
/* `n` of a graph. */
static inline int64_t tandem_batchnorm_stats_count(const tandem_graph *graph)
{
    int64_t n = 0;
    for (int i = 0; i < graph->n_op; i++) n += 2 * tandem_batchnorm_channels(graph, i);
    return n;
}
/* Means and variances are those of the model's file, or 0 and 1. TANDEM_NO_MEMORY; of a file also TANDEM_IO
 * and TANDEM_MALFORMED. */
tandem_status tandem_batchnorm_stats_open(tandem_batchnorm_stats *statistics, const tandem_graph *graph,
                                          tandem_worker *worker, tandem_error *error);
/* an all-zero one is fine */
void tandem_batchnorm_stats_close(tandem_batchnorm_stats *statistics, tandem_worker *worker);
/* Updates the statistics after a forward pass of batchnorm `op`, whose aux holds the batch's means and
 * variances. TANDEM_NO_DEVICE. */
tandem_status tandem_batchnorm_stats_update(tandem_batchnorm_stats *statistics, const tandem_graph *graph,
                                            int op, const float *aux, tandem_worker *worker,
                                            tandem_error *error);
/* Copies value[n] from the host. */
tandem_status tandem_batchnorm_stats_set(tandem_batchnorm_stats *statistics, const float *value,
                                         tandem_worker *worker, tandem_error *error);
/* mean[n] over n_copy consecutive copies, with the same bits on every rank. */
void tandem_batchnorm_stats_mean(float *mean, const float *copies, int n_copy, int64_t n);
/* All ranks: copies[n_rank][n] of all ranks, which the caller frees; NULL where n is 0. */
tandem_status tandem_batchnorm_stats_gather(float **copies, const tandem_batchnorm_stats *statistics,
                                            tandem_worker *worker, tandem_error *error);
