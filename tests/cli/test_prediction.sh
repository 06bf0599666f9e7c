#!/bin/bash
# How far predictions are off, on the strongest and the weakest device here: three rounds of profile, run,
# profile, and bounds that hold on a machine that is busy with other things. Times are divided by each other,
# never held against a clock: a step is anything from its median without what other processes had of the
# ranks' cores to its median, and of three rounds the median counts. Speaks TAP. TANDEM_BUILD = the build
# folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

if [ "$(basename "$build")" != build ]; then
    skip "predictions of a step" \
        "a profile takes minutes with a sanitizer, and its steps are not the product's"
    echo "1..$n"
    exit 0
fi
find_devices
if [ "$weakest" = "$strongest" ]; then
    skip "predictions of a step" "this machine has no two different devices"
    echo "1..$n"
    exit 0
fi
what=(--model vit_tiny:width=96,depth=3,heads=3 --batch 4 --device "$strongest,$weakest" --uniform fp32,int8)

# A round's figures into round.K: "name value"; of devices and kinds the one that is farthest off.
measure() {
    run 0 profile "${what[@]}" --db "$1.db" --json -q &&
        run 0 compare "${what[@]}" --db "$1.db" --steps 24 --remeasure --operators --json -q &&
        cp out "$1.json" || return
    # What others took of the cores lies in the times of some tasks and between others: the truth is between
    # both steps.
    local least most
    most=$(field measured_ns out | head -n 1) least=$(field undisturbed_ns out)
    [ "$least" != null ] || least=$most # the system does not report the time of others
    {
        awk -v least="$least" -v most="$most" -v before="$(field predicted_ns out |
            head -n 1)" -v after="$(field remeasured_ns out)" \
            -v own="$(field resimulated_ns out)" '
            function off(a) {
                if (least <= 0 || most < least) return 9
                return a < least ? (least - a) / least : a > most ? (a - most) / most : 0
            }
            BEGIN { print "step", off((before + after) / 2); print "own", off(own) }'
        paste <(array resimulated_busy_ns out) <(array measured_busy_ns out) | awk '
            { d = $2 > 0 ? ($1 > $2 ? $1 - $2 : $2 - $1) / $2 : $2 == "null" ? 0 : 9
              if (d > worst) worst = d }
            END { print "busy", (NR == 2 ? worst + 0 : 9) }'
        # What a kind of task is predicted too short by, of kinds that are a fiftieth of their device's time
        # or more.
        sed -n '/"kinds": \[/,$p' out | tr -d '",' | awk '
            $1 == "device:" { device = $2 }
            $1 == "kind:" { kind = $2 }
            $1 == "predicted_ns:" { predicted = $2 }
            $1 == "measured_ns:" { key[++n] = device; name[n] = kind; p[n] = predicted; m[n] = $2
                                     all[device] += $2 }
            END { for (k = 1; k <= n; k++) if (m[k] * 50 >= all[key[k]]) {
                      what = name[k] == "update" ? "update" : "kind"
                      if (1 - p[k] / m[k] > worst[what]) worst[what] = 1 - p[k] / m[k]
                  }
                  for (k = 1; k <= n; k++) { sum_p += p[k]; sum_m += m[k] }
                  print "sum", (n > 4 ? sum_p / sum_m - 1 : 9)
                  print "kind", (n > 4 ? worst["kind"] + 0 : 9)
                  print "update", (n > 4 ? worst["update"] + 0 : 9) }'
    } >"round.$1"
    sed "s/^/# round $1: /" "round.$1"
}
# bounded NAME MOST: the median over the rounds; it is printed on failure.
bounded() {
    local middle
    middle=$(cat round.? | awk -v name="$1" '$1 == name { print $2 }' | sort -g | sed -n 2p)
    echo "# $1: off by $middle, at most $2"
    awk -v middle="${middle:-9}" -v most="$2" 'BEGIN { exit !(middle < most) }'
}

measure 1 && measure 2 && measure 3
report "three rounds of profile, run, profile" $?
bounded step 0.35
report "the mean of both predictions is within 35 % of the step" $?
bounded own 0.15
report "a replay with the times of the run's own tasks is within 15 % of its step" $?
bounded busy 0.20
report "each rank's tasks take 80 % of the time that it does not wait, or more: \
small steps have room for what is between tasks" $?
# Signed: all costs too long by a factor are as wrong as all too short. What a rank waits is in neither sum.
middle=$(cat round.? | awk '$1 == "sum" { print $2 }' | sort -g | sed -n 2p)
echo "# sum: off by $middle, at most 0.18 either way"
awk -v middle="${middle:-9}" 'BEGIN { exit !(middle < 0.18 && middle > -0.18) }'
report "all kinds together are predicted within 18 % of what they took, neither longer nor shorter" $?
bounded kind 0.40
report "no kind of task that matters but the update is predicted 40 % too short" $?
bounded update 0.55
report "the update is not predicted 55 % too short: \
on a rank that has waited its weights have left the caches" $?

left_over && report "no files are left over" 1 || report "no files are left over" 0
echo "1..$n"
[ $failed = 0 ]
