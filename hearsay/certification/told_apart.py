"""What tells a class or an option from another one of the same name and the same `repr`.

A source file says what a class was when it was imported. A program can change it afterwards
(`Class.delay = 1`, another function in the place of a method or of a helper), a function makes many
classes of one name, and the `repr` of a long array or of somebody's own object hides what is in it.
So a class is described by what it holds now, and a value by its contents; where that is not known,
it is said.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import PurePath
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from hearsay.algorithms.outside import is_own

UNKNOWN = "?"
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# What Python and dataclasses put into every class, and what has no say in what it does.
_OF_EVERY_CLASS = {"__dict__", "__weakref__", "__doc__", "__module__", "__abstractmethods__",
                   "_abc_impl", "__dataclass_fields__", "__dataclass_params__", "__annotations__",
                   "__match_args__", "__parameters__", "__firstlineno__",
                   "__static_attributes__"}  # fmt: skip
_GENERATED = "<string>"  # where functions stand that dataclasses write


def of_value(value: Any) -> str:
    """A text that no other value has, with UNKNOWN in it where the contents are not known."""
    return "".join(_told(value, ()))


def of_class(kind: type) -> tuple[str, bool]:
    """(a digest of what the class and its bases outside hearsay hold now, whether all is known)."""
    text = ""
    for one in kind.__mro__:
        if is_own(one) or one.__module__ in ("builtins", "abc"):
            continue
        for name, held in sorted(vars(one).items()):
            if name not in _OF_EVERY_CLASS:
                text += f"{name}={''.join(_told(held, ()))}\n"
    return hashlib.sha256(text.encode()).hexdigest(), UNKNOWN not in text


def _told(value: Any, within: tuple[int, ...]) -> Iterator[str]:
    """The text in parts.

    Args:
      value: anything.
      within: what it is inside of, by `id`: nothing is described inside itself.
    """
    kind = type(value)
    if id(value) in within:
        yield "itself"
        return
    within = (*within, id(value))
    if kind in _PLAIN:
        # A text is in quotes; no question mark of its own counts.
        yield f"{kind.__name__} {value!r}".replace(UNKNOWN, "\\x3f")
    elif isinstance(value, enum.Enum):
        yield f"{kind.__qualname__}.{value.name}"
    elif isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
        yield from _array(value)
    elif isinstance(value, (tuple, list)):
        yield f"{kind.__qualname__}("
        for one in value:
            yield from (*_told(one, within), ",")
        yield ")"
    elif isinstance(value, (set, frozenset)):
        yield f"set({sorted(''.join(_told(one, within)) for one in value)})"
    elif isinstance(value, Mapping):
        pairs = ("".join((*_told(k, within), ":", *_told(v, within))) for k, v in value.items())
        yield f"map({','.join(sorted(pairs))})"
    elif isinstance(value, PurePath):
        yield f"path {str(value)!r}".replace(UNKNOWN, "\\x3f")
    elif isinstance(value, (type, ModuleType)):
        yield f"{getattr(value, '__module__', '')} {getattr(value, '__qualname__', value.__name__)}"
    elif isinstance(value, (staticmethod, classmethod)):
        yield from (kind.__name__, *_told(value.__func__, within))
    elif isinstance(value, property):
        for part in (value.fget, value.fset, value.fdel):
            yield from _told(part, within)
    elif isinstance(value, cached_property):
        yield from _told(value.func, within)
    elif inspect.isfunction(inspect.unwrap(value) if callable(value) else value):
        yield from _function(inspect.unwrap(value), within)
    elif dataclasses.is_dataclass(value):
        # hearsay's own say all in their fields; others may hold more.
        held = (
            {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            if is_own(kind)
            else vars(value)
        )
        yield from (f"{kind.__module__} {kind.__qualname__}", *_told(held, within))
    else:
        yield f"{kind.__module__} {kind.__qualname__} {UNKNOWN}"


def _array(value: Any) -> Iterator[str]:
    array = np.asarray(value)
    if array.dtype.hasobject:
        yield UNKNOWN
        return
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    yield f"{array.dtype} {array.shape} {digest}"


def _function(function: FunctionType, within: tuple[int, ...]) -> Iterator[str]:
    """Its code, its defaults, what it closes over, and what it looks up in its own module."""
    code = function.__code__
    if code.co_filename == _GENERATED:
        yield "generated"
        return
    yield from _code(code)
    yield from _told((function.__defaults__, function.__kwdefaults__), within)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield from (name, *_told(cell.cell_contents, within))
        except ValueError:  # nothing is in it yet
            yield f"{name} empty"
    known = function.__globals__
    for name in sorted(_names(code) & known.keys()):
        here = known[name]
        # What comes from elsewhere is named by the source; plain values and helpers are looked at.
        helper = inspect.isfunction(here) and here.__globals__ is known
        if helper or type(here) in (*_PLAIN, tuple, list, dict, np.ndarray):
            yield from (name, *_told(here, within))


def _names(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield f"{code.co_names}{code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}"
    for one in code.co_consts:
        yield from _code(one) if isinstance(one, CodeType) else _told(one, ())
