#!/bin/bash
# Whole commands by two builds of tandem, in turns on one core: bench/turns.sh OLD_TANDEM NEW_TANDEM > table
# A row a command: medians of both in ms, and the median of the ratios of neighbours, new by old.
# ROUNDS: pairs a command, 11 by default (process start: 100 times as many). CORE: the core, 0 by default.
# COMMANDS: a file with a command a line in place of these.         some 5 minutes with the defaults
set -eu
old=$1 new=$2
rounds=${ROUNDS:-11} core=${CORE:-0}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
commands=${COMMANDS:-$work/commands}
[ -n "${COMMANDS:-}" ] || cat >"$work/commands" <<'END'
--version
list models
replay --model gpt2_small --batch 2 --cluster '8*v100 + 8*t4 net=100Gbit/s,5us' --predict
replay --model resnet50 --cluster '8*v100 + 8*t4 net=100Gbit/s,5us' --predict
list devices --json
graph show bert_base --json
train --model resnet20 --device cpu:avx2 --steps 10 --eval 0
END

took_ms() { # PROGRAM WORD…
    local begin=${EPOCHREALTIME/[.,]/}
    taskset -c "$core" "$@" >/dev/null 2>"$work/err" </dev/null || {
        echo "bench/turns.sh: $* failed: $(head -n 1 "$work/err")" >&2
        exit 1
    }
    awk -v us=$((${EPOCHREALTIME/[.,]/} - begin)) 'BEGIN { printf "%.3f\n", us / 1000 }'
}
median() { tr '\n' ' ' <"$1" | awk "$(cat "$here/median.awk")"'{ printf "%.3f", median($0) }'; }

printf 'old_ms\tnew_ms\tnew_by_old\tpairs\tcommand\n'
words=()
while read -r command; do
    eval "words=($command)"
    n=$rounds
    [ "${words[0]}" != --version ] || n=$((100 * rounds))
    : >"$work/old" && : >"$work/new"
    for ((k = 0; k < n; k++)); do
        if ((k % 2)); then # who begins changes
            took_ms "$new" "${words[@]}" >>"$work/new"
            took_ms "$old" "${words[@]}" >>"$work/old"
        else
            took_ms "$old" "${words[@]}" >>"$work/old"
            took_ms "$new" "${words[@]}" >>"$work/new"
        fi
    done
    paste "$work/old" "$work/new" | awk '{ print $2 / $1 }' >"$work/ratio"
    printf '%s\t%s\t%s\t%d\t%s\n' "$(median "$work/old")" "$(median "$work/new")" \
        "$(median "$work/ratio")" "$n" "$command"
done <"$commands"
