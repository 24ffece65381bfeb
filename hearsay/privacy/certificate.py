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
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms import MECHANISMS
from hearsay.privacy import codec
from hearsay.privacy.account import Assumption
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.budgets import AgentBudget as AgentBudget
from hearsay.privacy.budgets import Budgets as Budgets
from hearsay.privacy.budgets import Group
from hearsay.privacy.budgets import Lifetime as Lifetime
from hearsay.privacy.coalitions import Shared
from hearsay.privacy.curve import ALL, require_curves
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
      budgets: one per agent; agents of one kind share theirs (`Budgets`).
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
    budgets: Budgets
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
            budgets=Budgets.of,
            delta=require.optional(require.fraction),
            deployed=require.flag,
        )
        require.one_of("mechanism", self.mechanism, MECHANISMS)
        law, kinds = MECHANISMS[self.mechanism], self.budgets.kinds
        # An epsilon without the delta that it holds at would read as a pure one.
        at_delta = law.at_delta or any(b.epsilon_at_delta is not None for b in kinds)
        own = law.unit == "delta" and any(b.delta is None for b in kinds)
        if own or (at_delta and self.delta is None):
            require.fail("delta", "given where an epsilon holds at one", None)
        if self.names and self.budgets.agents.max(initial=-1) >= len(self.names):
            require.fail("names", "one for each agent", self.names)
        for b in kinds:
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
        return self.budgets.each(lambda b: b.epsilon)

    def at(self, colluders: int) -> list[float]:
        """epsilon per agent if that many of the others collude.

        Args:
          colluders: a number that the curves have a point for.
        """
        return self.budgets.each(lambda b: b.at(colluders))

    @property
    def all_collude(self) -> list[float]:
        """epsilon per agent if all others collude: what its own noise alone gives."""
        return self.budgets.each(lambda b: b.all_collude)

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
        most = max(b.all_collude for b in self.budgets.kinds)
        return f"{planned}, {show(most)} if {ALL}"

    @property
    def slack(self) -> float | None:
        """The delta at which the epsilons hold; None where they are pure."""
        own = [b.delta for b in self.budgets.kinds if b.delta is not None]
        return max(own) if own else self.delta if MECHANISMS[self.mechanism].at_delta else None

    @property
    def finite(self) -> bool:
        return all(math.isfinite(b.epsilon) for b in self.budgets.kinds)

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
        """The part of it that is about one agent.

        Args:
          agent: its number.
        """
        if isinstance(agent, Certificate):
            rule = "the number of an agent (add_up adds certificates)"
            require.fail("agent", rule, "a certificate")
        agent = require.natural("agent", agent)
        places = np.flatnonzero(self.budgets.agents == agent).tolist()
        if not places:
            require.fail("agent", "one that this certificate is about", agent)
        budgets = [self.budgets[place] for place in places]
        used = sorted({b.description for b in budgets if b.description is not None})
        moved = {old: new for new, old in enumerate(used)}
        budgets = [
            b if b.description is None else replace(b, description=moved[b.description])
            for b in budgets
        ]
        kept = tuple(self.descriptions[place] for place in used)
        return replace(self, budgets=Budgets.of("budgets", budgets), descriptions=kept)

    @property
    def patterns(self) -> str:
        """How the agents use their records."""
        return few([b.pattern for b in self.budgets.kinds], "; ")

    @property
    def bases(self) -> str:
        """What the bounds come from."""
        return few([b.basis for b in self.budgets.kinds], "; ")

    @property
    def compared(self) -> str:
        """Which of two epsilons a target or a budget is about; "" where there is one only."""
        if all(b.epsilon_at_delta is None for b in self.budgets.kinds):
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

    def who(self, agents: Sequence[int] | np.ndarray) -> str:
        """Some of its agents in words."""
        return who(agents, len(self.budgets), self.names)

    def columns(self) -> list[Column]:
        """What the table of budgets says, in text and on a page."""
        budgets = self.budgets.kinds
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
        if len(self.budgets) <= _ROWS:
            return [
                (name(b.agent, self.names), [column.cell(b) for column in columns])
                for b in self.budgets
            ], ""
        alike: dict[tuple[str, ...], list[Group]] = {}
        for group in self.budgets.groups():
            cells = tuple(column.cell(group.budget) for column in columns)
            alike.setdefault(cells, []).append(group)
        ordered = sorted(alike.items(), key=lambda found: -_size(found[1][0].budget))
        rows = [
            (who(_agents(same), 0, self.names, short=True), list(cells))
            for cells, same in ordered[:_ROWS]
        ]
        rest = [group for _, same in ordered[_ROWS:] for group in same]
        if not rest:
            return rows, ""
        low, high = _size(rest[-1].budget), _size(rest[0].budget)
        unit = "epsilon" if rest[0].budget.delta is None else "delta"
        return (
            rows,
            f"... and {sum(len(group.agents) for group in rest):,} more agents, with {unit} between"
            f" {show(low)} and {show(high)}",
        )

    def assumed(self) -> list[tuple[Assumption, np.ndarray]]:
        """Every assumption with the agents it concerns, in order of first appearance."""
        seen: dict[Assumption, list[Group]] = {}
        for group in self.budgets.groups():
            for assumption in group.budget.assumptions:
                seen.setdefault(assumption, []).append(group)
        return [(assumption, _agents(groups)) for assumption, groups in seen.items()]

    def shared_assumptions(self) -> list[tuple[Assumption, list[int]]]:
        """The same with lists of agents."""
        return [(assumption, agents.tolist()) for assumption, agents in self.assumed()]

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
        kinds = self.budgets.kinds
        known = [b for b in kinds if b.lifetime is not None]
        lines += [f"  lifetime  {name(b.agent, self.names)}: {b.lifetime}" for b in known[:20]]
        lines += ["", f"  pattern   {self.patterns}", f"  bound by  {self.bases}", "", "  rests on"]
        for assumption, agents in self.assumed():
            whose = "" if len(agents) == len(self.budgets) else f" ({self.who(agents)})"
            lines.append(f"    [{assumption.kind:>8}] {assumption.text}{whose}")
        lines += ["", f"  not covered: {self.not_covered}"]
        lines += [f"  warning: {w}" for w in self.warnings]
        if any(b.paper_epsilon is not None for b in kinds):
            lines.append(
                "  * the source paper's formula with our constants, for comparison only: not a"
                " guarantee"
            )
        return lines


def _agents(groups: Sequence[Group]) -> np.ndarray:
    """Of all of them, in order."""
    return np.sort(np.concatenate([group.agents for group in groups]))


def _size(budget: AgentBudget) -> float:
    """The number that tells how much an agent has spent."""
    return budget.epsilon if budget.delta is None else budget.delta


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
