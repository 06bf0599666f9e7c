"""Which casts the precisions of a graph have, in which metric they count, and what a probe saw of them."""

from __future__ import annotations

from ctypes import POINTER, byref, c_double, c_int, c_void_p
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from tandem import _library
from tandem._graph import Graph
from tandem._probe import Array, Found, ProbedCall, numbers
from tandem._estimated import AMP_DTYPES, Estimated
from tandem._structs import (
    N_FORMAT,
    N_PROBE_PART,
    OPERATORS,
    PRECISIONS,
    GraphStruct,
    OpRow,
    EstimatedError,
)


@dataclass
class Cell:
    """An operator in a precision, with an AMP dtype where the precision depends on it."""

    call: str
    index: int  # in is_estimated
    formats: Any  # [N_PROBE_PART] to which it rounds each part; N_FORMAT: not at all


def _formats_of(precision: int, amp: int) -> Any:
    formats = (c_int * N_PROBE_PART)()
    numbers("tandem_probe_formats", c_void_p, c_int, c_int, c_void_p)(formats, precision, amp, None)
    return formats


def _precisions_of(kind: str) -> int:
    """Bits of those that an operator's kind has."""
    get = _library.load("tandem").tandem_op_row_get
    get.restype, get.argtypes = POINTER(OpRow), [c_int]
    return get(OPERATORS.index(kind)).contents.precisions


def cells_of(graph: Graph) -> List[Cell]:
    """All cells of a graph's adjustable calls."""
    library, cells = _library.load("tandem"), []
    for call in graph.adjustable:
        op = graph.operator_index(call.operator)
        allowed = _precisions_of(call.kind)
        for precision in range(1, len(PRECISIONS)):
            if not allowed >> precision & 1:
                continue
            has_amp = library.tandem_precision_has_amp(c_int(precision))
            for amp in AMP_DTYPES if has_amp else AMP_DTYPES[:1]:
                index = library.tandem_estimate_cell(c_int(op), c_int(precision), c_int(amp))
                cells.append(Cell(call.name, index, _formats_of(precision, amp)))
    return cells


def probed_calls(cells: Sequence[Cell]) -> Dict[str, ProbedCall]:
    """The calls of cells, with the formats that any of them asks for."""
    calls: Dict[str, ProbedCall] = {}
    for cell in cells:
        call = calls.setdefault(cell.call, ProbedCall(cell.call))
        for asked, index in zip(call.formats, cell.formats):
            if index != N_FORMAT:
                asked.add(index)
    return calls


# --- The optimizer's metric ---


def optimizer_kind(optimizer: torch.optim.Optimizer) -> str:
    """ "sgd" or "adamw": whose metric holds. Others are refused."""
    name, state = type(optimizer).__name__, list(optimizer.state.values())
    has_squares = all("exp_avg_sq" in one for one in state) if state else "Adam" in name
    if "betas" in optimizer.param_groups[0] and has_squares:
        return "adamw"
    if name == "SGD":
        return "sgd"
    raise _library.error(
        "USAGE",
        f"got the optimizer {name}: an estimate knows the metric of SGD, and of those that keep exp_avg_sq "
        "(Adam, AdamW, NAdam, RAdam). Leave optimizer= away to estimate in the metric of SGD",
    )


def mean_squares(
    optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]
) -> Optional[Tuple[List[torch.Tensor], List[float]]]:
    """v̂ of each parameter: numbers of the optimizer, and by what they are multiplied; None before the first
    step."""
    squares, by = [], []
    for parameter in parameters:
        state = optimizer.state.get(parameter, {})
        if "exp_avg_sq" not in state:
            return None
        group = next(
            one for one in optimizer.param_groups if any(p is parameter for p in one["params"])
        )
        squares.append(state.get("max_exp_avg_sq", state["exp_avg_sq"]))
        by.append(1 / (1 - group["betas"][1] ** float(state["step"])))
    return squares, by


# --- What a probe saw ---


def put_replicate(
    estimated: Estimated, r: int, cells: Sequence[Cell], found: Dict[str, Found], steps: Any
) -> None:
    """The errors of all cells, from the sums of all calls."""
    ratios_of = numbers("tandem_probe_log_ratios", Array, c_void_p, gives=c_int)
    jump_ratio = numbers("tandem_probe_jump_ratio", Array, c_int, gives=c_double)
    add = numbers("tandem_probe_add_error", c_void_p, c_void_p, c_void_p, c_void_p, c_double)
    ratios, n = torch.empty(len(found) * N_PROBE_PART * N_FORMAT, dtype=torch.float64), 0
    for of in found.values():
        n += ratios_of(ratios[n:], byref(of.sums))
    q = jump_ratio(ratios, n)
    for cell in cells:
        error = EstimatedError()
        add(byref(error), byref(found[cell.call].sums), cell.formats, steps, q)
        estimated.errors(0, cell.index)[r] = error
        estimated.c.is_estimated[cell.index] = 1


def put_gradients(estimated: Estimated, sketches: Sequence[torch.Tensor]) -> None:
    """Variances and mean squares, from the buckets of all replicates (2, PROBE_SKETCH)."""
    every = torch.stack(list(sketches))
    numbers("tandem_probe_set_gradients", c_void_p, c_int, Array)(byref(estimated.c), 0, every)


def new_estimated(graph: Graph, batch: int, n_replicate: int, step: int, steps: int, seed: int) -> Estimated:
    n_op = GraphStruct.from_address(graph.c_graph().pointer.value).n_op
    made = Estimated.open(n_op, 1, n_replicate)
    made.c.batch, made.c.steps, made.c.seed, made.c.point[0] = batch, steps, seed, step
    made.c.optimizer = 1 if graph.optimizer["kind"] == "adamw" else 0
    return made
