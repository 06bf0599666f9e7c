/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free */
/* folder: graph */
/* Every allocation on the way to a graph fails once: NO_MEMORY is said, nothing leaks, nothing is half done.
 */
#include "graph/ir/build.h"
#include "graph/onnx/onnx.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

static tandem_graph *const untouched = (tandem_graph *)(uintptr_t)0x10;

/* Opens `model` with allocation 1, 2, 3, … failing until it succeeds; the number of those that failed. */
static long open_failing(const char *model)
{
    static const tandem_onnx_options none;
    for (long k = 0;; k++) {
        const long alive = tandem_allocations_alive();
        tandem_graph *graph = untouched;
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = strstr(model, ".onnx")
                                         ? tandem_onnx_open(&graph, model, model, &none, 4, &error)
                                         : tandem_graph_open(&graph, model, 4, &error);
        const int failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        assert_int_equal(error.status, status);
        if (!failed) {
            tandem_graph_close(graph);
            assert_int_equal(tandem_allocations_alive(), alive);
            return k;
        }
        assert_ptr_equal(graph, untouched);
        assert_true(error.text[0] != '\0');
        assert_int_equal(tandem_allocations_alive(), alive);
    }
}

static void every_model_survives(void **state)
{
    for (int i = 0; i < tandem_model_count(); i++) {
        const char *name = tandem_model_get(i)->name;
        const long n = open_failing(name);
        (void)printf("%s: survived %ld failures\n", name, n);
        assert_true(n >= 8); /* builder, names, operators, parameters, graph and its three arrays */
    }
}

/* With growth of every array on the way. */
static void a_large_model_survives(void **state)
{
    const long small = open_failing("mlp"), large = open_failing("vit_tiny:depth=64");
    assert_true(large > small);
}

static void every_import_survives(void **state)
{
    static const char *const files[] = {"as_nodes", "tied", "conv", "takes_turned", "rotated", "places"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "tests/data/onnx/%s.onnx", files[i]);
        assert_true(open_failing(path) > 20);
    }
}

/* An error ends what the builder takes on, and what it had is still given back. */
static void a_builder_stays_closed_after_failure(void **state)
{
    const long alive = tandem_allocations_alive();
    tandem_builder *b = NULL;
    tandem_error error = {0};
    tandem_graph *graph = untouched;
    assert_int_equal(tandem_builder_open(&b, 2, &error), TANDEM_OK);
    tandem_fail_allocation_after(0);
    assert_int_equal(tandem_build_images(b, "image", 4, 4, 1), -1);
    assert_true(tandem_allocation_failed());
    tandem_fail_allocation_after(-1);
    assert_int_equal(tandem_build_images(b, "image", 4, 4, 1), -1);
    const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.1f};
    assert_int_equal(tandem_builder_finish(b, "test", &sgd, &graph, &error), TANDEM_NO_MEMORY);
    assert_ptr_equal(graph, untouched);
    tandem_builder_close(b);
    assert_int_equal(tandem_allocations_alive(), alive);
}

/* A search that fails needs memory for its suggestion only. */
static void a_search_does_without_its_suggestion(void **state)
{
    tandem_graph *graph = NULL;
    assert_int_equal(tandem_graph_open(&graph, "mlp", 4, NULL), TANDEM_OK);
    tandem_error error = {0};
    int op = 77;
    assert_int_equal(tandem_graph_find(&op, graph, "haed", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "Did you mean 'head'"));
    tandem_fail_allocation_after(0);
    assert_int_equal(tandem_graph_find(&op, graph, "haed", &error), TANDEM_UNKNOWN_NAME);
    assert_true(tandem_allocation_failed());
    tandem_fail_allocation_after(-1);
    assert_null(strstr(error.text, "Did you mean"));
    assert_int_equal(op, 77);
    tandem_graph_close(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_survives),
        cmocka_unit_test(a_large_model_survives),
        cmocka_unit_test(every_import_survives),
        cmocka_unit_test(a_builder_stays_closed_after_failure),
        cmocka_unit_test(a_search_does_without_its_suggestion),
    };
    return cmocka_run_group_tests_name("graph: memory runs out", tests, NULL, NULL);
}
