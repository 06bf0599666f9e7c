/* run_folder.c: creates, checks and removes the run folder; writes and parses the run environment in it. */
#include "plugins/slurm/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/plain_text.h"

static const char environment_file[] = "environment";
static const char *const variable_names[TANDEM_N_RUN_VARIABLE] = {
    [TANDEM_RUN_PLAN] = "TANDEM_PLAN",    [TANDEM_RUN_STORE] = "TANDEM_STORE",
    [TANDEM_RUN_DATABASE] = "TANDEM_DB",  [TANDEM_RUN_RANKS] = "TANDEM_RANKS",
    [TANDEM_RUN_SIZE] = "WORLD_SIZE",     [TANDEM_RUN_INTERFACE] = "TANDEM_IFACE",
    [TANDEM_RUN_FAILED] = "TANDEM_FAILED"};

const char *tandem_run_variable_name(tandem_run_variable variable) { return variable_names[variable]; }

char *tandem_run_folder_name(char name[TANDEM_RUN_NAME], uint32_t job, uint32_t component, uint32_t step)
{
    char suffix[16] = "";
    if (component) (void)snprintf(suffix, sizeof suffix, "+%" PRIu32, component);
    (void)snprintf(name, TANDEM_RUN_NAME, ".tandem-run-%" PRIu32 "%s.%" PRIu32, job, suffix, step);
    return name;
}

static tandem_status refuse_run_folder(tandem_error *error, const char *name, const char *verb, int code)
{
    return tandem_error_set(error, TANDEM_IO, "'%s' cannot be %s in the job's working directory: %s", name,
                            verb, strerror(code));
}

/* --- Whose it is ---------------------------------------------------------------------------------------- */

static tandem_status refuse_foreign(tandem_error *error, const char *name, const char *part, const char *what)
{
    return tandem_error_set(
        error, TANDEM_WRONG_FORMAT,
        "'%s%s%s' in the working directory is %s. srun leaves a folder and a file in it that are this "
        "user's and that no other user may write: this one is not; find out who made it, and remove it",
        name, *part ? "/" : "", part, what);
}

/* Checks that an open folder or file belongs to the effective user alone. part: "" for the folder itself. */
static tandem_status check_run_owner(int file, const char *name, const char *part, tandem_error *error)
{
    struct stat seen;
    char what[96];
    if (fstat(file, &seen) != 0) return refuse_run_folder(error, name, "looked at", errno);
    if (*part ? !S_ISREG(seen.st_mode) : !S_ISDIR(seen.st_mode))
        return refuse_foreign(error, name, part, *part ? "no regular file" : "no folder");
    if (seen.st_uid != geteuid()) {
        (void)snprintf(what, sizeof what, "user %u's, not user %u's", (unsigned)seen.st_uid,
                       (unsigned)geteuid());
        return refuse_foreign(error, name, part, what);
    }
    if (seen.st_mode & (S_IWGRP | S_IWOTH)) {
        (void)snprintf(what, sizeof what, "of mode %04o: others may write it",
                       (unsigned)seen.st_mode & 07777);
        return refuse_foreign(error, name, part, what);
    }
    return TANDEM_OK;
}

/* Opens the folder after the same check. */
static tandem_status open_run_folder(int *folder, int directory, const char *name, tandem_error *error)
{
    const int opened = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0 && errno == ENOENT)
        return tandem_error_set(error, TANDEM_MISSING, "there is no '%s' in the working directory", name);
    if (opened < 0 && (errno == ENOTDIR || errno == ELOOP))
        return refuse_foreign(error, name, "", "a link, or no folder");
    if (opened < 0) return refuse_run_folder(error, name, "opened", errno);
    const tandem_status status = check_run_owner(opened, name, "", error);
    if (status == TANDEM_OK)
        *folder = opened;
    else
        (void)close(opened);
    return status;
}

/* --- The folder ----------------------------------------------------------------------------------------- */

tandem_status tandem_run_folder_make(int directory, const char *name, tandem_error *error)
{
    int folder = -1;
    if (mkdirat(directory, name, 0700) == 0) return TANDEM_OK;
    if (errno != EEXIST) return refuse_run_folder(error, name, "made", errno);
    const tandem_status status = open_run_folder(&folder, directory, name, error);
    if (status != TANDEM_OK) return status;
    (void)close(folder);
    tandem_run_folder_remove(directory, name);
    return mkdirat(directory, name, 0700) == 0 ? TANDEM_OK : refuse_run_folder(error, name, "made", errno);
}

void tandem_run_folder_remove(int directory, const char *name)
{
    int folder = -1;
    if (open_run_folder(&folder, directory, name, NULL) != TANDEM_OK) return;
    DIR *list = fdopendir(folder);
    if (!list) {
        (void)close(folder);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(folder, entry->d_name, 0);
    (void)closedir(list);
    (void)unlinkat(directory, name, AT_REMOVEDIR);
}

/* --- Writing -------------------------------------------------------------------------------------------- */

static bool write_run_values(int file, const char *const value[TANDEM_N_RUN_VARIABLE])
{
    FILE *out = fdopen(file, "w");
    if (!out) {
        const int code = errno;
        (void)close(file);
        errno = code;
        return false;
    }
    bool done = true;
    for (int v = 0; v < TANDEM_N_RUN_VARIABLE && done; v++)
        if (value[v]) done = fprintf(out, "%s=%s\n", variable_names[v], value[v]) > 0;
    return fclose(out) == 0 && done;
}

tandem_status tandem_run_folder_write(int directory, const char *name,
                                      const char *const value[TANDEM_N_RUN_VARIABLE], tandem_error *error)
{
    int folder = -1;
    for (int v = 0; v < TANDEM_N_RUN_VARIABLE; v++)
        if (value[v] && (!*value[v] || strchr(value[v], '\n')))
            return tandem_error_set(error, TANDEM_IO,
                                    "%s cannot be passed to the tasks: its value is empty or has a line "
                                    "break in it",
                                    variable_names[v]);
    tandem_status status = open_run_folder(&folder, directory, name, error);
    if (status != TANDEM_OK) return status;
    (void)unlinkat(folder, environment_file, 0);
    const int file =
        openat(folder, environment_file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0 || !write_run_values(file, value))
        status = refuse_run_folder(error, name, "written to", errno);
    (void)close(folder);
    return status;
}

/* --- Reading -------------------------------------------------------------------------------------------- */

static tandem_status refuse_run_line(tandem_error *error, const char *name, int line, const char *what)
{
    return tandem_error_set(error, TANDEM_WRONG_FORMAT,
                            "'%s/%s', line %d: %s. srun writes TANDEM_PLAN, TANDEM_STORE, TANDEM_DB, "
                            "TANDEM_RANKS, WORLD_SIZE "
                            "and TANDEM_IFACE, or TANDEM_FAILED alone, each once: remove the folder",
                            name, environment_file, line, what);
}

/* A word from the file in a message: shortened, and safe for a terminal. */
static tandem_status refuse_variable(tandem_error *error, const char *name, int line, const char *got,
                                     size_t n)
{
    char quoted[41], what[64];
    size_t used = 0;
    for (; used < n && used + 1 < sizeof quoted; used++)
        quoted[used] =
            (char)(tandem_is_letter(got[used]) || tandem_is_digit(got[used]) || got[used] == '_' ? got[used]
                                                                                                 : '?');
    quoted[used] = '\0';
    (void)snprintf(what, sizeof what, "'%s' is no name of srun's", quoted);
    return refuse_run_line(error, name, line, what);
}

static int find_run_variable(const char *text, size_t n)
{
    for (int v = 0; v < TANDEM_N_RUN_VARIABLE; v++)
        if (strlen(variable_names[v]) == n && memcmp(variable_names[v], text, n) == 0) return v;
    return -1;
}

/* A number from 1 to 255 in digits alone; 0: it is not one. */
static int parse_exit_code(const char *text)
{
    const size_t n = strlen(text);
    if (n < 1 || n > 3 || strspn(text, "0123456789") != n || text[0] == '0') return 0;
    const int code = (int)strtol(text, NULL, 10);
    return code <= 255 ? code : 0;
}

/* Parses one line, which ends with a NUL. */
static tandem_status parse_run_line(tandem_run_environment *environment, char *line, int number,
                                    const char *name, tandem_error *error)
{
    char *equals = strchr(line, '=');
    const size_t n = equals ? (size_t)(equals - line) : strlen(line);
    const int v = find_run_variable(line, n);
    if (!equals || v < 0) return refuse_variable(error, name, number, line, n);
    if (environment->value[v]) return refuse_run_line(error, name, number, "it is there twice");
    if (!equals[1]) return refuse_run_line(error, name, number, "there is no value");
    environment->value[v] = equals + 1;
    if (v == TANDEM_RUN_FAILED && !(environment->failed = parse_exit_code(equals + 1)))
        return refuse_run_line(error, name, number, "TANDEM_FAILED is a number from 1 to 255");
    return TANDEM_OK;
}

static tandem_status parse_run_lines(tandem_run_environment *environment, size_t n, const char *name,
                                     tandem_error *error)
{
    int number = 0, n_value = 0;
    tandem_status status = TANDEM_OK;
    for (char *line = environment->text, *end; line < environment->text + n && status == TANDEM_OK;
         line = end + 1) {
        end = strchr(line, '\n');
        number++;
        if (!end) return refuse_run_line(error, name, number, "it does not end");
        *end = '\0';
        status = parse_run_line(environment, line, number, name, error);
        n_value++;
    }
    if (status != TANDEM_OK) return status;
    if (environment->failed ? n_value > 1 : !environment->value[TANDEM_RUN_RANKS])
        return refuse_run_line(error, name, number, "there is no TANDEM_RANKS, or more beside TANDEM_FAILED");
    return TANDEM_OK;
}

tandem_status tandem_run_environment_parse(tandem_run_environment *environment, const char *bytes, size_t n,
                                           const char *name, tandem_error *error)
{
    tandem_run_environment made = {0};
    if (n > TANDEM_RUN_MAX_BYTES || (n && memchr(bytes, '\0', n)))
        return tandem_error_set(error, TANDEM_WRONG_FORMAT,
                                "'%s/%s' has %zu bytes%s; srun writes text of %d bytes at most: remove the "
                                "folder",
                                name, environment_file, n,
                                n > TANDEM_RUN_MAX_BYTES ? "" : ", a NUL among them", TANDEM_RUN_MAX_BYTES);
    if (!(made.text = malloc(n + 1)))
        return tandem_no_memory(error, "to read '%s/%s'", name, environment_file);
    if (n) memcpy(made.text, bytes, n);
    made.text[n] = '\0';
    const tandem_status status = parse_run_lines(&made, n, name, error);
    if (status == TANDEM_OK)
        *environment = made;
    else
        free(made.text);
    return status;
}

/* Reads an open file, or one byte more than allowed. */
static tandem_status read_run_environment(char **bytes, size_t *n, int file, const char *name,
                                          tandem_error *error)
{
    const size_t max = TANDEM_RUN_MAX_BYTES + 1;
    size_t used = 0;
    char *all = malloc(max);
    if (!all) return tandem_no_memory(error, "to read '%s/%s'", name, environment_file);
    while (used < max) {
        const ssize_t got = read(file, all + used, max - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            const int code = errno;
            free(all);
            return refuse_run_folder(error, name, "read", code);
        }
        if (got == 0) break;
        used += (size_t)got;
    }
    *bytes = all;
    *n = used;
    return TANDEM_OK;
}

tandem_status tandem_run_folder_read(tandem_run_environment *environment, int directory, const char *name,
                                     tandem_error *error)
{
    int folder = -1;
    char *bytes = NULL;
    size_t n = 0;
    tandem_status status = open_run_folder(&folder, directory, name, error);
    if (status != TANDEM_OK) return status;
    /* O_NONBLOCK: opening a pipe would wait */
    const int file = openat(folder, environment_file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const int code = errno;
    (void)close(folder);
    if (file < 0)
        return code == ELOOP ? refuse_foreign(error, name, environment_file, "a link")
                             : refuse_run_folder(error, name, "read", code);
    status = check_run_owner(file, name, environment_file, error);
    if (status == TANDEM_OK) status = read_run_environment(&bytes, &n, file, name, error);
    if (status == TANDEM_OK) status = tandem_run_environment_parse(environment, bytes, n, name, error);
    free(bytes);
    (void)close(file);
    return status;
}
