# From the input of HAWQ-V3's integer program to tandem.mckp/1 (bench/mckp/mckp.h): `net` is its network, `part`
# where the limit lies between all layers in int4 and all in int8. Sensitivity: Hessian trace × squared error of
# the weights. Latencies are ms with 8 decimals, so their sums in units of 0.01 ns are exact.
def units: . * 1e8 | round;
.[$net] as $n
| ($n.latency_int4 | map(units)) as $int4
| ($n.latency_int8 | map(units)) as $int8
| {
    schema: "tandem.mckp/1",
    items: [range($int4 | length) as $i | {
        name: "layer\($i)",
        choices: [
            {name: "int8", time_ns: ($int8[$i] / 100),
             sensitivity: ($n.Hutchinson_trace[$i] * $n.delta_weights_8bit_square[$i])},
            {name: "int4", time_ns: ($int4[$i] / 100),
             sensitivity: ($n.Hutchinson_trace[$i] * $n.delta_weights_4bit_square[$i])}
        ]
    }],
    ties: $n.ties,
    limits: {time_ns: ((($int4 | add) + $part * (($int8 | add) - ($int4 | add))) / 100)}
  }
