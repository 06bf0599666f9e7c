#!/bin/bash
# Runs test programs and ends with one line: how many tests passed, failed and were skipped. Before it: the
# ten slowest, what was skipped and why, what failed, and the time of build and tests. Programs of cmocka
# speak TAP (one line a test); others count as one each. What prints SKIP is skipped; for a reason that
# scripts/skips.txt does not allow, it has failed. usage: scripts/run_tests.sh PROGRAM…     B = the build
# folder; JOBS: programs at a time, as many as there are cores; TEST_SILENCE, TEST_PROCESSOR: when one hangs
# (until_silent.pl); BUILD_SECONDS: what the build took, to be printed; TEST_PRELOAD: a library that is
# preloaded into each; TEST_LEFT_OUT: programs that are not run, to be listed; TEST_LONG: more draws
set -u
[ $# -gt 0 ] || {
    echo "run_tests.sh: no test program was given; allowed: one and more;" \
        "does any name begin with what ONLY says?" >&2
    exit 2
}
export CMOCKA_MESSAGE_OUTPUT=TAP
export TANDEM_BUILD=${B:-build}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-die_after_fork=0:suppressions=$PWD/tests/tsan.supp}
export OMP_NUM_THREADS=1
build_s=${BUILD_SECONDS:-}
unset BUILD_SECONDS # a test of this script runs it
jobs=${JOBS:-$(env -u OMP_NUM_THREADS nproc)} goal_s=600
here=$(cd "$(dirname "$0")" && pwd)
reasons=$here/skips.txt
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
grep -vE '^(#|$)' "$reasons" >"$work/reasons" || exit 5

now_ms() { local us=${EPOCHREALTIME/[.,]/}; echo $((us / 1000)); }

# Bounds of measured times: these have the machine to themselves.
is_alone() {
    case $1 in
    *cli/test_prediction.sh | *cli/test_loop.sh) return 0 ;;
    *) return 1 ;;
    esac
}
# Ranks and daemons that wait for each other, with limits of time that a neighbour would use up which
# computes. Two of them run at a time: five take as long.
waits() {
    case $1 in
    *cli/test_hosts.sh | *cli/test_joining.sh | *cli/test_processes.sh | *slurm/run.sh | *fault/test_comm)
        return 0 ;;
    *) return 1 ;;
    esac
}
# What takes longest begins first, so that at the end none runs beside nothing.
longest="python/test_python.sh cuda/test_cuda_graphs ptx/test_ptx_kernels cli/run.sh
cli/test_card_scripts.sh cli/test_cuda.sh cli/test_study.sh conformance/test_operators
cli/test_estimate.sh cli/test_options.sh cli/test_hostile.sh torch/test_truth.sh cli/test_documents.sh
fault/test_store_damage cli/test_truth.sh slurm/run.sh"

passed=0 failed=0 skipped=0
# count LOG: "PASSED FAILED SKIPPED PLANNED": lines of TAP; PLANNED is empty where there is no plan.
count() {
    awk '/^1\.\.[0-9]+$/ { planned += substr($0, 4); plan = 1 }
        /^(not )?ok [0-9]+ .*# SKIP/ { skipped++; next }
        /^ok [0-9]+ / { passed++ }
        /^not ok [0-9]+ / { failed++ }
        END { print passed + 0, failed + 0, skipped + 0, plan ? planned : "" }' "$1"
}
# Judges program $1, whose log is $2, which ended with code $3 after $4 ms: prints its line, and adds it up.
judge() {
    local name=${1##*tests/} log=$2 code=$3 ms=$4 ok bad skip planned why='' n_reason
    read -r ok bad skip planned < <(count "$log")
    grep -E '^ *SKIP[: ]' "$log" >"$log.skips"
    sed -n 's/^# left out: /    /p' "$log" >>"$work/left_out"
    n_reason=$(wc -l <"$log.skips")
    if [ -z "$planned" ] && [ $((ok + bad + skip)) = 0 ]; then
        if [ "$code" != 0 ]; then bad=1; elif [ "$n_reason" = 0 ]; then ok=1; fi
    elif [ -n "$planned" ] && [ $((ok + bad + skip)) != "$planned" ]; then
        why="$((ok + bad + skip)) of $planned tests have reported how they ended; "
        bad=$((bad + 1))
    elif [ "$code" != 0 ] && [ "$bad" = 0 ]; then
        bad=1
    fi
    for ((; n_reason < skip; n_reason++)); do echo "SKIP without a reason" >>"$log.skips"; done
    skip=0
    while read -r line; do
        if grep -qEf "$work/reasons" <<<"$line"; then
            skip=$((skip + 1))
            echo "$name: ${line#SKIP}" | sed 's/: :/:/' >>"$work/skipped"
        else
            bad=$((bad + 1))
            why+="skipped for a reason that $reasons does not allow: $line; "
        fi
    done <"$log.skips"
    [ "$code" != 124 ] && [ "$code" != 125 ] || why+="stopped, because it hangs; "
    printf '%-44s %3d passed %2d failed %2d skipped  %3ds\n' "$name" "$ok" "$bad" "$skip" \
        "$(((ms + 500) / 1000))"
    sed 's/^ */    /' "$log.skips"
    if [ "$bad" != 0 ]; then
        echo "    ${why}exit code $code; what it printed:"
        tail -n 40 "$log" | sed 's/^/    /'
        {
            echo "$name: ${why}exit code $code"
            grep -E '^not ok|^FAIL' "$log" | sed 's/^/  /'
        } >>"$work/failures"
    fi
    echo "$ms $name" >>"$work/times"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
}

# begins_in_order PROGRAM…: their numbers from 0, those of `longest` first.
begins_in_order() {
    printf '%s\n' "$@" | awk -v longest="$longest" '
        BEGIN { n = split(longest, name); for (k = 1; k <= n; k++) place[name[k]] = k }
        { sub(/.*tests\//, ""); print ($0 in place ? place[$0] : n + 1), NR - 1 }' | sort -n -k 1,1 -k 2,2 |
        cut -d ' ' -f 2
}
# run_all AT_A_TIME PROGRAM…: runs them; judges each, in this order, as soon as those before it have been.
run_all() {
    local at_a_time=$1 next=0 done=0 running=0 pid code i preload
    local -a program=("${@:2}") order=() begin=() took=() ended=()
    local -A of=()
    [ ${#program[@]} = 0 ] || mapfile -t order < <(begins_in_order "${program[@]}")
    while [ $done -lt ${#program[@]} ]; do
        while [ $next -lt ${#program[@]} ] && [ $running -lt "$at_a_time" ]; do
            i=${order[next]}
            begin[i]=$(now_ms)
            preload=${TEST_PRELOAD:-}
            # another user of Slurm may not read the library
            case ${program[i]} in *slurm/run.sh) preload= ;; esac
            "$here/until_silent.pl" "$work/log.$i" env ${preload:+LD_PRELOAD=$preload} "${program[i]}" &
            of[$!]=$i
            next=$((next + 1)) running=$((running + 1))
        done
        wait -n -p pid 2>/dev/null # no second word of a signal
        code=$?
        i=${of[$pid]}
        ended[i]=$code took[i]=$(($(now_ms) - begin[i])) running=$((running - 1))
        for (( ; done < ${#program[@]}; done++)); do
            [ -n "${ended[done]:-}" ] || break
            judge "${program[done]}" "$work/log.$done" "${ended[done]}" "${took[done]}"
        done
    done
}

alone=() waiting=() beside=()
for program; do
    if is_alone "$program"; then
        alone+=("$program")
    elif waits "$program"; then
        waiting+=("$program")
    else
        beside+=("$program")
    fi
done
start=$(now_ms)
run_all "$jobs" ${beside[@]+"${beside[@]}"}
run_all $((jobs < 2 ? jobs : 2)) ${waiting[@]+"${waiting[@]}"}
run_all 1 ${alone[@]+"${alone[@]}"}
tests_s=$((($(now_ms) - start + 500) / 1000))

echo "the ten slowest:"
sort -rn "$work/times" | head -n 10 | awk '{ printf "%6.1f s  %s\n", $1 / 1000, $2 }'
if [ -s "$work/skipped" ]; then
    echo "skipped:"
    sed 's/^/    /' "$work/skipped"
fi
# shellcheck disable=SC2086 # words
[ -z "${TEST_LEFT_OUT:-}" ] || printf '%s\n' $TEST_LEFT_OUT | sed 's/.*tests\//    /' >>"$work/left_out"
if [ -s "$work/left_out" ]; then
    echo "left out (make test LONG=1 runs them, too, and more draws of others):"
    cat "$work/left_out"
fi
if [ -s "$work/failures" ]; then
    echo "failed:"
    sed 's/^/    /' "$work/failures"
fi
echo "${build_s:+build $build_s s, }tests $tests_s s, ${jobs} at a time (the goal is under $goal_s s)"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
