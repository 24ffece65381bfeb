"""What a PyTorch module keeps: everything that its submodules hold, as values that can be compared.

One module serves all agents and all seeds. What a call leaves behind in it would make one agent's
gradient depend on another's call, and would travel with a released module: no certificate counts
either. So a module is compared with what it was before it was tried (torch_refusals.py).

Tensors and arrays are compared by their bits, containers by what is in them, other objects by what
they would be pickled from, and what has no such form (functions, for one) by being the same object.
"""

from __future__ import annotations

import hashlib
import types
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

# By (name of the submodule, attribute).
Place = tuple[str, str]
Held = dict[Place, Any]

# What torch's recurrent layers make anew of their parameters in every call.
_REMADE = ("_flat_weights", "_flat_weight_refs")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


class _Itself:
    """Equal to itself only; holds the object, so that its id is not given to another."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class _Walk:
    """One pass over objects, each of which is looked into once."""

    def __init__(self) -> None:
        # With the object itself: what `__reduce_ex__` makes would otherwise be gone, and its id
        # another's.
        self.seen: dict[int, tuple[int, Any]] = {}

    def mark(self, value: Any) -> None:
        self.seen[id(value)] = (len(self.seen), value)

    def of(self, value: Any) -> Any:
        """Something hashable that is equal where the value is."""
        if isinstance(value, _PLAIN):
            return type(value), repr(value)
        if isinstance(value, _CODE):
            return _Itself(value)
        if id(value) in self.seen:
            return "seen", self.seen[id(value)][0]
        self.mark(value)
        if _is_tensor(value):
            return _tensor(value)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).digest()
        if isinstance(value, weakref.ref):
            return "reference", self.of(value())
        if type(value) in (list, tuple):
            return type(value), tuple(map(self.of, value))
        if type(value) in (set, frozenset):
            return type(value), frozenset(map(self.of, value))
        if type(value) is dict:
            return dict, tuple((self.of(key), self.of(own)) for key, own in value.items())
        return self._object(value)

    def _object(self, value: Any) -> Any:
        try:
            parts = value.__reduce_ex__(4)
        except Exception:
            return _Itself(value)
        if isinstance(parts, str):
            return _Itself(value)
        made, args, *rest = parts
        # After the state come iterators over the items of lists and dictionaries.
        state, items = rest[:1], [None if part is None else list(part) for part in rest[1:3]]
        return type(value), tuple(self.of(part) for part in (made, args, *state, *items))


def snapshot(module: Any) -> Held:
    """All that the module and its submodules hold."""
    import torch

    walk, found = _Walk(), {}
    layers = dict(module.named_modules())
    # A layer's attributes are listed under its own name, whoever else refers to it.
    for layer in layers.values():
        walk.mark(layer)
    for name, layer in layers.items():
        for attribute, value in vars(layer).items():
            if isinstance(layer, torch.nn.RNNBase) and attribute in _REMADE:
                continue
            if attribute in ("_parameters", "_buffers", "_modules"):
                found.update({(name, own): walk.of(part) for own, part in value.items()})
            else:
                found[name, attribute] = walk.of(value)
    return found


def of_tensors(tensors: Mapping[str, Any]) -> Held:
    """As `snapshot`, of a state_dict's names and tensors."""
    split = {name: name.rpartition(".") for name in tensors}
    return {(split[n][0], split[n][2]): _tensor(tensor) for n, tensor in tensors.items()}


def changed(before: Held, after: Held) -> Place | None:
    """The first that is not what it was."""
    absent = object()
    for place in {**before, **after}:
        if before.get(place, absent) != after.get(place, absent):
            return place
    return None


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _tensor(tensor: Any) -> Any:
    import torch

    try:
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    except Exception:
        # Sparse ones, and what torch.func left behind: it has no numbers outside.
        return _Itself(tensor), tensor._version
    return str(tensor.dtype), tuple(tensor.shape), hashlib.sha256(data).digest()
