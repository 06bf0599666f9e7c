#!/bin/bash
# The step of a rank with one core and with two, in turns: of each case the median of three trainings' median
# steps, and one core's over two cores'. Exits with 1 where two cores are below 1.8 times one.
#   bench/cores.sh     STEPS [5], TURNS [3], DEVICE [strongest]: environment. Needs `make`, jq, and two cores
#                      on which nothing else runs; some six minutes
set -eu
tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
steps=${STEPS:-5} turns=${TURNS:-3} device=${DEVICE:-strongest}
cases="resnet50 8
bert_base:seq=128 2
gpt2_small:seq=128 2"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work"

step_ns() { # MODEL BATCH PRECISION CORES
    "$tandem" train --model "$1" --batch "$2" --uniform "$3" --device "$device" --threads "$4" \
        --steps "$steps" --eval 0 -q --json | jq '[.. | .step_ns? // empty][0]'
}
for _ in $(seq "$turns"); do
    while read -r model batch; do
        for precision in fp32 bf16; do
            for cores in 1 2; do
                echo "$model $batch $precision $cores $(step_ns "$model" "$batch" "$precision" "$cores")"
            done
        done
    done <<<"$cases"
done >rows

sort -k1,1 -k3,3 -k4,4 -k5,5n rows | awk '
    function median(key) { return value[key, int((n[key] + 1) / 2)] }
    { key = $1 " " $3 " " $4; value[key, ++n[key]] = $5; batch[$1] = $2 }
    !(($1, $3) in seen) { seen[$1, $3] = 1; model[++m] = $1; precision[m] = $3 }
    END {
        printf "%-20s %5s %-9s %12s %13s %6s\n", "model", "batch", "precision", "one core, ms",
            "two cores, ms", "ratio"
        for (i = 1; i <= m; i++) {
            one = median(model[i] " " precision[i] " 1"); two = median(model[i] " " precision[i] " 2")
            printf "%-20s %5d %-9s %12.0f %13.0f %6.2f\n", model[i], batch[model[i]], precision[i], one / 1e6,
                two / 1e6, one / two
            missed += one / two < 1.8
        }
        exit missed > 0
    }'
