#!/bin/bash
# Cards as devices of whole commands, where there is none: libtandem_cuda.so is the one of the tests, on
# stand-ins for NVIDIA's libraries (tests/cuda/stand_in.h). Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
stand_in=$build/tests/libtandem_cuda.so
[ -e "$stand_in" ] || { echo "Bail out! there is no $stand_in: run make tests first"; exit 4; }

find_devices
model=(--model mlp:width=16 --batch 2)

# --- No card ---
export TANDEM_CUDA=$work/nowhere.so
run 4 train "${model[@]}" --device cuda:0 --steps 1 &&
    grep -q "libtandem_cuda.so, which does not open" err && [ "$(wc -l <err)" = 1 ] &&
    run 4 profile "${model[@]}" --cluster "cuda:0 + cuda:1" && [ "$(wc -l <err)" = 1 ]
report "without the library: exit code 4 and one line, before ranks are started" $?
run 0 doctor && grep -q '^cuda:0  *absent .*libtandem_cuda.so' out
report "doctor says what is missing" $?
run 3 train "${model[@]}" --device cuda:first --steps 1 ||
    run 2 train "${model[@]}" --device cuda:first --steps 1
grep -q "Did you mean 'cuda:0'" err
report "cards have numbers" $?

# --- The stand-in ---
export TANDEM_CUDA=$stand_in
run 0 doctor && grep -q '^cuda:0  *ok .*stand-in, compute capability 9.0' out && ! grep -q '^cuda:1' out
report "doctor describes the cards that are here" $?
run 4 train "${model[@]}" --device cuda:7 --steps 1 &&
    grep -q "'cuda:7' does not exist: this machine has 1 GPU" err
report "a card that is not here: exit code 4" $?
run 0 profile "${model[@]}" --cluster cuda:0 --json && positive "$(field measured out | head -1)" &&
    [ "$(array compute_mhz out | tr -d ' \n')" = 17551755 ] &&
    run 0 profile "${model[@]}" --cluster cuda:0 --json && ! field measured out | grep -qv '^0$'
report "a profile of a card, and a second that finds everything known" $?
run 0 compare "${model[@]}" --cluster cuda:0 --uniform int8 --steps 12 --json &&
    positive "$(field measured_ns out | head -1)"
report "compare: tasks of a step on a card have times" $?
TANDEM_DB=$work/lacks.db
export TANDEM_DB
STAND_IN_LACKS_S8_K=16 run 0 profile "${model[@]}" --cluster cuda:0 &&
    [ "$(grep -c "cuda:0 lacks kernels for 2 operators in int8 ('fc2', …), which are not measured" err)" = \
        1 ] &&
    run 4 replay "${model[@]}" --cluster cuda:0 --uniform int8 &&
        grep -q "(weight cast of fc2) on cuda:0" err &&
    STAND_IN_LACKS_S8_K=16 run 4 profile "${model[@]}" --cluster cuda:0 --uniform int8_full &&
    grep -q "has no kernel for the .* of operator 'fc2'.* int8_full.*another precision" err
report "a missing kernel takes out one operator in one precision; a plan that needs it is refused" $?
TANDEM_DB=$work/memory.db
run 0 profile "${model[@]}" --cluster cuda:0 --uniform bf16
large=(--model mlp:width=16 --batch 4096 --cluster cuda:0 --uniform bf16 --steps 1)
run 0 train "${large[@]}" && TANDEM_DB=$work/more_memory.db &&
    STAND_IN_GRAPH_BYTES=1065000000 run 0 profile "${model[@]}" --cluster cuda:0 --uniform bf16 &&
    run 5 train "${large[@]}" && grep -q "the ranks on 'cuda:0' need 1.0[0-9]* G" err &&
    run 0 train "${model[@]}" --cluster cuda:0 --uniform bf16 --steps 1
report "what a card takes beside the plan is seen by a profile, and counted before a run" $?

# Attention is one task; its measured times can be lost, as in a store of before.
fused=(--model gpt_tiny:width=8,depth=1,heads=1,length=5 --batch 1 --cluster cuda:0)
TANDEM_DB=$work/attention.db
run 0 profile "${fused[@]}" --uniform bf16 --repetitions 4 &&
    run 0 compare "${fused[@]}" --uniform bf16 --steps 6 --json &&
    positive "$(array predicted_peak_bytes out | tr -d " \n")" &&
    [ "$(array predicted_peak_bytes out)" = "$(array allocated_peak_bytes out)" ]
report "attention as one task: the memory that is predicted is allocated" $?
if python3 -c 'import sqlite3, sys; store = sqlite3.connect(sys.argv[1]); store.execute("""DELETE FROM op_cost
    WHERE operator IN (SELECT id FROM operator WHERE signature LIKE "attention %")"""); store.commit()' \
    "$TANDEM_DB" 2>/dev/null; then
    run 4 replay "${fused[@]}" --uniform bf16 &&
        grep -q "'attention heads=1 rows=5 columns=5 depth=8 causal=1 dropout=0 | bf16 | forward" err &&
        run 0 replay "${fused[@]}" --uniform bf16 --predict --details && grep -q ' predicted (2 tasks)' out
    report "a store without times of attention: the profile that is missing, or a prediction" $?
else
    skip "a store without times of attention" "python3 has no sqlite3 here"
fi
# Losses and faults are read while the next step runs, and nothing else changes.
trained=(train -q "${model[@]}" --cluster cuda:0 --uniform int8 --schedule cosine --warmup 2 --bucket 4KiB)
both_ways() { # CODE NAME ARGUMENTS…
    local code=$1 name=$2 late
    shift 2
    for late in 1 0; do
        TANDEM_LATE=$late run "$code" "${trained[@]}" "$@" --log "$name.$late.log" \
            --checkpoint "$name.$late" || return 1
        mv out "$name.$late.out" && mv err "$name.$late.err"
        sed -E 's/"(step_ns|samples_per_s)":[^,}]*//g; s/"made":.*//' "$name.$late.log" >"$name.$late.lines"
    done
    cmp "$name.1.lines" "$name.0.lines" && sed "s/$name.1/$name.0/g" "$name.1.err" | cmp - "$name.0.err"
}
both_ways 0 whole --steps 9 --checkpoint-every 4 && cmp whole.1 whole.0 &&
    [ "$(wc -l <whole.1.lines)" = 9 ] && both_ways 0 half --steps 5 &&
    both_ways 0 rest --steps 9 --resume half.1 && cmp rest.1 rest.0
report "late losses: logs, checkpoints and resumed runs are those of losses read at once" $?
both_ways 1 broken --steps 9 --lr 1e30 --warmup 0 && grep -q 'has diverged in step 2: ' broken.1.err &&
    both_ways 1 later --steps 9 --lr 1e12 --warmup 4 && grep -q 'has diverged in step 3: ' later.1.err &&
    [ "$(wc -l <later.1.lines)" = 2 ]
report "late losses: a run that diverges ends with the same step, line and log" $?

sum_of_costs() { run 0 replay "${model[@]}" --cluster cuda:0 --uniform bf16 --json && field step_ns out |
    head -1; }
of_event() { field event_ns out | head -1; }
TANDEM_DB=$work/events.db
export TANDEM_DB
few=("${model[@]}" --cluster cuda:0 --uniform bf16 --repetitions 2 --json)
run 0 profile "${few[@]}" && free_ns=$(of_event) && plain_ns=$(sum_of_costs) &&
    TANDEM_DB=$work/slow_events.db && STAND_IN_EVENT_NS=10000000 run 0 profile "${few[@]}" &&
    event_ns=$(of_event) && slow_ns=$(sum_of_costs) && echo "# an event: $free_ns and $event_ns ns" &&
    [ "$event_ns" -ge 5000000 ] && [ "$free_ns" -lt $((event_ns / 3)) ] &&
    [ "$slow_ns" -lt $((plain_ns + 10 * event_ns)) ]
report "what timing a task takes is measured, and taken off its cost" $?
unset TANDEM_DB
# --- Cards that cannot be used, or not by all ---
one=(train "${model[@]}" --device cuda:0 --steps 2)
# Another test may have the cores, of which a run warns.
says() { [ "$(grep -vc '^warning: rank .* with another run' err)" = 1 ] && grep -q "$1" err; }
STAND_IN_COUNT_FAILS=35 run 4 "${one[@]}" && says "'cuda:0' has no driver: .* missing, or older" &&
    STAND_IN_COUNT_FAILS=100 run 4 "${one[@]}" && says "this machine has 0 GPUs" &&
    STAND_IN_DRIVER=12040 run 4 "${one[@]}" && says "is for CUDA 12.4, older .*; install a newer driver" &&
    STAND_IN_DRIVER=13000 run 0 "${one[@]}" &&
    STAND_IN_DRIVER=12040 run 0 doctor && grep -q '^cuda:0  *absent .*install a newer driver' out
report "no driver, no card, and a driver of an older CUDA: exit code 4 and what to do" $?
export STAND_IN_CAPABILITY=75
run 4 "${one[@]}" --uniform bf16 && says "needs compute capability 8.0" &&
    run 0 "${one[@]}" --uniform fp16 --loss-scale dynamic &&
    run 0 profile "${model[@]}" --device cuda:0 --db turing.db &&
    grep -q 'cuda:0 lacks kernels for .* in bf16' err &&
    run 0 replay "${model[@]}" --device cuda:0 --db turing.db &&
    STAND_IN_CAPABILITY=70 run 4 "${one[@]}" && says "capability 7.0; kernels are for 7.5 and later" &&
    STAND_IN_CAPABILITY=80 run 4 "${one[@]}" --uniform fp8 && says "needs compute capability 8.9"
report "a card without tensor cores of a type: exit code 4, and a profile of the other types" $?
unset STAND_IN_CAPABILITY
two=("${model[@]}" --cluster "2*cuda:0")
refused() { # ARGUMENT…: the ranks would wait for two minutes, those of a profile for half an hour
    STAND_IN_EXCLUSIVE=$work/held timeout 60 "$tandem" "$@" >out 2>err </dev/null
    code=$?
    [ $code = 4 ] && grep -q "takes no more processes: .*one rank, or .*nvidia-smi -i 0 -c DEFAULT" err
}
run 0 train "${two[@]}" --steps 2 && STAND_IN_EXCLUSIVE=$work/held run 0 "${one[@]}" &&
    refused train "${two[@]}" --steps 2 && refused profile "${two[@]}" --db held.db
report "two ranks on one card train; in exclusive mode: exit code 4 at once, and no rank waits" $?
failed_at() { # ALLOCATIONS ARGUMENT…
    STAND_IN_ALLOCATIONS=$1 timeout 60 "$tandem" train "${model[@]}" --steps 2 "${@:2}" >out 2>err </dev/null
}
taken=0 code=5
while [ $code = 5 ] && [ $taken -lt 99 ]; do
    failed_at $taken --device cuda:0
    code=$?
    [ $code != 5 ] || says "'cuda:0' \(has no .* left\|ran out of memory\)" || code=1
    taken=$((taken + 1))
done
[ $code = 0 ] && [ $taken -gt 5 ] && { [ -z "$weakest" ] || {
    failed_at $((taken - 3)) --cluster "cuda:0 + $weakest" # whose losses have no place on the card
    [ $? = 5 ]
}; }
report "a card that runs out of memory at any moment: exit code 5, on all ranks" $?
minor=(--device cuda:0 --uniform bf16 --db minor.db)
versions="CUDA 13.0, cuBLASLt 130100, cuDNN"
STAND_IN_VERSIONS="$versions 91900" run 0 profile "${model[@]}" "${minor[@]}" &&
    export STAND_IN_VERSIONS="$versions 91300" && run 0 train "${model[@]}" "${minor[@]}" --steps 2 &&
    run 0 compare "${model[@]}" "${minor[@]}" --steps 12 && run 0 doctor && grep -q 'cuDNN 91300' out
report "a library of another minor version takes none of the other's algorithms, and trains" $?
unset STAND_IN_VERSIONS
graphs=("${model[@]}" --cluster cuda:0 --uniform int8 --steps 5 --json)
run 0 train "${graphs[@]}" && array loss out >replayed && ! grep -q graph err &&
    TANDEM_GRAPHS=0 run 0 train "${graphs[@]}" && array loss out | cmp - replayed && ! grep -q graph err &&
    STAND_IN_REFUSES_CAPTURE=1 run 0 train "${graphs[@]}" && array loss out | cmp - replayed &&
    [ "$(grep -c 'no graph can be made of them: .*cuda:0' err)" = 1 ]
report "steps as graphs, launched one by one, and where no graph can be made, which one line says: \
the same losses" $?
scaled() { grep -c '"loss_scale":65536' log.jsonl; rm -f log.jsonl; }
run 0 train "${model[@]}" --cluster cuda:0 --uniform fp16 --steps 2 --log log.jsonl && [ "$(scaled)" = 2 ] &&
    run 0 compare "${model[@]}" --cluster cuda:0 --uniform fp16 --steps 12 &&
    run 0 train "${model[@]}" --cluster cuda:0 --uniform fp16 --steps 2 --loss-scale 4 --log log.jsonl &&
        [ "$(scaled)" = 0 ] &&
    run 0 train "${model[@]}" --cluster cuda:0 --uniform bf16 --steps 2 --log log.jsonl && [ "$(scaled)" = 0 ]
report "gradients in fp16 have a dynamic loss scale, unless another one is asked for; others have none" $?
run 0 train "${model[@]}" --cluster cuda:0 --steps 6 --accumulate 2 --trace trace.json --data data --eval 8 &&
    [ "$(grep -c '"cat":"update"' trace.json)" -ge 1 ] && ! grep -q '"ts":-' trace.json
report "a trace of micro-steps on a card" $?
run 2 sensitivity "${model[@]}" --device cuda:0 --data data && says "Leave --device out" &&
    run 0 sensitivity "${model[@]}" --device cuda:0 --by statistics --steps 2 --data data --json &&
    run 0 allocate "${model[@]}" --cluster cuda:0 --sensitivity fisher -o plan.json &&
    run 0 train --plan plan.json --steps 2
report "statistics of a card, a plan, and a training by it" $?
run 0 sensitivity "${model[@]}" --batch 16 --steps 10 --data data --json &&
    run 0 allocate "${model[@]}" --cluster cuda:0 -o plan.json && run 0 train --plan plan.json --steps 2
report "what a CPU estimates makes a plan for a card, and a training by it" $?
half=("${model[@]}" --cluster cuda:0 --policy uniform --uniform fp16 --json)
run 0 allocate "${half[@]}" && [ "$(field loss_scale out)" = '"dynamic"' ]
report "a card's profile has the norm that its plans in fp16 need" $?

if [ -z "$weakest" ]; then
    skip "a card and a CPU" "this machine is none of the devices"
else
    both=("${model[@]}" --cluster "cuda:0 + $weakest")
    run 0 profile "${both[@]}" --json &&
        run 0 train "${both[@]}" --steps 4 --data data --eval 8 --checkpoint both.ckpt --json &&
            array loss out >first &&
        run 0 train "${both[@]}" --steps 2 --data data --eval 8 --checkpoint half.ckpt &&
        run 0 train "${both[@]}" --steps 4 --data data --eval 8 --checkpoint rest.ckpt --resume half.ckpt \
            --json &&
        array loss out >last && tail -2 first | cmp - last && cmp both.ckpt rest.ckpt
    report "a card and a CPU train together, and resume to the bit" $?
    run 0 replay "${both[@]}" && TANDEM_ALLREDUCE=network run 4 replay "${both[@]}" &&
        grep -q 'no all-reduce among [^ ]*+cuda:0 has' err &&
        TANDEM_ALLREDUCE=network run 0 profile "${both[@]}" --allreduce-only &&
            TANDEM_ALLREDUCE=network run 0 replay "${both[@]}" &&
        TANDEM_ALLREDUCE=network run 0 compare "${both[@]}" --steps 6 &&
            run 0 compare "${both[@]}" --steps 6 && ! grep -q network err
    report \
        "a card and a CPU are profiled, replayed and compared in shared memory, and over a network apart" $?
    TANDEM_ALLREDUCE=network run 0 train "${both[@]}" --steps 4 --data data --json && array loss out |
        cmp - first &&
        STAND_IN_REFUSES_LOCK=1 run 0 train "${both[@]}" --steps 4 --data data --json && array loss out |
            cmp - first &&
        [ "$(grep -c 'over the network, because ranks cannot share memory: rank 0: .*page-lock' err)" = 1 ] &&
        STAND_IN_REFUSES_LOCK=1 run 2 profile "${both[@]}" --remeasure &&
            grep -q 'page-lock.*TANDEM_ALLREDUCE=network' err && [ "$(grep -c '^tandem: ' err)" = 1 ] &&
        STAND_IN_REFUSES_LOCK=1 TANDEM_ALLREDUCE=network run 0 profile "${both[@]}" --allreduce-only \
            --remeasure
    report "where a driver locks no shared memory: the losses are the same, one line says why, \
a profile is refused" $?
    TANDEM_CUDA=$work/nowhere.so run 0 replay "${both[@]}" && grep -q '^cuda:0 ' out
    report "what was measured on a card is replayed where there is none" $?
fi
! left_over
report "nothing is left" $?

echo "1..$n"
[ $failed = 0 ]
