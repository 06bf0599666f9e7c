#!/bin/bash
# A training step in bf16 on a card: tandem's, as graphs and launched kernel by kernel, beside PyTorch's on
# the same card where a python3 with torch.cuda is there. Medians. Before its steps each model is profiled at
# its batch, so that products take the fastest way that tandem finds, as PyTorch's convolutions do
# (cudnn.benchmark). PyTorch has a column for each way in which a user may run it; "faster" is against the
# best: "eager", attention by its parts; "labelled", the head reads the tokens that have a label alone, as
# tandem's does; "sdpa", that and scaled_dot_product_attention; "compiled", that and torch.compile. A row is
# printed as it is measured, what decides first. Exits 1 where one of them failed or was stopped; 1 of tandem
# or PyTorch itself is an answer: it does not fit. torch.compile may be missing: a line says so.
# usage: bench/cuda/steps.sh [TANDEM [DEVICE [MODEL…]]] [build/tandem cuda:0, all], or bench/cuda/steps.sh
# python, which prints the python3 that has PyTorch and a card; STEPS=10; ONE_LIMIT: seconds for each figure
# [60], and thrice that where PyTorch compiles; TANDEM_DB: where the profiles go [a file of this run]; PYTHON:
# which python3 [found out]; none where it is empty
set -u
here=$(cd "$(dirname "$0")" && pwd)
find_python() {
    local one
    for one in python3 /usr/bin/python3; do
        timeout 60 "$one" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null &&
            echo "$one" && break
    done
}
[ "${1:-}" != python ] || { find_python && exit; }
tandem=${1:-$here/../../build/tandem} device=${2:-cuda:0} steps=${STEPS:-10} limit=${ONE_LIMIT:-60}
wanted=" ${*:3} "
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
log=$work/log
export TANDEM_DB=${TANDEM_DB:-$work/tandem.db}
python=${PYTHON-$(find_python)}
[ -n "$python" ] || echo "SKIP PyTorch: no python3 here has torch with a card"

code=0
heed() { [ "$1" -le 1 ] || code=1; } # EXIT_CODE
why() { # EXIT_CODE LIMIT
    if [ "$1" = 124 ]; then echo "stopped after $2 s"; else tail -n 1 "$log" | sed 's,^tandem: ,,'; fi
}
number() { sed -n "s/.*\"$1\": *\([0-9][0-9]*\).*/\1/p" "$log" | head -n 1; } # the first of that name in $log
ms() { if [ -n "$1" ]; then awk -v ns="$1" 'BEGIN { printf "%.1f ms", ns / 1e6 }'; else echo -; fi; }
ratio() { if [ -n "$1" ] &&
    [ -n "$2" ]; then awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f x", a / b }'; else echo -; fi; }

printf '%-22s %6s %10s %10s %10s %10s %10s %8s %10s\n' model batch tandem compiled sdpa labelled eager \
    faster launched
said=''
note() { said="$said${said:+; }$1"; }
ours() { # MODEL BATCH GRAPHS: the time of a step in $time
    time=''
    TANDEM_GRAPHS=$3 timeout "$limit" "$tandem" bench step -q --json --model "$1" --batch "$2" --device \
        "$device" --uniform bf16 --repetitions "$steps" >"$log" 2>&1
    local ended=$?
    heed $ended
    if [ $ended = 0 ]; then time=$(number median_ns); else
        note "tandem, graphs $3: $(why $ended "$limit")"
    fi
}
theirs() { # COLUMN MODEL BATCH OPTION…: the time of a step in $time, and in $best where it is better
    time=''
    [ -n "$python" ] || return
    local may_take=$limit
    [ "$1" != compiled ] || may_take=$((3 * limit))
    timeout "$may_take" "$python" "$here/../torch/step.py" "${2%%:*}" bf16 --batch "$3" --device cuda \
        --steps "$steps" "${@:4}" >"$log" 2>&1
    local ended=$?
    [ "$1" = compiled ] || heed $ended
    [ $ended = 0 ] || { note "PyTorch, $1: $(why $ended "$may_take")" && return; }
    time=$(number step_ns)
    [ -n "$best" ] && [ "$best" -le "$time" ] || best=$time
}
one() { # MODEL BATCH COLUMNS [OPTION OF PYTORCH…]: COLUMNS that PyTorch has for it
    local model=$1 batch=$2 columns=" $3 " column best='' graphs=''
    [ "$wanted" = "  " ] || [[ $wanted == *" ${model%%:*} "* ]] || return
    said=''
    timeout "$limit" "$tandem" profile -q --model "$model" --batch "$batch" --device "$device" --uniform \
        bf16 >"$log" 2>&1
    local ended=$?
    heed $ended
    [ $ended = 0 ] || note "not profiled, so untuned: $(why $ended "$limit")"
    printf '%-22s %6s' "$model" "$batch"
    ours "$model" "$batch" 1
    graphs=$time
    printf ' %10s' "$(ms "$time")"
    for column in compiled sdpa labelled eager; do
        time=''
        if [[ $columns == *" $column "* ]]; then
            local more=()
            [[ $column == eager || $columns != *" labelled "* ]] || more+=(--labelled)
            [[ $column == eager || $column == labelled || $columns != *" sdpa "* ]] || more+=(--sdpa)
            [ $column != compiled ] || more+=(--compile)
            theirs $column "$model" "$batch" "${@:4}" "${more[@]}"
        fi
        printf ' %10s' "$(ms "$time")"
    done
    printf ' %8s' "$(ratio "$best" "$graphs")"
    ours "$model" "$batch" 0
    printf ' %10s\n' "$(ms "$time")"
    [ -z "$said" ] || echo "    $said"
}
one resnet20 128 ''
one gpt_tiny 32 ''
one resnet50 128 'eager compiled' --channels-last
one bert_base:seq=128 64 'eager labelled sdpa compiled' --seq 128
one gpt2_small:seq=1024 16 'eager sdpa compiled' --seq 1024
exit $code
