/* spank_tandem.c: plugs tandem into Slurm. Options say what is trained; before a step starts, srun maps the step's nodes to
 * devices, allocates a plan, leaves it beside the job, and tells every task its part, so that `srun tandem train` needs no
 * further flags. docs/slurm.md is the manual.
 *
 * Everything that can fail happens in srun (local context): once a step, with the user's rights, complaining to the job's
 * stderr. slurmstepd (remote context) only reads what was left for it. A step without a plan ends by its tasks: they exit
 * with tandem's code before they begin. Callbacks never fail: in slurmstepd that would drain the node, and in srun it would
 * leave behind a step that holds its nodes until the job ends (Slurm 22.05). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC visibility push(default) /* Slurm looks its entry points up by name */
#include <slurm/slurm.h>
#include <slurm/spank.h>
const char plugin_name[] = "tandem", plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION_NUMBER, spank_plugin_version = 1;
#pragma GCC visibility pop

#include "allocator/slurm/job_files.h"
#include "allocator/slurm/step_nodes.h"
#include "allocator/slurm/submission.h"
#include "base/clock.h"
#include "base/quantity.h"
#include "tandem/planner.h"

/* --- Options ----------------------------------------------------------------------------------------------------------------- */

enum { MODEL, BATCH, DB, MEMORY, SLOWDOWN, BASE, POLICY, PLAN, N_OPTION };
static int check_option(int which, const char *text, int remote);

#define OPTION(which, name, value, usage) [which] = {name, value, usage, 1, which, check_option}
static struct spank_option options[] = {
    OPTION(MODEL, "tandem-model", "MODEL",
           "train this model with tandem: plan its precisions for the nodes of the job, e.g. vit_tiny:width=192"),
    OPTION(BATCH, "tandem-batch", "N", "samples a step on each rank [16]"),
    OPTION(DB, "tandem-db", "FILE", "profile store [$TANDEM_DB, or the site's, or tandem.db]"),
    OPTION(MEMORY, "tandem-memory", "SIZE,...", "memory limit of a rank, for all devices or one for each, e.g. 12GiB"),
    OPTION(SLOWDOWN, "tandem-slowdown", "P%", "how much longer than the fastest step the plan's may be [0%]"),
    OPTION(BASE, "tandem-base", "PRECISION", "what devices keep that would only wait: what you train in today [fp32]"),
    OPTION(POLICY, "tandem-policy", "POLICY", "how precisions are chosen (tandem list policies)"),
    OPTION(PLAN, "tandem-plan", "FILE", "use this plan instead of making one"),
};
_Static_assert(sizeof options / sizeof *options == N_OPTION, "an option each");

/* Called by sbatch, salloc and srun for each option, so that a slip is told at once; and by slurmstepd, where it is late. */
static int check_option(int which, const char *text, int remote)
{
    tandem_error error = {0};
    tandem_status status = TANDEM_OK;
    const tandem_policy *policy;
    tandem_precision base;
    int64_t batch = 0;
    uint64_t bytes = 0;
    double ratio = 0;
    if (remote) return 0;
    if (!text || !*text)
        status = tandem_error_set(&error, TANDEM_USAGE, "--%s needs a value", options[which].name);
    else if (which == BATCH)
        status = tandem_submission_batch(&batch, text, &error);
    else if (which == MEMORY)
        status = tandem_submission_memory(&bytes, text, &error);
    else if (which == SLOWDOWN)
        status = tandem_quantity_parse_ratio(&ratio, text, &error);
    else if (which == BASE)
        status = tandem_precision_find(&base, text, &error);
    else if (which == POLICY)
        status = tandem_policy_find(&policy, text, &error);
    if (status == TANDEM_OK) return 0;
    slurm_error("tandem: %s", error.text);
    return -1;
}

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    for (int i = 0; i < N_OPTION; i++)
        if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
            slurm_error("tandem: cannot register --%s", options[i].name);
    return 0;
}

/* What was asked for, NULL where it was not; whether anything was. */
static bool read_options(spank_t spank, const char *given[N_OPTION])
{
    bool any = false;
    for (int i = 0; i < N_OPTION; i++) {
        char *value = NULL;
        given[i] = spank_option_getopt(spank, &options[i], &value) == ESPANK_SUCCESS ? value : NULL;
        any = any || given[i];
    }
    return any;
}

/* --- Before the step: in srun -------------------------------------------------------------------------------------------------- */

typedef struct launch {
    const char *given[N_OPTION];
    uint32_t step;
    tandem_site *site;
    tandem_step_nodes nodes;
    int directory;   /* the job's working directory */
    char *db, *path; /* absolute: of the store, of the plan */
    char *meeting;   /* name of the directory in which the ranks meet */
    tandem_plan *plan;
    tandem_graph *graph; /* of the plan */
    bool reused;
} launch;

/* The directory that this process has to remove when the step is over. */
static char *meeting_to_remove;
static int directory_to_remove_from = -1;

static tandem_status no_memory(tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to start a step of tandem's");
}

static tandem_status open_site(launch *l, int argc, char **argv, tandem_error *error)
{
    char path[PATH_MAX];
    tandem_site_path(path, sizeof path);
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "conf=", 5) != 0)
            return tandem_error_set(error, TANDEM_USAGE,
                                    "plugstack.conf gives spank_tandem.so '%.100s'; it takes conf=FILE", argv[i]);
        (void)snprintf(path, sizeof path, "%s", argv[i] + 5);
    }
    return tandem_site_open(&l->site, path, error);
}

/* `path` as seen from the job's working directory. NULL without memory. */
static char *absolute(const launch *l, const char *path)
{
    char *made = NULL;
    if (path[0] == '/') return strdup(path);
    return asprintf(&made, "%s/%s", l->nodes.directory, path) < 0 ? NULL : made;
}

static tandem_status open_directory(launch *l, tandem_error *error)
{
    const char *db = l->given[DB], *of_user = getenv("TANDEM_DB");
    l->directory = open(l->nodes.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->directory < 0)
        return tandem_error_set(error, TANDEM_IO, "the job's working directory '%.300s' cannot be opened: %s",
                                l->nodes.directory, strerror(errno));
    if (!db && of_user && *of_user) db = of_user;
    if (!db && l->site->db[0]) db = l->site->db;
    l->db = absolute(l, db ? db : "tandem.db");
    return l->db ? TANDEM_OK : no_memory(error);
}

static tandem_status open_nodes(launch *l, spank_t spank, tandem_error *error)
{
    const char *total = getenv("SLURM_NTASKS"); /* srun counts the tasks of all components in it */
    tandem_step_name name = {.n_task_total = total ? (uint32_t)strtoul(total, NULL, 10) : 0};
    if (spank_get_item(spank, S_JOB_ID, &name.job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &name.step) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &name.n_task) != ESPANK_SUCCESS)
        return tandem_error_set(error, TANDEM_BUG, "srun does not tell the plug-in which step it starts");
    l->step = name.step;
    return tandem_step_nodes_open(&l->nodes, &name, l->site, error);
}

/* --- The plan -------------------------------------------------------------------------------------------------------------------- */

static tandem_status read_given_plan(launch *l, tandem_error *error)
{
    tandem_graph *asked = NULL;
    l->path = absolute(l, l->given[PLAN]);
    if (!l->path) return no_memory(error);
    tandem_status status = tandem_plan_read(&l->plan, &l->graph, l->path, error);
    if (status == TANDEM_OK && l->given[MODEL])
        status = tandem_graph_open(&asked, l->given[MODEL], l->graph->batch, error);
    if (asked) status = tandem_plan_check(l->plan, asked, error);
    tandem_graph_close(asked);
    return status;
}

static tandem_status open_planner(tandem_planner **planner, const launch *l, tandem_error *error)
{
    char cluster[TANDEM_LAYOUT_TEXT];
    tandem_request request = {
        .store = l->db, .model = l->given[MODEL], .cluster = cluster, .memory = l->given[MEMORY], .base = l->given[BASE]};
    for (int i = 0; i < l->nodes.n_node; i++)
        if (tandem_device_is_described(&l->nodes.node[i].device))
            request.predict = 1; /* nobody can have measured it */
    tandem_status status = tandem_layout_print(cluster, l->nodes.node, l->nodes.n_node, l->site->net, error);
    if (status == TANDEM_OK && l->given[BATCH])
        status = tandem_submission_batch(&request.batch, l->given[BATCH], error);
    if (status == TANDEM_OK) status = tandem_planner_open(planner, &request, error);
    if (status != TANDEM_OK) return status;
    tandem_allocation_problem *problem = tandem_planner_problem(*planner);
    problem->most_seconds = 0.05; /* the job waits meanwhile; what is not proven by then stays open */
    return l->given[SLOWDOWN] ? tandem_quantity_parse_ratio(&problem->slowdown, l->given[SLOWDOWN], error) : TANDEM_OK;
}

/* Whether an earlier step's plan is what this one asks for. */
static bool is_asked_for(const tandem_plan *plan, const launch *l, tandem_planner *planner)
{
    char wanted[TANDEM_LAYOUT_TEXT], there[TANDEM_LAYOUT_TEXT];
    tandem_cluster_print(wanted, sizeof wanted, tandem_planner_cluster(planner));
    tandem_cluster_print(there, sizeof there, &plan->cluster);
    return tandem_plan_check(plan, tandem_planner_graph(planner, 0), NULL) == TANDEM_OK &&
           strcmp(wanted, there) == 0 && fabs(plan->slowdown - tandem_planner_problem(planner)->slowdown) < 1e-9 &&
           plan->base == tandem_planner_problem(planner)->base &&
           (!l->given[POLICY] || strcmp(plan->policy, l->given[POLICY]) == 0);
}

/* An earlier step's plan in file `name`, where there is one and it is what is asked for. */
static tandem_status reuse(launch *l, tandem_planner *planner, const char *name, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_graph *graph = NULL;
    const tandem_status status = tandem_job_plan_read(&plan, &graph, l->directory, name, l->nodes.submitted, error);
    if (status != TANDEM_OK || !plan) return status;
    if (is_asked_for(plan, l, planner)) {
        l->plan = plan;
        l->graph = graph;
        l->reused = true;
        return TANDEM_OK;
    }
    tandem_graph_close(graph);
    tandem_plan_close(plan);
    return TANDEM_OK;
}

static tandem_status allocate(tandem_plan **plan, char **text, const launch *l, tandem_planner *planner,
                              tandem_error *error)
{
    tandem_allocation allocation;
    const tandem_status status = tandem_planner_allocate(plan, &allocation, planner, l->given[POLICY], error);
    if (status != TANDEM_OK) return status;
    *text = tandem_plan_text(*plan, tandem_planner_graph(planner, 0));
    return *text ? TANDEM_OK : no_memory(error);
}

/* A job has one plan, which its first step makes and the others use. A step that asks for something else, or runs on other
 * nodes, has a file of its own. */
static tandem_status make_plan(launch *l, tandem_planner *planner, tandem_error *error)
{
    char names[2][64], *text = NULL;
    tandem_plan *made = NULL;
    tandem_status status = TANDEM_OK;
    (void)snprintf(names[0], sizeof names[0], "tandem-plan-%u.json", l->nodes.job);
    (void)snprintf(names[1], sizeof names[1], "tandem-plan-%u.%u.json", l->nodes.job, l->step);
    for (int k = 0; k < 2 && status == TANDEM_OK && !l->plan; k++) {
        int exists = 0;
        free(l->path);
        if (!(l->path = absolute(l, names[k]))) status = no_memory(error);
        if (status == TANDEM_OK) status = reuse(l, planner, names[k], error);
        if (status != TANDEM_OK || l->plan) break;
        if (!made) status = allocate(&made, &text, l, planner, error);
        if (status == TANDEM_OK)
            status = tandem_job_plan_write(&exists, l->directory, names[k], text, l->nodes.submitted, error);
        if (status == TANDEM_OK && exists) status = reuse(l, planner, names[k], error);
        if (status == TANDEM_OK && !exists) {
            l->plan = made;
            made = NULL;
        }
    }
    if (status == TANDEM_OK && !l->plan)
        status = tandem_error_set(error, TANDEM_WRONG_MODEL,
                                  "'%.300s' is another plan than this step asks for; remove it", l->path);
    tandem_plan_close(made);
    free(text);
    return status;
}

static tandem_status open_plan(launch *l, tandem_error *error)
{
    tandem_planner *planner = NULL;
    tandem_status status = TANDEM_OK;
    if (l->given[PLAN]) {
        status = read_given_plan(l, error);
    } else if (l->given[MODEL]) {
        status = open_planner(&planner, l, error);
        if (status == TANDEM_OK) status = make_plan(l, planner, error);
        tandem_planner_close(planner);
    } else {
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "--tandem-… says how to train, but not what: give --tandem-model too");
    }
    if (status == TANDEM_OK)
        status = tandem_layout_ranks(l->nodes.node, l->nodes.n_node, &l->plan->cluster, error);
    return status;
}

/* --- What the tasks are told ------------------------------------------------------------------------------------------------------ */

enum { PLAN_PATH, STORE, DATABASE, RANKS, SIZE, INTERFACE, N_VARIABLE };
static const char *const variables[N_VARIABLE] = {"TANDEM_PLAN",  "TANDEM_STORE", "TANDEM_DB",
                                                  "TANDEM_RANKS", "WORLD_SIZE",   "TANDEM_IFACE"};
static const char failure_variable[] = "TANDEM_FAILED"; /* tandem's exit code, where the step has no plan */

/* In the environment of srun, which its tasks inherit; and in a file where the ranks meet, for those who do not: the tasks of
 * the other components of a heterogeneous job, and all with --export=NONE. */
static tandem_status tell(const launch *l, const char *const value[N_VARIABLE], tandem_error *error)
{
    char *path = NULL;
    FILE *file = asprintf(&path, "%s/environment", value[STORE]) < 0 ? NULL : fopen(path, "wxe");
    bool done = file != NULL;
    for (int k = 0; k < N_VARIABLE && done; k++) {
        if (!value[k]) continue;
        done = setenv(variables[k], value[k], 1) == 0 && fprintf(file, "%s=%s\n", variables[k], value[k]) > 0;
    }
    if (file && fclose(file) != 0) done = false;
    const int code = errno;
    free(path);
    return done ? TANDEM_OK
                : tandem_error_set(error, TANDEM_IO, "'%.200s' cannot be written: %s", l->meeting, strerror(code));
}

static tandem_status prepare_tasks(launch *l, tandem_error *error)
{
    char component[16] = "", size[16];
    const char *interface = getenv("TANDEM_IFACE");
    const uint32_t k = l->nodes.component;
    if (k) (void)snprintf(component, sizeof component, "+%u", k);
    if (asprintf(&l->meeting, ".tandem-run-%u%s.%u", l->nodes.job, component, l->step) < 0) {
        l->meeting = NULL;
        return no_memory(error);
    }
    tandem_status status = tandem_run_directory_make(l->directory, l->meeting, error);
    if (status != TANDEM_OK) return status;
    meeting_to_remove = strdup(l->meeting);
    directory_to_remove_from = dup(l->directory);

    char *store = absolute(l, l->meeting), *ranks = tandem_step_nodes_ranks(&l->nodes);
    (void)snprintf(size, sizeof size, "%d", tandem_cluster_n_rank(&l->plan->cluster));
    if (!interface && l->site->interface[0]) interface = l->site->interface;
    const char *const value[N_VARIABLE] = {[PLAN_PATH] = l->path, [STORE] = store, [DATABASE] = l->db,
                                           [RANKS] = ranks,       [SIZE] = size,   [INTERFACE] = interface};
    status = store && ranks ? tell(l, value, error) : no_memory(error);
    free(ranks);
    free(store);
    return status;
}

static void close_launch(launch *l)
{
    tandem_plan_close(l->plan);
    tandem_graph_close(l->graph);
    free(l->meeting);
    free(l->path);
    free(l->db);
    if (l->directory >= 0) (void)close(l->directory);
    tandem_step_nodes_close(&l->nodes);
    tandem_site_close(l->site);
}

static void report(const launch *l, int64_t nodes_ns, int64_t all_ns)
{
    char cluster[TANDEM_LAYOUT_TEXT], step[TANDEM_QUANTITY_TEXT];
    tandem_cluster_print(cluster, sizeof cluster, &l->plan->cluster);
    slurm_verbose("tandem: %s on %s, predicted step %s: %s", l->plan->model, cluster,
                  tandem_quantity_print_ns(step, sizeof step, l->plan->step_ns), l->path);
    slurm_verbose("tandem: ready in %.1f ms: %.1f ms to ask for the nodes, %.1f ms for the plan (%s)",
                  (double)all_ns * 1e-6, (double)nodes_ns * 1e-6, (double)(all_ns - nodes_ns) * 1e-6,
                  l->given[PLAN] ? "given" : (l->reused ? "of an earlier step" : "new"));
}

/* So that the tasks know: the step has no plan. */
static void tell_failure(tandem_status status)
{
    char code[16];
    (void)snprintf(code, sizeof code, "%d", tandem_status_exit_code(status));
    for (int k = 0; k < N_VARIABLE; k++) (void)unsetenv(variables[k]);
    (void)setenv(failure_variable, code, 1);
}

int slurm_spank_local_user_init(spank_t spank, int argc, char **argv)
{
    launch l = {.directory = -1};
    tandem_error error = {0};
    const int64_t begin_ns = tandem_now_ns();
    if (!read_options(spank, l.given)) return 0;
    (void)unsetenv(failure_variable);
    tandem_status status = open_site(&l, argc, argv, &error);
    if (status == TANDEM_OK) status = open_nodes(&l, spank, &error);
    const int64_t nodes_ns = tandem_now_ns() - begin_ns;
    if (status == TANDEM_OK) status = open_directory(&l, &error);
    if (status == TANDEM_OK) status = open_plan(&l, &error);
    if (status == TANDEM_OK) status = prepare_tasks(&l, &error);
    if (status == TANDEM_OK) {
        report(&l, nodes_ns, tandem_now_ns() - begin_ns);
    } else {
        slurm_error("tandem: %s", error.text);
        tell_failure(status);
    }
    close_launch(&l);
    return 0;
}

int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
    (void)spank;
    (void)argc;
    (void)argv;
    if (meeting_to_remove) tandem_run_directory_remove(directory_to_remove_from, meeting_to_remove);
    free(meeting_to_remove);
    meeting_to_remove = NULL;
    if (directory_to_remove_from >= 0) (void)close(directory_to_remove_from);
    directory_to_remove_from = -1;
    return 0;
}

/* --- In a task: in slurmstepd, behind its fork, as the user ----------------------------------------------------------------------- */

enum { MOST_TEXT = 1 << 17 }; /* Linux takes no longer string into an environment */

/* The file that srun has left where the ranks meet; NULL where there is none. Of a heterogeneous job it is named after the first
 * component that the step runs on: this one or an earlier one. */
static FILE *open_left(spank_t spank)
{
    char job[32] = "", step[32] = "", path[128];
    uint32_t own = 0;
    FILE *file = NULL;
    (void)spank_getenv(spank, "SLURM_JOB_ID", job, sizeof job);
    (void)spank_getenv(spank, "SLURM_STEP_ID", step, sizeof step);
    (void)spank_get_item(spank, S_JOB_ID, &own);
    const uint32_t leader = (uint32_t)strtoul(job, NULL, 10);
    if (own < leader || own - leader > 1024) return NULL;
    for (uint32_t k = own - leader + 1; k-- > 0 && !file;) {
        char component[16] = "";
        if (k) (void)snprintf(component, sizeof component, "+%u", k);
        (void)snprintf(path, sizeof path, ".tandem-run-%s%s.%s/environment", job, component, step);
        file = fopen(path, "re");
    }
    return file;
}

static bool read_left(spank_t spank)
{
    char *line = NULL;
    size_t room = 0;
    bool any = false;
    FILE *file = open_left(spank);
    while (file && getline(&line, &room, file) > 0) {
        char *value = strchr(line, '=');
        if (!value) continue;
        *value++ = '\0';
        value[strcspn(value, "\n")] = '\0';
        any = spank_setenv(spank, line, value, 1) == ESPANK_SUCCESS || any;
    }
    free(line);
    if (file) (void)fclose(file);
    return any;
}

static int set_number(spank_t spank, const char *name, int number)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", number);
    return spank_setenv(spank, name, text, 1) == ESPANK_SUCCESS;
}

/* Rank, core and device of task number `local` of this node. Of a node's tasks the first complains. */
static tandem_status tell_task(spank_t spank, char *ranks, int local)
{
    char node[256] = "", device[TANDEM_DEVICE_NAME];
    int first = 0;
    if (spank_getenv(spank, "TANDEM_RANKS", ranks, MOST_TEXT) != ESPANK_SUCCESS &&
        (!read_left(spank) || spank_getenv(spank, "TANDEM_RANKS", ranks, MOST_TEXT) != ESPANK_SUCCESS)) {
        if (!local)
            slurm_error("tandem: srun has left no plan here (was it given another --chdir than the job?)");
        return TANDEM_MISSING;
    }
    if (spank_getenv(spank, "SLURMD_NODENAME", node, sizeof node) != ESPANK_SUCCESS ||
        !tandem_ranks_find(&first, device, ranks, node)) {
        if (!local)
            slurm_error("tandem: node '%s' is not among those that the plan is for: %.200s", node, ranks);
        return TANDEM_WRONG_MODEL;
    }
    const bool done = set_number(spank, "RANK", first + local) && set_number(spank, "LOCAL_RANK", local) &&
                      spank_setenv(spank, "TANDEM_DEVICE", device, 1) == ESPANK_SUCCESS &&
                      spank_setenv(spank, "OMP_NUM_THREADS", "1", 1) == ESPANK_SUCCESS; /* as it was profiled */
    return done ? TANDEM_OK : TANDEM_NO_MEMORY;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    const char *given[N_OPTION];
    char code[16];
    uint32_t step = 0;
    int local = 0;
    if (!read_options(spank, given)) return 0;
    if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step >= SLURM_MAX_NORMAL_STEP_ID)
        return 0;
    if (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS) return 0;
    /* This is the task's own process, shortly before exec. */
    if (spank_getenv(spank, failure_variable, code, sizeof code) == ESPANK_SUCCESS)
        _exit((int)strtol(code, NULL, 10));
    char *ranks = malloc(MOST_TEXT);
    const tandem_status status = ranks ? tell_task(spank, ranks, local) : TANDEM_NO_MEMORY;
    if (status != TANDEM_OK) _exit(tandem_status_exit_code(status));
    free(ranks);
    return 0;
}
