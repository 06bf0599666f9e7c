/* status.h: how every function of tandem reports an error.
 *
 * A function that can fail returns a tandem_status and leaves its outputs unchanged on error. The function
 * that finds the error fills the caller's tandem_error: what failed, what it got, what is allowed, and what
 * to do. The status decides the exit code of the command line; the text is for people.
 *
 * The table is the only list of them: name, exit code, meaning. */
#ifndef TANDEM_STATUS_H
#define TANDEM_STATUS_H

/* clang-format off */
/* TANDEM_BEGIN_DECLARATIONS, TANDEM_END_DECLARATIONS: around what a public header declares. It has C linkage
 * in C++, and the libraries export it; they hide all else. */
#ifdef __cplusplus
#define TANDEM_BEGIN_DECLARATIONS _Pragma("GCC visibility push(default)") extern "C" {
#define TANDEM_END_DECLARATIONS } _Pragma("GCC visibility pop")
#else
#define TANDEM_BEGIN_DECLARATIONS _Pragma("GCC visibility push(default)")
#define TANDEM_END_DECLARATIONS _Pragma("GCC visibility pop")
#endif
/* clang-format on */

TANDEM_BEGIN_DECLARATIONS

#define TANDEM_VERSION "0.1.0"

#define TANDEM_STATUS_TABLE(ROW)                                                                             \
    ROW(OK, 0, "done")                                                                                       \
    ROW(INFEASIBLE, 1, "no plan satisfies the limits")                                                       \
    ROW(LIMIT_EXCEEDED, 1, "a result exceeds its limit")                                                     \
    ROW(USAGE, 2, "invalid command line or argument")                                                        \
    ROW(UNKNOWN_NAME, 2, "unknown name")                                                                     \
    ROW(MALFORMED, 3, "malformed input")                                                                     \
    ROW(WRONG_FORMAT, 3, "a file has another format, or another version")                                    \
    ROW(WRONG_GRAPH, 3, "a graph breaks a rule of its operators")                                            \
    ROW(WRONG_MODEL, 3, "a plan was made for another model, batch or cluster")                               \
    ROW(MISSING, 4, "a needed cost was not measured")                                                        \
    ROW(NO_DEVICE, 4, "this machine does not have the device")                                               \
    ROW(NO_KERNEL, 4, "the device has no kernel for a task")                                                 \
    ROW(NO_MEMORY, 5, "out of memory")                                                                       \
    ROW(IO, 5, "a file could not be read or written")                                                        \
    ROW(RANK_FAILED, 6, "another rank failed")                                                               \
    ROW(CANCELLED, 6, "the request was cancelled")                                                           \
    ROW(BUG, 70, "internal error; please report it")

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

/* Filled by the function that finds the error; its callers add nothing. All zero: no error. */
typedef struct tandem_error {
    tandem_status status;
    /* With TANDEM_RANK_FAILED: the rank that failed; -1: unknown. Else: the rank that reports an error that
     * all ranks have; -1: the error is this process's own. */
    int rank;
    char text[TANDEM_ERROR_TEXT]; /* one or more sentences, no newline at the end */
} tandem_error;

/* tandem_error_set: writes an error (printf format; where it does not fit, its long words are cut
 * in the middle) and returns its status:
 * `return tandem_error_set(error, TANDEM_MALFORMED, "…");`. `error` may be NULL. */
tandem_status tandem_error_set(tandem_error *error, tandem_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* tandem_no_memory: the same with TANDEM_NO_MEMORY; "no memory " precedes `format` ("to read '%s'"). */
tandem_status tandem_no_memory(tandem_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The row of the table: its name ("MALFORMED"), its exit code, its meaning. Never NULL. */
const char *tandem_status_name(tandem_status status);
int tandem_status_exit_code(tandem_status status);
const char *tandem_status_meaning(tandem_status status);

TANDEM_END_DECLARATIONS
#endif
