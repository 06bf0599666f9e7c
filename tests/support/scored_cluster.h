/* scored_cluster.h: an estimate and statistics for a costed_cluster's store, so that everything a planner
 * needs is in it. */
#ifndef TANDEM_TESTS_SCORED_CLUSTER_H
#define TANDEM_TESTS_SCORED_CLUSTER_H

#include "tests/support/drawn_estimate.h"
#include "tests/support/costed_cluster.h"
#include "tests/support/tandem_test.h"

/* Both over the data set `data`; harms are in proportion to `scale`. */
static inline void scored_cluster_file(const costed_cluster *p, const char *data, double scale)
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
    file_drawn_estimate(p->store, p->graph[0], data, scale);
}

#endif
