#!/bin/bash
# A sweep, as a user runs it: what it files predicts models that were never measured, another one goes on, one
# that is killed leaves a whole store, and what it refuses. Nothing asserts a time. Speaks TAP. TANDEM_BUILD =
# the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
what=(--model mlp:width=64 --batch 8 --device weakest --predict --db a.db --json)

run 4 replay "${what[@]}"
report "a model on a device that nobody measured is refused" $?
run 0 profile --sweep=100ms --device weakest --db a.db --json -q &&
    [ "$(field networks out)" = 1 ] && positive "$(field measured out)"
report "a sweep files costs of its networks, for as long as it is given" $?
run 0 replay "${what[@]}" && positive "$(field step_ns out)" && before=$(field fitted_to out) &&
    positive "$before"
report "with them a model is predicted that was never measured" $?
run 0 profile --sweep=200ms --device weakest --db a.db --json -q &&
    positive "$(field measured out)" && run 0 replay "${what[@]}" &&
    [ "$(field fitted_to out)" -gt "$before" ]
report "another one goes on where it ended" $?

"$tandem" profile --sweep=60s --device weakest --db b.db -q >killed.out 2>&1 &
killed=$!
for ((k = 0; k < 300; k++)); do # until it has filed something
    run 0 replay "${what[@]/a.db/b.db}" && break
    sleep 0.05
done
pkill -9 -P $killed
wait $killed
killed=$?
[ $killed = 6 ] && run 0 replay "${what[@]/a.db/b.db}" && positive "$(field step_ns out)" &&
    run 0 profile --sweep=100ms --device weakest --db b.db -q
report "one that is killed leaves a store that predicts, and that another one goes on with" $?

refused() { # CODE TEXT ARGUMENT…
    local code=$1 text=$2
    shift 2
    run "$code" profile "$@" --db c.db && grep -qF -- "$text" err
}
refused 2 'takes no --model' --sweep --device weakest --model mlp &&
    refused 2 'needs a device' --sweep && refused 2 'at most 120s' --sweep=5min --device weakest &&
    refused 2 "takes a time above 0, got '0s'" --sweep=0s --device weakest &&
    refused 2 'one device at a time, got weakest + weakest' --sweep --device weakest,weakest &&
    refused 2 'one device at a time' --sweep --device '2*cpu:sse41' &&
    refused 4 't4' --sweep --device t4 && [ ! -e c.db ]
report "what a sweep cannot do is refused, and no store is made" $?
left_over && report "no files are left over" 1 || report "no files are left over" 0
echo "1..$n"
[ $failed = 0 ]
