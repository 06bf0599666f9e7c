"""tandem: plans and runs PyTorch modules in mixed precisions on mixed devices.

    graph = tandem.capture(module, inputs)              # what the module calls
    tandem.profile(module, inputs, device="torch:a")    # what that costs on this machine, in every precision
    tandem.sensitivity(module, batches, loss)           # what low precision costs the model
    plan = tandem.allocate(graph, "torch:a + torch:b net=10Gbit/s,20us")
    tandem.apply(module, plan, rank=rank)               # in each rank, before DDP(module)
    tandem.compare_loss(module, plan, batches, loss, optimizer)  # what the plan costs, by trainings

`replay`, `allocate` and `advise` also take the zoo's models and described GPUs, and need no PyTorch. Errors
are exceptions (`TandemError` and what derives from it) with the texts of the command line. docs/pytorch.md
has examples that run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandem._graph import Call, Graph, PeakMemory
from tandem._library import (
    InfeasibleError,
    MalformedError,
    MissingError,
    TandemError,
    UsageError,
    WrongModelError,
)
from tandem._plan import Advice, Case, ClassTimes, Plan, PlanClass, Ratio, Replay, advise, allocate, replay
from tandem._estimated import Estimate

if TYPE_CHECKING:
    from tandem._apply import applied, apply, remove
    from tandem._capture import capture
    from tandem._profile import Comparison, Profile, compare, profile, profile_all_reduce
    from tandem._sensitivity import Sensitivity, sensitivity
    from tandem._trial import Interval, Trial, compare_loss

__version__ = "0.1.0"

# What needs PyTorch is imported when it is asked for.
_OF_TORCH = {
    "capture": "_capture",
    "apply": "_apply",
    "remove": "_apply",
    "applied": "_apply",
    "profile": "_profile",
    "profile_all_reduce": "_profile",
    "compare": "_profile",
    "Profile": "_profile",
    "Comparison": "_profile",
    "sensitivity": "_sensitivity",
    "Sensitivity": "_sensitivity",
    "compare_loss": "_trial",
    "Interval": "_trial",
    "Trial": "_trial",
}

__all__ = [
    "Advice",
    "Call",
    "Case",
    "ClassTimes",
    "Comparison",
    "Estimate",
    "Graph",
    "InfeasibleError",
    "Interval",
    "MalformedError",
    "MissingError",
    "PeakMemory",
    "Plan",
    "PlanClass",
    "Profile",
    "Ratio",
    "Replay",
    "Sensitivity",
    "TandemError",
    "Trial",
    "UsageError",
    "WrongModelError",
    "advise",
    "allocate",
    "applied",
    "apply",
    "capture",
    "compare",
    "compare_loss",
    "profile",
    "profile_all_reduce",
    "remove",
    "replay",
    "sensitivity",
]


def __getattr__(name: str) -> Any:
    if name not in _OF_TORCH:
        raise AttributeError(f"module 'tandem' has no attribute '{name}'")
    import importlib

    from tandem import _library

    try:
        module = importlib.import_module(f"tandem.{_OF_TORCH[name]}")
    except ImportError as missing:
        if (missing.name or "").split(".")[0] != "torch":
            raise
        raise _library.error(
            "MISSING",
            f"tandem.{name} needs PyTorch, which this Python has not: "
            "apt-get install python3-torch libopenblas0, and /usr/bin/python3",
        ) from missing
    return getattr(module, name)
