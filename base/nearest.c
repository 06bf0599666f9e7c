/* nearest.c: search by name, and the optimal string alignment distance for suggestions. */
#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

/* Not tolower: that follows the locale. */
static int ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; }

static size_t smaller_of(size_t a, size_t b) { return a < b ? a : b; }

/* Three rows of the table of distances between prefixes suffice: a swap looks two rows back. */
static size_t edit_distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t rows[3][TANDEM_NEAREST_LENGTH + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= n_b; j++) before[j] = above[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            const int x = ascii_lower(a[i - 1]), y = ascii_lower(b[j - 1]);
            row[j] = smaller_of(smaller_of(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == ascii_lower(b[j - 2]) && ascii_lower(a[i - 2]) == y)
                row[j] = smaller_of(row[j], before[j - 2] + 1);
        }
        size_t *const reused = before;
        before = above;
        above = row;
        row = reused;
    }
    return above[n_b];
}

static const char *name_at(const void *names, size_t stride, size_t i)
{
    return *(const char *const *)((const char *)names + i * stride);
}

static const char *nearest_name(const char *name, const void *names, size_t n, size_t stride)
{
    const size_t length = name ? strnlen(name, TANDEM_NEAREST_LENGTH + 1) : 0;
    if (length == 0 || length > TANDEM_NEAREST_LENGTH) return NULL;
    const char *nearest = NULL;
    size_t fewest = (length / 2 > 2 ? length / 2 : 2) + 1;
    for (size_t i = 0; i < n; i++) {
        const char *const candidate = name_at(names, stride, i);
        const size_t other = candidate ? strnlen(candidate, TANDEM_NEAREST_LENGTH + 1) : 0;
        if (other == 0 || other > TANDEM_NEAREST_LENGTH) continue;
        const size_t edits = edit_distance(name, length, candidate, other);
        if (edits < fewest && edits < (length > other ? length : other)) {
            fewest = edits;
            nearest = candidate;
        }
    }
    return nearest;
}

const char *tandem_nearest(const char *name, const char *const *candidates, size_t n)
{
    return nearest_name(name, candidates, n, sizeof *candidates);
}

static tandem_hint hint_at(const char *near)
{
    tandem_hint hint = {""};
    if (near) (void)snprintf(hint.text, sizeof hint.text, " Did you mean '%s'?", near);
    return hint;
}

tandem_hint tandem_nearest_hint(const char *name, const char *const *candidates, size_t n)
{
    return hint_at(tandem_nearest(name, candidates, n));
}

int tandem_name_find(const char *name, const void *names, size_t n, size_t stride, tandem_hint *hint)
{
    for (size_t i = 0; name && i < n; i++)
        if (strcmp(name_at(names, stride, i), name) == 0) return (int)i;
    if (hint) *hint = hint_at(nearest_name(name, names, n, stride));
    return -1;
}
