#!/bin/bash
# A command as one process among others: signals at every moment, what its parent left it (closed descriptors,
# ignored signals, variables of OpenMP), libraries that print, cores that others have taken. Speaks TAP.
# TANDEM_BUILD = the build folder; STARTS: how many runs are ended within their first 100 ms.
set -um
# shellcheck source=tests/cli/apart.sh
. "$(dirname "$0")/apart.sh"
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
starts=${STARTS:-20}
n_core=$(env -u OMP_NUM_THREADS nproc)

find_devices
if [ -z "$weakest" ]; then
    skip "processes" "this machine is none of the devices"
    echo "1..$n"
    exit 0
fi
endless=1000000000
one=(train -q --model mlp:width=16 --batch 4 --device "$weakest" --eval 0)
two=(train -q --model mlp:width=16 --batch 4 --device "$weakest,$weakest" --eval 0)

# ended PID: its exit code in `code`; fails if it has not ended within a minute, and ends it then.
ended() {
    local k
    for ((k = 0; k < 600; k++)); do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$1" 2>/dev/null; then
        kill -KILL -- "-$1"
        code=lost
        wait "$1" 2>/dev/null
        return 1
    fi
    wait "$1" 2>/dev/null
    code=$?
}
# Whether processes of the group of PID or folders of runs are left; says which. A rank whose parent is gone
# dies by a signal of the kernel, and is in the table until the first process of the system reaps it.
nothing_left() {
    local left k
    for ((k = 0; k < 200; k++)); do
        left=$(pgrep -l -g "$1"; ls -d .tandem* 2>/dev/null)
        [ -n "$left" ] || return 0
        sleep 0.01
    done
    echo "# left: $left"
    return 1
}
# start ARGUMENT…: runs it in the background, as the leader of a group; its id in pid. Returns once the
# program is there: until then the shell's child would take signals. None is ignored before its first
# instruction, as it would be where these tests run in the background.
start() {
    env --default-signal "$tandem" "$@" >out 2>err </dev/null &
    pid=$!
    until [ "/proc/$pid/exe" -ef "$tandem" ] || ! kill -0 $pid 2>/dev/null; do :; done
}
# trains LOG: waits until a run that logs there makes steps.
trains() {
    local k
    for ((k = 0; k < 600; k++)); do
        [ ! -s "$1" ] || return 0
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# --- Signals ------
# ends_early SIGNAL CODE ARGUMENT…: `starts` runs, each ended at a moment of its first 100 ms.
ends_early() {
    local signal=$1 expected=$2 to k lost=0
    shift 2
    for ((k = 0; k < starts; k++)); do
        start "$@" --steps $endless
        sleep "0.$(printf %03d $((RANDOM % 100)))"
        case $signal in -*) to=-$pid ;; *) to=$pid ;; esac
        kill -s "${signal#-}" -- "$to"
        ended "$pid" && [ "$code" = "$expected" ] && nothing_left "$pid" && continue
        echo "# start $k: exit code $code"
        lost=$((lost + 1))
    done
    [ $lost = 0 ]
}
ends_early TERM 143 "${two[@]}"
report "SIGTERM within the first 100 ms of two ranks: all end, and leave nothing" $?
ends_early TERM 143 "${one[@]}"
report "SIGTERM within the first 100 ms of one rank: all end, and leave nothing" $?
ends_early -INT 130 "${two[@]}"
report "SIGINT to the whole group within the first 100 ms: all end, and leave nothing" $?
small=(--model mlp:width=16 --batch 4 --device "$weakest" --uniform fp32)
run 0 profile -q "${small[@]}" && ends_early TERM 143 compare -q "${small[@]}"
report "SIGTERM within the first 100 ms of a command that starts another: all end, and leave nothing" $?

# ends_in_steps SIGNAL NUMBER: a run of two ranks ends by it, says so once, and leaves nothing.
ends_in_steps() {
    rm -f run.jsonl
    start "${two[@]}" --steps $endless --log run.jsonl
    trains run.jsonl && kill -s "$1" "$pid" && ended "$pid" && [ "$code" = $((128 + $2)) ] &&
        [ "$(grep -c "^tandem: ended by $1" err)" = 1 ] && [ "$(wc -l <err)" = 1 ] && nothing_left "$pid"
}
bad=0 signals="SIGINT SIGTERM SIGXCPU"
if is_long; then
    signals+=" SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGALRM SIGXFSZ SIGVTALRM SIGPROF"
else
    echo "# left out: eight of eleven signals"
fi
for signal in $signals; do
    ends_in_steps "$signal" "$(kill -l "$signal")" || { echo "# $signal: exit code $code"; bad=1; }
done
report "a signal that ends a process ends the run with its status, is reported, and leaves nothing" $bad

# ignores SIGNALS COMMAND…: runs it with these ignored.
ignores() {
    trap '' $1
    shift
    exec "$@"
}
rm -f run.jsonl
(ignores "INT TERM" "$tandem" "${two[@]}" --steps $endless --log run.jsonl) >out 2>err </dev/null &
pid=$!
trains run.jsonl && kill -s INT "$pid" && ended "$pid" && [ "$code" = 130 ] &&
    [ "$(cat err)" = "tandem: ended by SIGINT" ] && nothing_left "$pid"
report "SIGINT that the parent ignores, as a shell for jobs in the background: ends, and is reported" $?
rm -f run.jsonl
(ignores "HUP USR1" "$tandem" "${two[@]}" --steps 2000 --log run.jsonl) >out 2>err </dev/null &
pid=$!
trains run.jsonl && kill -s HUP "$pid" && kill -s USR1 "$pid" && ended "$pid" && [ "$code" = 0 ] &&
    [ ! -s err ] &&
    [ "$(wc -l <run.jsonl)" = 2000 ] && nothing_left "$pid"
report "SIGHUP that nohup ignores: the run goes on to its end" $?
(ignores CHLD "$tandem" "${one[@]}" --steps 300 --lr 1e4) >out 2>err </dev/null &
ended $! && [ "$code" = 1 ] && grep -q diverged err && nothing_left $!
report "SIGCHLD that the parent ignores: a rank's failure is noticed all the same" $?
(ulimit -f 4 && exec "$tandem" "${two[@]}" --steps $endless --log full.jsonl) >out 2>err </dev/null &
ended $! && [ "$code" = 5 ] && grep -q "cannot write the log 'full.jsonl': File too large" err &&
    nothing_left $!
report "a limit of files' sizes: an error that names the file, not a signal" $?
"$tandem" "${two[@]}" --steps 50 --json 2>err </dev/null | head -c 0
code=${PIPESTATUS[0]}
[ "$code" = 141 ] && [ ! -s err ] &&
    ! ls -d .tandem* 2>/dev/null
report "a reader of the result that ends early: the status of SIGPIPE, and no word" $?

# --- Descriptors that the parent closed ------
# logs_alone REDIRECTIONS: the log of a run that diverges holds its own lines alone.
logs_alone() {
    rm -f run.jsonl
    RANK=0 WORLD_SIZE=1 bash -c "exec \"\$@\" $1" _ "$tandem" "${one[@]}" --steps 300 --lr 1e4 \
        --log run.jsonl --db none.db >out 2>err # an open store would take the number
    code=$?
    [ $code = 1 ] && [ -s run.jsonl ] && ! grep -vE '^\{"step":[0-9]+,.*\}$' run.jsonl
}
logs_alone '<&- 2>&-' && logs_alone '<&- >&- 2>&-' && logs_alone '>&- 2>&-' && logs_alone '2>&-'
report "closed standard files: their numbers do not become the log's" $?
bash -c 'exec "$@" >&-' _ "$tandem" list formats 2>err
code=$?
[ $code = 5 ] && grep -q 'cannot write the result' err &&
    bash -c 'exec "$@" <&-' _ "$tandem" list formats >out
report "a closed standard output is an error for what prints a result; a closed input is none" $?

# --- Libraries that print ------
# oneDNN has convolutions here.
conv=(--model resnet20 --batch 2 --device "$strongest" --uniform fp32)
export ONEDNN_VERBOSE=1
run 0 train -q "${conv[@]}" --eval 0 --steps 2 --json
if grep -q onednn err out; then
    [ "$(head -c 1 out)" = "{" ] && ! grep -q onednn out && [ "$(tail -n 1 out)" = "}" ]
    report "ONEDNN_VERBOSE: standard output holds the result alone, stderr what the library prints" $?
    run 0 profile -q "${conv[@]}" && run 0 compare -q "${conv[@]}" --steps 4 --json &&
        [ "$(head -c 1 out)" = "{" ] && ! grep -q onednn out && grep -q onednn err
    report "ONEDNN_VERBOSE: a command that reads the result of another" $?
else
    skip "a library that prints" "this machine runs no kernel of oneDNN"
fi
unset ONEDNN_VERBOSE

# --- Cores ------
# core_of PID: the cores on which it may run.
core_of() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/status"; }
# Names of locks belong to a network namespace: one of our own keeps other tests' runs apart.
apart() { unshare --user --map-root-user --net "$@"; }
if [ "$n_core" -lt 2 ]; then
    skip "cores" "this machine has one core"
elif ! apart true 2>/dev/null; then
    skip "cores" "this machine has no network namespaces for us"
else
    export -f core_of
    export one_line="${one[*]} --steps $endless" tandem
    # first, second, third: the cores of three runs beside each other; then of one after the first's end
    cat >beside.sh <<'END'
begin() {
    $tandem ${one_line/ -q/} --log "$1.jsonl" >/dev/null 2>"$1.err" &
    runs+=($!)
    until [ -s "$1.jsonl" ]; do kill -0 $! || exit 1; sleep 0.1; done
    core_of "$(pgrep -P $!)" >"$1.core"
}
runs=()
begin first; begin second; begin third
kill "${runs[0]}"; wait "${runs[0]}"
kill "${runs[2]}"; wait "${runs[2]}"
begin fourth
kill "${runs[1]}" "${runs[3]}"
wait
END
    apart taskset -c "$(taskset -cp $$ | sed 's/.*: //' | tr , - | awk -F- '{ print $1 "," $2 }')" \
        timeout 120 bash beside.sh >out 2>&1
    code=$?
    cores=$(cat first.core second.core | sort -u | wc -l)
    [ "$cores" = 2 ] && ! grep -q shares first.err second.err
    report "two runs beside each other: each has a core of its own" $?
    grep -qx "$(cat third.core)" first.core second.core &&
        grep -q "warning: rank 0 shares core $(cat third.core) with another run" third.err
    report "a third run on two cores shares one, and says so" $?
    [ "$(cat fourth.core)" = "$(cat first.core)" ] && ! grep -q shares fourth.err
    report "the core of a run that has ended is free" $?
fi

# different_cores ENVIRONMENT…: the two ranks of a run have different cores.
different_cores() {
    local k=0 cores
    rm -f run.jsonl
    env "$@" "$tandem" "${two[@]}" --steps $endless --log run.jsonl >out 2>err </dev/null &
    pid=$!
    trains run.jsonl && cores=$(for k in $(pgrep -P "$pid"); do core_of "$k"; done | sort -u | wc -l)
    kill "$pid"
    ended "$pid"
    [ "${cores:-0}" = 2 ]
}
if [ "$n_core" -lt 2 ]; then
    skip "OpenMP's variables" "this machine has one core"
else
    different_cores OMP_PROC_BIND=true && different_cores OMP_PROC_BIND=close OMP_PLACES=cores &&
        different_cores OMP_PLACES='{0}' && different_cores GOMP_CPU_AFFINITY=0 &&
        different_cores KMP_AFFINITY=compact,verbose
    report "variables by which OpenMP binds threads: each rank has a core of its own" $?
    mkdir joined
    for k in 0 1; do
        OMP_PROC_BIND=true GOMP_CPU_AFFINITY=0 RANK=$k WORLD_SIZE=2 TANDEM_STORE=joined \
            "$tandem" "${two[@]}" --steps $endless --log run$k.jsonl >out$k 2>err$k </dev/null &
        rank[k]=$!
    done
    pid=${rank[0]}
    trains run0.jsonl && [ "$(core_of "${rank[0]}")" != "$(core_of "${rank[1]}")" ]
    same=$?
    kill "${rank[@]}"
    ended "${rank[0]}" && ended "${rank[1]}" && [ $same = 0 ]
    report "the same for ranks that were started by hand" $?
fi
one_core=$(taskset -cp $$ | sed 's/.*: //;s/[,-].*//')
taskset -c "$one_core" "$tandem" "${two[@]/-q/--json}" --steps 3 >out 2>err </dev/null
code=$?
[ $code = 0 ] && grep -q 'warning: 2 ranks on 1 cores; measured times are unreliable' err
report "a set of cores that is narrower than the run is reported" $?

left_over
[ $? != 0 ]
report "nothing is left in the working directory" $?
echo "1..$n"
[ $failed = 0 ]
