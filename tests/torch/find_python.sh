# find_python.sh: the Python of tests against PyTorch; sourced. Sets `python`: $PYTHON, or the first of
# python3 and /usr/bin/python3 that has PyTorch and NumPy; empty: none has, for the reason `no_python`.
# shellcheck shell=bash disable=SC2034
no_python="no python3 here has PyTorch; apt-get install python3-torch libopenblas0"
for python in ${PYTHON:-python3 /usr/bin/python3}; do
    "$python" -c 'import numpy, torch' 2>/dev/null && break
    python=
done
# skip_all NAME REASON: a script of one test, which is skipped.
skip_all() {
    echo "SKIP: $1: $2"
    echo "1..1"
    echo "ok 1 - $1 # SKIP $2"
    exit 0
}
