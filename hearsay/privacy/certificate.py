"""The certificate: what a user reads, keeps and shows to others.

It says for every agent the number, the horizon, the participation pattern, what the number rests on
(each assumption marked enforced, derived or declared) and what dominates it. `paper_epsilon` is the
source paper's own formula, for reproducing its curves; it is never a guarantee.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from hearsay import _validate as require
from hearsay.mechanisms import MECHANISMS
from hearsay.privacy import codec
from hearsay.privacy.account import Assumption, Numbers
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.coalitions import Shared
from hearsay.privacy.curve import ALL, require_curves, require_ordered
from hearsay.privacy.curve import Colluding as Colluding
from hearsay.privacy.curve import lines as curve_lines
from hearsay.privacy.description import Adjacency, Adversary, Description
from hearsay.privacy.words import Row, name, wrapped
from hearsay.privacy.words import few as few
from hearsay.privacy.words import show as show
from hearsay.privacy.words import show_horizon as show_horizon
from hearsay.privacy.words import who as who

_ROWS = 20  # of the table; more agents than this are put together by what their rows say
NOT_COVERED = (
    "an agent's own model, which never leaves it: publish an average of its messages instead, that"
    " is free (run.release(), hearsay network release); metrics, checkpoints and reports, which are"
    " computed from records or hold an agent's state: the names of such files say private"
)
PAPER = "the paper's formula, not a guarantee"
FLOATING = "; floating-point noise, which is an idealisation outside deployed mode"
SEEDED = (
    "; secret batches, which a simulation draws from its seeds (of the noise for Poisson, of the"
    " problem for subsets): they are secret in deployed mode"
)
UNSHARED = (
    "; shared noise, which a simulation draws from its seeds: pairs of agents have secrets in"
    " deployed mode"
)


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


class Column(NamedTuple):
    """A column of the table of budgets: its heading in text and on a page,
    and what it says of an agent.
    """

    name: str
    title: str
    cell: Callable[[AgentBudget], str]


@dataclass(frozen=True)
class Certificate:
    """What a run costs every agent.

    Args:
      algorithm: its name.
      horizon: the number of messages, or inf.
      mechanism: the name of the law of the noise.
      budgets: one per agent.
      delta: at which epsilons hold, where they hold at one.
      warnings: what the reader should know.
      names: of the agents, where they have any.
      deployed: the noise is exact, on a lattice.
      descriptions: what the numbers follow from, each once; a budget names its own.
      secrets: who shares noise with whom, where anybody does; epsilons are then those against as
        many colluders as the descriptions' adversaries have.
    """

    earlier_versions: ClassVar[bool] = True

    algorithm: str
    horizon: float
    mechanism: str
    budgets: tuple[AgentBudget, ...]
    delta: float | None = None
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    deployed: bool = False
    descriptions: tuple[Description, ...] = ()
    secrets: Shared | None = None

    def __post_init__(self) -> None:
        require.settle(
            self,
            horizon=require.horizon,
            delta=require.optional(require.fraction),
            deployed=require.flag,
        )
        require.one_of("mechanism", self.mechanism, MECHANISMS)
        law = MECHANISMS[self.mechanism]
        # An epsilon without the delta that it holds at would read as a pure one.
        at_delta = law.at_delta or any(b.epsilon_at_delta is not None for b in self.budgets)
        own = law.unit == "delta" and any(b.delta is None for b in self.budgets)
        if own or (at_delta and self.delta is None):
            require.fail("delta", "given where an epsilon holds at one", None)
        if self.names and any(b.agent >= len(self.names) for b in self.budgets):
            require.fail("names", "one for each agent", self.names)
        for b in self.budgets:
            if b.description is not None and b.description >= len(self.descriptions):
                require.fail(
                    f"description of agent {b.agent}",
                    f"below the {len(self.descriptions)} descriptions",
                    b.description,
                )
        require_curves(self)

    def amplified(self, agent: int) -> bool:
        """That agent's budget counts on its batches being secret."""
        place = self.budgets[agent].description
        return place is not None and self.descriptions[place].account.amplified

    @property
    def epsilon(self) -> list[float]:
        """epsilon per agent."""
        return [b.epsilon for b in self.budgets]

    def at(self, colluders: int) -> list[float]:
        """epsilon per agent if that many of the others collude.

        Args:
          colluders: a number that the curves have a point for.
        """
        return [b.at(colluders) for b in self.budgets]

    @property
    def all_collude(self) -> list[float]:
        """epsilon per agent if all others collude: what its own noise alone gives."""
        return [b.all_collude for b in self.budgets]

    @property
    def colluders(self) -> int | None:
        """How many of the other agents `epsilon` allows to collude; None: all of them."""
        known = [d.adversary.colluders for d in self.descriptions]
        return max((q for q in known if q is not None), default=None)

    @property
    def collusion(self) -> str:
        """Beside the largest epsilon: what it allows for, and what it is otherwise; "" where it
        holds whoever colludes.
        """
        if self.secrets is None:
            return ""
        planned = "if nobody colludes" if not self.colluders else f"if {self.colluders} collude"
        return f"{planned}, {show(max(self.all_collude))} if {ALL}"

    @property
    def slack(self) -> float | None:
        """The delta at which the epsilons hold; None where they are pure."""
        own = [b.delta for b in self.budgets if b.delta is not None]
        return max(own) if own else self.delta if MECHANISMS[self.mechanism].at_delta else None

    @property
    def finite(self) -> bool:
        return all(math.isfinite(e) for e in self.epsilon)

    @property
    def adversaries(self) -> str:
        """Whom it protects against."""
        return few([d.adversary for d in self.descriptions] or [Adversary()], "; ")

    @property
    def adjacency(self) -> str:
        """The relation that all its numbers are about: "replace" or "zero-out"."""
        return few([d.adjacency.relation for d in self.descriptions] or [REPLACE], ", ")

    @property
    def adjacencies(self) -> str:
        """What it protects."""
        return few([d.adjacency for d in self.descriptions] or [Adjacency()], "; ")

    def to_json(self) -> str:
        """JSON in which infinite numbers are the string "infinite" (JSON has no infinity).

        The last key is a digest of all others, so that damage is seen.
        """
        body = codec.encode(self)
        return json.dumps({**body, "digest": _digest(body)}, indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> Certificate:
        """What `to_json` wrote; ValueError for anything else.

        Certificates of earlier versions have no descriptions and no digest.
        """
        found, damage, _ = examined(text)
        if damage:
            raise ValueError(damage)
        return found

    def of(self, agent: int) -> Certificate:
        """The part of it that is about one agent."""
        budgets = [b for b in self.budgets if b.agent == agent]
        used = sorted({b.description for b in budgets if b.description is not None})
        places = {old: new for new, old in enumerate(used)}
        budgets = [
            b if b.description is None else replace(b, description=places[b.description])
            for b in budgets
        ]
        kept = tuple(self.descriptions[place] for place in used)
        return replace(self, budgets=tuple(budgets), descriptions=kept)

    @property
    def patterns(self) -> str:
        """How the agents use their records."""
        return few([b.pattern for b in self.budgets], "; ")

    @property
    def bases(self) -> str:
        """What the bounds come from."""
        return few([b.basis for b in self.budgets], "; ")

    @property
    def compared(self) -> str:
        """Which of two epsilons a target or a budget is about; "" where there is one only."""
        if all(b.epsilon_at_delta is None for b in self.budgets):
            return ""
        return (
            f"epsilon at delta = {self.delta!r} is what a target or a budget at this delta is"
            " compared with, and what noise is calibrated to; epsilon is pure (delta = 0)"
        )

    @property
    def not_covered(self) -> str:
        if self.deployed:
            return NOT_COVERED
        secret = any(d.account.amplified for d in self.descriptions)
        shared = UNSHARED if self.secrets is not None else ""
        return NOT_COVERED + FLOATING + (SEEDED if secret else "") + shared

    def who(self, agents: Sequence[int]) -> str:
        """Some of its agents in words."""
        return who(agents, len(self.budgets), self.names)

    def columns(self) -> list[Column]:
        """What the table of budgets says, in text and on a page."""
        budgets = self.budgets
        found = [Column("epsilon", "epsilon", lambda b: show(b.epsilon))]
        if self.secrets is not None:
            at = f"epsilon if {self.colluders} of the others collude"
            found = [
                found[0]._replace(title=at),
                Column(ALL, f"epsilon if {ALL}", lambda b: show(b.all_collude)),
            ]
        if any(b.rho is not None for b in budgets):
            found.append(Column("rho", "rho", lambda b: show(b.rho)))
        if any(b.epsilon_at_delta is not None for b in budgets):
            at = f"at delta={self.delta!r}"
            found.append(Column(at, f"epsilon {at}", lambda b: show(b.epsilon_at_delta)))
        if any(b.delta is not None for b in budgets):
            found.append(Column("delta", "delta", lambda b: show(b.delta)))
        if any(b.paper_epsilon is not None for b in budgets):
            found.append(Column("paper formula*", PAPER, lambda b: show(b.paper_epsilon)))
        return [
            *found,
            Column("dominated by", "what dominates it", lambda b: b.reason or b.dominated_by),
        ]

    def rows(self) -> tuple[list[tuple[str, list[str]]], str]:
        """The table of budgets, as (whose, cells), and a line about those that are left out.

        Many agents are put together where their rows would be the same,
        the largest budgets first.
        """
        columns = self.columns()
        told = [[column.cell(b) for column in columns] for b in self.budgets]
        if len(told) <= _ROWS:
            return [
                (name(b.agent, self.names), cells)
                for b, cells in zip(self.budgets, told, strict=True)
            ], ""
        groups: dict[tuple[str, ...], list[AgentBudget]] = {}
        for budget, cells in zip(self.budgets, told, strict=True):
            groups.setdefault(tuple(cells), []).append(budget)
        ordered = sorted(groups.items(), key=lambda group: -_size(group[1][0]))
        rows = [
            (who([b.agent for b in same], 0, self.names, short=True), list(cells))
            for cells, same in ordered[:_ROWS]
        ]
        rest = [b for _, same in ordered[_ROWS:] for b in same]
        if not rest:
            return rows, ""
        low, high, unit = (
            _size(rest[-1]),
            _size(rest[0]),
            "epsilon" if rest[0].delta is None else "delta",
        )
        return (
            rows,
            f"... and {len(rest):,} more agents, with {unit} between {show(low)} and {show(high)}",
        )

    def shared_assumptions(self) -> list[tuple[Assumption, list[int]]]:
        """Every assumption with the agents it concerns, in order of first appearance."""
        seen: dict[Assumption, list[int]] = {}
        for budget in self.budgets:
            for assumption in budget.assumptions:
                seen.setdefault(assumption, []).append(budget.agent)
        return list(seen.items())

    def __str__(self) -> str:
        return "\n".join(wrapped(line) for line in self._lines())

    def _repr_html_(self) -> str:
        from hearsay.report.inline import certificate_html

        return certificate_html(self)

    def _lines(self) -> list[str]:
        delta = (
            f", delta = {self.delta!r}"
            if self.delta is not None and MECHANISMS[self.mechanism].at_delta
            else ""
        )
        lines = [
            (
                f"Privacy certificate: {self.algorithm}, {show_horizon(self.horizon)},"
                f" {self.mechanism} {MECHANISMS[self.mechanism].noun}{delta}"
            ),
            f"  protects  {self.adjacencies}",
            f"  against   someone who {self.adversaries}",
            "",
        ]
        columns, (rows, rest) = self.columns(), self.rows()
        wide = max(5, *(len(whose) for whose, _ in rows)) if rows else 5
        widths = [max(10, len(c.name)) for c in columns[:-1]]
        for whose, cells in [("agent", [c.name for c in columns]), *rows]:
            numbers = "".join(
                f"  {cell:>{width}}" for cell, width in zip(cells[:-1], widths, strict=True)
            )
            lines.append(Row(f"  {whose:>{wide}}{numbers}  {cells[-1]}"))
        lines += [f"  {rest}"] if rest else []
        lines += curve_lines(self)
        lines += [f"  {self.compared}"] if self.compared else []
        known = [b for b in self.budgets if b.lifetime is not None]
        lines += [f"  lifetime  {name(b.agent, self.names)}: {b.lifetime}" for b in known[:20]]
        lines += ["", f"  pattern   {self.patterns}", f"  bound by  {self.bases}", "", "  rests on"]
        for assumption, agents in self.shared_assumptions():
            whose = "" if len(agents) == len(self.budgets) else f" ({self.who(agents)})"
            lines.append(f"    [{assumption.kind:>8}] {assumption.text}{whose}")
        lines += ["", f"  not covered: {self.not_covered}"]
        lines += [f"  warning: {w}" for w in self.warnings]
        if any(b.paper_epsilon is not None for b in self.budgets):
            lines.append(
                "  * the source paper's formula with our constants, for comparison only: not a"
                " guarantee"
            )
        return lines


def _size(budget: AgentBudget) -> float:
    """The number that tells how much an agent has spent."""
    return budget.epsilon if budget.delta is None else budget.delta


def _formula(name: str, value: Any) -> float:
    return math.nan if isinstance(value, float) and math.isnan(value) else require.real(name, value)


def examined(text: str) -> tuple[Certificate, str, bool]:
    """(the certificate in a text, what its digest says is wrong with it, whether it has one)."""
    data = codec.read(text, "a certificate")
    has = isinstance(data, dict) and "digest" in data
    written = data.pop("digest") if has else None
    found: Certificate = codec.decode(Certificate, data, "certificate")
    if not has or written == _digest(data):
        return found, "", has
    damage = (
        "a certificate must be as it was written, and this one was changed since: its digest does"
        " not match"
    )
    return found, damage, has


def _digest(body: dict[str, Any]) -> str:
    """Of everything that is in the file, however it is laid out."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
