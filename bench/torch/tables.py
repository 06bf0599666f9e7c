"""The tables of bench/torch.sh, of the files that it keeps: medians over rounds.

usage: tables.py steps|converted|replays FOLDER     exits 1 where a bar is missed
"""

import glob
import os
import statistics
import sys

WITHIN = 1.10  # of the executor's time, for converted calls in bf16 and int8_full
MEAN_ERROR, WORST_ERROR = 0.05, 0.10  # of replays


def rows_of(part):
    """The rows of every file, round by round."""
    for path in sorted(glob.glob(os.path.join(sys.argv[2], part + ".*"))):
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield os.path.basename(path).split(".")[1], line.rstrip("\n").split("\t")


def print_steps():
    samples = {}
    for _, (case, *numbers) in rows_of("steps"):
        samples.setdefault(tuple(case.split("|")), []).append([int(number) for number in numbers])
    print(
        f"{'model':<10} {'precision':<9} {'program':<13} {'rounds':>6} {'step':>8} {'least':>8} {'most':>8} "
        f"{'tandem':>7} {'peak':>9} {'of the model':>13}"
    )
    for (model, precision, program), rows in samples.items():
        step, peak, of_model = (statistics.median(column) for column in zip(*rows))
        least, most = (pick(row[0] for row in rows) for pick in (min, max))
        ours = samples.get((model, precision, "tandem"))
        is_peer = ours and program != "tandem"
        faster = f"{step / statistics.median(row[0] for row in ours):.2f} x" if is_peer else ""
        sizes = [f"{size / 2**20:.0f} MiB" if size else "" for size in (peak, of_model)]
        print(
            f"{model:<10} {precision:<9} {program:<13} {len(rows):>6} {step / 1e9:>6.2f} s "
            f"{least / 1e9:>6.2f} s {most / 1e9:>6.2f} s {faster:>7} {sizes[0]:>9} {sizes[1]:>13}"
        )
    return True


def print_converted():
    modules, executor, losses = {}, {}, {}
    for _, row in rows_of("converted"):
        kept = executor if row[0] == "executor" else modules
        case, numbers = (row[1:3], row[3:5]) if kept is executor else (row[:2], row[2:4])
        kept.setdefault(tuple(case), []).append([int(number) for number in numbers])
        if kept is modules:
            losses[tuple(case)] = row[4]
    print(
        f"{'model':<9} {'precision':<10} {'rounds':>6} {'step':>7} {'converted calls':>16} "
        f"{'executor: products':>19} {'casts':>7} {'ratio':>6}  losses"
    )
    is_reached = True
    for (model, precision), rows in modules.items():
        step, calls = (statistics.median(column) / 1e6 for column in zip(*rows))
        own = executor.get((model, precision))
        said = f"{'':>19} {'':>7} {'':>6}"
        if own:
            products, casts = (statistics.median(column) / 1e6 for column in zip(*own))
            ratio = calls / (products + casts)
            said = f"{products:>16.1f} ms {casts:>4.1f} ms {ratio:>6.2f}"
            is_reached &= precision not in ("bf16", "int8_full") or ratio <= WITHIN
        print(
            f"{model:<9} {precision:<10} {len(rows):>6} {step:>4.0f} ms {calls:>13.1f} ms {said}  "
            f"{losses[model, precision]}"
        )
    return is_reached


def print_replays():
    errors = {}
    print(f"{'round':<6} {'model':<13} {'plan':<10} {'replay':>9} {'run':>9} {'error':>8}")
    for turn, (model, plan, predicted, measured) in rows_of("replays"):
        replay, run = int(predicted) / 1e6, int(measured) / 1e6
        error = replay / run - 1
        errors.setdefault(turn, []).append(error)
        print(f"{turn:<6} {model:<13} {plan:<10} {replay:>6.1f} ms {run:>6.1f} ms {100 * error:>+6.1f} %")
    is_reached = True
    for turn, of_turn in errors.items():
        mean, worst = statistics.mean(map(abs, of_turn)), max(map(abs, of_turn))
        is_reached &= mean <= MEAN_ERROR and worst <= WORST_ERROR
        print(
            f"round {turn}: {len(of_turn)} replays, error {100 * mean:.1f} % on average, "
            f"{100 * worst:.1f} % at worst"
        )
    return is_reached


if __name__ == "__main__":
    sys.exit(
        not {"steps": print_steps, "converted": print_converted, "replays": print_replays}[sys.argv[1]]()
    )
