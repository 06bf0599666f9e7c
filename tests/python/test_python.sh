#!/bin/bash
# The Python package: every file of tests here, with a Python that has PyTorch ($PYTHON, or the first of
# python3 and /usr/bin/python3 that has it). Skipped, aloud, without one. Speaks TAP.
set -u
here=$(cd "$(dirname "$0")" && pwd)
suites="kernels modules planning sensing package examples"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 TANDEM_BUILD=${TANDEM_BUILD:-build}
n=0 failed=0
why=
case $TANDEM_BUILD in
*address* | *thread*) why="a sanitizer is not in the Python that loads the libraries" ;;
esac
for python in ${PYTHON:-python3 /usr/bin/python3}; do
    "$python" -c 'import torch' 2>/dev/null && break
    python=
done
[ -n "$python" ] || why="no python3 here has PyTorch; apt-get install python3-torch libopenblas0"
for suite in $suites; do
    n=$((n + 1))
    if [ -n "$why" ]; then
        echo "SKIP: the Python package, $suite: $why"
        echo "ok $n - $suite # SKIP $why"
        continue
    fi
    if log=$(cd "$here" && timeout 200 "$python" "$suite.py" 2>&1); then
        echo "ok $n - $suite"
    else
        failed=1
        echo "not ok $n - $suite"
        printf '%s\n' "$log" | sed 's/^/# /'
    fi
done
echo "1..$n"
exit $failed
