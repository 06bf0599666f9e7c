"""Products of CUDA tensors, cast and multiplied by libtandem_cuda_kernels (include/tandem/cuda_kernels.h).

Operands and gradients have the types that precision.def gives them; results are float32. int8 is rounded by
the random numbers of the CPU. Convolutions of floats are PyTorch's, of operands that are cast; those of one
byte, which it lacks, are products of windows that it unfolds.
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
_CONVOLVED = {"tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}  # by PyTorch
_ALIGNMENT = 64  # of the operands of a product; casts want less
_X, _W, _G = 1, 2, 3
_conv2d, _conv2d_backward = F.conv2d, torch.ops.aten.convolution_backward


@contextlib.contextmanager
def _on_gpu_of(x: Tensor) -> Iterator[Tuple[int, int]]:
    """Makes x's GPU the current one; gives its index, and PyTorch's current stream there."""
    with torch.cuda.device(x.device):
        yield x.device.index, torch.cuda.current_stream().cuda_stream


def _is_capturing() -> bool:
    """Whether what PyTorch's current stream is given becomes a CUDA graph."""
    return torch.backends.cuda.is_built() and torch.cuda.is_current_stream_capturing()


def _refuse_capture(precision: str, layer: str = "") -> None:
    """Before any call of the library, so that PyTorch's capture stays whole. The library takes memory, tries
    algorithms and waits for events of other calls, none of which a graph may hold."""
    if _is_capturing():
        raise _library.error(
            "USAGE",
            f"{layer}a product in {precision} cannot be captured in a CUDA graph: the stream is being captured, "
            "allowed is one that runs. Leave this layer out of the graph, or plan it in fp32",
        )


class _Operand(NamedTuple):
    """Numbers as a product reads them: codes represent scale·code."""

    codes: Tensor
    kind: int
    scale: Optional[Tensor] = None


class _Gpu:
    """The C library's handle for a stream of a GPU: calls with one handle share a workspace, and so take turns.
    Kept until the process ends: its driver may end before Python."""

    _opened: Dict[Tuple[int, int], "_Gpu"] = {}
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
    def of(cls, index: int, stream: int) -> "_Gpu":
        with cls._lock:
            if (index, stream) not in cls._opened:
                cls._opened[index, stream] = cls(index)
            return cls._opened[index, stream]

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
        _refuse_capture(precision)
        ctx.precision = precision
        ctx.turned, ctx.types, ctx.rounds, ctx.step = turned, _TYPES[precision], rounds, rounds.step
        batch = b.shape[:-2].numel()
        n, k = (b.shape[-2], b.shape[-1]) if turned else (b.shape[-1], b.shape[-2])
        ctx.sizes, ctx.shapes = (batch, a.numel() // k // batch, n, k), (a.shape, b.shape)
        with _on_gpu_of(a) as (index, stream):
            gpu = _Gpu.of(index, stream)
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
    _refuse_capture(ctx.precision, f"layer '{ctx.rounds.name}': the gradient of ")
    (batch, m, n, k), (_, of_g, other) = ctx.sizes, ctx.types
    x_codes, x_scale, w_codes, w_scale = ctx.saved_tensors
    x, w = _Operand(x_codes, ctx.kinds[0], x_scale), _Operand(w_codes, ctx.kinds[1], w_scale)
    ga = gb = None
    with _on_gpu_of(g) as (index, stream):
        gpu = _Gpu.of(index, stream)
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


class _Convolve(torch.autograd.Function):
    """A convolution of float32 CUDA tensors, by PyTorch's in the type of `_CONVOLVED`; the result is rounded to
    that type, as are the gradients. PyTorch reads float32 as tf32 unless torch.backends.cudnn.allow_tf32 is
    False."""

    @staticmethod
    def forward(ctx, x, w, stride, pad, precision, rounds):  # type: ignore[override]
        ctx.way, ctx.rounds, dtype = (stride, pad), rounds, _CONVOLVED[precision]
        x, w = x.to(dtype), w.to(dtype)
        ctx.save_for_backward(x, w)
        return _conv2d(x, w, None, stride, pad).float()

    @staticmethod
    def backward(ctx, g):  # type: ignore[override]
        x, w = ctx.saved_tensors
        stride, pad = ([one, one] for one in ctx.way)
        wanted = [*ctx.needs_input_grad[:2], False]
        with torch.no_grad():
            found = _conv2d_backward(
                g.to(x.dtype), x, w, None, stride, pad, [1, 1], False, [0, 0], 1, wanted
            )
            found = tuple(one.float() if is_wanted else None for one, is_wanted in zip(found[:2], wanted))
        if torch.is_grad_enabled():
            found = refuse_second(ctx.rounds.name, found)
        return (*found, None, None, None, None)


def _convolve(product: Product, precision: str, rounds: Rounds) -> Tensor:
    """A convolution; one of bytes as a product of windows, channels last."""
    bias = None if product.bias is None else product.bias.view(-1, 1, 1)
    if precision in _CONVOLVED:
        y = _Convolve.apply(product.x, product.w, product.stride, product.pad, precision, rounds)
        return y if bias is None else y + bias
    (images, _, height, width), out = product.x.shape, product.w.shape[0]
    size = [(side + 2 * product.pad - product.kernel) // product.stride + 1 for side in (height, width)]
    windows = F.unfold(product.x, product.kernel, padding=product.pad, stride=product.stride).transpose(1, 2)
    y = _Multiply.apply(windows, product.w.reshape(out, -1), True, precision, rounds)
    y = y.view(images, *size, out).permute(0, 3, 1, 2)
    return y if bias is None else y + bias


def run_product(product: Product, precision: str, rounds: Rounds) -> Tensor:
    """A product of CUDA tensors in a precision that is not fp32."""
    if product.kind == "conv2d":
        return _convolve(product, precision, rounds)
    turned = product.kind == "linear" and not product.turned
    y = _Multiply.apply(product.x, product.w, turned, precision, rounds)
    more = product.bias if product.kind == "linear" else product.addend
    return y if more is None else y + more
