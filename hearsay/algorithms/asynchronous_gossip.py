"""Asynchronous gossip with noisy gradients: at every tick of a common clock one edge wakes.

Which edge (i, j) it is, each with the same chance, is a public coin: both ends know it without a
word, and so does everybody else. They send each other their models, and go on from the average:

    x_i(k+1) = (x_i(k) + x_j(k)) / 2 - alpha_k (g_i(k) + n_i(k)),    the same for j

with g_i taken at x_i(k). All others send nothing and stay as they are. (In a deployed run they
send zeros, so that nobody waits for them.) Randomised gossip with gradient steps: Boyd,
Ghosh, Prabhakar and Shah, Randomized gossip algorithms, 2006; Nedic, Asynchronous broadcast-based
convex optimization over a network, 2011.

The accounting is that of noisy gradients (noisy_gradient.py): a message shows the gradient of the
agent's last tick awake, once, and what was sent is on the transcript; a gradient of tick k costs
C / size under noise of scale b_k. The coin does not look at the data, so the certificate may be
read for any outcome of it, and it is stated for the worst one: an agent that is awake at every
tick. An agent of degree d on a graph of m edges is awake at d / m of them on average.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp

from hearsay.algorithms.noisy_gradient import NoisyGradient
from hearsay.base import Algorithm, Inbox, Keys, Message, Noise
from hearsay.graphs import Graph
from hearsay.graphs.channels import edge_of
from hearsay.privacy.account import Assumption
from hearsay.problems.losses.domains import Domain
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.problems.task import Task
from hearsay.schedules import Constant, Schedule


class Draws(NamedTuple):
    """The noise, the public coin that says which edge wakes, and 0 for its two ends, else 1."""

    params: jax.Array
    edge: jax.Array
    asleep: jax.Array


class Pending(NamedTuple):
    """The next message before its noise, the noise scale that it will get, and whether the agent
    sleeps in the present tick.
    """

    params: jax.Array
    scale: jax.Array
    asleep: jax.Array


@final
@dataclass(frozen=True, kw_only=True)
class AsynchronousGossip(NoisyGradient):
    """Gossip over one random edge at a time, with noisy gradients.

    Args:
      step: alpha_k, k counting ticks.
      noise: the scale of the noise on the gradient, one schedule or one per agent.
      mechanism: "gaussian" or "laplace".
      sampling: Cyclic() unless given; it moves on with every tick, awake or not.
      average: read out a running average of the models.
      secrets: none: noise that agents share would not cancel here.

    Example:
      >>> import hearsay as hs
      >>> hs.asynchronous_gossip(noise=2).keys
      ('own', 'public')
    """

    channels: ClassVar[dict[str, str]] = {"params": "waking"}
    coins: ClassVar[tuple[str, ...]] = ("edge", "asleep")
    amplifies: ClassVar[bool] = True
    no_secrets: ClassVar[str] = "two agents send in a round, and what others share stays in"
    keys: ClassVar[tuple[str, ...]] = ("own", "public")
    inexact: ClassVar[str] = "agents with more neighbours wake more often, and so count for more"
    assumptions: ClassVar[tuple[Assumption, ...]] = (
        Assumption(
            "derived",
            "every tick is counted as if the agent were awake: which edges wake is public and does"
            " not depend on the data, and an agent that sleeps shows nothing",
        ),
    )
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "asynchronous-gossip"
    step: Schedule = Constant(0.05)
    noise: Noise = Constant(1.0)
    mechanism: str = "gaussian"
    sampling: Sampling = field(default_factory=Cyclic)

    def init(self, params: jax.Array) -> Pending:
        return Pending(params, *(jnp.zeros((), params.dtype) for _ in range(2)))

    def draw(self, key: Keys, params: jax.Array) -> Draws:
        public: Any = key.public
        edge = jax.random.uniform(public.key, (), params.dtype)
        awake = jnp.any(public.edges == edge_of(edge, public.count))
        return Draws(self.fresh_noise(key.own, params), edge, 1 - awake.astype(params.dtype))

    def coin(self, draws: Draws) -> jax.Array:
        return draws.edge

    def finish(self, noised: Message, draws: Draws, state: Pending) -> tuple[Message, Pending]:
        silent = jnp.where(draws.asleep > 0, 0.0, noised.params)
        return Message(silent), state._replace(asleep=draws.asleep)

    def shown(
        self, model: Any, sent: Message, inbox: Inbox, rates: Any, domain: Domain
    ) -> jax.Array:
        """What was sent when the agent was last awake: a message of zeros is silence."""
        return jnp.where(jnp.any(sent.params != 0), sent.params, model)

    def update(
        self, state: Pending, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> Pending:
        heard = inbox.total.params + inbox.own.params * sent.params
        moved = domain.project(heard - rates.step * batch.gradient(domain.project(sent.params)))
        asleep = state.asleep > 0
        return Pending(
            jnp.where(asleep, state.params, moved),
            jnp.where(asleep, state.scale, rates.step * rates.noise),
            state.asleep,
        )

    def check(self, graph: Graph, problem: Task) -> None:
        Algorithm.check(self, graph, problem)
        graph.require_symmetric(self.name)
