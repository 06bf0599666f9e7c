#!/usr/bin/env python3
"""What a user's own rows do to predictions of a card that others measured.

usage: bench/own_rows.py TANDEM KEPT.csv [--card t4] [--numbers 0,1,5,20] [--draws 10] [--slower 1]
                         [--source NAME]

KEPT.csv has rows that were kept back (bench/measured.sh). Of each kernel (operator, precision and pass), N of
them, drawn at random, count as the user's own (`--calibrate`); the others of the kernel are predicted. Prints
the mean error and the share of rows inside their 80 % interval, over all draws. --slower: the user's card takes
that many times as long in all rows. --source: own and predicted rows are of that source alone.
"""
import argparse
import csv
import json
import os
import random
import subprocess
import tempfile


def read_rows(path, card, source, slower):
    with open(path, newline="", encoding="ascii") as stream:
        reader = csv.DictReader(stream)
        rows = [row for row in reader if row["card"] == card and source in ("", row["source"])]
    for row in rows:
        row["time_us"] = f"{slower * float(row['time_us']):.6g}"
    return reader.fieldnames, rows


def write_rows(path, names, rows):
    with open(path, "w", newline="", encoding="ascii") as stream:
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        writer.writerows(rows)


def predict(tandem, folder, names, own, rest):
    """Sums of absolute errors, rows inside, rows."""
    words = [tandem, "predict", "--list", "rest.csv", "--json"]
    write_rows(os.path.join(folder, "rest.csv"), names, rest)
    if own:
        write_rows(os.path.join(folder, "own.csv"), names, own)
        words += ["--calibrate", "own.csv", "--force"]
    ran = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    cells = [cell for cell in json.loads(ran.stdout)["cells"] if cell["timed"]]
    return [sum(cell[what] * cell["timed"] for cell in cells) for what in ("mean", "inside")] + [
        sum(cell["timed"] for cell in cells)
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tandem")
    parser.add_argument("kept")
    parser.add_argument("--card", default="t4")
    parser.add_argument("--numbers", default="0,1,5,20")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--slower", type=float, default=1)
    parser.add_argument("--source", default="")
    asked = parser.parse_args()
    names, rows = read_rows(asked.kept, asked.card, asked.source, asked.slower)
    # each operator of streams is a class of its own here; their kernel is one
    of = {}
    for row in rows:
        name = row["operator"] if row["operator"] in ("linear", "matmul", "conv2d") else "stream"
        of.setdefault((name, row["precision"], row["pass"]), []).append(row)
    print(f"{'operator':<8} {'type':<5} {'pass':<8} {'own':>4} {'draws':>5} {'mean':>7} {'inside 80 %':>11}")
    tandem = os.path.abspath(asked.tandem)
    with tempfile.TemporaryDirectory() as folder:
        for key, of_kernel in sorted(of.items()):
            for n in map(int, asked.numbers.split(",")):
                if n > len(of_kernel) - 20:
                    continue
                drawing, total = random.Random(1), [0, 0, 0]
                draws = asked.draws if n else 1
                for _ in range(draws):
                    own = set(drawing.sample(range(len(of_kernel)), n))
                    found = predict(tandem, folder, names, [row for i, row in enumerate(of_kernel) if i in own],
                                    [row for i, row in enumerate(of_kernel) if i not in own])
                    total = [a + b for a, b in zip(total, found)]
                print(f"{key[0]:<8} {key[1]:<5} {key[2]:<8} {n:4} {draws:5} {100 * total[0] / total[2]:6.1f}% "
                      f"{100 * total[1] / total[2]:10.0f}%", flush=True)


main()
