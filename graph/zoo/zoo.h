/* zoo.h: what a model file defines and what it may use. A new model is one file here and one row in zoo.c. */
#ifndef TANDEM_GRAPH_ZOO_H
#define TANDEM_GRAPH_ZOO_H

#include "graph/ir/build.h"
#include "graph/ir/op.h"

typedef struct tandem_zoo_model {
    tandem_model model;
    tandem_optimizer_options optimizer;
    /* Builds the operators, the loss last. value[i] is that of model.option[i], within its range.
     * TANDEM_USAGE: two values do not fit each other. The builder reports errors of operators. */
    tandem_status (*build)(tandem_builder *b, const int64_t *value, tandem_error *error);
} tandem_zoo_model;

extern const tandem_zoo_model tandem_zoo_mlp, tandem_zoo_resnet20, tandem_zoo_vit_tiny, tandem_zoo_gpt_tiny,
    tandem_zoo_resnet18, tandem_zoo_resnet50, tandem_zoo_vgg16_bn, tandem_zoo_vit_b16, tandem_zoo_bert_base,
    tandem_zoo_gpt2_small;

enum { TANDEM_ZOO_MAX_OPTION = 9 };

/* tandem_graph_open with a limit, for slurmctld: a user's text must neither block it nor open a file. The
 * name must be one of the models above. TANDEM_LIMIT_EXCEEDED: the model has more than *n_op operators. On
 * success *n_op is the number of operators before some were joined. */
tandem_status tandem_graph_open_limited(tandem_graph **graph, const char *model, int64_t batch, int *n_op,
                                        tandem_error *error);
/* tandem_graph_open where a path is no name: the backend, and Slurm's planner, where it replaces
 * tandem_graph_open (mk/products.mk). */
tandem_status tandem_graph_open_zoo(tandem_graph **graph, const char *model, int64_t batch,
                                    tandem_error *error);

/* The option "image" packs three numbers below 2^16. A single number N means NxN with the default's
 * channels. */
#define TANDEM_ZOO_IMAGE(height, width, channels)                                                            \
    ((int64_t)(height) << 32 | (int64_t)(width) << 16 | (int64_t)(channels))
/* clang-format off */
#define TANDEM_ZOO_IMAGE_OPTION                                                                              \
    {"image", TANDEM_ZOO_IMAGE(28, 28, 1), TANDEM_ZOO_IMAGE(1, 1, 1), TANDEM_ZOO_IMAGE(4096, 4096, 64),      \
     "height x width x channels of a sample"}
#define TANDEM_ZOO_CLASSES_OPTION {"classes", 10, 2, 65536, "number of classes"}
#define TANDEM_ZOO_GELU_OPTION {"gelu", 0, 0, 1, "1: gelu in the place of relu"}
/* Of models for ImageNet; min_size: the smallest height and width that the model can read. */
#define TANDEM_ZOO_IMAGENET_OPTION(min_size)                                                                 \
    {"image", TANDEM_ZOO_IMAGE(224, 224, 3), TANDEM_ZOO_IMAGE(min_size, min_size, 1),                        \
     TANDEM_ZOO_IMAGE(4096, 4096, 64), "height x width x channels of a sample; 64 is 64x64x3"}
#define TANDEM_ZOO_IMAGENET_CLASSES_OPTION {"classes", 1000, 2, 65536, "number of classes"}
/* clang-format on */
/* The option "head" is a choice by name. */
enum { TANDEM_ZOO_HEAD_MLM, TANDEM_ZOO_HEAD_CLASS };
/* clang-format off */
#define TANDEM_ZOO_HEAD_OPTION                                                                               \
    {"head", TANDEM_ZOO_HEAD_MLM, TANDEM_ZOO_HEAD_MLM, TANDEM_ZOO_HEAD_CLASS,                                \
     "mlm: predicts hidden tokens, 15 %; class: one of a whole sample"}
/* clang-format on */
/* The option "dropout" is a fraction, in units of 1/10000. */
enum { TANDEM_ZOO_FRACTION = 10000 };
/* clang-format off */
#define TANDEM_ZOO_DROPOUT_OPTION                                                                            \
    {"dropout", 0, 0, TANDEM_ZOO_FRACTION * 9 / 10,                                                          \
     "fraction of elements dropped, where the published model drops some; such as 0.1"}
/* clang-format on */
static inline float tandem_zoo_fraction(int64_t value) { return (float)value / TANDEM_ZOO_FRACTION; }
static inline int64_t tandem_zoo_height(int64_t image) { return image >> 32; }
static inline int64_t tandem_zoo_width(int64_t image) { return image >> 16 & 0xffff; }
static inline int64_t tandem_zoo_channels(int64_t image) { return image & 0xffff; }

/* "scope.part", for names of operators; the part alone where the scope is empty or NULL. */
typedef struct tandem_zoo_name {
    char text[64];
} tandem_zoo_name;
tandem_zoo_name tandem_zoo_join_name(const char *scope, const char *part);

/* linear and bias: "name", "name.bias". */
int tandem_zoo_linear(tandem_builder *b, const char *name, int x, int64_t n, float deviation);
/* The source "image" of a size packed as above. */
int tandem_zoo_images(tandem_builder *b, int64_t image);

/* A convolution, padded so that stride 1 keeps the size, and its batchnorm: "scope.part",
 * "scope.part.norm". */
int tandem_zoo_conv(tandem_builder *b, const char *scope, const char *part, int x, int64_t channels,
                    int kernel, int stride);
/* Relu, or gelu by tanh: "scope.part". */
int tandem_zoo_activation(tandem_builder *b, const char *scope, const char *part, int x, int is_gelu);
/* Convolutions of 3x3 and 3x3; of 1x1, 3x3 and 1x1 to 4·channels. The result is added to x, after a 1x1
 * convolution of x where the shape changes. */
int tandem_zoo_residual(tandem_builder *b, const char *scope, int x, int64_t channels, int stride,
                        int is_gelu);
int tandem_zoo_bottleneck(tandem_builder *b, const char *scope, int x, int64_t channels, int stride);
/* The mean over all pixels, and the linear layer "head" after it. */
int tandem_zoo_pooled_head(tandem_builder *b, int x, int64_t classes, float deviation);

/* The blocks of a transformer (transformer.c); x is (batch, length, width). Source: Vaswani et al., NIPS
 * 2017. Norms come before attention and mlp, with one more after the last block (Xiong et al., ICML 2020);
 *       with post_norm
 * after each of them. Initial weights as in GPT-2 (Radford et al., 2019): deviation 0.02, and 0.02/√(2·depth)
 * where a result joins the residual stream without post_norm. Gelu uses tanh; norms have epsilon 1e-5. */
typedef struct tandem_zoo_transformer {
    int64_t batch, length, width, depth, heads, ratio; /* ratio: inner width of the mlp, in widths */
    int causal, post_norm;
    float dropout;           /* of results that join the residual stream */
    float attention_dropout; /* of the attention's weights */
    float mlp_dropout;       /* of the mlp's inner activations */
    const char *scope;       /* before the names of operators; NULL = none */
} tandem_zoo_transformer;
int tandem_zoo_blocks(tandem_builder *b, int x, const tandem_zoo_transformer *config);
/* Images as rows: (batch, height, width, channels) → (batch, patches, width), by the convolution "patch" and
 * its bias. */
int tandem_zoo_patches(tandem_builder *b, int x, int64_t patch, int64_t width);
/* The first row of each sample: (batch, length, width) → (batch, width). */
int tandem_zoo_first_token(tandem_builder *b, const char *name, int x);
/* TANDEM_USAGE: the width is not a multiple of the heads; height or width of the image are not multiples of
 * the patch; a sequence is longer than its table of positions. */
tandem_status tandem_zoo_heads_check(const char *model, int64_t width, int64_t heads, tandem_error *error);
tandem_status tandem_zoo_patch_check(const char *model, int64_t image, int64_t patch, tandem_error *error);
tandem_status tandem_zoo_positions_check(const char *model, int64_t seq, int64_t positions,
                                         tandem_error *error);

/* tandem_sweep_open: network `index` ≥ 0 of a sweep, at a batch of its own: branches of convolutions,
 * transformers and perceptrons of drawn sizes (sweep.c), the same on every machine. Any number of first ones
 * is spread over sizes. A forward pass has mostly 0.4 to 1 GFLOP; perceptrons, 2 of 5, have far less.
 * TANDEM_NO_MEMORY. *graph unchanged on error. */
tandem_status tandem_sweep_open(tandem_graph **graph, int index, tandem_error *error);

#endif
