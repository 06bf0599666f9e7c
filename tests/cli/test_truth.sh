#!/bin/bash
# Twenty drawn problems of `tandem allocate` (six without LONG=1), each answer against every plan there is,
# through the program and through planner.h (tests/truth). `make check-truth` judges 300. Speaks TAP.
# TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

if ! command -v python3 >/dev/null; then
    skip "allocations against every plan" "python3 is not here; apt-get install python3"
    echo "1..1"
    exit
fi
problems=(0 59 112 170 253)
is_long || echo "# left out: fourteen of twenty problems against every plan"
! is_long || problems+=(7 41 56 65 69 86 136 158 167 185 214 233 274 290)
# A profile takes minutes with a sanitizer.
if [ "$(basename "$build")" = build ]; then
    problems+=(294)
else
    echo "SKIP: a measured problem: a profile takes minutes with a sanitizer"
fi
code=0
"$here/../truth/check_truth.py" "$build" --store "$work/truth" --tap "${problems[@]/#/--problem=}" || code=1
# Found by other seeds: the fastest plan has no f16, and base has; a baseline that a policy misses.
"$here/../truth/check_truth.py" "$build" --store "$work/truth" --tap --seed 3 --problem=173 || code=1
"$here/../truth/check_truth.py" "$build" --store "$work/truth" --tap --seed 2 --problem=230 || code=1
exit $code
