#!/usr/bin/python3.11
"""The first steps of resnet50 on 64x64 images, 8 a step, by tandem in fp32 and by PyTorch in fp32 and fp64: the same weights, batches and
optimizer, at the model's own learning rate and at that of bench/large.sh. Prints the losses side by side, and how far each is from
fp64's.

usage: follow.py TANDEM [DEVICE [STEPS]]     needs python3-torch, python3-numpy
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "torch"))
import models  # noqa: E402
import samples  # noqa: E402

SIZE, BATCH, SEED, IMAGES = 64, 8, 11, 96


class Resnet50(models.Model):
    """As graph/zoo/resnet.c has it."""

    def __init__(self, width=64, classes=1000):
        super().__init__()
        self.stem, self.parts, before = self.conv_norm("stem", 3, width, 7, 2), [], width
        for stage, blocks in enumerate((3, 4, 6, 3)):
            n = width << stage
            for block in range(blocks):
                scope, stride = f"stage{stage + 1}.block{block}", 2 if stage > 0 and block == 0 else 1
                first = self.conv_norm(scope + ".conv1", before, n, 1, 1)
                second = self.conv_norm(scope + ".conv2", n, n, 3, stride)
                third = self.conv_norm(scope + ".conv3", n, 4 * n, 1, 1)
                changes = stride != 1 or before != 4 * n
                shortcut = self.conv_norm(scope + ".shortcut", before, 4 * n, 1, stride) if changes else models.as_it_is
                self.parts.append((first, second, third, shortcut))
                before = 4 * n
        self.head = self.linear("head", before, classes, 0.01)

    def conv_norm(self, name, n_in, n_out, kernel, stride):
        conv = self.conv(name, n_in, n_out, kernel, stride, kernel // 2)
        norm = self.batchnorm(name + ".norm", n_out)
        return lambda x: norm(conv(x))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        for first, second, third, shortcut in self.parts:
            x = F.relu(shortcut(x) + third(F.relu(second(F.relu(first(x))))))
        return self.head(x.mean((2, 3)))


def make_images(folder):
    """Noise of ten classes, each of which has a mean of its own; as a model of three channels sees it."""
    draw = numpy.random.default_rng(1)
    labels = draw.integers(0, 10, IMAGES)
    images = (20 * labels[:, None, None] + draw.normal(30, 25, (IMAGES, SIZE, SIZE))).clip(0, 255).astype(numpy.uint8)
    for part in ("train", "t10k"):
        samples.write_idx(f"{folder}/{part}-images-idx3-ubyte", images)
        samples.write_idx(f"{folder}/{part}-labels-idx1-ubyte", labels.astype(numpy.uint8))
    pixels = images.astype(numpy.float64) / 255
    mean, deviation = numpy.float32(pixels.mean()), numpy.float32(pixels.std())
    x = (images.astype(numpy.float32) / numpy.float32(255) - mean) / deviation
    return torch.from_numpy(x)[:, None].repeat(1, 3, 1, 1), torch.from_numpy(labels.astype(numpy.int64))


def by_torch(begin, kind, data, rate, steps):
    model = Resnet50()
    model.load_state_dict(begin)
    model = model.to(kind)
    optimizer = torch.optim.SGD(model.groups(1e-4), lr=rate, momentum=0.9)
    losses = []
    for chosen in samples.batches(IMAGES, BATCH, steps, SEED):
        loss = F.cross_entropy(model(data[0][chosen].to(kind)), data[1][chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_tandem(tandem, device, folder, rate, steps):
    command = [tandem, "train", "-q", "--json", "--model", f"resnet50:image={SIZE}", "--device", device, "--batch", str(BATCH)]
    command += ["--data", folder, "--uniform", "fp32", "--steps", str(steps), "--seed", str(SEED), "--lr", repr(rate), "--eval", "0"]
    command += ["--init", f"{folder}/begin.safetensors", "--allow-nan"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["loss"]


def main(tandem, device="cpu:avx512_bf16", steps="20"):
    torch.set_num_threads(1)
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as folder:
        data, model = make_images(folder), Resnet50()
        begin = {name: x.clone() for name, x in model.state_dict().items()}
        samples.write_weights(f"{folder}/begin.safetensors", {name: layout(x.detach()).numpy().copy() for name, x, layout in model.tensors})
        for rate in (0.002, 0.01):
            ours = by_tandem(tandem, device, folder, rate, int(steps))
            single, double = (by_torch(begin, kind, data, rate, int(steps)) for kind in (torch.float32, torch.float64))
            print(f"rate {rate}\n{'step':>4} {'tandem':>9} {'pytorch':>9} {'in fp64':>9}   off from fp64, both")
            for step, (a, b, c) in enumerate(zip(ours, single, double), 1):
                print(f"{step:4} {a:9.4f} {b:9.4f} {c:9.4f}   {abs(a - c) / c:8.1e} {abs(b - c) / c:8.1e}", flush=True)


main(*sys.argv[1:])
