/* folder: kernels */
/* Single instructions of PTX against numbers that were worked out by hand from the PTX ISA, conversions
 * against the ones of kernels/cuda/arithmetic.h, which is written differently, and products of matrices
 * against loops. */
#include "tests/support/tandem_test.h"

#include "kernels/cuda/kernels.h"
#include "tests/ptx/ptx_machine.h"

/* --- One lane ------------------------------------------------------------------------------------------- */

/* kinds: of the result and the operands, as in instructions.def. */
typedef struct known {
    const char *opcode, *kinds;
    uint64_t a, b, c, result;
} known;

enum { ONE = 0x3F800000, TWO = 0x40000000, HALF = 0x3F000000, NAN_BITS = 0x7FFFFFFF, INFINITE = 0x7F800000 };
static const known knowns[] = {
    {"add.s32", "www", 0xFFFFFFFF, 2, 0, 1},
    {"add.s16", "hhh", 0xFFFF, 2, 0, 1},
    {"add.s64", "lll", UINT64_MAX, 2, 0, 1},
    {"sub.s32", "www", 1, 2, 0, 0xFFFFFFFF},
    {"neg.s64", "ll", 1, 0, 0, UINT64_MAX},
    {"abs.s32", "ww", 0xFFFFFFFB, 0, 0, 5},
    {"mul.lo.s32", "www", 0x10001, 0x10001, 0, 0x20001},
    {"mul.hi.u32", "www", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0xFFFFFFFE},
    {"mul.hi.s32", "www", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0},
    {"mul.wide.u32", "lww", 0xFFFFFFFF, 2, 0, 0x1FFFFFFFE},
    {"mul.wide.s32", "lww", 0xFFFFFFFF, 2, 0, UINT64_MAX - 1},
    {"mul.wide.u16", "whh", 0xFFFF, 0xFFFF, 0, 0xFFFE0001},
    {"mad.lo.s32", "wwww", 3, 4, 5, 17},
    {"div.u32", "www", 0xFFFFFFFF, 2, 0, 0x7FFFFFFF},
    {"div.s32", "www", 0xFFFFFFF9, 2, 0, 0xFFFFFFFD},
    {"rem.s32", "www", 0xFFFFFFF9, 2, 0, 0xFFFFFFFF},
    {"div.s32", "www", 0x80000000, 0xFFFFFFFF, 0, 0x80000000},
    {"rem.u64", "lll", 1000000000007, 10, 0, 7},
    {"rem.s64", "lll", (uint64_t)-7, 4, 0, (uint64_t)-3},
    {"div.s64", "lll", (uint64_t)-7, UINT64_MAX, 0, 7},
    {"min.s32", "www", 0xFFFFFFFF, 1, 0, 0xFFFFFFFF},
    {"min.u32", "www", 0xFFFFFFFF, 1, 0, 1},
    {"max.s64", "lll", UINT64_MAX, 1, 0, 1},
    {"shl.b32", "www", 1, 31, 0, 0x80000000},
    {"shl.b32", "www", 1, 32, 0, 0},
    {"shl.b16", "hhw", 0x101, 8, 0, 0x100},
    {"shr.s32", "www", 0x80000000, 40, 0, 0xFFFFFFFF},
    {"shr.s16", "hhw", 0x8000, 8, 0, 0xFF80},
    {"shr.u64", "llw", UINT64_MAX, 60, 0, 15},
    {"prmt.b32", "wwww", 0x33221100, 0x77665544, 0x7410, 0x77441100},
    {"prmt.b32", "wwww", 0x33228100, 0x77665544, 0x0009, 0x000000FF},
    {"popc.b32", "ww", 0xF0F0, 0, 0, 8},
    {"brev.b32", "ww", 1, 0, 0, 0x80000000},
    {"bfind.shiftamt.u32", "ww", 0x00010000, 0, 0, 15},
    {"selp.b32", "wwwp", 5, 6, 1, 5},
    {"selp.b64", "lllp", 5, 6, 0, 6},
    {"setp.lt.s32", "pww", 0xFFFFFFFF, 0, 0, 1},
    {"setp.lt.u32", "pww", 0xFFFFFFFF, 0, 0, 0},
    {"setp.eq.s16", "phh", 0xFFFF, 0xFFFF, 0, 1},
    {"setp.ge.u64", "pll", 1ull << 40, 5, 0, 1},
    {"setp.gt.f32", "pww", NAN_BITS, ONE, 0, 0},
    {"setp.gtu.f32", "pww", NAN_BITS, ONE, 0, 1},
    {"setp.ne.f32", "pww", NAN_BITS, ONE, 0, 0},
    {"setp.neu.f32", "pww", NAN_BITS, ONE, 0, 1},
    {"setp.nan.f32", "pww", ONE, NAN_BITS, 0, 1},
    {"setp.lt.and.s32", "pwwp", 0, 1, 0, 0},
    {"setp.lt.or.s32", "pwwp", 1, 0, 1, 1},
    {"xor.pred", "ppp", 1, 1, 0, 0},
    {"add.f32", "www", ONE, ONE, 0, TWO},
    {"add.f32", "www", 0x7FC00001, ONE, 0, NAN_BITS},
    {"sub.f32", "www", INFINITE, INFINITE, 0, NAN_BITS},
    {"mul.rn.f32", "www", 0xFFC00000, ONE, 0, NAN_BITS},
    {"add.rm.f32", "www", ONE, 0x30800000, 0, ONE},                         /* 1 + 2^-30 */
    {"add.rm.f32", "www", ONE, 0xB0800000, 0, 0x3F7FFFFF},                  /* 1 − 2^-30 */
    {"add.rm.f32", "www", ONE, 0xBF800000, 0, 0x80000000},                  /* 1 − 1 = −0 */
    {"fma.rn.f32", "wwww", 0x3F800001, 0x3F800001, 0xBF800002, 0x28800000}, /* 2^-46 */
    {"fma.rm.f32", "wwww", ONE, ONE, 0xB0800000, 0x3F7FFFFF},
    {"div.rn.f32", "www", ONE, 0, 0, INFINITE},
    {"rcp.rn.f32", "ww", TWO, 0, 0, HALF},
    {"sqrt.rn.f32", "ww", 0x40800000, 0, 0, TWO},
    {"min.f32", "www", 0x80000000, 0, 0, 0x80000000},
    {"max.f32", "www", NAN_BITS, ONE, 0, ONE},
    {"copysign.f32", "www", 0x80000000, ONE, 0, 0xBF800000},
    {"ex2.approx.f32", "ww", ONE, 0, 0, TWO},
    {"ex2.approx.ftz.f32", "ww", 0xC3020000, 0, 0, 0}, /* 2^-130 */
    {"ex2.approx.ftz.f32", "ww", 0xFF800000, 0, 0, 0},
    {"rcp.approx.ftz.f32", "ww", 1, 0, 0, INFINITE},
    {"div.approx.f32", "www", ONE, 0x7F000001, 0, 0},
    {"cvt.sat.f32.f32", "ww", 0xC0000000, 0, 0, 0},
    {"cvt.sat.f32.f32", "ww", NAN_BITS, 0, 0, 0},
    {"cvt.sat.f32.f32", "ww", TWO, 0, 0, ONE},
    {"cvt.s64.s32", "lw", 0xFFFFFFFF, 0, 0, UINT64_MAX},
    {"cvt.u64.u32", "lw", 0xFFFFFFFF, 0, 0, 0xFFFFFFFF},
    {"cvt.s16.s8", "hh", 0x80, 0, 0, 0xFF80},
    {"cvt.rn.f32.s32", "ww", 0xFFFFFFFF, 0, 0, 0xBF800000},
    {"cvt.rn.f32.u32", "ww", 0x01000001, 0, 0, 0x4B800000},
    {"cvt.rn.f32.u64", "wl", 1ull << 40, 0, 0, 0x53800000},
    {"cvt.f32.f16", "wh", 0x7E01, 0, 0, NAN_BITS},
    {"cvt.f32.f16", "wh", 0x0001, 0, 0, 0x33800000},
    {"cvt.rn.f16.f32", "hw", 0x477FF000, 0, 0, 0x7C00}, /* 65520 */
    {"cvt.rn.bf16x2.f32", "www", ONE, 0xC0000000, 0, 0x3F80C000},
    {"cvt.rn.f16x2.f32", "www", NAN_BITS, 0, 0, 0x7FFF0000},
    {"cvt.rn.satfinite.e4m3x2.f32", "hww", 0x43F00000, 0xC3F00000, 0, 0x7EFE}, /* ±480 */
    {"cvt.rn.satfinite.e5m2x2.f32", "hww", INFINITE, NAN_BITS, 0, 0x7B7F},
    {"cvt.rn.f16x2.e4m3x2", "wh", 0x7E01, 0, 0, 0x5F001800}, /* 448 and 2^-9 */
};

static int has_kind(const char *kinds, int k) { return (int)strlen(kinds) > k; }

/* A kernel of one thread that executes it. */
static void write_kernel(char *text, size_t size, const known *k)
{
    static const char *const read[] = {"cvt.u16.u64 %%rs%d, %%rd%d;", "cvt.u32.u64 %%r%d, %%rd%d;",
                                       "mov.b64 %%rl%d, %%rd%d;", "setp.ne.s64 %%p%d, %%rd%d, 0;"};
    static const char *const write[] = {"cvt.u64.u16 %rd9, %rs0;", "cvt.u64.u32 %rd9, %r0;",
                                        "mov.b64 %rd9, %rl0;", "selp.b64 %rd9, 1, 0, %p0;"};
    static const char *const names[] = {"%rs", "%r", "%rl", "%p"};
    const char *const order = "hwlp";
    int at = snprintf(
        text, size,
        ".version 9.0\n.entry f(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 out)\n{\n"
        ".reg .pred %%p<4>; .reg .b16 %%rs<4>; .reg .b32 %%r<4>; .reg .b64 %%rl<4>; .reg .b64 %%rd<10>;\n"
        "ld.param.u64 %%rd1, [a]; ld.param.u64 %%rd2, [b]; ld.param.u64 %%rd3, [c];\n"
        "ld.param.u64 %%rd4, [out];\n");
    for (int o = 1; has_kind(k->kinds, o); o++)
        at += snprintf(text + at, size - (size_t)at, read[strchr(order, k->kinds[o]) - order], o, o);
    at += snprintf(text + at, size - (size_t)at, "\n%s", k->opcode);
    for (int o = 0; has_kind(k->kinds, o); o++)
        at += snprintf(text + at, size - (size_t)at, "%s %s%d", o ? "," : "",
                       names[strchr(order, k->kinds[o]) - order], o);
    snprintf(text + at, size - (size_t)at, ";\n%s\nst.global.u64 [%%rd4], %%rd9;\nret;\n}\n",
             write[strchr(order, k->kinds[0]) - order]);
}

static uint64_t execute(const known *k)
{
    char text[2048];
    uint64_t a = k->a, b = k->b, c = k->c, result = 0;
    void *out = &result;
    ptx_machine *const machine = ptx_open(NULL);
    write_kernel(text, sizeof text, k);
    const char *const error = ptx_load(machine, k->opcode, text);
    if (error) fail_msg("%s\n%s", error, text);
    ptx_add_memory(machine, &result, sizeof result, 0);
    ptx_launch(machine, 0, 1, 1, (void *[]){&a, &b, &c, &out});
    assert_int_equal(ptx_n_finding(machine), 0);
    ptx_close(machine);
    return result;
}

static void single_instructions(void **state)
{
    int wrong = 0;
    for (size_t k = 0; k < N_OF(knowns); k++) {
        const uint64_t got = execute(&knowns[k]);
        if (got == knowns[k].result) continue;
        wrong++;
        print_message("%s of %llx, %llx, %llx: got %llx, not %llx\n", knowns[k].opcode,
                      (unsigned long long)knowns[k].a, (unsigned long long)knowns[k].b,
                      (unsigned long long)knowns[k].c, (unsigned long long)got,
                      (unsigned long long)knowns[k].result);
    }
    assert_int_equal(wrong, 0);
}

/* --- Conversions ---------------------------------------------------------------------------------------- */

static void each_f16_has_its_value(void **state)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const float a = ptx_f16_value(bits), b = tandem_f32_of_f16((uint16_t)bits);
        assert_true(a != a ? b != b : ptx_raw_bits(a) == ptx_raw_bits(b));
    }
    for (uint32_t code = 0; code < 0x100; code++) {
        const float a = ptx_f16_value(ptx_f16_of_e4m3(code)), b = tandem_f32_of_e4m3((uint8_t)code);
        const float c = ptx_f16_value(ptx_f16_of_e5m2(code)), d = tandem_f32_of_e5m2((uint8_t)code);
        assert_true((a == b || (a != a && b != b)) && (c == d || (c != c && d != d)));
    }
}

/* Numbers of all magnitudes, and those halfway between two of f16 and of bf16. */
static void floats_round_to_narrow_ones(void **state)
{
    uint64_t drawn = 88172645463325252;
    for (int k = 0; k < 400000; k++) {
        drawn ^= drawn << 13, drawn ^= drawn >> 7, drawn ^= drawn << 17;
        const uint32_t cut[] = {0xFFFFFFFF, 0xFFFFF000, 0xFFFF8000, 0xFFFFE000},
                       bits = (uint32_t)drawn & cut[k % 4];
        const float x = ptx_float(bits);
        if (x != x) continue;
        assert_int_equal(ptx_round(PTX_F16, x), tandem_f16_of(x));
        assert_int_equal(ptx_round(PTX_BF16, x), tandem_bf16_of(x));
        assert_int_equal(ptx_round(PTX_E4M3, x), tandem_e4m3_of(x));
        assert_int_equal(ptx_round(PTX_E5M2, x), tandem_e5m2_of(x));
    }
}

/* --- Matrices ------------------------------------------------------------------------------------------- */

/* One warp: c = a·b of a (16, 16) by rows and b (8, 16) by columns, through shared memory. */
static const char product[] =
    ".version 9.0\n.entry f(.param .u64 a, .param .u64 b, .param .u64 c)\n{\n"
    ".reg .b32 %r<40>; .reg .b64 %rd<20>; .shared .align 16 .b8 tile[768];\n"
    "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];\n"
    "mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mul.wide.u32 %rd4, %r1, 16; mul.wide.u32 %rd5, %r1, 8;\n"
    "add.s64 %rd6, %rd1, %rd4; add.s64 %rd7, %rd2, %rd5;\n"
    "ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd6]; ld.global.v2.u32 {%r7, %r8}, [%rd7];\n"
    "shl.b32 %r9, %r1, 4; add.s32 %r9, %r9, %r2; st.shared.v4.u32 [%r9], {%r3, %r4, %r5, %r6};\n"
    "shl.b32 %r10, %r1, 3; add.s32 %r10, %r10, %r2; st.shared.v2.u32 [%r10+512], {%r7, %r8}; bar.sync 0;\n"
    "and.b32 %r11, %r1, 15; shr.u32 %r12, %r1, 4; shl.b32 %r11, %r11, 5; shl.b32 %r12, %r12, 4;\n"
    "add.s32 %r11, %r11, %r12; add.s32 %r11, %r11, %r2;\n"
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r13, %r14, %r15, %r16}, [%r11];\n"
    "and.b32 %r17, %r1, 7; shr.u32 %r18, %r1, 3; and.b32 %r18, %r18, 1; shl.b32 %r17, %r17, 5;\n"
    "shl.b32 %r18, %r18, 4; add.s32 %r17, %r17, %r18; add.s32 %r17, %r17, %r2;\n"
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r19, %r20}, [%r17+512];\n"
    "mov.b32 %r21, 0;\n"
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r22, %r23, %r24, %r25}, {%r13, %r14, %r15, %r16},\n"
    "    {%r19, %r20}, {%r21, %r21, %r21, %r21};\n"
    "shr.u32 %r26, %r1, 2; shl.b32 %r26, %r26, 5; and.b32 %r27, %r1, 3; shl.b32 %r27, %r27, 3;\n"
    "add.s32 %r26, %r26, %r27; cvt.u64.u32 %rd8, %r26; add.s64 %rd9, %rd3, %rd8;\n"
    "st.global.v2.u32 [%rd9], {%r22, %r23}; st.global.v2.u32 [%rd9+256], {%r24, %r25}; ret;\n}\n";

static void matrices_are_multiplied(void **state)
{
    _Alignas(16) static uint16_t a[16][16], b[8][16];
    _Alignas(16) static float c[16][8];
    for (int truncates = 0; truncates < 2; truncates++) {
        const ptx_options options = {.seed = 3, .truncates = truncates};
        ptx_machine *const machine = ptx_open(&options);
        for (int i = 0; i < 16; i++)
            for (int k = 0; k < 16; k++) a[i][k] = tandem_f16_of((float)((i * 7 + k * 3) % 11 - 5));
        for (int j = 0; j < 8; j++)
            for (int k = 0; k < 16; k++) b[j][k] = tandem_f16_of((float)((j * 5 + k) % 7 - 3));
        const char *const error = ptx_load(machine, "product", product);
        if (error) fail_msg("%s", error);
        ptx_add_memory(machine, a, sizeof a, 1);
        ptx_add_memory(machine, b, sizeof b, 1);
        ptx_add_memory(machine, c, sizeof c, 0);
        void *at_a = a, *at_b = b, *at_c = c;
        ptx_launch(machine, 0, 1, 32, (void *[]){&at_a, &at_b, &at_c});
        assert_int_equal(ptx_n_finding(machine), 0);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                float sum = 0;
                for (int k = 0; k < 16; k++) sum += tandem_f32_of_f16(a[i][k]) * tandem_f32_of_f16(b[j][k]);
                assert_float_equal(c[i][j], sum, 0);
            }
        ptx_close(machine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_instructions), cmocka_unit_test(each_f16_has_its_value),
        cmocka_unit_test(floats_round_to_narrow_ones), cmocka_unit_test(matrices_are_multiplied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
