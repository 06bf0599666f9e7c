"""Steps that the PyTorch profiler (Kineto) recorded, as `tandem whatif` reads them."""

from __future__ import annotations

import os
import statistics
from ctypes import byref, c_char_p, c_int
from dataclasses import dataclass
from typing import List, Sequence, Union

from tandem import _library
from tandem._structs import TorchSummary

Trace = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


@dataclass
class RecordedRank:
    """What a rank did in the steps of its trace; medians over them, in seconds."""

    rank: int
    steps: int  # that were recorded
    step: float
    compute: float
    exposed_comm: float  # communication while nothing computes
    idle: float
    wait: float  # for other ranks, where their traces are here, too


class _Summary(_library.Owned):
    def __init__(self) -> None:
        super().__init__("tandem", "tandem_torch_close")


def read_trace(trace: Trace) -> List[RecordedRank]:
    """The ranks of a job from files of torch.profiler's export_chrome_trace, one a rank; gzip is fine."""
    paths = [trace] if isinstance(trace, (str, os.PathLike)) else list(trace)
    if not paths:
        raise _library.error("USAGE", "no trace files; give one for each rank")
    names = (c_char_p * len(paths))(*(os.fspath(path).encode() for path in paths))
    summary = _Summary()
    _library.call("tandem", "tandem_torch_read", byref(summary.pointer), names, c_int(len(paths)))
    read = TorchSummary.from_address(summary.pointer.value)
    ranks = []
    for rank in read.rank[: read.n_rank]:
        steps = rank.step[: rank.n_step]
        median = {
            name: statistics.median(getattr(step, name) for step in steps) * 1e-9
            for name in ("duration_ns", "compute_ns", "exposed_ns", "idle_ns")
        }
        ranks.append(RecordedRank(rank.rank, len(steps), *median.values(), rank.wait_ns * 1e-9))
    return ranks
