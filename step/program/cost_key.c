/* cost_key.c: the key of a task's cost, in any of its variants. */
#include <stdio.h>
#include <string.h>

#include "step/program/dtypes.h"
#include "step/program/values.h"

static const char *dtype_as_precision(tandem_dtype dtype)
{
    return dtype == TANDEM_F32 ? "fp32" : dtype == TANDEM_BF16 ? "bf16" : "fp16";
}

static int cast_cost_key(const tandem_step *step, const tandem_task *task, int variant, tandem_cost_key *key)
{
    const int is_saved_cast = task->kind == TANDEM_TASK_SAVED_CAST;
    /* only saved casts read s8 */
    if (is_saved_cast != (variant >= SAVED_CAST_VARIANT) || variant >= SAVED_CAST_VARIANT + N_OUTPUT_DTYPE)
        return 0;
    const tandem_dtype from = is_saved_cast ? TANDEM_S8 : output_dtype_at(variant / TANDEM_N_STORAGE_DTYPE),
                       to = is_saved_cast ? output_dtype_at(variant - SAVED_CAST_VARIANT)
                                          : (tandem_dtype)(variant % TANDEM_N_STORAGE_DTYPE);
    if (from == to) return 0;
    if (to == (task->kind == TANDEM_TASK_GRADIENT_CAST ? TANDEM_E4M3 : TANDEM_E5M2)) return 0;
    if (task->kind == TANDEM_TASK_WEIGHT_CAST && from != TANDEM_F32) return 0;
    if ((task->kind == TANDEM_TASK_CAST || task->kind == TANDEM_TASK_GRADIENT_CAST) && to != task->to)
        return 0;
    *key = (tandem_cost_key){.kind = TANDEM_COST_CAST, .precision = "", .from = from, .to = to};
    const tandem_op *op = &step->graph->op[task->op];
    if (task->kind == TANDEM_TASK_WEIGHT_CAST)
        key->elements = step->graph->parameter[task->parameter].elements;
    else
        key->elements = step_stored_elements(step, is_saved_cast ? op->input[task->slot] : task->op);
    key->range_source = step_range_source(step, task, to);
    key->transposed_copy =
        !is_saved_cast && to != TANDEM_F32 && has_transposed_value(step, step_cast_value(step, task, to));
    return 1;
}

/* The operand dtype of one of the three products of an adjustable operator. */
static tandem_dtype product_operand_dtype(const tandem_step *step, const tandem_precision_row *row,
                                          tandem_pass pass)
{
    if (pass == TANDEM_PASS_FORWARD) return row->forward;
    return device_dtype(step, pass == TANDEM_PASS_DGRAD ? row->dgrad : row->wgrad);
}

/* Backward computes the gradients of q, k and v at once. */
static int attention_cost_key(const tandem_step *step, const tandem_task *task, int variant, tandem_pass pass,
                              tandem_cost_key *key)
{
    const tandem_precision precision = attention_variant_precision(variant);
    const tandem_precision_row *const row = tandem_precision_get(precision);
    const tandem_dtype to = output_dtype_at((variant - TANDEM_ATTENTION_VARIANT) % N_OUTPUT_DTYPE);
    if (attention_of(step, task->op) != task->op || pass == TANDEM_PASS_WGRAD ||
        !is_attention_precision(step, precision))
        return 0;
    if (pass == TANDEM_PASS_FORWARD && to != row->output) return 0;
    const tandem_attention a = step_attention_of(step->graph, task->op);
    *key = (tandem_cost_key){
        .kind = TANDEM_COST_OP, .pass = pass, .precision = row->name, .from = row->forward, .to = to};
    (void)snprintf(key->signature, sizeof key->signature,
                   "attention heads=%lld rows=%lld columns=%lld depth=%lld causal=%d dropout=%d",
                   (long long)a.heads, (long long)a.rows, (long long)a.columns, (long long)a.depth,
                   step->graph->op[a.softmax].causal, a.dropout >= 0);
    return 1;
}

static int operator_cost_key(const tandem_step *step, const tandem_task *task, int variant, tandem_pass pass,
                             tandem_cost_key *key)
{
    if (variant >= TANDEM_ATTENTION_VARIANT) return attention_cost_key(step, task, variant, pass, key);
    const tandem_op *op = &step->graph->op[task->op];
    const tandem_op_row *row = op_row_of(step, task->op);
    const tandem_dtype to = output_dtype_at(variant % N_OUTPUT_DTYPE);
    const tandem_precision_row *precision = NULL;
    if (row->op_class != TANDEM_ADJUSTABLE) {
        if (variant >= N_OUTPUT_DTYPE || (row->op_class != TANDEM_DEPENDENT && variant > 0)) return 0;
    } else {
        const int p = variant / N_OUTPUT_DTYPE;
        if (!(row->precisions & (1u << p))) return 0;
        precision = tandem_precision_get((tandem_precision)p);
        if (pass == TANDEM_PASS_FORWARD && to != precision->output) return 0;
        if (pass == TANDEM_PASS_WGRAD && row->n_parameter > 0 && to != TANDEM_F32) return 0;
    }
    *key = (tandem_cost_key){.kind = TANDEM_COST_OP, .pass = pass, .to = to};
    memcpy(key->signature, op->signature, sizeof key->signature);
    if (task->accumulate)
        strncat(key->signature, " accumulate=1", sizeof key->signature - strlen(key->signature) - 1);
    if (is_narrow_loss(step, task->op)) /* it writes no probabilities */
        strncat(key->signature, " saved=1", sizeof key->signature - strlen(key->signature) - 1);
    const int64_t padded = tandem_step_padded_row(step, task->op);
    const size_t used = strlen(key->signature);
    if (padded)
        (void)snprintf(key->signature + used, sizeof key->signature - used, " padded=%lld",
                       (long long)padded);
    key->precision = precision ? precision->name : dtype_as_precision(to);
    key->from = precision ? product_operand_dtype(step, precision, pass) : to;
    if (!precision &&
        (pass == TANDEM_PASS_WGRAD || (pass == TANDEM_PASS_FORWARD && is_narrow_loss(step, task->op))))
        key->to = TANDEM_F32;
    return 1;
}

static int accumulate_cost_key(const tandem_step *step, const tandem_task *task, int variant,
                               tandem_cost_key *key)
{
    const int is_weight = task->parameter >= 0; /* f32 always */
    if (variant > (is_weight ? 0 : N_OUTPUT_DTYPE - 1)) return 0;
    const tandem_op *op = &step->graph->op[task->op];
    *key = (tandem_cost_key){.kind = TANDEM_COST_OP, .pass = TANDEM_PASS_DGRAD};
    key->from = key->to = output_dtype_at(variant);
    key->precision = dtype_as_precision(key->to);
    (void)snprintf(key->signature, sizeof key->signature, "accumulate n=%lld",
                   (long long)(is_weight
                                   ? step->graph->parameter[task->parameter].elements
                                   : tandem_shape_elements(&step->graph->op[op->input[task->slot]].shape)));
    return 1;
}

static int bucket_cost_key(const tandem_step *step, const tandem_task *task, int variant,
                           tandem_cost_key *key)
{
    if (variant > 0) return 0;
    *key = (tandem_cost_key){.from = TANDEM_F32, .to = TANDEM_F32};
    key->elements = step->bucket[task->bucket].elements;
    key->precision = "fp32";
    key->pass = TANDEM_PASS_UPDATE;
    if (tandem_task_is_collective(task->kind)) {
        key->kind = TANDEM_COST_COLLECTIVE;
        (void)snprintf(key->signature, sizeof key->signature, "%s n=%lld", tandem_task_kind_name(task->kind),
                       (long long)key->elements);
        return 1;
    }
    key->kind = TANDEM_COST_OP;
    (void)snprintf(key->signature, sizeof key->signature, "%s n=%lld parameters=%d",
                   tandem_optimizer_name(step->graph->optimizer.kind),
                   (long long)tandem_step_shard(step, task->bucket).elements,
                   step->bucket[task->bucket].n_parameter);
    key->elements = 0;
    return 1;
}

static int norm_cost_key(const tandem_step *step, int variant, tandem_cost_key *key)
{
    int64_t elements = 0;
    if (variant > 0) return 0;
    for (int p = 0; p < step->graph->n_parameter; p++) elements += step->graph->parameter[p].elements;
    *key = (tandem_cost_key){.kind = TANDEM_COST_OP,
                             .precision = "fp32",
                             .pass = TANDEM_PASS_UPDATE,
                             .from = TANDEM_F32,
                             .to = TANDEM_F32};
    (void)snprintf(key->signature, sizeof key->signature, "norm n=%lld parameters=%d", (long long)elements,
                   step->graph->n_parameter);
    return 1;
}

int tandem_precision_variant(tandem_precision precision, tandem_dtype to)
{
    return N_OUTPUT_DTYPE * (int)precision + output_dtype_index(to);
}

uint64_t tandem_precision_variants(tandem_precision precision)
{
    return ((UINT64_C(1) << N_OUTPUT_DTYPE) - 1) << N_OUTPUT_DTYPE * (int)precision;
}

int tandem_step_is_product(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    return task->op >= 0 && tandem_op_is_adjustable(&step->graph->op[task->op]) &&
           (task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_DGRAD ||
            task->kind == TANDEM_TASK_WGRAD);
}

int tandem_step_cost_key(const tandem_step *step, int t, int variant, tandem_cost_key *key)
{
    const tandem_task *task = &step->task[t];
    /* each leaves *key unchanged where there is no such variant */
    switch (task->kind) {
    case TANDEM_TASK_WEIGHT_CAST:
    case TANDEM_TASK_CAST:
    case TANDEM_TASK_GRADIENT_CAST:
    case TANDEM_TASK_SAVED_CAST: return cast_cost_key(step, task, variant, key);
    case TANDEM_TASK_FORWARD: return operator_cost_key(step, task, variant, TANDEM_PASS_FORWARD, key);
    case TANDEM_TASK_DGRAD: return operator_cost_key(step, task, variant, TANDEM_PASS_DGRAD, key);
    case TANDEM_TASK_WGRAD: return operator_cost_key(step, task, variant, TANDEM_PASS_WGRAD, key);
    case TANDEM_TASK_ACCUMULATE: return accumulate_cost_key(step, task, variant, key);
    case TANDEM_TASK_NORM: return norm_cost_key(step, variant, key);
    case TANDEM_TASK_REDUCE:
    case TANDEM_TASK_SCATTER:
    case TANDEM_TASK_GATHER:
    case TANDEM_TASK_UPDATE: return bucket_cost_key(step, task, variant, key);
    default: return 0;
    }
}

/* Bit d: tensors can have dtype d in plans of these precisions. */
static unsigned storage_dtypes_of(const tandem_step *step, unsigned precisions)
{
    unsigned dtypes = 1u << TANDEM_F32;
    for (; precisions; precisions &= precisions - 1) {
        const tandem_precision_row *row = tandem_precision_get((tandem_precision)__builtin_ctz(precisions));
        dtypes |= 1u << row->forward | 1u << row->output | 1u << device_dtype(step, row->dgrad) |
                  1u << device_dtype(step, row->wgrad) | 1u << device_dtype(step, row->other_operand_dtype);
    }
    return dtypes;
}

static uint64_t cast_variants(const tandem_task *task, unsigned dtypes)
{
    uint64_t variants = 0;
    for (int d = 0; d < TANDEM_N_STORAGE_DTYPE; d++) {
        const tandem_dtype type = (tandem_dtype)d;
        const int is_output_dtype = output_dtype_at(output_dtype_index(type)) == type;
        if (!(dtypes >> d & 1)) continue;
        if (task->kind == TANDEM_TASK_WEIGHT_CAST) variants |= UINT64_C(1) << cast_variant(TANDEM_F32, type);
        if (task->kind == TANDEM_TASK_SAVED_CAST && is_output_dtype)
            variants |= UINT64_C(1) << cast_variant(TANDEM_S8, type);
        if (task->kind == TANDEM_TASK_CAST || task->kind == TANDEM_TASK_GRADIENT_CAST)
            if (is_output_dtype && dtypes >> task->to & 1)
                variants |= UINT64_C(1) << cast_variant(type, task->to);
    }
    return variants;
}

uint64_t tandem_step_variants(const tandem_step *step, int t, unsigned precisions)
{
    const tandem_task *task = &step->task[t];
    const unsigned dtypes = storage_dtypes_of(step, precisions);
    uint64_t output_dtypes = 0, variants = 0;
    for (int index = 0; index < N_OUTPUT_DTYPE; index++)
        output_dtypes |= (uint64_t)(dtypes >> output_dtype_at(index) & 1) << index;
    switch (task->kind) {
    case TANDEM_TASK_WEIGHT_CAST:
    case TANDEM_TASK_CAST:
    case TANDEM_TASK_GRADIENT_CAST:
    case TANDEM_TASK_SAVED_CAST: return cast_variants(task, dtypes);
    case TANDEM_TASK_FORWARD:
    case TANDEM_TASK_DGRAD:
    case TANDEM_TASK_WGRAD:
        if (op_row_of(step, task->op)->op_class != TANDEM_ADJUSTABLE) return output_dtypes;
        for (int p = 0; p < TANDEM_N_PRECISION; p++)
            if (precisions >> p & 1) variants |= output_dtypes << N_OUTPUT_DTYPE * p;
        for (int v = TANDEM_ATTENTION_VARIANT;
             v < TANDEM_MAX_VARIANT && attention_of(step, task->op) == task->op; v += N_OUTPUT_DTYPE) {
            const tandem_precision precision = attention_variant_precision(v);
            if (precisions >> precision & 1 && is_attention_precision(step, precision))
                variants |= output_dtypes << v;
        }
        return variants;
    case TANDEM_TASK_ACCUMULATE: return output_dtypes;
    default: return 1;
    }
}
