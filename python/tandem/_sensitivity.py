"""sensitivity: what low precision costs a module, from PyTorch's own gradients."""

from __future__ import annotations

import itertools
import time
from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import torch

from tandem import _library
from tandem._capture import Recorder, as_inputs, batch_of, make_graph, split_batch, tensors_in, unwrap
from tandem._graph import Graph
from tandem._held import Held, held
from tandem._plan import default_store
from tandem._probe import Aliased, Array, Metric, Probe, metric_of, on_host, when_gradient
from tandem._estimated import Estimate, Estimated, Store, file
from tandem._estimate import (
    cells_of,
    mean_squares,
    new_estimated,
    optimizer_kind,
    probed_calls,
    put_gradients,
    put_replicate,
)
from tandem._structs import F32, MAX_REPLICATE, MIN_REPLICATE, PRECISIONS, GraphStruct
from tandem._structs import ProductOperands, Statistics, Window
from tandem._trace import Names, Product, follow_modules

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
_METRIC_BATCHES = 4
_LEAST_SAMPLES = 4


@dataclass
class Sensitivity:
    """What each precision costs each call of a module, as `sensitivity` filed it."""

    graph: Graph
    store: str
    data: str
    batches: int
    method: str  # "sampled", in percent of more samples; "fisher", in nats; "qsync"
    values: Dict[str, Dict[str, Estimate]]  # call → precision → sensitivity, at the batch of the graph
    seconds: float = 0.0
    steps: Optional[float] = None  # the same, in gradients of one batch; None: not measured

    def __str__(self) -> str:
        columns = ("bf16", "int8", "int8_full")
        width = max(len(name) for name in self.values)
        unit = {"sampled": " (% more samples)", "fisher": " (nats)"}.get(self.method, "")
        named = "" if self.data == "batches" else f" of {self.data}"
        took = f" in the time of {self.steps:.1f} gradients" if self.steps else ""
        lines = [
            f"{self.graph.model}, {self.batches} batches{named}, {self.method}{unit}, "
            f"filed in {self.store}{took}",
            f"  {'':<{width}}" + "".join(f"  {name:>20}" for name in columns),
        ]
        for name, of in self.values.items():
            lines.append(f"  {name:<{width}}" + "".join(f"  {self._cell(of.get(x)):>20}" for x in columns))
        return "\n".join(lines)

    @staticmethod
    def _cell(of: Optional[Estimate]) -> str:
        if of is None:
            return "-"
        return str(of) if of.low is None else f"{of} ({of.range})"


# --- Statistics, for the methods that rank by them ---


class _Watcher(Aliased):
    """Keeps a product's operands until its output's gradient arrives, then adds to its statistics."""

    def __init__(self, module: torch.nn.Module, names: Names, graph: Graph) -> None:
        super().__init__(module, names)
        self.by_name = {call.name: call for call in graph.adjustable}
        self.found: Dict[str, Statistics] = {}
        self._square = _library.load("tandem").tandem_statistics_square
        self._square.restype, self._square.argtypes = c_double, [Array, c_int64]

    def wants(self, name: str, product: Product) -> bool:
        of = (product.x, product.w, product.bias, product.addend)
        has_gradient = any(one is not None and one.requires_grad for one in of)
        return name in self.by_name and has_gradient and torch.is_grad_enabled()

    def watch(
        self, name: str, product: Product, x: torch.Tensor, w: torch.Tensor, result: torch.Tensor
    ) -> None:
        sums = self.found.setdefault(name, Statistics())

        def see_weight(g: torch.Tensor) -> None:
            sums.wgrad_square += self._square_of(g)

        def see_input(g: torch.Tensor) -> None:
            sums.dgrad_square += self._square_of(g)

        when_gradient(result, lambda g: _add_call(sums, product, x.detach(), w.detach(), g))
        when_gradient(x, see_input)
        when_gradient(w, see_weight)

    def _square_of(self, g: torch.Tensor) -> float:
        return self._square(on_host(g), g.numel())


def _add_call(sums: Statistics, product: Product, x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> None:
    """Adds one call, as tandem_statistics_add_call reads it: images with their channels last."""
    count, window = 1, None
    if product.kind == "conv2d":
        x, w, g = x.permute(0, 2, 3, 1), w.permute(2, 3, 1, 0), g.permute(0, 2, 3, 1)
        window = byref(Window(*x.shape, *g.shape[1:3], *w.shape[:2], product.stride, product.pad))
    elif product.kind == "matmul":
        count = x.numel() // (x.shape[-1] * x.shape[-2])
    x, w, g = on_host(x), on_host(w), on_host(g)
    is_turned = product.kind == "linear" and not product.turned
    rows, k, columns = g.numel() // g.shape[-1] // count, x.shape[-1], g.shape[-1]
    of = ProductOperands(rows, k, columns, x.data_ptr(), w.data_ptr(), g.data_ptr(), is_turned)
    _library.call("tandem", "tandem_statistics_add_call", byref(sums), byref(of), c_int64(count), window)
    sums.n_batch += 1


def _finish(found: Dict[str, Statistics], batch: int) -> None:
    """The means of what a gradient reached; other calls cost nothing (_fill_unseen)."""
    finish = _library.load("tandem").tandem_statistics_finish
    finish.restype, finish.argtypes = None, [c_void_p, c_int64]
    for name in [name for name, sums in found.items() if sums.n_batch == 0]:
        del found[name]
    for sums in found.values():
        sums.local_batch = batch
        finish(byref(sums), sums.n_batch)


def _file(graph: Graph, found: Dict[str, Statistics], data: str, store: str) -> None:
    opened = Store(store, True, _environment())
    _library.call("tandem", "tandem_store_begin", opened.pointer)
    for name, sums in found.items():
        op = c_int(graph.operator_index(graph.find(name).operator))
        _library.call(
            "tandem",
            "tandem_store_put_statistics",
            opened.pointer,
            graph.c_graph().pointer,
            c_char_p(data.encode()),
            op,
            byref(sums),
        )
    _library.call("tandem", "tandem_store_commit", opened.pointer)


def _values(graph: Graph, data: str, store: str, method: str) -> Dict[str, Dict[str, Estimate]]:
    """The sensitivities that the store's statistics give."""
    opened = Store(store)
    head = graph.c_graph().pointer
    n_op = GraphStruct.from_address(head.value).n_op
    values = (c_double * (n_op * len(PRECISIONS)))()
    _library.call(
        "tandem",
        "tandem_sensitivity_load",
        values,
        opened.pointer,
        head,
        c_char_p(method.encode()),
        c_char_p(data.encode()),
        c_void_p(None),
        c_int(F32),
        c_int(-1),
    )
    return {
        call.name: {
            precision: Estimate(values[graph.operator_index(call.operator) * len(PRECISIONS) + p])
            for p, precision in enumerate(PRECISIONS)
        }
        for call in graph.adjustable
    }


def _fill_unseen(graph: Graph, watcher: _Watcher) -> None:
    """A call that no gradient reached costs nothing in any precision; the planner wants a row for it, too."""
    for call in graph.adjustable:
        if call.name in watcher.found:
            continue
        rows = call.input[0] if call.kind == "linear" else 1
        watcher.found[call.name] = Statistics(
            n_batch=1, local_batch=graph.batch, rows=rows, k=1, columns=1, x_elements=1, w_elements=1
        )


def _keep_statistics(job: _Job, batches: Iterable[Any], data: str, store: str, method: str) -> Sensitivity:
    """Trains on the batches, and files the statistics of their products."""
    begin, graph, watcher, n = time.perf_counter(), None, None, 0
    job.held.keep_weights()
    for given in batches:
        if graph is None or watcher is None:
            graph = job.record(given)
            watcher = _Watcher(job.module, job.names, graph)
        job.optimizer.zero_grad()
        job.names.begin()
        with torch.enable_grad():
            with watcher:
                loss = job.loss_of(given)
            loss.backward()
        job.optimizer.step()
        n += 1
    if graph is None or watcher is None:
        raise _library.error("USAGE", "no batches were given; sensitivities need 1 or more")
    _finish(watcher.found, graph.batch)
    _fill_unseen(graph, watcher)
    _file(graph, watcher.found, data, store)
    values = _values(graph, data, store, method)
    return Sensitivity(graph, store, data, n, method, values, time.perf_counter() - begin)


# --- An estimate by a probe ---


def _is_same(one: Any, other: Any) -> bool:
    mine, theirs = tensors_in(one), tensors_in(other)
    return len(mine) == len(theirs) and all(
        a is b or (a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b))
        for a, b in zip(mine, theirs)
    )


def _take_batches(job: _Job, batches: Iterable[Any], n_replicate: int) -> List[Any]:
    """The first batches, two a replicate, as many as there are."""
    if not MIN_REPLICATE <= n_replicate <= MAX_REPLICATE:
        raise _library.error(
            "USAGE", f"replicates={n_replicate}: allowed are {MIN_REPLICATE} to {MAX_REPLICATE}"
        )
    taken = list(itertools.islice(batches, 2 * n_replicate))
    if len(taken) < 2 * MIN_REPLICATE:
        found = f"{len(taken)} batches were given" if taken else "no batches were given"
        raise _library.error(
            "USAGE",
            f"{found}; an estimate needs {2 * MIN_REPLICATE} or more, and takes {2 * n_replicate}: two a "
            'replicate. Give more, or method="fisher" ranks by the statistics of a few',
        )
    taken = taken[: len(taken) // 2 * 2]
    sizes = [batch_of(job.split(given)[0], job.batch) for given in taken]
    odd = next((k for k, size in enumerate(sizes) if size != sizes[0]), None)
    if odd is not None:
        raise _library.error(
            "USAGE",
            f"batch {odd} has {sizes[odd]} samples, and batch 0 has {sizes[0]}; an estimate needs batches of one "
            "size. Give the DataLoader drop_last=True",
        )
    if sizes[0] < 2:
        raise _library.error("USAGE", f"batches of {sizes[0]} sample have no spread; an estimate needs 2 or more")
    same = next((k for k in range(0, len(taken), 2) if _is_same(taken[k], taken[k + 1])), None)
    if same is not None:
        raise _library.error(
            "USAGE",
            f"batches {same} and {same + 1} are equal, so that their gradients have no variance; give "
            "different samples",
        )
    return taken


def _part_of(given: Any, batch: int) -> Any:
    """Half of a batch, but 4 samples at the least; the whole where not all tensors begin with samples."""
    n = max(batch // 2, min(batch, _LEAST_SAMPLES))

    def begins_with_samples(one: Any) -> bool:
        if isinstance(one, torch.Tensor):
            return one.dim() == 0 or one.shape[0] == batch
        if type(one) in (tuple, list, dict):
            return all(map(begins_with_samples, one.values() if isinstance(one, dict) else one))
        return one is None or isinstance(one, (bool, int, float, str))

    def part(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            return one[:n] if one.dim() > 0 else one
        if isinstance(one, dict):
            return {key: part(value) for key, value in one.items()}
        return type(one)(map(part, one)) if isinstance(one, (tuple, list)) else one

    return part(given) if n < batch and begins_with_samples(given) else given


def _estimate(
    job: _Job,
    batches: Iterable[Any],
    data: str,
    store: str,
    trained: Tuple[int, int],
    options: Tuple[int, int, bool],
) -> Sensitivity:
    """The replicates of all calls and precisions, filed."""
    (step, steps), (n_replicate, seed, is_whole) = trained, options
    taken = _take_batches(job, batches, n_replicate)
    graph = job.record(taken[0])
    parts = taken if is_whole else [_part_of(given, graph.batch) for given in taken]
    n_sample = batch_of(job.split(parts[0])[0], None) if parts[0] is not taken[0] else graph.batch
    cells = cells_of(graph)
    probe = Probe(job.held, job.names, probed_calls(cells), n_sample, job.loss_of, seed, step)
    begin = time.perf_counter()
    probe.look(taken[0], graph.batch)
    one_gradient = time.perf_counter() - begin
    if graph.optimizer["kind"] == "adamw":
        filed = mean_squares(job.optimizer, job.held.parameters)
        probe.metric = metric_of(*filed) if filed else _first_metric(probe, parts)
    estimated, sketches = new_estimated(graph, n_sample, len(taken) // 2, step, steps, seed), []
    for r in range(len(taken) // 2):
        found, sketch = probe.replicate(parts[2 * r : 2 * r + 2], f"batches {2 * r} and {2 * r + 1}")
        put_replicate(estimated, r, cells, found, probe.steps)
        sketches.append(sketch)
    put_gradients(estimated, sketches)
    estimated = file(estimated, graph.c_graph().pointer, store, data, _environment())
    seconds = time.perf_counter() - begin
    values = _estimates(graph, estimated)
    return Sensitivity(graph, store, data, len(taken), "sampled", values, seconds, seconds / one_gradient)


def _first_metric(probe: Probe, taken: Sequence[Any]) -> Optional[Metric]:
    """Before the first step v̂ is that of a few batches, summed where the weights lie: it is as large."""
    squares = [torch.zeros_like(weight) for weight in probe.held.weights]
    for k, given in enumerate(taken[:_METRIC_BATCHES]):
        probe.gradient(given, f"batch {k}")
        for square, parameter in zip(squares, probe.held.parameters):
            if parameter.grad is not None:
                square += parameter.grad.detach() ** 2 / _METRIC_BATCHES
    return metric_of(squares, [1.0] * len(squares))


def _estimates(graph: Graph, estimated: Estimated) -> Dict[str, Dict[str, Estimate]]:
    """In percent, at the graph's batch; int8's gradients are in f32, as devices of PyTorch have them."""
    cell_of, values = _library.load("tandem").tandem_estimate_cell, {}
    for call in graph.adjustable:
        op = graph.operator_index(call.operator)
        of = {PRECISIONS[0]: Estimate(0.0, 0.0, 0.0)}
        for p in range(1, len(PRECISIONS)):
            cell = cell_of(c_int(op), c_int(p), c_int(F32))
            if estimated.c.is_estimated[cell]:
                of[PRECISIONS[p]] = estimated.estimate(cell, graph.batch)
        values[call.name] = of
    return values


# --- Both ---


class _Job:
    """A module, held still, with its loss and optimizer, which is_read alone, or stepped."""

    def __init__(
        self,
        held: Held,
        loss: Optional[Callable[..., torch.Tensor]],
        optimizer: Union[None, torch.optim.Optimizer, MakeOptimizer],
        batch: Optional[int],
        name: Optional[str],
        is_read: bool,
    ) -> None:
        self.held, self.module, self.loss, self.batch, self.name = held, held.module, loss, batch, name
        self.names = Names()
        if isinstance(optimizer, torch.optim.Optimizer):
            self.optimizer = optimizer if is_read else _another(optimizer)
        else:
            make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9))
            self.optimizer = make(held.parameters)

    def split(self, given: Any) -> Tuple[Any, Any]:
        return split_batch(given, self.loss)

    def loss_of(self, given: Any) -> torch.Tensor:
        inputs, target = self.split(given)
        args, kwargs = as_inputs(inputs)
        output = self.module(*args, **kwargs)
        of = self.loss or _default_loss
        return of(output) if target is None else of(output, target)

    def record(self, given: Any) -> Graph:
        """The graph of one forward pass, which leaves no trace."""
        inputs, _ = self.split(given)
        args, kwargs = as_inputs(inputs)
        self.names.begin()
        recorder = Recorder(self.module, self.names, batch_of(inputs, self.batch))
        with torch.enable_grad(), recorder:
            output = self.module(*args, **kwargs)
        self.held.put_buffers()
        return make_graph(self.module, recorder, output, self.optimizer, self.name)


def _another(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """An optimizer of the same kind and options, without state."""
    return type(optimizer)([dict(group) for group in optimizer.param_groups])  # type: ignore[call-arg]


def _environment() -> Tuple[str, int]:
    return f"PyTorch {torch.__version__}", torch.get_num_threads()


def sensitivity(
    module: torch.nn.Module,
    batches: Iterable[Any],
    loss: Optional[Callable[..., torch.Tensor]] = None,
    *,
    optimizer: Union[None, torch.optim.Optimizer, MakeOptimizer] = None,
    store: Optional[str] = None,
    data: str = "batches",
    batch: Optional[int] = None,
    name: Optional[str] = None,
    method: str = "sampled",
    replicates: int = 4,
    step: int = 0,
    steps: int = 0,
    seed: int = 0,
    whole: bool = False,
) -> Sensitivity:
    """Measures what each precision costs a module, from PyTorch's gradients, and files it.

    By default the module is estimated (docs/sensitivity.md, "By a probe"): at its weights, each replicate takes
    the gradients of two batches at w + εz and w − εz, with random signs z. From them follow the more samples,
    in percent, that each call in each precision needs to the same loss. The replicates go into the profile
    store, where `allocate` and the command `tandem allocate` find them, so that plans have intervals.
    Weights, buffers, gradients, modes and random numbers are put back, to the bit.

        batches    each what the module takes, or (inputs, target): different ones of the training's size.
                   2 · replicates are used: half of the samples of each, with the ranges of a whole one
        loss       from (output, target) to a number, with targets; from the output without [mean square of
                   the outputs]. A mean over samples
        optimizer  one that trains the module, or a function from parameters to one [SGD]. With Adam's kind
                   products are over √v̂: its own, or before its first step that of 4 batches
        data       the name of the samples in the store
        method     "sampled"; "fisher" or "qsync": trains on the batches instead, and files statistics of the
                   products, by which these methods rank (nats; no unit)
        replicates 3 to 64 [4]: intervals narrow with their root
        step       of a training of `steps`, at which the module is now. Called again at another step of the
                   same `steps`, it adds a training point: plans count the mean over training points
        whole      True: all samples of a batch, also where a tensor has another first dimension than samples

    Cost: 2 · replicates gradients of a batch, 1 to see ranges and slopes that jump, and with Adam's kind
    before its first step 2 more. Memory beside that of a training step: 4 bytes a weight (Adam's kind before
    its first step: 8), 13 on the host for each weight that is drawn, every 16th of large parameters, and some
    1.3 MiB a call, more where 2 samples have more than 16384 numbers.

    UsageError: fewer than 6 batches, batches that are equal or of different sizes, a loss that is not finite,
    weights narrower than float32, another optimizer, and calls that run without gradients (no_grad,
    checkpoints), by name. The store and the module are then as before.

    >>> batches = itertools.islice(loader, 8)
    >>> print(tandem.sensitivity(module, batches, torch.nn.functional.cross_entropy, optimizer=optimizer))
    """
    inner, store = unwrap(module), store or default_store()
    if method not in ("sampled", "fisher", "qsync"):
        raise _library.error("USAGE", f"method={method!r}: allowed are 'sampled', 'fisher' and 'qsync'")
    if not 0 <= step <= max(step, steps) or (steps and step > steps):
        raise _library.error("USAGE", f"step={step} of steps={steps}: a step is 0 or more, up to steps")
    with held(inner) as state:
        job = _Job(state, loss, optimizer, batch, name, method == "sampled")
        handles = follow_modules(inner, job.names)
        try:
            if method != "sampled":
                return _keep_statistics(job, batches, data, store, method)
            optimizer_kind(job.optimizer)
            return _estimate(job, batches, data, store, (step, steps), (replicates, seed, whole))
        finally:
            for handle in handles:
                handle.remove()


def _default_loss(output: Any) -> torch.Tensor:
    return sum(tensor.float().pow(2).mean() for tensor in tensors_in(output) if tensor.is_floating_point())
