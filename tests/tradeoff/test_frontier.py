"""The frontier: every row is there, every point has a certificate, nothing is run twice."""

from __future__ import annotations

import csv
import functools
import importlib
import io
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import hearsay as hs
from hearsay.cli import commands
from hearsay.experiments import demo
from hearsay.privacy.verification import verify_text
from hearsay.report.frontier import accuracy_against_epsilon, verdict
from hearsay.tradeoff import points, rehearsal
from hearsay.tradeoff.measuring import Measured
from hearsay.tradeoff.points import Point
from hearsay.tradeoff.rehearsing import nobody
from hearsay.tradeoff.rule import prepared
from hearsay.tradeoff.series import LARGEST, SERIES, Candidate, alone, at_a_server
from hearsay.tradeoff.sharing import KEYS, chosen_series
from hearsay.tradeoff.sizes import ALIKE, classes

running = importlib.import_module("hearsay.tradeoff.running")
EPSILONS = (0.5, 8.0)


def records(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    return rng.normal(size=(count, 2)) + 2.0 * labels[:, None], labels


def small(seed: int = 0) -> hs.problems.Problem:
    sets = [records(20, 10 * seed + agent) for agent in range(3)]
    return hs.problems.logistic(
        sets, feature_bound=3.0, ridge=0.0, test=records(60, 99 + seed), seed=seed
    )


def measured(tmp_path, **options):
    options = {"series": ["alone", "secret-batches"], "seeds": 2, "splits": 2, **options}
    return hs.frontier(small, hs.graphs.ring, EPSILONS, folder=tmp_path, **options)


def certificates(folder) -> list[tuple[float, str]]:
    """(the epsilon that was asked for, the text) of every point that has one."""
    found = []
    for path in sorted(folder.glob("points/*/certificate*.json")):
        point = json.loads((path.parent / "private-point.json").read_text())
        if point["epsilon"] is not None:
            found.append((point["epsilon"], path.read_text(encoding="utf-8")))
    return found


def hold(folder, expected: int) -> None:
    found = certificates(folder)
    assert len(found) == expected
    for asked, text in found:
        certificate, verdict = verify_text(text)
        assert verdict.holds, verdict
        assert max(certificate.epsilon) <= asked and certificate.slack == 1e-5
        assert min(certificate.epsilon) > 0.99 * asked, "the budget is used"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frontier")
    return measured(folder), folder


def test_every_row_and_column_is_there(whole):
    found, folder = whole
    assert [key for key, _, _ in found.rows] == ["guessing", "alone", "secret-batches"]
    for _, _, row in found.rows:
        assert len(row) == 2 and all(0 <= point.mean <= 1 for point in row)
    assert found.at("alone", 8.0).values.shape == (2, 2)
    # Records that are this far apart can be told from each other at a large budget.
    assert found.at("secret-batches", 8.0).mean > found.at("guessing").mean + 0.2
    found.report(folder)
    rows = list(csv.DictReader(io.StringIO((folder / "private-frontier.csv").read_text())))
    assert [row["series"] for row in rows] == ["guessing", *["alone"] * 2, *["secret-batches"] * 2]
    assert len((folder / "private-runs.csv").read_text().splitlines()) == 1 + 2 + 4 * 4
    page = (folder / "private-report.html").read_text()
    assert "all records" in page and "points/alone-8/certificate.json" in page
    assert "How to read it" in page and "the odds that the record was there" in page
    assert str(found) == (folder / "private-frontier.txt").read_text().rstrip("\n")
    assert (folder / "private-frontier.png").read_bytes().startswith(b"\x89PNG")


def test_every_certificate_holds_and_is_within_its_epsilon(whole):
    hold(whole[1], 4)


def test_the_same_noise_is_never_used_for_two_splits(whole):
    released = whole[0].at("alone", 0.5).released
    assert released[0] != released[1]


def sized(counts: list[int]) -> hs.problems.Problem:
    sets = [records(count, count) for count in counts]
    return hs.problems.logistic(sets, feature_bound=3.0, ridge=0.0, test=records(300, 99))


@pytest.mark.slow
def test_alone_every_size_has_settings_of_its_own():
    """As if nobody else were there: with one setting for all a large agent looks worse than it is,
    and joining better.
    """
    options = {"epsilons": [0.5], "seeds": 2, "series": ["alone"]}
    both = hs.frontier(
        sized([20, 800, 20]),
        hs.graphs.ring(3),
        **{**options, "series": ["alone", LARGEST, "secret-batches"]},
    )
    small, large = (
        hs.frontier(sized(counts), nobody(len(counts)), **options).at("alone", 0.5)
        for counts in ([20, 20], [800])
    )
    found, most = both.at("alone", 0.5), both.at(LARGEST, 0.5)
    np.testing.assert_allclose(found.values, (2 * small.values + large.values) / 3, rtol=1e-12)
    assert most.released == large.released and most.settings == large.settings
    assert found.settings == f"20 records: {small.settings}; 800 records: {large.settings}"
    assert f"alone {found.mean:.3f} (who has most records: {most.mean:.3f})" in verdict(both)


@pytest.mark.parametrize("most", [3, 16])
def test_a_class_has_agents_of_about_one_size(most):
    sizes = np.random.default_rng(0).integers(30, 20_000, 300)
    found = classes(sizes, most)
    assert len(found) <= most
    assert sorted(np.concatenate(found).tolist()) == list(range(300))
    widest = max(ALIKE, (sizes.max() / sizes.min()) ** (1 / most))
    ends = [(sizes[agents].min(), sizes[agents].max()) for agents in found]
    assert all(high <= low * widest * (1 + 1e-6) for low, high in ends)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(ends))
    # Records dealt out evenly differ by one.
    assert len(classes(np.array([92, 91, 91]))) == 1


@pytest.fixture(scope="module")
def sharing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharing")
    series = ["alone", "secret-batches", "secrets"]
    options = {"seeds": 2, "series": series, "folder": folder}
    return hs.frontier(small(), hs.graphs.ring(3), [1.0], **options), folder


def test_shared_secrets_have_a_row_for_every_number_of_colluders(sharing):
    found, folder = sharing
    rows = ["guessing", "alone", "secret-batches", "secrets-0", "secrets-1"]
    assert [key for key, _, _ in found.rows] == rows
    hold(folder, 4)
    for colluders in (0, 1):
        kept = folder / "points" / f"secrets-{colluders}-1" / "certificate.json"
        certificate, _ = verify_text(kept.read_text())
        curve = certificate.budgets[0].curve
        assert [point.colluders for point in curve] == [0, 1, 2]
        assert curve[colluders].epsilon == pytest.approx(1.0, rel=1e-5)
        assert found.at(f"secrets-{colluders}", 1.0).all_collude == curve[-1].epsilon > 1.2


def test_epsilon_if_all_collude_is_never_hidden(sharing):
    found, folder = sharing
    page = found.report(folder).read_text()
    for colluders in (0, 1):
        point = found.at(f"secrets-{colluders}", 1.0)
        bracket = f"{point.mean:.3f} ± {point.deviation:.3f} [{point.all_collude:.3g}]"
        assert bracket in str(found) and bracket in page
    assert found.note in str(found) and found.note in page
    assert found.at("secret-batches", 1.0).all_collude is None
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [bool(row["all_collude"]) for row in rows] == [False] * 3 + [True] * 2
    assert float(rows[3]["all_collude"]) > float(rows[4]["all_collude"]) > 1.2
    assert f"epsilon {found.at('secrets-1', 1.0).all_collude:.3g} if all collude" in page
    drawn = accuracy_against_epsilon(found)
    hollow = [line.get_xdata()[0] for line in drawn.lines if line.get_markerfacecolor() == "none"]
    assert hollow == [found.at(f"secrets-{q}", 1.0).all_collude for q in (0, 1)]


def test_colluders_are_named_once_and_leave_somebody_honest():
    def keys(*arguments):
        return [one.key for one in chosen_series(*arguments)]

    assert keys(["secrets"], 20, [4, 9]) == ["secrets-0", "secrets-4", "secrets-9"]
    assert keys(["secrets-3", "secrets"], 5, 1)[:2] == ["secrets-3", "secrets-0"]
    assert keys(["secrets"], 2, None) == ["secrets-0"]
    assert "secrets-1" in keys(None, 5, None)
    # Who has most records has a row of their own where agents differ.
    assert keys(None, 1, None) == [key for key in SERIES if key != LARGEST]
    assert LARGEST not in keys(None, 5, None) and LARGEST in keys(None, 5, None, False)
    for wrong, message in (
        ((["secrets"], 5, 4), "colluders must be at most 3, all others but one, got 4"),
        ((["secrets"], 5, [-1]), "colluders"),
        ((["secrets-x"], 5, 1), f"series must be one of {KEYS[0]}"),
    ):
        with pytest.raises(ValueError, match=message):
            chosen_series(*wrong)


@pytest.mark.slow
def test_all_series_and_their_certificates(tmp_path):
    found = measured(tmp_path, series=None, splits=1)
    rows = [key for key, _, _ in found.rows if not key.startswith("secrets-")]
    some = [key for key in SERIES if key != LARGEST]
    assert rows == ["guessing", *some] and found.at("secrets-1", 0.5).all_collude > 0.5
    # Two rows with secrets, and one without a budget.
    hold(tmp_path, 2 * (len(some) + 2 - 1))
    assert found.at("no-noise").spent == np.inf
    assert (tmp_path / "points" / "no-noise" / "certificate.json").exists()


def fake(series, epsilon, problems, graph, seeds, delta, mark):
    """A point that costs no computing."""
    values = [[0.5 + 0.1 * epsilon] * len(seeds) for _ in problems]
    at = epsilon if series.private else None
    return Point(series.key, series.label, at, epsilon, "made up", values, values, mark), ["{}"]


def test_an_interrupted_frontier_goes_on_where_it_ended(tmp_path, monkeypatch):
    calls = []

    def third_is_cut(series, epsilon, *rest):
        calls.append((series.key, epsilon))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fake(series, epsilon, *rest)

    monkeypatch.setattr(running, "measure", third_is_cut)
    first = measured(tmp_path)
    assert first.missing == ("secret-batches at 0.5", "secret-batches at 8")
    assert "Interrupted" in first.report(tmp_path).read_text()
    second = measured(tmp_path)
    assert not second.missing and second.found == 2
    assert calls[3:] == [("secret-batches", 0.5), ("secret-batches", 8.0)]
    assert "Interrupted" not in second.report(tmp_path).read_text()
    assert measured(tmp_path).found == 4 and len(calls) == 5


def test_points_of_another_frontier_are_not_taken_for_this_one(tmp_path, monkeypatch):
    calls = []

    def counted(*rest):
        calls.append(rest)
        return fake(*rest)

    monkeypatch.setattr(running, "measure", counted)
    measured(tmp_path)
    for options in ({"seeds": 3}, {"delta": 1e-6}, {"adjacency": "replace"}):
        assert measured(tmp_path, **options).found == 0
    (tmp_path / "points" / "alone-8" / "certificate.json").unlink()
    calls.clear()
    measured(tmp_path, adjacency="replace")
    assert [(one[0].key, one[1]) for one in calls] == [("alone", 8.0)], "a point has a certificate"


def test_a_damaged_point_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "measure", fake)
    measured(tmp_path)
    path = tmp_path / "points" / "alone-8" / "private-point.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(ValueError, match="alone-8/private-point.json must be a point that hearsay"):
        measured(tmp_path)


def test_points_of_before_are_found_under_the_names_of_today(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "measure", fake)
    measured(tmp_path).report(tmp_path)
    private = sorted(tmp_path.rglob("private-*"))
    for path in private:
        path.rename(path.with_name(path.name.removeprefix("private-")))
    again = measured(tmp_path)
    assert again.found and not again.missing
    again.report(tmp_path)
    assert sorted(tmp_path.rglob("private-*")) == private
    assert not list(tmp_path.rglob("point.json")) and not list(tmp_path.glob("report.html"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilons": [0.0]}, "epsilons.* must be positive, got 0"),
        ({"epsilons": [1.0, -2.0]}, "epsilons.* must be positive, got -2"),
        ({"epsilons": []}, "epsilons must be at least one number"),
        ({"series": ["allone"]}, "series must be one of .*alone.*, got 'allone'"),
        ({"delta": 1.0}, "delta must be"),
        ({"seeds": 0}, "seeds must be"),
        ({"adjacency": "remove"}, "adjacency must be one of"),
        ({"problem": small(), "splits": 2}, "splits must be 1 for one problem"),
        ({"graph": hs.graphs.ring(4)}, "the graph has 4 agents and the problem has 3"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options, message, monkeypatch):
    monkeypatch.setattr(running, "measure", lambda *_: pytest.fail("a point was measured"))
    given = {"problem": small, "graph": hs.graphs.ring, "epsilons": [1.0], **options}
    with pytest.raises(ValueError, match=message):
        hs.frontier(**given)


def test_a_method_that_the_graph_does_not_serve_is_named():
    with pytest.raises(ValueError, match="ldp-online cannot be measured here: weights must be sym"):
        hs.frontier(small, hs.graphs.directed_ring, [1.0], series=["ldp-online"], seeds=1)


def test_problems_without_accuracy_are_refused():
    graph = hs.graphs.ring(2)
    with pytest.raises(ValueError, match="a classification problem.*hearsay compare shows errors"):
        hs.frontier(hs.problems.ridge(agents=2, records=9, dimension=2), graph)
    with pytest.raises(ValueError, match="records to test on"):
        hs.frontier(hs.problems.logistic([records(9, 0)] * 2, feature_bound=1.0), graph)
    with pytest.raises(TypeError, match="problem must be a problem with records"):
        hs.frontier(small().task, hs.graphs.ring(3))


def test_a_server_has_all_records_and_alone_has_no_neighbour():
    problem, graph = small(), hs.graphs.ring(3)
    merged, server = at_a_server(problem, graph)
    assert merged.counts.tolist() == [60] and server.agents == 1
    assert np.array_equal(merged.features[0], problem.features.reshape(-1, 2))
    assert np.array_equal(merged.labels[0], problem.labels.ravel())
    assert alone(problem, graph)[1].edges == 0


def test_a_rehearsal_takes_what_does_best_on_made_up_records(monkeypatch):
    problem, graph = small(), hs.graphs.ring(3)
    tried = []

    def trained(algorithm, trial, *rest):
        assert not np.array_equal(trial.labels, problem.labels)
        tried.append(float(algorithm.step(0)))
        return tried[-1]

    def score(run, together):
        return Measured(np.array([1 - abs(run - 0.2)]), np.zeros(1), None)

    monkeypatch.setattr(rehearsal, "trained", trained)
    monkeypatch.setattr(rehearsal, "measured", score)
    candidates = tuple(
        Candidate(hs.dsgd(step=step, noise=1.0, mechanism="gaussian"), 4, f"{step}")
        for step in (0.1, 0.2, 0.4)
    )
    series = running.Series("one", "one", None, lambda *_: candidates)
    found, algorithm = rehearsal.planned(series, problem.task, graph, 2.0, 1e-5)
    assert tried == [0.1, 0.2, 0.4] and found.words == "0.2"
    spent = hs.certify(algorithm, problem, graph, 4, delta=1e-5).epsilon
    assert max(spent) <= 2.0


def invoke(*words: str):
    return CliRunner().invoke(commands.app, [str(word) for word in words])


def test_the_command_writes_a_table_and_a_page_and_says_what_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "measure", fake)
    words = ["frontier", "breast-cancer", "--epsilon", "1,2", "--splits", "1", "--out", tmp_path]
    result = invoke(*words, "--series", "alone,secret-batches,central")
    assert result.exit_code == 0, result.output
    said = "at epsilon = 2 alone 0.700, together 0.700 (a trusted server: 0.700)"
    assert said in result.output.replace("\n", " ")
    assert "5 agents with 91 records each" in (tmp_path / "private-frontier.txt").read_text()
    assert len(list(tmp_path.glob("points/*/private-point.json"))) == 6
    monkeypatch.setattr(running, "measure", functools.partial(stop))
    again = invoke(*words, "--series", "alone,correlated-noise")
    assert again.exit_code == 130 and "will not be run again" in again.output
    assert "To start it again: hearsay" in again.output


def stop(*_):
    raise KeyboardInterrupt


def test_the_demonstration_ends_with_the_released_model(tmp_path, monkeypatch):
    released = []
    monkeypatch.setattr(running, "measure", fake)
    monkeypatch.setattr(demo, "release", lambda folder: released.append(folder) or "the model")
    result = invoke("demo", "--out", tmp_path)
    assert result.exit_code == 0 and "the model" in result.output
    assert released == [tmp_path / "released"]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "private-frontier.csv").read_text())))
    assert {row["series"] for row in rows} == {"guessing", *demo.SERIES}
    assert {row["epsilon"] for row in rows} == {"", "1", "2", "4"}
    monkeypatch.setattr(running, "measure", stop)
    (tmp_path / "points" / "central-4" / "private-point.json").unlink()
    assert invoke("demo", "--out", tmp_path).exit_code == 130 and len(released) == 1


@pytest.mark.slow
def test_joining_pays_on_breast_cancer():
    """20 splits: the standard error of a mean is 0.006, and measured were 0.893, 0.930 and, with
    shared secrets, 0.942.
    """
    problem = functools.partial(hs.problems.logistic, "breast-cancer", ridge=0.0)
    series = ["alone", "secret-batches", "secrets-1"]
    found = hs.frontier(problem, hs.graphs.ring, [2.0], splits=20, seeds=1, series=series)
    assert found.at("secrets-1", 2.0).mean >= 0.93
    assert found.at("secret-batches", 2.0).mean >= 0.915
    assert found.at("secret-batches", 2.0).mean > found.at("alone", 2.0).mean + 0.02


def test_the_command_names_what_is_wrong(tmp_path):
    out = ["--out", tmp_path]
    for words, message in (
        (["frontier", "iris"], "data set must be one of"),
        (["frontier", "digits", "--epsilon", "0"], "must be positive, got 0"),
        (["frontier", "digits", "--epsilon", "1,x"], "must be a number, got 'x'"),
        (["frontier", "digits", "--colluders", "1,4"], "colluders must be at most 3"),
        (["frontier", "digits", "--loss", "ridge", "--adjacency", "none"], "adjacency must be"),
    ):
        result = invoke(*words, *out)
        assert result.exit_code != 0 and message in str(result.exception), result.exception


def test_a_point_says_what_its_values_are():
    point = Point("a", "A", 1.0, 0.9, "", [[0.5, 0.7], [0.6, 0.8]], [[0.1, 0.2], [0.3, 0.4]])
    assert point.mean == pytest.approx(0.65) and point.own_mean == pytest.approx(0.25)
    assert point.deviation == pytest.approx(np.std([0.5, 0.7, 0.6, 0.8], ddof=1))
    assert points.guessing([small()]).mean == pytest.approx(
        max(np.mean(small().test_labels), 1 - np.mean(small().test_labels))
    )


def bounded_by(seed: int = 0) -> hs.problems.Problem:
    """Splits with the same numbers of records and another bound on their features."""
    sets = [records(20, 10 * seed + agent) for agent in range(3)]
    return hs.problems.logistic(
        sets, feature_bound=1.0 + 2 * seed, ridge=0.0, test=records(60, 99), seed=seed
    )


@pytest.mark.slow
def test_splits_that_differ_in_public_facts_are_calibrated_one_by_one(tmp_path):
    # With the first split's noise the second would cost 3.4 where 1 was asked for.
    hs.frontier(
        bounded_by, hs.graphs.ring, [1.0], splits=2, seeds=1, series=["central"], folder=tmp_path
    )
    hold(tmp_path, 2)


def test_a_point_that_costs_more_than_it_says_is_refused(monkeypatch):
    real = points.planned

    def careless(series, task, graph, epsilon, delta):
        return real(series, task, graph, 2 * epsilon, delta)

    monkeypatch.setattr(points, "planned", careless)
    with pytest.raises(RuntimeError, match="central must spend at most 1, and its certificate"):
        hs.frontier(small(), hs.graphs.ring(3), [1.0], seeds=1, series=["central"])


@pytest.mark.parametrize("key", [key for key in SERIES if key != "central"])
def test_settings_for_agents_of_different_sizes(key):
    """Methods that know no weights get the travel of a plain mean."""
    problem = prepared(hs.problems.logistic("digits", agents=3, ridge=0.0).under("zero-out"))
    task, graph = SERIES[key].stand(problem, hs.graphs.complete(3))
    task, even = task.task, replace(task.task, counts=np.array([50, 50, 50]))
    small = replace(task, counts=np.array([20, 50, 800]))
    found = SERIES[key].candidates(small, graph, 2.0, 1e-5)
    names = {one.algorithm.name for one in found}
    assert ("weighted-erm" in names) == (key in ("secret-batches", "no-noise"))
    if key not in ("no-noise", "alone", "secret-batches"):
        known = [one.algorithm.name for one in SERIES[key].candidates(even, graph, 2.0, 1e-5)]
        assert [one.algorithm.name for one in found] == known
