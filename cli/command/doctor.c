/* doctor.c: `tandem doctor`: what this machine has, what is missing, and the command that fixes it. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/append.h"
#include "runtime/machine_check.h"
#include "cli/cli.h"
#include "cli/table.h"

typedef enum check_state {
    CHECK_OK,
    CHECK_ABSENT,   /* not here, and not needed */
    CHECK_DEGRADED, /* the demo runs, with limits */
    CHECK_MISSING   /* the demo cannot run */
} check_state;
static const char *const state_name[] = {"ok", "absent", "degraded", "missing"};

typedef struct doctor_check {
    char name[TANDEM_DEVICE_NAME];
    check_state state;
    char found[TANDEM_ERROR_TEXT];
    char fix[256]; /* "" = no command can fix it, or nothing to fix */
} doctor_check;

enum { MAX_CHECKS = 64 };
typedef struct doctor_report {
    doctor_check one[MAX_CHECKS];
    int n;
} doctor_report;

/* Adds a check to be filled in. If there is no room, it replaces the last one. */
static doctor_check *add_check(doctor_report *all, const char *name, check_state found)
{
    doctor_check *check = &all->one[all->n < MAX_CHECKS ? all->n++ : MAX_CHECKS - 1];
    *check = (doctor_check){.state = found};
    (void)snprintf(check->name, sizeof check->name, "%s", name);
    return check;
}

static void set_finding(doctor_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void set_finding(doctor_check *check, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(check->found, sizeof check->found, format, arguments);
    va_end(arguments);
}

static void set_fix(doctor_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void set_fix(doctor_check *check, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(check->fix, sizeof check->fix, format, arguments);
    va_end(arguments);
}

/* --- The machine ------------------------------------------------------------------------------ */

static void check_cpu(doctor_report *all)
{
    doctor_check *check = add_check(all, "cpu", CHECK_OK);
    char line[256], model[256] = "unknown model";
    FILE *info = fopen("/proc/cpuinfo", "re");
    while (info && fgets(line, sizeof line, info))
        if (sscanf(line, "model name : %255[^\n]", model) == 1) break;
    if (info) (void)fclose(info);
    set_finding(check, "%s", model);
}

static void check_cores(doctor_report *all)
{
    cpu_set_t set;
    const int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    doctor_check *check = add_check(all, "cores", usable >= 2 ? CHECK_OK : CHECK_DEGRADED);
    set_finding(check, "%d usable of %ld%s", usable, online,
                usable >= 2 ? "" : ": two ranks on one core give unreliable times");
    if (usable < 2 && online >= 2) set_fix(check, "taskset -cp 0-%ld $$", online - 1);
}

static void check_devices(doctor_report *all)
{
    int n = 0;
    for (int i = 0; i < tandem_device_count(); i++) {
        const tandem_device *device = tandem_device_get(i);
        if (tandem_device_is_described(device)) continue;
        tandem_error device_error = {0};
        const int present = tandem_device_require(device->name, &device_error) == TANDEM_OK;
        doctor_check *check = add_check(all, device->name, present ? CHECK_OK : CHECK_ABSENT);
        /* other rows say what this machine has */
        char *rest = strstr(device_error.text, ". It can be");
        if (rest) *rest = '\0';
        set_finding(check, "%s", present ? device->meaning : device_error.text);
        n += present;
    }
    doctor_check *check = add_check(all, "mixed devices",
                                    n >= 2   ? CHECK_OK
                                    : n == 1 ? CHECK_DEGRADED
                                             : CHECK_MISSING);
    set_finding(check,
                n >= 2   ? "%d different devices"
                : n == 1 ? "%d device: all ranks will be equal"
                         : "%d devices: kernels need x86-64 with SSE4.1",
                n);
}

static void check_directory(doctor_report *all)
{
    char path[] = ".tandem-run-XXXXXX";
    const int writable = mkdtemp(path) != NULL;
    doctor_check *check = add_check(all, "working directory", writable ? CHECK_OK : CHECK_MISSING);
    if (writable)
        (void)rmdir(path);
    else
        set_fix(check, "cd \"$(mktemp -d)\"");
    set_finding(check, "%s", writable ? "writable" : strerror(errno));
}

static void check_steadiness(doctor_report *all)
{
    const int64_t three_s = INT64_C(3000000000);
    tandem_steadiness found;
    tandem_machine_counts counts;
    tandem_error error = {0};
    doctor_check *check = add_check(all, "steadiness", CHECK_OK);
    if (machine_check(&found, &counts, three_s, &error) != TANDEM_OK) {
        check->state = CHECK_DEGRADED;
        set_finding(check, "%s", error.text);
        return;
    }
    if (machine_is_unsteady(&found, &counts)) check->state = CHECK_DEGRADED;
    (void)machine_check_print(check->found, sizeof check->found, &found, &counts);
    if (isnan(found.delay_share))
        (void)tandem_append(
            check->found, sizeof check->found,
            "; without /proc/thread-self/schedstat, what others disturb counts as the tasks' time");
    (void)machine_check_remedy(check->fix, sizeof check->fix, &found, &counts);
}

/* --- What is installed ------------------------------------------------------------------------ */

static const tandem_backend_api *check_backend(doctor_report *all)
{
    char libraries[128];
    tandem_error error = {0};
    const tandem_backend_api *backend = runtime_backend(&error);
    doctor_check *check = add_check(all, "backend", backend ? CHECK_OK : CHECK_MISSING);
    set_finding(check, "%s", backend ? backend->libraries(libraries, sizeof libraries) : error.text);
    if (!backend) set_fix(check, "make setup all");
    return backend;
}

/* GPUs are numbered from 0; the first missing number ends the search. */
static void check_gpus(doctor_report *all, const tandem_backend_api *backend)
{
    enum { MAX_GPUS = 16 };
    for (int k = 0; backend && k < MAX_GPUS; k++) {
        char name[TANDEM_DEVICE_NAME], text[256];
        tandem_error error = {0};
        (void)snprintf(name, sizeof name, "cuda:%d", k);
        const int here = backend->device_describe(text, sizeof text, name, &error) == TANDEM_OK;
        if (!here && k > 0) return;
        doctor_check *check = add_check(all, name, here ? CHECK_OK : CHECK_ABSENT);
        set_finding(check, "%s", here ? text : error.text);
        if (!here) return;
    }
}

static void check_data_sets(doctor_report *all, const tandem_backend_api *backend)
{
    for (int i = 0; backend && backend->data_set_at(i); i++) {
        const tandem_data_set *set = backend->data_set_at(i);
        tandem_error error = {0};
        tandem_data data = {0};
        const int whole = backend->data_open(&data, set->name, 1, &error) == TANDEM_OK;
        const int is_left_out = set->is_optional && error.status == TANDEM_MISSING;
        doctor_check *check = add_check(all, set->name,
                                        whole         ? CHECK_OK
                                        : is_left_out ? CHECK_ABSENT
                                                      : CHECK_MISSING);
        if (whole)
            set_finding(check, "%lld training samples, %lld for testing", (long long)data.n_train,
                        (long long)data.n_test);
        else
            set_finding(check, "%s", error.text);
        if (!whole)
            set_fix(check, "apt-get install %s%s", error.status == TANDEM_MISSING ? "" : "--reinstall ",
                    set->package);
        backend->data_close(&data);
    }
}

static void check_profile_store(doctor_report *all, const cli_options *options)
{
    tandem_error error = {0};
    tandem_store *store = NULL;
    int64_t n = 0;
    tandem_status status = tandem_store_open(&store, options->db, TANDEM_STORE_READ, &error);
    if (status == TANDEM_OK) status = tandem_store_count_costs(&n, store, &error);
    tandem_store_close(store);
    doctor_check *check = add_check(all, "store",
                                    status == TANDEM_OK        ? CHECK_OK
                                    : status == TANDEM_MISSING ? CHECK_ABSENT
                                                               : CHECK_MISSING);
    if (status == TANDEM_OK)
        set_finding(check, "%s: current schema, %lld costs", options->db, (long long)n);
    else if (status == TANDEM_MISSING)
        set_finding(check, "%s: not yet created; `tandem profile` and `tandem demo` create it", options->db);
    else
        set_finding(check, "%s", error.text);
    if (check->state == CHECK_MISSING) set_fix(check, "mv '%s' '%s.off'", options->db, options->db);
}

/* --- Report ----------------------------------------------------------------------------------- */

static int print_doctor_json(const doctor_report *all, int ready)
{
    json_t *result = cli_json_new("doctor"), *rows = json_array();
    for (int k = 0; k < all->n; k++)
        json_array_append_new(rows, json_pack("{s:s,s:s,s:s,s:s?}", "name", all->one[k].name, "state",
                                              state_name[all->one[k].state], "found", all->one[k].found,
                                              "fix", all->one[k].fix[0] ? all->one[k].fix : NULL));
    json_object_set_new(result, "ready", json_boolean(ready));
    json_object_set_new(result, "checks", rows);
    return cli_print_json(result);
}

static int print_doctor_text(const doctor_report *all, int ready)
{
    cli_table table = {0};
    cli_table_row(&table, "what\tstate\tfound");
    for (int k = 0; k < all->n; k++)
        cli_table_row(&table, "%s\t%s\t%s", all->one[k].name, state_name[all->one[k].state],
                      all->one[k].found);
    const int code = cli_table_finish(&table);
    for (int k = 0; k < all->n; k++)
        if (all->one[k].fix[0]) printf("%s: fix with  %s\n", all->one[k].name, all->one[k].fix);
    puts(ready ? "tandem demo can run here" : "tandem demo cannot run here yet");
    return code;
}

static int run_doctor(const cli_options *options)
{
    doctor_report *all = calloc(1, sizeof *all);
    if (!all) return cli_fail_with(TANDEM_NO_MEMORY, "no memory for a report");
    int ready = 1;
    check_cpu(all);
    check_cores(all);
    cli_progress(options, -1, "doctor: three seconds for how steady this machine is");
    check_steadiness(all);
    cli_progress_end();
    check_devices(all);
    const tandem_backend_api *backend = check_backend(all);
    check_gpus(all, backend);
    check_data_sets(all, backend);
    check_profile_store(all, options);
    check_directory(all);
    for (int k = 0; k < all->n; k++) ready = ready && all->one[k].state != CHECK_MISSING;
    const int code = options->json ? print_doctor_json(all, ready) : print_doctor_text(all, ready);
    free(all);
    return code ? code : ready ? 0 : tandem_status_exit_code(TANDEM_MISSING);
}

static const int options[] = {OPTION_DB, OPTION_END};
const cli_command command_doctor = {
    .name = "doctor",
    .words = "",
    .summary = "What this machine has, what is missing, and the command that fixes it",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem doctor\n"
        "  tandem doctor --db /shared/costs.db --json\n"
        "It keeps a core busy for three seconds, to see how steady the machine is and what disturbs it.\n"
        "States: ok; absent: not here, and not needed; degraded: the demo runs, with limits; missing: "
        "the demo\n"
        "cannot run, and the exit code is 4.",
    .run = run_doctor,
};
