#!/bin/bash
# The tests of the CUDA backend that need a card, then what compute-sanitizer finds in them: reads and writes
# outside of memory, races in what the threads of a block share. Says SKIP and why where a card, a library or
# the sanitizer is missing, and exits 0; exits 1 where anything failed or was not done in its time.
# usage: scripts/test_cuda.sh [FOLDER OF THE PROGRAMS [tests|sanitizer]]     make test-cuda builds them into
# build/card; both
set -u
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-build/card} which=${2:-both}
kernels=$folder/test_cuda_kernels operators=$folder/test_cuda_operators repeats=$folder/test_cuda_repeats

missing=$(ldd "$kernels" | awk '/not found/ { printf "%s ", $1 }')
if [ -n "$missing" ]; then
    echo "SKIP: ${missing% } not found; they come with CUDA Toolkit 13, cuDNN 9 and libcmocka0"
    exit 0
fi
code=0
[ "$which" = sanitizer ] || "$here/run_tests.sh" "$folder"/test_cuda_* || code=1
[ "$which" = tests ] && exit "$code"

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
log=$(mktemp) && trap 'rm -f "$log"' EXIT
timeout "${SANITIZER_TIMEOUT:-120}" "$kernels" >"$log" 2>&1
ended=$?
if grep '^SKIP' "$log" >&2; then
    exit "$code"
elif [ "$ended" != 0 ]; then
    echo "$(basename "$kernels"), without the sanitizer: FAILED, exit code $ended"
    exit 1
elif [ -z "$sanitizer" ]; then
    echo "SKIP compute-sanitizer: it is not installed; it comes with CUDA Toolkit 13"
    exit "$code"
fi
check() { # TOOL PROGRAM ARGUMENT…
    local begin ended words
    begin=$(date +%s)
    timeout "${SANITIZER_TIMEOUT:-120}" "$sanitizer" --tool "$1" --error-exitcode 9 "${@:2}" >"$log" 2>&1
    ended=$?
    case $ended in
    0) words="nothing found" ;;
    124) words="FAILED, not done after ${SANITIZER_TIMEOUT:-120} s; SANITIZER_TIMEOUT gives it more" &&
        code=1 ;;
    *) words="FAILED, exit code $ended" && code=1 ;;
    esac
    printf '%-44s %s  %3ds\n' "$1 $(basename "$2")" "$words" "$(($(date +%s) - begin))"
    [ "$ended" = 0 ] || [ "$ended" = 124 ] || tail -n 40 "$log" | sed 's/^/    /'
}
for tool in memcheck racecheck; do
    check $tool "$kernels"
    check $tool "$folder/test_cuda_delayed"
    check $tool "$folder/test_cuda_coded"
    check $tool "$folder/test_cuda_attention"
    check $tool "$folder/test_cuda_rows"
    check $tool "$repeats" small
done
check memcheck "$operators"
exit "$code"
