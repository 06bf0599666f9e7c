"""Convolutions in bf16 by oneDNN, as products of windows, and by Winograd's algorithm in f32: ms of each pass of
layers of ResNets.

usage: windows.py [BATCH]     one thread; libraries in build/; a CPU with AVX-512 BF16

`rows` are windows for each channel of the result: python/tandem/_kernels.py multiplies windows up to
MANY_ROWS of them, and for the weight's gradient up to MANY_WEIGHT_ROWS; where the CPU has no AMX, Winograd's
algorithm comes first. -: it takes no such layer.
"""

import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import torch

from tandem import _kernels
from tandem._kernels import Convolution, Kernels, convolve_back, convolve_narrow
from tandem._memory import keep_freed_memory

torch.set_num_threads(1)
keep_freed_memory()
kernels, batch = Kernels(), int(sys.argv[1]) if len(sys.argv) > 1 else 8
NEVER, ALWAYS = 1 << 40, 1
WAYS = {"oneDNN": (0, NEVER), "windows": (1 << 40, NEVER), "Winograd": (0, ALWAYS)}  # limit of rows, tiles
_kernels.has_fast_bf16 = lambda: True
_kernels.has_bf16_tiles = lambda: False  # which would leave no layer to Winograd's algorithm


def median_ms(run):
    times = []
    for _ in range(12):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times[2:])


print(f"{'layer':<26} {'rows':>5}", *(f"{pass_ + ', ' + how:>17}" for pass_ in ("forward", "dgrad", "wgrad")
                                      for how in WAYS))  # fmt: skip
for size, c, out, stride in (
    (24, 64, 64, 1), (24, 64, 128, 2), (12, 128, 128, 1), (12, 128, 256, 2), (6, 256, 256, 1),
    (6, 256, 512, 2), (3, 512, 512, 1),
):  # fmt: skip
    of = Convolution(3, stride, 1)
    x, w = torch.randn(batch, size, size, c).bfloat16(), torch.randn(out, 9 * c).bfloat16()
    g = torch.randn(batch, of.size(size), of.size(size), out).bfloat16()
    row = []
    for run in (
        lambda: convolve_narrow(kernels, of, x, w),
        lambda: convolve_back(kernels, of, g, x, w, (True, False)),
        lambda: convolve_back(kernels, of, g, x, w, (False, True)),
    ):
        for how, (limit, tiles) in WAYS.items():
            _kernels.MANY_ROWS = _kernels.MANY_WEIGHT_ROWS = limit
            _kernels.WINOGRAD_TILES = tiles
            is_there = how != "Winograd" or stride == 1 and kernels.takes_conv3x3(batch, size, size, c, out)
            row.append(f"{median_ms(run):>17.3f}" if is_there else f"{'-':>17}")
    print(f"{size}x{size}, {c} -> {out}, stride {stride}".ljust(26), f"{g[..., 0].numel() / out:>5.1f}", *row)
