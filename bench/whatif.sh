#!/bin/bash
# What-if analysis of a production trace of 8 GPUs beside its published answers, and how long that takes; then
# of 64 GPUs: the same trace with eight times the data-parallel ranks, each worker's compute slower or faster
# by up to 3%. Needs jq and `make`. The trace and its answers are not part of tandem, but for eight steps
# (tests/data/straggler): --fetch gets them into FOLDER/straggler from the artifact of Lin et al., OSDI 2025
# (ByteDance-Seed/StragglerAnalysis, Apache-2.0), and checks them; --convert prints a timeline of theirs as
# CSV. usage: bench/whatif.sh --fetch FOLDER                            needs curl, too
#        TANDEM_SHARED_DATA=FOLDER bench/whatif.sh
#        bench/whatif.sh --convert timeline.json.gz >trace.csv
set -eu -o pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
source=https://raw.githubusercontent.com/ByteDance-Seed/StragglerAnalysis/8efcd7f37f158af26ac64d0b6fbf1f22d28a6e83/data

# Events of each worker; its stage is in the names of its threads. Times in us, as in the timeline.
convert() { # TIMELINE
    echo dp_rank,stage,tp_rank,stream,step,optype,model_chunk,mb_id,seq_id,start_us,dur_us
    gunzip -c "$1" | jq -r '
        (map(select(.ph == "M" and .name == "thread_name") | {key: "\(.pid)/\(.tid)",
            value: (.args.name
                | capture("^PP rank (?<stage>[0-9]+), TP rank (?<tp>[0-9]+), (?<stream>.*)$"))})
            | from_entries) as $thread
        | .[] | select(.ph == "X") | $thread["\(.pid)/\(.tid)"] as $at
        | [.pid, $at.stage, $at.tp, $at.stream, .args.step, .name, .args.model_chunk // -1,
           .args.mb_id // -1, .args.seq_id // -1, .ts, .dur] | @tsv' |
        awk -F '\t' -v OFS=, '{ $10 = sprintf("%.4f", $10); $11 = sprintf("%.4f", $11); print }'
}

fetch() { # FOLDER
    mkdir -p "$1/straggler" && cd "$1/straggler"
    for file in timeline-ST.json.gz result-ST.json ms-ST.json mw-ST.json; do
        curl -fsSL --retry 3 -o "$file" "$source/$file"
    done
    convert timeline-ST.json.gz >trace-ST.csv
    LC_ALL=C sort trace-ST.csv >sorted
    sha256sum --quiet -c - <<'SUMS'
292fe0ede0dc7746a75eb1b27cd08950c4c66d244e9d6ecd357403f85ba0b632  result-ST.json
d03182b340d96b4a082167797113db5ae6795e325ffab4ca9c665d2f7512ba26  ms-ST.json
2fedc2740ae172c05cf61a9647c6a478f1df4fec5aa1c656a8d14a93201742db  mw-ST.json
c4ee16fdc87ee8a2899b386a08afaed1d1113520cbc1847f080d0048bf2b74c0  sorted
SUMS
    rm sorted
}

case ${1:-} in
--fetch)
    fetch "${2:?usage: bench/whatif.sh --fetch FOLDER}"
    exit
    ;;
--convert)
    convert "${2:?usage: bench/whatif.sh --convert TIMELINE}"
    exit
    ;;
esac
tandem=${TANDEM_BUILD:-$here/build}/tandem
data=${TANDEM_SHARED_DATA:-$here/../shared/data}/straggler
[ -e "$data/trace-ST.csv" ] ||
    {
        echo "SKIP: there is no $data/trace-ST.csv; --fetch FOLDER gets it," \
            "TANDEM_SHARED_DATA names the folder"
        exit 0
    }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work"

seconds() { # COMMAND…: runs it; prints the seconds it took
    local begin end
    begin=$(date +%s%N)
    "$@"
    end=$(date +%s%N)
    awk -v ns=$((end - begin)) 'BEGIN { printf "%.3f s", ns / 1e9 }'
}
analyse() { "$tandem" whatif "$1" --json >"$2"; }

took=$(seconds analyse "$data/trace-ST.csv" ours.json)
echo "8 GPUs, $(($(wc -l <"$data/trace-ST.csv") - 1)) operators: $took"
jq -n -r --slurpfile ours ours.json --slurpfile answers "$data/result-ST.json" --slurpfile stage \
    "$data/ms-ST.json" \
    --slurpfile worker "$data/mw-ST.json" '
  $ours[0] as $o | $answers[0] as $a
  | def mean: [.[]] | add / length;
    def part(list; name): $o[list][] | select(.name == name);
    ["recorded step, s", $o.recorded_ns / 1e9, ($a.step_t_base | mean)],
    ["step without pauses, s", $o.step_ns / 1e9, ($a.step_t_nodelay | mean)],
    ["ideal step, s", $o.ideal_step_ns / 1e9, ($a.step_t_noblk | mean)],
    ["slowdown", $o.slowdown, $a.blocking_slowdown],
    ($o.by_operator[] | [.name, .slowdown, $a.blocking_decompose_by_optype[.name]]),
    ($o.by_stage[] | [.name, .slowdown, $a.blocking_decompose_by_stage[.name | ltrimstr("stage ")]]),
    ($o.by_dp_rank[] | [.name, .slowdown, $a.blocking_decompose_by_dp_rank[.name | ltrimstr("dp ")]]),
    ["step without stage 3, s", part("by_stage"; "stage 3").without_ns / 1e9, $stage[0].trem],
    ["ideal with stage 3, s", part("by_stage"; "stage 3").with_ns / 1e9, $stage[0].tadd],
    ["step without " + $o.by_worker[0].name + ", s", $o.by_worker[0].without_ns / 1e9, $worker[0].trem],
    ["ideal with " + $o.by_worker[0].name + ", s", $o.by_worker[0].with_ns / 1e9, $worker[0].tadd]
  | @tsv' | awk -F '\t' 'BEGIN { printf "%-34s %11s %11s %10s\n", "", "tandem", "published", "difference" }
    { printf "%-34s %11.7f %11.7f %+9.5f%%\n", $1, $2, $3, 100 * ($2 / $3 - 1) }'

awk -F, -v OFS=, 'BEGIN { srand(1) }
    NR == 1 { print; next }
    { dp = $1; us = $11
      for (copy = 0; copy < 8; copy++) {
          $1 = dp + 2 * copy
          key = $1 "," $2
          if (!(key in factor)) factor[key] = 0.97 + 0.06 * rand()
          $11 = $4 == "compute" ? sprintf("%.4f", us * factor[key]) : us
          print
      } }' "$data/trace-ST.csv" >64.csv
took=$(seconds analyse 64.csv 64.json)
echo "64 GPUs, $(($(wc -l <64.csv) - 1)) operators: $took"
