"""Settings that a rehearsal may choose: gradient perturbation around the rule's.

The rule (rule.py) takes the travel, the sum of all steps, from a bound that knows nothing of how
records vary. What it leaves open is tried here: more or less travel, smaller or larger clips
(gradients that are cut shorter need less noise), steps of another size, one more exchange after a
message (gradients are then taken where all agents are on average), and which average of messages is
released. Every number is rounded to three digits before the noise is calibrated, so that agents
that rehearse on different machines arrive at the same plan. Where records arrive meanwhile the
choices are those of arriving.py.

**Noise correlated over time** is no candidate: with all records in every round it does not pay. Let
C be a factorization without negative entries (mechanisms/factorized/kinds.py) and b batches be
taken in turn. A record moves one gradient in b, by b times as much, and the noise is in proportion
to b max_p |C 1_p|, 1_p being the rounds of batch p; with all records it is in proportion to |C 1|,
which is at most sum_p |C 1_p| and so no larger. And with all records a C whose columns are the same
numbers h(0), h(1), ... >= 0 adds at every frequency f at least what independent noise does, (sum_r
h(r))^2 / |sum_r h(r) e^(i f r)|^2 times its power, but for the first rounds. Whatever C is, rounds
that count v in the released model leave at least |sum v| of noise there, where independent noise
leaves |v| sqrt(rounds): about 1.01 times that for the exponential mean, 1.13 for the tail.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.averaging import AveragedGradient
from hearsay.certification import calibrate
from hearsay.graphs import Graph
from hearsay.graphs.secrets import Secrets
from hearsay.privacy.coalitions import Shared
from hearsay.problems.losses.linear import PolynomialLogistic
from hearsay.problems.task import Task
from hearsay.release.readouts import READOUTS, ReadOut
from hearsay.schedules import Constant, PowerLaw, Schedule
from hearsay.tradeoff import rule
from hearsay.tradeoff.trial import Column

COUPLING = 0.999
# Averages that deployed agents keep, too.
RELEASED = ("tail", "exponential")
TRAVELS = (1.0, 2.0, 4.0, 0.5)
# In units of the rule's.
CLIPS = (1.0, 0.5, 2.0)
# The largest step, in units of 1 / L: at 2 what all records have in common would begin to swing.
STEEPEST = 2.0
_PROBE = 64

AnyTask = TypeVar("AnyTask", bound=Task)
Epsilon = float | tuple[float, ...]


@dataclass(frozen=True)
class Choice:
    """What a rehearsal chooses.

    Args:
      rounds: messages of each agent.
      step: the size of a step.
      clip: the norm that every record's gradient is brought down to; None: as the task has it.
      rate: the share of its records that an agent takes into a step.
      averaging: exchanges after each message.
      chebyshev: with weights that bring agents together faster.
      readout: the average of messages that is released.
      colluders: that noise which pairs of agents share is planned for; None: there is none.
      ratio: of shared to own noise.
      weights: what each agent's gradient counts, of mean 1; None: all the same.
      begun: how many rounds' records are there before the first, where they arrive round by round
        (arriving.py), `step` being the last and largest; None: all are there.
    """

    rounds: int
    step: float
    clip: float | None = None
    rate: float = 1.0
    averaging: int = 0
    chebyshev: bool = False
    readout: str = RELEASED[0]
    colluders: int | None = None
    ratio: Any = None
    weights: tuple[float, ...] | None = None
    begun: float | None = None

    def __post_init__(self) -> None:
        require.settle(
            self,
            rounds=require.count,
            step=require.positive,
            clip=require.optional(require.bound),
            rate=require.share,
            averaging=require.natural,
            chebyshev=require.flag,
            colluders=require.optional(require.natural),
            weights=require.optional(require.each(require.positive)),
            begun=require.optional(require.nonnegative),
        )
        require.one_of("readout", self.readout, READOUTS)

    @property
    def secrets(self) -> Secrets | None:
        return None if self.colluders is None else Secrets(self.colluders, self.ratio)

    @property
    def algorithm(self) -> AveragedGradient:
        """Its noise is to be calibrated."""
        plain = rule.Setting(
            self.rounds,
            self.step,
            self.rate,
            self.averaging,
            self.chebyshev,
            secrets=self.secrets,
            weights=self.weights,
        )
        found = replace(rule.noisy_gradient(plain), sampling=rule.batches(self.rate, "auto"))
        return replace(found, step=self.steps, noise=self.fading)

    @property
    def steps(self) -> Schedule:
        """In proportion to what has arrived."""
        if self.begun is None:
            return Constant(self.step)
        return PowerLaw(rounded(self.step / (self.rounds + self.begun)), 1.0, 1 + self.begun)

    @property
    def fading(self) -> Schedule:
        """The noise on a gradient, before it is calibrated: in inverse proportion to that."""
        return Constant(1.0) if self.begun is None else PowerLaw(1.0, -1.0, 1 + self.begun)

    def pace(self, steps: np.ndarray) -> np.ndarray:
        """The steps, in units of the largest."""
        return self.steps(steps) / self.step

    @property
    def average(self) -> ReadOut:
        return READOUTS[self.readout]()

    @property
    def words(self) -> str:
        share = "all records" if self.rate == 1 else f"a share {self.rate:g} of the records"
        steps = f"of step {self.step:g} with {share}"
        if self.begun is not None:
            steps = (
                f"with all records so far, steps that grow with them to {self.step:g}, noise that"
                " falls with them"
            )
        said = [f"gradient perturbation, {self.rounds} rounds {steps}"]
        if self.clip is not None:
            said.append(f"gradients clipped to {self.clip:g}")
        if self.weights is not None:
            said.append("agents weighted by their records and noise")
        if self.averaging:
            rounds = "round" if self.averaging == 1 else "rounds"
            said.append(f"{self.averaging} averaging {rounds}")
        if self.colluders is not None:
            many = f"{self.colluders} colluder{'' if self.colluders == 1 else 's'}"
            said.append(f"shared noise {self.ratio:g} times own for {many}")
        kind = "exponential mean of the last messages"
        said.append("mean of the last half of the messages" if self.readout == "tail" else kind)
        return ", ".join(said)

    def prepared(self, problem: AnyTask) -> AnyTask:
        """The same task or problem with this clip, and all records there from the start unless they
        arrive.
        """
        loss: Any = problem.loss
        if self.clip is not None:
            loss = replace(loss, clip=self.clip)
        arrivals = problem.arrivals
        if self.begun is None:
            arrivals = replace(arrivals, head_start=problem.most)
        return replace(problem, loss=loss, arrivals=arrivals)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def rounded(value: float) -> float:
    """To three digits."""
    return float(f"{value:.3g}")


def clips(task: Task) -> tuple[float | None, ...]:
    """Those that may be chosen, the rule's first; a task that has one keeps it."""
    loss: Any = task.loss
    if loss.clip is not None or not rule.travels(task) or isinstance(loss, PolynomialLogistic):
        return (None,)
    first = rule.prepared(task).loss.clip
    if first is None:
        # Numbers lie anywhere within their bound: half of it is far from their middle.
        first = loss.feature_bound * loss.label_bound / 2
    return tuple(rounded(first * factor) for factor in CLIPS)


class Law:
    """What a certificate asks for: everybody's own noise on the gradient, for any clip and number
    of rounds. It is in proportion to the change of a gradient and, with all records there, to the
    root of the rounds.
    """

    def __init__(
        self, task: Task, graph: Graph, epsilon: Epsilon, delta: float, secrets: Secrets | None
    ) -> None:
        self.task, self.graph, self.epsilon, self.delta = task, graph, epsilon, delta
        self.secrets = secrets
        self._levels = lru_cache(self._probed)

    def _probed(
        self, weights: tuple[float, ...] | None, rounds: int, begun: float | None
    ) -> tuple[list[float], Shared | None]:
        """(everybody's noise in the first round, in units of (the change of a gradient) x
        sqrt(rounds), who shares what beside it).
        """
        probe = Choice(rounds, 1.0, clips(self.task)[0], weights=weights, begun=begun)
        tried = replace(probe.algorithm, secrets=self.secrets)
        prepared = probe.prepared(self.task)
        asked = calibrate(tried, prepared, self.graph, rounds, self.epsilon, delta=self.delta)
        change, agents = prepared.change * math.sqrt(rounds), self.graph.agents
        levels = [float(asked.noise_for(i)(0)) / change for i in range(agents)]
        return levels, asked.shared(agents)

    def _of(self, choice: Choice) -> tuple[list[float], Shared | None]:
        rounds = _PROBE if choice.begun is None else choice.rounds
        return self._levels(choice.weights, rounds, choice.begun)

    def shared(self, choice: Choice) -> Shared | None:
        """Of the noise as it is calibrated: what pairs share goes by how loud either end is."""
        return self._of(choice)[1]

    def column(self, choice: Choice, quiet: bool = False) -> Column:
        """The choice as a trial has it; `quiet`: without noise."""
        prepared = choice.prepared(self.task)
        loss: Any = prepared.loss
        size = 0.0 if quiet else prepared.change * math.sqrt(choice.rounds)
        clip = math.inf if loss.clip is None else loss.clip
        noise = tuple(size * one for one in self._of(choice)[0])
        found = Column(choice.rounds, choice.step, noise, clip, choice.weights)
        if choice.begun is None:
            return found
        every = np.arange(choice.rounds)
        fading = choice.fading(every) / choice.fading(0)
        arrived = prepared.arrivals.arrived(every[:, None], prepared.counts) / prepared.counts
        return replace(found, pace=choice.pace(every), fading=fading, arrived=arrived)


def by_the_rule(
    task: Task,
    graph: Graph,
    epsilon: Epsilon,
    delta: float,
    secrets: Secrets | None = None,
    clip: float | None = None,
) -> Choice:
    """The rule's choice, all records being there; with its own clip unless another is given."""
    return _ruled(task, graph, epsilon, delta, secrets, clips(task)[0] if clip is None else clip)


def _ruled(
    task: Task,
    graph: Graph,
    epsilon: Epsilon,
    delta: float,
    secrets: Secrets | None,
    clip: float | None,
    known: rule.Known | None = None,
) -> Choice:
    bare = Choice(1, 1.0, clip)
    chosen = rule.setting(bare.prepared(task), graph, epsilon, delta, secrets, known=known)
    return replace(
        bare,
        rounds=chosen.rounds,
        step=rounded(chosen.step),
        rate=chosen.rate,
        averaging=chosen.averaging,
        chebyshev=chosen.chebyshev,
        colluders=None if secrets is None else secrets.colluders,
        ratio=None if secrets is None else secrets.ratio,
        weights=chosen.weights,
    )


def around(
    task: Task, graph: Graph, epsilon: Epsilon, delta: float, secrets: Secrets | None
) -> list[Choice]:
    """The rule's choice first, then those around it."""
    found, known = [], rule.Known()
    for clip in clips(task):
        base = _ruled(task, graph, epsilon, delta, secrets, clip, known)
        for travel in TRAVELS if base.rate == 1 else TRAVELS[:1]:
            found.append(longer(base, travel, task))
    return list(dict.fromkeys(found))


def largest(task: Task) -> float:
    """The largest step."""
    return rounded(STEEPEST / task.loss.curvature[1])


def varied(choice: Choice, task: Task) -> Iterator[Choice]:
    """A good choice with one thing changed that the travel does not say."""
    if not choice.averaging:
        yield replace(choice, averaging=1)
    for factor in (2.0, 0.5):
        other = rule.CHUNK * max(1, round(choice.rounds / factor / rule.CHUNK))
        if other <= rule.MOST and choice.rate == 1:
            step = min(largest(task), rounded(choice.step * choice.rounds / other))
            yield replace(choice, rounds=other, step=step)


def longer(choice: Choice, travel: float, task: Task) -> Choice:
    """So many times the travel, by more rounds as far as there may be, and then larger steps."""
    wanted = choice.rounds * travel
    rounds = int(min(rule.MOST, rule.CHUNK * max(1, round(wanted / rule.CHUNK))))
    step = choice.step if wanted <= rule.MOST else choice.step * wanted / rounds
    return replace(choice, rounds=rounds, step=min(largest(task), rounded(step)))


def secrets_for(colluders: int | None, agents: int) -> Secrets | None:
    """Planned for so many colluders, with the ratio of `planned_ratio` written out."""
    if colluders is None:
        return None
    planned = Secrets(colluders)
    return replace(planned, ratio=planned.shared(agents).ratios[0])
