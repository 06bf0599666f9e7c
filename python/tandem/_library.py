"""The C libraries: where they are, how they are called, and their errors as exceptions."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, Callable, Dict, List

ERROR_TEXT = 1024


class TandemError(Exception):
    """What the C libraries refuse, with the text that the command line prints.

    `status` is the name of the C status ("MISSING"), `exit_code` what the command line would exit with.
    """

    status = "BUG"
    exit_code = 70


class UsageError(TandemError, ValueError):
    """An argument is not allowed, or a name is unknown."""


class MalformedError(TandemError, ValueError):
    """A file or a graph breaks its rules."""


class WrongModelError(TandemError, ValueError):
    """A plan was made for another module, shape or cluster."""


class MissingError(TandemError, LookupError):
    """Something that is needed was not measured, or is not here."""


class InfeasibleError(TandemError):
    """No plan satisfies the limits."""


_EXCEPTIONS = {
    "INFEASIBLE": InfeasibleError,
    "LIMIT_EXCEEDED": InfeasibleError,
    "USAGE": UsageError,
    "UNKNOWN_NAME": UsageError,
    "MALFORMED": MalformedError,
    "WRONG_FORMAT": MalformedError,
    "WRONG_GRAPH": MalformedError,
    "WRONG_MODEL": WrongModelError,
    "MISSING": MissingError,
    "NO_DEVICE": MissingError,
    "NO_KERNEL": MissingError,
}
_EXIT_CODES = {
    "INFEASIBLE": 1,
    "LIMIT_EXCEEDED": 1,
    "USAGE": 2,
    "UNKNOWN_NAME": 2,
    "MALFORMED": 3,
    "WRONG_FORMAT": 3,
    "WRONG_GRAPH": 3,
    "WRONG_MODEL": 3,
    "MISSING": 4,
    "NO_DEVICE": 4,
    "NO_KERNEL": 4,
}


def error(status: str, text: str) -> TandemError:
    """The exception of a status, to raise."""
    made = _EXCEPTIONS.get(status, TandemError)(text)
    made.status = status
    made.exit_code = _EXIT_CODES.get(status, 70)
    return made


class _Error(Structure):
    _fields_ = [("status", c_int), ("rank", c_int), ("text", c_char * ERROR_TEXT)]


def _folders() -> List[str]:
    """Where a library may be, in this order; "" means the system's folders."""
    folders = []
    given = os.environ.get("TANDEM_LIBRARY")
    if given:
        return [os.path.dirname(given) or "." if ".so" in os.path.basename(given) else given]
    here = os.path.dirname(os.path.abspath(__file__))
    folders.append(os.path.join(os.path.dirname(os.path.dirname(here)), "build"))
    try:
        from tandem import _checkout  # type: ignore[attr-defined]  # written by `pip install`

        folders.append(_checkout.BUILD)
    except ImportError:
        pass
    return folders + ["/usr/local/lib", ""]


_loaded: Dict[str, ctypes.CDLL] = {}


def load(name: str) -> ctypes.CDLL:
    """libNAME.so.0 as a ctypes library, loaded once."""
    if name in _loaded:
        return _loaded[name]
    tried = []
    for folder in _folders():
        path = os.path.join(folder, f"lib{name}.so.0") if folder else f"lib{name}.so.0"
        if folder and not os.path.exists(path):
            tried.append(path)
            continue
        try:
            _loaded[name] = ctypes.CDLL(path)
            return _loaded[name]
        except OSError as failed:
            tried.append(f"{path} ({failed})")
    raise error(
        "MISSING",
        f"lib{name}.so.0 is not here: looked for {', '.join(tried)}. Build it with `make` in "
        "tandem's checkout, install it with `make install`, or name its folder in TANDEM_LIBRARY.",
    )


def _text_of(library: ctypes.CDLL, status: int) -> str:
    name = library.tandem_status_name
    name.restype, name.argtypes = c_char_p, [c_int]
    return name(status).decode()


def bind(library: str, function: str) -> Callable[..., None]:
    """A function that returns a status and takes a tandem_error last, as one that raises its error."""
    loaded = load(library)
    try:
        called = getattr(loaded, function)
    except AttributeError:
        text = f"lib{library}.so.0 has no {function}: it is older than this package. Run `make` again."
        raise error("MISSING", text) from None
    called.restype = c_int
    of_thread = threading.local()

    def run(*arguments: Any) -> None:
        problem = getattr(of_thread, "problem", None)
        if problem is None:
            problem = of_thread.problem = _Error()
        status = called(*arguments, byref(problem))
        if status:
            name = _text_of(loaded, status)
            text = problem.text.decode(errors="replace") or name
            problem.text = b""
            if name == "NO_MEMORY":
                raise MemoryError(text)
            if name == "IO":
                raise OSError(text)
            raise error(name, text)

    return run


def call(library: str, function: str, *arguments: Any) -> None:
    """Calls such a function once."""
    bind(library, function)(*arguments)


def text_function(library: str, function: str, *arguments: Any) -> str:
    """Calls a function that returns a static text."""
    called = getattr(load(library), function)
    called.restype = c_char_p
    return called(*arguments).decode()


class Owned:
    """A C object that one function closes."""

    def __init__(self, library: str, close: str) -> None:
        self.pointer = c_void_p()
        self._close = getattr(load(library), close)
        self._close.restype, self._close.argtypes = None, [c_void_p]

    def __del__(self) -> None:
        pointer, self.pointer = getattr(self, "pointer", None), c_void_p()
        if pointer:
            self._close(pointer)


__all__ = [
    "TandemError",
    "UsageError",
    "MalformedError",
    "WrongModelError",
    "MissingError",
    "InfeasibleError",
    "POINTER",
    "c_size_t",
]
