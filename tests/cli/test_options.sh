#!/bin/bash
# Every option that a command takes is read by it, and every other one is refused. What a command reads is
# found in the sources (options_read.awk). Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

code=0
awk -f "$here/options_read.awk" "$here"/../../cli/options.def \
    "$here"/../../{cli/{,command/},bench/program/,research/,tools/}*.c >out 2>err
[ ! -s err ] && [ "$(sed -n 's/^checked //p' out)" -ge 200 ] && ! grep -v '^checked' out
report "every option that a command declares is read by what it runs" $?

# The other way round: a member of the options that a command does not take is found to be unread.
unread='static const int options[] = {OPTION_SEED, OPTION_END};'
cp -r "$here/../../cli" edited &&
    sed -i "s/static const int options\[\] = {OPTION_END};/$unread/" edited/command/list.c &&
    awk -f "$here/options_read.awk" edited/options.def edited/{,command/}*.c >out 2>err &&
        [ "$(grep -v '^checked' out)" = "list OPTION_SEED  seed" ]
report "an option that is declared and not read is found" $?

"$tandem" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' >commands
while read -r command; do
    "$tandem" "$command" --help | grep -oE '^ {2,6}(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+' |
        grep -vxE -- '--(usage|help)' | sort >"own.$command"
done <commands
sort -u own.* >all
# More than a thousand programs are started: whatever the shell does itself is no process more.
every=4 # of all pairs of a command and an option, one in so many
! is_long || every=1
[ $every = 1 ] || echo "# left out: three of four options that a command does not have"
k=0
while read -r command; do
    own=$'\n'$(<"own.$command")
    while read -r option; do
        ((++k % every == 0)) || continue
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

# A program of one command has the options of no other.
run_other study 2 rounding --model mlp &&
    grep -q '^tandem-study: `tandem-study` has no option --model\. ' err &&
    run_other fit 2 rows.csv --quick && grep -q '^tandem-fit: `tandem-fit` has no option --quick\.' err &&
    run_other bench 2 step --recorded && run 2 train --quick && run_other study 0 --version &&
    [ "$(<out)" = "tandem-study $("$tandem" --version | cut -d ' ' -f 2)" ]
report "programs of one command: what they have and what not" $?
while read -r words; do
    # shellcheck disable=SC2086
    run_other bench 2 $words && grep -q "^tandem-bench: \`tandem-bench ${words%% *}\` has no option" err
    report "refused, as nothing reads it: tandem-bench $words" $?
done <<'LIST'
trace --model mlp
kernels --cluster cpu:sse41
allreduce --db other.db
LIST

# Questions that read less than their command.
while read -r words; do
    # shellcheck disable=SC2086
    run 2 $words
    report "refused, as nothing reads it: tandem $words" $?
done <<'LIST'
allocate --verify plan.json --accumulate 2
allocate --verify plan.json --report x.html
allocate --verify plan.json --quiet
replay --model mlp --device cpu:sse41 --seed 1
LIST

echo "1..$n"
[ $failed = 0 ]
