"""What an audit found: in sentences (the page and the terminal say the same), in rows of tables,
and as files.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hearsay._version import VERSION
from hearsay.audit.coalitions import together
from hearsay.audit.distinguish import AgentAudit, Claim
from hearsay.audit.one_run import OneRun
from hearsay.report.numbers import quantity, who

if TYPE_CHECKING:
    from hearsay.audit.whole import Audit, Searched
    from hearsay.base import Algorithm
    from hearsay.problems.problem import Problem


def verdicts(audit: Audit) -> list[str]:
    """What failed, one sentence each."""
    lines = []
    if audit.noise is not None and not audit.noise.holds:
        worst = audit.noise.failed[0]
        means = f", so {worst.means}" if worst.means else ""
        lines.append(
            f"The noise is NOT what the certificate takes it for: {worst.where}: {worst.effect} (p"
            f" = {audit.noise.adjusted(worst):.2g} among {len(audit.noise.tests)} tests){means}."
        )
    over = [one.agent for one in audit.searched if not one.within]
    if over:
        lines.append(
            f"The search moved messages of {who(over, max(over) + 2)} further than the certificate"
            " allows: it is EXCEEDED."
        )
    for one in audit.searched:
        if one.coins is not None and not one.coins.holds:
            lines.append(
                f"Secret batches of agent {one.agent} do NOT do what the certificate counts on:"
                f" {one.coins.words}."
            )
        lines += [
            f"The certificate is EXCEEDED: {tried.words}."
            for tried in one.coalitions
            if not tried.holds
        ]
    for found in audit.found:
        if isinstance(found, AgentAudit) and found.coalition is not None and not found.holds:
            lines.append(
                f"The certificate of agent {found.agent} is EXCEEDED with"
                f" {together(found.coalition)}: what they know and the messages give away more than"
                " it says."
            )
    broken = [
        one.agent
        for one in audit.found
        if not one.holds and getattr(one, "coalition", None) is None
    ]
    if broken:
        lines.append(
            f"The certificate of {who(broken, max(broken) + 2)} is EXCEEDED: the messages give away"
            " more than it says."
        )
    return lines


def search_words(searched: Sequence[Searched]) -> str:
    best = max(one.most for one in searched)
    thrown = [one.coins.shift for one in searched if one.coins is not None]
    coins = (
        " Coins of secret batches were thrown by hand: each of them moves one message, by up to"
        f" {max(thrown):.1%} of what is counted, and no other."
        if thrown and all(one.holds for one in searched)
        else ""
    )
    tried = [found for one in searched for found in one.coalitions]
    if tried:
        many = sorted({len(found.members) for found in tried})
        counts = ", ".join(map(str, many[:-1])) + (" and " if many[1:] else "") + str(many[-1])
        most = max(found.found / found.certified for found in tried if found.certified)
        coins += (
            f" Coalitions of {counts} other agents were tried against shared noise: the worst of"
            f" them make epsilon up to {most:.1%} of what the certificate says for that many."
        )
    return (
        "Records and transcripts were changed step by step so that one record moves the messages"
        f" as far as possible: up to {best:.1%} of what the certificate allows for a message. Above"
        " 100 % disproves the certificate; below, it says how loose the bound may be, or that the"
        f" search could not find the worst case.{coins}"
    )


def runs_words(found: Sequence[AgentAudit | OneRun]) -> list[str]:
    """What lower bounds do and do not say; a bound of 0 never stands alone."""
    lines = []
    for words, agents in _together(found).items():
        lines.append(f"{who(agents, max(agents) + 2).capitalize()}: {words}")
    return lines


def alike_words(audit: Audit) -> list[str]:
    """Who was not run, because somebody like them was."""
    lines = []
    for first in sorted(set(audit.alike.values())):
        same = [agent for agent, one in audit.alike.items() if one == first]
        lines.append(
            f"{who(same, max(same) + 2).capitalize()}: not run, as in the same situation as agent"
            f" {first}; --agent {same[0]} runs one of them."
        )
    return lines


def _together(found: Sequence[AgentAudit | OneRun]) -> dict[str, list[int]]:
    said: dict[str, list[int]] = {}
    for one in found:
        first: Claim | OneRun
        if isinstance(one, AgentAudit):
            first, named, much = one.claims[0], one.claims[0].what, f"{one.runs:,} runs"
        else:
            first, named, much = one, "epsilon", f"{one.guesses} guesses"
        words = []
        if first.lower == 0:
            words.append(
                f"no attack found. This does not prove privacy: {much} of this attack showed"
                f" nothing, and a better one may. The largest {named} that it could have shown is"
                f" {first.most:.3g}"
            )
        elif first.holds:
            words.append(
                "the attack shows a part of the certificate; a better one may show more. The"
                f" largest {named} that {much} could have shown is {first.most:.3g}"
            )
        if first.most < first.certified:
            words.append(
                f"that is below the certificate of {first.certified:.4g}, so this part could not"
                " have failed: use more runs or a smaller epsilon"
            )
        if words:
            coalition = getattr(one, "coalition", None)
            who_knows = "" if coalition is None else f"with {together(coalition)}, "
            said.setdefault(who_knows + "; ".join(words) + ".", []).append(one.agent)
    return said


def search_rows(searched: Sequence[Searched]) -> list[list[object]]:
    """Shares as percentages."""
    return [
        [
            s.agent,
            *(f"{100 * part:.4g} %" for part in (s.budget, s.least, s.most)),
            "itself" if s.like == s.agent else f"as agent {s.like}",
            "holds" if s.holds else "EXCEEDED",
        ]
        for s in searched
    ]


def rows(found: Sequence[AgentAudit | OneRun]) -> list[list[object]]:
    """One line per agent and certified number: agent, what, lower bound, certificate,
    the most that could have been shown, verdict, how it was found.
    """
    lines: list[list[object]] = []
    for one in found:
        if isinstance(one, AgentAudit):
            lines += [
                [
                    one.agent,
                    c.what + _colluding(one.coalition),
                    c.lower,
                    c.certified,
                    c.most,
                    verdict(c.lower, c.certified),
                    f"{c.score}; {one.pair}"
                    + ("" if one.coalition is None else f"; {together(one.coalition)}"),
                ]
                for c in one.claims
            ]
        else:
            what = f"epsilon at delta={one.delta:g}" if one.delta else "epsilon"
            how = (
                f"one run: {one.right} of {one.guesses} guesses right about {one.canaries} canaries"
            )
            lines.append(
                [
                    one.agent,
                    what,
                    one.lower,
                    one.certified,
                    one.most,
                    verdict(one.lower, one.certified),
                    how,
                ]
            )
    return lines


def _colluding(coalition: tuple[int, ...] | None) -> str:
    return "" if coalition is None else f", {len(coalition)} colluding"


def verdict(lower: float, certified: float) -> str:
    if lower > certified:
        return "EXCEEDED"
    return "holds" if math.isfinite(certified) else "no certificate"


def as_data(audit: Audit, algorithm: Algorithm, problem: Problem) -> dict[str, Any]:
    """Everything as plain values for private-audit.json."""
    noise = audit.noise
    tests = (
        []
        if noise is None
        else [
            {
                "kind": t.kind,
                "where": t.where,
                "numbers": t.numbers,
                "p": float(t.p),
                "p_among_all": float(noise.adjusted(t)),
                "seen": t.effect,
                **({"means": t.means} if t.means else {}),
            }
            for t in noise.tests
        ]
    )
    return {
        "hearsay": VERSION,
        "algorithm": algorithm.name,
        "problem": problem.name,
        "messages": audit.steps,
        "agents": list(audit.agents),
        "holds": audit.holds,
        "failed": verdicts(audit),
        "skipped": audit.skipped,
        "not_finished": audit.missing,
        "alike": audit.alike,
        "noise": noise
        and {
            "holds": noise.holds,
            "false_alarm": noise.level,
            "mechanism": noise.mechanism,
            "runs": noise.runs,
            "residuals": noise.numbers,
            "tests": tests,
        },
        "search": [
            {
                "agent": s.agent,
                "budget": s.budget,
                "least_message": s.least,
                "most_message": s.most,
                "searched_agent": s.like,
                "coins": s.coins and s.coins.words,
                "coalitions": [
                    {
                        "members": list(one.members),
                        "epsilon": _plain(one.found),
                        "certificate": _plain(one.certified),
                    }
                    for one in s.coalitions
                ],
                "holds": s.holds,
            }
            for s in audit.searched
        ],
        "runs": [
            dict(
                zip(
                    (
                        "agent",
                        "what",
                        "lower_bound",
                        "certificate",
                        "could_have_shown",
                        "verdict",
                        "how",
                    ),
                    map(_plain, row),
                    strict=True,
                )
            )
            for row in rows(audit.found)
        ],
    }


def _plain(value: object) -> object:
    """JSON has no infinity."""
    return quantity(value) if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(found: Sequence[AgentAudit | OneRun]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["agent", "what", "lower_bound", "certificate", "could_have_shown", "verdict", "how"]
    )
    for agent, what, lower, certified, most, said, how in rows(found):
        writer.writerow([agent, what, f"{lower:.6g}", f"{certified:.6g}", f"{most:.6g}", said, how])
    return text.getvalue()


def curve_csv(audit: AgentAudit) -> str:
    positives, negatives = audit.curve
    lines = [
        f"{p:.6g},{n:.6g},{a:.6g}"
        for p, n, a in zip(positives, negatives, audit.allowed(positives), strict=True)
    ]
    return "\n".join(["false_positives,false_negatives,certified", *lines]) + "\n"
