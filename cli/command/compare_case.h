/* compare_case.h: one plan, predicted by the replayer and measured by a run: what `compare` and `demo` are
 * made of. */
#ifndef TANDEM_CLI_COMPARE_CASE_H
#define TANDEM_CLI_COMPARE_CASE_H

#include "cli/cli.h"

enum { COMPARE_MIN_STEPS = 3 }; /* fewer are all warm-up */

typedef struct compare_class {
    char device[TANDEM_DEVICE_NAME];
    int n_rank;
    uint64_t predicted_peak_bytes, allocated_peak_bytes; /* of a rank; allocated: the most of the class */
    /* allocated beside these, where the run was evaluated and that takes more than its steps */
    uint64_t evaluation_bytes;
    /* what its ranks had more in memory than before, by the system; the most; −1 = not known */
    int64_t resident_peak_bytes;
    /* a step, without waits and without other processes: by compare_case_resimulate; of the run, the
     * mean, −1 = not known */
    int64_t resimulated_busy_ns, measured_busy_ns;
    /* a step, standing still for buckets; measured: class's mean */
    int64_t predicted_wait_ns, measured_wait_ns;
} compare_class;

/* One task; times of a rank, 0 = the plan has it not, or the run. */
typedef struct compare_task {
    int op;                                 /* −1 = of no operator */
    const char *kind, *stream;              /* static */
    int64_t measured_ns, measured_start_ns; /* of rank 0, from the begin of the step */
    int64_t class_predicted_ns[TANDEM_MAX_CLASS],
        class_measured_ns[TANDEM_MAX_CLASS]; /* measured: mean of the ranks' medians */
} compare_task;

typedef struct compare_case {
    char plan[48];
    int64_t predicted_ns; /* filled by compare_case_predict */
    /* by compare_case_measure: of the period of a step */
    int64_t steps, measured_ns, measured_p10_ns, measured_p90_ns;
    double error; /* (predicted − measured) / measured */
    /* replayed with the times that tasks took in this run; 0 = they are not known: without per_operator */
    int64_t resimulated_ns;
    /* the step, less what other processes had of a rank's core: of the rank with the least; −1 = not known */
    int64_t undisturbed_ns;
    /* predicted by costs measured after the run, by compare_case_remeasure; 0 = they were not */
    int64_t remeasured_ns;
    int n_class;
    compare_class classes[TANDEM_MAX_CLASS];
    double sensitivity; /* of the plan; NaN where there are no statistics */
    double samples_per_s, first_loss, final_loss, accuracy; /* NaN = not known */
    int n_task;                                             /* with options->per_operator, else 0 */
    compare_task *task;                                     /* [n_task] by task id */
} compare_case;

/* compare_case_predict: replays the subject's plan with costs from options->db. The case is new (whatever
 * stood there) and released with compare_case_free; unchanged on error. Errors of the store and the
 * replayer. */
tandem_status compare_case_predict(compare_case *out, const cli_options *options,
                                   const cli_workload *workload, tandem_error *error);

/* compare_case_measure: trains the plan in the file `plan_path` for options->steps steps (≥
 * COMPARE_MIN_STEPS), on options->data (NULL = noise) with options->seed, options->evaluate, and fills
 * in what was measured. Returns the exit code; where it is not 0, what went wrong is on stderr. */
int compare_case_measure(compare_case *out, const cli_options *options, const char *plan_path);

/* compare_case_resimulate: replays the subject's plan once more, each task as long as the run's median, and
 * fills in resimulated_ns: its distance from measured_ns is the simulation's own, without the costs'. A case
 * without tasks stays as it is. Errors of the replayer. */
tandem_status compare_case_resimulate(compare_case *out, const cli_options *options,
                                      const cli_workload *workload, tandem_error *error);

/* compare_case_remeasure: measures what the plan in `plan_path` needs once more, into a store of its own, and
 * fills in remeasured_ns: its distance from predicted_ns is how far the machine has moved, its distance from
 * measured_ns what is the prediction's own. Returns the exit code; where it is not 0, what went wrong is on
 * stderr. */
int compare_case_remeasure(compare_case *out, const cli_options *options, const cli_workload *workload,
                           const char *plan_path);

/* compare_case_store: files plan and run in the store, and its tasks where there are any. */
tandem_status compare_case_store(const compare_case *out, const cli_options *options,
                                 const cli_workload *workload, tandem_error *error);

/* How far the machine has moved since it was profiled, as a part of the predicted step; NaN where it was not
 * asked for. */
double compare_case_drift(const compare_case *out);
/* What the simulation itself is off by, as compare_case_resimulate has it: (own − measured) / measured; NaN
 * where it is not known. */
double compare_case_simulation_error(const compare_case *out);
/* What ranks of the class had in memory beside the plan and what evaluations take; of a class whose resident
 * memory is known. May be negative. */
static inline int64_t compare_unplanned_bytes(const compare_class *class)
{
    return class->resident_peak_bytes - (int64_t)(class->predicted_peak_bytes + class->evaluation_bytes);
}
/* The case as a member of "cases". */
json_t *compare_case_json(const compare_case *out);
void compare_case_free(compare_case *out);

/* compare_plan_write: writes the subject's plan, its memory limits included, to a new file of the working
 * directory, and its name into path[COMPARE_PLAN_PATH]: a scratch file (cli.h), which the caller removes.
 * TANDEM_IO. */
enum { COMPARE_PLAN_PATH = 32 };
tandem_status compare_plan_write(char path[COMPARE_PLAN_PATH], const cli_workload *workload,
                                 tandem_error *error);

#endif
