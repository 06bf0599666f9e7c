"""Models of models.py, exported in both modes, against PyTorch: parameters, FLOPs, the buckets of DDP, the forward pass (of a
file in training mode with the batch's statistics, in evaluation mode with the file's), and the losses of three training steps.
"own": how far PyTorch's losses in f32 are from its losses in f64; what rounding alone makes of them. "import": of the file
without weights, the median of five times.

usage: truth.py TANDEM TRAIN_STEPS DEVICE FOLDER [MODEL...]. Speaks TAP; then the table of docs/onnx.md."""
import json
import os
import re
import subprocess
import sys
import warnings

import numpy
import torch
import torch.distributed
import torch.nn.functional as F
from models import MODELS

BATCH, STEPS, RATE = 4, 3, 1e-4
MOST_FORWARD, MOST_LOSS = 1e-4, 1e-3

tandem, train_steps, device, folder = sys.argv[1:5]
chosen = sys.argv[5:] or list(MODELS)
warnings.filterwarnings("ignore")


class Case:
    """A model, its samples, and what PyTorch makes of them."""

    def __init__(self, name):
        self.name = name
        self.make, shapes = MODELS[name]
        self.is_text = isinstance(shapes, int)
        torch.manual_seed(7)
        if self.is_text:
            self.inputs = [torch.randint(0, 100, (BATCH, shapes))]
        else:
            self.inputs = [torch.randn(BATCH, *shape) for shape in shapes]
        torch.manual_seed(9)
        classes = 100 if self.is_text else 10 if name in ("mlp", "odd") else 1000
        self.labels = torch.randint(0, classes, (BATCH, shapes) if self.is_text else (BATCH,))
        self.logits, self.losses = self.train(torch.float32)
        exact = self.train(torch.float64)[1]
        self.own = max(difference(a, b) for a, b in zip(self.losses, exact))
        self.flops = count_flops(self.fresh().train(), self.inputs)
        self.buckets = count_buckets(self.fresh().train(), self.inputs, self.loss)

    def fresh(self):
        torch.manual_seed(3)
        return self.make()

    def cast(self, dtype):
        return [x if self.is_text else x.to(dtype) for x in self.inputs]

    def loss(self, logits):
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), self.labels.reshape(-1))

    def train(self, dtype):
        model, inputs = self.fresh().to(dtype).train(), self.cast(dtype)
        if self.is_text:
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
        first, losses = None, []
        for _ in range(STEPS):
            optimizer.zero_grad()
            logits = model(*inputs)
            first = logits.detach().clone() if first is None else first
            loss = self.loss(logits)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return first, losses

    def seen(self):
        """With running statistics that are not those it began with."""
        model = self.fresh().train()
        with torch.no_grad():
            for _ in range(8):
                model(*self.inputs)
        return model


def difference(a, b):
    return abs(a - b) / max(abs(b), 1)


def export(case, model, mode, with_weights=True):
    path = f"{folder}/{case.name}.{mode}{'' if with_weights else '.bare'}.onnx"
    kinds = torch.onnx.TrainingMode
    names = [f"in{i}" for i in range(len(case.inputs))]
    torch.onnx.export(
        model.train(mode == "train"),
        tuple(case.inputs),
        path,
        opset_version=11 if case.name == "vgg16" else 17,
        training=kinds.TRAINING if mode == "train" else kinds.PRESERVE,
        do_constant_folding=False,
        export_params=with_weights,
        input_names=names,
        dynamic_axes={name: {0: "batch"} for name in names},
    )
    return path


def count_flops(model, inputs):
    """Of linear layers, convolutions and products in the forward pass: a multiplication and an addition are two. An outer
    product, without additions, is none of these: the angles of positions are computed by the import."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        flops = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            name = function.__name__.split(".")[0]
            if name in ("mm", "bmm") and args[0].shape[-1] > 1:
                self.flops += 2 * out.numel() * args[0].shape[-1]
            elif name in ("addmm", "baddbmm"):
                self.flops += 2 * out.numel() * args[1].shape[-1]
            elif name == "convolution":
                self.flops += 2 * out.numel() * args[1][0].numel()
            return out

    with torch.no_grad(), Count() as count:
        model(*inputs)
    return count.flops


def count_buckets(model, inputs, loss):
    """Bytes of the buckets that DDP makes for its second step, in order."""
    ddp, sizes = torch.nn.parallel.DistributedDataParallel(model), {}

    def hook(_, bucket):
        sizes[bucket.index()] = bucket.buffer().numel() * 4
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    hook.__annotations__ = {"bucket": torch.distributed.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    ddp.register_comm_hook(None, hook)
    for _ in range(2):
        sizes.clear()
        loss(ddp(*inputs)).backward()
    return [sizes[i] for i in sorted(sizes)]


def write_samples(inputs):
    if len(inputs) == 1 and inputs[0].dim() == 4:
        data = inputs[0].permute(0, 2, 3, 1).contiguous().numpy()
    elif inputs[0].dtype == torch.int64:
        data = inputs[0].numpy().astype(numpy.int32)
    else:
        data = torch.cat([x.reshape(BATCH, -1) for x in inputs], 1).numpy()
    data.tofile(f"{folder}/x")


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def run_steps(case, path, steps):
    """(The first logits, losses), or why there are none."""
    write_samples(case.inputs)
    case.labels.numpy().astype(numpy.int32).tofile(f"{folder}/labels")
    rate = 3e-4 if case.is_text else RATE
    ran = run(train_steps, path, BATCH, device, f"{folder}/x", f"{folder}/labels", steps, f"{folder}/logits", rate)
    if ran.returncode:
        return None, ran.stderr.strip()
    return torch.from_numpy(numpy.fromfile(f"{folder}/logits", numpy.float32)), [float(x) for x in ran.stdout.split()]


def farthest(got, wanted):
    return ((got.reshape(wanted.shape) - wanted).abs().max() / wanted.abs().max().clamp(min=1)).item()


def check_runs(case, mode, model, path):
    """(What is wrong, the cells forward, losses)."""
    logits, losses = run_steps(case, path, STEPS)
    if logits is None:
        named = re.search(r"operator '[^']*' \((\w+).*planned, not trained", losses)
        return [] if named else [losses], [f"planned, not trained: `{named[1]}`" if named else "", ""]
    forward, wrong = farthest(logits, case.logits), []
    if mode == "eval":
        with torch.no_grad():
            wanted = model.eval()(*case.inputs)
        got, why = run_steps(case, path, 0)
        if got is None:
            return [why], ["", ""]
        forward = max(forward, farthest(got, wanted))
    worst = max(difference(a, b) for a, b in zip(losses, case.losses))
    if forward > MOST_FORWARD:
        wrong.append("forward pass")
    if worst > MOST_LOSS:
        wrong.append("losses")
    return wrong, [f"{forward:.1e}", f"{worst:.1e}"]


def check(case, mode, number):
    model = case.seen()
    wanted = sum(p.numel() for p in model.parameters())
    path, bare = export(case, model, mode), export(case, model, mode, False)
    shown = run(tandem, "graph", "show", path, "--batch", BATCH, "--json")
    planned = run(train_steps, bare, BATCH)
    for ran in (shown, planned):
        if ran.returncode:
            print(f"not ok {number} - {case.name} {mode}\n# {ran.stderr.strip()}", flush=True)
            return False
    graph = json.loads(shown.stdout)
    products = ("linear", "conv2d", "matmul", "grouped_conv2d")
    flops = sum(op["flops"] for op in graph["operators"] if op["kind"] in products)
    milliseconds, *buckets = [float(word) for word in planned.stdout.split()]
    wrong, cells = check_runs(case, mode, model, path)
    if graph["parameters"] != wanted:
        wrong.append(f"{wanted:,} parameters")
    if flops != case.flops:
        wrong.append(f"{case.flops} FLOP")
    if buckets != case.buckets:
        wrong.append(f"buckets of {case.buckets} bytes, not {buckets}")
    print(f"{'not ok' if wrong else 'ok'} {number} - {case.name} {mode}")
    for line in wrong:
        print(f"# {line}")
    mib = " + ".join(f"{size / 2**20:.2f}" for size in buckets)
    print(
        f"# | {case.name} | {mode} | {graph['parameters']:,} | {flops / 1e9:.3f} | {mib} | {cells[0]} | {cells[1]} | "
        f"{case.own:.1e} | {milliseconds:.1f} |",
        flush=True,
    )
    os.remove(path)
    os.remove(bare)
    return not wrong


def main():
    print(f"1..{2 * len(chosen)}")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
    )
    fine = True
    for i, name in enumerate(chosen):
        case = Case(name)
        for k, mode in enumerate(("train", "eval")):
            fine &= check(case, mode, 2 * i + k + 1)
    sys.exit(not fine)


main()
