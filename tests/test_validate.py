"""Messages name the argument, the rule and the value."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay import _validate as require
from hearsay.problems.losses.domains import Box


def test_numbers():
    assert require.number("x", np.float32(2)) == 2.0
    for bad in (True, "1", None):
        with pytest.raises(TypeError, match="x must be a number, got"):
            require.number("x", bad)
    with pytest.raises(ValueError, match="x must be finite, got nan"):
        require.number("x", float("nan"))
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        require.count("n", 0)
    with pytest.raises(TypeError, match="n must be a whole number, got 1.5"):
        require.count("n", 1.5)


@pytest.mark.parametrize("kind", ["frame", "column", "polars", "arrow"])
def test_no_rows_of_a_frame_are_in_an_error(kind):
    """Arguments in a wrong order are common, and errors end up in logs."""
    pandas, polars, arrow = map(pytest.importorskip, ("pandas", "polars", "pyarrow"))
    rows = {"patient": ["Ada"], "age": [31.337]}
    value = {
        "frame": lambda: pandas.DataFrame(rows),
        "column": lambda: pandas.DataFrame(rows)["patient"],
        "polars": lambda: polars.DataFrame(rows),
        "arrow": lambda: arrow.table(rows),
    }[kind]()
    for given in (value, [value, value]):
        for wrong in (
            lambda given=given: hs.NetworkRegressor(schema=given).fit(rows),
            lambda given=given: hs.NetworkRegressor(given, schema="s.toml").fit(rows),
            lambda given=given: hs.Number(0, given),
            lambda given=given: require.one_of("graph", given, ("ring",)),
            lambda given=given: require.count("agents", given),
        ):
            with pytest.raises((TypeError, ValueError, FileNotFoundError)) as caught:
                wrong()
            assert "Ada" not in str(caught.value) and "31.3" not in str(caught.value)


def test_flags_are_not_truthy_words():
    for bad in ("no", 3, None):
        with pytest.raises(TypeError, match="feedback must be true or false, got"):
            hs.ldp_online(feedback=bad)
        with pytest.raises(TypeError, match="average must be true or false, got"):
            hs.dsgd(average=bad)


def test_one_number_or_one_per_agent():
    assert require.per_agent("epsilon", np.int64(2), 3) == [2.0] * 3
    assert require.per_agent("epsilon", np.array([1, 2]), 2) == [1.0, 2.0]
    with pytest.raises(
        ValueError, match="epsilon must be one number, or one for each of the 3 agents, got"
    ):
        require.per_agent("epsilon", [1, 2], 3)
    with pytest.raises(TypeError, match="epsilon must be a number, got 'abc'"):
        require.per_agent("epsilon", "abc", 3)


def test_the_wrong_kind_of_thing_is_named():
    problem, graph, algorithm = (
        hs.problems.ridge(agents=3, records=9, dimension=2),
        hs.graphs.ring(3),
        hs.ldp_online(),
    )
    for arguments, name in (
        (("ldp-online", problem, graph), "algorithm"),
        ((algorithm, graph, problem), "problem"),
        ((algorithm, problem, graph.to_networkx()), "graph"),
    ):
        with pytest.raises(TypeError, match=f"{name} must be"):
            hs.simulate(*arguments, steps=2)
        with pytest.raises(TypeError, match=f"{name} must be"):
            hs.certify(*arguments, 2)
    with pytest.raises(TypeError, match="data must be the name of a data set, a Dataset"):
        hs.problems.logistic(np.ones((3, 2)))
    with pytest.raises(ValueError, match="use it with the ridge loss"):
        hs.problems.logistic("linear")


def test_a_far_away_point_is_projected_onto_the_ball_and_not_to_its_centre():
    far = jnp.full(4, 1e25, jnp.float32)
    assert float(jnp.linalg.norm(hs.problems.Ball(10.0).project(far))) == pytest.approx(
        10.0, rel=1e-6
    )
    near = np.array([3.0, 4.0])
    assert hs.problems.Ball(10.0).project(near).tolist() == [3.0, 4.0]
    assert hs.problems.Ball(1.0).project(near).tolist() == pytest.approx([0.6, 0.8])
    assert hs.problems.Ball(1.0).project(np.zeros(2)).tolist() == [0.0, 0.0]


def test_an_infinite_horizon_on_data_that_end_is_warned_of():
    problem, graph = hs.problems.ridge(agents=3, records=9, dimension=2), hs.graphs.ring(3)
    certificate = hs.certify(hs.ldp_online(), problem, graph, float("inf"))
    assert any("hold 9 to 9 records, which last for 9 steps" in w for w in certificate.warnings)
    assert not hs.certify(hs.ldp_online(step=0.1), problem, graph, 9).warnings


def test_a_run_says_when_models_are_no_longer_numbers():
    problem, graph = hs.problems.ridge(agents=3, records=9, dimension=2), hs.graphs.ring(3)
    problem = replace(problem, domain=Box(-1e300, 1e300))
    run = hs.simulate(
        hs.ldp_online(step=1e3, coupling=0.0, noise=1e160),
        problem,
        graph,
        steps=300,
        reference=False,
        regret=False,
    )
    assert np.all(np.isfinite(run.models)) == (run.stopped is None)


def test_schedules_alone_do_not_compile_again():
    """A sweep over step sizes, or calibrated noise, reuses the compiled program."""
    from hearsay.simulation import engine

    problem, graph = hs.problems.ridge(agents=3, records=31, dimension=2), hs.graphs.ring(3)
    hs.simulate(hs.ldp_online(step=hs.PowerLaw(0.1, -0.7)), problem, graph, steps=31, every=31)
    before = engine.TRACES["advance"]
    for step, noise in ((0.05, 1.0), (hs.Geometric(0.1, 0.9), [1.0, 2.0, 3.0])):
        hs.simulate(hs.ldp_online(step=step, noise=noise), problem, graph, steps=31, every=31)
    assert engine.TRACES["advance"] == before


def test_a_very_long_value_is_cut():
    with pytest.raises(
        ValueError,
        match=(
            r"must be one number, or one for each of the 3 agents, got \[0, 1, .*\.\.\. \(\d+,\d+"
            r" characters\)"
        ),
    ) as caught:
        require.per_agent("epsilon", list(range(100_000)), 3)
    assert len(str(caught.value)) < 500
