/* store_statistics.c: statistics over real batches, and the sensitivities computed from them. */
#include "profiles/store/store_handle.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_COLUMNS "n_batch, local_batch, \"rows\", k, \"columns\", x_elements, w_elements"
#define REAL_COLUMNS                                                                                         \
    "x_amax, w_amax, g_amax, x_square, w_square, g_square, wgrad_square, dgrad_square, "                     \
    "g2_w2, g2_x2, g2_x2_c, x2_g2_d"
enum { N_WHOLE = 7, N_REAL = 12 };

/* Members in the order of the columns. */
#define AT(member) offsetof(tandem_statistics, member)
static const size_t whole_at[N_WHOLE] = {AT(n_batch), AT(local_batch), AT(rows),      AT(k),
                                         AT(columns), AT(x_elements),  AT(w_elements)};
static const size_t real_at[N_REAL] = {AT(x_amax),   AT(w_amax),   AT(g_amax),       AT(x_square),
                                       AT(w_square), AT(g_square), AT(wgrad_square), AT(dgrad_square),
                                       AT(g2_w2),    AT(g2_x2),    AT(g2_x2_c),      AT(x2_g2_d)};
#undef AT

static void statistics_to_columns(int64_t whole[N_WHOLE], double real[N_REAL], const tandem_statistics *s)
{
    for (int i = 0; i < N_WHOLE; i++) memcpy(&whole[i], (const char *)s + whole_at[i], sizeof whole[i]);
    for (int i = 0; i < N_REAL; i++) memcpy(&real[i], (const char *)s + real_at[i], sizeof real[i]);
}

static void statistics_from_columns(tandem_statistics *s, const int64_t whole[N_WHOLE],
                                    const double real[N_REAL])
{
    for (int i = 0; i < N_WHOLE; i++) memcpy((char *)s + whole_at[i], &whole[i], sizeof whole[i]);
    for (int i = 0; i < N_REAL; i++) memcpy((char *)s + real_at[i], &real[i], sizeof real[i]);
}

/* Sums of squares and magnitudes are not negative. Training that diverged has no useful statistics. */
static int is_valid_statistics(const int64_t whole[N_WHOLE], const double real[N_REAL])
{
    int sane = 1;
    for (int i = 0; i < N_WHOLE; i++) sane = sane && whole[i] >= (i < 2 ? 1 : 0);
    for (int i = 0; i < N_REAL; i++) sane = sane && isfinite(real[i]) && real[i] >= 0;
    return sane;
}

static tandem_status check_adjustable_op(const tandem_graph *graph, int op, tandem_error *error)
{
    if (op < 0 || op >= graph->n_op)
        return tandem_error_set(error, TANDEM_USAGE, "operator %d: %s has 0 to %d", op, graph->model,
                                graph->n_op - 1);
    if (!tandem_op_is_adjustable(&graph->op[op]))
        return tandem_error_set(error, TANDEM_USAGE,
                                "operator '%s' has no precision, so no statistics are kept for it",
                                graph->op[op].name);
    return TANDEM_OK;
}

tandem_status tandem_store_put_statistics(tandem_store *store, const tandem_graph *graph, const char *data,
                                          int op, const tandem_statistics *statistics, tandem_error *error)
{
    static const char renumbered[] = "DELETE FROM statistics WHERE model = (SELECT id FROM model WHERE hash "
                                     "= ?1)"
                                     " AND data = ?2 AND op_name = ?3 AND op <> ?4";
    static const char sql[] =
        "INSERT OR REPLACE INTO statistics (model, data, op, op_name, " WHOLE_COLUMNS ", " REAL_COLUMNS
        ", host, time_ns) VALUES ((SELECT id FROM model WHERE hash = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
        "?10, ?11, "
        "?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25)";
    char hash[TANDEM_STORE_HASH];
    int64_t w[N_WHOLE];
    double r[N_REAL];
    statistics_to_columns(w, r, statistics);
    tandem_status status = check_adjustable_op(graph, op, error);
    if (status == TANDEM_OK && (!data || !data[0]))
        status = tandem_error_set(error, TANDEM_USAGE, "statistics need the name of their data set");
    if (status == TANDEM_OK && !is_valid_statistics(w, r))
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "statistics of '%s' are negative, not finite, or over "
                                  "no batch",
                                  graph->op[op].name);
    if (status == TANDEM_OK) status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    tandem_store_print_hash(hash, graph->hash);
    status = tandem_store_add_model(store, graph->model, graph->hash, error);
    if (status == TANDEM_OK)
        status = tandem_store_execute(store, error, renumbered, "sssi", hash, data, graph->op[op].name,
                                      (int64_t)op);
    if (status == TANDEM_OK)
        status = tandem_store_execute(store, error, sql,
                                      "ssis"
                                      "iiiiiii"
                                      "rrrrrrrrrrrr"
                                      "ii",
                                      hash, data, (int64_t)op, graph->op[op].name, w[0], w[1], w[2], w[3],
                                      w[4], w[5], w[6], r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8],
                                      r[9], r[10], r[11], store->host, tandem_store_now_ns());
    return tandem_store_write_end(store, status, error);
}

/* The index of an operator in this graph. An earlier version may have fused fewer operators and numbered
 * them differently, so the name decides. TANDEM_MALFORMED if the graph lacks the operator, which its hash
 * excludes. */
static tandem_status find_statistics_op(int64_t *op, const char *name, const tandem_store *store,
                                        const tandem_graph *graph, tandem_error *error)
{
    int found = 0;
    if (*op >= 0 && *op < graph->n_op && strcmp(name, graph->op[*op].name) == 0) return TANDEM_OK;
    if (tandem_graph_find(&found, graph, name, NULL) != TANDEM_OK)
        return tandem_store_refuse_damaged(store, "statistics", error);
    *op = found;
    return TANDEM_OK;
}

/* Reads one row. */
static tandem_status read_statistics_row(tandem_statistics *statistics, const tandem_store *store,
                                         sqlite3_stmt *row, const tandem_graph *graph, tandem_error *error)
{
    int64_t whole[N_WHOLE];
    double real[N_REAL];
    const char *name = NULL;
    int64_t op = sqlite3_column_int64(row, 0);
    tandem_status status = tandem_store_column_text(&name, store, row, 1, error);
    if (status == TANDEM_OK) status = find_statistics_op(&op, name, store, graph, error);
    if (status != TANDEM_OK) return status;
    for (int i = 0; i < N_WHOLE; i++) whole[i] = sqlite3_column_int64(row, 2 + i);
    for (int i = 0; i < N_REAL; i++) real[i] = sqlite3_column_double(row, 2 + N_WHOLE + i);
    if (!is_valid_statistics(whole, real)) return tandem_store_refuse_damaged(store, "statistics", error);
    statistics_from_columns(&statistics[op], whole, real);
    return TANDEM_OK;
}

tandem_status tandem_store_load_statistics(tandem_statistics *statistics, tandem_store *store,
                                           const tandem_graph *graph, const char *data, tandem_error *error)
{
    /* Without `data`: all rows of the data set that was measured last, never a mix of two. */
    static const char sql[] =
        "SELECT op, op_name, " WHOLE_COLUMNS ", " REAL_COLUMNS " FROM statistics"
        " WHERE model = (SELECT id FROM model WHERE hash = ?1) AND data = coalesce(?2, (SELECT data FROM "
        "statistics"
        " WHERE model = (SELECT id FROM model WHERE hash = ?1) ORDER BY time_ns DESC, data LIMIT 1))";
    char hash[TANDEM_STORE_HASH];
    sqlite3_stmt *row = NULL;
    int more = 1, n = 0;
    tandem_status status = TANDEM_OK;
    tandem_statistics *const read = calloc((size_t)graph->n_op + 1, sizeof *read);
    if (!read) return tandem_no_memory(error, "for the statistics of %s", graph->model);
    tandem_store_print_hash(hash, graph->hash);
    status = tandem_store_query(&row, store, error, sql, "ss", hash, data);
    while (status == TANDEM_OK) {
        status = tandem_store_next_row(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        status = read_statistics_row(read, store, row, graph, error);
        n++;
    }
    if (row) {
        (void)sqlite3_reset(row);
        (void)sqlite3_clear_bindings(row);
    }
    if (status == TANDEM_OK && n == 0)
        status = tandem_error_set(
            error, TANDEM_MISSING,
            "there are no statistics of %s%s%s: `tandem sensitivity --model %s --data %s` measures them",
            graph->model, data ? " over " : "", data ? data : "", graph->model, data ? data : "DATA");
    if (status == TANDEM_OK) memcpy(statistics, read, (size_t)graph->n_op * sizeof *read);
    free(read);
    return status;
}
