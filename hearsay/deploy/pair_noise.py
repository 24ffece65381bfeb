"""What a deployed agent's noise shares with that of others: for every message field of a round the
grid that all agents use, and for every pair of the agent a sign, a scale and a key.

Both ends of a pair, and all agents for the grid, must arrive at the same numbers, each on its own
machine. So everything is computed in float64 from the public schedules, in one order: the scale of
a pair, c_ij = ratio_ij sqrt(s_i s_j), is the message noise of its smaller end times that end's
weight (privacy/coalitions.py, `Shared.weights`). Machines differ in the last bits of a power, so
scales are rounded up to 20 bits (`rounded_up`): two values that differ in their last bits are then
the same number, but for one in 2^30 that lies next to an edge. There the two ends differ by a
millionth: what they share does not cancel, and hides that much less where the other end is the
louder one. More noise than planned at both ends costs no privacy (mechanisms/shared_rounding.py).
Ratios and pairs that differ are another plan (`Deployment.words`), and their keys are refused.

What shared noise is worth follows from the proportion of the agents' own (`Shared.scales`), so a
round in which messages have noise in another proportion is refused.

The round in a key is that of the message, at both ends, also where a message carries the noise of
an earlier step.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hearsay._parts import PROPORTION
from hearsay.base import Algorithm
from hearsay.mechanisms.shared_lattice import LEAST, MOST, MOST_OWN, common_grid
from hearsay.privacy.coalitions import Shared
from hearsay.schedules import Schedule

_BITS = 20


class PairKeys(Protocol):
    """The keys that an agent shares with each of its neighbours in the secrets graph."""

    def noise_key(self, neighbour: int, round: int, field: int) -> bytes:
        """32 bytes that both have for one field of one round, and nobody else."""


class PairNoise:
    """The shared noise of one agent.

    Args:
      algorithm: of the run.
      shared: its secrets.
      agent: whose noise.
      keys: where the pairs' keys come from.
    """

    def __init__(self, algorithm: Algorithm, shared: Shared, agent: int, keys: PairKeys) -> None:
        require_independent(algorithm)
        self._shared, self._agent, self._keys = shared, agent, keys
        self._ends, self._weights = shared.ends(), shared.weights()[:, 0]
        self._mine = np.flatnonzero((self._ends == agent).any(axis=1)).tolist()
        self._scales = np.broadcast_to(np.asarray(shared.scales), shared.agents)
        self._fields = list(algorithm.channels)
        self._delay = algorithm.delay
        self._laws = {
            name: [message_scale(algorithm, name, j, shared.agents) for j in range(shared.agents)]
            for name in self._fields
            if name not in algorithm.coins
        }

    def of(self, step: int, name: str) -> tuple[float, float, list[tuple[int, float, bytes]]]:
        """(the agent's own scale, the grid, the terms of `noised_shared`) of that field.

        Args:
          step: the round of the message.
          name: of the field.
        """
        own = self._own(step, name)
        shared = rounded_up(own[self._ends[:, 0]] * self._weights)
        grid = common_grid([float(np.append(own, shared).min())])
        field = self._fields.index(name)
        terms = []
        for pair in self._mine:
            small, large = self._ends[pair].tolist()
            other, sign = (large, 1) if small == self._agent else (small, -1)
            key = self._keys.noise_key(other, step, field)
            terms.append((sign, float(shared[pair]), key))
        return float(own[self._agent]), grid, terms

    def _own(self, step: int, name: str) -> np.ndarray:
        """Everybody's own noise on the message of that round."""
        laws = self._laws[name]
        # Most often all agents have the same.
        known = {law: float(law(step - self._delay)) for law in set(laws)}
        found = np.array([known[law] for law in laws])
        if not np.all(found > 0):
            raise ValueError(
                f"the noise of {name} must be positive for every agent in round {step} with"
                f" secrets, got {found.min():g}"
            )
        relative = found / found[0] * (self._scales[0] / self._scales)
        if not np.all(np.abs(relative - 1) <= 2 * PROPORTION):
            worst = int(np.argmax(np.abs(relative - 1)))
            raise ValueError(
                f"the noise of {name} must be in the proportion that its secrets count on in every"
                f" round, got {relative[worst]:.6g} times that of agent {worst} in round {step}"
            )
        return rounded_up(found)


def require_independent(algorithm: Algorithm) -> None:
    """Refuse shared noise that later rounds take back; also in a rehearsal, which would show a run
    that nobody can have.

    Args:
      algorithm: with secrets.
    """
    factors = algorithm.factors
    # With the identity nothing is taken back, and every message's noise is its own.
    if factors is not None and np.any(factors.rows().others > 0):
        raise ValueError(
            f"[secrets] must be left out with the correlated noise of {algorithm.name} when agents"
            " are deployed: what a later round takes back is rounded by each agent by itself, and"
            " no proof covers that yet where noise is shared. Choose independent noise (no"
            ' correlation in [algorithm], or factorization = "identity"), or leave [secrets] out,'
            " or simulate it instead"
        )


def require_drawable(shared: Shared) -> None:
    """Raise ValueError where scales are too far apart for one grid, before anybody has sent
    anything: the sampler would refuse at the loudest agents only, and the others go on.

    Args:
      shared: who shares what; scales keep their proportions in all rounds.
    """
    own = np.broadcast_to(np.asarray(shared.scales), shared.agents)
    pairs = own[shared.ends()[:, 0]] * shared.weights()[:, 0]
    least = min(own.min(), pairs.min())
    # The least one has between LEAST and twice as many steps, and all are rounded up.
    for what, found, most in (("own", own, MOST_OWN), ("shared", pairs, MOST)):
        if found.max() / least > most / (2 * LEAST) * (1 - 2.0**-18):
            raise ValueError(
                f"the largest scale of {what} noise must be at most {most / (2 * LEAST):g} times"
                f" the smallest of any noise with secrets, got {found.max() / least:.4g} times:"
                " bring the noise of agents, and the ratio of shared to own noise, closer together"
            )


def message_scale(algorithm: Algorithm, name: str, agent: int, agents: int) -> Schedule:
    """The scale of that agent's noise on a message field, as a function of the step that makes it.

    Args:
      name: of the field.
      agents: how many there are.
    """
    (release,) = (r for r in algorithm.releases(agent, (0.0, 0.0)) if r.name == name)
    if not release.delay:
        return release.scale
    found = algorithm.magnitudes(agent, agents).step_noise
    assert found is not None
    return found


def rounded_up(scales: np.ndarray) -> np.ndarray:
    """Numbers of 20 bits that are not below the scales: the same for scales that differ in their
    last bits. Exact numbers such as 1.0 do not lie next to an edge.

    Example:
      >>> rounded_up(np.array([1.0, np.nextafter(1.0, 0)]))
      array([1.00000191, 1.00000191])
    """
    mantissa, exponent = np.frexp(np.asarray(scales, np.float64) * (1 + 2.0**-40))
    return np.ldexp(np.ceil(mantissa * 2.0**_BITS), exponent - _BITS)
