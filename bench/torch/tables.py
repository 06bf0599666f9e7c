"""The tables of bench/torch.sh, of the files that it keeps: medians over rounds.

usage: tables.py steps|converted|replays FOLDER     exits 1 where a bar is missed
"""

import glob
import os
import statistics
import sys

WITHIN = 1.10  # of the executor's time, for converted calls in bf16 and int8_full
MEAN_ERROR, WORST_ERROR = 0.05, 0.10  # of replays


def in_turn(path):
    """The order in which cases ran: numbers by their value."""
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in path.split(".")]


def rows_of(part):
    """The rows of every file, round by round, with what the file's name says after the part."""
    for path in sorted(glob.glob(os.path.join(sys.argv[2], part + ".*")), key=in_turn):
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield os.path.basename(path).split(".")[1:], line.rstrip("\n").split("\t")


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


def read_converted():
    """By (set, model, precision): what each round measured of the module and of the executor."""
    cases = {}
    for place, row in rows_of("converted"):
        turn, held = place[:2]
        is_executor = row[0] == "executor"
        case = cases.setdefault((held, *row[is_executor : is_executor + 2]), {})
        one = case.setdefault(turn, {})
        if is_executor:
            one["products"], one["casts"], one["biases"] = (int(number) / 1e6 for number in row[3:6])
            one["executor"] = one["products"] + one["casts"] + one["biases"]
        else:
            one["step"], one["calls"] = (int(number) / 1e6 for number in row[2:4])
            one["losses"], one["kernels"] = row[4:6]
    return cases


def print_converted():
    cases = read_converted()
    print(
        f"{'kernels':<12} {'model':<9} {'precision':<10} {'rounds':>6} {'step':>7} {'of fp32':>8} {'calls':>9} "
        f"{'products':>9} {'casts':>8} {'biases':>8} {'ratio':>6} {'least, most':>11}  losses"
    )
    is_reached = True
    for (held, model, precision), turns in cases.items():
        rounds = [one for one in turns.values() if "calls" in one and "executor" in one]
        if not rounds:
            continue
        middle = lambda name, of=rounds: statistics.median(one[name] for one in of)  # noqa: E731
        ratios = [one["calls"] / one["executor"] for one in rounds]
        fp32 = cases[held, model, "fp32"]
        of_fp32 = statistics.median(turns[turn]["step"] / fp32[turn]["step"] for turn in turns)
        ratio = statistics.median(ratios)
        print(
            f"{rounds[-1]['kernels']:<12} {model:<9} {precision:<10} {len(rounds):>6} {middle('step'):>4.0f} ms "
            f"{of_fp32:>8.2f} {middle('calls'):>6.1f} ms {middle('products'):>6.1f} ms {middle('casts'):>5.1f} ms "
            f"{middle('biases'):>5.1f} ms {ratio:>6.2f} {min(ratios):>5.2f}, {max(ratios):.2f}  {rounds[-1]['losses']}"
        )
        if precision in ("bf16", "int8_full"):
            theirs = statistics.median(one["executor"] for one in fp32.values() if "executor" in one)
            is_reached &= ratio <= WITHIN and (of_fp32 < 1 or middle("executor") >= theirs)
    return is_reached


def print_replays():
    errors = {}
    print(f"{'round':<6} {'model':<13} {'plan':<10} {'replay':>9} {'run':>9} {'error':>8}")
    for (turn, *_), (model, plan, predicted, measured) in rows_of("replays"):
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
