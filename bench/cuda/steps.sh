#!/bin/bash
# A training step in bf16 on a card: tandem's, as graphs and launched kernel by kernel, beside PyTorch's on
# the same card where a python3 with torch.cuda is there. Medians. Before its steps each model is profiled at
# its batch, so that products take the fastest way that tandem finds, as PyTorch's convolutions do
# (cudnn.benchmark). PyTorch has a column for each way in which a user may run it; "faster" is against the
# best: "sdpa", scaled_dot_product_attention, and the head reads the tokens that have a label alone, as
# tandem's does; "padded", the same with a vocabulary of a multiple of 64 (50,304 and 30,528 words), at which
# tandem's rows of logits begin; "labelled", that head alone; "eager", attention by its parts. One process
# measures all four.
# A row is printed as it is measured, what decides first. Then, for all models, PyTorch's step by
# torch.compile, which may take minutes to be made, and what is faster than the best of all columns. Exits 1
# where one of them failed or was stopped; 1 of tandem or PyTorch itself is an answer: it does not fit.
# torch.compile may be missing: a line says so.
# usage: bench/cuda/steps.sh [TANDEM [DEVICE [MODEL…]]] [build/tandem cuda:0, all], or bench/cuda/steps.sh
# python, which prints the python3 that has PyTorch and a card; PARTS [steps compiled]; STEPS=10; ONE_LIMIT:
# seconds for each figure [60], and thrice that where PyTorch compiles; TANDEM_DB: where the profiles go [a
# file of this run]; KEPT: the folder from which "compiled" knows what "steps" measured [of this run]; PYTHON:
# which python3 [found out]; none where it is empty
# shellcheck disable=SC2317 # each calls what makes a row
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
log=$work/log kept=${KEPT:-$work}
export TANDEM_DB=${TANDEM_DB:-$work/tandem.db}
python=${PYTHON-$(find_python)}
[ -n "$python" ] || echo "SKIP PyTorch: no python3 here has torch with a card"

code=0
heed() { [ "$1" -le 1 ] || code=1; } # EXIT_CODE
# why EXIT_CODE LIMIT
why() {
    if [ "$1" = 124 ]; then echo "stopped after $2 s"; else tail -n 1 "$log" | sed 's,^tandem[a-z-]*: ,,'; fi
}
number() { sed -n "s/.*\"$1\": *\([0-9][0-9]*\).*/\1/p" "$log" | head -n 1; } # the first of that name in $log
ms() { if [ -n "$1" ]; then awk -v ns="$1" 'BEGIN { printf "%.1f ms", ns / 1e6 }'; else echo -; fi; }
ratio() { if [ -n "$1" ] &&
    [ -n "$2" ]; then awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f x", a / b }'; else echo -; fi; }

said=''
note() { said="$said${said:+; }$1"; }
ours() { # MODEL BATCH GRAPHS: the time of a step in $time
    time=''
    TANDEM_GRAPHS=$3 timeout "$limit" "$tandem"-bench step -q --json --model "$1" --batch "$2" --device \
        "$device" --uniform bf16 --repetitions "$steps" >"$log" 2>&1
    local ended=$?
    heed "$ended"
    if [ "$ended" = 0 ]; then time=$(number median_ns); else
        note "tandem, graphs $3: $(why "$ended" "$limit")"
    fi
}
cell() { printf ' %10s' "$(ms "$1")"; } # NS
# theirs LIMIT MODEL BATCH "TURN…" [OPTION…]: one process; a cell for each turn as it is measured, and $best
theirs() {
    local may_take=$1 cells line ended=0 of=()
    read -ra cells <<<"$4" # "-": a column that PyTorch has not for this model
    if [ -n "${4//[- ]/}" ] && [ -n "$python" ]; then
        # shellcheck disable=SC2206
        of=("${2%%:*}" bf16 --batch "$3" --device cuda --steps "$steps" --turns ${4//- /} "${@:5}")
        while read -r line; do
            while [ "${cells[0]:-}" = - ]; do cell '' && cells=("${cells[@]:1}"); done
            time=''
            case $line in
            ended*) ended=${line#ended } && break ;;
            *'"step_ns"'*)
                time=${line#*\"step_ns\": } time=${time%%,*}
                [ -n "$best" ] && [ "$best" -le "$time" ] || best=$time
                ;;
            *) note "PyTorch, ${cells[0]}: ${line#*\"error\": }" ;;
            esac
            cell "$time"
            cells=("${cells[@]:1}")
        done < <(
            timeout "$may_take" "$python" "$here/../torch/step.py" "${of[@]}" 2>"$log" |
                grep --line-buffered '^{'
            echo "ended ${PIPESTATUS[0]}"
        )
        [[ $4 == *compile* ]] || heed "$ended" # it may be missing
        [ -z "${cells[0]:-}" ] || note "PyTorch, ${cells[0]}: $(why "$ended" "$may_take")"
    fi
    for line in "${cells[@]}"; do cell ''; done
}
steps() { # MODEL BATCH "TURN…" COMPILED [OPTION OF PYTORCH…]: a row
    local best='' graphs='' ended
    timeout "$limit" "$tandem" profile -q --model "$1" --batch "$2" --device "$device" --uniform bf16 \
        >"$log" 2>&1
    ended=$?
    heed "$ended"
    [ "$ended" = 0 ] || note "not profiled, so untuned: $(why "$ended" "$limit")"
    printf '%-22s %6s' "$1" "$2"
    ours "$1" "$2" 1
    graphs=$time
    cell "$graphs"
    theirs $((2 * limit)) "$1" "$2" "$3" "${@:5}"
    printf ' %8s' "$(ratio "$best" "$graphs")"
    echo "graphs=$graphs best=$best" >"$kept/${1%%:*}.ns"
    ours "$1" "$2" 0
    cell "$time"
}
compiled() { # the same: what PyTorch compiles, and what tandem is faster than the best of all columns
    local best='' graphs=''
    # shellcheck source=/dev/null
    [ ! -e "$kept/${1%%:*}.ns" ] || . "$kept/${1%%:*}.ns"
    printf '%-22s %6s' "$1" "$2"
    cell "$graphs"
    theirs $((3 * limit)) "$1" "$2" "$4" "${@:5}"
    printf ' %8s' "$(ratio "$best" "$graphs")"
}
each() { # COMMAND: for each model that is wanted
    row() {
        [ "$wanted" = "  " ] || [[ $wanted == *" ${2%%:*} "* ]] || return
        said=''
        "$@"
        printf '\n%s' "${said:+    $said
}"
    }
    row "$1" bert_base:seq=128 64 'labelled+sdpa labelled+sdpa+padded labelled eager' \
        labelled+sdpa+compile --seq 128
    row "$1" gpt2_small:seq=1024 16 'sdpa sdpa+padded - eager' sdpa+compile --seq 1024
    row "$1" resnet50 128 '- - - eager' compile --channels-last
    [ "$1" = compiled ] || { row "$1" resnet20 128 '- - - -' && row "$1" gpt_tiny 32 '- - - -'; }
}
for one in ${PARTS:-steps compiled}; do
    case $one in
    steps) printf '%-22s %6s %10s %10s %10s %10s %10s %8s %10s\n' model batch tandem sdpa padded labelled \
        eager faster launched ;;
    compiled) printf '%-22s %6s %10s %10s %8s\n' model batch tandem compiled faster ;;
    esac
    each "$one"
done
exit $code
