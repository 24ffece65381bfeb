"""The report that sets several runs side by side: one page (templates/comparison.html)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.certificate import PAPER, show, show_horizon
from hearsay.report import plots
from hearsay.report.costs import cost_figures, cost_table
from hearsay.report.numbers import count, largest, quantity
from hearsay.report.page import Cell, Picture, Table, picture, write
from hearsay.report.plot_style import new_figure
from hearsay.report.run import CURVES, NAME, final
from hearsay.report.worth import in_words, shown
from hearsay.simulation.result import METRICS, Run
from hearsay.simulation.worth import Worth, worth

if TYPE_CHECKING:
    from hearsay.simulation.costs import Timeline
    from hearsay.simulation.measured import Measured


def comparison_report(
    runs: Mapping[str, Measured],
    folder: Path,
    title: str,
    notes: Sequence[str] = (),
    tables: Sequence[tuple[str, Sequence[object], Sequence[Sequence[object]]]] = (),
    figures: Sequence[tuple[str, Figure]] = (),
    name: str = NAME,
    timelines: Mapping[str, Timeline] | None = None,
) -> Path:
    """Write a page that sets runs side by side; returns its path.

    Args:
      runs: the runs by the names that they have on the page.
      folder: where the page goes.
      title: its title.
      notes: paragraphs at its beginning.
      tables: further tables, as (caption, header, rows).
      figures: further figures, as (caption, figure).
      name: the file's name.
      timelines: what each run would cost on some network, at its measured steps.
    """
    about = " · ".join(
        dict.fromkeys(
            f"{r.problem.name}, {count(r.graph.agents, 'agent')}, {r.graph.name}"
            for r in runs.values()
        )
    )
    if timelines:
        tables = [cost_table(runs, timelines), *tables]
        figures = [*cost_figures(runs, timelines), *figures]
    return write(
        Path(folder) / name,
        "comparison.html",
        title=title,
        about=about,
        notes=notes,
        poor=[(name, in_words(w)) for name, w in _worth(runs).items() if w.no_better],
        early=[(name, run.stopped) for name, run in runs.items() if run.stopped],
        ends=_final_values(runs) if runs else [],
        curves=_curves(runs),
        figures=[
            picture(f"extra{i}", drawn, caption) for i, (caption, drawn) in enumerate(figures)
        ],
        tables=[Table(*given) for given in tables],
    )


def _final_values(runs: Mapping[str, Measured]) -> list[Table]:
    """Privacy beside the two numbers that it buys, then the remaining metrics."""
    shared = _shared(runs)
    first = [m for m in ("accuracy", "test_error", "tracking_error") if m in shared]
    rest = [m for m in shared if m not in first]
    paper = any(_paper(run) is not None for run in runs.values())
    rows = [
        [
            Cell(name, f"{run.algorithm.name}, {show_horizon(run.certificate.horizon)}"),
            _largest(run),
            *([show(_paper(run))] if paper else []),
            *(final(run, m) for m in first),
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
    found = [Table(f"Budgets, rounded up, and metrics: {spread}at the last step", header, rows)]
    found += _beside(_worth(runs))
    if rest:
        others = [[name, *(final(run, m) for m in rest)] for name, run in runs.items()]
        found.append(Table("The other metrics", ["run", *(plots.LABELS[m] for m in rest)], others))
    return found


def _worth(runs: Mapping[str, Measured]) -> dict[str, Worth]:
    """Of the runs beside which something was measured."""
    known = {
        name: worth(run)
        for name, run in runs.items()
        if isinstance(run, Run) and run.beside is not None
    }
    return {name: found for name, found in known.items() if found is not None}


def _beside(runs: Mapping[str, Worth]) -> list[Table]:
    """What the models of each are to be compared with: a table for every kind of number."""
    kinds: dict[tuple[str | None, bool], dict[str, Worth]] = {}
    for name, found in runs.items():
        kinds.setdefault((found.unit, found.released), {})[name] = found
    return [_alike(unit, released, group) for (unit, released), group in kinds.items()]


def _alike(unit: str | None, released: bool, runs: Mapping[str, Worth]) -> Table:
    columns = list(dict.fromkeys(column for found in runs.values() for column in found.beside))
    rows = [
        [
            name,
            shown(found, found.reached),
            *(shown(found, found.beside[c]) if c in found.beside else None for c in columns),
        ]
        for name, found in runs.items()
    ]
    kind = "Test accuracy" if unit is None else f"Root mean squared error, {unit},"
    whose = "models that may be released" if released else "agents' own models"
    caption = f"{kind} of the {whose}, and what it is to be compared with"
    return Table(caption, ["run", "together", *columns], rows)


def _largest(run: Measured) -> Cell:
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
    # Beside numbers under replace one under zero-out must say what it is.
    under = "" if cert.adjacency == REPLACE else f"; {cert.adjacency} adjacency"
    collude = f"; {cert.collusion}" if cert.collusion else ""
    return Cell(top, f"{of}{at}{under}{collude}{void}")


def _paper(run: Measured) -> float | None:
    return max(
        (b.paper_epsilon for b in run.certificate.budgets.kinds if b.paper_epsilon is not None),
        default=None,
    )


def _curves(runs: Mapping[str, Measured]) -> list[Picture]:
    drawn = []
    for metric in (m for m in CURVES if m in _shared(runs)):
        figure, ax = new_figure()
        plots.compare(runs, metric, ax)
        drawn.append(picture(metric, figure, f"{METRICS[metric].capitalize()}."))
    if runs and len({run.certificate.mechanism for run in runs.values()}) == 1:
        figure, ax = new_figure()
        plots.compare_budgets(runs, ax)
        caption = "Certified budget spent so far, the largest over agents."
        drawn.append(picture("budget", figure, caption))
    return drawn


def _shared(runs: Mapping[str, Measured]) -> list[str]:
    """Metrics that every run has measured."""
    return [m for m in METRICS if runs and all(plots.measured(run, m) for run in runs.values())]
