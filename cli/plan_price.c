/* plan_price.c: the price of a plan, the rate that is left of it, and how both are printed. */
#include "cli/plan_price.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/prediction.h"

/* --- Finding it ------------------------------------------------------------------------------- */

tandem_status price_source_open(price_source *source, const cli_options *options, const tandem_graph *graph,
                                tandem_error *error)
{
    tandem_store *store = NULL;
    price_source opened = {.unknown = ""};
    tandem_error why = {0};
    tandem_status status = tandem_store_open(&store, options->db, TANDEM_STORE_READ, &why);
    if (status == TANDEM_OK) status = tandem_store_load_sensing(&opened.sensing, store, graph, NULL, &why);
    tandem_store_close(store);
    if (status != TANDEM_OK && status != TANDEM_MISSING) {
        *error = why;
        return status;
    }
    if (status == TANDEM_MISSING) { /* a text that fits */
        tandem_error_set(&why, status, "`tandem sensitivity --model %s --data DATA` measures it",
                         graph->model);
        memcpy(opened.unknown, why.text, sizeof opened.unknown);
    }
    *source = opened;
    return TANDEM_OK;
}

void price_source_close(price_source *source) { tandem_sensing_close(&source->sensing); }

double plan_step_samples(const tandem_plan *plan)
{
    double samples = 0;
    for (int c = 0; c < plan->cluster.n_class; c++)
        samples += (double)plan->cluster.classes[c].n_rank * (double)plan->cluster.classes[c].batch;
    return samples * (plan->step.n_micro > 1 ? plan->step.n_micro : 1);
}

static int is_all_fp32(const tandem_plan *plan)
{
    for (int c = 0; c < plan->cluster.n_class; c++)
        for (int op = 0; op < plan->assignment.n_op; op++)
            if (plan->assignment.precision[c][op] != TANDEM_PRECISION_FP32) return 0;
    return 1;
}

/* Whether the plan scales tensors by their largest number, and the sensing does not tell how noise grows with
 * that at another batch. */
static int has_unconverted_ranges(const tandem_sensing *sensing, const tandem_plan *plan)
{
    if (sensing->range_batch > 0 || plan->step.scaling.window > 0) return 0;
    for (int c = 0; c < plan->cluster.n_class; c++)
        for (int op = 0; op < plan->assignment.n_op && plan->cluster.classes[c].batch != sensing->batch; op++)
            if (tandem_dtype_bytes(tandem_precision_get(plan->assignment.precision[c][op])->saved) == 1)
                return 1;
    return 0;
}

/* Times in fp32 may be missing: then there is no rate to compare with. */
static double simulate_fp32_rate(tandem_replayer *replayer, const tandem_plan *plan)
{
    tandem_replay replay;
    for (int c = 0; c < plan->cluster.n_class; c++)
        for (int op = 0; op < plan->assignment.n_op; op++)
            tandem_replayer_set(replayer, c, op, TANDEM_PRECISION_FP32);
    const tandem_status status = tandem_replayer_run(replayer, &replay, 0, NULL);
    tandem_replayer_load(replayer, &plan->assignment);
    return status == TANDEM_OK ? plan_step_samples(plan) / ((double)replay.step_ns * 1e-9) : NAN;
}

tandem_status plan_price_find(plan_price *price, const price_source *source, const tandem_plan *plan,
                              const tandem_graph *graph, tandem_replayer *replayer, tandem_error *error)
{
    plan_price found = {.samples_per_s = NAN, .fp32_samples_per_s = NAN, .is_known = is_all_fp32(plan)};
    const double exchange = tandem_allreduce_noise(&plan->cluster);
    tandem_error why = {0};
    found.is_fp32 = found.is_known && exchange == 0;
    if (found.is_known)
        found.of.estimate = (tandem_sensitivity_estimate){
            .value = exchange, .low = exchange, .high = exchange, .noise = exchange};
    (void)snprintf(found.unknown, sizeof found.unknown, "%s", source->unknown);
    if (!found.is_known && !found.unknown[0]) {
        const tandem_status status =
            tandem_plan_sensitivity_estimate(&found.of, &source->sensing, plan, graph, &why);
        if (status != TANDEM_OK && status != TANDEM_MISSING) {
            *error = why;
            return status;
        }
        found.is_known = status == TANDEM_OK;
        (void)snprintf(found.unknown, sizeof found.unknown, "%s", why.text);
    }
    for (int k = 0; k < found.of.n_largest; k++)
        (void)snprintf(found.largest[k], sizeof found.largest[k], "%s",
                       graph->op[found.of.largest[k].op].name);
    if (found.is_known && has_unconverted_ranges(&source->sensing, plan))
        found.range_batch = source->sensing.batch;
    if (found.is_known && !found.is_fp32 && replayer)
        found.fp32_samples_per_s = simulate_fp32_rate(replayer, plan);
    *price = found;
    return TANDEM_OK;
}

tandem_status plan_price_load(plan_price *price, const cli_options *options, const tandem_plan *plan,
                              const tandem_graph *graph, tandem_replayer *replayer, tandem_error *error)
{
    price_source source = {.unknown = ""};
    tandem_status status = price_source_open(&source, options, graph, error);
    if (status == TANDEM_OK) status = plan_price_find(price, &source, plan, graph, replayer, error);
    price_source_close(&source);
    return status;
}

tandem_status plan_price_find_baseline(plan_price *price, const price_source *source,
                                       const tandem_baseline *baseline, tandem_precision base_precision,
                                       const tandem_plan *plan, const tandem_graph *graph,
                                       tandem_error *error)
{
    tandem_plan *uniform = NULL;
    tandem_status status = tandem_plan_open(&uniform, graph, &plan->cluster, baseline->name, error);
    for (int c = 0; c < plan->cluster.n_class && status == TANDEM_OK; c++)
        status = tandem_plan_uniform(
            uniform, graph, c, baseline->lowered >> c & 1 ? baseline->precision : base_precision, error);
    if (status == TANDEM_OK) uniform->step = plan->step;
    if (status == TANDEM_OK) status = plan_price_find(price, source, uniform, graph, NULL, error);
    if (status == TANDEM_OK)
        price->samples_per_s = plan_step_samples(uniform) / ((double)baseline->step_ns * 1e-9);
    tandem_plan_close(uniform);
    return status;
}

double plan_price_half(const plan_price *price)
{
    const tandem_sensitivity_estimate *e = &price->of.estimate;
    return price->is_known ? 100 * fmax(e->high - e->value, e->value - e->low) : NAN;
}

tandem_quantity plan_price_sum(const plan_price *price, const char *method, double sum)
{
    return tandem_quantity_known_to(sum, cli_method_is_percent(method) ? plan_price_half(price) : NAN);
}

double plan_price_worth(const plan_price *price)
{
    return price->is_known ? price->samples_per_s / (1 + price->of.estimate.value) : NAN;
}

/* --- Text ------------------------------------------------------------------------------------- */

/* A share as a percentage with the digits of the price. */
static tandem_quantity price_percent(const plan_price *price, double share)
{
    return tandem_quantity_known_to(100 * share, plan_price_half(price));
}

const char *plan_price_text(char text[PLAN_PRICE_TEXT], const plan_price *price)
{
    const tandem_sensitivity_estimate *e = &price->of.estimate;
    (void)snprintf(text, PLAN_PRICE_TEXT, price->is_fp32 ? "0" : "-");
    if (price->is_known && !price->is_fp32)
        (void)snprintf(text, PLAN_PRICE_TEXT, "%.20s (%.18s to %.18s)", price_percent(price, e->value).text,
                       price_percent(price, e->low).text, price_percent(price, e->high).text);
    return text;
}

tandem_quantity plan_price_worth_text(const plan_price *price, int digits)
{
    const double worth = plan_price_worth(price), sensitivity = 1 + price->of.estimate.value;
    if (!isfinite(worth) || !(worth > 0)) return (tandem_quantity){"-"};
    const double last_digit = pow(10, floor(log10(worth)) - (digits - 1));
    return tandem_quantity_known_to(worth,
                                    fmax(worth * plan_price_half(price) / 100 / sensitivity, last_digit));
}

static void print_sensitivity_line(const plan_price *price)
{
    const tandem_sensitivity_estimate *e = &price->of.estimate;
    int worst = 0;
    printf("sensitivity  %s %% more samples to the same loss (95 %%: %s to %s %%): noise %s, ",
           price_percent(price, e->value).text, price_percent(price, e->low).text,
           price_percent(price, e->high).text, price_percent(price, fmax(e->noise, 0)).text);
    if (isnan(e->bias))
        fputs("bias unknown", stdout);
    else
        printf("bias %s", price_percent(price, fmax(e->bias, 0)).text);
    for (int a = 1; a < price->of.n_age; a++)
        if (e->at_age[a] > e->at_age[worst]) worst = a;
    if (price->of.n_age > 1 && e->at_age[worst] > 0)
        printf("; at %.0f %% of training %s %%", 100 * price->of.age_share[worst],
               price_percent(price, e->at_age[worst]).text);
    putchar('\n');
}

static void print_worth_line(const plan_price *price)
{
    if (!isfinite(price->samples_per_s)) return;
    printf("worth        %s samples/s, ", tandem_quantity_plain(price->samples_per_s, 4).text);
    printf("%s in fp32's", plan_price_worth_text(price, PLAN_WORTH_DIGITS).text);
    if (isfinite(price->fp32_samples_per_s))
        printf("; all fp32: %s", tandem_quantity_plain(price->fp32_samples_per_s, 4).text);
    putchar('\n');
}

void plan_price_print(const plan_price *price)
{
    if (!price->is_known) {
        printf("sensitivity  no price is known: %s\n", price->unknown);
        return;
    }
    if (price->is_fp32) {
        puts("sensitivity  0 %: all operators are in fp32");
        return;
    }
    print_sensitivity_line(price);
    print_worth_line(price);
    for (int k = 0; k < price->of.n_largest; k++) {
        const tandem_largest_sensitivity *one = &price->of.largest[k];
        const double half = 100 * fmax(one->high - one->value, one->value - one->low);
        printf("%s%s %s %s %%", k ? ", " : "largest      ", price->largest[k],
               tandem_precision_get(one->precision)->name,
               tandem_quantity_known_to(100 * one->value, half).text);
    }
    if (price->of.n_largest) putchar('\n');
    if (price->range_batch > 0)
        printf("ranges       as sensed, with batches of %lld; `tandem sensitivity` senses how they grow\n",
               (long long)price->range_batch);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *percent_json(const plan_price *price, double share)
{
    return price->is_known ? cli_json_number(100 * share) : json_null();
}

void plan_price_add_json(json_t *object, const plan_price *price)
{
    const tandem_sensitivity_estimate *e = &price->of.estimate;
    json_t *ages = json_array(), *largest = json_array();
    for (int a = 0; a < price->of.n_age; a++)
        json_array_append_new(ages, json_pack("{s:f,s:o}", "at", 100 * price->of.age_share[a], "sensitivity",
                                              percent_json(price, e->at_age[a])));
    for (int k = 0; k < price->of.n_largest; k++)
        json_array_append_new(largest,
                              json_pack("{s:s,s:s,s:o,s:o,s:o}", "operator", price->largest[k], "precision",
                                        tandem_precision_get(price->of.largest[k].precision)->name,
                                        "sensitivity", percent_json(price, price->of.largest[k].value),
                                        "sensitivity_low", percent_json(price, price->of.largest[k].low),
                                        "sensitivity_high", percent_json(price, price->of.largest[k].high)));
    json_object_set_new(object, "sensitivity", percent_json(price, e->value));
    json_object_set_new(object, "sensitivity_low", percent_json(price, e->low));
    json_object_set_new(object, "sensitivity_high", percent_json(price, e->high));
    json_object_set_new(object, "sensitivity_noise", percent_json(price, e->noise));
    json_object_set_new(object, "sensitivity_bias", percent_json(price, e->bias));
    json_object_set_new(object, "sensitivity_ages", ages);
    json_object_set_new(object, "sensitivity_largest", largest);
    json_object_set_new(object, "fp32_worth_samples_per_s", cli_json_number(plan_price_worth(price)));
    json_object_set_new(object, "fp32_samples_per_s",
                        cli_json_number(price->is_fp32 ? price->samples_per_s : price->fp32_samples_per_s));
}
