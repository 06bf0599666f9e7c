/* folder: backend */
/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* The products of tandem/cuda_kernels.h: arguments that are off are named, what fails is reported and leaves
 * nothing open, and calls on two streams take turns. */
#include "tandem/cuda_kernels.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/stand_in.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

enum { SIDE = 5, N = SIDE * SIDE, UNTOUCHED = 0xA5 };

static tandem_cuda_products *products;
static tandem_error error; /* of the last call */
static float *a_matrix, *b_matrix, *scales;
static uint8_t *result;

static int open_matrices(void **state)
{
    a_matrix = gpu_alloc_shared(N * sizeof *a_matrix);
    b_matrix = gpu_alloc_shared(N * sizeof *b_matrix);
    scales = gpu_alloc_shared(2 * sizeof *scales);
    result = gpu_alloc_shared(N * sizeof(float));
    for (int i = 0; i < N; i++) a_matrix[i] = (float)i, b_matrix[i] = 1;
    scales[0] = scales[1] = 1;
    return 0;
}

/* One at a time: the stand-in copies only on the first stream that is open. */
static int open_products(void **state) { return tandem_cuda_products_open(&products, 0, NULL); }

static int close_products(void **state)
{
    tandem_cuda_products_close(products);
    return 0;
}

static int close_matrices(void **state)
{
    gpu_free_shared(result);
    gpu_free_shared(scales);
    gpu_free_shared(b_matrix);
    gpu_free_shared(a_matrix);
    return gpu_open_handles();
}

static tandem_cuda_product_call good_call(void)
{
    return (tandem_cuda_product_call){
        .m = SIDE, .n = SIDE, .k = SIDE, .a = a_matrix, .b = b_matrix, .c = result};
}

static void check_untouched(void)
{
    for (size_t i = 0; i < N * sizeof(float); i++) assert_int_equal(result[i], UNTOUCHED);
}

static void check_product_refused(tandem_status status, const char *says)
{
    assert_int_equal(status, TANDEM_USAGE);
    if (strncmp(error.text, says, strlen(says)) != 0)
        fail_msg("'%s' does not begin with '%s'", error.text, says);
    check_untouched();
}

#define BAD_PRODUCT(change, says)                                                                            \
    do {                                                                                                     \
        tandem_cuda_product_call c = good_call();                                                            \
        change;                                                                                              \
        check_product_refused(tandem_cuda_products_run(products, &c, NULL, &error), "product: " says);       \
    } while (0)

static void arguments_of_products_are_named(void **state)
{
    const tandem_cuda_product_call call = good_call();
    check_product_refused(tandem_cuda_products_open(NULL, 0, &error), "product: products is NULL");
    check_product_refused(tandem_cuda_products_run(NULL, &call, NULL, &error), "product: products is NULL");
    check_product_refused(tandem_cuda_products_run(products, NULL, NULL, &error),
                          "product: the call is NULL");
    BAD_PRODUCT(c.a_type = TANDEM_BF16, "the types of a and b are 1 and 0");
    BAD_PRODUCT(c.a_type = c.b_type = TANDEM_S32, "the types of a and b are");
    BAD_PRODUCT(c.a_type = c.b_type = TANDEM_E5M2, "the types of a and b are 5 and 5");
    BAD_PRODUCT(c.a_type = TANDEM_S8; c.b_type = TANDEM_E4M3, "the types of a and b are 2 and 4");
    BAD_PRODUCT(c.c_type = TANDEM_S8, "c_type must be f32");
    BAD_PRODUCT(c.a_type = c.b_type = TANDEM_F16; c.tf32 = 1, "tf32 goes with operands of f32");
    BAD_PRODUCT(c.m = -1, "batch, m, n and k are 1, -1, 5 and 5");
    BAD_PRODUCT(c.batch = -1, "batch, m, n and k are -1,");
    BAD_PRODUCT(c.k = INT64_C(1) << 31, "batch, m, n and k are 1, 5, 5 and 2147483648");
    BAD_PRODUCT(c.m = c.n = INT32_MAX, "batch, m, n and k are 1, 2147483647");
    BAD_PRODUCT(c.m = c.k = 1 << 20, "batch, m, n and k are 1, 1048576");
    BAD_PRODUCT(c.n = c.k = 1 << 20, "batch, m, n and k are 1, 5");
    BAD_PRODUCT(c.a_type = c.b_type = TANDEM_S8; c.k = TANDEM_PRODUCT_MAX_K + 1, "k is 131073");
    BAD_PRODUCT(c.a = NULL, "a is NULL");
    BAD_PRODUCT(c.b = NULL, "b is NULL");
    BAD_PRODUCT(c.c = NULL, "c is NULL");
    BAD_PRODUCT(c.a = a_matrix + 8, "a lies at");
    BAD_PRODUCT(c.b = b_matrix + 1, "b lies at");
    BAD_PRODUCT(c.c = result + 32, "c lies at");
    BAD_PRODUCT(c.a_type = c.b_type = TANDEM_S8; c.b_scale = scales, "a_scale is NULL");
    BAD_PRODUCT(c.a_type = c.b_type = TANDEM_S8; c.a_scale = scales, "b_scale is NULL");
}

static void what_the_gpu_lacks_is_named(void **state)
{
    tandem_cuda_product_call call = good_call();
    call.a_type = call.b_type = TANDEM_E4M3;
    call.a_scale = call.b_scale = scales;
    stand_in_gpu.minor = 6, stand_in_gpu.major = 8;
    tandem_cuda_products *old = NULL;
    assert_int_equal(tandem_cuda_products_open(&old, 0, &error), TANDEM_OK);
    assert_int_equal(tandem_cuda_products_run(old, &call, NULL, &error), TANDEM_NO_KERNEL);
    assert_non_null(strstr(error.text, "fp8, e4m3 to f32): it needs compute capability 8.9"));
    check_untouched();
    tandem_cuda_products_close(old);
    stand_in_gpu.minor = 0, stand_in_gpu.major = 9;
    old = NULL;
    assert_int_equal(tandem_cuda_products_open(&old, 7, &error), TANDEM_NO_DEVICE);
    assert_non_null(strstr(error.text, "'cuda:7' does not exist"));
    assert_int_equal(tandem_cuda_products_open(&old, -1, &error), TANDEM_UNKNOWN_NAME);
    assert_null(old);
}

/* Every call of the libraries in its turn, of an opening, a first product, and a later one. */
static void failures_are_reported_and_leave_nothing(void **state)
{
    const int before = gpu_open_handles();
    tandem_cuda_product_call call = good_call();
    call.c_type = TANDEM_BF16; /* by way of the workspace */
    int n_failed = 0;
    for (int k = 0, is_done = 0; !is_done; k++) {
        tandem_cuda_products *own = NULL;
        error = (tandem_error){0};
        stand_in_calls_to_failure = k;
        stand_in_fail_once = k % 2; /* by halves: alone, and with all after it */
        tandem_status status = tandem_cuda_products_open(&own, 0, &error);
        assert_int_equal(status != TANDEM_OK, own == NULL);
        for (int again = 0; again < 2 && status == TANDEM_OK; again++)
            status = tandem_cuda_products_run(own, &call, NULL, &error);
        is_done = stand_in_calls_to_failure > 0;
        stand_in_calls_to_failure = -1;
        n_failed += status != TANDEM_OK;
        if (error.status != status) fail_msg("call %d: %d, and '%s'", k, status, error.text);
        if (status != TANDEM_OK) assert_non_null(strstr(error.text, "'cuda:0'"));
        if (own && tandem_cuda_products_run(own, &call, NULL, &error) != TANDEM_OK)
            fail_msg("after call %d: %s", k, error.text);
        tandem_cuda_products_close(own);
        assert_int_equal(gpu_open_handles(), before);
    }
    assert_true(n_failed > 8);
    memset(result, UNTOUCHED, N * sizeof(float));
}

static void memory_may_be_lacking(void **state)
{
    tandem_cuda_products *own = NULL;
    for (int k = 0; k < 2; k++) { /* its own allocations; those after are of the library */
        tandem_fail_allocation_after(k);
        assert_int_equal(tandem_cuda_products_open(&own, 0, &error), TANDEM_NO_MEMORY);
        tandem_fail_allocation_after(-1);
        assert_null(own);
    }
    const tandem_cuda_product_call call = good_call();
    const int64_t left = stand_in_memory_left;
    assert_int_equal(tandem_cuda_products_open(&own, 0, &error), TANDEM_OK);
    stand_in_memory_left = 0;
    assert_int_equal(tandem_cuda_products_run(own, &call, NULL, &error), TANDEM_NO_MEMORY);
    assert_non_null(strstr(error.text, "take a workspace of 512 bytes"));
    check_untouched();
    stand_in_memory_left = left;
    assert_int_equal(tandem_cuda_products_run(own, &call, NULL, &error), TANDEM_OK);
    tandem_cuda_products_close(own);
    memset(result, UNTOUCHED, N * sizeof(float));
}

/* They share a workspace: what the stream without a name is given comes after all that another one was. */
static void streams_take_turns(void **state)
{
    const tandem_cuda_product_call call = good_call();
    tandem_cuda_stream stream = NULL;
    int *const from = gpu_alloc_shared(sizeof *from), *const to = gpu_alloc_shared(sizeof *to);
    assert_int_equal(tandem_cuda_vendor.stream_open(&stream), 0);
    *from = 7, *to = 0;
    assert_int_equal(tandem_cuda_vendor.copy(to, from, sizeof *to, stream), 0);
    assert_int_equal(tandem_cuda_products_run(products, &call, stream, &error), TANDEM_OK);
    assert_int_equal(*to, 0); /* not before it is waited for */
    assert_int_equal(tandem_cuda_products_run(products, &call, NULL, &error), TANDEM_OK);
    assert_int_equal(*to, 7);
    tandem_cuda_vendor.stream_close(stream);
    gpu_free_shared(to);
    gpu_free_shared(from);
    assert_true(((const float *)(void *)result)[SIDE] == 35.0f); /* 5 + 6 + 7 + 8 + 9 */
}

static void run_product(const tandem_cuda_product_call *call)
{
    if (tandem_cuda_products_run(products, call, NULL, &error) != TANDEM_OK) fail_msg("%s", error.text);
    assert_true(((const float *)(void *)result)[0] == 0 + 1 + 2);
}

/* A new kind runs once and takes no memory; only what the library refuses to run is tried. */
static void kinds_are_planned_without_a_trial(void **state)
{
    tandem_cuda_product_call call = good_call();
    const int64_t left = stand_in_memory_left;
    call.n = 1, call.k = 3;
    for (call.m = 1; call.m <= 3; call.m++) { /* the first one takes the workspace */
        const int before = stand_in_runs;
        run_product(&call);
        assert_int_equal(stand_in_runs, before + 1);
        stand_in_memory_left = 0;
    }
    stand_in_memory_left = left;
    stand_in_n_failing = 1;
    for (int again = 0; again < 2; again++) {
        const int before = stand_in_runs;
        run_product(&call);
        assert_int_equal(stand_in_runs, before + 2 - again);
    }
    call.m = 5, stand_in_n_failing = 4;
    assert_int_equal(tandem_cuda_products_run(products, &call, NULL, &error), TANDEM_NO_DEVICE);
    stand_in_n_failing = 0;
    run_product(&call);
    memset(result, UNTOUCHED, N * sizeof(float));
}

/* A product is refused in a capture, which goes on with what is put there besides. */
static void captures_go_on_without_products(void **state)
{
    const tandem_cuda_product_call call = good_call();
    tandem_cuda_product_call empty = good_call();
    const cuda_vendor *const vendor = &tandem_cuda_vendor;
    tandem_cuda_stream stream = NULL;
    tandem_cuda_graph graph = NULL;
    uint32_t *const word = gpu_alloc_shared(sizeof *word);
    empty.k = 0;
    assert_int_equal(vendor->stream_open(&stream), 0);
    memset(result, UNTOUCHED, N * sizeof(float));
    for (int known = 0; known < 2; known++) { /* a kind that has no plan yet, and one that has */
        *word = 1;
        assert_int_equal(vendor->capture_begin(stream), 0);
        check_product_refused(tandem_cuda_products_run(products, &call, stream, &error),
                              "product: the stream is being captured");
        check_product_refused(tandem_cuda_products_run(products, &empty, stream, &error),
                              "product: the stream is being captured");
        assert_int_equal(tandem_cuda_set_word(word, 5, stream), 0);
        assert_int_equal(vendor->capture_end(&graph, stream), 0);
        assert_int_equal(*word, 1);
        assert_int_equal(vendor->graph_launch(graph, stream), 0);
        assert_int_equal(vendor->stream_sync(stream), 0);
        assert_int_equal(*word, 5);
        vendor->graph_destroy(graph);
        assert_int_equal(tandem_cuda_products_run(products, &call, stream, &error), TANDEM_OK);
        assert_int_equal(vendor->stream_sync(stream), 0);
        assert_true(((const float *)(void *)result)[SIDE] == 35.0f);
        memset(result, UNTOUCHED, N * sizeof(float));
    }
    vendor->stream_close(stream);
    gpu_free_shared(word);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(arguments_of_products_are_named, open_products, close_products),
        cmocka_unit_test(what_the_gpu_lacks_is_named),
        cmocka_unit_test(failures_are_reported_and_leave_nothing),
        cmocka_unit_test(memory_may_be_lacking),
        cmocka_unit_test_setup_teardown(streams_take_turns, open_products, close_products),
        cmocka_unit_test_setup_teardown(kinds_are_planned_without_a_trial, open_products, close_products),
        cmocka_unit_test_setup_teardown(captures_go_on_without_products, open_products, close_products),
    };
    return cmocka_run_group_tests(tests, open_matrices, close_matrices);
}
