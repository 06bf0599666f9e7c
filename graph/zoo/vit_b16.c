/* vit_b16.c: a vision transformer with a class token: a trained row before the patches, which
 * the head reads at the end. Source: Dosovitskiy et al., ICLR 2021, ViT-B/16; ViT-L/16 is
 * width=1024,layers=24,heads=16. dropout=0.1 drops as published (appendix B.1): after the positions, and
 * after every linear layer but those of queries, keys and values. */
#include "graph/zoo/zoo.h"

enum { IMAGE, PATCH, WIDTH, LAYERS, HEADS, CLASSES, DROPOUT };
static const tandem_model_option options[] = {
    [IMAGE] = TANDEM_ZOO_IMAGENET_OPTION(1),
    [PATCH] = {"patch", 16, 1, 256, "height and width of a patch; divides the image's"},
    [WIDTH] = {"width", 768, 1, 16384, "channels per token; a multiple of the heads"},
    [LAYERS] = {"layers", 12, 1, 256, "blocks"},
    [HEADS] = {"heads", 12, 1, 256, "attention heads"},
    [CLASSES] = TANDEM_ZOO_IMAGENET_CLASSES_OPTION,
    [DROPOUT] = TANDEM_ZOO_DROPOUT_OPTION,
    {NULL, 0, 0, 0, NULL},
};

static tandem_status build_vit_b16(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    tandem_status status = tandem_zoo_patch_check("vit_b16", value[IMAGE], value[PATCH], error);
    if (status == TANDEM_OK) status = tandem_zoo_heads_check("vit_b16", value[WIDTH], value[HEADS], error);
    if (status != TANDEM_OK) return status;
    int x = tandem_zoo_images(b, value[IMAGE]);
    const int label = tandem_build_labels(b, "label", 1);
    x = tandem_zoo_patches(b, x, value[PATCH], value[WIDTH]);
    x = tandem_build_concat_token(b, "class", x, 0.02f);
    x = tandem_build_bias(b, "position", x, 2, 0.02f);
    const tandem_zoo_transformer config = {.batch = tandem_builder_batch(b),
                                           .length = tandem_builder_shape(b, x)->dim[1],
                                           .width = value[WIDTH],
                                           .depth = value[LAYERS],
                                           .heads = value[HEADS],
                                           .ratio = 4,
                                           .dropout = tandem_zoo_fraction(value[DROPOUT]),
                                           .mlp_dropout = tandem_zoo_fraction(value[DROPOUT])};
    x = tandem_build_dropout(b, "position.dropout", x, config.dropout);
    x = tandem_zoo_blocks(b, x, &config);
    x = tandem_zoo_first_token(b, "class.out", x);
    x = tandem_zoo_linear(b, "head", x, value[CLASSES], 0.02f);
    tandem_build_cross_entropy(b, "loss", x, label);
    return TANDEM_OK;
}

const tandem_zoo_model tandem_zoo_vit_b16 = {
    .model = {"vit_b16", "vision transformer with a class token, for ImageNet", "images", options},
    .optimizer = {.kind = TANDEM_ADAMW,
                  .rate = 3e-4f,
                  .beta1 = 0.9f,
                  .beta2 = 0.999f,
                  .epsilon = 1e-8f,
                  .decay = 0.3f},
    .build = build_vit_b16,
};
