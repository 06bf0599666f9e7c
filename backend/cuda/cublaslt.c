/* cublaslt.c: matrix products. cuBLASLt's matrices are column-major, so a row-major C = A·B is asked for as Cᵀ = Bᵀ·Aᵀ: the same
 * memory, operands changed over. The algorithm is the first that its heuristic names for a workspace of at most MOST_WORKSPACE. */
#include "backend/cuda/libraries.h"

enum { MOST_WORKSPACE = 32 << 20 };

struct cuda_product {
    cuda_libraries *libraries;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, result; /* B, A and C, as columns */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    int is_integer;
};

static cudaDataType_t type_of(cuda_type type)
{
    switch (type) {
    case CUDA_TYPE_BF16: return CUDA_R_16BF;
    case CUDA_TYPE_S8: return CUDA_R_8I;
    case CUDA_TYPE_S32: return CUDA_R_32I;
    default: return CUDA_R_32F;
    }
}

void cuda_product_close(cuda_product *product)
{
    if (product->result) (void)cublasLtMatrixLayoutDestroy(product->result);
    if (product->second) (void)cublasLtMatrixLayoutDestroy(product->second);
    if (product->first) (void)cublasLtMatrixLayoutDestroy(product->first);
    if (product->operation) (void)cublasLtMatmulDescDestroy(product->operation);
    free(product);
}

/* A row-major (rows, columns) matrix, packed, `batch` of them. */
static cublasStatus_t lay_out(cublasLtMatrixLayout_t *layout, cuda_type type, int64_t rows, int64_t columns,
                              int64_t batch)
{
    const int32_t n = (int32_t)batch;
    const int64_t stride = rows * columns;
    cublasStatus_t status =
        cublasLtMatrixLayoutCreate(layout, type_of(type), (uint64_t)columns, (uint64_t)rows, columns);
    if (status == CUBLAS_STATUS_SUCCESS && batch > 1)
        status = cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
    if (status == CUBLAS_STATUS_SUCCESS && batch > 1)
        status = cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &stride, sizeof stride);
    return status;
}

static cublasStatus_t describe(cuda_product *p, const cuda_product_spec *s)
{
    const cublasOperation_t first = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status =
        cublasLtMatmulDescCreate(&p->operation, p->is_integer ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                 p->is_integer ? CUDA_R_32I : CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = s->transpose_b ? lay_out(&p->first, s->from, s->n, s->k, s->batch)
                                : lay_out(&p->first, s->from, s->k, s->n, s->batch);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = s->transpose_a ? lay_out(&p->second, s->from, s->k, s->m, s->batch)
                                : lay_out(&p->second, s->from, s->m, s->k, s->batch);
    if (status == CUBLAS_STATUS_SUCCESS) status = lay_out(&p->result, s->to, s->m, s->n, s->batch);
    return status;
}

static cublasStatus_t choose(cuda_product *p)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    const size_t most = MOST_WORKSPACE;
    int n = 0;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &most, sizeof most);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(p->libraries->lt, p->operation, p->first, p->second,
                                                p->result, p->result, preference, 1, &found, &n);
    if (status == CUBLAS_STATUS_SUCCESS && n == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (preference) (void)cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    p->algorithm = found.algo;
    p->workspace_bytes = found.workspaceSize;
    return status;
}

int cuda_product_open(cuda_product **out, uint64_t *workspace_bytes, cuda_libraries *libraries,
                      const cuda_product_spec *spec)
{
    cuda_product *product = calloc(1, sizeof *product);
    if (!product) return (int)cudaErrorMemoryAllocation;
    product->libraries = libraries;
    product->is_integer = spec->from == CUDA_TYPE_S8;
    cublasStatus_t status = describe(product, spec);
    if (status == CUBLAS_STATUS_SUCCESS) status = choose(product);
    if (status != CUBLAS_STATUS_SUCCESS) {
        cuda_product_close(product);
        return cuda_from_cublaslt(status);
    }
    *out = product;
    *workspace_bytes = product->workspace_bytes;
    return 0;
}

int cuda_product_run(const cuda_product *product, const void *a, const void *b, void *c, void *workspace,
                     tandem_cuda_stream stream)
{
    const float one = 1, zero = 0;
    const int32_t whole = 1, none = 0;
    const void *const alpha = product->is_integer ? (const void *)&whole : &one;
    const void *const beta = product->is_integer ? (const void *)&none : &zero;
    return cuda_from_cublaslt(cublasLtMatmul(product->libraries->lt, product->operation, alpha, b, product->first,
                                             a, product->second, beta, c, product->result, c, product->result,
                                             &product->algorithm, workspace, product->workspace_bytes, stream));
}
