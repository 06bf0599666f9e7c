/* recompute.c: cuts a graph into recompute segments, and decides which operators are recomputed.
 *
 * A cut point lies between two operators where later operators read a single tensor from before it, besides
 * the samples. All of a segment between two cut points can be recomputed from that tensor. The last segment
 * is not recomputed, because its backward pass comes next. Source: Chen, Xu, Zhang, Guestrin, "Training deep
 * nets with sublinear memory cost", arXiv:1604.06174, 2016. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "step/program/step_index.h"

/* Between operator p and the next one. */
typedef struct gap {
    int n_open;             /* tensors from before it that are read after it */
    int64_t open_id_sum;    /* sum of their ids */
    uint64_t kept_elements; /* that the operators up to p write */
} gap;

static int last_reading_op(const struct tandem_step_index *index, int t)
{
    return index->reader_start[t] < index->reader_start[t + 1] ? index->reader[index->reader_start[t + 1] - 1]
                                                               : t;
}

/* Views share the memory of another tensor; samples come from outside. */
static int is_stored_tensor(const tandem_step *step, int t)
{
    return op_row_of(step, t)->op_class != TANDEM_SOURCE && step->graph->view[t] == t;
}

static void measure_gaps(gap *at, const tandem_step *step)
{
    const tandem_graph *graph = step->graph;
    for (int t = 0; t < graph->n_op; t++) {
        if (!is_stored_tensor(step, t)) continue;
        const int end = last_reading_op(step->index, t);
        at[t].n_open++;
        at[t].open_id_sum += t;
        at[end].n_open--;
        at[end].open_id_sum -= t;
        at[t].kept_elements = (uint64_t)tandem_shape_elements(&graph->op[t].shape);
    }
    for (int p = 1; p < graph->n_op; p++) {
        at[p].n_open += at[p - 1].n_open;
        at[p].open_id_sum += at[p - 1].open_id_sum;
        at[p].kept_elements += at[p - 1].kept_elements;
    }
}

int tandem_step_max_segments(const tandem_step *step)
{
    int n = 1;
    for (int p = 0; p < step->graph->n_op - 1; p++) {
        int n_open = 0;
        for (int t = 0; t <= p; t++)
            n_open += is_stored_tensor(step, t) && last_reading_op(step->index, t) > p;
        n += n_open == 1;
    }
    return n;
}

static int is_cut_point(const gap *at) { return at->n_open == 1; }

static int count_recompute_segments(const tandem_step *step, const gap *at)
{
    int n_cut = 0;
    const int n_op = step->graph->n_op;
    if (step->options.n_recompute_segment >= 0)
        return step->options.n_recompute_segment < n_op ? step->options.n_recompute_segment : n_op;
    for (int p = 0; p < n_op; p++) n_cut += is_cut_point(&at[p]);
    return (int)lround(sqrt(n_cut + 1));
}

/* The cut point nearest to the end of part s of n equal parts; −1: there is none. All sizes are proportional
 * to the batch, so the choice does not depend on it. */
static int nearest_cut(const gap *at, int n_op, int s, int n)
{
    const uint64_t wanted = at[n_op - 2].kept_elements * (uint64_t)s; /* without the loss */
    int best = -1;
    uint64_t min_distance = UINT64_MAX;
    for (int p = 0; p < n_op - 1; p++) {
        const uint64_t kept = at[p].kept_elements * (uint64_t)n,
                       distance = kept > wanted ? kept - wanted : wanted - kept;
        if (!is_cut_point(&at[p]) || distance >= min_distance) continue;
        best = p;
        min_distance = distance;
    }
    return best;
}

/* RECOMPUTED_…: whether the backward pass, or a recomputed operator, reads a result of operator i; else 0. */
static unsigned char is_output_needed(const tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const struct tandem_step_index *index = step->index;
    if (has_dgrad(graph, i) && op_row_of(step, i)->saves & (TANDEM_SAVES_OUTPUT | TANDEM_SAVES_AUX))
        return RECOMPUTED_ALWAYS;
    for (int k = index->reader_start[i]; k < index->reader_start[i + 1]; k++) {
        const int reader = index->reader[k];
        const int reads_input =
            op_saves_tensor(step, reader, i) && (has_wgrad(graph, reader) || has_dgrad(graph, reader));
        if (reads_input || index->is_recomputed[reader]) return RECOMPUTED_ALWAYS;
    }
    return index->attention && index->attention[i] == i ? RECOMPUTED_WHERE_FUSED : 0;
}

/* Marks those of operators first … last to recompute. stored_tensor: the one that is kept. */
static void mark_recompute_segment(tandem_step *step, int first, int last, int stored_tensor)
{
    struct tandem_step_index *index = step->index;
    index->recompute_segment_begin[last] = first;
    for (int i = last; i >= first; i--)
        if (i != stored_tensor && is_stored_tensor(step, i))
            index->is_recomputed[i] = is_output_needed(step, i);
}

int step_cut_segments(tandem_step *step)
{
    const int n_op = step->graph->n_op;
    int first = 0;
    step->n_recompute_segment = 1;
    if (step->options.n_recompute_segment == 0 || step->options.n_recompute_segment == 1 || n_op < 2)
        return 1;
    gap *at = calloc((size_t)n_op, sizeof *at);
    if (!at) return 0;
    measure_gaps(at, step);
    const int wanted = count_recompute_segments(step, at);
    for (int s = 1; s < wanted; s++) {
        const int last = nearest_cut(at, n_op, s, wanted);
        if (last < first) continue; /* the previous cut point is the nearest one, too */
        mark_recompute_segment(step, first, last, (int)at[last].open_id_sum);
        first = last + 1;
        step->n_recompute_segment++;
    }
    free(at);
    return 1;
}

/* --- As a word ------------------------------------------------------------------------------------------ */

tandem_status tandem_recompute_parse(int *n_recompute_segment, const char *word, tandem_error *error)
{
    char *end = NULL;
    errno = 0;
    const long n = strtol(word, &end, 10);
    const int is_number = end != word && !*end && !errno && n >= 1 && n <= INT_MAX && word[0] != ' ';
    if (strcmp(word, "none") == 0)
        *n_recompute_segment = 1;
    else if (strcmp(word, "sqrt") == 0)
        *n_recompute_segment = TANDEM_RECOMPUTE_SQRT;
    else if (is_number)
        *n_recompute_segment = (int)n;
    else
        return tandem_error_set(
            error, TANDEM_USAGE,
            "activations are recomputed by segments: none, sqrt or a number of them from 1 on, got '%s'",
            word);
    return TANDEM_OK;
}

char *tandem_recompute_print(char text[TANDEM_RECOMPUTE_TEXT], int n_recompute_segment)
{
    const char *word = n_recompute_segment == TANDEM_RECOMPUTE_SQRT ? "sqrt"
                       : n_recompute_segment <= 1                   ? "none"
                                                                    : NULL;
    if (word)
        (void)snprintf(text, TANDEM_RECOMPUTE_TEXT, "%s", word);
    else
        (void)snprintf(text, TANDEM_RECOMPUTE_TEXT, "%d", n_recompute_segment);
    return text;
}
