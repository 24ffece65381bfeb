"""What a loss must offer: its gradients, and the bounds that a certificate needs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NoReturn

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.privacy.adjacency import REPLACE
from hearsay.problems.losses.domains import FAR, Domain, namespace

SLACK = 1 + 1e-6  # of a bound, for records that were shortened in float32


def refuse(name: str, rule: str, wrong: np.ndarray) -> NoReturn:
    """Errors end up in logs: they name the first wrong record, and show no value."""
    row = ", ".join(map(str, np.argwhere(wrong)[0].tolist()))
    raise ValueError(f"{name} must be {rule}, got another in row {row}")


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
        """An interval that holds all eigenvalues of every record's Hessian. Where a clip leaves no
        Hessian (softmax.py): one with middle z and half width w such that the record's gradients at
        any two points x and y obey |g(x) - g(y) - z (x - y)| <= w |x - y|, which is all that
        certificates use of it.
        """

    @property
    def apart(self) -> Loss:
        """The same loss, computed so that a record's place in a batch changes no more of how its
        gradient is rounded than certificates count (privacy/float64.py).
        """
        return self

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


class BoundedLoss(Loss):
    """A loss that says which records there may be: features of l2 norm at most `feature_bound`, and
    labels that it checks. A record without features has gradient 0.
    """

    feature_bound: float

    @abstractmethod
    def margins(self, params: Any, features: Any) -> Any:
        """All that a record's loss depends on beside its label: (..., d) -> (...) or (..., classes)
        for one model.
        """

    @abstractmethod
    def values(self, margin: Any, labels: Any) -> Any:
        """The data part of each record's loss."""

    @abstractmethod
    def predict(self, margin: Any) -> Any:
        """The label that margins stand for."""

    @abstractmethod
    def unclipped_change(self, reach: float) -> float:
        """How far a gradient moves when its record is replaced, over models of norm up to that."""

    def unclipped_longest(self, reach: float) -> float:
        """The longest gradient of a record, over models of norm up to that; the change, which
        covers replacing a record by one without features, unless a loss knows better.
        """
        return self.unclipped_change(reach)

    @abstractmethod
    def require_labels(self, labels: np.ndarray) -> None:
        """Refuses finite labels that the bounds do not speak of."""

    def require_admissible(self, features: np.ndarray, labels: np.ndarray) -> None:
        """Records that the bounds speak of, up to the rounding of float32:
        a problem need not come from a Dataset.
        """
        sizes = np.abs(features).max(axis=-1, initial=0.0)
        if not np.all(np.isfinite(sizes)) or not np.all(np.isfinite(labels)):
            raise ValueError(
                "features and labels must be finite, got a record with NaN or infinity"
            )
        with np.errstate(over="ignore"):
            longer = np.linalg.norm(features, axis=-1) > self.feature_bound * SLACK
        if longer.any():
            rule = f"within the loss's feature_bound {self.feature_bound:g}"
            refuse("features", rule, longer)
        self.require_labels(labels)

    def require_range(self, reach: float, most: float) -> None:
        """No margin, moment or gradient of an admissible record, over a domain that reaches so far,
        may overflow in a precision that holds numbers up to `most`: what is not a number tells one
        record from all others.
        """
        moments = (
            () if self.clip is not None else (self.feature_bound**2, self.unclipped_change(reach))
        )
        largest = max(
            (size for size in (self.feature_bound * reach, *moments) if math.isfinite(size)),
            default=0.0,
        )
        if largest > most / 1000:
            rule = (
                f"so small that gradients ({largest:.2g} in size) stay below {most / 1000:.2g}"
                " (scale the data, choose a smaller domain or 64-bit precision)"
            )
            require.fail("feature_bound", rule, self.feature_bound)

    def change(self, domain: Domain, dimension: int, adjacency: str = REPLACE) -> float:
        return self.change_within(domain.reach(dimension), adjacency)

    def change_within(self, reach: float, adjacency: str = REPLACE) -> float:
        """`change` over models of norm up to that."""
        if adjacency == REPLACE:
            unclipped, most = self.unclipped_change(reach), 2
        else:
            unclipped, most = self.unclipped_longest(reach), 1
        return unclipped if self.clip is None else min(unclipped, most * self.clip)

    def residual_limit(self, features: Any) -> Any:
        """clip / |a| of each record: how large its residual may be."""
        xp = namespace(features)
        assert self.clip is not None
        tiny = float(xp.finfo(features.dtype).tiny)
        # No limit at all, for features of no length.
        with np.errstate(over="ignore", divide="ignore"):
            # |a| in two factors, as in domains.shortened: squares of tiny or huge features do not
            # vanish or overflow.
            largest = xp.maximum(xp.max(xp.abs(features), axis=-1), tiny)
            scaled = features / largest[..., None]
            limit = self.clip / xp.sqrt(xp.sum(scaled * scaled, axis=-1)) / largest
        # A limit below the smallest normal number has too few digits to be trusted, and the
        # reciprocal of features beyond FAR may be flushed to 0.
        return xp.where((limit >= tiny) & (largest <= FAR), limit, 0.0)
