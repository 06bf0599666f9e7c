#!/bin/bash
# Training by tandem against the same by PyTorch: tests/torch/truth.py. Skipped, aloud, without a Python that
# has PyTorch ($PYTHON, or the first of python3 and /usr/bin/python3 that has it). Speaks TAP. TANDEM_BUILD =
# the build folder.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TANDEM_BUILD:-$here/../../build}" && pwd) || exit 4
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
skip() {
    echo "SKIP: training against PyTorch: $1"
    echo "1..1"
    echo "ok 1 - training against PyTorch # SKIP $1"
    exit 0
}
for python in ${PYTHON:-python3 /usr/bin/python3}; do
    "$python" -c 'import numpy, torch' 2>/dev/null && break
    python=
done
[ -n "$python" ] || skip "no python3 here has PyTorch; apt-get install python3-torch"
# rounding differs least where both compute with fused multiply-adds
device=$("$build/tandem" list devices |
    awk '$1 ~ /^cpu:/ && $2 == "yes" { last = $1 }
        $1 == "cpu:avx2" && $2 == "yes" { print $1; found = 1; exit }
        END { if (!found) print last }')
[ -n "$device" ] || skip "this machine has none of tandem's devices"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
"$python" "$here/truth.py" "$build/tandem" "$device" "$work"
