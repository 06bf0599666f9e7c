#!/bin/bash
# Whether scripts/on_card.sh and scripts/test_cuda.sh report every failure and time-out by their exit codes,
# and the kit is whole. Their programs are replaced by ones that do as they are asked, in a kit of its own; no
# card is needed. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
source=$(cd "$here/../.." && pwd)
unset SECONDS_IN_ALL DEVICE OUT TEST_SILENCE TEST_PROCESSOR SANITIZER_TIMEOUT FAIL HANG LACK PYTHON STEPS \
    ONE_LIMIT JOBS \
    PARTS KEPT MEET STORE PATHS KNOWN SLOW_GZIP TALKS LD_LIBRARY_PATH PYTHONPATH ON_CARD_UNPACKED
gpu_programs=$(sed -n 's/^PROGRAM(\(.*\))$/\1/p' "$source/tests/cuda/gpu_programs.def")
mkdir -p kit/{build/card,scripts,bench/cuda,bench/torch,bin}
cp "$source"/scripts/{on_card,test_cuda,run_tests}.sh \
    "$source"/scripts/{until_silent.pl,skips.txt} kit/scripts/
cp "$source"/bench/cuda/*.sh kit/bench/cuda/
cp "$source"/bench/torch/step.py kit/bench/torch/

# Fails, hangs or lacks something where its name and arguments hold what FAIL (an expression), HANG or LACK
# says; else it has tested one thing. What hangs goes on printing where TALKS is set. Those that MEET names
# (an expression) wait for two of them to run. A profile is what is in STORE. PATHS gets where each looks for
# libraries, and for its profiles.
cat >kit/bin/obey <<'END'
#!/bin/bash
said="$(basename "$0") $*"
[ -z "${SAID:-}" ] || echo "$said" >>"$SAID"
[ -z "${PATHS:-}" ] || echo "$said|${LD_LIBRARY_PATH:-}|${TANDEM_DB:-}" >>"$PATHS"
[ -z "${HANG:-}" ] || [[ $said != *"$HANG"* ]] || {
    echo "# case that hangs"
    [ -n "${TALKS:-}" ] || sleep 600
    for ((k = 0; k < 600; k++)); do echo "# still here" && sleep 1; done
}
[ -z "${FAIL:-}" ] || [[ ! $said =~ $FAIL ]] || exit 70
[ -z "${MEET:-}" ] || [[ ! $said =~ $MEET ]] || {
    touch "$WHERE/$(basename "$0")"
    for ((k = 0; k < 50; k++)); do [ "$(ls "$WHERE" | wc -l)" -lt 2 ] || break; sleep 0.1; done
    [ $k -lt 50 ] || exit 70
}
[ -z "${LACK:-}" ] || [[ $said != *"$LACK"* ]] || exit 4
case $said in
compute-sanitizer*) exec "${@:5}" ;;
"tandem doctor"*) echo "cuda:0             ok" ;;
test_*) printf '1..1\nok 1 - %s\n' "$0"
    [ -z "${CUBLASLT_LOG_FILE:-}" ] || echo "refused" >"$CUBLASLT_LOG_FILE" ;;
"tandem train"*) printf '"loss": [\n1,\n],\n'
    while [ $# -gt 0 ]; do [ "$1" != --export ] || echo weights >"$2"; shift; done ;;
"tandem profile"*) [ -z "${STORE:-}" ] || cp "$STORE" "$TANDEM_DB" ;;
"tandem-bench step"*) echo '"median_ns": 5' ;;
esac
END
chmod +x kit/bin/obey
for name in $gpu_programs; do ln -s ../../bin/obey "kit/build/card/$name"; done
ln -s ../bin/obey kit/build/tandem
ln -s ../bin/obey kit/build/tandem-bench
ln -s obey kit/bin/compute-sanitizer
cat >kit/bin/ncu <<'END'
#!/bin/bash
while [[ $1 == -* || $1 == none || $1 == regex:* || $1 == [0-9]* || $1 == gpu__* ]]; do shift; done
exec "$@"
END
cat >kit/bin/nvidia-smi <<'END'
#!/bin/bash
case "$*" in
*query-gpu=name*) echo "Stand In 9" ;;
*-lms*) while echo "1755, 3201, 100.0, 40"; do sleep 1; done ;;
*) echo "a card" ;;
esac
END
# The system's libraries are those that KNOWN names. gzip stops in the middle for SLOW_GZIP seconds.
cat >kit/bin/ldconfig <<'END'
#!/bin/bash
[ -n "${KNOWN+set}" ] || exec /sbin/ldconfig "$@"
for one in $KNOWN; do echo "	$one (libc6,x86-64) => /of_system/$one"; done
END
cat >kit/bin/gzip <<'END'
#!/bin/bash
[ -n "${SLOW_GZIP:-}" ] && [[ $* != *d* ]] || exec /bin/gzip "$@"
/bin/gzip "$@" | { head -c 64 && sleep "$SLOW_GZIP" && cat; }
END
cat >kit/bin/uname <<'END'
#!/bin/bash
[ "${HANG:-}" != uname ] || { trap '' TERM && exec sleep 600; }
exec /bin/uname "$@"
END
# PyTorch takes the options that step.py has, and the turns; its time shows what it was asked for.
cat >kit/bin/python3 <<'END'
#!/bin/bash
said="python3 $*"
[ -z "${PATHS:-}" ] || [[ $said != *tests/python/* ]] || echo "$said|${LD_LIBRARY_PATH:-}|" >>"$PATHS"
[ -z "${HANG:-}" ] || [[ $said != *"$HANG"* ]] || sleep 600
[ -z "${FAIL:-}" ] || [[ ! $said =~ $FAIL ]] || exit 1
case $said in
*step.py*) ;;
*tests/python/*) echo "OK" && exit 0 ;;
*torch*) exit 0 ;;
*) exec /usr/bin/python3 "$@" ;;
esac
is_turn=0
for word in "${@:4}"; do
    case $word in
    --*) grep -q "add_argument(\"$word\"" "$1" || { echo "no option $word"; exit 2; } ;;
    esac
    [[ $word != --* ]] || is_turn=0
    [ $is_turn = 0 ] || {
        ms=50
        for one in ${word//+/ }; do
            [ "$one" = eager ] || grep -q "^OPTIONS = .*\"$one\"" "$1" || { echo "no turn $one"; exit 2; }
            case $one in
            labelled) ms=$((ms - 10)) ;;
            sdpa) ms=$((ms - 20)) ;;
            padded) ms=$((ms - 2)) ;;
            compile) ms=$((ms - 5)) ;;
            esac
        done
        case "$word " in
        ${SLOW:-none}*) sleep 600 ;;
        ${BAD:-none}*) echo "{\"turn\": \"$word\", \"error\": \"out of memory\"}" ;;
        *) echo "{\"turn\": \"$word\", \"step_ns\": $((ms * 1000000)), \"loss\": 1}" ;;
        esac
    }
    [ "$word" != --turns ] || is_turn=1
done
END
chmod +x kit/bin/{ncu,nvidia-smi,python3,ldconfig,gzip,uname}
PATH=$PWD/kit/bin:$PATH

# ends CODE [NAME=VALUE]… SCRIPT ARGUMENT…
ends() {
    local expected=$1
    shift
    env "$@" >out 2>err </dev/null
    code=$?
    [ $code = "$expected" ]
}
tests=(kit/scripts/test_cuda.sh kit/build/card)
card=(kit/scripts/on_card.sh)

# --- Every command as it is, over what replaces a card: small models in place of large ones. It goes
# on beside the rest, in a kit of its own; call 3 takes what call 2 profiled ---
stand_in=$build/tests/libtandem_cuda.so
cp -a kit dry_kit
cat >dry_kit/build/tandem.small <<END
#!/bin/bash
words=() before=''
for word; do
    case \$before in
    --model) word=mlp:width=16 ;;
    --batch) word=2 ;;
    --steps) word=12 ;;
    --repetitions) word=1 ;;
    --cluster) word=\${word//batch=256/batch=2}
        word=\${word//batch=16/batch=2} word=\${word//batch=32/batch=2} ;;
    esac
    words+=("\$word") before=\$word
done
[[ \$1 != profile || "\$*" != *--cluster* ]] || words+=(--uniform bf16,fp32) # the rest is known
TANDEM_BACKEND=$build/libtandem_backend.so TANDEM_CUDA=$stand_in exec "$tandem" "\${words[@]}"
END
chmod +x dry_kit/build/tandem.small
ln -sf tandem.small dry_kit/build/tandem
# One call by itself shows how long calls take here: the limits below leave that time to each.
began=$SECONDS
ends 0 "${card[@]}" 1 "$work/calls" && ! grep -q 'not done' out && [ -s "$work/calls/1.log" ]
first_call=$?
call_s=$((SECONDS - began + 1))
dry() { dry_kit/scripts/on_card.sh "$1" "$work/dry" >"dry.$1.out" 2>&1 </dev/null; }
runs=()
if [ -e "$stand_in" ]; then
    dry 1 &
    runs+=($!)
    { dry 2 && dry 3; } &
    runs+=($!)
fi

# What takes its time asleep goes on beside the rest; the packing, too.
HANG=test_cuda_kernels SECONDS_IN_ALL=$((6 + call_s)) JOBS=1 "${card[@]}" 1 "$work/hung" >hung.out \
    2>hung.err </dev/null &
hung=$!
HANG=test_cuda_coded SECONDS_IN_ALL=$((12 + 4 * call_s)) JOBS=4 "${card[@]}" 1 "$work/slow" >slow.out \
    2>slow.err </dev/null &
slow=$!
/usr/bin/python3 -c 'import sqlite3, sys
store = sqlite3.connect(sys.argv[1])
store.executescript("PRAGMA user_version = 7; CREATE TABLE kept (n); INSERT INTO kept VALUES (5);")' store.db
HANG=compare STORE=$work/store.db SECONDS_IN_ALL=$((7 + call_s)) "${card[@]}" 3 "$work/stopped" \
    >stopped.out 2>&1 </dev/null &
stopped=$!
HANG=test_cuda_gradients JOBS=4 "${card[@]}" 1 "$work/ended" >ended.out 2>&1 </dev/null &
ended=$!
(until grep -qs -- '--- racecheck of rows' "$work/ended/1.log" || ! kill -0 $ended; do sleep 0.1; done
    kill $ended) 2>/dev/null &
# All calls in one, over what hangs: a part that ends by its limit, a call that no TERM ends.
HANG=test_cuda_kernels SECONDS_IN_ALL=$((57 + 3 * call_s)) JOBS=4 STORE=$work/store.db PATHS=$work/all.paths \
    "${card[@]}" all "$work/all_hung" >all_hung.out 2>&1 </dev/null &
all_hung=$!
HANG=uname SECONDS_IN_ALL=24 "${card[@]}" all "$work/all_deaf" >all_deaf.out 2>&1 </dev/null &
all_deaf=$!
packs=
if [ -e "$build/card/gpu_programs" ]; then
    (cd "$source" && COMPRESSION=1 scripts/card_kit.sh "$build" "$work/packed") >packed.out 2>&1 &
    packs=$!
fi

ends 0 "${tests[@]}" && grep -q 'memcheck test_cuda_kernels *nothing found' out
report "test_cuda.sh: 0 where nothing is found" $?
ends 1 FAIL=test_cuda_gradients "${tests[@]}" && ends 1 FAIL=racecheck "${tests[@]}" &&
    grep -q 'racecheck .*FAILED, exit code 70' out &&
    ends 1 FAIL=test_cuda_kernels "${tests[@]}" sanitizer
report "test_cuda.sh: 1 where a test fails, or the sanitizer finds something" $?
ends 1 HANG=test_cuda_shared TEST_SILENCE=1 "${tests[@]}" tests &&
    ends 1 "HANG=memcheck --error-exitcode 9 kit/build/card/test_cuda_operators" SANITIZER_TIMEOUT=1 \
        "${tests[@]}" sanitizer && grep -q 'FAILED, not done after 1 s' out &&
        ends 1 HANG=test_cuda_kernels SANITIZER_TIMEOUT=1 "${tests[@]}" sanitizer
report "test_cuda.sh: 1 where a test or the sanitizer is not done in its time" $?

ok=$first_call
for call in 2 3; do
    ends 0 "${card[@]}" $call "$work/calls" && ! grep -q 'not done' out && [ -s "$work/calls/$call.log" ] ||
        ok=1
done
report "on_card.sh: each of its three calls ends with 0 where all was done" $ok
[ ! -e "$work/calls/unfinished" ]
report "on_card.sh: what parts beside others have printed is not kept twice" $?
limits() { sed -n 's/^=== .*(at most \([0-9]*\) s)$/\1/p' "$work/calls/$1.log" |
    awk '{ n += $1 } END { print n + 0 }'; }
[ "$(limits 1)" -gt 150 ] && [ "$(limits 1)" -le 200 ] && [ "$(limits 2)" -gt 150 ] &&
    [ "$(limits 2)" -le 200 ] && [ "$(limits 3)" -gt 150 ] && [ "$(limits 3)" -le 180 ]
report "on_card.sh: the limits of a call's parts are 200, 200 and 180 s together" $?
cat "$work"/calls/[12]-*.txt >all
ok=0
for name in $gpu_programs; do
    grep -q "=== .*$name\|$name\$" all "$work/calls/1.log" || [ "$name" = bench_gpu ] || ok=1
done
[ $ok = 0 ] && grep -q '^1..1' "$work/calls/1.log" &&
    [ "$(grep -c '^ok 1' "$work/calls/1-sanitizer.txt")" = 11 ] &&
    [ "$(grep -c '^OK$' "$work/calls/1-python.txt")" = 5 ] && [ -s "$work/calls/1-speeds.txt" ]
report "on_card.sh: runs each program of the kit; what it prints is in its file and in the log" $?
mkdir meeting
ends 0 JOBS=2 MEET='^test_cuda_(kernels|rows)' WHERE="$work/meeting" "${card[@]}" 1 "$work/met"
report "on_card.sh: tests run at the same time" $?
ends 1 FAIL='^test_cuda_operators' "${card[@]}" 1 "$work/red" &&
    grep -q '^!!! operators did not pass' "$work/red/1-speeds.txt" && grep -q '^!!! operators' out &&
    [ "$(grep -c -- '^--- first .*: exit code 0' out)" = 4 ] && ! grep -q '!!!' "$work/calls/1.log"
report "on_card.sh: first speeds are measured where a test fails, with a note" $?
# tandem takes 5 ns; the columns are sdpa 20, padded 18, labelled 40, eager 50, compiled 15 ms
row() { grep "^$1 .*$2" "$work/calls/2-steps.txt" | tr -s ' '; } # MODEL HOW_IT_ENDS
[ "$(row bert_base:seq=128 0.0\ ms$)" = \
    "bert_base:seq=128 64 0.0 ms 20.0 ms 18.0 ms 40.0 ms 50.0 ms 3600000.00 x 0.0 ms" ] &&
    [ "$(row bert_base:seq=128 x$)" = "bert_base:seq=128 64 0.0 ms 15.0 ms 3000000.00 x" ] &&
    [ "$(row gpt2_small:seq=1024 0.0\ ms$)" = \
        "gpt2_small:seq=1024 16 0.0 ms 30.0 ms 28.0 ms - 50.0 ms 5600000.00 x 0.0 ms" ] &&
    [ "$(row gpt2_small:seq=1024 x$)" = "gpt2_small:seq=1024 16 0.0 ms 25.0 ms 5000000.00 x" ] &&
    [ "$(row resnet50 0.0\ ms$)" = "resnet50 128 0.0 ms - - - 50.0 ms 10000000.00 x 0.0 ms" ]
report "steps.sh: each column of PyTorch has its turn; the claim is against the best" $?
# The libraries' ways are tried at the same model and batch before, by a profile.
ends 0 SAID="$work/said" kit/bench/cuda/steps.sh kit/build/tandem cuda:0 resnet50 gpt2_small &&
    [ "$(sed 's/ -q//; s/ --json//; s/ --repetitions.*//' said | cut -d ' ' -f 2-)" = \
        "profile --model gpt2_small:seq=1024 --batch 16 --device cuda:0 --uniform bf16
step --model gpt2_small:seq=1024 --batch 16 --device cuda:0 --uniform bf16
step --model gpt2_small:seq=1024 --batch 16 --device cuda:0 --uniform bf16
profile --model resnet50 --batch 128 --device cuda:0 --uniform bf16
step --model resnet50 --batch 128 --device cuda:0 --uniform bf16
step --model resnet50 --batch 128 --device cuda:0 --uniform bf16" ]
report "steps.sh: each model is profiled at its batch before its steps" $?
ends 0 SLOW='*compile' ONE_LIMIT=1 kit/bench/cuda/steps.sh kit/build/tandem cuda:0 bert_base &&
    grep -q 'PyTorch, labelled+sdpa+compile: stopped after 3 s' out && grep -q ' - *3600000.00 x$' out &&
    ends 1 SLOW='labelled ' ONE_LIMIT=1 PARTS=steps \
        kit/bench/cuda/steps.sh kit/build/tandem cuda:0 bert_base &&
    grep -q 'ms *20.0 ms *18.0 ms * - * - *3600000.00 x' out &&
    grep -q 'PyTorch, labelled: stopped after 2 s' out &&
    ends 0 BAD=labelled+sdpa PARTS=steps kit/bench/cuda/steps.sh kit/build/tandem cuda:0 bert_base &&
    grep -q 'ms * - * - *40.0 ms *50.0 ms *8000000.00 x' out && grep -q 'labelled+sdpa: "out of memory"' out
report "steps.sh: a column that is stopped or fails is said, and does not count; the others are kept" $?
ok=0
while read -r call n_failed what; do
    ends 1 "FAIL=$what" "${card[@]}" "$call" "$work/failed" &&
        [ "$(sed -n '/^failed, or not done in time:$/,$p' out | grep -c '^  ')" = "$n_failed" ] && continue
    ok=1 && echo "# passed over: $what" && break
done <<'END'
1 8 ^test_cuda_delayed|memcheck
1 1 tests/python/modules
2 2 ^bench_gpu|resnet50 --batch 128
3 2 fp8 --steps 20
END
report "on_card.sh: 1 where any part fails, and which" $ok
ends 4 "LACK=compare" "${card[@]}" 3 "$work/failed" && grep -q 'could not be done here:' out &&
    ends 4 "LACK=tandem doctor" "${card[@]}" 2 "$work/failed" &&
    grep -q 'cuda:0 cannot be used here' out && ends 2 "${card[@]}" && ends 2 "${card[@]}" 4 &&
    grep -q '^usage:' err
report "on_card.sh: 4 where what it needs is missing, 2 where no call is named" $?
wait $hung
code=$?
[ $code = 1 ] && grep -q -- '--- test_cuda_kernels: stopped after' hung.out &&
    grep -q 'operators: not done: no time is left' hung.out &&
    grep -q '^!!! kernels, operators, attention did not pass' hung.out &&
    grep -q '^=== first speeds: not done: no time is left' hung.out
report "on_card.sh: 1 where a part is stopped, and where no time is left for the rest" $?
wait $slow
code=$?
cp slow.out out
[ $code = 1 ] && grep -q -- '--- test_cuda_coded: stopped after' out &&
    grep -q -- '--- racecheck of coded: stopped after' out &&
    ! grep -q '^=== test_cuda_[a-z_]*: not done' out &&
    [ "$(grep -c '^ok 1' "$work/slow/1-tests.txt")" = 11 ]
report "on_card.sh: what hangs beside others is stopped at its limit, and they go on" $?
wait $stopped
code=$?
cp stopped.out out
[ $code = 1 ] && grep -q -- '--- bert_base.*: stopped after' out && /usr/bin/python3 -c 'import sqlite3, sys
store = sqlite3.connect(":memory:")
store.executescript(open(sys.argv[1]).read())
sys.exit([*store.execute("SELECT n, user_version FROM kept, pragma_user_version")] != [(5, 7)])' \
    "$work/stopped/profiles/measured/stand_in_9.sql"
report "on_card.sh: the store is kept as text where a part is stopped" $?
wait $ended
code=$?
cp ended.out out
[ $code = 143 ] && grep -q '^=== test_cuda_gradients: the call ended' "$work/ended/1-tests.txt" &&
    grep -q '^ok 1 .*test_cuda_coded' "$work/ended/1-tests.txt" &&
    [ "$(grep -A 1 '^=== coded.cublaslt$' "$work/ended/1-libraries.txt" | tail -n 1)" = refused ]
report "on_card.sh: a call that is ended keeps what it has" $?

# --- All calls in one: one file, whole at every moment ---
unpack() { # FOLDER OF A CALL: its file, in `unpacked`
    rm -rf unpacked && mkdir unpacked && tar -xzf "$1/on_card.tar.gz" -C unpacked
}
# limits_of_all FILE SECONDS: each call has the share of its limit in what is left, less 5 s in which it stops
limits_of_all() {
    awk -v all="$2" -v rest=580 '
        /^===== call [1-3] \(at most/ {
            share = $3 == 3 ? 180 : 200
            most = int((all - was) * share / rest) - 5
            sub(/.*most /, "")
            if ($1 + 0 > most || $1 + 0 < most - 3) bad = 1
            rest -= share
            n++
        }
        /^===== call [1-3]: exit code/ { sub(/.*after /, ""); was = $1 + 0 }
        END { exit bad || n != 3 }' "$1"
}
ends 0 "${card[@]}" all "$work/whole" && limits_of_all out 570 && unpack "$work/whole" &&
    [ "$(ls -A "$work/whole")" = on_card.tar.gz ]
ok=$?
for name in {1,2,3}.log 1-tests.txt 1-speeds.txt 2-steps.txt 3-hybrid.txt; do
    [ -s "unpacked/on_card/$name" ] || ok=1
done
! grep -q 'not done' unpacked/on_card/?.log || ok=1
report "on_card.sh all: three calls, limits of 570 s in all, one file" $ok
ends 1 FAIL='^bench_gpu' "${card[@]}" all "$work/whole" && unpack "$work/whole" &&
    ends 4 "LACK=tandem doctor" "${card[@]}" all "$work/whole" && grep -q 'cuda:0 cannot be used here' out &&
    ends 5 "${card[@]}" all "$work/store.db/no_folder"
report "on_card.sh all: exit code of the worst call" $?
wait $all_hung
code=$?
cp all_hung.out out
[ $code = 1 ] && limits_of_all out $((57 + 3 * call_s)) && unpack "$work/all_hung" &&
    grep -q -- '--- test_cuda_kernels: stopped after' unpacked/on_card/1.log &&
    grep -q '^===== call 3: exit code 0' out
report "on_card.sh all: what hangs is stopped, and the other calls are made" $?
sed -n 's/^tandem \(profile\|compare\).*|//p' all.paths | sort -u >stores
[ "$(wc -l <stores)" = 1 ] && grep -q '/on_card/tandem.db$' stores &&
    cmp store.db unpacked/on_card/tandem.db
report "on_card.sh all: call 3 has what call 2 profiled" $?
wait $all_deaf
code=$?
cp all_deaf.out out
[ $code = 1 ] && limits_of_all out 24 && [ "$(grep -c '^===== call .: exit code 137' out)" = 3 ] &&
    tar -tzf "$work/all_deaf/on_card.tar.gz" >/dev/null
report "on_card.sh all: a call that does not end is killed" $?
# kill_all LEADER MARK: all of its processes, which have MARK in their environment, end at once.
kill_all() {
    local file
    kill -KILL "$1"
    for file in $(grep -lsz "^MARK=$2\$" /proc/[0-9]*/environ); do
        file=${file#/proc/} && kill -KILL "${file%/environ}"
    done 2>/dev/null
    wait "$1" 2>/dev/null
}
until_true() { # COMMAND…: within a minute
    local k
    for ((k = 0; k < 600; k++)); do "$@" 2>/dev/null && return; sleep 0.1; done
    return 1
}
RANDOM=${TEST_SEED:-$$}
ok=0 moments=
for kill in 1 2 3 4 5; do
    MARK=$work/kill.$kill HANG=test_cuda_gradients TALKS=1 SLOW_GZIP=2 JOBS=4 \
        "${card[@]}" all "$work/kill.$kill" >out 2>&1 </dev/null &
    leader=$!
    moment=$((RANDOM % 7)).$((RANDOM % 10)) moments+=" $moment"
    until_true [ -s "$work/kill.$kill/on_card.tar.gz" ] && sleep "$moment"
    kill_all $leader "$work/kill.$kill"
    unpack "$work/kill.$kill" && [ -d unpacked/on_card ] || ok=1
done
report "on_card.sh all: killed at random moments (after$moments s), its file is whole" $ok
in_the_file() { # what a part has printed that still runs, and what a library has
    unpack "$work/printed" && [ -s unpacked/on_card/1.log ] &&
        grep -qs 'case that hangs' unpacked/on_card/unfinished/1/*gradients.txt &&
        [ "$(cat unpacked/on_card/unfinished/1/*.cublaslt | wc -l)" -gt 3 ]
}
MARK=$work/printed HANG=test_cuda_gradients JOBS=4 "${card[@]}" all "$work/printed" >out 2>&1 </dev/null &
leader=$!
until_true in_the_file
ok=$?
kill_all $leader "$work/printed"
in_the_file || ok=1
report "on_card.sh all: the file has what was printed by parts that have not ended" $ok
HANG=test_cuda_gradients JOBS=4 "${card[@]}" all "$work/termed" >out 2>&1 </dev/null &
leader=$!
has_begun() { unpack "$work/termed" && grep -qs 'test_cuda_kernels: exit code 0' unpacked/on_card/1.log; }
until_true has_begun
kill $leader
wait $leader
code=$?
[ $code = 143 ] && unpack "$work/termed" && [ "$(ls -A "$work/termed")" = on_card.tar.gz ] &&
    grep -q '^=== test_cuda_gradients: the call ended' unpacked/on_card/1.log &&
    [ ! -e unpacked/on_card/unfinished ] && ! grep -q '^===== call 2' out
report "on_card.sh all: ended by TERM, it ends its call and writes the file" $?

# --- Which of NVIDIA's libraries: where PyTorch brings all of them, its own ---
mkdir -p wheels/nvidia/{cu13,cudnn}/lib
touch wheels/nvidia/cu13/lib/lib{cudart,cublasLt}.so.13 wheels/nvidia/cudnn/lib/libcudnn.so.9
of_wheels=$work/wheels/nvidia/cu13/lib:$work/wheels/nvidia/cudnn/lib
paths() { # KNOWN [NAME=VALUE]…: where "tandem doctor" and a Python suite look for libraries: $ours, $theirs
    rm -f paths
    ends 0 PATHS="$work/paths" PYTHONPATH="$work/wheels" KNOWN="$1" "${@:2}" "${card[@]}" 1 "$work/found" ||
        return
    ours=$(sed -n 's/^tandem doctor|\(.*\)|.*/\1/p' paths)
    theirs=$(sed -n 's/.*tests\/python\/cuda.py -v|\(.*\)|$/\1/p' paths)
}
all_known="libcuda.so.1 libcudart.so.13 libcublasLt.so.13 libcudnn.so.9"
paths "$all_known" && [ "$ours" = "$of_wheels" ] && [[ $theirs != *:* && $theirs == */lib ]] &&
    paths "$all_known" LD_LIBRARY_PATH=/elsewhere && [ "$ours" = "$of_wheels:/elsewhere" ] &&
    [[ $theirs == */lib:$of_wheels:/elsewhere ]]
report "on_card.sh: PyTorch's libraries come before the system's; Python has its own" $?
mv wheels/nvidia/cudnn/lib/libcudnn.so.9 .
paths "$all_known" && [ "$ours" = "" ] && paths "$all_known" LD_LIBRARY_PATH=/elsewhere &&
    [ "$ours" = /elsewhere ] && [[ $theirs == */lib:/elsewhere ]]
report "on_card.sh: where PyTorch lacks one of them, the system's" $?

# The bits of another run, or of launched kernels: a run that writes other weights is reported.
cat >kit/bin/fickle <<'END'
#!/bin/bash
while [ $# -gt 0 ]; do [ "$1" != --export ] || echo "$RANDOM${TANDEM_GRAPHS/$SAME/}" >"$2"; shift; done
printf '"loss": [\n1,\n],\n'
END
chmod +x kit/bin/fickle
ends 1 kit/bench/cuda/same_losses.sh kit/bin/fickle cuda:0 mlp &&
    [ "$(grep -c 'other losses or weights' out)" = 2 ]
report "same_losses.sh: 1 where weights differ in the bits" $?

if [ -e "$stand_in" ]; then
    ok=0
    for run in "${runs[@]}"; do wait "$run" || ok=1; done
    cat dry.*.out >out 2>err
    [ $ok = 0 ] && grep -q '^  *"loss"' "$work/dry/1-mlp.txt" &&
        grep -q '^resnet50  *128  *[0-9.]* ms  *45.0 ms' "$work/dry/2-steps.txt" &&
        ! grep -q 'exit code [1-9]' dry.3.out
    report "on_card.sh: its commands run as they are" $?
    grep -qE '^[0-9]+ of 12 steps were predicted within 5%$' "$work/dry/3.log" &&
        [ "$(grep -c 'the same losses and weights' "$work/dry/3-hybrid.txt")" = 6 ]
    report "on_card.sh: 12 steps are predicted and run; three runs have the same bits" $?
    /usr/bin/python3 -c 'import sqlite3, sys
sqlite3.connect(sys.argv[2]).executescript(open(sys.argv[1]).read())' \
        "$work/dry/profiles/measured/stand_in_9.sql" again.db 2>err &&
        run 0 replay --db again.db --model mlp:width=16 --batch 2 --device cuda:0 --uniform bf16 &&
        grep -q '8.00 s' out
    report "on_card.sh: what it measured is a text, of which a store is made that replays" $?
else
    skip "on_card.sh: its commands run as they are" "there is no $stand_in: run make tests first"
fi

# --- Cards that are chosen: other architectures than before build the kernels again ---
cat >nvcc <<'END'
#!/bin/bash
while [ "$1" != -o ]; do shift; done
echo made >"$2"
END
chmod +x nvcc
made() { # ARCHITECTURES
    env -u MAKEFLAGS -u MFLAGS make -C "$source" B="$work/b" NVCC="$work/nvcc" CUDA_ARCHS="$1" \
        "$work/b/obj/kernels/cuda/bytes.cu.o" >out 2>err </dev/null && grep -q '^  nvcc ' out
}
made "75 90" && ! made "75 90" && made 90 && ! made 90
report "make: kernels are built again for other CUDA_ARCHS, and only then" $?

# --- The kit that is packed: its programs begin here, and say that there is no card ---
if [ -n "$packs" ]; then
    wait $packs
    code=$?
    cp packed.out out
    [ $code = 0 ] && mkdir here && tar -xzf packed/card-kit.tar.gz -C here && ok=0 || ok=1
    for name in $gpu_programs; do [ -x "here/card-kit/build/card/$name" ] || ok=1; done
    for name in build/libtandem{,_kernels,_cuda_kernels}.so.0 python/tandem/__init__.py bench/torch/step.py \
        tests/python/{cuda,kernels,modules,planning,estimate}.py; do
        [ -s "here/card-kit/$name" ] || ok=1
    done
    [ $ok = 0 ] && ends 2 here/card-kit/build/card/gpu_programs && grep -q 'test_cuda_attention' err &&
        ends 4 PATH="${PATH#*:}" here/card-kit/scripts/on_card.sh 1 "$work/none" &&
        grep -q 'SKIP.*cuda:0 cannot be used here\|SKIP.*not found' out
    report "card_kit.sh: what it packs is whole, and says what is missing here" $?
else
    skip "card_kit.sh: what it packs is whole" "nvcc, or a build without sanitizers, is not here"
fi

echo "1..$n"
[ $failed = 0 ]
