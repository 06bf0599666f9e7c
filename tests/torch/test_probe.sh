#!/bin/bash
# The probe of tandem.sensitivity against that of `tandem sensitivity`: tests/torch/probe.py. Skipped, aloud,
# without a Python that has PyTorch (find_python.sh), and where a sanitizer is not in that Python. Speaks TAP.
# TANDEM_BUILD = the build folder.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TANDEM_BUILD:-$here/../../build}" && pwd) || exit 4
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here/../../python TANDEM_LIBRARY=$build
# shellcheck source=tests/torch/find_python.sh
. "$here/find_python.sh"
name="a probe against PyTorch"
case $build in
*address* | *thread*) skip_all "$name" "a sanitizer is not in the Python that loads the libraries" ;;
esac
[ -n "$python" ] || skip_all "$name" "$no_python"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
"$python" "$here/probe.py" "$build/tandem" "$work"
