"""SDM-DSGD: sparse differential Gaussian-masked decentralized SGD (as compared with by paper P3;
Ding et al. 2021, Zhang et al. 2020).

Agents move towards the average of their neighbours and down a noisy gradient, and tell each other
only a random part of the move:

    d_i(k)   = theta [ sum_j a_ij x_j - x_i - alpha_k (g_i(k) + n_i(k)) ]
    x_i(k+1) = x_i + S d_i(k),
        S keeps each coordinate with probability p, divided by p, and drops the others

On the wire the kept coordinates of S d_i suffice, because everybody can add them up; what is known
is the same as if x_i were sent, which is what the message holds here. Which coordinates are kept is
drawn without looking at the data.

The kept coordinates of the gradient are all that a step reveals: an l2 distance of at most
C / size, under noise of standard deviation sigma. A message leaves the domain where it must;
gradients are taken at its projection. The certificate does not count on the dropped ones
(rho = sum_k c_k^2 / 2 sigma_k^2).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp

from hearsay import _validate as require
from hearsay.algorithms.noisy_gradient import NoisyGradient
from hearsay.base import Inbox, Magnitudes, Message, Noise
from hearsay.problems.losses.domains import Domain
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.schedules import Constant, Product, Quotient, Schedule, below_one


class Draws(NamedTuple):
    """The noise, and which coordinates to keep."""

    params: jax.Array
    kept: jax.Array


class Pending(NamedTuple):
    """The next message before its noise, the noise scale of each of its coordinates,
    and the coordinates that the coming move keeps (over p).
    """

    params: jax.Array
    scale: jax.Array
    kept: jax.Array


@final
@dataclass(frozen=True, kw_only=True)
class SdmDsgd(NoisyGradient):
    """Sparse differential Gaussian-masked SGD.

    Args:
      keep: the probability p that a coordinate is sent.
      step: alpha_k.
      coupling: theta (a constant in the source), at most `keep`.
      noise: the scale of the noise on the gradient, one schedule or one per agent.
      mechanism: "gaussian" or "laplace".
      sampling: Cyclic() unless given.
      average: read out a running average of the models.
      secrets: none: noise that agents share would not cancel here.

    Example:
      >>> import hearsay as hs
      >>> hs.sdm_dsgd(keep=0.8, coupling=0.5).coupling
      Constant(value=0.5)
    """

    no_secrets: ClassVar[str] = "agents send different coordinates, and what they share stays in"
    coins: ClassVar[tuple[str, ...]] = ("kept",)
    amplifies: ClassVar[bool] = True
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "sdm-dsgd"
    keep: float = 0.5
    step: Schedule = Constant(0.1)
    coupling: Schedule = Constant(0.4)
    noise: Noise = Constant(1.0)
    mechanism: str = "gaussian"
    sampling: Sampling = field(default_factory=Cyclic)

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, coupling=below_one, keep=require.share)
        largest = max(float(self.coupling(k)) for k in (0, 10**6))
        if largest > self.keep:
            require.fail(
                "coupling", f"at most keep = {self.keep:g}, or single moves overshoot", largest
            )

    def init(self, params: jax.Array) -> Pending:
        return Pending(params, jnp.zeros_like(params), jnp.zeros_like(params))

    def draw(self, key: jax.Array, params: jax.Array) -> Draws:
        coins = jax.random.uniform(jax.random.fold_in(key, 1), params.shape, params.dtype)
        return Draws(self.fresh_noise(key, params), coins)

    def finish(self, noised: Message, draws: Draws, state: Pending) -> tuple[Message, Pending]:
        kept = (draws.kept < self.keep).astype(state.params.dtype) / self.keep
        return noised, state._replace(kept=kept)

    def update(
        self, state: Pending, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> Pending:
        own = domain.project(sent.params)
        heard = inbox.total.params + inbox.own.params * sent.params
        move = rates.coupling * (heard - own - rates.step * batch.gradient(own))
        scale = state.kept * rates.coupling * rates.step * rates.noise
        # No projection here: it would move the dropped coordinates, which carry no noise, by an
        # amount that depends on the data.
        return Pending(own + state.kept * move, scale, state.kept)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        plain = super().magnitudes(agent, agents)
        # The move, and the noise in it, is multiplied by theta / p where it is kept.
        gain = Quotient(self.coupling, Constant(self.keep))
        noise = Product(gain, Product(self.step, self.noise_for(agent)))
        return replace(plain, coupling=gain, step_noise=noise)
