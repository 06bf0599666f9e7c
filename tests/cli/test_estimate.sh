#!/bin/bash
# `tandem sensitivity`: what it prints and stores, what plans by it, and what it refuses. Speaks TAP.
# TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

if ! "$tandem" list datasets | grep -q '^fashion-mnist .* /'; then
    echo "1..0 # SKIP fashion-mnist is not installed: dataset-fashion-mnist"
    exit 0
fi
model=mlp:width=16,depth=1
estimate() {
    local expected=$1
    shift
    run "$expected" sensitivity --model $model --data fashion-mnist --batch 16 --steps 40 --by samples \
        --quiet "$@"
}

estimate 0 --at 0,50% --repetitions 4 --json --db one.db && cp out first &&
    estimate 0 --at 0,50% --repetitions 4 --json --db two.db &&
    diff <(grep -v '"command": ' out) <(grep -v '"command": ' first) >differ
report "estimate: the same bytes twice" $?

# Of one operator: more for fewer bits, less than 10 % for int8, and next to nothing for tf32.
python3 - first <<'EOF' >out 2>err
import json, sys
estimated = json.load(open(sys.argv[1]))
assert estimated["training_points"] == [0, 20] and estimated["batch"] == 16 and estimated["replicates"] == 4
noise = {}
for row in estimated["operators"]:
    assert row["sensitivity_low"] <= row["sensitivity"] <= row["sensitivity_high"], row
    assert len(row["at_training_points"]) == 2
    noise[row["operator"], row["precision"]] = row["noise"]
for operator in "fc1", "head":
    assert 0 <= noise[operator, "tf32"] < noise[operator, "bf16"] < noise[operator, "int8_full"], noise
    assert noise[operator, "int8_full"] < noise[operator, "fp8"] * 2 and noise[operator, "int8_full"] < 10
EOF
report "estimate: fewer bits need more samples" $?

# By a probe: the same unit from 64 gradients of all cells, and no bias.
# Of a model without relus: where units switch, either has too few samples here.
look() {
    run 0 sensitivity --model vit_tiny:width=8,heads=1,depth=1,patch=14 --data fashion-mnist --batch 16 \
        --steps 40 --at 50% --repetitions 16 --quiet --json "$@"
}
look --by samples --db three.db && mv out sampled && look --db four.db && cp out probed &&
    look --by probe --db five.db &&
    diff <(grep -v '"command": ' out) <(grep -v '"command": ' probed) >differ && python3 - <<'EOF' 2>err
import json, math
sampled, probed = json.load(open("sampled")), json.load(open("probed"))
assert probed["batch"] == 8 and probed["replicates"] == 16 and len(probed["operators"]) == 74
ratios = []
for of, by in zip(sampled["operators"], probed["operators"]):
    assert (of["operator"], of["precision"]) == (by["operator"], by["precision"])
    assert by["bias"] is None and by["sensitivity"] == max(by["noise"], 0), by
    if by["precision"] in ("bf16", "fp8", "int8_full", "mxfp8", "nvfp4"):
        # at half of the batch samples' noise is the same share of the gradient's, where that is noise
        ratios.append(by["noise"] / of["noise"])
ratios.sort()
assert 0.5 < math.exp(sum(map(math.log, ratios)) / len(ratios)) < 2, ratios
assert ratios[0] > 0.2 and ratios[-1] < 5, ratios
EOF
report "estimate: a probe sees the noise that samples show" $?

# A bias below half a step of the rounded number that it is added to is lost: after q, v and fc2 in bf16.
model_of_patches() {
    run 0 sensitivity --model vit_tiny:width=16,heads=1,depth=1 --data fashion-mnist --batch 16 --steps 60 \
        --at 50% --quiet --json "$@"
}
model_of_patches --repetitions 8 --by samples --db three.db && mv out sampled &&
    model_of_patches --repetitions 32 --db four.db && mv out probed && python3 - <<'EOF' 2>err
import json, math
noise = [{(row["operator"], row["precision"]): row["noise"] for row in json.load(open(name))["operators"]}
         for name in ("sampled", "probed")]
cells = [(name, "bf16") for name in ("block0.attention.q", "block0.attention.v", "block0.mlp.fc2")]
ratio = math.exp(sum(math.log(noise[1][cell] / noise[0][cell]) for cell in cells) / len(cells))
assert 0.6 < ratio < 1.7, ratio
scaled = [math.log(noise[1][cell] / noise[0][cell]) for cell in noise[0] if cell[1] == "int8_full"]
assert len(scaled) == 10 and abs(sum(scaled)) / 10 < 0.15, scaled  # -0.28 with ranges of half of the batch
half = [(row["sensitivity_high"] - row["sensitivity_low"]) / 2 / row["noise"]
        for row in json.load(open("probed"))["operators"] if row["precision"] in ("bf16", "tf32", "fp16")]
assert len(half) == 30 and sum(half) / len(half) < 0.27, half  # wider where cells use one batch of two
EOF
report "estimate: a probe sees lost biases in bf16, ranges of a batch, and both batches" $?

# A plan's sensitivity: in its own unit, and of its own batch.
allocate() {
    run 0 allocate --model $model --cluster "h100 batch=$1" --predict --sensitivity sampled --db one.db \
        --json --quiet && python3 -c '
import json
plan = json.load(open("out"))
assert plan["method"] == "sampled"
print(max(b["sensitivity_bound"] for b in plan["baselines"]))' >value
}
# Noise adds up over operators, here at the batch that was estimated.
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
assert [a["at"] for a in plan["sensitivity_training_points"]] == [0, 50]
largest = [row["sensitivity"] for row in plan["sensitivity_largest"]]
assert len(largest) == 2 and largest == sorted(largest, reverse=True), plan
goodput = plan["samples_per_s"] / (1 + plan["sensitivity"] / 100)
assert abs(plan["fp32_goodput_samples_per_s"] / goodput - 1) < 1e-6 and plan["fp32_samples_per_s"] > 0, plan
' && uniform &&
    extra='^extra samples  [0-9.]+% to the same loss \(95%: [0-9.]+ to [0-9.]+%\)(, bias unknown)?' &&
    grep -qE "$extra; goodput [0-9.]+k? samples/s, all fp32 [0-9.]+k?\$" out &&
    ! grep -q '^most of them' out && uniform --details &&
    grep -qE '^their parts    noise [0-9.e-]+%, bias ' out &&
    grep -qE '^most of them   (fc1|head) in int8_full [0-9.e-]+%, (fc1|head) in int8_full [0-9.e-]+%$' out
report "estimate: a plan's sensitivity has an interval" $?

# The same sensitivity wherever the plan is printed, and whatever method chose it; without an estimate, none.
uniform -o plan.json && uniform --json && python3 -c '
import json
print(json.load(open("out"))["sensitivity"])' >estimate &&
    run 0 replay --plan plan.json --predict --db one.db --json && python3 -c '
import json
replayed = json.load(open("out"))
assert replayed["sensitivity"] == float(open("estimate").read()) > 0, replayed
assert replayed["fp32_goodput_samples_per_s"] < replayed["samples_per_s"]' &&
    run 0 replay --plan plan.json --predict --db one.db && grep -q '; goodput ' out &&
    run 0 replay --plan plan.json --predict --db none.db --json && grep -q '"sensitivity": null' out &&
    run 0 replay --plan plan.json --predict --db none.db && grep -q '^extra samples  unknown: ' out
report "estimate: replay prints the extra samples of a plan" $?

# Every figure of a text ends where its interval does: derived here from the numbers of the JSON.
cat >digits.py <<'EOT'
import json, math, re, sys
def shown(value, half):
    exponent = min(max(math.floor(math.log10(half) + 1e-12), -9), 9)
    if abs(round(math.log10(half)) - math.log10(half)) < 1e-9:
        raise SystemExit("a half at a power of ten decides nothing")
    rounded = math.copysign(math.floor(abs(value) / 10**exponent + 0.5) * 10**exponent, value)
    return "%.*f" % (max(-exponent, 0), rounded if rounded else 0)
def half_of(p):
    return max(p["sensitivity_high"] - p["sensitivity"], p["sensitivity"] - p["sensitivity_low"])
def texts(p):
    half = half_of(p)
    if not half:
        return []
    estimate = [shown(p[name], half) for name in ("sensitivity", "sensitivity_low", "sensitivity_high")]
    bound = [shown(p["sensitivity_bound"], half)] if "sensitivity_bound" in p else []
    return ["%s (%s to %s)" % tuple(estimate)] + bound
result, text = json.load(open(sys.argv[1])), open(sys.argv[2]).read()
rows, found = [result] if result.get("sensitivity") is not None else [], 0
for name in "baselines", "pareto", "cases":
    rows += result.get(name, [])
rows += [result[name] for name in ("precision_alone", "batch_alone", "both") if result.get(name)]
for p in rows:
    if "line" in sys.argv[3:] and p is not result:
        continue
    for part in texts(p):
        if p is result and " (" in part and "line" in sys.argv[3:]:
            value, interval = part[:-1].split(" (")
            line = re.search(r"^extra samples  (\S+)% to the same loss \(95%: (\S+) to (\S+)%\)", text, re.M)
            assert line and line[1] == value, (value, text)
            ends = [p["prediction_low"], p["prediction_high"]]
            for end in 0, 1:  # one digit
                assert abs(float(line[2 + end]) - ends[end]) <= ends[end] / 2, (p, text)
            assert ends[0] <= p["sensitivity_low"] <= p["sensitivity_high"] < ends[1], p
            part = "sampling       %s%%: " % interval
        assert part in text, (part, text)
        found += 1
    for one in p.get("sensitivity_largest", []) if p is result else []:
        part = "%s in %s %s%%" % (one["operator"], one["precision"], shown(one["sensitivity"], half_of(one)))
        assert part in text, (part, text)
assert found > 0
EOT
both() { # name options…: the JSON and the text of a command
    run 0 "$@" --json && mv out printed.json && run 0 "$@" $details && mv out printed.txt
}
what=(--model $model --predict --from-description --sensitivity sampled --db one.db --quiet)
details=--details
run 0 allocate "${what[@]}" --cluster "h100 batch=16" --policy uniform --uniform int8_full -o plan.json &&
    both allocate "${what[@]}" --cluster "h100 batch=16" && python3 digits.py printed.json printed.txt &&
    both allocate "${what[@]}" --cluster "h100 batch=16" --policy uniform --uniform int8_full &&
    python3 digits.py printed.json printed.txt && python3 digits.py printed.json printed.txt line &&
    both allocate "${what[@]}" --cluster "h100 batch=16" --pareto=4 &&
    python3 digits.py printed.json printed.txt &&
    both allocate "${what[@]}" --cluster "h100 + t4 net=10Gbit/s,5us" --batch auto --global-batch 64 &&
    python3 digits.py printed.json printed.txt &&
    both advise "${what[@]}" --cluster "h100 batch=16 net=10Gbit/s,5us" --add "t4 batch=16" &&
    python3 digits.py printed.json printed.txt &&
    both replay --plan plan.json --predict --db one.db --quiet &&
    python3 digits.py printed.json printed.txt line
report "estimate: no figure has more digits than its interval allows" $?
details=

# --explain and --verify: of one operator, and of a plan's file.
both allocate "${what[@]}" --cluster "h100 batch=16" --explain fc1 && python3 - <<'EOT'
import json, re
text = open("printed.txt").read()
assert "sum (sampled, %)" in text
halves = {}
for row in json.load(open("first"))["operators"]:
    if row["operator"] == "fc1":
        value = row["sensitivity"]
        halves[row["precision"]] = max(row["sensitivity_high"] - value, value - row["sensitivity_low"])
n = 0
for name, value in re.findall(r"^(?:h100)? +(\w+) +([0-9.]+) ", text[text.index("fc1: effect"):], re.M):
    if halves.get(name):
        step = 10.0 ** -len(value.partition(".")[2])
        assert step <= max(halves[name], 1) and step * 10 > min(halves[name], 1), (name, value, halves[name])
        n += 1
assert n >= 5, text
for more in re.findall(r"(\S+) % more sensitivity", text):
    assert len(more) <= 6, more
EOT
report "estimate: --explain ends figures where the operator's interval does" $?
both allocate "${what[@]}" --cluster "h100 batch=16" --policy uniform --uniform int8_full &&
    run 0 allocate --verify plan.json --predict --db one.db &&
    python3 - <<'EOT'
import json, math, re
plan, text = json.load(open("printed.json")), open("out").read()
value = re.search(r"^sum +(\S+) \(sampled, %\)", text, re.M).group(1)
half = max(plan["sensitivity_high"] - plan["sensitivity"], plan["sensitivity"] - plan["sensitivity_low"])
assert len(value.partition(".")[2]) == max(-math.floor(math.log10(half)), 0), (value, half)
EOT
report "estimate: --verify does, too" $?

# Baselines and splits of a batch have the sensitivity of other plans.
both allocate "${what[@]}" --cluster "h100 batch=16" --policy uniform --uniform int8_full && python3 -c '
import json
plan = json.load(open("printed.json"))
same = [b for b in plan["baselines"] if b["precision"] == "int8_full"][0]
for name in "sensitivity", "sensitivity_low", "sensitivity_high", "sensitivity_bound", "fp32_samples_per_s":
    assert same[name] == plan[name] and same[name] is not None, name
assert abs(same["fp32_goodput_samples_per_s"] / plan["fp32_goodput_samples_per_s"] - 1) < 1e-9
fp32 = [b for b in plan["baselines"] if b["precision"] == "fp32"][0]
assert fp32["sensitivity"] == 0 and len(plan["baselines"]) >= 5' &&
    grep -qE '^uniform bf16 .* \(' printed.txt &&
    both allocate "${what[@]}" --cluster "h100 + t4 net=10Gbit/s,5us" --batch auto --global-batch 64 &&
    python3 -c '
import json
split = json.load(open("printed.json"))
assert split["batch_alone"]["sensitivity"] == 0, split
for name in "precision_alone", "both":
    one = split[name]
    assert one["sensitivity_low"] <= one["sensitivity"] <= one["sensitivity_high"], one
    assert one["sensitivity"] <= one["sensitivity_bound"] * (1 + 1e-9), one
    goodput = one["samples_per_s"] / (1 + one["sensitivity"] / 100)
    assert abs(one["fp32_goodput_samples_per_s"] / goodput - 1) < 1e-6, one' &&
    grep -q '; goodput ' printed.txt
report "estimate: baselines and --batch auto print the extra samples" $?

# Neighbours on a front whose difference holds 0, and the faster plan in place of the least sensitive one.
both allocate "${what[@]}" --cluster "h100 batch=16" --pareto=6 && python3 -c '
import json
points = json.load(open("printed.json"))["pareto"]
assert points[0]["indistinguishable"] is None and len(points) > 1, points
for p in points[1:]:
    assert p["difference_low"] <= p["difference"] <= p["difference_high"], p
    assert p["indistinguishable"] == (p["difference_low"] <= 0), p
n = sum(p["indistinguishable"] is True for p in points)
assert open("printed.txt").read().count("indistinguishable from the next faster one") == n > 0' &&
    both allocate "${what[@]}" --cluster "h100 batch=16" --slowdown 40% -o traded.json && python3 -c '
import json
plan = json.load(open("printed.json"))
assert plan["step_ns"] == plan["fastest_ns"] < plan["indistinguishable_ns"] <= plan["target_ns"], plan
assert plan["difference_low"] <= 0 <= plan["difference_high"] and plan["slowdown"] == 0.4, plan' &&
    grep -q '^chosen before the plan with the fewest extra samples, .* may be 0$' printed.txt &&
    run 0 allocate --verify traded.json --predict --db one.db
report "estimate: of plans that cannot be distinguished the faster one" $?

front() {
    run 0 allocate --model $model --cluster "h100 batch=16" --predict --sensitivity sampled --db one.db \
        --pareto=4 --quiet "$@"
}
front --json && python3 -c '
import json
points = json.load(open("out"))["pareto"]
assert all(0 <= p["sensitivity"] <= p["sensitivity_bound"] * (1 + 1e-9) for p in points), points
assert points[-1]["sensitivity"] == 0 and points[0]["fp32_goodput_samples_per_s"] > 0, points' &&
    front && grep -qE '[0-9.]+ \([0-9.]+ to [0-9.]+\)' out
report "estimate: --pareto prints the extra samples of each plan" $?

# Ratios of predicted times: a row each with --details, the same numbers in JSON, and a line of the answer
# just where another plan saves 1 % of the step or more.
both allocate "${what[@]}" --cluster "h100 batch=16" --slowdown 40% --details && python3 -c '
import json
ratios = json.load(open("printed.json"))["ratios"]
text = open("printed.txt").read()
assert len({r["precision"] for r in ratios}) == len(ratios) >= 3, ratios
for r in ratios:
    assert r["device"] == "h100" and 0 < r["low"]["ratio"] < r["ratio"] < r["high"]["ratio"], r
    rows = [line.split()[2] for line in text.splitlines() if line.split()[:2] == ["h100", r["precision"]]]
    assert "%.3f" % r["ratio"] in rows, (rows, r)
    for end in ("low", "high"):
        assert (r[end]["operator"] != "") == (r[end]["changed"] > 0), r
pays = [r for r in ratios for e in ("low", "high")
        if r[e]["changed"] < 0 or r[e]["changed"] > 0 and r[e]["gain"] >= 0.01]
assert ("\nratios  " in text) == bool(pays), (pays, text)'
report "ratios of predicted times: in text, with --details and in JSON" $?

# The fastest step within a limit, with a limit in percent; and the least step x (1 + sensitivity).
within() {
    run 0 allocate --model $model --cluster "h100 batch=16" --predict --sensitivity sampled --db one.db \
        --quiet "$@"
}
front --json && mv out front.json && python3 -c '
import json
bounds = [p["sensitivity_bound"] for p in json.load(open("front.json"))["pareto"]]
assert min(bounds) == 0 < max(bounds), bounds
print("%.9f" % (max(bounds) / 2))' >limit && within --max-sensitivity "$(cat limit)%" --json && python3 -c '
import json
plan, limit = json.load(open("out")), float(open("limit").read())
assert plan["objective"] == "step" and abs(plan["max_sensitivity"] / limit - 1) < 1e-3, plan
assert plan["sensitivity_bound"] <= limit, plan' && within --max-sensitivity "$(cat limit)%" &&
    grep -q '^step  .*; allowed sum [0-9.e-]* %$' out
report "estimate: the fastest step within a percentage of more samples" $?

within --minimize training-time --json && python3 -c '
import json
plan, front = json.load(open("out")), json.load(open("front.json"))["pareto"]
time = lambda p: p["step_ns"] * (1 + p["sensitivity_bound"] / 100)
assert plan["objective"] == "training-time" and abs(plan["training_ns"] / time(plan) - 1) < 1e-6, plan
assert plan["training_bound_ns"] <= plan["training_ns"] <= plan["training_bound_ns"] * 1.01, plan
assert all(plan["training_ns"] <= time(b) * (1 + 1e-3) for b in plan["baselines"] + front), plan' &&
    within --minimize training-time &&
    grep -q '^lower bound  .* of step x (1 + sum).* of steps from .* within .* of the best$' out
report "estimate: the least step x (1 + sensitivity)" $?

# A loss scale that is asked for is in every step, of plans that would need none, too.
step_of() { # COMMAND…
    run 0 "$@" --model $model --cluster "h100 batch=16" --predict --db one.db --quiet --json &&
        sed -n 's/^  "step_ns": \([0-9]*\),$/\1/p' out >value && [ -s value ]
}
in_fp32=(allocate --sensitivity sampled --policy uniform --uniform fp32)
step_of "${in_fp32[@]}" && mv value plain &&
    step_of "${in_fp32[@]}" --loss-scale 8 && mv value allocated &&
    step_of replay --uniform fp32 --loss-scale 8 && [ "$(<value)" = "$(<allocated)" ] &&
    [ "$(<plain)" -lt "$(<value)" ]
report "estimate: a loss scale that is asked for is in the planned step, as in the replayed one" $?

advise() {
    run 0 advise --model $model --cluster "h100 batch=16 net=10Gbit/s,5us" --add "t4 batch=16" --predict \
        --sensitivity sampled --db one.db --quiet "$@"
}
advise --json && python3 -c '
import json
cases = json.load(open("out"))["cases"]
assert len(cases) == 3 and all(c["fp32_goodput_samples_per_s"] <= c["samples_per_s"] for c in cases), cases
assert all(c["sensitivity"] <= c["sensitivity_bound"] * (1 + 1e-9) for c in cases), cases' &&
    advise && grep -q '; goodput ' out
report "estimate: advise prints the extra samples of each plan" $?

run 0 profile --model $model --device weakest --batch 16 --db one.db --quiet &&
    run 0 compare --model $model --device weakest --batch 16 --uniform int8_full --steps 6 \
        --db one.db --json --quiet && python3 -c '
import json
case = json.load(open("out"))["cases"][0]
assert case["sensitivity"] > 0, case
goodput = case["samples_per_s"] / (1 + case["sensitivity"] / 100)
assert abs(case["fp32_goodput_samples_per_s"] / goodput - 1) < 1e-6, case'
report "estimate: compare prints the extra samples of the plan that ran" $?

allocate 16 && mv value small && allocate 256 && awk '
    NR == FNR { small = $1; next } { exit !(small > 0 && $1 > 0 && $1 != small) }' small value
report "estimate: a plan has the sensitivity of its own batch" $?

if ! is_long; then
    echo "# left out: estimates of one batch, converted to another"
else
    # shellcheck source=tests/cli/estimate_batches.sh
    . "$here/estimate_batches.sh"
fi

run 4 allocate --model mlp:width=8 --cluster h100 --predict --sensitivity sampled --db one.db &&
    grep -q 'tandem sensitivity --model mlp:width=8' err
report "estimate: a model without an estimate" $?

estimate 2 --at 50%,10% && grep -q 'ascending' err && estimate 2 --at 41 && estimate 2 --at 101% &&
    estimate 2 --at x && estimate 2 --at '' &&
    estimate 2 --at 0 --repetitions 2 --db none.db && grep -q '3 to 64' err
report "estimate: wrong training points and too few replicates" $?

echo "1..$n"
[ $failed = 0 ]
