"""Schedules: sequences indexed by the step k = 0, 1, 2, ...

A schedule is data: a frozen object whose scale, exponent and shift can be read by the run, by the
privacy accountant and by the theory checks alike. It is evaluated on the host in float64.

    Constant(c)           c
    PowerLaw(c, p, s)     c (k + s)^p               shift s = 1 unless said otherwise
    Geometric(c, r)       c r^k
    SampleSize(law)       ceil(law(k)), a whole number of records (floor(law) + 1 with
                          rounding="floor+1")
    Share(c, size, held)  c / min(size(k), held): what one record weighs in a mean over size(k) of
                          the `held` records; with `repeats` the same record may fill a whole batch
                          (draws with replacement), so it weighs c until the batch is all of them
    Arrived(first, each)  first + (k + 1) each: how many records have arrived
    Product(f, g)         f(k) g(k)
    Quotient(f, g)        f(k) / g(k)

Over an infinite horizon the accountant needs power laws: `upper()` gives one that lies on or above
the schedule for every k.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import numpy as np

from hearsay import _validate as require


class Schedule(ABC):
    """A sequence of real numbers; call it with a step or an array of steps."""

    @abstractmethod
    def __call__(self, k: Any) -> np.ndarray: ...

    @abstractmethod
    def scaled(self, factor: float) -> Schedule: ...

    def upper(self) -> PowerLaw | None:
        """A power law on or above the schedule at every step,
        or None where there is none to offer.
        """
        return None

    def to_dict(self) -> dict[str, Any]:
        parts = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        inner = {
            name: part.to_dict() if isinstance(part, Schedule) else part
            for name, part in parts.items()
        }
        return {"kind": type(self).__name__, **inner}


@dataclass(frozen=True)
class Constant(Schedule):
    """The same number at every step.

    Args:
      value: the number.

    Example:
      >>> import hearsay as hs
      >>> hs.Constant(0.5)([0, 10]).tolist()
      [0.5, 0.5]
    """

    value: float

    def __post_init__(self) -> None:
        require.settle(self, value=require.number)

    def __call__(self, k: Any) -> np.ndarray:
        return np.full(np.shape(k), self.value)

    def scaled(self, factor: float) -> Constant:
        return Constant(self.value * require.number("factor", factor))

    def upper(self) -> PowerLaw:
        return PowerLaw(self.value, 0.0)

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True)
class PowerLaw(Schedule):
    """scale * (k + shift)^exponent.

    Args:
      scale: the factor.
      exponent: below 0 the schedule falls.
      shift: what is added to the step, so that step 0 has a value.

    Example:
      >>> import hearsay as hs
      >>> hs.PowerLaw(6.0, -1.0)([0, 1, 2]).tolist()
      [6.0, 3.0, 2.0]
    """

    scale: float
    exponent: float
    shift: float = 1.0

    def __post_init__(self) -> None:
        require.settle(self, scale=require.number, exponent=require.number, shift=require.positive)

    def __call__(self, k: Any) -> np.ndarray:
        return self.scale * (np.asarray(k, dtype=np.float64) + self.shift) ** self.exponent

    def scaled(self, factor: float) -> PowerLaw:
        return replace(self, scale=self.scale * require.number("factor", factor))

    def upper(self) -> PowerLaw:
        return self

    def __str__(self) -> str:
        return f"{self.scale:g}*(k+{self.shift:g})^{self.exponent:g}"


@dataclass(frozen=True)
class Geometric(Schedule):
    """scale * ratio^k.

    Args:
      scale: the value at step 0.
      ratio: of one step to the one before it.

    Example:
      >>> import hearsay as hs
      >>> hs.Geometric(1.0, 0.5)([0, 1, 2]).tolist()
      [1.0, 0.5, 0.25]
    """

    scale: float
    ratio: float

    def __post_init__(self) -> None:
        require.settle(self, scale=require.number, ratio=require.positive)

    def __call__(self, k: Any) -> np.ndarray:
        return self.scale * self.ratio ** np.asarray(k, dtype=np.float64)

    def scaled(self, factor: float) -> Geometric:
        return replace(self, scale=self.scale * require.number("factor", factor))

    def upper(self) -> PowerLaw | None:
        return PowerLaw(self.scale, 0.0) if self.ratio <= 1 and self.scale >= 0 else None

    def __str__(self) -> str:
        return f"{self.scale:g}*{self.ratio:g}^k"


@dataclass(frozen=True)
class SampleSize(Schedule):
    """A schedule rounded to whole records, never below one.

    Args:
      law: the schedule.
      rounding: "ceil", or "floor+1".

    Example:
      >>> import hearsay as hs
      >>> hs.SampleSize("(k+1)^1.5")([0, 1, 2]).tolist()
      [1.0, 3.0, 6.0]
    """

    law: Schedule
    rounding: str = "ceil"

    def __post_init__(self) -> None:
        require.one_of("rounding", self.rounding, ["ceil", "floor+1"])
        require.settle(self, law=schedule)
        first = float(self.law(0))
        if first < 0 or (first == 0 and self.rounding == "ceil"):
            require.fail("law", "positive at step 0", first)

    def __call__(self, k: Any) -> np.ndarray:
        # A power of an integer that is a whole number may come out of pow one digit above it:
        # without the correction ceil would add a record.
        value = np.asarray(self.law(k))
        near = np.rint(value)
        with np.errstate(invalid="ignore"):  # infinity less itself
            value = np.where(np.abs(value - near) < 1e-9 * np.maximum(1.0, near), near, value)
        rounded = np.ceil(value) if self.rounding == "ceil" else np.floor(value) + 1.0
        return np.maximum(rounded, 1.0)

    def scaled(self, factor: float) -> Schedule:
        raise TypeError(
            "a sample size is a count of records and cannot be scaled; change its law instead"
        )

    def __str__(self) -> str:
        return f"ceil({self.law})" if self.rounding == "ceil" else f"floor({self.law})+1"


@dataclass(frozen=True)
class Share(Schedule):
    """scale / min(size(k), held): the weight of one record in a mean over min(size(k),
    held) records.
    """

    scale: float
    size: Schedule
    held: float = math.inf
    repeats: bool = False

    def __post_init__(self) -> None:
        require.settle(
            self,
            scale=require.nonnegative,
            size=schedule,
            held=require.positive_or_infinite,
            repeats=require.flag,
        )

    def __call__(self, k: Any) -> np.ndarray:
        size = self.size(k)
        if self.repeats:
            return np.where(
                (size < self.held) | math.isinf(self.held), self.scale, self.scale / self.held
            )
        return self.scale / np.minimum(size, self.held)

    def scaled(self, factor: float) -> Share:
        return replace(self, scale=self.scale * require.number("factor", factor))

    def upper(self) -> PowerLaw | None:
        if self.repeats:
            return PowerLaw(self.scale, 0.0)
        if math.isfinite(self.held):  # the mean stops widening once every record is in it
            return None
        law = self.size.law if isinstance(self.size, SampleSize) else self.size
        if isinstance(law, Constant):
            law = PowerLaw(float(self.size(0)), 0.0)
        # The nudge in SampleSize may round down by a relative 1e-9: the bound gives that much away.
        return (
            PowerLaw(self.scale / law.scale * (1 + 2e-9), -law.exponent, law.shift)
            if isinstance(law, PowerLaw)
            else None
        )

    def __str__(self) -> str:
        held = f", held {self.held:g}" if math.isfinite(self.held) else ""
        if self.repeats:
            return (
                f"{self.scale:g} until {self.size} reaches {self.held:g}, then"
                f" {self.scale / self.held:g}"
                if held
                else f"{self.scale:g}"
            )
        return f"{self.scale:g}/({self.size}{held})"


@dataclass(frozen=True)
class Arrived(Schedule):
    """first + (k + 1) * each: the records that have arrived once step k has begun."""

    first: int
    each: int

    def __post_init__(self) -> None:
        require.settle(self, first=require.natural, each=require.count)

    def __call__(self, k: Any) -> np.ndarray:
        return self.first + (np.asarray(k) + 1.0) * self.each

    def scaled(self, factor: float) -> Schedule:
        raise TypeError("a count of records cannot be scaled")

    def __str__(self) -> str:
        return f"{self.first}+{self.each}*(k+1)"


@dataclass(frozen=True)
class Product(Schedule):
    """first(k) * second(k)."""

    first: Schedule
    second: Schedule

    def __post_init__(self) -> None:
        require.settle(self, first=schedule, second=schedule)

    def __call__(self, k: Any) -> np.ndarray:
        return self.first(k) * self.second(k)

    def scaled(self, factor: float) -> Product:
        return Product(self.first, self.second.scaled(factor))

    def __str__(self) -> str:
        return f"({self.first})*({self.second})"


@dataclass(frozen=True)
class Quotient(Schedule):
    """first(k) / second(k)."""

    first: Schedule
    second: Schedule

    def __post_init__(self) -> None:
        require.settle(self, first=schedule, second=schedule)
        if float(self.second(0)) == 0:
            require.fail("second", "other than zero", 0.0)

    def __call__(self, k: Any) -> np.ndarray:
        return self.first(k) / self.second(k)

    def scaled(self, factor: float) -> Quotient:
        return Quotient(self.first.scaled(factor), self.second)

    def __str__(self) -> str:
        return f"({self.first})/({self.second})"


# Every kind by its name, as a certificate's description writes it.
SCHEDULES: dict[str, type[Schedule]] = {
    kind.__name__: kind
    for kind in (Constant, PowerLaw, Geometric, SampleSize, Share, Arrived, Product, Quotient)
}


def sample_size(name: str, value: Any) -> SampleSize:
    """Records per step: a whole number, or a law that never falls below one,
    rounded up ("floor(law)+1" rounds the other way).
    """
    if isinstance(value, SampleSize):
        law, rounding = value.law, value.rounding
    elif isinstance(value, dict) and value.get("kind") == "SampleSize":
        for key in value.keys() - {"kind"}:
            require.one_of(f"{name} key", key, ["law", "rounding"])
        if "law" not in value:
            raise ValueError(f"{name} needs a law to be a SampleSize, got {value!r}")
        law, rounding = schedule(name, value["law"]), value.get("rounding", "ceil")
    else:
        ceil, floor = (
            pattern.match(value) if isinstance(value, str) else None for pattern in (_CEIL, _FLOOR)
        )
        text = ceil[1] if ceil else floor[1] if floor else value
        law, rounding = schedule(name, text), "floor+1" if floor else "ceil"
        if (
            not ceil
            and not floor
            and isinstance(law, Constant)
            and law.value >= 1
            and law.value != int(law.value)
        ):
            require.fail(name, "a whole number of records, or a law that grows", law.value)
    first = float(law(0))
    if first < (0 if rounding == "floor+1" else 1):
        require.fail(name, "at least 1 record at every step", f"{first:g} at step 0")
    if float(law(1)) < first * (1 - 1e-12):
        require.fail(name, "at least 1 record at every step, so it must not fall", law)
    return value if isinstance(value, SampleSize) else SampleSize(law, rounding)


def nonnegative(name: str, value: Any) -> Schedule:
    """A schedule that is never negative (a step size, a coupling, a noise scale)."""
    found = schedule(name, value)
    first = float(found(0))
    if not first >= 0:
        require.fail(name, "zero or positive", first)
    return found


def below_one(name: str, value: Any) -> Schedule:
    """A schedule that is never negative and stays below 1 (a share of the way to an average)."""
    found = nonnegative(name, value)
    worst = max((0, 1, 10**6), key=lambda k: float(found(k)))
    if float(found(worst)) >= 1:
        require.fail(name, "below 1 at every step", f"{float(found(worst)):g} at step {worst}")
    return found


_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_POWER = re.compile(
    rf"^\s*(?:({_NUMBER})\s*\*?\s*)?\(k\s*\+\s*({_NUMBER})\)\s*(?:\^|\*\*)\s*\(?({_NUMBER})\)?\s*$"
)
_CEIL, _FLOOR = re.compile(r"^\s*ceil\((.*)\)\s*$"), re.compile(r"^\s*floor\((.*)\)\s*\+\s*1\s*$")
_GEOMETRIC = re.compile(rf"^\s*(?:({_NUMBER})\s*\*\s*)?({_NUMBER})\s*(?:\^|\*\*)\s*k\s*$")


def schedule(name: str, value: Any) -> Schedule:
    """Read a schedule from what people write: a number, "0.5*(k+1)^-0.9", "0.5*0.98^k",
    or a table of fields.
    """
    if isinstance(value, Schedule):
        return value
    if isinstance(value, dict):
        kinds: dict[str, type[Schedule]] = {
            "Constant": Constant,
            "PowerLaw": PowerLaw,
            "Geometric": Geometric,
        }
        given = dict(value)
        kind = given.pop(
            "kind",
            "Geometric" if "ratio" in given else "Constant" if "value" in given else "PowerLaw",
        )
        kind = require.one_of(f"{name}.kind", kind, kinds)
        parts = fields(kinds[kind])  # type: ignore[arg-type]
        known = [f.name for f in parts]
        for key in given:
            require.one_of(f"{name} key", key, known)
        missing = [f.name for f in parts if f.default is MISSING and f.name not in given]
        if missing:
            raise ValueError(f"{name} needs {' and '.join(missing)} to be a {kind}, got {value!r}")
        return kinds[kind](**given)
    if isinstance(value, str):
        if power := _POWER.match(value):
            return PowerLaw(float(power[1] or 1.0), float(power[3]), float(power[2]))
        if geometric := _GEOMETRIC.match(value):
            return Geometric(float(geometric[1] or 1.0), float(geometric[2]))
        try:
            value = float(value)
        except ValueError:
            require.fail(name, 'a number, "c*(k+s)^p" or "c*r^k"', value)
    return Constant(require.number(name, value))
