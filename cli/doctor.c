/* doctor.c: what was found on this machine, what is off, and the one command that mends each. */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/table.h"

typedef enum verdict {
    FINE,
    ABSENT, /* not here, which does no harm */
    WEAK,   /* the demo runs, but not as it should */
    OFF     /* the demo cannot run */
} verdict;
static const char *const verdict_name[] = {"ok", "absent", "weak", "off"};

typedef struct check {
    char name[TANDEM_DEVICE_NAME];
    verdict verdict;
    char found[TANDEM_ERROR_TEXT];
    char mend[256]; /* "" = nothing to mend, or no command could */
} check;

enum { MOST_CHECKS = 64 };
typedef struct checks {
    check one[MOST_CHECKS];
    int n;
} checks;

/* A new check, to be filled in; what is more than has room overwrites the last. */
static check *add(checks *all, const char *name, verdict found)
{
    check *one = &all->one[all->n < MOST_CHECKS ? all->n++ : MOST_CHECKS - 1];
    *one = (check){.verdict = found};
    (void)snprintf(one->name, sizeof one->name, "%s", name);
    return one;
}

static void say(check *one, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(check *one, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(one->found, sizeof one->found, format, arguments);
    va_end(arguments);
}

static void mend(check *one, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void mend(check *one, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(one->mend, sizeof one->mend, format, arguments);
    va_end(arguments);
}

/* --- The machine ------------------------------------------------------------------------------ */

static void check_cpu(checks *all)
{
    check *one = add(all, "cpu", FINE);
    char line[256], model[256] = "unknown model";
    FILE *info = fopen("/proc/cpuinfo", "re");
    while (info && fgets(line, sizeof line, info))
        if (sscanf(line, "model name : %255[^\n]", model) == 1) break;
    if (info) (void)fclose(info);
    say(one, "%s", model);
}

static void check_cores(checks *all)
{
    cpu_set_t set;
    const int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    check *one = add(all, "cores", usable >= 2 ? FINE : WEAK);
    say(one, "%d usable of %ld%s", usable, online,
        usable >= 2 ? ""
                    : ": two ranks on one core measure the "
                      "scheduler");
    if (usable < 2 && online >= 2) mend(one, "taskset -cp 0-%ld $$", online - 1);
}

static void check_devices(checks *all)
{
    int n = 0;
    for (int i = 0; i < tandem_device_count(); i++) {
        const tandem_device *device = tandem_device_get(i);
        if (tandem_device_is_described(device)) continue;
        tandem_error lacks = {0};
        const int present = tandem_device_require(device->name, &lacks) == TANDEM_OK;
        check *one = add(all, device->name, present ? FINE : ABSENT);
        /* what this machine can be stands in the other rows */
        char *rest = strstr(lacks.text, ". It can be");
        if (rest) *rest = '\0';
        say(one, "%s", present ? device->meaning : lacks.text);
        n += present;
    }
    check *one = add(all, "unlike devices", n >= 2 ? FINE : n == 1 ? WEAK : OFF);
    say(one,
        n >= 2   ? "%d devices to train on together"
        : n == 1 ? "%d device: ranks on it will all be alike"
                 : "%d devices: kernels are for x86-64 from SSE4.1 on",
        n);
}

static void check_directory(checks *all)
{
    char path[] = ".tandem-run-XXXXXX";
    const int writable = mkdtemp(path) != NULL;
    check *one = add(all, "working directory", writable ? FINE : OFF);
    if (writable)
        (void)rmdir(path);
    else
        mend(one, "cd \"$(mktemp -d)\"");
    say(one, "%s", writable ? "writable" : strerror(errno));
}

/* --- What is installed ------------------------------------------------------------------------ */

static const tandem_backend_api *check_backend(checks *all)
{
    char libraries[128];
    tandem_error error = {0};
    const tandem_backend_api *backend = cli_backend(&error);
    check *one = add(all, "backend", backend ? FINE : OFF);
    say(one, "%s", backend ? backend->libraries(libraries, sizeof libraries) : error.text);
    if (!backend) mend(one, "make setup all");
    return backend;
}

/* Cards are found by number, from 0 on; the first that is not here ends the search. */
static void check_cards(checks *all, const tandem_backend_api *backend)
{
    enum { MOST_CARDS = 16 };
    for (int k = 0; backend && k < MOST_CARDS; k++) {
        char name[TANDEM_DEVICE_NAME], text[256];
        tandem_error error = {0};
        (void)snprintf(name, sizeof name, "cuda:%d", k);
        const int here = backend->device_describe(text, sizeof text, name, &error) == TANDEM_OK;
        if (!here && k > 0) return;
        check *one = add(all, name, here ? FINE : ABSENT);
        say(one, "%s", here ? text : error.text);
        if (!here) return;
    }
}

static void check_data(checks *all, const tandem_backend_api *backend)
{
    for (int i = 0; backend && backend->data_set_at(i); i++) {
        const tandem_data_set *set = backend->data_set_at(i);
        tandem_error error = {0};
        tandem_data data = {0};
        const int whole = backend->data_open(&data, set->name, 1, &error) == TANDEM_OK;
        check *one = add(all, set->name, whole ? FINE : OFF);
        if (whole)
            say(one, "%lld training samples, %lld for testing", (long long)data.n_train,
                (long long)data.n_test);
        else
            say(one, "%s", error.text);
        if (!whole)
            mend(one, "apt-get install %s%s", error.status == TANDEM_MISSING ? "" : "--reinstall ",
                 set->package);
        backend->data_close(&data);
    }
}

static void check_store(checks *all, const cli_options *options)
{
    tandem_error error = {0};
    tandem_store *store = NULL;
    int64_t n = 0;
    tandem_status status = tandem_store_open(&store, options->db, TANDEM_STORE_READ, &error);
    if (status == TANDEM_OK) status = tandem_store_count_costs(&n, store, &error);
    tandem_store_close(store);
    check *one = add(all, "store", status == TANDEM_OK ? FINE : status == TANDEM_MISSING ? ABSENT : OFF);
    if (status == TANDEM_OK)
        say(one, "%s: schema of this version, %lld costs", options->db, (long long)n);
    else if (status == TANDEM_MISSING)
        say(one, "%s: none yet; `tandem profile` and `tandem demo` make it", options->db);
    else
        say(one, "%s", error.text);
    if (one->verdict == OFF) mend(one, "mv '%s' '%s.off'", options->db, options->db);
}

/* --- Report ----------------------------------------------------------------------------------- */

static int print_json(const checks *all, int ready)
{
    json_t *result = cli_json("doctor"), *rows = json_array();
    for (int k = 0; k < all->n; k++)
        json_array_append_new(rows, json_pack("{s:s,s:s,s:s,s:s?}", "name", all->one[k].name, "state",
                                              verdict_name[all->one[k].verdict], "found", all->one[k].found,
                                              "mend", all->one[k].mend[0] ? all->one[k].mend : NULL));
    json_object_set_new(result, "ready", json_boolean(ready));
    json_object_set_new(result, "checks", rows);
    return cli_print_json(result);
}

static int print_text(const checks *all, int ready)
{
    cli_table table = {0};
    cli_table_row(&table, "what\tstate\tfound");
    for (int k = 0; k < all->n; k++)
        cli_table_row(&table, "%s\t%s\t%s", all->one[k].name, verdict_name[all->one[k].verdict],
                      all->one[k].found);
    const int code = cli_table_print(&table);
    cli_table_free(&table);
    for (int k = 0; k < all->n; k++)
        if (all->one[k].mend[0]) printf("%s: to mend it, run  %s\n", all->one[k].name, all->one[k].mend);
    puts(ready ? "tandem demo can run here" : "tandem demo cannot run here yet");
    return code;
}

static int run(const cli_options *options)
{
    checks *all = calloc(1, sizeof *all);
    if (!all) return cli_refuse(TANDEM_NO_MEMORY, "no memory for a report");
    int ready = 1;
    check_cpu(all);
    check_cores(all);
    check_devices(all);
    const tandem_backend_api *backend = check_backend(all);
    check_cards(all, backend);
    check_data(all, backend);
    check_store(all, options);
    check_directory(all);
    for (int k = 0; k < all->n; k++) ready = ready && all->one[k].verdict != OFF;
    const int code = options->json ? print_json(all, ready) : print_text(all, ready);
    free(all);
    return code ? code : ready ? 0 : tandem_status_exit_code(TANDEM_MISSING);
}

static const int options[] = {OPTION_DB, OPTION_END};
const cli_command command_doctor = {
    .name = "doctor",
    .words = "",
    .summary = "What was found here, what is off, and the command that mends it",
    .option = options,
    .description = "Examples:\n"
                   "  tandem doctor\n"
                   "  tandem doctor --db /shared/costs.db --json\n"
                   "States: ok; absent, which does no harm; weak: the demo runs, but not as it should; off: "
                   "it cannot run, and the\n"
                   "exit code is 4.",
    .run = run,
};
