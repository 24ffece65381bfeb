"""PyTorch modules that have no gradient of one record, or none that is a function of the record and
the parameters alone: refused when they are given, with the reason and what to do.
"""

from __future__ import annotations

import copy
from typing import Any

from hearsay.problems.losses.torch_state import Held, changed

# Of a gradient's entry and of the largest one: what rounding may change between two calls.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6

_SHARED = (
    "one module serves all agents and seeds, so one agent's gradient would depend on what was"
    " computed for another, which no certificate counts"
)


def copied(module: Any) -> Any:
    """A copy of the module that shares nothing with it."""
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ValueError(
            f"module must be one that copy.deepcopy copies, but {type(module).__name__} is not"
            f" (was a result kept as an attribute in forward?): {line(error)}"
        ) from error


def refuse_mixing(module: Any) -> None:
    """Refuses layers through which one record reaches another's gradient, and random ones."""
    from torch.nn.modules import batchnorm, dropout, instancenorm

    for name, layer in module.named_modules():
        where = f"{type(layer).__name__} at {name or 'the top'}"
        tracked = getattr(layer, "track_running_stats", False)
        if isinstance(layer, batchnorm._BatchNorm) or (
            isinstance(layer, instancenorm._InstanceNorm) and tracked
        ):
            raise ValueError(
                "module must be free of BatchNorm and other statistics over records, got"
                f" {where}: with it a record's gradient depends on the other records of the batch,"
                " so there is no gradient of one record to clip; use GroupNorm (or LayerNorm)"
            )
        if isinstance(layer, dropout._DropoutNd) and layer.training and layer.p > 0:
            raise ValueError(
                f"module must be deterministic, got {where} in training mode: call module.eval()"
                " first, which leaves dropout out"
            )


def refuse_change(module: Any, before: tuple[Held, ...], after: tuple[Held, ...]) -> None:
    """Refuses a module that is not what it was before it was called.

    Args:
      module: where the names of submodules lead to.
      before: what it held before the calls, as of torch_state.py.
      after: what it held after them.
    """
    places = [changed(*pair) for pair in zip(before, after, strict=True)]
    place = next((one for one in places if one is not None), None)
    if place is None:
        return
    name, attribute = place
    kind = type(dict(module.named_modules()).get(name, module)).__name__
    raise ValueError(
        "module must keep no state from one call to the next, got one that changes"
        f" {attribute!r} of {kind} at {name or 'the top'} when it is called: {_SHARED}; keep state"
        " out of forward (compute it in __init__, return it, or, if only training mode changes"
        " it, as with spectral_norm, call module.eval() first)"
    )


def refuse_memory(name: str, first: dict[str, Any], again: dict[str, Any]) -> None:
    """Refuses a module with two gradients for one record and one vector of parameters.

    Args:
      name: the module's.
      first: gradients by parameter.
      again: those of the same record, after a call with another record and other parameters.
    """
    import torch

    finite = [g[g.isfinite()].abs() for g in first.values()]
    room = _ABSOLUTE * max((float(g.max()) for g in finite if g.numel()), default=0.0)
    for parameter, gradient in first.items():
        if not torch.allclose(again[parameter], gradient, _RELATIVE, room, equal_nan=True):
            raise ValueError(
                "module and loss must give one gradient for a record and parameters, got another"
                f" one for {parameter!r} of {name} after a call with other ones: {_SHARED}; draw no"
                " random numbers, and keep state out of forward and of the loss, also in globals,"
                " class attributes and closures"
            )


def cannot(name: str, error: Exception) -> str:
    if "random" in str(error):
        return (
            f"module must be deterministic, but {name} draws random numbers: call module.eval()"
            f" first, or leave that layer out ({line(error)})"
        )
    return (
        "module must be one that torch.func can differentiate record by record (no .item(), no"
        " branch on values, nothing written in place to a buffer, one number as loss), but"
        f" {name} is not: {line(error)}"
    )


def line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}..."
