/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* folder: trace */
/* Steps are written as JSON and as execution traces of Chakra, and these read back, while memory runs out:
 * NO_MEMORY is said, outputs are untouched, and no file is left that is not whole. */
#include <unistd.h>

#include "tandem/advanced/trace.h"
#include "tandem/advanced/whatif.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

typedef struct fixture {
    tandem_graph *graph;
    tandem_step *step;
    tandem_trace_event *event;
    int n_event;
    char folder[40], json[64], base[64], file[2][64];
} fixture;

static int open_fixture_chakra_memory(void **state)
{
    fixture *const f = calloc(1, sizeof *f);
    if (!f || tandem_graph_open(&f->graph, "mlp", 8, NULL) != TANDEM_OK ||
        tandem_step_open(&f->step, f->graph, TANDEM_F32, 1 << 18, NULL) != TANDEM_OK)
        return -1;
    f->event = calloc((size_t)f->step->n_task, sizeof *f->event);
    if (!f->event) return -1;
    for (int t = 0; t < f->step->n_task; t++)
        if (f->step->task[t].active) f->event[f->n_event++] = (tandem_trace_event){10 * t, 10 * t + 10, t};
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/tandem_chakra_XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    (void)snprintf(f->json, sizeof f->json, "%s/s.json", f->folder);
    (void)snprintf(f->base, sizeof f->base, "%s/s.et", f->folder);
    for (int k = 0; k < 2; k++) (void)snprintf(f->file[k], sizeof f->file[k], "%s/s.%d.et", f->folder, k);
    *state = f;
    return 0;
}

static int close_fixture_chakra_memory(void **state)
{
    fixture *const f = *state;
    (void)unlink(f->json);
    for (int k = 0; k < 2; k++) (void)unlink(f->file[k]);
    const int code = rmdir(f->folder);
    free(f->event);
    tandem_step_close(f->step);
    tandem_graph_close(f->graph);
    free(f);
    return code;
}

static tandem_status write_lanes_chakra_memory(const fixture *f, const char *path, tandem_error *error)
{
    const tandem_trace_track track[] = {{"cpu:a", 0, 1, f->step, f->event, f->n_event, 0, NULL, NULL},
                                        {"cpu:b", 1, 1, f->step, f->event, f->n_event, 0, NULL, NULL}};
    return tandem_trace_write(path, "title", track, 2, error);
}

static tandem_status write_json(const fixture *f, tandem_error *error)
{
    return write_lanes_chakra_memory(f, f->json, error);
}
static tandem_status write_chakra(const fixture *f, tandem_error *error)
{
    return write_lanes_chakra_memory(f, f->base, error);
}

static tandem_status read_chakra(const fixture *f, tandem_error *error)
{
    const char *const path[] = {f->file[0], f->file[1]};
    tandem_whatif *whatif = NULL;
    const tandem_status status = tandem_whatif_chakra(&whatif, path, 2, "/dev/null", error);
    assert_int_equal(status == TANDEM_OK, whatif != NULL);
    tandem_whatif_close(whatif);
    return status;
}

/* Lets allocation 1, 2, 3, … fail until there are no more. */
static void survive_chakra_memory(const fixture *f,
                                  tandem_status (*run)(const fixture *f, tandem_error *error), long least)
{
    long k = 0;
    for (int failed = 1; failed; k++) {
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = run(f, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        if (status != (failed ? TANDEM_NO_MEMORY : TANDEM_OK) || error.status != status)
            fail_msg("allocation %ld: %s: %s", k, tandem_status_name(status), error.text);
    }
    (void)printf("survived %ld failures\n", k - 1);
    assert_true(k - 1 >= least);
}

static void writing_json_survives(void **state) { survive_chakra_memory(*state, write_json, 4); }
static void writing_chakra_survives(void **state) { survive_chakra_memory(*state, write_chakra, 10); }

static void reading_chakra_survives(void **state)
{
    tandem_error error = {0};
    assert_int_equal(write_chakra(*state, &error), TANDEM_OK);
    survive_chakra_memory(*state, read_chakra, 500); /* mostly protobuf-c's, a message at a time */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writing_json_survives, open_fixture_chakra_memory,
                                        close_fixture_chakra_memory),
        cmocka_unit_test_setup_teardown(writing_chakra_survives, open_fixture_chakra_memory,
                                        close_fixture_chakra_memory),
        cmocka_unit_test_setup_teardown(reading_chakra_survives, open_fixture_chakra_memory,
                                        close_fixture_chakra_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
