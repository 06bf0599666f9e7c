#!/bin/bash
# PyTorch beside tandem, in turns, on the same cores; then what tandem.apply makes of PyTorch.
# usage: bench/torch.sh [steps|converted|replays|memory]… [all]
#   steps      a training step of PyTorch beside the same step of tandem: models, batches and precisions;
#              for resnet50 PyTorch in both memory formats, for bert_base with a head over all tokens, as its
#              users write it, and over the 15 % that have a label, which is what tandem computes; tandem also
#              in int8_full. Then two ranks: DistributedDataParallel over Gloo beside tandem's. tandem: how
#              many times as fast it is; memory: the peak of the process, and what of it came with the model.
#              A second table has tandem's steps beside the best of PyTorch's [6 minutes a round, PEER: 35]
#   converted  steps of modules as tandem.apply runs them; the converted calls, which cast their operands and
#              gradients, multiply, add the bias and sum its gradient, beside the products, casts and biases
#              (forward and backward) of the same layers in steps of tandem's executor. All are held to each
#              instruction set of SETS [best avx512_bf16 avx2] that is here [2.5 minutes a round]
#   replays    of DistributedDataParallel from its own profile, two different ranks [2 minutes a round]
#   memory     the peak of a step as one capture predicts it, beside what PyTorch counts on the CPU: 18
#              modules, at batches, precisions and optimizers that the capture did not run; `all` has it not
#              [12 minutes]
#   PEER [none]: a folder that bench/newest_torch.sh made; steps of the PyTorch in it run too, as that can
#              run them: eager, with scaled_dot_product_attention (sdpa), each also by torch.compile
#              (compiled). Its optimizers are fused; its heap keeps what was freed and has huge pages. /: the
#              machine's own PyTorch so. Needs root
#   THREADS [1]: of steps: threads on cores 0 to THREADS - 1 on both sides; one rank
#   ROUNDS [3], DEVICE [strongest]; tables show medians over the rounds, of replays each round
#   OUT [torch.out]: results, one file a case; the next run with the same OUT makes the rest. A step that
#              PyTorch could not make is a result too: its row says why; without its file it is tried again
#   LIMIT [7200]: seconds after which no further case begins; the longest case takes under a minute, compiled
#              under two
# Says first which BLAS PyTorch computes in and on which CPU; refuses one whose products are slow, which would
# be no peer. Exits 1 where a bar is missed: converted calls in bf16 and int8_full within 10 % of the
# executor's, and steps faster than PyTorch's in fp32 where the executor's products are; replays within 5 % on
# average and 10 % at worst; peaks of memory within 3 % on average and 8 % at worst. Needs `make`,
# python3-torch, python3-torchvision, libopenblas0, jq; replays one core for each of two ranks.
# shellcheck disable=SC2317 # sample calls what makes a case
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tandem=$here/../build/tandem
[ $# -gt 0 ] || set -- steps converted replays
rounds=${ROUNDS:-3} device=${DEVICE:-strongest} limit=${LIMIT:-7200} threads=${THREADS:-1}
out=$(realpath -m "${OUT:-torch.out}")
python=/usr/bin/python3
for one in /usr/bin/python3.1?; do [ -x "$one" ] && "$one" -c 'import torch, torchvision' 2>/dev/null &&
    python=$one; done
"$python" -c 'import torch, torchvision' ||
    {
        echo "bench/torch.sh: no python3 here has PyTorch and torchvision;" \
            "apt-get install python3-torch python3-torchvision libopenblas0" >&2 && exit 4
    }
core=$(($(nproc) - 1)) cores=$core # before OMP_NUM_THREADS, which nproc heeds
if ! [[ $threads =~ ^[1-9][0-9]?$ ]] || [ "$threads" -gt $((core + 1)) ]; then
    echo "bench/torch.sh: THREADS=$threads; allowed are 1 to $((core + 1)), the cores here" >&2 && exit 2
fi
if [ "$threads" != 1 ]; then
    [ "$*" = steps ] ||
        { echo "bench/torch.sh: THREADS=$threads with $*; allowed: steps alone" >&2 && exit 2; }
    cores=0-$((threads - 1))
fi
export OMP_NUM_THREADS=$threads
# OpenBLAS takes newer cores for older ones.
if grep -qw avx512f /proc/cpuinfo; then export OPENBLAS_CORETYPE=SkylakeX; fi
taskset -c "$core" "$python" "$here/torch/peer.py"
version() { # PYTHON…: "pytorch 2.6"
    "$@" -c 'import torch; print("pytorch", ".".join(torch.__version__.split(".")[:2]))'
}
old=$(version "$python") new='' peer='' copy='' mounted=()
leave() {
    local one
    rm -f "$out/.made"
    [ -z "$copy" ] || rm -rf "$copy"
    for one in "${mounted[@]}"; do umount "$one" || true; done
}
trap leave EXIT
enter_peer() {
    local one
    peer=$(realpath -m "$PEER")
    if [ "$(id -u)" != 0 ]; then
        echo "bench/torch.sh: PEER=$PEER needs root, got the user $(id -un); run this by sudo" >&2
        exit 4
    fi
    for one in proc sys dev; do
        if [ -d "$peer/$one" ] && ! mountpoint -q "$peer/$one"; then
            mount --bind "/$one" "$peer/$one"
            mounted+=("$peer/$one")
        fi
    done
    if ! chroot "$peer" /usr/bin/python3 -c 'import torch, torchvision'; then
        echo "bench/torch.sh: PEER=$PEER has no PyTorch with torchvision; bench/newest_torch.sh makes it" >&2
        exit 4
    fi
    new=$(version chroot "$peer" /usr/bin/python3)
    [ "$new" != "$old" ] || old='' # its rows would be the same
    # Debian's torch.compile leaves Sleef out when it links; without it, it makes no kernels for vectors.
    for one in "${peer%/}"/usr/lib/*/libsleef.so.3; do
        [ ! -e "$one" ] || settings+=(LD_PRELOAD="${one#"${peer%/}"}")
    done
    copy=$(mktemp -d "${peer%/}/tmp/tandem.XXXXXX")
    mkdir -p "$copy/bench" "$copy/python"
    cp -r "$here/torch" "$copy/bench/" && cp -r "$here/../python/tandem" "$copy/python/"
    inside bench/torch/peer.py --compiler
}
# glibc otherwise gives large buffers back to the system, which clears their pages again in each step.
settings=(MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=68719476736 GLIBC_TUNABLES=glibc.malloc.hugetlb=1)
inside() { # SCRIPT ARGUMENT…: of this repository, by the Python of PEER
    chroot "$peer" env "${settings[@]}" taskset -c "$cores" /usr/bin/python3 "${copy#"${peer%/}"}/$1" "${@:2}"
}
if [ -n "${PEER:-}" ] && [[ " $* " = *" steps "* ]]; then enter_peer; fi
[ "$device" != strongest ] ||
    device=$("$tandem" list devices --json |
        jq -r '[.devices[] | select(.present and (.name | startswith("cpu:"))) | .name] | last')
[ "$threads" = 1 ] || device=$device:$threads
echo "tandem: $device"
mkdir -p "$out" && cd "$out"
left=0

sample() { # FILE COMMAND…: what COMMAND prints, once
    [ ! -e "$1" ] || return 0
    if [ "$SECONDS" -ge "$limit" ]; then left=$((left + 1)) && return 0; fi
    echo "$1" >&2
    "${@:2}" >.made && mv .made "$1"
}

# --- Steps: CASE step_ns peak_bytes model_bytes state_bytes [why there are none];
# a case is MODEL|THREADS|PRECISION|PROGRAM ---
row() { # CASE: of what step.py prints; fails where that is nothing
    # shellcheck disable=SC2016
    jq -re --arg case "$1" \
        '[$case, (.step_ns, .peak_bytes, .model_bytes, .state_bytes | . // 0), .error // ""] | @tsv'
}
theirs() { # CASE ARGUMENT…
    taskset -c "$cores" "$python" "$here/torch/step.py" "${@:2}" --threads "$threads" | row "$1"
}
newest() { # CASE MODEL PRECISION TURN ARGUMENT…
    { inside bench/torch/step.py "$2" "$3" --turns "$4" "${@:5}" --threads "$threads" || [ $? = 1 ]; } |
        row "$1"
}
ours() { # CASE MODEL BATCH PRECISION
    taskset -c "$cores" "$python" "$here/torch/ours.py" "$tandem" "$1" "$2" "$3" "$device" "$4"
}
their_two() { # CASE PRECISION
    "$python" "$here/torch/step.py" resnet50 "$2" --ranks 2 --channels-last --steps 10 | row "$1"
}
newest_two() { # CASE PRECISION
    cores=0-$core inside bench/torch/step.py resnet50 "$2" --ranks 2 --channels-last --steps 10 | row "$1"
}
our_two() { # CASE PRECISION
    "$python" "$here/torch/ours.py" "$tandem" "$1" resnet50 8 "$device" "$2" 2
}
steps() {
    local n=0 round precision model
    # Each counts, so that a case has one number with and without PEER.
    one() { # PROGRAM COMMAND ARGUMENT…: a case of the model and precision, unless there is no such program
        n=$((n + 1))
        [ -z "$1" ] || sample "steps.$threads.$round.$n" "$2" "$model|$threads|$precision|$1" "${@:3}"
    }
    old() { # WAY ARGUMENT…
        one "${old:+$old${1:+, $1}}" theirs "$model" "$precision" "${@:2}"
    }
    new() { # WAY TURN ARGUMENT…: and the same compiled
        one "${new:+$new${1:+, $1}}" newest "$model" "$precision" "${@:2}"
        local turn=${2/eager/}
        one "${new:+$new${1:+, $1}, compiled}" newest "$model" "$precision" "${turn:+$turn+}compile" "${@:3}"
    }
    of_precision() {
        model=resnet50
        old nchw
        one tandem ours resnet50 8 "$precision"
        old nhwc --channels-last
        new nchw eager
        new nhwc eager --channels-last
        model=vit_b16
        old "" --batch 4
        one tandem ours vit_b16 4 "$precision"
        new "" eager --batch 4
        new sdpa sdpa --batch 4
        model=bert_base
        old "" --batch 4
        one tandem ours bert_base:seq=128 4 "$precision"
        old "15 %" --batch 4 --labelled
        new "" eager --batch 4
        new "15 %" labelled --batch 4
        new "15 %, sdpa" labelled+sdpa --batch 4
        model=gpt2_small
        old "" --batch 1 --seq 256
        one tandem ours gpt2_small:seq=256 1 "$precision"
        new "" eager --batch 1 --seq 256
        new sdpa sdpa --batch 1 --seq 256
        [ "$threads" = 1 ] || return 0
        model="2 ranks"
        one "${old:+$old, nhwc}" their_two "$precision"
        one tandem our_two "$precision"
        one "${new:+$new, nhwc}" newest_two "$precision"
    }
    for round in $(seq "$rounds"); do
        n=0
        for precision in fp32 bf16; do of_precision; done
        precision=int8_full old='' new='' # PyTorch has no such steps
        of_precision
    done
}

# --- Converted modules: MODEL PRECISION step_ns converted_ns losses kernels, of the module;
# executor MODEL PRECISION products_ns casts_ns biases_ns, of steps of tandem, medians ---
hold() { # SET COMMAND…: COMMAND on the core, PyTorch and our kernels held to an instruction set
    local held=() isa=${1#avx512_}
    case $1 in
    best) ;;
    avx512*) held=(ONEDNN_MAX_CPU_ISA="AVX512_CORE_${isa^^}") ;;
    *) held=(ONEDNN_MAX_CPU_ISA="${isa^^}" OPENBLAS_CORETYPE=Haswell ATEN_CPU_CAPABILITY=avx2) ;;
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
    memory) taskset -c "$core" "$python" "$here/torch/step_memory.py" || missed=1 ;;
    *) echo "bench/torch.sh: '$part' is none of steps, converted, replays, memory" >&2 && exit 2 ;;
    esac
    compgen -G "$part.*" >/dev/null || continue
    "$python" "$here/torch/tables.py" "$part" "$out" || missed=1
done
[ $left = 0 ] || echo "$left cases are left: bench/torch.sh again, with the same OUT"
exit $missed
