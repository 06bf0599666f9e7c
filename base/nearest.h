/* nearest.h: "did you mean": the name that was probably meant by one that does not exist. */
#ifndef TANDEM_BASE_NEAREST_H
#define TANDEM_BASE_NEAREST_H

#include <stddef.h>

/* Names longer than this are not compared. */
enum { TANDEM_NEAREST_LENGTH = 64 };

/* tandem_nearest: the candidate with the fewest insertions, deletions, substitutions and swaps of neighbours
 * between it and `name`, ASCII case aside; the first of several. The result is one of `candidates`.
 * NULL where none is near: more than max(2, half the length of `name`) edits, or as many as replacing every
 * letter takes; also where `name` is NULL, empty or longer than TANDEM_NEAREST_LENGTH. NULL candidates are
 * passed over.
 * Cost: O(n × 64²), no allocation.
 * Source: optimal string alignment distance (Damerau 1964; Wagner and Fischer 1974). */
const char *tandem_nearest(const char *name, const char *const *candidates, size_t n);

#endif
