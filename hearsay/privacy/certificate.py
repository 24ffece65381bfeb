"""The certificate: what a user reads, keeps and shows to others.

It says for every agent the number, the horizon, the participation pattern, what the number rests on (each assumption marked enforced, derived
or declared) and what dominates it. `paper_epsilon` is the source paper's own formula, for reproducing its curves; it is never a guarantee.
"""

from __future__ import annotations

import json
import math
import textwrap
from dataclasses import asdict, dataclass, replace
from typing import Any

from hearsay.privacy.recursion import Assumption

_WIDTH = 118
ADJACENCY = "two data sets of one agent that differ in one record (replaced by any other admissible record)"
ADVERSARY = "sees every message of every agent; the other agents may behave arbitrarily"
NOT_COVERED = "an agent's own model, which never leaves it: publish an average of its messages instead, that is free"
FLOATING = "; floating-point noise, which is an idealisation outside deployed mode"


@dataclass(frozen=True)
class Lifetime:
    """What the same records have spent in other runs on this host, and with this one: the largest over all records, at `delta` (0: pure)."""

    before: float
    total: float
    delta: float
    runs: tuple[str, ...] = ()
    records: int = 0  # how many of this run's records were in other runs

    def __str__(self) -> str:
        at = f" at delta = {self.delta:.3g}" if self.delta else ""
        if not self.runs:
            return f"spent before nothing that this host knows of; with this run {show(self.total)}{at}"
        runs = f"run{'s' if len(self.runs) > 1 else ''} {_listed(list(self.runs))}; {self.records:,} of these records"
        return f"spent before {show(self.before)} ({runs}); with this run {show(self.total)}{at}"


@dataclass(frozen=True)
class AgentBudget:
    """One agent's budget. epsilon is pure (delta = 0) for Laplace noise; rho is set for Gaussian noise and epsilon then holds at the certificate's
    delta. A ternary quantizer has epsilon = 0 at a `delta` of the agent's own, and no budget at all where that reaches 1."""

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
        data = _unplain(json.loads(text))
        budgets = tuple(
            AgentBudget(
                **{
                    **b,
                    "assumptions": tuple(Assumption(**a) for a in b["assumptions"]),
                    "lifetime": (known := b.get("lifetime")) and Lifetime(**{**known, "runs": tuple(known["runs"])}),
                }
            )
            for b in data.pop("budgets")
        )
        lists = {name: tuple(data.get(name, ())) for name in ("warnings", "names")}
        return Certificate(**{**data, "budgets": budgets, **lists})

    def of(self, agent: int) -> Certificate:
        """The part of it that is about one agent."""
        return replace(self, budgets=tuple(b for b in self.budgets if b.agent == agent))

    def _name(self, agent: int) -> str:
        return self.names[agent] if self.names else str(agent)

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
        delta = f", delta = {self.delta:g}" if self.delta is not None and self.mechanism == "gaussian" else ""
        ternary = any(b.delta is not None for b in self.budgets)
        lines = [
            f"Privacy certificate: {self.algorithm}, {show_horizon(self.horizon)}, {self.mechanism} {'messages' if ternary else 'noise'}{delta}",
            f"  protects  {ADJACENCY}",
            f"  against   someone who {ADVERSARY}",
            "",
        ]
        at_delta = any(b.epsilon_at_delta is not None for b in self.budgets)
        paper = any(b.paper_epsilon is not None for b in self.budgets)
        wide = max(5, *(len(self._name(b.agent)) for b in self.budgets)) if self.budgets else 5
        head = f"  {'agent':>{wide}}  {'epsilon':>10}"
        head += f"  {f'at delta={self.delta:g}':>14}" if at_delta else ""
        head += f"  {'delta':>10}" if ternary else ""
        head += f"  {'paper formula*':>14}" if paper else ""
        lines.append(head + "  dominated by")
        shown = self.budgets if len(self.budgets) <= 20 else sorted(self.budgets, key=lambda b: -b.epsilon)[:20]
        for b in shown:
            row = f"  {self._name(b.agent):>{wide}}  {show(b.epsilon):>10}"
            row += f"  {show(b.epsilon_at_delta):>14}" if at_delta else ""
            row += f"  {show(b.delta):>10}" if ternary else ""
            row += f"  {show(b.paper_epsilon):>14}" if paper else ""
            lines.append(_Row(row + f"  {b.reason or b.dominated_by}"))
        if len(self.budgets) > len(shown):
            lines.append(f"  ... {len(self.budgets) - len(shown)} more agents, all with a smaller or equal epsilon")
        lines += [f"  lifetime  {self._name(b.agent)}: {b.lifetime}" for b in shown if b.lifetime is not None]
        lines += ["", f"  pattern   {'; '.join(dict.fromkeys(b.pattern for b in self.budgets))}"]
        lines += [f"  bound by  {'; '.join(dict.fromkeys(b.basis for b in self.budgets))}", "", "  rests on"]
        for assumption, agents in self.shared_assumptions():
            who = "" if len(agents) == len(self.budgets) else f" (agents {_listed([self._name(a) for a in agents])})"
            lines.append(f"    [{assumption.kind:>8}] {assumption.text}{who}")
        lines += ["", f"  not covered: {NOT_COVERED}{'' if self.deployed else FLOATING}"]
        lines += [f"  warning: {w}" for w in self.warnings]
        if paper:
            lines.append("  * the source paper's formula with our constants, for comparison only: not a guarantee")
        return lines


class _Row(str):
    """A row of the table, which stays whole."""


def _wrapped(line: str) -> str:
    """Long prose continues under its own start."""
    if len(line) <= _WIDTH or isinstance(line, _Row):
        return line
    indent = len(line) - len(line.lstrip())
    hang = line.index("]") + 2 if line.lstrip().startswith("[") else max(indent + 2, 12 if indent == 2 else indent)
    return textwrap.fill(line, _WIDTH, subsequent_indent=" " * hang)


def show(value: float | None) -> str:
    if value is None:
        return "-"
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "infinite"
    # Rounded up in the last printed digit: a printed budget must not lie below the computed one.
    digits = 4 if value == 0 else max(0, 3 - math.floor(math.log10(value)))
    unit = 10.0**-digits
    return f"{math.ceil(value / unit - 1e-9) * unit:,.{digits}f}" if value < 1e6 else f"{value * 1.0005:.3e}"


def show_horizon(horizon: float) -> str:
    if math.isinf(horizon):
        return "infinite horizon"
    return f"{int(horizon):,} message{'' if horizon == 1 else 's'}"


def _listed(agents: list[str]) -> str:
    return ", ".join(agents[:12]) + (", ..." if len(agents) > 12 else "")


def plain(value: Any) -> Any:
    """As JSON can have it, which has no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return "infinite" if value > 0 else "nan"
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def _unplain(value: Any) -> Any:
    if value == "infinite":
        return math.inf
    if value == "nan":
        return math.nan
    if isinstance(value, dict):
        return {k: _unplain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_unplain(v) for v in value]
    return value
