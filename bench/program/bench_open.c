/* bench_open.c: time to open a replayer, from a small and a large store, and time of a whole `tandem replay
 * --json` process. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/program/bench.h"
#include "cli/prediction.h"

enum { REPETITIONS = 30, MANY_ROWS = 100000 };

/* The file of `tandem`, which lies beside this program. */
static void find_tandem(char path[PATH_MAX])
{
    static const char name[] = "tandem";
    const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - sizeof name);
    path[n > 0 ? n : 0] = '\0';
    char *const slash = strrchr(path, '/');
    memcpy(slash ? slash + 1 : path, name, sizeof name);
}

/* Starts `tandem`, discards its result and waits for its end. */
static tandem_status run_replay_process(char *const *argument, tandem_error *error)
{
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    int code = -1, started = 0;
    char path[PATH_MAX];
    find_tandem(path);
    if (posix_spawn_file_actions_init(&actions) == 0) {
        started = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
                  posix_spawn(&child, path, &actions, NULL, argument, environ) == 0;
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    while (started && waitpid(child, &code, 0) < 0)
        if (errno != EINTR) break;
    /* 1: the plan does not fit, which takes as long to find out */
    if (started && WIFEXITED(code) && (WEXITSTATUS(code) == 0 || WEXITSTATUS(code) == 1)) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_IO, "`tandem replay` could not be started or failed");
}

static tandem_status measure_replay_processes(bench_result *result, const cli_options *options,
                                              const tandem_workload *workload, const char *name,
                                              tandem_error *error)
{
    char cluster[4096], batch[24], bucket[32];
    const int64_t n = options->repetitions > 0 ? options->repetitions : REPETITIONS;
    int64_t *sample_ns = malloc((size_t)n * sizeof *sample_ns);
    if (!sample_ns) return tandem_no_memory(error, "for %lld repetitions", (long long)n);
    tandem_cluster_print(cluster, sizeof cluster, &workload->cluster);
    (void)snprintf(batch, sizeof batch, "%lld", (long long)options->batch);
    (void)snprintf(bucket, sizeof bucket, "%lluB", (unsigned long long)options->bucket_bytes);
    char *argument[20] = {"tandem",
                          "--db",
                          (char *)(uintptr_t)options->db,
                          "--json",
                          "replay",
                          "--model",
                          (char *)(uintptr_t)options->model,
                          "--batch",
                          batch,
                          "--cluster",
                          cluster};
    int at = 11;
    if (options->bucket_bytes) argument[at++] = "--bucket", argument[at++] = bucket;
    if (options->predict) argument[at++] = "--predict";
    tandem_status status = TANDEM_OK;
    for (int64_t i = 0; i < n && status == TANDEM_OK; i++) {
        const int64_t begin = tandem_now_ns();
        status = run_replay_process(argument, error);
        sample_ns[i] = tandem_now_ns() - begin;
    }
    if (status == TANDEM_OK) bench_add_case(result, name, sample_ns, n);
    free(sample_ns);
    return status;
}

static tandem_status measure_store_open(bench_result *result, const cli_options *given,
                                        const tandem_workload *workload, int64_t n_more, tandem_error *error)
{
    char path[SCRATCH_STORE], name[96];
    const int64_t n = given->repetitions > 0 ? given->repetitions : REPETITIONS;
    cli_options options = *given;
    options.db = path;
    int64_t *sample_ns = malloc((size_t)n * sizeof *sample_ns);
    if (!sample_ns) return tandem_no_memory(error, "for %lld repetitions", (long long)n);
    tandem_status status =
        bench_store_make(path, &workload->cluster, (const tandem_graph *const *)workload->graph,
                         options.bucket_bytes, n_more, error);
    const int is_made = status == TANDEM_OK;
    for (int64_t i = 0; i < n && status == TANDEM_OK; i++) {
        tandem_planner *planner = NULL;
        const int64_t begin = tandem_now_ns();
        status = cli_planner_open(&planner, &options, workload, 1, error);
        sample_ns[i] = tandem_now_ns() - begin;
        tandem_planner_close(planner);
    }
    if (status == TANDEM_OK) {
        (void)snprintf(name, sizeof name, n_more ? "open among %lld rows" : "open", (long long)n_more);
        bench_add_case(result, name, sample_ns, n);
        (void)snprintf(name, sizeof name, n_more ? "process among %lld rows" : "process", (long long)n_more);
        status = measure_replay_processes(result, &options, workload, name, error);
    }
    if (is_made) scratch_store_remove(path);
    free(sample_ns);
    return status;
}

/* Without a store, if all devices have descriptions. */
static tandem_status measure_predicted_replay(bench_result *result, const cli_options *given,
                                              const tandem_workload *workload, tandem_error *error)
{
    cli_options options = *given;
    for (int c = 0; c < workload->cluster.n_class; c++)
        if (!tandem_device_is_described(&workload->cluster.classes[c].device)) return TANDEM_OK;
    options.db = "tandem-bench-no-such-store.db";
    options.predict = 1;
    return measure_replay_processes(result, &options, workload, "process, all predicted", error);
}

int bench_open(bench_result *result, const cli_options *given)
{
    char pair[BENCH_PAIR];
    cli_options options = *given;
    tandem_error error = {0};
    tandem_workload workload = {0};
    bench_default_pair(&options, pair);
    tandem_status status = cli_workload_open(&workload, &options, &error);
    if (status == TANDEM_OK) status = measure_store_open(result, &options, &workload, 0, &error);
    if (status == TANDEM_OK) status = measure_store_open(result, &options, &workload, MANY_ROWS, &error);
    if (status == TANDEM_OK) status = measure_predicted_replay(result, &options, &workload, &error);
    if (status == TANDEM_OK) bench_set_name(result, &workload);
    tandem_workload_close(&workload);
    return status == TANDEM_OK ? 0 : cli_fail(&error);
}
