#!/usr/bin/env python3
"""Holds what `tandem whatif` says of recorded traces against PyTorch's own sums, by the names of operators.

usage: check.py FOLDER...    folders that record.py has written; $TANDEM is the program [build/tandem]

Prints how many operators have the same calls and total times, and every one whose calls, total or own time differ. Own times differ
where PyTorch cuts times to whole us: slices then seem to overlap, and PyTorch's sums count them twice or below 0."""
import collections
import glob
import json
import os
import subprocess
import sys

# Notes of the profiler and communication: rows of PyTorch's, times of steps and collectives of tandem's.
NO_OPERATORS = ("ProfilerStep", "Optimizer.", "gloo:", "nccl:")


def add_up(rows):
    sums = collections.defaultdict(lambda: [0, 0, 0])
    for row in rows:
        for k, member in enumerate(("calls", "total_ns", "self_ns")):
            sums[row["name"]][k] += row[member]
    return sums


def check(path):
    tandem = os.environ.get("TANDEM", "build/tandem")
    said = subprocess.run([tandem, "whatif", path, "--json", "-q"], stdout=subprocess.PIPE, check=True).stdout
    ours = add_up(json.loads(said)["by_operator"])
    with open(path.replace(".json", ".sums.json"), encoding="utf-8") as file:
        theirs = add_up(row for row in json.load(file) if not row["name"].startswith(NO_OPERATORS))
    names = sorted(set(ours) | set(theirs))
    same = sum(ours[name][:2] == theirs[name][:2] for name in names)
    print(f"{path}: {same} of {len(names)} operators have the same calls and total times")
    for name in names:
        if ours[name] != theirs[name]:
            print(f"  {name[:70]}: calls, total and own ns {ours[name]}, PyTorch {theirs[name]}")
    return same == len(names)


if __name__ == "__main__":
    paths = [p for folder in sys.argv[1:] for p in sorted(glob.glob(f"{folder}/rank*.json")) if ".sums." not in p]
    sys.exit(0 if all([check(path) for path in paths]) else 1)
