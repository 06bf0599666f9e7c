#!/bin/bash
# scripts/same_code.sh COMMIT COMMIT...: shows that commits which only rename or move leave the machine code
# as it was.
#
# Builds the product at each commit with -O2 -DNDEBUG and without debug information, and compares with the
# commit before:
#   .text  every executable section of every object, byte by byte; an object follows its source where git sees
#   a move PTX    of every .cu file, where nvcc is here; names are numbered in the order in which they first
#   appear
# The code of the tests is not compared: their assertions hold line numbers. Exit code: 0 all the same, 1 not,
# 2 usage, 5 a build failed.
# Environment: CC, CXX, JOBS (one job per core), TMPDIR.
set -u
cd "$(dirname "$0")/.." || exit 5
if [ $# -lt 2 ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"
    exit 2
fi
root=$(mktemp -d) || exit 5
trap 'git worktree prune; rm -rf "$root"' EXIT
nvcc=$(ls /usr/local/cuda/bin/nvcc 2>/dev/null || command -v nvcc)

# build COMMIT INTO: a folder with NAME.text of each object and NAME.ptx of each kernel file.
build() {
    local tree=$root/tree.$2 into=$root/$2 object name kernel
    git worktree add -q --detach "$tree" "$1" || exit 5
    # The same path at each commit: C++ names of static functions in .cu files are made from it.
    rm -f "$root/tree" && ln -s "$tree" "$root/tree"
    (cd "$root/tree" &&
        MAKEFLAGS='' make --no-print-directory -j"${JOBS:-$(nproc)}" CC="${CC:-gcc}" CXX="${CXX:-g++}" \
        OPT='-O2 -DNDEBUG' NVCC= all build/tests/libtandem_cuda.so >"$root/log" 2>&1) ||
            { tail -n 40 "$root/log"; exit 5; }
    while read -r object; do
        name=$into/${object%.o}.text
        mkdir -p "$(dirname "$name")"
        # Sorted: templates of C++ are in sections whose order follows their names.
        readelf -SW "$tree/build/obj/$object" | sed -n 's/^ *\[ *[0-9]*\] \(\.text[^ ]*\) .*/\1/p' |
            sort -u | while read -r section; do
            objcopy -O binary -j "$section" "$tree/build/obj/$object" "$root/section" &&
                sha256sum <"$root/section"
        done | sort >"$name"
    done < <(cd "$tree/build/obj" && find . -name '*.o' | sed 's|^\./||' | grep -v '^tests/' | sort)
    [ -n "$nvcc" ] || return 0
    while read -r kernel; do
        mkdir -p "$into/$(dirname "$kernel")"
        (cd "$root/tree" &&
            "$nvcc" -I. -Iinclude -D_GNU_SOURCE -std=c++17 -O3 -arch=compute_80 -ptx -o - "$kernel" \
                2>"$root/log") |
            perl -ne 's{//.*}{}; next if /^\.(file|loc)/;
                s/\b([A-Za-z_\$][\w\$]*[A-Za-z]\w*)/$n{$1} \/\/= "n".++$i/ge; print' \
                >"$into/${kernel%.cu}.ptx"
        [ -s "$into/${kernel%.cu}.ptx" ] || { cat "$root/log"; exit 5; }
    done < <(cd "$tree" && git ls-files '*.cu')
}

# Where what was built from a file lies after the commits: `object before<TAB>object after` of each file that
# moved.
moves() {
    git diff -M15% --diff-filter=R --name-status "$1" "$2" |
        sed -n 's/\.proto/.pb-c.c/g; s/^R[0-9]*\t\(.*\)\.\(c\|cc\|cu\)\t\(.*\)\.\(c\|cc\|cu\)$/\1\t\3/p'
}

failed=0
build "$1" 0
n=0
while [ $# -gt 1 ]; do
    build "$2" $((n + 1))
    declare -A to=()
    while IFS=$'\t' read -r from into; do to[$from]=$into; done < <(moves "$1" "$2")
    same=0 other=()
    while read -r file; do
        stem=${file%.*} suffix=${file##*.} folder=
        case $stem in
        isa/*/*) folder=$(cut -d/ -f1,2 <<<"$stem")/ source=kernels/cpu/isa/${stem#"$folder"} ;;
        simt/*) folder=simt/ source=kernels/cuda/${stem#simt/} ;;
        *) source=$stem ;;
        esac
        now=${to[$source]:-$source}
        [ -z "$folder" ] || now=$folder$(basename "$now")
        if cmp -s "$root/$n/$file" "$root/$((n + 1))/$now.$suffix"; then same=$((same + 1)); else \
            other+=("$file"); fi
    done < <(cd "$root/$n" && find . -type f | sed 's|^\./||' | sort)
    echo "$(git log -1 --format='%h %s' "$2"): $same the same, ${#other[@]} not"
    for file in "${other[@]:0:40}"; do echo "    $file"; done
    [ ${#other[@]} = 0 ] || failed=1
    git worktree remove --force "$root/tree.$n"
    n=$((n + 1))
    shift
done
exit $failed
