/* cost.c: summarizes repetitions, and prints the keys of costs. */
#include "base/sort.h"
#include "profiles/store/cost_key.h"
#include "tandem/advanced/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Nearest rank: the smallest value that is not below `percent` percent of all. */
static int64_t sorted_percentile_ns(const int64_t *sorted, int64_t n, int64_t percent)
{
    return sorted[(n * percent + 99) / 100 - 1];
}

/* The k-th smallest and the k-th largest, where k repetitions or fewer of n fall on one side of the median in
 * 2.5 of 100 cases, by the normal approximation of the binomial distribution; of few, the least and the
 * largest. */
static void set_median_interval(tandem_cost *cost, const int64_t *sorted, int64_t n)
{
    int64_t below = (int64_t)floor((double)n / 2 - 0.98 * sqrt((double)n)) - 1;
    if (below < 0) below = 0;
    cost->low_ns = sorted[below];
    cost->high_ns = sorted[n - 1 - below];
}

void tandem_cost_from_samples(tandem_cost *cost, int64_t *sample_ns, int64_t n, uint64_t workspace_bytes)
{
    *cost = (tandem_cost){.workspace_bytes = workspace_bytes};
    if (n < 1) return;
    tandem_sort_int64(sample_ns, (size_t)n);
    const int64_t median = tandem_sorted_median(sample_ns, (size_t)n);
    const int64_t limit = median > INT64_MAX / 3 ? INT64_MAX : 3 * median;
    int64_t kept = n;
    while (kept > 1 && sample_ns[kept - 1] > limit) kept--;
    cost->n = kept;
    cost->n_outlier = n - kept;
    for (int64_t i = 0; i < kept; i++) {
        const double ns = (double)sample_ns[i];
        cost->sum_ns += ns;
        cost->sum_squares_ns2 += ns * ns;
    }
    cost->median_ns = tandem_sorted_median(sample_ns, (size_t)kept);
    cost->p10_ns = sorted_percentile_ns(sample_ns, kept, 10);
    cost->p90_ns = sorted_percentile_ns(sample_ns, kept, 90);
    set_median_interval(cost, sample_ns, kept);
}

int64_t tandem_cost_mean_ns(const tandem_cost *cost)
{
    return cost->n > 0 ? llround(cost->sum_ns / (double)cost->n) : 0;
}

/* --- Keys: joined by hand, since the replayer asks for one a task and printf is ten times slower -------- */
typedef struct cost_key_text {
    char *text;
    size_t used, size;
} cost_key_text;

static void append_key_text(cost_key_text *j, const char *text)
{
    for (; *text && j->used + 1 < j->size; text++) j->text[j->used++] = *text;
}

static void append_key_number(cost_key_text *j, int64_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0) digits[--at] = '-';
    append_key_text(j, digits + at);
}

static void print_op_key(char *text, size_t size, const char *signature, const char *precision,
                         const char *pass, const char *from, const char *to)
{
    cost_key_text j = {text, 0, size};
    append_key_text(&j, signature);
    append_key_text(&j, " | ");
    append_key_text(&j, precision);
    append_key_text(&j, " | ");
    append_key_text(&j, pass);
    append_key_text(&j, " | ");
    append_key_text(&j, from);
    append_key_text(&j, ">");
    append_key_text(&j, to);
    if (size) text[j.used] = '\0';
}

void tandem_cost_key_print_cast(char *text, size_t size, int64_t elements, const char *from, const char *to,
                                tandem_range_source range, int transposed_copy)
{
    cost_key_text j = {text, 0, size};
    append_key_text(&j, "cast n=");
    append_key_number(&j, elements);
    append_key_text(&j, " | ");
    append_key_text(&j, from);
    append_key_text(&j, ">");
    append_key_text(&j, to);
    append_key_text(&j, range == TANDEM_RANGE_KNOWN     ? " | known range"
                        : range == TANDEM_RANGE_DELAYED ? " | delayed"
                                                        : "");
    if (transposed_copy) append_key_text(&j, " | transposed");
    if (size) text[j.used] = '\0';
}

void tandem_cost_key_print(char *text, size_t size, const tandem_cost_key *key)
{
    const char *const from = tandem_dtype_name(key->from), *const to = tandem_dtype_name(key->to);
    if (size) text[0] = '\0';
    switch (key->kind) {
    case TANDEM_COST_OP:
        print_op_key(text, size, key->signature, key->precision, tandem_pass_name(key->pass), from, to);
        return;
    case TANDEM_COST_CAST:
        tandem_cost_key_print_cast(text, size, key->elements, from, to, key->range_source,
                                   key->transposed_copy);
        return;
    case TANDEM_COST_COLLECTIVE: {
        cost_key_text j = {text, 0, size};
        append_key_text(&j, "all-reduce n=");
        append_key_number(&j, key->elements);
        append_key_text(&j, " | ");
        append_key_text(&j, from);
        if (size) text[j.used] = '\0';
        return;
    }
    }
}
