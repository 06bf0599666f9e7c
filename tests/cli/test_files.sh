#!/bin/bash
# What commands write: whole files that replace nobody else's, and a standard output that may be full. Speaks
# TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

# --- A full standard output ---
# to_full ARGUMENT…: exit code 5 and one line that says why, where the output is full; 0 and no line where it
# is not.
to_full() {
    "$tandem" "$@" >/dev/full 2>err
    code=$?
    [ $code = 5 ] &&
        [ "$(grep -v '^warning: rank' err)" = "tandem: cannot write the result to standard output" ] &&
        run 0 "$@"
}
to_full --help && to_full --version && to_full help list && to_full list devices && to_full list --usage &&
    to_full graph show mlp
report "what is written to a full standard output ends with exit code 5" $?
mute=$(run 0 --help && sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' out |
    while read -r command; do to_full "$command" --help || echo "$command"; done)
[ -z "$mute" ]
report "--help of every command onto a full disk: exit code 5${mute:+, but not $mute}" $?

# --- Whole files ---
cards=(--model mlp:width=8 --cluster "t4 batch=4 + v100 batch=4 net=10Gbit/s,5us" --predict)
run 0 sensitivity --model mlp:width=8 --batch 4 --device cpu:sse41 --data data -q ||
    report "sensitivities, which plans need" 1
# writes NAME ARGUMENT…: into a folder where others' files are in the way of any fixed name, over an old
# file that only its owner reads
writes() {
    local name=$1
    shift
    rm -rf folder && mkdir folder && echo old >"folder/$name" && chmod 600 "folder/$name" &&
        echo "the user's" >"folder/$name.tmp" &&
        ln -s "$name" folder/link && run 0 "$@" "folder/link" && [ -s "folder/$name" ] &&
            [ "$(cat "folder/$name")" != old ] &&
        [ "$(stat -c %a "folder/$name")" = 600 ] && [ -L folder/link ] &&
            [ "$(cat "folder/$name.tmp")" = "the user's" ] || return 1
    rm "folder/$name.tmp" && echo "the victim's" >victim && ln -s ../victim "folder/$name.tmp" &&
        run 0 "$@" "folder/$name" &&
        [ "$(cat victim)" = "the victim's" ] &&
            [ "$(find folder -mindepth 1 | sort |
                xargs)" = "$(printf '%s\n' folder/{link,"$name","$name.tmp"} | sort | xargs)" ]
}
writes plan.json allocate "${cards[@]}" -o
report "allocate -o: the old file's mode, the user's files and links stay" $?
writes t.json replay "${cards[@]}" --trace
report "replay --trace: the old file's mode, the user's files and links stay" $?
writes front.html allocate "${cards[@]}" --pareto=3 --report &&
    grep -q '<h2>Trade-off</h2>' folder/front.html &&
    "$tandem" allocate "${cards[@]}" --pareto=3 --report /dev/null >out 2>err &&
    [ -c /dev/null ] && run 5 allocate "${cards[@]}" --pareto=3 --report /dev/full && grep -q /dev/full err
report "allocate --report: the old file's mode, the user's files, links and devices stay" $?

mkdir small
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=16k tmpfs small 2>/dev/null; then
    trap 'umount "$work/small"; rm -rf "$work"' EXIT
    echo old >small/t.json
    run 5 replay "${cards[@]}" --trace small/t.json && grep -q 'small/t.json.*No space left' err &&
        [ "$(cat small/t.json)" = old ] &&
        [ "$(find small -type f | wc -l)" = 1 ] && ! find small -name '.tandem*' | grep -q .
    report "a full disk: exit code 5, the old file stays, and nothing is left over" $?
else
    skip "a full disk" "a file system of a few pages needs root and mount"
fi

left_over && failed=$((failed + 1))
echo "1..$n"
[ $failed = 0 ]
