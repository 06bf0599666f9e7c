"""Products in int8 and bf16, against the same in double."""

import ctypes
import os
import subprocess
import sys
import unittest
from unittest import mock

from support import Case
import torch
import torch.nn.functional as F

import tandem
from tandem import _kernels
from tandem._structs import Conv2dS8, S8, LayerOperand, LinearPass
from tandem._kernels import (
    MAX_K,
    Conv2d,
    Convolution,
    Kernels,
    Linear,
    Matmul,
    Rounds,
    convolve,
    convolve_input,
    convolve_weight,
    multiply,
)

K = Kernels()


def off(found, expected):
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


class Products(Case):
    limits = {"int8": 0.03, "int8_full": 0.03, "bf16": 0.006}

    def check(self, apply, reference, operands):
        for precision, limit in self.limits.items():
            with self.subTest(precision):
                inputs = [one.clone().requires_grad_() for one in operands]
                y, expected = apply(precision, *inputs), reference(*inputs)
                self.assertEqual(y.shape, expected.shape)
                self.assertLess(off(y, expected), limit)
                g = torch.randn_like(expected)
                for found, right in zip(
                    torch.autograd.grad(y, inputs, g), torch.autograd.grad(expected, inputs, g)
                ):
                    self.assertEqual(found.shape, right.shape)
                    self.assertLess(off(found, right), limit)

    def test_linear(self):
        torch.manual_seed(0)
        for rows in (5, 150):  # 150: more than are narrowed and summed together
            operands = torch.randn(3, rows, 70), torch.randn(33, 70), torch.randn(33)
            self.check(lambda p, *o: Linear.apply(*o, p, K, Rounds(0, 0, 1)), F.linear, operands)

    def test_convolutions(self):
        torch.manual_seed(1)
        for kernel, stride, pad, h, w in (
            (3, 1, 1, 9, 8),
            (3, 2, 1, 10, 11),
            (1, 1, 0, 7, 7),
            (1, 2, 0, 9, 8),
            (7, 2, 3, 17, 16),
            (3, 1, 1, 2, 2),  # so few windows that bf16 multiplies them
            (3, 2, 1, 4, 5),
            (2, 2, 1, 3, 4),
            (3, 1, 1, 4, 5),  # only for the weight's gradient
        ):
            with self.subTest(kernel=kernel, stride=stride, h=h):
                operands = torch.randn(2, 6, h, w), torch.randn(8, 6, kernel, kernel), torch.randn(8)
                of = Convolution(kernel, stride, pad)
                self.check(
                    lambda p, *o: Conv2d.apply(*o, of, p, K, Rounds(0, 0, 1)),
                    lambda x, weight, b: F.conv2d(x, weight, b, stride, pad),
                    operands,
                )

    def test_convolutions_by_winograd(self):
        torch.manual_seed(3)
        of = Convolution(3, 1, 1)
        for n, c, out, h, w in ((2, 32, 64, 9, 10), (16, 64, 32, 4, 5)):
            operands = torch.randn(n, c, h, w), torch.randn(out, c, 3, 3) / (9 * c) ** 0.5, torch.randn(out)
            with self.subTest(c=c), mock.patch.object(_kernels, "has_bf16_tiles", lambda: False):
                ways = []
                for by_winograd in (True, False):  # bf16 and int8 pass through the same kernel
                    with mock.patch.object(_kernels, "WINOGRAD_TILES", 16 if by_winograd else 1 << 40):
                        with mock.patch.object(K, "conv3x3", wraps=K.conv3x3) as runs:
                            self.check(
                                lambda p, *o: Conv2d.apply(*o, of, p, K, Rounds(0, 0, 1)),
                                lambda x, weight, b: F.conv2d(x, weight, b, 1, 1),
                                operands,
                            )
                    ways.append(runs.call_count)
                # forward and backward of bf16, backward of int8
                self.assertEqual(ways, [3 if K.takes_conv3x3(n, h, w, c, out) else 0, 0])

    def test_matmul(self):
        torch.manual_seed(2)
        operands = torch.randn(2, 3, 9, 16), torch.randn(2, 3, 16, 7)
        self.check(lambda p, *o: Matmul.apply(*o, p, K, Rounds(0, 0, 1)), torch.matmul, operands)

    def test_gradients_of_products_with_gaps(self):
        """As a sum's, whose elements share one number, and that of a part of a tensor."""
        for precision in ("bf16", "int8_full"):
            for cut in (lambda c: c.sum(), lambda c: (c[..., ::2] * c.shape[0]).sum()):
                grads = []
                for dense in (False, True):
                    a, b = (torch.ones(3, 64, 64, requires_grad=True) for _ in "ab")
                    c = Matmul.apply(a, b, precision, K, Rounds(0, 0, 1))
                    if dense:
                        c.register_hook(lambda g: g.contiguous())
                    cut(c).backward()
                    grads.append((a.grad, b.grad))
                for one, other in zip(*grads):
                    self.assertTrue(torch.equal(one, other))
                    self.assertTrue(one.isfinite().all() and one.abs().sum() > 0)

    def test_bf16_is_summed_in_f32(self):
        """Also products so small, or on CPUs so old, that PyTorch would sum them in bf16."""
        torch.manual_seed(5)
        for k in (100, 3000):
            operands = torch.randn(4, k).bfloat16(), torch.randn(k, 5).bfloat16()
            expected = torch.matmul(*(one.double() for one in operands))
            self.assertLess(off(multiply(K, *operands), expected), 0.003)
        if "ONEDNN_MAX_CPU_ISA" not in os.environ:
            tests = ["Products.test_linear", "Products.test_convolutions", "Products.test_matmul"]
            held = {**os.environ, "ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default"}
            ran = subprocess.run([sys.executable, __file__, *tests], env=held, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stderr)

    def check_passes(self, name, run, operands):
        """Results and gradients to the bit, in one call a pass and by the functions that threads divide."""
        found = []
        for by_parts in (False, True):
            with mock.patch.object(Kernels, "is_threaded", staticmethod(lambda work, parts=by_parts: parts)):
                inputs = [one.clone().requires_grad_() for one in operands]
                y = run(*inputs)
                g = torch.linspace(-1, 2, y.numel()).sin().view(y.shape)
                found.append((y.detach(), *torch.autograd.grad(y, inputs, g)))
        for one, right in zip(*found):
            self.assertEqual(one.shape, right.shape, name)
            self.assertTrue(torch.equal(one, right), name)

    def test_a_pass_in_one_call_has_the_bits_of_its_parts(self):
        torch.manual_seed(8)
        rounds = Rounds(3, 1, 1 << 63)
        rounds.step = 7
        for precision in ("int8", "int8_full"):
            linear = lambda *o: Linear.apply(*o, precision, K, rounds)  # noqa: E731
            for m, n, k in ((1, 1, 1), (70, 33, 40), (3, 5, MAX_K + 70), (300, 96, 64)):
                operands = torch.randn(2, m, k), torch.randn(n, k), torch.randn(n)
                self.check_passes(f"linear {m} {n} {k}", linear, operands)
                self.check_passes(f"without a bias {m} {n} {k}", lambda x, w: linear(x, w, None), operands[:2])
            turned = torch.randn(5, 70, 40).transpose(0, 1)
            self.check_passes("rows in another order", linear, (turned, torch.randn(33, 40), torch.randn(33)))
            matmul = lambda *o: Matmul.apply(*o, precision, K, rounds)  # noqa: E731
            heads = torch.randn(9, 4, 3, 16)  # tokens, images, heads: as attention lays them out
            for of in (heads[:, 0], heads):
                a = of.permute(*range(1, of.dim() - 1), 0, of.dim() - 1)
                self.check_passes("matmul", matmul, (a, a.transpose(-1, -2)))
                self.check_passes("matmul", matmul, (a.transpose(-1, -2), torch.randn(a.shape)))
            self.check_passes("matmul", matmul, (torch.randn(6, 5), torch.randn(5, 7)))

    def test_a_convolution_in_one_call_has_the_bits_of_its_parts(self):
        torch.manual_seed(9)
        for kernel, stride, pad, channels, h, w, out in (
            (3, 1, 1, 16, 9, 8, 24),
            (3, 2, 1, 16, 10, 11, 24),
            (3, 2, 0, 5, 11, 10, 3),
            (2, 3, 1, 4, 8, 9, 6),  # some pixels are in no window
            (1, 1, 0, 16, 7, 7, 8),
            (1, 2, 0, 16, 9, 8, 8),
            (1, 2, 0, 6, 8, 8, 8),
            (7, 2, 3, 3, 40, 41, 16),
            (3, 1, 2, 128, 40, 40, 8),  # windows of more bytes than are taken together
            (3, 2, 1, 128, 60, 40, 70),
        ):
            of, operands = Convolution(kernel, stride, pad), [torch.randn(out, channels, kernel, kernel)]
            operands = [torch.randn(3, channels, h, w), *operands, torch.randn(out)]
            run = lambda *o: Conv2d.apply(*o, of, "int8_full", K, Rounds(0, 0, 1))  # noqa: E731,B023
            self.check_passes(f"{kernel} {stride} {pad} {channels}", run, operands)

    def test_what_a_pass_refuses(self):
        """Sizes, strides and workspaces that would leave the operands' memory."""
        x = torch.zeros(4096)
        room = x.data_ptr() + -x.data_ptr() % 64
        given = {"q": x.data_ptr(), "elements": 6}
        a, b = {**given, "row": 3, "column": 1}, {**given, "row": 1, "column": 3}
        for change, says in (
            ({"m": -1}, "each is 0 to 2"),
            ({"to": 0}, "`to` is 0; allowed: s8, bf16"),
            ({"m": 3}, "a has 6 elements; its sizes and strides reach over 9"),
            ({"a": {**a, "step": (0, 4)}}, "a has 6 elements; its sizes and strides reach over 10"),
            ({"a": {**a, "row": -3}}, "a stride of a is -3"),
            ({"b": {**b, "q": None}}, "the q of b is NULL"),
            ({"g_bias": room}, "g.x is NULL"),
            ({"workspace_bytes": 1}, "workspace_bytes is 1"),
        ):
            call = {"to": S8, "m": 2, "n": 2, "k": 3, "a": a, "b": b, "c": room, "workspace": room, "workspace_bytes": 1 << 40}
            call.update(change)
            call = LinearPass(**{**call, "a": LayerOperand(**call["a"]), "b": LayerOperand(**call["b"])})
            call.batch[:] = (1, 2)
            with self.subTest(says), self.assertRaisesRegex(tandem.UsageError, says):
                K._linear(K._table, ctypes.byref(call))
        for change, says in (
            ({"stride": 0}, "are no sizes"),
            ({"pad": 3}, "are no sizes"),
            ({"height": 0}, "are no sizes"),
            ({"images": 1 << 29, "channels": 1 << 29}, "are no sizes"),
            ({"workspace_bytes": 64}, "a workspace of"),
            ({"channels": 2}, "x has 16 elements; its sizes and strides reach over 32"),
            ({"stride": 2, "out": 1 << 15, "gx": room}, "can leave int32"),
        ):
            call = {"images": 1, "height": 4, "width": 4, "channels": 1, "out": 1, "kernel": 3, "stride": 1}
            call.update({"pad": 1, "y": room, "workspace": room, "workspace_bytes": 1 << 40, **change})
            call = Conv2dS8(**call, x=LayerOperand(q=room, elements=16), w=LayerOperand(q=room, elements=9))
            with self.subTest(says), self.assertRaisesRegex(tandem.UsageError, says):
                K._conv2d(K._table, ctypes.byref(call))

    def test_int8_sums_are_exact(self):
        """The three products of a convolution in int8, to the bit."""
        torch.manual_seed(3)
        qx, qw = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((2, 6, 7, 4), (5, 9 * 4)))
        for stride in (1, 2):
            of = Convolution(3, stride, 1)
            x, w = qx.double().permute(0, 3, 1, 2), qw.double().view(5, 3, 3, 4).permute(0, 3, 1, 2)
            x.requires_grad_()
            w.requires_grad_()
            expected = F.conv2d(x, w, None, stride, 1)
            self.assertTrue(torch.equal(convolve(K, of, qx, qw, 1.0, None).double(), expected))
            qg = torch.randint(-127, 128, expected.permute(0, 2, 3, 1).shape, dtype=torch.int8)
            gx, gw = torch.autograd.grad(expected, (x, w), qg.double().permute(0, 3, 1, 2))
            found = convolve_input(K, of, qg, qw, qx.shape, 1.0)
            self.assertTrue(torch.equal(found.double(), gx))
            found = convolve_weight(K, of, qx, qg, 1.0).view(5, 3, 3, 4).permute(0, 3, 1, 2)
            self.assertTrue(torch.equal(found.double(), gw))

    def test_all_instruction_sets_give_the_same_bits(self):
        torch.manual_seed(6)
        bias, x = torch.arange(40.0), torch.randn(37, 40)
        ran, results = [], []
        for isa in ("sse41", "avx2", "avx2_vnni", "avx512_vnni", "avx512_bf16", "avx512_amx"):
            try:
                kernels = Kernels(isa)
            except tandem.MissingError:
                continue
            ran.append(isa)
            q, scale = kernels.quantise(x, (1, 2, 3), 4)
            results.append(torch.cat([q.float().flatten(), torch.tensor([scale]), kernels.column_sums(x)]))
            for k in (70, 76):  # of 76, rows are multiplied where they lie
                a, b = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((3, 50, k), (3, k, 40)))
                c = torch.empty(3, 50, 40)
                kernels.product(c, a, (k, 1), b, (40, 1), (50, 40, k), 1.0, bias, batch=3)
                self.assertTrue(torch.equal(c.double(), torch.matmul(a.double(), b.double()) + bias), isa)
        self.assertIn("sse41", ran)
        self.assertEqual(K.isa, ran[-1])
        for isa, found in zip(ran, results):
            self.assertTrue(torch.equal(found, results[0]), isa)

    def test_operands_lie_in_memory_in_any_order(self):
        torch.manual_seed(7)
        dense = torch.randn(6, 5, 8)
        for x in (dense, dense.transpose(0, 1), dense.permute(2, 0, 1), dense[:, 1:4], dense[:1].expand(4, 5, 8)):
            q, scale = K.quantise(x, (1, 2, 3), 4)
            self.assertLess(q.float().mul(scale).sub(x).abs().max().item(), 1.01 * scale)
            operands = x, torch.randn(7, x.shape[-1]), torch.randn(7)
            self.check(lambda p, *o: Linear.apply(*o, p, K, Rounds(0, 0, 1)), F.linear, operands)
            for b in (torch.randn(*x.shape[:-2], x.shape[-1], 9), torch.randn(*x.shape[:-2], 9, x.shape[-1])):
                b = b if b.shape[-2] == x.shape[-1] else b.transpose(-1, -2)
                self.check(lambda p, *o: Matmul.apply(*o, p, K, Rounds(0, 0, 1)), torch.matmul, (x, b))

    def test_settings_of_pytorch_hold_these_kernels_too(self):
        code = "from tandem._kernels import Kernels; print(Kernels().isa)"
        for setting, limit in (("SSE41", "sse41"), ("AVX512_CORE_BF16", "avx512_bf16"), ("ALL", "avx512_amx")):
            isa = self.python(code, ONEDNN_MAX_CPU_ISA=setting).stdout.strip()
            order = ("sse41", "avx", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx")
            self.assertLessEqual(order.index(isa), order.index(limit))  # this CPU's best one, where it is older

    def test_sums_longer_than_int32_holds(self):
        depth = MAX_K + 100
        a, b = torch.full((2, depth), 127, dtype=torch.int8), torch.full((depth, 3), 127, dtype=torch.int8)
        c = torch.empty(2, 3)
        K.product(c, a, (depth, 1), b, (3, 1), (2, 3, depth), 1.0)
        self.assertTrue(torch.equal(c, torch.full((2, 3), float(127 * 127 * depth))))

    def test_threads_give_the_same_bits(self):
        torch.manual_seed(4)
        a, b = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((257, 640), (640, 300)))
        results, before = [], torch.get_num_threads()
        try:
            for threads in (1, 3):
                torch.set_num_threads(threads)
                c = torch.empty(257, 300)
                K.product(c, a, (640, 1), b, (300, 1), (257, 300, 640), 0.5, torch.arange(300.0))
                results.append(c)
        finally:
            torch.set_num_threads(before)
        self.assertTrue(torch.equal(*results))

    def test_rounding_is_unbiased_and_differs_by_step_and_rank(self):
        x = torch.full((1, 4096), 0.3)
        x[0, 0] = 1.0
        q, scale = K.quantise(x, Rounds(0, 0, 1).stream(1), 1)
        self.assertAlmostEqual(q.float().mul(scale)[0, 1:].mean().item(), 0.3, delta=3e-4)
        other, _ = K.quantise(x, Rounds(0, 1, 1).stream(1), 1)
        self.assertFalse(torch.equal(q, other))


if __name__ == "__main__":
    unittest.main()
