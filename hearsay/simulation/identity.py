"""Which run a checkpoint belongs to, and in what another one differs.

A fingerprint decides; the facts beside it are there to say what is different.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from hearsay._version import VERSION
from hearsay.base import Algorithm
from hearsay.certification.stamps import options_of, source_of
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.simulation.faults import Faults

_MARK, _FACTS, _EVERY = "fingerprint", "facts", "every"
_GRAPH = "graph"
# Of an algorithm from outside: options that look alike may hold something else.
_CONTENTS = "contents of its options"


@dataclass(frozen=True)
class Identity:
    """What makes a run this one, but for its measuring interval.

    Args:
      mark: two runs with the same one are the same run.
      facts: what went into it, by name, in words; the problem is left out, which only a digest of
        all records could tell from another.
    """

    mark: str
    facts: Mapping[str, str]

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        problem: Problem,
        graph: Graph,
        seeds: list[int],
        spread: float,
        release: Sequence[Any],
        faults: Faults | None,
    ) -> Identity:
        start = (seeds, spread, tuple(release), *failures(faults))
        facts = {
            "version of hearsay": VERSION,
            "algorithm": type(algorithm).__qualname__,
            "source of the algorithm": source_of(type(algorithm)),
            _CONTENTS: options_of(algorithm),
            **{field.name: repr(getattr(algorithm, field.name)) for field in fields(algorithm)},
            _GRAPH: graph.digest(),
            "seeds": repr(seeds),
            "spread": repr(spread),
            "release": repr(tuple(release)),
            "faults": "".join(failures(faults)) or "None",
            "precision": str(jnp.result_type(float)),
        }
        return cls(fingerprint(algorithm, problem, graph, start), facts)

    def arrays(self, every: int) -> dict[str, np.ndarray]:
        """For a checkpoint of it."""
        kept = {_MARK: self.mark, _FACTS: json.dumps(dict(self.facts)), _EVERY: every}
        return {name: np.array(value) for name, value in kept.items()}

    def interval(self, stored: Mapping[str, np.ndarray], every: int | None) -> int:
        """The measuring interval with which the run of a checkpoint goes on: its own. Refused where
        the checkpoint is another run's, or another interval is asked for.
        """
        if _FACTS not in stored:
            raise ValueError(_refused("it is of another version of hearsay"))
        differ = _differences(json.loads(str(stored[_FACTS])), self.facts)
        if str(stored[_MARK]) != self.mark and not differ:
            differ = ["its problem, its records or its test records are not those given"]
        kept = int(stored[_EVERY])
        if every is not None and every != kept:
            differ.append(_difference("every", str(kept), str(every)))
        if differ:
            raise ValueError(_refused("; ".join(differ)))
        return kept


def seeds_of(stored: Mapping[str, np.ndarray]) -> list[int] | None:
    """Those of the run of a checkpoint; None where another version did not write them."""
    found: list[int] | None = json.loads(
        json.loads(str(stored.get(_FACTS, "{}"))).get("seeds", "0")
    )
    return found or None


def _refused(why: str) -> str:
    return f"the checkpoint belongs to another configuration ({why}): refusing to resume"


def _differences(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    # Of another algorithm nobody wants to compare the options.
    shown = ["algorithm"] if "algorithm" in names else names
    # Mostly another option has said so already.
    shown = [name for name in shown if name != _CONTENTS] or shown
    return [_difference(name, there.get(name), here.get(name)) for name in shown]


def _difference(name: str, there: str | None, here: str | None) -> str:
    if name == _GRAPH:
        return "its graph is not the one given"
    return f"{name} = {_short(there)} there, {_short(here)} here"


def _short(text: str | None, longest: int = 120) -> str:
    text = str(text)
    return text if len(text) <= longest else f"{text[:longest]}..."


def failures(faults: Faults | None) -> tuple[str, ...]:
    """What a fingerprint has of them: nothing where there are none."""
    if faults is None:
        return ()
    if faults.plan is not None and not hasattr(faults.plan, "digest"):
        raise ValueError(
            "plan in faults must have a method digest() in a run with a folder: a checkpoint must"
            " know its plan again"
        )
    plan = "" if faults.plan is None else faults.plan.digest()  # type: ignore[attr-defined]
    return (f"{replace(faults, plan=None)!r} {plan}",)


def fingerprint(algorithm: Algorithm, problem: Problem, graph: Graph, start: tuple) -> str:
    """Two runs with the same one are the same run."""
    # Another version may draw other noise or round otherwise: its checkpoints are not ours.
    digest = hashlib.sha256(
        repr(
            (
                VERSION,
                algorithm,
                problem.task.digest(),
                problem.records.digest(),
                graph.digest(),
                start,
            )
        ).encode()
    )
    for array in (problem.test_features, problem.test_labels):
        digest.update(f"{array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(str(jnp.result_type(float)).encode())
    return digest.hexdigest()
