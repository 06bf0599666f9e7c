#!/bin/bash
# Solves published knapsack problems to the end: ResNet-18 and ResNet-50 between int8 and int4 with measured
# latencies, from the input of HAWQ-V3's integer program (a JSON file, given here or in $TANDEM_HAWQ;
# github.com/Zhen-Dong/HAWQ has it). Prints a table: the optimum, the time of its proof (median of 9), the
# distance of policies greedy and bound from it, and the optimum that glpsol finds. Exits 1 where an optimum
# is not proven or glpsol finds another. usage: bench/mckp/hawq.sh [FILE]
# Needs `make build/bench/mckp` and jq, and glpk-utils for the check.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mckp=$here/../../build/bench/mckp
file=${1:-${TANDEM_HAWQ:-}}
[ -r "$file" ] || { echo "SKIP: no file of HAWQ-V3's inputs: give its path, or set TANDEM_HAWQ"; exit 0; }
command -v jq >/dev/null || { echo "SKIP: jq is not installed; apt-get install jq"; exit 0; }
command -v glpsol >/dev/null || echo "SKIP the check by glpsol: not installed; apt-get install glpk-utils"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

# The optimum that glpsol finds, or "-".
check() {
    command -v glpsol >/dev/null || { echo -; return; }
    jq -rf "$here/mckp_lp.jq" "$work/mckp.json" >"$work/mckp.lp"
    glpsol --lp "$work/mckp.lp" --output "$work/glpsol.txt" >/dev/null
    grep -q '^Status: *INTEGER OPTIMAL' "$work/glpsol.txt" &&
        sed -n 's/^Objective: *sensitivity = \([^ ]*\) .*/\1/p' "$work/glpsol.txt"
}

failed=0
printf '%-8s %4s  %6s %6s  %12s %6s %11s  %7s %7s  %12s\n' \
    network part layers groups optimum gap seconds greedy bound glpsol
for net in ResNet18 ResNet50; do
    for part in .25 .5 .75; do
        jq --arg net "$net" --argjson part "$part" -f "$here/hawq_mckp.jq" "$file" >"$work/mckp.json"
        for _ in 1 2 3 4 5 6 7 8 9; do "$mckp" "$work/mckp.json" exact; done >"$work/exact.json"
        other=$(check)
        jq -rn --arg net "$net" --arg part "$part" --arg other "$other" --slurpfile exact "$work/exact.json" \
            --argjson greedy "$("$mckp" "$work/mckp.json" greedy)" \
            --argjson bound "$("$mckp" "$work/mckp.json" bound)" '
            def percent: . * 1e4 | round / 100 | "\(.)%";
            $exact[0] as $e | [$net, $part, $e.items, $e.groups, $e.sensitivity, ($e.gap | percent),
                ($exact | map(.seconds) | sort | .[4]), ($greedy.sensitivity / $e.sensitivity - 1 | percent),
                (1 - $bound.lower_bound / $e.sensitivity | percent), $other] | @tsv' >"$work/row"
        # shellcheck disable=SC2046,SC2183 # the row is ten words
        printf '%-8s %4s  %6d %6d  %12.9f %6s %11.6f  %7s %7s  %12s\n' $(cat "$work/row")
        jq -en --arg other "$other" --slurpfile exact "$work/exact.json" '
            $exact[0].gap == 0 and
            ($other == "-" or ($exact[0].sensitivity / ($other | tonumber) - 1 | fabs) < 1e-6)' >/dev/null ||
            failed=1
    done
done
exit $failed
