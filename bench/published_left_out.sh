#!/bin/bash
# Published steps of V100 and A100, predicted without a single row of these cards: `tandem-fit` gets the
# timing tables without them, a copy of the tree is built with the constants that come out, and
# bench/published.sh runs on it: with the kernels that each row says, and with one kernel set for all rows.
# usage: bench/published_left_out.sh TABLE.csv…     the tables of docs/predicting.md, "The fit"
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=${TANDEM_BUILD:-$here/build}
[ $# -gt 0 ] || {
    echo "published_left_out.sh: no table was given; give those that \`tandem-fit\` takes" >&2
    exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tables" "$work/tree" "$work/tree/build"

# without TABLE: all its rows but those of a V100 or an A100 in any form.
without() {
    awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "device") device = i
            if (!device) { print FILENAME ": has no column device" >"/dev/stderr"; exit 3 }
            print; next }
        { if (tolower($device) ~ /^(v100|a100)/) out++; else print }
        END { printf "%s: %d rows of V100 and A100 left out, %d stay\n", FILENAME, out, NR - 1 - out \
                >"/dev/stderr" }' "$1"
}
for table; do without "$table" >"$work/tables/$(basename "$table")"; done

git -C "$here" ls-files -z | tar -C "$here" -c --null --ignore-failed-read -T - | tar -C "$work/tree" -x
cp -a "$build/obj" "$build/generated" "$work/tree/build/"
"$build/tandem-fit" --quiet --leave-one-out -o "$work/tree/predictor/constants.def" "$work"/tables/*.csv |
    head -n 1
make -C "$work/tree" --no-print-directory -j"$(nproc)" NVCC= build/tandem >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    exit 1
}
export TANDEM_BUILD=$work/tree/build
"$work/tree/bench/published.sh"
for kernels in tandem pytorch pytorch-nhwc; do
    printf 'kernels of all rows %-13s ' "$kernels"
    "$work/tree/bench/published.sh" "$work/tree/bench/published.csv" "$kernels" | tail -n 1
done
