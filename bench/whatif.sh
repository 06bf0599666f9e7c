#!/bin/bash
# What-if analysis of a production trace of 8 GPUs beside its published answers, and how long that takes; then of 64 GPUs: the
# same trace with eight times the data-parallel ranks, each worker's compute slower or faster by up to 3%. Needs jq and `make`.
# The trace is not part of tandem: trace-ST.csv, result-ST.json, ms-ST.json, mw-ST.json lie in $TANDEM_SHARED_DATA/straggler.
# usage: bench/whatif.sh
set -eu -o pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
tandem=${TANDEM_BUILD:-$here/build}/tandem
data=${TANDEM_SHARED_DATA:-$here/../shared/data}/straggler
[ -e "$data/trace-ST.csv" ] || { echo "SKIP: there is no $data/trace-ST.csv; TANDEM_SHARED_DATA names the folder above"; exit 0; }
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
jq -n -r --slurpfile ours ours.json --slurpfile answers "$data/result-ST.json" --slurpfile stage "$data/ms-ST.json" \
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
