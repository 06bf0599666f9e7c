"""What a module calls while it runs, under names that come from its submodules.

One run of the module is followed, so that any code that runs is fine: branches taken in Python, weights that
several layers share, operations in place, any number of inputs, functions without a module.
"""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass
from typing import Any, Callable, Container, Dict, List, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

Tensor = torch.Tensor


@dataclass
class Product:
    """An adjustable call, as the plan sees it, with its operands."""

    kind: str  # "linear", "conv2d", "matmul"
    x: Tensor
    w: Tensor  # linear: (n, k), conv2d: (out, c, kernel, kernel), matmul: the second operand
    bias: Optional[Tensor] = None
    kernel: int = 0
    stride: int = 0
    pad: int = 0
    addend: Optional[Tensor] = None  # baddbmm: what the product is added to
    turned: bool = False  # linear: the weight is used as x @ weight, (k, n)


def _pair(value: Any) -> Optional[int]:
    """The number that holds for both of a pair; None where they differ."""
    if isinstance(value, int):
        return value
    if isinstance(value, (tuple, list)) and all(one == value[0] for one in value):
        return value[0]
    return None


def _read_linear(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Optional[Product]:
    if input.dim() < 2 or weight.dim() != 2 or input.shape[-1] != weight.shape[1]:
        return None
    return Product("linear", input, weight, bias) if _is_bias(bias, weight) else None


def _is_bias(bias: Optional[Tensor], weight: Tensor) -> bool:
    """Whether it is one of this weight; PyTorch says of others what is wrong, or has their kind of sum."""
    return bias is None or (bias.dtype == weight.dtype and bias.shape == weight.shape[:1])


def _read_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Optional[Product]:
    stride, padding, dilation = _pair(stride), _pair(padding), _pair(dilation)
    kernel = weight.shape[-1]
    if input.dim() != 4 or weight.dim() != 4 or weight.shape[-2] != kernel or groups != 1 or dilation != 1:
        return None
    if input.shape[1] != weight.shape[1] or not _is_bias(bias, weight):
        return None
    if stride is None or padding is None or padding >= kernel or stride < 1 or padding < 0:
        return None
    if min(input.shape[2:]) + 2 * padding < kernel:
        return None
    return Product("conv2d", input, weight, bias, kernel, stride, padding)


def _read_matmul(input: Tensor, other: Tensor) -> Optional[Product]:
    if min(input.dim(), other.dim()) < 2 or input.shape[-1] != other.shape[-2]:
        return None
    if other.dim() == 2 and input.dim() >= 2 and (isinstance(other, torch.nn.Parameter) or input.dim() > 2):
        return Product("linear", input, other, turned=True)
    if input.dim() == other.dim() and 2 <= input.dim() <= 4 and input.shape[:-2] == other.shape[:-2]:
        return Product("matmul", input, other)
    return None


def _read_mm(input: Tensor, mat2: Tensor) -> Optional[Product]:
    return _read_matmul(input, mat2) if input.dim() == mat2.dim() == 2 else None


def _read_bmm(input: Tensor, mat2: Tensor) -> Optional[Product]:
    return _read_matmul(input, mat2) if input.dim() == mat2.dim() == 3 else None


def _read_baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1):
    product = _read_bmm(batch1, batch2) if alpha == 1 and beta == 1 and input.dtype == batch1.dtype else None
    if product:
        product.addend = input
    return product


_READERS: Dict[str, Callable[..., Optional[Product]]] = {
    "linear": _read_linear,
    "conv2d": _read_conv2d,
    "matmul": _read_matmul,
    "__matmul__": _read_matmul,
    "bmm": _read_bmm,
    "mm": _read_mm,
    "baddbmm": _read_baddbmm,
}

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def read_product(func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[Product]:
    """The product that a call computes; None where it is no adjustable call."""
    reader = _READERS.get(getattr(func, "__name__", ""))
    operands = args[:2] if len(args) > 1 else (*args, *kwargs.values())
    if reader is None or "out" in kwargs or any(type(one).__module__ == "torch.fx.proxy" for one in operands):
        return None
    try:
        product = reader(*args, **kwargs)
    except (TypeError, AttributeError):  # a function of this name with other arguments
        return None
    return product if product is not None and product.x.dtype in _FLOATS else None


# Functions in Python that call products inside, which are followed.
_COMPOSITE = {F.multi_head_attention_forward}
# The names of all functions that are products, or have some inside.
PRODUCTS = frozenset(_READERS) | {func.__name__ for func in _COMPOSITE}
_opened: Dict[Any, Any] = {}


def _open_composite(func: Any) -> Any:
    """The same function without its own check for overrides, so that what it calls is seen."""
    if func not in _opened:
        _opened[func] = _with_names(func, _open_names(func))
    return _opened[func]


def _open_names(func: Any) -> Dict[str, Any]:
    """What a function's names mean, without checks for overrides."""
    names = dict(func.__globals__)
    for check in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
        names[check] = lambda *_: False
    return names


def _with_names(func: Any, names: Dict[str, Any]) -> Any:
    made = types.FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
    made.__kwdefaults__ = func.__kwdefaults__
    return made


class _Routed:
    """A module of Python's with some functions replaced."""

    def __init__(self, of: Any, instead: Dict[str, Any]) -> None:
        self.__dict__.update(instead)
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


def route_products(func: Any, route: Callable[..., Any]) -> Any:
    """A composite function whose products are given to `route`, with their function first. It needs no mode,
    which would take as long for each shape and view. Products that it writes in another way are not found."""
    names = _open_names(func)
    by_name = {name: functools.partial(route, getattr(torch, name)) for name in ("bmm", "baddbmm", "matmul")}
    names["torch"], names["linear"] = _Routed(torch, by_name), functools.partial(route, F.linear)
    for name in ("_in_projection", "_in_projection_packed"):
        if name in names:
            names[name] = _with_names(names[name], names)
    return _with_names(func, names)


def route_attention(route: Callable[..., Any]) -> Any:
    """The forward of MultiheadAttention, which gives its composite function to `route`, with that first."""
    forward = torch.nn.MultiheadAttention.forward
    composite = F.multi_head_attention_forward
    functions = _Routed(F, {composite.__name__: functools.partial(route, composite)})
    return _with_names(forward, {**forward.__globals__, "F": functions})


class Names:
    """Gives every call of a run a name: the path of its module, and what differs from others there."""

    def __init__(self) -> None:
        self.path: List[str] = []
        self.taken: Dict[str, int] = {}

    def begin(self) -> None:
        self.path, self.taken = [""], {}

    def enter(self, name: str, module: torch.nn.Module, inputs: Any) -> None:
        """A submodule begins: what its pre-hook calls."""
        self.path.append(name)

    def leave(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        """Its hook."""
        if len(self.path) > 1:
            self.path.pop()

    def give(self, what: str, of_module: bool) -> str:
        module = self.path[-1] if self.path else ""
        name = module if of_module and module else f"{module}.{what}" if module else what
        return self._unique(name)

    def give_next(self, name: str, what: str) -> str:
        """A name for what belongs to a call that has `name`."""
        return self._unique(f"{name}.{what}")

    def _unique(self, name: str) -> str:
        seen = self.taken.get(name, 0)
        self.taken[name] = seen + 1
        return f"{name}_{seen}" if seen else name


def follow_modules(module: torch.nn.Module, names: Names, but: Container[str] = ()) -> List[Any]:
    """Hooks on all submodules but those of these names; the caller removes them."""
    handles = []
    for name, child in module.named_modules():
        if child is module or name in but:
            continue
        handles.append(child.register_forward_pre_hook(functools.partial(names.enter, name)))
        handles.append(child.register_forward_hook(names.leave))
    return handles


_MODULES_OF = {"linear": torch.nn.Linear, "conv2d": torch.nn.Conv2d}


def name_kinds(module: torch.nn.Module) -> Dict[str, str]:
    """The kind of product that each submodule has one of, by its name."""
    return {
        name: kind
        for name, child in module.named_modules()
        for kind, of in _MODULES_OF.items()
        if isinstance(child, of)
    }


class Follower(TorchFunctionMode):
    """Sees every call of PyTorch while it is entered. Subclasses say what happens at each.

    It keeps the names of a module's submodules, and no module."""

    def __init__(self, module: Union[torch.nn.Module, Dict[str, str]], names: Names) -> None:
        super().__init__()
        self.names = names
        self.is_inside_attention = False
        self._kinds = module if isinstance(module, dict) else name_kinds(module)

    def product(self, name: str, product: Product, func: Any, args: Any, kwargs: Any) -> Any:
        raise NotImplementedError

    def other(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def composite(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A function in Python, entered so that what it calls is seen."""
        with self:
            return _open_composite(func)(*args, **kwargs)

    def name_product(self, product: Product) -> str:
        kind = self._kinds.get(self.names.path[-1] if self.names.path else "")
        return self.names.give(product.kind, kind == product.kind)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _COMPOSITE:
            self.is_inside_attention = True
            try:
                return self.composite(func, args, kwargs)
            finally:
                self.is_inside_attention = False
        return self.follow(func, args, kwargs)

    def follow(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A call of a function that calls no others of PyTorch."""
        product = read_product(func, args, kwargs)
        if product is None:
            return self.other(func, args, kwargs)
        name = self.name_product(product)
        if product.x.numel() == 0 or product.w.numel() == 0:
            return self.empty(name, func, args, kwargs)
        return self.product(name, product, func, args, kwargs)

    def empty(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """A product of an empty batch: it has its name, so that later calls keep theirs, and nothing to do."""
        return self.other(func, args, kwargs)
