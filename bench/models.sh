#!/bin/bash
# Predicted against measured for the small models of the zoo, each under four plans, on the strongest device
# here and on an unlike one beside it (those of `tandem demo`). Profiles first, into a store that is thrown
# away. Prints a table. usage: bench/models.sh [STRONG WEAK]     needs `make`; takes some minutes
set -eu
tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
strong=${1:-strongest} weak=${2:-weakest}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work"
"$tandem" list devices >text.txt && for k in 1 2 3 4 5 6; do cat text.txt text.txt >more.txt &&
    mv more.txt text.txt; done

printf '%-10s %5s  %-16s %11s %11s %7s  %s\n' model batch plan predicted measured error \
    'memory predicted = allocated'
compare() { # MODEL BATCH DATA NAME ARGUMENT…
    local model=$1 batch=$2 data=$3 name=$4
    shift 4
    "$tandem" compare -q "$@" --steps 40 --data "$data" --eval 0 | sed -n \
        -e "s/^step predicted \(.*\), measured \(.*\) (p10.*error \(.*\)\$/\1|\2|\3/p" | {
        IFS='|' read -r predicted measured error
        same=$("$tandem" compare -q "$@" --steps 3 | grep -cE '^cpu:.* = ' || true)
        printf '%-10s %5s  %-16s %11s %11s %7s  %s of 2 ranks\n' "$model" "$batch" "$name" "$predicted" \
            "$measured" "$error" "$same"
    }
}
while read -r model batch data; do
    of=(--model "$model" --batch "$batch")
    "$tandem" profile -q "${of[@]}" --device "$strong,$weak" --data "$data" >/dev/null
    "$tandem" sensitivity -q "${of[@]}" --data "$data" >/dev/null
    "$tandem" allocate -q "${of[@]}" --cluster "$strong + $weak" --slowdown 2% -o plan.json >/dev/null
    for uniform in fp32 fp32,int8 fp32,int8_full; do
        compare "$model" "$batch" "$data" "$uniform" "${of[@]}" --cluster "$strong + $weak" --uniform \
            "$uniform"
    done
    compare "$model" "$batch" "$data" allocated --plan plan.json
done <<END
resnet20 32 fashion-mnist
vit_tiny 16 fashion-mnist
gpt_tiny 8 text.txt
mlp 256 fashion-mnist
END
