#!/usr/bin/env python3
"""Makes profiles/devices/measured/: what others measured of cards, thinned to what fits into the program.

usage: scripts/measured_extracts.py TABLES FOLDER [--leave-out FOLD] [--kept FILE.csv]

TABLES holds the timing tables of docs/predicting.md as NAME.csv.xz. FOLDER gets one file a card and source:
tables of one operator, precision, method and pass each. Where a table has more rows than its share, sizes are
binned by their logarithms, and a bin keeps the row of its median rate. Rows are those of the source, times
with four digits.

--leave-out leaves out every tenth shape, in all precisions and passes and on all cards; --kept writes those
rows. Which they are is a checksum of the sizes modulo ten, and nothing was chosen by the errors of fold 0.
"""
import argparse
import collections
import csv
import lzma
import math
import os
import sys
import zlib

CARDS = {
    "T4": "t4",
    "V100": "v100",
    "V100-PCIe-32GB": "v100_pcie",
    "A100-SXM-80GB": "a100",
    "A100-80GB": "a100",
    "A100-PCIe-40GB": "a100_pcie_40gb",
    "A100-PCIe-80GB": "a100_pcie",
}
SOURCES = {
    "neusight": "sitar-lab/NeuSight at 6945927, MIT, (c) 2025 Georgia Institute of Technology and Microsoft "
    "Corporation",
    "deepbench": "baidu-research/DeepBench at da81ba7, Apache-2.0",
    "vidur": "microsoft/vidur at 7d47513, MIT, (c) Microsoft Corporation",
    "aiconfigurator": "ai-dynamo/aiconfigurator at 095f58a, Apache-2.0",
}
TABLES = ("products", "convolutions", "streams", "t4_products", "t4_convolutions", "t4_streams")
PRODUCT = ("batch", "m", "k", "n")
WINDOW = ("images", "channels_in", "height", "width", "channels_out", "kernel_h", "kernel_w", "pad_h", "pad_w",
          "stride_h", "stride_w")
STREAM = ("rows", "columns")
STREAMS = {"add", "addu", "mul", "mulu", "div", "divu", "pow", "powu", "relu", "gelu", "tanh", "softmax",
           "layernorm"}
# The most rows of a table: of the card that is borrowed most, and of others.
MOST_T4 = {"linear": 3000, "matmul": 1500, "conv2d": 2800, "stream": 60}
MOST = {"linear": 900, "matmul": 500, "conv2d": 2000, "stream": 24}
RESOLUTIONS = [2 ** (k / 4) for k in range(16, -9, -1)]  # bins to a doubling


def columns_of(operator):
    if operator == "conv2d":
        return WINDOW
    return STREAM if operator in STREAMS else PRODUCT if operator == "matmul" else PRODUCT[1:]


def is_left_out(row, fold):
    sizes = " ".join(row[c] for c in columns_of(row["operator"]))
    return zlib.crc32(sizes.encode()) % 10 == fold


def rate_of(row):
    sizes = [float(row[c]) for c in columns_of(row["operator"])]
    if row["operator"] == "conv2d":
        images, channels, high, wide, out, kernel_h, kernel_w, pad_h, pad_w, stride_h, stride_w = sizes
        results = ((high + 2 * pad_h - kernel_h) // stride_h + 1) * ((wide + 2 * pad_w - kernel_w) // stride_w + 1)
        work = images * results * channels * out * kernel_h * kernel_w
    else:
        work = math.prod(sizes)
    return work / float(row["time_us"])


def read_rows(folder):
    for table in TABLES:
        with lzma.open(os.path.join(folder, table + ".csv.xz"), "rt", newline="") as stream:
            for row in csv.DictReader(stream):
                row.setdefault("operator", "conv2d")
                # a profiler's times of tiny kernels lack their launch
                is_stream = row["operator"] in STREAMS and row["method"] != "profiler"
                known = is_stream or row["operator"] in ("linear", "matmul", "conv2d")
                if row["device"] in CARDS and known and float(row["time_us"]) > 0:
                    row["card"] = CARDS[row["device"]]
                    yield row


def thin(rows, most):
    """At most about `most` rows, and the shortest, which shows what the way of timing adds."""
    if len(rows) <= most:
        return rows
    for resolution in RESOLUTIONS:
        bins = collections.defaultdict(list)
        for row in rows:
            sizes = [float(row[c]) for c in columns_of(row["operator"])]
            bins[tuple(round(math.log2(s + 1) * resolution) for s in sizes)].append(row)
        if len(bins) <= most:
            break
    kept = [sorted(of_bin, key=rate_of)[len(of_bin) // 2] for of_bin in bins.values()]
    shortest = min(rows, key=lambda row: float(row["time_us"]))
    return kept if shortest in kept else kept + [shortest]


def sizes_text(row, columns):
    return ",".join(row[c] for c in columns)


def varying_columns(rows):
    """The columns that differ between rows; others are constants of the header."""
    columns = columns_of(rows[0]["operator"])
    return [c for c in columns if any(row[c] != rows[0][c] for row in rows)] or columns[:1]


def header_of(rows, constants):
    head, columns = rows[0], varying_columns(rows)
    constants = constants + [c for c in columns_of(head["operator"]) if c not in columns]
    cells = [f"device={head['card']}", f"source={head['source']}"]
    cells += [f'"{name}={head[name]}"' if "," in head[name] else f"{name}={head[name]}" for name in constants]
    return ",".join(cells + [f"count={len(rows)}", *columns, "time_us"])


def row_text(row, columns):
    return f"{sizes_text(row, columns)},{float(row['time_us']):.4g}"


def without_doubles(rows):
    """Sources list some rows twice, with the same time."""
    seen = {row_text(row, columns_of(row["operator"])): row for row in reversed(rows)}
    return list(reversed(seen.values()))


def write_file(path, tables):
    card, source = tables[0][0]["card"], tables[0][0]["source"]
    with open(path, "w", encoding="ascii") as out:
        n = sum(len(rows) for rows in tables)
        print(f"# {n} operator times of {card}, measured by others: {SOURCES[source]}.", file=out)
        print("# Changed: rows were left out and columns renamed (scripts/measured_extracts.py).", file=out)
        for rows in tables:
            constants = ["method", "operator", "precision"]
            if rows[0]["pass"] != "forward":
                constants.append("pass")
            print(header_of(rows, constants), file=out)
            columns = varying_columns(rows)
            for row in rows:
                print(row_text(row, columns), file=out)
        print("# end", file=out)


def write_kept(path, rows):
    names = ["source", "device", "card", "method", "operator", "precision", "pass", "transposed", *PRODUCT,
             *STREAM, *WINDOW, "time_us"]
    with open(path, "w", newline="", encoding="ascii") as out:
        writer = csv.DictWriter(out, names, extrasaction="ignore", restval="")
        writer.writeheader()
        writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tables")
    parser.add_argument("folder")
    parser.add_argument("--leave-out", type=int)
    parser.add_argument("--kept")
    arguments = parser.parse_args()
    tables, kept = collections.defaultdict(list), []
    for row in read_rows(arguments.tables):
        if is_left_out(row, arguments.leave_out):
            kept.append(row)
            continue
        names = ("card", "source", "method", "operator", "precision", "pass")
        tables[tuple(row[name] for name in names)].append(row)
    files = collections.defaultdict(list)
    for key, rows in sorted(tables.items()):
        operator = "stream" if key[3] in STREAMS else key[3]
        most = (MOST_T4 if key[0] == "t4" else MOST)[operator]
        files[key[0] + "_" + key[1]].append(thin(without_doubles(rows), most))
    os.makedirs(arguments.folder, exist_ok=True)
    total = 0
    for name, of_file in files.items():
        path = os.path.join(arguments.folder, name + ".csv")
        write_file(path, of_file)
        total += os.path.getsize(path)
        print(f"{path}: {sum(map(len, of_file))} rows, {os.path.getsize(path)} bytes", file=sys.stderr)
    print(f"{total} bytes in all", file=sys.stderr)
    if arguments.kept:
        write_kept(arguments.kept, kept)


main()
