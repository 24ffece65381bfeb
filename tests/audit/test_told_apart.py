"""Classes and options of one name and one repr are told apart by what they hold."""

from __future__ import annotations

import enum
from collections import namedtuple
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.certification.told_apart import UNKNOWN, of_class, of_value

FACTOR = 2.0


def factor():
    return FACTOR


@jax.jit
def compiled():
    return jnp.sqrt(2.0)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Helper:
    weight = 1.0


@jax.jit
@wraps(factor)
def wrapped():
    return 1.0


@dataclass(frozen=True)
class Hiding:
    weight: float

    def __repr__(self):
        return "Hiding()"


@dataclass(frozen=True, slots=True)
class Slotted:
    weight: float


class Pairs(tuple):
    weight = 1.0


class Masked(np.ndarray):
    weight = 1.0


def made(weight: float):
    """Of one name each: a class, one of its objects, an enumeration, a named tuple, a function with
    an attribute, and one around another.
    """

    @dataclass(frozen=True)
    class Rule:
        def apply(self):
            return weight

    class Kind(enum.Enum):
        ONE = weight

    def plain():
        return plain.weight

    plain.weight = weight

    @wraps(factor)
    def around():
        return weight * factor()

    fields = namedtuple("fields", f"a{weight:.0f}")(1)
    return Rule, Rule(), Kind.ONE, plain, around, fields


RULE = Hiding(1.0)


def long(last: float) -> np.ndarray:
    return np.append(np.zeros(5000), [last, *np.zeros(5000)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (long(1.0), long(2.0)),
        (jnp.asarray(long(1.0)), jnp.asarray(long(2.0))),
        (Hiding(1.0), Hiding(2.0)),
        ({"a": Hiding(1.0)}, {"a": Hiding(2.0)}),
        (1, 1.0),
        (1, True),
        ("1", 1),
        ([1], (1,)),
        (("a", "b"), ("a,b",)),
        (("a,str 'b",), ("a", "b")),
        (Colour.RED, Colour.BLUE),
        (np.float32(1), np.float64(1)),
        (np.zeros(4), np.zeros((2, 2))),
        (hs.Constant(1.0), hs.Constant(1.0000000000000002)),
        (hs.Cyclic(2), hs.Fresh(2)),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x, y=1: x, lambda x, y=2: x),
        (Path("a"), "a"),
        *zip(made(1.0), made(2.0), strict=True),
        (jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)),
        (None, "None"),
    ],
)
def test_values_are_told_apart(one, other):
    assert of_value(one) != of_value(other)
    assert UNKNOWN not in of_value(one) + of_value(other)


def test_the_same_contents_are_the_same_text():
    assert of_value(long(1.0)) == of_value(long(1.0))
    assert of_value({"a": 1, "b": 2}) == of_value({"b": 2, "a": 1})
    assert of_value({"x", "y", "z"}) == of_value({"z", "y", "x"})
    around: list = [1]
    around.append(around)
    assert "itself" in of_value(around)


def test_what_shows_no_contents_is_unknown_and_a_question_mark_is_not():
    assert UNKNOWN in of_value(object()) and UNKNOWN in of_value([{1: object()}])
    assert UNKNOWN in of_value(np.array([object()]))
    assert UNKNOWN not in of_value(("why?", Path("what?"), b"?"))
    # What may hold more than it shows, or cannot be read.
    for hiding in (Pairs((1,)), np.zeros(2).view(Masked), Slotted(1.0), jax.random.key(0)):
        assert UNKNOWN in of_value(hiding), hiding


class Plain:
    level = 1.0

    def method(self):
        return self.level * factor() * RULE.weight + compiled() * Helper.weight + wrapped()

    def elsewhere(self):
        return dataclass, jnp.sqrt

    @property
    def shown(self):
        return self.level

    @cached_property
    def kept(self):
        return [self.level for _ in range(3)]

    @staticmethod
    def alone():
        return 1


CHANGES = {
    "an attribute": lambda m: m.setattr(Plain, "level", 2.0),
    "a method": lambda m: m.setattr(Plain, "method", lambda self: self.level),
    "a property": lambda m: m.setattr(Plain, "shown", property(lambda self: 3)),
    "a static method": lambda m: m.setattr(Plain, "alone", staticmethod(lambda: 2)),
    "a helper of the module": lambda m: m.setitem(globals(), "factor", lambda: 3.0),
    "a number of the module": lambda m: m.setitem(globals(), "FACTOR", 3.0),
    "an object of the module": lambda m: m.setitem(globals(), "RULE", Hiding(3.0)),
    "a compiled helper": lambda m: m.setitem(globals(), "compiled", jax.jit(lambda: 3.0)),
    "how an object does it": lambda m: m.setattr(Hiding, "__repr__", lambda self: "no"),
    "a class of the module": lambda m: m.setattr(Helper, "weight", 2.0),
    "what is inside a wrapper": lambda m: m.setitem(
        globals(), "wrapped", jax.jit(wraps(factor)(lambda: 2.0))
    ),
    "a function of another module": lambda m: m.setitem(globals(), "dataclass", wraps),
    "another module": lambda m: m.setitem(globals(), "jnp", np),
    "a default": lambda m: m.setattr(Plain.method, "__defaults__", (1,)),
    "something new": lambda m: m.setattr(Plain, "more", 1, raising=False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_class_is_what_it_holds_now(change, monkeypatch):
    before, whole = of_class(Plain)
    assert whole and of_class(Plain) == (before, True)
    CHANGES[change](monkeypatch)
    assert of_class(Plain)[0] != before
    monkeypatch.undo()
    assert of_class(Plain)[0] == before


def test_classes_of_one_function_are_told_apart_by_what_they_close_over():
    def made(weight):
        class Made:
            def method(self):
                return weight

        return Made

    assert of_class(made(1.0)) == of_class(made(1.0))
    assert of_class(made(1.0)) != of_class(made(2.0))
    assert of_class(made(object()))[1] is False


def test_helpers_that_all_call_one_another_are_described_once():
    """Described along every way from one to another they would take hours."""
    names = [f"helper_{i}" for i in range(16)]
    body = "".join(f"def {name}():\n    return {', '.join(names)}\n\n" for name in names)
    body += "class Made:\n    def method(self):\n        return helper_0()\n"
    module: dict = {"__name__": "made"}
    exec(compile(body, "made.py", "exec"), module)
    before = of_class(module["Made"])
    assert before[1] and of_class(module["Made"]) == before
    module["helper_15"] = lambda: 1
    assert of_class(module["Made"]) != before
