"""Messages whose costs add up to a pure epsilon, at a delta: what they cost together, and the noise
that meets (epsilon, delta).

Over an infinite horizon the messages from N on cost at most `tail` of pure epsilon together (the
certified total less what the first N cost), and composing an (epsilon, delta) mechanism with a pure
one adds their epsilons and leaves delta as it is.

The noise is found by a search. The costs of all messages fall like 1 / factor, so the table of them
is made once. More noise never costs more, but the search does not rest on that: what it returns
has been certified itself, and is never above the factor that pure epsilon asks for, which needs no
search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hearsay.privacy.account import Account, Bound

# How close to the target the search comes, from below, and with how many compositions at most.
_CLOSE, _TRIES = 2e-5, 16


@lru_cache(maxsize=1024)
def epsilon(account: Account, found: Bound, horizon: float, delta: float) -> float | None:
    """epsilon at delta, where the mechanism has one beside its pure epsilon."""
    if not account.mechanism.composes or not math.isfinite(found.value):
        return None
    each, tail = _messages(account, found, horizon)
    return found.value if each is None else _composed(account, found.value, each, tail, delta)


@lru_cache(maxsize=1024)
def factor(account: Account, target: float, horizon: float, delta: float, most: float) -> float:
    """By how much the scale of all noise must grow for the messages to cost at most `target` at
    `delta`.

    Args:
      most: the same for pure epsilon.
    """
    found = account.cost(horizon, delta)
    each, tail = _messages(account, found, horizon)
    if each is None:
        return most
    tried = _search(
        lambda f: _composed(account, found.value / f, each / f, tail / f, delta), target, most
    )
    # The account with that noise has other last digits.
    for attempt in range(12):
        got = account.scaled(tried).certified(horizon, delta).epsilon_at_delta
        if got is not None and got <= target:
            return min(tried, most)
        tried *= 1 + 1e-9 * 4**attempt
    return most


def _search(cost: Callable[[float], float], target: float, most: float) -> float:
    """The smallest factor found whose cost is at most `target`.

    Regula falsi in logarithms, where costs are nearly straight lines, with the ends' weights halved
    in turn (Illinois).
    """

    def excess(log: float) -> float:
        # At a large delta the cost may be 0: what is far from the target counts as not too far.
        return math.log(max(cost(math.exp(log)) / target, 0.2))

    high = math.log(most)
    above = excess(high)
    low, below = high + max(above, math.log(1 / 8)), 1.0
    for _ in range(_TRIES):
        below = excess(low)
        if below > 0:
            break
        high, above = low, below
        low -= max(-above, 0.05)
    last, left, right = 0, below, above
    for _ in range(_TRIES):
        if below <= 0 or above > 0 or above >= math.log1p(-_CLOSE):
            break
        # Not closer to an end than a hundredth: both must move.
        share = min(max(left / (left - right), 0.01), 0.99)
        middle = low + (high - low) * share
        value = excess(middle)
        if value > 0:
            low, below, left = middle, value, value
            right = right / 2 if last > 0 else right
            last = 1
        else:
            high, above, right = middle, value, value
            left = left / 2 if last < 0 else left
            last = -1
    return math.exp(high)


def _messages(account: Account, found: Bound, horizon: float) -> tuple[np.ndarray | None, float]:
    """(what each message costs under each pattern, what all later ones cost); None where there is
    no such table.
    """
    endless = math.isinf(horizon)
    steps = found.summed_to if endless else int(horizon)
    # Over an infinite horizon the table holds only what is spent by step N; for a pattern that may
    # start later that proves nothing.
    if steps == 0 or (endless and not account.pattern.every):
        return None, 0.0
    each = account.message_costs(steps)
    if each is None:
        return None, 0.0
    return each, max(0.0, found.value - float(each.sum(axis=1).max())) if endless else 0.0


def _composed(account: Account, pure: float, each: np.ndarray, tail: float, delta: float) -> float:
    composed = account.mechanism.composed(each, delta)
    return pure if composed is None else min(pure, composed + tail)
