"""What PyTorch allocates in a training step of a module, from its profiler, so that a plan's peak is known.

A step is run at two batches, and a forward pass without what autograd saves. Every block of memory is a number
of bytes, and of bytes a sample, that lives from one event to another: an event is an allocation or a release. A
product in low precision keeps narrow copies of its operands for its backward pass in the place of what it reads
in float32: so each block has the products whose backward passes read it, and the event after which nothing else
needs it, be it an operator or a variable of Python's.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile, record_function

from tandem._apply import laid_out
from tandem._capture import Recorder, as_inputs, tensors_in
from tandem._graph import Block, Call, Span, StepMemory
from tandem._held import Held, set_random_state
from tandem._kernels import has_fast_bf16
from tandem._structs import COPIES_GRADIENT, COPIES_INPUT, KEEPS_SECOND, READS_FIRST, READS_SECOND
from tandem._trace import Names, Product, follow_modules

Loss = Callable[..., torch.Tensor]
_MARK = "tandem.product:"
_NODE = "autograd::engine::evaluate_function"


class _Entry(NamedTuple):
    """Something that the profiler saw: an allocation, a release, or the begin or end of an operator."""

    time: int
    place: int
    bytes: int  # below 0: a release; 0: an operator
    reads: Tuple[int, ...] = ()
    mark: int = -1  # of the product whose forward pass it is in
    node: Optional[int] = None  # the sequence number of the backward node that it is in
    sequence: int = -1


def _places(value: Any) -> Iterable[int]:
    """Where the tensors lie that an operator of the profiler has read."""
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _places(one)
    elif getattr(value, "storage_data_ptr", None):
        yield value.storage_data_ptr


def _list_entries(tree: Sequence[Any]) -> List[_Entry]:
    found: List[_Entry] = []

    def visit(event: Any, mark: int, node: Optional[int]) -> None:
        fields, kind = event.extra_fields, str(event.tag).rsplit(".", 1)[-1]
        if kind == "Allocation":
            if fields.device.type == "cpu":
                found.append(_Entry(event.start_time_ns, fields.ptr, fields.alloc_size))
            return
        if kind == "TorchOp":
            name, sequence = event.name, fields.sequence_number
            if name.startswith(_MARK):
                mark = int(name[len(_MARK) :])
            elif name.startswith(_NODE):
                node = sequence
            inputs = getattr(fields.inputs, "tensor_metadata", fields.inputs)  # PyTorch 1.13; 2
            reads = tuple(_places(inputs))
            found.append(_Entry(event.start_time_ns, 0, 0, reads, mark, node, sequence))
        for child in event.children:
            visit(child, mark, node)
        if kind == "TorchOp":
            found.append(_Entry(event.start_time_ns + event.duration_time_ns, 0, 0, (), mark, node))

    for root in tree:
        visit(root, -1, None)
    return sorted(found, key=lambda entry: entry.time)


class _Tape:
    """The blocks of one step, and when the passes of its products run."""

    def __init__(self, entries: Sequence[_Entry], seconds: Sequence[int]) -> None:
        """seconds: where the second operand of each product lies during its forward pass."""
        self.blocks: List[Block] = []
        self.spans = [[-1, -1, -1, -1] for _ in seconds]
        self.n_event = 0
        self.backward = -1  # the event at which the backward pass begins
        self.at: Dict[int, Block] = {}  # what lies at a place now
        self._second: List[Optional[Block]] = [None] * len(seconds)
        self._product_of: Dict[int, int] = {}  # by the sequence number of its backward node
        for entry in entries:
            if entry.bytes:
                self._move(entry)
            else:
                self._read(entry, seconds)
        for product, block in enumerate(self._second):
            if block is not None and self.spans[product][3] >= 0:
                block.readers.setdefault(product, (self.spans[product][3], KEEPS_SECOND))

    def _move(self, entry: _Entry) -> None:
        if entry.bytes > 0:
            block = self.at[entry.place] = Block(entry.bytes, born=self.n_event)
            self.blocks.append(block)
        elif entry.place in self.at:
            self.at.pop(entry.place).freed = self.n_event
        self.n_event += 1

    def _extend(self, product: int, first: int) -> None:
        """A pass of the product runs at this event; `first`: where its span has that pass."""
        span = self.spans[product]
        if span[first] < 0:
            span[first] = self.n_event
        span[first + 1] = self.n_event

    def _read(self, entry: _Entry, seconds: Sequence[int]) -> None:
        product = -1
        if entry.node is not None:
            self.backward = self.n_event if self.backward < 0 else self.backward
            product = self._product_of.get(entry.node, -1)
            if product >= 0:
                self._extend(product, 2)
        elif entry.mark >= 0:
            if self.spans[entry.mark][0] < 0:
                self._second[entry.mark] = self.at.get(seconds[entry.mark])
            self._extend(entry.mark, 0)
            if entry.sequence >= 0:
                self._product_of.setdefault(entry.sequence, entry.mark)
        for block in (self.at[place] for place in entry.reads if place in self.at):
            if product < 0:
                block.rest = self.n_event
            else:
                role = READS_SECOND if self._second[product] is block else READS_FIRST
                block.readers[product] = (self.n_event, role)


class _Marker(Recorder):
    """Writes calls down, and marks each product in the profiler's record."""

    def __init__(self, module: torch.nn.Module, names: Names, batch: int) -> None:
        super().__init__(module, names, batch)
        self.seconds: List[int] = []  # where the second operand of each product lies
        self.adjustable: List[Optional[Call]] = []  # the call of each; None: the plan gives it no precision
        self.copies: List[int] = []  # of each, as C's TANDEM_COPIES_… have it

    def product(self, name: str, product: Product, func: Any, args: Any, kwargs: Any) -> Any:
        begin = len(self.calls)
        self.seconds.append(_storage(product.w).data_ptr())
        with record_function(f"{_MARK}{len(self.seconds) - 1}"):
            result = super().product(name, product, func, args, kwargs)
        call = self.calls[begin]
        self.adjustable.append(call if call.adjustable else None)
        self.copies.append(0)
        if call.kind == "conv2d":
            self._note_order(len(self.copies) - 1, product.x, COPIES_INPUT)
            if result.requires_grad:
                result.register_hook(functools.partial(self._note_gradient, len(self.copies) - 1))
        return result

    def _note_order(self, index: int, images: torch.Tensor, copied: int) -> None:
        if not images.is_contiguous(memory_format=torch.channels_last):
            self.copies[index] |= copied

    def _note_gradient(self, index: int, gradient: torch.Tensor) -> None:
        self._note_order(index, gradient, COPIES_GRADIENT)


def _resize(value: Any, old: int, new: int, rows: int = 1) -> Any:
    """The same inputs with `new` samples: of tensors with `old` rows the first ones, again and again. `rows`
    0: also of those with several rows a sample, as labels of tokens have that lie in one line."""
    if isinstance(value, torch.Tensor):
        length = value.shape[0] if value.dim() else 0
        if length == 0 or length % old or (rows and length != old):
            return value
        return value[torch.arange(new * length // old) % length]
    if isinstance(value, (tuple, list)):
        made = [_resize(one, old, new, rows) for one in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return type(value)((key, _resize(one, old, new, rows)) for key, one in value.items())
    return value


def _has_rows(value: Any, batch: int) -> bool:
    return any(one.dim() > 0 and one.shape[0] == batch for one in tensors_in(value))


def _as_channels_last(value: Any) -> Any:
    """The same inputs, with images in that order."""
    if isinstance(value, torch.Tensor):
        return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value
    if isinstance(value, (tuple, list)):
        made = [_as_channels_last(one) for one in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return type(value)((key, _as_channels_last(one)) for key, one in value.items())
    return value


def _storage(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def _bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Of all memory that they lie in, each counted once."""
    return sum({_storage(one).data_ptr(): _storage(one).nbytes() for one in tensors}.values())


class _Step:
    """Steps of a module at any batch, whose weights, buffers, gradients and random numbers stay as they are."""

    def __init__(self, module: torch.nn.Module, inputs: Any, target: Any, loss: Loss, batch: int) -> None:
        self.module, self.inputs, self.target, self.loss, self.batch = module, inputs, target, loss, batch
        # whether `zero_grad` leaves gradients in memory, as it does by default before PyTorch 2
        self.keeps_gradients = torch.__version__.startswith("1.")
        self.trained: Dict[int, int] = {}  # bytes of the parameters that got a gradient in the last run

    def _note_trained(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        if gradient.layout == torch.strided:  # a sparse one is as large as what it has
            self.trained[id(parameter)] = parameter.numel() * parameter.element_size()

    def _run(self, batch: int, is_saving: bool) -> Tuple[_Tape, _Marker]:
        names = Names()
        names.begin()
        marker = _Marker(self.module, names, batch)
        handles = follow_modules(self.module, names)
        inputs = _resize(self.inputs, self.batch, batch)
        target = _resize(self.target, self.batch, batch, rows=0)
        args, kwargs = as_inputs(inputs)
        torch.clear_autocast_cache()  # of weights, which runs before this one have filled
        try:
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as profiler:
                with marker, contextlib.nullcontext() if is_saving else saved_tensors_hooks(_drop, _refuse):
                    output = self.module(*args, **kwargs)
                loss = self.loss(output) if target is None else self.loss(output, target)
                del output
                torch.clear_autocast_cache()  # as when a training loop leaves autocast
                if is_saving:
                    loss.backward()
                del loss
        finally:
            for handle in handles:
                handle.remove()
        tree = profiler.profiler.kineto_results.experimental_event_tree()
        return _Tape(_list_entries(tree), marker.seconds), marker

    def run(self, batch: int, is_saving: bool = True) -> Tuple[_Tape, _Marker]:
        """A step from the same state, without what it changes; or its forward pass, of which autograd saves
        nothing: what then lives is what Python holds."""
        held = Held(self.module)
        self.trained.clear()
        hooks = [
            one.register_hook(functools.partial(self._note_trained, one))
            for one in self.module.parameters()
            if one.requires_grad
        ]
        gradients = [(one, one.grad) for one in self.module.parameters()]
        for parameter, _ in gradients:
            is_kept = self.keeps_gradients and parameter.requires_grad
            parameter.grad = torch.zeros_like(parameter) if is_kept else None
        try:
            with torch.enable_grad():
                tape, marker = self._run(batch, is_saving)
            for parameter, _ in gradients:
                block = None if parameter.grad is None else tape.at.get(_storage(parameter.grad).data_ptr())
                if block is not None:
                    block.is_gradient = True
            return tape, marker
        finally:
            for hook in hooks:
                hook.remove()
            for parameter, gradient in gradients:
                parameter.grad = gradient
            held.put_buffers()
            set_random_state(held.random)


def _drop(_: torch.Tensor) -> None:
    """What autograd saves in the place of a tensor."""


def _refuse(_: None) -> torch.Tensor:
    raise RuntimeError("a pass without saved tensors has no backward pass")


def _note_variables(tape: _Tape, unsaved: _Tape) -> None:
    """A block that Python still holds stays, whichever product reads it: `unsaved` says until when."""
    held, forward = unsaved.blocks, tape.blocks[: len(unsaved.blocks)]
    if [block.bytes for block in held] != [block.bytes for block in forward]:
        return  # such as a module that draws what it runs: readers alone are known
    births = [block.born for block in held]
    for block, seen in zip(forward, held):
        if seen.freed >= 0:
            last = bisect.bisect_left(births, seen.freed) - 1  # the last one born before it was released
            block.rest = max(block.rest, forward[last].born + 1)


def _fit_batches(tape: _Tape, other: _Tape, batch: int, other_batch: int) -> bool:
    """Gives each block its bytes a sample; whether both steps allocate and release in the same order."""
    if tape.n_event != other.n_event or len(tape.blocks) != len(other.blocks):
        return False
    pairs = list(zip(tape.blocks, other.blocks))
    if any((one.born, one.freed) != (two.born, two.freed) for one, two in pairs):
        return False
    for one, two in pairs:
        one.a_sample = (one.bytes - two.bytes) / (batch - other_batch)
    return True


def _record(step: _Step) -> Tuple[StepMemory, List[Call], List[Call], str]:
    """As record_step_memory, of the module as it lies in memory."""
    module, batch = step.module, step.batch
    tape, marker = step.run(batch)
    trained = list(step.trained.values())
    _note_variables(tape, step.run(batch, is_saving=False)[0])
    other_batch = max(1, batch // 2) if batch > 1 else 2
    calls: List[Call] = []
    why = ""
    try:
        if not _has_rows(step.inputs, batch):
            raise ValueError("no input begins with the batch")
        other, other_marker = step.run(other_batch)
        if _fit_batches(tape, other, batch, other_batch):
            calls = other_marker.calls
    except Exception as failed:  # a loss of a fixed batch, norms of one sample: this batch is known
        why = f"a step of batch {other_batch} failed: {type(failed).__name__}: {failed}"[:400]
    memory = StepMemory(
        batch=batch,
        other_batch=other_batch if calls else 0,
        n_event=tape.n_event,
        backward=tape.backward if tape.backward >= 0 else tape.n_event,
        weights=_bytes_of([*module.parameters(), *module.buffers()]),
        trained=sum(trained),
        largest=max(trained, default=0),
        keeps_gradients=step.keeps_gradients,
        has_fast_bf16=has_fast_bf16(),
    )
    products = [mark for mark, call in enumerate(marker.adjustable) if call is not None]
    memory.products = [
        Span(marker.calls.index(marker.adjustable[mark]), *tape.spans[mark], marker.copies[mark])
        for mark in products
    ]
    number = {mark: index for index, mark in enumerate(products)}
    memory.blocks = [block.finish(tape.n_event, number) for block in tape.blocks]
    return memory, marker.calls, calls, why


def record_step_memory(
    module: torch.nn.Module, inputs: Any, target: Any, loss: Loss, batch: int
) -> Tuple[StepMemory, List[Call], List[Call], str]:
    """What a step allocates, its calls, those of another batch [none: its order of blocks is another], and why
    that did not run.

    Errors of the module and the loss pass through. The module stays as it was."""
    step = _Step(module, inputs, target, loss, batch)
    memory, calls, other_calls, why = _record(step)
    if any(call.kind == "conv2d" for call in calls):
        # from the images on: a weight of 1 x 1 has both orders, and then theirs decides
        step.inputs = _as_channels_last(inputs)
        with laid_out(module):
            last = _record(step)[0]
        if len(last.products) == len(memory.products):
            memory.channels_last = last
            memory.other_batch = memory.other_batch if last.other_batch else 0
    return memory, calls, other_calls if memory.other_batch else [], why
