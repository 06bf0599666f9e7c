/* transformer.c: the blocks that vit_tiny and gpt_tiny are made of. */
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

/* (batch, length, width) → (batch, heads, length, width / heads) */
static int split(tandem_builder *b, const char *scope, const char *part, int x, const tandem_zoo_transformer *f)
{
    static const int axis[4] = {0, 2, 1, 3};
    const int64_t dim[4] = {f->batch, f->length, f->heads, f->width / f->heads};
    const tandem_zoo_name name = tandem_zoo_in(scope, part);
    int t = tandem_zoo_linear(b, name.text, x, f->width, deviation);
    t = tandem_build_reshape(b, tandem_zoo_in(name.text, "split").text, t, 4, dim);
    return tandem_build_transpose(b, tandem_zoo_in(name.text, "heads").text, t, axis);
}

static int attention(tandem_builder *b, const char *scope, int x, const tandem_zoo_transformer *f, float residual)
{
    static const int axis[4] = {0, 2, 1, 3};
    const int64_t dim[3] = {f->batch, f->length, f->width};
    const float scale = 1 / sqrtf((float)(f->width / f->heads));
    const int q = split(b, scope, "q", x, f);
    const int k = split(b, scope, "k", x, f);
    const int v = split(b, scope, "v", x, f);
    int t = tandem_build_matmul(b, tandem_zoo_in(scope, "scores").text, q, k, 1);
    t = tandem_build_softmax(b, tandem_zoo_in(scope, "softmax").text, t, scale, f->causal);
    t = tandem_build_matmul(b, tandem_zoo_in(scope, "mix").text, t, v, 0);
    t = tandem_build_transpose(b, tandem_zoo_in(scope, "mix.rows").text, t, axis);
    t = tandem_build_reshape(b, tandem_zoo_in(scope, "mix.merge").text, t, 3, dim);
    return tandem_zoo_linear(b, tandem_zoo_in(scope, "out").text, t, f->width, residual);
}

static int mlp(tandem_builder *b, const char *scope, int x, const tandem_zoo_transformer *f, float residual)
{
    int t = tandem_zoo_linear(b, tandem_zoo_in(scope, "fc1").text, x, f->width * f->ratio, deviation);
    t = tandem_build_gelu(b, tandem_zoo_in(scope, "gelu").text, t);
    return tandem_zoo_linear(b, tandem_zoo_in(scope, "fc2").text, t, f->width, residual);
}

int tandem_zoo_blocks(tandem_builder *b, int x, const tandem_zoo_transformer *f)
{
    const float residual = deviation / sqrtf(2 * (float)f->depth);
    for (int64_t i = 0; i < f->depth; i++) {
        char scope[32];
        (void)snprintf(scope, sizeof scope, "block%" PRId64, i);
        int t = tandem_build_layernorm(b, tandem_zoo_in(scope, "norm1").text, x);
        t = attention(b, tandem_zoo_in(scope, "attention").text, t, f, residual);
        x = tandem_build_add(b, tandem_zoo_in(scope, "add1").text, x, t);
        t = tandem_build_layernorm(b, tandem_zoo_in(scope, "norm2").text, x);
        t = mlp(b, tandem_zoo_in(scope, "mlp").text, t, f, residual);
        x = tandem_build_add(b, tandem_zoo_in(scope, "add2").text, x, t);
    }
    return tandem_build_layernorm(b, "norm", x);
}
