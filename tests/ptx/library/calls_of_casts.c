/* calls_of_casts.c: quantise.cu, bytes.cu and weights.cu. */
#include "tests/ptx/library/calls.h"

#include <string.h>

enum { CALL_CODES = 3 };
static const tandem_rounding stochastic = {77, {5, 2, 3}, 3};

/* Every way to round to a code: to nearest, and, to s8, stochastically. */
static int n_rounding(int code) { return code == TANDEM_CUDA_S8 ? 2 : 1; }

static void quantise_one(call *c, const void *x, const uint32_t *amax, const uint32_t *offset, size_t rows,
                         size_t columns)
{
    const size_t n = rows * columns;
    for (int code = 0; code < CALL_CODES; code++)
        for (int way = 0; way < 2 * n_rounding(code); way++) {
            const int is_drawn = way / 2, has_copy = way % 2;
            uint8_t *const q = call_array(c, 2 * n);
            float *const scale = call_array(c, 4);
            const tandem_cuda_quantised to = {(tandem_cuda_code)code,  1,    rows, columns, q,
                                              has_copy ? q + n : NULL, scale};
            call_check(c,
                       tandem_cuda_quantise(&to, x, c->type, amax, is_drawn ? &stochastic : NULL,
                                            is_drawn ? offset : NULL, NULL),
                       "quantise");
            call_bytes(c, "codes", q, has_copy ? 2 * n : n);
            call_bytes(c, "scale", scale, 4);
        }
}

static void call_quantise(call *c)
{
    uint32_t *const amax = call_array(c, 4);
    const uint32_t *const offset = call_copy(c, &(uint32_t){11}, 4);
    const void *const x = call_numbers(c, c->type, c->n, 3);
    call_check(c, tandem_cuda_amax(amax, x, c->type, c->n, NULL), "amax");
    call_bytes(c, "amax", amax, 4);
    quantise_one(c, x, amax, offset, c->rows, c->columns);
    if (c->n % 4 == 0) return;
    call_check(c, tandem_cuda_set_word(amax, 0x3F800000u, NULL), "set_word");
    call_bytes(c, "word", amax, 4);
}

/* Sides in multiples of 16, whose transposed copy is made in the same pass. */
static void call_quantise_both(call *c)
{
    const size_t rows = 48, columns = (c->columns + 15) / 16 * 16;
    uint32_t *const amax = call_array(c, 4);
    const uint32_t *const offset = call_copy(c, &(uint32_t){11}, 4);
    const void *const x = call_numbers(c, c->type, rows * columns, 3);
    call_check(c, tandem_cuda_amax(amax, x, c->type, rows * columns, NULL), "amax");
    quantise_one(c, x, amax, offset, rows, columns);
}

/* Without a range, with one, with the range of the cast before, and without one again; the last two of two
 * launches. */
static void quantise_delayed_one(call *c, const void *x, int code, int way, size_t rows, size_t columns)
{
    const size_t n = rows * columns, bytes = tandem_amax_history_bytes(3);
    const int is_drawn = way / 2, has_copy = way % 2;
    tandem_amax_history empty;
    memset(&empty, 0, sizeof empty);
    call_check(c, (int)tandem_amax_history_init(&empty, 3, -1, NULL), "history");
    tandem_amax_history *const history[] = {call_copy(c, &empty, bytes), call_copy(c, &empty, bytes)};
    const uint32_t *const offset = call_copy(c, &(uint32_t){11}, 4);
    uint8_t *const q = call_array(c, 2 * n);
    float *const scale = call_array(c, 4);
    tandem_cuda_delayed_cast cast = {
        .to = {(tandem_cuda_code)code, 1, rows, columns, q, has_copy ? q + n : NULL, scale},
        .words = c->words,
        .rounding = is_drawn ? &stochastic : NULL,
        .stream_offset = is_drawn ? offset : NULL};
    for (int turn = 0; turn < CALL_TURNS; turn++) {
        cast.history = history[turn == 3];
        cast.reuse_range = turn == 2, cast.may_lack_range = turn > 1;
        call_check(c, tandem_cuda_quantise_delayed(&cast, x, c->type, NULL), "quantise_delayed");
        call_bytes(c, "codes", q, has_copy ? 2 * n : n);
        call_bytes(c, "scale", scale, 4);
        call_bytes(c, "history", cast.history, bytes);
    }
}

static void call_quantise_delayed(call *c)
{
    const size_t rows = 48, columns = (c->columns + 15) / 16 * 16;
    if (c->columns > 1100) c->is_unsuited = 1;
    const void *const x = call_numbers(c, c->type, rows * columns, 3);
    for (int code = 0; code < CALL_CODES && !c->is_unsuited; code++)
        for (int way = 0; way < 2 * n_rounding(code); way++)
            quantise_delayed_one(c, x, code, way, rows, columns);
}

static void call_quantise_rows(call *c)
{
    const void *const x = call_numbers(c, c->type, c->n, 3);
    const uint32_t *const offset = call_copy(c, &(uint32_t){11}, 4);
    for (int code = 0; code < CALL_CODES; code++)
        for (int way = 0; way < n_rounding(code); way++) {
            uint8_t *const q = call_array(c, c->n);
            float *const scale = call_array(c, 4 * c->rows);
            void *const back = call_result_array(c, c->type, c->n), *const flat =
                                                                        call_result_array(c, c->type, c->n);
            const tandem_cuda_code to = (tandem_cuda_code)code;
            call_check(c,
                       tandem_cuda_quantise_rows(q, to, scale, x, c->type, c->rows, c->columns,
                                                 way ? &stochastic : NULL, way ? offset : NULL, NULL),
                       "quantise_rows");
            call_bytes(c, "codes", q, c->n);
            call_bytes(c, "scales", scale, 4 * c->rows);
            call_check(c, tandem_cuda_dequantise_rows(back, c->type, q, to, c->rows, c->columns, scale, NULL),
                       "dequantise_rows");
            call_bytes(c, "back", back, c->n * call_size(c->type));
            call_check(c, tandem_cuda_dequantise(flat, c->type, q, to, c->n, scale, NULL), "dequantise");
            call_bytes(c, "flat", flat, c->n * call_size(c->type));
        }
}

/* From each type. NaNs keep their payloads, but for those of f16: a GPU converts these by an instruction
 * whose NaN is 0x7FFFFFFF. */
static void call_convert(call *c)
{
    for (int k = 0; k < 3; k++) {
        const tandem_cuda_float from = (tandem_cuda_float)k;
        void *const x = call_numbers(c, from, c->n, 3), *const y = call_result_array(c, c->type, c->n);
        void *const z = call_result_array(c, c->type, c->n);
        call_check(c, tandem_cuda_convert(y, c->type, x, from, c->n, NULL), "convert");
        call_bytes(c, "y", y, c->n * call_size(c->type));
        call_put_nans(x, from, c->n);
        call_check(c, tandem_cuda_convert(z, c->type, x, from, c->n, NULL), "convert");
        if (from == TANDEM_CUDA_F16)
            call_close_to(c, "with NaNs", c->type, z, c->n);
        else
            call_bytes(c, "with NaNs", z, c->n * call_size(c->type));
    }
}

static void call_scale_s32(call *c)
{
    const size_t size = c->n * call_size(c->type), wide = c->columns + 5;
    const int32_t *const x = call_integers(c, c->rows * wide, 1e6);
    float *const product = call_numbers(c, TANDEM_CUDA_F32, c->rows * wide, 3);
    float *const other = call_numbers(c, TANDEM_CUDA_F32, c->rows * wide, 3); /* cut, but not added to */
    call_put_nans(other, TANDEM_CUDA_F32, c->rows * wide);
    const float *const a = call_copy(c, &(float){0.01f}, 4), *const b = call_copy(c, &(float){0.003f}, 4);
    const float *const of_rows = call_numbers(c, TANDEM_CUDA_F32, c->rows, 1);
    const void *const before = call_numbers(c, c->type, c->n, 2);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        void *const y[] = {call_copy(c, before, size), call_copy(c, before, size), call_copy(c, before, size),
                           call_copy(c, before, size)};
        call_check(c,
                   tandem_cuda_scale_s32(y[0], c->type, x, 1, c->rows, c->columns, c->rows, c->columns, a, b,
                                         accumulate, NULL),
                   "scale_s32");
        call_check(c,
                   tandem_cuda_scale_s32(y[1], c->type, x, 1, c->rows, c->columns, c->rows, wide, a, b,
                                         accumulate, NULL),
                   "scale_s32 of wider rows");
        call_check(
            c,
            tandem_cuda_scale_rows_s32(y[2], c->type, x, c->rows, c->columns, of_rows, a, accumulate, NULL),
            "scale_rows_s32");
        call_check(c,
                   tandem_cuda_crop(y[3], c->type, accumulate ? product : other, 1, c->rows, c->columns,
                                    c->rows, wide, accumulate, NULL),
                   "crop");
        for (int k = 0; k < 4; k++) call_bytes(c, "y", y[k], size);
    }
}

static void call_copy_weights(call *c)
{
    if (c->type == TANDEM_CUDA_F32) {
        c->is_unsuited = 1;
        return;
    }
    float *const one = call_numbers(c, TANDEM_CUDA_F32, c->n, 2);
    float *const other = call_numbers(c, TANDEM_CUDA_F32, c->n, 2);
    call_put_nans(one, TANDEM_CUDA_F32, c->n);
    call_put_nans(other, TANDEM_CUDA_F32, c->n);
    void *const y[] = {call_result_array(c, c->type, c->n), call_result_array(c, c->type, c->n),
                       call_result_array(c, c->type, c->columns)};
    const tandem_cuda_weight_copy copy[] = {
        {one, y[0], c->n, (uint32_t)c->rows, 0}, {other, y[1], c->n, 0, 0}, {one, y[2], c->columns, 0, 0}};
    call_check(c, tandem_cuda_copy_weights(copy, 3, c->type, NULL), "copy_weights");
    for (int k = 0; k < 2; k++) call_bytes(c, "y", y[k], c->n * call_size(c->type));
    call_bytes(c, "short y", y[2], c->columns * call_size(c->type));
}

/* Bytes, which have no type: made once. */
static void call_pad_bytes(call *c)
{
    if (c->type != TANDEM_CUDA_F32) {
        c->is_unsuited = 1;
        return;
    }
    const size_t rows = (c->rows + 15) / 16 * 16, columns = (c->columns + 15) / 16 * 16;
    const void *const x = call_integers(c, (rows * columns + 3) / 4, 1e9);
    for (int turned = 0; turned < 2; turned++) {
        uint8_t *const padded = call_array(c, rows * columns), *const whole = call_array(c, rows * columns);
        call_check(c, tandem_cuda_pad_bytes(padded, x, 1, rows, columns, c->rows, c->columns, turned, NULL),
                   "pad");
        call_bytes(c, "padded", padded, rows * columns);
        call_check(c, tandem_cuda_pad_bytes(whole, x, 1, rows, columns, rows, columns, turned, NULL),
                   "whole");
        call_bytes(c, "whole", whole, rows * columns);
    }
}

const call_row calls_of_casts[] = {{"quantise", call_quantise},
                                   {"quantise_both", call_quantise_both},
                                   {"quantise_delayed", call_quantise_delayed},
                                   {"quantise_rows", call_quantise_rows},
                                   {"convert", call_convert},
                                   {"scale_s32", call_scale_s32},
                                   {"copy_weights", call_copy_weights},
                                   {"pad_bytes", call_pad_bytes},
                                   {NULL, NULL}};
