/* build.h: how a model file builds a graph, operator by operator; the builder infers the shapes.
 *
 * A builder keeps its first error and ignores all later calls, so model files need no checks. The error names
 * the operator, what it got and what is allowed (TANDEM_WRONG_GRAPH). Every function returns the id of the
 * new tensor, or −1. */
#pragma once

#include "tandem/graph.h"

typedef struct tandem_builder tandem_builder;

typedef struct tandem_grouped_window {
    int kernel_h, kernel_w, stride, pad, pad_end, dilation, groups;
} tandem_grouped_window;

/* batch: 1 … 2^20, else TANDEM_USAGE. TANDEM_NO_MEMORY. */
tandem_status tandem_builder_open(tandem_builder **builder, int64_t batch, tandem_error *error);
void tandem_builder_close(tandem_builder *builder); /* NULL is fine */
/* Moves what was built into a graph. The last operator must be cross_entropy, and every other tensor must be
 * read. `model` is the canonical name. */
tandem_status tandem_builder_finish(tandem_builder *builder, const char *model,
                                    const tandem_optimizer_options *optimizer, tandem_graph **graph,
                                    tandem_error *error);

/* Names are copied: 1 … 47 letters, digits and any of ._-/, unique in the graph. x, y, a are tensor ids. The
 * first dimension of every tensor is the batch, alone or merged with others: reshape keeps it a multiple of
 * the batch, transpose keeps axis 0, and only batchnorm mixes its rows. So parameters and the hash do not
 * depend on the batch. Deviation 0 means zeros. The number of windows is that of PyTorch: (size + 2·pad −
 * kernel) / stride, rounded down, + 1. A graph has one source of samples (images or tokens) and one of
 * labels, which only the loss and gather_labelled read. */
int tandem_build_images(tandem_builder *b, const char *name, int64_t height, int64_t width, int64_t channels);
int tandem_build_tokens(tandem_builder *b, const char *name, int64_t length);
/* length 1: (batch), one class per sample; else (batch, length) */
int tandem_build_labels(tandem_builder *b, const char *name, int64_t length);
/* (batch, length) labels, of which `masked` per sample count: 1 … length. Loading a sample hides their
 * tokens. */
int tandem_build_masked_labels(tandem_builder *b, const char *name, int64_t length, int64_t masked);
/* (…, k) → (…, n) */
int tandem_build_linear(tandem_builder *b, const char *name, int x, int64_t n, float deviation);
/* A linear layer by the transposed table of `embedding`: (…, width) → (…, vocabulary); one per table. */
int tandem_build_tied(tandem_builder *b, const char *name, int x, int embedding);
int tandem_build_conv2d(tandem_builder *b, const char *name, int x, int64_t channels, int kernel, int stride,
                        int pad);
/* (…, m, k)·(…, k, n), 3 or 4 dimensions */
int tandem_build_matmul(tandem_builder *b, const char *name, int a, int x, int transpose_b);
int tandem_build_embedding(tandem_builder *b, const char *name, int tokens, int64_t vocabulary,
                           int64_t width);
/* The parameter has the last n_trailing dimensions. */
int tandem_build_bias(tandem_builder *b, const char *name, int x, int n_trailing, float deviation);
/* A bias over the last two dimensions, (length, width). Its parameter has `rows` ≥ length rows and adds the
 * first. */
int tandem_build_row_bias(tandem_builder *b, const char *name, int x, int64_t rows, float deviation);
int tandem_build_relu(tandem_builder *b, const char *name, int x);
int tandem_build_gelu(tandem_builder *b, const char *name, int x);
int tandem_build_tanh(tandem_builder *b, const char *name, int x);
/* rate 0 … 0.9; 0: returns x */
int tandem_build_dropout(tandem_builder *b, const char *name, int x, float rate);
int tandem_build_add(tandem_builder *b, const char *name, int x, int y);
int tandem_build_maxpool(tandem_builder *b, const char *name, int x, int kernel, int stride, int pad);
/* maxpool with more padding below and on the right, as where the number of windows is rounded up. */
int tandem_build_maxpool_to(tandem_builder *b, const char *name, int x, int kernel, int stride, int pad,
                            int pad_end);
int tandem_build_avgpool(tandem_builder *b, const char *name, int x, int kernel_h, int kernel_w, int stride);
int tandem_build_reshape(tandem_builder *b, const char *name, int x, int n_dim, const int64_t *dim);
int tandem_build_transpose(tandem_builder *b, const char *name, int x, const int *axis);
/* Rows start … start+n−1 of dimension 1. */
int tandem_build_slice(tandem_builder *b, const char *name, int x, int64_t start, int64_t n);
/* (batch, length, …) → (batch, masked, …): of each sample the rows whose label is not −1, in order. */
int tandem_build_gather_labelled(tandem_builder *b, const char *name, int x, int labels);
/* (batch, n, width) → (batch, 1+n, width): a trained row first. */
int tandem_build_concat_token(tandem_builder *b, const char *name, int x, float deviation);
/* (a, n, …) and (a, m, …) → (a, n+m, …) */
int tandem_build_concat(tandem_builder *b, const char *name, int x, int y);
/* The product of each element; y may have size 1 in dimension 1, and then repeats. */
int tandem_build_mul(tandem_builder *b, const char *name, int x, int y);
/* A function of each element (function.def). */
int tandem_build_map(tandem_builder *b, const char *name, int x, tandem_function function, float alpha,
                     float beta);
/* What no kernel here computes; it is simulated by its cost. text: what it does on which shapes, 1 …
 * TANDEM_RECORDED_TEXT visible characters (record.h), for the cost key. parameter_elements 0: nothing is
 * trained. Its result has the given shape. */
int tandem_build_call(tandem_builder *b, const char *name, int x, const char *text,
                      int64_t parameter_elements, const tandem_shape *shape);
/* y = x·c for each element, with numbers that are not trained: those at place i, j, … of x's dimensions by
 * factor[i·step[0] + j·step[1] + …]. Steps are 0 or more, and 0 for dimension 0, which counts samples. The
 * graph keeps a copy of the factors up to the last one that is reached; at most 2^28. */
int tandem_build_mul_constant(tandem_builder *b, const char *name, int x, const float *factor,
                              const int64_t *step);
/* x (rows, 1, …) → (rows, times, …): each row `times` times. */
int tandem_build_repeat(tandem_builder *b, const char *name, int x, int64_t times);
/* A factor for each entry of the last dimension, 1 at first. */
int tandem_build_scale(tandem_builder *b, const char *name, int x);
/* conv2d, but channels in groups, each its own convolution, windows of any height and width, and a distance
 * between their entries; `pad_end` more below and on the right. fp32 alone. Weights: (kernel_h·kernel_w·
 * c_in/groups, c_out). */
int tandem_build_grouped_conv2d(tandem_builder *b, const char *name, int x, int64_t channels,
                                const tandem_grouped_window *window);
/* Over the last dimension. */
int tandem_build_softmax(tandem_builder *b, const char *name, int x, float scale, int causal);
int tandem_build_layernorm(tandem_builder *b, const char *name, int x);
int tandem_build_batchnorm(tandem_builder *b, const char *name, int x);
/* Of a norm; 1e-5 without it. Does nothing after an error. */
void tandem_build_set_epsilon(tandem_builder *b, int norm, float epsilon);
/* Of a batchnorm, as torch.nn.BatchNorm2d has it: the part of the running statistics that a step replaces.
 * Does nothing after an error. */
#define TANDEM_BATCHNORM_MOMENTUM 0.1f /* without it */
void tandem_build_set_momentum(tandem_builder *b, int batchnorm, float momentum);
/* PyTorch hands on the gradient of op's parameter after those of `other`, an earlier operator with
 * parameters. Does nothing after an error. */
void tandem_build_hand_on_after(tandem_builder *b, int op, int other);
/* As many rows as labels, or as labels that count: then row j of a sample has its j-th label that is not
 * −1. */
int tandem_build_cross_entropy(tandem_builder *b, const char *name, int logits, int labels);
