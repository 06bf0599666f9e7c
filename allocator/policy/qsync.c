/* qsync.c: the published policy, for comparison. Source: the allocator of QSync, IPDPS 2024.
 *
 * The fastest class in base plays the training device. It keeps the base, unless it exceeds its memory or the
 * target cannot be met. Every other class gets a plan of its own, in two stages:
 *
 * 1. Initial setting, block by block. A block is a part of the graph between two points that only one tensor
 *    crosses. Parts without adjustable operators belong to the block before. The policy replays every
 *    combination of precisions in a block and keeps the one with the shortest busy time of the class. Blocks
 *    of the same operators get the same precisions. In a block with too many combinations all operators get
 *    one precision. If the class then exceeds its memory, operators are lowered until it fits, the least
 *    sensitive first.
 * 2. Recovery. A queue orders all operators by the sensitivity that their next wider precision saves, most
 *    first. The policy raises each one and replays the step. If the step exceeds the target or the memory,
 *    the operator is set back and left alone. Otherwise it is queued again with its next gain.
 *
 * The target is the step of the initial setting times 1 + slowdown, unless one is given.
 *
 * The released code differs in these points, so this file follows the paper:
 * - It subtracts the narrower precision's indicator from the wider one's, so its queue begins with the least
 *   sensitive operator. For the narrowest precision it uses the widest one's indicator.
 * - A rejected raise stays in the graph on which later ones are tried.
 * - It looks up a block's time without the blocks around it.
 * - Memory is a sum of fp32 sizes with weights, by operator.
 * - One plan serves all inference devices, of which there is one kind. */
#include "allocator/policies.h"
#include "base/quantity.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COMBINATIONS = 4096, MAX_BLOCK_ADJUSTABLE = 12 }; /* of a block, tried one by one */

typedef struct qsync_state {
    const tandem_allocation_problem *problem;
    const tandem_graph *graph; /* kinds and edges are the same in every class */
    int n_class;
    unsigned lowered;          /* bit c: class c gets a plan of its own */
    int *block_start, n_block; /* [n_block + 1] operators */
    tandem_precision *best;    /* [n_op] */
    struct qsync_raise *raise; /* [n_class × n_op] */
    uint64_t min_peak_bytes[TANDEM_MAX_CLASS];
    unsigned with_memory; /* TANDEM_REPLAY_MEMORY where a class has a limit, else 0 */
    tandem_replay last_replay;
    int64_t replays;
} qsync_state;

static tandem_precision qsync_get_precision(const qsync_state *q, int c, int op)
{
    return tandem_replayer_get(q->problem->replayer, c, op);
}

static void qsync_set_precision(qsync_state *q, int c, int op, tandem_precision precision)
{
    if (tandem_op_is_adjustable(&q->graph->op[op]))
        tandem_replayer_set(q->problem->replayer, c, op, precision);
}

/* *found = 0, without an error: a cost is missing. */
static tandem_status qsync_replay(qsync_state *q, unsigned flags, int *found, tandem_error *error)
{
    tandem_error why = {0};
    const tandem_status status = tandem_replayer_run(q->problem->replayer, &q->last_replay, flags, &why);
    q->replays++;
    *found = status == TANDEM_OK;
    if (status == TANDEM_OK || status == TANDEM_MISSING) return TANDEM_OK;
    return tandem_error_forward(status, &why, error);
}

/* Bytes of class c over its limit in the last replay. */
static uint64_t qsync_excess_bytes(qsync_state *q, int c)
{
    const uint64_t peak_bytes = q->last_replay.classes[c].peak_bytes;
    if (peak_bytes < q->min_peak_bytes[c]) q->min_peak_bytes[c] = peak_bytes;
    return tandem_allocation_excess_bytes(q->problem, c, peak_bytes);
}

/* --- Blocks --------------------------------------------------------------------------------------------- */

static int find_last_consumer(const tandem_graph *graph, int t)
{
    const int end = graph->consumer_start[t + 1];
    return end > graph->consumer_start[t] ? graph->consumer[end - 1] : t;
}

/* A block ends after an operator whose output is all that later ones read, apart from sources. */
static void find_blocks(qsync_state *q)
{
    int reach = -1, has_adjustable = 0, n = 0;
    q->block_start[0] = 0;
    for (int i = 0; i < q->graph->n_op; i++) {
        const int ends = reach <= i && i + 1 < q->graph->n_op;
        has_adjustable |= tandem_op_is_adjustable(&q->graph->op[i]);
        if (tandem_op_row_get(q->graph->op[i].kind)->op_class != TANDEM_SOURCE &&
            find_last_consumer(q->graph, i) > reach)
            reach = find_last_consumer(q->graph, i);
        if (!ends) continue;
        if (has_adjustable || n == 0)
            q->block_start[++n] = i + 1;
        else
            q->block_start[n] = i + 1; /* belongs to the block before */
        has_adjustable = 0;
    }
    if (has_adjustable || n == 0) n++;
    q->block_start[n] = q->graph->n_op;
    q->n_block = n;
}

static int are_blocks_alike(const qsync_state *q, int a, int b)
{
    const int first = q->block_start[a], other = q->block_start[b], n = q->block_start[a + 1] - first;
    if (q->block_start[b + 1] - other != n) return 0;
    for (int i = 0; i < n; i++) {
        const tandem_op *x = &q->graph->op[first + i], *y = &q->graph->op[other + i];
        if (strcmp(x->signature, y->signature) != 0) return 0;
        for (int k = 0; k < TANDEM_MAX_INPUT; k++)
            if ((x->input[k] < 0) != (y->input[k] < 0) ||
                (x->input[k] >= 0 && x->input[k] - first != y->input[k] - other))
                return 0;
    }
    return 1;
}

/* --- Initial setting ------------------------------------------------------------------------------------ */

/* Saves the block's precisions in `best` if the class is busy for a shorter time. */
static tandem_status keep_block_if_faster(qsync_state *q, int c, int begin, int end, int64_t *best_ns,
                                          tandem_error *error)
{
    int found;
    const tandem_status status = qsync_replay(q, 0, &found, error);
    if (status != TANDEM_OK || !found || q->last_replay.classes[c].busy_ns >= *best_ns) return status;
    *best_ns = q->last_replay.classes[c].busy_ns;
    for (int i = begin; i < end; i++) q->best[i] = qsync_get_precision(q, c, i);
    return TANDEM_OK;
}

static int narrowest_precision(unsigned precisions)
{
    int p = TANDEM_N_PRECISION - 1;
    while (p > 0 && !(precisions & 1u << p)) p--;
    return p;
}

/* The next wider precision that exists; −1: none. */
static int next_wider_precision(unsigned precisions, int precision)
{
    int p = precision - 1;
    while (p >= 0 && !(precisions & 1u << p)) p--;
    return p;
}

/* Tries every combination of the n operators' precisions, from the narrowest on. */
static tandem_status try_combinations(qsync_state *q, int c, const int *op, int n, int begin, int end,
                                      int64_t *best_ns, tandem_error *error)
{
    for (int k = 0; k < n; k++)
        qsync_set_precision(
            q, c, op[k], (tandem_precision)narrowest_precision(tandem_op_precisions(q->problem, c, op[k])));
    for (;;) {
        const tandem_status status = keep_block_if_faster(q, c, begin, end, best_ns, error);
        if (status != TANDEM_OK) return status;
        int k = n - 1;
        for (; k >= 0; k--) {
            const unsigned precisions = tandem_op_precisions(q->problem, c, op[k]);
            const int next = next_wider_precision(precisions, (int)qsync_get_precision(q, c, op[k]));
            qsync_set_precision(q, c, op[k],
                                (tandem_precision)(next >= 0 ? next : narrowest_precision(precisions)));
            if (next >= 0) break;
        }
        if (k < 0) return TANDEM_OK;
    }
}

static tandem_status try_uniform_block(qsync_state *q, tandem_plan *plan, int c, int begin, int end,
                                       int64_t *best_ns, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int p = TANDEM_N_PRECISION - 1; p >= 0 && status == TANDEM_OK; p--) {
        if (tandem_plan_uniform(plan, q->graph, c, (tandem_precision)p, NULL) != TANDEM_OK) continue;
        for (int i = begin; i < end; i++) qsync_set_precision(q, c, i, plan->assignment.precision[c][i]);
        status = keep_block_if_faster(q, c, begin, end, best_ns, error);
    }
    return status;
}

/* `plan` is overwritten. */
static tandem_status choose_block_precisions(qsync_state *q, tandem_plan *plan, int c, int block,
                                             tandem_error *error)
{
    const int begin = q->block_start[block], end = q->block_start[block + 1];
    int op[MAX_BLOCK_ADJUSTABLE], n = 0, n_combination = 1;
    int64_t best_ns = INT64_MAX;
    for (int twin = 0; twin < block; twin++)
        if (are_blocks_alike(q, block, twin)) {
            for (int i = begin; i < end; i++)
                qsync_set_precision(q, c, i, qsync_get_precision(q, c, q->block_start[twin] + i - begin));
            return TANDEM_OK;
        }
    for (int i = begin; i < end; i++) {
        q->best[i] = qsync_get_precision(q, c, i); /* stays if no combination was measured */
        if (!tandem_op_is_adjustable(&q->graph->op[i]) || n_combination > MAX_COMBINATIONS) continue;
        n_combination = n == MAX_BLOCK_ADJUSTABLE
                            ? INT_MAX
                            : n_combination * __builtin_popcount(tandem_op_precisions(q->problem, c, i));
        if (n < MAX_BLOCK_ADJUSTABLE) op[n++] = i;
    }
    const tandem_status status = n_combination <= MAX_COMBINATIONS
                                     ? try_combinations(q, c, op, n, begin, end, &best_ns, error)
                                     : try_uniform_block(q, plan, c, begin, end, &best_ns, error);
    for (int i = begin; i < end; i++) qsync_set_precision(q, c, i, q->best[i]);
    return status;
}

/* Lowers the operator of class c that adds least sensitivity. Returns 0 if none can be lowered. */
static int lower_least_sensitive_op(qsync_state *q, int c)
{
    int best = -1, to = 0;
    int64_t least = 0;
    for (int i = 0; i < q->graph->n_op; i++) {
        if (!tandem_op_is_adjustable(&q->graph->op[i])) continue;
        const unsigned precisions = tandem_op_precisions(q->problem, c, i);
        int p = (int)qsync_get_precision(q, c, i) + 1;
        while (p < TANDEM_N_PRECISION && !(precisions & 1u << p)) p++;
        if (p == TANDEM_N_PRECISION) continue;
        const int64_t more = tandem_op_sensitivity(q->problem, c, i, (tandem_precision)p) -
                             tandem_op_sensitivity(q->problem, c, i, qsync_get_precision(q, c, i));
        if (best >= 0 && more >= least) continue;
        best = i;
        to = p;
        least = more;
    }
    if (best >= 0) qsync_set_precision(q, c, best, (tandem_precision)to);
    return best >= 0;
}

/* Lowers class c until it fits its memory. Plans with missing costs are passed through, but none is the
 * result. */
static tandem_status lower_until_it_fits(qsync_state *q, int c, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int found = 0; status == TANDEM_OK;) {
        status = qsync_replay(q, q->with_memory, &found, error);
        if (status != TANDEM_OK || (found && qsync_excess_bytes(q, c) == 0)) break;
        if (!lower_least_sensitive_op(q, c))
            return tandem_allocation_infeasible(q->problem, c, q->min_peak_bytes[c], error);
    }
    return status;
}

/* Leaves the replay of the initial setting in q->last_replay. */
static tandem_status make_initial_setting(qsync_state *q, tandem_plan *plan, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < q->n_class && status == TANDEM_OK; c++) {
        if (!(q->lowered >> c & 1)) continue;
        for (int block = 0; block < q->n_block && status == TANDEM_OK; block++)
            status = choose_block_precisions(q, plan, c, block, error);
        if (status == TANDEM_OK) status = lower_until_it_fits(q, c, error);
    }
    if (status == TANDEM_OK)
        status = tandem_replayer_run(q->problem->replayer, &q->last_replay, q->with_memory, error);
    q->replays++;
    return status;
}

/* --- Recovery ------------------------------------------------------------------------------------------- */

/* Raising one operator of one class to its next wider precision. */
typedef struct qsync_raise {
    int c, op;
    tandem_precision to;
    int64_t gain; /* sensitivity saved, of the whole plan */
} qsync_raise;

/* Returns 0 if no wider precision has less sensitivity. */
static int find_next_raise(const qsync_state *q, int c, int op, qsync_raise *out)
{
    const unsigned precisions = tandem_op_precisions(q->problem, c, op);
    const tandem_precision now = qsync_get_precision(q, c, op);
    for (int p = next_wider_precision(precisions, (int)now); p >= 0;
         p = next_wider_precision(precisions, p)) {
        const int64_t gain = tandem_op_sensitivity(q->problem, c, op, now) -
                             tandem_op_sensitivity(q->problem, c, op, (tandem_precision)p);
        if (gain <= 0) continue;
        *out = (qsync_raise){c, op, (tandem_precision)p, gain};
        return 1;
    }
    return 0;
}

static int qsync_is_within_limits(qsync_state *q, int64_t target_ns)
{
    int fits = q->last_replay.step_ns <= target_ns;
    for (int c = 0; c < q->n_class; c++) fits &= qsync_excess_bytes(q, c) == 0;
    return fits;
}

static tandem_status raise_ops_by_sensitivity(qsync_state *q, int64_t target_ns, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int n = 0;
    for (int c = 0; c < q->n_class; c++)
        for (int i = 0; i < q->graph->n_op && (q->lowered >> c & 1); i++)
            if (tandem_op_is_adjustable(&q->graph->op[i])) n += find_next_raise(q, c, i, &q->raise[n]);
    while (n > 0 && status == TANDEM_OK) {
        int best = 0, found;
        for (int k = 1; k < n; k++)
            if (q->raise[k].gain > q->raise[best].gain) best = k;
        qsync_raise *const tried = &q->raise[best];
        const tandem_precision before = qsync_get_precision(q, tried->c, tried->op);
        qsync_set_precision(q, tried->c, tried->op, tried->to);
        status = qsync_replay(q, q->with_memory, &found, error);
        const int stays = status == TANDEM_OK && found && qsync_is_within_limits(q, target_ns);
        if (!stays) qsync_set_precision(q, tried->c, tried->op, before);
        if (!stays || !find_next_raise(q, tried->c, tried->op, tried)) {
            memmove(tried, tried + 1, (size_t)(n - best - 1) * sizeof *tried); /* ties stay in order */
            n--;
        }
    }
    return status;
}

/* --- The policy ----------------------------------------------------------------------------------------- */

/* All classes but the one that computes least in base; that one, too, if it does not fit. */
static unsigned find_classes_to_lower(const qsync_state *q)
{
    const unsigned all = tandem_all_classes(q->n_class);
    int fastest = 0;
    for (int c = 1; c < q->n_class; c++)
        if (q->last_replay.classes[c].busy_ns <= q->last_replay.classes[fastest].busy_ns) fastest = c;
    const uint64_t limit_bytes = tandem_allocation_limit_bytes(q->problem, fastest);
    if (q->n_class == 1 || (limit_bytes && q->last_replay.classes[fastest].peak_bytes > limit_bytes))
        return all;
    return all & ~(1u << fastest);
}

static tandem_status report_initial_too_slow(const qsync_state *q, tandem_error *error)
{
    return tandem_error_set(
        error, TANDEM_INFEASIBLE,
        "no plan reaches a step of %s: the initial setting of policy qsync takes %s (%" PRId64
        " ns) with every class lowered",
        tandem_quantity_ns(q->problem->target_ns).text, tandem_quantity_ns(q->last_replay.step_ns).text,
        q->last_replay.step_ns);
}

static tandem_status qsync_choose_plan(qsync_state *q, tandem_plan *plan, tandem_allocation *allocation,
                                       tandem_error *error)
{
    const int64_t asked_ns = q->problem->target_ns;
    const unsigned all = tandem_all_classes(q->n_class);
    tandem_status status = make_initial_setting(q, plan, error);
    if (status == TANDEM_OK && asked_ns && q->last_replay.step_ns > asked_ns && q->lowered != all) {
        q->lowered = all;
        status = make_initial_setting(q, plan, error);
    }
    if (status != TANDEM_OK) return status;
    allocation->fastest_ns = q->last_replay.step_ns;
    allocation->fastest_sensitivity_bound = tandem_allocation_sensitivity(q->problem);
    allocation->target_ns =
        asked_ns ? asked_ns
                 : q->last_replay.step_ns +
                       (int64_t)fmin((double)q->last_replay.step_ns * q->problem->slowdown, 0x1p61);
    allocation->keeps_base = all & ~q->lowered;
    if (q->last_replay.step_ns > allocation->target_ns) return report_initial_too_slow(q, error);
    return raise_ops_by_sensitivity(q, allocation->target_ns, error);
}

/* Replays every class in base. Close q after success and after an error. */
static tandem_status qsync_open(qsync_state *q, tandem_plan **plan, const tandem_allocation_problem *problem,
                                tandem_error *error)
{
    const size_t n_op = (size_t)problem->graph->n_op;
    const int n_class = tandem_replayer_cluster(problem->replayer)->n_class;
    *q = (qsync_state){.problem = problem, .graph = problem->graph, .n_class = n_class, .replays = 1};
    tandem_status status = tandem_allocation_replay_base(plan, &q->last_replay, problem, error);
    if (status != TANDEM_OK) return status;
    for (int c = 0; c < n_class; c++) {
        q->min_peak_bytes[c] = q->last_replay.classes[c].peak_bytes;
        if (tandem_allocation_limit_bytes(problem, c)) q->with_memory = TANDEM_REPLAY_MEMORY;
    }
    q->block_start = malloc((n_op + 2) * sizeof *q->block_start);
    q->best = malloc((n_op + 1) * sizeof *q->best);
    q->raise = malloc((n_op * (size_t)n_class + 1) * sizeof *q->raise);
    if (!q->block_start || !q->best || !q->raise)
        return tandem_no_memory(error, "to allocate %d operators", problem->graph->n_op);
    find_blocks(q);
    return TANDEM_OK;
}

static void qsync_close(qsync_state *q, tandem_plan *plan)
{
    free(q->raise);
    free(q->best);
    free(q->block_start);
    tandem_plan_close(plan);
}

static tandem_status allocate_qsync(const tandem_allocation_problem *problem, tandem_assignment *assignment,
                                    tandem_allocation *allocation, tandem_error *error)
{
    qsync_state q;
    tandem_plan *plan = NULL;
    tandem_status status = qsync_open(&q, &plan, problem, error);
    if (status == TANDEM_OK) {
        tandem_allocation result = {.base_ns = q.last_replay.step_ns,
                                    .base_sensitivity_bound = tandem_allocation_sensitivity(problem)};
        q.lowered = find_classes_to_lower(&q);
        status = qsync_choose_plan(&q, plan, &result, error);
        result.replays = q.replays;
        *allocation = result;
        tandem_replayer_store(problem->replayer, assignment);
    }
    qsync_close(&q, plan);
    return status;
}

tandem_status tandem_qsync_find_plan(const tandem_allocation_problem *problem, int64_t target_ns,
                                     unsigned keeps_base, int *found, int64_t *replays, tandem_error *error)
{
    qsync_state q;
    tandem_plan *plan = NULL;
    tandem_error why = {0};
    *found = 0;
    tandem_status status = qsync_open(&q, &plan, problem, &why);
    q.lowered = tandem_all_classes(q.n_class) & ~keeps_base;
    if (status == TANDEM_OK) status = make_initial_setting(&q, plan, &why);
    if (status == TANDEM_OK && qsync_is_within_limits(&q, target_ns)) {
        *found = 1;
        status = raise_ops_by_sensitivity(&q, target_ns, &why);
    }
    *replays += q.replays;
    qsync_close(&q, plan);
    if (status == TANDEM_OK || status == TANDEM_INFEASIBLE) return TANDEM_OK;
    return tandem_error_forward(status, &why, error);
}

const tandem_policy tandem_policy_qsync = {
    .name = "qsync",
    .meaning = "as published by QSync: the fastest precisions block by block, then the most sensitive "
               "operators raised",
    .slowdown_from = "its initial setting",
    .allocate = allocate_qsync,
};
