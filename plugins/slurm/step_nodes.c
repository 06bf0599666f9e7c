/* step_nodes.c: asks slurmctld for the nodes of a step; finds their devices by resources or features. */
#include "plugins/slurm/step_nodes.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

typedef struct node_query {
    tandem_step_nodes *nodes;
    const tandem_site *site;
    const tandem_step_name *name;
    int capacity; /* of nodes->node */
    tandem_error *error;
} node_query;

static tandem_status refuse_slurmctld(const node_query *g, const char *what)
{
    return tandem_error_set(g->error, TANDEM_IO, "slurmctld does not report %s of job %u: %s", what,
                            g->nodes->job, slurm_strerror(errno));
}

static tandem_status nodes_no_memory(const node_query *g)
{
    return tandem_no_memory(g->error, "for the nodes of job %u", g->nodes->job);
}

/* --- Nodes of a component ------------------------------------------------------------------------------- */

static bool reserve_nodes(node_query *g, int more)
{
    tandem_step_nodes *nodes = g->nodes;
    const int wanted = nodes->n_node + more;
    if (wanted <= g->capacity) return true;
    tandem_node *node = tandem_arena_array(&nodes->arena, (size_t)wanted, sizeof *node);
    if (!node) return false;
    if (nodes->node) memcpy(node, nodes->node, (size_t)nodes->n_node * sizeof *node);
    nodes->node = node;
    g->capacity = wanted;
    return true;
}

/* Calls call(context, index, name) for every node of a list until it returns false. */
static void for_each_host(const char *list, bool (*call)(void *context, int index, const char *name),
                          void *context)
{
    hostlist_t hosts = slurm_hostlist_create(list ? list : "");
    char *name = NULL;
    bool more = hosts != NULL;
    for (int index = 0; more && (name = slurm_hostlist_shift(hosts)); index++) {
        more = call(context, index, name);
        free(name);
    }
    if (hosts) slurm_hostlist_destroy(hosts);
}

typedef struct host_adder {
    node_query *g;
    const slurm_step_layout_t *layout;
    bool failed;
} host_adder;

static bool add_node(void *context, int index, const char *name)
{
    host_adder *a = context;
    tandem_step_nodes *nodes = a->g->nodes;
    if (index >= (int)a->layout->node_cnt) return false;
    tandem_node *node = &nodes->node[nodes->n_node];
    *node = (tandem_node){.name = tandem_arena_text(&nodes->arena, name), .n_task = a->layout->tasks[index]};
    a->failed = !node->name;
    if (!a->failed) nodes->n_node++;
    return !a->failed;
}

/* Appends the nodes of a component on which the step runs. *n_task: their tasks; 0: it does not run on the
 * component. */
static tandem_status add_component(node_query *g, uint32_t job, uint32_t *n_task)
{
    slurm_step_id_t id = {.job_id = job, .step_het_comp = NO_VAL, .step_id = g->name->step};
    slurm_step_layout_t *layout = slurm_job_step_layout_get(&id);
    *n_task = 0;
    if (!layout) return TANDEM_OK;
    host_adder a = {.g = g, .layout = layout};
    a.failed = !reserve_nodes(g, (int)layout->node_cnt);
    if (!a.failed) for_each_host(layout->node_list, add_node, &a);
    *n_task = layout->task_cnt;
    slurm_job_step_layout_free(layout);
    return a.failed ? nodes_no_memory(g) : TANDEM_OK;
}

/* --- Devices by resources ------------------------------------------------------------------------------- */

static int compare_node_names(const void *a, const void *b)
{
    return strcmp((*(const tandem_node *const *)a)->name, (*(const tandem_node *const *)b)->name);
}

/* The nodes sorted by name; NULL: no memory. */
static tandem_node **sort_by_name(const node_query *g)
{
    tandem_node **order = malloc(((size_t)g->nodes->n_node + 1) * sizeof(tandem_node *));
    for (int i = 0; order && i < g->nodes->n_node; i++) order[i] = &g->nodes->node[i];
    if (order) qsort(order, (size_t)g->nodes->n_node, sizeof(tandem_node *), compare_node_names);
    return order;
}

static tandem_node *find_step_node(tandem_node *const *order, int n, const char *name)
{
    const tandem_node wanted = {.name = name}, *key = &wanted;
    tandem_node *const *found = bsearch(&key, order, (size_t)n, sizeof(tandem_node *), compare_node_names);
    return found ? *found : NULL;
}

static bool has_device(const tandem_node *node) { return node->device.name[0] != '\0'; }

typedef struct resource_query {
    node_query *g;
    tandem_node **order;
    const job_info_t *job;
    tandem_status status;
} resource_query;

static tandem_status set_device_by_gres(node_query *g, tandem_node *node, const char *resources)
{
    tandem_gres gres;
    tandem_device device;
    long count = 0;
    while (tandem_gres_next(&gres, &resources)) {
        if (!gres.count) continue;
        const int found = tandem_site_gres(&device, g->site, &gres, g->error);
        if (found < 0) return TANDEM_UNKNOWN_NAME;
        if (found == 0 && strcmp(gres.name, "gpu") == 0)
            return tandem_error_set(g->error, TANDEM_UNKNOWN_NAME,
                                    "the job has a gpu without a type on node %s: give it one in gres.conf "
                                    "(Type=t4), or tandem.conf a line `gres gpu DEVICE`",
                                    node->name);
        if (found == 0) continue;
        if (count && strcmp(device.name, node->device.name) != 0)
            return tandem_error_set(g->error, TANDEM_USAGE,
                                    "the job has both %s and %s on node %s; a rank is one of them: ask for "
                                    "one type a node",
                                    node->device.name, device.name, node->name);
        node->device = device;
        count += gres.count;
    }
    if (!count) return TANDEM_OK;
    if (count < node->n_task)
        return tandem_error_set(g->error, TANDEM_USAGE,
                                "node %s has %d tasks and %ld x %s: a rank is one device, so give it %ld "
                                "tasks at most",
                                node->name, node->n_task, count, node->device.name, count);
    return TANDEM_OK;
}

static bool match_resources(void *context, int index, const char *name)
{
    resource_query *l = context;
    if (index >= (int)l->job->gres_detail_cnt) return false;
    tandem_node *node = find_step_node(l->order, l->g->nodes->n_node, name);
    if (node && l->job->gres_detail_str[index])
        l->status = set_device_by_gres(l->g, node, l->job->gres_detail_str[index]);
    return l->status == TANDEM_OK;
}

/* --- Devices by features -------------------------------------------------------------------------------- */

static tandem_status match_features(node_query *g, tandem_node **order)
{
    node_info_msg_t *all = NULL;
    tandem_step_nodes *nodes = g->nodes;
    const tandem_node *unknown = NULL;
    for (int i = 0; i < nodes->n_node; i++)
        if (!has_device(&nodes->node[i])) unknown = &nodes->node[i];
    if (!unknown) return TANDEM_OK;
    if (slurm_load_node(0, &all, SHOW_ALL) != SLURM_SUCCESS)
        return refuse_slurmctld(g, "the features of the nodes");
    for (uint32_t k = 0; k < all->record_count; k++) {
        const node_info_t *record = &all->node_array[k];
        tandem_node *node = record->name ? find_step_node(order, nodes->n_node, record->name) : NULL;
        const char *features = record->features_act ? record->features_act : record->features;
        if (node && !has_device(node) && features)
            (void)tandem_site_feature(&node->device, g->site, features);
    }
    slurm_free_node_info_msg(all);
    for (int i = 0; i < nodes->n_node; i++)
        if (!has_device(&nodes->node[i]))
            return tandem_error_set(g->error, TANDEM_UNKNOWN_NAME,
                                    "node %s is no device of tandem's: the job has no typed gpu on it, and "
                                    "it has no feature "
                                    "such as cpu_avx2 (slurm.conf: Feature=cpu_avx2; tandem.conf: feature "
                                    "NAME DEVICE)",
                                    nodes->node[i].name);
    return TANDEM_OK;
}

/* --- All of it ------------------------------------------------------------------------------------------ */

static bool is_component(const job_info_t *job) { return job->het_job_id && job->het_job_id != NO_VAL; }

/* Loads the records of the job, one per component. */
static tandem_status load_jobs(node_query *g, job_info_msg_t **jobs)
{
    if (slurm_load_job(jobs, g->nodes->job, SHOW_DETAIL) != SLURM_SUCCESS)
        return refuse_slurmctld(g, "anything");
    if (!(*jobs)->record_count || !is_component((*jobs)->job_array)) return TANDEM_OK;
    const uint32_t leader = (*jobs)->job_array[0].het_job_id;
    if (leader == g->nodes->job) return TANDEM_OK;
    slurm_free_job_info_msg(*jobs);
    *jobs = NULL;
    return slurm_load_job(jobs, leader, SHOW_DETAIL) == SLURM_SUCCESS ? TANDEM_OK
                                                                      : refuse_slurmctld(g, "the components");
}

/* Copies the record of the first component that the step runs on. */
static tandem_status copy_job_record(node_query *g, const job_info_t *job)
{
    tandem_step_nodes *nodes = g->nodes;
    nodes->job = is_component(job) ? job->het_job_id : job->job_id;
    nodes->component = job->job_id - nodes->job;
    nodes->submitted = job->submit_time;
    nodes->directory = tandem_arena_text(&nodes->arena, job->work_dir ? job->work_dir : ".");
    return nodes->directory ? TANDEM_OK : nodes_no_memory(g);
}

/* Adds the nodes of the components that the step runs on: one, or all with a step of this number. */
static tandem_status add_components(node_query *g, const job_info_msg_t *jobs)
{
    const tandem_step_name *name = g->name;
    tandem_status status = TANDEM_OK;
    uint32_t got = 0;
    for (uint32_t k = 0; k < jobs->record_count && status == TANDEM_OK; k++) {
        const job_info_t *job = &jobs->job_array[k];
        const bool spans_components = is_component(job) && name->n_task_total != name->n_task;
        uint32_t here = 0;
        if (!spans_components && job->job_id != name->job) continue;
        status = add_component(g, job->job_id, &here);
        if (status == TANDEM_OK && here && !got) status = copy_job_record(g, job);
        if (status == TANDEM_OK && !spans_components && here == name->n_task) return TANDEM_OK;
        got += here;
    }
    if (status == TANDEM_OK && (!got || got != name->n_task_total))
        return tandem_error_set(g->error, TANDEM_IO,
                                "slurmctld has the nodes of %u tasks of step %u of job %u, srun of %u", got,
                                name->step, name->job, name->n_task_total);
    return status;
}

static tandem_status gather_step_nodes(node_query *g, const job_info_msg_t *jobs)
{
    tandem_status status = add_components(g, jobs);
    if (status != TANDEM_OK) return status;
    resource_query l = {.g = g, .order = sort_by_name(g), .status = TANDEM_OK};
    if (!l.order) return nodes_no_memory(g);
    for (uint32_t k = 0; k < jobs->record_count && l.status == TANDEM_OK; k++) {
        l.job = &jobs->job_array[k];
        for_each_host(l.job->nodes, match_resources, &l);
    }
    status = l.status;
    if (status == TANDEM_OK) status = match_features(g, l.order);
    free(l.order);
    return status;
}

tandem_status tandem_step_nodes_open(tandem_step_nodes *nodes, const tandem_step_name *name,
                                     const tandem_site *site, tandem_error *error)
{
    tandem_step_nodes made = {.job = name->job};
    node_query g = {.nodes = &made, .site = site, .name = name, .error = error};
    job_info_msg_t *jobs = NULL;
    tandem_status status = load_jobs(&g, &jobs);
    if (status == TANDEM_OK) status = gather_step_nodes(&g, jobs);
    if (jobs) slurm_free_job_info_msg(jobs);
    if (status == TANDEM_OK)
        *nodes = made;
    else
        tandem_step_nodes_close(&made);
    return status;
}

void tandem_step_nodes_close(tandem_step_nodes *nodes)
{
    tandem_arena_free(&nodes->arena);
    *nodes = (tandem_step_nodes){0};
}

/* --- Ranks as text -------------------------------------------------------------------------------------- */

static bool continues_run(const tandem_node *before, const tandem_node *node)
{
    return before->class_index == node->class_index && before->n_task == node->n_task &&
           before->first_rank + before->n_task == node->first_rank;
}

/* Prints the run of nodes that begins with node `begin`. */
static bool print_run(FILE *out, const tandem_step_nodes *nodes, int begin)
{
    const tandem_node *first = &nodes->node[begin], *last = NULL;
    hostlist_t hosts = slurm_hostlist_create("");
    bool done = hosts != NULL;
    for (int i = begin; i < nodes->n_node && done; i++) {
        const tandem_node *node = &nodes->node[i];
        if (!node->n_task || node->class_index != first->class_index) continue;
        if (last && !continues_run(last, node)) break;
        done = slurm_hostlist_push_host(hosts, node->name) > 0;
        last = node;
    }
    char *names = done ? slurm_hostlist_ranged_string_malloc(hosts) : NULL;
    done = names &&
           fprintf(out, "%d %d %s %s;", first->first_rank, first->n_task, first->device.name, names) > 0;
    free(names);
    if (hosts) slurm_hostlist_destroy(hosts);
    return done;
}

char *tandem_step_nodes_ranks(const tandem_step_nodes *nodes)
{
    const tandem_node *last[TANDEM_MAX_CLASS] = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    bool done = out != NULL;
    for (int i = 0; i < nodes->n_node && done; i++) {
        const tandem_node *node = &nodes->node[i];
        if (!node->n_task) continue;
        if (!last[node->class_index] || !continues_run(last[node->class_index], node))
            done = print_run(out, nodes, i);
        last[node->class_index] = node;
    }
    if (out && fclose(out) != 0) done = false;
    if (done) return text;
    free(text);
    return NULL;
}
