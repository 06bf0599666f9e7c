/* store_costs.c: writes costs of operators and casts, and loads those of a step program into a hash table. */
#include "base/sort.h"
#include "base/arena.h"
#include "base/grow.h"
#include "base/hash.h"
#include "profiles/store/cost_key.h"
#include "profiles/store/store_handle.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- A cost in and out of the store --------------------------------------------------------------------- */
/* A task takes at most two weeks and 1 PiB, so that sums over a step fit 64 bits. */
static const int64_t max_ns = INT64_C(1) << 50, max_bytes = INT64_C(1) << 50;

static bool is_time(int64_t ns) { return ns >= 0 && ns <= max_ns; }

tandem_status tandem_store_check_cost(const tandem_cost *cost, tandem_error *error)
{
    if (cost->n >= 1 && cost->n_outlier >= 0 && cost->sum_ns >= 0 &&
        cost->sum_ns / (double)cost->n <= (double)max_ns && isfinite(cost->sum_squares_ns2) &&
        cost->sum_squares_ns2 >= 0 && is_time(cost->median_ns) && is_time(cost->p10_ns) &&
        is_time(cost->p90_ns) && is_time(cost->low_ns) && is_time(cost->high_ns) &&
        cost->low_ns <= cost->high_ns && cost->n_disturbed >= 0 && is_time(cost->compute_speed_sample_ns) &&
        is_time(cost->memory_speed_sample_ns) && cost->workspace_bytes <= (uint64_t)max_bytes)
        return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "a cost needs at least one repetition, and times from 0 to 2^50 ns; got %lld "
                            "repetitions, "
                            "%lld ns in the median, %g ns in all",
                            (long long)cost->n, (long long)cost->median_ns, cost->sum_ns);
}

tandem_status tandem_store_read_cost(tandem_cost *cost, const tandem_store *store, sqlite3_stmt *statement,
                                     int column, tandem_error *error)
{
    const tandem_cost read = {
        .n = sqlite3_column_int64(statement, column),
        .n_outlier = sqlite3_column_int64(statement, column + 1),
        .sum_ns = sqlite3_column_double(statement, column + 2),
        .sum_squares_ns2 = sqlite3_column_double(statement, column + 3),
        .median_ns = sqlite3_column_int64(statement, column + 4),
        .p10_ns = sqlite3_column_int64(statement, column + 5),
        .p90_ns = sqlite3_column_int64(statement, column + 6),
        .workspace_bytes = (uint64_t)sqlite3_column_int64(statement, column + 7),
        .n_disturbed = sqlite3_column_int64(statement, column + 8),
        .low_ns = sqlite3_column_int64(statement, column + 9),
        .high_ns = sqlite3_column_int64(statement, column + 10),
        .compute_speed_sample_ns = sqlite3_column_int64(statement, column + 11),
        .memory_speed_sample_ns = sqlite3_column_int64(statement, column + 12),
    };
    if (tandem_store_check_cost(&read, NULL) != TANDEM_OK)
        return tandem_store_refuse_damaged(store, "a cost", error);
    *cost = read;
    return TANDEM_OK;
}

static tandem_status put_op_cost(tandem_store *store, const char *device, const char *co_runner,
                                 const tandem_cost_key *key, const tandem_cost *cost, tandem_error *error)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO op_cost (device, co_runner, operator, \"precision\", pass, "
        "operand, result, " TANDEM_COST_COLUMNS
        ", host, time_ns) VALUES ((SELECT id FROM device WHERE name = ?1), ?2, "
        "(SELECT id FROM operator WHERE signature = ?3), ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, "
        "?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)";
    const tandem_status status = tandem_store_execute(
        store, error, "INSERT INTO operator (signature) VALUES (?1) ON CONFLICT DO NOTHING", "s",
        key->signature);
    if (status != TANDEM_OK) return status;
    return tandem_store_execute(store, error, sql, "sssssss" TANDEM_COST_TYPES "ii", device, co_runner,
                                key->signature, key->precision, tandem_pass_name(key->pass),
                                tandem_dtype_name(key->from), tandem_dtype_name(key->to),
                                TANDEM_COST_VALUES(cost), store->host, tandem_store_now_ns());
}

static tandem_status put_cast_cost(tandem_store *store, const char *device, const char *co_runner,
                                   const tandem_cost_key *key, const tandem_cost *cost, tandem_error *error)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO cast_cost (device, co_runner, elements, operand, result, range_source, "
        "transposed_copy, " TANDEM_COST_COLUMNS
        ", host, time_ns) VALUES ((SELECT id FROM device WHERE name = ?1), ?2, ?3, ?4, ?5, ?6, "
        "?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)";
    return tandem_store_execute(store, error, sql, "ssisssi" TANDEM_COST_TYPES "ii", device, co_runner,
                                key->elements, tandem_dtype_name(key->from), tandem_dtype_name(key->to),
                                tandem_range_source_name(key->range_source), (int64_t)key->transposed_copy,
                                TANDEM_COST_VALUES(cost), store->host, tandem_store_now_ns());
}

tandem_status tandem_store_put_cost(tandem_store *store, const char *device, const char *co_runner,
                                    const tandem_cost_key *key, const tandem_cost *cost, tandem_error *error)
{
    tandem_status status = tandem_store_check_cost(cost, error);
    if (status != TANDEM_OK) return status;
    if (!device || !device[0] || !co_runner)
        return tandem_error_set(error, TANDEM_USAGE, "a cost needs the name of its device");
    if (key->kind == TANDEM_COST_OP ? !key->signature[0] || !key->precision : key->kind != TANDEM_COST_CAST)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "a cost needs an operator's signature and precision, or a cast; collectives have "
            "tandem_store_put_collective");
    status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = tandem_store_add_device(store, device, error);
    if (status == TANDEM_OK)
        status = (key->kind == TANDEM_COST_OP ? put_op_cost : put_cast_cost)(store, device, co_runner, key,
                                                                             cost, error);
    return tandem_store_write_end(store, status, error);
}

/* --- The table: open addressing, linear probing, at most half full -------------------------------------- */
typedef struct cost_entry {
    uint64_t hash;
    const char *key; /* NULL = free */
    tandem_cost cost;
} cost_entry;

struct tandem_cost_table {
    int64_t count;
    size_t n_entry; /* a power of two */
    cost_entry *entry;
    tandem_arena text;
};

enum { FIRST_ENTRIES = 256 };
_Static_assert(TANDEM_COST_KEY_TEXT >= TANDEM_MAX_SIGNATURE + 80, "signature, precision, pass and types");

/* The slot of a key, or the free slot where it belongs. */
static cost_entry *find_cost_slot(cost_entry *all, size_t n_entry, const char *key, uint64_t hash)
{
    size_t at = (size_t)hash & (n_entry - 1);
    while (all[at].key && (all[at].hash != hash || strcmp(all[at].key, key) != 0))
        at = (at + 1) & (n_entry - 1);
    return &all[at];
}

static bool grow_cost_table(tandem_cost_table *table)
{
    const size_t n_entry = table->n_entry ? 2 * table->n_entry : FIRST_ENTRIES;
    cost_entry *const larger = calloc(n_entry, sizeof *larger);
    if (!larger) return false;
    for (size_t i = 0; i < table->n_entry; i++)
        if (table->entry[i].key)
            *find_cost_slot(larger, n_entry, table->entry[i].key, table->entry[i].hash) = table->entry[i];
    free(table->entry);
    table->entry = larger;
    table->n_entry = n_entry;
    return true;
}

static bool insert_cost(tandem_cost_table *table, const char *key, const tandem_cost *cost)
{
    if ((size_t)table->count * 2 >= table->n_entry && !grow_cost_table(table)) return false;
    const uint64_t hash = tandem_hash_text(TANDEM_HASH_START, key);
    cost_entry *const slot = find_cost_slot(table->entry, table->n_entry, key, hash);
    if (!slot->key) {
        const char *const copy = tandem_arena_text(&table->text, key);
        if (!copy) return false;
        *slot = (cost_entry){.hash = hash, .key = copy};
        table->count++;
    }
    slot->cost = *cost;
    return true;
}

static void free_cost_entries(tandem_cost_table *table)
{
    tandem_arena_free(&table->text);
    free(table->entry);
}

static tandem_status costs_no_memory(const char *what, tandem_error *error)
{
    return tandem_no_memory(error, "for the costs of '%s'", what);
}

/* --- Rows out of the store ------------------------------------------------------------------------------ */
/* A query for costs, and what its rows are for. */
typedef struct cost_query {
    tandem_store *store;
    const char *device, *co_runner;
    tandem_cost_visitor *visit;
    void *context;
    tandem_error *error;
} cost_query;

/* The index of the name in a column among n names; *known is false for another version's name. */
static tandem_status read_row_name(int *index, bool *known, const cost_query *w, sqlite3_stmt *row,
                                   int column, const char *(*name_of)(int), int n)
{
    const char *name = NULL;
    const tandem_status status = tandem_store_column_text(&name, w->store, row, column, w->error);
    if (status != TANDEM_OK) return status;
    for (*index = 0; *index < n; ++*index)
        if (strcmp(name, name_of(*index)) == 0) return TANDEM_OK;
    *index = 0;
    *known = false;
    return TANDEM_OK;
}

static const char *pass_name_at(int i) { return tandem_pass_name((tandem_pass)i); }
static const char *range_name_at(int i) { return tandem_range_source_name((tandem_range_source)i); }
static const char *dtype_name_at(int i) /* TF32 is no type of stored numbers */
{
    return i == TANDEM_TF32 ? "" : tandem_dtype_name((tandem_dtype)i);
}

static tandem_status read_row_dtypes(tandem_cost_key *key, bool *known, const cost_query *w,
                                     sqlite3_stmt *row, int column)
{
    int from = 0, to = 0;
    tandem_status status = read_row_name(&from, known, w, row, column, dtype_name_at, TANDEM_S32 + 1);
    if (status == TANDEM_OK)
        status = read_row_name(&to, known, w, row, column + 1, dtype_name_at, TANDEM_S32 + 1);
    key->from = (tandem_dtype)from;
    key->to = (tandem_dtype)to;
    return status;
}

/* Reads the key of a row; *known is false if its type, pass or range belongs to another version. */
typedef tandem_status row_key_reader(tandem_cost_key *key, bool *known, const cost_query *w,
                                     sqlite3_stmt *row);

static tandem_status read_op_key(tandem_cost_key *key, bool *known, const cost_query *w, sqlite3_stmt *row)
{
    const char *signature = NULL;
    key->kind = TANDEM_COST_OP;
    tandem_status status = tandem_store_column_text(&signature, w->store, row, 0, w->error);
    if (status != TANDEM_OK) return status;
    const size_t n = strlen(signature);
    if (n >= sizeof key->signature)
        return tandem_store_refuse_damaged(w->store, "an operator's signature", w->error);
    memcpy(key->signature, signature, n + 1);
    status = tandem_store_column_text(&key->precision, w->store, row, 1, w->error);
    int pass = 0;
    if (status == TANDEM_OK) status = read_row_name(&pass, known, w, row, 2, pass_name_at, TANDEM_N_PASS);
    key->pass = (tandem_pass)pass;
    return status == TANDEM_OK ? read_row_dtypes(key, known, w, row, 3) : status;
}

static tandem_status read_cast_key(tandem_cost_key *key, bool *known, const cost_query *w, sqlite3_stmt *row)
{
    key->kind = TANDEM_COST_CAST;
    key->precision = "";
    key->elements = sqlite3_column_int64(row, 0);
    key->transposed_copy = sqlite3_column_int(row, 4) != 0;
    if (key->elements < 0) return tandem_store_refuse_damaged(w->store, "a cast's elements", w->error);
    int range = 0;
    const tandem_status status =
        read_row_name(&range, known, w, row, 3, range_name_at, TANDEM_N_RANGE_SOURCE);
    key->range_source = (tandem_range_source)range;
    return status == TANDEM_OK ? read_row_dtypes(key, known, w, row, 1) : status;
}

/* Visits every row of a query whose cost begins in `column`. */
static tandem_status visit_cost_rows(const cost_query *w, sqlite3_stmt *row, row_key_reader *read, int column)
{
    int more = 1;
    tandem_status status = TANDEM_OK;
    while (status == TANDEM_OK) {
        tandem_cost_key key = {.signature = ""};
        tandem_cost cost;
        bool known = true;
        status = tandem_store_next_row(&more, w->store, row, w->error);
        if (status != TANDEM_OK || !more) break;
        status = read(&key, &known, w, row);
        if (status == TANDEM_OK) status = tandem_store_read_cost(&cost, w->store, row, column, w->error);
        if (status == TANDEM_OK && known) status = w->visit(w->context, &key, &cost, w->error);
    }
    (void)sqlite3_reset(row);
    (void)sqlite3_clear_bindings(row);
    return status;
}

enum { OP_COST_COLUMN = 5, CAST_COST_COLUMN = 5 };
#define OP_ROWS                                                                                              \
    "SELECT o.signature, c.\"precision\", c.pass, c.operand, c.result, " TANDEM_COST_COLUMNS                 \
    " FROM operator AS o JOIN op_cost AS c ON c.operator = o.id"                                             \
    " WHERE c.device = (SELECT id FROM device WHERE name = ?1) AND c.co_runner = ?2"
#define CAST_ROWS                                                                                            \
    "SELECT elements, operand, result, range_source, transposed_copy, " TANDEM_COST_COLUMNS                  \
    " FROM cast_cost WHERE device = (SELECT id FROM device WHERE name = ?1) AND co_runner = ?2"

static tandem_status visit_all_costs(const cost_query *w)
{
    static const char ops[] = OP_ROWS, casts[] = CAST_ROWS;
    sqlite3_stmt *row = NULL;
    tandem_status status = tandem_store_query(&row, w->store, w->error, ops, "ss", w->device, w->co_runner);
    if (status == TANDEM_OK) status = visit_cost_rows(w, row, read_op_key, OP_COST_COLUMN);
    if (status == TANDEM_OK)
        status = tandem_store_query(&row, w->store, w->error, casts, "ss", w->device, w->co_runner);
    return status == TANDEM_OK ? visit_cost_rows(w, row, read_cast_key, CAST_COST_COLUMN) : status;
}

/* Visits all rows of the key's operator, or all casts of its size: adjacent in the index. */
static tandem_status visit_costs_like(const cost_query *w, const tandem_cost_key *key)
{
    static const char ops[] = OP_ROWS " AND o.signature = ?3", casts[] = CAST_ROWS " AND elements = ?3";
    sqlite3_stmt *row = NULL;
    const int is_cast = key->kind == TANDEM_COST_CAST;
    const tandem_status status = is_cast ? tandem_store_query(&row, w->store, w->error, casts, "ssi",
                                                              w->device, w->co_runner, key->elements)
                                         : tandem_store_query(&row, w->store, w->error, ops, "sss", w->device,
                                                              w->co_runner, key->signature);
    if (status != TANDEM_OK) return status;
    return visit_cost_rows(w, row, is_cast ? read_cast_key : read_op_key,
                           is_cast ? CAST_COST_COLUMN : OP_COST_COLUMN);
}

/* The key of the task's first variant from `variant` to `end`: operator and size are the same for all before
 * TANDEM_ATTENTION_VARIANT, and for all after. */
static bool first_cost_key(const tandem_step *step, int t, int variant, int end, tandem_cost_key *key)
{
    for (; variant < end; variant++)
        if (tandem_step_cost_key(step, t, variant, key)) return key->kind != TANDEM_COST_COLLECTIVE;
    return false;
}

/* done: operators and cast sizes that were visited. */
static tandem_status visit_costs_once(const cost_query *w, tandem_cost_table *done,
                                      const tandem_cost_key *key)
{
    static const tandem_cost none = {0};
    char text[TANDEM_COST_KEY_TEXT];
    if (key->kind == TANDEM_COST_CAST)
        tandem_cost_key_print_cast(text, sizeof text, key->elements, "", "", TANDEM_RANGE_FOUND, 0);
    else
        memcpy(text, key->signature, sizeof key->signature);
    const int64_t n = done->count;
    if (!insert_cost(done, text, &none)) return costs_no_memory(w->device, w->error);
    return done->count > n ? visit_costs_like(w, key) : TANDEM_OK;
}

static tandem_status visit_step_costs(const cost_query *w, const tandem_step *step)
{
    tandem_cost_table done = {0};
    tandem_status status = TANDEM_OK;
    if (!grow_cost_table(&done)) status = costs_no_memory(w->device, w->error);
    for (int t = 0; t < step->n_task && status == TANDEM_OK; t++) {
        tandem_cost_key key;
        if (first_cost_key(step, t, 0, TANDEM_ATTENTION_VARIANT, &key))
            status = visit_costs_once(w, &done, &key);
        if (status == TANDEM_OK &&
            first_cost_key(step, t, TANDEM_ATTENTION_VARIANT, TANDEM_MAX_VARIANT, &key))
            status = visit_costs_once(w, &done, &key);
    }
    free_cost_entries(&done);
    return status;
}

tandem_status tandem_store_visit_costs(tandem_store *store, const char *device, const char *co_runner,
                                       const tandem_step *step, tandem_cost_visitor *visit, void *context,
                                       tandem_error *error)
{
    const cost_query w = {store, device, co_runner, visit, context, error};
    return step ? visit_step_costs(&w, step) : visit_all_costs(&w);
}

static tandem_status insert_visited_cost(void *context, const tandem_cost_key *key, const tandem_cost *cost,
                                         tandem_error *error)
{
    char text[TANDEM_COST_KEY_TEXT];
    tandem_cost_key_print(text, sizeof text, key);
    return insert_cost(context, text, cost) ? TANDEM_OK : costs_no_memory(text, error);
}

tandem_status tandem_store_load_costs(tandem_cost_table **table, tandem_store *store, const char *device,
                                      const char *co_runner, const tandem_step *step, tandem_error *error)
{
    tandem_cost_table *const opened = calloc(1, sizeof *opened);
    tandem_status status = opened && grow_cost_table(opened) ? TANDEM_OK : costs_no_memory(device, error);
    if (status == TANDEM_OK)
        status = tandem_store_visit_costs(store, device, co_runner, step, insert_visited_cost, opened, error);
    if (status == TANDEM_OK)
        *table = opened;
    else
        tandem_cost_table_free(opened);
    return status;
}

/* --- Batches -------------------------------------------------------------------------------------------- */
/* The signature of the input operator, "images n=16 h=28 w=28 c=1", differs between batches only in the
 * number after "n=". Keeps the text before and after it. */
typedef struct input_signature {
    /* "images n=", and the first text after every "images n=NUMBER" */
    char prefix[TANDEM_MAX_SIGNATURE], prefix_end[TANDEM_MAX_SIGNATURE];
    const char *suffix;
} input_signature;

static bool find_input_signature(input_signature *s, const tandem_graph *graph)
{
    const char *const signature = graph->input >= 0 ? graph->op[graph->input].signature : "";
    const char *const n = strstr(signature, " n=");
    if (!n) return false;
    const int length = (int)(n - signature) + 3;
    (void)snprintf(s->prefix, sizeof s->prefix, "%.*s", length, signature);
    (void)snprintf(s->prefix_end, sizeof s->prefix_end, "%.*s%c", length, signature, '9' + 1);
    s->suffix = signature + length;
    s->suffix += strspn(s->suffix, "0123456789");
    return true;
}

/* The batch in a signature; 0 if the rest differs. */
static int64_t batch_in_signature(const input_signature *s, const char *signature)
{
    char *end = NULL;
    const int64_t batch = strtoll(signature + strlen(s->prefix), &end, 10);
    return strcmp(end, s->suffix) == 0 ? batch : 0;
}

typedef struct batch_list {
    int64_t *batch;
    int n, capacity;
} batch_list;

tandem_status tandem_store_load_batches(int64_t **batch, int *n, tandem_store *store, const char *device,
                                        const char *co_runner, const tandem_graph *graph, tandem_error *error)
{
    static const char sql[] =
        "SELECT o.signature FROM operator AS o WHERE o.signature > ?3 AND o.signature < ?4 AND EXISTS "
        "(SELECT 1 FROM op_cost AS c WHERE c.device = (SELECT id FROM device WHERE name = ?1)"
        " AND c.co_runner = ?2 AND c.operator = o.id)";
    input_signature s;
    batch_list all = {0};
    sqlite3_stmt *row = NULL;
    int more = find_input_signature(&s, graph);
    tandem_status status = TANDEM_OK;
    if (more)
        status =
            tandem_store_query(&row, store, error, sql, "ssss", device, co_runner, s.prefix, s.prefix_end);
    while (status == TANDEM_OK && more) {
        const char *signature = NULL;
        status = tandem_store_next_row(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        status = tandem_store_column_text(&signature, store, row, 0, error);
        const int64_t found = status == TANDEM_OK ? batch_in_signature(&s, signature) : 0;
        if (found <= 0) continue;
        int64_t *const more_batches =
            tandem_grow(all.batch, &all.capacity, all.n, sizeof *more_batches, INT_MAX);
        if (!more_batches) {
            status = costs_no_memory(device, error);
            break;
        }
        all.batch = more_batches;
        all.batch[all.n++] = found;
    }
    if (row) {
        (void)sqlite3_reset(row);
        (void)sqlite3_clear_bindings(row);
    }
    if (status == TANDEM_OK) {
        tandem_sort_int64(all.batch, (size_t)all.n);
        *batch = all.batch;
        *n = all.n;
        all.batch = NULL;
    }
    free(all.batch);
    return status;
}

tandem_status tandem_store_count_costs(int64_t *n, tandem_store *store, tandem_error *error)
{
    static const char sql[] = "SELECT (SELECT count(*) FROM op_cost) + (SELECT count(*) FROM cast_cost)";
    sqlite3_stmt *row = NULL;
    int more = 0;
    tandem_status status = tandem_store_query(&row, store, error, sql, "");
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, row, error);
    if (status == TANDEM_OK) *n = sqlite3_column_int64(row, 0);
    if (row) (void)sqlite3_reset(row);
    return status;
}

void tandem_cost_table_free(tandem_cost_table *table)
{
    if (!table) return;
    free_cost_entries(table);
    free(table);
}

const tandem_cost *tandem_cost_table_find(const tandem_cost_table *table, const tandem_cost_key *key)
{
    char text[TANDEM_COST_KEY_TEXT];
    if (!table) return NULL;
    tandem_cost_key_print(text, sizeof text, key);
    const cost_entry *const slot =
        find_cost_slot(table->entry, table->n_entry, text, tandem_hash_text(TANDEM_HASH_START, text));
    return slot->key ? &slot->cost : NULL;
}
