#!/bin/bash
# Everything that must hold before a change lands: the tests, lint, and tests under sanitizers. A stage that
# fails does not stop the next. Ends with what failed, a line for each stage, and a last line that adds up all
# tests; the exit code is 0 where none failed. usage: scripts/check.sh [--all]
#   --all     all tests under the address and undefined-behaviour sanitizers, and runs that are ended as they
#             start ten times as often. Without it, only those that find
#   most in little
#             time: of parsers, failed allocations, damaged files, kernels, and one training of each kind.
# Under the thread sanitizer, both run what has threads: the exchange between ranks, trainings, planners,
# cards.
set -u
cd "$(dirname "$0")/.." || exit 5
export WERROR=-Werror
address='unit fault fuzz/fuzz slurm/test cli/run conformance/test_isa conformance/test_gradients'
address+=' property/test_training_variants'
starts=20
[ "${1:-}" != --all ] || address='' starts=200
threads='fault/test_comm property/test_training property/test_delayed unit/test_planner'
threads+=' cuda/test_cuda_training cuda/test_cuda_capture'

log=$(mktemp) stages=$(mktemp) failures=$(mktemp)
trap 'rm -f "$log" "$stages" "$failures"' EXIT
passed=0 failed=0 skipped=0

# stage NAME COMMAND…: runs it, shows what it prints, and adds up its closing line; one without such a line is
# one test.
stage() {
    local name=$1 begin=$SECONDS code ok bad skip
    echo "--- $name"
    "${@:2}" 2>&1 | tee "$log"
    code=${PIPESTATUS[0]}
    read -r ok bad skip < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' \
        "$log" | tail -n 1)
    if [ -z "${ok:-}" ]; then
        ok=$((code == 0)) bad=0 skip=0
    fi
    [ "$code" = 0 ] || [ "$bad" != 0 ] || bad=1
    printf '%-10s %4d passed %2d failed %2d skipped %5d s\n' "$name" "$ok" "$bad" "$skip" \
        $((SECONDS - begin)) >>"$stages"
    [ "$bad" = 0 ] || {
        echo "$name:"
        sed -n '/^failed:$/,/^[a-z].*tests/p' "$log" | grep '^ ' || tail -n 20 "$log"
    } >>"$failures"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
}

stage tests env STARTS=$starts make --no-print-directory test LONG=1
stage lint make --no-print-directory lint
[ "${1:-}" != --all ] || stage neighbours tests/fault/neighbours.sh
[ "${1:-}" != --all ] || stage ptx make --no-print-directory check-ptx
stage address make --no-print-directory SAN=address,undefined test ONLY="$address"
stage threads make --no-print-directory SAN=thread test ONLY="$threads"
echo "---"
cat "$failures" "$stages"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
