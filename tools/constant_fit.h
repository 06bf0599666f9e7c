/* constant_fit.h: fits the constants of the form (predictor.h) to tables of measured times (timings.h). */
#ifndef TANDEM_TOOLS_CONSTANT_FIT_H
#define TANDEM_TOOLS_CONSTANT_FIT_H

#include "tandem/advanced/timings.h"

typedef struct tandem_constant_fit tandem_constant_fit;

/* A fitted number. */
typedef struct tandem_constant_fit_value {
    double value, standard_error; /* in the constant's unit; NaN: nothing says how far it is off */
    int64_t n_row;                /* that it rests on; 0 = it stays where the fit begins */
} tandem_constant_fit_value;

/* What a card reached: a share of its peak. */
typedef struct tandem_constant_fit_share {
    char gpu[TANDEM_DEVICE_NAME];
    int type; /* of tandem_dtype; TANDEM_N_COMPUTE_DTYPE = the memory's bandwidth */
    tandem_constant_fit_value share;
} tandem_constant_fit_share;

/* What was known of a chip that was left out. */
typedef enum tandem_known {
    TANDEM_KNOWN_DATASHEET, /* nothing else */
    TANDEM_KNOWN_THREE,     /* a product of the cell's type, a copy and a tiny stream, as far as there are */
    TANDEM_KNOWN_ALL,       /* every other of its rows, at most 1000 of a cell */
    TANDEM_N_KNOWN
} tandem_known;

/* The errors of one cell: a card, a class of work, a type and a pass. */
typedef struct tandem_constant_fit_errors {
    char gpu[TANDEM_DEVICE_NAME];
    tandem_work_class work_class;
    tandem_dtype type;
    tandem_pass pass;
    double growth_ns; /* by which its host took longer from one row to the next, which is taken off */
    int64_t n_row;
    double mean, median, p90, bias; /* of (predicted − measured) / measured */
    double sum;                     /* of all predicted over that of all measured times, less 1 */
    double inside;                  /* share of rows inside their 80 % interval */
    double known[TANDEM_N_KNOWN];   /* mean error by what was known, of at most 500 of its rows that calibrate
                                     * nothing; NaN without such rows */
    const char *generation;         /* that was left out: "volta"; NULL = the chip alone */
} tandem_constant_fit_errors;

/* A cell whose mean error changed. */
typedef struct tandem_constant_fit_change {
    int cell;           /* of tandem_constant_fit_error_table; −1 = none */
    tandem_known known; /* of its chip: TANDEM_KNOWN_DATASHEET, or TANDEM_KNOWN_THREE less the tiny stream */
    double points;      /* mean error without the constants, less that with them; 0.01 = one point */
} tandem_constant_fit_change;

/* How far ratios of a task's times in two types are off on a card whose generation was left out. */
typedef struct tandem_constant_fit_ratio {
    tandem_ratio_group group;
    char gpu[TANDEM_DEVICE_NAME];
    int64_t n_shape;                 /* of rows of equal sizes in both types, timed alike */
    double mean, median;             /* of |log(predicted / measured)| */
    double bias;                     /* of log(predicted / measured) */
    double inside, inside_by_others; /* share inside the 80 % interval; in one that this card's ratios did not
                                      * make, NaN where it is the only card */
    double inside_of_both,
        spread_of_both; /* by the spreads of both times, as if these had nothing in common */
} tandem_constant_fit_ratio;

/* What a fit without some constants does to the cells, each chip left out. */
typedef struct tandem_constant_fit_drop {
    int n_worse, n_better; /* cells whose mean error changed by over a tenth of a point, by what is known */
    tandem_constant_fit_change worst, best;
} tandem_constant_fit_drop;

/* Opens an empty one. TANDEM_NO_MEMORY. */
tandem_status tandem_constant_fit_open(tandem_constant_fit **fit, tandem_error *error);
void tandem_constant_fit_close(tandem_constant_fit *fit); /* NULL is fine */
/* Adds all rows of a table. Rows of devices that are not described, and of precisions that tandem has not,
 * are counted and left out. A time below a quarter of what the device's peaks allow is TANDEM_MALFORMED,
 * unless force. Errors of tandem_timings_read_file; TANDEM_NO_MEMORY. */
tandem_status tandem_constant_fit_add_file(tandem_constant_fit *fit, const char *path, int force,
                                           tandem_error *error);
/* The same of cards that are only judged: no row of them is ever fitted, and no constant but those of ratios
 * rests on them. */
tandem_status tandem_constant_fit_judge_file(tandem_constant_fit *fit, const char *path, int force,
                                             tandem_error *error);
int64_t tandem_constant_fit_row_count(const tandem_constant_fit *fit, int64_t *n_skipped);

/* tandem_constant_fit_run: fits all constants. Nonlinear least squares of log(predicted / measured) by the
 * trust region method of gsl_multifit_nlinear, with Tukey's bisquare weights; streams first, then products,
 * then convolutions, each with at most 400 rows of a cell. A row weighs the same, long or short. Cards
 * below 100 W, which no one rate describes, count for streams only. TANDEM_USAGE: no rows. TANDEM_NO_MEMORY.
 * Cost: about 5 s for 250,000 rows. */
tandem_status tandem_constant_fit_run(tandem_constant_fit *fit, tandem_error *error);
/* tandem_constant_fit_leave_one_out: fits again without each chip in turn, all its forms. The chip is then a
 * datasheet, one product per type and one copy. Sets errors and spreads, over rows above 0.2 ms. After
 * tandem_constant_fit_run. tandem_constant_fit_errors.known is by tandem_calibration (predictor.h). Then it
 * leaves out each generation in turn, and judges its cards by the same rows and intervals, and ratios of
 * their times. */
tandem_status tandem_constant_fit_leave_one_out(tandem_constant_fit *fit, tandem_error *error);
/* tandem_constant_fit_drop_constants: what the errors of chips left out are where these constants have no
 * effect, or are the same as another (form.def). constants: bit c is constant c. After
 * tandem_constant_fit_run. The first call also fits with all constants, and keeps that. TANDEM_NO_MEMORY.
 * Cost: up to a fit for each chip. */
tandem_status tandem_constant_fit_drop_constants(tandem_constant_fit_drop *drop, tandem_constant_fit *fit,
                                                 uint64_t constants, tandem_error *error);

/* Results; arrays of the fit. */
const tandem_constant_fit_value *
tandem_constant_fit_constants(const tandem_constant_fit *fit); /* [TANDEM_N_CONSTANT] */
const tandem_constant_fit_share *tandem_constant_fit_shares(const tandem_constant_fit *fit, int *n);
const tandem_constant_fit_errors *tandem_constant_fit_error_table(const tandem_constant_fit *fit, int *n);
/* The same cells where the whole generation was left out; known is that of the chips. */
const tandem_constant_fit_errors *tandem_constant_fit_generation_table(const tandem_constant_fit *fit,
                                                                       int *n);
const tandem_spread *
tandem_constant_fit_spreads(const tandem_constant_fit *fit); /* [TANDEM_N_SPREAD_GROUP] */
const tandem_device_spread *
tandem_constant_fit_device_spreads(const tandem_constant_fit *fit); /* [TANDEM_N_PEAK] */
const tandem_constant_fit_ratio *tandem_constant_fit_ratio_table(const tandem_constant_fit *fit, int *n);
const tandem_ratio_fit *
tandem_constant_fit_ratios(const tandem_constant_fit *fit); /* [TANDEM_N_RATIO_GROUP] */
/* [0] of others, [1] of cards below 100 W. */
const tandem_device_spread *tandem_constant_fit_device_ratio(const tandem_constant_fit *fit);
/* Writes predictor/constants.def. */
tandem_status tandem_constant_fit_write(const tandem_constant_fit *fit, const char *path,
                                        tandem_error *error);

#endif
