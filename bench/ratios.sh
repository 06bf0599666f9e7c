#!/bin/bash
# How far predicted ratios of times of one shape in two precisions are off on rows that others measured and
# that were kept back, and how many lie inside their 80 % interval. Each tenth of the shapes is left out in
# turn, in all precisions (bench/fold.sh). Shapes that one source timed alike in two precisions are listed,
# and the list's checksum is printed, before anything is predicted. Prints what bench/ratios.py says of them:
# each ratio alone, and ratios of sums; "before" adds the intervals of both times as if their errors had
# nothing in common.
# FOLDS: tenths, "0 1 2 3 4 5 6 7 8 9". DESCRIBED: not empty, from the description alone.
# KEEP: a folder that gets a folder with rows and predictions of each tenth.
# usage: bench/ratios.sh TABLES     a folder with the tables of docs/predicting.md as NAME.csv.xz
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
[ $# = 1 ] || {
    echo "ratios.sh: one folder is needed, that of the tables that scripts/measured_extracts.py takes" >&2
    exit 2
}
tables=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -z "${KEEP:-}" ] || work=$(cd "$KEEP" && pwd)
[ -z "${KEEP:-}" ] || trap - EXIT
mkdir -p "$work/here"
for fold in ${FOLDS:-0 1 2 3 4 5 6 7 8 9}; do
    mkdir -p "$work/$fold"
    "$here/bench/fold.sh" "$tables" "$fold" "$work/$fold"
    "$here/bench/ratios.py" --choose "$work/$fold"
done
(cd "$work" && sha256sum -- */paired.csv | sha256sum | sed 's/ .*/ is the SHA-256 of the chosen rows/')
cd "$work/here" # where no store is
for fold in ${FOLDS:-0 1 2 3 4 5 6 7 8 9}; do
    for over in fp32 bf16; do
        # shellcheck disable=SC2086 # none or one option
        "$work/$fold/tandem" predict --list "$work/$fold/paired.csv" ${DESCRIBED:+--from-description} \
            --over $over -o "$work/$fold/over_$over.csv" >/dev/null
    done
done
cd "$work"
# shellcheck disable=SC2086 # one folder each
"$here/bench/ratios.py" ${FOLDS:-0 1 2 3 4 5 6 7 8 9}
