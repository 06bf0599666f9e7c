#!/bin/bash
# Predicted against measured, on the strongest device here and on another one beside it. Profiles first,
# into a store that is thrown away. Prints a table. Needs `make` and a quiet machine; takes some minutes.
#   bench/models.sh [STRONG WEAK]         the small models of the zoo, under four plans each
#   bench/models.sh unseen [ROWS]         24 cases that no constant was tuned for, three times each, one round
#                                         over all cases after the other. Exit code 1 where an error exceeds
#                                         what is allowed (below). ROWS [unseen.tsv] gets a line a case; the
#                                         next run with the same file goes on after the last one. Half an hour
#   STRONG, WEAK [strongest, cpu:avx2_vnni], ROUNDS [3], STEPS [40]: environment of `unseen`
set -eu
bench=$(cd "$(dirname "$0")" && pwd) tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

# --- The small models ---
compare() { # MODEL BATCH DATA NAME ARGUMENT…
    local model=$1 batch=$2 data=$3 name=$4
    shift 4
    "$tandem" compare -q "$@" --steps 40 --data "$data" --eval 0 | sed -n \
        -e "s/^step  *predicted \(.*\), measured \(.*\) (p10.*error \(.*\)\$/\1|\2|\3/p" | {
        IFS='|' read -r predicted measured error
        same=$("$tandem" compare -q "$@" --steps 3 | grep -cE '^cpu:.* = ' || true)
        printf '%-10s %5s  %-16s %11s %11s %7s  %s of 2 ranks\n' "$model" "$batch" "$name" "$predicted" \
            "$measured" "$error" "$same"
    }
}
run_small_models() { # STRONG WEAK
    local strong=$1 weak=$2 model batch data of uniform
    cd "$work"
    "$tandem" list devices >text.txt && for _ in 1 2 3 4 5 6; do cat text.txt text.txt >more.txt &&
        mv more.txt text.txt; done
    printf '%-10s %5s  %-16s %11s %11s %7s  %s\n' model batch plan predicted measured error \
        'memory predicted = allocated'
    while read -r model batch data; do
        of=(--model "$model" --batch "$batch")
        "$tandem" profile -q "${of[@]}" --device "$strong,$weak" --data "$data" >/dev/null
        "$tandem" sensitivity -q "${of[@]}" --data "$data" >/dev/null
        "$tandem" allocate -q "${of[@]}" --cluster "$strong + $weak" --slowdown 2% -o plan.json >/dev/null
        for uniform in fp32 fp32,int8 fp32,int8_full; do
            compare "$model" "$batch" "$data" "$uniform" "${of[@]}" --cluster "$strong + $weak" --uniform \
                "$uniform"
        done
        compare "$model" "$batch" "$data" allocated --plan plan.json
    done <<END
resnet20 32 fashion-mnist
vit_tiny 16 fashion-mnist
gpt_tiny 8 text.txt
mlp 256 fashion-mnist
END
}

# --- Cases that nothing was tuned for. The list is fixed: its hash is printed with the errors. ---
unseen_models="
bert_base:layers=2,width=320,heads=5,seq=48,vocabulary=3000 6
resnet18:width=24,image=72,classes=37 5
gpt2_small:layers=3,width=288,heads=6,seq=80,vocabulary=2500 3
vgg16_bn:width=20,hidden=300,image=48,classes=50 7
vit_b16:layers=3,width=264,heads=6,image=96,classes=30 5
resnet50:width=20,image=56,classes=20 6"
unseen_plans=(fp32 "fp32,int8" "random 1" "random 2")

is_done() { # ROUND MODEL PLAN
    awk -F'\t' -v k="$1 $2 $3" '$1 " " $2 " " $3 == k { found = 1 } END { exit !found }' "$rows"
}
run_unseen_model() { # ROUND MODEL BATCH
    local round=$1 model=$2 batch=$3 plan how missing=()
    for plan in "${unseen_plans[@]}"; do is_done "$round" "$model" "$plan" || missing+=("$plan"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    rm -f "$work"/unseen.db*
    how=(--model "$model" --batch "$batch" --cluster "$strong + $weak" --db "$work/unseen.db")
    "$tandem" profile -q "${how[@]}" >/dev/null
    for seed in 1 2; do "$tandem" profile -q "${how[@]}" --uniform random --seed $seed >/dev/null; done
    for plan in "${missing[@]}"; do
        # shellcheck disable=SC2086 # a plan is one or two words
        "$tandem" compare -q --json "${how[@]}" --steps "$steps" --operators --uniform \
            ${plan/#random /random --seed } >"$work/answer.json"
        jq -r --arg round "$round" --arg model "$model" --arg plan "$plan" '.cases[0]
            | [$round, $model, $plan, .predicted_ns, .measured_ns, .error, .error_at_run_speed,
               .simulation_error, .compute_slowdown, .memory_slowdown, .delay_share, .verdict]
            | @tsv' "$work/answer.json" >>"$rows"
        [ -z "${KEEP:-}" ] ||
            cp "$work/answer.json" "$KEEP/$round-${model%%:*}-${plan// /}.json"
    done
}
print_unseen_errors() {
    echo "24 cases, list $(echo "$unseen_models ${unseen_plans[*]}" | sha256sum | cut -c 1-12)," \
        "$strong + $weak, $steps steps, median of $rounds rounds, in percent:"
    awk -F'\t' -v rounds="$rounds" "$(cat "$bench/median.awk")"'
        # What rounds of one case differ by is noise: how bad a prediction without any error would look.
        function print_noise(i, j, k, m, v, mean, pool, n_pool, worst, list, of) {
            for (i = 1; i <= n; i++) {
                m = split(speed[order[i]], v, " "); mean = 0
                for (j = 1; j <= m; j++) mean += v[j] / m
                for (j = 1; j <= m && m > 1; j++) pool[++n_pool] = (v[j] - mean) * sqrt(m / (m - 1))
            }
            if (!n_pool) return
            srand(1)
            for (k = 1; k <= 2000; k++) {
                worst = 0
                for (i = 1; i <= n; i++) {
                    list = ""
                    for (j = 1; j <= rounds; j++) list = list " " pool[1 + int(rand() * n_pool)]
                    m = median(list); if (m < 0) m = -m
                    if (m > worst) worst = m
                }
                of[k] = worst; n_within += worst <= 5
            }
            list = ""
            for (k = 1; k <= 2000; k += 10) list = list " " of[k]
            printf "an errorless prediction with these differences between rounds: worst %.1f, " \
                "at most 5 in %.1f %% of runs\n", median(list), n_within / 20
        }
        { k = $2 "\t" $3
          if (!(k in plain)) order[++n] = k
          plain[k] = plain[k] " " 100 * $6; speed[k] = speed[k] " " 100 * $7 }
        END {
            printf "%-60s %-10s %7s %9s\n", "model", "plan", "plain", "at speed"
            for (i = 1; i <= n; i++) {
                split(order[i], name, "\t"); p = median(plain[order[i]]); s = median(speed[order[i]])
                printf "%-60s %-10s %+7.1f %+9.1f\n", name[1], name[2], p, s
                signed[1] += p; signed[2] += s
                a = p < 0 ? -p : p; b = s < 0 ? -s : s
                absolute[1] += a; absolute[2] += b
                if (a > worst[1]) worst[1] = a
                if (b > worst[2]) worst[2] = b
            }
            for (i = 1; i <= 2; i++)
                printf "%s: signed mean %+.2f, absolute %.2f, worst %.1f\n",
                    i == 1 ? "plain" : "at the speed of the run", signed[i] / n, absolute[i] / n, worst[i]
            print_noise()
            mean = signed[2] / n
            is_good = mean >= -1 && mean <= 1 && absolute[2] / n <= 2 && worst[2] <= 5
            print "allowed at the speed of the run: signed mean 1, absolute 2, worst 5: " \
                (is_good ? "met" : "missed")
            exit !is_good
        }' "$rows"
}
run_unseen() { # [ROWS]
    rows=$(realpath -m "${1:-unseen.tsv}")
    strong=${STRONG:-strongest} weak=${WEAK:-cpu:avx2_vnni} rounds=${ROUNDS:-3} steps=${STEPS:-40}
    local round model batch
    touch "$rows"
    cd "$work"
    for round in $(seq "$rounds"); do
        while read -r model batch; do
            [ -z "$model" ] || run_unseen_model "$round" "$model" "$batch"
        done <<<"$unseen_models"
    done
    print_unseen_errors
}

if [ "${1:-}" = unseen ]; then
    run_unseen "${@:2}"
else
    run_small_models "${1:-strongest}" "${2:-weakest}"
fi
