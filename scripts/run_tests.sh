#!/bin/bash
# Runs test programs one after the other and ends with one line: how many tests passed, failed and were skipped.
# Programs of cmocka speak TAP (one line a test); others (fuzz targets) count as one test each. B = the build folder.
set -u
export CMOCKA_MESSAGE_OUTPUT=TAP
export TANDEM_BUILD=${B:-build}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-die_after_fork=0:suppressions=$PWD/tests/tsan.supp}
export OMP_NUM_THREADS=1
passed=0 failed=0 skipped=0
log=$(mktemp); trap 'rm -f "$log"' EXIT
for program in "$@"; do
    name=${program##*tests/}
    begin=$(date +%s)
    timeout "${TEST_TIMEOUT:-300}" "$program" >"$log" 2>&1
    code=$?
    ok=$(grep -cE '^ok [0-9]+ - ' "$log"); bad=$(grep -cE '^not ok [0-9]+ - ' "$log"); skip=$(grep -cE '^(not )?ok [0-9]+ .*# SKIP' "$log")
    ok=$((ok - skip)); [ "$ok" -ge 0 ] || ok=0
    if [ "$((ok + bad + skip))" = 0 ]; then
        if [ "$code" = 0 ]; then ok=1; else bad=1; fi
    elif [ "$code" != 0 ] && [ "$bad" = 0 ]; then
        bad=1
    fi
    printf '%-44s %3d passed %2d failed %2d skipped  %3ds\n' "$name" "$ok" "$bad" "$skip" "$(($(date +%s) - begin))"
    grep -E 'SKIP' "$log" | grep -vE '^(not )?ok' | sed 's/^/    /'
    if [ "$bad" != 0 ]; then
        echo "    exit code $code; what it printed:"
        tail -n 40 "$log" | sed 's/^/    /'
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
