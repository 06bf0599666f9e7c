#!/bin/bash
# Training with shards of the training's state (ZeRO) beside the same training without.
# usage: bench/sharded.sh bits   [20 minutes]
#   bits  losses and final weights, to the bit: CASES [300] trainings drawn by SEED [1]: models, ranks,
#         devices, transports, wires, buckets, shards, precisions, clipping, loss scale, micro-steps,
#         recomputation. All pairs of choices that go together occur. Memory is compared with the plan
# Exits 1 where a case differs. Needs `make`, jq, python3, fashion-mnist and bible-kjv-text; cases run on any
# number of cores.
#   STEPS [12] of each training; JOBS [1]
set -u
[ "${1:-}" = bits ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" && exit 2; }
here=$(cd "$(dirname "$0")" && pwd) tandem=${TANDEM:-$(cd "$(dirname "$0")/.." && pwd)/build/tandem}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
steps=${STEPS:-12} jobs=${JOBS:-1}

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
