/* weights.cu: rounds the weights of many operators in one launch, which a step begins with. Its arguments are
 * the list of arrays. A block does a piece of one array: PIECE consecutive numbers, or, where the copy is
 * transposed, a tile of SIDE × SIDE. CPU reference: convert_bf16, convert_f16. */
#include "kernels/cuda/octet.h"

enum { PIECE = 8192, SIDE = 64, STEP = THREADS / SIDE };

typedef struct copy_list {
    tandem_cuda_weight_copy copy[TANDEM_CUDA_WEIGHT_COPIES];
    uint32_t n;
} copy_list;
static_assert(sizeof(copy_list) < 4000, "arguments of a kernel");

/* The array of a block: the last one that begins at it or before. */
static __device__ __forceinline__ unsigned copy_of_block(const copy_list &list)
{
    unsigned low = 0, high = list.n;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (list.copy[middle].first_block <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <typename T>
static __device__ __forceinline__ void copy_piece(T *to, const float *from, size_t first, size_t end)
{
    const size_t whole = end / OCTET * OCTET;
#pragma unroll 4
    for (size_t i = first + threadIdx.x * OCTET; i < whole; i += THREADS * OCTET) {
        float value[OCTET];
        packed<float> own;
        own.template load_packed<READ_ONLY>(from + i);
        unpack_octet(value, own);
        store_octet(to + i, value);
    }
    if (whole + threadIdx.x < end) store_one(to + whole + threadIdx.x, from[whole + threadIdx.x]);
}

/* Rows of a tile are an odd number of words apart, so columns do not conflict in a bank. */
template <typename T>
static __device__ __forceinline__ void transpose_tile(T *to /* (columns, rows) */,
                                                      const float *from /* (rows, columns) */, size_t rows,
                                                      size_t columns, unsigned piece)
{
    __shared__ T tile[SIDE][SIDE + 2];
    const unsigned across = (unsigned)n_tile(columns, SIDE), fast = threadIdx.x % SIDE,
                   slow = threadIdx.x / SIDE;
    const size_t row = piece / across * SIDE, column = piece % across * SIDE;
#pragma unroll 4
    for (unsigned k = slow; k < SIDE; k += STEP)
        if (row + k < rows && column + fast < columns)
            store_one(&tile[k][fast], from[(row + k) * columns + column + fast]);
    __syncthreads();
#pragma unroll 4
    for (unsigned k = slow; k < SIDE; k += STEP)
        if (column + k < columns && row + fast < rows) to[(column + k) * rows + row + fast] = tile[fast][k];
}

template <typename T> KERNEL copy_weights(const __grid_constant__ copy_list list)
{
    const tandem_cuda_weight_copy &own = list.copy[copy_of_block(list)];
    const unsigned piece = blockIdx.x - own.first_block;
    if (own.rows) {
        transpose_tile((T *)own.to, own.from, own.rows, own.n / own.rows, piece);
    } else {
        const size_t first = (size_t)piece * PIECE;
        copy_piece((T *)own.to, own.from, first, first + PIECE < own.n ? first + PIECE : own.n);
    }
}

static size_t piece_count(const tandem_cuda_weight_copy *copy)
{
    if (!copy->rows) return n_tile(copy->n, PIECE);
    return n_tile(copy->rows, SIDE) * n_tile(copy->n / copy->rows, SIDE);
}

extern "C" int tandem_cuda_copy_weights(const tandem_cuda_weight_copy *copy, size_t n, tandem_cuda_float type,
                                        tandem_cuda_stream stream)
{
    copy_list list;
    size_t blocks = 0;
    if (n == 0 || n > TANDEM_CUDA_WEIGHT_COPIES) return (int)cudaErrorInvalidValue;
    for (size_t k = 0; k < TANDEM_CUDA_WEIGHT_COPIES; k++) {
        list.copy[k] = copy[k < n ? k : 0];
        list.copy[k].first_block = (uint32_t)blocks;
        if (k < n) blocks += piece_count(&copy[k]);
    }
    list.n = (uint32_t)n;
    switch (type) {
    case TANDEM_CUDA_BF16: return LAUNCH(copy_weights<bf16>, (unsigned)blocks, THREADS, stream, list);
    case TANDEM_CUDA_F16: return LAUNCH(copy_weights<f16>, (unsigned)blocks, THREADS, stream, list);
    default: return (int)cudaErrorInvalidValue;
    }
}
