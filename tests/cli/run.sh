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

# slurp NAME FILE: the bytes of a file into a variable, without a process; of an absent one none. Fails where
# they hold a NUL, after which they are lost.
slurp() {
    printf -v "$1" ''
    [ ! -s "$2" ] || ! IFS= read -r -d '' "$1" <"$2"
}
# Whether a file is what is expected, of which an absent one is empty; prints the difference.
is_expected() {
    local right got
    slurp right "$1" && slurp got "$2" && [ "$right" = "$got" ] && return 0
    [ -e "$1" ] || set -- /dev/null "$2" "$3"
    ! diff -u --label "expected $3" --label "got $3" "$1" "$2" | sed 's/^/# /' | grep .
}
update() { # NAME: what was printed is what is expected from now on
    local part
    for part in out err; do
        if [ -s "$work/$part" ]; then cp "$work/$part" "$here/$1.$part"; else rm -f "$here/$1.$part"; fi
    done
    if [ "$code" = 0 ]; then rm -f "$here/$1.code"; else cp "$work/code" "$here/$1.code"; fi
}

names=()
for command in "$here"/*.cmd; do
    name=${command##*/} name=${name%.cmd}
    [ $# = 0 ] || [ "$1" = "$name" ] || continue
    names+=("$name")
done
mkdir "$work/in" "${names[@]/#/$work/in/}" || exit 5
echo 0 >"$work/zero"
n=0 failed=0 printed=
for name in ${names[@]+"${names[@]}"}; do
    n=$((n + 1))
    cd "$work/in/$name" && slurp command "$here/$name.cmd" || exit 5
    timeout 120 bash -o pipefail -c "$command" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    echo $code >"$work/code"
    # this machine, this version
    if ! slurp printed "$work/out" || [[ $printed = *'  "made": {'* ]]; then
        sed -i '/^  "made": {$/,/^  },$/d' "$work/out"
    fi
    [ -z "${UPDATE:-}" ] || update "$name"
    expected=$here/$name.code
    [ -e "$expected" ] || expected=$work/zero
    ok=1
    is_expected "$here/$name.out" "$work/out" output || ok=0
    is_expected "$here/$name.err" "$work/err" errors || ok=0
    is_expected "$expected" "$work/code" "exit code" || ok=0
    if [ $ok = 1 ]; then echo "ok $n - $name"; else echo "not ok $n - $name"; failed=$((failed + 1)); fi
done
echo "1..$n"
[ "$n" != 0 ] && [ $failed = 0 ]
