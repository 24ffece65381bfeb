"""Bounds on very large graphs of secrets: every agent by a tree of the agents nearest to it.

The argument is that of the branches (coalition_prices.py): forget all secrets but those of a tree
from the agent, and a coalition of q takes out at most its q best branches. It holds for every tree,
so for one that ends after a few hundred agents: to cut a tree off forgets more secrets and agents,
and more of either never lowers the variance that is left. No spectral gap has to be estimated, and
on an expander with shared noise of a few times the own the agents farther away add little: three
steps from an agent of a 6-regular graph, at ratio 2, are within 8 % of the endless tree.

Trees of many agents are grown at once, level by level: an entry is (whose tree, agent, secret with
its parent, parent's entry).
"""

from __future__ import annotations

import numpy as np

from hearsay.privacy.secrets_graph import SecretsGraph

# Agents that a tree may have, on average, before its last level is left away; entries of all trees
# that are grown at once; numbers of colluders that are told apart.
_TREE, _AT_ONCE, WIDTH = 512, 1_000_000, 64
# Gains are rounded down to multiples of the first of these with which agents are of few kinds.
_STEPS, _KINDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0), 64


def ball_prices(
    graph: SecretsGraph, own: np.ndarray, tie: np.ndarray, roots: np.ndarray
) -> np.ndarray:
    """At most these are the prices of some agents against q = 0 .. WIDTH - 1 colluders; 1 from the
    agent's degree on.

    Args:
      graph: who shares a secret.
      own: s_j^2 of all agents.
      tie: c^2 of all pairs.
      roots: the agents.
    """
    starts = graph.rows.indptr
    size = int(np.clip(_AT_ONCE // min(_TREE, graph.agents), 1, len(roots) or 1))
    found = np.ones((len(roots), WIDTH))
    for first in range(0, len(roots), size):
        some = roots[first : first + size]
        branches = _branches(graph, own, tie, some)
        many = starts[some + 1] - starts[some]
        kept = _without_largest(branches, many)
        found[first : first + size] = own[some, None] / (own[some, None] + kept)
    return found


def _branches(
    graph: SecretsGraph, own: np.ndarray, tie: np.ndarray, roots: np.ndarray
) -> np.ndarray:
    """The conductances of all branches at the roots, root by root."""
    trees = np.arange(len(roots))
    levels = [_neighbours(graph, trees, roots)]
    seen = np.sort(np.concatenate([trees * graph.agents + roots, levels[0][0]]))
    while len(levels[-1][0]):
        trees, agents = np.divmod(levels[-1][0], graph.agents)
        # Everybody's parent is among its neighbours, so no more than the others are new: where they
        # are clearly too many, they are not even listed (a hub's, for each of its leaves).
        if int(graph.degrees[agents].sum()) - len(agents) > 1.25 * _TREE * len(roots):
            break
        children = _new(_neighbours(graph, trees, agents), seen)
        if len(seen) + len(children[0]) > _TREE * len(roots):
            break
        seen = np.sort(np.concatenate([seen, children[0]]))
        levels.append(children)
    behind = own[levels[-1][0] % graph.agents]
    for level, above in zip(levels[:0:-1], levels[-2::-1], strict=True):
        series = 1 / (1 / tie[level[1]] + 1 / behind)
        behind = own[above[0] % graph.agents] + np.bincount(level[2], series, len(above[0]))
    return 1 / (1 / tie[levels[0][1]] + 1 / behind)


# Of the entries of a level: tree * agents + agent, the secret with the parent, the parent's entry.
_Level = tuple[np.ndarray, np.ndarray, np.ndarray]


def _neighbours(graph: SecretsGraph, trees: np.ndarray, agents: np.ndarray) -> _Level:
    """All neighbours of these agents, each in the tree of its agent."""
    rows = graph.rows
    many = rows.indptr[agents + 1] - rows.indptr[agents]
    parent = np.repeat(np.arange(len(agents)), many)
    begun = np.repeat(rows.indptr[agents] - (np.cumsum(many) - many), many)
    place = begun + np.arange(len(parent))
    keys = trees[parent].astype(np.int64) * graph.agents + rows.indices[place]
    return keys, rows.data[place] - 1, parent


def _new(level: _Level, seen: np.ndarray) -> _Level:
    """Those that are not yet in their tree, each once."""
    keys, pairs, parents = level
    # Whoever could join several parents joins one of them by chance, so that no branch gets all.
    order = _shuffled(len(keys))
    unique, first = np.unique(keys[order], return_index=True)
    place = np.searchsorted(seen, unique)
    fresh = seen[np.minimum(place, len(seen) - 1)] != unique
    chosen = order[first[fresh]]
    return keys[chosen], pairs[chosen], parents[chosen]


def _shuffled(many: int) -> np.ndarray:
    """Always the same order, with every release of NumPy: certificates are computed again
    elsewhere, and its random numbers may change.
    """
    mixed = np.arange(1, many + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.argsort(mixed ^ (mixed >> np.uint64(27)), kind="stable")


def _without_largest(values: np.ndarray, many: np.ndarray) -> np.ndarray:
    """(row, q): the sums of a row's values without its q largest, for q = 0 .. WIDTH - 1.

    Args:
      values: row by row.
      many: how many each row has.
    """
    row = np.repeat(np.arange(len(many)), many)
    rising = np.lexsort((values, row))
    # Row by row from 0: a running sum over all rows would lose digits of small ones.
    starts = np.cumsum(many) - many
    left = np.zeros((len(many), WIDTH))
    place = many[row] - 1 - (np.arange(len(row)) - starts[row])
    ordered = values[rising]
    for q in range(WIDTH):
        here = place >= q
        if not here.any():
            break
        left[:, q] = np.bincount(row[here], ordered[here], len(many))
    return left


def few_kinds(gains: np.ndarray, outward: float) -> np.ndarray:
    """Gains rounded down so far that there are few different rows: agents of a row are certified
    together, and a certificate may take a second for each kind.

    Args:
      gains: (agent, q), none above the truth.
      outward: by what what is rounded is lowered, for rounding errors.
    """
    for step in _STEPS:
        found = np.maximum(1.0, np.floor(gains / step) * step * (1 - outward))
        if len(np.unique(found, axis=0)) <= _KINDS:
            break
    return found
