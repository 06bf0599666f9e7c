/* folder: kernels */
/* The CUDA kernels as PTX, as nvcc made it for a gpu, run on the host (ptx.h): each call of kernels.h in each
 * type gives the results of the same sources as coroutines (tests/cuda/simt.h), no detector finds anything,
 * and each kernel is reached.
 *
 * For other runs: PTX_ARCH=75|80|89 (make PTX_ARCHS=… builds them), PTX_ULP=2, PTX_CONTRACTS=1,
 * PTX_TRUNCATES=1, PTX_SEED, PTX_RESIDENT, PTX_CALL=a call's name; TEST_LONG=1 takes more row lengths. */
#include "tests/support/tandem_test.h"

#include <dlfcn.h>
#include <unistd.h>

#include "kernels/cuda/kernels.h"
#include "tests/ptx/library/door.h"

enum { TYPES = 3, MAX_SHOWN = 20 };
static const char *const type_names[TYPES] = {"f32", "bf16", "f16"};
static const ptx_door *gpu, *host;

/* Row lengths at which kernels change: short rows and odd ones, a warp's, several warps', a block's, longer
 * ones. */
static const size_t all_columns[] = {1,   7,   8,   24,  64,  100,  128,  136,  201,  208,  256,
                                     260, 512, 520, 768, 776, 1000, 1024, 1032, 1280, 2056, 8200};
static const size_t some_columns[] = {7, 24, 128, 201, 208, 260, 520, 776, 1032, 2056, 8200};

static int number_from(const char *name)
{
    const char *const text = getenv(name);
    return text ? atoi(text) : 0;
}

static const char *arch(void) { return getenv("PTX_ARCH") ? getenv("PTX_ARCH") : "90"; }

/* --- Results beside one another ------------------------------------------------------------------------- */

static double number_of(const door_result *r, size_t i)
{
    float x;
    uint16_t bits;
    if (r->type == TANDEM_CUDA_F32) {
        memcpy(&x, r->bytes + sizeof x * i, sizeof x);
        return (double)x;
    }
    memcpy(&bits, r->bytes + sizeof bits * i, sizeof bits);
    return (double)(r->type == TANDEM_CUDA_F16 ? tandem_f32_of_f16(bits) : tandem_f32_of_bf16(bits));
}

/* How far two numbers may be apart: a share of the largest one, and one rounding of their type; of sums of
 * numbers that were rounded, some roundings. */
static double allowed_distance(const door_result *r, double x, double largest, double bound)
{
    static const double rounding[] = {
        [TANDEM_CUDA_F32] = 0, [TANDEM_CUDA_BF16] = 0x1p-7, [TANDEM_CUDA_F16] = 0x1p-10};
    if (r->kind == DOOR_SUMS) bound = 4e-3;
    return bound * largest + rounding[r->type] * fabs(x) + (r->type == TANDEM_CUDA_F16 ? 0x1p-24 : 0);
}

static size_t far_numbers(const door_result *a, const door_result *b, double bound)
{
    const size_t n = a->n / (a->type == TANDEM_CUDA_F32 ? 4 : 2);
    double largest = 0;
    size_t far = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(number_of(a, i))) largest = fmax(largest, fabs(number_of(a, i)));
    for (size_t i = 0; i < n; i++) {
        const double x = number_of(a, i), y = number_of(b, i);
        far += !(x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= allowed_distance(a, x, largest, bound));
    }
    return far;
}

/* Codes that differ by more than one, and, where more than one in 500 differs at all, all those. */
static size_t far_codes(const door_result *a, const door_result *b)
{
    size_t differing = 0, far = 0;
    for (size_t i = 0; i < a->n; i++) {
        const int distance = abs((int)(int8_t)a->bytes[i] - (int)(int8_t)b->bytes[i]);
        differing += distance > 0;
        far += distance > 1;
    }
    return differing > a->n / 500 + 2 ? differing : far;
}

static size_t n_far(const door_result *a, const door_result *b, double bound)
{
    if (a->kind != b->kind || a->type != b->type || a->n != b->n || strcmp(a->what, b->what) != 0)
        return a->n + 1;
    if (a->kind == DOOR_CODES) return far_codes(a, b);
    if (a->kind != DOOR_BYTES) return far_numbers(a, b, bound);
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) n += a->bytes[i] != b->bytes[i];
    return n;
}

static void free_results(door_results *r)
{
    for (int k = 0; k < r->n; k++) free(r->result[k].bytes);
    free(r->result);
}

/* Prints what is wrong with a call; how many things. */
static int judge_call(const char *call, int type, size_t columns, const door_results *a,
                      const door_results *b)
{
    const int is_loose =
        number_from("PTX_ULP") || number_from("PTX_CONTRACTS") || number_from("PTX_TRUNCATES");
    int wrong = 0;
    if (a->n_failed || b->n_failed) {
        print_message("wrong: %s %s %zu: %s failed\n", call, type_names[type], columns,
                      a->n_failed ? a->failed : b->failed);
        return 1;
    }
    if (a->n != b->n) wrong++;
    for (int k = 0; k < a->n && k < b->n; k++) {
        const size_t far = n_far(&a->result[k], &b->result[k], is_loose ? 1e-4 : 4e-6);
        if (!far) continue;
        wrong++;
        if (wrong <= MAX_SHOWN)
            print_message("wrong: %s %s %zu, %s (result %d): %zu of %zu bytes or numbers\n", call,
                          type_names[type], columns, a->result[k].what, k, far, a->result[k].n);
    }
    return wrong;
}

static int print_findings(const char *call, int type, size_t columns)
{
    ptx_machine *const machine = gpu->machine();
    const int n = ptx_n_finding(machine);
    for (int f = 0; f < n && f < MAX_SHOWN; f++) {
        const ptx_finding *const own = ptx_finding_at(machine, f);
        print_message("found: %s, line %d of %s, %llu times, in %s %s %zu\n", ptx_fault_names[own->fault],
                      own->line, own->kernel, (unsigned long long)own->times, call, type_names[type],
                      columns);
    }
    ptx_forget_findings(machine);
    return n;
}

/* Cards before 8.0 multiply no bf16: the kernels of that are empty there, and the host does not launch them.
 */
static int is_empty_on(const char *call, int type)
{
    return atoi(arch()) < 80 && type == TANDEM_CUDA_BF16 && strcmp(call, "attention") == 0;
}

static int run_call(int call, int type, size_t columns)
{
    const char *const name = host->call_name(call);
    door_results on_gpu = {.n = 0}, on_host = {.n = 0};
    int wrong = 0;
    if (gpu->run(call, type, columns, &on_gpu)) {
        host->run(call, type, columns, &on_host);
        wrong = is_empty_on(name, type) ? 0 : judge_call(name, type, columns, &on_host, &on_gpu);
    }
    wrong += print_findings(name, type, columns);
    free_results(&on_gpu);
    free_results(&on_host);
    return wrong;
}

/* --- Tests ---------------------------------------------------------------------------------------------- */

static const ptx_door *open_door(const char *name)
{
    const char *const build = getenv("TANDEM_BUILD") ? getenv("TANDEM_BUILD") : "build";
    char path[4096];
    snprintf(path, sizeof path, "%s/ptx/%s", build, name);
    char *const real = realpath(path, NULL);
    void *const library = real ? dlopen(real, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (real && !library) print_message("%s\n", dlerror());
    const ptx_door *const door = library ? dlsym(library, "tests_ptx_door") : NULL;
    if (!door) {
        free(real);
        return NULL;
    }
    *strrchr(real, '/') = '\0';
    const ptx_options options = {.seed = (uint64_t)number_from("PTX_SEED") + 1,
                                 .resident = number_from("PTX_RESIDENT"),
                                 .ulp = number_from("PTX_ULP"),
                                 .contracts = number_from("PTX_CONTRACTS"),
                                 .truncates = number_from("PTX_TRUNCATES")};
    const char *const error = door->open(real, &options);
    if (error) fail_msg("%s", error);
    free(real);
    return door;
}

static int open_doors(void **state)
{
    char name[64];
    snprintf(name, sizeof name, "%s/kernels.so", arch());
    gpu = open_door(name);
    host = open_door("coroutines.so");
    return 0;
}

static void skip_without_ptx(void)
{
    if (gpu && host) return;
    print_message("SKIP: the kernels' PTX: it is built where nvcc is, and without sanitizers\n");
    skip();
}

static void kernels_give_the_same_as_ptx(void **state)
{
    skip_without_ptx();
    const size_t *const columns = test_is_long() ? all_columns : some_columns;
    const size_t n_columns = test_is_long() ? N_OF(all_columns) : N_OF(some_columns);
    const char *const only = getenv("PTX_CALL");
    int wrong = 0;
    for (int call = 0; host->call_name(call); call++)
        for (int type = 0; type < TYPES; type++)
            for (size_t k = 0; k < n_columns; k++)
                if (!only || strcmp(only, host->call_name(call)) == 0)
                    wrong += run_call(call, type, columns[k]);
    print_message("# %llu instructions of warps\n", (unsigned long long)ptx_n_executed(gpu->machine()));
    assert_int_equal(wrong, 0);
}

/* After the calls above. */
static void each_kernel_is_reached(void **state)
{
    skip_without_ptx();
    const ptx_machine *const machine = gpu->machine();
    int missed = 0;
    for (int k = 0; k < ptx_n_kernel(machine); k++) {
        if (ptx_launches(machine, k)) continue;
        print_message("no call reaches %s\n", ptx_kernel_name(machine, k));
        missed++;
    }
    print_message("# %d of %d kernels reached\n", ptx_n_kernel(machine) - missed, ptx_n_kernel(machine));
    if (!getenv("PTX_CALL")) assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_give_the_same_as_ptx),
                                       cmocka_unit_test(each_kernel_is_reached)};
    return cmocka_run_group_tests(tests, open_doors, NULL);
}
