"""Keeps the memory that PyTorch frees in this process."""

from __future__ import annotations

import ctypes
import functools
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_… of malloc.h
_KEPT_BYTES = 1 << 30


@functools.lru_cache(maxsize=None)
def keep_freed_memory() -> bool:
    """Tells the C library to keep what is freed, up to 1 GiB; whether it will.

    By default it gives large blocks back to the system, so that every step maps and clears the memory of its
    tensors anew. Where the environment sets glibc's allocator (MALLOC_…, GLIBC_TUNABLES), that holds."""
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    thresholds = (_MMAP_THRESHOLD, _TRIM_THRESHOLD)
    return mallopt is not None and all(mallopt(one, _KEPT_BYTES) for one in thresholds)
