/* store_write.c: transactions, and the rows that measurements refer to: host, device, model. */
#include "base/host.h"
#include "profiles/store/store_handle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- Transactions --------------------------------------------------------------------------------------- */
static tandem_status check_writable(const tandem_store *store, tandem_error *error)
{
    if (store->mode == TANDEM_STORE_READ)
        return tandem_error_set(error, TANDEM_USAGE, "the profile store '%.200s' was opened for reading",
                                store->path);
    if (store->in_transaction && sqlite3_get_autocommit(store->db))
        return tandem_error_set(error, TANDEM_IO,
                                "the transaction in the profile store '%.200s' was undone by an "
                                "earlier error (memory or disk)",
                                store->path);
    return TANDEM_OK;
}

tandem_status tandem_store_begin(tandem_store *store, tandem_error *error)
{
    tandem_status status = check_writable(store, error);
    if (status == TANDEM_OK && store->in_transaction)
        status =
            tandem_error_set(error, TANDEM_USAGE, "a transaction is already open; transactions do not nest");
    if (status == TANDEM_OK) status = tandem_store_execute(store, error, "BEGIN IMMEDIATE", "");
    if (status == TANDEM_OK) store->in_transaction = 1;
    return status;
}

tandem_status tandem_store_commit(tandem_store *store, tandem_error *error)
{
    tandem_status status = check_writable(store, error);
    if (status == TANDEM_OK && !store->in_transaction)
        return tandem_error_set(error, TANDEM_USAGE, "no transaction is open");
    if (status == TANDEM_OK) status = tandem_store_execute(store, error, "COMMIT", "");
    if (status == TANDEM_OK)
        store->in_transaction = 0;
    else
        tandem_store_rollback(store);
    return status;
}

void tandem_store_rollback(tandem_store *store)
{
    if (store->in_transaction && !sqlite3_get_autocommit(store->db))
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    store->in_transaction = 0;
    store->host = 0;
}

static tandem_status add_host(tandem_store *store, tandem_error *error)
{
    static const char insert[] = "INSERT INTO host (name_hash, cpu, n_cpu, libraries, n_thread) VALUES (?1, "
                                 "?2, ?3, "
                                 "?4, ?5) ON CONFLICT DO NOTHING";
    static const char select[] = "SELECT id FROM host WHERE name_hash = ?1 AND cpu = ?2 AND n_cpu = ?3 AND "
                                 "libraries "
                                 "= ?4 AND n_thread = ?5";
    tandem_host host;
    sqlite3_stmt *statement = NULL;
    int more = 0;
    tandem_host_read(&host);
    const int64_t n_cpu = host.n_cpu, n_thread = store->n_thread;
    tandem_status status = tandem_store_execute(store, error, insert, "ssisi", host.name_hash, host.cpu,
                                                n_cpu, store->libraries, n_thread);
    if (status == TANDEM_OK)
        status = tandem_store_query(&statement, store, error, select, "ssisi", host.name_hash, host.cpu,
                                    n_cpu, store->libraries, n_thread);
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, statement, error);
    if (status == TANDEM_OK && !more) status = tandem_store_refuse_damaged(store, "host", error);
    if (status == TANDEM_OK) store->host = sqlite3_column_int64(statement, 0);
    if (statement) {
        (void)sqlite3_reset(statement);
        (void)sqlite3_clear_bindings(statement);
    }
    return status;
}

tandem_status tandem_store_set_environment(tandem_store *store, const char *libraries, int n_thread,
                                           tandem_error *error)
{
    char *const copy = strdup(libraries);
    if (!copy) return tandem_no_memory(error, "for the names of libraries");
    free(store->libraries);
    store->libraries = copy;
    store->n_thread = n_thread;
    store->host = 0;
    return TANDEM_OK;
}

tandem_status tandem_store_write_begin(tandem_store *store, tandem_error *error)
{
    tandem_status status = check_writable(store, error);
    if (status != TANDEM_OK) return status;
    status = store->in_transaction ? tandem_store_execute(store, error, "SAVEPOINT one_call", "")
                                   : tandem_store_execute(store, error, "BEGIN IMMEDIATE", "");
    if (status == TANDEM_OK && store->host == 0) {
        status = add_host(store, error);
        if (status != TANDEM_OK) status = tandem_store_write_end(store, status, error);
    }
    return status;
}

tandem_status tandem_store_write_end(tandem_store *store, tandem_status status, tandem_error *error)
{
    if (status == TANDEM_OK)
        status = store->in_transaction ? tandem_store_execute(store, error, "RELEASE one_call", "")
                                       : tandem_store_execute(store, error, "COMMIT", "");
    if (status == TANDEM_OK) return status;
    store->host = 0;
    if (!sqlite3_get_autocommit(store->db)) /* otherwise SQLite has undone everything itself */
        (void)sqlite3_exec(store->db,
                           store->in_transaction ? "ROLLBACK TO one_call; RELEASE one_call" : "ROLLBACK",
                           NULL, NULL, NULL);
    return status;
}

/* --- Rows that others refer to -------------------------------------------------------------------------- */
tandem_status tandem_store_add_device(tandem_store *store, const char *device, tandem_error *error)
{
    return tandem_store_execute(store, error, "INSERT INTO device (name) VALUES (?1) ON CONFLICT DO NOTHING",
                                "s", device);
}

void tandem_store_print_hash(char text[TANDEM_STORE_HASH], uint64_t hash)
{
    (void)snprintf(text, TANDEM_STORE_HASH, "%016" PRIx64, hash);
}

tandem_status tandem_store_add_model(tandem_store *store, const char *model, uint64_t graph_hash,
                                     tandem_error *error)
{
    char hash[TANDEM_STORE_HASH];
    tandem_store_print_hash(hash, graph_hash);
    return tandem_store_execute(store, error,
                                "INSERT INTO model (name, hash) VALUES (?1, ?2) ON CONFLICT DO "
                                "NOTHING",
                                "ss", model, hash);
}

int64_t tandem_store_now_ns(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
