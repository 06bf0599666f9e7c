"""Products of CPU tensors in int8 and bf16.

int8: rounded, multiplied and summed by libtandem_kernels (include/tandem/kernels.h), exactly as tandem's
executor does. bf16: cast by libtandem_kernels, multiplied by PyTorch's oneDNN. Convolutions keep activations
and weights in channels_last: oneDNN would otherwise copy both, to and fro, in every call. """

from __future__ import annotations

import ctypes
import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char_p, c_int64, c_size_t, c_void_p
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

import torch

from tandem import _library
from tandem._structs import (
    BF16,
    F32,
    SCALE_TENSOR,
    CastCall,
    DequantiseCall,
    ProductS8,
    QuantiseCall,
    Rounding,
    WindowsCall,
)

Tensor = torch.Tensor

MAX_K = 1 << 17  # TANDEM_PRODUCT_MAX_K
COLUMN_BYTES = 1 << 20  # windows of as many images are unfolded together
THREADED_WORK = 1 << 25  # multiplications from which a product is worth several threads
# So many windows for each channel of the result make a product of windows, in bf16, as slow as oneDNN's
# convolution (bench/torch/windows.py); its gradient of a weight is slower than both other passes.
MANY_ROWS, MANY_WEIGHT_ROWS = 1, 10
SMALL_PRODUCT = 1 << 14  # multiplications; PyTorch sums fewer than about 4096 in bf16

# What of PyTorch's own settings holds our kernels to an older instruction set, too.
_ISA_BY_SETTING = {
    "SSE41": "sse41",
    "AVX": "avx",
    "AVX2": "avx2",
    "AVX2_VNNI": "avx2_vnni",
    "AVX512_CORE": "avx512",
    "AVX512_CORE_VNNI": "avx512_vnni",
    "AVX512_CORE_BF16": "avx512_bf16",
}


def _isa_setting() -> str:
    return os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "")).upper()


def isa_wanted() -> str:
    """The instruction set of our kernels: ONEDNN_MAX_CPU_ISA, which holds PyTorch's, or the best one."""
    return _ISA_BY_SETTING.get(_isa_setting(), "best")


@functools.lru_cache(maxsize=None)
def has_fast_bf16() -> bool:
    """Whether this CPU multiplies bf16 itself, and PyTorch is not held to an older instruction set."""
    setting = _isa_setting()
    if setting and not any(new in setting for new in ("BF16", "FP16", "AMX", "DEFAULT", "ALL")):
        return False
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return "avx512_bf16" in file.read()
    except OSError:
        return False


def _is_dense(x: Tensor) -> bool:
    """Whether the elements lie side by side, in one of PyTorch's two orders."""
    return x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))


class _OfThread(threading.local):
    """What a thread uses again in every call: making it would take as long as many a kernel."""

    def __init__(self) -> None:
        self.scale, self.rounding = ctypes.c_float(), Rounding()
        self.quantise = QuantiseCall(
            from_=F32,
            rows=1,  # short rows would each begin a block of random numbers
            scale_mode=SCALE_TENSOR,
            rounding=ctypes.pointer(self.rounding),
            scale=ctypes.addressof(self.scale),
        )
        self.product = ProductS8(c_type=F32)
        self.room = torch.empty(0, dtype=torch.uint8)

    def workspace(self, size: int) -> int:
        """The address of a workspace of `size` bytes and more."""
        if self.room.numel() < size + 64:
            self.room = torch.empty(size + 64, dtype=torch.uint8)
        return self.room.data_ptr() + -self.room.data_ptr() % 64


class Kernels:
    """The kernels of one instruction set, and the workspaces of this process's threads."""

    _pools: Dict[Tuple[int, int], ThreadPoolExecutor] = {}
    _of_thread = _OfThread()

    def __init__(self, isa: Optional[str] = None) -> None:
        library = _library.load("tandem_kernels")
        self._table = c_void_p()
        open_set = _library.bind("tandem_kernels", "tandem_kernels_open")
        try:
            open_set(byref(self._table), c_char_p((isa or isa_wanted()).encode()))
        except _library.MissingError:
            if isa:
                raise
            open_set(byref(self._table), c_char_p(b"best"))  # the setting names a newer one than is here
        workspace_of = library.tandem_kernels_product_workspace
        workspace_of.restype, workspace_of.argtypes = c_size_t, [c_void_p] + [c_int64] * 3
        self._workspace_of = functools.lru_cache(maxsize=4096)(functools.partial(workspace_of, self._table))
        self._quantise = _library.bind("tandem_kernels", "tandem_kernels_quantise")
        self._products = _library.bind("tandem_kernels", "tandem_kernels_products")
        self._column_sums = _library.bind("tandem_kernels", "tandem_kernels_column_sums")
        self._cast = _library.bind("tandem_kernels", "tandem_kernels_cast")
        self._dequantise = _library.bind("tandem_kernels", "tandem_kernels_dequantise")
        self._windows = _library.bind("tandem_kernels", "tandem_kernels_windows")

    @property
    def isa(self) -> str:
        return _library.text_function("tandem_kernels", "tandem_kernels_isa", self._table)

    def quantise(self, x: Tensor, stream: Tuple[int, int, int], seed: int) -> Tuple[Tensor, float]:
        """x, f32, as int8 of its shape, rounded at random, and the scale. In the order of x's memory, where its
        elements lie side by side: a transposed x costs no copy."""
        q = torch.empty_like(x, dtype=torch.int8)
        if q.stride() != x.stride():
            x = x.contiguous()
            q = torch.empty_like(x, dtype=torch.int8)
        mine = self._of_thread
        rounding, call = mine.rounding, mine.quantise
        rounding.seed = seed & (1 << 64) - 1
        rounding.stream[:] = [word & 0xFFFFFFFF for word in stream]
        call.x, call.columns, call.q = x.data_ptr(), x.numel(), q.data_ptr()
        self._quantise(self._table, byref(call))
        return q, mine.scale.value

    def column_sums(self, x: Tensor) -> Tensor:
        """The sums of contiguous f32 over all dimensions but the last."""
        columns = x.shape[-1]
        sums = torch.empty(columns)
        rows = c_int64(x.numel() // columns if columns else 0)
        self._column_sums(self._table, c_void_p(sums.data_ptr()), c_void_p(x.data_ptr()), rows, c_int64(columns))
        return sums

    def cast(self, x: Tensor, y: Optional[Tensor] = None) -> Tensor:
        """f32 as bf16, or bf16 as f32, in the same memory format; or into y, in the order of x's elements."""
        x = x.detach()
        if not _is_dense(x):
            x = x.contiguous()
        is_narrow = x.dtype == torch.bfloat16
        if y is None:
            y = torch.empty_like(x, dtype=torch.float32 if is_narrow else torch.bfloat16)
        from_, to = (BF16, F32) if is_narrow else (F32, BF16)
        call = CastCall(x.data_ptr(), from_, 1, x.numel(), 0, y.data_ptr(), to, 0)
        self._cast(self._table, byref(call))
        return y

    def dequantise(self, q: Tensor, scale: float, to: torch.dtype) -> Tensor:
        """scale·q of contiguous int8, in f32 or bf16."""
        x, given = torch.empty_like(q, dtype=to), ctypes.c_float(scale)
        call = DequantiseCall(
            q=q.data_ptr(),
            rows=1,
            columns=q.numel(),
            x=x.data_ptr(),
            to=BF16 if to == torch.bfloat16 else F32,
            scale_mode=SCALE_TENSOR,
            scale=ctypes.addressof(given),
        )
        self._dequantise(self._table, byref(call))
        return x

    def product(
        self,
        c: Tensor,
        a: Tensor,
        a_strides: Tuple[int, int],
        b: Tensor,
        b_strides: Tuple[int, int],
        sizes: Tuple[int, int, int],
        scale: float,
        bias: Optional[Tensor] = None,
        accumulate: bool = False,
        batch: int = 1,
    ) -> None:
        """c (m, n), f32, = a·b + bias, or c += a·b; `sizes` m, n, k; strides in elements. Long sums are cut.
        With `batch`, so many products of operands that follow each other."""
        m, n, k = sizes
        if m == 0 or n == 0 or batch == 0:
            return
        if k == 0:
            if not accumulate:
                c.fill_(0.0) if bias is None else c.copy_(bias.expand(m, n))
            return
        places = (a.data_ptr(), b.data_ptr(), c.data_ptr(), bias.data_ptr() if bias is not None else None)
        strides = (*a_strides, *b_strides)
        threads = torch.get_num_threads()
        if threads == 1 or batch * m * n * k < THREADED_WORK:
            self._run_product(places, strides, sizes, scale, accumulate, (0, m), (0, batch))
            return
        parts = min(threads, (m + 15) // 16) if batch == 1 else 1
        step, share = -(-m // parts), -(-batch // min(threads, batch))
        jobs = [
            ((row, min(step, m - row)), (first, min(share, batch - first)))
            for row in range(0, m, step)
            for first in range(0, batch, share)
        ]
        run = functools.partial(self._run_product, places, strides, sizes, scale, accumulate)
        list(self._pool(threads).map(lambda job: run(*job), jobs))

    def _run_product(
        self,
        places: Tuple[int, int, int, Optional[int]],
        strides: Tuple[int, int, int, int],
        sizes: Tuple[int, int, int],
        scale: float,
        accumulate: bool,
        rows: Tuple[int, int],
        some: Tuple[int, int],
    ) -> None:
        """Some rows (first, count) of some products of a batch (first, count)."""
        a, b, c, bias = places
        m, n, k = sizes
        (row, count), (first, batch) = rows, some
        mine = self._of_thread
        call = mine.product  # made once a thread: a structure takes longer to make than to fill
        call.m, call.n, call.c_row, call.scale = count, n, n, scale
        call.a_row, call.a_column, call.b_row, call.b_column = strides
        call.c = c + 4 * (first * m + row) * n
        for begin in range(0, k, MAX_K):
            call.k = min(MAX_K, k - begin)
            call.a = a + first * m * k + row * strides[0] + begin * strides[1]
            call.b = b + first * k * n + begin * strides[2]
            call.bias = bias if begin == 0 else None
            call.accumulate = accumulate or begin > 0
            size = self._workspace_of(count, n, call.k)
            call.workspace = mine.workspace(size)
            self._products(self._table, byref(call), c_int64(batch), c_size_t(size))

    def windows(self, images: Tensor, kernel: int, stride: int, pad: int) -> Tensor:
        """The windows of contiguous images (n, h, w, c) of any type, one a row: they are copied as bytes."""
        n, h, w, c = images.shape
        height, width = (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1
        columns = torch.empty((n * height * width, kernel * kernel * c), dtype=images.dtype)
        pixel = c * images.element_size()
        call = WindowsCall(images.data_ptr(), n, h, w, pixel, kernel, stride, pad, columns.data_ptr())
        self._windows(self._table, byref(call))
        return columns

    @classmethod
    def _pool(cls, threads: int) -> ThreadPoolExecutor:
        """Threads of this process: a forked child makes its own."""
        key = (os.getpid(), threads)
        if key not in cls._pools:
            cls._pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="tandem")
        return cls._pools[key]

    def __deepcopy__(self, memo: Any) -> "Kernels":
        return self

    def __reduce__(self) -> Any:
        return Kernels, ()


# --- Windows of images ---


class Convolution:
    """A convolution's windows: square, with equal strides and padding."""

    def __init__(self, kernel: int, stride: int, pad: int) -> None:
        self.kernel, self.stride, self.pad = kernel, stride, pad

    def size(self, length: int) -> int:
        return (length + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def pointwise(self) -> bool:
        return self.kernel == 1 and self.pad == 0

    def by_windows(self, shape: Sequence[int], limit: int) -> bool:
        """Whether a result or gradient (n, height, width, out) in bf16 is best made by a product of windows.

        oneDNN's convolutions copy the weight; windows weigh at most `limit` times as much."""
        n, height, width, out = shape
        return self.pointwise or n * height * width <= limit * out

    def weight(self, rows: Tensor, c: int) -> Tensor:
        """A weight (out, kernel·kernel·c) as PyTorch has it, channels last."""
        return as_tensor(rows.view(-1, self.kernel, self.kernel, c))

    def columns(self, kernels: Kernels, images: Tensor, group: slice) -> Tensor:
        """The windows of some images (n, h, w, c), one a row."""
        some = images[group]
        if self.pointwise:  # contiguous images, with stride 1, are their own windows
            return some[:, :: self.stride, :: self.stride].contiguous()
        return kernels.windows(some, self.kernel, self.stride, self.pad)

    def groups(self, images: int, bytes_an_image: int) -> Iterator[slice]:
        """Images whose windows take about COLUMN_BYTES together."""
        step = images if self.pointwise else max(1, COLUMN_BYTES // max(1, bytes_an_image))
        return (slice(first, min(first + step, images)) for first in range(0, images, step))


def empty_images(shape: Tuple[int, int, int, int]) -> Tuple[Tensor, Tensor]:
    """A tensor (n, c, h, w) for images (n, h, w, c), and these."""
    n, h, w, c = shape
    images = torch.empty((n, c, h, w), memory_format=torch.channels_last)
    return images, images.permute(0, 2, 3, 1)


def convolve(
    kernels: Kernels, of: Convolution, qx: Tensor, qw: Tensor, scale: float, bias: Optional[Tensor]
) -> Tensor:
    """qx (n, h, w, c), qw (out, kernel·kernel·c): f32 (n, out, height, width), channels last."""
    n, h, w, _ = qx.shape
    height, width, out, k = of.size(h), of.size(w), qw.shape[0], qw.shape[1]
    result, y = empty_images((n, height, width, out))
    for group in of.groups(n, height * width * k):
        columns = of.columns(kernels, qx, group)
        kernels.product(y[group], columns, (k, 1), qw, (1, k), (columns.numel() // k, out, k), scale, bias)
    return result


def convolve_weight(kernels: Kernels, of: Convolution, qx: Tensor, qg: Tensor, scale: float) -> Tensor:
    """The weight's gradient (out, kernel·kernel·c) from qx (n, h, w, c) and qg (n, height, width, out)."""
    n, height, width, out = qg.shape
    k = of.kernel * of.kernel * qx.shape[3]
    total = torch.empty((out, k))
    # groups of at least as many bytes as the gradient, which every group reads and writes
    bytes_an_image = min(height * width * k, max(1, COLUMN_BYTES * height * width // (4 * out)))
    for group in of.groups(n, bytes_an_image):
        columns = of.columns(kernels, qx, group)
        sizes = (out, k, columns.numel() // k)
        kernels.product(total, qg[group], (1, out), columns, (k, 1), sizes, scale, accumulate=group.start > 0)
    return total


def convolve_input(
    kernels: Kernels, of: Convolution, qg: Tensor, qw: Tensor, shape: Tuple[int, int, int, int], scale: float
) -> Tensor:
    """The input's gradient (n, c, h, w), channels last, for `shape` (n, h, w, c), from qg (n, height, width,
    out) and qw (out, kernel·kernel·c)."""
    n, h, w, c = shape
    _, height, width, out = qg.shape
    k, s = of.kernel, of.stride
    result, gx = empty_images(shape)
    if of.pointwise:
        if s == 1:
            kernels.product(gx, qg, (out, 1), qw, (c, 1), (n * h * w, c, out), scale)
            return result
        g = torch.empty((n, height, width, c))
        kernels.product(g, qg, (out, 1), qw, (c, 1), (n * height * width, c, out), scale)
        result.zero_()
        gx[:, : (height - 1) * s + 1 : s, : (width - 1) * s + 1 : s] = g
        return result
    # A convolution of the gradient, zeros between its pixels, with the windows turned round.
    turned = qw.view(out * k * k, c).index_select(0, _turned_rows(out, k * k))
    before = k - 1 - of.pad
    if s == 1 and before < k:
        spread, back = qg, Convolution(k, 1, before)
    else:
        spread, back = torch.zeros((n, h + k - 1, w + k - 1, out), dtype=torch.int8), Convolution(k, 1, 0)
        spread[:, before : before + (height - 1) * s + 1 : s, before : before + (width - 1) * s + 1 : s] = qg
    depth = k * k * out
    for group in back.groups(n, h * w * depth):
        columns = kernels.windows(spread[group], k, 1, back.pad)
        sizes = (columns.numel() // depth, c, depth)
        kernels.product(gx[group], columns, (depth, 1), turned, (c, 1), sizes, scale)
    return result


def multiply(kernels: Kernels, a: Tensor, b: Tensor, y: Optional[Tensor] = None) -> Tensor:
    """a·b, f32, of matrices or stacks of them, both bf16 or both f32, summed in f32; into y if given."""
    if a.dtype == torch.bfloat16 and has_fast_bf16() and a.numel() * b.shape[-1] > SMALL_PRODUCT:
        return kernels.cast(torch.matmul(a, b), y)
    return torch.matmul(a.float(), b.float(), out=y)


def convolve_narrow(kernels: Kernels, of: Convolution, x: Tensor, w: Tensor) -> Tensor:
    """x (n, h, w, c) and w (out, kernel·kernel·c) in bf16: f32 (n, out, height, width), channels last."""
    n, h, width, c = x.shape
    result, y = empty_images((n, of.size(h), of.size(width), w.shape[0]))
    if not has_fast_bf16():
        return torch.conv2d(as_tensor(x.float()), of.weight(w.float(), c), None, of.stride, of.pad)
    if of.by_windows(y.shape, MANY_ROWS):
        columns = of.columns(kernels, x, slice(None)).view(-1, w.shape[1])
        multiply(kernels, columns, w.t(), y.view(-1, w.shape[0]))
        return result  # no view of another tensor: those may not be changed in place
    return kernels.cast(torch.conv2d(as_tensor(x), of.weight(w, c), None, of.stride, of.pad))


def convolve_back(
    kernels: Kernels, of: Convolution, g: Tensor, x: Tensor, w: Tensor, wants: Tuple[bool, bool]
) -> Tuple[Optional[Tensor], Optional[Tensor]]:
    """The gradients of the input and the weight that are wanted, f32 and channels last, from g (n, height,
    width, out), x (n, h, w, c) and w (out, kernel·kernel·c), all of them in bf16 or all in f32."""
    if not has_fast_bf16():
        g, x, w = g.float(), x.float(), w.float()
    rows, c = g.view(-1, g.shape[3]), x.shape[3]
    is_narrow = g.dtype == torch.bfloat16
    by_windows = [is_narrow and of.by_windows(g.shape, limit) for limit in (MANY_ROWS, MANY_WEIGHT_ROWS)]
    left = [want and not one for want, one in zip(wants, by_windows)]
    gx = gw = None
    if any(left):
        gx, gw, _ = torch.ops.aten.convolution_backward(
            as_tensor(g), as_tensor(x), of.weight(w, c), None, [of.stride] * 2, [of.pad] * 2, [1, 1], False,
            [0, 0], 1, [*left, False],
        )  # fmt: skip
        gx, gw = (kernels.cast(one) if one is not None and is_narrow else one for one in (gx, gw))
    if wants[0] and by_windows[0]:
        gx = as_tensor(_fold(of, multiply(kernels, rows, w).view(*g.shape[:3], -1), x.shape))
    if wants[1] and by_windows[1]:
        columns = of.columns(kernels, x, slice(None)).view(rows.shape[0], -1)
        gw = of.weight(multiply(kernels, rows.t(), columns), c)
    return gx, gw


def _fold(of: Convolution, windows: Tensor, shape: Sequence[int]) -> Tensor:
    """The sum of windows (n, height, width, kernel·kernel·c), where they lie in images (n, h, w, c)."""
    n, h, w, c = shape
    if of.pointwise and of.stride == 1:
        return windows
    _, height, width, _ = windows.shape
    images, s, p = torch.zeros((n, h + 2 * of.pad, w + 2 * of.pad, c)), of.stride, of.pad
    for tap in range(of.kernel * of.kernel):
        a, b = divmod(tap, of.kernel)
        here = images[:, a : a + (height - 1) * s + 1 : s, b : b + (width - 1) * s + 1 : s]
        here += windows[..., tap * c : (tap + 1) * c]
    return images[:, p : p + h, p : p + w].contiguous()


@functools.lru_cache(maxsize=None)
def _turned_rows(out: int, taps: int) -> Tensor:
    """Where the rows (tap, out), the last tap first, stand among rows (out, tap)."""
    return (torch.arange(out) * taps + torch.arange(taps - 1, -1, -1)[:, None]).reshape(-1)


def as_images(x: Tensor) -> Tensor:
    """(n, h, w, c), contiguous; of a tensor (n, c, h, w) in channels_last without a copy."""
    return x.permute(0, 2, 3, 1).contiguous()


def as_tensor(images: Tensor) -> Tensor:
    """(n, c, h, w) in channels_last, of images (n, h, w, c)."""
    return images.permute(0, 3, 1, 2)


def channels_last(weight: Tensor) -> Tensor:
    return weight.contiguous(memory_format=torch.channels_last)


# --- Operators with gradients ---


class Rounds:
    """The random numbers of one operator's casts: a stream of its own in every step, on every rank."""

    def __init__(self, index: int, rank: int, seed: int) -> None:
        self.index, self.rank, self.seed, self.step = index, rank, seed, 0

    def stream(self, purpose: int) -> Tuple[int, int, int]:
        return (self.step, self.index, purpose | self.rank << 8)


_X, _W, _G = 1, 2, 3


def _for_gradients(ctx: Any, g: Tensor, x: Tensor, w: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradient and the saved operands, as the products of a backward pass in bf16 or int8 take them.

    int8 has gradients in bf16 where the CPU multiplies it, as tandem's executor does, and in f32 elsewhere.
    """
    if ctx.precision == "bf16":
        return ctx.kernels.cast(g), x, w
    if has_fast_bf16():
        x = ctx.kernels.dequantise(x, ctx.scales[0], torch.bfloat16)
        return ctx.kernels.cast(g), x, ctx.kernels.cast(w)
    return g, ctx.kernels.dequantise(x, ctx.scales[0], torch.float32), w.detach()


class Linear(torch.autograd.Function):
    """y = x·wᵀ + bias in int8, int8_full or bf16; w is (n, k)."""

    @staticmethod
    def forward(ctx, x, w, bias, precision, kernels, rounds):  # type: ignore[override]
        k, n = x.shape[-1], w.shape[0]
        ctx.precision, ctx.kernels, ctx.rounds, ctx.shape, ctx.step = (
            precision,
            kernels,
            rounds,
            x.shape,
            rounds.step,
        )
        ctx.with_bias = bias is not None
        if precision == "bf16":
            x16, w16 = kernels.cast(x.detach().reshape(-1, k).contiguous()), kernels.cast(w)
            ctx.save_for_backward(x16, w16)
            y = torch.empty((*x.shape[:-1], n))
            multiply(kernels, x16, w16.t(), y.view(-1, n))
            if bias is not None:
                y += bias
        else:
            qx, sx = kernels.quantise(x.detach(), rounds.stream(_X), rounds.seed)
            qx = qx.reshape(-1, k)  # bytes: a copy of x itself would take four times as long
            qw, sw = kernels.quantise(w.detach().contiguous(), rounds.stream(_W), rounds.seed)
            y = torch.empty((*x.shape[:-1], n))
            bias = None if bias is None else bias.detach().contiguous()
            kernels.product(y, qx, (k, 1), qw, (1, k), (qx.shape[0], n, k), sx * sw, bias)
            # int8 reads the weight itself in its backward pass, int8_full its int8 copy
            ctx.save_for_backward(qx, qw if precision == "int8_full" else w)
            ctx.scales = (sx, sw)
        return y

    @staticmethod
    def backward(ctx, g):  # type: ignore[override]
        kernels, rounds = ctx.kernels, ctx.rounds
        x, w = ctx.saved_tensors
        n, k = w.shape
        rows = g.reshape(-1, n).contiguous()
        m = rows.shape[0]
        gx = gw = None
        if ctx.precision != "int8_full":
            g_in, x, w = _for_gradients(ctx, rows, x, w)
            gx = multiply(kernels, g_in, w) if ctx.needs_input_grad[0] else None
            gw = multiply(kernels, g_in.t(), x) if ctx.needs_input_grad[1] else None
        else:
            stream = (ctx.step, rounds.index, _G | rounds.rank << 8)
            qg, sg = kernels.quantise(rows, stream, rounds.seed)
            if ctx.needs_input_grad[0]:
                gx = torch.empty(ctx.shape)
                kernels.product(gx, qg, (n, 1), w, (k, 1), (m, k, n), sg * ctx.scales[1])
            if ctx.needs_input_grad[1]:
                gw = torch.empty((n, k))
                kernels.product(gw, qg, (1, n), x, (k, 1), (n, k, m), sg * ctx.scales[0])
        gb = kernels.column_sums(rows) if ctx.with_bias and ctx.needs_input_grad[2] else None
        return None if gx is None else gx.view(ctx.shape), gw, gb, None, None, None


class Conv2d(torch.autograd.Function):
    """A convolution in int8, int8_full or bf16; x (n, c, h, w), w (out, c, kernel, kernel), as PyTorch has
    them. The result is in channels_last, and so is the input's gradient."""

    @staticmethod
    def forward(ctx, x, w, bias, of, precision, kernels, rounds):  # type: ignore[override]
        ctx.of, ctx.precision, ctx.kernels, ctx.rounds, ctx.step = of, precision, kernels, rounds, rounds.step
        ctx.with_bias = bias is not None
        ctx.is_last = w.is_contiguous(memory_format=torch.channels_last)
        images, weight = as_images(x.detach()), as_images(w.detach()).view(w.shape[0], -1)
        if precision == "bf16":
            x16, w16 = kernels.cast(images), kernels.cast(weight)
            ctx.save_for_backward(x16, w16)
            y = convolve_narrow(kernels, of, x16, w16)
            return y if bias is None else y.add_(bias.view(1, -1, 1, 1))
        qx, sx = kernels.quantise(images, rounds.stream(_X), rounds.seed)
        qw, sw = kernels.quantise(weight, rounds.stream(_W), rounds.seed)
        y = convolve(kernels, of, qx, qw, sx * sw, None if bias is None else bias.detach().contiguous())
        ctx.save_for_backward(qx, qw if precision == "int8_full" else w)
        ctx.scales = (sx, sw)
        return y

    @staticmethod
    def backward(ctx, g):  # type: ignore[override]
        of, kernels, rounds = ctx.of, ctx.kernels, ctx.rounds
        x, w = ctx.saved_tensors
        rows = as_images(g)
        if ctx.precision != "int8_full":
            weight = w if ctx.precision == "bf16" else as_images(w.detach()).view(w.shape[0], -1)
            operands = _for_gradients(ctx, rows, x, weight)
            gx, gw = convolve_back(kernels, of, *operands, ctx.needs_input_grad[:2])
        else:
            gx = gw = None
            stream = (ctx.step, rounds.index, _G | rounds.rank << 8)
            qg, sg = kernels.quantise(rows, stream, rounds.seed)
            if ctx.needs_input_grad[0]:
                gx = convolve_input(kernels, of, qg, w, x.shape, sg * ctx.scales[1])
            if ctx.needs_input_grad[1]:
                gw = of.weight(convolve_weight(kernels, of, x, qg, sg * ctx.scales[0]), x.shape[3])
        if gw is not None and not ctx.is_last:
            gw = gw.contiguous()
        gb = kernels.column_sums(rows) if ctx.with_bias and ctx.needs_input_grad[2] else None
        return gx, gw, gb, None, None, None, None


class Matmul(torch.autograd.Function):
    """Products of two activations (…, m, k)·(…, k, n) of equal leading sizes, in int8, int8_full or bf16."""

    @staticmethod
    def forward(ctx, a, b, precision, kernels, rounds):  # type: ignore[override]
        ctx.precision, ctx.kernels, ctx.rounds, ctx.step = precision, kernels, rounds, rounds.step
        if precision == "bf16":
            a16, b16 = kernels.cast(a), kernels.cast(b)
            ctx.save_for_backward(a16, b16)
            return multiply(kernels, a16, b16)
        qa, sa = kernels.quantise(a.detach(), rounds.stream(_X), rounds.seed)
        qb, sb = kernels.quantise(b.detach(), rounds.stream(_W), rounds.seed)
        ctx.scales = (sa, sb)
        ctx.save_for_backward(qa, qb if precision == "int8_full" else b)
        return _batched(kernels, qa, qb, sa * sb)

    @staticmethod
    def backward(ctx, g):  # type: ignore[override]
        a, b = ctx.saved_tensors
        ga = gb = None
        if ctx.precision == "int8_full":
            rounds = ctx.rounds
            stream = (ctx.step, rounds.index, _G | rounds.rank << 8)
            qg, sg = ctx.kernels.quantise(g, stream, rounds.seed)
            if ctx.needs_input_grad[0]:
                ga = _batched(ctx.kernels, qg, b.transpose(-1, -2), sg * ctx.scales[1])
            if ctx.needs_input_grad[1]:
                gb = _batched(ctx.kernels, a.transpose(-1, -2), qg, sg * ctx.scales[0])
            return ga, gb, None, None, None
        g, a, b = _for_gradients(ctx, g, a, b)
        if ctx.needs_input_grad[0]:
            ga = multiply(ctx.kernels, g, b.transpose(-1, -2))
        if ctx.needs_input_grad[1]:
            gb = multiply(ctx.kernels, a.transpose(-1, -2), g)
        return ga, gb, None, None, None


def _packed(q: Tensor) -> Tuple[Tensor, Tuple[int, int]]:
    """Matrices (…, rows, columns) that follow each other without gaps, and their strides: q itself where it
    is, or is transposed; else a copy."""
    turned = q.transpose(-1, -2)
    if q.stride(-1) != 1 and turned.stride(-1) == 1:
        return turned.contiguous(), (1, turned.shape[-1])
    return q.contiguous(), (q.shape[-1], 1)


def _batched(kernels: Kernels, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """a·b of int8 (…, m, k) and (…, k, n), f32."""
    m, k, n = *a.shape[-2:], b.shape[-1]
    c = torch.empty((*a.shape[:-1], n))
    (a, a_strides), (b, b_strides) = _packed(a), _packed(b)
    kernels.product(c, a, a_strides, b, b_strides, (m, n, k), scale, batch=c.shape[:-2].numel())
    return c
