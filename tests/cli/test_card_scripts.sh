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

card=(kit/scripts/on_card.sh "$work/told")
ends 0 "${card[@]}" && ! grep -q 'not done' out
report "on_card.sh: 0 where all was done" $?
ok=0
for what in test_cuda_delayed bench_card "fp8 --steps 20" memcheck "resnet50 --batch 128"; do
    if ! ends 1 "FAIL=$what" "${card[@]}" || ! grep -q '^failed, or not done in time:$' out; then
        ok=1 && echo "# passed over: $what" && break
    fi
done
report "on_card.sh: 1 where any part fails, and which" $ok
ends 1 "FAIL=bench step -q --model mlp" "${card[@]}" && grep -q 'a step on cuda:0' out
report "on_card.sh: 1 where a card runs no step" $?
ends 4 "LACK=bench step -q --model mlp" "${card[@]}" && grep -q 'could not be done here:' out
report "on_card.sh: 4 where what it needs is missing" $?
ends 1 HANG="tandem doctor" SECONDS_IN_ALL=6 "${card[@]}" &&
    grep -q -- '--- what is found: stopped after' out && grep -q 'tests: not done: no time is left' out
report "on_card.sh: 1 where a part is stopped, and where no time is left for the rest" $?

echo "1..$n"
[ $failed = 0 ]
