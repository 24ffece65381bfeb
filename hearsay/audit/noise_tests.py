"""Is this noise what it is said to be?

Tests of residuals that are independent and of one known law if it is (NumPy and SciPy only).

Residuals x (run, round, agent, coordinate), in units of the claimed scale; NaN where a message
carries no noise. Laplace noise has P(|x| > t) = exp(-t), Gaussian noise is standard normal.

    law        largest distance D of the distribution functions; p = 2 exp(-2 n D^2) is a bound for
               every n (Dvoretzky, Kiefer and Wolfowitz, with Massart's constant)
    tails      how many |x| are above 3, and how large the largest is: noise that is cut off has
               too small a one
    scale      sum |x| is Gamma(n) under Laplace noise, sum x^2 is chi-square with n degrees of
               freedom under Gaussian noise; all together, every agent, every round
    sides      as many above 0 as below
    relations  of pairs that are so many rounds (agents, coordinates, fields, runs) apart half have
               equal signs, and half are both above or both below the median size. For one distance
               the pairs form paths, and along a path the products of fair signs are independent
               fair signs: the count is binomial, exactly
    repeats    sorted, hardly any two neighbours are as near as rounding errors; the expected number
               of such pairs bounds the chance (Markov)

Every p-value is exact or too large, so with m tests p m is a valid p-value for all of them together
(Bonferroni), whatever they have to do with each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from hearsay.mechanisms import Mechanism

_FAR = 3.0
# Values among which repeats are looked for: with more, chance meetings would hide them.
_SORTED = 20_000
_NEAR = 8  # distances 1 .. _NEAR, and some larger ones

KINDS = {
    "asked": "the code asks for the scale that the certificate counts",
    "support": "nothing is sent that the mechanism cannot send",
    "law": "the noise has the claimed distribution",
    "tails": "large draws are as frequent as claimed, and none are cut off",
    "scale": "the noise is as large as claimed, for every agent and in every round",
    "sides": "the noise goes up as often as down",
    "rounds": "draws of different rounds have nothing to do with each other",
    "agents": "draws of different agents have nothing to do with each other",
    "coordinates": "draws of different coordinates have nothing to do with each other",
    "fields": "draws of different message fields have nothing to do with each other",
    "runs": "draws of different runs have nothing to do with each other",
    "repeats": "no draw is used twice",
    "pairs": "what different pairs of agents share has nothing to do with each other",
    "ends": "what a pair shares is added at one end and subtracted at the other",
}


@dataclass(frozen=True)
class Test:
    """One p-value.

    kind: a key of KINDS; where: what of the residuals; numbers: how many entered; effect:
    what was seen, in words; means: what is wrong where it fails, if that is known.
    """

    __test__ = False  # not for pytest

    kind: str
    where: str
    numbers: int
    p: float
    effect: str
    means: str = ""


def of_values(
    field: str, x: np.ndarray, law: Mechanism, rounding: float, member: str = "agent"
) -> Iterator[Test]:
    """Everything about one field's residuals but how they relate.

    rounding: how far apart two of them may be that stand for the same draw. member: what the third
    axis counts.
    """
    yield from tail_tests(field, x, law)
    yield from sides(field, x)
    for where, part in groups(field, x, member):
        yield from distribution(where, part, law)
        yield from scale(where, part, law)
    yield from repeats(field, x, law, rounding)


def groups(field: str, x: np.ndarray, member: str = "agent") -> Iterator[tuple[str, np.ndarray]]:
    """All of it, every agent, every round; without what carries no noise."""
    parts = [(field, x)]
    if x.shape[2] > 1:
        parts += [(f"{field}, {member} {one}", x[:, :, one]) for one in range(x.shape[2])]
    if x.shape[1] > 1:
        parts += [(f"{field}, round {step}", x[:, step]) for step in range(x.shape[1])]
    for where, part in parts:
        values = part[np.isfinite(part)]
        if values.size:
            yield where, values


def distribution(where: str, values: np.ndarray, law: Mechanism) -> Iterator[Test]:
    n, level = len(values), law.standard.cdf(np.sort(values))
    distance = float(max(np.max(np.arange(1, n + 1) / n - level), np.max(level - np.arange(n) / n)))
    yield Test(
        "law",
        where,
        n,
        min(1.0, 2 * np.exp(-2 * n * distance**2)),
        f"distance {distance:.3g} from the claimed distribution",
    )


def scale(where: str, values: np.ndarray, law: Mechanism) -> Iterator[Test]:
    ratio, smaller, larger = law.size(values)
    p = two_sided(smaller, larger)
    yield Test("scale", where, len(values), p, f"scale {100 * ratio:.4g} % of the claimed one")


def tail_tests(field: str, x: np.ndarray, law: Mechanism) -> Iterator[Test]:
    sizes = np.abs(x[np.isfinite(x)])
    if sizes.size == 0:
        return
    n, chance = len(sizes), 2 * law.standard.sf(_FAR)
    count = int(np.sum(sizes > _FAR))
    p = binomial(count, n, chance)
    yield Test(
        "tails", field, n, p, f"{count:,} draws beyond {_FAR:g} scales, {n * chance:,.1f} expected"
    )
    largest = float(sizes.max())
    beyond = np.log1p(-min(2 * law.standard.sf(largest), 1.0)) if largest > 0 else -np.inf
    p = two_sided(np.exp(n * beyond), -np.expm1(n * beyond))
    usual = float(law.standard.isf(np.log(2) / n / 2))
    yield Test(
        "tails", field, n, p, f"the largest draw has {largest:.3g} scales, {usual:.3g} is usual"
    )


def sides(field: str, x: np.ndarray) -> Iterator[Test]:
    values = x[np.isfinite(x) & (x != 0)]
    if values.size:
        up = int(np.sum(values > 0))
        yield Test(
            "sides",
            field,
            len(values),
            binomial(up, len(values), 0.5),
            f"{100 * up / len(values):.4g} % above 0",
        )


def repeats(field: str, x: np.ndarray, law: Mechanism, rounding: float) -> Iterator[Test]:
    values = x[np.isfinite(x)][:_SORTED]  # whole runs one after the other
    if len(values) < 2 or rounding <= 0:
        return
    pairs = int(np.sum(np.diff(np.sort(values)) <= rounding))
    expected = len(values) ** 2 * rounding * law.crowding
    p = 1.0 if pairs == 0 else min(1.0, expected / pairs)
    yield Test(
        "repeats", field, len(values), p, f"{pairs:,} pairs of equal draws, {expected:.1g} expected"
    )


def relations(
    fields: dict[str, np.ndarray], law: Mechanism, members: str = "agents"
) -> Iterator[Test]:
    """How values of different rounds, agents (or pairs), coordinates, runs and fields relate:
    signs, and sizes above or below the median.
    """
    middle = float(law.standard.ppf(0.75))
    for field, x in fields.items():
        for axis, kind, unit in (
            (1, "rounds", "round"),
            (2, members, members.removesuffix("s")),
            (3, "coordinates", "coordinate"),
            (0, "runs", "run"),
        ):
            for lag in distances(x.shape[axis], kind):
                first, second = (
                    np.moveaxis(x, axis, 0)[part] for part in (slice(None, -lag), slice(lag, None))
                )
                apart = f"{field}, {lag} {unit}{'' if lag == 1 else 's'} apart"
                yield from agreement(kind, apart, first, second, middle)
    names = list(fields)
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            if fields[one].shape == fields[other].shape:
                yield from agreement(
                    "fields", f"{one} and {other}", fields[one], fields[other], middle
                )


def distances(size: int, kind: str) -> list[int]:
    """The nearest ones, and a quarter, half and all of the way: a generator that repeats itself
    does so at such places. Runs have no order: one neighbour is enough.
    """
    wanted = {1} if kind == "runs" else {*range(1, _NEAR + 1), size // 4, size // 2, size - 1}
    return sorted(lag for lag in wanted if 1 <= lag < size)


def agreement(
    kind: str, where: str, first: np.ndarray, second: np.ndarray, middle: float
) -> Iterator[Test]:
    both = np.isfinite(first) & np.isfinite(second) & (first != 0) & (second != 0)
    first, second = first[both], second[both]
    if first.size == 0:
        return
    for what, equal in (
        ("the same sign", (first > 0) == (second > 0)),
        ("both large or both small", (np.abs(first) > middle) == (np.abs(second) > middle)),
    ):
        count, n = int(equal.sum()), len(equal)
        yield Test(
            kind,
            where,
            n,
            binomial(count, n, 0.5),
            f"{100 * count / n:.4g} % of the pairs have {what}"
            if what.startswith("the")
            else f"{100 * count / n:.4g} % of the pairs are {what}",
        )


def rate(where: str, hits: np.ndarray, chances: np.ndarray) -> Iterator[Test]:
    """As many hits as their (different) chances say: Bernstein's inequality."""
    n, away = len(hits), abs(float(hits.sum() - chances.sum()))
    spread = float(np.sum(chances * (1 - chances)))
    p = 1.0 if away == 0 else min(1.0, 2 * float(np.exp(-(away**2) / (2 * (spread + away / 3)))))
    yield Test(
        "scale", where, n, p, f"{int(hits.sum()):,} values are not 0, {chances.sum():,.1f} expected"
    )


def binomial(count: int, n: int, chance: float) -> float:
    """Two-sided and exact: twice the smaller tail."""
    below = special.bdtr(count, n, chance) if n < 2**31 else stats.binom.cdf(count, n, chance)
    above = 1.0 if count == 0 else special.bdtrc(count - 1, n, chance)
    return two_sided(float(below), float(above))


def two_sided(below: float, above: float) -> float:
    return float(min(1.0, 2 * min(below, above)))


__all__ = ["KINDS", "Test", "groups", "of_values", "rate", "relations", "scale"]
