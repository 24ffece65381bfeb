"""An algorithm whose batches somebody knows.

The canaries of one run (one_run.py) are guessed by somebody who knows which of them are in a batch.
Such a guesser is held against a certificate that does not rest on secrecy (`openly`); many runs
(likelihood.py) are scored without that knowledge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from hearsay.base import Algorithm
from hearsay.privacy.account import Account
from hearsay.problems.sampling.poisson import Poisson
from hearsay.problems.sampling.sampler import Sampling
from hearsay.problems.sampling.sized import Subset


@dataclass(frozen=True)
class _Known(Sampling):
    """The same batches, which somebody knows."""

    secret: ClassVar[bool] = False

    def amplified(
        self, charged: Callable[[float], Account], task: Any, held: float
    ) -> tuple[Account, ...]:
        return ()


@dataclass(frozen=True)
class _KnownSubset(_Known, Subset):
    pass


@dataclass(frozen=True)
class _KnownPoisson(_Known, Poisson):
    pass


_KINDS: dict[type[Sampling], type[_Known]] = {Subset: _KnownSubset, Poisson: _KnownPoisson}


def openly(algorithm: Algorithm) -> Algorithm:
    """The algorithm on the same batches, with a certificate that does not rest on their secrecy."""
    sampling = algorithm.sampling
    kind = _KINDS.get(type(sampling))
    if kind is None:
        return algorithm
    options = {field.name: getattr(sampling, field.name) for field in fields(sampling)}
    return replace(algorithm, sampling=kind(**options))
