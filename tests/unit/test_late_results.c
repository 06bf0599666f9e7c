/* folder: backend */
/* What a step ends with (late_results.h): a loss, or where training has diverged. */
#include <math.h>

#include "backend/executor/executor.h"
#include "tests/support/test_graph.h"

/* Of an executor that found its first gradient that is not finite in a parameter; −1: in none. */
static tandem_status finish(double *loss, float carried, int parameter, int allow_nan, tandem_error *error)
{
    tandem_graph *graph = open_graph("mlp:depth=1,width=4,image=4x4x1", 2);
    const tandem_executor executor = {
        .graph = graph, .nonfinite_parameter = parameter, .options = {.allow_nan = allow_nan}};
    *error = (tandem_error){.rank = 7};
    *loss = 3;
    const tandem_status status = tandem_late_finish_step(&executor, 4, carried, loss, error);
    tandem_graph_close(graph);
    return status;
}

static void a_finite_step_has_its_loss(void **state)
{
    tandem_error error;
    double loss;
    assert_int_equal(finish(&loss, 0.5F, -1, 0, &error), TANDEM_OK);
    assert_true(loss == 0.5);
}

/* All ranks see the same sums, so that rank 0 is the one that reports. */
static void check_divergence(float carried, int parameter, const char *says, const char *lacks)
{
    tandem_error error;
    double loss;
    assert_int_equal(finish(&loss, carried, parameter, 0, &error), TANDEM_LIMIT_EXCEEDED);
    if (!strstr(error.text, says) || !strstr(error.text, "in step 5: ") ||
        (lacks && strstr(error.text, lacks)))
        fail_msg("%s", error.text);
    assert_int_equal(error.rank, 0);
    assert_true(loss == 3);
}

static void either_a_loss_or_a_gradient_diverges(void **state)
{
    check_divergence(INFINITY, -1, "the loss is inf", "operator '");
    check_divergence(-NAN, -1, "the loss is nan", "operator '");
    check_divergence(0.5F, 0, "operator 'fc1' (linear) is not finite, the loss is 0.5", NULL);
    check_divergence(NAN, 2, "operator 'head' (linear) is not finite, the loss is nan", NULL);
}

static void a_nan_that_is_allowed_has_no_sign(void **state)
{
    tandem_error error;
    double loss;
    assert_int_equal(finish(&loss, -NAN, 0, 1, &error), TANDEM_OK);
    assert_true(isnan(loss) && !signbit(loss));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_finite_step_has_its_loss),
                                       cmocka_unit_test(either_a_loss_or_a_gradient_diverges),
                                       cmocka_unit_test(a_nan_that_is_allowed_has_no_sign)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
