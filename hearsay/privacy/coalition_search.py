"""The search for the worst coalition: closed form, all of them one by one, or a proved bound."""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hearsay.privacy.coalition_balls import ball_prices, few_kinds
from hearsay.privacy.coalition_prices import (
    all_variances,
    branch_prices,
    complete_prices,
    gap_prices,
    spectral_gap,
    worst_variance,
)
from hearsay.privacy.secrets_graph import graph_of

# Gains are rounded down by this factor, which is far more than their rounding errors.
_OUTWARD = 1e-9
# Coalitions are tried one by one while there are this few for an agent, and their cost is this low
# (coalitions times honest agents^3); eigenvalues, and prices where nobody colludes, are computed
# for components of at most this many agents.
_COALITIONS, _COST, _LARGEST = 50_000, 4e7, 1500
# Agents times secrets: beyond that, trees of all agents of a component take too long to grow.
_STEPS = 2**25
# Beyond so many agents their gains are rounded down, so that they are of few kinds.
_ROUNDED = 128
_BRANCHES = "bound: disjoint branches"


class Gain(NamedTuple):
    """By how much shared secrets raise an agent's noise scale, against the worst coalition.

    Args:
      value: tau_i / s_i, at least 1 and never above the truth.
      how: "exact", "closed form", or "bound: ..." with the argument that proves it; among more than
        a hundred agents the value is rounded down.
    """

    value: float
    how: str


class Search:
    """Gains of all agents; what has been found is kept.

    Args:
      agents, ratios, pairs, scales: as in `Shared`.
    """

    def __init__(
        self,
        agents: int,
        ratios: tuple[float, ...],
        pairs: tuple[tuple[int, int], ...],
        scales: tuple[float, ...],
    ) -> None:
        self._given = (agents, pairs, ratios, scales)
        self.graph = graph_of(agents, pairs)
        self.degrees: list[int] = self.graph.degrees.tolist()
        self.scales = np.broadcast_to(np.array(scales), agents)
        self.ratios = np.broadcast_to(np.array(ratios), len(self.graph.ends))
        # c^2 of every pair.
        self.ties = self.ratios**2 * self.scales[self.graph.ends].prod(1)
        self._closed = self.graph.complete and len(ratios) == 1
        differ = not self._closed and not (len(ratios) == len(scales) == 1 and self.graph.rotates)
        # Gains of agents follow from those nearest to them alone (coalition_balls.py).
        self.nearby = differ and agents > _LARGEST and agents * len(self.ratios) > _STEPS
        self._rounded = self.nearby or (differ and agents > _ROUNDED)
        self._curves: dict[int, list[Gain]] = {}
        self._components: dict[int, _Component] = {}

    def gain(self, agent: int, colluders: int) -> Gain:
        """Against the worst coalition of at most so many others; never rises with them."""
        if colluders >= self.degrees[agent]:
            return Gain(1.0, "exact")
        agent = self.first[agent]
        if self._rounded:
            known = colluders < self._gains.shape[1]
            how = _BRANCHES if self.nearby else self._curve(agent, colluders).how
            return Gain(float(self._gains[agent, colluders]) if known else 1.0, how)
        return self._curve(agent, colluders)

    def _curve(self, agent: int, colluders: int) -> Gain:
        """As `gain`, before it is rounded."""
        curve = self._curves.setdefault(agent, [])
        while len(curve) <= colluders:
            for gain in self.worst(agent, len(curve)):
                # By rounding alone a price might be a little lower than the one before.
                curve.append(min([*curve[-1:], gain], key=lambda one: one.value))
        return curve[colluders]

    def worst(self, agent: int, colluders: int) -> list[Gain]:
        """Against exactly so many, who are fewer than the agent has secrets; and against one more,
        two more and so on as far as they are found at the same time.
        """
        if self._closed:
            scales = np.delete(self.scales, agent)
            prices = complete_prices(self.ratios[0], scales, self.scales[agent])
            return [_gain(price, "closed form") for price in prices[colluders:].tolist()]
        if self.nearby:
            row = ball_prices(self.graph, self.scales**2, self.ties, np.array([agent]))[0]
            return [_gain(price, _BRANCHES) for price in row[colluders:].tolist()]
        component = self._component(agent)
        members, place = component.members, int(np.searchsorted(component.members, agent))
        own = self.scales[members] ** 2
        if not colluders and len(members) <= _LARGEST:
            return [_gain(own[place] / component.variances[place], "exact")]
        if _affordable(len(members), colluders):
            network = self.network(members)
            return [_gain(own[place] / worst_variance(*network, place, colluders), "exact")]
        fewer = slice(colluders, self.degrees[agent])
        by_branch = branch_prices(self.graph.tree(agent), self.scales**2, self.ties, agent)[fewer]
        found = [_gain(price, _BRANCHES) for price in by_branch.tolist()]
        if len(members) > _LARGEST:
            return found
        by_gap = gap_prices(component.gap, self._falls[members], own, place)[fewer]
        others = [_gain(price, "bound: spectral gap") for price in by_gap.tolist()]
        either = zip(found, others, strict=True)
        return [max(both, key=lambda gain: gain.value) for both in either]

    def network(self, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """s^2 of these agents, and c^2 between them."""
        place = np.full(len(self.scales), -1)
        place[members] = np.arange(len(members))
        ends = place[self.graph.ends]
        inside = (ends >= 0).all(1)
        ties = np.zeros((len(members), len(members)))
        one, two = ends[inside].T
        ties[one, two] = ties[two, one] = self.ties[inside]
        return self.scales[members] ** 2, ties

    def weights(self) -> np.ndarray:
        """c_ij / s_i and c_ij / s_j of every pair."""
        scales = self.scales[self.graph.ends]
        return self.ratios[:, None] * np.sqrt(scales[:, ::-1] / scales)

    def gap(self, component: int) -> float:
        """l2 of a component; with one ratio it is that of ratio 1 times the square, so that it is
        computed once for all ratios that a plan tries.
        """
        agents, pairs, ratios, scales = self._given
        one = len(ratios) == 1
        gap = spectral_gap(agents, pairs, (1.0,) if one else ratios, scales, component)
        return gap * ratios[0] ** 2 if one else gap

    @cached_property
    def _falls(self) -> np.ndarray:
        """For every agent the largest c_ij^2 / s_j^2: how far its leaving lowers the gap."""
        falls = np.zeros(len(self.scales))
        np.maximum.at(falls, self.graph.ends, self.weights()[:, ::-1] ** 2)
        return falls

    @cached_property
    def first(self) -> list[int]:
        """For every agent one that is in the same position: itself where nothing else is known."""
        agents, _, ratios, scales = self._given
        if len(ratios) == 1 and len(scales) == 1 and self.graph.rotates:
            return [0] * agents
        if self._closed:
            first: dict[float, int] = {}
            return [first.setdefault(scale, agent) for agent, scale in enumerate(scales)]
        if self._rounded:
            # An agent may share a row with one of another degree, against whom fewer are needed.
            rows = np.column_stack([self._gains, self.degrees])
            _, place, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
            return place[kind.ravel()].tolist()
        return list(range(agents))

    @cached_property
    def _gains(self) -> np.ndarray:
        """(agent, colluders), rounded down."""
        everybody = np.arange(len(self.scales))
        if self.nearby:
            prices = ball_prices(self.graph, self.scales**2, self.ties, everybody)
            return few_kinds(np.maximum(1.0, (1 - _OUTWARD) / np.sqrt(prices)), _OUTWARD)
        found = np.ones((len(everybody), max(self.degrees)))
        for agent, degree in enumerate(self.degrees):
            found[agent, :degree] = [self._curve(agent, q).value for q in range(degree)]
        return few_kinds(found, _OUTWARD)

    def _component(self, agent: int) -> _Component:
        name = int(self.graph.component_of[agent])
        if name not in self._components:
            self._components[name] = _Component(self, name)
        return self._components[name]


class _Component:
    """What all agents that secrets connect have in common."""

    def __init__(self, search: Search, name: int) -> None:
        self._search, self._name = search, name
        self.members = np.flatnonzero(search.graph.component_of == name)

    @cached_property
    def variances(self) -> np.ndarray:
        """Of its agents' noise given all others', where nobody colludes."""
        return all_variances(*self._search.network(self.members))

    @cached_property
    def gap(self) -> float:
        return self._search.gap(self._name)


def _affordable(agents: int, colluders: int) -> bool:
    """Whether all coalitions of up to so many others can be tried: once a bound is needed, larger
    coalitions have one too, so that prices never fall.
    """
    return all(
        (found := math.comb(agents - 1, q)) <= _COALITIONS and found * (agents - q) ** 3 <= _COST
        for q in range(colluders + 1)
    )


def _gain(price: float, how: str) -> Gain:
    return Gain(max(1.0, (1 - _OUTWARD) / math.sqrt(price)), how)
