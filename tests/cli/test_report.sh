#!/bin/bash
# `tandem report`: what a page holds, equal bytes, and what cannot be drawn. Speaks TAP. TANDEM_BUILD = the
# build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

cards=(--db cards.db --model resnet50 --batch 32 --predict)
cluster=(--cluster "8*v100@8 + 8*t4@8 net=100Gbit/s,5us")
gunzip -c "$here/fixtures/resnet50.sqlite.gz" >cards.db
"$tandem" allocate "${cards[@]}" "${cluster[@]}" -o plan.json --json -q >allocate.json 2>err
"$tandem" allocate "${cards[@]}" "${cluster[@]}" --pareto=4 --json -q >front.json 2>err
"$tandem" replay --db cards.db --plan plan.json --predict --operators --memory-timeline \
    --trace predicted.json --json >replay.json 2>err
sed 's/"origin":"simulated"/"origin":"measured"/' predicted.json >measured.json
cp "$here/fixtures/job.csv" job.csv
printf '{"step":%d,"loss":%s,"lr":0.1}\n' 1 2.5 2 null 3 2.0 >run.jsonl
printf '{"step":%d,"loss":%s,"lr":0.1}\n' 1 2.6 2 2.2 3 1.9 >other.jsonl
files=(plan.json allocate.json front.json replay.json predicted.json measured.json run.jsonl other.jsonl)

run 0 report "${files[@]}" -o page.html && for section in Verdict Cluster Timeline "Precision map" Trade-off \
    "Memory over the step" Training Provenance; do
        grep -q "<h2>$section</h2>" page.html || echo "$section" >>absent
    done && [ ! -e absent ]
report "every section that the files have something for" $?
! grep -q '<h2>Sensitivity</h2>' page.html && grep -q 'tandem sensitivity --model' page.html
report "a section without data is left out, and the command that makes it is named" $?
! grep -oE '(src|href)="[^"]*"' page.html | grep -vE '"(#[a-z0-9-]*|data:,)"' &&
    ! grep -q 'url(http' page.html &&
    ! grep -qE 'https?://' page.html && [ "$(wc -c <page.html)" -lt 2000000 ]
report "the page asks for nothing from outside, and is under 2 MB" $?
run 0 report "${files[@]}" -o again.html && cmp page.html again.html
report "the same files give the same bytes" $?
run 0 report "${files[@]}" -o - && cmp page.html out
report "-o - is standard output" $?
run 0 report --json plan.json -o one.html && grep -q '"schema": "tandem.report/1"' out &&
    grep -q '"file": "plan.json"' out
report "report --json" $?
run 0 report job.csv -o job.html && grep -q '<h2>Stragglers</h2>' job.html && grep -q 'heatmap' job.html
report "a recorded job is analysed, and its stragglers drawn" $?
grep -q 'losses missing' page.html && grep -A1 'run.jsonl</th>' page.html | grep -q '<td class="n">1</td>'
report "a loss that is missing is counted as a gap" $?

run 0 report predicted.json -o trace.html && grep -q '<h2>Timeline</h2>' trace.html
report "a trace without a plan" $?
run 0 report measured.json -o run.html && grep -q 'Only the run is here' run.html
report "a measured run without its prediction" $?
run 0 report plan.json "$here/fixtures/plan.json" -o two.html &&
    grep -q 'These files belong to 2 models' two.html
report "files of two models are kept apart, and the page says so" $?

# refused CODE TEXT ARGUMENT…: the page keeps its old bytes.
refused() {
    local expected=$1 text=$2
    shift 2
    echo old >old.html
    run "$expected" report "$@" -o old.html && grep -q -- "$text" err && [ "$(cat old.html)" = old ] &&
        [ "$(wc -l <err)" = 1 ]
}
refused 4 'tandem demo'
report "no file: exit code 4, and a command that makes something" $?
"$tandem" list devices --json >list.json
refused 4 'tandem allocate' list.json
report "nothing to show: exit code 4, and a command that makes something" $?
refused 5 "cannot read 'absent.json'" absent.json
report "a file that is missing" $?
: >empty.json
refused 3 "'empty.json' holds nothing" empty.json
report "an empty file" $?
echo '{"schema":"tandem.replay/1","step_ns":NaN}' >nan.json
refused 3 "'nan.json', line 1" nan.json
report "NaN, which is no JSON" $?
head -c 3000 replay.json >cut.json
refused 3 "'cut.json', line" cut.json
report "a result that is cut off" $?
head -c 3000 predicted.json >cut-trace.json
refused 3 "'cut-trace.json', byte" cut-trace.json
report "a trace that is cut off" $?
{ cat run.jsonl; echo '{"loss":1}'; echo '{"step":5}'; } >bad.jsonl
refused 3 "'bad.jsonl', line 4" bad.jsonl
report "a log with a line of something else" $?
{ cat run.jsonl; printf '{"step":4,"lo'; } >killed.jsonl
run 0 report killed.jsonl -o killed.html
report "a log whose last line was not finished" $?
echo '{"hello":1}' >foreign.json
refused 3 "'foreign.json' holds nothing that a page shows" foreign.json
report "somebody else's JSON" $?
sed 's/"dur":[0-9.]*/"dur":-5/' predicted.json >jumped.json
run 0 report jumped.json -o jumped.html && grep -q 'durations of jumped.json are below 0' jumped.html
report "a clock that jumped: said, and counted as 0" $?
run 5 report plan.json -o no/such/folder/page.html && grep -q 'no/such/folder' err
report "an output folder that is missing" $?
run 5 report plan.json -o /dev/full && grep -q /dev/full err
report "a full disk" $?
cp plan.json precious.json
run 2 report precious.json -o precious.json && cmp -s plan.json precious.json
report "the page never replaces a file that it is drawn from" $?

mkdir hostile && cp plan.json 'hostile/<script>alert(1)<.json'
run 0 report 'hostile/<script>alert(1)<.json' -o hostile.html && ! grep -q '<script>alert' hostile.html &&
    grep -q '&lt;script&gt;alert(1)&lt;.json' hostile.html
report "a file's name is shown as text" $?

# --- A profile store ---
seq 1 3000 >text
tiny=gpt_tiny:width=16,depth=1,heads=2,length=8
device=$("$tandem" list devices --json | grep -B 2 '"present": true' | sed -n 's/.*"name": "\(.*\)".*/\1/p' |
    head -n 1)
if [ -z "$device" ]; then
    skip "a page of a profile store" "this machine is none of the devices"
else
    own=(--model $tiny --batch 4 --device "$device" -q --db own.db)
    run 0 profile "${own[@]}" --repetitions 3 && run 0 sensitivity "${own[@]}" --data "$PWD/text" --steps 2 &&
        run 0 sensitivity "${own[@]}" --data "$PWD/text" --steps 4 --at 0,50% --repetitions 3 &&
        cp own.db before.db && stat -c %y own.db >when
    run 0 report --db own.db -o store.html && run 0 report own.db -o word.html && cmp store.html word.html &&
        for part in '<h2>Profile</h2>' '<h3>How steady the machine was' 'Costs by operator: '"$device" \
            '<h2>Sensitivity</h2>' 'fisher, nats' 'more samples, %' '95% interval' \
            "Who measured the store" '20[0-9-]* [0-9:]* UTC'; do
            grep -q "$part" store.html || echo "$part" >>without
        done && [ ! -e without ]
    report "a store's page: devices, steadiness, costs, sensitivities with intervals, and who measured" $?
    cmp own.db before.db && stat -c %y own.db | cmp - when && ! ls own.db-* >/dev/null 2>&1
    report "a store is only read" $?
    chmod 444 own.db && mkdir sealed && cp own.db sealed && chmod 555 sealed &&
        run 0 report sealed/own.db -o sealed.html
    report "a store that cannot be written to" $?
    chmod 755 sealed
    head -c 30000 before.db >cut.db
    refused 3 "'./cut.db' is damaged" --db cut.db && refused 3 "'./cut.db' is damaged" cut.db
    report "a store that is cut short" $?
    { head -c 20 /dev/zero; tail -c +21 before.db; } >overwritten.db
    refused 3 "'./overwritten.db' is damaged" overwritten.db
    report "a store whose first bytes are overwritten" $?
    if command -v sqlite3 >/dev/null; then
        sqlite3 other.db 'CREATE TABLE t (x)'
        cp before.db older.db && sqlite3 older.db 'PRAGMA user_version = 2'
    else
        python3 -c 'import sqlite3, shutil
sqlite3.connect("other.db").execute("CREATE TABLE t (x)")
shutil.copy("before.db", "older.db")
sqlite3.connect("older.db").execute("PRAGMA user_version = 2")'
    fi
    refused 3 "another program" --db other.db
    report "another program's database" $?
    refused 3 "schema version 2" --db older.db
    report "a store of an older version" $?
fi
refused 4 "there is no profile store './none.db'" --db none.db && [ ! -e none.db ]
report "a store that is not there is not made" $?
: >nothing.db
refused 4 "there is no profile store" --db nothing.db && [ ! -s nothing.db ]
report "a store of no bytes" $?
cp cards.db precious.db
run 2 report --db precious.db -o precious.db && cmp -s cards.db precious.db
report "the page never replaces a store" $?

# --- What made the files ---
odd="a'b <script>"$'\x01\xff'"\\"
cp plan.json "$odd"
run 0 replay --db cards.db --plan "$odd" --predict --json -q && mv out odd.json &&
    cat >line <<'END' && grep -qFf line odd.json
"command": "tandem replay --db=cards.db --plan=$'a\\'b <script>\\x01\\xff\\\\' --predict"
END
report "a result names the command that made it, as a shell reads it" $?
command=$(python3 -c 'import json; print(json.load(open("odd.json"))["made"]["command"])')
eval "set -- $command" && [ $# = 5 ] && [ "${4#--plan=}" = "$odd" ]
report "the line, read by a shell, gives the same words" $?
for file in plan.json allocate.json predicted.json; do
    { grep -q '"command": \{0,1\}"tandem ' $file && grep -q '"version":' $file && grep -q '"host":' $file; } \
        || echo $file
done >mute
grep -q '"version":"' predicted.json && [ ! -s mute ]
report "plans, results and traces say what made them" $?
"$tandem" allocate "${cards[@]}" "${cluster[@]}" -o elsewhere.json --report elsewhere.html --json -q \
    >second.json 2>err
cmp plan.json elsewhere.json &&
    diff <(grep -v '"seconds"' allocate.json) <(grep -v '"seconds"' second.json) >differ
report "where output goes is no part of it: the same bytes" $?
run 0 report odd.json plan.json -o odd.html && ! grep -q '<script>\\x01' odd.html &&
    grep -qF 'b &lt;script&gt;\x01\xff' odd.html && grep -qF '<code>tandem allocate --db=cards.db' odd.html
report "a hostile command line is shown as text" $?

# --- What forbids other precisions ---
run 0 allocate "${cards[@]}" "${cluster[@]}" --explain all --json -q && cp out explained.json &&
    run 0 report plan.json explained.json -o explained.html &&
    grep -q '; not [a-z0-9_]*: [^<]* over the target' explained.html
report "the precision map says what forbids other precisions: allocate --explain all" $?

# --- --report ---
run 0 allocate "${cards[@]}" "${cluster[@]}" --report allocate.html -q && for section in Verdict Cluster \
    Timeline "Precision map" Trade-off "Memory over the step"; do
        grep -q "<h2>$section</h2>" allocate.html || echo "$section" >>lacking
    done && [ ! -e lacking ] && grep -q '; not [a-z0-9_]*: ' allocate.html &&
    grep -q '<code>tandem allocate ' allocate.html && ! grep -q 'tandem replay --db' allocate.html
report "allocate --report: the plan, and its replay" $?
run 0 advise "${cards[@]}" --cluster "8*v100@8 net=100Gbit/s,5us" --add "8*t4@8" --report advise.html -q &&
    sed -n '/<h3>Candidates/,/<\/table>/p' advise.html >candidates &&
    [ "$(grep -c 'iB</td>' candidates)" -ge 3 ] && grep -q ">goodput<" candidates
report "advise --report" $?
run 5 allocate "${cards[@]}" "${cluster[@]}" --report no/such/page.html && [ ! -s out ]
report "--report into a folder that is missing: said before the work" $?
! ls .tandem* >/dev/null 2>&1
report "no files are left over" $?

echo "1..$n"
[ $failed = 0 ]
