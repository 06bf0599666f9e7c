/* folder: backend */
/* Images that go to the card as bytes have the bits there that the host gives them: in the data's size and in
 * others, grey and coloured, of both slots. On a card in build/card/ (make test-cuda), as coroutines (simt.h)
 * elsewhere. */
#include "kernels/cuda/kernels.h"
#include "tandem/advanced/data.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tandem_test.h"

enum { BATCH = 3, SAMPLES = 5, ALIGNED = 64 };

typedef struct image_case {
    int height, width, channels; /* of the data */
    int to_height, to_width, to_channels;
} image_case;

static tandem_data images_of(const image_case *c)
{
    const size_t n = (size_t)c->height * (size_t)c->width * (size_t)c->channels;
    tandem_data data = {.kind = TANDEM_DATA_IMAGES,
                        .n_train = SAMPLES,
                        .height = c->height,
                        .width = c->width,
                        .channels = c->channels,
                        .n_class = 10,
                        .mean = 0.2860406f,
                        .deviation = 0.3530242f};
    data.pixels_train = malloc(SAMPLES * n);
    data.labels_train = malloc(SAMPLES);
    assert_true(data.pixels_train && data.labels_train);
    for (size_t i = 0; i < SAMPLES * n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 1, 2, 3};
        data.pixels_train[i] = (uint8_t)tandem_philox(counter, 9).word[0];
    }
    for (int i = 0; i < SAMPLES; i++) data.labels_train[i] = (uint8_t)(3 * i % 10);
    return data;
}

static size_t round_up_images(size_t bytes) { return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED; }

static void *shared(size_t bytes)
{
    void *memory = gpu_alloc_shared(bytes);
    assert_non_null(memory);
    return memory;
}

/* Sample number b of the slot; the other slot has others. */
static int64_t sample_at(int slot, int b) { return (b + 2 * slot) % SAMPLES; }

static void check_images(const image_case *c, uint32_t index, uint32_t micro)
{
    tandem_data data = images_of(c);
    const size_t own = (size_t)c->height * (size_t)c->width * (size_t)c->channels,
                 n = (size_t)c->to_height * (size_t)c->to_width * (size_t)c->to_channels,
                 label_offset = round_up_images(BATCH * own),
                 slot_bytes = round_up_images(label_offset + BATCH * sizeof(int32_t));
    uint8_t *slots = shared(2 * slot_bytes);
    tandem_pixel_blend *blends = shared((size_t)(c->to_height + c->to_width) * sizeof(tandem_pixel_blend));
    uint32_t *micro_index = shared(sizeof *micro_index);
    float *x = shared(BATCH * n * sizeof *x), *right = malloc(n * sizeof *right);
    int32_t *label = shared(BATCH * sizeof *label), right_label = -1;
    assert_non_null(right);
    for (int slot = 0; slot < 2; slot++)
        for (int b = 0; b < BATCH; b++)
            tandem_data_read_pixels(
                &data, sample_at(slot, b), slots + (size_t)slot * slot_bytes + (size_t)b * own,
                (int32_t *)(void *)(slots + (size_t)slot * slot_bytes + label_offset) + b);
    tandem_data_blends(blends, c->to_height, c->height);
    tandem_data_blends(blends + c->to_height, c->to_width, c->width);
    *micro_index = index;
    const tandem_image_slots from = {slots,     slot_bytes,     label_offset, micro_index,
                                     micro,     c->height,      c->width,     c->channels,
                                     data.mean, data.deviation, blends,       blends + c->to_height};
    assert_int_equal(tandem_cuda_images(x, BATCH, (unsigned)c->to_height, (unsigned)c->to_width,
                                        (unsigned)c->to_channels, &from, NULL),
                     0);
    assert_int_equal(tandem_cuda_image_labels(label, BATCH, &from, NULL), 0);
    gpu_sync();
    for (int b = 0; b < BATCH; b++) {
        const int64_t sample = sample_at((int)((index + micro) % 2), b);
        tandem_data_read_resized(&data, 0, sample, c->to_height, c->to_width, c->to_channels, right,
                                 &right_label);
        assert_memory_equal(x + (size_t)b * n, right, n * sizeof *right);
        assert_int_equal(label[b], right_label);
        if (own != n) continue;
        tandem_data_read_image(&data, 0, sample, right, &right_label);
        assert_memory_equal(x + (size_t)b * n, right, n * sizeof *right);
    }
    gpu_free_shared(label);
    gpu_free_shared(x);
    gpu_free_shared(micro_index);
    gpu_free_shared(blends);
    gpu_free_shared(slots);
    free(right);
    free(data.pixels_train);
    free(data.labels_train);
}

static void images_are_the_host_s_to_the_bit(void **state)
{
    static const image_case cases[] = {{28, 28, 1, 28, 28, 1}, {28, 28, 1, 32, 32, 3}, {9, 20, 3, 9, 20, 3},
                                       {20, 9, 3, 7, 31, 3},   {1, 1, 1, 3, 5, 3},     {40, 3, 1, 1, 1, 1}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (uint32_t turn = 0; turn < 4; turn++) check_images(&cases[k], 6 + turn % 2, turn / 2);
    assert_int_equal(gpu_open_handles(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(images_are_the_host_s_to_the_bit)};
    /* what is looked at after a launch is done by then */
    (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    return skip_without_gpu() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
