"""Who knows the batches of an audited run.

In a simulation the subsets of `Subset` come from the task's seed, which is public, and are the same
for all noise seeds: runs of one problem can be compared. A deployed agent draws them from its
operating system, and a certificate may rest on that. So an audit of many runs draws them anew in
each (`secretly`), and one whose guesser knows who is in a batch is held against a certificate that
does not rest on it (`openly`). Batches of other samplers are what they are in a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hearsay.base import Algorithm
from hearsay.privacy.account import Account
from hearsay.problems.sampling.sized import Subset


@dataclass(frozen=True)
class _Anew(Subset):
    """Every noise seed has subsets of its own."""

    per_seed: ClassVar[bool] = True


@dataclass(frozen=True)
class _Known(Subset):
    """The same subsets, which somebody knows."""

    secret: ClassVar[bool] = False

    def amplified(
        self, charged: Callable[[float], Account], task: Any, held: float
    ) -> tuple[Account, ...]:
        return ()


def secretly(algorithm: Algorithm) -> Algorithm:
    """The algorithm whose secret batches are drawn anew with every noise seed."""
    return _with(algorithm, _Anew)


def openly(algorithm: Algorithm) -> Algorithm:
    """The algorithm on the same batches, with a certificate that does not rest on their secrecy."""
    return _with(algorithm, _Known)


def _with(algorithm: Algorithm, kind: type[Subset]) -> Algorithm:
    sampling = algorithm.sampling
    if type(sampling) is not Subset:
        return algorithm
    return replace(algorithm, sampling=kind(sampling.size))  # type: ignore[call-arg]
