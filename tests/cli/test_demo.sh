#!/bin/bash
# The whole loop as a new user runs it, with a smaller model and few steps: `tandem demo` to its end. Speaks
# TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

if [ "$(basename "$build")" != build ]; then
    skip "tandem demo" "a profile takes minutes with a sanitizer; test_loop.sh has its commands one by one"
elif run 0 doctor --json && [ "$(field ready out)" = true ]; then
    run 0 demo --model vit_tiny:width=64,depth=2,heads=2 --steps 4 --json --report demo.html &&
        [ "$(field accuracy out | sort -u)" = null ] && [ "$(field measured_ns out | wc -l)" -ge 3 ] &&
            positive "$(field measured_ns out | head -1)" &&
        [ -s tandem-demo-plan.json ] && [ -s tandem.db ]
    report "tandem demo: three cases, predicted and measured" $?
    for section in Verdict Cluster Timeline "Precision map" Trade-off "Memory over the step" Sensitivity \
        Provenance; do grep -q "<h2>$section</h2>" demo.html || echo "$section" >>absent; done
    [ ! -e absent ] && grep -q 'compute <b>predicted' demo.html && grep -q 'compute <b>measured' demo.html
    report "demo --report: every part, prediction and run on one axis" $?
    left_over
    report "no files are left over" $((!$?))
else
    skip "tandem demo" "doctor finds something missing here: $(field fix out | grep -v null | head -n 1 |
        tr -d '"')"
fi
echo "1..$n"
[ $failed = 0 ]
