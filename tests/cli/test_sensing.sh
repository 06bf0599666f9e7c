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
    sense 0 --at 0,50% --repetitions 4 --json --db two.db &&
    diff <(grep -v '"command": ' out) <(grep -v '"command": ' first) >differ
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
print(max(b["sensitivity_bound"] for b in plan["baselines"]))' >value
}
# Noise adds up over operators, here at the batch that was sensed.
uniform() {
    run 0 allocate --model $model --cluster "h100 batch=16" --predict --sensitivity sampled --db one.db \
        --quiet --policy uniform --uniform int8_full "$@"
}
uniform --json && python3 -c '
import json
plan = json.load(open("out"))
rows = [r for r in json.load(open("first"))["operators"] if r["precision"] == "int8_full"]
assert len(rows) == 2 and abs(plan["sensitivity_noise"] - sum(r["noise"] for r in rows)) < 1e-6, (plan, rows)
assert 0 <= plan["sensitivity_low"] <= plan["sensitivity"] <= plan["sensitivity_high"], plan
assert plan["sensitivity"] <= plan["sensitivity_bound"] * (1 + 1e-9), plan
assert [a["at"] for a in plan["sensitivity_ages"]] == [0, 50]
largest = [row["sensitivity"] for row in plan["sensitivity_largest"]]
assert len(largest) == 2 and largest == sorted(largest, reverse=True), plan
worth = plan["samples_per_s"] / (1 + plan["sensitivity"] / 100)
assert abs(plan["fp32_worth_samples_per_s"] / worth - 1) < 1e-6 and plan["fp32_samples_per_s"] > 0, plan
' && uniform &&
    grep -qE '^sensitivity  [0-9.]+ % more samples to the same loss \(95 %: [0-9.]+ to [0-9.]+ %\): ' out &&
    grep -qE '^worth        [0-9.]+k? samples/s, [0-9.]+k? in fp32.s; all fp32: [0-9.]+' out &&
    grep -qE '^largest      (fc1|head) int8_full [0-9.e-]+ %, (fc1|head) int8_full [0-9.e-]+ %$' out
report "sensing: a plan's sensitivity has an interval" $?

# The same price wherever the plan is printed, and whatever method chose it; without a sensing, none.
uniform -o plan.json && uniform --json && python3 -c '
import json
print(json.load(open("out"))["sensitivity"])' >price &&
    run 0 replay --plan plan.json --predict --db one.db --json && python3 -c '
import json
replayed = json.load(open("out"))
assert replayed["sensitivity"] == float(open("price").read()) > 0, replayed
assert replayed["fp32_worth_samples_per_s"] < replayed["samples_per_s"]' &&
    run 0 replay --plan plan.json --predict --db one.db && grep -q '^worth  ' out &&
    run 0 replay --plan plan.json --predict --db none.db --json && grep -q '"sensitivity": null' out &&
    run 0 replay --plan plan.json --predict --db none.db && grep -q '^sensitivity  no price is known: ' out
report "sensing: replay prints the price of a plan" $?

front() {
    run 0 allocate --model $model --cluster "h100 batch=16" --predict --sensitivity sampled --db one.db \
        --pareto=4 --quiet "$@"
}
front --json && python3 -c '
import json
points = json.load(open("out"))["pareto"]
assert all(0 <= p["sensitivity"] <= p["sensitivity_bound"] * (1 + 1e-9) for p in points), points
assert points[-1]["sensitivity"] == 0 and points[0]["fp32_worth_samples_per_s"] > 0, points' &&
    front && grep -qE '[0-9.]+ \([0-9.]+ to [0-9.]+\)' out
report "sensing: --pareto prints the price of each plan" $?

# The fastest step within a limit, with a limit in percent; and the least step x (1 + sensitivity).
within() {
    run 0 allocate --model $model --cluster "h100 batch=16" --predict --sensitivity sampled --db one.db \
        --quiet "$@"
}
front --json && mv out front.json && within --max-sensitivity 0.005% --json && python3 -c '
import json
plan, front = json.load(open("out")), json.load(open("front.json"))["pareto"]
assert plan["objective"] == "step" and plan["max_sensitivity"] == 0.005, plan
assert plan["sensitivity_bound"] <= 0.005, plan
bounds = [p["sensitivity_bound"] for p in front]
assert min(bounds) <= 0.005 < max(bounds), bounds' && within --max-sensitivity 0.005% &&
    grep -q 'fastest step with a sensitivity of at most 0.005 %' out
report "sensing: the fastest step within a percentage of more samples" $?

within --minimize training-time --json && python3 -c '
import json
plan, front = json.load(open("out")), json.load(open("front.json"))["pareto"]
time = lambda p: p["step_ns"] * (1 + p["sensitivity_bound"] / 100)
assert plan["objective"] == "training-time" and abs(plan["training_ns"] / time(plan) - 1) < 1e-6, plan
assert plan["training_bound_ns"] <= plan["training_ns"] <= plan["training_bound_ns"] * 1.01, plan
assert all(plan["training_ns"] <= time(b) * (1 + 1e-3) for b in plan["baselines"] + front), plan' &&
    within --minimize training-time && grep -q 'has a step x (1 + sensitivity) below' out
report "sensing: the least step x (1 + sensitivity)" $?

advise() {
    run 0 advise --model $model --cluster "h100 batch=16 net=10Gbit/s,5us" --add "t4 batch=16" --predict \
        --sensitivity sampled --db one.db --quiet "$@"
}
advise --json && python3 -c '
import json
cases = json.load(open("out"))["cases"]
assert len(cases) == 3 and all(c["fp32_worth_samples_per_s"] <= c["samples_per_s"] for c in cases), cases
assert all(c["sensitivity"] <= c["sensitivity_bound"] * (1 + 1e-9) for c in cases), cases' &&
    advise && grep -q '^worth  ' out
report "sensing: advise prints the price of each plan" $?

run 0 profile --model $model --device weakest --batch 16 --db one.db --quiet &&
    run 0 compare --model $model --device weakest --batch 16 --uniform int8_full --steps 6 \
        --db one.db --json --quiet && python3 -c '
import json
case = json.load(open("out"))["cases"][0]
assert case["sensitivity"] > 0, case
worth = case["samples_per_s"] / (1 + case["sensitivity"] / 100)
assert abs(case["fp32_worth_samples_per_s"] / worth - 1) < 1e-6, case'
report "sensing: compare prints the price of the plan that ran" $?

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
