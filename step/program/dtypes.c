/* dtypes.c: follows a change of precisions through the graph: first the dtypes that operators write, then the
 * sets of dtypes in which each tensor and each gradient is read. Marks what that invalidates (DIRTY_…). */
#include <limits.h>

#include "step/program/dtypes.h"

/* In which a tensor's gradient is first written. */
static tandem_dtype gradient_dtype_of(const tandem_step *step, int t)
{
    return step->index->has_f32_contribution[t] ? TANDEM_F32 : step->output_dtype[t];
}

static unsigned saved_output_dtypes(const tandem_step *step, int t)
{
    const int is_saved = step->index->dgrad[t] >= 0 && (op_row_of(step, t)->saves & TANDEM_SAVES_OUTPUT);
    return is_saved ? dtype_bit(dgrad_dtype_of(step, t)) : 0;
}

static unsigned find_reader_dtypes(const tandem_step *step, int t)
{
    const struct tandem_step_index *index = step->index;
    unsigned dtypes = 0;
    if (step->graph->op[t].dtype != TANDEM_F32 || is_fused_into_later(step, t)) return 0;
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++)
        dtypes |= dtype_bit(forward_dtype_of(step, index->reader[k]));
    return index->is_recomputed[t] ? dtypes : dtypes | saved_output_dtypes(step, t);
}

static unsigned find_recompute_dtypes(const tandem_step *step, int t)
{
    const struct tandem_step_index *index = step->index;
    if (!index->is_recomputed[t] || is_fused_into_later(step, t)) return 0;
    unsigned dtypes = saved_output_dtypes(step, t);
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++) {
        const int i = index->reader[k];
        if (is_recomputed_now(step, i)) dtypes |= dtype_bit(forward_dtype_of(step, i));
        if (op_saves_tensor(step, i, t) && (index->wgrad[i] >= 0 || index->dgrad[i] >= 0))
            dtypes |= dtype_bit(saved_dtype_of(step, i));
    }
    return dtypes;
}

/* Dtypes in which operator i reads the gradient of its output. */
static unsigned gradient_dtypes_read_by(const tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    const struct tandem_step_index *index = step->index;
    const tandem_op_row *row = op_row_of(step, i);
    unsigned dtypes = 0;
    if (graph->op[i].kind == TANDEM_OP_RESHAPE || is_fused_into_later(step, i)) return 0;
    if (index->dgrad[i] >= 0 && i != graph->loss) dtypes |= dtype_bit(dgrad_dtype_of(step, i));
    if (index->wgrad[i] >= 0) dtypes |= dtype_bit(wgrad_dtype_of(step, i));
    for (int slot = 0; slot < row->n_input && row->dgrad == TANDEM_GRAD_IDENTITY; slot++) {
        const int t = input_tensor_of(step, i, slot); /* a sum reads it in its own dtype */
        if (index->edge_position[i * TANDEM_MAX_INPUT + slot] >= 0 && index->n_contribution[t] > 1)
            dtypes |= dtype_bit(index->gradient_dtype[t]);
    }
    return dtypes;
}

static unsigned find_gradient_reader_dtypes(const tandem_step *step, int root)
{
    const struct tandem_step_index *index = step->index;
    unsigned dtypes = 0;
    for (int k = index->gradient_group_start[root]; k < index->gradient_group_start[root + 1]; k++)
        dtypes |= gradient_dtypes_read_by(step, index->gradient_group[k]);
    return dtypes;
}

/* --- Following a change --------------------------------------------------------------------------------- */

static void mark_dirty(struct tandem_step_index *index, int i, int what)
{
    if (!index->dirty[i]) index->dirty_op[index->n_dirty++] = i;
    index->dirty[i] |= (unsigned char)what;
}

static void mark_inputs_dirty(tandem_step *step, int i, int what)
{
    const int n_input = op_row_of(step, i)->n_input;
    for (int slot = 0; slot < n_input; slot++) mark_dirty(step->index, input_tensor_of(step, i, slot), what);
}

/* Its operators may be fused now, or no longer. */
static void mark_attention_dirty(tandem_step *step, int mix)
{
    struct tandem_step_index *index = step->index;
    for (int i = attention_scores_of(step->graph, mix); i <= mix; i++) {
        mark_dirty(index, i, DIRTY_ALL & ~DIRTY_SUMS);
        mark_dirty(index, index->gradient_root[i], DIRTY_GRADIENT_READER_DTYPES);
        mark_inputs_dirty(step, i, DIRTY_READER_DTYPES);
    }
}

static void precision_changed(tandem_step *step, int i)
{
    step->index->resolved_precision[i] = step->precision[i];
    if (attention_of(step, i) >= 0) mark_attention_dirty(step, attention_of(step, i));
    mark_dirty(step->index, i, DIRTY_FORWARD | DIRTY_BACKWARD);
    mark_dirty(step->index, step->index->gradient_root[i], DIRTY_GRADIENT_READER_DTYPES);
    mark_inputs_dirty(step, i, DIRTY_READER_DTYPES);
}

static void gradient_dtype_changed(tandem_step *step, int t)
{
    struct tandem_step_index *index = step->index;
    mark_dirty(index, t, DIRTY_GRADIENT_CASTS | DIRTY_GRADIENT_READER_DTYPES);
    for (int k = index->gradient_group_start[t]; k < index->gradient_group_start[t + 1]; k++) {
        const int i = index->gradient_group[k]; /* a bias sums it in any dtype */
        if (op_row_of(step, i)->op_class == TANDEM_DEPENDENT && index->wgrad[i] >= 0)
            mark_dirty(index, i, DIRTY_BACKWARD);
    }
    for (int k = index->reader_start[t]; k < index->reader_start[t + 1]; k++) {
        const int i = index->reader[k];
        mark_dirty(index, i, DIRTY_BACKWARD | DIRTY_SUMS | DIRTY_READER_DTYPES);
        if (attention_of(step, i) >= 0) mark_dirty(index, attention_of(step, i), DIRTY_BACKWARD);
        mark_dirty(index, index->gradient_root[i], DIRTY_GRADIENT_READER_DTYPES);
    }
}

static void output_dtype_changed(tandem_step *step, int i)
{
    const tandem_graph *graph = step->graph;
    struct tandem_step_index *index = step->index;
    mark_dirty(index, i, DIRTY_FORWARD | DIRTY_CASTS);
    if (op_row_of(step, i)->op_class == TANDEM_DEPENDENT) mark_inputs_dirty(step, i, DIRTY_READER_DTYPES);
    if (computes_both_input_grads(op_row_of(step, i))) { /* which compute in the output dtype */
        mark_dirty(index, i, DIRTY_BACKWARD | DIRTY_READER_DTYPES);
        mark_dirty(index, index->gradient_root[i], DIRTY_GRADIENT_READER_DTYPES);
    }
    for (int k = graph->consumer_start[i]; k < graph->consumer_start[i + 1]; k++) {
        const int reader = graph->consumer[k];
        if (op_row_of(step, reader)->op_class == TANDEM_DEPENDENT) mark_op_pending(index, reader);
        if (!is_narrow_loss(step, reader)) continue; /* its own output stays as it is */
        mark_dirty(index, reader, DIRTY_FORWARD);
        mark_inputs_dirty(step, reader, DIRTY_READER_DTYPES);
    }
    const tandem_dtype dtype = gradient_dtype_of(step, i);
    if (dtype == index->gradient_dtype[i]) return;
    index->gradient_dtype[i] = dtype;
    gradient_dtype_changed(step, i);
}

/* In ascending order: the dtypes on which an operator's depends are final when its turn comes. */
void step_update_dtypes(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int w = index->first_pending; w <= index->last_pending; w++)
        while (index->pending[w]) {
            const int i = w * WORD_BITS + __builtin_ctzll(index->pending[w]);
            index->pending[w] &= index->pending[w] - 1;
            if (step->precision[i] != index->resolved_precision[i]) precision_changed(step, i);
            const tandem_dtype dtype = output_dtype_of(step, i);
            if (dtype == step->output_dtype[i]) continue;
            step->output_dtype[i] = dtype;
            output_dtype_changed(step, i);
        }
    index->first_pending = INT_MAX;
    index->last_pending = -1;
}

/* Of operator i, whose forward task reads other values; casts of its result may hold on to these. */
static void mark_forward_dirty(struct tandem_step_index *index, int i)
{
    mark_dirty(index, i, DIRTY_FORWARD | (index->writes_codes[i] ? DIRTY_CASTS : 0));
}

/* Tasks that may be merged with operator i's hold on to what these read. */
static void mark_merged_dirty(struct tandem_step_index *index, int i)
{
    if (!index->merged_before) return;
    if (index->dirty[i] & DIRTY_FORWARD)
        for (int j = i; j >= 0; j = index->merged_after[j]) mark_forward_dirty(index, j);
    if (!(index->dirty[i] & DIRTY_BACKWARD)) return;
    for (int transpose = i; transpose >= 0; transpose = index->sums_after[transpose]) {
        const int bias = index->merged_before[transpose];
        if (bias < 0 || index->summed_transpose[bias] != transpose) return;
        mark_dirty(index, bias, DIRTY_BACKWARD);
        if (transpose != i) mark_dirty(index, transpose, DIRTY_BACKWARD);
    }
}

void step_update_reader_dtypes(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    for (int k = 0; k < index->n_dirty; k++) {
        const int i = index->dirty_op[k];
        mark_merged_dirty(index, i);
        if (index->dirty[i] & DIRTY_READER_DTYPES) {
            const unsigned char dtypes = (unsigned char)find_reader_dtypes(step, i),
                                recompute = (unsigned char)find_recompute_dtypes(step, i);
            if (dtypes != index->reader_dtypes[i] || recompute != index->recompute_dtypes[i])
                index->dirty[i] |= DIRTY_CASTS;
            index->reader_dtypes[i] = dtypes;
            index->recompute_dtypes[i] = recompute;
        }
        if (index->dirty[i] & DIRTY_GRADIENT_READER_DTYPES) {
            const unsigned char dtypes = (unsigned char)find_gradient_reader_dtypes(step, i);
            if (dtypes != index->gradient_reader_dtypes[i]) index->dirty[i] |= DIRTY_GRADIENT_CASTS;
            index->gradient_reader_dtypes[i] = dtypes;
        }
    }
}

void step_init_dtypes(tandem_step *step)
{
    struct tandem_step_index *index = step->index;
    index->first_pending = INT_MAX;
    index->last_pending = -1;
    for (int i = 0; i < step->graph->n_op; i++) {
        step->output_dtype[i] = output_dtype_of(step, i);
        index->gradient_dtype[i] = gradient_dtype_of(step, i);
        index->resolved_precision[i] = step->precision[i];
        mark_dirty(index, i, DIRTY_ALL);
    }
}
