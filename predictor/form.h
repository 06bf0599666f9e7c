/* form.h: what the files of the form share; private to predictor/. */
#ifndef TANDEM_PREDICTOR_FORM_H
#define TANDEM_PREDICTOR_FORM_H

#include "tandem/advanced/predictor.h"

/* A card as the form sees it. */
typedef struct kernel_gpu {
    const tandem_gpu_spec *spec;
    const double *constant;                 /* [TANDEM_N_CONSTANT] */
    double flops_per_ns, peak_flops_per_ns; /* reached and peak, of the task's type, of the whole card */
    double bytes_per_ns;                    /* reached by streams */
} kernel_gpu;

/* Whose product it is: decides the tiles that a library has for it. */
typedef enum product_family {
    PRODUCT_SINGLE,
    PRODUCT_BATCHED,
    PRODUCT_WINDOWS, /* of a convolution */
    PRODUCT_WINDOWS_NARROW,
    PRODUCT_POINTS, /* of gradients of weights, kernels of 1 x 1 */
    PRODUCT_WINOGRAD,
    PRODUCT_WINOGRAD_FUSED,
    PRODUCT_WINOGRAD_WGRAD
} product_family;

/* How a library does a convolution. */
typedef enum convolution_way { WAY_FASTEST, WAY_DIRECT, WAY_TRANSFORMED, WAY_FUSED } convolution_way;

/* How the depth of a product is cut. */
typedef enum depth_split {
    DEPTH_WHOLE,
    DEPTH_OVER_IDLE, /* over multiprocessors without a tile */
    DEPTH_EVENLY     /* in shares that fill the card: no wave is partial */
} depth_split;

/* Products of one shape: `count` of (m, k) × (k, n). */
typedef struct tiled_product {
    product_family family;
    double count, m, k, n;
    depth_split split;
} tiled_product;

/* Whether a row's kernel is not the one that a task of the work takes on the card: dot products, where tensor
 * cores multiply int8. */
int tandem_is_other_kernel(const tandem_gpu_spec *spec, const tandem_work *work, int timed);
/* Has int8 multiplied by four-way dot products: four operations in place of one of f32. */
void tandem_take_dot_products(tandem_gpu_spec *spec, tandem_reached_rates *rates);

/* The same task of a batch that many times as large: of its images, products, rows of a product, or elements.
 * 0: less than one would be left; *scaled is unchanged. It may be `work`. */
int tandem_work_of_batch(tandem_work *scaled, const tandem_work *work, double times);

/* Gives a time the value ns, and its terms the same factor. */
void tandem_kernel_time_scale(tandem_kernel_time *time, double ns);

/* What events around one call of a task add. */
double tandem_events_ns(const tandem_constants *constants, const tandem_work *work);
/* What a timing of a task that takes ns shows: with the host's events, and a framework's choice of
 * convolutions. */
double tandem_timed_ns(const tandem_constants *constants, const tandem_work *work, int timed, double ns);
/* tandem_kernel_time_of by one way of a convolution. */
double tandem_kernel_time_by(tandem_kernel_time *time, const tandem_constants *constants,
                             const tandem_gpu_spec *spec, const tandem_reached_rates *rates,
                             const tandem_work *work, convolution_way way);

/* Begins with given constants and rates, as tandem_calibration_open (predictor.h) with the fitted ones. */
tandem_status tandem_calibration_open_with(tandem_calibration **calibration, const tandem_device *device,
                                           const tandem_constants *constants,
                                           const tandem_reached_rates *rates, tandem_error *error);

/* The share of its peak that a measured card reached, of a type or, TANDEM_N_COMPUTE_DTYPE, of its bandwidth;
 * 0 = not measured. */
double tandem_measured_share(const char *gpu, int type);
/* FLOPs that the busiest multiprocessor executes, times their number; *time gets the tiles. */
double tandem_tiled_flops(tandem_kernel_time *time, const kernel_gpu *gpu, const tiled_product *product);
/* Two terms that overlap: between their maximum and their sum. */
double tandem_overlap_ns(double a, double b, double exponent);
/* What the library would choose for a convolution: sets compute_ns, memory_ns, executed_flops, bytes,
 * algorithm and tiles. Returns their overlapped time. */
double tandem_convolution_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work,
                             convolution_way way);
/* The way that a timing table names; WAY_FASTEST where the name says none, or the form has none for it. */
convolution_way tandem_convolution_way(const tandem_work *work, const char *algorithm);

/* How large the tensors of a task are, from its signature: elements of the operator, of a product's or pool's
 * input, output and weight (of a matmul: its second input), and the number of parameters of an update. What
 * the signature does not say is 0. */
typedef struct tandem_task_sizes {
    double elements, input, output, weight, parameters;
} tandem_task_sizes;
tandem_task_sizes tandem_task_sizes_of(const char *signature);

/* --- Measured devices (predictor/latency.c) ------------------------------------------------------------- */

enum { TANDEM_N_TERM = 6, TANDEM_N_SHAPE = 8 };
/* What the time of a task is a sum of, and where it lies among others of its kind. */
typedef struct tandem_task_terms {
    /* of a product: 1, FLOPs in whole vectors, and bytes of both operands and of the result, those of a
     * convolution as windows. Of others: 1, bytes, the bytes past three levels of the cache, and rows. */
    double term[TANDEM_N_TERM];
    double flops, bytes;          /* of the work */
    double shape[TANDEM_N_SHAPE]; /* logarithms */
    int variant;                  /* equal numbers: the same kernel, as far as its text shows */
} tandem_task_terms;
/* Of a key whose work is known. `device`: its name, for the width of its vectors. */
void tandem_task_terms_of(tandem_task_terms *terms, const tandem_work *work, const tandem_cost_key *key,
                          const char *device);

/* A measured row, for those near it. residual: log(measured / by its form). */
typedef struct tandem_nearby {
    double shape[TANDEM_N_SHAPE], residual, weight;
} tandem_nearby;
typedef struct tandem_nearby_rule {
    double width, floor, reach, agreement; /* predictor/nearby.c; agreement 0: rows need not agree */
    int n_nearest;                         /* 0: of one width; at most 16 */
} tandem_nearby_rule;
/* The residual that is expected at a shape; 0 without rows. Cost: O(n). */
double tandem_nearby_residual(const tandem_nearby *rows, size_t n, const tandem_nearby_rule *rule,
                              const double at[TANDEM_N_SHAPE]);

/* A row that a task follows (predictor/kriging.c). */
enum { TANDEM_MAX_KRIGED = 24 };
typedef struct tandem_kriged {
    const float *shape;      /* [TANDEM_N_SHAPE] logarithms */
    double residual, weight; /* about its level; above 0: of a row that says little */
    double agreement;        /* how far it may be from what the others say */
} tandem_kriged;
typedef struct tandem_kriging_rule {
    double length, noise; /* noise: over the variance of residuals */
    int n_trust;          /* times that trust is found; 0: all rows have it */
    double shared;        /* variance of what all rows have in common, over that of residuals */
} tandem_kriging_rule;
/* tandem_kriging_residual: the residual that is expected at a shape; 0 without rows. n: at most
 * TANDEM_MAX_KRIGED. *unknown, may be NULL: the variance that rows leave, over that of residuals; 1 + shared
 * without rows. Cost: O(n³ · n_trust), some 10 us for each of n_trust. */
double tandem_kriging_residual(double *unknown, const tandem_kriged *rows, int n,
                               const tandem_kriging_rule *rule, const float at[TANDEM_N_SHAPE]);

#endif
