"""Activation checkpoints: the second run of a function is converted as the first was, with the same draws.

`torch.utils.checkpoint` runs a function a second time in the backward pass, after the forward of the module
that it is part of. Its two ways of doing so are wrapped here, once in a process, when `apply` is called first.
Nothing else distinguishes a second run from a new one. Functions without converted layers run as before.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any, Callable, Dict, List

import torch
import torch.utils.checkpoint as checkpoints

from tandem import _library


class _Here(threading.local):
    """What this thread is in: runs of converted modules, and checkpointed functions, the innermost last."""

    def __init__(self) -> None:
        self.runs: List[Any] = []
        self.passages: List[Any] = []


here = _Here()


class _Passage:
    """One checkpointed call of a function: what it ran in, and the steps that began inside, for later runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.has_run = False
        self.steps: Dict[Any, List[int]] = {}  # of conversions whose runs began inside
        self.outer = [run.snapshot() for run in here.runs]

    def note(self, conversion: Any, step: int) -> None:
        self.steps.setdefault(conversion, []).append(step)

    def record(self) -> None:
        """The first run begins."""
        self.has_run = True
        here.passages.append(self)

    def end(self) -> None:
        here.passages.remove(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.has_run:
            return self.replay(*args, **kwargs)
        self.record()
        try:
            return self.function(*args, **kwargs)
        finally:
            self.end()

    def replay(self, *args: Any, **kwargs: Any) -> Any:
        """A later run. Where it needs fewer saved tensors than the first, PyTorch ends it by an exception."""
        replayed = _Replay(self)
        runs = [snapshot.resume() for snapshot in self.outer]
        here.passages.append(replayed)
        try:
            return self.function(*args, **kwargs)
        finally:
            here.passages.remove(replayed)
            for run in reversed(runs):
                run.end()


class _Replay:
    """A later run of a passage, which takes the steps of the first in their order."""

    def __init__(self, passage: _Passage) -> None:
        self.left = {conversion: list(steps) for conversion, steps in passage.steps.items()}

    def take(self, conversion: Any, name: str) -> int:
        left = self.left.get(conversion)
        if not left:
            raise _library.error(
                "WRONG_MODEL",
                f"layer '{name}': a checkpointed function runs it in its backward pass, and did not run it "
                "converted in its forward pass. Call apply and remove before the forward pass, and let the "
                "function make the same calls each time",
            )
        return left.pop(0)


def next_step(conversion: Any, name: str) -> int:
    """The number of a run that begins: a new one, or, in a checkpoint's second run, that of the first."""
    recorded = []
    for passage in reversed(here.passages):
        if isinstance(passage, _Replay):
            step = passage.take(conversion, name)
            break
        recorded.append(passage)
    else:
        if conversion.has_draws and is_in_backward():
            raise _library.error(
                "WRONG_MODEL",
                f"layer '{name}' is run in a backward pass, and rounds at random: which forward pass this "
                "repeats is not known, so its draws are not. Use torch.utils.checkpoint, or plan it in bf16",
            )
        step = conversion.count_step()
    for passage in recorded:
        passage.note(conversion, step)
    return step


_current_graph_task = getattr(torch._C, "_current_graph_task_id", None)  # since PyTorch 2.1
_BACKWARD = (torch.autograd.backward.__code__, torch.autograd.grad.__code__)


def is_in_backward() -> bool:
    """Whether autograd runs on this thread."""
    if _current_graph_task is not None:
        return _current_graph_task() != -1
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _BACKWARD:
            return True
        frame = frame.f_back
    return False


def _wrap_reentrant(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def of_tandem(ctx: Any, run_function: Any, *rest: Any) -> Any:
        return forward(ctx, _Passage(run_function), *rest)

    return of_tandem


def _wrap_function(checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch 1.13: a function that runs what it is given, at once and again."""

    @functools.wraps(checkpoint)
    def of_tandem(function: Any, *rest: Any, **kwargs: Any) -> Any:
        return checkpoint(_Passage(function), *rest, **kwargs)

    return of_tandem


def _wrap_generator(generator: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch 2: its caller runs the function where it yields, and it runs what it is given again."""

    @functools.wraps(generator)
    def of_tandem(fn: Any, *rest: Any, **kwargs: Any) -> Any:
        passage = _Passage(fn)
        inner = generator(passage.replay, *rest, **kwargs)
        next(inner)
        passage.record()
        try:
            yield
        finally:
            passage.end()
        yield from inner

    return of_tandem


@functools.lru_cache(maxsize=None)
def follow_checkpoints() -> None:
    """Wraps PyTorch's checkpoints, once."""
    reentrant = checkpoints.CheckpointFunction
    reentrant.forward = staticmethod(_wrap_reentrant(reentrant.forward))
    for name, wrap in (
        ("_checkpoint_without_reentrant", _wrap_function),
        ("_checkpoint_without_reentrant_generator", _wrap_generator),
    ):
        if hasattr(checkpoints, name):
            setattr(checkpoints, name, wrap(getattr(checkpoints, name)))
