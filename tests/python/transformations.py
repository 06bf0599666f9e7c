"""A converted module under what PyTorch does with modules: the value of the unconverted one, or an error that
names a layer.

`CASES` holds, for each public name of the namespaces in `NAMESPACES`, what is done with it to a module of each
kind in each precision; `ASIDE` names what does nothing to a module. A name that neither has fails the test, so
that a new PyTorch has to be considered.
"""

import contextlib
import copy
import functools
import importlib
import inspect
import io
import pickle
import sys
import threading
import types
import unittest
import warnings
from unittest import mock

from support import Case
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
import torch.utils.checkpoint as checkpoints
from torch.nn.utils import parametrizations, parametrize, prune

import tandem
import tandem._apply

try:
    import torch.func as func
except ImportError:  # PyTorch 1.13
    import functorch as func

NAMESPACES = """torch.nn.Module torch.utils.checkpoint torch.autograd torch.autograd.functional
    torch.autograd.forward_ad torch.autograd.graph torch.func functorch torch.jit torch.fx torch.onnx torch.export
    torch.compiler torch.nn.utils torch.nn.utils.parametrize torch.nn.utils.parametrizations torch.nn.utils.prune
    torch.nn.utils.stateless torch.nn.parallel torch.quantization torch.amp copy pickle""".split()
PRECISIONS = {"fp32": 1e-5, "bf16": 0.03, "int8": 0.15, "int8_full": 0.15}  # how far a value may be off
NAMED = r"layer '[^']+'"  # what an error says


# --- Modules of each kind of converted call; they take (batch, 3, 4, 4) ---


class Rows(torch.nn.Module):
    """Linear layers."""

    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16))
        self.head = torch.nn.Linear(16, 4)

    def part(self, x):
        return torch.tanh(self.inside(x))

    def forward(self, x):
        return self.head(self.part(x.flatten(2))).mean(1)


class Images(torch.nn.Module):
    """Convolutions; a result is viewed, which its memory order has to allow."""

    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Tanh())
        self.inner = torch.nn.Conv2d(8, 8, 1)
        self.head = torch.nn.Conv2d(8, 2, 3)

    def part(self, x):
        return torch.tanh(self.inner(x))

    def forward(self, x):
        y = self.head(self.part(self.inside(x)))
        return y.view(y.shape[0], 8)[:, ::2]


class Products(torch.nn.Module):
    """Products of tensors, without modules."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16, 16) / 4)
        self.head = torch.nn.Parameter(torch.randn(16, 4) / 4)

    def part(self, x):
        y = torch.tanh(x @ self.weight)
        return torch.baddbmm(y, torch.tanh(torch.bmm(y, y.transpose(1, 2))), y)

    def forward(self, x):
        return (self.part(x.flatten(2)) @ self.head).mean(1)


class Attends(torch.nn.Module):
    """Attention, after an embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 16)
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = torch.nn.Linear(16, 4)
        self.register_buffer("tokens", torch.tensor([0, 3, 1]))

    def part(self, x):
        return x + self.attention(x, x, x)[0]

    def forward(self, x):
        return self.head(self.part(x.flatten(2) + self.embedding(self.tokens))).mean(1)


class Around(torch.nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x)


KINDS = {"linear": Rows, "conv2d": Images, "matmul": Products, "attention": Attends}


class Setting:
    """An unconverted module, as many converted copies as are wanted, and inputs."""

    def __init__(self, test, kind, precision):
        torch.manual_seed(0)
        self.test, self.precision, self.base = test, precision, KINDS[kind]()
        self.x, self.y = torch.randn(3, 3, 4, 4), torch.randn(3)
        self.directions = torch.randn(3, 48)
        self.tolerance = PRECISIONS[precision]

    def made(self, module=None):
        return tandem.apply(copy.deepcopy(module or self.base), self.precision)

    def close(self, found, wanted, times=1.0):
        for one, right in zip(tensors(found), tensors(wanted)):
            self.test.assertEqual(one.shape, right.shape)
            self.test.assertEqual(one.dtype, right.dtype)
            off = ((one - right).norm() / right.norm().clamp(min=1e-6)).item()
            self.test.assertLess(off, times * self.tolerance)

    def exact(self, found, wanted):
        for one, right in zip(tensors(found), tensors(wanted)):
            self.test.assertTrue(torch.equal(one, right))

    def same(self, run, times=1.0):
        """What `run` makes of a converted module is what it makes of the unconverted one, be it an error."""
        module = self.made()
        try:
            wanted = run(copy.deepcopy(self.base))
        except Exception as error:
            with contextlib.suppress(type(error)):
                run(module)
            return module
        self.close(run(module), wanted, times)
        return module

    def along(self, module):
        """The module as a function of three numbers, which move its input: derivatives of it are small."""
        return lambda y: module(self.x[:1] + 0.3 * (y[:, None] * self.directions).sum(0).view(1, 3, 4, 4))

    def named(self, run, module=None):
        """`run` raises an error with a layer's name, where the module has products that are not in fp32."""
        module = module or self.made()
        if self.precision == "fp32":
            return run(module)
        with self.test.assertRaisesRegex((tandem.TandemError, RuntimeError), NAMED):
            run(module)

    def converts(self, run, module):
        """`run` converts products of the module."""
        with mock.patch("tandem._apply.run_product", wraps=tandem._apply.run_product) as product:
            found = run(module)
        if self.precision != "fp32":
            self.test.assertGreater(product.call_count, 0)
        return found


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = [one for _, one in sorted(value.items())]
    return [tensor for one in value for tensor in tensors(one)] if isinstance(value, (tuple, list)) else []


def gradients(module, x, run=None):
    """Of a sum of squares, in the module's parameters and its input."""
    x = x.clone().requires_grad_()
    parameters = [one for one in module.parameters() if one.requires_grad]
    for one in parameters:
        one.grad = None
    (run or module)(x).square().sum().backward()
    return [one.grad for one in parameters] + [x.grad]


CASES, ASIDE = {}, {}


def case(*names):
    def register(function):
        for name in names:
            CASES.setdefault(name, []).append(function)
        return function

    return register


def aside(reason, *lists):
    """Names of a namespace, "namespace: name name", that do nothing to a module, and why."""
    for one in lists:
        namespace, _, names = one.partition(": ")
        for name in names.split():
            ASIDE[f"{namespace}.{name}"] = reason


# --- Checkpoints ---


def in_checkpoints(how, outer=lambda run, x: run(x)):
    """Gradients of two steps with two forward passes each, whose parts run in checkpoints."""

    def run(t, module):
        part = type(module).part
        drop = torch.nn.Dropout(0.3)
        section = lambda y: part(module, drop(part(module, y)))  # noqa: E731
        module.part = lambda y: how(section, part(module, y))  # calls of the same names are after each other
        found = []
        for step in range(2):
            x = t.x.clone().requires_grad_()
            torch.manual_seed(step)
            outputs = [outer(module, x + k) for k in range(2)]
            module.zero_grad(set_to_none=True)
            torch.manual_seed(7)  # a checkpoint has put back what it drew from
            sum(output.square().sum() for output in outputs).backward()
            found += [one.grad.clone() for one in module.parameters() if one.grad is not None] + [x.grad]
        return found

    return run


def plainly(section, y):
    return section(y)


def check_checkpoint(t, how, outer=lambda run, x: run(x)):
    """To the bit what it is without checkpoints, whatever order PyTorch adds gradients in."""
    wanted = in_checkpoints(plainly)(t, t.made())
    found = t.converts(lambda module: in_checkpoints(how, outer)(t, module), t.made())
    unconverted = [in_checkpoints(*one)(t, copy.deepcopy(t.base)) for one in ((plainly,), (how, outer))]
    for one, right, before, after in zip(found, wanted, *unconverted):
        if torch.equal(before, after):
            t.exact(one, right)
        else:
            t.test.assertLess((one - right).norm(), 1e-5 * right.norm())


REENTRANT = {"use_reentrant": True}
DIRECT = {"use_reentrant": False}


@case("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.CheckpointFunction")
def _checkpoint(t):
    for options in (REENTRANT, DIRECT):
        check_checkpoint(t, lambda section, y: checkpoints.checkpoint(section, y, **options))  # noqa: B023
    outer = lambda run, x: checkpoints.checkpoint(run, x, **DIRECT)  # noqa: E731
    check_checkpoint(t, plainly, outer)
    check_checkpoint(t, lambda section, y: checkpoints.checkpoint(section, y, **DIRECT), outer)


@case("torch.utils.checkpoint.checkpoint")
def _nested_checkpoints(t):
    for options in (REENTRANT, DIRECT):
        again = functools.partial(checkpoints.checkpoint, **options)
        check_checkpoint(t, lambda section, y: again(lambda z: again(section, z), y))  # noqa: B023


@case("torch.utils.checkpoint.checkpoint")
def _checkpoint_without_its_random_state(t):
    """The module draws nothing itself; its rounding draws, and is the same without PyTorch's state."""
    for options in (REENTRANT, DIRECT):
        run = functools.partial(checkpoints.checkpoint, preserve_rng_state=False, **options)
        with mock.patch("torch.nn.Dropout", lambda share: torch.nn.Identity()):
            check_checkpoint(t, run)  # noqa: B023


@case("torch.utils.checkpoint.checkpoint_sequential")
def _checkpoint_sequential(t):
    parts = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(4)))
    options = {} if "use_reentrant" not in inspect.getsource(checkpoints.checkpoint_sequential) else REENTRANT
    x = torch.randn(5, 16)
    in_parts = lambda module: gradients(  # noqa: E731
        module, x, lambda y: checkpoints.checkpoint_sequential(module, 2, y, **options)
    )
    # parts of it are called alone, so each is a step of its own; their draws are those of no other run
    t.close(t.converts(in_parts, t.made(parts)), gradients(parts, x), 3)


@case("torch.utils.checkpoint.create_selective_checkpoint_contexts", "torch.utils.checkpoint.CheckpointPolicy")
def _selective_checkpoint(t):
    policy = checkpoints.CheckpointPolicy.PREFER_RECOMPUTE
    contexts = lambda: checkpoints.create_selective_checkpoint_contexts(lambda *_, **__: policy)  # noqa: E731
    run = functools.partial(checkpoints.checkpoint, context_fn=contexts, **DIRECT)
    check_checkpoint(t, lambda section, y: run(section, y))


@case("torch.utils.checkpoint.set_checkpoint_early_stop")
def _no_early_stop(t):
    with checkpoints.set_checkpoint_early_stop(False):
        check_checkpoint(t, lambda section, y: checkpoints.checkpoint(section, y, **DIRECT))


class Again(torch.autograd.Function):
    """A checkpoint that tandem does not know."""

    @staticmethod
    def forward(ctx, run, x):
        ctx.run = run
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            ctx.run(x).backward(g)
        return None, x.grad


@case("torch.autograd.Function", "torch.autograd.NestedIOFunction")
def _a_checkpoint_of_ones_own(t):
    run = lambda module: gradients(module, t.x, lambda x: Again.apply(module, x))  # noqa: E731
    if t.precision in ("fp32", "bf16"):
        t.same(run)
    else:
        with t.test.assertRaisesRegex(tandem.WrongModelError, "layer .*rounds at random.*torch.utils.checkpoint"):
            run(t.made())


aside(
    "reads or checks what a checkpoint has",
    "torch.utils.checkpoint: check_backward_validity detach_variable get_device_states set_device_states "
    "CheckpointError DefaultDeviceType SAC_IGNORED_OPS SelectiveCheckpointContext noop_context_fn "
    "set_checkpoint_debug_enabled",
)


# --- Autograd ---


@case("torch.autograd.backward", "torch.autograd.grad", "torch.autograd.enable_grad")
def _gradients(t):
    module = t.same(lambda module: gradients(module, t.x), 2)
    wanted = gradients(copy.deepcopy(module), t.x)
    x = t.x.clone().requires_grad_()
    loss = module(x).square().sum()
    found = torch.autograd.grad(loss, [*module.parameters(), x], retain_graph=True, allow_unused=True)
    t.exact(found, wanted)
    module.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)
    loss.backward()  # again, with the same draws
    t.exact([one.grad for one in module.parameters()], [2 * one for one in wanted[:-1]])
    if t.precision != "fp32":
        with t.test.assertRaisesRegex(RuntimeError, "backward through the graph a second time"):
            loss.backward()


def penalised(module, x):
    """Gradients of a loss with a gradient penalty, of one after it, and of the parameters' gradients: second
    and third derivatives."""
    x = x.clone().requires_grad_()
    output = module(x)
    (first,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    penalty = ((first.flatten(1).norm(dim=1) - 1) ** 2).sum()
    (second,) = torch.autograd.grad(penalty, x, create_graph=True)
    parameters = list(module.parameters())
    of_second = torch.autograd.grad(second.square().sum(), parameters, allow_unused=True, retain_graph=True)
    of_penalty = torch.autograd.grad(penalty + output.mean(), parameters, allow_unused=True, retain_graph=True)
    inner = torch.autograd.grad(output.square().sum(), parameters, create_graph=True, allow_unused=True)
    length = sum(one.square().sum() for one in inner if one is not None)
    of_length = torch.autograd.grad(length, [*parameters, x], allow_unused=True)
    whole = lambda some: [  # noqa: E731
        torch.zeros_like(p) if g is None else g for p, g in zip([*parameters, x], some)
    ]
    return [torch.cat([one.flatten() for one in whole(some)]) for some in (of_penalty, of_second, of_length)]


@case("torch.autograd.grad", "torch.autograd.backward")
def _higher_derivatives(t):
    t.same(lambda module: penalised(module, t.x), 4)
    module = t.made()
    wanted = gradients(copy.deepcopy(module), t.x)[:-1]
    found = torch.autograd.grad(module(t.x).square().sum(), list(module.parameters()), create_graph=True)
    t.exact(found, wanted)  # the first derivatives are those without a graph


@case("torch.autograd.grad")
def _an_operand_that_was_changed(t):
    """In place after the call: a second derivative is of the operand as it was."""

    class Changed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.in_place = torch.nn.Linear(16, 16), True

        def forward(self, x):
            y = torch.sin(x)
            z = self.fc(y)
            return z + (y.mul_(2) if self.in_place else y * 2)

    def run(module, in_place):
        module.in_place = in_place
        x = torch.linspace(-1, 1, 64).view(4, 16).requires_grad_()
        (first,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        first.square().sum().backward()
        return [x.grad, module.fc.weight.grad]

    if t.precision != "fp32":
        module = Changed()
        t.exact(run(t.made(module), True), run(t.made(module), False))


@case(*(f"torch.autograd.functional.{name}" for name in ("hessian", "hvp", "vhp", "jacobian", "jvp", "vjp")))
def _functional(t):
    functional, y = torch.autograd.functional, t.y
    scalar = lambda module: lambda y: t.along(module)(y).square().sum()  # noqa: E731
    t.same(lambda module: functional.hessian(scalar(module), y), 4)
    t.same(lambda module: functional.hessian(scalar(module), y, vectorize=True), 4)
    t.same(lambda module: functional.hvp(scalar(module), y, y)[1], 4)
    t.same(lambda module: functional.vhp(scalar(module), y, y)[1], 4)
    t.same(lambda module: functional.jacobian(t.along(module), y), 2)
    t.same(lambda module: functional.jacobian(t.along(module), y, vectorize=True), 2)
    t.same(lambda module: functional.jvp(t.along(module), y, y)[1], 3)
    t.same(lambda module: functional.vjp(t.along(module), y, torch.ones(1, 4))[1], 2)


@case("torch.autograd.functional.jacobian")
def _functional_forward_mode(t):
    run = lambda module: torch.autograd.functional.jacobian(  # noqa: E731
        t.along(module), t.y, vectorize=True, strategy="forward-mode"
    )
    t.same(run)


@case("torch.autograd.forward_ad.dual_level", "torch.autograd.forward_ad.make_dual")
def _forward_mode(t):
    def run(module):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(module(forward_ad.make_dual(t.x, t.x))).tangent

    t.same(run)


@case("torch.autograd.graph.saved_tensors_hooks", "torch.autograd.graph.save_on_cpu")
def _saved_tensors(t):
    for hooks in (
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x.clone()),
        torch.autograd.graph.save_on_cpu,
    ):
        module = t.made()
        wanted = gradients(copy.deepcopy(module), t.x)

        def run(x):
            with hooks():  # noqa: B023
                return module(x)  # noqa: B023

        t.exact(gradients(module, t.x, run), wanted)


@case("torch.autograd.graph.disable_saved_tensors_hooks", "torch.autograd.graph.allow_mutation_on_saved_tensors")
def _saved_tensors_kept(t):
    with getattr(torch.autograd.graph, "allow_mutation_on_saved_tensors", contextlib.nullcontext)():
        t.same(lambda module: gradients(module, t.x), 2)


@case("torch.autograd.detect_anomaly", "torch.autograd.set_detect_anomaly")
def _anomaly(t):
    module = t.made()
    wanted = gradients(copy.deepcopy(module), t.x)
    with torch.autograd.detect_anomaly():
        t.exact(gradients(module, t.x), wanted)


@case("torch.autograd.no_grad", "torch.autograd.inference_mode", "torch.autograd.set_grad_enabled")
def _without_gradients(t):
    for context in (torch.no_grad, torch.inference_mode, lambda: torch.set_grad_enabled(False)):
        with context():
            found = t.same(lambda module: module(t.x))(t.x)
        t.test.assertFalse(found.requires_grad)


@case("torch.autograd.gradcheck", "torch.autograd.gradgradcheck")
def _double(t):
    module = t.made()
    t.named(lambda module: module.double()(t.x.double()), module)


aside(
    "is of graphs, not of modules",
    "torch.autograd: Variable variable set_multithreading_enabled",
    "torch.autograd.forward_ad: UnpackedDualTensor enter_dual_level exit_dual_level unpack_dual",
    "torch.autograd.graph: GradientEdge Node get_gradient_edge increment_version register_multi_grad_hook",
)


# --- Transforms of functions ---


@case("functorch.vmap", "torch.func.vmap")
def _vmap(t):
    t.same(lambda module: func.vmap(lambda x: module(x[None])[0])(t.x))
    t.same(lambda module: func.vmap(lambda one: module(t.x) * one)(torch.ones(2)))  # operands without a batch


@case(*(f"{of}.{name}" for of in ("functorch", "torch.func") for name in
        ("grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian")))  # fmt: skip
def _transforms(t):
    y = t.y
    scalar = lambda module: lambda y: t.along(module)(y).square().sum()  # noqa: E731
    t.same(lambda module: func.grad(scalar(module))(y), 2)
    t.same(lambda module: func.grad_and_value(scalar(module))(y), 2)
    t.same(lambda module: func.vjp(t.along(module), y)[1](torch.ones(1, 4)), 2)
    t.same(lambda module: func.jvp(t.along(module), (y,), (y,)), 2)
    t.same(lambda module: func.jacrev(t.along(module))(y), 2)
    t.same(lambda module: func.jacfwd(t.along(module))(y), 2)
    t.same(lambda module: func.hessian(scalar(module))(y), 3)
    t.same(lambda module: func.vmap(func.grad(lambda y: module(y[None]).sum()))(t.x), 2)


@case("functorch.make_functional", "functorch.make_functional_with_buffers", "functorch.FunctionalModule",
      "functorch.FunctionalModuleWithBuffers", "torch.func.functional_call",
      "torch.nn.utils.stateless.functional_call")  # fmt: skip
def _functional_modules(t):
    from torch.nn.utils import stateless

    call = getattr(func, "functional_call", None) or stateless.functional_call
    given = {name: 2 * one.detach() for name, one in t.base.named_parameters()}
    module = t.same(lambda module: call(module, given, (t.x,)))
    if t.precision != "fp32":
        t.test.assertFalse(torch.equal(call(module, given, (t.x,)), module(t.x)))
    if hasattr(func, "make_functional_with_buffers"):
        run, parameters, buffers = func.make_functional_with_buffers(module)
        t.close(run(parameters, buffers, t.x), t.base(t.x))


@case("functorch.make_fx", "functorch.functionalize", "torch.func.functionalize", "torch.func.linearize")
def _graphs_of_operators(t):
    from torch.fx.experimental.proxy_tensor import make_fx

    t.same(lambda module: make_fx(module)(t.x)(t.x))
    t.same(lambda module: func.functionalize(module)(t.x))


aside(
    "stacks or replaces modules, whose forward it does not run",
    "functorch: combine_state_for_ensemble",
    "torch.func: stack_module_state replace_all_batch_norm_modules_",
)


# --- Tracing, compiling, exporting ---


@case("torch.jit.trace", "torch.jit.trace_module", "torch.jit.freeze", "torch.jit.save", "torch.jit.load",
      "torch.jit.optimize_for_inference", "torch.jit.TracedModule", "torch.jit.TopLevelTracedModule")  # fmt: skip
def _trace(t):
    def run(module):
        traced = torch.jit.trace(module, t.x)
        file = io.BytesIO()
        torch.jit.save(traced, file)
        file.seek(0)
        return traced(t.x[:2]), torch.jit.load(file)(t.x), torch.jit.freeze(traced.eval())(t.x)

    module = t.made()
    found = run(module)
    for one, right in zip(found, run(copy.deepcopy(t.base))):
        t.test.assertLess((one - right).norm() / right.norm(), 1e-5)  # of no precision but fp32
    t.converts(lambda module: t.close(module(t.x), t.base(t.x)), module)


@case("torch.jit.script", "torch.jit.ScriptModule", "torch.jit.RecursiveScriptModule", "torch.jit.script_method")
def _script(t):
    if t.precision != "int8":  # compiling takes longer than all other cases, and is the same for each
        return
    module = t.made()
    with t.test.assertRaisesRegex(tandem.MissingError, f"{NAMED}.*torch.jit.script"):
        torch.jit.script(module)
    for child in [child for child in module.children() if "_tandem" in child.__dict__][:1]:
        with t.test.assertRaisesRegex(tandem.MissingError, f"{NAMED}.*torch.jit.script"):
            torch.jit.script(child)
    t.close(torch.jit.script(tandem.remove(copy.deepcopy(module)))(t.x), t.base(t.x))
    with t.test.assertRaisesRegex(tandem.UsageError, "TorchScript"):
        tandem.apply(torch.jit.script(copy.deepcopy(t.base)), t.precision)


@case("torch.fx.symbolic_trace", "torch.fx.Tracer", "torch.fx.GraphModule", "torch.fx.Interpreter",
      "torch.fx.Transformer", "torch.fx.replace_pattern")  # fmt: skip
def _symbolic_trace(t):
    module = t.made()
    traced = torch.fx.symbolic_trace(module)
    t.close(traced(t.x), t.base(t.x))
    t.close(torch.fx.Interpreter(traced).run(t.x), t.base(t.x))
    t.close(torch.fx.Transformer(traced).transform()(t.x), t.base(t.x))
    t.close(t.converts(lambda one: one(t.x), tandem.apply(torch.fx.symbolic_trace(t.base), t.precision)), t.base(t.x))
    t.close(torch.fx.symbolic_trace(t.made(Around(t.base)))(t.x), t.base(t.x))  # through its forward


@case("torch.onnx.export")
def _onnx(t):
    if int(torch.__version__.split(".")[0]) > 1 and not importlib.util.find_spec("onnx"):
        return
    files = []
    for module in (t.made(), copy.deepcopy(t.base)):
        files.append(io.BytesIO())
        torch.onnx.export(module, t.x, files[-1])
    t.test.assertEqual(files[0].getvalue(), files[1].getvalue())


@case("torch.compiler.compile")
def _compile(t):
    t.close(t.converts(lambda module: torch.compile(module, backend="eager")(t.x), t.made()), t.base(t.x))


@case("torch.export.export", "torch.export.export_for_inference", "torch.export.export_for_training")
def _export(t):
    t.same(lambda module: torch.export.export(module, (t.x,), strict=False).module()(t.x))


aside(
    "is a type, a constant, a setting, or takes what the functions above made",
    "torch.jit: Attribute CompilationUnit Error Future ONNXTracedModule RecursiveScriptClass ScriptFunction "
    "ScriptWarning TracerWarning TracingCheckError annotate enable_onednn_fusion export export_opnames fork fuser "
    "ignore interface is_scripting is_tracing isinstance jit_module_from_flatbuffer last_executed_optimized_graph "
    "onednn_fusion_enabled optimized_execution run_frozen_optimizations save_jit_module_to_flatbuffer "
    "script_if_tracing set_fusion_strategy set_module strict_fusion unused wait",
    "torch.fx: CodeGen Graph Node PH Proxy ProxyableClassMeta map_arg wrap has_side_effect",
    "torch.onnx: CheckerError ExportTypes JitScalarType OperatorExportTypes TensorProtoDataType TrainingMode "
    "disable_log enable_log export_to_pretty_string is_in_onnx_export register_custom_op_symbolic "
    "select_model_mode_for_export unregister_custom_op_symbolic DiagnosticOptions ExportOptions ONNXProgram "
    "ONNXRuntimeOptions OnnxExporterError OnnxRegistry dynamo_export enable_fake_mode is_onnxrt_backend_supported",
    "torch.export: Constraint CustomDecompTable Dim ExportBackwardSignature ExportGraphSignature ExportedProgram "
    "FlatArgsAdapter ModuleCallEntry ModuleCallSignature UnflattenedModule default_decompositions dims load "
    "register_dataclass save unflatten",
    "torch.compiler: allow_in_graph assume_constant_result cudagraph_mark_step_begin disable is_compiling "
    "is_dynamo_compiling list_backends reset set_stance substitute_in_graph wrap_numpy",
)


# --- Weights ---


def first_layer(module):
    """A submodule with a matrix as its weight, or none."""
    return next((one for one in module.modules() if type(one) in (torch.nn.Linear, torch.nn.Conv2d)), None)


def on_first_layer(t, change, times=2.0):
    """Before apply and after it, `change` of a layer gives what it gives unconverted."""
    if first_layer(t.base) is None:
        return

    def before(module):
        torch.manual_seed(1)
        change(first_layer(module))
        return module

    wanted = gradients(before(copy.deepcopy(t.base)), t.x)
    torch.manual_seed(2)
    t.close(gradients(tandem.apply(before(copy.deepcopy(t.base)), t.precision), t.x), wanted, times)
    t.close(gradients(before(t.made()), t.x), wanted, times)


@case("torch.nn.utils.weight_norm", "torch.nn.utils.remove_weight_norm",
      "torch.nn.utils.parametrizations.weight_norm")  # fmt: skip
def _weight_norm(t):
    on_first_layer(t, torch.nn.utils.weight_norm)
    on_first_layer(t, lambda layer: torch.nn.utils.remove_weight_norm(torch.nn.utils.weight_norm(layer)))
    if hasattr(parametrizations, "weight_norm"):
        on_first_layer(t, parametrizations.weight_norm)


@case("torch.nn.utils.spectral_norm", "torch.nn.utils.remove_spectral_norm",
      "torch.nn.utils.parametrizations.spectral_norm")  # fmt: skip
def _spectral_norm(t):
    on_first_layer(t, torch.nn.utils.spectral_norm, 4)
    on_first_layer(t, parametrizations.spectral_norm, 4)


class Doubled(torch.nn.Module):
    def forward(self, x):
        return 2 * x


@case("torch.nn.utils.parametrizations.orthogonal")
def _orthogonal(t):
    if isinstance(first_layer(t.base), torch.nn.Linear):
        on_first_layer(t, lambda layer: parametrizations.orthogonal(layer, orthogonal_map="cayley"), 6)


@case(*(f"torch.nn.utils.parametrize.{name}" for name in ("register_parametrization", "remove_parametrizations",
                                                         "cached", "ParametrizationList")))  # fmt: skip
def _parametrize(t):
    on_first_layer(t, lambda layer: parametrize.register_parametrization(layer, "weight", Doubled()))

    def there_and_back(layer):
        parametrize.register_parametrization(layer, "weight", Doubled())
        parametrize.remove_parametrizations(layer, "weight")

    on_first_layer(t, there_and_back)


@case(*(f"torch.nn.utils.prune.{name}" for name in
        ("l1_unstructured", "ln_structured", "random_unstructured", "random_structured", "identity", "remove",
         "custom_from_mask", "global_unstructured", "BasePruningMethod", "CustomFromMask", "Identity",
         "L1Unstructured", "LnStructured", "PruningContainer", "RandomStructured",
         "RandomUnstructured")))  # fmt: skip
def _prune(t):
    on_first_layer(t, lambda layer: prune.ln_structured(layer, "weight", 0.5, n=2, dim=0))
    on_first_layer(t, lambda layer: prune.random_structured(layer, "weight", 0.5, dim=0))
    on_first_layer(t, lambda layer: prune.identity(layer, "weight"))
    on_first_layer(t, lambda layer: prune.custom_from_mask(layer, "weight", torch.ones(layer.weight.shape)))
    if isinstance(first_layer(t.base), torch.nn.Linear):  # others lie in channels_last, which PyTorch refuses
        on_first_layer(t, lambda layer: prune.l1_unstructured(layer, "weight", 0.5))
        on_first_layer(t, lambda layer: prune.remove(prune.l1_unstructured(layer, "weight", 0.5), "weight"))


@case("torch.nn.utils.fuse_conv_bn_eval", "torch.nn.utils.fuse_conv_bn_weights",
      "torch.nn.utils.fuse_linear_bn_eval", "torch.nn.utils.fuse_linear_bn_weights")  # fmt: skip
def _fuse(t):
    layer = first_layer(t.base)
    if isinstance(layer, torch.nn.Conv2d):
        norm = torch.nn.BatchNorm2d(layer.out_channels).eval()
        run = lambda module: torch.nn.utils.fuse_conv_bn_eval(first_layer(module.eval()), norm)(t.x)  # noqa: E731
        t.same(run)


@case(*(f"torch.nn.utils.{name}" for name in ("clip_grad_norm", "clip_grad_norm_", "clip_grad_value_",
        "clip_grads_with_norm_", "get_total_norm", "vector_to_parameters", "parameters_to_vector", "skip_init",
        "convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format")))  # fmt: skip
def _of_parameters(t):
    def run(module):
        given = torch.cat([one.detach().reshape(-1) for one in module.parameters()])
        torch.nn.utils.vector_to_parameters(given + 0.1, module.parameters())
        found = gradients(module, t.x)
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        torch.nn.utils.convert_conv2d_weight_memory_format(module, torch.channels_last)
        return found, norm, module(t.x)

    t.same(run, 2)


aside(
    "asks about a module, or computes on tensors",
    "torch.nn.utils.parametrize: is_parametrized type_before_parametrizations "
    "transfer_parametrizations_and_params",
    "torch.nn.utils.prune: is_pruned",
)


# --- Copies ---


@case("copy.copy", "torch.nn.parallel.replicate", "torch.nn.parallel.parallel_apply")
def _shallow_copies(t):
    module = t.made()
    for copied in (copy.copy(module), module._replicate_for_data_parallel()):
        copied._parameters = {name: 3 * one.detach() for name, one in module._parameters.items()}
        wanted = copy.copy(t.base)
        wanted._parameters = {name: 3 * one.detach() for name, one in t.base._parameters.items()}
        t.close(copied(t.x), wanted(t.x))


@case("copy.deepcopy", "pickle.dump", "pickle.dumps", "pickle.load", "pickle.loads", "pickle.Pickler", "pickle.Unpickler")
def _deep_copies(t):
    module = t.made()
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    options = {} if torch.__version__.startswith("1.") else {"weights_only": False}
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, **options)]
    wanted = module(t.x)
    for copied in copies:
        t.exact(copied(t.x), wanted)
        with torch.no_grad():
            for one in copied.parameters():
                one.zero_()
    t.close(module(t.x), t.base(t.x))
    for name, child in module.named_children():
        if "_tandem" in child.__dict__:  # a part does not bring its module along
            size, whole = len(pickle.dumps(child)), len(pickle.dumps(dict(module.named_parameters())))
            part = len(pickle.dumps(tandem.remove(copy.deepcopy(child))))
            t.test.assertLess(size, part + whole, name)


@case("torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel")
def _data_parallel(t):
    t.same(lambda module: gradients(torch.nn.DataParallel(module), t.x)[-1:], 2)


@case("torch.nn.parallel.DistributedDataParallel")
def _distributed(t):
    import torch.distributed as distributed

    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    of = torch.nn.parallel.DistributedDataParallel
    t.same(lambda module: gradients(of(module, find_unused_parameters=True), t.x)[-1:], 2)
    module = t.made()
    wanted = gradients(copy.deepcopy(module), t.x)
    t.exact(gradients(of(module, find_unused_parameters=True), t.x), wanted)


aside(
    "moves tensors between devices",
    "torch.nn.parallel: gather scatter",
)
aside("is an error", "copy: Error", "pickle: PickleError PicklingError UnpicklingError")
aside("copies other objects", "copy: replace", "pickle: PickleBuffer")


# --- Quantization of PyTorch's own ---


@case("torch.quantization.quantize_dynamic", "torch.quantization.convert", "torch.quantization.swap_module")
def _quantize_dynamic(t):
    run = lambda module: torch.quantization.quantize_dynamic(module, {torch.nn.Linear})(t.x)  # noqa: E731
    found = run(t.made().eval())
    right = run(copy.deepcopy(t.base).eval())
    t.test.assertLess((found - right).norm() / right.norm(), 0.15 + t.tolerance)


@case("torch.quantization.prepare", "torch.quantization.prepare_qat", "torch.quantization.quantize_qat",
      "torch.quantization.quantize")  # fmt: skip
def _prepare(t):
    def run(module):
        module.qconfig = torch.quantization.get_default_qconfig("fbgemm")
        return torch.quantization.prepare(module.eval())(t.x)

    if not isinstance(t.base, Attends):  # which PyTorch replaces as a whole
        t.same(run)


# --- Modules' own methods ---


@case("torch.nn.Module.forward", "torch.nn.Module.apply")
def _own_forward(t):
    """One that was set on the instance is called, kept, and put back, of a part as well."""
    module = copy.deepcopy(t.base)
    inside, inner = next(iter(module.children()), None), module.forward
    module.forward = lambda x: 2 * inner(x)
    if inside is not None:
        inside.forward = functools.partial(type(inside).forward, inside)
    before, wanted = [one.forward for one in (module, inside) if one is not None], module(t.x)
    tandem.apply(module, t.precision)
    t.close(t.converts(lambda one: one(t.x), module), wanted)
    t.close(module.forward(t.x), wanted)
    held = module.forward
    module.forward = lambda x: held(x) + 1  # a library wraps it again
    t.close(t.converts(lambda one: one(t.x), module), wanted + 1)
    module.forward = held
    tandem.remove(module)
    t.test.assertEqual([one.forward for one in (module, inside) if one is not None], before)
    t.exact(module(t.x), wanted)
    t.exact(held(t.x), wanted)


@case("torch.nn.Module.children", "torch.nn.Module.modules", "torch.nn.Module.named_children",
      "torch.nn.Module.named_modules", "torch.nn.Module.get_submodule")  # fmt: skip
def _parts_alone(t):
    given = {torch.nn.Conv2d: torch.randn(2, 3, 4, 4), torch.nn.Linear: torch.randn(2, 16)}
    layer = first_layer(t.base)
    if layer is not None:
        x = given[type(layer)]
        module = t.made()
        t.close(t.converts(lambda one: first_layer(one)(x), module), layer(x))
        if t.precision != "fp32":
            t.test.assertFalse(torch.equal(first_layer(module)(x), layer(x)))
        found = first_layer(module)(x)
        t.test.assertEqual(found.view(-1).shape, (found.numel(),))  # as the unconverted one's


@case("torch.nn.Module.register_forward_hook", "torch.nn.Module.register_forward_pre_hook",
      "torch.nn.Module.register_full_backward_hook", "torch.nn.Module.register_full_backward_pre_hook")  # fmt: skip
def _hooks(t):
    def hooked(module):
        for one in [module, *(one for one in module.children() if not isinstance(one, torch.nn.Embedding))]:
            one.register_forward_pre_hook(lambda module, inputs: tuple(2 * x for x in inputs))
            one.register_forward_hook(
                lambda module, inputs, output: output * 0.5 if isinstance(output, torch.Tensor) else None
            )
            if isinstance(one, (torch.nn.Linear, torch.nn.Conv2d)):
                one.register_full_backward_hook(lambda module, back, forth: (back[0] * 3,))
        return module

    wanted = gradients(hooked(copy.deepcopy(t.base)), t.x)
    t.close(gradients(tandem.apply(hooked(copy.deepcopy(t.base)), t.precision), t.x), wanted, 3)
    t.close(gradients(hooked(t.made()), t.x), wanted, 3)


@case("torch.nn.Module.half", "torch.nn.Module.double", "torch.nn.Module.bfloat16", "torch.nn.Module.type")
def _other_types(t):
    for name, kind in (("double", torch.float64), ("bfloat16", torch.bfloat16)):
        t.named(lambda module: getattr(module, name)()(t.x.to(kind)))  # noqa: B023


@case("torch.nn.Module.to", "torch.nn.Module.to_empty", "torch.nn.Module.float", "torch.nn.Module.cpu")
def _moved(t):
    t.same(lambda module: module.to(memory_format=torch.channels_last).float().cpu()(t.x))
    t.named(lambda module: copy.deepcopy(module).to("meta")(t.x.to("meta")))


@case("torch.nn.Module.train", "torch.nn.Module.eval")
def _modes(t):
    t.same(lambda module: (module.eval()(t.x), module.train()(t.x)))


@case("torch.nn.Module.state_dict", "torch.nn.Module.load_state_dict", "torch.nn.Module.parameters",
      "torch.nn.Module.named_parameters", "torch.nn.Module.buffers", "torch.nn.Module.named_buffers",
      "torch.nn.Module.get_parameter", "torch.nn.Module.get_buffer")  # fmt: skip
def _state(t):
    module = t.made()
    t.test.assertEqual(list(module.state_dict()), list(t.base.state_dict()))
    t.exact(list(module.state_dict().values()), list(t.base.state_dict().values()))
    other = KINDS[next(name for name, kind in KINDS.items() if isinstance(t.base, kind))]()
    module.load_state_dict(other.state_dict())
    t.close(module(t.x), other(t.x))
    with torch.no_grad():
        for one in module.parameters():
            one.mul_(2)
        for one in other.parameters():
            one.mul_(2)
    t.close(module(t.x), other(t.x))


@case("torch.nn.Module.requires_grad_", "torch.nn.Module.zero_grad")
def _frozen(t):
    def run(module):
        for index, one in enumerate(module.parameters()):
            one.requires_grad_(index % 2 == 1)
        found = gradients(module, t.x)
        module.requires_grad_(False)
        return found + gradients(module, t.x)

    t.same(run, 2)


@case("torch.nn.Module.share_memory")
def _shared_memory(t):
    module = copy.deepcopy(t.base).share_memory()
    tandem.apply(module, t.precision)
    t.test.assertTrue(all(one.is_shared() for one in module.parameters()))
    t.close(module(t.x), t.base(t.x))
    t.same(lambda module: module.share_memory()(t.x))


@case("torch.nn.Module.register_buffer", "torch.nn.Module.register_parameter", "torch.nn.Module.add_module",
      "torch.nn.Module.register_module", "torch.nn.Module.set_submodule")  # fmt: skip
def _changed_modules(t):
    def run(module):
        layer = first_layer(module)
        if layer is not None:
            layer.weight = torch.nn.Parameter(layer.weight.detach() * 2)
            layer.register_buffer("more", torch.ones(2))
        return module(t.x)

    t.same(run)


@case("torch.nn.Module.compile")
def _compiled_in_place(t):
    module = t.made()
    module.compile(backend="eager")
    t.close(t.converts(lambda one: one(t.x), module), t.base(t.x))


aside(
    "reads or writes what the module holds, and runs nothing",
    "torch.nn.Module: T_destination dump_patches call_super_init extra_repr get_extra_state set_extra_state "
    "register_load_state_dict_post_hook register_load_state_dict_pre_hook register_state_dict_post_hook "
    "register_state_dict_pre_hook",
)
aside("is deprecated for the full hook", "torch.nn.Module: register_backward_hook")
aside("needs another device; tests/python/cuda.py", "torch.nn.Module: cuda ipu xpu mtia")


# --- Autocast ---


@case("torch.amp.autocast", "torch.amp.autocast_mode")
def _autocast(t):
    def run(module):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(t.x)

    t.named(run)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            t.same(lambda module: module(t.x))


aside(
    "is of losses and functions, or asks",
    "torch.amp: GradScaler custom_bwd custom_fwd is_autocast_available",
)


# --- Names that are no public ones of a namespace above ---


@case("threads")
def _threads(t):
    module = t.made()
    found, errors, begin = [], [], threading.Barrier(4)

    def work():
        begin.wait()
        try:
            for _ in range(20):
                found.append(gradients_alone(module, t.x))
        except Exception as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    t.test.addCleanup(sys.setswitchinterval, before)
    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    t.test.assertEqual(errors, [])
    wanted = gradients_alone(t.base, t.x)
    for one in found:
        t.close(one, wanted, 3)


def gradients_alone(module, x):
    """In no .grad."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(module(x).square().sum(), [*module.parameters(), x], allow_unused=True)


@case("empty batches")
def _empty(t):
    def run(module):
        x = t.x[:0].clone().requires_grad_()
        output = module(x)
        output.sum().backward()
        return output.view(0, 4), x.grad

    module = t.made()
    for one, right in zip(run(module), run(copy.deepcopy(t.base))):
        t.test.assertEqual(one.shape, right.shape)


@case("layouts of inputs")
def _layouts(t):
    wide = torch.randn(3, 4, 4, 6)
    wide[..., ::2].copy_(t.x.permute(0, 2, 3, 1))
    strided = wide[..., ::2].permute(0, 3, 1, 2)
    for x in (strided, t.x.to(memory_format=torch.channels_last), t.x.flip(0).flip(0), torch._neg_view(-t.x)):
        t.close(t.made()(x), t.base(t.x))
    t.close(t.made()(t.x[:1].expand(3, 3, 4, 4)), t.base(t.x[:1].expand(3, 3, 4, 4)))


class Tagged(torch.Tensor):
    pass


@case("subclasses of tensors")
def _subclasses(t):
    found = t.made()(t.x.as_subclass(Tagged))
    t.test.assertIsInstance(found, Tagged)
    t.close(found.as_subclass(torch.Tensor), t.base(t.x))


@case("operands that do not fit")
def _wrong_operands(t):
    def message(module):
        try:
            module(torch.randn(4, 5, 2, 4))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    if isinstance(t.base, (Rows, Images, Products)):  # attention checks sizes by assert
        t.test.assertEqual(message(t.made()), message(copy.deepcopy(t.base)))
    layer = first_layer(t.base)
    if layer is not None and t.precision != "fp32":
        module = t.made()
        first_layer(module).bias.data = first_layer(module).bias.data.double()
        with t.test.assertRaises(RuntimeError):
            module(t.x)


@case("other ways to call")
def _ways_to_call(t):
    class Louder(type(t.base)):
        def __call__(self, x):
            return 2 * super().__call__(x)

    louder = copy.deepcopy(t.base)
    louder.__class__ = Louder
    wanted = louder(t.x)
    tandem.apply(louder, t.precision)
    t.close(t.converts(lambda module: module(t.x), louder), wanted)
    module = t.made()
    t.test.assertEqual(inspect.signature(module.forward), inspect.signature(t.base.forward))
    twice = torch.nn.ModuleList([module, module])
    t.close(twice[0](t.x) + twice[1](t.x), 2 * t.base(t.x))


@case("parts converted on their own")
def _parts(t):
    module = t.made()
    part = next((one for one in module.children() if "_tandem" in one.__dict__), None)
    if part is not None:
        tandem.apply(part, "bf16")
        with t.test.assertRaisesRegex(tandem.WrongModelError, f"{NAMED} was converted or removed on its own"):
            module(t.x)
        tandem.apply(module, t.precision)
        t.close(module(t.x), t.base(t.x))


@case("what remove leaves")
def _removed(t):
    for memory_format in (torch.contiguous_format, torch.channels_last):
        module = copy.deepcopy(t.base).to(memory_format=memory_format)
        before = [(dict(one.__dict__), len(one._forward_hooks)) for one in module.modules()]
        strides = [one.stride() for one in module.parameters()]
        places = [one.data_ptr() for one in module.buffers()]
        tandem.apply(module, t.precision)
        module(t.x).sum().backward()
        module.zero_grad(set_to_none=True)
        tandem.remove(module)
        for child, (attributes, n_hooks) in zip(module.modules(), before):
            t.test.assertEqual(set(child.__dict__), set(attributes))
            t.test.assertEqual(len(child._forward_hooks), n_hooks)
        t.test.assertEqual([one.stride() for one in module.parameters()], strides)
        t.test.assertEqual([one.data_ptr() for one in module.buffers()], places)


@case("a backward pass after remove")
def _removed_between(t):
    module = t.made()
    if first_layer(module) is None:
        return
    layer = first_layer(module)
    x = torch.randn(2, 3, 4, 4) if isinstance(layer, torch.nn.Conv2d) else torch.randn(2, 16)
    output = checkpoints.checkpoint(layer, x.requires_grad_(), **REENTRANT)
    tandem.remove(module)
    tandem.apply(module, t.precision)
    with t.test.assertRaisesRegex(tandem.WrongModelError, f"{NAMED}: a checkpointed function"):
        output.sum().backward()


EVERYWHERE = ("threads", "empty batches", "layouts of inputs", "subclasses of tensors", "operands that do not fit",
              "other ways to call", "parts converted on their own", "what remove leaves",
              "a backward pass after remove")  # fmt: skip


def open_namespace(name):
    """A module or class of this name; None where this PyTorch has none."""
    if name == "torch.nn.Module":
        return torch.nn.Module
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def public_names(name, of):
    """What a namespace offers: what it lists, or what it defines."""
    listed = getattr(of, "__all__", None)
    for one in listed or dir(of):
        value = getattr(of, one, None)
        if one.startswith("_") or isinstance(value, types.ModuleType):
            continue
        home = getattr(value, "__module__", "") or ""
        if name == "pickle" and isinstance(value, (bytes, int)):
            continue  # the codes of its format
        if listed or isinstance(of, type) or home.startswith(("torch", "functorch")):
            yield one


class Transformations(Case):
    def setUp(self):
        super().setUp()
        self.enterContext(warnings.catch_warnings()) if hasattr(self, "enterContext") else None
        warnings.simplefilter("ignore")
        before = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, before)

    def test_every_public_name_was_considered(self):
        left = []
        for namespace in NAMESPACES:
            of = open_namespace(namespace)
            for name in public_names(namespace, of) if of else ():
                key = f"{namespace}.{name}"
                if namespace == "torch.quantization":
                    continue  # hundreds of observers and settings; what runs a module is in CASES
                if key not in CASES and key not in ASIDE:
                    left.append(key)
        self.assertEqual(left, [], "not considered: give each a case, or a reason to set it aside")

    def run_cases(self, kind):
        is_here = {name: open_namespace(name) for name in NAMESPACES}
        done = set()
        for key, functions in CASES.items():
            namespace, _, name = key.rpartition(".")
            if key not in EVERYWHERE and not hasattr(is_here.get(namespace), name):
                continue
            for function in functions:
                if function in done:
                    continue
                done.add(function)
                for precision in PRECISIONS:
                    with self.subTest(case=function.__name__, of=key, kind=kind, precision=precision):
                        function(Setting(self, kind, precision))

    def test_linear(self):
        self.run_cases("linear")

    def test_conv2d(self):
        self.run_cases("conv2d")

    def test_matmul(self):
        self.run_cases("matmul")

    def test_attention(self):
        self.run_cases("attention")

    def test_what_cannot_be_followed_is_said_once(self):
        module = tandem.apply(Rows(), "bf16")
        x = torch.randn(3, 3, 4, 4)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                func.vmap(lambda one: module(one[None])[0])(x)
        said = [str(one.message) for one in caught if "tandem" in str(one.message)]
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], f"{NAMED} runs unconverted, in fp32, inside torch.func's transforms")


if __name__ == "__main__":
    unittest.main()
