"""Gradient perturbation on made-up records, for many settings at once, in NumPy.

The rounds are those of algorithms/gradient_perturbation.py with all records in every step,

    sent    = p + noise                      p: the next message before its noise
    v       = sent, averaged m times
    p       = Proj[ v + c (A v - v) - a w g(v) ]            w: the agent's weight

with one column for every setting and noise seed: columns differ in step, noise, clip and number of
rounds, and share the records, which may arrive round by round. The engine compiles a program for
every clip and shape, which would take longer than all of this; tests hold the two against each
other. Settings are compared under the same noise: seed by seed it is drawn once and scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.release.readouts import ReadOut

Single = np.float32


@dataclass(frozen=True)
class Column:
    """One setting.

    Args:
      rounds: messages of each agent.
      step: the size of a step.
      noise: the standard deviation of every agent's own noise on its gradient.
      clip: the norm that every record's gradient is brought down to; infinite: none.
      weights: of the agents, of mean 1; none: all count the same.
      pace: (rounds,) every step in units of `step`; none: all are that.
      fading: (rounds,) every noise in units of `noise`; none: all are that.
      arrived: (rounds, agents) the share of its records that an agent has; none: all of them. The
        same in all columns, as far as they go.
    """

    rounds: int
    step: float
    noise: tuple[float, ...]
    clip: float = np.inf
    weights: tuple[float, ...] | None = None
    pace: np.ndarray | None = None
    fading: np.ndarray | None = None
    arrived: np.ndarray | None = None

    def cut(self, rounds: int) -> Column:
        """Its first rounds."""

        def first(each: np.ndarray | None) -> np.ndarray | None:
            return None if each is None else each[:rounds]

        return replace(
            self,
            rounds=min(rounds, self.rounds),
            pace=first(self.pace),
            fading=first(self.fading),
            arrived=first(self.arrived),
        )


@dataclass(frozen=True)
class Exchange:
    """What messages go through, the same in all columns.

    Args:
      mixing: A, (agents, agents), dense for few agents.
      coupling: c.
      relays: (round, 2), as `AveragedGradient.relays` gives them.
      shared: (agents, sources) what every agent adds of noise that cancels between agents, in
        units of its own; None: there is none.
    """

    mixing: sparse.csr_array | np.ndarray
    coupling: float
    relays: np.ndarray
    shared: np.ndarray | None = None

    def mixed(self, values: np.ndarray) -> np.ndarray:
        """A v, of values (agents, ...)."""
        flat = values.reshape(len(values), -1)
        return np.asarray(self.mixing @ flat, Single).reshape(values.shape)

    def averaged(self, sent: np.ndarray) -> np.ndarray:
        before = now = sent
        for own, earlier in self.relays:
            before, now = now, Single(own) * self.mixed(now) - Single(earlier) * before
        return now


def exchange(graph: Graph, coupling: float, relays: np.ndarray, shared: Any = None) -> Exchange:
    """That of a graph; `shared` as `Algorithm.shared` gives it."""
    mixing = sparse.eye_array(graph.agents) + graph.weights - sparse.diags_array(graph.row_sums)
    found = sparse.csr_array(mixing.astype(Single))
    kept = found if graph.agents > 64 else found.toarray()
    return Exchange(kept, coupling, relays, None if shared is None else _pairs(shared))


def _pairs(shared: Any) -> np.ndarray:
    """One column per pair; where every two agents share alike, as many as agents with the same
    covariance, ratio^2 (n I - 1 1').
    """
    agents = shared.agents
    if not shared.pairs and len(shared.ratios) == 1 and len(set(shared.scales)) == 1:
        centred = np.eye(agents) - 1 / agents
        return (shared.ratios[0] * np.sqrt(agents) * centred).astype(Single)
    ends, weights = shared.ends(), shared.weights()
    found = np.zeros((agents, len(ends)), Single)
    each = np.arange(len(ends))
    found[ends[:, 0], each], found[ends[:, 1], each] = weights[:, 0], -weights[:, 1]
    return found


def tried(
    problem: Problem,
    exchanged: Exchange,
    columns: Sequence[Column],
    readouts: Sequence[ReadOut],
    seeds: Sequence[int],
    together: bool = True,
) -> np.ndarray:
    """Scores (read-out, column, seed) of the released model on the problem's test set.

    Args:
      problem: with made-up records and a test set.
      exchanged: what messages go through.
      columns: the settings.
      readouts: which averages of messages are scored.
      seeds: of the noise.
      together: one model of all agents' messages; otherwise each releases its own, and the score
        is the mean over agents.
    """
    found = released(problem, exchanged, columns, readouts, seeds, together)
    return np.array([[scores(problem, model) for model in each] for each in found])


def released(
    problem: Problem,
    exchanged: Exchange,
    columns: Sequence[Column],
    readouts: Sequence[ReadOut],
    seeds: Sequence[int],
    together: bool = True,
) -> list[list[np.ndarray]]:
    """The models themselves, by read-out and column: (agents, seed, parameters), or of all agents
    together (1, seed, parameters). Arguments as for `tried`.
    """
    # The longest first, so that who is done is at the end.
    order = sorted(range(len(columns)), key=lambda place: -columns[place].rounds)
    longest = [columns[place] for place in order]
    rounds = _Rounds(problem, exchanged, longest, seeds)
    shape = (1 if together else problem.agents, *rounds.params.shape[1:])
    slots = [np.zeros((one.slots, *shape), Single) for one in readouts]
    found = [[np.zeros(0)] * len(columns) for _ in readouts]
    many = len(seeds)
    for step in range(longest[0].rounds):
        sent = rounds.message(step)
        shown = sent.mean(axis=0, keepdims=True) if together else sent
        for one, slot in zip(readouts, slots, strict=True):
            keep, add = one.weights(np.array([step]))[0].astype(Single)
            for number in range(one.slots):
                slot[number] = keep[number] * slot[number] + add[number] * shown
        done = [place for place in range(rounds.active) if longest[place].rounds == step + 1]
        for place in done:
            own = slice(place * many, (place + 1) * many)
            for number, (one, slot) in enumerate(zip(readouts, slots, strict=True)):
                mixed = np.tensordot(one.mix(step + 1), slot[:, :, own], (0, 0))
                found[number][order[place]] = mixed
        if done:
            rounds.drop(len(done))
            slots = [slot[:, :, : rounds.active * many] for slot in slots]
        if rounds.active:
            rounds.update(step, sent[:, : rounds.active * many])
    return found


class _Rounds:
    """The state of all columns that are not done: (agents, columns x seeds, parameters)."""

    def __init__(
        self,
        problem: Problem,
        exchanged: Exchange,
        columns: list[Column],
        seeds: Sequence[int],
    ) -> None:
        self.exchange, self.loss, self.domain = exchanged, problem.loss, problem.domain
        self.features = problem.features.astype(Single)
        self.labels = problem.labels.astype(Single)
        self.counts, self.arrived = problem.counts, columns[0].arrived
        self.weights = (1 / problem.counts)[:, None, None].astype(Single)
        lengths = np.maximum(np.linalg.norm(self.features, axis=2), 1e-12)
        self.seeds, self.active = len(seeds), len(columns)
        self.dimension = problem.dimension
        # Nobody else's: a trial has its own stream of noise.
        self.noise = [np.random.default_rng([*b"trial", seed]) for seed in seeds]
        each = np.repeat(np.arange(len(columns)), len(seeds))
        even = (1.0,) * problem.agents
        steps = np.array([np.multiply(one.step, one.weights or even) for one in columns])[each]
        self.steps = steps.T.astype(Single)[:, :, None]
        self.loud = np.array([column.noise for column in columns])[each].T.astype(Single)
        self.pace = _by_round([column.pace for column in columns], columns[0].rounds)[:, each]
        self.fading = _by_round([column.fading for column in columns], columns[0].rounds)[:, each]
        clips = np.array([column.clip for column in columns])[each]
        self.limits = (
            None
            if np.all(np.isinf(clips))
            else (clips[None, None, :] / lengths[:, :, None]).astype(Single)
        )
        shape = (problem.agents, len(each), problem.dimension)
        self.params = np.broadcast_to(problem.first_models[:, None, :].astype(Single), shape).copy()

    def drop(self, columns: int) -> None:
        """The last ones are done."""
        self.active -= columns
        left = self.active * self.seeds
        self.params, self.steps = self.params[:, :left], self.steps[:, :left]
        self.loud = self.loud[:, :left]
        self.pace, self.fading = self.pace[:, :left], self.fading[:, :left]
        if self.limits is not None:
            self.limits = self.limits[:, :, :left]

    def message(self, step: int) -> np.ndarray:
        """What is sent in that round; the first message has no noise."""
        if step == 0:
            return self.params
        agents = len(self.params)
        drawn = np.stack(
            [one.standard_normal((agents, self.dimension), Single) for one in self.noise], axis=1
        )
        if self.exchange.shared is not None:
            common = np.stack(
                [
                    one.standard_normal((self.exchange.shared.shape[1], self.dimension), Single)
                    for one in self.noise
                ],
                axis=1,
            )
            drawn = drawn + np.tensordot(self.exchange.shared, common, (1, 0))
        factor = (self.pace[step - 1] * self.fading[step - 1])[:, None]
        scale = self.loud[:, :, None] * self.steps * factor
        return self.params + scale * np.tile(drawn, (1, self.active, 1))

    def update(self, step: int, sent: np.ndarray) -> None:
        self._arrive(step)
        heard = self.exchange.averaged(sent)
        own = self._projected(heard)
        point = own + Single(self.exchange.coupling) * (self.exchange.mixed(heard) - own)
        size = self.steps * self.pace[step][:, None]
        self.params = self._projected(point - size * self._gradient(own))

    def _arrive(self, step: int) -> None:
        """The mean is over the records that are there."""
        if self.arrived is None:
            return
        there = np.maximum(np.round(self.arrived[step] * self.counts), 1)
        place = np.arange(self.features.shape[1])
        self.weights = ((place < there[:, None]) / there[:, None])[:, :, None].astype(Single)

    def _projected(self, params: np.ndarray) -> np.ndarray:
        return np.asarray(self.domain.project(params), Single)

    def _gradient(self, params: np.ndarray) -> np.ndarray:
        agents, columns, _ = params.shape
        width = self.features.shape[2]
        margins = self.features @ params.reshape(agents, -1, width).swapaxes(1, 2)
        residual = self._residual(margins, columns)
        found = (residual * self.weights).swapaxes(1, 2) @ self.features
        found = found.reshape(params.shape)
        if self.loss.regulariser:
            found = found + Single(self.loss.regulariser) * params
        return found

    def _residual(self, margins: np.ndarray, columns: int) -> np.ndarray:
        """Clipped, (agents, records, columns x outputs)."""
        agents, records, wide = margins.shape
        loss: Any = self.loss
        if wide == columns:
            found = loss.residual(margins, self.labels[:, :, None])
            if self.limits is not None:
                found = np.clip(found, -self.limits, self.limits)
            return found
        split = margins.reshape(agents, records, columns, -1)
        found = loss.residual(split, np.broadcast_to(self.labels[:, :, None], split.shape[:3]))
        if self.limits is not None:
            size = np.maximum(np.linalg.norm(found, axis=3), 1e-12)
            found = found * np.minimum(1, self.limits / size)[..., None]
        return found.reshape(agents, records, wide)


def _by_round(given: Sequence[np.ndarray | None], rounds: int) -> np.ndarray:
    """(rounds, columns) what each has in every round; 1 where it has nothing."""
    found = np.ones((rounds, len(given)), Single)
    for place, own in enumerate(given):
        if own is not None:
            found[: len(own), place] = own
    return found


def scores(problem: Problem, models: np.ndarray) -> np.ndarray:
    """(seed,) of models (agents or 1, seed, parameters): accuracy, or for numbers the share of
    their variance that is explained.
    """
    features, labels = problem.test_features, problem.test_labels
    agents, seeds, dimension = models.shape
    outputs = dimension // features.shape[1]
    margins = features @ models.reshape(-1, features.shape[1]).T
    margins = margins.reshape(len(features), agents, seeds, outputs)
    if not problem.classification:
        wrong = np.mean((margins[..., 0] - labels[:, None, None]) ** 2, axis=0)
        return np.mean(1 - wrong / max(labels.var(), 1e-12), axis=0)
    if outputs > 1:
        named = np.argmax(margins, axis=3)
    else:
        loss: Any = problem.loss
        named = np.asarray(loss.predict(margins[..., 0]))
    return np.mean(named == labels[:, None, None], axis=(0, 1))
