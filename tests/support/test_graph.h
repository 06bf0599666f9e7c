/* test_graph.h: opens a model of the zoo, and finds its operators, in a test that cannot go on without. */
#ifndef TANDEM_TESTS_SUPPORT_TEST_GRAPH_H
#define TANDEM_TESTS_SUPPORT_TEST_GRAPH_H

#include "tandem/graph.h"
#include "tests/support/tandem_test.h"

static inline tandem_graph *open_graph(const char *model, int64_t batch)
{
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    require_ok(tandem_graph_open(&graph, model, batch, &error), &error);
    return graph;
}

static inline int op_of(const tandem_graph *graph, const char *name)
{
    int op = -1;
    tandem_error error = {0};
    require_ok(tandem_graph_find(&op, graph, name, &error), &error);
    return op;
}

#endif
