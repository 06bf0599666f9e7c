"""The memory of a training step, predicted from one capture, beside what PyTorch's profiler counts."""

import contextlib
import copy
import gc
import json
import os
import subprocess
import unittest

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

from support import BUILD, Case

import tandem

BATCH = 8


class Tokens(torch.nn.Module):
    """Two blocks of a transformer, the second one in a checkpoint where asked for."""

    def __init__(self, checkpointed=False):
        super().__init__()
        self.words = torch.nn.Embedding(50, 32)
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    "norm": torch.nn.LayerNorm(32),
                    "qkv": torch.nn.Linear(32, 96),
                    "up": torch.nn.Linear(32, 128),
                    "down": torch.nn.Linear(128, 32),
                }
            )
            for _ in range(2)
        )
        self.head = torch.nn.Linear(32, 50)
        self.checkpointed = checkpointed

    def run(self, layer, x):
        q, k, v = layer["qkv"](layer["norm"](x)).chunk(3, -1)
        x = x + (q @ k.transpose(1, 2) / 6).softmax(-1) @ v
        return x + layer["down"](F.gelu(layer["up"](x)))

    def forward(self, tokens):
        x = self.run(self.layers[0], self.words(tokens))
        x = checkpoint(self.run, self.layers[1], x) if self.checkpointed else self.run(self.layers[1], x)
        return self.head(x).flatten(0, 1)


def images():
    conv, norm = torch.nn.Conv2d, torch.nn.BatchNorm2d
    layers = [conv(3, 16, 3, padding=1), norm(16), torch.nn.ReLU(), conv(16, 32, 3, 2, 1), norm(32)]
    return torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 64, 10))


def grouped_images():
    """A convolution with groups, which `apply` leaves to PyTorch, between two others."""
    conv = torch.nn.Conv2d
    layers = [conv(3, 24, 1), torch.nn.ReLU(), conv(24, 24, 3, padding=1, groups=24), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, conv(24, 8, 1), torch.nn.Flatten(), torch.nn.Linear(8 * 256, 10))


def draw_tokens(batch):
    return torch.randint(0, 50, (batch, 24)), torch.randint(0, 50, (batch * 24,))


def draw_images(batch):
    return torch.randn(batch, 3, 16, 16), torch.randint(0, 10, (batch,))


def count_peak(*asked):
    """Of the second run: the first module of a process makes what later ones find there."""
    _count_peak(*asked)
    return _count_peak(*asked)


def _count_peak(make, data, precision, make_optimizer, autocast=False):
    """Bytes at the peak of the third step, by PyTorch's profiler."""
    x, y = data
    gc.collect()  # what earlier modules left is not released inside
    way = torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        module = make()
        if precision != "fp32":
            tandem.apply(module, precision)
        optimizer = make_optimizer(module.parameters())
        for step in range(3):
            with record_function("judged" if step == 2 else "before"):
                optimizer.zero_grad()
                with way:
                    loss = F.cross_entropy(module(x), y)
                loss.backward()
                del loss
                optimizer.step()
    start = lambda one: one.start_ns() if hasattr(one, "start_ns") else one.start_us()  # noqa: E731
    events = sorted(profiler.profiler.kineto_results.events(), key=start)
    begin = next(start(one) for one in events if one.name() == "judged")
    now = peak = 0
    for one in events:
        if one.name() == "[memory]":
            now += one.nbytes()
            peak = max(peak, now if start(one) >= begin else 0)
    return peak


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


class Peak(Case):
    def check(self, make, draw, precisions, autocast=False, share=0.03, batches=(5, 12, 20)):
        """Peaks at other batches than the captured one, with each optimizer, are within `share`."""
        x, y = draw(BATCH)
        with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext():
            graph = tandem.capture(make(), x, loss=F.cross_entropy, target=y)
        self.assertEqual(graph.memory_unknown, "")
        for batch, (name, make_optimizer) in zip(batches, OPTIMIZERS.items()):
            for precision in precisions:
                peak = graph.at_batch(batch).peak_memory(precision, optimizer=make_optimizer(make().parameters()))
                counted = count_peak(make, draw(batch), precision, make_optimizer, autocast)
                with self.subTest(batch=batch, optimizer=name, precision=precision):
                    self.assertLess(abs(peak.total / counted - 1), share, f"{peak} counted {counted}")

    def test_of_tokens(self):
        # small as this is, what oneDNN takes in a bf16 product is 3 % of it with PyTorch 2.6
        self.check(Tokens, draw_tokens, ("fp32", "int8_full", "bf16"), share=0.05)

    def test_of_a_checkpoint(self):
        self.check(lambda: Tokens(checkpointed=True), draw_tokens, ("fp32",))

    def test_of_images(self):
        self.check(images, draw_images, ("fp32", "int8_full"), share=0.08)

    def test_of_grouped_images(self):
        self.check(grouped_images, draw_images, ("fp32", "int8_full"))

    def test_in_autocast(self):
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                Tokens()(draw_tokens(BATCH)[0])
        except RuntimeError as refused:
            print(f"SKIP: memory, in autocast: PyTorch has no bf16 on this CPU: {refused}")
            return
        # PyTorch 1.13 multiplies 120 rows in bf16 by another way than 96 and 192
        self.check(Tokens, draw_tokens, ("fp32",), autocast=True, batches=(12, 16, 20))

    def test_a_part_of_the_module_in_low_precision(self):
        """Between none and all of it, and as PyTorch counts."""
        x, y = draw_tokens(BATCH)
        graph = tandem.capture(Tokens(), x, loss=F.cross_entropy, target=y)
        some = {call.name: "int8_full" for call in graph.adjustable[:4]}
        peak = graph.peak_memory(some, optimizer=OPTIMIZERS["sgd"](Tokens().parameters()))

        def count():
            module = Tokens()
            plan = {call.name: some.get(call.name, "fp32") for call in graph.adjustable}
            return tandem.apply(module, plan)

        counted = count_peak(count, (x, y), "fp32", OPTIMIZERS["sgd"])
        self.assertLess(abs(peak.total / counted - 1), 0.03)
        self.assertLess(graph.peak_memory("int8_full").total, graph.peak_memory().total)

    def test_ranks_have_buckets(self):
        x, y = draw_tokens(BATCH)
        graph = tandem.capture(Tokens(), x, loss=F.cross_entropy, target=y)
        trained = sum(one.numel() * 4 for one in Tokens().parameters())
        self.assertEqual(graph.peak_memory(ranks=2).total - graph.peak_memory().total, trained)

    def test_what_stays_as_it_was(self):
        """Capture runs steps: weights, gradients, buffers and random numbers are as before."""
        module, (x, y) = images(), draw_images(BATCH)
        F.cross_entropy(module(x), y).backward()
        before = copy.deepcopy(module.state_dict())
        gradients = [one.grad.clone() for one in module.parameters()]
        torch.manual_seed(7)
        wanted = torch.rand(3)
        torch.manual_seed(7)
        tandem.capture(module, x, loss=F.cross_entropy, target=y)
        self.assertTrue(torch.equal(torch.rand(3), wanted))
        for name, value in module.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        for one, gradient in zip(module.parameters(), gradients):
            self.assertTrue(torch.equal(one.grad, gradient))

    def test_why_it_is_not_known(self):
        module = torch.nn.Linear(4, 4)

        def refuse(output):
            raise ValueError("no such loss")

        graph = tandem.capture(module, torch.randn(8, 4), loss=refuse)
        self.assertIn("ValueError: no such loss", graph.memory_unknown)
        for asked in (graph.peak_memory, lambda: graph.at_batch(3)):
            with self.assertRaisesRegex(tandem.UsageError, "no such loss"):
                asked()
        fixed = tandem.capture(module, torch.randn(8, 4), loss=lambda output: (output - torch.zeros(8, 4)).sum())
        self.assertGreater(fixed.peak_memory().total, 0)
        with self.assertRaisesRegex(tandem.UsageError, "known at batch 8 alone: a step of batch 4 failed: Runtime"):
            fixed.at_batch(3)
        with self.assertRaisesRegex(tandem.UsageError, "without"):
            tandem.capture(module, torch.randn(8, 4), memory=False).peak_memory()


class Doors(Case):
    """The command line has the same peaks, and plans within them."""

    CLUSTER = "2*t4 + 2*v100 net=10Gbit/s,20us"

    def tandem(self, *words):
        ran = subprocess.run(
            [os.path.join(BUILD, "tandem"), *words], cwd=self.folder, text=True, capture_output=True, check=True, timeout=60
        )
        return json.loads(ran.stdout)

    def test_every_batch_at_both_doors(self):
        x, y = draw_tokens(BATCH)
        graph = tandem.capture(Tokens(), x, loss=F.cross_entropy, target=y)
        graph.save(os.path.join(self.folder, "own.json"))
        for batch in (3, 8, 40):
            at = graph.at_batch(batch)
            for precision in ("fp32", "fp16", "int8_full"):
                of = ["--model", "own.json", "--batch", str(batch), "--predict", "--json"]
                of += ["--cluster", self.CLUSTER]
                printed = self.tandem("replay", *of, "--uniform", precision)
                here = tandem.replay(at, self.CLUSTER, precision, predict=True)
                peak = at.peak_memory(precision, ranks=4, on_gpu=True).total
                self.assertEqual([one["peak_bytes"] for one in printed["devices"]], [peak, peak])
                self.assertEqual([one.memory_bytes for one in here.classes], [peak, peak])
                self.assertEqual(printed["step_ns"], round(here.step * 1e9))

    def test_results_that_do_not_grow(self):
        """64 elements are rows of 8 and 4 samples, and of 12 they are none: both doors have them so."""

        class Masked(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(8, 8)

            def forward(self, x):
                return self.fc(x) + self.fc.weight.new_zeros(8, 8).exp().sum()

        graph = tandem.capture(Masked(), torch.randn(BATCH, 8))
        graph.save(os.path.join(self.folder, "own.json"))
        for batch in (4, 12):
            printed = self.tandem("replay", "--model", "own.json", "--batch", str(batch), "--device", "t4",
                                  "--predict", "--json")
            here = tandem.replay(graph.at_batch(batch), "t4", predict=True)
            self.assertEqual(printed["step_ns"], round(here.step * 1e9))

    def test_a_limit_is_kept_by_the_run_it_plans(self):
        make = lambda: torch.nn.Sequential(  # noqa: E731
            *[layer for _ in range(4) for layer in (torch.nn.LayerNorm(64), torch.nn.Linear(64, 64))]
        )
        draw = lambda batch: (torch.randn(batch, 64), torch.randint(0, 64, (batch,)))  # noqa: E731
        x, y = draw(256)
        store = os.path.join(self.folder, "tandem.db")
        loss = lambda output: F.cross_entropy(output, y)  # noqa: E731
        done = tandem.profile(make(), x, loss, device="torch:one", store=store, steps=4, precisions=["int8_full"])
        tandem.sensitivity(make(), [draw(256) for _ in range(8)], F.cross_entropy, store=store)
        fp32, full = (done.graph.peak_memory(one).total for one in ("fp32", "int8_full"))
        limit = (fp32 + full) // 2
        plan = tandem.allocate(done.graph, "torch:one", store=store, memory=f"{limit // 1024}KiB", slowdown=9.0)
        self.assertTrue(full < limit < fp32 and "int8_full" in plan.precision(0).values())
        run = lambda: tandem.apply(make(), plan, rank=0)  # noqa: E731
        momentum = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)  # noqa: E731
        self.assertLessEqual(count_peak(run, (x, y), "fp32", momentum), limit)


if __name__ == "__main__":
    unittest.main()
