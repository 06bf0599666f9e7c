"""Products of CUDA tensors over the stand-in for a GPU (tests/cuda), whose memory is the host's.

PyTorch here has no CUDA. So CPU tensors say that they are CUDA's, and the stream is the one without a name.
What that leaves untested is PyTorch's side of it: its streams, its allocator and its current device.
"""

import contextlib
import ctypes
import os
import sys
import tempfile
import unittest
from unittest import mock

from support import BUILD, Case

if not os.path.exists(os.path.join(BUILD, "tests", "libtandem_cuda_kernels.so.0")):
    sys.exit("there is no tests/libtandem_cuda_kernels.so.0 in the build folder: run make tests first")
_folder = tempfile.TemporaryDirectory()
for name, of in (("tandem", BUILD), ("tandem_kernels", BUILD), ("tandem_cuda_kernels", os.path.join(BUILD, "tests"))):
    os.symlink(os.path.join(of, f"lib{name}.so.0"), os.path.join(_folder.name, f"lib{name}.so.0"))
os.environ["TANDEM_LIBRARY"] = _folder.name

import torch
import torch.nn.functional as F

import tandem
from tandem import _apply, _cuda, _library
from tandem._kernels import Kernels, Rounds
from tandem._structs import BF16, PRECISIONS
from tandem._trace import Product

AMP = 8  # TANDEM_AMP

# Of a product of numbers about 1: how far off it may be, relative to the largest.
BOUND = {"tf32": 2e-3, "fp16": 2e-3, "bf16": 1e-2, "fp8": 8e-2, "int8": 3e-2, "int8_full": 3e-2}
BACK = {**BOUND, "fp8": 2e-1, "int8": 3e-2}


def on_stand_in():
    """Tensors are on a GPU, as far as apply can see."""
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(torch.Tensor, "is_cuda", True, create=True))
    stack.enter_context(mock.patch.object(torch.Tensor, "is_cpu", False, create=True))
    stack.enter_context(mock.patch.object(_cuda, "_on_gpu_of", lambda x: contextlib.nullcontext((0, 0))))
    return stack


def random(*shape):
    return torch.randn(*shape, requires_grad=True)


def both(product, precision, run, g):
    """The result, and the gradients of all operands."""
    operands = [one for one in (product.x, product.w, product.bias, product.addend) if one is not None]
    y = run(product, precision)
    return [y.detach(), *torch.autograd.grad(y, operands, g)]


def plain(product, precision):
    if product.kind == "conv2d":
        return F.conv2d(product.x, product.w, product.bias, product.stride, product.pad)
    if product.kind == "linear":
        return F.linear(product.x, product.w.t() if product.turned else product.w, product.bias)
    y = product.x @ product.w
    return y if product.addend is None else y + product.addend


def converted(product, precision):
    return _apply.run_product(product, precision, Kernels("sse41"), Rounds(3, 0, 11))


class Products(Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        torch.set_num_threads(1)

    def check(self, product, result_shape):
        g = torch.randn(result_shape)
        right = both(product, "fp32", plain, g)
        for precision in BOUND:
            with self.subTest(kind=product.kind, precision=precision), on_stand_in():
                for got, expected in zip(both(product, precision, converted, g), right):
                    bound = BOUND[precision] if got.shape == result_shape else BACK[precision]
                    self.assertEqual(got.shape, expected.shape)
                    off = (got - expected).abs().max() / expected.abs().max()
                    self.assertLess(off.item(), bound)

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

    def test_int8_has_the_bits_of_the_cpu(self):
        product = Product("linear", random(37, 29), random(19, 29), random(19))
        g = torch.randn(37, 19)
        here = both(product, "int8_full", converted, g)
        with on_stand_in():
            there = both(product, "int8_full", converted, g)
        for one, other in zip(here[:3], there[:3]):
            self.assertTrue(torch.equal(one, other))
        self.assertTrue(torch.allclose(here[3], there[3]))

    def test_operands_may_lie_anywhere(self):
        x, w = torch.randn(30), torch.randn(7, 5)
        for far in (x[5:30].view(5, 5), x[:25].view(5, 5).t()):  # at no multiple of 16 bytes; turned
            with on_stand_in():
                for precision in BOUND:
                    near = converted(Product("linear", far.clone().contiguous(), w), precision)
                    self.assertTrue(torch.equal(converted(Product("linear", far, w), precision), near))

    def test_sums_that_int32_cannot_hold_are_cut(self):
        product = Product("linear", random(200, 5), random(7, 5))
        g = torch.randn(200, 7)
        with on_stand_in():
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
            if name == "fp32":
                continue
            types = [BF16 if one == AMP else one for one in (row.forward, row.dgrad, row.wgrad, row.other)]
            forward, gradient, other = _cuda._TYPES[name]
            self.assertEqual(types, [forward, gradient, gradient, other])

    def test_frozen_operands_and_second_derivatives(self):
        product = Product("linear", random(4, 5), torch.randn(3, 5))
        with on_stand_in():
            y = converted(product, "int8")
            (gx,) = torch.autograd.grad((y * y).sum(), product.x, create_graph=True)
            with self.assertRaisesRegex(RuntimeError, "once_differentiable"):
                gx.sum().backward()


class Modules(Case):
    def module(self):
        torch.manual_seed(2)
        return torch.nn.Sequential(torch.nn.Linear(12, 9), torch.nn.ReLU(), torch.nn.Linear(9, 4))

    def test_a_module_trains(self):
        module, x = self.module(), torch.randn(8, 12)
        names = list(module.state_dict())
        with on_stand_in():
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
        module, x = self.module(), torch.randn(8, 12)
        with self.assertRaisesRegex(tandem.MissingError, "'0' in fp8: modules run in fp32, bf16, int8, int8_full"):
            tandem.apply(module, {"0": "fp8"})
        with on_stand_in():
            tandem.apply(module, {"0": "fp8"})
        with self.assertRaisesRegex(tandem.MissingError, "layer '0': CPU tensors run in .*; fp8 needs CUDA tensors"):
            module(x)

    def test_profile_is_of_the_cpu(self):
        with on_stand_in(), self.assertRaisesRegex(tandem.MissingError, "this one has CUDA parameters"):
            tandem.profile(self.module(), torch.randn(8, 12), device="torch:card", store=self.store)

    def fails(self, **environment):
        """What a module in bf16 says in a process of its own."""
        code = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "import cuda, tandem, torch\n"
            "import os; os.environ['TANDEM_LIBRARY'] = os.environ.get('ONLY', os.environ['TANDEM_LIBRARY'])\n"
            "with cuda.on_stand_in():\n"
            "    module = tandem.apply(torch.nn.Sequential(torch.nn.Linear(4, 4)), 'bf16')\n"
            "    module(torch.randn(2, 4))\n"
        )
        ended = self.python(code, os.path.dirname(os.path.abspath(__file__)), **environment)
        self.assertEqual(ended.returncode, 1)
        return ended.stderr.splitlines()[-1]

    def test_what_is_missing_is_named_with_the_layer(self):
        build = os.path.join(self.folder, "build")
        os.mkdir(build)
        os.symlink(os.path.join(BUILD, "libtandem_kernels.so.0"), os.path.join(build, "libtandem_kernels.so.0"))
        os.symlink(os.path.join(BUILD, "libtandem.so.0"), os.path.join(build, "libtandem.so.0"))
        self.assertRegex(self.fails(ONLY=build), "layer '0': libtandem_cuda_kernels.so.0 is not here: looked for")
        self.assertRegex(
            self.fails(STAND_IN_CAPABILITY="75"), "layer '0': .*bf16 to f32.: it needs compute capability 8.0"
        )
        self.assertRegex(self.fails(STAND_IN_DRIVER="11000"), "layer '0': the driver of device 'cuda:0' is for")


if __name__ == "__main__":
    unittest.main()
