"""Products of CUDA tensors: on a GPU where PyTorch has one, else over the stand-in for one (tests/cuda).

The stand-in's memory is the host's: there CPU tensors say that they are CUDA's, and the stream is the one
without a name. What that leaves untested is PyTorch's side of it: its streams, its allocator and its current
device. References are computed on the CPU in fp32 either way.
"""

import contextlib
import ctypes
import os
import random as drawing
import sys
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F

from support import BUILD, Case

IS_REAL = torch.cuda.is_available()
DEVICE = "cuda" if IS_REAL else "cpu"
if not IS_REAL:
    if not os.path.exists(os.path.join(BUILD, "tests", "libtandem_cuda_kernels.so.0")):
        sys.exit("there is no tests/libtandem_cuda_kernels.so.0 in the build folder: run make tests first")
    _folder = tempfile.TemporaryDirectory()
    for name, of in (("", BUILD), ("_kernels", BUILD), ("_cuda_kernels", os.path.join(BUILD, "tests"))):
        os.symlink(os.path.join(of, f"libtandem{name}.so.0"), os.path.join(_folder.name, f"libtandem{name}.so.0"))
    os.environ["TANDEM_LIBRARY"] = _folder.name

import tandem
from tandem import _apply, _cuda, _library
from tandem._kernels import Kernels, Rounds
from tandem._structs import BF16, PRECISIONS
from tandem._trace import Product

AMP = 10  # TANDEM_AMP

# Of a product of numbers about 1: how far off it may be, relative to the largest.
BOUND = {"tf32": 2e-3, "fp16": 2e-3, "bf16": 1e-2, "fp8": 8e-2, "int8": 3e-2, "int8_full": 3e-2}
BACK = {**BOUND, "fp8": 2e-1, "int8": 3e-2}


def in_float32(operator):
    """An operator that a CPU may not have in float16: the result is rounded to it."""

    def run(*arguments):
        is_half = arguments[0].dtype == torch.float16
        if not is_half:
            return operator(*arguments)
        wide = [one.float() if isinstance(one, torch.Tensor) else one for one in arguments]
        made = operator(*wide)
        if isinstance(made, torch.Tensor):
            return made.half()
        return tuple(None if one is None else one.half() for one in made)

    return run


def on_gpu():
    """Tensors are on a GPU, as far as apply can see."""
    stack = contextlib.ExitStack()
    if not IS_REAL:
        for name, operator in (("_conv2d", _cuda._conv2d), ("_conv2d_backward", _cuda._conv2d_backward)):
            stack.enter_context(mock.patch.object(_cuda, name, in_float32(operator)))
        stack.enter_context(mock.patch.object(torch.Tensor, "is_cuda", True, create=True))
        stack.enter_context(mock.patch.object(torch.Tensor, "is_cpu", False, create=True))
        stack.enter_context(mock.patch.object(_cuda, "_on_gpu_of", lambda x: contextlib.nullcontext((0, 0))))
    return stack


def random(*shape):
    return torch.randn(*shape, requires_grad=True)


def there(product):
    """The same product, of leaves on the GPU."""
    moved = {
        name: one.detach().to(DEVICE).requires_grad_(one.requires_grad)
        for name, one in vars(product).items()
        if isinstance(one, torch.Tensor)
    }
    return Product(**{**vars(product), **moved})


def both(product, precision, run, g):
    """The result, and the gradients of all operands."""
    operands = [one for one in (product.x, product.w, product.bias, product.addend) if one is not None]
    y = run(product, precision)
    return [y.detach(), *torch.autograd.grad(y, operands, g.to(y.device))]


def plain(product, precision):
    if product.kind == "conv2d":
        return F.conv2d(product.x, product.w, product.bias, product.stride, product.pad)
    if product.kind == "linear":
        return F.linear(product.x, product.w.t() if product.turned else product.w, product.bias)
    y = product.x @ product.w
    return y if product.addend is None else y + product.addend


def converted(product, precision):
    return _apply.run_product(product, precision, Kernels("sse41"), Rounds(3, 0, 11))


class Seeded(Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        torch.set_num_threads(1)

    def assertClose(self, got, right, precision):
        """A result and its gradients."""
        for k, (one, expected) in enumerate(zip(got, right)):
            self.assertEqual(one.shape, expected.shape)
            off = (one.cpu() - expected).abs().max() / expected.abs().max()
            self.assertLess(off.item(), (BACK if k else BOUND)[precision])


class Products(Seeded):
    def check(self, product, result_shape):
        g = torch.randn(result_shape)
        right = both(product, "fp32", plain, g)
        for precision in BOUND:
            with self.subTest(kind=product.kind, precision=precision), on_gpu():
                self.assertClose(both(there(product), precision, converted, g), right, precision)

    def test_linear(self):
        self.check(Product("linear", random(3, 5, 23), random(17, 23), random(17)), (3, 5, 17))
        self.check(Product("linear", random(4, 64), random(48, 64)), (4, 48))
        self.check(Product("linear", random(6, 9), random(9, 11), turned=True), (6, 11))

    def test_matmul(self):
        self.check(Product("matmul", random(2, 3, 5, 7), random(2, 3, 7, 9)), (2, 3, 5, 9))
        self.check(Product("matmul", random(4, 5, 7), random(4, 7, 3), addend=random(4, 5, 3)), (4, 5, 3))

    def test_convolution(self):
        product = Product("conv2d", random(2, 3, 9, 7), random(5, 3, 3, 3), random(5), kernel=3, stride=2, pad=1)
        self.check(product, (2, 5, 5, 4))
        self.check(Product("conv2d", random(2, 3, 4, 5), random(6, 3, 1, 1), kernel=1, stride=1), (2, 6, 4, 5))

    def test_convolutions_of_floats_are_of_pytorch(self):
        """To the bit, with a frozen operand and in channels_last, too; windows are unfolded for bytes alone."""
        dtypes = {"tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        x, w, g = (torch.randn(*shape).to(DEVICE) for shape in ((2, 3, 9, 7), (5, 3, 3, 3), (2, 5, 5, 4)))
        last = x.contiguous(memory_format=torch.channels_last)
        with on_gpu(), mock.patch.object(_cuda.F, "unfold", side_effect=RuntimeError("unfolded")):
            for precision, dtype in dtypes.items():
                for one, of_w in ((x, True), (x, False), (last, True)):
                    leaf, weight = one.clone().requires_grad_(), w.clone().requires_grad_(of_w)
                    product = Product("conv2d", leaf, weight, None, kernel=3, stride=2, pad=1)
                    y = converted(product, precision)
                    right = _cuda._conv2d(one.to(dtype), w.to(dtype), None, 2, 1)
                    self.assertTrue(torch.equal(y, right.float()))
                    wanted = (leaf, weight) if of_w else (leaf,)
                    got = torch.autograd.grad(y, wanted, g)
                    operands = (one.to(dtype) for one in (g, one, w))
                    way = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1)
                    gradients = _cuda._conv2d_backward(*operands, None, *way, [True, of_w, False])
                    for gradient, other in zip(got, gradients):
                        self.assertEqual(gradient.dtype, torch.float32)
                        self.assertTrue(torch.equal(gradient, other.float()))
            for precision in ("fp8", "int8", "int8_full"):
                with self.assertRaisesRegex(RuntimeError, "unfolded"):
                    converted(Product("conv2d", x, w, None, kernel=3, stride=2, pad=1), precision)
            leaf = x.clone().requires_grad_()
            y = converted(Product("conv2d", leaf, w, None, kernel=3, stride=2, pad=1), "bf16")
            (gx,) = torch.autograd.grad(y.square().sum(), leaf, create_graph=True)
            with self.assertRaisesRegex(RuntimeError, "layer .*once_differentiable"):
                gx.sum().backward()

    def test_no_graph_captures_the_library(self):
        """Refused before it is called, in both passes; what is PyTorch's own is captured."""
        product = there(Product("linear", random(4, 5), random(3, 5)))
        image = there(Product("conv2d", random(1, 3, 4, 4), random(2, 3, 3, 3), kernel=3, stride=1, pad=1))
        with on_gpu():
            y = converted(product, "bf16")
            with mock.patch.object(_cuda, "_is_capturing", lambda: True), mock.patch.object(_cuda, "_Gpu", None):
                for precision in BOUND:
                    with self.assertRaisesRegex(tandem.UsageError, f"a product in {precision} cannot be captured"):
                        converted(product, precision)
                    with self.assertRaisesRegex(tandem.UsageError, "the gradient of a product in bf16 cannot be"):
                        y.sum().backward(retain_graph=True)
                converted(image, "bf16").sum().backward()
            y.sum().backward()

    def test_streams_have_workspaces_of_their_own(self):
        with on_gpu():
            one, other = _cuda._Gpu.of(0, 0), _cuda._Gpu.of(0, 64)
        self.assertNotEqual(one._products.value, other._products.value)
        self.assertIs(one, _cuda._Gpu.of(0, 0))

    def test_int8_has_the_bits_of_the_cpu(self):
        product = Product("linear", random(37, 29), random(19, 29), random(19))
        g = torch.randn(37, 19)
        here = both(product, "int8_full", converted, g)
        with on_gpu():
            got = [one.cpu() for one in both(there(product), "int8_full", converted, g)]
        for one, other in zip(here[:3], got[:3]):
            self.assertTrue(torch.equal(one, other))
        self.assertTrue(torch.allclose(here[3], got[3], atol=1e-5))

    def test_operands_may_lie_anywhere(self):
        x, w = torch.randn(30).to(DEVICE), torch.randn(7, 5).to(DEVICE)
        for far in (x[5:30].view(5, 5), x[:25].view(5, 5).t()):  # at no multiple of 16 bytes; turned
            with on_gpu():
                for precision in BOUND:
                    near = converted(Product("linear", far.clone().contiguous(), w), precision)
                    self.assertTrue(torch.equal(converted(Product("linear", far, w), precision), near))

    def test_sums_that_int32_cannot_hold_are_cut(self):
        product = there(Product("linear", random(200, 5), random(7, 5)))
        g = torch.randn(200, 7)
        with on_gpu():
            whole = both(product, "int8_full", converted, g)
            with mock.patch.object(_cuda, "MAX_K", 64):
                cut = both(product, "int8_full", converted, g)
        for one, other in zip(whole, cut):
            self.assertTrue(torch.allclose(one, other, rtol=1e-5, atol=1e-5))
        self.assertFalse(torch.equal(whole[2], cut[2]))

    def test_types_are_those_of_the_precisions(self):
        class Row(ctypes.Structure):
            names = ("forward", "dgrad", "wgrad", "other", "accumulator", "output", "saved", "product")
            _fields_ = [("name", ctypes.c_char_p), *((name, ctypes.c_int) for name in names)]

        row_of = _library.load("tandem").tandem_precision_get
        row_of.restype = ctypes.POINTER(Row)
        for number, name in enumerate(PRECISIONS):
            row = row_of(number).contents
            self.assertEqual(row.name.decode(), name)
            if name == "fp32" or name in ("mxfp8", "nvfp4"):  # no card here has the last two
                self.assertNotIn(name, _cuda._TYPES)
                continue
            types = [BF16 if one == AMP else one for one in (row.forward, row.dgrad, row.wgrad, row.other)]
            forward, gradient, other = _cuda._TYPES[name]
            self.assertEqual(types, [forward, gradient, gradient, other])

    def test_frozen_operands_and_second_derivatives(self):
        product = there(Product("linear", random(4, 5), torch.randn(3, 5)))
        with on_gpu():
            y = converted(product, "int8")
            (gx,) = torch.autograd.grad((y * y).sum(), product.x, create_graph=True)
            with self.assertRaisesRegex(RuntimeError, "layer .*once_differentiable"):
                gx.sum().backward()


class Modules(Case):
    def module(self):
        torch.manual_seed(2)
        return torch.nn.Sequential(torch.nn.Linear(12, 9), torch.nn.ReLU(), torch.nn.Linear(9, 4)).to(DEVICE)

    def test_a_module_trains(self):
        module, x = self.module(), torch.randn(8, 12).to(DEVICE)
        names = list(module.state_dict())
        with on_gpu():
            tandem.apply(module, {"0": "fp8", "2": "int8_full"})
            losses = []
            for _ in range(20):
                loss = module(x).square().mean()
                losses.append(loss.item())
                module.zero_grad()
                loss.backward()
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter -= 0.5 * parameter.grad
        self.assertLess(losses[-1], 0.5 * losses[0])
        self.assertEqual(names, list(module.state_dict()))

    def test_precisions_of_cards_are_refused_on_the_cpu(self):
        module, x = self.module().cpu(), torch.randn(8, 12)
        with self.assertRaisesRegex(tandem.MissingError, "'0' in fp8: modules run in fp32, bf16, int8, int8_full"):
            tandem.apply(module, {"0": "fp8"})
        with on_gpu():
            tandem.apply(module.to(DEVICE), {"0": "fp8"})
        module.cpu()
        with self.assertRaisesRegex(tandem.MissingError, "layer '0': CPU tensors run in .*; fp8 needs CUDA tensors"):
            module(x)

    def test_profile_is_of_the_cpu(self):
        with on_gpu(), self.assertRaisesRegex(tandem.MissingError, "this one has CUDA parameters"):
            tandem.profile(self.module(), torch.randn(8, 12), device="torch:card", store=self.store)

    def fails(self, **environment):
        """What a module in bf16 says in a process of its own."""
        code = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "import cuda, tandem, torch\n"
            "import os\n"
            "own = os.environ['TANDEM_LIBRARY']\n"
            "os.environ['TANDEM_LIBRARY'] = os.environ.get('LIBRARY_OF_TEST', own)\n"
            "with cuda.on_gpu():\n"
            "    module = tandem.apply(torch.nn.Sequential(torch.nn.Linear(4, 4)).to(cuda.DEVICE), 'bf16')\n"
            "    module(torch.randn(2, 4).to(cuda.DEVICE))\n"
        )
        ended = self.python(code, os.path.dirname(os.path.abspath(__file__)), **environment)
        self.assertEqual(ended.returncode, 1)
        return ended.stderr.splitlines()[-1]

    def test_what_is_missing_is_named_with_the_layer(self):
        build = os.path.join(self.folder, "build")
        os.mkdir(build)
        os.symlink(os.path.join(BUILD, "libtandem_kernels.so.0"), os.path.join(build, "libtandem_kernels.so.0"))
        os.symlink(os.path.join(BUILD, "libtandem.so.0"), os.path.join(build, "libtandem.so.0"))
        self.assertRegex(self.fails(LIBRARY_OF_TEST=build), "layer '0': libtandem_cuda_kernels.so.0 is not here: looked for")
        if IS_REAL:
            return
        self.assertRegex(
            self.fails(STAND_IN_CAPABILITY="75"), "layer '0': .*bf16 to f32.: it needs compute capability 8.0"
        )
        self.assertRegex(self.fails(STAND_IN_DRIVER="11000"), "layer '0': the driver of device 'cuda:0' is for")


class Training(Seeded):
    """Whole modules in one precision, beside the same module in fp32 on the CPU."""

    def losses(self, make, draw, precision):
        torch.manual_seed(4)
        module = make().train()
        x, labels = draw()
        scale = 1024 if precision == "fp16" else 1
        with on_gpu() if precision else contextlib.nullcontext():
            if precision:
                module = tandem.apply(module.to(DEVICE), precision)
                x, labels = x.to(DEVICE), labels.to(DEVICE)
            optimizer, losses = torch.optim.SGD(module.parameters(), lr=0.05 / scale), []
            for _ in range(20):
                optimizer.zero_grad()
                loss = F.cross_entropy(module(x), labels)
                (scale * loss).backward()
                optimizer.step()
                losses.append(loss.item())
        return losses

    def check(self, make, draw):
        right = self.losses(make, draw, None)
        self.assertLess(right[-1], 0.8 * right[0])
        for precision in BOUND:
            with self.subTest(precision=precision):
                got = self.losses(make, draw, precision)
                off = max(abs(one - other) for one, other in zip(got, right)) / right[0]
                self.assertLess(off, LOSS_BOUND[precision], f"{got} beside {right}")
                self.assertNotEqual(got, right)

    def test_a_cnn(self):
        self.check(Cnn, lambda: (torch.randn(8, 3, 8, 8), torch.randint(0, 4, (8,))))

    def test_an_encoder(self):
        self.check(Encoder, lambda: (torch.randn(8, 6, 16), torch.randint(0, 4, (8,))))


LOSS_BOUND = {"tf32": 0.002, "fp16": 0.002, "bf16": 0.01, "fp8": 0.05, "int8": 0.02, "int8_full": 0.02}


class Cnn(torch.nn.Module):
    """A stem, a block with a shortcut, a head."""

    def __init__(self):
        super().__init__()
        sizes = (3, 1), (8, 1), (8, 2)  # channels, stride
        self.convolutions = torch.nn.ModuleList(
            torch.nn.Conv2d(channels, 8, 3, stride, 1, bias=False) for channels, stride in sizes
        )
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(8) for _ in sizes)
        self.shortcut, self.head = torch.nn.Conv2d(8, 8, 1, 2), torch.nn.Linear(8, 4)

    def forward(self, x):
        first, second, third = (
            lambda x, c=c, n=n: n(c(x)) for c, n in zip(self.convolutions, self.norms)
        )
        x = F.relu(first(x))
        x = F.relu(third(F.relu(second(x))) + self.shortcut(x))
        return self.head(x.mean((2, 3)))


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.layers, self.head = torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.layers(x).mean(1))


def train_rank(rank, folder, precision):
    """One of two ranks on one GPU; what it ends with goes into a file."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/{precision}", rank=rank, world_size=2)
    torch.manual_seed(rank)  # DDP sends the first rank's weights
    with on_gpu():
        module = torch.nn.Sequential(torch.nn.Linear(24, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(DEVICE)
        ddp = torch.nn.parallel.DistributedDataParallel(tandem.apply(module, precision))
        x, labels = torch.randn(12, 24).to(DEVICE), torch.randint(0, 4, (12,)).to(DEVICE)
        optimizer, losses = torch.optim.SGD(ddp.parameters(), lr=0.1), []
        for _ in range(20):
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(x), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        weights = [one.detach().cpu() for one in module.parameters()]
    torch.save((losses, weights), f"{folder}/{precision}.{rank}")
    dist.destroy_process_group()


class Memory(Seeded):
    def test_freed_memory_is_used_again(self):
        """Products of many sizes, none of which is waited for; between them freed memory is overwritten."""
        draw, made = drawing.Random(5), []
        with on_gpu():
            for k in range(200 if IS_REAL else 12):
                rows, width, out = (draw.randrange(16, 320 if IS_REAL else 48) for _ in range(3))
                product = Product("linear", random(rows, width), random(out, width), random(out))
                precision, g = list(BOUND)[k % len(BOUND)], torch.randn(rows, out)
                made.append((product, precision, g, both(there(product), precision, converted, g)))
                torch.full((draw.randrange(1, 100000),), float("nan")).to(DEVICE)
        for product, precision, g, got in made:
            self.assertClose(got, both(product, "fp32", plain, g), precision)

    def test_two_ranks_on_one_gpu(self):
        for precision in ("bf16", "int8_full"):
            with self.subTest(precision=precision):
                torch.multiprocessing.spawn(train_rank, (self.folder, precision), nprocs=2)
                ranks = [torch.load(f"{self.folder}/{precision}.{rank}") for rank in (0, 1)]
                for losses, _ in ranks:
                    self.assertLess(losses[-1], 0.8 * losses[0])
                self.assertNotEqual(ranks[0][0], ranks[1][0])
                for one, other in zip(ranks[0][1], ranks[1][1]):
                    self.assertTrue(torch.equal(one, other))


@unittest.skipUnless(IS_REAL, "this machine has no GPU that PyTorch knows")
class Streams(Seeded):
    def test_products_are_after_what_their_stream_has(self):
        """On streams that sleep before they write the operands: the calls return, and their results are right."""
        product, g = Product("linear", random(70, 40), random(50, 40), random(50)), torch.randn(70, 50).to(DEVICE)
        for precision in BOUND:
            with self.subTest(precision=precision):
                right = both(there(product), precision, converted, g)  # and the library's ways are tried
                torch.cuda.synchronize()
                streams, made = [torch.cuda.Stream() for _ in range(2)], []
                source = there(product)
                for k, stream in enumerate(streams * 4):
                    with torch.cuda.stream(stream):
                        if k > 1:  # before that, kernels are loaded and memory is taken, which may wait
                            torch.cuda._sleep(100000000)
                        late = there(Product("linear", source.x + 0, source.w + 0, source.bias + 0))
                        made.append(both(late, precision, converted, g))
                self.assertFalse(streams[1].query(), "the host waited for the stream")
                torch.cuda.synchronize()
                for got in made:
                    for one, other in zip(got, right):
                        self.assertTrue(torch.equal(one, other))

    def test_capture_is_refused_and_stays_whole(self):
        product, x = there(Product("linear", random(70, 40), random(50, 40))), torch.ones(4, device=DEVICE)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            with self.assertRaisesRegex(tandem.UsageError, "cannot be captured in a CUDA graph"):
                converted(product, "bf16")
            x += 1
        graph.replay()
        torch.cuda.synchronize()
        self.assertEqual(x.tolist(), [2] * 4)


if __name__ == "__main__":
    print(f"on {torch.cuda.get_device_name()}" if IS_REAL else "over the stand-in", f"PyTorch {torch.__version__}")
    if not IS_REAL:
        print("SKIP: the Python package, streams of a GPU: this machine has no GPU that PyTorch knows")
    sys.stdout.flush()
    unittest.main()
