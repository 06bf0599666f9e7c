#!/bin/bash
# Looks at words and structure (scripts/lint_text.pl, lint_structure.pl). Reads every C file that git knows
# with clang-tidy 14 (.clang-tidy, tests/.clang-tidy) and cppcheck 2.10. Prints what it ran; exits 1 where
# either has found something. A tool that is absent is skipped aloud.
# shellcheck disable=SC2016,SC2317 # xargs calls tidy, which calls flags_of
set -u
cd "$(dirname "$0")/.." || exit 5
export generated=${B:-build}/generated
make --no-print-directory "$generated/schema_sql.h" "$generated/page_css.h" "$generated/page_js.h" \
    "$generated/measured_tables.h" "$generated/profiles/format/chakra.pb-c.h" \
    "$generated/graph/onnx/onnx.pb-c.h" || exit 5
mapfile -t sources < <(git ls-files '*.c')
if [ ! -e /usr/include/slurm/spank.h ]; then
    echo "SKIP what includes Slurm's headers: they are not installed; scripts/setup.sh --slurm"
    mapfile -t sources < <(grep -L '#include <slurm/' "${sources[@]}")
fi
if [ ! -e /usr/local/cuda/include/cublasLt.h ]; then
    echo "SKIP what includes CUDA's headers: they are not installed; CUDA Toolkit 13 with cuDNN 9"
    mapfile -t sources < <(grep -LE '#include (<(cuda|cublas|cudnn|nvml)|"backend/cuda/libraries\.h")' \
        "${sources[@]}")
fi
jobs=$(nproc)
log=$(mktemp) && trap 'rm -f "$log"' EXIT
found=0

# The Makefile's flags, as far as they change what is read.
flags_of() {
    printf '%s\n' -std=c11 -D_GNU_SOURCE -I. -Iinclude "-I$generated"
    if [ -d /usr/local/cuda/include ]; then printf '%s\n' -isystem/usr/local/cuda/include; fi
    case $1 in
    kernels/cpu/isa/* | backend/cpu/isa/*) printf '%s\n' -DTANDEM_ISA=avx2 -mavx2 -mfma -mf16c ;;
    base/status.c | backend/cpu/kernel.c | cli/output.c) ;; # they define what the model is of
    backend/cpu/*) printf '%s\n' -DTANDEM_LINT_CPU -include scripts/lint_model.h ;;
    cli/* | research/* | tools/* | bench/program/*)
        printf '%s\n' -DTANDEM_LINT_CLI -include scripts/lint_model.h ;;
    *) printf '%s\n' -include scripts/lint_model.h ;;
    esac
}
tidy() {
    local flags found code
    mapfile -t flags < <(flags_of "$1")
    found=$("$clang_tidy" --quiet "$1" -- "${flags[@]}" 2>/dev/null)
    code=$?
    case $code,$found in
    0,* | *": error: "*) ;;
    *) found="$1:1:1: error: $clang_tidy ended with $code and found nothing" ;;
    esac
    [ -z "$found" ] || printf '%s\n' "$found" | sed "s|^$PWD/||"
}
export -f flags_of tidy

# report NAME: the log of a tool that has run over all sources; says how many findings it holds.
report() {
    local n
    n=$(grep -cE ': (error|warning|performance|portability): ' "$log")
    cat "$log"
    echo "$1: ${#sources[@]} files, $n findings"
    [ "$n" = 0 ] || found=1
}

# Words, columns, paths and names; then how the folders depend on each other, by the objects of a finished
# build.
perl scripts/lint_text.pl || found=1
perl scripts/lint_structure.pl "${B:-build}" || found=1
perl scripts/structs.pl | cmp - python/tandem/_structs.py ||
    { echo "python/tandem/_structs.py: not what the headers say: make structs"; found=1; }

clang_tidy=$(command -v clang-tidy-14 || command -v clang-tidy)
export clang_tidy
if [ -n "$clang_tidy" ]; then
    echo "$clang_tidy, $("$clang_tidy" --version | sed -n 's/.*\(LLVM version\)/\1/p'), $jobs at a time"
    printf '%s\0' "${sources[@]}" | xargs -0 -P "$jobs" -I{} bash -c 'tidy "$1"' _ {} >"$log"
    # A finding in a header comes once for each reader.
    sort -u -o "$log.headers" <(grep -E ': (error|warning): ' "$log")
    mv "$log.headers" "$log"
    report clang-tidy
else
    echo "SKIP clang-tidy: it is not installed; apt-get install clang-tidy-14"
fi

# Style is left to clang-tidy (arrayIndexThenCheck is style, too). legacyUninitvar takes a variable that is
# set through a pointer within && for unset.
if command -v cppcheck >/dev/null; then
    echo "$(cppcheck --version), $jobs at a time"
    printf '%s\n' "${sources[@]}" |
        cppcheck -j "$jobs" --quiet --language=c --std=c11 --enable=warning,performance,portability \
            --inline-suppr \
            --suppress=legacyUninitvar --suppress=arrayIndexThenCheck \
                --suppress='preprocessorErrorDirective:*pb-c.h' \
                    --template='{file}:{line}: {severity}: {message} [{id}]' \
            -D_GNU_SOURCE -D__x86_64__ -DTANDEM_ISA=avx2 -D__AVX2__ -I. -Iinclude "-I$generated" \
                --file-list=- 2>"$log"
    report cppcheck
else
    echo "SKIP cppcheck: it is not installed; apt-get install cppcheck"
fi
exit "$found"
