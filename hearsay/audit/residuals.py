"""The noise itself, taken out of the messages: does it have the law, the scale and the independence
that the certificate rests on?

A likelihood ratio sees noise only through one pair of data sets, and a bound on epsilon cannot
tell Laplace noise from Gaussian noise of about that size. But an auditor knows the records and the
states, so it knows every message before its noise. Run the whole network some hundreds of times
with a simulation's keys, and take from every message

    residual = (what was sent - the value that `prepare` hands over) / the scale that goes with it
        (run, round, agent, coordinate), per field

value and scale as the certified algorithm hands them over, without its `privatize`: noise that
is added otherwise than claimed shows. If all is as claimed the residuals are independent standard
Laplace or normal numbers (standard_form.py: also where noise is correlated over rounds, rounded to
a grid, or ternary), and noise_tests.py tests that in every way that has a name.

Where agents share noise, that of different agents goes together as claimed: their residuals are
made independent with the claimed covariance, and own noise and what every pair shares are tested by
themselves (shared_noise.py).

Coins that do not look at the data (who is awake, which coordinates are kept, which way to round)
are known. Where they leave a message without noise there is no residual.

All of it is computed in float64, whatever jax is set to: in float32 the differences are too coarse
to tell two draws from one that is used twice.

All tests together raise a false alarm with probability `level` at most. What they cannot see:
states that are wrong (search.py does), faults smaller than the number of residuals shows, what
only the float32 of a simulation does to its draws, and the noise of deployed agents, which is drawn
on a lattice by other code (mechanisms/lattice.py, with tests of its own): there repeated values are
what the law says, and simulated noise is not on a lattice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms import QuantizedDsgd
from hearsay.audit import noise_tests, shared_noise
from hearsay.audit.collecting import collect
from hearsay.audit.noise_tests import KINDS, Test
from hearsay.audit.precision import double_precision
from hearsay.audit.standard_form import Field, grid_tests, rounding, standard, ternary_tests
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.privacy.coalitions import Shared
from hearsay.problems.problem import Problem
from hearsay.simulation import shared as simulated

_NUMBERS, _MOST_RUNS = 400_000, 2000  # residuals that are wanted, and the most runs for them
_SHOWN = 20_000
_NO_CHANCE = 1e-15


@dataclass(frozen=True, eq=False)
class Residuals:
    """tests: every p-value; level: the probability of a false alarm among all of them; law:
    what residuals have; shown: some of them, for a picture.
    """

    tests: tuple[Test, ...]
    level: float
    law: str
    mechanism: str
    runs: int
    steps: int
    numbers: int
    shown: np.ndarray

    @property
    def failed(self) -> list[Test]:
        """The tests whose p-value is too small even among so many, worst first; of those that
        cannot be chance, one that says what is wrong.
        """
        return sorted(
            (t for t in self.tests if t.p * len(self.tests) <= self.level),
            key=lambda t: (max(t.p, _NO_CHANCE), not t.means, t.p),
        )

    @property
    def holds(self) -> bool:
        return not self.failed

    def worst(self) -> dict[str, Test]:
        """The smallest p-value of every kind that was tested."""
        found: dict[str, Test] = {}
        for kind in KINDS:
            some = [test for test in self.tests if test.kind == kind]
            if some:
                found[kind] = min(some, key=lambda test: test.p)
        return found

    def adjusted(self, test: Test) -> float:
        return min(1.0, test.p * len(self.tests))


@require.plain_arguments
@double_precision()
def residuals(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    *,
    steps: int = 5,
    runs: int | None = None,
    level: float = 1e-3,
    seed: int = 0,
    certified: Algorithm | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Residuals:
    """Test the noise of all agents in messages 0 .. steps-1.

    Args:
      runs: how often the network is run; without it, until there are 400,000 residuals
        or 2,000 runs.
      seed: of the noise, below 2^39.
      certified: the algorithm whose noise is claimed, where that is another one (planted faults).
    """
    require.fraction("level", level)
    claimed = certified or algorithm
    algorithm.check(graph, problem.task)
    if list(claimed.channels) != list(algorithm.channels):
        require.fail(
            "certified",
            f"an algorithm with the messages {', '.join(algorithm.channels)}",
            claimed.name,
        )
    each = (
        require.count("steps", steps) * graph.agents * problem.dimension * len(algorithm.channels)
    )
    runs = (
        max(2, min(_MOST_RUNS, -(-_NUMBERS // each)))
        if runs is None
        else require.count("runs", runs, 2)
    )
    arguments = (algorithm, claimed, problem, graph, steps, runs, seed, progress)
    sharing = claimed.shared(graph.agents)
    if sharing is None:
        heard, _ = collect(*arguments)
        tests = asked(claimed, problem, graph, heard)
        more, fields = _tested(claimed, problem, heard, seed)
    else:
        heard, taken = collect(*arguments, apart=True)
        tests = asked(claimed, problem, graph, heard)
        if taken is not None:
            within = max(rounding(field, claimed, problem.dtype) for field in heard.values())
            tests += shared_noise.pair_tests(claimed, sharing, heard, taken, within)
            tests += shared_noise.own_tests(claimed, heard, taken, within, seed)
        more, fields = _tested(claimed, problem, heard, seed, sharing)
        if graph.agents <= simulated.MIXED:
            heard, _ = collect(*arguments)
            mixed, simulation = _tested(claimed, problem, heard, seed, sharing, ", as simulated")
            more, fields = more + mixed, fields | simulation
    tests += more
    law = claimed.law.residual
    count = sum(int(np.isfinite(x).sum()) for x in fields.values())
    first = next(iter(fields.values()), np.empty(0))
    shown = first[np.isfinite(first)][:_SHOWN]
    return Residuals(tuple(tests), level, law.name, claimed.mechanism, runs, steps, count, shown)


def _tested(
    claimed: Algorithm,
    problem: Problem,
    heard: dict[str, Field],
    seed: int,
    sharing: Shared | None = None,
    words: str = "",
) -> tuple[list[Test], dict[str, np.ndarray]]:
    """(tests of all that was added to messages, the numbers that they are about).

    Args:
      sharing: what agents share, which is in it.
      words: what the numbers are called beside their field.
    """
    tests, fields, law = list[Test](), dict[str, np.ndarray](), claimed.law.residual
    # What falls into a cell of a grid tells nothing of how agents' noise goes together.
    if sharing is not None and isinstance(claimed, QuantizedDsgd):
        return tests, fields
    for name, field in heard.items():
        loud = field.scale != 0
        if not loud.any():
            continue
        found = standard(claimed, field, seed)
        label = name if sharing is None else f"{name}, own and shared noise{words}"
        fields[label] = found if sharing is None else shared_noise.whitened(found, sharing)
        if claimed.law.adds_noise:
            tests += grid_tests(label, field, claimed)
            tests += noise_tests.of_values(
                label, fields[label], law, rounding(field, claimed, problem.dtype)
            )
        else:
            tests += ternary_tests(label, field, claimed.law)
            tests += [
                t
                for where, part in noise_tests.groups(label, fields[label])
                for t in noise_tests.distribution(where, part, law)
            ]
    tests += noise_tests.relations(fields, law)
    return tests, fields


def asked(
    claimed: Algorithm, problem: Problem, graph: Graph, heard: dict[str, Field]
) -> list[Test]:
    """The scales that go with values against those that the certificate counts;
    no chance is involved, so p is 0 or 1.
    """
    found, step = [], 1e-5
    for name, field in heard.items():
        scale, k = field.scale, np.arange(field.scale.shape[1])
        wrong, seen = 0, 0
        for agent in range(scale.shape[2]):
            one = scale[:, :, agent]
            releases = {r.name: r for r in claimed.releases(agent, (0.0, 0.0))}
            # Some step before the message made its noise, or there is none.
            if name in releases and releases[name].delay:
                law = claimed.magnitudes(agent, graph.agents).step_noise
                assert law is not None
                near = np.stack([np.abs(one - s) <= step * s for s in law(k)])
                before = np.arange(len(k))[:, None] < k[None]
                wrong += int(np.sum((one != 0) & ~np.any(near & before[:, None, :, None], axis=0)))
                seen += one.size
            elif name in releases:
                counted = releases[name].scale(k)[None, :, None]
                wrong += int(np.sum(np.abs(one - counted) > step * counted))
                seen += one.size
        if seen:
            found.append(
                Test(
                    "asked",
                    name,
                    seen,
                    float(wrong == 0),
                    f"{wrong:,} scales differ from the certificate's",
                )
            )
    return found


__all__ = ["Residuals", "collect", "residuals"]
