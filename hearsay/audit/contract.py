"""The contract (base.py) held against one algorithm: what it declares is what it does.

Every function here takes the algorithm as a `Subject` and returns what it saw, in words with
numbers; it raises `Broken` where the contract does not hold. What a check shows and what it does
not is said in checking.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay import problems
from hearsay._parts import schedule_fields
from hearsay.base import Algorithm, Inbox, Keys, noise_fields
from hearsay.graphs import Graph, ring, star
from hearsay.graphs.channels import channel
from hearsay.graphs.secrets import Secrets
from hearsay.privacy.recursion import Release
from hearsay.problems.losses.domains import Ball
from hearsay.problems.losses.linear import HalfSquared
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.batches import Batch
from hearsay.problems.sampling.samplers import Cyclic, Fresh, History, Sampling
from hearsay.schedules import Constant, SampleSize, Schedule, schedule
from hearsay.simulation import keys
from hearsay.simulation.scales import independent, prepared, require_declared

AGENTS, STEPS, WIDTH = 4, 6, 3
ONE = SampleSize(Constant(1.0))
# Where an algorithm's own runs dry on these few records.
SAMPLERS: tuple[Sampling, ...] = (Cyclic(), Cyclic(ONE), Fresh(ONE), History())
# What a certificate takes to be as in base.py, and why.
_NOT_ONES_OWN = {
    "send": "a deployed agent adds its noise elsewhere",
    "draws": "the noise of every round must be drawn alike (override draw)",
    "law": "it follows from the option mechanism",
}


class Broken(Exception):
    """The contract does not hold; the text says where and by how much."""


class NotDone(Exception):
    """A check that does not apply to this algorithm; the text says why."""


@dataclass(frozen=True)
class Subject:
    """An algorithm with a sampler that lasts, on a small problem that it accepts."""

    algorithm: Algorithm
    problem: Problem
    graph: Graph


def subject(algorithm: Algorithm) -> Subject:
    """Ridge regression of four agents, a little different at each."""
    problem = problems.ridge(agents=AGENTS, records=24, dimension=WIDTH, ridge=0.3, radius=3.0)
    why = ""
    for graph in (star(AGENTS), ring(AGENTS)):
        for sampling in (algorithm.sampling, *SAMPLERS):
            found = among(replace(algorithm, sampling=sampling), AGENTS)
            try:
                found.check(graph, problem.task)
                last = min(sampling.lasts(n, problem.arrivals) for n in problem.counts.tolist())
            except ValueError as error:
                why = str(error)
                continue
            if last >= STEPS:
                return Subject(found, problem, graph)
    raise Broken(f"it runs on no small problem: {why or 'its samplers run dry'}")


def among(algorithm: Algorithm, agents: int) -> Algorithm:
    """The same algorithm for so few agents: secrets that are planned for a larger network would
    protect nobody there, and are shared by everybody with everybody.
    """
    secrets = algorithm.secrets
    if secrets is None:
        return algorithm
    ratio = None if isinstance(secrets.ratio, tuple) else secrets.ratio
    few = min(secrets.colluders, agents - 2)
    return replace(algorithm, secrets=Secrets(colluders=few, ratio=ratio))


def declaration(one: Subject) -> str:
    """A frozen, hashable dataclass whose schedules are read from what people write."""
    algorithm, kind = one.algorithm, type(one.algorithm)
    if not is_dataclass(kind) or "__dataclass_fields__" not in vars(kind):
        raise Broken(
            f"{kind.__name__} must be decorated with @dataclass(frozen=True, kw_only=True)"
        )
    try:
        algorithm.average = True  # type: ignore[misc]
        raise Broken(f"{kind.__name__} must be frozen: it could be changed after it was certified")
    except FrozenInstanceError:
        pass
    if hash(replace(algorithm)) != hash(algorithm) or replace(algorithm) != algorithm:
        raise Broken("two algorithms with the same options must be equal, and have one hash")
    for name in schedule_fields(kind):
        given, negative = getattr(algorithm, name), dict[str, Any]({name: -1.0})
        if not isinstance(given, (Schedule, tuple)):
            raise Broken(f"{name} must be read as a schedule, and is {given!r}: does __post_init__"
                         " call super().__post_init__()?")  # fmt: skip
        try:
            replace(algorithm, **negative)
        except (ValueError, TypeError):
            continue
        raise Broken(f"{name} must be checked, and -1 is taken: does __post_init__ call"
                     " super().__post_init__()?")  # fmt: skip
    if not noise_fields(kind):
        raise Broken("no field is annotated Noise: calibration has nothing to multiply")
    final = "" if getattr(kind, "__final__", False) else "; it is not marked @final"
    return f"{len(fields(algorithm))} fields, {len(schedule_fields(kind))} schedules{final}"


def messages(one: Subject) -> str:
    """Channels, message, coins, draws and releases name the same fields."""
    algorithm = one.algorithm
    for name, why in _NOT_ONES_OWN.items():
        if getattr(type(algorithm), name) is not getattr(Algorithm, name):
            raise Broken(f"{name} must not be overridden: {why}")
    for name in algorithm.channels.values():
        channel(name)
    sent, coins = tuple(algorithm.channels), set(algorithm.coins)
    if algorithm.message._fields != sent:  # type: ignore[attr-defined]
        raise Broken(f"message must have the fields of channels, {', '.join(sent)}, got"
                     f" {', '.join(algorithm.message._fields)}")  # type: ignore[attr-defined]  # fmt: skip
    draws = drawn(algorithm, key(0), key(0), jnp.zeros(WIDTH))
    noises = set(draws._fields) - coins
    if not coins <= set(draws._fields):
        raise Broken(f"coins must be drawn, and {', '.join(coins - set(draws._fields))} are not")
    releases = algorithm.releases(1, (0.0, 1.0))
    if not isinstance(releases, tuple) or not all(isinstance(r, Release) for r in releases):
        raise Broken(f"releases must return a tuple, one Release for every field, got {releases}")
    released = {r.name for r in releases}
    if not released == noises == set(sent) - coins:
        raise Broken(
            f"every message field that is no coin needs a draw and a release: the message has"
            f" {sorted(set(sent) - coins)}, the draws {sorted(noises)}, the releases"
            f" {sorted(released)}"
        )
    for coin in coins:
        values = np.asarray(getattr(draws, coin))
        if values.min() < 0 or values.max() > 1:
            raise Broken(f"the coin {coin} must lie between 0 and 1, got {values.max():g}")
    rates = algorithm.rates(np.arange(3), AGENTS)
    if missing := set(noise_fields(type(algorithm))) - set(rates._fields):
        raise Broken(f"rates must hold the noise scales {', '.join(sorted(missing))}")
    state, batch, rate = situation(one)
    try:
        prepared(algorithm, state, batch, rate)
    except ValueError as error:
        raise Broken(str(error)) from None
    return f"{len(sent)} field(s) over {', '.join(algorithm.channels.values())}"


def scales(one: Subject) -> str:
    """Noise has the scale that is declared, and the scale shows nothing."""
    try:
        require_declared(one.algorithm, one.problem, one.graph, 20)
    except ValueError as error:
        raise Broken(str(error)) from None
    return "in twenty rounds"


def pure(one: Subject) -> str:
    """The same arguments give the same result, compiled or not, in any order."""
    algorithm, domain = one.algorithm, one.problem.domain
    state, batch, rate = situation(one)
    draws = one_round(algorithm)

    def go(draws: Any, state: Any, rate: Any) -> Any:
        sent, after = algorithm.send(draws, state, batch, rate)
        inbox = Inbox(jax.tree.map(lambda x: 0.3 * x, sent), type(sent)(*(0.4 for _ in sent)))
        return sent, algorithm.update(after, sent, inbox, batch, rate, domain)

    first, again = go(draws, state, rate), go(draws, state, rate)
    if not _same(first, again, 0.0):
        raise Broken("prepare and update must be pure, and give another result the second time")
    if not _same(first, jax.jit(go)(draws, state, rate), 1e-9):
        raise Broken("prepare and update must give the same result when they are compiled")
    return "twice in plain Python and once compiled"


def affine(one: Subject) -> str:
    """The leak is affine in the weight that is heard."""
    k, algorithm = np.arange(20), one.algorithm
    low, top = (schedule("leak", algorithm.leak(heard))(k) for heard in (0.0, 0.8))
    for share in (0.25, 0.5, 0.75):
        between = schedule("leak", algorithm.leak(0.8 * share))(k)
        gap = float(np.max(np.abs(between - (1 - share) * low - share * top)))
        if gap > 1e-9:
            raise Broken(f"leak must be affine in what is heard, and is off by {gap:.3g}")
    return "at five weights and twenty steps"


def situation(one: Subject) -> tuple[Any, Any, Any]:
    """(state, batch, rates) of agent 1 at step 2, away from the start."""
    algorithm = one.algorithm
    rates = algorithm.rates(np.arange(3), AGENTS)
    rate = jax.tree.map(lambda r: jnp.asarray(r[2, 1]), rates)
    # Of one record, with a steep gradient.
    batch = Batch(jnp.ones((1, WIDTH)), jnp.zeros(1), jnp.ones(1), HalfSquared(WIDTH**0.5))
    return algorithm.init(jnp.full(WIDTH, 0.3)), batch, rate


def drawn(algorithm: Algorithm, own: jax.Array, others: jax.Array, params: jax.Array) -> Any:
    """Draws of four rounds.

    Args:
      own: the agent's own key.
      others: in the place of keys that others have, too.
    """
    given = keys.stand_in(algorithm.keys, others)
    given = given._replace(own=own) if isinstance(given, Keys) else own
    return algorithm.draws(given, jnp.arange(4), params, algorithm.constants(params.dtype))


def one_round(algorithm: Algorithm) -> Any:
    """Draws of the first round."""
    every = drawn(algorithm, key(0), key(0), jnp.zeros(WIDTH))
    return jax.tree.map(lambda x: x[0], every)


@require.plain_arguments
def key(seed: int) -> jax.Array:
    return jax.random.key(seed, impl="threefry2x32")


def _same(one: Any, two: Any, within: float = 1e-12) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.allclose(a, b, rtol=within, atol=within) for a, b in pairs)


def magnitudes(one: Subject) -> str:
    """What an update makes of what it hears is at most what is declared."""
    algorithm, k = one.algorithm, 2
    try:
        declared = algorithm.magnitudes(1, AGENTS)
    except ValueError as error:
        raise NotDone(f"it can be simulated and certified, not deployed: {error}") from None
    state, batch, rate = situation(one)
    if not hasattr(state, "params"):
        raise Broken("magnitudes are about the part params of the state, which must be the model")
    draws = _still(algorithm)
    sent, state = algorithm.send(draws, state, batch, rate)
    own = type(sent)(*(jnp.asarray(0.4) for _ in sent))

    def after(total: Any) -> dict[str, Any]:
        found = algorithm.update(state, sent, Inbox(total, own), batch, rate, Ball(1e9))
        return {part: getattr(found, part) for part in ("params", "drift") if hasattr(found, part)}

    slopes = jax.jacobian(after)(jax.tree.map(jnp.zeros_like, sent))
    for part, field, slope, limit in _slopes(algorithm, slopes, declared, k):
        if slope > limit * (1 + 1e-6):
            raise Broken(
                f"magnitudes must cover the update: {field}, heard, moves {part} by a factor of"
                f" {slope:.4g}, declared {limit:.4g}"
            )
    if float(declared.step(k)) < float(algorithm.step_size(k)) * (1 - 1e-12):
        raise Broken("magnitudes must have a step that is at least step_size")
    if carried := _carried(one, float(declared.tracking(k)) > 0.0):
        raise Broken(
            f"magnitudes must be left out: {', '.join(carried)} of the state is carried on, and no"
            " bound counts what its rounding costs (it can be simulated and certified)"
        )
    delayed = any(r.delay for r in algorithm.releases(1, (0.0, 1.0)))
    if delayed == (declared.step_noise is None):
        raise Broken("magnitudes must have step_noise where a release has delay 1, and only there")
    return "it can be deployed"


def _still(algorithm: Algorithm) -> Any:
    """The draws of one round in which every coin is at 0."""
    draws = one_round(algorithm)
    return draws._replace(**{n: jnp.zeros_like(getattr(draws, n)) for n in algorithm.coins})


def _carried(one: Subject, tracks: bool) -> list[str]:
    """What of the state, besides the model and a declared tracker's drift, the next state follows
    from while the transcript is fixed, and does not follow from the transcript alone, such as what
    was sent last. The rounding of a momentum, say, adds up from round to round, and
    privacy/float64.py counts none.
    """
    algorithm, (state, batch, rate) = one.algorithm, situation(one)
    draws = _still(algorithm)
    sent, _ = algorithm.send(draws, state, batch, rate)
    inbox = Inbox(jax.tree.map(lambda x: 0.3 * x, sent), type(sent)(*(0.4 for _ in sent)))
    paths, structure = jax.tree_util.tree_flatten_with_path(state)
    named = [jax.tree_util.keystr(path).strip(".[]'") for path, _ in paths]
    leaves = [leaf for _, leaf in paths]

    def after(leaves: list, batch: Any) -> Any:
        _, state = algorithm.send(draws, jax.tree.unflatten(structure, leaves), batch, rate)
        return algorithm.update(state, sent, inbox, batch, rate, Ball(1e9))

    def told(leaf: int, known: set[int]) -> bool:
        """It follows from those leaves and the transcript."""

        def following(given: tuple[list, Any]) -> Any:
            mixed = [leaves[i] if i in known else other for i, other in enumerate(given[0])]
            return jax.tree.leaves(after(mixed, given[1]))[leaf]

        return independent(following, jax.tree.map(lambda x: jnp.stack([x, x]), (leaves, batch)))

    known = set(range(len(leaves)))
    while known != (still := {leaf for leaf in known if told(leaf, known)}):
        known = still
    counted, found = {"params", *(("drift",) if tracks else ())}, []
    for at, name in enumerate(named):
        if name in counted or at in known:
            continue

        def moved(leaf: jax.Array, at: int = at) -> Any:
            return after([*leaves[:at], leaf, *leaves[at + 1 :]], batch)

        if not independent(moved, jnp.stack([leaves[at]] * 2)):
            found.append(name)
    return found


def _slopes(
    algorithm: Algorithm, slopes: Any, declared: Any, k: int
) -> Iterator[tuple[str, str, float, float]]:
    limits = {"params": declared.coupling, "drift": declared.tracking}
    for part, law in limits.items():
        for field in set(algorithm.channels) - set(algorithm.coins):
            if part in slopes:
                slope = float(np.abs(getattr(slopes[part], field)).max())
                yield part, field, slope, float(law(k))
