"""What a probe sees of a module: hooks that keep tensors and gradients of calls, and passes over batches.

What follows from the tensors is computed by the library, as in `tandem sensitivity`: the functions of
include/tandem/advanced/probe.h, derived in runtime/estimate/estimate_probe.c. The loss is differentiated at w + εz
and at w − εz; from what both gradients say of a call follows the noise of rounding its tensors.

A call has aliases of its operands here, so that their gradients are those that this call returns, whatever
else reads the tensors. A graph that was captured keeps numbers in f32 between calls, as tandem.apply does. So
a narrow result makes nothing after it narrow.
"""

from __future__ import annotations

import math
import re
from ctypes import byref, c_double, c_float, c_int, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

import torch

from tandem import _library
from tandem._held import Held
from tandem._structs import N_PROBE_PART, PROBE_BLOCK, PROBE_SKETCH, ProbeSums, ProbeTensor
from tandem._trace import Follower, Names, Product

Tensor = torch.Tensor

KEPT_NUMBERS = 1 << 14  # of a tensor of samples, but
KEPT_SAMPLES = 2  # at the least
KEPT_WEIGHTS = 1 << 13

INPUT, SECOND, GRADIENT, RESULT, WEIGHT = range(5)
LOOK, ABOVE, BELOW = range(3)  # passes

# Functions whose slope jumps, by how the names of their nodes in autograd's graph begin.
_JUMPS = re.compile(
    "(Relu|LeakyRelu|Prelu|Rrelu|Elu|Threshold|Hardtanh|Hardsigmoid|Hardswish|Hardshrink|Softshrink|"
    "(Adaptive|Fractional|Mkldnn|Cudnn)?MaxPool|MaxUnpool|Amax|Amin|Max|Min|Aminmax|Maximum|Minimum|"
    "Fmax|Fmin|Clamp|Abs|L1Loss|Sgn|Sort|Topk|Kthvalue|(Nan)?[Mm]edian|Mode|Cummax|Cummin|Floor|Ceil|Round|Trunc|Fmod|"
    "Remainder|Where)(?![a-z])"
)


class Array:
    """An argument of such a function: a tensor on the CPU, contiguous, which lives during the call; or None."""

    @staticmethod
    def from_param(tensor: Optional[Tensor]) -> Optional[c_void_p]:
        return None if tensor is None else c_void_p(tensor.data_ptr())


def numbers(name: str, *takes: Any, gives: Any = None) -> Callable[..., Any]:
    """A function of probe.h without a status."""
    called = getattr(_library.load("tandem_runtime"), name)
    called.argtypes, called.restype = takes, gives
    return called


# --- What is kept of a pass ---


@dataclass
class Kept:
    """The first samples of a tensor, in f32 on the CPU."""

    x: Tensor  # (kept samples, numbers of each); without samples: (1, numbers)
    has_samples: bool = True
    share: float = 1.0  # whole tensor over what is kept


ROWS_OF_TOKENS = -1  # (tokens · batch, width): samples are the second factor of the first dimension


def sample_axis(shape: Sequence[int], batch: int, kind: str, is_inside_attention: bool) -> Optional[int]:
    """The dimension that counts samples, or whose first factor does; None: a tensor without samples.

    Products of stacks have it first, as a size that is a multiple of the batch: batch · heads. So do images,
    and rows of tokens. Inside PyTorch's attention linear layers read (tokens, batch, width), or its rows.
    """
    if kind == "linear" and is_inside_attention:
        if len(shape) == 3 and shape[1] == batch:
            return 1
        if len(shape) == 2 and shape[0] % batch == 0:
            return ROWS_OF_TOKENS
    if kind == "linear" and batch in shape[:-1]:
        return list(shape).index(batch)
    return 0 if len(shape) > 0 and shape[0] % batch == 0 else None


def _first_samples(tensor: Tensor, batch: int, axis: Optional[int]) -> Tuple[Tensor, float]:
    """A view of the numbers that are kept, with samples first, and the whole tensor over them. Of a tensor
    without samples, every so many of its rows."""
    if axis is None:
        rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() > 0 else tensor.reshape(1, 1)
        kept = rows[:: tensor.numel() // KEPT_NUMBERS | 1]
        return kept, tensor.numel() / max(1, kept.numel())
    if axis == ROWS_OF_TOKENS:
        tensor, axis = tensor.reshape(-1, batch, tensor.shape[-1]), 1
    each = max(1, tensor.numel() // batch)
    n = min(batch, max(KEPT_SAMPLES, KEPT_NUMBERS // each))
    return tensor.movedim(axis, 0)[: n * (tensor.shape[axis] // batch)], batch / n


def _keep(tensor: Tensor, batch: int, axis: Optional[int], less: Optional[Tensor] = None) -> Kept:
    """Copies the first samples of a tensor, less another, which broadcasts to it."""
    kept, share = _first_samples(tensor.detach(), batch, axis)
    if less is not None:
        kept = kept - _first_samples(less.detach().expand_as(tensor), batch, axis)[0]
    n = 1 if axis is None else round(batch / share)
    return Kept(_plain(kept.reshape(n, -1)), axis is not None, share)


def amax_of(tensor: Tensor) -> float:
    """Reduced where it lies: it is a whole tensor, and a maximum is the same in any order."""
    if tensor.numel() == 0:
        return 0.0
    low, high = torch.aminmax(tensor.detach())
    return max(-float(low), float(high))


def on_host(tensor: Tensor) -> Tensor:
    """In f32 on the CPU, in the order of its dimensions: a copy where it is not so already."""
    return tensor.detach().to("cpu", torch.float32).contiguous()


def _plain(tensor: Tensor) -> Tensor:
    """A copy in f32 on the CPU, in the order of its dimensions."""
    return tensor.to("cpu", torch.float32, copy=True).contiguous()


@dataclass
class _Seen:
    """What one pass shows of a call."""

    x: Optional[Kept] = None
    second: Optional[Kept] = None
    y: Optional[Kept] = None
    g: Optional[Kept] = None
    dx: Optional[Kept] = None
    d_second: Optional[Kept] = None
    dw: Optional[Tensor] = None  # every so many of the weight's gradient
    amax: Dict[int, float] = field(default_factory=dict)  # of whole tensors that are rounded, by part


@dataclass
class _Weight:
    """Every `stride`-th number of the weight that a call reads, where the weights are held."""

    w: Tensor
    amax: float
    n: int
    stride: int


@dataclass
class Found:
    """What a replicate has of a call."""

    sums: ProbeSums
    dw: List[Optional[Tensor]] = field(default_factory=lambda: [None, None])  # D of the weight, of each batch


@dataclass
class ProbedCall:
    name: str
    formats: List[Set[int]] = field(default_factory=lambda: [set() for _ in range(N_PROBE_PART)])
    weight: Optional[_Weight] = None
    is_before_jump: bool = False
    node: Any = None  # of autograd's graph, in the pass that finds jumps
    amax: Dict[int, float] = field(default_factory=dict)  # in a whole batch of the training
    n_products: float = 1.0  # that an output sums
    has_second: bool = False


# --- One pass ---


def own_alias(tensor: Tensor) -> Tensor:
    """An alias that no other call reads, with a gradient."""
    if not tensor.requires_grad:
        tensor = tensor.detach().requires_grad_()
    return tensor.view_as(tensor)


def _exchange(values: Any, olds: List[Tensor], news: List[Tensor]) -> Any:
    """`values` with the first of `olds` that is left in the place of each of them."""
    if isinstance(values, torch.Tensor):
        for k, old in enumerate(olds):
            if values is old:
                del olds[k]
                return news.pop(k)
        return values
    if isinstance(values, (tuple, list)):
        return tuple(_exchange(one, olds, news) for one in values)
    if isinstance(values, dict):
        return {key: _exchange(one, olds, news) for key, one in values.items()}
    return values


class Aliased(Follower):
    """Gives calls operands of their own, which `watch` may hang hooks on."""

    def wants(self, name: str, product: Product) -> bool:
        raise NotImplementedError

    def watch(self, name: str, product: Product, x: Tensor, w: Tensor, result: Tensor) -> None:
        raise NotImplementedError

    def product(self, name: str, product: Product, func: Any, args: Any, kwargs: Any) -> Any:
        if not self.wants(name, product):
            return func(*args, **kwargs)
        x, w = own_alias(product.x), own_alias(product.w)
        args, kwargs = _exchange((args, kwargs), [product.x, product.w], [x, w])
        result = func(*args, **kwargs)
        if result._is_view():  # where a view is changed in place, its node leaves the graph
            result = result.clone()
        self.watch(name, product, x, w, result)
        return result


def when_gradient(of: Tensor, see: Callable[[Tensor], None]) -> None:
    """Calls `see` with the gradient that arrives at a tensor."""

    def arrived(_: Any, g: Any) -> None:
        if g[0] is not None:
            see(g[0].detach())

    of.grad_fn.register_hook(arrived)


class _Watcher(Aliased):
    """Keeps the operands, results and gradients of adjustable calls while it is entered."""

    def __init__(self, module: torch.nn.Module, names: Names, calls: Dict[str, ProbedCall]) -> None:
        super().__init__(module, names)
        self.calls = calls
        self.begin(1, LOOK)

    def begin(self, batch: int, kind: int) -> None:
        """LOOK sees ranges, ABOVE what is rounded, too, and BELOW what differs."""
        self.batch, self.kind = batch, kind
        self.seen: Dict[str, _Seen] = {}

    def wants(self, name: str, product: Product) -> bool:
        if name in self.calls and not torch.is_grad_enabled():
            raise _library.error(
                "USAGE",
                f"'{name}' ran without gradients, inside torch.no_grad() or a checkpoint; an estimate needs the "
                "gradients of every call that a plan may lower. Estimate the module without checkpointing, and "
                "leave what needs no gradient out of it",
            )
        return name in self.calls

    def watch(self, name: str, product: Product, x: Tensor, w: Tensor, result: Tensor) -> None:
        call, seen = self.calls[name], _Seen()
        self.seen[name] = seen
        is_stack = product.kind == "matmul"
        of_x, of_y, of_w = (self._axis(one, product) for one in (x, result, w))
        call.node = result.grad_fn if self.kind == LOOK else None
        call.has_second = is_stack and of_w is not None
        if self.kind != BELOW:
            seen.amax[INPUT] = amax_of(x)
            if call.has_second:
                seen.amax[SECOND] = amax_of(w)
        if self.kind == ABOVE:
            seen.x = _keep(x, self.batch, of_x)
            seen.second = _keep(w, self.batch, of_w) if call.has_second else None
        if self.kind != LOOK:
            seen.y = _keep(result, self.batch, of_y, _addend(product))
            self._see(x, seen, "dx", of_x)
        self._see(result, seen, "g", of_y, None if self.kind == BELOW else GRADIENT)
        if call.has_second:
            call.n_products = float(x.shape[-1])
            self._see(w, seen, "d_second", of_w)
            return
        call.n_products = w.numel() / (w.shape[-1] if product.turned or is_stack else w.shape[0])
        if call.weight is None:
            call.weight = _keep_weight(w)
        if self.kind == LOOK:
            return
        stride = call.weight.stride

        def see_weight(g: Tensor) -> None:
            seen.dw = _plain(g.reshape(-1)[::stride])

        when_gradient(w, see_weight)

    def _axis(self, tensor: Tensor, product: Product) -> Optional[int]:
        return sample_axis(tensor.shape, self.batch, product.kind, self.is_inside_attention)

    def _see(
        self, of: Tensor, seen: _Seen, name: str, axis: Optional[int], part: Optional[int] = None
    ) -> None:
        """Keeps the gradient that arrives at a tensor, and its range."""
        batch, kind = self.batch, self.kind

        def see(g: Tensor) -> None:
            if kind != LOOK:
                setattr(seen, name, _keep(g, batch, axis))
            if part is not None:
                seen.amax[part] = amax_of(g)

        when_gradient(of, see)


def _keep_weight(w: Tensor) -> _Weight:
    flat, n = w.detach().reshape(-1), w.numel()
    # odd, so that it meets all rows and columns of even lengths
    stride = n // KEPT_WEIGHTS | 1 if n > KEPT_WEIGHTS else 1
    return _Weight(_plain(flat[::stride]), amax_of(flat), n, stride)


def _addend(product: Product) -> Optional[Tensor]:
    """What is added to the sums of products, which alone a narrow result rounds."""
    if product.addend is not None or product.bias is None:
        return product.addend
    return product.bias.view(1, -1, 1, 1) if product.kind == "conv2d" else product.bias


def find_jumps(loss: Tensor, calls: Dict[str, ProbedCall]) -> None:
    """Says of every call whether a slope after it jumps, from the graph of a loss."""
    order: List[Any] = []
    seen: Set[Any] = set()
    stack: List[Tuple[Any, bool]] = [(loss.grad_fn, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order.append(node)
        elif node is not None and node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((below, False) for below, _ in node.next_functions)
    is_before: Dict[Any, bool] = {}
    for node in reversed(order):
        is_after_jump = is_before.get(node, False) or _jumps(node)
        for below, _ in node.next_functions:
            is_before[below] = is_before.get(below, False) or is_after_jump
    for call in calls.values():
        call.is_before_jump = is_before.get(call.node, False)
        call.node = None


def _jumps(node: Any) -> bool:
    """Functions of users may do anything."""
    is_users = isinstance(node, torch.autograd.function.BackwardCFunction)
    return is_users or _JUMPS.match(type(node).__name__) is not None


# --- Directions ---


@dataclass
class Metric:
    """v̂ of each trained parameter is its square · by; below `least` it counts as that."""

    squares: List[Tensor]
    by: List[float]
    least: float


def metric_of(squares: List[Tensor], by: Sequence[float]) -> Optional[Metric]:
    """None: all are 0, and the metric is 1."""
    sum_of = numbers("tandem_probe_sum", Array, c_int64, gives=c_double)
    least_of = numbers("tandem_probe_least_square", c_double, c_int64, gives=c_float)
    by = [c_float(one).value for one in by]
    total = 0.0
    for square, one in zip(squares, by):
        total += one * sum_of(on_host(square), square.numel())
    least = least_of(total, sum(square.numel() for square in squares))
    return Metric(squares, by, least) if least > 0 else None


class Direction:
    """Blocks of the trained parameters, which the library draws, and where they lie."""

    def __init__(self, sizes: Sequence[int]) -> None:
        count = numbers("tandem_probe_count_blocks", c_int64, gives=c_int64)
        self.sizes, self.counts = list(sizes), [count(n) for n in sizes]
        self.at = torch.empty(sum(self.counts), dtype=torch.int64)
        self.value = torch.empty((sum(self.counts), PROBE_BLOCK))

    def _blocks(self) -> Iterator[Tuple[Tensor, Tensor]]:
        return zip(self.at.split(self.counts), self.value.split(self.counts))

    def draw(self, metric: Optional[Metric], seed: int, stream: int) -> None:
        draw = numbers("tandem_probe_draw", Array, Array, c_int64, c_int, c_uint64, c_uint32)
        weigh = numbers("tandem_probe_weigh", Array, c_int64, Array, Array, c_float, c_float)
        for p, (at, value) in enumerate(self._blocks()):
            draw(at, value, self.sizes[p], p, seed, stream)
            if metric is not None:
                squares = torch.zeros_like(value)
                self._copy_blocks(squares, metric.squares[p], self._places(p, at))
                weigh(value, len(at), None, squares, metric.by[p], metric.least)

    def _places(self, p: int, at: Tensor) -> Union[slice, Tensor]:
        """Of the drawn numbers in the parameter, without those past its end."""
        if len(at) * PROBE_BLOCK >= self.sizes[p]:
            return slice(None)
        places = (at[:, None] + torch.arange(PROBE_BLOCK)).view(-1)
        return places[: len(places) - max(0, int(places[-1]) + 1 - self.sizes[p])]

    @staticmethod
    def _copy_blocks(to: Tensor, tensor: Tensor, places: Union[slice, Tensor]) -> None:
        if isinstance(places, Tensor):
            places = places.to(tensor.device)
        numbers_there = on_host(tensor.reshape(-1)[places])
        to.view(-1)[: numbers_there.numel()] = numbers_there

    def gather(self, tensors: Sequence[Optional[Tensor]]) -> Tensor:
        """The numbers of all parameters' blocks, one block after the other; None: zeros."""
        out = torch.zeros_like(self.value)
        for p, (to, at, tensor) in enumerate(zip(out.split(self.counts), self.at.split(self.counts), tensors)):
            if tensor is not None:
                self._copy_blocks(to, tensor.detach(), self._places(p, at))
        return out

    def move(self, parameters: Sequence[Tensor], weights: Sequence[Tensor], to: float) -> None:
        """Each parameter becomes its weight + to·z, where both lie: one sum in the weights' own dtype."""
        for p, (at, value) in enumerate(self._blocks()):
            places, flat = self._places(p, at), weights[p].reshape(-1).clone()
            if isinstance(places, Tensor):
                places = places.to(flat.device)
            step = (value.view(-1) * to).to(flat)
            flat[places] += step[: flat.numel() if isinstance(places, slice) else len(places)]
            parameters[p].copy_(flat.view(weights[p].shape))


class Probe:
    """The passes of a module over batches, and the sums of its calls.

    `metric` is the optimizer's; None: 1. `look` comes first. Memory: the copy that `held` has; for each weight
    that is drawn 13 bytes on the host, which are all weights of small parameters and every 16th of large ones;
    of each call 2 · 5 tensors of KEPT_NUMBERS numbers, or of KEPT_SAMPLES samples where these are more.
    """

    def __init__(
        self,
        held: Held,
        names: Names,
        calls: Dict[str, ProbedCall],
        batch: int,
        run: Callable[[Any], Tensor],
        seed: int,
        point: int = 0,
    ) -> None:
        self.held, self.calls, self.batch, self.run = held, calls, batch, run
        self.names, self.seed, self.point, self.n_replicate = names, seed, point, 0
        self.watcher = _Watcher(held.module, names, calls)
        self.metric: Optional[Metric] = None
        sizes = [parameter.numel() for parameter in held.parameters]
        self.moved, self.sketched = Direction(sizes), Direction(sizes)
        self.steps = (c_double * 2)()
        self._subtract = numbers("tandem_probe_difference", Array, Array, Array, c_float, c_int64)
        self._middle = numbers("tandem_probe_middle", Array, Array, c_int64)
        self._add_square = numbers("tandem_probe_add_square", c_void_p, c_void_p)
        self._add_rate = numbers("tandem_probe_add_rate", c_void_p, Array, c_int64)
        self._add_noise = _library.bind("tandem_runtime", "tandem_probe_add_noise")

    # --- Gradients ---

    def look(self, given: Any, batch: int) -> None:
        """One gradient where the weights are held, of a whole batch of the training: ranges, and jumps."""
        for name, seen in self._pass(given, "batch 0", batch, LOOK).items():
            self.calls[name].amax = seen.amax
        for parameter in self.held.parameters:  # before there are two copies of the weights
            parameter.grad = None
        self.held.keep_weights()

    def gradient(self, given: Any, what: str) -> None:
        """The gradient of a batch is in .grad."""
        self._pass(given, what, self.batch, BELOW)

    def _pass(self, given: Any, what: str, batch: int, kind: int) -> Dict[str, _Seen]:
        for parameter in self.held.parameters:
            parameter.grad = None
        self.names.begin()
        self.watcher.begin(batch, kind)
        with torch.enable_grad(), self.watcher:
            loss = self.run(given)
        if not math.isfinite(float(loss)):
            raise _library.error("USAGE", f"the loss of {what} is {float(loss)}; an estimate needs a finite one")
        if kind == LOOK:
            find_jumps(loss, self.calls)
        loss.backward()
        self.held.put_buffers()
        return self.watcher.seen

    def _open(self) -> None:
        """ε, and the direction by which gradients are summed in buckets: the same in every replicate."""
        square = numbers("tandem_probe_square", Array, c_int64, gives=c_double)
        steps = numbers("tandem_probe_steps", c_void_p, c_double, c_double)
        weights = 0.0
        for weight in self.held.weights:
            weights += square(on_host(weight), weight.numel())
        self.sketched.draw(self.metric, 0, 0)
        z = self.sketched.value
        steps(self.steps, weights, square(z, z.numel()))

    def _move_to(self, to: float) -> None:
        with torch.no_grad():
            self.moved.move(self.held.parameters, self.held.weights, to)

    def _add_to_sketch(self, sketch: Tensor) -> None:
        """Half of the gradient, in its buckets."""
        project = numbers("tandem_probe_project", Array, c_int, Array, c_int64, Array, Array, c_float)
        z, g = self.sketched.value, self.sketched.gather([one.grad for one in self.held.parameters])
        project(sketch, PROBE_SKETCH, z, len(z), None, g, 0.5)

    # --- A replicate ---

    def replicate(self, pair: Sequence[Any], what: str) -> Tuple[Dict[str, Found], Tensor]:
        """What two batches say of all calls, and the buckets of the batches' gradients (2, PROBE_SKETCH)."""
        stream = numbers("tandem_probe_stream", c_int64, c_int, gives=c_uint32)
        if self.n_replicate == 0:
            self._open()
        found = {
            name: Found(ProbeSums(call.is_before_jump, call.has_second, call.n_products))
            for name, call in self.calls.items()
        }
        sketch = torch.zeros((2, PROBE_SKETCH))
        self.moved.draw(self.metric, self.seed, stream(self.point, self.n_replicate))
        for b, given in enumerate(pair):
            self._estimate_batch(found, sketch[b], b, given, what)
        self.held.put_weights()
        for name, of in found.items():
            self._add_weight(self.calls[name], of)
        self.n_replicate += 1
        return found, sketch

    def _estimate_batch(self, found: Dict[str, Found], sketch: Tensor, b: int, given: Any, what: str) -> None:
        """Adds the noise of one batch; what was kept of its passes ends here."""
        step = self.steps[b]
        self.held.note_random()
        self._move_to(step)
        above = self._pass(given, what, self.batch, ABOVE)
        self._add_to_sketch(sketch)
        self.held.put_random()
        self._move_to(-step)
        below = self._pass(given, what, self.batch, BELOW)
        self._add_to_sketch(sketch)
        for name in above.keys() & below.keys():
            self._see_ranges(self.calls[name], above[name])
            self._add_batch(found[name], self.calls[name], b, above[name], below[name])

    @staticmethod
    def _see_ranges(call: ProbedCall, seen: _Seen) -> None:
        """Casts have the ranges of a whole batch, of which a part may be estimated."""
        for part, amax in seen.amax.items():
            seen.amax[part] = max(amax, call.amax.get(part, 0.0))

    def _add_batch(self, to: Found, call: ProbedCall, b: int, above: _Seen, below: _Seen) -> None:
        """The noise of one batch's tensors. A call that no gradient reached changes none."""
        if above.g is None or below.g is None or above.x is None or above.y is None or below.y is None:
            return
        amax = above.amax
        if above.dx is not None and below.dx is not None:
            self._add(to, call, INPUT, b, above.x, self._difference(above.dx.x, below.dx.x, b), amax[INPUT])
        if above.second is not None and above.d_second is not None and below.d_second is not None:
            change = self._difference(above.d_second.x, below.d_second.x, b)
            self._add(to, call, SECOND, b, above.second, change, amax[SECOND])
        rate = self._difference(above.y.x, below.y.x, b)
        self._add(to, call, GRADIENT, b, above.g, rate, amax[GRADIENT])
        self._add_rate(byref(to.sums), rate, rate.numel())
        # the result where the weights are held
        self._middle(above.y.x, below.y.x, above.y.x.numel())
        self._add(to, call, RESULT, b, above.y, self._difference(above.g.x, below.g.x, b), 0.0)
        if above.dw is not None and below.dw is not None:
            to.dw[b] = self._difference(above.dw, below.dw, b)

    def _difference(self, above: Tensor, below: Tensor, b: int) -> Tensor:
        """D, over the step of batch b."""
        to, by = torch.empty_like(above), 1 / (2 * self.steps[b])
        self._subtract(to, above, below, by, to.numel())
        return to

    def _add(
        self, to: Found, call: ProbedCall, part: int, b: int, x: Kept, difference: Tensor, amax: float
    ) -> None:
        of = ProbeTensor(part, b, x.x.numel(), self.batch, x.x.shape[0] if x.has_samples else 0, x.share)
        of.x, of.difference[0], of.range, of.error_scale = x.x.data_ptr(), difference.data_ptr(), amax, 1.0
        self._add_tensor(to, call, of)

    def _add_tensor(self, to: Found, call: ProbedCall, of: ProbeTensor) -> None:
        room = torch.empty(of.n)
        self._add_square(byref(to.sums), byref(of))
        for index in sorted(call.formats[of.part]):
            self._add_noise(byref(to.sums), c_void_p(room.data_ptr()), byref(of), index)

    def _add_weight(self, call: ProbedCall, to: Found) -> None:
        weight = call.weight
        if weight is None or (to.dw[0] is None and to.dw[1] is None):
            return
        changes = [torch.zeros_like(weight.w) if one is None else one for one in to.dw]
        n = weight.w.numel()
        of = ProbeTensor(WEIGHT, n=n, share=weight.n / n, range=weight.amax, error_scale=1.0)
        of.x, of.difference[:] = weight.w.data_ptr(), [one.data_ptr() for one in changes]
        self._add_tensor(to, call, of)
