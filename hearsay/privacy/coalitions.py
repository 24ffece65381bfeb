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
where they are few, and a proved bound otherwise (coalition_prices.py). It never falls with q, and
is 1 where all of the agent's secrets may be known to the coalition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.coalition_prices import (
    all_variances,
    branch_prices,
    complete_prices,
    gap_prices,
    last_variance,
    spectral_gap,
    worst_variance,
)
from hearsay.privacy.secrets_graph import SecretsGraph, graph_of

T = TypeVar("T")

# Gains are rounded down by this factor, which is far more than their rounding errors.
_OUTWARD = 1e-9
# Coalitions are tried one by one while there are this few for an agent, and their cost is this low
# (coalitions times honest agents^3); the price without a coalition is exact for larger networks.
_COALITIONS, _COST, _LARGEST = 50_000, 3e8, 1500
# Within these the products of ratios and scales are far from what float64 cannot hold.
_RATIOS, _SCALES = (1e-6, 1e6), (1e-30, 1e30)
# Steps of _three_digits between which a ratio is planned: 0.001 and 100,000.
_ENDS = (-2700, 4500)


def _per_component(method: Callable[[Any, int], T]) -> Callable[[Any, int], T]:
    """Found once, and kept in the object."""

    @wraps(method)
    def call(self: Any, component: int) -> T:
        known = self._of_components
        if (method.__name__, component) not in known:
            known[method.__name__, component] = method(self, component)
        return known[method.__name__, component]

    return call


class Gain(NamedTuple):
    """By how much shared secrets raise an agent's noise scale, against the worst coalition.

    Args:
      value: tau_i / s_i, at least 1 and never above the truth.
      how: "exact", "closed form", or "bound: ..." with the argument that proves it.
    """

    value: float
    how: str


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
      >>> round(ring.price(0, coalition=[2]), 6)
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
        return require.kept(self._graph.ends)

    def weights(self) -> np.ndarray:
        """What a draw of scale 1 is multiplied by at either end, c_ij / s_i and c_ij / s_j, in
        units of that agent's own noise: (pair, 2).
        """
        scales = self._scales[self._graph.ends]
        return self._ratios[:, None] * np.sqrt(scales[:, ::-1] / scales)

    def variance(self, agent: int) -> float:
        """Of all the noise in an agent's messages, over that of its own: 1 + sum_j c_ij^2 / s_i^2.

        Args:
          agent: whose messages.
        """
        agent = self._known("agent", agent)
        return 1.0 + float((self.weights()[self._graph.ends == agent] ** 2).sum())

    def alone(self) -> tuple[int, ...]:
        """Agents who share no secret with anybody."""
        return tuple(np.flatnonzero(self._graph.degrees == 0).tolist())

    def components(self) -> tuple[tuple[int, ...], ...]:
        """The agents that secrets connect, component by component."""
        return self._graph.components

    def connected(self) -> bool:
        """Whether secrets connect all agents."""
        return len(self._graph.components) == 1

    def connectivity(self) -> int:
        """The vertex connectivity: fewer colluders than this leave all honest agents connected.
        For more than about a hundred agents it may be a smaller number, which is proved.
        """
        return self._graph.connectivity

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
        own, ties = self._network(np.array(honest))
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
        if colluders >= self._degrees[agent]:
            return Gain(1.0, "exact")
        curve = self._curves.setdefault(self._like(agent), [])
        if len(curve) <= colluders:
            self._extend(curve, self._like(agent), colluders)
        return curve[colluders]

    @cached_property
    def _curves(self) -> dict[int, list[Gain]]:
        """What has been found so far: gains of an agent against 0, 1, ... colluders."""
        return {}

    @cached_property
    def _graph(self) -> SecretsGraph:
        return graph_of(self.agents, self.pairs)

    @cached_property
    def _degrees(self) -> list[int]:
        return self._graph.degrees.tolist()

    @cached_property
    def _scales(self) -> np.ndarray:
        return np.broadcast_to(np.array(self.scales), self.agents)

    @cached_property
    def _ratios(self) -> np.ndarray:
        return np.broadcast_to(np.array(self.ratios), len(self._graph.ends))

    @cached_property
    def _ties(self) -> np.ndarray:
        """c^2 of every pair."""
        return self._ratios**2 * self._scales[self._graph.ends].prod(1)

    @cached_property
    def _closed(self) -> bool:
        return self._graph.complete and len(self.ratios) == 1

    @cached_property
    def _first(self) -> list[int]:
        """For every agent one that is in the same position: itself where nothing else is known."""
        if len(self.ratios) == 1 and len(self.scales) == 1 and self._graph.rotates:
            return [0] * self.agents
        if self._closed:
            return [self.scales.index(scale) for scale in self.scales]
        return list(range(self.agents))

    @cached_property
    def _of_components(self) -> dict[tuple[str, int], Any]:
        return {}

    def _like(self, agent: int) -> int:
        return self._first[agent]

    def _known(self, name: str, agent: Any) -> int:
        agent = require.natural(name, agent)
        if agent >= self.agents:
            require.fail(name, f"at most {self.agents - 1}, the last agent", agent)
        return agent

    def _network(self, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """s^2 of these agents, and c^2 between them."""
        place = np.full(self.agents, -1)
        place[members] = np.arange(len(members))
        ends = place[self._graph.ends]
        inside = (ends >= 0).all(1)
        ties = np.zeros((len(members), len(members)))
        one, two = ends[inside].T
        ties[one, two] = ties[two, one] = self._ties[inside]
        return self._scales[members] ** 2, ties

    def _extend(self, curve: list[Gain], agent: int, colluders: int) -> None:
        if self._closed:
            others = np.delete(self._scales, agent)
            found = complete_prices(self.ratios[0], others, self._scales[agent])
            curve[:] = [_gain(price, "closed form") for price in found.tolist()]
            return
        while len(curve) <= colluders:
            found = self._worst(agent, len(curve))
            # By rounding alone a price might be a little lower than the one before.
            for gain in found:
                curve.append(min([gain, *curve[-1:]], key=lambda one: one.value))

    def _worst(self, agent: int, colluders: int) -> list[Gain]:
        """Against that many, who are fewer than the agent has secrets, and more."""
        component = int(self._graph.component_of[agent])
        members = self._members(component)
        place = int(np.searchsorted(members, agent))
        own = self._scales[members] ** 2
        if not colluders and len(members) <= _LARGEST:
            return [_gain(own[place] / self._undisturbed(component)[place], "exact")]
        if _affordable(len(members), colluders):
            network = self._network(members)
            return [_gain(own[place] / worst_variance(*network, place, colluders), "exact")]
        tree = self._graph.tree(agent)
        bounds = branch_prices(tree, self._scales**2, self._ties, agent)
        found = [_gain(price, "bound: disjoint branches") for price in bounds.tolist()]
        if len(members) <= _LARGEST:
            bounds = gap_prices(self._gap(component), self._falls[members], own, place)
            others = [_gain(price, "bound: spectral gap") for price in bounds.tolist()]
            pairs = zip(found, others, strict=False)
            found = [max(pair, key=lambda gain: gain.value) for pair in pairs]
        return found[colluders:]

    @_per_component
    def _members(self, component: int) -> np.ndarray:
        return np.flatnonzero(self._graph.component_of == component)

    @_per_component
    def _undisturbed(self, component: int) -> np.ndarray:
        """The variances where nobody colludes."""
        return all_variances(*self._network(self._members(component)))

    @_per_component
    def _gap(self, component: int) -> float:
        # With one ratio it is that of ratio 1 times the square, also while a ratio is searched for.
        one = len(self.ratios) == 1
        unit = (1.0,) if one else self.ratios
        gap = spectral_gap(self.agents, self.pairs, unit, self.scales, component)
        return gap * self.ratios[0] ** 2 if one else gap

    @cached_property
    def _falls(self) -> np.ndarray:
        """For every agent the largest c_ij^2 / s_j^2: how far its leaving lowers the gap."""
        falls = np.zeros(self.agents)
        np.maximum.at(falls, self._graph.ends, self.weights()[:, ::-1] ** 2)
        return falls


def planned_ratio(
    agents: int,
    colluders: int,
    pairs: Iterable[tuple[int, int]] = (),
    scales: Iterable[float] = (1.0,),
) -> float:
    """The smallest ratio, of three digits, at which sqrt(price) of every agent is within 10 % of
    its limit for ever larger ratios, against the worst coalition of so many others.

    Args:
      agents: how many there are.
      colluders: how many others may be in the coalition.
      pairs: who shares a secret; none: every two agents do.
      scales: own noise of each agent up to a common factor, or one for all.

    Example:
      >>> planned_ratio(5, colluders=2)
      1.7
    """
    limit = Shared(agents, (_RATIOS[1],), tuple(pairs), tuple(scales))
    colluders = require.natural("colluders", colluders)
    _none_stands_alone(limit, colluders)
    tried = {step: replace(limit, ratios=(_three_digits(step),)) for step in _ENDS}
    low, step = _ENDS
    for agent in range(limit.agents):
        enough = limit.gain(agent, colluders).value / 1.1
        # Gains grow with the ratio: what is enough for the agents so far is enough, or too little.
        if agent and tried[step].gain(agent, colluders).value >= enough:
            continue
        low, high = (_ENDS[0] if not agent else step), _ENDS[1]
        while high - low > 1:
            middle = (low + high) // 2
            if middle not in tried:
                tried[middle] = replace(limit, ratios=(_three_digits(middle),))
            if tried[middle].gain(agent, colluders).value >= enough:
                high = middle
            else:
                low = middle
        step = high
    return _three_digits(step)


def _none_stands_alone(shared: Shared, colluders: int) -> None:
    """Refuse where a coalition may know all secrets of an agent: no ratio helps then."""
    if colluders >= shared.agents:
        require.fail("colluders", f"at most {shared.agents - 1}, all others", colluders)
    stranded = np.flatnonzero(shared._graph.degrees <= colluders).tolist()
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


def _affordable(agents: int, colluders: int) -> bool:
    """Whether all coalitions of up to so many others can be tried: once a bound is needed, larger
    coalitions have one too, so that prices never fall.
    """
    return all(
        (found := math.comb(agents - 1, q)) <= _COALITIONS and found * (agents - q) ** 3 <= _COST
        for q in range(1, colluders + 1)
    )


def _gain(price: float, how: str) -> Gain:
    return Gain(max(1.0, (1 - _OUTWARD) / math.sqrt(price)), how)


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
