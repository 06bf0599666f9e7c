#!/bin/bash
# Files that people have, through the command line: a small model trains on each format, on one rank and on
# two, and resumes; damaged files are refused. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

find_devices
if [ -z "$weakest" ]; then
    skip "data files" "this machine is none of the devices"
    echo "1..$n"
    exit 0
fi
python3 "$here/make_data_files.py" || exit 5

# falls FILE: whether the last quarter of the losses in a result is below three quarters of the first one.
falls() {
    array loss "$1" | awk '{ l[NR] = $1 }
        END { n = int(NR / 4); for (i = NR - n + 1; i <= NR; i++) s += l[i] / n
            exit !(NR >= 8 && s < 0.75 * l[1]) }'
}
# learns STEPS ARGUMENT…: the loss falls; two ranks and a resumed run have the same losses.
learns() {
    local steps=$1
    shift
    run 0 train -q "$@" --batch 8 --device "$weakest" --steps "$steps" --json && falls out &&
        array loss out >whole && rm -f half.ckpt &&
        run 0 train -q "$@" --batch 8 --device "$weakest" --steps $((steps / 2)) --checkpoint half.ckpt &&
        run 0 train -q "$@" --batch 8 --device "$weakest" --steps "$steps" --resume half.ckpt --json &&
        array loss out | cmp -s - <(tail -n $((steps - steps / 2)) whole) &&
        run 0 train -q "$@" --batch 4 --device "$weakest,$weakest" --steps 2 --json &&
        array loss out >pair &&
        paste pair <(head -n 2 whole) | awk '{ d = $1 - $2; if (d * d > 1e-8 * $2 * $2) bad = 1 }
            END { exit bad || NR != 2 }'
}
# refused_data TEXT ARGUMENT…: exit code 3 and the text.
refused_data() {
    local text=$1
    shift
    run 3 train -q "$@" --batch 8 --device "$weakest" --steps 2 && grep -qF -- "$text" err || {
        echo "# expected: $text"
        return 1
    }
}

# --- Token ids ---
gpt=(--model "gpt_tiny:width=16,depth=1,heads=2,length=8,vocabulary=16" --eval 8 --lr 1e-2)
for file in nano.bin llmc.bin llama.bin; do
    learns 40 "${gpt[@]}" --data $file
    report "a causal transformer learns from $file, on one rank and two, and resumes to the bit" $?
done
run 0 train -q "${gpt[@]}" --data nano.bin --device "$weakest" --steps 8 --json && array loss out >nano &&
    run 0 train -q "${gpt[@]}" --data llmc.bin --device "$weakest" --steps 8 --json &&
    array loss out | cmp -s - nano
report "the same ids with and without a header train to the same losses" $?
learns 40 --model gpt2_small:seq=8,width=16,layers=1,heads=2,vocabulary=16 --data nano.bin --lr 1e-2
report "gpt2_small learns from token ids" $?
run 0 train -q --model bert_base:seq=16,width=16,layers=1,heads=2,vocabulary=14 --data nano.bin \
    --batch 16 --device "$weakest" --steps 160 --lr 1e-2 --json && falls out
report "a masked transformer learns from token ids" $?
refused_data "ids of 0 to 12, but the vocabulary of model 'gpt_tiny:length=8,vocabulary=12' allows 0 to 11" \
    --model gpt_tiny:length=8,vocabulary=12 --data nano.bin &&
    refused_data "allows 0 to 11, since the last one marks a hidden token. Use vocabulary=14" \
        --model bert_base:seq=8,vocabulary=13,layers=1,width=16,heads=2 --data nano.bin &&
    refused_data "takes images" --model mlp --data nano.bin
report "ids beyond the vocabulary are refused, and so are models of images" $?
head -c 1500 llmc.bin >cut.bin && head -c 1501 nano.bin >odd.bin && truncate -s 2G sparse.bin
refused_data "cut.bin is cut short" "${gpt[@]}" --data cut.bin &&
    refused_data "odd.bin has 1501 bytes" "${gpt[@]}" --data odd.bin &&
    refused_data "as where ids are uint32" "${gpt[@]}" --data wide.bin &&
    refused_data "were never written" "${gpt[@]}" --data sparse.bin
report "damaged files of token ids are refused" $?
# --- CIFAR ---
learns 24 --model mlp:width=16,image=32x32x3 --data cifar10 --eval 8 --lr 0.002
report "mlp learns from a directory of CIFAR-10" $?
learns 24 --model mlp:width=16,image=32x32x3,classes=100 --lr 0.02 \
    --data cifar100/train.bin,cifar100/test.bin
report "mlp learns from a list of files of CIFAR-100" $?
run 0 train -q --model resnet20:width=4,blocks=1,image=32x32x3 --data cifar10 --device "$weakest" --batch 8 \
    --steps 16 --json && falls out
report "resnet20 learns from CIFAR-10" $?
head -c 73000 cifar10/data_batch_1.bin >cifar10/data_batch_3.bin
refused_data "data_batch_3.bin has 73000 bytes, expected records of 3073" \
    --model mlp:image=32x32x3 --data cifar10 &&
    refused_data "has 100 classes or characters, but model 'mlp:image=32x32x3' has 10 outputs" \
        --model mlp:image=32x32x3 --data cifar100
report "damaged files of CIFAR are refused, and so are models with fewer outputs" $?
# --- NumPy ---
mlp=(--model mlp:width=16,image=8x8x1 --lr 0.02)
learns 24 "${mlp[@]}" --data images.npy,labels.npy --eval 8
report "mlp learns from images of uint8 in NumPy's files" $?
learns 24 "${mlp[@]}" --data floats.npy,labels.npy --eval 8
report "mlp learns from images of float32" $?
learns 24 --model mlp:width=16,image=1x64x1 --lr 0.02 --data features.npy,labels.npy
report "mlp learns from features" $?
run 0 train --model resnet20:width=4,blocks=1,image=16x16x3 --data floats.npy,labels.npy \
    --device "$weakest" --batch 8 --steps 16 --json && falls out && grep -q 'are resized to 16 × 16 × 3' err
report "resnet20 learns from images that are resized, which is said" $?
head -c 5000 features.npy >cut.npy
refused_data "takes samples of 8 × 8 × 1 (height × width × channels), but data 'features.npy,labels.npy' has \
samples of 64 features" "${mlp[@]}" --data features.npy,labels.npy &&
    refused_data "samples of dtype '<f8' (float64)" "${mlp[@]}" --data double.npy,labels.npy &&
    refused_data "label 0 is -1" "${mlp[@]}" --data floats.npy,far.npy &&
    refused_data "cut.npy is cut short" "${mlp[@]}" --data cut.npy,labels.npy
report "features for images, other types, labels and cut files are refused" $?
# --- Texts with labels ---
bert=bert_base:seq=12,width=16,layers=1,heads=2,vocabulary=64,head=class
for file in reviews.tsv numbers.tsv; do
    learns 60 --model $bert,classes=3 --data $file --eval 8 --lr 1e-2
    report "bert_base with head=class learns from $file, on one rank and two, and resumes to the bit" $?
done
refused_data "bare.tsv begins with the line" --model $bert,classes=3 --data bare.tsv &&
    refused_data "line 2 is no label and text with one tab" --model $bert,classes=3 --data tab.tsv &&
    refused_data "has 3 classes or characters, but model" --model $bert,classes=2 --data reviews.tsv &&
    refused_data "has one class for each sample" --model gpt_tiny:length=12,width=16 --data reviews.tsv
report "tables without a first line, with more tabs, or for other models are refused" $?
run 0 list datasets && grep -q '^FILE.bin .*token ids' out && run 0 list datasets --json &&
    grep -q '"name": "FILE.bin"' out
report "tandem list datasets has the formats" $?

echo "1..$n"
[ $failed = 0 ]
