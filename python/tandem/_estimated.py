"""An estimate (include/tandem/advanced/estimate.h): replicates in the store, and what follows from them."""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_void_p
from dataclasses import dataclass
from typing import Any, Iterator, List, Optional, Tuple

from tandem import _library
from tandem._structs import (
    BF16,
    F16,
    F32,
    MAX_TRAINING_POINT,
    PRECISIONS,
    EstimatedError,
    EstimatedGradient,
    SensitivityStep,
    EstimateStruct,
    SensitivityEstimate,
)


AMP_DTYPES = (F32, BF16, F16)  # in the order of an estimate's cells


class _Prediction(ctypes.Structure):
    _fields_ = [("low", c_double), ("high", c_double)]


@dataclass
class Estimate:
    """A sensitivity, with its 95 % interval of sampling where it is known."""

    sensitivity: float
    low: Optional[float] = None
    high: Optional[float] = None
    noise: Optional[float] = None
    bias: Optional[float] = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.sensitivity:.2g}"
        return known_to(self.sensitivity, self.half)

    @property
    def half(self) -> float:
        """The wider half of the interval; NaN: not known."""
        if self.low is None or self.high is None:
            return math.nan
        return max(self.high - self.sensitivity, self.sensitivity - self.low)

    @property
    def range(self) -> str:
        """ "0.6 to 1.3". """
        return " to ".join(known_to(x or 0.0, self.half) for x in (self.low, self.high))

    @property
    def prediction(self) -> Tuple[float, float]:
        """Where 95 % of trainings would lie: as trials scatter about predictions, beside the sampling."""
        find = _library.load("tandem").tandem_prediction_interval
        find.restype, find.argtypes = _Prediction, [c_double] * 3
        found = find(self.sensitivity, self.low, self.high)
        return found.low, found.high

    @property
    def extra_samples(self) -> str:
        """ "0.9 % more samples to the same loss (95 %: 0.04 to 20 %)". """
        if self.low is None or self.high is None:
            return f"{self} % more samples to the same loss"
        low, high = (f"{float(f'{end:.1g}'):g}" for end in self.prediction)
        return f"{self} % more samples to the same loss (95 %: {low} to {high} %)"


def known_to(value: float, half: float) -> str:
    """A number without the digits that its interval does not allow."""
    if not (math.isfinite(half) and math.isfinite(value)) or half <= 0:
        return f"{value:.2g}"
    digits = -math.floor(math.log10(half))
    rounded = round(value, digits)
    return f"{rounded:.{min(digits, 12)}f}" if digits > 0 else f"{rounded:.0f}"


def _estimate_of(made: SensitivityEstimate) -> Estimate:
    """In percent; an unknown bias is None."""
    known = lambda x: None if math.isnan(x) else 100 * x  # noqa: E731
    return Estimate(100 * made.value, 100 * made.low, 100 * made.high, known(made.noise), known(made.bias))


class Store(_library.Owned):
    """An open profile store; `environment`: the libraries and threads of what is filed."""

    def __init__(
        self, path: str, is_written: bool = False, environment: Optional[Tuple[str, int]] = None
    ) -> None:
        super().__init__("tandem", "tandem_store_close")
        _library.call(
            "tandem", "tandem_store_open", byref(self.pointer), c_char_p(path.encode()), c_int(is_written)
        )
        if environment is not None:
            libraries, threads = environment
            _library.call(
                "tandem",
                "tandem_store_set_environment",
                self.pointer,
                c_char_p(libraries.encode()),
                c_int(threads),
            )


class Estimated:
    """A tandem_estimate, of the caller's replicates."""

    def __init__(self) -> None:
        self.c = EstimateStruct()
        close = _library.load("tandem").tandem_estimate_close
        close.restype, close.argtypes = None, [c_void_p]
        self._close = close

    @classmethod
    def open(cls, n_op: int, n_point: int, n_replicate: int) -> "Estimated":
        made = cls()
        _library.call(
            "tandem", "tandem_estimate_open", byref(made.c), c_int(n_op), c_int(n_point), c_int(n_replicate)
        )
        made.c.without_bias = 1
        return made

    def __del__(self) -> None:
        self._close(ctypes.addressof(self.c))

    @property
    def points(self) -> List[int]:
        return list(self.c.point[: self.c.n_point])

    @property
    def n_cell(self) -> int:
        return self.c.n_op * len(PRECISIONS) * len(AMP_DTYPES)

    def gradients(self, point: int) -> Iterator[Tuple[int, EstimatedGradient]]:
        return ((r, self.c.gradient[point * self.c.n_replicate + r]) for r in range(self.c.n_replicate))

    def errors(self, point: int, cell: int) -> Any:
        """[n_replicate] of EstimatedError."""
        get = _library.load("tandem").tandem_estimate_errors
        get.restype, get.argtypes = POINTER(EstimatedError), [c_void_p, c_int, c_int]
        return get(ctypes.addressof(self.c), point, cell)

    def copy_point(self, point: int, other: "Estimated", from_point: int) -> None:
        """Replicates of another estimate of the same model."""
        self.c.point[point] = other.c.point[from_point]
        for r, gradient in other.gradients(from_point):
            self.c.gradient[point * self.c.n_replicate + r] = gradient
        for cell in range(self.n_cell):
            if other.c.is_estimated[cell]:
                self.c.is_estimated[cell] = 1
                mine, theirs = self.errors(point, cell), other.errors(from_point, cell)
                for r in range(self.c.n_replicate):
                    mine[r] = theirs[r]

    def estimate(self, cell: int, batch: int) -> Estimate:
        """Of one operator in a precision, in percent, for steps of `batch` samples."""
        share, made = (c_double * self.n_cell)(), SensitivityEstimate()
        share[cell] = 1
        step = SensitivityStep(batch, 1, 0)
        _library.call(
            "tandem", "tandem_estimate_sensitivity", byref(made), byref(self.c), share, byref(step)
        )
        return _estimate_of(made)


def _can_join(mine: Estimated, filed: Estimated) -> bool:
    """Whether a filed estimate is of the same training, at other training points."""
    same = ("batch", "steps", "seed", "optimizer", "n_op", "n_replicate")
    is_other_point = mine.c.point[0] not in filed.points and filed.c.n_point < MAX_TRAINING_POINT
    is_same = all(getattr(mine.c, x) == getattr(filed.c, x) for x in same)
    return mine.c.steps > 0 and is_other_point and is_same


def load(graph: c_void_p, store: str, data: Optional[str] = None) -> Optional[Estimated]:
    """The newest estimate of a graph in a store; None where there is none."""
    made = Estimated()
    try:
        opened = Store(store)
        _library.call(
            "tandem",
            "tandem_store_load_estimate",
            byref(made.c),
            opened.pointer,
            graph,
            c_char_p(None if data is None else data.encode()),
        )
    except _library.MissingError:
        return None
    return made


def file(
    estimated: Estimated, graph: c_void_p, store: str, data: str, environment: Optional[Tuple[str, int]] = None
) -> Estimated:
    """Files an estimate of one training point; with those of other
    training points where the store has the same training."""
    filed = load(graph, store, data)
    if filed is not None and _can_join(estimated, filed):
        points = sorted(
            [(point, filed, k) for k, point in enumerate(filed.points)] + [(estimated.points[0], estimated, 0)]
        )
        joined = Estimated.open(estimated.c.n_op, len(points), estimated.c.n_replicate)
        for name in ("batch", "steps", "seed", "optimizer"):
            setattr(joined.c, name, getattr(estimated.c, name))
        for k, (_, of, from_point) in enumerate(points):
            joined.copy_point(k, of, from_point)
        estimated = joined
    opened = Store(store, True, environment)
    _library.call(
        "tandem",
        "tandem_store_put_estimate",
        opened.pointer,
        graph,
        c_char_p(data.encode()),
        byref(estimated.c),
    )
    return estimated
