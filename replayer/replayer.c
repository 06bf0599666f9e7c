/* replayer.c: opens a replayer, sets precisions and times, runs a step, and answers questions about it. */
#include "tandem/advanced/replayer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/internal.h"

/* --- Who shares a machine ------------------------------------------------------------------------------- */

static int is_cpu_class(const tandem_cluster_class *class)
{
    return strncmp(class->device.name, "cpu:", 4) == 0;
}

/* All classes of `cpu:` devices without a number of ranks per node are on one node. Ranks of other classes
 * share nodes with their own class only. */
static int is_on_shared_node(const tandem_cluster_class *class)
{
    return is_cpu_class(class) && class->per_node == 0;
}

static void find_co_runner(tandem_sim_class *class, const tandem_cluster *cluster, int c)
{
    const tandem_cluster_class *own = &cluster->classes[c];
    const tandem_cluster_class *co_runner = NULL;
    /* per_node may exceed n_rank: a straggler stays on the node of the ranks that it was one of */
    const int is_always_contended =
        is_cpu_class(own) && own->per_node != 1 && (own->n_rank > 1 || own->per_node > 1);
    class->is_on_shared_node = is_on_shared_node(own);
    for (int other = 0; other < cluster->n_class && class->is_on_shared_node && !co_runner; other++)
        if (other != c && is_on_shared_node(&cluster->classes[other])) co_runner = &cluster->classes[other];
    if (!co_runner && is_always_contended) co_runner = own;
    class->contention[TANDEM_RATE_USUAL] = is_always_contended ? TANDEM_CONTENDED : TANDEM_ALONE;
    class->contention[TANDEM_RATE_CONTENDED] = TANDEM_CONTENDED;
    class->n_rate = co_runner && !is_always_contended ? 2 : 1;
    (void)snprintf(class->device, sizeof class->device, "%s", own->device.name);
    (void)snprintf(class->co_runner, sizeof class->co_runner, "%s", co_runner ? co_runner->device.name : "");
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static size_t group_count(int n_bucket)
{
    return ((size_t)n_bucket + TANDEM_BUCKETS_PER_GROUP - 1) / TANDEM_BUCKETS_PER_GROUP;
}

static tandem_status no_replay_memory(const tandem_graph *graph, tandem_error *error)
{
    return tandem_no_memory(error, "to replay model '%s'", graph->model);
}

static tandem_status check_replay_input(const tandem_cluster *cluster, const tandem_graph *const *graph,
                                        tandem_error *error)
{
    if (cluster->n_class < 1 || cluster->n_class > TANDEM_MAX_CLASS)
        return tandem_error_set(error, TANDEM_USAGE, "a replay needs 1 to %d classes, got %d",
                                TANDEM_MAX_CLASS, cluster->n_class);
    for (int c = 0; c < cluster->n_class; c++) {
        const int64_t batch = cluster->classes[c].batch;
        if (graph[c]->hash != graph[0]->hash || (batch != 0 && batch != graph[c]->batch))
            return tandem_error_set(error, TANDEM_WRONG_MODEL,
                                    "class %d (%s, batch %lld) has model '%s' at batch %lld, and class 0 "
                                    "model '%s'; all classes run one model, each at its own batch",
                                    c, cluster->classes[c].device.name, (long long)batch, graph[c]->model,
                                    (long long)graph[c]->batch, graph[0]->model);
    }
    if (graph[0]->n_parameter < 1)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH, "model '%s' has no parameters to train",
                                graph[0]->model);
    return TANDEM_OK;
}

/* Takes the costs of the tasks that the last resolve activated, deactivated, or gave another variant. */
static void update_touched_costs(tandem_sim_class *class)
{
    for (int k = 0; k < class->step->n_changed_task; k++) {
        const int t = class->step->changed_task[k];
        const tandem_task *task = &class->step->task[t];
        class->workspace_bytes[t] =
            task->active ? tandem_variant_cost_of(&class->costs, t, task->variant)->workspace_bytes : 0;
        tandem_cost_sums_set_task(class, t);
    }
    if (class->step->n_changed_task > 0) class->is_memory_dirty = 1;
}

static int allocate_class_lists(tandem_sim_class *class, tandem_arena *arena)
{
    const size_t n_task = (size_t) class->step->n_task, n_bucket = (size_t) class->step->n_bucket;
    const size_t max_length = n_task * (size_t) class->step->options.n_micro,
                 n_group = group_count((int)n_bucket);
    for (int rate = 0; rate < class->n_rate; rate++)
        if (!(class->sum[rate] = tandem_arena_array(arena, max_length + 1, sizeof *class->sum[rate])))
            return 0;
    return tandem_cost_sums_open(class, arena, (int)n_bucket) &&
           (class->slack_ns = tandem_arena_array(arena, n_group + 1, sizeof *class->slack_ns)) &&
           (class->lag_ns = tandem_arena_array(arena, n_group, sizeof *class->lag_ns)) &&
           (class->task = tandem_arena_array(arena, max_length, sizeof *class->task)) &&
           (class->wait_position = tandem_arena_array(arena, n_bucket, sizeof *class->wait_position)) &&
           (class->workspace_bytes = tandem_arena_array(arena, n_task, sizeof *class->workspace_bytes)) &&
           (class->start_ns = tandem_arena_array(arena, max_length, sizeof *class->start_ns)) &&
           (class->end_ns = tandem_arena_array(arena, max_length, sizeof *class->end_ns)) &&
           (class->wait_start_ns = tandem_arena_array(arena, n_bucket, sizeof *class->wait_start_ns)) &&
           (class->wait_end_ns = tandem_arena_array(arena, n_bucket, sizeof *class->wait_end_ns)) &&
           (class->event = tandem_arena_array(arena, max_length + n_bucket, sizeof *class->event));
}

/* with_norm: a replayer of the same step with a norm, which outlives it and whose costs it shares;
 * NULL: they are looked up. */
static tandem_status open_sim_class(tandem_replayer *replayer, int c, const tandem_graph *graph,
                                    tandem_store *store, const tandem_replayer_options *options,
                                    const tandem_replayer *with_norm, tandem_error *error)
{
    tandem_sim_class *class = &replayer->classes[c];
    const tandem_cluster_class *own = &replayer->cluster.classes[c];
    const tandem_cost_source source = {store,
                                       &own->device,
                                       class->co_runner,
                                       options->predict,
                                       own->slowdown_ppm,
                                       {options->kernels, graph->model, options->without_update},
                                       options->from_description};
    find_co_runner(class, &replayer->cluster, c);
    class->comm_slowdown = 1;
    tandem_status status = tandem_device_open_step(&class->step, &own->device, graph, options->bucket_bytes,
                                                   &options->step, error);
    if (status == TANDEM_OK && !allocate_class_lists(class, &replayer->arena))
        status = no_replay_memory(graph, error);
    if (status == TANDEM_OK && with_norm)
        class->costs = tandem_costs_without_norm(&with_norm->classes[c].costs, with_norm->classes[c].step);
    else if (status == TANDEM_OK)
        status = tandem_costs_map(&class->costs, &replayer->arena, class->step, &source, error);
    if (status == TANDEM_OK) update_touched_costs(class);
    return status;
}

/* How much all-reduces slow the class. The store has a factor per size; this is the one factor with which the
 * class computes as much during all buckets. */
static tandem_status find_comm_slowdown_of(tandem_replayer *replayer, tandem_store *store, const char *group,
                                           int c, tandem_error *error)
{
    tandem_sim_class *class = &replayer->classes[c];
    double all_ns = 0, computed_ns = 0; /* of all buckets; of the compute that is done meanwhile */
    for (int b = 0; b < replayer->n_bucket; b++) {
        double factor = 1;
        const tandem_status status =
            tandem_store_get_interference(&factor, store, class->device, group, "compute_under_comm",
                                          (uint64_t) class->step->bucket[b].elements * sizeof(float), error);
        if (status != TANDEM_OK) return status;
        all_ns += replayer->default_allreduce_ns[1][b];
        computed_ns += replayer->default_allreduce_ns[1][b] / factor;
    }
    if (computed_ns > 0) class->comm_slowdown = all_ns / computed_ns;
    return TANDEM_OK;
}

/* Where neither this nor the all-reduce was measured, all-reduces slow no class. */
static tandem_status find_comm_slowdown(tandem_replayer *replayer, tandem_store *store, int measured,
                                        tandem_error *error)
{
    char group[TANDEM_GROUP_KEY_TEXT];
    if (tandem_cluster_n_rank(&replayer->cluster) == 1) return TANDEM_OK;
    tandem_cluster_group_key(group, sizeof group, &replayer->cluster);
    for (int c = 0; c < replayer->n_class; c++) {
        tandem_error unmeasured = {0};
        const tandem_status status =
            store ? find_comm_slowdown_of(replayer, store, group, c, &unmeasured) : TANDEM_MISSING;
        if (status == TANDEM_OK || (status == TANDEM_MISSING && !measured)) continue;
        if (error) *error = unmeasured;
        return status;
    }
    return TANDEM_OK;
}

/* --- All-reduces --------------------------------------------------------------------------------------- */

static int allocate_allreduces(tandem_replayer *r)
{
    tandem_arena *const arena = &r->arena;
    const size_t n = (size_t)r->n_bucket, n_group = group_count(r->n_bucket);
    for (int loaded = 0; loaded < 2; loaded++)
        if (!(r->default_allreduce_ns[loaded] = tandem_arena_array(arena, n, sizeof(double))) ||
            !(r->allreduce_ns[loaded] = tandem_arena_array(arena, n, sizeof(double))))
            return 0;
    return (r->scatter_ns = tandem_arena_array(arena, n, sizeof(double))) &&
           (r->gather_ns = tandem_arena_array(arena, n, sizeof(double))) &&
           (r->allreduce_by = tandem_arena_array(arena, n, sizeof *r->allreduce_by)) &&
           (r->allreduce_sum_ns = tandem_arena_array(arena, n + 1, sizeof *r->allreduce_sum_ns)) &&
           (r->loaded_sum_ns = tandem_arena_array(arena, n + 1, sizeof *r->loaded_sum_ns)) &&
           (r->suffix_key = tandem_arena_array(arena, n, sizeof *r->suffix_key)) &&
           (r->suffix_ns = tandem_arena_array(arena, n, sizeof *r->suffix_ns)) &&
           (r->suffix = tandem_arena_array(arena, n * (size_t)r->n_class, sizeof *r->suffix)) &&
           (r->pending_suffix = tandem_arena_array(arena, n, sizeof *r->pending_suffix)) &&
           (r->comm_idle_ns = tandem_arena_array(arena, n_group + 1, sizeof *r->comm_idle_ns)) &&
           (r->is_group_timed = tandem_arena_array(arena, n_group, sizeof *r->is_group_timed)) &&
           (r->allreduce_start_ns = tandem_arena_array(arena, n, sizeof *r->allreduce_start_ns)) &&
           (r->allreduce_end_ns = tandem_arena_array(arena, n, sizeof *r->allreduce_end_ns));
}

/* To multiples of 1/1024 ns. Sums of them and of task times are exact up to some hours, in any order. */
static void round_to_ticks(double *ns, int n)
{
    for (int b = 0; b < n; b++) ns[b] = floor(ns[b] * 1024 + 0.5) / 1024;
}

/* Updates everything that depends on the times of all-reduces. */
static void update_allreduce_sums(tandem_replayer *replayer)
{
    replayer->has_contention = 0;
    replayer->allreduce_sum_ns[0] = replayer->loaded_sum_ns[0] = 0;
    for (int b = 0; b < replayer->n_bucket; b++) {
        replayer->allreduce_sum_ns[b + 1] = replayer->allreduce_sum_ns[b] + replayer->allreduce_ns[0][b];
        replayer->loaded_sum_ns[b + 1] = replayer->loaded_sum_ns[b] + replayer->allreduce_ns[1][b];
        if (replayer->allreduce_ns[0][b] != replayer->allreduce_ns[1][b]) replayer->has_contention = 1;
    }
    for (int c = 0; c < replayer->n_class; c++) {
        if (replayer->classes[c].n_rate > 1 || replayer->classes[c].comm_slowdown != 1)
            replayer->has_contention = 1;
        replayer->classes[c].is_slack_dirty = replayer->classes[c].is_lag_dirty = 1;
    }
    tandem_suffixes_forget(replayer, replayer->n_bucket);
}

/* Sets the time of an all-reduce in every class: while no class computes, or with `loaded` while some do. The
 * default time, rounded to ns, restores the default itself. */
static void set_allreduce_ns(tandem_replayer *replayer, int bucket, int loaded, int64_t ns)
{
    const double measured = replayer->default_allreduce_ns[loaded][bucket];
    for (int c = 0; c < replayer->n_class; c++) {
        const int t = replayer->classes[c].step->bucket[bucket].reduce_task;
        tandem_variant_cost_of(&replayer->classes[c].costs, t, 0)->ns[loaded] = ns;
    }
    replayer->allreduce_ns[loaded][bucket] = ns == tandem_round_ns(measured) ? measured : (double)ns;
}

static tandem_status open_collectives(tandem_replayer *replayer, tandem_store *store,
                                      const tandem_replayer_options *options, tandem_error *error)
{
    const tandem_step *step = replayer->classes[0].step;
    assert(step);
    replayer->n_bucket = step->n_bucket;
    if (!allocate_allreduces(replayer)) return no_replay_memory(step->graph, error);
    const tandem_allreduce_times times = {
        {replayer->default_allreduce_ns[0], replayer->default_allreduce_ns[1]},
        replayer->allreduce_by,
        &replayer->allreduce_source,
        options->from_description};
    tandem_status status = tandem_collective_times(&times, &replayer->cluster, step->bucket, step->n_bucket,
                                                   store, options->collective, error);
    if (status == TANDEM_OK)
        status = tandem_collective_halves(replayer->scatter_ns, replayer->gather_ns, &replayer->cluster,
                                          step->bucket, step->n_bucket, store, error);
    if (status == TANDEM_OK)
        status = find_comm_slowdown(replayer, store, replayer->allreduce_source.n_point > 0, error);
    if (status != TANDEM_OK) return status;
    /* computation beside it never makes it faster; its curve is measured in a loop, the other as in a step */
    for (int b = 0; b < step->n_bucket; b++)
        if (replayer->default_allreduce_ns[1][b] < replayer->default_allreduce_ns[0][b])
            replayer->default_allreduce_ns[1][b] = replayer->default_allreduce_ns[0][b];
    for (int loaded = 0; loaded < 2; loaded++) {
        round_to_ticks(replayer->default_allreduce_ns[loaded], step->n_bucket);
        for (int b = 0; b < step->n_bucket; b++)
            set_allreduce_ns(replayer, b, loaded, tandem_round_ns(replayer->default_allreduce_ns[loaded][b]));
    }
    update_allreduce_sums(replayer);
    return TANDEM_OK;
}

tandem_status tandem_replayer_open(tandem_replayer **replayer, const tandem_cluster *cluster,
                                   const tandem_graph *const *graph, tandem_store *store,
                                   uint64_t bucket_bytes, tandem_error *error)
{
    const tandem_replayer_options options = {.bucket_bytes = bucket_bytes};
    return tandem_replayer_open_with(replayer, cluster, graph, store, &options, error);
}

static tandem_status open_program(tandem_replayer **out, const tandem_cluster *cluster,
                                  const tandem_graph *const *graph, tandem_store *store,
                                  tandem_replayer_options options, const tandem_replayer *with_norm,
                                  tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    tandem_replayer *replayer = calloc(1, sizeof *replayer);
    if (!replayer) return no_replay_memory(graph[0], error);
    replayer->cluster = *cluster;
    replayer->n_class = cluster->n_class;
    replayer->collective = options.collective;
    replayer->classes =
        tandem_arena_array(&replayer->arena, (size_t)cluster->n_class, sizeof *replayer->classes);
    if (!replayer->classes) status = no_replay_memory(graph[0], error);
    for (int c = 0; c < cluster->n_class && status == TANDEM_OK; c++)
        status = open_sim_class(replayer, c, graph[c], store, &options, with_norm, error);
    if (status == TANDEM_OK) status = open_collectives(replayer, store, &options, error);
    if (status == TANDEM_OK)
        *out = replayer;
    else
        tandem_replayer_close(replayer);
    return status;
}

tandem_status tandem_replayer_open_with(tandem_replayer **out, const tandem_cluster *cluster,
                                        const tandem_graph *const *graph, tandem_store *store,
                                        const tandem_replayer_options *given, tandem_error *error)
{
    tandem_replayer_options options = given ? *given : (tandem_replayer_options){0};
    tandem_status status = check_replay_input(cluster, graph, error);
    if (status != TANDEM_OK) return status;
    if (!options.norm_as_needed || options.step.with_norm || !tandem_cluster_may_need_loss_scale(cluster))
        return open_program(out, cluster, graph, store, options, NULL, error);
    tandem_replayer *replayer = calloc(1, sizeof *replayer);
    if (!replayer) return no_replay_memory(graph[0], error);
    replayer->cluster = *cluster;
    replayer->n_class = cluster->n_class;
    options.step.with_norm = 1;
    status = open_program(&replayer->program[1], cluster, graph, store, options, NULL, error);
    options.step.with_norm = 0;
    if (status == TANDEM_OK)
        status =
            open_program(&replayer->program[0], cluster, graph, store, options, replayer->program[1], error);
    if (status == TANDEM_OK)
        *out = replayer;
    else
        tandem_replayer_close(replayer);
    return status;
}

void tandem_replayer_close(tandem_replayer *replayer)
{
    if (!replayer) return;
    for (int with_norm = 0; with_norm < 2; with_norm++) tandem_replayer_close(replayer->program[with_norm]);
    for (int c = 0; replayer->classes && c < replayer->n_class; c++)
        tandem_step_close(replayer->classes[c].step);
    tandem_arena_free(&replayer->arena);
    free(replayer);
}

/* --- Precisions ----------------------------------------------------------------------------------------- */

static void set_class_precision(tandem_sim_class *class, int op, tandem_precision precision)
{
    if (class->step->precision[op] == precision) return;
    tandem_step_set(class->step, op, precision);
    class->is_dirty = 1;
}

/* The program without a norm has what the replayer was given; the other one may be ahead of it (replayer.h).
 */
void tandem_replayer_set(tandem_replayer *replayer, int c, int op, tandem_precision precision)
{
    assert(c >= 0 && c < replayer->n_class);
    if (!replayer->program[0]) {
        set_class_precision(&replayer->classes[c], op, precision);
        return;
    }
    const tandem_step *step = replayer->program[0]->classes[c].step;
    const tandem_dtype amp_dtype = replayer->cluster.classes[c].device.amp_dtype;
    if (step->graph->op[op].needs_gradient)
        replayer->n_f16_gradient += tandem_precision_has_f16_gradient(precision, amp_dtype) -
                                    tandem_precision_has_f16_gradient(step->precision[op], amp_dtype);
    for (int with_norm = 0; with_norm < 2; with_norm++)
        set_class_precision(&replayer->program[with_norm]->classes[c], op, precision);
}

void tandem_replayer_load_class(tandem_replayer *replayer, int c, const tandem_precision *precision)
{
    const tandem_graph *graph = tandem_replayer_step(replayer, c)->graph;
    for (int op = 0; op < graph->n_op; op++)
        if (tandem_op_row_get(graph->op[op].kind)->precisions)
            tandem_replayer_set(replayer, c, op, precision[op]);
}

void tandem_replayer_load(tandem_replayer *replayer, const tandem_assignment *assignment)
{
    assert(assignment->n_class == replayer->n_class &&
           assignment->n_op == tandem_replayer_step(replayer, 0)->graph->n_op);
    for (int c = 0; c < replayer->n_class; c++)
        tandem_replayer_load_class(replayer, c, assignment->precision[c]);
}

void tandem_replayer_store(const tandem_replayer *replayer, tandem_assignment *assignment)
{
    const tandem_replayer *const given = replayer->program[0] ? replayer->program[0] : replayer;
    for (int c = 0; c < replayer->n_class; c++)
        memcpy(assignment->precision[c], given->classes[c].step->precision,
               (size_t)assignment->n_op * sizeof **assignment->precision);
}

tandem_precision tandem_replayer_get(const tandem_replayer *replayer, int c, int op)
{
    const tandem_replayer *const given = replayer->program[0] ? replayer->program[0] : replayer;
    return given->classes[c].step->precision[op];
}

int tandem_replayer_needs_loss_scale(const tandem_replayer *replayer) { return replayer->n_f16_gradient > 0; }

tandem_replayer *tandem_replayer_of_norm(const tandem_replayer *replayer, int with_norm)
{
    return replayer->program[with_norm];
}

tandem_status tandem_replayer_check_norm(const tandem_replayer *replayer, tandem_error *error)
{
    const tandem_replayer *with_norm = replayer->program[1];
    for (int c = 0; with_norm && c < with_norm->n_class; c++) {
        const int norm = with_norm->classes[c].step->norm_task;
        if (!tandem_replayer_has_cost(with_norm, c, norm, 0))
            return tandem_replayer_missing_cost(with_norm, c, norm, 0, error);
    }
    return TANDEM_OK;
}

static void set_program_ns(tandem_replayer *replayer, int c, int task, int variant, int contended, int64_t ns)
{
    tandem_sim_class *class = &replayer->classes[c];
    const tandem_task *changed = &class->step->task[task];
    if (changed->kind == TANDEM_TASK_REDUCE) {
        assert(ns >= 0);
        set_allreduce_ns(replayer, changed->bucket, contended != 0, ns);
        update_allreduce_sums(replayer);
        return;
    }
    tandem_variant_cost_of(&class->costs, task, variant)->ns[contended ? TANDEM_CONTENDED : TANDEM_ALONE] =
        ns;
    tandem_cost_sums_set_task(class, task);
}

/* The same task in the other program, which has one task more or less: the norm; −1 = it is the norm. */
static int task_of_other(const tandem_step *step, const tandem_step *other, int task)
{
    if (step->norm_task >= 0) return task == step->norm_task ? -1 : task - (task > step->norm_task);
    return task + (task >= other->norm_task);
}

void tandem_replayer_set_variant_ns(tandem_replayer *given, int c, int task, int variant, int contended,
                                    int64_t ns)
{
    tandem_replayer *const replayer = tandem_replayer_program(given);
    tandem_replayer *const other = given->program[0] ? given->program[replayer == given->program[0]] : NULL;
    assert(c >= 0 && c < replayer->n_class && variant >= 0 && variant < TANDEM_MAX_VARIANT && ns >= -1);
    set_program_ns(replayer, c, task, variant, contended, ns);
    if (!other) return;
    const int there = task_of_other(replayer->classes[c].step, other->classes[c].step, task);
    if (there >= 0) set_program_ns(other, c, there, variant, contended, ns);
}

/* --- Running -------------------------------------------------------------------------------------------- */

static tandem_status plan_class_memory(tandem_sim_class *class, tandem_error *error)
{
    if (!class->is_memory_dirty) return TANDEM_OK;
    const tandem_status status =
        tandem_memory_plan(&class->memory, class->step, class->workspace_bytes, NULL, NULL, error);
    if (status == TANDEM_OK) class->is_memory_dirty = 0;
    return status;
}

static void apply_precision_changes(tandem_sim_class *class)
{
    if (!class->is_dirty) return;
    tandem_step_resolve(class->step);
    update_touched_costs(class);
    class->is_dirty = 0;
}

tandem_status tandem_replayer_plan_memory(tandem_replayer *replayer, int c, tandem_memory *memory,
                                          tandem_error *error)
{
    tandem_sim_class *class = &tandem_replayer_program(replayer)->classes[c];
    apply_precision_changes(class);
    const tandem_status status = plan_class_memory(class, error);
    if (status == TANDEM_OK) *memory = class->memory;
    return status;
}

static tandem_status update_all_classes(tandem_replayer *replayer, tandem_error *error)
{
    for (int c = 0; c < replayer->n_class; c++) {
        tandem_sim_class *class = &replayer->classes[c];
        apply_precision_changes(class);
        if (class->n_missing > 0) return tandem_cost_sums_missing(class, error);
        if (class->first_dirty == 2 * replayer->n_bucket) continue;
        tandem_suffixes_forget(replayer, class->is_update_dirty ? replayer->n_bucket : class->last_dirty);
        tandem_cost_sums_update(class, replayer->n_bucket);
    }
    return TANDEM_OK;
}

tandem_status tandem_replayer_run(tandem_replayer *given, tandem_replay *replay, unsigned flags,
                                  tandem_error *error)
{
    tandem_replayer *const replayer = tandem_replayer_program(given);
    tandem_status status = update_all_classes(replayer, error);
    for (int c = 0; c < replayer->n_class && status == TANDEM_OK && (flags & TANDEM_REPLAY_MEMORY); c++)
        status = plan_class_memory(&replayer->classes[c], error);
    if (status != TANDEM_OK) return status;
    tandem_replay_simulate(replay, replayer, (flags & TANDEM_REPLAY_EVENTS) != 0);
    for (int c = 0; c < replayer->n_class; c++) {
        replayer->classes[c].n_event = 0;
        if (flags & TANDEM_REPLAY_MEMORY) replay->classes[c].peak_bytes = replayer->classes[c].memory.peak;
    }
    if (flags & TANDEM_REPLAY_EVENTS) tandem_timeline_build(replayer);
    return TANDEM_OK;
}

/* --- Questions ------------------------------------------------------------------------------------------ */

const tandem_step *tandem_replayer_step(const tandem_replayer *replayer, int c)
{
    return tandem_replayer_program(replayer)->classes[c].step;
}
const tandem_memory *tandem_replayer_memory(const tandem_replayer *replayer, int c)
{
    return &tandem_replayer_program(replayer)->classes[c].memory;
}
const uint64_t *tandem_replayer_workspace(const tandem_replayer *replayer, int c)
{
    return tandem_replayer_program(replayer)->classes[c].workspace_bytes;
}
const tandem_cluster *tandem_replayer_cluster(const tandem_replayer *replayer) { return &replayer->cluster; }

const tandem_trace_event *tandem_replayer_events(const tandem_replayer *replayer, int c, int *n_event)
{
    const tandem_sim_class *class = &tandem_replayer_program(replayer)->classes[c];
    *n_event = class->n_event;
    return class->event;
}

int64_t tandem_replayer_variant_ns(const tandem_replayer *replayer, int c, int task, int variant,
                                   int contended)
{
    const tandem_costs *costs = &tandem_replayer_program(replayer)->classes[c].costs;
    const tandem_variant_cost *cost = tandem_variant_cost_of(costs, task, variant);
    return cost->ns[contended ? TANDEM_CONTENDED : TANDEM_ALONE];
}

int64_t tandem_replayer_task_ns(const tandem_replayer *replayer, int c, int task, int contended)
{
    return tandem_replayer_variant_ns(replayer, c, task,
                                      tandem_replayer_step(replayer, c)->task[task].variant, contended);
}

void tandem_replayer_contention(const tandem_replayer *replayer, int c, tandem_contention *contention)
{
    const tandem_sim_class *class = &tandem_replayer_program(replayer)->classes[c];
    *contention =
        (tandem_contention){class->contention[TANDEM_RATE_USUAL] == TANDEM_CONTENDED,
                            class->is_on_shared_node && class->co_runner[0] != '\0', class->comm_slowdown};
}

void tandem_replayer_bucket_ns(const tandem_replayer *replayer, int b, double *idle_ns, double *loaded_ns)
{
    *idle_ns = tandem_replayer_program(replayer)->allreduce_ns[0][b];
    *loaded_ns = tandem_replayer_program(replayer)->allreduce_ns[1][b];
}

const char *tandem_replayer_bucket_source(const tandem_replayer *given, int b)
{
    const tandem_replayer *const replayer = tandem_replayer_program(given);
    if (replayer->allreduce_by[b] >= 0)
        return tandem_collective_algorithm_name((tandem_collective_algorithm)replayer->allreduce_by[b]);
    return replayer->allreduce_source.n_point > 0 ? "measured" : NULL;
}

int tandem_replayer_has_contention(const tandem_replayer *replayer)
{
    return tandem_replayer_program(replayer)->has_contention;
}
