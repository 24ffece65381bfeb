"""Configurations and net.toml without settings: what is chosen is written, and run as chosen."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from typer.testing import CliRunner

import hearsay as hs
from hearsay.cli import commands
from hearsay.config import Config, build, build_algorithm, build_graph, build_problem, load
from hearsay.deploy import settings as net
from hearsay.deploy.choosing import write
from hearsay.deploy.deployment import deployment
from hearsay.deploy.launch import initialise
from hearsay.deploy.own_tables import initialise_tables
from hearsay.tradeoff import choices, contest, kept, rehearsing, settled
from hearsay.tradeoff.beside import beside
from hearsay.tradeoff.made_up import KINDS
from hearsay.tradeoff.sizes import held_by


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(contest, "KINDS", KINDS[:1])
    monkeypatch.setattr(contest, "LATER", (1,))
    monkeypatch.setattr(contest, "WORK", 1e7)
    monkeypatch.setattr(contest, "SEEDS", 1)
    monkeypatch.setattr(choices, "TRAVELS", (1.0,))
    monkeypatch.setattr(choices, "CLIPS", (1.0,))


SMALL = Config(
    problem={"data": "breast-cancer", "agents": 3, "adjacency": "zero-out"},
    privacy={"epsilon": 2.0},
)


@pytest.mark.parametrize("colluders", [None, 1])
def test_what_is_written_is_what_was_chosen(colluders, tmp_path):
    config = SMALL if colluders is None else SMALL.merged({"secrets": {"colluders": 1}})
    problem = build_problem(settled.described(config))
    written, found = settled.settled(settled.described(config, 3), problem.task)
    assert not settled.unsettled(written)
    algorithm, again, graph = build(written)
    assert algorithm == found.algorithm and graph.digest() == found.graph.digest()
    assert again.task.digest() == found.task.digest()
    assert (written.steps, written.release) == (found.rounds, found.readout.name)


def test_weights_of_unequal_agents_are_written_and_deployed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, rows in {"small": 30, "large": 400}.items():
        table = "".join(f"{a:.3f},{'yes' if a > 50 else 'no'}\n" for a in rng.uniform(20, 90, rows))
        (tmp_path / f"{name}.csv").write_text(f"age,ill\n{table}")
    (tmp_path / "schema.toml").write_text(
        'target = "ill"\n[columns.age]\nkind = "number"\nrange = [0, 120]\n'
        '[columns.ill]\nkind = "category"\nlevels = ["no", "yes"]\n'
    )
    config = Config(
        problem={"schema": "schema.toml", "data": ["small.csv", "large.csv"]},
        privacy={"epsilon": 2.0},
    )
    problem = build_problem(settled.described(config, 2))
    written, found = settled.settled(settled.described(config, 2), problem.task)
    assert found.choice.weights is not None
    algorithm, _, _ = build(written)
    assert algorithm == found.algorithm and algorithm.name == "weighted-erm"

    tables = [tmp_path / "small.csv", tmp_path / "large.csv"]
    schema = tmp_path / "schema.toml"
    file = initialise_tables(tmp_path / "net", schema, tables, epsilon=2.0, secure=False)
    tables = tomllib.loads(file.read_text())
    assert tables["algorithm"]["weights"] == list(found.choice.weights)
    plan = deployment(net.load(file), None)
    assert max(plan.certificate.epsilon) <= 2.0


def test_what_says_how_to_learn_is_left_as_it_is():
    assert settled.unsettled(Config()) and settled.unsettled(SMALL)
    for table in (
        {"algorithm": {"name": "dsgd"}},
        {"algorithm": {"noise": 1.0}},
        {"run": {"steps": 10}},
    ):
        assert not settled.unsettled(SMALL.merged(table))


@pytest.mark.parametrize("key", ["head_start", "per_step"])
def test_who_says_when_records_arrive_gets_settings_for_that(key):
    config = settled.described(SMALL.merged({"problem": {key: 3}}), 3)
    assert settled.unsettled(config) and settled.arriving(config) and not settled.arriving(SMALL)
    written, found = settled.settled(config, build_problem(config).task)
    assert found.choice.begun is not None
    assert written.problem[key] == 3 and written.problem.keys() - config.problem.keys() == {"clip"}
    # What is written runs by itself, at the same noise.
    problem = build_problem(written)
    graph = build_graph(written, 3)
    algorithm = build_algorithm(written, problem.task, graph)
    assert algorithm.options | {"noise": 0} == found.algorithm.options | {"noise": 0}
    asked = hs.calibrate(algorithm, problem, graph, found.rounds, epsilon=2.0, delta=1e-5)
    assert asked.noise == found.algorithm.noise


def test_secrets_that_somebody_has_planned_are_not_planned_again():
    config = SMALL.merged({"secrets": {"colluders": 1, "ratio": 3.0}})
    task = build_problem(settled.described(config)).task
    with pytest.raises(ValueError, match=r"\[secrets\] must be colluders alone"):
        settled.settled(settled.described(config, 3), task)


def test_plan_and_run_without_an_algorithm(tmp_path):
    file = tmp_path / "plan.toml"
    words = ["plan", "--data", "breast-cancer", "--agents", "3", "--epsilon", "2"]
    shown = CliRunner().invoke(commands.app, [*words, "--out", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "rehearsed: gradient perturbation" in shown.output
    tables = tomllib.loads(file.read_text())
    assert tables["algorithm"]["name"] == "gradient-perturbation"
    assert tables["privacy"] == {"epsilon": 2.0, "delta": 1e-5}
    assert load(file).steps == tables["run"]["steps"]


def bare(folder) -> str:
    """A net.toml of three agents that says nothing of how to learn."""
    text = initialise(folder, agents=3, data="breast-cancer", steps=5, secure=False).read_text()
    head = text[: text.index("[problem]")]
    return (
        f"{head}[problem]\ndimension = 30\nfeature_bound = 1.0\nradius = 100.0  # ours\n\n"
        '[privacy]\nepsilon = [1.0, 2.0, 2.0]\nadjacency = "zero-out"\n'
    )


def test_agents_choose_the_same_settings_and_keep_to_their_budgets(tmp_path):
    file = tmp_path / "net" / "net.toml"
    file.parent.mkdir()
    text = bare(tmp_path / "made")
    file.write_text(text)
    found = net.load(file)
    assert found.chosen is not None and found.config.steps == found.chosen.rounds
    assert net.load(file, settle=False).config.algorithm == {}
    plan = deployment(found, None)
    assert plan.messages == found.chosen.rounds
    assert np.all(np.array(plan.certificate.epsilon) <= [1.0, 2.0, 2.0])
    write(file, found)
    lines = file.read_text()
    assert "radius = 100.0  # ours\n" in lines and "# rehearsed: gradient perturbation" in lines
    again = net.load(file)
    assert again.chosen is None and again.digest == found.digest
    assert deployment(again, None).fingerprint == plan.fingerprint
    with pytest.raises(ValueError, match=r"\[algorithm\] in .* must be left out"):
        write(file, again)


def test_agents_that_chose_otherwise_are_told_what_differs(tmp_path):
    file = tmp_path / "net.toml"
    file.write_text(bare(tmp_path / "made"))
    ours = net.load(file)
    (kept_file,) = kept.place("x").parent.glob("[0-9a-f]*.json")
    value = kept.read(kept_file.stem)
    value["choice"]["step"] = 0.5
    kept.write(kept_file.stem, value)
    theirs = net.load(file)
    assert ours.digest != theirs.digest
    step = ours.config.algorithm["step"]
    said = net.difference(ours.public, theirs.public)
    assert said == f"[algorithm] step is {step} here and 0.5 there"


def test_a_first_net_toml_has_rehearsed_settings(tmp_path):
    said: list[str] = []
    file = initialise(
        tmp_path / "net", agents=3, data="breast-cancer", secure=False, progress=said.append
    )
    assert said[0].startswith("rehearsed: ")
    tables = tomllib.loads(file.read_text())
    assert tables["algorithm"]["name"] == "gradient-perturbation"
    assert tables["problem"]["head_start"] == max(a["records"] for a in tables["agents"].values())
    assert max(deployment(net.load(file), None).certificate.epsilon) <= tables["privacy"]["epsilon"]


def test_what_stands_beside_an_accuracy():
    rng = np.random.default_rng(0)

    def one(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = (rng.random(count) < 0.7).astype(float)
        return rng.normal(size=(count, 2)) + 2 * labels[:, None], labels

    problem = hs.problems.logistic(
        [one(80), one(80)], feature_bound=3.0, head_start=80, test=one(200), adjacency="zero-out"
    )
    graph = hs.graphs.ring(2)
    algorithm = hs.gradient_perturbation(
        step=0.5, noise=1.0, mechanism="gaussian", sampling=hs.History()
    )
    algorithm = hs.calibrate(algorithm, problem, graph, 16, 1.0, delta=1e-5)
    run = hs.simulate(algorithm, problem, graph, steps=16, every=4, seeds=2, delta=1e-5)
    found = beside(run)
    assert found.guess == run.guessing
    quiet = hs.gradient_perturbation(
        step=0.5, noise=0.0, mechanism="gaussian", sampling=hs.History()
    )
    plain = hs.simulate(quiet, problem, graph, steps=16, every=4, seeds=2, delta=1e-5)
    assert found.clean == plain.final("released_accuracy")[0]
    assert found.alone == pytest.approx(_alone_by_the_engine(problem, run), abs=0.03)
    assert found.each is None


def _alone_by_the_engine(problem: hs.problems.Problem, run: hs.Run) -> float:
    """What one agent has rehearsed by itself, run for each as if it were the only one."""
    (single,) = rehearsing.by_themselves(problem.task, max(run.certificate.epsilon), 1e-5)
    choice, one, found = single.choice, rehearsing.nobody(1), []
    for agent in range(problem.agents):
        own = choice.prepared(held_by(problem, np.array([agent])))
        algorithm = hs.calibrate(choice.algorithm, own, one, choice.rounds, 1.0, delta=1e-5)
        by_itself = hs.simulate(
            algorithm, own, one, steps=choice.rounds, seeds=8, delta=1e-5,
            release=(choice.average,), reference=False,
        )  # fmt: skip
        found.append(by_itself.final("released_accuracy")[0])
    return float(np.mean(found))


def test_alone_a_large_agent_has_the_settings_of_a_large_one():
    """As if it were the only one there is; a small one beside it changes nothing."""
    rng = np.random.default_rng(0)

    def one(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = (rng.random(count) < 0.5).astype(float)
        return rng.normal(size=(count, 8)) + labels[:, None], labels

    sets, test = [one(12), one(900)], one(500)
    options = {"feature_bound": 4.0, "head_start": 900, "test": test, "adjacency": "zero-out"}

    def measured(held: list) -> hs.Run:
        problem, graph = hs.problems.logistic(held, **options), hs.graphs.complete(len(held))
        algorithm = hs.gradient_perturbation(mechanism="gaussian", sampling=hs.History())
        algorithm = hs.calibrate(algorithm, problem, graph, 4, 1.0, delta=1e-5)
        return hs.simulate(algorithm, problem, graph, steps=4, seeds=1, delta=1e-5)

    both, apart = beside(measured(sets)), beside(measured([sets[1]] * 2))
    assert both.each[1] == pytest.approx(apart.alone, abs=0.03)
    assert both.each[1] > both.each[0] + 0.1
    assert both.alone == pytest.approx(np.mean(both.each))
