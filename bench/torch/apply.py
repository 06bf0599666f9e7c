"""Steps of a module in PyTorch's fp32 and as tandem.apply runs it, in turns: one line of JSON per precision.

With --export, writes the module as an ONNX file instead, for tandem's executor.

Gradients are dropped between steps, as PyTorch does by default since 2.0, and as tandem's executor does; with
--zero they are set to zero and added to, as in 1.13.

usage: apply.py resnet18|encoder [--batch N] [--rounds N] [--zero] [--export FILE]     one thread; libraries
in build/
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

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=("resnet18", "encoder"))
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--zero", action="store_true")
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


precisions = ("fp32", "int8_full", "int8", "bf16")
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
    steps=8,
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
    print(json.dumps(row))
