#!/usr/bin/env python3
"""How measured extra samples scatter about estimates of whole plans: the deviations of predictor/correction.c.

usage: bench/deviations.py [ROWS]   rows of bench/stability.sh [docs/study/stability.tsv]

A plan is taken to need f·e^ε times its estimate. log f is normal over groups, with the first deviation; a
group is a model, its start and optimizer, and a number format. ε is normal over the plans of a group, with
the second. Both are those of the greatest likelihood over the rows named "judged" and the cells of
docs/study/price.json. A trial's mean is normal with its own error.

Prints what other pairs of deviations reach, and how many plans of each set lie within 95 % intervals by the
pair that ships: without a trial; and by a trial of each other plan of the group. Rows named "new" and "last"
were measured after the choice. A plan lies within where its trial's own interval touches the predicted one."""
import json
import math
import re
import sys
from pathlib import Path

import numpy as np

SHIPPED = (1.0, 0.5)  # predictor/correction.c
GRID = ([0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5], [0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0])
NORMAL_95 = 1.959964
STUDY = Path(__file__).resolve().parent.parent / "docs" / "study"
LOG_FACTOR = np.linspace(-6, 6, 241)
SCATTER = np.linspace(-3, 3, 41)
WEIGHT = np.exp(-SCATTER * SCATTER / 2) / np.exp(-SCATTER * SCATTER / 2).sum()


def group_of(model, plan):
    return f"{model}, {re.search('e2m1|s4|s8|mxfp8|nvfp4|fp8', plan).group(0)}"


def number(text, scale=1.0):
    return math.nan if text in (None, "-") else float(text) * scale


def plan_of(group, estimate, measured, low, high):
    return {"group": group, "estimate": estimate, "measured": measured, "low": low, "high": high}


def rows_of(path, uses):
    """Of bench/stability.sh: a line is a plan."""
    found = []
    for line in Path(path).read_text().splitlines():
        field = line.split("\t")
        if field[0] in uses:
            found.append(plan_of(group_of(f"{field[1]} {field[2]}", field[3]), float(field[4]) / 100,
                                 number(field[9]), number(field[10]), number(field[11])))
    return found


def cells_of(path):
    """Of the study's part `price`, in percent."""
    cells = json.loads(Path(path).read_text())["cells"]
    return [plan_of(group_of(f"{c['model']} {c['optimizer']}", c["plan"]), c["estimated"] / 100,
                    *(number(c[key], 0.01) for key in ("measured", "measured_low", "measured_high")))
            for c in cells]


def error_of(plan):
    half = plan["high"] - plan["low"] if math.isfinite(plan["high"]) else 2 * (plan["measured"] - plan["low"])
    return max(half / 2 / NORMAL_95, 0.05 * abs(plan["measured"]), 1e-4)


def likelihood(plan, log_factor, deviation):
    """Of the trial, for each factor. One without a limit needs more than twice the samples."""
    if not math.isfinite(plan["measured"]):
        less = [(math.log(plan["estimate"]) + x) / (deviation * math.sqrt(2)) for x in log_factor]
        return np.array([math.erfc(-x) / 2 for x in less])
    needs = plan["estimate"] * np.exp(log_factor[:, None] + deviation * SCATTER[None, :])
    off = (plan["measured"] - needs) / error_of(plan)
    return (WEIGHT * np.exp(-off * off / 2) / error_of(plan)).sum(axis=1)


def log_likelihood(plans, of_groups, of_plans):
    total, log_factor = 0.0, of_groups * np.linspace(-3.5, 3.5, 71)
    weight = np.exp(-np.linspace(-3.5, 3.5, 71) ** 2 / 2)
    weight /= weight.sum()
    for group in {plan["group"] for plan in plans}:
        logs = sum(np.log(likelihood(plan, log_factor, of_plans) + 1e-300)
                   for plan in plans if plan["group"] == group)
        total += logs.max() + math.log((weight * np.exp(logs - logs.max())).sum())
    return total


def interval(tried, of_groups, of_plans):
    """95 % of the factors of another plan, after trials of the plans `tried`."""
    logs = -(LOG_FACTOR / of_groups) ** 2 / 2
    for plan in tried:
        logs = logs + np.log(likelihood(plan, LOG_FACTOR, of_plans) + 1e-300)
    weight = np.exp(logs - logs.max())
    blurred = (weight[:, None] * WEIGHT[None, :]).ravel()
    factor = (LOG_FACTOR[:, None] + of_plans * SCATTER[None, :]).ravel()
    order = np.argsort(factor)
    below = np.cumsum(blurred[order]) / blurred.sum()
    return tuple(math.exp(factor[order][np.searchsorted(below, part)]) for part in (0.025, 0.975))


def touches(plan, factors):
    low, high = (plan["estimate"] * factor for factor in factors)
    if not math.isfinite(plan["measured"]):
        return high >= 1
    return (math.isnan(plan["high"]) or plan["high"] >= low) and plan["low"] <= high


def print_coverage(name, plans, pair):
    alone = interval([], *pair)
    within = sum(touches(plan, alone) for plan in plans)
    trials = [(plan, interval([other], *pair)) for plan in plans for other in plans
              if plan is not other and plan["group"] == other["group"]]
    after = sum(touches(plan, factors) for plan, factors in trials)
    width = np.median([high / low for _, (low, high) in trials])
    print(f"{name}: {within} of {len(plans)} within, upper over lower end {alone[1] / alone[0]:.0f}; by a "
          f"trial of another plan {after} of {len(trials)}, ends {width:.0f} apart in the median")


def main():
    rows = sys.argv[1] if len(sys.argv) > 1 else STUDY / "stability.tsv"
    sets = {"judged by stability.sh": rows_of(rows, ["judged"]), "price": cells_of(STUDY / "price.json")}
    fitted = sum(sets.values(), [])
    print(f"log-likelihood of {len(fitted)} plans in {len({p['group'] for p in fitted})} groups, less the best:")
    table = [[log_likelihood(fitted, over, within) for within in GRID[1]] for over in GRID[0]]
    best = max(max(line) for line in table)
    print("over groups \\ plans " + "".join(f"{within:8.2f}" for within in GRID[1]))
    for over, line in zip(GRID[0], table):
        print(f"{over:19.2f} " + "".join(f"{value - best:8.1f}" for value in line))
    later = rows_of(rows, ["new", "last"])
    if later:
        sets["new and last"] = later
    for name, plans in sets.items():
        print_coverage(name, plans, SHIPPED)


if __name__ == "__main__":
    main()
