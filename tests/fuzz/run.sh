#!/bin/bash
# The fuzz targets' own guards: a run on nothing fails, and scripts/fuzz.sh counts what it runs, finds a law
# that is broken, says where its input lies, and keeps few inputs. Speaks TAP. TANDEM_BUILD = the build
# folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/../cli/tap.sh"
root=$(cd "$here/../.." && pwd)

# ran_on_nothing PROGRAM [NAME=VALUE]: a target with seeds runs those; one without fails and says so.
ran_on_nothing() {
    local program=$1
    shift
    env TANDEM_FUZZ_INPUTS=1 "$@" "$program" >out 2>err
    code=$?
    if grep -q ', 0 given' out; then
        [ $code = 1 ] && grep -q "nothing was run.*tests/fuzz/corpus/${program##*/fuzz_}" err
    else
        [ $code = 0 ] && [ ! -s err ]
    fi
}
mkdir nothing
targets=$(find "$build/tests/fuzz" -name 'fuzz_*' -perm -100 -type f)
bad=$(for target in $targets; do
    { ran_on_nothing "$target" TANDEM_CORPUS=nothing && ran_on_nothing "$target"; } || echo "$target"
done)
ran_on_nothing "$build/tests/fuzz/fuzz_chakra" && [ $code = 1 ] && [ -z "$bad" ]
report "a fuzz target that ran on nothing fails${bad:+, but $bad}" $?

# --- scripts/fuzz.sh, on a target whose law "no input begins with law" is easily broken ---
cat >fuzz_planted.c <<'C'
#include <stdlib.h>
#include <string.h>
#include "tests/fuzz/fuzz_main.h"
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 3 && data[0] == 'l' && data[1] == 'a' && data[2] == 'w' && LAW) abort();
    return 0;
}
int main(int argc, char **argv)
{
    const uint8_t *const seed[] = {(const uint8_t *)"l"};
    return tandem_fuzz_main("planted", LLVMFuzzerTestOneInput, seed, (const size_t[]){1}, 1, argc, argv);
}
C
cc=$(command -v clang-14)
library=$([ -n "$cc" ] && $cc -print-file-name=libclang_rt.fuzzer_no_main-x86_64.a)
FUZZ_CC=no-such-compiler "$root/scripts/fuzz.sh" fuzz chakra >out 2>err
code=$?
[ $code = 0 ] && grep -q '^SKIP fuzz chakra: no-such-compiler' out
report "without clang, fuzzing is skipped aloud" $?
if [ ! -f "$library" ]; then
    skip "fuzzing with coverage guidance" "clang-14 with libFuzzer is not here (apt-get install clang-14)"
else
    export TANDEM_FUZZ_ROOT=$work/built TANDEM_CORPUS=$work/corpus SEED=1
    mkdir built corpus
    printf l >corpus/named_by_people
    planted() {
        $cc -I"$root" -DLAW="$1" -fsanitize=fuzzer-no-link,address fuzz_planted.c \
            "$root/tests/fuzz/libfuzzer/main.c" "$library" -lstdc++ -lm \
            -o built/libfuzzer_planted 2>err && shift &&
                env "$@" "$root/scripts/fuzz.sh" fuzz planted >out 2>err
        code=$?
    }
    planted 0 RUNS=100000
    [ $code = 0 ] &&
        grep -Eq '^fuzz planted: 10000[0-9] executions, [1-9][0-9]* edges covered, no finding$' out
    report "fuzz.sh counts its executions" $?
    "$root/scripts/fuzz.sh" minimise planted >out 2>err
    code=$?
    [ $code = 0 ] && [ "$(cat corpus/named_by_people)" = l ] &&
        [ "$(grep -cl '^law' corpus/* | wc -l)" = 1 ] &&
        [ "$(find corpus -type f | wc -l)" -le 6 ]
    report "fuzz-minimise keeps what people named, and few files that cover all" $?
    planted 1 RUNS=1000000
    found=$(sed -n 's/^run it again: [^ ]* //p' out)
    [ $code = 1 ] && grep -q 'a finding (exit code' out && [ -f "$found" ] &&
        [ "$(head -c 3 "$found")" = law ]
    report "fuzz.sh fails where a law is broken, and keeps the input" $?
fi

echo "1..$n"
[ $failed = 0 ]
