"""A mode of PyTorch's that is called without a detour."""

from __future__ import annotations

from typing import Any, List, Tuple

import torch
from torch.overrides import TorchFunctionMode

# PyTorch 1.13 calls modes by a context manager in Python. That takes longer than most of what a module calls,
# which are shapes and views. PyTorch 2 calls modes itself, and has no _set_torch_function_mode.
_set = getattr(torch._C, "_set_torch_function_mode", None)
_detour = getattr(torch.overrides, "_TorchFunctionStackMode", None)
_has_detour = _set is not None and _detour is not None
_count = getattr(torch._C, "_len_torch_function_stack", None)
_is_enabled = getattr(torch._C, "_is_torch_function_mode_enabled", None)


class _State:
    def __init__(self) -> None:
        # each time that it is entered: how many modes there are with it, and so many where PyTorch calls it
        # itself, or else 0
        self.entered: List[Tuple[int, int]] = []
        self.is_paused = False


class DirectMode(TorchFunctionMode):
    """A mode that PyTorch 1.13, too, calls itself while no other one is entered; else in PyTorch's order. One
    thread at a time enters it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._state = _State()

    def __enter__(self) -> Any:
        is_direct = _has_detour and not _is_enabled()
        super().__enter__()
        if _has_detour:
            count = _count()
            self._state.entered.append((count, count if is_direct else 0))
            if is_direct:
                _set(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        state = self._state
        state.is_paused = False
        if state.entered and state.entered.pop()[1]:
            _set(None)

    def pause(self) -> None:
        """Sees nothing until `resume`; where PyTorch's detour is, it still sees everything."""
        state = self._state
        if state.entered and _is_enabled() and state.entered[-1][1] == _count():
            state.is_paused = True
            _set(None)

    def is_paused(self) -> bool:
        return self._state.is_paused

    def resume(self) -> None:
        """Sees all calls again, and directly: functions in Python end PyTorch's detour."""
        state = self._state
        if state.is_paused or state.entered and _is_enabled() and state.entered[-1][1] == _count():
            state.is_paused = False
            _set(self)

    def see(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What subclasses do at each call."""
        raise NotImplementedError

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        entered = self._state.entered
        if entered and _count() > entered[-1][0]:  # others were entered since, and come first
            return _detour().__torch_function__(func, types, args, kwargs)
        return self.see(func, types, args, kwargs or {})
