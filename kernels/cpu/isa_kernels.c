/* isa_kernels.c: the rows of every compilation of the kernels, found by the name of the instruction set. */
#include "kernels/cpu/isa_kernels.h"

#include <string.h>

/* kernels/cpu/isa/table.c, compiled for each; a row without a name ends them. */
extern const tandem_isa_kernels tandem_isa_kernels_sse41[], tandem_isa_kernels_avx[],
    tandem_isa_kernels_avx2[], tandem_isa_kernels_avx2_vnni[], tandem_isa_kernels_avx512[],
    tandem_isa_kernels_avx512_vnni[];

const tandem_isa_kernels *tandem_isa_kernels_find(const char *isa)
{
    const tandem_isa_kernels *const compilations[] = {
        tandem_isa_kernels_sse41,     tandem_isa_kernels_avx,    tandem_isa_kernels_avx2,
        tandem_isa_kernels_avx2_vnni, tandem_isa_kernels_avx512, tandem_isa_kernels_avx512_vnni};
    for (size_t i = 0; i < sizeof compilations / sizeof *compilations; i++) {
        for (const tandem_isa_kernels *row = compilations[i]; row->isa; row++) {
            if (strcmp(row->isa, isa) == 0) return row;
        }
    }
    return NULL;
}
