/* provenance.h: where the times of a simulated step come from.
 *
 * A time that was not measured at the class's batch comes from measurements at other batches: from the line
 * between the two batches around it, else from the line through the nearest two. That line's fixed part is
 * at least 0, and it never falls with the batch. Otherwise the time comes from the predictor, where that was
 * asked for, or is missing. See docs/costs.md. */
#ifndef TANDEM_PROVENANCE_H
#define TANDEM_PROVENANCE_H

#include "tandem/cluster.h"

TANDEM_BEGIN_DECLARATIONS

typedef enum tandem_origin {
    TANDEM_ORIGIN_MEASURED,
    TANDEM_ORIGIN_INTERPOLATED, /* between two batches */
    TANDEM_ORIGIN_EXTRAPOLATED, /* from two batches on one side */
    TANDEM_ORIGIN_PREDICTED,    /* from other operators, or from a description; workspace counts as 0 */
    TANDEM_N_ORIGIN
} tandem_origin;
const char *tandem_origin_name(tandem_origin origin); /* "measured", … */

/* The compute tasks of a class in a plan, by the origin of their times. Where the time alone and the
 * contended time differ in origin, the later one in the enumeration counts. */
enum { TANDEM_INTERVAL_CARDS = 256 };
typedef struct tandem_provenance {
    int n_task[TANDEM_N_ORIGIN];
    int64_t ns[TANDEM_N_ORIGIN]; /* their times, contended where there is a co-runner */
    int64_t n_fitted; /* measured costs that the predictor is fitted to; 0 = it has the description alone */
    int64_t n_contradicting; /* of these, by more than 3 times the datasheet, or what others
                                measured; left out */
    /* Of predicted times: how far the costs that they rest on lie from their fits (tandem_latency_ns), mean
     * over time. NaN where some rest on a description, or none is predicted. */
    double spread;
    /* Half of the 80 % interval of the sum of the times that follow the form, over that sum: 0.2 is 20 %
     * either way. From chips that were left out of the fit. NaN where there are none. */
    double form_interval;
    /* What the interval rests on: rows of cards that were left out of the fit, which were off by that much on
     * average; of the groups of tasks that the class has, weighted by time. */
    int64_t interval_rows;
    double interval_error;
    char interval_cards[TANDEM_INTERVAL_CARDS]; /* each followed by a space; cut to fit */
    tandem_kernel_set kernels;                  /* whose kernels the predicted times are of */
    int without_update;
    /* Of times that were predicted on a described device: the share of them that follows what others measured
     * of it and ships with the program, and the rows of the kernels of this plan's tasks. 0 = none. */
    double others_share;
    int64_t others_rows;
    /* tasks of int8 on tensor cores of which no row is known, while rows of its dot products are */
    int n_unmeasured_kernel;
    /* Of products that were measured in fp32 and in the precision of the device's AMP dtype (cluster.h): the
     * latter time over the former, of sums. 0 = none were, or the dtype is f32. Above 1 int8's gradients,
     * which have that dtype, gain nothing by it. */
    double amp_ratio;
} tandem_provenance;

/* All-reduces come from a measured curve, beyond its last point from a line fitted to it; or from a formula
 * over the cluster's links. */
typedef struct tandem_allreduce_source {
    int n_point;                    /* of the curve; 0 = there is none */
    int n_extrapolated;             /* buckets beyond its last point */
    double latency_ns, bytes_per_s; /* of the line; bytes_per_s 0 = it is flat, or there is none */
    double spread;                  /* of the points around it: median relative residual / 0.6745 */
    int n_by_algorithm[TANDEM_N_COLLECTIVE_ALGORITHM]; /* buckets by formula */
} tandem_allreduce_source;

/* Of a step. */
typedef struct tandem_time_sources {
    int n_class;
    char device[TANDEM_MAX_CLASS][TANDEM_DEVICE_NAME]; /* names */
    tandem_provenance of[TANDEM_MAX_CLASS];
    tandem_allreduce_source allreduce;
    int is_net_within_nodes; /* 1: ranks of one node are joined by net=, for want of link= and node= */
} tandem_time_sources;
/* Whether all times follow from descriptions of devices alone: none was measured, nor fitted to one. */
int tandem_time_sources_are_described(const tandem_time_sources *sources);

TANDEM_END_DECLARATIONS
#endif
