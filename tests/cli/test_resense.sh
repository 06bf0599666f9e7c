#!/bin/bash
# `tandem train --resense`: a run that changes its own plan, is resumed to the bit, and loses a rank while it
# senses. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

find_devices
if [ -z "$weakest" ]; then
    skip "sensing in a run" "this machine is none of the devices"
    echo "1..$n"
    exit 0
fi
of=(--model mlp:width=16 --batch 4 --device "$weakest,$weakest" --db costs.db)
two=(train "${of[@]}" --data data --eval 8 --quiet)

run 4 "${two[@]}" --steps 6 --resense=4 && grep -q 'tandem profile' err &&
    run 2 "${two[@]}" --steps 6 --max-sensitivity 1% && grep -q -- '--resense' err &&
    run 2 train "${of[@]}" --steps 6 --resense=4 && grep -q -- '--data' err &&
    run 2 "${two[@]}" --steps 6 --resense=4 --emulate && grep -q 'contradict' err
report "resense: without costs, without data, with emulation, or a limit alone: refused before a step" $?

# Only fp32 needs no more samples, so the first sensing changes every operator to it; later ones find nothing.
sensed=(--uniform int8_full --resense=20 --max-sensitivity 0%)
run 0 profile "${of[@]}" --repetitions 3 --quiet &&
    run 0 "${two[@]}" --uniform int8_full --steps 48 --checkpoint whole.ckpt && mv whole.ckpt int8.ckpt &&
    run 0 "${two[@]}" "${sensed[@]}" --steps 48 --checkpoint whole.ckpt --log log --json &&
    python3 - <<'EOF' >>out 2>err
import json
result, lines = json.load(open("out")), [json.loads(line) for line in open("log")]
sensed = [line["sensed"] for line in lines if "sensed" in line]
assert [s["step"] for s in sensed] == [s["step"] for s in result["sensed"]], result["sensed"]
assert len(lines) == 48 and [s["changed"] for s in sensed] == [6] + [0] * (len(sensed) - 1), sensed
assert all(0 < b["step"] - a["step"] <= 20 for a, b in zip([{"step": 0}] + sensed, sensed)), sensed
assert len(sensed) >= 2 and sensed[-1]["step"] > 28, sensed
assert all(0 < s["share"] < 1 and s["sensitivity_bound"] == 0 for s in sensed), sensed
print(sensed[0]["step"], file=open("first", "w"))
EOF
[ -s first ] && ! cmp -s whole.ckpt int8.ckpt && grep -aq '^precisions: 6 fp32, hash' whole.ckpt
report "resense: another plan between two steps, in log, result and checkpoint" $?

# Stopped at the very step of the change, and some steps after it.
for after in 0 3; do
    run 0 "${two[@]}" "${sensed[@]}" --steps $(($(cat first) + after)) --checkpoint cut.ckpt &&
        run 0 "${two[@]}" "${sensed[@]}" --steps 48 --resume cut.ckpt --checkpoint cut.ckpt &&
        cmp whole.ckpt cut.ckpt >>out 2>&1 &&
        run 0 train "${of[@]}" --data data --eval 8 "${sensed[@]}" --steps 50 --resume whole.ckpt &&
        grep -q 'resumes after step 48' err && ! grep -q 'differs' err
    report "resense: stopped $after steps after it and resumed: the same bytes, and the checkpoint's plan" $?
done

# In fp32 the range of the first layer's gradient doubles within these steps.
run 0 "${two[@]}" --steps 30 --resense=20 --max-sensitivity 0% --json &&
    grep -q '"changed": 0' out && ! grep -q '"changed": [1-9]' out &&
    [ "$(field reason out | head -1)" = '"range"' ] && [ "$(field operator out | head -1)" = '"fc1"' ]
report "resense: a range that has doubled begins it; within 0 % of more samples the plan stays in fp32" $?

# A sensing that changes nothing leaves no trace in the training.
run 0 "${two[@]}" --steps 30 --json && python3 -c '
import json
print(json.load(open("out"))["loss"])' >alone &&
    run 0 "${two[@]}" --steps 30 --resense=20 --max-sensitivity 0% --json && python3 -c '
import json
result = json.load(open("out"))
assert len(result["sensed"]) >= 1 and not any(s["changed"] for s in result["sensed"]), result["sensed"]
print(result["loss"])' >sensing && cmp alone sensing
report "resense: the run goes on to the bit as if it had not been sensed" $?

# Nearly all of such a run is sensing.
for dies in 0 1; do
    rm -f steps
    "$tandem" train --model mlp:width=16 --batch 4 --device "$weakest,$weakest" --db costs.db --data data \
        --resense=1 --steps 1000000 --eval 0 --log steps >out 2>err </dev/null &
    training=$!
    for ((k = 0; k < 100; k++)); do
        [ -e steps ] && [ "$(wc -l <steps)" -ge 3 ] && break
        sleep 0.1
    done
    kill -KILL "$(tr ' ' '\n' <"/proc/$training/task/$training/children" | grep . | sed -n "$((dies + 1))p")"
    wait $training
    code=$?
    [ $code = 6 ] && grep -q "rank $dies was killed by signal 9" err
    report "resense: rank $dies is killed while they sense: exit code 6" $?
done
rm -f .tandem-scratch-* # of the killed rank

# Four gradients in each of 4 replicates, for all operators and precisions.
run_other bench 0 sensitivity --model mlp:width=16 --batch 4 --device "$weakest" --repetitions 3 --json &&
    python3 -c '
import json
result = json.load(open("out"))
small, whole = result["cases"]
every, steps = result["resense_interval"], small["steps"]
assert every > 0 and abs(result["resense_share"] * (every + steps) / steps - 1) < 1e-6, result
assert 0 <= result["resense_least_interval"] - 99 * steps < 1.001, result
assert whole["gradients"] == small["gradients"] == 16 and small["batch"] == whole["batch"] == 4
assert all(c["steps"] > 0 and c["more_memory"] >= 0 for c in (small, whole)), (small, whole)' 2>err
report "resense: what sensing costs, in steps and memory" $?

left_over
report "no files left over" $((! $?))
echo "1..$n"
exit $((failed > 0))
