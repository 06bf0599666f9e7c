#!/bin/sh
# Certified gaps, policies beside each other, and the least training time: bench/allocate.sh [STORE] > table.
# The first table has the goal that is the default, in percent of samples: by a probe of each model during 10
# steps of training. The two others rank by statistics (method fisher).
# Makes the statistics it lacks, on this machine's strongest device; times are predicted from the cards'
# descriptions, so the tables need no card. Every row is kept in STORE.rows: stopped in any way, the same
# command goes on. LIMIT=seconds: ends after the row in which so much time has passed, with exit code 3.
# BEFORE=program: a tandem to compare with, in turns; adds the column "seconds before".
# MODELS="mlp@16 …": those of the tables.
set -eu
db=${1:-allocate.db}
tandem=${TANDEM:-build/tandem}
text=${TEXT:-/usr/share/common-licenses/GPL-3}
two="8*v100@8 + 8*t4@8 net=100Gbit/s,5us"
four="4*a100@4 + 4*v100@4 + 4*l4@4 + 4*t4@4 net=100Gbit/s,5us"
models="mlp@16 resnet20@16 vit_tiny@16 gpt_tiny@16 resnet18@32 resnet50@32 vgg16_bn@32"
models="$models vit_b16@32 bert_base:seq=128@16 gpt2_small:seq=256@8"
models=${MODELS-$models}
rows=$db.rows
began=$(date +%s)
mkdir -p "$rows"

data_of() { case $1 in gpt* | bert*) echo "$text" ;; *) echo fashion-mnist ;; esac }
plan() { # model batch cluster options…
    model=$1 batch=$2 cluster=$3
    shift 3
    "$tandem" allocate -q --json --db "$db" --model "$model" --batch "$batch" --predict --cluster \
        "$cluster" "$@"
}
ranked() { plan "$@" --sensitivity fisher; }
field() { sed -n "s/^  \"$1\": \"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}\$/\\1/p"; }
two_digits() { awk '{ printf "%.2g", $1 }'; }
# row NAME COMMAND…: prints the row, which the command makes unless it is there.
row() {
    name=$1
    shift
    if [ ! -s "$rows/$name" ]; then
        "$@" > "$rows/.made"
        mv "$rows/.made" "$rows/$name"
        [ -z "${LIMIT:-}" ] || [ $(($(date +%s) - began)) -lt "$LIMIT" ] || exit 3
    fi
    cat "$rows/$name"
}
statistics() { # model
    plan "$1" 1 t4 --sensitivity fisher --policy uniform --uniform fp32 > /dev/null 2>&1 ||
        "$tandem" sensitivity -q --db "$db" --model "$1" --batch 1 --steps 3 --by statistics \
            --data "$(data_of "$1")" > /dev/null
    echo "done"
}
estimate() { # model
    plan "$1" 1 t4 --sensitivity sampled > /dev/null 2>&1 ||
        "$tandem" sensitivity -q --db "$db" --model "$1" --batch 2 --steps 10 --data "$(data_of "$1")" \
            > /dev/null
    echo "done"
}
seconds_of() { # program model batch cluster slowdown
    "$1" allocate -q --json --db "$db" --model "$2" --batch "$3" --predict --cluster "$4" --policy exact \
        --sensitivity fisher --slowdown "$5" | field seconds
}
least() { sort -g | head -n 1 | awk '{ printf "%.3f", $1 }'; }

for case in $models; do row "statistics ${case%@*}" statistics "${case%@*}" > /dev/null; done
for case in $models; do row "estimate ${case%@*}" estimate "${case%@*}" > /dev/null; done

training_row() { # model batch classes cluster
    plan "$1" "$2" "$4" --sensitivity sampled --minimize training-time > "$rows/.plan"
    python3 - "$1" "$2" "$3" "$rows/.plan" <<'END'
import json, sys
model, batch, classes, path = sys.argv[1:]
plan = json.load(open(path))
def time(p):
    return p["step_ns"] * (1 + p["sensitivity_bound"] / 100)
uniform = min((b for b in plan["baselines"] if b["fits"]), key=time)
gap = 1 - plan["training_bound_ns"] / plan["training_ns"]
ratio = time(plan) / time(uniform)
print(f'| {model} | {batch} | {classes} | {plan["step_ns"] / 1e6:.2f} | {plan["training_ns"] / 1e6:.2f} '
      f'| {gap:.2%} | {uniform["name"]} | {time(uniform) / 1e6:.2f} | {ratio:.4f} | '
      f'{"yes" if ratio <= 1 + 1e-9 and gap <= 0.01 else "NO"} | {plan["seconds"]:.1f} |')
END
}
echo "## The least step x (1 + sensitivity), method sampled, beside the best uniform plan"
echo
echo "| model | batch | classes | step (ms) | step x (1 + s) (ms) | gap | best uniform" \
    "| its step x (1 + s) (ms) | ours / its | met | seconds |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
for case in $models; do
    for classes in 2 4; do
        cluster=$two
        [ $classes = 2 ] || cluster=$four
        row "training $case $classes" training_row "${case%@*}" "${case##*@}" $classes "$cluster"
    done
done

gap_row() { # model batch classes cluster slowdown
    exact=$(ranked "$1" "$2" "$4" --policy exact --slowdown "$5")
    greedy=$(ranked "$1" "$2" "$4" --policy greedy --slowdown "$5" | field sensitivity_bound)
    bound=$(echo "$exact" | field lower_bound)
    now=$(echo "$exact" | field seconds) before=
    if [ -n "${BEFORE:-}" ]; then
        for _ in 1 2 3; do
            before="$before $(seconds_of "$BEFORE" "$1" "$2" "$4" "$5")"
            now="$now $(seconds_of "$tandem" "$1" "$2" "$4" "$5")"
        done
    fi
    echo "| $1 | $2 | $3 | $5 | $(echo "$exact" | field step_ns | awk '{ printf "%.2f", $1 / 1e6 }')" \
        "| $(echo "$exact" | field sensitivity_bound | two_digits) | $(echo "$exact" | field gap |
            awk '{ printf "%.4f%%", 100 * $1 }')" \
        "| $(echo "$exact" | field proof) | $(echo "$now" | tr ' ' '\n' | grep . | least)" \
        "|${BEFORE:+ $(echo "$before" | tr ' ' '\n' | grep . | least) |}" \
        "$(echo "$greedy $bound" | awk '{ if ($2 > 0) printf "%.4f", $1 / $2; else print "1" }') |"
}
echo
echo "## Gap that is left, policy exact"
echo
echo "| model | batch | classes | slowdown | step (ms) | sensitivity |" \
    "gap | proof | seconds |${BEFORE:+ seconds before |} greedy / bound |"
echo "|---|---|---|---|---|---|---|---|---|---|${BEFORE:+---|}"
for case in $models; do
    for slowdown in 1% 5% 20%; do
        row "gap $case 2 $slowdown" gap_row "${case%@*}" "${case##*@}" 2 "$two" $slowdown
    done
    for slowdown in 1% 5% 20%; do
        row "gap $case 4 $slowdown" gap_row "${case%@*}" "${case##*@}" 4 "$four" $slowdown
    done
done

qsync_row() { # model batch slowdown
    exact=$(ranked "$1" "$2" "$two" --policy exact --slowdown "$3")
    target=$(echo "$exact" | field target_ns)ns
    ours=$(echo "$exact" | field sensitivity_bound)
    qsync=$(ranked "$1" "$2" "$two" --policy qsync --max-step "$target" | field sensitivity_bound)
    greedy=$(ranked "$1" "$2" "$two" --policy greedy --max-step "$target" | field sensitivity_bound)
    echo "| $1 | $2 | $3 | $(echo "$qsync" | two_digits) | $(echo "$greedy" | two_digits)" \
        "| $(echo "$ours" | two_digits) | $(echo "$qsync $ours" |
            awk '{ if ($2 > 0) printf "%.2f", $1 / $2; else print($1 > 0 ? "inf" : "1") }') |"
}
echo
echo "## Beside the published procedure: sensitivity of policy qsync over that of ours, at the same target"
echo
echo "| model | batch | slowdown | qsync | greedy | exact | qsync / exact |"
echo "|---|---|---|---|---|---|---|"
for case in $models; do
    for slowdown in 1% 5% 20%; do
        row "qsync $case $slowdown" qsync_row "${case%@*}" "${case##*@}" $slowdown
    done
done
