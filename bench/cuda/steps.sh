#!/bin/bash
# A training step in bf16 on a card: tandem's, as graphs and launched kernel by kernel, beside PyTorch's on
# the same card where a python3 with torch.cuda is there. Medians.
# Exits 1 where one of them failed or was stopped; 1 of tandem or PyTorch itself is an answer: it does not
# fit. usage: bench/cuda/steps.sh [TANDEM [DEVICE]]     [build/tandem cuda:0]; STEPS=10; ONE_LIMIT: seconds
# for each figure [60]
set -u
here=$(cd "$(dirname "$0")" && pwd)
tandem=${1:-$here/../../build/tandem} device=${2:-cuda:0} steps=${STEPS:-10} limit=${ONE_LIMIT:-60}
log=$(mktemp) && trap 'rm -f "$log"' EXIT
python=$(for one in python3 /usr/bin/python3; do
    "$one" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null && echo "$one" && break
done)
[ -n "$python" ] || echo "SKIP PyTorch: no python3 here has torch with a card"

code=0
heed() { [ "$1" -le 1 ] || code=1; } # EXIT_CODE
why() { # EXIT_CODE
    if [ "$1" = 124 ]; then echo "stopped after $limit s"; else tail -n 1 "$log" | sed 's,^tandem: ,,'; fi
}
number() { sed -n "s/.*\"$1\": *\([0-9][0-9]*\).*/\1/p" "$log" | head -n 1; } # the first of that name in $log
ms() { if [ -n "$1" ]; then awk -v ns="$1" 'BEGIN { printf "%.1f ms", ns / 1e6 }'; else echo -; fi; }
ratio() { if [ -n "$1" ] &&
    [ -n "$2" ]; then awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f x", a / b }'; else echo -; fi; }

printf '%-22s %6s %12s %12s %12s %8s\n' model batch tandem launched PyTorch faster
step() { # MODEL BATCH GRAPHS
    TANDEM_GRAPHS=$3 timeout "$limit" "$tandem" bench step -q --json --model "$1" --batch "$2" --device \
        "$device" \
        --uniform bf16 --repetitions "$steps" >"$log" 2>&1
}
one() { # MODEL BATCH [OPTION OF PYTORCH…: without one, tandem alone]
    local model=$1 batch=$2 ours="" launched="" theirs="" said="" ended
    step "$model" "$batch" 1
    ended=$?
    heed $ended
    if [ $ended = 0 ]; then ours=$(number median_ns); else said="tandem: $(why $ended)"; fi
    step "$model" "$batch" 0
    ended=$?
    heed $ended
    if [ $ended = 0 ]; then launched=$(number median_ns); else \
        said="$said${said:+; }launched: $(why $ended)"; fi
    if [ -n "$python" ] && [ $# -gt 2 ]; then
        timeout "$limit" "$python" "$here/../torch/step.py" "${model%%:*}" bf16 --batch "$batch" --device \
            cuda \
            --steps "$steps" "${@:3}" >"$log" 2>&1
        ended=$?
        heed $ended
        if [ $ended = 0 ]; then theirs=$(number step_ns); else \
            said="$said${said:+; }PyTorch: $(why $ended)"; fi
    fi
    printf '%-22s %6s %12s %12s %12s %8s\n' "$model" "$batch" "$(ms "$ours")" "$(ms "$launched")" \
        "$(ms "$theirs")" \
        "$(ratio "$theirs" "$ours")"
    [ -z "$said" ] || echo "    $said"
}
one resnet20 128
one gpt_tiny 32
one resnet50 128 --channels-last
one bert_base:seq=128 64 --seq 128
one gpt2_small:seq=1024 16 --seq 1024
exit $code
