/* cublaslt.c: matrix products. cuBLASLt's matrices are column-major, so a row-major C = A·B is computed as Cᵀ
 * = Bᵀ·Aᵀ: the same memory, with the operands swapped. */
#include <string.h>

#include "backend/cuda/libraries.h"

/* The memory plan's alignment of tensors; the workspace that NVIDIA recommends for its largest GPUs. */
enum { MAX_WORKSPACE = 32 << 20, ALIGNMENT = 64 };
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == CUDA_ALGORITHM_WORDS * sizeof(uint64_t),
               "an algorithm's words");

typedef struct lt_product {
    cuda_work work; /* first */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, result; /* B, A and C, as columns */
    int is_integer, is_scaled;
    float beta; /* of floats: the factor of the old C */
} lt_product;

static const cudaDataType_t lt_types[CUDA_N_TYPE] = {
    [CUDA_TYPE_F32] = CUDA_R_32F,      [CUDA_TYPE_BF16] = CUDA_R_16BF,    [CUDA_TYPE_F16] = CUDA_R_16F,
    [CUDA_TYPE_E4M3] = CUDA_R_8F_E4M3, [CUDA_TYPE_E5M2] = CUDA_R_8F_E5M2, [CUDA_TYPE_S8] = CUDA_R_8I,
    [CUDA_TYPE_S32] = CUDA_R_32I,
};

static void close_lt_product(cuda_work *work)
{
    lt_product *p = (lt_product *)work;
    if (p->result) (void)cublasLtMatrixLayoutDestroy(p->result);
    if (p->second) (void)cublasLtMatrixLayoutDestroy(p->second);
    if (p->first) (void)cublasLtMatrixLayoutDestroy(p->first);
    if (p->operation) (void)cublasLtMatmulDescDestroy(p->operation);
    free(p);
}

/* A row-major matrix, `batch` times. */
typedef struct lt_matrix {
    cuda_type type;
    int64_t rows, columns;
    int64_t row;   /* elements from one row to the next; 0: there are no gaps */
    int64_t apart; /* elements from one matrix to the next */
    int64_t batch;
} lt_matrix;

static cublasStatus_t create_lt_layout(cublasLtMatrixLayout_t *layout, const lt_matrix *m)
{
    const int32_t n = (int32_t)m->batch;
    cublasStatus_t status = cublasLtMatrixLayoutCreate(layout, lt_types[m->type], (uint64_t)m->columns,
                                                       (uint64_t)m->rows, m->row ? m->row : m->columns);
    if (status == CUBLAS_STATUS_SUCCESS && n > 1)
        status = cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
    if (status == CUBLAS_STATUS_SUCCESS && n > 1)
        status = cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &m->apart, sizeof m->apart);
    return status;
}

static cublasStatus_t set_lt_attribute(const lt_product *p, cublasLtMatmulDescAttributes_t attribute,
                                       const void *value, size_t size)
{
    return cublasLtMatmulDescSetAttribute(p->operation, attribute, value, size);
}

/* A product of scaled operands takes pointers to their scales, which differ per run. */
static cublasStatus_t set_lt_scales(const lt_product *p, const float *scale_a, const float *scale_b)
{
    cublasStatus_t status =
        set_lt_attribute(p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, (const void *)&scale_b, sizeof scale_b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            set_lt_attribute(p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, (const void *)&scale_a, sizeof scale_a);
    return status;
}

static cublasStatus_t describe_lt_operation(lt_product *p, const cuda_product_spec *s)
{
    const cublasOperation_t first = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasComputeType_t sums = p->is_integer ? CUBLAS_COMPUTE_32I
                                     : s->tf32     ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                   : CUBLAS_COMPUTE_32F;
    const int8_t fast = (int8_t)s->fast_sums;
    static const float no_scale = 1;
    cublasStatus_t status =
        cublasLtMatmulDescCreate(&p->operation, sums, p->is_integer ? CUDA_R_32I : CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set_lt_attribute(p, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set_lt_attribute(p, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    if (status == CUBLAS_STATUS_SUCCESS && p->is_scaled)
        status = set_lt_attribute(p, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    /* The heuristics see that there are scales; what they point to is set for each run. */
    if (status == CUBLAS_STATUS_SUCCESS && p->is_scaled) status = set_lt_scales(p, &no_scale, &no_scale);
    return status;
}

static cublasStatus_t describe_lt_product(lt_product *p, const cuda_product_spec *s)
{
    const lt_matrix a = {s->a,     s->transpose_a ? s->k : s->m,   s->transpose_a ? s->m : s->k,
                         s->a_row, s->has_one_a ? 0 : s->m * s->k, s->batch},
                    b = {s->b, s->transpose_b ? s->n : s->k,          s->transpose_b ? s->k : s->n,
                         0,    s->b_apart ? s->b_apart : s->k * s->n, s->batch},
                    c = {s->to, s->m, s->n, s->c_row, s->c_apart ? s->c_apart : s->m * s->n, s->batch};
    cublasStatus_t status = describe_lt_operation(p, s);
    if (status == CUBLAS_STATUS_SUCCESS) status = create_lt_layout(&p->first, &b);
    if (status == CUBLAS_STATUS_SUCCESS) status = create_lt_layout(&p->second, &a);
    if (status == CUBLAS_STATUS_SUCCESS) status = create_lt_layout(&p->result, &c);
    return status;
}

/* Partial sums of a split k stay separate in f32, and an extra kernel adds them. Only this scheme neither
 * rounds them to the result's type nor lets blocks wait for each other. */
static cublasStatus_t set_lt_preference(cublasLtMatmulPreference_t preference)
{
    static const cublasLtMatmulPreferenceAttributes_t sides[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t max_bytes = MAX_WORKSPACE;
    const uint32_t alignment = ALIGNMENT, reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &max_bytes, sizeof max_bytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                      &reduction, sizeof reduction);
    for (size_t i = 0; i < sizeof sides / sizeof *sides && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(preference, sides[i], &alignment, sizeof alignment);
    return status;
}

static int lt_candidates(cuda_algorithm candidate[CUDA_CANDIDATES], int *n, const cuda_work *work)
{
    const lt_product *p = (const lt_product *)work;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[CUDA_CANDIDATES];
    int n_found = 0, n_good = 0;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
    if (status == CUBLAS_STATUS_SUCCESS) status = set_lt_preference(preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            cublasLtMatmulAlgoGetHeuristic(work->libraries->lt, p->operation, p->first, p->second, p->result,
                                           p->result, preference, CUDA_CANDIDATES, found, &n_found);
    if (preference) (void)cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < n_found; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
        memcpy(candidate[n_good].word, &found[i].algo, sizeof found[i].algo);
        candidate[n_good++].workspace_bytes = found[i].workspaceSize;
    }
    if (status == CUBLAS_STATUS_SUCCESS && n_good == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS) *n = n_good;
    return cuda_from_cublaslt(status);
}

static int lt_check(cuda_algorithm *algorithm, const cuda_work *work)
{
    const lt_product *p = (const lt_product *)work;
    cublasLtMatmulAlgo_t named;
    cublasLtMatmulHeuristicResult_t found;
    memcpy(&named, algorithm->word, sizeof named);
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(work->libraries->lt, p->operation, p->first,
                                                          p->second, p->result, p->result, &named, &found);
    if (status == CUBLAS_STATUS_SUCCESS) algorithm->workspace_bytes = found.workspaceSize;
    return cuda_from_cublaslt(status);
}

static int lt_run(const cuda_work *work, const cuda_algorithm *algorithm, const cuda_operands *o,
                  void *workspace, tandem_cuda_stream stream)
{
    const lt_product *p = (const lt_product *)work;
    const float one = 1;
    const int32_t whole = 1, none = 0;
    const void *const alpha = p->is_integer ? (const void *)&whole : &one;
    const void *const beta = p->is_integer ? (const void *)&none : &p->beta;
    cublasLtMatmulAlgo_t named;
    memcpy(&named, algorithm->word, sizeof named);
    cublasStatus_t status = p->is_scaled ? set_lt_scales(p, o->scale_a, o->scale_b) : CUBLAS_STATUS_SUCCESS;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmul(work->libraries->lt, p->operation, alpha, o->b, p->first, o->a, p->second,
                                beta, o->c, p->result, o->c, p->result, &named, workspace,
                                algorithm->workspace_bytes, stream);
    return cuda_from_cublaslt(status);
}

int vendor_product_open(cuda_work **out, cuda_libraries *libraries, const cuda_product_spec *spec)
{
    lt_product *p = calloc(1, sizeof *p);
    if (!p) return (int)cudaErrorMemoryAllocation;
    p->work = (cuda_work){libraries, close_lt_product, lt_candidates, lt_check, lt_run};
    p->is_integer = spec->a == CUDA_TYPE_S8;
    p->is_scaled = spec->a == CUDA_TYPE_E4M3 || spec->a == CUDA_TYPE_E5M2;
    p->beta = (float)spec->accumulate;
    const cublasStatus_t status = describe_lt_product(p, spec);
    if (status != CUBLAS_STATUS_SUCCESS) {
        close_lt_product(&p->work);
        return cuda_from_cublaslt(status);
    }
    *out = &p->work;
    return 0;
}
