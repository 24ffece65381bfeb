"""From secret batches to (epsilon, delta): what messages cost when a record is in each of them by a
secret coin.

**Poisson.** Given the messages so far, and the coins of all other records, a message is the noise
around one of two points: m where the record's coin has not fallen, m + u where it has, |u| at most
the shift. Where the record is empty (zero-out) both are m. So the pair to tell apart is N(m)
against (1 - q) N(m) + q N(m + u), and for other laws alike; both directions are composed, each by
itself, and the worse one counts. A pair of laws that is harder to tell apart stays so after mixing:
a test of level a has power at most (1 - q) a + q (1 - f(a)) against the mixture, f the trade-off
function of the pair itself. So a message of d numbers is dominated by one number with the whole
shift, as without sampling (convert.py), and a shift that is rounded up is safe. Privacy loss
distributions, on a grid that rounds losses up, are those of the dp-accounting library. Where the
record moves the message in both data sets, because it is replaced by another one or because the
message is rounded, the pair is (1 - q) N(0) + q N(u) against (1 - q) N(0) + q N(-u') (opposed.py).

**Subset.** A batch of m of N records without replacement is met by the pair of subsets.py, with the
shift of a record that is replaced. In pure epsilon a message costs log(1 + m/N (e^epsilon - 1))
(Balle, Barthe and Gaboardi 2018, Theorem 9). An empty record is a record like any other in this
argument, so that both adjacencies are covered by the shift of a replacement, which must cover an
empty one too.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms.convert import OUTWARD, inverted
from hearsay.mechanisms.opposed import opposed_losses
from hearsay.mechanisms.subsets import subset_losses

if TYPE_CHECKING:
    from hearsay.mechanisms.mechanism import Mechanism

# The grid of losses: `_CELL`, or a share of what losses are on average if they are small, but no
# finer than `_FINEST`, where the last digits of a probability would show, with at most `_POINTS`
# points for one message and `_CELLS` for all.
_CELL, _SHARE, _FINEST, _POINTS, _CELLS = 1e-4, 0.05, 1e-7, 2**17, 2**22
# Shifts that differ by less are taken as the largest of them; otherwise they are rounded up to a
# grid of that ratio, from the largest down, and to at most so many.
_ALIKE, _RATIO, _GROUPS = 1 + 1e-7, 1.02, 64


# A message that moves by more noise scales than this tells the record apart whenever it is in it: a
# secret coin is no help, and its losses would fill all memory.
_LARGEST = 32.0


class Losses:
    """What messages of one law with secret batches lose together: a privacy loss distribution.

    Args:
      law: of the noise.
      shifts: of the messages, over the scale of their noise, in the law's norm.
      rate: how likely a record is in a batch.
      others: how far the record of the other data set moves them, at most as far: by nothing where
        it is empty.
    """

    def __init__(
        self, law: Mechanism, shifts: np.ndarray, rate: float, others: np.ndarray | float = 0.0
    ) -> None:
        rate, shifts = require.fraction("rate", rate), require.array("shifts", shifts)
        others = np.broadcast_to(require.array("others", others), shifts.shape)
        if np.any((others < 0) | (others > shifts)):
            require.fail("others", "between 0 and the shifts", others)
        known = bool(np.all((shifts >= 0) & (shifts <= _LARGEST)))
        self._messages = int(np.count_nonzero(shifts))
        self._composed = _composed(law, _paired(shifts, others), rate, False) if known else None

    def epsilon(self, delta: float) -> float:
        """epsilon at delta; infinite where none is known."""
        if delta <= 0 or self._composed is None:
            return math.inf
        return read(self._composed, delta, self._messages)


def read(composed: Any, delta: float, messages: int) -> float:
    """epsilon at delta of messages that the library has composed, rounded outward.

    A Fourier transform to the power of the number of messages is off in its last digits, and with
    it every delta: for each message by up to 7e-17 in 900 compositions with a closed form, and by
    1.6e-16 in 300 with shifts of up to 30 noise scales (3.2e-16 where delta is near 1, which the
    share that `inverted` leaves covers). What counts is an epsilon at a delta that is smaller by
    2.2e-16 for each, where `OUTWARD` does not cover it.
    """
    left = delta - (messages + 16) * 2.0**-52
    return max(inverted(composed, delta) * OUTWARD, inverted(composed, left))


def subset_epsilon(law: Mechanism, shifts: np.ndarray, held: int, size: int, delta: float) -> float:
    """epsilon at delta for batches of `size` of `held` records, without replacement; `shifts` are
    those of a replaced record that is in the batch.
    """
    held, size = require.count("held", held), require.count("size", size)
    if size > held:
        require.fail("size", f"at most the {held} records held", size)
    delta = require.fraction("delta", delta)
    shifts = require.array("shifts", shifts)
    if not (np.all(np.isfinite(shifts)) and np.all(shifts >= 0)):
        return math.inf
    # As if the record were in every batch.
    with np.errstate(over="ignore"):
        whole = float(law.epsilon(float(np.sum(law.cost(shifts, 1))), delta)) * OUTWARD
    if np.any(shifts > _LARGEST):
        return whole
    groups = _paired(shifts, np.zeros(len(shifts)))
    composed = _composed(law, groups, size / held, True)
    if composed is None:
        return whole
    return min(whole, read(composed, delta, int(np.count_nonzero(shifts))))


def amplified_pure(pure: np.ndarray, rate: float) -> np.ndarray:
    """What messages of that pure epsilon cost, in pure epsilon, where a record is in each with
    probability `rate`.
    """
    rate = require.share("rate", rate)
    with np.errstate(over="ignore"):
        return np.minimum(require.array("pure", pure), np.log1p(rate * np.expm1(pure)))


def _rounded_up(positive: np.ndarray) -> np.ndarray:
    if not len(positive):
        return positive
    top, low = float(positive.max()), float(positive.min())
    if top <= low * _ALIKE:
        return np.full(len(positive), top)
    if len(np.unique(positive)) <= 8:
        return positive
    fine = _on_grid(positive, math.log(_RATIO))
    wide = math.log(top / low) / _GROUPS
    return fine if wide <= math.log(_RATIO) else _merged(fine, _on_grid(positive, wide))


def _on_grid(positive: np.ndarray, step: float) -> np.ndarray:
    """From the top down, so that none exceeds it by rounding."""
    top = float(positive.max())
    places = np.floor(np.log(top / positive) / step * (1 - 1e-12))
    return np.maximum(positive, top * np.exp(-places * step))


def _merged(fine: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    """The finer of two roundings for as many as there may be groups: what costs least to round up
    further is, but never beyond the coarse one, which has few enough.
    """
    values = np.minimum(fine, coarse)
    levels, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    most = np.zeros(len(levels))
    np.maximum.at(most, where, coarse)
    while len(levels) > _GROUPS:
        more = counts[:-1] * (levels[1:] ** 2 - levels[:-1] ** 2)
        more[most[1:] > most[:-1]] = math.inf
        least = int(np.argmin(more))
        if math.isinf(more[least]):
            break
        counts[least + 1] += counts[least]
        levels, counts, most = (np.delete(a, least) for a in (levels, counts, most))
    return levels[np.searchsorted(levels, values)]


def _paired(shifts: np.ndarray, others: np.ndarray) -> tuple[tuple[float, float, int], ...]:
    """(shift, other shift, how many messages have them), both rounded up."""
    positive = shifts > 0
    tops, where, counts = np.unique(
        _rounded_up(shifts[positive]), return_inverse=True, return_counts=True
    )
    # The largest share of the shift that is the other one, in each group.
    shares = np.zeros(len(tops))
    np.maximum.at(shares, where, others[positive] / shifts[positive])
    more = np.minimum(tops, tops * shares * (1 + 1e-12))
    return tuple(zip(tops.tolist(), more.tolist(), counts.tolist(), strict=True))


# Few: one of them may take 100 MB.
@lru_cache(maxsize=16)
def _composed(
    law: Mechanism, groups: tuple[tuple[float, float, int], ...], rate: float, subsets: bool
) -> Any:
    """All messages together; None where the library cannot hold them."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    # Two records that pull in opposite directions are further apart.
    cell = _cell(law, tuple((shift + other, count) for shift, other, count in groups), rate)
    composed = pld.identity(value_discretization_interval=cell)
    try:
        for shift, other, count in groups:
            one = _single(law, shift, other, rate, subsets, cell)
            many = one.self_compose(count) if count > 1 else one
            composed = many if len(groups) == 1 else composed.compose(many)
    except (ValueError, OverflowError, MemoryError):
        return None
    return composed


@lru_cache(maxsize=96)
def _single(
    law: Mechanism, shift: float, other: float, rate: float, subsets: bool, cell: float
) -> Any:
    if subsets:
        return subset_losses(law, shift, rate, cell)
    if other:
        return opposed_losses(law, shift, other, rate, cell)
    return law.sampled_loss(shift, rate, cell)


def _cell(law: Mechanism, groups: tuple[tuple[float, int], ...], rate: float) -> float:
    """The grid's width."""
    mean = deviation = widest = sampled = square = 0.0
    for shift, count in groups:
        reach = law.widest_loss(shift)
        # Of the sampled loss: a share `rate` of it is as large as without sampling.
        often = rate if rate * reach < 1 else 1.0
        mean += count * often * min(reach, shift * shift + shift)
        deviation += count * often * min(reach, shift * shift + shift) ** 2
        widest = max(widest, reach)
        sampled = max(sampled, float(amplified_pure(np.array(reach), rate)))
        square += count * (rate * math.sqrt(math.expm1(min(shift, 1.0) ** 2))) ** 2
    spread = widest + mean + 12 * math.sqrt(deviation)
    typical = math.sqrt(square / max(sum(count for _, count in groups), 1))
    # Every group has losses of its own, and is composed with all before it: a grid that is finer
    # than `_CELL` has `_CELLS` of them for all groups together.
    near = len(groups) * (sampled + 12 * math.sqrt(square))
    fine = max(_SHARE * typical, _FINEST, sampled / _POINTS, 2 * near / _CELLS)
    return max(min(_CELL, fine), 2 * spread / _CELLS)
