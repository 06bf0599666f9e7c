#!/bin/bash
# What the machine code of the CUDA kernels must always hold (scripts/kernel_limits.py), and whether the
# script reads machine code right: of kernels whose PTX is here, and beside what ptxas printed of ours. Needs
# no card. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
limits=$(cd "$(dirname "$0")/../../scripts" && pwd)/kernel_limits.py
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
library=$build/libtandem_cuda.so
nvcc=$(ls /usr/local/cuda/bin/nvcc 2>/dev/null || command -v nvcc)
if [ -z "$nvcc" ] || [ ! -e "$library" ] || ! python3 -c '' 2>/dev/null ||
    ! command -v c++filt >/dev/null; then
    skip "limits of the CUDA kernels" "nvcc, $library, python3 or c++filt is not here"
    echo "1..$n"
    exit 0
fi
read_limits() {
    python3 "$limits" "$@" >out 2>err
    code=$?
}

holds="no local memory, no 64-bit division in a main loop, 16 bytes an access where octets are"
holds+=", changes of type within their bytes' time"
read_limits --library "$library" --check
if grep -q 'no kernels of sm_90' err; then
    skip "$holds" "$library has no kernels of sm_90"
else
    report "$holds" $code
    read_limits --library "$library" --resources
    awk "/Compiling entry function .*'sm_90'/ { name = \$7; gsub(/'/, \"\", name) }
         /bytes stack frame/ && name { local = \$1 }
         /: Used/ && name {
             smem = 0; for (i = 6; i < NF; i++) if (\$(i + 2) ~ /^smem/) smem = \$i
             print name, \$5, smem, local; name = \"\" }" \
        "$build"/obj/kernels/cuda/*.cu.o.log | sort >printed
    sort out >seen
    [ -s printed ] && diff printed seen >>err
    report "registers, shared and local memory as ptxas printed them" $?
fi

# --- Kernels that are known
# ---------------------------------------------------------------------------------------------------- kernel
# NAME BODY: a loop whose %a is an address in global memory, another one each time.
kernel() {
    cat <<PTX
.visible .entry $1(.param .u64 x, .param .u32 n) .maxntid 256 {
    .reg .b64 %a, %b, %d<4>; .reg .b32 %i, %n, %r<8>; .reg .pred %p;
    ld.param.u64 %a, [x]; ld.param.u32 %n, [n]; mov.u32 %i, %tid.x;
    cvta.to.global.u64 %a, %a; mad.wide.u32 %a, %i, 16, %a;
go: .pragma "nounroll"; $2
    add.u64 %a, %a, 65536; add.u32 %i, %i, 4096; setp.lt.u32 %p, %i, %n; @%p bra go; ret; }
PTX
}
four='{%r0, %r1, %r2, %r3}' more='{%r4, %r5, %r6, %r7}'
{
    printf '.version 8.0\n.target sm_90\n.address_size 64\n'
    kernel copies "ld.global.v4.u32 $four, [%a]; ld.global.v4.u32 $more, [%a+32768];
        add.u32 %r0, %r0, %r4; add.u32 %r1, %r1, %r5; add.u32 %r2, %r2, %r6; add.u32 %r3, %r3, %r7;
        st.global.v4.u32 [%a], $four;"
    kernel follows "ld.global.u64 %b, [%a]; ld.global.u64 %d0, [%b]; st.global.u64 [%a], %d0;"
    kernel divides ".local .align 4 .b8 stack[64]; ld.global.v2.u64 {%d0, %d1}, [%a];
        rem.u64 %d2, %d0, %d1; and.b64 %d2, %d2, 56; cvt.u32.u64 %r0, %d2;
        st.local.u32 [stack], %n; mov.u64 %b, stack; add.u64 %b, %b, %d2; ld.local.u32 %r1, [%b];
        st.global.u32 [%a], %r1;"
} >known.ptx
"$(dirname "$nvcc")/ptxas" -arch=sm_90 known.ptx -o known.cubin 2>err
read_limits --library known.cubin
# on_way NAME KB LOADS STORES
on_way() { grep -Eq "^$1 .* 2048  $3 +$4 +$2 " out; }
on_way copies 65.5 2×16 1×16 && on_way follows 16.4 2×8 1×8
report "accesses, and bytes on their way: both loads at once, or one after the other" $?
read_limits --library known.cubin --check
[ $code = 1 ] && grep -q '^divides has .* local memory' out && grep -q '^divides calls .*rem_u64' out &&
    ! grep -Eq '^(copies|follows)' out
report "a kernel with local memory and a 64-bit division is reported" $?

echo "1..$n"
[ $failed = 0 ]
