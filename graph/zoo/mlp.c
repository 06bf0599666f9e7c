/* mlp.c: linear layers with relu, or gelu, between them: the smallest model that trains. */
#include "graph/zoo/zoo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { WIDTH, DEPTH, IMAGE, CLASSES, GELU };
static const tandem_model_option options[] = {
    [WIDTH] = {"width", 256, 1, 65536, "outputs of a hidden layer"},
    [DEPTH] = {"depth", 2, 1, 256, "hidden layers"},
    [IMAGE] = TANDEM_ZOO_IMAGE_OPTION,
    [CLASSES] = TANDEM_ZOO_CLASSES_OPTION,
    [GELU] = TANDEM_ZOO_GELU_OPTION,
    {NULL, 0, 0, 0, NULL},
};

static tandem_status build_mlp(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    (void)error; /* all values fit each other */
    const int64_t h = tandem_zoo_height(value[IMAGE]), w = tandem_zoo_width(value[IMAGE]);
    const int64_t c = tandem_zoo_channels(value[IMAGE]);
    const int64_t flat[2] = {tandem_builder_batch(b), h * w * c};
    int x = tandem_zoo_images(b, value[IMAGE]);
    const int label = tandem_build_labels(b, "label", 1);
    x = tandem_build_reshape(b, "flatten", x, 2, flat);
    int64_t k = flat[1];
    for (int64_t i = 0; i < value[DEPTH]; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "fc%" PRId64, i + 1);
        x = tandem_zoo_linear(b, name, x, value[WIDTH], sqrtf(2 / (float)k));
        x = tandem_zoo_activation(b, name, "relu", x, value[GELU] != 0);
        k = value[WIDTH];
    }
    x = tandem_zoo_linear(b, "head", x, value[CLASSES], sqrtf(1 / (float)k));
    tandem_build_cross_entropy(b, "loss", x, label);
    return TANDEM_OK;
}

const tandem_zoo_model tandem_zoo_mlp = {
    .model = {"mlp", "multilayer perceptron with relu", "images", options},
    .optimizer = {.kind = TANDEM_SGD, .rate = 0.05f, .momentum = 0.9f},
    .build = build_mlp,
};
