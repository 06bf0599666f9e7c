#!/bin/bash
# The study in small: every part meets its bar, twice with the same bytes. Speaks TAP. TANDEM_BUILD = the
# build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

if ! "$tandem" list datasets --json | grep -q '"present": true'; then
    echo "1..0 # SKIP fashion-mnist is not installed: dataset-fashion-mnist"
    exit 0
fi

run 0 study rounding --quick --quiet && grep -q 'cells are met' out
report "study: the variance of rounding meets its bar" $?

# Its bars take the full study; here: what is drawn, and no jump of a slope behind it.
run 1 study gradient --quick --quiet &&
    awk -F'|' '$2 == " drawn " { n++; if ($4 < 0.85 || $4 > 1.18 || $5 + 0 < 85) bad = 1 }
        END { exit bad || n != 2 }' out
report "study: a probe predicts the error of drawn roundings in the gradient" $?

"$tandem" study all --quick --quiet >first 2>err
"$tandem" study all --quick --quiet >second 2>err
[ -s first ] && cmp -s first second
report "study: the same bytes twice" $?

awk -F'|' '$2 == " noise " { n++; if ($4 < 0.85 || $4 > 1.18 || $6 + 0 < 70) bad = 1 }
    END { exit bad || n != 3 }' first
report "study: samples of the gradient's error predict its noise, and at another batch" $?

"$tandem" study rounding --quick --quiet --output tables >out 2>err && [ ! -s out ] &&
    cmp -s <(cat tables.md) <("$tandem" study rounding --quick --quiet) &&
    grep -q '"failed":0' tables.json && [ "$(grep -o '"rule_met":false' tables.json | wc -l)" -gt 100 ]
report "study: tables as Markdown and JSON" $?

run 5 study rounding --quick --quiet --output missing/tables && grep -q 'missing/tables.md' err
report "study: an output folder that is not there" $?

run 2 study roundin && grep -q "'rounding'" err && run 2 study && run 2 study all --output tables
report "study: parts that do not exist, and tables of all" $?

echo "1..$n"
[ $failed = 0 ]
