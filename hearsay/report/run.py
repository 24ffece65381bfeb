"""The report of a run: one page (templates/run.html).

Nothing on it is loaded from elsewhere; the same input gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hearsay._files import private
from hearsay.algorithms.theory.findings import findings
from hearsay.certification import unit
from hearsay.privacy.certificate import show
from hearsay.problems.sampling.samplers import Arrivals
from hearsay.report import plots
from hearsay.report.certificate import certificate_section
from hearsay.report.hearing import hearing_section
from hearsay.report.numbers import (
    between,
    count,
    duration,
    largest,
    quantity,
    size,
    spread,
    who,
)
from hearsay.report.page import Table, picture, write
from hearsay.report.plot_style import new_figure
from hearsay.report.provenance import configuration, reproduction
from hearsay.report.worth import worth_section
from hearsay.simulation.own_unit import errors_of
from hearsay.simulation.result import METRICS

if TYPE_CHECKING:
    from hearsay.simulation.costs import Timeline
    from hearsay.simulation.measured import Measured
    from hearsay.simulation.result import Run

NAME = private("report.html")
CURVES = (
    "accuracy",
    "released_accuracy",
    "train_accuracy",
    "test_error",
    "released_error",
    "test_loss",
    "tracking_error",
    "regret",
    "dynamic_regret",
    "consensus_error",
    "mean_model_error",
)

RELEASED = {
    "released_accuracy": "Released model's accuracy",
    "released_error": "Released model's error",
}


def run_report(run: Run, folder: Path, timeline: Timeline | None = None) -> Path:
    """Write `private-report.html` for one run into the folder; returns its path.

    Args:
      run: what it is about.
      folder: where it goes.
      timeline: what the run would cost on some network, where that is to be on it.
    """
    unbounded = np.flatnonzero(np.isinf(run.certificate.epsilon))
    return write(
        Path(folder) / NAME,
        "run.html",
        title=f"{run.algorithm.name} on {run.problem.name}",
        about=(
            f"{count(run.graph.agents, 'agent')} on a {run.graph.name} graph,"
            f" {int(run.steps[-1]):,} steps, {count(len(run.seeds), 'seed')},"
            f" {run.certificate.mechanism.capitalize()} noise"
        ),
        headline=[*headline(run), *_costs(timeline)],
        worth=worth_section(run),
        stopped=run.stopped,
        unbounded=who(unbounded, len(run.certificate.budgets)) if unbounded.size else "",
        network=_network(run),
        hearing=hearing_section(run),
        learning=_learning(run),
        budget=_budget(run),
        certificate=certificate_section(run.certificate),
        conditions=_conditions(run),
        configuration=configuration(run.algorithm),
        reproduction=reproduction(run),
    )


def final(run: Measured, metric: str) -> str:
    """A metric at the end, as mean ± standard deviation over the seeds."""
    return spread(
        *run.final(metric),
        len(run.seeds),
        percent=metric.startswith(("accuracy", "released_accuracy")),
    )


def headline(run: Run) -> list[tuple[str, str, str]]:
    """The numbers that one asks for first."""
    seeds = f"± standard deviation of {len(run.seeds)} seeds" if len(run.seeds) > 1 else "one seed"
    tiles = []
    if "accuracy" in run.metrics:
        worst = f"{seeds}; worst agent {final(run, 'accuracy_worst')}"
        tiles.append(("Test accuracy", final(run, "accuracy"), worst))
    wrong = errors_of(run)
    if wrong is not None:
        what = f"root mean squared, {wrong.unit}; {seeds}"
        tiles.append(("Test error", spread(*wrong.own, len(run.seeds)), what))
    for metric, title in RELEASED.items():
        if metric in run.metrics:
            what = (
                f"{run.readouts[0].of_rounds(int(run.steps[-1]))} of all agents: costs nothing more"
            )
            if wrong is None or wrong.released is None:
                tiles.append((title, final(run, metric), what))
                continue
            what = f"root mean squared, {wrong.unit}; {what}"
            tiles.append((title, spread(*wrong.released, len(run.seeds)), what))
            if wrong.explained is not None:
                what = "the share of the target's variance that the released model explains"
                tiles.append(("R²", quantity(wrong.explained, 3), what))
    # How far models are from the best one says little where what they are for is measured.
    if not tiles and plots.measured(run, "tracking_error"):
        what = "squared distance to the running optimum"
        tiles.append(("Tracking error", final(run, "tracking_error"), what))
    cert, sent = run.certificate, int(run.certificate.horizon)
    top, of = largest(cert.epsilon)
    at = f", at delta = {quantity(cert.slack)}" if cert.slack else ""
    rest = f"; the smallest is {show(min(cert.epsilon))}" if _differ(run) else ""
    collude = f"; {cert.collusion}" if cert.collusion else ""
    tiles.append(("Largest epsilon", top, f"{of}{at}{rest}{collude}"))
    each = (
        f"{sent:,} from each of {count(run.graph.agents, 'agent')}, over"
        f" {count(run.graph.edges, 'directed link')}"
    )
    tiles.append(("Messages", f"{sent * run.graph.agents:,}", each))
    together = "one seed" if len(run.seeds) == 1 else f"{len(run.seeds)} seeds side by side"
    return [*tiles, ("Wall time", duration(run.seconds), together)]


def _costs(timeline: Timeline | None) -> list[tuple[str, str, str]]:
    """What the run would take on the network that was described."""
    if timeline is None:
        return []
    each = size(float(timeline.traffic.sent.max()))
    return [
        ("Simulated time", duration(float(timeline.seconds[-1])), "on the network in [costs]"),
        ("Traffic", size(float(timeline.bytes[-1])), f"at most {each} a round from an agent"),
    ]


def _learning(run: Run) -> dict[str, object]:
    """The curves, and every metric at the end."""
    last = int(run.steps[-1])
    pictures = []
    for metric in (m for m in CURVES if plots.measured(run, m)):
        figure, ax = new_figure()
        plots.curve(run, metric, ax)
        described = f"{METRICS[metric]}, over {last} steps; {final(run, metric)} at the end"
        pictures.append(picture(metric, figure, f"{METRICS[metric].capitalize()}.", described))
    band = (
        f" Line: mean of {len(run.seeds)} seeds; band: lowest to highest seed."
        if len(run.seeds) > 1
        else ""
    )
    watched, agents = run.raw["tracking_error"].shape[2], run.graph.agents
    sample = (
        f" Models are measured on {watched} of the {agents} agents." if watched < agents else ""
    )
    rows = [
        (m.replace("_", " "), final(run, m), METRICS[m]) for m in METRICS if plots.measured(run, m)
    ]
    return {
        "lead": f"Over {last:,} steps.{band}{sample}",
        "pictures": pictures,
        "table": Table("At the last step", ("metric", "value", "what it is"), rows),
    }


def _network(run: Run) -> dict[str, object]:
    """Who hears whom, coloured by budget, beside the facts about the graph and the data."""
    graph, problem = run.graph, run.problem
    figure, ax = new_figure(5.0, 3.9)
    plots.network(graph, ax, run.certificate.epsilon)
    degree = graph.weights.indptr[1:] - graph.weights.indptr[:-1]
    links = f"{graph.edges // 2:,} links" if graph.symmetric else f"{graph.edges:,} directed links"
    described = (
        f"{graph.name} graph of {graph.agents} agents with {links}, agents coloured by epsilon"
    )
    shade = "; a darker agent has the larger epsilon" if _differ(run) else ""
    model = (
        f"{type(problem.loss).__name__} loss, {count(problem.dimension, 'parameter')}, in the"
        f" {problem.domain}"
    )
    facts = [
        ("Graph", f"{graph.name}, {count(graph.agents, 'agent')}, {links}"),
        ("Neighbours", f"{between(degree)} per agent"),
        ("Weights", f"{between(graph.weights.data)} per link" if graph.edges else "none"),
        ("Data", problem.name),
        ("Records", _records(run)),
        ("Model", model),
        *([("Note", problem.loss.note)] if problem.loss.note else []),
        ("Test set", count(len(problem.test_labels), "record")),
    ]
    return {
        "picture": picture("network", figure, f"Agents by number{shade}.", described),
        "facts": facts,
    }


def _budget(run: Run) -> dict[str, object]:
    """What has been spent, over time; empty where nothing is bounded."""
    last = run.spending.curves[-1]
    if not np.isfinite(last).any():
        return {}
    figure, ax = new_figure(5.0, 3.4)
    plots.budget(run, ax)
    top = show(float(last.max()))
    what = unit(run.algorithm)
    described = f"{what} spent per agent over {int(run.steps[-1])} steps, at most {top} at the end"
    caption = (
        f"Certified {what} of the messages sent so far. Agents with equal budgets share a line."
    )
    return {"picture": picture("budget", figure, caption, described), "facts": _spending(run)}


def _spending(run: Run) -> list[tuple[str, str]]:
    """Who spends most and least, and when."""
    spending = run.spending
    last = spending.curves[-1]
    unbounded = spending.agents(np.flatnonzero(~np.isfinite(last)))
    bounded = np.where(np.isfinite(last), last, 0.0)
    curve = spending.curves[:, int(np.argmax(bounded))]
    half = int(run.steps[np.argmax(curve >= curve[-1] / 2)])
    late = float(curve[-1] - np.interp(0.9 * run.steps[-1], run.steps, curve))
    share = quantity(100 * late / curve[-1], 2) if curve[-1] else "0"
    top, of = largest(bounded[spending.kind])
    return [
        *([("Infinite", who(unbounded, run.graph.agents))] if unbounded.size else []),
        ("Largest finite" if unbounded.size else "Largest", f"{top}, {of}"),
        *([("Smallest", show(float(last.min())))] if of != "every agent" else []),
        ("Half of it", f"was spent by step {half:,}"),
        ("Last tenth", f"the final 10 % of the steps took {share} % of it"),
    ]


def _conditions(run: Run) -> dict[str, object]:
    """The paper's conditions on this configuration; empty where the algorithm has none."""
    found = findings(run.algorithm, run.graph, run.problem)
    if not found:
        return {}
    failed = sum(not f.holds for f in found)
    shown = [
        {
            "name": f.name,
            "holds": f.holds,
            "margin": None if f.margin is None else quantity(f.margin, 3),
            "detail": f.detail,
        }
        for f in found
    ]
    verdict = f"{failed} of {len(found)} fail" if failed else f"All {len(found)} hold"
    return {"verdict": verdict, "findings": shown}


def _records(run: Run) -> str:
    problem, sampling = run.problem, run.algorithm.sampling
    held = "an endless stream" if problem.endless else f"{between(problem.counts)} per agent"
    if getattr(sampling, "size", None) is not None or problem.endless:
        return f"{held}; sampling: {sampling}"
    return f"{held}, {_arriving(problem.arrivals, problem.counts)}; sampling: {sampling}"


def _arriving(arrivals: Arrivals, counts: np.ndarray) -> str:
    if arrivals.head_start >= counts.max():
        return "all there from the start"
    before = f"{arrivals.head_start:,} there from the start, then " if arrivals.head_start else ""
    return f"{before}{arrivals.per_step:,} arriving per step"


def _differ(run: Run) -> bool:
    return len({show(b.epsilon) for b in run.certificate.budgets.kinds}) > 1
