/* resnet.c: the residual networks for ImageNet, of 18 and of 50 layers. Source: He, Zhang, Ren, Sun, CVPR
 * 2016, table 1. The bottlenecks of resnet50 have their stride in the 3x3 convolution ("v1.5"). The head
 * starts with deviation 0.01: Goyal et al., "Accurate, large minibatch SGD", 2017, section 5.1. */
#include "graph/zoo/zoo.h"

#include <stdio.h>

enum { N_STAGE = 4 };
enum { WIDTH, IMAGE, CLASSES };
static const tandem_model_option options[] = {
    [WIDTH] = {"width", 64, 1, 4096, "channels of the first stage; they double from stage to stage"},
    [IMAGE] = TANDEM_ZOO_IMAGENET_OPTION(1),
    [CLASSES] = TANDEM_ZOO_IMAGENET_CLASSES_OPTION,
    {NULL, 0, 0, 0, NULL},
};

typedef int block_builder(tandem_builder *b, const char *scope, int x, int64_t channels, int stride);

static void build_resnet(tandem_builder *b, const int64_t *value, block_builder *build_block,
                         const int blocks[N_STAGE])
{
    int x = tandem_zoo_images(b, value[IMAGE]);
    const int label = tandem_build_labels(b, "label", 1);
    x = tandem_zoo_conv(b, "", "stem", x, value[WIDTH], 7, 2);
    x = tandem_build_relu(b, "stem.relu", x);
    x = tandem_build_maxpool(b, "stem.pool", x, 3, 2, 1);
    for (int s = 0; s < N_STAGE; s++)
        for (int i = 0; i < blocks[s]; i++) {
            char scope[48];
            (void)snprintf(scope, sizeof scope, "stage%d.block%d", s + 1, i);
            x = build_block(b, scope, x, value[WIDTH] << s, s > 0 && i == 0 ? 2 : 1);
        }
    tandem_build_cross_entropy(b, "loss", tandem_zoo_pooled_head(b, x, value[CLASSES], 0.01f), label);
}

static int build_basic(tandem_builder *b, const char *scope, int x, int64_t channels, int stride)
{
    return tandem_zoo_residual(b, scope, x, channels, stride, 0);
}

static tandem_status build_resnet18(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    (void)error; /* all values fit each other */
    build_resnet(b, value, build_basic, (const int[N_STAGE]){2, 2, 2, 2});
    return TANDEM_OK;
}

static tandem_status build_resnet50(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    (void)error;
    build_resnet(b, value, tandem_zoo_bottleneck, (const int[N_STAGE]){3, 4, 6, 3});
    return TANDEM_OK;
}

/* The published rate, 0.1 for a batch of 256, scaled to 16. Without warm-up the deeper network needs less. */
const tandem_zoo_model tandem_zoo_resnet18 = {
    .model = {"resnet18", "residual network of 18 layers for ImageNet", "images", options},
    .optimizer = {.kind = TANDEM_SGD, .rate = 0.00625f, .momentum = 0.9f, .decay = 1e-4f},
    .build = build_resnet18,
};
const tandem_zoo_model tandem_zoo_resnet50 = {
    .model = {"resnet50", "residual network of 50 layers, with bottlenecks, for ImageNet", "images", options},
    .optimizer = {.kind = TANDEM_SGD, .rate = 0.002f, .momentum = 0.9f, .decay = 1e-4f},
    .build = build_resnet50,
};
