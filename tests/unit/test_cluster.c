/* folder: profiles */
/* Devices and clusters: the table, what this machine is, and clusters as text and as JSON. */
#include <math.h>
#include <unistd.h>

#include "profiles/cluster/cluster_text.h"
#include "tandem/cluster.h"
#include "tests/support/tandem_test.h"

/* --- Devices -------------------------------------------------------------------------------------------- */
static void the_table_is_whole(void **state)
{
    const unsigned bf16 = 1u << TANDEM_PRECISION_BF16, fp16 = 1u << TANDEM_PRECISION_FP16,
                   fp32 = 1u << TANDEM_PRECISION_FP32;
    assert_in_range(tandem_device_count(), 8, 64);
    for (int i = 0; i < tandem_device_count(); i++) {
        tandem_device found;
        const tandem_device *const device = tandem_device_get(i);
        assert_int_equal(tandem_device_find(&found, device->name, NULL), TANDEM_OK);
        assert_string_equal(found.name, device->name);
        assert_int_equal(found.precisions, device->precisions);
        assert_true(device->precisions & fp32);
        assert_true(device->amp_dtype == TANDEM_F32 ||
                    (device->amp_dtype == TANDEM_BF16 && device->precisions & bf16) ||
                    (device->amp_dtype == TANDEM_F16 && device->precisions & fp16));
    }
    assert_null(tandem_device_get(-1));
    assert_null(tandem_device_get(tandem_device_count()));
    tandem_device device;
    assert_int_equal(tandem_device_find(&device, "cpu:avx2_vnni", NULL), TANDEM_OK);
    assert_false(device.precisions & bf16);
    assert_int_equal(tandem_device_find(&device, "cpu:avx512", NULL), TANDEM_OK);
    assert_true(device.precisions & bf16);
    assert_int_equal(device.amp_dtype, TANDEM_F32);
    assert_int_equal(tandem_device_find(&device, "cpu:avx512_bf16", NULL), TANDEM_OK);
    assert_int_equal(device.amp_dtype, TANDEM_BF16);
}

static void cards_are_found_by_number(void **state)
{
    static const char *const none[] = {"cuda:", "cuda:x",  "cuda:01", "cuda:1000",
                                       "cuda",  "cuda:1 ", "cuda:-1"};
    tandem_device device = {.name = "before"};
    tandem_error error = {0};
    for (size_t k = 0; k < sizeof none / sizeof none[0]; k++) {
        assert_int_equal(tandem_device_find(&device, none[k], &error), TANDEM_UNKNOWN_NAME);
        assert_string_equal(device.name, "before");
        assert_non_null(strstr(error.text, "cuda:N"));
    }
    assert_int_equal(tandem_device_find(&device, "cuda:12", NULL), TANDEM_OK);
    assert_string_equal(device.name, "cuda:12");
    assert_false(tandem_device_is_described(&device));
    assert_false(tandem_device_is_present("cuda:0"));
    assert_int_equal(tandem_device_require("cuda:0", &error), TANDEM_OK);
}

/* As tables, nvidia-smi and people write them; what is no card stays none. */
static void cards_are_found_by_any_spelling(void **state)
{
    static const char *const spelled[][2] = {
        {"V100", "v100"},
        {"T4-16GB", "t4"},
        {"Tesla T4", "t4"},
        {"L4-24GB", "l4"},
        {"H100-SXM", "h100"},
        {"H100 PCIe", "h100_pcie"},
        {"NVIDIA H100 80GB HBM3", "h100"},
        {"A100-SXM4-40GB", "a100_40gb"},
        {"NVIDIA A100-SXM4-80GB", "a100"},
        {"NVIDIA A100 80GB PCIe", "a100_pcie"},
        {"NVIDIA A100-PCIE-40GB", "a100_pcie_40gb"},
        {"NVIDIA GeForce RTX 3090", "rtx3090"},
        {"rtx 4090", "rtx4090"},
        {"RTX A5000", "rtx_a5000"},
        {"A6000", "rtx_a6000"},
        {"RTX-2080-Ti", "rtx2080ti"},
        {"GTX1080Ti", "gtx1080ti"},
    };
    static const char *const none[] = {"",
                                       "-",
                                       "V1000",
                                       "nvidia",
                                       "NVIDIA ",
                                       "RTX",
                                       "RTX 4090 Laptop GPU",
                                       "CPU:AVX2",
                                       "cpu avx2",
                                       "Tesla V100-SXM2-32GB"};
    tandem_device device;
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++) {
        tandem_error error = {0};
        require_ok(tandem_device_find(&device, spelled[i][0], &error), &error);
        assert_string_equal(device.name, spelled[i][1]);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(tandem_device_find(&device, none[i], NULL), TANDEM_UNKNOWN_NAME);
}

static void a_cluster_takes_spellings(void **state)
{
    tandem_cluster cluster;
    tandem_error error = {0};
    require_ok(tandem_cluster_parse(&cluster, "V100 + T4", &error), &error);
    assert_string_equal(cluster.classes[0].device.name, "v100");
    assert_string_equal(cluster.classes[1].device.name, "t4");
    require_ok(
        tandem_cluster_parse(
            &cluster, "2*RTX 2080 Ti@2 batch=4+NVIDIA A100 80GB PCIe memory=40GB + v100 PCIe 32GB", &error),
        &error);
    assert_string_equal(cluster.classes[0].device.name, "rtx2080ti");
    assert_true(cluster.classes[0].n_rank == 2 && cluster.classes[0].per_node == 2 &&
                cluster.classes[0].batch == 4);
    assert_string_equal(cluster.classes[1].device.name, "a100_pcie");
    assert_string_equal(cluster.classes[2].device.name, "v100_pcie");
    /* a word that names no card with the device is an option, and refused as such */
    assert_int_equal(tandem_cluster_parse(&cluster, "t4 batch", &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "a device may be followed by"));
}

/* GeForce cards sum fp16 in f32 at half of the rate at which they sum it in fp16, which is that of the
 * datasheet's first line. */
static void geforce_peaks_are_those_with_f32_sums(void **state)
{
    static const char *const names[] = {"rtx3090", "rtx4090", "rtx2080ti"};
    for (int i = 0; i < 3; i++) {
        tandem_device device;
        assert_int_equal(tandem_device_find(&device, names[i], NULL), TANDEM_OK);
        const tandem_gpu_spec *const spec = &device.gpu_spec;
        assert_true(fabs(spec->flops_per_s[TANDEM_S8] / spec->flops_per_s[TANDEM_F16] - 4) < 0.01);
        assert_true(tandem_device_is_described(&device) && !tandem_device_is_present(names[i]));
    }
}

static void a_gpu_has_the_types_of_its_capability(void **state)
{
    const unsigned tf32 = 1u << TANDEM_PRECISION_TF32, fp16 = 1u << TANDEM_PRECISION_FP16,
                   bf16 = 1u << TANDEM_PRECISION_BF16, fp8 = 1u << TANDEM_PRECISION_FP8;
    const struct {
        const char *name;
        unsigned narrow;
        tandem_dtype amp_dtype;
    } gpu[] = {{"p100", fp16, TANDEM_F16}, /* 6.0 */
               {"p4", 0, TANDEM_F32},      /* 6.1 */
               {"v100", fp16, TANDEM_F16}, /* 7.0 */
               {"t4", fp16, TANDEM_F16},   /* 7.5 */
               {"a100", tf32 | fp16 | bf16, TANDEM_BF16},
               {"a10", tf32 | fp16 | bf16, TANDEM_BF16},      /* 8.6 has what 8.0 has */
               {"l4", tf32 | fp16 | bf16 | fp8, TANDEM_BF16}, /* 8.9 */
               {"h100", tf32 | fp16 | bf16 | fp8, TANDEM_BF16}};
    for (size_t k = 0; k < sizeof gpu / sizeof *gpu; k++) {
        tandem_device device;
        assert_int_equal(tandem_device_find(&device, gpu[k].name, NULL), TANDEM_OK);
        assert_int_equal(device.precisions & (tf32 | fp16 | bf16 | fp8), gpu[k].narrow);
        assert_int_equal(device.amp_dtype, gpu[k].amp_dtype);
    }
}

/* A type that a precision computes in has a rate; no fact is missing. */
static void descriptions_are_whole(void **state)
{
    int n = 0;
    for (int i = 0; i < tandem_device_count(); i++) {
        const tandem_device *const device = tandem_device_get(i);
        const tandem_gpu_spec *const spec = &device->gpu_spec;
        tandem_error error = {0};
        if (!tandem_device_is_described(device)) {
            assert_int_equal(device->memory_bytes, 0);
            continue;
        }
        n++;
        assert_false(tandem_device_is_present(device->name));
        assert_int_equal(tandem_device_require(device->name, &error), TANDEM_NO_DEVICE);
        assert_non_null(strstr(error.text, "--predict"));
        assert_true(device->memory_bytes >= 8000000000 && spec->bytes_per_s > 1e11);
        assert_true(spec->l2_bytes >= 1e6 && spec->watts >= 50 && spec->mhz > 500 && spec->process_nm > 0 &&
                    spec->generation >= 60);
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            const tandem_dtype type = tandem_precision_product_dtype(
                (tandem_precision)p, tandem_precision_get((tandem_precision)p)->forward);
            if (device->precisions >> p & 1) assert_true(spec->flops_per_s[type] >= 1e12);
        }
        assert_true(spec->flops_per_s[device->amp_dtype] >= spec->flops_per_s[TANDEM_F32]);
        assert_int_equal(device->precisions >> TANDEM_PRECISION_BF16 & 1, spec->flops_per_s[TANDEM_BF16] > 0);
    }
    assert_in_range(n, 8, 64);
    tandem_device t4;
    assert_int_equal(tandem_device_find(&t4, "t4", NULL), TANDEM_OK);
    assert_int_equal(t4.memory_bytes, 16000000000);
}

static void an_unknown_device_has_a_nearest(void **state)
{
    tandem_error error = {0};
    tandem_device device = {.name = "untouched"};
    assert_int_equal(tandem_device_find(&device, "cpu:avx512vnni", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "Did you mean 'cpu:avx512_vnni'"));
    assert_non_null(strstr(error.text, "cpu:sse41, cpu:avx, "));
    assert_string_equal(device.name, "untouched");
    assert_int_equal(tandem_device_find(&device, NULL, &error), TANDEM_UNKNOWN_NAME);
    assert_int_equal(tandem_device_is_present("no such"), 0);
    assert_int_equal(tandem_device_is_present(NULL), 0);
    assert_int_equal(tandem_device_require("no such", &error), TANDEM_UNKNOWN_NAME);
}

/* Whether the kernel lists a flag for this CPU: it reads CPUID on its own. */
static int kernel_lists(const char *flag)
{
    char line[8192];
    int found = 0;
    FILE *const file = fopen("/proc/cpuinfo", "r");
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, "flags", 5) != 0) continue;
        char *rest = NULL;
        for (char *one = strtok_r(line, " \t\n", &rest); one; one = strtok_r(NULL, " \t\n", &rest))
            found = found || strcmp(one, flag) == 0;
    }
    if (file) (void)fclose(file);
    return found;
}

static void this_machine_is_what_its_kernel_says(void **state)
{
    static const struct {
        const char *device, *flags[3];
    } rows[] = {
        {"cpu:sse41", {"sse4_1"}},
        {"cpu:avx", {"avx"}},
        {"cpu:avx2", {"avx2", "fma"}},
        {"cpu:avx2_vnni", {"avx2", "fma", "avx_vnni"}},
        {"cpu:avx512_vnni", {"avx512bw", "avx512_vnni"}},
        {"cpu:avx512_bf16", {"avx512bw", "avx512_vnni", "avx512_bf16"}},
    };
    if (access("/proc/cpuinfo", R_OK) != 0 || !kernel_lists("sse2")) {
        (void)printf("SKIP: no x86 flags in /proc/cpuinfo\n");
        skip();
    }
    if (getenv("TEST_PRELOAD") && *getenv("TEST_PRELOAD")) {
        (void)printf("SKIP: /proc/cpuinfo shows what CPU=avx2 hides\n");
        skip();
    }
    for (size_t i = 0; i < N_OF(rows); i++) {
        int expected = 1;
        tandem_error error = {0};
        for (int f = 0; f < 3 && rows[i].flags[f]; f++) expected = expected && kernel_lists(rows[i].flags[f]);
        assert_int_equal(tandem_device_is_present(rows[i].device), expected);
        assert_int_equal(tandem_device_require(rows[i].device, &error),
                         expected ? TANDEM_OK : TANDEM_NO_DEVICE);
        if (!expected) assert_non_null(strstr(error.text, "lacks"));
    }
}

static void the_pair_is_of_this_machine(void **state)
{
    const tandem_device *strong = NULL, *weak = NULL;
    tandem_device_demo_pair(&strong, &weak);
    int n = 0;
    for (int i = 0; i < tandem_device_count(); i++) n += tandem_device_is_present(tandem_device_get(i)->name);
    if (n == 0) {
        assert_null(strong);
        assert_null(weak);
        return;
    }
    assert_true(tandem_device_is_present(strong->name) && tandem_device_is_present(weak->name));
    assert_int_equal(strong == weak, n == 1);
    for (const tandem_device *better = strong + 1; better < tandem_device_get(0) + tandem_device_count();
         better++)
        assert_false(tandem_device_is_present(better->name));
}

/* --- Clusters as text ----------------------------------------------------------------------------------- */
static tandem_cluster parse_cluster(const char *text)
{
    tandem_cluster cluster;
    tandem_error error = {0};
    memset(&cluster, 0x55, sizeof cluster);
    if (tandem_cluster_parse(&cluster, text, &error) != TANDEM_OK) fail_msg("%s: %s", text, error.text);
    return cluster;
}

static void assert_same_link(tandem_link a, tandem_link b)
{
    assert_true(a.bytes_per_s == b.bytes_per_s);
    assert_int_equal(a.latency_ns, b.latency_ns);
}

static void assert_same(const tandem_cluster *a, const tandem_cluster *b)
{
    assert_int_equal(a->n_class, b->n_class);
    for (int c = 0; c < a->n_class; c++) {
        const tandem_cluster_class *const x = &a->classes[c], *const y = &b->classes[c];
        assert_string_equal(x->device.name, y->device.name);
        assert_int_equal(x->device.precisions, y->device.precisions);
        assert_int_equal(x->n_rank, y->n_rank);
        assert_int_equal(x->per_node, y->per_node);
        assert_int_equal(x->batch, y->batch);
        assert_int_equal(x->memory_bytes, y->memory_bytes);
        assert_same_link(x->link, y->link);
        assert_int_equal(x->slowdown_ppm, y->slowdown_ppm);
    }
    assert_same_link(a->node, b->node);
    assert_true(a->link_bytes_per_s == b->link_bytes_per_s);
    assert_int_equal(a->link_latency_ns, b->link_latency_ns);
}

/* Global ranks: 0 to 3, 4 to 7. */
static void a_straggler_is_a_class(void **state)
{
    static const struct {
        const char *text, *printed;
    } cases[] = {
        {"16*t4@8 slow=1.1@rank3", "15*t4@8 + t4@8 slow=1.1"},
        {"4*t4@2 slow=1.05 + 4*v100@2 net=10Gbit/s,5us slow=1.1@rank6 slow=2@rank1 slow=1.1@rank4",
         "3*t4@2 slow=1.05 + t4@2 slow=2 + 2*v100@2 + 2*v100@2 slow=1.1 net=10Gbit/s,5us"},
        {"t4 slow=1.1@rank0 + v100 slow=1.000", "t4 slow=1.1 + v100"},
        {"t4 slow=0.95 + 2*v100 slow=0.000001@rank1 slow=1000@rank2",
         "t4 slow=0.95 + v100 slow=0.000001 + v100 slow=1000"},
        {"2*t4 slow=1.1 slow=1.1@rank0", "2*t4 slow=1.1"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        char text[1024];
        const tandem_cluster cluster = parse_cluster(cases[i].text);
        tandem_cluster_print(text, sizeof text, &cluster);
        assert_string_equal(text, cases[i].printed);
        const tandem_cluster again = parse_cluster(text);
        assert_same(&cluster, &again);
    }
}

/* 31 classes and a straggler are 32; one more does not fit. */
static void stragglers_are_classes_too_many(void **state)
{
    char text[1024] = "2*t4";
    tandem_error error = {0};
    tandem_cluster cluster;
    for (int c = 1; c < TANDEM_MAX_CLASS - 1; c++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), " + 2*t4");
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), " slow=1.1@rank1");
    assert_int_equal(parse_cluster(text).n_class, TANDEM_MAX_CLASS);
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), " slow=1.2@rank60");
    assert_int_equal(tandem_cluster_parse(&cluster, text, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "at most 32"));
}

/* Of cpu.def, weakest first: no row of this machine comes before the one or after the other. */
static void words_name_devices_of_this_machine(void **state)
{
    tandem_cluster cluster;
    tandem_device device = {.name = "untouched"};
    tandem_error error = {0};
    if (!tandem_device_is_present("cpu:sse41")) {
        print_message("SKIP: this machine is none of the devices\n");
        skip();
    }
    assert_int_equal(tandem_cluster_parse(&cluster, "3*strongest@1 + weakest batch=8 net=1GB/s,1us", &error),
                     TANDEM_OK);
    const char *strongest = cluster.classes[0].device.name, *weakest = cluster.classes[1].device.name;
    assert_string_equal(weakest, "cpu:sse41");
    int is_past = 0;
    for (int i = 0; strncmp(tandem_device_get(i)->name, "cpu:", 4) == 0; i++) {
        const char *name = tandem_device_get(i)->name;
        if (strcmp(name, strongest) == 0)
            is_past = 1;
        else if (is_past)
            assert_false(tandem_device_is_present(name));
    }
    assert_true(is_past && tandem_device_is_present(strongest));
    assert_int_equal(cluster.classes[0].n_rank, 3);
    /* what files are read by */
    assert_int_equal(tandem_device_find(&device, "strongest", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "for command lines only"));
    assert_int_equal(tandem_device_resolve(&device, "strongets", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "Did you mean 'strongest'"));
    assert_string_equal(device.name, "untouched");
}

static void a_cpu_has_a_number_of_cores(void **state)
{
    static const char *const none[] = {
        "cpu:avx2:0",  "cpu:avx2:x",  "cpu:avx2:",    "cpu:avx2:08",
        "cpu:avx2:-1", "cpu:avx2:2x", "cpu:avx2:513", "cpu:avx2:99999999999999999999"};
    tandem_device device = {.name = "before"}, one;
    tandem_error error = {0};
    char text[128], long_name[256] = "cpu:avx2:";
    for (size_t k = 0; k < N_OF(none); k++) {
        assert_int_equal(tandem_device_find(&device, none[k], &error), TANDEM_UNKNOWN_NAME);
        assert_string_equal(device.name, "before");
        assert_non_null(strstr(error.text, "1 to 512"));
        assert_false(tandem_device_is_present(none[k]));
        assert_int_equal(tandem_device_cores(none[k]), 1);
    }
    memset(long_name + strlen(long_name), '0', 200);
    assert_int_equal(tandem_device_find(&device, long_name, &error), TANDEM_UNKNOWN_NAME);
    assert_int_equal(tandem_device_find(&device, "cpu:axv2:2", &error), TANDEM_UNKNOWN_NAME);
    assert_int_equal(tandem_device_find(&device, "t4:2", &error), TANDEM_UNKNOWN_NAME);
    assert_int_equal(tandem_device_find(&device, "strongest:2", &error), TANDEM_UNKNOWN_NAME);
    assert_int_equal(tandem_device_find(&one, "cpu:avx2", NULL), TANDEM_OK);
    assert_int_equal(tandem_device_find(&device, "cpu:avx2:1", NULL), TANDEM_OK);
    assert_string_equal(device.name, "cpu:avx2");
    assert_int_equal(tandem_device_find(&device, "cpu:avx2:512", NULL), TANDEM_OK);
    assert_string_equal(device.name, "cpu:avx2:512");
    assert_int_equal(device.precisions, one.precisions);
    assert_int_equal(tandem_device_cores(device.name), 512);
    assert_int_equal(tandem_device_cores("cuda:7"), 1);
    assert_int_equal(tandem_device_is_present("cpu:avx2:512"), tandem_device_is_present("cpu:avx2"));
    if (tandem_device_resolve(&one, "strongest", NULL) == TANDEM_OK) {
        assert_int_equal(tandem_device_resolve(&device, "strongest:3", NULL), TANDEM_OK);
        snprintf(text, sizeof text, "%s:3", one.name);
        assert_string_equal(device.name, text);
        assert_int_equal(tandem_device_resolve(&device, "weakest:1000", &error), TANDEM_UNKNOWN_NAME);
    }
    const tandem_cluster cluster = parse_cluster("2*cpu:avx2:8@1 batch=4 + cpu:avx2:1 + 3*t4");
    assert_int_equal(tandem_cluster_n_core(&cluster), 2 * 8 + 1 + 3);
    tandem_cluster_print(text, sizeof text, &cluster);
    assert_string_equal(text, "2*cpu:avx2:8@1 batch=4 + cpu:avx2 + 3*t4");
    tandem_cluster_group_key(text, sizeof text, &cluster);
    assert_string_equal(text, "cpu:avx2+2*cpu:avx2:8+3*t4");
}

static void a_cluster_is_read(void **state)
{
    const tandem_cluster cluster = parse_cluster(
        " 16*cpu:avx512_bf16@8 batch=32 memory=12GiB+cpu:avx2  memory=1.5kB batch=4 net=100Gbit/s,5us ");
    assert_int_equal(cluster.n_class, 2);
    assert_string_equal(cluster.classes[0].device.name, "cpu:avx512_bf16");
    assert_int_equal(cluster.classes[0].device.amp_dtype, TANDEM_BF16);
    assert_int_equal(cluster.classes[0].n_rank, 16);
    assert_int_equal(cluster.classes[0].per_node, 8);
    assert_int_equal(cluster.classes[0].batch, 32);
    assert_int_equal(cluster.classes[0].memory_bytes, INT64_C(12) << 30);
    assert_string_equal(cluster.classes[1].device.name, "cpu:avx2");
    assert_int_equal(cluster.classes[1].n_rank, 1);
    assert_int_equal(cluster.classes[1].per_node, 0);
    assert_int_equal(cluster.classes[1].batch, 4);
    assert_int_equal(cluster.classes[1].memory_bytes, 1500);
    assert_true(cluster.link_bytes_per_s == 12.5e9);
    assert_int_equal(cluster.link_latency_ns, 5000);

    const tandem_cluster tiers =
        parse_cluster("8*a100@4 link=600GB/s,1us node=96Gbit/s,2us batch=8 + 2*t4 net=25Gbit/s,5us");
    assert_same_link(tiers.classes[0].link, (tandem_link){600e9, 1000});
    assert_same_link(tiers.classes[1].link, (tandem_link){0});
    assert_same_link(tiers.node, (tandem_link){12e9, 2000});
    assert_int_equal(tiers.classes[0].batch, 8);
    assert_true(tiers.link_bytes_per_s == 25e9 / 8);

    const tandem_cluster plain = parse_cluster("cpu:avx512_bf16 + cpu:avx2_vnni");
    assert_same_link(plain.node, (tandem_link){0});
    assert_int_equal(plain.n_class, 2);
    assert_true(plain.link_bytes_per_s == 0);
    assert_int_equal(plain.classes[0].batch, 0);
    assert_int_equal(plain.classes[0].memory_bytes, 0);
}

static void ranks_are_numbered_class_by_class(void **state)
{
    const tandem_cluster cluster = parse_cluster("2*cpu:avx2 + cpu:avx512 + 3*cpu:sse41");
    static const int class_of[] = {0, 0, 1, 2, 2, 2};
    assert_int_equal(tandem_cluster_n_rank(&cluster), 6);
    for (int rank = 0; rank < 6; rank++)
        assert_int_equal(tandem_cluster_class_of(&cluster, rank), class_of[rank]);
    assert_int_equal(tandem_cluster_class_of(&cluster, 6), -1);
    assert_int_equal(tandem_cluster_class_of(&cluster, -1), -1);
}

static void a_group_is_sorted_and_counted(void **state)
{
    static const struct {
        const char *cluster, *group;
    } cases[] = {
        {"cpu:avx2", "cpu:avx2"},
        {"3*cpu:avx2", "3*cpu:avx2 in shared memory"},
        {"3*cpu:avx2@2", "3*cpu:avx2"},
        {"3*cpu:avx2@3", "3*cpu:avx2 in shared memory"},
        {"3*cpu:avx2@3 + cpu:avx2@3", "4*cpu:avx2"},
        {"cpu:avx512 + cpu:avx2", "cpu:avx2+cpu:avx512 in shared memory"},
        {"cpu:avx2 + cpu:avx512", "cpu:avx2+cpu:avx512 in shared memory"},
        {"cuda:0", "cuda:0"},
        {"2*cuda:0", "2*cuda:0 in shared memory"},
        {"cpu:avx2 + cuda:1 + cuda:0", "cpu:avx2+cuda:0+cuda:1 in shared memory"},
        {"cpu:avx2@1 + cuda:0@1", "cpu:avx2+cuda:0"},
        {"cuda:0 + t4", "cuda:0+t4"},
        {"cpu:avx512 batch=1 + 2*cpu:avx2@1 + cpu:avx512 batch=2", "2*cpu:avx2+2*cpu:avx512"},
    };
    char group[TANDEM_GROUP_KEY_TEXT];
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_cluster cluster = parse_cluster(cases[i].cluster);
        tandem_cluster_group_key(group, sizeof group, &cluster);
        assert_string_equal(group, cases[i].group);
        tandem_cluster_group_key(group, 6, &cluster);
        assert_int_equal(strncmp(group, cases[i].group, 5), 0);
        assert_int_equal(group[5], '\0');
        cluster.over_network = 1;
        tandem_cluster_group_key(group, sizeof group, &cluster);
        assert_null(strstr(group, "shared"));
        const size_t n = strlen(group);
        cluster.wire = TANDEM_BF16;
        tandem_cluster_group_key(group, sizeof group, &cluster);
        assert_string_equal(group + n, " in bf16");
    }
}

static void gradients_travel_in_what_is_named(void **state)
{
    tandem_cluster cluster = {.wire = TANDEM_S8};
    tandem_error error = {0};
    assert_int_equal(tandem_gradient_wire_find(&cluster.wire, "b16", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "Did you mean 'bf16'?"));
    assert_int_equal(cluster.wire, TANDEM_S8);
    require_ok(tandem_gradient_wire_find(&cluster.wire, "bf16", &error), &error);
    assert_int_equal(cluster.wire, TANDEM_BF16);
    assert_int_equal(tandem_cluster_wire_bytes(&cluster, 0), 0);
    assert_int_equal(tandem_cluster_wire_bytes(&cluster, 1), 4); /* the loss */
    assert_int_equal(tandem_cluster_wire_bytes(&cluster, 1001), 2004);
    require_ok(tandem_gradient_wire_find(&cluster.wire, "f32", &error), &error);
    assert_int_equal(tandem_cluster_wire_bytes(&cluster, 1001), 4004);
}

static void what_is_printed_parses_to_the_same(void **state)
{
    static const struct {
        const char *text, *printed;
    } cases[] = {
        {"cpu:avx2", "cpu:avx2"},
        {"1*cpu:avx2", "cpu:avx2"},
        {"4*cpu:avx2@2 memory=1024MiB batch=3", "4*cpu:avx2@2 batch=3 memory=1GiB"},
        {"cpu:avx2 memory=1000B", "cpu:avx2 memory=1000B"},
        {"cpu:avx2+cpu:avx net=12.5GB/s,0.005ms", "cpu:avx2 + cpu:avx net=100Gbit/s,5us"},
        {"cpu:avx2 net=41.279125MBps,59.904us", "cpu:avx2 net=330233kbit/s,59904ns"},
        {"cpu:avx2 net=1Tbit/s,0ns", "cpu:avx2 net=1Tbit/s,0ns"},
        {"cpu:avx2 net=0.3bit/s,2s", "cpu:avx2 net=2.9999999999999999e-01bit/s,2s"},
        {"4*a100@2 link=600GB/s,1us + t4 node=12GB/s,3us net=1GB/s,5us batch=2",
         "4*a100@2 link=4800Gbit/s,1us + t4 batch=2 node=96Gbit/s,3us net=8Gbit/s,5us"},
        {"t4 node=0.3bit/s,0s link=1bit/s,1ns", "t4 link=1bit/s,1ns node=2.9999999999999999e-01bit/s,0ns"},
        {"cpu:avx2 net=8e9GB/s,1us", "cpu:avx2 net=6.4000000000000000e19bit/s,1us"},
    };
    char text[512];
    for (size_t i = 0; i < N_OF(cases); i++) {
        const tandem_cluster cluster = parse_cluster(cases[i].text);
        tandem_cluster_print(text, sizeof text, &cluster);
        assert_string_equal(text, cases[i].printed);
        const tandem_cluster again = parse_cluster(text);
        assert_same(&again, &cluster);
        tandem_cluster_print(text, 4, &cluster);
        assert_int_equal(strlen(text), 3);
    }
}

#define FOUR "cpu:avx+cpu:avx+cpu:avx+cpu:avx+"
#define EIGHT FOUR FOUR

/* Each complaint names the class, what was read, and what is allowed. */
static void what_is_wrong_is_said_cluster(void **state)
{
    static const struct {
        const char *text;
        tandem_status status;
        const char *says;
    } cases[] = {
        {"", TANDEM_USAGE, "empty"},
        {"  \t", TANDEM_USAGE, "empty"},
        {"cpu:avx2 +", TANDEM_USAGE, "class 2, '': a device is missing"},
        {"+ cpu:avx2", TANDEM_USAGE, "class 1, '': a device is missing"},
        {"cpu:avx2 ++ cpu:avx2", TANDEM_USAGE, "class 2, '': a device is missing"},
        {"cpu:avx2 + cpu:avx22", TANDEM_UNKNOWN_NAME, "Did you mean 'cpu:avx2'"},
        {"0*cpu:avx2", TANDEM_USAGE, "COUNT must be"},
        {"-1*cpu:avx2", TANDEM_USAGE, "COUNT must be"},
        {"*cpu:avx2", TANDEM_USAGE, "COUNT must be"},
        {"1000001*cpu:avx2", TANDEM_USAGE, "COUNT must be"},
        {"99999999999999999999999*cpu:avx2", TANDEM_USAGE, "COUNT must be"},
        {"2*cpu:avx2@", TANDEM_USAGE, "RANKS_PER_NODE must be"},
        {"2*cpu:avx2@0", TANDEM_USAGE, "RANKS_PER_NODE must be"},
        {"2*cpu:avx2@1000001", TANDEM_USAGE, "RANKS_PER_NODE must be"},
        {"cpu:avx2 slow=0", TANDEM_USAGE, "slow is a factor"},
        {"cpu:avx2 slow=1001", TANDEM_USAGE, "slow is a factor"},
        {"cpu:avx2 slow=1.1234567", TANDEM_USAGE, "slow is a factor"},
        {"cpu:avx2 slow=1,1", TANDEM_USAGE, "slow is a factor"},
        {"cpu:avx2 slow=1.1@", TANDEM_USAGE, "a straggler is a rank"},
        {"cpu:avx2 slow=1.1@rank", TANDEM_USAGE, "a straggler is a rank"},
        {"cpu:avx2 slow=1.1@3", TANDEM_USAGE, "a straggler is a rank"},
        {"cpu:avx2 slow=1.1 slow=1.2", TANDEM_USAGE, "given twice"},
        {"cpu:avx2 slow=1.1@rank0 + cpu:avx2 slow=1.2@rank0", TANDEM_USAGE, "twice for this rank"},
        {"2*cpu:avx2 + cpu:avx2 slow=1.2@rank3", TANDEM_USAGE, "ranks are 0 to 2"},
        {"2*", TANDEM_USAGE, "name of a device is missing"},
        {"2*@1", TANDEM_USAGE, "name of a device is missing"},
        {"2*3*cpu:avx2", TANDEM_UNKNOWN_NAME, "3*cpu:avx2"},
        {"cpu:avx2 cpu:avx", TANDEM_USAGE, "a device may be followed by"},
        {"cpu:avx2 batch", TANDEM_USAGE, "a device may be followed by"},
        {"cpu:avx2 bitch=4", TANDEM_USAGE, "a device may be followed by"},
        {"cpu:avx2 bitch=4", TANDEM_USAGE, "Did you mean 'batch'?"},
        {"t4 nod=1GB/s,1us", TANDEM_USAGE, "Did you mean 'node'?"},
        {"t4 lnk=1GB/s,1us", TANDEM_USAGE, "Did you mean 'link'?"},
        {"t4 node", TANDEM_USAGE, "a device may be followed by"},
        {"t4 =1", TANDEM_USAGE, "a device may be followed by"},
        {"t4 link=1GB/s", TANDEM_USAGE,
         "link is a rate and a latency, as in link=100Gbit/s,5us; got '1GB/s'"},
        {"t4 node=1GB,1us", TANDEM_USAGE, "cluster, 'node=1GB,1us'"},
        {"t4 link=1GB/s,1us link=1GB/s,1us", TANDEM_USAGE, "link is given twice"},
        {"t4 node=1GB/s,1us + t4 node=1GB/s,1us", TANDEM_USAGE, "node is given twice"},
        {"cpu:avx2 batch=0", TANDEM_USAGE, "class 1, 'batch=0': batch must be"},
        {"cpu:avx2 batch=4x", TANDEM_USAGE, "batch must be"},
        {"cpu:avx2 batch=4 batch=4", TANDEM_USAGE, "batch is given twice"},
        {"cpu:avx2 memory=12", TANDEM_USAGE, "the unit is missing"},
        {"cpu:avx2 memory=12 GiB", TANDEM_USAGE, "the unit is missing"},
        {"cpu:avx2 memory=0B", TANDEM_USAGE, "above 0"},
        {"cpu:avx2 memory=1B memory=1B", TANDEM_USAGE, "memory is given twice"},
        {"cpu:avx2 net=100Gbit/s", TANDEM_USAGE, "a rate and a latency"},
        {"cpu:avx2 net=100,5us", TANDEM_USAGE, "the unit is missing"},
        {"cpu:avx2 net=100Gbit/s,5", TANDEM_USAGE, "the unit is missing"},
        {"cpu:avx2 net=1B/s,1s + cpu:avx net=1B/s,1s", TANDEM_USAGE, "net is given twice"},
        {EIGHT EIGHT EIGHT EIGHT "cpu:avx", TANDEM_USAGE, "32 classes at most"},
        {"/nonexistent/cluster.json", TANDEM_IO, "cannot be read"},
        {"nonexistent.json", TANDEM_IO, "cannot be read"},
        {"./", TANDEM_IO, "cannot be read"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_error error = {0};
        tandem_cluster cluster = {.n_class = 77};
        const tandem_status status = tandem_cluster_parse(&cluster, cases[i].text, &error);
        if (status != cases[i].status || error.status != status || !strstr(error.text, cases[i].says))
            fail_msg("'%s': %s: %s", cases[i].text, tandem_status_name(status), error.text);
        assert_int_equal(cluster.n_class, 77);
    }
    tandem_error error = {0};
    tandem_cluster cluster;
    char large[2000];
    memset(large, 'x', sizeof large);
    large[sizeof large - 1] = '\0';
    assert_int_equal(tandem_cluster_parse(&cluster, large, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "too long"));
    assert_int_equal(tandem_cluster_parse(&cluster, NULL, &error), TANDEM_USAGE);
}

/* --- Clusters as JSON ----------------------------------------------------------------------------------- */
static tandem_status parse_json(tandem_cluster *cluster, const char *text, tandem_error *error)
{
    return tandem_cluster_parse_json(cluster, text, strlen(text), "cluster.json", error);
}

static void a_file_says_the_same(void **state)
{
    static const char json[] =
        "{\"schema\": \"tandem.cluster/1\", \"node\": \"300Gbit/s,2us\", \"net\": \"100Gbit/s,5us\", "
        "\"classes\": ["
        "{\"device\": \"cpu:avx512_bf16\", \"ranks\": 16, \"per_node\": 8, \"batch\": 32, \"memory\": "
        "\"12GiB\", \"slow\": 1.1, "
        "\"link\": \"600GB/s,1us\"}, {\"device\": \"cpu:avx2\", \"batch\": null, \"link\": null}]}";
    const tandem_cluster text =
        parse_cluster("16*cpu:avx512_bf16@8 batch=32 memory=12GiB slow=1.1 link=600GB/s,1us "
                      "+ cpu:avx2 "
                      "node=300Gbit/s,2us net=100Gbit/s,5us");
    tandem_cluster cluster;
    tandem_error error = {0};
    require_ok(parse_json(&cluster, json, &error), &error);
    assert_same(&cluster, &text);

    char path[] = "/tmp/tandem_cluster_XXXXXX.json";
    const int file = mkstemps(path, 5);
    assert_true(file >= 0);
    assert_int_equal(write(file, json, sizeof json - 1), (ssize_t)sizeof json - 1);
    (void)close(file);
    const tandem_cluster read = parse_cluster(path);
    (void)unlink(path);
    assert_same(&read, &text);
}

static void a_wrong_file_is_said(void **state)
{
#define CLUSTER(classes) "{\"schema\":\"tandem.cluster/1\",\"classes\":[" classes "]}"
    static const struct {
        const char *text;
        tandem_status status;
        const char *says;
    } cases[] = {
        {"", TANDEM_MALFORMED, "line 1"},
        {"{\n\n\"a\":}", TANDEM_MALFORMED, "line 3"},
        {"[]", TANDEM_MALFORMED, "must be an object"},
        {"{}", TANDEM_MALFORMED, "schema: is missing"},
        {"{\"schema\":\"tandem.cluster/2\",\"classes\":[]}", TANDEM_MALFORMED, "tandem.cluster/1"},
        {"{\"schema\":1}", TANDEM_MALFORMED, "must be a text"},
        {"{\"schema\":\"tandem.cluster/1\",\"clases\":[]}", TANDEM_MALFORMED, "Did you mean 'classes'"},
        {"{\"schema\":\"a\",\"schema\":\"a\"}", TANDEM_MALFORMED, "duplicate"},
        {CLUSTER(""), TANDEM_MALFORMED, "1 to 32 classes"},
        {CLUSTER("1"), TANDEM_MALFORMED, "classes[0]: must be an object"},
        {CLUSTER("{}"), TANDEM_MALFORMED, "classes[0].device: is missing"},
        {CLUSTER("{\"device\":\"cpu:avx2\"},{\"device\":\"cpu:avx3\"}"), TANDEM_UNKNOWN_NAME,
         "classes[1].device"},
        {CLUSTER("{\"device\":\"cpu:avx2\",\"ranks\":0}"), TANDEM_MALFORMED, "from 1 to 1000000"},
        {CLUSTER("{\"device\":\"cpu:avx2\",\"ranks\":2.5}"), TANDEM_MALFORMED, "whole number"},
        {CLUSTER("{\"device\":\"cpu:avx2\",\"ranks\":\"2\"}"), TANDEM_MALFORMED, "whole number"},
        {CLUSTER("{\"device\":\"cpu:avx2\",\"ranks\":2,\"per_node\":0}"), TANDEM_MALFORMED, "per_node"},
        {CLUSTER("{\"device\":\"cpu:avx2\",\"batch\":-1}"), TANDEM_MALFORMED, "batch"},
        {CLUSTER("{\"device\":\"cpu:avx2\",\"slow\":0}"), TANDEM_MALFORMED, "slow"},
        {CLUSTER("{\"device\":\"cpu:avx2\",\"slow\":\"1.1\"}"), TANDEM_MALFORMED, "slow"},
        {CLUSTER("{\"device\":\"cpu:avx2\",\"memory\":12}"), TANDEM_MALFORMED, "must be a text"},
        {CLUSTER("{\"device\":\"cpu:avx2\",\"memory\":\"12\"}"), TANDEM_MALFORMED, "the unit is missing"},
        {"{\"schema\":\"tandem.cluster/1\",\"net\":\"fast\",\"classes\":[]}", TANDEM_MALFORMED, "net: "},
        {"{\"schema\":\"tandem.cluster/1\",\"node\":1,\"classes\":[]}", TANDEM_MALFORMED,
         "node: must be a text"},
        {CLUSTER("{\"device\":\"t4\",\"link\":\"1GB/s,5\"}"), TANDEM_MALFORMED, "classes[0].link: "},
        {CLUSTER("{\"device\":\"t4\",\"lnk\":\"1GB/s,5us\"}"), TANDEM_MALFORMED, "Did you mean 'link'"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_error error = {0};
        tandem_cluster cluster = {.n_class = 77};
        const tandem_status status = parse_json(&cluster, cases[i].text, &error);
        if (status != cases[i].status || !strstr(error.text, cases[i].says) ||
            !strstr(error.text, "cluster.json"))
            fail_msg("%s: %s: %s", cases[i].text, tandem_status_name(status), error.text);
        assert_int_equal(cluster.n_class, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cpu_has_a_number_of_cores),
        cmocka_unit_test(cards_are_found_by_number),
        cmocka_unit_test(the_table_is_whole),
        cmocka_unit_test(descriptions_are_whole),
        cmocka_unit_test(cards_are_found_by_any_spelling),
        cmocka_unit_test(a_cluster_takes_spellings),
        cmocka_unit_test(geforce_peaks_are_those_with_f32_sums),
        cmocka_unit_test(a_gpu_has_the_types_of_its_capability),
        cmocka_unit_test(an_unknown_device_has_a_nearest),
        cmocka_unit_test(this_machine_is_what_its_kernel_says),
        cmocka_unit_test(the_pair_is_of_this_machine),
        cmocka_unit_test(words_name_devices_of_this_machine),
        cmocka_unit_test(a_cluster_is_read),
        cmocka_unit_test(a_straggler_is_a_class),
        cmocka_unit_test(stragglers_are_classes_too_many),
        cmocka_unit_test(ranks_are_numbered_class_by_class),
        cmocka_unit_test(a_group_is_sorted_and_counted),
        cmocka_unit_test(gradients_travel_in_what_is_named),
        cmocka_unit_test(what_is_printed_parses_to_the_same),
        cmocka_unit_test(what_is_wrong_is_said_cluster),
        cmocka_unit_test(a_file_says_the_same),
        cmocka_unit_test(a_wrong_file_is_said),
    };
    return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
