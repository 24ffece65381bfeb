"""The certificate: what a user reads, keeps and shows to others.

It says for every agent the number, the horizon, the participation pattern, what the number rests on
(each assumption marked enforced, derived or declared) and what dominates it. `paper_epsilon` is the
source paper's own formula, for reproducing its curves; it is never a guarantee.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from hearsay import _validate as require
from hearsay.privacy.recursion import Assumption

_WIDTH = 118
_ROWS = 20  # of the table; more agents than this are put together by what their rows say
ADJACENCY = (
    "two data sets of one agent that differ in one record (replaced by any other admissible record)"
)
ADVERSARY = "sees every message of every agent; the other agents may behave arbitrarily"
NOT_COVERED = (
    "an agent's own model, which never leaves it: publish an average of its messages instead, that"
    " is free"
)
PAPER = "the paper's formula, not a guarantee"
FLOATING = "; floating-point noise, which is an idealisation outside deployed mode"


@dataclass(frozen=True)
class Lifetime:
    """What the same records have spent in other runs on this host, and with this one:
    the largest over all records, at `delta` (0: pure).
    """

    before: float
    total: float
    delta: float
    runs: tuple[str, ...] = ()
    records: int = 0  # how many of this run's records were in other runs

    def __post_init__(self) -> None:
        require.settle(
            self,
            before=require.nonnegative_or_infinite,
            total=require.nonnegative_or_infinite,
            delta=require.nonnegative_or_infinite,
            records=require.natural,
        )

    def __str__(self) -> str:
        at = f" at delta = {self.delta:.3g}" if self.delta else ""
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

    agent: int
    epsilon: float
    basis: str
    pattern: str
    dominated_by: str
    paper_epsilon: float | None = None
    epsilon_at_delta: float | None = None
    rho: float | None = None
    reason: str = ""
    assumptions: tuple[Assumption, ...] = ()
    delta: float | None = None
    lifetime: Lifetime | None = None

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
        )
        if self.delta is not None and self.delta > 1:
            require.fail("delta", "at most 1", self.delta)
        # The paper's formula may be anything, undefined too: it is no guarantee.
        require.settle(self, paper_epsilon=require.optional(_formula))


class Column(NamedTuple):
    """A column of the table of budgets: its heading in text and on a page,
    and what it says of an agent.
    """

    name: str
    title: str
    cell: Callable[[AgentBudget], str]


@dataclass(frozen=True)
class Certificate:
    algorithm: str
    horizon: float
    mechanism: str
    budgets: tuple[AgentBudget, ...]
    delta: float | None = None
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of the agents, where they have any
    deployed: bool = False  # the noise is exact, on a lattice

    def __post_init__(self) -> None:
        require.settle(
            self,
            horizon=require.horizon,
            delta=require.optional(require.fraction),
            deployed=require.flag,
        )
        require.one_of("mechanism", self.mechanism, ["laplace", "gaussian", "ternary"])
        # An epsilon without the delta that it holds at would read as a pure one.
        at_delta = self.mechanism == "gaussian" or any(
            b.epsilon_at_delta is not None for b in self.budgets
        )
        own = self.mechanism == "ternary" and any(b.delta is None for b in self.budgets)
        if own or (at_delta and self.delta is None):
            require.fail("delta", "given where an epsilon holds at one", None)
        if self.names and any(b.agent >= len(self.names) for b in self.budgets):
            require.fail("names", "one for each agent", self.names)

    @property
    def epsilon(self) -> list[float]:
        """epsilon per agent."""
        return [b.epsilon for b in self.budgets]

    @property
    def slack(self) -> float | None:
        """The delta at which the epsilons hold; None where they are pure."""
        own = [b.delta for b in self.budgets if b.delta is not None]
        return max(own) if own else self.delta if self.mechanism == "gaussian" else None

    @property
    def finite(self) -> bool:
        return all(math.isfinite(e) for e in self.epsilon)

    def to_json(self) -> str:
        """JSON in which infinite numbers are the string "infinite" (JSON has no infinity)."""
        return json.dumps(plain(asdict(self)), indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> Certificate:
        """What `to_json` wrote; ValueError for anything else."""
        try:
            data = json.loads(text, object_pairs_hook=_once)
        except ValueError as error:
            raise ValueError(f"a certificate must be JSON as to_json writes it: {error}") from error
        found: Certificate = _record("certificate", Certificate, data)
        return found

    def of(self, agent: int) -> Certificate:
        """The part of it that is about one agent."""
        return replace(self, budgets=tuple(b for b in self.budgets if b.agent == agent))

    @property
    def patterns(self) -> str:
        """How the agents use their records."""
        return few([b.pattern for b in self.budgets], "; ")

    @property
    def bases(self) -> str:
        """What the bounds come from."""
        return few([b.basis for b in self.budgets], "; ")

    @property
    def not_covered(self) -> str:
        return NOT_COVERED + ("" if self.deployed else FLOATING)

    def who(self, agents: Sequence[int]) -> str:
        """Some of its agents in words."""
        return who(agents, len(self.budgets), self.names)

    def columns(self) -> list[Column]:
        """What the table of budgets says, in text and on a page."""
        budgets = self.budgets
        found = [Column("epsilon", "epsilon", lambda b: show(b.epsilon))]
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
                (_name(b.agent, self.names), cells)
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
        return "\n".join(_wrapped(line) for line in self._lines())

    def _lines(self) -> list[str]:
        delta = (
            f", delta = {self.delta!r}"
            if self.delta is not None and self.mechanism == "gaussian"
            else ""
        )
        ternary = any(b.delta is not None for b in self.budgets)
        lines = [
            (
                f"Privacy certificate: {self.algorithm}, {show_horizon(self.horizon)},"
                f" {self.mechanism} {'messages' if ternary else 'noise'}{delta}"
            ),
            f"  protects  {ADJACENCY}",
            f"  against   someone who {ADVERSARY}",
            "",
        ]
        columns, (rows, rest) = self.columns(), self.rows()
        wide = max(5, *(len(whose) for whose, _ in rows)) if rows else 5
        widths = [max(10, len(c.name)) for c in columns[:-1]]
        for whose, cells in [("agent", [c.name for c in columns]), *rows]:
            numbers = "".join(
                f"  {cell:>{width}}" for cell, width in zip(cells[:-1], widths, strict=True)
            )
            lines.append(_Row(f"  {whose:>{wide}}{numbers}  {cells[-1]}"))
        lines += [f"  {rest}"] if rest else []
        known = [b for b in self.budgets if b.lifetime is not None]
        lines += [f"  lifetime  {_name(b.agent, self.names)}: {b.lifetime}" for b in known[:20]]
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


class _Row(str):
    """A row of the table, which stays whole."""


def _wrapped(line: str) -> str:
    """Long prose continues under its own start."""
    if len(line) <= _WIDTH or isinstance(line, _Row):
        return line
    indent = len(line) - len(line.lstrip())
    hang = (
        line.index("]") + 2
        if line.lstrip().startswith("[")
        else max(indent + 2, 12 if indent == 2 else indent)
    )
    return textwrap.fill(line, _WIDTH, subsequent_indent=" " * hang)


@require.plain_arguments
def show(value: float | None) -> str:
    if value is None:
        return "-"
    if math.isnan(value):
        return "undefined"
    if value < 0:  # a paper's formula may be
        return f"-{show(-value)}"
    if math.isinf(value):
        return "infinite"
    if 0 < value < 1e-300:  # digits that no power of ten of theirs can hold
        return "1e-300"
    # Rounded up in the last printed digit: a printed budget must not lie below the computed one.
    digits = 4 if value == 0 else max(0, 3 - math.floor(math.log10(value)))
    unit = 10.0**-digits
    return (
        f"{math.ceil(value / unit - 1e-9) * unit:,.{digits}f}"
        if value < 1e6
        else f"{min(value * 1.0005, 1.797e308):.3e}"
    )


@require.plain_arguments
def show_horizon(horizon: float) -> str:
    if math.isinf(horizon):
        return "infinite horizon"
    return f"{int(horizon):,} message{'' if horizon == 1 else 's'}"


@require.plain_arguments
def who(
    agents: Sequence[int], total: int, names: Sequence[str] = (), *, short: bool = False
) -> str:
    """Agents in words, runs of neighbours joined: "every agent", "agents 0–3, 7",
    "40 agents (0, 2, …)"; `short`: 0–3, 7.
    """
    if len(agents) == total and total > 1:
        return "every agent"
    parts = [_name(a, names) for a in agents] if names else _joined(agents)
    shown = ", ".join(parts[:6])
    if len(parts) > 6:
        return f"{len(agents):,} agents ({shown}, …)"
    return shown if short else ("agent " if len(agents) == 1 else "agents ") + shown


@require.plain_arguments
def few(values: Sequence[object], between: str, most: int = 6) -> str:
    """Different values in words, the first of them and how many more there are."""
    distinct = list(dict.fromkeys(map(str, values)))
    more = [f"... and {len(distinct) - most:,} more"] if len(distinct) > most else []
    return between.join([*distinct[:most], *more])


def _joined(agents: Sequence[int]) -> list[str]:
    """Runs of neighbours: "0–3", "7"."""
    runs: list[list[int]] = []
    for agent in sorted(agents):
        if runs and agent == runs[-1][-1] + 1:
            runs[-1].append(agent)
        else:
            runs.append([agent])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else map(str, run)
    return parts


def _name(agent: int, names: Sequence[str]) -> str:
    return names[agent] if names else str(agent)


def _size(budget: AgentBudget) -> float:
    """The number that tells how much an agent has spent."""
    return budget.epsilon if budget.delta is None else budget.delta


def _formula(name: str, value: Any) -> float:
    return math.nan if isinstance(value, float) and math.isnan(value) else require.real(name, value)


def plain(value: Any) -> Any:
    """As JSON can have it, which has no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a key that is there twice says two things."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a key must be there once, got {', '.join(key for key, _ in pairs)}")
    return found


_NUMBERS = {"infinite": math.inf, "-infinite": -math.inf, "nan": math.nan}
_PARTS = {"budgets": "AgentBudget", "assumptions": "Assumption", "lifetime": "Lifetime"}


def _record(name: str, kind: type, data: Any) -> Any:
    """A dataclass from the object of JSON that `plain` made of it.

    What a field is annotated with says which strings are numbers and which are words.
    """
    if not isinstance(data, dict):
        require.fail(name, "an object with the fields of a certificate", data)
    known = {f.name: f for f in fields(kind)}
    for key in data:
        require.one_of(f"key of a {name}", key, known)
    needed = [key for key, f in known.items() if f.default is MISSING and key not in data]
    if needed:
        raise ValueError(f"a key is missing from {name}: {', '.join(needed)}")
    return kind(**{key: _field(key, str(known[key].type), value) for key, value in data.items()})


def _field(name: str, annotation: str, value: Any) -> Any:
    if value is None and "None" in annotation:
        return None
    if name in _PARTS:
        kinds = {"AgentBudget": AgentBudget, "Assumption": Assumption, "Lifetime": Lifetime}
        kind = kinds[_PARTS[name]]
        if not annotation.startswith("tuple"):
            return _record(name, kind, value)
        return tuple(_record(name, kind, one) for one in _list(name, value))
    if annotation.startswith("tuple"):
        return tuple(_word(name, one) for one in _list(name, value))
    if annotation == "str":
        return _word(name, value)
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _list(name: str, value: Any) -> list:
    if not isinstance(value, list):
        require.fail(name, "a list", value)
    return value


def _word(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {value!r:.80}")
    return value
