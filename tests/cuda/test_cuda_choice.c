/* folder: backend */
/* Which algorithm of a library a piece of work takes: the one that a try finds fastest, the same one again in
 * later openings, and what happens to a choice that is damaged, or for another card. The library is
 * replaced (stand_in.h). */
#include "backend/cuda/operator.h"
#include "tests/cuda/stand_in.h"
#include "tests/support/every_case.h"
#include "tests/support/tandem_test.h"

static const cuda_product_spec spec = {.batch = 2,
                                       .m = 24,
                                       .n = 16,
                                       .k = 32,
                                       .transpose_b = 1,
                                       .a = CUDA_TYPE_BF16,
                                       .b = CUDA_TYPE_BF16,
                                       .to = CUDA_TYPE_F32};

typedef struct chosen {
    cuda_algorithm_cache *algorithm_cache;
    tandem_cuda_stream stream;
    cuda_work *work;
    cuda_work_key candidate;
} chosen;

static chosen open_cache(const char *versions)
{
    chosen c = {0};
    assert_int_equal(cuda_algorithm_cache_open(&c.algorithm_cache, &stand_in_gpu, versions, NULL), TANDEM_OK);
    assert_int_equal(stand_in_vendor.set_device(0), 0);
    assert_int_equal(stand_in_vendor.stream_open(&c.stream), 0);
    assert_int_equal(stand_in_vendor.product_open(&c.work, NULL, &spec), 0);
    c.candidate = (cuda_work_key){.work = c.work, .a_bytes = 3072, .b_bytes = 2048, .c_bytes = 3072};
    cuda_product_print(c.candidate.text, &spec);
    return c;
}

/* Of several: trials copy from the host, which only a stand-in's first stream does. */
static void close_cache_beside(chosen *c)
{
    stand_in_vendor.work_close(c->work);
    cuda_algorithm_cache_close(c->algorithm_cache);
}

static chosen open_cache_beside(const chosen *first, const char *versions)
{
    chosen c = open_cache(versions);
    stand_in_vendor.stream_close(c.stream);
    c.stream = first->stream;
    return c;
}

static void close_cache(chosen *c)
{
    stand_in_vendor.stream_close(c->stream);
    stand_in_vendor.work_close(c->work);
    cuda_algorithm_cache_close(c->algorithm_cache);
    assert_int_equal(stand_in_open_handles(), 0);
}

static cuda_algorithm chosen_algorithm(const chosen *c)
{
    cuda_algorithm algorithm = {{99}, 99};
    assert_int_equal(
        cuda_choose_algorithm(&algorithm, c->algorithm_cache, &stand_in_vendor, c->stream, &c->candidate), 0);
    return algorithm;
}

static void load_text(chosen *c, const char *text, const char *word, int tries)
{
    const tandem_algorithm known = {text, word};
    assert_int_equal(cuda_algorithm_cache_load(c->algorithm_cache, &known, text ? 1 : 0, tries, NULL),
                     TANDEM_OK);
}

static int n_tuned(const chosen *c)
{
    int n = -1;
    (void)cuda_algorithm_cache_tuned(c->algorithm_cache, &n);
    return n;
}

static void the_librarys_guess_runs_once_before_it_is_trusted(void **state)
{
    chosen c = open_cache("1.0");
    const int before = stand_in_runs;
    const cuda_algorithm algorithm = chosen_algorithm(&c);
    assert_int_equal(algorithm.word[0], 0);
    assert_int_equal(algorithm.workspace_bytes, 512);
    assert_int_equal(stand_in_runs, before + 1);
    assert_int_equal(n_tuned(&c), 0);
    assert_int_equal(chosen_algorithm(&c).word[0], 0);
    assert_int_equal(stand_in_runs, before + 1);
    load_text(&c, NULL, NULL, 1); /* what has run once can still be tuned, or be known from a store */
    assert_int_equal(chosen_algorithm(&c).word[0], 2);
    assert_int_equal(n_tuned(&c), 1);
    close_cache(&c);
    c = open_cache("1.0");
    assert_int_equal(chosen_algorithm(&c).word[0], 0);
    load_text(&c, "stand-in 9.0, 1.0 | product batch=2 m=24 n=16 k=32 nt bf16*bf16>f32", "3.0.0.0.0.0.0.0",
              0);
    assert_int_equal(chosen_algorithm(&c).word[0], 3);
    close_cache(&c);
}

static void a_guess_that_does_not_run_gives_way_to_the_next(void **state)
{
    chosen c = open_cache("1.0");
    cuda_algorithm algorithm = {{99}, 99};
    stand_in_n_failing = 2;
    assert_int_equal(chosen_algorithm(&c).word[0], 2);
    close_cache(&c);
    c = open_cache("1.0");
    stand_in_n_failing = 4;
    const int failed =
        cuda_choose_algorithm(&algorithm, c.algorithm_cache, &stand_in_vendor, c.stream, &c.candidate);
    stand_in_n_failing = 0;
    assert_true(failed && !cuda_error_is_unsupported(failed));
    assert_int_equal(algorithm.word[0], 99);
    close_cache(&c);
}

static void the_fastest_is_chosen_and_known_again(void **state)
{
    chosen c = open_cache("1.0"), later = open_cache_beside(&c, "1.0"), other = open_cache_beside(&c, "1.1");
    int n = 0;
    load_text(&c, NULL, NULL, 1);
    cuda_algorithm algorithm = chosen_algorithm(&c);
    assert_int_equal(algorithm.word[0], 2);
    assert_int_equal(algorithm.workspace_bytes, 256);
    const int runs = stand_in_runs;
    algorithm = chosen_algorithm(&c);
    assert_int_equal(algorithm.word[0], 2);
    assert_int_equal(stand_in_runs, runs);

    const tandem_algorithm *all = cuda_algorithm_cache_tuned(c.algorithm_cache, &n);
    assert_int_equal(n, 1);
    assert_string_equal(all[0].spec, "stand-in 9.0, 1.0 | product batch=2 m=24 n=16 k=32 nt bf16*bf16>f32");
    assert_string_equal(all[0].choice, "2.0.0.0.0.0.0.0");
    load_text(&later, all[0].spec, all[0].choice, 1);
    algorithm = chosen_algorithm(&later);
    assert_int_equal(algorithm.word[0], 2);
    assert_int_equal(algorithm.workspace_bytes, 256);
    assert_int_equal(n_tuned(&later), 0);
    assert_int_equal(stand_in_runs, runs);
    load_text(&other, all[0].spec, all[0].choice, 0); /* of another version: the guess */
    assert_int_equal(chosen_algorithm(&other).word[0], 0);
    close_cache_beside(&later);
    close_cache_beside(&other);
    close_cache(&c);
}

static void candidates_that_fail_are_out_of_the_running(void **state)
{
    chosen c = open_cache("1.0");
    load_text(&c, NULL, NULL, 1);
    stand_in_fail_third = 1;
    const cuda_algorithm algorithm = chosen_algorithm(&c);
    stand_in_fail_third = 0;
    assert_int_equal(algorithm.word[0], 1);
    assert_int_equal(algorithm.workspace_bytes, 1000);
    close_cache(&c);
}

static void a_single_candidate_is_not_tried(void **state)
{
    chosen c = open_cache("1.0");
    load_text(&c, NULL, NULL, 1);
    stand_in_candidates = 1;
    assert_int_equal(chosen_algorithm(&c).word[0], 0);
    stand_in_candidates = 4;
    assert_int_equal(n_tuned(&c), 0);
    close_cache(&c);
}

static void a_candidate_that_its_library_refuses_is_passed_over(void **state)
{
    chosen c = open_cache("1.0");
    cuda_algorithm algorithm = {{99}, 99};
    stand_in_n_refused = 2;
    assert_int_equal(chosen_algorithm(&c).word[0], 2);
    stand_in_n_refused = 4;
    const int failed =
        cuda_choose_algorithm(&algorithm, c.algorithm_cache, &stand_in_vendor, c.stream, &c.candidate);
    stand_in_n_refused = 0;
    assert_true(failed && cuda_error_is_unsupported(failed));
    assert_int_equal(algorithm.word[0], 99);
    close_cache(&c);
}

static void without_memory_to_try_in_the_guess_is_taken(void **state)
{
    chosen c = open_cache("1.0");
    const int64_t before = stand_in_memory_left;
    load_text(&c, NULL, NULL, 1);
    stand_in_memory_left = 4096;
    assert_int_equal(chosen_algorithm(&c).word[0], 0);
    stand_in_memory_left = before;
    assert_int_equal(n_tuned(&c), 0);
    assert_int_equal(chosen_algorithm(&c).word[0], 2);
    close_cache(&c);
}

static void damaged_choices_are_passed_over(void **state)
{
    static const char *const words[] = {"",
                                        "2",
                                        "2.0.0.0.0.0.0",
                                        "2.0.0.0.0.0.0.0.0",
                                        "2.0.0.0.0.0.0.x",
                                        "2.0.0.0.0.0.0.0 ",
                                        "-2.0.0.0.0.0.0.0",
                                        "+2.0.0.0.0.0.0.0",
                                        "2..0.0.0.0.0.0",
                                        "400.0.0.0.0.0.0.0",
                                        "0x2.0.0.0.0.0.0.0"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        chosen c = open_cache("1.0");
        load_text(&c, "stand-in 9.0, 1.0 | product batch=2 m=24 n=16 k=32 nt bf16*bf16>f32", words[i], 0);
        assert_int_equal(chosen_algorithm(&c).word[0], 0);
        close_cache(&c);
    }
}

/* Whenever a card is lost meanwhile it is reported, and nothing stays open. */
static void a_gpu_lost_in_a_try_is_reported(void **state)
{
    int lost = 1;
    for (int after = 0; lost; after++) {
        chosen c = open_cache("1.0");
        load_text(&c, NULL, NULL, 1);
        cuda_algorithm algorithm = {{99}, 99};
        stand_in_calls_to_failure = after;
        lost = cuda_choose_algorithm(&algorithm, c.algorithm_cache, &stand_in_vendor, c.stream, &c.candidate);
        stand_in_calls_to_failure = -1;
        assert_int_equal(algorithm.word[0], lost ? 99 : 2);
        close_cache(&c);
        assert_in_range(after, 0, 1000);
    }
}

static void every_part_of_a_convolution_is_in_its_text(void **state)
{
    char text[CUDA_WORK_TEXT];
    const cuda_convolution_spec s = {CUDA_CONVOLUTION_WGRAD, 8, 28, 27, 64, 14, 13, 128, 3, 5, 2, 1,
                                     CUDA_TYPE_F32,          1};
    cuda_convolution_print(text, &s);
    assert_string_equal(text, "convolution wgrad batch=8 28x27x64 > 14x13x128 window=3x5 stride=2 pad=1 f32 "
                              "tf32");
}

static const operator_case linear = {
    .kind = TANDEM_OP_LINEAR, .n_dim = 1, .batch = 4, .dim = {16}, .out = 16};

/* An operator in a precision, on a card of a capability. */
static tandem_status prepare_operator(tandem_error *error, const operator_case *c, tandem_precision precision,
                                      int major, int minor)
{
    const cuda_gpu good = stand_in_gpu;
    case_graph made;
    tandem_step *step = NULL;
    tandem_kernel *kernel = NULL;
    void *device = NULL;
    uint64_t workspace_bytes = 0;
    stand_in_gpu.major = major, stand_in_gpu.minor = minor;
    assert_int_equal(case_graph_open(&made, c, error), TANDEM_OK);
    assert_int_equal(tandem_step_open(&step, made.graph, TANDEM_F32, 0, error), TANDEM_OK);
    case_set_precisions(step, &made, precision, TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32);
    assert_int_equal(tandem_cuda_backend.open(&device, "cuda:0", error), TANDEM_OK);
    const int t = case_find_task(step, TANDEM_TASK_FORWARD, made.op, TANDEM_F32);
    const tandem_status status =
        tandem_cuda_backend.prepare(device, step, t, &kernel, &workspace_bytes, error);
    if (status == TANDEM_OK) tandem_cuda_backend.release(kernel);
    tandem_cuda_backend.close(device);
    tandem_step_close(step);
    tandem_graph_close(made.graph);
    stand_in_gpu = good;
    assert_int_equal(stand_in_open_handles(), 0);
    return status;
}

static void a_gpu_without_a_type_says_what_it_would_take(void **state)
{
    static const struct {
        tandem_precision precision;
        int major, minor;
        const char *lacks; /* NULL: it has it */
    } cases[] = {{TANDEM_PRECISION_FP8, 8, 6, "8.9, and stand-in has 8.6"},
                 {TANDEM_PRECISION_FP8, 8, 9, NULL},
                 {TANDEM_PRECISION_TF32, 7, 5, "8.0, and stand-in has 7.5"},
                 {TANDEM_PRECISION_TF32, 8, 0, NULL},
                 {TANDEM_PRECISION_BF16, 7, 5, "8.0"},
                 {TANDEM_PRECISION_FP16, 7, 5, NULL},
                 {TANDEM_PRECISION_INT8_FULL, 7, 5, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tandem_error error = {0};
        const tandem_status status =
            prepare_operator(&error, &linear, cases[i].precision, cases[i].major, cases[i].minor);
        assert_int_equal(status, cases[i].lacks ? TANDEM_NO_KERNEL : TANDEM_OK);
        if (cases[i].lacks) assert_non_null(strstr(error.text, cases[i].lacks));
    }
}

/* … where another might: the profile measures the other precisions then. */
static void what_a_library_cannot_do_is_a_kernel_that_is_missing(void **state)
{
    static const struct {
        int refusal;
        const char *text;
    } refusals[] = {{CUBLASLT_NOT_SUPPORTED, "not supported (error 10015)"},
                    {CUBLASLT_INVALID_VALUE, "a wrong value (error 10007)"},
                    {CUDNN_BAD_PARAM, "a wrong value (error 22000)"}};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        for (int k = 0; k < 2; k++) {
            tandem_error error = {0};
            char text[80];
            const int refused = k == 0;
            stand_in_refusal = refusals[i].refusal;
            stand_in_n_refused = refused ? 4 : 0, stand_in_candidates = refused ? 4 : 0;
            const tandem_status status = prepare_operator(&error, &linear, TANDEM_PRECISION_BF16, 9, 0);
            stand_in_n_refused = 0, stand_in_candidates = 4, stand_in_refusal = CUBLASLT_NOT_SUPPORTED;
            assert_int_equal(status, TANDEM_NO_KERNEL);
            (void)snprintf(text, sizeof text, "%s; give the operator another precision", refusals[i].text);
            assert_non_null(strstr(error.text, text));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_librarys_guess_runs_once_before_it_is_trusted),
        cmocka_unit_test(a_guess_that_does_not_run_gives_way_to_the_next),
        cmocka_unit_test(the_fastest_is_chosen_and_known_again),
        cmocka_unit_test(candidates_that_fail_are_out_of_the_running),
        cmocka_unit_test(a_single_candidate_is_not_tried),
        cmocka_unit_test(a_candidate_that_its_library_refuses_is_passed_over),
        cmocka_unit_test(without_memory_to_try_in_the_guess_is_taken),
        cmocka_unit_test(damaged_choices_are_passed_over),
        cmocka_unit_test(a_gpu_lost_in_a_try_is_reported),
        cmocka_unit_test(every_part_of_a_convolution_is_in_its_text),
        cmocka_unit_test(a_gpu_without_a_type_says_what_it_would_take),
        cmocka_unit_test(what_a_library_cannot_do_is_a_kernel_that_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
