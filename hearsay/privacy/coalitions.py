"""Shared secrets: what noise that cancels between agents is worth against a coalition.

Agent i sends its message with noise own_i + sum_j sign(i, j) v_ij, own_i ~ N(0, s_i^2) and
v_ij ~ N(0, c_ij^2) from a key that only i and j have. A coalition K knows its members' data and
keys; H is everybody else, S_H the covariance of the noises that are still unknown. The variance of
agent i's noise given the noises of all other honest agents is tau_i^2 = 1 / [S_H^-1]_ii; those are
independent of i's data and may be handed to the coalition, so that agent i is alone with
independent noise tau_i: every account holds with its noise scale multiplied by the **gain**
tau_i / s_i. The **price** is 1 / gain^2 = s_i^2 [S_H^-1]_ii: by what mu^2 and rho are multiplied.

Whoever joins a coalition makes it stronger, so the worst one of at most q others has q members. The
worst price is in closed form for a complete graph with one ratio, found by trying all coalitions
where they are few, and a proved bound otherwise (coalition_search.py, coalition_prices.py). It
never falls with q, and is 1 where all of the agent's secrets may be known to the coalition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.coalition_prices import last_variance
from hearsay.privacy.coalition_search import Gain, Search

__all__ = ["Gain", "Shared", "planned_ratio"]

# Within these the products of ratios and scales are far from what float64 cannot hold.
_RATIOS, _SCALES = (1e-6, 1e6), (1e-30, 1e30)
# Steps of _three_digits between which a ratio is planned: 0.001, and the largest there is, which
# stands for infinity: what is missing there is about agents^2 / ratio^2 of a price.
_ENDS = (-2700, 5400)
# Agents of a very large graph that a ratio is planned for.
_PLANNED = 64


@dataclass(frozen=True)
class Shared:
    """Who shares secrets, and how large the noise from them is: all of it public.

    c_ij = ratio_ij sqrt(s_i s_j) is the standard deviation of what agents i and j share.

    Args:
      agents: how many there are.
      ratios: c_ij / sqrt(s_i s_j), one for all pairs or one per pair.
      pairs: who shares a secret, (smaller, larger), in order; none: every two agents do.
      scales: the own noise s_i of each agent up to a common factor, or one for all.

    Example:
      >>> ring = Shared(5, (10**0.5,), ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4)))
      >>> round(ring.price(0, coalition=[1]), 6)
      0.32622
      >>> ring.gain(0, colluders=2)
      Gain(value=1.0, how='exact')
    """

    agents: int
    ratios: tuple[float, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    scales: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        require.settle(
            self,
            agents=require.count,
            ratios=require.each(lambda name, value: _within(name, value, _RATIOS)),
            pairs=_pairs,
            scales=require.each(lambda name, value: _within(name, value, _SCALES)),
        )
        if self.pairs and max(two for _, two in self.pairs) >= self.agents:
            require.fail("pairs", f"of agents 0 to {self.agents - 1}", max(self.pairs))
        secrets = len(self.pairs) or self.agents * (self.agents - 1) // 2
        if len(self.ratios) not in (1, secrets):
            rule = f"one number, or one for each of the {secrets} pairs"
            require.fail("ratios", rule, self.ratios)
        if len(self.scales) not in (1, self.agents):
            rule = f"one number, or one for each of the {self.agents} agents"
            require.fail("scales", rule, self.scales)

    def ends(self) -> np.ndarray:
        """Both agents of every pair, (pair, 2), the smaller one first."""
        return require.kept(self._search.graph.ends)

    def weights(self) -> np.ndarray:
        """What a draw of scale 1 is multiplied by at either end, c_ij / s_i and c_ij / s_j, in
        units of that agent's own noise: (pair, 2).
        """
        return self._search.weights()

    def variance(self, agent: int) -> float:
        """Of all the noise in an agent's messages, over that of its own: 1 + sum_j c_ij^2 / s_i^2.

        Args:
          agent: whose messages.
        """
        agent = self._known("agent", agent)
        return 1.0 + float((self.weights()[self._search.graph.ends == agent] ** 2).sum())

    def alone(self) -> tuple[int, ...]:
        """Agents who share no secret with anybody."""
        return tuple(np.flatnonzero(self._search.graph.degrees == 0).tolist())

    def components(self) -> tuple[tuple[int, ...], ...]:
        """The agents that secrets connect, component by component."""
        return self._search.graph.components

    def connected(self) -> bool:
        """Whether secrets connect all agents."""
        return len(self._search.graph.components) == 1

    def connectivity(self) -> int:
        """The vertex connectivity: fewer colluders than this leave all honest agents connected.
        For more than about a hundred agents it may be a smaller number, which is proved.
        """
        return self._search.graph.connectivity

    def price(self, agent: int, coalition: Iterable[int]) -> float:
        """s_i^2 [S_H^-1]_ii against one coalition, exactly; in (0, 1].

        Args:
          agent: whose messages.
          coalition: other agents, who tell each other everything.
        """
        agent = self._known("agent", agent)
        members = {self._known("coalition", member) for member in coalition}
        if agent in members:
            require.fail("coalition", f"of others than agent {agent}", sorted(members))
        honest = [j for j in range(self.agents) if j not in members and j != agent] + [agent]
        own, ties = self._search.network(np.array(honest))
        return min(1.0, float(own[-1] / last_variance(own, ties)))

    def gain(self, agent: int, colluders: int) -> Gain:
        """tau_i / s_i against the worst coalition of at most so many others.

        Args:
          agent: whose messages.
          colluders: how many others may be in the coalition.
        """
        agent, colluders = self._known("agent", agent), require.natural("colluders", colluders)
        if colluders >= self.agents:
            require.fail("colluders", f"at most {self.agents - 1}, all others", colluders)
        return self._search.gain(agent, colluders)

    def gains(self, colluders: int) -> np.ndarray:
        """The values of `gain` of all agents.

        Args:
          colluders: how many others may be in the coalition.
        """
        places, kind = np.unique(self.positions(), return_inverse=True)
        known = [self.gain(agent, colluders).value for agent in places.tolist()]
        return np.array(known)[kind.ravel()]

    @property
    def nearby(self) -> bool:
        """There are so many agents that gains follow from the agents nearest to one alone."""
        return self._search.nearby

    def positions(self) -> list[int]:
        """For every agent one that is known to have the same gains: itself where nothing is."""
        return self._search.first

    def _known(self, name: str, agent: Any) -> int:
        agent = require.natural(name, agent)
        if agent >= self.agents:
            require.fail(name, f"at most {self.agents - 1}, the last agent", agent)
        return agent

    @cached_property
    def _search(self) -> Search:
        return Search(self.agents, self.ratios, self.pairs, self.scales)


def planned_ratio(
    agents: int,
    colluders: int,
    pairs: tuple[tuple[int, int], ...] = (),
    scales: tuple[float, ...] = (1.0,),
) -> float:
    """The smallest ratio, of three digits, at which sqrt(price) of every agent is within 10 % of
    its limit for ever larger ratios, against the worst coalition of so many others. On very large
    graphs it is that for 64 agents, evenly spaced; certificates are about all of them.

    Args:
      agents: how many there are.
      colluders: how many others may be in the coalition.
      pairs: who shares a secret; none: every two agents do.
      scales: own noise of each agent up to a common factor, or one for all.

    Example:
      >>> planned_ratio(5, colluders=2)
      1.69
    """
    limit = Shared(agents, (_RATIOS[1],), pairs, scales)
    colluders = require.natural("colluders", colluders)
    _none_stands_alone(limit, colluders)
    step = _ENDS[0]
    tried = {step: _search(limit, step)}
    # Of very many agents, so many that are evenly spaced.
    known = limit._search
    some = (
        np.linspace(0, agents - 1, _PLANNED).astype(int).tolist() if known.nearby else known.first
    )
    for agent in sorted(set(some)):
        enough = limit._search.worst(agent, colluders)[0].value / 1.1
        # Gains grow with the ratio: what the agents so far need is enough for this one, or the
        # least that is lies above it.
        low, high = step, _ENDS[1]
        while low < high:
            middle = low if low == step and high == _ENDS[1] else (low + high) // 2
            if middle not in tried:
                tried[middle] = _search(limit, middle)
            if tried[middle].worst(agent, colluders)[0].value >= enough:
                high = middle
            else:
                low = middle + 1
        step = high
    return _three_digits(step)


def _search(limit: Shared, step: int) -> Search:
    return Search(limit.agents, (_three_digits(step),), limit.pairs, limit.scales)


def _none_stands_alone(shared: Shared, colluders: int) -> None:
    """Refuse where a coalition may know all secrets of an agent: no ratio helps then."""
    if colluders >= shared.agents:
        require.fail("colluders", f"at most {shared.agents - 1}, all others", colluders)
    stranded = np.flatnonzero(np.array(shared._search.degrees) <= colluders).tolist()
    if stranded:
        named = ", ".join(map(str, stranded[:10])) + (", ..." if len(stranded) > 10 else "")
        raise ValueError(
            f"colluders must be fewer than every agent has secrets, got {colluders}: they may know"
            f" all secrets of agents {named}, who would be left with their own noise whatever the"
            " ratio; plan for fewer colluders, or give those agents more secrets"
        )


def _three_digits(step: int) -> float:
    """1.00, 1.01, .. 9.99, 10.0, 10.1, ..: step 0, 1, .. from 1 on; below 1 for negative ones."""
    decade, place = divmod(step, 900)
    return float(f"{100 + place}e{decade - 2}")


def _within(name: str, value: Any, limits: tuple[float, float]) -> float:
    value = require.positive(name, value)
    if not limits[0] <= value <= limits[1]:
        require.fail(name, f"between {limits[0]:g} and {limits[1]:g}", value)
    return value


def _pairs(name: str, values: Any) -> tuple[tuple[int, int], ...]:
    found = require.each(require.each(require.natural))(name, values)
    for pair in found:
        if len(pair) != 2 or pair[0] >= pair[1]:
            require.fail(name, "two agents each, the smaller one first", pair)
    for one, two in pairwise(found):
        if one >= two:
            require.fail(name, "in order and each there once", (one, two))
    return found  # type: ignore[return-value]
