#!/bin/bash
# Ranks with several cores: losses, memory, stores, messages. Speaks TAP. TANDEM_BUILD = the build folder.
# This machine may have fewer cores: no times are compared.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
export TANDEM_OVERSUBSCRIBE=1 OMP_WAIT_POLICY=passive
find_devices
if [ -z "${weakest:-}" ]; then
    skip "cores" "this machine's CPU can be no device"
    echo "1..$n"
    exit 0
fi

train() { # PRECISION CORES
    run 0 train --model resnet20 --batch 4 --device "$weakest" --threads "$2" --uniform "$1" --steps 3 \
        --eval 0 --quiet --json
}
# Sums of floats may be in another order.
near() { paste "$1" "$2" | awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-8 * $1 ^ 2 { exit 1 } END { exit NR != 3 }'; }
train int8 1 && array loss out >one
for cores in 2 3; do
    train int8 $cores && array loss out >several && near one several
    report "$cores cores: an int8 training has the losses of one core" $?
    grep -q "\"device\": \"$weakest:$cores\"" out
    report "$cores cores: the device has them in its name" $?
    [ "$(field planned_bytes out)" = "$(field allocated_bytes out)" ] && [ -n "$(field planned_bytes out)" ]
    report "$cores cores: memory is as planned, to the byte" $?
done
train fp32 3 && array loss out >one && train fp32 3 && array loss out | diff - one >differ
report "3 cores: a training repeats its bits" $?

run 0 train --model mlp --batch 4 --cluster "2*$weakest:2" --steps 2 --eval 0
report "two ranks of two cores" $?
cat out err | grep -q "threads on .* cores, as TANDEM_OVERSUBSCRIBE asks" ||
    [ "$(nproc)" -ge 4 ]
report "two ranks of two cores: more threads than cores are said" $?
TANDEM_OVERSUBSCRIBE=0 run 4 train --model mlp --cluster "4*$weakest:512" --steps 2 &&
    grep -q "they need 2048 in all" err
report "more threads than cores are refused" $?

run 0 profile --model mlp --batch 4 --device "$weakest:2" --db a.db --repetitions 3 --quiet
report "a profile of two cores" $?
run 4 replay --model mlp --batch 4 --device "$weakest" --db a.db
grep -q "nothing of model mlp has been measured on $weakest;" err
report "a profile of two cores is none of one core" $?
run 0 replay --model mlp --batch 4 --cluster "$weakest:2" --db a.db
report "a profile of two cores is found by its name" $?
echo "1..$n"
[ $failed = 0 ]
