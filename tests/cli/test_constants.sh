#!/bin/bash
# predictor/constants.def: a key that is missing, unknown or there twice ends the build; `tandem-fit --json`
# says what docs/json.md says. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
root=$here/../..

# compiles constants.c with a constants.def of its own
compiles() {
    mkdir -p with/predictor && cat >with/predictor/constants.def
    # shellcheck disable=SC2086 # CC may be a command with arguments
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -fsyntax-only -Iwith -I"$root" -I"$root/include" \
        "$root/predictor/constants.c" >out 2>err
    code=$?
    [ $code = 0 ]
}
table=$root/predictor/constants.def
compiles <"$table"
report "constants: the table as it is" $?
for key in FITTED SPREAD DEVICE RATIO DEVICE_RATIO; do
    ! awk -v key="^$key\\(" '$0 ~ key && !n++ { next } 1' "$table" | compiles &&
        grep -q "one row of each key" err
    report "constants: a build without a row of $key fails and says what to do" $?
done
! awk '/^FITTED\(/ && !n++ { print } 1' "$table" | compiles
report "constants: a build with a key twice fails" $?
! sed 's/^FITTED(LAUNCH,/FITTED(LUNCH,/' "$table" | compiles
report "constants: a build with an unknown key fails" $?

# a small table: products and streams of two cards
awk 'BEGIN {
    print "device,method,operator,precision,m,k,n,rows,columns,time_us"
    for (i = 1; i <= 160; i++) {
        printf "v100,loop,linear,fp32,%d,2048,1024,,,%g\n", 512 + 32 * i, (512 + 32 * i) * 0.00031 * 1000
        printf "a100,loop,linear,fp32,%d,2048,1024,,,%g\n", 512 + 32 * i, (512 + 32 * i) * 0.00024 * 1000
        printf "v100,loop,add,fp32,,,,%d,4096,%g\n", 4096 + 64 * i, (4096 + 64 * i) * 0.0597
        printf "a100,loop,add,fp32,,,,%d,4096,%g\n", 4096 + 64 * i, (4096 + 64 * i) * 0.027
    }
}' >rows.csv
run_other fit 0 rows.csv --leave-one-out --without launch,Prologue --json
report "constants: a fit of a small table, as JSON" $?
# every member of the document, and no other
grep '^| `fit` |' "$root/docs/json.md" | grep -o '`[a-z0-9_]*`' | tr -d '`' | sort -u >documented
sed '/"made": {/,/}/d' out | grep -o '"[a-z0-9_]*":' | tr -d '":' | grep -vx schema | sort -u >written
comm -13 documented written >differ
[ -s written ] && [ ! -s differ ]
code=$?
report "constants: docs/json.md names every member of fit" $code
grep -q '"constants": *"launch,Prologue"' out
report "constants: fit --without says what was dropped" $?
# every second row of a card takes 1.5 times as long: a row that calibrates judges nothing
awk -F, -v OFS=, '$1 == "a100" && $3 == "add" && n++ % 2 { $NF *= 1.5 } 1' rows.csv >uneven.csv
run_other fit 0 uneven.csv --leave-one-out --json && python3 -c '
import json
[cell] = [c for c in json.load(open("out"))["left_out"] if (c["device"], c["class"]) == ("a100", "stream")]
assert abs(cell["all_rows"] - 1 / 3) < 0.05, cell' 2>err
report "constants: rows that calibrate a card are not those that judge it" $?
run_other fit 2 rows.csv --without launch,lunch
grep -q "unknown constant 'lunch'" err
report "constants: fit --without an unknown constant is refused" $?
run_other fit 2 rows.csv --without ,
report "constants: fit --without no constant is refused" $?
echo "1..$n"
exit $((failed > 0))
