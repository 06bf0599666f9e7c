#!/bin/bash
# Ranks that reach each other over a network alone: two network namespaces joined by a pair of virtual
# interfaces, which end with this test. They train, are profiled and compared, and the same over a link of
# limited rate. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

# --- Two hosts ---
alone=(unshare --net)
[ "$(id -u)" = 0 ] || alone=(unshare --user --map-root-user --net)
if [ "${TANDEM_TEST_ALONE:-}" = "" ]; then
    if ! { "${alone[@]}" ip link add near type veth peer name far; } 2>err; then
        skip "ranks on two hosts" "no network namespaces or no iproute2 here: $(head -n 1 err)"
        echo "1..$n"
        exit 0
    fi
    cd / && rm -rf "$work"
    TANDEM_TEST_ALONE=1 TANDEM_BUILD=$build exec "${alone[@]}" "$here/test_hosts.sh"
fi
find_devices
if [ -z "$weakest" ]; then
    skip "ranks on two hosts" "this machine is none of the devices"
    echo "1..$n"
    exit 0
fi
# the other host, until its standard input ends
coproc far { exec unshare --net sh -c 'echo up; read -r end'; }
# shellcheck disable=SC2154 # set by coproc
read -r up <&"${far[0]}" && [ "$up" = up ] && there=(nsenter "--net=/proc/$far_PID/ns/net") &&
    ip link add near type veth peer name far netns "$far_PID" || exit 5
ip link set lo up && "${there[@]}" ip link set lo up && ip address add 10.0.0.1/24 dev near &&
    ip link set near up && "${there[@]}" ip address add 10.0.0.2/24 dev far &&
    "${there[@]}" ip link set far up || exit 5

export TANDEM_ALLREDUCE=network # they could share memory: it is one machine
# both EXPECTED_CODE ARGUMENT…: rank 0 here, into out and err; rank 1 there, into out1 and err1. IFACE0,
# IFACE1.
both() { # WIRE1: what the gradients of rank 1 travel in, where it is not what the arguments say
    local expected=$1 other
    shift
    rm -rf meet && mkdir meet
    export WORLD_SIZE=2 TANDEM_STORE=meet
    RANK=1 TANDEM_IFACE=$IFACE1 timeout 60 "${there[@]}" "$tandem" "$@" ${WIRE1:+"--wire=$WIRE1"} \
        >out1 2>err1 </dev/null &
    other=$!
    RANK=0 TANDEM_IFACE=$IFACE0 timeout 60 "$tandem" "$@" >out 2>err </dev/null
    code=$?
    unset WORLD_SIZE TANDEM_STORE
    wait $other
    other=$?
    [ $code = "$expected" ] && [ $other = "$expected" ] && [ ! -s out1 ]
}

of=(--model mlp:width=64 --batch 4 --cluster "$weakest + $weakest")
IFACE0='' IFACE1=''
# without their remedy they would wait for the whole time-out
both 2 train "${of[@]}" --steps 3 --timeout 300s && grep -q 'the loopback address 127.0.0.1 of host' err &&
    grep -q 'Set TANDEM_IFACE on every rank' err && grep -q 'Set TANDEM_IFACE on every rank' err1
report "over the loopback they do not meet: both say so at once, and what to set, exit code 2" $?
IFACE0=near
both 2 train "${of[@]}" --steps 3 --timeout 300s && grep -q 'rank 1 listens on the loopback address' err &&
    grep -q 'rank 1 listens on the loopback address' err1
report "one has no TANDEM_IFACE: both say which, exit code 2" $?
# the interface exists, but leads nowhere
ip link add lone type veth peer name lost && ip address add 10.9.9.1/24 dev lone && ip link set lone up &&
    ip link set lost up || exit 5
IFACE0=lone IFACE1=far
if both 6 train "${of[@]}" --steps 3 --timeout 2s; then
    grep -qE 'rank 1 .*(cannot|did not) connect to rank 0 at 10.9.9.1' err &&
        grep -q 'TANDEM_IFACE' err && cmp -s err err1
    report "an interface of another network: both say who cannot reach whom" $?
else
    report "an interface of another network: both end" 1
fi
IFACE0=near IFACE1=far
both 0 train "${of[@]}" --data data --steps 5 --json && [ "$(array loss out | wc -l)" = 5 ] &&
    [ "$(grep -c allocated_bytes out)" = 2 ]
cp out over_network
TANDEM_ALLREDUCE='' run 0 train "${of[@]}" --data data --steps 5 --json &&
    [ "$(array loss out)" = "$(array loss over_network)" ]
report "over an interface they train, with the losses of ranks that share memory" $?

# --- Profile and comparison ---
both 0 profile "${of[@]}" --json && [ "$(grep -c '"name"' out)" = 2 ] && sed -n '/"allreduce"/,/}/p' out |
    grep -q '"known": 0' &&
    run 0 replay "${of[@]}" --json && free_ns=$(field step_ns out | head -1) && positive "$free_ns"
report "they are profiled into one store, and a step is replayed" $?
both 0 compare "${of[@]}" --steps 12 --json && positive "$(field measured_ns out)" &&
    [ "$(array predicted_peak_bytes out)" = "$(array allocated_peak_bytes out)" ]
report "rank 0 compares; memory is allocated as predicted" $?

if { tc qdisc add dev near root tbf rate 50mbit burst 16kb limit 4mb &&
    "${there[@]}" tc qdisc add dev far root tbf rate 50mbit burst 16kb limit 4mb; } 2>err; then
    # (784 + 64 + 64 + 10) · 64 weights and more cross the link each way: no step can be faster than that,
    # less what the bucket holds
    least_ns=$(((922 * 64 * 4 - 2 * 16384) * 8 * 20))
    both 0 profile "${of[@]}" --allreduce-only --remeasure --json && sed -n '/"alone"/,/}/p' out |
        grep -q '"measured": 0' &&
        sed -n '/"allreduce"/,/}/p' out | grep -q '"known": 0' &&
            both 0 compare "${of[@]}" --steps 12 --json &&
        [ "$(field predicted_ns out)" -gt $least_ns ] && [ "$(field measured_ns out)" -gt $least_ns ]
    report "over a slow link the all-reduce alone is measured again: no step beats the link" $?
else
    skip "a slow link" "tc has no token bucket here: $(head -n 1 err)"
fi

run 0 profile "${of[@]}" --db one.db --uniform int8 --json && [ "$(field measured out | tail -1)" -lt 4 ] &&
    run 0 replay "${of[@]}" --db one.db --uniform int8 --json &&
    run 4 replay "${of[@]}" --db one.db --uniform fp32
report "with --uniform only what that plan needs is profiled" $?
run 0 compare "${of[@]}" --remeasure --steps 12 --json && positive "$(field remeasured_ns out)" &&
    [ "$(field drift out)" != null ] &&
    run 0 compare "${of[@]}" --remeasure --steps 12 && grep -q '^remeasured .* machine drift ' out
report "compare --remeasure measures the plan's costs once more, and says how far they are" $?

# --- What ranks exchange in ---
rm -f kinds.db*
run 0 profile "${of[@]}" --uniform fp32 --db kinds.db --json && run 0 replay "${of[@]}" --db kinds.db &&
    TANDEM_ALLREDUCE='' run 4 replay "${of[@]}" --db kinds.db &&
    grep -q 'in shared memory has been measured' err
report "an all-reduce that was measured over a network is not taken for one in shared memory" $?
TANDEM_ALLREDUCE='' run 0 profile "${of[@]}" --uniform fp32 --db kinds.db --json &&
    sed -n '/"allreduce"/,/}/p' out | grep -q '"known": 0' &&
    TANDEM_ALLREDUCE='' run 0 replay "${of[@]}" --db kinds.db && run 0 replay "${of[@]}" --db kinds.db
report "a store has both" $?
rm -f narrow.db* plan.json
both 0 profile "${of[@]}" --uniform fp32 --db narrow.db --json && run 0 replay "${of[@]}" --db narrow.db &&
    run 4 replay "${of[@]}" --wire bf16 --db narrow.db && grep -q 'in bf16 has been measured' err &&
    both 0 profile "${of[@]}" --wire bf16 --allreduce-only --db narrow.db &&
    run 0 replay "${of[@]}" --wire bf16 --db narrow.db --json &&
    sed -n '/"all_reduce"/,$p' out | grep -q '"wire": "bf16"' &&
    [ "$(field sensitivity_noise out)" != 0.0 ] && [ "$(field sensitivity_low out)" != null ]
report "gradients in bf16 have a curve of their own, and a sensitivity" $?
both 0 train "${of[@]}" --data data --wire bf16 --steps 5 --json && array loss out >narrow &&
    [ "$(head -n 1 narrow)" = "$(array loss over_network | head -n 1)" ] &&
    ! array loss over_network | cmp -s - narrow &&
    TANDEM_ALLREDUCE='' run 0 train "${of[@]}" --data data --wire bf16 --steps 5 --json &&
    array loss out | cmp -s - narrow
report "with gradients in bf16 they train alike over the network and in shared memory" $?
WIRE1=bf16 both 2 train "${of[@]}" --steps 3 &&
    grep -q "rank 0 has 'gradients travel in: f32', rank 1 has 'gradients travel in: bf16'" err
report "ranks whose gradients travel in different types: exit code 2 on both" $?
run 0 sensitivity --model mlp:width=64 --data data --steps 3 --device "$weakest" &&
    run 0 allocate --model mlp:width=64 --cluster "$weakest + $weakest" --batch auto --global-batch 8 &&
    run 0 advise --model mlp:width=64 --cluster "$weakest" --add "$weakest" --batch 4
report "what was measured over a network alone is enough to choose batches by and to advise by" $?
TANDEM_ALLREDUCE=pigeons run 2 train "${of[@]}" --steps 3 && grep -q "invalid TANDEM_ALLREDUCE 'pigeons'" err
report "an exchange that there is not: exit code 2" $?

# --- Refusals ---
run 2 profile --model mlp --device "$weakest" --allreduce-only && grep -q 'needs two ranks, got one' err
report "the all-reduce of one rank: exit code 2" $?
RANK=0 WORLD_SIZE=3 TANDEM_STORE=. run 2 profile "${of[@]}" && grep -q 'WORLD_SIZE is 3' err
report "a profile by more ranks than there are devices: exit code 2" $?
RANK=0 WORLD_SIZE=2 TANDEM_STORE=. run 2 compare "${of[@]}" --remeasure && grep -q 'starts its own ranks' err
report "compare --remeasure in a run that is joined: exit code 2" $?

eval "exec ${far[1]}>&-" # the other host ends
left_over && report "no files are left over" 1 || report "no files are left over" 0
echo "1..$n"
[ $failed = 0 ]
