/* status.h: how every function of tandem reports what went wrong.
 *
 * A function that can fail returns a tandem_status, leaves its outputs untouched on error and, where the
 * error is born, fills the tandem_error of its caller with what was asked, what it got, what is allowed and
 * what to do about it. The status decides the exit code of the command line; the text is for people.
 *
 * The table below is the only list of them: name, exit code, meaning. */
#ifndef TANDEM_STATUS_H
#define TANDEM_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define TANDEM_VERSION "0.1.0"

#define TANDEM_STATUS_TABLE(ROW)                                                                             \
    ROW(OK, 0, "done")                                                                                       \
    ROW(INFEASIBLE, 1, "no plan fits the limits asked for")                                                  \
    ROW(LIMIT_EXCEEDED, 1, "a figure lies over the limit asked for")                                         \
    ROW(USAGE, 2, "the command line or an argument is off")                                                  \
    ROW(UNKNOWN_NAME, 2, "no such name")                                                                     \
    ROW(MALFORMED, 3, "an input cannot be read as what it should be")                                        \
    ROW(WRONG_FORMAT, 3, "a file belongs to something else, or to another version")                          \
    ROW(WRONG_GRAPH, 3, "a graph breaks a rule of its operators")                                            \
    ROW(WRONG_MODEL, 3, "a plan was made for another model, batch or cluster")                               \
    ROW(MISSING, 4, "something that is needed has not been measured")                                        \
    ROW(NO_DEVICE, 4, "this machine lacks the device")                                                       \
    ROW(NO_KERNEL, 4, "this device has no kernel for it")                                                    \
    ROW(NO_MEMORY, 5, "memory could not be had")                                                             \
    ROW(IO, 5, "a file could not be read or written")                                                        \
    ROW(RANK_FAILED, 6, "another rank failed")                                                               \
    ROW(BUG, 70, "tandem contradicts itself; please report it")

#pragma push_macro("ROW") /* an including program may have one of its own */
#undef ROW
typedef enum tandem_status {
#define ROW(name, exit_code, meaning) TANDEM_##name,
    TANDEM_STATUS_TABLE(ROW)
#undef ROW
        TANDEM_N_STATUS
} tandem_status;
#pragma pop_macro("ROW")

enum { TANDEM_ERROR_TEXT = 1024 };

/* Filled where an error is born; callers add nothing to it. All zero means: no error. */
typedef struct tandem_error {
    tandem_status status;
    /* with TANDEM_RANK_FAILED: the rank that failed, -1 = not known; else the rank that tells it where all
     * ranks of a run have the same error, -1 = it is this process's own */
    int rank;
    char text[TANDEM_ERROR_TEXT]; /* one or more sentences, no newline at the end */
} tandem_error;

/* tandem_error_set: write an error (printf format, cut to fit) and return its status, so that
 * `return tandem_error_set(error, TANDEM_MALFORMED, "…");` is one line. `error` may be NULL. */
tandem_status tandem_error_set(tandem_error *error, tandem_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* tandem_no_memory: the same with TANDEM_NO_MEMORY; the text is "no memory " and `format`: "to read '%s'". */
tandem_status tandem_no_memory(tandem_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The row of the table: its name ("MALFORMED"), its exit code, its meaning. Never NULL. */
const char *tandem_status_name(tandem_status status);
int tandem_status_exit_code(tandem_status status);
const char *tandem_status_meaning(tandem_status status);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
