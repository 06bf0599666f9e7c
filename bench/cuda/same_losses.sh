#!/bin/bash
# Whether a training run has the same losses and weights, to the bit, when it is run again, and when its
# kernels are launched one by one instead of as graphs: where something in a graph does not wait for what it
# needs, or a rank takes a bucket before it is there, they differ. Exit code 1 where they do.
# usage: bench/cuda/same_losses.sh TANDEM CLUSTER MODEL [OPTION OF train…]; STEPS=60
set -u
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
code=0
for run in first again launched; do
    graphs=1
    [ $run != launched ] || graphs=0
    TANDEM_GRAPHS=$graphs "$1" train -q --json --model "$3" --cluster "$2" --uniform fp32 --bucket 64KiB \
        --steps "${STEPS:-60}" --export "$folder/$run.weights" "${@:4}" >"$folder/run" || exit
    sed -n '/"loss": \[/,/\]/p' "$folder/run" >"$folder/$run.loss"
    [ $run != first ] || continue
    how="again, as graphs"
    [ $run != launched ] || how="without graphs"
    if [ -s "$folder/$run.loss" ] && cmp -s "$folder/first.loss" "$folder/$run.loss" &&
        cmp "$folder/first.weights" "$folder/$run.weights" >"$folder/where"; then
        echo "$3 on $2: the same losses and weights $how"
    else
        echo "$3 on $2: other losses or weights $how (right) than as graphs"
        diff -y --suppress-common-lines "$folder/first.loss" "$folder/$run.loss" | head -n 5
        [ ! -s "$folder/where" ] || sed "s,$folder/,," "$folder/where"
        code=1
    fi
done
exit $code
