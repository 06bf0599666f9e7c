/* ptx_matrix.c: ldmatrix and mma of a warp (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions").
 */
#include "tests/ptx/ptx_machine.h"

/* Lanes 8·m … 8·m + 7 name the rows of matrix m, of 8 numbers of 16 bits; lane 4·r + c gets numbers 2·c and
 * 2·c + 1 of row r, or, turned, of column r. */
void ptx_load_matrices(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i)
{
    uint16_t row[PTX_LANES][8];
    const uint32_t *const address = ptx_place(machine, warp, i->with[0]);
    for (int lane = 0; lane < 8 * i->vector; lane++) {
        const uint32_t at = address[lane] + (uint32_t)i->offset;
        const uint8_t *const from = ptx_shared(machine, warp, i, at, 16, lane, 0);
        if (!from) return;
        memcpy(row[lane], from, 16);
    }
    for (int m = 0; m < i->vector; m++)
        for (int lane = 0; lane < PTX_LANES; lane++) {
            const int r = lane / 4, c = lane % 4 * 2;
            const uint32_t low = i->is_turned ? row[8 * m + c][r] : row[8 * m + r][c],
                           high = i->is_turned ? row[8 * m + c + 1][r] : row[8 * m + r][c + 1];
            ptx_place(machine, warp, i->to[m])[lane] = low | high << 16;
        }
}

static float number(const ptx_instruction *i, uint32_t pair, int half)
{
    const uint32_t bits = pair >> (16 * half) & 0xFFFF;
    return i->kind == 'b' ? ptx_float(bits << 16) : ptx_f16_value(bits);
}

/* before + Σ a·b of n products, which f32 holds exactly where they are of bf16 or f16. */
static float sum_exactly(const float *a, const float *b, int n, float before)
{
    double sum = before;
    for (int k = 0; k < n; k++) sum += (double)a[k] * b[k];
    return (float)sum;
}

/* As tensor cores were seen to add (Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021): of 8
 * products and the sum before, each is cut to the bits that are within 24 of the largest one's highest. */
static float sum_and_truncate(const float *a, const float *b, int n, float before)
{
    float sum = before;
    for (int first = 0; first < n; first += 8) {
        double term[9] = {sum}, largest = fabs((double)sum), all = 0;
        for (int k = 0; k < 8; k++) {
            term[k + 1] = (double)a[first + k] * b[first + k];
            if (fabs(term[k + 1]) > largest) largest = fabs(term[k + 1]);
        }
        const int is_plain = largest > 0 && isfinite(largest);
        const double unit = is_plain ? ldexp(1, ilogb(largest) - 24) : 1;
        for (int k = 0; k < 9; k++) all += is_plain ? trunc(term[k] / unit) * unit : term[k];
        sum = (float)all;
        if (isfinite(sum) && fabs((double)sum) > fabs(all)) sum = nextafterf(sum, 0);
    }
    return sum;
}

/* Lane 4·r + c has of a rows r and r + 8, of b column r, in columns or rows 2·c, 2·c + 1, and those 8 further
 * on; of the sums, rows r and r + 8 in columns 2·c and 2·c + 1. */
void ptx_multiply(ptx_machine *machine, ptx_warp *warp, const ptx_instruction *i)
{
    const int depth = i->vector, n_a = depth / 4, n_b = depth / 8;
    float a[16][16] = {{0}}, b[8][16] = {{0}}; /* b: by columns */
    for (int lane = 0; lane < PTX_LANES; lane++) {
        const int r = lane / 4, c = lane % 4 * 2;
        for (int k = 0; k < n_a; k++)
            for (int half = 0; half < 2; half++)
                a[r + k % 2 * 8][c + half + k / 2 * 8] =
                    number(i, ptx_place(machine, warp, i->with[k])[lane], half);
        for (int k = 0; k < n_b; k++)
            for (int half = 0; half < 2; half++)
                b[r][c + half + k * 8] = number(i, ptx_place(machine, warp, i->with[4 + k])[lane], half);
    }
    uint32_t result[4][PTX_LANES];
    for (int lane = 0; lane < PTX_LANES; lane++)
        for (int e = 0; e < 4; e++) {
            const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
            const float before = ptx_float(ptx_place(machine, warp, i->with[6 + e])[lane]);
            result[e][lane] =
                ptx_bits(machine->options.truncates ? sum_and_truncate(a[row], b[column], depth, before)
                                                    : sum_exactly(a[row], b[column], depth, before));
        }
    for (int e = 0; e < 4; e++) memcpy(ptx_place(machine, warp, i->to[e]), result[e], sizeof result[e]);
}
