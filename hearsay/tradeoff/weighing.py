"""What agents count where they share secrets: weights for the noise that is left then.

The error of a mean of gradients with weights w_i of mean 1 is, up to 1 / n^2,

    E(w) = sum_i w_i^2 v_i  +  d V(w)

v_i being what agent i's mean gradient is wrong by without noise, and V the variance of one number
of the sum of all messages: the agents' own noise, what pairs share cancels. A certificate asks for
a_i of noise on agent i's gradient where it shares none, so for t_i = w_i a_i in its message.

**Without secrets** everybody's own noise is t_i, V = sum_i t_i^2, and E is least at w_i in
proportion to 1 / (v_i + d a_i^2).

**With secrets** everybody's noise protects everybody. The variance of agent i's noise given what
the coalition knows is at most that of the sum over all honest agents, so that V is at least
max_i t_i^2, and near it where much is shared and nobody colludes. An agent whose t_i is below all
others' spends less than it may, and the sum has no less noise for it: with the weights of above,
which fall like the square of the records, all but the largest do, who decides nearly alone. In
between, V is taken to be that of a norm,

    V = (sum_i t_i^p)^(2/p)

with p such that agents which are all alike have the noise they have, n times the price of one:
p = 2 where secrets save nothing, infinite where V is max_i t_i^2. E is then convex, and least where
w_i v_i + d a_i t_i^(p-1) V^(1 - p/2) is the same for all.

**Topping up.** The noise that these weights really ask for (`least_noise`) leaves some agents with
more than their certificates need. Their weights may grow until it is what they need: no message
gets more noise, and the sum has more of their gradients. They do as far as that lowers E, so that
every agent spends all of its budget whose noise matters. What is left over is of agents so exact
that the others' noise hides them anyhow. The weights of above are topped up, too, and the better
ones taken: against nearly all others they are nearly the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hearsay.certification.colluding import least_noise
from hearsay.graphs.secrets import Secrets

# Of more agents, or where not every two share alike, the noise takes long to find: the norm stands
# for it.
MOST = 32
_TOPPED, _SETTLED, _TURNS = 8, 1.02, 60
# Norms beyond that are the largest number for all that matters.
_STEEPEST = 64.0


def shares(
    sampling: np.ndarray, noise: np.ndarray, dimension: float, secrets: Secrets | None
) -> tuple[np.ndarray, float]:
    """(weights of mean 1, how many times their error that of the plain mean has).

    Args:
      sampling: v_i, the variance of every agent's gradient without noise, in all.
      noise: a_i, what its certificate asks for of each number where it shares none.
      dimension: how many numbers a gradient has.
      secrets: what pairs of agents share.

    Example:
      >>> v, a = np.array([0.02, 0.01]), np.array([0.3, 0.1])
      >>> [round(float(w), 2) for w in shares(v, a, 10.0, None)[0]]
      [0.21, 1.79]
      >>> [round(float(w), 2) for w in shares(v, a, 10.0, Secrets(0, ratio=10.0))[0]]
      [0.5, 1.5]
    """
    agents = len(noise)
    own = _even(1 / (sampling + dimension * noise**2))
    plain = np.ones(agents)
    if secrets is None or not noise.all():
        error = _error(sampling, dimension, lambda w: float(np.sum((w * noise) ** 2)))
        return own, error(plain) / error(own)
    shared = secrets.shared(agents)
    power = norm(agents, float(np.mean(shared.gains(secrets.colluders) ** -2.0)))
    found = by_norm(sampling, noise, dimension, power)
    if agents > MOST or shared.pairs or len(shared.ratios) > 1:
        error = _error(sampling, dimension, lambda w: _normed(w * noise, power))
        return found, error(plain) / error(found)

    def left(weights: np.ndarray) -> float:
        return float(np.sum(_kept(weights * noise, secrets)[0] ** 2))

    error = _error(sampling, dimension, left)
    some = []
    for start in (found, own):
        now = start
        for _ in range(_TOPPED):
            before, now = now, topped(now, sampling, noise, dimension, secrets)
            if np.max(now / before) < _SETTLED:
                break
        some.append(now)
    best = min(some, key=error)
    return best, error(plain) / error(best)


def norm(agents: int, price: float) -> float:
    """The p with which agents that are all alike leave n times the price of the noise of one."""
    most = 2 * math.log(agents) / _STEEPEST
    return 2 * math.log(agents) / max(most, min(math.log(agents * price), math.log(agents)))


def by_norm(sampling: np.ndarray, noise: np.ndarray, dimension: float, power: float) -> np.ndarray:
    """Of mean 1, with the least error where the noise is that norm of w_i a_i.

    In units of the norm, r_i = w_i a_i with sum r_i^p = 1, E is least where r_i v_i / a_i^2 +
    d r_i^(p-1) = m / a_i: one r_i for every m, and one m for all.
    """

    def at(level: float) -> np.ndarray:
        low, high = np.full(len(noise), -100.0), np.zeros(len(noise))
        for _ in range(_TURNS):
            middle = (low + high) / 2
            size = np.exp(middle)
            slope = size * sampling / noise**2 + dimension * np.exp((power - 1) * middle)
            above = slope > np.exp(level) / noise
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return np.exp(low)

    # From where all are far below 1 to where all would be 1 or more.
    most = float(np.log(np.max(sampling / noise + dimension * noise)))
    low, high = most - 100.0, most
    for _ in range(_TURNS):
        middle = (low + high) / 2
        if np.sum(at(middle) ** power) > 1:
            high = middle
        else:
            low = middle
    return _even(at(low) / noise)


def topped(
    weights: np.ndarray,
    sampling: np.ndarray,
    noise: np.ndarray,
    dimension: float,
    secrets: Secrets,
) -> np.ndarray:
    """The best weights that the noise of these allows: up to what it is worth to each agent, as
    far as that lowers the error.
    """
    own, worth = _kept(weights * noise, secrets)
    most, left = worth / noise, dimension * float(np.sum(own**2))
    found = weights
    # What lowers the error: w_i v_i below the mean of all, noise counted.
    for _ in range(_TURNS):
        level = (float(np.sum(found**2 * sampling)) + left) / float(np.sum(found))
        found = np.minimum(level / sampling, most)
    return _even(found)


def _kept(needed: np.ndarray, secrets: Secrets) -> tuple[np.ndarray, np.ndarray]:
    """(own noise, what it is worth against the coalition) in everybody's messages where it must be
    worth so much: as `calibrate` sets it.
    """
    relative = tuple((needed / needed[0]).tolist())
    shared = secrets.shared(len(needed), relative)
    own = needed * np.array(least_noise(shared, secrets.colluders, [1.0] * len(needed)))
    gains = secrets.shared(len(needed), tuple((own / own[0]).tolist())).gains(secrets.colluders)
    return own, own * gains


def _error(
    sampling: np.ndarray, dimension: float, left: Callable[[np.ndarray], float]
) -> Callable[[np.ndarray], float]:
    """E, for noise of that variance in all."""
    return lambda weights: float(np.sum(weights**2 * sampling)) + dimension * left(weights)


def _normed(values: np.ndarray, power: float) -> float:
    most = float(values.max())
    return most**2 * float(np.sum((values / most) ** power)) ** (2 / power)


def _even(weights: np.ndarray) -> np.ndarray:
    return weights / weights.mean()
