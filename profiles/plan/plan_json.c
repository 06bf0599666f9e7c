/* plan_json.c: writes and reads the plan file, tandem.plan/1. */
#include "profiles/cluster/link.h"
#include "profiles/plan/plan_json.h"
#include "base/nearest.h"
#include "profiles/cluster/cluster_text.h"
#include "base/file.h"
#include "base/json.h"
#include "profiles/format/json_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char schema_name[] = "tandem.plan/1";

static bool is_adjustable_op(const tandem_graph *graph, int op)
{
    return tandem_op_is_adjustable(&graph->op[op]);
}

/* --- Writing -------------------------------------------------------------------------------------------- */
typedef struct json_writer {
    FILE *stream;
    int depth;
    bool first; /* in the open object */
} json_writer;

static void open_object(json_writer *w)
{
    (void)fputc('{', w->stream);
    w->depth++;
    w->first = true;
}

static void new_line(const json_writer *w) { (void)fprintf(w->stream, "\n%*s", 2 * w->depth, ""); }

static void close_object(json_writer *w)
{
    w->depth--;
    if (!w->first) new_line(w);
    (void)fputc('}', w->stream);
    w->first = false;
}

static void begin_member(json_writer *w, const char *name)
{
    (void)fputs(w->first ? "" : ",", w->stream);
    new_line(w);
    tandem_json_write_text(w->stream, name);
    (void)fputs(": ", w->stream);
    w->first = false;
}

static void write_text_member(json_writer *w, const char *name, const char *text)
{
    begin_member(w, name);
    tandem_json_write_text(w->stream, text);
}

static void write_real_member(json_writer *w, const char *name, double value)
{
    begin_member(w, name);
    tandem_json_write_real(w->stream, value);
}

/* 0 means unknown */
static void write_integer_member(json_writer *w, const char *name, int64_t value)
{
    begin_member(w, name);
    if (value > 0)
        (void)fprintf(w->stream, "%" PRId64, value);
    else
        (void)fputs("null", w->stream);
}

static void write_bytes_member(json_writer *w, const char *name, uint64_t bytes)
{
    write_integer_member(w, name, bytes > INT64_MAX ? 0 : (int64_t)bytes);
}

static void write_flag_member(json_writer *w, const char *name, bool is_so)
{
    begin_member(w, name);
    (void)fputs(is_so ? "true" : "false", w->stream);
}

/* null if it is not given */
static void write_link_member(json_writer *w, const char *name, tandem_link link)
{
    char text[TANDEM_LINK_TEXT];
    tandem_link_print(text, sizeof text, &link);
    if (text[0])
        write_text_member(w, name, text);
    else
        write_real_member(w, name, NAN);
}

static void write_plan_class(json_writer *w, const tandem_plan *plan, const tandem_graph *graph, int c)
{
    const tandem_cluster_class *const member = &plan->cluster.classes[c];
    open_object(w);
    write_text_member(w, "device", member->device.name);
    write_integer_member(w, "ranks", member->n_rank);
    write_integer_member(w, "per_node", member->per_node);
    write_integer_member(w, "batch", member->batch);
    write_bytes_member(w, "memory_bytes", member->memory_bytes);
    if (member->link.bytes_per_s > 0) write_link_member(w, "link", member->link);
    if (member->slowdown_ppm) write_real_member(w, "slow", (double)member->slowdown_ppm / TANDEM_CLUSTER_PPM);
    write_bytes_member(w, "peak_bytes", plan->peak_bytes[c]);
    write_flag_member(w, "keeps_base", (plan->keeps_base >> c & 1) != 0);
    begin_member(w, "precision");
    open_object(w);
    for (int op = 0; op < graph->n_op; op++)
        if (is_adjustable_op(graph, op))
            write_text_member(w, graph->op[op].name,
                              tandem_precision_get(plan->assignment.precision[c][op])->name);
    close_object(w);
    close_object(w);
}

/* On one line. The seed is a number. */
static void write_made(json_writer *w, const tandem_made *origin)
{
    const struct {
        const char *name, *text;
    } members[] = {{"command", origin->command}, {"version", origin->version}, {"host", origin->host}};
    const char *before = "{";
    begin_member(w, "made");
    for (size_t k = 0; k < sizeof members / sizeof *members; k++) {
        if (!members[k].text[0]) continue;
        (void)fprintf(w->stream, "%s\"%s\": ", before, members[k].name);
        tandem_json_write_text(w->stream, members[k].text);
        before = ", ";
    }
    if (origin->seed[0]) (void)fprintf(w->stream, "%s\"seed\": %s", before, origin->seed);
    (void)fputc('}', w->stream);
}

static const char *const scale_rules[] = {NULL, "plans that need one", "all plans"};

static void write_plan_object(json_writer *w, const tandem_plan *plan, const tandem_graph *graph)
{
    char hash[17];
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, plan->hash);
    open_object(w);
    write_text_member(w, "schema", schema_name);
    if (plan->made.command[0]) write_made(w, &plan->made);
    write_text_member(w, "name", plan->name);
    write_text_member(w, "policy", plan->policy);
    write_text_member(w, "model", plan->model);
    write_text_member(w, "graph_hash", hash);
    write_text_member(w, "base_precision", tandem_precision_get(plan->base_precision)->name);
    write_bytes_member(w, "bucket_bytes", plan->bucket_bytes);
    if (plan->step.n_micro > 1) write_integer_member(w, "micro_steps", plan->step.n_micro);
    if (plan->step.n_recompute_segment != 0 && plan->step.n_recompute_segment != 1) {
        char recompute[TANDEM_RECOMPUTE_TEXT];
        write_text_member(w, "recompute", tandem_recompute_print(recompute, plan->step.n_recompute_segment));
    }
    if (plan->step.scaling.window > 0) {
        char scaling[TANDEM_CAST_SCALING_TEXT];
        write_text_member(w, "amax", tandem_cast_scaling_print(scaling, plan->step.scaling));
    }
    if (plan->cluster.wire != TANDEM_F32) write_text_member(w, "wire", tandem_dtype_name(plan->cluster.wire));
    if (plan->loss_scale != 0) {
        char scale[TANDEM_LOSS_SCALE_TEXT];
        write_text_member(w, "loss_scale", tandem_loss_scale_print(scale, plan->loss_scale));
    }
    if (plan->objective != TANDEM_MINIMIZE_OPEN)
        write_text_member(w, "objective", tandem_objective_name(plan->objective));
    if (isfinite(plan->max_sensitivity)) write_real_member(w, "max_sensitivity", plan->max_sensitivity);
    write_real_member(w, "slowdown", plan->slowdown);
    write_integer_member(w, "target_ns", plan->target_ns);
    write_integer_member(w, "fastest_ns", plan->fastest_ns);
    write_integer_member(w, "step_ns", plan->step_ns);
    write_real_member(w, "sensitivity_bound", plan->sensitivity_bound);
    write_text_member(w, "method", plan->method);
    write_real_member(w, "lower_bound", plan->lower_bound);
    write_real_member(w, "gap", plan->gap);
    write_text_member(w, "proof", plan->proof);
    if (plan->scale_rule != TANDEM_SCALE_UNKNOWN)
        write_text_member(w, "loss_scale_of", scale_rules[plan->scale_rule]);
    if (plan->cluster.node.bytes_per_s > 0) write_link_member(w, "node", plan->cluster.node);
    write_link_member(w, "net", (tandem_link){plan->cluster.link_bytes_per_s, plan->cluster.link_latency_ns});
    begin_member(w, "classes");
    (void)fputc('[', w->stream);
    w->depth++;
    for (int c = 0; c < plan->cluster.n_class; c++) {
        (void)fputs(c ? "," : "", w->stream);
        new_line(w);
        write_plan_class(w, plan, graph, c);
    }
    w->depth--;
    new_line(w);
    (void)fputc(']', w->stream);
    close_object(w);
    (void)fputc('\n', w->stream);
}

char *tandem_plan_text(const tandem_plan *plan, const tandem_graph *graph)
{
    char *text = NULL;
    size_t n = 0;
    json_writer w = {.stream = open_memstream(&text, &n)};
    if (!w.stream) return NULL;
    write_plan_object(&w, plan, graph);
    const bool failed = ferror(w.stream) != 0;
    if (fclose(w.stream) == 0 && !failed) return text;
    free(text);
    return NULL;
}

tandem_status tandem_plan_write(const tandem_plan *plan, const tandem_graph *graph, const char *path,
                                tandem_error *error)
{
    tandem_file file = {0};
    tandem_status status = tandem_plan_check(plan, graph, error);
    char *const text = status == TANDEM_OK ? tandem_plan_text(plan, graph) : NULL;
    if (status == TANDEM_OK && !text) status = tandem_no_memory(error, "for the text of the plan");
    if (status == TANDEM_OK) status = tandem_file_open(&file, path, error);
    if (status == TANDEM_OK) {
        (void)fputs(text, file.stream);
        status = tandem_file_finish(&file, error);
    }
    free(text);
    return status;
}

/* --- Reading -------------------------------------------------------------------------------------------- */
static tandem_status read_bounded_text(char *to, size_t size, const tandem_json_location *location,
                                       const json_t *object, const char *member, int required)
{
    const char *text = NULL;
    char why[64];
    const tandem_status status = tandem_json_text(&text, location, object, member, required);
    if (status != TANDEM_OK || !text) return status;
    (void)snprintf(why, sizeof why, "must have less than %zu characters", size);
    if (strlen(text) >= size) return tandem_json_refuse(location, member, why);
    memcpy(to, text, strlen(text) + 1);
    return TANDEM_OK;
}

static tandem_status read_graph_hash(uint64_t *hash, const tandem_json_location *location, const json_t *root)
{
    const char *text = NULL;
    const tandem_status status = tandem_json_text(&text, location, root, "graph_hash", 1);
    if (status != TANDEM_OK) return status;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return tandem_json_refuse(location, "graph_hash", "must be 16 hexadecimal digits");
    *hash = strtoull(text, NULL, 16);
    return TANDEM_OK;
}

static tandem_status read_plan_class(tandem_plan *plan, int c, const tandem_json_location *location,
                                     const json_t *object)
{
    static const char *const allowed[] = {"device",       "ranks",     "per_node", "batch",
                                          "memory_bytes", "link",      "slow",     "peak_bytes",
                                          "keeps_base",   "precision", NULL};
    tandem_cluster_class *const member = &plan->cluster.classes[c];
    tandem_error inner = {0};
    const char *device = NULL;
    int64_t n_rank = 0, per_node = 0, memory_bytes = 0, peak_bytes = 0;
    int keeps_base = 0;
    tandem_status status = tandem_json_check_members(location, object, allowed);
    if (status == TANDEM_OK) status = tandem_json_text(&device, location, object, "device", 1);
    if (status == TANDEM_OK && tandem_device_find(&member->device, device, &inner) != TANDEM_OK)
        status = tandem_json_refuse(location, "device", inner.text);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&n_rank, location, object, "ranks", 1, TANDEM_CLUSTER_MAX_RANK, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&per_node, location, object, "per_node", 1, TANDEM_CLUSTER_MAX_RANK, 0);
    if (status == TANDEM_OK)
        status =
            tandem_json_integer(&member->batch, location, object, "batch", 1, TANDEM_CLUSTER_MAX_BATCH, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&memory_bytes, location, object, "memory_bytes", 1, INT64_MAX, 0);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&peak_bytes, location, object, "peak_bytes", 1, INT64_MAX, 0);
    if (status == TANDEM_OK) status = tandem_link_read(&member->link, location, object, "link");
    if (status == TANDEM_OK) status = tandem_json_bool(&keeps_base, location, object, "keeps_base");
    if (status == TANDEM_OK) status = tandem_slowdown_read(&member->slowdown_ppm, location, object);
    if (status != TANDEM_OK) return status;
    member->n_rank = (int)n_rank;
    member->per_node = (int)per_node;
    member->memory_bytes = (uint64_t)memory_bytes;
    plan->peak_bytes[c] = (uint64_t)peak_bytes;
    plan->keeps_base |= (unsigned)keeps_base << c;
    return TANDEM_OK;
}

/* The base precision. Older files do not have it; theirs is fp32. */
static tandem_status read_base_precision(tandem_precision *base_precision,
                                         const tandem_json_location *location, const json_t *root)
{
    tandem_error inner = {0};
    const char *name = NULL;
    const tandem_status status = tandem_json_text(&name, location, root, "base_precision", 0);
    if (status != TANDEM_OK || !name) return status;
    return tandem_precision_find(base_precision, name, &inner) == TANDEM_OK
               ? TANDEM_OK
               : tandem_json_refuse(location, "base_precision", inner.text);
}

/* Numbers that may be unknown. */
static tandem_status read_plan_metrics(tandem_plan *plan, const tandem_json_location *location,
                                       const json_t *root)
{
    double *const real[] = {&plan->max_sensitivity, &plan->slowdown, &plan->sensitivity_bound,
                            &plan->lower_bound, &plan->gap};
    static const char *const real_name[] = {"max_sensitivity", "slowdown", "sensitivity_bound", "lower_bound",
                                            "gap"};
    int64_t bucket_bytes = 0, *const whole[] = {&plan->step_ns, &plan->target_ns, &plan->fastest_ns,
                                                &bucket_bytes};
    static const char *const whole_name[] = {"step_ns", "target_ns", "fastest_ns", "bucket_bytes"};
    tandem_status status = TANDEM_OK;
    for (size_t i = 0; i < sizeof whole / sizeof whole[0] && status == TANDEM_OK; i++)
        status = tandem_json_integer(whole[i], location, root, whole_name[i], 1, INT64_MAX, 0);
    for (size_t i = 0; i < sizeof real / sizeof real[0] && status == TANDEM_OK; i++)
        status = tandem_json_real(real[i], location, root, real_name[i], 0);
    plan->bucket_bytes = (uint64_t)bucket_bytes;
    return status;
}

static tandem_status read_objective(tandem_objective *objective, const tandem_json_location *location,
                                    const json_t *root)
{
    tandem_error inner = {0};
    const char *name = NULL;
    const tandem_status status = tandem_json_text(&name, location, root, "objective", 0);
    if (status != TANDEM_OK || !name) return status;
    return tandem_objective_find(objective, name, &inner) == TANDEM_OK
               ? TANDEM_OK
               : tandem_json_refuse(location, "objective", inner.text);
}

/* Most plans omit these: one micro-step, no recomputation, casts that measure their range, no loss scale,
 * gradients that travel in f32. */
static tandem_status read_step_options(tandem_plan *plan, const tandem_json_location *location,
                                       const json_t *root)
{
    tandem_step_options *const step = &plan->step;
    tandem_error inner = {0};
    const char *recompute = NULL, *scaling = NULL, *loss_scale = NULL, *wire = NULL;
    int64_t n_micro = 0;
    tandem_status status =
        tandem_json_integer(&n_micro, location, root, "micro_steps", 1, TANDEM_MAX_MICRO, 0);
    if (status == TANDEM_OK) status = tandem_json_text(&recompute, location, root, "recompute", 0);
    step->n_micro = (int)n_micro;
    if (status == TANDEM_OK) status = tandem_json_text(&scaling, location, root, "amax", 0);
    if (status == TANDEM_OK) status = tandem_json_text(&loss_scale, location, root, "loss_scale", 0);
    if (status == TANDEM_OK) status = tandem_json_text(&wire, location, root, "wire", 0);
    if (status != TANDEM_OK) return status;
    if (recompute && tandem_recompute_parse(&step->n_recompute_segment, recompute, &inner) != TANDEM_OK)
        return tandem_json_refuse(location, "recompute", inner.text);
    if (scaling && tandem_cast_scaling_parse(&step->scaling, scaling, &inner) != TANDEM_OK)
        return tandem_json_refuse(location, "amax", inner.text);
    if (loss_scale && tandem_loss_scale_parse(&plan->loss_scale, loss_scale, &inner) != TANDEM_OK)
        return tandem_json_refuse(location, "loss_scale", inner.text);
    if (wire && tandem_gradient_wire_find(&plan->cluster.wire, wire, &inner) != TANDEM_OK)
        return tandem_json_refuse(location, "wire", inner.text);
    step->with_norm = plan->loss_scale != 0;
    return TANDEM_OK;
}

/* A bound that does not say whose it is counts as unproven. */
static tandem_status read_scale_rule(tandem_plan *plan, const tandem_json_location *location,
                                     const json_t *root)
{
    const char *rule = NULL;
    const tandem_status status = tandem_json_text(&rule, location, root, "loss_scale_of", 0);
    if (status != TANDEM_OK) return status;
    for (int k = TANDEM_SCALE_AS_NEEDED; rule && k <= TANDEM_SCALE_OF_ALL; k++)
        if (strcmp(rule, scale_rules[k]) == 0) plan->scale_rule = (tandem_scale_rule)k;
    if (rule && plan->scale_rule == TANDEM_SCALE_UNKNOWN)
        return tandem_json_refuse(location, "loss_scale_of",
                                  "must be \"plans that need one\" or \"all plans\"");
    if (rule || isnan(plan->lower_bound) || strcmp(plan->proof, "zero") == 0) return TANDEM_OK;
    plan->has_unproven_bound = 1;
    plan->lower_bound = plan->gap = NAN;
    plan->proof[0] = '\0';
    return TANDEM_OK;
}

/* What an API wrote, and older files, do not have it. */
static tandem_status read_made(tandem_made *origin, const tandem_json_location *location, const json_t *root)
{
    static const char *const allowed[] = {"command", "version", "host", "seed", NULL};
    const json_t *const object = json_object_get(root, "made");
    int64_t seed = -1;
    if (!object || json_is_null(object)) return TANDEM_OK;
    if (!json_is_object(object)) return tandem_json_refuse(location, "made", "must be an object");
    tandem_status status = tandem_json_check_members(location, object, allowed);
    if (status == TANDEM_OK)
        status = read_bounded_text(origin->command, sizeof origin->command, location, object, "command", 1);
    if (status == TANDEM_OK)
        status = read_bounded_text(origin->version, sizeof origin->version, location, object, "version", 0);
    if (status == TANDEM_OK)
        status = read_bounded_text(origin->host, sizeof origin->host, location, object, "host", 0);
    if (status == TANDEM_OK) status = tandem_json_integer(&seed, location, object, "seed", 0, INT64_MAX, 0);
    if (status == TANDEM_OK && seed >= 0) (void)snprintf(origin->seed, sizeof origin->seed, "%" PRId64, seed);
    return status;
}

/* A newer tandem's plan may contain what this one cannot know. */
static tandem_status check_plan_schema(const tandem_json_location *location, const char *schema)
{
    const size_t n = sizeof schema_name - 2; /* up to its version */
    char why[256];
    if (strcmp(schema, schema_name) == 0) return TANDEM_OK;
    const int is_newer = strncmp(schema, schema_name, n) == 0 &&
                         strtol(schema + n, NULL, 10) > strtol(schema_name + n, NULL, 10);
    (void)snprintf(why, sizeof why, "is \"%.40s\", and this tandem (%s) reads \"%s\"%s", schema,
                   TANDEM_VERSION, schema_name,
                   is_newer ? ": use the tandem that wrote it, or make the plan again with `tandem allocate`"
                            : " only");
    return tandem_json_refuse(location, "schema", why);
}

/* Reads everything that does not need the graph. */
static tandem_status read_plan_head(tandem_plan *plan, tandem_json_location *location, const json_t *root)
{
    static const char *const allowed[] = {"schema",
                                          "name",
                                          "policy",
                                          "model",
                                          "graph_hash",
                                          "base_precision",
                                          "bucket_bytes",
                                          "slowdown",
                                          "target_ns",
                                          "fastest_ns",
                                          "step_ns",
                                          "sensitivity_bound",
                                          "method",
                                          "lower_bound",
                                          "gap",
                                          "proof",
                                          "node",
                                          "net",
                                          "classes",
                                          "micro_steps",
                                          "recompute",
                                          "amax",
                                          "loss_scale",
                                          "made",
                                          "wire",
                                          "loss_scale_of",
                                          "objective",
                                          "max_sensitivity",
                                          NULL};
    const char *schema = NULL;
    tandem_status status = tandem_json_text(&schema, location, root, "schema", 1);
    if (status == TANDEM_OK) status = check_plan_schema(location, schema);
    if (status == TANDEM_OK) status = tandem_json_check_members(location, root, allowed);
    if (status == TANDEM_OK) status = read_made(&plan->made, location, root);
    if (status == TANDEM_OK)
        status = read_bounded_text(plan->name, sizeof plan->name, location, root, "name", 1);
    if (status == TANDEM_OK)
        status = read_bounded_text(plan->policy, sizeof plan->policy, location, root, "policy", 0);
    if (status == TANDEM_OK)
        status = read_bounded_text(plan->model, sizeof plan->model, location, root, "model", 1);
    if (status == TANDEM_OK)
        status = read_bounded_text(plan->method, sizeof plan->method, location, root, "method", 0);
    if (status == TANDEM_OK) status = read_graph_hash(&plan->hash, location, root);
    if (status == TANDEM_OK)
        status = read_bounded_text(plan->proof, sizeof plan->proof, location, root, "proof", 0);
    if (status == TANDEM_OK) status = read_base_precision(&plan->base_precision, location, root);
    if (status == TANDEM_OK) status = read_objective(&plan->objective, location, root);
    if (status == TANDEM_OK) status = read_plan_metrics(plan, location, root);
    if (status == TANDEM_OK) status = read_scale_rule(plan, location, root);
    if (status == TANDEM_OK) status = read_step_options(plan, location, root);
    if (status == TANDEM_OK) status = tandem_cluster_read_links(&plan->cluster, location, root);
    const json_t *const classes = json_object_get(root, "classes");
    const size_t n = json_array_size(classes);
    if (status == TANDEM_OK && (n < 1 || n > TANDEM_MAX_CLASS))
        status = tandem_json_refuse(location, "classes", "must be an array of 1 to 32 classes");
    for (size_t c = 0; c < n && status == TANDEM_OK; c++) {
        (void)snprintf(location->path, sizeof location->path, "classes[%zu]", c);
        status = read_plan_class(plan, (int)c, location, json_array_get(classes, c));
    }
    plan->cluster.n_class = (int)n;
    return status;
}
_Static_assert(TANDEM_MAX_CLASS == 32, "the message above says 32");

/* The adjustable operator of that name; −1 with the reason in `why`. */
static int find_adjustable_op(const tandem_graph *graph, const char *name, char *why, size_t size)
{
    tandem_error inner = {0};
    int op = -1;
    if (tandem_graph_find(&op, graph, name, &inner) != TANDEM_OK) {
        (void)snprintf(why, size, "%.400s", inner.text);
        return -1;
    }
    if (is_adjustable_op(graph, op)) return op;
    (void)snprintf(why, size, "is a %s, which carries no precision",
                   tandem_op_row_get(graph->op[op].kind)->name);
    return -1;
}

/* The precision that `value` names, if operator and device have it. */
static tandem_status read_precision(tandem_precision *precision, const tandem_json_location *location,
                                    const char *op_name, const json_t *value, const tandem_op_row *row,
                                    const tandem_device *device)
{
    tandem_error inner = {0};
    char why[256];
    tandem_precision found;
    if (!json_is_string(value))
        return tandem_json_refuse(location, op_name, "must be the name of a precision");
    if (tandem_precision_find(&found, json_string_value(value), &inner) != TANDEM_OK)
        return tandem_json_refuse(location, op_name, inner.text);
    const char *const name = tandem_precision_get(found)->name;
    if (!(row->precisions >> found & 1)) {
        (void)snprintf(why, sizeof why, "no %s exists in %s", row->name, name);
        return tandem_json_refuse(location, op_name, why);
    }
    if (!(device->precisions >> found & 1)) {
        (void)snprintf(why, sizeof why, "the device %s has no %s", device->name, name);
        return tandem_json_refuse(location, op_name, why);
    }
    *precision = found;
    return TANDEM_OK;
}

/* classes[c].precision: each adjustable operator once. */
static tandem_status read_precisions(tandem_plan *plan, int c, tandem_json_location *location, json_t *object,
                                     const tandem_graph *graph)
{
    char why[512];
    bool *const seen = calloc((size_t)graph->n_op + 1, sizeof *seen);
    tandem_status status = TANDEM_OK;
    if (!seen) return tandem_no_memory(location->error, "for a plan of %d operators", graph->n_op);
    (void)snprintf(location->path, sizeof location->path, "classes[%d].precision", c);
    if (!json_is_object(object))
        status = tandem_json_refuse(location, NULL, "must be an object of operator names");
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const int op = status == TANDEM_OK ? find_adjustable_op(graph, name, why, sizeof why) : -1;
        if (status != TANDEM_OK) break;
        if (op < 0) {
            status = tandem_json_refuse(location, name, why);
            break;
        }
        seen[op] = true;
        status = read_precision(&plan->assignment.precision[c][op], location, name, value,
                                tandem_op_row_get(graph->op[op].kind), &plan->cluster.classes[c].device);
    }
    for (int op = 0; op < graph->n_op && status == TANDEM_OK; op++)
        if (is_adjustable_op(graph, op) && !seen[op])
            status = tandem_json_refuse(location, graph->op[op].name,
                                        "is missing: every operator that carries a precision needs one");
    free(seen);
    return status;
}

/* Opens a plan as large as its graph, with the content of `head`. */
static tandem_status plan_from_head(tandem_plan **plan, const tandem_plan *head, const tandem_graph *graph,
                                    tandem_error *error)
{
    tandem_plan *built = NULL;
    tandem_status status = tandem_plan_open(&built, graph, &head->cluster, head->name, error);
    if (status != TANDEM_OK) return status;
    tandem_plan filled = *head;
    filled.assignment = built->assignment;
    *built = filled;
    *plan = built;
    return TANDEM_OK;
}

static tandem_status open_plan_graph(tandem_graph **graph, const tandem_plan *head,
                                     tandem_json_location *location)
{
    tandem_error inner = {0};
    const tandem_status status =
        tandem_graph_open(graph, head->model, head->cluster.classes[0].batch, &inner);
    if (status == TANDEM_OK || status == TANDEM_NO_MEMORY)
        return status == TANDEM_OK ? status : tandem_error_set(location->error, status, "%s", inner.text);
    location->path[0] = '\0';
    return tandem_json_refuse(location, "model", inner.text);
}

static tandem_plan plan_head_of_nothing(void)
{
    return (tandem_plan){
        .max_sensitivity = NAN, .slowdown = NAN, .sensitivity_bound = NAN, .lower_bound = NAN, .gap = NAN};
}

/* A plan of `graph` from what its head says and the precisions of its classes. */
static tandem_status read_plan_of(tandem_plan **plan, tandem_plan *head, const tandem_graph *graph,
                                  const json_t *root, tandem_json_location *location)
{
    tandem_plan *read = NULL;
    head->assignment.n_op = graph->n_op;
    tandem_status status = tandem_plan_check(head, graph, location->error);
    if (status == TANDEM_OK) status = plan_from_head(&read, head, graph, location->error);
    const json_t *const classes = json_object_get(root, "classes");
    for (int c = 0; status == TANDEM_OK && c < read->cluster.n_class; c++)
        status = read_precisions(read, c, location,
                                 json_object_get(json_array_get(classes, (size_t)c), "precision"), graph);
    if (status == TANDEM_OK)
        *plan = read;
    else
        tandem_plan_close(read);
    return status;
}

/* is_emulated: devices may lack the precisions that operators have. */
static tandem_status parse_plan(tandem_plan **plan, tandem_graph **graph, const char *bytes, size_t n,
                                const char *source, int is_emulated, tandem_error *error)
{
    tandem_plan head = plan_head_of_nothing();
    tandem_json_location location = {.source = source, .error = error};
    json_t *root = NULL;
    tandem_graph *opened = NULL;
    tandem_status status = tandem_json_parse(&root, bytes, n, source, error);
    if (status == TANDEM_OK) status = read_plan_head(&head, &location, root);
    if (status == TANDEM_OK) status = open_plan_graph(&opened, &head, &location);
    for (int c = 0; status == TANDEM_OK && is_emulated && c < head.cluster.n_class; c++)
        head.cluster.classes[c].device.precisions = (1u << TANDEM_N_PRECISION) - 1;
    if (status == TANDEM_OK) status = read_plan_of(plan, &head, opened, root, &location);
    if (status == TANDEM_OK)
        *graph = opened;
    else
        tandem_graph_close(opened);
    json_decref(root);
    return status;
}

tandem_status tandem_plan_parse(tandem_plan **plan, tandem_graph **graph, const char *bytes, size_t n,
                                const char *source, tandem_error *error)
{
    return parse_plan(plan, graph, bytes, n, source, 0, error);
}

tandem_status tandem_plan_parse_of(tandem_plan **plan, const tandem_graph *graph, const char *bytes, size_t n,
                                   const char *source, tandem_error *error)
{
    tandem_plan head = plan_head_of_nothing();
    tandem_json_location location = {.source = source, .error = error};
    json_t *root = NULL;
    tandem_status status = tandem_json_parse(&root, bytes, n, source, error);
    if (status == TANDEM_OK) status = read_plan_head(&head, &location, root);
    if (status == TANDEM_OK) status = read_plan_of(plan, &head, graph, root, &location);
    json_decref(root);
    return status;
}

static tandem_status read_plan_file(tandem_plan **plan, tandem_graph **graph, const char *path,
                                    int is_emulated, tandem_error *error)
{
    enum { MAX_PLAN_BYTES = 64 << 20 };
    char *bytes = NULL;
    size_t n = 0;
    tandem_status status = tandem_file_read(&bytes, &n, path, MAX_PLAN_BYTES, error);
    if (status == TANDEM_OK) status = parse_plan(plan, graph, bytes, n, path, is_emulated, error);
    free(bytes);
    return status;
}

tandem_status tandem_plan_read(tandem_plan **plan, tandem_graph **graph, const char *path,
                               tandem_error *error)
{
    return read_plan_file(plan, graph, path, 0, error);
}

tandem_status tandem_plan_read_emulated(tandem_plan **plan, tandem_graph **graph, const char *path,
                                        tandem_error *error)
{
    return read_plan_file(plan, graph, path, 1, error);
}
