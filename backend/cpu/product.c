/* product.c: matrix products by oneDNN's matmul, or by tandem's own int8 kernel where oneDNN saturates or is
 * slower. */
#include "backend/cpu/product.h"

#include <stdlib.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/team.h"

/* 127² · k must stay below 2^31. */
static const int64_t max_exact_k = 1 << 17;

static dnnl_memory_desc_t product_matrices(tandem_dtype dtype, int64_t batch, int64_t rows, int64_t columns,
                                           int transposed)
{
    dnnl_memory_desc_t layout;
    const int64_t row = transposed ? 1 : columns, column = transposed ? rows : 1;
    if (batch == 1)
        dnnl_memory_desc_init_by_strides(&layout, 2, (dnnl_dims_t){rows, columns}, cpu_dnnl_type(dtype),
                                         (dnnl_dims_t){row, column});
    else
        dnnl_memory_desc_init_by_strides(&layout, 3, (dnnl_dims_t){batch, rows, columns},
                                         cpu_dnnl_type(dtype), (dnnl_dims_t){rows * columns, row, column});
    return layout;
}

/* Returns 0 without memory. */
static int append_sum_post_op(dnnl_primitive_attr_t attributes)
{
    dnnl_post_ops_t epilogue = NULL;
    const int is_set = dnnl_post_ops_create(&epilogue) == dnnl_success &&
                       dnnl_post_ops_append_sum(epilogue, 1) == dnnl_success &&
                       dnnl_primitive_attr_set_post_ops(attributes, epilogue) == dnnl_success;
    if (epilogue) dnnl_post_ops_destroy(epilogue);
    return is_set;
}

/* Where B is as it is stored, oneDNN's first choice with AVX-512 (brgemm, in 2.6) reads it in place, row by
 * row, and lines that are 4 KiB apart evict each other. Its gemm packs B. With an Intel Xeon, one thread:
 * (788, 768)·(768, 3072) 48 ms and 22 ms, (76, 30522)·(30522, 768) 39 and 24; with B transposed both pack
 * it, and are within a tenth. Small products are faster in place. gemm takes its copies from malloc. */
static int wants_packed_b(const cpu_product_spec *s)
{
    return s->from == TANDEM_F32 && s->batch == 1 && !s->transpose_b && s->k >= 256 && s->n >= 256 &&
           (s->m >= 256 || (s->m >= 64 && s->k >= 4096));
}

static tandem_status open_onednn_matmul(cpu_product *product, const tandem_kernel *kernel,
                                        tandem_error *error)
{
    const cpu_product_spec *s = &product->spec;
    const dnnl_memory_desc_t a = product_matrices(s->from, s->batch, s->m, s->k, s->transpose_a);
    const dnnl_memory_desc_t b = product_matrices(s->from, s->batch, s->k, s->n, s->transpose_b);
    const dnnl_memory_desc_t c =
        product_matrices(product->is_narrowed ? TANDEM_F32 : s->to, s->batch, s->m, s->n, 0);
    dnnl_matmul_desc_t operation;
    dnnl_primitive_attr_t attributes = NULL;
    if (dnnl_matmul_desc_init(&operation, &a, &b, NULL, &c) != dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no product of these shapes", error);
    if (dnnl_primitive_attr_create(&attributes) != dnnl_success) return cpu_kernel_no_memory(kernel, error);
    const int scaled = s->from == TANDEM_S8;
    const float when_it_runs = DNNL_RUNTIME_F32_VAL;
    dnnl_primitive_desc_t description = NULL;
    tandem_status status = TANDEM_OK;
    if ((scaled && dnnl_primitive_attr_set_output_scales(attributes, 1, 0, &when_it_runs) != dnnl_success) ||
        (s->accumulate && !product->is_narrowed && !append_sum_post_op(attributes)))
        status = cpu_kernel_no_memory(kernel, error);
    if (status == TANDEM_OK)
        status = wants_packed_b(s)
                     ? cpu_primitive_describe_by(&description, kernel, &operation, attributes, "gemm", error)
                     : cpu_primitive_describe(&description, kernel, &operation, attributes, NULL, error);
    dnnl_primitive_attr_destroy(attributes);
    if (status != TANDEM_OK) return status;
    const int argument[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_ATTR_OUTPUT_SCALES};
    return cpu_primitive_open(&product->primitive, kernel, description, scaled ? 4 : 3, argument, error);
}

/* --- tandem's own kernels ------------------------------------------------------------------------------- */

/* s8 products where oneDNN's are not exact or are slower; and with tiles those of bf16 whose A is transposed,
 * a weight's gradient (measured on 3072x768x512: 2.6 ms, oneDNN 3.1). */
static int is_own_product(const tandem_isa_kernels *isa, const cpu_product_spec *s)
{
    if (s->from == TANDEM_S8) return !isa->uses_onednn_int8 || isa->has_tiles;
    return s->from == TANDEM_BF16 && s->to == TANDEM_F32 && s->batch == 1 && s->transpose_a && isa->has_tiles;
}

static uint64_t own_workspace(const tandem_isa_kernels *isa, const cpu_product_spec *s)
{
    return s->from == TANDEM_S8 ? isa->gemm_s8_workspace(s->m, s->n, s->k)
                                : isa->gemm_bf16_workspace(s->m, s->n, s->k);
}

/* Several products are divided among threads as wholes, each with a workspace of its own; one is divided
 * itself (backend/cpu/isa/team.c). */
static int64_t gemm_parts(const cpu_device *device, int64_t batch)
{
    const int64_t n = device->n_core;
    return batch < n ? (batch > 1 ? batch : 1) : n;
}

static uint64_t gemm_workspace(const cpu_device *device, const cpu_product_spec *s)
{
    if (s->batch == 1) return own_workspace(device->isa, s);
    const uint64_t of_one = own_workspace(device->one_thread, s);
    return device->n_core == 1 ? of_one : (of_one + 63) / 64 * 64 * (uint64_t)gemm_parts(device, s->batch);
}

tandem_status cpu_product_open(cpu_product *out, const tandem_kernel *kernel, const cpu_product_spec *spec,
                               tandem_error *error)
{
    const tandem_isa_kernels *isa = kernel->device->isa;
    cpu_product product = {.spec = *spec};
    if (!cpu_is_float(spec->to))
        return cpu_kernel_refuse(kernel, "products are written in f32 or bf16", error);
    if (spec->from == TANDEM_S8 && spec->k > max_exact_k)
        return cpu_kernel_refuse(kernel, "an int8 sum of more than 131072 products can overflow", error);
    uint64_t end = 0;
    if (is_own_product(isa, spec)) {
        cpu_workspace_reserve(&end, gemm_workspace(kernel->device, spec));
    } else {
        product.is_narrowed = spec->to == TANDEM_BF16 && spec->from != TANDEM_BF16;
        const tandem_status status = open_onednn_matmul(&product, kernel, error);
        if (status != TANDEM_OK) return status;
        cpu_workspace_reserve(&end, product.primitive.scratchpad_bytes);
        if (product.is_narrowed)
            product.result_offset =
                cpu_workspace_reserve(&end, (uint64_t)(spec->batch * spec->m * spec->n) * sizeof(float));
    }
    product.workspace_bytes = end;
    *out = product;
    return TANDEM_OK;
}

void cpu_product_close(cpu_product *product)
{
    cpu_primitive_close(&product->primitive);
    *product = (cpu_product){0};
}

typedef struct gemm_batch {
    const tandem_isa_kernels *isa;
    const cpu_product_spec *spec;
    const char *a, *b;
    char *c;
    float scale;
    char *workspace;
    int64_t n_part;
    uint64_t of_part; /* bytes of workspace */
} gemm_batch;

static void multiply_s8(const gemm_batch *of, const void *a, const void *b, void *c, void *workspace)
{
    const cpu_product_spec *s = of->spec;
    const tandem_product_s8 gemm = {.m = s->m,
                                    .n = s->n,
                                    .k = s->k,
                                    .a_row = s->transpose_a ? 1 : s->k,
                                    .a_column = s->transpose_a ? s->m : 1,
                                    .b_row = s->transpose_b ? 1 : s->n,
                                    .b_column = s->transpose_b ? s->k : 1,
                                    .c_row = s->n,
                                    .c_type = s->to,
                                    .scale = of->scale,
                                    .workspace = workspace,
                                    .accumulate = s->accumulate,
                                    .a = a,
                                    .b = b,
                                    .c = c};
    of->isa->gemm_s8(&gemm);
}

static void multiply_bf16(const gemm_batch *of, const void *a, const void *b, void *c, void *workspace)
{
    const cpu_product_spec *s = of->spec;
    const tandem_product_bf16 gemm = {.m = s->m,
                                      .n = s->n,
                                      .k = s->k,
                                      .a_row = s->transpose_a ? 1 : s->k,
                                      .a_column = s->transpose_a ? s->m : 1,
                                      .b_row = s->transpose_b ? 1 : s->n,
                                      .b_column = s->transpose_b ? s->k : 1,
                                      .c_row = s->n,
                                      .workspace = workspace,
                                      .accumulate = s->accumulate,
                                      .a = a,
                                      .b = b,
                                      .c = c};
    of->isa->gemm_bf16(&gemm);
}

static void run_gemm_parts(void *context, int64_t begin, int64_t end)
{
    const gemm_batch *of = context;
    const cpu_product_spec *s = of->spec;
    const int64_t element = (int64_t)tandem_dtype_bytes(s->from), result = (int64_t)tandem_dtype_bytes(s->to);
    for (int64_t part = begin; part < end; part++) {
        void *const workspace = of->workspace + (uint64_t)part * of->of_part;
        for (int64_t i = s->batch * part / of->n_part; i < s->batch * (part + 1) / of->n_part; i++)
            (s->from == TANDEM_S8 ? multiply_s8 : multiply_bf16)(of, of->a + i * s->m * s->k * element,
                                                                 of->b + i * s->k * s->n * element,
                                                                 of->c + i * s->m * s->n * result, workspace);
    }
}

static void run_own_product(const cpu_product *product, const cpu_device *device, const void *a,
                            const void *b, void *c, float scale, void *workspace)
{
    const cpu_product_spec *s = &product->spec;
    const int64_t n_part = s->batch == 1 ? 1 : gemm_parts(device, s->batch);
    gemm_batch of = {.isa = s->batch == 1 ? device->isa : device->one_thread,
                     .spec = s,
                     .a = a,
                     .b = b,
                     .c = c,
                     .scale = scale,
                     .workspace = workspace,
                     .n_part = n_part,
                     .of_part = gemm_workspace(device, s) / (uint64_t)n_part};
    cpu_for(n_part, 1, run_gemm_parts, &of);
}

tandem_status cpu_product_run(const cpu_product *product, const tandem_kernel *kernel, const void *a,
                              const void *b, void *c, float scale, void *workspace, tandem_error *error)
{
    const cpu_product_spec *s = &product->spec;
    const tandem_isa_kernels *isa = kernel->device->isa;
    if (!product->primitive.primitive) {
        run_own_product(product, kernel->device, a, b, c, scale, workspace);
        return TANDEM_OK;
    }
    void *const result = product->is_narrowed ? cpu_workspace_at(workspace, product->result_offset) : c;
    const tandem_status status = cpu_primitive_run(
        &product->primitive, kernel, (const void *const[]){a, b, result, &scale}, workspace, error);
    if (status == TANDEM_OK && product->is_narrowed)
        (s->accumulate ? isa->add_f32_to_bf16 : isa->bf16_from_f32)(c, result,
                                                                    (size_t)(s->batch * s->m * s->n));
    return status;
}

static tandem_status cpu_product_kernel_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                            tandem_error *error)
{
    const cpu_product *product = kernel->state;
    const int first = product->spec.swap_operands ? 1 : 0;
    return cpu_product_run(product, kernel, call->in[first], call->in[1 - first], call->out[0],
                           cpu_product_scale(call), call->workspace, error);
}

static void destroy_product_state(void *state)
{
    cpu_product_close(state);
    free(state);
}

tandem_status cpu_product_prepare(tandem_kernel *kernel, const cpu_product_spec *spec, tandem_error *error)
{
    cpu_product *product = calloc(1, sizeof *product);
    if (!product) return cpu_kernel_no_memory(kernel, error);
    const tandem_status status = cpu_product_open(product, kernel, spec, error);
    if (status != TANDEM_OK) {
        free(product);
        return status;
    }
    kernel->workspace_bytes = product->workspace_bytes;
    kernel->state = product;
    kernel->destroy = destroy_product_state;
    kernel->run = cpu_product_kernel_run;
    return TANDEM_OK;
}
