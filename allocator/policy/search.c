/* search.c: finds the moves of a class, evaluates them by replays, and rolls them back. */
#include "allocator/policy/search.h"
#include "allocator/problem.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_GROUP_OPS = 8 };

/* --- Moves ---------------------------------------------------------------------------------------------- */

static int64_t search_sensitivity_of(const tandem_search *search, int op, tandem_precision precision)
{
    return tandem_op_sensitivity(search->problem, search->c, op, precision);
}

static int are_as_wide(tandem_dtype a, tandem_dtype b)
{
    enum { WHOLE_BLOCKS = 1024 };
    return tandem_dtype_size(a, WHOLE_BLOCKS) == tandem_dtype_size(b, WHOLE_BLOCKS);
}

/* Whether both read, write and keep as many bytes. */
static int have_equal_bytes(const tandem_precision_row *a, const tandem_precision_row *b)
{
    return are_as_wide(a->forward, b->forward) && are_as_wide(a->output, b->output) &&
           a->dgrad != TANDEM_AMP && b->dgrad != TANDEM_AMP && are_as_wide(a->dgrad, b->dgrad);
}

/* Whether precision p of the operator has no less sensitivity than q and no product of it is faster,
 * contended or alone. */
static int is_dominated_by(const tandem_search *search, int op, tandem_precision p, tandem_precision q)
{
    const tandem_replayer *replayer = search->problem->replayer;
    const tandem_step *step = tandem_replayer_step(replayer, search->c);
    const tandem_op_tasks tasks = tandem_step_op_tasks(step, op);
    tandem_attention attention;
    if (tandem_step_may_fuse(step, op, &attention)) return 0; /* the other product's precision decides, too */
    const int task[] = {tasks.forward, tasks.wgrad, tasks.dgrad};
    if (search_sensitivity_of(search, op, q) > search_sensitivity_of(search, op, p)) return 0;
    for (int k = 0; k < 3; k++)
        for (int contended = 0; task[k] >= 0 && contended < 2; contended++) {
            const tandem_dtype to_p = k == 0 ? tandem_precision_get(p)->output : TANDEM_F32,
                               to_q = k == 0 ? tandem_precision_get(q)->output : TANDEM_F32;
            const int64_t ns_p = tandem_replayer_variant_ns(replayer, search->c, task[k],
                                                            tandem_precision_variant(p, to_p), contended);
            const int64_t ns_q = tandem_replayer_variant_ns(replayer, search->c, task[k],
                                                            tandem_precision_variant(q, to_q), contended);
            if (ns_p >= 0 && (ns_q < 0 || ns_q > ns_p)) return 0;
        }
    return 1;
}

/* The precisions that moves try. Of two with equal bytes it leaves out a dominated one: bf16 where fp16 is as
 * fast, tf32 where it saves no time. */
static unsigned find_candidate_precisions(const tandem_search *search, int op)
{
    const unsigned all = tandem_op_precisions(search->problem, search->c, op);
    unsigned candidates = all;
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        for (int q = 0; q < TANDEM_N_PRECISION && candidates >> p & 1; q++)
            if (q != p && all >> p & 1 && candidates >> q & 1 &&
                have_equal_bytes(tandem_precision_get((tandem_precision)p),
                                 tandem_precision_get((tandem_precision)q)) &&
                is_dominated_by(search, op, (tandem_precision)p, (tandem_precision)q))
                candidates &= ~(1u << p);
    return candidates;
}

/* Lists of operators as they are found. failed: memory ran out. */
typedef struct group_list {
    tandem_search *search;
    int n_move_op, op_capacity, move_capacity;
    int failed;
} group_list;

static int *reserve_move_ops(group_list *list, int n)
{
    if (list->n_move_op + n > list->op_capacity) {
        const int capacity = 2 * list->op_capacity + n;
        int *grown = realloc(list->search->move_op, (size_t)capacity * sizeof *grown);
        if (!grown) return NULL;
        list->search->move_op = grown;
        list->op_capacity = capacity;
    }
    return list->search->move_op + list->n_move_op;
}

static void add_move_group(group_list *list, const int *op, int n)
{
    tandem_search *search = list->search;
    int *slot = reserve_move_ops(list, n);
    if (search->n_move + TANDEM_N_PRECISION > list->move_capacity) {
        const int capacity = 2 * list->move_capacity + TANDEM_N_PRECISION;
        tandem_move *grown = realloc(search->move, (size_t)capacity * sizeof *grown);
        if (grown) {
            search->move = grown;
            list->move_capacity = capacity;
        }
    }
    if (!slot || search->n_move + TANDEM_N_PRECISION > list->move_capacity) {
        list->failed = 1;
        return;
    }
    unsigned precisions = 0;
    for (int k = 0; k < n; k++) {
        slot[k] = op[k];
        precisions |= search->candidates[op[k]];
    }
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (precisions & 1u << p)
            search->move[search->n_move++] = (tandem_move){
                .first = list->n_move_op, .n_op = n, .precision = (tandem_precision)p, .evaluated_at = -1};
    list->n_move_op += n;
}

/* Adjustable operators that read tensor t, with only dependent operators between them: at most MAX_GROUP_OPS,
 * ascending. `seen` has n_op marks, which are set to `mark`; `pending` has space for n_op operators. */
static int find_adjustable_readers(const tandem_graph *graph, int t, int *op, int *seen, int mark,
                                   int *pending)
{
    int n = 0, n_pending = 0;
    pending[n_pending++] = t;
    while (n_pending > 0) {
        const int from = pending[--n_pending];
        for (int k = graph->consumer_start[from]; k < graph->consumer_start[from + 1]; k++) {
            const int to = graph->consumer[k];
            const tandem_op_class op_class = tandem_op_row_get(graph->op[to].kind)->op_class;
            if (seen[to] == mark) continue;
            seen[to] = mark;
            if (op_class == TANDEM_DEPENDENT) pending[n_pending++] = to;
            if (op_class != TANDEM_ADJUSTABLE || n == MAX_GROUP_OPS) continue;
            int position = n++;
            for (; position > 0 && op[position - 1] > to; position--) op[position] = op[position - 1];
            op[position] = to;
        }
    }
    return n;
}

static void add_reader_groups(group_list *list, int t, const int *reader, int n)
{
    const tandem_graph *graph = list->search->problem->graph;
    int all[MAX_GROUP_OPS + 1] = {t};
    memcpy(all + 1, reader, (size_t)n * sizeof *reader);
    if (n > 1) add_move_group(list, reader, n);
    if (!tandem_op_is_adjustable(&graph->op[t])) return;
    if (n > 1) add_move_group(list, all, n + 1);
    for (int k = 0; k < n; k++) add_move_group(list, (const int[]){t, reader[k]}, 2);
}

/* Both products of an attention, which is one task where they have the same precision. */
static void add_attention_groups(group_list *list)
{
    const tandem_search *search = list->search;
    for (int i = 0; i < search->n_op; i++) {
        tandem_attention a;
        if (tandem_step_may_fuse(tandem_replayer_step(search->problem->replayer, search->c), i, &a) &&
            a.mix == i)
            add_move_group(list, (const int[]){a.scores, a.mix}, 2);
    }
}

static int find_all_moves(tandem_search *search)
{
    const tandem_graph *graph = search->problem->graph;
    const size_t n_op = (size_t)search->n_op;
    group_list list = {.search = search};
    int reader[MAX_GROUP_OPS];
    int *seen = malloc((2 * n_op + 1) * sizeof *seen);
    if (!seen) return 0;
    for (int i = 0; i < search->n_op; i++) search->candidates[i] = find_candidate_precisions(search, i);
    for (int i = 0; i < search->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i])) add_move_group(&list, &i, 1);
    add_attention_groups(&list);
    for (size_t i = 0; i < n_op; i++) seen[i] = -1;
    for (int t = 0; t < search->n_op; t++)
        if (tandem_op_row_get(graph->op[t].kind)->op_class != TANDEM_DEPENDENT)
            add_reader_groups(&list, t, reader,
                              find_adjustable_readers(graph, t, reader, seen, t, seen + n_op));
    free(seen);
    search->snapshot.move = malloc(((size_t)search->n_move + 1) * sizeof *search->move);
    return !list.failed && search->snapshot.move;
}

int tandem_search_overlap(const tandem_search *search, const tandem_move *a, const tandem_move *b)
{
    for (int i = 0; i < a->n_op; i++)
        for (int j = 0; j < b->n_op; j++)
            if (search->move_op[a->first + i] == search->move_op[b->first + j]) return 1;
    return 0;
}

/* --- Replays -------------------------------------------------------------------------------------------- */

static tandem_status replay_search(tandem_search *search, tandem_plan_metrics *metrics, tandem_error *error)
{
    tandem_replay result;
    const unsigned flags = search->should_plan_memory ? TANDEM_REPLAY_MEMORY : 0;
    search->replays++;
    const tandem_status status = tandem_replayer_run(search->problem->replayer, &result, flags, error);
    if (status != TANDEM_OK) return status;
    const uint64_t peak_bytes = result.classes[search->c].peak_bytes; /* 0 without memory planning */
    metrics->step_ns = result.step_ns;
    metrics->busy_ns = result.classes[search->c].busy_ns;
    metrics->excess_bytes =
        search->limit_bytes && peak_bytes > search->limit_bytes ? peak_bytes - search->limit_bytes : 0;
    if (search->should_plan_memory && peak_bytes < search->min_peak_bytes)
        search->min_peak_bytes = peak_bytes;
    if (search->should_plan_memory && peak_bytes > search->max_peak_bytes)
        search->max_peak_bytes = peak_bytes;
    return TANDEM_OK;
}

/* The operator's precision after the move. */
static tandem_precision precision_after_move(const tandem_search *search, const tandem_move *move, int op)
{
    return tandem_op_precisions(search->problem, search->c, op) & 1u << move->precision ? move->precision
                                                                                        : search->current[op];
}

static void search_set_precision(tandem_search *search, int op, tandem_precision precision)
{
    if (tandem_op_is_adjustable(&search->problem->graph->op[op]))
        tandem_replayer_set(search->problem->replayer, search->c, op, precision);
}

tandem_status tandem_search_evaluate(tandem_search *search, tandem_move *move, tandem_error *error)
{
    const int *op = search->move_op + move->first;
    int n_changed = 0;
    int64_t gain = 0;
    move->evaluated_at = search->n_change;
    move->is_possible = 0;
    for (int k = 0; k < move->n_op; k++) {
        const tandem_precision precision = precision_after_move(search, move, op[k]);
        n_changed += precision != search->current[op[k]];
        gain += search_sensitivity_of(search, op[k], search->current[op[k]]) -
                search_sensitivity_of(search, op[k], precision);
    }
    if (!n_changed) return TANDEM_OK;
    for (int k = 0; k < move->n_op; k++)
        search_set_precision(search, op[k], precision_after_move(search, move, op[k]));
    tandem_error why = {0};
    const tandem_status status = replay_search(search, &move->after, &why);
    for (int k = 0; k < move->n_op; k++) search_set_precision(search, op[k], search->current[op[k]]);
    if (status != TANDEM_OK && status != TANDEM_MISSING && error) *error = why;
    if (status != TANDEM_OK) return status == TANDEM_MISSING ? TANDEM_OK : status;
    move->after.sensitivity = search->metrics.sensitivity - gain;
    move->sensitivity_saved = gain;
    move->busy_delta_ns = move->after.busy_ns - search->metrics.busy_ns;
    move->is_possible = 1;
    return TANDEM_OK;
}

tandem_status tandem_search_evaluate_all(tandem_search *search, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int m = 0; m < search->n_move && status == TANDEM_OK; m++)
        if (search->move[m].evaluated_at != search->n_change)
            status = tandem_search_evaluate(search, &search->move[m], error);
    return status;
}

static int64_t total_sensitivity(const tandem_search *search, const tandem_precision *precision)
{
    int64_t sum = 0;
    for (int i = 0; i < search->n_op; i++) sum += search_sensitivity_of(search, i, precision[i]);
    return sum;
}

void tandem_search_apply(tandem_search *search, const tandem_move *move)
{
    const int *op = search->move_op + move->first;
    for (int k = 0; k < move->n_op; k++) {
        search->current[op[k]] = precision_after_move(search, move, op[k]);
        search_set_precision(search, op[k], search->current[op[k]]);
    }
    search->metrics = move->after;
    /* summed again: a sum of gains drifts */
    search->metrics.sensitivity = total_sensitivity(search, search->current);
    search->n_change++;
}

tandem_status tandem_search_set_plan(tandem_search *search, const tandem_precision *precision,
                                     tandem_error *error)
{
    tandem_plan_metrics metrics = {0};
    tandem_replayer_load_class(search->problem->replayer, search->c, precision);
    const tandem_status status = replay_search(search, &metrics, error);
    if (status != TANDEM_OK) {
        tandem_replayer_load_class(search->problem->replayer, search->c, search->current);
        return status;
    }
    memmove(search->current, precision, (size_t)search->n_op * sizeof *precision);
    search->metrics = metrics;
    search->metrics.sensitivity = total_sensitivity(search, precision);
    search->n_change++;
    return TANDEM_OK;
}

int tandem_search_has_ample_memory(const tandem_search *search)
{
    return search->limit_bytes == 0 || search->limit_bytes / 2 > search->max_peak_bytes;
}

tandem_status tandem_search_enable_memory(tandem_search *search, tandem_error *error)
{
    search->should_plan_memory = search->limit_bytes > 0;
    return search->should_plan_memory ? tandem_search_set_plan(search, search->current, error) : TANDEM_OK;
}

void tandem_search_snapshot(tandem_search *search)
{
    memcpy(search->snapshot.current, search->current, (size_t)search->n_op * sizeof *search->current);
    memcpy(search->snapshot.move, search->move, (size_t)search->n_move * sizeof *search->move);
    search->snapshot.metrics = search->metrics;
    search->snapshot.n_change = search->n_change;
}

void tandem_search_rollback(tandem_search *search)
{
    memcpy(search->current, search->snapshot.current, (size_t)search->n_op * sizeof *search->current);
    memcpy(search->move, search->snapshot.move, (size_t)search->n_move * sizeof *search->move);
    search->metrics = search->snapshot.metrics;
    search->n_change = search->snapshot.n_change;
    tandem_replayer_load_class(search->problem->replayer, search->c, search->current);
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

tandem_status tandem_search_open(tandem_search *out, const tandem_allocation_problem *problem, int c,
                                 tandem_error *error)
{
    tandem_search search = {
        .problem = problem, .c = c, .n_op = problem->graph->n_op, .min_peak_bytes = UINT64_MAX};
    search.limit_bytes = tandem_allocation_limit_bytes(problem, c);
    search.should_plan_memory = search.limit_bytes > 0;
    search.current = malloc(((size_t)search.n_op + 1) * sizeof *search.current);
    search.snapshot.current = malloc(((size_t)search.n_op + 1) * sizeof *search.current);
    search.candidates = malloc(((size_t)search.n_op + 1) * sizeof *search.candidates);
    tandem_status status = TANDEM_OK;
    if (!search.current || !search.snapshot.current || !search.candidates || !find_all_moves(&search))
        status = tandem_no_memory(error, "to allocate model %s (%d operators)", problem->graph->model,
                                  search.n_op);
    if (status == TANDEM_OK)
        memcpy(search.current, tandem_replayer_step(problem->replayer, c)->precision,
               (size_t)search.n_op * sizeof *search.current);
    if (status == TANDEM_OK) status = replay_search(&search, &search.metrics, error);
    if (status != TANDEM_OK) {
        tandem_search_close(&search);
        return status;
    }
    search.metrics.sensitivity = total_sensitivity(&search, search.current);
    *out = search;
    return TANDEM_OK;
}

void tandem_search_close(tandem_search *search)
{
    free(search->candidates);
    free(search->snapshot.move);
    free(search->snapshot.current);
    free(search->move);
    free(search->move_op);
    free(search->current);
    *search = (tandem_search){0};
}
