#!/bin/bash
# `tandem train --reestimate`: a run that changes its own plan, is resumed to the bit, and loses a rank while
# it estimates. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

find_devices
if [ -z "$weakest" ]; then
    skip "estimate in a run" "this machine is none of the devices"
    echo "1..$n"
    exit 0
fi
of=(--model mlp:width=16 --batch 4 --device "$weakest,$weakest" --db costs.db)
two=(train "${of[@]}" --data data --eval 8 --quiet)

run 4 "${two[@]}" --steps 6 --reestimate=4 && grep -q 'tandem profile' err &&
    run 2 "${two[@]}" --steps 6 --max-sensitivity 1% && grep -q -- '--reestimate' err &&
    run 2 train "${of[@]}" --steps 6 --reestimate=4 && grep -q -- '--data' err &&
    run 2 "${two[@]}" --steps 6 --reestimate=4 --emulate && grep -q 'contradict' err
report "reestimate: without costs, without data, with emulation, or a limit alone: refused before a step" $?

# Only fp32 needs no more samples, so the first estimate changes every operator to it; later ones find
# nothing.
estimated=(--uniform int8_full --reestimate=20 --max-sensitivity 0%)
run 0 profile "${of[@]}" --repetitions 3 --quiet &&
    run 0 "${two[@]}" --uniform int8_full --steps 48 --checkpoint whole.ckpt && mv whole.ckpt int8.ckpt &&
    run 0 "${two[@]}" "${estimated[@]}" --steps 48 --checkpoint whole.ckpt --log log --json &&
    python3 - <<'EOF' >>out 2>err
import json
result, lines = json.load(open("out")), [json.loads(line) for line in open("log")]
estimated = [line["estimate"] for line in lines if "estimate" in line]
assert [s["step"] for s in estimated] == [s["step"] for s in result["estimates"]], result["estimates"]
assert len(lines) == 48 and [s["changed"] for s in estimated] == [6] + [0] * (len(estimated) - 1), estimated
assert all(0 < b["step"] - a["step"] <= 20 for a, b in zip([{"step": 0}] + estimated, estimated)), estimated
assert len(estimated) >= 2 and estimated[-1]["step"] > 28, estimated
assert all(0 < s["share"] < 1 and s["sensitivity_bound"] == 0 for s in estimated), estimated
print(estimated[0]["step"], file=open("first", "w"))
EOF
[ -s first ] && ! cmp -s whole.ckpt int8.ckpt && grep -aq '^precisions: 6 fp32, hash' whole.ckpt
report "reestimate: another plan between two steps, in log, result and checkpoint" $?

# Stopped at the very step of the change, and some steps after it.
for after in 0 3; do
    run 0 "${two[@]}" "${estimated[@]}" --steps $(($(cat first) + after)) --checkpoint cut.ckpt &&
        run 0 "${two[@]}" "${estimated[@]}" --steps 48 --resume cut.ckpt --checkpoint cut.ckpt &&
        cmp whole.ckpt cut.ckpt >>out 2>&1 &&
        run 0 train "${of[@]}" --data data --eval 8 "${estimated[@]}" --steps 50 --resume whole.ckpt &&
        grep -q 'resumes after step 48' err && ! grep -q 'differs' err
    report "reestimate: stopped $after steps after it, and resumed: the same bytes, the checkpoint's plan" $?
done

# In fp32 the range of the first layer's gradient doubles within these steps.
run 0 "${two[@]}" --steps 30 --reestimate=20 --max-sensitivity 0% --json &&
    grep -q '"changed": 0' out && ! grep -q '"changed": [1-9]' out &&
    [ "$(field reason out | head -1)" = '"range"' ] && [ "$(field operator out | head -1)" = '"fc1"' ]
report "reestimate: a range that has doubled begins it; within 0 % of more samples the plan stays in fp32" $?

# An estimate that changes nothing leaves no trace in the training.
run 0 "${two[@]}" --steps 30 --json && python3 -c '
import json
print(json.load(open("out"))["loss"])' >alone &&
    run 0 "${two[@]}" --steps 30 --reestimate=20 --max-sensitivity 0% --json && python3 -c '
import json
result = json.load(open("out"))
estimates = result["estimates"]
assert len(estimates) >= 1 and not any(s["changed"] for s in estimates), estimates
print(result["loss"])' >estimate && cmp alone estimate
report "reestimate: the run goes on to the bit as if nothing had been estimated" $?

# Nearly all of such a run is estimates.
for dies in 0 1; do
    rm -f steps
    "$tandem" train --model mlp:width=16 --batch 4 --device "$weakest,$weakest" --db costs.db --data data \
        --reestimate=1 --steps 1000000 --eval 0 --log steps >out 2>err </dev/null &
    training=$!
    for ((k = 0; k < 100; k++)); do
        [ -e steps ] && [ "$(wc -l <steps)" -ge 3 ] && break
        sleep 0.1
    done
    kill -KILL "$(tr ' ' '\n' <"/proc/$training/task/$training/children" | grep . | sed -n "$((dies + 1))p")"
    wait $training
    code=$?
    [ $code = 6 ] && grep -q "rank $dies was killed by signal 9" err
    report "reestimate: rank $dies is killed while they estimate: exit code 6" $?
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
report "reestimate: what an estimate costs, in steps and memory" $?

left_over
report "no files left over" $((! $?))
echo "1..$n"
exit $((failed > 0))
