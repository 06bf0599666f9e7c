/* layers.c: layers that several models share. Residual blocks: He, Zhang, Ren, Sun, "Deep residual learning
 * for image recognition", CVPR 2016, with shortcuts of their option B. */
#include "graph/zoo/zoo.h"

#include <stdio.h>

tandem_zoo_name tandem_zoo_join_name(const char *scope, const char *part)
{
    tandem_zoo_name name;
    const char *const before = scope ? scope : "";
    const int n = snprintf(name.text, sizeof name.text, "%s%s%s", before, *before ? "." : "", part);
    if (n >= (int)sizeof name.text) name.text[0] = '\0'; /* the builder rejects it */
    return name;
}

int tandem_zoo_linear(tandem_builder *b, const char *name, int x, int64_t n, float deviation)
{
    x = tandem_build_linear(b, name, x, n, deviation);
    return tandem_build_bias(b, tandem_zoo_join_name(name, "bias").text, x, 1, 0);
}

int tandem_zoo_images(tandem_builder *b, int64_t image)
{
    return tandem_build_images(b, "image", tandem_zoo_height(image), tandem_zoo_width(image),
                               tandem_zoo_channels(image));
}

int tandem_zoo_conv(tandem_builder *b, const char *scope, const char *part, int x, int64_t channels,
                    int kernel, int stride)
{
    const tandem_zoo_name name = tandem_zoo_join_name(scope, part);
    x = tandem_build_conv2d(b, name.text, x, channels, kernel, stride, kernel / 2);
    return tandem_build_batchnorm(b, tandem_zoo_join_name(name.text, "norm").text, x);
}

int tandem_zoo_activation(tandem_builder *b, const char *scope, const char *part, int x, int is_gelu)
{
    const tandem_zoo_name name = tandem_zoo_join_name(scope, part);
    return is_gelu ? tandem_build_gelu(b, name.text, x) : tandem_build_relu(b, name.text, x);
}

/* x + t and its activation; x through a convolution where its shape is another. */
static int add_shortcut(tandem_builder *b, const char *scope, const char *relu, int x, int t,
                        int64_t channels, int stride, int is_gelu)
{
    if (stride != 1 || tandem_shape_last(tandem_builder_shape(b, x)) != channels)
        x = tandem_zoo_conv(b, scope, "shortcut", x, channels, 1, stride);
    t = tandem_build_add(b, tandem_zoo_join_name(scope, "add").text, x, t);
    return tandem_zoo_activation(b, scope, relu, t, is_gelu);
}

int tandem_zoo_residual(tandem_builder *b, const char *scope, int x, int64_t channels, int stride,
                        int is_gelu)
{
    int t = tandem_zoo_conv(b, scope, "conv1", x, channels, 3, stride);
    t = tandem_zoo_activation(b, scope, "relu1", t, is_gelu);
    t = tandem_zoo_conv(b, scope, "conv2", t, channels, 3, 1);
    return add_shortcut(b, scope, "relu2", x, t, channels, stride, is_gelu);
}

int tandem_zoo_bottleneck(tandem_builder *b, const char *scope, int x, int64_t channels, int stride)
{
    int t = tandem_zoo_conv(b, scope, "conv1", x, channels, 1, 1);
    t = tandem_build_relu(b, tandem_zoo_join_name(scope, "relu1").text, t);
    t = tandem_zoo_conv(b, scope, "conv2", t, channels, 3, stride);
    t = tandem_build_relu(b, tandem_zoo_join_name(scope, "relu2").text, t);
    t = tandem_zoo_conv(b, scope, "conv3", t, 4 * channels, 1, 1);
    return add_shortcut(b, scope, "relu3", x, t, 4 * channels, stride, 0);
}

int tandem_zoo_pooled_head(tandem_builder *b, int x, int64_t classes, float deviation)
{
    const tandem_shape last = *tandem_builder_shape(b, x);
    const int64_t flat[2] = {tandem_builder_batch(b), last.dim[3]};
    x = tandem_build_avgpool(b, "pool", x, (int)last.dim[1], (int)last.dim[2], 1);
    x = tandem_build_reshape(b, "flatten", x, 2, flat);
    return tandem_zoo_linear(b, "head", x, classes, deviation);
}
