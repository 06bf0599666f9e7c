/* vit_tiny.c: a vision transformer. Source: Dosovitskiy et al., ICLR 2021, with the mean over the tokens
 * instead of a class token (appendix D.3). */
#include "graph/zoo/zoo.h"

enum { IMAGE, PATCH, WIDTH, DEPTH, HEADS, MLP, CLASSES, DROPOUT };
static const tandem_model_option options[] = {
    [IMAGE] = TANDEM_ZOO_IMAGE_OPTION,
    [PATCH] = {"patch", 4, 1, 256, "height and width of a patch; divides the image's"},
    [WIDTH] = {"width", 192, 1, 16384, "channels per token; a multiple of the heads"},
    [DEPTH] = {"depth", 4, 1, 256, "blocks"},
    [HEADS] = {"heads", 3, 1, 256, "attention heads"},
    [MLP] = {"mlp", 4, 1, 16, "inner width of a block's mlp, in widths"},
    [CLASSES] = TANDEM_ZOO_CLASSES_OPTION,
    [DROPOUT] = TANDEM_ZOO_DROPOUT_OPTION,
    {NULL, 0, 0, 0, NULL},
};

/* (batch, tokens, width) → (batch, width): the mean */
static int build_token_mean(tandem_builder *b, int x, int64_t tokens, int64_t width)
{
    const int64_t column[4] = {tandem_builder_batch(b), tokens, 1, width}, flat[2] = {column[0], width};
    x = tandem_build_reshape(b, "column", x, 4, column);
    x = tandem_build_avgpool(b, "pool", x, (int)tokens, 1, 1);
    return tandem_build_reshape(b, "flatten", x, 2, flat);
}

static tandem_status build_vit_tiny(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    tandem_status status = tandem_zoo_patch_check("vit_tiny", value[IMAGE], value[PATCH], error);
    if (status == TANDEM_OK) status = tandem_zoo_heads_check("vit_tiny", value[WIDTH], value[HEADS], error);
    if (status != TANDEM_OK) return status;
    int x = tandem_zoo_images(b, value[IMAGE]);
    const int label = tandem_build_labels(b, "label", 1);
    x = tandem_zoo_patches(b, x, value[PATCH], value[WIDTH]);
    const int64_t tokens = tandem_builder_shape(b, x)->dim[1];
    const tandem_zoo_transformer config = {.batch = tandem_builder_batch(b),
                                           .length = tokens,
                                           .width = value[WIDTH],
                                           .depth = value[DEPTH],
                                           .heads = value[HEADS],
                                           .ratio = value[MLP],
                                           .dropout = tandem_zoo_fraction(value[DROPOUT]),
                                           .mlp_dropout = tandem_zoo_fraction(value[DROPOUT])};
    x = tandem_build_bias(b, "position", x, 2, 0.02f);
    x = tandem_build_dropout(b, "position.dropout", x, config.dropout);
    x = tandem_zoo_blocks(b, x, &config);
    x = build_token_mean(b, x, tokens, value[WIDTH]);
    x = tandem_zoo_linear(b, "head", x, value[CLASSES], 0.02f);
    tandem_build_cross_entropy(b, "loss", x, label);
    return TANDEM_OK;
}

const tandem_zoo_model tandem_zoo_vit_tiny = {
    .model = {"vit_tiny", "vision transformer", "images", options},
    .optimizer = {.kind = TANDEM_ADAMW,
                  .rate = 1e-3f,
                  .beta1 = 0.9f,
                  .beta2 = 0.999f,
                  .epsilon = 1e-8f,
                  .decay = 0.05f},
    .build = build_vit_tiny,
};
