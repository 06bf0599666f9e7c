#!/bin/bash
# scripts/run_tests.sh with programs of our own: what it counts, what it says of skips, and that it fails
# where it must. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
runner=$(cd "$here/../../scripts" && pwd)/run_tests.sh

# program NAME: a shell script from standard input.
program() {
    { echo '#!/bin/bash' && cat; } >"$1" && chmod +x "$1"
}
# closes EXPECTED_CODE CLOSING_LINE PROGRAM…
closes() {
    local expected=$1 closing=$2
    shift 2
    "$runner" "$@" >out 2>err
    code=$?
    [ $code = "$expected" ] && [ "$(tail -n 1 out)" = "$closing" ] && [ ! -s err ]
}

program two <<<'printf "1..2\nok 1 - one\nok 2 - two\n"'
program bad <<<'printf "1..2\nok 1 - one\nnot ok 2 - two\n# why\n"; exit 1'
program plain <<<'echo done'
program broken <<<'echo oh; exit 3'
closes 0 '3 passed, 0 failed, 0 skipped' ./two ./plain && grep -q '^tests [0-9]* s' out &&
    BUILD_SECONDS=7 closes 0 '1 passed, 0 failed, 0 skipped' ./plain &&
    grep -q '^build 7 s, tests' out
report "lines of TAP are counted, other programs are one test each; build and tests are timed apart" $?
closes 1 '2 passed, 2 failed, 0 skipped' ./bad ./plain ./broken && grep -q '^    # why' out &&
    grep -q '^    exit code 3; what it printed:' out
report "a test that fails, and a program that does, fail the run, which shows what they printed" $?
sed -n '/^failed:/,/^tests/p' out | tr '\n' '|' | grep -qF \
    'failed:|    ./bad: exit code 1|      not ok 2 - two|    ./broken: exit code 3|tests'
report "what failed is listed once more at the end" $?

"$runner" >out 2>err
code=$?
[ $code = 2 ] && [ ! -s out ] && grep -q 'no test program was given' err
report "no program at all: exit code 2" $?

program cut <<<'printf "1..3\nok 1 - one\n"'
program dies <<<'printf "1..3\nok 1 - one\n"; kill -SEGV $$'
program late <<<'printf "1..1\nok 1 - one\n"; exit 9'
closes 1 '1 passed, 1 failed, 0 skipped' ./cut && grep -q '1 of 3 tests' out &&
    closes 1 '1 passed, 1 failed, 0 skipped' ./dies &&
    closes 1 '1 passed, 1 failed, 0 skipped' ./late
report "fewer tests than planned, a signal, and an exit code without a failed test fail the run" $?
program endless <<<'echo begun; sleep 1000 & wait'
TEST_SILENCE=1 closes 1 '0 passed, 1 failed, 0 skipped' ./endless &&
    grep -q 'stopped, because it hangs' out &&
    grep -q 'silent for 1 s: no output, and no processor time' out &&
    ! pgrep -f '^sleep 1000$' >/dev/null
report "a program that is silent is stopped with its children, and fails the run" $?
program circle <<<'echo begun; while :; do :; done'
TEST_SILENCE=60 TEST_PROCESSOR=1 closes 1 '0 passed, 1 failed, 0 skipped' ./circle &&
    grep -q 'no output within 1 s of processor time' out
report "a program that goes round in a circle is stopped, and fails the run" $?
# Each part takes longer than silence may: it prints, or a child of it computes.
program slow <<<'for k in 1 2 3 4; do sleep 0.7; echo $k; done; mkfifo end
    (end=$((SECONDS + 4)); while [ $SECONDS -lt $end ]; do for ((i = 0; i < 20000; i++)); do :; done; done
        echo over >end) &
    read -r word <end; echo "$word"'
TEST_SILENCE=2 TEST_PROCESSOR=60 closes 0 '1 passed, 0 failed, 0 skipped' ./slow
report "a program that takes longer than silence may, but prints or computes, goes on" $?

program lacks <<<'printf "1..2\nok 1 - one\nSKIP: this machine lacks cpu:avx2\nnot ok 2 # SKIP two\n"'
program partly <<<'printf "1..1\nSKIP bf16: no device here has it\nok 1 - one\n"'
program absent <<<'echo "SKIP: no small file system can be mounted here: not permitted"'
closes 0 '2 passed, 0 failed, 3 skipped' ./lacks ./partly ./absent && sed -n '/^skipped:/,/^tests/p' out |
    grep -q '^    ./lacks: this machine lacks cpu:avx2$' &&
    [ "$(grep -c '^    ./' out)" = 3 ]
report "what prints SKIP is skipped, in TAP or not, and listed with its reason" $?
program idle <<<'printf "1..1\nSKIP: no time today\nok 1 # SKIP one\n"'
program silent <<<'printf "1..1\nok 1 - one # SKIP\n"'
program plainly_idle <<<'echo "SKIP: no corpus"'
closes 1 '0 passed, 1 failed, 0 skipped' ./idle &&
    grep -q 'skips.txt does not allow: SKIP: no time today' out &&
    closes 1 '0 passed, 1 failed, 0 skipped' ./silent &&
        closes 1 '0 passed, 1 failed, 0 skipped' ./plainly_idle
report "a skip for a reason that is not on the list, or for none, fails the run" $?

# Each of the first two ends only when the other runs; the third, which is to be alone, only when neither
# does; the fourth, which waits and hardly computes, when both are over and the third has not begun.
mkdir -p tests/cli tests/fault tests/python
for one in first second; do
    program $one <<<"touch runs.$one; until [ -e runs.first ] && [ -e runs.second ]; do sleep 0.1; done
        sleep 0.2; touch $one.over"
done
program tests/cli/test_prediction.sh <<<'touch alone
    [ -e first.over ] && [ -e second.over ] && [ -e waited ]'
program tests/fault/test_comm <<<'[ -e first.over ] && [ -e second.over ] && [ ! -e alone ] && touch waited'
JOBS=2 closes 0 '4 passed, 0 failed, 0 skipped' tests/cli/test_prediction.sh tests/fault/test_comm ./first \
    ./second
report "programs run two at a time, but for those that need the machine to themselves" $?
program early <<<'[ -e long ]'
program tests/python/test_python.sh <<<'touch long'
JOBS=1 closes 0 '2 passed, 0 failed, 0 skipped' ./early tests/python/test_python.sh &&
    [ "$(sed -n '1s/ .*//p' out)" = ./early ]
report "what takes longest begins first, and is listed where it was given" $?
for k in 1 2 3 4 5 6 7 8 9 10 11 12; do program ./nap$k <<<"sleep $(((13 - k) / 4)).$((k % 4))"; done
JOBS=12 closes 0 '12 passed, 0 failed, 0 skipped' ./nap? ./nap1? &&
    [ "$(sed -n 's/^\.\/nap\([0-9]*\) .*/\1/p' out | tr '\n' ' ')" = "1 2 3 4 5 6 7 8 9 10 11 12 " ] &&
    [ "$(sed -n '/^the ten slowest:/,/^tests/p' out | grep -c 'nap')" = 10 ] &&
    sed -n '/^the ten slowest:/{n;p}' out | grep -q nap1
report "they are listed in the order given, and the ten slowest at the end" $?
echo "1..$n"
[ $failed = 0 ]
