/* whatif_chakra.c: Chakra execution traces as one model of the step, and its critical path. Nodes wait for
 * their dependencies only; parts of collectives and messages wait for each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/format/chakra.h"
#include "trace/whatif/chakra_order.h"

enum { MAX_RANKS = 4096, N_TRACK = 2 };
static const char *const track_name[N_TRACK] = {"compute", "communication"};

/* --- Partners ------------------------------------------------------------------------------------------- */

/* The `number`-th part of a rank with this key. */
typedef struct chakra_part {
    uint64_t key;
    int32_t rank, number, node, sequence;
    uint8_t type;
} chakra_part;

static int by_part_key_rank(const void *left, const void *right)
{
    const chakra_part *const a = left, *const b = right;
    int order = (a->key > b->key) - (a->key < b->key);
    if (!order) order = (a->rank > b->rank) - (a->rank < b->rank);
    if (!order)
        order =
            (a->type > b->type) - (a->type < b->type); /* a message to oneself has both ends on one rank */
    return order ? order : (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

static int by_part_key_number(const void *left, const void *right)
{
    const chakra_part *const a = left, *const b = right;
    int order = (a->key > b->key) - (a->key < b->key);
    if (!order) order = (a->number > b->number) - (a->number < b->number);
    if (!order) order = (a->rank > b->rank) - (a->rank < b->rank);
    return order ? order : (a->type > b->type) - (a->type < b->type);
}

static int find_chakra_rank(const chakra_trace *r, int number)
{
    for (int k = 0; k < r->n_rank; k++)
        if (r->rank[k].number == number) return k;
    return -1;
}

/* How many parts its collective or message must have. */
static int count_expected_parts(const chakra_trace *r, const chakra_part *part, int n_rank_of_key)
{
    const chakra_node *const node = chakra_node_at(r, part->node);
    if (node->partner >= 0) return find_chakra_rank(r, node->partner) >= 0 ? 2 : 1;
    return node->is_over_all_ranks ? r->n_rank : n_rank_of_key;
}

static tandem_status refuse_partner(const chakra_trace *r, const chakra_part *part, int n,
                                    const char *missing)
{
    return tandem_error_set(r->error, TANDEM_MALFORMED,
                            "'%.200s', node %llu (%.80s): number %d of its kind (%s) has %d part%s in these "
                            "files; expected %s",
                            r->rank[part->rank].path, (unsigned long long)chakra_node_at(r, part->node)->id,
                            chakra_node_name(r, part->node), part->number + 1,
                            r->kind[chakra_node_at(r, part->node)->kind].text, n, n == 1 ? "" : "s", missing);
}

/* Joins the n parts of one collective or message. */
static tandem_status join_parts(chakra_trace *r, const chakra_part *part, int n, int expected)
{
    char why[64];
    (void)snprintf(why, sizeof why, "%d, one on each of %d ranks", expected, expected);
    if (n != expected)
        return refuse_partner(r, part, n,
                              chakra_node_at(r, part->node)->partner >= 0 ? "a send and a receive" : why);
    int64_t transfer_ns = INT64_MAX;
    for (int k = 0; k < n; k++) {
        const chakra_node *const node = chakra_node_at(r, part[k].node);
        if (node->size != chakra_node_at(r, part->node)->size &&
            strcmp(r->kind[node->kind].text, "all-reduce") == 0)
            return refuse_partner(r, &part[k], n, "the same comm_size in all of them");
        if (node->duration_ns < transfer_ns) transfer_ns = node->duration_ns;
    }
    const int is_message = chakra_node_at(r, part->node)->partner >= 0;
    for (int k = 0; k < n; k++) {
        /* any excess was waiting */
        chakra_node_at(r, part[k].node)->duration_ns = transfer_ns;
        if (!is_message) r->group[part[k].node] = r->n_group;
    }
    r->n_group += !is_message;
    if (!is_message || n < 2) return TANDEM_OK;
    const int is_send_first = part->type == TANDEM_CHAKRA_SEND;
    const tandem_dag_edge message = {part[!is_send_first].node, part[is_send_first].node};
    return chakra_append(r, &r->messages, &message, sizeof message);
}

/* Numbers the parts of each rank with one key; returns how many ranks have any. */
static int number_parts(chakra_part *part, int n)
{
    int n_rank = 0;
    for (int k = 0; k < n; k++) {
        const int is_next = k > 0 && part[k].rank == part[k - 1].rank && part[k].type == part[k - 1].type;
        part[k].number = is_next ? part[k - 1].number + 1 : 0;
        n_rank += k == 0 || part[k].rank != part[k - 1].rank;
    }
    qsort(part, (size_t)n, sizeof *part, by_part_key_number);
    return n_rank;
}

static tandem_status join_parts_of_key(chakra_trace *r, chakra_part *part, int n)
{
    const int n_rank = number_parts(part, n);
    tandem_status status = TANDEM_OK;
    for (int first = 0, end; first < n && status == TANDEM_OK; first = end) {
        end = first + 1;
        while (end < n && part[end].number == part[first].number) end++;
        status = join_parts(r, &part[first], end - first, count_expected_parts(r, &part[first], n_rank));
    }
    return status;
}

static int gather_chakra_parts(const chakra_trace *r, chakra_part *to)
{
    int n = 0;
    for (int k = 0; k < r->n_rank; k++)
        for (int i = r->rank[k].first; i < r->rank[k].end; i++) {
            const chakra_node *const node = chakra_node_at(r, i);
            if (!node->group) continue;
            if (to)
                to[n] = (chakra_part){
                    .key = node->group, .rank = k, .node = i, .sequence = node->sequence, .type = node->type};
            n++;
        }
    return n;
}

static tandem_status join_all_parts(chakra_trace *r)
{
    const int n = gather_chakra_parts(r, NULL);
    chakra_part *const parts = malloc(((size_t)n + 1) * sizeof *parts);
    r->group = malloc((size_t)r->nodes.n * sizeof *r->group);
    tandem_status status = parts && r->group ? TANDEM_OK : chakra_no_memory(r);
    for (int i = 0; i < r->nodes.n && status == TANDEM_OK; i++) r->group[i] = -1;
    if (status == TANDEM_OK) (void)gather_chakra_parts(r, parts);
    if (status == TANDEM_OK) qsort(parts, (size_t)n, sizeof *parts, by_part_key_rank);
    for (int first = 0, end; first < n && status == TANDEM_OK; first = end) {
        end = first + 1;
        while (end < n && parts[end].key == parts[first].key) end++;
        status = join_parts_of_key(r, &parts[first], end - first);
    }
    free(parts);
    return status;
}

/* --- The model ------------------------------------------------------------------------------------------ */

static void chakra_node_text(char *text, size_t size, const void *context, int i)
{
    const chakra_trace *const r = context;
    int k = 0;
    while (r->rank[k].end <= i) k++;
    (void)snprintf(text, size, "rank %d, node %llu (%.80s)", r->rank[k].number,
                   (unsigned long long)chakra_node_at(r, i)->id, chakra_node_name(r, i));
}

static tandem_status open_ordered_simulator(const chakra_trace *r, whatif_model *model, tandem_error *error)
{
    int *const stream = malloc((size_t)r->nodes.n * sizeof *stream);
    if (!stream) return chakra_no_memory(r);
    for (int i = 0; i < r->nodes.n; i++) stream[i] = -1;
    const tandem_dag graph = {.n_op = r->nodes.n,
                              .n_group = r->n_group,
                              .n_edge = r->all.n,
                              .stream = stream,
                              .group = r->group,
                              .edge = r->all.of,
                              .name = chakra_node_text,
                              .context = r};
    const tandem_status status = tandem_dag_simulator_open(model->simulator, &graph, error);
    free(stream);
    return status;
}

/* Where control dependencies form a cycle, data dependencies decide. */
static tandem_status open_chakra_simulator(chakra_trace *r, whatif_model *model)
{
    tandem_error cycle = {0};
    tandem_status status = chakra_order_nodes(r);
    if (status != TANDEM_OK) return status;
    if (r->control.n == 0) return open_ordered_simulator(r, model, r->error);
    status = open_ordered_simulator(r, model, &cycle);
    if (status == TANDEM_OK) return TANDEM_OK;
    if (status == TANDEM_NO_MEMORY) return chakra_no_memory(r);
    status = chakra_drop_control_cycles(r);
    return status == TANDEM_OK ? open_ordered_simulator(r, model, r->error) : status;
}

/* For the k-th node of a name on each rank, the ideal is the time on the least busy rank that has it. */
static tandem_status find_node_ideals(const chakra_trace *r, whatif_model *model)
{
    const int n = r->nodes.n;
    chakra_part *const alike = malloc((size_t)n * sizeof *alike);
    if (!alike) return chakra_no_memory(r);
    for (int k = 0; k < r->n_rank; k++)
        for (int i = r->rank[k].first; i < r->rank[k].end; i++)
            alike[i] = (chakra_part){
                .key = (uint64_t)chakra_node_at(r, i)->name, .rank = k, .node = i, .sequence = i};
    qsort(alike, (size_t)n, sizeof *alike, by_part_key_rank);
    for (int first = 0, end; first < n; first = end) {
        end = first + 1;
        while (end < n && alike[end].key == alike[first].key) end++;
        (void)number_parts(&alike[first], end - first);
    }
    for (int first = 0, end; first < n; first = end) {
        int fastest = first;
        for (end = first;
             end < n && alike[end].key == alike[first].key && alike[end].number == alike[first].number; end++)
            if (r->rank[alike[end].rank].busy_ns < r->rank[alike[fastest].rank].busy_ns) fastest = end;
        for (int k = first; k < end; k++)
            model->ideal_ns[alike[k].node] =
                model->actual_ns[chakra_node_at(r, alike[k].node)->group ? alike[k].node
                                                                         : alike[fastest].node];
    }
    free(alike);
    return TANDEM_OK;
}

static tandem_status label_chakra_nodes(const chakra_trace *r, whatif_model *model)
{
    tandem_status status = whatif_model_dimension(model, WHATIF_OPERATOR, r->n_kind, r->error);
    if (status == TANDEM_OK && r->n_rank > 1)
        status = whatif_model_dimension(model, WHATIF_WORKER, r->n_rank, r->error);
    if (status != TANDEM_OK) return status;
    memcpy(model->by[WHATIF_OPERATOR].name, r->kind, (size_t)r->n_kind * sizeof *r->kind);
    model->track_name = track_name;
    model->n_track = N_TRACK;
    for (int k = 0; k < r->n_rank; k++) {
        (void)snprintf(model->worker_name[k].text, sizeof model->worker_name->text, "rank %d",
                       r->rank[k].number);
        if (r->n_rank > 1) model->by[WHATIF_WORKER].name[k] = model->worker_name[k];
        for (int i = r->rank[k].first; i < r->rank[k].end; i++) {
            model->worker[i] = k;
            model->op_name[i] = chakra_node_name(r, i);
            model->track[i] = chakra_node_at(r, i)->group != 0;
            model->by[WHATIF_OPERATOR].of[i] = chakra_node_at(r, i)->kind;
            if (r->n_rank > 1) model->by[WHATIF_WORKER].of[i] = k;
        }
    }
    return TANDEM_OK;
}

/* The longest time from first start to last end on any rank: clocks need not agree. 0 = no starts. */
static int64_t longest_recorded_ns(const chakra_trace *r)
{
    int64_t longest_ns = 0, any_ns = 0;
    for (int k = 0; k < r->n_rank; k++) {
        int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
        for (int i = r->rank[k].first; i < r->rank[k].end; i++) {
            const chakra_node *const node = chakra_node_at(r, i);
            if (node->start_ns < first_ns) first_ns = node->start_ns;
            if (node->start_ns + node->duration_ns > last_ns) last_ns = node->start_ns + node->duration_ns;
            any_ns |= node->start_ns;
        }
        if (last_ns - first_ns > longest_ns) longest_ns = last_ns - first_ns;
    }
    return any_ns ? longest_ns : 0;
}

static tandem_status open_chakra_model(chakra_trace *r, whatif_model *model)
{
    int64_t any_ns = 0;
    tandem_status status = whatif_model_allocate(model, r->nodes.n, 1, r->n_rank, r->error);
    if (status != TANDEM_OK) return status;
    model->first[1] = r->nodes.n;
    model->recorded_ns[0] = longest_recorded_ns(r);
    for (int i = 0; i < r->nodes.n; i++) any_ns |= model->actual_ns[i] = chakra_node_at(r, i)->duration_ns;
    if (!any_ns)
        return tandem_error_set(r->error, TANDEM_MALFORMED,
                                "'%.200s': no node has a duration; expected a trace of what was measured or "
                                "simulated",
                                r->rank[0].path);
    status = open_chakra_simulator(r, model);
    if (status == TANDEM_OK) status = find_node_ideals(r, model);
    return status == TANDEM_OK ? label_chakra_nodes(r, model) : status;
}

/* --- The critical path ---------------------------------------------------------------------------------- */

typedef struct critical_walk {
    const chakra_trace *r;
    const whatif_model *model;
    int64_t *ready_ns, *end_ns; /* [n nodes] */
    int *last_part;             /* [n_group] the part that was ready last */
    int *first_edge;            /* [n nodes + 1] offsets into the edges, which are ordered by `after` */
} critical_walk;

static void index_edges(const critical_walk *w)
{
    const chakra_trace *const r = w->r;
    const tandem_dag_edge *const edge = r->all.of;
    for (int i = 0, e = 0; i <= r->nodes.n; i++) {
        while (e < r->all.n && edge[e].after < i) e++;
        w->first_edge[i] = e;
    }
    for (int g = 0; g < r->n_group; g++) w->last_part[g] = -1;
    for (int i = 0; i < r->nodes.n; i++) {
        if (r->group[i] < 0) continue;
        int *const last = &w->last_part[r->group[i]];
        if (*last < 0 || w->ready_ns[i] > w->ready_ns[*last]) *last = i;
    }
}

/* The predecessor that a node waited for longest; −1 = none. */
static int critical_predecessor(const critical_walk *w, int i)
{
    const tandem_dag_edge *const edge = w->r->all.of;
    const int part = w->r->group[i] >= 0 ? w->last_part[w->r->group[i]] : i;
    for (int e = w->first_edge[part]; e < w->first_edge[part + 1]; e++)
        if (w->end_ns[edge[e].before] == w->ready_ns[part]) return edge[e].before;
    return -1;
}

static int last_node(const critical_walk *w)
{
    int last = 0;
    for (int i = 1; i < w->r->nodes.n; i++)
        if (w->end_ns[i] > w->end_ns[last]) last = i;
    return last;
}

static tandem_status list_critical_path(const critical_walk *w, tandem_whatif *whatif)
{
    int n = 1;
    for (int i = critical_predecessor(w, last_node(w)); i >= 0; i = critical_predecessor(w, i)) n++;
    whatif->critical_path = calloc((size_t)n, sizeof *whatif->critical_path);
    if (!whatif->critical_path) return chakra_no_memory(w->r);
    whatif->n_critical = n;
    for (int i = last_node(w); i >= 0; i = critical_predecessor(w, i)) {
        tandem_whatif_path_op *const path_op = &whatif->critical_path[--n];
        const whatif_model *const model = w->model;
        (void)snprintf(path_op->who, sizeof path_op->who, "%s", model->worker_name[model->worker[i]].text);
        (void)snprintf(path_op->what, sizeof path_op->what, "%s",
                       w->r->kind[chakra_node_at(w->r, i)->kind].text);
        (void)snprintf(path_op->name, sizeof path_op->name, "%.*s", (int)sizeof path_op->name - 1,
                       model->op_name[i]);
        path_op->start_ns = w->end_ns[i] - model->actual_ns[i];
        path_op->end_ns = w->end_ns[i];
    }
    return TANDEM_OK;
}

static tandem_status find_critical_path(const chakra_trace *r, const whatif_model *model,
                                        tandem_whatif *whatif)
{
    const size_t n = (size_t)r->nodes.n;
    int64_t length_ns = 0;
    critical_walk w = {.r = r,
                       .model = model,
                       .ready_ns = malloc(n * sizeof *w.ready_ns),
                       .end_ns = malloc(n * sizeof *w.end_ns),
                       .last_part = calloc((size_t)r->n_group + 1, sizeof *w.last_part),
                       .first_edge = calloc(n + 1, sizeof *w.first_edge)};
    tandem_status status = TANDEM_OK;
    if (!w.ready_ns || !w.end_ns || !w.last_part || !w.first_edge) status = chakra_no_memory(r);
    if (status == TANDEM_OK)
        status = tandem_dag_simulator_run(model->simulator[0], model->actual_ns, w.ready_ns, w.end_ns,
                                          &length_ns, r->error);
    if (status == TANDEM_OK) {
        index_edges(&w);
        status = list_critical_path(&w, whatif);
    }
    free(w.first_edge);
    free(w.last_part);
    free(w.end_ns);
    free(w.ready_ns);
    return status;
}

/* --- The analysis --------------------------------------------------------------------------------------- */

/* `bytes` NULL: the paths are files. */
static tandem_status analyse_chakra(tandem_whatif **whatif, const char *const *path, const void *const *bytes,
                                    const size_t *n_byte, int n, const char *trace_path, tandem_error *error)
{
    whatif_model model = {0};
    tandem_whatif *opened = NULL;
    if (n < 1 || n > MAX_RANKS)
        return tandem_error_set(error, TANDEM_USAGE, "%d traces; expected 1 to %d, one per rank", n,
                                MAX_RANKS);
    chakra_trace *const r = calloc(1, sizeof *r);
    if (!r) return tandem_no_memory(error, "to read '%.200s'", path[0]);
    r->error = error;
    tandem_status status = chakra_trace_read(r, path, bytes, n_byte, n);
    if (status == TANDEM_OK) status = join_all_parts(r);
    if (status == TANDEM_OK) status = open_chakra_model(r, &model);
    if (status == TANDEM_OK) status = whatif_analyse(&opened, &model, trace_path, error);
    if (status == TANDEM_OK) status = find_critical_path(r, &model, opened);
    if (status == TANDEM_OK) {
        opened->n_missing_control = r->n_missing_control;
        opened->n_dropped_control = r->n_dropped_control;
    }
    if (status == TANDEM_OK)
        *whatif = opened;
    else
        tandem_whatif_close(opened);
    whatif_model_close(&model);
    chakra_trace_close(r);
    free(r);
    return status;
}

tandem_status tandem_whatif_chakra(tandem_whatif **whatif, const char *const *path, int n,
                                   const char *trace_path, tandem_error *error)
{
    return analyse_chakra(whatif, path, NULL, NULL, n, trace_path, error);
}

tandem_status tandem_whatif_parse_chakra(tandem_whatif **whatif, const char *const *source,
                                         const void *const *bytes, const size_t *n_byte, int n,
                                         tandem_error *error)
{
    return analyse_chakra(whatif, source, bytes, n_byte, n, NULL, error);
}
