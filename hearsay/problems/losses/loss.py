"""What a loss must offer: its gradients, and the bounds that a certificate needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import jax
import numpy as np

from hearsay.privacy.adjacency import REPLACE
from hearsay.problems.losses.domains import Domain


class Loss(ABC):
    """Any model's loss, of parameters that are one vector;
    `features` and `labels` below hold one record per row.
    """

    ridge: float
    clip: float | None  # every record's gradient (its data part) is brought down to this norm
    norm: str = "l2"  # the norm that `clip` and `change` are about
    convex: ClassVar[bool] = True  # there is one best model, and it can be found
    unrolled: ClassVar[bool] = False  # agents are computed one after the other, not as one array

    @abstractmethod
    def dimension(self, record: tuple[int, ...]) -> int:
        """The number of parameters, for records of that shape."""

    @abstractmethod
    def gradient_sum(
        self, params: jax.Array, features: jax.Array, labels: jax.Array, weights: jax.Array
    ) -> jax.Array:
        """Weighted sum of the records' gradients, data part only, each clipped."""

    @abstractmethod
    def score(
        self, params: jax.Array, features: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Of each record: the data part of its loss, and whether its label is predicted
        (nan where a model predicts none).
        """

    @property
    @abstractmethod
    def curvature(self) -> tuple[float, float]:
        """An interval that holds all eigenvalues of every record's Hessian."""

    def program(self, record: tuple[int, ...], kind: np.dtype) -> bytes:
        """What tells two losses apart that are written alike, for records of that shape and kind:
        nothing here.
        """
        return b""

    @property
    def regulariser(self) -> float:
        """rho such that the regulariser's gradient is rho theta."""
        return self.ridge

    def affine(self) -> float | None:
        """The slope s when the residual is s m + residual(0, b), so that statistics suffice;
        None otherwise.
        """
        return None

    @abstractmethod
    def change(self, domain: Domain, dimension: int, adjacency: str = REPLACE) -> float:
        """How far one record's gradient moves, at most: when the record is replaced, or (zero-out)
        when it is emptied, which is the longest gradient that a record has.
        """

    @property
    def note(self) -> str:
        """What a reader of results should know about the loss, if anything."""
        return "" if self.clip is None else f"records' gradients clipped to {self.clip:g}"
