/* amx.h: the versions of kernels.def's products for the tile registers of AMX; how tiles are set up, and how
 * they hold sums. */
#pragma once

#include "kernels/cpu/isa/isa.h"

#if defined __AVX512VNNI__

void ISA(gemm_s8_amx)(const tandem_product_s8 *product);
size_t ISA(gemm_s8_amx_workspace)(int64_t m, int64_t n, int64_t k);
void ISA(gemm_bf16_amx)(const tandem_product_bf16 *product);
size_t ISA(gemm_bf16_amx_workspace)(int64_t m, int64_t n, int64_t k);
void ISA(weight_gradient_amx)(const tandem_weight_gradient *convolution);
size_t ISA(weight_gradient_amx_workspace)(const tandem_weight_gradient *convolution);

/* What _tile_loadconfig reads: eight tiles of 16 rows of 64 bytes. */
typedef struct tile_setup {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_setup;

static const tile_setup whole_tiles = {
    .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

#define AMX_SUMS static inline __attribute__((always_inline, target("amx-tile")))

/* 32 by 32 sums of 32 bits in tiles 0 to 3, whose rows lie row_bytes apart in memory: zeros, or loaded. */
AMX_SUMS void begin_tile_sums(const void *sums, size_t row_bytes, int load)
{
    const char *const upper = sums, *const lower = upper + 16 * row_bytes;
    if (load) {
        _tile_loadd(0, upper, row_bytes);
        _tile_loadd(1, upper + 64, row_bytes);
        _tile_loadd(2, lower, row_bytes);
        _tile_loadd(3, lower + 64, row_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
}

AMX_SUMS void store_tile_sums(void *sums, size_t row_bytes)
{
    char *const upper = sums, *const lower = upper + 16 * row_bytes;
    _tile_stored(0, upper, row_bytes);
    _tile_stored(1, upper + 64, row_bytes);
    _tile_stored(2, lower, row_bytes);
    _tile_stored(3, lower + 64, row_bytes);
}

#endif
