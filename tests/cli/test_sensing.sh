#!/bin/bash
# `tandem sensitivity --at`: what it prints and stores, and what it refuses. Speaks TAP. TANDEM_BUILD = the
# build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

if ! "$tandem" list datasets --json | grep -q '"present": true'; then
    echo "1..0 # SKIP fashion-mnist is not installed: dataset-fashion-mnist"
    exit 0
fi
model=mlp:width=16,depth=1
sense() {
    local expected=$1
    shift
    run "$expected" sensitivity --model $model --data fashion-mnist --batch 16 --steps 40 --quiet "$@"
}

sense 0 --at 0,50% --repetitions 4 --json --db one.db && cp out first &&
    sense 0 --at 0,50% --repetitions 4 --json --db two.db && cmp -s out first
report "sensing: the same bytes twice" $?

# Of one operator: more for fewer bits, less than 10 % for int8, and next to nothing for tf32.
python3 - first <<'EOF' >out 2>err
import json, sys
sensed = json.load(open(sys.argv[1]))
assert sensed["ages"] == [0, 20] and sensed["batch"] == 16 and sensed["replicates"] == 4
noise = {}
for row in sensed["operators"]:
    assert row["sensitivity_low"] <= row["sensitivity"] <= row["sensitivity_high"], row
    assert len(row["at_ages"]) == 2
    noise[row["operator"], row["precision"]] = row["noise"]
for operator in "fc1", "head":
    assert 0 <= noise[operator, "tf32"] < noise[operator, "bf16"] < noise[operator, "int8_full"], noise
    assert noise[operator, "int8_full"] < noise[operator, "fp8"] * 2 and noise[operator, "int8_full"] < 10
EOF
report "sensing: fewer bits need more samples" $?

# A plan's sensitivity: in its own unit, and of its own batch.
allocate() {
    run 0 allocate --model $model --cluster "h100 batch=$1" --predict --sensitivity sampled --db one.db \
        --json --quiet && python3 -c '
import json
plan = json.load(open("out"))
assert plan["method"] == "sampled"
print(max(b["sensitivity"] for b in plan["baselines"]))' >value
}
# Noise adds up over operators, here at the batch that was sensed.
uniform() {
    run 0 allocate --model $model --cluster "h100 batch=16" --predict --sensitivity sampled --db one.db \
        --quiet --policy uniform --uniform int8_full "$@"
}
uniform --json && python3 -c '
import json
more = json.load(open("out"))["more_samples"]
rows = [r for r in json.load(open("first"))["operators"] if r["precision"] == "int8_full"]
assert len(rows) == 2 and abs(more["noise"] - sum(r["noise"] for r in rows)) < 1e-6, (more, rows)
assert 0 <= more["sensitivity_low"] <= more["sensitivity"] <= more["sensitivity_high"], more
' && uniform && grep -q '^sensitivity  [0-9.]* % more samples to the same loss (95 %: ' out &&
    grep -q '^worth  ' out
report "sensing: a plan's sensitivity has an interval" $?

allocate 16 && mv value small && allocate 256 && awk '
    NR == FNR { small = $1; next } { exit !(small > 0 && $1 > 0 && $1 != small) }' small value
report "sensing: a plan has the sensitivity of its own batch" $?

run 4 allocate --model mlp:width=8 --cluster h100 --predict --sensitivity sampled --db one.db &&
    grep -q -- '--at' err
report "sensing: a model that was not sensed" $?

sense 2 --at 50%,10% && grep -q 'ascending' err && sense 2 --at 41 && sense 2 --at 101% && sense 2 --at x &&
    sense 2 --at '' && sense 2 --at 0 --repetitions 2 --db none.db && grep -q '3 to 64' err
report "sensing: wrong ages and too few replicates" $?

echo "1..$n"
[ $failed = 0 ]
