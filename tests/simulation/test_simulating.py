"""Simulation: reproducible, resumable bit for bit, stopped by budgets exactly,
and interrupted without loss.
"""

from __future__ import annotations

import importlib
import math
import re
import subprocess
import sys
import textwrap
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.certification import spent_after
from hearsay.mechanisms.convert import gaussian_epsilon
from hearsay.privacy.budgets import Budgets
from hearsay.problems.problem import Problem
from hearsay.simulation import checkpoint, engine
from hearsay.simulation.identity import fingerprint
from hearsay.simulation.optimum import Reference
from hearsay.simulation.program import program
from hearsay.simulation.spent import Spending
from tests.sources import ROOT

# hearsay.simulate itself is the function.
simulation = importlib.import_module("hearsay.simulation.simulating")
STEPS, EVERY = 30, 5
GRAPH = hs.graphs.ring(3)
ALGORITHM = hs.ldp_online(step=hs.PowerLaw(0.3, -0.7), noise=hs.PowerLaw(0.5, 0.1))


def make_problem(**options) -> Problem:
    return hs.problems.ridge(
        **{"agents": 3, "records": 40, "dimension": 2, "ridge": 0.3, "radius": 3.0, "per_step": 2}
        | options
    )


PROBLEM = make_problem()


def simulate(algorithm=ALGORITHM, problem=PROBLEM, **options):
    return hs.simulate(
        algorithm, problem, GRAPH, **{"steps": STEPS, "every": EVERY, "seeds": [0, 7]} | options
    )


@pytest.fixture(scope="module")
def whole():
    return simulate()


def spent_curve(algorithm=ALGORITHM, problem=PROBLEM, steps: int = STEPS) -> np.ndarray:
    """What each agent has spent after 1, 2, ..., `steps` messages."""
    return spent_after(algorithm, problem, GRAPH, range(1, steps + 1))


def assert_same_run(one, two, metrics_within: float = 0.0) -> None:
    """Bit for bit, apart from what is measured against the reference if
    `metrics_within` says so.
    """
    assert one.steps.tolist() == two.steps.tolist()
    np.testing.assert_array_equal(one.models, two.models)
    np.testing.assert_array_equal(one.spent, two.spent)
    assert one.certificate == two.certificate
    assert one.raw.keys() == two.raw.keys()
    for name in ("consensus_error", "accuracy"):
        np.testing.assert_array_equal(one.raw[name], two.raw[name], err_msg=name)
    for name in one.raw:
        np.testing.assert_allclose(
            one.raw[name], two.raw[name], rtol=0, atol=metrics_within, err_msg=name
        )


# The reference starts cold after a resume: it ends within its tolerance of where a warm one ends.
RESUMED = 1e-8


def interrupt_at(step: int):
    def progress(done: int, total: int, spent: float) -> None:
        if done >= step:
            raise KeyboardInterrupt

    return progress


def test_shapes_and_measured_steps(whole):
    assert whole.steps.tolist() == [0, 5, 10, 15, 20, 25, 30]
    assert whole.models.shape == (2, 3, 2)
    assert whole.raw["tracking_error"].shape == (7, 2, 3)
    assert whole.spent.shape == (7, 3)
    assert whole.stopped is None
    assert whole.certificate.horizon == 30
    assert np.all(whole.spent[0] == 0)
    np.testing.assert_array_equal(whole.spent[1:], spent_curve()[whole.steps[1:] - 1])
    np.testing.assert_allclose(whole.spent[-1], whole.certificate.epsilon, rtol=1e-12)


def test_twice_the_same(whole):
    assert_same_run(whole, simulate())


def test_the_measuring_interval_does_not_change_the_models(whole):
    run = simulate(every=25, reference=False)
    assert run.steps.tolist() == [0, 25, 30]
    np.testing.assert_allclose(run.models, whole.models, rtol=0, atol=1e-14)


def test_progress_is_told_the_steps_and_the_largest_budget(whole):
    seen = []
    simulate(progress=lambda *facts: seen.append(facts))
    assert [(done, total) for done, total, _ in seen] == [(k, 30) for k in range(5, 31, 5)]
    np.testing.assert_array_equal([spent for *_, spent in seen], whole.spent[1:].max(axis=1))


@pytest.mark.parametrize("stop", [5, 15, 30])
def test_an_interrupted_run_continues_bit_for_bit(tmp_path, whole, stop):
    part = simulate(folder=tmp_path, progress=interrupt_at(stop))
    assert part.stopped == f"interrupted after {stop} of 30 steps"
    assert part.steps.tolist() == list(range(0, stop + 1, 5))
    assert part.certificate.horizon == stop
    np.testing.assert_array_equal(part.spent, whole.spent[: len(part.steps)])
    assert (tmp_path / checkpoint.NAME).exists()
    done = simulate(folder=tmp_path, resume=True)
    assert done.stopped is None
    assert_same_run(done, whole, RESUMED)


def test_the_metrics_of_a_resumed_run_are_the_same_to_the_last_bit(tmp_path, whole):
    simulate(folder=tmp_path, progress=interrupt_at(10))
    assert_same_run(simulate(folder=tmp_path, resume=True), whole)


def test_resuming_restores_the_read_out_the_sampler_and_random_batches(tmp_path):
    algorithm = replace(ALGORITHM, average=True)
    full = simulate(algorithm, spread=1.0)
    simulate(algorithm, spread=1.0, folder=tmp_path, progress=interrupt_at(10))
    assert_same_run(simulate(algorithm, spread=1.0, folder=tmp_path, resume=True), full, RESUMED)


def test_a_run_interrupted_twice_and_without_a_folder(tmp_path, whole):
    simulate(folder=tmp_path, progress=interrupt_at(10))
    simulate(folder=tmp_path, resume=True, progress=interrupt_at(20))
    assert_same_run(simulate(folder=tmp_path, resume=True), whole, RESUMED)
    assert simulate(progress=interrupt_at(10)).stopped == "interrupted after 10 of 30 steps"


def test_checkpoints_are_written_on_the_way(tmp_path):
    steps = []

    def progress(done: int, total: int, spent: float) -> None:
        steps.append(
            int(checkpoint.load(tmp_path)["step"]) if (tmp_path / checkpoint.NAME).exists() else 0
        )

    simulate(folder=tmp_path, checkpoint_seconds=0.0, progress=progress)
    assert steps == [0, 5, 10, 15, 20, 25]
    assert int(checkpoint.load(tmp_path)["step"]) == 30


def test_resuming_something_else_is_refused(tmp_path):
    simulate(folder=tmp_path, progress=interrupt_at(10))
    message = "the checkpoint belongs to another configuration"
    others = [
        {"algorithm": replace(ALGORITHM, step=hs.PowerLaw(0.31, -0.7))},
        {"problem": make_problem(seed=1)},
        {"problem": make_problem(ridge=0.4)},
        {"problem": make_problem(head_start=1)},
        {"seeds": [0, 8]},
        {"every": 10},
        {"spread": 0.5},
    ]
    for other in others:
        with pytest.raises(ValueError, match=message):
            simulate(folder=tmp_path, resume=True, **other)
    with pytest.raises(ValueError, match=message):
        hs.simulate(
            ALGORITHM,
            PROBLEM,
            hs.graphs.ring(3, 0.2),
            steps=30,
            every=5,
            seeds=[0, 7],
            folder=tmp_path,
            resume=True,
        )
    with pytest.raises(ValueError, match="folder must be given to resume a run"):
        simulate(resume=True)
    with pytest.raises(FileNotFoundError, match="nothing to resume"):
        simulate(folder=tmp_path / "elsewhere", resume=True)
    assert not (tmp_path / "elsewhere").exists()


def test_a_seed_that_is_given_twice_is_refused():
    """The same run twice would show a deviation of 0."""
    with pytest.raises(ValueError, match=r"seeds must be a list that names every seed once.*1, 1"):
        simulate(seeds=[1, 1])


def test_what_differs_from_the_checkpoint_is_named_with_both_values(tmp_path):
    simulate(folder=tmp_path, progress=interrupt_at(10))
    others = [
        ({"every": 10}, "every = 5 there, 10 here"),
        ({"seeds": [0, 8]}, r"seeds = \[0, 7\] there, \[0, 8\] here"),
        (
            {"algorithm": replace(ALGORITHM, noise=hs.Constant(2.0))},
            "noise = PowerLaw.* there, Constant.* here",
        ),
        ({"algorithm": hs.dsgd()}, r"\(algorithm = LdpOnline there, Dsgd here\)"),
        (
            {"problem": make_problem(seed=1)},
            "its problem, its records or its test records are not those given",
        ),
    ]
    for other, message in others:
        with pytest.raises(ValueError, match=message):
            simulate(folder=tmp_path, resume=True, **other)


def test_a_run_is_extended_with_the_interval_that_it_has(tmp_path):
    options = {"every": None, "seeds": [0]}
    simulate(folder=tmp_path, steps=120, **options)  # every = 2
    longer = simulate(folder=tmp_path, steps=220, resume=True, **options)
    assert longer.steps.tolist() == list(range(0, 221, 2))
    assert_same_run(longer, simulate(steps=220, every=2, seeds=[0]), RESUMED)


def test_another_run_is_replaced_only_where_that_is_asked_for(tmp_path):
    simulate(folder=tmp_path, steps=10)
    before = (tmp_path / checkpoint.NAME).read_bytes()
    message = f"{tmp_path} holds a run: resume=True continues it, overwrite=True replaces it"
    with pytest.raises(ValueError, match=re.escape(message)):
        simulate(folder=tmp_path, steps=5)
    with pytest.raises(ValueError, match="overwrite=True must be left out with resume=True"):
        simulate(folder=tmp_path, steps=15, resume=True, overwrite=True)
    assert (tmp_path / checkpoint.NAME).read_bytes() == before
    simulate(folder=tmp_path, steps=5, overwrite=True)
    assert int(checkpoint.load(tmp_path)["step"]) == 5


def test_a_run_whose_last_checkpoint_was_never_renamed_is_not_replaced_either(tmp_path):
    simulate(folder=tmp_path, steps=5)
    (tmp_path / checkpoint.NAME).rename(tmp_path / checkpoint.PREVIOUS)
    with pytest.raises(ValueError, match="holds a run"):
        simulate(folder=tmp_path, steps=5)


def test_resuming_over_other_trackers_is_refused():
    """Two runs that differ in the second of two graphs only."""
    tracking, graph = hs.gradient_tracking(noise=1.0), hs.graphs.directed_ring(3)
    other = replace(graph, push=graph.pushed * 0.9)
    marks = {fingerprint(tracking, PROBLEM, one, ()) for one in (graph, other)}
    assert len(marks) == 2


def test_resuming_for_fewer_steps_than_were_done_is_refused(tmp_path):
    simulate(folder=tmp_path)
    with pytest.raises(ValueError, match="steps"):
        simulate(folder=tmp_path, resume=True, steps=10)


def test_resuming_with_a_budget_that_is_already_overspent_is_refused(tmp_path):
    simulate(folder=tmp_path)
    with pytest.raises(ValueError, match="budget"):
        simulate(folder=tmp_path, resume=True, budget=float(spent_curve()[9].max()))


def test_a_missing_folder_is_made(tmp_path):
    simulate(folder=tmp_path / "new" / "run")
    assert (tmp_path / "new" / "run" / checkpoint.NAME).is_file()


def test_ctrl_c_inside_a_chunk_loses_nothing(tmp_path, monkeypatch, whole):
    """Python raises KeyboardInterrupt when the compiled call returns,
    before its result has been stored.
    """
    original, calls = engine.advance, []

    def advance(*args, **kwargs):
        result = original(*args, **kwargs)
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(engine, "advance", advance)
    part = simulate(folder=tmp_path)
    assert part.stopped is not None
    monkeypatch.undo()
    assert_same_run(simulate(folder=tmp_path, resume=True), whole, RESUMED)


@pytest.mark.slow
def test_ctrl_c_while_the_device_catches_up_loses_nothing(tmp_path):
    """A real signal, in a process of its own, sent once every chunk has been
    handed to the device.
    """
    script = f"""
        import os, signal, threading
        import hearsay as hs
        problem = hs.problems.ridge(agents=3, records=40, dimension=2)
        algorithm, graph = hs.ldp_online(noise=0.5), hs.graphs.ring(3)
        def progress(done, total, spent):
            if done == total:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        options = dict(steps=1_200_000, every=300_000, reference=False, folder={str(tmp_path)!r})
        run = hs.simulate(algorithm, problem, graph, progress=progress, **options)
        print("stopped:", run.stopped)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120
    )
    assert (tmp_path / checkpoint.NAME).exists(), result.stderr[-500:]
    assert result.returncode == 0


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_budget_stops_the_run_exactly_before_the_message_that_would_exceed_it(share):
    curve = spent_curve()
    budget = share * float(curve[-1].max())
    run = simulate(budget=budget, every=1, reference=False)
    sent = int(run.steps[-1])
    assert 0 < sent < STEPS
    assert np.all(curve[sent - 1] <= budget), "every message that was sent is within the budget"
    assert np.any(curve[sent] > budget), "the next one would not have been"
    assert max(run.certificate.epsilon) <= budget
    assert run.certificate.horizon == sent
    assert f"message {sent} would exceed it and was not sent" in run.stopped
    np.testing.assert_array_equal(run.models, simulate(steps=sent, every=1, reference=False).models)


def test_a_run_stopped_by_its_budget_continues_with_a_larger_one_on_the_same_grid(tmp_path, whole):
    stopped = simulate(folder=tmp_path, budget=float(spent_curve()[11].max()))
    assert stopped.steps.tolist() == [0, 5, 10, 12]
    done = simulate(folder=tmp_path, resume=True)
    assert done.steps.tolist() == [0, 5, 10, 12, 15, 20, 25, 30]
    assert done.stopped is None
    np.testing.assert_allclose(done.models, whole.models, rtol=0, atol=1e-14)


def test_budgets_of_their_own_for_each_agent():
    algorithm = replace(ALGORITHM, noise=(hs.Constant(0.4), hs.Constant(0.8), hs.Constant(1.6)))
    curve = spent_curve(algorithm)
    budgets = [10 * curve[-1, 0], 10 * curve[-1, 1], curve[11, 2]]
    run = simulate(algorithm, budget=budgets)
    assert run.steps[-1] == 12, "a message that reaches the budget exactly is sent"
    assert run.stopped.startswith("agent 2 may spend")
    with pytest.raises(
        ValueError, match="budget must be one number, or one for each of the 3 agents"
    ):
        simulate(budget=[1.0, 2.0])
    with pytest.raises(ValueError, match="budget must be positive, got -1"):
        simulate(budget=[1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match="budget must be positive, got 0"):
        simulate(budget=0)


def test_a_budget_that_is_never_reached_changes_nothing(whole):
    assert_same_run(simulate(budget=1e9), whole)


def test_a_gaussian_budget_is_an_epsilon_at_delta():
    algorithm = replace(ALGORITHM, mechanism="gaussian")
    rho = spent_curve(algorithm).max(axis=1)
    epsilon = [gaussian_epsilon(float(r), 1e-5) for r in rho]
    budget = (epsilon[4] + epsilon[5]) / 2
    run = simulate(algorithm, delta=1e-5, budget=budget, reference=False)
    assert run.steps[-1] == 5
    np.testing.assert_allclose(run.spent[-1], epsilon[4], rtol=1e-9)
    assert max(run.certificate.epsilon) <= budget
    assert f"agent 0 may spend epsilon = {budget:g}" in run.stopped


def test_an_infinite_budget_is_not_within_any(whole):
    with_none = replace(ALGORITHM, noise=hs.Constant(0.0))
    run = simulate(with_none, budget=5.0)
    assert run.steps[-1] == 1, (
        "the first message comes before any data; the second would cost everything"
    )


def test_a_fresh_stream_ends_with_the_shortest_agent():
    problem = replace(
        PROBLEM,
        records=PROBLEM.records._replace(held=np.array([40, 23, 30])),
        counts=np.array([40, 23, 30]),
    )
    run = simulate(replace(ALGORITHM, sampling=hs.Fresh()), problem, every=11)
    assert run.steps.tolist() == [0, 11]
    assert run.stopped == "the stream of agent 1 ran dry after 11 steps"
    assert run.certificate.horizon == 11


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ({"steps": 2.5}, TypeError, "steps must be a whole number, got 2.5"),
        ({"every": 0}, ValueError, "every must be at least 1, got 0"),
        ({"seeds": 0}, ValueError, "seeds must be at least 1, got 0"),
        ({"seeds": [0, -1]}, ValueError, "seeds must be at least 0, got -1"),
        ({"seeds": [0.5]}, TypeError, "seeds must be a whole number, got 0.5"),
        ({"spread": -1.0}, ValueError, "spread must be zero or positive, got -1.0"),
        ({"delta": 1.5}, ValueError, "delta must be strictly between 0 and 1, got 1.5"),
        pytest.param({"seeds": []}, ValueError, "seeds"),
        pytest.param({"seeds": np.int64(0)}, ValueError, "seeds"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        simulate(**options)


def test_gaussian_noise_needs_delta_before_anything_runs(monkeypatch):
    monkeypatch.setattr(engine, "advance", lambda *_, **__: pytest.fail("the run has begun"))
    with pytest.raises(ValueError, match="delta must be given for Gaussian noise"):
        simulate(replace(ALGORITHM, mechanism="gaussian"))


def test_the_averaged_read_out_is_a_running_average_in_numpy():
    """Weights in proportion to the step, over the models after each step;
    the trajectory itself is not changed by it.
    """
    plain = np.stack([simulate(steps=k, every=1, reference=False).models for k in range(1, 9)])
    averaged = simulate(replace(ALGORITHM, average=True), steps=8, every=4, reference=False).models
    weights = np.arange(1, 9.0)
    np.testing.assert_allclose(
        averaged, np.einsum("k,ksad->sad", weights, plain) / weights.sum(), atol=1e-13
    )


def test_a_head_start_is_in_the_first_gradient_and_the_first_budget():
    """Step 0 from the origin, without noise: the model is minus the step times the mean gradient
    over head start and arrivals.
    """
    problem = make_problem(head_start=9)
    algorithm = replace(ALGORITHM, noise=hs.Constant(0.0))
    run = hs.simulate(algorithm, problem, GRAPH, steps=1)
    for i in range(3):
        a, b = problem.features[i, :11], problem.labels[i, :11]
        np.testing.assert_allclose(run.models[0, i], 0.3 * 2 * (b @ a) / 11, atol=1e-14)
    late, early = spent_curve(problem=problem, steps=2)[-1], spent_curve(steps=2)[-1]
    np.testing.assert_allclose(late / early, 2 / 11, rtol=1e-9)


def test_spread_starts_agents_apart_and_inside_the_domain():
    def points(problem, spread):
        setting = engine.Setting(problem.device_records, None, None, None)
        compiled = program(ALGORITHM, problem)
        carry = engine.start(compiled, problem, setting, range(200), spread)
        np.testing.assert_array_equal(carry.readout, carry.states.params)
        return np.asarray(carry.readout).reshape(-1, 2)

    near = points(make_problem(radius=0.5), 2.0)
    assert len(np.unique(near, axis=0)) == 600
    assert np.linalg.norm(near, axis=1).max() <= 0.5 * (1 + 1e-12)
    # 1200 coordinates of standard deviation 2: five standard errors, false-alarm rate 6e-7.
    assert abs(points(make_problem(radius=1e6), 2.0).std() - 2.0) < 5 * 2.0 / np.sqrt(2 * 1200)
    assert np.all(points(PROBLEM, 0.0) == 0)


def test_single_precision_is_close_to_double():
    """The noise differs between precisions (other bits), so the comparison is without noise."""
    algorithm = replace(ALGORITHM, noise=hs.Constant(0.0))
    double = simulate(algorithm)
    with jax.enable_x64(False):
        single = simulate(algorithm, make_problem())
    assert single.models.dtype == np.float32
    assert double.models.dtype == np.float64
    np.testing.assert_allclose(single.models, double.models, atol=1e-5)
    np.testing.assert_allclose(
        single.raw["tracking_error"], double.raw["tracking_error"], atol=1e-4
    )
    np.testing.assert_array_equal(single.spent, double.spent)


def test_a_reference_can_be_shared_or_left_out(whole):
    assert_same_run(simulate(reference=Reference(PROBLEM)), whole)
    without = simulate(reference=False)
    np.testing.assert_array_equal(without.models, whole.models)
    assert np.all(np.isnan(without.raw["tracking_error"]))
    np.testing.assert_array_equal(without.raw["consensus_error"], whole.raw["consensus_error"])
    assert np.all(np.isnan(simulate(regret=False).raw["regret"]))


def test_metrics_of_a_run_summarise_the_raw_ones(whole):
    regret = whole.raw["regret"].mean(axis=2)
    np.testing.assert_allclose(whole.metrics["regret"], regret)
    trapezoids = [
        np.trapezoid(regret[: t + 1], whole.steps[: t + 1], axis=0) for t in range(len(whole.steps))
    ]
    np.testing.assert_allclose(whole.metrics["dynamic_regret"], trapezoids, rtol=1e-12)
    mean, deviation = whole.final("test_error")
    last = whole.raw["accuracy"][-1].mean(axis=1)
    assert mean == pytest.approx(last.mean())
    assert deviation == pytest.approx(last.std(ddof=1))
    assert "accuracy" not in whole.metrics, "regression is not scored by accuracy"


def test_a_saved_run_can_be_read_back(whole, tmp_path):
    folder = whole.save(tmp_path / "a" / "b")
    with np.load(folder / "private-models.npz") as stored:
        np.testing.assert_array_equal(stored["models"], whole.models)
    assert hs.Certificate.from_json((folder / "certificate.json").read_text()) == whole.certificate
    rows = [line.split(",") for line in (folder / "private-metrics.csv").read_text().splitlines()]
    assert rows[0][:3] == ["step", "seed", "tracking_error"]
    assert len(rows) == 1 + 7 * 2
    assert [r[:2] for r in rows[1:4]] == [["0", "0"], ["0", "7"], ["5", "0"]]
    last = dict(zip(rows[0], rows[-1], strict=True))
    assert float(last["tracking_error"]) == pytest.approx(
        whole.metrics["tracking_error"][-1, 1], rel=1e-9
    )
    budget = np.loadtxt(folder / "budget.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(budget[:, 1:], whole.spent, rtol=1e-9)


def test_a_run_is_read_again_with_the_numbers_that_it_had(whole, tmp_path):
    again = hs.load_run(whole.save(tmp_path))
    assert str(again) == str(whole).replace("Run(", "SavedRun(")
    assert again.certificate == whole.certificate and again.stopped == whole.stopped
    assert (again.seeds, again.steps.tolist()) == (whole.seeds, whole.steps.tolist())
    assert list(again.metrics) == list(whole.metrics)
    for name, values in whole.metrics.items():
        np.testing.assert_allclose(again.metrics[name], values, rtol=1e-9)
        assert again.final(name) == pytest.approx(whole.final(name), rel=1e-6, nan_ok=True)
    np.testing.assert_allclose(again.spent, whole.spent, rtol=1e-9)
    assert again.graph.agents == whole.graph.agents
    with pytest.raises(AttributeError, match="a run that is read again has no release: records"):
        again.release()


@pytest.mark.parametrize("by_curve", [False, True])
def test_budgets_of_many_agents_are_read_again(whole, tmp_path, by_curve):
    agents = 130
    kind = np.arange(agents) // 7 % 2
    curves = np.outer(whole.steps, [1.0, 2.0])
    curves[-1, 1] = math.inf
    budget = whole.certificate.budgets[0]
    budgets = Budgets([replace(budget, epsilon=1.0), replace(budget, epsilon=2.0)], kind)
    many = replace(
        whole,
        graph=hs.graphs.ring(agents),
        certificate=replace(whole.certificate, budgets=budgets),
        spending=Spending(curves, kind, by_curve=by_curve),
    )
    again = hs.load_run(many.save(tmp_path))
    np.testing.assert_array_equal(again.spent, many.spent)
    assert again.spending.by_curve == by_curve


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("run.json", None, "has no run.json"),
        ("run.json", "{}", "run.json must be a hearsay run 1, got"),
        ("budget.csv", "step,agent_0\n0,0\n", "budget.csv must be that of the run beside it"),
        ("private-metrics.csv", "step,seed,regret,spent_max\n0,0,1,x\n", "a table of numbers"),
        ("private-metrics.csv", "step,seed,spent_max\n0,0,1\n0,0,1\n", "for every measured step"),
        ("private-metrics.csv", "", "a table of numbers"),
    ],
)
def test_a_folder_that_is_no_whole_run_is_refused(whole, tmp_path, name, text, said):
    folder = whole.save(tmp_path)
    (folder / name).unlink() if text is None else (folder / name).write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        hs.load_run(folder)


def test_the_certificate_of_another_run_is_refused(whole, tmp_path):
    folder = whole.save(tmp_path)
    other = replace(whole.certificate, algorithm="another")
    (folder / "certificate.json").write_text(other.to_json())
    with pytest.raises(ValueError, match="must be that of the run beside it"):
        hs.load_run(folder)


def test_budgets_that_were_changed_are_refused(whole, tmp_path):
    """One digit of one agent, with the certificate as it was."""
    file = whole.save(tmp_path) / "budget.csv"
    text = file.read_text()
    file.write_text(text[:-2] + ("1" if text[-2] != "1" else "2") + "\n")
    with pytest.raises(ValueError, match="budget.csv must be that of the run beside it"):
        hs.load_run(tmp_path)
    file.write_text(text)
    assert hs.load_run(tmp_path).spent.shape == whole.spent.shape


def test_every_file_of_a_run_is_in_the_table_of_files(tmp_path):
    lossy = simulate(steps=4, every=2, seeds=1, faults=hs.Faults(loss=0.2))
    lossy.report(tmp_path)
    table = (ROOT.parent / "docs" / "releasing.md").read_text(encoding="utf-8")
    written = {path.name for path in tmp_path.iterdir()}
    assert "hearing.csv" in written
    assert not [name for name in written if f"`{name}`" not in table]


def test_models_of_one_name_and_size_are_told_apart():
    """Two plain functions are both called <lambda>."""
    data = hs.problems.from_records(
        np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    )
    marks = set()
    for sign in (1.0, -1.0, np.full(3, 2.0), np.full(3, 3.0)):
        for _ in range(2):  # the same model, made twice, is the same run
            model = hs.problems.from_function(
                lambda p, r, s=sign: jnp.sum((s * r[0] * p - r[1]) ** 2), jnp.zeros(3)
            )
            problem = hs.problems.neural(data, model=model, agents=2)
            marks.add(fingerprint(ALGORITHM, problem, hs.graphs.complete(2), ()))
    assert len(marks) == 4
