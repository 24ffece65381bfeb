"""An algorithm's certificate held against adversaries on several small problems, graphs and
samplers, under either adjacency: random ones (brute force), and ones that climb (search.py).

Small on purpose: with one number per message and clipped gradients the bounds are nearly reached by
algorithms whose coefficients are right, so a coefficient that is too small by a few percent shows.
They are short, too, but for one, and have the algorithm's own schedules, but for two: what sets in
only after more messages, or with other schedules than these, is not seen.
A ratio above 1 is a counterexample, no matter how it was found. Here too a function returns what it
saw and raises `Broken` where something does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay._parts import schedule_fields
from hearsay.audit.brute_force import allowed, random_transcripts
from hearsay.audit.contract import Broken, NotDone, Subject, among
from hearsay.audit.messages import (
    Scene,
    Transcript,
    bare,
    coin_draws,
    follow,
    scene,
    whitener,
)
from hearsay.audit.pairs import candidates
from hearsay.audit.residuals import residuals
from hearsay.audit.search import over, search
from hearsay.base import Algorithm, noise_fields
from hearsay.certification import calibrate, certify, spent_after
from hearsay.graphs import Graph, complete, ring, star
from hearsay.privacy.adjacency import REPLACE, ZERO_OUT
from hearsay.problems import Ball, Logistic, Problem, Squared
from hearsay.problems.data.records import Records as Held
from hearsay.problems.losses.loss import BoundedLoss
from hearsay.problems.sampling.samplers import (
    Arrivals,
    Cyclic,
    Fresh,
    History,
    Poisson,
    Records,
    Sampling,
    Subset,
)
from hearsay.schedules import Constant, SampleSize
from hearsay.simulation.program import Program, program

# What float64 may add to a ratio of 1.
EXACT = 1e-9
# The chance that right noise is refused.
LEVEL = 1e-6
_STEPS, LONGEST, _AGENT, _HELD, _DELTA = 6, 40, 1, 12, 1e-5
_TRANSCRIPTS = 50


class Case(NamedTuple):
    """A small world, in words and as it is.

    Args:
      samplers: the first that the algorithm takes.
      pace: its steps and its noise are multiplied by it. With small steps two states keep the
        distance that the leak leaves them, whatever the curvature: a wrong leak shows.
      adjacency: what the certificate is about.
      steps: messages.
      others: what all schedules but the step and the noise are (None: as they are).
      agent: whose messages; 0 is the hub of a star, which hears most.
    """

    words: str
    loss: BoundedLoss
    dimension: int
    radius: float
    graph: Graph
    samplers: tuple[Sampling, ...]
    pace: float = 1.0
    adjacency: str = REPLACE
    steps: int = _STEPS
    others: float | None = None
    agent: int = _AGENT


_CLIPPED = Squared(1.0, 0.1, label_bound=1.0, clip=1.0)
_FREE = Squared(1.0, 0.1, label_bound=2.0)
_TWO, _ALL = SampleSize(Constant(2.0)), SampleSize(Constant(float(_HELD)))
_ONCE, _TURNS = (Fresh(), Fresh(_TWO)), (Cyclic(), Cyclic(_TWO))
_EVERY = (Subset(_ALL), Subset(_TWO))
_COINS = (Poisson(0.5),)


def cases() -> list[Case]:
    """The worlds, the one that shows most first."""
    return [
        Case("1 number, clipped, records used once, small steps, ring", _CLIPPED, 1, 50.0,
             ring(3, weight=0.3), _ONCE, 0.05),
        Case("1 number, clipped, records used once, star", _CLIPPED, 1, 50.0, star(4), _ONCE,
             agent=0),
        Case("1 number, clipped, records in turn, complete graph", _CLIPPED, 1, 50.0,
             complete(4, weight=0.2), _TURNS, agent=3),
        Case("1 number, clipped, full history, ring", _CLIPPED, 1, 50.0,
             ring(3, weight=0.3), (History(), *_TURNS), agent=2),
        Case("1 number, not clipped, every record in every step, star", _FREE, 1, 4.0,
             star(4), _EVERY),
        Case("3 numbers, logistic, records in turn, ring", Logistic(2.0, 0.05), 3, 4.0,
             ring(3, weight=0.2), _TURNS),
        Case("1 number, clipped, records used once, a record emptied, ring", _CLIPPED, 1, 50.0,
             ring(3, weight=0.3), _ONCE, 0.05, ZERO_OUT),
        Case("1 number, not clipped, every record in every step, a record emptied, star", _FREE, 1,
             4.0, star(4), _EVERY, 1.0, ZERO_OUT, agent=2),
        Case(f"1 number, clipped, records in turn, small steps, {LONGEST} messages, ring",
             _CLIPPED, 1, 50.0, ring(3, weight=0.3), _TURNS, 0.05, steps=LONGEST),
        Case("1 number, clipped, records used once, small steps, other schedules 0.5, ring",
             _CLIPPED, 1, 50.0, ring(3, weight=0.3), _ONCE, 0.05, others=0.5),
        Case("1 number, clipped, records in turn, small steps, other schedules 0.9, star",
             _CLIPPED, 1, 50.0, star(4), _TURNS, 0.05, others=0.9),
        Case("1 number, clipped, records by secret coins, ring", _CLIPPED, 1, 50.0,
             ring(3, weight=0.3), _COINS),
        Case("1 number, not clipped, records by secret coins, a record emptied, star", _FREE, 1,
             4.0, star(4), _COINS, 1.0, ZERO_OUT),
    ]  # fmt: skip


def brute_force(one: Subject, thorough: bool = True) -> str:
    """Random transcripts and extreme pairs of records."""
    worst, tried = _Worst(), 0
    for case, algorithm, problem in _worlds(one.algorithm, thorough):
        limit = allowed(algorithm, problem, case.graph, case.agent, case.steps)
        budget = spent_after(algorithm, problem.task, case.graph, [case.steps])[0, case.agent]
        pairs = candidates(algorithm, problem, case.graph, case.agent, case.steps)
        both = jax.tree.map(
            lambda *parts: jnp.stack(parts), *[jax.tree.map(_pair, p[0], p[1]) for p in pairs]
        )
        each, total = _replayed(
            both,
            _transcripts(algorithm, case),
            scene(algorithm, problem, case.graph, case.agent, case.steps),
            (jnp.asarray(limit), jnp.asarray(budget), jnp.asarray(whitener(algorithm, case.steps))),
            program=program(algorithm, problem),
        )
        tried += len(pairs) * _TRANSCRIPTS
        worst.take(case, np.asarray(each).max(axis=(0, 1)), list(algorithm.channels))
        worst.whole(case, float(np.max(total)))
    return worst.verdict(f"{tried:,} pairs of runs")


def climbing(one: Subject, thorough: bool = True) -> str:
    """Records and transcripts that are pushed towards the largest gap."""
    worst, searches = _Worst(), 0
    for case, algorithm, problem in _worlds(one.algorithm, thorough):
        # Messages of one number climb in a few steps.
        reached = search(
            algorithm,
            problem,
            case.graph,
            agent=case.agent,
            steps=case.steps,
            iterations=25 if thorough else 8,
        )
        searches += 1
        worst.take(case, reached.ratio, list(algorithm.channels))
        worst.whole(case, reached.total)
    return worst.verdict(f"{searches} searches")


def noise(one: Subject, thorough: bool = True) -> str:
    """The noise in messages of whole runs has the law, scale and independence that are claimed."""
    if not _noisy(one.algorithm):
        raise NotDone("it takes no noise")
    if any(r.delay for r in one.algorithm.releases(_AGENT, (0.0, 1.0))):
        try:
            one.algorithm.magnitudes(_AGENT, one.graph.agents)
        except ValueError:
            raise NotDone("its magnitudes, which say when noise shows, are not declared") from None
    found = residuals(
        one.algorithm,
        one.problem,
        one.graph,
        steps=4,
        runs=1000 if thorough else 100,
        level=LEVEL,
    )
    if not found.holds:
        first = found.failed[0]
        raise Broken(
            f"the noise of {first.where} is not what the certificate counts: {first.effect}"
            f" ({first.kind}, p = {found.adjusted(first):.1g} among {len(found.tests)} tests)"
        )
    return f"{found.numbers:,} numbers, {len(found.tests)} tests, {found.law}"


def calibration(one: Subject) -> str:
    """Noise for a budget meets it, all of it grows together, and without noise there is none."""
    algorithm, problem, graph = one.algorithm, one.problem, one.graph
    if algorithm.uncertified or not _noisy(algorithm):
        raise NotDone(f"it claims no budget: {algorithm.uncertified or 'it takes no noise'}")
    k, releases = np.arange(_STEPS), algorithm.releases(_AGENT, (0.0, 1.0))
    for name in noise_fields(type(algorithm)):
        doubled: dict[str, Any] = {name: algorithm.noise_for(_AGENT, name).scaled(2.0)}
        louder = replace(algorithm, **doubled)
        scales = [r.scale(k) for r in louder.releases(_AGENT, (0.0, 1.0))]
        if np.array_equal(scales, [r.scale(k) for r in releases]):
            raise Broken(
                f"{name} is annotated Noise and must be the scale of a release, and none follows it"
            )
    louder = algorithm.with_noise([2.0] * graph.agents)
    for before, after in zip(releases, louder.releases(_AGENT, (0.0, 1.0)), strict=True):
        if not np.allclose(after.scale(k), 2 * before.scale(k), rtol=1e-9):
            raise Broken(
                f"the release {before.name} must have twice its scale when all noise is doubled:"
                " is its scale a field annotated Noise?"
            )
    horizon, asked = _STEPS, 2.0
    delta = _DELTA if algorithm.law.needs_delta else None
    ready = calibrate(algorithm, problem, graph, horizon, asked, delta=delta)
    got = certify(ready, problem, graph, horizon, delta=delta)
    if algorithm.law.unit == "delta":
        worst = max(b.delta or math.inf for b in got.budgets)
        if not worst <= _DELTA:
            raise Broken(f"calibrated to delta {_DELTA:g}, it is certified at {worst:g}")
        return f"delta {worst:.3g} of {_DELTA:g} asked"
    worst = max(got.epsilon)
    if not asked * (1 - 1e-6) <= worst <= asked:
        raise Broken(f"calibrated to epsilon {asked:g}, it is certified at {worst:g}")
    none: dict[str, Any] = {n: Constant(0.0) for n in noise_fields(type(algorithm))}
    silent = replace(algorithm, **none)
    if certify(silent, problem, graph, horizon, delta=_DELTA).finite:
        raise Broken("without any noise it must have no budget, and is certified at a finite one")
    return f"epsilon {worst:.6g} of {asked:g} asked"


class _Worst:
    """The largest ratio of found over allowed, and where."""

    def __init__(self) -> None:
        self.ratio, self.where, self.worlds = 0.0, "nowhere", set[str]()

    def take(self, case: Case, ratio: np.ndarray, fields: list[str]) -> None:
        """ratio: (field, time)."""
        self.worlds.add(case.words)
        field, k = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        self._note(float(ratio[field, k]), f"message {k}, field {fields[field]} ({case.words})")

    def whole(self, case: Case, ratio: float) -> None:
        self._note(ratio, f"the whole budget ({case.words})")

    def _note(self, ratio: float, where: str) -> None:
        if ratio > self.ratio or math.isnan(ratio):
            self.ratio, self.where = ratio, where

    def verdict(self, how: str) -> str:
        worlds = f"{len(self.worlds)} of {len(cases())} small worlds"
        text = f"{how} in {worlds}; largest found / allowed {self.ratio:.4f}, {self.where}"
        if not self.ratio <= 1 + EXACT:
            raise Broken(
                f"two data sets that differ in one record move a message further than the"
                f" certificate allows: {text}. Is every gradient taken where it is bounded, at"
                " a point of domain.project?"
            )
        if self.ratio == 0:
            raise Broken(f"no record ever moved a message: {how} show nothing")
        return text


def _worlds(algorithm: Algorithm, thorough: bool) -> Iterator[tuple[Case, Algorithm, Problem]]:
    """The cases that the algorithm takes."""
    if not _noisy(algorithm):
        raise NotDone("it takes no noise and claims no budget")
    if algorithm.uncertified:
        raise NotDone(f"it claims no budget: {algorithm.uncertified}")
    taken, why = 0, ""
    for case in cases():
        problem, changed = _problem(case), _changed(algorithm, case)
        if case.others is not None and not changed:
            continue
        for sampling in case.samplers:
            try:
                step = algorithm.step.scaled(case.pace)
                found = replace(algorithm, sampling=sampling, step=step, **changed)
                found = among(found, case.graph.agents)
                found.check(case.graph, problem.task)
                found = found.with_noise([case.pace] * case.graph.agents)
                certify(found, problem, case.graph, case.steps, delta=_DELTA)
            except ValueError as error:
                why = str(error)
                continue
            taken += 1
            yield case, bare(found), problem
            break
        if taken and not thorough:
            return
    if not taken:
        raise Broken(f"none of the small worlds can be certified: {why}")


def _changed(algorithm: Algorithm, case: Case) -> dict[str, Any]:
    """What of the algorithm the case replaces, besides its step and its sampler."""
    changed: dict[str, Any] = {}
    if math.isfinite(algorithm.rounds) and "horizon" in algorithm.__dataclass_fields__:
        changed["horizon"] = case.steps
    if case.others is None:
        return changed
    kind = type(algorithm)
    others = {*schedule_fields(kind)} - {"step", *noise_fields(kind)}
    return changed | dict.fromkeys(others, Constant(case.others)) if others else {}


def _problem(case: Case) -> Problem:
    rng, loss, agents = np.random.default_rng(0), case.loss, case.graph.agents
    features = rng.uniform(-1, 1, (agents, _HELD, case.dimension)) / math.sqrt(case.dimension)
    labels = rng.integers(0, 2, (agents, _HELD)).astype(float)
    counts = np.full(agents, _HELD)
    return Problem(
        case.words,
        loss,
        Ball(case.radius),
        (case.dimension,),
        counts,
        Arrivals(1, 0),
        records=Held(features, labels, counts),
        test_features=features[0],
        test_labels=labels[0],
        classification=False,
        adjacency=case.adjacency,
    )


def _noisy(algorithm: Algorithm) -> bool:
    return "noise" in algorithm.options


def _pair(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.stack([a, b])


def _transcripts(algorithm: Algorithm, case: Case) -> Transcript:
    """Random ones; coins are up, and everybody is heard."""
    names, coins = list(algorithm.channels), set(algorithm.coins)
    numbers = case.loss.dimension((case.dimension,))
    plain = random_transcripts(0, _TRANSCRIPTS, case.steps, len(names), numbers, 1.5)
    up, weight = jnp.ones((_TRANSCRIPTS, case.steps)), float(case.graph.row_sums[case.agent])
    return Transcript(
        tuple(up if n in coins else part for n, part in zip(names, plain.sent, strict=True)),
        tuple(
            weight * up if n in coins else part for n, part in zip(names, plain.heard, strict=True)
        ),
    )


@partial(jax.jit, static_argnames="program")
def _replayed(
    pairs: Records, transcripts: Transcript, scene: Scene, limits: tuple, *, program: Program
) -> tuple[jax.Array, jax.Array]:
    """Gaps in units of noise over what is allowed, (pair, transcript, field, time), and the same
    for the whole budget, (pair, transcript).
    """
    law = program.algorithm.law
    each, budget, white = limits
    # In every other transcript public coins are as they fall.
    coins = jax.random.split(scene.key, _TRANSCRIPTS), jnp.arange(_TRANSCRIPTS) % 2 > 0

    def ratio(pair: Records, transcript: Transcript, coins: tuple) -> tuple[jax.Array, jax.Array]:
        draws = coin_draws(program.algorithm, scene, *coins)
        values, scales = jax.vmap(lambda r: follow(program, scene, r, transcript, draws))(pair)
        found, total = [], jnp.zeros(())
        for field, (v, s) in enumerate(zip(values, scales, strict=True)):
            moved = over(v[0] - v[1], s[0]).reshape(len(v[0]), -1)
            l2 = jnp.sqrt(jnp.sum(moved**2, axis=1))
            found.append(jnp.where(l2 == 0, 0.0, l2 / each[field]))
            total += law.energy(moved, white)
        return jnp.stack(found), total / budget

    return jax.vmap(lambda pair: jax.vmap(partial(ratio, pair))(transcripts, coins))(pairs)
