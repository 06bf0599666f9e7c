/* gpt2_small.c: a transformer that predicts the next token; its output layer is the transposed word
 * embedding. Source: Radford et al., "Language models are unsupervised multitask learners", 2019: the
 * smallest of its four models; the next one is width=1024,layers=24,heads=16. dropout=0.1 drops as published:
 * embeddings, attention weights, and results that join the residual stream. */
#include "graph/zoo/zoo.h"

enum { SEQ, WIDTH, LAYERS, HEADS, VOCABULARY, POSITIONS, DROPOUT };
static const tandem_model_option options[] = {
    [SEQ] = {"seq", 1024, 1, 65536, "tokens per sample; at most the positions"},
    [WIDTH] = {"width", 768, 1, 16384, "channels per token; a multiple of the heads"},
    [LAYERS] = {"layers", 12, 1, 256, "blocks"},
    [HEADS] = {"heads", 12, 1, 256, "attention heads"},
    [VOCABULARY] = {"vocabulary", 50257, 2, 1 << 20, "number of tokens"},
    [POSITIONS] = {"positions", 1024, 1, 65536, "rows of the table of positions"},
    [DROPOUT] = TANDEM_ZOO_DROPOUT_OPTION,
    {NULL, 0, 0, 0, NULL},
};

static tandem_status build_gpt2_small(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    tandem_status status = tandem_zoo_heads_check("gpt2_small", value[WIDTH], value[HEADS], error);
    if (status == TANDEM_OK)
        status = tandem_zoo_positions_check("gpt2_small", value[SEQ], value[POSITIONS], error);
    if (status != TANDEM_OK) return status;
    const tandem_zoo_transformer config = {.batch = tandem_builder_batch(b),
                                           .length = value[SEQ],
                                           .width = value[WIDTH],
                                           .depth = value[LAYERS],
                                           .heads = value[HEADS],
                                           .ratio = 4,
                                           .causal = 1,
                                           .dropout = tandem_zoo_fraction(value[DROPOUT]),
                                           .attention_dropout = tandem_zoo_fraction(value[DROPOUT])};
    const int tokens = tandem_build_tokens(b, "tokens", value[SEQ]);
    const int label = tandem_build_labels(b, "label", value[SEQ]);
    const int word = tandem_build_embedding(b, "embedding", tokens, value[VOCABULARY], value[WIDTH]);
    int x = tandem_build_row_bias(b, "position", word, value[POSITIONS], 0.01f);
    x = tandem_build_dropout(b, "position.dropout", x, config.dropout);
    x = tandem_zoo_blocks(b, x, &config);
    x = tandem_build_tied(b, "head", x, word);
    tandem_build_cross_entropy(b, "loss", x, label);
    return TANDEM_OK;
}

const tandem_zoo_model tandem_zoo_gpt2_small = {
    .model = {"gpt2_small", "causal transformer with a tied head", "text", options},
    .optimizer = {.kind = TANDEM_ADAMW,
                  .rate = 2.5e-4f,
                  .beta1 = 0.9f,
                  .beta2 = 0.95f,
                  .epsilon = 1e-8f,
                  .decay = 0.1f},
    .build = build_gpt2_small,
};
