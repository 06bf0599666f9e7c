#!/bin/bash
# Inputs that were made to harm: 200 and more of each kind that tandem reads (hostile_inputs.py), and files of
# other users at the paths of outputs. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

if ! command -v python3 >/dev/null; then
    skip "hostile inputs" "apt-get install python3"
elif [ "$(basename "$build")" != build ]; then
    skip "hostile inputs" "the system counts what a sanitizer remembers, too"
else
    code=0
    every=4
    ! is_long || every=1
    [ $every = 1 ] || echo "# left out: three of four hostile inputs"
    python3 "$here/hostile_inputs.py" "$tandem" "$here/fixtures" "$here/../data/onnx" $every >out 2>err ||
        code=$?
    tail -n 1 out | sed 's/^/# /'
    [ $code = 0 ]
    report "no input takes the processor, the memory, the terminal or the program" $?
fi

# --- What a user of the machine left where root writes ---
if [ "$(id -u)" != 0 ]; then
    skip "links of other users" "to leave them needs root"
else
    mkdir -m 1777 open
    echo secret >victim && chmod 600 victim
    plan=$here/fixtures/plan.json
    # planted WHAT PATH ARGUMENT…: PATH is another user's link to the victim; the command fails, and says why
    planted() {
        local what=$1 path=$2
        shift 2
        ln -sfn "$work/victim" "$path" && chown -h 65534:65534 "$path"
        timeout 300 "$tandem" "$@" >out 2>err </dev/null
        code=$?
        [ $code != 0 ] && grep -q 'another user' err && [ "$(cat victim)" = secret ] && [ -L "$path" ]
        report "$what leaves the target of another user's link alone" $?
        rm -f "$path"
    }
    described=(--model 'mlp:depth=1,width=16' --cluster '1*t4 + 1*l4 net=10Gbit/s,5us' --predict)
    planted --trace open/t.json replay "${described[@]}" --trace open/t.json
    planted 'a report' open/r.html report "$plan" -o open/r.html
    planted --log open/log train -q --model mlp:depth=1,width=16 --device cpu:sse41 --steps 1 --log open/log
    planted --checkpoint open/c train -q --model mlp:depth=1,width=16 --device cpu:sse41 --steps 1 \
        --checkpoint open/c
    planted --export open/w.st train -q --model mlp:depth=1,width=16 --device cpu:sse41 --steps 1 \
        --export open/w.st
    planted 'a store' open/db profile --import "$here/fixtures/timings.csv" --db open/db
    planted 'an output of predict' open/list.csv predict --list "$here/fixtures/timings.csv" -o open/list.csv
    mkdir inside && ln -s "$work/inside" open/way && chown -h 65534:65534 open/way
    run 5 report "$plan" -o open/way/r.html && grep -q 'another user' err && [ ! -e inside/r.html ]
    report "nor is a folder entered by such a link" $?
    [ -z "$(find open -name '.tandem-*')" ]
    report "nothing is left beside" $?
fi

echo "1..$n"
[ $failed = 0 ]
