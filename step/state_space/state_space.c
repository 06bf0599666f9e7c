/* state_space.c: the tasks that one choice of precision causes, operator by operator in graph order, without
 * knowing the later choices.
 *
 * resolve.c derives the same tasks for one complete plan. The shared rules are in dtypes.h;
 * tests/property/test_plan_dag_laws.c compares the two. */
#include "tandem/advanced/state_space.h"

#include <stdlib.h>
#include <string.h>

#include "step/program/dtypes.h"
#include "step/program/values.h"

enum bit_kind {
    BIT_OUTPUT_DTYPE, /* one per output dtype except f32 */
    BIT_CAST = BIT_OUTPUT_DTYPE + N_OUTPUT_DTYPE - 1,
    BIT_SAVED = BIT_CAST + TANDEM_N_STORAGE_DTYPE,
    BIT_GRADIENT_CAST = BIT_SAVED + TANDEM_N_STORAGE_DTYPE,
    BIT_RECOMPUTED_CAST = BIT_GRADIENT_CAST + TANDEM_N_STORAGE_DTYPE,
    /* of the scores of an attention, one per precision that may fuse it: they have it, and what they add is
     * counted where that of the last product is known */
    BIT_WAITS = BIT_RECOMPUTED_CAST + TANDEM_N_STORAGE_DTYPE,
    N_BIT_KIND = BIT_WAITS + N_ATTENTION_PRECISION
};
/* the last one for operators of an attention, which its last stage counts once more */
enum { MAX_TENSOR_OF_OP = 2 * (2 + TANDEM_MAX_INPUT) + 1 };

typedef struct state_bit {
    int tensor, bit_kind;
    int first_stage, last_stage; /* that can set it first; that reads it last */
} state_bit;

typedef struct slot_bit {
    int slot, tensor, bit_kind;
} slot_bit;

typedef struct stage {
    int first_op, end_op;
    int first_tensor, end_tensor; /* that its operators read or write */
    /* their bits: slot_bit[first_in … first_out − 1] of the state before the stage, slot_bit[first_out … end
     * − 1] of the one after it */
    int first_in, first_out, end;
} stage;

struct tandem_state_space {
    tandem_step step; /* a copy, with its own arrays for what follows from precisions */
    struct tandem_step_index index;
    tandem_arena arena; /* holds the arrays below */
    int is_out_of_memory;
    int n_layer, n_word;
    stage *stage;                    /* [n_layer + 1] */
    int *tensor;                     /* of all stages */
    slot_bit *slot_bit;              /* of all stages */
    uint64_t *read_mask, *pass_mask; /* [(n_layer + 1) × n_word] */
    /* the same in all plans */
    unsigned char *output_dtypes;   /* [n_op] bit d: can be its output dtype */
    unsigned char *gradient_is_f32; /* [n_op] a fixed operator contributes */
    /* [n_op], [n_task]: lists of the tasks that depend only on the dtype of this tensor's
     * gradient: sums of it, the wgrad of biases; −1 ends them */
    int *first_gradient_task, *next_gradient_task;
    /* of the current plan */
    uint64_t *state_bits;    /* [n_op] bit k: the state bit of kind k */
    tandem_stage_cost *cost; /* NULL while exploring: nothing is counted */
    /* while exploring */
    int current_stage;
    int *stage_of;             /* [n_op] */
    int *first_use, *last_use; /* [n_op × N_BIT_KIND] stages; −1 = never */
};

/* --- Counting ------------------------------------------------------------------------------------------- */

static void count_task_variant(tandem_state_space *space, int task, int variant)
{
    space->cost->task_variant[space->cost->n_task_variant++] = (tandem_task_variant){task, variant};
}

static void count_cast(tandem_state_space *space, int task, tandem_dtype from, tandem_dtype to)
{
    count_task_variant(space, task, cast_variant(from, to));
}

static void count_bytes(tandem_state_space *space, uint64_t elements, tandem_dtype dtype)
{
    space->cost->bytes += padded_bytes(tandem_dtype_size(dtype, elements));
}

/* Whether plans differ in a tensor's output dtype. */
static int output_dtype_varies(const tandem_state_space *space, int tensor)
{
    return (space->output_dtypes[tensor] & (space->output_dtypes[tensor] - 1)) != 0;
}

static int gradient_dtype_varies(const tandem_state_space *space, int tensor)
{
    return !space->gradient_is_f32[tensor] && output_dtype_varies(space, tensor);
}

static void set_output_dtype(tandem_state_space *space, int tensor, tandem_dtype type)
{
    space->step.output_dtype[tensor] = type;
    space->index.gradient_dtype[tensor] = space->gradient_is_f32[tensor] ? TANDEM_F32 : type;
}

/* --- Bits ----------------------------------------------------------------------------------------------- */

static void note_bit_use(tandem_state_space *space, int tensor, int bit_kind, int s)
{
    const int k = tensor * N_BIT_KIND + bit_kind;
    if (space->first_use[k] < 0) space->first_use[k] = space->current_stage;
    if (space->last_use[k] < s) space->last_use[k] = s;
}

/* Sets a bit; counts its cost where it was not set before. */
static void set_state_bit(tandem_state_space *space, int tensor, int first_kind, tandem_dtype type)
{
    const int bit_kind = first_kind + (int)type;
    const uint64_t bit = UINT64_C(1) << bit_kind;
    if (!space->cost) {
        const int waits = first_kind == BIT_GRADIENT_CAST && gradient_dtype_varies(space, tensor);
        note_bit_use(space, tensor, bit_kind, waits ? space->stage_of[tensor] : space->current_stage);
        return;
    }
    if (space->state_bits[tensor] & bit) return;
    space->state_bits[tensor] |= bit;
    const struct tandem_step_index *index = &space->index;
    const tandem_dtype output = space->step.output_dtype[tensor];
    if (first_kind == BIT_CAST)
        count_cast(space, index->cast[tensor] + (int)type, output, type);
    else if (first_kind == BIT_RECOMPUTED_CAST)
        count_cast(space, index->recomputed_cast[tensor] + (int)type, output, type);
    else if (first_kind == BIT_SAVED)
        count_bytes(space, (uint64_t)step_stored_elements(&space->step, tensor), type);
    else if (!gradient_dtype_varies(space, tensor))
        count_cast(space, index->gradient_cast[tensor] + (int)type, index->gradient_dtype[tensor], type);
}

static int dtype_bit_kind(tandem_dtype type) { return BIT_OUTPUT_DTYPE + output_dtype_index(type) - 1; }

static void request_cast(tandem_state_space *space, int tensor, tandem_dtype type)
{
    if (type != space->step.output_dtype[tensor]) set_state_bit(space, tensor, BIT_CAST, type);
}

/* The same for a recomputed tensor, whose reader is the backward pass or is recomputed, too. */
static void request_recomputed_cast(tandem_state_space *space, int tensor, tandem_dtype type)
{
    if (type != space->step.output_dtype[tensor]) set_state_bit(space, tensor, BIT_RECOMPUTED_CAST, type);
}

/* The gradient of operator i's output is read in `type`. Where plans differ in its own dtype, count_gradient
 * counts the casts when the walk reaches the tensor. */
static void request_gradient_cast(tandem_state_space *space, int i, tandem_dtype type)
{
    const int root = space->index.gradient_root[i];
    if (gradient_dtype_varies(space, root) || type != space->index.gradient_dtype[root])
        set_state_bit(space, root, BIT_GRADIENT_CAST, type);
}

/* The casts of input `slot` that operator i's forward task reads, in its first run and when it is recomputed,
 * and the casts of recomputed tensors that its backward tasks read. */
static void set_operand_bits(tandem_state_space *space, int i, int slot)
{
    const tandem_op_row *row = op_row_of(&space->step, i);
    const int goes_back = space->index.wgrad[i] >= 0 || space->index.dgrad[i] >= 0,
              x = input_tensor_of(&space->step, i, slot);
    if (space->step.graph->op[x].dtype != TANDEM_F32) return;
    request_cast(space, x, forward_dtype_of(&space->step, i));
    if (space->index.is_recomputed[x] && is_recomputed_now(&space->step, i))
        request_recomputed_cast(space, x, forward_dtype_of(&space->step, i));
    if (space->index.is_recomputed[x] && goes_back && op_saves_input(row, slot))
        request_recomputed_cast(space, x, saved_dtype_of(&space->step, i));
}

static void set_read_bits(tandem_state_space *space, int i)
{
    const tandem_graph *graph = space->step.graph;
    const tandem_op_row *row = op_row_of(&space->step, i);
    const int has_dgrad = space->index.dgrad[i] >= 0;
    for (int slot = 0; slot < row->n_input; slot++) set_operand_bits(space, i, slot);
    if (has_dgrad && (row->saves & TANDEM_SAVES_OUTPUT))
        (space->index.is_recomputed[i] ? request_recomputed_cast
                                       : request_cast)(space, i, dgrad_dtype_of(&space->step, i));
    if (has_dgrad && i != graph->loss) request_gradient_cast(space, i, dgrad_dtype_of(&space->step, i));
    if (space->index.wgrad[i] >= 0 && row->op_class == TANDEM_ADJUSTABLE)
        request_gradient_cast(space, i, wgrad_dtype_of(&space->step, i)); /* others read any dtype */
    for (int slot = 0; row->dgrad == TANDEM_GRAD_IDENTITY && slot < row->n_input; slot++) {
        const int x = input_tensor_of(&space->step, i, slot);
        if (space->index.edge_position[i * TANDEM_MAX_INPUT + slot] >= 0 &&
            space->index.n_contribution[x] > 1)
            request_gradient_cast(space, i, space->index.gradient_dtype[x]);
    }
}

/* Whether the backward pass or the loss reads input `slot` of operator i. */
static int is_input_saved(const tandem_state_space *space, int i, int slot)
{
    const tandem_op_row *row = op_row_of(&space->step, i);
    if (i == space->step.graph->loss) return 1;
    if (!op_saves_input(row, slot)) return 0;
    const int reader =
        row->op_class == TANDEM_ADJUSTABLE && slot == 0 ? space->index.wgrad[i] : space->index.dgrad[i];
    return reader >= 0;
}

/* A tensor lives while the loss is computed, unless it is recomputed later. */
static void set_saved_bit(tandem_state_space *space, int tensor, tandem_dtype type)
{
    if (!space->index.is_recomputed[tensor]) set_state_bit(space, tensor, BIT_SAVED, type);
}

/* Sets the bits of the versions that live while the loss is computed: those that the backward pass or
 * recomputed operators read, and those that the loss reads and writes. */
static void set_saved_bits(tandem_state_space *space, int i)
{
    const tandem_graph *graph = space->step.graph;
    const tandem_op_row *row = op_row_of(&space->step, i);
    for (int slot = 0; slot < row->n_input; slot++) {
        const int x = input_tensor_of(&space->step, i, slot);
        const int is_cast = row->op_class == TANDEM_ADJUSTABLE && graph->op[x].dtype == TANDEM_F32;
        const int is_dependent = row->op_class == TANDEM_DEPENDENT && graph->op[x].dtype == TANDEM_F32;
        const tandem_dtype type = is_cast ? precision_row_of(&space->step, i)->saved
                                  : is_narrow_loss(&space->step, i) && is_dependent
                                      ? forward_dtype_of(&space->step, i)
                                  : is_dependent ? dgrad_dtype_of(&space->step, i)
                                                 : TANDEM_F32;
        if (is_input_saved(space, i, slot)) set_saved_bit(space, x, type);
        if (is_narrow_loss(&space->step, i) && is_dependent && space->index.dgrad[i] >= 0)
            set_saved_bit(space, x, dgrad_dtype_of(&space->step, i));
        if (is_recomputed_now(&space->step, i))
            set_saved_bit(space, x,
                          graph->op[x].dtype == TANDEM_F32 ? forward_dtype_of(&space->step, i) : TANDEM_F32);
    }
    if (space->index.dgrad[i] >= 0 && (row->saves & TANDEM_SAVES_OUTPUT))
        set_saved_bit(space, i, dgrad_dtype_of(&space->step, i));
    if (i == graph->loss) set_saved_bit(space, i, TANDEM_F32);
}

/* --- Tasks ---------------------------------------------------------------------------------------------- */

static void count_forward(tandem_state_space *space, int i)
{
    const struct tandem_step_index *index = &space->index;
    const tandem_dtype from = forward_dtype_of(&space->step, i);
    const int variant = forward_variant(&space->step, i);
    if (index->weight_cast[i] >= 0 && from != TANDEM_F32)
        count_cast(space, index->weight_cast[i], TANDEM_F32, from);
    count_task_variant(space, index->forward[i], variant);
    if (is_recomputed_now(&space->step, i)) count_task_variant(space, index->recomputed_forward[i], variant);
    const int saves_aux = (op_row_of(&space->step, i)->saves & TANDEM_SAVES_AUX) != 0;
    if ((index->dgrad[i] >= 0 && saves_aux && !index->is_recomputed[i]) || i == space->step.graph->loss)
        space->cost->bytes += padded_bytes(aux_bytes_of(&space->step, i));
}

/* The cast of a weight stays alive where a dgrad or a recomputed forward task reads it. What is read for the
 * last time before the wgrad may lie in the gradients, and not in the arena (step_home_of_copy). */
static void count_saved_weight(tandem_state_space *space, int i)
{
    const struct tandem_step_index *index = &space->index;
    const tandem_graph *graph = space->step.graph;
    const tandem_dtype dtype = forward_dtype_of(&space->step, i);
    if (index->weight_cast[i] < 0 || dtype == TANDEM_F32) return;
    const int64_t elements = graph->parameter[graph->op[i].parameter[0]].elements;
    const int is_read_by_dgrad = index->dgrad[i] >= 0 && other_operand_dtype_of(&space->step, i) == dtype;
    if (step_copies_have_homes(&space->step) && step_is_written_by(graph, i) && index->wgrad[i] >= 0 &&
        (!is_read_by_dgrad || index->dgrad[i] < index->wgrad[i]) &&
        step_place_in_gradient(elements, tandem_dtype_size(dtype, (uint64_t)elements)) >= 0)
        return;
    if (index->is_recomputed[i] || is_read_by_dgrad) count_bytes(space, (uint64_t)elements, dtype);
}

static void count_wgrad(tandem_state_space *space, int i)
{
    const struct tandem_step_index *index = &space->index;
    const tandem_graph *graph = space->step.graph;
    const tandem_dtype saved = precision_row_of(&space->step, i)->saved,
                       other = other_operand_dtype_of(&space->step, i);
    tandem_dtype to = TANDEM_F32;
    if (op_row_of(&space->step, i)->n_parameter == 0) /* a product of two activations */
        to = index->gradient_dtype[input_tensor_of(&space->step, i, 1)];
    if (saved != other && graph->op[graph->op[i].input[0]].dtype == TANDEM_F32)
        count_cast(space, index->saved_cast[i], saved, other);
    count_task_variant(space, index->wgrad[i], op_variant_of(&space->step, i, to));
}

static void count_dgrad(tandem_state_space *space, int i)
{
    const struct tandem_step_index *index = &space->index;
    const tandem_op_row *row = op_row_of(&space->step, i);
    if (row->op_class == TANDEM_ADJUSTABLE) {
        const tandem_dtype other = other_operand_dtype_of(&space->step, i);
        const tandem_precision_row *precision = precision_row_of(&space->step, i);
        if (row->n_parameter == 0 && precision->saved != other)
            count_cast(space, index->saved_cast[i] + 1, precision->saved, other);
        if (row->n_parameter > 0 && other != TANDEM_F32 && other != precision->forward)
            count_cast(space, index->backward_weight_cast[i], TANDEM_F32, other);
    }
    count_task_variant(space, index->dgrad[i], dgrad_variant(&space->step, i));
}

/* The tasks that depend only on the dtype of tensor i's gradient. */
static void count_gradient(tandem_state_space *space, int i)
{
    const tandem_dtype type = space->index.gradient_dtype[i];
    for (int d = 0; d < TANDEM_N_STORAGE_DTYPE && gradient_dtype_varies(space, i); d++)
        if (d != (int)type && (space->state_bits[i] >> (BIT_GRADIENT_CAST + d) & 1))
            count_cast(space, space->index.gradient_cast[i] + d, type, (tandem_dtype)d);
    for (int t = space->first_gradient_task[i]; t >= 0; t = space->next_gradient_task[t])
        count_task_variant(space, t, output_dtype_index(type));
}

static void note_own_output_dtype(tandem_state_space *space, int i)
{
    set_output_dtype(space, i, output_dtype_of(&space->step, i));
    if (space->step.output_dtype[i] != TANDEM_F32)
        space->state_bits[i] |= UINT64_C(1) << dtype_bit_kind(space->step.output_dtype[i]);
}

static void count_separate_operator(tandem_state_space *space, int i)
{
    const tandem_op *op = &space->step.graph->op[i];
    note_own_output_dtype(space, i);
    set_read_bits(space, i);
    set_saved_bits(space, i);
    count_forward(space, i);
    count_saved_weight(space, i);
    if (space->index.wgrad[i] >= 0 && tandem_op_is_adjustable(op)) count_wgrad(space, i);
    if (space->index.dgrad[i] >= 0) count_dgrad(space, i);
    count_gradient(space, i);
}

/* --- Attention (attention.c) ---------------------------------------------------------------------------- */

/* What the fused operators read of q, k and v, and save of them and of the result. */
static void set_attention_bits(tandem_state_space *space, int scores, int mix)
{
    const int reader[] = {scores, scores, mix}, slot[] = {0, 1, 1};
    const tandem_dtype dtype = precision_row_of(&space->step, mix)->forward;
    for (int k = 0; k < 3; k++) {
        set_operand_bits(space, reader[k], slot[k]);
        set_saved_bit(space, input_tensor_of(&space->step, reader[k], slot[k]), dtype);
    }
    set_saved_bit(space, mix, dtype);
    request_gradient_cast(space, mix, dtype);
}

static void count_attention(tandem_state_space *space, int mix)
{
    const struct tandem_step_index *index = &space->index;
    const tandem_attention attention = step_attention_of(space->step.graph, mix);
    const tandem_precision precision = space->step.precision[mix];
    const tandem_dtype to = index->gradient_dtype[input_tensor_of(&space->step, attention.scores, 0)];
    note_own_output_dtype(space, mix);
    set_attention_bits(space, attention.scores, mix);
    const int variant = attention_variant(precision, precision_row_of(&space->step, mix)->forward);
    count_task_variant(space, index->forward[mix], variant);
    if (index->is_recomputed[mix])
        count_task_variant(space, index->recomputed_forward[mix], variant);
    else
        space->cost->bytes += padded_bytes(tandem_attention_statistics_bytes(&attention));
    count_task_variant(space, index->dgrad[mix], attention_variant(precision, to));
    count_gradient(space, mix);
}

static int waits_bit(tandem_precision precision)
{
    return BIT_WAITS + (attention_variant(precision, TANDEM_F32) - TANDEM_ATTENTION_VARIANT) / N_OUTPUT_DTYPE;
}

/* The precision of scores that wait for that of the last product; −1: they do not wait. */
static int waiting_precision(const tandem_state_space *space, int scores)
{
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (is_attention_precision(&space->step, (tandem_precision)p) &&
            space->state_bits[scores] >> waits_bit((tandem_precision)p) & 1)
            return p;
    return -1;
}

/* One with which scores fuse nothing. */
static tandem_precision separate_precision(const tandem_state_space *space)
{
    int p = 0;
    while (is_attention_precision(&space->step, (tandem_precision)p)) p++;
    return (tandem_precision)p;
}

/* Operator i of the attention that ends with operator `mix`. */
static void count_attention_operator(tandem_state_space *space, int i, int mix)
{
    const int scores = attention_scores_of(space->step.graph, mix);
    const tandem_precision own = space->step.precision[scores];
    if (i == scores && is_attention_precision(&space->step, own))
        space->state_bits[scores] |= UINT64_C(1) << waits_bit(own);
    const int waiting = waiting_precision(space, scores);
    if (waiting < 0) {
        if (i > scores) space->step.precision[scores] = separate_precision(space);
        count_separate_operator(space, i);
        return;
    }
    if (i < mix) return;
    space->step.precision[scores] = (tandem_precision)waiting;
    if ((int)space->step.precision[mix] == waiting)
        count_attention(space, mix);
    else
        for (int k = scores; k <= mix; k++) count_separate_operator(space, k);
}

static void count_operator(tandem_state_space *space, int i)
{
    const int mix = attention_of(&space->step, i);
    if (space->step.graph->op[i].kind == TANDEM_OP_RESHAPE) return;
    if (mix >= 0)
        count_attention_operator(space, i, mix);
    else
        count_separate_operator(space, i);
}

static void sort_task_variants(tandem_stage_cost *cost)
{
    for (int k = 1; k < cost->n_task_variant; k++) {
        const tandem_task_variant entry = cost->task_variant[k];
        int j = k;
        for (; j > 0 && cost->task_variant[j - 1].task > entry.task; j--)
            cost->task_variant[j] = cost->task_variant[j - 1];
        cost->task_variant[j] = entry;
    }
}

void tandem_state_space_transition(tandem_state_space *space, int s, tandem_precision precision,
                                   const uint64_t *state, tandem_stage_cost *cost, uint64_t *set_bits)
{
    const stage *all = &space->stage[s];
    space->cost = cost;
    cost->n_task_variant = 0;
    cost->bytes = 0;
    for (int k = all->first_tensor; k < all->end_tensor; k++) space->state_bits[space->tensor[k]] = 0;
    for (int k = all->first_in; k < all->first_out; k++) {
        const slot_bit *c = &space->slot_bit[k];
        const uint64_t holds = state[c->slot / 64] >> c->slot % 64 & 1;
        space->state_bits[c->tensor] |= holds << c->bit_kind;
        if (c->bit_kind >= BIT_CAST) continue; /* not of a dtype */
        const tandem_dtype type = output_dtype_at(c->bit_kind - BIT_OUTPUT_DTYPE + 1);
        if (holds)
            set_output_dtype(space, c->tensor, type);
        else if (space->step.output_dtype[c->tensor] == type) /* left by another state */
            set_output_dtype(space, c->tensor, TANDEM_F32);
    }
    if (s > 0) space->step.precision[all->first_op] = precision;
    for (int i = all->first_op; i < all->end_op; i++) count_operator(space, i);
    /* the framework's blocks are no sum over operators; 0 stays below their peak */
    if (space->step.graph->is_recorded) cost->bytes = 0;
    sort_task_variants(cost);
    memset(set_bits, 0, (size_t)space->n_word * sizeof *set_bits);
    for (int k = all->first_out; k < all->end; k++) {
        const slot_bit *c = &space->slot_bit[k];
        set_bits[c->slot / 64] |= (uint64_t)(space->state_bits[c->tensor] >> c->bit_kind & 1) << c->slot % 64;
    }
}

/* --- Exploring: which bits can vary, and which stages read them ----------------------------------------- */

typedef void case_visitor(tandem_state_space *space, int i);

/* Visits every combination of operator i's precision and input dtypes that a plan can have. */
static void visit_operator_cases(tandem_state_space *space, int i, unsigned allowed, case_visitor *visit)
{
    const int n_input = op_row_of(&space->step, i)->n_input;
    const int x = n_input > 0 ? input_tensor_of(&space->step, i, 0) : -1,
              y = n_input > 1 ? input_tensor_of(&space->step, i, 1) : -1;
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        for (int types = 0; types < N_OUTPUT_DTYPE * N_OUTPUT_DTYPE; types++) {
            const tandem_dtype type_x = output_dtype_at(types % N_OUTPUT_DTYPE),
                               type_y = output_dtype_at(types / N_OUTPUT_DTYPE);
            if (!(allowed & 1u << p)) continue;
            if (x < 0 ? type_x != TANDEM_F32 : !(space->output_dtypes[x] & 1u << type_x)) continue;
            if (y < 0 ? type_y != TANDEM_F32 : !(space->output_dtypes[y] & 1u << type_y)) continue;
            if (x == y && type_x != type_y) continue;
            space->step.precision[i] = (tandem_precision)p;
            if (x >= 0) set_output_dtype(space, x, type_x);
            if (y >= 0) set_output_dtype(space, y, type_y);
            set_output_dtype(space, i, output_dtype_of(&space->step, i));
            visit(space, i);
        }
}

static void note_output_dtype(tandem_state_space *space, int i)
{
    space->output_dtypes[i] |= (unsigned char)(1u << space->step.output_dtype[i]);
}

/* Notes that the current stage reads the dtype of a tensor. */
static void note_dtype_use(tandem_state_space *space, int tensor)
{
    for (int index = 1; index < N_OUTPUT_DTYPE && output_dtype_varies(space, tensor); index++)
        if (space->output_dtypes[tensor] & 1u << output_dtype_at(index))
            note_bit_use(space, tensor, dtype_bit_kind(output_dtype_at(index)), space->current_stage);
}

static void note_bit_uses(tandem_state_space *space, int i)
{
    const int n_input = op_row_of(&space->step, i)->n_input;
    note_dtype_use(space, i);
    for (int slot = 0; slot < n_input; slot++) note_dtype_use(space, input_tensor_of(&space->step, i, slot));
    set_read_bits(space, i);
    set_saved_bits(space, i);
}

static void visit_operators(tandem_state_space *space, const unsigned *allowed, case_visitor *visit)
{
    const tandem_graph *graph = space->step.graph;
    for (int i = 0; i < graph->n_op; i++) {
        const int mix = attention_of(&space->step, i),
                  last_stage = space->stage_of[mix >= 0 ? mix : i]; /* where it may be counted */
        const unsigned own = op_row_of(&space->step, i)->precisions;
        for (int s = space->stage_of[i]; s <= last_stage && graph->op[i].kind != TANDEM_OP_RESHAPE; s++) {
            space->current_stage = s;
            visit_operator_cases(space, i, own ? allowed[i] & own : 1u << TANDEM_PRECISION_FP32, visit);
        }
    }
}

/* Bits of the attentions, in the stages of their last operators. */
static void note_attention_bits(tandem_state_space *space, const unsigned *allowed)
{
    for (int mix = 0; mix < space->step.graph->n_op; mix++) {
        if (attention_of(&space->step, mix) != mix) continue;
        const int scores = attention_scores_of(space->step.graph, mix);
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            if (!is_attention_precision(&space->step, (tandem_precision)p) || !(allowed[scores] & 1u << p))
                continue;
            for (int s = space->stage_of[scores]; s <= space->stage_of[mix]; s++) {
                space->current_stage = s;
                note_bit_use(space, scores, waits_bit((tandem_precision)p), s);
            }
            if (!(allowed[mix] & 1u << p)) continue;
            space->step.precision[scores] = space->step.precision[mix] = (tandem_precision)p;
            set_output_dtype(space, mix, output_dtype_of(&space->step, mix));
            note_dtype_use(space, input_tensor_of(&space->step, scores, 0)); /* of its gradient */
            set_attention_bits(space, scores, mix);
        }
    }
}

static void find_bit_uses(tandem_state_space *space, const unsigned *allowed)
{
    const tandem_graph *graph = space->step.graph;
    for (int i = 0; i < graph->n_op; i++)
        if (writes_f32_gradient(op_row_of(&space->step, i)))
            space->gradient_is_f32[input_tensor_of(&space->step, i, 0)] = 1;
    visit_operators(space, allowed, note_output_dtype);
    for (int i = 0; i < graph->n_op; i++) /* a dtype that does not vary is set once */
        set_output_dtype(space, i,
                         space->output_dtypes[i] == 1u << TANDEM_F16    ? TANDEM_F16
                         : space->output_dtypes[i] == 1u << TANDEM_BF16 ? TANDEM_BF16
                                                                        : TANDEM_F32);
    visit_operators(space, allowed, note_bit_uses);
    note_attention_bits(space, allowed);
}

static void find_gradient_tasks(tandem_state_space *space)
{
    const tandem_graph *graph = space->step.graph;
    for (int i = 0; i < graph->n_op; i++) space->first_gradient_task[i] = -1;
    for (int t = 0; t < space->step.n_task; t++) {
        const tandem_task *task = &space->step.task[t];
        int tensor = -1;
        if (task->kind == TANDEM_TASK_ACCUMULATE && task->parameter < 0)
            tensor = input_tensor_of(&space->step, task->op, task->slot);
        if (task->kind == TANDEM_TASK_WGRAD && !tandem_op_is_adjustable(&graph->op[task->op]))
            tensor = space->index.gradient_root[task->op];
        if (tensor < 0) continue;
        space->next_gradient_task[t] = space->first_gradient_task[tensor];
        space->first_gradient_task[tensor] = t;
    }
}

/* --- Slots ---------------------------------------------------------------------------------------------- */

static int compare_first_stage(const void *a, const void *b)
{
    const state_bit *x = a, *y = b;
    if (x->first_stage != y->first_stage) return x->first_stage - y->first_stage;
    return x->tensor != y->tensor ? x->tensor - y->tensor : x->bit_kind - y->bit_kind;
}

/* The bits that a later stage than the setting one reads, ascending in the setting stage. */
static int find_carried_bits(const tandem_state_space *space, state_bit *out)
{
    int n = 0;
    for (int k = 0; k < space->step.graph->n_op * N_BIT_KIND; k++)
        if (space->first_use[k] < space->last_use[k])
            out[n++] = (state_bit){k / N_BIT_KIND, k % N_BIT_KIND, space->first_use[k], space->last_use[k]};
    qsort(out, (size_t)n, sizeof *out, compare_first_stage);
    return n;
}

static int max_alive_bits(const state_bit *state_bits, int n, int *change, int n_stage)
{
    int max = 0, alive = 0;
    memset(change, 0, ((size_t)n_stage + 1) * sizeof *change);
    for (int k = 0; k < n; k++) {
        change[state_bits[k].first_stage]++;
        change[state_bits[k].last_stage]--;
    }
    for (int s = 0; s < n_stage; s++) {
        alive += change[s];
        if (alive > max) max = alive;
    }
    return max;
}

static void add_stage_tensor(tandem_state_space *space, int tensor, int s, int *seen_in, int *n_tensor)
{
    if (seen_in[tensor] == s) return;
    seen_in[tensor] = s;
    space->tensor[(*n_tensor)++] = tensor;
}

static void add_tensors_of(tandem_state_space *space, int i, int s, int *seen_in, int *n_tensor)
{
    const int n_input = op_row_of(&space->step, i)->n_input;
    add_stage_tensor(space, i, s, seen_in, n_tensor);
    add_stage_tensor(space, space->index.gradient_root[i], s, seen_in, n_tensor);
    for (int slot = 0; slot < n_input; slot++)
        add_stage_tensor(space, input_tensor_of(&space->step, i, slot), s, seen_in, n_tensor);
}

static void add_stage_tensors(tandem_state_space *space, int s, int *seen_in, int *n_tensor)
{
    stage *now = &space->stage[s];
    now->first_tensor = *n_tensor;
    for (int i = now->first_op; i < now->end_op; i++) {
        const int mix = attention_of(&space->step, i);
        add_tensors_of(space, i, s, seen_in, n_tensor);
        if (mix < 0) continue;
        add_stage_tensor(space, attention_scores_of(space->step.graph, mix), s, seen_in, n_tensor);
        for (int k = attention_scores_of(space->step.graph, mix); mix == i && k < mix; k++)
            add_tensors_of(space, k, s, seen_in, n_tensor);
    }
    now->end_tensor = *n_tensor;
}

/* A bit takes the lowest free slot when it can be set first, and frees it when it is read last. */
static void assign_state_slots(tandem_state_space *space, const state_bit *state_bits, int n_state_bit,
                               int *in_slot, int n_slot, int *seen_in)
{
    int next = 0, n_tensor = 0, n_slot_bit = 0;
    for (int i = 0; i < space->step.graph->n_op; i++) seen_in[i] = -1;
    for (int slot = 0; slot < n_slot; slot++) in_slot[slot] = -1;
    for (int s = 0; s <= space->n_layer; s++) {
        stage *now = &space->stage[s];
        uint64_t *const read_mask = &space->read_mask[s * space->n_word],
                        *const pass_mask = &space->pass_mask[s * space->n_word];
        add_stage_tensors(space, s, seen_in, &n_tensor);
        now->first_in = n_slot_bit;
        for (int slot = 0; slot < n_slot; slot++) {
            if (in_slot[slot] < 0) continue;
            const state_bit *here = &state_bits[in_slot[slot]];
            if (seen_in[here->tensor] == s) {
                space->slot_bit[n_slot_bit++] = (slot_bit){slot, here->tensor, here->bit_kind};
                read_mask[slot / 64] |= UINT64_C(1) << slot % 64;
            }
            if (here->last_stage == s) in_slot[slot] = -1;
        }
        now->first_out = n_slot_bit;
        for (int slot = 0; slot < n_slot; slot++) {
            if (in_slot[slot] < 0 && next < n_state_bit && state_bits[next].first_stage == s)
                in_slot[slot] = next++;
            if (in_slot[slot] < 0) continue;
            const state_bit *here = &state_bits[in_slot[slot]];
            if (seen_in[here->tensor] == s)
                space->slot_bit[n_slot_bit++] = (slot_bit){slot, here->tensor, here->bit_kind};
            else
                pass_mask[slot / 64] |= UINT64_C(1) << slot % 64;
        }
        now->end = n_slot_bit;
    }
}

static void *alloc_space(tandem_state_space *space, size_t count, size_t size)
{
    void *array = tandem_arena_array(&space->arena, count, size);
    space->is_out_of_memory |= !array;
    return array;
}

static int lay_out_state_bits(tandem_state_space *space)
{
    const size_t n_op = (size_t)space->step.graph->n_op, n_stage = (size_t)space->n_layer + 1;
    const size_t max_stage_tensor = n_op * MAX_TENSOR_OF_OP;
    state_bit *state_bits = malloc(n_op * N_BIT_KIND * sizeof *state_bits);
    int *change = alloc_space(space, n_stage + 1, sizeof *change),
        *seen_in = alloc_space(space, n_op, sizeof *seen_in);
    if (!state_bits || space->is_out_of_memory) {
        free(state_bits);
        return 0;
    }
    const int n_state_bit = find_carried_bits(space, state_bits),
              n_slot = max_alive_bits(state_bits, n_state_bit, change, space->n_layer + 1);
    space->n_word = n_slot > 64 ? (n_slot + 63) / 64 : 1;
    int *in_slot = alloc_space(space, (size_t)n_slot, sizeof *in_slot);
    space->tensor = alloc_space(space, max_stage_tensor, sizeof *space->tensor);
    space->slot_bit = alloc_space(space, 2 * max_stage_tensor * N_BIT_KIND, sizeof *space->slot_bit);
    space->read_mask = alloc_space(space, n_stage * (size_t)space->n_word, sizeof *space->read_mask);
    space->pass_mask = alloc_space(space, n_stage * (size_t)space->n_word, sizeof *space->pass_mask);
    if (!space->is_out_of_memory)
        assign_state_slots(space, state_bits, n_state_bit, in_slot, n_slot, seen_in);
    free(state_bits);
    return !space->is_out_of_memory;
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static void find_stages(tandem_state_space *space)
{
    const tandem_graph *graph = space->step.graph;
    int s = 0;
    for (int i = 0; i < graph->n_op; i++) {
        if (tandem_op_is_adjustable(&graph->op[i])) {
            space->stage[s++].end_op = i;
            space->stage[s].first_op = i;
        }
        space->stage_of[i] = s;
    }
    space->stage[s].end_op = graph->n_op;
}

static int count_adjustable(const tandem_graph *graph)
{
    int n = 0;
    for (int i = 0; i < graph->n_op; i++) n += tandem_op_is_adjustable(&graph->op[i]);
    return n;
}

static int allocate_state_space(tandem_state_space *space)
{
    const size_t n_op = (size_t)space->step.graph->n_op, n_task = (size_t)space->step.n_task;
    space->stage = alloc_space(space, (size_t)space->n_layer + 1, sizeof *space->stage);
    space->step.precision = alloc_space(space, n_op, sizeof *space->step.precision);
    space->step.output_dtype = alloc_space(space, n_op, sizeof *space->step.output_dtype);
    space->index.gradient_dtype = alloc_space(space, n_op, sizeof *space->index.gradient_dtype);
    space->output_dtypes = alloc_space(space, n_op, sizeof *space->output_dtypes);
    space->gradient_is_f32 = alloc_space(space, n_op, sizeof *space->gradient_is_f32);
    space->state_bits = alloc_space(space, n_op, sizeof *space->state_bits);
    space->first_gradient_task = alloc_space(space, n_op, sizeof *space->first_gradient_task);
    space->next_gradient_task = alloc_space(space, n_task, sizeof *space->next_gradient_task);
    space->stage_of = alloc_space(space, n_op, sizeof *space->stage_of);
    space->first_use = alloc_space(space, n_op * N_BIT_KIND, sizeof *space->first_use);
    space->last_use = alloc_space(space, n_op * N_BIT_KIND, sizeof *space->last_use);
    if (space->is_out_of_memory) return 0;
    for (size_t k = 0; k < n_op * N_BIT_KIND; k++) space->first_use[k] = space->last_use[k] = -1;
    return 1;
}

tandem_status tandem_state_space_open(tandem_state_space **out, const tandem_step *step,
                                      const unsigned *allowed, tandem_error *error)
{
    tandem_state_space *space = calloc(1, sizeof *space);
    if (!space) goto no_memory;
    space->step = *step;
    space->index = *step->index;
    space->step.index = &space->index;
    space->n_layer = count_adjustable(step->graph);
    if (!allocate_state_space(space)) goto no_memory;
    find_stages(space);
    find_gradient_tasks(space);
    find_bit_uses(space, allowed);
    if (!lay_out_state_bits(space)) goto no_memory;
    *out = space;
    return TANDEM_OK;

no_memory:
    tandem_state_space_close(space);
    return tandem_no_memory(error, "for the state space of model '%s' (%d operators)", step->graph->model,
                            step->graph->n_op);
}

void tandem_state_space_close(tandem_state_space *space)
{
    if (!space) return;
    tandem_arena_free(&space->arena);
    free(space);
}

int tandem_state_space_n_layer(const tandem_state_space *space) { return space->n_layer; }
int tandem_state_space_op(const tandem_state_space *space, int layer)
{
    return space->stage[layer + 1].first_op;
}
int tandem_state_space_n_word(const tandem_state_space *space) { return space->n_word; }
const uint64_t *tandem_state_space_read_mask(const tandem_state_space *space, int s)
{
    return &space->read_mask[s * space->n_word];
}
const uint64_t *tandem_state_space_pass_mask(const tandem_state_space *space, int s)
{
    return &space->pass_mask[s * space->n_word];
}
