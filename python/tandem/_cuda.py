"""Products of CUDA tensors, cast and multiplied by libtandem_cuda_kernels (include/tandem/cuda_kernels.h).

Operands and gradients have the types that precision.def gives them; results are float32. int8 is rounded by
the random numbers of the CPU. Convolutions are products of windows, which PyTorch unfolds.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from ctypes import byref, c_float, c_int, c_int64, c_void_p
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F

from tandem import _library
from tandem._gradients import refuse_second
from tandem._kernels import MAX_K, Rounds
from tandem._structs import BF16, E4M3, E5M2, F16, F32, S8, SCALE_TENSOR
from tandem._structs import CudaDequantiseCall, CudaProductCall, CudaQuantiseCall, Rounding
from tandem._trace import Product

Tensor = torch.Tensor

# Of the operands of the forward product, and of all operands of the two products after it: the gradient, the
# other one. int8 reads its saved input back to bf16, as the executor does on cards.
_TYPES = {
    "tf32": (F32, F32, F32),
    "fp16": (F16, F16, F16),
    "bf16": (BF16, BF16, BF16),
    "fp8": (E4M3, E5M2, E4M3),
    "int8": (S8, BF16, BF16),
    "int8_full": (S8, S8, S8),
}
HAS = ("fp32", *_TYPES)  # that apply can run on a card
_DTYPES = {F32: torch.float32, BF16: torch.bfloat16, F16: torch.float16, S8: torch.int8}  # 8-bit floats: uint8
_ALIGNMENT = 64  # of the operands of a product; casts want less
_X, _W, _G = 1, 2, 3


@contextlib.contextmanager
def _on_gpu_of(x: Tensor) -> Iterator[Tuple[int, int]]:
    """Makes x's GPU the current one; gives its index, and PyTorch's current stream there."""
    with torch.cuda.device(x.device):
        yield x.device.index, torch.cuda.current_stream().cuda_stream


class _Operand(NamedTuple):
    """Numbers as a product reads them: codes represent scale·code."""

    codes: Tensor
    kind: int
    scale: Optional[Tensor] = None


class _Gpu:
    """The C library's handle for one GPU. Kept until the process ends: its driver may end before Python."""

    _opened: Dict[int, "_Gpu"] = {}
    _lock = threading.Lock()

    def __init__(self, index: int) -> None:
        bind = _library.bind
        self._quantise = bind("tandem_cuda_kernels", "tandem_cuda_kernels_quantise")
        self._dequantise = bind("tandem_cuda_kernels", "tandem_cuda_kernels_dequantise")
        self._cast = bind("tandem_cuda_kernels", "tandem_cuda_kernels_cast")
        self._run = bind("tandem_cuda_kernels", "tandem_cuda_products_run")
        self._products = c_void_p()
        bind("tandem_cuda_kernels", "tandem_cuda_products_open")(byref(self._products), c_int(index))

    @classmethod
    def of(cls, index: int) -> "_Gpu":
        with cls._lock:
            if index not in cls._opened:
                cls._opened[index] = cls(index)
            return cls._opened[index]

    def narrow(self, x: Tensor, kind: int, rounding: Rounding, stream: int) -> _Operand:
        """float32 in another type; int8 is rounded at random."""
        x = x.detach().contiguous()
        x = x if x.data_ptr() % _ALIGNMENT == 0 else x.clone()
        if kind == F32:
            return _Operand(x, F32)
        codes = torch.empty(x.shape, dtype=_DTYPES.get(kind, torch.uint8), device=x.device)
        if kind in (BF16, F16):
            place, n = c_void_p(codes.data_ptr()), c_int64(x.numel())
            self._cast(place, c_int(kind), c_void_p(x.data_ptr()), c_int(F32), n, c_void_p(stream))
            return _Operand(codes, kind)
        words = torch.empty(3, device=x.device)  # the scale, and what one call of quantise needs
        call = CudaQuantiseCall(x=x.data_ptr(), from_=F32, rows=1, columns=x.numel(), q=codes.data_ptr(), to=kind)
        call.scale_mode, call.rounding = SCALE_TENSOR, ctypes.pointer(rounding)
        call.scale, call.workspace = words.data_ptr(), words.data_ptr() + ctypes.sizeof(c_float)
        self._quantise(byref(call), c_void_p(stream))
        return _Operand(codes, kind, words)

    def widen(self, x: _Operand, kind: int, stream: int) -> _Operand:
        """Codes as numbers of a wider type."""
        if x.kind == kind:
            return x
        wide = torch.empty(x.codes.shape, dtype=_DTYPES[kind], device=x.codes.device)
        call = CudaDequantiseCall(x.codes.data_ptr(), x.kind, 1, wide.numel(), wide.data_ptr(), kind, SCALE_TENSOR)
        call.scale = x.scale.data_ptr()
        self._dequantise(byref(call), c_void_p(stream))
        return _Operand(wide, kind)

    def multiply(
        self,
        c: Tensor,
        sizes: Tuple[int, int, int, int],
        a: _Operand,
        b: _Operand,
        transposed: Tuple[bool, bool],
        stream: int,
    ) -> Tensor:
        """c, float32, = a·b; `sizes` batch, m, n, k. Sums of int8 that int32 may not hold are cut, where rows
        of both operands are summed."""
        batch, m, n, k = sizes
        call = CudaProductCall(*sizes, a.codes.data_ptr(), b.codes.data_ptr(), a.kind, b.kind, *transposed)
        call.a_scale, call.b_scale = (None if one.scale is None else one.scale.data_ptr() for one in (a, b))
        call.c, call.c_type, call.tf32 = c.data_ptr(), F32, a.kind == F32
        is_cut = a.kind == S8 and k > MAX_K and batch == 1 and transposed == (True, False)
        for first in range(0, k, MAX_K) if is_cut else [0]:
            call.k = min(MAX_K, k - first) if is_cut else k
            call.a, call.b = a.codes.data_ptr() + first * m, b.codes.data_ptr() + first * n
            call.accumulate = first > 0
            self._run(self._products, byref(call), c_void_p(stream))
        return c


def _rounding(rounds: Rounds, step: int, purpose: int) -> Rounding:
    stream = [word & 0xFFFFFFFF for word in (step, *rounds.stream(purpose)[1:])]
    return Rounding(rounds.seed & (1 << 64) - 1, (ctypes.c_uint32 * 3)(*stream), 0)


class _Multiply(torch.autograd.Function):
    """a·b, float32, of CUDA tensors in a precision: a (…, m, k); b (…, k, n) with the same leading dimensions, or
    a matrix (k, n) for all rows of a; with `turned` b is stored (…, n, k)."""

    @staticmethod
    def forward(ctx, a, b, turned, precision, rounds):  # type: ignore[override]
        ctx.turned, ctx.types, ctx.rounds, ctx.step = turned, _TYPES[precision], rounds, rounds.step
        batch = b.shape[:-2].numel()
        n, k = (b.shape[-2], b.shape[-1]) if turned else (b.shape[-1], b.shape[-2])
        ctx.sizes, ctx.shapes = (batch, a.numel() // k // batch, n, k), (a.shape, b.shape)
        with _on_gpu_of(a) as (index, stream):
            gpu = _Gpu.of(index)
            x = gpu.narrow(a, ctx.types[0], _rounding(rounds, ctx.step, _X), stream)
            w = gpu.narrow(b, ctx.types[0], _rounding(rounds, ctx.step, _W), stream)
            y = torch.empty((*a.shape[:-1], n), device=a.device)
            gpu.multiply(y, ctx.sizes, x, w, (False, turned), stream)
        keeps_b = ctx.types[0] == ctx.types[2]  # else the backward pass casts b itself
        ctx.kinds = (x.kind, w.kind if keeps_b else F32)
        ctx.save_for_backward(x.codes, x.scale, w.codes if keeps_b else b, w.scale if keeps_b else None)
        return y

    @staticmethod
    def backward(ctx, g):  # type: ignore[override]
        with torch.no_grad():
            found = _gradients(ctx, g)
        if torch.is_grad_enabled():
            found = refuse_second(ctx.rounds.name, found)
        return (*found, None, None, None)


def _gradients(ctx: Any, g: Tensor) -> Tuple[Optional[Tensor], Optional[Tensor]]:
    """Those that are wanted of a and b."""
    (batch, m, n, k), (_, of_g, other) = ctx.sizes, ctx.types
    x_codes, x_scale, w_codes, w_scale = ctx.saved_tensors
    x, w = _Operand(x_codes, ctx.kinds[0], x_scale), _Operand(w_codes, ctx.kinds[1], w_scale)
    ga = gb = None
    with _on_gpu_of(g) as (index, stream):
        gpu = _Gpu.of(index)
        g = gpu.narrow(g, of_g, _rounding(ctx.rounds, ctx.step, _G), stream)
        if ctx.needs_input_grad[0]:
            if w.kind != other:
                w = gpu.narrow(w.codes, other, Rounding(), stream)
            ga = torch.empty(ctx.shapes[0], device=g.codes.device)
            gpu.multiply(ga, (batch, m, k, n), g, w, (False, not ctx.turned), stream)
        if ctx.needs_input_grad[1]:
            x = gpu.widen(x, other, stream)
            gb = torch.empty(ctx.shapes[1], device=g.codes.device)
            if ctx.turned:
                gpu.multiply(gb, (batch, n, k, m), g, x, (True, False), stream)
            else:
                gpu.multiply(gb, (batch, k, n, m), x, g, (True, False), stream)
    return ga, gb


def _convolve(product: Product, precision: str, rounds: Rounds) -> Tensor:
    """A convolution as a product of windows, channels last."""
    (images, _, height, width), out = product.x.shape, product.w.shape[0]
    size = [(side + 2 * product.pad - product.kernel) // product.stride + 1 for side in (height, width)]
    windows = F.unfold(product.x, product.kernel, padding=product.pad, stride=product.stride).transpose(1, 2)
    y = _Multiply.apply(windows, product.w.reshape(out, -1), True, precision, rounds)
    if product.bias is not None:
        y = y + product.bias
    return y.view(images, *size, out).permute(0, 3, 1, 2)


def run_product(product: Product, precision: str, rounds: Rounds) -> Tensor:
    """A product of CUDA tensors in a precision that is not fp32."""
    if product.kind == "conv2d":
        return _convolve(product, precision, rounds)
    turned = product.kind == "linear" and not product.turned
    y = _Multiply.apply(product.x, product.w, turned, precision, rounds)
    more = product.bias if product.kind == "linear" else product.addend
    return y if more is None else y + more
