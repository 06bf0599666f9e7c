/* compare_case.h: one plan, predicted by the replayer and measured by a run. `compare` and `demo` use it. */
#pragma once

#include "cli/plan_price.h"
#include "cli/command/compare_verdict.h"

enum { COMPARE_MIN_STEPS = 3 }; /* with fewer, all are warm-up */

typedef struct compare_class {
    char device[TANDEM_DEVICE_NAME];
    int n_rank;
    uint64_t predicted_peak_bytes, allocated_peak_bytes; /* per rank; allocated: the largest of the class */
    /* allocated in addition for an evaluation */
    uint64_t evaluation_bytes;
    /* increase of the system's resident memory; the largest of the class; −1 = unknown */
    int64_t resident_peak_bytes;
    /* per step, without waits and other processes: simulated by compare_case_resimulate, and the mean of the
     * run; −1 = unknown */
    int64_t resimulated_busy_ns, measured_busy_ns;
    /* per step, waiting for buckets; measured: mean of the class */
    int64_t predicted_wait_ns, measured_wait_ns;
} compare_class;

/* One task. Times are per rank; 0 = not in the plan, or not in the run. */
typedef struct compare_task {
    int op;                                 /* −1 = none */
    const char *kind, *stream;              /* static */
    int64_t measured_ns, measured_start_ns; /* of rank 0, from the start of the step */
    int64_t class_predicted_ns[TANDEM_MAX_CLASS],
        class_measured_ns[TANDEM_MAX_CLASS]; /* mean of the ranks' medians */
} compare_task;

typedef struct compare_case {
    char plan[48];
    int64_t predicted_ns; /* set by compare_case_predict */
    /* set by compare_case_measure: period of a step */
    int64_t steps, measured_ns, measured_p10_ns, measured_p90_ns;
    double error; /* (predicted − measured) / measured */
    /* replayed with the task times of this run; 0 = unknown */
    int64_t resimulated_ns;
    /* the step less the time of other processes on a rank's core, of the rank with the least; −1 = unknown */
    int64_t undisturbed_ns;
    /* predicted from costs measured after the run; 0 = not measured */
    int64_t remeasured_ns;
    int n_class;
    compare_class classes[TANDEM_MAX_CLASS];
    double sensitivity;                                     /* the allocator's sum; NaN without statistics */
    double samples_per_s, first_loss, final_loss, accuracy; /* NaN = unknown */
    int n_task;
    compare_task *task; /* [n_task] by task id */
    int n_rank;
    plan_price price;           /* worth: of the measured rate */
    run_steadiness *steadiness; /* [n_rank] what each rank saw of the machine */
    compare_steadiness steady;  /* set by compare_case_judge */
} compare_case;

/* An error that is none, where --limit gives no other. */
#define COMPARE_TOLERANCE 0.05

/* compare_case_predict: replays the workload's plan with costs from options->db. Overwrites *out; release it
 * with compare_case_free. Errors of the store and the replayer leave it unchanged. */
tandem_status compare_case_predict(compare_case *out, const cli_options *options,
                                   const tandem_workload *workload, tandem_error *error);

/* compare_case_measure: trains the plan in `plan_path` for options->steps steps (≥ COMPARE_MIN_STEPS) on
 * options->data (NULL = noise), with options->seed and options->evaluate, and sets the measured members.
 * Returns the exit code; if it is not 0, the error is on stderr. */
int compare_case_measure(compare_case *out, const cli_options *options, const char *plan_path);

/* compare_case_judge: sets out->steady: predicts each kept step of the run at the pulse that was beside it
 * and with what others took in it. Errors of the store and the replayer. Cost: a replay per kept step. */
tandem_status compare_case_judge(compare_case *out, const cli_options *options,
                                 const tandem_workload *workload, tandem_error *error);

/* compare_case_resimulate: replays the plan with the median task times of the run and sets resimulated_ns.
 * Its difference from measured_ns is the error of the simulation without that of the costs. Does nothing
 * without task times. Errors of the replayer. */
tandem_status compare_case_resimulate(compare_case *out, const cli_options *options,
                                      const tandem_workload *workload, tandem_error *error);

/* compare_case_remeasure: measures the costs of the plan in `plan_path` again, into a store of its own, and
 * sets remeasured_ns. Its difference from predicted_ns is the drift of the machine; that from measured_ns is
 * the remaining error. Returns the exit code; if it is not 0, the error is on stderr. */
int compare_case_remeasure(compare_case *out, const cli_options *options, const tandem_workload *workload,
                           const char *plan_path);

/* compare_case_store: writes plan, run and task times to the store. */
tandem_status compare_case_store(const compare_case *out, const cli_options *options,
                                 const tandem_workload *workload, tandem_error *error);

/* Drift of the machine since it was profiled, relative to the predicted step; NaN if not measured. */
double compare_case_drift(const compare_case *out);
/* Error of the simulation: (resimulated − measured) / measured; NaN if unknown. */
double compare_case_simulation_error(const compare_case *out);
/* Resident memory beyond the plan and evaluations; may be negative. resident_peak_bytes must be known. */
static inline int64_t compare_unplanned_bytes(const compare_class *class)
{
    return class->resident_peak_bytes - (int64_t)(class->predicted_peak_bytes + class->evaluation_bytes);
}
/* The case as an element of "cases". */
json_t *compare_case_json(const compare_case *out);
void compare_case_free(compare_case *out);

/* compare_plan_write: writes the workload's plan with its memory limits to a new scratch file (cli.h) and the
 * name to `path`. The caller removes it. TANDEM_IO. */
enum { COMPARE_PLAN_PATH = 32 };
tandem_status compare_plan_write(char path[COMPARE_PLAN_PATH], const tandem_workload *workload,
                                 tandem_error *error);
