#include "replayer/spans.h"

#include <stdlib.h>

enum { FIRST_ROOM = 1024 };

static int by_begin(const void *left, const void *right)
{
    const tandem_span *const a = left, *const b = right;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

/* What is sorted becomes apart: neighbours nearer than `gap_ns` are joined. */
static void join(tandem_spans *spans, int64_t gap_ns)
{
    size_t n = 0;
    for (size_t k = 0; k < spans->n; k++) {
        const tandem_span one = spans->span[k];
        tandem_span *const last = n ? &spans->span[n - 1] : NULL;
        if (last && one.begin_ns - last->end_ns <= gap_ns) {
            if (one.begin_ns > last->end_ns) spans->lost_ns += one.begin_ns - last->end_ns;
            if (one.end_ns > last->end_ns) last->end_ns = one.end_ns;
        } else {
            spans->span[n++] = one;
        }
    }
    spans->n = spans->n_united = n;
}

void tandem_spans_unite(tandem_spans *spans)
{
    if (spans->n_united == spans->n) return;
    int is_sorted = 1;
    for (size_t k = spans->n_united ? spans->n_united : 1; k < spans->n && is_sorted; k++)
        is_sorted = spans->span[k - 1].begin_ns <= spans->span[k].begin_ns;
    if (!is_sorted) qsort(spans->span, spans->n, sizeof *spans->span, by_begin);
    join(spans, 0);
}

/* Halves what is apart, by a gap that doubles until it is wide enough. */
static void coarsen(tandem_spans *spans)
{
    const size_t half = spans->n / 2;
    for (int64_t gap_ns = 1; spans->n > half && gap_ns > 0; gap_ns *= 2) join(spans, gap_ns);
}

static tandem_status make_room(tandem_spans *spans, tandem_error *error)
{
    const size_t most = spans->most ? spans->most : TANDEM_SPANS_MOST;
    if (spans->room >= FIRST_ROOM || spans->room >= most) {
        tandem_spans_unite(spans);
        if (spans->n <= spans->room / 2) return TANDEM_OK;
        if (spans->room >= most) {
            coarsen(spans);
            return TANDEM_OK;
        }
    }
    size_t room = spans->room ? 2 * spans->room : FIRST_ROOM;
    if (room > most) room = most;
    tandem_span *const more = realloc(spans->span, room * sizeof *more);
    if (!more)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for %zu intervals of a trace", room);
    spans->span = more;
    spans->room = room;
    return TANDEM_OK;
}

tandem_status tandem_spans_add(tandem_spans *spans, int64_t begin_ns, int64_t end_ns, tandem_error *error)
{
    if (begin_ns >= end_ns) return TANDEM_OK;
    if (spans->n == spans->room) {
        const tandem_status status = make_room(spans, error);
        if (status != TANDEM_OK) return status;
    }
    if (spans->n && spans->n_united == spans->n && begin_ns >= spans->span[spans->n - 1].begin_ns &&
        begin_ns <= spans->span[spans->n - 1].end_ns) { /* usually they come in order */
        if (end_ns > spans->span[spans->n - 1].end_ns) spans->span[spans->n - 1].end_ns = end_ns;
        return TANDEM_OK;
    }
    if (spans->n_united == spans->n && (!spans->n || begin_ns > spans->span[spans->n - 1].end_ns))
        spans->n_united++;
    spans->span[spans->n++] = (tandem_span){begin_ns, end_ns};
    return TANDEM_OK;
}

/* The first that ends behind `from_ns`. */
static size_t first_behind(const tandem_spans *spans, int64_t from_ns)
{
    size_t low = 0, high = spans->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (spans->span[middle].end_ns > from_ns)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int64_t overlap(int64_t begin_ns, int64_t end_ns, int64_t from_ns, int64_t to_ns)
{
    if (begin_ns < from_ns) begin_ns = from_ns;
    if (end_ns > to_ns) end_ns = to_ns;
    return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

int64_t tandem_spans_within(const tandem_spans *spans, int64_t from_ns, int64_t to_ns)
{
    int64_t sum_ns = 0;
    for (size_t k = first_behind(spans, from_ns); k < spans->n && spans->span[k].begin_ns < to_ns; k++)
        sum_ns += overlap(spans->span[k].begin_ns, spans->span[k].end_ns, from_ns, to_ns);
    return sum_ns;
}

int64_t tandem_spans_common(const tandem_spans *a, const tandem_spans *b, int64_t from_ns, int64_t to_ns)
{
    int64_t sum_ns = 0;
    size_t i = first_behind(a, from_ns), k = first_behind(b, from_ns);
    while (i < a->n && k < b->n && a->span[i].begin_ns < to_ns && b->span[k].begin_ns < to_ns) {
        const int64_t begin_ns = a->span[i].begin_ns > from_ns ? a->span[i].begin_ns : from_ns;
        const int64_t end_ns = a->span[i].end_ns < to_ns ? a->span[i].end_ns : to_ns;
        sum_ns += overlap(b->span[k].begin_ns, b->span[k].end_ns, begin_ns, end_ns);
        if (a->span[i].end_ns < b->span[k].end_ns)
            i++;
        else
            k++;
    }
    return sum_ns;
}

void tandem_spans_free(tandem_spans *spans)
{
    free(spans->span);
    *spans = (tandem_spans){.most = spans->most};
}
