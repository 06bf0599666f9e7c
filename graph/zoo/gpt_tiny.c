/* gpt_tiny.c: a transformer that predicts the next symbol of a text. Source: Radford et al., 2019 (GPT-2);
 * its output layer has a weight of its own instead of the transposed embedding. */
#include "graph/zoo/zoo.h"

enum { LENGTH, WIDTH, DEPTH, HEADS, VOCABULARY, DROPOUT };
static const tandem_model_option options[] = {
    [LENGTH] = {"length", 64, 1, 65536, "symbols per sample"},
    [WIDTH] = {"width", 128, 1, 16384, "channels per symbol; a multiple of the heads"},
    [DEPTH] = {"depth", 4, 1, 256, "blocks"},
    [HEADS] = {"heads", 4, 1, 256, "attention heads"},
    [VOCABULARY] = {"vocabulary", 128, 2, 1 << 20, "number of symbols"},
    [DROPOUT] = TANDEM_ZOO_DROPOUT_OPTION,
    {NULL, 0, 0, 0, NULL},
};

static tandem_status build_gpt_tiny(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    const tandem_status status = tandem_zoo_heads_check("gpt_tiny", value[WIDTH], value[HEADS], error);
    if (status != TANDEM_OK) return status;
    const tandem_zoo_transformer config = {.batch = tandem_builder_batch(b),
                                           .length = value[LENGTH],
                                           .width = value[WIDTH],
                                           .depth = value[DEPTH],
                                           .heads = value[HEADS],
                                           .ratio = 4,
                                           .causal = 1,
                                           .dropout = tandem_zoo_fraction(value[DROPOUT]),
                                           .attention_dropout = tandem_zoo_fraction(value[DROPOUT])};
    int x = tandem_build_tokens(b, "tokens", value[LENGTH]);
    const int label = tandem_build_labels(b, "label", value[LENGTH]);
    x = tandem_build_embedding(b, "embedding", x, value[VOCABULARY], value[WIDTH]);
    x = tandem_build_bias(b, "position", x, 2, 0.02f);
    x = tandem_build_dropout(b, "position.dropout", x, config.dropout);
    x = tandem_zoo_blocks(b, x, &config);
    x = tandem_build_linear(b, "head", x, value[VOCABULARY], 0.02f);
    tandem_build_cross_entropy(b, "loss", x, label);
    return TANDEM_OK;
}

const tandem_zoo_model tandem_zoo_gpt_tiny = {
    .model = {"gpt_tiny", "causal transformer over symbols", "text", options},
    .optimizer = {.kind = TANDEM_ADAMW,
                  .rate = 1e-3f,
                  .beta1 = 0.9f,
                  .beta2 = 0.999f,
                  .epsilon = 1e-8f,
                  .decay = 0.05f},
    .build = build_gpt_tiny,
};
