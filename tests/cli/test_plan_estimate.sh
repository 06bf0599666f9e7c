#!/bin/bash
# `tandem sensitivity --plan`: a plan as a whole. It is what `--by samples` says where the plan rounds one
# operator; classes count by their samples; formats that are not to be trusted; what is refused. Speaks TAP.
# TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
find_devices
if [ -z "$strongest" ]; then
    echo "1..0 # SKIP this machine has no CPU device"
    exit 0
fi
common=(--data data --steps 20 --at "50%,90%" --seed 3)
whole() { run "$1" sensitivity -q "${common[@]}" "${@:2}"; }
# plan CLASSES FIRST SECOND: mlp:width=16 on so many classes of 4 samples, with fc2 in these precisions and
# all else in fp32, as plan.json
plan() {
    awk -v classes="$1" -v first="$2" -v second="$3" '
        /"precision": "/ || /"(fc1|fc2|head)": "/ { sub(/: "[a-z0-9_]*"/, ": \"fp32\"") }
        /"device": / { c++ }
        /"fc2": / { sub(/fp32/, c == 1 ? first : second) }
        classes == 1 && /^    },$/ { print "    }"; is_cut = 1; next }
        is_cut && /^  \]/ { is_cut = 0 }
        !is_cut' "$here/fixtures/plan.json" >plan.json
}
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !((d < 0 ? -d : d) <= 1e-7 * (b < 0 ? -b : b)) }'; }

whole 0 --model mlp:width=16 --batch 4 --repetitions 8 --by samples --db s.db --json &&
    sed -n '/"operator": "fc2"/,/}/p' out | grep -A 8 '"precision": "int8_full"' >of_operator
for member in noise bias; do sed -n "s/^ *\"$member\": \([^,]*\).*/\1/p" of_operator; done >expected
plan 1 int8_full -
whole 0 --plan plan.json --repetitions 8 --json && cp out alone &&
    { field noise out && field bias out; } >got
[ "$(wc -l <expected)" = 2 ] && cmp expected got && [ "$(field batch out)" = 4 ]
report "a plan that rounds one operator: noise and bias as --by samples says of it" $?

# mlp trains by SGD at 0.05 with a momentum of 0.9.
same_but_command() { diff <(grep -v '"command"' "$1") <(grep -v '"command"' "$2") >>err; }
whole 0 --plan plan.json --repetitions 8 --json --lr 0.05 --momentum 0.9 && same_but_command alone out &&
    whole 0 --plan plan.json --repetitions 8 --json --lr 0.01 --schedule cosine --warmup 5 &&
    ! same_but_command alone out && [ "$(field fp32_loss alone)" != "$(field fp32_loss out)" ] &&
    whole 2 --plan plan.json --schedule sine && grep -q "no schedule 'sine'" err &&
    whole 2 --plan plan.json --betas 0.9,0.99 && grep -q -- '--betas' err &&
    samples=(sensitivity -q "${common[@]}" --model mlp:width=16 --batch 4 --by samples --db s.db --json) &&
    run 0 "${samples[@]}" && cp out usual && run 0 "${samples[@]}" --lr 0.2 --warmup 15 &&
    ! same_but_command usual out
report "an estimate is of the training that --lr and the like describe" $?

plan 2 int8_full int8_full
whole 0 --plan plan.json --repetitions 8 --json && cp out both
plan 2 fp32 int8_full
whole 0 --plan plan.json --repetitions 8 --json &&
    for member in noise bias mean_error loss_rise; do
        near "$(field $member both)" "$(awk -v x="$(field $member out)" 'BEGIN { printf "%.17g", 2 * x }')" ||
            break
    done && [ "$member" = loss_rise ] && near "$(field loss_rise both)" "$(field loss_rise alone)" &&
    near "$(field mean_error both)" "$(field mean_error alone)" && [ "$(field batch both)" = 8 ]
report "a class counts by its part of the samples" $?

small="resnet20:blocks=1,width=8"
whole 0 --model "$small" --uniform int8_full --emulate=mxfp4 --batch 16 --json &&
    [ "$(field is_biased out)" = true ] && awk -v e="$(field mean_error out)" \
    -v l="$(field loss_rise out)" -v h="$(field loss_rise_half out)" 'BEGIN { exit !(e > 10 && l > h) }' &&
    whole 0 --model "$small" --uniform int8_full --emulate=mxfp4 --batch 16 &&
    grep -q "^not trusted    the mean of the gradient is off by more than 57%, and" out &&
    whole 0 --model "$small" --uniform int8_full --emulate=mxfp6_e3m2 --batch 16 &&
    grep -q "^caution        the mean of the gradient is off by more than 10%, and" out &&
    whole 0 --model mlp:width=16,depth=8 --uniform int8_full --emulate=s4 --batch 16 --json &&
    [ "$(field is_beyond_limits out)" = true ] &&
    whole 0 --model "$small" --uniform bf16 --batch 16 && ! grep -q "^not trusted" out &&
    grep -Eq "^stability      [0-9.]+:" out
report "four bits without blocks are not to be trusted in a deep mlp, bf16 is" $?

# Formats in blocks round what int8, or fp8, casts; the answer says that they are emulated, and which.
touch seen
for pair in nvfp4:int8 nvfp4_sr:int8_full mxfp4:int8 mxfp6_e2m3:int8 mxfp6_e3m2:int8 \
    mxfp8_e4m3,mxfp8_e5m2:fp8 e4m3_128,e5m2_128:fp8; do
    whole 0 --model mlp:width=16 --uniform "${pair#*:}" --emulate="${pair%:*}" --batch 16 --json &&
        [ "$(field formats out)" = "\"${pair%:*}\"" ] && [ "$(field emulated_on out)" != null ] &&
        ! grep -Fqx "$(field noise out)" seen && field noise out >>seen
done
[ "$(wc -l <seen)" = 7 ] && whole 2 --model mlp --uniform int8 --emulate=nvfp5 && grep -q "'nvfp4'?" err
report "formats in blocks are estimated, each with a noise of its own" $?

# Each recipe has an estimate of its own, with the count of what it does.
: >seen
for recipe in nvfp4_recipe nvfp4_without_sr nvfp4_without_hadamard nvfp4_without_2d; do
    run 0 sensitivity "${common[@]}" --model mlp:width=16 --uniform int8_full --emulate=$recipe --batch 16 \
        --json && grep -q "$recipe: operators that round each operand: 2;" err &&
        [ "$(field formats out)" = "\"$recipe\"" ] && field extra_samples out >>seen
done
[ "$(sort -u seen | grep -c '^[0-9]')" = 4 ]
report "recipes are estimated, each in its own way" $?

# The plan's own loss scale counts: with a tiny one gradients in f16 vanish. Emulated formats to nearest draw
# no weights, so that their noise falls with the ranks.
plan 1 fp16 -
sed -i -e 's/cpu:avx2/t4/' -e 's/"net": null,/&\n  "loss_scale": "1",/' plan.json
whole 0 --plan plan.json --json && cp out one &&
    sed -i 's/"loss_scale": "1"/"loss_scale": "1e-8"/' plan.json && whole 0 --plan plan.json &&
    grep -q "^not trusted    gradients vanish" out &&
    [ "$(field is_beyond_limits one)" = false ]
report "the loss scale of the plan" $?
plan 1 int8_full -
whole 0 --plan plan.json --emulate=mxfp4 --json && cp out one &&
    sed -i 's/"ranks": 1,/"ranks": 256,/' plan.json && whole 0 --plan plan.json --emulate=mxfp4 --json &&
    [ "$(field formats out)" = '"mxfp4"' ] && awk -v one="$(field noise one)" \
    -v many="$(field noise out)" 'BEGIN { exit !(many > 0 && many < one / 2) }'
report "noise of a format to nearest falls with the samples of a step" $?

# With this loss scale gradients in f16 vanish, on any machine.
ask() { # CODE ARGUMENT…
    run "$1" allocate -q --model mlp:width=16 --batch 16 --cluster t4 --predict --from-description \
        --data data --db a.db "${@:2}"
}
lost=(--policy uniform --uniform fp16 --loss-scale 1e-9)
run 0 sensitivity -q --model mlp:width=16 --batch 16 --data data --db a.db && ask 1 "${lost[@]}" -o p.json &&
    grep -q "^tandem: as a whole the plan is not to be trusted: .*gradients that vanish" err &&
    grep -q "estimate has most for '[a-z0-9]*' in fp16 (.*%)" err &&
    grep -q -- "--beyond-limits takes it" err && [ ! -e p.json ] &&
    ask 0 "${lost[@]}" -o p.json --beyond-limits --json && [ -s p.json ] &&
    [ "$(sed -n '/"as_a_whole": {/,/}/p' out | field is_beyond_limits -)" = true ] &&
    ask 0 "${lost[@]}" --beyond-limits && grep -q "^as a whole .* stability 0[.]" out &&
    grep -q "^not trusted" out
report "allocate refuses a plan that is not to be trusted, and names operators" $?
ask 0 && grep -Eq "^as a whole     [0-9.]+% .* more samples; loss" out &&
    run 2 allocate --model mlp --cluster l4 \
    --beyond-limits && run 2 allocate --model mlp --cluster l4 --data data --pareto &&
    run 2 allocate --model mlp --cluster l4 --data data --batch auto --global-batch 64
report "the default plan is to be trusted; what contradicts --data" $?

plan 2 fp32 fp32
whole 2 --plan plan.json && grep -q "rounds nothing: all its operators are in fp32" err &&
    whole 2 --model mlp --emulate=mxfp4 && grep -q -- "--emulate needs a plan" err &&
    whole 2 --model mlp --uniform int8 --db s.db && grep -q -- "--db and --uniform contradict" err &&
    whole 2 --model mlp --uniform int8 --by samples && grep -q -- "--by and --uniform contradict" err &&
    whole 2 --model mlp --uniform int8 --repetitions 2 && whole 2 --model mlp --uniform int8 --at 9,3 &&
    whole 2 --model mlp --uniform int8 --emulate=e9m9 &&
    run 2 sensitivity --model mlp --uniform int8 && grep -q "no data given" err &&
    whole 5 --plan missing.json
report "what is refused" $?
left_over
report "nothing is left over" $(($? == 0))
echo "1..$n"
[ $failed = 0 ]
