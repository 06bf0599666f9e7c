#!/usr/bin/env python3
"""Errors of predictions on rows that were kept back (bench/measured.sh).

usage: bench/measured.py KEPT.csv PREDICTED.csv DESCRIBED.csv FOLDER

KEPT.csv has the rows, the next two what `tandem predict --list -o` writes of them, with what ships and without;
FOLDER the files that ship, for the rate of a nearest row.
"""
import collections
import csv
import glob
import math
import os
import statistics
import sys

SIZES = {
    "linear": ("m", "k", "n"),
    "matmul": ("batch", "m", "k", "n"),
    "conv2d": ("images", "channels_in", "height", "width", "channels_out", "kernel_h", "kernel_w", "pad_h", "pad_w",
               "stride_h", "stride_w"),
}
LEAST_US = 200


def sizes_of(row):
    return tuple(float(row[name] or 0) for name in SIZES.get(row["operator"], ("rows", "columns")))


def work_of(operator, sizes):
    if operator != "conv2d":
        return math.prod(sizes)
    images, channels, high, wide, out, kernel_h, kernel_w, pad_h, pad_w, stride_h, stride_w = sizes
    results = ((high + 2 * pad_h - kernel_h) // stride_h + 1) * ((wide + 2 * pad_w - kernel_w) // stride_w + 1)
    return images * results * channels * out * kernel_h * kernel_w


def read_shipped(folder):
    """(sizes, us) by card, source, operator, precision and pass."""
    rows = collections.defaultdict(list)
    for path in sorted(glob.glob(os.path.join(folder, "*.csv"))):
        with open(path, newline="", encoding="ascii") as stream:
            for fields in csv.reader(stream):
                if fields[0].startswith("#"):
                    continue
                if fields[0].startswith("device="):
                    head = dict(field.split("=", 1) for field in fields if "=" in field)
                    columns = [field for field in fields if "=" not in field]
                    key = (head["device"], head["source"], head["operator"], head["precision"],
                           head.get("pass", "forward"))
                else:
                    row = {**head, **dict(zip(columns, fields))}
                    names = SIZES.get(head["operator"], ("rows", "columns"))
                    rows[key].append((tuple(float(row[name]) for name in names), float(row["time_us"])))
    return rows


def nearest_us(row, shipped):
    sizes = sizes_of(row)
    at = [math.log(size + 1) for size in sizes]
    best = min(shipped, key=lambda one: sum((math.log(a + 1) - b) ** 2 for a, b in zip(one[0], at)))
    return best[1] * work_of(row["operator"], sizes) / work_of(row["operator"], best[0])


def percent(errors, of=statistics.mean):
    return f"{100 * of(errors):.1f}%" if errors else "-"


def print_errors(rows):
    shipped = read_shipped(sys.argv[4])
    cells = collections.defaultdict(list)
    for row in rows:
        operator = row["operator"] if row["operator"] in SIZES else "stream"
        cells[row["card"], row["source"], operator, row["precision"], row["pass"]].append(row)
    print(f"{'card':<15} {'source':<15} {'operator':<8} {'type':<5} {'pass':<8} {'rows':>5} {'mean':>7} {'median':>7}"
          f" {'described':>9} {'nearest':>8}   {'>0.2 ms':>7} {'mean':>7} {'described':>9}")
    for key, of_cell in sorted(cells.items()):
        errors = [row["error"] for row in of_cell]
        large = [row for row in of_cell if row["us"] > LEAST_US]
        near = [nearest_us(row, shipped[key]) / row["us"] - 1 for row in of_cell[:400] if shipped.get(key)]
        print(f"{key[0]:<15} {key[1]:<15} {key[2]:<8} {key[3]:<5} {key[4]:<8} {len(of_cell):5} {percent(errors):>7}"
              f" {percent(errors, statistics.median):>7} {percent([row['described'] for row in of_cell]):>9}"
              f" {percent(list(map(abs, near))):>8}   {len(large):7} {percent([row['error'] for row in large]):>7}"
              f" {percent([row['described'] for row in large]):>9}")


def print_pools(rows):
    """The same of all sources and passes of a card, operator and precision."""
    pools = collections.defaultdict(list)
    for row in rows:
        if row["operator"] in SIZES:
            pools[row["card"], row["operator"], row["precision"]].append(row["error"])
            pools[row["card"], row["operator"], "all"].append(row["error"])
    print(f"\n{'card':<15} {'operator':<8} {'type':<5} {'rows':>5} {'mean':>7} {'median':>7}")
    for key, errors in sorted(pools.items()):
        print(f"{key[0]:<15} {key[1]:<8} {key[2]:<5} {len(errors):5} {percent(errors):>7}"
              f" {percent(errors, statistics.median):>7}")


def print_ratios(rows):
    """How far time in one precision over that in another, of one shape, is off."""
    shapes = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        key = (row["card"], row["source"], row["method"], row["operator"], row["pass"], row["transposed"])
        shapes[key + sizes_of(row)][row["precision"]].append(row)
    errors = collections.defaultdict(list)
    for key, by in shapes.items():
        for one, other in (("fp16", "fp32"), ("int8", "fp32"), ("int8", "bf16")):
            if by[one] and by[other]:
                mean = {p: [statistics.mean(row[what] for row in by[p]) for what in ("us", "predicted")]
                        for p in (one, other)}
                measured, predicted = (mean[one][i] / mean[other][i] for i in (0, 1))
                errors[key[0], key[1], key[3], f"{one}/{other}"].append(abs(predicted / measured - 1))
    print(f"\n{'card':<15} {'source':<15} {'operator':<8} {'ratio':<10} {'shapes':>6} {'median':>7} {'mean':>7}")
    for key, of_cell in sorted(errors.items()):
        print(f"{key[0]:<15} {key[1]:<15} {key[2]:<8} {key[3]:<10} {len(of_cell):6}"
              f" {percent(of_cell, statistics.median):>7} {percent(of_cell):>7}")


def main():
    with open(sys.argv[1], newline="", encoding="ascii") as stream:
        rows = list(csv.DictReader(stream))
    for name, path in (("predicted", sys.argv[2]), ("described_us", sys.argv[3])):
        with open(path, newline="", encoding="ascii") as stream:
            for said in csv.DictReader(stream):
                rows[int(said["line"]) - 2][name] = float(said["as_timed_us"])
    for row in rows:
        row["us"] = float(row["time_us"])
        row["error"] = abs(row["predicted"] / row["us"] - 1)
        row["described"] = abs(row["described_us"] / row["us"] - 1)
    print_errors(rows)
    print_pools(rows)
    print_ratios(rows)


main()
