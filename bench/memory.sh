#!/bin/bash
# Memory as planned, as allocated, and as the system counts it, by `tandem compare --json`: models x
# precisions, on one device and on two. Profiles only what a case needs, into a store that is thrown away.
# Prints a table; exit code 1 where allocated is not predicted, or the system's figure is farther from the
# plan than 2 % and 24 MiB. usage: bench/memory.sh [STRONG WEAK]     needs `make`, jq and 4 GiB of memory;
# takes some minutes
set -eu
tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
strong=${1:-strongest} weak=${2:-weakest}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work"
printf '%-26s %5s %-15s %-16s %11s %11s %11s %11s %11s\n' model batch plan device predicted allocated \
    resident unplanned bound
while read -r model batch devices uniform; do
    case $devices in strong) devices=$strong ;; weak) devices=$weak ;; pair) devices=$strong,$weak ;; esac
    of=(-q --json --model "$model" --batch "$batch" --device "$devices" --uniform "$uniform")
    "$tandem" profile "${of[@]}" --db "$model.db" --repetitions 1 >profile.json 2>error.txt </dev/null ||
        { # a precision that the device lacks
            echo "$model in $uniform: $(head -n 1 error.txt)" >&2 && continue
        }
    "$tandem" compare "${of[@]}" --db "$model.db" --steps 4 </dev/null |
        jq -r '.cases[0] | . as $case | .devices | to_entries[] |
        [.value, $case.predicted_peak_bytes[.key], $case.allocated_peak_bytes[.key],
         $case.resident_peak_bytes[.key], $case.unplanned_bytes[.key]] | @tsv' |
        awk -v model="$model" -v batch="$batch" -v plan="$uniform" -v "MiB=1048576" '
            { bound = $2 / 50 + 24 * MiB; off = $5 < 0 ? -$5 : $5; bad += ($2 != $3 || off > bound)
              printf "%-26s %5s %-15s %-16s %7.1f MiB %s %5.1f MiB %7.1f MiB %+7.1f MiB %7.1f MiB%s\n",
                  model, batch, plan, $1, $2 / MiB, $2 == $3 ? "=" : "!", $3 / MiB, $4 / MiB, $5 / MiB,
                  bound / MiB, (off > bound ? " over" : "") }
            END { exit (bad > 0) }' || failed=1
done <<END
mlp:width=2048,depth=3 64 weak fp32
mlp:width=2048,depth=3 64 pair fp32,int8_full
resnet20 128 strong fp32
resnet20 128 strong int8
resnet20 128 pair fp32,int8_full
vit_tiny 64 strong fp32
vit_tiny 64 strong bf16
vit_tiny 64 pair fp32,int8
gpt_tiny 32 strong fp32
gpt_tiny 32 strong int8_full
resnet18 8 strong fp32
resnet18 8 strong int8
vgg16_bn:image=64 4 strong fp32
resnet50 4 strong fp32
resnet50 4 strong bf16
resnet50 4 strong int8
bert_base:seq=64 1 strong fp32
bert_base:seq=64 1 strong bf16
gpt2_small:seq=64 1 strong int8
END
exit "${failed:-0}"
