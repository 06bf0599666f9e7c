/* frontier.c: one choice of precision and all that follows from it. What a task is and when is resolve.c's
 * matter (graph/); here the same is asked operator by operator in graph order, without the choices that are
 * still to come. */
#include "allocator/frontier.h"

#include <stdlib.h>
#include <string.h>

#include "graph/types.h"

enum role {
    NARROW, /* one for each native type but f32 */
    WANTED = NARROW + N_NATIVE - 1,
    KEPT = WANTED + TANDEM_N_VERSION,
    GRADIENT = KEPT + TANDEM_N_VERSION,
    AGAIN = GRADIENT + TANDEM_N_VERSION,
    N_ROLE = AGAIN + TANDEM_N_VERSION
};
enum { ALIGNMENT = 64, MOST_TOUCHED_BY_OP = 2 + TANDEM_MAX_INPUT };

typedef struct fact {
    int tensor, role;
    int first, last; /* stretches: in which it can be settled first, in which somebody asks last */
} fact;

typedef struct carried {
    int slot, tensor, role;
} carried;

typedef struct stretch {
    int first_op, end_op;
    int first_tensor, end_tensor; /* that its operators ask about */
    /* their facts: in the state before it are carried[first_in … first_out − 1], behind
     * it carried[first_out … end − 1] */
    int first_in, first_out, end;
} stretch;

struct tandem_frontier {
    tandem_step step; /* a copy, with arrays of its own for what follows from precisions */
    struct tandem_step_index index;
    int n_layer, n_word;
    stretch *stretch;           /* [n_layer + 1] */
    int *tensor;                /* of all stretches */
    carried *carried;           /* of all stretches */
    uint64_t *touched, *passed; /* [(n_layer + 1) × n_word] */
    /* the same in all plans */
    unsigned char *natives;         /* [n_op] bit d: can be its native type */
    unsigned char *gradient_is_f32; /* [n_op] a fixed operator contributes */
    /* [n_op], [n_task]: lists of the tasks whose only question is the type of this
     * tensor's gradient: sums of it, the wgrad of biases; −1 ends them */
    int *first_follower, *follower;
    /* of the plan under way */
    unsigned *facts;       /* [n_op] bit role */
    tandem_effect *effect; /* NULL: settling is being explored, nothing is counted */
    /* while exploring */
    int at;                        /* the stretch */
    int *stretch_of;               /* [n_op] */
    int *first_asked, *last_asked; /* [n_op × N_ROLE] stretches; −1 = never */
};

/* --- Counting ------------------------------------------------------------------------------------------- */

static void add(tandem_frontier *f, int task, int variant)
{
    f->effect->term[f->effect->n_term++] = (tandem_term){task, variant};
}

static void occupy(tandem_frontier *f, uint64_t bytes)
{
    f->effect->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Whether a tensor's native type is not the same in all plans. */
static int varies(const tandem_frontier *f, int tensor)
{
    return (f->natives[tensor] & (f->natives[tensor] - 1)) != 0;
}

static int gradient_varies(const tandem_frontier *f, int tensor)
{
    return !f->gradient_is_f32[tensor] && varies(f, tensor);
}

static void set_native(tandem_frontier *f, int tensor, tandem_dtype type)
{
    f->step.native[tensor] = type;
    f->index.gradient_native[tensor] = f->gradient_is_f32[tensor] ? TANDEM_F32 : type;
}

/* --- Facts ---------------------------------------------------------------------------------------------- */

static void ask(tandem_frontier *f, int tensor, int role, int s)
{
    const int k = tensor * N_ROLE + role;
    if (f->first_asked[k] < 0) f->first_asked[k] = f->at;
    if (f->last_asked[k] < s) f->last_asked[k] = s;
}

/* The fact holds; what it costs is counted where it did not hold before. */
static void settle(tandem_frontier *f, int tensor, int first_role, tandem_dtype type)
{
    const int role = first_role + (int)type;
    const unsigned bit = 1u << role;
    if (!f->effect) {
        const int waits = first_role == GRADIENT && gradient_varies(f, tensor);
        ask(f, tensor, role, waits ? f->stretch_of[tensor] : f->at);
        return;
    }
    if (f->facts[tensor] & bit) return;
    f->facts[tensor] |= bit;
    if (first_role == WANTED)
        add(f, f->index.cast[tensor] + (int)type, cast_form(f->step.native[tensor], type));
    else if (first_role == AGAIN)
        add(f, f->index.cast_again[tensor] + (int)type, cast_form(f->step.native[tensor], type));
    else if (first_role == KEPT)
        occupy(f,
               (uint64_t)tandem_shape_elements(&f->step.graph->op[tensor].shape) * tandem_dtype_bytes(type));
    else if (!gradient_varies(f, tensor))
        add(f, f->index.gradient_cast[tensor] + (int)type, cast_form(f->index.gradient_native[tensor], type));
}

static int narrow_role(tandem_dtype type) { return NARROW + native_place(type) - 1; }

static void want(tandem_frontier *f, int tensor, tandem_dtype type)
{
    if (type != f->step.native[tensor]) settle(f, tensor, WANTED, type);
}

/* The same of a tensor that is computed again, by the backward pass or by what is computed again, too. */
static void want_again(tandem_frontier *f, int tensor, tandem_dtype type)
{
    if (type != f->step.native[tensor]) settle(f, tensor, AGAIN, type);
}

/* The gradient of operator i's output is read in `type`. Where its own type is not the same in all plans it
 * is known when the walk comes to it: then the casts are counted. */
static void want_gradient(tandem_frontier *f, int i, tandem_dtype type)
{
    const int root = f->index.gradient_root[i];
    if (gradient_varies(f, root) || type != f->index.gradient_native[root]) settle(f, root, GRADIENT, type);
}

static int input_of(const tandem_frontier *f, int i, int slot)
{
    const tandem_graph *graph = f->step.graph;
    return graph->view[graph->op[i].input[slot]];
}

/* What operator i's forward task reads, when it runs first and when again, and what its backward tasks read
 * of tensors that are computed again. */
static void settle_operands(tandem_frontier *f, int i)
{
    const tandem_graph *graph = f->step.graph;
    const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
    const int goes_back = f->index.wgrad[i] >= 0 || f->index.dgrad[i] >= 0;
    for (int slot = 0; slot < row->n_input; slot++) {
        const int x = input_of(f, i, slot);
        if (graph->op[x].dtype != TANDEM_F32) continue;
        want(f, x, operand_type(&f->step, i));
        if (f->index.is_again[x] && f->index.is_again[i]) want_again(f, x, operand_type(&f->step, i));
        if (f->index.is_again[x] && goes_back && saves_input(row, slot))
            want_again(f, x, saved_type(&f->step, i));
    }
}

static void settle_wants(tandem_frontier *f, int i)
{
    const tandem_graph *graph = f->step.graph;
    const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
    const int has_dgrad = f->index.dgrad[i] >= 0;
    settle_operands(f, i);
    if (has_dgrad && (row->saves & TANDEM_SAVES_OUTPUT))
        (f->index.is_again[i] ? want_again : want)(f, i, dgrad_type(&f->step, i));
    if (has_dgrad && i != graph->loss) want_gradient(f, i, dgrad_type(&f->step, i));
    if (f->index.wgrad[i] >= 0 && row->op_class == TANDEM_ADJUSTABLE)
        want_gradient(f, i, wgrad_type(&f->step, i)); /* others take it as it comes */
    for (int slot = 0; row->dgrad == TANDEM_BACKWARD_SAME && slot < row->n_input; slot++) {
        const int x = input_of(f, i, slot);
        if (f->index.edge_place[i * TANDEM_MAX_INPUT + slot] >= 0 && f->index.n_contribution[x] > 1)
            want_gradient(f, i, f->index.gradient_native[x]);
    }
}

/* Whether the backward pass reads input `slot` of operator i, or the loss does. */
static int keeps_input(const tandem_frontier *f, int i, int slot)
{
    const tandem_op_row *row = tandem_op_row_get(f->step.graph->op[i].kind);
    if (i == f->step.graph->loss) return 1;
    if (!saves_input(row, slot)) return 0;
    const int reader =
        row->op_class == TANDEM_ADJUSTABLE && slot == 0 ? f->index.wgrad[i] : f->index.dgrad[i];
    return reader >= 0;
}

/* Alive while the loss is computed, unless it is dropped and computed again later. */
static void keep(tandem_frontier *f, int tensor, tandem_dtype type)
{
    if (!f->index.is_again[tensor]) settle(f, tensor, KEPT, type);
}

/* Which versions are alive while the loss is computed: those that the backward pass reads, or operators that
 * are computed again for it, and what the loss itself reads and writes. */
static void settle_kept(tandem_frontier *f, int i)
{
    const tandem_graph *graph = f->step.graph;
    const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
    for (int slot = 0; slot < row->n_input; slot++) {
        const int x = input_of(f, i, slot);
        const int is_cast = row->op_class == TANDEM_ADJUSTABLE && graph->op[x].dtype == TANDEM_F32;
        const tandem_dtype type = is_cast ? tandem_precision_get(f->step.precision[i])->saved
                                  : row->op_class == TANDEM_DEPENDENT ? dgrad_type(&f->step, i)
                                                                      : TANDEM_F32;
        if (keeps_input(f, i, slot)) keep(f, x, type);
        if (f->index.is_again[i])
            keep(f, x, graph->op[x].dtype == TANDEM_F32 ? operand_type(&f->step, i) : TANDEM_F32);
    }
    if (f->index.dgrad[i] >= 0 && (row->saves & TANDEM_SAVES_OUTPUT)) keep(f, i, dgrad_type(&f->step, i));
    if (i == graph->loss) keep(f, i, TANDEM_F32);
}

/* --- Tasks ---------------------------------------------------------------------------------------------- */

static void count_forward(tandem_frontier *f, int i)
{
    const tandem_op *op = &f->step.graph->op[i];
    const tandem_dtype from = operand_type(&f->step, i);
    if (f->index.weight_cast[i] >= 0 && from != TANDEM_F32)
        add(f, f->index.weight_cast[i], cast_form(TANDEM_F32, from));
    add(f, f->index.forward[i], form_of(&f->step, i, f->step.native[i]));
    if (f->index.is_again[i]) add(f, f->index.forward_again[i], form_of(&f->step, i, f->step.native[i]));
    const int is_read = f->index.dgrad[i] >= 0 && (tandem_op_row_get(op->kind)->saves & TANDEM_SAVES_AUX) &&
                        !f->index.is_again[i];
    if (is_read || i == f->step.graph->loss) occupy(f, op->aux_bytes);
}

/* The forward pass's copy of a weight lives on where a dgrad reads it, or the forward task that runs again.
 * */
static void keep_weight(tandem_frontier *f, int i)
{
    const tandem_op *op = &f->step.graph->op[i];
    const tandem_dtype type = operand_type(&f->step, i);
    const int is_read = f->index.is_again[i] || (f->index.dgrad[i] >= 0 && second_type(&f->step, i) == type);
    if (f->index.weight_cast[i] >= 0 && type != TANDEM_F32 && is_read)
        occupy(f, (uint64_t)f->step.graph->parameter[op->parameter[0]].elements * tandem_dtype_bytes(type));
}

static void count_wgrad(tandem_frontier *f, int i)
{
    const tandem_graph *graph = f->step.graph;
    const tandem_dtype saved = tandem_precision_get(f->step.precision[i])->saved,
                       second = second_type(&f->step, i);
    const int is_product = tandem_op_row_get(graph->op[i].kind)->n_parameter == 0; /* of two activations */
    if (saved != second && graph->op[graph->op[i].input[0]].dtype == TANDEM_F32)
        add(f, f->index.restore[i], cast_form(saved, second));
    const tandem_dtype to = is_product ? f->index.gradient_native[input_of(f, i, 1)] : TANDEM_F32;
    add(f, f->index.wgrad[i], form_of(&f->step, i, to));
}

static void count_dgrad(tandem_frontier *f, int i)
{
    const tandem_graph *graph = f->step.graph;
    const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
    if (row->op_class == TANDEM_ADJUSTABLE) {
        const tandem_dtype second = second_type(&f->step, i);
        const tandem_precision_row *precision = tandem_precision_get(f->step.precision[i]);
        if (row->n_parameter == 0) {
            if (precision->saved != second)
                add(f, f->index.restore[i] + 1, cast_form(precision->saved, second));
        } else if (second != TANDEM_F32 && second != precision->forward) {
            add(f, f->index.backward_weight_cast[i], cast_form(TANDEM_F32, second));
        }
    }
    add(f, f->index.dgrad[i], dgrad_form(&f->step, i));
}

/* What only waited for the type of tensor i's gradient. */
static void count_gradient(tandem_frontier *f, int i)
{
    const tandem_dtype type = f->index.gradient_native[i];
    for (int d = 0; d < TANDEM_N_VERSION && gradient_varies(f, i); d++)
        if (d != (int)type && (f->facts[i] & 1u << (GRADIENT + d)))
            add(f, f->index.gradient_cast[i] + d, cast_form(type, (tandem_dtype)d));
    for (int t = f->first_follower[i]; t >= 0; t = f->follower[t]) add(f, t, native_place(type));
}

static void run_operator(tandem_frontier *f, int i)
{
    const tandem_op *op = &f->step.graph->op[i];
    if (op->kind == TANDEM_OP_RESHAPE) return;
    set_native(f, i, native_type(&f->step, i));
    if (f->step.native[i] != TANDEM_F32) f->facts[i] |= 1u << narrow_role(f->step.native[i]);
    settle_wants(f, i);
    settle_kept(f, i);
    count_forward(f, i);
    keep_weight(f, i);
    if (f->index.wgrad[i] >= 0 && tandem_op_row_get(op->kind)->op_class == TANDEM_ADJUSTABLE)
        count_wgrad(f, i);
    if (f->index.dgrad[i] >= 0) count_dgrad(f, i);
    count_gradient(f, i);
}

static void sort_terms(tandem_effect *effect)
{
    for (int k = 1; k < effect->n_term; k++) {
        const tandem_term term = effect->term[k];
        int j = k;
        for (; j > 0 && effect->term[j - 1].task > term.task; j--) effect->term[j] = effect->term[j - 1];
        effect->term[j] = term;
    }
}

void tandem_frontier_run(tandem_frontier *f, int s, tandem_precision precision, const uint64_t *state,
                         tandem_effect *effect, uint64_t *settled)
{
    const stretch *all = &f->stretch[s];
    f->effect = effect;
    effect->n_term = 0;
    effect->bytes = 0;
    for (int k = all->first_tensor; k < all->end_tensor; k++) f->facts[f->tensor[k]] = 0;
    for (int k = all->first_in; k < all->first_out; k++) {
        const carried *c = &f->carried[k];
        const unsigned holds = (unsigned)(state[c->slot / 64] >> c->slot % 64 & 1);
        f->facts[c->tensor] |= holds << c->role;
        if (c->role >= WANTED) continue;
        const tandem_dtype type = native_at(c->role - NARROW + 1);
        if (holds)
            set_native(f, c->tensor, type);
        else if (f->step.native[c->tensor] == type) /* as another state left it */
            set_native(f, c->tensor, TANDEM_F32);
    }
    if (s > 0) f->step.precision[all->first_op] = precision;
    for (int i = all->first_op; i < all->end_op; i++) run_operator(f, i);
    sort_terms(effect);
    memset(settled, 0, (size_t)f->n_word * sizeof *settled);
    for (int k = all->first_out; k < all->end; k++) {
        const carried *c = &f->carried[k];
        settled[c->slot / 64] |= (uint64_t)(f->facts[c->tensor] >> c->role & 1) << c->slot % 64;
    }
}

/* --- Exploring: which facts can vary, and who asks about them ------------------------------------------- */

typedef void visitor(tandem_frontier *f, int i);

/* Every combination of operator i's precision and the types of what it reads that any plan can have. */
static void visit_cases(tandem_frontier *f, int i, unsigned allowed, visitor *visit)
{
    const int n_input = tandem_op_row_get(f->step.graph->op[i].kind)->n_input;
    const int x = n_input > 0 ? input_of(f, i, 0) : -1, y = n_input > 1 ? input_of(f, i, 1) : -1;
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        for (int types = 0; types < N_NATIVE * N_NATIVE; types++) {
            const tandem_dtype type_x = native_at(types % N_NATIVE), type_y = native_at(types / N_NATIVE);
            if (!(allowed & 1u << p)) continue;
            if (x < 0 ? type_x != TANDEM_F32 : !(f->natives[x] & 1u << type_x)) continue;
            if (y < 0 ? type_y != TANDEM_F32 : !(f->natives[y] & 1u << type_y)) continue;
            if (x == y && type_x != type_y) continue;
            f->step.precision[i] = (tandem_precision)p;
            if (x >= 0) set_native(f, x, type_x);
            if (y >= 0) set_native(f, y, type_y);
            set_native(f, i, native_type(&f->step, i));
            visit(f, i);
        }
}

static void note_native(tandem_frontier *f, int i)
{
    f->natives[i] |= (unsigned char)(1u << f->step.native[i]);
}

/* Which of the types that it can have a tensor has. */
static void ask_type(tandem_frontier *f, int tensor)
{
    for (int place = 1; place < N_NATIVE && varies(f, tensor); place++)
        if (f->natives[tensor] & 1u << native_at(place)) ask(f, tensor, narrow_role(native_at(place)), f->at);
}

static void note_questions(tandem_frontier *f, int i)
{
    const int n_input = tandem_op_row_get(f->step.graph->op[i].kind)->n_input;
    ask_type(f, i);
    for (int slot = 0; slot < n_input; slot++) ask_type(f, input_of(f, i, slot));
    settle_wants(f, i);
    settle_kept(f, i);
}

static void explore(tandem_frontier *f, const unsigned *allowed, visitor *visit)
{
    const tandem_graph *graph = f->step.graph;
    for (int i = 0; i < graph->n_op; i++) {
        const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
        f->at = f->stretch_of[i];
        if (graph->op[i].kind != TANDEM_OP_RESHAPE)
            visit_cases(f, i, row->precisions ? allowed[i] & row->precisions : 1u << TANDEM_PRECISION_FP32,
                        visit);
    }
}

static void find_questions(tandem_frontier *f, const unsigned *allowed)
{
    const tandem_graph *graph = f->step.graph;
    for (int i = 0; i < graph->n_op; i++)
        if (brings_f32_gradient(tandem_op_row_get(graph->op[i].kind)))
            f->gradient_is_f32[input_of(f, i, 0)] = 1;
    explore(f, allowed, note_native);
    for (int i = 0; i < graph->n_op; i++) /* what does not vary stays as it is set here */
        set_native(f, i,
                   f->natives[i] == 1u << TANDEM_F16    ? TANDEM_F16
                   : f->natives[i] == 1u << TANDEM_BF16 ? TANDEM_BF16
                                                        : TANDEM_F32);
    explore(f, allowed, note_questions);
}

static void find_followers(tandem_frontier *f)
{
    const tandem_graph *graph = f->step.graph;
    for (int i = 0; i < graph->n_op; i++) f->first_follower[i] = -1;
    for (int t = 0; t < f->step.n_task; t++) {
        const tandem_task *task = &f->step.task[t];
        int tensor = -1;
        if (task->kind == TANDEM_TASK_ACCUMULATE && task->parameter < 0)
            tensor = input_of(f, task->op, task->slot);
        if (task->kind == TANDEM_TASK_WGRAD &&
            tandem_op_row_get(graph->op[task->op].kind)->op_class != TANDEM_ADJUSTABLE)
            tensor = f->index.gradient_root[task->op];
        if (tensor < 0) continue;
        f->follower[t] = f->first_follower[tensor];
        f->first_follower[tensor] = t;
    }
}

/* --- Slots ---------------------------------------------------------------------------------------------- */

static int by_first(const void *a, const void *b)
{
    const fact *x = a, *y = b;
    if (x->first != y->first) return x->first - y->first;
    return x->tensor != y->tensor ? x->tensor - y->tensor : x->role - y->role;
}

/* The facts that outlive the stretch in which they are settled, ascending in it. */
static int find_carried(const tandem_frontier *f, fact *out)
{
    int n = 0;
    for (int k = 0; k < f->step.graph->n_op * N_ROLE; k++)
        if (f->first_asked[k] < f->last_asked[k])
            out[n++] = (fact){k / N_ROLE, k % N_ROLE, f->first_asked[k], f->last_asked[k]};
    qsort(out, (size_t)n, sizeof *out, by_first);
    return n;
}

static int most_at_once(const fact *facts, int n, int *change, int n_stretch)
{
    int most = 0, alive = 0;
    memset(change, 0, ((size_t)n_stretch + 1) * sizeof *change);
    for (int k = 0; k < n; k++) {
        change[facts[k].first]++;
        change[facts[k].last]--;
    }
    for (int s = 0; s < n_stretch; s++) {
        alive += change[s];
        if (alive > most) most = alive;
    }
    return most;
}

static void touch(tandem_frontier *f, int tensor, int s, int *touched_in, int *n_tensor)
{
    if (touched_in[tensor] == s) return;
    touched_in[tensor] = s;
    f->tensor[(*n_tensor)++] = tensor;
}

static void touch_all(tandem_frontier *f, int s, int *touched_in, int *n_tensor)
{
    stretch *now = &f->stretch[s];
    now->first_tensor = *n_tensor;
    for (int i = now->first_op; i < now->end_op; i++) {
        const int n_input = tandem_op_row_get(f->step.graph->op[i].kind)->n_input;
        touch(f, i, s, touched_in, n_tensor);
        touch(f, f->index.gradient_root[i], s, touched_in, n_tensor);
        for (int slot = 0; slot < n_input; slot++) touch(f, input_of(f, i, slot), s, touched_in, n_tensor);
    }
    now->end_tensor = *n_tensor;
}

/* Facts take the lowest slot that is free when they are settled, and leave it when they were asked about
 * last. */
static void assign_slots(tandem_frontier *f, const fact *facts, int n_fact, int *in_slot, int n_slot,
                         int *touched_in)
{
    int next = 0, n_tensor = 0, n_carried = 0;
    for (int i = 0; i < f->step.graph->n_op; i++) touched_in[i] = -1;
    for (int slot = 0; slot < n_slot; slot++) in_slot[slot] = -1;
    for (int s = 0; s <= f->n_layer; s++) {
        stretch *now = &f->stretch[s];
        uint64_t *const touched = &f->touched[s * f->n_word], *const passed = &f->passed[s * f->n_word];
        touch_all(f, s, touched_in, &n_tensor);
        now->first_in = n_carried;
        for (int slot = 0; slot < n_slot; slot++) {
            if (in_slot[slot] < 0) continue;
            const fact *here = &facts[in_slot[slot]];
            if (touched_in[here->tensor] == s) {
                f->carried[n_carried++] = (carried){slot, here->tensor, here->role};
                touched[slot / 64] |= UINT64_C(1) << slot % 64;
            }
            if (here->last == s) in_slot[slot] = -1;
        }
        now->first_out = n_carried;
        for (int slot = 0; slot < n_slot; slot++) {
            if (in_slot[slot] < 0 && next < n_fact && facts[next].first == s) in_slot[slot] = next++;
            if (in_slot[slot] < 0) continue;
            const fact *here = &facts[in_slot[slot]];
            if (touched_in[here->tensor] == s)
                f->carried[n_carried++] = (carried){slot, here->tensor, here->role};
            else
                passed[slot / 64] |= UINT64_C(1) << slot % 64;
        }
        now->end = n_carried;
    }
}

static int lay_out(tandem_frontier *f)
{
    const size_t n_op = (size_t)f->step.graph->n_op, n_stretch = (size_t)f->n_layer + 1;
    const size_t most_touched = n_op * MOST_TOUCHED_BY_OP;
    fact *facts = malloc(n_op * N_ROLE * sizeof *facts);
    int *change = malloc((n_stretch + 1) * sizeof *change), *touched_in = malloc(n_op * sizeof *touched_in),
        *in_slot = NULL;
    int done = 0;
    if (!facts || !change || !touched_in) goto out;
    const int n_fact = find_carried(f, facts), n_slot = most_at_once(facts, n_fact, change, f->n_layer + 1);
    f->n_word = n_slot > 64 ? (n_slot + 63) / 64 : 1;
    in_slot = malloc(((size_t)n_slot + 1) * sizeof *in_slot);
    f->tensor = malloc(most_touched * sizeof *f->tensor);
    f->carried = malloc(2 * most_touched * N_ROLE * sizeof *f->carried);
    f->touched = calloc(n_stretch * (size_t)f->n_word, sizeof *f->touched);
    f->passed = calloc(n_stretch * (size_t)f->n_word, sizeof *f->passed);
    if (!in_slot || !f->tensor || !f->carried || !f->touched || !f->passed) goto out;
    assign_slots(f, facts, n_fact, in_slot, n_slot, touched_in);
    done = 1;
out:
    free(in_slot);
    free(touched_in);
    free(change);
    free(facts);
    return done;
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static void find_stretches(tandem_frontier *f)
{
    const tandem_graph *graph = f->step.graph;
    int s = 0;
    for (int i = 0; i < graph->n_op; i++) {
        if (tandem_op_row_get(graph->op[i].kind)->op_class == TANDEM_ADJUSTABLE) {
            f->stretch[s++].end_op = i;
            f->stretch[s].first_op = i;
        }
        f->stretch_of[i] = s;
    }
    f->stretch[s].end_op = graph->n_op;
}

static int count_layers(const tandem_graph *graph)
{
    int n = 0;
    for (int i = 0; i < graph->n_op; i++)
        n += tandem_op_row_get(graph->op[i].kind)->op_class == TANDEM_ADJUSTABLE;
    return n;
}

static int allocate(tandem_frontier *f)
{
    const size_t n_op = (size_t)f->step.graph->n_op, n_task = (size_t)f->step.n_task;
    f->stretch = calloc((size_t)f->n_layer + 1, sizeof *f->stretch);
    f->step.precision = calloc(n_op, sizeof *f->step.precision);
    f->step.native = calloc(n_op, sizeof *f->step.native);
    f->index.gradient_native = calloc(n_op, sizeof *f->index.gradient_native);
    f->natives = calloc(n_op, sizeof *f->natives);
    f->gradient_is_f32 = calloc(n_op, sizeof *f->gradient_is_f32);
    f->facts = calloc(n_op, sizeof *f->facts);
    f->first_follower = malloc(n_op * sizeof *f->first_follower);
    f->follower = malloc(n_task * sizeof *f->follower);
    f->stretch_of = malloc(n_op * sizeof *f->stretch_of);
    f->first_asked = malloc(n_op * N_ROLE * sizeof *f->first_asked);
    f->last_asked = malloc(n_op * N_ROLE * sizeof *f->last_asked);
    if (!f->first_asked || !f->last_asked) return 0;
    for (size_t k = 0; k < n_op * N_ROLE; k++) f->first_asked[k] = f->last_asked[k] = -1;
    return f->stretch && f->step.precision && f->step.native && f->index.gradient_native && f->natives &&
           f->gradient_is_f32 && f->facts && f->first_follower && f->follower && f->stretch_of;
}

tandem_status tandem_frontier_open(tandem_frontier **out, const tandem_step *step, const unsigned *allowed,
                                   tandem_error *error)
{
    tandem_frontier *f = calloc(1, sizeof *f);
    if (!f) goto no_memory;
    f->step = *step;
    f->index = *step->index;
    f->step.index = &f->index;
    f->n_layer = count_layers(step->graph);
    if (!allocate(f)) goto no_memory;
    find_stretches(f);
    find_followers(f);
    find_questions(f, allowed);
    if (!lay_out(f)) goto no_memory;
    *out = f;
    return TANDEM_OK;

no_memory:
    tandem_frontier_close(f);
    return tandem_error_set(error, TANDEM_NO_MEMORY,
                            "no memory for the frontier of model '%s' (%d operators)", step->graph->model,
                            step->graph->n_op);
}

void tandem_frontier_close(tandem_frontier *f)
{
    if (!f) return;
    free(f->last_asked);
    free(f->first_asked);
    free(f->stretch_of);
    free(f->follower);
    free(f->first_follower);
    free(f->facts);
    free(f->gradient_is_f32);
    free(f->natives);
    free(f->index.gradient_native);
    free(f->step.native);
    free(f->step.precision);
    free(f->passed);
    free(f->touched);
    free(f->carried);
    free(f->tensor);
    free(f->stretch);
    free(f);
}

int tandem_frontier_n_layer(const tandem_frontier *f) { return f->n_layer; }
int tandem_frontier_op(const tandem_frontier *f, int layer) { return f->stretch[layer + 1].first_op; }
int tandem_frontier_n_word(const tandem_frontier *f) { return f->n_word; }
const uint64_t *tandem_frontier_touched(const tandem_frontier *f, int s)
{
    return &f->touched[s * f->n_word];
}
const uint64_t *tandem_frontier_passed(const tandem_frontier *f, int s) { return &f->passed[s * f->n_word]; }
