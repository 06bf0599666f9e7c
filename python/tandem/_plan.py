"""Plans: the precision of every call on every device, what they cost, and how good they are."""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from tandem import _library
from tandem._graph import Graph, _COwned, read_json, write_whole
from tandem._recorded import RecordedRank, Trace, read_trace
from tandem._sensed import Estimate, Sensed, load, price_of
from tandem._structs import (
    MINIMIZE_SENSITIVITY,
    MINIMIZE_STEP,
    MINIMIZE_TRAINING_TIME,
    PRECISIONS,
    Allocation,
    Cluster,
    Goal,
    PlannedStep,
    Problem,
    Request,
)

Model = Union[str, Graph, Sequence[Graph]]
SCHEMA = "tandem.module_plan/1"
C_SCHEMA = "tandem.plan/1"  # of the command line and the C libraries


def default_store() -> str:
    """The profile store: TANDEM_DB, or tandem.db in the working folder, as on the command line."""
    return os.environ.get("TANDEM_DB", "tandem.db")


def time_text(seconds: float) -> str:
    """A time with its unit: "3.21 ms"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _bytes_text(size: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.3g} {unit}"
    return f"{size} B"


def _price_text(of: "Union[Plan, Replay]") -> str:
    return Estimate(of.sensitivity or 0.0, of.sensitivity_low, of.sensitivity_high).price


@dataclass
class ClassTimes:
    """One step of the ranks of one class; times in seconds for each rank."""

    device: str
    ranks: int
    batch: int
    busy: float
    exposed_comm: float
    idle: float
    memory_bytes: Optional[int]  # as tandem's executor needs it; None for modules, which PyTorch runs
    samples: int  # of all its ranks, in one step


@dataclass
class Replay:
    """One simulated training step."""

    model: str
    plan: str
    step: float  # seconds
    classes: List[ClassTimes]
    measured: float  # share of the compute time that was measured; the rest is interpolated or predicted
    recorded: Optional[List[RecordedRank]] = None  # of the traces that were given
    # What the plan costs, in percent of more samples to the same loss, and its 95 % interval; None: the model
    # was not sensed
    sensitivity: Optional[float] = None
    sensitivity_low: Optional[float] = None
    sensitivity_high: Optional[float] = None

    @property
    def recorded_step(self) -> Optional[float]:
        """The step of the slowest rank in the traces, seconds."""
        return max(one.step for one in self.recorded) if self.recorded else None

    @property
    def error(self) -> Optional[float]:
        """(step − recorded) / recorded."""
        return self.step / self.recorded_step - 1 if self.recorded_step else None

    @property
    def samples_per_second(self) -> float:
        """Of all ranks together."""
        return sum(one.samples for one in self.classes) / self.step if self.step else math.inf

    def __str__(self) -> str:
        lines = [
            f"{self.model}, {self.plan}: step {time_text(self.step)}, {self.samples_per_second:.4g} samples/s"
        ]
        for one in self.classes:
            memory = f", memory {_bytes_text(one.memory_bytes)}" if one.memory_bytes is not None else ""
            lines.append(
                f"  {one.ranks} x {one.device}, batch {one.batch}: busy {time_text(one.busy)}, exposed "
                f"communication {time_text(one.exposed_comm)}, idle {time_text(one.idle)}{memory}"
            )
        lines.append(f"  {100 * self.measured:.0f} % of the compute time was measured")
        if self.sensitivity is not None:
            lines.append(f"  sensitivity {_price_text(self)}")
        for rank in self.recorded or []:
            lines.append(
                f"  rank {rank.rank} recorded: step {time_text(rank.step)}, "
                f"compute {time_text(rank.compute)}, "
                f"exposed communication {time_text(rank.exposed_comm)}, idle {time_text(rank.idle)}"
            )
        if self.error is not None:
            lines.append(f"  error of the replay: {100 * self.error:+.1f} %")
        return "\n".join(lines)


@dataclass
class PlanClass:
    """The ranks of one device: their precisions by the name of the call."""

    device: str
    ranks: int
    batch: int
    precision: Dict[str, str]

    def counts(self) -> Dict[str, int]:
        """How many calls have each precision."""
        found: Dict[str, int] = {}
        for name in self.precision.values():
            found[name] = found.get(name, 0) + 1
        return found


@dataclass
class Plan:
    """A precision for every adjustable call on every class of ranks.

    >>> plan = tandem.allocate(graph, "torch:fast + torch:slow net=10Gbit/s,20us")
    >>> print(plan)
    >>> plan.save("plan.json"); plan = tandem.Plan.load("plan.json")
    >>> plan.precision(rank=1)["layer1.0.conv1"]
    'int8_full'
    """

    name: str
    model: str
    cluster: str
    classes: List[PlanClass]
    hash: str  # of the graph
    step: Optional[float] = None  # seconds, predicted
    base_step: Optional[float] = None  # all in base precision
    # In percent of more samples to the same loss, and its 95 % interval; None: the model was not sensed
    sensitivity: Optional[float] = None
    sensitivity_low: Optional[float] = None
    sensitivity_high: Optional[float] = None
    sensitivity_bound: Optional[float] = None  # the sum over calls that was minimized, in the method's unit
    lower_bound: Optional[float] = None  # no plan as fast has a smaller sum
    gap: Optional[float] = None  # at most this share could be saved
    proof: str = ""
    graph: Optional[Graph] = None  # of a module
    text: str = field(default="", repr=False)  # tandem.plan/1

    def _sum_text(self) -> str:
        """The price, where it is known, else the sum."""
        known = self.sensitivity is not None
        return _price_text(self) if known else f"{self.sensitivity_bound:.2g}{self._unit()}"

    def _unit(self) -> str:
        """What follows the sensitivity: " %" of more samples, " nats", or nothing."""
        method = json.loads(self.text).get("method") if self.text else None
        return {"sampled": " %", "fisher": " nats"}.get(method or "", "")

    @property
    def n_rank(self) -> int:
        return sum(one.ranks for one in self.classes)

    def class_of(self, rank: int) -> PlanClass:
        """The class of a global rank; ranks are numbered class by class."""
        first = rank
        for one in self.classes:
            if 0 <= first < one.ranks:
                return one
            first -= one.ranks
        raise _library.error(
            "WRONG_MODEL",
            f"the plan is for ranks 0 to {self.n_rank - 1} ({self.cluster}); there is no "
            f"rank {rank} in it",
        )

    def precision(self, rank: int = 0) -> Dict[str, str]:
        """The precision of every adjustable call on a rank."""
        return self.class_of(rank).precision

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Writes the plan, with its graph where it is of a module, whole or not at all."""
        if self.graph is None:
            write_whole(path, self.text.rstrip("\n"))
            return
        members = {
            name: getattr(self, name)
            for name in (
                "name",
                "model",
                "cluster",
                "hash",
                "step",
                "base_step",
                "sensitivity",
                "sensitivity_low",
                "sensitivity_high",
                "sensitivity_bound",
                "lower_bound",
                "gap",
                "proof",
            )
        }
        members["classes"] = [vars(one) for one in self.classes]
        write_whole(
            path, json.dumps({"schema": SCHEMA, "plan": members, "graph": self.graph.to_json()}, indent=1)
        )

    @classmethod
    def load(cls, path: "str | os.PathLike[str]") -> "Plan":
        """Reads what `save` wrote, or what `tandem allocate --model FILE.json -o` made of a saved graph."""
        read = read_json(path)
        schema = read.get("schema") if isinstance(read, dict) else None
        if schema not in (SCHEMA, C_SCHEMA):
            raise _library.error("WRONG_FORMAT", f"'{os.fspath(path)}' is no plan of a module ({SCHEMA})")
        try:
            if schema == SCHEMA:
                plan, graph = cls._from_module_plan(read, os.fspath(path))
            else:
                plan, graph = cls._from_c_plan(read, os.fspath(path))
        except (KeyError, TypeError, ValueError, AttributeError) as wrong:
            if isinstance(wrong, _library.TandemError):
                raise
            raise _library.error("MALFORMED", f"'{os.fspath(path)}': {wrong!r} in a {schema}") from None
        if graph.hash != plan.hash:
            raise _library.error(
                "WRONG_MODEL",
                f"'{os.fspath(path)}': its graph has the hash {graph.hash}, the plan was made "
                f"for {plan.hash}",
            )
        known = {call.name for call in graph.adjustable}
        for one in plan.classes:
            for name, precision in one.precision.items():
                if name not in known or precision not in PRECISIONS:
                    raise _library.error(
                        "MALFORMED",
                        f"'{os.fspath(path)}': '{name}': '{precision}' is no call of the graph in "
                        f"one of {', '.join(PRECISIONS)}",
                    )
        return plan

    @classmethod
    def _from_module_plan(cls, read: Dict[str, Any], path: str) -> "Tuple[Plan, Graph]":
        members = dict(read["plan"])
        classes = [
            PlanClass(str(one["device"]), int(one["ranks"]), int(one["batch"]), dict(one["precision"]))
            for one in members.pop("classes")
        ]
        graph = Graph.from_json(read["graph"], path)
        return cls(classes=classes, graph=graph, **members), graph

    @classmethod
    def _from_c_plan(cls, read: Dict[str, Any], path: str) -> "Tuple[Plan, Graph]":
        """A plan of the command line names the file of its graph; its calls have the names in C."""
        if not str(read["model"]).endswith(".json"):
            raise _library.error(
                "WRONG_MODEL",
                f"'{path}' is a plan of {read['model']}; apply needs one of a captured module (Graph.save)",
            )
        graph = Graph.load(read["model"])
        name_of = {call.operator: call.name for call in graph.adjustable}
        classes, words = [], []
        for one in read["classes"]:
            precision = {name_of.get(name, name): value for name, value in one["precision"].items()}
            classes.append(PlanClass(one["device"], int(one["ranks"]), int(one["batch"]), precision))
            per_node = f"@{one['per_node']}" if one.get("per_node") else ""
            words.append(f"{one['ranks']}*{one['device']}{per_node} batch={one['batch']}")
        net = f" net={read['net']}" if read.get("net") else ""
        plan = cls(
            name=read["name"],
            model=graph.model,
            cluster=" + ".join(words) + net,
            classes=classes,
            hash=read["graph_hash"],
            step=read["step_ns"] * 1e-9 if read.get("step_ns") else None,
            sensitivity_bound=read.get("sensitivity_bound"),
            lower_bound=read.get("lower_bound"),
            gap=read.get("gap"),
            proof=read.get("proof", ""),
            graph=graph,
            text=json.dumps(read),
        )
        return plan, graph

    def __str__(self) -> str:
        lines = [f"{self.name} plan of {self.model} on {self.cluster}"]
        if self.step is not None:
            base = f" (all in base precision: {time_text(self.base_step)})" if self.base_step else ""
            lines[0] += f": step {time_text(self.step)}{base}"
        for one in self.classes:
            counts = ", ".join(
                f"{n} {name}" for name, n in sorted(one.counts().items(), key=lambda pair: -pair[1])
            )
            lines.append(f"  {one.ranks} x {one.device}, batch {one.batch}: {counts}")
        if self.sensitivity_bound is not None:
            bound = (
                "no bound was computed"
                if self.gap is None
                else f"no plan as fast is better by more than {100 * self.gap:.2g} %"
            )
            lines.append(f"  sensitivity {self._sum_text()}; {bound}")
        return "\n".join(lines)


# --- The planner ---


class _Planner(_library.Owned):
    def __init__(self) -> None:
        super().__init__("tandem", "tandem_planner_close")


class _CPlan(_library.Owned):
    def __init__(self) -> None:
        super().__init__("tandem", "tandem_plan_close")


def _encode(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else os.fspath(text).encode()


def open_cluster(text: str, batch: Optional[int], memory: Optional[str] = None) -> Cluster:
    """A cluster from its text, with the batch and memory of classes that name none."""
    cluster = Cluster()
    _library.call("tandem", "tandem_cluster_parse", byref(cluster), c_char_p(text.encode()))
    _library.call(
        "tandem",
        "tandem_cluster_fill_defaults",
        byref(cluster),
        c_int64(batch or 0),
        c_char_p(_encode(memory)),
    )
    return cluster


def cluster_text(cluster: Cluster) -> str:
    text = ctypes.create_string_buffer(4096)
    printer = _library.load("tandem").tandem_cluster_print
    printer.restype = None
    printer(text, ctypes.c_size_t(len(text)), byref(cluster))
    return text.value.decode()


class Planning:
    """A model on a cluster, with what the store knows of it."""

    def __init__(
        self,
        model: Model,
        cluster: str,
        *,
        store: Optional[str] = None,
        batch: Optional[int] = None,
        memory: Optional[str] = None,
        predict: bool = False,
        times_only: bool = False,
        method: Optional[str] = None,
        data: Optional[str] = None,
        base_precision: Optional[str] = None,
        bucket_bytes: int = 0,
    ) -> None:
        self.module_graphs: Optional[List[Graph]] = None
        if isinstance(model, str) and model.endswith(".json"):
            model = Graph.load(model)
        if memory is not None and not isinstance(model, str):
            raise _library.error(
                "USAGE",
                "memory limits are for models of the zoo: what PyTorch allocates for a module is not known",
            )
        if isinstance(model, Graph):
            batch = batch or model.batch
        elif not isinstance(model, str):
            batch = batch or model[0].batch
        self.cluster = open_cluster(cluster, batch or 16, memory)
        self.graphs = self._open_graphs(model)
        is_recorded = self.module_graphs is not None
        request = Request(
            store=_encode(store or default_store()),
            method=_encode(method),
            data=_encode(data),
            base_precision=_encode(base_precision),
            bucket_bytes=bucket_bytes,
            predict=predict,
            times_only=times_only,
        )
        self.store, self.data = store or default_store(), data
        self._sensed: Optional[Sensed] = None
        self._is_sensing_read = False
        self.planner = _Planner()
        pointers = (c_void_p * len(self.graphs))(*(graph.pointer for graph in self.graphs))
        self._keep = (request, pointers)
        try:
            _library.call(
                "tandem",
                "tandem_planner_open_for",
                byref(self.planner.pointer),
                byref(request),
                byref(self.cluster),
                pointers,
            )
        except _library.MissingError as missing:
            if not is_recorded:
                raise
            here = "`tandem.sensitivity(module, batches, loss, store=...)`"
            raise _library.error("MISSING", re.sub("`tandem sensitivity[^`]*`", here, str(missing))) from None

    def price(self, plan: _CPlan) -> Estimate:
        """What a plan costs in percent; all None where the model was not sensed."""
        if not self._is_sensing_read:
            self._sensed, self._is_sensing_read = load(self.graphs[0].pointer, self.store, self.data), True
        found = price_of(self.graphs[0].pointer, plan.pointer, self._sensed)
        return found or Estimate(None, None, None)  # type: ignore[arg-type]

    def _open_graphs(self, model: Model) -> List[_library.Owned]:
        classes = list(self.cluster.classes[: self.cluster.n_class])
        if isinstance(model, str):
            graphs = []
            for one in classes:
                graph = _COwned()
                _library.call(
                    "tandem",
                    "tandem_graph_open",
                    byref(graph.pointer),
                    c_char_p(model.encode()),
                    c_int64(one.batch),
                )
                graphs.append(graph)
            return graphs
        given = [model] if isinstance(model, Graph) else list(model)
        by_batch = {graph.batch: graph for graph in given}
        self.module_graphs = []
        for one in classes:
            if one.batch not in by_batch:
                raise _library.error(
                    "WRONG_MODEL",
                    f"'{one.device.name.decode()}' has batch {one.batch}, and the model was "
                    f"captured with batch {', '.join(map(str, sorted(by_batch)))}: "
                    "give batch=, or a list with "
                    "a capture of every batch",
                )
            self.module_graphs.append(by_batch[one.batch])
        return [graph.c_graph() for graph in self.module_graphs]

    @property
    def graph(self) -> Optional[Graph]:
        return self.module_graphs[0] if self.module_graphs else None

    @property
    def model(self) -> str:
        from tandem._structs import GraphHead

        return GraphHead.from_address(self.graphs[0].pointer.value).model.decode()

    def problem(self) -> Problem:
        give = _library.load("tandem").tandem_planner_problem
        give.restype, give.argtypes = POINTER(Problem), [c_void_p]
        return give(self.planner.pointer).contents

    def new_plan(self, name: str) -> _CPlan:
        plan = _CPlan()
        _library.call(
            "tandem",
            "tandem_plan_open",
            byref(plan.pointer),
            self.graphs[0].pointer,
            byref(self.cluster),
            c_char_p(name.encode()),
        )
        return plan

    def plan_of(self, wanted: Union[None, str, "Plan", Dict[str, str]]) -> Tuple[_CPlan, str]:
        """A C plan and its name. None: fp32; a precision: uniform; a Plan; precisions by name: every class."""
        if isinstance(wanted, Plan):
            if len(wanted.classes) != self.cluster.n_class:
                raise _library.error(
                    "WRONG_MODEL",
                    f"the plan is for {wanted.cluster}, with {len(wanted.classes)} classes of "
                    f"ranks; this cluster has {self.cluster.n_class}",
                )
            plan = self.new_plan(wanted.name)
            for c, one in enumerate(wanted.classes):
                self._set_all(plan, c, one.precision)
            return plan, wanted.name
        if isinstance(wanted, dict):
            plan = self.new_plan("given")
            for c in range(self.cluster.n_class):
                self._set_all(plan, c, wanted)
            return plan, "given"
        name = f"uniform {wanted or 'fp32'}"
        plan = self.new_plan(name)
        precision = c_int()
        _library.call(
            "tandem", "tandem_precision_find", byref(precision), c_char_p((wanted or "fp32").encode())
        )
        for c in range(self.cluster.n_class):
            _library.call(
                "tandem", "tandem_plan_uniform", plan.pointer, self.graphs[0].pointer, c_int(c), precision
            )
        return plan, name

    def _set_all(self, plan: _CPlan, c: int, precision_of: Dict[str, str]) -> None:
        operator_of = {call.name: call.operator for call in self.graph.adjustable} if self.graph else {}
        for name, precision_name in precision_of.items():
            op, precision = c_int(), c_int()
            _library.call(
                "tandem",
                "tandem_graph_find",
                byref(op),
                self.graphs[0].pointer,
                c_char_p(operator_of.get(name, name).encode()),
            )
            _library.call(
                "tandem", "tandem_precision_find", byref(precision), c_char_p(precision_name.encode())
            )
            _library.call(
                "tandem", "tandem_plan_set", plan.pointer, self.graphs[0].pointer, c_int(c), op, precision
            )

    def replay(self, wanted: Union[None, str, "Plan", Dict[str, str]] = None) -> Replay:
        plan, name = self.plan_of(wanted)
        step = PlannedStep()
        _library.call("tandem", "tandem_planner_replay", byref(step), self.planner.pointer, plan.pointer)
        classes = []
        for c in range(step.n_class):
            own, times = self.cluster.classes[c], step.classes[c]
            classes.append(
                ClassTimes(
                    own.device.name.decode(),
                    own.n_rank,
                    own.batch,
                    times.busy_ns * 1e-9,
                    times.exposed_comm_ns * 1e-9,
                    times.wait_ns * 1e-9,
                    None if self.graph else times.peak_bytes,
                    times.sample_per_step,
                )
            )
        is_fp32 = wanted is None or wanted == "fp32"
        price = Estimate(0.0, 0.0, 0.0) if is_fp32 else self.price(plan)
        return Replay(
            self.model,
            name,
            step.step_ns * 1e-9,
            classes,
            step.measured_ppm * 1e-6,
            sensitivity=price.sensitivity,
            sensitivity_low=price.low,
            sensitivity_high=price.high,
        )

    def goal(
        self, max_sensitivity: Optional[float], minimize: Optional[str], policy: Optional[str]
    ) -> Goal:
        """What `allocate` asks for. A largest sensitivity is a share of more samples."""
        any_sensitivity = (1 << 63) - 1
        goals = {"training-time": MINIMIZE_TRAINING_TIME, "sensitivity": MINIMIZE_SENSITIVITY}
        if minimize is not None and minimize not in goals:
            raise _library.error("USAGE", f"minimize={minimize!r}: it takes {' or '.join(map(repr, goals))}")
        if minimize and max_sensitivity is not None:
            raise _library.error(
                "USAGE",
                "minimize and max_sensitivity contradict each other: with a largest sensitivity the step is "
                "minimized",
            )
        if minimize:
            return Goal(goals[minimize], any_sensitivity)
        if max_sensitivity is None:
            give = _library.load("tandem").tandem_planner_goal
            give.restype, give.argtypes = Goal, [c_void_p, c_char_p]
            return give(self.planner.pointer, _encode(policy))
        if not 0 <= max_sensitivity <= 1e6:
            raise _library.error("USAGE", f"max_sensitivity={max_sensitivity}: 0.01 is 1 % more samples")
        give = _library.load("tandem").tandem_sensitivity_units
        give.restype, give.argtypes = c_int64, [c_void_p, c_double]
        return Goal(MINIMIZE_STEP, give(ctypes.addressof(self.problem()), 100 * max_sensitivity))

    def allocate(
        self,
        slowdown: Optional[float] = None,
        target: Optional[float] = None,
        policy: Optional[str] = None,
        proof_work: Optional[int] = None,
        max_sensitivity: Optional[float] = None,
        minimize: Optional[str] = None,
    ) -> Plan:
        problem = self.problem()
        problem.slowdown = slowdown or 0
        problem.target_ns = int(target * 1e9) if target else 0
        problem.work_limit = proof_work or 0
        goal = self.goal(max_sensitivity, minimize, policy)
        made, found = _CPlan(), Allocation()
        _library.call(
            "tandem",
            "tandem_planner_allocate_for",
            byref(made.pointer),
            byref(found),
            self.planner.pointer,
            byref(goal),
            c_char_p(_encode(policy)),
        )
        return self._plan_from(made, found)

    def _plan_from(self, made: _CPlan, found: Allocation) -> Plan:
        library = _library.load("tandem")
        library.tandem_plan_text.restype = c_void_p
        address = library.tandem_plan_text(made.pointer, self.graphs[0].pointer)
        if not address:
            raise MemoryError("no memory for a plan")
        text = ctypes.string_at(address).decode()
        free = ctypes.CDLL(None).free
        free.argtypes = [c_void_p]
        free(address)
        members = json.loads(text)
        name_of = {call.operator: call.name for call in self.graph.adjustable} if self.graph else {}
        classes = [
            PlanClass(
                one["device"],
                one["ranks"],
                one["batch"],
                {name_of.get(name, name): value for name, value in one["precision"].items()},
            )
            for one in members["classes"]
        ]
        certificate, price = found.certificate, self.price(made)
        is_bound = certificate.lower_bound >= 0
        return Plan(
            members["name"],
            self.model,
            cluster_text(self.cluster),
            classes,
            members["graph_hash"],
            found.step_ns * 1e-9,
            found.base_ns * 1e-9,
            price.sensitivity,
            price.low,
            price.high,
            members["sensitivity_bound"],
            members["lower_bound"] if is_bound else None,
            certificate.gap if is_bound else None,
            certificate.proof.decode(),
            self.graph,
            text,
        )


def replay(
    model: Model,
    cluster: str,
    plan: Union[None, str, Plan, Dict[str, str]] = None,
    *,
    store: Optional[str] = None,
    batch: Optional[int] = None,
    predict: bool = False,
    bucket_bytes: int = 0,
    trace: Optional[Trace] = None,
) -> Replay:
    """Simulates one training step of a model on a cluster under a plan.

        model    a graph that `capture` recorded, a list of them (one for each batch), a file that
                 `Graph.save` wrote, or a model of the zoo ("resnet50")
        cluster  "torch:fast + torch:slow net=10Gbit/s,20us", "8*v100@8 + 8*t4@8 net=100Gbit/s,5us"
        plan     a Plan, a precision for all calls, or precisions by name; nothing: fp32
        store    the profile store [TANDEM_DB, tandem.db]
        predict  True: times that were not measured are predicted where possible
        trace    files of torch.profiler's export_chrome_trace of the job that ran, one for each rank: what
                 they recorded stands beside what is replayed

    >>> print(tandem.replay("resnet50", "8*v100@8 + 8*t4@8 net=100Gbit/s,5us", batch=32, predict=True))
    """
    planning = Planning(
        model, cluster, store=store, batch=batch, predict=predict, times_only=True, bucket_bytes=bucket_bytes
    )
    replayed = planning.replay(plan)
    if trace is not None:
        replayed.recorded = _recorded_ranks(trace, replayed)
    return replayed


def _recorded_ranks(trace: Trace, replayed: Replay) -> List[RecordedRank]:
    ranks, expected = read_trace(trace), sum(one.ranks for one in replayed.classes)
    if len(ranks) != expected:
        raise _library.error(
            "WRONG_MODEL",
            f"the traces are of {len(ranks)} ranks, and the cluster has {expected}: give one of each",
        )
    return ranks


def allocate(
    model: Model,
    cluster: str,
    *,
    slowdown: Optional[float] = None,
    target: Optional[float] = None,
    policy: Optional[str] = None,
    store: Optional[str] = None,
    batch: Optional[int] = None,
    memory: Optional[str] = None,
    predict: bool = False,
    method: str = "sampled",
    data: Optional[str] = None,
    base_precision: Optional[str] = None,
    bucket_bytes: int = 0,
    proof_work: Optional[int] = None,
    max_sensitivity: Optional[float] = None,
    minimize: Optional[str] = None,
) -> Plan:
    """The plan that is worth most samples a second in fp32, or the least sensitive one within a limit.

        slowdown  0.03: a step up to 3 % longer than the fastest one [0]
        target    the longest step allowed, in seconds, instead
        policy    "exact" [default], "greedy", "qsync", "uniform", "base"
        method    "sampled": percent of more samples, from a sensing. "fisher" and "qsync" rank by statistics
        memory    limit of each rank, "12GiB" (of models of the zoo)
        max_sensitivity  0.01: the fastest step that needs at most 1 % more samples; by method "sampled"
        minimize  "training-time": the least step x (1 + sensitivity), by method "sampled"; its default, where
                  no limit is given. "sensitivity": the least, at the fastest step or within slowdown or target

        proof_work  steps that proofs may take, some 10 ns each [10 s]; the same steps give the same plan

    The model's sensitivities must be in the store (`sensitivity`), and its costs, unless `predict`.
    """
    planning = Planning(
        model,
        cluster,
        store=store,
        batch=batch,
        memory=memory,
        predict=predict,
        method=method,
        data=data,
        base_precision=base_precision,
        bucket_bytes=bucket_bytes,
    )
    return planning.allocate(slowdown, target, policy, proof_work, max_sensitivity, minimize)


@dataclass
class Advice:
    """What a cluster gains from more devices: a plan for each choice."""

    current: Plan
    added: Plan
    combined: Plan

    @property
    def _in_worth(self) -> bool:
        """Whether rates are samples a second in fp32's worth: where the price of each plan is known."""
        return all(plan.sensitivity is not None for plan in (self.current, self.added, self.combined))

    def _rate(self, plan: Plan) -> float:
        if not plan.step:
            return math.nan
        samples = sum(one.ranks * one.batch for one in plan.classes)
        return samples / plan.step / (1 + (plan.sensitivity or 0) / 100 if self._in_worth else 1)

    @property
    def speedup(self) -> float:
        """Samples a second of all devices over those of the current ones, in fp32's worth where prices are known."""
        return self._rate(self.combined) / self._rate(self.current)

    @property
    def worth_it(self) -> bool:
        """Whether all devices together make more than either part."""
        return self._rate(self.combined) > max(self._rate(self.current), self._rate(self.added))

    def __str__(self) -> str:
        worth = " in fp32's worth" if self._in_worth else ""
        rows = [
            f"  {plan.cluster}: step {time_text(plan.step or 0)}, {self._rate(plan):.4g} samples/s{worth}, "
            f"sensitivity {plan._sum_text()}"
            for plan in (self.current, self.added, self.combined)
        ]
        verdict = "worth it" if self.worth_it else "not worth it"
        return "\n".join([f"{verdict}: {self.speedup:.2f} times as many samples a second{worth}", *rows])


def advise(model: Model, cluster: str, add: str, **options: Any) -> Advice:
    """Whether adding devices to a cluster pays: plans for the current, the new, and all devices.

    Options are those of `allocate`, which also says what the plans are made for. They are compared by samples a
    second in fp32's worth, or by samples a second where the price of a plan is not known. A link that `cluster`
    names (net=…) holds for all three.

    >>> print(tandem.advise("resnet50", "8*v100@8 net=100Gbit/s,5us", "8*t4@8", batch=32, predict=True))
    """
    links = " ".join(word for word in cluster.split() if word.startswith(("net=", "node=")))
    devices = " ".join(word for word in cluster.split() if not word.startswith(("net=", "node=")))
    texts = (cluster, f"{add} {links}", f"{devices} + {add} {links}")
    return Advice(*(allocate(model, text.strip(), **options) for text in texts))


__all__ = ["Plan", "PlanClass", "Replay", "ClassTimes", "Advice", "replay", "allocate", "advise", "c_double"]
