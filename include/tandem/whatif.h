/* whatif.h: what a recorded training job would take without its stragglers, and who or what they are.
 *
 * A job is the operators of every worker in some steps. From their order and from what a pipeline-parallel
 * step is follows what waits for what (engine.h); so the step can be run again with other durations:
 *
 *     recorded     as the clocks of the workers say
 *     step         the recorded durations again, without the pauses before operators that nothing accounts
 *                  for
 *     ideal        every operator takes what its type usually takes: compute the mean, communication the
 *                  median
 *     slowdown     step / ideal
 *     with X       the ideal, but X as recorded: what X alone costs
 *     without X    the step, but X as in the ideal: what mending X alone would give
 *
 * where X is an operator type, a stage, a data-parallel rank, a worker. What communication takes is counted
 * from the moment when the last of its members is there: waiting is no property of a message.
 *
 * Source: Lin et al., "Understanding stragglers in large model training using what-if analysis", OSDI 2025:
 * ideal, S, S_t, S_w, M_W; there a worker's slowdown is estimated from its stage's and its rank's, here it is
 * simulated. */
#ifndef TANDEM_WHATIF_H
#define TANDEM_WHATIF_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* --- What a file is ------------------------------------------------------------------------------------- */

typedef enum tandem_trace_format {
    TANDEM_TRACE_FORMAT_PIPELINE_CSV, /* CSV: tandem_pipeline_trace_read */
    TANDEM_TRACE_FORMAT_TORCH,        /* JSON of the PyTorch profiler: torch_trace.h */
    TANDEM_TRACE_FORMAT_STEP,         /* JSON of tandem's own: tandem_whatif_trace */
    TANDEM_TRACE_FORMAT_CHAKRA        /* execution trace of MLCommons Chakra: tandem_whatif_chakra */
} tandem_trace_format;

/* tandem_trace_format_detect: a name that ends in .et or .et.gz is Chakra's; else by its beginning: JSON
 * begins with a bracket, and tandem's events say which task they are; what holds control characters is
 * Chakra's; the rest is CSV. TANDEM_MALFORMED, TANDEM_IO, TANDEM_NO_MEMORY. Cost: up to the first slice. */
tandem_status tandem_trace_format_detect(tandem_trace_format *format, const char *path, tandem_error *error);

/* --- A recorded job ------------------------------------------------------------------------------------- */

/* Operator types of a pipeline-parallel step, by the names they have in a trace; `shown` is the row of a
 * report they count for. Columns: name, trace, shown, whether it is communication. */
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
    int32_t step; /* place in tandem_pipeline_trace.step */
    int32_t dp_rank, sequence;
    int16_t stage, tp_rank;
    int16_t chunk; /* of the model, where a stage holds several: 0, 1, … */
    uint8_t kind;
} tandem_pipeline_op;

typedef struct tandem_pipeline_trace {
    int n_op, n_step, n_dp, n_stage, n_tp, n_chunk;
    /* [n_op] by step, data-parallel rank, stage, tensor-parallel rank, start, sequence, kind */
    tandem_pipeline_op *op;
    int64_t *step;      /* [n_step] numbers of the steps, ascending */
    int64_t n_negative; /* operators whose duration was below 0, and is 0 now */
} tandem_pipeline_trace;

/* tandem_pipeline_trace_read: a trace in CSV, plain or compressed with gzip, read as a stream. The first line
 * names the columns, in any order: dp_rank, stage, step, optype (TANDEM_PIPELINE_OP_KIND_TABLE), seq_id,
 * start_us, dur_us; model_chunk and tp_rank may be there (−1 or absent: 0); others are passed over. Times are
 * in µs, with decimals, rounded to ns. Durations down to −10 ms, which clocks give that are set while they
 * measure, are 0 and counted. TANDEM_MALFORMED with the line and what was expected; TANDEM_IO;
 * TANDEM_NO_MEMORY. *job unchanged on error. Cost: O(n log n), 40 bytes an operator.
 * tandem_pipeline_trace_parse: the same from memory; `source` is what errors call it. */
tandem_status tandem_pipeline_trace_read(tandem_pipeline_trace **pipeline, const char *path,
                                         tandem_error *error);
tandem_status tandem_pipeline_trace_parse(tandem_pipeline_trace **pipeline, const void *bytes, size_t n,
                                          const char *source, tandem_error *error);
void tandem_pipeline_trace_close(tandem_pipeline_trace *pipeline); /* NULL is fine */

/* --- What if -------------------------------------------------------------------------------------------- */

enum { TANDEM_WHATIF_NAME = 64 };

typedef struct tandem_whatif_part {
    char name[TANDEM_WHATIF_NAME];
    /* mean steps: the ideal with it as recorded; the step with it as in the ideal */
    int64_t with_ns, without_ns;
} tandem_whatif_part;

typedef struct tandem_whatif_parts {
    int n;
    tandem_whatif_part *part; /* by falling with_ns, then in the order of the trace */
} tandem_whatif_parts;

typedef struct tandem_whatif_step {
    int64_t number;
    int64_t recorded_ns; /* from the first start to the last end; 0 = not known */
    int64_t step_ns, ideal_ns;
} tandem_whatif_step;

/* The narrowest answer to "who is it, and what". */
typedef struct tandem_whatif_cause {
    /* the first of worker, stage, rank that gives half of what all give; "" = none does */
    char who[TANDEM_WHATIF_NAME];
    /* operator type that gives half of what `who` (or all) gives; "" = none does */
    char what[TANDEM_WHATIF_NAME];
    int64_t without_ns;      /* mean step without `who`; where that is "", the ideal */
    int64_t without_what_ns; /* mean step without `what` of `who`; where that is "", the same */
} tandem_whatif_cause;

/* Where the recorded step of a rank went: of tandem's own traces. They add up to the recorded step. */
typedef struct tandem_whatif_rank {
    char name[TANDEM_WHATIF_NAME]; /* "rank 0: cpu:avx2" */
    int64_t busy_ns;               /* computes */
    int64_t exposed_ns;            /* stands still while a bucket is on the wire */
    int64_t wait_ns;               /* stands still while others have not handed a bucket over */
    int64_t idle_ns;               /* stands still, and nothing accounts for it */
} tandem_whatif_rank;

/* An operator of the critical path: the next one begins when it ends. */
typedef struct tandem_whatif_path_op {
    /* worker, operator type, operator */
    char who[TANDEM_WHATIF_NAME], what[TANDEM_WHATIF_NAME], name[TANDEM_WHATIF_NAME];
    int64_t start_ns, end_ns; /* of a collective: from when its last part is there */
} tandem_whatif_path_op;

typedef struct tandem_whatif {
    int n_worker, n_step, n_rank;
    int64_t n_op;
    int64_t n_negative;       /* of these, durations that were below 0, down to −10 ms, and count as 0 */
    tandem_whatif_step *step; /* [n_step] */
    int64_t recorded_ns, step_ns, ideal_ns;                           /* means; recorded 0 = not known */
    tandem_whatif_parts by_operator, by_stage, by_dp_rank, by_worker; /* n = 0: the job has no such thing */
    tandem_whatif_cause cause;
    tandem_whatif_rank *rank; /* [n_rank]; of tandem's own JSON alone */
    int n_critical;
    /* [n_critical] what the step is as long as, in order of time; of Chakra alone */
    tandem_whatif_path_op *critical_path;
} tandem_whatif;

/* tandem_whatif_pipeline: analyse a job. What waits for what, for each worker and step:
 *   compute one after another in the order of its starts; each of the four kinds of messages in its own
 *   order, too; the gathers and scatters of parameters and gradients as well
 *   the i-th send behind the i-th compute of its direction; the i-th receive behind compute i−1 and before
 *   compute i the first backward message behind the last forward compute but one before the first backward
 *   compute a gather of parameters before the first forward compute of its chunk
 *   last compute, gc, layernorm, embedding, gradient scatter, clip, optimizer: one behind another
 * and together: the k-th send of a stage with the k-th receive of the next; gathers and scatters of one stage
 * over all data-parallel ranks; embedding over the first and the last stage; clip over all workers.
 * If trace_path is not NULL, step and ideal are written there as Chrome trace JSON ("-": standard output).
 * TANDEM_MALFORMED names step, worker and operator: messages that do not pair, a worker without operators,
 * times that are out of range, waiting in a circle. TANDEM_NO_MEMORY, TANDEM_IO. *whatif unchanged on error.
 * Cost: O(operators) a simulation; 2 · (types + stages + ranks + workers + 14) simulations. */
tandem_status tandem_whatif_pipeline(tandem_whatif **whatif, const tandem_pipeline_trace *pipeline,
                                     const char *trace_path, tandem_error *error);

/* tandem_whatif_trace: the same for a step of tandem's own (trace.h), simulated or measured; read as a
 * stream, plain or compressed. Tasks of a rank run one after another; a bucket is reduced when every rank has
 * run the task before its all-reduce, one bucket after the other, as long as its shortest all-reduce took;
 * its update follows. Ideal: every rank takes for each task what the rank takes that computes least; tasks
 * that this one lacks take nothing. Durations down to −10 ms are 0 and counted.
 * by_operator: kinds of tasks; by_worker: ranks. TANDEM_MALFORMED with the byte and what was expected: no
 * JSON, a task that a rank has twice, ranks that do not reduce the same buckets.
 * tandem_whatif_parse_trace: the same from memory. */
tandem_status tandem_whatif_trace(tandem_whatif **whatif, const char *path, const char *trace_path,
                                  tandem_error *error);
tandem_status tandem_whatif_parse_trace(tandem_whatif **whatif, const void *bytes, size_t n,
                                        const char *source, tandem_error *error);

/* tandem_whatif_chakra: the same for execution traces of MLCommons Chakra, schema 0.0.4
 * (profiles/format/chakra.proto), one file a rank, read as streams, plain or compressed. x.3.et is of rank 3;
 * where a name does not say, ranks go by their places.
 *
 * A node waits for its data_deps and ctrl_deps and for nothing else. It takes duration_micros, or its
 * attribute tandem_duration_ns. The k-th COMM_COLL_NODE of a comm_type and pg_name in each file is one
 * collective: of all ranks where it names no group, else of those that have any with that name. The k-th
 * COMM_SEND_NODE from a rank to another with one comm_tag and the k-th COMM_RECV_NODE are one message; alone
 * where no file is of the other rank. Each takes what its shortest part took: beyond that, parts waited.
 * Ideal: a node takes what the k-th node of its name takes on the rank that computes least of those that have
 * one; communication what it took. by_operator: attribute `kind`, or the types of nodes and collectives;
 * by_worker: ranks. recorded_ns: of the rank that took longest; 0 where no node has a start.
 *
 * TANDEM_MALFORMED with file, node and what was expected: no metadata first, a message that is damaged or
 * over 1 MiB, an id twice, a dependency on what is not there or in a circle, a time that is negative or over
 * 104 days, all durations 0, a collective or message without a part, all-reduces of different sizes, two
 * files of one rank. TANDEM_USAGE beyond 4096 files. Cost: O((nodes + dependencies) log nodes); memory: about
 * 100 bytes a node, 8 a dependency and the names that differ. tandem_whatif_parse_chakra: the same from
 * memory. */
tandem_status tandem_whatif_chakra(tandem_whatif **whatif, const char *const *path, int n,
                                   const char *trace_path, tandem_error *error);
tandem_status tandem_whatif_parse_chakra(tandem_whatif **whatif, const char *const *source,
                                         const void *const *bytes, const size_t *n_byte, int n,
                                         tandem_error *error);
void tandem_whatif_close(tandem_whatif *whatif); /* NULL is fine */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
