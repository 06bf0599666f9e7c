#!/bin/bash
# Training through the command line, on two ranks of the weakest device here and a model that takes a
# millisecond a step: learning rates, the log, evaluation, checkpoints and resumption after kills, divergence,
# memory. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

find_devices
if [ -z "$weakest" ]; then
    skip "training" "this machine is none of the devices"
    echo "1..$n"
    exit 0
fi
mlp=(train --model mlp:width=16 --batch 4 --device "$weakest,$weakest" --data data --eval 8)
gpt=(train --model "gpt_tiny:width=16,depth=1,heads=2,length=8" --batch 4 --device "$weakest" --eval 0)
# Members of the log's lines, one a line: logged lr FILE
logged() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$2"; }
# Exit code 2, a text, and nothing trained: refused TEXT ARGUMENT…
refused() {
    local text=$1
    shift
    run 2 "$@" && grep -q -- "$text" err && [ ! -s out ] && ! grep -q 'step 1 of' err
}

# --- Options ---
refused "Did you mean 'cosine'" "${mlp[@]}" --schedule cosin
report "an unknown schedule: exit code 2 and the nearest name" $?
refused "--lr takes a number" "${mlp[@]}" --lr fast && refused "--lr takes a number" "${mlp[@]}" --lr=-1 &&
    refused "--lr takes a number" "${mlp[@]}" --lr nan &&
        refused "from 0 to below 1" "${mlp[@]}" --momentum 1 &&
    refused "longer than the run" "${mlp[@]}" --steps 5 --warmup 6
report "numbers out of their range: exit code 2" $?
refused "uses adamw, which has no --momentum. Use --betas" "${gpt[@]}" --momentum 0.9 &&
    refused "uses sgd, which has no --betas. Use --momentum" "${mlp[@]}" --betas 0.9,0.99 &&
    refused "two numbers" "${gpt[@]}" --betas 0.9 && refused "two numbers" "${gpt[@]}" --betas 0.9,1
report "an option of another optimizer: exit code 2" $?
refused "--checkpoint FILE" "${mlp[@]}" --checkpoint-every 2 &&
    refused "test samples" "${mlp[@]}" --eval-every 2 --eval 0 &&
    refused "test samples" "${gpt[@]}" --eval 8 --eval-every 2
report "an option that lacks another: exit code 2" $?

# --- Learning rate and log ---
# follows SCHEDULE FORMULA-IN-AWK: of r, s, W, N
follows() {
    run 0 "${mlp[@]}" --steps 20 --lr 0.08 --warmup 4 --schedule "$1" --log "$1.jsonl" -q &&
        [ "$(wc -l <"$1.jsonl")" = 20 ] &&
        logged lr "$1.jsonl" | awk "{ r = 0.08; W = 4; N = 20; s = NR - 1; f = s < W ? r * (s + 1) / W : $2
            d = \$1 - f; if (d * d > 1e-14) { print s, \$1, f; bad = 1 } } END { exit bad || NR != 20 }" >>out
}
follows constant 'r' && follows linear 'r * (N - s) / (N - W)' &&
    follows cosine 'r / 2 * (1 + cos(atan2(0, -1) * (s - W) / (N - W)))' &&
    follows step '(s < N / 2 ? r : s < 3 * N / 4 ? r / 10 : r / 100)'
report "every schedule follows its formula" $?

entry='^\{"step":[0-9]+,"loss":[0-9.e-]+,"lr":[0-9.e-]+,"step_ns":[0-9]+'
entry+=',"samples_per_s":[0-9.e+]+,"rank":0(,"accuracy":[0-9.]+)?\}$'
run 0 "${mlp[@]}" --steps 6 --log log.jsonl --json &&
    [ "$(logged step log.jsonl | tr '\n' ' ')" = "1 2 3 4 5 6 " ] &&
    [ "$(sed 's/,"made":{"command":"tandem train [^}]*}}$/}/' log.jsonl | grep -cE "$entry")" = 6 ] &&
    [ "$(grep -n '"made"' log.jsonl | cut -d: -f1)" = 1 ] &&
    [ "$(array loss out)" = "$(logged loss log.jsonl)" ] &&
        [ "$(logged accuracy log.jsonl)" = "$(field accuracy out | head -1)" ]
report "the log has a line for every step, with the result's losses" $?

run 0 "${mlp[@]}" --steps 6 --weight-decay 0.5 --json && array loss out >decayed &&
    run 0 "${mlp[@]}" --steps 6 --momentum 0 --json &&
    array loss out >slower && ! cmp -s decayed slower &&
        ! diff -q <(logged loss log.jsonl) decayed >/dev/null &&
            ! diff -q <(logged loss log.jsonl) slower >/dev/null
report "weight decay and momentum make a difference" $?

run 0 "${mlp[@]}" --steps 6 --eval-every 2 --log eval.jsonl --json &&
    [ "$(grep -c '"accuracy":' eval.jsonl)" = 3 ] && [ "$(grep -c 'accuracy' err)" = 3 ] &&
    [ "$(array loss out)" = "$(logged loss log.jsonl)" ] && [ "$(field step out | tr '\n' ' ')" = "2 4 6 " ]
report "accuracy every so many steps, and the training is the same" $?

# At rate 0, with the test samples as training samples: each step's loss is that of one of them.
mkdir same
for file in images-idx3-ubyte.gz labels-idx1-ubyte; do
    cp "data/t10k-$file" "same/t10k-$file" && cp "data/t10k-$file" "same/train-$file"
done
run 0 train --model mlp:width=8 --device cpu:sse41 --batch 1 --steps 16 --lr 0 --eval 16 --data same --json &&
    array loss out | awk -v mean="$(sed -n 's/^ *"loss": \([0-9.]*\),*$/\1/p' out)" \
        -v error="$(field loss_error out)" '{ sum += $1; square += $1 * $1 }
        END { m = sum / 16; e = sqrt((square / 16 - m * m) / 15)
              exit NR != 16 || e < 0.01 || (m / mean - 1) ^ 2 > 1e-10 || (e / error - 1) ^ 2 > 1e-8 }'
report "the test loss and its standard error" $?

run 5 "${mlp[@]}" --steps 3 --log /dev/full && grep -q "log '/dev/full'.*No space" err &&
    run 5 "${mlp[@]}" --log nowhere/log.jsonl && ! grep -q 'step 1 of' err
report "a log that cannot be written: exit code 5" $?

if command -v script >/dev/null; then
    script -qec "'$tandem' train --model mlp --batch 64 --device $weakest --steps 300" /dev/null >out 2>err \
        </dev/null
    grep -q $'step 1 of 300, loss [0-9.]*, [0-9.]* samples/s, .* left\r' out &&
        grep -q $'step 300 of 300, loss [0-9.]*, [0-9.]* samples/s\r\033\\[Kmlp, uniform fp32' out
    report "on a terminal, a line that is written over, by the result at last: loss, samples/s, time left" $?
else
    skip "the line on a terminal" "there is no script(1); apt-get install bsdutils"
fi

# --- Checkpoints ---
long=("${mlp[@]}" --uniform int8_full --steps 2000 --schedule cosine --warmup 5 --lr 0.02)
run 0 "${long[@]}" --checkpoint whole.ckpt --log whole.jsonl -q
report "a run with a checkpoint at its end" $?

# cut_off LINES ARGUMENT…: runs tandem until the log has so many lines, and kills its ranks in whatever they
# do.
cut_off() {
    local lines=$1
    shift
    "$tandem" "$@" >out 2>>err </dev/null &
    local run=$!
    while [ -e /proc/$run ] && { [ ! -s cut.jsonl ] ||
        [ "$(wc -l <cut.jsonl)" -lt "$lines" ]; }; do sleep 0.01; done
    # shellcheck disable=SC2046
    kill -KILL $(cat /proc/$run/task/$run/children 2>/dev/null) 2>/dev/null && kills=$((kills + 1))
    wait $run 2>/dev/null
}
kills=0 resume=()
for k in 1 2 3 4; do
    cut_off $((k * 60 + RANDOM % 30)) "${long[@]}" --checkpoint cut.ckpt --checkpoint-every 1 --log \
        cut.jsonl "${resume[@]}"
    [ -s cut.ckpt ] && resume=(--resume cut.ckpt)
done
run 0 "${long[@]}" --checkpoint cut.ckpt --log cut.jsonl "${resume[@]}" && grep -q "resumes after" err &&
    [ $kills = 4 ] && cmp whole.ckpt cut.ckpt
report "killed four times while it writes every step, and resumed: the same bytes" $?
rm -f .tandem-cut.ckpt-* # a kill just before the renaming leaves the whole new file beside the old one
# the last line of each step counts: a run that is cut off between its log and its checkpoint takes the step
# again
diff <(logged loss whole.jsonl) <(paste <(logged step cut.jsonl) <(logged loss cut.jsonl) |
    awk '{ loss[$1] = $2 } END { for (s = 1; s <= 2000; s++) print loss[s] }') >out
report "and the same losses" $?

run 0 "${long[@]}" --steps 2020 --resume whole.ckpt --seed 5 --json &&
    grep -q "resumes after step 2000 from 'whole.ckpt'" err &&
    grep -q 'differs from the checkpoint: seed: 5; it was seed: 0' err &&
        [ "$(grep -c 'differs from the checkpoint' err)" = 2 ] &&
            grep -q 'cosine over 2020 steps.*it was.*over 2000 steps' err &&
    [ "$(field resumed_at out)" = 2000 ] && [ "$(array loss out | wc -l)" = 20 ]
report "what is not as it was is said" $?

never() { ! grep -q 'step 1 of' err && [ "$(cksum <whole.ckpt)" = "$sum" ]; }
sum=$(cksum <whole.ckpt)
run 2 "${long[@]}" --resume whole.ckpt && grep -q "already has 2000 steps" err && never
report "a checkpoint that has all the steps: exit code 2" $?
run 3 "${gpt[@]}" --resume whole.ckpt && grep -q "of model 'mlp:width=16', this run trains 'gpt_tiny" err &&
    never
report "a checkpoint of another model: exit code 3" $?
head -c 5000 whole.ckpt >short.ckpt
run 3 "${long[@]}" --resume short.ckpt && grep -q "'short.ckpt' is cut short" err &&
    [ "$(grep -c '^tandem:' err)" = 1 ] && never
report "a checkpoint that is cut short: exit code 3, said once" $?
{ head -c 4000 whole.ckpt; printf x; tail -c +4002 whole.ckpt; } >flipped.ckpt
run 3 "${long[@]}" --resume flipped.ckpt && grep -q "'flipped.ckpt' is damaged: its weights" err && never
report "a damaged checkpoint: exit code 3" $?
run 3 "${long[@]}" --resume whole.jsonl && grep -q "no checkpoint" err &&
    run 5 "${long[@]}" --resume absent.ckpt && grep -q 'absent.ckpt' err &&
    run 5 "${long[@]}" --resume data && never
report "no checkpoint, none there, a directory: exit codes 3, 5, 5" $?
run 5 "${long[@]}" --checkpoint nowhere/x.ckpt && never && run 5 "${long[@]}" --checkpoint data && never
report "a checkpoint that cannot be written is said before the first step: exit code 5" $?
run 5 "${long[@]}" --checkpoint /dev/full --checkpoint-every 2 &&
    grep -q "'/dev/full' cannot be written: No space" err && [ "$(grep -c '^tandem:' err)" = 1 ]
report "no space for a checkpoint: exit code 5, said once" $?

# --- Clipping, loss scales, weights in files ---
refused "--clip takes a norm above 0" "${mlp[@]}" --clip 0 &&
    refused "a share from 0 to below 1" "${mlp[@]}" --label-smoothing 1 &&
    refused "or .dynamic." "${mlp[@]}" --loss-scale dynamics &&
        refused "no parameter of model 'mlp:width=16' matches 'fc9" "${mlp[@]}" --no-decay 'fc1.*,fc9.*' &&
    refused "A name is e.g. 'fc1.weight'" "${mlp[@]}" --no-decay weight &&
        refused "--init and --resume contradict each other" "${mlp[@]}" --init x --resume y
report "options of the gradients out of their range: exit code 2" $?
run 0 "${mlp[@]}" --steps 6 --clip 0.05 --label-smoothing 0.1 --no-decay 'fc*' --weight-decay 0.1 --log \
    clipped.jsonl --json && array loss out >clipped &&
        ! diff -q <(logged loss log.jsonl) clipped >/dev/null &&
    [ "$(logged gradient_norm clipped.jsonl | awk '$1 > 0.05' | wc -l)" = 6 ] &&
        ! grep -q 'loss_scale\|skipped' clipped.jsonl
report "the log has the norm before it was clipped" $?
run 0 "${mlp[@]}" --steps 6 --loss-scale 1024 --json && [ "$(array loss out)" = "$(logged loss log.jsonl)" ]
report "a loss scale of a power of two changes no loss" $?

run 0 "${mlp[@]}" --steps 6 --export six.st --checkpoint six.ckpt &&
    run 0 "${mlp[@]}" --steps 1 --lr 0 --init six.st --export again.st && cmp six.st again.st &&
    run 0 "${mlp[@]}" --steps 1 --seed 9 --export other.st && ! cmp -s six.st other.st
report "weights that are exported come back" $?
refuses() { run "$1" "${mlp[@]}" --init "$2" && grep -q -- "$3" err && [ "$(grep -c '^tandem:' err)" = 1 ] &&
    ! grep -q 'step 1 of' err; }
sed 's/head.bias/haed.bias/' six.st >misnamed.st &&
    refuses 3 misnamed.st "does not have the model's tensor 'head.bias'; the nearest is 'haed.bias'"
report "a tensor under another name: exit code 3, and the nearest name" $?
sed 's/"shape":\[10\]/"shape":[11]/' six.st >misshaped.st &&
    refuses 3 misshaped.st "tensor 'head.bias' in 'misshaped.st' has shape \[11\]; the model's has \[10\]"
report "a tensor of another shape: exit code 3" $?
head -c 5000 six.st >short.st && refuses 3 short.st "has no valid place in the file" &&
    head -c 100 six.st >shorter.st && refuses 3 shorter.st 'cut short' && : >empty.st &&
        refuses 3 empty.st 'cut short' &&
    { cat six.st; printf 1234; } >long.st && refuses 3 long.st 'overlap or leave gaps' &&
        refuses 3 six.ckpt 'cut short' && refuses 5 absent.st absent.st && refuses 5 data 'Is a directory' &&
    run 3 "${gpt[@]}" --init six.st && grep -q "does not have the model's tensor 'embedding.weight'" err
report "files that are cut, too long, none, or of another model: exit codes 3 and 5" $?
run 5 "${mlp[@]}" --steps 2 --export nowhere/x.st && ! grep -q 'step 1 of' err &&
    run 5 "${mlp[@]}" --steps 2 --export /dev/full && grep -q "'/dev/full' cannot be written" err &&
        [ "$(grep -c '^tandem:' err)" = 1 ]
report "an export that cannot be written: exit code 5" $?

# --- Divergence ---
cp whole.ckpt good.ckpt
run 1 "${mlp[@]}" --lr 1e20 --steps 20 --checkpoint good.ckpt --log diverged.jsonl &&
    [ "$(grep -c diverged err)" = 1 ] &&
    grep -q "diverged in step [0-9]*: the gradient of operator '[a-z0-9.]*' ([a-z0-9]*) is not finite" err &&
        cmp good.ckpt whole.ckpt &&
    [ "$(logged step diverged.jsonl |
        tail -1)" = $(($(sed -n 's/.*diverged in step \([0-9]*\).*/\1/p' err) - 1)) ]
report "divergence: exit code 1, step and operator said once, the last good checkpoint stays" $?
run 1 "${mlp[@]}" --lr 1e20 --steps 20 --uniform int8 &&
    grep -q "diverged in step [0-9]*: .* of operator '.*' .*int8" err
report "divergence that a cast to int8 meets: exit code 1" $?
run 0 "${mlp[@]}" --lr 1e20 --steps 20 --allow-nan --json && array loss out | grep -q null &&
    [ "$(array loss out | wc -l)" = 20 ]
report "--allow-nan goes on" $?

# --- What does not fit ---
run 3 "${mlp[@]}" --batch 33 &&
    grep -q "'data' has 64 training samples, but a step of all ranks takes 66" err &&
        [ "$(grep -c '^tandem:' err)" = 1 ] &&
    run 0 "${mlp[@]}" --batch 32 --steps 2
report "a data set smaller than the batch of all ranks: exit code 3, before any rank is started" $?
run 1 "${mlp[@]}" --batch 32 --memory 200KiB --steps 2 && [ "$(grep -c '^tandem:' err)" = 1 ] &&
    grep -q 'rank 0 needs .* at batch 32, its limit is 200 KiB: weights .*activations' err &&
    fits=$(sed -n 's/.*; batch \([0-9]*\) would fit$/\1/p' err) && positive "$fits" &&
    run 0 "${mlp[@]}" --batch "$fits" --memory 200KiB --steps 2 &&
        run 1 "${mlp[@]}" --batch $((fits + 1)) --memory 200KiB --steps 2
report "a batch over the memory limit: exit code 1, bytes by category, and the batch that fits" $?
run 5 train --model resnet20:width=64 --batch 1048576 --device "$weakest,$weakest" --steps 2 &&
    grep -q 'TiB.*MemAvailable.*activations.*would fit' err
report "a batch over the machine's memory: exit code 5" $?

# An evaluation runs in the memory of the steps. Steps that recompute have less than it needs.
again=(train --model vit_tiny:depth=3 --batch 2 --device "$weakest" --recompute sqrt --data data --steps 2)
run 0 "${again[@]}" --eval 0 --json && planned=$(field planned_bytes out) &&
    [ "$(field evaluation_bytes out)" = 0 ] &&
    [ "$planned" = "$(field allocated_bytes out)" ] && run 0 "${again[@]}" --eval 0 --memory "${planned}B" &&
    run 1 "${again[@]}" --eval 8 --eval-every 1 --memory "${planned}B" && [ ! -s out ] &&
        ! grep -q 'step 1' err &&
    grep -q 'rank 0 needs .*, its limit is .*, more for evaluations (--eval) [0-9.]* [KM]iB;' err &&
    run 0 "${again[@]}" --eval 8 --eval-every 1 --json && more=$(field evaluation_bytes out) &&
        positive "$more" &&
    [ "$(field planned_bytes out)" = $((planned + more)) ] &&
        [ "$(field allocated_bytes out)" = $((planned + more)) ] &&
    run 0 "${again[@]}" --eval 8 --eval-every 1 --memory "$((planned + more))B" &&
        run 1 "${again[@]}" --eval 8 --memory "$((planned + more - 1))B"
report "a training that fits without its evaluations, and not with them, is refused before the first step" $?

# close RANKS: what the system counted of each rank is its plan, but for 2 % and 24 MiB: its kernels, and what
# libraries have.
close() {
    [ "$(field resident_bytes out | wc -l)" = "$1" ] &&
        paste <(field planned_bytes out) <(field resident_bytes out) >>out &&
        paste <(field planned_bytes out) <(field resident_bytes out) |
        awk '{ d = $2 - $1; if (d < 0) d = -d; if (d > $1 / 50 + 24 * 1048576) exit 1 }'
}
if [ "$(basename "$build")" != build ]; then
    skip "the system counts what was planned" "the system counts what a sanitizer remembers, too"
elif run 0 "${mlp[@]}" --steps 3 --json && [ "$(field resident_bytes out | head -n 1)" != null ]; then
    wide=(train --model mlp:width=2048,depth=3 --batch 4 --steps 3 --json)
    run 0 "${wide[@]}" --device "$weakest" && [ "$(field planned_bytes out)" -gt 100000000 ] && close 1 &&
        run 0 "${wide[@]}" --device "$weakest,$weakest" --uniform fp32,int8_full && close 2 &&
        TANDEM_ALLREDUCE=network run 0 "${wide[@]}" --device "$weakest,$weakest" && close 2
    report "the system counts what was planned: one rank, two that share memory, two over a network" $?
    # a forward pass in fp32 needs nearly as much as a step in int8, and takes no more than that
    run 0 train --model vit_tiny:depth=3 --batch 64 --device "$weakest" --uniform int8 --data data --eval \
        16 --steps 2 --json && close 1
    report "the same with evaluations between steps" $?
else
    skip "the system counts what was planned" \
        "this system does not report the most that a process had in memory"
fi

# --- Products of a step, inside it and alone
# --------------------------------------------------------------------------------- mlp of three layers:
# forward and wgrad of each, dgrad of all but the first.
counts() { field count out | awk '{ n[NR] = $1; s += $1 } END { exit !(NR > 1 && n[NR] == 8 && s == 16) }'; }
run_other bench 0 products --model mlp:width=16 --batch 4 --device "$weakest" --repetitions 2 --json -q &&
    counts &&
    [ "$(field of_alone out | wc -l)" = "$(field count out | wc -l)" ] && ! field of_alone out |
        grep -v '^[0-9.e+-]*$' &&
    ! field of_library out | grep -v '^[0-9.e+-]*$' &&
    [ "$(field of_limit out | awk '$1 > 0 && $1 < 2' | wc -l)" = 9 ] &&
    field of_alone out | awk '$1 <= 0 { exit 1 }' &&
    [ "$(field casts_ns out)" = 0 ] && [ "$(field biases_ns out)" -gt 0 ] &&
    ! grep -qv '^warning: rank .* with another run' err
report "bench products: every product of the graph is counted, ratios are numbers" $?
run_other bench 2 products --model mlp:width=16 --device "$weakest,$weakest" &&
    grep -q "measures one device, got 2" err
report "bench products on two devices: exit code 2" $?

# --- int8_full on CPUs that multiply it in vectors and in tiles ---
for device in cpu:avx512_vnni cpu:avx512_amx; do
    run 0 train --model vit_tiny:depth=1 --batch 4 --cluster "$device" --uniform int8_full --steps 3 --json -q
    grep -o '"loss": \[[^]]*\]' <(tr -d '\n' <out) >"losses.$device"
done
if grep -q 'cannot be' err; then
    skip "int8_full: the same losses in vectors and in tiles" "this machine has no AMX"
else
    [ -s losses.cpu:avx512_amx ] && cmp losses.cpu:avx512_vnni losses.cpu:avx512_amx
    report "int8_full: the same losses in vectors and in tiles" $?
fi
rm -f losses.*

left_over && report "no files are left over" 1 || report "no files are left over" 0
echo "1..$n"
[ $failed = 0 ]
