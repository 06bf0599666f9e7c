/* folder: graph */
/* The graph: tables, models counted by hand, shapes, signatures, hashes, first weights, and every rule that
 * can be broken. */
#include <inttypes.h>
#include <math.h>

#include "base/philox.h"
#include "graph/ir/build.h"
#include "graph/zoo/zoo.h"
#include "tests/support/tandem_test.h"

static const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.1f, .momentum = 0.9f};
static tandem_graph *const untouched = (tandem_graph *)(uintptr_t)0x10;

/* --- Small tools ---------------------------------------------------------------------------------------- */
static tandem_graph *opened(const char *model, int64_t batch)
{
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const tandem_status status = tandem_graph_open(&graph, model, batch, &error);
    if (status != TANDEM_OK) fail_msg("%s: %s", model, error.text);
    return graph;
}

static const tandem_op *op_named_graph(const tandem_graph *graph, const char *name)
{
    int op = -1;
    tandem_error error = {0};
    require_ok(tandem_graph_find(&op, graph, name, &error), &error);
    return &graph->op[op];
}

static tandem_builder *building(int64_t batch)
{
    tandem_builder *b = NULL;
    assert_int_equal(tandem_builder_open(&b, batch, NULL), TANDEM_OK);
    return b;
}

/* Ends what `b` has built up to tensor x, (batch, n): as a graph with a loss. Closes b. */
static tandem_graph *finished(tandem_builder *b, int x)
{
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const int label = tandem_build_labels(b, "end.label", 1);
    tandem_build_cross_entropy(b, "end.loss", x, label);
    require_ok(tandem_builder_finish(b, "test", &sgd, &graph, &error), &error);
    tandem_builder_close(b);
    return graph;
}

/* Flattens x, of `n` numbers a sample, and ends the graph with a linear layer to two classes. */
static tandem_graph *finished_flat(tandem_builder *b, int x, int64_t n)
{
    const int64_t dim[2] = {tandem_builder_batch(b), n};
    x = tandem_build_reshape(b, "end.flatten", x, 2, dim);
    return finished(b, tandem_build_linear(b, "end.head", x, 2, 0.1f));
}

static void assert_shape(const tandem_op *op, int n_dim, const int64_t *dim)
{
    assert_int_equal(op->shape.n_dim, n_dim);
    for (int d = 0; d < n_dim; d++) assert_int_equal(op->shape.dim[d], dim[d]);
}
#define SHAPE(op, ...)                                                                                       \
    assert_shape(op, (int)N_OF(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})

/* --- Tables --------------------------------------------------------------------------------------------- */
static void number_types_have_names_and_sizes(void **state)
{
    assert_string_equal(tandem_dtype_name(TANDEM_F32), "f32");
    assert_string_equal(tandem_dtype_name(TANDEM_BF16), "bf16");
    assert_string_equal(tandem_dtype_name(TANDEM_S8), "s8");
    assert_string_equal(tandem_dtype_name(TANDEM_S32), "s32");
    assert_int_equal(tandem_dtype_bytes(TANDEM_F32), 4);
    assert_int_equal(tandem_dtype_bytes(TANDEM_BF16), 2);
    assert_int_equal(tandem_dtype_bytes(TANDEM_S8), 1);
    assert_int_equal(tandem_dtype_bytes(TANDEM_S32), 4);
}

/* By hand: nvfp4 has two numbers in a byte and a scale for each 16, mxfp8 a scale for each 32. */
static void sizes_count_scales_of_blocks(void **state)
{
    static const struct {
        tandem_dtype dtype;
        uint64_t n, bytes;
    } sizes[] = {{TANDEM_F32, 3, 12},    {TANDEM_BF16, 3, 6},    {TANDEM_S8, 33, 33},
                 {TANDEM_MXFP8, 0, 0},   {TANDEM_MXFP8, 1, 2},   {TANDEM_MXFP8, 32, 33},
                 {TANDEM_MXFP8, 33, 35}, {TANDEM_NVFP4, 0, 0},   {TANDEM_NVFP4, 1, 2},
                 {TANDEM_NVFP4, 16, 9},  {TANDEM_NVFP4, 17, 11}, {TANDEM_NVFP4, 64, 36}};
    for (size_t k = 0; k < N_OF(sizes); k++)
        assert_int_equal(tandem_dtype_size(sizes[k].dtype, sizes[k].n), sizes[k].bytes);
    assert_true(tandem_dtype_is_in_blocks(TANDEM_MXFP8) && tandem_dtype_is_in_blocks(TANDEM_NVFP4));
    assert_false(tandem_dtype_is_in_blocks(TANDEM_E4M3) || tandem_dtype_is_in_blocks(TANDEM_F32));
}

static void precisions_are_found_by_name(void **state)
{
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        tandem_precision found = TANDEM_N_PRECISION;
        const tandem_precision_row *row = tandem_precision_get((tandem_precision)p);
        assert_int_equal(tandem_precision_find(&found, row->name, NULL), TANDEM_OK);
        assert_int_equal(found, p);
        assert_int_equal(row->saved, row->forward);
    }
    const tandem_precision_row *int8 = tandem_precision_get(TANDEM_PRECISION_INT8);
    assert_string_equal(int8->name, "int8");
    assert_int_equal(int8->forward, TANDEM_S8);
    assert_int_equal(int8->dgrad, TANDEM_AMP);
    assert_int_equal(int8->wgrad, TANDEM_AMP);
    assert_int_equal(int8->accumulator, TANDEM_S32);
    assert_int_equal(int8->output, TANDEM_F32);
    tandem_precision found = TANDEM_PRECISION_BF16;
    tandem_error error = {0};
    assert_int_equal(tandem_precision_find(&found, "itn8", &error), TANDEM_UNKNOWN_NAME);
    assert_int_equal(found, TANDEM_PRECISION_BF16);
    assert_non_null(strstr(error.text, "Did you mean 'int8'"));
    assert_int_equal(tandem_precision_find(&found, "", &error), TANDEM_UNKNOWN_NAME);
}

static void operator_rows_say_what_op_def_says(void **state)
{
    const unsigned all = (1u << TANDEM_N_PRECISION) - 1;
    const tandem_op_row *row = tandem_op_row_get(TANDEM_OP_LINEAR);
    assert_string_equal(row->name, "linear");
    assert_int_equal(row->op_class, TANDEM_ADJUSTABLE);
    assert_int_equal(row->precisions, all);
    assert_int_equal(row->saves, TANDEM_SAVES_INPUT);
    row = tandem_op_row_get(TANDEM_OP_CONV2D);
    assert_int_equal(row->precisions,
                     all & ~(1u << TANDEM_PRECISION_MXFP8) & ~(1u << TANDEM_PRECISION_NVFP4));
    row = tandem_op_row_get(TANDEM_OP_EMBEDDING);
    assert_int_equal(row->precisions,
                     1u << TANDEM_PRECISION_FP32 | 1u << TANDEM_PRECISION_FP16 | 1u << TANDEM_PRECISION_BF16);
    assert_int_equal(row->dgrad, TANDEM_GRAD_ABSENT);
    row = tandem_op_row_get(TANDEM_OP_LAYERNORM);
    assert_int_equal(row->saves, TANDEM_SAVES_INPUT | TANDEM_SAVES_AUX);
    assert_int_equal(row->wgrad, TANDEM_GRAD_FUSED);
    assert_int_equal(row->n_parameter, 2);
    row = tandem_op_row_get(TANDEM_OP_SOFTMAX);
    assert_true(row->range == 1.0f);
    for (int k = 0; k < TANDEM_N_OP_KIND; k++) {
        row = tandem_op_row_get((tandem_op_kind)k);
        assert_int_equal(row->precisions != 0, row->op_class == TANDEM_ADJUSTABLE);
        assert_int_equal(row->n_input == 0, row->op_class == TANDEM_SOURCE);
    }
}

static void optimizers_have_states(void **state)
{
    assert_int_equal(tandem_optimizer_n_state(TANDEM_SGD), 1);
    assert_int_equal(tandem_optimizer_n_state(TANDEM_ADAMW), 2);
    assert_string_equal(tandem_optimizer_name(TANDEM_SGD), "sgd");
    assert_string_equal(tandem_optimizer_name(TANDEM_ADAMW), "adamw");
}

/* --- Models, counted by hand ---------------------------------------------------------------------------- */
static void models_have_the_parameters_counted_by_hand(void **state)
{
    enum { VIT = 192, GPT = 128 };
    const int64_t vit_block =
        2 * 2 * VIT + 4 * (VIT * VIT + VIT) + (VIT * 4 * VIT + 4 * VIT) + (4 * VIT * VIT + VIT);
    const int64_t gpt_block =
        2 * 2 * GPT + 4 * (GPT * GPT + GPT) + (GPT * 4 * GPT + 4 * GPT) + (4 * GPT * GPT + GPT);
    const int64_t resnet_body = 6 * (9 * 16 * 16 + 2 * 16) /* stage 1 */
                                + (9 * 16 * 32 + 64) + 5 * (9 * 32 * 32 + 64) +
                                (16 * 32 + 64) /* stage 2 */
                                /* stage 3 */
                                + (9 * 32 * 64 + 128) + 5 * (9 * 64 * 64 + 128) + (32 * 64 + 128) +
                                (64 * 10 + 10);
    const struct {
        const char *model;
        int64_t weights;
    } cases[] = {
        {"mlp", 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10},
        {"mlp:width=3,depth=1,image=2x2x1,classes=2", 4 * 3 + 3 + 3 * 2 + 2},
        {"resnet20", (9 * 1 * 16 + 32) + resnet_body},
        {"resnet20:image=32x32x3", (9 * 3 * 16 + 32) + resnet_body}, /* 272474: the CIFAR-10 network */
        {"vit_tiny", (16 * 1 * VIT + VIT) + 49 * VIT + 4 * vit_block + 2 * VIT + (VIT * 10 + 10)},
        {"vit_tiny:patch=7,depth=1", (49 * 1 * VIT + VIT) + 16 * VIT + vit_block + 2 * VIT + (VIT * 10 + 10)},
        {"gpt_tiny", 128 * GPT + 64 * GPT + 4 * gpt_block + 2 * GPT + GPT * 128},
        {"gpt_tiny:length=32,vocabulary=65", 65 * GPT + 32 * GPT + 4 * gpt_block + 2 * GPT + GPT * 65},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_graph *graph = opened(cases[i].model, 16);
        assert_int_equal(tandem_graph_n_weight(graph), cases[i].weights);
        assert_string_equal(graph->model, cases[i].model);
        assert_int_equal(graph->batch, 16);
        tandem_graph_close(graph);
    }
}

/* Images: as torchvision 0.14 counts its models of these names. Texts: as the transformers library counts
 * BertModel (with its pooler, which only head=class has), BertForMaskedLM and GPT2LMHeadModel. */
static void models_have_the_parameters_that_were_published(void **state)
{
    const struct {
        const char *model;
        int64_t weights;
    } cases[] = {
        {"resnet18", 11689512},
        {"resnet50", 25557032},
        {"resnet50:image=64x64x3,classes=10", 25557032 - 2049 * 990},
        {"vgg16_bn", 138365992},
        {"vit_b16", 86567656},
        {"vit_b16:width=1024,layers=24,heads=16", 304326632}, /* vit_l_16 */
        /* its first linear layer reads 1x1 places, not 7x7 */
        {"vgg16_bn:image=32x32x3", 138365992 - 48 * 512 * 4096},
        {"bert_base:head=class", 109482240 + 768 * 2 + 2},
        {"bert_base:seq=512,head=class,classes=5", 109482240 + 768 * 5 + 5}, /* seq changes no table */
        {"bert_base", 109514298},
        {"bert_base:width=1024,layers=24,heads=16,head=class", 335141888 + 1024 * 2 + 2}, /* BERT-large */
        {"gpt2_small", 124439808},
        {"gpt2_small:seq=64", 124439808},
        {"gpt2_small:width=1024,layers=24,heads=16", 354823168}, /* gpt2-medium */
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_graph *graph = opened(cases[i].model, 2);
        if (tandem_graph_n_weight(graph) != cases[i].weights)
            fail_msg("%s: %" PRId64, cases[i].model, tandem_graph_n_weight(graph));
        assert_string_equal(graph->model, cases[i].model);
        tandem_graph_close(graph);
    }
}

static void mlp_flops_are_those_counted_by_hand(void **state)
{
    tandem_graph *graph = opened("mlp", 16);
    const double fc1 = 2.0 * 16 * 784 * 256, fc2 = 2.0 * 16 * 256 * 256, head = 2.0 * 16 * 256 * 10;
    assert_true(op_named_graph(graph, "fc1")->flops == fc1);
    const double elementwise = 4 * 16 * 256 + 160 + 5 * 160; /* two biases, two relus, a bias; the loss */
    /* The image has no gradient, so fc1 has no dgrad. */
    assert_true(tandem_graph_flops(graph) == 2 * fc1 + 3 * fc2 + 3 * head + elementwise);
    tandem_graph_close(graph);
    graph = opened("vit_tiny", 16);
    assert_true(op_named_graph(graph, "patch")->flops == 2.0 * 16 * 49 * 16 * 192);
    assert_true(op_named_graph(graph, "block0.attention.scores")->flops == 2.0 * 48 * 49 * 64 * 49);
    assert_true(op_named_graph(graph, "block0.attention.softmax")->flops == 6.0 * 48 * 49 * 49);
    assert_true(op_named_graph(graph, "block0.mlp.fc1.bias")->flops ==
                9.0 * 16 * 49 * 768); /* with its gelu */
    assert_true(op_named_graph(graph, "norm")->flops == 7.0 * 16 * 49 * 192);
    assert_true(op_named_graph(graph, "column")->flops == 0);
    tandem_graph_close(graph);
}

static void vit_has_the_shapes_of_its_drawing(void **state)
{
    tandem_graph *graph = opened("vit_tiny", 16);
    SHAPE(op_named_graph(graph, "image"), 16, 28, 28, 1);
    SHAPE(op_named_graph(graph, "label"), 16);
    SHAPE(op_named_graph(graph, "patch"), 16, 7, 7, 192);
    SHAPE(op_named_graph(graph, "tokens"), 16, 49, 192);
    SHAPE(op_named_graph(graph, "block3.attention.q.split"), 16, 49, 3, 64);
    SHAPE(op_named_graph(graph, "block3.attention.q.heads"), 16, 3, 49, 64);
    SHAPE(op_named_graph(graph, "block3.attention.scores"), 16, 3, 49, 49);
    SHAPE(op_named_graph(graph, "block3.attention.mix"), 16, 3, 49, 64);
    SHAPE(op_named_graph(graph, "block3.attention.mix.merge"), 16, 49, 192);
    SHAPE(op_named_graph(graph, "block3.mlp.fc1"), 16, 49, 768);
    SHAPE(op_named_graph(graph, "pool"), 16, 1, 1, 192);
    SHAPE(op_named_graph(graph, "head"), 16, 10);
    assert_int_equal(op_named_graph(graph, "loss")->shape.n_dim, 0);
    assert_int_equal(graph->n_class, 10);
    assert_int_equal(graph->length, 1);
    assert_int_equal(op_named_graph(graph, "label")->dtype, TANDEM_S32);
    assert_true(fabsf(op_named_graph(graph, "block0.attention.softmax")->scale - 0.125f) < 1e-7f);
    assert_int_equal(op_named_graph(graph, "block0.attention.softmax")->causal, 0);
    assert_int_equal(graph->optimizer.kind, TANDEM_ADAMW);
    tandem_graph_close(graph);
}

static void gpt_predicts_every_symbol(void **state)
{
    tandem_graph *graph = opened("gpt_tiny", 4);
    SHAPE(op_named_graph(graph, "tokens"), 4, 64);
    SHAPE(op_named_graph(graph, "label"), 4, 64);
    SHAPE(op_named_graph(graph, "embedding"), 4, 64, 128);
    SHAPE(op_named_graph(graph, "head"), 4, 64, 128);
    assert_int_equal(graph->length, 64);
    assert_int_equal(graph->n_class, 128);
    assert_int_equal(op_named_graph(graph, "block0.attention.softmax")->causal, 1);
    assert_int_equal(graph->op[graph->input].kind, TANDEM_OP_TOKENS);
    assert_int_equal(graph->op[graph->label].kind, TANDEM_OP_LABELS);
    tandem_graph_close(graph);
    graph = opened("gpt_tiny:length=1", 4);
    SHAPE(op_named_graph(graph, "label"), 4);
    tandem_graph_close(graph);
}

static void resnet_halves_its_images(void **state)
{
    tandem_graph *graph = opened("resnet20", 2);
    SHAPE(op_named_graph(graph, "stage1.block2.conv2.norm"), 2, 28, 28, 16);
    SHAPE(op_named_graph(graph, "stage2.block0.shortcut.norm"), 2, 14, 14, 32);
    SHAPE(op_named_graph(graph, "stage3.block0.shortcut"), 2, 7, 7, 64);
    SHAPE(op_named_graph(graph, "pool"), 2, 1, 1, 64);
    int op = 0, n_conv = 0;
    assert_int_equal(tandem_graph_find(&op, graph, "stage1.block0.shortcut", NULL), TANDEM_UNKNOWN_NAME);
    for (int i = 0; i < graph->n_op; i++) n_conv += graph->op[i].kind == TANDEM_OP_CONV2D;
    assert_int_equal(n_conv, 1 + 18 + 2); /* with the head 20 layers, and two shortcuts */
    tandem_graph_close(graph);
    graph = opened("resnet20:image=33x5x3", 2); /* odd sizes round up */
    SHAPE(op_named_graph(graph, "stage3.block2.conv2.norm"), 2, 9, 2, 64);
    tandem_graph_close(graph);
}

static void resnet50_has_the_shapes_of_its_table(void **state)
{
    tandem_graph *graph = opened("resnet50", 2);
    SHAPE(op_named_graph(graph, "stem"), 2, 112, 112, 64);
    SHAPE(op_named_graph(graph, "stem.pool"), 2, 56, 56, 64);
    SHAPE(op_named_graph(graph, "stage1.block2.conv3.norm"), 2, 56, 56, 256);
    /* the stride is the second convolution's */
    SHAPE(op_named_graph(graph, "stage2.block0.conv1"), 2, 56, 56, 128);
    SHAPE(op_named_graph(graph, "stage2.block0.conv2"), 2, 28, 28, 128);
    SHAPE(op_named_graph(graph, "stage2.block0.shortcut"), 2, 28, 28, 512);
    SHAPE(op_named_graph(graph, "stage4.block2.conv3.norm"), 2, 7, 7, 2048);
    SHAPE(op_named_graph(graph, "pool"), 2, 1, 1, 2048);
    int n_conv = 0;
    for (int i = 0; i < graph->n_op; i++) n_conv += graph->op[i].kind == TANDEM_OP_CONV2D;
    assert_int_equal(n_conv, 1 + 16 * 3 + 4);
    /* 4.09 · 10^9 multiplications of convolutions and head in a forward pass */
    double flops = 0;
    for (int i = 0; i < graph->n_op; i++)
        if (graph->op[i].kind == TANDEM_OP_CONV2D || graph->op[i].kind == TANDEM_OP_LINEAR)
            flops += graph->op[i].flops;
    assert_true(fabs(flops / 2 / 2 - 4.09e9) < 0.005e9);
    tandem_graph_close(graph);
    graph = opened("resnet18:image=7x1x1", 2); /* the smallest images end in one place, too */
    SHAPE(op_named_graph(graph, "stage4.block1.conv2.norm"), 2, 1, 1, 512);
    tandem_graph_close(graph);
}

static void large_transformers_have_the_shapes_of_their_drawings(void **state)
{
    tandem_graph *graph = opened("vit_b16", 2);
    SHAPE(op_named_graph(graph, "tokens"), 2, 196, 768);
    SHAPE(op_named_graph(graph, "class"), 2, 197, 768);
    SHAPE(op_named_graph(graph, "block11.attention.scores"), 2, 12, 197, 197);
    SHAPE(op_named_graph(graph, "class.out"), 2, 1, 768);
    SHAPE(op_named_graph(graph, "head"), 2, 1000);
    assert_int_equal(graph->vocabulary, 0);
    tandem_graph_close(graph);
    graph = opened("bert_base:head=class,classes=3", 2);
    SHAPE(op_named_graph(graph, "segment"), 256, 1, 768);
    SHAPE(op_named_graph(graph, "embedding.norm"), 2, 128, 768);
    SHAPE(op_named_graph(graph, "pooler.tanh"), 2, 768);
    assert_int_equal(graph->length, 1);
    assert_int_equal(graph->n_masked, 0);
    assert_int_equal(tandem_graph_n_prediction(graph), 1);
    assert_int_equal(op_named_graph(graph, "block11.attention.softmax")->causal, 0);
    tandem_graph_close(graph);
    graph = opened("bert_base:seq=512", 2);
    SHAPE(op_named_graph(graph, "block11.norm2"), 2, 512, 768);
    SHAPE(op_named_graph(graph, "hidden"), 2, 77, 768);
    SHAPE(op_named_graph(graph, "head.bias"), 2, 77, 30522);
    assert_int_equal(graph->length, 512);
    assert_int_equal(graph->n_masked, 77);
    assert_int_equal(tandem_graph_n_prediction(graph), 77);
    assert_int_equal(graph->vocabulary, 30522);
    /* after each part a norm, after the last block nothing more */
    const tandem_op *norm = op_named_graph(graph, "block11.norm2");
    assert_string_equal(graph->op[norm->input[0]].name, "block11.add2");
    assert_int_equal(op_named_graph(graph, "hidden")->input[0], norm - graph->op);
    tandem_graph_close(graph);
    graph = opened("bert_base:seq=1", 2);
    assert_int_equal(graph->n_masked, 1);
    tandem_graph_close(graph);
    graph = opened("gpt2_small", 1);
    SHAPE(op_named_graph(graph, "head"), 1, 1024, 50257);
    assert_int_equal(graph->vocabulary, 50257);
    assert_int_equal(tandem_graph_n_prediction(graph), 1024);
    tandem_graph_close(graph);
}

static void a_tied_head_reads_the_table_of_the_embedding(void **state)
{
    tandem_graph *graph = opened("gpt2_small:seq=8,layers=1,vocabulary=100", 2);
    const tandem_op *word = op_named_graph(graph, "embedding"), *head = op_named_graph(graph, "head");
    const tandem_parameter *table = &graph->parameter[word->parameter[0]];
    assert_int_equal(head->parameter[0], word->parameter[0]);
    assert_int_equal(head->transpose_b, 1);
    assert_int_equal(table->op, word - graph->op);
    assert_int_equal(table->tied, head - graph->op);
    assert_int_equal(table->shape.dim[0], 100);
    assert_string_equal(word->signature, "embedding rows=16 vocabulary=100 width=768 tied=1");
    assert_string_equal(head->signature, "linear m=16 k=768 n=100 tb=1");
    assert_string_equal(op_named_graph(graph, "position")->signature, "bias n=12288 period=6144 of=786432");
    for (int p = 0; p < graph->n_parameter; p++)
        if (p != word->parameter[0]) assert_int_equal(graph->parameter[p].tied, -1);
    tandem_graph_close(graph);
}

static tandem_graph *with_factors(const float *factor, int64_t step)
{
    tandem_builder *b = building(3);
    int x = tandem_build_reshape(b, "rows", tandem_build_images(b, "image", 4, 4, 3), 3,
                                 (const int64_t[3]){3, 1, 48});
    x = tandem_build_mul_constant(b, "factors", tandem_build_repeat(b, "repeat", x, 2), factor,
                                  (const int64_t[3]){0, 0, step});
    x = tandem_build_mul_constant(b, "more", x, factor, (const int64_t[3]){0, step, 0});
    x = tandem_build_mul_constant(b, "again", x, factor, (const int64_t[3]){0, 0, step});
    return finished_flat(b, x, 96);
}

/* Factors are the graph's own, once for operators that read as many, and a part of its hash. */
static void factors_of_places(void **state)
{
    float factor[48] = {1, 2, 3};
    tandem_graph *const graph = with_factors(factor, 1), *const evenly = with_factors(factor, 0);
    factor[47] = 5;
    tandem_graph *const changed = with_factors(factor, 1);
    const tandem_op *const first = op_named_graph(graph, "factors");
    SHAPE(op_named_graph(graph, "repeat"), 3, 2, 48);
    assert_string_equal(op_named_graph(graph, "repeat")->signature, "repeat n=3 of=2 row=48");
    assert_string_equal(first->signature, "mul_constant n=288 of=48");
    assert_string_equal(op_named_graph(graph, "more")->signature, "mul_constant n=288 of=2");
    assert_true(first->flops == 288 && first->factor != factor && first->factor[47] == 0);
    assert_true(op_named_graph(graph, "again")->factor == first->factor);
    assert_true(op_named_graph(graph, "more")->factor != first->factor);
    assert_int_equal(graph->n_constant, 2);
    assert_true(graph->hash != changed->hash && graph->hash != evenly->hash);
    tandem_graph_close(graph);
    tandem_graph_close(changed);
    tandem_graph_close(evenly);
}

static void slices_and_prepended_rows(void **state)
{
    tandem_builder *b = building(3);
    const int64_t rows[3] = {3, 8, 6};
    int x = tandem_build_reshape(b, "rows", tandem_build_images(b, "image", 4, 4, 3), 3, rows);
    x = tandem_build_slice(b, "slice", x, 2, 5);
    x = tandem_build_concat_token(b, "concat_token", x, 0.5f);
    x = tandem_build_tanh(b, "tanh", x);
    tandem_graph *graph = finished_flat(b, x, 6 * 6);
    SHAPE(op_named_graph(graph, "slice"), 3, 5, 6);
    SHAPE(op_named_graph(graph, "concat_token"), 3, 6, 6);
    assert_string_equal(op_named_graph(graph, "slice")->signature, "slice n=3 of=8 row=6 start=2 rows=5");
    assert_string_equal(op_named_graph(graph, "concat_token")->signature, "concat_token n=3 of=5 row=6");
    assert_string_equal(op_named_graph(graph, "tanh")->signature, "tanh n=108");
    assert_true(op_named_graph(graph, "tanh")->flops == 108);
    const tandem_parameter *row = &graph->parameter[op_named_graph(graph, "concat_token")->parameter[0]];
    assert_int_equal(row->elements, 6);
    assert_true(row->deviation == 0.5f && !row->has_weight_decay);
    assert_int_equal(op_named_graph(graph, "slice")->needs_gradient, 0);
    assert_int_equal(op_named_graph(graph, "concat_token")->needs_gradient, 1);
    tandem_graph_close(graph);
}

static void consumers_are_in_order(void **state)
{
    tandem_graph *graph = opened("vit_tiny", 2);
    const int t = (int)(op_named_graph(graph, "block1.norm1") - graph->op);
    const int *c = graph->consumer + graph->consumer_start[t];
    assert_int_equal(graph->consumer_start[t + 1] - graph->consumer_start[t], 3);
    assert_string_equal(graph->op[c[0]].name, "block1.attention.q");
    assert_string_equal(graph->op[c[1]].name, "block1.attention.k");
    assert_string_equal(graph->op[c[2]].name, "block1.attention.v");
    assert_int_equal(graph->consumer_start[0], 0);
    assert_int_equal(graph->consumer_start[graph->loss], graph->consumer_start[graph->loss + 1]);
    tandem_graph_close(graph);
    tandem_builder *b = building(3);
    const int image = tandem_build_images(b, "image", 2, 2, 1);
    const int twice = tandem_build_add(b, "twice", image, image);
    graph = finished_flat(b, twice, 4);
    assert_int_equal(graph->consumer_start[image + 1] - graph->consumer_start[image], 2);
    assert_int_equal(graph->consumer[graph->consumer_start[image]], twice);
    assert_int_equal(graph->consumer[graph->consumer_start[image] + 1], twice);
    tandem_graph_close(graph);
}

static void views_lead_to_whose_memory_it_is(void **state)
{
    tandem_builder *b = building(3);
    const int64_t flat[2] = {3, 12}, back[3] = {6, 2, 3};
    const int image = tandem_build_images(b, "image", 2, 2, 3);
    const int first = tandem_build_reshape(b, "first", image, 2, flat);
    const int second = tandem_build_reshape(b, "second", first, 3, back);
    const int relu = tandem_build_relu(b, "relu", second);
    tandem_graph *graph = finished_flat(b, relu, 12);
    assert_int_equal(graph->view[image], image);
    assert_int_equal(graph->view[first], image);
    assert_int_equal(graph->view[second], image);
    assert_int_equal(graph->view[relu], relu);
    tandem_graph_close(graph);
}

static void gradients_begin_where_training_does(void **state)
{
    tandem_graph *graph = opened("mlp", 2);
    assert_int_equal(op_named_graph(graph, "image")->needs_gradient, 0);
    assert_int_equal(op_named_graph(graph, "label")->needs_gradient, 0);
    assert_int_equal(op_named_graph(graph, "flatten")->needs_gradient, 0);
    assert_int_equal(op_named_graph(graph, "fc1")->needs_gradient, 1);
    assert_int_equal(op_named_graph(graph, "fc1.relu")->needs_gradient, 1);
    assert_int_equal(op_named_graph(graph, "loss")->needs_gradient, 1);
    tandem_graph_close(graph);
}

/* --- Single operators ----------------------------------------------------------------------------------- */
static void side_results_have_their_size(void **state)
{
    tandem_builder *b = building(2);
    int x = tandem_build_images(b, "image", 40, 40, 3);
    x = tandem_build_batchnorm(b, "batchnorm", x);
    x = tandem_build_layernorm(b, "layernorm", x);
    x = tandem_build_maxpool(b, "small", x, 3, 2, 1);
    x = tandem_build_maxpool(b, "large", x, 17, 1, 0);
    x = tandem_build_softmax(b, "softmax", x, 1, 0);
    tandem_graph *graph = finished_flat(b, x, 4 * 4 * 3);
    assert_int_equal(op_named_graph(graph, "batchnorm")->aux_bytes, 2 * 3 * 4);
    assert_int_equal(op_named_graph(graph, "layernorm")->aux_bytes, 2 * (2 * 40 * 40) * 4);
    SHAPE(op_named_graph(graph, "small"), 2, 20, 20, 3);
    assert_int_equal(op_named_graph(graph, "small")->aux_bytes, 2 * 20 * 20 * 3); /* 9 places: a byte */
    SHAPE(op_named_graph(graph, "large"), 2, 4, 4, 3);
    assert_int_equal(op_named_graph(graph, "large")->aux_bytes, 4 * 2 * 4 * 4 * 3); /* 289 places */
    assert_int_equal(op_named_graph(graph, "softmax")->aux_bytes, 0);
    assert_int_equal(op_named_graph(graph, "end.loss")->aux_bytes, 2 * 2 * 4);
    tandem_graph_close(graph);
}

static void windows_round_down(void **state)
{
    static const struct {
        int height, width, kernel, stride, pad;
        int64_t out_h, out_w;
    } cases[] = {
        {28, 28, 3, 1, 1, 28, 28}, {28, 28, 3, 2, 1, 14, 14}, {7, 7, 3, 2, 1, 4, 4}, {7, 5, 2, 2, 0, 3, 2},
        {5, 5, 5, 1, 0, 1, 1},     {1, 1, 3, 2, 1, 1, 1},     {9, 4, 4, 3, 0, 2, 1}, {8, 8, 1, 2, 0, 4, 4},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_builder *b = building(2);
        const int x = tandem_build_images(b, "image", cases[i].height, cases[i].width, 3);
        const int conv = tandem_build_conv2d(b, "conv", x, 5, cases[i].kernel, cases[i].stride, cases[i].pad);
        tandem_graph *graph = finished_flat(b, conv, cases[i].out_h * cases[i].out_w * 5);
        const tandem_op *op = op_named_graph(graph, "conv");
        SHAPE(op, 2, cases[i].out_h, cases[i].out_w, 5);
        const tandem_parameter *p = &graph->parameter[op->parameter[0]];
        assert_int_equal(p->shape.dim[0], cases[i].kernel * cases[i].kernel * 3);
        assert_int_equal(p->shape.dim[1], 5);
        assert_true(fabsf(p->deviation - sqrtf(2 / (float)p->shape.dim[0])) < 1e-7f);
        assert_true(op->flops == 2.0 * 2 * (double)(cases[i].out_h * cases[i].out_w * p->elements));
        tandem_graph_close(graph);
    }
}

static void signatures_are_these(void **state)
{
    static const int axis[4] = {0, 2, 1, 3};
    static const int64_t rows[3] = {16, 49, 256}, split[4] = {16, 49, 4, 64}, merged[3] = {64, 49, 64};
    tandem_builder *b = building(16);
    int x = tandem_build_images(b, "image", 32, 32, 16);
    x = tandem_build_conv2d(b, "conv", x, 32, 3, 2, 1);
    x = tandem_build_batchnorm(b, "batchnorm", x);
    x = tandem_build_maxpool(b, "maxpool", x, 4, 2, 0);
    x = tandem_build_avgpool(b, "avgpool", x, 1, 7, 1);
    x = tandem_build_relu(b, "relu", x);
    const int64_t flat[2] = {16, 224};
    x = tandem_build_reshape(b, "reshape", x, 2, flat);
    x = tandem_build_linear(b, "linear", x, 49 * 256, 0.1f);
    x = tandem_build_reshape(b, "rows", x, 3, rows);
    x = tandem_build_bias(b, "bias", x, 1, 0);
    x = tandem_build_bias(b, "position", x, 2, 0.02f);
    x = tandem_build_layernorm(b, "layernorm", x);
    x = tandem_build_reshape(b, "split", x, 4, split);
    x = tandem_build_transpose(b, "transpose", x, axis);
    x = tandem_build_reshape(b, "merged", x, 3, merged);
    int y = tandem_build_matmul(b, "matmul", x, x, 1);
    y = tandem_build_softmax(b, "softmax", y, 0.125f, 0);
    y = tandem_build_softmax(b, "causal", y, 1, 1);
    y = tandem_build_matmul(b, "mix", y, x, 0);
    y = tandem_build_gelu(b, "gelu", y);
    y = tandem_build_add(b, "add", y, x);
    tandem_graph *graph = finished_flat(b, y, 4 * 49 * 64);
    static const char *const expected[][2] = {
        {"image", "images n=16 h=32 w=32 c=16"},
        {"conv", "conv2d n=16 h=32 w=32 c=16 -> c=32 k=3x3 s=2 p=1"},
        {"batchnorm", "batchnorm rows=4096 n=32"},
        {"maxpool", "maxpool n=16 h=16 w=16 c=32 k=4x4 s=2 p=0"},
        {"avgpool", "avgpool n=16 h=7 w=7 c=32 k=1x7 s=1 p=0"},
        {"relu", "relu n=3584"},
        {"reshape", "reshape n=3584"},
        {"linear", "linear m=16 k=224 n=12544"},
        {"bias", "bias n=200704 period=256"},
        {"position", "bias n=200704 period=12544"},
        {"layernorm", "layernorm rows=784 n=256"},
        {"transpose", "transpose 16x49x4x64 axes=0213"},
        {"matmul", "matmul batch=64 m=49 k=64 n=49 tb=1"},
        {"softmax", "softmax rows=3136 n=49 causal=0"},
        {"causal", "softmax rows=3136 n=49 causal=1"},
        {"mix", "matmul batch=64 m=49 k=49 n=64 tb=0"},
        {"gelu", "gelu n=200704"},
        {"add", "add n=200704"},
        {"end.label", "labels n=16 length=1"},
        {"end.loss", "cross_entropy rows=16 n=2"},
    };
    for (size_t i = 0; i < N_OF(expected); i++)
        assert_string_equal(op_named_graph(graph, expected[i][0])->signature, expected[i][1]);
    tandem_graph_close(graph);
    graph = opened("gpt_tiny:vocabulary=65", 4);
    assert_string_equal(op_named_graph(graph, "embedding")->signature,
                        "embedding rows=256 vocabulary=65 width=128");
    assert_string_equal(op_named_graph(graph, "tokens")->signature, "tokens n=4 length=64");
    assert_string_equal(op_named_graph(graph, "head")->signature, "linear m=256 k=128 n=65");
    tandem_graph_close(graph);
}

/* --- Hashes --------------------------------------------------------------------------------------------- */
static void the_hash_is_of_the_model_not_of_the_batch(void **state)
{
    static const char *const models[] = {
        "mlp",      "mlp:width=128",    "mlp:depth=3", "mlp:classes=11",     "resnet20",
        "vit_tiny", "vit_tiny:heads=2", "gpt_tiny",    "gpt_tiny:length=32", "mlp:image=28x14x2"};
    uint64_t hash[N_OF(models)];
    for (size_t i = 0; i < N_OF(models); i++) {
        tandem_graph *one = opened(models[i], 1), *many = opened(models[i], 24);
        assert_true(one->hash == many->hash);
        hash[i] = one->hash;
        for (size_t j = 0; j < i; j++) assert_true(hash[i] != hash[j]);
        tandem_graph_close(one);
        tandem_graph_close(many);
    }
}

static void parameters_have_names_of_their_own(void **state)
{
    char name[TANDEM_PARAMETER_NAME], other[TANDEM_PARAMETER_NAME];
    for (int m = 0; m < tandem_model_count(); m++) {
        tandem_graph *graph = opened(tandem_model_get(m)->name, 1);
        for (int p = 0; p < graph->n_parameter; p++) {
            tandem_parameter_name(name, graph, p);
            for (int q = 0; q < p; q++) assert_string_not_equal(name, tandem_parameter_name(other, graph, q));
        }
        tandem_graph_close(graph);
    }
    tandem_graph *graph = opened("resnet20:blocks=1", 1);
    assert_string_equal(tandem_parameter_name(name, graph, 0), "conv.weight");
    assert_string_equal(tandem_parameter_name(name, graph, 1), "conv.norm.weight");
    assert_string_equal(tandem_parameter_name(name, graph, 2), "conv.norm.bias");
    assert_string_equal(tandem_parameter_name(name, graph, graph->n_parameter - 1), "head.bias");
    assert_true(tandem_parameter_matches(graph, 0, "conv.weight"));
    assert_true(tandem_parameter_matches(graph, 1, "head.*,conv.norm.*"));
    assert_true(tandem_parameter_matches(graph, 0, ",,*"));
    assert_false(tandem_parameter_matches(graph, 0, ""));
    assert_false(tandem_parameter_matches(graph, 0, "conv,weight"));
    tandem_graph_close(graph);
}

static void dropout_is_where_it_was_published(void **state)
{
    static const struct {
        const char *model, *canonical;
        int n_dropout;
    } cases[] = {
        {"bert_base:layers=2,dropout=0.1", "bert_base:layers=2,dropout=0.1", 1 + 2 * 3},
        {"bert_base:layers=2,dropout=.1,head=class", "bert_base:layers=2,head=class,dropout=0.1", 2 + 2 * 3},
        {"gpt2_small:layers=2,dropout=0.10", "gpt2_small:layers=2,dropout=0.1", 1 + 2 * 3},
        {"gpt_tiny:dropout=0.25,depth=1", "gpt_tiny:depth=1,dropout=0.25", 1 + 3},
        {"vit_b16:layers=1,dropout=0.0001", "vit_b16:layers=1,dropout=0.0001", 1 + 3},
        {"vgg16_bn:width=1,hidden=8,dropout=0.5", "vgg16_bn:width=1,hidden=8,dropout=0.5", 2},
        {"vit_tiny:dropout=0", "vit_tiny", 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tandem_graph *graph = opened(cases[k].model, 1);
        int n = 0;
        for (int i = 0; i < graph->n_op; i++) n += graph->op[i].kind == TANDEM_OP_DROPOUT;
        assert_string_equal(graph->model, cases[k].canonical);
        assert_int_equal(n, cases[k].n_dropout);
        tandem_graph_close(graph);
    }
    static const char *const wrong[] = {"0.91", "1", "0.12345", ".", "0.1x", "-0.1", "1e-1", "", "0.", "x"};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        char model[64];
        tandem_graph *graph = NULL;
        tandem_error error = {0};
        (void)snprintf(model, sizeof model, "gpt_tiny:dropout=%s", wrong[k]);
        assert_int_equal(tandem_graph_open(&graph, model, 1, &error), TANDEM_USAGE);
        assert_non_null(strstr(error.text, "0 … 0.9"));
    }
}

/* The bits of the graph itself are hashed, not only its name. */
static void every_part_of_a_graph_is_hashed(void **state)
{
    tandem_builder *b = building(2);
    const int image = tandem_build_images(b, "image", 4, 4, 3);
    const int conv = tandem_build_conv2d(b, "conv", tandem_build_tanh(b, "tanh", image), 5, 3, 1, 1);
    const int x = tandem_build_batchnorm(b, "norm", conv);
    tandem_graph *graph =
        finished(b, tandem_build_linear(b, "head", tandem_build_reshape(b, "flat", x, 2, (int64_t[]){2, 80}),
                                        3, 0.1f));
    const uint64_t hash = graph->hash;
    tandem_op *op = &graph->op[2];
#define CHANGED(part, other)                                                                                 \
    do {                                                                                                     \
        const __typeof__(part) was = part;                                                                   \
        part = other;                                                                                        \
        assert_true(tandem_graph_hash(graph) != hash);                                                       \
        part = was;                                                                                          \
        assert_true(tandem_graph_hash(graph) == hash);                                                       \
    } while (0)
    CHANGED(op->kind, TANDEM_OP_RELU);
    CHANGED(op->name[0], 'X');
    CHANGED(op->input[0], 3);
    CHANGED(op->shape.dim[3], 17);
    CHANGED(op->shape.n_dim, 3);
    CHANGED(op->kernel_h, 5);
    CHANGED(op->kernel_w, 5);
    CHANGED(op->stride, 3);
    CHANGED(op->pad, 2);
    CHANGED(op->transpose_b, 1);
    CHANGED(op->causal, 1);
    CHANGED(op->axis[3], 1);
    CHANGED(op->scale, 0.5f);
    CHANGED(op->epsilon, 1e-6f);
    CHANGED(op->start, 1);
    CHANGED(op->rate, 0.5f);
    CHANGED(graph->op[3].momentum, 0.25f);
    CHANGED(graph->n_masked, 3);
    CHANGED(graph->parameter[0].tied, 9);
    CHANGED(graph->parameter[0].shape.dim[0], 10);
    CHANGED(graph->parameter[0].init, TANDEM_INIT_ZERO);
    CHANGED(graph->parameter[0].deviation, 0.5f);
    CHANGED(graph->parameter[0].has_weight_decay, 0);
    CHANGED(graph->optimizer.rate, 1.0f);
    CHANGED(graph->optimizer.kind, TANDEM_ADAMW);
    CHANGED(graph->model[0], 'R');
    CHANGED(graph->n_op, graph->n_op - 1);
#undef CHANGED
    tandem_graph_close(graph);
}

/* --- Fused operators ------------------------------------------------------------------------------------ */
static void a_batchnorm_and_its_relu_are_one(void **state)
{
    tandem_graph *graph = opened("resnet20:blocks=1", 2);
    int op = 0;
    assert_int_equal(tandem_graph_find(&op, graph, "relu", NULL), TANDEM_UNKNOWN_NAME);
    const tandem_op *both = op_named_graph(graph, "conv.norm");
    assert_int_equal(both->kind, TANDEM_OP_BATCHNORM_RELU);
    assert_string_equal(both->signature, "batchnorm_relu rows=1568 n=16");
    for (int i = 0; i < graph->n_op; i++)
        for (int slot = 0; slot < TANDEM_MAX_INPUT; slot++) assert_true(graph->op[i].input[slot] < i);
    for (int p = 0; p < graph->n_parameter; p++) {
        const tandem_op *owner = &graph->op[graph->parameter[p].op];
        assert_true(owner->parameter[0] == p || owner->parameter[1] == p);
    }
    assert_int_equal(graph->op[graph->loss].kind, TANDEM_OP_CROSS_ENTROPY);
    assert_int_equal(graph->op[graph->input].kind, TANDEM_OP_IMAGES);
    assert_int_equal(graph->op[graph->label].kind, TANDEM_OP_LABELS);
    tandem_graph_close(graph);
}

/* At the end of a block, with what comes past it; of two batchnorms the later one, after which the other is
 * there. */
static void a_batchnorm_its_sum_and_their_relu_are_one(void **state)
{
    tandem_graph *graph = opened("resnet20:blocks=1", 2);
    int op = 0;
    assert_int_equal(tandem_graph_find(&op, graph, "stage1.block0.add", NULL), TANDEM_UNKNOWN_NAME);
    assert_int_equal(tandem_graph_find(&op, graph, "stage1.block0.relu2", NULL), TANDEM_UNKNOWN_NAME);
    const tandem_op *all = op_named_graph(graph, "stage1.block0.conv2.norm");
    assert_int_equal(all->kind, TANDEM_OP_BATCHNORM_ADD_RELU);
    assert_string_equal(all->signature, "batchnorm_add_relu rows=1568 n=16");
    assert_string_equal(graph->op[all->input[0]].name, "stage1.block0.conv2");
    assert_string_equal(graph->op[all->input[1]].name, "conv.norm");
    assert_string_equal(graph->op[op_named_graph(graph, "stage2.block0.conv1")->input[0]].name, all->name);
    assert_int_equal(op_named_graph(graph, "stage2.block0.conv2.norm")->kind, TANDEM_OP_BATCHNORM);
    all = op_named_graph(graph, "stage2.block0.shortcut.norm");
    assert_int_equal(all->kind, TANDEM_OP_BATCHNORM_ADD_RELU);
    assert_string_equal(graph->op[all->input[0]].name, "stage2.block0.shortcut");
    assert_string_equal(graph->op[all->input[1]].name, "stage2.block0.conv2.norm");
    for (int j = 0; j < 2; j++) assert_int_equal(graph->parameter[all->parameter[j]].op, all - graph->op);
    tandem_graph_close(graph);
}

static void a_bias_and_its_gelu_are_one(void **state)
{
    tandem_graph *graph = opened("gpt2_small:seq=8,layers=1,vocabulary=100", 2);
    int op = 0;
    assert_int_equal(tandem_graph_find(&op, graph, "block0.mlp.gelu", NULL), TANDEM_UNKNOWN_NAME);
    const tandem_op *both = op_named_graph(graph, "block0.mlp.fc1.bias");
    assert_int_equal(both->kind, TANDEM_OP_BIAS_GELU);
    assert_string_equal(both->signature, "bias_gelu n=49152 period=3072");
    assert_int_equal(op_named_graph(graph, "block0.mlp.fc2")->input[0], both - graph->op);
    assert_int_equal(op_named_graph(graph, "block0.mlp.fc2.bias")->kind, TANDEM_OP_BIAS);
    assert_int_equal(graph->parameter[both->parameter[0]].op, both - graph->op);
    tandem_graph_close(graph);
}

/* A small network on images of (2, 2, 4), two of them: up to where its layers begin, and from where they end
 * on, fused. */
static tandem_builder *small_begun(int *image)
{
    tandem_builder *b = NULL;
    assert_int_equal(tandem_builder_open(&b, 2, NULL), TANDEM_OK);
    *image = tandem_build_images(b, "image", 2, 2, 4);
    return b;
}

static tandem_graph *small_fused(tandem_builder *b, int x, int n_fewer)
{
    const tandem_optimizer_options options = {.kind = TANDEM_SGD};
    tandem_graph *graph = NULL;
    x = tandem_build_linear(b, "head", tandem_build_reshape(b, "flat", x, 2, (int64_t[]){2, 16}), 3, 0);
    tandem_build_cross_entropy(b, "loss", x, tandem_build_labels(b, "label", 1));
    assert_int_equal(tandem_builder_finish(b, "small", &options, &graph, NULL), TANDEM_OK);
    tandem_builder_close(b);
    const int n_op = graph->n_op;
    assert_int_equal(tandem_graph_fuse(graph, NULL), TANDEM_OK);
    assert_int_equal(graph->n_op, n_op - n_fewer);
    return graph;
}

/* A second reader wants what is between the two. */
static void a_batchnorm_that_others_read_stays(void **state)
{
    int image = 0;
    tandem_builder *b = small_begun(&image);
    int x = tandem_build_batchnorm(b, "norm", image);
    x = tandem_build_add(b, "add", x, tandem_build_relu(b, "relu", x));
    x = tandem_build_relu(b, "relu2", tandem_build_batchnorm(b, "norm2", x));
    tandem_graph *graph = small_fused(b, x, 1);
    assert_int_equal(op_named_graph(graph, "norm")->kind, TANDEM_OP_BATCHNORM);
    assert_int_equal(op_named_graph(graph, "norm2")->kind, TANDEM_OP_BATCHNORM_RELU);
    assert_int_equal(graph->loss, graph->n_op - 1);
    int flat = 0;
    assert_int_equal(tandem_graph_find(&flat, graph, "flat", NULL), TANDEM_OK);
    assert_int_equal(graph->op[flat].input[0], graph->view[flat]);
    tandem_graph_close(graph);
}

/* So does a sum without a relu, one that something else reads, too, and one whose later summand is no
 * batchnorm. */
static void a_sum_that_others_read_stays(void **state)
{
    int image = 0;
    tandem_builder *b = small_begun(&image);
    const int norm = tandem_build_batchnorm(b, "norm", image);
    const int past = tandem_build_conv2d(b, "past", image, 4, 1, 1, 0);
    int x = tandem_build_relu(b, "relu", tandem_build_add(b, "add", norm, past));
    const int sum = tandem_build_add(b, "add2", x, tandem_build_batchnorm(b, "norm2", x));
    x = tandem_build_add(b, "add3", tandem_build_relu(b, "relu2", sum), sum);
    x = tandem_build_add(b, "add4", tandem_build_batchnorm(b, "norm3", x), x);
    x = tandem_build_relu(b, "relu3", tandem_build_add(b, "add5", tandem_build_batchnorm(b, "norm4", x), x));
    tandem_graph *graph = small_fused(b, x, 2);
    for (int k = 0; k < 3; k++)
        assert_int_equal(op_named_graph(graph, (const char *[]){"norm", "norm2", "norm3"}[k])->kind,
                         TANDEM_OP_BATCHNORM);
    const tandem_op *all = op_named_graph(graph, "norm4");
    assert_int_equal(all->kind, TANDEM_OP_BATCHNORM_ADD_RELU);
    assert_int_equal(all->input[0], all->input[1]);
    assert_int_equal(graph->op[op_named_graph(graph, "flat")->input[0]].kind, TANDEM_OP_BATCHNORM_ADD_RELU);
    tandem_graph_close(graph);
}

/* A plan names the hash of its model: should this change, plans that exist no longer fit their models. */
static void hashes_of_the_zoo_are_lasting(void **state)
{
    static const struct {
        const char *model;
        uint64_t hash;
    } cases[] = {
        {"mlp", UINT64_C(0x8cb30dd12385fbf0)},       {"resnet20", UINT64_C(0xc24608974e5a06b9)},
        {"vit_tiny", UINT64_C(0x3147d55440d8d9f0)},  {"gpt_tiny", UINT64_C(0x7afae4fafbb64f9b)},
        {"resnet18", UINT64_C(0x21e919e9fdf732d5)},  {"resnet50", UINT64_C(0x42240307279c8d69)},
        {"vgg16_bn", UINT64_C(0x304a43291ac0bbd8)},  {"vit_b16", UINT64_C(0xc1ab7be17f342497)},
        {"bert_base", UINT64_C(0x828d8e69fd96f0af)}, {"gpt2_small", UINT64_C(0xb7126684c115e43c)},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_graph *graph = opened(cases[i].model, 8);
        if (graph->hash != cases[i].hash) fail_msg("%s: %016" PRIx64, cases[i].model, graph->hash);
        tandem_graph_close(graph);
    }
}

/* --- First weights -------------------------------------------------------------------------------------- */
static float **weights_of(const tandem_graph *graph, uint64_t seed)
{
    float **weight = calloc((size_t)graph->n_parameter, sizeof *weight);
    assert_non_null(weight);
    for (int p = 0; p < graph->n_parameter; p++) {
        weight[p] = malloc((size_t)graph->parameter[p].elements * sizeof **weight);
        assert_non_null(weight[p]);
    }
    assert_int_equal(tandem_graph_init(graph, seed, weight, NULL), TANDEM_OK);
    return weight;
}

static void weights_free(const tandem_graph *graph, float **weight)
{
    for (int p = 0; p < graph->n_parameter; p++) free(weight[p]);
    free(weight);
}

/* Box–Muller written down once more, with libm in double precision. */
static double normal_number(uint64_t seed, uint32_t parameter, int64_t element)
{
    const uint32_t counter[4] = {(uint32_t)(element / 4), 0, parameter, TANDEM_RNG_INIT};
    const tandem_philox_block block = tandem_philox(counter, seed);
    const uint32_t *word = &block.word[element % 4 / 2 * 2];
    const double radius = sqrt(-2 * log(1 - (double)tandem_philox_uniform(word[0])));
    const double angle = 2 * acos(-1) * (double)tandem_philox_uniform(word[1]);
    return radius * (element % 2 ? sin(angle) : cos(angle));
}

static void first_weights_are_normal_numbers_from_philox(void **state)
{
    tandem_graph *graph = opened("vit_tiny:depth=1,width=6,heads=2", 2);
    float **weight = weights_of(graph, 42);
    for (int i = 0; i < graph->n_parameter; i++) {
        const tandem_parameter *p = &graph->parameter[i];
        for (int64_t e = 0; e < p->elements; e++) {
            double expected = p->init == TANDEM_INIT_ONE ? 1 : 0;
            if (p->init == TANDEM_INIT_NORMAL)
                expected = (double)p->deviation * normal_number(42, (uint32_t)i, e);
            assert_true(fabs((double)weight[i][e] - expected) <= 1e-7 * fabs(expected) + 1e-12);
        }
    }
    weights_free(graph, weight);
    tandem_graph_close(graph);
}

static void first_weights_have_mean_and_deviation(void **state)
{
    tandem_graph *graph = opened("mlp", 2);
    float **weight = weights_of(graph, 7);
    const tandem_parameter *p = &graph->parameter[0];
    double sum = 0, squares = 0, largest = 0;
    for (int64_t e = 0; e < p->elements; e++) {
        const double z = (double)weight[0][e] / (double)p->deviation;
        sum += z;
        squares += z * z;
        largest = fmax(largest, fabs(z));
    }
    const double n = (double)p->elements; /* 200704: the mean deviates by 0.0022, the variance by 0.0032 */
    assert_true(fabs(sum / n) < 5 * 0.0022 && fabs(squares / n - 1) < 5 * 0.0032);
    assert_true(largest > 4 && largest < 5.8);
    assert_true(fabsf(p->deviation - sqrtf(2.0f / 784)) < 1e-7f);
    weights_free(graph, weight);
    tandem_graph_close(graph);
}

static void first_weights_depend_on_the_seed_alone(void **state)
{
    tandem_graph *small = opened("mlp:width=5", 1), *large = opened("mlp:width=5", 64);
    float **a = weights_of(small, 1), **b = weights_of(large, 1), **c = weights_of(small, 2);
    for (int i = 0; i < small->n_parameter; i++) {
        const size_t bytes = (size_t)small->parameter[i].elements * sizeof **a;
        assert_memory_equal(a[i], b[i], bytes);
        assert_int_equal(memcmp(a[i], c[i], bytes) == 0, small->parameter[i].init != TANDEM_INIT_NORMAL);
    }
    weights_free(small, a);
    weights_free(large, b);
    weights_free(small, c);
    tandem_graph_close(small);
    tandem_graph_close(large);
}

static void matrices_decay_and_biases_do_not(void **state)
{
    tandem_graph *graph = opened("vit_tiny", 2);
    for (int p = 0; p < graph->n_parameter; p++) {
        const tandem_op_kind kind = graph->op[graph->parameter[p].op].kind;
        assert_int_equal(graph->parameter[p].has_weight_decay,
                         kind == TANDEM_OP_LINEAR || kind == TANDEM_OP_CONV2D);
    }
    const tandem_op *norm = op_named_graph(graph, "norm");
    assert_int_equal(graph->parameter[norm->parameter[0]].init, TANDEM_INIT_ONE);
    assert_int_equal(graph->parameter[norm->parameter[1]].init, TANDEM_INIT_ZERO);
    assert_int_equal(graph->parameter[op_named_graph(graph, "position")->parameter[0]].init,
                     TANDEM_INIT_NORMAL);
    tandem_graph_close(graph);
}

/* --- Wrong graphs --------------------------------------------------------------------------------------- */
/* Each breaks one rule. i: images of 8x9x4, six of them. */
/* clang-format off */
#define WRONG(name) static void name(tandem_builder *b, int i)
WRONG(two_inputs) { (void)i; tandem_build_images(b, "x", 8, 8, 1); }
WRONG(two_kinds_of_input) { (void)i; tandem_build_tokens(b, "x", 8); }
WRONG(two_labels) { (void)i; tandem_build_labels(b, "l", 1); tandem_build_labels(b, "x", 1); }
WRONG(no_name) { tandem_build_relu(b, "", i); }
WRONG(null_name) { tandem_build_relu(b, NULL, i); }
WRONG(name_of_48) { tandem_build_relu(b, "x2345678901234567890123456789012345678901234567x", i); }
WRONG(name_with_space) { tandem_build_relu(b, "x y", i); }
WRONG(name_twice) { tandem_build_relu(b, "image", i); }
WRONG(input_minus_1) { (void)i; tandem_build_relu(b, "x", -1); }
WRONG(input_ahead) { tandem_build_relu(b, "x", i + 1); }
WRONG(second_input_ahead) { tandem_build_add(b, "x", i, 99); }
WRONG(linear_of_labels) { (void)i; tandem_build_linear(b, "x", tandem_build_labels(b, "l", 1), 4, 0.1f); }
WRONG(reshape_of_labels)
{
    (void)i;
    tandem_build_reshape(b, "x", tandem_build_labels(b, "l", 1), 1, (int64_t[]){6});
}
WRONG(embedding_of_images) { tandem_build_embedding(b, "x", i, 10, 4); }
WRONG(linear_to_0) { tandem_build_linear(b, "x", i, 0, 0.1f); }
WRONG(linear_too_large) { tandem_build_linear(b, "x", i, INT64_MAX, 0.1f); }
WRONG(linear_output_too_large) { tandem_build_linear(b, "x", i, INT64_C(1) << 40, 0.1f); }
WRONG(linear_of_one_dimension)
{
    tandem_build_linear(b, "x", tandem_build_reshape(b, "r", i, 1, (int64_t[]){1728}), 4, 0.1f);
}
WRONG(deviation_negative) { tandem_build_linear(b, "x", i, 4, -0.5f); }
WRONG(deviation_nan) { tandem_build_bias(b, "x", i, 1, NAN); }
WRONG(conv_of_rows)
{
    tandem_build_conv2d(b, "x", tandem_build_reshape(b, "r", i, 2, (int64_t[]){6, 288}), 4, 3, 1, 1);
}
WRONG(conv_kernel_0) { tandem_build_conv2d(b, "x", i, 4, 0, 1, 0); }
WRONG(conv_kernel_too_large) { tandem_build_conv2d(b, "x", i, 4, 9, 1, 0); }
WRONG(conv_stride_0) { tandem_build_conv2d(b, "x", i, 4, 3, 0, 1); }
WRONG(conv_pad_of_kernel) { tandem_build_conv2d(b, "x", i, 4, 3, 1, 3); }
WRONG(conv_pad_negative) { tandem_build_conv2d(b, "x", i, 4, 3, 1, -1); }
WRONG(conv_channels_0) { tandem_build_conv2d(b, "x", i, 0, 3, 1, 1); }
WRONG(pool_pad_over_half) { tandem_build_maxpool(b, "x", i, 3, 1, 2); }
WRONG(pool_too_large) { tandem_build_avgpool(b, "x", i, 8, 10, 1); }
WRONG(matmul_inner) { tandem_build_matmul(b, "x", i, i, 0); }
WRONG(matmul_of_rows)
{
    i = tandem_build_reshape(b, "r", i, 2, (int64_t[]){6, 288});
    tandem_build_matmul(b, "x", i, i, 1);
}
WRONG(matmul_leading)
{
    tandem_build_matmul(b, "x", i, tandem_build_reshape(b, "r", i, 4, (int64_t[]){6, 4, 18, 4}), 1);
}
WRONG(matmul_dimensions)
{
    tandem_build_matmul(b, "x", i, tandem_build_reshape(b, "r", i, 3, (int64_t[]){6, 72, 4}), 1);
}
WRONG(bias_over_all) { tandem_build_bias(b, "x", i, 4, 0); }
WRONG(bias_over_none) { tandem_build_bias(b, "x", i, 0, 0); }
WRONG(rows_too_few) { tandem_build_row_bias(b, "x", i, 8, 0); }
WRONG(rows_of_two_dimensions)
{
    tandem_build_row_bias(b, "x", tandem_build_reshape(b, "r", i, 2, (int64_t[]){6, 288}), 9, 0);
}
WRONG(tied_to_images) { tandem_build_tied(b, "x", i, i); }
WRONG(tied_to_nothing) { tandem_build_tied(b, "x", i, 77); }
WRONG(masked_none) { (void)i; tandem_build_masked_labels(b, "x", 8, 0); }
WRONG(masked_more_than_all) { (void)i; tandem_build_masked_labels(b, "x", 8, 9); }
WRONG(labelled_without_masked) { tandem_build_gather_labelled(b, "x", i, tandem_build_labels(b, "l", 8)); }
WRONG(labelled_of_fewer)
{
    tandem_build_gather_labelled(b, "x", i, tandem_build_masked_labels(b, "l", 7, 2));
}
WRONG(labelled_twice)
{
    const int l = tandem_build_masked_labels(b, "l", 8, 3);
    tandem_build_cross_entropy(
        b, "x", tandem_build_gather_labelled(b, "y", tandem_build_gather_labelled(b, "z", i, l), l), l);
}
WRONG(slice_after_the_end) { tandem_build_slice(b, "x", i, 7, 2); }
WRONG(slice_from_the_end) { tandem_build_slice(b, "x", i, 8, 1); }
WRONG(slice_of_none) { tandem_build_slice(b, "x", i, 0, 0); }
WRONG(slice_negative) { tandem_build_slice(b, "x", i, -1, 2); }
WRONG(prepend_to_images) { tandem_build_concat_token(b, "x", i, 0.1f); }
WRONG(repeat_of_rows) { tandem_build_repeat(b, "x", i, 2); }
WRONG(repeat_never)
{
    tandem_build_repeat(b, "x", tandem_build_reshape(b, "r", i, 3, (int64_t[]){6, 1, 288}), 0);
}
WRONG(factors_by_sample) { tandem_build_mul_constant(b, "x", i, (float[1]){0}, (int64_t[]){1, 0, 0, 0}); }
WRONG(factors_before) { tandem_build_mul_constant(b, "x", i, (float[1]){0}, (int64_t[]){0, -1, 0, 0}); }
WRONG(factors_beyond)
{
    tandem_build_mul_constant(b, "x", i, (float[1]){0}, (int64_t[]){0, 1 << 28, 0, 0});
}
WRONG(add_of_different) { tandem_build_add(b, "x", i, tandem_build_avgpool(b, "r", i, 2, 2, 1)); }
WRONG(reshape_elements) { tandem_build_reshape(b, "x", i, 2, (int64_t[]){6, 287}); }
WRONG(reshape_dimensions) { tandem_build_reshape(b, "x", i, 5, (int64_t[]){6, 2, 2, 2, 36}); }
WRONG(reshape_negative) { tandem_build_reshape(b, "x", i, 2, (int64_t[]){-6, -288}); }
WRONG(reshape_overflow)
{
    tandem_build_reshape(b, "x", i, 4, (int64_t[]){INT64_C(1) << 40, INT64_C(1) << 40, 6, 1});
}
WRONG(reshape_batch) { tandem_build_reshape(b, "x", i, 2, (int64_t[]){4, 432}); }
WRONG(transpose_twice) { tandem_build_transpose(b, "x", i, (int[]){0, 1, 1, 2}); }
WRONG(transpose_range) { tandem_build_transpose(b, "x", i, (int[]){0, 1, 2, 4}); }
WRONG(transpose_batch) { tandem_build_transpose(b, "x", i, (int[]){1, 0, 2, 3}); }
WRONG(softmax_scale) { tandem_build_softmax(b, "x", i, 0, 0); }
WRONG(softmax_nan) { tandem_build_softmax(b, "x", i, NAN, 0); }
WRONG(softmax_causal) { tandem_build_softmax(b, "x", i, 1, 1); }
WRONG(batchnorm_of_rows)
{
    tandem_build_batchnorm(b, "x", tandem_build_reshape(b, "r", i, 2, (int64_t[]){6, 288}));
}
WRONG(loss_without_labels) { tandem_build_cross_entropy(b, "x", i, i); }
WRONG(loss_of_labels)
{
    const int l = tandem_build_labels(b, "l", 1);
    (void)i;
    tandem_build_cross_entropy(b, "x", l, l);
}
WRONG(loss_rows) { tandem_build_cross_entropy(b, "x", i, tandem_build_labels(b, "l", 1)); }
WRONG(loss_one_class)
{
    i = tandem_build_reshape(b, "r", i, 2, (int64_t[]){1728, 1});
    tandem_build_cross_entropy(b, "x", i, tandem_build_labels(b, "l", 288));
}
WRONG(loss_twice)
{
    i = tandem_build_reshape(b, "r", i, 2, (int64_t[]){6, 288});
    const int l = tandem_build_labels(b, "l", 1);
    tandem_build_relu(b, "x", tandem_build_cross_entropy(b, "loss", i, l));
}
WRONG(labels_of_0) { (void)i; tandem_build_labels(b, "x", 0); }

/* clang-format on */

static const struct {
    void (*build)(tandem_builder *b, int i);
    const char *text; /* all of the error */
} wrong[] = {
    {two_inputs, "operator 'x' (images): there is 'image' (images) already; allowed are one source of "
                 "samples and one of labels"},
    {two_kinds_of_input, "operator 'x' (tokens): there is 'image' (images) already; allowed are one "
                         "source of samples and one of labels"},
    {two_labels, "operator 'x' (labels): there is 'l' (labels) already; allowed are one source of "
                 "samples and one of labels"},
    {no_name, "operator 1 (relu) has the name ''; allowed are 1 … 47 letters, digits, and any of ._-/"},
    {null_name, "operator 1 (relu) has the name ''; allowed are 1 … 47 letters, digits, and any of ._-/"},
    {name_of_48, "operator 1 (relu) has the name 'x2345678901234567890123456789012345678901234567x'; "
                 "allowed are 1 … 47 letters, digits, and any of ._-/"},
    {name_with_space, "operator 1 (relu) has the name 'x y'; allowed are 1 … 47 letters, digits, and any of "
                      "._-/"},
    {name_twice, "operator 'image' (relu): the name is taken by operator 0; names must be unique"},
    {input_minus_1, "operator 'x' (relu): input 0 is tensor -1; allowed 0 … 0"},
    {input_ahead, "operator 'x' (relu): input 0 is tensor 1; allowed 0 … 0"},
    {second_input_ahead, "operator 'x' (add): input 1 is tensor 99; allowed 0 … 0"},
    {linear_of_labels, "operator 'x' (linear): input 0 is 'l' (labels); labels are read by the loss and "
                       "by gather_labelled, as their second input, and by nothing else"},
    {reshape_of_labels, "operator 'x' (reshape): input 0 is 'l' (labels); labels are read by the loss and "
                        "by gather_labelled, as their second input, and by nothing else"},
    {embedding_of_images, "operator 'x' (embedding): input 0, 'image', has type f32; allowed is s32"},
    {linear_to_0, "operator 'x' (linear): dimension 1 of its parameter is 0; allowed 1 or more"},
    {linear_too_large, "operator 'x' (linear): its parameter has shape 4x9223372036854775807; allowed "
                       "are fewer than 2^44 elements"},
    {linear_output_too_large, "operator 'x' (linear): its output has shape 6x8x9x1099511627776; allowed "
                              "are fewer than 2^44 elements"},
    {linear_of_one_dimension, "operator 'x' (linear): input 0 has shape 1728, 1 dimensions; allowed 2 … 4"},
    {deviation_negative, "operator 'x' (linear): the deviation of its initial weights is -0.5; allowed 0 or "
                         "more"},
    {deviation_nan, "operator 'x' (bias): the deviation of its initial weights is nan; allowed 0 or more"},
    {conv_of_rows, "operator 'x' (conv2d): input 0 has shape 6x288, 2 dimensions; allowed 4"},
    {conv_kernel_0, "operator 'x' (conv2d): the window's height is 0; allowed 1 … 1048576"},
    {conv_kernel_too_large,
     "operator 'x' (conv2d): a window of 9x9 on images of 8x9 padded by 0; allowed are windows that fit"},
    {conv_stride_0, "operator 'x' (conv2d): the stride is 0; allowed 1 … 1048576"},
    {conv_pad_of_kernel, "operator 'x' (conv2d): the padding is 3; allowed 0 … 2"},
    {conv_pad_negative, "operator 'x' (conv2d): the padding is -1; allowed 0 … 2"},
    {conv_channels_0, "operator 'x' (conv2d): dimension 1 of its parameter is 0; allowed 1 or more"},
    {pool_pad_over_half, "operator 'x' (maxpool): the padding is 2; allowed 0 … 1"},
    {pool_too_large, "operator 'x' (avgpool): a window of 8x10 on images of 8x9 padded by 0; allowed are "
                     "windows that fit"},
    {matmul_inner, "operator 'x' (matmul): 6x8x9x4 by 6x8x9x4; allowed are equal leading dimensions, and "
                   "columns of the first equal to rows of the second"},
    {matmul_of_rows, "operator 'x' (matmul): input 0 has shape 6x288, 2 dimensions; allowed 3 … 4"},
    {matmul_leading, "operator 'x' (matmul): 6x8x9x4 by 6x4x18x4 transposed; allowed are equal leading "
                     "dimensions, and columns of the first equal to columns of the second"},
    {matmul_dimensions, "operator 'x' (matmul): input 1 has shape 6x72x4, 3 dimensions; allowed 4"},
    {bias_over_all, "operator 'x' (bias): the number of trailing dimensions is 4; allowed 1 … 3"},
    {bias_over_none, "operator 'x' (bias): the number of trailing dimensions is 0; allowed 1 … 3"},
    {rows_too_few, "operator 'x' (bias): the number of rows is 8; allowed 9 … 2147483647"},
    {rows_of_two_dimensions, "operator 'x' (bias): input 0 has shape 6x288, 2 dimensions; allowed 3 … 4"},
    {tied_to_images, "operator 'x' (linear): its weight is that of operator 0; allowed is an embedding"},
    {tied_to_nothing, "operator 'x' (linear): its weight is that of operator 77; allowed is an embedding"},
    {masked_none, "operator 'x' (labels): the number of masked tokens is 0; allowed 1 … 8"},
    {masked_more_than_all, "operator 'x' (labels): the number of masked tokens is 9; allowed 1 … 8"},
    {labelled_without_masked, "operator 'x' (gather_labelled): the number of masked tokens is 0; allowed 1 … "
                              "8"},
    {labelled_of_fewer, "operator 'x' (gather_labelled): the number of labels is 42; allowed 48 … 48"},
    {labelled_twice, "operator 'y' (gather_labelled): the number of labels is 48; allowed 18 … 18"},
    {slice_after_the_end, "operator 'x' (slice): the number of rows is 2; allowed 1 … 1"},
    {slice_from_the_end, "operator 'x' (slice): the first row is 8; allowed 0 … 7"},
    {slice_of_none, "operator 'x' (slice): the number of rows is 0; allowed 1 … 8"},
    {slice_negative, "operator 'x' (slice): the first row is -1; allowed 0 … 7"},
    {repeat_of_rows, "operator 'x' (repeat): dimension 1 is 8; allowed 1 … 1"},
    {repeat_never, "operator 'x' (repeat): the number of times is 0; allowed 1 … 2147483647"},
    {factors_by_sample, "operator 'x' (mul_constant): a step of its factors is 1; allowed 0 … 0"},
    {factors_before, "operator 'x' (mul_constant): a step of its factors is -1; allowed 0 … 268435456"},
    {factors_beyond,
     "operator 'x' (mul_constant): the number of its factors is 1879048193; allowed 1 … 268435456"},
    {prepend_to_images, "operator 'x' (concat_token): input 0 has shape 6x8x9x4, 4 dimensions; allowed 3"},
    {add_of_different,
     "operator 'x' (add): the inputs have shapes 6x8x9x4 and 6x7x8x4; allowed are equal ones"},
    {reshape_elements, "operator 'x' (reshape): 6x8x9x4 into 6x287; allowed are shapes of 1728 elements"},
    {reshape_dimensions, "operator 'x' (reshape): the number of dimensions is 5; allowed 1 … 4"},
    {reshape_negative, "operator 'x' (reshape): dimension 0 of its output is -6; allowed 1 or more"},
    {reshape_overflow, "operator 'x' (reshape): its output has shape 1099511627776x1099511627776x6x1; "
                       "allowed are fewer than 2^44 elements"},
    {reshape_batch, "operator 'x' (reshape): 6x8x9x4 into 4x432; the first dimension must stay a "
                    "multiple of the batch, 6"},
    {transpose_twice, "operator 'x' (transpose): axis 2 of the output is axis 1 of the input; allowed is "
                      "each of 0 … 3, once"},
    {transpose_range, "operator 'x' (transpose): axis 3 of the output is axis 4 of the input; allowed is "
                      "each of 0 … 3, once"},
    {transpose_batch, "operator 'x' (transpose): axis 0 of the output is axis 1 of the input; allowed is "
                      "0: the batch stays first"},
    {softmax_scale, "operator 'x' (softmax): the scale is 0; allowed are numbers above 0"},
    {softmax_nan, "operator 'x' (softmax): the scale is nan; allowed are numbers above 0"},
    {softmax_causal, "operator 'x' (softmax): the last dimensions are 9x4; allowed under a causal mask are "
                     "equal ones"},
    {batchnorm_of_rows, "operator 'x' (batchnorm): input 0 has shape 6x288, 2 dimensions; allowed 4"},
    {loss_without_labels, "operator 'x' (cross_entropy): input 1 is 'image' (images); labels are read by the "
                          "loss and "
                          "by gather_labelled, as their second input, and by nothing else"},
    {loss_of_labels, "operator 'x' (cross_entropy): input 0 is 'l' (labels); labels are read by the loss and "
                     "by gather_labelled, as their second input, and by nothing else"},
    {loss_rows, "operator 'x' (cross_entropy): the number of labels is 6; allowed 432 … 432"},
    {loss_one_class, "operator 'x' (cross_entropy): the number of classes is 1; allowed 2 … 2147483647"},
    {loss_twice, "operator 'x' (relu): it reads 'loss'; nothing may follow the loss"},
    {labels_of_0, "operator 'x' (labels): dimension 1 of its output is 0; allowed 1 or more"},
};

static void broken_rules_are_named(void **state)
{
    for (size_t c = 0; c < N_OF(wrong); c++) {
        tandem_builder *b = building(6);
        tandem_graph *graph = untouched;
        tandem_error error = {0};
        wrong[c].build(b, tandem_build_images(b, "image", 8, 9, 4));
        /* The first error stays, and what follows is passed over. */
        assert_int_equal(tandem_build_relu(b, "later", 0), -1);
        assert_int_equal(tandem_build_linear(b, "", 77, -1, -1), -1);
        assert_int_equal(tandem_builder_finish(b, "test", &sgd, &graph, &error), TANDEM_WRONG_GRAPH);
        assert_int_equal(error.status, TANDEM_WRONG_GRAPH);
        assert_string_equal(error.text, wrong[c].text);
        assert_ptr_equal(graph, untouched);
        tandem_builder_close(b);
    }
}

static void tied_wrong(int64_t width, int twice, const char *text)
{
    tandem_builder *b = building(2);
    tandem_graph *graph = untouched;
    tandem_error error = {0};
    const int word = tandem_build_embedding(b, "word", tandem_build_tokens(b, "tokens", 4), 10, 6);
    const int x = tandem_build_linear(b, "linear", word, width, 0.1f);
    if (twice) tandem_build_tied(b, "first", x, word);
    assert_int_equal(tandem_build_tied(b, "x", x, word), -1);
    assert_int_equal(tandem_builder_finish(b, "test", &sgd, &graph, &error), TANDEM_WRONG_GRAPH);
    assert_string_equal(error.text, text);
    tandem_builder_close(b);
}

static void a_table_is_tied_once_and_to_what_fits(void **state)
{
    tied_wrong(5, 0, "operator 'x' (linear): the last dimension of its input is 5; allowed 6 … 6");
    tied_wrong(6, 1,
               "operator 'x' (linear): the table of 'word' is tied to 'first'; allowed is one linear a "
               "table");
}

static void nothing_comes_of_nothing(void **state)
{
    tandem_builder *b = building(2);
    tandem_graph *graph = untouched;
    tandem_error error = {0};
    assert_int_equal(tandem_builder_finish(b, "test", &sgd, &graph, &error), TANDEM_WRONG_GRAPH);
    assert_string_equal(error.text, "the graph ends with nothing; allowed is cross_entropy");
    assert_int_equal(tandem_build_relu(b, "x", 0), -1);
    assert_int_equal(tandem_builder_finish(b, "test", &sgd, &graph, &error), TANDEM_WRONG_GRAPH);
    assert_string_equal(error.text, "operator 'x' (relu): input 0 is tensor 0, but there is none yet");
    assert_ptr_equal(graph, untouched);
    tandem_builder_close(b);
    tandem_builder_close(NULL);
    tandem_graph_close(NULL);
}

/* What only shows at the end: `unread` adds an operator nobody reads, `train` something to train. */
static tandem_status ended(int unread, int train, int loss, const char *model, float rate,
                           tandem_error *error)
{
    tandem_builder *b = building(2);
    tandem_graph *graph = untouched;
    const int64_t flat[2] = {2, 16};
    int x = tandem_build_images(b, "image", 4, 4, 1);
    const int label = tandem_build_labels(b, "label", 1);
    x = tandem_build_reshape(b, "flatten", x, 2, flat);
    if (unread) tandem_build_relu(b, "unread", x);
    if (train) x = tandem_build_linear(b, "head", x, 3, 0.1f);
    if (loss) tandem_build_cross_entropy(b, "loss", x, label);
    const tandem_optimizer_options optimizer = {.kind = TANDEM_SGD, .rate = rate};
    const tandem_status status = tandem_builder_finish(b, model, &optimizer, &graph, error);
    if (status == TANDEM_OK)
        tandem_graph_close(graph);
    else
        assert_ptr_equal(graph, untouched);
    tandem_builder_close(b);
    return status;
}

static void the_end_is_checked(void **state)
{
    tandem_error error = {0};
    char name[TANDEM_MODEL_NAME + 1];
    memset(name, 'n', sizeof name - 1);
    name[TANDEM_MODEL_NAME - 1] = '\0';
    assert_int_equal(ended(0, 1, 1, name, 0.1f, &error), TANDEM_OK);
    name[TANDEM_MODEL_NAME - 1] = 'n';
    name[TANDEM_MODEL_NAME] = '\0';
    assert_int_equal(ended(0, 1, 1, name, 0.1f, &error), TANDEM_WRONG_GRAPH);
    assert_string_equal(error.text, "the model's name has 5120 characters; allowed 1 … 5119");
    assert_int_equal(ended(0, 1, 1, "", 0.1f, &error), TANDEM_WRONG_GRAPH);
    assert_int_equal(ended(0, 1, 1, NULL, 0.1f, &error), TANDEM_WRONG_GRAPH);
    assert_int_equal(ended(0, 1, 1, "test", NAN, &error), TANDEM_WRONG_GRAPH);
    assert_int_equal(ended(0, 1, 1, "test", -1, &error), TANDEM_WRONG_GRAPH);
    assert_int_equal(ended(1, 1, 1, "test", 0.1f, &error), TANDEM_WRONG_GRAPH);
    assert_string_equal(error.text, "operator 'unread' (relu): nothing reads its output; allowed for the "
                                    "loss alone");
    assert_int_equal(ended(0, 0, 1, "test", 0.1f, &error), TANDEM_WRONG_GRAPH);
    assert_string_equal(error.text, "the graph has nothing to train before its loss");
    assert_int_equal(ended(0, 1, 0, "test", 0.1f, &error), TANDEM_WRONG_GRAPH);
    assert_string_equal(error.text, "the graph ends with operator 'head'; allowed is cross_entropy");
}

static void a_refused_end_can_be_mended(void **state)
{
    tandem_builder *b = building(2);
    tandem_graph *graph = untouched;
    const int64_t flat[2] = {2, 16};
    const int x = tandem_build_reshape(b, "flatten", tandem_build_images(b, "image", 4, 4, 1), 2, flat);
    const int y = tandem_build_relu(b, "relu", x);
    assert_int_equal(tandem_builder_finish(b, "test", &sgd, &graph, NULL), TANDEM_WRONG_GRAPH);
    const int head = tandem_build_linear(b, "head", y, 3, 0.1f);
    tandem_build_cross_entropy(b, "loss", head, tandem_build_labels(b, "label", 1));
    assert_int_equal(tandem_builder_finish(b, "test", &sgd, &graph, NULL), TANDEM_OK);
    assert_int_equal(graph->n_op, 6);
    tandem_graph_close(graph);
    /* The builder is empty then. */
    assert_int_equal(tandem_builder_finish(b, "test", &sgd, &graph, NULL), TANDEM_WRONG_GRAPH);
    tandem_builder_close(b);
}

/* Names are still known when the builder has grown. */
static void names_stay_unique_in_large_graphs(void **state)
{
    tandem_builder *b = building(1);
    int x = tandem_build_images(b, "image", 1, 1, 1);
    for (int i = 0; i < 200; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "relu%d", i);
        x = tandem_build_relu(b, name, x);
    }
    assert_int_equal(x, 200);
    assert_int_equal(tandem_build_relu(b, "relu7", x), -1);
    tandem_graph *graph = untouched;
    tandem_error error = {0};
    assert_int_equal(tandem_builder_finish(b, "test", &sgd, &graph, &error), TANDEM_WRONG_GRAPH);
    assert_string_equal(error.text, "operator 'relu7' (relu): the name is taken by operator 8; names must be "
                                    "unique");
    tandem_builder_close(b);
}

static void operators_have_a_limit(void **state)
{
    tandem_builder *b = building(1);
    int x = tandem_build_images(b, "image", 1, 1, 1), n = 1;
    for (char name[16]; x >= 0 && n < 70000; n++) {
        (void)snprintf(name, sizeof name, "relu%d", n);
        x = tandem_build_relu(b, name, x);
    }
    assert_int_equal(n, 65536); /* 65535 were taken */
    tandem_graph *graph = untouched;
    tandem_error error = {0};
    assert_int_equal(tandem_builder_finish(b, "test", &sgd, &graph, &error), TANDEM_WRONG_GRAPH);
    assert_string_equal(error.text, "the graph has more than 65535 operators, which is the limit");
    tandem_builder_close(b);
}

/* --- Names of models ------------------------------------------------------------------------------------ */
static void names_become_canonical(void **state)
{
    static const char *const cases[][2] = {
        {"mlp", "mlp"},
        {"mlp:width=256", "mlp"},
        {"mlp:image=28x28x1,classes=10,depth=2", "mlp"},
        {"mlp:classes=3,width=0064", "mlp:width=64,classes=3"},
        {"vit_tiny:heads=4,width=256", "vit_tiny:width=256,heads=4"},
        {"vit_tiny:image=32x16x3", "vit_tiny:image=32x16x3"},
        {"mlp:image=28", "mlp"},
        {"bert_base:head=mlm", "bert_base"},
        {"bert_base:classes=65536,head=class,positions=65536,vocabulary=1048576,heads=256,layers=1,"
         "width=16384,seq=1024",
         "bert_base:seq=1024,width=16384,layers=1,heads=256,vocabulary=1048576,positions=65536,"
         "head=class,classes=65536"},
        {"mlp:image=32", "mlp:image=32x32x1"},
        {"resnet50:classes=10,image=64", "resnet50:image=64x64x3,classes=10"},
        {"vit_tiny:classes=65536,mlp=16,heads=128,depth=1,width=16384,patch=256,image=4096x4096x64",
         "vit_tiny:image=4096x4096x64,patch=256,width=16384,depth=1,heads=128,mlp=16,classes=65536"},
        {"gpt_tiny:vocabulary=1048576,heads=128,depth=1,width=16384,length=65536",
         "gpt_tiny:length=65536,width=16384,depth=1,heads=128,vocabulary=1048576"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_graph *graph = opened(cases[i][0], 1), *plain = opened(cases[i][1], 1);
        assert_string_equal(graph->model, cases[i][1]);
        assert_true(graph->hash == plain->hash);
        tandem_graph_close(graph);
        tandem_graph_close(plain);
    }
}

static void wrong_names_are_answered(void **state)
{
    static const struct {
        const char *model;
        int64_t batch;
        tandem_status status;
        const char *text; /* part of the error */
    } cases[] = {
        {"resnet21", 1, TANDEM_UNKNOWN_NAME, "there is no model 'resnet21'. Did you mean 'resnet20'?"},
        {"vit-tiny", 1, TANDEM_UNKNOWN_NAME, "Did you mean 'vit_tiny'?"},
        {"gpttiny:length=3", 1, TANDEM_UNKNOWN_NAME, "there is no model 'gpttiny'. Did you mean 'gpt_tiny'?"},
        {"", 1, TANDEM_UNKNOWN_NAME, "there is no model ''. `tandem list models` shows them"},
        {NULL, 1, TANDEM_UNKNOWN_NAME, "there is no model ''"},
        {"\033[2J\xff", 1, TANDEM_UNKNOWN_NAME, "there is no model '?[2J?'"},
        {"mlp:widht=3", 1, TANDEM_UNKNOWN_NAME, "model mlp has no option 'widht'. Did you mean 'width'?"},
        {"mlp:patch=3", 1, TANDEM_UNKNOWN_NAME, "model mlp has no option 'patch'"},
        {"mlp: width=3", 1, TANDEM_UNKNOWN_NAME, "no option ' width'"},
        {"mlp:", 1, TANDEM_USAGE, "model mlp: an option without a name; write mlp:option=value,option=value"},
        {"mlp:width=3,", 1, TANDEM_USAGE, "an option without a name"},
        {"mlp:=3", 1, TANDEM_USAGE, "an option without a name"},
        {"mlp:width", 1, TANDEM_USAGE, "model mlp: width has no value; write width=VALUE"},
        {"mlp:width=3,width=3", 1, TANDEM_USAGE, "model mlp: width is given twice; allowed once"},
        {"mlp:width=", 1, TANDEM_USAGE,
         "model mlp: width is ''; allowed 1 … 65536 (outputs of a hidden "
         "layer)"},
        {"mlp:width=0", 1, TANDEM_USAGE, "model mlp: width is '0'; allowed 1 … 65536"},
        {"mlp:width=65537", 1, TANDEM_USAGE, "model mlp: width is '65537'; allowed 1 … 65536"},
        {"mlp:width=-1", 1, TANDEM_USAGE, "width is '-1'"},
        {"mlp:width=+1", 1, TANDEM_USAGE, "width is '+1'"},
        {"mlp:width= 1", 1, TANDEM_USAGE, "width is ' 1'"},
        {"mlp:width=1e2", 1, TANDEM_USAGE, "width is '1e2'"},
        {"mlp:width=99999999999999999999999", 1, TANDEM_USAGE, "width is '99999999999999999999999'"},
        /* 2^64 + 64 */
        {"mlp:width=18446744073709551680", 1, TANDEM_USAGE, "width is '18446744073709551680'"},
        {"mlp:width=4=4", 1, TANDEM_USAGE, "width is '4=4'"},
        {"mlp:classes=1", 1, TANDEM_USAGE, "classes is '1'; allowed 2 … 65536"},
        {"mlp:image=4097", 1, TANDEM_USAGE, "model mlp: image is '4097'; allowed 1x1x1 … 4096x4096x64"},
        {"mlp:image=0", 1, TANDEM_USAGE, "image is '0'"},
        {"vgg16_bn:image=31x32x3", 1, TANDEM_USAGE, "image is '31x32x3'; allowed 32x32x1 … 4096x4096x64"},
        {"mlp:image=28x28x", 1, TANDEM_USAGE, "image is '28x28x'"},
        {"mlp:image=28x28", 1, TANDEM_USAGE, "image is '28x28'"},
        {"mlp:image=28x28x1x1", 1, TANDEM_USAGE, "image is '28x28x1x1'"},
        {"mlp:image=0x28x1", 1, TANDEM_USAGE, "image is '0x28x1'"},
        {"mlp:image=28x4097x1", 1, TANDEM_USAGE, "image is '28x4097x1'"},
        {"mlp:image=28x28x65", 1, TANDEM_USAGE, "image is '28x28x65'"},
        {"mlp:image=28xx1", 1, TANDEM_USAGE, "image is '28xx1'"},
        {"mlp:image=", 1, TANDEM_USAGE, "image is ''"},
        {"bert_base:head=lm", 1, TANDEM_USAGE, "model bert_base: head is 'lm'; allowed mlm … class"},
        {"bert_base:head=0", 1, TANDEM_USAGE, "head is '0'"},
        {"bert_base:seq=513", 1, TANDEM_USAGE,
         "model bert_base: seq=513 with positions=512; allowed are sequences up to the number of positions"},
        {"gpt2_small:seq=1025", 1, TANDEM_USAGE, "model gpt2_small: seq=1025 with positions=1024"},
        {"gpt2_small:heads=5", 1, TANDEM_USAGE, "model gpt2_small: width=768 with heads=5"},
        {"bert_base:heads=5", 1, TANDEM_USAGE, "model bert_base: width=768 with heads=5"},
        {"vit_b16:image=100", 1, TANDEM_USAGE, "model vit_b16: patch=16 on images of 100x100"},
        {"vit_tiny:width=200", 1, TANDEM_USAGE,
         "model vit_tiny: width=200 with heads=3; the width must be a multiple of the heads"},
        {"gpt_tiny:heads=3", 1, TANDEM_USAGE, "model gpt_tiny: width=128 with heads=3"},
        {"vit_tiny:patch=5", 1, TANDEM_USAGE,
         "model vit_tiny: patch=5 on images of 28x28; height and width must be multiples of the patch"},
        {"vit_tiny:image=28x30x1", 1, TANDEM_USAGE, "patch=4 on images of 28x30"},
        {"mlp", 0, TANDEM_USAGE, "the batch is 0; allowed 1 … 1048576"},
        {"mlp", -1, TANDEM_USAGE, "the batch is -1; allowed 1 … 1048576"},
        {"mlp", 1048577, TANDEM_USAGE, "the batch is 1048577; allowed 1 … 1048576"},
        {"mlp", INT64_MIN, TANDEM_USAGE, "the batch is -9223372036854775808"},
        {"mlp:image=4096x4096x64", 1 << 20, TANDEM_WRONG_GRAPH,
         "operator 'image' (images): its output has shape 1048576x4096x4096x64; allowed are fewer than 2^44 "
         "elements"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_graph *graph = untouched;
        tandem_error error = {0};
        const tandem_status status = tandem_graph_open(&graph, cases[i].model, cases[i].batch, &error);
        if (status != cases[i].status || error.status != status || !strstr(error.text, cases[i].text))
            fail_msg("%s: %s: %s", cases[i].model, tandem_status_name(status), error.text);
        assert_ptr_equal(graph, untouched);
        assert_int_equal(tandem_graph_open(&graph, cases[i].model, cases[i].batch, NULL), status);
    }
}

static void batches_up_to_the_limit_are_taken(void **state)
{
    tandem_graph *graph = opened("mlp", 1 << 20);
    SHAPE(op_named_graph(graph, "fc1"), 1 << 20, 256);
    tandem_graph_close(graph);
    tandem_graph_close(opened("resnet20", 1));
}

static void operators_are_found_by_name(void **state)
{
    tandem_graph *graph = opened("vit_tiny", 2);
    for (int i = 0; i < graph->n_op; i++) {
        int op = -1;
        assert_int_equal(tandem_graph_find(&op, graph, graph->op[i].name, NULL), TANDEM_OK);
        assert_int_equal(op, i);
    }
    int op = 5;
    tandem_error error = {0};
    assert_int_equal(tandem_graph_find(&op, graph, "block2.mlp.fc3", &error), TANDEM_UNKNOWN_NAME);
    assert_int_equal(op, 5);
    assert_non_null(strstr(
        error.text, "model vit_tiny has no operator 'block2.mlp.fc3'. Did you mean 'block2.mlp.fc1'?"));
    tandem_graph_close(graph);
}

static void the_zoo_lists_its_models(void **state)
{
    assert_int_equal(tandem_model_count(), 10);
    assert_null(tandem_model_get(-1));
    assert_null(tandem_model_get(tandem_model_count()));
    for (int i = 0; i < tandem_model_count(); i++) {
        const tandem_model *model = tandem_model_get(i);
        assert_true(strcmp(model->data, "images") == 0 || strcmp(model->data, "text") == 0);
        int n = 0;
        for (const tandem_model_option *o = model->option; o->name; o++, n++) {
            assert_true(o->min_value <= o->default_value && o->default_value <= o->max_value);
            assert_true(o->meaning[0] != '\0');
        }
        assert_true(n >= 1 && n <= TANDEM_ZOO_MAX_OPTION);
        tandem_graph_close(opened(model->name, 3));
    }
}

/* --- Networks of a sweep -------------------------------------------------------------------------------- */

/* What a sweep of N networks holds. */
typedef struct sweep_census {
    int of_kind[TANDEM_N_OP_KIND];
    int of_decade[TANDEM_N_OP_KIND][12]; /* by FLOPs of a forward pass */
} sweep_census;

static void count_network(sweep_census *census, const tandem_graph *graph)
{
    double elements = 0;
    for (int op = 0; op < graph->n_op; op++) {
        const tandem_op *const one = &graph->op[op];
        const int decade = one->flops > 1 ? (int)log10(one->flops) : 0;
        census->of_kind[one->kind]++;
        census->of_decade[one->kind][decade < 11 ? decade : 11]++;
        elements += (double)tandem_shape_elements(&one->shape);
    }
    const tandem_shape *const source = &graph->op[graph->input].shape;
    /* no replay takes it for a model at another batch */
    assert_true(source->n_dim == 4 ? source->dim[1] == 4 * source->dim[2] : source->dim[1] % 7 == 0);
    assert_true(tandem_graph_flops(graph) < 2e10);
    assert_true(elements + 4 * (double)tandem_graph_n_weight(graph) < 1.5e8); /* of 4 bytes */
}

/* Any few of the first networks hold every operator of models, and products of all sizes. */
static void sweeps_hold_all_operators_across_sizes(void **state)
{
    static const tandem_op_kind common[] = {TANDEM_OP_LINEAR,
                                            TANDEM_OP_CONV2D,
                                            TANDEM_OP_MATMUL,
                                            TANDEM_OP_EMBEDDING,
                                            TANDEM_OP_BIAS,
                                            TANDEM_OP_BIAS_GELU,
                                            TANDEM_OP_RELU,
                                            TANDEM_OP_ADD,
                                            TANDEM_OP_BATCHNORM,
                                            TANDEM_OP_BATCHNORM_RELU,
                                            TANDEM_OP_BATCHNORM_ADD_RELU,
                                            TANDEM_OP_MAXPOOL,
                                            TANDEM_OP_AVGPOOL,
                                            TANDEM_OP_TRANSPOSE,
                                            TANDEM_OP_SLICE,
                                            TANDEM_OP_DROPOUT,
                                            TANDEM_OP_TANH,
                                            TANDEM_OP_SOFTMAX,
                                            TANDEM_OP_LAYERNORM,
                                            TANDEM_OP_CROSS_ENTROPY};
    static const tandem_op_kind product[] = {TANDEM_OP_LINEAR, TANDEM_OP_CONV2D};
    enum { FEW = 25, ALL = 150 };
    (void)state;
    for (int first = 0; first < ALL; first += FEW) {
        sweep_census census = {0};
        for (int i = first; i < first + FEW; i++) {
            tandem_graph *graph = NULL, *again = NULL;
            tandem_error error = {0};
            require_ok(tandem_sweep_open(&graph, i, &error), &error);
            require_ok(tandem_sweep_open(&again, i, &error), &error);
            assert_true(graph->hash == again->hash && graph->batch == again->batch);
            count_network(&census, graph);
            tandem_graph_close(again);
            tandem_graph_close(graph);
        }
        for (size_t k = 0; k < N_OF(common); k++)
            if (census.of_kind[common[k]] == 0)
                fail_msg("networks %d to %d lack %s", first + 1, first + FEW,
                         tandem_op_row_get(common[k])->name);
        for (size_t k = 0; k < N_OF(product); k++)
            for (int decade = 4; decade <= 8; decade++)
                if (census.of_decade[product[k]][decade] == 0)
                    fail_msg("networks %d to %d have no %s of 1e%d FLOPs", first + 1, first + FEW,
                             tandem_op_row_get(product[k])->name, decade);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(number_types_have_names_and_sizes),
        cmocka_unit_test(sizes_count_scales_of_blocks),
        cmocka_unit_test(precisions_are_found_by_name),
        cmocka_unit_test(operator_rows_say_what_op_def_says),
        cmocka_unit_test(optimizers_have_states),
        cmocka_unit_test(models_have_the_parameters_counted_by_hand),
        cmocka_unit_test(models_have_the_parameters_that_were_published),
        cmocka_unit_test(mlp_flops_are_those_counted_by_hand),
        cmocka_unit_test(vit_has_the_shapes_of_its_drawing),
        cmocka_unit_test(gpt_predicts_every_symbol),
        cmocka_unit_test(resnet_halves_its_images),
        cmocka_unit_test(resnet50_has_the_shapes_of_its_table),
        cmocka_unit_test(large_transformers_have_the_shapes_of_their_drawings),
        cmocka_unit_test(a_tied_head_reads_the_table_of_the_embedding),
        cmocka_unit_test(factors_of_places),
        cmocka_unit_test(slices_and_prepended_rows),
        cmocka_unit_test(consumers_are_in_order),
        cmocka_unit_test(views_lead_to_whose_memory_it_is),
        cmocka_unit_test(gradients_begin_where_training_does),
        cmocka_unit_test(side_results_have_their_size),
        cmocka_unit_test(windows_round_down),
        cmocka_unit_test(signatures_are_these),
        cmocka_unit_test(the_hash_is_of_the_model_not_of_the_batch),
        cmocka_unit_test(parameters_have_names_of_their_own),
        cmocka_unit_test(dropout_is_where_it_was_published),
        cmocka_unit_test(a_batchnorm_and_its_relu_are_one),
        cmocka_unit_test(a_batchnorm_its_sum_and_their_relu_are_one),
        cmocka_unit_test(a_sum_that_others_read_stays),
        cmocka_unit_test(a_bias_and_its_gelu_are_one),
        cmocka_unit_test(a_batchnorm_that_others_read_stays),
        cmocka_unit_test(every_part_of_a_graph_is_hashed),
        cmocka_unit_test(hashes_of_the_zoo_are_lasting),
        cmocka_unit_test(first_weights_are_normal_numbers_from_philox),
        cmocka_unit_test(first_weights_have_mean_and_deviation),
        cmocka_unit_test(first_weights_depend_on_the_seed_alone),
        cmocka_unit_test(matrices_decay_and_biases_do_not),
        cmocka_unit_test(broken_rules_are_named),
        cmocka_unit_test(a_table_is_tied_once_and_to_what_fits),
        cmocka_unit_test(nothing_comes_of_nothing),
        cmocka_unit_test(the_end_is_checked),
        cmocka_unit_test(a_refused_end_can_be_mended),
        cmocka_unit_test(names_stay_unique_in_large_graphs),
        cmocka_unit_test(operators_have_a_limit),
        cmocka_unit_test(names_become_canonical),
        cmocka_unit_test(wrong_names_are_answered),
        cmocka_unit_test(batches_up_to_the_limit_are_taken),
        cmocka_unit_test(operators_are_found_by_name),
        cmocka_unit_test(the_zoo_lists_its_models),
        cmocka_unit_test(sweeps_hold_all_operators_across_sizes),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
