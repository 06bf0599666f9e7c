#!/bin/bash
# How often the intervals of trials (`tandem compare --measure-loss`) hold, and whether --at-most answers
# right: 16 plans of 3 models, each in ten trials of the same steps with seeds of their own. The interval of a
# trial's training loss is judged by the mean of the nine others; its answer to --at-most 10 % by the extra
# samples of the nine others. Exit code 1 where fewer than 432 or more than 470 of 480 hold, where the median
# width is above 1 % of the loss, or where answers miss. Formats are emulated.
#   bench/trials.sh [ROWS]   ROWS [trials.tsv] gets a line a trial; the next run goes on after the last one
#   PAIRS [8], DEVICE [strongest], JOBS [2]: environment. Needs `make`, python3 with NumPy, fashion-mnist,
#   bible-kjv-text, wordnet-base and jq; about an hour on two cores
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tandem=${TANDEM:-$here/../build/tandem}
rows=$(realpath -m "${1:-trials.tsv}") pairs=${PAIRS:-8} device=${DEVICE:-strongest} jobs=${JOBS:-2}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

# Fixed before the run; their hash is printed with the result. Branches begin at weights after 100 steps.
models="
gpt_tiny:width=32,heads=2,depth=2,length=32 bible-kjv-text
vit_tiny:width=16,heads=2,depth=2,patch=7 $work/x.npy,$work/y.npy
bert_base:head=class,classes=45,layers=2,width=32,heads=2,seq=16 wordnet-base"
# A precision, and the format in the place of its dtype; s8, e4m3 and so on: its own. The last three are
# int8_full with mxfp4 in which some operators stay in fp32: two at each end, every other, the first half.
plans="int8:s8 int8:s8_nearest int8:s4 int8:mxfp4 int8:ulp int8_full:s8 int8_full:s8_nearest int8_full:s4
int8_full:mxfp4 int8_full:ulp bf16:bf16 fp16:f16 fp8:e4m3 ends:mxfp4 every_other:mxfp4 first_half:mxfp4"
trials="1 2 3 4 5 6 7 8 9 10"
of=(-q --json --lr 0.001 --eval 0) on=(--device "$device" --batch 16)
steps=(--steps 120 --repetitions "$pairs")

make_images() { # 6,000 of fashion-mnist as arrays: a branch reads no more than it needs
    python3 - "$work" <<'PYTHON'
import gzip, sys
import numpy as np
def read(name, head):
    with gzip.open(f"/usr/share/datasets/fashion-mnist/{name}") as file:
        return np.frombuffer(file.read(), np.uint8)[head:]
np.save(f"{sys.argv[1]}/x.npy", read("train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1)[:6000])
np.save(f"{sys.argv[1]}/y.npy", read("train-labels-idx1-ubyte.gz", 8)[:6000].astype(np.int64))
PYTHON
}

make_plan() { # NAME MODEL DB: a plan of the model, whose hash the store has; some operators are in fp32
    local first
    first=$("$tandem" list devices --json | jq -r '[.devices[] | select(.present)] | last.name')
    [ "$device" = strongest ] || first=$device
    "$tandem" graph show "$2" --json | python3 -c '
import json, sqlite3, sys
name, device, store = sys.argv[1:]
graph = json.load(sys.stdin)
find = "SELECT hash FROM model WHERE name = ?"
graph_hash = sqlite3.connect(store).execute(find, (graph["model"],)).fetchone()[0]
names = [o["name"] for o in graph["operators"] if "int8_full" in o["precisions"]]
keep = {"ends": names[:2] + names[-2:], "every_other": names[::2], "first_half": names[: len(names) // 2]}
precision = {o["name"]: "fp32" if o["name"] in keep[name] or o["name"] not in names else "int8_full"
             for o in graph["operators"] if o["precisions"]}
of_class = {"device": device, "ranks": 1, "batch": 16, "precision": precision}
print(json.dumps({"schema": "tandem.plan/1", "name": name, "policy": "", "model": graph["model"],
                  "graph_hash": graph_hash, "classes": [of_class]}))' "$1" "$first" "$3" >"$work/$1.json"
}

is_done() { # MODEL PLAN TRIAL
    awk -F'\t' -v k="$1 $2 $3" '$1 " " $2 " " $3 == k { found = 1 } END { exit !found }' "$rows"
}
run_trial() { # MODEL DATA PLAN TRIAL DB INIT
    is_done "$1" "$3" "$4" && return 0
    local how=(--model "$1" "${on[@]}" --uniform "${3%:*}") format=${3#*:} said=$5.said
    case $3 in
    ends:* | every_other:* | first_half:*)
        make_plan "${3%:*}" "$1" "$5"
        how=(--plan "$work/${3%:*}.json")
        ;;
    esac
    case $format in
    s8 | bf16) ;;
    f16 | e4m3) how+=(--emulate) ;;
    *) how+=("--emulate=$format") ;;
    esac
    how+=("${of[@]}" --data "$2" --init "$6" "${steps[@]}" --seed "$4" --db "$5")
    "$tandem" compare --measure-loss "${how[@]}" >"$said.all" &&
        { "$tandem" compare --measure-loss "${how[@]}" --at-most 10% >"$said.asked" || [ $? = 1 ]; } || exit 1
    jq -r -n --arg model "$1" --arg plan "$3" --arg trial "$4" --slurpfile t "$said.all" \
        --slurpfile asked "$said.asked" \
        '[$model, $plan, $trial, $t[0].training.mean, $t[0].training.low, $t[0].training.high,
          $t[0].base_loss, $t[0].diverged, $t[0].extra_samples.mean, $asked[0].answer]
         | map(. // "-") | @tsv' >"$said.row"
    cat "$said.row" >>"$rows" # a line is written at once
}
run_model() { # MODEL DATA: in folders of their own, so that models may run beside each other
    local name=${1%%:*}
    [ -e "$rows.$name.init" ] || {
        "$tandem" train --model "$1" --data "$2" "${on[@]}" "${of[@]}" --steps 100 \
            --export "$rows.$name.part" >"$work/$name.out"
        mv "$rows.$name.part" "$rows.$name.init"
    }
    for plan in $plans; do
        for trial in $trials; do
            run_trial "$1" "$2" "$plan" "$trial" "$work/$name.db" "$rows.$name.init"
        done
    done
}

touch "$rows"
cd "$work"
make_images
while read -r model data; do
    [ -n "$model" ] || continue
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    run_model "$model" "$data" &
done <<<"$models"
wait

fixed=$(echo "${models//$work/}" "$plans" "$trials" "${of[*]}" "${steps[*]}" | sha256sum | cut -c 1-12)
echo "list $fixed, $device, $pairs pairs of 120 steps"
python3 "$here/trials.py" "$rows"
