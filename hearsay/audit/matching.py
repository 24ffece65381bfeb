"""What would an agent have sent, had its records been these?

The half of a gradient-matching attack that runs the algorithm.

For made-up records of step k the algorithm's own functions predict, without noise,

    send at k, update with what was heard at k, send at k+1
        ->  p(x), every message field of both steps

and `score` is sum (p(x) - observed)^2 / variance with its derivative in the pixels x. Nothing
here knows an algorithm: a gradient that travels in a message (trackers, federated updates) shows
at step k, one that moves a model shows at step k+1. What has to be known of an algorithm is
found by trying:

    which parts of p react to the batch of step k but not to the unknown one of k+1
        the others are left out
    how noisy each part is: its derivative in the draws
        without noise it is weighed by its own size
    parts that a coin kept back (an agent asleep, a coordinate not sent)
        are what p says for the other side of the coin: left out
    messages without derivative (quantized)
        are unbiased, so the model stands in for them

At step 0 the state is the public start. Later it is replayed from the transcript; what of it
depends on records is read off the agent's own message, noise included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.audit.overhear import Public
from hearsay.base import Algorithm, Inbox
from hearsay.graphs.channels import mixer
from hearsay.mechanisms import Gaussian
from hearsay.problems.losses.domains import Domain
from hearsay.problems.losses.loss import Loss
from hearsay.problems.sampling.batches import Batch
from hearsay.simulation import engine
from hearsay.simulation.program import kernel

_FLOOR = 1e-4  # of a message's own size: what counts as no noise at all


class Given(NamedTuple):
    """What the attacker takes as given: the agent's state, the rates of both steps,
    what the agent sent and heard, the draws of both steps.
    """

    state: Any
    now: Any
    later: Any
    sent: Any
    inbox: Inbox
    draws: Any


@dataclass(frozen=True)
class Compiled:
    """What is compiled: the algorithm without its schedules, which message parts count,
    whether the model stands in for a quantized message.
    """

    algorithm: Algorithm
    loss: Loss
    domain: Domain
    used: tuple[int, ...] = ()
    stand_in: bool = False


class Target(NamedTuple):
    """Per part that counts: p at a reference image, observed - p there, 1 / variance.

    And `size`, what changing a record does to them all.
    """

    reference: tuple
    offset: tuple
    weight: tuple
    size: jax.Array

    def mismatch(self, score: float) -> float:
        """Mean squared distance to the observed messages in units of their noise:
        about 1 if noise explains it.
        """
        parts = zip(self.weight, self.offset, strict=True)
        rest = sum(float(jnp.sum(w * t * t)) for w, t in parts)
        return (score * float(self.size) + rest) / sum(float(jnp.sum(w > 0)) for w in self.weight)


def _predict(
    images: jax.Array, labels: jax.Array, other: tuple, scene: Given, setup: Compiled
) -> tuple:
    """p: all message fields of both steps, for a made-up batch now and another one later."""
    algorithm = setup.algorithm
    share = jnp.full(labels.shape, 1 / len(labels))
    batch, later = (
        Batch(images, labels, share, setup.loss),
        Batch(other[0], other[1], share, setup.loss),
    )
    first, state = algorithm.send(engine.pick(scene.draws, 0), scene.state, batch, scene.now)
    state = algorithm.update(state, scene.sent, scene.inbox, batch, scene.now, setup.domain)
    second, _ = algorithm.send(engine.pick(scene.draws, 1), state, later, scene.later)
    if setup.stand_in:
        second = second._replace(params=algorithm.predict(state))
    return (*first, *second)


_predicted = jax.jit(_predict, static_argnames=("setup",))


@partial(jax.jit, static_argnames=("setup",))
def _with_noise(
    images: jax.Array, labels: jax.Array, other: tuple, scene: Given, spread: Any, setup: Compiled
) -> tuple:
    """p, and the standard deviation of every part's noise: its derivative in the draws."""

    def of_draws(draws: Any) -> tuple:
        return _predict(images, labels, other, scene._replace(draws=draws), setup)

    return jax.jvp(of_draws, (scene.draws,), (spread,))


@partial(jax.jit, static_argnames=("setup",))
def score(
    images: jax.Array, labels: jax.Array, scene: Given, target: Target, pull: tuple, setup: Compiled
) -> tuple:
    """The mismatch, less its value at the reference, over the size of what a record does; and its
    derivative. pull: (mean, 1 / variance) of every pixel.

    With q = p - p(reference) the sum is q^2 - 2 q (observed - p(reference)): no large number is
    subtracted from another, however much noise there is.
    """

    def mismatch(images: jax.Array) -> jax.Array:
        parts = _predict(
            images, labels, (jnp.zeros_like(images), jnp.zeros_like(labels)), scene, setup
        )
        total = jnp.sum((images - pull[0][None]) ** 2 * pull[1][None])
        for index, reference, offset, weight in zip(setup.used, *target[:3], strict=True):
            q = parts[index] - reference
            total += jnp.sum(weight * q * (q - 2 * offset))
        return total / target.size

    return jax.value_and_grad(mismatch)(images)


def scene_of(
    known: Public, heard: list[Any], agent: int, step: int, blanks: jax.Array
) -> tuple[Compiled, Given]:
    """The agent's state when the step begins, and what the step brings from outside;
    `blanks` are two different images.
    """
    algorithm, steps = known.algorithm, np.arange(step + 2)
    # With its noise at zero a mechanism sends the value itself, except the ternary one, which is
    # unbiased nevertheless.
    task = known.task
    setup = Compiled(replace(kernel(algorithm), mechanism=Gaussian.name), task.loss, task.domain)
    rates = jax.tree.map(
        lambda r: jnp.asarray(r[:, agent]), algorithm.rates(steps, known.graph.agents)
    )
    mixers = [
        mixer(known.graph, channel, jnp.dtype(float)) for channel in algorithm.channels.values()
    ]
    start = task.domain.project(jnp.asarray(task.first_models[agent]))
    silent = jax.tree.map(jnp.zeros_like, _draws(algorithm, start, 0))
    state = setup.algorithm.init(start)
    states = [state, state]
    for k in range(step + 1):
        make = type(heard[k])
        message = make(*(jnp.asarray(field, start.dtype) for field in heard[k]))
        inbox = engine.pick(engine.heard(mixers, message), agent)
        scene = Given(
            state,
            engine.pick(rates, k),
            engine.pick(rates, k + 1),
            engine.pick(message, agent),
            inbox,
            silent,
        )
        if k < step:
            states = [
                _replayed(s, scene, image, label, setup)
                for label, (s, image) in enumerate(zip(states, blanks, strict=True))
            ]
    return setup, scene._replace(
        state=_settled(algorithm.name, states, scene.sent) if step else state
    )


@partial(jax.jit, static_argnames=("setup",))
def _replayed(state: Any, scene: Given, image: jax.Array, label: jax.Array, setup: Compiled) -> Any:
    one = jnp.ones((1,), image.dtype)
    batch = Batch(image[None], label * one, one, setup.loss)
    _, state = setup.algorithm.send(engine.pick(scene.draws, 0), state, batch, scene.now)
    return setup.algorithm.update(state, scene.sent, scene.inbox, batch, scene.now, setup.domain)


def _settled(name: str, states: list[Any], sent: Any) -> Any:
    """Parts of the state that two replays with different records agree on are facts;
    for the others the agent's own message speaks.
    """
    state = states[0]
    for part, one, two in zip(state._fields, *states, strict=True):
        if bool(jnp.all(one == two)):
            continue
        if part not in sent._fields:
            require.fail(
                "step",
                f"0 for {name}: later its {part} is private and in no message",
                "a later one",
            )
        state = state._replace(**{part: getattr(sent, part)})
    return state


def target_of(
    known: Public,
    setup: Compiled,
    scene: Given,
    heard: list[Any],
    agent: int,
    step: int,
    one: tuple,
    two: tuple,
) -> tuple[Compiled, Target]:
    """What of the messages reacts to the records, and how noisy it is;
    `one` and `two` are made-up batches (images, labels) that differ in everything.
    """
    observed = [
        jnp.asarray(field, one[0].dtype)[agent] for k in (step, step + 1) for field in heard[k]
    ]
    drawn = _draws(known.algorithm, setup.algorithm.predict(scene.state), step)
    nothing = (jnp.zeros(one[0].shape[1:]), jnp.zeros(one[0].shape[1:]))
    for stand_in in (False, True):
        if stand_in and "params" not in heard[step]._fields:
            break
        rounded, setup = setup, replace(setup, stand_in=stand_in)
        base, noise = _with_noise(*one, one, scene, jax.tree.map(_spread, drawn), setup)
        react, later = _predicted(*two, one, scene, setup), _predicted(*one, two, scene, setup)
        tails = _predicted(
            *one, one, scene._replace(draws=jax.tree.map(jnp.ones_like, drawn)), setup
        )
        if stand_in:
            sent = _predicted(*one, one, scene._replace(draws=drawn), rounded)
            noise = tuple(
                jnp.full_like(a, jnp.sqrt(jnp.mean((a - b) ** 2)))
                for a, b in zip(base, sent, strict=True)
            )
        used = tuple(
            i
            for i in range(len(base))
            if jnp.any(base[i] != react[i]) and jnp.all(base[i] == later[i])
        )
        weight = []
        for i in used:
            kept_back = (jnp.abs(tails[i] - observed[i]) <= 1e-6 * jnp.abs(observed[i])) & (
                tails[i] != base[i]
            )
            floor = _FLOOR**2 * jnp.mean((base[i] - react[i]) ** 2)
            weight.append(jnp.where(kept_back, 0.0, 1 / (noise[i] ** 2 + floor)))
        size = sum(
            float(jnp.sum(w * (base[i] - react[i]) ** 2)) for w, i in zip(weight, used, strict=True)
        )
        setup = replace(setup, used=used)
        offset = tuple(observed[i] - base[i] for i in used)
        target = Target(
            tuple(base[i] for i in used), offset, tuple(weight), jnp.asarray(size, one[0].dtype)
        )
        if size > 0 and bool(jnp.any(score(*two, scene, target, nothing, setup)[1] != 0)):
            return setup, target
    both = f"steps {step} and {step + 1}"
    raise ValueError(
        f"nothing that agent {agent} sent at {both} depends on the records of step {step}: no"
        " attack is possible there"
    )


def _draws(algorithm: Algorithm, params: jax.Array, step: int) -> Any:
    """Draws of the attacker's own for two steps: their distribution is public."""
    return _drawn(
        params, step + jnp.arange(2), algorithm.constants(params.dtype), algorithm=kernel(algorithm)
    )


@partial(jax.jit, static_argnames=("algorithm",))
def _drawn(params: jax.Array, steps: jax.Array, constants: Any, *, algorithm: Algorithm) -> Any:
    return algorithm.draws(jax.random.key(0), steps, params, constants)


def _spread(draws: jax.Array) -> jax.Array:
    """The standard deviation of each of two steps' draws, in their shape."""
    each = jnp.std(draws.reshape(2, -1), axis=1) if draws.size > 2 else jnp.ones(2, draws.dtype)
    return jnp.broadcast_to(each.reshape(2, *(1 for _ in draws.shape[1:])), draws.shape)
