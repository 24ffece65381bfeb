"""Figures: what they show, and that odd runs (no reference, no noise, many agents) are drawn
rather than refused.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

import hearsay as hs
from hearsay.report import plots
from hearsay.report.plot_style import new_figure
from hearsay.simulation.spent import Spending


@pytest.fixture(scope="module")
def run() -> hs.Run:
    problem = hs.problems.logistic("digits", agents=5)
    noise = [hs.PowerLaw(1.0, 0.1 + 0.01 * i) for i in range(1, 6)]
    return hs.simulate(
        hs.ldp_online(noise=noise), problem, hs.graphs.ring(5, weight=0.3), steps=30, seeds=3
    )


def axes():
    return new_figure()[1]


def spending(run: hs.Run, spent: np.ndarray) -> hs.Run:
    """The same run with other budgets, on as many agents as they have columns."""
    return replace(run, spending=Spending.of(spent), graph=hs.graphs.ring(spent.shape[1]))


def test_curve_draws_the_mean_and_the_band_from_lowest_to_highest_seed(run):
    ax = plots.curve(run, "tracking_error", axes())
    values = run.metrics["tracking_error"]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), values.mean(axis=1))
    edge = ax.collections[0].get_paths()[0].vertices
    assert edge[:, 1].min() == pytest.approx(values.min())
    assert edge[:, 1].max() == pytest.approx(values.max())
    assert ax.get_xlabel() == "step"
    assert ax.get_ylabel() == "squared distance to the optimum"


def test_one_seed_has_no_band(run):
    single = replace(run, seeds=[0], raw={name: values[:, :1] for name, values in run.raw.items()})
    assert not plots.curve(single, "accuracy", axes()).collections


def test_a_new_figure_is_made_for_a_notebook(run):
    from matplotlib import pyplot

    ax = run.plot("accuracy")
    assert isinstance(ax.figure, Figure)
    pyplot.close(ax.figure)


def test_runs_in_the_same_axes_are_told_apart(run):
    ax = axes()
    assert run.plot("accuracy", ax).get_legend() is None
    run.plot("accuracy", ax)
    more = spending(run, 2 * run.spent)
    more.plot("accuracy", ax)
    run.plot("accuracy", ax, label="mine")
    top = plots.show(float(run.spending.largest[-1]))
    wanted = [f"ldp-online, epsilon = {top}", f"ldp-online, epsilon = {top} (2)"]
    wanted += [plots._called(more, []), "mine"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == wanted
    assert wanted[2] not in wanted[:2]
    assert len({line.get_color() for line in ax.lines}) == 4


def test_unknown_metric_is_named(run):
    with pytest.raises(ValueError, match="metric must be one of"):
        plots.curve(run, "f1", axes())


@pytest.mark.parametrize(
    ("late", "scale"),
    [
        ([1.0, 0.5], "linear"),
        ([1.0, 0.01], "log"),
        ([1.0, -0.01], "linear"),
        ([1.0, 0.0], "linear"),
    ],
)
def test_log_scale_only_for_positive_values_over_a_decade(run, late, scale):
    values = np.array([0.0, *late])[:, None]
    raw = {**run.raw, "consensus_error": values}
    raw = {name: v[:3] for name, v in raw.items()}
    assert (
        plots.curve(
            replace(run, steps=run.steps[:3], raw=raw), "consensus_error", axes()
        ).get_yscale()
        == scale
    )


def test_a_metric_that_was_not_measured_is_said_to_be_so(run):
    blind = replace(
        run, raw={**run.raw, "tracking_error": np.full_like(run.raw["tracking_error"], np.nan)}
    )
    assert not plots.measured(blind, "tracking_error")
    ax = plots.curve(blind, "tracking_error", axes())
    assert not ax.lines
    assert ax.texts[0].get_text() == "not measured"


def test_a_diverging_seed_leaves_a_gap_instead_of_an_error(run):
    raw = run.raw["consensus_error"].copy()
    raw[-3:, 0], raw[-1, 1] = np.inf, -np.inf
    ax = plots.curve(
        replace(run, raw={**run.raw, "consensus_error": raw}), "consensus_error", axes()
    )
    assert np.isnan(ax.lines[0].get_ydata()[-3:]).all()
    ax.figure.canvas.draw()


def test_compare_labels_every_run_even_one_that_starts_with_an_underscore(run):
    ax = plots.compare({"a": run, "_b": run, "$c$": run}, "accuracy", axes())
    assert [t.get_text().strip() for t in ax.get_legend().get_texts()] == ["a", "_b", "$c$"]
    ax.figure.canvas.draw()


def test_budget_has_a_line_per_agent(run):
    ax = plots.budget(run, axes())
    assert ax.get_ylabel() == "epsilon spent"
    assert [line.get_label() for line in ax.lines] == [f"agent {i}" for i in range(5)]
    for agent, line in enumerate(ax.lines):
        np.testing.assert_array_equal(line.get_ydata(), run.spent[:, agent])


def test_agents_with_equal_budgets_share_a_line(run):
    spent = np.repeat(run.spent[:, :1], 40, axis=1)
    spent[:, 3] /= 2
    ax = plots.budget(spending(run, spent), axes())
    assert [line.get_label() for line in ax.lines] == ["agents 0–2, 4–39", "agent 3"]


def test_many_different_budgets_become_a_band_and_the_largest(run):
    spent = run.spent[:, :1] * np.linspace(1, 2, 13)
    ax = plots.budget(spending(run, spent), axes())
    assert [line.get_label() for line in ax.lines] == ["median agent", "agent 12, the largest"]


def test_infinite_budgets_are_named_not_drawn(run):
    spent = run.spent.copy()
    spent[1:, 2] = np.inf
    ax = plots.budget(spending(run, spent), axes())
    assert ax.get_legend().get_texts()[-1].get_text() == "agent 2: infinite"
    spent[1:] = np.inf
    assert (
        plots.budget(spending(run, spent), axes()).texts[0].get_text() == "infinite for every agent"
    )


def test_gaussian_budget_names_its_delta(run):
    gaussian = replace(run, certificate=replace(run.certificate, mechanism="gaussian", delta=1e-5))
    assert plots.budget(gaussian, axes()).get_ylabel().startswith("epsilon spent (delta = ")


@pytest.mark.parametrize("name", sorted(hs.graphs.BUILDERS))
def test_every_kind_of_network_is_drawn_with_its_agents(name):
    agents = 5 if name == "five-agents" else 6
    graph = hs.graphs.BUILDERS[name](agents)
    ax = plots.network(graph, axes(), values=np.arange(1.0, agents + 1))
    # Arrows are texts without words.
    assert [t.get_text() for t in ax.texts if t.get_text()] == list("012345"[:agents])
    places = ax.collections[-1].get_offsets()
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.eye(agents)
    assert gaps.min() > 0.1
    assert len(ax.figure.axes) == 2


def test_equal_budgets_need_no_colour_scale_and_infinite_ones_are_marked():
    assert len(plots.network(hs.graphs.ring(4), axes(), values=[2.0] * 4).figure.axes) == 1
    ax = plots.network(hs.graphs.ring(4), axes(), values=[2.0, 2.0, 2.0, np.inf])
    assert ax.get_legend().get_texts()[0].get_text() == "infinite epsilon"


def test_one_way_links_are_arrows():
    weights = np.zeros((3, 3))
    weights[1, 0] = weights[2, 1] = weights[0, 2] = 0.5
    ax = plots.network(hs.graphs.from_weights(weights), axes())
    assert sum(hasattr(t, "arrow_patch") and t.arrow_patch is not None for t in ax.texts) == 3


@pytest.mark.parametrize(
    "graph", [hs.graphs.random(200), hs.graphs.complete(300)], ids=lambda g: g.name
)
def test_a_large_network_is_drawn_quickly_and_without_labels(graph):
    began = time.perf_counter()
    ax = plots.network(graph, axes(), values=np.linspace(1, 2, graph.agents))
    ax.figure.canvas.draw()
    assert time.perf_counter() - began < 20  # a second or so alone; the machine may be busy
    assert all("links drawn" in t.get_text() for t in ax.texts)
