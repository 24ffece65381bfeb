"""A(DP)2SGD: asynchronous decentralized SGD with Gaussian noise on gradients (Xu et al. 2022), on a
common clock.

In every step each agent is awake with probability `activity`, by a draw that has nothing to do with
the data. Those who are awake send their model, average with the neighbours who are awake too, and
take a noisy gradient step from where they were; the others send nothing and stay as they are:

    x_i(k+1) = x_i + sum_j w_ij awake_j (x_j - x_i) - alpha_k (g_i(k) + n_i(k))        if awake

with g_i taken at x_i, the model from before the averaging, as a worker's stale gradient is. The
neighbours' activity travels as a field of its own.

The message is private for the same reason as in gradient perturbation, whose accounting this
shares (noisy_gradient.py): an awake agent's gradient of step k costs C / size under noise of
standard deviation sigma. Who is awake is public, and sleeping only saves budget: the certificate
counts every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp

from hearsay import _validate as require
from hearsay.algorithms.noisy_gradient import NoisyGradient, Pending
from hearsay.base import Inbox, Noise
from hearsay.base import Message as Noised
from hearsay.problems.losses.domains import Domain
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.schedules import Constant, Schedule


class Message(NamedTuple):
    """The model (zero while asleep), and whether the agent is awake; also the draws of both."""

    params: Any
    awake: Any


@final
@dataclass(frozen=True, kw_only=True)
class Adp2sgd(NoisyGradient):
    """Asynchronous decentralized SGD with noisy gradients; averaging has full weight.

    Args:
      activity: the probability of being awake in a step.
      step: alpha_k.
      noise: the scale of the noise on the gradient, one schedule or one per agent.
      mechanism: "gaussian" or "laplace".
      sampling: Cyclic() unless given.
      average: read out a running average of the models.
      secrets: Gaussian noise that pairs of agents share (`hearsay.Secrets`).

    Example:
      >>> import hearsay as hs
      >>> hs.adp2sgd(activity=0.3).activity
      0.3
    """

    channels: ClassVar[dict[str, str]] = {"params": "coupling", "awake": "coupling"}
    message: ClassVar[type] = Message
    coins: ClassVar[tuple[str, ...]] = ("awake",)
    amplifies: ClassVar[bool] = True
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "adp2sgd"
    activity: float = 0.5
    step: Schedule = Constant(0.05)
    noise: Noise = Constant(1.0)
    mechanism: str = "gaussian"
    sampling: Sampling = field(default_factory=Cyclic)

    def __post_init__(self) -> None:
        require.settle(self, activity=require.share)
        super().__post_init__()

    def _require_secrets(self) -> None:
        super()._require_secrets()
        if self.activity < 1:
            # Besides, who has slept sends the noise of an earlier step, and what it shares with
            # others is in proportion to theirs.
            require.fail(
                "secrets",
                f"left out for {self.name} with an activity below 1: who sleeps sends nothing, and"
                " what others share with it stays in",
                self.secrets,
            )

    def draw(self, key: jax.Array, params: jax.Array) -> Message:
        coin = jax.random.uniform(jax.random.fold_in(key, 1), (), params.dtype)
        return Message(self.fresh_noise(key, params), coin)

    def finish(self, noised: Noised, draws: Message, state: Pending) -> tuple[Message, Pending]:
        awake = (draws.awake < self.activity).astype(state.params.dtype)
        # Not a product: 0 times a negative number is -0, and the signs of what was not to be sent
        # would go out.
        return Message(jnp.where(awake > 0, noised.params, 0.0), awake), state

    def shown(
        self, model: Any, sent: Message, inbox: Inbox, rates: Any, domain: Domain
    ) -> jax.Array:
        """What was sent when the agent was last awake."""
        return jnp.where(sent.awake > 0, sent.params, model)

    def update(
        self, state: Pending, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> Pending:
        own = domain.project(sent.params)
        pull = inbox.total.params - inbox.total.awake * own  # sum_j w_ij awake_j (x_j - x_i)
        moved = domain.project(own + pull - rates.step * batch.gradient(own))
        asleep = sent.awake == 0
        return Pending(
            jnp.where(asleep, state.params, moved),
            jnp.where(asleep, state.scale, rates.step * rates.noise),
        )
