#!/usr/bin/env python3
"""Records a few training steps with the PyTorch profiler, one trace a rank, and beside each what PyTorch itself sums.

usage: record.py FOLDER [--model small|resnet18] [--ranks N] [--steps N] [--batch N] [--bf16] [--stack] [--legacy]

Writes FOLDER/rankK.json (export_chrome_trace; --legacy: torch.autograd.profiler's bare list) and FOLDER/rankK.sums.json:
[{name, shapes, calls, self_ns, total_ns}] of key_averages(group_by_input_shape=True). Several ranks train with
DistributedDataParallel over Gloo, in processes of their own. bench/torch/check.py holds `tandem whatif` against the sums; tests/data/torch holds small ones:

    record.py ddp --ranks 2; record.py legacy --legacy --bf16 --steps 1; gzip -9n …"""
import argparse
import json
import os
import sys

import torch
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel


def make_model(name):
    torch.manual_seed(0)
    if name == "resnet18":
        import torchvision

        return torchvision.models.resnet18(num_classes=10), (3, 64, 64)
    return (
        torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 8 * 8, 16),
            torch.nn.ReLU(),
            torch.nn.Linear(16, 10),
        ),
        (1, 8, 8),
    )


def step_of(options):
    model, shape = make_model(options.model)
    if options.ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    image, label = torch.randn(options.batch, *shape), torch.randint(10, (options.batch,))

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16):
            loss = torch.nn.functional.cross_entropy(model(image), label)
        loss.backward()
        optimizer.step()

    return step


def sums_of(profile):
    rows = profile.key_averages(group_by_input_shape=True)
    return [
        {
            "name": row.key,
            "shapes": json.dumps(row.input_shapes, separators=(",", ":")),
            "calls": row.count,
            "self_ns": round(1000 * row.self_cpu_time_total),
            "total_ns": round(1000 * row.cpu_time_total),
        }
        for row in rows
    ]


def record_legacy(options, path):
    step = step_of(options)
    step()
    with torch.autograd.profiler.profile(record_shapes=True, use_kineto=False) as profile:
        for _ in range(options.steps):
            step()
    profile.export_chrome_trace(path)
    return sums_of(profile)


def record(options, path):
    step = step_of(options)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=options.steps, repeat=1)
    sums = []

    def on_trace_ready(profile):
        profile.export_chrome_trace(path)
        sums.extend(sums_of(profile))

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        record_shapes=True,
        with_stack=options.stack,
        on_trace_ready=on_trace_ready,
    ) as profile:
        for _ in range(1 + options.steps):
            step()
            profile.step()
    return sums


def run(rank, options):
    torch.set_num_threads(1)
    if options.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=options.ranks)
    path = f"{options.folder}/rank{rank}.json"
    sums = (record_legacy if options.legacy else record)(options, path)
    with open(f"{options.folder}/rank{rank}.sums.json", "w", encoding="utf-8") as file:
        json.dump(sums, file)
    if options.ranks > 1:
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--model", choices=["small", "resnet18"], default="small")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--port", type=int, default=29511)
    for flag in ("--bf16", "--stack", "--legacy"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    if options.ranks == 1:
        run(0, options)
    else:
        torch.multiprocessing.spawn(run, args=(options,), nprocs=options.ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
