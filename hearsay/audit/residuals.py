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

Coins that do not look at the data (who is awake, which coordinates are kept, which way to round)
are known. Where they leave a message without noise there is no residual.

All tests together raise a false alarm with probability `level` at most. What they cannot see:
states that are wrong (search.py does), faults smaller than the number of residuals shows, and
the noise of deployed agents, which is drawn on a lattice by other code (mechanisms/lattice.py,
with tests of its own): there repeated values are what the law says, and simulated noise is not
on a lattice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.algorithms import QuantizedDsgd
from hearsay.audit import noise_tests
from hearsay.audit.noise_tests import KINDS, Test
from hearsay.audit.standard_form import Field, grid_tests, rounding, standard, ternary_tests
from hearsay.base import Algorithm, Keys
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.simulation import engine, keys
from hearsay.simulation.engine import Inputs, Round, Setting
from hearsay.simulation.program import Program, kernel, program

_NUMBERS, _MOST_RUNS = 400_000, 2000  # residuals that are wanted, and the most runs for them
_BYTES, _SHOWN = 2**27, 20_000


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
        """The tests whose p-value is too small even among so many, worst first."""
        return sorted(
            (t for t in self.tests if t.p * len(self.tests) <= self.level), key=lambda t: t.p
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
    heard = collect(algorithm, claimed, problem, graph, steps, runs, seed, progress)
    tests = [*asked(claimed, problem, graph, heard)]
    fields: dict[str, np.ndarray] = {}
    law = claimed.law.residual
    for name, field in heard.items():
        loud = field.scale != 0
        if not loud.any():
            continue
        fields[name] = standard(claimed, field, seed)
        if claimed.law.adds_noise:
            tests += grid_tests(name, field, claimed)
            tests += noise_tests.of_values(
                name, fields[name], law, rounding(field, claimed, problem.dtype)
            )
        else:
            tests += ternary_tests(name, field, claimed.law)
            tests += [
                t
                for where, part in noise_tests.groups(name, fields[name])
                for t in noise_tests.distribution(where, part, law)
            ]
    tests += noise_tests.relations(fields, law)
    count = sum(int(np.isfinite(x).sum()) for x in fields.values())
    first = next(iter(fields.values()), np.empty(0))
    shown = first[np.isfinite(first)][:_SHOWN]
    return Residuals(tuple(tests), level, law.name, claimed.mechanism, runs, steps, count, shown)


@require.plain_arguments
def collect(
    algorithm: Algorithm,
    claimed: Algorithm,
    problem: Problem,
    graph: Graph,
    steps: int,
    runs: int,
    seed: int,
    progress: Callable[[int, int], None],
) -> dict[str, Field]:
    """Per message field, all that was sent in so many runs with keys of a simulation,
    and what it was before its noise.
    """
    agents, k = graph.agents, np.arange(steps)
    setting = engine.surroundings(algorithm, problem, graph, [0])
    inputs = engine.inputs(algorithm, problem, k)
    rates = engine.inputs(claimed, problem, k).rates
    start = jnp.asarray(problem.first_models, problem.dtype)
    chunk = max(
        1, min(runs, _BYTES // (32 * steps * agents * problem.dimension * len(algorithm.channels)))
    )
    found = []
    for begin in range(0, runs, chunk):
        seeds = seed * 2**24 + begin + jnp.arange(chunk)
        part = _simulate(
            keys.seeded(setting.noise_keys, agents, seeds),
            setting,
            start,
            inputs,
            rates,
            real=program(algorithm, problem),
            claimed=kernel(claimed),
        )
        found.append(jax.tree.map(np.asarray, part))
        progress(min(begin + chunk, runs), runs)
    every = jax.tree.map(lambda *parts: np.concatenate(parts)[:runs], *found)
    # A field without a vector axis (a flag) counts as a vector of one.
    shaped = jax.tree.map(
        lambda x: np.asarray(x, np.float64).reshape(runs, steps, agents, -1), every
    )
    sent, values, scales, coin = shaped
    return {
        name: Field(
            sent[i],
            np.broadcast_to(values[i], sent[i].shape),
            np.broadcast_to(scales[i], sent[i].shape),
            coin,
        )
        for i, name in enumerate(algorithm.channels)
    }


def _before_noise(
    algorithm: Algorithm, draws: Any, state: Any, batch: Any, rates: Any
) -> tuple[tuple, tuple]:
    """(values, scales) of the message's fields.

    What `finish` does to a value and to a value plus one scale says what becomes of noise there.
    """
    fields, after = algorithm.prepare(state, batch, rates)
    values, scales = (type(fields)(*(part[i] for part in fields)) for i in (0, 1))
    if isinstance(algorithm, QuantizedDsgd):
        return tuple(values), tuple(scales)
    plain, _ = algorithm.finish(values, draws, after)
    loud, _ = algorithm.finish(
        type(fields)(*(v + s for v, s in zip(values, scales, strict=True))), draws, after
    )
    return tuple(plain), tuple(
        jnp.where(a == b, 0.0, getattr(scales, name, 0.0) + 0 * b)
        for name, a, b in zip(type(plain)._fields, loud, plain, strict=True)
    )


@partial(jax.jit, static_argnames=("real", "claimed"))
@engine.full_precision
def _simulate(
    own: Keys,
    setting: Setting,
    start: jax.Array,
    inputs: Inputs,
    rates: Any,
    *,
    real: Program,
    claimed: Algorithm,
) -> tuple:
    """(sent, values, scales, coin), per field (run, round, agent, ...): the rounds are the
    engine's own. rates: of the claimed algorithm.
    """

    def tap(seen: Round) -> tuple:
        """Beside every message what the claimed algorithm would have added noise to."""
        before = seen.by_agent(
            lambda batch, draws, state, now: _before_noise(claimed, draws, state, batch, now)
        )
        known = before(seen.draws, seen.states, engine.pick(rates, seen.step))
        return (tuple(seen.sent), *known, getattr(seen.draws, "rounding", None))

    def run(own: Keys) -> Any:
        """(round, run, ...) of those runs."""
        points = jnp.broadcast_to(start, (len(own.own), *start.shape))
        carry, block = engine.begin(real, setting.records, points), len(inputs.steps)
        keyed = setting._replace(noise_keys=own)
        return engine.trajectory(real, carry, keyed, inputs, block=block, tap=tap)[1]

    if real.loss.unrolled:
        one = lambda own: engine.pick(run(jax.tree.map(lambda x: x[None], own)), (slice(None), 0))  # noqa: E731
        return jax.lax.map(one, own)
    return jax.tree.map(lambda x: x.swapaxes(0, 1), run(own))


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
