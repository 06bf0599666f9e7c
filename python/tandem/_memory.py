"""Keeps the memory that PyTorch frees in this process, and puts it into huge pages."""

from __future__ import annotations

import bisect
import ctypes
import functools
import os
from typing import Iterable, List, Tuple

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_… of malloc.h
_KEPT_BYTES = 1 << 30
_HEAP_BYTES, _HUGE_PAGE_BYTES = 512 << 20, 2 << 20  # half of what is kept: freeing more gives it back
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25  # of <linux/mman.h>


def _read_maps() -> List[Tuple[int, int, str]]:
    """First and end of each range of this process's private memory, and its name: "" for memory of no file."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            rows = [line.split(maxsplit=5) for line in maps]
    except OSError:
        return []
    found = []
    for place, access, _, _, inode, *name in rows:
        if access == "rw-p" and inode == "0":
            first, _, end = place.partition("-")
            found.append((int(first, 16), int(end, 16), name[0].strip() if name else ""))
    return found


def _advise_huge_pages(libc: ctypes.CDLL, first: int, end: int) -> None:
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    begin = -(-first // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    size = (end - begin) // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
    if size > 0 and libc.madvise(begin, size, _MADV_HUGEPAGE) == 0:
        libc.madvise(begin, size, _MADV_COLLAPSE)  # what is touched already; since Linux 6.1


def _ask_for_huge_pages(libc: ctypes.CDLL) -> None:
    """Lets Linux use huge pages for the heap, as far as it lies or grows by _HEAP_BYTES, as for the memory of
    tandem's executor: tensors span so many small pages that finding these takes a fifth of a converted call.

    What is not touched takes no memory. A Linux that refuses leaves small pages."""
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
    room = libc.malloc(_HEAP_BYTES)
    for first, end, name in _read_maps():
        if name == "[heap]":
            _advise_huge_pages(libc, first, end)
    libc.free(room)


@functools.lru_cache(maxsize=None)
def keep_freed_memory() -> bool:
    """Makes the C library keep freed memory, up to 1 GiB, and asks for huge pages; whether it will keep it.

    By default it gives large blocks back to the system, so that every step maps and clears the memory of its
    tensors again. Where the environment sets glibc's allocator (MALLOC_…, GLIBC_TUNABLES), that holds."""
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)  # glibc's
    thresholds = (_MMAP_THRESHOLD, _TRIM_THRESHOLD)
    if mallopt is None or not all(mallopt(one, _KEPT_BYTES) for one in thresholds):
        return False
    _ask_for_huge_pages(libc)
    return True


def use_huge_pages(addresses: Iterable[int]) -> None:
    """Lets Linux use huge pages where `addresses` lie outside the heap, as weights do that were made before
    freed memory was kept: every step reads them to round them, and writes them. They stay where they are."""
    if not keep_freed_memory():
        return
    places = sorted(addresses)
    for first, end, name in _read_maps():
        at = bisect.bisect_left(places, first)
        if name == "" and at < len(places) and places[at] < end:
            _advise_huge_pages(ctypes.CDLL(None), first, end)
