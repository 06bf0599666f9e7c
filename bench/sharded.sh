#!/bin/bash
# Training with shards of the training's state (ZeRO) beside the same training without.
# usage: bench/sharded.sh bits|steps   [20 minutes each]
#   bits  losses and final weights, to the bit: CASES [300] trainings drawn by SEED [1]: models, ranks,
#         devices, transports, wires, buckets, shards, precisions, clipping, loss scale, micro-steps,
#         recomputation. All pairs of choices that go together occur. Memory is compared with the plan
#   steps step and memory as `tandem replay` predicts them beside trainings, without shards and with, in
#         turns:
#         four models, in shared memory and over the loopback network, on DEVICES ["cpu:avx2 cpu:avx2"];
#         medians of ROUNDS [3] trainings of 60 steps. Needs a quiet machine with two cores
# Exits 1 where a case differs, or a step is off by more than 5 % in the worst case or 2 % in the mean. Needs
# `make`, jq, python3, fashion-mnist and bible-kjv-text.
#   STEPS [12] of each training of bits; JOBS [1] of them at once
set -u
case ${1:-} in
bits | steps) ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
here=$(cd "$(dirname "$0")" && pwd) tandem=${TANDEM:-$(cd "$(dirname "$0")/.." && pwd)/build/tandem}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
steps=${STEPS:-12} jobs=${JOBS:-1}

# --- Steps ---
median() { sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
print_step() { # MODEL BATCH DATA WHERE CLUSTER
    local of=(-q --model "$1" --batch "$2" --cluster "$5" --bucket 1MiB --db "$work/db") k zero
    rm -f "$work/db" "$work"/measured.*
    "$tandem" profile "${of[@]}" --zero 1 >"$work/said" 2>&1 || { cat "$work/said" && return 1; }
    for ((k = 0; k < ${ROUNDS:-3}; k++)); do
        for zero in "" "--zero 1"; do
            # shellcheck disable=SC2086
            "$tandem" train "${of[@]}" --data "$3" --eval 0 --steps 60 $zero --json >"$work/run" || return 1
            jq .step_ns "$work/run" >>"$work/measured.$zero"
            jq -c '[.ranks[].allocated_bytes]' "$work/run" >"$work/bytes.$zero"
        done
    done
    for zero in "" "--zero 1"; do
        # shellcheck disable=SC2086
        "$tandem" replay "${of[@]}" $zero --json >"$work/replay"
        local memory=wrong
        [ "$(jq -c '[.devices[].peak_bytes]' "$work/replay")" != "$(cat "$work/bytes.$zero")" ] ||
            memory=right
        printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$4" "${zero:-plain}" "$(jq .step_ns "$work/replay")" \
            "$(median <"$work/measured.$zero")" $memory
    done
}
run_steps() {
    local model batch data first second
    read -r first second <<<"${DEVICES:-cpu:avx2 cpu:avx2}"
    while read -r model batch data; do
        print_step "$model" "$batch" "$data" "shared memory" "$first + $second"
        print_step "$model" "$batch" "$data" network "$first@1 + $second@1 net=10Gbit/s,20us"
    done <<END | awk -F'\t' '
        BEGIN { print "model, where, shards: predicted and measured step in ms, error; memory as predicted" }
        {
            off = 100 * ($4 / $5 - 1)
            printf "%-36s %-14s %-8s %8.2f %8.2f %+6.1f%%  %s\n", $1, $2, $3, $4 / 1e6, $5 / 1e6, off, $6
            size = off < 0 ? -off : off; n++; sum += size; wrong += $6 != "right"
            if (size > worst) worst = size
        }
        END {
            printf "%d cases: %.1f%% in the mean, %.1f%% in the worst; memory wrong in %d\n", n, sum / n,
                worst, wrong
            exit sum / n > 2 || worst > 5 || wrong > 0
        }'
vit_tiny:width=128,heads=4,depth=4 16 fashion-mnist
gpt_tiny:width=128,depth=4 8 bible-kjv-text
mlp:width=1024,depth=4 32 fashion-mnist
resnet20:width=16 8 fashion-mnist
END
}
[ "$1" = bits ] || {
    run_steps
    exit
}

# --- Bits ---
# A line a case, without and with shards.
python3 "$here/sharded_cases.py" "${CASES:-300}" "${SEED:-1}" >"$work/cases" || exit 1
train_case() { # FOLDER OPTIONS
    mkdir -p "$1"
    eval "$tandem" train -q --json --eval 50 --steps "$steps" --timeout 60s --db "$1/db" \
        --export "$1/weights" "$2" >"$1/result" 2>"$1/error"
}
same_losses() { [ "$(jq -c .loss "$1/result")" = "$(jq -c .loss "$2/result")" ]; }
as_planned() { jq -e 'all(.ranks[]; .allocated_bytes == .planned_bytes)' "$1/result" >/dev/null; }
run_case() { # NUMBER PLAIN SHARDS
    local plain=$work/$1.plain sharded=$work/$1.sharded said=same
    train_case "$plain" "$2" || said="without shards: $(tail -n 1 "$plain/error")"
    [ "$said" != same ] || train_case "$sharded" "$2 $3" || said="with shards: $(tail -n 1 "$sharded/error")"
    if [ "$said" = same ]; then
        same_losses "$plain" "$sharded" || said="losses differ"
        cmp -s "$plain/weights" "$sharded/weights" || said="weights differ"
        as_planned "$sharded" || said="memory is not as planned"
    fi
    printf '%s\t%s\t%s\n' "$said" "$2" "$3" >>"$work/said"
    rm -rf "$plain" "$sharded"
}
n=0
while IFS=$'\t' read -r plain shards; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    run_case $((n += 1)) "$plain" "$shards" &
done <"$work/cases"
wait
awk -F'\t' '$1 != "same" { print } { n[$1 == "same"]++ }
    END { printf "%d of %d trainings are the same with shards, to the bit\n", n[1], NR
        exit n[1] < NR }' "$work/said"
