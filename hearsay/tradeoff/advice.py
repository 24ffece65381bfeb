"""What to say before anything is sent where the answer will be no better than a guess, and what
would help: worked out by trials of the rule's setting on the same made-up records.

Their classes are about equally common, whatever the real ones are: how common these are is counted
on private rows, and nobody looks at it before noise is added. So it is said beside every warning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hearsay.graphs import Graph
from hearsay.problems.task import Task
from hearsay.tradeoff.choices import Epsilon

# Above guessing by less than this an answer is not clearly better; what helps brings twice as much.
CLEARLY = 0.05
_MOST = 4096.0


@dataclass(frozen=True, eq=False)
class Situation:
    """What decides how good an answer can be.

    Args:
      task: what is public of the problem.
      graph: who hears whom.
      epsilon: what each agent may spend.
      colluders: that shared noise is planned for; None: there is none.
    """

    task: Task
    graph: Graph
    epsilon: Epsilon
    colluders: int | None

    def spending(self, factor: float) -> Situation:
        more = np.multiply(self.epsilon, factor).tolist()
        return replace(self, epsilon=tuple(more) if isinstance(more, list) else more)

    def holding(self, factor: float) -> Situation:
        """With so many times the records."""
        counts = np.ceil(self.task.counts * factor).astype(np.int64)
        arrivals = self.task.arrivals
        head_start, per_step = arrivals.head_start * factor, arrivals.per_step * factor
        arrivals = replace(
            arrivals,
            head_start=min(math.ceil(head_start), int(counts.max())),
            per_step=math.ceil(per_step),
        )
        return replace(self, task=replace(self.task, counts=counts, arrivals=arrivals))

    def joined(self, factor: float, graph: Callable[[int], Graph]) -> Situation:
        """With so many times the agents, each with as many records as the one that has fewest."""
        agents = round(self.task.agents * factor)
        counts = np.full(agents, self.task.counts.min())
        least = float(np.min(self.epsilon))
        return replace(
            self,
            task=replace(self.task, counts=counts, start=None),
            graph=graph(agents),
            epsilon=least,
        )


def about(task: Task, guess: float) -> str:
    """Which targets the numbers of a rehearsal are about; "" where the target is a number.

    Args:
      task: what is public of the problem.
      guess: of guessing on made-up records.
    """
    if not task.classification:
        return ""
    return (
        "This is about classes that are about equally common: on made-up records the commonest is"
        f" {guess:.0%}. How common yours are is private and was not looked at; where one is far"
        " commoner, always naming it is right more often, and harder to beat."
    )


def warnings(
    here: Situation,
    score: float,
    guess: float,
    tried: Callable[[Situation], float],
    graph: Callable[[int], Graph],
) -> tuple[str, ...]:
    """A line where the score is not clearly better than a guess; () where it is.

    Args:
      here: as it was rehearsed.
      score: of the choice on made-up records.
      guess: of guessing on them.
      tried: how much better than a guess the rule's setting is in a situation.
      graph: who hears whom in a network of so many agents.
    """
    if score >= guess + CLEARLY:
        return ()
    enough = 2 * CLEARLY

    def least(change: Callable[[float], Situation], first: float = 2.0) -> float | None:
        factor = first
        while factor <= _MOST:
            if tried(change(factor)) >= enough:
                return factor
            factor *= 2
        return None

    said = []
    louder = least(here.spending)
    if louder is not None:
        said.append(f"epsilon about {float(np.min(here.epsilon)) * louder:.2g}")
        # Noise falls with records as it does with epsilon: the search begins near its end.
        if (more := least(here.holding, max(2.0, louder / 2))) is not None:
            said.append(f"about {more:g} times the records")
        many = min(8.0, 4096 / here.task.agents)
        if many >= 2 and tried(here.joined(many, graph)) >= enough:
            said.append(f"about {many:g} times the agents")
    if here.colluders is None and here.task.agents >= 3:
        secret = replace(here, colluders=1)
        if tried(secret) >= enough:
            said.append("secrets with colluders=1")
    helps = f" What would help: {', or '.join(said)}." if said else ""
    return (
        f"this will be no better than guessing: on made-up records the score is {score:.2f}, and"
        f" guessing has {guess:.2f}.{helps}",
    )
