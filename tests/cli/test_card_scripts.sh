#!/bin/bash
# Whether scripts/on_card.sh and scripts/test_cuda.sh tell of every failure and time-out by their exit codes.
# Their programs are replaced by ones that do as they are told, in a kit of its own; no card is needed. Speaks
# TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
source=$(cd "$here/../.." && pwd)
unset SECONDS_IN_ALL DEVICE OUT TEST_TIMEOUT SANITIZER_TIMEOUT FAIL HANG LACK
mkdir -p kit/{build/card,scripts,bench/cuda,bin}
cp "$source"/scripts/{on_card,test_cuda,run_tests}.sh "$source/scripts/skips.txt" kit/scripts/
cp "$source"/bench/cuda/*.sh kit/bench/cuda/

# Fails, hangs or lacks something where its name and arguments hold what FAIL, HANG or LACK says; else it has
# tested one thing.
cat >kit/bin/obey <<'END'
#!/bin/bash
said="$(basename "$0") $*"
[ -z "${HANG:-}" ] || [[ $said != *"$HANG"* ]] || sleep 600
[ -z "${FAIL:-}" ] || [[ $said != *"$FAIL"* ]] || exit 70
[ -z "${LACK:-}" ] || [[ $said != *"$LACK"* ]] || exit 4
case $said in
compute-sanitizer*) exec "${@:5}" ;;
"tandem doctor"*) echo "cuda:0             ok" ;;
test_*) printf '1..1\nok 1 - %s\n' "$0" ;;
"tandem train"*) printf '"loss": [\n1,\n],\n' ;;
"tandem bench step"*) echo '"median_ns": 5' ;;
esac
END
chmod +x kit/bin/obey
for name in kernels public_kernels operators gradients repeats delayed shared; do ln -s ../../bin/obey \
    kit/build/card/test_cuda_$name; done
ln -s ../../bin/obey kit/build/card/bench_card
ln -s ../bin/obey kit/build/tandem
ln -s obey kit/bin/compute-sanitizer
cat >kit/bin/ncu <<'END'
#!/bin/bash
while [[ $1 == -* || $1 == none || $1 == regex:* || $1 == [0-9]* || $1 == gpu__* ]]; do shift; done
exec "$@"
END
chmod +x kit/bin/ncu
PATH=$PWD/kit/bin:$PATH
# PyTorch is not what is tested here.
printf '#!/bin/sh\nexit 1\n' >kit/bin/python3 && chmod +x kit/bin/python3

# ends CODE [NAME=VALUE]… SCRIPT ARGUMENT…
ends() {
    local expected=$1
    shift
    env "$@" >out 2>err </dev/null
    code=$?
    [ $code = "$expected" ]
}
tests=(kit/scripts/test_cuda.sh kit/build/card)
ends 0 "${tests[@]}" && grep -q 'memcheck test_cuda_kernels *nothing found' out
report "test_cuda.sh: 0 where nothing is found" $?
ends 1 FAIL=test_cuda_gradients "${tests[@]}" && ends 1 FAIL=racecheck "${tests[@]}" &&
    grep -q 'racecheck .*FAILED, exit code 70' out &&
    ends 1 FAIL=test_cuda_kernels "${tests[@]}" sanitizer
report "test_cuda.sh: 1 where a test fails, or the sanitizer finds something" $?
ends 1 HANG=test_cuda_shared TEST_TIMEOUT=1 "${tests[@]}" tests &&
    ends 1 HANG=memcheck SANITIZER_TIMEOUT=1 "${tests[@]}" sanitizer &&
    grep -q 'FAILED, not done after 1 s' out &&
        ends 1 HANG=test_cuda_kernels SANITIZER_TIMEOUT=1 "${tests[@]}" sanitizer
report "test_cuda.sh: 1 where a test or the sanitizer is not done in its time" $?

card=(kit/scripts/on_card.sh)
ok=0
for call in 1 2 3; do
    ends 0 "${card[@]}" $call "$work/told" && ! grep -q 'not done' out && [ -s "$work/told/$call.log" ] ||
        ok=1
done
report "on_card.sh: each of its three calls ends with 0 where all was done" $ok
limits() { sed -n 's/^=== .*(at most \([0-9]*\) s)$/\1/p' "$work/told/$1.log" |
    awk '{ n += $1 } END { print n + 0 }'; }
[ "$(limits 1)" -gt 300 ] && [ "$(limits 1)" -le 550 ] && [ "$(limits 2)" -gt 300 ] &&
    [ "$(limits 2)" -le 550 ] &&
    [ "$(limits 3)" -gt 300 ] && [ "$(limits 3)" -le 550 ]
report "on_card.sh: the limits of a call's parts are 550 s together: none is left out for another" $?
cat "$work"/told/1-*.txt >all &&
    for name in kernels public_kernels operators gradients repeats delayed shared; do
    grep -q "test_cuda_$name" all || break
done && grep -q '^1..1' "$work/told/1.log"
report "on_card.sh: what a part prints is in its file and in the log" $?
ok=0
for what in "1 test_cuda_delayed" "1 memcheck" "2 bench_card" "2 resnet50 --batch 128" "3 fp8 --steps 20"; do
    if ! ends 1 "FAIL=${what#* }" "${card[@]}" "${what%% *}" "$work/told" ||
        ! grep -q '^failed, or not done in time:$' out; then
        ok=1 && echo "# passed over: $what" && break
    fi
done
report "on_card.sh: 1 where any part fails, and which" $ok
ends 4 "LACK=compare" "${card[@]}" 3 "$work/told" && grep -q 'could not be done here:' out &&
    ends 4 "LACK=tandem doctor" "${card[@]}" 2 "$work/told" && grep -q 'cuda:0 cannot be used here' out &&
    ends 2 "${card[@]}" && ends 2 "${card[@]}" 4 && grep -q '^usage:' err
report "on_card.sh: 4 where what it needs is missing, 2 where no call is named" $?
ends 1 HANG=test_cuda_kernels SECONDS_IN_ALL=8 "${card[@]}" 1 "$work/told" &&
    grep -q -- '--- test_cuda_kernels: stopped after' out &&
        grep -q 'operators: not done: no time is left' out
report "on_card.sh: 1 where a part is stopped, and where no time is left for the rest" $?

# --- Every command as it stands, over what stands in for a card: small models in place of large ones ---
stand_in=$build/tests/libtandem_cuda.so
cat >kit/build/tandem.small <<END
#!/bin/bash
words=() before=''
for word; do
    case \$before in
    --model) word=mlp:width=16 ;;
    --batch) word=2 ;;
    --steps) word=12 ;;
    --cluster) word=\${word//batch=256/batch=2}
        word=\${word//batch=16/batch=2} word=\${word//batch=32/batch=2} ;;
    esac
    words+=("\$word") before=\$word
done
TANDEM_BACKEND=$build/libtandem_backend.so TANDEM_CUDA=$stand_in exec "$tandem" "\${words[@]}"
END
chmod +x kit/build/tandem.small
ln -sf tandem.small kit/build/tandem
if [ -e "$stand_in" ]; then
    rm -rf "$work/dry"
    ends 0 "${card[@]}" 2 "$work/dry" &&
        grep -q '^mlp:width=16\|^resnet50  *128  *[0-9.]* ms' "$work/dry/2-steps.txt" &&
        ends 0 "${card[@]}" 3 "$work/dry" && ! grep -q 'exit code [1-9]' out
    report "on_card.sh: its commands run as they stand" $?
else
    skip "on_card.sh: its commands run as they stand" "there is no $stand_in: run make tests first"
fi

echo "1..$n"
[ $failed = 0 ]
