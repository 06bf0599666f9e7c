/* scored_cluster.h: a sensing and statistics for a priced_cluster's store, so that everything a planner needs
 * is in it. */
#ifndef TANDEM_TESTS_SCORED_CLUSTER_H
#define TANDEM_TESTS_SCORED_CLUSTER_H

#include "tests/support/priced_cluster.h"
#include "tests/support/tandem_test.h"

/* Drawn errors of every adjustable operator: more of fewer bits, in proportion to `scale`. */
static inline void scored_cluster_file_sensing(const priced_cluster *p, const char *data, double scale)
{
    enum { N_REPLICATE = 3 };
    static const double coarse[TANDEM_N_PRECISION] = {
        [TANDEM_PRECISION_TF32] = 0.01, [TANDEM_PRECISION_FP16] = 0.01,   [TANDEM_PRECISION_BF16] = 0.1,
        [TANDEM_PRECISION_INT8] = 0.3,  [TANDEM_PRECISION_INT8_FULL] = 1, [TANDEM_PRECISION_FP8] = 1.5};
    const tandem_graph *const graph = p->graph[0];
    tandem_error error = {0};
    tandem_sensing sensing = {0};
    require_ok(tandem_sensing_open(&sensing, graph->n_op, 1, N_REPLICATE, &error), &error);
    sensing.batch = graph->batch;
    sensing.steps = 1;
    for (int r = 0; r < N_REPLICATE; r++) sensing.gradient[r] = (tandem_sensed_gradient){4, 1};
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE; i++) {
        const int place = i / TANDEM_N_AMP_DTYPE, precision = place % TANDEM_N_PRECISION;
        const tandem_op *const op = &graph->op[place / TANDEM_N_PRECISION];
        if (precision == TANDEM_PRECISION_FP32 || !tandem_op_is_adjustable(op) ||
            !(tandem_op_row_get(op->kind)->precisions & 1u << precision))
            continue;
        const double noise = scale * coarse[precision] * between(1e-3, 1e-1, draw(3, op->name, 41));
        sensing.is_sensed[i] = 1;
        for (int r = 0; r < N_REPLICATE; r++)
            tandem_sensing_errors(&sensing, 0, i)[r].total = noise * (1 + 0.01 * r);
    }
    require_ok(tandem_store_put_sensing(p->store, graph, data, &sensing, &error), &error);
    tandem_sensing_close(&sensing);
}

/* Both over the data set `data`; harms are in proportion to `scale`. */
static inline void scored_cluster_file(const priced_cluster *p, const char *data, double scale)
{
    tandem_error error = {0};
    assert_int_equal(tandem_store_begin(p->store, &error), TANDEM_OK);
    for (int i = 0; i < p->graph[0]->n_op; i++) {
        const tandem_op *op = &p->graph[0]->op[i];
        if (!tandem_op_is_adjustable(op)) continue;
        const double g = scale * between(1e-3, 1, draw(3, op->name, 40));
        const tandem_statistics statistics = {.n_batch = 2,
                                              .local_batch = p->graph[0]->batch,
                                              .rows = p->graph[0]->batch,
                                              .k = 64,
                                              .columns = 64,
                                              .x_elements = p->graph[0]->batch * 64,
                                              .w_elements = 4096,
                                              .x_amax = 2,
                                              .w_amax = 1,
                                              .g_amax = 0.5,
                                              .x_square = 100,
                                              .w_square = 50,
                                              .g_square = g,
                                              .wgrad_square = 1,
                                              .dgrad_square = 1,
                                              .g2_w2 = g,
                                              .g2_x2 = 2 * g,
                                              .g2_x2_c = 3 * g,
                                              .x2_g2_d = 4 * g};
        require_ok(tandem_store_put_statistics(p->store, p->graph[0], data, i, &statistics, &error), &error);
    }
    assert_int_equal(tandem_store_commit(p->store, &error), TANDEM_OK);
    scored_cluster_file_sensing(p, data, scale);
}

#endif
