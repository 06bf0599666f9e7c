#!/bin/bash
# Plans that `tandem sensitivity` does not trust, beside trainings. For each model and plan: the estimate of
# the plan as a whole at 50 and 95 % of a training, and a trial of the same training: pairs of branches in
# fp32 and under the plan. Limits of trust were chosen on the models named "fitted", and judge the others.
# Prints a line a plan. Exit code 1 where a plan that diverges or needs more than 100 % more samples is
# trusted, or one is refused that needs less than 5 %. A trial whose interval holds both decides nothing.
# Formats are emulated. Needs `make`, fashion-mnist, bible-kjv-text and wordnet-base; about an hour.
#   bench/stability.sh [ROWS]   ROWS [stability.tsv] gets a line a plan; the next run with the same file goes
#                               on after the last one
#   USES [fitted judged], or new, or last: lists of their own; PAIRS [4], DEVICE [strongest]: environment
set -eu
bench=$(cd "$(dirname "$0")" && pwd) tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
rows=$(realpath -m "${1:-stability.tsv}") pairs=${PAIRS:-4} device=${DEVICE:-strongest}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

# The list is fixed: its hash is printed with the result. STEPS is the training's length. A start: fresh
# weights; or those after 1000 steps with outliers, channels that norms scale up and what reads them scales
# down (outliers.py): in fp32 the same function. A plan: a precision, the format in the place of its eight
# bits, or its own; and the operators that have it, or all.
vit=vit_tiny:width=16,heads=2,depth=2,patch=7
gpt=gpt_tiny:width=32,heads=2,depth=2,length=32
bert=bert_base:head=class,classes=45,layers=2,width=32,heads=2,seq=32
other_vit=vit_tiny:width=24,heads=3,depth=3,patch=7
eight="int8:s8 int8_full:s8 fp8:own"
four="int8:s4 int8_full:s4 int8:e2m1 int8_full:e2m1"
some="nvfp4:own:fc2 nvfp4:own:out nvfp4:own:block1"
models="
fitted mlp:width=64,depth=3 fashion-mnist 1500 fresh $eight $four
fitted $vit fashion-mnist 1500 fresh $eight $four
judged $gpt bible-kjv-text 1000 fresh $eight $four mxfp8:own nvfp4:own $some
judged $gpt bible-kjv-text 600 outliers int8:s8 int8_full:s8 fp8:own
judged $bert wordnet-base 800 fresh $eight $four mxfp8:own nvfp4:own nvfp4:own:block0
judged resnet20:width=4 fashion-mnist 400 fresh $eight $four int8_full:e2m1:stage3
judged $other_vit fashion-mnist 1000 fresh int8_full:s8 int8_full:s4 mxfp8:own nvfp4:own nvfp4:own:fc2
judged $other_vit fashion-mnist 600 outliers int8:s8 int8_full:s8"
# With these, the deviations of predictor/correction.c are judged. They were fixed after all above had run.
seven="int8_full:s8 int8_full:s4 int8:e2m1 int8_full:e2m1 fp8:own mxfp8:own nvfp4:own"
[ "${USES:-}" != new ] || models="
new gpt_tiny:width=48,heads=4,depth=1,length=24 bible-kjv-text 1000 fresh $seven
new bert_base:head=class,classes=45,layers=1,width=48,heads=3,seq=24 wordnet-base 1000 fresh $seven
new vit_tiny:width=32,heads=4,depth=1,patch=7 fashion-mnist 1000 fresh $seven
new resnet20:width=6,blocks=1,image=14x14x1 fashion-mnist 800 fresh $seven"
# With these, the limit of the mean error is judged, which was chosen on those that are judged and new.
[ "${USES:-}" != last ] || models="
last gpt_tiny:width=24,heads=2,depth=3,length=48 bible-kjv-text 800 fresh $seven
last gpt_tiny:width=64,heads=4,depth=2,length=16 bible-kjv-text 1000 fresh int8:s8 int8:s4 $seven
last bert_base:head=class,classes=45,layers=3,width=24,heads=2,seq=32 wordnet-base 1000 fresh $seven
last resnet20:width=8,blocks=1,image=14x14x1 fashion-mnist 600 fresh int8:s4 $seven
last vit_tiny:width=20,heads=2,depth=2,patch=4,image=20x20x1 fashion-mnist 800 fresh int8:s4 $seven"

is_done() { # MODEL START PLAN
    awk -F'\t' -v k="$1 $2 $3" '$2 " " $3 " " $4 == k { found = 1 } END { exit !found }' "$rows"
}
start_from() { # MODEL DATA START: sets init, the options that begin there
    init=()
    [ "$3" = outliers ] || return 0
    if [ ! -e "$1.outliers" ]; then
        "$tandem" train -q --model "$1" --data "$2" --device "$device" --batch 32 --steps 1000 --eval 0 \
            --export trained.safetensors >/dev/null
        python3 "$bench/outliers.py" trained.safetensors "$1.outliers"
    fi
    init=(--init "$1.outliers")
}
# PLAN MODEL DATA: sets how, the options of the plan. One of few operators is written as `allocate` writes it.
choose_plan() {
    local precision format operators emulation=(--emulate)
    IFS=: read -r precision format operators <<<"$1"
    case $format in
    s8) emulation=() ;;
    own) ;;
    e2m1) emulation=(--emulate=mxfp4) ;; # the list names it by its numbers
    *) emulation=("--emulate=$format") ;;
    esac
    how=(--model "$2" --uniform "$precision" ${emulation[@]+"${emulation[@]}"})
    [ -n "$operators" ] || return 0
    [ -e "$2.db" ] || "$tandem" sensitivity -q --model "$2" --data "$3" --batch 32 --steps 10 --db "$2.db" \
        >/dev/null
    "$tandem" allocate -q --model "$2" --batch 32 --cluster b200 --predict --db "$2.db" --policy uniform \
        --uniform "$precision" -o uniform.json >/dev/null
    jq --arg some "$operators" '.classes[].precision |= with_entries(select(.key | test($some) | not).value =
        "fp32")' uniform.json >plan.json
    how=(--plan plan.json ${emulation[@]+"${emulation[@]}"})
}
run_plan() { # USE MODEL DATA STEPS START PLAN
    is_done "$2" "$5" "$6" && return 0
    local how init
    start_from "$2" "$3" "$5"
    choose_plan "$6" "$2" "$3"
    local of=(-q --json --data "$3" "${how[@]}" --steps "$4" ${init[@]+"${init[@]}"})
    [ "${how[0]}" = --plan ] || of+=(--device "$device" --batch 32)
    "$tandem" sensitivity "${of[@]}" --at 50%,95% >estimate.json
    "$tandem" compare --measure-loss "${of[@]}" --repetitions "$pairs" --eval 500 --db trials.db >trial.json
    jq -r -n --arg use "$1" --arg model "$2" --arg start "$5" --arg plan "$6" --slurpfile e estimate.json \
        --slurpfile t trial.json \
        '[$use, $model, $start, $plan, $e[0].extra_samples, $e[0].stability, $e[0].loss_rise,
          $e[0].mean_error, $e[0].is_beyond_limits, $t[0].extra_samples.mean, $t[0].extra_samples.low,
          $t[0].extra_samples.high, $t[0].training.mean, $t[0].base_loss, $t[0].diverged]
         | map(. // "-") | @tsv' >>"$rows"
}
touch "$rows"
cd "$work"
while read -r use model data steps start plans; do
    [[ " ${USES:-fitted judged} " == *" $use "* ]] || continue
    for plan in $plans; do run_plan "$use" "$model" "$data" "$steps" "$start" "$plan"; done
done <<<"$models"

echo "list $(echo "$models" | sha256sum | cut -c 1-12), $device, $pairs pairs, batch 32; samples in %:"
awk -F'\t' '
    function percent(share) { return share == "-" ? "-" : sprintf("%.0f", 100 * share) }
    {
        needs = percent($10) " (" percent($11) " to " percent($12) ")"
        if ($10 == "-") needs = "more"
        if ($15 > 0) needs = "diverges"
        decides = $15 > 0 || $10 == "-" || $11 > 0.05 || $12 < 1
        harmful = $15 > 0 || $10 == "-" || ($10 > 1 && decides)
        cheap = !harmful && $10 < 0.05 && decides
        is_refused = $9 == "true"
        judgement = is_refused ? "refused" : decides ? "" : "trial decides nothing"
        if (harmful && !is_refused) judgement = "trusted, wrongly"
        if (cheap && is_refused) judgement = "refused, wrongly"
        if (NR == 1) printf "%-7s %-75s %-22s %9s %10s %9s  %-18s %s\n", "", "model", "plan", "estimate",
            "stability", "loss", "measured", ""
        name = $2 ($3 == "fresh" ? "" : ", " $3)
        printf "%-7s %-75s %-22s %9.3g %10.2f %+9.3f  %-18s %s\n", $1, name, $4, $5, $6, $7, needs, judgement
        is_four = $4 ~ /s4|e2m1|nvfp4/
        n_harmful[$1] += harmful; n_cheap[$1] += cheap
        n_eight[$1] += harmful && is_refused && !is_four; n_four[$1] += cheap && !is_refused && is_four
        n_wrong[$1] += (harmful && !is_refused) || (cheap && is_refused)
        n_refused[$1] += harmful && is_refused; n_trusted[$1] += cheap && !is_refused
        if ($10 != "-" && $11 > 0 && $15 == 0) { # measured by estimated, of what is surely above nothing
            x = log($10 / ($5 / 100)); n_plan[$2]++; sum[$2] += x; square[$2] += x * x
        }
    }
    END {
        for (use in n_wrong)
            printf "%s: %d of %d that diverge or need more than 100 %% are refused; %d of %d that need " \
                "less than 5 %% are trusted; %d of the refused have eight bits alone, %d of the " \
                "trusted four\n", use, n_refused[use], n_harmful[use], n_trusted[use], n_cheap[use],
                n_eight[use], n_four[use]
        for (model in n_plan) {
            n_model++; n += n_plan[model]; between += (sum[model] / n_plan[model])^2
            within += square[model] - sum[model]^2 / n_plan[model]
        }
        if (n > n_model)
            printf "measured by estimated, in logarithms: %.2f over %d models, %.2f within them, " \
                "of %d plans\n", sqrt(between / n_model), n_model, sqrt(within / (n - n_model)), n
        exit n_wrong["judged"] + n_wrong["fitted"] + n_wrong["new"] + n_wrong["last"] > 0
    }' "$rows"
