/* bert_base.c: a bidirectional transformer. Source: Devlin et al., "BERT: pre-training of deep bidirectional
 * transformers for language understanding", NAACL 2019; BERT-large is width=1024,layers=24,heads=16.
 *
 * head=mlm predicts the hidden tokens: a linear layer with gelu and layernorm, then the transposed word
 * embedding and a bias. As in the authors' program, only hidden tokens reach this head, since the others have
 * no label. head=class predicts the class of a sample from its first token: a linear layer with tanh
 * ("pooler") and another one. Both read every token as segment 0. Samples have full length, so there is no
 * mask. There is no prediction of the next sentence. dropout=0.1 drops as published: embeddings, attention
 * weights, results that join the residual stream, and the pooler's. */
#include "graph/zoo/zoo.h"

enum { SEQ, WIDTH, LAYERS, HEADS, VOCABULARY, POSITIONS, HEAD, CLASSES, DROPOUT };
static const tandem_model_option options[] = {
    [SEQ] = {"seq", 128, 1, 65536, "tokens per sample; at most the positions"},
    [WIDTH] = {"width", 768, 1, 16384, "channels per token; a multiple of the heads"},
    [LAYERS] = {"layers", 12, 1, 256, "blocks"},
    [HEADS] = {"heads", 12, 1, 256, "attention heads"},
    [VOCABULARY] = {"vocabulary", 30522, 2, 1 << 20, "number of tokens; the last one marks a hidden token"},
    [POSITIONS] = {"positions", 512, 1, 65536, "rows of the table of positions"},
    [HEAD] = TANDEM_ZOO_HEAD_OPTION,
    [CLASSES] = {"classes", 2, 2, 65536, "number of classes; with head=class"},
    [DROPOUT] = TANDEM_ZOO_DROPOUT_OPTION,
    {NULL, 0, 0, 0, NULL},
};
enum { N_SEGMENT = 2 };
static const float deviation = 0.02f;

/* Words, positions and segments, and the norm of their sum. */
static int build_bert_embedding(tandem_builder *b, int word, const int64_t *value)
{
    const int64_t alone[3] = {tandem_builder_batch(b) * value[SEQ], 1, value[WIDTH]},
                  joined[3] = {tandem_builder_batch(b), value[SEQ], value[WIDTH]};
    int x = tandem_build_row_bias(b, "position", word, value[POSITIONS], deviation);
    x = tandem_build_reshape(b, "segment.tokens", x, 3, alone);
    x = tandem_build_row_bias(b, "segment", x, N_SEGMENT, deviation);
    x = tandem_build_reshape(b, "segment.joined", x, 3, joined);
    x = tandem_build_layernorm(b, "embedding.norm", x);
    return tandem_build_dropout(b, "embedding.dropout", x, tandem_zoo_fraction(value[DROPOUT]));
}

static int build_mlm_head(tandem_builder *b, int x, int label, int word, int64_t width)
{
    x = tandem_build_gather_labelled(b, "hidden", x, label);
    x = tandem_zoo_linear(b, "transform", x, width, deviation);
    x = tandem_build_gelu(b, "transform.gelu", x);
    x = tandem_build_layernorm(b, "transform.norm", x);
    x = tandem_build_tied(b, "head", x, word);
    return tandem_build_bias(b, "head.bias", x, 1, 0);
}

static int build_class_head(tandem_builder *b, int x, const int64_t *value)
{
    x = tandem_zoo_first_token(b, "first", x);
    x = tandem_zoo_linear(b, "pooler", x, value[WIDTH], deviation);
    x = tandem_build_tanh(b, "pooler.tanh", x);
    x = tandem_build_dropout(b, "pooler.dropout", x, tandem_zoo_fraction(value[DROPOUT]));
    return tandem_zoo_linear(b, "head", x, value[CLASSES], deviation);
}

static tandem_status build_bert_base(tandem_builder *b, const int64_t *value, tandem_error *error)
{
    tandem_status status = tandem_zoo_heads_check("bert_base", value[WIDTH], value[HEADS], error);
    if (status == TANDEM_OK)
        status = tandem_zoo_positions_check("bert_base", value[SEQ], value[POSITIONS], error);
    if (status != TANDEM_OK) return status;
    const int predicts_hidden = value[HEAD] == TANDEM_ZOO_HEAD_MLM;
    const int64_t hidden = (15 * value[SEQ] + 50) / 100; /* 15 %, rounded */
    const tandem_zoo_transformer config = {.batch = tandem_builder_batch(b),
                                           .length = value[SEQ],
                                           .width = value[WIDTH],
                                           .depth = value[LAYERS],
                                           .heads = value[HEADS],
                                           .ratio = 4,
                                           .post_norm = 1,
                                           .dropout = tandem_zoo_fraction(value[DROPOUT]),
                                           .attention_dropout = tandem_zoo_fraction(value[DROPOUT])};
    const int tokens = tandem_build_tokens(b, "tokens", value[SEQ]);
    const int label = predicts_hidden
                          ? tandem_build_masked_labels(b, "label", value[SEQ], hidden ? hidden : 1)
                          : tandem_build_labels(b, "label", 1);
    const int word = tandem_build_embedding(b, "embedding", tokens, value[VOCABULARY], value[WIDTH]);
    int x = tandem_zoo_blocks(b, build_bert_embedding(b, word, value), &config);
    x = predicts_hidden ? build_mlm_head(b, x, label, word, value[WIDTH]) : build_class_head(b, x, value);
    tandem_build_cross_entropy(b, "loss", x, label);
    return TANDEM_OK;
}

const tandem_zoo_model tandem_zoo_bert_base = {
    .model = {"bert_base", "bidirectional transformer with a choice of heads", "text", options},
    .optimizer = {.kind = TANDEM_ADAMW,
                  .rate = 1e-4f,
                  .beta1 = 0.9f,
                  .beta2 = 0.999f,
                  .epsilon = 1e-6f,
                  .decay = 0.01f},
    .build = build_bert_base,
};
