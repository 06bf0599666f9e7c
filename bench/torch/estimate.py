#!/usr/bin/python3
"""What tandem.sensitivity takes of a module's training steps, with the models of apply.py: one line of JSON.

step_ns: a step of PyTorch in fp32, median of those before and after the estimate. steps: the time of the estimate over it.
memory: what the peak of the process grows by beyond that of the steps, which drop their gradients at the end. One thread; run it on a core of its own.

usage: estimate.py resnet18|encoder [--batch N] [--replicates N]
"""
import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import torch

import tandem

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=("resnet18", "encoder"))
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--replicates", type=int, default=4)
options = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)


class Mean(torch.nn.Module):
    def forward(self, x):
        return x.mean(1)


def make_module():
    if options.model == "resnet18":
        import torchvision

        return torchvision.models.resnet18(num_classes=10), (3, 96, 96)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 4), torch.nn.Linear(256, 10), Mean()), (64, 256)


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def step_times(module, optimizer, given, steps=6):
    times = []
    for _ in range(steps):
        begin = time.perf_counter_ns()
        torch.nn.functional.cross_entropy(module(given[0]), given[1]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter_ns() - begin)
    return times[1:]


module, shape = make_module()
optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
batches = [
    (torch.randn(options.batch, *shape), torch.randint(0, 10, (options.batch,)))
    for _ in range(2 * options.replicates)
]
times = step_times(module, optimizer, batches[0])
before = peak_bytes()
with tempfile.TemporaryDirectory() as folder:
    begin = time.perf_counter_ns()
    found = tandem.sensitivity(module, batches, torch.nn.functional.cross_entropy, optimizer=optimizer,
                               store=f"{folder}/tandem.db", replicates=options.replicates)  # fmt: skip
    estimate = time.perf_counter_ns() - begin
after = peak_bytes()
step = statistics.median(times + step_times(module, optimizer, batches[0]))
print(json.dumps({"model": options.model, "batch": options.batch, "calls": len(found.values), "replicates": options.replicates,
                  "step_ns": round(step), "sensing_ns": estimate, "steps": round(estimate / step, 1),
                  "memory": round(after / before - 1, 3)}))  # fmt: skip
