"""Recordings of modules: what a module calls, as a graph that can be planned."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from ctypes import byref, c_int, c_int64
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence, Tuple

from tandem import _library
from tandem._structs import OPERATORS, GraphStruct, OptimizerOptions, RecordedCall, RecordedGraph, Shape

if TYPE_CHECKING:
    import torch

SCHEMA = "tandem.recording/1"
NAME_LENGTH = 47
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

    @property
    def adjustable(self) -> bool:
        """Whether a plan gives it a precision."""
        return self.kind != "call"


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
        members = {name: value for name, value in asdict(self).items()}
        return {"schema": SCHEMA, **members}

    @classmethod
    def from_json(cls, members: Any, source: str = "recording") -> "Graph":
        """The recording that `to_json` made."""
        if not isinstance(members, dict) or members.get("schema") != SCHEMA:
            raise _library.error("WRONG_FORMAT", f"'{source}' is no {SCHEMA}")
        try:
            calls = [
                Call(
                    **{
                        name: tuple(value) if isinstance(value, list) else value
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
