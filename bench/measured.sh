#!/bin/bash
# How far predictions are off on rows that others measured and that were kept back: every tenth shape, chosen
# by a checksum of its sizes, is left out of profiles/devices/measured/ in all precisions. A copy of the tree
# is built with what stays, and predicts those rows. Prints what `tandem predict --list` says of them, and by
# source (bench/measured.py) errors of all rows and of those above 0.2 ms, beside a nearest row's rate and the
# description's time. Last, how far the ratio of two precisions of one shape is off; of all tenths, with
# intervals: bench/ratios.sh.
# KEEP: a folder that gets kept.csv and that tandem, for bench/own_rows.py.
# FOLD: another tenth, of 0 to 9; how rows are used was chosen by others than 0.
# usage: bench/measured.sh TABLES     a folder with the tables of docs/predicting.md as NAME.csv.xz
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
[ $# = 1 ] || {
    echo "measured.sh: one folder is needed, that of the tables that scripts/measured_extracts.py takes" >&2
    exit 2
}
tables=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/here"
"$here/bench/fold.sh" "$tables" "${FOLD:-0}" "$work"
[ -z "${KEEP:-}" ] || KEEP=$(cd "$KEEP" && pwd)
cd "$work/here" # where no store is
tandem=$work/tandem
[ -z "${KEEP:-}" ] || cp "$work/kept.csv" "$tandem" "$KEEP"
"$tandem" predict --list "$work/kept.csv" -o "$work/predicted.csv"
"$tandem" predict --list "$work/kept.csv" --from-description -o "$work/described.csv" >/dev/null
echo
"$here/bench/measured.py" "$work/kept.csv" "$work/predicted.csv" "$work/described.csv" \
    "$work/measured"
