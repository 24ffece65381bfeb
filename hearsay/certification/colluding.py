"""What budgets are where agents share noise: a curve over the number of colluders, and the least
noise that meets a target at one of its points (privacy/coalitions.py has the mathematics).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.mechanisms.shared_rounding import totals_bits
from hearsay.privacy.account import Assumption
from hearsay.privacy.certificate import Colluding
from hearsay.privacy.coalitions import Shared
from hearsay.privacy.description import Description, numbers

# Curves of so many other agents have all points; of more, some.
_EVERY = 12
# How often the agents' noise is set anew, each by what it lacks, and how small it may get in
# comparison with what it would need alone, as a part of what the most needy one has.
_ROUNDS, _LEAST = 30, 0.25
# Of a factor in the law of noise: what 2^-bits adds to a delta is then below 2^-1000, whatever the
# epsilon and however many numbers are sent.
_NEGLIGIBLE = 4096


def curve(
    algorithm: Algorithm,
    graph: Graph,
    agent: int,
    description: Description,
    horizon: float,
    delta: float | None,
) -> tuple[Colluding, ...]:
    """epsilon against none of the others to all of them; () where agents share nothing."""
    shared, found = algorithm.shared(graph.agents), list[Colluding]()
    if shared is None or algorithm.secrets is None:
        return ()
    planned = algorithm.secrets.colluders
    for colluders in coalition_sizes(shared.agents - 1, planned):
        value, how = shared.gain(agent, colluders)
        cost = numbers(description.against(colluders, value), horizon, delta).epsilon
        found.append(Colluding(colluders, cost, how))
    return _ordered(found, planned)


def _ordered(points: list[Colluding], planned: int) -> tuple[Colluding, ...]:
    """Without the falls that rounding may cause between gains which are almost the same: what holds
    against more colluders holds against fewer, and a larger epsilon is true. The planned point,
    which is the budget, stays as it is.
    """
    place = next(i for i, point in enumerate(points) if point.colluders == planned)
    for i in reversed(range(place)):
        points[i] = replace(points[i], epsilon=min(points[i].epsilon, points[i + 1].epsilon))
    for i in range(place + 1, len(points)):
        points[i] = replace(points[i], epsilon=max(points[i].epsilon, points[i - 1].epsilon))
    return tuple(points)


def coalition_sizes(others: int, planned: int) -> list[int]:
    """The numbers of colluders that a curve has a point for: all, or some where there are many."""
    if others <= _EVERY:
        return list(range(others + 1))
    some = {0, 1, 2, 3, planned, others // 4, others // 2, 3 * others // 4, others - 1, others}
    return sorted(some)


def on_a_lattice(algorithm: Algorithm, agents: int) -> tuple[Assumption, ...]:
    """What a deployed budget rests on beside that, evaluated for who shares what; () where agents
    share nothing.
    """
    shared = algorithm.shared(agents)
    if shared is None:
        return ()
    ends = shared.ends()
    bits = totals_bits(len(ends), int(np.bincount(ends.ravel()).max(initial=0)))
    if not bits > _NEGLIGIBLE:
        require.fail("secrets", "of fewer pairs to be deployed", len(ends))
    size = "0" if math.isinf(bits) else f"2^-(10^{math.floor(math.log10(bits))})"
    return (
        Assumption(
            "derived",
            "on the lattice that all agents share, their noise has the law of its covariance in"
            f" the reals up to a factor 1 +- {size}: it costs there what it costs in the reals, and"
            " the rounding of one agent's own messages",
        ),
    )


def least_noise(shared: Shared, colluders: int, needed: Sequence[float]) -> list[float]:
    """By how much each agent's noise must be multiplied so that nobody has too little.

    Everybody's noise protects everybody, so that the factors hang together: each is moved by what
    its agent lacks or has too much of, and all of them in the end by what the neediest still lacks.
    Of the factors met on the way, those with the least noise in all are taken.

    Args:
      shared: who shares what, for the noise that is multiplied.
      colluders: against how many.
      needed: the factors of agents that share nothing.

    Example:
      >>> [round(f, 4) for f in least_noise(Shared(5, (10**0.5,)), 1, [2.0] * 5)]
      [1.0359, 1.0359, 1.0359, 1.0359, 1.0359]
    """
    agents = shared.agents
    scales = np.broadcast_to(np.asarray(shared.scales), (agents,))
    # What follows is about the scales themselves: s_i times its factor.
    alone = np.asarray(needed, dtype=float) * scales
    now, best = alone.copy(), None
    # Of very many agents it takes long to find what noise is worth, and is done once.
    for _ in range(1 if shared.nearby else _ROUNDS):
        relative = tuple(now / now[0]) if len(set(now)) > 1 else (1.0,)
        sharing = replace(shared, scales=relative)
        gains = sharing.gains(colluders)
        lacking = alone / (gains * now)
        enough = now * lacking.max()
        if best is None or np.sum(enough**2) < np.sum(best**2) * (1 - 1e-12):
            best = enough
        if lacking.max() <= lacking.min() * (1 + 1e-9):
            break
        now = enough * np.sqrt(lacking / lacking.max())
        now = np.maximum(now, _LEAST * alone * (now / alone).max())
    assert best is not None
    return [float(factor) if math.isfinite(factor) else math.inf for factor in best / scales]
