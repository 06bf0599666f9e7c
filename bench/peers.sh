#!/bin/bash
# What other simulators of training steps took where their published code was run, beside tandem here and now:
# 1,000 operators, 160 buckets, two classes. Prints a table for bench/README.md, where each figure is from,
# what each does that tandem does not, and the other way round. Only the column "tandem" is measured by this
# script; the others are written in it. usage: bench/peers.sh     needs `make`, jq; takes half a minute
set -eu
tandem=$(cd "$(dirname "$0")/.." && pwd)/build/tandem
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work"
"$tandem"-bench replay --json --model resnet20 --repetitions 20 >replay.json
"$tandem"-bench open --json --model resnet50 --batch 32 --cluster "16*t4@8 + 16*v100@8 net=100Gbit/s,5us" \
    >open.json

# FILE CASE: its median, in the largest unit below it.
median() {
    jq -er --arg name "$2" '.cases[] | select(.name == $name).median_ns |
        if . < 1e3 then "\(.) ns" elif . < 1e6 then "\(. / 1e3 * 100 | round / 100) us"
        else "\(. / 1e6 * 100 | round / 100) ms" end' "$1"
}
cost=$(median replay.json '1000 op, 2 classes, 32 ranks: cost')
flipped=$(median replay.json '1000 op, 2 classes, 32 ranks: flipped')
shared=$(median replay.json '1000 op, 2 classes, one CPU: flipped')
many=$(median replay.json '1000 op, 2 classes, 12288 ranks: cost')
drawn32=$(median replay.json '1000 op, 32 ranks one by one: drawn')
drawn128=$(median replay.json '1000 op, 128 ranks one by one: drawn')
stored=$(median open.json process)
predicted=$(median open.json 'process, all predicted')

row() { printf '%-12s  %-45s  %12s  %-48s  %10s\n' "$@"; }
row simulator 'a step of' takes 'tandem: a step of' tandem
row dPRO '1,000 operators, 32 ranks' '1.12 s' '1,000 operators, 32 ranks one by one' "$drawn32"
row '' '1,000 operators, 128 ranks' '9.2 s' '1,000 operators, 128 ranks one by one' "$drawn128"
row 'ASTRA-sim 2' '1,000 operators, 32 ranks' '0.18-0.38 s' 'the same, another time of a task, by classes' \
    "$cost"
row '' '1,000 operators, 128 ranks' '0.9-3.7 s' 'the same, 12,288 ranks' "$many"
row QSync 'two devices, an operator'"'"'s precision changed' '0.47 s' \
    '1,000 operators, a precision changed' "$flipped"
row '' '' '' '  on one machine, where both slow each other' "$shared"
row vTrain '100,914 nodes' '0.36 s' '(another graph: 3.6 us a node)' ''
row Calculon 'one evaluation of a configuration' '8.8 ms' 'resnet50, 32 ranks, whole process, from a store' \
    "$stored"
row SimuMax 'one evaluation of a configuration' '28.6 ms' \
    'resnet50, 32 ranks, whole process, all predicted' "$predicted"
cat <<END

dPRO (Hu et al., MLSys 2022) replays traces of every rank of a real job, with clocks aligned, \
and searches fusions and
partitions; tandem replays recorded jobs in \`whatif\`, but changes no graph. \
ASTRA-sim 2 (Won et al., ISPASS 2023) simulates collectives
chunk by chunk on networks down to packets; tandem has α and β on tiers of links. QSync (Zhao et al., IPDPS
2024) is the origin of the question: a precision for each operator of mixed devices. \
vTrain (Bang et al., MICRO 2024),
Calculon (Isaev et al., SC 2023) and SimuMax (2025) know tensor and pipeline parallelism \
and model transformers in closed
form or from profiled kernels; tandem knows data parallelism, and ZeRO, alone.
None of the others has a precision for each operator on each device with the cost of its casts, \
measured interference between
ranks on one machine and between compute and communication, a memory plan \
that is the executor's to the byte, or an
incremental replay; QSync has the first, by two hand-set constants for the coupling of two devices.

Where the others' times are from: each program's published code, \
run once on two cores with AVX-512, before 2026-11-21. None is a
figure of its paper. Which commit was run was not written down, so they show \
an order of magnitude and no more.
  dPRO         github.com/joapolarbear/dpro      1,000 operators on 32 and on 128 ranks
  ASTRA-sim 2  github.com/astra-sim/astra-sim    the same graph
  QSync        github.com/bytedance/QSync        a replay of two BERT-base graphs
  vTrain       github.com/VIA-Research/vTrain    a model of its own, 100,914 nodes
  Calculon     github.com/calculon-ai/calculon   a model of its own
  SimuMax      github.com/MooreThreads/SimuMax   a model of its own
END
