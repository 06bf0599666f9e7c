/* goodput.h: what a plan makes and what its precisions cost (tandem_goodput), as quantities and as JSON. */
#pragma once

#include "base/quantity.h"
#include "cli/cli.h"
#include "tandem/advanced/allocator.h"

/* Half of the sensitivity's interval in percent; NaN where it is not known. */
double goodput_half(const tandem_goodput *goodput);
/* A percentage with the digits that this interval allows. */
tandem_quantity goodput_percent(const tandem_goodput *goodput, double percent);
/* A sum of sensitivities by a method, with the digits that the plan's interval allows where the method is in
 * percent, else with two. */
tandem_quantity goodput_sum(const tandem_goodput *goodput, const char *method, double sum);
/* The goodput with at most so many digits, or as many as the sensitivity's interval allows; "-" where it is
 * not known. */
enum { GOODPUT_DIGITS = 4 }; /* where the step's time allows them */
tandem_quantity goodput_rate(const tandem_goodput *goodput, int digits);
/* "0.9 (0.6 to 1.3)", in percent, with no more digits than the interval allows; "0" of fp32; "-" where it is
 * not known. Returns text. */
enum { SENSITIVITY_TEXT = 64 };
const char *goodput_sensitivity(char text[SENSITIVITY_TEXT], const tandem_goodput *goodput);
/* Adds to an object, in percent, null where unknown: sensitivity, sensitivity_low, sensitivity_high,
 * sensitivity_noise, sensitivity_bias, sensitivity_training_points, sensitivity_largest; in
 * samples/s: fp32_goodput_samples_per_s, fp32_samples_per_s. */
void goodput_add_json(json_t *object, const tandem_goodput *goodput);
