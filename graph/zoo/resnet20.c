/* resnet20.c: the residual network for small images. Source: He, Zhang, Ren, Sun, CVPR 2016, section 4.2
 * (CIFAR-10), with a convolution of 1x1 and a batchnorm on the shortcut wherever the shape changes (their
 * option B). */
#include "graph/zoo/zoo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { N_STAGE = 3 };
enum { WIDTH, BLOCKS, IMAGE, CLASSES, GELU };
static const tandem_model_option options[] = {
    [WIDTH] = {"width", 16, 1, 4096, "channels of the first stage; they double from stage to stage"},
    [BLOCKS] = {"blocks", 3, 1, 64, "blocks of two convolutions in each of the three stages"},
    [IMAGE] = TANDEM_ZOO_IMAGE_OPTION,
    [CLASSES] = TANDEM_ZOO_CLASSES_OPTION,
    [GELU] = TANDEM_ZOO_GELU_OPTION,
    {NULL, 0, 0, 0, NULL},
};

static tandem_status build_resnet20(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    (void)error; /* all values fit each other */
    int x = tandem_zoo_images(b, value[IMAGE]);
    const int label = tandem_build_labels(b, "label", 1);
    x = tandem_zoo_conv(b, "", "conv", x, value[WIDTH], 3, 1);
    x = tandem_zoo_activation(b, "", "relu", x, value[GELU] != 0);
    for (int s = 0; s < N_STAGE; s++) {
        for (int64_t i = 0; i < value[BLOCKS]; i++) {
            char scope[48];
            (void)snprintf(scope, sizeof scope, "stage%d.block%" PRId64, s + 1, i);
            const int changes = s > 0 && i == 0;
            x = tandem_zoo_residual(b, scope, x, value[WIDTH] << s, changes ? 2 : 1, value[GELU] != 0);
        }
    }
    const float deviation = sqrtf(1 / (float)(value[WIDTH] << (N_STAGE - 1)));
    x = tandem_zoo_pooled_head(b, x, value[CLASSES], deviation);
    tandem_build_cross_entropy(b, "loss", x, label);
    return TANDEM_OK;
}

const tandem_zoo_model tandem_zoo_resnet20 = {
    .model = {"resnet20", "residual network with batchnorm", "images", options},
    .optimizer = {.kind = TANDEM_SGD, .rate = 0.05f, .momentum = 0.9f, .decay = 1e-4f},
    .build = build_resnet20,
};
