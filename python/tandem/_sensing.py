"""Which casts the precisions of a graph have, in which metric they count, and what a probe saw of them."""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, c_double, c_int, c_void_p
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from tandem import _library
from tandem._graph import Graph
from tandem._probe import Format, Noise, ProbedCall, share_of_small_step
from tandem._probe import GRADIENT, INPUT, PARTS, RESULT, SECOND, WEIGHT
from tandem._sensed import Sensed
from tandem._structs import (
    AMP_DTYPES,
    F32,
    FORMAT_SCALE_LOSS,
    OPERATORS,
    PRECISIONS,
    ROUNDING_STOCHASTIC,
    FormatRow,
    GraphHead,
    OpRow,
    PrecisionRow,
    SensedError,
    SensedGradient,
)

_LEAST_SHARE = 1e-4  # of the mean of v̂: below it, v̂ counts as that
_LOST = 1e6  # noise of a cast that overflows, in gradients' mean squares: no plan takes it


def _row(function: str, of: Any, index: int) -> Any:
    get = getattr(_library.load("tandem"), function)
    get.restype, get.argtypes = POINTER(of), [c_int]
    return get(index).contents


def _format_of_dtype(dtype: int) -> int:
    return _library.load("tandem").tandem_format_of_dtype(c_int(dtype))


def read_formats() -> List[Format]:
    """The rows of format.def."""
    largest = _library.load("tandem").tandem_format_largest
    largest.restype, largest.argtypes = c_double, [c_void_p]
    formats = []
    for index in range(_format_of_dtype(F32)):  # f32 has none: the number of rows
        row = _row("tandem_format_get", FormatRow, index)
        formats.append(
            Format(
                index,
                row.rounding == ROUNDING_STOCHASTIC,
                row.scale == FORMAT_SCALE_LOSS,
                largest(ctypes.addressof(row)),
            )
        )
    return formats


@dataclass
class Cell:
    """An operator in a precision, with an AMP dtype where the precision depends on it."""

    call: str
    index: int  # in is_sensed
    formats: Dict[int, int]  # part → format that it rounds to


def _formats_of(precision: int, amp: int) -> Dict[int, int]:
    """What a precision rounds each part to."""
    row = _row("tandem_precision_get", PrecisionRow, precision)
    library = _library.load("tandem")
    product, amp_mark = library.tandem_precision_product_dtype(c_int(precision), c_int(F32)), _amp_mark()
    of = lambda dtype: _format_of_dtype(amp if dtype == amp_mark else dtype)  # noqa: E731
    is_narrow_product = product != F32  # tf32
    forward = of(product if is_narrow_product else row.forward)
    backward = of(product if is_narrow_product else row.wgrad)
    wanted = {INPUT: forward, SECOND: forward, WEIGHT: forward, GRADIENT: backward, RESULT: of(row.output)}
    none = _format_of_dtype(F32)
    return {part: index for part, index in wanted.items() if index != none}


def _amp_mark() -> int:
    """The dtype AMP of precision.def: int8 has it for its gradients."""
    return _row("tandem_precision_get", PrecisionRow, PRECISIONS.index("int8")).wgrad


def cells_of(graph: Graph) -> List[Cell]:
    """All cells of a graph's adjustable calls."""
    library, cells = _library.load("tandem"), []
    for call in graph.adjustable:
        op = graph.operator_index(call.operator)
        allowed = _row("tandem_op_row_get", OpRow, OPERATORS.index(call.kind)).precisions
        for precision in range(1, len(PRECISIONS)):
            if not allowed >> precision & 1:
                continue
            has_amp = library.tandem_precision_has_amp(c_int(precision))
            for amp in AMP_DTYPES if has_amp else AMP_DTYPES[:1]:
                index = library.tandem_sensing_cell(c_int(op), c_int(precision), c_int(amp))
                cells.append(Cell(call.name, index, _formats_of(precision, amp)))
    return cells


def probed_calls(cells: Sequence[Cell]) -> Dict[str, ProbedCall]:
    """The calls of cells, with the formats that any of them asks for."""
    calls: Dict[str, ProbedCall] = {}
    for cell in cells:
        call = calls.setdefault(cell.call, ProbedCall(cell.call))
        for part, index in cell.formats.items():
            call.formats[part].add(index)
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
        f"got the optimizer {name}: sensing knows the metric of SGD, and of those that keep exp_avg_sq "
        "(Adam, AdamW, NAdam, RAdam). Leave optimizer= away to sense in the metric of SGD",
    )


def mean_squares(
    optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]
) -> Optional[List[torch.Tensor]]:
    """v̂ of each parameter; None before the first step."""
    squares = []
    for parameter in parameters:
        state = optimizer.state.get(parameter, {})
        if "exp_avg_sq" not in state:
            return None
        group = next(
            one for one in optimizer.param_groups if any(p is parameter for p in one["params"])
        )
        square = state.get("max_exp_avg_sq", state["exp_avg_sq"])
        squares.append(square / (1 - group["betas"][1] ** float(state["step"])))
    return squares


def roots_of_metric(squares: Sequence[torch.Tensor]) -> Optional[List[torch.Tensor]]:
    """√(1/√v̂). Weights whose v̂ is far below the mean would count without bounds."""
    n = sum(square.numel() for square in squares)
    mean = sum(float(square.double().sum()) for square in squares) / max(1, n)
    if not mean > 0:
        return None
    return [square.clamp_min(_LEAST_SHARE * mean).pow(-0.25) for square in squares]


# --- What a probe saw ---


def put_replicate(
    sensed: Sensed,
    r: int,
    cells: Sequence[Cell],
    calls: Dict[str, ProbedCall],
    noise: Dict[str, Noise],
    steps: Tuple[float, float],
) -> None:
    for cell in cells:
        sensed.errors(0, cell.index)[r] = _error_of_cell(cell, calls[cell.call], noise[cell.call], steps)
        sensed.c.is_sensed[cell.index] = 1


def put_gradients(sensed: Sensed, sketches: Sequence[torch.Tensor]) -> None:
    """From the sums of all replicates (2, SKETCH) their variances and mean squares. A cast that overflows
    in some replicate has lost its gradient."""
    n, every = len(sketches), torch.stack(list(sketches)).sum((0, 1))
    for r, (one, two) in enumerate(sketches):
        both = one + two
        own, same = float(one @ one + two @ two), float(one @ two)
        with_others = float(both @ (every - both)) / (4.0 * (n - 1))
        sensed.c.gradient[r] = SensedGradient(0.5 * own - same, with_others)
    largest = max(g.variance + abs(g.mean_square) for _, g in sensed.gradients(0))
    for cell in range(sensed.n_cell):
        of = sensed.errors(0, cell)
        for r in range(sensed.c.n_replicate) if sensed.c.is_sensed[cell] else ():
            if not math.isfinite(of[r].total) or not math.isfinite(of[r].shared):
                of[r] = SensedError(_LOST * largest, 0, 0, 0)


def _error_of_cell(cell: Cell, call: ProbedCall, noise: Noise, steps: Tuple[float, float]) -> SensedError:
    error = SensedError()
    for part in PARTS:
        f = cell.formats.get(part)
        if f is None or (part, f) not in noise.noise:
            continue
        small, both = share_of_small_step(call, noise, part, f, steps), noise.noise[part, f]
        error.total += small * both[0] + (1 - small) * both[1]
        if part == WEIGHT and f in noise.drawn:
            error.shared = noise.cross[f]
        elif part == WEIGHT:
            error.total -= noise.cross[f]
    return error


def new_sensed(graph: Graph, batch: int, n_replicate: int, step: int, steps: int, seed: int) -> Sensed:
    n_op = GraphHead.from_address(graph.c_graph().pointer.value).n_op
    made = Sensed.open(n_op, 1, n_replicate)
    made.c.batch, made.c.steps, made.c.seed, made.c.age[0] = batch, steps, seed, step
    made.c.optimizer = 1 if graph.optimizer["kind"] == "adamw" else 0
    return made
