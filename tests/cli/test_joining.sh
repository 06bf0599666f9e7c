#!/bin/bash
# Ranks that are started by hand: what they must have in common, a rank that fails before it joins, all ranks
# stopped for a while, and what a resumed run says and keeps. Speaks TAP. TANDEM_BUILD = the build folder.
# N_SUSPENSIONS: how often a run is stopped, 2 by default.
set -u
# shellcheck source=tests/cli/apart.sh
. "$(dirname "$0")/apart.sh"
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

find_devices
if [ -z "$weakest" ]; then
    skip "ranks started by hand" "this machine is none of the devices"
    echo "1..$n"
    exit 0
fi
of=(train --model mlp:width=16 --batch 4 --cluster "$weakest + $weakest" --steps 5 --timeout 300s)
# both EXPECTED_CODE_0 EXPECTED_CODE_1 OPTION_OF_1…: rank 0 into out and err; rank 1 into out1 and err1. A
# rank that waits for the whole time-out of 300 s fails by `timeout`.
both() {
    local expected=$1 expected1=$2 other
    shift 2
    rm -rf meet && mkdir meet
    RANK=1 WORLD_SIZE=2 TANDEM_STORE=meet timeout 60 "$tandem" "${of[@]}" "$@" >out1 2>err1 </dev/null &
    other=$!
    RANK=0 WORLD_SIZE=2 TANDEM_STORE=meet timeout 60 "$tandem" "${of[@]}" >out 2>err </dev/null
    code=$?
    wait $other
    other=$?
    [ $code = "$expected" ] && [ $other = "$expected1" ]
}

# --- What ranks have in common ---
both 0 0
report "ranks that are started alike train" $?
# OPTION | what rank 0 has | what rank 1 has
while IFS='|' read -r option first second; do
    # shellcheck disable=SC2086 # words
    both 2 2 $option && grep -qF "rank 0 has '$first" err && grep -qF "rank 1 has '$second" err &&
        cmp -s err err1
    report "rank 1 has $option: both say so, exit code 2" $?
done <<'LIST'
--lr 0.2|learning rate: 0.05|learning rate: 0.2
--seed 3|seed: 0|seed: 3
--loss-scale 8|loss scale: none|loss scale: 8
--weight-decay 0.5|optimizer: sgd, weight decay 0,|optimizer: sgd, weight decay 0.5,
--accumulate 2|micro-steps: none|micro-steps: 2
--steps 6|steps: 5|steps: 6
--checkpoint w.ckpt|checkpoints: none|checkpoints: every 0 steps
--eval 3 --data data|data: noise|data: samples
--allow-nan|losses that are not finite: end the run|losses that are not finite: end nothing
LIST
cp "$tandem" other && cp "$build"/lib*.so* . && sed -i 's/0\.1\.0\x00/0.1.9\x00/g' other
if [ "$(./other --version)" = "tandem 0.1.9" ]; then
    rm -rf meet && mkdir meet
    RANK=1 WORLD_SIZE=2 TANDEM_STORE=meet timeout 60 ./other "${of[@]}" >out1 2>err1 </dev/null &
    other=$!
    RANK=0 WORLD_SIZE=2 TANDEM_STORE=meet timeout 60 "$tandem" "${of[@]}" >out 2>err </dev/null
    code=$?
    wait $other
    [ $? = 2 ] && [ $code = 2 ] && grep -q "rank 0 has 'version: 0.1.0', rank 1 has 'version: 0.1.9'" err &&
        cmp -s err err1
    report "rank 1 is of another version: both say so, exit code 2" $?
else
    report "another version of the program can be made" 1
fi
rm -f other lib*.so*
both 0 0 --timeout 200s --db other.db -q --log rank1.log
report "options in which ranks may differ" $?

# --- A rank that fails before it joins ---
both 6 2 --lr abc && grep -q "rank 1 could not join: --lr takes .* got 'abc'" err
report "rank 1 has an invalid option: rank 0 learns of it at once, and why" $?
both 6 5 --data /nowhere/x && grep -q 'rank 1 could not join: .*/nowhere/x' err
report "rank 1 lacks its data: rank 0 learns of it at once" $?
both 6 2 --lr && grep -q 'rank 1 ended before it joined' err
report "rank 1 ends at an option without its value: rank 0 learns of it at once" $?
rm -rf meet && mkdir meet
RANK=1 WORLD_SIZE=2 TANDEM_STORE=meet TANDEM_BACKEND=/nowhere.so timeout 60 "$tandem" "${of[@]}" \
    >out1 2>err1 &
RANK=0 WORLD_SIZE=2 TANDEM_STORE=meet timeout 60 "$tandem" "${of[@]}" >out 2>err </dev/null
code=$?
wait $!
[ $? = 4 ] && [ $code = 6 ] && grep -q 'rank 1 could not join: cannot open libtandem_backend.so' err
report "rank 1 lacks the backend: rank 0 learns of it at once" $?

# A process too many, of a rank that is there already, does not end the run.
rm -rf meet && mkdir meet
for r in 0 1; do
    RANK=$r WORLD_SIZE=2 TANDEM_STORE=meet timeout 60 "$tandem" "${of[@]}" --steps 100000000 --log log.$r \
        >out$r 2>err$r </dev/null &
    rank[r]=$!
done
until [ "$(wc -l 2>/dev/null <log.0 || echo 0)" -gt 10 ] || ! kill -0 "${rank[0]}"; do sleep 0.05; done
RANK=1 WORLD_SIZE=2 TANDEM_STORE=meet run 2 "${of[@]}" --steps 100000000 &&
    grep -q "is in use by another run" err &&
    RANK=1 WORLD_SIZE=2 TANDEM_STORE=meet run 2 "${of[@]}" --lr abc && : >log.0 && sleep 0.5 &&
    [ -s log.0 ] && kill -0 "${rank[0]}" && kill -0 "${rank[1]}"
report "another process of the same rank is refused, and the run goes on" $?
kill "${rank[@]}" 2>/dev/null
wait "${rank[@]}" 2>/dev/null

# --- All processes of a run stopped for longer than --timeout ---
# stopped OPTION…: a run is stopped N_SUSPENSIONS times while it trains.
stopped() {
    local run k
    rm -f log
    setsid "$tandem" train --model mlp:width=16 --batch 4 --cluster "$weakest + $weakest" --steps 100000000 \
        --timeout 2s --log log "$@" >out 2>err </dev/null &
    run=$!
    for ((k = 0; k < ${N_SUSPENSIONS:-2}; k++)); do
        until [ "$(wc -l 2>/dev/null <log || echo 0)" -gt 100 ]; do
            kill -0 $run 2>/dev/null || return 1
            sleep 0.05
        done
        kill -STOP -- -$run
        sleep 4
        : >log # rank 0 appends
        kill -CONT -- -$run
    done
    until [ "$(wc -l <log)" -gt 100 ]; do # it goes on
        kill -0 $run 2>/dev/null || return 1
        sleep 0.05
    done
    kill -TERM -- -$run
    wait $run
    code=$?
    ! grep -q . err || ! grep -qE 'silent|broke|died' err
}
stopped
report "a run that is stopped for longer than its time-out goes on" $?
if is_long; then
    TANDEM_ALLREDUCE=network stopped
    report "the same over the network" $?
else
    echo "# left out: a stopped run over the network, and seven of ten options that a resumed run lacks"
fi

# --- Resumed runs ---
one=(train --model mlp:width=16 --batch 4 --device "$weakest")
resumed() { # OPTION…: warnings of a run that goes on without them, then of one that goes on with them
    run 0 "${one[@]}" --steps 2 --checkpoint with.ckpt "$@" &&
        run 0 "${one[@]}" --steps 2 --checkpoint plain.ckpt &&
        run 0 "${one[@]}" --steps 3 --resume with.ckpt &&
        [ "$(grep -c 'warning: differs from the checkpoint: .*: none; it was ' err)" = 1 ] &&
        run 0 "${one[@]}" --steps 3 --resume plain.ckpt "$@" &&
        [ "$(grep -c 'warning: differs from the checkpoint: .*; it was .*: none' err)" = 1 ] &&
        run 0 "${one[@]}" --steps 3 --resume with.ckpt "$@" && ! grep -q 'warning: differs' err
}
options=("--clip 1" "--loss-scale 8" "--emulate")
! is_long || options+=("--label-smoothing 0.3" "--accumulate 2" "--data-seed 7" "--amax delayed"
    "--no-decay fc*" "--rounding-seed 5" "--bucket 64KiB")
for option in "${options[@]}"; do
    set -f
    # shellcheck disable=SC2086 # words
    resumed $option
    report "resumed without $option, and with it: one warning each" $?
    set +f
done

# The scale doubles after 2000 good steps; 1500 of them are in the checkpoint.
scale=(--loss-scale dynamic --log)
run 0 "${one[@]}" --steps 2005 "${scale[@]}" whole.log --json && array loss out >whole &&
    run 0 "${one[@]}" --steps 1500 "${scale[@]}" part.log --checkpoint part.ckpt --json &&
    array loss out >parts &&
    run 0 "${one[@]}" --steps 2005 "${scale[@]}" part.log --resume part.ckpt --json &&
    array loss out >>parts &&
    [ "$(wc -l <whole)" = 2005 ] && cmp -s whole parts &&
    grep -oE '"(step|loss_scale)":[0-9.e+]+' whole.log | tr -d '\n' >scales &&
    grep -oE '"(step|loss_scale)":[0-9.e+]+' part.log | tr -d '\n' | cmp -s - scales &&
    grep -q '"step":2000"loss_scale":65536' scales && grep -q '"step":2001"loss_scale":131072' scales
report "a dynamic loss scale grows after a resume when it would have without one" $?

left_over && report "no files are left over" 1 || report "no files are left over" 0
echo "1..$n"
[ $failed = 0 ]
