"""How large a number can become that agents pass on (`Algorithm.relays`).

Relays are linear: after t of them agents hold v(t) = P_t v(0), with

    P_0 = I,    P_(t+1) = first_t A P_t - second_t P_(t-1)

where A is the channel's matrix, own weights on its diagonal. So if no message is beyond H in any
coordinate, no relay is beyond H max_t |P_t|, with |P| the largest sum of absolute values in a row.
Plain averages have |P_t| = 1. Chebyshev's weights have negative entries in P_t: it is a polynomial
of a symmetric A with all eigenvalues in [-1, 1], so that |P_t| <= sqrt(agents) whatever t, where
the recursion taken by itself, |P_(t+1)| <= first_t |P_t| + second_t |P_(t-1)|, would grow
exponentially. The matrices themselves are what is taken here: 1 on a ring of five, 1.43 on a
ring of sixteen.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import sparse

from hearsay.graphs.channels import channel
from hearsay.graphs.graph import Graph

# Sums of weights that are 1 but for rounding count as 1.
_DIGITS = 9


def growth(graph: Graph, channels: Iterable[str], relays: np.ndarray) -> float:
    """max_t |P_t| over the channels, at least 1: the factor by which what is passed on can exceed
    the messages that it was made of.

    Args:
      graph: every message is heard.
      channels: the names of those that message fields travel over.
      relays: (phase, 2), the weights of each phase.

    Example:
      >>> import hearsay as hs
      >>> ring, names = hs.graphs.ring(16), {"mixing"}
      >>> growth(ring, names, hs.gradient_perturbation(averaging=4).relays(ring))
      1.0
      >>> weights = hs.gradient_perturbation(averaging=4, chebyshev=True).relays(ring)
      >>> 1 < growth(ring, names, weights) < 4
      True
    """
    if not len(relays):
        return 1.0
    return max(1.0, *(_growth(_matrix(graph, name), relays) for name in set(channels)))


def _growth(matrix: sparse.csr_array, relays: np.ndarray) -> float:
    one = float(abs(matrix).sum(axis=1).max())
    if not relays[:, 1].any():
        return float(np.round(np.cumprod(np.abs(relays[:, 0]) * one).max(), _DIGITS))
    before, now, found = np.eye(matrix.shape[0]), np.eye(matrix.shape[0]), 1.0
    for first, second in relays:
        before, now = now, first * (matrix @ now) - second * before
        found = max(found, float(np.abs(now).sum(axis=1).max()))
    return float(np.round(found, _DIGITS))


def _matrix(graph: Graph, name: str) -> sparse.csr_array:
    rows = [channel(name).row(graph, agent) for agent in range(graph.agents)]
    own = [channel(name).own(graph, agent, sum(row.values())) for agent, row in enumerate(rows)]
    at = [(i, j, weight) for i, row in enumerate(rows) for j, weight in row.items()]
    i, j, weights = zip(*at, strict=True) if at else ((), (), ())
    shape = (graph.agents, graph.agents)
    others = sparse.csr_array((np.array(weights, float), (i, j)), shape=shape)
    return sparse.csr_array(others + sparse.diags_array(own))
