"""Who hears whom: graphs, their builders, and the channels that messages travel over.

A graph that changes from round to round is given as all of its links, and `Faults(plan=...)` says
which of them deliver (docs/faults.md).
"""

from hearsay.graphs.builders import (
    BUILDERS,
    Rule,
    complete,
    directed_ring,
    edges,
    exponential,
    five_agents,
    from_networkx,
    grid,
    random,
    random_digraph,
    ring,
    star,
)
from hearsay.graphs.graph import Graph, from_mixing, from_weights, pair

__all__ = [
    "BUILDERS",
    "Graph",
    "Rule",
    "complete",
    "directed_ring",
    "edges",
    "exponential",
    "five_agents",
    "from_mixing",
    "from_networkx",
    "from_weights",
    "grid",
    "pair",
    "random",
    "random_digraph",
    "ring",
    "star",
]
