#!/bin/bash
# Imported times, as a user files and uses them: all or none, also of two imports of which one is killed;
# what they sharpen and what they leave alone; and what is said of bad rows. Speaks TAP. TANDEM_BUILD = the
# build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
header=device,source,method,operator,precision,m,k,n,rows,columns,time_us
product() { echo "$1,here,loop,linear,fp32,$2,$3,$4,,,$5"; }
{ echo $header; product t4 4096 2048 4096 14000; echo t4,here,loop,copy,fp32,,,,8192,4096,1200
  echo t4,here,loop,add,fp32,,,,64,64,11; } >three.csv
# Of a device: how many rows the store has of it.
rows_of() {
    "$tandem" predict --device "$1" --db "$2" --json "linear m=8 k=8 n=8" | field calibrated_by /dev/stdin
}

run 0 profile --import three.csv --db a.db &&
    grep -q '^3 rows into a.db in .*rows/s; 0 were there already$' out &&
    grep -q '^t4: 3 rows: rate in f32 from 1, bandwidth from 1, launch from 1$' out
report "three rows are filed, and what follows from them is said" $?
run 0 profile --import three.csv,three.csv --db a.db --json && [ "$(field filed out)" = 0 ] &&
    [ "$(field known out)" = 6 ] && [ "$(rows_of t4 a.db)" = 3 ]
report "the same rows again are not filed again" $?

operator="linear m=2048 k=1024 n=1024"
run 0 predict --device t4 --db a.db --json "$operator" && field ns out >stored &&
    run 0 predict --device t4 --calibrate three.csv --json "$operator" && field ns out >given &&
    run 0 predict --device t4 --json "$operator" && field ns out >alone && cmp stored given &&
    ! cmp -s stored alone
report "predict with a store is predict --calibrate with its rows" $?
run 0 replay --model resnet20 --batch 8 --device t4 --predict --db a.db --json &&
    field step_ns out >imported &&
    [ "$(field fitted_to out | head -n 1)" = 3 ] &&
    run 0 replay --model resnet20 --batch 8 --device t4 --predict --db b.db --json &&
        field step_ns out >alone &&
    ! cmp -s imported alone
report "a replay is sharpened by them" $?
run 0 replay --model resnet20 --batch 8 --device v100 --predict --db a.db --json && field step_ns out >with &&
    run 0 replay --model resnet20 --batch 8 --device v100 --predict --db b.db --json &&
        field step_ns out >without &&
    cmp with without
report "another device stays as it is" $?
run 0 sensitivity --model mlp --batch 8 --data data --device cpu:sse41 --db a.db &&
    run 0 allocate --model mlp --batch 8 --device t4 --predict --db a.db --json -o plan.json &&
    grep -q '"fitted_to": 3' out &&
    run 0 advise --model mlp --batch 8 --cluster "v100 net=10Gbit/s,20us" --add "2*t4" --predict --json \
        --db a.db &&
    grep -q '"fitted_to": 3' out
report "allocate and advise rest on them, and say so" $?

# --- Half an import never stays ---
{ echo $header; for ((k = 1; k <= 4000; k++)); do product p100 "$k" 64 64 900; done; } >many.csv
mkfifo slow
"$tandem" profile --import slow --db c.db >killed.out 2>&1 &
killed=$!
exec 3>slow
head -n 3000 many.csv >&3 # more than a pipe holds: it has begun, and holds the store
"$tandem" profile --import three.csv --db c.db >other.out 2>&1 3>&- &
other=$!
kill -9 $killed
wait $killed 2>/dev/null
exec 3>&-
wait $other
code=$?
cp other.out out
[ $code = 0 ] && [ "$(rows_of p100 c.db)" = 0 ] && [ "$(rows_of t4 c.db)" = 3 ]
report "of two imports at once, one killed, the other is whole and the first left nothing" $?
{ head -n 2000 many.csv; product p100 4000 64 64 0; } >bad_end.csv
run 3 profile --import three.csv,bad_end.csv --db d.db && [ "$(rows_of p100 d.db)" = 0 ] &&
    [ "$(rows_of t4 d.db)" = 0 ] && grep -q 'bad_end.csv, line 2001: time_us must be a time above 0' err
report "one bad row in the second table: nothing of both is filed" $?

# --- What is said ---
{ echo $header; product t4 4096 2048 4096 14; } >unit.csv
run 3 profile --import unit.csv --db e.db &&
    grep -q 'unit.csv, line 2: linear took 14 us, which is below 2121 us, a quarter' err &&
    run 0 profile --import unit.csv --db e.db --force &&
        grep -q '1 contradict the datasheet, or others. times, by more than 3 x' out &&
    run 3 predict --device t4 --calibrate unit.csv "$operator" && grep -q 'line 2: linear took 14 us' err &&
    run 0 predict --device t4 --calibrate unit.csv --force "$operator"
report "milliseconds called microseconds: row, figure and bound; --force keeps them" $?
run 0 replay --model resnet20 --batch 8 --device t4 --predict --db e.db &&
    grep -q '^times .*, without 1 costs that contradict its datasheet, or others' out &&
    run 0 replay --model resnet20 --batch 8 --device t4 --predict --db e.db --json &&
        field step_ns out >with &&
    cmp with alone
report "a contradiction of the datasheet is said by a replay, not absorbed" $?
{ echo $header; product h101 8 8 8 9; product cpu:avx2 8 8 8 9; } >unknown.csv
run 4 profile --import unknown.csv --db f.db &&
    grep -q "'h101'.*Did you mean 'h100'? A description takes the peak" err
report "a device that is not described: the nearest name, and which facts it takes" $?
{ echo $header; echo t4,here,events,add,fp32,,,,64,64,60; } >tiny.csv
run 0 profile --import tiny.csv --db g.db &&
    grep -q '1 tiny ones between events show only what the host adds' out &&
    grep -q 'so no rate follows.*so no bandwidth follows.*so no launch follows' out
report "one tiny row between events: what can be fitted is said" $?
run 2 profile --import three.csv --model mlp && grep -q -- '--import files what was measured; --model' err &&
    run 2 profile --force --model mlp --device cpu:sse41 && run 2 profile --import , &&
        run 5 profile --import no.csv
report "wrong command lines are refused" $?

# --- What ships is a timing table, too ---
shipped=$here/../../profiles/devices/measured/t4_deepbench.csv
run 0 profile --import "$shipped" --db h.db && ! grep -q 'rate in s8' out &&
    head -n 100 "$shipped" >cut.csv && run 3 profile --import cut.csv --db i.db &&
    grep -q 'cut.csv, line 100: the table that ends here has .* rows, its header says count=' err
report "a file that ships is importable; its dot products give no rate; a cut one is refused" $?
with_and_without() { # DEVICE PRECISION: times with what others measured, and by the description
    run 0 predict --device "$1" --precision "$2" --json "$operator" && field ns out >with &&
        cp out said && run 0 predict --device "$1" --precision "$2" --json "$operator" --from-description &&
            field ns out >without
}
with_and_without t4 fp16 && ! cmp -s with without && [ "$(field others_rows said)" -gt 50 ] &&
    with_and_without h100 fp16 && cmp with without && [ "$(field others_rows said)" = 0 ] &&
    with_and_without t4 int8 && cmp with without && [ "$(field unmeasured_kernel said)" = true ]
report "predict follows what others measured of the kernel, and else the description" $?
run 0 replay --model resnet20 --batch 8 --device t4 --predict --db none.db --from-description &&
    grep -q '^times  *t4 predicted within [0-9]*%, described (in' out &&
    run 0 replay --model resnet20 --batch 8 --device t4 --predict --db none.db &&
        grep -q '^times  *t4 predicted within [0-9]*%, .*measured by others ([0-9]* rows)' out &&
    run 0 list devices && grep -q '^t4  *described, measured by others ([0-9]* rows)' out &&
    grep -q '^h100  *described  ' out
report "a replay and the list of devices say whether others measured, or a description decides" $?

left_over && report "no files are left over" 1 || report "no files are left over" 0
echo "1..$n"
[ $failed = 0 ]
