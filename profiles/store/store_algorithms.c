/* store_algorithms.c: the algorithms that devices chose. */
#include <stdio.h>
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

static tandem_status read_algorithm_row(FILE *texts, tandem_store *store, sqlite3_stmt *statement,
                                        tandem_error *error)
{
    const char *text = NULL;
    for (int column = 0; column < 2; column++) {
        const tandem_status status = tandem_store_column_text(&text, store, statement, column, error);
        if (status != TANDEM_OK) return status;
        (void)fwrite(text, 1, strlen(text) + 1, texts); /* closing reports errors */
    }
    return TANDEM_OK;
}

static tandem_algorithm *pack_algorithms(const char *texts, size_t size, int n)
{
    const size_t head = (size_t)n * sizeof(tandem_algorithm);
    tandem_algorithm *choice = malloc(head + size);
    if (!choice) return NULL;
    char *at = (char *)choice + head;
    memcpy(at, texts, size);
    for (int i = 0; i < n; i++) {
        choice[i].spec = at, at += strlen(at) + 1;
        choice[i].choice = at, at += strlen(at) + 1;
    }
    return choice;
}

tandem_status tandem_store_load_algorithms(tandem_algorithm **choice, int *n, tandem_store *store,
                                           tandem_error *error)
{
    sqlite3_stmt *statement = NULL;
    char *text = NULL; /* spec, 0, choice, 0, spec … */
    size_t size = 0;
    int n_row = 0, more = 1;
    FILE *const texts = open_memstream(&text, &size);
    if (!texts) return tandem_no_memory(error, "for the algorithms of a store");
    tandem_status status =
        tandem_store_query(&statement, store, error, "SELECT spec, choice FROM algorithm ORDER BY spec", "");
    while (status == TANDEM_OK) {
        status = tandem_store_next_row(&more, store, statement, error);
        if (status != TANDEM_OK || !more) break;
        status = read_algorithm_row(texts, store, statement, error);
        n_row++;
    }
    if (statement) (void)sqlite3_reset(statement);
    const int is_complete = !ferror(texts), is_closed = fclose(texts) == 0;
    tandem_algorithm *const all =
        status == TANDEM_OK && n_row && is_complete && is_closed ? pack_algorithms(text, size, n_row) : NULL;
    if (status == TANDEM_OK && (!is_complete || !is_closed || (n_row && !all)))
        status = tandem_no_memory(error, "for the algorithms of a store");
    if (status == TANDEM_OK) {
        *choice = all;
        *n = n_row;
    }
    free(text);
    return status;
}
