"""Models of models.py, exported in both modes, against PyTorch: parameters, FLOPs, the logits of the first forward pass and the
losses of three training steps. "PyTorch itself" is how far its losses in f32 are from its own in f64: what rounding alone makes of
them, which is the bound where it is more than 1e-3. usage: truth.py TANDEM TRAIN_STEPS DEVICE FOLDER [MODEL...]. Speaks TAP; lines with # are the table."""
import json
import subprocess
import sys
import time
import warnings

import numpy
import torch
import torch.nn.functional as F
from models import MODELS

BATCH, STEPS, RATE = 4, 3, 0.001
MOST_FORWARD, MOST_LOSS = 1e-4, 1e-3

tandem, train_steps, device, folder = sys.argv[1:5]
chosen = sys.argv[5:] or list(MODELS)
warnings.filterwarnings("ignore")


def make_samples(shapes):
    torch.manual_seed(7)
    if isinstance(shapes, int):
        return [torch.randint(0, 100, (BATCH, shapes))]
    return [torch.randn(BATCH, *shape) for shape in shapes]


def export(name, model, inputs, mode):
    path = f"{folder}/{name}.{mode}.onnx"
    kinds = torch.onnx.TrainingMode
    names = [f"in{i}" for i in range(len(inputs))]
    torch.onnx.export(
        model.train(mode == "train"),
        tuple(inputs),
        path,
        opset_version=11 if name == "vgg16" else 17,
        training=kinds.TRAINING if mode == "train" else kinds.PRESERVE,
        do_constant_folding=False,
        input_names=names,
        dynamic_axes={name: {0: "batch"} for name in names},
    )
    return path


def count_flops(model, inputs):
    """Of linear layers, convolutions and products in the forward pass: a multiplication and an addition are two."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        flops = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            name = function.__name__.split(".")[0]
            if name in ("mm", "bmm"):
                self.flops += 2 * out.numel() * args[0].shape[-1]
            elif name in ("addmm", "baddbmm"):
                self.flops += 2 * out.numel() * args[1].shape[-1]
            elif name == "convolution":
                self.flops += 2 * out.numel() * args[1][0].numel()
            return out

    with torch.no_grad(), Count() as count:
        model(*inputs)
    return count.flops


def write_samples(path, inputs):
    if len(inputs) == 1 and inputs[0].dim() == 4:
        data = inputs[0].permute(0, 2, 3, 1).contiguous().numpy()
    elif inputs[0].dtype == torch.int64:
        data = inputs[0].numpy().astype(numpy.int32)
    else:
        data = torch.cat([x.reshape(BATCH, -1) for x in inputs], 1).numpy()
    data.tofile(path)


def optimizer_of(model, is_text):
    if is_text:
        return torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0)
    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)


def train(model, inputs, labels, is_text):
    model.train()
    optimizer = optimizer_of(model, is_text)
    first, losses = None, []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(*inputs)
        first = logits.detach().clone() if first is None else first
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return first, losses


def check(name, mode, number):
    make, shapes = MODELS[name]
    torch.manual_seed(3)
    model, inputs = make(), make_samples(shapes)
    is_text = isinstance(shapes, int)
    path = export(name, model, inputs, mode)
    shown = subprocess.run([tandem, "graph", "show", path, "--batch", str(BATCH), "--json"], capture_output=True, text=True)
    if shown.returncode:
        print(f"not ok {number} - {name} {mode}\n# {shown.stderr.strip()}")
        return False
    graph = json.loads(shown.stdout)
    products = ("linear", "conv2d", "matmul", "grouped_conv2d")
    flops = sum(op["flops"] for op in graph["operators"] if op["kind"] in products)
    wanted = sum(p.numel() for p in model.parameters())
    wanted_flops = count_flops(model.train(), inputs)
    torch.manual_seed(9)
    classes = 100 if is_text else 10 if name in ("mlp", "odd") else 1000
    labels = torch.randint(0, classes, (BATCH, shapes) if is_text else (BATCH,))
    write_samples(f"{folder}/x", inputs)
    labels.numpy().astype(numpy.int32).tofile(f"{folder}/labels")
    torch.manual_seed(3)
    fresh = make()
    logits, losses = train(fresh, inputs, labels, is_text)
    torch.manual_seed(3)
    exact = train(make().double(), [x if is_text else x.double() for x in inputs], labels, is_text)[1]
    own = max(abs(a - b) / max(abs(b), 1) for a, b in zip(losses, exact))
    began = time.time()
    ran = subprocess.run(
        [train_steps, path, str(BATCH), device, f"{folder}/x", f"{folder}/labels", str(STEPS), f"{folder}/logits", str(3e-4 if is_text else RATE)],
        capture_output=True,
        text=True,
    )
    took = time.time() - began
    planned = ""
    forward = loss_error = float("nan")
    if ran.returncode == 0:
        got = torch.from_numpy(numpy.fromfile(f"{folder}/logits", numpy.float32)).reshape(logits.shape)
        forward = ((got - logits).abs().max() / logits.abs().max().clamp(min=1)).item()
        loss_error = max(abs(float(a) - b) / max(abs(b), 1) for a, b in zip(ran.stdout.split(), losses))
    else:
        planned = ran.stderr.strip()
    fine = graph["parameters"] == wanted and flops == wanted_flops
    fine = fine and (ran.returncode == 0 and forward <= MOST_FORWARD and loss_error <= max(MOST_LOSS, 2 * own) or "planned, not trained" in planned)
    print(f"{'ok' if fine else 'not ok'} {number} - {name} {mode}")
    print(
        f"# {name:16} {mode:5} parameters {graph['parameters']:>11,} of {wanted:>11,}  GFLOP {flops / 1e9:8.3f} of "
        f"{wanted_flops / 1e9:8.3f}  forward {forward:.1e}  losses {loss_error:.1e} (PyTorch itself {own:.1e})  {took:4.1f} s {planned}",
        flush=True,
    )
    return fine


def main():
    print(f"1..{2 * len(chosen)}")
    fine = True
    for i, name in enumerate(chosen):
        for k, mode in enumerate(("train", "eval")):
            fine &= check(name, mode, 2 * i + k + 1)
    sys.exit(not fine)


main()
