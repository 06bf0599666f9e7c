/* transpose.c: a matrix of bytes, transposed, in blocks of 16 × 16. */
#include "kernels/cpu/isa/isa.h"

enum { SIDE = 16, STRIP = 64 };

/* Four rounds, each of which interleaves row i with row i + 8: after them the index of a byte is turned by
 * half. */
static inline void transpose_block(int8_t *to, int64_t to_row, const int8_t *from, int64_t from_row)
{
    __m128i even[SIDE], odd[SIDE];
    for (int i = 0; i < SIDE; i++)
        even[i] = _mm_loadu_si128((const __m128i *)(const void *)(from + i * from_row));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SIDE / 2; i++) {
            odd[2 * i] = _mm_unpacklo_epi8(even[i], even[i + SIDE / 2]);
            odd[2 * i + 1] = _mm_unpackhi_epi8(even[i], even[i + SIDE / 2]);
        }
        for (int i = 0; i < SIDE / 2; i++) {
            even[2 * i] = _mm_unpacklo_epi8(odd[i], odd[i + SIDE / 2]);
            even[2 * i + 1] = _mm_unpackhi_epi8(odd[i], odd[i + SIDE / 2]);
        }
    }
    for (int i = 0; i < SIDE; i++) _mm_storeu_si128((__m128i *)(void *)(to + i * to_row), even[i]);
}

static void transpose_piecemeal(int8_t *to, int64_t to_row, const int8_t *from, int64_t from_row,
                                int64_t rows, int64_t columns)
{
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t i = 0; i < rows; i++) to[j * to_row + i] = from[i * from_row + j];
    }
}

/* Strips of rows, so that a line of `to` is filled while it is in the cache. */
void ISA(transpose_s8)(int8_t *to, int64_t to_row, const int8_t *from, int64_t from_row, int64_t rows,
                       int64_t columns)
{
    for (int64_t strip = 0; strip < rows; strip += STRIP) {
        const int64_t end = rows - strip < STRIP ? rows : strip + STRIP;
        for (int64_t j = 0; j < columns; j += SIDE) {
            const int64_t width = columns - j < SIDE ? columns - j : SIDE;
            for (int64_t i = strip; i < end; i += SIDE) {
                const int64_t height = end - i < SIDE ? end - i : SIDE;
                if (width == SIDE && height == SIDE)
                    transpose_block(to + j * to_row + i, to_row, from + i * from_row + j, from_row);
                else
                    transpose_piecemeal(to + j * to_row + i, to_row, from + i * from_row + j, from_row,
                                        height, width);
            }
        }
    }
}
