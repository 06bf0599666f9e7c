#!/bin/bash
# Builds tandem with profiles/devices/measured/ as it would be without a tenth of the shapes, in all
# precisions, chosen by a checksum of their sizes: FOLDER gets it as `tandem`, what it has of others as
# `measured`, and the rows that were kept back as `kept.csv`. For bench/measured.sh and bench/ratios.sh.
# usage: bench/fold.sh TABLES FOLD FOLDER     TABLES: of docs/predicting.md, NAME.csv.xz; FOLD: 0 to 9
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=${TANDEM_BUILD:-$here/build}
[ $# = 3 ] || {
    echo "fold.sh: a folder of tables, a tenth and a folder are needed" >&2
    exit 2
}
tables=$(cd "$1" && pwd)
folder=$(cd "$3" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tree/build"
git -C "$here" ls-files -z | tar -C "$here" -c --null --ignore-failed-read -T - | tar -C "$work/tree" -x
cp -a "$build/obj" "$build/generated" "$build/flags" "$work/tree/build/"
rm -f "$work/tree/profiles/devices/measured"/*.csv
"$here/scripts/measured_extracts.py" "$tables" "$work/tree/profiles/devices/measured" \
    --leave-out "$2" --kept "$folder/kept.csv" 2>"$work/log"
make -C "$work/tree" --no-print-directory -j"${JOBS:-$(nproc)}" NVCC= build/tandem >>"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    exit 1
}
cp "$work/tree/build/tandem" "$folder/"
cp -r "$work/tree/profiles/devices/measured" "$folder/"
