"""Reports: one page for a run, one page for several side by side.

Nothing on them is loaded from elsewhere; the same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from hearsay._files import write_atomically
from hearsay._version import VERSION
from hearsay.privacy.certificate import show, show_horizon
from hearsay.report import plots, sections
from hearsay.report.guarantee import PAPER, certificate
from hearsay.report.numbers import count, largest, quantity
from hearsay.report.page import Html, join, notice, page, section, table, tag
from hearsay.report.provenance import configuration, reproduction
from hearsay.report.style import new_figure
from hearsay.simulation.result import METRICS

if TYPE_CHECKING:
    from hearsay.simulation.result import Run

NAME = "report.html"
Table = tuple[str, Sequence[object], Sequence[Sequence[object]]]  # caption, header, rows


def run_report(run: Run, folder: Path) -> Path:
    """Write `report.html` for one run into the folder; returns its path."""
    title = f"{run.algorithm.name} on {run.problem.name}"
    about = (
        f"{count(run.graph.agents, 'agent')} on a {run.graph.name} graph, {int(run.steps[-1]):,}"
        f" steps, {count(len(run.seeds), 'seed')}, {run.certificate.mechanism.capitalize()} noise"
    )
    return _write(
        folder,
        title,
        _header("Run report", title, about),
        sections.headline(run),
        sections.alerts(run),
        sections.network(run),
        sections.learning(run),
        sections.budget(run),
        certificate(run.certificate),
        sections.theory(run),
        configuration(run),
        reproduction(run),
    )


def comparison_report(
    runs: Mapping[str, Run],
    folder: Path,
    title: str,
    notes: Sequence[str] = (),
    tables: Sequence[Table] = (),
    figures: Sequence[tuple[str, Figure]] = (),
    name: str = NAME,
) -> Path:
    """Write `report.html` (or another `name`) that sets runs side by side,
    with extra tables (caption, header, rows) and figures (caption, figure).
    """
    about = " · ".join(
        dict.fromkeys(
            f"{r.problem.name}, {count(r.graph.agents, 'agent')}, {r.graph.name}"
            for r in runs.values()
        )
    )
    extra = [(f"extra{i}", caption, figure) for i, (caption, figure) in enumerate(figures)]
    return _write(
        folder,
        title,
        _header("Comparison", title, about),
        *(tag("p", note) for note in notes),
        _early_ends(runs),
        section("At the end", _ends(runs)) if runs else "",
        _curves(runs),
        section("More figures" if runs else "Figures", sections.grid(extra)) if extra else "",
        section("More tables" if runs else "Tables", *(table(*t) for t in tables))
        if tables
        else "",
        name=name,
    )


def _ends(runs: Mapping[str, Run]) -> Html:
    """Privacy beside the two numbers that it buys, then the remaining metrics."""
    shared = _shared(runs)
    first = [m for m in ("accuracy", "test_error", "tracking_error") if m in shared]
    rest = [m for m in shared if m not in first]
    paper = any(_paper(run) is not None for run in runs.values())
    rows = [
        [
            join(
                [
                    name,
                    tag("small", f"{run.algorithm.name}, {show_horizon(run.certificate.horizon)}"),
                ]
            ),
            _largest(run),
            *([show(_paper(run))] if paper else []),
            *(sections.final(run, m) for m in first),
        ]
        for name, run in runs.items()
    ]
    header = [
        "run",
        "largest epsilon, certified",
        *([PAPER] if paper else []),
        *(plots.LABELS[m] for m in first),
    ]
    spread = (
        "mean ± standard deviation over seeds, "
        if max(len(r.seeds) for r in runs.values()) > 1
        else ""
    )
    caption = f"Budgets, rounded up, and metrics: {spread}at the last step"
    others = [[name, *(sections.final(run, m) for m in rest)] for name, run in runs.items()]
    more = (
        table("The other metrics", ["run", *(plots.LABELS[m] for m in rest)], others)
        if rest
        else ""
    )
    return join([table(caption, header, rows), more])


def _largest(run: Run) -> Html:
    """The largest certified epsilon, and whose it is."""
    cert = run.certificate
    top, of = largest(cert.epsilon)
    at = f", delta = {quantity(cert.slack)}" if cert.slack else ""
    # A number that its own certificate calls no guarantee must not stand here without saying so.
    void = (
        "; by declaration, not a guarantee for records"
        if any(w.startswith("NOT a guarantee") for w in cert.warnings)
        else ""
    )
    return join([top, tag("small", f"{of}{at}{void}")])


def _paper(run: Run) -> float | None:
    return max(
        (b.paper_epsilon for b in run.certificate.budgets if b.paper_epsilon is not None),
        default=None,
    )


def _curves(runs: Mapping[str, Run]) -> Html:
    drawn = []
    for metric in (m for m in sections.CURVES if m in _shared(runs)):
        figure, ax = new_figure()
        plots.compare(runs, metric, ax)
        drawn.append((metric, f"{METRICS[metric].capitalize()}.", figure))
    if runs and len({run.certificate.mechanism for run in runs.values()}) == 1:
        figure, ax = new_figure()
        plots.compare_budgets(runs, ax)
        drawn.append(("budget", "Certified budget spent so far, the largest over agents.", figure))
    if not drawn:
        return Html("")
    lead = tag("p", "Lines: mean over seeds. Bands: from the lowest seed to the highest.")
    return section("Over time", lead, sections.grid(drawn))


def _shared(runs: Mapping[str, Run]) -> list[str]:
    """Metrics that every run has measured."""
    return [m for m in METRICS if runs and all(plots.measured(run, m) for run in runs.values())]


def _early_ends(runs: Mapping[str, Run]) -> Html:
    ends = [tag("li", f"{name}: {run.stopped}") for name, run in runs.items() if run.stopped]
    return (
        notice("alert", tag("p", tag("strong", "Ended early")), tag("ul", *ends))
        if ends
        else Html("")
    )


def _header(kind: str, title: str, about: str) -> Html:
    return tag(
        "header",
        tag("p", f"hearsay · {kind}", class_="kicker"),
        tag("h1", title),
        tag("p", about, class_="sub"),
    )


def _write(folder: Path, title: str, *content: object, name: str = NAME) -> Path:
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    footer = tag("footer", f"Written by hearsay {VERSION}.")
    write_atomically(folder / name, page(f"{title} · hearsay", *content, footer))
    return folder / name
