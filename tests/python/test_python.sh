#!/bin/bash
# The Python package: every file of tests here, with a Python that has PyTorch (tests/torch/find_python.sh).
# Skipped, aloud, without one. Speaks TAP.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# a dot parts a file from one of its tests, which has the time of a suite for itself
suites="kernels modules planning memory estimate trials transformations.every transformations.said"
more="cuda package examples transformations.linear transformations.conv2d transformations.matmul
transformations.attention"
if [ -n "${TEST_LONG:-}" ]; then
    suites+=" $more"
else
    for suite in $more; do echo "# left out: python/test_python.sh $suite"; done
fi
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 TANDEM_BUILD=${TANDEM_BUILD:-build}
why=
case $TANDEM_BUILD in
*address* | *thread*) why="a sanitizer is not in the Python that loads the libraries" ;;
esac
# shellcheck source=tests/torch/find_python.sh
. "$here/../torch/find_python.sh"
[ -n "$python" ] || why=$no_python
if [ -z "$why" ]; then
    # shellcheck disable=SC2086 # words
    cd "$here" && exec "$python" suites.py $suites
fi
n=0
for suite in $suites; do
    n=$((n + 1))
    echo "SKIP: the Python package, $suite: $why"
    echo "ok $n - $suite # SKIP $why"
done
echo "1..$n"
