"""Settings of noisy gradient descent from public facts only: nobody looks at a record.

With n agents whose messages are averaged, a model of d numbers and noise of standard deviation
b(T) per number on each agent's mean gradient, T steps of size a <= 1 / L on a convex loss of
smoothness L leave an expected excess loss of at most (Zinkevich 2003, averaged models)

    R^2 / (2 a T)  +  a / 2 (d b(T)^2 / n + v)

where R is how far the best model lies from the start, and v the variance of drawing a batch
instead of all records, at most (1 - q) B^2 / (q N n) for a gradient clipped to B, a share q of N
records. The noise b(T) is what the certificate asks for at (epsilon, delta): it grows like
sqrt(T), so that with all records in every step the bound depends on the travel a T alone: it is
least at

    a T = R / sqrt(d b(1)^2 / n)

and the fewest steps that reach it have a = 1 / L. More steps cost nothing but time, larger ones
are not stable. Where all records in every step would be too much work, the batch is a share q of
them, and b(T) is calibrated for each T and q that is tried.

**What is assumed, and not known**: R = 10 / (bound on a record's features). It was chosen on the
digits data and on made-up records (docs/frontier.md), and is the same for everybody: for one agent
alone, for the network, for a trusted server.

**The clip.** The logistic loss has gradients of norm at most Ba, its bound on features, but at the
start all of them have at most Ba / 2. Clipping there leaves the first step as it is, cuts off what
badly misclassified records say later (the loss stays convex and as smooth), and halves the noise.
The softmax loss of K classes has sqrt(2) Ba, and Ba sqrt(1 - 1/K) at the start.

**Read-out.** The released model is the mean of the last messages: `TAIL` of them at least. A mean
carries less noise; one that begins early carries models that have not travelled far.

**Averaging rounds** cost nothing: as many as bring disagreement down to a tenth of an agent's own
noise.

**Shared secrets.** b(T) is then the agents' own noise, the only one that is left in the mean of
all messages, and a certificate asks for less of it. What pairs of agents share makes single
messages louder by sqrt(1 + sum_j c_ij^2 / s_i^2), and there are as many more averaging rounds,
one at least: a gradient must not be taken where a single message is.

**Weights.** Where agents have very different noise, because they have few or many records or more
or less to spend, the mean of all gradients has little but the noise of the loudest. Agents then
count by how exact their gradients are (baselines/weighted_erm.py),

    w_i  in proportion to  1 / (B^2 (t^2 + 1 / N_i) + d b_i(1)^2)

N_i records of gradients of norm at most B, the noise of all rounds together, and a share t of B
(`UNLIKE`) by which agents' populations may differ, as in a meta-analysis with random effects: by
their records where noise is little and they hold fewer than 1 / t^2, nearly by the square of them
where noise is what is left, and all alike where neither is. In the bound above b(T)^2 is then the
mean of (w_i b_i(T))^2, the weights having mean 1. Where pairs of agents share secrets, everybody's
noise protects everybody, and the weights are others (weighing.py). A gradient must not be taken
where a single message is, which has moved by the weight of one agent: at least one averaging round.
Agents that differ little (`WORTH`) all count the same, and save that round.

A neural network has neither R nor L: its settings are those of `neural_setting`, whose two numbers
were chosen on MNIST.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from hearsay.algorithms.averaging import AveragedGradient, chebyshev_weights
from hearsay.algorithms.baselines.weighted_erm import WeightedErm
from hearsay.algorithms.gradient_perturbation import GradientPerturbation
from hearsay.certification import calibrate
from hearsay.graphs import Graph
from hearsay.graphs.secrets import Secrets
from hearsay.problems.losses.linear import Logistic
from hearsay.problems.losses.loss import BoundedLoss
from hearsay.problems.losses.softmax import Softmax
from hearsay.problems.sampling.samplers import Arrivals, History, Poisson, Sampling
from hearsay.problems.task import Task
from hearsay.schedules import Constant
from hearsay.tradeoff import weighing

DISTANCE = 10.0  # R, of features of norm at most 1
TAIL = 0.25
# Rounds are a multiple of it: runs that differ in their number share compiled programs.
CHUNK = 8
MOST = 512  # rounds
WORK = 1e8  # record gradients per agent
RATES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
AGREED, MOST_EXCHANGES = 0.1, 20
# Weights are for agents of which the plain mean has so many times the error of the weighted one.
WORTH = 1.1
# How far apart the mean gradients of two agents' populations may be taken to lie, in units of the
# longest gradient: nobody learns from even the most exact of others more closely than that.
UNLIKE = 0.05
NEURAL_ROUNDS, SHAKEN, LARGEST_STEP = 400, 0.11, 4.0
_PROBE = 64

AnyTask = TypeVar("AnyTask", bound=Task)
# (share of the records, rounds): noise in units of the change of a gradient, to which it is in
# proportion.
Known = dict[tuple[float, int], float]


@dataclass(frozen=True)
class Setting:
    """What the rule chooses.

    Args:
      rounds: messages of each agent.
      step: the size of a step.
      rate: the share of its records that an agent takes into a step.
      averaging: exchanges after each message.
      chebyshev: with weights that bring agents together faster.
      tail: the share of messages that the released model averages, at least.
      secrets: noise that pairs of agents share.
      weights: what each agent's gradient counts, of mean 1; None: all the same.
    """

    rounds: int
    step: float
    rate: float = 1.0
    averaging: int = 0
    chebyshev: bool = False
    tail: float = TAIL
    secrets: Secrets | None = None
    weights: tuple[float, ...] | None = None

    def __str__(self) -> str:
        share = "all records" if self.rate == 1 else f"a share {self.rate:g} of the records"
        exchanges = f", {self.averaging} averaging rounds" if self.averaging else ""
        return f"{self.rounds} rounds of step {self.step:.3g} with {share}{exchanges}"


def prepared(problem: AnyTask) -> AnyTask:
    """The same problem with all records there from the start and, where nothing is said of it, the
    rule's clip.
    """
    loss, arrivals = problem.loss, problem.arrivals
    if isinstance(loss, Logistic) and loss.clip is None and math.isfinite(loss.feature_bound):
        loss = replace(loss, clip=loss.feature_bound / 2)
    if isinstance(loss, Softmax) and loss.clip is None and math.isfinite(loss.feature_bound):
        loss = replace(loss, clip=loss.feature_bound * math.sqrt(1 - 1 / loss.classes))
    here = Arrivals(arrivals.per_step, problem.most, arrivals.block)
    return replace(problem, loss=loss, arrivals=here)


def setting(
    task: Task,
    graph: Graph,
    epsilon: float | Sequence[float],
    delta: float,
    secrets: Secrets | None = None,
    weighted: bool = True,
    known: Known | None = None,
) -> Setting:
    """The rule's choice for agents that learn over that graph; without edges each learns alone.

    Args:
      task: what is public of the problem, as `prepared` leaves it.
      graph: who hears whom.
      epsilon: what each agent may spend, one number or one each; infinite for no noise at all.
      delta: at which.
      secrets: noise that pairs of agents share; epsilon is against the colluders that it names.
      weighted: agents may count differently; not for methods that know no weights.
      known: what was found with another clip and all else the same; what is found is kept there.

    Example:
      >>> import hearsay as hs
      >>> from hearsay.tradeoff.rule import prepared, setting
      >>> task = prepared(hs.problems.logistic("digits", ridge=0.0).task)
      >>> setting(task, hs.graphs.ring(5), 2.0, 1e-5).rate
      1.0
    """
    task = task.task
    loud = 1.0 if secrets is None else loudness(secrets, graph.agents)
    if not travels(task):
        exchanges, faster = averaging_rounds(graph, loud)
        chosen = neural_setting(task, graph, epsilon, delta, secrets)
        return replace(chosen, averaging=exchanges, chebyshev=faster)
    shares = weights(task, graph, epsilon, delta, secrets) if weighted else None
    if shares is not None:
        loud *= max(shares)
    exchanges, faster = averaging_rounds(graph, loud)
    together = graph.agents if graph.edges else 1
    curved, reach = task.loss.curvature[1], DISTANCE / task.loss.feature_bound  # type: ignore[attr-defined]
    plain = Setting(MOST, 1 / curved, 1.0, exchanges, faster, secrets=secrets, weights=shares)
    if np.all(np.isinf(epsilon)):
        return replace(plain, secrets=None)
    fewest = float((task.counts / np.square(shares or 1.0)).min())
    law = lru_cache(
        lambda rate: _noise_law(task, graph, rate, epsilon, delta, secrets, shares, known)
    )

    def bounded(rate: float, rounds: int, quiet: bool) -> tuple[float, float]:
        """(the bound, the step that it is least at); `quiet`: without noise, at most that."""
        noise = 0.0 if quiet else task.dimension * law(rate)(rounds) ** 2
        level = (noise + (1 / rate - 1) * task.change**2 / fewest) / together
        step = min(1 / curved, reach / math.sqrt(rounds * level)) if level else 1 / curved
        return reach**2 / (2 * step * rounds) + step * level / 2, step

    rate, rounds, step = _first_good(_options(int(task.counts.max())), bounded)
    return replace(plain, rounds=rounds, step=step, rate=rate)


def _options(records: int) -> list[tuple[float, int]]:
    """(share of the records, rounds) that are not too much work for an agent with so many."""
    found: list[tuple[float, int]] = []
    for rate in RATES:
        every = _rounds(rate)
        some = [r for r in every if r * rate * records <= WORK or rate == RATES[-1]]
        found += [(rate, rounds) for rounds in some]
        if len(some) == len(every):
            # Fewer records than this give more noise at the same number of rounds.
            break
    return found


def _first_good(
    options: list[tuple[float, int]],
    bounded: Callable[[float, int, bool], tuple[float, float]],
) -> tuple[float, int, float]:
    """(share, rounds, step) of the first option within 1 % of the least bound. Noise takes an
    account, seconds for a share of the records: options that would not be within it without any
    are not asked for theirs.
    """
    quiet = {one: bounded(*one, True)[0] for one in options}
    found: dict[tuple[float, int], tuple[float, float]] = {}
    least = math.inf
    for one in sorted(options, key=quiet.__getitem__):
        if quiet[one] <= 1.01 * least:
            found[one] = bounded(*one, False)
            least = min(least, found[one][0])
    rate, rounds = next(one for one in options if one in found and found[one][0] <= 1.01 * least)
    return rate, rounds, found[rate, rounds][1]


def weights(
    task: Task,
    graph: Graph,
    epsilon: float | Sequence[float],
    delta: float,
    secrets: Secrets | None = None,
) -> tuple[float, ...] | None:
    """What each agent's gradient counts, to three digits; None where all may count the same.

    Args:
      task: as for `setting`.
      graph: who hears whom.
      epsilon: what each agent may spend.
      delta: at which.
      secrets: noise that pairs of agents share.

    Example:
      >>> from dataclasses import replace
      >>> import hearsay as hs
      >>> from hearsay.tradeoff.rule import prepared, weights
      >>> task = prepared(hs.problems.logistic("digits", agents=3).task)
      >>> weights(replace(task, counts=[100, 200, 900]), hs.graphs.ring(3), 2.0, 1e-5)
      (0.25, 0.683, 2.07)
    """
    spent = np.broadcast_to(np.asarray(epsilon, float), graph.agents)
    if not graph.edges or (_alike(task.counts) and _alike(spent)):
        return None
    levels = np.zeros(graph.agents)
    if not np.all(np.isinf(spent)):
        probe = noisy_gradient(Setting(_PROBE, 1.0))
        asked = calibrate(probe, task, graph, _PROBE, epsilon, delta=delta)
        levels = np.array([float(asked.noise_for(agent)(0)) for agent in range(graph.agents)])
    sampling = task.change**2 * (UNLIKE**2 + 1 / task.counts)
    shares, times = weighing.shares(sampling, levels, task.dimension / _PROBE, secrets)
    if math.sqrt(times) < WORTH:
        return None
    return tuple(float(f"{share:.3g}") for share in shares)


def _alike(values: np.ndarray) -> bool:
    return bool(np.all(values == values[0]))


def travels(task: Task) -> bool:
    """A linear model whose records have a bound, of which the rule's bound speaks."""
    return isinstance(task.loss, BoundedLoss) and math.isfinite(task.loss.feature_bound)


def neural_setting(
    task: Task,
    graph: Graph,
    epsilon: float | Sequence[float],
    delta: float,
    secrets: Secrets | None = None,
) -> Setting:
    """For neural networks, whose bound nobody knows: as many rounds as usual for DP-SGD, a share of
    the records in each, and a step that lets the noise of all rounds together move each parameter
    by `SHAKEN` (the travel is then in proportion to 1 / noise, as above), up to a largest one.
    """
    rate = max(0.05, min(1.0, 50 / float(task.counts.min())))
    step = LARGEST_STEP / (task.loss.clip or 1.0)
    if np.all(np.isfinite(epsilon)):
        together = graph.agents if graph.edges else 1
        level = _noise_law(task, graph, rate, epsilon, delta, secrets)(NEURAL_ROUNDS)
        step = min(step, SHAKEN / (level * math.sqrt(NEURAL_ROUNDS / together)))
    return Setting(NEURAL_ROUNDS, step, rate, secrets=secrets)


def averaging_rounds(graph: Graph, loud: float = 1.0) -> tuple[int, bool]:
    """(how many exchanges bring disagreement down to a tenth, whether Chebyshev's weights help).

    Args:
      graph: who hears whom.
      loud: the noise of a single message in units of an agent's own.
    """
    if not graph.edges:
        return 0, False
    modulus, enough = graph.second_singular_value, AGREED / loud
    if modulus <= enough:
        return (0 if loud == 1 else 1), False
    faster = graph.symmetric
    for rounds in range(1, MOST_EXCHANGES):
        left = _chebyshev_left(modulus, rounds) if faster else modulus**rounds
        if left <= enough:
            return rounds, faster
    return MOST_EXCHANGES, faster


def loudness(secrets: Secrets, agents: int) -> float:
    """The noise of the loudest agent's messages in units of its own noise."""
    shared = secrets.shared(agents)
    return math.sqrt(max(shared.variance(agent) for agent in range(agents)))


def _chebyshev_left(modulus: float, rounds: int) -> float:
    """1 / T_rounds(1 / modulus), as the weights bring it about."""
    before, now = 1.0, 1.0
    for own, earlier in chebyshev_weights(modulus, rounds):
        before, now = now, own * modulus * now - earlier * before
    return abs(now)


def batches(rate: float, method: str = "full") -> Sampling:
    """The sampler of a share `rate` of the records."""
    return History(method) if rate == 1 else Poisson(rate)


def noisy_gradient(chosen: Setting) -> AveragedGradient:
    """Gradient perturbation with those settings; its noise is to be calibrated."""
    options: dict[str, Any] = {
        "step": Constant(chosen.step),
        # The largest that it takes: an agent goes on from what everybody has said.
        "coupling": Constant(0.999),
        "noise": Constant(1.0),
        "mechanism": "gaussian",
        "sampling": batches(chosen.rate),
        "averaging": chosen.averaging,
        "chebyshev": chosen.chebyshev,
        "secrets": chosen.secrets,
    }
    if chosen.weights is None:
        return GradientPerturbation(**options)
    return WeightedErm(weights=chosen.weights, **options)


def _rounds(rate: float) -> list[int]:
    """All that are tried: many where the noise is known in closed form, few where each takes an
    account of its own.
    """
    if rate == 1:
        return list(range(CHUNK, MOST + 1, CHUNK))
    return [2**power for power in range(4, 1 + int(math.log2(MOST)))]


def _noise_law(
    task: Task,
    graph: Graph,
    rate: float,
    epsilon: float | Sequence[float],
    delta: float,
    secrets: Secrets | None = None,
    shares: tuple[float, ...] | None = None,
    known: Known | None = None,
) -> Callable[[int], float]:
    """Own noise for each number of rounds: the root mean square over agents of what a certificate
    asks for, times what the agent counts.
    """

    def of(rounds: int) -> float:
        tried = noisy_gradient(Setting(rounds, 1.0, rate, secrets=secrets, weights=shares))
        asked = calibrate(tried, task, graph, rounds, epsilon, delta=delta)
        levels = np.array([float(asked.noise_for(agent)(0)) for agent in range(graph.agents)])
        return float(np.sqrt(np.mean(np.square(levels * (shares or 1.0)))))

    kept = {} if known is None else known

    def share(rounds: int) -> float:
        if (rate, rounds) not in kept:
            kept[rate, rounds] = of(rounds) / task.change
        return kept[rate, rounds] * task.change

    if rate < 1:
        return share
    # All records in every round: what independent Gaussian noise costs adds up.
    probed = of(_PROBE)
    return lambda rounds: probed * math.sqrt(rounds / _PROBE)
