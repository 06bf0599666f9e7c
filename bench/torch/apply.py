"""Steps of a module in PyTorch's fp32 and as tandem.apply runs it, in turns: one line of JSON per precision.

With --export, writes the module as an ONNX file instead, for tandem's executor. With --parts, says what the
converted calls of a step spend their time in, and how fast each pass runs with its casts, by timers around each
call of the kernel library; for the first of the precisions that is not fp32.

Gradients are dropped between steps, as PyTorch does by default since 2.0, and as tandem's executor does; with
--zero they are set to zero and added to, as in 1.13.

usage: apply.py resnet18|encoder [--batch N] [--rounds N] [--precisions LIST] [--zero] [--parts]
                [--export FILE]
one thread; libraries in build/
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import torch

import tandem
from tandem._kernels import Conv2d, Kernels, Linear, Matmul

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=("resnet18", "encoder"))
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--precisions", default="fp32,int8_full,int8,bf16")
parser.add_argument("--zero", action="store_true")
parser.add_argument("--parts", action="store_true")
parser.add_argument("--export")
options = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)


class Sgd(torch.optim.SGD):
    def __init__(self, parameters):
        super().__init__(parameters, lr=0.01, momentum=0.9)

    def zero_grad(self, set_to_none=not options.zero):
        super().zero_grad(set_to_none)


class Mean(torch.nn.Module):
    """Over the tokens."""

    def forward(self, x):
        return x.mean(1)


if options.model == "resnet18":
    import torchvision

    module, x = torchvision.models.resnet18(num_classes=10), torch.randn(options.batch, 3, 96, 96)
else:
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    module = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 4), torch.nn.Linear(256, 10), Mean())
    x = torch.randn(options.batch, 64, 256)
y = torch.randint(0, 10, (options.batch,))
if options.export:
    training = torch.onnx.TrainingMode.TRAINING
    torch.onnx.export(module, x, options.export, training=training, do_constant_folding=False)
    sys.exit(0)
start = {name: value.clone() for name, value in module.state_dict().items()}


def losses_and_times(precision, steps):
    """Losses of some training steps from the same weights, and their times."""
    module.load_state_dict(start)
    tandem.remove(module)
    if precision != "fp32":
        tandem.apply(module, precision)
    optimizer = Sgd(module.parameters())
    losses, times = [], []
    for _ in range(steps):
        begin = time.perf_counter_ns()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(x), y)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter_ns() - begin)
        losses.append(loss.item())
    return losses, times[1:]


def timed(run, spent, part_of):
    """run, its seconds added to spent[part_of(arguments)]."""

    def run_timed(*args):
        begin = time.perf_counter()
        result = run(*args)
        seconds, calls = spent.get(part_of(args), (0.0, 0))
        spent[part_of(args)] = seconds + time.perf_counter() - begin, calls + 1
        return result

    return run_timed


def linear_of(args):
    """A call of tandem_kernels_linear: what it is, and the multiplications of its products."""
    of = args[1]._obj
    batch = of.batch[0] * of.batch[1]
    products = sum(map(bool, (of.c, of.ga, of.gb)))
    name = f"{'forward' if of.c else 'backward'}, {of.m} x {of.n} x {of.k}"
    return name + (f", {batch} times" if batch > 1 else ""), products * batch * of.m * of.n * of.k


def conv2d_of(args):
    """The same of tandem_kernels_conv2d_s8."""
    of = args[1]._obj
    rows, columns = (
        (size + 2 * of.pad - of.kernel) // of.stride + 1 for size in (of.height, of.width)
    )  # of the result
    products = sum(map(bool, (of.y, of.gx, of.gw)))
    name = f"{'forward' if of.y else 'backward'}, {of.images} x {of.height} x {of.width} x {of.channels} -> {of.out}"
    work = products * of.images * rows * columns * of.out * of.kernel**2 * of.channels
    return f"{name}, {of.kernel} x {of.kernel} / {of.stride}", work


def print_parts(precision, steps=24):
    """What the converted calls of a step take: medians over the last three quarters of some steps."""
    tandem.apply(module, precision)
    kernels = module.__dict__["forward"].conversion.kernels
    spent, rows = {}, []
    for name in ("quantise", "products", "cast", "dequantise", "windows", "column_sums"):
        setattr(kernels, "_" + name, timed(getattr(kernels, "_" + name), spent, lambda args, name=name: name))
    kernels._linear = timed(kernels._linear, spent, linear_of)
    kernels._conv2d = timed(kernels._conv2d, spent, conv2d_of)
    for kind in (Linear, Conv2d, Matmul):
        for pass_ in ("forward", "backward"):
            setattr(kind, pass_, staticmethod(timed(getattr(kind, pass_), spent, lambda args: "calls")))
    optimizer = Sgd(module.parameters())
    for _ in range(steps):
        spent.clear()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
        rows.append(dict(spent))
    rows = rows[steps // 4 :]
    middle = {part: 1e3 * statistics.median(row[part][0] for row in rows) for part in rows[0]}
    passes = {part: ms for part, ms in middle.items() if isinstance(part, tuple)}
    parts = {"passes, one call each": sum(passes.values())}
    parts.update({part: ms for part, ms in middle.items() if part not in passes and part != "calls"})
    print(f"{options.model} {precision} by {kernels.isa}: ms of converted calls in a step")
    for part, ms in parts.items():
        print(f"{part:<40} {ms:>7.1f}")
    print(f"{'the rest: Python, tensors, layouts, sums':<40} {middle['calls'] - sum(parts.values()):>7.1f}")
    print(f"{'pass, m x n x k or images':<50} {'calls':>6} {'ms':>7} {'TOP/s':>6}")
    for (name, work), ms in sorted(passes.items(), key=lambda one: -one[1]):
        calls = rows[0][name, work][1]
        print(f"{name:<50} {calls:>6} {ms:>7.2f} {2e-9 * work * calls / ms:>6.2f}")


precisions = options.precisions.split(",")
if options.parts:
    print_parts(next(one for one in precisions if one != "fp32"))
    sys.exit(0)
samples = {precision: [] for precision in precisions}
losses = {}
for _ in range(options.rounds):
    for precision in precisions:
        losses[precision], times = losses_and_times(precision, 4)
        samples[precision] += times
# what the converted calls take, forward and backward, with their casts
store = os.path.join(tempfile.mkdtemp(), "tandem.db")
profile = tandem.profile(
    module,
    x,
    lambda output: torch.nn.functional.cross_entropy(output, y),
    optimizer=Sgd,
    precisions=precisions,
    store=store,
    steps=20,
)
adjustable = {call.name for call in profile.graph.adjustable}
converted = {precision: 0.0 for precision in precisions}
for call in profile.calls:
    if call.call in adjustable:
        converted[call.precision] += call.forward + call.backward
for precision in precisions:
    row = {
        "model": options.model,
        "precision": precision,
        "step_ns": int(statistics.median(samples[precision])),
    }
    row["converted_ns"] = round(converted[precision] * 1e9)
    row["losses"] = [round(loss, 4) for loss in losses[precision]]
    row["kernels"] = Kernels().isa
    print(json.dumps(row))
