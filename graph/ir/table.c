/* table.c: the tables of dtypes, precisions and operators. */
#include "base/nearest.h"
#include "tandem/graph.h"

#include <assert.h>

/* block: numbers that share a scale of one byte; 0: none do. */
static const struct {
    const char *name;
    unsigned bits, block;
} dtypes[] = {
    [TANDEM_F32] = {"f32", 32, 0},     [TANDEM_BF16] = {"bf16", 16, 0},   [TANDEM_S8] = {"s8", 8, 0},
    [TANDEM_F16] = {"f16", 16, 0},     [TANDEM_E4M3] = {"e4m3", 8, 0},    [TANDEM_E5M2] = {"e5m2", 8, 0},
    [TANDEM_MXFP8] = {"mxfp8", 8, 32}, [TANDEM_NVFP4] = {"nvfp4", 4, 16}, [TANDEM_TF32] = {"tf32", 32, 0},
    [TANDEM_S32] = {"s32", 32, 0},     [TANDEM_AMP] = {"amp", 0, 0},      [TANDEM_SAME] = {"same", 0, 0},
};

const char *tandem_dtype_name(tandem_dtype dtype)
{
    assert((unsigned)dtype <= TANDEM_SAME);
    return dtypes[dtype].name;
}

uint64_t tandem_dtype_bytes(tandem_dtype dtype)
{
    assert((unsigned)dtype < TANDEM_AMP);
    return (dtypes[dtype].bits + 7) / 8;
}

uint64_t tandem_dtype_size(tandem_dtype dtype, uint64_t n)
{
    assert((unsigned)dtype < TANDEM_AMP);
    const unsigned bits = dtypes[dtype].bits, block = dtypes[dtype].block;
    const uint64_t bytes = bits < 8 ? n / 2 + n % 2 : n * (bits / 8);
    return bytes + (block ? n / block + (n % block != 0) : 0);
}

int tandem_dtype_is_in_blocks(tandem_dtype dtype) { return dtypes[dtype].block != 0; }

/* clang-format off */
static const tandem_precision_row precisions[TANDEM_N_PRECISION] = {
#define ROW(NAME, name, forward, dgrad, wgrad, other, accumulator, output, saved, product)                   \
    {#name, TANDEM_##forward, TANDEM_##dgrad, TANDEM_##wgrad, TANDEM_##other, TANDEM_##accumulator,          \
     TANDEM_##output, TANDEM_##saved, TANDEM_##product},
#include "tandem/precision.def"
#undef ROW
};
/* clang-format on */

const tandem_precision_row *tandem_precision_get(tandem_precision precision)
{
    assert((unsigned)precision < TANDEM_N_PRECISION);
    return &precisions[precision];
}

tandem_dtype tandem_precision_product_dtype(tandem_precision precision, tandem_dtype operand)
{
    const tandem_dtype product_dtype = tandem_precision_get(precision)->product_dtype;
    return product_dtype == TANDEM_SAME ? operand : product_dtype;
}

int tandem_precision_has_f16_gradient(tandem_precision precision, tandem_dtype amp_dtype)
{
    const tandem_precision_row *row = tandem_precision_get(precision);
    const tandem_dtype dgrad = row->dgrad == TANDEM_AMP ? amp_dtype : row->dgrad,
                       wgrad = row->wgrad == TANDEM_AMP ? amp_dtype : row->wgrad;
    return dgrad == TANDEM_F16 || wgrad == TANDEM_F16;
}

tandem_status tandem_precision_find(tandem_precision *precision, const char *name, tandem_error *error)
{
    tandem_hint hint;
    const int p =
        tandem_name_find(name, &precisions[0].name, TANDEM_N_PRECISION, sizeof precisions[0], &hint);
    if (p < 0)
        return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                                "there is no precision '%.40s'.%s `tandem list precisions` shows them.", name,
                                hint.text);
    *precision = (tandem_precision)p;
    return TANDEM_OK;
}

/* The sets of precisions that op.def names: bit p for row p of precision.def. */
enum {
#define ROW(NAME, ...) PRECISION_INDEX_##NAME,
#include "tandem/precision.def"
#undef ROW
    N_PRECISION_INDEX
};
enum {
    PRECISIONS_NONE = 0,
    PRECISIONS_ALL = (1 << N_PRECISION_INDEX) - 1,
    /* blocks along what a product sums: libraries have products of matrices alone */
    PRECISIONS_UNBLOCKED = PRECISIONS_ALL & ~(1 << PRECISION_INDEX_MXFP8 | 1 << PRECISION_INDEX_NVFP4),
    PRECISIONS_FLOATS = 1 << PRECISION_INDEX_FP32 | 1 << PRECISION_INDEX_FP16 | 1 << PRECISION_INDEX_BF16
};

/* clang-format off */
#define ROW(NAME, name, op_class, inputs, parameters, set, saves, dgrad, wgrad, range)                       \
    {#name, TANDEM_##op_class, inputs, parameters, PRECISIONS_##set, TANDEM_SAVES_##saves,                   \
     TANDEM_GRAD_##dgrad, TANDEM_GRAD_##wgrad, range},
#define TANDEM_BY_ROWS TANDEM_FIXED
#define TANDEM_SAVES_LOGITS TANDEM_SAVES_AUX
static const tandem_op_row ops[TANDEM_N_OP_KIND] = {
#include "tandem/op.def"
};
#undef TANDEM_BY_ROWS
#undef TANDEM_SAVES_LOGITS
#define TANDEM_BY_ROWS TANDEM_DEPENDENT
#define TANDEM_SAVES_LOGITS (TANDEM_SAVES_INPUT | TANDEM_SAVES_AUX)
static const tandem_op_row ops_with_narrow_rows[TANDEM_N_OP_KIND] = {
#include "tandem/op.def"
};
#undef TANDEM_BY_ROWS
#undef TANDEM_SAVES_LOGITS
#undef ROW

#define ROW(NAME, name, op_class, inputs, parameters, ...)                                                   \
    _Static_assert(inputs <= TANDEM_MAX_INPUT && parameters <= TANDEM_MAX_PARAMETER, #name " is too large");
#include "tandem/op.def"
#undef ROW
/* clang-format on */

const tandem_op_row *tandem_op_row_get(tandem_op_kind kind)
{
    assert((unsigned)kind < TANDEM_N_OP_KIND);
    return &ops[kind];
}

const tandem_op_row *tandem_op_row_on(tandem_op_kind kind, int narrow_rows)
{
    return narrow_rows ? &ops_with_narrow_rows[kind] : tandem_op_row_get(kind);
}

int tandem_optimizer_n_state(tandem_optimizer kind) { return kind == TANDEM_ADAMW ? 2 : 1; }
const char *tandem_optimizer_name(tandem_optimizer kind) { return kind == TANDEM_ADAMW ? "adamw" : "sgd"; }

int tandem_op_is_adjustable(const tandem_op *op)
{
    return tandem_op_row_get(op->kind)->op_class == TANDEM_ADJUSTABLE;
}
