"""Budgets: one agent's, and those of all agents with what is the same written once.

In a large network many agents have the same budget to the last bit: what it follows from is the
same for them (certification/kinds.py). `Budgets` holds a budget per kind and the kind of every
agent; it is read like a tuple with a budget per agent.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.account import Assumption, Numbers
from hearsay.privacy.curve import ALL, Colluding, require_ordered
from hearsay.privacy.runs import ranges, read_ranges, read_runs, runs
from hearsay.privacy.words import few, show

# Files list so many agents one by one, as they always have; more of them by kind.
LISTED = 100


@dataclass(frozen=True)
class Lifetime:
    """What the same records have spent in other runs on this host, and with this one:
    the largest over all records, at `delta` (0: pure).
    """

    earlier_versions: ClassVar[bool] = True

    before: float
    total: float
    delta: float
    runs: tuple[str, ...] = ()
    records: int = 0  # how many of this run's records were in other runs
    # `before` and `total` hold if at most so many others collude, and the total if all do.
    colluders: int | None = None
    all_collude: float | None = None

    def __post_init__(self) -> None:
        require.settle(
            self,
            before=require.nonnegative_or_infinite,
            total=require.nonnegative_or_infinite,
            delta=require.nonnegative_or_infinite,
            records=require.natural,
            colluders=require.optional(require.natural),
            all_collude=require.optional(require.nonnegative_or_infinite),
        )

    def __str__(self) -> str:
        at = f" at delta = {self.delta:.3g}" if self.delta else ""
        if self.colluders is not None:
            many = f"at most {self.colluders} of the others" if self.colluders else "nobody"
            at += f" if {many} collude{'' if self.colluders else 's'} in any of them"
            at += f" ({show(self.all_collude)} if {ALL})"
        if not self.runs:
            return (
                "spent before nothing that this host knows of; with this run"
                f" {show(self.total)}{at}"
            )
        runs = (
            f"run{'s' if len(self.runs) > 1 else ''} {few(self.runs, ', ')}; {self.records:,} of"
            " these records"
        )
        return f"spent before {show(self.before)} ({runs}); with this run {show(self.total)}{at}"


@dataclass(frozen=True)
class AgentBudget:
    """One agent's budget. epsilon is pure (delta = 0) for Laplace noise; rho is set for Gaussian
    noise and epsilon then holds at the certificate's delta. A ternary quantizer has epsilon = 0 at
    a `delta` of the agent's own, and no budget at all where that reaches 1.
    """

    earlier_versions: ClassVar[bool] = True

    agent: int
    epsilon: float
    basis: str
    pattern: str
    dominated_by: str
    # The paper's formula may be anything, undefined too: it is no guarantee.
    paper_epsilon: float | None = field(default=None, metadata={"undefined": True})
    epsilon_at_delta: float | None = None
    rho: float | None = None
    reason: str = ""
    assumptions: tuple[Assumption, ...] = ()
    delta: float | None = None
    lifetime: Lifetime | None = None
    # Its place in the certificate's descriptions.
    description: int | None = None
    # epsilon for numbers of colluders from none to all others, where noise is shared.
    curve: tuple[Colluding, ...] = ()

    def __post_init__(self) -> None:
        spent, maybe = (
            require.nonnegative_or_infinite,
            require.optional(require.nonnegative_or_infinite),
        )
        require.settle(
            self,
            agent=require.natural,
            epsilon=spent,
            epsilon_at_delta=maybe,
            rho=maybe,
            delta=maybe,
            description=require.optional(require.natural),
        )
        if self.agent >= 2**31:
            require.fail("agent", "below 2^31", self.agent)
        require_ordered(self.curve)
        if self.delta is not None and self.delta > 1:
            require.fail("delta", "at most 1", self.delta)
        require.settle(self, paper_epsilon=require.optional(_formula))

    @property
    def compared(self) -> float:
        """What a target or a budget is compared with (`Numbers.compared`)."""
        said = Numbers(self.epsilon, self.rho, self.delta, self.epsilon_at_delta)
        return said.compared

    @property
    def all_collude(self) -> float:
        """epsilon if all other agents collude: what its own noise alone gives."""
        return self.curve[-1].epsilon if self.curve else self.epsilon

    def at(self, colluders: int) -> float:
        """epsilon if that many of the other agents collude.

        Args:
          colluders: a number that the curve has a point for.
        """
        colluders = require.natural("colluders", colluders)
        if not self.curve:
            require.fail(
                "colluders",
                "left out where no noise is shared: epsilon holds if all other agents collude",
                colluders,
            )
        known = {point.colluders: point.epsilon for point in self.curve}
        if colluders not in known:
            require.fail(
                "colluders",
                f"one of {', '.join(map(str, known))}, which the curve has (certify(...,"
                " colluders=...) states another)",
                colluders,
            )
        return known[colluders]


class Group(NamedTuple):
    """A kind of agents.

    Args:
      budget: theirs, as that of the first of them.
      agents: their numbers.
    """

    budget: AgentBudget
    agents: np.ndarray


class Budgets(Sequence[AgentBudget]):
    """A budget per agent, agents with the same one together.

    Args:
      kinds: the budgets that there are.
      kind: for every agent the place of its budget among them.
      agents: the agents' numbers; 0, 1, ... unless given.

    Example:
      >>> one = AgentBudget(0, 1.5, "clip bound 1", "every step", "step 3")
      >>> budgets = Budgets([one], np.zeros(1_000_000, int))
      >>> len(budgets), budgets[7].agent, budgets[7].epsilon, len(budgets.groups())
      (1000000, 7, 1.5, 1)
    """

    def __init__(
        self, kinds: Iterable[AgentBudget], kind: np.ndarray, agents: np.ndarray | None = None
    ) -> None:
        given, places = tuple(kinds), np.asarray(kind, np.int64)
        numbers = np.arange(len(places)) if agents is None else np.asarray(agents, np.int64)
        if len(places) and not (places.min() >= 0 and places.max() < len(given)):
            rule = f"below the {len(given)} budgets that there are"
            require.fail("kind", rule, int(places.max()))
        # In the order in which agents have them, so that equal budgets are written alike.
        used, first, places = np.unique(places, return_index=True, return_inverse=True)
        order = np.argsort(first)
        self.kinds = tuple(
            _of(given[place], int(numbers[first[number]]))
            for number, place in zip(order.tolist(), used[order].tolist(), strict=True)
        )
        renamed = np.empty(len(order), np.int32)
        renamed[order] = np.arange(len(order))
        self.kind = require.kept(renamed[places.ravel()])
        self.agents = require.kept(numbers)

    @classmethod
    def of(cls, name: str, budgets: Any) -> Budgets:
        """From a budget per agent; the same object where it is one already.

        Args:
          name: what errors call it.
          budgets: in any order.
        """
        if isinstance(budgets, Budgets):
            return budgets
        if not require.is_sequence(budgets):
            require.fail(name, "a list of budgets", budgets)
        known: dict[AgentBudget, int] = {}
        kind, agents = np.empty(len(budgets), np.int64), np.empty(len(budgets), np.int64)
        for place, budget in enumerate(budgets):
            require.instance(name, budget, AgentBudget, "budgets of agents")
            agents[place] = budget.agent
            kind[place] = known.setdefault(_of(budget, 0), len(known))
        return cls(known, kind, agents)

    def __len__(self) -> int:
        return len(self.kind)

    @overload
    def __getitem__(self, place: int) -> AgentBudget: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[AgentBudget, ...]: ...
    def __getitem__(self, place: int | slice) -> AgentBudget | tuple[AgentBudget, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(len(self))[place])
        return _of(self.kinds[self.kind[place]], int(self.agents[place]))

    def __iter__(self) -> Iterator[AgentBudget]:
        for kind, agent in zip(self.kind.tolist(), self.agents.tolist(), strict=True):
            yield _of(self.kinds[kind], agent)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Budgets):
            return isinstance(other, tuple) and tuple(self) == other
        if not np.array_equal(self.agents, other.agents):
            return False
        # Kinds may be finer in one of them: what counts is everybody's budget.
        pairs = np.unique(np.stack([self.kind, other.kind]), axis=1).T.tolist()
        return all(_of(self.kinds[a], 0) == _of(other.kinds[b], 0) for a, b in pairs)

    def __hash__(self) -> int:
        return hash((self.kinds[:1], self.agents.tobytes()))

    def __repr__(self) -> str:
        return f"Budgets({len(self):,} agents of {len(self.kinds):,} kinds)"

    def groups(self) -> list[Group]:
        """The kinds with their agents, in the order of their first ones."""
        order = np.argsort(self.kind, kind="stable")
        ends = np.cumsum(np.bincount(self.kind, minlength=len(self.kinds)))
        parts = np.split(self.agents[order], ends[:-1]) if self.kinds else []
        return [Group(budget, part) for budget, part in zip(self.kinds, parts, strict=True)]

    def each(self, read: Callable[[AgentBudget], float]) -> list[float]:
        """A number of every agent's.

        Args:
          read: what is asked of a budget; not its agent.
        """
        return np.array([read(budget) for budget in self.kinds], float)[self.kind].tolist()

    def changed(self, change: Callable[[AgentBudget], AgentBudget]) -> Budgets:
        """The same agents with other budgets.

        Args:
          change: what becomes of a budget, whoever has it.
        """
        return Budgets(map(change, self.kinds), self.kind, self.agents)

    def put(self, budget: AgentBudget) -> Budgets:
        """The same with another budget for the agent that it names."""
        kind = self.kind.copy()
        kind[self.agents == budget.agent] = len(self.kinds)
        return Budgets((*self.kinds, budget), kind, self.agents)

    def to_plain(self, encode: Callable[[Any], Any]) -> Any:
        """As files have it: a list with an entry per agent, or, of many, kinds and whose they are.

        Args:
          encode: writes a budget.
        """
        if len(self) <= LISTED:
            return [encode(budget) for budget in self]
        return {
            "agents": ranges(self.agents),
            "kind": runs(self.kind),
            "kinds": [encode(budget) for budget in self.kinds],
        }

    @classmethod
    def from_plain(cls, data: Any, path: str, decode: Callable[[Any, Any, str], Any]) -> Budgets:
        """What `to_plain` wrote; ValueError with the path otherwise.

        Args:
          data: from a file.
          path: where it stands there.
          decode: reads a value of a type at a path.
        """
        if not isinstance(data, dict):
            return cls.of(path, decode(tuple[AgentBudget, ...], data, path))
        keys = ("agents", "kind", "kinds")
        if set(data) != set(keys):
            require.fail(path, f"a list, or an object with the keys {', '.join(keys)}", list(data))
        kinds = decode(tuple[AgentBudget, ...], data["kinds"], f"{path}.kinds")
        agents = read_ranges(f"{path}.agents", data["agents"])
        kind = read_runs(f"{path}.kind", data["kind"])
        if len(kind) != len(agents):
            rule = f"the kinds of the {len(agents):,} agents"
            require.fail(f"{path}.kind", rule, f"{len(kind):,} of them")
        if len(kind) and int(kind.max()) >= len(kinds):
            rule = f"below the {len(kinds)} kinds"
            require.fail(f"{path}.kind", rule, int(kind.max()))
        found = cls(kinds, kind, agents)
        # A budget that nobody has, or that of another agent, would be a change that is not seen.
        if found.kinds != kinds:
            require.fail(
                f"{path}.kinds", "in the order of their first agents, each had by one", kinds
            )
        return found


def _of(budget: AgentBudget, agent: int) -> AgentBudget:
    """The same budget as another agent's: it has been checked."""
    if budget.agent == agent:
        return budget
    found = copy.copy(budget)
    object.__setattr__(found, "agent", agent)
    return found


def _formula(name: str, value: Any) -> float:
    return math.nan if isinstance(value, float) and math.isnan(value) else require.real(name, value)
