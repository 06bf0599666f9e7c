"""One training of a trial: a copy of a module in the base precision or under a plan, and what decides it."""

from __future__ import annotations

import copy
import ctypes
import hashlib
import itertools
import json
import math
import random
import re
import time
from ctypes import c_double
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from tandem import _library
from tandem._apply import applied, apply, remove
from tandem._capture import as_inputs, split_batch, tensors_in
from tandem._held import seed_random
from tandem._plan import Plan

Batches = Union[Sequence[Any], Callable[[int], Iterable[Any]]]
MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
Show = Callable[[str, int, int, float, float], None]  # kind, pair, steps that are done, loss, seconds
SCHEMA = "tandem.trial_branch/1"
BASE, PLAN = "base", "plan"
FEWER = "there are fewer batches than steps: they come again in another order"


@dataclass
class Branch:
    """One training, as a line of the file to resume from has it."""

    kind: str
    pair: int
    seed: int
    steps: int
    losses: List[float]  # those that were finite: fewer than `steps` where it diverged
    held_out: Optional[float]
    held_out_in_base: Optional[float]
    seconds: float
    data: str  # a hash of the first batch

    @property
    def has_diverged(self) -> bool:
        return len(self.losses) < self.steps

    def c_losses(self) -> Any:
        return (c_double * self.steps)(*self.losses, *[math.nan] * (self.steps - len(self.losses)))


def seed_of(seed: int, number: int) -> int:
    """The seed of a pair, and of what follows from it: 63 bits."""
    digest = hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def is_sequence(batches: Any) -> bool:
    return hasattr(batches, "__getitem__") and hasattr(batches, "__len__")


def _in_order(given: Batches, seed: int, note: Callable[[str], None]) -> Iterator[Any]:
    """The batches of a branch, without end: after the last one they come again in another order."""
    order = random.Random(seed)
    for again in itertools.count():
        n_before = -1
        if is_sequence(given):
            places = list(range(len(given)))  # type: ignore[arg-type]
            order.shuffle(places)
            batches: Iterable[Any] = (given[place] for place in places)  # type: ignore[index]
        else:
            batches = given(seed_of(seed, again) if again else seed)  # type: ignore[operator]
        for n_before, batch in enumerate(batches):
            if again and n_before == 0:
                note(FEWER)
            yield batch
        if n_before < 0:
            after = " again: it must give a new iterator each time" if again else ""
            raise _library.error("USAGE", f"batches gave none{after}; a branch needs 1 or more")


def _add_tensor(hashed: Any, name: str, tensor: torch.Tensor) -> None:
    here = tensor.detach().cpu().contiguous()
    hashed.update(f"{name} {tuple(here.shape)} {here.dtype} {tensor.device.type}\n".encode())
    size = here.numel() * here.element_size()
    if size:
        hashed.update((ctypes.c_char * size).from_address(here.data_ptr()))


def _hash_of(tensors: Iterable[Tuple[str, torch.Tensor]], *texts: str) -> str:
    hashed = hashlib.blake2b("\n".join(texts).encode(), digest_size=16)
    for name, tensor in tensors:
        _add_tensor(hashed, name, tensor)
    return hashed.hexdigest()


def _hash_of_batch(batch: Any) -> str:
    """Empty where it has no tensors that are known."""
    tensors = tensors_in(batch)
    return _hash_of((str(k), one) for k, one in enumerate(tensors)) if tensors else ""


def _text_of(value: Any) -> str:
    """What a thing says of itself, without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def copy_of(module: torch.nn.Module) -> torch.nn.Module:
    """A copy to train, unconverted."""
    try:
        made = copy.deepcopy(module)
    except (RuntimeError, TypeError) as failed:
        raise _library.error(
            "USAGE",
            f"{type(module).__name__} cannot be copied, and a trial trains copies: {failed}. Give one that "
            "copy.deepcopy takes",
        ) from failed
    remove(made)
    if not made.training:
        made.train()
    return made


def optimizer_of(
    given: Union[torch.optim.Optimizer, MakeOptimizer], module: torch.nn.Module, made: torch.nn.Module
) -> torch.optim.Optimizer:
    """One for a copy of the module; where one was given, with its state."""
    if not isinstance(given, torch.optim.Optimizer):
        return given([one for one in made.parameters() if one.requires_grad])
    of = dict(zip(map(id, module.parameters()), made.parameters()))
    if not all(id(one) in of for group in given.param_groups for one in group["params"]):
        raise _library.error(
            "USAGE", "the optimizer has parameters that are not the module's; give one that trains the module"
        )
    groups = [{**group, "params": [of[id(one)] for one in group["params"]]} for group in given.param_groups]
    optimizer = type(given)(groups)  # type: ignore[call-arg]
    optimizer.load_state_dict(copy.deepcopy(given.state_dict()))
    return optimizer


@dataclass
class Asked:
    """What compare_loss was given."""

    module: torch.nn.Module
    plan: Any
    batches: Batches
    loss: Callable[..., torch.Tensor]
    optimizer: Union[torch.optim.Optimizer, MakeOptimizer]
    schedule: Optional[Callable[[torch.optim.Optimizer], Any]]
    held_out: Optional[Iterable[Any]]
    base: str
    pairs: int
    at_most: Optional[float]
    steps: int
    seed: int
    rank: int

    @property
    def plan_name(self) -> str:
        if isinstance(self.plan, Plan):
            return self.plan.name
        return self.plan if isinstance(self.plan, str) else "by hand"


def hash_of_asked(asked: Asked) -> str:
    """Of what all branches have in common, which are large: weights and the batches held out."""
    seed_random(asked.seed)
    state = asked.module.state_dict(keep_vars=True).items()
    tensors = [(name, one) for name, one in state if isinstance(one, torch.Tensor)]
    held_out = [_hash_of_batch(given) for given in asked.held_out or ()]
    return _hash_of(tensors, _text_of(asked.module), *held_out)


class Training:
    """One training: a copy of the module in the precisions of its branch, and all that it draws from."""

    def __init__(self, asked: Asked, kind: str, pair: int, note: Callable[[str], None]) -> None:
        self.asked, self.kind, self.pair = asked, kind, pair
        self.seed = seed_of(asked.seed, pair)
        self.module = copy_of(asked.module)
        self.convert(asked.base if kind == BASE else asked.plan)
        self.optimizer = optimizer_of(asked.optimizer, asked.module, self.module)
        self.schedule = asked.schedule(self.optimizer) if asked.schedule else None
        seed_random(self.seed)
        batches = _in_order(asked.batches, self.seed, note)
        first = next(batches)
        self.data = _hash_of_batch(first)
        self.batches = itertools.chain([first], batches)

    def convert(self, plan: Any) -> None:
        if plan != "fp32":
            apply(self.module, plan, rank=self.asked.rank, seed=self.seed)

    def hash(self, common: str) -> str:
        """Of all that is known to decide the losses."""
        asked, state = self.asked, self.optimizer.state_dict()["state"]
        given = (asked.loss, asked.schedule, self.schedule and self.schedule.state_dict())
        texts = [
            common,
            self.data,
            json.dumps([self.kind, asked.base, self.seed, asked.steps, asked.rank]),
            json.dumps(applied(self.module), sort_keys=True),
            *map(_text_of, (self.optimizer, *given)),
        ]
        tensors = [
            (f"{k} {name}", one if isinstance(one, torch.Tensor) else torch.tensor(float(one)))
            for k, of in state.items()
            for name, one in of.items()
            if isinstance(one, (torch.Tensor, int, float))
        ]
        return _hash_of(tensors, *texts)

    def loss_of(self, given: Any) -> torch.Tensor:
        inputs, target = split_batch(given, self.asked.loss)
        args, kwargs = as_inputs(inputs)
        output = self.module(*args, **kwargs)
        return self.asked.loss(output) if target is None else self.asked.loss(output, target)

    def _has_finite_weights(self) -> bool:
        return all(bool(torch.isfinite(one).all()) for one in self.module.parameters())

    def _step(self, given: Any) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        value = self.loss_of(given)
        number = float(value.detach())
        if math.isfinite(number):
            value.backward()
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()
        return number

    def train(self, show: Show) -> List[float]:
        """The losses, to the last one that is finite."""
        losses: List[float] = []
        begin = time.perf_counter()
        with torch.enable_grad():
            for given in itertools.islice(self.batches, self.asked.steps):
                try:
                    loss = self._step(given)
                except Exception:  # of a loss that refuses what is not finite
                    if self._has_finite_weights():
                        raise
                    loss = math.nan
                if not math.isfinite(loss):
                    break
                losses.append(loss)
                show(self.kind, self.pair, len(losses), loss, time.perf_counter() - begin)
        return losses

    def evaluate(self) -> Optional[float]:
        """The mean loss of the batches held out; None where it is not finite."""
        self.module.eval()
        seed_random(self.seed)
        with torch.no_grad():
            losses = [float(self.loss_of(given)) for given in self.asked.held_out or ()]
        mean = sum(losses) / len(losses)
        return mean if math.isfinite(mean) else None

    def run(self, show: Show) -> Branch:
        begin, asked, held_out, in_base = time.perf_counter(), self.asked, None, None
        losses = self.train(show)
        if asked.held_out is not None and len(losses) == asked.steps:
            held_out = self.evaluate()
            if self.kind == PLAN:
                remove(self.module)
                self.convert(asked.base)
                in_base = self.evaluate()
        seconds = time.perf_counter() - begin
        return Branch(
            self.kind, self.pair, self.seed, asked.steps, losses, held_out, in_base, seconds, self.data
        )
