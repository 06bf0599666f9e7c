#!/bin/bash
# `make fuzz TARGET=NAME` and `make fuzz-minimise TARGET=NAME`: tests/fuzz/fuzz_NAME.c under libFuzzer, with
# coverage guidance and the address and undefined-behaviour sanitizers, in build/fuzz. What it finds
# new lies in build/fuzz/grown/NAME.
#
#   fuzz      runs for TIME seconds (600) or RUNS executions, whichever ends first; inputs of up to MAX_LEN
#             bytes (4096). Prints the number of executions. Exit code 1, and the input's path, where an input
#             breaks a law. SEED=N repeats a run.
#   minimise  adds to tests/fuzz/corpus/NAME the fewest and smallest inputs that cover more than it has, and
#             removes those that no longer add anything. Files with names that people gave stay as they are.
#
# TANDEM_FUZZ_ROOT: a folder with a program libfuzzer_NAME that is built already. Skips aloud where clang or
# its libFuzzer is not here.
set -u
cd "$(dirname "$0")/.." || exit 5
action=$1 name=${2:-}
cc=${FUZZ_CC:-clang-14}
root=${TANDEM_FUZZ_ROOT:-build/fuzz} corpus=${TANDEM_CORPUS:-tests/fuzz/corpus/$name}
program=$root/libfuzzer_$name
grown=$root/grown/$name log=$root/$name.log
most_files=200 most_bytes=262144

if [ -z "$name" ] || { [ -z "${TANDEM_FUZZ_ROOT:-}" ] && [ ! -f "tests/fuzz/fuzz_$name.c" ]; }; then
    echo "usage: make fuzz TARGET=NAME [TIME=600] [RUNS=1000000] [MAX_LEN=4096]; NAME is one of:"
    for target in tests/fuzz/fuzz_*.c; do basename "$target" .c; done | sed -n 's/^fuzz_//p' |
        grep -v '^main$' | paste -sd ' '
    exit 2
fi
# shellcheck disable=SC2086 # a compiler may be two words
library=$($cc -print-file-name=libclang_rt.fuzzer_no_main-x86_64.a 2>/dev/null)
if [ ! -f "$library" ]; then
    echo "SKIP $action $name: $cc with libFuzzer is not here; apt-get install clang-14"
    exit 0
fi
if [ -z "${TANDEM_FUZZ_ROOT:-}" ]; then
    MAKEFLAGS='' make --no-print-directory -j"${JOBS:-$(nproc)}" B="$root" CC="$cc" CXX="$cc" OPT='-O1 -g' \
        WARN=-w \
        SAN=fuzzer-no-link,address,undefined "$program" || exit 1
fi
mkdir -p "$grown" "$corpus" || exit 5
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
options=(-seed="${SEED:-0}" -timeout=20 -rss_limit_mb=2560 -max_len="${MAX_LEN:-4096}"
    -artifact_prefix="$root/$name-")

# A number of the last run: of libFuzzer's closing statistics, or of its last line on coverage.
figure() { sed -n "s/.*$1 *\([0-9][0-9]*\).*/\1/p" "$log" | tail -n 1; }

fuzz() {
    local code
    TANDEM_FUZZ_SEEDS=$grown "$program" "${options[@]}" -max_total_time="${TIME:-600}" -runs="${RUNS:--1}" \
        -print_final_stats=1 -reload=0 "$grown" "$corpus" >"$log" 2>&1
    code=$?
    if [ "$code" != 0 ]; then
        grep -vE '^#[0-9]+.*(NEW|REDUCE|pulse)' "$log" | tail -n 60
        grep -aoE "Test unit written to .*" "$log" | sed "s|^Test unit written to|run it again: $program|"
    fi
    echo "fuzz $name: $(figure stat::number_of_executed_units:) executions, $(figure \
        ' cov:') edges covered," \
        "$([ "$code" = 0 ] && echo 'no finding' || echo "a finding (exit code $code); all of it: $log")"
    [ "$code" = 0 ] || exit 1
}

# fewest INTO OPTION…: what people named, and of all other inputs those that add to it.
fewest() {
    local into=$1
    shift
    rm -rf "$into" && mkdir -p "$into" || exit 5
    find "$corpus" -type f -regextype posix-extended -not -regex '.*/[0-9a-f]{40}' -exec cp -t "$into" {} +
    "$program" "${options[@]}" "$@" -merge=1 "$into" "$corpus" "$grown" >"$log" 2>&1 && return
    tail -n 40 "$log"
    exit 1
}
minimise() {
    local into=$root/minimised/$name
    fewest "$into"
    # Too much to keep: a file for each edge alone, and not for how often it was passed.
    if [ "$(find "$into" -type f | wc -l)" -gt $most_files ] ||
        [ "$(cat "$into"/* | wc -c)" -gt $most_bytes ]; then
        fewest "$into" -use_counters=0
    fi
    find "$corpus" -type f -delete
    cp "$into"/* "$corpus"/
    echo "fuzz-minimise $name: $(find "$corpus" -type f | wc -l) files, $(cat "$corpus"/* |
        wc -c) bytes in $corpus"
}
$action
