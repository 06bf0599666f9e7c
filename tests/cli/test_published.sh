#!/bin/bash
# --init of weights by the names under which others publish them: five models, number by number. Speaks TAP.
# TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

find_devices
if ! command -v python3 >/dev/null || [ -z "$strongest" ]; then
    echo "SKIP: published weights: python3 is not here; apt-get install python3"
    echo "1..0 # SKIP python3 is not here; apt-get install python3"
    exit 0
fi
transformer=layers=2,width=8,heads=2
text=$transformer,seq=4,vocabulary=30,positions=6
declare -A model=(
    [bert]=bert_base:$text
    [gpt2]=gpt2_small:$text
    [vit]=vit_b16:$transformer,image=8x8x3,patch=4,classes=5
    [resnet18]=resnet18:width=4,image=32x32x3,classes=5
    [resnet50]=resnet50:width=4,image=32x32x3,classes=5)
declare -A left=([bert]="left out: 'bert.pooler.dense.weight', 'cls.seq_relationship.bias'"
    [gpt2]="left out: 'h.0.attn.bias'" [vit]= [resnet18]="left out: 'bn1.num_batches_tracked'"
    [resnet50]="left out: 'bn1.num_batches_tracked'")
train() { run "$1" train --model "$2" --device "$strongest" --batch 2 "${@:3}"; }

published() { python3 "$here/published.py" "$@" 2>err; }
# Loaded without learning, exported: the file's numbers. Loaded again: the same bytes.
comes_back() {
    published make "$1" "$1.st" && train 0 "${model[$1]}" --steps 1 --lr 0 --init "$1.st" --export own.st &&
        if [ -n "${left[$1]}" ]; then
            grep -qF "by published names: ${left[$1]}" err
        else
            ! grep -q "by published names" err
        fi && published check "$1" "$1.st" own.st &&
        train 0 "${model[$1]}" --steps 2 --init "$1.st" --export trained.st && ! cmp -s own.st trained.st
}
for name in bert gpt2 vit; do
    comes_back $name && train 0 "${model[$name]}" --steps 1 --lr 0 --init own.st --export again.st &&
        cmp own.st again.st
    report "$name: published weights are the model's; it trains, and exports them" $?
done
# A step adds a tenth of its own statistics to nine tenths of the file's.
for name in resnet18 resnet50; do
    comes_back $name && published make $name shifted.st 0.25 &&
        train 0 "${model[$name]}" --steps 1 --lr 0 --init shifted.st --export other.st &&
        published shifted 0.225 own.st other.st
    report "$name: published weights are the model's; it trains, and exports them" $?
done

# --- What does not fit ---
train 0 "${model[bert]},head=class" --steps 1 --lr 0 --init bert.st &&
    grep -q "not in it, as drawn: 'pooler.weight', 'pooler.bias', 'head.weight' and 1 more" err
report "a head that the file lacks is drawn, and said" $?
train 3 "${model[bert]/width=8/width=16}" --steps 1 --init bert.st &&
    grep -q "'bert.embeddings.word_embeddings.weight'.* does not have the shape of 'embedding.weight'" err &&
    train 3 "${model[bert]/layers=2/layers=3}" --steps 1 --init bert.st &&
    grep -q "no 'encoder.layer.2.attention.self.query.weight' for 'block2.attention.q.weight'" err &&
    train 3 "${model[gpt2]}" --steps 1 --init bert.st && grep -q "does not have the model's tensor" err
report "other sizes, more layers, another model: refused by name" $?
head -c 3000 bert.st >cut.st
train 3 "${model[bert]}" --steps 1 --init cut.st && grep -q "cut short" err
report "a file that is cut is refused" $?

echo "1..$n"
exit $((failed > 0))
