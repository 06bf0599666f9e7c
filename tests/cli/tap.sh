# tap.sh: what tests of whole commands share; sourced. Makes and enters a directory of its own, with a small
# data set in it.
# shellcheck shell=bash disable=SC2034
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TANDEM_BUILD:-$here/../../build}" && pwd) || exit 4
tandem=$build/tandem
export LC_ALL=C
unset TANDEM_DB TANDEM_DATA TANDEM_STORE TANDEM_BACKEND TANDEM_CUDA TANDEM_COMMAND RANK WORLD_SIZE LOCAL_RANK
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 5

n=0 failed=0
# report NAME CODE: one line of TAP; on failure with what the last command printed.
report() {
    n=$((n + 1))
    if [ "$2" = 0 ]; then
        echo "ok $n - $1"
        return
    fi
    echo "not ok $n - $1"
    failed=$((failed + 1))
    { echo "exit code $code; stdout:"; head -n 30 out; echo "stderr:"; head -n 10 err; } | sed 's/^/# /'
}
# With TEST_LONG=1, as `make test LONG=1` sets it, scripts run all their cases.
is_long() { [ -n "${TEST_LONG:-}" ]; }
skip() {
    n=$((n + 1))
    echo "SKIP: $1: $2"
    echo "ok $n - $1 # SKIP $2"
}
# run EXPECTED_CODE ARGUMENT…: runs tandem; stdout in out, stderr in err.
run() {
    local expected=$1
    shift
    timeout 300 "$tandem" "$@" >out 2>err </dev/null
    code=$?
    note_left "$*"
    [ $code = "$expected" ]
}
# The same of a program beside it: run_other bench EXPECTED_CODE ARGUMENT… runs tandem-bench.
run_other() {
    local tandem=$tandem-$1
    shift
    run "$@"
}
# The same without the command that ends it in time: for an empty PATH.
run_bare() {
    local expected=$1
    shift
    "$tandem" "$@" >out 2>err </dev/null
    code=$?
    [ $code = "$expected" ]
}
# Members of a JSON object that are on a line of their own, in order: field step_ns FILE
field() { sed -n "s/^ *\"$1\": \(.*[^,]\),\{0,1\}\$/\1/p" "$2"; }
# The numbers of an array: array loss FILE
array() { sed -n "/^ *\"$1\": \[/,/\]/p" "$2" | sed '1d;$d' | tr -d ' ,'; }
# weakest, strongest: the first and the last CPU device here; empty: there is none. The list is in out.
find_devices() {
    local present
    run 0 list devices --json
    present=$(grep -B 2 '"present": true' out | field name - | tr -d '"' | grep '^cpu:')
    weakest=$(head -n 1 <<<"$present") strongest=$(tail -n 1 <<<"$present")
}
positive() { [ -n "$1" ] && [ "$1" -gt 0 ] 2>/dev/null; }
# Files that commands make for themselves. note_left COMMAND: those that are new are of COMMAND. left_over:
# says which, if any.
declare -A left_by=()
note_left() {
    local file
    for file in .tandem*; do
        [ ! -e "$file" ] || [ -n "${left_by[$file]:-}" ] || left_by[$file]="$1 (exit code ${code:-none})"
    done
}
left_over() {
    local file found=1
    note_left "an earlier command, or one that still runs"
    for file in .tandem*; do
        [ -e "$file" ] || continue
        echo "# left over: $file, of: ${left_by[$file]}"
        found=0
    done
    return $found
}

# --- A data set of our own: 64 + 16 images in the format of the MNIST family ---
idx() {
    local hex
    printf -v hex %02x "$1"
    printf "\\x$hex"
}
count() { idx 0; idx 0; idx 0; idx "$1"; }
mkdir data
pixels() { yes 'mixed devices train one model together, each in the precision that suits it' |
    head -c "$1"; }
labels() { for ((k = 0; k < $1; k++)); do idx $((k * 7 % 10)); done; }
{ idx 0; idx 0; idx 8; idx 3; count 64; count 28; count 28; pixels $((64 * 784)); } |
    gzip >data/train-images-idx3-ubyte.gz
{ idx 0; idx 0; idx 8; idx 3; count 16; count 28; count 28; pixels $((16 * 784)); } |
    gzip >data/t10k-images-idx3-ubyte.gz
{ idx 0; idx 0; idx 8; idx 1; count 64; labels 64; } >data/train-labels-idx1-ubyte
{ idx 0; idx 0; idx 8; idx 1; count 16; labels 16; } >data/t10k-labels-idx1-ubyte
