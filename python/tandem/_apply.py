"""apply: a module in the precisions of a plan."""

from __future__ import annotations

import os
import warnings
from ctypes import byref, c_char_p, c_int
from typing import Any, Container, Dict, List, Mapping, Optional, Set, Union

import torch
import torch.nn.functional as F

from tandem import _cuda, _library
from tandem._blas import warn_of_slow_blas
from tandem._capture import unwrap
from tandem._graph import Graph, fingerprint_of
from tandem._kernels import Conv2d, Convolution, Kernels, Linear, Matmul, Rounds, channels_last
from tandem._memory import use_huge_pages
from tandem._mode import DirectMode
from tandem._plan import Plan
from tandem._structs import PRECISIONS
from tandem._trace import (
    PRODUCTS,
    Follower,
    Names,
    Product,
    follow_modules,
    route_attention,
    route_products,
)

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


def _is_silent(module: torch.nn.Module) -> bool:
    return type(module).__module__ in _SILENT and not module._modules


def _is_container(module: torch.nn.Module) -> bool:
    activation = module.__dict__.get("activation")  # a submodule is not among these
    return type(module) in _CONTAINERS and activation in _ACTIVATIONS


def _is_direct(module: torch.nn.Module) -> bool:
    """Whether its products can be converted without a mode. Hooks of its own, or a forward, may have others."""
    is_own = module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__
    return type(module) in (torch.nn.Linear, torch.nn.MultiheadAttention) and not is_own


class _Places(Names):
    """Names of a converted module's calls. The mode that sees these pauses where it need not see any."""

    mode: Optional["_Converter"] = None  # while the module runs

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.silent: Set[str] = set()
        self.containers: Set[str] = set()  # silent in training
        self.direct: Set[str] = set()
        self.passed: Set[str] = set()  # silent ones of containers: they need no hooks
        for name, child in module.named_modules():
            if child is not module and _is_direct(child):
                self.direct.add(name)
            if _is_silent(child) or name in self.direct and isinstance(child, torch.nn.Linear):
                self.silent.add(name)
            elif _is_container(child) or name in self.direct:
                self.containers.add(name)
                inside = (f"{name}.{one}" if name else one for one, of in child._modules.items() if _is_silent(of))
                self.passed.update(inside)
        self.paused: List[bool] = []  # for each module that runs

    def begin(self) -> None:
        super().begin()
        self.paused = [False]

    def enter(self, name: str, module: torch.nn.Module, inputs: Any) -> None:
        self.path.append(name)
        is_paused = name in self.silent or name in self.containers and module.training
        self.paused.append(is_paused)
        if self.mode is not None:
            self.mode.pause() if is_paused else self.mode.resume()

    def leave(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if len(self.path) > 1:
            self.path.pop()
            self.paused.pop()
        if self.mode is not None:
            self.mode.pause() if self.paused[-1] else self.mode.resume()


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
        self.names = _Places(module)
        self.rounds: Dict[str, Rounds] = {}
        self.step = 0
        self.warned: List[str] = []

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
        """Warns once, behind the first pass, of names that are no call of it."""
        if not self.uncalled:
            return
        names, self.uncalled = ", ".join(f"'{name}'" for name in sorted(self.uncalled)), set()
        warnings.warn(
            f"tandem: apply was given a precision for {names}, which the module did not call; "
            "print(tandem.capture(module, inputs)) shows the names of its calls",
            stacklevel=4,
        )

    def rounds_of(self, name: str) -> Rounds:
        rounds = self.rounds.get(name)
        if rounds is None:
            rounds = self.rounds[name] = Rounds(len(self.rounds), self.rank, self.seed)
        rounds.step = self.step
        return rounds


def _refuse_operands(name: str, product: Product) -> None:
    for what, tensor in (("input", product.x), ("weight", product.w)):
        if tensor.device.type not in ("cpu", "cuda") or tensor.device != product.x.device:
            beside = f", its input on {product.x.device}" if what == "weight" else ""
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
    x, w = product.x, product.w
    is_here = x.is_cpu and w.is_cpu or x.is_cuda and x.device == w.device
    if not (is_here and x.dtype == w.dtype == torch.float32):
        _refuse_operands(name, product)
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


_SEEN = {*PRODUCTS, "view"}


class _Converter(DirectMode, Follower):
    """Runs products in the precisions of a plan, and everything else as it is."""

    def __init__(self, module: torch.nn.Module, conversion: _Conversion) -> None:
        super().__init__(module, conversion.names)
        self.conversion = conversion
        self.n_products = 0
        self.n_inside: Dict[Any, int] = {}  # products in a composite function
        self.routed: Dict[Any, Any] = {}
        self.attention = route_attention(self.route_composite)

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
        try:
            return run_product(product, precision, conversion.kernels, conversion.rounds_of(name))
        except _library.TandemError as refused:
            raise _library.error(refused.status, f"layer '{name}': {refused}") from None

    def other(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Results of convolutions are in channels_last, which not every view of theirs allows."""
        if getattr(func, "__name__", "") == "view" and isinstance(args[0], torch.Tensor):
            x = args[0]
            if x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last):
                x.data = x.detach().contiguous()
        return func(*args, **kwargs)


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
    if product.kind == "conv2d":
        of = Convolution(product.kernel, product.stride, product.pad)
        return Conv2d.apply(product.x, product.w, product.bias, of, precision, kernels, rounds)
    if product.kind == "linear":
        w = product.w.t() if product.turned else product.w
        return Linear.apply(product.x, w, product.bias, precision, kernels, rounds)
    y = Matmul.apply(product.x, product.w, precision, kernels, rounds)
    return y if product.addend is None else y + product.addend


class _Direct:
    """Stands as the forward of a Linear or MultiheadAttention, whose products it gives to the converter. That
    takes less than a mode and hooks do, of which these then have none."""

    def __init__(self, name: str, module: torch.nn.Module, names: _Places) -> None:
        self.name, self.module, self.names = name, module, names

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, names = self.module, self.names
        if names.mode is None:
            return type(module).forward(module, *args, **kwargs)
        names.enter(self.name, module, args)
        result = names.mode.forward_of(module)(module, *args, **kwargs)
        names.leave(module, args, result)
        return result


class _Forward:
    """Stands as `module.forward`, so that the module's own code runs with its products converted."""

    def __init__(self, module: torch.nn.Module, conversion: _Conversion) -> None:
        self.module, self.conversion = module, conversion
        self.converter: Optional[_Converter] = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.converter is None:
            self.converter = _Converter(self.module, self.conversion)
        names = self.conversion.names
        names.begin()
        self.conversion.step += 1
        outer, names.mode = names.mode, self.converter
        try:
            with self.converter:
                result = type(self.module).forward(self.module, *args, **kwargs)
        finally:
            names.mode = outer
        self.conversion.end_pass()
        return result

    def __getstate__(self) -> Dict[str, Any]:
        return {"module": self.module, "conversion": self.conversion, "converter": None}

    def __deepcopy__(self, memo: Any) -> "_Forward":
        import copy

        made = _Forward.__new__(_Forward)
        memo[id(self)] = made
        made.converter = None
        made.module = copy.deepcopy(self.module, memo)
        made.conversion = copy.deepcopy(self.conversion, memo)
        return made


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


def _load_wanted(wanted: Wanted) -> Union[str, Plan, Mapping[str, str]]:
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
    """Weights of convolutions [all] as converted calls read them, so that no step copies them."""
    for name, child in module.named_modules():
        if isinstance(child, torch.nn.Conv2d) and child.groups == 1 and (names is None or name in names):
            child.weight.data = channels_last(child.weight.data)
            child.__dict__["_tandem_layout"] = True


def _converted(plan: Union[Plan, Mapping[str, str]]) -> Set[str]:
    """What any rank converts: DistributedDataParallel wants the same layout on all."""
    classes = [one.precision for one in plan.classes] if isinstance(plan, Plan) else [plan]
    return {name for one in classes for name, precision in one.items() if precision != "fp32"}


def apply(
    module: torch.nn.Module, plan: Wanted, *, rank: Optional[int] = None, seed: int = 0
) -> torch.nn.Module:
    """Runs a module's linear layers, convolutions and matrix products in a plan's precisions, from now on.

    The module is changed in place and returned. Its submodules, parameters and `state_dict` stay; so do
    hooks, copies (`copy.deepcopy`) and DistributedDataParallel, which is wrapped around it afterwards. A
    backward pass runs in the precision too. Inputs and results are float32; what no plan names runs as
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
    wanted = _load_wanted(plan)
    precision, uniform, graph = _read_wanted(wanted, rank)
    has = _cuda.HAS if any(parameter.is_cuda for parameter in inner.parameters()) else HAS
    for name, one in [("every call", uniform)] if uniform else list(precision.items()):
        if one not in has:
            raise _library.error("NO_KERNEL", f"'{name}' in {one}: modules run in {', '.join(has)}")
    if graph is not None:
        _check_module(inner, graph)
    remove(inner)
    conversion = _Conversion(inner, precision, uniform, graph, rank, seed)
    names = conversion.names
    handles = follow_modules(inner, names, names.passed | names.direct)
    for name, child in inner.named_modules():
        if name in names.direct:
            child.__dict__["forward"] = _Direct(name, child, names)
    forward = _Forward(inner, conversion)
    if uniform != "fp32":
        lay_out(inner, None if isinstance(wanted, str) else _converted(wanted))
    inner.__dict__["_tandem_hooks"] = handles
    inner.__dict__["forward"] = forward
    return module


def remove(module: torch.nn.Module) -> torch.nn.Module:
    """Undoes `apply`; a module that was not converted stays as it is."""
    inner = unwrap(module)
    for handle in inner.__dict__.pop("_tandem_hooks", []):
        handle.remove()
    if isinstance(inner.__dict__.get("forward"), _Forward):
        del inner.__dict__["forward"]
    for child in inner.modules():
        if isinstance(child.__dict__.get("forward"), _Direct):
            del child.__dict__["forward"]
        if child.__dict__.pop("_tandem_layout", False):
            child.weight.data = child.weight.data.contiguous()
    return module


def applied(module: torch.nn.Module) -> Dict[str, str]:
    """The precisions of a converted module by name; empty where it is not converted, "*" for all calls."""
    forward = unwrap(module).__dict__.get("forward")
    if not isinstance(forward, _Forward):
        return {}
    conversion = forward.conversion
    return {"*": conversion.uniform} if conversion.uniform else dict(conversion.precision)
