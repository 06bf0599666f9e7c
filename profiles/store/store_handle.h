/* store_handle.h: the handle that the store's files share; private to profiles/. */
#ifndef TANDEM_PROFILES_STORE_HANDLE_H
#define TANDEM_PROFILES_STORE_HANDLE_H

#include <sqlite3.h>

#include "tandem/advanced/store.h"

enum { TANDEM_STORE_MAX_STATEMENT = 48 };

struct tandem_store {
    sqlite3 *db;
    char *path;
    tandem_store_mode mode;
    int in_transaction; /* between tandem_store_begin and commit or rollback */
    char *libraries;    /* of the measurements to come */
    int n_thread;
    int64_t host;                       /* row id of the host; 0 = not added yet, or rolled back */
    int64_t work_units, max_work_units; /* left to all statements, and at most (store_trust.c) */
    int64_t rows_left;                  /* of the statement that runs */
    int n_statement;                    /* prepared statements, found by the address of their SQL literal */
    struct tandem_store_statement {
        const char *sql;
        sqlite3_stmt *statement;
    } prepared[TANDEM_STORE_MAX_STATEMENT];
};

/* A statement yields at most so many rows. */
enum { TANDEM_STORE_MAX_ROWS = 1 << 20 };

enum { TANDEM_STORE_BUSY_MS = 30000 }; /* how long a statement waits for other writers */

/* The status and text of SQLite's last error on this handle; `what` failed: "reading". */
tandem_status tandem_store_fail(const tandem_store *store, const char *what, tandem_error *error);
/* The same for a given code, before there is a handle. */
tandem_status tandem_store_fail_code(const char *path, int code, const char *what, const char *why,
                                     tandem_error *error);
/* TANDEM_MALFORMED: the file is damaged; `why` says what of it. */
tandem_status tandem_store_refuse_file(const char *path, const char *what, const char *why,
                                       tandem_error *error);
/* TANDEM_MALFORMED: a value that tandem cannot have written. */
tandem_status tandem_store_refuse_damaged(const tandem_store *store, const char *what, tandem_error *error);

/* tandem_store_query: prepares `sql` once per handle and binds its parameters ?1, ?2 …. `types` has a
 * letter per argument: s const char *, i int64_t, o int64_t with 0 as NULL, r double with NaN as NULL.
 * Texts are borrowed until the caller's sqlite3_reset. */
tandem_status tandem_store_query(sqlite3_stmt **statement, tandem_store *store, tandem_error *error,
                                 const char *sql, const char *types, ...);
/* Steps to the next row: *more is 1, or 0 after the last one. */
tandem_status tandem_store_next_row(int *more, tandem_store *store, sqlite3_stmt *statement,
                                    tandem_error *error);
/* A text of the row, valid until the next step. NULL in the store is TANDEM_MALFORMED. */
tandem_status tandem_store_column_text(const char **text, const tandem_store *store, sqlite3_stmt *statement,
                                       int column, tandem_error *error);
/* Runs a statement without rows: query, step, reset. */
tandem_status tandem_store_execute(tandem_store *store, tandem_error *error, const char *sql,
                                   const char *types, ...);

/* The number that a statement without parameters yields; `otherwise` without a row. */
tandem_status tandem_store_number(int64_t *value, tandem_store *store, const char *sql, int64_t otherwise,
                                  tandem_error *error);

/* tandem_store_write_begin: one writing call is done as a whole, in its own transaction or in a savepoint
 * of the caller's. Afterwards store->host is valid. TANDEM_USAGE on a store opened for reading. */
tandem_status tandem_store_write_begin(tandem_store *store, tandem_error *error);
/* Keeps the writes if `status` is TANDEM_OK, otherwise undoes them. Returns `status`, or the error of
 * keeping. */
tandem_status tandem_store_write_end(tandem_store *store, tandem_status status, tandem_error *error);

/* Adds the row unless it is there. Within a write. */
tandem_status tandem_store_add_device(tandem_store *store, const char *device, tandem_error *error);
tandem_status tandem_store_add_model(tandem_store *store, const char *model, uint64_t graph_hash,
                                     tandem_error *error);
enum { TANDEM_STORE_HASH = 17 };
void tandem_store_print_hash(char text[TANDEM_STORE_HASH], uint64_t hash);

int64_t tandem_store_now_ns(void);

/* The columns of a cost: names, types and values for a query; tandem_store_read_cost reads them back. */
#define TANDEM_COST_COLUMNS                                                                                  \
    "n, n_outlier, sum_ns, sum_squares_ns2, median_ns, p10_ns, p90_ns, workspace_bytes, n_disturbed, "       \
    "low_ns, high_ns, compute_speed_sample_ns, memory_speed_sample_ns"
#define TANDEM_COST_TYPES "iirriiiiiiiii"
#define TANDEM_COST_VALUES(c)                                                                                \
    (c)->n, (c)->n_outlier, (c)->sum_ns, (c)->sum_squares_ns2, (c)->median_ns, (c)->p10_ns, (c)->p90_ns,     \
        (int64_t)(c)->workspace_bytes, (c)->n_disturbed, (c)->low_ns, (c)->high_ns,                          \
        (c)->compute_speed_sample_ns, (c)->memory_speed_sample_ns
/* TANDEM_USAGE unless it is a measurement: at least one repetition; times and sizes finite and not
 * negative. */
tandem_status tandem_store_check_cost(const tandem_cost *cost, tandem_error *error);
tandem_status tandem_store_read_cost(tandem_cost *cost, const tandem_store *store, sqlite3_stmt *statement,
                                     int column, tandem_error *error);

#endif
