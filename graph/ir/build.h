/* build.h: how a model file puts a graph together, operator by operator, shapes inferred on the way.
 *
 * A builder remembers its first error and ignores everything after it, so a model reads like its drawing; the
 * error names the node, what it got and what is allowed (TANDEM_WRONG_GRAPH). Every function returns the id
 * of the new tensor, or −1. */
#ifndef TANDEM_GRAPH_BUILD_H
#define TANDEM_GRAPH_BUILD_H

#include "tandem/graph.h"

typedef struct tandem_builder tandem_builder;

/* batch: 1 … 2^20, else TANDEM_USAGE. TANDEM_NO_MEMORY. */
tandem_status tandem_builder_open(tandem_builder **builder, int64_t batch, tandem_error *error);
void tandem_builder_close(tandem_builder *builder); /* NULL is fine */
/* Takes all that was built; the last operator must be cross_entropy and every tensor but its output must be
 * read. `model` is the canonical name. */
tandem_status tandem_builder_finish(tandem_builder *builder, const char *model,
                                    const tandem_optimizer_options *optimizer, tandem_graph **graph,
                                    tandem_error *error);

/* Names are copied: 1 … 47 letters, digits and any of ._-/, unique in the graph. x, y, a are tensor ids.
 * The first dimension of every tensor is the batch, alone or merged with others: reshape keeps it a multiple
 * of the batch, transpose keeps axis 0 where it is, and no operator mixes rows of it but batchnorm. So
 * parameters and the hash do not depend on the batch. Deviation 0 means zeros. Windows are counted as in
 * PyTorch: (size + 2·pad − kernel) / stride rounded down, + 1. A graph has one source of samples (images or
 * tokens) and one of labels, which the loss alone reads. */
int tandem_build_images(tandem_builder *b, const char *name, int64_t height, int64_t width, int64_t channels);
int tandem_build_tokens(tandem_builder *b, const char *name, int64_t length);
/* 1: a class a sample → (batch); else (batch, length) */
int tandem_build_labels(tandem_builder *b, const char *name, int64_t length);
/* (batch, length) labels, of which `masked` a sample count: 1 … length; their tokens are hidden where samples
 * are loaded. */
int tandem_build_masked_labels(tandem_builder *b, const char *name, int64_t length, int64_t masked);
/* (…, k) → (…, n) */
int tandem_build_linear(tandem_builder *b, const char *name, int x, int64_t n, float deviation);
int tandem_build_tied(tandem_builder *b, const char *name, int x,
                      /* linear by its transposed table: (…, width) → (…, vocabulary); one a table */
                      int embedding);
int tandem_build_conv2d(tandem_builder *b, const char *name, int x, int64_t channels, int kernel, int stride,
                        int pad);
/* (…, m, k)·(…, k, n), 3 or 4 dimensions */
int tandem_build_matmul(tandem_builder *b, const char *name, int a, int x, int transpose_b);
int tandem_build_embedding(tandem_builder *b, const char *name, int tokens, int64_t vocabulary,
                           int64_t width);
int tandem_build_bias(tandem_builder *b, const char *name, int x, int n_trailing,
                      float deviation); /* parameter over the last n_trailing dimensions */
/* A bias over the last two dimensions, (length, width), whose parameter has `rows` ≥ length rows: the first
 * ones are added. */
int tandem_build_row_bias(tandem_builder *b, const char *name, int x, int64_t rows, float deviation);
int tandem_build_relu(tandem_builder *b, const char *name, int x);
int tandem_build_gelu(tandem_builder *b, const char *name, int x);
int tandem_build_tanh(tandem_builder *b, const char *name, int x);
/* 0 … 0.9; of 0 there is none: returns x */
int tandem_build_dropout(tandem_builder *b, const char *name, int x, float rate);
int tandem_build_add(tandem_builder *b, const char *name, int x, int y);
int tandem_build_maxpool(tandem_builder *b, const char *name, int x, int kernel, int stride, int pad);
int tandem_build_avgpool(tandem_builder *b, const char *name, int x, int kernel_h, int kernel_w, int stride);
int tandem_build_reshape(tandem_builder *b, const char *name, int x, int n_dim, const int64_t *dim);
int tandem_build_transpose(tandem_builder *b, const char *name, int x, const int *axis);
/* rows start … start+n−1 of dimension 1 */
int tandem_build_slice(tandem_builder *b, const char *name, int x, int64_t start, int64_t n);
/* (batch, length, …) → (batch, masked, …): of each sample the rows whose label is not −1, in order, as many
 * as are masked. */
int tandem_build_gather_labelled(tandem_builder *b, const char *name, int x, int labels);
int tandem_build_concat_token(
    tandem_builder *b, const char *name, int x,
    float deviation); /* (batch, n, width) → (batch, 1+n, width): a trained row first */
/* over the last dimension */
int tandem_build_softmax(tandem_builder *b, const char *name, int x, float scale, int causal);
int tandem_build_layernorm(tandem_builder *b, const char *name, int x);
int tandem_build_batchnorm(tandem_builder *b, const char *name, int x);
/* As many rows as labels; of masked labels also as many as count: row j of a sample then has its j-th label
 * that is not −1. */
int tandem_build_cross_entropy(tandem_builder *b, const char *name, int logits, int labels);

#endif
