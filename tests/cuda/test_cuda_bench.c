/* folder: backend, and others for devices, plans or robust means */
/* The program that measures a card (bench/cuda) where none is: all of it runs, on small arrays, over what
 * replaces a card, so that its tables are whole on the day that there is one. And its figures, by hand.
 * */
#include "bench/cuda/gpu_bench.h"
#include "tests/cuda/stand_in.h"
#include "tests/support/tandem_test.h"

static const gpu_bench_sizes small = {
    .copy_bytes = {1 << 10, 1 << 12, 1 << 14},
    .elements = 16 * 16384,
    .columns = 256,
    .side = 32,
    .tokens = 16,
    .hidden = 16,
    .ffn = 32,
    .attention = {{1, 2, 40, 64, 1, 1}, {1, 2, 40, 64, 1, 0}, {2, 1, 24, 64, 0, 1}, {1, 1, 8, 32, 0, 0}},
    .samples = 1,
    .launches = 1};

static void cells_are_what_they_say(void **state)
{
    char cell[GPU_CELL];
    assert_string_equal(gpu_print_ns(cell, 1500), "1.50 us");
    assert_string_equal(gpu_print_ns(cell, -1), "-");
    assert_string_equal(gpu_print_rate(cell, 3e9, 1000000, "B"), "3.00 TB/s");
    assert_string_equal(gpu_print_rate(cell, 3e9, -1, "B"), "-");
    assert_string_equal(gpu_print_share(cell, 93, 100), "93%");
    assert_string_equal(gpu_print_share(cell, 93, 0), "-");
    assert_string_equal(gpu_print_share(cell, -1, 100), "-");
    assert_string_equal(gpu_print_multiple(cell, 250, 100), "2.50 x");
    assert_string_equal(gpu_print_multiple(cell, -1, 100), "-");
    assert_string_equal(gpu_print_multiple(cell, 100, -1), "-");
}

static char *report_of(gpu_bench *c, tandem_status expected)
{
    char *text = NULL;
    size_t size = 0;
    tandem_error error = {0};
    c->out = open_memstream(&text, &size);
    assert_non_null(c->out);
    const tandem_status status = gpu_bench_report(c, &error);
    fclose(c->out);
    if (status != expected) print_message("%s\n%s\n", error.text, text);
    assert_int_equal(status, expected);
    assert_int_equal(c->n_memory, 0);
    return text;
}

static const char *line_of(const char *text, const char *start)
{
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, start, strlen(start)) == 0) return line;
    print_message("no line '%s' in:\n%s\n", start, text);
    return NULL;
}

static int has_dash(const char *line)
{
    return strstr(line, " -") && strstr(line, " -") < strchr(line, '\n');
}

/* Of a product by the library alone. */
static double library_seconds(const char *text, const char *start)
{
    double s = 0;
    const char *line = line_of(text, start);
    assert_non_null(line);
    assert_int_equal(sscanf(line + strlen(start), "%lf s ", &s), 1);
    return s;
}

static void every_table_is_whole(void **state)
{
    void *device = NULL;
    tandem_error error = {0};
    assert_int_equal(tandem_cuda_backend.open(&device, "cuda:0", &error), TANDEM_OK);
    gpu_bench c = {.device = device, .sizes = small};
    char *text = report_of(&c, TANDEM_OK);
    assert_true(c.copy_bytes_per_s > 0 && c.bf16_flops_per_s > 0);
    static const char *const starts[] = {"copy of 1.00 KiB",
                                         "copy of 16.0 KiB",
                                         "int8 32 x 32 x 32",
                                         "bf16 32 x 32 x 32",
                                         "fp8 32 x 32 x 32",
                                         "fp8 slow 32 x 32 x 32",
                                         "1 x 2 x 40 x 64, causal, dropout ",
                                         "1 x 2 x 40 x 64, causal ",
                                         "2 x 1 x 24 x 64, dropout ",
                                         "1 x 1 x 8 x 32 ",
                                         "QKV            int8_full",
                                         "all four       bf16",
                                         "all four       fp8",
                                         "all four       fp8 delayed"};
    for (size_t k = 0; k < sizeof starts / sizeof *starts; k++) {
        const char *line = line_of(text, starts[k]);
        assert_non_null(line);
        assert_false(has_dash(line) && !strstr(starts[k], "slow"));
    }
    assert_true(library_seconds(text, "fp8 32 x 32 x 32") <
                0.6 * library_seconds(text, "fp8 slow 32 x 32 x 32"));
    for (int k = 0; k < n_gpu_kernel; k++) assert_non_null(line_of(text, gpu_kernels[k].name));
    /* below each of the four tables, those of its own work */
    int n_clocks = 0;
    for (const char *at = text; (at = strstr(at, "\nat 1755 to 1755 MHz, memory 3201 to 3201 MHz\n")); at++)
        n_clocks++;
    assert_int_equal(n_clocks, 4);
    free(text);
    c.n_table = 2;
    text = report_of(&c, TANDEM_OK);
    assert_true(strstr(text, "\nproduct ") && !strstr(text, "\nkernel "));
    free(text);
    tandem_cuda_backend.close(device);
    assert_int_equal(stand_in_open_handles(), 0);
}

static void older_cards_have_no_attention_in_bf16(void **state)
{
    void *device = NULL;
    tandem_error error = {0};
    gpu_attention_times times = {7, 7};
    stand_in_gpu.major = 7, stand_in_gpu.minor = 5;
    assert_int_equal(tandem_cuda_backend.open(&device, "cuda:0", &error), TANDEM_OK);
    stand_in_gpu.major = 9, stand_in_gpu.minor = 0;
    gpu_bench c = {.device = device, .sizes = small};
    assert_int_equal(gpu_attention_time(&times, &c, &small.attention[0], &error), TANDEM_NO_KERNEL);
    assert_non_null(strstr(error.text, "this GPU has 7.5"));
    assert_true(times.forward_ns == 7 && times.backward_ns == 7 && c.n_memory == 0);
    tandem_cuda_backend.close(device);
}

static void what_fails_leaves_nothing(void **state)
{
    void *device = NULL;
    tandem_error error = {0};
    assert_int_equal(tandem_cuda_backend.open(&device, "cuda:0", &error), TANDEM_OK);
    const int before = stand_in_open_handles();
    gpu_bench c = {.device = device, .sizes = small};
    static const int after[] = {0, 3, 30, 100};
    for (size_t k = 0; k < sizeof after / sizeof *after; k++) {
        stand_in_calls_to_failure = after[k];
        tandem_error reported = {0};
        char *text = NULL;
        size_t size = 0;
        c.out = open_memstream(&text, &size);
        const tandem_status status = gpu_bench_report(&c, &reported);
        stand_in_calls_to_failure = -1;
        fclose(c.out);
        free(text);
        assert_true(status == TANDEM_NO_DEVICE || status == TANDEM_NO_MEMORY);
        assert_int_equal(stand_in_open_handles(), before);
    }
    const int64_t left = stand_in_memory_left;
    stand_in_memory_left = 1 << 20;
    free(report_of(&c, TANDEM_NO_MEMORY));
    stand_in_memory_left = left;
    assert_int_equal(stand_in_open_handles(), before);
    tandem_cuda_backend.close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_what_they_say),
        cmocka_unit_test(every_table_is_whole),
        cmocka_unit_test(older_cards_have_no_attention_in_bf16),
        cmocka_unit_test(what_fails_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
