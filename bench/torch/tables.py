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


OURS = "tandem"


def read_steps():
    """By (model, threads, precision, program): columns of step_ns, peak_bytes, model_bytes, bytes beyond the state,
    by round; or why there are none."""
    samples, reasons = {}, {}
    for _, (case, *numbers) in rows_of("steps"):
        key = tuple(case.split("|"))
        step, peak, of_model, state = (int(number) for number in numbers[:4])
        rows = samples.setdefault(key, [])
        if step:
            rows.append((step, peak, of_model, of_model - state))
        else:
            reasons[key] = numbers[4]
    return {key: list(zip(*rows)) or reasons[key] for key, rows in samples.items()}


def peers_of(cases, model, threads, precision):
    """PyTorch's measured cases beside tandem's: of the precision, or of all where it has none in that."""
    peers = [
        key for key, case in cases.items() if key[:2] == (model, threads) and key[3] != OURS and isinstance(case, list)
    ]
    return [key for key in peers if key[2] == precision] or peers


def mebibytes(size):
    return f"{size / 2**20:.0f} MiB" if size else ""


def print_steps():
    cases = read_steps()
    middle = lambda key, column: statistics.median(cases[key][column])  # noqa: E731
    best = {}  # of tandem's cases
    for key in cases:
        peers = peers_of(cases, *key[:3]) if key[3] == OURS and isinstance(cases[key], list) else []
        if peers:
            best[key] = min(peers, key=lambda peer: middle(peer, 0))
    wide = max((len(key[3]) for key in cases), default=7)
    print(
        f"{'model':<10} {'threads':>7} {'precision':<9} {'program':<{wide}} {'rounds':>6} {'step':>8} {'least':>8} "
        f"{'most':>8} {'tandem':>7} {'peak':>9} {'of the model':>13} {'beyond':>9}"
    )
    for key, case in cases.items():
        model, threads, precision, program = key
        begin = f"{model:<10} {threads:>7} {precision:<9} {program:<{wide}}"
        if not isinstance(case, list):
            print(f"{begin} not measured: {case}")
            continue
        ours = (model, threads, precision, OURS)
        faster = f"{middle(key, 0) / middle(ours, 0):.2f} x" if ours in best and key != ours else ""
        sizes = [mebibytes(middle(key, column)) for column in (1, 2, 3)]
        print(
            f"{begin} {len(case[0]):>6} {middle(key, 0) / 1e9:>6.2f} s {min(case[0]) / 1e9:>6.2f} s "
            f"{max(case[0]) / 1e9:>6.2f} s {faster:>7} {sizes[0]:>9} {sizes[1]:>13} {sizes[2]:>9}"
            + (" best" if best.get(ours) == key else "")
        )
    print(
        "\nof the model: PyTorch's peak less the resident bytes before it made the model; tandem's peak less that of a"
        "\nstep of mlp:width=1,depth=1; of 2 ranks of tandem what the first allocates. beyond: less 4 bytes for each"
        "\nweight, gradient and element of the optimizer's state (SGD with momentum 1 a weight, AdamW 2). best: the"
        "\nshortest step of PyTorch in the precision, for int8_full in any. faster: that step over tandem's; of fp32:"
        "\ntandem's own step in fp32 over this one; memory: tandem's bytes beyond over the fewest of PyTorch's there\n"
    )
    print(
        f"{'model':<10} {'threads':>7} {'precision':<9} {'step':>8} {'best':>8} {'faster':>7} {'of fp32':>8} "
        f"{'beyond':>9} {'fewest':>9} {'memory':>6}  best program"
    )
    for key, peer in best.items():
        model, threads, precision, _ = key
        of_fp32 = ""
        fp32 = (model, threads, "fp32", OURS)
        if fp32 in best and precision != "fp32":
            of_fp32 = f"{middle(fp32, 0) / middle(key, 0):.2f} x"
        fewest = min(middle(one, 3) for one in peers_of(cases, *key[:3]))
        print(
            f"{model:<10} {threads:>7} {precision:<9} {middle(key, 0) / 1e9:>6.2f} s {middle(peer, 0) / 1e9:>6.2f} s "
            f"{middle(peer, 0) / middle(key, 0):>5.2f} x {of_fp32:>8} {mebibytes(middle(key, 3)):>9} "
            f"{mebibytes(fewest):>9} {middle(key, 3) / fewest:>6.2f}  {peer[3]}, {peer[2]}"
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
