"""Classes and options of one name and one repr are told apart by what they hold."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.certification.told_apart import UNKNOWN, of_class, of_value

FACTOR = 2.0


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Hiding:
    weight: float

    def __repr__(self):
        return "Hiding()"


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


def factor():
    return FACTOR


class Plain:
    level = 1.0

    def method(self):
        return self.level * factor()

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
