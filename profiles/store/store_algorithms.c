/* store_algorithms.c: the algorithms that devices chose. */
#include <stdlib.h>
#include <string.h>

#include "profiles/store/store_handle.h"

static tandem_status put_algorithm(tandem_store *store, const tandem_algorithm *choice, tandem_error *error)
{
    return tandem_store_execute(
        store, error,
        "INSERT OR REPLACE INTO algorithm (spec, choice, host, time_ns) VALUES (?1, ?2, ?3, ?4)", "ssii",
        choice->spec, choice->choice, store->host, tandem_store_now_ns());
}

tandem_status tandem_store_put_algorithms(tandem_store *store, const tandem_algorithm *choice, int n,
                                          tandem_error *error)
{
    if (n == 0) return TANDEM_OK;
    tandem_status status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    for (int i = 0; i < n && status == TANDEM_OK; i++) status = put_algorithm(store, &choice[i], error);
    return tandem_store_write_end(store, status, error);
}

/* --- Reading: rows into one block, the array before its texts ------------------------------------------- */

typedef struct text_block {
    char *text; /* spec, 0, choice, 0, spec … */
    size_t size, capacity;
    int n;
} text_block;

static int append_block_text(text_block *b, const char *text)
{
    const size_t size = strlen(text) + 1;
    if (b->capacity - b->size < size) {
        const size_t more = 2 * b->capacity + size + 4096;
        char *grown = realloc(b->text, more);
        if (!grown) return 0;
        b->text = grown;
        b->capacity = more;
    }
    memcpy(b->text + b->size, text, size);
    b->size += size;
    return 1;
}

static tandem_status read_algorithm_row(text_block *b, tandem_store *store, sqlite3_stmt *statement,
                                        tandem_error *error)
{
    const char *spec = NULL, *choice = NULL;
    tandem_status status = tandem_store_column_text(&spec, store, statement, 0, error);
    if (status == TANDEM_OK) status = tandem_store_column_text(&choice, store, statement, 1, error);
    if (status != TANDEM_OK) return status;
    if (!append_block_text(b, spec) || !append_block_text(b, choice))
        return tandem_no_memory(error, "for the algorithms of a store");
    b->n++;
    return TANDEM_OK;
}

static tandem_algorithm *pack_algorithms(const text_block *b)
{
    const size_t head = (size_t)b->n * sizeof(tandem_algorithm);
    tandem_algorithm *choice = malloc(head + b->size);
    if (!choice) return NULL;
    char *at = (char *)choice + head;
    memcpy(at, b->text, b->size);
    for (int i = 0; i < b->n; i++) {
        choice[i].spec = at, at += strlen(at) + 1;
        choice[i].choice = at, at += strlen(at) + 1;
    }
    return choice;
}

tandem_status tandem_store_load_algorithms(tandem_algorithm **choice, int *n, tandem_store *store,
                                           tandem_error *error)
{
    sqlite3_stmt *statement = NULL;
    text_block b = {0};
    int more = 0;
    tandem_status status =
        tandem_store_query(&statement, store, error, "SELECT spec, choice FROM algorithm ORDER BY spec", "");
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, statement, error);
    while (status == TANDEM_OK && more) {
        status = read_algorithm_row(&b, store, statement, error);
        if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, statement, error);
    }
    if (statement) (void)sqlite3_reset(statement);
    tandem_algorithm *all = status == TANDEM_OK && b.n ? pack_algorithms(&b) : NULL;
    if (status == TANDEM_OK && b.n && !all) status = tandem_no_memory(error, "for the algorithms of a store");
    if (status == TANDEM_OK) {
        *choice = all;
        *n = b.n;
    }
    free(b.text);
    return status;
}
