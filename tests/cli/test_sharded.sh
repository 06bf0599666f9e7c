#!/bin/bash
# Ranks that keep shards of the optimizer's state (--zero 1): the bits and the memory of training, checkpoints
# between layouts, what is refused. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
export TANDEM_OVERSUBSCRIBE=1 OMP_WAIT_POLICY=passive
find_devices
if [ -z "${weakest:-}" ]; then
    skip "shards" "this machine's CPU can be no device"
    echo "1..$n"
    exit 0
fi
images=$(dirname "$0")/../data/images
model=(--model mlp:width=24,depth=3 --batch 4 --bucket 3000B --lr 0.05)
train() { # CODE FILE OPTION…: writes FILE.json and FILE.weights
    local expected=$1 file=$2
    shift 2
    run "$expected" train -q --json --eval 0 "$@" --export "$file.weights"
    local ended=$?
    cp out "$file.json"
    return $ended
}
same_training() { # FILE FILE
    cmp -s "$1.weights" "$2.weights" && [ -s "$1.weights" ] &&
        [ "$(array loss "$1.json")" = "$(array loss "$2.json")" ]
}
as_planned() { # FILE
    [ "$(field planned_bytes "$1.json")" = "$(field allocated_bytes "$1.json")" ] &&
        [ -n "$(field planned_bytes "$1.json")" ]
}

# Each case: ranks, options. Shards of two classes are unequal, and one may be empty.
while IFS='|' read -r ranks options shards; do
    [ -n "$ranks" ] || continue
    # shellcheck disable=SC2086 # several options
    train 0 plain "${model[@]}" --cluster "$ranks" --steps 4 $options &&
        train 0 sharded "${model[@]}" --cluster "$ranks" --steps 4 $options --zero 1 --shards "$shards"
    report "$ranks $options, shards $shards: both train" $?
    same_training plain sharded
    report "$ranks $options, shards $shards: losses and weights have the same bits" $?
    as_planned sharded
    report "$ranks $options, shards $shards: memory is as planned, to the byte" $?
done <<EOF
2*$weakest||even
2*$weakest@1 net=1Gbit/s,50us|--wire bf16 --clip 0.1|even
2*$weakest + 1*$weakest batch=2|--clip 0.1 --loss-scale dynamic|3,1
2*$weakest@1 + 1*$weakest@1 batch=2 net=1Gbit/s,50us|--accumulate 2 --wire bf16|0,1
$weakest + $weakest batch=2|--uniform int8_full --recompute sqrt|1,5
EOF

# The state of the optimizer, by what is planned: equal shards halve it.
run 0 replay "${model[@]:0:6}" --cluster "2*t4@2 net=10Gbit/s,5us" --predict --zero 1 --json
halves=$(field optimizer out)
run 0 replay "${model[@]:0:6}" --cluster "2*t4@2 net=10Gbit/s,5us" --predict --json
[ "$(field optimizer out)" -gt $((halves * 19 / 10)) ] && [ "$halves" -gt 0 ]
report "equal shards of two ranks halve the state that is planned" $?

# Shards that fit: one of two ranks has no room for an equal shard, so the other keeps more than half. Both
# are within their limits, and to the bit as without shards.
fitted=("${model[@]:0:6}" --cluster "$weakest + $weakest batch=2" --steps 3)
train 0 plain "${fitted[@]}"
run 0 replay "${model[@]:0:6}" --cluster "2*t4@2 net=10Gbit/s,5us" --predict --json
state=$(field optimizer out)
least=$(($(field allocated_bytes plain.json | sort -n | head -n 1) - state * 4 / 5))
train 1 none "${fitted[@]}" --memory "1GiB,${least}B"
report "a rank without room for all of the state is refused" $?
train 1 none "${fitted[@]}" --memory "1GiB,${least}B" --zero 1
report "and with equal shards" $?
train 0 fits "${fitted[@]}" --memory "1GiB,${least}B" --zero 1 --shards fit && same_training plain fits &&
    as_planned fits && [ "$(field allocated_bytes fits.json | tail -n 1)" -le "$least" ] &&
    [ "$(field allocated_bytes fits.json | tail -n 1)" -gt $((least - state / 50 - 2000)) ]
report "shards that fit train it within its limit, to the bit" $?
train 1 none "${fitted[@]}" --memory "${least}B,${least}B" --zero 1 --shards fit
grep -q "of which .* have no room within the memory limits of all 2 ranks" err
report "what fits nowhere is said with what lacks" $?
train 0 fits "${fitted[@]}" --memory 1GiB --zero 1 --shards fit && train 0 even "${fitted[@]}" --zero 1 &&
    [ "$(field allocated_bytes fits.json)" = "$(field allocated_bytes even.json)" ]
report "equal shards are kept where they fit" $?

# What equal shards fit into, to the byte, "fit" takes, too.
exact=$(field allocated_bytes even.json | sort -n | tail -n 1)
train 0 fits "${fitted[@]}" --memory "${exact}B" --zero 1 --shards fit && cmp -s fits.weights even.weights
report "limits that equal shards just meet are met" $?

# What a reduce-scatter and an all-gather take is measured with --zero.
small=(--model mlp:width=24,depth=3 --batch 4 --cluster "2*$weakest" --db halves.db)
run 0 profile -q "${small[@]}" && run 0 replay "${small[@]}" --zero 1 --json &&
    field all_gather_ns out >before
run 0 profile -q "${small[@]}" --zero 1 --json && run 0 replay "${small[@]}" --zero 1 --json
[ "$(field all_gather_ns out)" != "$(cat before)" ] && [ "$(field reduce_scatter_ns out)" -gt 0 ]
report "profile --zero measures the halves of an all-reduce" $?
run 0 profile "${small[@]}" --zero 1 && grep -Eq "all-reduce +0 sizes" out
report "and does not measure them again" $?

# A checkpoint has no layout: a run goes on in any other one, to the bit.
adamw=(--model vit_tiny:width=16,heads=2,depth=1,patch=14 --batch 4 --bucket 3000B --clip 0.5)
two="$weakest + $weakest batch=2"
train 0 whole "${adamw[@]}" --cluster "$two" --steps 6
train 0 first "${adamw[@]}" --cluster "$two" --steps 3 --zero 1 --shards 1,3 --checkpoint a.ckpt
report "a run with shards writes a checkpoint" $?
train 0 plain "${adamw[@]}" --cluster "$two" --steps 3 --checkpoint b.ckpt && cmp -s a.ckpt b.ckpt
report "a checkpoint has the bytes of the run without shards" $?
for layout in "" "--zero 1" "--zero 1 --shards 0,1"; do
    # shellcheck disable=SC2086
    train 0 rest "${adamw[@]}" --cluster "$two" --steps 6 --resume a.ckpt $layout &&
        cmp -s rest.weights whole.weights
    report "a run goes on from it with '${layout:-all of the state}', to the bit" $?
done
run 3 train -q "${adamw[@]}" --cluster "$two" --steps 6 --resume whole.weights --zero 1
report "what is no checkpoint is refused with shards, too" $?

# --- What is refused ---
refused() { # NAME WORDS OPTION…
    local name=$1 words=$2
    shift 2
    run 2 train -q "${model[@]}" --steps 2 "$@" && grep -q -- "$words" err
    report "refused: $name" $?
}
refused "stages that training does not have" "shards the optimizer's state" --cluster "2*$weakest" --zero 3
refused "shards without a stage" "Give --zero 1" --cluster "2*$weakest" --shards even
for shards in 1 1,2,3 1,x 1,-1 "1, 2" 0,0 1048577,1 ""; do
    refused "shards '$shards'" "not all 0" --cluster "$two" --zero 1 --shards "$shards"
done
refused "sensitivities that are estimated again" "do not go together" --cluster "2*$weakest" --zero 1 \
    --data "$images" --reestimate --max-sensitivity 1%
run 0 train -q "${model[@]}" --device "$weakest" --steps 2 --zero 1
report "one rank has all of the state" $?
run 1 train -q "${model[@]}" --cluster "$two" --steps 40 --lr 1e30 --zero 1 --shards 1,3 &&
    grep -q "training has diverged" err
report "a gradient that is not finite ends all ranks" $?

# --- A rank that stops ---
timeout 60 "$tandem" train -q "${model[@]}" --cluster "2*$weakest" --steps 100000000 --timeout 2s --zero 1 \
    >out 2>err &
launcher=$!
for ((k = 0; k < 100; k++)); do
    stopped=$(pgrep -P "$(pgrep -P $launcher tandem 2>/dev/null || echo 0)" | head -n 1)
    [ -z "$stopped" ] || break
    sleep 0.1
done
sleep 1
kill -STOP "$stopped"
wait $launcher
code=$?
[ $code = 6 ] && ! kill -0 "$stopped" 2>/dev/null
report "a stopped rank is silent: the run ends with 6, and so does the rank" $?
echo "1..$n"
[ $failed = 0 ]
