#!/bin/bash
# A training step of PyTorch beside the same step of tandem: the same models, batches and precisions, one
# thread on one core, in turns; for resnet50 PyTorch in both memory formats, for bert_base with a head over
# all tokens, as its users write it, and over the 15 % that have a label, which is what tandem computes. Then
# two ranks: DistributedDataParallel over Gloo beside tandem's. Prints a table of medians over the rounds
# (tandem: how many times as fast it is), and of memory: the peak of the process, and what of it came with the
# model. Says first which BLAS PyTorch computes in and on which CPU; refuses one whose products are slow,
# which would be no peer. usage: bench/torch.sh [ROUNDS [DEVICE]]     needs `make`, python3-torch,
# python3-torchvision, libopenblas0, jq; 4 minutes a round
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tandem=$here/../build/tandem
rounds=${1:-3} device=${2:-strongest}
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
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

pytorch() { # CASE ARGUMENT…: a line "CASE step_ns peak_bytes model_bytes"
    taskset -c "$core" "$python" "$here/torch/step.py" "${@:2}" | jq -r --arg case "$1" \
        '[$case, .step_ns, .peak_bytes, .model_bytes] | @tsv' >>"$work/samples"
}
ours() { # CASE MODEL BATCH PRECISION
    local of=(--model "$2" --batch "$3" --device "$device" --uniform "$4")
    # shellcheck disable=SC2016
    taskset -c "$core" "$python" -c 'import json, resource, subprocess, sys
case, command = sys.argv[1], sys.argv[2:]
step = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["cases"][0]["median_ns"]
print(case, step, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, 0, sep="\t")' \
        "$1" "$tandem" bench step -q --json --repetitions 3 "${of[@]}" >>"$work/samples"
}
two() { # PRECISION
    "$python" "$here/torch/step.py" resnet50 "$1" --ranks 2 --channels-last --steps 10 |
        jq -r --arg case "2 ranks|$1|pytorch nhwc" \
        '[$case, .step_ns, .peak_bytes, .model_bytes] | @tsv' >>"$work/samples"
    "$tandem" train -q --json --model resnet50 --batch 8 --cluster "2*$device" --uniform "$1" --steps 12 |
        jq -r \
        --arg case "2 ranks|$1|tandem" '[$case, .step_ns, 0, .ranks[0].allocated_bytes] | @tsv' \
            >>"$work/samples"
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    for precision in fp32 bf16; do
        pytorch "resnet50|$precision|pytorch nchw" resnet50 $precision
        ours "resnet50|$precision|tandem" resnet50 8 $precision
        pytorch "resnet50|$precision|pytorch nhwc" resnet50 $precision --channels-last
        pytorch "bert_base|$precision|pytorch" bert_base $precision --batch 4
        ours "bert_base|$precision|tandem" bert_base:seq=128 4 $precision
        pytorch "bert_base|$precision|pytorch, 15 %" bert_base $precision --batch 4 --labelled
        pytorch "gpt2_small|$precision|pytorch" gpt2_small $precision --batch 1 --seq 256
        ours "gpt2_small|$precision|tandem" gpt2_small:seq=256 1 $precision
        two $precision
    done
done
"$python" - "$work/samples" <<'END'
import statistics
import sys

samples = {}
for line in open(sys.argv[1], encoding="ascii"):
    case, *numbers = line.rstrip("\n").split("\t")
    samples.setdefault(tuple(case.split("|")), []).append([int(number) for number in numbers])
median = {case: [statistics.median(column) for column in zip(*rows)] for case, rows in samples.items()}
print(
    f"{'model':<10} {'precision':<9} {'program':<13} {'step':>8} {'least':>8} {'tandem':>7} "
    f"{'peak':>9} {'of the model':>13}"
)
for (model, precision, program), (step, peak, of_model) in median.items():
    least = min(row[0] for row in samples[model, precision, program])
    tandem = median[model, precision, "tandem"][0]
    faster = "" if program == "tandem" else f"{step / tandem:.2f} x"
    sizes = [f"{size / 2**20:.0f} MiB" if size else "" for size in (peak, of_model)]
    print(
        f"{model:<10} {precision:<9} {program:<13} {step / 1e9:>6.2f} s {least / 1e9:>6.2f} s "
        f"{faster:>7} {sizes[0]:>9} {sizes[1]:>13}"
    )
END

# What tandem.apply makes of the same PyTorch: steps, and in them the converted calls with their casts, beside
# the products of the same shapes in tandem's executor.
printf '%-9s %-10s %10s %18s %22s  losses\n' model precision step 'converted calls' "executor's products"
for model in resnet18 encoder; do
    of=(--model "resnet18:image=96x96x3,classes=10" --batch 8) # the zoo has no such encoder
    taskset -c "$core" "$python" "$here/torch/apply.py" "$model" --rounds "$rounds" | while read -r row; do
        precision=$(jq -r .precision <<<"$row")
        products=-
        [ "$model" != resnet18 ] ||
            products=$(taskset -c "$core" "$tandem" bench products -q --json "${of[@]}" --device "$device" \
                --uniform "$precision" | jq '[.products[] | .count * .step_ns] | add / 1e6 | round')
        jq -r --arg products "$products" '[.model, .precision, (.step_ns / 1e6 | round),
            (.converted_ns / 1e6 | round), $products, (.losses | join(" "))] | @tsv' <<<"$row" |
            while IFS=$'\t' read -r name precision step converted products losses; do
                printf '%-9s %-10s %7s ms %15s ms %19s ms  %s\n' "$name" "$precision" "$step" "$converted" \
                    "$products" "$losses"
            done
    done
done

# Replays of its DistributedDataParallel from its own profile.
"$python" "$here/torch/replay.py" | tee "$work/replays"
awk -F'\t' '{ e = 100 * ($3 / $4 - 1); e = e < 0 ? -e : e; sum += e; if (e > worst) worst = e }
    END { printf "%d replays: error %.1f %% on average, %.1f %% at worst\n", NR, sum / NR, worst }' \
    "$work/replays"
