"""Holds a module still: what a probe changes of it, and of random numbers, is put back at the end."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Any, Dict, Iterator, List, Tuple

import torch

from tandem import _library
from tandem._apply import unconverted


def random_state() -> Dict[str, Any]:
    """Of all generators that a module may draw from: PyTorch's, Python's, and NumPy's where it is loaded."""
    state = {"cpu": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        state["numpy"] = sys.modules["numpy"].random.get_state()
    return state


def set_random_state(state: Dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    random.setstate(state["python"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        sys.modules["numpy"].random.set_state(state["numpy"])


def seed_random(seed: int) -> None:
    """Begins all these generators anew."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)


class Held:
    """Weights, buffers and random numbers of a module as they were, to run it again from there.

    Memory: a copy of the buffers, and of the weights once `keep_weights` was called: before they are moved.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.parameters = [one for one in module.parameters() if one.requires_grad]
        self.weights: List[torch.Tensor] = []
        self._buffers: List[Tuple[Dict[str, Any], str, Any, Any]] = [
            (child._buffers, name, buffer, None if buffer is None else buffer.detach().clone())
            for child in module.modules()
            for name, buffer in child._buffers.items()
        ]
        self.random = random_state()

    def keep_weights(self) -> None:
        self.weights = [one.detach().clone() for one in self.parameters]

    def put_buffers(self) -> None:
        """The buffers' numbers, in the tensors that they were in."""
        for buffers, name, buffer, value in self._buffers:
            buffers[name] = buffer
            if buffer is not None:
                buffer.detach().copy_(value)

    def put_weights(self) -> None:
        with torch.no_grad():
            for parameter, weight in zip(self.parameters, self.weights):
                parameter.copy_(weight)

    def note_random(self) -> None:
        """What `put_random` goes back to: the present state."""
        self._noted = random_state()

    def put_random(self) -> None:
        set_random_state(self._noted)

    def put_back(self) -> None:
        self.put_weights()
        self.put_buffers()
        set_random_state(self.random)


def _check_weights(module: torch.nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter.dtype not in (torch.float32, torch.float64):
            raise _library.error(
                "USAGE",
                f"'{name}' is {parameter.dtype}: an estimate moves weights by less than it holds; allowed are "
                "torch.float32 and torch.float64. Estimate the module before .half() or .bfloat16()",
            )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise _library.error(
            "USAGE", f"no parameter of {type(module).__name__} needs a gradient; an estimate needs 1 or more"
        )


@contextlib.contextmanager
def held(module: torch.nn.Module) -> Iterator[Held]:
    """Trains and moves a module inside; afterwards weights, buffers, gradients, modes, what `apply` has put
    there, and random numbers are as before, to the bit, also after an exception."""
    _check_weights(module)
    made = Held(module)
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    modes = [(child, child.training) for child in module.modules()]
    for parameter, _ in gradients:
        parameter.grad = None
    if not module.training:
        module.train()
    try:
        with unconverted(module):
            yield made
    finally:
        made.put_back()
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for child, mode in modes:
            child.training = mode
