#!/bin/bash
# Allocated plans run for real beside their target: three models, two slowdowns each, on the strongest device
# here and another one beside it; then precision and batch chosen alone and together. Profiles first, into a
# store that is thrown away. usage: bench/plans.sh [STRONG WEAK]     needs `make` and a quiet machine; takes
# some ten minutes
set -eu
tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
strong=${1:-strongest} weak=${2:-weakest}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work"
"$tandem" list devices >text.txt && for _ in 1 2 3 4 5 6; do cat text.txt text.txt >more.txt &&
    mv more.txt text.txt; done
field() { sed -n "s/^ *\"$1\": \([^,]*\),\{0,1\}\$/\1/p" | head -n 1; }
ms() { awk -v ns="$1" 'BEGIN { printf "%.2f", ns / 1e6 }'; }
over() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%+.1f%%", 100 * (a - b) / b }'; }
measured() { "$tandem" compare -q --json --steps 40 --eval 0 "$@" | field measured_ns; }

echo "| model | batch | slowdown | sensitivity | gap |" \
    "target (ms) | predicted | measured | measured over target |"
echo "|---|---|---|---|---|---|---|---|---|"
while read -r model batch data; do
    of=(--model "$model" --batch "$batch")
    "$tandem" profile -q "${of[@]}" --device "$strong,$weak" --data "$data" >/dev/null
    "$tandem" sensitivity -q "${of[@]}" --data "$data" >/dev/null
    for slowdown in 2% 10%; do
        "$tandem" allocate -q --json "${of[@]}" --cluster "$strong + $weak" --slowdown $slowdown -o \
            plan.json >answer.json
        run=$(measured --plan plan.json --data "$data")
        target=$(field target_ns <answer.json)
        echo "| $model | $batch | $slowdown | $(field sensitivity_bound <answer.json)" \
            "| $(field gap <answer.json)" \
            "| $(ms "$target") | $(ms "$(field step_ns <answer.json)") | $(ms "$run") | $(over "$run" \
                "$target") |"
    done
done <<END
vit_tiny:width=256,heads=4 16 fashion-mnist
resnet20 32 fashion-mnist
gpt_tiny 8 text.txt
END

echo
echo "| chosen | batches | sensitivity | predicted (ms) | measured (ms) | samples/s |"
echo "|---|---|---|---|---|---|"
model=vit_tiny:width=256,heads=4 data=fashion-mnist
for batch in 8 24; do "$tandem" profile -q --model $model --batch $batch --device "$strong,$weak" --data \
    $data >/dev/null; done
"$tandem" allocate -q --json --model $model --cluster "$strong + $weak" --batch auto --global-batch 32 \
    --slowdown 2% -o both.json >both_answer.json
split() { sed -n "/\"$1\"/,/\]/p" both_answer.json | sed -n 's/^ *\([0-9][0-9]*\),\{0,1\}$/\1/p' |
    tr '\n' ' '; }
of_way() { sed -n "/\"$1\"/,/}/p" both_answer.json | field "$2"; }
way() { # NAME MEMBER MEASURED_NS
    echo "| $1 | $(split "$2")| $(of_way "$2" sensitivity_bound) | $(ms "$(of_way "$2" step_ns)")" \
        "| $(ms "$3")" \
        "| $(awk -v ns="$3" 'BEGIN { printf "%.1f", 32e9 / ns }') |"
}
"$tandem" allocate -q --model $model --batch 16 --cluster "$strong + $weak" --slowdown 2% -o precision.json \
    >/dev/null
read -r strong_batch weak_batch <<<"$(split batch_alone)"
way "precision alone" precision_alone "$(measured --plan precision.json --data $data)"
way "batch alone" batch_alone "$(measured --model $model --cluster \
    "$strong batch=$strong_batch + $weak batch=$weak_batch" --uniform fp32 --data $data)"
way "both" both "$(measured --plan both.json --data $data)"
