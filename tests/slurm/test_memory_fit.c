/* folder: plugins */
/* Whether a model fits: no plan takes less than what is said to be the least, and what is refused is said so
 * that it helps. */
#include "base/philox.h"
#include "plugins/slurm/memory_fit.h"
#include "plugins/slurm/submission.h"
#include "tandem/advanced/step.h"
#include "tests/support/tandem_test.h"

/* --- The least of all plans ----------------------------------------------------------------------------- */

enum { N_PLAN = 100, SEED = 7 };

/* The memory of a plan that dice have made. Every second plan has one precision but for some operators. */
static uint64_t random_peak(tandem_step *step, const tandem_device *device, uint32_t k)
{
    tandem_memory memory;
    for (int i = 0; i < step->graph->n_op; i++) {
        const tandem_op_row *row = tandem_op_row_get(step->graph->op[i].kind);
        if (row->op_class != TANDEM_ADJUSTABLE) continue;
        const tandem_philox_block dice = tandem_philox((uint32_t[4]){k, (uint32_t)i, 0, 0}, SEED);
        const int lean = k % 2 == 0 && dice.word[1] % 8 != 0;
        int p = (int)((lean ? k / 2 : dice.word[0]) % TANDEM_N_PRECISION);
        while (!(row->precisions & device->precisions & 1u << p)) p = (p + 1) % TANDEM_N_PRECISION;
        tandem_step_set(step, i, (tandem_precision)p);
    }
    tandem_step_resolve(step);
    assert_int_equal(tandem_memory_plan(&memory, step, NULL, NULL, NULL, NULL), TANDEM_OK);
    return memory.peak;
}

static void check_least(const char *model, int64_t batch, const tandem_device *device)
{
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    uint64_t least = 0, smallest = UINT64_MAX;
    assert_int_equal(tandem_graph_open(&graph, model, batch, NULL), TANDEM_OK);
    assert_int_equal(
        tandem_memory_fit_min_bytes(&least, graph, device, &(tandem_work_budget){.limit = UINT64_MAX}, NULL),
        TANDEM_OK);
    assert_int_equal(tandem_step_open(&step, graph, device->amp_dtype, 0, NULL), TANDEM_OK);
    for (uint32_t k = 0; k < N_PLAN; k++) {
        const uint64_t peak = random_peak(step, device, k);
        if (peak < least)
            fail_msg("%s at batch %d on %s: plan %u takes %lu B, less than %lu B", model, (int)batch,
                     device->name, k, (unsigned long)peak, (unsigned long)least);
        if (peak < smallest) smallest = peak;
    }
    /* It says more than nothing: most of what the smallest of these plans takes. */
    if (least < smallest / 2)
        fail_msg("%s at batch %d on %s: at least %lu B, yet the smallest plan takes %lu B", model, (int)batch,
                 device->name, (unsigned long)least, (unsigned long)smallest);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

static void no_plan_takes_less_than_the_least(void **state)
{
    static const int64_t batches[] = {1, 16, 200};
    (void)printf("# %d plans of each model, seed %d\n", N_PLAN, SEED);
    for (int m = 0; m < tandem_model_count(); m++)
        for (size_t b = 0; b < N_OF(batches); b++)
            for (int d = 0; d < tandem_device_count(); d += 3)
                check_least(tandem_model_get(m)->name, batches[b], tandem_device_get(d));
}

/* --- A batch that fits ---------------------------------------------------------------------------------- */

static tandem_status batch_within(int64_t *batch, const char *model, uint64_t limit, int64_t most,
                                  uint64_t units)
{
    tandem_device device;
    tandem_precision precision;
    tandem_work_budget budget = {.limit = units};
    assert_int_equal(tandem_device_find(&device, "cpu:sse41", NULL), TANDEM_OK);
    const tandem_status status =
        tandem_memory_fit_batch(batch, &precision, model, &device, limit, most, &budget, NULL);
    assert_true(budget.spent <= units);
    return status;
}

static void the_batch_found_fits_and_the_next_does_not(void **state)
{
    tandem_device device;
    assert_int_equal(tandem_device_find(&device, "cpu:sse41", NULL), TANDEM_OK);
    for (uint64_t limit = (uint64_t)40 << 20; limit < (uint64_t)1 << 30; limit = limit * 3 / 2) {
        int64_t batch = -1, again = -1;
        uint64_t least = 0;
        tandem_graph *graph = NULL;
        assert_int_equal(batch_within(&batch, "vit_tiny", limit, 100000, UINT64_MAX), TANDEM_OK);
        assert_true(batch > 1 && batch < 100000);
        /* looking up to it alone finds it again, at once */
        assert_int_equal(batch_within(&again, "vit_tiny", limit, batch, UINT64_MAX), TANDEM_OK);
        assert_int_equal(again, batch);
        assert_int_equal(tandem_graph_open(&graph, "vit_tiny", batch, NULL), TANDEM_OK);
        assert_int_equal(tandem_memory_fit_min_bytes(&least, graph, &device,
                                                     &(tandem_work_budget){.limit = UINT64_MAX}, NULL),
                         TANDEM_OK);
        assert_true(least <= limit);
        tandem_graph_close(graph);
    }
    int64_t batch = -1;
    assert_int_equal(batch_within(&batch, "vit_tiny", 1000, 64, UINT64_MAX), TANDEM_OK);
    assert_int_equal(batch, 0);
    assert_int_equal(batch_within(&batch, "mlp", (uint64_t)1 << 40, 64, UINT64_MAX), TANDEM_OK);
    assert_int_equal(batch, 64);
    assert_int_equal(batch_within(&batch, "mlp", (uint64_t)1 << 40, 0, UINT64_MAX), TANDEM_OK);
    assert_int_equal(batch, 0);
    assert_int_equal(batch_within(&batch, "mlp", (uint64_t)1 << 40, 1, UINT64_MAX), TANDEM_OK);
    assert_int_equal(batch, 1);
}

/* Less work finds a smaller batch, which fits all the same, or none. */
static void a_batch_is_looked_for_as_long_as_there_is_work(void **state)
{
    int64_t before = 0, all = 0;
    const uint64_t limit = (uint64_t)100 << 20;
    assert_int_equal(batch_within(&all, "vit_tiny", limit, 100000, UINT64_MAX), TANDEM_OK);
    for (uint64_t units = 0; units < 40000; units += 500) {
        int64_t batch = before;
        const tandem_status status = batch_within(&batch, "vit_tiny", limit, 100000, units);
        if (status != TANDEM_OK) assert_int_equal(status, TANDEM_LIMIT_EXCEEDED);
        assert_in_range(batch, before, all);
        before = batch;
    }
    assert_int_equal(before, all);
}

/* --- Submissions ---------------------------------------------------------------------------------------- */

typedef struct submission_row {
    tandem_submission submission;
    tandem_status status;
    const char *says;
} submission_row;

static void jobs_are_looked_at_as_they_are_submitted(void **state)
{
    const uint64_t mebibyte = 1 << 20;
    static const char conf[] = "gres gpu:old cpu:sse41\n";
    tandem_site *site = NULL;
    assert_int_equal(tandem_site_parse(&site, conf, strlen(conf), "a site", NULL), TANDEM_OK);
    const submission_row rows[] = {
        {{.batch = "0"}, TANDEM_OK, NULL}, /* none of tandem's */
        {{.model = "vit_tiny"}, TANDEM_OK, NULL},
        {{.model = "vit_tny"}, TANDEM_UNKNOWN_NAME, "Did you mean 'vit_tiny'"},
        {{.model = "vit_tiny:heads=0"}, TANDEM_USAGE, "heads is '0'"},
        {{.model = "vit_tiny", .batch = "x"}, TANDEM_USAGE, "--tandem-batch"},
        {{.model = "vit_tiny", .batch = "1048577"}, TANDEM_USAGE, "--tandem-batch"},
        {{.model = "vit_tiny", .memory = "1GiB,2"}, TANDEM_USAGE, "unit"},
        {{.model = "vit_tiny", .resources = {"gres:gpu:odl:1"}},
         TANDEM_UNKNOWN_NAME,
         "Did you mean 'gpu:old'"},
        {{.model = "vit_tiny", .resources = {NULL, NULL, "gres:nic:mlx:1", "gres:gpu:1"}}, TANDEM_OK, NULL},
        /* memory: of the option, of the largest in a list, of --mem on a CPU */
        {{.model = "vit_tiny", .batch = "256", .memory = "300MiB", .resources = {NULL, "gres:gpu:old:1"}},
         TANDEM_INFEASIBLE,
         "300 MiB"},
        {{.model = "vit_tiny", .batch = "256", .memory = "1MiB,1GiB", .resources = {"gpu:old"}},
         TANDEM_OK,
         NULL},
        {{.model = "vit_tiny",
          .batch = "256",
          .features = "[cpu_avx2*2&ssd]",
          .task_memory_bytes = 300 * mebibyte},
         TANDEM_INFEASIBLE,
         "cpu:avx2"},
        {{.model = "vit_tiny",
          .batch = "256",
          .memory = "1GiB",
          .features = "cpu_avx2",
          .task_memory_bytes = 300 * mebibyte},
         TANDEM_INFEASIBLE,
         "300 MiB"},
        {{.model = "vit_tiny", .batch = "256", .features = "cpu_avx2|big", .task_memory_bytes = mebibyte},
         TANDEM_OK,
         NULL},
        {{.model = "vit_tiny", .batch = "256", .features = "ssd", .task_memory_bytes = mebibyte},
         TANDEM_OK,
         NULL},
        {{.model = "vit_tiny", .batch = "256", .memory = "10MiB", .features = "cpu_avx2"},
         TANDEM_INFEASIBLE,
         "no batch fits"},
        /* as far as the work goes: what is too large is reported, also then */
        {{.model = "gpt2_small:layers=73"}, TANDEM_LIMIT_EXCEEDED, "more work than slurmctld gives a job"},
        {{.model = "gpt2_small:layers=24",
          .memory = "900TiB",
          .resources = {"gpu:old,gpu:t4,gpu:p100,gpu:p4,gpu:a10,gpu:l4"}},
         TANDEM_LIMIT_EXCEEDED,
         "srun looks again"},
        {{.model = "gpt2_small:layers=24",
          .memory = "1GiB",
          .resources = {"gpu:old,gpu:t4,gpu:p100,gpu:p4,gpu:a10,gpu:l4"}},
         TANDEM_INFEASIBLE,
         "does not fit cpu:sse41"},
        {{.model = "gpt2_small:layers=32", .memory = "1GiB", .resources = {"gpu:h100"}},
         TANDEM_INFEASIBLE,
         "a smaller --tandem-batch may fit"},
    };
    for (size_t k = 0; k < N_OF(rows); k++) {
        tandem_error error = {0};
        tandem_work_budget work = {.limit = TANDEM_SUBMISSION_MAX_WORK};
        const tandem_status status = tandem_submission_check(&work, &rows[k].submission, site, &error);
        if (status != rows[k].status || (rows[k].says && !strstr(error.text, rows[k].says)))
            fail_msg("row %zu: %s: %s", k, tandem_status_name(status), error.text);
        assert_int_equal(tandem_submission_is_refused(status),
                         status != TANDEM_OK && status != TANDEM_LIMIT_EXCEEDED);
        assert_true(work.spent <= work.limit);
    }
    tandem_site_close(site);
}

/* Cards that have the same precisions cost one look. */
static void devices_alike_are_looked_at_once(void **state)
{
    tandem_site *site = NULL;
    tandem_work_budget one = {.limit = TANDEM_SUBMISSION_MAX_WORK}, three = one, others = one;
    assert_int_equal(tandem_site_parse(&site, "", 0, "none", NULL), TANDEM_OK);
    const tandem_submission alone = {.model = "bert_base", .memory = "900TiB", .resources = {"gpu:h100"}};
    const tandem_submission alike = {
        .model = "bert_base", .memory = "900TiB", .resources = {"gpu:h100,gpu:h200,gpu:l4"}};
    const tandem_submission different = {
        .model = "bert_base", .memory = "900TiB", .resources = {"gpu:h100,gpu:a100,gpu:t4"}};
    assert_int_equal(tandem_submission_check(&one, &alone, site, NULL), TANDEM_OK);
    assert_int_equal(tandem_submission_check(&three, &alike, site, NULL), TANDEM_OK);
    assert_int_equal(tandem_submission_check(&others, &different, site, NULL), TANDEM_OK);
    assert_in_range(three.spent - one.spent, 1, 100); /* two names more to be looked up */
    assert_true(others.spent > 2 * one.spent);
    tandem_site_close(site);
}

static void what_is_no_fault_of_the_job_lets_it_through(void **state)
{
    tandem_error error = {0};
    tandem_site *site = NULL;
    assert_int_equal(tandem_site_open(&site, "/", &error), TANDEM_IO); /* a directory is no tandem.conf */
    assert_null(site);
    assert_false(tandem_submission_is_refused(TANDEM_IO));
    assert_false(tandem_submission_is_refused(TANDEM_NO_MEMORY));
    assert_false(tandem_submission_is_refused(TANDEM_MALFORMED));
    assert_false(tandem_submission_is_refused(TANDEM_LIMIT_EXCEEDED));
    char model[5000];
    memset(model, 'm', sizeof model);
    model[sizeof model - 1] = '\0';
    assert_int_equal(tandem_submission_check(&(tandem_work_budget){.limit = 1},
                                             &(tandem_submission){.model = model}, NULL, &error),
                     TANDEM_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_plan_takes_less_than_the_least),
        cmocka_unit_test(the_batch_found_fits_and_the_next_does_not),
        cmocka_unit_test(a_batch_is_looked_for_as_long_as_there_is_work),
        cmocka_unit_test(jobs_are_looked_at_as_they_are_submitted),
        cmocka_unit_test(devices_alike_are_looked_at_once),
        cmocka_unit_test(what_is_no_fault_of_the_job_lets_it_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
