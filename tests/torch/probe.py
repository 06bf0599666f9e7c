"""Estimates models of the zoo by tandem's probe and by tandem.sensitivity, from the same weights, with samples of the same data, and
holds the noise of each operator in each precision against each other. Speaks TAP; the lines that begin with # are the table.
usage: probe.py TANDEM DIRECTORY"""
import json
import math
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch import nn

import models
import samples
import tandem

program, directory = sys.argv[1:]
MOST, MOST_OF_ONE = 1.25, 1.6  # times as much noise, on average and of one operator, by other samples
KNOWN = 0.5  # the mean is that of operators whose own interval reaches up and down by half at the most
BATCH, REPLICATES = 4, 64  # at a batch of 4 the program estimates whole batches, as tandem.sensitivity does


class Mlp(models.Model):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.head = self.linear("fc1", 784, width, 784**-0.5), self.linear("head", width, 10, width**-0.5)

    def forward(self, x):
        return self.head(F.relu(self.fc1(x.flatten(1))))


def by_program(name, model, weights):
    samples.write_weights(weights, {one: layout(x.detach()).numpy().copy() for one, x, layout in model.tensors})
    command = [program, "sensitivity", "--quiet", "--json", "--model", name, "--data", directory, "--batch", str(BATCH), "--at", "0"]
    command += ["--steps", "1", "--repetitions", str(REPLICATES), "--init", weights, "--db", f"{directory}/{name}.db"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(run.stderr)
    rows = json.loads(run.stdout)["operators"]
    return list(dict.fromkeys(row["operator"] for row in rows)), {(row["operator"], row["precision"]): row for row in rows}


def by_package(name, model, data, optimizer):
    x, labels = data["train"]
    draw = torch.Generator().manual_seed(7)
    chosen = [torch.randint(0, len(x), (BATCH,), generator=draw) for _ in range(2 * REPLICATES)]
    batches = [(x[one], labels[one]) for one in chosen]
    estimated = tandem.sensitivity(model, batches, F.cross_entropy, optimizer=optimizer, store=f"{directory}/{name}.package.db",
                                replicates=REPLICATES)  # fmt: skip
    return estimated.values


def names_of(operators, calls):
    """Of each operator the call. Products of activations have the names of functions there, in the same order."""
    products = iter(call for call in calls if "matmul" in call)
    names = {operator: "made_" + operator.replace(".", "_") for operator in operators}
    names = {operator: call if call in calls else next(products) for operator, call in names.items()}
    if set(names.values()) != set(calls):
        raise RuntimeError(f"operators differ: {names}, {list(calls)}")
    return names


def compare(number, name, model, data, optimizer, left_out=()):
    """After relus single samples are much of the noise: there it is known no better than its interval says."""
    operators, ours = by_program(name, model, f"{directory}/weights.safetensors")
    theirs = by_package(name, model, data, optimizer)
    names, logs, known, apart = names_of(operators, theirs), {}, [], []
    for (operator, precision), row in ours.items():
        if precision not in ("tf32", "int8", "int8_full") or (operator, precision) in left_out:
            continue
        cell, one = (operator, precision), theirs[names[operator]][precision]
        half = math.hypot(row["sensitivity_high"] - row["sensitivity"], one.half)
        logs[cell] = math.log(one.noise / row["noise"])
        if half < KNOWN * row["noise"]:
            known.append(logs[cell])
        if abs(logs[cell]) > math.log(MOST_OF_ONE) and abs(one.noise - row["noise"]) > half:
            apart.append(" ".join(cell))
    for cell in sorted(logs):
        print(f"# {name:40} {' '.join(cell):40} {ours[cell]['noise']:9.3g} % {math.exp(logs[cell]):6.3f}")
    mean = sum(known) / len(known)
    print(f"# {name}: geometric mean of {len(known)} of {len(logs)} cells {math.exp(mean):.3f}, apart: {', '.join(apart) or 'none'}")
    same = abs(mean) < math.log(MOST) and not apart
    print("ok" if same else "not ok", number, "-", f"{name}: PyTorch's gradients show the program's noise", flush=True)
    return same


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    data = samples.make_images(directory)
    good = compare(1, "mlp:width=16,depth=1", Mlp(16), data, None)
    good &= compare(2, "resnet20:width=2", models.Resnet20(width=2), data, None)
    # the program casts the results of softmax in their known range, and tandem.apply in that of the tensor
    known = [("block0.attention.mix", precision) for precision in ("int8", "int8_full")]
    model = models.VitTiny(width=16, heads=2, depth=1, patch=7)
    good &= compare(3, "vit_tiny:width=16,heads=2,depth=1,patch=7", model, data, torch.optim.AdamW, known)
    print("1..3")
    return 0 if good else 1


sys.exit(main())
