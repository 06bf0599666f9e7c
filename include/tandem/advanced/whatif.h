/* whatif.h: how long a recorded training job would take without its stragglers, and what they are.
 *
 * A job is the operators of all workers in some steps. Their order and the structure of a pipeline-parallel
 * step give the dependencies (dag_simulator.h). The step can then be simulated with other durations:
 *
 *   recorded   by the workers' clocks
 *   step       with the recorded durations, without pauses that no dependency explains
 *   ideal      with the usual duration of each operator type: compute the mean, communication the median
 *   slowdown   step / ideal
 *   with X     the ideal, but X as recorded: the cost of X alone
 *   without X  the step, but X as in the ideal: the gain from fixing X alone
 *
 * X is an operator type, a stage, a data-parallel rank or a worker. Communication counts from the moment
 * when its last member is ready: waiting is not part of a message.
 *
 * Source: Lin et al., "Understanding stragglers in large model training using what-if analysis", OSDI 2025:
 * ideal, S, S_t, S_w, M_W. There a worker's slowdown is estimated from its stage and its rank; here it is
 * simulated. */
#ifndef TANDEM_WHATIF_H
#define TANDEM_WHATIF_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

TANDEM_BEGIN_DECLARATIONS

/* --- What a file is -------------------------------------------------------------------------------------
 * */

typedef enum tandem_trace_format {
    TANDEM_TRACE_FORMAT_PIPELINE_CSV, /* CSV: tandem_pipeline_trace_read */
    TANDEM_TRACE_FORMAT_TORCH,        /* JSON of the PyTorch profiler: torch_trace.h */
    TANDEM_TRACE_FORMAT_STEP,         /* JSON that tandem wrote: tandem_whatif_trace */
    TANDEM_TRACE_FORMAT_CHAKRA        /* MLCommons Chakra execution trace: tandem_whatif_chakra */
} tandem_trace_format;

/* tandem_trace_format_detect: names that end in .et or .et.gz are Chakra's, unless they are JSON.
 * Otherwise the first bytes decide: JSON begins with a bracket, and tandem's events name their task;
 * binary is Chakra's; the rest is CSV. TANDEM_MALFORMED, TANDEM_IO, TANDEM_NO_MEMORY. Cost: up to the
 * first slice. */
tandem_status tandem_trace_format_detect(tandem_trace_format *format, const char *path, tandem_error *error);

/* --- A recorded job -------------------------------------------------------------------------------------
 * */

/* Operator types of a pipeline-parallel step. Columns: name, name in a trace, row of a report,
 * communication. */
#define TANDEM_PIPELINE_OP_KIND_TABLE(ROW)                                                                   \
    ROW(FORWARD, "forward-compute", "forward-compute", 0)                                                    \
    ROW(BACKWARD, "backward-compute", "backward-compute", 0)                                                 \
    ROW(FORWARD_SEND, "forward-send", "forward-pp-comm", 1)                                                  \
    ROW(FORWARD_RECV, "forward-recv", "forward-pp-comm", 1)                                                  \
    ROW(BACKWARD_SEND, "backward-send", "backward-pp-comm", 1)                                               \
    ROW(BACKWARD_RECV, "backward-recv", "backward-pp-comm", 1)                                               \
    ROW(PARAMS_GATHER, "params-all-gather", "params-all-gather", 1)                                          \
    ROW(GC, "gc", "gc", 0)                                                                                   \
    ROW(LAYERNORM, "layernorm-grads-all-reduce", "layernorm-grads-all-reduce", 1)                            \
    ROW(EMBEDDING, "embedding-grads-all-reduce", "embedding-grads-all-reduce", 1)                            \
    ROW(GRADS_SCATTER, "grads-reduce-scatter", "grads-reduce-scatter", 1)                                    \
    ROW(CLIP, "optimizer-clip-main-grad", "optimizer-clip-main-grad", 1)                                     \
    ROW(OPTIMIZER, "optimizer", "optimizer", 0)

#pragma push_macro("ROW") /* an including program may have one of its own */
#undef ROW
typedef enum tandem_pipeline_op_kind {
#define ROW(name, trace, shown, comm) TANDEM_PIPELINE_##name,
    TANDEM_PIPELINE_OP_KIND_TABLE(ROW)
#undef ROW
        TANDEM_N_PIPELINE_OP_KIND
} tandem_pipeline_op_kind;
#pragma pop_macro("ROW")

typedef struct tandem_pipeline_op {
    int64_t start_ns; /* from an origin that all workers share within a step */
    int64_t duration_ns;
    int32_t step; /* index into tandem_pipeline_trace.step */
    int32_t dp_rank, sequence;
    int16_t stage, tp_rank;
    int16_t chunk; /* of the model, if a stage holds several: 0, 1, … */
    uint8_t kind;
} tandem_pipeline_op;

typedef struct tandem_pipeline_trace {
    int n_op, n_step, n_dp, n_stage, n_tp, n_chunk;
    /* [n_op] by step, data-parallel rank, stage, tensor-parallel rank, start, sequence, kind */
    tandem_pipeline_op *op;
    int64_t *step;      /* [n_step] numbers of the steps, ascending */
    int64_t n_negative; /* operators whose duration was below 0 and is now 0 */
} tandem_pipeline_trace;

/* tandem_pipeline_trace_read: reads a trace in CSV, plain or gzip, as a stream. The first line names the
 * columns, in any order: dp_rank, stage, step, optype (TANDEM_PIPELINE_OP_KIND_TABLE), seq_id, start_us,
 * dur_us; optional are model_chunk and tp_rank (−1 or absent: 0); others are skipped. Times are decimal µs,
 * rounded to ns. Durations from −10 ms to 0 become 0 and are counted: clocks that are set during a
 * measurement produce them. TANDEM_MALFORMED with the line and what was expected; TANDEM_IO;
 * TANDEM_NO_MEMORY. *pipeline unchanged on error. Cost: O(n log n), 40 bytes per operator.
 * tandem_pipeline_trace_parse: the same from memory; `source` is its name in errors. */
tandem_status tandem_pipeline_trace_read(tandem_pipeline_trace **pipeline, const char *path,
                                         tandem_error *error);
tandem_status tandem_pipeline_trace_parse(tandem_pipeline_trace **pipeline, const void *bytes, size_t n,
                                          const char *source, tandem_error *error);
void tandem_pipeline_trace_close(tandem_pipeline_trace *pipeline); /* NULL is fine */

/* --- What if --------------------------------------------------------------------------------------------
 * */

enum { TANDEM_WHATIF_NAME = 64 };

typedef struct tandem_whatif_part {
    char name[TANDEM_WHATIF_NAME];
    /* mean steps: the ideal with this part as recorded; the step with this part as in the ideal */
    int64_t with_ns, without_ns;
} tandem_whatif_part;

typedef struct tandem_whatif_parts {
    int n;
    tandem_whatif_part *part; /* by falling with_ns, then in the order of the trace */
} tandem_whatif_parts;

typedef struct tandem_whatif_step {
    int64_t number;
    int64_t recorded_ns; /* from the first start to the last end; 0 = unknown */
    int64_t step_ns, ideal_ns;
} tandem_whatif_step;

/* The narrowest part that explains half of the slowdown. */
typedef struct tandem_whatif_cause {
    /* the first of worker, stage, rank that explains half of it; "" = none */
    char who[TANDEM_WHATIF_NAME];
    /* operator type that explains half of `who` (or of all); "" = none */
    char what[TANDEM_WHATIF_NAME];
    int64_t without_ns;      /* mean step without `who`; if that is "", the ideal */
    int64_t without_what_ns; /* mean step without `what` of `who`; if that is "", without_ns */
} tandem_whatif_cause;

/* How a rank spent the recorded step, of tandem's own traces. The four times add up to the step. */
typedef struct tandem_whatif_rank {
    char name[TANDEM_WHATIF_NAME]; /* "rank 0: cpu:avx2" */
    int64_t busy_ns;               /* computing */
    int64_t exposed_ns;            /* idle while a bucket is being transferred */
    int64_t wait_ns;               /* idle while other ranks' parts of a bucket are not ready */
    int64_t idle_ns;               /* idle for no known reason */
} tandem_whatif_rank;

/* An operator on the critical path: the next one begins when it ends. */
typedef struct tandem_whatif_path_op {
    /* worker, operator type, operator */
    char who[TANDEM_WHATIF_NAME], what[TANDEM_WHATIF_NAME], name[TANDEM_WHATIF_NAME];
    int64_t start_ns, end_ns; /* of a collective: from when its last part is ready */
} tandem_whatif_path_op;

typedef struct tandem_whatif {
    int n_worker, n_step, n_rank;
    int64_t n_op;
    int64_t n_negative;                     /* durations from −10 ms to 0, which count as 0 */
    tandem_whatif_step *step;               /* [n_step] */
    int64_t recorded_ns, step_ns, ideal_ns; /* means; recorded 0 = unknown */
    tandem_whatif_parts by_operator, by_stage, by_dp_rank, by_worker; /* n = 0: the job has no such
                                                                       * dimension */
    tandem_whatif_cause cause;
    tandem_whatif_rank *rank; /* [n_rank] for tandem's own JSON only */
    int n_critical;
    /* [n_critical] in order of time; for Chakra only */
    tandem_whatif_path_op *critical_path;
    /* of Chakra: control dependencies that do not count, because a node is missing, or because they lie on a
     * cycle with data dependencies */
    int64_t n_missing_control, n_dropped_control;
} tandem_whatif;

/* tandem_whatif_pipeline: analyses a pipeline trace. Dependencies for each worker and step:
 *   - Compute runs in the order of its starts. So does each of the four message types, and so do gathers
 *   and
 *     scatters.
 *   - The i-th send follows the i-th compute of its direction. The i-th receive follows compute i−1 and
 *   precedes
 *     compute i.
 *   - The first backward message follows the last but one forward compute before the first backward
 *   compute.
 *   - A gather of parameters precedes the first forward compute of its chunk.
 *   - Last compute, gc, layernorm, embedding, gradient scatter, clip, optimizer run one after another.
 * Members of one group: the k-th send of a stage and the k-th receive of the next; gathers and scatters of
 * one stage over all data-parallel ranks; embedding over the first and the last stage; clip over all
 * workers.
 *
 * trace_path: step and ideal are written there as Chrome trace JSON; "-" = stdout, NULL = not written.
 * TANDEM_MALFORMED names step, worker and operator: messages without a partner, a worker without operators,
 * times out of range, a dependency cycle. TANDEM_NO_MEMORY, TANDEM_IO. *whatif unchanged on error. Cost:
 * O(operators) per simulation; 2 · (types + stages + ranks + workers + 14) simulations. */
tandem_status tandem_whatif_pipeline(tandem_whatif **whatif, const tandem_pipeline_trace *pipeline,
                                     const char *trace_path, tandem_error *error);

/* tandem_whatif_trace: analyses a step that tandem wrote (trace.h), simulated or measured, plain or gzip,
 * as a stream. Tasks of a rank run one after another. A bucket is reduced when every rank has run the task
 * before its all-reduce, one bucket after another, and takes its shortest recorded all-reduce; its update
 * follows. Ideal: each task takes as long as on the least busy rank; a task that this rank lacks takes 0.
 * Durations from −10 ms to 0 are 0 and counted. by_operator: kinds of tasks; by_worker: ranks.
 * TANDEM_MALFORMED with the byte and what was expected: no JSON, a task twice on one rank, ranks with
 * different buckets.
 * tandem_whatif_parse_trace: the same from memory. */
tandem_status tandem_whatif_trace(tandem_whatif **whatif, const char *path, const char *trace_path,
                                  tandem_error *error);
tandem_status tandem_whatif_parse_trace(tandem_whatif **whatif, const void *bytes, size_t n,
                                        const char *source, tandem_error *error);

/* tandem_whatif_chakra: analyses MLCommons Chakra execution traces, schema 0.0.4
 * (profiles/format/chakra.proto), one file per rank, plain or gzip, as streams. x.3.et is rank 3; unless
 * every name gives a rank, files are numbered in order.
 *
 * A node waits for its data_deps and ctrl_deps only. Control dependencies of converted traces are the
 * calls of a program: those on missing nodes, and those that contradict others on a cycle, are left out and
 * counted.
 * It takes tandem_duration_ns, or duration_micros. The k-th COMM_COLL_NODE of a comm_type and pg_name in
 * each file form one collective: of all ranks if there is no group name, otherwise of the ranks that have
 * the name. The k-th COMM_SEND_NODE from one rank to another with one comm_tag and the k-th COMM_RECV_NODE
 * form one message; a single end if no file has the other rank. A send is buffered: it does not wait for
 * its receive, which starts no earlier than it. Both take the time of their shortest part; the rest is
 * waiting. Ideal: a node takes as long as the k-th node of its name on the least busy rank that has one;
 * communication as recorded. by_operator: attribute `kind`, otherwise the type of node or collective;
 * by_worker: ranks. recorded_ns: of the rank that took longest; 0 if no node has a start.
 *
 * TANDEM_MALFORMED with file, node and what was expected: no metadata first, a damaged message or one over
 * 1 MiB, a repeated id, a missing or cyclic data dependency, a time below 0 or over 104 days, all
 * durations 0, a collective or message that lacks a part, all-reduces of different sizes, two files of one
 * rank. TANDEM_USAGE beyond 4096 files. Cost: O((nodes + dependencies) log nodes); about 100 bytes per
 * node, 8 per dependency, and each name once. tandem_whatif_parse_chakra: the same from memory. */
tandem_status tandem_whatif_chakra(tandem_whatif **whatif, const char *const *path, int n,
                                   const char *trace_path, tandem_error *error);
tandem_status tandem_whatif_parse_chakra(tandem_whatif **whatif, const char *const *source,
                                         const void *const *bytes, const size_t *n_byte, int n,
                                         tandem_error *error);
void tandem_whatif_close(tandem_whatif *whatif); /* NULL is fine */

TANDEM_END_DECLARATIONS
#endif
