/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* folder: trace */
/* Recorded traces of every kind are read and analysed while memory runs out: NO_MEMORY is said, and outputs
 * are untouched. */
#include "tandem/advanced/dag_simulator.h"
#include "tandem/advanced/torch_trace.h"
#include "tandem/advanced/whatif.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

typedef tandem_status (*work)(tandem_error *error);

/* Lets allocation 1, 2, 3, … fail until there are no more. */
static void survive_whatif_memory(work run, long least)
{
    long k = 0;
    for (int failed = 1; failed; k++) {
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = run(&error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        if (status != (failed ? TANDEM_NO_MEMORY : TANDEM_OK) || error.status != status)
            fail_msg("allocation %ld: %s: %s", k, tandem_status_name(status), error.text);
    }
    (void)printf("survived %ld failures\n", k - 1);
    assert_true(k - 1 >= least);
}

static tandem_status analyse_job_whatif_memory(tandem_error *error)
{
    static const char csv[] =
        "dp_rank,stage,step,optype,seq_id,start_us,dur_us\n"
        "0,0,7,forward-compute,0,0,10\n0,0,7,forward-send,0,10,5\n0,1,7,forward-recv,0,12,3\n"
        "0,1,7,forward-compute,0,15,10\n0,1,7,backward-compute,0,25,20\n0,1,7,backward-send,0,45,1\n"
        "0,0,7,backward-recv,0,16,30\n0,0,7,backward-compute,0,46,30\n0,0,7,optimizer,0,76,6\n";
    tandem_pipeline_trace *pipeline = NULL;
    tandem_whatif *whatif = NULL;
    tandem_status status = tandem_pipeline_trace_parse(&pipeline, csv, sizeof csv - 1, "trace.csv", error);
    assert_int_equal(status == TANDEM_OK, pipeline != NULL);
    if (status == TANDEM_OK) status = tandem_whatif_pipeline(&whatif, pipeline, "/dev/null", error);
    assert_int_equal(status == TANDEM_OK, whatif != NULL);
    tandem_whatif_close(whatif);
    tandem_pipeline_trace_close(pipeline);
    return status;
}

static tandem_status analyse_step(tandem_error *error)
{
#define TASK(kind, pid, task, ts, dur)                                                                       \
    ",{\"ph\":\"X\",\"pid\":" #pid ",\"ts\":" #ts ",\"dur\":" #dur ",\"args\":{\"kind\":\"" kind             \
    "\",\"task\":" #task "}}"
    static const char json[] =
        "[{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{\"name\":\"rank 0\"}}" TASK("forward",
                                                                                                  0, 0, 0, 10)
            TASK("all-reduce", 0, 1, 10, 25) TASK("update", 0, 2, 35, 1) TASK("forward", 1, 0, 0, 30)
                TASK("all-reduce", 1, 1, 30, 5) TASK("wait", 1, -1, 30, 5) TASK("update", 1, 2, 35, 1) "]";
    tandem_whatif *whatif = NULL;
    const tandem_status status =
        tandem_whatif_parse_trace(&whatif, json, sizeof json - 1, "step.json", error);
    assert_int_equal(status == TANDEM_OK, whatif != NULL);
    tandem_whatif_close(whatif);
    return status;
}

static tandem_status analyse_torch(tandem_error *error)
{
#define SLICE(category, name, ts, dur, args)                                                                 \
    "{\"ph\":\"X\",\"cat\":\"" category "\",\"name\":\"" name "\",\"pid\":1,\"tid\":1,\"ts\":" #ts           \
    ",\"dur\":" #dur ",\"args\":{" args "}}"
    /* clang-format off */
    static const char json[] = "{\"traceEvents\":["
        SLICE("user_annotation", "ProfilerStep#1", 0, 100, "") ","
        SLICE("cpu_op", "aten::mm", 1, 5, "\"External id\":3") ","
        SLICE("cpu_op", "aten::add", 8, 5, "\"External id\":1027") ","
        SLICE("cuda_runtime", "cudaLaunchKernel", 9, 1, "\"correlation\":7") ","
        SLICE("kernel", "gemm", 10, 40, "\"External id\":3") ","
        SLICE("kernel", "add", 50, 4, "\"External id\":7,\"correlation\":7") ","
        SLICE("kernel", "ncclDevKernel_AllReduce", 55, 35, "") "]}";
    /* clang-format on */
    tandem_torch_summary *torch = NULL;
    const tandem_status status = tandem_torch_parse(&torch, json, sizeof json - 1, "torch.json", error);
    assert_int_equal(status == TANDEM_OK, torch != NULL);
    tandem_torch_close(torch);
    return status;
}

/* Call parents on a cycle with data. */
static tandem_status analyse_calls(tandem_error *error)
{
    static const char bytes[] = "\7\n\0050.0.4"
                                "\14\10\2\22\1a\30\4\52\1\3\70\5"  /* 2 waits for 3 */
                                "\14\10\3\22\1b\30\4\42\1\2\70\5"; /* 3 was called by 2 */
    const char *const source[] = {"calls.0.et"};
    const void *const of[] = {bytes};
    const size_t n[] = {sizeof bytes - 1};
    tandem_whatif *whatif = NULL;
    const tandem_status status = tandem_whatif_parse_chakra(&whatif, source, of, n, 1, error);
    assert_int_equal(status == TANDEM_OK, whatif != NULL);
    if (whatif) assert_int_equal(whatif->n_dropped_control, 1);
    tandem_whatif_close(whatif);
    return status;
}

static tandem_status open_engine(tandem_error *error)
{
    static const int stream[] = {0, 0, 1, 1}, group[] = {-1, 0, 0, -1};
    static const tandem_dag_edge edge[] = {{0, 3}};
    const tandem_dag graph = {
        .n_op = 4, .n_stream = 2, .n_group = 1, .n_edge = 1, .stream = stream, .group = group, .edge = edge};
    tandem_dag_simulator *engine = NULL;
    const tandem_status status = tandem_dag_simulator_open(&engine, &graph, error);
    assert_int_equal(status == TANDEM_OK, engine != NULL);
    tandem_dag_simulator_close(engine);
    return status;
}

static void a_job_survives(void **state) { survive_whatif_memory(analyse_job_whatif_memory, 20); }

static void a_step_survives(void **state) { survive_whatif_memory(analyse_step, 15); }

static void a_torch_trace_survives(void **state) { survive_whatif_memory(analyse_torch, 20); }

static void calls_survive(void **state) { survive_whatif_memory(analyse_calls, 20); }

static void an_engine_survives(void **state) { survive_whatif_memory(open_engine, 3); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_survives),         cmocka_unit_test(a_step_survives),
        cmocka_unit_test(a_torch_trace_survives), cmocka_unit_test(calls_survive),
        cmocka_unit_test(an_engine_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
