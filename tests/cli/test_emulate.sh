#!/bin/bash
# Emulated precisions: they train, say that they are emulated, and have no times. Speaks TAP. TANDEM_BUILD =
# the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"

of=(--model mlp:width=32 --device cpu:sse41 --batch 16 --steps 12 --eval 0 --quiet --json)
if ! "$tandem" list devices --json | grep -A4 '"cpu:sse41"' | grep -q '"present": true'; then
    echo "1..0 # SKIP this machine has no cpu:sse41"
    exit 0
fi
losses() { sed -n '/"loss"/,/\]/p' out; }

run 0 train "${of[@]}" && losses >fp32 && grep -q '"emulated": false' out
report "emulate: fp32's own losses" $?

for precision in fp32 tf32 fp16 bf16 fp8 int8 int8_full; do
    run 0 train "${of[@]}" --uniform $precision --emulate && grep -q '"emulated": true' out &&
        grep -q '"samples_per_s": null' out && losses >"is.$precision" && [ -s "is.$precision" ] &&
        { [ $precision = fp32 ] || ! cmp -s fp32 "is.$precision"; } &&
        run 0 train "${of[@]}" --uniform $precision --emulate --error-scale 0 && losses | cmp -s - fp32
    report "emulate: $precision trains without times, and with errors times 0 has fp32's bits" $?
done
cmp -s fp32 is.fp32
report "emulate: fp32 has fp32's bits" $?

run 0 train "${of[@]}" --uniform int8_full --emulate=ulp && losses >ulp &&
    run 0 train "${of[@]}" --uniform int8_full --emulate=ulp --error-scale 1000 &&
    ! losses | cmp -s - ulp &&
    run 0 train "${of[@]}" --uniform int8_full --emulate=s4 && losses >s4 && ! cmp -s s4 is.int8_full &&
    awk -F, 'NR == FNR { a[NR] = $1; next }
        FNR > 1 && $1 + 0 > 0 { d = $1 - a[FNR]; if (d * d > 1e-4) bad = 1 }
        END { exit bad }' fp32 ulp
report "emulate: a format in the place of its dtype; ulp is close to fp32" $?

# A format, and a precision that casts to the dtype that it replaces.
touch seen
for pair in nvfp4:int8 nvfp4:int8_full nvfp4_sr:int8_full mxfp4:int8_full mxfp6_e2m3:int8_full \
    mxfp6_e3m2:int8_full mxfp8_e4m3:fp8 mxfp8_e5m2:fp8 e4m3_128:fp8 e5m2_128:fp8; do
    own=${pair#*:}
    run 0 train "${of[@]}" --uniform "$own" --emulate="${pair%:*}" && grep -q '"emulated": true' out &&
        grep -q '"samples_per_s": null' out && losses >in_blocks && ! cmp -s in_blocks "is.$own" &&
        ! cmp -s in_blocks fp32 && ! grep -Fqx "$(cksum <in_blocks)" seen && cksum <in_blocks >>seen &&
        run 0 train "${of[@]}" --uniform "$own" --emulate="${pair%:*}" --error-scale 0 &&
        losses | cmp -s - fp32
    report "emulate: ${pair%:*} in the place of what $own casts to" $?
done

# Recipes: each has losses of its own, and errors times 0 have fp32's bits. What a note counts: the operators
# that a recipe does, keeps and cannot do.
noisy=(--model mlp:width=32 --device cpu:sse41 --batch 16 --steps 12 --eval 0 --json)
for recipe in nvfp4_recipe nvfp4_without_sr nvfp4_without_hadamard nvfp4_without_2d; do
    run 0 train "${noisy[@]}" --uniform int8_full --emulate=$recipe && grep -q '"emulated": true' out &&
        grep -q "^$recipe: .*each operand: 2; .*in bf16: 1; .*to nvfp4: 0$" err &&
        losses >of_recipe && ! cmp -s of_recipe fp32 && ! grep -Fqx "$(cksum <of_recipe)" seen &&
        cksum <of_recipe >>seen &&
        run 0 train "${of[@]}" --uniform int8_full --emulate=$recipe --error-scale 0 &&
        losses | cmp -s - fp32
    report "emulate: $recipe in the place of s8" $?
done
run 0 train --model resnet20:width=8,image=8x8x1 --device cpu:sse41 --batch 4 --steps 2 --uniform int8_full \
    --emulate=nvfp4_recipe && grep -q 'each operand: 0; .*in bf16: 1; that it cannot do, .*: 21$' err &&
    run 0 train "${noisy[@]}" --uniform int8 --emulate=nvfp4_recipe && losses >of_recipe &&
    ! cmp -s of_recipe fp32
report "emulate: what a recipe cannot do is counted; int8 rounds its forward product" $?

gpt=(--model gpt_tiny:width=32,depth=2,length=32 --cluster "2*cpu:sse41" --batch 4 --accumulate 2 --steps 4
    --uniform int8_full --emulate=nvfp4_recipe --json)
run 0 train "${gpt[@]}" && losses >of_recipe && run 0 train "${gpt[@]}" --recompute 2 &&
    losses | cmp -s - of_recipe && run 0 train "${gpt[@]}" --rounding-seed 3 && ! losses | cmp -s - of_recipe
report "emulate: a recipe draws again what is recomputed, and by the seed of rounding" $?
run 1 train "${of[@]}" --uniform int8_full --emulate=nvfp4_recipe --lr 1e30 &&
    grep -q "diverged in step 2: an operand of the .* of operator '.*' is not finite" err
report "emulate: under a recipe, a training that diverges names the product" $?

run 2 train "${of[@]}" --uniform int8_full --emulate=nvfp4_recipe --amax delayed && grep -q -- --amax err &&
    run 2 train "${of[@]}" --uniform int8_full --emulate=nvfp4_without_rs &&
    grep -q "Did you mean 'nvfp4_without_sr'?" err
report "emulate: a recipe refuses delayed scaling; a name that is none leads to one" $?

run 2 train "${of[@]}" --uniform int8_full --emulate=nvfp && grep -q "Did you mean 'nvfp4'?" err &&
    run 2 train "${of[@]}" --uniform int8_full --emulate=e2m1 && grep -q "'mxfp4' has these numbers" err
report "emulate: a name that is none leads to one" $?

run 2 train "${of[@]}" --uniform int8_full --emulate=nvfp4,mxfp4 &&
    grep -q 'nvfp4 and mxfp4 both take the place of s8' err
report "emulate: one format for a dtype" $?
few=(--model mlp:width=32 --device cpu:sse41 --batch 16 --steps 2 --eval 0)
unused='takes the place of e4m3, which no operator of the plan has'
run 0 train "${few[@]}" --uniform int8 --emulate=mxfp8_e4m3,nvfp4 &&
    [ "$(grep -c 'changes nothing' err)" = 1 ] && grep -q "mxfp8_e4m3 changes nothing: it $unused" err &&
    run 0 train "${few[@]}" --uniform fp8 --emulate=mxfp8_e4m3,e5m2_128 && ! grep -q 'changes nothing' err
report "emulate: a format that changes nothing is noted" $?

run 0 train "${of[@]}" --uniform int8_full --emulate --rounding-seed 3 && losses >other &&
    ! cmp -s other is.int8_full &&
    run 0 train "${of[@]}" --uniform int8_full --emulate --rounding-seed 0 &&
    losses | cmp -s - is.int8_full &&
    run 0 train "${of[@]}" --data-seed 3 && losses >other && ! cmp -s other fp32 &&
    run 0 train "${of[@]}" --rounding-seed 3 && losses | cmp -s - fp32
report "emulate: rounding and data have seeds of their own" $?

run 0 train --model mlp:width=32 --device cpu:sse41 --batch 16 --steps 12 --eval 0 --quiet --uniform fp8 \
    --emulate --log log && grep -q 'emulated, so it has no times' out && grep -q '"emulated":true' log &&
    ! grep -q 'samples/s' out && ! grep -qE '"step_ns":[0-9]' log
report "emulate: the text and the log say so" $?

(
    for command in profile compare replay allocate; do
        run 2 $command --model mlp --emulate && grep -q -- "--emulate" err || exit 1
    done
    run_other bench 2 step --model mlp --emulate && grep -q -- "--emulate" err
)
report "emulate: commands that measure or plan refuse it" $?

run 2 train "${of[@]}" --emulate=s5 && grep -q "'s5'" err &&
    run 2 train "${of[@]}" --error-scale 2 && grep -q -- --emulate err &&
    run 2 train "${of[@]}" --emulate --error-scale nan &&
    run 2 train "${of[@]}" --emulate --trace trace.json && [ ! -e trace.json ] &&
    run 2 train "${of[@]}" --emulate --operators
report "emulate: what contradicts it is refused" $?

echo "1..$n"
[ $failed = 0 ]
