"""Regret of the models that an online federated run releases (paper P4, equation 1).

In round r everybody holds x(r), and n learners see tau fresh records each. With f_r the mean loss
over these n tau records, after R rounds

    dynamic regret   tau sum_r [ f_r(x(r)) - min f_r ]                                  (1)
                     min over the domain, a new one in every round
    static regret    tau sum_r [ f_r(x(r)) - f_r(x*) ]
                     x* the minimiser of sum_r f_r over the domain

and the averages are these over R tau. Clipping is part of an algorithm, not of the loss.

The minima are over the domain's ball, which the released models are kept in too. Without a ball
they need not exist: a round's n tau records are often linearly separable (always, when there are
no more of them than dimensions), and the infimum of a logistic loss is then 0 and reached nowhere.
Each minimum comes with a proven gap. For any multiplier m > 0 on |x|^2 <= rho^2 and any x, with
s = |grad f(x) + m x|,

    f(x) + m/2 (|x|^2 - rho^2) - s^2 / 2m   <=   min over the ball   <=   f(projection of x)

and all losses here are at least 0. Newton's method finds x for a multiplier and, on log |x(m)|, the
multiplier, for all rounds at once, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from hearsay import _validate as require
from hearsay.algorithms.correlated_federated import CorrelatedFederated
from hearsay.base import held_rates
from hearsay.graphs import Graph
from hearsay.problems.losses.domains import Ball, Domain
from hearsay.problems.losses.linear import LinearLoss, Loss
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Arrivals, Fresh, Window
from hearsay.simulation import engine
from hearsay.simulation.engine import Carry, Setting, full_precision
from hearsay.simulation.session import Session
from hearsay.simulation.simulating import as_seeds, enable_compilation_cache

TOLERANCE = 1e-6  # of a minimum, in units of the mean loss of a record
_CHUNK = 128  # rounds per call: correlated noise is drawn for all of them at once
_ITERATIONS = 400


class Minima(NamedTuple):
    """Of several losses at once: values (k,), each at most `gap` above the true minimum,
    and where they are reached (k, d).
    """

    values: np.ndarray
    gap: np.ndarray
    params: np.ndarray


@dataclass(frozen=True, eq=False)
class Comparators:
    """What regret is measured against: it depends on the data only,
    so several algorithms can share it.
    """

    features: np.ndarray
    labels: np.ndarray
    each: Minima
    fixed: Minima
    fixed_values: np.ndarray

    @property
    def rounds(self) -> int:
        return len(self.labels)

    @property
    def variation(self) -> float:
        """C_R = sum_r |x_r* - x*|^2, where every round has one minimiser (a ridge above 0)."""
        return float(np.sum((self.each.params - self.fixed.params) ** 2))


@dataclass(frozen=True, eq=False)
class Regret:
    """Arrays (rounds, seeds), of the models x(0), ..., x(R-1) (rounds, seeds, d)."""

    local_steps: int
    models: np.ndarray
    losses: np.ndarray
    accuracy: np.ndarray | None
    comparators: Comparators

    @property
    def dynamic(self) -> np.ndarray:
        """Summed up to and including each round."""
        return self.local_steps * np.cumsum(
            self.losses - self.comparators.each.values[:, None], axis=0
        )

    @property
    def static(self) -> np.ndarray:
        return self.local_steps * np.cumsum(
            self.losses - self.comparators.fixed_values[:, None], axis=0
        )

    def averaged(self, kind: str = "dynamic") -> np.ndarray:
        """Regret / (R tau) if the run had ended after each round."""
        summed = getattr(self, require.one_of("kind", kind, ["dynamic", "static"]))
        return summed / (self.local_steps * np.arange(1, len(summed) + 1)[:, None])

    @property
    def gap(self) -> float:
        """How far the averaged dynamic regret is off, at most, because minima are computed:
        it is too small by no more than this.
        """
        return float(np.mean(self.comparators.each.gap))


def online_regret(
    algorithm: CorrelatedFederated,
    problem: Problem,
    graph: Graph,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    *,
    against: Comparators | None = None,
) -> Regret:
    """Run the algorithm and measure every model that it releases.

    `against`: from `comparators`, to share it between runs.
    """
    rounds = require.count("rounds", rounds)
    _require_online(algorithm, rounds)
    algorithm.check(graph, problem.task)
    found = as_seeds(seeds)
    against = comparators(problem, rounds, algorithm.local_steps) if against is None else against
    if against.labels.shape != (rounds, problem.agents * algorithm.local_steps):
        require.fail(
            "against", "comparators for the same rounds and local steps", against.labels.shape
        )
    models = released(algorithm, problem, graph, rounds, found)
    loss = replace(problem.linear, clip=None)
    margin = np.einsum("rmd,rsd->rsm", against.features, models, optimize=True)
    data = loss.values(margin, against.labels[:, None, :]).mean(axis=2)
    losses = data + loss.regulariser / 2 * np.sum(models**2, axis=2)
    accuracy = None
    if problem.classification:
        test = np.einsum("md,rsd->rsm", problem.test_features, models, optimize=True)
        accuracy = np.mean(np.asarray(loss.predict(test)) == problem.test_labels, axis=2)
    return Regret(algorithm.local_steps, models, losses, accuracy, against)


def comparators(
    problem: Problem, rounds: int, local_steps: int, tolerance: float = TOLERANCE
) -> Comparators:
    """The minima of every round and of all rounds together."""
    rounds, local_steps = require.count("rounds", rounds), require.count("local_steps", local_steps)
    used = rounds * local_steps
    if used > problem.counts.min():
        require.fail(
            "rounds",
            f"at most the {problem.counts.min() // local_steps:g} that the records last for",
            rounds,
        )
    shape = (problem.agents, rounds, local_steps)
    features = (
        problem.features[:, :used]
        .reshape(*shape, -1)
        .swapaxes(0, 1)
        .reshape(rounds, -1, problem.dimension)
    )
    labels = problem.labels[:, :used].reshape(shape).swapaxes(0, 1).reshape(rounds, -1)
    loss = replace(problem.linear, clip=None)
    # Threads cost more than they gain on many small matrices, and far more on a busy machine.
    with threadpool_limits(1):
        each = minima(loss, problem.domain, features, labels, tolerance)
        together = features.reshape(1, -1, problem.dimension), labels.reshape(1, -1)
        fixed = minima(loss, problem.domain, *together, tolerance)
    values = loss.values(features @ fixed.params[0], labels).mean(axis=1)
    values += loss.regulariser / 2 * np.sum(fixed.params**2)
    return Comparators(features, labels, each, fixed, values)


def minima(
    loss: LinearLoss,
    domain: Domain,
    features: np.ndarray,
    labels: np.ndarray,
    tolerance: float = TOLERANCE,
) -> Minima:
    """The minima over a ball of k mean losses, features (k, m, d) and labels (k, m)."""
    tolerance = require.positive("tolerance", tolerance)
    if not isinstance(domain, Ball):
        require.fail("domain", "a Ball where regret is measured", domain)
    assert isinstance(domain, Ball)
    radius, (count, _, dimension) = domain.radius, features.shape
    value, gap, params = (
        np.full(count, np.inf),
        np.full(count, np.inf),
        np.zeros((count, dimension)),
    )
    x, multiplier = np.zeros((count, dimension)), np.full(count, np.nan)
    # Multipliers that are known to be too small and too large.
    low, high = np.zeros(count), np.full(count, np.inf)
    todo = np.arange(count)
    for _ in range(_ITERATIONS):
        now = _Step(loss, features[todo], labels[todo], x[todo], multiplier[todo], radius)
        better = now.upper < value[todo]
        value[todo[better]], params[todo[better]] = now.upper[better], now.feasible[better]
        gap[todo] = np.minimum(gap[todo], np.maximum(value[todo] - now.lower, 0))
        on = gap[todo] > tolerance
        if not on.any():
            break
        # |x - x(m)| <= slope / m: only where that is less than the distance to the sphere does |x|
        # say on which side m lies.
        sure = now.slope < now.multiplier * np.abs(now.norm - radius)
        long = now.norm > radius
        low[todo[sure & long]] = now.multiplier[sure & long]
        high[todo[sure & ~long]] = now.multiplier[sure & ~long]
        multiplier[todo] = np.where(
            sure, _inside(now.better, low[todo], high[todo]), now.multiplier
        )
        x[todo] = now.moved
        todo = todo[on]
    return Minima(value, gap, params)


class _Step:
    """One of Newton's steps on f(x) + m/2 |x|^2 for every f, the bounds that x proves,
    and the multiplier that |x| suggests.
    """

    def __init__(
        self, loss: LinearLoss, features: Any, labels: Any, x: Any, multiplier: Any, radius: float
    ):
        margin = np.matvec(features, x)
        gradient = (
            np.vecmat(loss.residual(margin, labels), features) / labels.shape[1]
            + loss.regulariser * x
        )
        self.norm = np.linalg.norm(x, axis=1)
        # At the start x = 0, and |x(m)| <= |grad f(0)| / m: not too small.
        first = np.maximum(np.linalg.norm(gradient, axis=1) / radius, 1e-12)
        self.multiplier = m = np.where(np.isnan(multiplier), first, multiplier)
        h = 1e-5
        up, down = (loss.residual(margin + s, labels) for s in (h, -h))
        curved = np.maximum((up - down) / (2 * h), 0) / labels.shape[1]
        hessian = np.matmul((features * curved[:, :, None]).swapaxes(1, 2), features)
        hessian += (loss.regulariser + m)[:, None, None] * np.eye(x.shape[1])
        pull = gradient + m[:, None] * x
        ahead, shrink = np.moveaxis(np.linalg.solve(hessian, np.stack([pull, x], axis=2)), 2, 0)
        furthest = np.abs(np.matvec(features, ahead)).max(axis=1)
        # The third derivative of a logistic loss is at most its second: steps of this length always
        # go down (Sun and Tran-Dinh 2019, nu = 2).
        length = np.log1p(furthest) / np.maximum(furthest, 1e-12)
        self.moved = x - np.minimum(length, 1.0)[:, None] * ahead
        # d log|x(m)| / d log m = -m x'H^-1 x / |x|^2: a straight line for a quadratic loss in a
        # large ball, close to one otherwise.
        size = np.maximum(self.norm, 1e-100)
        bend = np.maximum(m * np.sum(x * shrink, axis=1) / size**2, 1e-3)
        self.better = m * np.exp(np.clip(np.log(size / radius) / bend, -7, 7))
        self.feasible = x * np.minimum(1.0, radius / np.maximum(self.norm, 1e-300))[:, None]

        def value(point: Any) -> Any:
            data = loss.values(np.matvec(features, point), labels).mean(axis=1)
            return data + loss.regulariser / 2 * np.sum(point**2, axis=1)

        self.upper = value(self.feasible)
        self.slope = np.linalg.norm(pull, axis=1)
        dual = value(x) + m / 2 * (self.norm**2 - radius**2) - self.slope**2 / (2 * m)
        self.lower = np.maximum(dual, 0.0)


def _inside(wanted: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The wanted multiplier, or one between those known where it does not lie there."""
    bottom, top = (
        np.maximum(low, 1e-4 * np.minimum(high, 1e300)),
        np.minimum(high, 1e4 * np.maximum(low, 1e-300)),
    )
    return np.where((wanted > low) & (wanted < high), wanted, np.sqrt(bottom * top))


def released(
    algorithm: CorrelatedFederated, problem: Problem, graph: Graph, rounds: int, seeds: list[int]
) -> np.ndarray:
    """x(0), ..., x(rounds-1) of every seed, (rounds, seeds, d): all learners hold the same,
    so these are learner 0's.
    """
    rounds = require.count("rounds", rounds)
    enable_compilation_cache()
    session = Session(algorithm, problem, graph, seeds, False, False, 0.0, None)
    carry, found = session.carry, []
    for start in range(0, rounds, _CHUNK):
        steps = np.arange(start, min(start + _CHUNK, rounds), dtype=np.int32)
        rates = held_rates(algorithm.rates(steps, graph.agents), session.dtype)
        windows = algorithm.sampling.windows(steps, problem.counts, problem.arrivals)
        carry, models = _recorded(
            carry,
            session.setting,
            steps,
            rates,
            windows,
            algorithm=algorithm.kernel,
            loss=problem.loss,
            domain=problem.domain,
            arrivals=problem.arrivals,
        )
        found.append(np.asarray(models, np.float64))
    return np.concatenate(found)


@partial(jax.jit, static_argnames=("algorithm", "loss", "domain", "arrivals"))
@full_precision
def _recorded(
    carry: Carry,
    setting: Setting,
    steps: jax.Array,
    rates: Any,
    windows: Window,
    *,
    algorithm: CorrelatedFederated,
    loss: Loss,
    domain: Domain,
    arrivals: Arrivals,
) -> tuple[Carry, jax.Array]:
    """engine.advance for one block, with learner 0's model before every round."""
    params = carry.readout[0, 0]

    def draw(key: jax.Array) -> Any:
        return algorithm.draws(key, steps, params, setting.constants)

    def one_round(carry: Carry, inputs: tuple) -> tuple[Carry, jax.Array]:
        step, rate, window, draws = inputs
        form = partial(engine.form_batch, algorithm, loss, arrivals, step, window.blocks)
        exchange = partial(engine.exchange, algorithm, form, setting, rate, window, domain)
        states, sampler = jax.vmap(exchange, in_axes=(0, 0, None), out_axes=(0, None))(
            carry.states, draws, carry.sampler
        )
        return Carry(states, carry.readout, sampler), jax.vmap(algorithm.predict)(
            jax.tree.map(lambda leaf: leaf[:, 0], carry.states)
        )

    draws = jax.vmap(jax.vmap(draw, out_axes=1), out_axes=1)(setting.noise_keys)
    return jax.lax.scan(one_round, carry, (steps, rates, windows, draws))


def _require_online(algorithm: CorrelatedFederated, rounds: int) -> None:
    require.instance(
        "algorithm",
        algorithm,
        CorrelatedFederated,
        "a federated one: all learners must hold the same model",
    )
    if not isinstance(algorithm.sampling, Fresh):
        require.fail(
            "sampling",
            "fresh where regret is measured: each record is seen once",
            str(algorithm.sampling),
        )
    if rounds > algorithm.rounds:
        require.fail(
            "rounds", f"at most the {algorithm.rounds:g} that the noise is planned for", rounds
        )
