/* onnx_types.h: what the stages of an import share. An import reads the file, orders its nodes, and lowers
 * one node after the other: each of its outputs becomes a value. What the loss does not need is left out.
 *
 * A value of the training graph is the result of an operator, seen through a view: the layout in memory stays
 * as it is while ONNX transposes and reshapes, until an operator needs another. */
#ifndef TANDEM_GRAPH_ONNX_TYPES_H
#define TANDEM_GRAPH_ONNX_TYPES_H

#include <stdbool.h>

#include "base/arena.h"
#include "graph/ir/op.h"
#include "graph/onnx/onnx.h"
#include "graph/onnx/onnx.pb-c.h"

enum { ONNX_MAX_DIM = 8, ONNX_MAX_ATOM = 16, ONNX_N_SAMPLE = 24, ONNX_MAX_NODE = 1 << 17 };
enum { ONNX_MAX_CONSTANT = 1 << 24 }; /* elements of a constant that is computed */

/* Numbers of ONNX's element types (onnx.proto of ONNX, TensorProto.DataType). */
enum {
    ONNX_FLOAT = 1,
    ONNX_UINT8 = 2,
    ONNX_INT8 = 3,
    ONNX_UINT16 = 4,
    ONNX_INT16 = 5,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_TEXT = 8,
    ONNX_BOOL = 9,
    ONNX_FLOAT16 = 10,
    ONNX_DOUBLE = 11,
    ONNX_UINT32 = 12,
    ONNX_UINT64 = 13,
    ONNX_BFLOAT16 = 16
};
static inline bool onnx_is_float_type(int64_t type)
{
    return type == ONNX_FLOAT || type == ONNX_FLOAT16 || type == ONNX_BFLOAT16 || type == ONNX_DOUBLE;
}

/* --- Views ---------------------------------------------------------------------------------------------- */

/* An array whose memory is a sequence of atoms, the first one outermost. Each dimension that ONNX sees is a
 * sequence of atoms, too, in the order in which ONNX counts. Atoms of size 1 are left out, but not the batch:
 * so what is built does not depend on it. */
typedef struct onnx_view {
    int n_dim, n_atom;
    int batch;                   /* the atom that counts samples; −1: none */
    int64_t size[ONNX_MAX_ATOM]; /* of each atom, in the order of memory */
    int order[ONNX_MAX_ATOM];    /* atoms in ONNX's order */
    int n_of[ONNX_MAX_DIM];      /* how many of them each dimension has */
} onnx_view;

int64_t onnx_view_dim(const onnx_view *view, int axis);
int64_t onnx_view_elements(const onnx_view *view);
/* The place in `order` where the dimension begins. */
int onnx_view_start(const onnx_view *view, int axis);
/* A view in ONNX's own order. is_batch: dimension 0 is an atom of its own, also where it is 1. */
onnx_view onnx_view_of(int n_dim, const int64_t *dim, bool is_batch);
/* Whether all atoms lie in memory as ONNX counts them. */
bool onnx_view_is_plain(const onnx_view *view);
void onnx_view_transpose(onnx_view *view, const int *axis);
/* Dimensions of as many elements. False: an atom cannot be cut so; the view is unchanged. */
bool onnx_view_reshape(onnx_view *view, int n_dim, const int64_t *dim);
/* Cuts atoms of both, so that dimension x of a and y of b have atoms of equal sizes. False: impossible. */
bool onnx_view_match(onnx_view *a, int x, onnx_view *b, int y);
/* Inserts or removes a dimension of size 1. */
bool onnx_view_insert(onnx_view *view, int axis);
void onnx_view_remove(onnx_view *view, int axis);

/* --- Values --------------------------------------------------------------------------------------------- */

typedef enum onnx_kind {
    ONNX_ABSENT,   /* an optional input that is not there, or nothing yet */
    ONNX_CONSTANT, /* numbers that are known */
    ONNX_WEIGHT,   /* an initial weight: a tensor of the file, seen through a view */
    ONNX_INDEX,    /* integers that a file without weights does not have */
    ONNX_LOOKUP,   /* rows of a weight, in an order that the file fixes: a table of relative positions; where
                    * their numbers are known, `constant` has them as they were looked up */
    ONNX_TENSOR,   /* computed: a function of each element of an operator's result */
    ONNX_REFUSED   /* of an operator that is not supported, or after one */
} onnx_kind;

typedef struct onnx_constant {
    bool is_float;
    int n_dim;
    int64_t dim[ONNX_MAX_DIM], n;
    double *number; /* [n]; int64 values are exact up to 2^53, which no size exceeds */
} onnx_constant;

typedef struct onnx_value {
    const onnx_constant *constant;
    /* Weight: of its next to last dimension only so many rows are used; 0: all. Lookup: of its table. */
    int64_t rows, width; /* width: of a lookup's table */
    onnx_view view;
    onnx_kind kind;
    int weight;       /* of import->weight */
    int expression;   /* tensor */
    int refused;      /* the node that is to blame */
    int node;         /* lookup: the one that reads the table */
    bool causal;      /* tensor: entries (i, j), j > i, of the last two dimensions are masked */
    bool is_index;    /* tensor: tokens */
    bool is_stand_in; /* it is one, or depends on one (stand_in.c) */
} onnx_value;

typedef struct onnx_weight {
    const char *name;
    int tensor; /* as onnx_file_tensor counts; −1: an input of a file without weights, or is_filled */
    int n_use;
    bool is_known;  /* of a node: its numbers may also be computed with */
    bool is_filled; /* by ConstantOfShape: all are `fill` */
    double fill;
} onnx_weight;

/* --- Functions of each element -------------------------------------------------------------------------- */

typedef enum onnx_function {
    ONNX_F_IDENTITY,
    ONNX_F_ADD,
    ONNX_F_SUB,
    ONNX_F_MUL,
    ONNX_F_DIV,
    ONNX_F_POW,
    ONNX_F_MAX,
    ONNX_F_MIN,
    ONNX_F_RELU,
    ONNX_F_TANH,
    ONNX_F_ERF,
    ONNX_F_SIGMOID,
    ONNX_F_EXP,
    ONNX_F_SQRT,
    ONNX_F_NEG,
    ONNX_F_CLIP,
    ONNX_F_HARD_SIGMOID,
    ONNX_F_HARD_SWISH,
    ONNX_F_LEAKY_RELU,
    ONNX_F_ELU,
    ONNX_F_SOFTPLUS,
    ONNX_F_ABS,
    ONNX_F_LOG,
    ONNX_F_RECIPROCAL,
    ONNX_F_SELU,
    ONNX_F_SOFTSIGN,
    ONNX_F_SIN,
    ONNX_F_COS
} onnx_function;

/* A function of the elements of operator `base`. Nothing is built before an operator needs its values;
 * then `record` has them. So x·sigmoid(x), however it is written, becomes one operator. */
typedef struct onnx_expression {
    onnx_function function;
    int base;        /* the record whose elements it reads */
    int left, right; /* expressions; right −1: `number` instead; left −1: `number` is the left operand */
    double number, alpha, beta;
    int depth;                    /* steps from the base */
    double sample[ONNX_N_SAMPLE]; /* its values at onnx_sample_points */
    int record;                   /* with its values; −1: not built */
    int node;
} onnx_expression;

/* --- Records: operators of the training graph ----------------------------------------------------------- */

typedef struct onnx_parameter {
    int weight;     /* −1: none */
    onnx_view view; /* of the weight, whose atoms are in `order` as in the parameter */
} onnx_parameter;

typedef struct onnx_record {
    tandem_op_kind kind;
    char name[48];
    int node;
    int reader; /* the node that reads its weights; mostly `node` */
    int input[2];
    onnx_parameter parameter[2], statistics[2]; /* statistics: running mean and variance */
    tandem_shape shape;                         /* of the output, as the builder has it */
    tandem_function function;
    float alpha, beta;
    int groups, dilation, pad_end;
    int kernel_h, kernel_w, stride, pad, transpose_b, causal, axis[TANDEM_MAX_DIM], n_trailing;
    int64_t n, start;    /* outputs of a product; rows; first row; of a call, what `called` counts */
    const char *called;  /* of a call: what it does */
    const float *factor; /* of mul_constant */
    int64_t factor_step[TANDEM_MAX_DIM]; /* of mul_constant */
    float scale, epsilon, momentum, rate;
    bool is_live;
    int n_same; /* how many more have its name */
    int tensor; /* id in the builder */
} onnx_record;

typedef struct onnx_node {
    Onnx__Node *message;
    int *input, *output; /* values; −1: left out */
    int place;           /* in the sequence */
    const char *refused; /* why it is not supported */
    bool is_unknown;     /* there is no such operator: it says more than what is refused on the way to it */
    bool is_unjudged;    /* it reads what is refused, and needs its shape */
    bool reads_taken;    /* a weight that another node has */
    bool is_absorbed;    /* a part of a pattern; it does not count where it is refused */
    bool is_needed;
} onnx_node;

/* Lowers the current node. */
struct onnx_import;
typedef bool onnx_lowering(struct onnx_import *import);

typedef struct onnx_import {
    const char *path; /* of the file */
    const tandem_onnx_options *options;
    bool is_listing;           /* of nodes that are not supported: it goes on after them */
    int64_t batch, file_batch; /* file_batch: dimension 0 of the samples in the file; 0: not fixed */
    int file;                  /* the model's, while it is imported; −1 */
    Onnx__Model *model;
    tandem_arena arena;
    int opset;
    onnx_node *node;
    int n_node, *sequence, n_sequence; /* the needed nodes, each after what it reads */
    const char **value_name;
    const Onnx__ValueInfo **info; /* of each value: its declared type, or NULL */
    onnx_value *value;
    int *producer, *n_reader; /* of each value: its node, or −1; how many inputs and outputs read it */
    int n_value;
    onnx_weight *weight;
    int n_weight, weight_capacity;
    int64_t n_constant; /* elements of all constants */
    struct onnx_factors {
        const void *of; /* the constant, or the file's tensor */
        const float *number;
    } * factors; /* [n_factors] */
    int n_factors, factors_capacity;
    onnx_expression *expression;
    int n_expression, expression_capacity;
    onnx_record *record;
    int n_record, record_capacity;
    int current;         /* the node that is being lowered */
    int samples, labels; /* records */
    tandem_sample sample;
    onnx_value nowhere; /* what an output that the node leaves out gets */
    /* of the current node; NULL: there is no such operator (import.c has the table of all) */
    onnx_lowering *(*find_lowering)(const struct onnx_import *import);
    tandem_error *error;
} onnx_import;

/* --- Stages --------------------------------------------------------------------------------------------- */

/* All functions that return bool: false with import->error set. */

/* read.c */
bool onnx_read_model(onnx_import *import);
void onnx_free_model(onnx_import *import);
/* Elements of a tensor of the file as doubles or floats; TANDEM_MALFORMED where its data do not fit. */
bool onnx_tensor_elements(onnx_import *import, const Onnx__Tensor *tensor, int64_t *n);
bool onnx_tensor_check(onnx_import *import, const Onnx__Tensor *tensor, int64_t n);
/* Of the initializers, then of the nodes: the value of a Constant. NULL: it has none. */
const Onnx__Tensor *onnx_file_tensor(const onnx_import *import, int index);
bool onnx_tensor_has_data(const Onnx__Tensor *tensor);
/* Numbers first … first + n − 1 of `all`, of a tensor that was checked. */
bool onnx_tensor_read_part(onnx_import *import, const Onnx__Tensor *tensor, int64_t all, int64_t first,
                           int64_t n, double *number, float *single);
bool onnx_tensor_read(onnx_import *import, const Onnx__Tensor *tensor, double *number, float *single,
                      int64_t n);

/* compact.c: the file's bytes without the data of large tensors; the caller frees them. */
bool onnx_compact_file(onnx_import *import, int64_t size, unsigned char **bytes, size_t *n);

/* kind.c: the error of a file that is no ONNX model; it says what it is. */
bool onnx_fail_kind(onnx_import *import, int64_t size);

/* order.c */
bool onnx_order_nodes(onnx_import *import);
int onnx_find_value(const onnx_import *import, const char *name);

const char *onnx_trained_output(const onnx_import *import);

/* node.c */
bool onnx_is_own_domain(const char *domain);
/* The version of a domain that the file is written in; 0: it names none. */
int onnx_domain_version(const onnx_import *import, const char *domain);
/* Sets the error of a model with refused nodes. */
bool onnx_fail_refused(onnx_import *import);
int onnx_add_weight(onnx_import *import, const char *name, int tensor); /* −1: no memory */
/* A file may hold equal weights once and name copies of them by Identity: each is a weight of its own. */
int onnx_copy_weight(onnx_import *import, const char *name, int weight);
void onnx_describe_node(const onnx_import *import, int node, char *text, size_t room);
void onnx_blame(onnx_import *import, int node); /* the current node's outputs depend on a refused node */
int onnx_count_refused(const onnx_import *import, int *first);
bool onnx_fail(onnx_import *import, tandem_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The node that is being lowered breaks a rule: TANDEM_WRONG_GRAPH. */
bool onnx_fail_node(onnx_import *import, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool onnx_no_memory(onnx_import *import);
/* What ends the current node where a record is −1, an error: false; or −2: it is refused, and true. */
bool onnx_end_node(onnx_import *import, int record);
/* Marks the current node's outputs as refused and goes on: true. */
bool onnx_refuse(onnx_import *import, const char *format, ...) __attribute__((format(printf, 2, 3)));
const onnx_value *onnx_input(const onnx_import *import, int slot);
int onnx_n_input(const onnx_import *import);
/* Whether other nodes read the weight of that input, too, directly or through views of it. */
bool onnx_is_shared(const onnx_import *import, int slot);
onnx_value *onnx_output(onnx_import *import, int slot);
const char *onnx_op_type(const onnx_import *import);

/* attributes.c */
int64_t onnx_int(const onnx_import *import, const char *name, int64_t otherwise);
float onnx_float(const onnx_import *import, const char *name, float otherwise);
/* The list of integers; n 0 where the node has none. */
const int64_t *onnx_ints(const onnx_import *import, const char *name, size_t *n);
bool onnx_has_text(const onnx_import *import, const char *name, const char *text);
const Onnx__Tensor *onnx_tensor(const onnx_import *import, const char *name);
const Onnx__Attribute *onnx_attribute(const onnx_import *import, const char *name);
/* An axis that may count from the end, as 0 … n_dim−1. */
bool onnx_axis(onnx_import *import, int64_t given, int n_dim, int *axis);
/* Of a Transpose: the dimension of its input that dimension d of its output is. */
bool onnx_permutation(onnx_import *import, int n_dim, int *axis);
/* Axes from an attribute or, since the opset that moved them, input `slot`. n −1: absent. */
bool onnx_axes(onnx_import *import, const char *name, int slot, int n_dim, int *axis, int *n);

/* constant.c */
onnx_constant *onnx_constant_new(onnx_import *import, int n_dim, const int64_t *dim, bool is_float);
bool onnx_set_constant(onnx_value *value, const onnx_constant *constant);
/* Computes the node where all of its inputs are constants, or where it asks for a shape. *done: whether. */
bool onnx_fold(onnx_import *import, bool *done);
/* Whether it could be computed if its inputs were known. */
bool onnx_is_foldable(const onnx_import *import);
/* Whether a weight's or a lookup's numbers are in nodes, so that they may be computed with, too. */
bool onnx_is_known(const onnx_import *import, const onnx_value *value);
/* Reads a small weight, so that it can be computed with. *constant NULL: too large, or without data. */
bool onnx_weight_constant(onnx_import *import, const onnx_value *weight, const onnx_constant **constant);
/* A number of a constant as an integer, cut to ±2^62. */
static inline int64_t onnx_whole(double x)
{
    return x >= 0x1p62 ? INT64_C(1) << 62 : x <= -0x1p62 ? -(INT64_C(1) << 62) : x == x ? (int64_t)x : 0;
}
/* Of a Slice: per dimension the first row, how many, and the step. */
bool onnx_slice_bounds(onnx_import *import, int n_dim, const int64_t *dim, int64_t *start, int64_t *count,
                       int64_t *step);
/* The only number of a constant. */
bool onnx_is_number(const onnx_value *value, double *number);

/* tied.c: the record of the embedding whose table the matrix is, transposed in the file; −1: none. */
bool onnx_find_turned_table(onnx_import *import, const onnx_value *matrix, int *table);

/* record.c */
/* A new record; NULL: no memory. Its name is that of the weight's module, or else of the node. */
onnx_record *onnx_add_record(onnx_import *import, tandem_op_kind kind, const char *name, int x, int y);
/* The name of a module: of a weight without its last part, or of the node. */
void onnx_module_name(const onnx_import *import, const char *weight, char name[48]);
/* The current node reads the weight; an operator with it gets the name. */
void onnx_take_weight(onnx_import *import, int weight, char name[48]);
int onnx_reshape_record(onnx_import *import, int record, int n_dim, const int64_t *dim);
int onnx_expression_of(onnx_import *import, int record);

/* layout.c */
bool onnx_set_tensor(onnx_import *import, onnx_value *value, int record, const onnx_view *view);
/* Rearranges a value's memory so that its atoms lie in the order of `wanted`, and returns the record. The
 * view follows. The batch must be wanted first. −1: error. */
int onnx_arrange(onnx_import *import, onnx_value *value, const int *wanted);
/* The same into ONNX's own order. */
int onnx_arrange_plain(onnx_import *import, onnx_value *value);
/* Atoms of the dimensions, the last ones innermost, are put after all others, which keep their order (in
 * ONNX's order where is_plain). */
int onnx_arrange_last(onnx_import *import, onnx_value *value, int n_axis, const int *axis);
/* Whether an operator has the weight already. */
bool onnx_weight_is_taken(onnx_import *import, int weight);
bool onnx_as_weight(onnx_import *import, onnx_value *value);
/* Puts the dimensions' atoms last in memory, where they are not. −2: the batch is one of them. */
int onnx_make_last(onnx_import *import, onnx_value *value, int n_axis, const int *axis);
int onnx_follow_memory(const onnx_view *tensor, int x, const onnx_view *weight, int w, int *order);

/* A window that slides over height and width. */
typedef struct onnx_window {
    int64_t kernel[2], stride[2], dilation[2], before[2], after[2], n[2]; /* n: how many fit */
} onnx_window;
/* From the node's attributes; kernel is the default. */
bool onnx_read_window(onnx_import *import, int64_t h, int64_t w, onnx_window *window);
bool onnx_window_is_simple(const onnx_window *window);
int onnx_put_axis(const onnx_view *view, int axis, int *wanted, int n);
int onnx_as_image(onnx_import *import, onnx_value *x);
onnx_view onnx_image_view(const onnx_view *x, int64_t h, int64_t w, int64_t c);
bool onnx_reshape_value(onnx_import *import, onnx_value *value, int n_dim, const int64_t *dim);
bool onnx_add_bias(onnx_import *import, onnx_value *x, onnx_value *w);
bool onnx_add_channel_bias(onnx_import *import, onnx_value *x, onnx_value *w);

/* expression.c */
double onnx_sample_point(int i);
/* Appends function(left, right or number); −1: no memory. */
int onnx_express(onnx_import *import, onnx_function function, int left, int right, double number,
                 double alpha, double beta);
/* The record with the values of an expression; −1: error. -2: refused, and the node is marked. */
int onnx_build_expression(onnx_import *import, int expression);
/* left function right, of records of one layout; Sub and Div through −x and 1/x. −1, −2 as above. */
int onnx_combine_records(onnx_import *import, onnx_function function, int left, int right, int origin);
/* Whether the expression is factor·x + shift of its base. */
bool onnx_is_linear(const onnx_import *import, int expression, double *factor, double *shift);

/* lower_….c */
onnx_lowering onnx_lower_conv, onnx_lower_gemm, onnx_lower_matmul, onnx_lower_unary, onnx_lower_binary,
    onnx_lower_clip, onnx_lower_softmax, onnx_lower_batchnorm, onnx_lower_layernorm, onnx_lower_pool,
    onnx_lower_global_pool, onnx_lower_reduce_mean, onnx_lower_reshape, onnx_lower_flatten,
    onnx_lower_transpose, onnx_lower_squeeze, onnx_lower_unsqueeze, onnx_lower_identity, onnx_lower_dropout,
    onnx_lower_slice, onnx_lower_split, onnx_lower_gather, onnx_lower_concat, onnx_lower_expand,
    onnx_lower_where, onnx_lower_quantize, onnx_lower_pad;
/* Whether the current node, a Div, ends a LayerNorm that is written in steps; lowers it then. */
bool onnx_lower_written_layernorm(onnx_import *import, bool *done);
/* Finds or makes the source of samples, and the values of the file's inputs. */
bool onnx_lower_inputs(onnx_import *import);
/* The loss, after the output that is trained. */
bool onnx_lower_loss(onnx_import *import);

/* stand_in.c: gives the current node's refused outputs a stand-in, where their shape is known. */
bool onnx_stand_in(onnx_import *import);
bool onnx_reads_stand_in(const onnx_import *import);

/* emit.c: the live records, through the builder. */
bool onnx_emit(onnx_import *import, tandem_builder *builder, const char *model, tandem_graph **graph);

/* weights.c: what tandem_graph_init needs of the file, later. */
bool onnx_keep_weights(onnx_import *import, tandem_graph *graph);

#endif
