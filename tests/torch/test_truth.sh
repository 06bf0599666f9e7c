#!/bin/bash
# Training by tandem against the same by PyTorch: tests/torch/truth.py. Skipped, aloud, without a Python that
# has PyTorch (find_python.sh). Speaks TAP. TANDEM_BUILD = the build folder.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TANDEM_BUILD:-$here/../../build}" && pwd) || exit 4
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
# shellcheck source=tests/torch/find_python.sh
. "$here/find_python.sh"
name="training against PyTorch"
[ -n "$python" ] || skip_all "$name" "$no_python"
# rounding differs least where both compute with fused multiply-adds
device=$("$build/tandem" list devices |
    awk '$1 ~ /^cpu:/ && $2 == "yes" { last = $1 }
        $1 == "cpu:avx2" && $2 == "yes" { print $1; found = 1; exit }
        END { if (!found) print last }')
[ -n "$device" ] || skip_all "$name" "this machine has none of tandem's devices"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
"$python" "$here/truth.py" "$build/tandem" "$device" "$work"
