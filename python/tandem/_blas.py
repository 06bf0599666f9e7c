"""Which BLAS PyTorch multiplies in; a warning where it is the slow reference."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import warnings
from typing import Optional

import torch  # noqa: F401  loads the library that is looked for


class _Symbol(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    ]


def blas_file() -> Optional[str]:
    """The library whose product PyTorch calls; None where it is built into PyTorch."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = {os.path.realpath(file) for file in re.findall(r"/\S+libtorch_cpu\S*", maps.read())}
    for file in loaded:
        product = getattr(ctypes.CDLL(file), "sgemm_", None)
        found = _Symbol()
        address = ctypes.cast(product, ctypes.c_void_p) if product else None
        if address and ctypes.CDLL(None).dladdr(address, ctypes.byref(found)):
            return os.path.realpath(os.fsdecode(found.file))
    return None


@functools.lru_cache(maxsize=None)
def warn_of_slow_blas() -> None:
    """Warns once in a process. Debian keeps the reference BLAS, of libblas3, in a folder `blas`."""
    try:
        file = blas_file()
    except OSError:
        return
    if file and re.search(r"/(blas|refblas)/libblas\.so", file):
        warnings.warn(
            f"tandem: PyTorch multiplies in the reference BLAS ({file}), some 30 times slower than "
            "OpenBLAS; apt-get install libopenblas0",
            stacklevel=3,
        )
