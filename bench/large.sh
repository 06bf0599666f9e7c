#!/bin/bash
# Twenty steps of each large model in every precision that a device has: that no loss is NaN, how far it
# comes, and how long a step takes. Batches, images and sequences are small, so that it takes a quarter of an
# hour on one core; every other dimension is the published one. An operator that lacks a precision stays in
# fp32, so a model may have fewer adjustable ones than it has operators. Prints a table; exit code 1 where a
# run ended otherwise than with twenty finite losses. usage: bench/large.sh [DEVICE] [MODEL…]     needs `make`
set -u
tandem=${TANDEM:-$(cd "$(dirname "$0")/.." && pwd)/build/tandem}
device=${1:-strongest}
[ $# = 0 ] || shift
precisions=${PRECISIONS:-fp32 bf16 int8 int8_full}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 5
"$tandem" list devices >text.txt && for _ in 1 2 3 4 5 6; do cat text.txt text.txt >more.txt &&
    mv more.txt text.txt; done

failed=0
printf '%-46s %5s  %-10s %10s %10s %10s\n' model batch precision 'loss 1' 'loss 20' step
while read -r model batch rate data; do
    [ $# = 0 ] || [[ " $* " == *" ${model%%:*} "* ]] || continue
    for precision in $precisions; do
        if ! "$tandem" train -q --json --model "$model" --batch "$batch" --device "$device" --uniform \
            "$precision" --data "$data" \
            --eval 0 --steps 20 --lr "$rate" >out.json 2>err; then
            printf '%-46s %5s  %-10s %s\n' "$model" "$batch" "$precision" "$(head -c 160 err)"
            grep -q " has no $precision; it has " err || failed=1
            continue
        fi
        sed -n '/"loss": \[/,/\]/p' out.json | sed '1d;$d' | tr -d ' ,' >losses
        [ "$(grep -cE '^[0-9.e+-]+$' losses)" = 20 ] || failed=1
        step=$(sed -n 's/^ *"step_ns": \([0-9]*\),$/\1/p' out.json | head -n 1)
        printf '%-46s %5s  %-10s %10.4f %10.4f %7d ms\n' "$model" "$batch" "$precision" \
            "$(head -n 1 losses)" \
            "$(tail -n 1 losses)" $((step / 1000000))
    done
done <<END
resnet18:image=64 8 0.01 fashion-mnist
resnet50:image=64 8 0.01 fashion-mnist
vgg16_bn:image=64 8 0.01 fashion-mnist
vit_b16:image=64 4 1e-4 fashion-mnist
bert_base:seq=32 2 1e-4 text.txt
gpt2_small:seq=32 2 1e-4 text.txt
END
exit $failed
