"""Products of CPU tensors in int8 and bf16.

int8: rounded, multiplied and summed by libtandem_kernels (include/tandem/kernels.h), exactly as tandem's
executor does. bf16: cast by libtandem_kernels, multiplied by it or by PyTorch's oneDNN. Convolutions keep activations
and weights in channels_last: oneDNN would otherwise copy both, to and fro, in every call. """

from __future__ import annotations

import ctypes
import functools
import os
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple, Type

import torch

from tandem import _library
from tandem._gradients import Conv2dRule, LinearRule, MatmulRule, differentiable, is_differentiated
from tandem._structs import (
    BF16,
    F32,
    S8,
    SCALE_TENSOR,
    CastCall,
    Conv2dS8,
    Conv3x3,
    DequantiseCall,
    LinearPass,
    ProductS8,
    QuantiseCall,
    Rounding,
    WindowsCall,
)

Tensor = torch.Tensor

MAX_K = 1 << 17  # TANDEM_PRODUCT_MAX_K
COLUMN_BYTES = 1 << 20  # windows of as many images are unfolded together
THREADED_WORK = 1 << 25  # multiplications from which several threads pay
# So many windows for each channel of the result make a product of windows, in bf16, as slow as oneDNN's
# convolution (bench/torch/windows.py); its gradient of a weight is slower than both other passes.
MANY_ROWS, MANY_WEIGHT_ROWS = 1, 10
SMALL_PRODUCT = 1 << 14  # multiplications; PyTorch sums fewer than about 4096 in bf16
WINOGRAD_TILES = 16  # of 4x4 results: with fewer, transforming a weight costs more than it saves

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
    """Whether PyTorch multiplies bf16 faster than f32 here, under its present settings.

    Intel's CPUs do by AMX alone: their dot products of bf16 have no more terms a cycle than f32, and oneDNN
    reorders operands for them. Others do with AVX-512 BF16."""
    setting, text = _isa_setting(), _cpu_text()
    with_dot = _allows_amx() or any(new in setting for new in ("BF16", "FP16"))
    return has_bf16_tiles() or with_dot and "avx512_bf16" in text and "GenuineIntel" not in text


@functools.lru_cache(maxsize=None)
def has_bf16_tiles() -> bool:
    """Whether PyTorch multiplies bf16 in AMX's tiles here, under its present settings."""
    return _allows_amx() and "amx_bf16" in _cpu_text()


def _allows_amx() -> bool:
    setting = _isa_setting()
    return not setting or any(new in setting for new in ("AMX", "DEFAULT", "ALL"))


def _cpu_text() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _room_like(x: Tensor, narrow: torch.dtype) -> Tuple[Tensor, Tensor]:
    """x as it lies, or a copy, and room for it in another type in the same order, without gaps."""
    q = torch.empty_like(x, dtype=narrow)
    if q.stride() != x.stride():
        x = x.contiguous()
        q = torch.empty_like(x, dtype=narrow)
    return x, q


_CODES = {
    ctypes.c_void_p: "P",
    ctypes.c_int64: "q",
    ctypes.c_uint64: "Q",
    ctypes.c_uint32: "I",
    ctypes.c_int: "i",
    ctypes.c_float: "f",
}


def _codes_of(kind: Any) -> str:
    """The members of a C type, as the module struct has them."""
    if issubclass(kind, ctypes.Structure):
        return "".join(_codes_of(of) for _, of, *_ in kind._fields_)
    return _codes_of(kind._type_) * kind._length_ if issubclass(kind, ctypes.Array) else _CODES[kind]


class _Filled:
    """A C structure whose members are written at once, in their order: one by one takes ten times as long."""

    def __init__(self, kind: Type[ctypes.Structure]) -> None:
        self.members = kind()
        self.reference = byref(self.members)
        self._form = struct.Struct(_codes_of(kind))

    def fill(self, *values: Any) -> None:
        self._form.pack_into(self.members, 0, *values)


Operand = Tuple[int, int, int, int, int, int, int, int, float]  # tandem_layer_operand, member by member
NO_OPERAND: Operand = (0, 0, 0, 0, 0, 0, 0, 0, 0.0)


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
        self.linear, self.conv2d, self.conv3x3 = _Filled(LinearPass), _Filled(Conv2dS8), _Filled(Conv3x3)
        self._room, self._place, self._size = torch.empty(0, dtype=torch.uint8), 0, -1

    def workspace(self, size: int) -> int:
        """The address of a workspace of `size` bytes and more."""
        if self._size < size:
            self._room, self._size = torch.empty(size + 64, dtype=torch.uint8), size
            self._place = self._room.data_ptr() + -self._room.data_ptr() % 64
        return self._place


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
        self._linear = _library.bind("tandem_kernels", "tandem_kernels_linear")
        self._conv2d = _library.bind("tandem_kernels", "tandem_kernels_conv2d_s8")
        linear_room = library.tandem_kernels_linear_workspace
        linear_room.restype, linear_room.argtypes = c_size_t, [c_void_p, c_int] + [c_int64] * 3
        self._linear_room = functools.lru_cache(maxsize=4096)(
            lambda *of: -(-linear_room(self._table, *of) // 64) * 64  # what follows it is aligned, too
        )
        conv2d_room = library.tandem_kernels_conv2d_s8_workspace
        conv2d_room.restype, conv2d_room.argtypes = c_size_t, [c_void_p, ctypes.POINTER(Conv2dS8)]
        self._conv2d_room = functools.lru_cache(maxsize=4096)(
            lambda *sizes: conv2d_room(self._table, byref(Conv2dS8(*sizes)))
        )
        self._has_bf16_passes: Optional[bool] = None
        self._conv3x3 = _library.bind("tandem_kernels", "tandem_kernels_conv3x3")
        conv3x3_room = library.tandem_kernels_conv3x3_workspace
        conv3x3_room.restype, conv3x3_room.argtypes = c_size_t, [c_void_p, ctypes.POINTER(Conv3x3)]
        self._conv3x3_room = functools.lru_cache(maxsize=4096)(
            lambda *sizes: conv3x3_room(self._table, byref(Conv3x3(*sizes)))
        )

    @property
    def isa(self) -> str:
        return _library.text_function("tandem_kernels", "tandem_kernels_isa", self._table)

    def quantise(
        self, x: Tensor, stream: Tuple[int, int, int], seed: int, q: Optional[Tensor] = None
    ) -> Tuple[Tensor, float]:
        """x, f32, as int8 of its shape, rounded at random, and the scale. In the order of x's memory, where its
        elements lie side by side: a transposed x costs no copy. Or a contiguous x into q."""
        if q is None:
            x, q = _room_like(x, torch.int8)
        mine = self._of_thread
        rounding, call = mine.rounding, mine.quantise
        rounding.seed = seed & (1 << 64) - 1
        rounding.stream[:] = [word & 0xFFFFFFFF for word in stream]
        call.x, call.columns, call.q = x.data_ptr(), x.numel(), q.data_ptr()
        self._quantise(self._table, byref(call))
        return q, mine.scale.value

    @staticmethod
    def is_threaded(work: int) -> bool:
        """Whether so many multiplications are divided among threads: then a pass takes several calls."""
        return work >= THREADED_WORK and torch.get_num_threads() > 1

    def passes_bf16(self, work: int) -> bool:
        """Whether `linear_pass` multiplies bf16, so many multiplications on one thread, as PyTorch would: its
        oneDNN narrows the results, which are then widened again. AMX's tiles are oneDNN's alone."""
        if self._has_bf16_passes is None:
            has_dot_products = self._linear_room(BF16, 16, 16, 16) > 0
            self._has_bf16_passes = has_dot_products and has_fast_bf16() and not has_bf16_tiles()
        return self._has_bf16_passes and not self.is_threaded(work)

    def linear_pass(
        self,
        to: int,
        sizes: Tuple[int, int, int],
        batch: Tuple[int, int],
        operands: Tuple[Operand, Operand, Operand],
        results: Tuple[int, int, int, int, int],
        random: Tuple[int, int, int],
        gb_transposed: bool = False,
    ) -> LinearPass:
        """A pass of a linear layer or matrix product in S8 or BF16, in one call; returns it with its scales.

        `operands`: a, b and the gradient of c, whose narrow copy is not kept: it lies after the workspace.
        `results`: addresses of c, bias, and the gradients of a, b and the bias, 0: none. `random`: seed, and
        the first words of the stream."""
        mine = self._of_thread
        room = self._linear_room(to, *sizes)
        a, b, g = operands
        place = mine.workspace(room + (2 * g[2] if to == BF16 else g[2]))
        g = (g[0], place + room, *g[2:])
        mine.linear.fill(to, *sizes, *batch, *a, *b, *g, *results, *random, gb_transposed, place, room)
        self._linear(self._table, mine.linear.reference)
        return mine.linear.members

    def conv2d_pass(
        self,
        sizes: Tuple[int, int, int, int, int, int, int, int],
        operands: Tuple[Operand, Operand, Operand],
        results: Tuple[int, int, int, int, int],
        random: Tuple[int, int, int],
    ) -> Conv2dS8:
        """A pass of a convolution in one call; returns it with its scales.

        `sizes`: images, height, width, channels, channels of the result, kernel, stride, pad. The rest as in
        `linear_pass`: x, w and the gradient of y; y, bias, and the gradients of x, w and the bias."""
        mine = self._of_thread
        room = self._conv2d_room(*sizes)
        x, w, g = operands
        place = mine.workspace(room + g[2])
        g = (g[0], place + room, *g[2:])
        mine.conv2d.fill(*sizes, *x, *w, *g, *results, *random, place, room)
        self._conv2d(self._table, mine.conv2d.reference)
        return mine.conv2d.members

    def takes_conv3x3(self, images: int, height: int, width: int, channels: int, out: int) -> bool:
        """Whether `conv3x3` takes a convolution with 3x3 windows, and its transforms pay, on one thread."""
        tiles = images * -(-height // 4) * -(-width // 4)
        return (
            tiles >= WINOGRAD_TILES
            and not self.is_threaded(9 * images * height * width * channels * out)
            and self._conv3x3_room(images, height, width, channels, out) > 0
        )

    def conv3x3(
        self, images: int, height: int, width: int, channels: int, out: int, tensors: Sequence[Optional[Tensor]]
    ) -> None:
        """A convolution with 3x3 windows, stride 1 and a border of 1, by Winograd's algorithm. `tensors`: x, w and
        the gradient of y, all in bf16 or all in f32; y and the gradients of x and w, f32. None: not wanted."""
        mine = self._of_thread
        sizes = (images, height, width, channels, out)
        room = self._conv3x3_room(*sizes)
        is_narrow = any(one is not None and one.dtype == torch.bfloat16 for one in tensors[:3])
        mine.conv3x3.fill(*sizes, BF16 if is_narrow else F32, *map(_address, tensors), mine.workspace(room))
        self._conv3x3(self._table, mine.conv3x3.reference, c_size_t(room))

    def column_sums(self, x: Tensor) -> Tensor:
        """The sums of contiguous f32 over all dimensions but the last."""
        columns = x.shape[-1]
        sums = torch.empty(columns)
        rows = c_int64(x.numel() // columns if columns else 0)
        self._column_sums(self._table, c_void_p(sums.data_ptr()), c_void_p(x.data_ptr()), rows, c_int64(columns))
        return sums

    def cast(self, x: Tensor, y: Optional[Tensor] = None) -> Tensor:
        """f32 as bf16, or bf16 as f32, in the order of x's memory, where its elements lie side by side; or
        into y, in the order of x's elements."""
        x = x.detach()
        is_narrow = x.dtype == torch.bfloat16
        if y is not None:
            x = x.contiguous()
        else:
            x, y = _room_like(x, torch.float32 if is_narrow else torch.bfloat16)
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


def _by_winograd(kernels: Kernels, of: Convolution, images: Sequence[int], out: int) -> bool:
    """Whether our kernel runs a convolution of images (n, h, w, c) in bf16: in f32, with a quarter of the
    multiplications, it is faster than all of them in bf16 without AMX's tiles (bench/torch/windows.py)."""
    return (of.kernel, of.stride, of.pad) == (3, 1, 1) and not has_bf16_tiles() and kernels.takes_conv3x3(*images, out)


def convolve_narrow(kernels: Kernels, of: Convolution, x: Tensor, w: Tensor) -> Tensor:
    """x (n, h, w, c) and w (out, kernel·kernel·c) in bf16: f32 (n, out, height, width), channels last."""
    n, h, width, c = x.shape
    result, y = empty_images((n, of.size(h), of.size(width), w.shape[0]))
    if _by_winograd(kernels, of, x.shape, w.shape[0]):
        kernels.conv3x3(*x.shape, w.shape[0], (x, w, None, y, None, None))
        return result
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
    if _by_winograd(kernels, of, x.shape, w.shape[0]):
        gx = empty_images(x.shape)[0] if wants[0] else None
        gw = torch.empty(w.shape) if wants[1] else None
        kernels.conv3x3(*x.shape, w.shape[0], (x, w, g, None, gx, gw))
        return gx, gw if gw is None else of.weight(gw, x.shape[3])
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
    """Where the rows (tap, out), the last tap first, are among rows (out, tap)."""
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
    """The random numbers of one operator's casts: a stream of its own in every step, on every rank.

    With the operator's name, and where the gradients of its operands go, for second derivatives."""

    __slots__ = ("index", "rank", "seed", "step", "name", "edges")

    def __init__(self, index: int, rank: int, seed: int, step: int = 0, name: str = "") -> None:
        self.index, self.rank, self.seed, self.step, self.name = index, rank, seed, step, name
        self.edges: Optional[Tuple[Any, Any]] = None

    def stream(self, purpose: int) -> Tuple[int, int, int]:
        return (self.step, self.index, purpose | self.rank << 8)

    def random(self, step: int) -> Tuple[int, int, int]:
        """What all casts of a pass share: the seed, and the first words of their streams."""
        return self.seed & (1 << 64) - 1, step & 0xFFFFFFFF, self.index & 0xFFFFFFFF

    def word(self, purpose: int) -> int:
        """The last word of a cast's stream."""
        return (purpose | self.rank << 8) & 0xFFFFFFFF


_X, _W, _G = 1, 2, 3
_LINEAR, _MATMUL = LinearRule(), MatmulRule()


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


def _address(x: Optional[Tensor]) -> int:
    return 0 if x is None else x.data_ptr()


def _rows_operand(x: int, q: Tensor, columns: int, word: int, scale: float = 0.0) -> Operand:
    """A matrix whose rows follow each other; x: where its numbers lie that are to be rounded, or 0."""
    return x, q.data_ptr(), q.numel(), columns, 1, 0, 0, word, scale


class Linear(torch.autograd.Function):
    """y = x·wᵀ + bias in int8, int8_full or bf16; w is (n, k)."""

    @staticmethod
    def forward(ctx, x, w, bias, precision, kernels, rounds):  # type: ignore[override]
        in_one_call = precision == "int8_full" or (
            precision == "bf16" and kernels.passes_bf16(x.numel() * w.shape[0])
        )
        if in_one_call:
            y, codes, scales = _linear_forward(kernels, x, w, bias, rounds, _NARROW[precision])
            # one attribute: a context takes long to set and to ask
            ctx.in_one_call = kernels, rounds, rounds.step, x.shape, bias is not None, scales
            ctx.save_for_backward(codes)
            return y
        ctx.in_one_call, ctx.precision, ctx.kernels, ctx.rounds = None, precision, kernels, rounds
        ctx.shape, ctx.with_bias = x.shape, bias is not None
        k, n = x.shape[-1], w.shape[0]
        if precision == "bf16":
            x16, w16 = kernels.cast(x.detach().reshape(-1, k).contiguous()), kernels.cast(w)
            ctx.save_for_backward(x16, w16)
            y = torch.empty((*x.shape[:-1], n))
            multiply(kernels, x16, w16.t(), y.view(-1, n))
            if bias is not None:
                y += bias
            return y
        # int8 reads the weight itself in its backward pass
        y, qx, ctx.scales = _linear_forward(kernels, x, w, bias, rounds, torch.int8, keeps_weight=False)
        ctx.save_for_backward(qx.view(-1, k), w)
        return y

    @staticmethod
    def backward(ctx, g):  # type: ignore[override]
        saved, wants = ctx.saved_tensors, ctx.needs_input_grad
        if ctx.in_one_call:
            compute = functools.partial(_linear_backward, *ctx.in_one_call, saved[0], wants=wants)
        else:
            compute = functools.partial(_linear_backward_in_parts, ctx, *saved, wants)
        if not is_differentiated(g):
            return (*compute(g), None, None, None)
        if ctx.in_one_call:
            (_, rounds, _, shape, with_bias, scales), n = ctx.in_one_call, g.shape[-1]
            x, w = _widened(saved[0], (shape, (n, shape[-1])), scales)
        else:
            rounds, with_bias = ctx.rounds, ctx.with_bias
            x, w = _saved_as_float(ctx, *saved)
            x = x.view(ctx.shape)
        wants = (*wants[:2], wants[2] and with_bias)
        return (*differentiable(rounds, _LINEAR, g, x, w, wants, compute), None, None, None)


def _widened(codes: Tensor, shapes: Sequence[Sequence[int]], scales: Sequence[float]) -> Iterator[Tensor]:
    """The numbers that narrow copies represent, which lie one after the other."""
    first = 0
    for shape, scale in zip(shapes, scales):
        end = first + torch.Size(shape).numel()
        wide = codes[first:end].view(shape).float()
        yield wide if codes.dtype == torch.bfloat16 else wide.mul_(scale)
        first = end


def _saved_as_float(ctx: Any, x: Tensor, w: Tensor) -> Tuple[Tensor, Tensor]:
    """What a pass in several calls saved, in f32: of `int8`, the second operand is PyTorch's own."""
    if ctx.precision == "bf16":
        return x.float(), w.float()
    return x.float().mul_(ctx.scales[0]), w.detach()


def _linear_backward_in_parts(
    ctx: Any, x: Tensor, w: Tensor, wants: Sequence[bool], g: Tensor
) -> Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor]]:
    """The gradients that are wanted of x, w and the bias, product by product."""
    kernels = ctx.kernels
    rows = g.reshape(-1, w.shape[0]).contiguous()
    g_in, x, w = _for_gradients(ctx, rows, x, w)
    gx = multiply(kernels, g_in, w).view(ctx.shape) if wants[0] else None
    gw = multiply(kernels, g_in.t(), x) if wants[1] else None
    gb = kernels.column_sums(rows) if ctx.with_bias and wants[2] else None
    return gx, gw, gb


_NARROW = {"int8": torch.int8, "int8_full": torch.int8, "bf16": torch.bfloat16}


def _code(narrow: torch.dtype) -> int:
    return BF16 if narrow == torch.bfloat16 else S8


def _scales_of(done: LinearPass, narrow: torch.dtype) -> Tuple[float, float]:
    """Of a and b; bf16 has none."""
    return (0.0, 0.0) if narrow == torch.bfloat16 else (done.a.scale, done.b.scale)


def _linear_forward(
    kernels: Kernels,
    x: Tensor,
    w: Tensor,
    bias: Optional[Tensor],
    rounds: Rounds,
    narrow: torch.dtype,
    keeps_weight: bool = True,
) -> Tuple[Tensor, Tensor, Tuple[float, float]]:
    """y, the narrow copies of x, (m, k), and after it of w [if it is kept], and the scales of both."""
    n, k = w.shape
    m = x.numel() // k
    w, bias = w.contiguous(), None if bias is None else bias.contiguous()
    y = torch.empty((*x.shape[:-1], n))
    # one tensor: making one takes as long as a fifth of all that is done here in Python
    codes = torch.empty(m * k + n * k if keeps_weight else m * k, dtype=narrow)
    of_w = codes.data_ptr() + m * k * codes.element_size()
    if not keeps_weight:
        dropped = torch.empty(n * k, dtype=narrow)
        of_w = dropped.data_ptr()
    place, scale = x.data_ptr(), 0.0
    is_threaded = kernels.is_threaded(m * n * k)
    if not x.is_contiguous():
        if narrow == torch.int8:
            x, scale = kernels.quantise(x.detach(), rounds.stream(_X), rounds.seed)
        codes[: m * k].view(x.shape).copy_(x)  # to nearest in bf16, as the library casts
        place = 0
    if is_threaded:
        if place:
            _, scale = kernels.quantise(x, rounds.stream(_X), rounds.seed, codes)
        room = codes[m * k :] if keeps_weight else dropped
        qw, w_scale = kernels.quantise(w, rounds.stream(_W), rounds.seed, room)
        kernels.product(y, codes, (k, 1), qw, (1, k), (m, n, k), scale * w_scale, bias)
        return y, codes, (scale, w_scale)
    a = (place, codes.data_ptr(), m * k, k, 1, 0, 0, rounds.word(_X), scale)
    b = (w.data_ptr(), of_w, n * k, 1, k, 0, 0, rounds.word(_W), 0.0)
    results = (y.data_ptr(), _address(bias), 0, 0, 0)
    done = kernels.linear_pass(
        _code(narrow), (m, n, k), (1, 1), (a, b, NO_OPERAND), results, rounds.random(rounds.step)
    )
    return y, codes, _scales_of(done, narrow)


def _linear_backward(
    kernels: Kernels,
    rounds: Rounds,
    step: int,
    shape: torch.Size,
    with_bias: bool,
    scales: Tuple[float, float],
    codes: Tensor,
    g: Tensor,
    wants: Sequence[bool],
) -> Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor]]:
    """The gradients that are wanted of x of `shape`, w and the bias."""
    g = g.contiguous()
    (sx, sw), k, n = scales, shape[-1], g.shape[-1]
    m = shape.numel() // k
    gx = torch.empty(shape) if wants[0] else None
    gw = torch.empty((n, k)) if wants[1] else None
    gb = torch.empty(n) if wants[2] and with_bias else None
    if kernels.is_threaded(m * n * k):
        qg, sg = kernels.quantise(g, (step, rounds.index, _G | rounds.rank << 8), rounds.seed)
        if gx is not None:
            kernels.product(gx, qg, (n, 1), codes[m * k :], (k, 1), (m, k, n), sg * sw)
        if gw is not None:
            kernels.product(gw, qg, (1, n), codes, (k, 1), (n, k, m), sg * sx)
        if gb is not None:
            gb.copy_(kernels.column_sums(g))
        return gx, gw, gb
    place = codes.data_ptr()
    a = (0, place, m * k, k, 1, 0, 0, 0, sx)
    b = (0, place + m * k * codes.element_size(), n * k, 1, k, 0, 0, 0, sw)
    kernels.linear_pass(
        _code(codes.dtype),
        (m, n, k),
        (1, 1),
        (a, b, (g.data_ptr(), 0, m * n, n, 1, 0, 0, rounds.word(_G), 0.0)),
        (0, 0, _address(gx), _address(gw), _address(gb)),
        rounds.random(step),
        True,
    )
    return gx, gw, gb


class Conv2d(torch.autograd.Function):
    """A convolution in int8, int8_full or bf16; x (n, c, h, w), w (out, c, kernel, kernel), as PyTorch has
    them. The result is in channels_last, and so is the input's gradient."""

    @staticmethod
    def forward(ctx, x, w, bias, of, precision, kernels, rounds):  # type: ignore[override]
        ctx.of, ctx.precision, ctx.kernels, ctx.rounds, ctx.step = of, precision, kernels, rounds, rounds.step
        ctx.with_bias = bias is not None
        ctx.is_last = w.is_contiguous(memory_format=torch.channels_last)
        if precision == "bf16":
            images, weight = as_images(x.detach()), as_images(w.detach()).view(w.shape[0], -1)
            x16, w16 = kernels.cast(images), kernels.cast(weight)
            ctx.save_for_backward(x16, w16)
            y = convolve_narrow(kernels, of, x16, w16)
            return y if bias is None else y.add_(bias.view(1, -1, 1, 1))
        y, qx, qw, ctx.scales = _conv2d_forward(kernels, of, x, w, bias, rounds)
        ctx.save_for_backward(qx, qw if precision == "int8_full" else w)
        return y

    @staticmethod
    def backward(ctx, g):  # type: ignore[override]
        (x, w), wants = ctx.saved_tensors, ctx.needs_input_grad
        compute = functools.partial(_conv2d_gradients, ctx, x, w, wants)
        if not is_differentiated(g):
            return (*compute(g), None, None, None, None)
        of, (x, w) = ctx.of, _conv2d_saved(ctx, x, w)
        wants = (*wants[:2], wants[2] and ctx.with_bias)
        rule = Conv2dRule(of.stride, of.pad)
        return (*differentiable(ctx.rounds, rule, g, x, w, wants, compute), None, None, None, None)


def _conv2d_saved(ctx: Any, x: Tensor, w: Tensor) -> Tuple[Tensor, Tensor]:
    """The saved operands of a convolution as PyTorch has them, in f32."""
    x, c = as_tensor(x), x.shape[3]
    if ctx.precision == "int8_full":
        return x.float().mul_(ctx.scales[0]), ctx.of.weight(w.float().mul_(ctx.scales[1]), c)
    x, w = _saved_as_float(ctx, x, w)
    return x, ctx.of.weight(w, c) if ctx.precision == "bf16" else w


def _conv2d_gradients(
    ctx: Any, x: Tensor, w: Tensor, wants: Sequence[bool], g: Tensor
) -> Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor]]:
    """The gradients that are wanted of a convolution's operands and bias, from what it saved."""
    kernels, gb = ctx.kernels, None
    if ctx.precision == "int8_full":
        gb = torch.empty(w.shape[0]) if ctx.with_bias and wants[2] else None
        gx, gw = _conv2d_backward(ctx, g, x, w, gb)
    else:
        rows = as_images(g)
        weight = w if ctx.precision == "bf16" else as_images(w.detach()).view(w.shape[0], -1)
        operands = _for_gradients(ctx, rows, x, weight)
        gx, gw = convolve_back(kernels, ctx.of, *operands, wants[:2])
        gb = kernels.column_sums(rows) if ctx.with_bias and wants[2] else None
    if gw is not None and not ctx.is_last:
        gw = gw.contiguous()
    return gx, gw, gb


def _conv2d_forward(
    kernels: Kernels, of: Convolution, x: Tensor, w: Tensor, bias: Optional[Tensor], rounds: Rounds
) -> Tuple[Tensor, Tensor, Tensor, Tuple[float, float]]:
    """y, the int8 copies of x (n, h, w, c) and w (out, kernel·kernel·c), and their scales."""
    (n, c, height, width), out, k = x.shape, w.shape[0], of.kernel * of.kernel * x.shape[1]
    x, w = channels_last(x), channels_last(w)
    bias = None if bias is None else bias.contiguous()
    y_height, y_width = of.size(height), of.size(width)
    if kernels.is_threaded(n * y_height * y_width * out * k):
        qx, sx = kernels.quantise(as_images(x), rounds.stream(_X), rounds.seed)
        qw, sw = kernels.quantise(as_images(w).view(out, k), rounds.stream(_W), rounds.seed)
        return convolve(kernels, of, qx, qw, sx * sw, bias), qx, qw, (sx, sw)
    y = torch.empty((n, out, y_height, y_width), memory_format=torch.channels_last)
    qx, qw = torch.empty((n, height, width, c), dtype=torch.int8), torch.empty((out, k), dtype=torch.int8)
    done = kernels.conv2d_pass(
        (n, height, width, c, out, of.kernel, of.stride, of.pad),
        (
            _rows_operand(x.data_ptr(), qx, 0, rounds.word(_X)),
            _rows_operand(w.data_ptr(), qw, 0, rounds.word(_W)),
            NO_OPERAND,
        ),
        (y.data_ptr(), _address(bias), 0, 0, 0),
        rounds.random(rounds.step),
    )
    return y, qx, qw, (done.x.scale, done.w.scale)


def _conv2d_backward(
    ctx: Any, g: Tensor, qx: Tensor, qw: Tensor, gb: Optional[Tensor]
) -> Tuple[Optional[Tensor], Optional[Tensor]]:
    """The gradients that are wanted of x and w, channels last, and into gb that of the bias."""
    kernels, rounds, of, (sx, sw) = ctx.kernels, ctx.rounds, ctx.of, ctx.scales
    (n, height, width, c), (out, k) = qx.shape, qw.shape
    with_gx, with_gw = ctx.needs_input_grad[:2]
    g = channels_last(g)
    # where windows overlap, the sums of one call are exact as long as int32 holds them
    is_long = of.stride > 1 and of.kernel * of.kernel * out > MAX_K
    if is_long or kernels.is_threaded(g.numel() * k):
        rows = as_images(g)
        qg, sg = kernels.quantise(rows, (ctx.step, rounds.index, _G | rounds.rank << 8), rounds.seed)
        if gb is not None:
            gb.copy_(kernels.column_sums(rows))
        gx = convolve_input(kernels, of, qg, qw, qx.shape, sg * sw) if with_gx else None
        return gx, of.weight(convolve_weight(kernels, of, qx, qg, sg * sx), c) if with_gw else None
    gx = torch.empty((n, c, height, width), memory_format=torch.channels_last) if with_gx else None
    shape = (out, c, of.kernel, of.kernel)
    gw = torch.empty(shape, memory_format=torch.channels_last) if with_gw else None
    kernels.conv2d_pass(
        (n, height, width, c, out, of.kernel, of.stride, of.pad),
        (
            _rows_operand(0, qx, 0, 0, sx),
            _rows_operand(0, qw, 0, 0, sw),
            (g.data_ptr(), 0, g.numel(), 0, 0, 0, 0, rounds.word(_G), 0.0),
        ),
        (0, 0, _address(gx), _address(gw), _address(gb)),
        rounds.random(ctx.step),
    )
    return gx, gw


class Matmul(torch.autograd.Function):
    """Products of two activations (…, m, k)·(…, k, n) of equal leading sizes, in int8, int8_full or bf16."""

    @staticmethod
    def forward(ctx, a, b, precision, kernels, rounds):  # type: ignore[override]
        is_bf16 = precision == "bf16" and a.dim() <= 4 and kernels.passes_bf16(a.numel() * b.shape[-1])
        if is_bf16 or precision == "int8_full":
            c, codes, of_a, of_b, scales = _matmul_forward(kernels, a, b, rounds, _NARROW[precision])
            ctx.in_one_call = kernels, rounds, rounds.step, of_a, of_b, scales
            ctx.save_for_backward(codes)
            return c
        ctx.in_one_call, ctx.precision, ctx.kernels, ctx.rounds = None, precision, kernels, rounds
        if precision == "bf16":
            a16, b16 = kernels.cast(a), kernels.cast(b)
            ctx.save_for_backward(a16, b16)
            return multiply(kernels, a16, b16)
        c, codes, of_a, _, ctx.scales = _matmul_forward(kernels, a, b, rounds, torch.int8)
        ctx.save_for_backward(codes.as_strided(*of_a), b)
        return c

    @staticmethod
    def backward(ctx, g):  # type: ignore[override]
        saved, wants = ctx.saved_tensors, ctx.needs_input_grad
        if ctx.in_one_call:
            compute = functools.partial(_matmul_backward, *ctx.in_one_call, saved[0], wants=wants)
        else:
            compute = functools.partial(_matmul_backward_in_parts, ctx, *saved, wants)
        if not is_differentiated(g):
            return (*compute(g)[:2], None, None, None)
        if ctx.in_one_call:
            _, rounds, _, (shape, strides), of_b, scales = ctx.in_one_call
            codes, n = saved[0], shape.numel()
            a, b = codes.as_strided(shape, strides).float(), codes.as_strided(*of_b, n).float()
            if codes.dtype == torch.int8:
                a, b = a.mul_(scales[0]), b.mul_(scales[1])
        else:
            rounds, (a, b) = ctx.rounds, _saved_as_float(ctx, *saved)
        wants = (*wants[:2], False)
        return (*differentiable(rounds, _MATMUL, g, a, b, wants, compute)[:2], None, None, None)


def _matmul_backward_in_parts(
    ctx: Any, a: Tensor, b: Tensor, wants: Sequence[bool], g: Tensor
) -> Tuple[Optional[Tensor], Optional[Tensor], None]:
    """The gradients that are wanted of a and b, product by product."""
    g, a, b = _for_gradients(ctx, g, a, b)
    ga = multiply(ctx.kernels, g, b.transpose(-1, -2)) if wants[0] else None
    return ga, multiply(ctx.kernels, a.transpose(-1, -2), g) if wants[1] else None, None


_Layout = Tuple[torch.Size, Tuple[int, ...]]  # of a tensor: shape and strides


@functools.lru_cache(maxsize=4096)
def _lie_without_gaps(shape: torch.Size, strides: Tuple[int, ...]) -> bool:
    """Whether matrices fill their memory, in any order, and have their rows or columns side by side."""
    filled = 1
    for stride, size in sorted(zip(strides, shape)):
        if size > 1 and stride != filled:
            return False
        filled *= size
    return 1 in strides[-2:]


def _without_gaps(x: Tensor) -> Tuple[Tensor, _Layout]:
    """x as it lies, or a copy, and its layout."""
    layout = x.shape, x.stride()
    if _lie_without_gaps(*layout):
        return x, layout
    x = x.contiguous()
    return x, (x.shape, x.stride())


def _matrix_operand(x: int, q: int, layout: _Layout, word: int, scale: float = 0.0) -> Operand:
    """Matrices (…, rows, columns) in any order; x: where their numbers lie that are to be rounded, or 0."""
    shape, strides = layout
    step = (*strides[:-2], 0, 0)
    return x, q, shape.numel(), strides[-2], strides[-1], step[0], step[1], word, scale


def _matmul_forward(
    kernels: Kernels, a: Tensor, b: Tensor, rounds: Rounds, narrow: torch.dtype
) -> Tuple[Tensor, Tensor, _Layout, _Layout, Tuple[float, float]]:
    """c, the narrow copies of a and after it of b, their layouts and their scales."""
    m, k, n = *a.shape[-2:], b.shape[-1]
    batch = (*a.shape[:-2], 1, 1)[:2]
    (a, of_a), (b, of_b) = _without_gaps(a), _without_gaps(b)
    elements = a.numel()
    codes = torch.empty(elements + b.numel(), dtype=narrow)
    if kernels.is_threaded(batch[0] * batch[1] * m * n * k):
        _, sa = kernels.quantise(a, rounds.stream(_X), rounds.seed, codes)
        _, sb = kernels.quantise(b, rounds.stream(_W), rounds.seed, codes[elements:])
        qa, qb = codes.as_strided(*of_a), codes.as_strided(*of_b, elements)
        return _batched(kernels, qa, qb, sa * sb), codes, of_a, of_b, (sa, sb)
    c, place = torch.empty((*of_a[0][:-1], n)), codes.data_ptr()
    done = kernels.linear_pass(
        _code(narrow),
        (m, n, k),
        batch,
        (
            _matrix_operand(a.data_ptr(), place, of_a, rounds.word(_X)),
            _matrix_operand(b.data_ptr(), place + elements * codes.element_size(), of_b, rounds.word(_W)),
            NO_OPERAND,
        ),
        (c.data_ptr(), 0, 0, 0, 0),
        rounds.random(rounds.step),
    )
    return c, codes, of_a, of_b, _scales_of(done, narrow)


def _matmul_backward(
    kernels: Kernels,
    rounds: Rounds,
    step: int,
    of_a: _Layout,
    of_b: _Layout,
    scales: Tuple[float, float],
    codes: Tensor,
    g: Tensor,
    wants: Sequence[bool],
) -> Tuple[Optional[Tensor], Optional[Tensor], None]:
    """The gradients that are wanted of a and b."""
    (sa, sb), shape, (with_ga, with_gb) = scales, of_a[0], wants[:2]
    (m, k), n = shape[-2:], of_b[0][-1]
    batch, elements = (*shape[:-2], 1, 1)[:2], shape.numel()
    if kernels.is_threaded(batch[0] * batch[1] * m * n * k):
        qa, qb = codes.as_strided(*of_a), codes.as_strided(*of_b, elements)
        qg, sg = kernels.quantise(g, (step, rounds.index, _G | rounds.rank << 8), rounds.seed)
        ga = _batched(kernels, qg, qb.transpose(-1, -2), sg * sb) if with_ga else None
        return ga, _batched(kernels, qa.transpose(-1, -2), qg, sg * sa) if with_gb else None, None
    g, of_g = _without_gaps(g)
    ga, gb = torch.empty(shape) if with_ga else None, torch.empty(of_b[0]) if with_gb else None
    place = codes.data_ptr()
    kernels.linear_pass(
        _code(codes.dtype),
        (m, n, k),
        batch,
        (
            _matrix_operand(0, place, of_a, 0, sa),
            _matrix_operand(0, place + elements * codes.element_size(), of_b, 0, sb),
            _matrix_operand(g.data_ptr(), 0, of_g, rounds.word(_G)),  # its copy lies after the workspace
        ),
        (0, 0, _address(ga), _address(gb), 0),
        rounds.random(step),
    )
    return ga, gb, None


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
