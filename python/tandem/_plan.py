"""Plans: the precision of every call on every device, what they cost, and how good they are."""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from tandem import _library
from tandem._graph import Graph, _COwned, read_json, write_whole
from tandem._recorded import RecordedRank, Trace, read_trace
from tandem._estimated import Estimate
from tandem._structs import (
    CASE_COMBINED,
    CASE_CURRENT,
    CASE_NEW_ONLY,
    PRECISIONS,
    AdviceStruct,
    AllocationRequest,
    Answer,
    Cluster,
    Goodput,
    GraphStruct,
    PlannedStep,
    PlanStruct,
    RatioCheck,
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


def _extra_samples_text(of: "Union[Plan, Replay]") -> str:
    return Estimate(of.sensitivity or 0.0, of.sensitivity_low, of.sensitivity_high).extra_samples


@dataclass
class Ratio:
    """Predicted times of a device's products in a precision over those of fp32, and whether the plan holds at the
    ends of its 80 % interval."""

    device: str
    precision: str
    ratio: float
    low: float
    high: float
    # How many operators another plan changes there, which part of the step it saves, and what to measure. −1:
    # no plan is found
    changed_at_low: int
    changed_at_high: int
    gain_at_low: float
    gain_at_high: float
    to_measure: str


def _ratios_of(check: RatioCheck) -> List[Ratio]:
    ratios = []
    for of in check.shift[: check.n]:
        most = 0 if of.gain[0] >= of.gain[1] else 1
        ratios.append(
            Ratio(
                of.device.decode(),
                PRECISIONS[of.precision],
                of.ratio,
                of.ratio / (1 + of.half),
                of.ratio * (1 + of.half),
                of.n_changed[1],
                of.n_changed[0],
                of.gain[1],
                of.gain[0],
                (of.to_measure[most].value or of.to_measure[1 - most].value).decode(),
            )
        )
    return ratios


@dataclass
class ClassTimes:
    """One step of the ranks of one class; times in seconds for each rank."""

    device: str
    ranks: int
    batch: int
    busy: float
    exposed_comm: float
    idle: float
    memory_bytes: Optional[int]  # as tandem's executor, or of a module PyTorch, needs it; None: not known
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
    # has no estimate
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
            lines.append(f"  sensitivity {_extra_samples_text(self)}")
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
    # In percent of more samples to the same loss, and its 95 % interval; None: the model has no estimate
    sensitivity: Optional[float] = None
    sensitivity_low: Optional[float] = None
    sensitivity_high: Optional[float] = None
    sensitivity_bound: Optional[float] = None  # the sum over calls that was minimized, in the method's unit
    lower_bound: Optional[float] = None  # no plan as fast has a smaller sum
    gap: Optional[float] = None  # at most this share could be saved
    proof: str = ""
    samples_per_second: Optional[float] = None  # of all ranks
    goodput: Optional[float] = None  # samples_per_second / (1 + sensitivity); None: the model has no estimate
    graph: Optional[Graph] = None  # of a module
    text: str = field(default="", repr=False)  # tandem.plan/1
    # Of predicted times: where another plan would be better. Empty where none is predicted
    ratios: List[Ratio] = field(default_factory=list, repr=False)

    def _sum_text(self) -> str:
        """The extra samples, where they are known, else the sum."""
        known = self.sensitivity is not None
        return _extra_samples_text(self) if known else f"{self.sensitivity_bound:.2g}{self._unit()}"

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
                "samples_per_second",
                "goodput",
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


# --- Asking the library ---


class _Planner(_library.Owned):
    def __init__(self) -> None:
        super().__init__("tandem", "tandem_planner_close")


class _CPlan(_library.Owned):
    def __init__(self) -> None:
        super().__init__("tandem", "tandem_plan_close")


def _encode(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else os.fspath(text).encode()


def open_cluster(text: str, batch: Optional[int]) -> Cluster:
    """A cluster from its text, with the batch of classes that name none."""
    cluster = Cluster()
    _library.call("tandem", "tandem_cluster_parse", byref(cluster), c_char_p(text.encode()))
    batches = c_int64(batch or 0)
    _library.call("tandem", "tandem_cluster_fill_defaults", byref(cluster), batches, c_char_p(None))
    return cluster


def cluster_text(cluster: Cluster) -> str:
    text = ctypes.create_string_buffer(4096)
    printer = _library.load("tandem").tandem_cluster_print
    printer.restype = None
    printer(text, ctypes.c_size_t(len(text)), byref(cluster))
    return text.value.decode()


def _known(x: float) -> Optional[float]:
    return None if math.isnan(x) else x


class _Asked:
    """What is planned, as the library takes it: a tandem_request, and what it borrows."""

    def __init__(
        self,
        model: Model,
        cluster: str,
        *,
        store: Optional[str] = None,
        batch: Optional[int] = None,
        memory: Optional[str] = None,
        predict: bool = False,
        from_description: bool = False,
        times_only: bool = False,
        method: Optional[str] = None,
        data: Optional[str] = None,
        base_precision: Optional[str] = None,
        bucket_bytes: int = 0,
    ) -> None:
        if isinstance(model, str) and model.endswith(".json"):
            model = Graph.load(model)
        self.modules = [] if isinstance(model, str) else [model] if isinstance(model, Graph) else list(model)
        self._opened = [graph.c_graph() for graph in self.modules]
        self._pointers = (c_void_p * len(self._opened))(*(graph.pointer for graph in self._opened))
        self.request = Request(
            store=_encode(store or default_store()),
            model=_encode(model) if isinstance(model, str) else None,
            graph=self._pointers,
            n_graph=len(self._opened),
            cluster=_encode(cluster),
            batch=batch or 0,
            memory=_encode(memory),
            method=_encode(method),
            data=_encode(data),
            base_precision=_encode(base_precision),
            bucket_bytes=bucket_bytes,
            predict=predict,
            from_description=from_description,
            times_only=times_only,
        )

    @property
    def module(self) -> Optional[Graph]:
        """The graph of a captured module; None: a model of the zoo."""
        return self.modules[0] if self.modules else None

    def call(self, function: str, *arguments: Any) -> None:
        """Calls the library; says how a module without an estimate is."""
        try:
            _library.call("tandem", function, *arguments)
        except _library.MissingError as missing:
            if not self.modules:
                raise
            here = "`tandem.sensitivity(module, batches, loss, store=...)`"
            raise _library.error("MISSING", re.sub("`tandem sensitivity[^`]*`", here, str(missing))) from None

    def graph_of(self, plan: PlanStruct) -> _library.Owned:
        """A C graph of a plan's model."""
        if not self._opened:
            graph = _COwned()
            batch = c_int64(plan.cluster.classes[0].batch)
            _library.call("tandem", "tandem_graph_open", byref(graph.pointer), plan.model, batch)
            self._opened.append(graph)
        return self._opened[0]

    def plan_from(self, answer: Answer) -> "Plan":
        made = answer.plan.contents
        text = _plan_text(answer.plan, self.graph_of(made).pointer)
        members, goodput, found = json.loads(text), answer.goodput, answer.allocation
        operators = self.module.adjustable if self.module else []
        name_of = {call.operator: call.name for call in operators}
        classes = [
            PlanClass(
                one["device"],
                one["ranks"],
                one["batch"],
                {name_of.get(name, name): value for name, value in one["precision"].items()},
            )
            for one in members["classes"]
        ]
        return Plan(
            members["name"],
            self.module.model if self.module else members["model"],
            cluster_text(made.cluster),
            classes,
            members["graph_hash"],
            found.step_ns * 1e-9,
            found.base_ns * 1e-9,
            *(_known(x) for x in (goodput.sensitivity, goodput.low, goodput.high)),
            members["sensitivity_bound"],
            members["lower_bound"],
            members["gap"],
            members["proof"],
            goodput.samples_per_s,
            _known(goodput.goodput),
            self.module,
            text,
        )


def _plan_text(plan: Any, graph: c_void_p) -> str:
    give = _library.load("tandem").tandem_plan_text
    give.restype, give.argtypes = c_void_p, [c_void_p, c_void_p]
    address = give(plan, graph)
    if not address:
        raise MemoryError("no memory for a plan")
    text = ctypes.string_at(address).decode()
    free = ctypes.CDLL(None).free
    free.argtypes = [c_void_p]
    free(address)
    return text


def _question(
    asked: _Asked,
    *,
    slowdown: Optional[float] = None,
    target: Optional[float] = None,
    policy: Optional[str] = None,
    uniform: Optional[str] = None,
    max_sensitivity: Optional[float] = None,
    minimize: Optional[str] = None,
    global_batch: Optional[int] = None,
    proof_work: Optional[int] = None,
) -> AllocationRequest:
    objective = c_int()
    if minimize is not None:
        _library.call("tandem", "tandem_objective_find", byref(objective), c_char_p(minimize.encode()))
    return AllocationRequest(
        of=asked.request,
        policy=_encode(policy),
        uniform=_encode(uniform),
        minimize=objective.value,
        slowdown_is_given=slowdown is not None,
        slowdown=slowdown or 0,
        max_step_ns=int(target * 1e9) if target else 0,
        max_sensitivity_is_given=max_sensitivity is not None,
        max_sensitivity=max_sensitivity or 0,
        global_batch=global_batch or 0,
        work_limit=proof_work or 0,
    )


_OF_REQUEST = (
    "store",
    "batch",
    "memory",
    "predict",
    "from_description",
    "method",
    "data",
    "base_precision",
    "bucket_bytes",
)


def _split(options: Dict[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """What is planned, and which plan is wanted."""
    of_request = {name: value for name, value in options.items() if name in _OF_REQUEST}
    return of_request, {name: value for name, value in options.items() if name not in _OF_REQUEST}


class Planning:
    """A model on a cluster, with what the store has of its times."""

    def __init__(self, model: Model, cluster: str, **options: Any) -> None:
        self.asked = _Asked(model, cluster, times_only=True, **options)
        self.planner = _Planner()
        self.asked.call("tandem_planner_open", byref(self.planner.pointer), byref(self.asked.request))
        library = _library.load("tandem")
        library.tandem_planner_cluster.restype = POINTER(Cluster)
        library.tandem_planner_graph.restype = c_void_p
        self.cluster = library.tandem_planner_cluster(self.planner.pointer).contents
        self.graph = c_void_p(library.tandem_planner_graph(self.planner.pointer, c_int(0)))

    @property
    def model(self) -> str:
        return GraphStruct.from_address(self.graph.value or 0).model.decode()

    def goodput(self, plan: _CPlan) -> Goodput:
        found = Goodput()
        _library.call("tandem", "tandem_planner_goodput", byref(found), self.planner.pointer, plan.pointer)
        return found

    def new_plan(self, name: str) -> _CPlan:
        plan = _CPlan()
        _library.call(
            "tandem",
            "tandem_plan_open",
            byref(plan.pointer),
            self.graph,
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
                "tandem", "tandem_plan_uniform", plan.pointer, self.graph, c_int(c), precision
            )
        return plan, name

    def _set_all(self, plan: _CPlan, c: int, precision_of: Dict[str, str]) -> None:
        module = self.asked.module
        operator_of = {call.name: call.operator for call in module.adjustable} if module else {}
        for name, precision_name in precision_of.items():
            op, precision = c_int(), c_int()
            _library.call(
                "tandem",
                "tandem_graph_find",
                byref(op),
                self.graph,
                c_char_p(operator_of.get(name, name).encode()),
            )
            _library.call(
                "tandem", "tandem_precision_find", byref(precision), c_char_p(precision_name.encode())
            )
            _library.call(
                "tandem", "tandem_plan_set", plan.pointer, self.graph, c_int(c), op, precision
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
                    times.peak_bytes or None,
                    times.sample_per_step,
                )
            )
        goodput = self.goodput(plan)
        return Replay(
            self.model,
            name,
            step.step_ns * 1e-9,
            classes,
            step.measured_ppm * 1e-6,
            sensitivity=_known(goodput.sensitivity),
            sensitivity_low=_known(goodput.low),
            sensitivity_high=_known(goodput.high),
        )


def replay(
    model: Model,
    cluster: str,
    plan: Union[None, str, Plan, Dict[str, str]] = None,
    *,
    store: Optional[str] = None,
    batch: Optional[int] = None,
    predict: bool = False,
    from_description: bool = False,
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
        from_description  True: what others measured of a described device does not count
        trace    files of torch.profiler's export_chrome_trace of the job that ran, one for each rank: what
                 they recorded is printed beside what is replayed

    >>> print(tandem.replay("resnet50", "8*v100@8 + 8*t4@8 net=100Gbit/s,5us", batch=32, predict=True))
    """
    planning = Planning(
        model,
        cluster,
        store=store,
        batch=batch,
        predict=predict,
        from_description=from_description,
        bucket_bytes=bucket_bytes,
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
    uniform: Optional[str] = None,
    store: Optional[str] = None,
    batch: Optional[int] = None,
    global_batch: Optional[int] = None,
    memory: Optional[str] = None,
    predict: bool = False,
    from_description: bool = False,
    method: str = "sampled",
    data: Optional[str] = None,
    base_precision: Optional[str] = None,
    bucket_bytes: int = 0,
    proof_work: Optional[int] = None,
    max_sensitivity: Optional[float] = None,
    minimize: Optional[str] = None,
) -> Plan:
    """The plan with the highest goodput, or the best one within a limit: what `tandem allocate` answers.

        slowdown  0.03: the least sensitivity of a step up to 3 % longer than the fastest one; 0 is a limit
        target    the longest step allowed, in seconds, instead
        policy    "exact" [default], "greedy", "qsync", "uniform" in the precision `uniform`, "base"
        method    "sampled": percent of more samples, from an estimate. "fisher" and "qsync" rank by statistics
        memory    limit of each rank, "12GiB" (of models of the zoo)
        max_sensitivity  0.01: the fastest step that needs at most 1 % more samples; by method "sampled"
        minimize  "training-time": the least step x (1 + sensitivity), by method "sampled"; its default, where
                  no limit is given. "sensitivity": the least, at the fastest step or within slowdown or
                  target. "step", "memory"
        global_batch  samples of a step of all ranks, split among different ranks together with the precisions

        proof_work  steps that proofs may take, some 10 ns each [10 s]; the same steps give the same plan

    The model's sensitivities must be in the store (`sensitivity`), and its costs, unless `predict`.
    """
    given = {name: value for name, value in locals().items() if name not in ("model", "cluster")}
    of_request, wanted = _split(given)
    asked = _Asked(model, cluster, **of_request)
    question, answer, check = _question(asked, **wanted), Answer(), RatioCheck()
    asked.call("tandem_answer_open", byref(answer), byref(question))
    try:
        plan = asked.plan_from(answer)
        planner = c_void_p(answer.planner)
        asked.call("tandem_answer_check_ratios", byref(check), planner, byref(answer), byref(question))
        plan.ratios = _ratios_of(check)
        return plan
    finally:
        close = _library.load("tandem").tandem_answer_close
        close.restype = None
        close(byref(answer))


@dataclass
class Case:
    """One of the clusters that `advise` compares."""

    role: str  # "current", "added", "combined", or "subset" of the added devices
    cluster: str  # devices and ranks
    plan: Optional[Plan]
    rate: float  # by which it is compared; 0 without a plan
    error: str = ""  # why there is no plan


@dataclass
class Advice:
    """What a cluster gains from more devices: a plan for each choice, and the best of them."""

    cases: List[Case]  # the current devices, the added ones, both; then both without part of the added ones
    best: Case
    by_goodput: bool  # rates are goodput; else samples a second: the sensitivity of some plan is not known
    holds: bool  # with every predicted device's times anywhere in its 80 % interval
    ratios: List[Ratio] = field(default_factory=list, repr=False)  # of the best case's plan

    @property
    def current(self) -> Optional[Plan]:
        return self.cases[CASE_CURRENT].plan

    @property
    def added(self) -> Optional[Plan]:
        return self.cases[CASE_NEW_ONLY].plan

    @property
    def combined(self) -> Optional[Plan]:
        return self.cases[CASE_COMBINED].plan

    @property
    def speedup(self) -> float:
        """The rate of all devices over that of the current ones."""
        current = self.cases[CASE_CURRENT].rate
        return self.cases[CASE_COMBINED].rate / current if current else math.inf

    @property
    def worth_it(self) -> bool:
        """Whether other devices than the current ones make most."""
        return self.best is not self.cases[CASE_CURRENT]

    def __str__(self) -> str:
        unit = "samples/s of goodput" if self.by_goodput else "samples/s"
        verdict = "adding them pays" if self.worth_it else "adding them does not pay"
        times = f"all devices {self.speedup:.2f} times as many {unit}"
        lines = [f"{verdict}: {self.best.cluster} makes most; {times}"]
        for one in self.cases:
            if one.plan is None:
                lines.append(f"  {one.cluster}: no plan: {one.error}")
            else:
                lines.append(
                    f"  {one.cluster}: step {time_text(one.plan.step or 0)}, {one.rate:.4g} {unit}, "
                    f"sensitivity {one.plan._sum_text()}"
                )
        return "\n".join(lines)


def advise(model: Model, cluster: str, add: str, **options: Any) -> Advice:
    """Whether adding devices to a cluster pays: what `tandem advise` answers.

    Options are those of `allocate`, which also says what the plans are made for. Compared are the current,
    the new and all devices, and all without part of the new ones, by goodput, or by samples a second where
    the sensitivity of a plan is not known. A link that one cluster names (net=…) holds for all.

    >>> print(tandem.advise("resnet50", "8*v100@8 net=100Gbit/s,5us", "8*t4@8", batch=32, predict=True))
    """
    of_request, wanted = _split({"method": "sampled", **options})
    asked = _Asked(model, cluster, **of_request)
    question, advice = _question(asked, **wanted), AdviceStruct()
    asked.call("tandem_advise", byref(advice), byref(question), c_char_p(add.encode()), None)
    try:
        cases = list(_cases_of(asked, advice))
        holds, ratios = bool(advice.interval.holds), _ratios_of(advice.ratios)
        return Advice(cases, cases[advice.best], bool(advice.by_goodput), holds, ratios)
    finally:
        close = _library.load("tandem").tandem_advice_close
        close.restype = None
        close(byref(advice))


def _cases_of(asked: _Asked, advice: AdviceStruct) -> Iterator[Case]:
    roles = ("current", "added", "combined")
    for k in range(advice.n):
        one = advice.candidate[k]
        plan = asked.plan_from(one.answer) if one.answer.plan else None
        role = roles[k] if k < len(roles) else "subset"
        yield Case(role, one.name.decode(), plan, one.rate, one.error.text.decode())


__all__ = ["Plan", "PlanClass", "Replay", "ClassTimes", "Advice", "Case", "replay", "allocate", "advise"]
