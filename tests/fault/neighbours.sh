#!/bin/bash
# neighbours.sh: starts and joins among others, more often than `make test` does it: strangers that connect
# while ranks join (N_STRANGERS, 50) and runs of which all processes are stopped (N_SUSPENSIONS, 20). For
# `make check-all`. TANDEM_BUILD = the build folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TANDEM_BUILD:-$here/../../build}" && pwd)
export N_STRANGERS=${N_STRANGERS:-50} N_SUSPENSIONS=${N_SUSPENSIONS:-20} TANDEM_BUILD=$build
"$build/tests/fault/test_comm"
"$here/../cli/test_joining.sh"
