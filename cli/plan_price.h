/* plan_price.h: what a plan costs, beside what it makes: its sensitivity with its interval, and the rate in
 * fp32 that it is worth. */
#pragma once

#include "base/quantity.h"
#include "cli/cli.h"
#include "tandem/advanced/allocator.h"

/* What the store knows of a model's sensitivity. */
typedef struct price_source {
    tandem_sensing sensing;
    char unknown[TANDEM_ERROR_TEXT]; /* why no price is known; "" = it is */
} price_source;

/* The last sensing of the model in the options' store. Its absence is no error: source->unknown
 * says it. Errors of the store. */
tandem_status price_source_open(price_source *source, const cli_options *options, const tandem_graph *graph,
                                tandem_error *error);
void price_source_close(price_source *source); /* all zero is fine */

typedef struct plan_price {
    int is_known;
    int is_fp32; /* every operator is, and the exchange rounds nothing: the price is 0, sensed or not */
    char unknown[TANDEM_ERROR_TEXT];
    tandem_plan_sensitivity of;
    int64_t range_batch; /* that was sensed, where ranges do not convert to the plan's; 0: none is amiss */
    char largest[TANDEM_N_LARGEST][64]; /* names of the operators of of.largest, cut to fit */
    double samples_per_s;               /* of the plan; set by the caller */
    double fp32_samples_per_s; /* of the same ranks, all in fp32, simulated; NaN where it is not known */
} plan_price;

/* plan_price_find: the price of a plan. With a replayer of the plan's cluster it also simulates the step with
 * all operators in fp32; the replayer then has the plan's precisions and needs a new run. NULL: no such step.
 * An operator that was not sensed in its precision makes the price unknown. Errors of the estimate. */
tandem_status plan_price_find(plan_price *price, const price_source *source, const tandem_plan *plan,
                              const tandem_graph *graph, tandem_replayer *replayer, tandem_error *error);
/* Both, for one plan. */
tandem_status plan_price_load(plan_price *price, const cli_options *options, const tandem_plan *plan,
                              const tandem_graph *graph, tandem_replayer *replayer, tandem_error *error);

/* The price of a plan of one precision, with the ranks, batches and step of `plan`. */
tandem_status plan_price_find_baseline(plan_price *price, const price_source *source,
                                       const tandem_baseline *baseline, tandem_precision base_precision,
                                       const tandem_plan *plan, const tandem_graph *graph,
                                       tandem_error *error);

/* Half of the price's interval in percent; NaN where it is not known. */
double plan_price_half(const plan_price *price);
/* A sum of sensitivities by a method, with the digits that the price allows where the method is in percent,
 * else with two. */
tandem_quantity plan_price_sum(const plan_price *price, const char *method, double sum);
/* Samples of a step of a plan, of all ranks and micro-steps. */
double plan_step_samples(const tandem_plan *plan);
/* The rate of fp32 training that brings the same progress. */
double plan_price_worth(const plan_price *price);
/* With at most so many digits, or as many as the sensitivity's interval allows; "-" where it is not known. */
enum { PLAN_WORTH_DIGITS = 4 }; /* where the step's time allows them */
tandem_quantity plan_price_worth_text(const plan_price *price, int digits);
/* Prints the lines "sensitivity", "worth" and "largest"; or one line that says why no price is known. */
void plan_price_print(const plan_price *price);
/* "0.9 (0.6 to 1.3)", in percent, with no more digits than the interval allows; "0" of fp32; "-" where it is
 * not known. Returns text. */
enum { PLAN_PRICE_TEXT = 64 };
const char *plan_price_text(char text[PLAN_PRICE_TEXT], const plan_price *price);
/* Adds to an object, in percent, null where unknown: sensitivity, sensitivity_low, sensitivity_high,
 * sensitivity_noise, sensitivity_bias, sensitivity_ages, sensitivity_largest; in samples/s:
 * fp32_worth_samples_per_s, fp32_samples_per_s. */
void plan_price_add_json(json_t *object, const plan_price *price);
