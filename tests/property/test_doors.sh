#!/bin/bash
# The same questions at four doors: the command line, planner.h, Slurm's plug-in and the Python package; their
# answers are equal to the byte (doors.py). Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/../cli/tap.sh"

if ! command -v python3 >/dev/null; then
    skip "the same questions at four doors" "python3 is not here; apt-get install python3"
    echo "1..1"
    exit
fi
PYTHONDONTWRITEBYTECODE=1 python3 "$here/doors.py" "$build" "$work"
