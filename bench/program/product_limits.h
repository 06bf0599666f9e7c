/* product_limits.h: what products in a step are held against: the rate of one large product, alone. */
#pragma once

#include "cli/cli.h"
#include "tandem/graph.h"

/* All zero: nothing is measured. */
typedef struct product_limits {
    double flops_per_s[TANDEM_N_PRECISION]; /* 0: not measured */
} product_limits;

/* product_limits_measure: adds the rate of a product of 1024 × 1024 × 1024 forward in `precision` on the
 * options' device, the faster of tandem's kernel and the library's, medians of five. Does nothing where it is
 * there. Cost: as ten such products, and of a small model. Errors of training_rank_open. */
tandem_status product_limits_measure(product_limits *limits, tandem_precision precision,
                                     const cli_options *options, tandem_error *error);
