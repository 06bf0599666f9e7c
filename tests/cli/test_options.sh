#!/bin/bash
# Every option that a command takes is read by it, and every other one is refused. What a command reads is
# found in the sources (options_read.awk). Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

code=0
awk -f "$here/options_read.awk" "$here"/../../cli/options.def \
    "$here"/../../cli/{,command/,bench/,study/}*.c >out 2>err
[ ! -s err ] && [ "$(sed -n 's/^checked //p' out)" -ge 200 ] && ! grep -v '^checked' out
report "every option that a command declares is read by what it runs" $?

# The other way round: a member of the options that a command does not take is found to be unread.
unread='static const int options[] = {OPTION_SEED, OPTION_END};'
cp -r "$here/../../cli" edited &&
    sed -i "s/static const int options\[\] = {OPTION_END};/$unread/" edited/command/list.c &&
    awk -f "$here/options_read.awk" edited/options.def edited/{,command/,bench/,study/}*.c >out 2>err &&
        [ "$(grep -v '^checked' out)" = "list OPTION_SEED  seed" ]
report "an option that is declared and not read is found" $?

"$tandem" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' >commands
while read -r command; do
    "$tandem" "$command" --help | grep -oE '^ {2,6}(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+' |
        grep -vxE -- '--(usage|help)' | sort >"own.$command"
done <commands
sort -u own.* >all
# More than a thousand programs are started: whatever the shell does itself is no process more.
while read -r command; do
    own=$'\n'$(<"own.$command")
    while read -r option; do
        [[ $own != *$'\n'"$option"* ]] || continue # its own, or the beginning of one of those, which will do
        "$tandem" "$command" "$option" >out 2>err </dev/null
        got=$?
        mapfile -t lines <err
        printf -v says '%s\n' "${lines[@]}"
        refusal="tandem: \`tandem $command\` has no option $option; these commands have it: "
        [ $got = 2 ] && [[ $'\n'$says == *$'\n'"$refusal"* ]] ||
            echo "$command $option: exit code $got: ${lines[0]:-}"
    done <all
done <commands >taken
[ "$(wc -l <commands)" -ge 13 ] && [ "$(wc -l <all)" -ge 60 ] && [ ! -s taken ]
report "every command refuses every option of the others, and says whose it is" $?
sed 's/^/# /' taken

for words in "list -v" "graph show mlp -q" "whatif -d x trace.csv"; do
    # shellcheck disable=SC2086
    run 2 $words && grep -q 'has no option --' err
    report "a letter of another command: tandem $words" $?
done

# Questions that read less than their command.
while read -r words; do
    # shellcheck disable=SC2086
    run 2 $words
    report "refused, as nothing reads it: tandem $words" $?
done <<'LIST'
bench trace --model mlp
bench kernels --cluster cpu:sse41
bench allreduce --db other.db
allocate --verify plan.json --accumulate 2
allocate --verify plan.json --report x.html
allocate --verify plan.json --quiet
replay --model mlp --device cpu:sse41 --seed 1
LIST

echo "1..$n"
[ $failed = 0 ]
