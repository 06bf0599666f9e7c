/* vgg16_bn.c: thirteen 3x3 convolutions and three large linear layers. Source: Simonyan, Zisserman, "Very
 * deep convolutional networks for large-scale image recognition", ICLR 2015, configuration D, with a
 * batchnorm after each convolution, which keeps its bias (Ioffe, Szegedy, ICML 2015). The first linear layer
 * reads the pooled image, 7x7 of 224x224. dropout=0.5 drops as published: after the two hidden linear
 * layers. */
#include "graph/zoo/zoo.h"

#include <stdio.h>

enum { N_STAGE = 5, N_HIDDEN = 2 };
enum { WIDTH, HIDDEN, IMAGE, CLASSES, DROPOUT };
static const tandem_model_option options[] = {
    [WIDTH] = {"width", 64, 1, 4096, "channels of the first stage; they double up to eightfold"},
    [HIDDEN] = {"hidden", 4096, 1, 65536, "outputs of the two hidden linear layers"},
    [IMAGE] = TANDEM_ZOO_IMAGENET_OPTION(32),
    [CLASSES] = TANDEM_ZOO_IMAGENET_CLASSES_OPTION,
    [DROPOUT] = TANDEM_ZOO_DROPOUT_OPTION,
    {NULL, 0, 0, 0, NULL},
};

static int build_conv_stage(tandem_builder *b, int x, int number, int convs, int64_t channels)
{
    char scope[32], part[16];
    (void)snprintf(scope, sizeof scope, "stage%d", number);
    for (int i = 1; i <= convs; i++) {
        (void)snprintf(part, sizeof part, "conv%d", i);
        const tandem_zoo_name name = tandem_zoo_join_name(scope, part);
        x = tandem_build_conv2d(b, name.text, x, channels, 3, 1, 1);
        x = tandem_build_bias(b, tandem_zoo_join_name(name.text, "bias").text, x, 1, 0);
        x = tandem_build_batchnorm(b, tandem_zoo_join_name(name.text, "norm").text, x);
        x = tandem_build_relu(b, tandem_zoo_join_name(name.text, "relu").text, x);
    }
    return tandem_build_maxpool(b, tandem_zoo_join_name(scope, "pool").text, x, 2, 2, 0);
}

static tandem_status build_vgg16_bn(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    static const int convs[N_STAGE] = {2, 2, 3, 3, 3};
    (void)error; /* all values fit each other */
    int x = tandem_zoo_images(b, value[IMAGE]);
    const int label = tandem_build_labels(b, "label", 1);
    for (int s = 0; s < N_STAGE; s++)
        x = build_conv_stage(b, x, s + 1, convs[s], value[WIDTH] << (s < 3 ? s : 3));
    int64_t flat[2] = {tandem_builder_batch(b), 0};
    flat[1] = tandem_shape_elements(tandem_builder_shape(b, x)) / flat[0];
    x = tandem_build_reshape(b, "flatten", x, 2, flat);
    for (int i = 1; i <= N_HIDDEN; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "fc%d", i);
        x = tandem_zoo_linear(b, name, x, value[HIDDEN], 0.01f);
        x = tandem_build_relu(b, tandem_zoo_join_name(name, "relu").text, x);
        x = tandem_build_dropout(b, tandem_zoo_join_name(name, "dropout").text, x,
                                 tandem_zoo_fraction(value[DROPOUT]));
    }
    x = tandem_zoo_linear(b, "head", x, value[CLASSES], 0.01f);
    tandem_build_cross_entropy(b, "loss", x, label);
    return TANDEM_OK;
}

const tandem_zoo_model tandem_zoo_vgg16_bn = {
    .model = {"vgg16_bn", "thirteen convolutions with batchnorm, for ImageNet", "images", options},
    .optimizer = {.kind = TANDEM_SGD, .rate = 0.01f, .momentum = 0.9f, .decay = 5e-4f},
    .build = build_vgg16_bn,
};
