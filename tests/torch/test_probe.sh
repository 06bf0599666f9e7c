#!/bin/bash
# The probe of tandem.sensitivity against that of `tandem sensitivity`: tests/torch/probe.py. Skipped, aloud,
# without a Python that has PyTorch ($PYTHON, or the first of python3 and /usr/bin/python3 that has it), and
# where a sanitizer is not in that Python. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TANDEM_BUILD:-$here/../../build}" && pwd) || exit 4
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../python TANDEM_LIBRARY=$build
skip() {
    echo "SKIP: a probe against PyTorch: $1"
    echo "1..1"
    echo "ok 1 - a probe against PyTorch # SKIP $1"
    exit 0
}
case $build in
*address* | *thread*) skip "a sanitizer is not in the Python that loads the libraries" ;;
esac
for python in ${PYTHON:-python3 /usr/bin/python3}; do
    "$python" -c 'import numpy, torch' 2>/dev/null && break
    python=
done
[ -n "$python" ] || skip "no python3 here has PyTorch; apt-get install python3-torch"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
"$python" "$here/probe.py" "$build/tandem" "$work"
