/* store_run.c: plans, runs and their events: predictions and what was measured. */
#include "profiles/store/store_handle.h"

static const char *or_empty(const char *text) { return text ? text : ""; }

static tandem_status insert_run(tandem_store *store, const tandem_run_record *run, int64_t *id,
                                tandem_error *error)
{
    static const char plan[] =
        "INSERT INTO plan (model, name, cluster, json) VALUES ((SELECT id FROM model WHERE hash = ?1), ?2, "
        "?3, ?4)"
        " ON CONFLICT DO NOTHING";
    static const char sql[] =
        "INSERT INTO run (plan, steps, predicted_ns, measured_ns, sensitivity, final_loss, accuracy, "
        "exit_code, host,"
        " time_ns) VALUES ((SELECT id FROM plan WHERE model = (SELECT id FROM model WHERE hash = ?1) AND "
        "name = ?2 AND"
        " cluster = ?3 AND json = ?4), ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    const char *const name = or_empty(run->plan_name), *const cluster = or_empty(run->cluster),
                      *const json = or_empty(run->plan_json);
    char hash[TANDEM_STORE_HASH];
    tandem_store_print_hash(hash, run->graph_hash);
    tandem_status status = tandem_store_add_model(store, or_empty(run->model), run->graph_hash, error);
    if (status == TANDEM_OK)
        status = tandem_store_execute(store, error, plan, "ssss", hash, name, cluster, json);
    if (status == TANDEM_OK)
        status =
            tandem_store_execute(store, error, sql, "ssssioorrriii", hash, name, cluster, json, run->steps,
                                 run->predicted_ns, run->measured_ns, run->sensitivity, run->final_loss,
                                 run->accuracy, (int64_t)run->exit_code, store->host, tandem_store_now_ns());
    if (status == TANDEM_OK) *id = sqlite3_last_insert_rowid(store->db);
    return status;
}

tandem_status tandem_store_put_run(tandem_store *store, const tandem_run_record *run, int64_t *run_id,
                                   tandem_error *error)
{
    int64_t id = 0;
    tandem_status status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = insert_run(store, run, &id, error);
    status = tandem_store_write_end(store, status, error);
    if (status == TANDEM_OK) *run_id = id;
    return status;
}

/* A foreign key would fail too, but without naming the run. */
static tandem_status check_run_exists(tandem_store *store, int64_t run_id, tandem_error *error)
{
    sqlite3_stmt *row = NULL;
    int more = 0;
    tandem_status status =
        tandem_store_query(&row, store, error, "SELECT 1 FROM run WHERE id = ?1", "i", run_id);
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, row, error);
    if (row) (void)sqlite3_reset(row);
    if (status == TANDEM_OK && !more)
        status = tandem_error_set(error, TANDEM_USAGE, "the store has no run %lld for these events",
                                  (long long)run_id);
    return status;
}

tandem_status tandem_store_put_events(tandem_store *store, int64_t run_id, const tandem_event_record *event,
                                      int n, tandem_error *error)
{
    static const char sql[] = "INSERT OR REPLACE INTO event (run, rank, task, op, kind, stream, start_ns, "
                              "duration_ns)"
                              " VALUES (?1, ?2, ?3, nullif(?4, -1), ?5, ?6, ?7, ?8)";
    tandem_status status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = check_run_exists(store, run_id, error);
    for (int i = 0; i < n && status == TANDEM_OK; i++)
        status = tandem_store_execute(store, error, sql, "iiiissii", run_id, (int64_t)event[i].rank,
                                      (int64_t)event[i].task, (int64_t)event[i].op, or_empty(event[i].kind),
                                      or_empty(event[i].stream), event[i].start_ns, event[i].duration_ns);
    return tandem_store_write_end(store, status, error);
}
