#!/bin/bash
# PyTorch beside tandem, in turns, one thread on one core; then what tandem.apply makes of PyTorch.
# usage: bench/torch.sh [steps|converted|replays]… [all]
#   steps      a training step of PyTorch beside the same step of tandem: models, batches and precisions;
#              for resnet50 PyTorch in both memory formats, for bert_base with a head over all tokens, as its
#              users write it, and over the 15 % that have a label, which is what tandem computes. Then two
#              ranks: DistributedDataParallel over Gloo beside tandem's. tandem: how many times as fast it is;
#              memory: the peak of the process, and what of it came with the model [4 minutes a round]
#   converted  steps of modules as tandem.apply runs them; the converted calls, which cast their operands and
#              gradients, multiply, add the bias and sum its gradient, beside the products, casts and biases
#              (forward and backward) of the same layers in steps of tandem's executor. All are held to each
#              instruction set of SETS [best avx512_bf16 avx2] that is here [2.5 minutes a round]
#   replays    of DistributedDataParallel from its own profile, two different ranks [2 minutes a round]
#   ROUNDS [3], DEVICE [strongest]; tables show medians over the rounds, of replays each round
#   OUT [torch.out]: results, one file a case; the next run with the same OUT makes the rest
#   LIMIT [7200]: seconds after which no further case begins; the longest case takes under a minute
# Says first which BLAS PyTorch computes in and on which CPU; refuses one whose products are slow, which would
# be no peer. Exits 1 where a bar is missed: converted calls in bf16 and int8_full within 10 % of the
# executor's, and steps faster than PyTorch's in fp32 where the executor's products are; replays within 5 % on
# average and 10 % at worst. Needs `make`, python3-torch, python3-torchvision, libopenblas0, jq; replays one
# core for each of two ranks.
# shellcheck disable=SC2317 # sample calls what makes a case
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tandem=$here/../build/tandem
[ $# -gt 0 ] || set -- steps converted replays
rounds=${ROUNDS:-3} device=${DEVICE:-strongest} limit=${LIMIT:-7200}
out=$(realpath -m "${OUT:-torch.out}")
python=/usr/bin/python3
for one in /usr/bin/python3.1?; do [ -x "$one" ] && "$one" -c 'import torch, torchvision' 2>/dev/null &&
    python=$one; done
"$python" -c 'import torch, torchvision' ||
    {
        echo "bench/torch.sh: no python3 here has PyTorch and torchvision;" \
            "apt-get install python3-torch python3-torchvision libopenblas0" >&2 && exit 4
    }
core=$(($(nproc) - 1)) # before OMP_NUM_THREADS, which nproc heeds
export OMP_NUM_THREADS=1
# OpenBLAS takes newer cores for older ones.
if grep -qw avx512f /proc/cpuinfo; then export OPENBLAS_CORETYPE=SkylakeX; fi
taskset -c "$core" "$python" "$here/torch/peer.py"
[ "$device" != strongest ] ||
    device=$("$tandem" list devices --json |
        jq -r '[.devices[] | select(.present and (.name | startswith("cpu:"))) | .name] | last')
echo "tandem: $device"
mkdir -p "$out" && cd "$out"
left=0
trap 'rm -f "$out/.made"' EXIT

sample() { # FILE COMMAND…: what COMMAND prints, once
    [ ! -e "$1" ] || return 0
    if [ "$SECONDS" -ge "$limit" ]; then left=$((left + 1)) && return 0; fi
    echo "$1" >&2
    "${@:2}" >.made && mv .made "$1"
}

# --- Steps: CASE step_ns peak_bytes model_bytes ---
pytorch() { # CASE ARGUMENT…
    taskset -c "$core" "$python" "$here/torch/step.py" "${@:2}" | jq -r --arg case "$1" \
        '[$case, .step_ns, .peak_bytes, .model_bytes] | @tsv'
}
ours() { # CASE MODEL BATCH PRECISION
    local of=(--model "$2" --batch "$3" --device "$device" --uniform "$4")
    # shellcheck disable=SC2016
    taskset -c "$core" "$python" -c 'import json, resource, subprocess, sys
case, command = sys.argv[1], sys.argv[2:]
step = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["cases"][0]["median_ns"]
print(case, step, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, 0, sep="\t")' \
        "$1" "$tandem"-bench step -q --json --repetitions 3 "${of[@]}"
}
their_two() { # CASE PRECISION
    "$python" "$here/torch/step.py" resnet50 "$2" --ranks 2 --channels-last --steps 10 |
        jq -r --arg case "$1" '[$case, .step_ns, .peak_bytes, .model_bytes] | @tsv'
}
our_two() { # CASE PRECISION
    "$tandem" train -q --json --model resnet50 --batch 8 --cluster "2*$device" --uniform "$2" --steps 12 |
        jq -r --arg case "$1" '[$case, .step_ns, 0, .ranks[0].allocated_bytes] | @tsv'
}
steps() {
    local n=0 round precision
    one() { # COMMAND CASE ARGUMENT…
        n=$((n + 1))
        sample "steps.$round.$n" "$@"
    }
    for round in $(seq "$rounds"); do
        n=0
        for precision in fp32 bf16; do
            one pytorch "resnet50|$precision|pytorch nchw" resnet50 "$precision"
            one ours "resnet50|$precision|tandem" resnet50 8 "$precision"
            one pytorch "resnet50|$precision|pytorch nhwc" resnet50 "$precision" --channels-last
            one pytorch "bert_base|$precision|pytorch" bert_base "$precision" --batch 4
            one ours "bert_base|$precision|tandem" bert_base:seq=128 4 "$precision"
            one pytorch "bert_base|$precision|pytorch, 15 %" bert_base "$precision" --batch 4 --labelled
            one pytorch "gpt2_small|$precision|pytorch" gpt2_small "$precision" --batch 1 --seq 256
            one ours "gpt2_small|$precision|tandem" gpt2_small:seq=256 1 "$precision"
            one their_two "2 ranks|$precision|pytorch nhwc" "$precision"
            one our_two "2 ranks|$precision|tandem" "$precision"
        done
    done
}

# --- Converted modules: MODEL PRECISION step_ns converted_ns losses kernels, of the module;
# executor MODEL PRECISION products_ns casts_ns biases_ns, of steps of tandem, medians ---
hold() { # SET COMMAND…: COMMAND on the core, PyTorch and our kernels held to an instruction set
    local held=()
    case $1 in
    best) ;;
    avx512*) held=(ONEDNN_MAX_CPU_ISA="AVX512_CORE_$(tr a-z A-Z <<<"${1#avx512_}")") ;;
    *) held=(ONEDNN_MAX_CPU_ISA="$(tr a-z A-Z <<<"$1")" OPENBLAS_CORETYPE=Haswell ATEN_CPU_CAPABILITY=avx2) ;;
    esac
    env "${held[@]}" taskset -c "$core" "${@:2}"
}
converted_module() { # SET MODEL PRECISIONS
    hold "$1" "$python" "$here/torch/apply.py" "$2" --rounds 1 --precisions "$3" |
        jq -r '[.model, .precision, .step_ns, .converted_ns, (.losses | join(" ")), .kernels] | @tsv'
}
executor_calls() { # DEVICE MODEL PRECISION
    local of=(--model "resnet18:image=96x96x3,classes=10" --batch 8)
    [ "$2" = resnet18 ] || of=(--model encoder.onnx --batch 8)
    taskset -c "$core" "$tandem"-bench products -q --json "${of[@]}" --device "$1" --uniform "$3" \
        --repetitions 8 | jq -r --arg case "executor	$2	$3" '[$case,
            ([.products[] | .count * .step_ns] | add | round), .casts_ns, .biases_ns] | join("\t")'
}
converted() {
    local round set model precision precisions of
    [ -e encoder.onnx ] || "$python" "$here/torch/apply.py" encoder --export encoder.onnx
    for round in $(seq "$rounds"); do
        for set in ${SETS:-best avx512_bf16 avx2}; do
            of=$device
            [ "$set" = best ] || of=cpu:$set
            "$tandem" list devices --json | jq -e --arg of "$of" \
                'any(.devices[]; .present and .name == $of)' >/dev/null || continue
            precisions="fp32 int8_full"
            case $of in *bf16) precisions+=" bf16" ;; esac
            for model in resnet18 encoder; do
                sample "converted.$round.$set.$model" converted_module "$set" "$model" "${precisions// /,}"
                for precision in $precisions; do
                    sample "converted.$round.$set.$model.$precision" \
                        executor_calls "$of" "$model" "$precision"
                done
            done
        done
    done
}

replays() {
    local round model
    for round in $(seq "$rounds"); do
        for model in mlp encoder convolutions; do
            sample "replays.$round.$model" "$python" "$here/torch/replay.py" "$model"
        done
    done
}

missed=0
for part in "$@"; do
    case $part in
    steps | converted | replays) $part ;;
    *) echo "bench/torch.sh: '$part' is none of steps, converted, replays" >&2 && exit 2 ;;
    esac
    compgen -G "$part.*" >/dev/null || continue
    "$python" "$here/torch/tables.py" "$part" "$out" || missed=1
done
[ $left = 0 ] || echo "$left cases are left: bench/torch.sh again, with the same OUT"
exit $missed
