"""Random graphs in which every agent has the same number of neighbours, for a million agents too.

The draw is that of networkx (`random_regular_graph`: Steger and Wormald 1999), number by number, so
that a seed means the same graph whichever of the two drew it. Every agent is written down as many
times as it shall have neighbours, the list is shuffled, and places 2k and 2k + 1 become a pair. An
agent paired with itself, or two that are a pair already, are put back; what was put back is
shuffled and paired again, until nothing is left. Where what is left cannot become pairs, all begins
anew. Only a handful of agents is ever put back in a large graph: the first pairing is done in
arrays, the others one by one.
"""

from __future__ import annotations

import random
from collections import Counter

import networkx as nx
import numpy as np

from hearsay import _validate as require

# Up to so many agents, and with more neighbours each than that, networkx draws: much is put back.
_SMALL, _MANY = 2000, 32


@require.plain_arguments
def regular_pairs(agents: int, degree: int, seed: int) -> np.ndarray:
    """(pair, 2), the smaller agent first, in increasing order."""
    if agents <= _SMALL or degree > _MANY:
        drawn = nx.random_regular_graph(degree, agents, seed=seed).edges
        return _decoded(np.sort(_coded(np.array(list(drawn)), agents)), agents)
    coins = random.Random(seed)
    while True:
        found = _drawn(agents, degree, coins)
        if found is not None:
            return _decoded(np.sort(found), agents)


def _drawn(agents: int, degree: int, coins: random.Random) -> np.ndarray | None:
    """All pairs as numbers; None where it came to nothing."""
    places = list(range(agents)) * degree
    coins.shuffle(places)
    pairs = np.sort(np.array(places, np.int64).reshape(-1, 2), axis=1)
    codes = _coded(pairs, agents)
    known, first = np.unique(codes, return_index=True)
    kept = np.zeros(len(codes), bool)
    kept[first] = True
    kept &= pairs[:, 0] != pairs[:, 1]
    more: set[int] = set()

    def together(one: int, other: int) -> bool:
        code = min(one, other) * agents + max(one, other)
        place = int(np.searchsorted(known, code))
        return code in more or (place < len(known) and known[place] == code)

    left = pairs[~kept].ravel().tolist()
    while left:
        # In the order in which they were first put back.
        nodes = Counter(left)
        if all(together(a, b) for a in nodes for b in nodes if a < b):
            return None
        places = list(nodes.elements())
        coins.shuffle(places)
        left = []
        for one, other in zip(places[::2], places[1::2], strict=True):
            if one == other or together(one, other):
                left += sorted((one, other))
            else:
                more.add(min(one, other) * agents + max(one, other))
    return np.append(codes[kept], np.array(sorted(more), np.int64))


def _coded(pairs: np.ndarray, agents: int) -> np.ndarray:
    pairs = np.sort(pairs.astype(np.int64), axis=1)
    return pairs[:, 0] * agents + pairs[:, 1]


def _decoded(codes: np.ndarray, agents: int) -> np.ndarray:
    return np.stack(np.divmod(codes, agents), axis=1)
