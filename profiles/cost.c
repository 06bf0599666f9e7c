/* cost.c: summaries of repetitions, and the text under which they are filed. */
#include "profiles/cost_key.h"
#include "tandem/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Of sorted numbers; of an even number of them the mean of the two in the middle, rounded down. */
static int64_t median_of(const int64_t *sorted, int64_t n)
{
    const int64_t low = sorted[(n - 1) / 2], high = sorted[n / 2];
    return low + (high - low) / 2;
}

/* Nearest rank: the smallest that is not below `percent` percent of all. */
static int64_t percentile_of(const int64_t *sorted, int64_t n, int64_t percent)
{
    return sorted[(n * percent + 99) / 100 - 1];
}

void tandem_cost_from_samples(tandem_cost *cost, int64_t *sample_ns, int64_t n, uint64_t workspace_bytes)
{
    *cost = (tandem_cost){.workspace_bytes = workspace_bytes};
    if (n < 1) return;
    qsort(sample_ns, (size_t)n, sizeof *sample_ns, ascending);
    const int64_t median = median_of(sample_ns, n);
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
    cost->median_ns = median_of(sample_ns, kept);
    cost->p10_ns = percentile_of(sample_ns, kept, 10);
    cost->p90_ns = percentile_of(sample_ns, kept, 90);
}

int64_t tandem_cost_mean_ns(const tandem_cost *cost)
{
    return cost->n > 0 ? llround(cost->sum_ns / (double)cost->n) : 0;
}

/* --- Keys: joined by hand, since the replayer asks for one a task and printf is ten times slower -------- */
typedef struct joined {
    char *text;
    size_t used, size;
} joined;

static void add(joined *j, const char *text)
{
    for (; *text && j->used + 1 < j->size; text++) j->text[j->used++] = *text;
}

static void add_number(joined *j, int64_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0) digits[--at] = '-';
    add(j, digits + at);
}

static void print_op(char *text, size_t size, const char *signature, const char *precision, const char *pass,
                     const char *from, const char *to)
{
    joined j = {text, 0, size};
    add(&j, signature);
    add(&j, " | ");
    add(&j, precision);
    add(&j, " | ");
    add(&j, pass);
    add(&j, " | ");
    add(&j, from);
    add(&j, ">");
    add(&j, to);
    if (size) text[j.used] = '\0';
}

void tandem_cost_key_print_cast(char *text, size_t size, int64_t elements, const char *from, const char *to,
                                tandem_range range, int columnwise)
{
    joined j = {text, 0, size};
    add(&j, "cast n=");
    add_number(&j, elements);
    add(&j, " | ");
    add(&j, from);
    add(&j, ">");
    add(&j, to);
    add(&j, range == TANDEM_RANGE_KNOWN     ? " | known range"
            : range == TANDEM_RANGE_DELAYED ? " | delayed"
                                            : "");
    if (columnwise) add(&j, " | columns");
    if (size) text[j.used] = '\0';
}

void tandem_cost_key_print(char *text, size_t size, const tandem_cost_key *key)
{
    const char *const from = tandem_dtype_name(key->from), *const to = tandem_dtype_name(key->to);
    if (size) text[0] = '\0';
    switch (key->kind) {
    case TANDEM_COST_OP:
        print_op(text, size, key->signature, key->precision, tandem_pass_name(key->pass), from, to);
        return;
    case TANDEM_COST_CAST:
        tandem_cost_key_print_cast(text, size, key->elements, from, to, key->range, key->columnwise);
        return;
    case TANDEM_COST_COLLECTIVE: {
        joined j = {text, 0, size};
        add(&j, "all-reduce n=");
        add_number(&j, key->elements);
        add(&j, " | ");
        add(&j, from);
        if (size) text[j.used] = '\0';
        return;
    }
    }
}
