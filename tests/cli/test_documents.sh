#!/bin/bash
# Runs every command of README.md and docs/*.md as `$ command` in a block, document by document,
# each document in a folder of its own, and compares what it prints (standard output, then its error) with the
# lines below it. Speaks TAP. TANDEM_BUILD = the build folder.
#
# What is compared:
#   - of commands whose devices are all described, everything: their times follow from the sources;
#   - of all others what is left when these become one sign each: numbers with a unit of time, numbers before
#   "samples/s", numbers of
#     percent, and numbers with four digits or more after a point or an exponent (losses, which depend on the
#     instruction set);
#   - blanks and ends of lines count as one blank: tables move with their numbers, and long lines are wrapped;
#   - a line "…" matches any lines.
# Commands that are run nowhere here are below, in `left_out`, and are noted; what needs something that is
# not here is skipped, by `lacking`. fixtures/resnet50.sqlite.gz is what `tandem sensitivity` of
# planning.md leaves; so that command is not run, and the next one is.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
root=$(cd "$here/../.." && pwd)

left_out() { # COMMAND: why it is not run; fails where it is
    case $1 in
    *'sensitivity --model resnet50 --data'*) echo "minutes of training steps; its estimate is a fixture" ;;
    *vit_tiny:width=256,heads=4* | *tandem-demo-plan.json*)
        echo "tandem demo: minutes; test_demo.sh runs it"
        ;;
    sbatch* | srun*) echo "under a Slurm; tests/slurm/run.sh runs it" ;;
    *) return 1 ;;
    esac
}
lacking() { # COMMAND: what it needs and is not here; fails where all is
    if [[ $1 == *cpu:avx2* ]] && ! "$tandem" list devices | grep -q '^cpu:avx2  *yes'; then
        echo "this machine is no cpu:avx2"
    elif [[ $1 == *fashion-mnist* ]] && ! "$tandem" list datasets | grep -q '^fashion-mnist .* /'; then
        echo "apt-get install dataset-fashion-mnist"
    else
        return 1
    fi
}

# Of a document: NUMBER.command and NUMBER.expected for each "$ " line within a block.
extract() { # DOCUMENT FOLDER
    awk -v folder="$2" '
        /^```/ { inside = !inside; name = ""; next }
        !inside { next }
        sub(/^\$ /, "") {
            name = sprintf("%s/%03d", folder, ++n)
            sub(/ +# .*/, "") # what a command is for
            print > (name ".command")
            printf "" > (name ".expected")
            next
        }
        name { print > (name ".expected") }' "$1"
}
described() { grep -q -- '--predict\|published.sh' "$1" && ! grep -q 'cpu:\|strongest\|weakest' "$1"; }
plain() { tr -s ' \n' ' ' <"$1" | sed 's/ $//; s/^ //'; }
# Whether the machine was steady depends on who else uses it.
masked() {
    sed 's/; profile uncertainty: .*machine//' "$1" >steady.text
    plain steady.text | sed -E 's/[0-9]+(\.[0-9]+)? (ns|us|ms|s|min|h)\b/TIME/g; s/[0-9.]+ samples\/s/RATE/g
        s/[+-]?[0-9]+(\.[0-9]+)?%/PERCENT/g
        s/[+-]?[0-9]+\.[0-9]{4,}(e[+-][0-9]+)?/NUMBER/g'
}
# same NUMBER: what was printed is what the document says.
same() {
    local how=masked
    described "$1.command" && how=plain
    $how "$1.expected" >expected.text
    $how "$1.got" >got.text
    local expected got
    expected=$(cat expected.text) got=$(cat got.text)
    case $expected in
    *…*) [[ $got = "${expected%%…*}"*"${expected##*… }" ]] ;;
    *) [ "$got" = "$expected" ] ;;
    esac
}

mkdir bin && ln -s "$tandem" bin/tandem
export TANDEM_BUILD=$build # for scripts of bench/
PATH=$work/bin:$PATH
n_compared=0
for document in "$root"/README.md "$root"/docs/*.md; do
    name=$(basename "$document")
    mkdir "$work/$name" && cd "$work/$name" || exit 5
    gunzip -c "$here/fixtures/resnet50.sqlite.gz" >tandem.db
    extract "$document" .
    for command in [0-9]*.command; do
        [ -e "$command" ] || continue
        number=${command%.command} line=$(cat "$command")
        if why=$(left_out "$line"); then
            echo "# $name, command $number is left out: $why"
            continue
        elif why=$(lacking "$line"); then
            [ ! -s "$number.expected" ] || skip "$name, command $number" "$why"
            continue
        fi
        timeout 300 bash -c "${line/#bench\//$root/bench/}" >"$number.out" 2>"$number.err" </dev/null
        code=$?
        { cat "$number.out" && grep '^tandem: ' "$number.err"; } >"$number.got"
        [ -s "$number.expected" ] || continue
        n_compared=$((n_compared + 1))
        same "$number"
        result=$?
        cp "$number.got" out && : >err
        [ $result = 0 ] || diff expected.text got.text | fold -w 160 | sed 's/^/# /'
        report "$name: $line" $result
    done
    cd "$work" || exit 5
done
[ $n_compared -ge 7 ]
report "commands were found in the documents, and run: $n_compared" $?

echo "1..$n"
[ $failed = 0 ]
