"""The report of an audit: lower bound against certificate for every agent, and the trade-off of errors that was measured against the one that is certified."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from hearsay._version import VERSION
from hearsay.audit.distinguish import AgentAudit
from hearsay.audit.one_run import OneRun
from hearsay.checkpoint import write_atomically
from hearsay.report.page import Html, notice, page, picture, section, table, tag
from hearsay.report.style import SOFT, axes_or_new, line_style, new_figure, styled
from hearsay.report.words import count, who

if TYPE_CHECKING:
    from hearsay.base import Algorithm
    from hearsay.problems.problem import Problem

NAME, CSV, CURVE = "report.html", "audit.csv", "trade_off.csv"
_HEADER = ["agent", "what", "lower bound", "certificate", "verdict", "how"]


def audit_report(
    found: Sequence[AgentAudit | OneRun], algorithm: Algorithm, problem: Problem, steps: int, folder: str | Path
) -> Path:
    """Write report.html, audit.csv and (where there is a curve) trade_off.csv into the folder; returns the page's path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    title = f"Audit of {algorithm.name}, {problem.name}"
    about = f"{count(steps, 'message')}, {algorithm.mechanism} noise, {count(len(found), 'agent')}"
    header = tag(
        "header", tag("p", "hearsay · Audit", class_="kicker"), tag("h1", title), tag("p", about, class_="sub")
    )
    parts = [header, _lead(found), section("Lower bound and certificate", table(_caption(found), _HEADER, rows(found)))]
    drawn = _tightest(found)
    if drawn is not None:
        figure, ax = new_figure(4.6, 3.6)
        trade_off(drawn, ax)
        shown = f"Agent {drawn.agent}: the errors of the best test between two data sets that differ in one record. No test may come below the dashed line."
        parts.append(
            section("What the certificate allows, and what was reached", picture("errors", figure, shown, shown))
        )
        write_atomically(folder / CURVE, _curve_csv(drawn).encode())
    parts.append(tag("footer", f"Written by hearsay {VERSION}."))
    write_atomically(folder / CSV, to_csv(found).encode())
    write_atomically(folder / NAME, page(f"{title} · hearsay", *parts))
    return folder / NAME


def trade_off(audit: AgentAudit, ax: Axes | None = None) -> Axes:
    """False negatives over false positives: the measured curve, the certified one, and what guessing without looking reaches."""
    ax = axes_or_new(ax)
    with styled():
        rates = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 400)])
        ax.plot(*audit.curve, label="measured", **line_style(0))
        ax.plot(
            rates, audit.allowed(rates), label="certified limit", color=line_style(1)["color"], linestyle=(0, (4, 2))
        )
        ax.plot([0, 1], [1, 0], color=SOFT, linewidth=0.8, linestyle=(0, (1, 2)), label="guessing")
        ax.set_xlabel("false positives")
        ax.set_ylabel("false negatives")
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        ax.legend()
    return ax


def rows(found: Sequence[AgentAudit | OneRun]) -> list[list[object]]:
    """One line per agent and certified number: agent, what, lower bound, certificate, verdict, how it was found."""
    lines: list[list[object]] = []
    for one in found:
        if isinstance(one, AgentAudit):
            lines += [
                [one.agent, c.what, c.lower, c.certified, verdict(c.lower, c.certified), f"{c.score}; {one.pair}"]
                for c in one.claims
            ]
        else:
            what = f"epsilon at delta={one.delta:g}" if one.delta else "epsilon"
            how = f"one run: {one.right} of {one.guesses} guesses right about {one.canaries} canaries"
            lines.append([one.agent, what, one.lower, one.certified, verdict(one.lower, one.certified), how])
    return lines


def verdict(lower: float, certified: float) -> str:
    if lower > certified:
        return "EXCEEDED"
    return "holds" if math.isfinite(certified) else "no certificate"


def _tightest(found: Sequence[AgentAudit | OneRun]) -> AgentAudit | None:
    curves = [one for one in found if isinstance(one, AgentAudit)]
    return max(curves, key=lambda one: one.lower / one.certified if one.certified else 0.0, default=None)


def _caption(found: Sequence[AgentAudit | OneRun]) -> str:
    sure = 100 * (1 - sum(1 - one.confidence for one in found))
    return f"All lower bounds together hold with {sure:.4g} % confidence"


def _lead(found: Sequence[AgentAudit | OneRun]) -> Html:
    broken = [one.agent for one in found if not one.holds]
    runs = sum(one.runs for one in found if isinstance(one, AgentAudit))
    how = f"The network was run {runs:,} times on two data sets that differ in one record, and the best test there is said which it was. " if runs else (
        "The network was run once with records that were swapped or not by a coin, and the messages were used to guess the coins. "
    )  # fmt: skip
    note = "A lower bound below the certificate disproves nothing; it shows how much of the certificate this attack reaches, and a better one may reach more."
    text = Html(tag("p", how + note))
    if broken:
        named = who(broken, max(broken) + 2)
        return Html(
            notice(
                "alert", tag("p", f"The certificate of {named} is EXCEEDED: the messages give away more than it says.")
            )
            + text
        )
    return text


def to_csv(found: Sequence[AgentAudit | OneRun]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["agent", "what", "lower_bound", "certificate", "verdict", "how"])
    for agent, what, lower, certified, said, how in rows(found):
        writer.writerow([agent, what, f"{lower:.6g}", f"{certified:.6g}", said, how])
    return text.getvalue()


def _curve_csv(audit: AgentAudit) -> str:
    positives, negatives = audit.curve
    lines = [f"{p:.6g},{n:.6g},{a:.6g}" for p, n, a in zip(positives, negatives, audit.allowed(positives), strict=True)]
    return "\n".join(["false_positives,false_negatives,certified", *lines]) + "\n"


__all__ = ["CSV", "CURVE", "NAME", "audit_report", "rows", "to_csv", "trade_off", "verdict"]
