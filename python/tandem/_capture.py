"""capture: records what a module calls."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch

from tandem import _library
from tandem._graph import Call, Graph, rows_of, short_name
from tandem._trace import Follower, Names, Product, follow_modules

# What asks about a tensor, or gives it back as it is, and takes too little time for a row.
_SILENT = {
    "__get__",
    "__set__",
    "detach",
    "requires_grad_",
    "size",
    "dim",
    "stride",
    "storage_offset",
    "data_ptr",
    "is_contiguous",
    "numel",
    "nelement",
    "type",
    "retain_grad",
    "register_hook",
    "backward",
}


def tensors_in(value: Any) -> List[torch.Tensor]:
    """All tensors in nested tuples, lists, dicts and dataclasses."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for one in value for tensor in tensors_in(one)]
    if isinstance(value, dict):
        return [tensor for one in value.values() for tensor in tensors_in(one)]
    if hasattr(value, "__dataclass_fields__"):
        return [tensor for one in vars(value).values() for tensor in tensors_in(one)]
    return []


def as_inputs(inputs: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Positional and keyword arguments: a tensor, a tuple or list of arguments, or a dict."""
    if isinstance(inputs, dict):
        return (), inputs
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def split_batch(given: Any, loss: Any) -> Tuple[Any, Any]:
    """(inputs, target) where a loss wants a target: two things, of which the second is one."""
    if loss is not None and isinstance(given, (tuple, list)) and len(given) == 2:
        return given[0], given[1]
    return given, None


def unwrap(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside DistributedDataParallel or DataParallel."""
    wrappers = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    inner = module.module if isinstance(module, wrappers) else module
    if not isinstance(inner, torch.nn.Module):
        raise _library.error("USAGE", f"a module is a torch.nn.Module; got {inner!r}, a {type(inner).__name__}")
    return inner


class Recorder(Follower):
    """Writes down every call. `mark`, where given, is called before each with its index, for times."""

    def __init__(self, module: torch.nn.Module, names: Names, batch: int) -> None:
        super().__init__(module, names)
        self.batch = batch
        self.calls: List[Call] = []
        self.name_of = {id(parameter): name for name, parameter in module.named_parameters()}
        self.seen: Set[int] = set()

    def _own(self, values: Any) -> Tuple[Tuple[str, ...], int]:
        """The parameters among `values` that no earlier call has, and their elements."""
        names, elements = [], 0
        for tensor in tensors_in(values):
            if id(tensor) in self.name_of and id(tensor) not in self.seen:
                self.seen.add(id(tensor))
                names.append(self.name_of[id(tensor)])
                elements += tensor.numel()
        return tuple(names), elements

    def _add(self, call: Call) -> None:
        call.operator = short_name(call.name)
        self.calls.append(call)

    def flat(self, tensor: torch.Tensor) -> Tuple[int, ...]:
        return rows_of(max(1, tensor.numel()), self.batch)

    def product(self, name: str, product: Product, func: Any, args: Any, kwargs: Any) -> Any:
        begin = len(self.calls)
        result = func(*args, **kwargs)
        call = self._product_call(name, product, result)
        if call is None:
            self._other_call(name, func, args, kwargs, result)
        else:
            self._add(call)
            self._after(name, product)
        self.done(begin, result)
        return result

    def _after(self, name: str, product: Product) -> None:
        """The bias is added in the same call: it has a row of its own for its gradient, and no time."""
        parameters, elements = self._own(product.bias)
        if parameters:
            shape = self.calls[-1].shape
            self._add(
                Call(
                    self.names.give_next(name, "bias"),
                    "call",
                    "bias",
                    shape=shape,
                    parameters=parameters,
                    elements=elements,
                )
            )

    def _product_call(self, name: str, product: Product, result: torch.Tensor) -> Optional[Call]:
        is_own = id(product.w) in self.name_of and id(product.w) not in self.seen
        if product.kind == "conv2d":
            if not is_own:
                return None
            shapes = [(t.shape[0], t.shape[2], t.shape[3], t.shape[1]) for t in (product.x, result)]
            parameters, elements = self._own(product.w)
            return Call(
                name,
                "conv2d",
                "",
                shapes[0],
                (),
                shapes[1],
                product.kernel,
                product.stride,
                product.pad,
                weight=parameters[0],
                parameters=parameters,
                elements=elements,
            )
        if product.kind == "linear" and is_own:
            k, n = product.x.shape[-1], result.shape[-1]
            lead = (product.x.numel() // k,)
            parameters, elements = self._own(product.w)
            return Call(
                name,
                "linear",
                "",
                (*lead, k),
                (),
                (*lead, n),
                weight=parameters[0],
                parameters=parameters,
                elements=elements,
            )
        x, w = product.x, product.w
        if product.kind == "linear":  # of a weight that another call owns, or that is computed
            k, n = x.shape[-1], result.shape[-1]
            m = x.numel() // k
            second = (1, k, n) if product.turned else (1, n, k)
            return Call(name, "matmul", "", (1, m, k), second, (1, m, n), transpose_b=int(not product.turned))
        m, k, n = x.shape[-2], x.shape[-1], result.shape[-1]
        count = x.numel() // (m * k)
        return Call(name, "matmul", "", (count, m, k), (count, k, n), (count, m, n))

    def _other_call(self, name: str, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        inputs = tensors_in((args, kwargs))
        what = getattr(func, "__name__", "call").strip("_") or "call"
        shapes = ",".join("x".join(map(str, tensor.shape)) or "1" for tensor in inputs[:3])
        parameters, elements = self._own((args, kwargs))
        output = max(tensors_in(result), key=torch.Tensor.numel)
        self._add(
            Call(
                name,
                "call",
                f"{what}({shapes})"[:120],
                shape=self.flat(output),
                parameters=parameters,
                elements=elements,
            )
        )

    def other(self, func: Any, args: Any, kwargs: Any) -> Any:
        if getattr(func, "__name__", "") in _SILENT:
            return func(*args, **kwargs)
        begin = len(self.calls)
        result = func(*args, **kwargs)
        if any(tensor.is_floating_point() for tensor in tensors_in(result)):
            name = self.names.give(getattr(func, "__name__", "call").strip("_") or "call", False)
            self._other_call(name, func, args, kwargs, result)
            self.done(begin, result)
        return result

    def done(self, begin: int, result: Any) -> None:
        """Called after the calls from `begin` on were written down."""


def optimizer_options(optimizer: Optional[torch.optim.Optimizer]) -> Dict[str, Any]:
    """The optimizer in the C library's terms: SGD, or AdamW for all of Adam's kind."""
    if optimizer is None:
        return {"kind": "sgd", "rate": 0.01, "momentum": 0.9}
    options = optimizer.param_groups[0]
    if "betas" in options:
        return {
            "kind": "adamw",
            "rate": options["lr"],
            "beta1": options["betas"][0],
            "beta2": options["betas"][1],
            "epsilon": options.get("eps", 1e-8),
            "decay": options.get("weight_decay", 0),
        }
    return {
        "kind": "sgd",
        "rate": options["lr"],
        "momentum": options.get("momentum", 0),
        "decay": options.get("weight_decay", 0),
    }


def batch_of(inputs: Any, batch: Optional[int]) -> int:
    """The local batch: as given, or the first dimension of the first tensor."""
    if batch is not None:
        return batch
    first = next((tensor for tensor in tensors_in(inputs) if tensor.dim() > 0), None)
    if first is None:
        raise _library.error("USAGE", "the inputs hold no tensor with dimensions; give batch=N")
    return first.shape[0]


def make_graph(
    module: torch.nn.Module,
    recorder: Recorder,
    output: Any,
    optimizer: Optional[torch.optim.Optimizer],
    name: Optional[str],
) -> Graph:
    """The graph of what a recorder wrote down."""
    if not any(call.adjustable for call in recorder.calls):
        raise _library.error(
            "WRONG_GRAPH",
            f"{type(module).__name__} called no linear layer, convolution or matrix product "
            "with CPU tensors; there is nothing to give a precision to",
        )
    outputs = [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]
    logits = outputs[0] if outputs else None
    n_class = logits.shape[-1] if logits is not None and logits.dim() > 1 else 1
    rows = logits.numel() // max(1, n_class) if logits is not None else recorder.batch
    parameters = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    return Graph(
        (name or type(module).__name__)[:127],
        recorder.batch,
        recorder.calls,
        parameters,
        max(1, rows // recorder.batch),
        max(1, n_class),
        optimizer_options(optimizer),
        torch.__version__,
    )


def measure_memory(
    graph: Graph, module: torch.nn.Module, inputs: Any, target: Any, loss: Optional[Callable[..., Any]]
) -> None:
    """Adds what a step allocates to a graph, or why that is not known."""
    from tandem._step_memory import record_step_memory  # which imports this file

    on_cpu = all(one.device.type == "cpu" for one in [*module.parameters(), *tensors_in((inputs, target))])
    if not on_cpu:
        graph.memory_unknown = "the module is not on a CPU, where its step is recorded"
        return
    try:
        memory, calls, others, why = record_step_memory(module, inputs, target, loss or mean_square, graph.batch)
    except Exception as failed:  # whatever the module and the loss raise: the graph is good without
        graph.memory_unknown = f"its step failed: {type(failed).__name__}: {failed}"[:400]
        return
    names = [call.operator for call in graph.calls]
    if [call.operator for call in calls] != names:
        graph.memory_unknown = "two runs of the module called other things"
        return
    more = memory.batch - memory.other_batch
    is_alike = [call.operator for call in others] == names
    if not (is_alike and all(call.note_growth(other, more) for call, other in zip(graph.calls, others))):
        memory.other_batch = 0
    graph.memory, graph.memory_unknown = memory, why


def mean_square(output: Any) -> torch.Tensor:
    """A loss for those who give none."""
    return sum(one.float().pow(2).mean() for one in tensors_in(output) if one.is_floating_point())


def capture(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    batch: Optional[int] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
    name: Optional[str] = None,
    loss: Optional[Callable[..., torch.Tensor]] = None,
    target: Any = None,
    memory: bool = True,
) -> Graph:
    """Records what a module calls in one forward pass: a graph whose names are the module's.

    The module runs as it is (a branch is the one that these inputs take); its buffers are put back. Every
    call of PyTorch is followed, so any module that runs can be captured; no tracing or export is needed.

    With `memory`, two training steps are run on the CPU, of this batch and of half of it, to see what they
    allocate. Then `replay` and `allocate` know the peak of every plan, optimizer and batch. Inside
    `torch.autocast`, they are steps in its types.

        module          any torch.nn.Module, also inside DistributedDataParallel
        example_inputs  a tensor, a tuple of arguments, or a dict of keyword arguments
        batch           the local batch, where it is not the first dimension of the first tensor
        optimizer       which SGD or AdamW will train it; sensitivities depend on its rate
        loss            of the output, or of the output and the target [mean square of the outputs]
        target          what the loss compares the output with
        memory          whether to run the steps

    >>> graph = tandem.capture(torchvision.models.resnet18(), torch.randn(8, 3, 224, 224))
    >>> graph.n_weight
    11689512
    """
    inner = unwrap(module)
    args, kwargs = as_inputs(example_inputs)
    names = Names()
    names.begin()
    recorder = Recorder(inner, names, batch_of(example_inputs, batch))
    from tandem._apply import unconverted  # which imports this file
    from tandem._held import Held, set_random_state

    held = Held(inner)
    handles = follow_modules(inner, names)

    try:
        with torch.enable_grad(), unconverted(inner), recorder:
            output = inner(*args, **kwargs)
        graph = make_graph(inner, recorder, output, optimizer, name)
        del output
    finally:
        for handle in handles:
            handle.remove()
        set_random_state(held.random)
        held.put_buffers()
    if memory:
        with unconverted(inner):
            measure_memory(graph, inner, example_inputs, target, loss)
    return graph
