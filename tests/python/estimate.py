"""sensitivity by a probe: against brute force, what is put back, what is filed, and what is refused."""

import os
import random
import subprocess
import unittest
from ctypes import c_int, c_int64, c_uint32

from support import BUILD, Case
import numpy
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import tandem
from tandem import _library, _probe
from tandem._held import held
from tandem._probe import GRADIENT, INPUT, RESULT, SECOND, WEIGHT, Direction, Probe, ProbedCall, metric_of
from tandem._structs import N_FORMAT
from tandem._trace import Names, follow_modules, read_product

S8, BF16, E4M3 = "s8", "bf16", "e4m3"
FORMATS = {S8: 6, BF16: 3, E4M3: 4}  # rows of format.def
BATCH, CLASSES = 6, 5


class Smooth(torch.nn.Module):
    """A convolution, a product of activations, and linear layers, without slopes that jump."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.fc = torch.nn.Linear(16, 12)
        self.head = torch.nn.Linear(12, CLASSES)

    def forward(self, x):
        tokens = torch.tanh(self.conv(x)).flatten(2).transpose(1, 2)  # (batch, 36, 4)
        mixed = tokens.transpose(1, 2) @ tokens / 6  # (batch, 4, 4)
        return self.head(torch.tanh(self.fc(mixed.flatten(1))))


def smooth_batch(seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, 1, 6, 6, generator=draw), torch.randint(0, CLASSES, (BATCH,), generator=draw)


class Rounded(_probe.Follower):
    """Runs one call with errors added to what a cast of it rounds."""

    def __init__(self, module, name, part, error):
        super().__init__(module, Names())
        self.name, self.part, self.error = name, part, error
        self.names.begin()

    def product(self, name, product, func, args, kwargs):
        if name != self.name:
            return func(*args, **kwargs)
        of = {INPUT: product.x, WEIGHT: product.w, SECOND: product.w}.get(self.part)
        if of is not None:
            news = [one + self.error(one.detach()) if one is of else one for one in (product.x, product.w)]
            args, kwargs = _probe._exchange((args, kwargs), [product.x, product.w], news)
            return func(*args, **kwargs)
        y = func(*args, **kwargs)
        if self.part == RESULT:
            addend = _probe._addend(product)
            return y + self.error((y if addend is None else y - addend).detach())
        y.register_hook(lambda g: g + self.error(g))
        return y


def gradient(module, given, name, part, error):
    module.zero_grad()
    follower = Rounded(module, name, part, error)
    handles = follow_modules(module, follower.names)
    with follower:
        output = module(given[0])
    F.cross_entropy(output, given[1]).backward()
    for handle in handles:
        handle.remove()
    return torch.cat([one.grad.reshape(-1) for one in module.parameters()]).double()


def to_format(x, of):
    """Q(x), by formulas of this test."""
    if of == BF16:
        return x.bfloat16().float()
    amax, largest = float(x.abs().max()), {S8: 127.0, E4M3: 448.0}[of]
    z = x * (largest / amax)
    if of == S8:
        q = torch.floor(z + torch.rand_like(z))
    else:
        step = 2.0 ** (torch.floor(torch.log2(z.abs().clamp_min(2.0**-6))) - 3)
        q = torch.round(z / step) * step
    return q.clamp(-largest, largest) * (amax / largest)


def of_sample(s, error, is_inner):
    """`error` in sample s alone; is_inner: samples are the second dimension, or factor of rows."""
    alone, shape = torch.zeros_like(error), error.shape
    if is_inner and error.dim() == 2:
        alone.view(-1, BATCH, shape[-1])[:, s] = error.view(-1, BATCH, shape[-1])[:, s]
    elif is_inner:
        alone[:, s] = error[:, s]
    else:
        n = shape[0] // BATCH
        alone[s * n : (s + 1) * n] = error[s * n : (s + 1) * n]
    return alone


def true_noise(module, given, name, part, of, is_inner=False, draws=600):
    """The noise of one cast: the variance of the gradient's change over draws, or over samples."""
    exact = gradient(module, given, name, part, torch.zeros_like)
    error = lambda x: to_format(x, of) - x  # noqa: E731
    if of == S8:
        changes = [gradient(module, given, name, part, error) - exact for _ in range(draws)]
        return float(torch.stack(changes).var(0, unbiased=True).sum())
    changes = torch.stack(
        [
            gradient(module, given, name, part, lambda x, s=s: of_sample(s, error(x), is_inner)) - exact
            for s in range(BATCH)
        ]
    )
    return float(BATCH * changes.var(0, unbiased=True).sum())


class Oracle(Case):
    """Each part of each kind of call against brute force."""

    def probe(self, module, pair, names, replicates=150):
        """The mean noise of (call, part, format) in each batch, and cross products of weights."""
        parts, asked = (INPUT, SECOND, GRADIENT, RESULT, WEIGHT), {FORMATS[one] for one in FORMATS}
        calls = {name: ProbedCall(name, [set(asked) for _ in parts]) for name in names}
        sums, cross = {}, {}
        with held(module) as state:
            trace = Names()
            handles = follow_modules(module, trace)
            run = lambda given: F.cross_entropy(module(given[0]), given[1])  # noqa: E731
            probe = Probe(state, trace, calls, BATCH, run, 1)
            probe.look(pair[0], BATCH)
            for _ in range(replicates):
                found, _ = probe.replicate(pair, "a pair")
                for name, of in found.items():
                    self.assertFalse(of.sums.is_before_jump)  # both batches count alike
                    for part in parts:
                        for f in asked:
                            both = sums.setdefault((name, part, f), [0.0, 0.0])
                            for b in range(2):
                                both[b] += of.sums.noise[part][f][b] / replicates
                    for f in asked:
                        cross[name, f] = cross.get((name, f), 0.0) + of.sums.cross[f] / replicates
            for handle in handles:
                handle.remove()
        return sums, cross

    def test_every_part_is_what_brute_force_finds(self):
        torch.manual_seed(3)
        module, pair = Smooth(), [smooth_batch(1), smooth_batch(2)]
        sums, cross = self.probe(module, pair, ["conv", "matmul", "fc", "head"])
        for name, parts in (("conv", (INPUT, WEIGHT, GRADIENT)), ("matmul", (INPUT, SECOND, GRADIENT)),
                            ("fc", (INPUT, WEIGHT, GRADIENT, RESULT))):  # fmt: skip
            for part in parts:
                true = true_noise(module, pair[0], name, part, S8)
                ratio = sums[name, part, FORMATS[S8]][0] / true
                self.assertLess(max(ratio, 1 / ratio), 1.25, (name, part, ratio))
        for name, part, of in (("fc", INPUT, BF16), ("conv", RESULT, BF16), ("fc", GRADIENT, E4M3),
                               ("matmul", SECOND, E4M3)):  # fmt: skip
            ratio = sums[name, part, FORMATS[of]][0] / true_noise(module, pair[0], name, part, of)
            self.assertLess(max(ratio, 1 / ratio), 1.3, (name, part, of, ratio))
        self.check_shared_part(module, pair, sums, cross)

    def check_shared_part(self, module, pair, sums, cross):
        """⟨d₁, d₂⟩ of two batches that read one rounded weight."""
        draws, shared = 400, 0.0
        exact = [gradient(module, given, "fc", WEIGHT, torch.zeros_like) for given in pair]
        for _ in range(draws):
            q = to_format(module.fc.weight.detach(), S8)
            d = [gradient(module, given, "fc", WEIGHT, lambda w: q - w) - g for given, g in zip(pair, exact)]
            shared += float(d[0] @ d[1]) / draws
        both = sums["fc", WEIGHT, FORMATS[S8]]
        self.assertAlmostEqual(cross["fc", FORMATS[S8]] / shared, 1, delta=0.2)
        self.assertLess(cross["fc", FORMATS[S8]], 0.9 * (both[0] * both[1]) ** 0.5)

    def test_a_part_of_the_samples_represents_all(self):
        torch.manual_seed(3)
        module, pair, kept = Smooth(), [smooth_batch(1), smooth_batch(2)], _probe.KEPT_NUMBERS
        whole, _ = self.probe(module, pair, ["conv", "fc"], 40)
        self.addCleanup(setattr, _probe, "KEPT_NUMBERS", kept)
        _probe.KEPT_NUMBERS = 1  # two samples
        part, _ = self.probe(module, pair, ["conv", "fc"], 40)
        for name in ("conv", "fc"):
            for key in ((name, INPUT, FORMATS[S8]), (name, GRADIENT, FORMATS[S8])):
                ratio = sum(part[key]) / sum(whole[key])
                self.assertLess(max(ratio, 1 / ratio), 1.6, (key, ratio))  # 3 without the samples' share

    def test_samples_inside_attention(self):
        """PyTorch's attention reads (tokens, batch, width); as many tokens as samples."""

        class Attention(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.mix = torch.nn.MultiheadAttention(8, 2, batch_first=True)
                self.head = torch.nn.Linear(8, CLASSES)

            def forward(self, x):
                return self.head(self.mix(x, x, x)[0].mean(1))

        torch.manual_seed(4)
        module, pair = Attention(), []
        for seed in (1, 2):
            draw = torch.Generator().manual_seed(seed)
            alike = torch.randn(BATCH, 1, 8, generator=draw)  # the tokens of a sample, and so their errors
            x = alike + 0.01 * torch.randn(BATCH, BATCH, 8, generator=draw)
            pair.append((x, torch.randint(0, CLASSES, (BATCH,), generator=draw)))
        sums, _ = self.probe(module, pair, ["mix.linear", "mix.matmul", "mix.linear_1"])
        for name, part, is_inner in (("mix.linear", INPUT, True), ("mix.matmul", SECOND, False),
                                     ("mix.linear_1", INPUT, True)):  # fmt: skip
            true = true_noise(module, pair[0], name, part, E4M3, is_inner)
            ratio = sums[name, part, FORMATS[E4M3]][0] / true
            self.assertLess(max(ratio, 1 / ratio), 1.3, (name, ratio))


class Net(torch.nn.Module):
    """A relu, batch norm, dropout, a frozen layer, a layer in evaluation mode, one weight twice, in place,
    and a buffer that is replaced in each pass, and changes it."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.held = torch.nn.BatchNorm2d(4).eval()
        self.mix = torch.nn.Linear(4, 4)
        self.frozen = torch.nn.Linear(4, 4)
        self.frozen.weight.requires_grad_(False)
        self.head = torch.nn.Linear(4, CLASSES)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        self.passes = self.passes + 1
        x = self.held(F.relu_(self.norm(self.conv(x)))).mean((2, 3)) * (1 + 0.1 * self.passes)
        x = self.mix(self.mix(F.dropout(x, 0.2, self.training))[:, None])
        x[:, 0, 0] += torch.rand(()) + random.random() + numpy.random.rand()
        return self.head(torch.tanh(self.frozen(x[:, 0])))


def batches(n=6, first=0):
    return [smooth_batch(first + k) for k in range(n)]


def train_to(module, steps, optimizer):
    for given in batches(steps, 100):
        optimizer.zero_grad()
        F.cross_entropy(module(given[0]), given[1]).backward()
        optimizer.step()


class Module(Case):
    """What an estimate leaves of a module, and what it refuses."""

    def state_of(self, module):
        tensors = {name: value.clone() for name, value in module.state_dict().items()}
        modes = [child.training for child in module.modules()]
        return tensors, modes, torch.get_rng_state(), (random.getstate(), str(numpy.random.get_state()))

    def check_same(self, module, before, identities):
        tensors, modes, drawn, python = self.state_of(module)
        for name, value in tensors.items():
            self.assertTrue(torch.equal(value, before[0][name]), name)
        self.assertEqual((modes, python), (before[1], before[3]))
        self.assertTrue(torch.equal(drawn, before[2]))
        for tensor, is_grad, of in identities:
            self.assertIs(tensor, of.grad if is_grad else dict(module.named_buffers())[of])
        self.assertEqual([p.requires_grad for p in module.parameters()].count(False), 1)

    def test_the_module_is_as_it_was(self):
        for is_training in (True, False):
            torch.manual_seed(0)
            module = Net().train(is_training)
            module.held.eval()
            module.head.weight.grad = torch.ones_like(module.head.weight)
            tandem.apply(module, {"head": "int8"})
            identities = [(p.grad, True, p) for p in module.parameters()]
            identities += [(value, False, name) for name, value in module.named_buffers()]
            before = self.state_of(module)
            found = tandem.sensitivity(module, batches(), F.cross_entropy, store=self.store)
            self.check_same(module, before, identities)
            self.assertTrue(torch.equal(module.head.weight.grad, torch.ones_like(module.head.weight)))
            self.assertEqual(tandem.applied(module), {"head": "int8"})
            self.assertEqual(set(found.values), {"conv", "mix", "mix_1", "frozen", "head"})
            for name, of in found.values.items():
                for precision in ("tf32", "fp16", "bf16", "fp8", "int8", "int8_full"):
                    self.assertGreater(of[precision].noise, 0, (name, precision))
                    self.assertLessEqual(of[precision].low, of[precision].sensitivity)
                # an ε divides what differs between two passes by more than ε
                self.assertLess(of["tf32"].noise, 3e-5, name)  # percent; 1e-6
            wrong = [*batches(5), (torch.full((BATCH, 1, 6, 6), float("nan")), smooth_batch(0)[1])]
            with self.assertRaisesRegex(tandem.UsageError, "the loss of batches 4 and 5 is nan"):
                tandem.sensitivity(module, wrong, F.cross_entropy, store=self.store)
            self.check_same(module, before, identities)

    def test_the_same_twice_and_another_seed(self):
        torch.manual_seed(0)
        module = Net()
        estimate = lambda seed: tandem.sensitivity(  # noqa: E731
            module, batches(), F.cross_entropy, store=self.store, seed=seed
        ).values
        self.assertEqual(estimate(1), estimate(1))
        self.assertNotEqual(estimate(1), estimate(2))

    def test_what_is_refused(self):
        class Checkpointed(Smooth):
            def forward(self, x):
                ones = torch.ones(BATCH, 16, requires_grad=True)
                return super().forward(x) + checkpoint(self.fc, ones).sum()

        good, module = batches(), Smooth()
        odd = [*good[:5], tuple(one[:3] for one in good[5])]
        cases = [
            (Smooth(), [], {}, "no batches were given; an estimate needs 6 or more"),
            (Smooth(), good[:5], {}, "5 batches were given; an estimate needs 6"),
            (Smooth(), [good[0]] * 6, {}, "batches 0 and 1 are equal"),
            (Smooth(), odd, {}, "batch 5 has 3 samples, and batch 0 has 6.*drop_last"),
            (Smooth(), [tuple(one[:1] for one in given) for given in good], {}, "batches of 1 sample"),
            (Smooth().double().half(), good, {}, "'conv.weight' is torch.float16"),
            (Smooth().requires_grad_(False), good, {}, "no parameter of Smooth needs a gradient"),
            (Smooth(), good, {"method": "snip"}, "method='snip'"),
            (Smooth(), good, {"replicates": 2}, "replicates=2: allowed are 3 to 64"),
            (Smooth(), good, {"step": 3, "steps": 2}, "step=3 of steps=2"),
            (Smooth(), good, {"optimizer": torch.optim.RMSprop}, "got the optimizer RMSprop: .*exp_avg_sq"),
            (Checkpointed(), good, {}, "'fc_1' ran without gradients, inside torch.no_grad"),
        ]
        for one, given, options, text in cases:
            with self.assertRaisesRegex(tandem.UsageError, text):
                tandem.sensitivity(one, given, F.cross_entropy, store=self.store, **options)
        self.assertFalse(os.path.exists(self.store))
        with self.assertRaisesRegex(OSError, "none/tandem.db"):
            path = os.path.join(self.folder, "none/tandem.db")
            tandem.sensitivity(module, good, F.cross_entropy, store=path)

    def test_a_cast_that_overflows_is_never_worth_it(self):
        module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, CLASSES))
        large = [(1e6 * x, y) for x, y in batches()]
        found = tandem.sensitivity(module, large, F.cross_entropy, store=self.store).values["1"]
        self.assertGreater(found["fp16"].sensitivity, 1e6)
        self.assertLess(found["bf16"].sensitivity, 1e4)

    def test_what_is_kept_is_bounded(self):
        x = torch.randn(64, 100, 50)
        kept = _probe._keep(x, 64, 0)
        self.assertEqual((tuple(kept.x.shape), kept.share), ((3, 5000), 64 / 3))
        self.assertEqual(_probe.amax_of(-x), float(x.abs().max()))
        self.assertEqual(_probe._keep(torch.randn(64, 300, 300), 64, 0).x.shape[0], 2)
        whole = _probe._keep(torch.randn(300, 1000), 64, None)
        self.assertTrue(whole.x.numel() < 2 * _probe.KEPT_NUMBERS and not whole.has_samples)
        turned = _probe._keep(x.transpose(0, 1), 64, 1)
        self.assertTrue(torch.equal(turned.x, kept.x))
        weight = _probe._keep_weight(torch.randn(512, 512))
        self.assertLess(weight.w.numel(), 2 * _probe.KEPT_WEIGHTS)
        self.assertEqual(weight.stride % 2, 1)

    def test_products_of_gradients_from_their_buckets(self):
        torch.manual_seed(0)
        module, sketches = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(300))), []
        with held(module) as state:
            probe = Probe(state, Names(), {}, BATCH, lambda given: given, 1)
            probe.held.keep_weights()
            probe._open()
            one, two = ([torch.randn_like(p) + 1 for p in module.parameters()] for _ in range(2))
            for gradient in (one, two):
                for parameter, of in zip(module.parameters(), gradient):
                    parameter.grad = of
                sketches.append(torch.zeros(_probe.PROBE_SKETCH))
                probe._add_to_sketch(sketches[-1])
        true = sum(float((a * b).sum(dtype=torch.float64)) for a, b in zip(one, two))  # of 1.2 million weights
        self.assertAlmostEqual(4 * float(sketches[0] @ sketches[1]) / true, 1, delta=0.15)

    def test_the_metric_is_the_optimizers(self):
        torch.manual_seed(0)
        module = Smooth()
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
        train_to(module, 5, optimizer)
        from tandem._estimate import mean_squares

        squares, by = mean_squares(optimizer, list(module.parameters()))
        state = optimizer.state[module.fc.weight]
        expected = state["exp_avg_sq"] / (1 - 0.999**5)
        self.assertTrue(torch.allclose(squares[2] * by[2], expected))
        every = torch.cat([(one * k).reshape(-1) for one, k in zip(squares, by)])
        drawn = Direction([one.numel() for one in squares])
        drawn.draw(metric_of(squares, by), 1, 2)
        z = drawn.value.split(drawn.counts)[2].view(-1)[: expected.numel()].view_as(expected)
        floor = 1e-4 * float(every.mean())
        self.assertTrue(torch.allclose(z**2, 1 / expected.clamp_min(floor).sqrt(), rtol=1e-4))
        adam = tandem.sensitivity(module, batches(), F.cross_entropy, optimizer=optimizer, store=self.store)
        sgd = tandem.sensitivity(module, batches(), F.cross_entropy, store=self.store)
        self.assertNotEqual(adam.values, sgd.values)
        self.assertEqual(adam.graph.optimizer["kind"], "adamw")
        self.assertEqual(optimizer.state[module.fc.weight]["step"], 5)

    def test_weights_in_other_layouts_and_dtypes(self):
        """A large weight, of which blocks are drawn, with its channels last, and in float64."""
        noise = []
        for change in (lambda one: one, lambda one: one.to(memory_format=torch.channels_last), torch.nn.Module.double):
            torch.manual_seed(0)
            module = change(torch.nn.Sequential(torch.nn.Conv2d(64, 40, 3), torch.nn.Flatten(), torch.nn.Tanh()))
            dtype, draw = module[0].weight.dtype, torch.Generator().manual_seed(2)
            given = [torch.randn(4, 64, 3, 3, generator=draw).to(dtype) for _ in range(6)]
            loss = lambda output: output.square().mean()  # noqa: E731
            found = tandem.sensitivity(module, given, loss, optimizer=torch.optim.Adam, store=self.store)
            noise.append({name: one.noise for name, one in found.values["0"].items() if one.noise})
        self.assertEqual(len(noise[0]), 6)
        for name, mine in noise[0].items():
            for other in noise[1:]:
                self.assertAlmostEqual(other[name] / mine, 1, delta=0.02, msg=name)

    def test_half_of_a_batch(self):
        from tandem._sensitivity import _part_of

        x, y = torch.randn(16, 3), torch.arange(16)
        half = _part_of(({"x": x, "n": 3}, [y]), 16)
        self.assertTrue(torch.equal(half[0]["x"], x[:8]) and torch.equal(half[1][0], y[:8]))
        self.assertEqual(half[0]["n"], 3)
        self.assertEqual(_part_of(x[:6], 6).shape[0], 4)
        for given in ((x.t(), y), (x, Case), x[:3]):  # not samples first; something unknown; too few
            self.assertIs(_part_of(given, len(given) if given is x[:3] else 16), given)

    def test_ranges_are_those_of_a_whole_batch(self):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, CLASSES))
        large = [(x.clone(), y) for x, y in batches()]
        large[0][0][-1] *= 30  # an outlier in the half that is not estimated
        noise = [
            tandem.sensitivity(module, one, F.cross_entropy, store=self.store).values["1"]["int8"].noise
            for one in (batches(), large)
        ]
        self.assertGreater(noise[1], 100 * noise[0])


class SameNumbers(Case):
    """What tandem.sensitivity makes of tensors is what `tandem sensitivity` makes of them, to the bit
    (tests/torch/probe_numbers.c)."""

    program = os.path.join(BUILD, "tests", "torch", "probe_numbers")
    batch, inputs, outputs, replicates, seed, point = 8, 16, 4, 3, 5, 7

    def run_program(self, *arguments):
        run = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=True)
        return run.stdout.split()

    def write(self, shape):
        """Numbers of one more tensor of the file."""
        tensor = torch.randn(shape, generator=self.draw)
        self.tensors.append(tensor)
        return tensor

    def test_numbers_are_those_of_the_program(self):
        self.draw, self.tensors = torch.Generator().manual_seed(11), []
        sizes = [int(one) for one in self.run_program()]
        with held(torch.nn.ParameterList(torch.nn.Parameter(self.write(n)) for n in sizes)) as state:
            state.keep_weights()
            ours = self.numbers_of_directions(state, sizes)
        with open(os.path.join(self.folder, "numbers"), "wb") as file:
            for one in self.tensors:
                file.write(bytes(one.contiguous().view(-1).numpy()))
        printed = [float.fromhex(one) for one in self.run_program(file.name)]
        self.assertEqual(len(ours), len(printed))
        apart = [k for k, (mine, theirs) in enumerate(zip(ours, printed)) if mine != theirs]
        self.assertEqual(apart, [], [(ours[k], printed[k]) for k in apart[:5]])
        # three replicates of int8_full, then of mxfp8 and nvfp4, which draw nothing that both batches share
        of_int8_full, of_blocks = ours[-18:-12], ours[-12::2]
        self.assertTrue(all(one != 0 for one in of_int8_full + of_blocks))

    def numbers_of_directions(self, state, sizes):
        """Of the moved weights, the variances and mean squares of gradients, and the errors of cells."""
        from tandem._estimated import Estimated
        from tandem._estimate import Cell, _formats_of, put_gradients, put_replicate
        from tandem._estimated import AMP_DTYPES
        from tandem._structs import F32, PRECISIONS

        squares, sketches = [self.write(n) ** 2 for n in sizes], []
        self.tensors[-len(sizes) :] = squares
        calls = {"fc1": ProbedCall("fc1", is_before_jump=True, n_products=float(self.inputs))}
        probe = Probe(state, Names(), calls, self.batch, lambda given: given, self.seed, self.point)
        probe.metric = metric_of(squares, [0.75] * len(sizes))
        probe._open()
        for _ in range(self.replicates):
            sketches.append(torch.zeros((2, _probe.PROBE_SKETCH)))
            for sketch in (sketches[-1][0], sketches[-1][0], sketches[-1][1], sketches[-1][1]):
                for parameter, n in zip(state.parameters, sizes):
                    parameter.grad = self.write(n)
                probe._add_to_sketch(sketch)
        stream = _probe.numbers("tandem_probe_stream", c_int64, c_int, gives=c_uint32)(self.point, 1)
        probe.moved.draw(probe.metric, self.seed, stream)
        probe._move_to(probe.steps[0])
        moved = [float(one) for parameter in state.parameters for one in parameter.detach()]
        estimated, cells = Estimated.open(1, 1, self.replicates), []
        for p in range(1, len(PRECISIONS)):
            has_amp = _library.load("tandem").tandem_precision_has_amp(p)
            for k, amp in enumerate(AMP_DTYPES if has_amp else [F32]):
                cells.append(Cell("fc1", p * len(AMP_DTYPES) + k, _formats_of(p, amp)))
                calls["fc1"].formats = [
                    {*old, new} - {N_FORMAT} for old, new in zip(calls["fc1"].formats, cells[-1].formats)
                ]
        put_gradients(estimated, sketches)
        w = self.write((self.inputs, self.outputs))
        calls["fc1"].weight = _probe._Weight(w.view(-1), _probe.amax_of(w), w.numel(), 1)
        for r in range(self.replicates):
            put_replicate(estimated, r, cells, {"fc1": self.replicate(probe, calls["fc1"])}, probe.steps)
        gradients = [(one.variance, one.mean_square) for _, one in estimated.gradients(0)]
        of_cells = [estimated.errors(0, cell.index)[: self.replicates] for cell in cells]
        errors = [(one.total, one.shared) for of in of_cells for one in of]
        return [*moved, *(number for pair in gradients + errors for number in pair)]

    def replicate(self, probe, call):
        """The sums of fc1 from the tensors of two batches."""
        found = _probe.Found(_probe.ProbeSums(call.is_before_jump, call.has_second, call.n_products))
        for b in range(2):
            x = self.write((self.batch, self.inputs))
            above, below = (_probe._Seen() for _ in range(2))
            of_y = (self.batch, self.outputs)
            for name, shape in (("dx", x.shape), ("y", of_y), ("g", of_y)):
                for seen in (above, below):
                    setattr(seen, name, _probe._keep(self.write(shape), self.batch, 0))
            for seen in (above, below):
                seen.dw = self.write((self.inputs, self.outputs)).view(-1).clone()
            above.x = _probe._keep(x, self.batch, 0)
            above.amax = {INPUT: _probe.amax_of(x), GRADIENT: _probe.amax_of(above.g.x)}
            probe._add_batch(found, call, b, above, below)
        probe._add_weight(call, found)
        return found


class Filed(Case):
    """What the store has, and the goodput of plans."""

    cluster = "h100 net=10Gbit/s,5us"

    def rows(self, sql):
        import sqlite3

        with sqlite3.connect(self.store) as store:
            return store.execute(sql).fetchall()

    def test_rows_points_and_extra_samples(self):
        torch.manual_seed(0)
        module = Smooth()
        options = {"store": self.store, "data": "noise", "seed": 5, "replicates": 3}
        graph = tandem.capture(module, smooth_batch(0)[0])
        unknown = tandem.replay(graph, self.cluster, "int8", store=self.store, predict=True)
        estimate = (unknown.sensitivity, unknown.sensitivity_low, unknown.sensitivity_high)
        self.assertEqual(estimate, (None, None, None))
        tandem.sensitivity(module, batches(), F.cross_entropy, step=0, steps=20, **options)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        train_to(module, 10, optimizer)
        found = tandem.sensitivity(
            module, batches(8, 50), F.cross_entropy, optimizer=optimizer, step=10, steps=20, **options
        )
        head = self.rows("SELECT data, batch, optimizer, seed, steps, n_replicate FROM estimate")
        self.assertEqual(head, [("noise", 4, "sgd", 5, 20, 3)])  # of 6 samples
        points = "SELECT DISTINCT training_point FROM estimated_error ORDER BY training_point"
        self.assertEqual(self.rows(points), [(0,), (10,)])
        self.assertEqual(
            {name for name, in self.rows("SELECT DISTINCT op_name FROM estimated_error")}, set(found.values)
        )
        of_weights = "SELECT count(*), sum(shared != 0) FROM estimated_error WHERE \"precision\" = 'int8_full'"
        drawn = self.rows(of_weights)
        self.assertEqual(drawn, [(4 * 2 * 3, 3 * 2 * 3)])  # the product of activations has no weight
        self.check_extra_samples(found)

    def test_only_the_same_training_is_joined(self):
        from tandem._estimated import Estimated, _can_join

        mine, filed = Estimated.open(2, 1, 3), Estimated.open(2, 1, 3)
        for one in (mine, filed):
            one.c.batch, one.c.steps, one.c.seed = 4, 20, 5
        mine.c.point[0] = 10
        self.assertTrue(_can_join(mine, filed))
        for name, other in (("batch", 5), ("steps", 21), ("seed", 6)):
            before = getattr(mine.c, name)
            setattr(mine.c, name, other)
            self.assertFalse(_can_join(mine, filed), name)
            setattr(mine.c, name, before)
        filed.c.point[0] = 10  # the same training point
        self.assertFalse(_can_join(mine, filed))

    def check_extra_samples(self, found):
        base = tandem.replay(found.graph, self.cluster, "fp32", store=self.store, predict=True)
        self.assertEqual((base.sensitivity, base.sensitivity_low, base.sensitivity_high), (0, 0, 0))
        uniform = tandem.replay(found.graph, self.cluster, "int8_full", store=self.store, predict=True)
        whole = sum(of["int8_full"].noise for of in found.values.values())
        self.assertAlmostEqual(uniform.sensitivity / whole, 1, delta=1e-6)
        self.assertTrue(0 <= uniform.sensitivity_low < uniform.sensitivity < uniform.sensitivity_high)
        text = r"sensitivity \S+ % more samples to the same loss \(95 %: \S+ to \S+ %\)"
        self.assertRegex(str(uniform), text)
        given = {"store": self.store, "predict": True}
        within = tandem.allocate(found.graph, self.cluster, max_sensitivity=1e-4, **given)
        self.assertLessEqual(within.sensitivity_bound, 0.01)
        path = os.path.join(self.folder, "plan.json")
        within.save(path)
        loaded = tandem.Plan.load(path)
        self.assertEqual(loaded.sensitivity_high, within.sensitivity_high)


if __name__ == "__main__":
    unittest.main()
