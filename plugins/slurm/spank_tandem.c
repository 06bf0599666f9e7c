/* spank_tandem.c: tandem in Slurm. Its options say what to train. Before a step starts, srun maps the step's
 * nodes to devices, allocates a plan, writes it to the job's directory, and gives every task its part, so
 * that `srun tandem train` needs no further options. docs/slurm.md is the manual.
 *
 * Where each function runs, with Slurm 22.05:
 *   slurm_spank_init             everywhere, as root in slurmd and slurmstepd: registers options, opens
 *                                nothing
 *   check_slurm_option           in srun, sbatch and salloc, as the user; does nothing in slurmstepd
 *   slurm_spank_local_user_init  in srun, once per step, as the user: plans (spank_planner.c)
 *   slurm_spank_task_init        in a task's own process, after slurmstepd's fork, as the user, in the task's
 *                                working directory, before exec: reads the run environment
 *   slurm_spank_exit             everywhere; in srun it removes the run folder
 * So no process of root opens a file for tandem. This library links libc alone. The planner, with SQLite and
 * the rest, is a second library, which the users' commands open from the folder of this one.
 *
 * Everything that can fail happens in srun, once per step, and is reported to the job's stderr. The tasks of
 * a step without a plan exit with tandem's code before they begin. Callbacks never fail: in slurmstepd that
 * would drain the node, and in srun it would leave a step that holds its nodes until the job ends (Slurm
 * 22.05). */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
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

#include "plugins/slurm/spank_planner.h"
#include "tandem/cluster.h"

/* --- The planner: in commands that a user has started --------------------------------------------------- */

static tandem_status refuse_planner(const char *path, const char *why)
{
    slurm_error("tandem: %s: %s; `make install-slurm` puts it beside spank_tandem.so, of the same build",
                path, why);
    return TANDEM_MISSING;
}

/* Opens the planner in the folder of this library, which Slurm chose: no name or environment of the user
 * matters. It stays open. */
static tandem_status load_step_planner(const tandem_spank_planner **planner)
{
    static const tandem_spank_planner *opened;
    static const char file[] = "spank_tandem_planner.so";
    char path[PATH_MAX];
    Dl_info own;
    const spank_context_t context = spank_context();
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR)
        return refuse_planner(file, "it is for users' commands alone");
    if (!opened) {
        if (!dladdr(&opened, &own) || own.dli_fname[0] != '/')
            return refuse_planner(file, "Slurm has opened spank_tandem.so by a path that is not absolute");
        const int folder = (int)(strrchr(own.dli_fname, '/') - own.dli_fname);
        if (snprintf(path, sizeof path, "%.*s/%s", folder, own.dli_fname, file) >= (int)sizeof path)
            return refuse_planner(file, "its path is too long");
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        const tandem_spank_planner *found = library ? dlsym(library, TANDEM_SPANK_PLANNER) : NULL;
        if (!found) return refuse_planner(path, dlerror());
        if (strcmp(found->interface, TANDEM_SPANK_INTERFACE) != 0)
            return refuse_planner(path, "it is of another build than spank_tandem.so");
        opened = found;
    }
    *planner = opened;
    return TANDEM_OK;
}

/* --- Options -------------------------------------------------------------------------------------------- */

static int check_slurm_option(int which, const char *text, int remote);

#define OPTION(which, name, value, usage)                                                                    \
    [TANDEM_SPANK_##which] = {name, value, usage, 1, TANDEM_SPANK_##which, check_slurm_option}
static struct spank_option options[] = {
    OPTION(MODEL, "tandem-model", "MODEL",
           "train this model with tandem: plan its precisions for the nodes of the job, e.g. "
           "vit_tiny:width=192"),
    OPTION(BATCH, "tandem-batch", "N", "samples a step on each rank [16]"),
    OPTION(DB, "tandem-db", "FILE", "profile store [$TANDEM_DB, or the site's, or tandem.db]"),
    OPTION(MEMORY, "tandem-memory", "SIZE,...",
           "memory limit of a rank, for all devices or one for each, e.g. 12GiB"),
    OPTION(SLOWDOWN, "tandem-slowdown", "P%", "how much longer than the fastest step the plan's may be [0%]"),
    OPTION(BASE, "tandem-base-precision", "PRECISION",
           "what devices keep that would only wait: what you train in today [fp32]"),
    OPTION(POLICY, "tandem-policy", "POLICY", "how precisions are chosen (tandem list policies)"),
    OPTION(PLAN, "tandem-plan", "FILE", "use this plan instead of making one"),
    OPTION(METHOD, "tandem-sensitivity", "METHOD", "sensitivity method: sampled, fisher or qsync [sampled]"),
    OPTION(MAX_SENSITIVITY, "tandem-max-sensitivity", "P%",
           "the fastest step that needs at most P% more samples (--tandem-sensitivity=sampled)"),
    OPTION(MINIMIZE, "tandem-minimize", "WHAT",
           "training-time, the least step x (1 + sensitivity); sensitivity; step; memory of a rank"),
    OPTION(MAX_STEP, "tandem-max-step", "TIME", "the least sensitivity within this step, e.g. 200ms"),
    OPTION(GLOBAL_BATCH, "tandem-global-batch", "N",
           "samples per step of all ranks, split among mixed devices, instead of --tandem-batch"),
};
_Static_assert(sizeof options / sizeof *options == TANDEM_N_SPANK_OPTION, "an option each");

/* Called by sbatch, salloc and srun for each option, so that errors show at once; and by slurmstepd, where
 * it is late. */
static int check_slurm_option(int which, const char *text, int remote)
{
    const tandem_spank_planner *planner = NULL;
    if (remote) return 0;
    if (load_step_planner(&planner) != TANDEM_OK) return -1;
    return planner->check_option((tandem_spank_option)which, options[which].name, text) ? 0 : -1;
}

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    for (int i = 0; i < TANDEM_N_SPANK_OPTION; i++)
        if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
            slurm_error("tandem: cannot register --%s", options[i].name);
    return 0;
}

/* given[]: the values of the options, NULL where not given. Whether any was given. */
static bool read_given_options(spank_t spank, const char *given[TANDEM_N_SPANK_OPTION])
{
    bool any = false;
    for (int i = 0; i < TANDEM_N_SPANK_OPTION; i++) {
        char *value = NULL;
        given[i] = spank_option_getopt(spank, &options[i], &value) == ESPANK_SUCCESS ? value : NULL;
        any = any || given[i];
    }
    return any;
}

/* --- Before the step: in srun --------------------------------------------------------------------------- */

/* The run folder that this process removes after the step. */
static tandem_run_location run_location = {.directory = -1};

/* A run folder for a failure before the planner made one: in the working directory of srun, which its
 * tasks share by default. */
static void make_local_run_folder(spank_t spank)
{
    uint32_t job = 0, step = 0;
    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
        return;
    const int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tandem_run_folder_name(run_location.name, job, 0, step);
    if (here >= 0 && tandem_run_folder_make(here, run_location.name, NULL) == TANDEM_OK)
        run_location.directory = here;
    else if (here >= 0)
        (void)close(here);
}

/* Publishes that the step has no plan: in the environment of srun, and in the run folder. */
static void publish_failure(spank_t spank, tandem_status status)
{
    char code[16];
    const char *value[TANDEM_N_RUN_VARIABLE] = {[TANDEM_RUN_FAILED] = code};
    tandem_error error = {0};
    (void)snprintf(code, sizeof code, "%d", tandem_status_exit_code(status));
    for (int v = 0; v < TANDEM_RUN_FAILED; v++)
        (void)unsetenv(tandem_run_variable_name((tandem_run_variable)v));
    (void)setenv(tandem_run_variable_name(TANDEM_RUN_FAILED), code, 1);
    if (run_location.directory < 0) make_local_run_folder(spank);
    if (run_location.directory >= 0 &&
        tandem_run_folder_write(run_location.directory, run_location.name, value, &error) != TANDEM_OK)
        slurm_error("tandem: %s", error.text);
}

int slurm_spank_local_user_init(spank_t spank, int argc, char **argv)
{
    const tandem_spank_planner *planner = NULL;
    const char *given[TANDEM_N_SPANK_OPTION];
    if (!read_given_options(spank, given)) return 0;
    (void)unsetenv(tandem_run_variable_name(TANDEM_RUN_FAILED));
    tandem_status status = load_step_planner(&planner);
    if (status == TANDEM_OK) status = planner->prepare_step(&run_location, spank, given, argc, argv);
    if (status != TANDEM_OK) publish_failure(spank, status);
    return 0;
}

int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
    (void)spank;
    (void)argc;
    (void)argv;
    if (run_location.directory < 0) return 0;
    tandem_run_folder_remove(run_location.directory, run_location.name);
    (void)close(run_location.directory);
    run_location.directory = -1;
    return 0;
}

/* --- In a task: in slurmstepd, after its fork, as the user ---------------------------------------------- */

enum { MAX_TEXT = 1 << 17 }; /* Linux's limit of an environment string */

/* Reads the run environment in this process's working directory. The folder of a heterogeneous job is
 * named after the first component that the step runs on: this one or an earlier one. */
static tandem_status read_task_environment(tandem_run_environment *environment, spank_t spank, uint32_t step,
                                           tandem_error *error)
{
    char job[32] = "", name[TANDEM_RUN_NAME];
    uint32_t own = 0;
    uid_t user = (uid_t)-1;
    tandem_status status = tandem_error_set(
        error, TANDEM_MISSING, "srun has left no plan here (was it given another --chdir than the job?)");
    if (spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS || user != geteuid())
        return tandem_error_set(error, TANDEM_BUG, "a task of user %u looks for its plan as user %u",
                                /* root opens no path that a user names */
                                (unsigned)user, (unsigned)geteuid());
    (void)spank_getenv(spank, "SLURM_JOB_ID", job, sizeof job);
    (void)spank_get_item(spank, S_JOB_ID, &own);
    const uint32_t leader = (uint32_t)strtoul(job, NULL, 10);
    if (own < leader || own - leader > 1024) return status;
    for (uint32_t k = own - leader + 1; k-- > 0 && status == TANDEM_MISSING;) {
        tandem_error inner = {0};
        status = tandem_run_folder_read(environment, AT_FDCWD, tandem_run_folder_name(name, leader, k, step),
                                        &inner);
        if (status != TANDEM_OK && status != TANDEM_MISSING) *error = inner;
    }
    return status;
}

/* Puts the run environment into the task's environment. */
static tandem_status import_environment(spank_t spank, uint32_t step, tandem_error *error)
{
    tandem_run_environment environment = {0};
    const tandem_status status = read_task_environment(&environment, spank, step, error);
    if (status != TANDEM_OK) return status;
    if (environment.failed) _exit(environment.failed);
    bool done = true;
    for (int v = 0; v < TANDEM_N_RUN_VARIABLE && done; v++)
        if (environment.value[v])
            done = spank_setenv(spank, tandem_run_variable_name((tandem_run_variable)v), environment.value[v],
                                1) == ESPANK_SUCCESS;
    free(environment.text);
    return done ? TANDEM_OK : tandem_no_memory(error, "for a task's environment");
}

/* First rank and device of a node in the text of tandem_step_nodes_ranks. */
static bool find_rank(int *first_rank, char device[TANDEM_DEVICE_NAME], const char *ranks, const char *node)
{
    char *copy = strdup(ranks), *rest = NULL;
    bool found = false;
    for (char *run = copy ? strtok_r(copy, ";", &rest) : NULL; run && !found;
         run = strtok_r(NULL, ";", &rest)) {
        char name[TANDEM_DEVICE_NAME], *within = NULL;
        const char *first = strtok_r(run, " ", &within), *n_task = strtok_r(NULL, " ", &within);
        const char *of = strtok_r(NULL, " ", &within), *list = strtok_r(NULL, " ", &within);
        if (!first || !n_task || !of || !list) break;
        (void)snprintf(name, sizeof name, "%s", of);
        hostlist_t hosts = slurm_hostlist_create(list);
        const int at = hosts ? slurm_hostlist_find(hosts, node) : -1;
        if (hosts) slurm_hostlist_destroy(hosts);
        if (at < 0) continue;
        *first_rank = (int)(strtol(first, NULL, 10) + at * strtol(n_task, NULL, 10));
        memcpy(device, name, sizeof name);
        found = true;
    }
    free(copy);
    return found;
}

static bool set_task_number(spank_t spank, const char *name, int number)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", number);
    return spank_setenv(spank, name, text, 1) == ESPANK_SUCCESS;
}

/* Sets rank, core and device of task `local` of this node. ranks: [MAX_TEXT]. */
static tandem_status set_task_environment(spank_t spank, char *ranks, uint32_t step, int local,
                                          tandem_error *error)
{
    const char *variable = tandem_run_variable_name(TANDEM_RUN_RANKS);
    char node[256] = "", device[TANDEM_DEVICE_NAME];
    int first = 0;
    if (spank_getenv(spank, variable, ranks, MAX_TEXT) != ESPANK_SUCCESS) {
        const tandem_status status = import_environment(spank, step, error);
        if (status != TANDEM_OK) return status;
        if (spank_getenv(spank, variable, ranks, MAX_TEXT) != ESPANK_SUCCESS)
            return tandem_error_set(error, TANDEM_NO_MEMORY, "%s is too long", variable);
    }
    if (spank_getenv(spank, "SLURMD_NODENAME", node, sizeof node) != ESPANK_SUCCESS ||
        !find_rank(&first, device, ranks, node))
        return tandem_error_set(error, TANDEM_WRONG_MODEL,
                                "node '%s' is not among those that the plan is for: %.200s", node, ranks);
    const bool done = set_task_number(spank, "RANK", first + local) &&
                      set_task_number(spank, "LOCAL_RANK", local) &&
                      spank_setenv(spank, "TANDEM_DEVICE", device, 1) == ESPANK_SUCCESS &&
                      /* as profiled */
                      spank_setenv(spank, "OMP_NUM_THREADS", "1", 1) == ESPANK_SUCCESS;
    return done ? TANDEM_OK : tandem_no_memory(error, "for a task's environment");
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    const char *given[TANDEM_N_SPANK_OPTION];
    tandem_error error = {0};
    char code[16];
    uint32_t step = 0;
    int local = 0;
    if (!read_given_options(spank, given)) return 0;
    if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step >= SLURM_MAX_NORMAL_STEP_ID)
        return 0;
    if (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS) return 0;
    /* in the own process of the task, before exec */
    if (spank_getenv(spank, tandem_run_variable_name(TANDEM_RUN_FAILED), code, sizeof code) == ESPANK_SUCCESS)
        _exit((int)strtol(code, NULL, 10));
    char *ranks = malloc(MAX_TEXT);
    const tandem_status status = ranks ? set_task_environment(spank, ranks, step, local, &error)
                                       : tandem_no_memory(&error, "for a task's rank");
    if (status != TANDEM_OK) {
        if (!local) slurm_error("tandem: %s", error.text); /* the first task of a node reports it */
        _exit(tandem_status_exit_code(status));
    }
    free(ranks);
    return 0;
}
