#!/bin/bash
# Imported models against PyTorch (truth.py), and ONNX's own node cases (nodes.py). Skipped, aloud, without
# Debian's packages. usage: run.sh BUILD
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd) || exit 4
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
cases=/usr/share/libonnx-testdata/data
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
device=$("$build/tandem" list devices | awk '$1 ~ /^cpu:/ && $2 == "yes" { last = $1 }
    $1 == "cpu:avx2" && $2 == "yes" { print $1; found = 1; exit } END { if (!found) print last }')
failed=0
if ! /usr/bin/python3 -c 'import onnx, numpy' 2>/dev/null; then
    echo "SKIP: ONNX's node cases: apt-get install python3-onnx"
elif [ ! -d $cases ]; then
    echo "SKIP: ONNX's node cases: apt-get install libonnx-testdata"
else
    /usr/bin/python3 "$here/nodes.py" "$build/tests/onnx/train_steps" "$device" "$work" $cases || failed=1
fi
if ! /usr/bin/python3 -c 'import torch, torchvision' 2>/dev/null; then
    echo "SKIP: imported models against PyTorch:" \
        "apt-get install python3-torch python3-torchvision libopenblas0"
else
    /usr/bin/python3 "$here/truth.py" "$build/tandem" "$build/tests/onnx/train_steps" "$device" "$work" ||
        failed=1
fi
exit $failed
