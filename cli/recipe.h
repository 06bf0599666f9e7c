/* recipe.h: how a run trains: its optimizer, and the learning rate of every step. */
#ifndef TANDEM_CLI_RECIPE_H
#define TANDEM_CLI_RECIPE_H

#include "cli/cli.h"

typedef enum schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_COSINE,
    SCHEDULE_LINEAR,
    SCHEDULE_STEP,
    N_SCHEDULE
} schedule;

typedef struct recipe {
    tandem_optimizer_options optimizer; /* its rate is the highest of the schedule */
    schedule schedule;
    int64_t warmup, steps;
} recipe;

/* The model's own, but what options say. TANDEM_USAGE where an option is of another optimizer, or a warm-up
 * longer than the run; TANDEM_UNKNOWN_NAME for a schedule. */
tandem_status recipe_open(recipe *out, const tandem_graph *graph, const cli_options *options,
                          tandem_error *error);

/* recipe_rate: the learning rate of step s = 0, 1, …, of N steps with W of warm-up, at highest r:
 *   s < W     r · (s + 1) / W
 *   constant  r
 *   linear    r · (N − s) / (N − W)
 *   cosine    r · ½ (1 + cos(π (s − W) / (N − W)))          Loshchilov and Hutter 2017, equation 5, without
 *             restarts
 *   step      r, r/10 from N/2 on, r/100 from 3N/4 on        He et al. 2016, section 4.2 */
float recipe_rate(const recipe *r, int64_t s);

/* All that decides what a run learns, a line each ("seed: 0"), for its checkpoints: two runs with equal texts
 * are the same run. */
void recipe_print(char *text, size_t size, const recipe *r, const cli_subject *subject,
                  const cli_options *options);
/* Notes every line of `now` that `before` has otherwise. */
void recipe_note_changes(const cli_options *options, const char *before, const char *now);

#endif
