/* table.h: text tables on stdout. A column is as wide as its widest cell. */
#pragma once

#include <stddef.h>

enum { CLI_TABLE_COLUMNS = 24 };

typedef struct cli_table {
    char **line; /* [n_line] one string a row, the heading first; cells end with a tab or the string */
    size_t n_line, capacity;
    int incomplete; /* memory ran out; cli_table_finish reports it */
} cli_table;

/* Adds a row: cells with tabs between them (printf format). In the first row, the heading, a cell that
 * begins with '>' heads a column that is aligned to the right. */
void cli_table_row(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints all rows and releases them. Exit code: 0, or 5 if memory ran out before. */
int cli_table_finish(cli_table *table);
/* Releases a table that is not printed. All zero is an empty table, and what this leaves. */
void cli_table_free(cli_table *table);
