/* fit_data.h: rows of a fit and its state; private to tools/. */
#ifndef TANDEM_TOOLS_FIT_DATA_H
#define TANDEM_TOOLS_FIT_DATA_H

#include "predictor/form.h"
#include "tools/constant_fit.h"

enum {
    FIT_STREAMS = 1,
    FIT_ROWS, /* softmax and layernorm, on the bandwidths that streams reach */
    FIT_PRODUCTS,
    FIT_CONVOLUTIONS, /* where a kernel is named, by that way alone */
    FIT_CHOICES,      /* what a choice by rule costs over the fastest way */
    FIT_MAX_DEVICES = 64,
    FIT_MAX_DEVICE_ERRORS = 256,
    FIT_CARDS_TEXT = 256,
    FIT_MIN_SPREAD_ROWS = 10,
    FIT_MAX_SPREAD_CELLS = 32,
    FIT_MAX_RATIO_CELLS = 64
};

#define FIT_MIN_JUDGED_NS 2e5

typedef struct fit_row {
    tandem_work work;
    double timed_ns, ns;            /* as timed; without what the host adds more with every row */
    int gpu;                        /* index of tandem_device_get */
    uint32_t manner;                /* of its source and method: rows of equal numbers were timed alike */
    int cell;                       /* of tandem_constant_fit.cell */
    unsigned char timed, is_fitted; /* timed: of TANDEM_TIMED_… */
    convolution_way way;            /* that its source names */
    float left_out;                 /* log(predicted / measured) without its chip; NaN = none */
} fit_row;

/* What is fitted: constants, and what every device reaches. */
typedef struct fit_state {
    tandem_constants constants;
    tandem_reached_rates rates[FIT_MAX_DEVICES];
    tandem_constant_fit_value constant[TANDEM_N_CONSTANT];
    tandem_constant_fit_value share[FIT_MAX_DEVICES][TANDEM_N_COMPUTE_DTYPE + 1];
} fit_state;

/* log(predicted / measured) of a ratio of times, and the spread groups of both. */
typedef struct fit_ratio {
    tandem_ratio_group group;
    int gpu;
    double error;
    tandem_spread_group of[2];
} fit_ratio;

struct tandem_constant_fit {
    fit_row *row;
    size_t n_row, room;
    int64_t n_skipped;
    char skipped_why[TANDEM_ERROR_TEXT]; /* of the first */
    uint64_t judged;                     /* bit d: no row of tandem_device_get(d) is fitted */
    int force, is_judging; /* force: rows of the file being read that no device can reach stay */
    tandem_constant_fit_errors *cell;
    int n_cell, cell_room;
    tandem_constant_fit_errors *generation_cell; /* the cells, without their generation */
    struct fit_chips *chips;                     /* of tools/fit_without.c; NULL = none asked */
    int64_t *cell_rows;                          /* rows of each cell, once a fit has run */
    fit_state state;
    tandem_constant_fit_share *share;
    int n_share;
    tandem_spread spread[TANDEM_N_SPREAD_GROUP];
    char spread_cards[TANDEM_N_SPREAD_GROUP][FIT_CARDS_TEXT];
    double device_error[TANDEM_N_PEAK][FIT_MAX_DEVICE_ERRORS]; /* |log(share expected / share found)| */
    int n_device_error[TANDEM_N_PEAK];
    tandem_device_spread device_spread[TANDEM_N_PEAK];
    double device_off[FIT_MAX_DEVICES]
                     [TANDEM_N_COMPUTE_DTYPE]; /* log(share expected / share found); NaN = none */
    fit_ratio *ratio;
    size_t n_ratio, ratio_room;
    tandem_constant_fit_ratio ratio_cell[FIT_MAX_RATIO_CELLS];
    int n_ratio_cell;
    tandem_ratio_fit ratio_of[TANDEM_N_RATIO_GROUP];
    char ratio_cards[TANDEM_N_RATIO_GROUP][FIT_CARDS_TEXT];
    tandem_device_spread device_ratio[2]; /* of others, and of cards below 100 W */
};

/* What a fit goes without. */
typedef struct fit_without {
    uint64_t devices;      /* bit d: no row of tandem_device_get(d) */
    uint64_t constants;    /* bit c: constant c has no effect, or is as another (form.def) */
    const fit_state *near; /* the fit with all constants, where the search begins; NULL = at the start */
} fit_without;
_Static_assert(FIT_MAX_DEVICES <= 64 && TANDEM_N_CONSTANT <= 64, "a bit for each");

/* Where a fit begins, and one stage after the other; fit_all_stages is all of them. */
void fit_begin(fit_state *state, const fit_without *without);
tandem_status fit_next_stage(const tandem_constant_fit *fit, fit_state *state, const fit_without *without,
                             int stage, tandem_error *error);
tandem_status fit_all_stages(const tandem_constant_fit *fit, fit_state *state, const fit_without *without,
                             tandem_error *error);
/* The first stage whose outcome depends on a constant. */
int fit_stage_of_constant(int constant);
/* The devices of the c-th cell's chip, all its forms; 0 = an earlier cell is of it. */
uint64_t fit_chip_of_cell(const tandem_constant_fit *fit, int c);
void fit_close_chips(struct fit_chips *chips); /* NULL is fine */
/* What a card of the fit reaches, from one product per type and one copy. */
void fit_calibrate_gpu(tandem_constant_fit *fit, fit_state *state, int gpu);
/* What was left out of cells that are off alike: |log(predicted / measured)|, sorted. */
typedef struct spread_cells {
    double *error[FIT_MAX_SPREAD_CELLS];
    size_t n_row[FIT_MAX_SPREAD_CELLS];
    double own[FIT_MAX_SPREAD_CELLS]; /* spread about the cell's median */
    int n;
} spread_cells;
/* Adds n signed errors, which it sorts by their size and keeps; fewer than FIT_MIN_SPREAD_ROWS are none. */
void fit_add_spread_cell(spread_cells *cells, double *error, size_t n);
/* Both parts of the interval that suits at least one cell. */
tandem_spread fit_spread_of_cells(spread_cells *cells);
/* Ratios of rows as they were left out last. */
tandem_status fit_judge_ratios(tandem_constant_fit *fit, tandem_error *error);
int fit_find_device(const char *name); /* index of tandem_device_get; −1 = none */
/* The row of a card that is nearest to a large product of a type, or, TANDEM_N_COMPUTE_DTYPE, to a copy of
 * 160 MB; NULL = none. */
const fit_row *fit_nearest_row(const tandem_constant_fit *fit, int gpu, int type);
/* Errors of devices without which `state` was fitted, by what is known of them. */
tandem_status fit_judge_calibration(tandem_constant_fit *fit, const fit_state *state, uint64_t devices,
                                    tandem_error *error);
/* What the row would show; by one way of a convolution. */
double fit_predicted_ns(const fit_state *state, const fit_row *row, const tandem_device *device);
double fit_predicted_by(const fit_state *state, const fit_row *row, const tandem_device *device,
                        convolution_way way);

#endif
