"""Replays of PyTorch's DistributedDataParallel from its own profile, beside the runs: two ranks over Gloo.

One rank is held to SSE4.1. Profiles and runs take turns in the same processes: profile, run, …, profile.
Prints a line per case: model, plan, predicted and measured ns of a step, medians over all turns.

usage: replay.py [MODEL…] [-v]     mlp, encoder, convolutions [all]; a core per rank; libraries in build/
"""

import os
import statistics
import subprocess
import sys
import tempfile

OLD = {"ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Nehalem", "ATEN_CPU_CAPABILITY": "default"}
if "RANK" not in os.environ:
    folder = tempfile.mkdtemp()
    # OpenBLAS has threads of its own, which torch.set_num_threads does not know.
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv, folder], env={**alone, **only, "RANK": str(rank)})
        for rank, only in enumerate(({}, OLD))
    ]
    sys.exit(max(rank.wait() for rank in ranks))

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import torch
import torch.distributed as dist

import tandem

rank, folder = int(os.environ["RANK"]), sys.argv[-1]
steps, rounds = 12, 3
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


MODELS = {make.__name__: make for make in (mlp, encoder, convolutions)}
PRECISIONS = ("fp32", "int8", "int8_full")


def measure(make):
    """Profiles and runs in turns: predicted and measured times are medians over the same minutes."""
    module, x = make()
    predicted, measured, plans = {}, {}, {}
    for turn in range(rounds + 1):
        store = f"{folder}/{make.__name__}{turn}.db"
        of = {"device": ("torch:new", "torch:old")[rank], "store": store, "steps": steps}
        profile = tandem.profile(module, x, precisions=PRECISIONS, **of)
        if rank == 0:
            tandem.sensitivity(module, [torch.randn_like(x) for _ in range(8)], store=store)
        dist.barrier()
        if not plans:
            plan = tandem.allocate(profile.graph, profile.cluster, store=store, proof_work=100_000_000)
            plans = {**{precision: precision for precision in PRECISIONS}, "planned": plan}
        if turn < rounds:
            options = {"graph": profile.graph, "steps": steps, "rounds": 1, "store": store}
            for row in tandem.compare(module, x, plans, profile.cluster, **options):
                predicted.setdefault(row.plan, []).append(row.predicted)
                measured.setdefault(row.plan, []).append(row.measured)
                if "-v" in sys.argv and rank == 0:
                    print(row, row.replay, sep="\n")
        else:
            for name, plan in plans.items():
                replayed = tandem.replay(profile.graph, profile.cluster, plan, store=store)
                predicted[name].append(replayed.step)
    return {name: (statistics.median(predicted[name]), statistics.median(measured[name])) for name in plans}


for name in sys.argv[1:-1] if len(sys.argv) > 2 else MODELS:
    if name not in MODELS:
        continue
    rows = measure(MODELS[name])
    if rank == 0:
        for plan, (predicted, measured) in rows.items():
            print(f"{name}\t{plan}\t{round(predicted * 1e9)}\t{round(measured * 1e9)}", flush=True)
dist.barrier()
dist.destroy_process_group()
