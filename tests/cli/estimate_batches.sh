# Estimated at batch 8, converted to 32, beside what is estimated at 32: a whole plan, in int8_full over bf16,
# which has no range. The metric differs, as it is that of the batches here, and does so for both. And by a
# probe.
# Part of test_estimate.sh, which it is read by.
# shellcheck shell=bash disable=SC2154
small=vit_tiny:width=16,heads=2,depth=1,patch=14
at_batch() { # batch options…
    run 0 sensitivity --model $small --data fashion-mnist --init trained.safetensors --steps 2 --at 0 \
        --quiet --batch "$@"
}
noise_of() { # store precision
    run 0 allocate --model $small --cluster "h100 batch=32" --predict --sensitivity sampled --db "$1" \
        --quiet --policy uniform --uniform "$2" --json && python3 -c '
import json
print(json.load(open("out"))["sensitivity_noise"])' >"$1.$2"
}
run 0 train --model $small --data fashion-mnist --batch 32 --steps 300 --device weakest --quiet \
    --export trained.safetensors &&
    at_batch 8 --by samples --repetitions 32 --db s8 && at_batch 32 --by samples --repetitions 16 --db s32 &&
    at_batch 8 --repetitions 64 --db p8 && cp s8 fixed_s8 && cp p8 fixed_p8 && python3 - <<'EOF' 2>err &&
import sqlite3
for kind in "sp":
    rows = sqlite3.connect(kind + "8").execute(
        "SELECT DISTINCT precision FROM estimated_wide_error ORDER BY 1").fetchall()
    assert rows == [("fp8",), ("int8",), ("int8_full",)], rows
    sqlite3.connect("fixed_%s8" % kind).executescript(
        "DELETE FROM estimated_wide_error; DELETE FROM estimated_range")
EOF
    for store in s8 s32 p8 fixed_s8 fixed_p8; do
        noise_of $store int8_full && noise_of $store bf16 || break
    done && python3 - <<'EOF' 2>err
noise = lambda store, precision="int8_full": float(open("%s.%s" % (store, precision)).read())
for store in "s8", "fixed_s8":
    metric = noise(store, "bf16") / noise("s32", "bf16")
    ratio = noise(store) / noise("s32") / metric
    assert (ratio < 0.82) if store == "fixed_s8" else 0.85 < ratio < 1.35, (store, ratio)
assert noise("s8", "bf16") == noise("fixed_s8", "bf16")
by_samples, by_probe = noise("s8") / noise("fixed_s8"), noise("p8") / noise("fixed_p8")
assert by_samples > 1.25 and 0.7 < by_probe / by_samples < 1.4, (by_samples, by_probe)
EOF
report "estimate: ranges convert to a larger batch" $?

run 0 allocate --model $small --cluster "h100 batch=32" --predict --db fixed_s8 --quiet --policy uniform \
    --uniform int8_full && grep -qx 'ranges         of batches of 8; .*' out &&
    run 0 allocate --model $small --cluster "h100 batch=32" --predict --db s8 --quiet --policy uniform \
        --uniform int8_full && ! grep -q '^ranges ' out
report "estimate: a sensitivity says where ranges were not estimated" $?
