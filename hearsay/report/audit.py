"""The report of an audit (templates/audit.html): the noise beside the one that is claimed, how
near a search came to every bound, lower bounds against certificates, and what none of it shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from hearsay._files import private, write_atomically
from hearsay.audit.distinguish import AgentAudit
from hearsay.audit.one_run import OneRun
from hearsay.report.audit_findings import (
    alike_words,
    as_data,
    curve_csv,
    rows,
    runs_words,
    search_rows,
    search_words,
    to_csv,
    verdicts,
)
from hearsay.report.audit_noise import noise_csv, noise_section
from hearsay.report.numbers import count, who
from hearsay.report.page import Picture, Table, picture, write
from hearsay.report.plot_style import SOFT, axes_or_new, line_style, new_figure, styled

if TYPE_CHECKING:
    from hearsay.audit.whole import Audit, Searched
    from hearsay.base import Algorithm
    from hearsay.problems.problem import Problem

NAME, CSV, CURVE, NOISE, JSON = map(
    private, ("report.html", "audit.csv", "trade_off.csv", "noise.csv", "audit.json")
)
_HEADER = ["agent", "what", "lower bound", "certificate", "could have shown", "verdict", "how"]
_TITLES = {"noise": "The noise", "search": "The worst case", "runs": "Lower bound and certificate"}


def audit_report(audit: Audit, algorithm: Algorithm, problem: Problem, folder: str | Path) -> Path:
    """Write private-report.html, private-audit.json, private-audit.csv, private-noise.csv and
    (where there is a curve) private-trade_off.csv into the folder; returns the page's path.

    An auditor knows the records: what it finds is covered by no certificate.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = _tightest(audit.found)
    write_atomically(folder / CSV, to_csv(audit.found).encode())
    write_atomically(
        folder / JSON, (json.dumps(as_data(audit, algorithm, problem), indent=1) + "\n").encode()
    )
    if audit.noise is not None:
        write_atomically(folder / NOISE, noise_csv(audit.noise).encode())
    if drawn is not None:
        write_atomically(folder / CURVE, curve_csv(drawn).encode())
    return write(
        folder / NAME,
        "audit.html",
        title=f"Audit of {algorithm.name}, {problem.name}",
        about=(
            f"{count(audit.steps, 'message')}, {algorithm.mechanism} noise,"
            f" {count(len(audit.agents), 'agent')}"
        ),
        failures=verdicts(audit),
        holds=audit.holds,
        unfinished="; ".join(
            f"{part}: {who(agents, max(agents) + 2)}" for part, agents in audit.missing.items()
        ),
        skipped=[(_TITLES[part], why) for part, why in audit.skipped.items()],
        noise=None if audit.noise is None else noise_section(audit.noise),
        search=_search_section(audit.searched) if audit.searched else None,
        runs=_runs_section(audit) if audit.found else None,
        trade_off=None if drawn is None else _trade_off_picture(drawn),
    )


def _search_section(searched: Sequence[Searched]) -> dict[str, object]:
    header = [
        "agent",
        "whole budget reached",
        "least of a message",
        "most of a message",
        "searched",
        "verdict",
    ]
    caption = "Shares of the certified bounds that were reached"
    return {
        "words": search_words(searched),
        "table": Table(caption, header, search_rows(searched)),
    }


def _runs_section(audit: Audit) -> dict[str, object]:
    found = audit.found
    sure = 100 * (1 - sum(1 - one.confidence for one in found))
    caption = f"All lower bounds together hold with {sure:.4g} % confidence"
    return {
        "count": sum(one.runs for one in found if isinstance(one, AgentAudit)),
        "words": [*runs_words(found), *alike_words(audit)],
        "table": Table(caption, _HEADER, rows(found)),
    }


def _trade_off_picture(drawn: AgentAudit) -> Picture:
    figure, ax = new_figure(4.6, 3.6)
    trade_off(drawn, ax)
    shown = (
        f"Agent {drawn.agent}: the errors of the best test between two data sets that differ in"
        " one record. No test may come below the dashed line."
    )
    return picture("errors", figure, shown)


def trade_off(audit: AgentAudit, ax: Axes | None = None) -> Axes:
    """False negatives over false positives: the measured curve, the certified one,
    and what guessing without looking reaches.
    """
    ax = axes_or_new(ax)
    with styled():
        rates = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 400)])
        ax.plot(*audit.curve, label="measured", **line_style(0))
        ax.plot(
            rates,
            audit.allowed(rates),
            label="certified limit",
            color=line_style(1)["color"],
            linestyle=(0, (4, 2)),
        )
        ax.plot([0, 1], [1, 0], color=SOFT, linewidth=0.8, linestyle=(0, (1, 2)), label="guessing")
        ax.set_xlabel("false positives")
        ax.set_ylabel("false negatives")
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        ax.legend()
    return ax


def _tightest(found: Sequence[AgentAudit | OneRun]) -> AgentAudit | None:
    curves = [one for one in found if isinstance(one, AgentAudit)]
    return max(
        curves, key=lambda one: one.lower / one.certified if one.certified else 0.0, default=None
    )
