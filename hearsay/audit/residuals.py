"""The noise itself, taken out of the messages: does it have the law, the scale and the independence that the certificate rests on?

A likelihood ratio sees noise only through one pair of data sets, and a bound on epsilon cannot tell Laplace noise from Gaussian noise of about that size. But an auditor knows the records
and the states, so it knows every message before its noise. Run the whole network some hundreds of times with a simulation's keys, and take from every message

    residual = (what was sent - the value that `prepare` hands over) / the scale that goes with it         (run, round, agent, coordinate), per field

value and scale as the certified algorithm hands them over, without its `privatize`: noise that is added otherwise than claimed shows. If all is as claimed the residuals are independent
standard Laplace or normal numbers, and noise_tests.py tests that in every way that has a name. Three kinds of noise are brought to that form first:

    correlated over rounds     the declared factorization D makes the noise D xi; the inverse Cholesky factor of D D' makes it independent again (messages.whitener)
    rounded to a grid          a message says in which cell the noise fell. A point is drawn from the claimed law within the cell: the result has that law exactly if the noise has it
    ternary                    the same with the three values' chances |v| / r and 1 - |v| / r, as standard normal numbers; besides, the number of values that are not 0 is tested

Coins that do not look at the data (who is awake, which coordinates are kept, which way to round) are known. Where they leave a message without noise there is no residual.

All tests together raise a false alarm with probability `level` at most. What they cannot see: states that are wrong (search.py does), faults smaller than the number of residuals shows, and the
noise of deployed agents, which is drawn on a lattice by other code (noise/lattice.py, with tests of its own): there repeated values are what the law says, and simulated noise is not on a lattice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as check
from hearsay import engine, keys
from hearsay.algorithms import QuantizedDsgd
from hearsay.audit import noise_tests
from hearsay.audit.messages import Game, game, whitener
from hearsay.audit.noise_tests import KINDS, LAWS, Test
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.mixing import mixer
from hearsay.problems.problem import Problem

_NUMBERS, _MOST_RUNS = 400_000, 2000  # residuals that are wanted, and the most runs for them
_BYTES, _SHOWN = 2**27, 20_000


@dataclass(frozen=True, eq=False)
class Residuals:
    """tests: every p-value; level: the probability of a false alarm among all of them; law: what residuals have; shown: some of them, for a picture."""

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
        return sorted((t for t in self.tests if t.p * len(self.tests) <= self.level), key=lambda t: t.p)

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


@check.plain_arguments
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
      runs: how often the network is run; without it, until there are 400,000 residuals or 2,000 runs.
      certified: the algorithm whose noise is claimed, where that is another one (planted faults).
    """
    check.fraction("level", level)
    claimed = certified or algorithm
    algorithm.check(graph, problem)
    if list(claimed.channels) != list(algorithm.channels):
        check.fail("certified", f"an algorithm with the messages {', '.join(algorithm.channels)}", claimed.name)
    each = check.count("steps", steps) * graph.agents * problem.dimension * len(algorithm.channels)
    runs = max(2, min(_MOST_RUNS, -(-_NUMBERS // each))) if runs is None else check.count("runs", runs, 2)
    heard = collect(algorithm, claimed, problem, graph, steps, runs, seed, progress)
    tests = [*asked(claimed, problem, graph, heard)]
    fields: dict[str, np.ndarray] = {}
    law = "laplace" if claimed.mechanism == "laplace" else "gaussian"
    for name, field in heard.items():
        loud = field.scale != 0
        if not loud.any():
            continue
        fields[name] = standard(claimed, field, seed)
        if claimed.mechanism == "ternary":
            tests += _ternary_tests(name, field)
            tests += [t for where, part in noise_tests.groups(name, fields[name]) for t in noise_tests.distribution(where, part, law)]  # fmt: skip
        else:
            tests += _grid_tests(name, field, claimed)
            tests += noise_tests.of_values(name, fields[name], law, _rounding(field, claimed, problem.dtype))
    tests += noise_tests.relations(fields, law)
    count = sum(int(np.isfinite(x).sum()) for x in fields.values())
    first = next(iter(fields.values()), np.empty(0))
    shown = first[np.isfinite(first)][:_SHOWN]
    return Residuals(tuple(tests), level, law, claimed.mechanism, runs, steps, count, shown)


class Field(NamedTuple):
    """What one message field was and should have been, each (run, round, agent, coordinate). coin: which way it was rounded, or None."""

    sent: np.ndarray
    value: np.ndarray
    scale: np.ndarray
    coin: np.ndarray | None


def collect(
    algorithm: Algorithm, claimed: Algorithm, problem: Problem, graph: Graph, steps: int, runs: int, seed: int, progress: Callable[[int, int], None]
) -> dict[str, Field]:  # fmt: skip
    """Per message field, all that was sent in so many runs with keys of a simulation, and what it was before its noise."""
    dtype, agents, k = problem.dtype, graph.agents, np.arange(steps, dtype=np.int32)
    centre = np.zeros(problem.dimension) if problem.start is None else problem.start
    rates = tuple(jax.tree.map(lambda r: jnp.asarray(r, dtype), one.rates(k, agents)) for one in (algorithm, claimed))
    windows = jax.tree.map(jnp.asarray, algorithm.sampling.windows(k, problem.counts, problem.arrivals))
    setting = engine.Setting(
        engine.placed(problem), tuple(mixer(graph, kind, dtype) for kind in algorithm.channels.values()), None,  # type: ignore[arg-type]
        keys.sampling_keys(problem.seed, agents), algorithm.constants(dtype),
    )  # fmt: skip
    start = jnp.asarray(np.broadcast_to(centre, (agents, problem.dimension)), dtype)
    chunk = max(1, min(runs, _BYTES // (32 * steps * agents * problem.dimension * len(algorithm.channels))))
    found = []
    for begin in range(0, runs, chunk):
        seeds = seed * 2**24 + begin + jnp.arange(chunk)
        part = _simulate(
            keys.noise_keys(seeds, agents), setting, start, jnp.asarray(k), rates, windows, real=game(algorithm, problem), claimed=claimed.kernel
        )  # fmt: skip
        found.append(jax.tree.map(np.asarray, part))
        progress(min(begin + chunk, runs), runs)
    every = jax.tree.map(lambda *parts: np.concatenate(parts)[:runs], *found)
    # A field without a vector axis (a flag) counts as a vector of one.
    shaped = jax.tree.map(lambda x: np.asarray(x, np.float64).reshape(runs, steps, agents, -1), every)
    sent, values, scales, coin = shaped
    return {
        name: Field(sent[i], np.broadcast_to(values[i], sent[i].shape), np.broadcast_to(scales[i], sent[i].shape), coin)
        for i, name in enumerate(algorithm.channels)
    }


class _Tapped:
    """The running algorithm; beside every message goes what the claimed one would have added noise to. Rates: of the one and of the other."""

    def __init__(self, real: Algorithm, claimed: Algorithm):
        self._real, self._claimed = real, claimed

    def send(self, draws: Any, state: Any, batch: Any, rates: Any) -> tuple[Any, Any]:
        known = _before_noise(self._claimed, draws, state, batch, rates[1])
        message, after = self._real.send(draws, state, batch, rates[0])
        return message, (after, (*known, getattr(draws, "rounding", None)))

    def update(self, state: Any, sent: Any, inbox: Any, batch: Any, rates: Any, domain: Any) -> tuple[Any, Any]:
        after, known = state
        return self._real.update(after, sent, inbox, batch, rates[0], domain), (tuple(sent), *known)


def _before_noise(algorithm: Algorithm, draws: Any, state: Any, batch: Any, rates: Any) -> tuple[tuple, tuple]:
    """(values, scales) of the message's fields. What `finish` does to a value and to a value plus one scale says what becomes of noise there."""
    fields, after = algorithm.prepare(state, batch, rates)
    values, scales = (type(fields)(*(part[i] for part in fields)) for i in (0, 1))
    if isinstance(algorithm, QuantizedDsgd):
        return tuple(values), tuple(scales)
    plain, _ = algorithm.finish(values, draws, after)
    loud, _ = algorithm.finish(type(fields)(*(v + s for v, s in zip(values, scales, strict=True))), draws, after)
    return tuple(plain), tuple(
        jnp.where(a == b, 0.0, getattr(scales, name, 0.0) + 0 * b)
        for name, a, b in zip(type(plain)._fields, loud, plain, strict=True)
    )


@partial(jax.jit, static_argnames=("real", "claimed"))
@engine.full_precision
def _simulate(
    own: jax.Array, setting: engine.Setting, start: jax.Array, steps: jax.Array, rates: Any, windows: Any, *, real: Game, claimed: Algorithm
) -> tuple:  # fmt: skip
    """(sent, values, scales, coin), per field (run, round, agent, ...): the rounds are the engine's own."""
    algorithm, loss, domain, arrivals = real
    models = jax.vmap(domain.project)(start)
    prepare = lambda part: algorithm.sampling.prepare(loss, part, arrivals)  # noqa: E731
    each = partial(engine.one_by_one, agents=len(start)) if loss.unrolled else jax.vmap
    begin = (jax.vmap(algorithm.init)(models), each(prepare)(setting.records))
    tapped: Any = _Tapped(algorithm, claimed)

    def one(own: jax.Array) -> Any:
        draws = jax.vmap(lambda key: algorithm.draws(key, steps, models[0], setting.constants), out_axes=1)(own)

        def step(carry: tuple, inputs: tuple) -> tuple[tuple, Any]:
            k, rate, window, draw = inputs
            form = partial(engine.form_batch, algorithm, loss, arrivals, k, window.blocks)
            (states, said), sampler = engine.exchange(
                tapped, form, setting, rate, window, domain, carry[0], draw, carry[1], unrolled=loss.unrolled
            )
            return (states, sampler), said

        return jax.lax.scan(step, begin, (steps, rates, windows, draws))[1]

    return jax.lax.map(one, own) if loss.unrolled else jax.vmap(one)(own)


def asked(claimed: Algorithm, problem: Problem, graph: Graph, heard: dict[str, Field]) -> list[Test]:
    """The scales that go with values against those that the certificate counts; no chance is involved, so p is 0 or 1."""
    found, step = [], 1e-5
    for name, field in heard.items():
        scale, k = field.scale, np.arange(field.scale.shape[1])
        wrong, seen = 0, 0
        for agent in range(scale.shape[2]):
            one, law = scale[:, :, agent], claimed.step_noise(k, agent, graph.agents)
            releases = {r.name: r for r in claimed.releases(agent, (0.0, 0.0))}
            if law is not None and name == "params":  # some step before the message made its noise, or there is none
                near = np.stack([np.abs(one - s) <= step * s for s in law])
                before = np.arange(len(k))[:, None] < k[None]
                wrong += int(np.sum((one != 0) & ~np.any(near & before[:, None, :, None], axis=0)))
                seen += one.size
            elif name in releases:
                counted = releases[name].scale(k)[None, :, None]
                wrong += int(np.sum(np.abs(one - counted) > step * counted))
                seen += one.size
        if seen:
            found.append(
                Test("asked", name, seen, float(wrong == 0), f"{wrong:,} scales differ from the certificate's")
            )
    return found


def standard(claimed: Algorithm, field: Field, seed: int = 0) -> np.ndarray:
    """Residuals as independent numbers of one law, NaN where there is no noise."""
    loud = field.scale != 0
    with np.errstate(invalid="ignore", divide="ignore"):
        if claimed.mechanism == "ternary":
            low, chance = _ternary_cells(field)
            return np.where(loud, _within("gaussian", low, low + chance, seed), np.nan)
        if isinstance(claimed, QuantizedDsgd):
            assert field.coin is not None
            edge = field.sent - claimed.resolution * field.coin - field.value
            low, high = (LAWS[claimed.mechanism].cdf((edge + w) / field.scale) for w in (0.0, claimed.resolution))
            return np.where(loud, _within(claimed.mechanism, low, high, seed), np.nan)
        x = np.where(loud, (field.sent - field.value) / field.scale, np.nan)
    if claimed.factors is None:
        return x
    return np.einsum("st,rtad->rsad", whitener(claimed, x.shape[1]), x)


def _within(law: str, low: np.ndarray, high: np.ndarray, seed: int) -> np.ndarray:
    """A value of the law between those levels: of that law again, and independent, if the levels are those of the cell in which such a value fell."""
    place = np.random.default_rng([seed, *b"cells"]).random(low.shape)
    return LAWS[law].ppf(np.clip(low + place * (high - low), 1e-300, 1 - 1e-16))


def _ternary_cells(field: Field) -> tuple[np.ndarray, np.ndarray]:
    """(chance of a smaller value, chance of this one)."""
    share, sign = np.clip(field.value / field.scale, -1.0, 1.0), np.sign(field.sent)
    down, up = np.maximum(-share, 0.0), np.maximum(share, 0.0)
    low = np.select([sign < 0, sign == 0], [0.0, down], 1 - up)
    return low, np.select([sign < 0, sign == 0], [down, 1 - down - up], up)


def _ternary_tests(name: str, field: Field) -> list[Test]:
    loud = field.scale != 0
    _, chance = _ternary_cells(field._replace(scale=np.where(loud, field.scale, 1.0)))
    odd = (field.sent != 0) & ~np.isclose(np.abs(field.sent), field.scale, rtol=1e-5)
    found = [_support(name, loud & (odd | (chance <= 0)), loud)]
    share = np.minimum(np.abs(field.value / np.where(loud, field.scale, np.inf)), 1.0)
    hits = np.where(loud, (field.sent != 0).astype(float), np.nan)
    chances = dict(noise_tests.groups(name, np.where(loud, share, np.nan)))
    for where, part in noise_tests.groups(name, hits):
        found += noise_tests.rate(where, part, chances[where])
    return found


def _grid_tests(name: str, field: Field, claimed: Algorithm) -> list[Test]:
    if not isinstance(claimed, QuantizedDsgd):
        return []
    places = field.sent / claimed.resolution
    return [_support(name, np.abs(places - np.round(places)) > 1e-6 * (1 + np.abs(places)), field.scale != 0)]


def _support(name: str, wrong: np.ndarray, loud: np.ndarray) -> Test:
    count = int(np.sum(wrong & loud))
    return Test("support", name, int(loud.sum()), float(count == 0), f"{count:,} values that cannot have been sent")


def _rounding(field: Field, claimed: Algorithm, dtype: Any) -> float:
    """How far apart two residuals of one draw may come to lie. Numbers on a grid were given their place in the cell by the auditor: no two are equal."""
    if isinstance(claimed, QuantizedDsgd):
        return 0.0
    loud = field.scale != 0
    size = (np.abs(field.sent) + np.abs(field.value))[loud] / field.scale[loud]
    return float(64 * jnp.finfo(dtype).eps * (1 + size.max()))


__all__ = ["Field", "Residuals", "collect", "residuals", "standard"]
