"""A mode of PyTorch's that is called without a detour."""

from __future__ import annotations

import threading
from typing import Any, List, Tuple

import torch
from torch.overrides import TorchFunctionMode

# PyTorch 1.13 calls modes by a context manager in Python. That takes longer than most of what a module calls,
# which are shapes and views. PyTorch 2 calls modes itself, and has no _set_torch_function_mode.
_set = getattr(torch._C, "_set_torch_function_mode", None)
_detour = getattr(torch.overrides, "_TorchFunctionStackMode", None)
_has_detour = _set is not None and _detour is not None


def _count() -> int:
    return torch._C._len_torch_function_stack()  # type: ignore[attr-defined]


class _State(threading.local):
    """Modes are a thread's own."""

    def __init__(self) -> None:
        # each time that it is entered: how many modes there are with it, and whether PyTorch calls it itself
        self.entered: List[Tuple[int, bool]] = []
        self.is_paused = False


class DirectMode(TorchFunctionMode):
    """A mode that PyTorch 1.13, too, calls itself while no other one is entered; else in PyTorch's order."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._state = _State()

    def __enter__(self) -> Any:
        was_called = _has_detour and torch._C._is_torch_function_mode_enabled()  # type: ignore[attr-defined]
        super().__enter__()
        if _has_detour:
            self._state.entered.append((_count(), not was_called))
            if not was_called:
                _set(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        state = self._state
        state.is_paused = False
        if state.entered and state.entered.pop()[1]:
            _set(None)

    def pause(self) -> None:
        """Sees nothing until `resume`; where PyTorch's detour is, it does not."""
        if self._is_next():
            self._state.is_paused = True
            _set(None)

    def resume(self) -> None:
        """Sees all calls again, and directly: functions in Python leave PyTorch's detour behind."""
        if self._state.is_paused or self._is_next():
            self._state.is_paused = False
            _set(self)

    def _is_next(self) -> bool:
        """Whether the next call comes here first, and may do so without a detour."""
        if not self._state.entered or not torch._C._is_torch_function_mode_enabled():  # type: ignore[attr-defined]
            return False
        count, is_direct = self._state.entered[-1]
        return is_direct and count == _count()

    def see(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What subclasses do at each call."""
        raise NotImplementedError

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        entered = self._state.entered
        if entered and _count() > entered[-1][0]:  # others were entered since, and come first
            return _detour().__torch_function__(func, types, args, kwargs)
        return self.see(func, types, args, kwargs or {})
