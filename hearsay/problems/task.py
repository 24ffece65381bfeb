"""What is public of a learning problem on a network: all that budgets, plans and theory rest on.

Who works out a certificate, or attacks a run, is handed a Task and sees no record: there is none in
it. A simulation has a Problem (problem.py), which is a Task with everybody's records; a deployed
agent has a Task, made from net.toml, and its own records beside it.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.privacy.adjacency import RELATIONS, REPLACE
from hearsay.privacy.recursion import Assumption
from hearsay.problems.losses.domains import Box, Domain
from hearsay.problems.losses.linear import LinearLoss, Logistic
from hearsay.problems.losses.loss import BoundedLoss, Loss
from hearsay.problems.losses.softmax import Softmax
from hearsay.problems.sampling.samplers import Arrivals
from hearsay.tables.schema import Schema


@dataclass(frozen=True)
class Declared:
    """The user's declaration of how far replacing one record moves its gradient, wherever taken.

    Args:
      change: the largest l1 norm of the difference.
      frozen: paper P3's adjacency (its Definition 1), in which the sampled gradients ARE the data:
        all other gradients are then the same in both runs, although a run takes them at states
        that the record has moved. It reproduces the paper's sums; certificates warn of it.
    """

    change: float
    frozen: bool = False

    def __post_init__(self) -> None:
        require.settle(self, change=require.bound, frozen=require.flag)


@dataclass(frozen=True, eq=False)
class Task:
    """A loss, a domain, and how many records of which shape reach the agents, and when.

    Args:
      name: what the data are called.
      loss: with the bounds that every possible record obeys.
      domain: what models are projected onto.
      shape: of one record's features.
      counts: how many records each agent has; infinite for an endless stream.
      arrivals: how many of them come with every step.
      classification: labels are classes.
      assumptions: what the loss's bounds on records rest on.
      seed: of the sampling, and of what else was drawn to make the problem.
      start: where agents begin, one point or one per agent (the origin unless given).
      declared: a change of a gradient that is promised instead of enforced.
      smoothness: [mu, L] of every agent's objective where it is known to be narrower than the
        loss's curvature interval: theory may use it, certificates must not.
      bytes: features are bytes, which a model reads as v / 255.
      adjacency: what certificates protect: "replace" (one record is replaced by any other) or
        "zero-out" (by an empty one, whose gradient is 0; privacy/adjacency.py). It changes no
        trajectory.
      schema: how rows of a table become records, where they were made from tables: for who
        predicts with the model. Nothing else depends on it.

    Example:
      The certificate of data that one has not seen, one agent having three times as many records:

      >>> from dataclasses import replace
      >>> import hearsay as hs
      >>> task = hs.problems.logistic("digits", agents=3).task
      >>> task = replace(task, counts=[100, 100, 300])
      >>> certificate = hs.certify(hs.ldp_online(noise=1.0), task, hs.graphs.ring(3), 50)
      >>> certificate.finite
      True
    """

    name: str
    loss: Loss
    domain: Domain
    shape: tuple[int, ...]
    counts: np.ndarray
    arrivals: Arrivals = Arrivals()
    classification: bool = True
    assumptions: tuple[Assumption, ...] = ()
    seed: int = 0
    start: np.ndarray | None = None
    declared: Declared | None = None
    smoothness: tuple[float, float] = (math.nan, math.nan)
    bytes: bool = False
    adjacency: str = REPLACE
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if math.isnan(self.smoothness[0]):
            object.__setattr__(self, "smoothness", self.loss.curvature)
        require.settle(
            self,
            shape=require.each(require.count),
            seed=require.seed,
            smoothness=require.interval,
            start=require.optional(require.array),
            counts=_counts,
            classification=require.flag,
            bytes=require.flag,
        )
        # A certificate speaks of what was checked here.
        object.__setattr__(self, "counts", require.kept(self.counts))
        if self.declared and not isinstance(self.domain, Box):
            # Projecting onto a ball may lengthen a distance in l1; clipping coordinates never does.
            require.fail(
                "domain", "a Box where the change of a gradient is declared in l1", self.domain
            )
        if self.norm == "l1" and not isinstance(self.domain, Box):
            require.fail("domain", "a Box where gradients are clipped in l1", self.domain)
        require.one_of("adjacency", self.adjacency, RELATIONS)
        if self.declared and self.adjacency != REPLACE:
            require.fail(
                "adjacency",
                "replace where the change of a gradient is declared: it says how far two records'"
                " gradients differ, and nothing of how long one is (give a clip instead)",
                self.adjacency,
            )
        if self.declared and self.loss.clip is not None:
            require.fail(
                "clip",
                "None where the change of a gradient is declared: the clip enforces one",
                self.loss.clip,
            )

    @property
    def task(self) -> Task:
        """The public part, which is all of it here."""
        return self

    @property
    def agents(self) -> int:
        return len(self.counts)

    @property
    def endless(self) -> bool:
        """Records are made up as they are needed."""
        return bool(np.isinf(self.counts).any())

    @property
    def most(self) -> int:
        """How many records the agent with the most of them has; everybody's are padded to it."""
        return 0 if self.endless else int(self.counts.max())

    @property
    def dimension(self) -> int:
        """The number of parameters."""
        return self.loss.dimension(self.shape)

    @property
    def first_models(self) -> np.ndarray:
        """Where agents begin, before the projection: (agents, dimension)."""
        shape = (self.agents, self.dimension)
        return np.broadcast_to(np.zeros(shape) if self.start is None else self.start, shape)

    @property
    def linear(self) -> LinearLoss:
        """The loss, for what only a generalised linear model has: one margin per record."""
        if not isinstance(self.loss, LinearLoss):
            raise ValueError(
                f"this needs a model of one number per record (logistic, ridge, ...), and"
                f" {self.loss} is none"
            )
        return self.loss

    @property
    def norm(self) -> str:
        """The norm that `change` is about."""
        return "l1" if self.declared else self.loss.norm

    @property
    def dtype(self) -> jnp.dtype:
        """The precision that jax is set to."""
        return jnp.result_type(float)

    def arrived(self, step: int) -> np.ndarray:
        """How many records each agent has seen once step `step` has begun."""
        return np.minimum(
            self.arrivals.head_start + (step + 1) * self.arrivals.per_step, self.counts
        )

    def digest(self) -> str:
        """A fingerprint: tasks that have the same one give the same run with the same records."""
        known = (self.loss, self.domain, self.shape, self.arrivals, self.declared, self.seed)
        digest = hashlib.sha256(repr((*known, self.bytes)).encode())
        for array in (self.counts, *(() if self.start is None else (self.start,))):
            digest.update(f"{array.shape} {array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(self.loss.program(self.shape, np.dtype(np.uint8 if self.bytes else float)))
        return digest.hexdigest()

    def under(self, adjacency: str) -> Self:
        """The same with that adjacency; every run stays as it is, certificates speak of it.

        Args:
          adjacency: "replace" or "zero-out".

        Example:
          >>> import hearsay as hs
          >>> task = hs.problems.ridge(agents=2, records=50).task
          >>> task.change, task.under("zero-out").change
          (15.6, 12.8)
        """
        return self if adjacency == self.adjacency else replace(self, adjacency=adjacency)

    @property
    def change(self) -> float:
        """C: how far one record's gradient moves, at most, when the record is replaced, or emptied
        under zero-out adjacency.
        """
        return self.change_under(self.adjacency)

    def change_under(self, adjacency: str) -> float:
        """C under that adjacency, whichever the task's own is."""
        require.one_of("adjacency", adjacency, RELATIONS)
        if self.declared:
            return self.declared.change if adjacency == REPLACE else math.inf
        if isinstance(self.loss, BoundedLoss):
            self.loss.require_range(
                self.domain.reach(self.dimension), float(jnp.finfo(self.dtype).max)
            )
        # A loss may be anybody's: what it says is held to what a sensitivity can be.
        arguments = {} if adjacency == REPLACE else {"adjacency": adjacency}
        if arguments and "adjacency" not in inspect.signature(self.loss.change).parameters:
            require.fail(
                "the loss's change",
                f"a method that takes an adjacency, for certificates under {adjacency}",
                f"that of {type(self.loss).__name__}, which does not",
            )
        return require.positive_or_infinite(
            "the loss's change", self.loss.change(self.domain, self.dimension, **arguments)
        )

    @property
    def frozen(self) -> bool:
        """Gradients are declared not to react to what a record has done to the state."""
        return self.declared is not None and self.declared.frozen

    def privacy_assumptions(self, curvature: bool = True) -> tuple[Assumption, ...]:
        """What a bound rests on: the loss's curvature interval and change bound,
        or (curvature=False) the clip alone.
        """
        loss = self.loss
        low, high = loss.curvature
        facts = [
            Assumption("enforced", f"models are projected onto the {self.domain} after every step")
        ]
        if self.declared:
            text = (
                f"replacing one record changes its gradient by at most C = {self.change:g} in l1"
                " norm, wherever it is taken; nothing here enforces it"
            )
            declared = [Assumption("declared", text)]
            if self.frozen:
                text = (
                    "the sampled gradients are the data (paper P3, Definition 1): they do not react"
                    " to what a record has done to the state"
                )
                declared.append(Assumption("declared", text))
            elif math.isfinite(high):
                declared.append(
                    Assumption(
                        "derived",
                        f"curvature interval [{low:.4g}, {high:.4g}] of the {type(loss).__name__}"
                        " loss",
                    )
                )
            return (*self.assumptions, *facts, *declared)
        if not curvature or not isinstance(loss, BoundedLoss):
            if loss.clip is None:
                return (
                    *facts,
                    Assumption(
                        "declared",
                        "nothing is known of the records' gradients: they are not clipped",
                    ),
                )
            return (*self.assumptions, *facts, Assumption("enforced", self._clipped(curvature)))
        kind = (
            f"curvature interval [{low:.4g}, {high:.4g}] of the {type(loss).__name__} loss from |a|"
            f" <= {loss.feature_bound:.4g}"
        )
        facts.append(Assumption("derived", kind))
        emptied = self.adjacency != REPLACE
        if loss.clip is not None and (2 - emptied) * loss.clip <= self.change * (1 + 1e-12):
            who = "emptying one record" if emptied else "one record"
            text = (
                f"every record's gradient is clipped to l2 norm {loss.clip:g}, so {who}"
                f" changes it by at most {self.change:.4g}"
            )
            facts.append(Assumption("enforced", text))
        else:
            reason = (
                "its gradient's own length" if emptied else "features and label both replaced"
            ) + ("" if isinstance(loss, (Logistic, Softmax)) else f", over the {self.domain}")
            facts.append(
                Assumption(
                    "derived",
                    f"one record changes a gradient by at most C = {self.change:.4g} ({reason})",
                )
            )
        return (*self.assumptions, *facts)

    def _clipped(self, at_one_point: bool) -> str:
        """What the clip alone says, of gradients at one point or at two states."""
        clip = self.loss.clip
        assert clip is not None
        text = f"every record's gradient is clipped to {self.loss.norm} norm {clip:g}, so"
        if self.adjacency == REPLACE:
            return f"{text} one record changes it by at most {2 * clip:g}"
        if at_one_point:
            return f"{text} emptying one record changes it by at most {clip:g}"
        return (
            f"{text} every record's gradient changes by at most {2 * clip:g} once the states"
            " differ, the emptied one or not"
        )


def public(problem: Any) -> Task:
    """The task of what a user gives: a Problem's records stay behind."""
    require.instance(
        "problem", problem, Task, "a problem such as hearsay.problems.logistic(...), or its task"
    )
    return problem.task


def _counts(name: str, given: Any) -> np.ndarray:
    """How many records each agent holds:
    whole numbers, or infinite for a stream that never ends.
    """
    found = require.array(name, given)
    if found.ndim != 1 or not np.all((found >= 1) & (found == np.floor(found))):
        require.fail(name, "one whole number of at least 1 for each agent", given)
    if np.any((found > require.LARGEST_COUNT) & np.isfinite(found)):
        require.fail(name, f"at most {require.LARGEST_COUNT:,} records, or infinite", given)
    return found if np.isinf(found).any() else found.astype(np.int64)
