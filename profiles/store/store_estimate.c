/* store_estimate.c: estimated errors of gradients (advanced/estimate.h), one row a replicate. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/store/store_handle.h"

static const tandem_dtype amp_dtypes[TANDEM_N_AMP_DTYPE] = {TANDEM_F32, TANDEM_BF16, TANDEM_F16};
static const char scaling_text[] = "current";

static size_t estimate_cells(int n_op) { return (size_t)n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE; }

tandem_status tandem_estimate_open(tandem_estimate *estimate, int n_op, int n_point, int n_replicate,
                                   tandem_error *error)
{
    if (n_point < 1 || n_point > TANDEM_MAX_TRAINING_POINT || n_replicate < TANDEM_MIN_REPLICATE ||
        n_replicate > TANDEM_MAX_REPLICATE)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "an estimate of %d training points and %d replicates; allowed are 1 to %d points, and %d to %d "
            "replicates",
            n_point, n_replicate, TANDEM_MAX_TRAINING_POINT, TANDEM_MIN_REPLICATE, TANDEM_MAX_REPLICATE);
    const size_t n = (size_t)n_point * (size_t)n_replicate, n_cell = estimate_cells(n_op);
    tandem_estimate built = {.n_op = n_op, .n_point = n_point, .n_replicate = n_replicate};
    built.gradient = calloc(n, sizeof *built.gradient);
    built.error = calloc(n_cell ? n * n_cell : 1, sizeof *built.error);
    built.is_estimated = calloc(n_cell ? n_cell : 1, 1);
    if (!built.gradient || !built.error || !built.is_estimated) {
        tandem_estimate_close(&built);
        return tandem_no_memory(error, "for the replicates of %d operators", n_op);
    }
    *estimate = built;
    return TANDEM_OK;
}

void tandem_estimate_close(tandem_estimate *estimate)
{
    free(estimate->gradient);
    free(estimate->error);
    free(estimate->is_estimated);
    *estimate = (tandem_estimate){0};
}

int tandem_precision_has_amp(tandem_precision precision)
{
    const tandem_precision_row *row = tandem_precision_get(precision);
    return row->forward == TANDEM_AMP || row->dgrad == TANDEM_AMP || row->wgrad == TANDEM_AMP ||
           row->other_operand_dtype == TANDEM_AMP || row->output == TANDEM_AMP || row->saved == TANDEM_AMP;
}

int tandem_estimate_cell(int op, tandem_precision precision, tandem_dtype amp_dtype)
{
    int amp = 0;
    while (tandem_precision_has_amp(precision) && amp < TANDEM_N_AMP_DTYPE - 1 &&
           amp_dtypes[amp] != amp_dtype)
        amp++;
    return (op * TANDEM_N_PRECISION + (int)precision) * TANDEM_N_AMP_DTYPE + amp;
}

tandem_estimated_error *tandem_estimate_errors(const tandem_estimate *estimate, int point, int cell)
{
    const size_t at = (size_t)point * estimate_cells(estimate->n_op) + (size_t)cell;
    return estimate->error + at * (size_t)estimate->n_replicate;
}

/* --- Writing -------------------------------------------------------------------------------------------- */

static int is_estimated_number(double x) { return isfinite(x); }

static tandem_status put_estimated_gradients(tandem_store *store, const tandem_estimate *estimate, int64_t id,
                                             tandem_error *error)
{
    static const char sql[] = "INSERT INTO estimated_gradient VALUES (?1, ?2, ?3, ?4, ?5)";
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < estimate->n_point * estimate->n_replicate && status == TANDEM_OK; i++) {
        const tandem_estimated_gradient *gradient = &estimate->gradient[i];
        if (!is_estimated_number(gradient->variance) || !is_estimated_number(gradient->mean_square))
            return tandem_error_set(error, TANDEM_USAGE, "an estimated gradient is not finite");
        status = tandem_store_execute(
            store, error, sql, "iiirr", id, estimate->point[i / estimate->n_replicate],
            (int64_t)(i % estimate->n_replicate), gradient->variance, gradient->mean_square);
    }
    return status;
}

static int has_wide_error(const tandem_estimated_error *estimated)
{
    return estimated->wide_total != estimated->total ||
           estimated->wide_shared != estimated->wide_mean_square ||
           estimated->wide_mean_square != estimated->mean_square;
}

/* What an error is with wide ranges. */
static tandem_status put_wide_error(tandem_store *store, const char *op_name, const tandem_estimate *estimate,
                                    int64_t id, int cell, int point, int r, tandem_error *error)
{
    static const char sql[] = "INSERT INTO estimated_wide_error VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    const tandem_estimated_error *estimated = &tandem_estimate_errors(estimate, point, cell)[r];
    const tandem_precision precision = (tandem_precision)(cell / TANDEM_N_AMP_DTYPE % TANDEM_N_PRECISION);
    if (estimate->range_batch < 1 || !has_wide_error(estimated)) return TANDEM_OK;
    if (!is_estimated_number(estimated->wide_total) || !is_estimated_number(estimated->wide_shared) ||
        !is_estimated_number(estimated->wide_mean_square))
        return tandem_error_set(error, TANDEM_USAGE, "an estimated error of '%s' is not finite", op_name);
    return tandem_store_execute(
        store, error, sql, "isssiirrr", id, op_name, tandem_precision_get(precision)->name,
        tandem_dtype_name(amp_dtypes[cell % TANDEM_N_AMP_DTYPE]), estimate->point[point], (int64_t)r,
        estimated->wide_total, estimated->wide_shared, estimated->wide_mean_square);
}

static tandem_status put_estimated_errors(tandem_store *store, const tandem_graph *graph,
                                          const tandem_estimate *estimate, int64_t id, int cell,
                                          tandem_error *error)
{
    static const char sql[] =
        "INSERT INTO estimated_error VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    const int op = cell / TANDEM_N_AMP_DTYPE / TANDEM_N_PRECISION;
    const tandem_precision precision = (tandem_precision)(cell / TANDEM_N_AMP_DTYPE % TANDEM_N_PRECISION);
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < estimate->n_point * estimate->n_replicate && status == TANDEM_OK; i++) {
        const int point = i / estimate->n_replicate, r = i % estimate->n_replicate;
        const tandem_estimated_error *estimated = &tandem_estimate_errors(estimate, point, cell)[r];
        if (!is_estimated_number(estimated->total) || !is_estimated_number(estimated->shared) ||
            !is_estimated_number(estimated->mean_square) || !is_estimated_number(estimated->against))
            return tandem_error_set(error, TANDEM_USAGE, "an estimated error of '%s' is not finite",
                                    graph->op[op].name);
        status = tandem_store_execute(store, error, sql, "iisssiirrrr", id, (int64_t)op, graph->op[op].name,
                                      tandem_precision_get(precision)->name,
                                      tandem_dtype_name(amp_dtypes[cell % TANDEM_N_AMP_DTYPE]),
                                      estimate->point[point], (int64_t)r, estimated->total, estimated->shared,
                                      estimated->mean_square, estimated->against);
        if (status == TANDEM_OK)
            status = put_wide_error(store, graph->op[op].name, estimate, id, cell, point, r, error);
    }
    return status;
}

static tandem_status put_estimate_rows(tandem_store *store, const tandem_graph *graph, const char *data,
                                       const tandem_estimate *estimate, tandem_error *error)
{
    static const char remove[] =
        "DELETE FROM estimate WHERE model = (SELECT id FROM model WHERE hash = ?1) AND data = ?2 AND "
        "batch = ?3 AND optimizer = ?4 AND scaling = ?5 AND seed = ?6";
    static const char sql[] =
        "INSERT INTO estimate (model, data, batch, optimizer, scaling, seed, steps, n_replicate, host, "
        "time_ns) VALUES ((SELECT id FROM model WHERE hash = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    char hash[TANDEM_STORE_HASH];
    const char *optimizer = tandem_optimizer_name(estimate->optimizer);
    const int64_t seed = (int64_t)estimate->seed;
    tandem_store_print_hash(hash, graph->hash);
    tandem_status status = tandem_store_add_model(store, graph->model, graph->hash, error);
    if (status == TANDEM_OK)
        status = tandem_store_execute(store, error, remove, "ssissi", hash, data, estimate->batch, optimizer,
                                      scaling_text, seed);
    if (status == TANDEM_OK)
        status = tandem_store_execute(store, error, sql, "ssissiiiii", hash, data, estimate->batch, optimizer,
                                      scaling_text, seed, estimate->steps, (int64_t)estimate->n_replicate,
                                      store->host, tandem_store_now_ns());
    const int64_t id = status == TANDEM_OK ? sqlite3_last_insert_rowid(store->db) : 0;
    if (status == TANDEM_OK) status = put_estimated_gradients(store, estimate, id, error);
    if (status == TANDEM_OK && estimate->range_batch > 0)
        status = tandem_store_execute(store, error, "INSERT INTO estimated_range VALUES (?1, ?2)", "ii", id,
                                      estimate->range_batch);
    for (int cell = 0; cell < (int)estimate_cells(estimate->n_op) && status == TANDEM_OK; cell++)
        if (estimate->is_estimated[cell])
            status = put_estimated_errors(store, graph, estimate, id, cell, error);
    return status;
}

tandem_status tandem_store_put_estimate(tandem_store *store, const tandem_graph *graph, const char *data,
                                        const tandem_estimate *estimate, tandem_error *error)
{
    if (!data || !data[0] || estimate->batch < 1 || estimate->n_op != graph->n_op)
        return tandem_error_set(error, TANDEM_USAGE,
                                "an estimate needs its data set, its batch, and the operators of its model");
    const tandem_status status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    return tandem_store_write_end(store, put_estimate_rows(store, graph, data, estimate, error), error);
}

/* --- Reading -------------------------------------------------------------------------------------------- */

static void end_query(sqlite3_stmt *row)
{
    if (!row) return;
    (void)sqlite3_reset(row);
    (void)sqlite3_clear_bindings(row);
}

/* Of the estimates of a model and data set the newest: its head, and its id; id 0: there is none. */
static tandem_status find_estimate(int64_t *id, tandem_estimate *head, tandem_store *store,
                                   const tandem_graph *graph, const char *data, tandem_error *error)
{
    static const char sql[] =
        "SELECT id, batch, optimizer, seed, steps, n_replicate, (SELECT count(DISTINCT training_point) FROM "
        "estimated_gradient WHERE estimate = id), data FROM estimate WHERE model = (SELECT id FROM model "
        "WHERE hash = ?1) AND (?2 IS NULL OR data = ?2) ORDER BY time_ns DESC, id DESC LIMIT 1";
    char hash[TANDEM_STORE_HASH];
    const char *optimizer = NULL, *of_data = NULL;
    sqlite3_stmt *row = NULL;
    int more = 0;
    tandem_store_print_hash(hash, graph->hash);
    *id = 0;
    tandem_status status = tandem_store_query(&row, store, error, sql, "ss", hash, data);
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, row, error);
    if (status == TANDEM_OK && more) {
        *id = sqlite3_column_int64(row, 0);
        head->batch = sqlite3_column_int64(row, 1);
        head->seed = (uint64_t)sqlite3_column_int64(row, 3);
        head->steps = sqlite3_column_int64(row, 4);
        head->n_replicate = sqlite3_column_int(row, 5);
        head->n_point = sqlite3_column_int(row, 6);
        status = tandem_store_column_text(&of_data, store, row, 7, error);
        if (status == TANDEM_OK) (void)snprintf(head->data, sizeof head->data, "%s", of_data);
        if (status == TANDEM_OK) status = tandem_store_column_text(&optimizer, store, row, 2, error);
    }
    if (optimizer && strcmp(optimizer, tandem_optimizer_name(graph->optimizer.kind)) != 0)
        status =
            tandem_error_set(error, TANDEM_MISSING,
                             "model %s was estimated with %s, and is trained with %s: estimate it again with "
                             "`tandem sensitivity --model %s --data %s`",
                             graph->model, optimizer, tandem_optimizer_name(graph->optimizer.kind),
                             graph->model, data ? data : "DATA");
    end_query(row);
    return status;
}

static int find_training_point(const tandem_estimate *estimate, int64_t point)
{
    int a = 0;
    while (a < estimate->n_point && estimate->point[a] != point) a++;
    return a;
}

static tandem_status read_estimated_gradients(tandem_estimate *estimate, tandem_store *store, int64_t id,
                                              tandem_error *error)
{
    static const char sql[] =
        "SELECT training_point, replicate, variance, mean_square FROM estimated_gradient WHERE "
        "estimate = ?1 ORDER BY training_point, replicate";
    const int n = estimate->n_point * estimate->n_replicate;
    sqlite3_stmt *row = NULL;
    int more = 1, i = 0;
    tandem_status status = tandem_store_query(&row, store, error, sql, "i", id);
    for (; status == TANDEM_OK; i++) {
        status = tandem_store_next_row(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        if (i >= n || sqlite3_column_int(row, 1) != i % estimate->n_replicate) {
            status = tandem_store_refuse_damaged(store, "estimated gradients", error);
            break;
        }
        estimate->point[i / estimate->n_replicate] = sqlite3_column_int64(row, 0);
        estimate->gradient[i] =
            (tandem_estimated_gradient){sqlite3_column_double(row, 2), sqlite3_column_double(row, 3)};
    }
    end_query(row);
    if (status == TANDEM_OK && i != n)
        status = tandem_store_refuse_damaged(store, "estimated gradients", error);
    return status;
}

static int find_amp_dtype(const char *name)
{
    int k = 0;
    while (k < TANDEM_N_AMP_DTYPE && strcmp(name, tandem_dtype_name(amp_dtypes[k])) != 0) k++;
    return k;
}

/* The error that a row names in its first columns: operator, precision, AMP dtype, training point and
 * replicate. *estimated is set with TANDEM_OK, and else stays. */
static tandem_status find_estimated_error(tandem_estimated_error **estimated, int *cell,
                                          const tandem_estimate *estimate, const tandem_store *store,
                                          sqlite3_stmt *row, const tandem_graph *graph, tandem_error *error)
{
    const char *op_name = NULL, *precision_name = NULL, *amp_name = NULL;
    tandem_precision precision = TANDEM_PRECISION_FP32;
    int op = 0;
    tandem_status status = tandem_store_column_text(&op_name, store, row, 0, error);
    if (status == TANDEM_OK) status = tandem_store_column_text(&precision_name, store, row, 1, error);
    if (status == TANDEM_OK) status = tandem_store_column_text(&amp_name, store, row, 2, error);
    if (status != TANDEM_OK) return status;
    const int point = find_training_point(estimate, sqlite3_column_int64(row, 3)),
              r = sqlite3_column_int(row, 4), amp = find_amp_dtype(amp_name);
    if (tandem_graph_find(&op, graph, op_name, NULL) != TANDEM_OK ||
        tandem_precision_find(&precision, precision_name, NULL) != TANDEM_OK || point == estimate->n_point ||
        amp == TANDEM_N_AMP_DTYPE || r < 0 || r >= estimate->n_replicate)
        return tandem_store_refuse_damaged(store, "estimated errors", error);
    *cell = tandem_estimate_cell(op, precision, amp_dtypes[amp]);
    *estimated = &tandem_estimate_errors(estimate, point, *cell)[r];
    return TANDEM_OK;
}

static tandem_status read_estimated_error(tandem_estimate *estimate, const tandem_store *store,
                                          sqlite3_stmt *row, const tandem_graph *graph, tandem_error *error)
{
    tandem_estimated_error *estimated = NULL;
    int cell = 0;
    const tandem_status status = find_estimated_error(&estimated, &cell, estimate, store, row, graph, error);
    if (!estimated) return status;
    *estimated = (tandem_estimated_error){sqlite3_column_double(row, 5), sqlite3_column_double(row, 6),
                                          sqlite3_column_double(row, 7), sqlite3_column_double(row, 8),
                                          sqlite3_column_double(row, 5), sqlite3_column_double(row, 7),
                                          sqlite3_column_double(row, 7)};
    estimate->is_estimated[cell] = 1;
    return TANDEM_OK;
}

static tandem_status read_wide_error(tandem_estimate *estimate, const tandem_store *store, sqlite3_stmt *row,
                                     const tandem_graph *graph, tandem_error *error)
{
    tandem_estimated_error *estimated = NULL;
    int cell = 0;
    const tandem_status status = find_estimated_error(&estimated, &cell, estimate, store, row, graph, error);
    if (!estimated) return status;
    estimated->wide_total = sqlite3_column_double(row, 5);
    estimated->wide_shared = sqlite3_column_double(row, 6);
    estimated->wide_mean_square = sqlite3_column_double(row, 7);
    estimate->range_batch = sqlite3_column_int64(row, 8);
    return TANDEM_OK;
}

typedef tandem_status read_error_row(tandem_estimate *estimate, const tandem_store *store, sqlite3_stmt *row,
                                     const tandem_graph *graph, tandem_error *error);

static tandem_status read_error_rows(tandem_estimate *estimate, tandem_store *store, const char *sql,
                                     read_error_row *read, int64_t id, const tandem_graph *graph,
                                     tandem_error *error)
{
    sqlite3_stmt *row = NULL;
    int more = 1;
    tandem_status status = tandem_store_query(&row, store, error, sql, "i", id);
    while (status == TANDEM_OK) {
        status = tandem_store_next_row(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        status = read(estimate, store, row, graph, error);
    }
    end_query(row);
    return status;
}

static tandem_status read_estimated_errors(tandem_estimate *estimate, tandem_store *store, int64_t id,
                                           const tandem_graph *graph, tandem_error *error)
{
    static const char
        own[] = "SELECT op_name, \"precision\", amp_dtype, training_point, replicate, total, shared, "
                "mean_square, against FROM estimated_error WHERE estimate = ?1",
        wide[] = "SELECT op_name, \"precision\", amp_dtype, training_point, replicate, total, shared, "
                 "mean_square, batch FROM estimated_wide_error JOIN estimated_range USING (estimate) WHERE "
                 "estimate = ?1";
    const tandem_status status =
        read_error_rows(estimate, store, own, read_estimated_error, id, graph, error);
    return status == TANDEM_OK ? read_error_rows(estimate, store, wide, read_wide_error, id, graph, error)
                               : status;
}

/* A bias that was estimated is 0 in no replicate. */
static int has_estimated_bias(const tandem_estimate *estimate)
{
    const size_t n =
        estimate_cells(estimate->n_op) * (size_t)estimate->n_point * (size_t)estimate->n_replicate;
    int has_bias = 0;
    for (size_t i = 0; i < n && !has_bias; i++) has_bias = estimate->error[i].against != 0;
    return has_bias;
}

/* What estimates the model: a command, or the Python package where another framework recorded it. */
static const char *print_estimate_command(char *text, size_t size, const tandem_graph *graph,
                                          const char *data)
{
    if (graph->n_op > 0 && strcmp(graph->op[0].name, "recorded.input") == 0)
        (void)snprintf(text, size, "tandem.sensitivity(module, batches) in Python");
    else
        (void)snprintf(text, size, "`tandem sensitivity --model %s --data %s`", graph->model, data);
    return text;
}

/* The newest data set of a model's statistics, of `data` where it is given; "": there are none. */
static tandem_status find_statistics_data(char *text, size_t size, tandem_store *store,
                                          const tandem_graph *graph, const char *data, tandem_error *error)
{
    static const char sql[] = "SELECT data FROM statistics WHERE model = (SELECT id FROM model WHERE hash = "
                              "?1) AND (?2 IS NULL OR data = ?2) ORDER BY time_ns DESC, data LIMIT 1";
    char hash[TANDEM_STORE_HASH];
    const char *of = "";
    sqlite3_stmt *row = NULL;
    int more = 0;
    tandem_store_print_hash(hash, graph->hash);
    tandem_status status = tandem_store_query(&row, store, error, sql, "ss", hash, data);
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, row, error);
    if (status == TANDEM_OK && more) status = tandem_store_column_text(&of, store, row, 0, error);
    if (status == TANDEM_OK) (void)snprintf(text, size, "%s", of);
    end_query(row);
    return status;
}

/* Says what there is instead, and what leads on. */
static tandem_status refuse_without_estimate(tandem_store *store, const tandem_graph *graph, const char *data,
                                             tandem_error *error)
{
    char of[256], command[TANDEM_MODEL_NAME + 512];
    const tandem_status status = find_statistics_data(of, sizeof of, store, graph, data, error);
    if (status != TANDEM_OK) return status;
    (void)print_estimate_command(command, sizeof command, graph, *of ? of : data ? data : "DATA");
    if (*of)
        return tandem_error_set(error, TANDEM_MISSING,
                                "model %s has no estimate; the store has its statistics over %s alone: %s "
                                "estimates it, and method fisher (--sensitivity fisher) ranks plans by them",
                                graph->model, of, command);
    return tandem_error_set(
        error, TANDEM_MISSING,
        "model %s has no estimate%s%s, and the store has no statistics of it: %s estimates it", graph->model,
        data ? " over " : "", data ? data : "", command);
}

tandem_status tandem_store_load_estimate(tandem_estimate *estimate, tandem_store *store,
                                         const tandem_graph *graph, const char *data, tandem_error *error)
{
    int64_t id = 0;
    tandem_estimate head = {0}, read = {0};
    tandem_status status = find_estimate(&id, &head, store, graph, data, error);
    if (status == TANDEM_OK && id == 0) status = refuse_without_estimate(store, graph, data, error);
    if (status != TANDEM_OK) return status;
    status = tandem_estimate_open(&read, graph->n_op, head.n_point, head.n_replicate, error);
    if (status == TANDEM_NO_MEMORY) return status;
    if (status != TANDEM_OK || head.batch < 1) {
        tandem_estimate_close(&read);
        return tandem_store_refuse_damaged(store, "an estimate", error);
    }
    read.batch = head.batch;
    read.steps = head.steps;
    read.seed = head.seed;
    memcpy(read.data, head.data, sizeof read.data);
    read.optimizer = graph->optimizer.kind;
    status = read_estimated_gradients(&read, store, id, error);
    if (status == TANDEM_OK) status = read_estimated_errors(&read, store, id, graph, error);
    read.without_bias = !has_estimated_bias(&read);
    if (status == TANDEM_OK)
        *estimate = read;
    else
        tandem_estimate_close(&read);
    return status;
}
