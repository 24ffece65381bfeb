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
import sys
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import jax
import numpy as np

from hearsay.algorithms.outside import is_own

UNKNOWN = "?"
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# What Python and dataclasses put into every class, and what has no say in what it does.
_OF_EVERY_CLASS = {"__dict__", "__weakref__", "__doc__", "__module__", "__abstractmethods__",
                   "_abc_impl", "__dataclass_fields__", "__dataclass_params__", "__annotations__",
                   "__match_args__", "__parameters__", "__firstlineno__",
                   "__static_attributes__"}  # fmt: skip
# What wraps a function and adds nothing to what it gives.
_WRAPPERS = (type(jax.jit(len)), type(lru_cache(len)))
_GENERATED = "<string>"  # where functions stand that dataclasses write


def of_value(value: Any) -> str:
    """A text that no other value has, with UNKNOWN in it where the contents are not known."""
    return "".join(_told(value, {}))


def of_class(kind: type) -> tuple[str, bool]:
    """(a digest of what the class and its bases outside hearsay hold now, whether all is known)."""
    text = "".join(_class(kind, {id(kind): kind}))
    # The classes beside it as far as they show: those of fields or members hold much that does not.
    known = dict[int, Any]()
    beside = (part for one in _beside(kind) for part in (one.__qualname__, *_held(one, known)))
    return hashlib.sha256("".join((text, *beside)).encode()).hexdigest(), UNKNOWN not in text


def _class(kind: type, known: dict[int, Any]) -> Iterator[str]:
    for one in _outside(kind):
        yield from _held(one, known)


def _outside(kind: type) -> list[type]:
    return [k for k in kind.__mro__ if not (is_own(k) or k.__module__ in ("builtins", "abc"))]


def _beside(kind: type) -> Iterator[type]:
    """The other classes of the modules of the class and of its bases."""
    described = _outside(kind)
    for module in sorted({one.__module__ for one in described}):
        for _, held in sorted(vars(sys.modules.get(module, object)).items()):
            if isinstance(held, type) and held.__module__ == module and held not in described:
                yield held


def _held(kind: type, known: dict[int, Any]) -> Iterator[str]:
    for name, held in sorted(vars(kind).items()):
        if name not in _OF_EVERY_CLASS:
            yield from (f"{name}=", *_told(held, known), "\n")


def _told(value: Any, known: dict[int, Any]) -> Iterator[str]:
    """The text in parts.

    Args:
      value: anything.
      known: by `id`, what it is inside of, and functions and classes that have been described:
        none is described twice, which would take as long as there are ways from one to another.
    """
    if id(value) in known:
        yield f"itself {_place(value)}"
        return
    known[id(value)] = value
    yield from _contents(value, known)
    # Of equal values some are one object, and some are not.
    if not isinstance(value, (FunctionType, type)):
        del known[id(value)]


def _contents(value: Any, known: dict[int, Any]) -> Iterator[str]:
    kind = type(value)
    if kind in _PLAIN:
        # A text is in quotes; no question mark of its own counts.
        yield f"{kind.__name__} {value!r}".replace(UNKNOWN, "\\x3f")
    elif isinstance(value, enum.Enum):
        yield from (
            f"{kind.__module__} {kind.__qualname__}.{value.name} ",
            *_told(value.value, known),
        )
    elif kind is np.ndarray or isinstance(value, (np.generic, jax.Array)):
        yield from _array(value)
    elif kind in (tuple, list) or _is_named_tuple(kind):
        # Of two classes of one name the fields may differ.
        yield f"{kind.__module__} {kind.__qualname__}{getattr(kind, '_fields', '')}("
        for one in value:
            yield from (*_told(one, known), ",")
        yield ")"
    elif kind in (set, frozenset):
        yield f"set({sorted(''.join(_told(one, known)) for one in value)})"
    elif kind in (dict, MappingProxyType):
        pairs = ("".join((*_told(k, known), ":", *_told(v, known))) for k, v in value.items())
        yield f"map({','.join(sorted(pairs))})"
    elif isinstance(value, PurePath):
        yield f"path {str(value)!r}".replace(UNKNOWN, "\\x3f")
    elif isinstance(value, (type, ModuleType)):
        name = getattr(value, "__qualname__", value.__name__)
        yield f"{getattr(value, '__module__', '')} {name}"
        if isinstance(value, type) and "<locals>" in name:  # a function makes many of one name
            yield from _class(value, known)
    elif isinstance(value, (staticmethod, classmethod)):
        yield from (kind.__name__, *_told(value.__func__, known))
    elif isinstance(value, property):
        for part in (value.fget, value.fset, value.fdel):
            yield from _told(part, known)
    elif isinstance(value, cached_property):
        yield from _told(value.func, known)
    elif inspect.isfunction(value):
        yield from _function(value, known)
    elif isinstance(value, _WRAPPERS):
        yield from _told(value.__wrapped__, known)  # type: ignore[attr-defined,union-attr]
    elif dataclasses.is_dataclass(value):
        held = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
        yield from (f"{kind.__module__} {kind.__qualname__}", *_told(held, known))
        # hearsay's own say all in their fields; others may hold more, and do something else.
        if not is_own(kind):
            yield from (*_told(getattr(value, "__dict__", {}), known), *_class(kind, known))
    else:
        yield f"{kind.__module__} {kind.__qualname__} {UNKNOWN}"


def _array(value: Any) -> Iterator[str]:
    # A random key is no array of numbers.
    if not isinstance(value.dtype, np.dtype) or value.dtype.hasobject:
        yield UNKNOWN
        return
    array = np.asarray(value)
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    yield f"{array.dtype} {array.shape} {digest}"


def _function(function: FunctionType, known: dict[int, Any]) -> Iterator[str]:
    """Its code, its defaults, what it closes over, and what it looks up in its own module."""
    code = function.__code__
    # Python 3.13 gives every dataclass one of that module's own, too.
    if code.co_filename == _GENERATED or function.__globals__ is vars(dataclasses):
        yield "generated"
        return
    yield from _code(code)
    yield from _told((function.__defaults__, function.__kwdefaults__, vars(function)), known)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield from (name, *_told(cell.cell_contents, known))
        except ValueError:  # nothing is in it yet
            yield f"{name} empty"
    around = function.__globals__
    for name in sorted(_names(code) & around.keys()):
        here = around[name]
        if _from_elsewhere(here, around):
            yield f"{name} {_place(here)}"
        else:
            yield from (name, *_told(here, known))


def _from_elsewhere(value: Any, known: dict[str, Any]) -> bool:
    """What the source names: modules, classes, and functions of other modules."""
    if isinstance(value, (type, ModuleType, BuiltinFunctionType, np.ufunc)):
        return True
    while isinstance(value, _WRAPPERS):
        value = value.__wrapped__  # type: ignore[attr-defined,union-attr]
    inner = value if inspect.isfunction(value) or not callable(value) else inspect.unwrap(value)
    if inspect.isfunction(inner):
        return inner.__globals__ is not known
    return type(value).__module__ == "typing"


def _place(value: Any) -> str:
    """Where something is from that its own module answers for."""
    name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
    return f"{getattr(value, '__module__', '')} {name}".replace(UNKNOWN, "")


def _is_named_tuple(kind: type) -> bool:
    """One that holds its fields and nothing else."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__


def _names(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield f"{code.co_names}{code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}"
    for one in code.co_consts:
        yield from _code(one) if isinstance(one, CodeType) else _told(one, {})
