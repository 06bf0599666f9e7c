/* divided_kernels.c: finds the divided kernels of an instruction set. */
#include "backend/cpu/divided_kernels.h"

#include <string.h>

typedef void divide_kernels(tandem_isa_kernels *table);
divide_kernels tandem_isa_divide_kernels_sse41, tandem_isa_divide_kernels_avx, tandem_isa_divide_kernels_avx2,
    tandem_isa_divide_kernels_avx2_vnni, tandem_isa_divide_kernels_avx512,
    tandem_isa_divide_kernels_avx512_vnni;

/* The tables of avx512_bf16 and avx512_amx are compiled for avx512_vnni. */
static const struct {
    const char *isa;
    divide_kernels *divide;
} divisions[] = {
    {"sse41", tandem_isa_divide_kernels_sse41},
    {"avx", tandem_isa_divide_kernels_avx},
    {"avx2", tandem_isa_divide_kernels_avx2},
    {"avx2_vnni", tandem_isa_divide_kernels_avx2_vnni},
    {"avx512", tandem_isa_divide_kernels_avx512},
    {"avx512_vnni", tandem_isa_divide_kernels_avx512_vnni},
    {"avx512_bf16", tandem_isa_divide_kernels_avx512_vnni},
    {"avx512_amx", tandem_isa_divide_kernels_avx512_vnni},
};

void cpu_divide_kernels(tandem_isa_kernels *divided, const tandem_isa_kernels *table)
{
    *divided = *table;
    for (size_t k = 0; k < sizeof divisions / sizeof *divisions; k++)
        if (strcmp(divisions[k].isa, table->isa) == 0) divisions[k].divide(divided);
}
