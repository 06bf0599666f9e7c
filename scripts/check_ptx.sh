#!/bin/bash
# The kernels' PTX (tests/ptx) at every row length, for each architecture that was built, and for the last one
# as a card may differ from its definition: approximate functions 2 units in the last place away, mul and add
# contracted, tensor cores that truncate, other turns of warps. Exits 1 where anything failed.
# usage: scripts/check_ptx.sh BUILD ARCH…     make check-ptx builds them first
set -u
build=$1
shift
program=$build/tests/ptx/test_ptx_kernels failed=0
export TANDEM_BUILD=$build
log=$(mktemp) && trap 'rm -f "$log"' EXIT

# run WHAT NAME=VALUE…: one line; all that the program printed where it failed.
run() {
    local begin=$SECONDS code=0
    env "${@:2}" "$program" >"$log" 2>&1 || code=$?
    echo "ptx $1: $([ $code = 0 ] && echo passed || echo FAILED), $((SECONDS - begin)) s," \
        "$(sed -n 's/^# \(.*reached\)$/\1/p' "$log")"
    grep '^SKIP' "$log"
    [ $code = 0 ] || { failed=1; grep -E '^(wrong|found|no call)' "$log" | head -n 20; }
}

for arch; do run "sm_$arch" PTX_ARCH="$arch" TEST_LONG=1; done
run "approximate functions 2 ulp away" PTX_ARCH="$arch" PTX_ULP=2
run "mul and add contracted" PTX_ARCH="$arch" PTX_CONTRACTS=1
run "tensor cores truncate" PTX_ARCH="$arch" PTX_TRUNCATES=1
run "24 blocks, other turns" PTX_ARCH="$arch" PTX_SEED=5 PTX_RESIDENT=24
exit $failed
