"""apply: a module in the precisions of a plan."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from ctypes import byref, c_char_p, c_int
from typing import Any, Container, Dict, Iterator, List, Mapping, Optional, Set, Tuple, Union

import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F

from tandem import _cuda, _library
from tandem._blas import warn_of_slow_blas
from tandem._capture import unwrap
from tandem._checkpoint import follow_checkpoints, here, next_step
from tandem._gradients import edge_of, is_plain
from tandem._graph import Graph, fingerprint_of
from tandem._kernels import Conv2d, Convolution, Kernels, Linear, Matmul, Rounds, channels_last
from tandem._memory import use_huge_pages
from tandem._mode import DirectMode
from tandem._plan import Plan
from tandem._structs import PRECISIONS
from tandem._trace import PRODUCTS, Follower, Names, Product, name_kinds, route_attention, route_products

HAS = ("fp32", "bf16", "int8", "int8_full")  # that apply can run on a CPU; on cards: _cuda.HAS

Wanted = Union[Plan, str, "os.PathLike[str]", Mapping[str, str]]


def rank_here() -> int:
    """This process's rank in torch.distributed, or 0."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


# Files of PyTorch's modules that call no products, where they have no submodules.
_SILENT = {
    f"torch.nn.modules.{name}"
    for name in ("activation", "dropout", "normalization", "batchnorm", "pooling", "padding", "flatten")
}
# PyTorch's modules whose products are all their submodules', in training: in evaluation, some of them call a
# kernel of PyTorch's instead of their submodules, unless they see a mode.
_CONTAINERS = {
    torch.nn.Sequential,
    torch.nn.TransformerEncoder,
    torch.nn.TransformerEncoderLayer,
    torch.nn.TransformerDecoder,
    torch.nn.TransformerDecoderLayer,
}
_ACTIVATIONS = {None, F.relu, F.gelu}  # of containers; another function may call products


def _has_own_forward(module: torch.nn.Module) -> bool:
    return "forward" in module.__dict__


def _has_hooks(module: torch.nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _is_silent(module: torch.nn.Module) -> bool:
    return type(module).__module__ in _SILENT and not module._modules and not _has_own_forward(module)


def _is_container(module: torch.nn.Module) -> bool:
    activation = module.__dict__.get("activation")  # a submodule is not among these
    return type(module) in _CONTAINERS and activation in _ACTIVATIONS and not _has_own_forward(module)


def _is_direct(module: torch.nn.Module) -> bool:
    """Whether its products can be converted without a mode. Hooks of its own, or a forward, may have others."""
    is_own = _has_hooks(module) or _has_own_forward(module)
    return type(module) in (torch.nn.Linear, torch.nn.MultiheadAttention) and not is_own


class _Places:
    """Which submodules a mode need not see: it pauses there."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.kinds = name_kinds(module)
        self.silent: Set[str] = set()
        self.containers: Set[str] = set()  # silent in training
        self.direct: Set[str] = set()
        self.passed: Set[str] = set()  # silent ones of containers: nothing follows them
        for name, child in module.named_modules():
            if child is not module and _is_direct(child):
                self.direct.add(name)
            if _is_silent(child) or name in self.direct and isinstance(child, torch.nn.Linear):
                self.silent.add(name)
            elif _is_container(child) or name in self.direct:
                self.containers.add(name)
                inside = (f"{name}.{one}" if name else one for one, of in child._modules.items() if _is_silent(of))
                self.passed.update(inside)


_lock = threading.Lock()


class _Conversion:
    """What a converted module's forward needs: precisions, kernels, counters. Copied with the module."""

    def __init__(
        self,
        module: torch.nn.Module,
        precision: Dict[str, str],
        uniform: Optional[str],
        graph: Optional[Graph],
        rank: int,
        seed: int,
    ) -> None:
        self.precision, self.uniform, self.rank, self.seed = precision, uniform, rank, seed
        self.graph = graph
        self.by_name = {call.name: call for call in graph.calls} if graph else {}
        self.uncalled = set() if graph else set(precision)  # names by hand that no call had so far
        self.kernels = Kernels()
        self.places = _Places(module)
        self.has_draws = any(one.startswith("int8") for one in (uniform or "", *precision.values()))
        self.indexes: Dict[str, int] = {}
        self.step = 0
        self.warned: List[str] = []
        self.is_removed = False
        self.n_held = 0  # while it is more than 0, the module runs as it was before
        self.changed_part: Optional[str] = None  # converted on its own, or removed, since
        self.idle: List[_Converter] = []
        self.wanted: Any = None  # what apply was given

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "idle": [], "n_held": 0}

    def is_off(self) -> bool:
        return self.is_removed or self.n_held > 0

    def count_step(self) -> int:
        with _lock:
            self.step += 1
            return self.step

    def begin(self, step: int) -> "_Converter":
        """A run, which the caller ends. Threads have runs of their own."""
        try:
            run = self.idle.pop()
        except IndexError:
            run = _Converter(self)
        run.begin(step)
        return run

    def precision_of(self, name: str) -> str:
        if self.uniform is not None:
            return self.uniform
        found = self.precision.get(name)
        if self.uncalled:
            self.uncalled.discard(name)
        if found is None and self.graph and name not in self.warned and name not in self.by_name:
            self.warned.append(name)
            warnings.warn(
                f"tandem: the module calls '{name}', which its plan does not know (a branch that the "
                "captured inputs did not take?); it runs in fp32",
                stacklevel=4,
            )
        return found or "fp32"

    def end_pass(self) -> None:
        """Warns once, after the first pass, of names that are no call of it."""
        if not self.uncalled:
            return
        names, self.uncalled = ", ".join(f"'{name}'" for name in sorted(self.uncalled)), set()
        warnings.warn(
            f"tandem: apply was given a precision for {names}, which the module did not call; "
            "print(tandem.capture(module, inputs)) shows the names of its calls",
            stacklevel=4,
        )

    def rounds_of(self, name: str) -> Rounds:
        """A call's random numbers; the caller says in which step."""
        index = self.indexes.get(name)
        if index is None:
            with _lock:
                index = self.indexes.setdefault(name, len(self.indexes))
        return Rounds(index, self.rank, self.seed, 0, name)

    def warn_of_way(self, name: str, way: str) -> None:
        """Warns once of each way of PyTorch's to run a module that kernels cannot follow."""
        if way in self.warned:
            return
        self.warned.append(way)
        warnings.warn(
            f"tandem: layer '{name}' runs unconverted, in fp32, {way}: PyTorch cannot see into kernels there",
            stacklevel=5,
        )


def _refuse_operands(name: str, product: Product) -> None:
    for what, tensor in (("input", product.x), ("weight", product.w), ("bias", product.bias)):
        if tensor is None:
            continue
        if tensor.device.type not in ("cpu", "cuda") or tensor.device != product.x.device:
            beside = f", its input on {product.x.device}" if what != "input" else ""
            raise _library.error(
                "NO_KERNEL",
                f"layer '{name}': its {what} is on {tensor.device}{beside}; tandem's "
                "kernels for modules take CPU tensors, or CUDA tensors of one GPU. Move the module and its "
                "inputs to one of these, or plan this rank in fp32",
            )
        if tensor.dtype != torch.float32:
            raise _library.error(
                "NO_KERNEL",
                f"layer '{name}': its {what} is {tensor.dtype}; allowed is torch.float32, which "
                "apply rounds itself: leave autocast and .half() away",
            )


def _check_product(conversion: _Conversion, name: str, product: Product) -> None:
    """Refuses operands that the kernels do not take, and shapes that the plan was not made for."""
    x, w, bias = product.x, product.w, product.bias
    is_here = x.is_cpu and w.is_cpu or x.is_cuda and x.device == w.device
    is_float = x.dtype == w.dtype == torch.float32
    if not (is_here and is_float and (bias is None or bias.device == x.device)):
        _refuse_operands(name, product)
    if _is_autocast(x):
        raise _library.error(
            "NO_KERNEL",
            f"layer '{name}' runs under autocast, which would round what a plan has in float32. Leave "
            "autocast away where a module is converted, or plan the layer in fp32",
        )
    call = conversion.by_name.get(name)
    if call is None:
        return
    if call.kind == "conv2d":
        got, planned = (product.x.shape[2], product.x.shape[3], product.x.shape[1]), call.input[1:]
        weight = (product.w.shape[0], product.kernel, product.stride, product.pad)
        if weight != (call.shape[3], call.kernel, call.stride, call.pad):
            planned = None
    elif product.kind == "linear":
        n = product.w.shape[-1] if product.turned else product.w.shape[0]
        got, planned = (product.x.shape[-1], n), (call.input[-1], call.shape[-1])
    else:
        got, planned = tuple(product.x.shape[-2:]), tuple(call.input[-2:])
    if planned is None or tuple(got) != tuple(planned):
        raise _library.error(
            "WRONG_MODEL",
            f"layer '{name}' reads {'x'.join(map(str, product.x.shape))} with a weight of "
            f"{'x'.join(map(str, product.w.shape))}; the plan was made for another shape: "
            f"{call.kind} {'x'.join(map(str, call.input))} -> {'x'.join(map(str, call.shape))}. Capture the "
            "module with these inputs, and plan again",
        )


try:
    torch.is_autocast_enabled("cpu")  # since PyTorch 2.4

    def _is_autocast(x: torch.Tensor) -> bool:
        """Whether autocast is on for x's device."""
        return torch.is_autocast_enabled("cpu" if x.is_cpu else "cuda")

except TypeError:

    def _is_autocast(x: torch.Tensor) -> bool:
        return torch.is_autocast_cpu_enabled() if x.is_cpu else torch.is_autocast_enabled()


_tracing_state = torch._C._get_tracing_state
_n_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms = getattr(torch._C, "_are_functorch_transforms_active", None)  # PyTorch 1.13
if _transforms is None:
    _innermost_transform = torch._C._functorch.peek_interpreter_stack

    def _transforms() -> bool:
        return _innermost_transform() is not None


# Modes of PyTorch's own that keep results, and run what makes them as it is.
_KEEPING_MODES = ("_CachingTorchDispatchMode", "_CachedTorchDispatchMode")


def _way_without_kernels(product: Product) -> Optional[str]:
    """How PyTorch runs a product now that a kernel cannot; None where it can."""
    if _tracing_state() is not None:
        return "while torch.jit traces"
    if _transforms():
        return "inside torch.func's transforms"
    if _n_dispatch_modes():
        modes = {type(mode).__name__ for mode in _dispatch_modes()}
        if not modes.issubset(_KEEPING_MODES):
            return f"under {', '.join(sorted(modes))}, a TorchDispatchMode"
    bias, addend = product.bias, product.addend
    are_plain = is_plain(product.x) and is_plain(product.w)
    if forward_ad._current_level >= 0 and _has_tangent(product.x, product.w, bias, addend):
        return "in forward-mode differentiation"
    if not (are_plain and (type(bias) in _USUAL or is_plain(bias)) and (addend is None or is_plain(addend))):
        return "with operands that have no plain memory of their own (vmap, fake tensors, subclasses)"
    return None


_USUAL = (type(None), torch.nn.Parameter)  # of biases: of types that fill memory, if the weight does


def _has_tangent(*operands: Optional[torch.Tensor]) -> bool:
    return any(one is not None and forward_ad.unpack_dual(one).tangent is not None for one in operands)


def _dispatch_modes() -> Iterator[Any]:
    return (torch._C._get_dispatch_stack_at(index) for index in range(_n_dispatch_modes()))


class _Snapshot:
    """The state of a run, to go on from there in the second run of a checkpoint."""

    def __init__(self, run: "_Converter") -> None:
        self.conversion, self.step = run.conversion, run.step
        self.path, self.taken, self.paused = list(run.names.path), dict(run.names.taken), list(run.paused)

    def resume(self) -> "_Converter":
        if self.conversion.is_off():
            raise _library.error(
                "WRONG_MODEL",
                f"layer '{self.path[-1]}': its module was converted in the forward pass of a checkpoint and is "
                "not in the backward pass. Call remove after the backward pass",
            )
        run = self.conversion.begin(self.step)
        run.names.path[:], run.names.taken, run.paused[:] = self.path, dict(self.taken), self.paused
        if run.paused[-1]:
            run.pause()
        return run


_SEEN = {*PRODUCTS, "view"}


class _Converter(DirectMode, Follower):
    """One run of a converted module or of a part of it: products in the precisions of a plan, and everything
    else as it is. Used again for later runs."""

    def __init__(self, conversion: _Conversion) -> None:
        super().__init__(conversion.places.kinds, Names())
        self.conversion, self.places = conversion, conversion.places
        self.step = 0
        self.paused: List[bool] = []  # for each module that runs
        self.n_products = 0
        self.n_inside: Dict[Any, int] = {}  # products in a composite function
        self.routed: Dict[Any, Any] = {}
        self.attention = route_attention(self.route_composite)

    def begin(self, step: int) -> None:
        self.names.begin()
        self.paused, self.step = [False], step
        here.runs.append(self)
        self.__enter__()

    def end(self) -> None:
        self.__exit__(None, None, None)
        here.runs.remove(self)
        self.conversion.idle.append(self)

    def snapshot(self) -> _Snapshot:
        return _Snapshot(self)

    def enter(self, name: str, module: torch.nn.Module) -> None:
        """A submodule begins."""
        self.names.path.append(name)
        places = self.places
        is_paused = name in places.silent or name in places.containers and module.training
        self.paused.append(is_paused)
        self.pause() if is_paused else self.resume()

    def leave(self) -> None:
        self.names.path.pop()
        self.paused.pop()
        self.pause() if self.paused[-1] else self.resume()

    def see(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if getattr(func, "__name__", "") in _SEEN:
            return Follower.__torch_function__(self, func, types, args, kwargs)
        return func(*args, **kwargs)

    def composite(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Without a mode, once it is known how many products the function has."""
        before, routed = self.n_products, self.routed.get(func)
        result = routed(*args, **kwargs) if routed else super().composite(func, args, kwargs)
        inside = self.n_products - before
        if func not in self.n_inside:
            self.n_inside[func] = inside
            self.routed[func] = route_products(func, self.route)
        elif inside != self.n_inside[func]:  # it takes another way, which may have other products
            self.routed[func] = None
        return result

    def route(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        return self.follow(func, args, kwargs)

    def route_composite(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        return self.composite(func, args, kwargs)

    def forward_of(self, module: torch.nn.Module) -> Any:
        """What runs a direct module that was entered, as a function of it and its inputs."""
        if self.is_paused():
            if isinstance(module, torch.nn.Linear):
                return self.linear
            if self.routed.get(F.multi_head_attention_forward):
                return self.attention
            self.resume()
        return type(module).forward

    def linear(self, module: torch.nn.Linear, input: torch.Tensor) -> torch.Tensor:
        return self.follow(F.linear, (input, module.weight, module.bias), {})

    def product(self, name: str, product: Product, func: Any, args: Any, kwargs: Any) -> Any:
        self.n_products += 1
        conversion = self.conversion
        precision = conversion.precision_of(name)
        if precision == "fp32":
            if name in conversion.by_name:
                _check_shape_only(conversion, name, product)
            return func(*args, **kwargs)
        _check_product(conversion, name, product)
        way = _way_without_kernels(product)
        if way is not None:
            conversion.warn_of_way(name, way)
            return _run_unconverted(func, args, kwargs)
        rounds = conversion.rounds_of(name)
        rounds.step = self.step
        try:
            return run_product(product, precision, conversion.kernels, rounds)
        except _library.TandemError as refused:
            raise _library.error(refused.status, f"layer '{name}': {refused}") from None

    def empty(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        self.conversion.precision_of(name)
        return _run_unconverted(func, args, kwargs)

    def other(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Results of convolutions are in channels_last, which not every view of theirs allows."""
        if getattr(func, "__name__", "") == "view" and isinstance(args[0], torch.Tensor):
            x = args[0]
            if x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last):
                x.data = x.detach().contiguous()
        return func(*args, **kwargs)


def _run_unconverted(func: Any, args: Any, kwargs: Any) -> Any:
    """A product in PyTorch, as it was before `apply`: a convolution's weight lies as it did, and so its result."""
    if getattr(func, "__name__", "") == "conv2d":
        args = tuple(one.contiguous() if index == 1 else one for index, one in enumerate(args))
        kwargs = {name: one.contiguous() if name == "weight" else one for name, one in kwargs.items()}
    return func(*args, **kwargs)


def _as_before(result: Any) -> Any:
    """What a converted module gives back, in the memory order that it had: callers may view it."""
    if isinstance(result, torch.Tensor):
        is_last = result.dim() == 4 and not result.is_contiguous()
        return result.contiguous() if is_last and result.layout is torch.strided else result
    if type(result) in (tuple, list):
        return type(result)(map(_as_before, result))
    return {name: _as_before(one) for name, one in result.items()} if type(result) is dict else result


def _check_shape_only(conversion: _Conversion, name: str, product: Product) -> None:
    if (
        product.x.device.type in ("cpu", "cuda")
        and product.x.dtype == torch.float32
        and product.w.dtype == torch.float32
    ):
        _check_product(conversion, name, product)


def run_product(product: Product, precision: str, kernels: Kernels, rounds: Rounds) -> torch.Tensor:
    """One product in a precision that is not fp32."""
    if product.x.is_cuda:
        return _cuda.run_product(product, precision, rounds)
    if precision not in HAS:
        raise _library.error("NO_KERNEL", f"CPU tensors run in {', '.join(HAS)}; {precision} needs CUDA tensors")
    w = product.w.t() if product.turned else product.w
    if torch.is_grad_enabled():
        rounds.edges = edge_of(product.x), edge_of(w)
    if product.kind == "conv2d":
        of = Convolution(product.kernel, product.stride, product.pad)
        return Conv2d.apply(product.x, product.w, product.bias, of, precision, kernels, rounds)
    if product.kind == "linear":
        return Linear.apply(product.x, w, product.bias, precision, kernels, rounds)
    y = Matmul.apply(product.x, product.w, precision, kernels, rounds)
    return y if product.addend is None else y + product.addend


class _Forward:
    """Replaces the forward of a converted module or of a submodule. It was the class's before, or
    one that was set on the instance. A submodule that is called alone runs converted, too."""

    _torchdynamo_disable = True  # torch.compile leaves it to Python

    def __init__(self, name: str, module: torch.nn.Module, conversion: _Conversion) -> None:
        self.name, self.module, self.conversion = name, module, conversion
        self.own = module.__dict__.get("forward")
        self.is_direct = name in conversion.places.direct
        self.has_hooks = _has_hooks(module) and name != ""
        self.is_silent = name in conversion.places.silent and not self.is_direct

    def before(self, module: Optional[torch.nn.Module] = None) -> Any:
        """The forward that it replaces."""
        if self.own is not None:
            return self.own
        module = module or self.module
        return type(module).forward.__get__(module)

    def __getattr__(self, name: str) -> Any:
        """What tools ask a forward for: its signature, its source, what TorchScript compiles."""
        if name == "__wrapped__":
            return self.before()
        if "conversion" not in self.__dict__ or name.startswith("__") and name not in _OF_FUNCTIONS:
            raise AttributeError(name)
        if name == "__func__" and sys._getframe(1).f_code.co_name == "infer_methods_to_compile":
            raise _library.error(
                "NO_KERNEL",
                f"layer '{self.name or type(self.module).__name__}' is converted, and torch.jit.script would "
                "compile it as it was before. Script tandem.remove(copy.deepcopy(module)), or use torch.jit.trace",
            )
        return getattr(self.before(), name)

    def _called(self) -> torch.nn.Module:
        """The module that is called. A shallow copy, as DataParallel's replicas are, has this forward, too."""
        module = sys._getframe(2).f_locals.get("self")
        if module is self.module:
            return module
        is_copy = isinstance(module, torch.nn.Module) and module.__dict__.get("forward") is self
        return module if is_copy else self.module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        conversion, module, runs = self.conversion, self._called(), here.runs
        if runs and runs[-1].conversion is conversion:
            if not self.is_direct:
                return self._run_inside(runs[-1], module, args, kwargs)
            run = runs[-1]
            run.enter(self.name, module)
            try:
                return run.forward_of(module)(module, *args, **kwargs)
            finally:
                run.leave()
        if conversion.is_off() or self.is_silent:
            return self.before(module)(*args, **kwargs)
        title = self.name or type(module).__name__
        if torch._C._get_tracing_state() is not None:
            conversion.warn_of_way(title, "while torch.jit traces")
            _put_layouts_back(module)  # and not again: what is traced keeps these weights, and may view results
            return self.before(module)(*args, **kwargs)
        if conversion.changed_part is not None:
            raise _library.error(
                "WRONG_MODEL",
                f"layer '{conversion.changed_part}' was converted or removed on its own since its module was "
                "converted. Call tandem.apply for the whole module again",
            )
        run = conversion.begin(next_step(conversion, title))
        compiler = _set_compiler(None) if "torch._dynamo" in sys.modules else None
        try:
            result = _as_before(self._run_inside(run, module, args, kwargs))
        finally:
            if compiler is not None:
                _set_compiler(compiler)
            run.end()
        if not self.name:
            conversion.end_pass()
        return result

    def _run_inside(self, run: _Converter, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if not self.name:  # the whole module, which may call itself
            if len(run.paused) == 1:
                return self.before(module)(*args, **kwargs)
            name = run.names.path[-1]
            run.names.path.append(name), run.paused.append(False)
            run.resume()
        elif not self.has_hooks or run.names.path[-1] != self.name:
            run.enter(self.name, module)
        elif self.has_hooks:  # which have entered it, and will leave it unless this fails
            try:
                return self.before(module)(*args, **kwargs)
            except BaseException:
                run.leave()
                raise
        try:
            if self.is_direct:
                return run.forward_of(module)(module, *args, **kwargs)
            return self.before(module)(*args, **kwargs)
        finally:
            run.leave()


# torch.compile, since PyTorch 2, would compile what it finds below a call that it does not.
_frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
_set_compiler = getattr(_frames, "set_eval_frame", None)
if hasattr(_frames, "skip_code"):
    _frames.skip_code(_Forward.__call__.__code__)

_OF_FUNCTIONS = ("__func__", "__self__", "__name__", "__qualname__", "__code__", "__globals__", "__closure__",
                 "__defaults__", "__kwdefaults__", "__annotations__")  # fmt: skip


class _Enter:
    """A pre-hook of a submodule that has hooks: what these call is the submodule's."""

    def __init__(self, name: str, conversion: _Conversion) -> None:
        self.name, self.conversion = name, conversion

    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        if here.runs and here.runs[-1].conversion is self.conversion:
            here.runs[-1].enter(self.name, module)


class _Leave(_Enter):
    """The hook after it."""

    def __call__(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:  # type: ignore[override]
        runs = here.runs
        if runs and runs[-1].conversion is self.conversion and runs[-1].names.path[-1] == self.name:
            runs[-1].leave()


def _forwards(module: torch.nn.Module) -> Iterator[Tuple[torch.nn.Module, _Forward]]:
    """The converted submodules of a module, and itself."""
    for child in module.modules():
        forward = child.__dict__.get("_tandem")
        if forward is not None:
            yield child, forward


class unconverted:
    """A context in which a module runs as it was before `apply`, also where it or parts of it are converted.
    Weights lie as they did, too, unless they keep their layout."""

    def __init__(self, module: torch.nn.Module, keeps_layout: bool = False) -> None:
        found = list(_forwards(module))
        self.conversions = {forward.conversion for _, forward in found}
        moved = [] if keeps_layout else found
        self.laid_out = [child for child, _ in moved if "_tandem_layout" in child.__dict__]

    def __enter__(self) -> None:
        for conversion in self.conversions:
            conversion.n_held += 1
        for child in self.laid_out:
            _put_layout_back(child)

    def __exit__(self, *exception: Any) -> None:
        for conversion in self.conversions:
            conversion.n_held -= 1
        for child in self.laid_out:
            lay_out(child)


def _check_module(module: torch.nn.Module, graph: Graph) -> None:
    """Refuses a module whose parameters are not those that the graph was captured with."""
    have = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    if fingerprint_of(have.items()) == graph.fingerprint:
        return
    text = lambda shape: "x".join(map(str, shape)) or "1"  # noqa: E731
    for name in list(graph.parameters) + list(have):
        if have.get(name) == graph.parameters.get(name):
            continue
        layer = name.rpartition(".")[0] or type(module).__name__
        now = f"has '{name}' of {text(have[name])}" if name in have else f"has no '{name}'"
        then = f"of {text(graph.parameters[name])}" if name in graph.parameters else "without it"
        raise _library.error(
            "WRONG_MODEL",
            f"layer '{layer}' was changed after the plan was made: the module {now}, and was "
            f"captured {then}. Capture it again, and plan again",
        )


def load_wanted(wanted: Wanted) -> Union[str, Plan, Mapping[str, str]]:
    """The plan of a file, or what was given."""
    if not isinstance(wanted, (str, os.PathLike)) or wanted in PRECISIONS:
        return wanted  # type: ignore[return-value]
    if isinstance(wanted, str) and not (os.sep in wanted or wanted.endswith(".json") or os.path.exists(wanted)):
        _library.call("tandem", "tandem_precision_find", byref(c_int()), c_char_p(wanted.encode()))
    return Plan.load(wanted)


def _read_wanted(
    wanted: Union[str, Plan, Mapping[str, str]], rank: int
) -> "tuple[Dict[str, str], Optional[str], Optional[Graph]]":
    """Precisions by name, or one for all calls, and the graph that they are of."""
    if isinstance(wanted, str):
        return {}, wanted, None
    if isinstance(wanted, Plan):
        if wanted.graph is None:
            raise _library.error(
                "WRONG_MODEL",
                f"the plan is of {wanted.model}, a model of the zoo; apply needs one that was made "
                "for a captured module",
            )
        return dict(wanted.precision(rank)), None, wanted.graph
    if not isinstance(wanted, Mapping) or not all(isinstance(name, str) for name in wanted):
        raise _library.error(
            "USAGE",
            "apply takes a Plan, the file of one, a precision, or precisions by the names of calls, as in "
            f"{{'fc': 'bf16'}}; got {wanted!r}",
        )
    return dict(wanted), None, None


def lay_out(module: torch.nn.Module, names: Optional[Container[str]] = None) -> None:
    """Weights of convolutions [all] as converted calls read them, so that no step copies them. Memory that a
    weight shares, with other processes or other tensors, stays where it is."""
    for name, child in module.named_modules():
        if not isinstance(child, torch.nn.Conv2d) or child.groups != 1 or not (names is None or name in names):
            continue
        weight = child._parameters.get("weight")  # None: computed in each call, from other parameters
        if weight is None or not is_plain(weight) or not _is_alone(weight):
            continue
        before, weight.data = weight.data.stride(), channels_last(weight.data)
        if weight.stride() != before:
            child.__dict__["_tandem_layout"] = before


@contextlib.contextmanager
def laid_out(module: torch.nn.Module) -> Iterator[None]:
    """A context in which weights of convolutions lie as converted calls read them."""
    children = [child for child in module.modules() if "_tandem_layout" not in child.__dict__]
    lay_out(module)
    try:
        yield
    finally:
        for child in children:
            _put_layout_back(child)


def _is_alone(weight: torch.Tensor) -> bool:
    """Whether no other tensor, and no other process, lies in its memory, as far as can be determined."""
    of = weight.untyped_storage() if hasattr(weight, "untyped_storage") else weight.storage()
    return not weight.is_shared() and of.nbytes() == weight.numel() * weight.element_size()


def _put_layout_back(child: torch.nn.Module) -> None:
    before = child.__dict__.pop("_tandem_layout", None)
    weight = child._parameters.get("weight")
    if before is not None and weight is not None and weight.stride() != before:
        made = torch.empty_strided(weight.shape, before, dtype=weight.dtype, device=weight.device)
        weight.data = made.copy_(weight.data)


def _put_layouts_back(module: torch.nn.Module) -> None:
    """While PyTorch traces, which does not see it."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        for child in module.modules():
            _put_layout_back(child)
    finally:
        torch._C._set_tracing_state(state)


def _converted(plan: Union[Plan, Mapping[str, str]]) -> Set[str]:
    """What any rank converts: DistributedDataParallel wants the same layout on all."""
    classes = [one.precision for one in plan.classes] if isinstance(plan, Plan) else [plan]
    return {name for one in classes for name, precision in one.items() if precision != "fp32"}


def apply(
    module: torch.nn.Module, plan: Wanted, *, rank: Optional[int] = None, seed: int = 0
) -> torch.nn.Module:
    """Runs a module's linear layers, convolutions and matrix products in a plan's precisions, from now on.

    The module is changed in place and returned. Its submodules, parameters and `state_dict` stay; so do
    hooks, a forward that was set on the instance, copies (`copy.deepcopy`) and DistributedDataParallel, which
    is wrapped around it afterwards. Submodules that are called alone run converted. A backward pass runs in
    the precision too, also that of `torch.utils.checkpoint`. docs/pytorch.md says what PyTorch's other
    transformations give. Inputs and results are float32; what no plan names runs as
    before. `remove` undoes it. Converted convolutions give their results in the memory format channels_last,
    and their weights are kept in it, as `module.to(memory_format=torch.channels_last)` would: wrap the
    module in DistributedDataParallel, and make its optimizer, afterwards. All ranks of a job need the same
    layout: give them one Plan; of precisions by hand, convert the same convolutions on every rank.

        plan   a Plan or the file of one, a precision for all calls ("int8_full"), or precisions by name
        rank   whose class of the plan [torch.distributed's rank, or 0]
        seed   of the random rounding to int8

    >>> tandem.apply(module, plan)                      # in each rank of a DDP job, before DDP(module)
    >>> tandem.apply(module, {"fc": "int8_full"})       # by hand

    A module that is not the captured one is refused with the layer's name, here where its parameters
    differ, and in the forward pass where shapes do. Any batch is fine. `precision` "bf16" is fast on CPUs
    with AMX or, if not Intel's, AVX-512 BF16. CUDA tensors run in "tf32", "fp16" and "fp8", too
    (docs/pytorch.md says how far that is tested)."""
    warn_of_slow_blas()
    inner = unwrap(module)
    use_huge_pages(parameter.data_ptr() for parameter in inner.parameters() if parameter.is_cpu)
    rank = rank_here() if rank is None else rank
    wanted = load_wanted(plan)
    precision, uniform, graph = _read_wanted(wanted, rank)
    has = _cuda.HAS if any(parameter.is_cuda for parameter in inner.parameters()) else HAS
    for name, one in [("every call", uniform)] if uniform else list(precision.items()):
        if one not in has:
            raise _library.error("NO_KERNEL", f"'{name}' in {one}: modules run in {', '.join(has)}")
    if graph is not None:
        _check_module(inner, graph)
    if isinstance(inner, torch.jit.ScriptModule):
        raise _library.error(
            "USAGE", "a module of TorchScript cannot be converted: call apply before torch.jit.script"
        )
    _strip(inner)
    follow_checkpoints()
    conversion = _Conversion(inner, precision, uniform, graph, rank, seed)
    conversion.wanted = wanted
    _wrap_forwards(inner, conversion)
    if uniform != "fp32":
        lay_out(inner, None if isinstance(wanted, str) else _converted(wanted))
    return module


def _wrap_forwards(module: torch.nn.Module, conversion: _Conversion) -> None:
    """Puts a forward on the module and on all submodules that may call products."""
    scripted: Set[str] = set()
    for name, child in module.named_modules():
        if isinstance(child, torch.jit.ScriptModule):
            scripted.add(name)
        if name in conversion.places.passed or isinstance(child, torch.jit.ScriptModule):
            continue
        forward = _Forward(name, child, conversion)
        if forward.has_hooks:
            enter, leave = _Enter(name, conversion), _Leave(name, conversion)
            hooks = child.register_forward_pre_hook(enter), child.register_forward_hook(leave)
            child.__dict__["_tandem_hooks"] = hooks
        child.__dict__["_tandem"] = child.__dict__["forward"] = forward
    if type(module).__call__ is not torch.nn.Module.__call__ and not isinstance(module, torch.fx.GraphModule):
        warnings.warn(
            f"tandem: {type(module).__name__} has a __call__ of its own; products that this calls outside "
            "forward run in fp32",
            stacklevel=4,
        )
    outermost = sorted(name for name in scripted if name.rpartition(".")[0] not in scripted)
    if outermost and conversion.uniform != "fp32":
        warnings.warn(
            f"tandem: layers {', '.join(repr(name) for name in outermost)} are TorchScript, whose products "
            "run in fp32: nothing sees them. Call apply before torch.jit.script",
            stacklevel=4,
        )


def _strip(module: torch.nn.Module) -> None:
    """Takes from a module and its submodules what `apply` put there."""
    found = list(_forwards(module))
    whole = {forward.conversion for _, forward in found if not forward.name}
    for child, forward in found:
        del child.__dict__["_tandem"]
        for hook in child.__dict__.pop("_tandem_hooks", ()):
            hook.remove()
        if child.__dict__.get("forward") is forward:  # else one that wraps it, and passes through it
            del child.__dict__["forward"]
            if forward.own is not None:
                child.__dict__["forward"] = forward.own
        if forward.conversion in whole:
            forward.conversion.is_removed = True
        elif forward.conversion.changed_part is None:
            forward.conversion.changed_part = forward.name
        _put_layout_back(child)


def remove(module: torch.nn.Module) -> torch.nn.Module:
    """Undoes `apply`; a module that was not converted stays as it is."""
    _strip(unwrap(module))
    return module


class put_back:
    """A context in which a module may be converted and unconverted; afterwards it is what it was before."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        forward = module.__dict__.get("_tandem")
        self.conversion = None if forward is None or forward.name else forward.conversion

    def __enter__(self) -> None:
        remove(self.module)

    def __exit__(self, *exception: Any) -> None:
        remove(self.module)
        if self.conversion is not None:
            before = self.conversion
            apply(self.module, before.wanted, rank=before.rank, seed=before.seed)
            self.module.__dict__["_tandem"].conversion.step = before.step


def applied(module: torch.nn.Module) -> Dict[str, str]:
    """The precisions of a converted module by name; empty where it is not converted, "*" for all calls."""
    forward = unwrap(module).__dict__.get("_tandem")
    if forward is None or forward.name:
        return {}
    conversion = forward.conversion
    return {"*": conversion.uniform} if conversion.uniform else dict(conversion.precision)
