#!/bin/bash
# The manual page and --help name the same commands, the same options of each, and the same defaults. Speaks
# TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
page=$here/../../docs/tandem.1

sed -n '/^\.SH COMMANDS/,/^\.SH OPTIONS/p' "$page" | sed 's/\\-/-/g' >commands
sed -n '/^\.SH OPTIONS/,/^\.SH EXIT/p' "$page" | sed 's/\\-/-/g' >options

run 0 --help && sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' out | sort >said && [ -s said ] &&
    awk '/^\.TP/ { getline; print }' commands | sed -n 's/^\.[A-Z]* "\{0,1\}tandem \([a-z]*\).*/\1/p' |
        sort | diff - said >differ
report "manual page: the commands of --help" $?

same() {
    awk -v name="$1" '/^\.TP/ { next_is_name = 1; next }
        next_is_name { inside = $0 ~ ("tandem " name "( |\"|$)"); next_is_name = 0 }
        inside' \
        commands | grep -oE -- '--[a-z][a-z-]*' | grep -vx -- --details | sort -u >manual
    run 0 "$1" --help && sed -n 's/^      --\([a-z-]*\).*/--\1/p; s/^  -o, --\([a-z-]*\).*/--\1/p' out |
        grep -vx -- --usage | sort -u >help
    diff manual help >differ
}
while read -r command; do
    same "$command" || sed 's/^/# /' differ
    [ ! -s differ ]
    report "manual page: the options of tandem $command --help" $?
done <said

while read -r command; do "$tandem" "$command" --help; done <said >all
grep -oE '^ {2,6}(-[a-z], )?--[a-z-]+' all | grep -oE -- '--[a-z-]+' | grep -vxE -- '--(usage|help)' |
    sort -u >help
awk '/^\.TP/ { getline; print }' options | grep -oE -- '--[a-z-]+' | grep -vxE -- '--(usage|help|version)' |
    sort -u | diff - help >differ
code=$?
sed 's/^/# /' differ
report "manual page: every option of any command has a paragraph, and no other" $code

# --- docs/json.md ---
members=$here/../../docs/json.md
cards=(--model resnet20 --cluster "4*t4@2 + 2*v100@2 memory=8MiB net=10Gbit/s,5us" --predict)
{
    for list in devices models precisions operators policies datasets; do "$tandem" list $list --json; done
    "$tandem" doctor --json
    "$tandem" graph show mlp --json
    "$tandem" replay "${cards[@]}" --json --operators --memory-timeline --simulations 3
    "$tandem" replay "${cards[@]}" --json --zero 2
    "$tandem"-bench trace --repetitions 1 --json
} 2>err >json
grep -oE '^ *"[a-z0-9_]+":' json | tr -d ' ":' | sort -u >named
# of types, categories and choices there are names of their own
grep -vxE 'schema|e4m3|e5m2|mxfp8|nvfp4|f16|f32|bf16|tf32|s8|unused' named | while read -r name; do
    grep -q "\`$name\`" "$members" || echo "$name"
done >unnamed
sed 's/^/# /' unnamed
[ -s named ] && [ ! -s unnamed ]
report "docs/json.md names every member that these commands print" $?

echo "1..$n"
[ $failed = 0 ]
