/* advise_interval.h: whether an answer of `tandem advise` holds across the intervals of predicted times. */
#pragma once

#include "cli/candidate_cluster.h"

/* A predicted device, and the factor on its times with which the answer is another one. */
typedef struct advise_shift {
    char device[TANDEM_DEVICE_NAME];
    double half; /* of its 80 % interval, over its times */
    double factor;
} advise_shift;

enum { ADVISE_MAX_SHIFT = 6 }; /* unlike devices; those that come later keep their times */
typedef struct advise_interval {
    int n; /* predicted devices; 0: no answer rests on an interval */
    advise_shift shift[ADVISE_MAX_SHIFT];
    int holds;
    int best; /* the best case with these factors; else −1 */
} advise_interval;

/* Compares the rates of the cases with every predicted device's times at either end of its interval, or in
 * its middle. The answer is whether candidate[current] is best. If it does not hold: the factors of the
 * fewest devices with which it does not. Plans and splits stay; where a class is no longer the busiest, the
 * step follows the one that is. Cost: 3^devices times the cases. */
void advise_interval_find(advise_interval *interval, const candidate_cluster *candidate, int n, int current,
                          int best);
/* Appends a sentence to text; nothing without predicted devices. */
void advise_interval_print(char *text, size_t size, const advise_interval *interval,
                           const candidate_cluster *candidate);
/* {"holds", "best", "devices": [{"device", "half", "factor"}]}, or null. */
json_t *advise_interval_json(const advise_interval *interval);
