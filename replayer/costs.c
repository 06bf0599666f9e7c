/* costs.c: the cost of every variant of every task of a class. Costs come from the store, then from
 * measurements at other batches (interpolate.c), then, where that was asked for, from the predictor. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "replayer/internal.h"

const char *tandem_origin_name(tandem_origin origin)
{
    static const char *const name[TANDEM_N_ORIGIN] = {"measured", "interpolated", "extrapolated",
                                                      "predicted"};
    assert((unsigned)origin < TANDEM_N_ORIGIN);
    return name[origin];
}

static tandem_status no_measured_costs(const tandem_step *step, const tandem_cost_source *source,
                                       tandem_error *error)
{
    const char *model = step->graph->model, *device = source->device->name;
    if (tandem_device_is_described(source->device))
        return tandem_error_set(error, TANDEM_MISSING,
                                "nothing of model %s has been measured on %s, a described device; predict "
                                "its times with --predict",
                                model, device);
    if (tandem_device_is_recorded(device))
        return tandem_error_set(error, TANDEM_MISSING,
                                "nothing of model %s has been measured on %s; measure it with "
                                "`tandem.profile(module, inputs, loss, device=\"%s\")` in Python, there",
                                model, device, device);
    return tandem_error_set(error, TANDEM_MISSING,
                            "nothing of model %s has been measured on %s; measure it with `tandem profile "
                            "--model %s --batch %lld --device %s`",
                            model, device, model, (long long)step->graph->batch, device);
}

/* --- Measured costs ------------------------------------------------------------------------------------- */

/* Of a lognormal time: its 10th and 90th percentile are 2 · 1.2816 standard deviations of its logarithm
 * apart. */
static float lognormal_sigma(const tandem_cost *cost)
{
    return cost->p10_ns > 0 && cost->p90_ns > cost->p10_ns
               ? (float)(log((double)cost->p90_ns / (double)cost->p10_ns) / (2 * 1.2815515655446004))
               : 0;
}

static tandem_status map_measured_costs(tandem_costs *costs, const tandem_step *step, int contention,
                                        const tandem_cost_source *source, tandem_error *error)
{
    tandem_cost_table *table = NULL;
    if (!source->store) return TANDEM_OK;
    const tandem_status status =
        tandem_store_load_costs(&table, source->store, source->device->name,
                                contention == TANDEM_CONTENDED ? source->co_runner : "", step, error);
    if (status != TANDEM_OK) return status;
    for (tandem_missing_cost at = {.task = -1};
         tandem_costs_next_missing(&at, costs, step, contention, source->device);) {
        tandem_variant_cost *const variant_cost = &costs->variant_cost[at.slot];
        const tandem_cost *cost = tandem_cost_table_find(table, &at.key);
        if (!cost) continue;
        variant_cost->ns[contention] = tandem_cost_mean_ns(cost);
        costs->sigma[at.slot][contention] = lognormal_sigma(cost);
        if (cost->workspace_bytes > variant_cost->workspace_bytes)
            variant_cost->workspace_bytes = cost->workspace_bytes;
    }
    tandem_cost_table_free(table);
    return TANDEM_OK;
}

/* --- Predicted costs ------------------------------------------------------------------------------------ */

/* All zero where the task is none of two types. */
static ratio_spread spread_over_fp32(const tandem_latency *latency, const tandem_cost_key *key)
{
    const tandem_calibration *const calibration = tandem_latency_calibration(latency);
    tandem_cost_key wide_key = *key;
    tandem_work narrow, wide;
    wide_key.precision = tandem_precision_get(TANDEM_PRECISION_FP32)->name;
    wide_key.from = wide_key.to = TANDEM_F32;
    if (!calibration || key->kind != TANDEM_COST_OP || !tandem_work_of(&narrow, key) || !narrow.is_product ||
        narrow.type == TANDEM_F32 || !tandem_work_of(&wide, &wide_key))
        return (ratio_spread){0, 0};
    const tandem_ratio_spread spread = tandem_calibration_ratio_spread(calibration, &narrow, &wide);
    return (ratio_spread){(float)spread.shared, (float)spread.own};
}

static void predict_costs(tandem_costs *costs, const tandem_step *step, int contention,
                          const tandem_cost_source *source, const tandem_latency *latency)
{
    for (tandem_missing_cost at = {.task = -1};
         tandem_costs_next_missing(&at, costs, step, contention, source->device);) {
        double spread = NAN;
        int form_group = -1;
        const int64_t ns = source->style.set == TANDEM_KERNELS_TANDEM
                               ? tandem_latency_ns_by_group(latency, &at.key, &spread, &form_group)
                               : tandem_latency_of_kernels(latency, &at.key, &source->style, &form_group);
        if (ns < 0) continue;
        costs->spread[at.slot][contention] = (float)spread;
        _Static_assert(TANDEM_N_SPREAD_GROUP * TANDEM_N_EVIDENCE * TANDEM_N_OTHERS_KERNEL <= SHRT_MAX,
                       "a group fits");
        costs->form_group[at.slot][contention] = (short)form_group;
        costs->variant_cost[at.slot].ns[contention] = ns;
        costs->origin[at.slot][contention] = TANDEM_ORIGIN_PREDICTED;
        if (form_group >= 0) costs->ratio[at.slot] = spread_over_fp32(latency, &at.key);
    }
}

static tandem_status fill_predicted_costs(tandem_costs *costs, tandem_arena *arena, const tandem_step *step,
                                          int contention, const tandem_cost_source *source,
                                          tandem_error *error)
{
    tandem_latency *latency = NULL;
    tandem_error refusal = {0};
    tandem_missing_cost first = {.task = -1};
    if (!source->predict || !tandem_costs_next_missing(&first, costs, step, contention, source->device))
        return TANDEM_OK;
    const size_t n_slot = (size_t)step->n_task * TANDEM_MAX_VARIANT;
    if (!costs->spread) costs->spread = tandem_arena_array(arena, n_slot, sizeof *costs->spread);
    if (!costs->form_group) costs->form_group = tandem_arena_array(arena, n_slot, sizeof *costs->form_group);
    if (!costs->ratio) costs->ratio = tandem_arena_array(arena, n_slot, sizeof *costs->ratio);
    if (!costs->spread || !costs->form_group || !costs->ratio)
        return tandem_no_memory(error, "to predict the times of %d tasks", step->n_task);
    const char *const co_runner = contention == TANDEM_CONTENDED ? source->co_runner : "";
    const tandem_status status =
        (source->from_description ? tandem_latency_open_described : tandem_latency_open)(
            &latency, source->device, co_runner, source->store, &refusal);
    if (status == TANDEM_MISSING) return TANDEM_OK; /* the plan that needs a missing time says so */
    if (status != TANDEM_OK) {
        if (error) *error = refusal;
        return status;
    }
    predict_costs(costs, step, contention, source, latency);
    costs->n_fitted[contention] = tandem_latency_fitted(latency);
    costs->n_contradicting[contention] = tandem_latency_contradicting(latency);
    for (int k = 0; k < TANDEM_N_OTHERS_KERNEL; k++)
        costs->n_others[contention][k] = (int)tandem_latency_kernel_rows(latency, k);
    const tandem_status read = tandem_calibration_check_others(tandem_latency_calibration(latency), error);
    tandem_latency_close(latency);
    return read;
}

/* --- Kernels of another library ------------------------------------------------------------------------- */

/* Nothing but a form knows their times. */
static tandem_status check_kernel_set(const tandem_cost_source *source, tandem_error *error)
{
    const int is_tandem = source->style.set == TANDEM_KERNELS_TANDEM;
    if (is_tandem && source->style.without_update)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "a step without its update is one of PyTorch's kernels: add --kernels pytorch");
    if (is_tandem) return TANDEM_OK;
    const char *const set = tandem_kernel_set_name(source->style.set);
    if (!source->predict)
        return tandem_error_set(error, TANDEM_USAGE,
                                "times of %s's kernels are predicted, not measured: add --predict", set);
    if (tandem_device_is_described(source->device)) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "%s runs tandem's kernels; those of %s are known on described GPUs only, which "
                            "`tandem list devices` shows",
                            source->device->name, set);
}

/* --- All sources ---------------------------------------------------------------------------------------- */

static int has_any_cost(const tandem_costs *costs, size_t n_variant)
{
    for (size_t i = 0; i < n_variant; i++)
        if (costs->variant_cost[i].ns[TANDEM_ALONE] >= 0 || costs->variant_cost[i].ns[TANDEM_CONTENDED] >= 0)
            return 1;
    return 0;
}

static void apply_slowdown(tandem_costs *costs, size_t n_variant, int64_t slowdown_ppm)
{
    for (size_t i = 0; i < n_variant; i++)
        for (int contention = 0; contention < TANDEM_N_CONTENTION; contention++) {
            int64_t *const ns = &costs->variant_cost[i].ns[contention];
            if (*ns > 0) *ns = tandem_round_ns((double)*ns * ((double)slowdown_ppm / 1e6));
        }
}

tandem_status tandem_costs_map(tandem_costs *out, tandem_arena *arena, const tandem_step *step,
                               const tandem_cost_source *source, tandem_error *error)
{
    const size_t n_variant = (size_t)step->n_task * TANDEM_MAX_VARIANT;
    tandem_costs costs = {.variant_cost = tandem_arena_array(arena, n_variant, sizeof *costs.variant_cost),
                          .origin = tandem_arena_array(arena, n_variant, sizeof *costs.origin),
                          .sigma = tandem_arena_array(arena, n_variant, sizeof *costs.sigma)};
    tandem_status status = check_kernel_set(source, error);
    if (status != TANDEM_OK) return status;
    costs.style = source->style;
    costs.skipped_task = INT_MAX;
    if (!costs.variant_cost || !costs.origin || !costs.sigma)
        return tandem_no_memory(error, "for the costs of %d tasks on %s", step->n_task, source->device->name);
    for (size_t i = 0; i < n_variant; i++) costs.variant_cost[i] = (tandem_variant_cost){.ns = {-1, -1}};
    for (int contention = 0; contention < TANDEM_N_CONTENTION && status == TANDEM_OK; contention++) {
        if (contention == TANDEM_CONTENDED && !source->co_runner[0]) continue;
        if (source->style.set == TANDEM_KERNELS_TANDEM) {
            status = map_measured_costs(&costs, step, contention, source, error);
            if (status == TANDEM_OK)
                status = tandem_costs_interpolate(&costs, step, contention, source, error);
        }
        if (status == TANDEM_OK)
            status = fill_predicted_costs(&costs, arena, step, contention, source, error);
    }
    if (status != TANDEM_OK) return status;
    if (!has_any_cost(&costs, n_variant)) return no_measured_costs(step, source, error);
    if (source->slowdown_ppm > 0) apply_slowdown(&costs, n_variant, source->slowdown_ppm);
    *out = costs;
    return TANDEM_OK;
}

tandem_costs tandem_costs_without_norm(const tandem_costs *costs, const tandem_step *with_norm)
{
    tandem_costs shared = *costs;
    assert(with_norm->norm_task >= 0);
    shared.skipped_task = with_norm->norm_task;
    return shared;
}

tandem_status tandem_costs_missing(const tandem_step *step, int t, int variant, const char *device,
                                   const char *busy_co_runner, const char *co_runner, const char *more,
                                   tandem_error *error)
{
    const tandem_task *task = &step->task[t];
    const char *op = task->op >= 0 ? step->graph->op[task->op].name : "the buckets";
    char key_text[TANDEM_COST_KEY_TEXT] = "", micro[32] = "", scaling[TANDEM_CAST_SCALING_TEXT] = "";
    tandem_cost_key key;
    if (tandem_step_cost_key(step, t, variant, &key)) tandem_cost_key_print(key_text, sizeof key_text, &key);
    if (step->options.n_micro > 1)
        (void)snprintf(micro, sizeof micro, " --accumulate %d", step->options.n_micro);
    const int is_delayed = step->options.scaling.window > 0;
    if (is_delayed) (void)tandem_cast_scaling_print(scaling, step->options.scaling);
    return tandem_error_set(
        error, TANDEM_MISSING,
        "the time of '%s' (%s of %s) on %s%s%s has not been measured%s; measure it with `tandem profile "
        "--model %s --batch %lld --device %s%s%s%s%s%s%s`",
        key_text, tandem_task_kind_name(task->kind), op, device, busy_co_runner[0] ? " beside a busy " : "",
        busy_co_runner, more, step->graph->model, (long long)step->graph->batch, device,
        co_runner[0] ? "," : "", co_runner, micro, is_delayed ? " --amax " : "", scaling,
        task->kind == TANDEM_TASK_NORM ? " --clip 1" : "");
}

/* --- Provenance ----------------------------------------------------------------------------------------- */

const tandem_allreduce_source *tandem_replayer_allreduce_source(const tandem_replayer *replayer)
{
    return &tandem_replayer_program(replayer)->allreduce_source;
}

/* The least certain origin of the times that a variant has. */
static int least_certain_origin(const tandem_costs *costs, size_t slot)
{
    int seen = TANDEM_ORIGIN_MEASURED;
    for (int contention = 0; contention < TANDEM_N_CONTENTION; contention++)
        if (costs->variant_cost[slot].ns[contention] >= 0 && costs->origin[slot][contention] > seen)
            seen = costs->origin[slot][contention];
    return seen;
}

/* Times by the form, per spread group, for the interval of their sum. */
typedef struct form_sum {
    double group_ns[TANDEM_N_SPREAD_GROUP], source_ns[TANDEM_N_EVIDENCE];
    double shared, own_square; /* standard deviations in ns; squares of them */
    int n_unmeasured_kernel;
    unsigned char follows[TANDEM_N_OTHERS_KERNEL]; /* kernels whose rows give a time */
} form_sum;

/* is_measured: whether own rows say what the device reaches. */
static void add_to_form_sum(form_sum *sum, int form_group, double ns, int is_measured)
{
    if (form_group < 0) return;
    const int group = form_group % TANDEM_N_SPREAD_GROUP, kernel = tandem_kernel_of_group(form_group);
    const tandem_evidence source = tandem_evidence_of_group(form_group);
    const double own = tandem_spread_fitted((tandem_spread_group)group)->own;
    sum->group_ns[group] += ns;
    sum->source_ns[source] += ns;
    if (kernel >= 0) sum->follows[kernel] = 1;
    sum->n_unmeasured_kernel += source == TANDEM_EVIDENCE_OTHER_KERNEL;
    sum->shared += ns * tandem_evidence_spread_shared(form_group, is_measured);
    sum->own_square += ns * ns * own * own;
}

/* Half of the 80 % interval over the sum. What the tasks of a device share does not average out, neither
 * within a group nor between groups; what is a task's own does. */
static double form_half_interval(const form_sum *sum)
{
    const double z80 = 1.2816;
    double ns = 0;
    for (int g = 0; g < TANDEM_N_SPREAD_GROUP; g++) ns += sum->group_ns[g];
    return ns > 0 ? z80 * sqrt(sum->shared * sum->shared + sum->own_square) / ns : NAN;
}

/* Cards of a group that are not there yet. */
static void add_interval_cards(char cards[TANDEM_INTERVAL_CARDS], const char *more)
{
    char gpu[TANDEM_DEVICE_NAME + 1];
    for (size_t n; *more; more += n) {
        n = strcspn(more, " ") + 1;
        if (n >= sizeof gpu) return;
        (void)snprintf(gpu, sizeof gpu, "%.*s", (int)n, more);
        const size_t used = strlen(cards);
        if (!strstr(cards, gpu) && used + n < TANDEM_INTERVAL_CARDS)
            (void)snprintf(cards + used, TANDEM_INTERVAL_CARDS - used, "%s", gpu);
    }
}

static void find_interval_evidence(tandem_provenance *provenance, const form_sum *sum)
{
    double ns = 0, error = 0;
    for (int g = 0; g < TANDEM_N_SPREAD_GROUP; g++) {
        const tandem_spread *const spread = tandem_spread_fitted((tandem_spread_group)g);
        if (!(sum->group_ns[g] > 0)) continue;
        provenance->interval_rows += spread->n_row;
        add_interval_cards(provenance->interval_cards, spread->cards);
        ns += sum->group_ns[g];
        error += sum->group_ns[g] * spread->error;
    }
    provenance->interval_error = ns > 0 ? error / ns : NAN;
}

/* The first variant of a task in a precision that has a predicted time; −1: none has. */
static int predicted_variant(const tandem_sim_class *class, int t, tandem_precision precision, int contention)
{
    for (uint64_t left = tandem_precision_variants(precision); left; left &= left - 1) {
        const int variant = __builtin_ctzll(left);
        const size_t slot = tandem_cost_slot(&class->costs, t, variant);
        if (class->costs.variant_cost[slot].ns[contention] > 0 &&
            least_certain_origin(&class->costs, slot) == TANDEM_ORIGIN_PREDICTED)
            return variant;
    }
    return -1;
}

/* A task whose time is predicted in two precisions, by the form: both slots. */
typedef struct predicted_pair {
    size_t narrow, wide;
    double narrow_ns, wide_ns;
} predicted_pair;

/* 0: task t is none. */
static int find_pair(predicted_pair *pair, const tandem_sim_class *class, int t, tandem_precision precision,
                     int contention)
{
    const tandem_costs *const costs = &class->costs;
    if (!tandem_step_is_product(class->step, t)) return 0;
    const int wide = predicted_variant(class, t, TANDEM_PRECISION_FP32, contention),
              narrow = wide >= 0 ? predicted_variant(class, t, precision, contention) : -1;
    if (narrow < 0) return 0;
    pair->narrow = tandem_cost_slot(costs, t, narrow), pair->wide = tandem_cost_slot(costs, t, wide);
    pair->narrow_ns = (double)costs->variant_cost[pair->narrow].ns[contention];
    pair->wide_ns = (double)costs->variant_cost[pair->wide].ns[contention];
    return costs->form_group[pair->narrow][contention] >= 0 && costs->form_group[pair->wide][contention] >= 0;
}

/* Two sums of times whose ratio is asked for, and what their errors add up to. Errors of a task's time in the
 * narrow precision are those in fp32 and those of the ratio, which have nothing in common. So the ratio of
 * sums is off by the tasks' own ratios, in the shares a of the narrow sum, and by times in fp32 as far as a
 * differs from the share b of the wide sum: Σ a ρ + Σ (a − b) ε. */
typedef struct ratio_sum {
    double narrow_ns, wide_ns;
    double shared, wide_shared, own_square;
} ratio_sum;

static void add_pair_errors(ratio_sum *sum, const tandem_sim_class *class, const predicted_pair *pair,
                            int contention)
{
    const tandem_costs *const costs = &class->costs;
    const ratio_spread *const ratio = &costs->ratio[pair->narrow];
    const int group = costs->form_group[pair->wide][contention];
    const double a = pair->narrow_ns / sum->narrow_ns, apart = a - pair->wide_ns / sum->wide_ns,
                 wide_own =
                     tandem_spread_fitted((tandem_spread_group)(group % (int)TANDEM_N_SPREAD_GROUP))->own;
    sum->shared += a * (double)ratio->shared;
    sum->wide_shared += apart * tandem_evidence_spread_shared(group, costs->n_fitted[contention] > 0);
    sum->own_square += a * a * (double)ratio->own * (double)ratio->own + apart * apart * wide_own * wide_own;
}

double tandem_replayer_product_ratio(double *half, const tandem_replayer *replayer, int c,
                                     tandem_precision precision)
{
    const double z80 = 1.2816;
    const tandem_sim_class *class = &tandem_replayer_program(replayer)->classes[c];
    const int contention = class->co_runner[0] ? TANDEM_CONTENDED : TANDEM_ALONE;
    ratio_sum sum = {0};
    predicted_pair pair;
    for (int t = 0; t < class->step->n_task; t++)
        if (find_pair(&pair, class, t, precision, contention))
            sum.narrow_ns += pair.narrow_ns, sum.wide_ns += pair.wide_ns;
    if (!(sum.wide_ns > 0)) return 0;
    for (int t = 0; t < class->step->n_task; t++)
        if (find_pair(&pair, class, t, precision, contention))
            add_pair_errors(&sum, class, &pair, contention);
    *half = expm1(z80 * sqrt(sum.shared * sum.shared + sum.wide_shared * sum.wide_shared + sum.own_square));
    return sum.narrow_ns / sum.wide_ns;
}

/* The time of a task's variant where it was measured; −1: it was not. */
static int64_t measured_ns(const tandem_costs *costs, int t, tandem_precision precision, int contention)
{
    const tandem_dtype to = tandem_precision_get(precision)->output;
    const size_t slot = tandem_cost_slot(costs, t, tandem_precision_variant(precision, to));
    return least_certain_origin(costs, slot) == TANDEM_ORIGIN_MEASURED
               ? costs->variant_cost[slot].ns[contention]
               : -1;
}

static double amp_ratio(const tandem_sim_class *class, int contention)
{
    const tandem_dtype amp = class->step->amp_dtype;
    const tandem_precision wide = TANDEM_PRECISION_FP32,
                           narrow = amp == TANDEM_BF16 ? TANDEM_PRECISION_BF16 : TANDEM_PRECISION_FP16;
    double wide_ns = 0, narrow_ns = 0;
    for (int t = 0; t < class->step->n_task && amp != TANDEM_F32; t++) {
        if (class->step->task[t].kind != TANDEM_TASK_FORWARD || !tandem_step_is_product(class->step, t))
            continue;
        const int64_t a = measured_ns(&class->costs, t, wide, contention),
                      b = measured_ns(&class->costs, t, narrow, contention);
        if (a < 0 || b < 0) continue;
        wide_ns += (double)a;
        narrow_ns += (double)b;
    }
    return wide_ns > 0 ? narrow_ns / wide_ns : 0;
}

void tandem_replayer_provenance(const tandem_replayer *replayer, int c, tandem_provenance *out)
{
    const tandem_sim_class *class = &tandem_replayer_program(replayer)->classes[c];
    const int contention = class->co_runner[0] ? TANDEM_CONTENDED : TANDEM_ALONE;
    tandem_provenance provenance = {.n_fitted = class->costs.n_fitted[contention],
                                    .n_contradicting = class->costs.n_contradicting[contention],
                                    .kernels = class->costs.style.set,
                                    .without_update = class->costs.style.without_update,
                                    .amp_ratio = amp_ratio(class, contention)};
    double spread = 0;
    form_sum form = {.own_square = 0};
    for (int t = 0; t < class->step->n_task; t++) {
        const tandem_task *task = &class->step->task[t];
        const size_t slot = tandem_cost_slot(&class->costs, t, task->variant);
        if (!task->active || task->stream != TANDEM_STREAM_COMPUTE) continue;
        const int origin = least_certain_origin(&class->costs, slot);
        const int64_t ns =
            tandem_step_runs_per_step(class->step, task) * class->costs.variant_cost[slot].ns[contention];
        provenance.n_task[origin]++;
        provenance.ns[origin] += ns;
        if (origin != TANDEM_ORIGIN_PREDICTED) continue;
        spread += (double)ns * (double)class->costs.spread[slot][contention];
        add_to_form_sum(&form, class->costs.form_group[slot][contention], (double)ns,
                        provenance.n_fitted > 0);
    }
    const int64_t predicted_ns = provenance.ns[TANDEM_ORIGIN_PREDICTED];
    provenance.spread = predicted_ns > 0 ? spread / (double)predicted_ns : NAN;
    provenance.form_interval = form_half_interval(&form);
    provenance.n_unmeasured_kernel = form.n_unmeasured_kernel;
    provenance.others_share =
        predicted_ns > 0 ? form.source_ns[TANDEM_EVIDENCE_OTHERS] / (double)predicted_ns : 0;
    for (int k = 0; k < TANDEM_N_OTHERS_KERNEL; k++)
        provenance.others_rows += form.follows[k] ? class->costs.n_others[contention][k] : 0;
    find_interval_evidence(&provenance, &form);
    *out = provenance;
}
