"""The noise that rounding puts into gradients, of all calls and precisions at once, by PyTorch's gradients.

The method is that of runtime/sense/sensing_probe.c, whose beginning has the derivation. The loss is differentiated at
w + εz and at w − εz, with random signs z in the optimizer's metric. Mixed derivatives commute, so with D the
difference of a tensor's gradient over 2ε, the noise of rounding the tensor is Σ v·D², v: the variance of the
rounding of each number. Of a gradient that is rounded, D is the difference of the call's result.

A call has aliases of its operands here, so that their gradients are those that this call returns, whatever
else reads the tensors. A graph that was captured keeps numbers in f32 between calls, as tandem.apply does. So
a narrow result makes nothing behind it narrow.
"""

from __future__ import annotations

import math
import re
from ctypes import byref, c_void_p
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch

from tandem import _library
from tandem._held import Held
from tandem._structs import FormatCast
from tandem._trace import Follower, Names, Product

Tensor = torch.Tensor

KEPT_NUMBERS = 1 << 14  # of a tensor of samples, but
KEPT_SAMPLES = 2  # at the least
KEPT_WEIGHTS = 1 << 13
SKETCH = 4096  # buckets of a gradient's sums
SKETCH_SIGNS = (1 << 20) - 3  # a prime
STEPS = (2.0**-10, 2.0**-6)  # of the weights' root mean square, one for each batch of a replicate

INPUT, SECOND, GRADIENT, RESULT, WEIGHT = range(5)
LOOK, ABOVE, BELOW = range(3)  # passes
PARTS = (INPUT, SECOND, GRADIENT, RESULT, WEIGHT)

# Functions whose slope jumps, by how the names of their nodes in autograd's graph begin.
_JUMPS = re.compile(
    "(Relu|LeakyRelu|Prelu|Rrelu|Elu|Threshold|Hardtanh|Hardsigmoid|Hardswish|Hardshrink|Softshrink|"
    "(Adaptive|Fractional|Mkldnn|Cudnn)?MaxPool|MaxUnpool|Amax|Amin|Max|Min|Aminmax|Maximum|Minimum|"
    "Fmax|Fmin|Clamp|Abs|L1Loss|Sgn|Sort|Topk|Kthvalue|(Nan)?[Mm]edian|Mode|Cummax|Cummin|Floor|Ceil|Round|Trunc|Fmod|"
    "Remainder|Where)(?![a-z])"
)


@dataclass
class Format:
    """A number format of format.def, as far as sums need it."""

    index: int
    is_drawn: bool  # rounded at random
    has_loss_scale: bool
    largest: float


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
    if tensor.numel() == 0:
        return 0.0
    low, high = torch.aminmax(tensor.detach())
    return max(-float(low), float(high))


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
class Noise:
    """Sums of one call over a replicate; [2]: of its batches."""

    formats: Sequence[Set[int]]  # of each part, that are asked for
    drawn: Set[int]  # formats that round at random
    mean_square: List[float] = field(default_factory=lambda: [0.0] * len(PARTS))
    error_square: Dict[Tuple[int, int], float] = field(default_factory=dict)  # (part, format) → mean
    noise: Dict[Tuple[int, int], List[float]] = field(default_factory=dict)
    cross: Dict[int, float] = field(default_factory=dict)  # of a weight, Σ v·D₁·D₂
    rate_square: float = 0.0  # of the result, by unit of ε
    dw: List[Optional[Tensor]] = field(default_factory=lambda: [None, None])


@dataclass
class ProbedCall:
    name: str
    formats: List[Set[int]] = field(default_factory=lambda: [set() for _ in PARTS])
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


class _Watcher(Follower):
    """Keeps the operands, results and gradients of adjustable calls while it is entered."""

    def __init__(self, module: torch.nn.Module, names: Names, calls: Dict[str, ProbedCall]) -> None:
        super().__init__(module, names)
        self.calls = calls
        self.begin(1, LOOK)

    def begin(self, batch: int, kind: int) -> None:
        """LOOK sees ranges, ABOVE what is rounded, too, and BELOW what differs."""
        self.batch, self.kind = batch, kind
        self.seen: Dict[str, _Seen] = {}

    def product(self, name: str, product: Product, func: Any, args: Any, kwargs: Any) -> Any:
        call = self.calls.get(name)
        if call is None:
            return func(*args, **kwargs)
        if not torch.is_grad_enabled():
            raise _library.error(
                "USAGE",
                f"'{name}' ran without gradients, inside torch.no_grad() or a checkpoint; sensing needs the "
                "gradients of every call that a plan may lower. Sense the module without checkpointing, and "
                "leave what needs no gradient out of it",
            )
        x, w = own_alias(product.x), own_alias(product.w)
        args, kwargs = _exchange((args, kwargs), [product.x, product.w], [x, w])
        result = func(*args, **kwargs)
        if result._is_view():  # where a view is changed in place, its node leaves the graph
            result = result.clone()
        self._watch(call, product, x, w, result)
        return result

    def _watch(self, call: ProbedCall, product: Product, x: Tensor, w: Tensor, result: Tensor) -> None:
        seen = self.seen[call.name] = _Seen()
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

        def see_weight(_: Any, g: Any) -> None:
            seen.dw = None if g[0] is None else _plain(g[0].detach().reshape(-1)[::stride])

        w.grad_fn.register_hook(see_weight)

    def _axis(self, tensor: Tensor, product: Product) -> Optional[int]:
        return sample_axis(tensor.shape, self.batch, product.kind, self.is_inside_attention)

    def _see(
        self, of: Tensor, seen: _Seen, name: str, axis: Optional[int], part: Optional[int] = None
    ) -> None:
        """Keeps the gradient that arrives at a tensor, and its range."""
        batch, kind = self.batch, self.kind

        def see(_: Any, g: Any) -> None:
            if g[0] is None:
                return
            if kind != LOOK:
                setattr(seen, name, _keep(g[0], batch, axis))
            if part is not None:
                seen.amax[part] = amax_of(g[0])

        of.grad_fn.register_hook(see)


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
    """Says of every call whether a slope behind it jumps, from the graph of a loss."""
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
        is_behind_jump = is_before.get(node, False) or _jumps(node)
        for below, _ in node.next_functions:
            is_before[below] = is_before.get(below, False) or is_behind_jump
    for call in calls.values():
        call.is_before_jump = is_before.get(call.node, False)
        call.node = None


def _jumps(node: Any) -> bool:
    """Functions of users may do anything."""
    is_users = isinstance(node, torch.autograd.function.BackwardCFunction)
    return is_users or _JUMPS.match(type(node).__name__) is not None


# --- Sums ---


class _Rounder:
    """The errors of rounding, by the C library's references (include/tandem/advanced/format.h)."""

    def __init__(self) -> None:
        self._round = _library.bind("tandem", "tandem_format_round")
        self._variance = _library.bind("tandem", "tandem_format_variance")

    def errors(self, x: Tensor, of: Format, amax: float, scale: float = 1.0) -> Tensor:
        """Variances of numbers that are rounded at random, else the errors themselves."""
        z = x if scale == 1.0 else x * scale
        out = torch.empty_like(z)
        cast = FormatCast(
            format=of.index, x=z.data_ptr(), rows=1, columns=z.numel(), range=amax * scale, error_scale=1.0
        )
        if of.is_drawn:
            self._variance(c_void_p(out.data_ptr()), None, byref(cast))
            return out
        self._round(c_void_p(out.data_ptr()), None, byref(cast))
        return out / scale - x if scale != 1.0 else out - x


def loss_scale(of: Format, amax: float) -> float:
    """The largest power of two, up to 2^16, at which no gradient overflows."""
    if not of.has_loss_scale or not amax > 0:
        return 1.0
    return 2.0 ** min(16, math.floor(math.log2(of.largest / amax)))


def _mean_square(x: Tensor) -> float:
    return float(torch.dot(x.reshape(-1), x.reshape(-1))) / max(1, x.numel())


def _draw_signs(n: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, (n,), dtype=torch.int8, generator=generator).mul_(2).sub_(1)


def _add_to_buckets(sketch: Tensor, signed: Tensor, first: int) -> None:
    """Adds half of numbers to buckets in turn, from `first` on."""
    whole = signed.numel() // SKETCH * SKETCH
    sums = signed[:whole].view(-1, SKETCH).sum(0, dtype=torch.float64)
    sums[: signed.numel() - whole] += signed[whole:]
    sketch += 0.5 * sums.roll(first).cpu()


class Probe:
    """The passes of a module over batches, and the sums of its calls.

    `metric` has the root of the optimizer's metric for each trained parameter; None: 1. `look` comes first.
    Memory: the copy that `held` has, a sign a weight, and of each call 2 · 5 tensors of KEPT_NUMBERS numbers,
    or of KEPT_SAMPLES samples where these are more.
    """

    def __init__(
        self,
        held: Held,
        names: Names,
        calls: Dict[str, ProbedCall],
        formats: Sequence[Format],
        batch: int,
        run: Callable[[Any], Tensor],
        seed: int,
    ) -> None:
        self.held, self.calls, self.formats, self.batch, self.run = held, calls, formats, batch, run
        self.names, self.rounder = names, _Rounder()
        self.watcher = _Watcher(held.module, names, calls)
        self.generator = torch.Generator().manual_seed(seed)
        self.metric: Optional[List[Tensor]] = None
        self.fixed_signs = _draw_signs(SKETCH_SIGNS, torch.Generator().manual_seed(0x50524F42))

    def _roots(self) -> Sequence[Optional[Tensor]]:
        return self.metric or [None] * len(self.held.parameters)

    def units(self) -> float:
        """ε for a step of 1: root mean square of the weights over that of directions."""
        n = sum(weight.numel() for weight in self.held.weights)
        weights = sum(float(weight.double().pow(2).sum()) for weight in self.held.weights)
        roots = n if self.metric is None else sum(float(root.double().pow(2).sum()) for root in self.metric)
        return math.sqrt(weights / roots) if weights > 0 and roots > 0 else 1.0

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
            raise _library.error("USAGE", f"the loss of {what} is {float(loss)}; sensing needs a finite one")
        if kind == LOOK:
            find_jumps(loss, self.calls)
        loss.backward()
        self.held.put_buffers()
        return self.watcher.seen

    def _move_to(self, to: float) -> None:
        with torch.no_grad():
            for parameter, weight, sign, root in zip(
                self.held.parameters, self.held.weights, self.signs, self._roots()
            ):
                parameter.copy_(sign if root is None else sign * root).mul_(to).add_(weight)

    def _add_to_sketch(self, sketch: Tensor) -> None:
        """Half of a gradient in buckets, each number with a fixed sign. Signs repeat after a number of weights
        that is no multiple of the buckets, so that those of a bucket are as good as independent."""
        at = 0  # among the weights of all parameters
        for parameter, root in zip(self.held.parameters, self._roots()):
            if parameter.grad is None:
                at += parameter.numel()
                continue
            flat = parameter.grad.detach().reshape(-1)
            if root is not None:
                flat = flat * root.reshape(-1)
            while flat.numel() > 0:
                signs = self.fixed_signs[at % SKETCH_SIGNS :][: flat.numel()]
                n = signs.numel()
                _add_to_buckets(sketch, flat[:n] * signs.to(flat.device), at % SKETCH)
                at, flat = at + n, flat[n:]

    # --- A replicate ---

    def replicate(
        self, pair: Sequence[Any], what: str
    ) -> Tuple[Dict[str, Noise], Tensor, Tuple[float, float]]:
        """The sums of all calls over two batches, the sums of the batches' gradients (2, SKETCH), and ε."""
        drawn = {of.index for of in self.formats if of.is_drawn}
        found = {name: Noise(call.formats, drawn) for name, call in self.calls.items()}
        sketch, unit = torch.zeros((2, SKETCH), dtype=torch.float64), self.units()
        steps = (STEPS[0] * unit, STEPS[1] * unit)
        self.signs = [
            _draw_signs(weight.numel(), self.generator).view(weight.shape).to(weight.device)
            for weight in self.held.weights
        ]
        for b, given in enumerate(pair):
            self._sense_batch(found, sketch[b], b, given, what, steps[b])
        self.held.put_weights()
        for name, noise in found.items():
            self._add_weight(self.calls[name], noise)
        return found, sketch, steps

    def _sense_batch(
        self, found: Dict[str, Noise], sketch: Tensor, b: int, given: Any, what: str, step: float
    ) -> None:
        """Adds the noise of one batch; what was kept of its passes ends here."""
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
            self._add_batch(found[name], b, above[name], below[name], 2 * step)

    @staticmethod
    def _see_ranges(call: ProbedCall, seen: _Seen) -> None:
        """Casts have the ranges of a whole batch, of which a part may be sensed."""
        for part, amax in seen.amax.items():
            seen.amax[part] = max(amax, call.amax.get(part, 0.0))

    def _add_batch(self, to: Noise, b: int, above: _Seen, below: _Seen, span: float) -> None:
        """The noise of one batch's tensors. A call that no gradient reached changes none."""
        if above.g is None or below.g is None or above.x is None or above.y is None or below.y is None:
            return
        amax = above.amax
        if above.dx is not None and below.dx is not None:
            self._add(to, INPUT, b, above.x, (above.dx.x - below.dx.x) / span, amax[INPUT])
        if above.second is not None and above.d_second is not None and below.d_second is not None:
            self._add(to, SECOND, b, above.second, (above.d_second.x - below.d_second.x) / span, amax[SECOND])
        rate = (above.y.x - below.y.x) / span
        self._add(to, GRADIENT, b, above.g, rate, amax[GRADIENT])
        to.rate_square += 0.5 * _mean_square(rate)
        # the result where the weights are held
        above.y.x = (above.y.x + below.y.x) / 2
        self._add(to, RESULT, b, above.y, (above.g.x - below.g.x) / span, 0.0)
        if above.dw is not None and below.dw is not None:
            to.dw[b] = (above.dw - below.dw) / span

    def _add(self, to: Noise, part: int, b: int, x: Kept, difference: Tensor, amax: float) -> None:
        square = difference * difference
        to.mean_square[part] += 0.5 * _mean_square(x.x)
        for f in to.formats[part]:
            of = self.formats[f]
            e = self.rounder.errors(x.x, of, amax, loss_scale(of, amax) if part == GRADIENT else 1.0)
            if of.is_drawn:
                noise, error = float((e * square).sum(dtype=torch.float64)) * x.share, float(e.mean())
            else:
                noise, error = self._noise_of_known(x, e, difference), _mean_square(e)
            to.noise.setdefault((part, f), [0.0, 0.0])[b] = noise
            to.error_square[part, f] = to.error_square.get((part, f), 0.0) + 0.5 * error

    def _noise_of_known(self, x: Kept, e: Tensor, difference: Tensor) -> float:
        """Of errors that are known: the batch times the variance over samples of Σ e·D. Without samples,
        what they have in common is not told from noise."""
        if not x.has_samples:
            return float((e * difference).pow(2).sum(dtype=torch.float64)) * x.share
        of_sample = (e * difference).sum(1, dtype=torch.float64)
        return self.batch * float(of_sample.var(unbiased=True))

    def _add_weight(self, call: ProbedCall, to: Noise) -> None:
        weight, (one, two) = call.weight, to.dw
        if weight is None or (one is None and two is None):
            return
        zero = torch.zeros_like(weight.w)
        one, two = (zero if d is None else d for d in (one, two))
        all_of = weight.n / weight.w.numel()
        to.mean_square[WEIGHT] = _mean_square(weight.w)
        for f in to.formats[WEIGHT]:
            of = self.formats[f]
            e = self.rounder.errors(weight.w, of, weight.amax)
            v = e if of.is_drawn else e * e
            pairs = ((one, one), (two, two), (one, two))
            sums = [all_of * float((v * a * b).sum(dtype=torch.float64)) for a, b in pairs]
            to.noise[WEIGHT, f], to.cross[f] = sums[:2], sums[2]
            to.error_square[WEIGHT, f] = float(v.mean())


def share_of_small_step(
    call: ProbedCall, of: Noise, part: int, f: int, steps: Tuple[float, float]
) -> float:
    """α: the part of the smaller step in a cast's noise, so that the jumps' part is that of the step over
    which the result moves as far as the rounding moves it."""
    if part == GRADIENT or not call.is_before_jump:
        return 0.5
    other = INPUT if part != INPUT else SECOND if call.has_second else WEIGHT
    by = 1.0 if part == RESULT else call.n_products * of.mean_square[other]
    moved = math.sqrt(by * of.error_square.get((part, f), 0.0))
    if not moved > 0:
        return 1.0
    first, last = 1 / steps[0], 1 / steps[1]
    return (min(max(2 * math.sqrt(of.rate_square) / moved, last), first) - last) / (first - last)
