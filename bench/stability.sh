#!/bin/bash
# Plans that `tandem sensitivity` does not trust, beside trainings. For each model and plan: the estimate of
# the plan as a whole at 50 and 95 % of a training, and a trial of the same training: pairs of branches in
# fp32 and under the plan. Limits of trust were chosen on the models named "fitted", and judge the others.
# Prints a line a plan. Exit code 1 where a plan that diverges or needs more than 100 % more samples is
# trusted, or one is refused that needs less than 5 %. A trial whose interval holds both decides nothing.
# Formats are emulated. Needs `make`, fashion-mnist, bible-kjv-text and wordnet-base; about an hour.
#   bench/stability.sh [ROWS]   ROWS [stability.tsv] gets a line a plan; the next run with the same file goes
#                               on after the last one
#   PAIRS [4], DEVICE [strongest]: environment
set -eu
tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
rows=$(realpath -m "${1:-stability.tsv}") pairs=${PAIRS:-4} device=${DEVICE:-strongest}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

# The list is fixed: its hash is printed with the result. STEPS is the training's length.
models="
fitted mlp:width=64,depth=3 fashion-mnist 1500
fitted vit_tiny:width=16,heads=2,depth=2,patch=7 fashion-mnist 1500
judged gpt_tiny:width=32,heads=2,depth=2,length=32 bible-kjv-text 1500
judged bert_base:head=class,classes=45,layers=2,width=32,heads=2,seq=32 wordnet-base 1000
judged resnet20:width=4 fashion-mnist 400"
# a precision, and the format in the place of its eight bits; s8 and fp8: its own
plans="int8:s8 int8_full:s8 fp8:fp8 int8:s4 int8_full:s4 int8:e2m1 int8_full:e2m1"

is_done() { # MODEL PLAN
    awk -F'\t' -v k="$1 $2" '$2 " " $3 == k { found = 1 } END { exit !found }' "$rows"
}
run_plan() { # USE MODEL DATA STEPS PLAN
    is_done "$2" "$5" && return 0
    local of=(-q --json --model "$2" --data "$3" --device "$device" --batch 32 --steps "$4")
    of+=(--uniform "${5%:*}")
    case $5 in
    *:s8) ;;
    *:fp8) of+=(--emulate) ;;
    *:e2m1) of+=(--emulate=mxfp4) ;; # the list names it by its numbers
    *) of+=("--emulate=${5#*:}") ;;
    esac
    "$tandem" sensitivity "${of[@]}" --at 50%,95% >estimate.json
    "$tandem" compare --measure-loss "${of[@]}" --repetitions "$pairs" --eval 500 --db trials.db >trial.json
    jq -r -n --arg use "$1" --arg model "$2" --arg plan "$5" --slurpfile e estimate.json \
        --slurpfile t trial.json \
        '[$use, $model, $plan, $e[0].extra_samples, $e[0].stability, $e[0].loss_rise, $e[0].mean_error,
          $e[0].is_beyond_limits, $t[0].extra_samples.mean, $t[0].extra_samples.low,
          $t[0].extra_samples.high, $t[0].training.mean, $t[0].base_loss, $t[0].diverged]
         | map(. // "-") | @tsv' >>"$rows"
}
touch "$rows"
cd "$work"
while read -r use model data steps; do
    [ -n "$use" ] || continue
    for plan in $plans; do run_plan "$use" "$model" "$data" "$steps" "$plan"; done
done <<<"$models"

echo "list $(echo "$models $plans" | sha256sum | cut -c 1-12), $device, $pairs pairs, batch 32; samples in %:"
awk -F'\t' '
    function percent(share) { return share == "-" ? "-" : sprintf("%.0f", 100 * share) }
    {
        needs = percent($9) " (" percent($10) " to " percent($11) ")"
        if ($9 == "-") needs = "more"
        if ($14 > 0) needs = "diverges"
        decides = $14 > 0 || $9 == "-" || $10 > 0.05 || $11 < 1
        harmful = $14 > 0 || $9 == "-" || ($9 > 1 && decides)
        cheap = !harmful && $9 < 0.05 && decides
        is_refused = $8 == "true"
        judgement = is_refused ? "refused" : decides ? "" : "trial decides nothing"
        if (harmful && !is_refused) judgement = "trusted, wrongly"
        if (cheap && is_refused) judgement = "refused, wrongly"
        if (NR == 1) printf "%-7s %-62s %-14s %9s %10s %9s  %-18s %s\n", "", "model", "plan", "estimate",
            "stability", "loss", "measured", ""
        printf "%-7s %-62s %-14s %9.3g %10.2f %+9.3f  %-18s %s\n", $1, $2, $3, $4, $5, $6, needs, judgement
        n_harmful[$1] += harmful; n_cheap[$1] += cheap
        n_wrong[$1] += (harmful && !is_refused) || (cheap && is_refused)
        n_refused[$1] += harmful && is_refused; n_trusted[$1] += cheap && !is_refused
        if ($9 != "-" && $10 > 0 && $14 == 0) { # measured by estimated, of what is surely above nothing
            x = log($9 / ($4 / 100)); n_plan[$2]++; sum[$2] += x; square[$2] += x * x
        }
    }
    END {
        for (use in n_wrong)
            printf "%s: %d of %d that diverge or need more than 100 %% are refused; %d of %d that need " \
                "less than 5 %% are trusted\n", use, n_refused[use], n_harmful[use], n_trusted[use],
                n_cheap[use]
        for (model in n_plan) {
            n_model++; n += n_plan[model]; between += (sum[model] / n_plan[model])^2
            within += square[model] - sum[model]^2 / n_plan[model]
        }
        if (n > n_model)
            printf "measured by estimated, in logarithms: %.2f over %d models, %.2f within them, " \
                "of %d plans\n", sqrt(between / n_model), n_model, sqrt(within / (n - n_model)), n
        exit n_wrong["judged"] + n_wrong["fitted"] > 0
    }' "$rows"
