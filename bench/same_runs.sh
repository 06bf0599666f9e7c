#!/bin/bash
# A fixed list of 60 runs by two builds of tandem, before and after a change that should change no result:
# trainings with their losses, weights and checkpoints, replays with traces, allocations, graphs, predictions,
# traces read again, pages. Times that were measured are left out, as is what made a file.
#
# usage: bench/same_runs.sh OLD_TANDEM NEW_TANDEM FOLDER [RUN…]        some 4 minutes on two cores
#
# Prints a line a run: equal, or what differs; then a line a file. RENAMED="old=new …": members that have
# another name in NEW.
set -u
# shellcheck disable=SC2034  # by name, in run
old=$1 new=$2 dir=$3
shift 3
only=$*
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir/old" "$dir/new" && cd "$dir" || exit 5

run() { # NAME WORDS: runs tandem with them in both folders
    local name=$1 words=$2 quiet=-q build program
    [ -z "$only" ] || [[ " $only " = *" $name "* ]] || return 0
    case $words in graph* | list* | report*) quiet= ;; esac
    for build in old new; do
        program=${!build}
        (cd $build && eval "$program $words --json $quiet" >"$name.json" 2>"$name.err"
            echo "exit code $?" >>"$name.err")
    done
    python3 "$here/same_runs.py" result "$name"
}
D="--data fashion-mnist"
T="train --steps 6 $D --eval 0"
run t01 "$T --model mlp --device cpu:avx2"
run t02 "$T --model mlp --device cpu:avx2 --uniform int8"
run t03 "$T --model mlp --device cpu:sse41 --uniform int8_full"
run t04 "$T --model vit_tiny --device cpu:avx2"
run t05 "$T --model vit_tiny --device cpu:avx2_vnni --uniform int8"
run t06 "$T --model vit_tiny --device cpu:avx512_bf16 --uniform bf16"
run t07 "$T --model resnet20 --device cpu:avx2"
run t08 "$T --model resnet20 --device cpu:avx2 --uniform int8_full --amax delayed"
run t09 "$T --model resnet20 --device cpu:avx512_bf16 --uniform bf16 --accumulate 2"
run t10 "$T --model vit_tiny --device cpu:avx2 --batch 8 --accumulate 4 --recompute sqrt --clip 1"
run t11 "$T --model mlp --cluster 'cpu:avx2 + cpu:sse41' --uniform fp32,int8"
run t12 "$T --model vit_tiny --cluster 'cpu:avx512_bf16 + cpu:avx2' --uniform bf16,int8"
run t13 "$T --model mlp --cluster '2*cpu:avx2' --wire bf16"
run t14 "$T --model vit_tiny:dropout=0.1 --device cpu:avx2 --clip 1 --label-smoothing 0.1"
run t15 "$T --model mlp --device cpu:avx2 --schedule cosine --warmup 2 --lr 0.01 --seed 3"
run t16 "$T --model mlp --device cpu:avx2 --uniform random --seed 5"
run t17 "$T --model resnet20 --device cpu:sse41 --uniform random --seed 7"
run t18 "$T --model mlp --device cpu:avx2 --emulate=e4m3 --uniform int8"
run t19 "$T --model mlp --device cpu:avx2 --loss-scale 8 --export w.safetensors"
run t20 "$T --model mlp --device cpu:avx2 --init w.safetensors --seed 9"
run t21 "$T --model mlp --cluster 'cpu:avx2 batch=24 + cpu:sse41 batch=8' --momentum 0.5"
run t22 "$T --model vit_tiny --device cpu:avx2 --checkpoint c.ckpt"
run t23 "train --steps 9 $D --eval 200 --model vit_tiny --device cpu:avx2 --resume c.ckpt"
N="net=100Gbit/s,5us"
R="replay --predict"
run r01 "$R --model resnet50 --batch 32 --cluster '8*v100@8 + 8*t4@8 $N' --trace r01.trace"
run r02 "$R --model resnet50 --batch 32 --cluster '8*v100@8 + 8*t4@8 $N' \
    --uniform fp32,int8 --trace r02.trace"
run r03 "$R --model bert_base --cluster '8*t4@8 $N' --uniform fp16 --operators"
run r04 "$R --model vit_b16 --batch 16 --cluster '4*a100@4 + 4*l4@4 $N' --uniform bf16"
run r05 "$R --model gpt2_small --batch 4 --cluster '4*a100@4 $N' --accumulate 2 --recompute sqrt"
run r06 "$R --model mlp --device t4 --batch 64 --memory-timeline"
run r07 "$R --model resnet20 --device l4 --uniform int8 --amax delayed"
run r08 "$R --model mlp --batch 64 --cluster '4*t4@4 net=10Gbit/s,5us slow=1.5@rank1' \
    --simulations 20 --time-spread 5% --seed 4"
run r09 "$R --model bert_base --cluster '8*t4@8 $N' --zero 3"
run r10 "$R --model resnet50 --cluster '16*a100@8 link=600GB/s,1us net=9GB/s,5us' --collective auto"
run r11 "$R --model vit_b16 --batch 32 --cluster '2*v100@2 + 2*t4@2 net=10Gbit/s,5us' --memory 16GiB,4GiB"
run r12 "$R --model vgg16_bn --batch 8 --cluster '2*v100 net=10Gbit/s,5us' --wire bf16 --trace r12.et"
run r13 "$R --model resnet50 --batch 8 --device v100 --kernels pytorch"
run r14 "$R --model vit_tiny --device l4 --clip 1 --trace r14.trace --all-ranks"
run r15 "$R --model gpt_tiny --device h100 --uniform fp8 --operators"
run s01 "sensitivity --model mlp $D --steps 20 --device cpu:avx2 --by statistics"
A="allocate --predict --model mlp --sensitivity fisher --cluster"
run a01 "$A '2*v100@2 + 2*t4@2 net=10Gbit/s,5us' --max-step 5ms -o a01.plan"
run a02 "$A '2*t4@2 net=10Gbit/s,5us' --slowdown 2% -o a02.plan"
run a03 "$A '2*a100@2 + 2*l4@2 net=10Gbit/s,5us' --policy greedy --slowdown 5% -o a03.plan"
run a04 "$A '2*t4@2 + l4 net=10Gbit/s,5us' --policy uniform --uniform int8 -o a04.plan"
run a05 "$A '2*t4@2 + l4 net=10Gbit/s,5us' --policy qsync --slowdown 3% -o a05.plan"
run a06 "$A '2*t4@2 + l4 net=10Gbit/s,5us' --minimize memory --slowdown 10% -o a06.plan"
run g01 "graph show resnet50 --batch 4"
run g02 "graph show gpt2_small --batch 2"
run g03 "graph show bert_base --batch 2"
run p01 "predict --device h100 'linear m=4096 k=1280 n=3840' --precision fp32 --pass dgrad"
run p02 "predict --device t4 'linear m=4096 k=1024 n=1024' --precision fp16"
run p03 "predict --device v100 'softmax rows=1000 n=2000'"
run l01 "list models"
run l02 "list devices"
run l03 "list datasets"
run w01 "whatif ../old/r02.trace"
run w02 "whatif ../old/r01.trace"
run w03 "whatif ../old/r14.trace"
run v01 "report a01.plan --output p1.html"
run v02 "report --output p2.html r02.json"
run v03 "report --output p3.html t04.json t05.json"
python3 "$here/same_runs.py" files
