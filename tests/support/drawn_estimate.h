/* drawn_estimate.h: an estimate of drawn numbers for a store, so that the default method finds one. */
#ifndef TANDEM_TESTS_DRAWN_ESTIMATE_H
#define TANDEM_TESTS_DRAWN_ESTIMATE_H

#include "tandem/advanced/estimate.h"
#include "tandem/advanced/store.h"
#include "tests/support/costed_cluster.h"
#include "tests/support/tandem_test.h"

/* Drawn errors of every adjustable operator: more of fewer bits, in proportion to `scale`. */
static inline void file_drawn_estimate(tandem_store *store, const tandem_graph *graph, const char *data,
                                       double scale)
{
    enum { N_REPLICATE = 3 };
    static const double coarse[TANDEM_N_PRECISION] = {
        [TANDEM_PRECISION_TF32] = 0.01, [TANDEM_PRECISION_FP16] = 0.01,   [TANDEM_PRECISION_BF16] = 0.1,
        [TANDEM_PRECISION_INT8] = 0.3,  [TANDEM_PRECISION_INT8_FULL] = 1, [TANDEM_PRECISION_FP8] = 1.5,
        [TANDEM_PRECISION_MXFP8] = 0.8, [TANDEM_PRECISION_NVFP4] = 8};
    tandem_error error = {0};
    tandem_estimate estimate = {0};
    require_ok(tandem_estimate_open(&estimate, graph->n_op, 1, N_REPLICATE, &error), &error);
    estimate.batch = graph->batch;
    estimate.steps = 1;
    for (int r = 0; r < N_REPLICATE; r++) estimate.gradient[r] = (tandem_estimated_gradient){4, 1};
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE; i++) {
        const int place = i / TANDEM_N_AMP_DTYPE, precision = place % TANDEM_N_PRECISION;
        const tandem_op *const op = &graph->op[place / TANDEM_N_PRECISION];
        if (precision == TANDEM_PRECISION_FP32 || !tandem_op_is_adjustable(op) ||
            !(tandem_op_row_get(op->kind)->precisions & 1u << precision))
            continue;
        const double noise = scale * coarse[precision] * between(1e-3, 1e-1, draw(3, op->name, 41));
        estimate.is_estimated[i] = 1;
        for (int r = 0; r < N_REPLICATE; r++)
            tandem_estimate_errors(&estimate, 0, i)[r].total = noise * (1 + 0.01 * r);
    }
    require_ok(tandem_store_put_estimate(store, graph, data, &estimate, &error), &error);
    tandem_estimate_close(&estimate);
}

#endif
