/* folder: profiles */
/* Clusters from any bytes, as text and as a file: an error, or a cluster that prints to a text that parses
 * to it. */
#include "profiles/cluster/cluster_text.h"
#include "tests/fuzz/fuzz_main.h"

static void check_link(tandem_link read, tandem_link given)
{
    demand(read.bytes_per_s == given.bytes_per_s, "the rate is exact");
    demand(read.latency_ns == given.latency_ns || given.bytes_per_s == 0, "the latency is exact");
}

static void check_cluster(const tandem_cluster *cluster)
{
    char text[8192], again[8192], group[8192];
    tandem_cluster parsed;
    tandem_error error = {0};
    int n = 0;
    demand(cluster->n_class >= 1 && cluster->n_class <= TANDEM_MAX_CLASS, "1 to 32 classes");
    for (int c = 0; c < cluster->n_class; c++) {
        const tandem_cluster_class *const class = &cluster->classes[c];
        demand(class->n_rank >= 1 && class->per_node >= 0, "ranks");
        demand(class->slowdown_ppm >= 0 && class->slowdown_ppm != 1000000, "1 is the same as none");
        demand(class->batch >= 0, "batch");
        demand(tandem_cluster_class_of(cluster, n) == c, "ranks are numbered class by class");
        n += class->n_rank;
    }
    demand(tandem_cluster_n_rank(cluster) == n, "ranks add up");
    demand(tandem_cluster_class_of(cluster, n) == -1, "no rank after the last");
    tandem_cluster_group_key(group, sizeof group, cluster);
    tandem_cluster_print(text, sizeof text, cluster);
    demand(tandem_cluster_parse(&parsed, text, &error) == TANDEM_OK, "what is printed parses");
    tandem_cluster_print(again, sizeof again, &parsed);
    demand(strcmp(text, again) == 0, "and prints the same");
    check_link((tandem_link){parsed.link_bytes_per_s, parsed.link_latency_ns},
               (tandem_link){cluster->link_bytes_per_s, cluster->link_latency_ns});
    check_link(parsed.node, cluster->node);
    for (int c = 0; c < cluster->n_class; c++) check_link(parsed.classes[c].link, cluster->classes[c].link);
}

static void check_result(tandem_status status, const tandem_cluster *cluster, const tandem_error *error)
{
    if (status == TANDEM_OK) {
        check_cluster(cluster);
        return;
    }
    demand(error->status == status && error->text[0] != '\0', "an error has a text");
    demand(cluster->n_class == -7, "the output is untouched");
}

/* Whether the text would name a file: those of the machine are none of the fuzzer's business. */
static int names_file(const char *text)
{
    const size_t n = strlen(text);
    return text[0] == '/' || text[0] == '.' || (n >= 5 && strcmp(text + n - 5, ".json") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_cluster cluster = {.n_class = -7};
    tandem_error error = {0};
    tandem_status status = tandem_cluster_parse_json(&cluster, (const char *)data, size, "fuzz.json", &error);
    check_result(status, &cluster, &error);

    char *const text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    cluster = (tandem_cluster){.n_class = -7};
    error = (tandem_error){0};
    if (!names_file(text)) {
        status = tandem_cluster_parse(&cluster, text, &error);
        check_result(status, &cluster, &error);
    }
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const seeds[] = {
        "cpu:avx512_bf16 + cpu:avx2_vnni",
        "16*cpu:avx512_bf16@8 batch=32 memory=12GiB + 16*cpu:avx2@8 net=100Gbit/s,5us",
        "cpu:avx2 net=0.3bit/s,2s",
        "8*v100@8 link=600GB/s,1us + 2*t4 node=300Gbit/s,2us net=100Gbit/s,5us",
    };
    enum { N_SEED = sizeof seeds / sizeof *seeds };
    const uint8_t *bytes[N_SEED];
    size_t n[N_SEED];
    for (int i = 0; i < N_SEED; i++) {
        bytes[i] = (const uint8_t *)seeds[i];
        n[i] = strlen(seeds[i]);
    }
    return tandem_fuzz_main("cluster", LLVMFuzzerTestOneInput, bytes, n, N_SEED, argc, argv);
}
