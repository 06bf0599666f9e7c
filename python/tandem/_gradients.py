"""Gradients of converted products that are differentiated again: gradient penalties, Hessians.

With `create_graph`, the first gradient has the bits that it has without. Its own derivatives are those of
PyTorch's product in float32, at the operands as they were rounded: the rounding itself has no derivative.
What is needed of an operand beside its narrow copy is where its gradient goes. A tensor without memory keeps
that, so that no operand stays in memory for a second derivative that most programs never ask for.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple

import torch

from tandem import _library

Tensor = torch.Tensor
Maybe = Optional[Tensor]

_PLAIN = (Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
_NOTHING = torch.empty(0)
_unsafe_view = torch.ops.aten._unsafe_view.default  # a view that PyTorch does not follow as one


def is_plain(x: Tensor) -> bool:
    """Whether a kernel can read x's memory: not so inside vmap, in fake or lazily negated tensors."""
    if type(x) not in _PLAIN or x.layout is not _STRIDED or x.is_neg() or x._is_zerotensor():
        return False
    try:
        return x.data_ptr() != 0 or x.numel() == 0
    except RuntimeError:  # it has no memory of its own
        return False


class _Edge:
    """Where the gradient of an operand goes: to a leaf, or by a tensor without memory after the operand.

    That tensor must be no view, since a view keeps its base, and so the operand's memory, until the backward
    pass has ended."""

    __slots__ = ("to",)

    def __init__(self, x: Tensor) -> None:
        if x.is_leaf:
            self.to = x
            return
        self.to = _unsafe_view(x, x.shape)
        self.to.data = _NOTHING if x.is_cpu else x.new_empty(0)


def edge_of(x: Tensor) -> Optional[_Edge]:
    return _Edge(x) if x.requires_grad else None


def _attach(edge: Optional[_Edge], value: Tensor) -> Tensor:
    """`value` as a tensor whose gradient goes where the edge leads."""
    return value if edge is None else _Attach.apply(edge.to, value)


def refuse_second(name: str, gradients: Sequence[Maybe]) -> Sequence[Maybe]:
    """Gradients that raise an error with the layer's name where they are differentiated again."""
    message = f"layer '{name}': its gradient is once_differentiable on this device; plan it in fp32".encode()
    return torch._C._functions.DelayedError(message, len(gradients))(
        *(one if one is None else one.requires_grad_() for one in gradients)
    )


class _Attach(torch.autograd.Function):
    @staticmethod
    def forward(ctx, to, value):  # type: ignore[override]
        return value.view_as(value)

    @staticmethod
    def backward(ctx, g):  # type: ignore[override]
        return g, None


class LinearRule:
    """y = x·wᵀ + bias: its gradients in PyTorch, and the gradients of these."""

    def first(self, g: Tensor, x: Tensor, w: Tensor, wants: Sequence[bool]) -> Tuple[Maybe, Maybe, Maybe]:
        rows = lambda of: of.reshape(-1, of.shape[-1])  # noqa: E731
        gx = g.matmul(w) if wants[0] else None
        gw = rows(g).t().matmul(rows(x)) if wants[1] else None
        return gx, gw, rows(g).sum(0) if wants[2] else None

    def second(
        self, g: Tensor, x: Tensor, w: Tensor, of: Sequence[Maybe], wants: Sequence[bool]
    ) -> Tuple[Maybe, Maybe, Maybe]:
        """The gradients that are wanted of g, x and w, from those `of` the gradients of x, w and the bias."""
        of_gx, of_gw, of_gb = of
        rows = lambda one: one.reshape(-1, one.shape[-1])  # noqa: E731
        to_g = to_x = to_w = None
        if wants[0]:
            parts = [of_gx.matmul(w.t())] if of_gx is not None else []
            parts += [x.matmul(of_gw.t())] if of_gw is not None else []
            parts += [of_gb.expand_as(g)] if of_gb is not None else []
            to_g = sum(parts) if parts else None
        if wants[1] and of_gw is not None:
            to_x = g.matmul(of_gw)
        if wants[2] and of_gx is not None:
            to_w = rows(g).t().matmul(rows(of_gx))
        return to_g, to_x, to_w


class MatmulRule:
    """c = a·b of matrices with equal leading sizes."""

    def first(self, g: Tensor, a: Tensor, b: Tensor, wants: Sequence[bool]) -> Tuple[Maybe, Maybe, Maybe]:
        ga = g.matmul(b.transpose(-1, -2)) if wants[0] else None
        return ga, a.transpose(-1, -2).matmul(g) if wants[1] else None, None

    def second(
        self, g: Tensor, a: Tensor, b: Tensor, of: Sequence[Maybe], wants: Sequence[bool]
    ) -> Tuple[Maybe, Maybe, Maybe]:
        of_ga, of_gb, _ = of
        to_g = to_a = to_b = None
        if wants[0]:
            parts = [of_ga.matmul(b)] if of_ga is not None else []
            parts += [a.matmul(of_gb)] if of_gb is not None else []
            to_g = sum(parts) if parts else None
        if wants[1] and of_gb is not None:
            to_a = g.matmul(of_gb.transpose(-1, -2))
        if wants[2] and of_ga is not None:
            to_b = of_ga.transpose(-1, -2).matmul(g)
        return to_g, to_a, to_b


class Conv2dRule:
    """A convolution with one stride and one padding."""

    def __init__(self, stride: int, pad: int) -> None:
        self.stride, self.pad = stride, pad

    def _forward(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.conv2d(x, w, None, self.stride, self.pad)

    def _back(self, g: Tensor, x: Tensor, w: Tensor, wants: Sequence[bool]) -> Tuple[Maybe, Maybe]:
        gx, gw, _ = torch.ops.aten.convolution_backward(
            g, x, w, None, [self.stride] * 2, [self.pad] * 2, [1, 1], False, [0, 0], 1, [*wants, False]
        )
        return gx, gw

    def first(self, g: Tensor, x: Tensor, w: Tensor, wants: Sequence[bool]) -> Tuple[Maybe, Maybe, Maybe]:
        gx, gw = self._back(g, x, w, wants[:2]) if any(wants[:2]) else (None, None)
        return gx, gw, g.sum((0, 2, 3)) if wants[2] else None

    def second(
        self, g: Tensor, x: Tensor, w: Tensor, of: Sequence[Maybe], wants: Sequence[bool]
    ) -> Tuple[Maybe, Maybe, Maybe]:
        of_gx, of_gw, of_gb = of
        to_g = to_x = to_w = None
        if wants[0]:
            parts = [self._forward(of_gx, w)] if of_gx is not None else []
            parts += [self._forward(x, of_gw)] if of_gw is not None else []
            parts += [of_gb.view(1, -1, 1, 1).expand_as(g)] if of_gb is not None else []
            to_g = sum(parts) if parts else None
        if wants[1] and of_gw is not None:
            to_x = self._back(g, x, of_gw, (True, False))[0]
        if wants[2] and of_gx is not None:
            to_w = self._back(g, of_gx, w, (False, True))[1]
        return to_g, to_x, to_w


Compute = Callable[[Tensor], Tuple[Maybe, Maybe, Maybe]]


class _First(torch.autograd.Function):
    """The gradients that a kernel computes, with derivatives of their own."""

    @staticmethod
    def forward(ctx, compute, rule, g, x, w):  # type: ignore[override]
        ctx.rule = rule
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(g, x, w)
        return compute(g.detach())

    @staticmethod
    def backward(ctx, *of):  # type: ignore[override]
        g, x, w = ctx.saved_tensors
        return (None, None, *ctx.rule.second(g, x, w, of, ctx.needs_input_grad[2:]))


def is_differentiated(g: Tensor) -> bool:
    """Whether a backward pass has to be one that PyTorch can follow: for another one after it, or in vmap."""
    return torch.is_grad_enabled() or not is_plain(g)


def differentiable(
    rounds: Any, rule: Any, g: Tensor, x: Tensor, w: Tensor, wants: Sequence[bool], compute: Compute
) -> Tuple[Maybe, Maybe, Maybe]:
    """The gradients that are wanted of both operands and the bias, as tensors that have derivatives. x and w:
    the operands as they were rounded, in float32; compute: what the kernels make of g."""
    if torch.is_grad_enabled():
        if rounds.edges is None:
            raise _library.error(
                "NO_KERNEL", f"layer '{rounds.name}': it ran without what a second derivative needs"
            )
        x, w = (_attach(edge, one) for edge, one in zip(rounds.edges, (x, w)))
    if not is_plain(g):
        return rule.first(g, x, w, wants)
    return _First.apply(compute, rule, g, x, w)
