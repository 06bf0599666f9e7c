#include "cli/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

void cli_table_row(cli_table *table, const char *format, ...)
{
    char *line = NULL;
    va_list arguments;
    if (table->n_line == table->capacity) {
        const size_t capacity = table->capacity ? 2 * table->capacity : 64;
        char **grown = realloc(table->line, capacity * sizeof *grown);
        table->incomplete |= !grown;
        if (!grown) return;
        table->line = grown;
        table->capacity = capacity;
    }
    va_start(arguments, format);
    line = cli_format("\t", format, arguments);
    va_end(arguments);
    if (!line)
        table->incomplete = 1;
    else
        table->line[table->n_line++] = line;
}

/* Characters in n bytes of UTF-8. */
static int count_characters(const char *text, size_t n)
{
    int count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* The next cell of a row and its length in bytes; NULL after the last cell. */
static const char *next_cell(const char **rest, size_t *n)
{
    const char *begin = *rest;
    if (!begin) return NULL;
    *n = strcspn(begin, "\t");
    *rest = begin[*n] ? begin + *n + 1 : NULL;
    return begin;
}

static void print_table_row(const char *line, const int *width, unsigned right, int is_heading)
{
    int blanks = 0; /* owed before the next cell, so that no line ends with blanks */
    for (int column = 0; column < CLI_TABLE_COLUMNS; column++) {
        size_t n = 0;
        const char *cell = next_cell(&line, &n);
        if (!cell) break;
        const int at_right = (right >> column & 1) != 0;
        if (is_heading && at_right) cell++, n--;
        const int fill = width[column] - count_characters(cell, n);
        if (n > 0) printf("%*s%.*s", blanks + (at_right ? fill : 0), "", (int)n, cell);
        blanks = n > 0 ? (at_right ? 2 : fill + 2) : blanks + width[column] + 2;
    }
    putchar('\n');
}

static void measure_columns(const cli_table *table, int width[CLI_TABLE_COLUMNS], unsigned *right)
{
    for (size_t k = 0; k < table->n_line; k++) {
        const char *rest = table->line[k];
        for (int column = 0; column < CLI_TABLE_COLUMNS; column++) {
            size_t n = 0;
            const char *cell = next_cell(&rest, &n);
            if (!cell) break;
            if (k == 0 && *cell == '>') *right |= 1u << column, cell++, n--;
            const int w = count_characters(cell, n);
            if (w > width[column]) width[column] = w;
        }
    }
}

void cli_table_free(cli_table *table)
{
    for (size_t k = 0; k < table->n_line; k++) free(table->line[k]);
    free(table->line);
    *table = (cli_table){0};
}

int cli_table_finish(cli_table *table)
{
    int width[CLI_TABLE_COLUMNS] = {0}, code = 0;
    unsigned right = 0;
    measure_columns(table, width, &right);
    cli_progress_end();
    if (table->incomplete) code = cli_fail_with(TANDEM_NO_MEMORY, "no memory for a table");
    for (size_t k = 0; k < table->n_line && code == 0; k++)
        print_table_row(table->line[k], width, right, k == 0);
    cli_table_free(table);
    return code;
}
