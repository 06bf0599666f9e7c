/* record.h: training graphs that another framework recorded, so that its jobs can be planned
 * without our executor. The Python package `tandem` records PyTorch with it (docs/pytorch.md).
 *
 * A framework that runs one operator after another is described by the list of its calls. The graph of a
 * recording is that list: every call reads the output of the call before it. Linear layers, convolutions and
 * products of matrices are adjustable operators, as in the models of the zoo; every other call is an
 * operator `call`, or `call_trained` where it completes gradients. No kernel of ours runs these.
 */
#ifndef TANDEM_RECORD_H
#define TANDEM_RECORD_H

#include "tandem/graph.h"

TANDEM_BEGIN_DECLARATIONS

/* One call, in the order of the forward pass. Strings are borrowed while a graph is recorded. */
typedef struct tandem_recorded_call {
    tandem_op_kind kind; /* TANDEM_OP_LINEAR, _CONV2D, _MATMUL; TANDEM_OP_CALL: anything else */
    const char *name;    /* unique; 1 … 47 letters, digits and any of ._-/ */
    /* Of TANDEM_OP_CALL: what was called on which shapes, "relu(8x64x56x56)": 1 … TANDEM_RECORDED_TEXT
     * visible characters. Calls of one text share one cost. */
    const char *text;
    /* linear: (…, k) → (…, n). conv2d: (batch, height, width, channels) of both. matmul: (…, m, k), second
     * (…, k, n), or (…, n, k) with transpose_b; 3 or 4 dimensions. TANDEM_OP_CALL: `shape` alone counts. */
    tandem_shape input, second, shape;
    int kernel, stride, pad; /* conv2d: square windows; pad < kernel */
    int transpose_b;         /* matmul */
    /* TANDEM_OP_CALL: elements of the parameters whose gradients are complete when the call's backward pass
     * is through; 0 = none. linear and conv2d have their weight. */
    int64_t parameter_elements;
} tandem_recorded_call;
enum { TANDEM_RECORDED_TEXT = 120, TANDEM_MAX_RECORDED_CALL = 16000 };

/* What a framework allocates in a step, as a list of blocks of memory. An event is an allocation or a
 * release, in their order; a read at event e comes before it. */
typedef struct tandem_recorded_block {
    int64_t bytes;
    int born, freed; /* 0 ≤ born < freed ≤ n_event; n_event: it outlives the step */
    int rest;        /* the last event at which anything but its readers reads it; −1: none */
    int is_gradient; /* 1: the gradient of a parameter, which stays until the update */
    int first_reader, n_reader;
} tandem_recorded_block;
/* A product whose backward pass reads a block, up to this event: as its first or its second operand. In low
 * precision it reads narrow copies of its own instead, but for a second operand of which it keeps none. */
typedef enum tandem_recorded_role {
    TANDEM_READS_FIRST,
    TANDEM_READS_SECOND,
    TANDEM_KEEPS_SECOND /* it reads the block in that case alone; in fp32 it reads a copy, or nothing */
} tandem_recorded_role;
typedef struct tandem_recorded_reader {
    int product, event;
    tandem_recorded_role role;
} tandem_recorded_reader;
/* An adjustable call, and the events at which its passes begin and end. Backward −1: it has none of its own,
 * such as inside an activation checkpoint. */
typedef struct tandem_recorded_product {
    int call; /* in the recording; in a graph, the operator */
    int forward, forward_end, backward, backward_end;
    /* Of a convolution in low precision on a CPU: TANDEM_COPIES_INPUT, _GRADIENT or both, where these come in
     * another order than channels_last */
    int copies;
} tandem_recorded_product;
enum { TANDEM_COPIES_INPUT = 1, TANDEM_COPIES_GRADIENT = 2 };
typedef struct tandem_recorded_memory {
    int64_t weight_bytes;  /* of parameters and buffers */
    int64_t trained_bytes; /* of the parameters that have gradients; largest_bytes: of one of them */
    int64_t largest_bytes;
    int has_fast_bf16;   /* 1: bf16 products on the CPU of the recording are of bf16, 0: of f32 */
    int has_growth;      /* 1: a file of it has every other batch, too */
    int keeps_gradients; /* 1: gradients stay in memory from step to step, and no block has them */
    int n_event;
    int backward; /* the event at which the backward pass begins */
    int n_block, n_reader, n_product;
    const tandem_recorded_block *block;     /* [n_block] in the order of birth */
    const tandem_recorded_reader *reader;   /* [n_reader] */
    const tandem_recorded_product *product; /* [n_product] in the order of calls */
    /* Of the same step with images in the order channels_last, as converted convolutions hand them on to
     * operators that run in other algorithms then. It has none itself. NULL: no such operator. */
    const struct tandem_recorded_memory *channels_last;
} tandem_recorded_memory;
enum { TANDEM_MAX_RECORDED_BLOCK = 1000000 };

typedef struct tandem_recorded_graph {
    const char *model; /* 1 … 127 characters */
    int64_t batch;     /* local */
    int n_call;
    const tandem_recorded_call *call; /* [n_call] */
    int64_t n_prediction; /* labels per sample that count in the loss: 1, or the sequence length */
    int64_t n_class;
    tandem_optimizer_options optimizer;
    const tandem_recorded_memory *memory; /* NULL: it is not known */
} tandem_recorded_graph;

/* tandem_graph_record: makes the graph of a recording. Before the calls comes the source "recorded.input",
 * after them "recorded.label" and the loss, "recorded.loss". Where the output of a call does not have the
 * shape that the next one reads, a reshape "recorded.orderN" is put between them: an edge without data,
 * which costs nothing. The hash depends neither on the batch, the optimizer nor the memory.
 * TANDEM_WRONG_GRAPH: names the call or the block. TANDEM_USAGE, TANDEM_NO_MEMORY. *graph unchanged on
 * error. Cost: O(calls + blocks). */
tandem_status tandem_graph_record(tandem_graph **graph, const tandem_recorded_graph *recording,
                                  tandem_error *error);

/* Frees what tandem_graph_record, or a reader of files, has copied into one piece each. NULL is fine. */
void tandem_recorded_memory_close(tandem_recorded_memory *memory);

/* The batch at which a module was captured, of a file that tandem.Graph.save wrote; 0: `model` names no such
 * file, or one that cannot be read. tandem_graph_open says why. Cost: reads the file. */
int64_t tandem_recorded_batch(const char *model);

TANDEM_END_DECLARATIONS
#endif
