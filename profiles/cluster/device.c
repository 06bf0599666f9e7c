/* device.c: the table of devices, and which of them this machine has. */
#include "base/cpu_tiles.h"
#include "base/device_cores.h"
#include "base/nearest.h"
#include "base/plain_text.h"
#include "tandem/advanced/step.h"
#include "tandem/cluster.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Precision sets for the rows, as bits by row of precision.def. */
enum {
    FP32 = 1 << TANDEM_PRECISION_FP32,
    TF32 = 1 << TANDEM_PRECISION_TF32,
    FP16 = 1 << TANDEM_PRECISION_FP16,
    BF16 = 1 << TANDEM_PRECISION_BF16,
    FP8 = 1 << TANDEM_PRECISION_FP8,
    INT8 = 1 << TANDEM_PRECISION_INT8 | 1 << TANDEM_PRECISION_INT8_FULL,
    MXFP8 = 1 << TANDEM_PRECISION_MXFP8,
    NVFP4 = 1 << TANDEM_PRECISION_NVFP4
};

/* Type and precisions of each compute capability. */
enum {
#define ROW(capability, amp_dtype, precisions)                                                               \
    PRECISIONS_##capability = (precisions), AMP_##capability = TANDEM_##amp_dtype,
#include "profiles/devices/capability.def"
#undef ROW
};
/* clang-format off */
static const tandem_device devices[] = {
#define ROW(name, features, amp_dtype, precisions, attention, meaning)                                       \
    {name, meaning, precisions, TANDEM_##amp_dtype, 0, 0, 0, attention, 0, 0, 1, {.n_sm = 0}},
#include "profiles/devices/cpu.def"
#undef ROW
#define ROW(name, capability, memory_gb, meaning, ...)                                                       \
    {name,                                                                                                   \
     meaning,                                                                                                \
     PRECISIONS_##capability,                                                                                \
     (tandem_dtype)AMP_##capability,                                                                       \
     memory_gb * UINT64_C(1000000000),                                                                       \
     1,                                                                                                      \
     0,                                                                                                      \
     0,                                                                                                      \
     0,                                                                                                      \
     0,                                                                                                      \
     0,                                                                                                      \
     {.generation = (capability), __VA_ARGS__}},
#include "profiles/devices/cards.def"
#undef ROW
};
/* clang-format on */
/* CPU features of the first rows; described devices have none. */
static const char *const features_of[] = {
#define ROW(name, features, amp_dtype, precisions, attention, meaning) features,
#include "profiles/devices/cpu.def"
#undef ROW
};
enum { N_DEVICE = (int)(sizeof devices / sizeof devices[0]) };

/* GPUs that kernels run on, by number. The backend (backend/cuda/device.c) knows their properties; one
 * older than Ampere reports there that it has no bf16. */
static const tandem_device any_gpu = {
    "cuda:N",   "NVIDIA card number N", PRECISIONS_89, (tandem_dtype)AMP_89, 0, 1, 1, BF16 | FP16, 1, 1, 0,
    {.n_sm = 0}};
enum { MAX_GPU_DIGITS = 3 };

/* "cuda:" and a number without leading zeros. */
static bool is_gpu_name(const char *name)
{
    static const char prefix[] = "cuda:";
    const size_t n = sizeof prefix - 1;
    if (!name || strncmp(name, prefix, n) != 0) return false;
    const size_t digits = strspn(name + n, "0123456789");
    return digits > 0 && digits <= MAX_GPU_DIGITS && !name[n + digits] && (digits == 1 || name[n] != '0');
}

/* What a framework recorded on a machine of its own name (record.h). Its casts are its own, so that int8's
 * gradients count as f32. */
static const tandem_device any_torch = {
    "torch:NAME", "recorded by PyTorch", FP32 | BF16 | INT8, TANDEM_F32, 0, 0, 0, 0, 0, 0, 0, {.n_sm = 0}};

int tandem_device_is_recorded(const char *name)
{
    static const char prefix[] = "torch:", allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    const size_t n = sizeof prefix - 1;
    if (!name || strncmp(name, prefix, n) != 0) return 0;
    const size_t length = strspn(name + n, allowed);
    return length > 0 && !name[n + length] && n + length < TANDEM_DEVICE_NAME;
}

#if defined(__x86_64__)
/* Compilers older than the instruction set lack its name, so the bit is read directly: leaf 7, subleaf 1,
 * EAX bit 4. The feature "avx2" in the same row checks that the operating system saves the registers. */
static bool has_avxvnni(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

static bool cpu_has_feature(const char *feature)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    /* the builtin takes literals only */
#define CHECK(name)                                                                                          \
    if (strcmp(feature, name) == 0) return __builtin_cpu_supports(name) != 0;
    CHECK("sse4.1")
    CHECK("avx")
    CHECK("avx2")
    CHECK("fma")
    CHECK("avx512f")
    CHECK("avx512bw")
    CHECK("avx512dq")
    CHECK("avx512vl")
    CHECK("avx512cd")
    CHECK("avx512vnni")
    CHECK("avx512bf16")
#undef CHECK
    if (strcmp(feature, "avxvnni") == 0) return has_avxvnni();
    if (strcmp(feature, "amx") == 0) return !tandem_cpu_tiles_missing();
#else
    (void)feature;
#endif
    return false;
}

/* Appends ", word" or "word" to a list in text[size]; cuts to fit. */
static void append_to_list(char *text, size_t size, const char *word)
{
    size_t used = strlen(text);
    for (const char *c = used ? ", " : ""; *c && used + 1 < size; c++) text[used++] = *c;
    for (; *word && used + 1 < size; word++) text[used++] = *word;
    text[used] = '\0';
}

/* Writes the features of a row that this machine lacks into missing[size]; returns how many. */
static int list_missing_features(int index, char *missing, size_t size)
{
    char features[128];
    int n = 0;
    missing[0] = '\0';
    (void)snprintf(features, sizeof features, "%s", features_of[index]);
    char *rest = NULL;
    for (char *one = strtok_r(features, " ", &rest); one; one = strtok_r(NULL, " ", &rest))
        if (!cpu_has_feature(one)) {
            append_to_list(missing, size, strcmp(one, "amx") == 0 ? tandem_cpu_tiles_missing() : one);
            n++;
        }
    return n;
}

tandem_status tandem_device_open_step(tandem_step **step, const tandem_device *device,
                                      const tandem_graph *graph, uint64_t bucket_bytes,
                                      const tandem_step_options *options, tandem_error *error)
{
    tandem_step_options laid_out = options ? *options : (tandem_step_options){0};
    laid_out.transposed_copy = device->transposed_copy;
    laid_out.narrow_rows = device->narrow_rows;
    laid_out.fused_attention = device->fused_attention;
    laid_out.merged_tasks = device->merged_tasks;
    laid_out.padded_rows = device->padded_rows;
    laid_out.copies_in_gradients = device->copies_in_gradients;
    laid_out.gpu_blocks = tandem_device_is_described(device) || is_gpu_name(device->name);
    return tandem_step_open_with(step, graph, device->amp_dtype, bucket_bytes, &laid_out, error);
}

int tandem_device_is_described(const tandem_device *device) { return device->gpu_spec.n_sm > 0; }

static bool is_row_present(int index)
{
    char missing[128];
    return !tandem_device_is_described(&devices[index]) &&
           list_missing_features(index, missing, sizeof missing) == 0;
}

/* Words of the command line for the last and the first row that this machine's CPU can run. */
static const char word_strongest[] = "strongest", word_weakest[] = "weakest";

/* --- Names of cards ------------------------------------------------------------------------------------- */

static int lower_letter(char c) { return tandem_is_letter(c) ? c | 0x20 : c; }

/* The next character that tells names apart, in lower case; 0 = the end. */
static int next_telling(const char **at)
{
    *at += strspn(*at, "-_ ");
    return **at ? lower_letter(*(*at)++) : 0;
}

static bool is_same_card_name(const char *a, const char *b)
{
    for (;;) {
        const int one = next_telling(&a), other = next_telling(&b);
        if (one != other) return false;
        if (!one) return true;
    }
}

/* Without the maker's and product lines' words, as in "NVIDIA GeForce RTX 3090". */
static const char *skip_maker(const char *name)
{
    static const char *const words[] = {"nvidia", "tesla", "geforce"};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        const char *at = name;
        const char *word = words[w];
        while (*word && lower_letter(*at) == *word) at++, word++;
        if (!*word && *at && strchr("-_ ", *at)) name = at + 1;
    }
    return name;
}

static int find_exact_row(const char *name)
{
    for (int i = 0; i < N_DEVICE; i++)
        if (strcmp(devices[i].name, name) == 0) return i;
    return -1;
}

/* A card by any spelling; its own name comes first. −1: no card is written so. */
static int find_spelled_card(const char *name)
{
    static const struct {
        const char *spelling, *gpu;
    } spellings[] = {
#define SPELLING(spelling, gpu) {spelling, gpu},
#include "profiles/devices/spellings.def"
#undef SPELLING
    };
    const char *const card = skip_maker(name);
    for (int i = 0; i < N_DEVICE; i++)
        if (tandem_device_is_described(&devices[i]) && is_same_card_name(devices[i].name, card)) return i;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (is_same_card_name(spellings[i].spelling, card)) return find_exact_row(spellings[i].gpu);
    return -1;
}

static int find_device_row(const char *name)
{
    const int exact = name ? find_exact_row(name) : -1;
    return exact < 0 && name ? find_spelled_card(name) : exact;
}

/* The row of a name that may have a number of cores; −1: none, or the number is none. */
static int find_row_of_cores(const char *name)
{
    char base[TANDEM_DEVICE_NAME];
    return name && tandem_device_split_cores(base, sizeof base, name) > 0 ? find_device_row(base) : -1;
}

int tandem_device_cores(const char *name)
{
    char base[TANDEM_DEVICE_NAME];
    const int n = tandem_device_split_cores(base, sizeof base, name);
    return n > 0 ? n : 1;
}

/* A row under its name with `n_core` cores. */
static tandem_device row_with_cores(int index, int n_core)
{
    tandem_device device = devices[index];
    if (n_core > 1) (void)snprintf(device.name, sizeof device.name, "%s:%d", devices[index].name, n_core);
    return device;
}

static tandem_status refuse_cores(const char *name, const char *base, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                            "device '%.*s': '%.20s' is no number of cores; allowed are 1 to %d, as in %s:8",
                            TANDEM_DEVICE_NAME, name, name + strlen(base) + 1, TANDEM_MAX_CORE, base);
}

int tandem_device_count(void) { return N_DEVICE; }

const tandem_device *tandem_device_get(int index)
{
    return index >= 0 && index < N_DEVICE ? &devices[index] : NULL;
}

static tandem_status refuse_unknown_device(const char *name, tandem_error *error)
{
    const char *candidates[N_DEVICE + 3];
    char known[768] = "";
    size_t n = 0;
    for (int i = 0; i < N_DEVICE; i++) {
        candidates[n++] = devices[i].name;
        append_to_list(known, sizeof known, devices[i].name);
    }
    candidates[n++] = "cuda:0";
    candidates[n++] = word_strongest;
    candidates[n++] = word_weakest;
    append_to_list(known, sizeof known, any_gpu.name);
    append_to_list(known, sizeof known, any_torch.name);
    return tandem_error_set(
        error, TANDEM_UNKNOWN_NAME,
        "there is no device '%.*s'.%s Devices: %s; on a command line also %s and %s, of this machine's CPU.",
        TANDEM_DEVICE_NAME, name ? name : "", tandem_nearest_hint(name, candidates, n).text, known,
        word_strongest, word_weakest);
}

tandem_status tandem_device_find(tandem_device *device, const char *name, tandem_error *error)
{
    char base[TANDEM_DEVICE_NAME] = "";
    const int n_core = name ? tandem_device_split_cores(base, sizeof base, name) : 1;
    const int index = name ? find_device_row(base) : -1;
    if (index >= 0 && n_core == 0) return refuse_cores(name, base, error);
    if (index >= 0) {
        *device = row_with_cores(index, n_core);
        return TANDEM_OK;
    }
    if (is_gpu_name(name) || tandem_device_is_recorded(name)) {
        *device = is_gpu_name(name) ? any_gpu : any_torch;
        (void)snprintf(device->name, sizeof device->name, "%s", name);
        return TANDEM_OK;
    }
    if (strcmp(base, word_strongest) == 0 || strcmp(base, word_weakest) == 0)
        return tandem_error_set(
            error, TANDEM_UNKNOWN_NAME,
            "'%s' is for command lines only; files need the device's name (tandem list devices)", name);
    return refuse_unknown_device(name, error);
}

tandem_status tandem_device_resolve(tandem_device *device, const char *word, tandem_error *error)
{
    char base[TANDEM_DEVICE_NAME];
    const int n_core = tandem_device_split_cores(base, sizeof base, word);
    const int is_strongest = strcmp(base, word_strongest) == 0;
    int found = -1;
    if (!is_strongest && strcmp(base, word_weakest) != 0) return tandem_device_find(device, word, error);
    if (n_core == 0) return refuse_cores(word, base, error);
    for (int i = 0; i < N_DEVICE && (is_strongest || found < 0); i++)
        if (is_row_present(i)) found = i;
    if (found < 0)
        return tandem_error_set(error, TANDEM_NO_DEVICE,
                                "this machine's CPU matches no device, so there is no %s one", base);
    *device = row_with_cores(found, n_core);
    return TANDEM_OK;
}

int tandem_device_is_present(const char *name)
{
    const int index = find_row_of_cores(name);
    return index >= 0 && is_row_present(index);
}

tandem_status tandem_device_require(const char *name, tandem_error *error)
{
    tandem_device device = {.name = ""};
    const tandem_status status = tandem_device_find(&device, name, error);
    if (status != TANDEM_OK) return status;
    if (tandem_device_is_described(&device))
        return tandem_error_set(
            error, TANDEM_NO_DEVICE,
            "'%s' is a description for planning and cannot run: use it with `tandem replay --predict` or "
            "`tandem allocate --predict`. `tandem list devices` shows this machine's devices.",
            name);
    if (tandem_device_is_recorded(name))
        return tandem_error_set(error, TANDEM_NO_DEVICE,
                                "'%s' names jobs of PyTorch, which tandem's executor does not run: "
                                "tandem.profile and tandem.apply in Python do (docs/pytorch.md)",
                                name);
    if (is_gpu_name(name)) return TANDEM_OK; /* opening it shows whether it is there */
    char missing[192], have[512] = "";
    if (list_missing_features(find_row_of_cores(name), missing, sizeof missing) == 0) return TANDEM_OK;
    for (int i = 0; i < N_DEVICE; i++)
        if (is_row_present(i)) append_to_list(have, sizeof have, devices[i].name);
    return tandem_error_set(error, TANDEM_NO_DEVICE,
                            "this machine cannot be '%s': its CPU lacks %s. It can be: %s.", name, missing,
                            have[0] ? have : "none of the devices");
}

void tandem_device_demo_pair(const tandem_device **strong, const tandem_device **weak)
{
    int first = -1, last = -1;
    for (int i = 0; i < N_DEVICE; i++)
        if (is_row_present(i)) {
            first = first < 0 ? i : first;
            last = i;
        }
    const int demo_weak = find_device_row("cpu:avx2_vnni");
    /* If it is the strongest itself, the weakest differs from it. */
    const int chosen = demo_weak >= 0 && demo_weak != last && is_row_present(demo_weak) ? demo_weak : first;
    *strong = tandem_device_get(last);
    *weak = tandem_device_get(chosen);
}
