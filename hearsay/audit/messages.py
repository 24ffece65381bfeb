"""What an agent's messages are made of: its public surroundings, and a replay along a
given transcript.

Fix everything that was sent. Then what an agent would have sent before noise is a function of its
records, which `follow` evaluates with the agent's own functions: brute force compares two of them,
and the distinguisher works out how likely a transcript is under each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.algorithms import Dsgd, QuantizedDsgd
from hearsay.base import Algorithm, Inbox, noise_fields
from hearsay.graphs import Graph
from hearsay.graphs.channels import mixer
from hearsay.mechanisms import Laplace
from hearsay.problems.losses.domains import Domain
from hearsay.problems.losses.loss import Loss
from hearsay.problems.sampling.samplers import Arrivals, Coins, Records, Sampling, Window
from hearsay.problems.task import Task
from hearsay.schedules import Constant
from hearsay.simulation import keys
from hearsay.simulation.program import Program


class Transcript(NamedTuple):
    """Per message field, arrays (time, d): what the agent sent, noise included,
    and the weighted sum of what it heard; where a round has more phases, in the last of them, with
    what the agent sent in it.
    """

    sent: tuple[jax.Array, ...]
    heard: tuple[jax.Array, ...]
    relayed: tuple[jax.Array, ...] | None = None


class Scene(NamedTuple):
    """What anybody knows of one agent's part in a run: steps, rates and windows with an axis of
    time, its own weight per message field, its sampling key, its first model, and the constants
    of its noise.
    """

    steps: Any
    rates: Any
    windows: Window
    own: tuple
    key: jax.Array
    start: jax.Array
    constants: Any


@require.plain_arguments
def scene(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int, steps: int, seed: int = 0
) -> Scene:
    """What anybody knows of that agent, and its secret batches in a run with that noise seed."""
    k, dtype = np.arange(steps), problem.dtype
    windows = algorithm.sampling.windows(k, problem.counts, problem.arrivals)
    return Scene(
        jnp.asarray(k, jnp.int32),
        jax.tree.map(lambda r: jnp.asarray(r[:, agent], dtype), algorithm.rates(k, graph.agents)),
        Window(windows.start[:, agent], windows.size[:, agent], windows.blocks),
        tuple(mixer(graph, kind, dtype).own[agent] for kind in algorithm.channels.values()),
        batch_key(algorithm, problem, agent, seed),
        problem.domain.project(jnp.asarray(problem.first_models[agent], dtype)),
        algorithm.constants(dtype),
    )  # fmt: skip


@require.plain_arguments
def batch_key(algorithm: Algorithm, problem: Task, agent: int, seed: int = 0) -> jax.Array:
    """What the agent's batches are drawn from in a simulation with that noise seed."""
    if not algorithm.sampling.per_seed:
        return keys.sampling_keys(problem.seed, problem.agents)[agent]
    return keys.coin_keys(keys.noise_keys(jnp.asarray([seed]), problem.agents))[0, agent]


def with_noise_draws(algorithm: Algorithm, draws: Any, value: float) -> Any:
    """The same draws with all noise set to one number; coins, which an adversary may know, are
    left as they are.
    """
    noises = [name for name in type(draws)._fields if name not in algorithm.coins]
    return draws._replace(**{name: jnp.full_like(getattr(draws, name), value) for name in noises})


def silent_draws(algorithm: Algorithm, scene: Scene) -> Any:
    """Draws of all steps without noise and with every coin at 0:
    everybody is awake and every coordinate is kept.
    """
    shapes = jax.eval_shape(
        lambda: algorithm.draws(
            keys.stand_in(algorithm.keys, scene.key), scene.steps, scene.start, scene.constants
        )
    )
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


def coin_draws(algorithm: Algorithm, scene: Scene, key: jax.Array, drawn: Any) -> Any:
    """Draws of all steps with public coins that come from that key; all at 0 unless `drawn`."""
    found = algorithm.draws(
        keys.stand_in(algorithm.keys, key), scene.steps, scene.start, scene.constants
    )
    return with_noise_draws(algorithm, jax.tree.map(lambda x: jnp.where(drawn, x, 0), found), 0.0)


def follow(
    program: Program,
    scene: Scene,
    records: Records,
    transcript: Transcript,
    draws: Any,
    coins: Coins | None = None,
) -> tuple[tuple, tuple]:
    """(messages before noise, their noise scales), per field an array (time, ...), along
    one transcript.

    A message is value + scale draw, so draws of 0 and 1 find both, whatever the algorithm does with
    them: what is measured is the code that runs. Batches are those of the scene's key, or of the
    given coins, which have an axis of time.
    """
    algorithm = program.algorithm

    def step(carry: tuple, inputs: tuple) -> tuple[tuple, Any]:
        state, sampler = carry
        k, rate, window, transcript, draw, coin = inputs
        drawn = scene.key if coin is None else coin
        batch, sampler = program.batch(
            k, window.blocks, sampler, records, window.start, window.size, drawn
        )
        unit, _ = algorithm.send(with_noise_draws(algorithm, draw, 1.0), state, batch, rate)
        message, state = algorithm.send(with_noise_draws(algorithm, draw, 0.0), state, batch, rate)
        make = type(message)
        inbox = Inbox(make(*transcript.heard), make(*scene.own))
        last = transcript.sent if transcript.relayed is None else transcript.relayed
        state = algorithm.update(state, make(*last), inbox, batch, rate, program.domain)
        return (state, sampler), (
            tuple(message),
            tuple(u - m for u, m in zip(unit, message, strict=True)),
        )

    start = (algorithm.init(scene.start), program.sampler(records))
    inputs = (scene.steps, scene.rates, scene.windows, transcript, draws, coins)
    return jax.lax.scan(step, start, inputs)[1]


def decided(
    program: Program, scene: Scene, records: Records, row: Any, inside: Any, places: Any = None
) -> Coins:
    """The coins of all steps, as the scene's key gives them except for one record.

    Args:
      row: of the record.
      inside: whether it is in the batch, one answer for all steps or one for each.
      places: of the steps, where it is in a batch that has an order (`Sampling.decided`).
    """
    sampling = program.algorithm.sampling

    def one(k: jax.Array, inside: jax.Array, place: Any) -> Coins:
        coins = sampling.coins(keys.at(scene.key, k), records)
        return sampling.decided(coins, row, inside, place)

    each = jnp.broadcast_to(jnp.asarray(inside), scene.steps.shape)
    return jax.vmap(one)(scene.steps, each, places)


def bare(algorithm: Algorithm) -> Algorithm:
    """The same algorithm with additive noise in its messages: quantizing afterwards is free, a
    ternary quantizer has the sensitivity of noise of scale r, and where there is no noise at all a
    unit of it lets gaps be compared. What agents share is left out: gaps are in units of an agent's
    own noise.
    """
    options: dict[str, Any] = {} if algorithm.secrets is None else {"secrets": None}
    if isinstance(algorithm, QuantizedDsgd):
        algorithm = Dsgd(
            **{f: getattr(algorithm, f) for f in ("step", "noise", "mechanism", "sampling")}
        )
    if not algorithm.law.adds_noise:
        options["mechanism"] = Laplace.name
    levels = algorithm.noise if isinstance(algorithm.noise, tuple) else (algorithm.noise,)
    if all(float(level(0)) == 0 for level in levels):
        options |= {name: Constant(1.0) for name in noise_fields(type(algorithm))}
    return replace(algorithm, **options) if options else algorithm


@require.plain_arguments
def whitener(algorithm: Algorithm, steps: int) -> np.ndarray:
    """The matrix (time, time) that makes noise of the steps independent, of variance 1:
    the inverse Cholesky factor of its covariance D D'. Messages before the first row of D have no
    noise, and are left alone.
    """
    found, late = np.eye(steps), algorithm.delay
    if algorithm.factors is not None and steps > late:
        rows = algorithm.factors.increments(0, steps - late)
        found[late:, late:] = np.linalg.inv(np.linalg.cholesky(rows @ rows.T))
    return found


@dataclass(frozen=True)
class _Counted(Loss):
    """Not a loss: its gradient is the weight of every record in the batch.

    Records carry their number as their only feature.
    """

    rows: int
    ridge: float = 0.0
    clip: float | None = None
    curvature: tuple[float, float] = (0.0, 0.0)  # type: ignore[assignment]

    def dimension(self, record: tuple[int, ...]) -> int:
        return self.rows

    def gradient_sum(
        self, params: jax.Array, features: jax.Array, labels: jax.Array, weights: jax.Array
    ) -> jax.Array:
        return jnp.zeros(self.rows, weights.dtype).at[features[:, 0].astype(jnp.int32)].add(weights)

    def score(
        self, params: jax.Array, features: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        raise NotImplementedError

    def change(self, domain: Domain, dimension: int, adjacency: str = "replace") -> float:
        raise NotImplementedError


@require.plain_arguments
def membership(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int, steps: int, seed: int = 0
) -> np.ndarray:
    """(time, row): the weight of every record in every batch, as the sampler really forms them in a
    run with that noise seed.
    """
    public = scene(algorithm, problem, graph, agent, steps, seed)
    numbers = jnp.arange(problem.most, dtype=problem.dtype)
    records = Records(
        numbers[:, None], jnp.zeros_like(numbers), jnp.asarray(problem.counts[agent], jnp.int32)
    )
    found = _membership(
        records,
        public.steps,
        public.windows,
        public.key,
        sampling=algorithm.sampling.kernel,
        arrivals=problem.arrivals,
    )
    return np.asarray(found)


@partial(jax.jit, static_argnames=("sampling", "arrivals"))
def _membership(
    records: Records,
    steps: jax.Array,
    windows: Window,
    key: jax.Array,
    *,
    sampling: Sampling,
    arrivals: Arrivals,
) -> jax.Array:
    loss = _Counted(records.labels.shape[0])

    def step(state: Any, inputs: tuple) -> tuple[Any, jax.Array]:
        k, window = inputs
        batch, state = sampling.batch(state, loss, records, k, window, arrivals, keys.at(key, k))
        return state, batch.gradient(jnp.zeros_like(records.labels))

    return jax.lax.scan(step, sampling.prepare(loss, records, arrivals), (steps, windows))[1]
