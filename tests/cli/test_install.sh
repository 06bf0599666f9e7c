#!/bin/bash
# What `make install` puts into place, used by itself: program, backend, headers, library, examples. Nothing
# of the source tree is in reach of what is compiled and run here. Speaks TAP. TANDEM_BUILD = the build
# folder.
set -u
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
build=$(cd "${TANDEM_BUILD:-$source/build}" && pwd) || exit 4
sanitizers=$(basename "$build" | sed 's/^build$//; s/-/,/g')
export LC_ALL=C
unset MAKEFLAGS MFLAGS MAKELEVEL TANDEM_DB TANDEM_DATA TANDEM_STORE TANDEM_BACKEND RANK WORLD_SIZE \
    LOCAL_RANK LD_LIBRARY_PATH
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 5
root=$work/root prefix=/opt/tandem
at=$root$prefix

n=0 failed=0
report() { # report NAME CODE: one line of TAP; on failure with what the last command printed
    n=$((n + 1))
    if [ "$2" = 0 ]; then
        echo "ok $n - $1"
        return
    fi
    echo "not ok $n - $1"
    failed=$((failed + 1))
    { echo "out:"; head -n 30 out; echo "err:"; head -n 30 err; } 2>/dev/null | sed 's/^/# /'
}
skip() {
    n=$((n + 1))
    echo "SKIP: $1: $2"
    echo "ok $n - $1 # SKIP $2"
}
# With the compilers and options of the make that runs this, so that nothing is built again.
make_in_source() { make --no-print-directory -C "$source" SAN="$sanitizers" DESTDIR="$root" \
    PREFIX="$prefix" ${CC:+CC="$CC"} ${CXX:+CXX="$CXX"} ${OPT:+OPT="$OPT"} ${NVCC+NVCC="$NVCC"} \
    "$@" >out 2>err; }

# --- Installing ---
make_in_source install && [ -x "$at/bin/tandem" ] && [ -e "$at/lib/libtandem_backend.so" ] &&
    [ -e "$at/share/man/man1/tandem.1" ]
report "make install" $?

"$at/bin/tandem" --version >out 2>err &&
    [ "$(cat out)" = "tandem $(sed -n 's/^Version: //p' "$at/lib/pkgconfig/tandem.pc")" ]
report "the installed program runs, of the version that pkg-config names" $?

# --- The library: what it shows and what it needs
# ------------------------------------------------------------------------------ Functions that a header
# declares, one a line; headers of the backend's side are left out of the core's.
declared() {
    printf '#include <tandem/%s>\n' "$@" >declared.c
    gcc -std=c11 -I"$at/include" -fsyntax-only -aux-info declared.txt declared.c
    sed -n "/\*\/ static /d; s|^/\* $at/include/tandem/[^(]*[ *]\(tandem_[a-z0-9_]*\) (.*|\1|p" \
        declared.txt | sort -u
}
exported() { nm -D --defined-only --with-symbol-versions "$1" | awk '$2 != "A" { print $3 }' | sort; }
mapfile -t headers < <(cd "$at/include/tandem" && printf '%s\n' *.h advanced/*.h)
mapfile -t of_core < <(printf '%s\n' "${headers[@]}" |
    grep -vxE 'cuda_kernels.h|kernels.h|runtime.h|advanced/(backend|data|device_backend|probe).h')

declared "${of_core[@]}" | sed 's/$/@@TANDEM_0.1/' >expected 2>err
exported "$at/lib/libtandem.so" >out
[ "$(wc -l <expected)" -gt 50 ] && diff expected out >err
report "libtandem.so exports what its headers declare, versioned, and nothing else" $?

declared runtime.h advanced/probe.h "${of_core[@]}" | sed 's/$/@@TANDEM_0.1/' >expected 2>err
exported "$at/lib/libtandem_runtime.so" >out
[ "$(wc -l <expected)" -gt 60 ] && grep -q '^tandem_train@@' expected && diff expected out >err
report "libtandem_runtime.so exports that and what runtime.h declares, versioned, and nothing else" $?

declared kernels.h | sed 's/$/@@TANDEM_0.1/' >expected 2>err
exported "$at/lib/libtandem_kernels.so" >out
[ "$(wc -l <expected)" -gt 10 ] && diff expected out >err
report "libtandem_kernels.so exports what kernels.h and status.h declare, versioned, and nothing else" $?

echo tandem_backend_get >expected
exported "$at/lib/libtandem_backend.so" >out && diff expected out >err
report "libtandem_backend.so exports one function" $?

needs() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
# Sanitizers bring libraries of their own, so with them only what it asks for itself is looked at.
ldd "$at/lib/libtandem.so.0" >out 2>err && ! grep 'not found' out &&
    ! { needs "$at/lib/libtandem.so.0"; [ -n "$sanitizers" ] || cat out; } |
        grep -E 'dnnl|gloo|gomp|libomp|cuda|cublas|cudnn|stdc\+\+' &&
    readelf -d "$at/lib/libtandem.so.0" | grep -q 'SONAME.*\[libtandem\.so\.0\]' &&
        [ "$(readlink "$at/lib/libtandem.so")" = libtandem.so.0 ]
report "libtandem.so.0 needs neither oneDNN nor Gloo, OpenMP, CUDA or C++" $?

needs "$at/lib/libtandem_kernels.so.0" | grep -vE '^lib(m|c|asan|ubsan|tsan)\.so' >out
[ ! -s out ] && readelf -d "$at/lib/libtandem_kernels.so.0" |
    grep -q 'SONAME.*\[libtandem_kernels\.so\.0\]' &&
    [ "$(readlink "$at/lib/libtandem_kernels.so")" = libtandem_kernels.so.0 ]
report "libtandem_kernels.so.0 needs libc and libm" $?

! nm -D --undefined-only "$at/lib/libtandem_backend.so" | grep ' tandem_' >out
report "libtandem_backend.so takes nothing from the program that opens it" $?

readelf -d "$at/lib/libtandem_backend.so" | grep -q 'SONAME.*\[libtandem_backend\.so\]'
report "libtandem_backend.so has the name that it is opened by" $?

# --- Slurm's plug-ins ---
plugins="what slurmd and slurmstepd open links libc alone, and the planner lies beside it"
if [ -n "$sanitizers" ]; then
    skip "$plugins" "no sanitizer fits into Slurm's daemons"
elif [ ! -e /usr/include/slurm/spank.h ]; then
    skip "$plugins" "Slurm's headers are not here (scripts/setup.sh --slurm)"
else
    make_in_source install-slurm SLURM_PLUGIN_DIR=/slurm
    code=$?
    (cd "$root/slurm" && printf '%s\n' *.so) >out
    [ $code = 0 ] && [ "$(cat out)" = "job_submit_tandem.so
spank_tandem.so
spank_tandem_planner.so" ] && [ "$(needs "$root/slurm/spank_tandem.so")" = libc.so.6 ] &&
        needs "$root/slurm/spank_tandem_planner.so" | grep -q sqlite3 &&
        [ "$(needs "$root/slurm/job_submit_tandem.so" | sort | paste -sd ' ')" = "libc.so.6 libm.so.6" ]
    report "$plugins" $?
    rm -r "$root/slurm"
fi

# --- Headers: what planners need is stable ---
gcc -std=c11 -I"$at/include" -M "$at"/share/doc/tandem/examples/{plan,tradeoff}.c >out 2>err &&
    grep -q 'tandem/planner\.h' out && ! grep 'tandem/advanced' out >err
report "the examples that plan include no header of advanced/" $?

# --- Running, from a program of 60 lines ---
whole="docs/examples/loop.c profiles, measures sensitivities, allocates, trains and compares on two ranks"
example=$at/share/doc/tandem/examples/loop.c
devices=$(TANDEM_DB=none "$at/bin/tandem" list devices --json 2>err | grep -c '"present": true')
if [ "${devices:-0}" -lt 2 ] || [ ! -e /usr/share/datasets/fashion-mnist ]; then
    skip "$whole" "this machine is fewer than two of the devices, or lacks the data set"
else
    # shellcheck disable=SC2046 # flags are words
    export PKG_CONFIG_PATH=$at/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
    gcc -std=c11 -Wall -Wextra -Werror \
        ${sanitizers:+-fsanitize=$sanitizers} "$example" \
        $(pkg-config --cflags --libs tandem_runtime) \
        -Wl,-rpath,"$at/lib" -o loop >out 2>err && [ "$(wc -l <"$example")" -le 60 ] &&
        ./loop mlp:width=32 fashion-mnist "strongest + weakest" loop.db loop.json >out 2>err </dev/null &&
        grep -qE '^step predicted [0-9.]+ ms, measured [0-9.]+ ms: .*; loss [0-9.]+ after 30 steps$' out &&
        [ -s loop.db ] && [ -s loop.json ]
    report "$whole" $?
fi

# --- Headers, one by one ---
code=0
: >err
for header in "${headers[@]}"; do # twice, and in a program that has a macro ROW of its own
    printf '#define ROW 7\n#include <tandem/%s>\n#include <tandem/%s>\nint row = ROW;\n' "$header" \
        "$header" >alone.c
    gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$at/include" -fsyntax-only alone.c 2>>err || code=1
    g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$at/include" -fsyntax-only -x c++ alone.c 2>>err ||
        code=1
done
[ "${#headers[@]}" -gt 10 ] || code=1
report "every header compiles alone, as C11 and as C++17" $code

# --- Kernels, without a device, a store or a graph ---
export PKG_CONFIG_PATH=$at/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
pkg-config --cflags --libs tandem_kernels >kernel_flags 2>err &&
    grep -q -- "-I$at/include.* -L$at/lib.* -ltandem_kernels" kernel_flags
report "pkg-config says how to compile and link with the kernels" $?
# multiply NAME COMPILER…: the installed example, complete as it is linked, and what it says of its error
multiply() {
    local name=$1
    shift
    # shellcheck disable=SC2046 # flags are words
    "$@" -Wall -Wextra -Werror ${sanitizers:+-fsanitize=$sanitizers} $(cat kernel_flags) \
        -Wl,-rpath,"$at/lib" -Wl,--no-undefined \
        -lm -o "$name" >out 2>err || return 1
    grep -qE '^flags.*sse4_1' /proc/cpuinfo || { "./$name" sse41 >out 2>err; [ $? = 4 ]; return; }
    "./$name" best >out 2>err &&
        grep -qE '^[a-z0-9_]+: 64 x 48 x 256 in int8, relative error 0\.[0-9]+%$' out &&
        "./$name" sse41 >out.sse41 2>err && [ "$(sed 's/.*: //' out)" = "$(sed 's/.*: //' out.sse41)" ]
}
multiply multiply_int8 gcc -std=c11 "$at/share/doc/tandem/examples/multiply_int8.c"
report "docs/examples/multiply_int8.c multiplies, with the same figures in every instruction set" $?
multiply multiply_cpp g++ -std=c++20 -Wno-missing-field-initializers -x c++ \
    "$at/share/doc/tandem/examples/multiply_int8.c" -x none
report "the same example as C++" $?
./multiply_int8 avx3 >out 2>err
[ $? = 2 ] && [ ! -s out ] && grep -q "^multiply_int8: .*'avx3'.*avx512_vnni" err
report "an instruction set that does not exist is named, with those that do" $?

# --- Kernels on a card: there where nvcc is ---
nvcc=$(ls /usr/local/cuda/bin/nvcc 2>err || command -v nvcc)
cuda=${nvcc%/bin/nvcc}
of_cuda() {
    declared cuda_kernels.h | grep -v '^tandem_kernels_' | sed 's/$/@@TANDEM_0.1/' >expected 2>err
    exported "$at/lib/libtandem_cuda_kernels.so" >out
    [ "$(wc -l <expected)" -gt 10 ] && diff expected out >err
    report "libtandem_cuda_kernels.so exports what cuda_kernels.h, amax_history.h and status.h declare, \
versioned, and nothing else" $?

    needs "$at/lib/libtandem_cuda_kernels.so.0" | grep -vE '^lib(cudart|cublasLt|stdc\+\+|gcc_s|m|c)\.so' >out
    [ ! -s out ] && [ "$(readlink "$at/lib/libtandem_cuda_kernels.so")" = libtandem_cuda_kernels.so.0 ]
    report "libtandem_cuda_kernels.so.0 needs of NVIDIA's libraries libcudart and libcublasLt alone" $?

    pkg-config --cflags --libs tandem_cuda_kernels >cuda_flags 2>err &&
        grep -q -- "-L$at/lib.* -ltandem_cuda_kernels" cuda_flags
    report "pkg-config says how to compile and link with the card's kernels" $?
    quantise quantise_cuda gcc -std=c11 "$at/share/doc/tandem/examples/quantise_cuda.c"
    report "docs/examples/quantise_cuda.c rounds on a card, or says that there is none" $?
    quantise quantise_cpp g++ -std=c++20 -Wno-missing-field-initializers -x c++ \
        "$at/share/doc/tandem/examples/quantise_cuda.c" -x none
    report "the same example as C++" $?
}
quantise() { # quantise NAME COMPILER…
    local name=$1
    shift
    # shellcheck disable=SC2046 # flags are words
    "$@" -Wall -Wextra -Werror $(cat cuda_flags) -isystem "$cuda/include" -L"$cuda/lib64" \
        -lcudart -lcublasLt -Wl,-rpath,"$at/lib:$cuda/lib64" \
        -Wl,--no-undefined -lm -o "$name" >out 2>err || return 1
    "./$name" >out 2>err
    case $? in
    0) grep -qE '^512 x 1024 in int8, a scale a row: relative error 0\.[0-9]+%$' out ;;
    4) grep -q '^quantise_cuda: the card: ' err && [ ! -s out ] ;;
    *) return 1 ;;
    esac
}
if [ -e "$at/lib/libtandem_cuda_kernels.so" ]; then
    of_cuda
else
    skip "libtandem_cuda_kernels.so" "it is built where nvcc is, and without sanitizers"
fi

# --- A store, by the installed program and its installed backend ---
device=$("$at/bin/tandem" list devices --json | grep -B 2 '"present": true' |
    sed -n 's/.*"name": "\(.*\)".*/\1/p' | head -n 1)
model="gpt_tiny:width=16,depth=1,heads=2,length=8"
if [ -z "$device" ]; then
    skip "examples" "this machine is none of the devices"
    echo "1..$n"
    exit $failed
fi
yes 'mixed devices train one model together, each in the precision that suits it' | head -c 20000 >text
"$at/bin/tandem" profile --model "$model" --batch 16 --device "$device,$device" --repetitions 3 -q >out \
    2>err &&
    "$at/bin/tandem" sensitivity --model "$model" --batch 16 --device "$device" --data "$PWD/text" --steps \
        2 -q >out 2>err && [ -s tandem.db ]
report "the installed program profiles: it finds the installed backend" $?

# --- Examples, by pkg-config ---
pkg-config --cflags --libs tandem >flags 2>err && grep -q -- "-I$at/include.* -L$at/lib.* -ltandem" flags
report "pkg-config says how to compile and link" $?
example() { # example NAME STANDARD-AND-COMPILER…: an installed example, compiled
    local name=$1
    shift
    # shellcheck disable=SC2046 # flags are words
    "$@" -Wall -Wextra -Werror ${sanitizers:+-fsanitize=$sanitizers} \
        "$at/share/doc/tandem/examples/$name.c" $(cat flags) \
        -Wl,-rpath,"$at/lib" -o "$name" >out 2>err
}
cluster="$device + $device"

example plan gcc -std=c11 && ./plan tandem.db "$model" "$cluster" plan.json >out 2>err &&
    [ "$(grep -cE "^$device:( [0-9]+ [a-z0-9_]+)+, [0-9.]+ MiB" out)" = 2 ] &&
    grep -qE '^step [0-9.]+ ms' out && grep -qE '^no (bound|plan has less)' out
report "docs/examples/plan.c gives each device its precisions, and the certificate" $?

"$at/bin/tandem" allocate --model "$model" --device "$device,$device" -o - -q >out 2>err &&
    grep -q '^  "made": {"command": "tandem allocate ' out && diff plan.json <(grep -v '^  "made": ' out) >err
report "its plan is the one that tandem allocate writes" $?

./plan tandem.db "$model" "cpu:avx3" none.json >out 2>err
[ $? = 2 ] && [ ! -s out ] && [ ! -e none.json ] && grep -q "^plan: .*cpu:avx" err
report "what is wrong is said, and the exit code is the status's" $?

example tradeoff gcc -std=c11 && ./tradeoff tandem.db "$model" "$cluster" 1GiB >out 2>err &&
    [ "$(wc -l <out)" = 8 ] &&
    [ "$(grep -cE '^ +[0-9]+% +[0-9.]+ +[0-9.e+-]+ +[0-9]+$' out)" = 7 ] &&
        ./tradeoff tandem.db "$model" "$cluster" 1KiB >out 2>err
[ $? = 1 ] && [ "$(wc -l <out)" = 1 ] && grep -q '^tradeoff: no plan fits' err
report "docs/examples/tradeoff.c: a row for each slowdown, and the memory limit kept" $?

cat >version.cc <<'END'
#include <cstdio>
#include <tandem/planner.h>
int main()
{
    tandem_planner *planner = nullptr;
    tandem_error error = {};
    tandem_request request = {};
    const tandem_status status = tandem_planner_open(&planner, &request, &error);
    std::printf("%s %s: %s\n", TANDEM_VERSION, tandem_status_name(status), error.text);
}
END
# shellcheck disable=SC2046
g++ -std=c++17 -Wall -Wextra -Werror ${sanitizers:+-fsanitize=$sanitizers} version.cc $(cat flags) \
    -Wl,-rpath,"$at/lib" -o version >out 2>err &&
    ./version >out 2>err && grep -q 'USAGE: no model given' out
report "a C++ program links the library" $?

# --- Another folder for libraries ---
root=$root/other make_in_source install LIBDIR=$prefix/lib/multi &&
    [ -e "$root/other$prefix/lib/multi/libtandem_backend.so" ] &&
    [ ! -e "$root/other$prefix/lib/libtandem.so" ] &&
    grep -qx "libdir=\${prefix}/lib/multi" "$root/other$prefix/lib/multi/pkgconfig/tandem.pc" &&
    root=$root/other make_in_source uninstall LIBDIR=$prefix/lib/multi
report "make install LIBDIR=… puts libraries there, and pkg-config finds them" $?

# --- Uninstalling ---
make_in_source uninstall && [ -z "$(find "$root" ! -type d)" ] && [ ! -e "$at/include/tandem" ]
report "make uninstall leaves nothing" $?

echo "1..$n"
[ $failed = 0 ]
