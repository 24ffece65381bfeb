"""What is left of an agent's noise once a coalition has taken out what it knows: exactly, and
bounded from below where there are too many coalitions to try.

A network of honest agents: `own[j]` = s_j^2, `ties[j, k]` = c_jk^2, S = diag(own) + Laplacian(ties)
the covariance of their noises. As an electrical network (own: conductances to the ground, ties:
between agents) 1 / [S^-1]_ii is the conductance between agent i and the ground: more agents and
more conductance anywhere never lower it (Rayleigh; S grows in the Loewner order, its inverse
falls).

**Elimination.** The Schur complement of agent k is the same kind of matrix: with
D = own_k + sum_j ties_kj, ties_ij grows by ties_ik ties_kj / D and own_i by ties_ik own_k / D.
Nothing is ever subtracted, so the relative error stays near rounding however large c / s is, where
a Cholesky factorization of S would lose s^2 beside c^2.

**Branches.** Take a tree of secrets from agent i and forget all others. Each of its branches ends
in one neighbour j of i and has a conductance g_j, the series of c_ij^2 and of what lies behind j.
An agent of a coalition lies in one branch and takes out at most all of it. So against q colluders
tau_i^2 >= s_i^2 + sum of g_j without the q largest.

**Spectral gap.** In units of the own scales S is I + N, N = diag(1/s) L diag(1/s), whose kernel on
a connected graph is the vector s: s_i^2 [S_H^-1]_ii <= a + (1 - a) / (1 + l2(N_H)) with a = s_i^2 /
sum over H of s_j^2. Leaving out agent v lowers l2 by at most max_j c_vj^2 / s_j^2: take the second
eigenvector of the network without v, orthogonal to the constant in the weights s_j^2, and put 0 at
v; its quotient grows by (sum_j c_vj^2 x_j^2) / (sum_j s_j^2 x_j^2). (Fiedler 1973 for equal
weights.) Where what is left of l2 is positive, the honest agents are connected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, islice

import numpy as np
from scipy.linalg import solve_triangular

from hearsay.privacy.secrets_graph import Level, eigenvalues, graph_of

# Numbers in the arrays of one batch of coalitions.
_BATCH = 2_000_000


def last_variance(own: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """The variance of the last agent's noise given all others': own (..., agents), ties (...,
    agents, agents), whose diagonal is not read.
    """
    own, ties = own.copy(), ties.copy()
    for k in range(own.shape[-1] - 1):
        row = ties[..., k, k + 1 :]
        share = row / (own[..., k] + row.sum(-1))[..., None]
        ties[..., k + 1 :, k + 1 :] += share[..., :, None] * row[..., None, :]
        own[..., k + 1 :] += share * own[..., k, None]
    return own[..., -1]


def all_variances(own: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """The variance of every agent's noise given all others'.

    S = L D L' by elimination, L with nothing positive below its diagonal of ones: its inverse has
    no negative entry, so that no digit is lost here either.
    """
    own, ties = own.copy(), ties.copy()
    lower, pivots = np.eye(len(own)), np.empty(len(own))
    for k in range(len(own)):
        row = ties[k, k + 1 :]
        pivots[k] = own[k] + row.sum()
        share = row / pivots[k]
        lower[k + 1 :, k] = -share
        ties[k + 1 :, k + 1 :] += share[:, None] * row[None, :]
        own[k + 1 :] += share * own[k]
    inverse = solve_triangular(lower, np.eye(len(own)), lower=True, unit_diagonal=True)
    return 1 / (inverse**2 / pivots[:, None]).sum(0)


def worst_variance(own: np.ndarray, ties: np.ndarray, agent: int, colluders: int) -> float:
    """The least variance that a coalition of that many others leaves to the agent: all of them are
    tried.
    """
    others = [j for j in range(len(own)) if j != agent]
    honest = len(own) - colluders
    coalitions = combinations(range(len(others)), colluders)
    least = math.inf
    for batch in _batches(coalitions, max(1, _BATCH // honest**2)):
        left = np.ones((len(batch), len(others)), bool)
        left[np.arange(len(batch))[:, None], np.array(batch, np.int64)] = False
        chosen = np.empty((len(batch), honest), np.int64)
        chosen[:, :-1] = np.array(others)[np.nonzero(left)[1].reshape(len(batch), honest - 1)]
        chosen[:, -1] = agent
        inside = ties[chosen[:, :, None], chosen[:, None, :]]
        least = min(least, float(last_variance(own[chosen], inside).min()))
    return least


def _batches(found: Iterator[tuple[int, ...]], size: int) -> Iterator[list[tuple[int, ...]]]:
    while batch := list(islice(found, size)):
        yield batch


def complete_prices(ratio: float, scales: np.ndarray, own: float) -> np.ndarray:
    """s_i^2 [S_H^-1]_ii on a complete graph with c_ij^2 = ratio^2 s_i s_j, worst coalition of
    q = 0 .. all others: in closed form.

    With T the sum of the honest scales S_H = diag(s_j (s_j + ratio^2 T)) - ratio^2 s s', so
    (Sherman and Morrison) the price is p_i + ratio^2 T p_i^2 / sum_j s_j p_j with
    p_j = s_j / (s_j + ratio^2 T). Every entry of diag(s^2) and every c^2 grows with s_j: the price
    falls in each of them, and without agent j it is the limit s_j -> 0. Whichever q others are
    taken out, the scales left are at least those that are left, in order, when the q largest are:
    that coalition is the worst.

    Args:
      ratio: c_ij / sqrt(s_i s_j).
      scales: of the other agents.
      own: s_i.
    """
    rising = np.sort(scales)
    total = own + np.concatenate([[0.0], np.cumsum(rising)])
    part = own / (own + ratio**2 * total)
    # Row k: the k smallest others are honest.
    each = np.tril(rising**2 / (rising + ratio**2 * total[:, None]), -1)
    prices = part + ratio**2 * total * part**2 / (own * part + each.sum(1))
    return prices[::-1]


def branch_prices(
    tree: Sequence[Level], own: np.ndarray, tie: np.ndarray, agent: int
) -> np.ndarray:
    """At most these are the prices against q = 0 .. degree colluders, by the branches of the tree.

    Args:
      tree: levels of a tree of secrets from the agent, the nearest first.
      own: s_j^2 of all agents.
      tie: c^2 of all pairs.
      agent: whose price it is.
    """
    behind = own.copy()
    for level in reversed(tree[1:]):
        series = 1 / (1 / tie[level.pairs] + 1 / behind[level.agents])
        behind += np.bincount(level.parents, series, len(own))
    first = tree[0]
    branches = np.sort(1 / (1 / tie[first.pairs] + 1 / behind[first.agents]))
    kept = np.concatenate([[0.0], np.cumsum(branches)])[::-1]
    return own[agent] / (own[agent] + kept)


def gap_prices(gap: float, falls: np.ndarray, own: np.ndarray, agent: int) -> np.ndarray:
    """At most these are the prices against q = 0 .. all others, by the spectral gap.

    Args:
      gap: l2(N) of the whole component, not above the truth.
      falls: how far each agent's leaving lowers it at most.
      own: s_j^2 of the component's agents.
      agent: whose price it is, by its place in the component.
    """
    fall = np.sort(np.delete(falls, agent))[::-1]
    left = np.maximum(gap - np.concatenate([[0.0], np.cumsum(fall)]), 0.0)
    honest = own[agent] + np.concatenate([[0.0], np.cumsum(np.sort(np.delete(own, agent)))])[::-1]
    part = own[agent] / honest
    return np.where(left > 0, part + (1 - part) / (1 + left), 1.0)


@lru_cache(maxsize=32)
def spectral_gap(
    agents: int,
    pairs: tuple[tuple[int, int], ...],
    ratios: tuple[float, ...],
    scales: tuple[float, ...],
    component: int,
) -> float:
    """l2(N) of a component, less what the eigenvalues may be wrong by."""
    graph = graph_of(agents, pairs)
    members = np.flatnonzero(graph.component_of == component)
    place = np.full(agents, -1)
    place[members] = np.arange(len(members))
    inside = place[graph.ends[:, 0]] >= 0
    one, two = place[graph.ends[inside]].T
    scale = np.broadcast_to(np.array(scales), agents)[members]
    # N_ij = -c_ij^2 / (s_i s_j) = -ratio_ij^2, N_ii = sum_j c_ij^2 / s_i^2.
    ties = np.zeros((len(members), len(members)))
    ties[one, two] = ties[two, one] = np.broadcast_to(np.array(ratios), len(inside))[inside] ** 2
    values = eigenvalues(np.diag(ties @ scale / scale) - ties)
    return max(0.0, float(values[1] - 1e-10 * values[-1]))
