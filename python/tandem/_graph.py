"""Recordings of modules: what a module calls, as a graph that can be planned."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from ctypes import addressof, byref, c_int, c_int64, pointer
from dataclasses import asdict, dataclass, field, fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from tandem import _library
from tandem._structs import OPERATORS, GraphStruct, OptimizerOptions, RecordedBlock, RecordedCall, RecordedGraph
from tandem._structs import KEEPS_SECOND, MemoryStruct, RecordedMemory, RecordedProduct, RecordedReader, Shape, StepOptions

if TYPE_CHECKING:
    import torch

SCHEMA = "tandem.recording/1"
NAME_LENGTH = 47
_NUMBER = re.compile(r"\d+")


def _shape_of(dims: Sequence[int]) -> Shape:
    return Shape(len(dims), (c_int64 * 4)(*dims))


@dataclass
class Call:
    """One call of a module's forward pass.

    `kind` is "linear", "conv2d" or "matmul" for the calls that carry a precision, "call" for all others.
    Shapes are those of the graph: images as (batch, height, width, channels).
    """

    name: str
    kind: str
    text: str
    input: Tuple[int, ...] = ()
    second: Tuple[int, ...] = ()
    shape: Tuple[int, ...] = ()
    kernel: int = 0
    stride: int = 0
    pad: int = 0
    transpose_b: int = 0
    weight: Optional[str] = None  # the parameter that it owns
    parameters: Tuple[str, ...] = ()  # all whose gradients are complete after it
    elements: int = 0  # of these
    operator: str = ""  # its name in the C graph, which has at most 47 characters
    # by which the sizes of input, second and shape and the numbers in the text grow with each sample; of a call
    # without a precision in the place of its shape the number of elements
    growth: Tuple[Tuple[float, ...], ...] = ()

    @property
    def adjustable(self) -> bool:
        """Whether a plan gives it a precision."""
        return self.kind != "call"

    def note_growth(self, other: "Call", more: int) -> bool:
        """From the same call with `more` samples less; False: they are not alike."""
        pairs = list(zip(self._sizes(), other._sizes()))
        if any(len(a) != len(b) for a, b in pairs):
            return False
        self.growth = tuple(tuple((a - b) / more for a, b in zip(*pair)) for pair in pairs)
        return True

    def _sizes(self) -> Tuple[Tuple[int, ...], ...]:
        """What grows. The result of a call without a precision is known by its number of elements."""
        shape = self.shape if self.adjustable else (prod(self.shape),)
        return self.input, self.second, shape, tuple(map(int, _NUMBER.findall(self.text)))

    def grown(self, more: int, batch: int) -> "Call":
        """With `more` samples: `batch`."""
        if not self.growth:
            return self
        grown = [
            tuple(round(size + more * growth) for size, growth in zip(sizes, growths))
            for sizes, growths in zip(self._sizes(), self.growth)
        ]
        if any(size < 1 for sizes in grown[:3] for size in sizes):
            raise _library.error("USAGE", f"'{self.name}' has no sizes above 0 at batch {batch}")
        shape = grown[2] if self.adjustable else rows_of(grown[2][0], batch)
        numbers = iter(grown[3])
        text = _NUMBER.sub(lambda _: str(next(numbers)), self.text)
        return replace(self, input=grown[0], second=grown[1], shape=shape, text=text)


def rows_of(elements: int, batch: int) -> Tuple[int, int]:
    """So many elements as rows of a batch, or, where they are no such rows, as one."""
    return (batch, elements // batch) if elements % batch == 0 else (1, elements)


@dataclass
class Block:
    """Memory that a step allocates at event `born` and releases at event `freed`."""

    bytes: int
    a_sample: float = 0.0  # by which it grows with the batch
    born: int = 0
    freed: int = -1
    rest: int = -1  # the last event at which anything but the products of `readers` reads it; −1: none
    is_gradient: bool = False  # a parameter's `grad`, which stays
    # product → the last event at which its backward pass reads it, and as what (C's tandem_recorded_role)
    readers: Dict[int, Tuple[int, int]] = field(default_factory=dict)

    def finish(self, n_event: int, number: Dict[int, int]) -> "Block":
        """With all products numbered as a plan has them: those that it lacks are readers as any other."""
        if self.freed < 0:
            self.freed = n_event
        for product, (event, role) in self.readers.items():
            if product not in number and role != KEEPS_SECOND:
                self.rest = max(self.rest, event)
        self.readers = {number[one]: what for one, what in self.readers.items() if one in number}
        return self

    def to_json(self) -> List[Any]:
        readers = [[product, event, role] for product, (event, role) in self.readers.items()]
        first = [self.bytes, self.a_sample, self.born, self.freed, self.rest, int(self.is_gradient)]
        return [*first, readers]

    @classmethod
    def from_json(cls, row: List[Any]) -> "Block":
        size, a_sample, born, freed, rest, is_gradient, readers = row
        found = {product: (event, role) for product, event, role in readers}
        return cls(size, float(a_sample), born, freed, rest, bool(is_gradient), found)


class Span(NamedTuple):
    """The events at which the passes of a product begin and end; −1: it has no backward pass of its own."""

    call: int  # its number in the graph
    forward: int
    forward_end: int
    backward: int
    backward_end: int
    copies: int = 0  # of a convolution's input and gradient (C's TANDEM_COPIES_…)


@dataclass
class StepMemory:
    """What PyTorch allocates in a training step of a module: in the order of events, from its profiler."""

    batch: int
    other_batch: int  # at which a step was run, too, for the bytes a sample; 0: they are not known
    n_event: int
    backward: int  # the event at which the backward pass begins
    weights: int  # bytes of parameters and buffers
    trained: int  # bytes of the parameters that have gradients
    largest: int  # of these parameters
    keeps_gradients: bool  # whether gradients stay in memory from step to step
    has_fast_bf16: bool  # whether products in bf16 are of bf16 here, or of float32
    products: List[Span] = field(default_factory=list)
    blocks: List[Block] = field(default_factory=list)
    # of the same step with images in the order that converted convolutions give them; None: it is no other
    channels_last: "Optional[StepMemory]" = None

    def at_batch(self, batch: int) -> "StepMemory":
        more = batch - self.batch
        blocks = [replace(one, bytes=max(0, round(one.bytes + one.a_sample * more))) for one in self.blocks]
        last = None if self.channels_last is None else self.channels_last.at_batch(batch)
        return replace(self, batch=batch, blocks=blocks, channels_last=last)

    def to_json(self) -> Dict[str, Any]:
        members = {one.name: getattr(self, one.name) for one in fields(self)}
        blocks = [block.to_json() for block in self.blocks]
        last = None if self.channels_last is None else self.channels_last.to_json()
        products = [list(span) for span in self.products]
        return {**members, "products": products, "blocks": blocks, "channels_last": last}

    @classmethod
    def from_json(cls, members: Dict[str, Any]) -> "StepMemory":
        made = cls(**members)
        made.products = [Span(*row) for row in made.products]
        made.blocks = [Block.from_json(row) for row in made.blocks]
        if made.channels_last:
            made.channels_last = cls.from_json(made.channels_last)
        return made


@dataclass
class PeakMemory:
    """Bytes that a rank has allocated at the peak of a step."""

    weights: int  # parameters and buffers
    gradients: int  # of parameters, and DistributedDataParallel's buckets
    optimizer: int  # its state
    activations: int  # made in the forward pass, and there at the peak
    weight_copies: int  # in low precision
    activation_gradients: int  # made in the backward pass
    workspace: int  # of products in low precision, or of the update

    @property
    def total(self) -> int:
        return sum(getattr(self, one.name) for one in fields(self))

    def __str__(self) -> str:
        parts = [(one.name.replace("_", " "), getattr(self, one.name)) for one in fields(self)]
        rows = [("peak", self.total), *((name, size) for name, size in parts if size)]
        return "\n".join(f"{name:<20} {size / 2**20:10.2f} MiB" for name, size in rows)


_STATES = ("SGD", "Adam", "AdamW", "NAdam", "RAdam")  # optimizers whose state is known


def _options_of(optimizer: "torch.optim.Optimizer") -> Dict[str, Any]:
    """An optimizer whose memory is known, in the C library's terms."""
    from tandem._capture import optimizer_options  # which imports PyTorch

    name, groups = type(optimizer).__name__, getattr(optimizer, "param_groups", [{}])
    why = ""
    if any(group.get("amsgrad") for group in groups):
        why = " with amsgrad"
    elif len({bool(group.get("momentum")) for group in groups}) > 1:
        why = " whose groups differ in momentum"
    if name not in _STATES or why:
        raise _library.error("USAGE", f"the memory of {name}{why} is not known; that of {', '.join(_STATES)} is")
    return optimizer_options(optimizer)


def short_name(name: str) -> str:
    """`name` in at most 47 of the characters that operators may have; equal names stay equal."""
    clean = re.sub(r"[^A-Za-z0-9._/-]", "_", name)
    if clean == name and len(name) <= NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{clean[:8]}-{digest}-{clean[-(NAME_LENGTH - 16):]}"


class _COwned(_library.Owned):
    def __init__(self) -> None:
        super().__init__("tandem", "tandem_graph_close")


@dataclass
class Graph:
    """The training graph of a module, as `capture` recorded it.

    >>> graph = tandem.capture(module, torch.randn(8, 3, 32, 32))
    >>> print(graph)          # its calls, one a line
    >>> graph.save("resnet.graph.json")     # then `tandem allocate --model resnet.graph.json …`
    """

    model: str
    batch: int
    calls: List[Call]
    parameters: Dict[str, Tuple[int, ...]]  # name → shape
    n_prediction: int
    n_class: int
    optimizer: Dict[str, Any] = field(default_factory=lambda: {"kind": "sgd", "rate": 0.01, "momentum": 0.9})
    torch_version: str = ""
    # what a step allocates; `memory_unknown` says why that is not known, or not at other batches
    memory: Optional[StepMemory] = None
    memory_unknown: str = "it was captured without"

    @property
    def adjustable(self) -> List[Call]:
        """The calls that carry a precision."""
        return [call for call in self.calls if call.adjustable]

    @property
    def n_weight(self) -> int:
        """Elements of all parameters that the recorded run used."""
        return sum(call.elements for call in self.calls)

    @property
    def fingerprint(self) -> str:
        """A hash of the parameters' names and shapes: what `apply` compares with the module."""
        return fingerprint_of(self.parameters.items())

    @property
    def hash(self) -> str:
        """The hash of the C graph, which is in plans; independent of the batch."""
        return f"{GraphStruct.from_address(self.c_graph().pointer.value).hash:016x}"

    def find(self, name: str) -> Call:
        """The call of this name."""
        for call in self.calls:
            if call.name == name:
                return call
        raise _library.error(
            "UNKNOWN_NAME",
            f"the graph of {self.model} has no call '{name}'; its adjustable ones are "
            f"{', '.join(call.name for call in self.adjustable)}",
        )

    def at_batch(self, batch: int) -> "Graph":
        """The same module at another local batch, as a capture at that batch would record it.

        >>> tandem.replay(graph.at_batch(64), "8*t4 net=25Gbit/s,10us", predict=True)
        """
        if not isinstance(batch, int) or isinstance(batch, bool) or not 1 <= batch < 1 << 31:
            raise _library.error("USAGE", f"a batch is a whole number from 1 to 2147483647; got {batch!r}")
        if batch == self.batch:
            return self
        if self.memory is None or not self.memory.other_batch:
            why = self.memory_unknown or "a step of another batch did not allocate in the same order"
            raise _library.error(
                "USAGE",
                f"the graph of {self.model} is known at batch {self.batch} alone: "
                f"{why}. Capture the module at batch {batch}",
            )
        calls = [call.grown(batch - self.batch, batch) for call in self.calls]
        return replace(self, batch=batch, calls=calls, memory=self.memory.at_batch(batch))

    def peak_memory(
        self,
        plan: Union[None, str, Dict[str, str]] = None,
        *,
        ranks: int = 1,
        optimizer: "Optional[torch.optim.Optimizer]" = None,
        on_gpu: bool = False,
    ) -> PeakMemory:
        """What PyTorch has allocated at the peak of a training step of one rank, in bytes by category.

            plan       a precision for all calls that have it, or call → precision; the rest is in fp32
            ranks      more than 1: DistributedDataParallel's buckets, too
            optimizer  [the graph's own]
            on_gpu     blocks are rounded up as PyTorch's allocator for GPUs does. Not in it: CUDA's context,
                       workspaces of libraries, and what fragments leave unused: none of these is measured

        >>> graph.at_batch(64).peak_memory("bf16").total
        """
        if self.memory is None:
            raise _library.error("USAGE", f"the memory of {self.model} is not known: {self.memory_unknown}")
        if not isinstance(ranks, int) or ranks < 1:
            raise _library.error("USAGE", f"ranks is a whole number from 1; got {ranks!r}")
        if not (plan is None or isinstance(plan, (str, dict))):
            raise _library.error(
                "USAGE", f"a plan is a precision, a dict from calls to precisions, or None; got {plan!r}"
            )
        if isinstance(plan, dict):
            precision_of = {self.find(name).name: precision for name, precision in plan.items()}
        else:
            precision_of = {call.name: plan or "fp32" for call in self.adjustable}
        graph = self if optimizer is None else replace(self, optimizer=_options_of(optimizer))
        precisions = (c_int * GraphStruct.from_address(graph.c_graph().pointer.value).n_op)()
        for name, precision_name in precision_of.items():
            precision = c_int()
            _library.call("tandem", "tandem_precision_find", byref(precision), precision_name.encode())
            precisions[graph.operator_index(self.find(name).operator)] = precision.value
        found, options = MemoryStruct(), StepOptions(ddp_bucket_memory=ranks > 1, gpu_blocks=on_gpu)
        graph_pointer = graph.c_graph().pointer
        _library.call(
            "tandem", "tandem_memory_of_graph", byref(found), graph_pointer, precisions, byref(options)
        )
        rest = found.arena - found.activations - found.weight_copies - found.activation_gradients
        return PeakMemory(
            found.weights,
            found.gradients,
            found.optimizer,
            found.activations,
            found.weight_copies,
            found.activation_gradients,
            rest,
        )

    def c_graph(self) -> _library.Owned:
        """The graph in C, made once."""
        made = self.__dict__.get("_c_graph")
        if made is None:
            made = self.__dict__["_c_graph"] = self._record()
        return made

    def _record(self) -> _library.Owned:
        calls = (RecordedCall * max(1, len(self.calls)))()
        for to, call in zip(calls, self.calls):
            to.kind = OPERATORS.index(call.kind if call.adjustable else "call")
            to.name, to.text = call.operator.encode(), call.text.encode()
            to.input, to.second, to.shape = _shape_of(call.input), _shape_of(call.second), _shape_of(call.shape)
            to.kernel, to.stride, to.pad, to.transpose_b = (
                call.kernel,
                call.stride,
                call.pad,
                call.transpose_b,
            )
            to.parameter_elements = 0 if call.adjustable else call.elements
        memory = None if self.memory is None else _record_memory(self.memory)
        wanted = self.optimizer
        optimizer = OptimizerOptions(
            1 if wanted["kind"] == "adamw" else 0,
            *(
                float(wanted.get(name, default))
                for name, default in (
                    ("rate", 0.01),
                    ("momentum", 0),
                    ("beta1", 0.9),
                    ("beta2", 0.999),
                    ("epsilon", 1e-8),
                    ("decay", 0),
                )
            ),
        )
        recording = RecordedGraph(
            self.model.encode(),
            self.batch,
            len(self.calls),
            calls,
            self.n_prediction,
            self.n_class,
            optimizer,
            None if memory is None else pointer(memory),
        )
        graph = _COwned()
        _library.call("tandem", "tandem_graph_record", byref(graph.pointer), byref(recording))
        return graph

    def operator_index(self, operator: str) -> int:
        """The number of an operator in the C graph."""
        index = c_int()
        _library.call("tandem", "tandem_graph_find", byref(index), self.c_graph().pointer, operator.encode())
        return index.value

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Writes the recording as JSON, whole or not at all."""
        write_whole(path, json.dumps(self.to_json(), indent=1))

    def to_json(self) -> Dict[str, Any]:
        members = {one.name: getattr(self, one.name) for one in fields(self)}
        memory = None if self.memory is None else self.memory.to_json()
        calls = [asdict(call) for call in self.calls]
        return {"schema": SCHEMA, **members, "calls": calls, "memory": memory}

    @classmethod
    def from_json(cls, members: Any, source: str = "recording") -> "Graph":
        """The recording that `to_json` made."""
        if not isinstance(members, dict) or members.get("schema") != SCHEMA:
            raise _library.error("WRONG_FORMAT", f"'{source}' is no {SCHEMA}")
        try:
            calls = [
                Call(
                    **{
                        name: tuple(map(_as_tuple, value)) if isinstance(value, list) else value
                        for name, value in one.items()
                    }
                )
                for one in members["calls"]
            ]
            graph = cls(
                members["model"],
                int(members["batch"]),
                calls,
                {name: tuple(shape) for name, shape in members["parameters"].items()},
                int(members["n_prediction"]),
                int(members["n_class"]),
                dict(members["optimizer"]),
                str(members["torch_version"]),
                StepMemory.from_json(members["memory"]) if members.get("memory") else None,
                str(members.get("memory_unknown", "")),
            )
            graph.c_graph()  # checks every member
            return graph
        except _library.TandemError as wrong:
            raise _library.error(wrong.status, f"'{source}': {wrong}") from None
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as wrong:
            raise _library.error("MALFORMED", f"'{source}': {wrong!r} in a {SCHEMA}") from None

    @classmethod
    def load(cls, path: "str | os.PathLike[str]") -> "Graph":
        """Reads what `save` wrote."""
        source, members = os.fspath(path), read_json(path)
        try:
            return cls.from_json(members, source)
        except _library.MalformedError:
            batch = members.get("batch") if isinstance(members, dict) else None
            if source.endswith(".json") and isinstance(batch, int):  # as the command line says it
                opened = byref(_COwned().pointer)
                _library.call("tandem", "tandem_graph_open", opened, source.encode(), c_int64(batch))
            raise

    def __repr__(self) -> str:
        return (
            f"<tandem.Graph of {self.model}: batch {self.batch}, {len(self.calls)} calls, "
            f"{len(self.adjustable)} with a "
            f"precision, {self.n_weight:,} weights>"
        )

    def __str__(self) -> str:
        width = max((len(call.name) for call in self.calls), default=4)
        lines = [repr(self)[1:-1]]
        for call in self.calls:
            shape = "x".join(map(str, call.shape))
            weights = f"  {call.elements:,} weights" if call.elements else ""
            lines.append(
                f"  {call.name:<{width}}  {call.kind if call.adjustable else call.text}  -> {shape}{weights}"
            )
        return "\n".join(lines)


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _record_memory(memory: StepMemory) -> RecordedMemory:
    """In C's members; the arrays live as long as what is returned."""
    readers = [
        (product, event, role)
        for block in memory.blocks
        for product, (event, role) in block.readers.items()
    ]
    made = RecordedMemory(
        weight_bytes=memory.weights,
        trained_bytes=memory.trained,
        largest_bytes=memory.largest,
        has_growth=memory.other_batch > 0,
        keeps_gradients=memory.keeps_gradients,
        has_fast_bf16=memory.has_fast_bf16,
        n_event=memory.n_event,
        backward=memory.backward,
        n_block=len(memory.blocks),
        n_reader=len(readers),
        n_product=len(memory.products),
    )
    blocks, first = (RecordedBlock * max(1, len(memory.blocks)))(), 0
    for to, block in zip(blocks, memory.blocks):
        to.bytes, to.born, to.freed, to.rest = block.bytes, block.born, block.freed, block.rest
        to.is_gradient, to.first_reader, to.n_reader = block.is_gradient, first, len(block.readers)
        first += len(block.readers)
    made.block = blocks
    made.reader = (RecordedReader * max(1, len(readers)))(*readers)
    made.product = (RecordedProduct * max(1, len(memory.products)))(*(tuple(one) for one in memory.products))
    if memory.channels_last is not None:
        made.last_memory = _record_memory(memory.channels_last)  # which an address does not keep
        made.channels_last = addressof(made.last_memory)
    return made


def fingerprint_of(parameters: Iterable[Tuple[str, Any]]) -> str:
    """The hash of parameters' names and shapes."""
    text = "\n".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in sorted(parameters))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_whole(path: "str | os.PathLike[str]", text: str) -> None:
    """Writes a file whole or not at all. A link that lies at the path is replaced, not followed."""
    temporary = os.path.join(os.path.dirname(os.fspath(path)), f".tandem-{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with open(os.open(temporary, flags, 0o666), "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def read_json(path: "str | os.PathLike[str]") -> Any:
    """The content of a JSON file."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as failed:
        raise type(failed)(f"'{os.fspath(path)}' cannot be read: {failed.strerror}") from None
    except (ValueError, RecursionError) as wrong:
        raise _library.error("MALFORMED", f"'{os.fspath(path)}' is no JSON: {wrong}") from None


__all__ = ["Call", "Graph", "c_int64"]
