#!/bin/bash
# How often the interval of sampling holds. For five models, of weights after 200 steps, and two formats: the
# extra samples of a plan in int8_full as a whole, as `tandem sensitivity --uniform int8_full` prints them by
# default, over 40 seeds; beside the value of four estimates of 64 replicates by other seeds. Prints for each
# model and format in how many of the 40 the printed interval holds that value. Exit code 1 where the share of
# all is outside 90 to 98 %. Emulated formats are said. Needs `make`, fashion-mnist, bible-kjv-text and
# wordnet-base; about 20 minutes.
#   bench/coverage.sh [ROWS]   ROWS [coverage.tsv] gets a line an estimate; the next run with the same file
#                              goes on after the last one
#   SEEDS [40], DEVICE [strongest]: environment
set -eu
bench=$(cd "$(dirname "$0")" && pwd) tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
rows=$(realpath -m "${1:-coverage.tsv}") seeds=${SEEDS:-40} device=${DEVICE:-strongest}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

# The list is fixed: its hash is printed with the shares.
models="
mlp:width=64,depth=3 fashion-mnist
vit_tiny:width=16,heads=2,depth=2,patch=7 fashion-mnist
resnet20:width=4 fashion-mnist
gpt_tiny:width=32,heads=2,depth=2,length=32 bible-kjv-text
bert_base:head=class,classes=45,layers=2,width=32,heads=2,seq=32 wordnet-base"
formats="s8 e2m1"
reference_seeds="1001 1002 1003 1004"

is_done() { # MODEL FORMAT REPLICATES SEED
    awk -F'\t' -v k="$1 $2 $3 $4" '$1 " " $2 " " $3 " " $4 == k { found = 1 } END { exit !found }' "$rows"
}
estimate() { # MODEL DATA FORMAT REPLICATES SEED
    is_done "$1" "$3" "$4" "$5" && return 0
    local emulate=()
    [ "$3" = s8 ] || emulate=("--emulate=${3/e2m1/mxfp4}") # the list names mxfp4 by its numbers
    "$tandem" sensitivity -q --json --model "$1" --data "$2" --device "$device" --batch 32 \
        --uniform int8_full ${emulate[@]+"${emulate[@]}"} --init weights.safetensors --steps 2 --at 0 \
        --repetitions "$4" --seed "$5" >answer.json
    jq -r --arg model "$1" --arg format "$3" --arg n "$4" --arg seed "$5" \
        '[$model, $format, $n, $seed, .extra_samples, .extra_samples_low, .extra_samples_high] | @tsv' \
        answer.json >>"$rows"
}
touch "$rows"
cd "$work"
while read -r model data; do
    [ -n "$model" ] || continue
    "$tandem" train -q --model "$model" --data "$data" --device "$device" --batch 32 --steps 200 --eval 0 \
        --export weights.safetensors >/dev/null
    for format in $formats; do
        for seed in $reference_seeds; do estimate "$model" "$data" "$format" 64 "$seed"; done
        for seed in $(seq "$seeds"); do estimate "$model" "$data" "$format" 16 "$seed"; done
    done
done <<<"$models"

hash=$(echo "$models $formats $reference_seeds" | sha256sum | cut -c 1-12)
echo "list $hash, $device, $seeds seeds of 16 replicates, extra samples in %; e2m1 is emulated:"
awk -F'\t' "$(cat "$bench/median.awk")"'
    { k = $1 "\t" $2; if (!(k in n)) { order[++keys] = k; n[k] = 0 } }
    $3 == 64 { value[k] += $5 / 4; next }
    { n[k]++; of[k, n[k]] = $5; low[k, n[k]] = $6; high[k, n[k]] = $7 }
    END {
        printf "%-65s %-6s %8s %17s %22s %6s\n", "model", "format", "value", "median estimate",
            "median interval", "holds"
        for (i = 1; i <= keys; i++) {
            k = order[i]; held = 0; estimates = lows = highs = ""
            for (j = 1; j <= n[k]; j++) {
                held += low[k, j] <= value[k] && value[k] <= high[k, j]
                estimates = estimates " " of[k, j]; lows = lows " " low[k, j]; highs = highs " " high[k, j]
            }
            split(k, name, "\t"); all += n[k]; all_held += held
            printf "%-65s %-6s %8.3g %17.3g %9.3g to %9.3g %3d/%d\n", name[1], name[2],
                value[k], median(estimates), median(lows), median(highs), held, n[k]
        }
        share = 100 * all_held / all
        is_good = share >= 90 && share <= 98
        printf "the interval holds in %d of %d, %.1f %%; 90 to 98 %% are asked for: %s\n", all_held, all,
            share, is_good ? "met" : "missed"
        exit !is_good
    }' "$rows"
