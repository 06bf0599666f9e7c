/* cuda_kernels.c: tandem/cuda_kernels.h: checks arguments on the host, because kernels report no errors. */
#include "tandem/cuda_kernels.h"

#include <inttypes.h>
#include <math.h>

#include "kernels/cuda/arguments.h"
#include "kernels/cuda/kernels.h"

static const int64_t max_blocks = (int64_t)1 << 32, max_elements = (int64_t)1 << 60;
enum { ALIGNMENT = 16, TILE_SIDE = 32 };

/* --- Arguments ------------------------------------------------------------------------------------------ */

tandem_status refuse_null(const char *what, const char *name, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_USAGE, "%s: %s is NULL", what, name);
}

tandem_status check_device_pointer(const char *what, const char *name, const void *at, unsigned alignment,
                                   tandem_error *error)
{
    if (!at) return refuse_null(what, name, error);
    if ((uintptr_t)at % alignment == 0) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE, "%s: %s lies at %p; its address is a multiple of %u", what,
                            name, at, alignment);
}

static tandem_status check_device_array(const char *what, const char *name, const void *at, int64_t n,
                                        tandem_error *error)
{
    return n ? check_device_pointer(what, name, at, ALIGNMENT, error) : TANDEM_OK;
}

static tandem_status check_float_dtype(const char *what, const char *name, tandem_cuda_float *type,
                                       tandem_dtype given, tandem_error *error)
{
    switch (given) {
    case TANDEM_F32: *type = TANDEM_CUDA_F32; return TANDEM_OK;
    case TANDEM_BF16: *type = TANDEM_CUDA_BF16; return TANDEM_OK;
    case TANDEM_F16: *type = TANDEM_CUDA_F16; return TANDEM_OK;
    default: break;
    }
    return tandem_error_set(error, TANDEM_USAGE, "%s: %s must be f32, bf16 or f16", what, name);
}

static tandem_status check_code_dtype(const char *what, const char *name, tandem_cuda_code *code,
                                      tandem_dtype given, tandem_error *error)
{
    switch (given) {
    case TANDEM_S8: *code = TANDEM_CUDA_S8; return TANDEM_OK;
    case TANDEM_E4M3: *code = TANDEM_CUDA_E4M3; return TANDEM_OK;
    case TANDEM_E5M2: *code = TANDEM_CUDA_E5M2; return TANDEM_OK;
    default: break;
    }
    return tandem_error_set(error, TANDEM_USAGE, "%s: %s must be s8, e4m3 or e5m2", what, name);
}

static tandem_status check_scale_mode(const char *what, tandem_scale_mode scale_mode, tandem_error *error)
{
    if ((unsigned)scale_mode <= TANDEM_SCALE_KNOWN) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE, "%s: scale_mode is %d; allowed: TENSOR, ROW, KNOWN", what,
                            (int)scale_mode);
}

/* *n = batch·rows·columns. */
static tandem_status check_element_count(const char *what, int64_t *n, int64_t batch, int64_t rows,
                                         int64_t columns, tandem_error *error)
{
    int64_t matrix, all_rows;
    if (batch >= 0 && rows >= 0 && columns >= 0 && !__builtin_mul_overflow(rows, columns, &matrix) &&
        !__builtin_mul_overflow(batch, matrix, n) && !__builtin_mul_overflow(batch, rows, &all_rows) &&
        *n <= max_elements)
        return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "%s: batch, rows and columns are %" PRId64 ", %" PRId64 " and %" PRId64
                            "; each is at least 0, and there are at most 2^60 elements",
                            what, batch, rows, columns);
}

/* Rows with a scale of their own: of each block of threads at most eight, and a launch has fewer than 2^31
 * blocks. */
static tandem_status check_row_count(const char *what, int64_t rows, tandem_error *error)
{
    if (rows <= INT32_MAX) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "%s: there are %" PRId64 " rows with a scale each; at most 2^31 - 1 are allowed",
                            what, rows);
}

static tandem_status launch_result(const char *what, int failed, tandem_error *error)
{
    if (!failed) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_NO_DEVICE, "%s: the launch failed: CUDA error %d, %s", what, failed,
                            tandem_cuda_error_text(failed));
}

/* --- amax ----------------------------------------------------------------------------------------------- */

tandem_status tandem_cuda_kernels_amax(float *amax, const void *x, tandem_dtype from, int64_t n,
                                       tandem_cuda_stream stream, tandem_error *error)
{
    static const char what[] = "amax";
    tandem_cuda_float type = TANDEM_CUDA_F32;
    tandem_status status = check_float_dtype(what, "from", &type, from, error);
    if (status == TANDEM_OK) status = check_element_count(what, &n, 1, 1, n, error);
    if (status == TANDEM_OK) status = check_device_array(what, "x", x, n, error);
    if (status == TANDEM_OK) status = check_device_pointer(what, "amax", amax, sizeof *amax, error);
    if (status != TANDEM_OK) return status;
    return launch_result(what, tandem_cuda_amax((uint32_t *)(void *)amax, x, type, (size_t)n, stream), error);
}

/* --- To types of a byte --------------------------------------------------------------------------------- */

static const char quantise_name[] = "quantise";

static tandem_status check_cuda_range(const tandem_cuda_quantise_call *call, tandem_error *error)
{
    if (call->history && call->scale_mode != TANDEM_SCALE_KNOWN)
        return tandem_error_set(error, TANDEM_USAGE, "%s: history goes with TANDEM_SCALE_KNOWN alone",
                                quantise_name);
    if (call->reuse_range && !call->history)
        return tandem_error_set(error, TANDEM_USAGE, "%s: reuse_range needs a history", quantise_name);
    if (call->scale_mode == TANDEM_SCALE_KNOWN && !call->history &&
        !(call->range >= 0 && isfinite(call->range)))
        return tandem_error_set(error, TANDEM_USAGE, "%s: range is %g; it is finite and at least 0",
                                quantise_name, (double)call->range);
    return call->history ? check_device_pointer(quantise_name, "history", call->history,
                                                _Alignof(tandem_amax_history), error)
                         : TANDEM_OK;
}

static tandem_status check_random_blocks(const tandem_cuda_quantise_call *call, int64_t n,
                                         tandem_error *error)
{
    const int64_t rows = call->scale_mode == TANDEM_SCALE_ROW ? call->batch * call->rows : 1,
                  columns = call->scale_mode == TANDEM_SCALE_ROW ? call->columns : n;
    const int64_t blocks = columns / 8 + (columns % 8 > 0);
    if (rows == 0 || blocks <= (max_blocks - call->rounding->block) / rows) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "%s: %" PRId64 " elements from rounding's block %" PRIu32 " on need more than "
                            "2^32 blocks of random numbers; use another stream for a part of them",
                            quantise_name, n, call->rounding->block);
}

/* Tiles of the slowest way to transpose, a block each. */
static tandem_status check_transposed_copy(const tandem_cuda_quantise_call *call, int64_t n,
                                           tandem_error *error)
{
    if (call->scale_mode == TANDEM_SCALE_ROW)
        return tandem_error_set(error, TANDEM_USAGE, "%s: transposed is not made with TANDEM_SCALE_ROW",
                                quantise_name);
    const int64_t tiles = (call->rows / TILE_SIDE + 1) * (call->columns / TILE_SIDE + 1);
    if (n && tiles > INT32_MAX / call->batch)
        return tandem_error_set(error, TANDEM_USAGE, "%s: transposed would need 2^31 tiles of %d x %d; cut x",
                                quantise_name, TILE_SIDE, TILE_SIDE);
    return check_device_array(quantise_name, "transposed", call->transposed, n, error);
}

static tandem_status check_cuda_quantise(const tandem_cuda_quantise_call *call, int64_t *n,
                                         tandem_error *error)
{
    const int by_row = call->scale_mode == TANDEM_SCALE_ROW;
    tandem_status status =
        check_element_count(quantise_name, n, call->batch, call->rows, call->columns, error);
    if (status == TANDEM_OK) status = check_scale_mode(quantise_name, call->scale_mode, error);
    if (status == TANDEM_OK) status = check_device_array(quantise_name, "x", call->x, *n, error);
    if (status == TANDEM_OK) status = check_device_array(quantise_name, "q", call->q, *n, error);
    if (status == TANDEM_OK && call->transposed) status = check_transposed_copy(call, *n, error);
    if (status == TANDEM_OK && by_row)
        status = check_row_count(quantise_name, call->batch * call->rows, error);
    if (status == TANDEM_OK) status = check_cuda_range(call, error);
    if (status == TANDEM_OK && call->stream_offset)
        status = check_device_pointer(quantise_name, "stream_offset", call->stream_offset,
                                      sizeof *call->stream_offset, error);
    if (status == TANDEM_OK)
        status = check_device_pointer(quantise_name, "scale", call->scale, sizeof *call->scale, error);
    if (status == TANDEM_OK && !by_row)
        status =
            check_device_pointer(quantise_name, "workspace", call->workspace, sizeof *call->workspace, error);
    if (status == TANDEM_OK && call->rounding && call->to == TANDEM_S8)
        status = check_random_blocks(call, *n, error);
    return status;
}

/* One scale for all. */
static int launch_quantise_tensor(const tandem_cuda_quantise_call *call, const tandem_cuda_quantised *to,
                                  tandem_cuda_float from, size_t n, tandem_cuda_stream stream)
{
    const int uncleared = call->history ? tandem_cuda_clear_words(call->workspace, 2, stream) : 0;
    if (uncleared) return uncleared;
    if (call->history) {
        const tandem_cuda_delayed_cast cast = {.to = *to,
                                               .history = call->history,
                                               .reuse_range = call->reuse_range,
                                               .words = call->workspace,
                                               .rounding = call->rounding,
                                               .stream_offset = call->stream_offset};
        return tandem_cuda_quantise_delayed(&cast, call->x, from, stream);
    }
    const int failed = call->scale_mode == TANDEM_SCALE_KNOWN
                           ? tandem_cuda_set_word(call->workspace, tandem_bits_of(call->range), stream)
                           : tandem_cuda_amax(call->workspace, call->x, from, n, stream);
    return failed ? failed
                  : tandem_cuda_quantise(to, call->x, from, call->workspace, call->rounding,
                                         call->stream_offset, stream);
}

tandem_status tandem_cuda_kernels_quantise(const tandem_cuda_quantise_call *given, tandem_cuda_stream stream,
                                           tandem_error *error)
{
    if (!given) return refuse_null(quantise_name, "the call", error);
    tandem_cuda_quantise_call call = *given;
    if (call.batch == 0) call.batch = 1;
    tandem_cuda_float from = TANDEM_CUDA_F32;
    tandem_cuda_code code = TANDEM_CUDA_S8;
    int64_t n = 0;
    tandem_status status = check_float_dtype(quantise_name, "from", &from, call.from, error);
    if (status == TANDEM_OK) status = check_code_dtype(quantise_name, "to", &code, call.to, error);
    if (status == TANDEM_OK) status = check_cuda_quantise(&call, &n, error);
    if (status != TANDEM_OK) return status;
    const size_t rows = (size_t)call.rows, columns = (size_t)call.columns, batch = (size_t)call.batch;
    const tandem_cuda_quantised to = {code,      batch, rows, columns, call.q, n ? call.transposed : NULL,
                                      call.scale};
    if (call.scale_mode != TANDEM_SCALE_ROW)
        return launch_result(quantise_name, launch_quantise_tensor(&call, &to, from, (size_t)n, stream),
                             error);
    if (batch * rows == 0) return TANDEM_OK;
    return launch_result(quantise_name,
                         tandem_cuda_quantise_rows(call.q, code, call.scale, call.x, from, batch * rows,
                                                   columns, call.rounding, call.stream_offset, stream),
                         error);
}

/* --- Back, and between floats --------------------------------------------------------------------------- */

tandem_status tandem_cuda_kernels_dequantise(const tandem_cuda_dequantise_call *call,
                                             tandem_cuda_stream stream, tandem_error *error)
{
    static const char what[] = "dequantise";
    if (!call) return refuse_null(what, "the call", error);
    tandem_cuda_float to = TANDEM_CUDA_F32;
    tandem_cuda_code from = TANDEM_CUDA_S8;
    int64_t n = 0;
    const int by_row = call->scale_mode == TANDEM_SCALE_ROW;
    tandem_status status = check_code_dtype(what, "from", &from, call->from, error);
    if (status == TANDEM_OK) status = check_float_dtype(what, "to", &to, call->to, error);
    if (status == TANDEM_OK) status = check_element_count(what, &n, 1, call->rows, call->columns, error);
    if (status == TANDEM_OK) status = check_scale_mode(what, call->scale_mode, error);
    if (status == TANDEM_OK && by_row) status = check_row_count(what, call->rows, error);
    if (status == TANDEM_OK) status = check_device_array(what, "q", call->q, n, error);
    if (status == TANDEM_OK) status = check_device_array(what, "x", call->x, n, error);
    if (status == TANDEM_OK)
        status = check_device_pointer(what, "scale", call->scale, sizeof *call->scale, error);
    if (status != TANDEM_OK || n == 0) return status;
    return launch_result(
        what,
        by_row ? tandem_cuda_dequantise_rows(call->x, to, call->q, from, (size_t)call->rows,
                                             (size_t)call->columns, call->scale, stream)
               : tandem_cuda_dequantise(call->x, to, call->q, from, (size_t)n, call->scale, stream),
        error);
}

tandem_status tandem_cuda_kernels_cast(void *y, tandem_dtype to, const void *x, tandem_dtype from, int64_t n,
                                       tandem_cuda_stream stream, tandem_error *error)
{
    static const char what[] = "cast";
    tandem_cuda_float in = TANDEM_CUDA_F32, out = TANDEM_CUDA_F32;
    tandem_status status = check_float_dtype(what, "from", &in, from, error);
    if (status == TANDEM_OK) status = check_float_dtype(what, "to", &out, to, error);
    if (status == TANDEM_OK && in == out)
        status = tandem_error_set(error, TANDEM_USAGE, "%s: to is the same type as from", what);
    if (status == TANDEM_OK) status = check_element_count(what, &n, 1, 1, n, error);
    if (status == TANDEM_OK) status = check_device_array(what, "x", x, n, error);
    if (status == TANDEM_OK) status = check_device_array(what, "y", y, n, error);
    if (status != TANDEM_OK || n == 0) return status;
    return launch_result(what, tandem_cuda_convert(y, out, x, in, (size_t)n, stream), error);
}

/* --- After an int8 product ------------------------------------------------------------------------------ */

tandem_status tandem_cuda_kernels_scale_sums(const tandem_cuda_sums_call *call, tandem_cuda_stream stream,
                                             tandem_error *error)
{
    static const char what[] = "scale_sums";
    if (!call) return refuse_null(what, "the call", error);
    tandem_cuda_float to = TANDEM_CUDA_F32;
    int64_t n = 0;
    const int by_row = call->scale_mode == TANDEM_SCALE_ROW;
    tandem_status status = check_float_dtype(what, "to", &to, call->to, error);
    if (status == TANDEM_OK) status = check_element_count(what, &n, 1, call->rows, call->columns, error);
    if (status == TANDEM_OK) status = check_scale_mode(what, call->scale_mode, error);
    if (status == TANDEM_OK && by_row) status = check_row_count(what, call->rows, error);
    if (status == TANDEM_OK) status = check_device_array(what, "sums", call->sums, n, error);
    if (status == TANDEM_OK) status = check_device_array(what, "y", call->y, n, error);
    if (status == TANDEM_OK)
        status = check_device_pointer(what, "a_scale", call->a_scale, sizeof *call->a_scale, error);
    if (status == TANDEM_OK)
        status = check_device_pointer(what, "b_scale", call->b_scale, sizeof *call->b_scale, error);
    if (status != TANDEM_OK || n == 0) return status;
    const size_t rows = (size_t)call->rows, columns = (size_t)call->columns;
    return launch_result(
        what,
        by_row ? tandem_cuda_scale_rows_s32(call->y, to, call->sums, rows, columns, call->a_scale,
                                            call->b_scale, call->accumulate, stream)
               : tandem_cuda_scale_s32(call->y, to, call->sums, 1, rows, columns, rows, columns,
                                       call->a_scale, call->b_scale, call->accumulate, stream),
        error);
}
