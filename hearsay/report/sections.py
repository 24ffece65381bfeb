"""What a report says of one run, section by section."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from hearsay.algorithms.theory.findings import findings
from hearsay.certification import unit
from hearsay.privacy.certificate import show
from hearsay.problems.sampling.samplers import Arrivals
from hearsay.report import plots
from hearsay.report.numbers import between, count, duration, largest, quantity, spread, who
from hearsay.report.page import Html, facts, join, notice, picture, section, table, tag
from hearsay.report.style import new_figure
from hearsay.simulation.result import METRICS

if TYPE_CHECKING:
    from hearsay.simulation.result import Run

CURVES = (
    "accuracy",
    "train_accuracy",
    "test_error",
    "test_loss",
    "tracking_error",
    "regret",
    "dynamic_regret",
    "consensus_error",
    "mean_model_error",
)


def final(run: Run, metric: str) -> str:
    """A metric at the end, as mean ± standard deviation over the seeds."""
    return spread(*run.final(metric), len(run.seeds), percent=metric.startswith("accuracy"))


def headline(run: Run) -> Html:
    """The numbers that one asks for first."""
    seeds = f"± standard deviation of {len(run.seeds)} seeds" if len(run.seeds) > 1 else "one seed"
    tiles = []
    if "accuracy" in run.metrics:
        tiles.append(
            (
                "Test accuracy",
                final(run, "accuracy"),
                f"{seeds}; worst agent {final(run, 'accuracy_worst')}",
            )
        )
    elif "test_error" in run.metrics:
        tiles.append(("Test error", final(run, "test_error"), f"mean squared; {seeds}"))
    if plots.measured(run, "tracking_error"):
        tiles.append(
            (
                "Tracking error",
                final(run, "tracking_error"),
                "squared distance to the running optimum",
            )
        )
    cert, sent = run.certificate, int(run.certificate.horizon)
    top, of = largest(cert.epsilon)
    at = f", at delta = {quantity(cert.slack)}" if cert.slack else ""
    rest = f"; the smallest is {show(min(cert.epsilon))}" if _differ(run) else ""
    tiles.append(("Largest epsilon", top, f"{of}{at}{rest}"))
    each = (
        f"{sent:,} from each of {count(run.graph.agents, 'agent')}, over"
        f" {count(run.graph.edges, 'directed link')}"
    )
    tiles.append(("Messages", f"{sent * run.graph.agents:,}", each))
    tiles.append(
        (
            "Wall time",
            duration(run.seconds),
            "one seed" if len(run.seeds) == 1 else f"{len(run.seeds)} seeds side by side",
        )
    )
    boxes = (
        tag("div", tag("h3", n), tag("p", v, class_="value"), tag("p", m, class_="more"))
        for n, v, m in tiles
    )
    return tag("div", *boxes, class_="tiles")


def alerts(run: Run) -> Html:
    """What must not be missed: an early end, a budget without bound."""
    found = []
    if run.stopped:
        found.append(
            notice("alert", tag("p", tag("strong", "The run ended early: "), run.stopped, "."))
        )
    unbounded = [b.agent for b in run.certificate.budgets if math.isinf(b.epsilon)]
    if unbounded:
        whom = who(unbounded, len(run.certificate.budgets))
        found.append(
            notice(
                "alert",
                tag(
                    "p", tag("strong", "No privacy guarantee: "), f"epsilon is infinite for {whom}."
                ),
            )
        )
    return join(found)


def learning(run: Run) -> Html:
    """The network, the curves, and every metric at the end."""
    drawn = [m for m in CURVES if plots.measured(run, m)]
    last = int(run.steps[-1])
    band = (
        f" Line: mean of {len(run.seeds)} seeds; band: lowest to highest seed."
        if len(run.seeds) > 1
        else ""
    )
    shown = []
    for metric in drawn:
        figure, ax = new_figure()
        plots.curve(run, metric, ax)
        described = f"{METRICS[metric]}, over {last} steps; {final(run, metric)} at the end"
        shown.append(picture(metric, figure, f"{METRICS[metric].capitalize()}.", described))
    watched, agents = run.raw["tracking_error"].shape[2], run.graph.agents
    sample = (
        f" Models are measured on {watched} of the {agents} agents." if watched < agents else ""
    )
    rows = [
        (m.replace("_", " "), final(run, m), METRICS[m]) for m in METRICS if plots.measured(run, m)
    ]
    return section(
        "Learning",
        tag("p", f"Over {last:,} steps.{band}{sample}"),
        tag("div", *shown, class_="pair"),
        table("At the last step", ("metric", "value", "what it is"), rows),
    )


def network(run: Run) -> Html:
    """Who hears whom, coloured by budget, beside the facts about the graph and the data."""
    graph, problem = run.graph, run.problem
    figure, ax = new_figure(5.0, 3.9)
    plots.network(graph, ax, run.certificate.epsilon)
    degree = graph.weights.indptr[1:] - graph.weights.indptr[:-1]
    links = f"{graph.edges // 2:,} links" if graph.symmetric else f"{graph.edges:,} directed links"
    described = (
        f"{graph.name} graph of {graph.agents} agents with {links}, agents coloured by epsilon"
    )
    what = [
        ("Graph", f"{graph.name}, {count(graph.agents, 'agent')}, {links}"),
        ("Neighbours", f"{between(degree)} per agent"),
        ("Weights", f"{between(graph.weights.data)} per link" if graph.edges else "none"),
        ("Data", problem.name),
        ("Records", _records(run)),
        (
            "Model",
            (
                f"{type(problem.loss).__name__} loss, {count(problem.dimension, 'parameter')}, in"
                f" the {problem.domain}"
            ),
        ),
        *([("Note", problem.loss.note)] if problem.loss.note else []),
        ("Test set", count(len(problem.test_labels), "record")),
    ]
    caption = (
        "Agents by number; a darker agent has the larger epsilon."
        if _differ(run)
        else "Agents by number."
    )
    return section(
        "Network and data",
        tag("div", picture("network", figure, caption, described), facts(what), class_="pair"),
    )


def budget(run: Run) -> Html:
    """What has been spent, over time."""
    if not any(math.isfinite(e) for e in run.spent[-1]):
        return section(
            "Privacy over time",
            tag("p", "No curve: epsilon is infinite from the first message on."),
        )
    figure, ax = new_figure(5.0, 3.4)
    plots.budget(run, ax)
    top = show(float(run.spent[-1].max()))
    what = unit(run.algorithm)
    described = f"{what} spent per agent over {int(run.steps[-1])} steps, at most {top} at the end"
    caption = (
        f"Certified {what} of the messages sent so far. Agents with equal budgets share a line."
    )
    drawn = picture("budget", figure, caption, described)
    return section("Privacy over time", tag("div", drawn, facts(_spending(run)), class_="pair"))


def _spending(run: Run) -> list[tuple[object, object]]:
    """Who spends most and least, and when."""
    last, agents = run.spent[-1], run.graph.agents
    unbounded = np.flatnonzero(~np.isfinite(last)).tolist()
    bounded = np.where(np.isfinite(last), last, 0.0)
    agent = int(np.argmax(bounded))
    curve = run.spent[:, agent]
    half = int(run.steps[np.argmax(curve >= curve[-1] / 2)])
    late = float(curve[-1] - np.interp(0.9 * run.steps[-1], run.steps, curve))
    share = quantity(100 * late / curve[-1], 2) if curve[-1] else "0"
    top, of = largest(bounded.tolist())
    return [
        *([("Infinite", who(unbounded, agents))] if unbounded else []),
        ("Largest finite" if unbounded else "Largest", f"{top}, {of}"),
        *([("Smallest", show(float(last.min())))] if of != "every agent" else []),
        ("Half of it", f"was spent by step {half:,}"),
        ("Last tenth", f"the final 10 % of the steps took {share} % of it"),
    ]


def theory(run: Run) -> Html:
    """The paper's conditions on this configuration, where the algorithm has any."""
    found = findings(run.algorithm, run.graph, run.problem)
    if not found:
        return Html("")
    rows = [
        (
            f.name,
            _badge("holds" if f.holds else "fails"),
            None if f.margin is None else quantity(f.margin, 3),
            f.detail,
        )
        for f in found
    ]
    failed = sum(not f.holds for f in found)
    said = f"{failed} of {len(found)} fail" if failed else f"All {len(found)} hold"
    lead = tag(
        "p",
        f"{said}. A positive margin is what there is to spare. The certificate does not rest on"
        " these.",
    )
    table_ = table(
        "Conditions for convergence and rates", ("condition", "holds", "margin", "in detail"), rows
    )
    return section("The paper's conditions", lead, table_)


def grid(figures: Sequence[tuple[str, str, Figure]]) -> Html:
    """Figures two abreast, from (name, caption, figure)."""
    return tag(
        "div",
        *(picture(name, figure, caption, caption) for name, caption, figure in figures),
        class_="pair",
    )


def _records(run: Run) -> str:
    problem, sampling = run.problem, run.algorithm.sampling
    held = "an endless stream" if problem.endless else f"{between(problem.counts)} per agent"
    if getattr(sampling, "size", None) is not None or problem.endless:
        return f"{held}; sampling: {sampling}"
    return f"{held}, {_arriving(problem.arrivals)}; sampling: {sampling}"


def _arriving(arrivals: Arrivals) -> str:
    before = f"{arrivals.head_start:,} there from the start, then " if arrivals.head_start else ""
    return f"{before}{arrivals.per_step:,} arriving per step"


def _badge(kind: str) -> Html:
    return tag("span", kind, class_=f"badge {kind}")


def _differ(run: Run) -> bool:
    return len({show(e) for e in run.certificate.epsilon}) > 1
