/* store.h: the profile store: all measurements, in one SQLite file.
 *
 * WAL journal, foreign keys, integer nanoseconds, versions by user_version. Several processes may write at
 * once; a killed writer leaves a readable store. Schema: profiles/store/schema.sql. Every row has its host,
 * library versions, time and thread count. Only one thread may use a handle at a time. */
#ifndef TANDEM_STORE_H
#define TANDEM_STORE_H

#include "tandem/advanced/estimate.h"
#include "tandem/plan.h"
#include "tandem/cluster.h"
#include "tandem/advanced/step.h"

TANDEM_BEGIN_DECLARATIONS

typedef struct tandem_store tandem_store;
typedef enum tandem_store_mode { TANDEM_STORE_READ, TANDEM_STORE_WRITE } tandem_store_mode;

/* tandem_store_open: WRITE creates a missing file. READ refuses one: TANDEM_MISSING, which names `tandem
 * profile`. TANDEM_WRONG_FORMAT: another program's database, or another version of the schema, with both
 * versions and the command that makes a new store. TANDEM_MALFORMED: damaged, or an attack. TANDEM_IO. A
 * refused file is unchanged, and READ changes none. A store has at most 1 GiB, and a schema that is tandem's
 * own, text for text: TANDEM_WRONG_FORMAT names what differs. Cost: 1 ms, and the reading of the file. */
tandem_status tandem_store_open(tandem_store **store, const char *path, tandem_store_mode mode,
                                tandem_error *error);
void tandem_store_close(tandem_store *store); /* NULL is fine */

/* Libraries ("oneDNN 2.6.3, Gloo 0.5.0") and threads of the measurements stored from now on. Until it is
 * called: "" and 0, unknown. TANDEM_NO_MEMORY. */
tandem_status tandem_store_set_environment(tandem_store *store, const char *libraries, int n_thread,
                                           tandem_error *error);

/* Groups writes: all or none. Transactions do not nest. Waits up to 30 s for other writers. */
tandem_status tandem_store_begin(tandem_store *store, tandem_error *error);
tandem_status tandem_store_commit(tandem_store *store, tandem_error *error);
void tandem_store_rollback(tandem_store *store);

/* --- Costs ----------------------------------------------------------------------------------------------
 * */
/* Repetitions of one measurement. Those over three times the median are interruptions by other programs:
 * they count in n_outlier only. Those during which others had the core were dropped before and count in
 * n_disturbed only. */
typedef struct tandem_cost {
    int64_t n, n_outlier, n_disturbed;
    double sum_ns, sum_squares_ns2;
    int64_t median_ns, p10_ns, p90_ns;
    /* an interval that holds the median of another profile in 95 of 100 cases; both 0 = not known */
    int64_t low_ns, high_ns;
    /* the speed sample beside the repetitions (base/speed_sample.h), which have been brought to that of
     * tandem_steadiness; 0 = none was taken */
    int64_t compute_speed_sample_ns, memory_speed_sample_ns;
    uint64_t workspace_bytes; /* memory the kernel needs beside its operands */
} tandem_cost;
/* Mean of the repetitions that count, rounded to ns; 0 without any. The replayer uses it. */
int64_t tandem_cost_mean_ns(const tandem_cost *cost);
/* From raw repetitions, n ≥ 1, which are sorted. Of the repetitions that count: the median of an even
 * number is the mean of the two in the middle, rounded down; percentiles are nearest ranks, the ⌈n/10⌉-th
 * and ⌈9n/10⌉-th; the interval lies between the repetitions that the sign test cannot reject as the median
 * at 5 % (n/2 ± 0.98 √n). Sets no n_disturbed and no speed sample. */
void tandem_cost_from_samples(tandem_cost *cost, int64_t *sample_ns, int64_t n, uint64_t workspace_bytes);

/* A key's canonical text in the cost table: "linear m=784 … | int8 | forward | s8>f32", "cast n=1024 |
 * f32>s8 | known range", "all-reduce n=4096 | f32". Cut to fit; TANDEM_COST_KEY_TEXT bytes are enough. */
enum { TANDEM_COST_KEY_TEXT = 256 };
void tandem_cost_key_print(char *text, size_t size, const tandem_cost_key *key);

/* tandem_store_put_cost: stores the cost of an operator or a cast (kinds OP and CAST), and replaces one
 * with the same device, co-runner and key. co_runner: the device that was busy on the same memory system;
 * "" = alone. */
tandem_status tandem_store_put_cost(tandem_store *store, const char *device, const char *co_runner,
                                    const tandem_cost_key *key, const tandem_cost *cost, tandem_error *error);

/* tandem_store_visit_costs: calls `visit` for the costs of a device with a co-runner, in no particular
 * order: those of the operators and cast sizes of `step`, found by index, or all if step is NULL. The key
 * and its texts are valid during the call. Rows whose number type or pass this version does not know are
 * skipped. A status other than TANDEM_OK ends the visit and is returned. Cost: O(operators of the step ·
 * log rows), or O(rows). */
typedef tandem_status tandem_cost_visitor(void *context, const tandem_cost_key *key, const tandem_cost *cost,
                                          tandem_error *error);
tandem_status tandem_store_visit_costs(tandem_store *store, const char *device, const char *co_runner,
                                       const tandem_step *step, tandem_cost_visitor *visit, void *context,
                                       tandem_error *error);

/* The same costs in a hash table in memory, for look-ups without SQL. */
typedef struct tandem_cost_table tandem_cost_table;
tandem_status tandem_store_load_costs(tandem_cost_table **table, tandem_store *store, const char *device,
                                      const char *co_runner, const tandem_step *step, tandem_error *error);
void tandem_cost_table_free(tandem_cost_table *table);
/* NULL if it was not measured. */
const tandem_cost *tandem_cost_table_find(const tandem_cost_table *table, const tandem_cost_key *key);
/* tandem_store_load_batches: the local batches at which a model with the same input as `graph` was measured
 * on the device with the co-runner, ascending, each once. The caller frees *batch; NULL and 0 if there is
 * none. */
tandem_status tandem_store_load_batches(int64_t **batch, int *n, tandem_store *store, const char *device,
                                        const char *co_runner, const tandem_graph *graph,
                                        tandem_error *error);
/* Of operators and casts, on all devices. */
tandem_status tandem_store_count_costs(int64_t *n, tandem_store *store, tandem_error *error);
/* How steady a machine was while the costs of a device beside a co-runner ("" = alone) were measured. NaN =
 * not known. */
typedef struct tandem_steadiness {
    /* the steady speed sample, to which the costs have been brought; 0 = none */
    int64_t compute_speed_sample_ns, memory_speed_sample_ns;
    double compute_spread, memory_spread; /* (p90 − p10) / median of the speed samples */
    double delay_share;                   /* of the time, others had the core, or a quota withheld it */
    double steal_share;                   /* of the CPUs' time, other virtual machines had it */
    double interval_share; /* half the interval of a plan's sum over its median; the widest plan's */
} tandem_steadiness;
/* Replaces that of the same host, device and co-runner. TANDEM_USAGE: numbers below 0. */
tandem_status tandem_store_put_steadiness(tandem_store *store, const char *device, const char *co_runner,
                                          const tandem_steadiness *steadiness, tandem_error *error);
/* The newest of the device and co-runner; of a store open for writing: of this
 * host. *steadiness without speed samples, all NaN, where there is none. */
tandem_status tandem_store_get_steadiness(tandem_steadiness *steadiness, tandem_store *store,
                                          const char *device, const char *co_runner, tandem_error *error);
/* Stores the device's current clocks. */
tandem_status tandem_store_put_clocks(tandem_store *store, const char *device, int compute_mhz,
                                      int memory_mhz, tandem_error *error);

/* --- Imported times: rows of timing tables that others published (timings.h) ------------------------------
 * */
typedef struct tandem_convolution {
    double images, channels_in, height, width, channels_out, kernel_h, kernel_w, pad_h, pad_w, stride_h,
        stride_w;
} tandem_convolution;

enum { TANDEM_TIMING_TEXT = 64 };
/* One row. Texts are cut to fit; numbers that are not stated are 0. */
typedef struct tandem_timing {
    int64_t line; /* in its file, from 1; 0 = from a store */
    char device[TANDEM_TIMING_TEXT], source[TANDEM_TIMING_TEXT], method[TANDEM_TIMING_TEXT],
        kind[TANDEM_TIMING_TEXT], precision[TANDEM_TIMING_TEXT], group[TANDEM_TIMING_TEXT];
    char algorithm[TANDEM_TIMING_TEXT]; /* of a convolution, as its source names it; no store keeps it */
    tandem_pass pass;
    double batch, m, k, n, rows, columns, repeats;
    tandem_convolution convolution;
    double time_ns;
    double flops, bytes; /* of its work; set by who files it */
} tandem_timing;

/* Called for each row, in order; an error ends the reading and is returned. */
typedef tandem_status tandem_timing_visitor(void *context, const tandem_timing *timing, tandem_error *error);

/* tandem_store_put_timings: files n rows of described devices, whose `device` is the name of
 * tandem_device_find. `group` and `repeats` are not kept. All or none; a caller's transaction may hold
 * several calls. TANDEM_USAGE: no device, or a time that is not above 0. Cost: about 2 us per row. */
tandem_status tandem_store_put_timings(tandem_store *store, const tandem_timing *timing, size_t n,
                                       tandem_error *error);
/* Visits the rows of a device: by source, method, operator, precision and pass in the order in which these
 * came, then in the order of filing. Rows with a pass that this version does not know are skipped. Cost:
 * O(rows of the device). */
tandem_status tandem_store_visit_timings(tandem_store *store, const char *device,
                                         tandem_timing_visitor *visit, void *context, tandem_error *error);

/* --- Choices: how a device does a piece of work that its libraries can do in several ways ---------------
 * */
/* Stores them, and replaces others for the same work. All or none. */
tandem_status tandem_store_put_algorithms(tandem_store *store, const tandem_algorithm *choice, int n,
                                          tandem_error *error);
/* *choice and its texts are one block that the caller frees; NULL and 0 if there is none. */
tandem_status tandem_store_load_algorithms(tandem_algorithm **choice, int *n, tandem_store *store,
                                           tandem_error *error);

/* --- Collectives: a curve of time over bytes, for one group of ranks (tandem_cluster_group_key) ---------
 * */
typedef struct tandem_collective_point {
    uint64_t bytes;
    tandem_cost cost;
} tandem_collective_point;
/* `loaded`: 1 = every rank also computed on the core that communicates. */
tandem_status tandem_store_put_collective(tandem_store *store, const char *group, const char *collective,
                                          int loaded, const tandem_collective_point *point,
                                          tandem_error *error);
/* Ascending in bytes. The caller frees *points; NULL and 0 if nothing was measured. */
tandem_status tandem_store_load_collective(tandem_collective_point **points, int *n, tandem_store *store,
                                           const char *group, const char *collective, int loaded,
                                           tandem_error *error);

/* --- Interference: a measured slowdown (1 = none) of `kind` on `device` in a group
 * -------------------------------- kind "compute_under_comm": compute, while an all-reduce of `bytes` runs
 * on the same core. */
tandem_status tandem_store_put_interference(tandem_store *store, const char *device, const char *group,
                                            const char *kind, uint64_t bytes, double factor, int64_t n,
                                            tandem_error *error);
/* The factor of the size nearest to `bytes`. TANDEM_MISSING if none was measured. */
tandem_status tandem_store_get_interference(double *factor, tandem_store *store, const char *device,
                                            const char *group, const char *kind, uint64_t bytes,
                                            tandem_error *error);

/* --- Statistics over real batches, from which sensitivities are computed (predictor.h) ------------------
 * */
/* Statistics of an adjustable operator's operands; for matmul the second input is the weight. Means over
 * `n_batch` batches. */
typedef struct tandem_statistics {
    int64_t n_batch, local_batch;
    /* of the product: x (rows, k), w (k, columns), y and g (rows, columns), over a whole batch */
    int64_t rows, k, columns;
    int64_t x_elements, w_elements; /* of the stored operands; for conv2d x_elements < rows·k */
    double x_amax, w_amax, g_amax;
    /* squared L2 norms: input, weight, output gradient, weight gradient */
    double x_square, w_square, g_square, wgrad_square;
    double dgrad_square; /* of the gradient of the input */
    double g2_w2;        /* Σ_ij g_ij² Σ_l w_lj² */
    double g2_x2;        /* Σ_ij g_ij² Σ_l x_il² */
    double g2_x2_c;      /* Σ_ij g_ij² Σ_l x_il² c_l,  c_l = Σ_i x_il² */
    double x2_g2_d;      /* Σ_i (Σ_l x_il²)·(Σ_j g_ij² d_j),  d_j = Σ_i g_ij² */
} tandem_statistics;
tandem_status tandem_store_put_statistics(tandem_store *store, const tandem_graph *graph, const char *data,
                                          int op, const tandem_statistics *statistics, tandem_error *error);
/* statistics[n_op]; n_batch = 0 for an operator without any. TANDEM_MISSING if the model has none. `data`
 * NULL = any. */
tandem_status tandem_store_load_statistics(tandem_statistics *statistics, tandem_store *store,
                                           const tandem_graph *graph, const char *data, tandem_error *error);

/* tandem_store_put_estimate: stores all replicates, and replaces those of the same model, data set, batch,
 * optimizer, scaling of casts and seed. TANDEM_USAGE: a number is not finite. */
tandem_status tandem_store_put_estimate(tandem_store *store, const tandem_graph *graph, const char *data,
                                        const tandem_estimate *estimate, tandem_error *error);
/* The newest of a model and data set (NULL: any). The caller closes it. TANDEM_MISSING: the model was not
 * estimated, or with another optimizer; names the command. *estimate unchanged on error. */
tandem_status tandem_store_load_estimate(tandem_estimate *estimate, tandem_store *store,
                                         const tandem_graph *graph, const char *data, tandem_error *error);

/* --- Plans and runs: a record of what was predicted and what came of it ---------------------------------
 * */
typedef struct tandem_run_record {
    const char *model, *cluster, *plan_name, *plan_json;
    uint64_t graph_hash;
    int64_t steps, predicted_ns, measured_ns; /* 0 = unknown */
    double sensitivity, final_loss, accuracy; /* NaN = unknown */
    int exit_code;
} tandem_run_record;
tandem_status tandem_store_put_run(tandem_store *store, const tandem_run_record *run, int64_t *run_id,
                                   tandem_error *error);

/* One row per task of a run: medians over its steps. */
typedef struct tandem_event_record {
    int rank, task, op; /* op −1 = none */
    const char *kind, *stream;
    int64_t start_ns, duration_ns;
} tandem_event_record;
tandem_status tandem_store_put_events(tandem_store *store, int64_t run_id, const tandem_event_record *event,
                                      int n, tandem_error *error);

/* --- Trials: trainings that show what a plan costs (trial.h) ---------------------------------------------
 * */

/* One training. hash: of all that decides its numbers. Losses in nats; NaN where not finite or not known. */
typedef struct tandem_branch_record {
    const char *model;
    uint64_t graph_hash, hash;
    int64_t n_step;
    double held_out, held_out_in_base;
} tandem_branch_record;
/* tandem_store_put_branch: with loss[n_step]; another of the same hash is replaced. */
tandem_status tandem_store_put_branch(tandem_store *store, const tandem_branch_record *branch,
                                      const double *loss, tandem_error *error);
/* tandem_store_load_branch: *loss is [branch->n_step], which the caller frees; NULL where the store has no
 * such branch, or one of another number of steps. Of *branch, hash and n_step are read, held_out and
 * held_out_in_base set. */
tandem_status tandem_store_load_branch(tandem_branch_record *branch, double **loss, tandem_store *store,
                                       tandem_error *error);

enum { TANDEM_STORE_TRIED_PLANS = 32, TANDEM_STORE_MAX_TRIED_BYTES = 1 << 20 };
/* What a trial found. extra: as a share; NaN = not known; may be infinite. */
typedef struct tandem_trial_record {
    uint64_t plan_hash; /* tandem_trial_plan_hash */
    uint64_t training;  /* the hash of the plan's first branch */
    /* tandem_plan_text, of at most TANDEM_STORE_MAX_TRIED_BYTES; borrowed by tandem_store_put_trial. Loaded:
     * of the first TANDEM_STORE_TRIED_PLANS, else NULL */
    char *plan;
    char data[128], base[16];
    int64_t steps_before, n_step;
    int is_emulated, n_pair, n_diverged;
    double extra, extra_low, extra_high;
} tandem_trial_record;
/* The ranks, batches and precisions of a plan, as a hash. */
uint64_t tandem_trial_plan_hash(const tandem_plan *plan);
/* tandem_store_put_trial: replaces one of the same plan, base and training, unless that has more pairs.
 * TANDEM_USAGE: the plan's text is too long. */
tandem_status tandem_store_put_trial(tandem_store *store, const char *model, uint64_t graph_hash,
                                     const tandem_trial_record *trial, tandem_error *error);
/* tandem_store_load_trials: all of a model, those on the plan's devices before emulated ones, then those of
 * most pairs, then the latest. The caller closes them; NULL where there are none. TANDEM_MALFORMED: numbers
 * that no trial has. */
tandem_status tandem_store_load_trials(tandem_trial_record **trial, int *n, tandem_store *store,
                                       uint64_t graph_hash, tandem_error *error);
void tandem_store_close_trials(tandem_trial_record *trial, int n); /* NULL is fine */

TANDEM_END_DECLARATIONS
#endif
