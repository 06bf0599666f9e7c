"""Replays of PyTorch's DistributedDataParallel from its own profile, beside the runs: two ranks over Gloo.

One rank is held to SSE4.1. Plans take turns with each other, and are measured in the same processes that were
profiled. Prints a line per case, and the mean and largest error.

usage: replay.py [--steps N]     a core per rank; libraries in build/ (docs/pytorch.md)
"""

import os
import subprocess
import sys
import tempfile

OLD = {"ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Nehalem", "ATEN_CPU_CAPABILITY": "default"}
if "RANK" not in os.environ:
    folder = tempfile.mkdtemp()
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv, folder], env={**os.environ, **only, "RANK": str(rank)})
        for rank, only in enumerate(({}, OLD))
    ]
    sys.exit(max(rank.wait() for rank in ranks))

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import torch
import torch.distributed as dist

import tandem

rank, folder = int(os.environ["RANK"]), sys.argv[-1]
steps = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else 8
torch.set_num_threads(1)
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[rank % len(cores)]})
dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
torch.manual_seed(0)


def mlp():
    parts = [torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts, torch.nn.Linear(1024, 10)), torch.randn(128, 784)


def encoder():
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2), torch.randn(8, 48, 128)


def convolutions():
    parts = []
    for c_in, c_out in ((16, 32), (32, 32), (32, 64)):
        parts += [torch.nn.Conv2d(c_in, c_out, 3, padding=1), torch.nn.BatchNorm2d(c_out), torch.nn.ReLU()]
    head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10)]
    return torch.nn.Sequential(*parts, *head), torch.randn(16, 16, 24, 24)


errors = []
for make in (mlp, encoder, convolutions):
    module, x = make()
    store = f"{folder}/{make.__name__}.db"
    of = {"device": ("torch:new", "torch:old")[rank], "store": store, "steps": steps}
    profile = tandem.profile(module, x, precisions=["fp32", "int8", "int8_full"], **of)
    if rank == 0:
        tandem.sensitivity(module, [x] * 2, store=store)
    dist.barrier()
    plan = tandem.allocate(profile.graph, profile.cluster, store=store, time_limit=1)
    plans = {"fp32": None, "int8": "int8", "int8_full": "int8_full", "planned": plan}
    rows = tandem.compare(
        module, x, plans, profile.cluster, graph=profile.graph, steps=steps, rounds=2, store=store
    )
    errors += [abs(row.error) for row in rows]
    if rank == 0:
        for row in rows:
            print(f"{make.__name__:<13} {row}", flush=True)
if rank == 0:
    mean, worst = 100 * sum(errors) / len(errors), 100 * max(errors)
    print(f"{len(errors)} cases: error {mean:.1f} % on average, {worst:.1f} % at worst")
dist.barrier()
dist.destroy_process_group()
