/* operator_case.h: small graphs around one operator, and its kernels run outside an executor, on guarded
 * arrays.
 *
 * A case is the operator with odd shapes:  images → reshape → linear "pre" → operator → reshape → linear
 * "post" → loss (tokens instead of images before an embedding; a second "pre" for a second input). The
 * linears' precisions decide in which types the operator's inputs and gradients come. A tied linear has its
 * embedding as "pre", and a tied embedding its linear as "post". */
#ifndef TANDEM_TESTS_CONFORMANCE_OPERATOR_CASE_H
#define TANDEM_TESTS_CONFORMANCE_OPERATOR_CASE_H

#include "tandem/advanced/device_backend.h"

/* A tied linear, a bias after one or a loss after one, which the loss reads and nothing else: rows of such
 * logits may have gaps. */
enum { CASE_HEAD = 2 };
typedef struct operator_case {
    tandem_op_kind kind;
    int n_dim; /* of the input, without the batch */
    int64_t batch;
    int64_t dim[3]; /* of the input; matmul: (heads,) rows and columns of the first operand */
    /* linear, conv2d, embedding, matmul: columns of the result; bias: trailing dimensions; slice, labelled:
     * rows; cross_entropy: labels a sample, where there are more than rows */
    int64_t out;
    int64_t vocabulary; /* rows of the table; of a bias: of its parameter, where more than are added */
    /* flag: transpose_b, causal, tied; slice: the first row; CASE_HEAD: of the head of a language model */
    int window_h, window_w, stride, pad, flag;
    int axis[4];
    float scale;
    int cpu; /* for a way in which CPUs alone compute it; other devices would see one more of the same */
} operator_case;

extern const operator_case operator_cases[];
extern const int n_operator_case;

/* What every kernel is called with: the share of a label that all classes have alike, and samples before this
 * rank's. Not 0, so that a kernel that ignored them would be seen. */
static const float case_smoothing = 0.15f;
enum { case_first_place = 3 };

/* The graph of a case and which of its operators is the one; "pre", "pre2", "post" and labels of its own are
 * −1 where there is none. */
typedef struct case_graph {
    tandem_graph *graph;
    int op, pre, pre2, post, labels;
} case_graph;
tandem_status case_graph_open(case_graph *made, const operator_case *c, tandem_error *error);
/* "conv2d batch=3 7x5x3 …", for failures. */
void case_print(char *text, size_t size, const operator_case *c);

/* --- Arrays of numbers ---------------------------------------------------------------------------------- */
/* n numbers of a type, with guards before and after; value: what they represent. columnwise: data is that of
 * a transposed copy of such matrices, value row by row; batch 0: it is none. row: elements of the data from
 * one row of so many columns to the next, where there are gaps; 0: there are none. */
typedef struct case_array {
    tandem_dtype dtype;
    size_t n, bytes;
    tandem_matrices transposed_copy;
    size_t columns, row;
    int is_gradient; /* its gaps are 0; others' hold no number */
    float scale;     /* of types of a byte */
    void *data;      /* aligned to 64 */
    void *block;
    double *value; /* [n] */
} case_array;
enum { CASE_GUARD = 128 };

/* No memory ends the process: these are tests. */
int has_scale(tandem_dtype dtype);      /* s8, E4M3, E5M2 */
double max_of_code(tandem_dtype dtype); /* the largest number that a code of it represents at scale 1 */
void array_open(case_array *array, tandem_dtype dtype, size_t n);
void array_close(case_array *array);
void array_store(case_array *array); /* data from value: rounded to nearest; value becomes what is stored */
void array_load(case_array *array);  /* value from data */
void array_spoil(case_array *array); /* data that is no number */
int array_guards_whole(const case_array *array);
int array_gaps_whole(const case_array *array); /* of a gradient: they are 0 */
/* Numbers in [−1, 1), the same for the same key; for types of a byte codes of all sizes and a scale; with
 * CASE_EXTREME in the key seven of eight are 127 and the others −127: sums as large as they can be, which
 * 16-bit intermediate sums cannot hold. */
#define CASE_EXTREME (UINT64_C(1) << 40)
void array_random(case_array *array, uint64_t key);
double case_random(uint64_t key, uint32_t index);

/* --- Operands of a task --------------------------------------------------------------------------------- */
typedef struct task_operands {
    int n_in, n_out;
    uint64_t seed;      /* of the draws, where operands_run has run */
    uint64_t prior_key; /* of what an output holds that the task adds to; 0: zeros */
    case_array in[TANDEM_TASK_READS], out[TANDEM_TASK_WRITES];
} task_operands;

/* Opens arrays of the right types and lengths; contents are not set. The sum so far that a task adds to is
 * its output, and no input. */
void operands_open(task_operands *operands, const tandem_step *step, int task);
void operands_close(task_operands *operands);
/* Fills the inputs with random numbers that are what this task can get: statistics, probabilities, places and
 * outputs that belong to the other operands. */
void operands_fill(task_operands *operands, const tandem_step *step, int task, uint64_t key);

/* Whether the task adds to its output, and what number i of that holds before: a number that every type of
 * floats has. */
int operands_add_up(const tandem_step *step, int task);
double operands_prior(const task_operands *operands, size_t i);

/* Prepares and runs a task's kernel on its operands, and loads the outputs. Complains into `complaint` (and
 * returns 0) where the kernel fails, writes beyond its arrays or workspace, changes an input, or gives other
 * bits a second time. */
int operands_run(task_operands *operands, const tandem_device_backend *backend, void *device,
                 const tandem_step *step, int task, uint64_t seed, float row_weight, char *complaint,
                 size_t size);

/* --- The reference: plain C in double ------------------------------------------------------------------- */
/* What the task should write (result[k], out[k].n numbers) given the operands' inputs, and how far each
 * number may lie from it (bound[k]). Bounds are first-order forward error bounds of the textbook algorithm in
 * any order of summation: a sum of k terms errs by at most (k + 2)·u·Σ|terms|, u = 2^−24 (f32 accumulation);
 * a result rounded to bf16 by 2^−8 of itself more; elementary functions of oneDNN by 2^−20 of their
 * argument's scale. Products of s8 are exact until they are scaled. Returns 0 where the task's operator is
 * not known here. */
int task_reference(const tandem_step *step, int task, const task_operands *operands, float row_weight,
                   double *const *result, double *const *bound);

#endif
