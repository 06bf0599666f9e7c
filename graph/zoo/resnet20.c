/* resnet20.c: the residual network for small images. Source: He, Zhang, Ren, Sun, CVPR 2016, section 4.2
 * (CIFAR-10), with a convolution of 1x1 and a batchnorm on the shortcut wherever the shape changes (their
 * option B). */
#include "graph/zoo/zoo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { N_STAGE = 3 };
enum { WIDTH, BLOCKS, IMAGE, CLASSES };
static const tandem_model_option options[] = {
    [WIDTH] = {"width", 16, 1, 4096, "channels of the first stage; they double from stage to stage"},
    [BLOCKS] = {"blocks", 3, 1, 64, "blocks of two convolutions in each of the three stages"},
    [IMAGE] = TANDEM_ZOO_IMAGE_OPTION,
    [CLASSES] = TANDEM_ZOO_CLASSES_OPTION,
    {NULL, 0, 0, 0, NULL},
};

/* A convolution and its batchnorm: "scope.part", "scope.part.norm". */
static int conv(tandem_builder *b, const char *scope, const char *part, int x, int64_t channels, int kernel, int stride)
{
    const tandem_zoo_name name = tandem_zoo_in(scope, part);
    x = tandem_build_conv2d(b, name.text, x, channels, kernel, stride, kernel / 2);
    return tandem_build_batchnorm(b, tandem_zoo_in(name.text, "norm").text, x);
}

static int block(tandem_builder *b, const char *scope, int x, int64_t channels, int stride, int reshapes)
{
    int t = conv(b, scope, "conv1", x, channels, 3, stride);
    t = tandem_build_relu(b, tandem_zoo_in(scope, "relu1").text, t);
    t = conv(b, scope, "conv2", t, channels, 3, 1);
    if (reshapes) x = conv(b, scope, "shortcut", x, channels, 1, stride);
    t = tandem_build_add(b, tandem_zoo_in(scope, "add").text, x, t);
    return tandem_build_relu(b, tandem_zoo_in(scope, "relu2").text, t);
}

static tandem_status build(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    (void)error; /* any values go together */
    int64_t h = tandem_zoo_height(value[IMAGE]), w = tandem_zoo_width(value[IMAGE]), c = value[WIDTH];
    int x = tandem_build_images(b, "image", h, w, tandem_zoo_channels(value[IMAGE]));
    const int label = tandem_build_labels(b, "label", 1);
    x = conv(b, "", "conv", x, c, 3, 1);
    x = tandem_build_relu(b, "relu", x);
    for (int s = 0; s < N_STAGE; s++) {
        const int first_stride = s > 0 ? 2 : 1;
        c = value[WIDTH] << s;
        h = (h - 1) / first_stride + 1;
        w = (w - 1) / first_stride + 1;
        for (int64_t i = 0; i < value[BLOCKS]; i++) {
            char scope[48];
            (void)snprintf(scope, sizeof scope, "stage%d.block%" PRId64, s + 1, i);
            const int changes = s > 0 && i == 0;
            x = block(b, scope, x, c, changes ? first_stride : 1, changes);
        }
    }
    const int64_t flat[2] = {tandem_builder_batch(b), c};
    x = tandem_build_avgpool(b, "pool", x, (int)h, (int)w, 1);
    x = tandem_build_reshape(b, "flatten", x, 2, flat);
    x = tandem_zoo_linear(b, "head", x, value[CLASSES], sqrtf(1 / (float)c));
    tandem_build_cross_entropy(b, "loss", x, label);
    return TANDEM_OK;
}

const tandem_zoo_model tandem_zoo_resnet20 = {
    .model = {"resnet20", "residual network with batchnorm", "images", options},
    .optimizer = {.kind = TANDEM_SGD, .rate = 0.05f, .momentum = 0.9f, .decay = 1e-4f},
    .build = build,
};
