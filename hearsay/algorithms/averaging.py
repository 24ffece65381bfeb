"""Averaging rounds: several exchanges per gradient, for methods that perturb their gradients.

A round has m more phases after the message of the gradient. In each of them agents pass on what
they have made of the messages so far, without noise, batch or gradient:

    v_i(0)   = the message that was sent
    v_i(t+1) = sum_j a_ij v_j(t)                                                 plain
    v(t+1)   = 2 c(t) / (lambda c(t+1)) A v(t) - c(t-1) / c(t+1) v(t-1)          Chebyshev

and the update takes v_i(m) for the agent's own message and hears v_j(m). In the second form
c(t) = T_t(1 / lambda), T_t the Chebyshev polynomial and lambda the second largest modulus of an
eigenvalue of A: disagreement shrinks by 1 / c(m) at least, where the plain form has lambda^m.
Both keep the mean over agents if A is doubly stochastic. (Scaman et al., Optimal algorithms for
smooth and strongly convex distributed optimization in networks, 2017; Cyffers et al., Muffliato,
2022, of which this takes the exchanges and not the privacy against a single agent.)

**Why it costs nothing.** The adversary of a certificate sees every message. Whatever is passed on
is a function of messages that were sent before, and of public weights: whoever has those can
compute it. The point v_i(m) at which the gradient is taken is public for the same reason, so that
the next message keeps nothing private of the last one, as noisy_gradient.py says, and the
certificate does not depend on m. That needs an update in which nothing of the agent comes from
elsewhere than `sent` and `inbox`: gradient perturbation and weighted ERM. SDM-DSGD would be sound
too, but passing whole models on defeats its sparse messages; A(DP)2SGD and asynchronous gossip have
weights of their own in every round, who sleeps must not pass on, and they are left as they are.

**Momentum from messages** is free for the same reason. With u_i(k) the point from which a step goes
on (the agent's own message, moved towards those that it heard) and `momentum` = m, the heavy ball

    x_i(k+1) = Proj[ u_i(k) + m (u_i(k) - u_i(k-1)) - alpha_k g_i(k) ] - alpha_k n_i(k)

keeps u_i(k-1) from round to round, and nothing else. It is a function of messages as sent and heard
and of public numbers, so that everything but g_i(k) is on the transcript: a record moves message
k + 1 by alpha_k c_k under noise of scale alpha_k b_k, as without momentum, and no later message but
through the transcript. Certificates do not depend on m, amplified ones included. (A momentum of the
agent's own gradients, before their noise, would be a private state: that is not what this is.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.noisy_gradient import NoisyGradient, Pending
from hearsay.base import Inbox, Magnitudes, Message
from hearsay.graphs import Graph
from hearsay.problems.losses.domains import Domain
from hearsay.problems.task import Task


class Moving(NamedTuple):
    """The next message before its noise and the noise scale that it will get, which are private,
    and the point that the last step went on from, which follows from messages.
    """

    params: jax.Array
    scale: jax.Array
    before: jax.Array


@dataclass(frozen=True, kw_only=True)
class AveragedGradient(NoisyGradient):
    """Noisy gradients whose messages may be averaged before they are used.

    Args:
      averaging: m, how many exchanges follow the message of a gradient.
      chebyshev: with Chebyshev's weights; the graph must be symmetric.
      momentum: m, how much of the last move is made again; 0 is none.
    """

    averaging: int = 0
    chebyshev: bool = False
    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(
            self, averaging=require.natural, chebyshev=require.flag, momentum=require.nonnegative
        )
        if self.momentum >= 1:
            require.fail("momentum", "below 1", self.momentum)
        if self.chebyshev and not self.averaging:
            require.fail("averaging", "at least 1 with chebyshev", self.averaging)

    def init(self, params: jax.Array) -> Any:
        plain = super().init(params)
        return Moving(plain.params, plain.scale, params) if self.momentum else plain

    def stepped(
        self, state: Any, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> Any:
        """The next state: towards what was heard, on with the momentum, down the gradient at the
        agent's own message.
        """
        # Where the gradient's bound holds; a large ball never acts.
        own = domain.project(sent.params)
        heard = inbox.total.params + inbox.own.params * sent.params
        point = own + rates.coupling * (heard - own)
        scale = rates.step * rates.noise
        if not self.momentum:
            return Pending(domain.project(point - rates.step * batch.gradient(own)), scale)
        further = point + self.momentum * (point - state.before)
        return Moving(domain.project(further - rates.step * batch.gradient(own)), scale, point)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        if self.momentum:
            raise ValueError(
                f"momentum must be 0 in a deployed run, got {self.momentum:g}: what rounding costs"
                " with it is not counted yet; simulate it instead"
            )
        return super().magnitudes(agent, agents)

    def relays(self, graph: Graph) -> np.ndarray:
        if not self.chebyshev:
            return np.tile([1.0, 0.0], (self.averaging, 1))
        return chebyshev_weights(graph.second_singular_value, self.averaging)

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        if self.chebyshev:
            graph.require_symmetric(f"{self.name} with chebyshev")


def chebyshev_weights(modulus: float, rounds: int) -> np.ndarray:
    """(round, 2): the factors of A v(t) and of -v(t-1), from ratios c(t-1) / c(t), which stay
    finite where c(t) does not.

    Args:
      modulus: lambda, below 1.
      rounds: how many exchanges.

    Example:
      >>> chebyshev_weights(0.5, 2).round(4).tolist()
      [[1.0, 0.0], [1.1429, 0.1429]]
    """
    modulus, rounds = require.nonnegative("modulus", modulus), require.natural("rounds", rounds)
    if modulus >= 1:
        require.fail("modulus", "below 1: agents could never agree", modulus)
    found, ratio = np.tile([1.0, 0.0], (rounds, 1)), modulus
    for row in found[1:]:
        share = 1.0 / (2.0 - modulus * ratio)
        row[:] = 2.0 * share, modulus * share * ratio
        ratio = modulus * share
    return found
