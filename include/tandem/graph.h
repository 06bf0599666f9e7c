/* graph.h: the training graph of a model: operators, tensors and parameters as flat arrays.
 *
 * An operator has one output tensor: tensor t is the output of operator t, and both are plain ints. Operators
 * are in topological order: inputs have smaller ids. Shapes are row-major; images are (batch, height,
 * width, channels). A graph belongs to a model and a local batch and never changes; the step program (step.h)
 * holds the precisions. */
#ifndef TANDEM_GRAPH_H
#define TANDEM_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/dtype.h"
#include "tandem/status.h"

TANDEM_BEGIN_DECLARATIONS

/* --- Dtypes (dtype.h) ----------------------------------------------------------------------------------- */
const char *tandem_dtype_name(tandem_dtype dtype); /* "f32", "bf16", "s8", "f16", "e4m3", … */
/* Of one number, without scales; of nvfp4, which has two in a byte, 1. */
uint64_t tandem_dtype_bytes(tandem_dtype dtype);
/* Bytes of n numbers one after the other, with the scales of their blocks: n·tandem_dtype_bytes, but of mxfp8
 * n + ⌈n/32⌉ and of nvfp4 ⌈n/2⌉ + ⌈n/16⌉. The scale of a whole tensor is not counted. */
uint64_t tandem_dtype_size(tandem_dtype dtype, uint64_t n);
/* Whether numbers share scales in blocks, which lie along what a product sums: a tensor that two products
 * read along two dimensions is rounded twice. */
int tandem_dtype_is_in_blocks(tandem_dtype dtype);

/* --- Precisions (precision.def) ------------------------------------------------------------------------- */
#pragma push_macro("ROW") /* an including program may have one of its own */
#undef ROW
typedef enum tandem_precision {
#define ROW(NAME, ...) TANDEM_PRECISION_##NAME,
#include "tandem/precision.def"
#undef ROW
    TANDEM_N_PRECISION
} tandem_precision;

typedef struct tandem_precision_row {
    const char *name;
    tandem_dtype forward, dgrad, wgrad, other_operand_dtype, accumulator, output, saved, product_dtype;
} tandem_precision_row;
const tandem_precision_row *tandem_precision_get(tandem_precision precision);
/* In which a product of `precision` multiplies operands of dtype `operand`: the same, or TANDEM_TF32. */
tandem_dtype tandem_precision_product_dtype(tandem_precision precision, tandem_dtype operand);
/* Whether its backward products read gradients in f16 on a device with this AMP dtype. Small gradients vanish
 * there, so that a plan with such a product needs a loss scale. */
int tandem_precision_has_f16_gradient(tandem_precision precision, tandem_dtype amp_dtype);
/* By name. TANDEM_UNKNOWN_NAME: names the nearest one. */
tandem_status tandem_precision_find(tandem_precision *precision, const char *name, tandem_error *error);

/* --- Operators (op.def) --------------------------------------------------------------------------------- */
typedef enum tandem_op_kind {
#define ROW(NAME, ...) TANDEM_OP_##NAME,
#include "tandem/op.def"
#undef ROW
    TANDEM_N_OP_KIND
} tandem_op_kind;
#pragma pop_macro("ROW")

typedef enum tandem_op_class {
    TANDEM_SOURCE,
    TANDEM_ADJUSTABLE,
    TANDEM_DEPENDENT,
    TANDEM_FIXED
} tandem_op_class;
typedef enum tandem_grad_kind {
    TANDEM_GRAD_ABSENT,
    TANDEM_GRAD_TASK,
    TANDEM_GRAD_IDENTITY,
    TANDEM_GRAD_FUSED
} tandem_grad_kind;
enum { TANDEM_SAVES_NOTHING = 0, TANDEM_SAVES_INPUT = 1, TANDEM_SAVES_OUTPUT = 2, TANDEM_SAVES_AUX = 4 };

typedef struct tandem_op_row {
    const char *name;
    tandem_op_class op_class;
    int n_input, n_parameter;
    unsigned precisions; /* bit p: the operator exists in precision p; 0: it is not adjustable */
    unsigned saves;      /* TANDEM_SAVES_… */
    tandem_grad_kind dgrad, wgrad;
    float range;
} tandem_op_row;
const tandem_op_row *tandem_op_row_get(tandem_op_kind kind);
/* The row on devices with narrow_rows (cluster.h), which may have another class; 0: tandem_op_row_get. */
const tandem_op_row *tandem_op_row_on(tandem_op_kind kind, int narrow_rows);

#pragma push_macro("ROW")
#undef ROW
/* The functions of each element (function.def). */
typedef enum tandem_function {
#define ROW(NAME, ...) TANDEM_FUNCTION_##NAME,
#include "tandem/function.def"
#undef ROW
    TANDEM_N_FUNCTION
} tandem_function;
#pragma pop_macro("ROW")
const char *tandem_function_name(tandem_function function);
/* Of one element, in double. Cost: O(1). */
double tandem_function_value(tandem_function function, double x, double alpha, double beta);
double tandem_function_slope(tandem_function function, double x, double alpha, double beta);
double tandem_function_flops(tandem_function function);

enum { TANDEM_MAX_DIM = 4, TANDEM_MAX_INPUT = 2, TANDEM_MAX_PARAMETER = 2, TANDEM_MAX_SIGNATURE = 160 };

typedef struct tandem_shape {
    int n_dim; /* 0 … TANDEM_MAX_DIM */
    int64_t dim[TANDEM_MAX_DIM];
} tandem_shape;
int64_t tandem_shape_elements(const tandem_shape *shape); /* 1 for n_dim 0 */
int64_t tandem_shape_last(const tandem_shape *shape);     /* the last dimension; rows = elements / last */

typedef struct tandem_op {
    tandem_op_kind kind;
    char name[48];                       /* "block2.attention.q": unique in the graph */
    int input[TANDEM_MAX_INPUT];         /* tensor ids; −1 beyond n_input */
    int parameter[TANDEM_MAX_PARAMETER]; /* parameter ids; −1 beyond */
    tandem_shape shape;                  /* of the output */
    tandem_dtype dtype;                  /* TANDEM_S32 for tokens and labels, else TANDEM_F32 */
    uint64_t aux_bytes; /* auxiliary results, saved for backward (statistics, argmax, probabilities) */
    double flops;       /* of the forward pass; a multiply and an add count as two */
    int needs_gradient; /* whether its output depends on a parameter */
    /* attributes; zero where the kind has none */
    int kernel_h, kernel_w, stride, pad; /* conv2d and pools */
    int transpose_b; /* matmul: the second operand is (…, n, k); linear: its weight is an embedding's table */
    int axis[TANDEM_MAX_DIM]; /* transpose: output dimension d is input dimension axis[d] */
    tandem_function function; /* map */
    float alpha, beta;        /* map: of its function */
    int groups, dilation;     /* grouped_conv2d: of channels; distance of the window's entries */
    int pad_end;              /* conv2d's like and maxpool: more padding below and on the right */
    int causal;               /* softmax: entry (i, j) with j > i is masked */
    float scale;              /* softmax: factor of the inputs; 1 where not set */
    float epsilon;            /* norms */
    float momentum;           /* batchnorm: the part of its running statistics that a step replaces */
    float rate;               /* dropout: the fraction of dropped elements */
    int64_t start;            /* slice: the first row of dimension 1 */
    /* mul_constant: the element at index i of each dimension d is multiplied by factor[Σ i·factor_step[d]].
     * The graph owns the factors. */
    const float *factor;
    int64_t factor_step[TANDEM_MAX_DIM];
    char signature[TANDEM_MAX_SIGNATURE]; /* canonical: equal signatures cost the same on a device */
} tandem_op;

struct tandem_graph;
int tandem_op_is_adjustable(const tandem_op *op); /* whether it carries a precision */
int tandem_op_is_batchnorm(const tandem_op *op);  /* alone, or with its relu or its sum and relu */
/* Whether a conv2d's window is 1x1 with stride 1: it is a product of its images as they lie. */
int tandem_conv2d_is_pointwise(const tandem_op *op);

typedef enum tandem_init { TANDEM_INIT_ZERO, TANDEM_INIT_ONE, TANDEM_INIT_NORMAL } tandem_init;

typedef struct tandem_parameter {
    int op; /* its operator; of a tied parameter: the embedding */
    /* Of an embedding's table: the linear that also reads it, transposed; else −1. In the backward pass the
     * linear writes the gradient and the embedding then adds to it. */
    int tied;
    /* linear (k, n); conv2d (kernel_h·kernel_w·c_in, c_out); embedding (vocabulary, width); bias: the
     * trailing dimensions of its input, or more rows than it uses; concat_token (width); norms (c): first
     * scale, then shift */
    tandem_shape shape;
    int64_t elements;
    tandem_init init;
    float deviation; /* standard deviation, with TANDEM_INIT_NORMAL */
    /* PyTorch hands on this gradient after that of parameter `after`, whose operator comes earlier: its
     * forward pass read this one before. In buckets as DDP makes them; −1: with its operator's. */
    int after;
    int has_weight_decay; /* matrices have; biases and norms do not */
} tandem_parameter;
/* A parameter's name in files of weights: the operator's name, then ".weight" (linear, conv2d, embedding,
 * scale of a norm) or ".bias" (shift of a norm). "head.weight", "position". Returns text. */
enum { TANDEM_PARAMETER_NAME = 64 };
char *tandem_parameter_name(char text[TANDEM_PARAMETER_NAME], const struct tandem_graph *graph,
                            int parameter);
/* Whether its name matches one of the fnmatch(3) patterns in a list with commas: "*.weight,position". */
int tandem_parameter_matches(const struct tandem_graph *graph, int parameter, const char *patterns);
/* Elements of its parameter that a bias adds repeatedly: those of as many trailing output dimensions. */
int64_t tandem_bias_period(const tandem_op *bias, const tandem_parameter *own);

typedef enum tandem_optimizer { TANDEM_SGD, TANDEM_ADAMW } tandem_optimizer;
typedef struct tandem_optimizer_options {
    tandem_optimizer kind;
    float rate, momentum, beta1, beta2, epsilon, decay;
} tandem_optimizer_options;
int tandem_optimizer_n_state(tandem_optimizer kind); /* f32 state arrays per parameter: 1 or 2 */
const char *tandem_optimizer_name(tandem_optimizer kind);

/* Initial weights from where a model came from; NULL functions: none. What it does not have stays as it is.
 * */
typedef struct tandem_weight_source {
    /* Into weight[parameter][element]. TANDEM_IO, TANDEM_MALFORMED,
     * TANDEM_NO_MEMORY. Cost: reads the file. */
    tandem_status (*read)(const struct tandem_weight_source *source, float *const *weight,
                          tandem_error *error);
    /* Running statistics of batchnorms: into [parameter] of a scale the mean, of a shift the variance. NULL
     * entries are left out. */
    tandem_status (*read_statistics)(const struct tandem_weight_source *source, float *const *statistics,
                                     tandem_error *error);
    void (*close)(struct tandem_weight_source *source);
} tandem_weight_source;

/* One sample of numbers, as the model has it: its dimensions after the batch. */
typedef enum tandem_sample_layout {
    TANDEM_SAMPLE_CHANNELS_LAST,  /* (height, width, channels), as the input operator has them */
    TANDEM_SAMPLE_CHANNELS_FIRST, /* (channels, height, width); the input operator has them last */
    TANDEM_SAMPLE_NUMBERS, /* any; the input operator has them as one row, the last dimension fastest */
    TANDEM_SAMPLE_SEVERAL  /* the same, of several inputs, one after the other: dim[0] of all */
} tandem_sample_layout;
enum { TANDEM_MAX_SAMPLE_DIM = 7 };
typedef struct tandem_sample {
    tandem_sample_layout layout;
    int n_dim;
    int64_t dim[TANDEM_MAX_SAMPLE_DIM];
} tandem_sample;

enum { TANDEM_MODEL_NAME = 5120 }; /* a path, and options after it */
typedef struct tandem_graph {
    /* canonical: the name and, in order, the options that differ from their defaults */
    char model[TANDEM_MODEL_NAME];
    int64_t batch; /* local */
    uint64_t hash; /* of all but the batch: equal for equal models */
    int n_op, n_parameter;
    tandem_op *op;               /* [n_op] */
    tandem_parameter *parameter; /* [n_parameter] */
    /* CSR: the consumers of tensor t are consumer[consumer_start[t] … consumer_start[t+1]−1], ascending; an
     * operator that reads it twice is listed twice */
    int *consumer_start, *consumer;
    int *view; /* [n_op] the tensor whose memory tensor t shares: itself, or the view of a reshape's input */
    int loss;  /* the cross_entropy operator: the last one */
    int input, label;        /* the two sources */
    tandem_sample sample;    /* of the input; of tokens: their number */
    int64_t n_class, length; /* classes of the loss; labels per sample (1, or the sequence length) */
    /* Tokens per sample that are hidden and predicted; the other labels are −1 and do not count. 0: labels
     * come with the data, and all count. */
    int64_t n_masked;
    int64_t vocabulary; /* tokens are 0 … vocabulary−1; 0 for images */
    tandem_optimizer_options optimizer;
    tandem_weight_source *source; /* of initial weights; NULL: a model of the zoo. The graph owns it */
    int n_constant;
    float **constant; /* [n_constant] factors of operators. The graph owns them */
    int is_recorded;  /* 1: another framework runs it (record.h), and no kernel here does */
    struct tandem_recorded_memory *memory; /* what that allocates; NULL: not known. The graph owns it */
} tandem_graph;

/* tandem_graph_open: a model at a local batch. `model` is NAME or NAME:option=value,… of the zoo (`tandem
 * list models` shows them), FILE.onnx or FILE.onnx:NAME=NUMBER,… (docs/onnx.md), or FILE.json, a module that
 * the Python package captured at this batch (docs/pytorch.md). TANDEM_UNKNOWN_NAME: names the nearest model
 * or option. TANDEM_USAGE: a value is out of range, or a module was captured at another batch.
 * TANDEM_WRONG_GRAPH,
 * TANDEM_NO_MEMORY; of a file also TANDEM_IO, TANDEM_MALFORMED, TANDEM_WRONG_FORMAT. *graph unchanged on
 * error. Cost: O(operators), and reading the file.
 * Example: tandem_graph_open(&graph, "vit_tiny:width=256,heads=4", 16, &error); */
tandem_status tandem_graph_open(tandem_graph **graph, const char *model, int64_t batch, tandem_error *error);
void tandem_graph_close(tandem_graph *graph); /* NULL is fine */

/* Nodes of an ONNX file that no operator represents. */
typedef struct tandem_unsupported {
    int n_node, n;  /* nodes that the model's output needs; lines */
    int n_unjudged; /* nodes that read, directly or not, what such a node computes, and need its shape */
    struct tandem_unsupported_node {
        char node[256], why[256]; /* "node 'NAME' (TYPE, domain D, opset N)"; the reason */
    } * line;
} tandem_unsupported;
/* tandem_graph_list_unsupported: all of them at once; none for a model of the zoo. The caller closes *list.
 * The errors of tandem_graph_open: *list unchanged. */
tandem_status tandem_graph_list_unsupported(tandem_unsupported *list, const char *model, int64_t batch,
                                            tandem_error *error);
void tandem_unsupported_close(tandem_unsupported *list);

int64_t tandem_graph_n_weight(const tandem_graph *graph);     /* elements of all parameters */
int64_t tandem_graph_n_prediction(const tandem_graph *graph); /* labels per sample that count */
double tandem_graph_flops(const tandem_graph *graph); /* of a training step, with both backward products */
/* An operator by name. TANDEM_UNKNOWN_NAME: names the nearest one. */
tandem_status tandem_graph_find(int *op, const tandem_graph *graph, const char *name, tandem_error *error);

/* tandem_graph_init: initial weights into weight[parameter][element], from Philox (purpose INIT): the same on
 * every rank, device and batch. Those that the graph's source has are the file's. TANDEM_OK without a source;
 * else its errors. */
tandem_status tandem_graph_init(const tandem_graph *graph, uint64_t seed, float *const *weight,
                                tandem_error *error);

/* --- The zoo, for `tandem list models` ------------------------------------------------------------------ */
typedef struct tandem_model_option {
    const char *name;
    /* "image", written HxWxC, is H << 32 | W << 16 | C, and each of the three has its range. "head" is a
     * name, numbered from 0. */
    int64_t default_value, min_value, max_value;
    const char *meaning;
} tandem_model_option;
/* An option's value as a model's name has it: "256", "28x28x1", "mlm". Returns text. */
enum { TANDEM_MODEL_VALUE_TEXT = 48 };
char *tandem_model_value_print(char text[TANDEM_MODEL_VALUE_TEXT], const tandem_model_option *option,
                               int64_t value);
typedef struct tandem_model {
    const char *name, *summary, *data; /* data: "images" or "text" */
    const tandem_model_option *option; /* ends with a NULL name */
} tandem_model;
int tandem_model_count(void);
const tandem_model *tandem_model_get(int index);

TANDEM_END_DECLARATIONS
#endif
