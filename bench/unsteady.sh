#!/bin/bash
# Predictions on a machine that is made unsteady: hybrid cases in five beds, each profiled and run in its bed.
#   steady   nothing else
#   bursts   a hog on both cores, 30 % of the time, in bursts of 0.2 to 5 s
#   memory   a process that copies memory on either core, at a low weight
#   quota    a control group of the commands whose CPU quota changes each minute
#   warm-up  one whose quota falls slowly
# usage: bench/unsteady.sh [beds|verdict|twice|other|demo]…
#   needs `make`, jq, sqlite3, a C compiler; quotas need root
#   beds     errors by bed: plain, and at the speed of the run [about 25 minutes]
#   verdict  60 runs, of them 20 with a kind of task mispriced by 20 %: what `tandem compare` concluded
#   twice    two profiles with WAIT seconds [3600] of bursts between them: how far their medians differ
#   other    with OTHER=TANDEM, another version's program: errors of both without a bed, in turns, 3 rounds
#   demo     `tandem demo` ten times in bursts: errors of its three plans, and how long it took
#   OUT [unsteady.out]: results, one file a case; the next run with the same OUT makes the rest
#   LIMIT [7200]: seconds after which no further case begins. MODELS, BEDS, SECONDS_A_CASE [8]: fewer
# Exits 1 where a bar is missed: at the speed of the run 4 % mean and 10 % worst; 90 % of the verdicts right;
# medians within 2 %.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tandem=$here/../build/tandem
[ $# -gt 0 ] || set -- beds verdict twice
out=$(realpath -m "${OUT:-unsteady.out}") limit=${LIMIT:-7200} seconds=${SECONDS_A_CASE:-8}
beds=${BEDS:-"steady bursts memory quota warm-up"}
models=${MODELS:-"mlp:width=1024,depth=3@256 resnet20@16 vit_tiny@16"}
pair=strongest,weakest
for need in jq sqlite3 cc; do
    command -v $need >/dev/null || { echo "SKIP: $need is not installed"; exit 0; }
done
[ "$(nproc)" -ge 2 ] || { echo "SKIP: two ranks need two cores"; exit 0; }
mkdir -p "$out" && cd "$out" || exit 5
[ -x hog ] || cc -std=c11 -O2 -D_GNU_SOURCE -o hog "$here/hog.c" || exit 5

# --- Beds ---
hogs=() group=""
end_bed() {
    for hog in "${hogs[@]}"; do kill "$hog" 2>/dev/null; wait "$hog" 2>/dev/null; done
    hogs=()
    [ -z "$group" ] || rmdir "$group" 2>/dev/null
    group=""
}
trap end_bed EXIT
trap 'exit 130' INT TERM HUP

make_group() {
    local name=tandem-unsteady-$$ root
    for root in /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup; do
        mkdir "$root/$name" 2>/dev/null || continue
        if [ -e "$root/$name/cpu.cfs_quota_us" ] || [ -e "$root/$name/cpu.max" ]; then
            group=$root/$name
            return 0
        fi
        rmdir "$root/$name"
    done
    return 1
}
set_quota() { # PERCENT of one core
    if [ -e "$group/cpu.max" ]; then echo "$(($1 * 1000)) 100000" >"$group/cpu.max"; else
        echo $(($1 * 1000)) >"$group/cpu.cfs_quota_us"; fi
}
# The first change comes after 12 to 19 s, so that it falls between a case's profile and its end.
change_quota() { # SEED
    set_quota $((100 + 30 * ($1 % 3))); sleep $((12 + $1 % 8))
    while :; do for percent in 75 140 60 110 85 125; do set_quota $percent; sleep 60; done; done
}
lower_quota() {
    while :; do
        for ((percent = 150; percent > 60; percent -= 2)); do set_quota $percent; sleep 0.8; done
    done
}
# begin_bed BED SEED: 1 where it cannot be made here
begin_bed() {
    end_bed
    case $1 in
    steady) ;;
    bursts) for cpu in 0 1; do ./hog bursts $cpu $(($2 * 2 + cpu)) & hogs+=($!); done ;;
    memory) for cpu in 0 1; do nice -n 10 ./hog memory $cpu & hogs+=($!); done ;;
    quota | warm-up)
        make_group || { echo "SKIP bed $1: no control group with a CPU quota can be made here"; return 1; }
        if [ "$1" = quota ]; then change_quota "$2" & else lower_quota & fi
        hogs+=($!)
        sleep 0.2 ;;
    *) echo "no bed '$1'"; exit 2 ;;
    esac
}
in_bed() { # COMMAND…
    if [ -z "$group" ]; then "$@"; else
        (echo $BASHPID >"$group/cgroup.procs" && exec "$@"); fi
}
has_time() {
    [ $SECONDS -ge "$limit" ] || return 0
    echo "LIMIT: $limit s are over; run it again for the rest"
    return 1
}

# --- One case: profiled and compared ---
model_of() { echo "${1%@*}"; }
batch_of() { echo "${1#*@}"; }
profile() { # DB MODEL PLAN: in the bed; OPTION… more
    local db=$1 model=$2 plan=$3
    shift 3
    in_bed "$tandem" profile -q --db "$db" --model "$(model_of "$model")" --batch "$(batch_of "$model")" \
        --device $pair --uniform "$plan" "$@" --json
}
compare() { # DB MODEL PLAN: in the bed, for as many steps as the time allows
    local what=(-q --db "$1" --model "$(model_of "$2")" --batch "$(batch_of "$2")" --device "$pair"
        --uniform "$3")
    local step steps
    step=$("$tandem" replay "${what[@]}" --json | jq -e .step_ns) || return
    steps=$((seconds * 1000000000 / step))
    [ $steps -ge 30 ] || steps=30
    [ $steps -le 3000 ] || steps=3000
    in_bed "$tandem" compare "${what[@]}" --steps $steps --json
}
copy_store() { rm -f "$2"* && sqlite3 "$1" "VACUUM INTO '$2'"; } # FROM TO
name_of() { tr ':=,@' '____' <<<"$1"; }

run_beds() {
    local bed model plan name seed=1
    for bed in $beds; do
        for model in $models; do
            for plan in fp32 fp32,int8; do
                name=beds.$bed.$(name_of "$model").$(name_of "$plan")
                seed=$((seed + 1))
                [ ! -s "$name.json" ] || continue
                has_time || return
                begin_bed "$bed" $seed || continue 3
                rm -f "$name.db"*
                profile "$name.db" "$model" "$plan" >/dev/null &&
                    compare "$name.db" "$model" "$plan" >"$name.part" && mv "$name.part" "$name.json"
                rm -f "$name.db"*
                end_bed
            done
        done
    done
}
table_of_beds() {
    printf '%-8s %-24s %-10s %9s %8s %12s %7s %7s %8s %s\n' bed model plan 'step (ms)' error 'run speed' \
        noise others sampling verdict
    for file in beds.*.json; do
        jq -r --arg bed "$(cut -d. -f2 <<<"$file")" --arg plan "$(cut -d. -f4 <<<"$file")" '.model as $model |
            .cases[0] | [$bed, $model, $plan, .measured_ns / 1e6, 100 * .error, 100 * .error_at_run_speed,
            100 * (.profile_noise // -1), 100 * (.delay_share // -1), 100 * .speed_sample_share, .verdict] |
            @tsv' "$file"
    done | sort | awk -F'\t' '
        { printf "%-8s %-24s %-10s %9.2f %+7.1f%% %+11.1f%% %6.1f%% %6.1f%% %7.2f%% %s\n",
              $1, $2, $3, $4, $5, $6, $7, $8, $9, $10
          if ($9 > 0.5) dear++
          if ($1 == "steady") { still++; still_sum += $6 < 0 ? -$6 : $6; next }
          n++; a = $5 < 0 ? -$5 : $5; b = $6 < 0 ? -$6 : $6
          plain += a; speed += b; if (b > worst) worst = b }
        END {
            if (still)
                printf "steady: %d cases, at the speed of the run %.1f%% mean\n", still, still_sum / still
            if (n)
                printf "unsteady: %d cases, error %.1f%% mean; at the speed of the run %.1f%% mean, " \
                    "%.1f%% worst; %d with speed samples over 0.5%%\n", n, plain / n, speed / n, worst, dear
            exit !(n && speed / n <= 4 && worst <= 10 && !dear) }'
}

# --- Verdicts: 20 steady, 20 in beds, 20 with a kind of task mispriced ---
misprice() { # DB PASS
    sqlite3 "$1" "UPDATE op_cost SET sum_ns = sum_ns * 1.2, median_ns = median_ns * 6 / 5,
        low_ns = low_ns * 6 / 5, high_ns = high_ns * 6 / 5, p10_ns = p10_ns * 6 / 5, p90_ns = p90_ns * 6 / 5
        WHERE pass = '$2'"
}
run_verdict() {
    local k model bed db pass name all passes=(forward wgrad dgrad) loud=(bursts quota memory)
    read -ra all <<<"$models"
    for ((k = 0; k < 60; k++)); do
        model=${all[k % ${#all[@]}]} name=verdict.$((k / 20)).$k db=verdict.$(name_of "$model").db
        [ ! -s "$name.json" ] || continue
        has_time || return
        if [ ! -e "$db" ]; then
            begin_bed steady 1
            profile "$db" "$model" fp32 >/dev/null || { rm -f "$db"*; continue; }
        fi
        bed=steady
        [ $((k / 20)) != 1 ] || bed=${loud[k % 3]}
        [ $((k / 20)) != 2 ] || [ $((k % 2)) = 0 ] || bed=bursts
        copy_store "$db" case.db
        [ $((k / 20)) != 2 ] || { pass=${passes[k / 3 % 3]}; misprice case.db "$pass"; }
        begin_bed "$bed" $k || continue
        compare case.db "$model" fp32 >"$name.part" && mv "$name.part" "$name.json"
        end_bed
        rm -f case.db*
    done
}
table_of_verdicts() {
    for file in verdict.*.json; do
        jq -r --arg truth "$(cut -d. -f2 <<<"$file")" '.cases[0] |
            [["as it is", "in a bed", "mispriced"][$truth | tonumber], .verdict, .error] | @tsv' "$file"
    done | awk -F'\t' '
        { moved = ($3 < 0 ? -$3 : $3) > 0.05
          truth = $1 == "mispriced" ? "prediction off" : moved ? "machine moved" : "prediction holds"
          count[$1 "\t" truth "\t" $2]++; n++; right += truth == $2 }
        END { printf "%-10s %-18s %-20s %s\n", "run", "truth", "verdict", "runs"
              for (k in count) {
                  split(k, a, "\t")
                  printf "%-10s %-18s %-20s %d\n", a[1], a[2], a[3], count[k] | "sort"
              }
              close("sort")
              printf "verdicts: %d of %d right\n", right, n
              exit !(n && right >= 0.9 * n) }'
}

# --- Two profiles ---
run_twice() {
    local model=${models%% *} wait=${WAIT:-3600}
    if [ ! -s twice.1.db ]; then begin_bed steady 1 && profile twice.part.db "$model" fp32 >/dev/null &&
        mv twice.part.db twice.1.db; fi
    if [ ! -s twice.2.db ]; then
        copy_store twice.1.db twice.part.db
        begin_bed bursts 5 && sleep "$wait"
        profile twice.part.db "$model" fp32 --remeasure >/dev/null && mv twice.part.db twice.2.db
        end_bed
    fi
}
table_of_twice() {
    sqlite3 -separator ' ' twice.1.db "ATTACH 'twice.2.db' AS second;
        SELECT a.median_ns, b.median_ns FROM op_cost AS a JOIN second.op_cost AS b USING (device, co_runner,
        operator, \"precision\", pass, operand, result) ORDER BY abs(1.0 * b.median_ns / a.median_ns - 1)" |
        awk '{ d = $2 / $1 - 1; if (d < 0) d = -d; off[++n] = d; all += $1; if (d <= 0.02) near += $1 }
            END { if (!n) exit 1
                  printf "twice: %d medians; half differ by %.1f%% or less, nine tenths by %.1f%%; " \
                      "%.0f%% of the time within 2%%\n", n, 100 * off[int((n + 1) / 2)],
                      100 * off[int(0.9 * n)], 100 * near / all
                  exit !(near >= 0.9 * all) }'
}

# --- Beside another version ---
run_other() {
    local round model plan who name programs=("$tandem" "$OTHER")
    for round in 1 2 3; do
        for model in $models; do
            for plan in fp32 fp32,int8; do
                for who in $((round % 2)) $((1 - round % 2)); do
                    name=other.$who.$(name_of "$model").$(name_of "$plan").$round
                    [ ! -s "$name.json" ] || continue
                    has_time || return
                    tandem=${programs[who]}
                    profile "$name.db" "$model" "$plan" >/dev/null &&
                        compare "$name.db" "$model" "$plan" >"$name.part" && mv "$name.part" "$name.json"
                    tandem=${programs[0]}
                    rm -f "$name.db"*
                done
            done
        done
    done
}
table_of_other() {
    for file in other.*.json; do
        jq -r --arg who "$(cut -d. -f2 <<<"$file")" '.cases[0] |
            [$who, .error, (.error_at_run_speed // .error)] | @tsv' "$file"
    done | awk -F'\t' '
        { n[$1]++; plain[$1] += $2 < 0 ? -$2 : $2; speed[$1] += $3 < 0 ? -$3 : $3 }
        END { for (k = 0; k < 2; k++)
                  printf "%s: %d runs, error %.1f%% mean; at the speed of the run %.1f%% mean\n",
                      k ? "the other" : "this", n[k], 100 * plain[k] / n[k], 100 * speed[k] / n[k]
              exit speed[0] / n[0] > plain[1] / n[1] }'
}

# --- The demo ---
run_demo() {
    local k start
    for k in 0 1 2 3 4 5 6 7 8 9; do
        [ ! -s demo.$k.json ] || continue
        has_time || return
        begin_bed bursts $((k + 40))
        start=$SECONDS
        rm -rf demo && mkdir demo && (cd demo && "$tandem" demo -q --json) >demo.part &&
            jq --argjson s $((SECONDS - start)) '.seconds = $s' demo.part >demo.$k.json
        rm -rf demo demo.part
        end_bed
    done
}
table_of_demo() {
    for file in demo.*.json; do
        jq -r --arg k "$(cut -d. -f2 <<<"$file")" '.seconds as $s | .cases[] |
            [$k, $s, .plan, .error, .error_at_run_speed, .verdict, .moved_by] | @tsv' "$file"
    done | awk -F'\t' '
        BEGIN { printf "%-4s %8s %-10s %7s %10s %s\n", "run", "time (s)", "plan", "error", "run speed",
                       "verdict" }
        { printf "%-4s %8d %-10s %+6.1f%% %+9.1f%% %s\n", $1, $2, $3, 100 * $4, 100 * $5,
              $6 == "machine moved" ? sprintf("%s by %.1f%%", $6, 100 * $7) : $6
          n++; e = $5 < 0 ? -$5 : $5; right += e <= 0.08 || $6 == "machine moved"; if ($2 > most) most = $2 }
        END { printf "demo: %d of %d plans within 8%% or the machine moved; at most %d s\n", right, n, most
              exit !(n && right >= n * 28 / 30 && most <= 180) }'
}

missed=0
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $("$tandem" --version | head -n 1)"
for part; do
    case $part in
    beds) run_beds; table_of_beds || missed=1 ;;
    verdict) run_verdict; table_of_verdicts || missed=1 ;;
    twice) run_twice; table_of_twice || missed=1 ;;
    other)
        [ -x "${OTHER:-}" ] || { echo "SKIP other: OTHER= names no program"; continue; }
        run_other; table_of_other || missed=1 ;;
    demo) run_demo; table_of_demo || missed=1 ;;
    *) echo "usage: bench/unsteady.sh [beds|verdict|twice|other|demo]…"; exit 2 ;;
    esac
done
exit $missed
