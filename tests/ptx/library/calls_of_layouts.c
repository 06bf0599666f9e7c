/* calls_of_layouts.c: layout.cu and images.cu. */
#include "tests/ptx/library/calls.h"

#include <string.h>

static void call_transpose(call *c)
{
    const size_t bytes = c->n * call_size(c->type);
    void *const x = call_numbers(c, c->type, c->n, 3);
    if (c->type != TANDEM_CUDA_F16) call_put_nans(x, c->type, c->n);
    const tandem_cuda_permutation matrix = {{1, 1, c->columns, c->rows}, {0, 0, 1, c->columns}};
    void *const y = call_result_array(c, c->type, c->n);
    float *const wide = call_array(c, 4 * c->n);
    call_check(c, tandem_cuda_transpose(y, x, c->type, &matrix, NULL), "transpose");
    call_bytes(c, "y", y, bytes);
    call_check(c, tandem_cuda_transpose_to_f32(wide, x, c->type, c->columns, c->rows, NULL),
               "transpose_to_f32");
    call_bytes(c, "f32", wide, 4 * c->n);
}

/* Heads come before rows; with indexes of 32 and of 64 bits. */
static void call_heads(call *c)
{
    enum { BATCH = 2, HEADS = 3, ROWS = 5 };
    const size_t depth = c->columns, n = BATCH * HEADS * ROWS * depth, bytes = n * call_size(c->type);
    void *const x = call_numbers(c, c->type, n, 3);
    call_put_nans(x, c->type, n);
    const tandem_cuda_permutation p = {{BATCH, HEADS, ROWS, depth},
                                       {ROWS * HEADS * depth, depth, HEADS * depth, 1}};
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        void *const y = call_result_array(c, c->type, n);
        device_narrow_elements = is_wide ? 0 : UINT32_MAX;
        call_check(c, tandem_cuda_transpose(y, x, c->type, &p, NULL), "transpose");
        call_bytes(c, "y", y, bytes);
    }
    device_narrow_elements = UINT32_MAX;
}

static void call_bias_heads(call *c)
{
    enum { BATCH = 2, HEADS = 3, ROWS = 5, PARTS = 3 };
    const size_t depth = c->columns, n = BATCH * HEADS * ROWS * depth, width = HEADS * depth;
    if (depth % 8) {
        c->is_unsuited = 1;
        return;
    }
    const tandem_cuda_permutation to = {{BATCH, HEADS, ROWS, depth}, {ROWS * width, depth, width, 1}};
    const tandem_cuda_permutation back = {{BATCH, ROWS, HEADS, depth},
                                          {ROWS * width, depth, ROWS * depth, 1}};
    const float *const own = call_numbers(c, TANDEM_CUDA_F32, width, 1);
    void *const workspace = call_array(c, PARTS * tandem_cuda_column_sum_workspace(BATCH * ROWS, width));
    tandem_cuda_bias_part biased[PARTS];
    tandem_cuda_sum_part summed[PARTS];
    for (int k = 0; k < PARTS; k++) {
        biased[k] =
            (tandem_cuda_bias_part){call_result_array(c, c->type, n), call_numbers(c, c->type, n, 2), own};
        summed[k] =
            (tandem_cuda_sum_part){call_result_array(c, c->type, n), call_array(c, 4 * width), biased[k].x};
    }
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        device_narrow_elements = is_wide ? 0 : UINT32_MAX;
        call_check(c, tandem_cuda_bias_transpose(biased, PARTS, c->type, width, &to, NULL), "bias_transpose");
        for (int k = 0; k < PARTS; k++) call_bytes(c, "biased", biased[k].y, n * call_size(c->type));
    }
    device_narrow_elements = UINT32_MAX;
    call_check(c, tandem_cuda_transpose_sum(summed, PARTS, c->type, &back, workspace, c->tickets, NULL),
               "transpose_sum");
    for (int k = 0; k < PARTS; k++) {
        call_bytes(c, "turned", summed[k].y, n * call_size(c->type));
        call_close_to(c, "sum", TANDEM_CUDA_F32, summed[k].sum, width);
    }
}

static void call_embedding(call *c)
{
    enum { WORDS = 11 };
    const size_t bytes = c->n * call_size(c->type);
    int32_t *const token = call_integers(c, c->rows, WORDS);
    for (size_t r = 0; r < c->rows; r++) token[r] = token[r] < 0 ? -token[r] % WORDS : token[r] % WORDS;
    const float *const table = call_numbers(c, TANDEM_CUDA_F32, WORDS * c->columns, 2);
    const void *const g = call_numbers(c, c->type, c->n, 2);
    uint32_t *const bad = call_copy(c, &(uint32_t){0}, 4);
    void *const y = call_result_array(c, c->type, c->n);
    call_check(c, tandem_cuda_embedding(y, table, c->type, token, c->rows, WORDS, c->columns, bad, NULL),
               "embedding");
    call_bytes(c, "y", y, bytes);
    call_bytes(c, "bad", bad, 4);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        float *const gradient = call_copy(c, table, 4 * WORDS * c->columns);
        call_check(c,
                   tandem_cuda_embedding_gradient(gradient, token, g, c->type, c->rows, WORDS, c->columns,
                                                  accumulate, NULL),
                   "gradient");
        call_bytes(c, "gradient", gradient, 4 * WORDS * c->columns);
    }
}

static void call_moved_rows(call *c)
{
    const size_t bytes = c->n * call_size(c->type), kept = 5;
    void *const x = call_numbers(c, c->type, c->n, 3);
    call_put_nans(x, c->type, c->n);
    const float *const row = call_numbers(c, TANDEM_CUDA_F32, c->columns, 1);
    for (long shift = -1; shift < 2; shift++) {
        void *const y = call_result_array(c, c->type, c->n);
        call_check(c,
                   tandem_cuda_shift_rows(y, x, c->type, shift ? row : NULL, 1, c->rows, c->rows, c->columns,
                                          shift, NULL),
                   "shift_rows");
        call_bytes(c, "shifted", y, bytes);
    }
    static const int32_t label[] = {3, -1, 4, -1, 7, 2, -1, -1, 5, 6, -1, -1};
    const int32_t *const labels = call_copy(c, label, sizeof label);
    int32_t *const index = call_array(c, 6 * sizeof *index);
    uint32_t *const bad = call_copy(c, &(uint32_t){0}, 4);
    call_check(c, tandem_cuda_label_indices(index, labels, 3, 4, 2, bad, NULL), "label_indices");
    call_bytes(c, "index", index, 6 * sizeof *index);
    void *const some = call_result_array(c, c->type, kept * c->columns), *const all = call_result_array(
                                                                             c, c->type, c->n);
    static const int32_t which[] = {3, 0, 7, 8, 1};
    const int32_t *const chosen = call_copy(c, which, sizeof which);
    call_check(c, tandem_cuda_gather_rows(some, x, c->type, chosen, kept, c->columns, NULL), "gather_rows");
    call_bytes(c, "gathered", some, kept * c->columns * call_size(c->type));
    call_check(c, tandem_cuda_scatter_rows(all, some, c->type, chosen, kept, c->rows, c->columns, NULL),
               "scatter_rows");
    call_bytes(c, "scattered", all, bytes);
}

static void call_pools(call *c)
{
    if (c->columns > 300) {
        c->is_unsuited = 1;
        return;
    }
    const tandem_cuda_pool pool = {2, 9, 7, (int)c->columns, 5, 4, 3, 3, 2, 1};
    const size_t n_in = 2 * 9 * 7 * c->columns, n_out = 2 * 5 * 4 * c->columns, size = call_size(c->type);
    const void *const x = call_numbers(c, c->type, n_in, 2), *const g = call_numbers(c, c->type, n_out, 2);
    void *const y = call_result_array(c, c->type, n_out), *const mean = call_result_array(c, c->type, n_out);
    uint8_t *const index = call_array(c, n_out);
    call_check(c, tandem_cuda_maxpool(y, index, x, c->type, &pool, NULL), "maxpool");
    call_bytes(c, "maxpool", y, n_out * size);
    call_bytes(c, "index", index, n_out);
    const tandem_cuda_pool inside = {2, 11, 9, (int)c->columns, 5, 4, 3, 3, 2, 0};
    const void *const larger = call_numbers(c, c->type, 2 * 11 * 9 * c->columns, 2);
    call_check(c, tandem_cuda_avgpool(mean, larger, c->type, &inside, NULL), "avgpool");
    call_close_to(c, "avgpool", c->type, mean, n_out);
    for (int is_mean = 0; is_mean < 2; is_mean++) {
        void *const gx = call_result_array(c, c->type, n_in);
        call_check(c, tandem_cuda_pool_backward(gx, g, is_mean ? NULL : index, c->type, &pool, NULL),
                   "backward");
        call_close_to(c, "gx", c->type, gx, n_in);
    }
}

static void call_images_as_columns(call *c)
{
    if (c->columns > 300) {
        c->is_unsuited = 1;
        return;
    }
    const tandem_cuda_pool pool = {2, 9, 7, (int)c->columns, 5, 4, 3, 3, 2, 1};
    const size_t n_in = 2 * 9 * 7 * c->columns, n_out = 2 * 5 * 4 * c->columns * 9, size = call_size(c->type);
    void *const x = call_numbers(c, TANDEM_CUDA_F32, n_in, 2);
    call_put_nans(x, TANDEM_CUDA_F32, n_in);
    for (size_t element = 1; element <= 4; element *= 2) {
        void *const columns = call_array(c, n_out * element);
        call_check(c, tandem_cuda_im2col(columns, x, element, &pool, NULL), "im2col");
        call_bytes(c, "columns", columns, n_out * element);
    }
    const float *const a = call_copy(c, &(float){0.01f}, 4), *const b = call_copy(c, &(float){0.003f}, 4);
    const float *const floats = call_numbers(c, TANDEM_CUDA_F32, n_out, 1);
    const int32_t *const integers = call_integers(c, n_out, 1000);
    void *const of_floats = call_result_array(c, c->type, n_in), *const of_integers =
                                                                     call_result_array(c, c->type, n_in);
    call_check(c, tandem_cuda_col2im_f32(of_floats, c->type, floats, 9 * c->columns, &pool, NULL),
               "col2im_f32");
    call_close_to(c, "of floats", c->type, of_floats, n_in);
    call_check(c, tandem_cuda_col2im_s32(of_integers, c->type, integers, 9 * c->columns, &pool, a, b, NULL),
               "col2im_s32");
    call_bytes(c, "of integers", of_integers, n_in * size);
}

/* Images of bytes, in two slots: made once. */
static void call_images(call *c)
{
    enum { BATCH = 3, SIDE = 5, TO = 7, SLOT = 4096, LABELS = 3072 };
    if (c->type != TANDEM_CUDA_F32 || c->columns > 64) {
        c->is_unsuited = 1;
        return;
    }
    const unsigned channels = c->columns > 3 ? 3 : 1;
    tandem_pixel_blend blend[TO];
    for (int k = 0; k < TO; k++)
        blend[k] = (tandem_pixel_blend){k * SIDE / TO, k * SIDE / TO + (k < TO - 2), 0.25f};
    for (int k = 0; k < TO; k++)
        if (blend[k].next >= SIDE) blend[k].next = SIDE - 1;
    const tandem_pixel_blend *const blends = call_copy(c, blend, sizeof blend);
    const tandem_image_slots slots = {.slots = (const uint8_t *)call_integers(c, 2 * SLOT / 4, 1e9),
                                      .slot_bytes = SLOT,
                                      .label_offset = LABELS,
                                      .micro_index = call_copy(c, &(uint32_t){1}, 4),
                                      .micro = 2,
                                      .height = SIDE,
                                      .width = SIDE,
                                      .channels = (int)channels,
                                      .mean = 0.4f,
                                      .deviation = 0.3f,
                                      .blend_of_row = blends,
                                      .blend_of_column = blends};
    float *const x = call_array(c, 4 * BATCH * TO * TO * channels);
    int32_t *const label = call_array(c, 4 * BATCH);
    call_check(c, tandem_cuda_images(x, BATCH, TO, TO, channels, &slots, NULL), "images");
    call_bytes(c, "x", x, 4 * BATCH * TO * TO * channels);
    call_check(c, tandem_cuda_image_labels(label, BATCH, &slots, NULL), "image_labels");
    call_bytes(c, "labels", label, 4 * BATCH);
}

const call_row calls_of_layouts[] = {{"transpose", call_transpose},
                                     {"heads", call_heads},
                                     {"bias_heads", call_bias_heads},
                                     {"embedding", call_embedding},
                                     {"moved_rows", call_moved_rows},
                                     {"pools", call_pools},
                                     {"images_as_columns", call_images_as_columns},
                                     {"images", call_images},
                                     {NULL, NULL}};
