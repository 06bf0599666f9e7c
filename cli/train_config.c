#include "cli/train_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
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
    const double beta1 = strtod(text, &end);
    const int has_two = end != text && *end == ',';
    const char *second = has_two ? end + 1 : "";
    const double beta2 = strtod(second, &end);
    if (!has_two || end == second || *end || !(beta1 >= 0 && beta1 < 1) || !(beta2 >= 0 && beta2 < 1))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--betas takes two numbers from 0 to below 1, such as 0.9,0.999, got '%s'",
                                text);
    o->beta1 = (float)beta1;
    o->beta2 = (float)beta2;
    return TANDEM_OK;
}

static tandem_status set_optimizer_options(tandem_optimizer_options *o, const tandem_graph *graph,
                                           const cli_options *options, tandem_error *error)
{
    if (options->rate >= 0) o->rate = (float)options->rate;
    if (options->decay >= 0) o->decay = (float)options->decay;
    if (options->momentum >= 0) {
        if (o->kind != TANDEM_SGD) return fail_wrong_optimizer(graph, "--momentum", "--betas", error);
        o->momentum = (float)options->momentum;
    }
    if (!options->betas) return TANDEM_OK;
    if (o->kind != TANDEM_ADAMW) return fail_wrong_optimizer(graph, "--betas", "--momentum", error);
    return set_betas(o, options->betas, error);
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

tandem_status train_config_open(train_config *out, const tandem_graph *graph, const cli_options *options,
                                tandem_error *error)
{
    train_config r = {.optimizer = graph->optimizer, .warmup = options->warmup, .steps = options->steps};
    tandem_status status = set_optimizer_options(&r.optimizer, graph, options, error);
    if (status == TANDEM_OK && options->no_decay) status = check_no_decay(graph, options->no_decay, error);
    if (status == TANDEM_OK && options->schedule)
        status = find_schedule(&r.schedule, options->schedule, error);
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

/* Appends how many operators have each precision, over all classes, and a hash of all precisions. */
static void append_precisions(char *text, size_t size, const cli_workload *workload)
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
    (void)cli_append(text, size, "precisions:");
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (count[p])
            (void)cli_append(text, size, " %" PRId64 " %s,", count[p],
                             tandem_precision_get((tandem_precision)p)->name);
    (void)cli_append(text, size, " hash %016" PRIx64 "\n", hash);
}

void train_config_print(char *text, size_t size, const train_config *r, const cli_workload *workload,
                        const cli_options *options)
{
    const tandem_optimizer_options *o = &r->optimizer;
    tandem_cluster cluster = workload->cluster;
    cluster.link_bytes_per_s = cluster.node.bytes_per_s =
        0; /* the rest decides the numbers: devices, ranks, batches */
    for (int c = 0; c < cluster.n_class; c++)
        cluster.classes[c].memory_bytes = 0, cluster.classes[c].per_node = 0,
        cluster.classes[c].link.bytes_per_s = 0;
    char ranks[1024];
    tandem_cluster_print(ranks, sizeof ranks, &cluster);
    text[0] = '\0';
    (void)cli_append(text, size, "seed: %" PRIu64 "\ndata: %s\n", options->seed,
                     options->data ? options->data : "noise");
    if (cli_option_given(options, OPTION_DATA_SEED))
        (void)cli_append(text, size, "seed of the data: %" PRIu64 "\n", options->data_seed);
    if (cli_option_given(options, OPTION_ROUNDING_SEED))
        (void)cli_append(text, size, "seed of rounding: %" PRIu64 "\n", options->rounding_seed);
    if (options->emulate)
        (void)cli_append(text, size, "emulated: %.100s, errors times %.9g\n",
                         *options->emulate ? options->emulate : "every dtype's own format",
                         options->error_scale);
    (void)cli_append(text, size, "ranks: %s\n", ranks);
    append_precisions(text, size, workload);
    if (workload->plan->step.scaling.window > 0)
        (void)cli_append(
            text, size, "scaling: %s\n",
            tandem_cast_scaling_print((char[TANDEM_CAST_SCALING_TEXT]){""}, workload->plan->step.scaling));
    if (workload->plan->step.n_micro > 1)
        (void)cli_append(text, size, "micro-steps: %d\n", workload->plan->step.n_micro);
    if (cluster.wire != TANDEM_F32)
        (void)cli_append(text, size, "gradients travel in: %s\n", tandem_dtype_name(cluster.wire));
    if (options->bucket_bytes)
        (void)cli_append(text, size, "buckets: %" PRIu64 " bytes\n", options->bucket_bytes);
    (void)cli_append(text, size, "optimizer: %s, weight decay %.9g, ", tandem_optimizer_name(o->kind),
                     (double)o->decay);
    if (o->kind == TANDEM_SGD)
        (void)cli_append(text, size, "momentum %.9g\n", (double)o->momentum);
    else
        (void)cli_append(text, size, "betas %.9g and %.9g\n", (double)o->beta1, (double)o->beta2);
    if (options->no_decay) (void)cli_append(text, size, "without weight decay: %.200s\n", options->no_decay);
    if (options->clip > 0) (void)cli_append(text, size, "gradients clipped to: %.9g\n", options->clip);
    if (options->label_smoothing > 0)
        (void)cli_append(text, size, "label smoothing: %.9g\n", options->label_smoothing);
    if (workload->loss_scale > 0) (void)cli_append(text, size, "loss scale: %.9g\n", workload->loss_scale);
    if (workload->loss_scale < 0) (void)cli_append(text, size, "loss scale: dynamic\n");
    (void)cli_append(text, size, "learning rate: %.9g, %s", (double)o->rate, schedule_name[r->schedule]);
    if (r->schedule != SCHEDULE_CONSTANT) (void)cli_append(text, size, " over %" PRId64 " steps", r->steps);
    (void)cli_append(text, size, ", warm-up %" PRId64 "\n", r->warmup);
}

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

void train_config_note_changes(const cli_options *options, const char *before, const char *now)
{
    for (const char *line = now; *line;) {
        const char *old = find_line_of_key(before, line);
        const int n = (int)strcspn(line, "\n"), n_old = old ? (int)strcspn(old, "\n") : 0;
        if (!old || n != n_old || strncmp(line, old, (size_t)n) != 0)
            cli_note(options, "warning: differs from the checkpoint: %.*s; it was %.*s", n, line, n_old,
                     old ? old : "");
        line += n;
        if (*line) line++;
    }
}
