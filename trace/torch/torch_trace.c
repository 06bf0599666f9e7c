/* torch_trace.c: joins the traces of the ranks: steps, operators, collectives, and the rank that the others
 * wait for. */
#include "base/sort.h"
#include "tandem/advanced/torch_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/torch/torch_rank.h"

static const char *const pass_names[TANDEM_N_TORCH_PASS] = {"forward", "backward", "optimizer", "unknown"};

const char *tandem_torch_pass_name(tandem_torch_pass pass) { return pass_names[pass]; }

typedef struct torch_join {
    tandem_torch_summary *result;
    torch_rank *rank; /* [n_rank] in the order of the result */
    tandem_error *error;
} torch_join;

static tandem_status torch_no_memory(const torch_join *j)
{
    return tandem_no_memory(j->error, "to join the traces of %d ranks", j->result->n_rank);
}

/* --- Steps ---------------------------------------------------------------------------------------------- */

static tandem_status measure_torch_steps(const torch_join *j, int k)
{
    torch_rank *const rank = &j->rank[k];
    tandem_torch_rank *const result = &j->result->rank[k];
    const tandem_status status = torch_rank_measure_steps(rank, result, j->error);
    result->is_device = rank->n_kernel > 0;
    result->n_event = rank->n_event;
    result->n_incomplete = rank->n_incomplete;
    result->n_negative = rank->n_negative;
    result->n_overlapping = rank->n_overlapping;
    result->n_kernel = rank->n_kernel;
    for (int i = 0; i < rank->n_kernel; i++)
        torch_add_ns(&result->kernel_ns, rank->kernel[i].end_ns - rank->kernel[i].start_ns);
    result->n_device = rank->n_device;
    result->n_stream = rank->n_stream;
    result->left_out = rank->left_out;
    return status;
}

/* --- Operators ------------------------------------------------------------------------------------------ */

/* One row of one rank, before rows of all ranks are joined. */
typedef struct rank_row {
    uint64_t hash;
    int32_t rank, signature;
    tandem_torch_pass pass;
} rank_row;

static int by_rank_row(const void *left, const void *right)
{
    const rank_row *const a = left, *const b = right;
    int order = (a->hash > b->hash) - (a->hash < b->hash);
    if (!order) order = (a->pass > b->pass) - (a->pass < b->pass);
    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

static int has_cost(const tandem_torch_cost *cost) { return cost->calls > 0 || cost->device_ns > 0; }

static size_t gather_rank_rows(const torch_join *j, rank_row *row)
{
    size_t n = 0;
    for (int k = 0; k < j->result->n_rank; k++)
        for (int s = 0; s < j->rank[k].n_signature; s++)
            for (int pass = 0; pass < TANDEM_N_TORCH_PASS; pass++) {
                if (!has_cost(&j->rank[k].signature[s].cost[pass])) continue;
                if (row) row[n] = (rank_row){j->rank[k].signature[s].hash, k, s, (tandem_torch_pass)pass};
                n++;
            }
    return n;
}

/* On the device if there is one. */
static int64_t operator_step_cost_ns(const tandem_torch_summary *torch, const tandem_torch_cost *cost)
{
    return torch->is_device ? cost->step_device_ns : cost->step_self_ns;
}

static void add_cost(tandem_torch_cost *sum, const tandem_torch_cost *cost)
{
    sum->calls += cost->calls;
    sum->step_calls += cost->step_calls;
    torch_add_ns(&sum->total_ns, cost->total_ns);
    torch_add_ns(&sum->self_ns, cost->self_ns);
    torch_add_ns(&sum->device_ns, cost->device_ns);
    torch_add_ns(&sum->step_self_ns, cost->step_self_ns);
    torch_add_ns(&sum->step_device_ns, cost->step_device_ns);
}

static tandem_status open_operator(const torch_join *j, tandem_torch_operator *op, const rank_row *first)
{
    const torch_signature *const signature = &j->rank[first->rank].signature[first->signature];
    op->rank = calloc((size_t)j->result->n_rank, sizeof *op->rank);
    op->name = strdup(signature->name);
    op->signature = strdup(signature->detail);
    op->pass = first->pass;
    op->is_cast = signature->is_cast;
    return op->rank && op->name && op->signature ? TANDEM_OK : torch_no_memory(j);
}

/* Without a device all device times are 0. */
static int most_expensive_first(const void *left, const void *right)
{
    const tandem_torch_operator *const a = left, *const b = right;
    int order = TANDEM_ORDER(b->cost.step_device_ns, a->cost.step_device_ns);
    if (!order) order = TANDEM_ORDER(b->cost.step_self_ns, a->cost.step_self_ns);
    if (!order) order = TANDEM_ORDER(b->cost.step_calls, a->cost.step_calls);
    if (!order) order = TANDEM_ORDER(b->cost.device_ns, a->cost.device_ns);
    if (!order) order = TANDEM_ORDER(b->cost.self_ns, a->cost.self_ns);
    if (!order) order = strcmp(a->name, b->name);
    if (!order) order = strcmp(a->signature, b->signature);
    return order ? order : TANDEM_ORDER(a->pass, b->pass);
}

static tandem_status join_operators(const torch_join *j)
{
    tandem_torch_summary *const result = j->result;
    const size_t n = gather_rank_rows(j, NULL);
    rank_row *const row = malloc((n ? n : 1) * sizeof *row);
    tandem_status status = TANDEM_OK;
    result->operators = calloc(n ? n : 1, sizeof *result->operators);
    if (!row || !result->operators) {
        free(row);
        return torch_no_memory(j);
    }
    (void)gather_rank_rows(j, row);
    if (n) qsort(row, n, sizeof *row, by_rank_row);
    for (size_t k = 0; k < n && status == TANDEM_OK; k++) {
        if (k == 0 || row[k].hash != row[k - 1].hash || row[k].pass != row[k - 1].pass)
            status = open_operator(j, &result->operators[result->n_operator++], &row[k]);
        if (status != TANDEM_OK) break;
        tandem_torch_operator *const op = &result->operators[result->n_operator - 1];
        op->rank[row[k].rank] = j->rank[row[k].rank].signature[row[k].signature].cost[row[k].pass];
        add_cost(&op->cost, &op->rank[row[k].rank]);
    }
    free(row);
    if (status == TANDEM_OK && n)
        qsort(result->operators, (size_t)result->n_operator, sizeof *result->operators, most_expensive_first);
    return status;
}

/* --- Collectives ---------------------------------------------------------------------------------------- */

static int by_key_and_start(const void *left, const void *right)
{
    const torch_collective *const a = left, *const b = right;
    const int order = (a->key > b->key) - (a->key < b->key);
    return order ? order : (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

/* Whether a collective counts: of the source that counts, in a whole step. */
static int is_counted_collective(torch_rank *rank, const torch_collective *collective, int source)
{
    if (collective->source != source) return 0;
    if (rank->n_window == 0 || (collective->window >= 0 && !rank->window[collective->window].is_fragment))
        return 1;
    rank->left_out.n_collective_outside++;
    return 0;
}

/* Keeps collectives that count. Sequence numbers distinguish those of a group; without them, step and index
 * among equals do, which ends up in the key. */
static void number_collectives(torch_rank *rank)
{
    const int source = torch_rank_comm_source(rank);
    int n = 0;
    for (int k = 0; k < rank->n_collective; k++) {
        torch_collective collective = rank->collective[k];
        if (!is_counted_collective(rank, &collective, source)) continue;
        const uint64_t number =
            rank->n_window ? (uint64_t)rank->window[collective.window].number : UINT64_MAX;
        collective.key =
            (collective.key ^ (collective.sequence >= 0 ? ~(uint64_t)collective.sequence : number)) *
            UINT64_C(0x9e3779b97f4a7c15);
        rank->collective[n++] = collective;
    }
    rank->n_collective = n;
    if (n) qsort(rank->collective, (size_t)n, sizeof *rank->collective, by_key_and_start);
    for (int k = 0, number = 0; k < n; k++) {
        const uint64_t key = rank->collective[k].key;
        const int is_next_alike = k + 1 < n && rank->collective[k + 1].key == key;
        rank->collective[k].key = (key ^ (uint64_t)number) * UINT64_C(0xd6e8feb86659fd93);
        number = is_next_alike ? number + 1 : 0;
    }
}

typedef struct collective_part {
    uint64_t key;
    int64_t duration_ns;
    int32_t rank, signature;
    int has_sequence;
} collective_part;

static int by_collective_key(const void *left, const void *right)
{
    const collective_part *const a = left, *const b = right;
    const int order = (a->key > b->key) - (a->key < b->key);
    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

/* One joined collective, before rows are formed by operation and size. */
typedef struct joined_collective {
    uint64_t hash; /* of its signature */
    int64_t transfer_ns, wait_ns;
    int32_t rank, signature; /* where the signature is stored */
} joined_collective;

static int by_hash_transfer(const void *left, const void *right)
{
    const joined_collective *const a = left, *const b = right;
    const int order = (a->hash > b->hash) - (a->hash < b->hash);
    return order ? order : (a->transfer_ns > b->transfer_ns) - (a->transfer_ns < b->transfer_ns);
}

/* Joins the n parts of one collective and adds the waiting times of the ranks: sums, which become means
 * later. */
static joined_collective join_collective(const torch_join *j, const collective_part *part, int n)
{
    int last = 0;
    int64_t shortest_ns = part->duration_ns, second_ns = INT64_MAX, wait_ns = 0;
    for (int k = 1; k < n; k++) {
        if (part[k].duration_ns < shortest_ns) {
            second_ns = shortest_ns;
            shortest_ns = part[k].duration_ns;
            last = k;
        } else if (part[k].duration_ns < second_ns) {
            second_ns = part[k].duration_ns;
        }
    }
    for (int k = 0; k < n; k++) {
        torch_add_ns(&j->result->rank[part[k].rank].wait_ns, part[k].duration_ns - shortest_ns);
        torch_add_ns(&wait_ns, part[k].duration_ns - shortest_ns);
    }
    tandem_torch_rank *const late = &j->result->rank[part[last].rank];
    torch_add_ns(&late->late_ns, second_ns - shortest_ns);
    late->n_last += second_ns > shortest_ns;
    j->result->n_joined++;
    j->result->n_by_order += !part->has_sequence;
    return (joined_collective){.hash = j->rank[part->rank].signature[part->signature].hash,
                               .transfer_ns = shortest_ns,
                               .wait_ns = wait_ns,
                               .rank = part->rank,
                               .signature = part->signature};
}

static int by_falling_wait(const void *left, const void *right)
{
    const tandem_torch_collective *const a = left, *const b = right;
    const int order = (a->wait_ns < b->wait_ns) - (a->wait_ns > b->wait_ns);
    if (order) return order;
    const int names = strcmp(a->name, b->name);
    return names ? names : strcmp(a->signature, b->signature);
}

/* Forms one row per operation and size. */
static tandem_status gather_collectives(const torch_join *j, joined_collective *joined, size_t n)
{
    tandem_torch_summary *const result = j->result;
    qsort(joined, n, sizeof *joined, by_hash_transfer);
    size_t n_row = 0;
    for (size_t k = 0; k < n; k++) n_row += k == 0 || joined[k].hash != joined[k - 1].hash;
    result->collective = calloc(n_row, sizeof *result->collective);
    if (!result->collective) return torch_no_memory(j);
    for (size_t first = 0, end; first < n; first = end) {
        tandem_torch_collective *const row = &result->collective[result->n_collective++];
        const torch_signature *const signature =
            &j->rank[joined[first].rank].signature[joined[first].signature];
        for (end = first; end < n && joined[end].hash == joined[first].hash; end++)
            torch_add_ns(&row->wait_ns, joined[end].wait_ns);
        row->n = (int64_t)(end - first);
        row->transfer_ns = joined[first + (end - first - 1) / 2].transfer_ns;
        row->name = strdup(signature->name);
        row->signature = strdup(signature->detail);
        if (!row->name || !row->signature) return torch_no_memory(j);
    }
    qsort(result->collective, n_row, sizeof *result->collective, by_falling_wait);
    return TANDEM_OK;
}

static size_t gather_collective_parts(const torch_join *j, collective_part *to)
{
    size_t n = 0;
    for (int k = 0; k < j->result->n_rank; k++)
        for (int c = 0; c < j->rank[k].n_collective; c++, n++) {
            const torch_collective *const collective = &j->rank[k].collective[c];
            if (to)
                to[n] = (collective_part){collective->key, collective->duration_ns, k, collective->signature,
                                          collective->sequence >= 0};
        }
    return n;
}

static tandem_status join_collectives(const torch_join *j)
{
    tandem_torch_summary *const result = j->result;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < result->n_rank; k++) number_collectives(&j->rank[k]);
    const size_t n = gather_collective_parts(j, NULL);
    collective_part *const parts = malloc((n ? n : 1) * sizeof *parts);
    joined_collective *const joined = malloc((n ? n : 1) * sizeof *joined);
    size_t n_joined = 0;
    if (!parts || !joined) {
        status = torch_no_memory(j);
        goto out;
    }
    (void)gather_collective_parts(j, parts);
    if (n) qsort(parts, n, sizeof *parts, by_collective_key);
    for (size_t first = 0, end; first < n; first = end) {
        end = first + 1;
        while (end < n && parts[end].key == parts[first].key) end++;
        if (end - first > 1)
            joined[n_joined++] = join_collective(j, &parts[first], (int)(end - first));
        else
            result->rank[parts[first].rank].n_unjoined++;
    }
    if (n_joined) status = gather_collectives(j, joined, n_joined);
out:
    free(joined);
    free(parts);
    return status;
}

/* --- The slowest rank ----------------------------------------------------------------------------------- */

static void find_slowest(tandem_torch_summary *result)
{
    for (int k = 0; k < result->n_rank; k++) {
        tandem_torch_rank *const rank = &result->rank[k], *const slowest = &result->rank[result->slowest];
        rank->wait_ns /= rank->n_step;
        rank->late_ns /= rank->n_step;
        const int is_slower = result->n_joined ? rank->late_ns > slowest->late_ns
                                               : rank->mean.compute_ns > slowest->mean.compute_ns;
        if (is_slower) result->slowest = k;
    }
}

/* The operator on which the slowest rank exceeds the median of the others most. */
static tandem_status find_excess(const torch_join *j)
{
    tandem_torch_summary *const result = j->result;
    const int n_other = result->n_rank - 1;
    result->excess = -1;
    if (n_other == 0) return TANDEM_OK;
    int64_t *const other_ns = malloc((size_t)n_other * sizeof *other_ns);
    if (!other_ns) return torch_no_memory(j);
    for (int k = 0; k < result->n_operator; k++) {
        const tandem_torch_operator *const op = &result->operators[k];
        int n = 0;
        for (int rank = 0; rank < result->n_rank; rank++)
            if (rank != result->slowest)
                other_ns[n++] = operator_step_cost_ns(result, &op->rank[rank]) / result->rank[rank].n_step;
        tandem_sort_int64(other_ns, (size_t)n_other);
        const int64_t slowest_ns =
            operator_step_cost_ns(result, &op->rank[result->slowest]) / result->rank[result->slowest].n_step;
        const int64_t excess_ns = slowest_ns - other_ns[(n_other - 1) / 2];
        if (excess_ns <= result->excess_ns) continue;
        result->excess = k;
        result->excess_ns = excess_ns;
    }
    free(other_ns);
    return TANDEM_OK;
}

/* --- Files ---------------------------------------------------------------------------------------------- */

/* By rank if every file gives its rank; equal ranks are an error. */
static tandem_status sort_ranks(const torch_join *j)
{
    tandem_torch_summary *const result = j->result;
    for (int k = 0; k < result->n_rank; k++) {
        if (j->rank[k].rank >= 0 && j->rank[k].rank <= INT32_MAX) continue;
        for (int all = 0; all < result->n_rank; all++) j->rank[all].rank = all;
        break;
    }
    for (int k = 1; k < result->n_rank; k++)
        for (int at = k; at > 0 && j->rank[at].rank <= j->rank[at - 1].rank; at--) {
            if (j->rank[at].rank == j->rank[at - 1].rank)
                return tandem_error_set(
                    j->error, TANDEM_MALFORMED,
                    "'%.200s' and '%.200s' are both of rank %lld; expected one file per rank",
                    result->rank[at - 1].path, result->rank[at].path, (long long)j->rank[at].rank);
            const torch_rank moved = j->rank[at];
            char *const path = result->rank[at].path;
            j->rank[at] = j->rank[at - 1];
            j->rank[at - 1] = moved;
            result->rank[at].path = result->rank[at - 1].path;
            result->rank[at - 1].path = path;
        }
    for (int k = 0; k < result->n_rank; k++) result->rank[k].rank = (int)j->rank[k].rank;
    return TANDEM_OK;
}

static tandem_status join_torch_ranks(const torch_join *j)
{
    tandem_status status = sort_ranks(j);
    for (int k = 0; k < j->result->n_rank && status == TANDEM_OK; k++) {
        status = measure_torch_steps(j, k);
        j->result->is_device |= j->result->rank[k].is_device;
    }
    if (status == TANDEM_OK) status = join_operators(j);
    if (status == TANDEM_OK) status = join_collectives(j);
    if (status != TANDEM_OK) return status;
    for (int k = 0; k < j->result->n_rank; k++) {
        j->result->rank[k].n_unjoined += j->rank[k].n_dropped;
        j->result->rank[k].left_out.n_collective_outside = j->rank[k].left_out.n_collective_outside;
    }
    find_slowest(j->result);
    return find_excess(j);
}

static tandem_status open_torch_join(torch_join *j, int n, tandem_error *error)
{
    j->error = error;
    j->result = calloc(1, sizeof *j->result);
    j->rank = calloc((size_t)n, sizeof *j->rank);
    if (j->result) j->result->rank = calloc((size_t)n, sizeof *j->result->rank);
    if (!j->result || !j->rank || !j->result->rank) return tandem_no_memory(error, "to read %d traces", n);
    return TANDEM_OK;
}

/* `bytes` NULL: the source is a path. */
static tandem_status read_rank_file(const torch_join *j, const char *source, const void *bytes, size_t n)
{
    const int k = j->result->n_rank++;
    tandem_input input = {0};
    j->result->rank[k].path = strdup(source);
    if (!j->result->rank[k].path) return torch_no_memory(j);
    tandem_status status = bytes ? tandem_input_open_bytes(&input, bytes, n, source, j->error)
                                 : tandem_input_open(&input, source, j->error);
    if (status == TANDEM_OK) status = torch_rank_read(&j->rank[k], &input, j->error);
    tandem_input_close(&input);
    return status;
}

static tandem_status close_torch_join(torch_join *j, tandem_torch_summary **torch, tandem_status status)
{
    if (status == TANDEM_OK) status = join_torch_ranks(j);
    for (int k = 0; j->rank && j->result && k < j->result->n_rank; k++) torch_rank_close(&j->rank[k]);
    free(j->rank);
    if (status == TANDEM_OK)
        *torch = j->result;
    else
        tandem_torch_close(j->result);
    return status;
}

tandem_status tandem_torch_read(tandem_torch_summary **torch, const char *const *path, int n,
                                tandem_error *error)
{
    torch_join j = {0};
    tandem_status status = open_torch_join(&j, n, error);
    for (int k = 0; k < n && status == TANDEM_OK; k++) status = read_rank_file(&j, path[k], NULL, 0);
    return close_torch_join(&j, torch, status);
}

tandem_status tandem_torch_parse(tandem_torch_summary **torch, const void *bytes, size_t n,
                                 const char *source, tandem_error *error)
{
    torch_join j = {0};
    tandem_status status = open_torch_join(&j, 1, error);
    if (status == TANDEM_OK) status = read_rank_file(&j, source, bytes ? bytes : "", n);
    return close_torch_join(&j, torch, status);
}

void tandem_torch_close(tandem_torch_summary *torch)
{
    if (!torch) return;
    for (int k = 0; torch->collective && k < torch->n_collective; k++) {
        free(torch->collective[k].signature);
        free(torch->collective[k].name);
    }
    free(torch->collective);
    for (int k = 0; torch->operators && k < torch->n_operator; k++) {
        free(torch->operators[k].signature);
        free(torch->operators[k].name);
        free(torch->operators[k].rank);
    }
    free(torch->operators);
    for (int k = 0; torch->rank && k < torch->n_rank; k++) {
        free(torch->rank[k].step);
        free(torch->rank[k].path);
    }
    free(torch->rank);
    free(torch);
}
