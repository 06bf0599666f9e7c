#!/usr/bin/env python3
"""Draws the cases of bench/sharded.sh: options of a training, a tab, and those that shard it.

usage: bench/sharded_cases.py CASES [SEED]   every pair of two choices is in some case, where both go together
"""
import itertools
import random
import sys

MODELS = {
    "mlp:width=48,depth=3": "fashion-mnist",
    "resnet20:width=4,blocks=1,image=14x14x1": "fashion-mnist",
    "vit_tiny:width=24,heads=2,depth=2,patch=7": "fashion-mnist",
    "gpt_tiny:width=24,heads=2,depth=2,length=16": "bible-kjv-text",
}
BUCKETS = [f"{n}B" for n in (256, 1000, 1536, 2048, 2500, 3000, 3333, 4096, 5000, 6000, 7000, 8192, 9000, 10000,
                             11111, 12288, 14000, 15000, 16384, 18000, 20000, 22222, 24576, 27000, 30000, 32768,
                             36000, 40000, 44444, 49152, 54000, 60000, 65536, 70000, 80000, 90000, 98304, 100000,
                             120000, 131072, 150000, 196608, 200000, 222222, 262144, 300000, 333333, 393216, 500000,
                             524288, 1048576, 2000000)]  # fmt: skip
CHOICES = {
    "model": list(MODELS),
    "ranks": ["cpu:avx2{at} + cpu:sse41{at}", "2*cpu:avx2{at}", "2*cpu:avx2{at} + 1*cpu:sse41{at}",
              "3*cpu:sse41{at} + 1*cpu:avx2{at}", "cpu:sse41{at} batch=12 + cpu:avx2{at} batch=4"],
    "link": ["shared memory", "network"],
    "wire": ["f32", "bf16"],
    "bucket": BUCKETS,
    "shards": ["even", "1,3", "7,2", "0,1", "1,0"],
    "uniform": ["fp32", "int8", "int8_full"],
    "clip": ["", "--clip 0.5"],
    "scale": ["", "--loss-scale dynamic"],
    "accumulate": ["", "--accumulate 3"],
    "recompute": ["", "--recompute sqrt"],
    "momentum": ["", "--lr 0.02"],
}


def go_together(case):
    one_class = "+" not in case["ranks"]
    return not (one_class and case["shards"] != "even")


def draw_case(draw, wanted):
    """A case with the wanted choices."""
    while True:
        case = {name: draw.choice(values) for name, values in CHOICES.items()}
        case.update(wanted)
        if go_together(case):
            return case


def pairs_of(case):
    return {tuple(sorted(pair)) for pair in itertools.combinations(case.items(), 2)}


def all_pairs():
    for (a, of_a), (b, of_b) in itertools.combinations(CHOICES.items(), 2):
        if "bucket" in (a, b):  # each size occurs; with all of the others it would be 1,500 pairs
            continue
        for x, y in itertools.product(of_a, of_b):
            if go_together({"ranks": "+", "shards": "even", a: x, b: y}):
                yield tuple(sorted(((a, x), (b, y))))


def draw_cases(n, seed):
    draw = random.Random(seed)
    missing, cases, sizes = sorted(set(all_pairs())), [], list(BUCKETS)
    draw.shuffle(sizes)
    while missing or sizes or len(cases) < n:
        wanted = dict(missing[0]) if missing else {}
        if "bucket" not in wanted and sizes:
            wanted["bucket"] = sizes.pop()
        tried = [draw_case(draw, wanted) for _ in range(20)]
        case = max(tried, key=lambda one: len(pairs_of(one) & set(missing)))
        missing = [pair for pair in missing if pair not in pairs_of(case)]
        cases.append(case)
    return cases


def print_case(case):
    at, net = ("@1", " net=1Gbit/s,50us") if case["link"] == "network" else ("", "")
    cluster = case["ranks"].replace("{at}", at) + net
    plain = (f"--model {case['model']} --data {MODELS[case['model']]} --cluster '{cluster}' "
             f"--batch 8 --wire {case['wire']} --bucket {case['bucket']} --uniform {case['uniform']} "
             f"{case['clip']} {case['scale']} {case['accumulate']} {case['recompute']} {case['momentum']}")
    print(f"{plain}\t--zero 1 --shards {case['shards']}")


def main():
    cases = draw_cases(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for case in cases:
        print_case(case)


if __name__ == "__main__":
    main()
