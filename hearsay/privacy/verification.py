"""Is a certificate what its description costs?

Every number of every agent (epsilon, rho, delta, epsilon at delta) is computed again from the
description that its budget names, with the same code that made it, rounding of a deployed run
included, and nothing else: no data, no algorithm, no network. What is proved is that the numbers
follow from the description. That the run was as described is declared by who made it.

A claim is refused where it is lower than its cost by more than `TOLERANCE`. That is a tenth of the
margin by which every number was rounded up (`OUTWARD`), so that what is accepted is still a bound:
machines differ in the last digits of a power or a sum, never by so much. A claim that is higher
than its cost is true, and said. `paper_epsilon` is no guarantee and is left alone; what records
spent in other runs (`lifetime`) is only checked for being possible.

Where agents share noise, who shares with whom is in the file, and what it is worth against every
number of colluders is found again (curve_verification.py).

A file may come from anybody: what would take too long or too much memory to compute is refused
(`_too_much`), and said to be so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hearsay.mechanisms import MECHANISMS
from hearsay.privacy.budgets import AgentBudget, Group
from hearsay.privacy.certificate import Certificate, examined, show, show_horizon
from hearsay.privacy.curve_verification import TOLERANCE as TOLERANCE
from hearsay.privacy.curve_verification import curve_faults, too_many
from hearsay.privacy.description import REFUTED, REHEARSED, UNCHECKED, Description, numbers

# What takes more is not computed again (Account.effort): for one budget, and for all together.
_NUMBERS_AT_ONCE, _OPERATIONS, _DIMENSION, _IN_ALL = 2**24, 2**34, 2**48, 2**36
# Agents with the same fault that are named one by one.
_NAMED = 20
_NUMBERS = ("epsilon", "rho", "delta", "epsilon_at_delta")
_UNSEEN = "there is no digest in this file: a change of its words would not be seen"


class Verdict(NamedTuple):
    """What a verifier has to say of a certificate.

    Args:
      wrong: what does not hold, one sentence each; empty: every number holds.
      notes: what holds and should be known.
      trusted: what is taken on trust: assumptions that are declared, and what an adversary weaker
        than the strongest is taken not to do.
      numbers: how many numbers were computed again.
    """

    wrong: tuple[str, ...]
    notes: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    numbers: int = 0

    @property
    def holds(self) -> bool:
        """Every number is at least what it costs."""
        return not self.wrong


@np.errstate(all="ignore")  # a power that overflows is a budget that is infinite
def verify_text(text: str) -> tuple[Certificate | None, Verdict]:
    """The certificate in a file and what is to be said of it; None where it is damaged."""
    try:
        certificate, damage, digest = examined(text)
    except (ValueError, TypeError) as error:
        return None, Verdict((str(error),))
    except RecursionError:
        return None, Verdict(("a certificate must not be nested so deeply",))
    verdict = verify(certificate)
    # The error names the numbers that are too low as well.
    wrong = (damage, *verdict.wrong) if damage else verdict.wrong
    notes = verdict.notes if digest else (*verdict.notes, _UNSEEN)
    return certificate, verdict._replace(wrong=wrong, notes=notes)


@np.errstate(all="ignore")
def verify(certificate: Certificate) -> Verdict:
    """Compute every number of a certificate again."""
    wrong = [*_shape(certificate)]
    if (work := _work(certificate)) > _IN_ALL:
        rule = f"messages times patterns of uses of all budgets must be at most {_IN_ALL:,}"
        return Verdict((*wrong, f"{rule} to be verified, got {work:,}"))
    large = too_many(certificate)
    wrong += [large] if large else []
    notes, count, above = list[str](), 0, dict[str, list[np.ndarray]]()
    for group in certificate.budgets.groups():
        faults, numbers_again, higher = _of_kind(certificate, group, bool(large))
        # Few agents are named one by one, many together.
        few = len(group.agents) <= _NAMED
        named = [f"agent {a}" for a in group.agents.tolist()] if few else []
        for who in named or [certificate.who(group.agents)]:
            wrong += [f"{who}: {text}" for text in faults]
        count += numbers_again * len(group.agents)
        for name in higher:
            above.setdefault(name, []).append(group.agents)
    for name, parts in above.items():
        who = certificate.who(np.sort(np.concatenate(parts)))
        notes.append(f"{who}: {name} is claimed above its cost, which is true")
    kinds = certificate.budgets.kinds
    if certificate.collusion:
        top = show(max(b.epsilon for b in kinds))
        notes.append(f"the largest epsilon is {top} {certificate.collusion}")
    if not certificate.deployed and any(d.float64 for d in certificate.descriptions):
        notes.append("it describes a deployed run, and is not called one: a rehearsal, perhaps")
    if any(b.paper_epsilon is not None for b in kinds):
        notes.append("paper_epsilon is the paper's own formula and no guarantee: not verified")
    if any(b.lifetime is not None for b in kinds):
        notes.append("what records spent in other runs is not in this file: not verified")
    return Verdict(tuple(wrong), tuple(notes), tuple(_trusted(certificate)), count)


def _work(certificate: Certificate) -> int:
    """What it takes to compute all budgets and the points of their curves again, where each by
    itself is little enough.
    """
    total = 0
    for budget in certificate.budgets.kinds:
        if budget.description is None:
            continue
        try:
            effort = certificate.descriptions[budget.description].account.effort(
                certificate.horizon
            )
        except (ValueError, TypeError, ArithmeticError):
            continue  # which is said of that budget
        if effort.operations <= _OPERATIONS:
            total += effort.operations * (1 + len(budget.curve))
    return total


def _shape(certificate: Certificate) -> Iterator[str]:
    """What the file as a whole must be."""
    budgets = certificate.budgets
    if not budgets:
        yield "budgets must not be empty: nobody's budget is stated"
    agents = budgets.agents
    if np.any(np.diff(agents) <= 0):
        rule = "agents must be in increasing order, each once"
        yield f"{rule}, got {agents[:20].tolist()}"
    without = [group.agents for group in budgets.groups() if group.budget.description is None]
    if without:
        yield (
            f"{certificate.who(np.sort(np.concatenate(without)))}: without a description a budget"
            " cannot be recomputed (earlier versions wrote none)"
        )
    if len(set(certificate.names)) < len(certificate.names):
        yield f"names must be different, got {certificate.names[:20]}"
    named = {b.description for b in budgets.kinds}
    unused = [i for i in range(len(certificate.descriptions)) if i not in named]
    if unused:
        yield f"descriptions must be named by a budget, and {unused[:20]} are not: a budget is gone"


def _of_kind(
    certificate: Certificate, group: Group, uncounted: bool
) -> tuple[list[str], int, list[str]]:
    """(what is wrong with the budget of a kind, how many numbers were computed again, which of them
    are claimed above their cost).

    Args:
      uncounted: what shared noise is worth takes too long to be found again.
    """
    budget, count, higher = group.budget, 0, list[str]()
    at = certificate.delta if MECHANISMS[certificate.mechanism].at_delta else 0.0
    wrong = [*_lifetime(budget, at, certificate.colluders)]
    if budget.description is None:
        return wrong, count, higher
    description = certificate.descriptions[budget.description]
    try:
        wrong += _words(certificate, budget, description)
        if too_much := _too_much(description, certificate.horizon):
            raise ValueError(too_much)
        found = numbers(description, certificate.horizon, certificate.delta)
        if not uncounted:
            wrong += curve_faults(certificate, group, description)
            count += len(budget.curve)
    except (
        ValueError,
        TypeError,
        ArithmeticError,
        MemoryError,
        RecursionError,
        np.linalg.LinAlgError,
    ) as error:
        wrong.append(f"its budget cannot be computed from its description: {error}")
        return wrong, count, higher
    if budget.reason and not found.reason:
        wrong.append("reason must be left out where there is a budget")
    for name in _NUMBERS:
        text, above = _compared(name, getattr(budget, name), getattr(found, name))
        wrong += [text] if text else []
        count += getattr(found, name) is not None
        higher += [name] if above else []
    return wrong, count, higher


def _words(
    certificate: Certificate, budget: AgentBudget, description: Description
) -> Iterator[str]:
    """What a budget says of its description."""
    account = description.account
    said = {
        "mechanism": (certificate.mechanism, account.mechanism.name),
        "pattern": (budget.pattern, str(account.pattern)),
        "basis": (budget.basis, account.basis),
        "assumptions": (budget.assumptions, description.assumptions),
    }
    for name, (claimed, described) in said.items():
        if claimed != described:
            yield f"{name} must be as described, {described!r:.200}, got {claimed!r:.200}"
    rounding = description.float64
    ideal = rounding is None
    if rounding is not None and rounding.heard < rounding.reach:
        yield f"heard must be at least the reach of {rounding.reach!r}, got {rounding.heard!r}"
    if certificate.deployed and ideal and certificate.horizon > 0:
        yield "a deployed run must describe its arithmetic (float64), and this one does not"
    if certificate.deployed and REHEARSED in description.assumptions:
        yield "a rehearsal must not be called deployed: its noise can be subtracted"
    if not description.checked and not {UNCHECKED, REFUTED} & {*description.assumptions}:
        yield f"assumptions must say what was not checked: {UNCHECKED.text}"
    if not ideal and math.isinf(certificate.horizon):
        yield f"a deployed run must be finite, got {show_horizon(certificate.horizon)}"


def _compared(name: str, claimed: float | None, cost: float | None) -> tuple[str, bool]:
    """(what is wrong with a claim, whether it is above its cost)."""
    if claimed is None and cost is None:
        return "", False
    if claimed is None:
        return f"{name} must be stated, it is {cost!r}", False
    if cost is None:
        return f"{name} must be left out: nothing in the description gives one", False
    # Written so that what is no number is refused.
    if not claimed >= cost * (1 - TOLERANCE):
        return f"{name} must be at least {cost!r}, which is what it costs, got {claimed!r}", False
    return "", claimed > cost * (1 + TOLERANCE)


def _too_much(description: Description, horizon: float) -> str:
    """What must be smaller for the budget to be computed again, or ""."""
    effort = description.account.effort(horizon)
    if effort.searched:
        return "factors must be written down as numbers: no search is repeated"
    if effort.dimension > _DIMENSION:
        return f"dimension must be at most {_DIMENSION:,} to be verified, got {effort.dimension:,}"
    for name, size, most in (
        ("messages, rounds or records", effort.numbers, _NUMBERS_AT_ONCE),
        ("messages times patterns of uses", effort.operations, _OPERATIONS),
    ):
        if size > most:
            return f"{name} must be at most {most:,} to be verified, got {size:,}"
    return ""


def _lifetime(budget: AgentBudget, delta: float | None, planned: int | None) -> Iterator[str]:
    """What cannot be, whatever other runs there were."""
    known = budget.lifetime
    if known is None:
        return
    if known.before > known.total:
        yield f"lifetime.before must be at most the total of {known.total!r}, got {known.before!r}"
    if known.total < budget.epsilon:
        yield f"lifetime.total must be at least this run's {budget.epsilon!r}, got {known.total!r}"
    if known.all_collude is not None and known.all_collude < max(known.total, budget.all_collude):
        least = max(known.total, budget.all_collude)
        yield f"lifetime.all_collude must be at least {least!r}, got {known.all_collude!r}"
    if budget.curve and known.all_collude is None:
        yield "lifetime.all_collude must be stated where noise is shared"
    if planned is not None and (known.colluders is None or known.colluders > planned):
        yield f"lifetime.colluders must be at most this run's {planned}, got {known.colluders}"
    if known.colluders is not None and known.all_collude is None:
        yield "lifetime.all_collude must be stated beside a number of colluders"
    own = delta if budget.delta is None else budget.delta
    if math.isfinite(known.total) and known.delta < (own or 0.0):
        yield f"lifetime.delta must be at least this run's {own!r}, got {known.delta!r}"
    if not known.runs and known.before > 0:
        yield f"lifetime.before must be 0 where there was no other run, got {known.before!r}"


def _trusted(certificate: Certificate) -> Iterator[str]:
    """What no computation shows."""
    if any(d.checked for d in certificate.descriptions):
        yield "the coefficients of the algorithm have been through the contract's checks"
    if certificate.deployed:
        yield "noise was drawn on a lattice, from the operating system's random numbers"
    yield from dict.fromkeys(t for d in certificate.descriptions for t in d.adversary.trust)
    if certificate.secrets is not None:
        yield "who shares noise, and how loud everybody's own and shared noise is, is as stated"
    for assumption, agents in certificate.assumed():
        if assumption.kind == "declared":
            whose = "" if len(agents) == len(certificate.budgets) else certificate.who(agents)
            yield assumption.text + (f" ({whose})" if whose else "")
