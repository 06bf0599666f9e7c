/* folder: profiles */
/* Plan files from any bytes: an error, or a plan whose text reads back to the same text. */
#include "profiles/plan/plan_json.h"
#include "tests/fuzz/fuzz_main.h"

static void check_plan_fuzz_plan(const tandem_plan *plan, const tandem_graph *graph)
{
    demand(tandem_plan_check(plan, graph, NULL) == TANDEM_OK, "the plan is of its graph");
    demand(plan->cluster.n_class >= 1 && plan->cluster.n_class <= TANDEM_MAX_CLASS, "1 to 32 classes");
    for (int c = 0; c < plan->cluster.n_class; c++) {
        demand(plan->cluster.classes[c].batch >= 1, "every class has a batch");
        for (int op = 0; op < graph->n_op; op++) {
            const tandem_op_row *const row = tandem_op_row_get(graph->op[op].kind);
            const unsigned bit = 1u << plan->assignment.precision[c][op];
            demand(row->op_class == TANDEM_ADJUSTABLE
                       ? (row->precisions & plan->cluster.classes[c].device.precisions & bit) != 0
                       : plan->assignment.precision[c][op] == TANDEM_PRECISION_FP32,
                   "operator and device have the precision");
        }
    }
}

static void check_round_trip(const tandem_plan *plan, const tandem_graph *graph)
{
    tandem_plan *again = NULL;
    tandem_graph *opened = NULL;
    tandem_error error = {0};
    char *const text = tandem_plan_text(plan, graph);
    demand(text != NULL, "a plan has a text");
    const tandem_status status = tandem_plan_parse(&again, &opened, text, strlen(text), "again", &error);
    if (status != TANDEM_OK) (void)fprintf(stderr, "%s\n%s\n", text, error.text);
    demand(status == TANDEM_OK, "the text is a plan");
    char *const second = tandem_plan_text(again, opened);
    demand(second && strcmp(text, second) == 0, "and has the same text");
    free(second);
    free(text);
    tandem_plan_close(again);
    tandem_graph_close(opened);
}

static void check_text(const char *text, size_t size)
{
    tandem_plan *plan = NULL;
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const tandem_status status = tandem_plan_parse(&plan, &graph, text, size, "fuzz.json", &error);
    if (status == TANDEM_OK) {
        check_plan_fuzz_plan(plan, graph);
        check_round_trip(plan, graph);
    } else {
        demand(error.status == status && error.text[0] != '\0', "an error has a text");
        demand(!plan && !graph, "outputs are untouched");
    }
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

/* A good plan, made here so that it keeps step with the model's hash. */
static char *make_seed(const char *model, const char *cluster_text)
{
    tandem_cluster cluster;
    tandem_graph *graph = NULL;
    tandem_plan *plan = NULL;
    char *text = NULL;
    if (tandem_cluster_parse(&cluster, cluster_text, NULL) == TANDEM_OK &&
        tandem_graph_open(&graph, model, 8, NULL) == TANDEM_OK &&
        tandem_plan_open(&plan, graph, &cluster, "seed", NULL) == TANDEM_OK &&
        tandem_plan_uniform(plan, graph, 0, TANDEM_PRECISION_INT8, NULL) == TANDEM_OK)
        text = tandem_plan_text(plan, graph);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
    return text;
}

static const char mlp_cluster[] =
    "2*cpu:avx512_bf16 batch=8 + cpu:avx2 batch=4 memory=1GiB net=100Gbit/s,5us";

/* The value after the member number `which` of the text, counted round and round; NULL where it has none. */
static char *value_of_fuzz_plan(char *text, unsigned which)
{
    unsigned n = 0;
    for (const char *at = strstr(text, "\": "); at; at = strstr(at + 3, "\": ")) n++;
    char *at = n ? strstr(text, "\": ") : NULL;
    for (which = n ? which % n : 0; at && which > 0; which--) at = strstr(at + 3, "\": ");
    return at ? at + 3 : NULL;
}

/* Random bytes are seldom JSON. So the same bytes also choose values of a good plan, and what to put in
 * their places: each pair of bytes is one edit, four at most. */
static void check_edited(const uint8_t *data, size_t size)
{
    static const char *const values[] = {
        "null",
        "0",
        "1",
        "-1",
        "4",
        "1.5",
        "1e308",
        "-1e308",
        "1000000000",
        "9223372036854775807",
        "true",
        "[]",
        "{}",
        "\"\"",
        "\"fp32\"",
        "\"bf16\"",
        "\"int8\"",
        "\"int8_full\"",
        "\"cpu:avx2\"",
        "\"cpu:avx512_bf16\"",
        "\"mlp\"",
        "\"1B/s,1ns\"",
        "\"mlp:width=64\"",
        "[{}]",
    };
    char *text = make_seed("mlp", mlp_cluster);
    for (size_t i = 0; text && i + 1 < size && i < 8; i += 2) {
        char *const from = value_of_fuzz_plan(text, data[i]), *edited = NULL;
        const char *const to = values[data[i + 1] % (sizeof values / sizeof values[0])];
        if (!from) break;
        const size_t kept = (size_t)(from - text);
        if (asprintf(&edited, "%.*s%s%s", (int)kept, text, to, from + strcspn(from, ",\n")) < 0)
            edited = NULL;
        free(text);
        text = edited;
    }
    if (text) check_text(text, strlen(text));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_text((const char *)data, size);
    check_edited(data, size);
    return 0;
}

int main(int argc, char **argv)
{
    char *const seeds[] = {
        make_seed("mlp", mlp_cluster),
        make_seed("gpt_tiny:depth=1", "cpu:avx2 batch=1"),
    };
    if (!seeds[0] || !seeds[1]) return 1;
    static const uint8_t edits[] = {6, 4, 17, 15, 30, 9, 40, 16}; /* short ones, for the second half */
    const uint8_t *const bytes[] = {(const uint8_t *)seeds[0], (const uint8_t *)seeds[1], edits};
    const size_t n[] = {strlen(seeds[0]), strlen(seeds[1]), sizeof edits};
    const int result = tandem_fuzz_main("plan", LLVMFuzzerTestOneInput, bytes, n, 3, argc, argv);
    free(seeds[0]);
    free(seeds[1]);
    return result;
}
