"""sensitivity: what low precision costs a module, from PyTorch's own gradients."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_double, c_int, c_void_p
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import torch
import torch.nn.functional as F

from tandem import _library
from tandem._apply import remove
from tandem._capture import Recorder, as_inputs, batch_of, make_graph, tensors_in, unwrap
from tandem._graph import Graph
from tandem._plan import default_store
from tandem._structs import PRECISIONS, GraphHead, Product as CProduct, Statistics
from tandem._trace import Follower, Names, Product, follow_modules


@dataclass
class Sensitivity:
    """The expected rise of the loss by call and precision, from statistics that `sensitivity` filed."""

    graph: Graph
    store: str
    data: str
    batches: int
    method: str  # "fisher", in nats
    values: Dict[str, Dict[str, float]]  # call → precision → sensitivity

    def __str__(self) -> str:
        columns = ("bf16", "int8", "int8_full")
        width = max(len(name) for name in self.values)
        lines = [
            f"{self.graph.model}, {self.batches} batches of {self.data}, {self.method} (nats), "
            f"filed in {self.store}",
            f"  {'':<{width}}" + "".join(f"  {name:>10}" for name in columns),
        ]
        for name, of in self.values.items():
            lines.append(f"  {name:<{width}}" + "".join(f"  {of[column]:>10.3g}" for column in columns))
        return "\n".join(lines)


class _Watcher(Follower):
    """Keeps a product's operands until its output's gradient arrives, then adds to its statistics."""

    def __init__(self, module: torch.nn.Module, names: Names, graph: Graph) -> None:
        super().__init__(module, names)
        self.by_name = {call.name: call for call in graph.adjustable}
        self.found: Dict[str, Statistics] = {}
        self.seen: List[str] = []

    def product(self, name: str, product: Product, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if name in self.by_name and result.requires_grad:
            self.seen.append(name)
            x, w = product.x.detach(), product.w.detach()
            result.register_hook(lambda g: self.add(name, product, x, w, g.detach()))
        return result

    def add(self, name: str, product: Product, x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> None:
        sums = self.found.setdefault(name, Statistics())
        if product.kind == "conv2d":
            self._add_convolution(sums, product, x, w, g)
        elif product.kind == "linear":
            matrix = w if product.turned else w.t()
            rows, g_rows = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
            self._add_matrix(sums, rows, matrix, g_rows)
            sums.rows, sums.k, sums.columns = rows.shape[0], matrix.shape[0], matrix.shape[1]
            gw, gx = rows.t() @ g_rows, g_rows @ matrix.t()
            self._add_gradients(sums, gw, gx)
        else:
            count = x.numel() // (x.shape[-1] * x.shape[-2])
            x3, w3, g3 = (one.reshape(count, *one.shape[-2:]) for one in (x, w, g))
            for one in range(count):
                self._add_matrix(sums, x3[one], w3[one], g3[one])
            sums.rows, sums.k, sums.columns = count * x.shape[-2], x.shape[-1], g.shape[-1]
            self._add_gradients(sums, x3.transpose(1, 2) @ g3, g3 @ w3.transpose(1, 2))
        sums.x_elements, sums.w_elements = x.numel(), w.numel()
        sums.x_amax += float(x.abs().max())
        sums.w_amax += float(w.abs().max())
        sums.g_amax += float(g.abs().max())
        sums.n_batch += 1

    def _add_convolution(
        self, sums: Statistics, product: Product, x: torch.Tensor, w: torch.Tensor, g: torch.Tensor
    ) -> None:
        out = w.shape[0]
        columns = F.unfold(
            x, product.kernel, padding=product.pad, stride=product.stride
        )  # (n, c·kernel·kernel, windows)
        rows = columns.transpose(1, 2).reshape(-1, columns.shape[1])
        g_rows = g.permute(0, 2, 3, 1).reshape(-1, out)
        matrix = w.reshape(out, -1).t()
        self._add_matrix(sums, rows, matrix, g_rows)
        sums.rows, sums.k, sums.columns = rows.shape[0], rows.shape[1], out
        gx = torch.nn.grad.conv2d_input(x.shape, w, g, product.stride, product.pad)
        self._add_gradients(sums, rows.t() @ g_rows, gx)

    @staticmethod
    def _add_matrix(sums: Statistics, x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> None:
        x, w, g = (one.float().contiguous() for one in (x, w, g))
        product = CProduct(x.shape[0], x.shape[1], w.shape[1], x.data_ptr(), w.data_ptr(), g.data_ptr(), 0)
        _library.call("tandem", "tandem_statistics_add_product", byref(sums), byref(product))

    @staticmethod
    def _add_gradients(sums: Statistics, gw: torch.Tensor, gx: torch.Tensor) -> None:
        sums.wgrad_square += float(gw.double().pow(2).sum())
        sums.dgrad_square += float(gx.double().pow(2).sum())


def _finish(found: Dict[str, Statistics], batch: int) -> None:
    finish = _library.load("tandem").tandem_statistics_finish
    finish.restype = None
    for sums in found.values():
        n, sums.n_batch, sums.local_batch = sums.n_batch, 0, batch
        finish(byref(sums), ctypes.c_int64(n))
        sums.n_batch = n


class _Store(_library.Owned):
    def __init__(self, path: str) -> None:
        super().__init__("tandem", "tandem_store_close")
        _library.call("tandem", "tandem_store_open", byref(self.pointer), c_char_p(path.encode()), c_int(1))


def _file(graph: Graph, found: Dict[str, Statistics], data: str, store: str) -> None:
    opened = _Store(store)
    _library.call(
        "tandem",
        "tandem_store_set_environment",
        opened.pointer,
        c_char_p(f"PyTorch {torch.__version__}".encode()),
        c_int(torch.get_num_threads()),
    )
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


def _values(graph: Graph, data: str, store: str) -> Dict[str, Dict[str, float]]:
    """The sensitivities that the store's statistics give, by the first method."""
    opened = _Store(store)
    head = graph.c_graph().pointer
    n_op = GraphHead.from_address(head.value).n_op
    values = (c_double * (n_op * len(PRECISIONS)))()
    _library.call(
        "tandem",
        "tandem_sensitivity_load",
        values,
        opened.pointer,
        head,
        c_char_p(b"fisher"),
        c_char_p(data.encode()),
        c_void_p(None),
        c_int(0),
    )
    return {
        call.name: {
            precision: values[graph.operator_index(call.operator) * len(PRECISIONS) + p]
            for p, precision in enumerate(PRECISIONS)
        }
        for call in graph.adjustable
    }


def sensitivity(
    module: torch.nn.Module,
    batches: Iterable[Any],
    loss: Optional[Callable[..., torch.Tensor]] = None,
    *,
    optimizer: Optional[Callable[[Any], torch.optim.Optimizer]] = None,
    store: Optional[str] = None,
    data: str = "batches",
    batch: Optional[int] = None,
    name: Optional[str] = None,
) -> Sensitivity:
    """Measures what each precision costs a module: statistics of its products, from PyTorch's gradients.

    The module trains in fp32 on the batches, and gets its weights back at the end. The statistics, those of
    the command `tandem sensitivity`, go into the profile store, where `allocate` finds them; a sensitivity
    is the expected rise of the loss in nats (docs/sensitivity.md).

        batches    of which each is what the module takes, or (inputs, target)
        loss       from (output, target) to a number, with targets; from the output without [mean square of
        the outputs].
                   Sensitivities are in nats if it is a mean cross-entropy
        optimizer  from parameters to an optimizer [SGD]; its rate counts
        data       the name of the statistics in the store

    >>> batches = [(x, y) for x, y in itertools.islice(loader, 10)]
    >>> print(tandem.sensitivity(module, batches, torch.nn.functional.cross_entropy))
    """
    inner, store = unwrap(module), store or default_store()
    make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9))
    state = {key: value.clone() for key, value in inner.state_dict().items()}
    gradients = [(parameter, parameter.grad) for parameter in inner.parameters()]
    was_training, graph, watcher, n = inner.training, None, None, 0
    remove(inner)
    inner.train()
    runs = make([parameter for parameter in inner.parameters() if parameter.requires_grad])
    names = Names()
    handles = follow_modules(inner, names)
    try:
        for given in batches:
            inputs, target = _split(given, loss)
            args, kwargs = as_inputs(inputs)
            if graph is None:
                names.begin()
                recorder = Recorder(inner, names, batch_of(inputs, batch))
                with torch.enable_grad(), recorder:
                    output = inner(*args, **kwargs)
                graph = make_graph(inner, recorder, output, runs, name)
                inner.load_state_dict(state)
                watcher = _Watcher(inner, names, graph)
            runs.zero_grad()
            names.begin()
            with watcher:
                output = inner(*args, **kwargs)
            of = loss or _default_loss
            (of(output) if target is None else of(output, target)).backward()
            runs.step()
            n += 1
    finally:
        for handle in handles:
            handle.remove()
        inner.load_state_dict(state)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        inner.train(was_training)
    if graph is None or watcher is None:
        raise _library.error("USAGE", "no batches were given; sensitivities need 1 or more")
    _finish(watcher.found, graph.batch)
    _fill_unseen(graph, watcher)
    _file(graph, watcher.found, data, store)
    return Sensitivity(graph, store, data, n, "fisher", _values(graph, data, store))


def _default_loss(output: Any) -> torch.Tensor:
    return sum(tensor.float().pow(2).mean() for tensor in tensors_in(output) if tensor.is_floating_point())


def _split(given: Any, loss: Any) -> Tuple[Any, Any]:
    """(inputs, target) where a loss wants a target: two things, of which the second is one."""
    if loss is not None and isinstance(given, (tuple, list)) and len(given) == 2:
        return given[0], given[1]
    return given, None


def _fill_unseen(graph: Graph, watcher: _Watcher) -> None:
    """A call that no gradient reached costs nothing in any precision; the planner wants a row for it, too."""
    for call in graph.adjustable:
        if call.name in watcher.found:
            continue
        rows = call.input[0] if call.kind == "linear" else 1
        watcher.found[call.name] = Statistics(
            n_batch=1, local_batch=graph.batch, rows=rows, k=1, columns=1, x_elements=1, w_elements=1
        )
