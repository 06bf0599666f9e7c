/* bench_gpu.c: prints the tables of gpu_bench.h for one card. */
#include <stdlib.h>
#include <string.h>

#include "bench/cuda/gpu_bench.h"

static const gpu_bench_sizes full_sizes = {
    .copy_bytes = {UINT64_C(256) << 20, UINT64_C(512) << 20, UINT64_C(1) << 30},
    .elements = (size_t)1 << 26,
    .columns = 4096,
    .side = 8192,
    .tokens = 15872,
    .hidden = 4096,
    .ffn = 16384,
    .attention = {{16, 12, 1024, 64, 1, 1}, /* gpt2_small, with dropout and without */
                  {16, 12, 1024, 64, 1, 0},
                  {64, 12, 128, 64, 0, 1}, /* bert_base */
                  {8, 12, 128, 64, 0, 1}},
    .samples = 15,
    .launches = 8};

static const char usage[] =
    "usage: bench_gpu [DEVICE [ELEMENTS [TABLES]]]\n"
    "What the CUDA backend reaches on DEVICE [cuda:0], beside what the card reaches: copies, products, "
    "kernels over ELEMENTS\n"
    "numbers [67108864], a transformer layer; the first TABLES of the four [4].\n"
    "About 12 GiB of the card's memory and half a minute.\n";

static void print_gpu(FILE *out, const cuda_device *device)
{
    const cuda_vendor *vendor = device->vendor;
    cuda_gpu described = {0};
    char versions[128] = "";
    (void)vendor->describe(&described, (int)strtol(device->name + strlen("cuda:"), NULL, 10));
    (void)vendor->versions(versions, sizeof versions);
    fprintf(out, "%s: %s, compute capability %d.%d, %.1f GiB; %s, driver for CUDA %d.%d\n", device->name,
            described.name, described.major, described.minor,
            (double)described.memory_bytes / (double)(1 << 30), versions, described.driver / 1000,
            described.driver % 1000 / 10);
}

int main(int n, char **word)
{
    tandem_error error = {0};
    void *device = NULL;
    gpu_bench c = {.sizes = full_sizes, .out = stdout};
    char *end = NULL, *end_of_tables = NULL;
    if (n > 2) c.sizes.elements = (size_t)strtoull(word[2], &end, 10);
    if (n > 3) c.n_table = (int)strtol(word[3], &end_of_tables, 10);
    if (n > 4 || (end && *end) || (end_of_tables && (*end_of_tables || c.n_table < 1)) ||
        c.sizes.elements < 16 * 16384 || (n > 1 && strncmp(word[1], "cuda:", 5) != 0)) {
        fputs(usage, stderr);
        return tandem_status_exit_code(TANDEM_USAGE);
    }
    tandem_status status = tandem_cuda_backend.open(&device, n > 1 ? word[1] : "cuda:0", &error);
    if (status == TANDEM_NO_DEVICE) {
        printf("SKIP: %s\n", error.text);
        return 0;
    }
    if (status == TANDEM_OK) status = tandem_cuda_backend.load_algorithms(device, NULL, 0, 1, &error);
    if (status == TANDEM_OK) {
        c.device = device;
        print_gpu(c.out, c.device);
        status = gpu_bench_report(&c, &error);
    }
    if (device) tandem_cuda_backend.close(device);
    if (status != TANDEM_OK) fprintf(stderr, "bench_gpu: %s\n", error.text);
    return tandem_status_exit_code(status);
}
