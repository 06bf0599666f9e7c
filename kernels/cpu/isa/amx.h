/* amx.h: the versions of kernels.def's products for the tile registers of AMX, and how they are set up. */
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

#endif
