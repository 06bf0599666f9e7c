/* folder: profiles */
/* Plans: the rule for precisions that are missing, and the plan file. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiles/plan/plan_json.h"
#include "tandem/plan.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"
#include "tests/support/test_graph.h"

static tandem_plan *open_plan_plan(const tandem_graph *graph, const char *cluster_text)
{
    tandem_plan *plan = NULL;
    tandem_cluster cluster;
    tandem_error error = {0};
    if (tandem_cluster_parse(&cluster, cluster_text, &error) != TANDEM_OK ||
        tandem_plan_open(&plan, graph, &cluster, "allocated", &error) != TANDEM_OK)
        fail_msg("%s", error.text);
    return plan;
}

/* --- In memory ------------------------------------------------------------------------------------------ */
static void a_plan_begins_in_fp32(void **state)
{
    tandem_graph *const graph = open_graph("mlp", 8);
    tandem_plan *plan = open_plan_plan(graph, "cpu:avx512_bf16 batch=8 + 2*cpu:avx2 batch=4");
    assert_string_equal(plan->model, graph->model);
    assert_int_equal(plan->hash, graph->hash);
    assert_int_equal(plan->assignment.n_op, graph->n_op);
    for (int c = 0; c < 2; c++)
        for (int op = 0; op < graph->n_op; op++)
            assert_int_equal(plan->assignment.precision[c][op], TANDEM_PRECISION_FP32);
    assert_null(plan->assignment.precision[2]);
    tandem_assignment copy;
    assert_int_equal(tandem_assignment_open(&copy, 2, graph->n_op, NULL), TANDEM_OK);
    assert_true(tandem_assignment_is_equal(&copy, &plan->assignment));
    plan->assignment.precision[1][graph->n_op - 1] = TANDEM_PRECISION_INT8;
    assert_false(tandem_assignment_is_equal(&copy, &plan->assignment));
    tandem_assignment_copy(&copy, &plan->assignment);
    assert_true(tandem_assignment_is_equal(&copy, &plan->assignment));
    assert_int_equal(copy.precision[0][graph->n_op - 1], TANDEM_PRECISION_FP32);
    tandem_assignment_close(&copy);
    assert_true(isnan(plan->sensitivity_bound) && isnan(plan->gap) && isnan(plan->lower_bound) &&
                plan->step_ns == 0);
    tandem_plan_close(plan);

    tandem_error error = {0};
    tandem_cluster cluster;
    tandem_plan *const untouched = (tandem_plan *)(uintptr_t)16;
    plan = untouched;
    assert_int_equal(tandem_cluster_parse(&cluster, "cpu:avx2 batch=8 + cpu:avx", &error), TANDEM_OK);
    assert_int_equal(tandem_plan_open(&plan, graph, &cluster, "x", &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "class 2 (cpu:avx) has no batch"));
    cluster.n_class = 0;
    assert_int_equal(tandem_plan_open(&plan, graph, &cluster, "x", &error), TANDEM_USAGE);
    cluster.n_class = TANDEM_MAX_CLASS + 1;
    assert_int_equal(tandem_plan_open(&plan, graph, &cluster, "x", &error), TANDEM_USAGE);
    assert_ptr_equal(plan, untouched);
    tandem_plan_close(NULL);
    tandem_graph_close(graph);
}

/* What each kind of operator gets, by device, when all are asked for one precision. */
static void missing_precisions_have_stand_ins(void **state)
{
    enum {
        FP32 = TANDEM_PRECISION_FP32,
        BF16 = TANDEM_PRECISION_BF16,
        INT8 = TANDEM_PRECISION_INT8,
        FULL = TANDEM_PRECISION_INT8_FULL,
        TF32 = TANDEM_PRECISION_TF32,
        FP16 = TANDEM_PRECISION_FP16,
        FP8 = TANDEM_PRECISION_FP8
    };
    static const struct {
        const char *model, *device;
        int asked, linear, matmul, conv2d, embedding; /* −1: the model has none */
    } cases[] = {
        {"vit_tiny", "cpu:avx512_bf16", FULL, FULL, FULL, FULL, -1},
        {"vit_tiny", "cpu:avx2", FULL, FULL, FULL, FULL, -1},
        {"vit_tiny", "cpu:avx512_bf16", BF16, BF16, BF16, BF16, -1},
        {"gpt_tiny", "cpu:avx512_bf16", FULL, FULL, FULL, -1, BF16},
        {"gpt_tiny", "cpu:avx512_bf16", INT8, INT8, INT8, -1, BF16},
        {"gpt_tiny", "cpu:avx512_vnni", INT8, INT8, INT8, -1, FP32}, /* has bf16, but it is slow there */
        {"gpt_tiny", "cpu:avx2", INT8, INT8, INT8, -1, FP32},
        {"gpt_tiny", "cpu:avx512_vnni", BF16, BF16, BF16, -1, BF16},
        {"gpt_tiny", "cpu:avx2", FP32, FP32, FP32, -1, FP32},
        {"gpt_tiny", "l4", FP8, FP8, FP8, -1, BF16},
        {"gpt_tiny", "l4", TF32, TF32, TF32, -1, FP32},
        {"gpt_tiny", "l4", FP16, FP16, FP16, -1, FP16},
        {"gpt_tiny", "t4", INT8, INT8, INT8, -1, FP16},
        {"gpt_tiny", "p4", INT8, INT8, INT8, -1, FP32},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_error error = {0};
        char cluster[96];
        (void)snprintf(cluster, sizeof cluster, "cpu:sse41 batch=1 + %s batch=1", cases[i].device);
        tandem_graph *const graph = open_graph(cases[i].model, 8);
        tandem_plan *const plan = open_plan_plan(graph, cluster);
        assert_int_equal(tandem_plan_uniform(plan, graph, 1, (tandem_precision)cases[i].asked, &error),
                         TANDEM_OK);
        int seen = 0;
        for (int op = 0; op < graph->n_op; op++) {
            const tandem_op_kind kind = graph->op[op].kind;
            const int expected = kind == TANDEM_OP_LINEAR      ? cases[i].linear
                                 : kind == TANDEM_OP_MATMUL    ? cases[i].matmul
                                 : kind == TANDEM_OP_CONV2D    ? cases[i].conv2d
                                 : kind == TANDEM_OP_EMBEDDING ? cases[i].embedding
                                                               : FP32;
            assert_int_equal(plan->assignment.precision[1][op], expected);
            assert_int_equal(plan->assignment.precision[0][op], FP32);
            seen += expected != FP32;
        }
        assert_true(seen > 0 || cases[i].asked == FP32);
        assert_true(tandem_plan_is_uniform(plan, graph, 1, (tandem_precision)cases[i].asked));
        assert_true(tandem_plan_is_uniform(plan, graph, 0, TANDEM_PRECISION_FP32));
        assert_int_equal(tandem_plan_is_uniform(plan, graph, 1, TANDEM_PRECISION_FP32),
                         cases[i].asked == FP32);
        assert_false(tandem_plan_is_uniform(plan, graph, 0, TANDEM_PRECISION_BF16)); /* cpu:sse41 has none */
        tandem_plan_close(plan);
        tandem_graph_close(graph);
    }
}

/* Every precision of the device comes up, another seed gives another plan, and what an operator lacks has a
 * stand-in. */
static void plans_are_drawn(void **state)
{
    tandem_error error = {0};
    tandem_graph *const graph = open_graph("gpt_tiny:depth=8", 8), *const other = open_graph("mlp", 8);
    tandem_plan *const plan = open_plan_plan(graph, "cpu:avx2 batch=8 + l4 batch=8"),
                       *const again = open_plan_plan(graph, "l4 batch=1 + l4 batch=8");
    const tandem_device *gpu = &plan->cluster.classes[1].device;
    const size_t bytes = (size_t)graph->n_op * sizeof *plan->assignment.precision[1];
    assert_int_equal(tandem_plan_random(plan, graph, 1, gpu->precisions, 7, &error), TANDEM_OK);
    assert_int_equal(tandem_plan_random(again, graph, 1, gpu->precisions, 7, &error), TANDEM_OK);
    assert_memory_equal(plan->assignment.precision[1], again->assignment.precision[1], bytes);
    assert_int_equal(tandem_plan_random(again, graph, 0, gpu->precisions, 7, &error), TANDEM_OK);
    assert_memory_not_equal(plan->assignment.precision[1], again->assignment.precision[0], bytes);
    assert_int_equal(tandem_plan_random(again, graph, 1, gpu->precisions, 8, &error), TANDEM_OK);
    assert_memory_not_equal(plan->assignment.precision[1], again->assignment.precision[1], bytes);
    unsigned seen = 0;
    for (int op = 0; op < graph->n_op; op++) {
        const unsigned has = tandem_op_row_get(graph->op[op].kind)->precisions,
                       drawn = 1u << plan->assignment.precision[1][op];
        assert_int_equal(plan->assignment.precision[0][op], TANDEM_PRECISION_FP32);
        assert_true(has ? (has & drawn) != 0 : drawn == 1u << TANDEM_PRECISION_FP32);
        seen |= drawn;
    }
    assert_int_equal(seen, gpu->precisions);
    assert_int_equal(tandem_plan_random(plan, graph, 0, 1u << TANDEM_PRECISION_BF16, 7, &error),
                     TANDEM_NO_KERNEL);
    assert_non_null(strstr(error.text, "'cpu:avx2' has none of the precisions"));
    assert_int_equal(tandem_plan_random(plan, graph, 2, gpu->precisions, 7, &error), TANDEM_USAGE);
    assert_int_equal(tandem_plan_random(plan, other, 0, gpu->precisions, 7, &error), TANDEM_WRONG_MODEL);
    tandem_plan_close(again);
    tandem_plan_close(plan);
    tandem_graph_close(other);
    tandem_graph_close(graph);
}

static void a_device_without_it_refuses(void **state)
{
    tandem_error error = {0};
    tandem_graph *const graph = open_graph("mlp", 8), *const other = open_graph("mlp:width=64", 8);
    tandem_plan *const plan = open_plan_plan(graph, "cpu:avx2 batch=8");
    assert_int_equal(tandem_plan_uniform(plan, graph, 0, TANDEM_PRECISION_INT8, &error), TANDEM_OK);
    assert_int_equal(tandem_plan_uniform(plan, graph, 0, TANDEM_PRECISION_BF16, &error), TANDEM_NO_KERNEL);
    assert_non_null(strstr(error.text, "'cpu:avx2' has no bf16; it has fp32, int8, int8_full"));
    assert_int_equal(tandem_plan_uniform(plan, graph, 1, TANDEM_PRECISION_INT8, &error), TANDEM_USAGE);
    assert_int_equal(tandem_plan_uniform(plan, graph, -1, TANDEM_PRECISION_INT8, &error), TANDEM_USAGE);
    assert_int_equal(tandem_plan_uniform(plan, other, 0, TANDEM_PRECISION_FP32, &error), TANDEM_WRONG_MODEL);
    int op = -1;
    assert_int_equal(tandem_graph_find(&op, graph, "fc1", NULL), TANDEM_OK);
    assert_int_equal(plan->assignment.precision[0][op], TANDEM_PRECISION_INT8);

    assert_int_equal(tandem_plan_check(plan, graph, &error), TANDEM_OK);
    assert_int_equal(tandem_plan_check(plan, other, &error), TANDEM_WRONG_MODEL);
    assert_non_null(strstr(error.text, "mlp"));
    assert_non_null(strstr(error.text, "mlp:width=64"));
    assert_int_equal(tandem_plan_write(plan, other, "/nonexistent/plan.json", &error), TANDEM_WRONG_MODEL);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
    tandem_graph_close(other);
}

/* --- The file ------------------------------------------------------------------------------------------- */
/* A plan with every field filled. */
static tandem_plan *full_plan(const tandem_graph *graph)
{
    tandem_plan *const plan =
        open_plan_plan(graph, "2*cpu:avx512_bf16@1 batch=8 memory=12GiB + cpu:avx2 batch=4 "
                              "net=41.279125MBps,59.904us");
    assert_int_equal(tandem_plan_uniform(plan, graph, 0, TANDEM_PRECISION_BF16, NULL), TANDEM_OK);
    assert_int_equal(tandem_plan_uniform(plan, graph, 1, TANDEM_PRECISION_INT8_FULL, NULL), TANDEM_OK);
    (void)snprintf(plan->policy, sizeof plan->policy, "local");
    (void)snprintf(plan->method, sizeof plan->method, "variance");
    plan->slowdown = 0.1;                      /* no short binary fraction: every digit counts */
    plan->step_ns = INT64_C(9007199254740993); /* 2^53 + 1 */
    plan->sensitivity_bound = 1.0 / 3;
    plan->lower_bound = 0;
    plan->objective = TANDEM_MINIMIZE_MEMORY;
    plan->max_sensitivity = 0.7;
    plan->peak_bytes[0] = INT64_C(1) << 40;
    plan->base_precision = TANDEM_PRECISION_BF16;
    plan->keeps_base = 1;
    plan->bucket_bytes = 1 << 20;
    plan->target_ns = INT64_C(9007199254740995);
    plan->fastest_ns = INT64_C(9007199254740001);
    (void)snprintf(plan->proof, sizeof plan->proof, "labels");
    plan->scale_rule = TANDEM_SCALE_AS_NEEDED;
    return plan;
}

static char *text_of(const tandem_plan *plan, const tandem_graph *graph)
{
    char *const text = tandem_plan_text(plan, graph);
    assert_non_null(text);
    return text;
}

/* Absent where the caller gave nothing, and then no member is written. */
static void what_made_a_plan_comes_back(void **state)
{
    tandem_error error = {0};
    tandem_graph *const graph = open_graph("mlp", 8), *opened = NULL;
    tandem_plan *const plan = full_plan(graph), *read = NULL;
    char *text = text_of(plan, graph);
    assert_null(strstr(text, "\"made\""));
    free(text);
    plan->made = (tandem_made){
        .command = "tandem allocate --model='a \"b\"'", .version = "9.9", .host = "h", .seed = "7"};
    text = text_of(plan, graph);
    assert_non_null(
        strstr(text, "\n  \"made\": {\"command\": \"tandem allocate --model='a \\\"b\\\"'\", \"version\": "
                     "\"9.9\", \"host\": \"h\", \"seed\": 7},\n"));
    require_ok(tandem_plan_parse(&read, &opened, text, strlen(text), "plan.json", &error), &error);
    assert_memory_equal(&read->made, &plan->made, sizeof read->made);
    free(text);
    tandem_plan_close(read);
    tandem_plan_close(plan);
    tandem_graph_close(opened);
    tandem_graph_close(graph);
}

static void a_plan_comes_back(void **state)
{
    tandem_error error = {0};
    tandem_graph *const graph = open_graph("mlp:width=64", 8), *opened = NULL;
    tandem_plan *const plan = full_plan(graph), *read = NULL;
    plan->cluster.node = (tandem_link){37.5e9, 2000};
    plan->cluster.classes[1].link = (tandem_link){600e9, 1000};
    char *const text = text_of(plan, graph);
    require_ok(tandem_plan_parse(&read, &opened, text, strlen(text), "plan.json", &error), &error);
    assert_string_equal(read->name, plan->name);
    assert_string_equal(read->policy, plan->policy);
    assert_string_equal(read->method, plan->method);
    assert_string_equal(read->model, "mlp:width=64");
    assert_int_equal(read->hash, plan->hash);
    assert_int_equal(read->assignment.n_op, plan->assignment.n_op);
    assert_true(read->slowdown == 0.1 && read->sensitivity_bound == 1.0 / 3 && read->lower_bound == 0 &&
                isnan(read->gap));
    assert_true(read->objective == TANDEM_MINIMIZE_MEMORY && read->max_sensitivity == 0.7);
    assert_int_equal(read->step_ns, plan->step_ns);
    assert_int_equal(read->target_ns, plan->target_ns);
    assert_int_equal(read->fastest_ns, plan->fastest_ns);
    assert_int_equal(read->base_precision, TANDEM_PRECISION_BF16);
    assert_int_equal(read->keeps_base, 1);
    assert_int_equal(read->bucket_bytes, 1 << 20);
    assert_string_equal(read->proof, "labels");
    assert_int_equal(read->scale_rule, TANDEM_SCALE_AS_NEEDED);
    assert_int_equal(read->has_unproven_bound, 0);
    assert_int_equal(read->peak_bytes[0], plan->peak_bytes[0]);
    assert_int_equal(read->peak_bytes[1], 0);
    char before[256], after[256];
    tandem_cluster_print(before, sizeof before, &plan->cluster);
    tandem_cluster_print(after, sizeof after, &read->cluster);
    assert_string_equal(after, before);
    assert_true(read->cluster.link_bytes_per_s == plan->cluster.link_bytes_per_s);
    assert_non_null(strstr(after, "link=4800Gbit/s,1us node=300Gbit/s,2us"));
    for (int c = 0; c < 2; c++)
        assert_memory_equal(read->assignment.precision[c], plan->assignment.precision[c],
                            (size_t)plan->assignment.n_op * sizeof *plan->assignment.precision[c]);
    assert_int_equal(opened->batch, 8);
    assert_int_equal(opened->hash, graph->hash);
    char *const again = text_of(read, opened);
    assert_string_equal(again, text);
    free(again);
    free(text);
    tandem_plan_close(read);
    tandem_graph_close(opened);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

static void the_text_is_this(void **state)
{
    tandem_graph *const graph = open_graph("mlp", 8);
    tandem_plan *const plan = open_plan_plan(graph, "2*cpu:avx2 batch=8");
    char *const text = text_of(plan, graph), expected[1024];
    assert_int_equal(tandem_plan_uniform(plan, graph, 0, TANDEM_PRECISION_INT8, NULL), TANDEM_OK);
    (void)snprintf(expected, sizeof expected,
                   "{\n  \"schema\": \"tandem.plan/1\",\n  \"name\": \"allocated\",\n  \"policy\": \"\",\n"
                   "  \"model\": \"mlp\",\n  \"graph_hash\": \"%016llx\",\n  \"base_precision\": \"fp32\",\n"
                   "  \"bucket_bytes\": null,\n  \"slowdown\": null,\n  \"target_ns\": null,\n"
                   "  \"fastest_ns\": null,\n  \"step_ns\": null,\n  \"sensitivity_bound\": null,\n  "
                   "\"method\": \"\",\n  \"lower_bound\": null,\n"
                   "  \"gap\": null,\n  \"proof\": \"\",\n  \"net\": null,\n  \"classes\": [\n    {\n      "
                   "\"device\": \"cpu:avx2\",\n"
                   "      \"ranks\": 2,\n      \"per_node\": null,\n      \"batch\": 8,\n"
                   "      \"memory_bytes\": null,\n      \"peak_bytes\": null,\n      \"keeps_base\": "
                   "false,\n     "
                   " \"precision\": {\n"
                   "        \"fc1\": \"fp32\",\n        \"fc2\": \"fp32\",\n        \"head\": \"fp32\"\n     "
                   " }\n"
                   "    }\n  ]\n}\n",
                   (unsigned long long)graph->hash);
    assert_string_equal(text, expected);
    free(text);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

/* `text` with the first `from` replaced; caller frees. */
static char *with(const char *text, const char *from, const char *to)
{
    const char *const at = strstr(text, from);
    char *const made = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(made);
    if (!at) fail_msg("%s is not in the text", from);
    (void)sprintf(made, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return made;
}

static void what_is_wrong_in_a_file_is_said(void **state)
{
    static const struct {
        const char *from, *to;
        tandem_status status;
        const char *says;
    } cases[] = {
        {"{", "", TANDEM_MALFORMED, "line 2"},
        {"\"ranks\": 2,", "\"ranks\": 2", TANDEM_MALFORMED, "line 26"},
        {"tandem.plan/1", "tandem.plan/2", TANDEM_MALFORMED,
         "reads \"tandem.plan/1\": use the tandem that "
         "wrote it"},
        {"tandem.plan/1", "tandem.plan/0", TANDEM_MALFORMED, "reads \"tandem.plan/1\" only"},
        {"\"schema\"", "\"schemata\"", TANDEM_MALFORMED, "schema: is missing"},
        {"\"policy\"", "\"polisy\"", TANDEM_MALFORMED, "Did you mean 'policy'"},
        {"\"allocated\"", "7", TANDEM_MALFORMED, "name: must be a text"},
        {"\"allocated\"", "\"0123456789012345678901234567890123456789012345678\"", TANDEM_MALFORMED,
         "less than 48"},
        {"\"mlp\"", "\"mlq\"", TANDEM_MALFORMED, "Did you mean"},
        {"\"mlp\"", "\"mlp:width=64\"", TANDEM_WRONG_MODEL, "mlp:width=64"},
        {"\"mlp\"", "null", TANDEM_MALFORMED, "model: is missing"},
        {"\"graph_hash\": \"", "\"graph_hash\": \"0", TANDEM_MALFORMED, "16 hexadecimal"},
        {"\"slowdown\": 0.1", "\"slowdown\": \"0.1\"", TANDEM_MALFORMED, "slowdown: must be a number"},
        {"\"objective\": \"memory\"", "\"objective\": \"speed\"", TANDEM_MALFORMED,
         "objective: 'speed' is nothing to minimize"},
        {"\"step_ns\": 9", "\"step_ns\": -9", TANDEM_MALFORMED, "step_ns: must be a whole number"},
        {"\"step_ns\": 9007199254740993", "\"step_ns\": 1.5", TANDEM_MALFORMED,
         "step_ns: must be a whole "
         "number"},
        {"\"net\": \"330233kbit/s,59904ns\"", "\"net\": \"330233,59904ns\"", TANDEM_MALFORMED, "net: "},
        {"\"cpu:avx2\"", "\"cpu:avx22\"", TANDEM_MALFORMED, "classes[1].device: there is no device"},
        {"\"ranks\": 2", "\"ranks\": 0", TANDEM_MALFORMED, "classes[0].ranks"},
        {"\"per_node\": 1", "\"per_node\": 0", TANDEM_MALFORMED, "classes[0].per_node"},
        {"\"batch\": 8", "\"batch\": 0", TANDEM_MALFORMED, "classes[0].batch"},
        {"\"batch\": 4", "\"batch\": null", TANDEM_MALFORMED, "classes[1].batch: is missing"},
        {"\"peak_bytes\": ", "\"x\": 1, \"peak_bytes\": ", TANDEM_MALFORMED, "x: is not allowed"},
        {"\"peak_bytes\": 1", "\"peak_bytes\": -1", TANDEM_MALFORMED, "peak_bytes: must be"},
        {"\"keeps_base\": true", "\"keeps_base\": 1", TANDEM_MALFORMED,
         "classes[0].keeps_base: must be true "
         "or false"},
        {"\"base_precision\": \"bf16\"", "\"base_precision\": \"bf17\"", TANDEM_MALFORMED,
         "base_precision: there is no precision"},
        {"\"target_ns\": 9", "\"target_ns\": -9", TANDEM_MALFORMED, "target_ns: must be a whole number"},
        {"\"fc1\": \"bf16\"", "\"fc1\": \"bf17\"", TANDEM_MALFORMED,
         "classes[0].precision.fc1: there is no "
         "precision"},
        {"\"fc1\": \"bf16\"", "\"fc1\": 16", TANDEM_MALFORMED, "must be the name of a precision"},
        {"\"fc1\": \"bf16\",", "", TANDEM_MALFORMED, "classes[0].precision.fc1: is missing"},
        {"\"fc1\": \"bf16\"", "\"fc7\": \"bf16\"", TANDEM_MALFORMED, "fc7"},
        {"\"fc1\": \"bf16\"", "\"fc1.relu\": \"bf16\"", TANDEM_MALFORMED,
         "is a relu, which carries no "
         "precision"},
        {"\"fc1\": \"bf16\"", "\"fc1\": \"bf16\", \"fc1\": \"bf16\"", TANDEM_MALFORMED, "duplicate"},
        {"\"fc1\": \"int8_full\"", "\"fc1\": \"bf16\"", TANDEM_MALFORMED, "the device cpu:avx2 has no bf16"},
        {"\"precision\"", "\"precisions\"", TANDEM_MALFORMED, "Did you mean 'precision'"},
        {"\"policy\"", "\"micro_steps\": 0, \"policy\"", TANDEM_MALFORMED,
         "micro_steps: must be a whole "
         "number"},
        {"\"policy\"", "\"micro_steps\": 1025, \"policy\"", TANDEM_MALFORMED,
         "micro_steps: must be a whole "
         "number"},
        {"\"policy\"", "\"recompute\": \"all\", \"policy\"", TANDEM_MALFORMED,
         "recompute: activations are "
         "recomputed"},
        {"\"policy\"", "\"recompute\": 4, \"policy\"", TANDEM_MALFORMED, "recompute: must be a text"},
        {"\"classes\": [", "\"classes\": [[],", TANDEM_MALFORMED, "classes[0]: must be an object"},
        {"plans that need one", "some plans", TANDEM_MALFORMED,
         "loss_scale_of: must be \"plans that need one\" or \"all plans\""},
        {"\"policy\"", "\"made\": 5, \"policy\"", TANDEM_MALFORMED, "made: must be an object"},
        {"\"policy\"", "\"made\": {\"command\": 5}, \"policy\"", TANDEM_MALFORMED, "command: must be a text"},
        {"\"policy\"", "\"made\": {\"command\": \"c\", \"time\": 1}, \"policy\"", TANDEM_MALFORMED,
         "time: is not allowed"},
    };
    tandem_graph *const graph = open_graph("mlp", 8), *const no_graph = (tandem_graph *)(uintptr_t)16;
    tandem_plan *const plan = full_plan(graph), *const no_plan = (tandem_plan *)(uintptr_t)16;
    char *const good = text_of(plan, graph);
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_error error = {0};
        tandem_plan *read = no_plan;
        tandem_graph *opened = no_graph;
        char *const bad = with(good, cases[i].from, cases[i].to);
        const tandem_status status = tandem_plan_parse(&read, &opened, bad, strlen(bad), "plan.json", &error);
        if (status != cases[i].status || error.status != status || !strstr(error.text, cases[i].says))
            fail_msg("%s → %s: %s: %s", cases[i].from, cases[i].to, tandem_status_name(status), error.text);
        assert_ptr_equal(read, no_plan);
        assert_ptr_equal(opened, no_graph);
        free(bad);
    }
    free(good);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

/* A bound that does not say which plans have a loss scale was proven for others than it says. */
static void a_bound_without_its_plans_is_unproven(void **state)
{
    tandem_graph *const graph = open_graph("mlp", 8), *opened = NULL;
    tandem_plan *const plan = full_plan(graph), *read = NULL;
    tandem_error error = {0};
    for (int is_zero = 0; is_zero < 2; is_zero++) {
        plan->scale_rule = TANDEM_SCALE_UNKNOWN;
        (void)snprintf(plan->proof, sizeof plan->proof, "%s", is_zero ? "zero" : "labels");
        char *const text = text_of(plan, graph);
        require_ok(tandem_plan_parse(&read, &opened, text, strlen(text), "plan.json", &error), &error);
        assert_int_equal(read->has_unproven_bound, !is_zero);
        assert_int_equal(isnan(read->lower_bound), !is_zero);
        assert_string_equal(read->proof, is_zero ? "zero" : "");
        free(text);
        tandem_plan_close(read);
        tandem_graph_close(opened);
    }
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

/* So does a loss scale, which brings a norm into the step. */
static void the_loss_scale_comes_back(void **state)
{
    static const struct {
        double scale;
        const char *text; /* NULL = not written */
    } cases[] = {{0, NULL},
                 {-1, "\"loss_scale\": \"dynamic\","},
                 {1024, "\"loss_scale\": \"1024\","},
                 {0.1, "\"0.10000000000000001\""}};
    tandem_graph *const graph = open_graph("mlp", 8);
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_plan *const plan = full_plan(graph), *read = NULL;
        tandem_graph *opened = NULL;
        plan->loss_scale = cases[i].scale;
        char *const text = text_of(plan, graph);
        if (cases[i].text) assert_non_null(strstr(text, cases[i].text));
        assert_int_equal(strstr(text, "\"loss_scale\"") != NULL, cases[i].text != NULL);
        assert_int_equal(tandem_plan_parse(&read, &opened, text, strlen(text), "plan.json", NULL), TANDEM_OK);
        assert_true(read->loss_scale == cases[i].scale);
        assert_int_equal(read->step.with_norm, cases[i].scale != 0);
        free(text);
        tandem_graph_close(opened);
        tandem_plan_close(read);
        tandem_plan_close(plan);
    }
    static const char *const wrong[] = {"0", "-1", "nan", "inf", "1e20", "often", "", "7x"};
    for (size_t i = 0; i < N_OF(wrong); i++) {
        double scale = 77;
        assert_int_equal(tandem_loss_scale_parse(&scale, wrong[i], NULL), TANDEM_USAGE);
        assert_true(scale == 77);
    }
    tandem_graph_close(graph);
}

/* Micro-steps and recomputation are in plans that have them. */
static void the_way_of_a_step_comes_back(void **state)
{
    static const struct {
        tandem_step_options step;
        const char *micro, *recompute; /* as written; NULL = not */
    } cases[] = {{{0}, NULL, NULL},
                 {{.n_micro = 1, .n_recompute_segment = 1}, NULL, NULL},
                 {{.n_micro = 8, .n_recompute_segment = TANDEM_RECOMPUTE_SQRT},
                  "\"micro_steps\": 8,",
                  "\"recompute\": \"sqrt\","},
                 {{.n_micro = 1, .n_recompute_segment = 5}, NULL, "\"recompute\": \"5\","}};
    tandem_graph *const graph = open_graph("mlp", 8);
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_plan *const plan = full_plan(graph), *read = NULL;
        tandem_graph *opened = NULL;
        plan->step = cases[i].step;
        char *const text = text_of(plan, graph);
        if (cases[i].micro) assert_non_null(strstr(text, cases[i].micro));
        if (cases[i].recompute) assert_non_null(strstr(text, cases[i].recompute));
        assert_int_equal(strstr(text, "micro_steps") != NULL, cases[i].micro != NULL);
        assert_int_equal(strstr(text, "recompute") != NULL, cases[i].recompute != NULL);
        assert_int_equal(tandem_plan_parse(&read, &opened, text, strlen(text), "plan.json", NULL), TANDEM_OK);
        assert_int_equal(read->step.n_micro, cases[i].micro ? plan->step.n_micro : 0);
        assert_int_equal(read->step.n_recompute_segment,
                         cases[i].recompute ? plan->step.n_recompute_segment : 0);
        free(text);
        tandem_graph_close(opened);
        tandem_plan_close(read);
        tandem_plan_close(plan);
    }
    tandem_graph_close(graph);
}

static void what_gradients_travel_in_comes_back(void **state)
{
    tandem_graph *const graph = open_graph("mlp", 8), *opened = NULL;
    tandem_error error = {0};
    for (int k = 0; k < 2; k++) {
        tandem_plan *const plan = full_plan(graph), *read = NULL;
        plan->cluster.wire = k ? TANDEM_BF16 : TANDEM_F32;
        char *const text = text_of(plan, graph), *const written = strstr(text, "\"wire\": \"bf16\",");
        assert_int_equal(written != NULL, k);
        assert_int_equal(tandem_plan_parse(&read, &opened, text, strlen(text), "plan.json", NULL), TANDEM_OK);
        assert_int_equal(read->cluster.wire, plan->cluster.wire);
        tandem_graph_close(opened);
        tandem_plan_close(read);
        if (written) memcpy(written, "\"wire\": \"bf61\",", 15);
        if (written) {
            assert_int_equal(tandem_plan_parse(&read, &opened, text, strlen(text), "plan.json", &error),
                             TANDEM_MALFORMED);
            assert_non_null(
                strstr(error.text, "wire: gradients cannot travel in 'bf61'. Did you mean 'bf16'?"));
        }
        free(text);
        tandem_plan_close(plan);
    }
    tandem_graph_close(graph);
}

/* Before base, target and held classes were written. */
static void an_older_file_is_read(void **state)
{
    static const char *const lines[] = {"base_precision", "bucket_bytes", "target_ns",
                                        "fastest_ns",     "proof",        "keeps_base"};
    tandem_error error = {0};
    tandem_graph *const graph = open_graph("mlp", 8), *opened = NULL;
    tandem_plan *const plan = open_plan_plan(graph, "cpu:avx2 batch=8"), *read = NULL;
    char *text = text_of(plan, graph);
    for (size_t i = 0; i < N_OF(lines); i++) {
        char name[32], line[64];
        (void)snprintf(name, sizeof name, "\"%s\": ", lines[i]);
        const char *const at = strstr(text, name);
        assert_non_null(at);
        (void)snprintf(line, sizeof line, "%.*s\n", (int)strcspn(at, "\n"), at);
        char *const without = with(text, line, "");
        free(text);
        text = without;
    }
    require_ok(tandem_plan_parse(&read, &opened, text, strlen(text), "plan.json", &error), &error);
    assert_int_equal(read->base_precision, TANDEM_PRECISION_FP32);
    assert_true(read->keeps_base == 0 && read->bucket_bytes == 0 && read->target_ns == 0 &&
                read->fastest_ns == 0);
    assert_string_equal(read->proof, "");
    free(text);
    tandem_plan_close(read);
    tandem_graph_close(opened);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

/* int8_full is no precision of an embedding, whatever the device has. */
static void an_operator_without_it_is_said(void **state)
{
    tandem_error error = {0};
    tandem_graph *const graph = open_graph("gpt_tiny", 8), *opened = NULL;
    tandem_plan *const plan = open_plan_plan(graph, "cpu:avx2 batch=8"), *read = NULL;
    char *const good = text_of(plan, graph), *const bad = with(good, "\"embedding\": \"fp32\"",
                                                               "\"embedding\": \"int8_full\"");
    assert_int_equal(tandem_plan_parse(&read, &opened, bad, strlen(bad), "plan.json", &error),
                     TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "precision.embedding: no embedding exists in int8_full"));
    free(bad);
    free(good);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

static void assert_written(const char *path, const char *text)
{
    char read[8192] = "";
    FILE *const file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(read, 1, sizeof read - 1, file), strlen(text));
    (void)fclose(file);
    assert_string_equal(read, text);
}

/* As a user without rights where we are root; the write must fail. */
static int write_without_rights(const tandem_plan *plan, const tandem_graph *graph, const char *path)
{
    int how = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tandem_error error = {0};
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(99);
        _exit(tandem_plan_write(plan, graph, path, &error) == TANDEM_IO && strstr(error.text, path) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    return WEXITSTATUS(how);
}

static void a_file_is_old_or_new(void **state)
{
    tandem_error error = {0};
    char folder[] = "/tmp/tandem_plan_XXXXXX", path[64], link[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/plan.json", folder);
    (void)snprintf(link, sizeof link, "%s/link.json", folder);
    tandem_graph *const graph = open_graph("mlp", 8), *opened = NULL;
    tandem_plan *const first = open_plan_plan(graph, "cpu:avx2 batch=8"), *const second = full_plan(graph),
                       *read = NULL;
    char *const old = text_of(first, graph), *const new = text_of(second, graph);

    assert_int_equal(tandem_plan_read(&read, &opened, path, &error), TANDEM_IO);
    assert_int_equal(tandem_plan_write(first, graph, path, &error), TANDEM_OK);
    assert_written(path, old);
    assert_int_equal(count_files(folder), 1);
    assert_int_equal(chmod(folder, 0555), 0);
    const int result = write_without_rights(second, graph, path);
    assert_int_equal(chmod(folder, 0755), 0);
    if (result == 99)
        (void)printf("SKIP: no right to become another user\n");
    else
        assert_int_equal(result, 0);
    assert_written(path, old);

    assert_int_equal(symlink(path, link), 0); /* what a link points to is replaced, not the link */
    assert_int_equal(tandem_plan_write(second, graph, link, &error), TANDEM_OK);
    assert_written(path, new);
    assert_int_equal(count_files(folder), 2);
    assert_int_equal(tandem_plan_read(&read, &opened, path, &error), TANDEM_OK);
    tandem_plan_close(read);
    tandem_graph_close(opened);

    assert_int_equal(tandem_plan_write(second, graph, folder, &error), TANDEM_IO);
    (void)unlink(link);
    (void)unlink(path);
    assert_int_equal(count_files(folder), 0);
    (void)rmdir(folder);
    free(old);
    free(new);
    tandem_plan_close(first);
    tandem_plan_close(second);
    tandem_graph_close(graph);
}

/* A limit on the size of files does what a full disk does. */
static int write_over_the_limit(const tandem_plan *plan, const tandem_graph *graph, const char *path)
{
    tandem_error error = {0};
    const struct rlimit limit = {100, RLIM_INFINITY};
    (void)signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    return tandem_plan_write(plan, graph, path, &error) == TANDEM_IO && strstr(error.text, "large") ? 0 : 2;
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    tandem_error error = {0};
    int how = 0;
    char folder[] = "/tmp/tandem_plan_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/plan.json", folder);
    tandem_graph *const graph = open_graph("mlp", 8);
    tandem_plan *const plan = full_plan(graph);
    char *const text = text_of(plan, graph);
    assert_int_equal(tandem_plan_write(plan, graph, path, &error), TANDEM_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(write_over_the_limit(plan, graph, path));
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    assert_written(path, text);
    assert_int_equal(count_files(folder), 1);
    (void)unlink(path);
    (void)rmdir(folder);
    free(text);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

/* Renaming would put a plain file in the place of a pipe or of /dev/null. */
static void a_pipe_is_written_not_replaced(void **state)
{
    struct stat seen;
    tandem_error error = {0};
    char folder[] = "/tmp/tandem_plan_XXXXXX", path[64], read_back[8192] = "";
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    tandem_graph *const graph = open_graph("mlp", 8);
    tandem_plan *const plan = full_plan(graph);
    char *const text = text_of(plan, graph);
    const int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_int_equal(tandem_plan_write(plan, graph, path, &error), TANDEM_OK);
    assert_int_equal(stat(path, &seen), 0);
    assert_true(S_ISFIFO(seen.st_mode));
    assert_int_equal(read(reader, read_back, sizeof read_back - 1), (ssize_t)strlen(text));
    assert_string_equal(read_back, text);
    (void)close(reader);
    assert_int_equal(count_files(folder), 1);
    (void)unlink(path);
    (void)rmdir(folder);
    free(text);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_begins_in_fp32),
        cmocka_unit_test(missing_precisions_have_stand_ins),
        cmocka_unit_test(plans_are_drawn),
        cmocka_unit_test(a_device_without_it_refuses),
        cmocka_unit_test(a_plan_comes_back),
        cmocka_unit_test(what_made_a_plan_comes_back),
        cmocka_unit_test(the_text_is_this),
        cmocka_unit_test(what_is_wrong_in_a_file_is_said),
        cmocka_unit_test(the_way_of_a_step_comes_back),
        cmocka_unit_test(what_gradients_travel_in_comes_back),
        cmocka_unit_test(a_bound_without_its_plans_is_unproven),
        cmocka_unit_test(the_loss_scale_comes_back),
        cmocka_unit_test(an_older_file_is_read),
        cmocka_unit_test(an_operator_without_it_is_said),
        cmocka_unit_test(a_file_is_old_or_new),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(a_pipe_is_written_not_replaced),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
