"""compare_loss: what a plan costs a module in loss and in samples, by pairs of trainings."""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from ctypes import byref, c_char_p, c_int
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

import torch

from tandem import _library
from tandem._apply import Wanted, apply, load_wanted, rank_here
from tandem._branch import (
    BASE,
    FEWER,
    PLAN,
    SCHEMA,
    Asked,
    Batches,
    Branch,
    MakeOptimizer,
    Training,
    copy_of,
    hash_of_asked,
    is_sequence,
    optimizer_of,
)
from tandem._capture import unwrap
from tandem._estimated import known_to
from tandem._held import random_state, set_random_state
from tandem._plan import time_text
from tandem._structs import (
    TRIAL_LEAST_PAIRS,
    TRIAL_LEAST_STEPS,
    TRIAL_MOST_PAIRS,
    TRIAL_UNDECIDED,
    TrialInterval,
    TrialPair,
    TrialQuestion,
    TrialResult,
)

Path = Union[str, "os.PathLike[str]"]
DEFAULT_STEPS = 200
_SHOWN_EVERY = 0.5  # seconds


# --- What a trial found ---


@dataclass
class Interval:
    """A mean over the pairs of a trial, with its 95 % interval. NaN: not known; infinite: without limit."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return self.text()

    def text(self, factor: float = 1, unit: str = "") -> str:
        """ "0.12 % (95 %: -0.10 to 0.34 %)"; factor: 100 for percent."""
        mean, low, high = (round(factor * one, 9) + 0.0 for one in (self.mean, self.low, self.high))
        if math.isnan(mean):
            return "unknown"
        if math.isinf(mean):
            return "without limit"
        if math.isinf(low) and math.isinf(high):
            return f"{mean:.2g}{unit} (95 %: unknown; it takes two pairs)"
        half = (high - low) / 20  # a digit more
        ends = ("no limit" if math.isinf(one) else known_to(one, half) for one in (low, high))
        return f"{known_to(mean, half)}{unit} (95 %: {' to '.join(ends)}{unit})"


@dataclass
class Trial:
    """What a plan costs in loss and in samples, as `compare_loss` measured it."""

    plan: str
    base: str
    steps: int  # of each branch
    pairs: int
    diverged: int  # pairs in which a loss of the plan was not finite
    base_loss: float  # mean over the last quarter of the steps and all pairs
    extra_samples: Interval  # that the plan needs to the same training loss, as a share: 0.01 is 1 %
    training: Interval  # loss of the plan less that of the base, over the last quarter of the steps
    # the same of `held_out` after the last step, in the plan's precisions, and with the plan taken off; None:
    # not evaluated
    held_out: Optional[Interval]
    held_out_in_base: Optional[Interval]
    at_most: Optional[float]
    answer: Optional[str]  # "within" at_most, "beyond", or "undecided"; None: not asked
    # pairs in all that may decide; 0: it is decided, or was not asked; −1: 256 would not
    pairs_needed: int
    known: int = 0  # branches that were in the file to resume from
    pair_seconds: float = 0.0  # a mean
    notes: List[str] = field(default_factory=list)

    def _answer_text(self) -> str:
        share = f"{100 * (self.at_most or 0):.3g} % extra samples, after {_count(self.pairs, 'pair')}"
        if self.answer == "within":
            return f"yes: not more than {share}"
        if self.answer == "beyond":
            return f"no: more than {share}"
        if math.isnan(self.extra_samples.mean):
            return f"unknown: the loss of {self.base} does not fall over these steps"
        after = f"undecided after {_count(self.pairs, 'pair')}"
        if self.pairs_needed < 0:
            return f"{after}; {TRIAL_MOST_PAIRS} would not decide: take more steps"
        more = self.pairs_needed - self.pairs
        left = _left_text(more * self.pair_seconds)
        return f"{after}: {more} more (pairs={self.pairs_needed}) may decide, in some {left}"

    def __str__(self) -> str:
        lines = [] if self.answer is None else [self._answer_text()]
        lines.append(f"extra samples: {self.extra_samples.text(100, ' %')}, to the same training loss")
        if self.diverged:
            lines.append(f"diverged: the plan, in {self.diverged} of {_count(self.pairs, 'pair')}")
        lines.append(f"training loss: {self.training} over the {self.base_loss:.4g} of {self.base}")
        if self.held_out is not None:
            held_out = f"{self.held_out} in the plan's precisions; {self.held_out_in_base} in {self.base}"
            lines.append(f"held-out loss: {held_out}")
        pairs = f"{_count(self.pairs, 'pair')} of {self.steps} steps"
        lines.append(f"trial: {self.plan} against {self.base}; {pairs}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n  ".join(lines)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _left_text(seconds: float) -> str:
    """A time as the command line gives it: "34 s", "12 min", "3.1 h"."""
    for unit, size, most in (("min", 60.0, 7200.0), ("h", 3600.0, 172800.0), ("d", 86400.0, math.inf)):
        if 120 <= seconds < most:
            return f"{seconds / size:.3g} {unit}"
    return time_text(seconds)


# --- The file to resume from ---


class _File:
    """Branches by the hash of what decides them; without a path, none."""

    def __init__(self, path: Optional[Path]) -> None:
        self.path = None if path is None else os.fspath(path)
        self.known: Dict[str, Branch] = {}
        if self.path is not None and os.path.exists(self.path):
            self._read(self.path)

    def _read(self, path: str) -> None:
        with open(path, "rb") as file:
            *lines, torn = file.read().split(b"\n")
        begin = json.dumps({"schema": SCHEMA}).encode()[:-1]
        if not (torn.startswith(begin) or begin.startswith(torn)):
            lines.append(torn)
        for number, line in enumerate(lines, 1):
            try:
                read = json.loads(line)
                if read.pop("schema") != SCHEMA:
                    raise ValueError("another schema")
                key = read.pop("hash")
                self.known[key] = Branch(**read)
            except (ValueError, KeyError, TypeError, AttributeError) as wrong:
                raise _library.error(
                    "MALFORMED",
                    f"'{path}', line {number}: no branch of a trial ({SCHEMA}): {wrong}. Resume from a file "
                    "that compare_loss wrote, or name a new one",
                ) from None
        if torn:  # the last line of a trial that was stopped
            os.truncate(path, os.path.getsize(path) - len(torn))

    def add(self, key: str, branch: Branch) -> None:
        if self.path is None:
            return
        line = json.dumps({"schema": SCHEMA, "hash": key, **asdict(branch)}, allow_nan=False)
        with open(self.path, "a", encoding="ascii") as file:
            file.write(line + "\n")


# --- Progress ---


class _Progress:
    """Says which branch trains, with the time of all that may follow."""

    def __init__(self, show: Optional[Callable[[str], None]], pairs: int, steps: int) -> None:
        self.show, self.pairs, self.steps = show, pairs, steps
        self.seconds: Dict[str, List[float]] = {BASE: [], PLAN: []}  # of branches
        self.shown = -math.inf

    def add(self, branch: Branch) -> None:
        if not branch.has_diverged:
            self.seconds[branch.kind].append(branch.seconds)

    def mean(self, kind: str, other: float = 0.0) -> float:
        """Of a branch; `other` where none is known."""
        of = self.seconds[kind] or self.seconds[PLAN if kind == BASE else BASE]
        return sum(of) / len(of) if of else other

    def step(self, kind: str, pair: int, n_done: int, loss: float, seconds: float) -> None:
        now = time.monotonic()
        if self.show is None or n_done < self.steps and now < self.shown + _SHOWN_EVERY:
            return
        self.shown = now
        whole = seconds / n_done * self.steps
        left = whole - seconds + (self.pairs - pair - 1) * (self.mean(BASE, whole) + self.mean(PLAN, whole))
        left += self.mean(PLAN, whole) if kind == BASE else 0
        self.show(
            f"pair {pair + 1} of at most {self.pairs}, {kind}: step {n_done} of {self.steps}, loss {loss:.4g}"
            + (f", {_left_text(left)} left" if left > 0 else "")
        )


class _Running:
    """The pairs of a trial so far."""

    def __init__(self, asked: Asked, resume: Optional[Path], show: Optional[Callable[[str], None]]) -> None:
        self.asked, self.file = asked, _File(resume)
        self.progress = _Progress(show, asked.pairs, asked.steps)
        self.pairs: List[Tuple[Branch, Branch]] = []
        self.notes: List[str] = []
        self.n_known = 0
        self.common = "" if resume is None else hash_of_asked(asked)
        if is_sequence(asked.batches) and len(asked.batches) < asked.steps:  # type: ignore[arg-type]
            self.note(FEWER)

    def note(self, text: str) -> None:
        """Says it once."""
        if text not in self.notes:
            self.notes.append(text)
            warnings.warn(f"tandem: {text}", stacklevel=2)

    def branch(self, kind: str) -> Branch:
        training = Training(self.asked, kind, len(self.pairs), self.note)
        key = training.hash(self.common) if self.file.path is not None else ""
        made = self.file.known.get(key)
        if made is None:
            made = training.run(self.progress.step)
            self.file.add(key, made)
        else:
            self.n_known += 1
        self.progress.add(made)
        return made

    def add_pair(self) -> TrialResult:
        base = self.branch(BASE)
        if base.has_diverged:  # which the library says
            self.pairs.append((base, base))
            return self.conclude()
        plan = self.branch(PLAN)
        if plan.data != base.data:
            raise _library.error(
                "USAGE",
                f"the branches of pair {len(self.pairs) + 1} began with different batches: batches(seed) "
                "must give the same for the same seed, and nothing may change a batch in place",
            )
        self.pairs.append((base, plan))
        is_same = len(self.pairs) == 2 and base.data != "" and base.data == self.pairs[0][0].data
        if is_same and not is_sequence(self.asked.batches):
            self.note(
                "both pairs began with the same batch: where batches(seed) does not shuffle by its seed, "
                "intervals are too narrow"
            )
        return self.conclude()

    def conclude(self) -> TrialResult:
        asked, result, number = self.asked, TrialResult(), lambda x: math.nan if x is None else x
        arrays = [(base.c_losses(), plan.c_losses()) for base, plan in self.pairs]
        pairs = (TrialPair * len(arrays))()
        for made, (base, plan), of in zip(pairs, self.pairs, arrays):
            made.base_loss, made.plan_loss = of
            made.base_held_out, made.plan_held_out = number(base.held_out), number(plan.held_out)
            made.plan_held_out_in_base = number(plan.held_out_in_base)
        n_look = max(asked.pairs - TRIAL_LEAST_PAIRS + 1, 1)
        question = TrialQuestion(asked.steps, number(asked.at_most), n_look)
        _library.call(
            "tandem", "tandem_trial_conclude", byref(result), pairs, c_int(len(pairs)), byref(question)
        )
        return result

    def run(self) -> Trial:
        asked, found = self.asked, TrialResult()
        while len(self.pairs) < asked.pairs and found.answer == TRIAL_UNDECIDED:
            found = self.add_pair()
        answer = _library.text_function("tandem", "tandem_trial_answer_name", c_int(found.answer))
        has_held_out = asked.held_out is not None
        return Trial(
            plan=asked.plan_name,
            base=asked.base,
            steps=asked.steps,
            pairs=found.n_pair,
            diverged=found.n_diverged,
            base_loss=found.base_loss,
            extra_samples=_interval_of(found.extra),
            training=_interval_of(found.training),
            held_out=_interval_of(found.held_out) if has_held_out else None,
            held_out_in_base=_interval_of(found.held_out_in_base) if has_held_out else None,
            at_most=asked.at_most,
            answer=answer if asked.at_most is not None else None,
            pairs_needed=found.pairs_needed,
            known=self.n_known,
            pair_seconds=self.progress.mean(BASE) + self.progress.mean(PLAN),
            notes=self.notes,
        )


def _interval_of(made: TrialInterval) -> Interval:
    return Interval(made.mean, made.low, made.high)


# --- Asking ---


def _check_numbers(pairs: int, at_most: Optional[float], steps: int) -> None:
    if steps < TRIAL_LEAST_STEPS:
        raise _library.error("USAGE", f"a branch of {steps} steps: it takes {TRIAL_LEAST_STEPS} or more")
    if not 1 <= pairs <= TRIAL_MOST_PAIRS:
        raise _library.error("USAGE", f"{pairs} pairs: allowed are 1 to {TRIAL_MOST_PAIRS}")
    if at_most is None:
        return
    if not (0 <= at_most < math.inf):
        raise _library.error("USAGE", f"at_most={at_most}: it is a share of 0 or more; 0.005 is 0.5 %")
    if pairs < TRIAL_LEAST_PAIRS:
        raise _library.error(
            "USAGE", f"{pairs} pairs decide nothing: at_most takes {TRIAL_LEAST_PAIRS} or more"
        )


def _check_base(base: str) -> None:
    """A precision, and no file of a plan."""
    _library.call("tandem", "tandem_precision_find", byref(c_int()), c_char_p(str(base).encode()))


def _check_batches(batches: Any) -> None:
    if not is_sequence(batches) and not callable(batches):
        raise _library.error(
            "USAGE",
            f"batches is a {type(batches).__name__}; a trial takes them in several orders. Give a sequence, "
            "as list(loader), or a function from a seed to the batches of a branch: lambda seed: loader, "
            "where the loader shuffles",
        )
    if is_sequence(batches) and len(batches) == 0:
        raise _library.error("USAGE", "no batches were given; a branch needs 1 or more")


def _check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer) and not callable(optimizer):
        raise _library.error(
            "USAGE",
            f"optimizer={optimizer!r}: a trial trains, and its learning rate matters most. Give the "
            "optimizer that trains the module, or a function from parameters to one: lambda parameters: "
            "torch.optim.SGD(parameters, lr=0.01)",
        )


def _take_held_out(given: Optional[Iterable[Any]]) -> Optional[Iterable[Any]]:
    """Batches that can be read more than once."""
    if given is None:
        return None
    missing = object()
    held_out = list(given) if iter(given) is given else given
    if next(iter(held_out), missing) is missing:
        raise _library.error("USAGE", "held_out has no batches; give 1 or more, or None")
    return held_out


def _check_branches(asked: Asked) -> None:
    """Refuses, before anything trains, what apply or the optimizer would refuse."""
    if not any(one.requires_grad for one in asked.module.parameters()):
        name = type(asked.module).__name__
        raise _library.error("USAGE", f"no parameter of {name} needs a gradient; a trial trains 1 or more")
    made = copy_of(asked.module)
    for plan in (asked.base, asked.plan):
        apply(made, plan, rank=asked.rank)
    optimizer = optimizer_of(asked.optimizer, asked.module, made)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise _library.error("USAGE", f"optimizer gave {optimizer!r}, which is no torch.optim.Optimizer")


def compare_loss(
    module: torch.nn.Module,
    plan: Wanted,
    batches: Batches,
    loss: Callable[..., torch.Tensor],
    optimizer: Union[None, torch.optim.Optimizer, MakeOptimizer] = None,
    schedule: Optional[Callable[[torch.optim.Optimizer], Any]] = None,
    held_out: Optional[Iterable[Any]] = None,
    *,
    base: str = "fp32",
    pairs: int = 8,
    at_most: Optional[float] = None,
    steps: Optional[int] = None,
    seed: int = 0,
    rank: Optional[int] = None,
    progress: Optional[Callable[[str], None]] = None,
    resume: Optional[Path] = None,
) -> Trial:
    """Measures what a plan costs a module in loss and in samples, by pairs of trainings (docs/trials.md).

    Each pair is two branches from the module's weights over the same batches: a copy of the module in
    `base`, and one to which `apply` gave the plan. Both draw the same random numbers of PyTorch, Python and
    NumPy, so that they differ in precision alone. Pairs differ in the order of the batches and in all that is
    drawn. The module is not changed, and random numbers are put back.

        plan       what `apply` takes: a Plan, the file of one, a precision, or precisions by name
        batches    a sequence of what the module takes, or of (inputs, target), as for `sensitivity`; or a
                   function from a seed to the batches of one branch (lambda seed: loader). Fewer than steps
                   come again in another order
        loss       from (output, target) to a number, with targets; from the output without. A mean over
                   samples
        optimizer  one that trains the module, whose state each branch goes on with, or a function from
                   parameters to one
        schedule   from the optimizer to a scheduler, stepped after each step
        held_out   batches that are evaluated after the last step, in evaluation mode
        base       a precision of `apply` for all calls; "fp32" is the module as it is
        pairs      at most: 1 to 256
        at_most    a share of extra samples, as 0.005: the trial ends when it is decided whether the plan
                   needs more. It takes 3 pairs
        steps      of each branch [200]; 16 or more
        seed       of the first pair's seed, and of all others
        rank       whose class of the plan [torch.distributed's rank, or 0]
        progress   called with a line of text, at most twice per second
        resume     a file of JSON lines: branches that end are appended, and those in it do not train again

    Cost: 2 · pairs trainings and evaluations. Memory: a copy of the module, and its optimizer's state.

    A plan with a loss that is not finite has diverged: the branch ends, and it needs more samples than any
    share. InfeasibleError: a loss of the base is not finite. UsageError: arguments that are not allowed, a
    module that cannot be copied, and branches of a pair that begin with different batches.

    >>> optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.01)
    >>> print(tandem.compare_loss(module, plan, batches, cross_entropy, optimizer, at_most=0.01))
    """
    inner, steps = unwrap(module), DEFAULT_STEPS if steps is None else steps
    _check_numbers(pairs, at_most, steps)
    _check_base(base)
    _check_batches(batches)
    _check_optimizer(optimizer)
    state = random_state()
    try:
        asked = Asked(
            module=inner,
            plan=load_wanted(plan),
            batches=batches,
            loss=loss,
            optimizer=optimizer,  # type: ignore[arg-type]
            schedule=schedule,
            held_out=_take_held_out(held_out),
            base=base,
            pairs=pairs,
            at_most=at_most,
            steps=steps,
            seed=seed,
            rank=rank_here() if rank is None else rank,
        )
        _check_branches(asked)
        return _Running(asked, resume, progress).run()
    finally:
        set_random_state(state)
