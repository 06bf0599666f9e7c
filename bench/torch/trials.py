#!/usr/bin/python3
"""How often the intervals of tandem.compare_loss hold: four plans of a PyTorch module, ten trials each.

The module is an encoder of two layers over the rows of fashion-mnist's images, after 100 steps of SGD. Trials
of a plan have the same steps and seeds of their own. ../trials.py judges them, as those of the command line:
each interval of the training loss by the mean of the nine others, and the answer to at_most=0.1.

usage: bench/torch/trials.py [ROWS]   ROWS [torch_trials.tsv] gets a line a trial; the next run goes on after
                                      the last one. PAIRS [8]: environment. Needs `make`, python3-torch and
                                      fashion-mnist; some ten minutes of one core
"""
import gzip
import hashlib
import math
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python"))
import numpy as np
import torch

import tandem

FOLDER = "/usr/share/datasets/fashion-mnist"
PAIRS, STEPS, BATCH, SEEDS = int(os.environ.get("PAIRS", "8")), 120, 16, range(1, 11)
SHORT = {"rate": 0.02, "before": 100, "width": 32, "heads": 2, "inner": 64}


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        width = SHORT["width"]
        self.embed = torch.nn.Linear(28, width)
        self.place = torch.nn.Parameter(0.02 * torch.randn(28, width))
        layer = torch.nn.TransformerEncoderLayer(width, SHORT["heads"], SHORT["inner"], dropout=0.0,
                                                 batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2)
        self.head = torch.nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x) + self.place).mean(1))


def read(name, head):
    with gzip.open(f"{FOLDER}/{name}") as file:
        return np.frombuffer(file.read(), np.uint8)[head:]


def make_batches():
    """6,000 images, in batches; each pair takes them in another order."""
    x = torch.tensor(read("train-images-idx3-ubyte.gz", 16)[: 6000 * 784].reshape(-1, 28, 28) / 255.0 - 0.5,
                     dtype=torch.float32)
    y = torch.tensor(read("train-labels-idx1-ubyte.gz", 8)[:6000].astype(np.int64))
    return [(x[k : k + BATCH], y[k : k + BATCH]) for k in range(0, len(x), BATCH)]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=SHORT["rate"])


def train_before(module, batches):
    optimizer = sgd(module.parameters())
    for x, y in batches[: SHORT["before"]]:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()


def make_plans(module, x):
    """Three precisions of all calls, and int8_full in every other call."""
    calls = [call.name for call in tandem.capture(module, x).adjustable]
    every_other = {name: "fp32" if k % 2 else "int8_full" for k, name in enumerate(calls)}
    return {"bf16": "bf16", "int8": "int8", "int8_full": "int8_full", "every_other": every_other}


def row_of(name, seed, whole, asked):
    numbers = (whole.training.mean, whole.training.low, whole.training.high, whole.base_loss,
               whole.diverged, whole.extra_samples.mean)
    words = ("-" if not math.isfinite(number) else f"{number:.9g}" for number in numbers)
    return "\t".join(("encoder", name, str(seed), *words, asked.answer))


def main():
    rows = Path(sys.argv[1] if len(sys.argv) > 1 else "torch_trials.tsv")
    rows.touch()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, batches = Encoder(), make_batches()
    train_before(module, batches)
    plans = make_plans(module, batches[0][0])
    fixed = hashlib.sha256(repr((plans, PAIRS, STEPS, BATCH, list(SEEDS), SHORT)).encode()).hexdigest()[:12]
    done = {tuple(line.split("\t")[1:3]) for line in rows.read_text().splitlines()}
    for name, plan in plans.items():
        for seed in SEEDS:
            if (name, str(seed)) in done:
                continue
            kept = rows.with_suffix(".branches")
            kept.unlink(missing_ok=True)
            given = {"pairs": PAIRS, "steps": STEPS, "seed": seed, "resume": kept}
            loss = torch.nn.functional.cross_entropy
            whole = tandem.compare_loss(module, plan, batches, loss, sgd, **given)
            asked = tandem.compare_loss(module, plan, batches, loss, sgd, at_most=0.1, **given)
            with rows.open("a") as file:
                file.write(row_of(name, seed, whole, asked) + "\n")
            kept.unlink()
    print(f"list {fixed}, PyTorch {torch.__version__}, {PAIRS} pairs of {STEPS} steps", flush=True)
    judge = [sys.executable, str(HERE.parent / "trials.py"), str(rows), str(len(plans) * len(SEEDS))]
    sys.exit(subprocess.run(judge, check=False).returncode)


if __name__ == "__main__":
    main()
