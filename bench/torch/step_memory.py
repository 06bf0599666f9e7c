"""Peak memory of training steps as tandem predicts it from one capture, beside PyTorch's own count.

usage: step_memory.py [MODULE …]      all of MODULES, some 6 minutes of one core; needs `make`, torchvision

Each module is captured once, in fp32 (or in autocast's bf16) without an optimizer, at batch 8. Predicted and
judged are batches, precisions and optimizers that the capture did not run. Measured is what PyTorch's profiler
counts on the CPU from before the module is made: the largest sum during the third step. That covers weights, gradients, state, DistributedDataParallel's buckets, activations and workspaces.
The list is fixed; its hash is printed. Exit code 1 where the mean error exceeds 3 %, or one 8 %.
"""

import contextlib
import copy
import functools
import gc
import hashlib
import json
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.models as models
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

import tandem

CAPTURED, BATCHES, PRECISIONS, OPTIMIZERS = 8, (6, 12, 20), ("bf16", "int8_full"), ("sgd", "adamw")
SIDE, CLASSES, WORDS, LENGTH = 64, 100, 1000, 48


class Transformer(nn.Module):
    """Tokens to logits of words, with attention written out; `rank`: its weights are frozen, LoRA's are not."""

    def __init__(self, width=128, depth=3, heads=4, causal=True, rank=0, checkpointed=False):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Parameter(torch.randn(LENGTH, width) / 9)
        sizes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            block = nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()})
            block.update({"first": nn.LayerNorm(width), "second": nn.LayerNorm(width)})
            self.blocks.append(block)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.heads, self.causal, self.checkpointed, self.rank = heads, causal, checkpointed, rank
        if rank:
            for parameter in self.parameters():
                parameter.requires_grad_(False)
            for block in self.blocks:
                block["a"], block["b"] = nn.Linear(width, rank, bias=False), nn.Linear(rank, 3 * width, bias=False)

    def block(self, block, x):
        batch, length, width = x.shape
        read = block["first"](x)
        qkv = block["qkv"](read)
        if self.rank:
            qkv = qkv + block["b"](block["a"](read))
        q, k, v = qkv.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if self.causal:
            scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -1e9)
        x = x + block["out"]((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
        return x + block["down"](F.gelu(block["up"](block["second"](x))))

    def forward(self, tokens):
        x = self.words(tokens) + self.places
        for block in self.blocks:
            run = functools.partial(self.block, block)
            x = checkpoint(run, x) if self.checkpointed and x.requires_grad else run(x)
        return self.head(self.norm(x)).flatten(0, 1)


class Encoder(nn.Module):
    """PyTorch's own encoder, with its attention."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 128)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, 0.1, batch_first=True), 3)
        self.head = nn.Linear(128, CLASSES)

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens)).mean(1))


def images(batch):
    return torch.randn(batch, 3, SIDE, SIDE), torch.randint(0, CLASSES, (batch,))


def words(batch):
    return torch.randint(0, WORDS, (batch, LENGTH)), torch.randint(0, WORDS, (batch * LENGTH,))


def texts(batch):
    return torch.randint(0, WORDS, (batch, LENGTH)), torch.randint(0, CLASSES, (batch,))


def vision(name, **options):
    return lambda: getattr(models, name)(num_classes=CLASSES, **options), images


# module, its data, and how it runs: "", "autocast", "ddp"
MODULES = {
    "resnet18": (*vision("resnet18"), ""),
    "resnet50": (*vision("resnet50"), ""),
    "regnet": (*vision("regnet_x_400mf"), ""),
    "mobilenet_v3": (*vision("mobilenet_v3_small"), ""),
    "efficientnet_b0": (*vision("efficientnet_b0"), ""),
    "densenet121": (*vision("densenet121"), ""),
    "convnext_tiny": (*vision("convnext_tiny"), ""),
    "swin_t": (*vision("swin_t"), ""),
    "vit": (lambda: models.VisionTransformer(SIDE, 8, 4, 4, 192, 768, num_classes=CLASSES), images, ""),
    "bert": (functools.partial(Transformer, causal=False), words, ""),
    "gpt2": (Transformer, words, ""),
    "gpt2_lora": (functools.partial(Transformer, rank=8), words, ""),
    "gpt2_checkpointed": (functools.partial(Transformer, checkpointed=True), words, ""),
    "encoder": (Encoder, texts, ""),
    "resnet18_autocast": (*vision("resnet18"), "autocast"),
    "gpt2_autocast": (Transformer, words, "autocast"),
    "resnet18_ddp": (*vision("resnet18"), "ddp"),
    "gpt2_ddp": (Transformer, words, "ddp"),
}


def under(way):
    return torch.autocast("cpu", dtype=torch.bfloat16) if way == "autocast" else contextlib.nullcontext()


def make_optimizer(name, module):
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if name == "adamw":
        return torch.optim.AdamW(trained, lr=1e-4)
    return torch.optim.SGD(trained, lr=1e-4, momentum=0.9)


def read_peak(events):
    """The largest sum of what was allocated and not yet released, during the judged step."""
    time = lambda event: event.start_ns() if hasattr(event, "start_ns") else event.start_us()  # noqa: E731
    length = lambda event: event.duration_ns() if hasattr(event, "duration_ns") else event.duration_us()  # noqa: E731
    events = sorted(events, key=time)
    judged = next(one for one in events if one.name() == "judged")
    begin, end, now, peak = time(judged), time(judged) + length(judged), 0, 0
    for one in events:
        if one.name() == "[memory]" and one.device_type() == torch.autograd.DeviceType.CPU:
            now += one.nbytes()
            peak = max(peak, now if begin <= time(one) <= end else 0)
    return peak


def measure(make, data, way, batch, precision, optimizer_name):
    """Peak bytes of the third step."""
    x, y = data(batch)
    gc.collect()  # what earlier modules left is not released inside
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        module = make()
        if precision != "fp32":
            tandem.apply(module, precision)
        optimizer = make_optimizer(optimizer_name, module)
        if way == "ddp":
            module = nn.parallel.DistributedDataParallel(module)
        for step in range(3):
            gc.collect()  # what the steps before it left
            with record_function("judged" if step == 2 else "before"):
                optimizer.zero_grad()
                with under(way):
                    loss = F.cross_entropy(module(x), y)
                loss.backward()
                del loss
                optimizer.step()
    return read_peak(profiler.profiler.kineto_results.events())


def rows_of(name):
    make, data, way = MODULES[name]
    torch.manual_seed(0)
    x, y = data(CAPTURED)
    with under(way):
        graph = tandem.capture(make(), x, loss=F.cross_entropy, target=y, name=name)
    if graph.memory is None:
        raise SystemExit(f"{name}: {graph.memory_unknown}")
    ranks = 2 if way == "ddp" else 1
    for batch in BATCHES:
        for index, optimizer_name in enumerate(OPTIMIZERS):
            # apply refuses autocast: there the precision is autocast's
            precision = "fp32" if way == "autocast" else PRECISIONS[(index + BATCHES.index(batch)) % 2]
            at = graph.at_batch(batch)
            predicted = at.peak_memory(precision, ranks=ranks, optimizer=make_optimizer(optimizer_name, make()))
            measured = measure(make, data, way, batch, precision, optimizer_name)
            yield batch, precision, optimizer_name, predicted, measured


def run_rank(rank, name, folder):
    """One of two ranks of DistributedDataParallel; the first prints."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    with contextlib.nullcontext() if rank == 0 else contextlib.redirect_stdout(None):
        errors = print_rows(name)
    if rank == 0:
        with open(os.path.join(folder, "errors"), "w", encoding="ascii") as file:
            json.dump(errors, file)


def print_rows(name):
    errors = []
    for batch, precision, optimizer_name, predicted, measured in rows_of(name):
        error = predicted.total / measured - 1
        errors.append(error)
        print(
            f"{name:<18} {batch:>5} {precision:<10} {optimizer_name:<6} {predicted.total / 2**20:9.1f} MiB "
            f"{measured / 2**20:9.1f} MiB {100 * error:+6.1f} %",
            flush=True,
        )
    return errors


def run(name):
    if MODULES[name][2] != "ddp":
        return print_rows(name)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_rank, (name, folder), nprocs=2)
        with open(os.path.join(folder, "errors"), encoding="ascii") as file:
            return json.load(file)


def main(names):
    torch.set_num_threads(1)
    asked = f"{list(MODULES)} {CAPTURED} {BATCHES} {PRECISIONS} {OPTIMIZERS}"
    print(f"list {hashlib.sha256(asked.encode()).hexdigest()[:12]}, PyTorch {torch.__version__}")
    print(f"{'module':<18} batch {'precision':<10} {'update':<6} {'predicted':>13} {'measured':>13} {'error':>8}")
    errors = [abs(error) for name in names or MODULES for error in run(name)]
    mean, worst = sum(errors) / len(errors), max(errors)
    print(f"{len(errors)} steps: mean {100 * mean:.1f} %, worst {100 * worst:.1f} %")
    return mean > 0.03 or worst > 0.08


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
