#!/usr/bin/env python3
"""How far a card's convolutions are off when another card's times of the same shapes are known.

    bench/same_shapes.py convolutions.csv

No form can know more of a card that was left out: each row is the other card's own time of that shape and pass,
times the ratio of both peaks in f32. Tables are those of docs/predicting.md; what NeuSight's host took longer
for each row is taken off, as `tandem fit` does. Rows above 0.2 ms.
"""
import csv
import statistics
import sys

PEAK = {"A100-PCIe-80GB": 19.5, "V100-PCIe-32GB": 14.0, "P100-PCIe-16GB": 9.3, "V100": 15.7, "P100": 10.6,
        "GTX1080Ti": 11.34, "TitanXp": 12.15}
PAIRS = {"neusight": ["P100-PCIe-16GB", "V100-PCIe-32GB", "A100-PCIe-80GB"],
         "deepbench": ["GTX1080Ti", "TitanXp", "P100", "V100"]}
SHAPE = ["images", "channels_in", "height", "width", "channels_out", "kernel_h", "kernel_w", "pad_h", "pad_w",
         "stride_h", "stride_w"]
PARTS, SHARE = 10, 50


def growth_of(times):
    """The slope of a line through the means of the shortest 2 % of ten equal parts."""
    points = []
    for part in range(PARTS):
        begin, end = len(times) * part // PARTS, len(times) * (part + 1) // PARTS
        lowest = sorted(times[begin:end])[:(end - begin) // SHARE]
        points.append(((begin + end) / 2, statistics.fmean(lowest)))
    return max(0, statistics.linear_regression(*zip(*points)).slope)


def main():
    """Reads the table and prints one row for each pair of cards and pass."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    cells = {}
    with open(sys.argv[1], encoding="utf-8") as table:
        for row in csv.DictReader(table):
            if row["device"] in PEAK and row["precision"] == "fp32":
                key = tuple(row[name] for name in SHAPE)
                cells.setdefault((row["source"], row["device"], row["pass"]), []).append(
                    (key, float(row["time_us"])))
    for cell, rows in cells.items():
        slope = growth_of([time for _, time in rows]) if cell[0] == "neusight" else 0
        cells[cell] = {key: time - slope * i for i, (key, time) in enumerate(rows)}
    print("card            from            pass     rows  median     sum")
    for source, cards in PAIRS.items():
        for card in cards:
            for other in cards:
                for way in ("forward", "dgrad", "wgrad"):
                    mine, its = cells.get((source, card, way), {}), cells.get((source, other, way), {})
                    shapes = [key for key in mine if key in its and mine[key] > 200]
                    if card == other or not shapes:
                        continue
                    guess = {key: its[key] * PEAK[other] / PEAK[card] for key in shapes}
                    median = statistics.median(abs(guess[key] / mine[key] - 1) for key in shapes)
                    total = sum(guess.values()) / sum(mine[key] for key in shapes) - 1
                    print(f"{card:15s} {other:15s} {way:8s} {len(shapes):4d}  {median:6.1%}  {total:+6.1%}")


main()
