/* transformer.c: attention, mlp and blocks of transformers. */
#include "graph/zoo/zoo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const float deviation = 0.02f;

tandem_status tandem_zoo_heads_check(const char *model, int64_t width, int64_t heads, tandem_error *error)
{
    if (width % heads == 0) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "model %s: width=%" PRId64 " with heads=%" PRId64
                            "; the width must be a multiple of the heads",
                            model, width, heads);
}

tandem_status tandem_zoo_patch_check(const char *model, int64_t image, int64_t patch, tandem_error *error)
{
    const int64_t h = tandem_zoo_height(image), w = tandem_zoo_width(image);
    if (h % patch == 0 && w % patch == 0) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "model %s: patch=%" PRId64 " on images of %" PRId64 "x%" PRId64
                            "; height and width must be multiples of the patch",
                            model, patch, h, w);
}

int tandem_zoo_patches(tandem_builder *b, int x, int64_t patch, int64_t width)
{
    x = tandem_build_conv2d(b, "patch", x, width, (int)patch, (int)patch, 0);
    const tandem_shape *grid = tandem_builder_shape(b, x);
    const int64_t dim[3] = {tandem_builder_batch(b), grid->dim[1] * grid->dim[2], width};
    x = tandem_build_reshape(b, "tokens", x, 3, dim);
    return tandem_build_bias(b, "patch.bias", x, 1, 0);
}

tandem_status tandem_zoo_positions_check(const char *model, int64_t seq, int64_t positions,
                                         tandem_error *error)
{
    if (seq <= positions) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "model %s: seq=%" PRId64 " with positions=%" PRId64
                            "; allowed are sequences up to the number of positions",
                            model, seq, positions);
}

/* (batch, length, width) → (batch, heads, length, width / heads) */
static int build_split_heads(tandem_builder *b, const char *scope, const char *part, int x,
                             const tandem_zoo_transformer *f)
{
    static const int axis[4] = {0, 2, 1, 3};
    const int64_t dim[4] = {f->batch, f->length, f->heads, f->width / f->heads};
    const tandem_zoo_name name = tandem_zoo_join_name(scope, part);
    int t = tandem_zoo_linear(b, name.text, x, f->width, deviation);
    t = tandem_build_reshape(b, tandem_zoo_join_name(name.text, "split").text, t, 4, dim);
    return tandem_build_transpose(b, tandem_zoo_join_name(name.text, "heads").text, t, axis);
}

static int build_attention(tandem_builder *b, const char *scope, int x, const tandem_zoo_transformer *f,
                           float residual)
{
    static const int axis[4] = {0, 2, 1, 3};
    const int64_t dim[3] = {f->batch, f->length, f->width};
    const float scale = 1 / sqrtf((float)(f->width / f->heads));
    const int q = build_split_heads(b, scope, "q", x, f);
    const int k = build_split_heads(b, scope, "k", x, f);
    const int v = build_split_heads(b, scope, "v", x, f);
    int t = tandem_build_matmul(b, tandem_zoo_join_name(scope, "scores").text, q, k, 1);
    t = tandem_build_softmax(b, tandem_zoo_join_name(scope, "softmax").text, t, scale, f->causal);
    t = tandem_build_dropout(b, tandem_zoo_join_name(scope, "softmax.dropout").text, t, f->attention_dropout);
    t = tandem_build_matmul(b, tandem_zoo_join_name(scope, "mix").text, t, v, 0);
    t = tandem_build_transpose(b, tandem_zoo_join_name(scope, "mix.rows").text, t, axis);
    t = tandem_build_reshape(b, tandem_zoo_join_name(scope, "mix.merge").text, t, 3, dim);
    t = tandem_zoo_linear(b, tandem_zoo_join_name(scope, "out").text, t, f->width, residual);
    return tandem_build_dropout(b, tandem_zoo_join_name(scope, "dropout").text, t, f->dropout);
}

static int build_transformer_mlp(tandem_builder *b, const char *scope, int x, const tandem_zoo_transformer *f,
                                 float residual)
{
    int t = tandem_zoo_linear(b, tandem_zoo_join_name(scope, "fc1").text, x, f->width * f->ratio, deviation);
    t = tandem_build_gelu(b, tandem_zoo_join_name(scope, "gelu").text, t);
    t = tandem_build_dropout(b, tandem_zoo_join_name(scope, "gelu.dropout").text, t, f->mlp_dropout);
    t = tandem_zoo_linear(b, tandem_zoo_join_name(scope, "fc2").text, t, f->width, residual);
    return tandem_build_dropout(b, tandem_zoo_join_name(scope, "dropout").text, t, f->dropout);
}

static int build_post_norm_blocks(tandem_builder *b, int x, const tandem_zoo_transformer *f)
{
    for (int64_t i = 0; i < f->depth; i++) {
        char part[32];
        (void)snprintf(part, sizeof part, "block%" PRId64, i);
        const tandem_zoo_name block = tandem_zoo_join_name(f->scope, part);
        const char *const scope = block.text;
        int t = build_attention(b, tandem_zoo_join_name(scope, "attention").text, x, f, deviation);
        x = tandem_build_add(b, tandem_zoo_join_name(scope, "add1").text, x, t);
        x = tandem_build_layernorm(b, tandem_zoo_join_name(scope, "norm1").text, x);
        t = build_transformer_mlp(b, tandem_zoo_join_name(scope, "mlp").text, x, f, deviation);
        x = tandem_build_add(b, tandem_zoo_join_name(scope, "add2").text, x, t);
        x = tandem_build_layernorm(b, tandem_zoo_join_name(scope, "norm2").text, x);
    }
    return x;
}

int tandem_zoo_blocks(tandem_builder *b, int x, const tandem_zoo_transformer *f)
{
    const float residual = deviation / sqrtf(2 * (float)f->depth);
    if (f->post_norm) return build_post_norm_blocks(b, x, f);
    for (int64_t i = 0; i < f->depth; i++) {
        char part[32];
        (void)snprintf(part, sizeof part, "block%" PRId64, i);
        const tandem_zoo_name block = tandem_zoo_join_name(f->scope, part);
        const char *const scope = block.text;
        int t = tandem_build_layernorm(b, tandem_zoo_join_name(scope, "norm1").text, x);
        t = build_attention(b, tandem_zoo_join_name(scope, "attention").text, t, f, residual);
        x = tandem_build_add(b, tandem_zoo_join_name(scope, "add1").text, x, t);
        t = tandem_build_layernorm(b, tandem_zoo_join_name(scope, "norm2").text, x);
        t = build_transformer_mlp(b, tandem_zoo_join_name(scope, "mlp").text, t, f, residual);
        x = tandem_build_add(b, tandem_zoo_join_name(scope, "add2").text, x, t);
    }
    return tandem_build_layernorm(b, tandem_zoo_join_name(f->scope, "norm").text, x);
}

int tandem_zoo_first_token(tandem_builder *b, const char *name, int x)
{
    const int64_t flat[2] = {tandem_builder_batch(b), tandem_shape_last(tandem_builder_shape(b, x))};
    x = tandem_build_slice(b, name, x, 0, 1);
    return tandem_build_reshape(b, tandem_zoo_join_name(name, "flat").text, x, 2, flat);
}
