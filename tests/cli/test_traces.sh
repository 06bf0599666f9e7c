#!/bin/bash
# Traces of the PyTorch profiler, drawn at random in the ways of its many versions, are read as by a reader
# that shares no code with tandem: kernels, operators, steps, compute and communication (bench/traces.sh).
# Speaks TAP. TANDEM_BUILD = the build folder.
set -u
code=0
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
TANDEM_BUILD=$(dirname "$tandem")
export TANDEM_BUILD

mkdir drawn other
python3 "$here/draw_traces.py" drawn 60 1 && "$here/../../bench/traces.sh" drawn >out 2>&1 &&
    grep -q '^60 files, 0 differ, 0 not compared' out
report "60 drawn traces are read alike" $?

# What was drawn holds what it is there for.
awk '/^drawn/ { kernels += $2; joined += $3; without += $4; fragments += $6 }
    END { exit !(kernels > 500 && joined > 200 && without > 100 && fragments > 5) }' out
report "the traces have kernels with and without operators, and fragments" $?

# The two readers are held against each other indeed: a trace that tandem reads otherwise is found.
cat >wrapper <<END
#!/bin/bash
"$tandem" "\$@" | sed 's/"compute_ns": /"compute_ns": 7/'
END
chmod +x wrapper && mkdir build && mv wrapper build/tandem &&
    ! TANDEM_BUILD=$PWD/build "$here/../../bench/traces.sh" drawn >out && grep -q WRONG out
report "another compute time is found" $?

echo '{"name": "x", "version": "1.0"}' >other/package.json
head -c 700 "$here/fixtures/torch0.json" >other/cut.json
"$here/../../bench/traces.sh" other >out && [ "$(grep -c 'exit code 3' out)" = 2 ]
report "a file of another kind is refused as that, a cut one as cut" $?
echo "1..$n"
[ $failed = 0 ]
