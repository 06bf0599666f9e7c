#!/usr/bin/env python3
"""How far a card's convolutions are off when other times of the same shapes are known.

    bench/same_shapes.py convolutions.csv

The first table: each row is another card's own time of that shape and pass in f32, times the ratio of both
peaks. No form can know more of a card that was left out. The second: gradients of the input in f16 on V100,
as the same card's own times in another pass or type, times the ratio of both peaks. Tables are those of
docs/predicting.md; what NeuSight's host took longer for each row is taken off, as `tandem-fit` does. Rows
above 0.2 ms.
"""
import csv
import statistics
import sys

PEAK = {"A100-PCIe-80GB": 19.5, "V100-PCIe-32GB": 14.0, "P100-PCIe-16GB": 9.3, "V100": 15.7, "P100": 10.6,
        "GTX1080Ti": 11.34, "TitanXp": 12.15}
V100_F16_PEAK = 125
PAIRS = {"neusight": ["P100-PCIe-16GB", "V100-PCIe-32GB", "A100-PCIe-80GB"],
         "deepbench": ["GTX1080Ti", "TitanXp", "P100", "V100"]}
SHAPE = ["images", "channels_in", "height", "width", "channels_out", "kernel_h", "kernel_w", "pad_h", "pad_w",
         "stride_h", "stride_w"]
PARTS, SHARE, LEAST_US = 10, 50, 200


def growth_of(times):
    """The slope of a line through the means of the shortest 2 % of ten equal parts."""
    points = []
    for part in range(PARTS):
        begin, end = len(times) * part // PARTS, len(times) * (part + 1) // PARTS
        lowest = sorted(times[begin:end])[:(end - begin) // SHARE]
        points.append(((begin + end) / 2, statistics.fmean(lowest)))
    return max(0, statistics.linear_regression(*zip(*points)).slope)


def read_cells(path):
    """Times by shape, by (source, device, precision, pass)."""
    cells = {}
    with open(path, encoding="utf-8") as table:
        for row in csv.DictReader(table):
            if row["device"] in PEAK:
                key = tuple(int(row[name]) for name in SHAPE)
                cells.setdefault((row["source"], row["device"], row["precision"], row["pass"]), []).append(
                    (key, float(row["time_us"])))
    for cell, rows in cells.items():
        slope = growth_of([time for _, time in rows]) if cell[0] == "neusight" else 0
        cells[cell] = {key: time - slope * i for i, (key, time) in enumerate(rows)}
    return cells


def errors_of(mine, its, shapes, ratio):
    """The median error of its times the ratio, and that of the sum."""
    guess = {key: its[key] * ratio for key in shapes}
    return (statistics.median(abs(guess[key] / mine[key] - 1) for key in shapes),
            sum(guess.values()) / sum(mine[key] for key in shapes) - 1)


def print_pairs(cells):
    """One line for each pair of cards and pass."""
    print("card            from            pass     rows  median     sum")
    for source, cards in PAIRS.items():
        for card in cards:
            for other in cards:
                for way in ("forward", "dgrad", "wgrad"):
                    mine = cells.get((source, card, "fp32", way), {})
                    its = cells.get((source, other, "fp32", way), {})
                    shapes = [key for key in mine if key in its and mine[key] > LEAST_US]
                    if card == other or not shapes:
                        continue
                    median, total = errors_of(mine, its, shapes, PEAK[other] / PEAK[card])
                    print(f"{card:15s} {other:15s} {way:8s} {len(shapes):4d}  {median:6.1%}  {total:+6.1%}")


def print_narrow_gradients(cells):
    """V100's gradients of the input in f16, and its other times of the same shapes."""
    def v100(precision, way):
        return cells.get(("deepbench", "V100", precision, way), {})

    def is_padded(key):
        return key[7] >= key[5]

    def is_strided(key):
        return key[9] * key[10] > 1

    mine = v100("fp16", "dgrad")
    kinds = {"all": lambda key: True, "padded as wide as the kernel": is_padded,
             "others": lambda key: not is_padded(key),
             "  strided": lambda key: is_strided(key) and not is_padded(key),
             "  stride 1": lambda key: not is_strided(key)}
    others = {"fp16 forward": (v100("fp16", "forward"), 1), "fp16 wgrad": (v100("fp16", "wgrad"), 1),
              "fp32 dgrad": (v100("fp32", "dgrad"), PEAK["V100"] / V100_F16_PEAK)}
    print(f"\n{'V100, fp16 dgrad':<29s} rows   measured" + "".join(f"  {name:>12s}" for name in others))
    for kind, holds in kinds.items():
        shapes = [key for key in mine if mine[key] > LEAST_US and holds(key)]
        print(f"{kind:<29s} {len(shapes):4d} {sum(mine[key] for key in shapes):7.0f} us", end="")
        for its, ratio in others.values():
            print(f"  {errors_of(mine, its, shapes, ratio)[1]:>+12.1%}", end="")
        print()


def main():
    """Reads the table and prints both comparisons."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    cells = read_cells(sys.argv[1])
    print_pairs(cells)
    print_narrow_gradients(cells)


main()
