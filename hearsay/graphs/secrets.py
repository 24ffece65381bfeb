"""`Secrets`: noise that pairs of agents share, as an option of every Gaussian algorithm.

In every round agent i adds, beside its own noise of standard deviation s_i, for every agent j that
it shares a secret with, + v_ij or - v_ij, normal of standard deviation c_ij and drawn from what the
two of them know and nobody else does: the one adds what the other subtracts. In the sum over all
agents it cancels; in a single message it hides as noise does, from everybody who is not let in on
the secret. What it is worth against a coalition is in privacy/coalitions.py.

Only Gaussian noise: the sum of an agent's own and shared noise is Gaussian again, so that
every proof for one agent alone holds as it stands, with more noise. Sums of Laplace noise are no
Laplace noise, and a pure epsilon would not get smaller: what the shared noise hides, it hides up to
a delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay import _validate as require
from hearsay.graphs import builders
from hearsay.graphs.graph import Graph
from hearsay.graphs.pairs import edges

if TYPE_CHECKING:
    from hearsay.privacy.coalitions import Shared

GRAPHS = ("complete", "random")
# More agents than that share secrets with some of the others only.
_COMPLETE = 300
# Up to so many agents it is known exactly how many can cut a secrets graph.
_EXACT = 128
# Of a random secrets graph, unless given: so many times one more than the colluders.
_DEGREES, _LEAST_DEGREE = 4, 20


@require.known_arguments
@dataclass(frozen=True)
class Secrets:
    """Who shares noise with whom, how loud it is, and how many colluders it is planned for.

    Args:
      colluders: how many of the other agents may pool what they know: budgets are stated,
        calibrated and kept at that number (`certificate.budgets[i].curve` has all others).
      ratio: the standard deviation of what a pair shares over that of its agents' own noise (their
        geometric mean): one number, or one per pair, in the order of `graphs.pairs.edges` or of the
        pairs given. Unless given, the smallest with which an agent is within 10 % of what more
        could do.
      graph: who shares a secret with whom: "complete" (the default up to 300 agents), "random" (the
        default beyond), a graph, whose weights do not matter, or pairs of agents. Messages may
        travel over another.
      degree: how many agents each shares a secret with in a random graph; unless given, four for
        every colluder, and at least 20.
      seed: of the random graph, which is public.

    Example:
      >>> import hearsay as hs
      >>> hs.Secrets(colluders=1).shared(5).ratios
      (1.83,)
    """

    colluders: int
    ratio: float | tuple[float, ...] | None = None
    graph: str | Graph | tuple[tuple[int, int], ...] | None = None
    degree: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require.settle(
            self,
            colluders=require.natural,
            ratio=require.optional(_ratio),
            degree=require.optional(require.count),
            seed=require.seed,
        )
        if isinstance(self.graph, str):
            require.one_of("graph", self.graph, GRAPHS)
        elif isinstance(self.graph, Graph):
            self._settle_pairs(edges(self.graph))
        elif require.is_sequence(self.graph):
            self._settle_pairs(self.graph)
        elif self.graph is not None:
            require.fail("graph", "complete, random, a graph, or pairs of agents", self.graph)
        if self.degree is not None and not (self.graph is None or self.graph == "random"):
            require.fail("degree", "left out: only random graphs have one", self.degree)

    def _settle_pairs(self, given: Any) -> None:
        """In order, with the ratios that belong to them."""
        found = []
        for pair in given:
            if not require.is_sequence(pair) or len(pair) != 2:
                require.fail("graph", "complete, random, a graph, or pairs of agents", pair)
            one, two = sorted(require.natural("graph", end) for end in pair)
            if one == two:
                require.fail("graph", "pairs of different agents", (one, two))
            found.append((one, two))
        if not found or len(set(found)) < len(found):
            require.fail("graph", "pairs of agents, each there once", found[:5])
        order = sorted(range(len(found)), key=found.__getitem__)
        object.__setattr__(self, "graph", tuple(found[place] for place in order))
        if isinstance(self.ratio, tuple):
            if len(self.ratio) != len(found):
                rule = f"one number, or one for each of the {len(found)} pairs"
                require.fail("ratio", rule, self.ratio)
            object.__setattr__(self, "ratio", tuple(self.ratio[place] for place in order))

    def __str__(self) -> str:
        """As certificates and reports say it."""
        what = self.graph if isinstance(self.graph, str) else "given" if self.graph else "usual"
        loud = "planned" if self.ratio is None else "given"
        many = f"{self.colluders} colluder{'' if self.colluders == 1 else 's'}"
        return f"planned for {many} ({what} graph, {loud} ratio)"

    def shared(self, agents: int, scales: tuple[float, ...] = (1.0,)) -> Shared:
        """Who shares what in a network of so many agents.

        Args:
          agents: how many there are.
          scales: of their own noise, up to a common factor: one for all, or one each.
        """
        return _shared(self, require.count("agents", agents), scales)

    def facing(self, colluders: int, agents: int) -> Secrets:
        """The same noise, with budgets stated for another number of colluders."""
        ratios = self.shared(agents).ratios
        ratio = ratios[0] if len(ratios) == 1 else ratios
        degree = self._degree() if self._kind(agents) == "random" else None
        return replace(self, colluders=colluders, ratio=ratio, degree=degree)

    def _kind(self, agents: int) -> str:
        if self.graph is None:
            return "complete" if agents <= _COMPLETE and self.degree is None else "random"
        return self.graph if isinstance(self.graph, str) else "given"

    def _degree(self) -> int:
        return self.degree or max(_LEAST_DEGREE, _DEGREES * (self.colluders + 1))

    def _pairs(self, agents: int) -> tuple[tuple[int, int], ...]:
        """() where everybody shares with everybody."""
        kind, degree = self._kind(agents), self._degree()
        if kind == "complete" or (kind == "random" and degree >= agents - 1):
            return ()
        if kind == "random":
            # A regular graph needs an even number of ends.
            degree += degree * agents % 2
            found = edges(builders.random(agents, degree=degree, seed=self.seed))
            return tuple((int(i), int(j)) for i, j in found)
        assert isinstance(self.graph, tuple)
        last = max(two for _, two in self.graph)
        if last >= agents:
            require.fail("graph", f"pairs of agents 0 to {agents - 1}", last)
        return self.graph

    def check(self, agents: int, names: Sequence[str] = ()) -> None:
        """Raise ValueError for secrets that would protect nobody.

        Args:
          agents: how many there are.
          names: of all of them, where they have any.
        """
        if agents < 2:
            require.fail("secrets", "left out for a single agent: there is nobody to share", self)
        if self.colluders >= agents - 1:
            require.fail(
                "colluders",
                f"below {agents - 1}: if all other agents collude, shared noise protects nobody"
                " (leave secrets out, the certificate then holds against all of them)",
                self.colluders,
            )
        # Whatever its noise: no ratio can be planned for a graph that protects nobody.
        shared = replace(self, ratio=self.ratio or 1.0).shared(agents)
        if alone := shared.alone():
            raise ValueError(
                f"secrets must join every agent to others, got {_some(alone, names)} without any:"
                " shared noise does nothing for them"
            )
        parts = shared.components()
        if len(parts) > 1:
            small = min(parts, key=len)
            raise ValueError(
                f"the secrets graph must be connected, got {len(parts)} parts:"
                f" {_some(small, names)} share{'' if len(small) > 1 else 's'} nothing with the"
                " others, so that their noise cancels among themselves only"
            )
        # Beyond that only lower bounds of it are quick to find, which refuse too much; what a cut
        # would cost is in the gains all the same.
        degrees = np.bincount(shared.ends().ravel(), minlength=agents)
        cut = shared.connectivity() if agents <= _EXACT else int(degrees.min())
        if cut <= self.colluders:
            raise ValueError(
                "the secrets graph must stay connected without any"
                f" {self.colluders} agents, got one that {cut} can cut: against"
                f" {self.colluders} colluders some agents would have their own noise only. More"
                " secrets for each (graph = complete, or a larger degree), or fewer colluders"
            )


@lru_cache(maxsize=256)
def _shared(secrets: Secrets, agents: int, scales: tuple[float, ...]) -> Shared:
    from hearsay.privacy.coalitions import Shared, planned_ratio

    pairs = secrets._pairs(agents)
    ratio: Any = secrets.ratio
    if ratio is None:
        ratio = planned_ratio(agents, secrets.colluders, pairs)
    ratios = ratio if isinstance(ratio, tuple) else (ratio,)
    return Shared(agents, ratios, pairs, scales)


def _ratio(name: str, value: Any) -> float | tuple[float, ...]:
    if isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 1:
        return tuple(require.each(require.positive)(name, value))
    return require.positive(name, value)


def _some(agents: Any, names: Sequence[str] = ()) -> str:
    found = sorted(int(agent) for agent in agents)
    text = ", ".join(names[agent] if names else str(agent) for agent in found[:10])
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    return f"{'agent' if len(found) == 1 else 'agents'} {text}{more}"
