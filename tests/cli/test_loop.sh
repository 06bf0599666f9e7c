#!/bin/bash
# The whole loop through the command line, on real kernels: profile, sensitivity, allocate, replay, train,
# compare, with a model that takes milliseconds, on two ranks of the weakest device here; and what goes wrong
# on the way. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

# --- Devices ---
find_devices
absent=$(grep -B 2 '"present": false' out | field name - | grep '"cpu:' | head -1 | tr -d '"')
if [ -z "$weakest" ]; then
    skip "the loop" "this machine is none of the devices"
    echo "1..$n"
    exit 0
fi
model="mlp:width=16"
what=(--model "$model" --batch 4 --device "$weakest,$weakest")

# --- Devices by a word: names in every result and file ---
words=(--model "$model" --batch 4 --db words.db --json)
run 0 profile "${words[@]}" --device strongest,weakest &&
    [ "$(field name out | tr -d '"' | xargs)" = "$strongest $weakest" ] &&
    run 0 sensitivity "${words[@]}" --device weakest --data data --steps 2 &&
        [ "$(field device out)" = "\"$weakest\"" ] &&
    run 0 allocate "${words[@]}" --cluster "weakest + 2*strongest@1 net=1GB/s,1us" -o words.json &&
        grep -q "\"name\": \"$strongest\"" out &&
    [ "$(field device words.json | tr -d '",' | xargs)" = "$weakest $strongest" ] &&
        run 0 replay --plan words.json --db words.db &&
    grep -q "^$strongest  *2 " out &&
    ! { cat words.db out && grep -v '^  "made": ' words.json; } | grep -aqE 'strongest|weakest'
report "strongest and weakest are the last and the first device here, by name" $?
# Updates are timed in steps of both ranks together: as many samples on one as on the other.
python3 - <<'END'
import sqlite3
rows = sqlite3.connect("words.db").execute("""SELECT device, operator, n + n_outlier + n_disturbed
    FROM op_cost WHERE pass = 'update' AND co_runner <> ''""").fetchall()
samples = {}
for device, operator, n in rows:
    samples.setdefault(operator, {})[device] = n
assert rows and all(len(set(of.values())) == 1 for of in samples.values()), rows
assert min(n for _, _, n in rows) >= 6, rows
END
report "profile times updates in steps of both ranks together" $?

# --- The loop ---
run 0 profile "${what[@]}" --json && positive "$(field measured out | head -1)" && [ -s tandem.db ]
report "profile measures into a new store" $?

run 0 profile "${what[@]}" --json && ! field measured out | grep -qv '^0$'
report "a second profile finds everything known" $?

estimate=(sensitivity --model "$model" --batch 4 --device "$weakest" --data data --steps 3 --json)
run 0 "${estimate[@]}" --by statistics && positive "$(grep -c '"fisher"' out)"
report "sensitivity --by statistics scores every precision" $?

estimates="\`tandem sensitivity --model $model --data data\` estimates it, and method fisher"
run 4 allocate "${what[@]}" && grep -q "the store has its statistics over data alone: $estimates" err &&
    run 0 allocate "${what[@]}" --sensitivity fisher --json && [ "$(field method out)" = '"fisher"' ] &&
    [ "$(field objective out)" = '"sensitivity"' ] &&
    run 4 allocate "${what[@]/width=16/width=17}" --predict &&
    grep -q 'has no statistics of it: `tandem sensitivity --model mlp:width=17 --data DATA`' err
report "allocate by statistics alone: exit code 4, the command that estimates, and fisher when asked for" $?

run 0 "${estimate[@]}" && [ "$(array training_points out | tr '\n' ' ')" = "1 2 " ] &&
    positive "$(grep -c '"at_training_points"' out)"
report "sensitivity estimates every precision" $?

# A bound of nothing on the sensitivity is not printed (a plan of little sensitivity on a noisy profile); the
# least training time then has its own.
proves() {
    [ "$(field lower_bound "$1")" != null ] && [ "$(field proof "$1")" != '""' ] ||
        field training_bound_ns "$1" | head -1 | grep -qE '^[1-9][0-9.e+]*$'
}
run 0 allocate "${what[@]}" -o plan.json --json && cp out allocate.json && [ -s plan.json ] &&
    positive "$(field step_ns allocate.json | head -1)" && positive "$(field replays allocate.json)" &&
    [ "$(field method allocate.json)" = '"sampled"' ] &&
    [ "$(field objective allocate.json)" = '"training-time"' ] &&
    proves allocate.json &&
    field sensitivity_bound allocate.json | head -1 | grep -qE '^[0-9.e+-]+$'
report "allocate writes a plan" $?

run 0 allocate "${what[@]}" -o - -q && cmp out plan.json
report "allocate writes the same plan again, to standard output" $?

run 0 allocate "${what[@]}" --policy uniform --uniform int8 --json &&
    [ "$(field plan out)" = '"uniform int8"' ]
report "allocate gives the slower class one precision by policy uniform" $?
run 0 allocate "${what[@]}" --policy qsync --slowdown 2% &&
    grep -qE '^step .* allowed .* [(]slowdown 2[.0]*% of its initial setting[)]$' out
report "allocate says whose fastest step qsync counts from" $?

run 0 replay --plan plan.json --json --trace trace.json --operators && cp out replay.json &&
    [ "$(field step_ns replay.json)" = "$(field step_ns allocate.json | head -1)" ] &&
    [ "$(field peak_bytes replay.json)" = "$(array peak_bytes allocate.json)" ]
report "replay of the plan gives the allocator's step and memory" $?

head -c 60 trace.json | grep -q '"displayTimeUnit":"ns"' && grep -q '"pid":1' trace.json &&
    ! ls trace.json.tmp >/dev/null 2>&1
report "replay writes a trace of both classes" $?

run 0 whatif trace.json --json && [ "$(field recording out)" = '"tandem"' ] &&
    [ "$(field workers out)" = 2 ] &&
    paste <(for name in exposed_comm_ns wait_ns; do field $name out | sort -n; done) \
        <(for name in exposed_comm_ns wait_ns; do field $name replay.json | sort -n; done) |
    awk '{ n++; if ($1 - $2 > 100 || $2 - $1 > 100) exit 1 } # each is rounded to ns, sums are not
        END { exit n != 4 }'
report "whatif finds in that trace the waits that replay printed" $?

run 0 profile "${what[@]}" --accumulate 3 --json -q
again=("${what[@]}" --accumulate 3 --recompute 2)
run 0 allocate "${again[@]}" -o again.json --json && cp out again && [ "$(field micro_steps again)" = 3 ] &&
    [ "$(field recompute again)" = '"2"' ] &&
    [ "$(field step_ns again | head -1)" -gt "$(field step_ns allocate.json | head -1)" ] &&
        proves again &&
    run 0 allocate --verify again.json && run 0 replay --plan again.json --json &&
    [ "$(field step_ns out)" = "$(field step_ns again | head -1)" ] &&
        [ "$(field peak_bytes out)" = "$(array peak_bytes again)" ] &&
    run 0 train --plan again.json --data data --steps 3 --json &&
        [ "$(field allocated_bytes out)" = "$(array peak_bytes again)" ]
report "a plan for micro-steps and recomputation is what it says, replayed and run" $?

train=(train --plan plan.json --data data --steps 6 --eval 8 --json)
run 0 "${train[@]}" && cp out train.json && [ "$(array loss train.json | wc -l)" = 6 ] &&
    [ "$(field steps train.json)" = 6 ] &&
    [ "$(field allocated_bytes train.json)" = "$(field planned_bytes train.json)" ]
report "train runs the plan and allocates what was planned" $?

positive "$(field allocated_bytes train.json | head -1)" &&
    [ "$(field allocated_bytes train.json)" = "$(field peak_bytes replay.json)" ]
report "the replayer predicted the allocated memory to the byte" $?

run 0 "${train[@]}" && [ "$(array loss out)" = "$(array loss train.json)" ]
report "the same seed gives the same losses, bit for bit" $?

run 0 "${train[@]}" --seed 1 && [ "$(array loss out)" != "$(array loss train.json)" ]
report "another seed gives other losses" $?

run 0 compare --plan plan.json --steps 12 --operators --json &&
    [ "$(field predicted_ns out | head -1)" = "$(field step_ns replay.json)" ] &&
    positive "$(field measured_ns out | head -1)" &&
        [ "$(array predicted_peak_bytes out)" = "$(array allocated_peak_bytes out)" ] &&
    positive "$(grep -c '"operator"' out)" && ! left_over
report "compare sets the replayed step beside the measured one" $?
run 0 compare --plan plan.json --steps 12 --report compare.html -q &&
    grep -q 'compute <b>predicted' compare.html &&
    grep -q 'compute <b>measured' compare.html && ! left_over
report "compare --report: prediction and run on one axis" $?
# What lies between two tasks counts, too: a task begins where the one before has ended.
run 0 train --plan plan.json --steps 5 --trace run.json -q && python3 - <<'END'
import json
events = [e for e in json.load(open("run.json"))["traceEvents"] if e.get("ph") == "X" and e["tid"] == 0]
for rank in 0, 1:
    tasks = sorted((e for e in events if e["pid"] == rank), key=lambda e: e["ts"])
    gaps = [b["ts"] - a["ts"] - a["dur"] for a, b in zip(tasks, tasks[1:])]
    assert len(gaps) > 20 and sum(abs(gap) < 0.002 for gap in gaps) > len(gaps) * 0.8, gaps
END
report "the tasks of a measured trace lie end to end" $?
run 0 train --plan plan.json --steps 5 --trace run.json --report train.html -q &&
    grep -q '<h2>Training</h2>' train.html && grep -q 'compute <b>measured' train.html
report "train --report: its losses and its last step" $?

run 4 replay --plan plan.json --clip 1 && grep -q 'norm n=.*--clip 1' err
report "replay with --clip: exit code 4, and how to measure the norm" $?

run 0 profile "${what[@]}" --clip 1 --json && positive "$(field measured out | head -1)" &&
    run 0 compare --plan plan.json --clip 1 --steps 12 --operators --json &&
    grep -A 3 '"operator": "norm"' out >norm && positive "$(field predicted_ns norm)" &&
        positive "$(field measured_ns norm)" &&
    [ "$(field predicted_ns out | head -1)" -gt "$(field step_ns replay.json)" ]
report "compare with --clip predicts the norm, and updates that wait for it" $?

delayed=("${what[@]}" --uniform int8 --amax delayed:window=4 --clip 1)
run 4 compare "${delayed[@]}" --steps 12 && grep -q 'delayed.*tandem profile .*--amax delayed:window=4' err &&
    run 0 profile "${what[@]}" --amax delayed:window=4 --clip 1 --json &&
        positive "$(field measured out | head -1)" &&
    run 0 compare "${delayed[@]}" --steps 12 --operators --json &&
        positive "$(field measured_ns out | head -1)" &&
    [ "$(array predicted_peak_bytes out)" = "$(array allocated_peak_bytes out)" ] &&
        array predicted_peak_bytes out >bytes &&
    run 0 compare "${what[@]}" --uniform int8 --clip 1 --steps 12 --json &&
        ! array allocated_peak_bytes out | cmp -s - bytes
report \
    "compare with --amax delayed and --clip: its costs are asked for, and the histories are in its memory" $?

grep -qa 'tandem.plan/1' tandem.db
report "compare files the run and its plan in the store" $?

run 1 compare --plan plan.json --steps 12 --limit 0% --json &&
    positive "$(field measured_ns out | head -1)" && grep -q 'exceeds the limit' err
report "compare over its limit: the result, and exit code 1" $?

run_other bench 0 replay "${what[@]}" --repetitions 3 --json && [ "$(field name out | wc -l)" -ge 3 ] &&
    positive "$(field median_ns out | head -1)" &&
    ! left_over
report "bench replay" $?

run_other bench 0 step --model "$model" --device "$weakest" --uniform fp32 --repetitions 5 --json &&
    positive "$(field median_ns out)" &&
    [ "$(field bytes_per_s out)" = null ]
report "bench step" $?

if run 0 list datasets && grep -q '^fashion-mnist .* /' out; then
    run 0 doctor --json && [ "$(field ready out)" = true ]
    report "doctor finds all that the demo needs" $?
else
    run 4 doctor --json && [ "$(field ready out)" = false ] && grep -q '"fix": "apt-get install' out
    report "doctor says how to install the data set" $?
fi

TANDEM_BACKEND=/nonexistent/library.so run 4 doctor --json && grep -q '"fix": "make' out
report "doctor says how to build the backend" $?

# --- Other questions about the same plans ---
run 0 allocate --verify plan.json && grep -q '^verified       plan.json: ' out &&
    run 0 allocate --verify plan.json --json &&
    [ "$(field verified out)" = true ] && [ "$(field step_ns out)" = "$(field step_ns replay.json)" ]
report "allocate --verify: a plan is what it says" $?

sed 's/"step_ns": /"step_ns": 1/' plan.json >edited.json && run 3 allocate --verify edited.json --json &&
    grep -q 'step_ns is 1' err &&
    [ "$(field verified out)" = false ]
report "allocate --verify: a figure that was edited: exit code 3, and which" $?

sed '0,/"fc1": "[a-z0-9_]*"/s//"fc1": "int8_full"/; s/"fc2": "[a-z0-9_]*"/"fc2": "int8"/' plan.json \
    >edited.json &&
    run 3 allocate --verify edited.json && grep -qE 'is .* in the plan|not all in fp32' err
report "allocate --verify: precisions that were edited: exit code 3" $?

sed 's/"slowdown": [^,]*,/"slowdown": null,/; s/"target_ns": [^,]*,/"target_ns": 1000,/' plan.json \
    >edited.json &&
    run 1 allocate --verify edited.json && grep -q 'its target is 1.00 us (1000 ns)' err
report "allocate --verify: a plan that breaks its limit: exit code 1" $?

run 0 allocate "${what[@]}" --max-step 10s --sensitivity fisher --json &&
    [ "$(field target_ns out)" = 10000000000 ] && [ "$(field slowdown out)" = null ] &&
    [ "$(field sensitivity_bound out | head -1)" = 0.0 ] &&
    run 0 allocate "${what[@]}" --max-step 10s --json && [ "$(field target_ns out)" = 10000000000 ] &&
    awk -v low="$(field difference_low out)" -v bound="$(field sensitivity_bound out | head -1)" \
        'BEGIN { exit !(bound == 0 || low <= 0) }' </dev/null
report "allocate --max-step: with all the time there is, no harm" $?

run 1 allocate "${what[@]}" --max-step 1us -o late.json &&
    grep -q 'cannot reach a step time of 1.00 us' err && [ ! -e late.json ]
report "allocate --max-step out of reach: exit code 1" $?

run 2 allocate "${what[@]}" --max-sensitivity 1% --sensitivity fisher &&
    grep -q 'counts nats; add --sensitivity sampled' err &&
    run 2 allocate "${what[@]}" --minimize training-time --sensitivity qsync &&
    grep -q 'has no unit; add --sensitivity sampled' err
report "allocate: a limit in samples needs a method that counts them" $?

run 0 allocate "${what[@]}" --minimize memory --slowdown 50% --json &&
    [ "$(field objective out)" = '"memory"' ] &&
    [ "$(array peak_bytes out | sort -n |
        tail -1)" -le $(($(array peak_bytes allocate.json | sort -n | tail -1) * 4097 / 4096 + 64)) ]
report "allocate --minimize memory" $?

run 0 allocate "${what[@]}" --explain fc1 && [ "$(grep -c ' chosen' out)" = 2 ] &&
    run 0 allocate "${what[@]}" --explain fc1 --json &&
    [ "$(grep -c '"chosen": true' out)" = 2 ]
report "allocate --explain: one precision is chosen on each device" $?

run 2 allocate "${what[@]}" --explain fc9 && grep -q "Did you mean 'fc" err &&
    run 2 allocate "${what[@]}" --explain fc1.relu &&
    grep -q 'follows its inputs' err
report "allocate --explain: a missing operator, and one without a precision: exit code 2" $?

run 0 allocate "${what[@]}" --pareto=5 --json && positive "$(grep -c '"target_ns"' out)" &&
    run 0 allocate "${what[@]}" --pareto=5 && grep -q '^allocated' out
report "allocate --pareto" $?

run 0 allocate "${what[@]}" --pareto=5 --report front.html && grep -q '<h2>Trade-off</h2>' front.html
report "allocate --pareto --report draws" $?

run 0 allocate "${what[@]}" --batch auto --global-batch 8 -o split.json --json &&
    [ "$(array batch out | head -2 | tr '\n' ' ')" = "4 4 " ] &&
    run 0 allocate --verify split.json
report "allocate --batch auto: three ways, and a plan" $?

run 0 profile "${what[@]}" --accumulate 2 --json -q &&
    run 0 allocate "${what[@]}" --batch auto --global-batch 16 --accumulate 2 -o split.json --json &&
    [ "$(array batch out | head -2 | tr '\n' ' ')" = "4 4 " ] && [ "$(field micro_steps out)" = 2 ] &&
        run 0 allocate --verify split.json &&
    run 0 compare --plan split.json --steps 12 --json &&
        [ "$(array predicted_peak_bytes out)" = "$(array allocated_peak_bytes out)" ] &&
    run 0 allocate "${what[@]}" --batch auto --global-batch 16 --accumulate 2 && head -1 out |
        grep -q '16 samples per step in 2 micro-steps$' &&
    ! head -1 out | grep -q batch=
report "allocate --batch auto --accumulate: the split is of a micro-step, and the plan trains so" $?

run 2 allocate "${what[@]}" --batch auto --global-batch 2 --accumulate 2 &&
    grep -qe '--accumulate 2 splits --global-batch into 2 ' err
report "allocate --batch auto --accumulate: fewer samples than ranks in a micro-step: exit code 2" $?

run 2 allocate "${what[@]}" --batch auto --global-batch 1 && grep -q '; 2 can' err
report "allocate --batch auto: fewer samples than ranks: exit code 2" $?

run 0 advise --model "$model" --batch 4 --cluster "$weakest" --add "$weakest" &&
    grep -qE '^advice         (Add|Do not|Use only)' out &&
    run 0 advise --model "$model" --batch 4 --cluster "$weakest" --add "$weakest" --json &&
        [ "$(grep -c '"role"' out)" = 3 ]
report "advise" $?

run 4 advise --model "$model" --batch 4 --cluster "$weakest" --add "2*$weakest" &&
    grep -q 'tandem profile' err
report "advise for ranks that were not measured together: exit code 4, and what to measure" $?

cards=(--model "$model" --cluster "2*v100@2 net=10Gbit/s,5us" --add "2*t4@2" --predict)
both_cards=("${cards[@]}")
run 0 advise "${cards[@]}" --batch auto --global-batch 64 --json &&
    [ "$(field samples out | sort -u)" = 64 ] &&
    [ "$(grep -c '"cluster": ".* net=10Gbit/s,5us"' out)" = 4 ] && [ -n "$(field holds out)" ]
report "advise for described cards: one net for both, the batch split in each case" $?

# The user has measured nothing of cards: a prediction with its sources, and no advice, in two digits.
fastest='^advice         (Adding|Using) .* is predicted to be fastest\.'
run 0 advise "${cards[@]}" --loss-scale dynamic --details &&
    grep -qE "$fastest .* has a predicted (goodput|rate) of [1-9][0-9.]?0* samples/s" out &&
    ! grep -qE '^advice +(Add|Do not|Use) |[1-9][0-9]*[.0]*[0-9]*[1-9][0-9]*[1-9] samples/s' out &&
    sure='predicted within [0-9]+%' by='measured by others \([0-9]+ rows\)' &&
    grep -qE "^times +v100 $sure, .*$by.*; t4 $sure, $by \(in 80% of cases\)" out &&
    grep -qE "^times on t4: 100% predicted \([0-9]+ tasks\), $by\$" out &&
    grep -qE "^times on v100: 100% predicted .*$by" out &&
    awk '$1 == "combined" || $1 == "current" || $1 == "new" {
            n++
            for (k = 1; k <= NF; k++)
                if ($k ~ /^[0-9.]+$/ && $(k + 1) ~ /^[0-9.]+$/ && $(k + 2) ~ /^(us|ms|s)$/) {
                    m++
                    for (i = k; i < k + 2; i++) {
                        d = $i; gsub(/[.]/, "", d); sub(/^0+/, "", d); sub(/0+$/, "", d)
                        if (length(d) > 2) exit 1
                    }
                }
        }
        END { exit !(n == 3 && m == 3) }' out &&
    grep -q '^loss scale     dynamic, in [0-9] of [0-9] steps, whose gradients are f16' out &&
    run 0 advise "${cards[@]}" --json && [ "$(field from_descriptions out)" = true ] &&
        [ "$(grep -c '"predicted": {' out)" -ge 4 ]
report "advise for described cards says that it predicts, and from what" $?
run 0 advise "${cards[@]}" --loss-scale dynamic --details --from-description &&
    grep -qE "^times +v100 $sure, described; t4 $sure, described \(in 80% of cases\)" out &&
    grep -qE '^times on t4: 100% predicted \([0-9]+ tasks\), from the description alone$' out &&
    ! grep -q 'measured by others' out
report "from descriptions alone, it says so" $?
run 0 advise --model "$model" --batch 4 --cluster "$weakest" --add "$weakest" --json &&
    [ "$(field from_descriptions out)" = false ] &&
    [ "$(grep -c '"measured": {' out)" -ge 4 ] && [ "$(field loss_scale out | sort -u)" = null ]
report "advise from what was measured says so" $?

# --- Loss scales in plans: of themselves where gradients are in f16, and as asked for ---
same_step() { # PLAN ARGUMENT…: replayed, and verified, as allocate printed it in `allocated`, beside fp32
    run 0 replay --plan "$@" --predict --json &&
        [ "$(field step_ns out)" = "$(field step_ns allocated | head -1)" ] &&
        [ "$(field fp32_samples_per_s out)" = "$(field fp32_samples_per_s allocated | head -1)" ] &&
        run 0 allocate --verify "$@" --predict
}
run 0 sensitivity --model mlp --batch 4 --device "$weakest" --data data --steps 2
cards=(--model mlp --batch 4096 --cluster "2*t4@2 net=10Gbit/s,5us" --predict)
run 0 allocate "${cards[@]}" -o scaled.json --json && cp out allocated &&
    [ "$(field loss_scale allocated)" = '"dynamic"' ] &&
    [ "$(field loss_scale scaled.json)" = '"dynamic"' ] && same_step scaled.json &&
    sed '/"loss_scale"/d' scaled.json >bare.json && run 0 replay --plan bare.json --predict --json &&
        [ "$(field step_ns out)" = "$(field step_ns allocated | head -1)" ] &&
    sed '/"loss_scale_of"/d' scaled.json >unproven.json &&
        run 0 allocate --verify unproven.json --predict && grep -q '^lower bound    unproven: ' out &&
    run 0 allocate "${cards[@]}" &&
        grep -qE '^loss scale     dynamic, in the step: gradients of [0-9]+ operators are f16 on t4' out
report "a plan with gradients in f16 has a loss scale, its cost in the step, and both in its file" $?
run 0 allocate "${cards[@]/4096/auto}" --global-batch 8192 -o scaled.json --json &&
    sed -n '/"both"/,$p' out >allocated && same_step scaled.json &&
    [ "$(field loss_scale scaled.json)" = '"dynamic"' ] && run 0 allocate "${cards[@]}" --pareto=3 &&
        grep -qE '^[12] of [23] allocated plans have a loss scale' out
report "so have plans of free batches, and the front" $?
run 0 allocate "${cards[@]}" --loss-scale 1024 -o scaled.json --json && cp out allocated &&
    [ "$(field loss_scale scaled.json)" = '"1024"' ] && same_step scaled.json
report "allocate --loss-scale 1024" $?
run 0 allocate "${what[@]}" -o plain.json --json && [ "$(field loss_scale out | head -n 1)" = null ] &&
    ! grep -q '"loss_scale"' plain.json &&
    run 0 allocate "${what[@]}" --policy uniform --uniform fp32 --loss-scale dynamic --predict -o \
        scaled.json --json && cp out allocated && same_step scaled.json &&
    run 0 train --plan scaled.json --data data --steps 3 --eval 0 --log scaled.jsonl &&
        [ "$(grep -c '"loss_scale":65536' scaled.jsonl)" = 3 ] &&
    run 0 train --plan scaled.json --data data --steps 3 --eval 0 --loss-scale 4 --log four.jsonl &&
        [ "$(grep -c '"loss_scale":4[,.}]' four.jsonl)" = 3 ]
report "a plan's loss scale is trained with, where the command line gives no other" $?
sed 's/"loss_scale": "dynamic"/"loss_scale": "often"/' scaled.json >edited.json
scales="a number above 0 and below 2^64 such as 1024, or .dynamic."
run 3 replay --plan edited.json &&
    grep -q "loss_scale: a loss scale is $scales, got 'often'" err
report "a plan with a loss scale that is none: exit code 3" $?

# --- What a proof is about ---
proven="^lower bound .*"
held=(--model mlp --batch 4096 --predict)
run 0 allocate "${held[@]}" --cluster "v100@1 + t4@1 net=10Gbit/s,5us" -o held.json &&
    grep -qE "$proven with (v100|t4) in fp32, (within that step and memory|of steps from)" out &&
    run 0 allocate --verify held.json --predict &&
        grep -qE "$proven with (v100|t4) in fp32, within that step and memory" out &&
    run 0 allocate "${held[@]}" --cluster t4 -o held.json &&
        grep -qE "$proven(within that step|of steps from)" out && ! grep -qE "$proven in fp32" out &&
    run 0 allocate --verify held.json --predict && ! grep -qE "$proven in fp32" out
report "a proof names the classes that are held, where there are some" $?

cards=("${both_cards[@]}")
run 2 advise "${cards[@]}" --batch auto --global-batch 63 && grep -q '; 62 can' err
report "advise for a batch that cannot be split: exit code 2" $?

# --- What goes wrong ---
before=$(cksum plan.json)
run 1 allocate "${what[@]}" --memory 1KiB -o plan.json && grep -q "no plan fits $weakest" err &&
    grep -q '1.00 KiB' err &&
    grep -qE 'out of memory by [0-9.]+ KiB \([0-9]+ B\) per rank.*no batch would fit' err &&
        [ "$(cksum plan.json)" = "$before" ]
report "allocate without enough memory: exit code 1, by how much, and the old plan stays" $?

run 1 allocate "${what[@]}" --memory 1KiB --json && [ "$(field fits out)" = false ] &&
    positive "$(field missing_bytes out | head -1)"
report "allocate without enough memory, as JSON" $?

run 1 replay --plan plan.json --memory 1KiB --json && [ "$(field fits out | head -1)" = false ] &&
    grep -q 'but the limit is 1.00 KiB' err
report "replay over a memory limit: the result, and exit code 1" $?

run 0 train --plan plan.json --steps 2 -q && grep -q 'no times' out && ! grep -q nan out
report "train for two steps, which both warm up, shows no times" $?

run 5 train --plan plan.json --steps 3 --trace no/folder.json && ! grep -q 'step 1' err
report "train with a trace that cannot be written ends before the first step" $?

echo 'no store' >other.db
run 3 sensitivity --model "$model" --batch 4 --device "$weakest" --data data --db other.db &&
    ! grep -q 'batch 1' err
report "sensitivity with a store that cannot be written ends before the first batch" $?
rm other.db

run 1 train --plan plan.json --memory 1KiB --steps 3
report "train over a memory limit: exit code 1" $?

run 4 replay --model "$model" --batch 8 --device "$weakest,$weakest" &&
    grep -q "'images n=8 .*| fp32 | forward" err &&
    grep -q "more tasks of this plan ('" err && grep -q "on $weakest" err &&
        grep -q "profile --model $model --batch 8 --device $weakest" err
report "a cost that was not measured: exit code 4, its key and the command that measures it" $?

run 4 allocate --model mlp:width=8 --batch 4 --device "$weakest,$weakest" -o plan.json && [ -s plan.json ] &&
    [ "$(cksum plan.json)" = "$before" ]
report "allocate for a model without costs: exit code 4, and the old plan stays" $?

cp -r data cut &&
    head -c $(($(stat -c %s data/train-images-idx3-ubyte.gz) / 2)) data/train-images-idx3-ubyte.gz \
        >cut/train-images-idx3-ubyte.gz
run 3 train --plan plan.json --data cut --steps 3 && grep -q train-images err
report "a data set that is cut short: exit code 3" $?

run 2 train --plan plan.json --data fashion-mnits --steps 3 && grep -q 'fashion-mnist' err
report "an unknown data set: exit code 2 and the nearest name" $?

head -c 20000 tandem.db >cut.db
run 3 replay --plan plan.json --db cut.db && grep -q 'cut.db' err
report "a store that is cut short: exit code 3" $?

RANK=0 WORLD_SIZE=3 TANDEM_STORE=. run 2 train --plan plan.json --steps 3 && grep -q 'WORLD_SIZE is 3' err
report "a rank of a run of another size: exit code 2" $?

run 5 replay --plan plan.json --trace nowhere/trace.json && grep -q 'nowhere/trace.json' err
report "a trace that cannot be written: exit code 5" $?

if [ -n "$absent" ]; then
    run 4 train --model "$model" --device "$absent" --steps 3 && grep -q "cannot be '$absent'" err
    report "a device that is not here: exit code 4" $?
else
    skip "a device that is not here" "this machine is every device"
fi

# --- Ranks that end before their time
# -------------------------------------------------------------------------------------- start_training: a
# long run in the background; returns once both its ranks have met.
start_training() {
    rm -f steps.jsonl
    "$tandem" train --plan plan.json --steps 1000000 --log steps.jsonl >out 2>err </dev/null &
    training=$!
    for ((k = 0; k < 100; k++)); do
        [ -s steps.jsonl ] && break
        sleep 0.1
    done
}
# The processes of the run, rank 0 first.
ranks_of() { tr ' ' '\n' <"/proc/$training/task/$training/children" | grep .; }
start_training
begin=$(date +%s%N)
kill -KILL "$(ranks_of | tail -n 1)"
wait $training
code=$?
took=$((($(date +%s%N) - begin) / 1000000))
[ $code = 6 ] && [ $took -lt 5000 ] && grep -q 'rank 1 was killed by signal 9' err
report "a rank that is killed in mid-step: the other stops within 5 s, exit code 6, and says which" $?
run 0 replay --plan plan.json
report "the store stays readable" $?

start_training
ranks=$(ranks_of)
kill -TERM $training
wait $training
code=$?
left=0
for rank in $ranks; do [ ! -e "/proc/$rank" ] || left=1; done
[ $code = 143 ] && [ $left = 0 ]
report "a run that is asked to end takes its ranks along" $?

# end_when_there FILES COMMAND…: asks tandem COMMAND to end once it has made FILES; they are to go with it,
# and with its children.
end_when_there() {
    local pattern=$1 k
    shift
    "$tandem" "$@" >out 2>err </dev/null &
    local ended=$!
    for ((k = 0; k < 600; k++)); do
        compgen -G "$pattern" >/dev/null && break
        sleep 0.1
    done
    [ $k -lt 600 ] || echo "# $pattern never came"
    kill -TERM $ended
    wait $ended
    code=$?
    for ((; k < 600; k++)); do
        compgen -G '.tandem*' >/dev/null || break
        sleep 0.1
    done
    [ $k -lt 600 ] && [ $code = 143 ]
}
tandem=$tandem-bench end_when_there '.tandem-store-*' open --model "$model" --device "$weakest,$weakest" \
    --repetitions 100000
report "a benchmark that is asked to end takes its store along" $?
end_when_there '.tandem-run-*' compare --plan plan.json --steps 1000000
report "a comparison that is asked to end takes its files along" $?

left_over && report "no files are left over" 1 || report "no files are left over" 0
echo "1..$n"
[ $failed = 0 ]
