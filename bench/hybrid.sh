#!/bin/bash
# Predicted steps beside measured ones: four models, three pairs of different devices, four plans, and two
# links between the ranks, each of which has a network namespace of its own: a free one, and one whose rate is
# limited by a token bucket (tc). A machine moves by some percent in minutes, so that each case is profiled
# just before its run and once more after it: the prediction is the mean of the two replays. Where they lie
# more than 5 % apart the machine was not the same before and after, and the case is measured again, up to
# three times, small errors too. Prints a table; exits 1 where the errors' mean is over 2 %, one is over 5
# %, or memory was not allocated as predicted. usage: bench/hybrid.sh [ROWS]     as root; needs `make`,
# iproute2, jq, and a quiet machine for some half an hour
#        ROWS [hybrid.tsv] gets a line a case; the next run with the same file goes on after the last one
#        MODELS, PAIRS, LINKS, SECONDS_A_CASE in the environment: fewer
set -eu
tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
rows=$(realpath -m "${1:-hybrid.tsv}")
pairs=${PAIRS:-"strongest,weakest strongest,cpu:avx cpu:avx,weakest"}
links=${LINKS:-"free 400mbit"}
plans=(fp32 lowest allocated mixed)
seconds=${SECONDS_A_CASE:-6} least_steps=24 most_steps=160
# model, batch, data for sensitivities, pairs and links it is run on (. = all)
models=${MODELS:-"
resnet20 32 fashion-mnist . .
vit_tiny:width=256,heads=4 16 fashion-mnist . .
gpt_tiny:width=256 8 text.txt . .
mlp:width=1024,depth=3 256 fashion-mnist . ."}

export TANDEM_ALLREDUCE=network # not in the memory of the machine, which both ends share

# --- Two ends of a link ---
ns=(tandem-$$-0 tandem-$$-1) end=(tdm$$a tdm$$b) # names of interfaces have 15 characters at most
other="" work=""
clean_up() {
    [ -z "$other" ] || kill "$other" 2>/dev/null || true
    # Each with its end of the link and the limit on it.
    for n in "${ns[@]}"; do ip netns del "$n" 2>/dev/null || true; done
    [ -z "$work" ] || rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
work=$(mktemp -d)
for r in 0 1; do ip netns add "${ns[r]}" && ip -n "${ns[r]}" link set lo up; done
ip link add "${end[0]}" netns "${ns[0]}" type veth peer name "${end[1]}" netns "${ns[1]}"
for r in 0 1; do
    ip -n "${ns[r]}" address add 10.77.0.$((r + 1))/24 dev "${end[r]}"
    ip -n "${ns[r]}" link set "${end[r]}" up
done
# A bucket of 16 kB is a hundredth of the smallest all-reduce here: what a link saves up between two steps
# does not count.
limit() { # free|RATE
    for r in 0 1; do
        tc -n "${ns[r]}" qdisc del dev "${end[r]}" root 2>/dev/null || true
        [ "$1" = free ] || tc -n "${ns[r]}" qdisc add dev "${end[r]}" root tbf rate "$1" burst 16kb limit 8mb
    done
}
both() { # ARGUMENT…: one rank at each end; what rank 0 prints
    local code=0
    rm -rf meet && mkdir meet
    export WORLD_SIZE=2 TANDEM_STORE=meet OMP_NUM_THREADS=1
    RANK=1 TANDEM_IFACE=${end[1]} ip netns exec "${ns[1]}" "$tandem" -q "$@" >other.txt 2>&1 &
    other=$!
    RANK=0 TANDEM_IFACE=${end[0]} ip netns exec "${ns[0]}" "$tandem" -q "$@" || code=$?
    wait "$other" || { code=$? && cat other.txt >&2; }
    other=""
    unset WORLD_SIZE TANDEM_STORE
    return $code
}

# --- Cases ---
list_combinations() { # NUMBER MODEL BATCH DATA PAIR LINKS…
    local number=0 pair model batch data on over links_of
    for pair in $pairs; do
        while read -r model batch data on over; do
            [ -n "$model" ] || continue
            [ "$on" = . ] || [ "$on" = "$pair" ] || continue
            links_of=$links
            [ "$over" = . ] ||
                links_of=$(for l in $links; do [[ ",$over," != *",$l,"* ]] || echo "$l"; done | tr '\n' ' ')
            echo "$number $model $batch $data $pair $links_of"
            number=$((number + 1))
        done <<<"$models"
    done
}
# A link gets two of the four plans, the next link or model the other two.
list_cases() { # NUMBER LINK…: LINK PLAN, a line each
    local number=$1 k=0 link
    for link in "${@:2}"; do
        echo "$link ${plans[(number + k) % 4]}"
        echo "$link ${plans[(number + k + 2) % 4]}"
        k=$((k + 1))
    done
}
is_done() { # MODEL BATCH PAIR LINK PLAN
    awk -F'\t' -v k="$1 $2 $3 $4 $5" \
        '$1 " " $2 " " $3 " " $4 " " $5 == k { found = 1 } END { exit !found }' "$rows"
}
# Every operator of each class: fp32, int8 or int8_full, drawn by a seed, as far as it has them.
mix() { # SEED
    for p in int8 int8_full; do
        "$tandem" allocate -q --json "${of[@]}" --cluster "$cluster" --db "$db" --policy uniform --uniform \
            $p -o $p.json >answer.json
    done
    jq --argjson seed "$1" --slurpfile full int8_full.json '
        def lowered: [.classes[].precision] | max_by([.[] | select(. != "fp32")] | length);
        lowered as $int8 | ($full[0] | lowered) as $full
        | {schema, name: "mixed", policy: "drawn", model, graph_hash, base, bucket_bytes, net,
           classes: [.classes | to_entries[] | .key as $c | .value
               | {device, ranks, per_node, batch, memory_bytes}
               + {precision: (.precision | to_entries | to_entries | map(
                   (((.key + 1) * 104729 + $c * 7919 + $seed * 1299709) * 48271 % 2147483647 % 3) as $draw
                   | .value.key as $op | {key: $op, value: ["fp32", $int8[$op], $full[$op]][$draw]})
                   | from_entries)}]}' int8.json
}
profile() { # what the cases of a model and a pair need, over the free link
    db=$work/free.db
    rm -f ./*.db*
    "$tandem" sensitivity -q "${of[@]}" --data "$data" --db "$db" >/dev/null
    both profile "${of[@]}" --cluster "$cluster" --db "$db" >/dev/null
    mix "$number" >mixed.json
    both profile --plan mixed.json --db "$db" >/dev/null # casts that the profile has not met
}
predict() { # ARGUMENT…: the step of a plan by costs that are measured now, over the link as it is
    rm -f now.db*
    both profile "$@" --db now.db >/dev/null
    "$tandem" replay -q --json "$@" --db now.db | jq .step_ns
}
measure() { # LINK PLAN
    local how=(--plan "$2.json") before after steps
    case $2 in
    fp32) how=("${of[@]}" --cluster "$cluster" --uniform fp32) ;;
    lowest) how=("${of[@]}" --cluster "$cluster" --uniform "fp32,int8_full") ;;
    allocated)
        "$tandem" allocate -q --json "${of[@]}" --cluster "$cluster" --db "$db" --slowdown 3% -o \
            allocated.json >answer.json ;;
    esac
    for _ in 1 2 3; do
        before=$(predict "${how[@]}")
        steps=$(awk -v ns="$before" -v s="$seconds" -v least=$least_steps -v most=$most_steps \
            'BEGIN { n = s * 1e9 / ns; printf "%d", (n < least ? least : n > most ? most : n) }')
        both compare --json "${how[@]}" --db now.db --steps "$steps" >answer.json
        after=$(predict "${how[@]}")
        awk -v a="$before" -v b="$after" 'BEGIN { exit !(a / b < 1.05 && b / a < 1.05) }' && break
    done
    jq -r --arg model "$model" --arg batch "$batch" --arg pair "$pair" --arg link "$1" --arg plan "$2" \
        --argjson before "$before" --argjson after "$after" '.steps as $steps | .cases[0]
        | [$model, $batch, $pair, $link, $plan, $before, $after, .measured_ns,
           .measured_p10_ns, .measured_p90_ns, $steps,
           (if .predicted_peak_bytes == .allocated_peak_bytes then "=" else "differs" end)]
        | @tsv' answer.json >>"$rows"
}

# --- All of them ---
show_progress() { # after each case
    n_now=$((n_now + 1)) n_left=$((n_all - $(wc -l <"$rows")))
    tail -n 1 "$rows" | awk -F'\t' -v left=$n_left -v s=$(((SECONDS - begin) * n_left / n_now)) '
        { predicted = ($6 + $7) / 2
          printf "%s, %s, %s, %s: %.1f ms, predicted %.1f (%+.1f%%); %d cases and about %.0f min left\n",
                 $1, $3, $4, $5, $8 / 1e6, predicted / 1e6, 100 * (predicted / $8 - 1), left, s / 60 }' >&2
}
run_combination() { # LINK…: those of its cases that are not done
    local link plan at=""
    while read -r link plan <&4; do
        is_done "$model" "$batch" "$pair" "$link" "$plan" && continue
        if [ -z "$at" ]; then
            limit free
            profile
            at=free
        fi
        if [ "$at" != "$link" ]; then
            at=$link db=$work/$link.db
            limit "$link"
            cp free.db "$db"
            # of the model's buckets, which are those of every plan; the other sizes stay the free link's, and
            # nothing asks for them
            both profile "${of[@]}" --cluster "$cluster" --uniform fp32 --db "$db" --allreduce-only \
                --remeasure >/dev/null
        fi
        measure "$link" "$plan"
        show_progress
    done 4< <(list_cases "$number" "$@")
}
touch "$rows"
cd "$work"
"$tandem" list devices >text.txt && for k in 1 2 3 4 5 6; do cat text.txt text.txt >more.txt &&
    mv more.txt text.txt; done
list_combinations >combinations.txt
n_all=$(awk '{ n += 2 * (NF - 5) } END { print n }' combinations.txt) n_now=0 begin=$SECONDS
while read -r number model batch data pair links_of <&3; do
    of=(--model "$model" --batch "$batch") cluster=${pair/,/ + }
    # shellcheck disable=SC2086 # a word each
    run_combination $links_of
done 3<combinations.txt

awk -F'\t' '
    BEGIN { print "| model | batch | devices | link | plan | steps | predicted before and after (ms) | " \
                  "measured (ms) | p10 .. p90 | error | memory |"
            print "|---|---|---|---|---|---|---|---|---|---|---|" }
    { e = ($6 + $7) / 2 / $8 - 1; a = e < 0 ? -e : e; sum += a; n++; if (a > worst) worst = a
      if ($12 != "=") differ++
      m = $7 / $6 - 1; least = m < least ? m : least; most = m > most ? m : most
      printf "| %s | %d | %s | %s | %s | %d | %.1f, %.1f | %.1f | %.1f .. %.1f | %+.1f%% | %s |\n",
             $1, $2, $3, $4, $5, $11, $6 / 1e6, $7 / 1e6, $8 / 1e6, $9 / 1e6, $10 / 1e6, 100 * e, $12 }
    END { printf "\n%d cases: error %.2f%% in the mean, %.2f%% at the most; memory differs in %d.\n",
                 n, 100 * sum / n, 100 * worst, differ
          printf "From before a run to after it the prediction moved by %+.1f%% to %+.1f%%.\n",
                 100 * least, 100 * most
          exit sum / n > 0.02 || worst > 0.05 || differ > 0 }' "$rows"
