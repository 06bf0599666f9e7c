/* im2col.c: copies each window of an image to a row of a matrix. */
#include "kernels/cpu/isa/isa.h"

/* n bytes in pieces whose size the compiler knows; the last piece may overlap the one before it. */
static inline void copy_bytes(int8_t *to, const int8_t *from, int64_t n)
{
    if (n >= 32) {
        for (int64_t i = 0; i + 32 <= n; i += 32) __builtin_memcpy(to + i, from + i, 32);
        __builtin_memcpy(to + n - 32, from + n - 32, 32);
    } else if (n >= 16) {
        __builtin_memcpy(to, from, 16);
        __builtin_memcpy(to + n - 16, from + n - 16, 16);
    } else if (n >= 8) {
        __builtin_memcpy(to, from, 8);
        __builtin_memcpy(to + n - 8, from + n - 8, 8);
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = from[i];
    }
}

static inline void clear_bytes(int8_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = 0;
}

/* `pixels` pixels of a line of the image from `x` on, zero where they lie outside 0 … w − 1. */
static void copy_clipped(int8_t *to, const int8_t *line, int64_t x, int64_t pixels, int64_t w, int64_t c)
{
    const int64_t before = x < 0 ? (-x < pixels ? -x : pixels) : 0;
    const int64_t room = w - x - before, rest = pixels - before;
    const int64_t inside = room < 0 ? 0 : room < rest ? room : rest;
    clear_bytes(to, before * c);
    copy_bytes(to + before * c, line + (x + before) * c, inside * c);
    clear_bytes(to + (before + inside) * c, (rest - inside) * c);
}

void ISA(im2col_s8)(int8_t *columns, const int8_t *image, int64_t h, int64_t w, int64_t c, int64_t kernel,
                    int64_t stride, int64_t pad)
{
    for (int64_t y = -pad; y + kernel <= h + pad; y += stride) {
        for (int64_t x = -pad; x + kernel <= w + pad; x += stride) {
            for (int64_t line = y; line < y + kernel; line++, columns += kernel * c) {
                if (line < 0 || line >= h)
                    clear_bytes(columns, kernel * c);
                else if (x >= 0 && x + kernel <= w)
                    copy_bytes(columns, image + (line * w + x) * c, kernel * c);
                else
                    copy_clipped(columns, image + line * w * c, x, kernel, w, c);
            }
        }
    }
}
