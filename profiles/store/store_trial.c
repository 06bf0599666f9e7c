/* store_trial.c: trainings of trials, and what the trials found. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "profiles/store/store_handle.h"

/* --- Branches ------------------------------------------------------------------------------------------- */

static double or_nan(double x) { return isfinite(x) ? x : NAN; }

static tandem_status insert_branch(tandem_store *store, const tandem_branch_record *branch,
                                   const double *loss, tandem_error *error)
{
    char hash[TANDEM_STORE_HASH], graph_hash[TANDEM_STORE_HASH];
    tandem_store_print_hash(hash, branch->hash);
    tandem_store_print_hash(graph_hash, branch->graph_hash);
    tandem_status status = tandem_store_add_model(store, branch->model, branch->graph_hash, error);
    if (status == TANDEM_OK)
        status = tandem_store_execute(store, error, "DELETE FROM branch WHERE hash = ?1", "s", hash);
    if (status == TANDEM_OK)
        status = tandem_store_execute(
            store, error,
            "INSERT INTO branch (hash, model, steps, held_out, held_out_in_base, host, time_ns)"
            " VALUES (?1, (SELECT id FROM model WHERE hash = ?2), ?3, ?4, ?5, ?6, ?7)",
            "ssirrii", hash, graph_hash, branch->n_step, or_nan(branch->held_out),
            or_nan(branch->held_out_in_base), store->host, tandem_store_now_ns());
    const int64_t id = sqlite3_last_insert_rowid(store->db);
    for (int64_t k = 0; k < branch->n_step && status == TANDEM_OK; k++)
        status = tandem_store_execute(store, error,
                                      "INSERT INTO branch_loss (branch, step, loss) VALUES (?1, ?2, ?3)",
                                      "iir", id, k, or_nan(loss[k]));
    return status;
}

tandem_status tandem_store_put_branch(tandem_store *store, const tandem_branch_record *branch,
                                      const double *loss, tandem_error *error)
{
    if (branch->n_step < 1 || branch->n_step > TANDEM_STORE_MAX_ROWS)
        return tandem_error_set(error, TANDEM_USAGE, "a branch of %lld steps: a store keeps 1 to %d",
                                (long long)branch->n_step, (int)TANDEM_STORE_MAX_ROWS);
    tandem_status status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = insert_branch(store, branch, loss, error);
    return tandem_store_write_end(store, status, error);
}

/* NULL as NaN. */
static double column_real(sqlite3_stmt *row, int column)
{
    return sqlite3_column_type(row, column) == SQLITE_NULL ? NAN : sqlite3_column_double(row, column);
}

/* *id is −1 where there is none. */
static tandem_status find_branch(int64_t *id, tandem_branch_record *branch, tandem_store *store,
                                 tandem_error *error)
{
    sqlite3_stmt *row = NULL;
    char hash[TANDEM_STORE_HASH];
    int more = 0;
    tandem_store_print_hash(hash, branch->hash);
    tandem_status status =
        tandem_store_query(&row, store, error,
                           "SELECT id, held_out, held_out_in_base FROM branch WHERE hash = ?1 AND steps = ?2",
                           "si", hash, branch->n_step);
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, row, error);
    *id = more ? sqlite3_column_int64(row, 0) : -1;
    if (more) {
        branch->held_out = column_real(row, 1);
        branch->held_out_in_base = column_real(row, 2);
    }
    if (row) (void)sqlite3_reset(row);
    return status;
}

/* TANDEM_MALFORMED unless there is one row for each of the steps. */
static tandem_status read_losses(double *loss, int64_t n_step, tandem_store *store, int64_t id,
                                 tandem_error *error)
{
    sqlite3_stmt *row = NULL;
    int more = 1;
    int64_t n = 0;
    tandem_status status = tandem_store_query(
        &row, store, error, "SELECT step, loss FROM branch_loss WHERE branch = ?1 ORDER BY step", "i", id);
    while (status == TANDEM_OK) {
        status = tandem_store_next_row(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        if (n == n_step || sqlite3_column_int64(row, 0) != n)
            status = tandem_store_refuse_damaged(store, "the steps of a branch", error);
        else
            loss[n++] = column_real(row, 1);
    }
    if (row) (void)sqlite3_reset(row);
    return status == TANDEM_OK && n != n_step
               ? tandem_store_refuse_damaged(store, "the steps of a branch", error)
               : status;
}

tandem_status tandem_store_load_branch(tandem_branch_record *branch, double **loss, tandem_store *store,
                                       tandem_error *error)
{
    int64_t id = -1;
    double *all = NULL;
    if (branch->n_step < 1 || branch->n_step > TANDEM_STORE_MAX_ROWS) return *loss = NULL, TANDEM_OK;
    tandem_status status = find_branch(&id, branch, store, error);
    if (status == TANDEM_OK && id >= 0) {
        all = calloc((size_t)branch->n_step, sizeof *all);
        status = all ? read_losses(all, branch->n_step, store, id, error)
                     : tandem_no_memory(error, "for %lld losses", (long long)branch->n_step);
    }
    if (status == TANDEM_OK)
        *loss = all;
    else
        free(all);
    return status;
}

/* --- Trials --------------------------------------------------------------------------------------------- */

uint64_t tandem_trial_plan_hash(const tandem_plan *plan)
{
    char text[160];
    uint64_t hash = TANDEM_HASH_START;
    for (int c = 0; c < plan->cluster.n_class; c++) {
        const tandem_cluster_class *class = &plan->cluster.classes[c];
        (void)snprintf(text, sizeof text, "%s %d %lld;", class->device.name, class->n_rank,
                       (long long)class->batch);
        hash = tandem_hash_text(hash, text);
        for (int op = 0; op < plan->assignment.n_op; op++)
            hash = tandem_hash_bytes(hash, &plan->assignment.precision[c][op],
                                     sizeof plan->assignment.precision[c][op]);
    }
    const int n_micro = plan->step.n_micro > 1 ? plan->step.n_micro : 1;
    (void)snprintf(text, sizeof text, "%d %d %d", n_micro, plan->step.scaling.window,
                   (int)plan->cluster.wire);
    return tandem_hash_text(hash, text);
}

tandem_status tandem_store_put_trial(tandem_store *store, const char *model, uint64_t graph_hash,
                                     const tandem_trial_record *trial, tandem_error *error)
{
    char hash[TANDEM_STORE_HASH], plan[TANDEM_STORE_HASH], training[TANDEM_STORE_HASH];
    if (strlen(trial->plan) > TANDEM_STORE_MAX_TRIED_BYTES)
        return tandem_error_set(error, TANDEM_USAGE,
                                "the text of a plan of %zu bytes: a store keeps %d at most",
                                strlen(trial->plan), (int)TANDEM_STORE_MAX_TRIED_BYTES);
    tandem_store_print_hash(hash, graph_hash);
    tandem_store_print_hash(plan, trial->plan_hash);
    tandem_store_print_hash(training, trial->training);
    tandem_status status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = tandem_store_add_model(store, model, graph_hash, error);
    if (status == TANDEM_OK)
        status = tandem_store_execute(
            store, error,
            "INSERT INTO trial (model, plan_hash, plan, training, data, base, steps_before, steps, emulated, "
            "pairs, diverged, extra, extra_low, extra_high, host, time_ns)"
            " VALUES ((SELECT id FROM model WHERE hash = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, "
            "?13, ?14, ?15, ?16)"
            " ON CONFLICT DO UPDATE SET plan = excluded.plan, pairs = excluded.pairs, diverged = "
            "excluded.diverged, extra = excluded.extra, extra_low = excluded.extra_low, extra_high = "
            "excluded.extra_high, host = excluded.host, time_ns = excluded.time_ns"
            " WHERE excluded.pairs >= trial.pairs",
            "ssssssiiiiirrrii", hash, plan, trial->plan, training, trial->data, trial->base,
            trial->steps_before, trial->n_step, (int64_t)trial->is_emulated, (int64_t)trial->n_pair,
            (int64_t)trial->n_diverged, trial->extra, trial->extra_low, trial->extra_high, store->host,
            tandem_store_now_ns());
    return tandem_store_write_end(store, status, error);
}

/* A store of strangers may have a text of any length: one that is too long is no plan. */
static tandem_status read_tried_plan(tandem_trial_record *to, const tandem_store *store, sqlite3_stmt *row,
                                     tandem_error *error)
{
    const char *text = NULL;
    const tandem_status status = tandem_store_column_text(&text, store, row, 11, error);
    if (status != TANDEM_OK || strlen(text) > TANDEM_STORE_MAX_TRIED_BYTES) return status;
    to->plan = strdup(text);
    return to->plan ? TANDEM_OK : tandem_no_memory(error, "for the plan of a trial");
}

/* An extra is above −1 and inside of its interval, whose lower end is −∞ after one pair. */
static int is_possible(const tandem_trial_record *t)
{
    if (t->n_pair < 1 || t->n_step < 1 || t->n_diverged < 0 || t->n_diverged > t->n_pair) return 0;
    if (isnan(t->extra)) return 1;
    return t->extra > -1 && t->extra_low <= t->extra && t->extra <= t->extra_high;
}

static tandem_status read_trial(tandem_trial_record *to, const tandem_store *store, sqlite3_stmt *row,
                                tandem_error *error)
{
    const char *plan = NULL, *data = NULL, *base = NULL;
    char *end = NULL;
    tandem_status status = tandem_store_column_text(&plan, store, row, 0, error);
    if (status == TANDEM_OK) status = tandem_store_column_text(&data, store, row, 1, error);
    if (status == TANDEM_OK) status = tandem_store_column_text(&base, store, row, 2, error);
    if (status != TANDEM_OK) return status;
    *to = (tandem_trial_record){.plan_hash = strtoull(plan, &end, 16),
                                .steps_before = sqlite3_column_int64(row, 3),
                                .n_step = sqlite3_column_int64(row, 4),
                                .is_emulated = sqlite3_column_int(row, 5),
                                .n_pair = sqlite3_column_int(row, 6),
                                .n_diverged = sqlite3_column_int(row, 7),
                                .extra = column_real(row, 8),
                                .extra_low = column_real(row, 9),
                                .extra_high = column_real(row, 10)};
    (void)snprintf(to->data, sizeof to->data, "%s", data);
    (void)snprintf(to->base, sizeof to->base, "%s", base);
    return end == plan || *end || !is_possible(to) ? tandem_store_refuse_damaged(store, "a trial", error)
                                                   : TANDEM_OK;
}

void tandem_store_close_trials(tandem_trial_record *trial, int n)
{
    for (int k = 0; k < n; k++) free(trial[k].plan);
    free(trial);
}

tandem_status tandem_store_load_trials(tandem_trial_record **trial, int *n, tandem_store *store,
                                       uint64_t graph_hash, tandem_error *error)
{
    enum { MOST = 1024 }; /* of a model; older ones are not read */
    sqlite3_stmt *row = NULL;
    char hash[TANDEM_STORE_HASH];
    int more = 1, n_trial = 0;
    tandem_store_print_hash(hash, graph_hash);
    tandem_trial_record *all = calloc(MOST, sizeof *all);
    if (!all) return tandem_no_memory(error, "for the trials of a store");
    tandem_status status = tandem_store_query(
        &row, store, error,
        "SELECT plan_hash, data, base, steps_before, steps, emulated, pairs, diverged, extra, extra_low, "
        "extra_high, plan FROM trial WHERE model = (SELECT id FROM model WHERE hash = ?1)"
        " ORDER BY emulated, pairs DESC, time_ns DESC LIMIT 1024",
        "s", hash);
    while (status == TANDEM_OK && n_trial < MOST) {
        status = tandem_store_next_row(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        status = read_trial(&all[n_trial], store, row, error);
        if (status == TANDEM_OK && n_trial < TANDEM_STORE_TRIED_PLANS)
            status = read_tried_plan(&all[n_trial], store, row, error);
        n_trial += status == TANDEM_OK;
    }
    if (row) (void)sqlite3_reset(row);
    if (status != TANDEM_OK || n_trial == 0) {
        tandem_store_close_trials(all, n_trial);
        all = NULL;
    }
    if (status != TANDEM_OK) return status;
    *trial = all;
    *n = n_trial;
    return TANDEM_OK;
}
