#!/bin/bash
# Whether a training run has the same losses with graphs and launched kernel by kernel: where something in a
# graph does not wait for what it needs, or a rank takes a bucket before it is there, they differ. Exit code 1
# where they do. usage: bench/cuda/same_losses.sh TANDEM CLUSTER MODEL [STEPS]
set -u
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
for graphs in 1 0; do
    TANDEM_GRAPHS=$graphs "$1" train -q --json --model "$3" --cluster "$2" --uniform fp32 --bucket 64KiB \
        --steps "${4:-60}" >"$folder/run" || exit
    sed -n '/"loss": \[/,/\]/p' "$folder/run" >"$folder/losses$graphs"
done
if [ -s "$folder/losses1" ] && cmp -s "$folder/losses1" "$folder/losses0"; then
    echo "$3 on $2: the same losses with graphs and without"
else
    echo "$3 on $2: other losses with graphs (left) than without"
    diff -y --suppress-common-lines "$folder/losses1" "$folder/losses0" | head -n 5
    exit 1
fi
