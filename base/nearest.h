/* nearest.h: search by name, and "did you mean" for names that do not exist. */
#pragma once

#include <stddef.h>

/* Names longer than this are not compared. */
enum { TANDEM_NEAREST_LENGTH = 64 };

/* tandem_nearest: the candidate with the fewest insertions, deletions, substitutions and swaps of neighbours
 * between it and `name`, ignoring ASCII case; the first of several. The result is one of `candidates`.
 * NULL where none is near: more than max(2, half the length of `name`) edits, or as many as letters; also
 * where `name` is NULL, empty or longer than TANDEM_NEAREST_LENGTH. Skips NULL candidates.
 * Cost: O(n × 64²), no allocation.
 * Source: optimal string alignment distance (Damerau 1964; Wagner and Fischer 1974). */
const char *tandem_nearest(const char *name, const char *const *candidates, size_t n);

/* tandem_nearest_hint: a sentence for an error's text: " Did you mean 'NAME'?" with the nearest candidate, ""
 * without one. Example: printf("no such model '%s'.%s", name, tandem_nearest_hint(name, models, n).text); */
typedef struct tandem_hint {
    char text[TANDEM_NEAREST_LENGTH + 24];
} tandem_hint;
tandem_hint tandem_nearest_hint(const char *name, const char *const *candidates, size_t n);

/* tandem_name_find: the index of `name` among n names, −1 without it; then *hint (NULL: not wanted) is the
 * one of tandem_nearest_hint. `names` points to the first name, and two are `stride` bytes apart, so that a
 * column of a table serves: tandem_name_find(name, &rows[0].name, n_row, sizeof rows[0], &hint). `name` may
 * be NULL. */
int tandem_name_find(const char *name, const void *names, size_t n, size_t stride, tandem_hint *hint);
