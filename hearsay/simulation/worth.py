"""What a run's model is worth: the one that may be released beside guessing, an agent alone at the
same epsilon, and the same settings without noise. Commands, pages and notebooks say it from here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from hearsay.simulation.own_unit import errors_of, in_own_unit

if TYPE_CHECKING:
    from hearsay.simulation.result import Run

# A model that is not this much better than a guess, as a share of what there is to explain.
LEAST = 0.01


class Worth(NamedTuple):
    """Accuracies, or errors in the target's own unit; None where one was not measured.

    Args:
      reached: of the model that may be released; of the agents' own where none was kept.
      released: it is the former.
      guess: of always naming the commonest label, or the mean.
      alone: of every agent by itself with the same epsilon: the mean over agents.
      clean: of the same settings without noise.
      each: what every agent has alone, where they differ in what they hold.
      explained: R^2 of the released model; None of classes.
      unit: that of errors, in words; None of accuracies.
      log: errors are factors, which are compared by their logarithms.
    """

    reached: float
    released: bool
    guess: float
    alone: float | None
    clean: float | None
    each: tuple[float, ...] = ()
    explained: float | None = None
    unit: str | None = None
    log: bool = False

    @property
    def no_better(self) -> bool:
        """Than a guess."""
        return self._no_better(self.reached)

    @property
    def hopeless(self) -> bool:
        """The same settings without noise are no better than a guess either."""
        return self.clean is not None and self._no_better(self.clean)

    def _no_better(self, value: float) -> bool:
        # What is no number is no better.
        if self.unit is None:
            return not value > self.guess + LEAST
        return not self.ratio(value, self.guess) < math.sqrt(1 - LEAST)

    def ratio(self, error: float, other: float) -> float:
        """How large one error is beside another, as they were measured; none is 0 of any."""
        if self.log:
            error, other = math.log(error), math.log(other)
        if error == 0:
            return 0.0
        return error / other if other else math.inf

    @property
    def beside(self) -> dict[str, float]:
        """What was measured beside it, in words, from the worst that one expects to the best."""
        guess = "guessing" if self.unit is None else "always naming the mean"
        values = {guess: self.guess, "alone": self.alone, "without noise": self.clean}
        return {name: value for name, value in values.items() if value is not None}


def worth(run: Run) -> Worth | None:
    """None where it was not tested."""
    if not run.tested:
        return None
    wrong, other = errors_of(run), run.beside
    each = tuple(other.each or ()) if other else ()
    if wrong is not None:
        own = tuple(in_own_unit(error, run.problem.schema) for error in each)
        reached, kept = wrong.released or wrong.own, wrong.released is not None
        return Worth(
            reached[0],
            kept,
            wrong.guess,
            wrong.alone,
            wrong.clean,
            own,
            wrong.explained,
            wrong.unit,
            wrong.log,
        )
    if run.guessing is None:
        return None
    kept = "released_accuracy" in run.metrics
    reached = run.final("released_accuracy" if kept else "accuracy")
    alone, clean = (other.alone, other.clean) if other else (None, None)
    return Worth(reached[0], kept, run.guessing, alone, clean, each)
