"""Checks for public constructors and functions: every message reads "NAME must be RULE, got VALUE".

A rule takes the name and the value that somebody gave, refuses it or returns it as a plain
Python number (arrays: float64). The caller goes on with what the rule returned, never with what
was given: NumPy's int8 overflows in 2 * clip, its float16 rounds every product, and a bound
computed from either is no bound. So `clip = check.positive("clip", clip)` in a function, and
`check.settle(self, clip=check.positive)` for the fields of a frozen dataclass.

A float16 or a fraction becomes the float nearest to it, and that float is what the run uses and the
certificate speaks of.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import numbers
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, NoReturn, TypeVar

import numpy as np

Rule = Callable[[str, Any], Any]
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Bounds on records, gradients and models. Within these no square, product or quotient that a bound
# or a projection needs is lost, in float32 either.
SMALLEST_BOUND, LARGEST_BOUND = 1e-30, 1e30

# Whole numbers up to here are exact as floats, which is what they are computed with.
LARGEST_COUNT = 2**53

_LONGEST = 300  # characters of a value that an error message repeats
_SHORT = 80


def fail(name: str, rule: str, value: Any) -> NoReturn:
    raise ValueError(f"{name} must be {rule}, got {said(value)}")


def said(value: Any) -> str:
    """A value as an error message has room for it."""
    # Python refuses to write whole numbers of thousands of digits.
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a whole number of about {round(value.bit_length() * math.log10(2))} digits"
    if _holds_rows(value):
        return f"a {type(value).__name__} (errors show no rows)"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"


def _holds_rows(value: Any) -> bool:
    """A frame, one of its columns, or some of them in a list: what they hold is no setting."""
    if isinstance(value, (list, tuple)):
        return any(map(_holds_rows, value))
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "to_frame")


def _short(value: Any) -> str:
    """The same of what is not even of the right type."""
    return said(value)[:_SHORT]


def settle(record: Any, **rules: Rule) -> None:
    """Replace fields of a frozen dataclass by what their rules return."""
    for name, rule in rules.items():
        object.__setattr__(record, name, rule(name, getattr(record, name)))


def optional(rule: Callable[[str, Any], T]) -> Callable[[str, Any], T | None]:
    """The same rule, where nothing may be given either."""
    return lambda name, value: None if value is None else rule(name, value)


def real(name: str, value: Any) -> float:
    """A real number, or infinity, as the nearest float: Python's numbers, NumPy's, JAX's,
    and arrays without an axis.
    """
    found = _nearest(name, value)
    if math.isnan(found):
        fail(name, "a number", found)
    return found


def _nearest(name: str, value: Any) -> float:
    if not _is_one_number(value, "iuf"):
        raise TypeError(f"{name} must be a number, got {_short(value)}")
    try:
        # No zero has a sign: 1 / -0.0 would be an epsilon of minus infinity.
        found = float(value) + 0.0
    except OverflowError:
        _too_large(name)
    except (TypeError, ValueError) as error:  # a traced number, a signalling nan
        raise TypeError(f"{name} must be a number, got {_short(value)}") from error
    # A decimal beyond all floats becomes infinite without a word.
    if math.isinf(found) and value != found:
        _too_large(name)
    return found


def _too_large(name: str) -> NoReturn:
    raise ValueError(f"{name} must be at most 1.797e308 in size, got a larger number") from None


def _is_one_number(value: Any, kinds: str) -> bool:
    # By far the most that are asked about, a million agents' among them.
    if type(value) is float or type(value) is int:
        return True
    if isinstance(value, bool):
        return False
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return isinstance(value, (numbers.Real, Decimal))
    # bfloat16 and its like have no kind of their own; a timedelta64 is "m", although NumPy counts
    # it among the integers.
    kind = getattr(dtype, "kind", "")
    known = kind != "" and kind in kinds
    known = known or ("f" in kinds and kind == "V" and str(dtype).startswith(("bfloat", "float")))
    return known and getattr(value, "ndim", 0) == 0


def number(name: str, value: Any) -> float:
    """A finite real number (not a bool, not a string)."""
    value = _nearest(name, value)
    if not math.isfinite(value):
        fail(name, "finite", value)
    return value


def positive(name: str, value: Any) -> float:
    value = number(name, value)
    if value <= 0:
        fail(name, "positive", value)
    return value


def nonnegative(name: str, value: Any) -> float:
    value = number(name, value)
    if value < 0:
        fail(name, "zero or positive", value)
    return value


def nonnegative_or_infinite(name: str, value: Any) -> float:
    """What has been or may be spent, among others: infinity where there is no guarantee."""
    value = real(name, value)
    if value < 0:
        fail(name, "zero or positive", value)
    return value


def positive_or_infinite(name: str, value: Any) -> float:
    value = real(name, value)
    if value <= 0:
        fail(name, "positive", value)
    return value


def bound(name: str, value: Any) -> float:
    """How long a record, a gradient or a model may be."""
    value = positive(name, value)
    if not SMALLEST_BOUND <= value <= LARGEST_BOUND:
        fail(name, f"between {SMALLEST_BOUND:g} and {LARGEST_BOUND:g} (scale the data)", value)
    return value


def bound_or_infinite(name: str, value: Any) -> float:
    """Infinity: no bound is known."""
    return math.inf if _nearest(name, value) == math.inf else bound(name, value)


def count(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is at least `least`, and exact as a float."""
    return _at_most(name, _whole(name, value, least))


def _at_most(name: str, value: int) -> int:
    if value > LARGEST_COUNT:
        fail(name, "at most 2^53", value)
    return value


def _whole(name: str, value: Any, least: int) -> int:
    if not _is_one_number(value, "iu") or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {_short(value)}")
    value = int(operator.index(value))  # an index may be of a class of its own
    if value < least:
        fail(name, f"at least {least}", value)
    return value


def natural(name: str, value: Any) -> int:
    """A whole number from 0 on: an agent, a step."""
    return count(name, value, 0)


def seed(name: str, value: Any) -> int:
    """A whole number from 0 on, however large: nothing is computed with it."""
    return _whole(name, value, 0)


@contextmanager
def fits(name: str, value: Any) -> Iterator[None]:
    """Around what takes memory in proportion to it."""
    try:
        yield
    except MemoryError as error:
        rule = "small enough for the memory of this machine"
        raise ValueError(f"{name} must be {rule}, got {said(value)}") from error


def _memory() -> float:
    """Of this machine, in bytes; inf where the system does not say."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return math.inf
    return found if found > 0 else math.inf


def room(name: str, value: int, needed: Callable[[int], float]) -> int:
    """A count whose arrays the memory of this machine can hold at all: a system that promises more
    memory than it has does not refuse, but ends the process when it is used.

    Args:
      needed: the bytes that so many take at least.
    """
    have = _memory()
    if needed(value) > have:
        most, over = 0, value
        while over - most > 1:
            middle = (most + over) // 2
            most, over = (middle, over) if needed(middle) <= have else (most, middle)
        fitting = f"at most about {float(f'{most:.2g}'):,.0f} in {have / 2**30:.0f} GiB of memory"
        fail(name, fitting, value)
    return value


def horizon(name: str, value: Any) -> int | float:
    """A number of messages, or infinity."""
    if _is_one_number(value, "iu") and hasattr(value, "__index__"):
        return natural(name, value)
    if not _is_one_number(value, "f"):
        raise TypeError(f"{name} must be a whole number, got {_short(value)}")
    found = real(name, value)
    if found < 0 or not (math.isinf(found) or found.is_integer()):
        fail(name, "a whole number of messages, or inf", found)
    return math.inf if math.isinf(found) else _at_most(name, int(found))


def fraction(name: str, value: Any) -> float:
    value = number(name, value)
    if not 0 < value < 1:
        fail(name, "strictly between 0 and 1", value)
    return value


def share(name: str, value: Any) -> float:
    value = number(name, value)
    if not 0 < value <= 1:
        fail(name, "above 0 and at most 1", value)
    return value


def interval(name: str, value: Any) -> tuple[float, float]:
    """Two numbers in order, infinities included."""
    if not is_sequence(value) or len(value) != 2:
        fail(name, "two numbers, the lower one first", value)
    low, high = (real(name, end) for end in value)
    if low > high:
        fail(name, "two numbers, the lower one first", (low, high))
    return low, high


def is_sequence(value: Any) -> bool:
    """Several values in order: a list, a tuple, an array with an axis."""
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def each(rule: Callable[[str, Any], T]) -> Callable[[str, Any], tuple[T, ...]]:
    """The rule for every one of several values."""

    def apply(name: str, values: Any) -> tuple[T, ...]:
        if (
            isinstance(values, (str, Mapping))
            or not isinstance(values, Iterable)
            or getattr(values, "ndim", 1) == 0
        ):
            fail(name, "a list", values)
        return tuple(rule(name, value) for value in values)

    return apply


def plain(name: str, value: Any) -> Any:
    """A number of Python's own, whole where it was whole, or several of them;
    what is no number is refused.
    """
    if value is None:
        return None
    if getattr(value, "ndim", 0) > 0:
        if value.dtype.kind not in "iu":
            return array(name, value)
        if value.size and int(np.max(value)) >= 2**63:
            fail(name, "below 2^63", int(np.max(value)))
        return np.asarray(value, np.int64)
    if is_sequence(value):
        return tuple(plain(name, one) for one in value)
    if _is_one_number(value, "iu") and hasattr(value, "__index__"):
        return int(operator.index(value))
    return _nearest(name, value)


_NUMBERS = re.compile(r"(?:float|int|None|Sequence|tuple|list|[\s|,.\[\]])+")


def plain_arguments(function: F) -> F:
    """Arguments that are annotated as numbers reach the function as Python's own:
    for formulas, which go on to use them as they come.
    """
    signature = inspect.signature(function)
    known = {
        name for name, p in signature.parameters.items() if _NUMBERS.fullmatch(str(p.annotation))
    }

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = bound_arguments(function.__name__, signature, args, kwargs)
        for name in known & found.arguments.keys():
            found.arguments[name] = plain(name, found.arguments[name])
        return function(*found.args, **found.kwargs)

    # For the test that every number is seen to.
    call.plain_arguments = known  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def array(name: str, values: Any) -> np.ndarray:
    """Real numbers (or yes and no, as 1 and 0) as float64:
    whatever is computed from them is computed in that.
    """
    try:
        found = np.asarray(values)
        if found.dtype.kind == "O":  # fractions, decimals, or something else altogether
            found = np.array([real(name, value) for value in found.ravel()], np.float64).reshape(
                found.shape
            )
        if found.dtype.kind not in "biufV":
            raise TypeError(f"{found.dtype} is no type of real numbers")
        # What float64 cannot hold becomes infinite, and is refused where it matters.
        with np.errstate(over="ignore"):
            return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers: {error}") from error


def kept(values: np.ndarray) -> np.ndarray:
    """The same numbers, which nobody can write to by this name."""
    view = values.view()
    view.flags.writeable = False
    return view


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """A known word; an unknown one is answered with the nearest known one."""
    allowed = list(allowed)
    if not _holds_rows(value) and value in allowed:
        return value
    raise ValueError(_not_one_of(name, value, allowed))


def _not_one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """That a word is none of those, and which it may have been meant to be."""
    allowed = list(allowed)
    near = difflib.get_close_matches(str(value).replace("_", "-"), allowed, n=1, cutoff=0.5)
    near = near or difflib.get_close_matches(str(value), allowed, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{name} must be one of {', '.join(allowed)}, got {said(value)}{hint}"


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false, got {said(value)}")
    return value


def instance(name: str, value: Any, kind: type | tuple[type, ...], hint: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {hint}, got {_short(value)}")


def per_agent(name: str, value: Any, agents: int) -> list[float]:
    """One positive number for all agents, or one for each."""
    if not is_sequence(value):
        return [positive(name, value)] * agents
    if len(value) != agents:
        fail(name, f"one number, or one for each of the {agents} agents", list(value))
    return [positive(name, v) for v in value]


_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def known_arguments(item: T) -> T:
    """A function, or a class that is built by its `__init__`, whose callers are told which
    arguments it takes if they give another or leave one out. What an editor, `help` and
    `inspect.signature` show stays as it was. It is a TypeError, as Python's own is.

    Args:
      item: the function or class.
    """
    if inspect.isclass(item):
        item.__init__ = _told(item.__init__, item.__name__)  # type: ignore[method-assign]
        return item
    return _told(item, item.__name__)  # type: ignore[attr-defined]


signature = functools.cache(inspect.signature)


def _told(function: Any, called: str) -> Any:
    taken = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound_arguments(called, taken, args, kwargs)
        return function(*args, **kwargs)

    return call


def bound_arguments(
    called: str, taken: inspect.Signature, args: tuple, kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """The arguments by the names that the signature has for them.

    Args:
      called: what the function or class is called.
      taken: its signature; of a method with `self`.
      args, kwargs: as somebody gave them; of a method with its object.
    """
    try:
        return taken.bind(*args, **kwargs)
    except TypeError as error:
        _refuse(called, taken, args, kwargs)
        raise TypeError(f"{called}: {error}") from None


def _refuse(called: str, taken: inspect.Signature, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Says what is wrong with them."""
    every = taken.parameters
    named = [n for n, p in every.items() if n != "self" and p.kind not in _ANY_NUMBER]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in every.values())
    for key in kwargs:
        if key not in named and not open_ended:
            known = _not_one_of(f"argument of {called}", key, named)
            raise TypeError(known if named else f"{called} takes no arguments, got {key!r}")
    in_order = [
        n for n, p in every.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(args) > len(in_order):
        first = [n for n in in_order if n != "self"]
        rest = [n for n in named if n not in first]
        rule = f"at most {', '.join(first)}" if first else "left out"
        by_name = f" (by their names: {', '.join(f'{n}=...' for n in rest)})" if rest else ""
        given = len(args) - len(in_order) + len(first)
        raise TypeError(
            f"arguments of {called} without a name must be {rule}{by_name}, got {given}"
        )
    filled = in_order[: len(args)]
    for key in kwargs:
        if key in filled:
            raise TypeError(f"{key} must be given once, got it twice in {called}(...)")
    for name in named:
        empty = every[name].default is inspect.Parameter.empty
        if empty and name not in kwargs and name not in filled:
            raise TypeError(f"{name} must be given: {called}({', '.join(named)})")
