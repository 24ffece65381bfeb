"""Sums of clipped per-record gradients that are torch tensors: what per_record.py is for JAX.

A norm is added up in float64, in any order: d numbers that are not negative come out at most d
roundings off, whatever they are. Each factor is made smaller by so much, and by 16 roundings of the
gradients' own precision for the product; no matrix product takes part, because torch may be told to
round those. So no record counts with more than the clip in the arithmetic that is used. A record
whose gradient is not finite, longer than 1e36 or 1e30 clips long counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.problems.losses.domains import FAR

# Bytes of gradients that a block may have, and the records that it has in any case (measured).
_CACHE, _FEWEST = 8 << 20, 8


def clipped_sum(gradients: list[Any], weights: Any, clip: float | None, norm: str) -> np.ndarray:
    """sum_i weights_i clip(g_i) over all parameters in a row; without a clip the plain sum.

    Args:
      gradients: (records, size) for every parameter.
      weights: (records,); one of 0 leaves its record out, whatever its gradient is.
      clip: what every record's gradient, over all parameters, is brought down to.
      norm: "l2" or "l1".
    """
    scales, counted = weights, weights != 0
    if clip is not None:
        factors = _factors(gradients, clip, norm)
        # A factor near the smallest normal number has too few digits to be trusted once it is
        # weighted.
        counted = counted & (factors >= require.SMALLEST_BOUND)
        scales = (weights.double() * factors).to(gradients[0].dtype)
    return np.concatenate([_summed(gradient, scales, counted) for gradient in gradients])


def suited(size: int, itemsize: int) -> int:
    """Records at a time whose gradients stay in a CPU's cache, of so many parameters."""
    return max(_FEWEST, _CACHE // (size * itemsize))


def blocks(weights: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, their weights) of blocks of one size, of at most so many records; the first rows fill
    up the last block, with weight 0. A block without a weight is left out, but not where records
    are taken one at a time: how many there are would show in how long it takes.
    """
    records = len(weights)
    if most > 1 and not weights.any():
        return
    count = -(-records // min(most, records))
    size = -(-records // count)
    for start in range(0, count * size, size):
        places = np.arange(start, start + size)
        rows = places % records
        own = np.where(places < records, weights[rows], 0).astype(weights.dtype)
        if most == 1 or own.any():
            yield rows, own


def _factors(gradients: list[Any], clip: float, norm: str) -> Any:
    """What brings every record's gradient to norm `clip` or less; 0 where it is not finite."""
    import torch

    order, size = (1 if norm == "l1" else 2), sum(g.shape[1] for g in gradients)
    parts = [torch.linalg.vector_norm(g, order, dim=1, dtype=torch.float64) for g in gradients]
    lengths = torch.linalg.vector_norm(torch.stack(parts), order, dim=0)
    room = (size + len(gradients) + 16) * torch.finfo(torch.float64).eps
    room += 16 * torch.finfo(gradients[0].dtype).eps
    factors = (clip / (lengths * (1 + room))).clamp(max=1)
    # Not a number is not below anything.
    return torch.where(lengths <= FAR, factors, 0.0)


def _summed(gradient: Any, scales: Any, counted: Any) -> np.ndarray:
    """Over the records, each multiplied before anything is added; those that do not count are left
    out, and not multiplied by 0: 0 times an infinity is not 0.
    """
    if not counted.all():
        gradient = gradient.masked_fill(~counted[:, None], 0)
    # Never in place: two parameters may have their gradients in the same memory.
    return (gradient * scales[:, None]).sum(0).numpy()
