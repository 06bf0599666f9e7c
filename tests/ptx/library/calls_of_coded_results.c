/* calls_of_coded_results.c: coded_results.cu: the first cast has no range, the second one has, the third
 * takes the range of the one before, the fourth has none. The last two are of two launches. */
#include "tests/ptx/library/calls.h"

#include <string.h>

enum { CODED_ROWS = 48 };
static const tandem_rounding drawn_rounding = {77, {5, 2, 3}, 3};

static tandem_amax_history *empty_history(call *c)
{
    tandem_amax_history empty;
    memset(&empty, 0, sizeof empty);
    call_check(c, (int)tandem_amax_history_init(&empty, 3, -1, NULL), "history");
    return call_copy(c, &empty, tandem_amax_history_bytes(3));
}

/* The cast after a kernel: way % 2: with a transposed copy. */
static tandem_cuda_delayed_cast cast_of(call *c, int code, int way)
{
    const size_t n = CODED_ROWS * c->columns;
    uint8_t *const q = call_array(c, 2 * n);
    const int is_drawn = code == TANDEM_CUDA_S8 && way < 2;
    return (tandem_cuda_delayed_cast){.to = {(tandem_cuda_code)code, 1, CODED_ROWS, c->columns, q,
                                             way % 2 ? q + n : NULL, call_array(c, 4)},
                                      .history = empty_history(c),
                                      .words = c->words,
                                      .rounding = is_drawn ? &drawn_rounding : NULL,
                                      .stream_offset = call_copy(c, &(uint32_t){11}, 4)};
}

static void begin_turn(call *c, tandem_cuda_delayed_cast *cast, int turn)
{
    cast->reuse_range = turn == 2, cast->may_lack_range = turn > 1;
    if (turn == 3) cast->history = empty_history(c);
}

static void take_codes(call *c, const tandem_cuda_delayed_cast *cast)
{
    const size_t n = CODED_ROWS * c->columns;
    call_codes(c, "codes", cast->to.q, n);
    if (cast->to.transposed_copy) call_codes(c, "transposed codes", cast->to.transposed_copy, n);
    call_close_to(c, "scale", TANDEM_CUDA_F32, cast->to.scale, 1);
}

static int is_coded(call *c, size_t most)
{
    c->is_unsuited = c->type == TANDEM_CUDA_F16 || c->columns % 8 || c->columns > most;
    return !c->is_unsuited;
}

static void layernorm_coded_once(call *c, int code, int way)
{
    const size_t rows = CODED_ROWS, n = rows * c->columns;
    const void *const x = call_numbers(c, c->type, n, 3), *const residual = call_numbers(c, c->type, n, 2);
    const float *const scale = call_numbers(c, TANDEM_CUDA_F32, c->columns, 2);
    const float *const shift = call_numbers(c, TANDEM_CUDA_F32, c->columns, 1);
    void *const y = call_result_array(c, c->type, n), *const sum = call_result_array(c, c->type, n);
    float *const mean = call_array(c, 8 * rows);
    tandem_cuda_delayed_cast cast = cast_of(c, code, way);
    for (int turn = 0; turn < CALL_TURNS; turn++) {
        const tandem_cuda_residual with = {turn ? residual : NULL, turn ? shift : NULL, turn ? sum : NULL};
        begin_turn(c, &cast, turn);
        call_check(c,
                   tandem_cuda_layernorm_coded(&cast, turn == 1 ? y : NULL, &with, x, c->type, scale, shift,
                                               mean, mean + rows, rows, c->columns, 1e-5f, NULL),
                   "layernorm_coded");
        take_codes(c, &cast);
        call_close_to(c, "moments", TANDEM_CUDA_F32, mean, 2 * rows);
        if (turn == 1) call_close_to(c, "y", c->type, y, n);
    }
}

static void bias_gelu_coded_once(call *c, int code, int way)
{
    const size_t n = CODED_ROWS * c->columns;
    const void *const x = call_numbers(c, c->type, n, 3);
    const float *const own = call_numbers(c, TANDEM_CUDA_F32, c->columns, 1);
    void *const y = call_result_array(c, c->type, n);
    tandem_cuda_delayed_cast cast = cast_of(c, code, way);
    for (int turn = 0; turn < CALL_TURNS; turn++) {
        begin_turn(c, &cast, turn);
        call_check(
            c, tandem_cuda_bias_gelu_coded(&cast, turn == 1 ? y : NULL, x, c->type, own, n, c->columns, NULL),
            "bias_gelu_coded");
        take_codes(c, &cast);
        if (turn == 1) call_close_to(c, "y", c->type, y, n);
    }
}

/* Ways: drawn or to nearest, of s8; with a transposed copy where the sides allow one. */
static void call_layernorm_coded(call *c)
{
    if (!is_coded(c, TANDEM_CUDA_CODED_COLUMNS)) return;
    for (int code = 0; code < 2; code++)
        for (int way = 0; way < 2; way++)
            if (way % 2 == 0 || c->columns % 16 == 0) layernorm_coded_once(c, code, way);
}

static void call_bias_gelu_coded(call *c)
{
    if (!is_coded(c, 1300)) return;
    for (int code = 0; code < 2; code++)
        for (int way = 0; way < 2; way++)
            if (way % 2 == 0 || c->columns % 16 == 0) bias_gelu_coded_once(c, code, way);
}

const call_row calls_of_coded_results[] = {
    {"layernorm_coded", call_layernorm_coded}, {"bias_gelu_coded", call_bias_gelu_coded}, {NULL, NULL}};
