/* plan_json.c: the plan file, tandem.plan/1. */
#include "profiles/plan_json.h"
#include "base/nearest.h"
#include "profiles/cluster_text.h"
#include "profiles/file.h"
#include "profiles/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char schema_name[] = "tandem.plan/1";

static bool is_adjustable(const tandem_graph *graph, int op)
{
    return tandem_op_row_get(graph->op[op].kind)->op_class == TANDEM_ADJUSTABLE;
}

/* --- Writing: NULL anywhere is memory that ran out, and jansson passes it on as a failure of the next call ----------- */
static json_t *real_or_null(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *whole_or_null(uint64_t value)
{
    return value != 0 && value <= INT64_MAX ? json_integer((json_int_t)value) : json_null();
}

/* json_object_set_new refuses a NULL value, so `whole` tells whether every member made it. */
static void set(json_t *object, const char *member, json_t *value, bool *whole)
{
    *whole = json_object_set_new(object, member, value) == 0 && *whole;
}

static json_t *precisions_json(const tandem_plan *plan, const tandem_graph *graph, int c, bool *whole)
{
    json_t *const object = json_object();
    for (int op = 0; object && op < graph->n_op; op++)
        if (is_adjustable(graph, op))
            set(object, graph->op[op].name, json_string(tandem_precision_get(plan->precision[c][op])->name), whole);
    return object;
}

static json_t *class_json(const tandem_plan *plan, const tandem_graph *graph, int c, bool *whole)
{
    const tandem_cluster_class *const member = &plan->cluster.member[c];
    json_t *const object = json_object();
    if (!object)
        return NULL;
    set(object, "device", json_string(member->device.name), whole);
    set(object, "ranks", json_integer(member->n_rank), whole);
    set(object, "per_node", whole_or_null((uint64_t)member->per_node), whole);
    set(object, "batch", json_integer(member->batch), whole);
    set(object, "memory_bytes", whole_or_null(member->memory_bytes), whole);
    set(object, "peak_bytes", whole_or_null(plan->peak_bytes[c]), whole);
    set(object, "precision", precisions_json(plan, graph, c, whole), whole);
    return object;
}

static json_t *plan_json(const tandem_plan *plan, const tandem_graph *graph)
{
    char hash[17], net[64];
    bool whole = true;
    json_t *const root = json_object(), *const classes = json_array();
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, plan->hash);
    tandem_cluster_print_net(net, sizeof net, &plan->cluster);
    set(root, "schema", json_string(schema_name), &whole);
    set(root, "name", json_string(plan->name), &whole);
    set(root, "policy", json_string(plan->policy), &whole);
    set(root, "model", json_string(plan->model), &whole);
    set(root, "graph_hash", json_string(hash), &whole);
    set(root, "slowdown", real_or_null(plan->slowdown), &whole);
    set(root, "step_ns", whole_or_null(plan->step_ns > 0 ? (uint64_t)plan->step_ns : 0), &whole);
    set(root, "sensitivity", real_or_null(plan->sensitivity), &whole);
    set(root, "method", json_string(plan->method), &whole);
    set(root, "lower_bound", real_or_null(plan->lower_bound), &whole);
    set(root, "gap", real_or_null(plan->gap), &whole);
    set(root, "net", net[0] ? json_string(net) : json_null(), &whole);
    for (int c = 0; c < plan->cluster.n_class; c++)
        whole = json_array_append_new(classes, class_json(plan, graph, c, &whole)) == 0 && whole;
    set(root, "classes", classes, &whole);
    if (whole)
        return root;
    json_decref(root);
    return NULL;
}

char *tandem_plan_text(const tandem_plan *plan, const tandem_graph *graph)
{
    json_t *const root = plan_json(plan, graph);
    char *const dumped = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    char *text = NULL;
    json_decref(root);
    if (dumped && asprintf(&text, "%s\n", dumped) < 0)
        text = NULL;
    free(dumped);
    return text;
}

tandem_status tandem_plan_write(const tandem_plan *plan, const tandem_graph *graph, const char *path, tandem_error *error)
{
    tandem_file file = {0};
    tandem_status status = tandem_plan_check(plan, graph, error);
    char *const text = status == TANDEM_OK ? tandem_plan_text(plan, graph) : NULL;
    if (status == TANDEM_OK && !text)
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the text of the plan");
    if (status == TANDEM_OK)
        status = tandem_file_open(&file, path, error);
    if (status == TANDEM_OK) {
        (void)fputs(text, file.stream);
        status = tandem_file_finish(&file, error);
    }
    free(text);
    return status;
}

/* --- Reading ------------------------------------------------------------------------------------------------------- */
static tandem_status read_name(char *to, size_t size, const tandem_json_place *place, const json_t *object,
                               const char *member, int required)
{
    const char *text = NULL;
    char why[64];
    const tandem_status status = tandem_json_text(&text, place, object, member, required);
    if (status != TANDEM_OK || !text)
        return status;
    (void)snprintf(why, sizeof why, "must have less than %zu characters", size);
    if (strlen(text) >= size)
        return tandem_json_refuse(place, member, why);
    memcpy(to, text, strlen(text) + 1);
    return TANDEM_OK;
}

static tandem_status read_hash(uint64_t *hash, const tandem_json_place *place, const json_t *root)
{
    const char *text = NULL;
    const tandem_status status = tandem_json_text(&text, place, root, "graph_hash", 1);
    if (status != TANDEM_OK)
        return status;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return tandem_json_refuse(place, "graph_hash", "must be 16 hexadecimal digits");
    *hash = strtoull(text, NULL, 16);
    return TANDEM_OK;
}

static tandem_status read_class(tandem_plan *plan, int c, const tandem_json_place *place, const json_t *object)
{
    static const char *const allowed[] = {"device",       "ranks",      "per_node",  "batch",
                                          "memory_bytes", "peak_bytes", "precision", NULL};
    tandem_cluster_class *const member = &plan->cluster.member[c];
    tandem_error inner = {0};
    const char *device = NULL;
    int64_t n_rank = 0, per_node = 0, memory_bytes = 0, peak_bytes = 0;
    tandem_status status = tandem_json_check_members(place, object, allowed);
    if (status == TANDEM_OK)
        status = tandem_json_text(&device, place, object, "device", 1);
    if (status == TANDEM_OK && tandem_device_find(&member->device, device, &inner) != TANDEM_OK)
        status = tandem_json_refuse(place, "device", inner.text);
    if (status == TANDEM_OK)
        status = tandem_json_whole(&n_rank, place, object, "ranks", 1, TANDEM_CLUSTER_MAX_RANK, 1);
    if (status == TANDEM_OK)
        status = tandem_json_whole(&per_node, place, object, "per_node", 1, n_rank, 0);
    if (status == TANDEM_OK)
        status = tandem_json_whole(&member->batch, place, object, "batch", 1, TANDEM_CLUSTER_MAX_BATCH, 1);
    if (status == TANDEM_OK)
        status = tandem_json_whole(&memory_bytes, place, object, "memory_bytes", 1, INT64_MAX, 0);
    if (status == TANDEM_OK)
        status = tandem_json_whole(&peak_bytes, place, object, "peak_bytes", 1, INT64_MAX, 0);
    if (status != TANDEM_OK)
        return status;
    member->n_rank = (int)n_rank;
    member->per_node = (int)per_node;
    member->memory_bytes = (uint64_t)memory_bytes;
    plan->peak_bytes[c] = (uint64_t)peak_bytes;
    return TANDEM_OK;
}

/* Everything that can be read without the graph. */
static tandem_status read_head(tandem_plan *plan, tandem_json_place *place, const json_t *root)
{
    static const char *const allowed[] = {"schema",  "name",        "policy", "model",       "graph_hash",
                                          "slowdown", "step_ns",    "sensitivity", "method", "lower_bound",
                                          "gap",     "net",         "classes", NULL};
    tandem_error inner = {0};
    const char *schema = NULL, *net = NULL;
    tandem_status status = tandem_json_text(&schema, place, root, "schema", 1);
    if (status == TANDEM_OK && strcmp(schema, schema_name) != 0)
        return tandem_json_refuse(place, "schema", "must be \"tandem.plan/1\"");
    if (status == TANDEM_OK)
        status = tandem_json_check_members(place, root, allowed);
    if (status == TANDEM_OK)
        status = read_name(plan->name, sizeof plan->name, place, root, "name", 1);
    if (status == TANDEM_OK)
        status = read_name(plan->policy, sizeof plan->policy, place, root, "policy", 0);
    if (status == TANDEM_OK)
        status = read_name(plan->model, sizeof plan->model, place, root, "model", 1);
    if (status == TANDEM_OK)
        status = read_name(plan->method, sizeof plan->method, place, root, "method", 0);
    if (status == TANDEM_OK)
        status = read_hash(&plan->hash, place, root);
    if (status == TANDEM_OK)
        status = tandem_json_whole(&plan->step_ns, place, root, "step_ns", 1, INT64_MAX, 0);
    double *const real[] = {&plan->slowdown, &plan->sensitivity, &plan->lower_bound, &plan->gap};
    static const char *const real_name[] = {"slowdown", "sensitivity", "lower_bound", "gap"};
    for (int i = 0; i < 4 && status == TANDEM_OK; i++)
        status = tandem_json_real(real[i], place, root, real_name[i], 0);
    if (status == TANDEM_OK)
        status = tandem_json_text(&net, place, root, "net", 0);
    if (status == TANDEM_OK && net && tandem_cluster_parse_net(&plan->cluster, net, &inner) != TANDEM_OK)
        status = tandem_json_refuse(place, "net", inner.text);
    const json_t *const classes = json_object_get(root, "classes");
    const size_t n = json_array_size(classes);
    if (status == TANDEM_OK && (n < 1 || n > TANDEM_MAX_CLASS))
        status = tandem_json_refuse(place, "classes", "must be an array of 1 to 8 classes");
    for (size_t c = 0; c < n && status == TANDEM_OK; c++) {
        (void)snprintf(place->path, sizeof place->path, "classes[%zu]", c);
        status = read_class(plan, (int)c, place, json_array_get(classes, c));
    }
    plan->cluster.n_class = (int)n;
    return status;
}
_Static_assert(TANDEM_MAX_CLASS == 8, "the message above says 8");

/* The operator of that name that carries a precision, or −1 with the reason in `why`. */
static int find_op(const tandem_graph *graph, const char *name, char *why, size_t size)
{
    tandem_error inner = {0};
    int op = -1;
    if (tandem_graph_find(&op, graph, name, &inner) != TANDEM_OK) {
        (void)snprintf(why, size, "%.400s", inner.text);
        return -1;
    }
    if (is_adjustable(graph, op))
        return op;
    (void)snprintf(why, size, "is a %s, which carries no precision", tandem_op_row_get(graph->op[op].kind)->name);
    return -1;
}

/* The precision that `value` names, if operator and device have it. */
static tandem_status read_precision(tandem_precision *precision, const tandem_json_place *place, const char *op_name,
                                    const json_t *value, const tandem_op_row *row, const tandem_device *device)
{
    tandem_error inner = {0};
    char why[256];
    tandem_precision found;
    if (!json_is_string(value))
        return tandem_json_refuse(place, op_name, "must be the name of a precision");
    if (tandem_precision_find(&found, json_string_value(value), &inner) != TANDEM_OK)
        return tandem_json_refuse(place, op_name, inner.text);
    const char *const name = tandem_precision_get(found)->name;
    if (!(row->precisions >> found & 1)) {
        (void)snprintf(why, sizeof why, "a %s does not exist in %s", row->name, name);
        return tandem_json_refuse(place, op_name, why);
    }
    if (!(device->precisions >> found & 1)) {
        (void)snprintf(why, sizeof why, "the device %s has no %s", device->name, name);
        return tandem_json_refuse(place, op_name, why);
    }
    *precision = found;
    return TANDEM_OK;
}

/* classes[c].precision: each adjustable operator once. */
static tandem_status read_precisions(tandem_plan *plan, int c, tandem_json_place *place, json_t *object,
                                     const tandem_graph *graph)
{
    char why[512];
    bool *const seen = calloc((size_t)graph->n_op + 1, sizeof *seen);
    tandem_status status = TANDEM_OK;
    if (!seen)
        return tandem_error_set(place->error, TANDEM_NO_MEMORY, "no memory for a plan of %d operators", graph->n_op);
    (void)snprintf(place->path, sizeof place->path, "classes[%d].precision", c);
    if (!json_is_object(object))
        status = tandem_json_refuse(place, NULL, "must be an object of operator names");
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const int op = status == TANDEM_OK ? find_op(graph, name, why, sizeof why) : -1;
        if (status != TANDEM_OK)
            break;
        if (op < 0) {
            status = tandem_json_refuse(place, name, why);
            break;
        }
        seen[op] = true;
        status = read_precision(&plan->precision[c][op], place, name, value, tandem_op_row_get(graph->op[op].kind),
                                &plan->cluster.member[c].device);
    }
    for (int op = 0; op < graph->n_op && status == TANDEM_OK; op++)
        if (is_adjustable(graph, op) && !seen[op])
            status = tandem_json_refuse(place, graph->op[op].name, "is missing: every operator that carries a "
                                                                   "precision needs one");
    free(seen);
    return status;
}

/* A plan as large as its graph, with what `head` holds. */
static tandem_status plan_of(tandem_plan **plan, const tandem_plan *head, const tandem_graph *graph,
                             tandem_error *error)
{
    tandem_plan *made = NULL;
    tandem_status status = tandem_plan_open(&made, graph, &head->cluster, head->name, error);
    if (status != TANDEM_OK)
        return status;
    tandem_plan filled = *head;
    filled.n_op = made->n_op;
    memcpy(filled.precision, made->precision, sizeof filled.precision);
    *made = filled;
    *plan = made;
    return TANDEM_OK;
}

static tandem_status open_graph(tandem_graph **graph, const tandem_plan *head, tandem_json_place *place)
{
    tandem_error inner = {0};
    const tandem_status status = tandem_graph_open(graph, head->model, head->cluster.member[0].batch, &inner);
    if (status == TANDEM_OK || status == TANDEM_NO_MEMORY)
        return status == TANDEM_OK ? status : tandem_error_set(place->error, status, "%s", inner.text);
    place->path[0] = '\0';
    return tandem_json_refuse(place, "model", inner.text);
}

tandem_status tandem_plan_parse(tandem_plan **plan, tandem_graph **graph, const char *bytes, size_t n,
                                const char *source, tandem_error *error)
{
    tandem_plan head = {.slowdown = NAN, .sensitivity = NAN, .lower_bound = NAN, .gap = NAN};
    tandem_json_place place = {.source = source, .error = error};
    json_t *root = NULL;
    tandem_plan *read = NULL;
    tandem_graph *opened = NULL;
    tandem_status status = tandem_json_parse(&root, bytes, n, source, error);
    if (status == TANDEM_OK)
        status = read_head(&head, &place, root);
    if (status == TANDEM_OK)
        status = open_graph(&opened, &head, &place);
    if (status == TANDEM_OK) {
        head.n_op = opened->n_op;
        status = tandem_plan_check(&head, opened, error);
    }
    if (status == TANDEM_OK)
        status = plan_of(&read, &head, opened, error);
    const json_t *const classes = json_object_get(root, "classes");
    for (int c = 0; status == TANDEM_OK && c < read->cluster.n_class; c++)
        status = read_precisions(read, c, &place, json_object_get(json_array_get(classes, (size_t)c), "precision"),
                                 opened);
    if (status == TANDEM_OK) {
        *plan = read;
        *graph = opened;
        read = NULL;
        opened = NULL;
    }
    tandem_plan_close(read);
    tandem_graph_close(opened);
    json_decref(root);
    return status;
}

tandem_status tandem_plan_read(tandem_plan **plan, tandem_graph **graph, const char *path, tandem_error *error)
{
    enum { MOST_BYTES = 64 << 20 };
    char *bytes = NULL;
    size_t n = 0;
    tandem_status status = tandem_file_read(&bytes, &n, path, MOST_BYTES, error);
    if (status == TANDEM_OK)
        status = tandem_plan_parse(plan, graph, bytes, n, path, error);
    free(bytes);
    return status;
}
