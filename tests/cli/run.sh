#!/bin/bash
# Golden tests of the command line: tests/cli/NAME.cmd is one shell line that runs $TANDEM in an empty
# directory; NAME.out and NAME.err are what it must print (absent: nothing), NAME.code is its exit code
# (absent: 0). $FIXTURES is tests/cli/fixtures. Speaks TAP. UPDATE=1 rewrites what is expected; `git diff` is
# the review. A word restricts it: tests/cli/run.sh help_train TANDEM_BUILD = the build folder.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TANDEM_BUILD:-$here/../../build}" && pwd) || exit 4
export TANDEM=$build/tandem FIXTURES=$here/fixtures LC_ALL=C
unset TANDEM_DB TANDEM_DATA TANDEM_STORE TANDEM_BACKEND TANDEM_CUDA TANDEM_COMMAND RANK WORLD_SIZE
unset LOCAL_RANK ARGP_HELP_FMT
[ -x "$TANDEM" ] || { echo "Bail out! there is no $TANDEM: run make first"; exit 4; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

# Prints the difference of a file to what is expected; an absent one is empty.
differs() {
    [ -e "$1" ] || set -- /dev/null "$2" "$3"
    ! diff -u --label "expected $3" --label "got $3" "$1" "$2" | sed 's/^/# /' | grep .
}

n=0 failed=0
for command in "$here"/*.cmd; do
    name=$(basename "$command" .cmd)
    [ $# = 0 ] || [ "$1" = "$name" ] || continue
    n=$((n + 1))
    mkdir "$work/$name" && cd "$work/$name" || exit 5
    timeout 120 bash -o pipefail -c "$(cat "$command")" >"$work/out" 2>"$work/err" </dev/null
    echo $? >"$work/code"
    sed -i '/^  "made": {$/,/^  },$/d' "$work/out" # this machine, this version
    if [ -n "${UPDATE:-}" ]; then
        for part in out err; do
            if [ -s "$work/$part" ]; then cp "$work/$part" "$here/$name.$part"; else rm -f \
                "$here/$name.$part"; fi
        done
        if [ "$(cat "$work/code")" = 0 ]; then rm -f "$here/$name.code"; else cp "$work/code" \
            "$here/$name.code"; fi
    fi
    expected=$here/$name.code
    [ -e "$expected" ] || { echo 0 >"$work/zero"; expected=$work/zero; }
    ok=1
    differs "$here/$name.out" "$work/out" output || ok=0
    differs "$here/$name.err" "$work/err" errors || ok=0
    differs "$expected" "$work/code" "exit code" || ok=0
    if [ $ok = 1 ]; then echo "ok $n - $name"; else echo "not ok $n - $name"; failed=$((failed + 1)); fi
    cd / && rm -rf "${work:?}/$name"
done
echo "1..$n"
[ "$n" != 0 ] && [ $failed = 0 ]
