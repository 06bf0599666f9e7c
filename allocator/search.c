/* search.c: moves, their measurement, and the way back. */
#include "allocator/search.h"
#include "allocator/policies.h"

#include <stdlib.h>
#include <string.h>

#include "graph/types.h"

enum { MAX_GROUP = 8 };

/* --- Moves ---------------------------------------------------------------------------------------------- */

unsigned tandem_search_precisions(const tandem_search *search, int op)
{
    const tandem_cluster *cluster = tandem_replayer_cluster(search->problem->replayer);
    return tandem_op_row_get(search->problem->graph->op[op].kind)->precisions &
           cluster->member[search->c].device.precisions;
}

static double harm_of(const tandem_search *search, int op, tandem_precision precision)
{
    return search->problem->harm[search->c][op * TANDEM_N_PRECISION + (int)precision];
}

/* Whether both read, write and keep as many bytes. */
static int weigh_alike(const tandem_precision_row *a, const tandem_precision_row *b)
{
    return tandem_dtype_bytes(a->forward) == tandem_dtype_bytes(b->forward) &&
           tandem_dtype_bytes(a->output) == tandem_dtype_bytes(b->output) && a->dgrad != TANDEM_WIDER &&
           b->dgrad != TANDEM_WIDER && tandem_dtype_bytes(a->dgrad) == tandem_dtype_bytes(b->dgrad);
}

/* Whether precision p of operator op does no less harm than q, and none of its products is faster, in any
 * company. */
static int is_outdone_by(const tandem_search *search, int op, tandem_precision p, tandem_precision q)
{
    const tandem_replayer *replayer = search->problem->replayer;
    const struct tandem_step_index *index = tandem_replayer_step(replayer, search->c)->index;
    const int task[] = {index->forward[op], index->wgrad[op], index->dgrad[op]};
    if (harm_of(search, op, q) > harm_of(search, op, p)) return 0;
    for (int k = 0; k < 3; k++)
        for (int beside = 0; task[k] >= 0 && beside < 2; beside++) {
            const tandem_dtype to_p = k == 0 ? tandem_precision_get(p)->output : TANDEM_F32,
                               to_q = k == 0 ? tandem_precision_get(q)->output : TANDEM_F32;
            const int form_p = N_NATIVE * (int)p + native_place(to_p),
                      form_q = N_NATIVE * (int)q + native_place(to_q);
            const int64_t ns_p = tandem_replayer_form_ns(replayer, search->c, task[k], form_p, beside);
            const int64_t ns_q = tandem_replayer_form_ns(replayer, search->c, task[k], form_q, beside);
            if (ns_p >= 0 && (ns_q < 0 || ns_q > ns_p)) return 0;
        }
    return 1;
}

/* The precisions to try: of two alike in bytes that are as fast, one: bf16 leads nowhere that fp16 does not
 * lead with less harm, nor tf32 where it saves no time. */
static unsigned worth_trying(const tandem_search *search, int op)
{
    const unsigned all = tandem_search_precisions(search, op);
    unsigned worth = all;
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        for (int q = 0; q < TANDEM_N_PRECISION && worth >> p & 1; q++)
            if (q != p && all >> p & 1 && worth >> q & 1 &&
                weigh_alike(tandem_precision_get((tandem_precision)p),
                            tandem_precision_get((tandem_precision)q)) &&
                is_outdone_by(search, op, (tandem_precision)p, (tandem_precision)q))
                worth &= ~(1u << p);
    return worth;
}

/* Lists of operators as they are found. A list may be dropped again where memory is out: `failed` says so. */
typedef struct group_list {
    tandem_search *search;
    int n_member, member_room, move_room;
    int failed;
} group_list;

static int *member_place(group_list *list, int n)
{
    if (list->n_member + n > list->member_room) {
        const int room = 2 * list->member_room + n;
        int *grown = realloc(list->search->move_op, (size_t)room * sizeof *grown);
        if (!grown) return NULL;
        list->search->move_op = grown;
        list->member_room = room;
    }
    return list->search->move_op + list->n_member;
}

static void add_group(group_list *list, const int *op, int n)
{
    tandem_search *search = list->search;
    int *slot = member_place(list, n);
    if (search->n_move + TANDEM_N_PRECISION > list->move_room) {
        const int room = 2 * list->move_room + TANDEM_N_PRECISION;
        tandem_move *grown = realloc(search->move, (size_t)room * sizeof *grown);
        if (grown) {
            search->move = grown;
            list->move_room = room;
        }
    }
    if (!slot || search->n_move + TANDEM_N_PRECISION > list->move_room) {
        list->failed = 1;
        return;
    }
    unsigned precisions = 0;
    for (int k = 0; k < n; k++) {
        slot[k] = op[k];
        precisions |= search->worth[op[k]];
    }
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (precisions & 1u << p)
            search->move[search->n_move++] = (tandem_move){
                .first = list->n_member, .n_op = n, .precision = (tandem_precision)p, .measured_at = -1};
    list->n_member += n;
}

/* Adjustable operators that read tensor t, with only dependent operators between: up to MAX_GROUP,
 * ascending. `seen` is [n_op] marks that are set to `mark`, and `pending` room for n_op operators. */
static int readers(const tandem_graph *graph, int t, int *op, int *seen, int mark, int *pending)
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
            if (op_class != TANDEM_ADJUSTABLE || n == MAX_GROUP) continue;
            int place = n++;
            for (; place > 0 && op[place - 1] > to; place--) op[place] = op[place - 1];
            op[place] = to;
        }
    }
    return n;
}

static void add_groups_of(group_list *list, int t, const int *reader, int n)
{
    const tandem_graph *graph = list->search->problem->graph;
    int all[MAX_GROUP + 1] = {t};
    memcpy(all + 1, reader, (size_t)n * sizeof *reader);
    if (n > 1) add_group(list, reader, n);
    if (tandem_op_row_get(graph->op[t].kind)->op_class != TANDEM_ADJUSTABLE) return;
    if (n > 1) add_group(list, all, n + 1);
    for (int k = 0; k < n; k++) add_group(list, (const int[]){t, reader[k]}, 2);
}

static int find_moves(tandem_search *search)
{
    const tandem_graph *graph = search->problem->graph;
    const size_t n_op = (size_t)search->n_op;
    group_list list = {.search = search};
    int reader[MAX_GROUP];
    int *seen = malloc((2 * n_op + 1) * sizeof *seen);
    if (!seen) return 0;
    for (int i = 0; i < search->n_op; i++) search->worth[i] = worth_trying(search, i);
    for (int i = 0; i < search->n_op; i++)
        if (tandem_op_row_get(graph->op[i].kind)->op_class == TANDEM_ADJUSTABLE) add_group(&list, &i, 1);
    for (size_t i = 0; i < n_op; i++) seen[i] = -1;
    for (int t = 0; t < search->n_op; t++)
        if (tandem_op_row_get(graph->op[t].kind)->op_class != TANDEM_DEPENDENT)
            add_groups_of(&list, t, reader, readers(graph, t, reader, seen, t, seen + n_op));
    free(seen);
    search->kept.move = malloc(((size_t)search->n_move + 1) * sizeof *search->move);
    return !list.failed && search->kept.move;
}

int tandem_search_overlap(const tandem_search *search, const tandem_move *a, const tandem_move *b)
{
    for (int i = 0; i < a->n_op; i++)
        for (int j = 0; j < b->n_op; j++)
            if (search->move_op[a->first + i] == search->move_op[b->first + j]) return 1;
    return 0;
}

/* --- Replays -------------------------------------------------------------------------------------------- */

static tandem_status replay(tandem_search *search, tandem_figures *figures, tandem_error *error)
{
    tandem_replay result;
    const unsigned flags = search->weighs ? TANDEM_REPLAY_MEMORY : 0;
    search->replays++;
    const tandem_status status = tandem_replayer_run(search->problem->replayer, &result, flags, error);
    if (status != TANDEM_OK) return status;
    const uint64_t peak_bytes = result.member[search->c].peak_bytes; /* 0 where it is not weighed */
    figures->step_ns = result.step_ns;
    figures->busy_ns = result.member[search->c].busy_ns;
    figures->excess_bytes =
        search->limit_bytes && peak_bytes > search->limit_bytes ? peak_bytes - search->limit_bytes : 0;
    if (search->weighs && peak_bytes < search->smallest_bytes) search->smallest_bytes = peak_bytes;
    if (search->weighs && peak_bytes > search->largest_bytes) search->largest_bytes = peak_bytes;
    return TANDEM_OK;
}

/* What operator `op` has after the move. */
static tandem_precision after(const tandem_search *search, const tandem_move *move, int op)
{
    return tandem_search_precisions(search, op) & 1u << move->precision ? move->precision : search->now[op];
}

static void set(tandem_search *search, int op, tandem_precision precision)
{
    if (tandem_op_row_get(search->problem->graph->op[op].kind)->op_class == TANDEM_ADJUSTABLE)
        tandem_replayer_set(search->problem->replayer, search->c, op, precision);
}

tandem_status tandem_search_measure(tandem_search *search, tandem_move *move, tandem_error *error)
{
    const int *op = search->move_op + move->first;
    int changes = 0;
    double gain = 0;
    move->measured_at = search->n_change;
    move->possible = 0;
    for (int k = 0; k < move->n_op; k++) {
        const tandem_precision precision = after(search, move, op[k]);
        changes += precision != search->now[op[k]];
        gain += harm_of(search, op[k], search->now[op[k]]) - harm_of(search, op[k], precision);
    }
    if (!changes) return TANDEM_OK;
    for (int k = 0; k < move->n_op; k++) set(search, op[k], after(search, move, op[k]));
    tandem_error why = {0};
    const tandem_status status = replay(search, &move->after, &why);
    for (int k = 0; k < move->n_op; k++) set(search, op[k], search->now[op[k]]);
    if (status != TANDEM_OK && status != TANDEM_MISSING && error) *error = why;
    if (status != TANDEM_OK) return status == TANDEM_MISSING ? TANDEM_OK : status;
    move->after.harm = search->figures.harm - gain;
    move->avoided = gain;
    move->longer_ns = move->after.busy_ns - search->figures.busy_ns;
    move->possible = 1;
    return TANDEM_OK;
}

tandem_status tandem_search_measure_all(tandem_search *search, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int m = 0; m < search->n_move && status == TANDEM_OK; m++)
        if (search->move[m].measured_at != search->n_change)
            status = tandem_search_measure(search, &search->move[m], error);
    return status;
}

static double total_harm(const tandem_search *search, const tandem_precision *precision)
{
    double sum = 0;
    for (int i = 0; i < search->n_op; i++) sum += harm_of(search, i, precision[i]);
    return sum;
}

void tandem_search_make(tandem_search *search, const tandem_move *move)
{
    const int *op = search->move_op + move->first;
    for (int k = 0; k < move->n_op; k++) {
        search->now[op[k]] = after(search, move, op[k]);
        set(search, op[k], search->now[op[k]]);
    }
    search->figures = move->after;
    search->figures.harm = total_harm(search, search->now); /* not the sum of gains, which drifts */
    search->n_change++;
}

tandem_status tandem_search_go(tandem_search *search, const tandem_precision *precision, tandem_error *error)
{
    tandem_figures figures = {0};
    for (int i = 0; i < search->n_op; i++) set(search, i, precision[i]);
    const tandem_status status = replay(search, &figures, error);
    if (status != TANDEM_OK) {
        for (int i = 0; i < search->n_op; i++) set(search, i, search->now[i]);
        return status;
    }
    memmove(search->now, precision, (size_t)search->n_op * sizeof *precision);
    search->figures = figures;
    search->figures.harm = total_harm(search, precision);
    search->n_change++;
    return TANDEM_OK;
}

int tandem_search_is_roomy(const tandem_search *search)
{
    return search->limit_bytes == 0 || search->limit_bytes / 2 > search->largest_bytes;
}

tandem_status tandem_search_weigh(tandem_search *search, tandem_error *error)
{
    search->weighs = search->limit_bytes > 0;
    return search->weighs ? tandem_search_go(search, search->now, error) : TANDEM_OK;
}

void tandem_search_keep(tandem_search *search)
{
    memcpy(search->kept.now, search->now, (size_t)search->n_op * sizeof *search->now);
    memcpy(search->kept.move, search->move, (size_t)search->n_move * sizeof *search->move);
    search->kept.figures = search->figures;
    search->kept.n_change = search->n_change;
}

void tandem_search_return(tandem_search *search)
{
    memcpy(search->now, search->kept.now, (size_t)search->n_op * sizeof *search->now);
    memcpy(search->move, search->kept.move, (size_t)search->n_move * sizeof *search->move);
    search->figures = search->kept.figures;
    search->n_change = search->kept.n_change;
    for (int i = 0; i < search->n_op; i++) set(search, i, search->now[i]);
}

/* --- Life ----------------------------------------------------------------------------------------------- */

tandem_status tandem_search_open(tandem_search *out, const tandem_allocation_problem *problem, int c,
                                 tandem_error *error)
{
    tandem_search search = {
        .problem = problem, .c = c, .n_op = problem->graph->n_op, .smallest_bytes = UINT64_MAX};
    search.limit_bytes = tandem_allocation_limit_bytes(problem, c);
    search.weighs = search.limit_bytes > 0;
    search.now = malloc(((size_t)search.n_op + 1) * sizeof *search.now);
    search.kept.now = malloc(((size_t)search.n_op + 1) * sizeof *search.now);
    search.worth = malloc(((size_t)search.n_op + 1) * sizeof *search.worth);
    tandem_status status = TANDEM_OK;
    if (!search.now || !search.kept.now || !search.worth || !find_moves(&search))
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to allocate model %s (%d operators)",
                                  problem->graph->model, search.n_op);
    for (int i = 0; i < search.n_op && status == TANDEM_OK; i++)
        search.now[i] = tandem_replayer_get(problem->replayer, c, i);
    if (status == TANDEM_OK) status = replay(&search, &search.figures, error);
    if (status != TANDEM_OK) {
        tandem_search_close(&search);
        return status;
    }
    search.figures.harm = total_harm(&search, search.now);
    *out = search;
    return TANDEM_OK;
}

void tandem_search_close(tandem_search *search)
{
    free(search->worth);
    free(search->kept.move);
    free(search->kept.now);
    free(search->move);
    free(search->move_op);
    free(search->now);
    *search = (tandem_search){0};
}
