/* store_costs.c: costs of operators and casts: filing them, and loading a device's into a hash table. */
#include "base/arena.h"
#include "profiles/cost_key.h"
#include "profiles/store_handle.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* --- A cost in and out of the store --------------------------------------------------------------------- */
tandem_status tandem_store_check_cost(const tandem_cost *cost, tandem_error *error)
{
    if (cost->n >= 1 && cost->n_outlier >= 0 && isfinite(cost->sum_ns) && cost->sum_ns >= 0 &&
        isfinite(cost->sum_squares_ns2) && cost->sum_squares_ns2 >= 0 && cost->median_ns >= 0 &&
        cost->p10_ns >= 0 && cost->p90_ns >= 0 && cost->workspace_bytes <= INT64_MAX)
        return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "a cost needs at least one repetition, and times that are finite and not negative; got "
                            "%lld repetitions, %lld ns in the median",
                            (long long)cost->n, (long long)cost->median_ns);
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
    };
    if (tandem_store_check_cost(&read, NULL) != TANDEM_OK)
        return tandem_store_damaged(store, "a cost", error);
    *cost = read;
    return TANDEM_OK;
}

static tandem_status put_op(tandem_store *store, const char *device, const char *neighbour,
                            const tandem_cost_key *key, const tandem_cost *cost, tandem_error *error)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO op_cost (device, neighbour, operator, \"precision\", pass, operand, result, " TANDEM_COST_COLUMNS
        ", host, time_ns) VALUES ((SELECT id FROM device WHERE name = ?1), ?2, "
        "(SELECT id FROM operator WHERE signature = ?3), ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
    const tandem_status status = tandem_store_execute(
        store, error, "INSERT INTO operator (signature) VALUES (?1) ON CONFLICT DO NOTHING", "s", key->signature);
    if (status != TANDEM_OK) return status;
    return tandem_store_execute(store, error, sql, "sssssss" TANDEM_COST_TYPES "ii", device, neighbour,
                                key->signature, key->precision, tandem_pass_name(key->pass),
                                tandem_dtype_name(key->from), tandem_dtype_name(key->to),
                                TANDEM_COST_VALUES(cost), store->host, tandem_store_now_ns());
}

static tandem_status put_cast(tandem_store *store, const char *device, const char *neighbour,
                              const tandem_cost_key *key, const tandem_cost *cost, tandem_error *error)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO cast_cost (device, neighbour, elements, operand, result, known_range, " TANDEM_COST_COLUMNS
        ", host, time_ns) VALUES ((SELECT id FROM device WHERE name = ?1), ?2, ?3, ?4, ?5, ?6, "
        "?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
    return tandem_store_execute(store, error, sql, "ssissi" TANDEM_COST_TYPES "ii", device, neighbour,
                                key->elements, tandem_dtype_name(key->from), tandem_dtype_name(key->to),
                                (int64_t)(key->known_range != 0), TANDEM_COST_VALUES(cost), store->host,
                                tandem_store_now_ns());
}

tandem_status tandem_store_put_cost(tandem_store *store, const char *device, const char *neighbour,
                                    const tandem_cost_key *key, const tandem_cost *cost, tandem_error *error)
{
    tandem_status status = tandem_store_check_cost(cost, error);
    if (status != TANDEM_OK) return status;
    if (!device || !device[0] || !neighbour)
        return tandem_error_set(error, TANDEM_USAGE, "a cost needs the name of its device");
    if (key->kind == TANDEM_COST_OP ? !key->signature[0] || !key->precision : key->kind != TANDEM_COST_CAST)
        return tandem_error_set(error, TANDEM_USAGE,
                                "a cost is filed under an operator's signature and precision, or "
                                "under a cast; collectives have tandem_store_put_collective");
    status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = tandem_store_file_device(store, device, error);
    if (status == TANDEM_OK)
        status = (key->kind == TANDEM_COST_OP ? put_op : put_cast)(store, device, neighbour, key, cost, error);
    return tandem_store_write_end(store, status, error);
}

/* --- The table: open addressing, linear probing, at most half full -------------------------------------- */
typedef struct entry {
    uint64_t hash;
    const char *key; /* NULL = free */
    tandem_cost cost;
} entry;

struct tandem_cost_table {
    int64_t count;
    size_t n_entry; /* a power of two */
    entry *entry;
    tandem_arena text;
};

enum { FIRST_ENTRIES = 256 };
_Static_assert(TANDEM_COST_KEY_TEXT >= TANDEM_MAX_SIGNATURE + 80, "signature, precision, pass and types");

/* 64-bit FNV-1a. */
static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

/* Where the key stands, or the free place where it belongs. */
static entry *place_of(entry *all, size_t n_entry, const char *key, uint64_t hash)
{
    size_t at = (size_t)hash & (n_entry - 1);
    while (all[at].key && (all[at].hash != hash || strcmp(all[at].key, key) != 0))
        at = (at + 1) & (n_entry - 1);
    return &all[at];
}

static bool grow(tandem_cost_table *table)
{
    const size_t n_entry = table->n_entry ? 2 * table->n_entry : FIRST_ENTRIES;
    entry *const larger = calloc(n_entry, sizeof *larger);
    if (!larger) return false;
    for (size_t i = 0; i < table->n_entry; i++)
        if (table->entry[i].key)
            *place_of(larger, n_entry, table->entry[i].key, table->entry[i].hash) = table->entry[i];
    free(table->entry);
    table->entry = larger;
    table->n_entry = n_entry;
    return true;
}

static bool insert(tandem_cost_table *table, const char *key, const tandem_cost *cost)
{
    if ((size_t)table->count * 2 >= table->n_entry && !grow(table)) return false;
    const uint64_t hash = hash_text(key);
    entry *const place = place_of(table->entry, table->n_entry, key, hash);
    if (!place->key) {
        const char *const copy = tandem_arena_text(&table->text, key);
        if (!copy) return false;
        *place = (entry){.hash = hash, .key = copy};
        table->count++;
    }
    place->cost = *cost;
    return true;
}

/* The rows' keys as tandem_cost_key_print writes them. */
static tandem_status print_op(char *key, const tandem_store *store, sqlite3_stmt *row, tandem_error *error)
{
    const char *part[5];
    for (int i = 0; i < 5; i++) {
        const tandem_status status = tandem_store_text(&part[i], store, row, i, error);
        if (status != TANDEM_OK) return status;
    }
    tandem_cost_key_print_op(key, TANDEM_COST_KEY_TEXT, part[0], part[1], part[2], part[3], part[4]);
    return TANDEM_OK;
}

static tandem_status print_cast(char *key, const tandem_store *store, sqlite3_stmt *row, tandem_error *error)
{
    const char *from = NULL, *to = NULL;
    tandem_status status = tandem_store_text(&from, store, row, 1, error);
    if (status == TANDEM_OK) status = tandem_store_text(&to, store, row, 2, error);
    if (status == TANDEM_OK)
        tandem_cost_key_print_cast(key, TANDEM_COST_KEY_TEXT, sqlite3_column_int64(row, 0), from, to,
                                   sqlite3_column_int(row, 3));
    return status;
}

typedef tandem_status (*print_key)(char *, const tandem_store *, sqlite3_stmt *, tandem_error *);

static tandem_status load(tandem_cost_table *table, tandem_store *store, const char *sql, int cost_column,
                          print_key print, const char *device, const char *neighbour, tandem_error *error)
{
    sqlite3_stmt *row = NULL;
    tandem_cost cost;
    char key[TANDEM_COST_KEY_TEXT];
    int more = 1;
    tandem_status status = tandem_store_query(&row, store, error, sql, "ss", device, neighbour);
    while (status == TANDEM_OK) {
        status = tandem_store_next(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        status = print(key, store, row, error);
        if (status == TANDEM_OK) status = tandem_store_read_cost(&cost, store, row, cost_column, error);
        if (status == TANDEM_OK && !insert(table, key, &cost))
            status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the costs of '%s'", device);
    }
    if (row) {
        (void)sqlite3_reset(row);
        (void)sqlite3_clear_bindings(row);
    }
    return status;
}

tandem_status tandem_store_load_costs(tandem_cost_table **table, tandem_store *store, const char *device,
                                      const char *neighbour, tandem_error *error)
{
    static const char ops[] = "SELECT o.signature, c.\"precision\", c.pass, c.operand, c.result, " TANDEM_COST_COLUMNS
                              " FROM op_cost AS c JOIN operator AS o ON o.id = c.operator"
                              " WHERE c.device = (SELECT id FROM device WHERE name = ?1) AND c.neighbour = ?2";
    static const char casts[] =
        "SELECT elements, operand, result, known_range, " TANDEM_COST_COLUMNS
        " FROM cast_cost WHERE device = (SELECT id FROM device WHERE name = ?1) AND neighbour = ?2";
    tandem_cost_table *const made = calloc(1, sizeof *made);
    if (!made || !grow(made)) {
        tandem_cost_table_free(made);
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the costs of '%s'", device);
    }
    tandem_status status = load(made, store, ops, 5, print_op, device, neighbour, error);
    if (status == TANDEM_OK) status = load(made, store, casts, 4, print_cast, device, neighbour, error);
    if (status == TANDEM_OK)
        *table = made;
    else
        tandem_cost_table_free(made);
    return status;
}

void tandem_cost_table_free(tandem_cost_table *table)
{
    if (!table) return;
    tandem_arena_free(&table->text);
    free(table->entry);
    free(table);
}

const tandem_cost *tandem_cost_table_find(const tandem_cost_table *table, const tandem_cost_key *key)
{
    char text[TANDEM_COST_KEY_TEXT];
    if (!table) return NULL;
    tandem_cost_key_print(text, sizeof text, key);
    const entry *const place = place_of(table->entry, table->n_entry, text, hash_text(text));
    return place->key ? &place->cost : NULL;
}

int64_t tandem_cost_table_count(const tandem_cost_table *table) { return table ? table->count : 0; }
