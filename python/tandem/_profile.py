"""profile: what each call of a module takes as PyTorch runs it here; compare: what a replay makes of that."""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import time
from ctypes import POINTER, byref, c_char_p, c_double, c_int64, c_uint64
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as distributed

from tandem import _library
from tandem._apply import HAS, apply, lay_out, put_back, remove, run_product, unconverted
from tandem._blas import warn_of_slow_blas
from tandem._capture import _SILENT, Recorder, as_inputs, batch_of, make_graph, mean_square, measure_memory
from tandem._capture import tensors_in, unwrap
from tandem._graph import Graph
from tandem._kernels import Kernels, Rounds, has_fast_bf16
from tandem._memory import use_huge_pages
from tandem._plan import Plan, Planning, Replay, default_store, open_cluster, time_text
from tandem._recorded import Trace, read_trace
from tandem._structs import PRECISIONS, RecordedCost, RecordedCosts
from tandem._trace import Follower, Names, follow_modules

Loss = Callable[[Any], torch.Tensor]
MakeOptimizer = Callable[[Any], torch.optim.Optimizer]

_LOSS = -1


def device_here() -> str:
    """The name of this machine under PyTorch's present settings: "torch:avx2", "torch:default.sse41"."""
    shown = torch.__config__.show()
    capability = shown.partition("CPU capability usage: ")[2].split()
    name = capability[0].lower() if capability else "cpu"
    name = {"no": "default"}.get(name, name)
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").lower()
    return f"torch:{name}{'.' + limit if limit else ''}"


def _world() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


class _Timer(Follower):
    """Notes when each call begins, and, by hooks on the autograd graph, when its backward pass ends."""

    def __init__(self, module: torch.nn.Module, names: Names, precision: str, kernels: Kernels) -> None:
        super().__init__(module, names)
        self.precision, self.kernels = precision, kernels
        self.begin()

    def begin(self) -> None:
        self.starts: List[int] = []
        self.ends: List[Tuple[int, int]] = []
        self.nodes: Dict[int, Any] = {}

    def product(self, name: str, product: Any, func: Any, args: Any, kwargs: Any) -> Any:
        index = len(self.starts)
        self.starts.append(time.perf_counter_ns())
        if self.precision == "fp32":
            result = func(*args, **kwargs)
        else:
            result = run_product(product, self.precision, self.kernels, Rounds(index, 0, 0, 0, name))
        self.watch(result.grad_fn, index)
        return result

    def other(self, func: Any, args: Any, kwargs: Any) -> Any:
        if getattr(func, "__name__", "") in _SILENT:
            return func(*args, **kwargs)
        start = time.perf_counter_ns()
        result = func(*args, **kwargs)
        found = (result,) if isinstance(result, torch.Tensor) else tensors_in(result)
        if any(tensor.is_floating_point() for tensor in found):
            self.starts.append(start)
            for tensor in found:
                self.watch(tensor.grad_fn, len(self.starts) - 1)
        return result

    def watch(self, node: Any, index: int) -> None:
        """Hooks the nodes below `node` that no earlier call has."""
        ends = self.ends
        stack = [node]
        while stack:
            one = stack.pop()
            if one is None or id(one) in self.nodes:
                continue
            self.nodes[id(one)] = one
            one.register_hook(lambda *_: ends.append((time.perf_counter_ns(), index)))
            stack.extend(below for below, _ in one.next_functions)


@dataclass
class _Sample:
    """Times of one step in ns."""

    forward: int
    loss: int
    backward: int
    update: int
    calls_forward: List[int] = field(default_factory=list)
    calls_backward: Dict[int, int] = field(default_factory=dict)
    buckets: List[Tuple[int, int]] = field(default_factory=list)  # bytes, ns
    after_reduce: int = 0  # of the backward pass: DDP copies reduced buckets to gradients

    @property
    def step(self) -> int:
        return self.forward + self.loss + self.backward + self.update


class _Job:
    """A module with its inputs, loss and optimizer, as one rank runs it."""

    def __init__(
        self,
        module: torch.nn.Module,
        inputs: Any,
        loss: Optional[Loss],
        optimizer: Optional[MakeOptimizer],
        bucket_bytes: int,
    ) -> None:
        warn_of_slow_blas()
        self.inner = unwrap(module)
        if any(parameter.is_cuda for parameter in self.inner.parameters()):
            raise _library.error(
                "NO_KERNEL",
                "profile times modules on the CPU, and this one has CUDA parameters. Move it to the CPU, or "
                "profile a card with `tandem profile --cluster cuda:0`",
            )
        use_huge_pages(parameter.data_ptr() for parameter in self.inner.parameters())
        self.args, self.kwargs = as_inputs(inputs)
        self.loss = loss or mean_square
        self.make_optimizer = optimizer or (
            lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
        )
        self.bucket_bytes = bucket_bytes or 25 << 20
        self.buckets: List[Tuple[int, int, int]] = []
        self.reduced_at = 0  # when the last all-reduce was done

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Puts weights, buffers, gradients and random numbers back at the end."""
        state = {name: value.clone() for name, value in self.inner.state_dict().items()}
        gradients = [(parameter, parameter.grad) for parameter in self.inner.parameters()]
        random = torch.get_rng_state()
        for parameter, _ in gradients:
            parameter.grad = None
        try:
            yield
        finally:
            with torch.no_grad():
                for name, value in self.inner.state_dict().items():
                    value.copy_(state[name])
            for parameter, gradient in gradients:
                parameter.grad = gradient
            torch.set_rng_state(random)

    def start(self) -> None:
        """Wraps the module for several ranks, and makes the optimizer."""
        parameters = [parameter for parameter in self.inner.parameters() if parameter.requires_grad]
        for parameter in parameters:
            parameter.grad = None
        self.optimizer = self.make_optimizer(parameters)
        # weights stay where they are, however many steps are timed
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        self.runner: torch.nn.Module = self.inner
        if _world() > 1:
            self.runner = torch.nn.parallel.DistributedDataParallel(
                self.inner, bucket_cap_mb=self.bucket_bytes / 2**20
            )

    def watch_buckets(self) -> None:
        """Notes the time of every bucket's all-reduce."""
        if not isinstance(self.runner, torch.nn.parallel.DistributedDataParallel):
            return
        buckets, world = self.buckets, _world()

        def reduce(state, bucket):  # DDP refuses other annotations than its own
            buffer = bucket.buffer().div_(world)  # which DDP itself does as it fills the bucket
            begin = time.perf_counter_ns()
            work = distributed.all_reduce(buffer, async_op=True).get_future()

            def done(future: Any) -> torch.Tensor:
                self.reduced_at = time.perf_counter_ns()
                buckets.append((bucket.index(), buffer.numel() * 4, self.reduced_at - begin))
                return future.value()[0]

            return work.then(done)

        self.runner.register_comm_hook(None, reduce)

    def step(self, timer: Optional[_Timer] = None) -> _Sample:
        self.buckets.clear()
        clock = time.perf_counter_ns
        if _world() > 1:
            distributed.barrier()
        begin = clock()
        self.optimizer.zero_grad()
        zeroed = clock()
        if timer is not None:
            timer.begin()
        output = self.runner(*self.args, **self.kwargs)
        run = clock()
        loss = self.loss(output)
        if timer is not None:
            timer.watch(loss.grad_fn, _LOSS)
        lost = clock()
        loss.backward()
        back = clock()
        self.optimizer.step()
        end = clock()
        sample = _Sample(run - zeroed, lost - run, back - lost, end - back + zeroed - begin)
        if self.buckets:
            sample.buckets = [(size, ns) for _, size, ns in sorted(self.buckets)]
            sample.after_reduce = max(0, back - self.reduced_at)
        if timer is not None:
            edges = timer.starts[1:] + [run]
            sample.calls_forward = [after - start for start, after in zip(timer.starts, edges)]
            if sample.calls_forward:
                sample.calls_forward[0] += timer.starts[0] - zeroed
            last = lost
            for at, index in timer.ends:
                sample.calls_backward[index] = sample.calls_backward.get(index, 0) + at - last
                last = at
            timer.begin()  # lets go of the autograd graph
        return sample


def _fit(rows: List[List[int]], total: int) -> List[List[int]]:
    """Takes what noting took from each time: they sum to the step without notes, in the median.

    A call's time has its note in it, so noting takes no longer than the shortest call. What a disturbed step
    took beyond that is taken from all calls in proportion."""
    if not rows or not rows[0]:
        return rows
    rows = _middle(rows, sum)
    noted = statistics.median(sum(row) for row in rows)
    shortest = min(statistics.median(column) for column in zip(*rows))
    each = min(max(0.0, (noted - total) / len(rows[0])), shortest)
    less = [[max(0.0, value - each) for value in row] for row in rows]
    left = statistics.mean(sum(row) for row in less)
    scale = total / left if left else 0
    return [[round(value * scale) for value in row] for row in less]


def _middle(values: List[Any], key: Callable[[Any], float] = float) -> List[Any]:
    """The middle half: the store files means, which one disturbed step would move."""
    drop = len(values) // 4
    return sorted(values, key=key)[drop : len(values) - drop]


@dataclass
class CallTimes:
    """Seconds of one call in one precision, medians over the steps."""

    call: str
    precision: str
    forward: float
    backward: float


@dataclass
class Profile:
    """What a module's calls take on this machine, as `profile` filed it."""

    device: str
    graph: Graph
    store: str
    steps: Dict[str, float]  # seconds of a whole step by precision, median
    update: float  # seconds of the optimizer, within these
    calls: List[CallTimes]
    cluster: str  # of the ranks that ran it
    buckets: List[Tuple[int, float]]  # bytes and seconds of each all-reduce

    def __str__(self) -> str:
        lines = [f"{self.graph.model}, batch {self.graph.batch}, on {self.device}, filed in {self.store}"]
        for precision, seconds in self.steps.items():
            lines.append(
                f"  all in {precision}: step {time_text(seconds)}, "
                f"of which the optimizer {time_text(self.update)}"
            )
        slowest = sorted(self.calls, key=lambda one: -(one.forward + one.backward))[:10]
        width = max((len(one.call) for one in slowest), default=4)
        lines.append("  slowest calls, forward and backward:")
        lines += [
            f"    {one.call:<{width}}  {one.precision:<9}  {time_text(one.forward):>8}  "
            f"{time_text(one.backward):>8}"
            for one in slowest
        ]
        for size, seconds in self.buckets:
            lines.append(f"  all-reduce of {size / 2**20:.2f} MiB: {time_text(seconds)}")
        return "\n".join(lines)


def _record_module(job: _Job, batch: int, name: Optional[str]) -> Graph:
    """The graph of a training step's forward pass; the optimizer is the job's."""
    names = Names()
    names.begin()
    recorder = Recorder(job.inner, names, batch)
    handles = follow_modules(job.inner, names)
    try:
        with torch.enable_grad(), recorder:
            output = job.inner(*job.args, **job.kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return make_graph(job.inner, recorder, output, job.optimizer, name)


def _gather(value: Any) -> List[Any]:
    """`value` of every rank."""
    if _world() == 1:
        return [value]
    everything: List[Any] = [None] * _world()
    distributed.all_gather_object(everything, value)
    return everything


def _cluster_of(devices: Sequence[str], batches: Sequence[int]) -> str:
    """The ranks' devices as a cluster: equal neighbours are one class."""
    classes: List[List[Any]] = []
    for device, batch in zip(devices, batches):
        if classes and classes[-1][1:] == [device, batch]:
            classes[-1][0] += 1
        else:
            classes.append([1, device, batch])
    same = len(set(batches)) == 1
    return " + ".join(
        (f"{n}*" if n > 1 else "") + device + ("" if same else f" batch={batch}")
        for n, device, batch in classes
    )


@contextlib.contextmanager
def _followed(module: torch.nn.Module, timer: _Timer) -> Iterator[None]:
    """While it lasts, `timer` sees what the module calls, but not what DDP does around it."""

    before = module.__dict__.get("forward")  # set on the instance, or of a converted module
    runs = before or type(module).forward.__get__(module)

    def forward(*args: Any, **kwargs: Any) -> Any:
        timer.names.begin()
        with timer:
            return runs(*args, **kwargs)

    handles = follow_modules(module, timer.names)
    module.__dict__["forward"] = forward
    try:
        with unconverted(module, keeps_layout=True):
            yield
    finally:
        del module.__dict__["forward"]
        if before is not None:
            module.__dict__["forward"] = before
        for handle in handles:
            handle.remove()


def _alternate(
    job: _Job, timer: _Timer, precision: str, has: bool, steps: int, warmup: int
) -> Tuple[List[_Sample], List[_Sample]]:
    """Steps without and with notes, in turns; the machine's mood then is the same for both."""
    plain, noted = [], []
    remove(job.inner)
    if has and precision != "fp32":
        apply(job.inner, precision)
    elif precision.startswith("int8"):
        lay_out(job.inner)  # DDP wants the same layout on all ranks
    job.start()
    for step in range(warmup + steps):
        plain.append(job.step())
        with _followed(job.inner, timer):
            noted.append(job.step(timer))
    return plain[warmup:], noted[warmup:]


def _reduce(job: _Job, steps: int, warmup: int) -> List[_Sample]:
    """All ranks: steps in fp32 whose all-reduces are timed; by a hook, which other steps are spared."""
    remove(job.inner)
    job.start()
    job.watch_buckets()
    return [job.step() for _ in range(warmup + steps)][warmup:] if _world() > 1 else []


def _phases(wanted: List[str], steps: int, warmup: int) -> List[str]:
    """All ranks: the precisions that any rank wants, fp32 first, so that all run equally many steps."""
    everyone = _gather((wanted, steps, warmup))
    if len({one[1:] for one in everyone}) > 1:
        raise _library.error(
            "USAGE", "the ranks profile different numbers of steps; give all the same steps and warmup"
        )
    union = {precision for precisions, _, _ in everyone for precision in precisions}
    return [precision for precision in HAS if precision in union]


def _check_calls(graph: Graph, mains: List[int], noted: List[_Sample]) -> None:
    for sample in noted:
        if len(sample.calls_forward) != len(mains):
            raise _library.error(
                "WRONG_GRAPH",
                f"{graph.model} made {len(sample.calls_forward)} calls in one step and {len(mains)} "
                "in another: it takes another way for other random numbers or states, and its calls "
                "cannot be distinguished. Profile it with inputs that take one way",
            )


def profile(
    module: torch.nn.Module,
    inputs: Any,
    loss: Optional[Loss] = None,
    *,
    optimizer: Optional[MakeOptimizer] = None,
    precisions: Optional[Sequence[str]] = None,
    steps: int = 10,
    warmup: int = 3,
    device: Optional[str] = None,
    store: Optional[str] = None,
    batch: Optional[int] = None,
    bucket_bytes: int = 0,
    name: Optional[str] = None,
) -> Profile:
    """Measures every call of a training step, forward and backward, as PyTorch itself runs it here.

    The times go into the profile store under `device`, a name "torch:…" of their own, so that jobs on this
    machine can be replayed and planned from anywhere. Each of `precisions` is measured in whole steps: fp32
    is PyTorch's own, the others are those of `apply`. Steps with and without notes take turns, and what
    taking notes costs is subtracted. The module keeps its weights, buffers and gradients.

        inputs      as `capture` takes them
        loss        from the module's output to a number [mean square of the outputs]
        optimizer   from parameters to an optimizer [SGD with momentum]: lambda p: torch.optim.AdamW(p)
        precisions  [fp32, int8, int8_full, and bf16 where the CPU multiplies it]
        steps       measured ones, for each precision
        device      [device_here(): PyTorch's instruction sets]

    In a job of torch.distributed every rank calls it, with a name for its own kind of machine. The ranks
    then run DistributedDataParallel together: their times are those beside each other, and the all-reduces
    are measured, too.

    >>> profile = tandem.profile(module, torch.randn(8, 3, 32, 32), device="torch:laptop", store="tandem.db")
    >>> print(profile)
    """
    device, store = device or device_here(), store or default_store()
    wanted = list(precisions or ["fp32", "int8", "int8_full"] + (["bf16"] if has_fast_bf16() else []))
    if "fp32" not in wanted:
        wanted.insert(0, "fp32")
    for one in wanted:
        if one not in HAS:
            raise _library.error("USAGE", f"modules run in {', '.join(HAS)}; got precision '{one}'")
    if steps < 1:
        raise _library.error("USAGE", f"a profile needs 1 step or more, got {steps}")
    job = _Job(module, inputs, loss, optimizer, bucket_bytes)
    was_training = job.inner.training
    kernels = Kernels()
    with put_back(job.inner), job.kept():
        job.inner.train()
        try:
            job.optimizer = job.make_optimizer(list(job.inner.parameters()))
            graph = _record_module(job, batch_of(inputs, batch), name)
            measure_memory(graph, job.inner, inputs, None, job.loss)
            return _measure(job, graph, kernels, wanted, steps, warmup, device, store)
        finally:
            remove(job.inner)
            job.inner.train(was_training)


def _measure(
    job: _Job,
    graph: Graph,
    kernels: Kernels,
    wanted: List[str],
    steps: int,
    warmup: int,
    device: str,
    store: str,
) -> Profile:
    mains = [index for index, call in enumerate(graph.calls) if call.text != "bias"]
    adjustable = [position for position, index in enumerate(mains) if graph.calls[index].adjustable]
    costs: List[Tuple[str, str, List[int], List[int]]] = []
    step_times: Dict[str, float] = {}
    updates: List[int] = []
    other_forward = other_backward = 0.0
    median = statistics.median
    for precision in _phases(wanted, steps, warmup):
        has = precision in wanted  # another rank measures it; this one keeps it company
        timer = _Timer(job.inner, Names(), precision if has else "fp32", kernels)
        plain, noted = _alternate(job, timer, precision, has, steps, warmup)
        if not has:
            continue
        _check_calls(graph, mains, noted)
        step_times[precision] = median(sample.step for sample in plain) * 1e-9
        forward = [sample.calls_forward for sample in noted]
        backward = [
            [sample.calls_backward.get(position, 0) for position in [*range(len(mains)), _LOSS]]
            for sample in noted
        ]
        # without the wait for the last all-reduce, which no call is to blame for
        waits = [sample.backward - sum(sample.calls_backward.values()) for sample in noted]
        waited = median(waits) if _world() > 1 else 0
        total_forward = median(sample.forward for sample in plain)
        total_backward = median(sample.backward for sample in plain) - waited
        if precision == "fp32":
            tails = waits
            forward, backward = _fit(forward, total_forward), _fit(backward, max(0, total_backward))
            updates = _middle([sample.update for sample in plain])
            losses = _middle([sample.loss for sample in plain])
            costs += [
                (
                    graph.calls[index].operator,
                    "fp32",
                    [row[p] for row in forward],
                    [row[p] for row in backward],
                )
                for p, index in enumerate(mains)
            ]
            costs.append(("recorded.loss", "fp32", losses, [row[-1] for row in backward]))
            rest = [p for p in range(len(mains)) if p not in adjustable]
            other_forward = median(sum(row[p] for p in rest) for row in forward)
            other_backward = median(sum(row[p] for p in [*rest, -1]) for row in backward)
        else:
            only = lambda rows, total: _fit(
                [[row[p] for p in adjustable] for row in rows], max(0, total)
            )  # noqa: E731
            forward, backward = only(forward, total_forward - other_forward), only(
                backward, total_backward - other_backward
            )
            costs += [
                (
                    graph.calls[mains[p]].operator,
                    precision,
                    [row[i] for row in forward],
                    [row[i] for row in backward],
                )
                for i, p in enumerate(adjustable)
            ]
    reduced = _reduce(job, steps, warmup)
    if reduced:
        after = round(median(sample.after_reduce for sample in reduced))
        updates = [update + after for update in updates]
        tails = [max(1, wait - after) for wait in tails]
    _file_costs(job, graph, costs, updates, device, store)
    cluster, buckets = _file_all_reduces(
        job, graph, [sample.buckets for sample in reduced], tails, device, store
    )
    name_of = {call.operator: call.name for call in graph.calls}
    rows = [
        CallTimes(
            name_of.get(operator, "loss"),
            precision,
            statistics.median(forward) * 1e-9,
            statistics.median(backward) * 1e-9,
        )
        for operator, precision, forward, backward in costs
    ]
    return Profile(
        device, graph, store, step_times, statistics.median(updates) * 1e-9, rows, cluster, buckets
    )


def _array(values: List[int]) -> Any:
    return (c_int64 * len(values))(*values)


def _file_costs(
    job: _Job,
    graph: Graph,
    costs: List[Tuple[str, str, List[int], List[int]]],
    updates: List[int],
    device: str,
    store: str,
) -> None:
    listed = (RecordedCost * (len(costs) + 1))()
    keep: List[Any] = []
    biases = [call.operator for call in graph.calls if call.text == "bias"]
    index_of = {
        operator: graph.operator_index(operator) for operator in {one[0] for one in costs} | set(biases)
    }
    every = costs + [(operator, "fp32", [0], [0]) for operator in biases]
    listed = (RecordedCost * len(every))()
    for to, (operator, precision, forward, backward) in zip(listed, every):
        to.op, to.precision, to.n = index_of[operator], PRECISIONS.index(precision), len(forward)
        arrays = _array(forward), _array(backward)
        keep.append(arrays)
        to.forward_ns, to.backward_ns = (ctypes.cast(one, POINTER(c_int64)) for one in arrays)
    update = _array(updates)
    filed = RecordedCosts(
        device.encode(),
        f"PyTorch {torch.__version__}".encode(),
        torch.get_num_threads(),
        job.bucket_bytes if job.bucket_bytes != 25 << 20 else 0,
        len(every),
        listed,
        len(updates),
        ctypes.cast(update, POINTER(c_int64)),
    )
    _library.call(
        "tandem",
        "tandem_record_costs",
        c_char_p(os.fspath(store).encode()),
        graph.c_graph().pointer,
        byref(filed),
    )


def _file_all_reduces(
    job: _Job, graph: Graph, reduces: List[List[Tuple[int, int]]], tails: List[int], device: str, store: str
) -> Tuple[str, List[Tuple[int, float]]]:
    """All ranks: times of the buckets' all-reduces, alone and as they ran beside the backward passes.

    The rank that is ready last sees what the transfer takes, so the shortest time counts. `tails`: how much
    longer than its backward pass the last all-reduce took, which begins while the last call still ends."""
    devices, batches = _gather(device), _gather(graph.batch)
    cluster = _cluster_of(devices, batches)
    if _world() == 1:
        return cluster, []
    everyone = _gather(reduces)
    loaded: Dict[int, List[int]] = {}
    for of_ranks in zip(*everyone):
        for of_bucket in zip(*of_ranks):
            loaded.setdefault(of_bucket[0][0], []).append(min(ns for _, ns in of_bucket))
    loaded = {size: _middle(times) for size, times in sorted(loaded.items())}
    shortest_tails = _middle([min(one) for one in zip(*_gather(tails))])
    for size, times in loaded.items():
        alone = _middle(_time_all_reduce(size, 2 * len(times)))
        if size == reduces[0][-1][0]:
            alone = min(alone, shortest_tails, key=statistics.median)
        if distributed.get_rank() == 0:
            # the last bucket has no backward pass beside it
            beside = [max(ns, statistics.median(alone)) for ns in times]
            _file_all_reduce(store, cluster, graph.batch, size, alone, beside)
    distributed.barrier()
    return cluster, [(size, statistics.median(times) * 1e-9) for size, times in loaded.items()]


def _time_all_reduce(size: int, repetitions: int) -> List[int]:
    """All ranks: ns of all-reduces of `size` bytes, with nothing beside them."""
    tensor, times = torch.zeros(max(1, size // 4)), []
    for _ in range(repetitions + 1):
        distributed.barrier()
        begin = time.perf_counter_ns()
        distributed.all_reduce(tensor)
        times.append(time.perf_counter_ns() - begin)
    return [min(one) for one in zip(*_gather(times[1:]))]


def _file_all_reduce(
    store: str, cluster: str, batch: int, size: int, alone: Sequence[float], loaded: Sequence[float]
) -> None:
    """Files the times in ns of an all-reduce of `size` bytes between the cluster's ranks."""
    n = min(len(alone), len(loaded))
    parsed = open_cluster(cluster, batch)
    parsed.over_network = 1
    _library.call(
        "tandem",
        "tandem_record_all_reduce",
        c_char_p(os.fspath(store).encode()),
        byref(parsed),
        c_uint64(size),
        _array([round(ns) for ns in alone[:n]]),
        _array([round(ns) for ns in loaded[:n]]),
        c_int64(n),
        c_double(1.0),  # times of calls are those beside all-reduces
    )


def profile_all_reduce(
    sizes: Sequence[int],
    device: Optional[str] = None,
    *,
    store: Optional[str] = None,
    repetitions: int = 10,
    batch: int = 1,
) -> Dict[int, float]:
    """All ranks: measures all-reduces of float32 tensors of `sizes` bytes, for jobs of these devices so.

    `profile` does so for the buckets of its module; this is for others. Returns seconds by size.
    """
    device, store = device or device_here(), store or default_store()
    found: Dict[int, float] = {}
    cluster = _cluster_of(_gather(device), [batch] * _world())
    for size in sizes:
        shortest = _time_all_reduce(size, repetitions)
        found[size] = statistics.median(shortest) * 1e-9
        if distributed.get_rank() == 0:
            _file_all_reduce(store, cluster, batch, size, shortest, shortest)
    distributed.barrier()
    return found


@dataclass
class Comparison:
    """What was predicted and what was measured for one plan; seconds of a step."""

    plan: str
    predicted: float
    measured: float
    replay: Replay = field(repr=False)

    @property
    def error(self) -> float:
        """(predicted − measured) / measured."""
        return self.predicted / self.measured - 1

    def __str__(self) -> str:
        return (
            f"{self.plan:<20} predicted {time_text(self.predicted):>8}, "
            f"measured {time_text(self.measured):>8}, "
            f"error {100 * self.error:+.1f} %"
        )


def compare(
    module: torch.nn.Module,
    inputs: Any,
    plans: Mapping[str, Union[None, str, Plan, Dict[str, str]]],
    cluster: str,
    loss: Optional[Loss] = None,
    *,
    optimizer: Optional[MakeOptimizer] = None,
    graph: Optional[Graph] = None,
    steps: int = 10,
    warmup: int = 2,
    rounds: int = 3,
    store: Optional[str] = None,
    bucket_bytes: int = 0,
    traces: Optional[Mapping[str, Trace]] = None,
) -> List[Comparison]:
    """Runs plans, in turns, and replays them from the store: predicted beside measured.

    Every rank of `cluster` calls it with the same plans, by name. A plan is one of `allocate`, a precision,
    or precisions by name. The measured step is the median over all rounds, of the slowest rank. Plans that
    `traces` names are not run: their measured step is that of the PyTorch profiler's files, one a rank.

    >>> for row in tandem.compare(module, x, {"fp32": None, "planned": plan}, "torch:a + torch:b"):
    print(row)"""
    if not isinstance(plans, Mapping):
        raise _library.error("USAGE", f"plans is a dict of plans by name, as in {{'fp32': None}}; got {plans!r}")
    job = _Job(module, inputs, loss, optimizer, bucket_bytes)
    recorded = {name: read_trace(trace) for name, trace in (traces or {}).items()}
    runs = {name: plan for name, plan in plans.items() if name not in recorded}
    measured: Dict[str, List[int]] = {name: [] for name in runs}
    was_training = job.inner.training
    with put_back(job.inner), job.kept():
        job.inner.train()
        try:
            if graph is None:
                job.optimizer = job.make_optimizer(job.inner.parameters())
                graph = _record_module(job, batch_of(inputs, None), None)
            for _ in range(rounds):
                for name, plan in runs.items():
                    remove(job.inner)
                    if plan is not None and plan != "fp32":
                        apply(job.inner, plan)
                    job.start()
                    measured[name] += [job.step().step for _ in range(warmup + steps)][warmup:]
        finally:
            remove(job.inner)
            job.inner.train(was_training)
    rows = []
    graphs = _gather(graph.to_json())
    by_batch = {one["batch"]: Graph.from_json(one) for one in graphs}
    planning = Planning(list(by_batch.values()), cluster, store=store, bucket_bytes=bucket_bytes)
    for name, plan in plans.items():
        replayed = planning.replay(plan)
        if name in recorded:
            replayed.recorded = recorded[name]
            step = replayed.recorded_step or 0.0
        else:
            step = max(_gather(statistics.median(measured[name]))) * 1e-9
        rows.append(Comparison(name, replayed.step, step, replayed))
    return rows
