#include "runtime/train/train_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/append.h"
#include "base/hash.h"
#include "base/plain_text.h"
#include "runtime/listener.h"
#include "base/nearest.h"

static const char *const schedule_name[N_SCHEDULE] = {"constant", "cosine", "linear", "step"};

/* --- From the command line ------------------------------------------------------------------------------ */

static tandem_status find_schedule(rate_schedule *out, const char *name, tandem_error *error)
{
    tandem_hint hint;
    const int k = tandem_name_find(name, schedule_name, N_SCHEDULE, sizeof *schedule_name, &hint);
    if (k < 0)
        return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                                "no schedule '%s'.%s Allowed: constant, cosine, linear, step", name,
                                hint.text);
    *out = (rate_schedule)k;
    return TANDEM_OK;
}

static tandem_status fail_wrong_optimizer(const tandem_graph *graph, const char *option, const char *instead,
                                          tandem_error *error)
{
    return tandem_error_set(error, TANDEM_USAGE, "model '%s' uses %s, which has no %s. Use %s", graph->model,
                            tandem_optimizer_name(graph->optimizer.kind), option, instead);
}

static tandem_status set_betas(tandem_optimizer_options *o, const char *text, tandem_error *error)
{
    char *end = NULL;
    const double beta1 = tandem_plain_read(text, &end);
    const int has_two = end != text && *end == ',';
    const char *second = has_two ? end + 1 : "";
    const double beta2 = tandem_plain_read(second, &end);
    if (!has_two || end == second || *end || !(beta1 >= 0 && beta1 < 1) || !(beta2 >= 0 && beta2 < 1))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--betas takes two numbers from 0 to below 1, such as 0.9,0.999, got '%s'",
                                text);
    o->beta1 = (float)beta1;
    o->beta2 = (float)beta2;
    return TANDEM_OK;
}

static tandem_status set_optimizer_options(tandem_optimizer_options *o, const tandem_graph *graph,
                                           const tandem_train_request *request, tandem_error *error)
{
    if (request->training.rate >= 0) o->rate = (float)request->training.rate;
    if (request->training.decay >= 0) o->decay = (float)request->training.decay;
    if (request->training.momentum >= 0) {
        if (o->kind != TANDEM_SGD) return fail_wrong_optimizer(graph, "--momentum", "--betas", error);
        o->momentum = (float)request->training.momentum;
    }
    if (!request->training.betas) return TANDEM_OK;
    if (o->kind != TANDEM_ADAMW) return fail_wrong_optimizer(graph, "--betas", "--momentum", error);
    return set_betas(o, request->training.betas, error);
}

/* Each pattern must match a parameter, so that typing errors are found. */
static tandem_status check_no_decay(const tandem_graph *graph, const char *patterns, tandem_error *error)
{
    for (size_t n; *patterns; patterns += n + (patterns[n] == ',')) {
        char one[TANDEM_PARAMETER_NAME];
        n = strcspn(patterns, ",");
        (void)snprintf(one, sizeof one, "%.*s", (int)n, patterns);
        int p = 0;
        while (p < graph->n_parameter && !(n < sizeof one && tandem_parameter_matches(graph, p, one))) p++;
        if (p == graph->n_parameter)
            return tandem_error_set(
                error, TANDEM_UNKNOWN_NAME,
                "--no-decay: no parameter of model '%s' matches '%s'. A name is e.g. '%s'; `tandem "
                "graph show` lists operators",
                graph->model, one, tandem_parameter_name((char[TANDEM_PARAMETER_NAME]){""}, graph, 0));
    }
    return TANDEM_OK;
}

tandem_status train_config_open(train_config *out, const tandem_graph *graph,
                                const tandem_train_request *request, tandem_error *error)
{
    train_config r = {
        .optimizer = graph->optimizer, .warmup = request->training.warmup, .steps = request->steps};
    tandem_status status = set_optimizer_options(&r.optimizer, graph, request, error);
    if (status == TANDEM_OK && request->training.no_decay)
        status = check_no_decay(graph, request->training.no_decay, error);
    if (status == TANDEM_OK && request->training.schedule)
        status = find_schedule(&r.schedule, request->training.schedule, error);
    if (status == TANDEM_OK && r.warmup > r.steps)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "--warmup %" PRId64 " is longer than the run of %" PRId64 " steps",
                                  r.warmup, r.steps);
    if (status == TANDEM_OK) *out = r;
    return status;
}

/* --- The learning rate ---------------------------------------------------------------------------------- */

float train_config_rate(const train_config *r, int64_t s)
{
    const double highest = (double)r->optimizer.rate;
    const double after_warmup = (double)(s - r->warmup), whole = (double)(r->steps - r->warmup);
    if (s < r->warmup) return (float)(highest * (double)(s + 1) / (double)r->warmup);
    switch (r->schedule) {
    case SCHEDULE_COSINE: return (float)(highest * 0.5 * (1 + cos(M_PI * after_warmup / whole)));
    case SCHEDULE_LINEAR: return (float)(highest * (whole - after_warmup) / whole);
    case SCHEDULE_STEP:
        if (4 * s >= 3 * r->steps) return (float)(highest / 100);
        return 2 * s >= r->steps ? (float)(highest / 10) : r->optimizer.rate;
    default: return r->optimizer.rate;
    }
}

/* --- As text -------------------------------------------------------------------------------------------- */

/* Lines "key: value". A key whose value is not used has a line only where all keys are asked for. */
typedef struct config_lines {
    char *text;
    size_t size;
    int with_unused;
} config_lines;

enum { LONG_VALUE = 600 };

static void add_unused(const config_lines *lines, const char *key)
{
    if (lines->with_unused) (void)tandem_append(lines->text, lines->size, "%s: none\n", key);
}

/* A long value is cut, and ends with a hash of the whole, so that two different ones stay different. */
__attribute__((format(printf, 3, 4))) static void add_line(const config_lines *lines, const char *key,
                                                           const char *format, ...)
{
    char value[4096];
    va_list arguments;
    va_start(arguments, format);
    (void)tandem_plain_print_list(value, sizeof value, format, arguments);
    va_end(arguments);
    if (strlen(value) <= LONG_VALUE)
        (void)tandem_append(lines->text, lines->size, "%s: %s\n", key, value);
    else
        (void)tandem_append(lines->text, lines->size, "%s: %.*s… (hash %016" PRIx64 ")\n", key,
                            LONG_VALUE / 2, value, tandem_hash_text(TANDEM_HASH_START, value));
}

/* How many operators have each precision, over all classes, and a hash of all precisions. */
static void add_precisions(const config_lines *lines, const tandem_workload *workload)
{
    int64_t count[TANDEM_N_PRECISION] = {0};
    uint64_t hash = TANDEM_HASH_START;
    for (int c = 0; c < workload->cluster.n_class; c++)
        for (int i = 0; i < workload->graph[c]->n_op; i++) {
            if (!tandem_op_is_adjustable(&workload->graph[c]->op[i])) continue;
            const tandem_precision precision = workload->plan->assignment.precision[c][i];
            count[precision]++;
            hash = tandem_hash_text(tandem_hash_text(hash, tandem_precision_get(precision)->name), ",");
        }
    char text[LONG_VALUE] = "";
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (count[p])
            (void)tandem_append(text, sizeof text, "%" PRId64 " %s, ", count[p],
                                tandem_precision_get((tandem_precision)p)->name);
    add_line(lines, "precisions", "%shash %016" PRIx64, text, hash);
}

/* What samples, initial weights and rounding are drawn from. */
static void add_inputs(const config_lines *lines, const tandem_train_request *request,
                       const tandem_data *data, uint64_t data_hash)
{
    add_line(lines, "seed", "%" PRIu64, request->workload.seed);
    /* ranks may find the same samples by different paths */
    add_line(lines, "data", "%s", !request->data ? "noise" : lines->with_unused ? "samples" : request->data);
    if (data)
        add_line(lines, "samples", "%" PRId64 " to train on, %" PRId64 " to test, hash %016" PRIx64,
                 data->n_train, data->n_test, data_hash);
    else
        add_unused(lines, "samples");
    if (request->has_data_seed)
        add_line(lines, "seed of the data", "%" PRIu64, request->data_seed);
    else
        add_unused(lines, "seed of the data");
    if (request->has_rounding_seed)
        add_line(lines, "seed of rounding", "%" PRIu64, request->rounding_seed);
    else
        add_unused(lines, "seed of rounding");
    if (request->workload.emulate)
        add_line(lines, "emulated", "%s, errors times %.9g",
                 *request->workload.emulate ? request->workload.emulate : "every dtype's own format",
                 request->error_scale);
    else
        add_unused(lines, "emulated");
}

static void add_plan(const config_lines *lines, const tandem_workload *workload,
                     const tandem_train_request *request)
{
    const tandem_step_options *step = &workload->plan->step;
    tandem_cluster cluster = workload->cluster;
    cluster.link_bytes_per_s = cluster.node.bytes_per_s =
        0; /* the rest decides the numbers: devices, ranks, batches */
    for (int c = 0; c < cluster.n_class; c++)
        cluster.classes[c].memory_bytes = 0, cluster.classes[c].per_node = 0,
        cluster.classes[c].link.bytes_per_s = 0;
    char ranks[4096];
    tandem_cluster_print(ranks, sizeof ranks, &cluster);
    add_line(lines, "ranks", "%s", ranks);
    add_precisions(lines, workload);
    if (step->scaling.window > 0)
        add_line(lines, "scaling", "%s",
                 tandem_cast_scaling_print((char[TANDEM_CAST_SCALING_TEXT]){""}, step->scaling));
    else
        add_unused(lines, "scaling");
    if (step->n_micro > 1)
        add_line(lines, "micro-steps", "%d", step->n_micro);
    else
        add_unused(lines, "micro-steps");
    if (cluster.wire != TANDEM_F32)
        add_line(lines, "gradients travel in", "%s", tandem_dtype_name(cluster.wire));
    else if (lines->with_unused)
        add_line(lines, "gradients travel in", "f32");
    if (request->bucket_bytes)
        add_line(lines, "buckets", "%" PRIu64 " bytes", request->bucket_bytes);
    else
        add_unused(lines, "buckets");
}

static void add_optimizer(const config_lines *lines, const train_config *r, const tandem_workload *workload,
                          const tandem_train_request *request)
{
    const tandem_optimizer_options *o = &r->optimizer;
    char over[40] = "", moments[80];
    if (o->kind == TANDEM_SGD)
        (void)tandem_plain_print(moments, sizeof moments, "momentum %.9g", (double)o->momentum);
    else
        (void)tandem_plain_print(moments, sizeof moments, "betas %.9g and %.9g", (double)o->beta1,
                                 (double)o->beta2);
    add_line(lines, "optimizer", "%s, weight decay %.9g, %s", tandem_optimizer_name(o->kind),
             (double)o->decay, moments);
    if (request->training.no_decay)
        add_line(lines, "without weight decay", "%s", request->training.no_decay);
    else
        add_unused(lines, "without weight decay");
    if (request->workload.clip > 0)
        add_line(lines, "gradients clipped to", "%.9g", request->workload.clip);
    else
        add_unused(lines, "gradients clipped to");
    if (request->training.label_smoothing > 0)
        add_line(lines, "label smoothing", "%.9g", request->training.label_smoothing);
    else
        add_unused(lines, "label smoothing");
    if (workload->loss_scale > 0)
        add_line(lines, "loss scale", "%.9g", workload->loss_scale);
    else if (workload->loss_scale < 0)
        add_line(lines, "loss scale", "dynamic");
    else
        add_unused(lines, "loss scale");
    if (r->schedule != SCHEDULE_CONSTANT)
        (void)snprintf(over, sizeof over, " over %" PRId64 " steps", r->steps);
    add_line(lines, "learning rate", "%.9g, %s%s, warm-up %" PRId64, (double)o->rate,
             schedule_name[r->schedule], over, r->warmup);
}

static void print_config(const config_lines *lines, const train_config *r, const tandem_workload *workload,
                         const tandem_train_request *request, const tandem_data *data, uint64_t data_hash)
{
    lines->text[0] = '\0';
    add_inputs(lines, request, data, data_hash);
    add_plan(lines, workload, request);
    add_optimizer(lines, r, workload, request);
}

void train_config_print(char *text, size_t size, const train_config *r, const tandem_workload *workload,
                        const tandem_train_request *request, const tandem_data *data, uint64_t data_hash)
{
    print_config(&(config_lines){text, size, 0}, r, workload, request, data, data_hash);
}

void train_config_print_all(char *text, size_t size, const train_config *r, const tandem_workload *workload,
                            const tandem_train_request *request, const tandem_data *data, uint64_t data_hash)
{
    print_config(&(config_lines){text, size, 1}, r, workload, request, data, data_hash);
}

/* --- Changes since a checkpoint ------------------------------------------------------------------------- */

/* The line of `text` with the same key as `line`, up to the colon; NULL if there is none. */
static const char *find_line_of_key(const char *text, const char *line)
{
    const size_t n = strcspn(line, ":\n") + 1;
    while (*text && strncmp(text, line, n) != 0) {
        text += strcspn(text, "\n");
        if (*text) text++;
    }
    return *text ? text : NULL;
}

static int has_key(const char *line, const char *key)
{
    return strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':';
}

/* Whether a text without this line says nothing of it. Checkpoints from before it was kept have no line of
 * the samples; the last three are what a run with --reestimate has done so far. */
static int is_unknown_where_absent(const char *line)
{
    static const char *const key[] = {"samples", "last estimated", "plan", "ranges"};
    for (size_t k = 0; k < sizeof key / sizeof *key; k++)
        if (has_key(line, key[k])) return 1;
    return 0;
}

static void note_change(const tandem_listener *listener, const char *now, const char *before)
{
    const int n_key = (int)strcspn(now ? now : before, ":\n");
    const int n = now ? (int)strcspn(now, "\n") : 0, n_before = before ? (int)strcspn(before, "\n") : 0;
    if (now && before)
        runtime_note(listener, "warning: differs from the checkpoint: %.*s; it was %.*s", n, now, n_before,
                     before);
    else if (now)
        runtime_note(listener, "warning: differs from the checkpoint: %.*s; it was %.*s: none", n, now, n_key,
                     now);
    else
        runtime_note(listener, "warning: differs from the checkpoint: %.*s: none; it was %.*s", n_key, before,
                     n_before, before);
}

/* is_before: `text` is the checkpoint's, `other` is of this run; else the other way round. */
static void note_changed_lines(const tandem_listener *listener, const char *text, const char *other,
                               int is_before)
{
    for (const char *line = text; *line;) {
        const char *found = find_line_of_key(other, line);
        const size_t n = strcspn(line, "\n"), n_found = found ? strcspn(found, "\n") : 0;
        if (!found && !is_unknown_where_absent(line))
            note_change(listener, is_before ? NULL : line, is_before ? line : NULL);
        else if (found && !is_before && (n != n_found || strncmp(line, found, n) != 0))
            note_change(listener, line, found);
        line += n;
        if (*line) line++;
    }
}

void train_config_note_changes(const tandem_listener *listener, const char *before, const char *now)
{
    note_changed_lines(listener, now, before, 0);
    note_changed_lines(listener, before, now, 1);
}
