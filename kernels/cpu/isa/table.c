/* table.c: the rows that this compilation serves: its own instruction set, and with VNNI avx512_bf16 and
 * avx512_amx too. The row avx512_bf16 uses no bf16 conversion instruction: it takes denormals for zero, so
 * its bits would differ from the other tables'. The row avx512_amx has products of its own. */
#include "kernels/cpu/isa/amx.h"

#if defined __AVX512VNNI__
#define USES_ONEDNN_INT8 1
#else
#define USES_ONEDNN_INT8 0
#endif
#define NAME_OF(isa) #isa
#define NAME(isa) NAME_OF(isa)
#define MEMBER(result, name, ...) .name = ISA(name),
#define MEMBER_AMX(result, name, ...) .name = AMX_OF_##name,
#define AMX_OF_gemm_s8 ISA(gemm_s8_amx)
#define AMX_OF_gemm_s8_workspace ISA(gemm_s8_amx_workspace)
#define AMX_OF_gemm_bf16 ISA(gemm_bf16_amx)
#define AMX_OF_gemm_bf16_workspace ISA(gemm_bf16_amx_workspace)
#define AMX_OF_weight_gradient ISA(weight_gradient_amx)
#define AMX_OF_weight_gradient_workspace ISA(weight_gradient_amx_workspace)
#if defined __AVX512BW__
#define MEMBER_AVX512 MEMBER
#else
#define MEMBER_AVX512(...)
#endif

const tandem_isa_kernels ISA(kernels)[] = {
    {
        .isa = NAME(TANDEM_ISA),
        .uses_onednn_int8 = USES_ONEDNN_INT8,
#define ISA_KERNEL MEMBER
#define ISA_KERNEL_AVX512 MEMBER_AVX512
#include "kernels/cpu/isa/kernels.def"
    },
#if defined __AVX512VNNI__
    {
        .isa = "avx512_bf16",
        .uses_onednn_int8 = USES_ONEDNN_INT8,
        .multiplies_bf16 = 1,
#define ISA_KERNEL MEMBER
#define ISA_KERNEL_AVX512 MEMBER_AVX512
#include "kernels/cpu/isa/kernels.def"
    },
    {
        .isa = "avx512_amx",
        .uses_onednn_int8 = USES_ONEDNN_INT8,
        .multiplies_bf16 = 1,
        .has_tiles = 1,
#define ISA_KERNEL MEMBER
#define ISA_KERNEL_AVX512 MEMBER_AVX512
#define ISA_PRODUCT MEMBER_AMX
#define ISA_PRODUCT_AVX512 MEMBER_AMX
#include "kernels/cpu/isa/kernels.def"
    },
#endif
    {0},
};
