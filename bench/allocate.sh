#!/bin/sh
# Certified gaps, and policies beside each other: bench/allocate.sh [STORE] > table. Makes the statistics it
# lacks, on this machine's strongest device; times are predicted from the cards' descriptions, so the tables
# need no card.
set -eu
db=${1:-allocate.db}
tandem=${TANDEM:-build/tandem}
text=${TEXT:-/usr/share/common-licenses/GPL-3}
two="8*v100@8 + 8*t4@8 net=100Gbit/s,5us"
four="4*a100@4 + 4*v100@4 + 4*l4@4 + 4*t4@4 net=100Gbit/s,5us"
models="mlp@16 resnet20@16 vit_tiny@16 gpt_tiny@16 resnet18@32 resnet50@32 vgg16_bn@32"
models="$models vit_b16@32 bert_base:seq=128@16 gpt2_small:seq=256@8"

statistics() { # model
    case $1 in gpt* | bert*) data=$text ;; *) data=fashion-mnist ;; esac
    "$tandem" sensitivity -q --db "$db" --model "$1" --batch 1 --steps 3 --data "$data" > /dev/null
}
plan() { # model batch cluster options…
    model=$1 batch=$2 cluster=$3
    shift 3
    "$tandem" allocate -q --json --db "$db" --model "$model" --batch "$batch" --predict --cluster \
        "$cluster" "$@"
}
field() { sed -n "s/^  \"$1\": \"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}\$/\\1/p"; }

for case in $models; do
    model=${case%@*}
    plan "$model" 1 t4 --policy uniform --uniform fp32 > /dev/null 2>&1 || statistics "$model"
done

echo "## Gap that is left, policy exact"
echo
echo "| model | batch | classes | slowdown | step (ms) | sensitivity |" \
    "lower bound | gap | proof | seconds | greedy / bound |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
for case in $models; do
    model=${case%@*} batch=${case##*@}
    for cluster in "$two" "$four"; do
        n=2
        [ "$cluster" = "$two" ] || n=4
        for slowdown in 1% 5% 20%; do
            exact=$(plan "$model" "$batch" "$cluster" --policy exact --slowdown $slowdown)
            greedy=$(plan "$model" "$batch" "$cluster" --policy greedy --slowdown $slowdown |
                field sensitivity_bound)
            bound=$(echo "$exact" | field lower_bound)
            echo "| $model | $batch | $n | $slowdown | $(echo "$exact" | field step_ns |
                awk '{ printf "%.2f", $1 / 1e6 }')" \
                "| $(echo "$exact" | field sensitivity_bound) | $bound | $(echo "$exact" | field gap |
                    awk '{ printf "%.4f%%", 100 * $1 }')" \
                "| $(echo "$exact" | field proof) | $(echo "$exact" | field seconds |
                    awk '{ printf "%.3f", $1 }')" \
                "| $(echo "$greedy $bound" | awk '{ if ($2 > 0) printf "%.4f", $1 / $2; else print "1" }') |"
        done
    done
done

echo
echo "## Beside the published procedure: sensitivity of policy qsync over that of ours, at the same target"
echo
echo "| model | batch | slowdown | qsync | greedy | exact | qsync / exact |"
echo "|---|---|---|---|---|---|---|"
for case in $models; do
    model=${case%@*} batch=${case##*@}
    for slowdown in 1% 5% 20%; do
        exact=$(plan "$model" "$batch" "$two" --policy exact --slowdown $slowdown)
        target=$(echo "$exact" | field target_ns)ns
        ours=$(echo "$exact" | field sensitivity_bound)
        qsync=$(plan "$model" "$batch" "$two" --policy qsync --max-step "$target" | field sensitivity_bound)
        greedy=$(plan "$model" "$batch" "$two" --policy greedy --max-step "$target" | field sensitivity_bound)
        echo "| $model | $batch | $slowdown | $qsync | $greedy | $ours" \
            "| $(echo "$qsync $ours" |
                awk '{ if ($2 > 0) printf "%.2f", $1 / $2; else print $1 > 0 ? "inf" : "1" }') |"
    done
done
