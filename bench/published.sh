#!/bin/bash
# Training steps that were published, beside what `tandem replay --predict` says of them from a card's
# description alone, or with FROM= also from what others measured, with its 80 % interval. The error is that
# of the step's time; what is published also holds the input pipeline and the host. Cards of a machine are
# joined by NVLink, 150 GB/s each way from a V100 and 300 from an A100 (NVIDIA, DGX-1 with Tesla V100 System
# Architecture; A100 Tensor Core GPU Architecture); mixed precision is fp16. Each row says whose kernels its
# step ran (docs/costs.md). A row that names no model, device, precision, kernels or source stops it.
# usage: bench/published.sh [FILE (bench/published.csv) [KERNELS]]   KERNELS: of every row
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
tandem=${TANDEM_BUILD:-$here/build}/tandem
table=${1:-$here/bench/published.csv}
heading=model,options,device,cards,precision,batch,accumulate,kernels,samples_per_s,document,url
line=1
refuse() { # WHY
    echo "$table, line $line: $1" >&2
    exit 3
}
link_of() { # DEVICE
    case $1 in
    v100) echo 150GB/s,1us ;;
    a100) echo 300GB/s,1us ;;
    *) refuse "no link is known between cards '$1'" ;;
    esac
}
# step_ns MODEL DEVICE CARDS PRECISION BATCH ACCUMULATE KERNELS; the limit of memory is that of the largest
# card of a name
predict() {
    local link=''
    [ "$3" = 1 ] || link=" link=$(link_of "$2")" || exit
    # shellcheck disable=SC2086 # none or one option
    "$tandem" replay --json --predict ${FROM---from-description} --model "$1" --cluster "$3*$2@$3$link" \
        --uniform "$4" --batch "$5" --accumulate "$6" --kernels "$7" \
        --memory 80GiB --loss-scale dynamic 2>&1 |
            sed -n 's/^ *"step_ns": \([0-9]*\),*$/step \1/p; s/^tandem: //p
                    s/^ *"form_interval_80": \([0-9.e-]*\),*$/half \1/p'
}

rows=$(mktemp) && trap 'rm -f "$rows"' EXIT
{
    IFS= read -r first
    [ "$first" = "$heading" ] || refuse "expected the heading $heading"
    while IFS=, read -r model options device cards precision batch accumulate kernels rate document url \
        more; do
        line=$((line + 1))
        [[ -z $more && -n $document && $url = https://*/* ]] ||
            refuse "expected a document and its https address at the end"
        [[ $rate =~ ^[0-9]+(\.[0-9]+)?$ ]] || refuse "samples_per_s must be a number, got '$rate'"
        answer=$(predict "$model${options:+:${options// /,}}" "$device" "$cards" "$precision" "$batch" \
            "$accumulate" "${2:-$kernels}") || exit
        step=$(sed -n 's/^step //p' <<<"$answer" | head -n 1)
        half=$(sed -n 's/^half //p' <<<"$answer" | head -n 1)
        [[ $step =~ ^[1-9][0-9]*$ && -n $half ]] || refuse "${answer%%$'\n'*}"
        printf '%s|' "$model" "$options" "$device" "$cards" "$precision" "$batch" "$accumulate" "$rate" \
            "$step" "$half" "${2:-$kernels}" >>"$rows"
        echo "${document#*: }" >>"$rows"
    done
} <"$table" || exit
[ "$line" -gt 1 ] || refuse "expected a row"

awk -F '|' '
    BEGIN { printf "%-18s %-4s %5s %-9s %6s %-12s  %11s %11s %7s  %-9s %s\n", "model", "card", "cards",
                 "precision", "batch", "kernels", "published", "predicted", "error", "80% in", "source" }
    {
        published = 1000 * $4 * $6 * $7 / $8; predicted = $9 / 1e6; error = 100 * (predicted / published - 1)
        name = $1; if (match($2, /seq=[0-9]+/)) name = "bert_large " substr($2, RSTART, RLENGTH)
        batch = $6; if ($7 > 1) batch = $6 "x" $7
        is_inside = published >= predicted * (1 - $10) && published <= predicted * (1 + $10)
        inside += is_inside
        printf "%-18s %-4s %5d %-9s %6s %-12s  %8.1f ms %8.1f ms %+6.1f%%  %4.0f%% %-3s %s\n",
               name, $3, $4, $5, batch, $11, published, predicted, error, 100 * $10, is_inside ? "in" : "out",
               $12
        size = error < 0 ? -error : error; sum += size; if (size > worst) worst = size
        if (least == "" || size < least) least = size
        group = sprintf("%-18s %-4s %-9s", name, $3, $5)
        if (!(group in n_of)) order[++n_group] = group
        n_of[group]++; sum_of[group] += size; inside_of[group] += is_inside
        if (size > worst_of[group]) worst_of[group] = size
    }
    END { printf "\n%-18s %-4s %-9s %6s %8s %7s %7s\n", "model", "card", "precision", "steps", "average",
                 "worst", "inside"
          for (i = 1; i <= n_group; i++) {
              group = order[i]
              printf "%s %6d %7.1f%% %6.1f%% %7d\n", group, n_of[group], sum_of[group] / n_of[group],
                     worst_of[group], inside_of[group]
          }
          printf "%d steps: error %.1f%% on average, %.1f%% at best, %.1f%% at worst; %d inside\n",
               NR, sum / NR, least, worst, inside }' "$rows"
