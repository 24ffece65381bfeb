"""The curve of a budget over the number of colluders, where agents share noise: its points, what
makes it one, and how it is told.

Its last point is that of all others colluding: what the agent's own noise alone gives, against
unlimited computing power and whatever the others do. It is shown wherever the budget is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.words import Row, few, show, who

if TYPE_CHECKING:
    from hearsay.privacy.budgets import Group
    from hearsay.privacy.certificate import Certificate

ALL = "all others collude"
# Different curves that are told one by one.
_ROWS = 8


@dataclass(frozen=True)
class Colluding:
    """A point of an agent's curve: its epsilon if so many of the others collude.

    Args:
      colluders: of the other agents, the worst ones that there are.
      epsilon: at the certificate's delta.
      how: the worst coalition was found: "exact", "closed form", or a bound that is proved.
    """

    colluders: int
    epsilon: float
    how: str

    def __post_init__(self) -> None:
        require.settle(self, colluders=require.natural, epsilon=require.nonnegative_or_infinite)


class CurveTable(NamedTuple):
    """Curves as a table.

    Args:
      sizes: the numbers of colluders, one per column.
      rows: whose, and an epsilon per column.
      rest: a line about the agents that are left out, or "".
    """

    sizes: tuple[int, ...]
    rows: list[tuple[str, list[str]]]
    rest: str


def require_ordered(points: Sequence[Colluding]) -> None:
    """Refuse what no curve is: more colluders never cost less."""
    for one, two in pairwise(points):
        if one.colluders >= two.colluders:
            rule = "of increasing numbers of colluders"
            require.fail("curve", rule, (one.colluders, two.colluders))
        if not one.epsilon <= two.epsilon:
            require.fail(
                "curve",
                f"never falling: {one.epsilon!r} against {one.colluders} colluders",
                f"{two.epsilon!r} against {two.colluders}",
            )


def require_curves(certificate: Certificate) -> None:
    """Refuse a certificate whose curves are not those of its secrets."""
    shared = certificate.secrets
    for budget in certificate.budgets.kinds:
        where = f"curve of agent {budget.agent}"
        if shared is None:
            if budget.curve:
                rule = "left out where no noise is shared (secrets)"
                require.fail(where, rule, budget.curve[:2])
            continue
        if (last := int(certificate.budgets.agents.max())) >= shared.agents:
            rule = f"of more than {last} agents, whose budget is stated"
            require.fail("secrets", rule, shared.agents)
        sizes = [point.colluders for point in budget.curve]
        if not sizes or sizes[-1] != shared.agents - 1:
            require.fail(where, f"up to all {shared.agents - 1} others colluding", sizes)
        if budget.description is None:
            continue
        planned = certificate.descriptions[budget.description].adversary.colluders
        if planned is None or planned not in sizes:
            require.fail(where, f"with the planned number of colluders, {planned}", sizes)
        if (at := budget.at(planned)) != budget.epsilon:
            require.fail(where, f"at epsilon = {budget.epsilon!r} for {planned} colluders", at)
    for place, one in enumerate(certificate.descriptions):
        planned = one.adversary.colluders
        if (planned is None) != (shared is None):
            rule = "given where budgets count on a number of colluders, and only there"
            require.fail("secrets", f"{rule} (descriptions[{place}])", planned)
    # One number stands above all epsilons.
    known = {d.adversary.colluders for d in certificate.descriptions}
    if len(known) > 1:
        stated = sorted(map(str, known))[:5]
        require.fail("colluders", "the same number for all agents", ", ".join(stated))


def table(certificate: Certificate) -> CurveTable:
    """The curves, agents with the same one together, the largest first."""
    budgets, groups = certificate.budgets, dict[tuple[str, ...], list["Group"]]()
    sizes = tuple(sorted({point.colluders for b in budgets.kinds for point in b.curve}))
    for group in budgets.groups():
        known = {point.colluders: show(point.epsilon) for point in group.budget.curve}
        groups.setdefault(tuple(known.get(q, "") for q in sizes), []).append(group)
    ordered = sorted(groups.items(), key=lambda found: -found[1][0].budget.epsilon)
    told = [(np.concatenate([one.agents for one in same]), cells) for cells, same in ordered]
    rows = [
        (who(np.sort(agents), len(budgets), certificate.names), list(cells))
        for agents, cells in told[:_ROWS]
    ]
    left = sum(len(agents) for agents, _ in told[_ROWS:])
    return CurveTable(sizes, rows, f"... and {left:,} more agents" if left else "")


def found_how(certificate: Certificate) -> str:
    """How the worst coalitions were found, in words."""
    return few([_how(b.curve) for b in certificate.budgets.kinds], "; ", most=3)


def lines(certificate: Certificate) -> list[str]:
    """What the text of a certificate says of its curves; nothing without secrets."""
    if certificate.secrets is None:
        return []
    sizes, rows, rest = table(certificate)
    heads = [str(q) for q in sizes[:-1]] + [f"all {sizes[-1]}"]
    wide = max(len("colluders"), *(len(whose) for whose, _ in rows)) if rows else 0
    widths = [
        max(len(head), *(len(cells[i]) for _, cells in rows)) if rows else 0
        for i, head in enumerate(heads)
    ]
    found: list[str] = ["", "  epsilon if that many of the others collude, the worst ones:"]
    for whose, cells in [("colluders", heads), *rows]:
        numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        found.append(Row(f"    {whose:<{wide}}{numbers}"))
    found += [f"    {rest}"] if rest else []
    return [*found, f"    worst coalitions: {found_how(certificate)}"]


def _how(points: Sequence[Colluding]) -> str:
    """exact for 0 to 2 colluders, ..."""
    runs = [(how, list(same)) for how, same in groupby(points, key=lambda point: point.how)]
    if len(runs) == 1:
        return runs[0][0]
    parts = []
    for how, same in runs:
        first, last = same[0].colluders, same[-1].colluders
        parts.append(f"{how} ({first if first == last else f'{first} to {last}'})")
    return ", ".join(parts)
