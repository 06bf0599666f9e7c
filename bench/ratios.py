#!/usr/bin/env python3
"""Errors and intervals of predicted ratios of times in two precisions (bench/ratios.sh).

usage: bench/ratios.py --choose FOLDER     writes FOLDER/paired.csv: rows of kept.csv whose shape has a pair
       bench/ratios.py FOLDER...           the tables, of paired.csv, over_fp32.csv and over_bf16.csv in each

Errors are |log(predicted / measured)|. *half* is half of the 80 % interval, in the same unit; *before* adds
those of both times. Sums: all shapes of a folder, and those of one batch (m of a product, images of a
convolution) and pass, three or more.
"""
import collections
import csv
import math
import os
import statistics
import sys

SIZES = {
    "linear": ("m", "k", "n"),
    "conv2d": ("images", "channels_in", "height", "width", "channels_out", "kernel_h", "kernel_w", "pad_h", "pad_w",
               "stride_h", "stride_w"),
}
PAIRS = (("fp16", "fp32"), ("int8", "fp32"), ("int8", "bf16"), ("fp8", "bf16"))
Z80 = 1.2816


def read_rows(path):
    with open(path, newline="", encoding="ascii") as stream:
        return list(csv.DictReader(stream))


def shapes_of(rows):
    """Rows by what they share but the precision, then by precision."""
    shapes = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        if row["operator"] in SIZES and not row["method"].startswith("events"):
            key = tuple(row[name] for name in ("card", "source", "method", "operator", "pass", "transposed"))
            shapes[key + tuple(row[name] for name in SIZES[row["operator"]])][row["precision"]].append(row)
    return {key: by for key, by in shapes.items() if any(a in by and b in by for a, b in PAIRS)}


def choose(folder):
    rows = read_rows(os.path.join(folder, "kept.csv"))
    with open(os.path.join(folder, "paired.csv"), "w", newline="", encoding="ascii") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        for _, by in sorted(shapes_of(rows).items()):
            for precision in sorted(by):
                writer.writerows(by[precision])


class Ratio:
    """Measured and predicted times of a shape in two precisions, and what their intervals are made of."""

    def __init__(self, key, narrow, wide, over):
        self.card, self.operator, self.way, self.batch = key[0], key[3], key[4], key[6]
        self.narrow, self.wide = (statistics.mean(float(row["time_us"]) for row in rows) for rows in (narrow, wide))
        of, of_wide = narrow[0][over], wide[0][over]
        self.narrow_us, self.wide_us = float(of["predicted_us"]), float(of_wide["predicted_us"])
        self.shared, self.own, self.rows = (float(of["ratio_" + name]) for name in ("shared", "own", "shapes"))
        self.half = math.log(float(of["ratio_high"]) / float(of["ratio"]))
        self.spreads = [(float(one["shared"]), float(one["own"])) for one in (of, of_wide)]


def error_of(ratios):
    predicted = sum(r.narrow_us for r in ratios) / sum(r.wide_us for r in ratios)
    return math.log(predicted / (sum(r.narrow for r in ratios) / sum(r.wide for r in ratios)))


def half_before(ratios):
    square = 0
    for k, of in enumerate(("narrow_us", "wide_us")):
        total = sum(getattr(r, of) for r in ratios)
        shares = [getattr(r, of) / total for r in ratios]
        square += sum(share * r.spreads[k][0] for share, r in zip(shares, ratios)) ** 2
        square += sum((share * r.spreads[k][1]) ** 2 for share, r in zip(shares, ratios))
    return Z80 * math.sqrt(square)


def half_now(ratios):
    """As replayer/costs.c adds them up."""
    narrow, wide = sum(r.narrow_us for r in ratios), sum(r.wide_us for r in ratios)
    shared = apart_shared = own = 0
    for r in ratios:
        share = r.narrow_us / narrow
        apart = share - r.wide_us / wide
        shared += share * r.shared
        apart_shared += apart * r.spreads[1][0]
        own += (share * r.own) ** 2 + (apart * r.spreads[1][1]) ** 2
    return Z80 * math.sqrt(shared ** 2 + apart_shared ** 2 + own)


def inside(errors, halves):
    return f"{100 * sum(error <= half for error, half in zip(errors, halves)) / len(errors):.0f}%"


def print_cell(name, sets):
    errors = [abs(error_of(ratios)) for ratios in sets]
    before, now = ([half(ratios) for ratios in sets] for half in (half_before, half_now))
    print(f"{name} {statistics.median(errors):6.3f} {statistics.mean(errors):6.3f}"
          f" {statistics.mean(error_of(ratios) for ratios in sets):+6.3f}  {statistics.median(before):6.3f}"
          f" {inside(errors, before):>6}   {statistics.median(now):6.3f} {inside(errors, now):>6}")


def read_ratios(folder):
    rows = read_rows(os.path.join(folder, "paired.csv"))
    for over in ("fp32", "bf16"):
        for said in read_rows(os.path.join(folder, f"over_{over}.csv")):
            rows[int(said["line"]) - 2][over] = said
    found = collections.defaultdict(list)
    for key, by in shapes_of(rows).items():
        for narrow, wide in PAIRS:
            if narrow in by and wide in by:
                found[key[0], key[3], f"{narrow}/{wide}"].append(Ratio(key, by[narrow], by[wide], wide))
    return found


def sets_of_batches(ratios):
    sets = collections.defaultdict(list)
    for r in ratios:
        sets[r.batch, r.way].append(r)
    return [of for of in sets.values() if len(of) >= 3]


def main():
    if sys.argv[1] == "--choose":
        choose(sys.argv[2])
        return
    each, whole, batches = (collections.defaultdict(list) for _ in range(3))
    for folder in sys.argv[1:]:
        for key, ratios in read_ratios(folder).items():
            for r in ratios:
                each[key + (r.way,)].append([r])
            whole[key].append(ratios)
            batches[key] += sets_of_batches(ratios)
    print(f"{'card':<6} {'operator':<8} {'ratio':<10} {'pass':<8} {'shapes':>6} {'median':>6} {'mean':>6} {'bias':>6}"
          f"  {'before':>6} {'inside':>6}   {'now':>6} {'inside':>6}")
    for key, sets in sorted(each.items()):
        print_cell(f"{key[0]:<6} {key[1]:<8} {key[2]:<10} {key[3]:<8} {len(sets):6}", sets)
    for name, of in (("a tenth", whole), ("one batch", batches)):
        print(f"\n{'sums: ' + name:<26} {'sums':>5} {'shapes':>8} {'median':>6} {'mean':>6} {'bias':>6}"
              f"  {'before':>6} {'inside':>6}   {'now':>6} {'inside':>6}")
        for key, sets in sorted(of.items()):
            if not sets:
                continue
            size = statistics.median(len(ratios) for ratios in sets)
            print_cell(f"{key[0]:<6} {key[1]:<8} {key[2]:<10} {len(sets):5} {size:8.0f}", sets)


main()
