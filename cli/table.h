/* table.h: tables for people, on stdout: columns as wide as what stands in them. */
#ifndef TANDEM_CLI_TABLE_H
#define TANDEM_CLI_TABLE_H

#include <stddef.h>

enum { CLI_TABLE_COLUMNS = 24 };

typedef struct cli_table {
    char **line; /* [n_line] one string a row, the heading first; cells end with a tab or the string */
    size_t n_line, capacity;
    int incomplete; /* memory ran out: printing says so */
} cli_table;

/* Adds a row: cells with tabs between them (printf format). In the first row, the heading, a cell that
 * begins with '>' heads a column of figures, which stand at its right edge. */
void cli_table_row(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints all rows. Exit code: 0, 5 where memory ran out before. */
int cli_table_print(const cli_table *table);
void cli_table_free(cli_table *table); /* an all-zero one is fine, and is what it leaves */

#endif
