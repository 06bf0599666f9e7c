#!/bin/bash
# What the parts of the published NVFP4 recipe do to a loss, by trials (`tandem compare --measure-loss`):
# nvfp4 in the nearest form everywhere, the recipe, the recipe without one part, and beside them all operands
# in bf16. Each arm trains pairs of branches, fp32 and the arm's, from the same weights over the same samples;
# all arms have the same pairs. Prints the loss of each arm above that of fp32, and that of each part: the arm
# without it less the arm with it, with 95 % intervals over the pairs. Exits with 1 where the intervals of all
# parts hold 0, or a branch of fp32 differs between arms. Formats are emulated.
#   bench/recipes.sh [FOLDER]   FOLDER [recipes] keeps the branches; the next run goes on after the last one
#   PAIRS [8], STEPS [400], MODEL, DEVICE [strongest]: environment. Needs `make`, bible-kjv-text, sqlite3 of
#   Python; some 20 minutes on two cores
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tandem=${TANDEM:-$here/../build/tandem}
folder=$(realpath -m "${1:-recipes}") pairs=${PAIRS:-8} steps=${STEPS:-400}
model=${MODEL:-gpt_tiny:width=48,heads=4,depth=4,length=64} data=bible-kjv-text
of=(-q --json --model "$model" --data "$data" --device "${DEVICE:-strongest}" --batch 16 --lr 0.001 --eval 0)

# NAME: how it rounds. The list is fixed before the run; its hash is printed.
arms="
nearest --uniform int8_full --emulate=nvfp4
recipe --uniform int8_full --emulate=nvfp4_recipe
without_sr --uniform int8_full --emulate=nvfp4_without_sr
without_hadamard --uniform int8_full --emulate=nvfp4_without_hadamard
without_2d --uniform int8_full --emulate=nvfp4_without_2d
without_kept --uniform int8_full --emulate=nvfp4_all
bf16 --uniform bf16 --emulate"

mkdir -p "$folder"
cd "$folder"
while read -r name how; do
    [ -n "$name" ] || continue
    # shellcheck disable=SC2086 # words
    "$tandem" compare --measure-loss "${of[@]}" $how --steps "$steps" --repetitions "$pairs" --seed 1 \
        --db "$name.db" >"$name.json"
done <<<"$arms"
echo "list $(echo "$arms ${of[*]} $steps" | sha256sum | cut -c 1-12), $data, $pairs pairs of $steps steps:"
echo "$model"
python3 "$here/recipes.py" "$folder"
