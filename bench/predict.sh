#!/bin/bash
# How far predicted times lie off for a model that was never measured: each small model of the zoo in turn is
# left out of the profile and predicted from the other three (`tandem replay --predict`). Then it is profiled
# itself, replayed from that, and run (`tandem compare`, whose rank has a core of its own), its precisions in
# turns. Prints a table:
#   predicted, replayed   the step from the other models' profile, and from its own
#   measured              the median of the steps that were run
#   error, of replay      of predicted against measured, and of replayed against measured
#   one operator          its forward and backward tasks, predicted against measured: the median of those over
#   0.1 % of the step
# usage: bench/predict.sh [DEVICE…]     MODELS="resnet20 mlp": of these alone; ROUNDS: runs of a case [2].
#        bench/predict.sh sweep [DEVICE…]   from a sweep of the device, half of it before the runs and half
#        after them, instead of other models; BATCH [16], SECONDS_OF_HALF [55]; KEEP: a folder
#        for the stores and runs
# Needs `make`, jq; two to four minutes a device
set -eu
tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
from=models
[ "${1:-}" != sweep ] || { from=sweep && shift; }
[ $# -gt 0 ] || set -- strongest cpu:avx weakest
all="resnet20 vit_tiny gpt_tiny mlp"
if [ -n "${KEEP:-}" ]; then
    work=$KEEP
else
    work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
fi
cd "$work"

profile() { # STORE MODEL DEVICE
    for batch in 4 16; do "$tandem" profile -q --db "$1" --model "$2" --batch "$batch" --device "$3" \
        >/dev/null; done
}
row() { # DEVICE MODEL PRECISION [PREFIX]: from predicted.PRECISION.json and run.PRECISION.*.json
    jq -rs --slurpfile foretold "${4:-}predicted.$3.json" --arg device "$1" --arg model "$2" \
        --arg precision "$3" '
        def median: sort | .[length / 2 | floor];
        (map(.cases[0].measured_ns) | median) as $measured |
        (.[0].cases[0].predicted_ns) as $replayed |
        $foretold[0].step_ns as $predicted |
        ($foretold[0].operators | map({key: .operator, value: .devices[0].ns}) | from_entries) as $of |
        ([.[].operators[] | select(.measured_ns > $measured / 1000 and $of[.operator])] |
            group_by(.operator) |
            map($of[.[0].operator] / (map(.measured_ns) | median) - 1 | fabs) | median) as $one |
        [$device, $model, $precision, $predicted / 1e6, $replayed / 1e6, $measured / 1e6,
         100 * ($predicted / $measured - 1), 100 * ($replayed / $measured - 1), 100 * $one] |
            @tsv' "${4:-}run.$3".*.json |
        awk -F'\t' '{
            printf "%-16s %-10s %-10s %7.2f ms %7.2f ms %7.2f ms %+8.1f%% %+8.1f%%  %.0f%%\n",
                $1, $2, $3, $4, $5, $6, $7, $8, $9 }'
}

# --- After a sweep ---

part() { "$tandem" profile --sweep="${SECONDS_OF_HALF:-55}s" --device "$1" --db sweep.db; }
judge() { # DEVICE MODEL NUMBER: runs it, each precision in turns
    for precision in fp32 int8; do
        "$tandem" profile -q --repetitions 8 --db "own.$3.db" --model "$2" --batch "${BATCH:-16}" \
            --device "$1" --uniform $precision >/dev/null
    done
    for round in $(seq "${ROUNDS:-2}"); do
        for precision in fp32 int8; do
            "$tandem" compare -q --db "own.$3.db" --model "$2" --batch "${BATCH:-16}" --device "$1" \
                --uniform $precision --operators --json >"$3.run.$precision.$round.json"
        done
    done
}
foretell() { # DEVICE MODEL NUMBER
    for precision in fp32 int8; do
        "$tandem" replay --db sweep.db --model "$2" --batch "${BATCH:-16}" --device "$1" \
            --uniform $precision --predict --operators --json >"$3.predicted.$precision.json"
        row "$(jq -r '.cases[0].devices[0]' "$3.run.fp32.1.json")" "$2" $precision "$3."
    done
}
table() {
    printf '%-16s %-10s %-10s %10s %10s %10s %9s %9s  %s\n' device 'not seen' precision predicted replayed \
        measured error 'of replay' 'one operator (median)'
    for device; do
        i=0
        for model in ${MODELS:-$all}; do i=$((i + 1)) && foretell "$device" "$model" "$device.$i"; done
    done
}
if [ $from = sweep ]; then
    if [ -z "${AGAIN:-}" ]; then
        for device; do
            part "$device"
            i=0
            for model in ${MODELS:-$all}; do i=$((i + 1)) && judge "$device" "$model" "$device.$i"; done
            part "$device"
        done
    fi
    table "$@"
    exit 0
fi

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $("$tandem" --version | head -n 1)"
printf '%-16s %-10s %-10s %10s %10s %10s %9s %9s  %s\n' device 'left out' precision predicted replayed \
    measured error 'of replay' 'one operator (median)'
for device; do
    for model in ${MODELS:-$all}; do
        for other in $all; do [ "$other" = "$model" ] || profile others.db "$other" "$device"; done
        what=(--model "$model" --batch 16 --device "$device")
        for precision in fp32 int8; do
            "$tandem" replay --db others.db "${what[@]}" --uniform $precision --predict --operators --json \
                >predicted.$precision.json
        done
        profile own.db "$model" "$device"
        for round in $(seq "${ROUNDS:-2}"); do
            for precision in fp32 int8; do
                "$tandem" compare -q --db own.db "${what[@]}" --uniform $precision --operators --json \
                    >"run.$precision.$round.json"
            done
        done
        for precision in fp32 int8; do row "$(jq -r '.cases[0].devices[0]' run.fp32.1.json)" "$model" \
            $precision; done
        rm -f others.db* own.db* ./*.json
    done
done
