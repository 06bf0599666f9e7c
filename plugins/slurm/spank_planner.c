/* spank_planner.c: what srun does before a step starts: it maps the step's nodes to devices, allocates a
 * plan, writes it to the job's directory, and publishes what every task needs. It is
 * spank_tandem_planner.so, in the user's own process, with the user's rights. */
#include "plugins/slurm/spank_planner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "plugins/slurm/job_plan.h"
#include "plugins/slurm/step_nodes.h"
#include "base/clock.h"
#include "base/quantity.h"

/* --- Options -------------------------------------------------------------------------------------------- */

static int check_spank_option(tandem_spank_option option, const char *name, const char *text)
{
    tandem_error error = {0};
    if (tandem_step_check_option(option, name, text, &error) == TANDEM_OK) return 1;
    slurm_error("tandem: %s", error.text);
    return 0;
}

/* --- A step that starts --------------------------------------------------------------------------------- */

typedef struct step_launch {
    const char *const *given; /* [TANDEM_N_SPANK_OPTION] */
    uint32_t step;
    tandem_site *site;
    tandem_step_nodes nodes;
    int directory;   /* the job's working directory */
    char *db, *path; /* absolute paths of the store and the plan */
    tandem_plan *plan;
    tandem_graph *graph;  /* of a plan that was read */
    tandem_answer answer; /* whose plan it is, of a plan that was made */
    bool is_reused;
} step_launch;

static tandem_status launch_no_memory(tandem_error *error)
{
    return tandem_no_memory(error, "to start a step of tandem's");
}

static tandem_status open_step_site(step_launch *l, int argc, char **argv, tandem_error *error)
{
    char path[PATH_MAX];
    tandem_site_path(path, sizeof path);
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "conf=", 5) != 0)
            return tandem_error_set(error, TANDEM_USAGE,
                                    "plugstack.conf gives spank_tandem.so '%.100s'; it takes conf=FILE",
                                    argv[i]);
        (void)snprintf(path, sizeof path, "%s", argv[i] + 5);
    }
    return tandem_site_open(&l->site, path, error);
}

/* `path` relative to the job's working directory; NULL: no memory. */
static char *absolute_path(const step_launch *l, const char *path)
{
    char *made = NULL;
    if (path[0] == '/') return strdup(path);
    return asprintf(&made, "%s/%s", l->nodes.directory, path) < 0 ? NULL : made;
}

static tandem_status open_job_directory(step_launch *l, tandem_error *error)
{
    const char *db = l->given[TANDEM_SPANK_DB], *of_user = getenv("TANDEM_DB");
    l->directory = open(l->nodes.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->directory < 0)
        return tandem_error_set(error, TANDEM_IO, "the job's working directory '%.300s' cannot be opened: %s",
                                l->nodes.directory, strerror(errno));
    if (!db && of_user && *of_user) db = of_user;
    if (!db && l->site->db[0]) db = l->site->db;
    l->db = absolute_path(l, db ? db : "tandem.db");
    return l->db ? TANDEM_OK : launch_no_memory(error);
}

static tandem_status open_step_nodes(step_launch *l, spank_t spank, tandem_error *error)
{
    const char *total = getenv("SLURM_NTASKS"); /* the tasks of all components */
    tandem_step_name name = {.n_task_total = total ? (uint32_t)strtoul(total, NULL, 10) : 0};
    if (spank_get_item(spank, S_JOB_ID, &name.job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &name.step) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &name.n_task) != ESPANK_SUCCESS)
        return tandem_error_set(error, TANDEM_BUG, "srun does not say which step it starts");
    l->step = name.step;
    return tandem_step_nodes_open(&l->nodes, &name, l->site, error);
}

/* --- The plan ------------------------------------------------------------------------------------------- */

static tandem_status read_given_plan(step_launch *l, tandem_error *error)
{
    tandem_graph *asked = NULL;
    l->path = absolute_path(l, l->given[TANDEM_SPANK_PLAN]);
    if (!l->path) return launch_no_memory(error);
    tandem_status status = tandem_plan_read(&l->plan, &l->graph, l->path, error);
    if (status == TANDEM_OK && l->given[TANDEM_SPANK_MODEL])
        status = tandem_graph_open(&asked, l->given[TANDEM_SPANK_MODEL], l->graph->batch, error);
    if (asked) status = tandem_plan_check(l->plan, asked, error);
    tandem_graph_close(asked);
    return status;
}

/* Reuses the plan of an earlier step in file `name`, where it answers the question. */
static tandem_status reuse_job_plan(step_launch *l, const tandem_allocation_request *request,
                                    const char *name, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_graph *graph = NULL;
    const tandem_status status =
        tandem_job_plan_read(&plan, &graph, l->directory, name, l->nodes.submitted, error);
    if (status != TANDEM_OK || !plan) return status;
    if (tandem_step_plan_answers(plan, graph, request)) {
        l->plan = plan;
        l->graph = graph;
        l->is_reused = true;
        return TANDEM_OK;
    }
    tandem_graph_close(graph);
    tandem_plan_close(plan);
    return TANDEM_OK;
}

/* The text is the answer's plan; both are made once. */
static tandem_status answer_step(tandem_answer *answer, char **text, const tandem_allocation_request *request,
                                 tandem_error *error)
{
    if (*text) return TANDEM_OK;
    const tandem_status status = tandem_answer_open(answer, request, error);
    if (status != TANDEM_OK) return status;
    *text = tandem_plan_text(answer->plan, tandem_planner_graph(answer->planner, 0));
    return *text ? TANDEM_OK : launch_no_memory(error);
}

/* The first step of a job makes its plan; later steps reuse it. A step with another request or other nodes
 * has a file of its own. */
static tandem_status make_job_plan(step_launch *l, const tandem_allocation_request *request,
                                   tandem_error *error)
{
    char names[2][64], *text = NULL;
    tandem_answer answer = {.plan = NULL};
    tandem_status status = TANDEM_OK;
    (void)snprintf(names[0], sizeof names[0], "tandem-plan-%u.json", l->nodes.job);
    (void)snprintf(names[1], sizeof names[1], "tandem-plan-%u.%u.json", l->nodes.job, l->step);
    for (int k = 0; k < 2 && status == TANDEM_OK && !l->plan; k++) {
        int exists = 0;
        free(l->path);
        if (!(l->path = absolute_path(l, names[k]))) status = launch_no_memory(error);
        if (status == TANDEM_OK) status = reuse_job_plan(l, request, names[k], error);
        if (status != TANDEM_OK || l->plan) break;
        status = answer_step(&answer, &text, request, error);
        if (status == TANDEM_OK)
            status = tandem_job_plan_write(&exists, l->directory, names[k], text, l->nodes.submitted, error);
        if (status == TANDEM_OK && exists) status = reuse_job_plan(l, request, names[k], error);
        if (status == TANDEM_OK && !exists) {
            l->plan = answer.plan;
            l->answer = answer;
            answer = (tandem_answer){.plan = NULL};
        }
    }
    if (status == TANDEM_OK && !l->plan)
        status = tandem_error_set(error, TANDEM_WRONG_MODEL,
                                  "'%.300s' is another plan than this step asks for; remove it", l->path);
    tandem_answer_close(&answer);
    free(text);
    return status;
}

static tandem_status open_step_plan(step_launch *l, tandem_error *error)
{
    tandem_step_question question;
    tandem_status status = TANDEM_OK;
    if (l->given[TANDEM_SPANK_PLAN]) {
        status = read_given_plan(l, error);
    } else if (l->given[TANDEM_SPANK_MODEL]) {
        status =
            tandem_step_ask(&question, l->given, l->nodes.node, l->nodes.n_node, l->site->net, l->db, error);
        if (status == TANDEM_OK) status = make_job_plan(l, &question.request, error);
    } else {
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "--tandem-… says how to train, but not what: give --tandem-model too");
    }
    if (status == TANDEM_OK)
        status = tandem_layout_ranks(l->nodes.node, l->nodes.n_node, &l->plan->cluster, error);
    return status;
}

/* --- What the tasks get --------------------------------------------------------------------------------- */

/* Precedes the plan, so that later failures can be published. */
static tandem_status make_step_folder(tandem_run_location *location, const step_launch *l,
                                      tandem_error *error)
{
    char name[TANDEM_RUN_NAME];
    tandem_run_folder_name(name, l->nodes.job, l->nodes.component, l->step);
    const tandem_status status = tandem_run_folder_make(l->directory, name, error);
    if (status != TANDEM_OK) return status;
    const int directory = fcntl(l->directory, F_DUPFD_CLOEXEC, 0);
    if (directory < 0) {
        tandem_run_folder_remove(l->directory, name);
        return tandem_error_set(error, TANDEM_IO, "the job's working directory cannot be kept open: %s",
                                strerror(errno));
    }
    location->directory = directory;
    memcpy(location->name, name, sizeof name);
    return TANDEM_OK;
}

/* Publishes the variables in the environment of srun, which its tasks inherit, and in the run folder, for
 * tasks that do not: those of other components of a heterogeneous job, and all with --export=NONE. */
static tandem_status publish_variables(const tandem_run_location *location,
                                       const char *const value[TANDEM_N_RUN_VARIABLE], tandem_error *error)
{
    const tandem_status status = tandem_run_folder_write(location->directory, location->name, value, error);
    for (int v = 0; v < TANDEM_N_RUN_VARIABLE && status == TANDEM_OK; v++)
        if (value[v] && setenv(tandem_run_variable_name((tandem_run_variable)v), value[v], 1) != 0)
            return launch_no_memory(error);
    return status;
}

static tandem_status prepare_step_tasks(const tandem_run_location *location, const step_launch *l,
                                        tandem_error *error)
{
    char size[16];
    const char *interface = getenv("TANDEM_IFACE");
    char *store = absolute_path(l, location->name), *ranks = tandem_step_nodes_ranks(&l->nodes);
    (void)snprintf(size, sizeof size, "%d", tandem_cluster_n_rank(&l->plan->cluster));
    if (!interface) interface = l->site->interface;
    const char *const value[TANDEM_N_RUN_VARIABLE] = {
        [TANDEM_RUN_PLAN] = l->path,   [TANDEM_RUN_STORE] = store,
        [TANDEM_RUN_DATABASE] = l->db, [TANDEM_RUN_RANKS] = ranks,
        [TANDEM_RUN_SIZE] = size,      [TANDEM_RUN_INTERFACE] = *interface ? interface : NULL};
    const tandem_status status =
        store && ranks ? publish_variables(location, value, error) : launch_no_memory(error);
    free(ranks);
    free(store);
    return status;
}

static void close_launch(step_launch *l)
{
    if (!l->answer.plan) tandem_plan_close(l->plan);
    tandem_answer_close(&l->answer);
    tandem_graph_close(l->graph);
    free(l->path);
    free(l->db);
    if (l->directory >= 0) (void)close(l->directory);
    tandem_step_nodes_close(&l->nodes);
    tandem_site_close(l->site);
}

static void log_step_launch(const step_launch *l, int64_t nodes_ns, int64_t all_ns)
{
    char cluster[TANDEM_LAYOUT_TEXT];
    tandem_cluster_print(cluster, sizeof cluster, &l->plan->cluster);
    slurm_verbose("tandem: %s on %s, predicted step %s: %s", l->plan->model, cluster,
                  tandem_quantity_ns(l->plan->step_ns).text, l->path);
    slurm_verbose("tandem: ready in %.1f ms: %.1f ms to ask for the nodes, %.1f ms for the plan (%s)",
                  (double)all_ns * 1e-6, (double)nodes_ns * 1e-6, (double)(all_ns - nodes_ns) * 1e-6,
                  l->given[TANDEM_SPANK_PLAN] ? "given" : (l->is_reused ? "of an earlier step" : "new"));
}

static tandem_status prepare_step(tandem_run_location *location, spank_t spank,
                                  const char *const given[TANDEM_N_SPANK_OPTION], int argc, char **argv)
{
    step_launch l = {.directory = -1, .given = given};
    tandem_error error = {0};
    const int64_t begin_ns = tandem_now_ns();
    tandem_status status = open_step_site(&l, argc, argv, &error);
    if (status == TANDEM_OK) status = open_step_nodes(&l, spank, &error);
    const int64_t nodes_ns = tandem_now_ns() - begin_ns;
    if (status == TANDEM_OK) status = open_job_directory(&l, &error);
    if (status == TANDEM_OK) status = make_step_folder(location, &l, &error);
    if (status == TANDEM_OK) status = open_step_plan(&l, &error);
    if (status == TANDEM_OK) status = prepare_step_tasks(location, &l, &error);
    if (status == TANDEM_OK)
        log_step_launch(&l, nodes_ns, tandem_now_ns() - begin_ns);
    else
        slurm_error("tandem: %s", error.text);
    close_launch(&l);
    return status;
}

#pragma GCC visibility push(default) /* spank_tandem.so looks it up by name */
extern const tandem_spank_planner tandem_spank_planner_of;
const tandem_spank_planner tandem_spank_planner_of = {TANDEM_SPANK_INTERFACE, check_spank_option,
                                                      prepare_step};
#pragma GCC visibility pop
