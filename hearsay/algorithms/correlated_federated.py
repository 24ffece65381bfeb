"""Online federated learning with noise that is correlated over time (paper P4).

n learners and a server; in round r everybody holds the same model x(r), learner i takes tau local
steps, one fresh record each, and sends what it learnt:

    z <- x(r);  tau times:  z <- z - eta grad f(z; record);
    g_i(r) = (x(r) - z) / (eta tau)                                             (lines 6-10)
    message  gn_i(r) = g_i(r) + (b^(r+1) - b^r) xi_i,
             xi_i ~ N(0, V_i^2),  A = B C,  b^r the r-th row of B               (lines 11-13)
    x(r+1) = Proj[ x(r) - eta eta_g tau mean_i gn_i(r) ]                        (line 15)

The server only averages, so it needs no code of its own: every learner applies the same step to the
same mean (channel "average").

Noise of later rounds takes back part of the noise of earlier ones: the sum of all messages
so far carries B xi instead of a sum of independent noises, which is far smaller for the same
privacy. The factorizations are in mechanisms/factorized/kinds.py, their noise streams in
mechanisms/factorized/stream.py.

Sensitivity. x(r) is on the transcript, so a record of round r moves g_i(r) alone. If it is
used at local step t it moves z by eta C there, and the steps after it stretch that by at most
l = max(|1 - eta mu|, |1 - eta L|) each:

    S = max_t (C_t / tau) l^(tau-1-t)
        with a curvature interval [mu, L] (convex and eta <= 2/L: l <= 1, the paper's
        2 B_g / tau), C_t where step t may be
    S = (2 B / tau) sum_{s < tau} |1 - eta r|^s,  2 B if r = 0
        with a per-record clip B and a regulariser r alone: every later local step may differ

Under zero-out adjacency C_t is the longest gradient at step t, and the clip alone gives
S = (B / tau) |1 - eta r|^(tau-1) + (2 B / tau) sum_{s < tau - 1} |1 - eta r|^s, so
B (2 tau - 1) / tau if r = 0: emptying the record moves one step by B, and from then on the two
models differ, so the gradients of all other records may differ by 2 B. (An empty record's step is
the regulariser's alone. Of all steps t the first is the worst: one more step after it multiplies
by |1 - eta r| and adds 2 B, in place of beginning with B.)

All messages together are one Gaussian mechanism, rho = S^2 max_P |C 1_P|^2 / 2 V^2
(privacy/factorized.py). The paper takes S = 2 B_g / tau for any loss and converts rho by
epsilon = rho + 2 sqrt(rho log(1/delta)); that is `paper_epsilon`.

Reference: J. Zhang, L. Zhu, D. Fay and M. Johansson, Locally Differentially Private Online
Federated Learning With Correlated Noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, final

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.correlation import planned, require_constant, require_planned
from hearsay.base import (
    Algorithm,
    Inbox,
    Magnitudes,
    Noise,
    Private,
    State,
    per_agent_rates,
)
from hearsay.graphs import Graph
from hearsay.mechanisms.factorized.kinds import Factorization
from hearsay.privacy.account import Assumption
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.factorized import FactorizedAccount
from hearsay.privacy.recursion import Release
from hearsay.problems.losses.domains import Domain
from hearsay.problems.losses.loss import BoundedLoss
from hearsay.problems.sampling.batches import BLOCK
from hearsay.problems.sampling.samplers import Fresh, Poisson, Sampling, Subset
from hearsay.problems.task import Task
from hearsay.schedules import Constant, SampleSize, Schedule

if TYPE_CHECKING:
    from hearsay.algorithms.theory.findings import Finding


class Message(NamedTuple):
    """What a learner has learnt in a round; also the draws of its noise."""

    update: Any


class Rates(NamedTuple):
    """eta, eta eta_g tau and V."""

    step: Any
    server: Any
    noise: Any


@final
@dataclass(frozen=True, kw_only=True)
class CorrelatedFederated(Algorithm):
    """Online federated learning with matrix-factorized noise (paper P4).

    Args:
      step: the local rate eta (a constant).
      server: eta_g.
      horizon: the rounds R that the noise is planned for.
      factorization: "toeplitz", "tree", "dense", "blt", "banded", "identity" (independent noise).
      width: the bands of "banded" (16) or the buffers of "blt" (4), unless given.
      noise: the standard deviation V, one constant or one per learner.
      mechanism: "gaussian".
      sampling: Fresh(tau), the records of a round in order; Cyclic(tau) and Subset(tau) go through
        a data set again and again.
      average: read out a running average of the models.
      secrets: Gaussian noise that pairs of agents share (`hearsay.Secrets`).

    Example:
      >>> import hearsay as hs
      >>> hs.correlated_federated(step=0.1, horizon=200, factorization="tree").local_steps
      5
    """

    channels: ClassVar[dict[str, str]] = {"update": "average"}
    message: ClassVar[type] = Message
    gradient_at_state: ClassVar[bool] = False
    shows_all: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "federated-independent": {"factorization": "identity", "width": None},
        "federated-noiseless": {
            "factorization": "identity",
            "width": None,
            "noise": Constant(0.0),
        },
    }
    # A factorization is one Gaussian mechanism: correlated noise has no other law here.
    mechanisms: ClassVar[tuple[str, ...]] = ("gaussian",)
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "correlated-federated"
    step: Schedule = Constant(0.1)
    server: float = 1.0
    horizon: int = 1000
    factorization: str = "toeplitz"
    width: int | None = None
    noise: Noise = Constant(1.0)
    mechanism: str = "gaussian"
    sampling: Sampling = field(default_factory=lambda: Fresh(SampleSize(Constant(5.0))))

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(
            self,
            server=require.positive,
            horizon=require.count,
            width=require.optional(require.count),
        )
        require_planned("factorization", self.factorization, self.width)
        require_constant(step=self.step, noise=self.noise)

    @cached_property
    def factors(self) -> Factorization:  # type: ignore[override]
        return planned(self.factorization, self.horizon, self.width)

    @property
    def rounds(self) -> float:
        return self.horizon

    @property
    def local_steps(self) -> int:
        """tau."""
        size = self.sampling.in_order
        if isinstance(self.sampling, Poisson):
            require.fail(
                "sampling",
                f"fresh, cyclic or subset for {self.name}, whose batch is its local steps, one"
                " record each: a Poisson batch has another number of records in every round, which"
                " would be as many steps and show in the message",
                str(self.sampling),
            )
        if size is None:
            require.fail(
                "sampling",
                f"fresh, cyclic or subset with a constant size of at most {BLOCK} (the local steps"
                " of a round)",
                str(self.sampling),
            )
        assert size is not None
        return size

    def draw(self, key: jax.Array, params: jax.Array) -> Message:
        return Message(self.fresh_noise(key, params))

    def prepare(self, state: State, batch: Any, rates: Rates) -> tuple[Message, State]:
        moved = state.params - batch.descended(state.params, rates.step)
        update = moved / (rates.step * batch.size)  # line 10
        return Message(Private(update, rates.noise)), state

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Rates, domain: Domain
    ) -> State:
        mean = inbox.total.update + inbox.own.update * sent.update
        return State(domain.project(state.params - rates.server * mean))  # line 15

    def shown(
        self, model: Any, sent: Message, inbox: Inbox, rates: Rates, domain: Domain
    ) -> jax.Array:
        """x(r+1): line 15 again, from the same messages and a start that everybody knows."""
        mean = inbox.total.update + inbox.own.update * sent.update
        return domain.project(model - rates.server * mean)

    def rates(self, steps: np.ndarray, agents: int) -> Rates:
        shape, local = (len(steps), agents), self.step(steps)[:, None]
        together = local * self.server * self.local_steps
        return Rates(
            np.broadcast_to(local, shape),
            np.broadcast_to(together, shape),
            per_agent_rates(self.noise, steps, agents),
        )

    def leak(self, heard: float) -> Schedule:
        return Constant(1.0)  # the model is on the transcript: nothing private survives a round

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        return (Release("update", self.noise_for(agent), state=0.0, fresh=1.0),)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        together = self.step.scaled(self.server * self.local_steps)
        return Magnitudes(step=self.step, coupling=together, tracking=Constant(0.0), resolution=0.0)

    def sensitivities(self, problem: Task) -> list[tuple[float, str, tuple[Assumption, ...]]]:
        """Every true bound on how far one record moves a round's update:
        (S, what it rests on, assumptions).
        """
        rate, tau, (low, high) = float(self.step(0)), self.local_steps, problem.loss.curvature
        stretch = max(abs(1 - rate * low), abs(1 - rate * high))
        found = [
            (
                self._moved(problem, rate, stretch) / tau,
                f"local steps stretch by at most {stretch:.4g} each",
                problem.privacy_assumptions(),
            )
        ]
        if problem.loss.clip is not None:
            shrink = abs(1 - rate * problem.loss.regulariser)
            worst = 2 * problem.loss.clip / tau * sum(shrink**s for s in range(tau))
            if problem.adjacency != REPLACE:
                # The changed record's own step moves by B, not 2 B; it is the first.
                worst -= problem.loss.clip / tau * shrink ** (tau - 1)
            found.append(
                (
                    worst,
                    f"clip bound {problem.loss.clip:g} on every local step",
                    problem.privacy_assumptions(curvature=False),
                )
            )
        return found

    def _moved(self, problem: Task, rate: float, stretch: float) -> float:
        """tau S: the record may be used at any local step t, where the model is |z_t| <= r_t: not
        projected, so up to t steps outside the domain, with |z - eta grad| <= l |z| + eta |grad at
        0|. It moves that step by eta C(r_t), and tau - 1 - t more steps stretch it.
        """
        loss, tau, found = problem.loss, self.local_steps, 0.0
        reach = problem.domain.reach(problem.dimension)
        for t in range(tau):
            change = problem.change
            if isinstance(loss, BoundedLoss):
                change = loss.change_within(reach, problem.adjacency)
                reach = stretch * reach + rate * loss.unclipped_change(0.0) / 2
            found = max(found, change * stretch ** (tau - 1 - t))
        return found

    def own_accounts(
        self, graph: Graph, agent: int, problem: Task
    ) -> tuple[FactorizedAccount, ...]:
        level, held = float(self.noise_for(agent)(0)), float(problem.counts[agent])
        factors = self.factors.written()
        pattern = self.sampling.pattern(held, problem.arrivals)
        separation = None if pattern.single else int(pattern.gap)
        return tuple(
            FactorizedAccount(
                factors, moved, level, pattern, problem.dimension, basis, facts, separation
            )
            for moved, basis, facts in self.sensitivities(problem)
        )

    def _column(self, held: float) -> float:
        """max over the rounds P that may use one record of |C 1_P|."""
        if isinstance(self.sampling, Fresh):
            return self.factors.sensitivity
        separation = (
            1 if isinstance(self.sampling, Subset) else max(1, int(held) // self.local_steps)
        )
        return self.factors.sensitivity_repeated(separation, -(-self.horizon // separation))

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        tau = self.local_steps
        if problem.declared:
            raise ValueError(
                "a declared change is about gradients at one point; local steps need a curvature"
                " interval or a clip"
            )
        if tau > problem.arrivals.block:
            require.fail(
                "sampling",
                f"at most {problem.arrivals.block} records a round for this problem (they are taken"
                " one after the other)",
                tau,
            )
        if tau > problem.counts.min():
            short = int(np.argmin(problem.counts))
            raise ValueError(
                "the local steps of a round must be at most the records of every learner, got"
                f" {tau} and learner {short} holds {problem.counts[short]:g}"
            )

    def theory(self, graph: Graph, problem: Task) -> list[Finding]:
        from hearsay.algorithms.theory.correlated_federated import correlated_federated

        return correlated_federated(self, graph, problem)

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Task, horizon: int, delta: float | None = None
    ) -> float | None:
        """Lemma IV.8 solved for epsilon: S = 2 B_g / tau with 2 B_g our C, single participation."""
        level = float(self.noise_for(agent)(0))
        if delta is None or level == 0 or horizon == 0:
            return None
        change = problem.change_under(REPLACE)
        rho = (change / self.local_steps * self.factors.sensitivity / level) ** 2 / 2
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))
