#!/bin/bash
# How far predicted times lie off for a model that was never measured: each small model of the zoo in turn is left out of the
# profile and predicted from the other three (`tandem replay --predict`), then measured and replayed. Prints a table: the step,
# and the median error of a single operator (its forward and backward tasks) that takes more than 0.1 % of the step.
# usage: bench/predict.sh [DEVICE…]     needs `make`; takes some minutes
set -eu
tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
[ $# -gt 0 ] || set -- strongest cpu:avx weakest
models="resnet20 vit_tiny gpt_tiny mlp"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work"

profile() { # STORE MODEL DEVICE
    for batch in 4 16; do "$tandem" profile -q --db "$1" --model "$2" --batch "$batch" --device "$3" >/dev/null; done
}
replay() { # STORE MODEL DEVICE PRECISION ARGUMENT…
    "$tandem" replay --db "$1" --model "$2" --batch 16 --device "$3" --uniform "$4" --operators --json "${@:5}"
}
number() { sed -n "s/^ *\"$1\": \([0-9.]*\),*\$/\1/p"; }

printf '%-16s %-10s %-10s %10s %10s %7s  %s\n' device 'left out' precision 'predicted' 'measured' error 'one operator (median)'
for device; do
    for model in $models; do
        for other in $models; do [ "$other" = "$model" ] || profile others.db "$other" "$device"; done
        profile own.db "$model" "$device"
        for precision in fp32 int8; do
            replay others.db "$model" "$device" "$precision" --predict >predicted.json
            replay own.db "$model" "$device" "$precision" >measured.json
            for side in predicted measured; do
                number step_ns <$side.json >$side.step
                number ns <$side.json >$side.ns
            done
            paste predicted.ns measured.ns | awk -v step="$(cat measured.step)" '
                $2 > step / 1000 { e = $1 / $2 - 1; print e < 0 ? -e : e }' | sort -g >errors
            paste predicted.step measured.step | awk -v device="$device" -v model="$model" -v precision="$precision" \
                -v median="$(sed -n "$((($(wc -l <errors) + 1) / 2))p" errors)" '
                { printf "%-16s %-10s %-10s %7.2f ms %7.2f ms %+6.1f%%  %.0f%%\n", device, model, precision, $1 / 1e6,
                         $2 / 1e6, 100 * ($1 / $2 - 1), 100 * median }'
        done
        rm -f others.db* own.db*
    done
done
