"""A search for certificates that depend on the TYPE of a number: random configurations whose
numbers have random types, each held against two things.

    twin    the same configuration in plain floats and ints: its certificate must be the same to the
            last digit, its calibrated noise too
    attack  audit/search.py on the very configuration: no pair of neighbouring data sets and no
            transcript may move a message further than certified

A type may be refused where its plain value is accepted (a fraction as a number of records), but
then by name. What is refused in plain is of no interest.

    python -m benchmarks.number_search --minutes 10
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jax
import numpy as np

import hearsay as hs
from hearsay.audit.search import search
from hearsay.certification import messages_within
from hearsay.problems import from_arrays

FLOATS: dict[str, Callable[[float], Any]] = {
    "float": float,
    "float16": np.float16,
    "float32": np.float32,
    "longdouble": np.longdouble,
    "0-d": np.array,
    "0-d float16": lambda v: np.array(v, np.float16),
    "jax": lambda v: jax.numpy.asarray(v, np.float32),
    "Fraction": lambda v: Fraction(v).limit_denominator(10**6),
    "Decimal": lambda v: Decimal(repr(float(v))),
}
INTS: dict[str, Callable[[int], Any]] = {
    "int": int,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "0-d int8": lambda v: np.array(v, np.int8),
    "jax int8": lambda v: jax.numpy.asarray(v, np.int8),
}
TOP = {"int8": 127, "uint8": 255, "0-d int8": 127, "jax int8": 127}
ARRAYS = (np.float64, np.float32, np.float16, np.int8, np.uint8, np.int16)
AGENTS = 3
TOLERANCE = 1 + 1e-6


def plain(value: Any) -> Any:
    """The same numbers as Python's own."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if hasattr(value, "dtype"):
        return np.asarray(value, np.float64) if value.ndim else plain_one(value)
    return plain_one(value) if isinstance(value, (Fraction, Decimal)) else value


def plain_one(value: Any) -> int | float:
    return (
        int(value) if getattr(getattr(value, "dtype", None), "kind", "f") in "iu" else float(value)
    )


class Draw:
    """Random numbers in random types; `seen` counts the types."""

    def __init__(self, seed: int) -> None:
        self.rng, self.seen = np.random.default_rng(seed), Counter[str]()

    def number(self, low: float, high: float) -> Any:
        """Somewhere between (evenly in the logarithm), as a float of some type,
        or a whole number of some type where there is one.
        """
        value = float(np.exp(self.rng.uniform(np.log(low), np.log(high))))
        if high >= 1 and self.rng.random() < 0.5:
            return self.whole(max(1, math.ceil(low)), max(1, int(high)))
        return self._as(FLOATS, str(self.rng.choice(list(FLOATS))), value)

    def whole(self, low: int, high: int) -> Any:
        kind = str(self.rng.choice(list(INTS)))
        top = min(high, TOP.get(kind, high))
        # The largest that the type holds, half of the time: doubled it overflows.
        value = top if self.rng.random() < 0.5 else int(self.rng.integers(low, max(low, top) + 1))
        return self._as(INTS, kind, max(low, value))

    def _as(self, kinds: dict[str, Callable], kind: str, value: Any) -> Any:
        self.seen[kind] += 1
        return kinds[kind](value)

    def law(self, low: float, high: float) -> Any:
        if self.rng.random() < 0.6:
            return self.number(low, high)
        return {
            "scale": self.number(low, high),
            "exponent": self._as(
                FLOATS, str(self.rng.choice(list(FLOATS))), -float(self.rng.uniform(0.1, 0.9))
            ),
            "shift": self.number(1.0, 3.0),
        }

    def array(self, shape: tuple[int, ...], size: float) -> np.ndarray:
        dtype = self.rng.choice(np.array(ARRAYS, object))
        values = self.rng.uniform(-size, size, shape)
        top = np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 6e4
        return np.clip(values, 0 if dtype is np.uint8 else -top, top).astype(dtype)


def drawn(draw: Draw) -> dict[str, Any]:
    """A configuration: what each constructor gets."""
    rng, wide = draw.rng, float(10 ** draw.rng.uniform(-2, 2.4))
    name = str(rng.choice(list(hs.REGISTRY)))
    found: dict[str, Any] = {"name": name, "loss": str(rng.choice(["logistic", "ridge"]))}
    d, held = int(rng.integers(1, 3)), 6
    found["data"] = {
        "features": draw.array((held * AGENTS, d), wide),
        "feature_bound": draw.number(0.01, 255),
    }
    found["labels"] = rng.integers(0, 2, held * AGENTS)
    if found["loss"] == "ridge":
        found["data"]["label_bound"] = draw.number(0.1, 255)
    found["problem"] = {
        "ridge": draw.number(1e-3, 3),
        "radius": draw.number(0.1, 255),
        "per_step": draw.whole(1, 3),
        "seed": draw.whole(0, 100),
    }
    if rng.random() < 0.5:
        found["problem"]["clip"] = draw.number(0.01, 255)
    if rng.random() < 0.3:
        found["problem"]["head_start"] = draw.whole(0, 3)
    found["graph"] = {"agents": AGENTS, "weight": draw.number(0.01, 0.4)}
    options: dict[str, Any] = {
        "step": draw.number(0.001, 1) if "federated" in name else draw.law(0.001, 1)
    }
    if name != "federated-noiseless":
        level = draw.number if "federated" in name else draw.law
        options["noise"] = (
            level(0.1, 255) if rng.random() < 0.5 else [level(0.1, 255) for _ in range(AGENTS)]
        )
    if name in (
        "ldp-online",
        "gradient-tracking",
        "output-perturbation",
        "gradient-perturbation",
        "weighted-erm",
    ):
        options["coupling"] = draw.law(0.01, 0.9)
    if name == "gradient-tracking":
        options |= {"tracking": draw.law(0.01, 0.9), "tracker_noise": draw.law(0.1, 255)}
    if name == "weighted-erm":
        options["weights"] = [draw.number(0.1, 127) for _ in range(AGENTS)]
    if name == "sdm-dsgd":
        options |= {"keep": draw.number(0.5, 0.99), "coupling": draw.number(0.1, 0.4)}
    if name == "adp2sgd":
        options["activity"] = draw.number(0.1, 0.99)
    if name == "quantized-dsgd":
        options["resolution"] = draw.number(0.1, 10)
    if "federated" in name:
        options |= {"server": draw.number(0.1, 3), "horizon": draw.whole(6, 127)}
    found["options"], found["size"] = options, draw.whole(1, 3)
    found["sampler"] = str(
        rng.choice(
            ["Fresh", "Cyclic", "Subset", *([] if "federated" in name else ["Resample", "History"])]
        )
    )
    found["horizon"], found["epsilon"] = draw.whole(2, 6), draw.number(0.1, 100)
    found["delta"] = draw._as(FLOATS, str(rng.choice(list(FLOATS))), 2.0**-12)
    found["budget"] = [draw.number(0.1, 100) for _ in range(AGENTS)]
    found["endless"] = np.float16("inf") if rng.random() < 0.1 else None
    found["also_at_delta"] = bool(rng.random() < 0.2)  # of Laplace noise, where it takes a while
    return found


def built(case: dict[str, Any]) -> tuple[Any, Any, Any]:
    """(algorithm, problem, graph)."""
    data = from_arrays(labels=case["labels"], test_fraction=0.0, **case["data"])
    problem = getattr(hs.problems, case["loss"])(data, agents=AGENTS, **case["problem"])
    sampler = (
        hs.History() if case["sampler"] == "History" else getattr(hs, case["sampler"])(case["size"])
    )
    algorithm = hs.REGISTRY[case["name"]](sampling=sampler, **case["options"])
    return algorithm, problem, hs.graphs.ring(**case["graph"])


def statements(case: dict[str, Any]) -> tuple[Any, ...]:
    """All that is said of the configuration: its certificate, its calibrated noise,
    how long a budget lasts.
    """
    algorithm, problem, graph = built(case)
    delta = case["delta"] if case["also_at_delta"] or algorithm.mechanism != "laplace" else None
    certificate = hs.certify(algorithm, problem, graph, case["horizon"], delta=delta)
    try:
        quieter: Any = hs.calibrate(
            algorithm, problem, graph, case["horizon"], case["epsilon"], delta=delta
        )
    except ValueError as error:
        quieter = str(error)
    lasts = messages_within(algorithm, problem, graph, case["horizon"], case["budget"], delta)
    endless = (
        None
        if case["endless"] is None
        else hs.certify(algorithm, problem, graph, case["endless"], delta=delta)
    )
    return certificate, quieter, lasts, endless


def judged(case: dict[str, Any]) -> tuple[str, str]:
    """(what came of it, details of a fault)."""
    try:
        expected = statements(plain(case))
    except (TypeError, ValueError):
        return "refused in plain", ""
    try:
        found = statements(case)
    except (TypeError, ValueError) as error:
        named = re.search(r"\w+.* must be", str(error))
        return (
            ("type refused by name", "") if named else ("FAULT: refused without a name", str(error))
        )
    if found != expected:
        return "FAULT: another certificate than in plain numbers", f"{found}\n{expected}"
    return "same as in plain numbers", ""


def attacked(case: dict[str, Any], seed: int) -> tuple[str, float]:
    """(what came of it, the largest gap over the certified one)."""
    algorithm, problem, graph = built(case)
    steps = min(
        int(case["horizon"]),
        int(algorithm.sampling.lasts(float(problem.counts.min()), problem.arrivals))
        if case["sampler"] == "Fresh"
        else 6,
    )
    if algorithm.name in ("federated-noiseless",) or steps < 1:
        return "nothing to attack", 0.0
    worst = search(algorithm, problem, graph, steps=steps, starts=1, iterations=4, seed=seed).worst
    return (
        "FAULT: an attack exceeds the certificate"
        if worst > TOLERANCE
        else "attack within the certificate"
    ), worst


def run(
    seconds: float, seed: int = 0, attack_share: float = 0.7, tell: Callable[[str], None] = print
) -> tuple[Counter[str], list[str]]:
    """Search for so long; (how often each outcome was seen, the faults).

    Attacks take that share of the time: each compiles a program of its own.
    """
    draw, outcomes, faults = Draw(seed), Counter[str](), list[str]()
    began, told, attacking, largest = time.perf_counter(), 0.0, 0.0, 0.0
    for number in _counted():
        elapsed = time.perf_counter() - began
        if elapsed > seconds:
            break
        if elapsed - told > 30:
            told = elapsed
            tell(
                f"{elapsed:5.0f} s  {number:6d} configurations  largest gap {largest:.6f} of the"
                f" certified  {dict(outcomes)}"
            )
        case = drawn(draw)
        outcome, details = judged(case)
        outcomes[outcome] += 1
        if outcome.startswith("FAULT"):
            faults.append(f"{outcome}: {case}\n{details}")
            tell(faults[-1])
        if outcome.startswith("same") and attacking < attack_share * elapsed:
            start = time.perf_counter()
            outcome, ratio = attacked(case, number)
            outcomes[outcome] += 1
            largest = max(largest, ratio)
            attacking += time.perf_counter() - start
            if outcome.startswith("FAULT"):
                faults.append(f"{outcome} ({ratio}): {case}")
                tell(faults[-1])
            if number % 20 == 0:
                jax.clear_caches()
    tell(
        f"types: {dict(draw.seen)}\nlargest gap found over the certified one:"
        f" {largest:.9f}\n{dict(outcomes)}"
    )
    return outcomes, faults


def _counted() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    _, faults = run(60 * options.minutes, options.seed, tell=lambda text: print(text, flush=True))
    print(f"{len(faults)} faults")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
