"""Configurations: read, checked key by key, built, and written back so that they repeat a run."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms import REGISTRY
from hearsay.config import (
    Config,
    build,
    build_costs,
    dump,
    in_force,
    load,
    named_algorithm,
    secrets_table,
)
from hearsay.experiments.demo import CONFIG as DEMO

SMALL = {"loss": "ridge", "agents": 3, "records": 20, "dimension": 2}


def write(tmp_path, text: str):
    path = tmp_path / "some.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_build_reads_every_table():
    config = Config(
        problem={**SMALL, "ridge": 0.2, "per_step": 2},
        graph={"kind": "star", "weight": 0.25},
        algorithm={
            "name": "ldp-online",
            "step": "0.5*(k+1)^-0.8",
            "coupling": {"scale": 0.4, "exponent": -0.7},
            "noise": [0.1, 0.2, "0.3*(k+1)^0.1"],
            "sampling": "fresh",
            "feedback": True,
        },
    )
    algorithm, problem, graph = build(config)
    assert algorithm == hs.ldp_online(
        step=hs.PowerLaw(0.5, -0.8),
        coupling=hs.PowerLaw(0.4, -0.7),
        sampling=hs.Fresh(),
        feedback=True,
        noise=(hs.Constant(0.1), hs.Constant(0.2), hs.PowerLaw(0.3, 0.1)),
    )
    assert (problem.loss.ridge, problem.arrivals.per_step, problem.dimension) == (0.2, 2, 2)
    assert (graph.name, graph.agents) == ("star", 3)
    assert set(graph.weights.data) == {0.25}


def test_costs_are_a_table_of_their_own(tmp_path):
    keys = {"latency": "lognormal:0.05:0.5", "bandwidth": [1e6, 2e6, 3e6], "compute": 0.1}
    given = Config(problem=SMALL, costs={**keys, "patience": 2})
    assert build_costs(given) == hs.Costs(**keys, patience=2.0)
    assert load(write(tmp_path, dump(given))) == given
    assert build_costs(Config()) is None and "costs" not in dump(Config())
    with pytest.raises(
        ValueError, match=r"key in \[costs\] must be one of .*did you mean 'latency'"
    ):
        Config(costs={"latencyy": 1})
    with pytest.raises(ValueError, match=r"compute in \[costs\] must be given \(--costs compute="):
        build_costs(Config(costs={"latency": 0.1, "bandwidth": 1.0}))


def test_adjacency_is_the_problems_whichever_table_says_it(tmp_path):
    for table in ("problem", "privacy"):
        given = Config(problem=SMALL).merged({table: {"adjacency": "zero-out"}})
        _, problem, _ = build(given)
        assert problem.adjacency == "zero-out"
        assert load(write(tmp_path, dump(given))) == given
        laid_over = given.merged({"problem": {"adjacency": "replace"}})
        assert build(laid_over)[1].adjacency == "replace"
    with pytest.raises(ValueError, match=r"adjacency in \[privacy\] must be one of replace, zero"):
        Config(privacy={"adjacency": "both"})


def test_noise_for_a_target_is_less_under_zero_out():
    algorithm = {"name": "gradient-perturbation"}
    one, other = (
        build(Config({**SMALL, "clip": 1.0, "adjacency": kind}, {}, algorithm, {"epsilon": 1.0}))[0]
        for kind in ("replace", "zero-out")
    )
    assert float(other.noise_for(0)(0)) == pytest.approx(0.5 * float(one.noise_for(0)(0)))


def test_the_noise_is_calibrated_to_a_target():
    config = Config(problem=SMALL, privacy={"epsilon": [1.0, 2.0, 3.0]}, run={"steps": 15})
    algorithm, problem, graph = build(config)
    np.testing.assert_allclose(
        hs.certify(algorithm, problem, graph, 15).epsilon, [1, 2, 3], rtol=1e-6
    )
    gaussian = config.merged(
        {"algorithm": {"mechanism": "gaussian"}, "privacy": {"delta": 1e-5, "epsilon": 2.0}}
    )
    algorithm, problem, graph = build(gaussian)
    certificate = hs.certify(algorithm, problem, graph, 15, delta=1e-5)
    assert max(certificate.epsilon) <= 2.0
    assert max(certificate.epsilon) == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"problem": {**SMALL, "agnets": 4}},
            r"key in \[problem\] must be one of .* got 'agnets'; did you mean 'agents'",
        ),
        (
            {"problem": {"loss": "logistics"}},
            r"loss in \[problem\] must be one of .* did you mean 'logistic'",
        ),
        (
            {"problem": SMALL, "graph": {"kind": "rings"}},
            r"kind in \[graph\] must be one of .* did you mean 'ring'",
        ),
        (
            {"problem": SMALL, "graph": {"wieght": 1}},
            r"key in \[graph\] must be one of .* did you mean 'weight'",
        ),
        (
            {"problem": SMALL, "graph": {"kind": "ring", "degree": 4}},
            r"key in \[graph\] must be one of agents, weight",
        ),
        (
            {"problem": SMALL, "algorithm": {"name": "ldp_online"}},
            r"name in \[algorithm\] .* did you mean 'ldp-online'",
        ),
        (
            {"problem": SMALL, "algorithm": {"copling": 1.0}},
            r"key in \[algorithm\] .* did you mean 'coupling'",
        ),
        (
            {"problem": SMALL, "algorithm": {"sampling": "fersh"}},
            r"sampling in \[algorithm\] .* did you mean 'fresh'",
        ),
        (
            {"problem": SMALL, "algorithm": {"sampling": "poisson"}},
            r"sample_rate in \[algorithm\] must be given with sampling = 'poisson'",
        ),
        (
            {"problem": SMALL, "algorithm": {"sampling": "poisson", "sample_size": 5}},
            r"sample_size in \[algorithm\] must be left out with poisson: .* give sample_rate",
        ),
        (
            {"problem": SMALL, "algorithm": {"sampling": "cyclic", "sample_rate": 0.1}},
            r"sample_rate in \[algorithm\] must be left out with cyclic: only .*poisson",
        ),
        (
            {"problem": SMALL, "algorithm": {"sampling": "history", "sample_size": 5}},
            r"sample_size in \[algorithm\] must be left out with a history: it uses all records",
        ),
        (
            {"problem": SMALL, "algorithm": {"sampling": "poisson", "sample_rate": 1.5}},
            "rate must be above 0 and at most 1, got 1.5",
        ),
        (
            {"problem": SMALL, "graph": {"agents": 4}},
            "the graph has 4 agents and the problem has 3",
        ),
        (
            {"problem": SMALL, "privacy": {"epsilon": -1.0}},
            r"epsilon in \[privacy\] must be positive, got -1",
        ),
        (
            {"problem": SMALL, "privacy": {"epsilon": [1.0]}},
            "epsilon must be one number, or one for each of the 3",
        ),
        (
            {"problem": SMALL, "run": {"steps": 0}, "privacy": {"epsilon": 1.0}},
            "steps must be at least 1, got 0",
        ),
    ],
)
def test_mistakes_name_the_key_and_the_nearest_one(config, message):
    with pytest.raises(ValueError, match=message):
        build(Config(**config))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"run": {"step": 5}},
            r"key in \[run\] must be one of steps, seeds, .* did you mean 'steps'",
        ),
        (
            {"privacy": {"epsilonn": 5}},
            r"key in \[privacy\] must be one of .* did you mean 'epsilon'",
        ),
        ({"run": {"precision": 16}}, "precision must be 32 or 64, got 16"),
    ],
)
def test_run_and_privacy_keys_are_checked_at_construction(tables, message):
    with pytest.raises(ValueError, match=message):
        Config(**tables)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run\nsteps = 5", "some.toml is not valid TOML: .*line 1"),
        ("[run]\nsteps = five", "some.toml is not valid TOML: .*line 2"),
        ("[runs]\nsteps = 5", "table in .*some.toml must be one of .* did you mean 'run'"),
        (
            "steps = 5",
            (
                "table in .*some.toml must be one of problem, graph, algorithm, privacy, run,"
                " secrets, faults, costs, got 'steps'"
            ),
        ),
        ("run = 5", "run in .*some.toml must be a table of keys, got 5"),
        ("[run]\nsteps = 5\nsteps = 6", "some.toml is not valid TOML"),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        load(tmp_path / "none.toml")


CONFIGS = {
    "empty": Config(),
    "demo": DEMO,
    "words": Config(
        problem={**SMALL, "data": "linear", "ridge": 1e-5, "radius": 1e20},
        graph={"kind": "random", "weight": "uniform", "degree": 2},
        algorithm={
            "name": "dsgd",
            "step": {"scale": 0.1, "ratio": 0.97},
            "noise": ["0.5*(k+1)^0.1", 0.25, 3],
            "average": True,
        },
        privacy={"epsilon": [1.0, 2.5, 1e-3], "delta": 1e-5, "budget": 1e30},
        run={"steps": 20, "seeds": 2, "every": 5, "precision": 64},
    ),
    "odd strings": Config(
        problem={"data_dir": 'C:\\data "raw"\\münch', "partition": "dirichlet:0.5"}
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_dump_and_load_round_trip(tmp_path, name):
    assert load(write(tmp_path, dump(CONFIGS[name]))) == CONFIGS[name]


def test_what_was_written_is_written_again_byte_for_byte(tmp_path):
    """Configurations lie in users' folders and under version control: nothing about how they are
    written may move.
    """
    config = Config(
        problem={"data": 'a"b\\c\n\t\x7f\x1b é', "standardize": True},
        graph={"edges": [[0, 1, 0.3], (1, 2, 1e-5)]},
        algorithm={
            "noise": hs.PowerLaw(1.0, 0.1),
            "step": [hs.Constant(2.0), hs.Constant(3.0)],
            "coupling": np.float64(0.1),
            "levels": np.arange(3),
            "clip": math.inf,
        },
        privacy={"delta": 1e-300},
        run={"steps": 10**15, "seeds": [1, 2]},
    )
    text = r"""[problem]
data = "a\"b\\c\n\t\u007f\u001b é"
standardize = true

[graph]
edges = [[0, 1, 0.3], [1, 2, 1e-05]]

[algorithm]
noise = {kind = "PowerLaw", scale = 1.0, exponent = 0.1, shift = 1.0}
step = [{kind = "Constant", value = 2.0}, {kind = "Constant", value = 3.0}]
coupling = 0.1
levels = [0, 1, 2]
clip = inf

[privacy]
delta = 1e-300

[run]
steps = 1000000000000000
seeds = [1, 2]
"""
    assert dump(config) == text
    assert dump(load(write(tmp_path, dump(config)))) == dump(config)


def test_a_dumped_configuration_builds_the_same_things(tmp_path):
    config = CONFIGS["words"].merged({"privacy": {"budget": 5.0}})
    again = load(write(tmp_path, dump(config)))
    (one, problem, graph), (two, problem2, graph2) = build(config), build(again)
    assert one == two
    np.testing.assert_array_equal(problem.features, problem2.features)
    np.testing.assert_array_equal(graph.weights.toarray(), graph2.weights.toarray())


@pytest.mark.parametrize("value", [np.float64(1.5), np.int64(2)])
def test_numpy_numbers_are_written_as_numbers(tmp_path, value):
    assert load(write(tmp_path, dump(Config(privacy={"budget": value})))) == Config(
        privacy={"budget": value.item()}
    )


def test_schedule_objects_are_written_exactly(tmp_path):
    config = Config(problem=SMALL, algorithm={"step": hs.PowerLaw(0.123456789, -0.7), "noise": 0.5})
    assert build(load(write(tmp_path, dump(config))))[0] == build(config)[0]


def test_control_characters_are_escaped(tmp_path):
    config = Config(problem={"data_dir": "two\nlines"})
    assert load(write(tmp_path, dump(config))) == config


def test_merged_lays_keys_over_and_leaves_out_none():
    config = Config(problem={"agents": 3}, run={"steps": 5})
    merged = config.merged({"problem": {"agents": None, "ridge": 0.5}, "run": {"steps": 7}})
    assert merged.problem == {"agents": 3, "ridge": 0.5}
    assert merged.steps == 7
    assert config.steps == 5
    assert merged.without("problem", "ridge") == Config(problem={"agents": 3}, run={"steps": 7})


def test_defaults_and_bad_numbers():
    assert (Config().steps, Config().seeds, Config().delta) == (1000, 5, None)
    with pytest.raises(TypeError, match="steps must be a whole number, got '5'"):
        _ = Config(run={"steps": "5"}).steps
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        _ = Config(run={"seeds": 0}).seeds


SECRET = {
    "problem": {**SMALL, "agents": 5, "clip": 0.5},
    "algorithm": {"name": "gradient-perturbation", "mechanism": "gaussian", "noise": 1.0},
    "privacy": {"delta": 1e-5},
    "run": {"steps": 10},
}


@pytest.mark.parametrize(
    ("table", "secrets"),
    [
        ({"colluders": 2}, hs.Secrets(2)),
        ({"colluders": 1, "ratio": 2.5, "graph": "complete"}, hs.Secrets(1, 2.5, "complete")),
        (
            {"colluders": 1, "graph": "random", "degree": 2, "seed": 4},
            hs.Secrets(1, None, "random", 2, 4),
        ),
        (
            {"colluders": 1, "edges": [[1, 0], [1, 2], [3, 2], [4, 3], [0, 4]], "ratio": 2.0},
            hs.Secrets(1, 2.0, ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))),
        ),
    ],
)
def test_secrets_are_a_table_of_their_own(tmp_path, table, secrets):
    config = Config(**SECRET, secrets=table)
    algorithm = build(config)[0]
    assert algorithm.secrets == secrets
    assert load(write(tmp_path, dump(config))) == config
    again = Config(**SECRET, secrets=secrets_table(algorithm.secrets))
    assert build(again)[0] == algorithm
    target = config.merged({"privacy": {"epsilon": 2.0}})
    certificate = hs.certify(*build(target), 10, delta=1e-5)
    assert max(certificate.epsilon) == pytest.approx(2.0, rel=1e-6)
    assert min(certificate.all_collude) > 2.0
    assert certificate.colluders == table["colluders"]


def test_a_graph_of_secrets_is_written_as_its_edges():
    algorithm = build(Config(**SECRET, secrets={"colluders": 1}))[0]
    given = hs.Secrets(1, 2.0, hs.graphs.ring(5))
    table = secrets_table(given)
    assert table["edges"] == [[0, 1], [0, 4], [1, 2], [2, 3], [3, 4]]
    built = build(Config(**SECRET, secrets=table))[0].secrets
    assert built is not None and built.shared(5) == given.shared(5)
    assert secrets_table(None) == {} and algorithm.secrets == hs.Secrets(1)
    assert "secrets" not in dump(Config(**SECRET))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"secrets": {"coluders": 1}}, r"key in \[secrets\] must be one of .* mean 'colluders'"),
        ({"secrets": {"ratio": 2.0}}, r"colluders in \[secrets\] must be given: how many"),
        ({"secrets": {"colluders": 4}}, "colluders must be below 4: if all other agents collude"),
        ({"secrets": {"colluders": "two"}}, "colluders must be"),
        ({"secrets": {"colluders": 1, "graph": "ring"}}, "graph must be one of complete, random"),
        (
            {"secrets": {"colluders": 1, "graph": [[0, 1]]}},
            r"graph in \[secrets\] must be complete or random \(or give edges\)",
        ),
        (
            {"secrets": {"colluders": 0, "edges": [[0, 1], [1, 2], [2, 3]]}},
            "secrets must join every agent to others, got agent 4 without any",
        ),
        (
            {"secrets": {"colluders": 0, "edges": [[0, 1, 0.5]]}},
            r"edges in \[secrets\] must be a list of pairs of agents",
        ),
        (
            {"secrets": {"colluders": 0, "edges": [[0, 1]], "graph": "complete"}},
            r"graph in \[secrets\] must be left out where edges say who shares",
        ),
        (
            {
                "secrets": {"colluders": 1},
                "algorithm": {"name": "gradient-perturbation", "noise": 1.0},
            },
            "secrets must be left out with laplace noise: only sums of Gaussian noise",
        ),
        (
            {"algorithm": {**SECRET["algorithm"], "secrets": {"colluders": 1}}},
            r"secrets in \[algorithm\] must be a table of its own, \[secrets\]",
        ),
    ],
)
def test_secrets_that_are_refused(tables, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build(Config(**{**SECRET, **tables}))


def test_an_empty_table_of_secrets_is_not_read_as_none(tmp_path):
    for text in ("[secrets]", "[secrets]\nratio = 2.0"):
        with pytest.raises(ValueError, match=r"colluders in \[secrets\] must be given"):
            load(write(tmp_path, text))


@pytest.mark.parametrize("name", REGISTRY)
def test_what_nobody_said_is_written_and_is_the_same_run(name, tmp_path):
    given = Config(problem=SMALL, algorithm={"name": name} if name != "ldp-online" else {})
    again = load(write(tmp_path, dump(in_force(given))))
    assert again.graph == {"kind": "ring"} and again.algorithm == {"name": name}
    assert again.run == {"steps": 1000, "seeds": 5}
    wanted = named_algorithm(dict(given.algorithm), given.steps)
    assert named_algorithm(dict(again.algorithm), again.steps) == wanted


def test_what_somebody_said_is_kept():
    tables = {"graph": {"edges": [[0, 1], [1, 2]]}, "run": {"steps": 7, "seeds": [3]}}
    found = in_force(Config(**tables, algorithm={"name": "dsgd", "noise": 2.0}))
    assert found.graph == {"edges": [[0, 1], [1, 2]], "kind": "edges"}
    assert found.run == tables["run"] and found.algorithm == {"name": "dsgd", "noise": 2.0}
