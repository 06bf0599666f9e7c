#!/bin/bash
# bench/torch/peer.py: a PyTorch with the slow reference BLAS is refused, and what is compared with is named.
# Skipped, aloud, without a Python that has PyTorch (find_python.sh). Speaks TAP.
set -u
here=$(cd "$(dirname "$0")" && pwd)
peer=$here/../../bench/torch/peer.py reference=/usr/lib/x86_64-linux-gnu/blas
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 5
n=0 failed=0
report() {
    n=$((n + 1))
    if [ "$2" = 0 ]; then echo "ok $n - $1" && return; fi
    echo "not ok $n - $1"
    failed=$((failed + 1))
    sed 's/^/# /' out err
}
skip() {
    n=$((n + 1))
    echo "SKIP: $1: $2"
    echo "ok $n - $1 # SKIP $2"
}
# shellcheck source=tests/torch/find_python.sh
. "$here/find_python.sh"
[ -n "$python" ] || skip_all "the peer of bench/torch.sh" "$no_python"

"$python" "$peer" --json >out 2>err
code=$?
if [ $code = 0 ]; then
    grep -q '"blas": ' out && grep -qE '"cpu": "[^"]+", "instruction_sets": \[".*sse4_1"\]' out &&
        grep -qE '"product_gflops": [1-9][0-9]+' out
else
    [ $code = 4 ] && [ ! -s out ] && grep -qE ' [0-9](\.[0-9])? GFLOP/s in .*; allowed: 10 and more' err
fi
report "a peer names its BLAS, its CPU and its speed, or is refused" $?
if [ ! -e $reference/libblas.so.3 ]; then
    skip "a slow BLAS" "the reference BLAS is not here; apt-get install libblas3"
else
    LD_LIBRARY_PATH=$reference${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$python" "$peer" >out 2>err
    code=$?
    [ $code = 4 ] && [ ! -s out ] &&
        grep -q "GFLOP/s in $reference/libblas.so.*; allowed: 10 and more.*apt-get install libopenblas0" err
    report "in the reference BLAS it is refused: exit code 4, what was got, \
what is allowed, and what to install" $?
fi
echo "1..$n"
[ $failed = 0 ]
