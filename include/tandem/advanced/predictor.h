/* predictor.h: the sensitivity of every adjustable operator to every precision, and the latency of tasks
 * that were never measured.
 *
 * A sensitivity is what running an operator in a precision instead of fp32 costs the model. It is 0 for
 * fp32, never negative, and additive over operators. A method computes it from an estimate (tandem_estimate),
 * or from statistics over real batches (tandem_statistics in store.h):
 *
 * sampled more samples to the same loss, in percent: from what the precision changes of real gradients
 *         (tandem_estimate). The default. Derived in predictor/sampled.c.
 * fisher  the expected increase of the loss, in nats, from the variance that rounding adds to the operator's
 *         output and to its gradients, weighted by the measured squared output gradient. Derived in
 *         predictor/fisher.c.
 * qsync   as published: QSync, IPDPS 2024. predictor/qsync.c has the formula and says where it departs from
 *         its theory. */
#ifndef TANDEM_PREDICTOR_H
#define TANDEM_PREDICTOR_H

#include "tandem/advanced/store.h"
#include "tandem/plan.h"

TANDEM_BEGIN_DECLARATIONS

typedef struct tandem_sensitivity_method {
    const char *name, *meaning;
    const char *unit; /* "%": of extra samples; "nats"; "none": it only ranks */
    /* sensitivity[n_op × TANDEM_N_PRECISION], row-major; 0 where an operator is not adjustable. Every
     * adjustable operator has statistics (n_batch > 0). NULL: the method needs an estimate instead. */
    void (*compute)(double *sensitivity, const tandem_graph *graph, const tandem_statistics *statistics,
                    tandem_dtype amp_dtype);
    /* The same of a step, from all replicates. precisions, bit p: that of the device; others without an
     * estimate are 0. TANDEM_MISSING: an operator has no estimate in one of them. NULL: the method needs
     * statistics. */
    tandem_status (*compute_estimated)(double *sensitivity, const tandem_graph *graph,
                                       const tandem_estimate *estimate, const tandem_sensitivity_step *step,
                                       tandem_dtype amp_dtype, unsigned precisions, tandem_error *error);
    /* Adds, to every precision of an operator, fp32 too, what noise of the exchange costs in the gradient of
     * its weight; noise: as gradient_noise of tandem_sensitivity_step. NULL: compute_estimated does, or the
     * method does not know this noise. */
    void (*add_gradient_noise)(double *sensitivity, const tandem_graph *graph,
                               const tandem_statistics *statistics, double noise);
} tandem_sensitivity_method;

/* Every method; NULL after the last. The first is the default. */
const tandem_sensitivity_method *tandem_sensitivity_get(int index);
/* TANDEM_UNKNOWN_NAME with the nearest one. */
tandem_status tandem_sensitivity_find(const tandem_sensitivity_method **method, const char *name,
                                      tandem_error *error);

/* tandem_sensitivity_load: the sensitivity of every operator on a device, from what the store has of the
 * model.
 *   sensitivity  [out] [n_op × TANDEM_N_PRECISION]; unchanged on error
 *   data         the data set of the statistics, or of the estimate; NULL = the one measured last
 *   step         for which it holds; NULL: of any, only for methods that need no estimate
 *   amp_dtype    of the device
 *   precisions   bit p: the device has precision p; of others a sensitivity may be missing, and is 0 then
 * TANDEM_MISSING names the operator without statistics and the command that measures them. TANDEM_MALFORMED:
 * a sensitivity is not a number ≥ 0. TANDEM_UNKNOWN_NAME, TANDEM_NO_MEMORY, errors of the store. Cost:
 * O(operators). */
tandem_status tandem_sensitivity_load(double *sensitivity, tandem_store *store, const tandem_graph *graph,
                                      const char *method, const char *data,
                                      const tandem_sensitivity_step *step, tandem_dtype amp_dtype,
                                      unsigned precisions, tandem_error *error);

/* tandem_rounding_variance: the expected mean square of the error of rounding a tensor to a dtype's format,
 * from its largest magnitude and its mean square; 0 for f32 and s32. Presumes even fractions (section 1 of
 * predictor/fisher.c); no loss scale. */
double tandem_rounding_variance(tandem_dtype type, double amax, double mean_square);

/* tandem_allreduce_noise: the variance that the all-reduces of a cluster add to each element of the gradient,
 * over its mean square; 0 where gradients travel in f32, or there is one rank. In bf16 every rank of n adds
 * to a partial sum in f32 and rounds it, with the variance c of a mean square (fisher.c, section 1). The
 * partial sum of a share w of the samples has the mean square w²G² + wV of the sum's G² + V, at most w of it.
 * Over the chunks of a ring, which begin at different ranks, w is k/n on average:
 *     noise ≤ c · Σ k/n = c · (n + 1)/2,     3.5·10⁻⁶ with two ranks, 2.0·10⁻⁵ with 16
 * It is reached where samples' gradients are all noise (G = 0); where they are alike, it is 2/3 of that with
 * many ranks. Errors of the roundings are taken as independent. */
double tandem_allreduce_noise(const tandem_cluster *cluster);

/* --- The sensitivity of a plan (predictor/plan_sensitivity.c) ------------------------------------------ */

enum { TANDEM_N_LARGEST = 3 };
/* One operator in one precision, on all classes that run it so; as in tandem_sensitivity_estimate. */
typedef struct tandem_largest_sensitivity {
    int op;
    tandem_precision precision;
    double value, low, high;
} tandem_largest_sensitivity;
typedef struct tandem_plan_sensitivity {
    tandem_sensitivity_estimate estimate;
    int n_point;
    /* of the training that was estimated: 0.9 is after 90 % of its steps */
    double point_share[TANDEM_MAX_TRAINING_POINT];
    int n_largest;                                        /* those above 0 */
    tandem_largest_sensitivity largest[TANDEM_N_LARGEST]; /* descending; ties: the lower operator first */
} tandem_plan_sensitivity;

/* tandem_plan_sensitivity_estimate: what a plan costs, at its own batch, ranks and micro-steps.
 * TANDEM_WRONG_MODEL: the plan is of another graph. TANDEM_MISSING, TANDEM_USAGE: as
 * tandem_estimate_sensitivity. TANDEM_NO_MEMORY. *of unchanged on error. Cost: an estimate for each operator
 * that is lowered. */
tandem_status tandem_plan_sensitivity_estimate(tandem_plan_sensitivity *of, const tandem_estimate *estimate,
                                               const tandem_plan *plan, const tandem_graph *graph,
                                               tandem_error *error);

/* The same of one operator on class c alone, in another precision than the plan's. */
tandem_status tandem_choice_sensitivity_estimate(tandem_sensitivity_estimate *to,
                                                 const tandem_estimate *estimate, const tandem_plan *plan,
                                                 const tandem_graph *graph, int c, int op,
                                                 tandem_precision precision, tandem_error *error);

/* tandem_plan_sensitivity_compare: what plan `more` needs more than plan `less` (tandem_estimate_compare).
 * TANDEM_USAGE, too: their steps differ in samples or micro-steps. *difference unchanged on error. */
tandem_status tandem_plan_sensitivity_compare(tandem_sensitivity_difference *difference,
                                              const tandem_estimate *estimate, const tandem_plan *more,
                                              const tandem_plan *less, const tandem_graph *graph,
                                              tandem_error *error);

/* --- Collecting statistics (predictor/statistics.c) -----------------------------------------------------
 * */
/* One product y = x·w with output gradient g, all in f32, row-major: x (rows, k), w (k, columns), g (rows,
 * columns). transposed: w is stored (columns, k). */
typedef struct tandem_product {
    int64_t rows, k, columns;
    const float *x, *w, *g;
    int transposed;
} tandem_product;

/* The windows that a convolution reads of images (n, height, width, channels). */
typedef struct tandem_window {
    int64_t n, height, width, channels, out_height, out_width;
    int64_t kernel_h, kernel_w, stride, pad;
} tandem_window;

/* tandem_statistics_add_call: adds a call of an operator: sizes, amax, and the products' sums. What it leaves
 * out: n_batch and local_batch, and the squares of weight and input gradient (tandem_statistics_square).
 *   product  of a convolution x are images, and rows and k are not read
 *   count    products of one shape, one after the other in x, w and g; 1 of a layer
 *   window   of a convolution, whose weights are (kernel_h, kernel_w, channels, columns); NULL: a matrix
 * TANDEM_NO_MEMORY: *statistics has sizes and amax alone. Cost: that of the products; of a convolution a copy
 * of its windows. */
tandem_status tandem_statistics_add_call(tandem_statistics *statistics, const tandem_product *product,
                                         int64_t count, const tandem_window *window, tandem_error *error);
/* tandem_statistics_add_product: adds a product to the sums of squares and weighted squares in *statistics.
 * It does not touch amax, sizes, wgrad and dgrad. TANDEM_NO_MEMORY. Cost: O(rows·k + k·columns +
 * rows·columns). */
tandem_status tandem_statistics_add_product(tandem_statistics *statistics, const tandem_product *product,
                                            tandem_error *error);
/* Σ x², and max |x| of an array. */
double tandem_statistics_square(const float *x, int64_t n);
double tandem_statistics_amax(const float *x, int64_t n);
/* Divides sums over n_batch batches into means. */
void tandem_statistics_finish(tandem_statistics *statistics, int64_t n_batch);

/* --- Work of a task ------------------------------------------------------------------------------------- */
/* What decides which terms of the form hold for a task. */
typedef enum tandem_work_class {
    TANDEM_WORK_STREAM,      /* reads and writes elements */
    TANDEM_WORK_SOFTMAX,     /* rows that are read again for their sum */
    TANDEM_WORK_LAYERNORM,   /* rows that are read again for mean and variance */
    TANDEM_WORK_LINEAR,      /* one product */
    TANDEM_WORK_MATMUL,      /* many products of one shape */
    TANDEM_WORK_CONVOLUTION, /* a product of windows, or what the library takes instead */
    TANDEM_N_WORK_CLASS
} tandem_work_class;
const char *tandem_work_class_name(tandem_work_class work_class); /* "stream", "softmax", … */

/* What a task computes and moves, from its cost key alone. docs/costs.md has the table of bytes. */
typedef struct tandem_work {
    const char *kind; /* "linear", …, "adamw", "cast": one pointer for each */
    tandem_work_class work_class;
    tandem_dtype type; /* that it multiplies in; decides its rate */
    tandem_pass pass;
    int is_product; /* of matrices: `count` products (m, k) × (k, n); a convolution is one of its windows */
    double flops;   /* a multiply and an add count as two */
    double bytes;   /* read and written, once per pass over an operand */
    double element_bytes; /* of an operand's element */
    double count, m, n, k;
    double rows, columns; /* of softmax and layernorm */
    tandem_convolution convolution;
} tandem_work;
/* tandem_work_of: 0 where this version does not know the key's operator. Cost: O(length of the key). */
int tandem_work_of(tandem_work *work, const tandem_cost_key *key);
/* The work of a product or a convolution in a pass; operands and result have these sizes. work->kind is the
 * caller's: a "matmul" is of the class of batched products. 0 where there is no such pass. */
typedef struct tandem_product_sizes {
    double count, m, k, n; /* of the forward pass */
    double operand_bytes, result_bytes;
} tandem_product_sizes;
int tandem_work_of_product(tandem_work *work, const tandem_product_sizes *sizes, tandem_dtype type,
                           tandem_pass pass);
int tandem_work_of_convolution(tandem_work *work, const tandem_convolution *convolution, tandem_dtype type,
                               tandem_pass pass, double operand_bytes, double result_bytes);

/* --- The form: the time of a task on a described device (predictor/kernel_time.c) ----------------------- */
enum {
#define CONSTANT(key, ...) TANDEM_CONSTANT_##key,
#include "tandem/advanced/form.def"
#undef CONSTANT
    TANDEM_N_CONSTANT
};
typedef struct tandem_constants {
    double value[TANDEM_N_CONSTANT];
} tandem_constants;
/* A constant of the form: its name in lower case, unit, where a fit begins and what it keeps to. */
typedef struct tandem_constant_row {
    const char *name, *unit, *meaning;
    double start, min, max;
    double without; /* its value where it is dropped; NaN = that of constant `as` */
    int as;         /* −1 = of none */
} tandem_constant_row;
const tandem_constant_row *tandem_constant_get(int constant);
/* What `tandem-fit` found, with which --predict works: predictor/constants.def. */
const tandem_constants *tandem_constants_fitted(void);
void tandem_constants_start(tandem_constants *constants);

/* What a device reaches of its peaks. */
typedef struct tandem_reached_rates {
    double flops_per_s[TANDEM_N_COMPUTE_DTYPE], bytes_per_s, launch_ns;
    int is_power_bound[TANDEM_N_COMPUTE_DTYPE]; /* watts, not units, limit the rate */
} tandem_reached_rates;
/* From the datasheet and the shared constants alone. */
void tandem_reached_rates_shared(tandem_reached_rates *rates, const tandem_gpu_spec *spec,
                                 const tandem_constants *constants);
/* What operands of zeros reach, which take hardly any power: at least the share of the peak of all cards. */
void tandem_reached_rates_without_power(tandem_reached_rates *rates, const tandem_gpu_spec *spec,
                                        const tandem_constants *constants);
/* The same, but what was measured on this card and is in constants.def comes first. */
void tandem_reached_rates_fitted(tandem_reached_rates *rates, const tandem_device *device);

typedef enum tandem_time_bound {
    TANDEM_BOUND_LAUNCH,
    TANDEM_BOUND_COMPUTE,
    TANDEM_BOUND_MEMORY,
    TANDEM_BOUND_POWER,
    TANDEM_N_TIME_BOUND
} tandem_time_bound;
const char *tandem_time_bound_name(tandem_time_bound bound);

/* A time, term by term. */
typedef struct tandem_kernel_time {
    double ns, launch_ns, compute_ns, memory_ns; /* ns ≥ launch + the larger of the others */
    double least_ns;                             /* the executed work at the datasheet's peaks */
    double executed_flops;                       /* padding and transforms included */
    double bytes;                                /* past the level-2 cache, each pass over an operand */
    const char *algorithm;                /* "product", "direct", "winograd", "gemm", "stream": static text */
    double tile_m, tile_n, waves, splits; /* of the product that counts most; 0 = none */
    tandem_time_bound bound;
    double by_rows; /* what measured rows say about the form: the factor that is in each term; 1 = nothing */
} tandem_kernel_time;

/* tandem_kernel_time_of: ns of one task; −1 where the device has no units for the type. Never below the
 * executed work at the datasheet's peaks. *time may be NULL. Cost: O(1), about 1 µs. */
double tandem_kernel_time_of(tandem_kernel_time *time, const tandem_constants *constants,
                             const tandem_gpu_spec *spec, const tandem_reached_rates *rates,
                             const tandem_work *work);
/* The same with the fitted constants, from the device's description alone. */
double tandem_described_ns(const tandem_device *device, const tandem_work *work);

/* Tasks whose times by the form are off alike: by class, type, pass and generation. */
typedef enum tandem_spread_group {
#define SPREAD_GROUP(key, peak, name) TANDEM_SPREAD_##key,
#include "tandem/advanced/spreads.def"
#undef SPREAD_GROUP
    TANDEM_N_SPREAD_GROUP
} tandem_spread_group;
tandem_spread_group tandem_spread_group_of(const tandem_work *work, const tandem_gpu_spec *spec);
const char *tandem_spread_group_name(tandem_spread_group group); /* "elementwise", … */

/* How far predictions of a group were off on chips left out that had one product and one copy: logarithmic
 * standard deviations, of what all its tasks on a device share, and of a task's own. The first does not
 * average out over a step, and counts as the same of all groups; the second does. */
typedef struct tandem_spread {
    double shared, own;
    int n_cell;        /* cells of a fit that it rests on; 0 = none */
    int64_t n_row;     /* rows of these cells */
    double error;      /* mean of |predicted / measured − 1| of these rows */
    const char *cards; /* that were left out, each followed by a space: "p100 v100 " */
} tandem_spread;
const tandem_spread *tandem_spread_fitted(tandem_spread_group group);
/* What cards reach of a peak, about what the fit without them expects of their datasheet. */
typedef enum tandem_peak { TANDEM_PEAK_COMPUTE, TANDEM_PEAK_MEMORY, TANDEM_N_PEAK } tandem_peak;
typedef struct tandem_device_spread {
    double shared; /* logarithmic standard deviation */
    int n_share;   /* measured shares that it rests on */
} tandem_device_spread;
/* The peak of a group's tasks. Of a device of which nothing was measured, its spread adds to the group's. */
const tandem_device_spread *tandem_device_spread_fitted(tandem_spread_group group);
/* What a group's tasks on a device share, with the device's part where nothing was measured on it. */
double tandem_spread_shared(tandem_spread_group group, int is_measured);
/* The same of a tandem_calibration_form_group. Rows of others are of that very card: it is at most what cards
 * differ by in what they reach of their peaks, and at least what two cards of one name differ by. */
double tandem_evidence_spread_shared(int form_group, int is_measured);

/* Kinds of ratios between a task's times in two types: by class, types and, of a convolution, pass. */
typedef enum tandem_ratio_group {
#define RATIO_GROUP(key, name) TANDEM_RATIO_##key,
#include "tandem/advanced/ratios.def"
#undef RATIO_GROUP
    TANDEM_N_RATIO_GROUP
} tandem_ratio_group;
/* The kind of the ratio of two tasks' times that differ in type alone; TANDEM_N_RATIO_GROUP: nothing was
 * measured of such ratios. */
tandem_ratio_group tandem_ratio_group_of(const tandem_work *narrow, const tandem_work *wide);
const char *tandem_ratio_group_name(tandem_ratio_group group);
/* How far such a ratio is off: logarithmic standard deviations, of what all tasks of its kind on a device
 * share, and of a task's own. They are as those of tandem_spread, but the device's part counts once. */
typedef struct tandem_ratio_spread {
    double shared, own;
    int n_shape; /* that were measured in both types, and that it rests on; 0: on the spreads of both times */
} tandem_ratio_spread;
/* On generations left out of the fit, with one product of each type known. n_shape 0: no such rows. */
typedef struct tandem_ratio_fit {
    tandem_ratio_spread spread;
    double error;      /* mean of |predicted / measured - 1| of these ratios */
    const char *cards; /* that were left out, each followed by a space */
} tandem_ratio_fit;
const tandem_ratio_fit *tandem_ratio_fitted(tandem_ratio_group group);
/* What cards like this one reach of their peak in one type over another, about what the fit without their
 * generation expects: those below 100 W, or others. */
const tandem_device_spread *tandem_device_ratio_fitted(const tandem_gpu_spec *spec);

/* --- Calibration: measured times of a device sharpen the rest (predictor/calibrate.c) ------------------- */
/* Large products give the device its rate of their type, large streams its bandwidth, tiny kernels its
 * launch: medians, never above the peak. What remains of a class's rows moves that class, in part, and
 * shapes near a measured one more. */
typedef struct tandem_calibration tandem_calibration;
/* Begins with the fitted rates. A device without description: TANDEM_NO_DEVICE. TANDEM_NO_MEMORY. */
tandem_status tandem_calibration_open(tandem_calibration **calibration, const tandem_device *device,
                                      tandem_error *error);
void tandem_calibration_close(tandem_calibration *calibration); /* NULL is fine */
/* How a row was timed. */
enum {
    TANDEM_TIMED_BETWEEN_EVENTS = 1, /* with what a host's events add */
    TANDEM_TIMED_OF_ZEROS = 2,       /* of operands that are zeros: no watts limit the rate */
    TANDEM_TIMED_OF_OLD_LIBRARY = 4, /* with a library of the card's time */
    TANDEM_TIMED_BY_DOT_PRODUCTS =
        8 /* int8 four at a time, also where tensor cores take it: another kernel */
};
/* Adds a measured time; timed: of TANDEM_TIMED_…. TANDEM_NO_MEMORY. */
tandem_status tandem_calibration_add(tandem_calibration *calibration, const tandem_work *work, double ns,
                                     int timed, tandem_error *error);
/* After the last row. notes: text about rows that contradict the datasheet by more than 3 ×, which are left
 * out, and about what no row decides; "" = none. */
enum { TANDEM_CALIBRATION_NOTES = 512 };
void tandem_calibration_finish(tandem_calibration *calibration, char notes[TANDEM_CALIBRATION_NOTES]);
/* tandem_calibrated_ns: as tandem_kernel_time_of. *time may be NULL. Cost: O(rows of the class). */
double tandem_calibrated_ns(tandem_kernel_time *time, const tandem_calibration *calibration,
                            const tandem_work *work);
/* Adds the store's imported times of the device (store.h). Rows of operators or precisions that this version
 * does not know are skipped. Errors of the store, TANDEM_NO_MEMORY. */
tandem_status tandem_calibration_add_stored(tandem_calibration *calibration, tandem_store *store,
                                            tandem_error *error);
/* tandem_calibration_add_others: has the calibration follow what others measured of the device and ships with
 * the program (profiles/devices/measured/), for classes and types of tasks that they have rows of. Own rows
 * of these correct what theirs say, near to each and, in part, all of its class and type; up to 1024 rows,
 * evenly spaced. Theirs are read when the first such task is asked for, about 2 us a row; two threads must
 * not ask at once. TANDEM_NO_MEMORY. Cost: a look at each table's header, and some 50 us per own row. */
tandem_status tandem_calibration_add_others(tandem_calibration *calibration, tandem_error *error);
/* TANDEM_NO_MEMORY: not all that was asked for could be read, and such times followed the description. To be
 * called after the last question. calibration may be NULL. */
tandem_status tandem_calibration_check_others(const tandem_calibration *calibration, tandem_error *error);
/* The rows of others that a task's time, or such a timing of it, rests on; 0 = it follows the description,
 * and own rows about it. */
int64_t tandem_calibration_others(const tandem_calibration *calibration, const tandem_work *work, int timed);
/* Own rows that correct these; 0 where there are none of others. */
int64_t tandem_calibration_own_about_others(const tandem_calibration *calibration, const tandem_work *work,
                                            int timed);
/* The share of a time's logarithmic deviation that own rows leave; 1 where it rests on none of others. */
double tandem_calibration_unknown(const tandem_calibration *calibration, const tandem_work *work, int timed);
/* What a time by the form rests on. Rows of another kernel alone are those of dot products, where the card's
 * tensor cores multiply int8: the time follows the description. */
typedef enum tandem_evidence {
    TANDEM_EVIDENCE_DESCRIPTION, /* and own rows, where there are any */
    TANDEM_EVIDENCE_OTHERS,
    TANDEM_EVIDENCE_OTHER_KERNEL,
    TANDEM_N_EVIDENCE
} tandem_evidence;
tandem_evidence tandem_calibration_evidence(const tandem_calibration *calibration, const tandem_work *work);
/* Kernels that rows of others are of: a class of work and a type, and dot products where they are another
 * kernel. −1: none. */
enum { TANDEM_N_OTHERS_KERNEL = 2 * TANDEM_N_WORK_CLASS * TANDEM_N_COMPUTE_DTYPE };
int tandem_others_kernel(const tandem_gpu_spec *spec, const tandem_work *work, int timed);
/* tandem_calibration_form_group: the spread group of a task, plus TANDEM_N_SPREAD_GROUP times its source, and
 * TANDEM_N_SPREAD_GROUP · TANDEM_N_EVIDENCE times the kernel of others' rows that it follows. The latter two
 * of such a number; the kernel is −1 where it follows none. */
tandem_evidence tandem_evidence_of_group(int form_group);
int tandem_kernel_of_group(int form_group);
int tandem_calibration_form_group(const tandem_calibration *calibration, const tandem_work *work);
/* The logarithmic standard deviation of what is a task's own: that of rows of others about each other where
 * they give its time, else that of its group. */
double tandem_calibration_own_spread(const tandem_calibration *calibration, const tandem_work *work,
                                     int timed);
/* tandem_calibration_ratio_spread: how far the ratio of two tasks' times is off that differ in type alone:
 * where others' rows give both, of rows of equal sizes in both types about each other; where neither, as the
 * kind of ratio is on generations left out of the fit. Otherwise, and where fewer than eight such sizes were
 * measured, as if the errors of both times had nothing in common; n_shape is then 0. Cost: that of up to 256
 * times by others' rows, once for each kernel. */
tandem_ratio_spread tandem_calibration_ratio_spread(const tandem_calibration *calibration,
                                                    const tandem_work *narrow, const tandem_work *wide);
/* What a task's time is over that of another task, and its 80 % interval. */
typedef struct tandem_time_ratio {
    double ratio, low, high;
    tandem_ratio_spread spread;
} tandem_time_ratio;
/* tandem_calibrated_ratio: of two tasks that differ in type alone. 0: a device has no units for one of the
 * types; *ratio is unchanged. */
int tandem_calibrated_ratio(tandem_time_ratio *ratio, const tandem_calibration *calibration,
                            const tandem_work *narrow, const tandem_work *wide);
/* Rows of others: of a tandem_others_kernel that a task has asked for, else 0; all that ship. */
int64_t tandem_calibration_kernel_rows(const tandem_calibration *calibration, int kernel);
int64_t tandem_calibration_others_count(const tandem_calibration *calibration);
/* What such a timing of the task would show: with the host's events, or of zeros; −1 as above. */
double tandem_calibrated_timed_ns(const tandem_calibration *calibration, const tandem_work *work, int timed);
/* What follows from which rows, after tandem_calibration_finish. */
typedef struct tandem_calibration_basis {
    int64_t n_row, n_contradicting;             /* contradicting: the datasheet, or others, by more than
                                                   3 times; left out */
    int64_t n_rate[TANDEM_N_COMPUTE_DTYPE + 1]; /* of each type; the last: of the bandwidth */
    int64_t n_launch, n_events;                 /* tiny kernels; tiny ones between events */
    int64_t n_near;                             /* that move shapes near them */
} tandem_calibration_basis;
const tandem_calibration_basis *tandem_calibration_basis_of(const tandem_calibration *calibration);
const tandem_device *tandem_calibration_device(const tandem_calibration *calibration);
const tandem_reached_rates *tandem_calibration_rates(const tandem_calibration *calibration);
int64_t tandem_calibration_row_count(const tandem_calibration *calibration);

/* --- Latency of unmeasured tasks ------------------------------------------------------------------------ */
/* tandem_latency_open: a predictor for a device while `co_runner` computes ("" = alone). It is fitted to all
 * contended times that were measured with that co-runner or, where there are none, to the times alone
 * (formula: predictor/latency.c). Imported times (store.h) calibrate a described device, about
 * what others measured of it (tandem_calibration_add_others). Tasks that differ from all measured ones take
 * their time from the device's description, if it has one. store NULL: nothing of the user's.
 * TANDEM_MISSING: there is neither. TANDEM_NO_MEMORY, errors of the store. *latency unchanged on error.
 * Cost: O(rows of the device). */
typedef struct tandem_latency tandem_latency;
tandem_status tandem_latency_open(tandem_latency **latency, const tandem_device *device,
                                  const char *co_runner, tandem_store *store, tandem_error *error);
/* The same without what others measured. */
tandem_status tandem_latency_open_described(tandem_latency **latency, const tandem_device *device,
                                            const char *co_runner, tandem_store *store, tandem_error *error);
void tandem_latency_close(tandem_latency *latency); /* NULL is fine */
/* tandem_latency_ns: time of a key's task, at least 1; −1 where no task like it is known: in a dtype that
 * was not measured, or of an operator that this version does not know.
 *   spread  [out] of the measured costs around their fit: the median of relative residuals / 0.6745, the
 *           standard deviation of normal ones; NaN where the time rests on a description; may be NULL */
int64_t tandem_latency_ns(const tandem_latency *latency, const tandem_cost_key *key, double *spread);
/* The same; *form_group: as tandem_calibration_form_group, of a time by the form; else −1. */
int64_t tandem_latency_ns_by_group(const tandem_latency *latency, const tandem_cost_key *key, double *spread,
                                   int *form_group);
/* What calibrates a described device's form; NULL of any other device. */
const tandem_calibration *tandem_latency_calibration(const tandem_latency *latency);
/* The number of measured costs that it is fitted to; 0 = the description alone. */
int64_t tandem_latency_fitted(const tandem_latency *latency);
/* Rows of others of a tandem_others_kernel, where a prediction rests on them. */
int64_t tandem_latency_kernel_rows(const tandem_latency *latency, int kernel);
/* Of the measured costs, how many contradict the device's datasheet, or what others measured, by more
 * than 3 times and are left out. */
int64_t tandem_latency_contradicting(const tandem_latency *latency);

/* --- Kernels of another library (predictor/pytorch_kernels.c) ------------------------------------------- */
/* How a job runs its operators. */
typedef struct tandem_kernel_style {
    tandem_kernel_set set;
    const char *model;  /* the graph's: public implementations of some write gelu out, or add a mask */
    int without_update; /* 1: gradients are added to those of the step before, and weights stay */
} tandem_kernel_style;
/* The kernels of one task, each with how often it runs. n = 0: the task has none of its own. */
enum { TANDEM_MAX_KERNELS = 8 };
typedef struct tandem_task_kernels {
    int n;
    double count[TANDEM_MAX_KERNELS];
    tandem_work work[TANDEM_MAX_KERNELS];
} tandem_task_kernels;
/* tandem_kernels_of: from pytorch_kernels.def; style->set is one of PyTorch's. 0 where this version does not
 * know the key's operator. Cost: O(length of the key + rows of the table). */
int tandem_kernels_of(tandem_task_kernels *kernels, const tandem_cost_key *key,
                      const tandem_kernel_style *style, const tandem_gpu_spec *spec);
/* tandem_latency_of_kernels: the time of a key's task as these kernels one after the other, at least 1; −1
 * where the device is not described or the operator unknown. *form_group: of the longest. */
int64_t tandem_latency_of_kernels(const tandem_latency *latency, const tandem_cost_key *key,
                                  const tandem_kernel_style *style, int *form_group);

/* --- Robust regression (predictor/robust.c) -------------------------------------------------------------
 * */
enum { TANDEM_ROBUST_MAX_TERMS = 6 };

/* tandem_robust_fit: fits y ≈ Σ_k coefficient[k] · x[k] with coefficients ≥ 0. Errors are relative: rows are
 * divided by their y. Outliers have little or no weight: iteratively reweighted least squares with Tukey's
 * bisquare weights (gsl_multifit_robust; the GNU Scientific Library's manual, "Robust linear regression"). A
 * term whose coefficient would be negative is left out, the most negative first.
 *   x       [n × n_term] row-major, ≥ 0; y: [n] > 0
 *   spread  [out] median of |fit − y| / y over 0.6745
 * TANDEM_USAGE: fewer rows than terms that are not 0 in all rows, or no such term. TANDEM_NO_MEMORY. Outputs
 * unchanged on error. Switches GSL's error handler, which would end the process, off for good. */
tandem_status tandem_robust_fit(double *coefficient, double *spread, const double *x, const double *y,
                                size_t n, size_t n_term, tandem_error *error);

/* Median of n ≥ 1 numbers, which it sorts. */
double tandem_median(double *value, size_t n);

/* --- A plan as a whole (predictor/whole_plan.c) --------------------------------------------------------- */

/* What a plan does with all its operators rounded at once. Shares: 0.01 is 1 %. Means are over training
 * points of equal weight. NaN: |E g| is lost in noise, or a loss was not finite. */
typedef struct tandem_whole_plan {
    tandem_sensitivity_estimate samples; /* more samples to the same loss; its interval is that of sampling */
    double loss_rise, loss_rise_half;    /* nats, of the same batches within its rounding; half: 95 % */
    /* |E d|/|E g|: the mean error, in any direction; of several classes at most that; half: 95 % */
    double across, across_half;
    /* |g| of a step over √3 times the root mean square of its error: below 1 the rounding decides (Chmiel et
     * al., arXiv:2505.19115, 2025) */
    double stability;
} tandem_whole_plan;

/* tandem_estimate_whole_plan: of an estimate whose rows are the plans of classes.
 *   share      [cells of tandem_estimate_cell] the part of the global batch that runs each row
 *   loss_rise  [n_point × n_op × n_replicate], of rows with a share
 * Errors as tandem_estimate_sensitivity; *to unchanged then. */
tandem_status tandem_estimate_whole_plan(tandem_whole_plan *to, const tandem_estimate *estimate,
                                         const double *share, const double *loss_rise,
                                         const tandem_sensitivity_step *step, tandem_error *error);

/* --- What trials of other plans say (predictor/correction.c) -------------------------------------------- */

/* A trial (trial.h) of a plan beside what is predicted for it. Shares. extra NaN, or low without a limit: it
 * says nothing; extra infinite, or diverged: the plan needs at least twice the samples. */
typedef struct tandem_tried_plan {
    double predicted, extra, low, high;
    int diverged;
} tandem_tried_plan;

/* Another plan of the model needs `factor` times what is predicted for it: the median; 95 %: low to high. NaN
 * where n_trial, the trials that say something, is 0. */
typedef struct tandem_correction {
    int n_trial;
    double factor, low, high;
} tandem_correction;

/* tandem_correction_find: from n ≥ 0 trials of one model, of plans whose errors are of one kind. Cost: some
 * 6,000 exponentials a trial. */
tandem_correction tandem_correction_find(const tandem_tried_plan *tried, int n);

/* tandem_prediction_interval: where 95 % of trainings would lie of which `value` is predicted, with the 95 %
 * interval low to high of sampling: by the scatter of trials about predictions, between models and within one
 * (predictor/correction.c), where no trial of the model narrows it. A value of 0 or less has no logarithm:
 * its interval is that of sampling, with the upper end as far above as that of a value there. NaN stays NaN.
 * */
typedef struct tandem_prediction {
    double low, high;
} tandem_prediction;
tandem_prediction tandem_prediction_interval(double value, double low, double high);

TANDEM_END_DECLARATIONS
#endif
