#!/bin/bash
# tandem compare --measure-loss: what it says is what its branches lost, and branches are those of
# `tandem train`. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

find_devices
if [ -z "$strongest" ]; then
    echo "1..0 # SKIP this machine has no CPU device"
    exit 0
fi
if ! command -v python3 >/dev/null; then
    echo "SKIP: trials, judged by another program: python3 is not here; apt-get install python3"
    echo "1..0 # SKIP python3 is not here; apt-get install python3"
    exit 0
fi
TANDEM_DB=$work/trial.db
export TANDEM_DB
short=(--data data --steps 20 --eval 8 --lr 0.01 --batch 4)
small=(--model mlp:width=16 --device "$strongest" "${short[@]}")
measure() { run "$1" compare --measure-loss "${@:2}"; }
# member NAME: the mean, low and high of an interval.
member() {
    sed -n "/\"$1\": {/,/}/p" out | sed -n 's/^ *"\(mean\|low\|high\)": \([^,]*\),*$/\2/p' | tr '\n' ' '
}

measure 0 "${small[@]}" --uniform fp32 --repetitions 3 --json && [ "$(member training)" = "0.0 0.0 0.0 " ] &&
    [ "$(member held_out)" = "0.0 0.0 0.0 " ] && [ "$(member held_out_in_base)" = "0.0 0.0 0.0 " ] &&
    [ "$(field branches_known out)" = 0 ]
report "a plan that is its base loses nothing, to the bit" $?
TANDEM_DB=$work/judged.db

# --- By another program, from the branches in the store ---
measure 0 "${small[@]}" --uniform int8_full --repetitions 4 --json && cp out first &&
    cat >judge.py <<'PYTHON'
import json, math, sqlite3
store, said = sqlite3.connect("judged.db"), json.load(open("first"))
# The branches of a pair are filed as they end; a plan's alone is evaluated in the base's precision, too.
ordered = store.execute("SELECT id, held_out_in_base IS NULL FROM branch ORDER BY id").fetchall()
losses = lambda branch: [loss for loss, in store.execute(
    "SELECT loss FROM branch_loss WHERE branch = ? ORDER BY step", (branch,))]
base, plan = ([losses(branch) for branch, is_base in ordered if is_base == of] for of in (1, 0))
differences = [sum(b[15:]) / 5 - sum(a[15:]) / 5 for a, b in zip(base, plan)]
mean = sum(differences) / 4
error = math.sqrt(sum((d - mean) ** 2 for d in differences) / 3 / 4)
t_of_3 = 3.182446305284263  # Student's t, 0.975, 3 degrees of freedom
expected = mean, mean - t_of_3 * error, mean + t_of_3 * error
got = [said["training"][name] for name in ("mean", "low", "high")]
assert mean != 0 and len(ordered) == 8, (mean, len(ordered))
assert said["held_out"]["mean"] != said["held_out_in_base"]["mean"]
assert all(abs(a - b) < 1e-8 for a, b in zip(expected, got)), (expected, got)
PYTHON
    python3 judge.py 2>err
report "mean and interval are Student's of the pairs, as another program computes them" $?

seed=$(field first_seed first)
run 0 train "${small[@]}" --uniform int8_full --seed "$seed" --log log --allow-nan &&
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' log >train.losses && cat >same.py <<'PYTHON'
import sqlite3
mine = [float(line) for line in open("train.losses")]
all_of = [[loss for loss, in sqlite3.connect("judged.db").execute(
    "SELECT loss FROM branch_loss WHERE branch = ? ORDER BY step", (branch,))] for branch in range(1, 9)]
assert sum(all(abs(a - b) < 1e-8 for a, b in zip(mine, other)) for other in all_of) == 1, (mine, all_of)
PYTHON
python3 same.py 2>err
report "a branch is the run of tandem train with its seed" $?

measure 0 "${small[@]}" --uniform int8_full --repetitions 4 --json &&
    [ "$(field branches_known out)" = 8 ] && [ "$(field branch_ns out)" = 0 ] &&
    diff <(grep -vE 'branch|pair_ns' first) <(grep -vE 'branch|pair_ns' out)
report "asked again, nothing is trained, and the answer is the same" $?

# With one core the branches of a pair train one after the other, else beside each other.
losses() { # STORE
    python3 -c 'import sqlite3, sys
losses = "SELECT b.hash, l.step, l.loss FROM branch b JOIN branch_loss l ON l.branch = b.id ORDER BY 1, 2"
for row in sqlite3.connect(sys.argv[1]).execute(losses): print(*row)' "$1"
}
core=$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')
measure 0 "${small[@]}" --uniform int8_full --repetitions 3 --json --db beside.db && cp out beside &&
    taskset -c "$core" "$tandem" compare --measure-loss "${small[@]}" --uniform int8_full --repetitions 3 \
        --json --db alone.db -q >out 2>err && losses beside.db >beside.loss && losses alone.db >alone.loss &&
    [ "$(wc -l <alone.loss)" = 120 ] && diff beside.loss alone.loss >>err &&
    diff <(grep -vE '"command"|_ns"' beside) <(grep -vE '"command"|_ns"' out) >>err
report "branches beside each other have the losses of branches one after the other" $?

# A trial that is killed in the plan's branch keeps the base's.
"$tandem" compare --measure-loss "${small[@]}" --uniform int8_full --steps 20000 --db killed.db -q \
    >/dev/null 2>&1 &
trial=$!
python3 - <<'PYTHON' >out 2>err
import sqlite3, time
n, end = 0, time.monotonic() + 120
while not n and time.monotonic() < end:
    time.sleep(0.02)
    try:
        store = sqlite3.connect("file:killed.db?mode=ro", uri=True)
        n = store.execute("SELECT count(*) FROM branch").fetchone()[0]
    except sqlite3.Error:
        pass
print("branches:", n)
assert n == 1, n
PYTHON
code=$?
kill $trial && wait $trial 2>/dev/null
[ $code = 0 ] &&
    measure 0 "${small[@]}" --uniform int8_full --steps 20000 --repetitions 1 --db killed.db --json &&
    [ "$(field branches_known out)" = 1 ]
report "a trial that is killed keeps the branch that has ended" $?

# --- The question ---
measure 0 "${small[@]}" --uniform int8 --steps 80 --lr 0.001 --repetitions 4 --at-most 100000% --json &&
    [ "$(field answer out)" = '"within"' ] && [ "$(field pairs out)" = 3 ]
report "--at-most ends when it is decided" $?
measure 1 "${small[@]}" --uniform int8_full --emulate=mxfp4 --error-scale 1e6 --at-most 10% &&
    grep -q '^answer  *no: more than 10.0% extra samples, after 1 pairs' out &&
    grep -q '^diverged  *the plan, in 1 of 1 pairs' out && grep -q 'emulated on' out &&
    grep -q '^plan: .*is not finite' err
report "a plan that diverges needs more: exit code 1" $?
measure 1 "${small[@]}" --uniform int8 --lr 1e30 --repetitions 1
grep -q "the base itself diverges in pair 1" err
report "a base that diverges is an error" $?

# --- From where ---
run 0 train "${small[@]}" --steps 30 --checkpoint begin.ckpt --export begin.safetensors &&
    measure 0 "${small[@]}" --uniform int8 --repetitions 1 --resume begin.ckpt --json &&
    [ "$(field steps_before out)" = 30 ] && [ "$(field steps out)" = 20 ] && ! grep -q differs err &&
    measure 0 "${small[@]}" --uniform int8 --repetitions 1 --init begin.safetensors --json &&
    [ "$(field steps_before out)" = 0 ] && [ "$(field branches_known out)" = 0 ]
report "branches begin at a checkpoint, or at weights" $?
if [ "$strongest" != "$weakest" ]; then
    measure 0 --model mlp:width=16 --cluster "$strongest + $weakest" "${short[@]}" --uniform fp32,int8 \
        --repetitions 1 --json && [ "$(field emulated_on out)" = null ] &&
        ! member training | grep -q '^0.0 '
    report "a plan of two devices trains on both" $?
else
    skip "a plan of two devices trains on both" "this machine has one device"
fi
measure 0 --model mlp:width=16 --cluster "2*v100 + t4" "${short[@]}" --uniform fp16,int8 --repetitions 1 \
    --json && [ "$(field emulated_on out)" = "\"$strongest\"" ]
report "devices that are not here are emulated, and the result says so" $?
measure 0 "${small[@]}" --uniform int8_full --emulate=nvfp4_recipe --repetitions 2 --json &&
    cp out of_recipe && ! member training | grep -q '^0.0 ' &&
    measure 0 "${small[@]}" --uniform int8_full --emulate=nvfp4 --repetitions 2 --json &&
    ! diff <(grep '"mean"' of_recipe) <(grep '"mean"' out) >>err
report "a recipe is measured, and is not its format" $?
run 0 sensitivity --model mlp:width=16 --device "$strongest" --batch 4 --data data --by statistics \
    --steps 2 && run 0 allocate --model mlp:width=16 --batch 4 --cluster "v100 + t4 net=10Gbit/s,5us" \
    --predict --policy uniform --uniform fp16 --sensitivity fisher -o described.json &&
    measure 0 --plan described.json "${short[@]:0:8}" --repetitions 1 --json &&
    [ "$(field emulated_on out)" = "\"$strongest\"" ]
report "so is the plan of a file, whose limits of memory do not count" $?
run 0 allocate --model mlp:width=16 --batch 4 --cluster b200 --predict --policy uniform --uniform nvfp4 \
    --sensitivity fisher -o blocks.json && grep -q '"fc1": "nvfp4"' blocks.json &&
    measure 0 --plan blocks.json "${short[@]:0:8}" --emulate --repetitions 1 --json &&
    [ "$(field emulated_on out)" = "\"$strongest\"" ] &&
    measure 0 --plan described.json "${short[@]:0:8}" --emulate --repetitions 1 --json
report "a plan with precisions that no CPU has is emulated where that is asked for" $?

# --- Beside what is predicted ---
TANDEM_DB=$work/predicted.db
run 0 profile "${small[@]:0:4}" --batch 4 --uniform int8_full &&
    run 0 replay "${small[@]:0:4}" --batch 4 --uniform int8_full && ! grep -q '^measured' out &&
    measure 0 "${small[@]}" --uniform int8_full --steps 80 --lr 0.001 --repetitions 3 --json &&
    cp out trial.json &&
    run 0 replay "${small[@]:0:4}" --batch 4 --uniform int8_full &&
    grep -q '^measured .* (95%: .*) more samples than fp32, by 3 pairs of 80 steps on data$' out &&
    run 0 replay "${small[@]:0:4}" --batch 8 --uniform int8_full --predict --json &&
    ! grep -q '"trial"' out &&
    run 0 replay "${small[@]:0:4}" --batch 4 --uniform int8_full --json && cat >beside.py <<'PYTHON'
import json
trial, beside = json.load(open("trial.json")), json.load(open("out"))["trial"]
assert beside["pairs"] == 3 and beside["steps"] == 80 and not beside["emulated"], beside
for name, of in (("extra_samples", "mean"), ("low", "low"), ("high", "high")):
    expected = trial["extra_samples"][of]
    assert expected is None or abs(beside[name] - 100 * expected) < 1e-6 * abs(beside[name]), (name, beside)
PYTHON
python3 beside.py 2>err
report "replay prints a trial of the very same plan, and of no other" $?
# The plan's loss may be above all of the base's curve, in the mean or at an end of the interval.
of_trial() { # EXTRA LOW HIGH
    python3 -c "import sqlite3
store = sqlite3.connect('predicted.db')
store.execute('UPDATE trial SET extra = $1, extra_low = $2, extra_high = $3')
store.commit()" && run 0 replay "${small[@]:0:4}" --batch 4 --uniform int8_full
}
by=", by 3 pairs of 80 steps on data$"
of_trial 0.5 0.25 9e999 && grep -q "^measured .* 50% (95%: 25% to no limit) more samples than fp32$by" out &&
    of_trial 9e999 0.25 9e999 &&
    grep -q "^measured .* without limit (95%: 25% to no limit) more samples than fp32$by" out
report "a trial without an upper end is printed, too" $?

# --- What trials say of other plans ---
TANDEM_DB=$work/corrected.db
corrected() { # UNIFORM: replays it; the numbers of "corrected" and the prediction, or nothing
    run 0 replay "${small[@]:0:4}" --batch 4 --uniform "$1" --json && python3 -c '
import json
said = json.load(open("out"))
if "corrected" in said: print(*said["corrected"].values(), said["sensitivity"], int("trial" in said))'
}
change_trial() { # SQL: of what is in the store
    python3 -c 'import sqlite3, sys
store = sqlite3.connect("corrected.db")
store.execute(sys.argv[1])
store.commit()' "$1"
}
run 0 sensitivity "${small[@]:0:4}" --batch 4 --data data --by samples --steps 20 --lr 0.01 &&
    run 0 profile "${small[@]:0:4}" --batch 4 --uniform int8 &&
    run 0 profile "${small[@]:0:4}" --batch 4 --uniform int8_full && [ -z "$(corrected int8)" ] &&
    measure 0 "${small[@]}" --uniform int8_full --steps 80 --lr 0.001 --repetitions 3 &&
    corrected int8 >by_one && corrected int8_full >of_its_own && python3 - <<'PYTHON' 2>err
n, value, low, high, predicted, is_tried = map(float, open("by_one").read().split())
assert n == 1 and not is_tried, (n, is_tried)
assert low < value < high and value != predicted
assert not open("of_its_own").read(), "a plan is not corrected by its own trial"
PYTHON
report "a trial of one plan corrects what is predicted for another" $?
# As if the trial had found four times, and a quarter, of what is predicted for its plan.
found() { # FACTOR
    local extra
    run 0 replay "${small[@]:0:4}" --batch 4 --uniform int8_full --json &&
        extra=$(python3 -c "import json; print(json.load(open('out'))['sensitivity'] / 100 * $1)") &&
        change_trial "UPDATE trial SET extra = $extra, extra_low = 0.99 * $extra, extra_high = 1.01 * $extra"
}
found 4 && corrected int8 >four && found 0.25 && corrected int8 >quarter && python3 - <<'PYTHON' 2>err
for name, factor in (("four", 4), ("quarter", 0.25)):
    _, value, low, high, predicted, _ = map(float, open(name).read().split())
    assert 0.7 < value / predicted / factor < 1.4, (name, value / predicted)
    assert 10 < high / low < 18, (name, high / low)
PYTHON
report "by the factor that the trial found, with an interval of another plan" $?
run 0 replay "${small[@]:0:4}" --batch 4 --uniform int8 &&
    grep -qE '^corrected +[0-9.e-]+% \(95%: .*\) to the same loss, by trials of 1 other plan$' out &&
    change_trial "UPDATE trial SET plan = replace(plan, 'int8_full', 'int9')" && [ -z "$(corrected int8)" ]
report "it is printed; a plan's text that does not fit the model says nothing" $?
# Of the same training fewer pairs replace nothing, and another rate is another trial; one counts.
measure 0 "${small[@]}" --uniform int8_full --steps 80 --lr 0.001 --repetitions 3 &&
    measure 0 "${small[@]}" --uniform int8_full --steps 80 --lr 0.001 --repetitions 1 &&
    measure 0 "${small[@]}" --uniform int8_full --steps 80 --lr 0.002 --repetitions 1 &&
    run 0 replay "${small[@]:0:4}" --batch 4 --uniform int8_full &&
    grep -q '^measured .* by 3 pairs of 80 steps on data$' out && corrected int8 >again &&
    [ "$(cut -d ' ' -f 1 again)" = 1 ] && change_trial "UPDATE trial SET data = 'other'" &&
    [ -z "$(corrected int8)" ] && run 0 replay "${small[@]:0:4}" --batch 4 --uniform int8_full &&
    grep -q '^measured .* by 3 pairs of 80 steps on other$' out
report "the trial of most pairs counts, once, and on the estimate's data" $?
bad=0
for numbers in "extra = 0.5, extra_low = 0.6, extra_high = 0.7" "diverged = 4" "extra = -9e999" "extra = -2" \
    "pairs = 0" "extra = 0.1, extra_low = NULL"; do
    cp corrected.db kept.db
    change_trial "UPDATE trial SET $numbers WHERE pairs = 3" 2>err ||
        { grep -q 'CHECK constraint' err && cp kept.db corrected.db && continue; }
    run 3 replay "${small[@]:0:4}" --batch 4 --uniform int8_full && grep -q 'a trial' err ||
        { echo "# $numbers: exit code $code"; bad=1; }
    cp kept.db corrected.db
done
report "numbers that no trial has are refused" $bad

# --- Bad input ---
measure 2 --model mlp:width=16 --device "$strongest" && grep -q "give --data" err &&
    measure 2 "${small[@]}" --steps 15 && grep -q "a branch of 15 steps: it takes 16 or more" err &&
    measure 2 "${small[@]}" --at-most 1% --repetitions 2 && grep -q "takes 3 or more" err &&
    measure 2 "${small[@]}" --repetitions 257 && grep -q "allowed are 1 to 256" err &&
    measure 2 "${small[@]}" --limit 3% && grep -q -e "--limit does not go with --measure-loss" err &&
    run 2 compare "${small[@]}" --at-most 3% && grep -q -e "--at-most needs --measure-loss" err &&
    measure 2 --model mlp:width=16 --cluster "17*t4" "${short[@]}" && grep -q "fewer ranks" err &&
    measure 3 --model mlp:width=8 --device "$strongest" "${short[@]}" --resume begin.ckpt &&
    measure 3 "${small[@]}" --batch 100000 && grep -q "training samples" err
report "wrong requests are refused" $?
RANK=0 WORLD_SIZE=2 TANDEM_STORE=$work/ranks measure 2 "${small[@]}" && grep -q "cannot join a run" err
report "a launcher cannot start a trial on each rank" $?
[ -z "$(find . -name '.tandem*')" ]
report "nothing is left in the folder" $?

echo "1..$n"
exit $((failed > 0))
