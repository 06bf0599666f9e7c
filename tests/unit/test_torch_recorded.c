/* folder: trace */
/* Traces that PyTorch itself has written (tests/data/torch, by bench/torch/record.py), held against what
 * PyTorch sums up of them. */
#include <jansson.h>
#include <zlib.h>

#include "tandem/advanced/torch_trace.h"
#include "tests/support/tandem_test.h"

#define DATA "tests/data/torch/"

static tandem_torch_summary *read_traces(const char *const *path, int n)
{
    tandem_torch_summary *torch = NULL;
    tandem_error error = {0};
    require_ok(tandem_torch_read(&torch, path, n, &error), &error);
    return torch;
}

static json_t *read_sums(const char *path)
{
    static char text[1 << 18];
    const gzFile file = gzopen(path, "rb");
    if (!file) fail_msg("there is no %s: tests run in the folder above tests/", path);
    const int n = gzread(file, text, sizeof text);
    assert_true(n > 0 && n < (int)sizeof text);
    (void)gzclose(file);
    json_t *const sums = json_loadb(text, (size_t)n, 0, NULL);
    assert_non_null(sums);
    return sums;
}

/* Calls, total and own time of all rows with a name: of a trace, and of PyTorch's sums. */
static tandem_torch_cost cost_of_torch_recorded(const tandem_torch_summary *torch, const char *name)
{
    tandem_torch_cost sum = {0};
    for (int k = 0; k < torch->n_operator; k++) {
        if (strcmp(torch->operators[k].name, name) != 0) continue;
        sum.calls += torch->operators[k].cost.calls;
        sum.total_ns += torch->operators[k].cost.total_ns;
        sum.self_ns += torch->operators[k].cost.self_ns;
    }
    return sum;
}

static tandem_torch_cost sum_of(const json_t *sums, const char *name)
{
    tandem_torch_cost sum = {0};
    for (size_t k = 0; k < json_array_size(sums); k++) {
        const json_t *const row = json_array_get(sums, k);
        if (strcmp(json_string_value(json_object_get(row, "name")), name) != 0) continue;
        sum.calls += json_integer_value(json_object_get(row, "calls"));
        sum.total_ns += json_integer_value(json_object_get(row, "total_ns"));
        sum.self_ns += json_integer_value(json_object_get(row, "self_ns"));
    }
    return sum;
}

/* Every operator has PyTorch's calls and total time. Its own time may differ: whole us make slices overlap by
 * up to 2, of which PyTorch then counts one beside the other. Most have none such. */
static void check_file_torch_recorded(const char *trace, const char *path)
{
    tandem_torch_summary *const torch = read_traces(&trace, 1);
    json_t *const sums = read_sums(path);
    int n_same = 0;
    for (int k = 0; k < torch->n_operator; k++) {
        const char *const name = torch->operators[k].name;
        const tandem_torch_cost ours = cost_of_torch_recorded(torch, name), theirs = sum_of(sums, name);
        if (ours.calls != theirs.calls || ours.total_ns != theirs.total_ns)
            fail_msg("%s: %lld calls, %lld ns; PyTorch: %lld calls, %lld ns", name, (long long)ours.calls,
                     (long long)ours.total_ns, (long long)theirs.calls, (long long)theirs.total_ns);
        n_same += ours.self_ns == theirs.self_ns;
        assert_in_range(ours.self_ns, 0, ours.total_ns);
    }
    assert_true(torch->n_operator > 50);
    assert_true(4 * n_same > 3 * torch->n_operator);
    assert_int_equal(torch->rank[0].n_overlapping, 0);
    json_decref(sums);
    tandem_torch_close(torch);
}

static void sums_are_pytorchs(void **state)
{
    check_file_torch_recorded(DATA "gloo0.json.gz", DATA "gloo0.sums.json.gz");
    check_file_torch_recorded(DATA "gloo1.json.gz", DATA "gloo1.sums.json.gz");
    check_file_torch_recorded(DATA "autograd.json.gz", DATA "autograd.sums.json.gz");
}

/* How often a step calls an operator in a pass, over all its rows. */
static int64_t calls_in(const tandem_torch_summary *torch, const char *name, tandem_torch_pass pass,
                        int is_cast)
{
    int64_t n = 0;
    for (int k = 0; k < torch->n_operator; k++) {
        const tandem_torch_operator *const op = &torch->operators[k];
        if (strcmp(op->name, name) == 0 && op->pass == pass && op->is_cast == is_cast) n += op->cost.calls;
    }
    return n;
}

/* Six parameters, two linear operators, a convolution: of two ranks in two steps. */
static void passes_are_distinguished(void **state)
{
    static const char *const path[] = {DATA "gloo0.json.gz", DATA "gloo1.json.gz"};
    tandem_torch_summary *const torch = read_traces(path, 2);
    assert_int_equal(calls_in(torch, "aten::addmm", TANDEM_TORCH_FORWARD, 0), 4 * 2);
    assert_int_equal(calls_in(torch, "aten::mm", TANDEM_TORCH_BACKWARD, 0), 4 * 4);
    assert_int_equal(calls_in(torch, "aten::convolution_backward", TANDEM_TORCH_BACKWARD, 0), 4);
    assert_int_equal(calls_in(torch, "torch::autograd::AccumulateGrad", TANDEM_TORCH_BACKWARD, 0), 4 * 6);
    assert_int_equal(calls_in(torch, "torch::autograd::AccumulateGrad", TANDEM_TORCH_FORWARD, 0), 0);
    assert_int_equal(calls_in(torch, "aten::mul_", TANDEM_TORCH_OPTIMIZER, 0), 4 * 6); /* momentum */
    assert_int_equal(torch->rank[0].n_step, 2);
    tandem_torch_close(torch);
}

/* DistributedDataParallel reduces one bucket a step, and hands buffers round. */
static void collectives_are_joined(void **state)
{
    static const char *const path[] = {DATA "gloo0.json.gz", DATA "gloo1.json.gz"};
    tandem_torch_summary *const torch = read_traces(path, 2);
    assert_int_equal(torch->n_joined, 4);
    assert_int_equal(torch->n_collective, 2);
    int64_t wait_ns = 0;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(torch->collective[k].n, 2);
        assert_true(torch->collective[k].transfer_ns > 0);
        assert_int_equal(torch->rank[k].n_unjoined, 0);
        wait_ns += torch->collective[k].wait_ns;
    }
    assert_true(wait_ns > 0);
    tandem_torch_close(torch);
}

/* Autocast to bf16: its copies are casts though their types were not recorded; those of the momentum are
 * none. */
static void casts_are_rows(void **state)
{
    static const char *const path[] = {DATA "autograd.json.gz"};
    tandem_torch_summary *const torch = read_traces(path, 1);
    assert_int_equal(torch->rank[0].step[0].number, -1);
    assert_true(calls_in(torch, "aten::copy_", TANDEM_TORCH_FORWARD, 1) >= 4);
    assert_true(calls_in(torch, "aten::copy_", TANDEM_TORCH_BACKWARD, 1) >= 4);
    assert_true(calls_in(torch, "aten::_to_copy", TANDEM_TORCH_BACKWARD, 1) >= 4);
    tandem_torch_close(torch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_pytorchs),
        cmocka_unit_test(passes_are_distinguished),
        cmocka_unit_test(collectives_are_joined),
        cmocka_unit_test(casts_are_rows),
    };
    return cmocka_run_group_tests_name("torch_recorded", tests, NULL, NULL);
}
