/* replayer.c: a replayer's life: classes and their costs, precisions, runs. */
#include "tandem/replayer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/step_index.h"
#include "replayer/stages.h"

/* --- Who shares a machine ------------------------------------------------------------------------------- */

static int is_cpu(const tandem_cluster_class *member) { return strncmp(member->device.name, "cpu:", 4) == 0; }

/* All classes of `cpu:` devices without a number of ranks a node are on one node; ranks of other classes
 * only meet their own. */
static int shares_node(const tandem_cluster_class *member) { return is_cpu(member) && member->per_node == 0; }

static void find_neighbour(tandem_replay_member *member, const tandem_cluster *cluster, int c)
{
    const tandem_cluster_class *own = &cluster->member[c];
    const tandem_cluster_class *neighbour = NULL;
    /* a straggler stays on the node of its likes: per_node may be more than n_rank */
    const int is_own_neighbour = is_cpu(own) && own->per_node != 1 && (own->n_rank > 1 || own->per_node > 1);
    member->shares_node = shares_node(own);
    for (int other = 0; other < cluster->n_class && member->shares_node && !neighbour; other++)
        if (other != c && shares_node(&cluster->member[other])) neighbour = &cluster->member[other];
    if (!neighbour && is_own_neighbour) neighbour = own;
    member->company[TANDEM_USUAL] = is_own_neighbour ? TANDEM_BESIDE : TANDEM_ALONE;
    member->company[TANDEM_CROWDED] = TANDEM_BESIDE;
    member->n_pace = neighbour && !is_own_neighbour ? 2 : 1;
    (void)snprintf(member->device, sizeof member->device, "%s", own->device.name);
    (void)snprintf(member->neighbour, sizeof member->neighbour, "%s",
                   neighbour ? neighbour->device.name : "");
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static tandem_status no_memory(const tandem_graph *graph, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to replay model '%s'", graph->model);
}

static tandem_status check(const tandem_cluster *cluster, const tandem_graph *const *graph,
                           tandem_error *error)
{
    if (cluster->n_class < 1 || cluster->n_class > TANDEM_MAX_CLASS)
        return tandem_error_set(error, TANDEM_USAGE, "a replay is of 1 to %d classes; got %d",
                                TANDEM_MAX_CLASS, cluster->n_class);
    for (int c = 0; c < cluster->n_class; c++) {
        const int64_t batch = cluster->member[c].batch;
        if (graph[c]->hash != graph[0]->hash || (batch != 0 && batch != graph[c]->batch))
            return tandem_error_set(error, TANDEM_WRONG_MODEL,
                                    "class %d (%s, batch %lld) would run model '%s' at batch %lld beside "
                                    "model '%s'; all classes run "
                                    "one model, each at its own batch",
                                    c, cluster->member[c].device.name, (long long)batch, graph[c]->model,
                                    (long long)graph[c]->batch, graph[0]->model);
    }
    if (graph[0]->n_parameter < 1)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH, "model '%s' has nothing to train",
                                graph[0]->model);
    return TANDEM_OK;
}

/* What the tasks cost that the step program has just switched on, off, or into another form. */
static void price_touched(tandem_replay_member *member)
{
    const struct tandem_step_index *index = member->step->index;
    for (int k = 0; k < index->n_touched; k++) {
        const int t = index->touched[k];
        const tandem_task *task = &member->step->task[t];
        const tandem_form *form = &member->costs.form[(size_t)t * TANDEM_MAX_VARIANT + (size_t)task->variant];
        member->workspace_bytes[t] = task->active ? form->workspace_bytes : 0;
        tandem_prices_update(member, t);
    }
    if (index->n_touched > 0) member->memory_changed = 1;
}

static int allocate_lists(tandem_replay_member *member)
{
    const size_t n_task = (size_t)member->step->n_task, n_bucket = (size_t)member->step->n_bucket;
    const size_t most_places = n_task * (size_t)member->step->options.n_micro;
    member->task = malloc(most_places * sizeof *member->task);
    for (int pace = 0; pace < member->n_pace; pace++)
        member->sum[pace] = malloc((most_places + 1) * sizeof *member->sum[pace]);
    member->wait_place = malloc(n_bucket * sizeof *member->wait_place);
    member->workspace_bytes = calloc(n_task, sizeof *member->workspace_bytes);
    member->start_ns = calloc(most_places, sizeof *member->start_ns);
    member->end_ns = calloc(most_places, sizeof *member->end_ns);
    member->wait_start_ns = calloc(n_bucket, sizeof *member->wait_start_ns);
    member->wait_end_ns = calloc(n_bucket, sizeof *member->wait_end_ns);
    member->event = malloc((most_places + n_bucket) * sizeof *member->event);
    return tandem_prices_open(member, (int)n_bucket) && member->task && member->sum[TANDEM_USUAL] &&
           (member->n_pace == 1 || member->sum[TANDEM_CROWDED]) && member->wait_place &&
           member->workspace_bytes && member->start_ns && member->end_ns && member->wait_start_ns &&
           member->wait_end_ns && member->event;
}

static tandem_status open_member(tandem_replayer *replayer, int c, const tandem_graph *graph,
                                 tandem_store *store, const tandem_replayer_options *options,
                                 tandem_error *error)
{
    tandem_replay_member *member = &replayer->member[c];
    find_neighbour(member, &replayer->cluster, c);
    member->slowed = 1;
    tandem_status status = tandem_device_open_step(&member->step, &replayer->cluster.member[c].device, graph,
                                                   options->bucket_bytes, &options->step, error);
    if (status == TANDEM_OK && !allocate_lists(member)) status = no_memory(graph, error);
    const tandem_cluster_class *class = &replayer->cluster.member[c];
    const tandem_cost_source source = {store, &class->device, member->neighbour, options->predict,
                                       class->slow_millionths};
    if (status == TANDEM_OK) status = tandem_costs_map(&member->costs, member->step, &source, error);
    if (status == TANDEM_OK) price_touched(member);
    return status;
}

/* How much all-reduces slow the class: measured by their size, as one factor that costs it as much time over
 * all buckets. */
static tandem_status find_slowing_of(tandem_replayer *replayer, tandem_store *store, const char *group, int c,
                                     tandem_error *error)
{
    tandem_replay_member *member = &replayer->member[c];
    double all_ns = 0, computed_ns = 0; /* on the wire, all buckets; compute that is done meanwhile */
    for (int b = 0; b < replayer->n_bucket; b++) {
        double factor = 1;
        const tandem_status status =
            tandem_store_get_interference(&factor, store, member->device, group, "compute_under_comm",
                                          (uint64_t)member->step->bucket[b].elements * sizeof(float), error);
        if (status != TANDEM_OK) return status;
        all_ns += replayer->measured_ns[1][b];
        computed_ns += replayer->measured_ns[1][b] / factor;
    }
    if (computed_ns > 0) member->slowed = all_ns / computed_ns;
    return TANDEM_OK;
}

/* Where neither this nor the all-reduce was measured, nobody is slowed. */
static tandem_status find_slowing(tandem_replayer *replayer, tandem_store *store, int measured,
                                  tandem_error *error)
{
    char group[TANDEM_GROUP_TEXT];
    if (tandem_cluster_n_rank(&replayer->cluster) == 1) return TANDEM_OK;
    tandem_cluster_group(group, sizeof group, &replayer->cluster);
    for (int c = 0; c < replayer->n_class; c++) {
        tandem_error missing = {0};
        const tandem_status status =
            store ? find_slowing_of(replayer, store, group, c, &missing) : TANDEM_MISSING;
        if (status == TANDEM_OK || (status == TANDEM_MISSING && !measured)) continue;
        if (error) *error = missing;
        return status;
    }
    return TANDEM_OK;
}

/* --- The wire ------------------------------------------------------------------------------------------- */

static int allocate_wire(tandem_replayer *replayer)
{
    const size_t n = (size_t)replayer->n_bucket;
    const size_t n_group = (n + TANDEM_GROUP - 1) / TANDEM_GROUP;
    int whole = 1;
    for (int loaded = 0; loaded < 2; loaded++) {
        replayer->measured_ns[loaded] = malloc(n * sizeof *replayer->measured_ns[loaded]);
        replayer->wire_ns[loaded] = malloc(n * sizeof *replayer->wire_ns[loaded]);
        whole = whole && replayer->measured_ns[loaded] && replayer->wire_ns[loaded];
    }
    replayer->wire_by = calloc(n, sizeof *replayer->wire_by);
    replayer->wire_sum_ns = malloc((n + 1) * sizeof *replayer->wire_sum_ns);
    replayer->loaded_sum_ns = malloc((n + 1) * sizeof *replayer->loaded_sum_ns);
    replayer->tail_key = calloc(n, sizeof *replayer->tail_key);
    replayer->tail_ns = malloc(n * sizeof *replayer->tail_ns);
    replayer->tail = malloc(n * (size_t)replayer->n_class * sizeof *replayer->tail);
    replayer->passed = malloc(n * sizeof *replayer->passed);
    replayer->late_ns = malloc((n_group + 1) * sizeof *replayer->late_ns);
    replayer->is_run = malloc(n_group * sizeof *replayer->is_run);
    for (int c = 0; c < replayer->n_class; c++) {
        tandem_replay_member *member = &replayer->member[c];
        member->lead_ns = malloc((n_group + 1) * sizeof *member->lead_ns);
        member->behind_ns = malloc(n_group * sizeof *member->behind_ns);
        whole = whole && member->lead_ns && member->behind_ns;
    }
    whole = whole && replayer->loaded_sum_ns && replayer->late_ns && replayer->is_run && replayer->tail_key &&
            replayer->tail_ns && replayer->tail && replayer->passed;
    replayer->wire_start_ns = calloc(n, sizeof *replayer->wire_start_ns);
    replayer->wire_end_ns = calloc(n, sizeof *replayer->wire_end_ns);
    return whole && replayer->wire_by && replayer->wire_sum_ns && replayer->wire_start_ns &&
           replayer->wire_end_ns;
}

/* To a multiple of 1/1024 ns: sums of such, and of tasks' times, are exact for some hours, in any order. */
static void round_times(double *ns, int n)
{
    for (int b = 0; b < n; b++) ns[b] = floor(ns[b] * 1024 + 0.5) / 1024;
}

/* All that follows from the wire's times. */
static void wire_changed(tandem_replayer *replayer)
{
    replayer->interferes = 0;
    replayer->wire_sum_ns[0] = replayer->loaded_sum_ns[0] = 0;
    for (int b = 0; b < replayer->n_bucket; b++) {
        replayer->wire_sum_ns[b + 1] = replayer->wire_sum_ns[b] + replayer->wire_ns[0][b];
        replayer->loaded_sum_ns[b + 1] = replayer->loaded_sum_ns[b] + replayer->wire_ns[1][b];
        if (replayer->wire_ns[0][b] != replayer->wire_ns[1][b]) replayer->interferes = 1;
    }
    for (int c = 0; c < replayer->n_class; c++) {
        if (replayer->member[c].n_pace > 1 || replayer->member[c].slowed != 1) replayer->interferes = 1;
        replayer->member[c].lead_changed = replayer->member[c].behind_changed = 1;
    }
    tandem_tails_forget(replayer, replayer->n_bucket);
}

/* An all-reduce that nobody computes beside, or some do, takes `ns` in every class. What was measured, in
 * whole ns, stands for what was measured. */
static void set_wire_ns(tandem_replayer *replayer, int bucket, int loaded, int64_t ns)
{
    const double measured = replayer->measured_ns[loaded][bucket];
    for (int c = 0; c < replayer->n_class; c++) {
        const size_t t = (size_t)replayer->member[c].step->bucket[bucket].reduce_task;
        replayer->member[c].costs.form[t * TANDEM_MAX_VARIANT].ns[loaded] = ns;
    }
    replayer->wire_ns[loaded][bucket] = ns == tandem_whole_ns(measured) ? measured : (double)ns;
}

static tandem_status open_collectives(tandem_replayer *replayer, tandem_store *store,
                                      tandem_collective_algorithm algorithm, tandem_error *error)
{
    const tandem_step *step = replayer->member[0].step;
    assert(step);
    replayer->n_bucket = step->n_bucket;
    if (!allocate_wire(replayer)) return no_memory(step->graph, error);
    const tandem_wire wire = {
        {replayer->measured_ns[0], replayer->measured_ns[1]}, replayer->wire_by, &replayer->exchange};
    tandem_status status = tandem_collective_times(&wire, &replayer->cluster, step->bucket, step->n_bucket,
                                                   store, algorithm, error);
    if (status == TANDEM_OK) status = find_slowing(replayer, store, replayer->exchange.n_point > 0, error);
    if (status != TANDEM_OK) return status;
    for (int loaded = 0; loaded < 2; loaded++) {
        round_times(replayer->measured_ns[loaded], step->n_bucket);
        for (int b = 0; b < step->n_bucket; b++)
            set_wire_ns(replayer, b, loaded, tandem_whole_ns(replayer->measured_ns[loaded][b]));
    }
    wire_changed(replayer);
    return TANDEM_OK;
}

tandem_status tandem_replayer_open(tandem_replayer **replayer, const tandem_cluster *cluster,
                                   const tandem_graph *const *graph, tandem_store *store,
                                   uint64_t bucket_bytes, tandem_error *error)
{
    const tandem_replayer_options options = {.bucket_bytes = bucket_bytes};
    return tandem_replayer_open_with(replayer, cluster, graph, store, &options, error);
}

tandem_status tandem_replayer_open_with(tandem_replayer **out, const tandem_cluster *cluster,
                                        const tandem_graph *const *graph, tandem_store *store,
                                        const tandem_replayer_options *given, tandem_error *error)
{
    const tandem_replayer_options options = given ? *given : (tandem_replayer_options){0};
    tandem_status status = check(cluster, graph, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer *replayer = calloc(1, sizeof *replayer);
    if (!replayer) return no_memory(graph[0], error);
    replayer->cluster = *cluster;
    replayer->n_class = cluster->n_class;
    replayer->collective = options.collective;
    replayer->member = calloc((size_t)cluster->n_class, sizeof *replayer->member);
    if (!replayer->member) status = no_memory(graph[0], error);
    for (int c = 0; c < cluster->n_class && status == TANDEM_OK; c++)
        status = open_member(replayer, c, graph[c], store, &options, error);
    if (status == TANDEM_OK) status = open_collectives(replayer, store, options.collective, error);
    if (status == TANDEM_OK)
        *out = replayer;
    else
        tandem_replayer_close(replayer);
    return status;
}

static void close_member(tandem_replay_member *member)
{
    free(member->event);
    free(member->wait_end_ns);
    free(member->wait_start_ns);
    free(member->end_ns);
    free(member->start_ns);
    free(member->behind_ns);
    free(member->lead_ns);
    free(member->workspace_bytes);
    free(member->wait_place);
    for (int pace = 0; pace < TANDEM_N_PACE; pace++) free(member->sum[pace]);
    free(member->task);
    tandem_prices_close(member);
    tandem_costs_free(&member->costs);
    tandem_step_close(member->step);
}

void tandem_replayer_close(tandem_replayer *replayer)
{
    if (!replayer) return;
    free(replayer->wire_end_ns);
    free(replayer->wire_start_ns);
    free(replayer->is_run);
    free(replayer->late_ns);
    free(replayer->passed);
    free(replayer->tail);
    free(replayer->tail_ns);
    free(replayer->tail_key);
    free(replayer->loaded_sum_ns);
    free(replayer->wire_sum_ns);
    free(replayer->wire_by);
    for (int loaded = 0; loaded < 2; loaded++) {
        free(replayer->wire_ns[loaded]);
        free(replayer->measured_ns[loaded]);
    }
    for (int c = 0; replayer->member && c < replayer->n_class; c++) close_member(&replayer->member[c]);
    free(replayer->member);
    free(replayer);
}

/* --- Precisions ----------------------------------------------------------------------------------------- */

void tandem_replayer_set(tandem_replayer *replayer, int c, int op, tandem_precision precision)
{
    assert(c >= 0 && c < replayer->n_class);
    tandem_replay_member *member = &replayer->member[c];
    if (member->step->precision[op] == precision) return;
    tandem_step_set(member->step, op, precision);
    member->changed = 1;
}

void tandem_replayer_set_plan(tandem_replayer *replayer, const tandem_plan *plan)
{
    assert(plan->cluster.n_class == replayer->n_class && plan->n_op == replayer->member[0].step->graph->n_op);
    for (int c = 0; c < replayer->n_class; c++)
        for (int op = 0; op < plan->n_op; op++)
            if (tandem_op_row_get(replayer->member[c].step->graph->op[op].kind)->precisions)
                tandem_replayer_set(replayer, c, op, plan->precision[c][op]);
}

tandem_precision tandem_replayer_get(const tandem_replayer *replayer, int c, int op)
{
    return replayer->member[c].step->precision[op];
}

void tandem_replayer_set_form_ns(tandem_replayer *replayer, int c, int task, int variant, int beside,
                                 int64_t ns)
{
    assert(c >= 0 && c < replayer->n_class && variant >= 0 && variant < TANDEM_MAX_VARIANT && ns >= -1);
    tandem_replay_member *member = &replayer->member[c];
    const tandem_task *changed = &member->step->task[task];
    if (changed->kind == TANDEM_TASK_REDUCE) {
        assert(ns >= 0);
        set_wire_ns(replayer, changed->bucket, beside != 0, ns);
        wire_changed(replayer);
        return;
    }
    tandem_form *form = &member->costs.form[(size_t)task * TANDEM_MAX_VARIANT + (size_t)variant];
    form->ns[beside ? TANDEM_BESIDE : TANDEM_ALONE] = ns;
    tandem_prices_update(member, task);
}

/* --- Running -------------------------------------------------------------------------------------------- */

static tandem_status plan_memory(tandem_replay_member *member, tandem_error *error)
{
    if (!member->memory_changed) return TANDEM_OK;
    const tandem_status status =
        tandem_memory_plan(&member->memory, member->step, member->workspace_bytes, NULL, NULL, error);
    if (status == TANDEM_OK) member->memory_changed = 0;
    return status;
}

static void follow_changes(tandem_replay_member *member)
{
    if (!member->changed) return;
    tandem_step_resolve(member->step);
    price_touched(member);
    member->changed = 0;
}

tandem_status tandem_replayer_plan_memory(tandem_replayer *replayer, int c, tandem_memory *memory,
                                          tandem_error *error)
{
    tandem_replay_member *member = &replayer->member[c];
    follow_changes(member);
    const tandem_status status = plan_memory(member, error);
    if (status == TANDEM_OK) *memory = member->memory;
    return status;
}

static tandem_status bring_up_to_date(tandem_replayer *replayer, tandem_error *error)
{
    for (int c = 0; c < replayer->n_class; c++) {
        tandem_replay_member *member = &replayer->member[c];
        follow_changes(member);
        if (member->n_missing > 0) return tandem_prices_missing(member, error);
        if (member->first_changed == 2 * replayer->n_bucket) continue;
        tandem_tails_forget(replayer, member->update_changed ? replayer->n_bucket : member->last_changed);
        tandem_prices_settle(member, replayer->n_bucket);
    }
    return TANDEM_OK;
}

tandem_status tandem_replayer_run(tandem_replayer *replayer, tandem_replay *replay, unsigned flags,
                                  tandem_error *error)
{
    tandem_status status = bring_up_to_date(replayer, error);
    for (int c = 0; c < replayer->n_class && status == TANDEM_OK && (flags & TANDEM_REPLAY_MEMORY); c++)
        status = plan_memory(&replayer->member[c], error);
    if (status != TANDEM_OK) return status;
    tandem_simulate(replay, replayer, (flags & TANDEM_REPLAY_EVENTS) != 0);
    for (int c = 0; c < replayer->n_class; c++) {
        replayer->member[c].n_event = 0;
        if (flags & TANDEM_REPLAY_MEMORY) replay->member[c].peak_bytes = replayer->member[c].memory.peak;
    }
    if (flags & TANDEM_REPLAY_EVENTS) tandem_timeline_make(replayer);
    return TANDEM_OK;
}

/* --- Asking --------------------------------------------------------------------------------------------- */

const tandem_step *tandem_replayer_step(const tandem_replayer *replayer, int c)
{
    return replayer->member[c].step;
}
const tandem_memory *tandem_replayer_memory(const tandem_replayer *replayer, int c)
{
    return &replayer->member[c].memory;
}
const uint64_t *tandem_replayer_workspace(const tandem_replayer *replayer, int c)
{
    return replayer->member[c].workspace_bytes;
}
const tandem_cluster *tandem_replayer_cluster(const tandem_replayer *replayer) { return &replayer->cluster; }

const tandem_trace_event *tandem_replayer_events(const tandem_replayer *replayer, int c, int *n_event)
{
    *n_event = replayer->member[c].n_event;
    return replayer->member[c].event;
}

int64_t tandem_replayer_form_ns(const tandem_replayer *replayer, int c, int task, int variant, int beside)
{
    const tandem_form *form =
        &replayer->member[c].costs.form[(size_t)task * TANDEM_MAX_VARIANT + (size_t)variant];
    return form->ns[beside ? TANDEM_BESIDE : TANDEM_ALONE];
}

int64_t tandem_replayer_task_ns(const tandem_replayer *replayer, int c, int task, int beside)
{
    return tandem_replayer_form_ns(replayer, c, task, replayer->member[c].step->task[task].variant, beside);
}

void tandem_replayer_company(const tandem_replayer *replayer, int c, tandem_replay_company *company)
{
    const tandem_replay_member *member = &replayer->member[c];
    *company = (tandem_replay_company){member->company[TANDEM_USUAL] == TANDEM_BESIDE,
                                       member->shares_node && member->neighbour[0] != '\0', member->slowed};
}

void tandem_replayer_bucket_ns(const tandem_replayer *replayer, int b, double *idle_ns, double *loaded_ns)
{
    *idle_ns = replayer->wire_ns[0][b];
    *loaded_ns = replayer->wire_ns[1][b];
}

const char *tandem_replayer_bucket_by(const tandem_replayer *replayer, int b)
{
    if (replayer->wire_by[b] >= 0)
        return tandem_collective_algorithm_name((tandem_collective_algorithm)replayer->wire_by[b]);
    return replayer->exchange.n_point > 0 ? "measured" : NULL;
}

int tandem_replayer_interferes(const tandem_replayer *replayer) { return replayer->interferes; }
