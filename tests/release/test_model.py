"""The released model: what it is, and files that are whole, belong together, or are refused."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
import pytest
from safetensors import safe_open

import hearsay as hs
from hearsay.algorithms.baselines.noisy_average import NoisyAverage
from hearsay.base import Private, State
from hearsay.privacy.recursion import Release
from hearsay.release.folder import CERTIFICATE, MODEL, digest
from hearsay.release.model import ReleasedModel
from hearsay.release.tensors import pack, unpack

GRAPH = hs.graphs.star(4)
PROBLEM = hs.problems.logistic("breast-cancer", agents=4, ridge=0.02)


@pytest.fixture(scope="module")
def run() -> hs.Run:
    algorithm = hs.gradient_perturbation(mechanism="gaussian", noise=0.5, sampling=hs.Cyclic(10))
    return hs.simulate(
        algorithm,
        PROBLEM,
        GRAPH,
        steps=20,
        seeds=[3, 4],
        delta=1e-5,
        reference=False,
        regret=False,
        release=("tail", "exponential"),
    )


def test_it_is_the_mean_of_what_it_says(run: hs.Run) -> None:
    tail = run.averages["tail"]
    np.testing.assert_allclose(run.release().params, tail[0].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(run.release(seed=4).params, tail[1].mean(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(run.release(of=2, neighbours=False).params, tail[0, 2])
    leaf = run.release(of=2)
    np.testing.assert_allclose(leaf.params, tail[0, [0, 2]].mean(axis=0), rtol=1e-12)
    assert leaf.average_of == (
        "the mean of messages 8 to 19 of agent 2 and the 1 agent that it hears"
    )
    other = run.release("exponential").params
    np.testing.assert_allclose(other, run.averages["exponential"][0].mean(axis=0), rtol=1e-12)


def test_its_accuracy_is_what_the_run_measured(run: hs.Run) -> None:
    each = [run.release(seed=seed).accuracy for seed in run.seeds]
    np.testing.assert_allclose(run.metrics["released_accuracy"][-1], each, atol=1e-12)
    assert run.final("released_accuracy")[0] == pytest.approx(np.mean(each))
    assert run.final("accuracy")[0] == pytest.approx(run.raw["accuracy"][-1].mean())
    assert "released_accuracy" in run.to_csv().splitlines()[0].split(",")


def test_a_round_trip(run: hs.Run, tmp_path: Path) -> None:
    saved = run.release(folder=tmp_path)
    found = hs.load_model(tmp_path)
    np.testing.assert_array_equal(found.params, saved.params)
    # The accuracy is about records, and no certificate covers them.
    assert found.accuracy is None and str(found) == str(replace(saved, accuracy=None))
    assert found.certificate.to_json() == run.certificate.to_json()
    right = found.predict(PROBLEM.test_features) == PROBLEM.test_labels
    assert right.mean() == saved.accuracy
    assert hs.load_model(tmp_path / MODEL).private
    # Anybody's safetensors reads the same.
    with safe_open(tmp_path / MODEL, "numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("params"), saved.params)
        assert json.loads(file.metadata()["model"])["loss"] == "Logistic"
        assert "costs nothing" in file.metadata()["why_free"]


def damaged(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize("place", [3, 20, 200, 700, -1, -30])
def test_a_damaged_model_is_refused(run: hs.Run, tmp_path: Path, place: int) -> None:
    run.release(folder=tmp_path)
    file = tmp_path / MODEL
    content = file.read_bytes()
    file.write_bytes(damaged(content, place % len(content)))
    with pytest.raises(ValueError, match=r"damaged|whole safetensors|released model"):
        hs.load_model(tmp_path)
    file.write_bytes(content[:-5])
    with pytest.raises(ValueError, match="end within 'params'"):
        hs.load_model(tmp_path)
    file.write_bytes(content + b"x")
    with pytest.raises(ValueError, match="1 bytes after its end"):
        hs.load_model(tmp_path)


def test_another_certificate_is_refused(run: hs.Run, tmp_path: Path) -> None:
    run.release(folder=tmp_path)
    file = tmp_path / CERTIFICATE
    own = file.read_text()
    other = hs.certify(run.algorithm, PROBLEM, GRAPH, 21, delta=1e-5)
    file.write_text(other.to_json())
    with pytest.raises(ValueError, match="the certificate of another run"):
        hs.load_model(tmp_path)
    file.write_text(own.replace('"gradient-perturbation"', '"dsgd"'))
    with pytest.raises(ValueError, match="its digest does not match"):
        hs.load_model(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="nothing without its certificate"):
        hs.load_model(tmp_path)
    with pytest.raises(FileNotFoundError, match="no released model"):
        hs.load_model(tmp_path / "elsewhere")


def test_a_file_that_is_no_released_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / MODEL).write_bytes(b"".join(pack({"weights": np.zeros(3)})))
    with pytest.raises(ValueError, match="must be a hearsay released model 1"):
        hs.load_model(tmp_path)


def test_unpack_reads_what_pack_writes() -> None:
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a": np.array(3, np.int32), "c": np.zeros((0, 2))}
    found, facts = unpack(b"".join(pack(arrays, {"who": "me"})), "it")
    assert facts == {"who": "me"} and set(found) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    for content in (b"", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", b"\x05" + bytes(7) + b'{"a":'):
        with pytest.raises(ValueError, match="it must be a whole safetensors file"):
            unpack(content, "it")


def test_a_run_without_noise_is_not_private(tmp_path: Path) -> None:
    run = hs.simulate(hs.dsgd(noise=0), PROBLEM, GRAPH, steps=3, reference=False, regret=False)
    found = run.release(folder=tmp_path)
    assert not found.private and found.warnings[0].startswith("NOT PRIVATE")
    assert hs.load_model(tmp_path).warnings == found.warnings


def test_bad_requests_are_named(run: hs.Run) -> None:
    for options, text in (
        ({"kind": "mean"}, "kind must be an average that the run kept"),
        ({"kind": "median"}, "kind must be one of tail, exponential, mean, last"),
        ({"of": "some"}, "of must be one of all"),
        ({"of": 4}, "of must be .* below 4"),
        ({"seed": 0}, "seed must be one of the run's"),
    ):
        with pytest.raises(ValueError, match=text):
            run.release(**options)
    bare = hs.simulate(hs.dsgd(), PROBLEM, GRAPH, steps=2, release=None, regret=False)
    with pytest.raises(ValueError, match="release must have been asked for"):
        bare.release()
    assert "released_accuracy" not in bare.metrics and not bare.releasable


class Update(NamedTuple):
    """A message that is no model."""

    update: Any


@dataclass(frozen=True, kw_only=True)
class Updates(NoisyAverage):
    """Agents that send something, under another name than a model's."""

    channels: ClassVar[dict[str, str]] = {"update": "mixing"}
    message: ClassVar[type] = Update

    name: str = "updates"

    def prepare(self, state: Any, batch: Any, rates: Any) -> Any:
        return Update(Private(batch.gradient(state.params), rates.noise)), state

    def update(self, state: Any, sent: Any, inbox: Any, batch: Any, rates: Any, domain: Any) -> Any:
        return State(domain.project(state.params - rates.step * sent.update))

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        return (Release("update", self.noise_for(agent), state=0.0, fresh=1.0),)


def test_messages_that_show_no_model_are_refused() -> None:
    run = hs.simulate(Updates(), PROBLEM, hs.graphs.ring(4), steps=3, regret=False)
    assert run.averages == {} and "released_accuracy" not in run.metrics
    with pytest.raises(ValueError, match="whose messages show a model, got updates, which sends"):
        run.release()


def network_run(model: Any) -> hs.Run:
    problem = hs.problems.neural("digits", model=model, agents=2, records=40, test_records=20)
    algorithm = hs.dsgd(noise=0.01, sampling=hs.Cyclic(4))
    return hs.simulate(algorithm, problem, hs.graphs.ring(2), steps=3)


def test_a_network_of_ours_predicts_from_its_file(tmp_path: Path) -> None:
    run = network_run("mlp")
    run.release(folder=tmp_path)
    found = hs.load_model(tmp_path)
    said = found.predict(run.problem.test_features)
    accuracy = np.mean(said == run.problem.test_labels)
    assert run.metrics["released_accuracy"][-1, 0] == pytest.approx(accuracy)
    with pytest.raises(ValueError, match=r"features must be of shape \(records, 8, 8, 1\)"):
        found.predict(np.zeros((2, 64)))


def test_a_network_of_somebody_elses_needs_its_model(tmp_path: Path) -> None:
    class Flat(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.layer(x.ravel())

    module = Flat(eqx.nn.Linear(64, 10, key=jax.random.key(0)))
    # Its name is one of ours, and it is not the same.
    own = hs.problems.from_module(module, name="mlp")
    run = network_run(own)
    run.release(folder=tmp_path)
    with pytest.raises(ValueError, match="model must be given to predict with mlp"):
        hs.load_model(tmp_path).predict(run.problem.test_features)
    said = hs.load_model(tmp_path, model=own).predict(run.problem.test_features)
    assert np.mean(said == run.problem.test_labels) == pytest.approx(run.release().accuracy)
    wrong = hs.problems.from_module(eqx.nn.Linear(3, 2, key=jax.random.key(0)))
    with pytest.raises(ValueError, match="model must be of 650 parameters"):
        hs.load_model(tmp_path, model=wrong)


def test_numbers_that_are_none_are_refused(run: hs.Run) -> None:
    good = run.release()
    with pytest.raises(ValueError, match="did the run diverge"):
        ReleasedModel(
            np.array([1.0, np.nan]),
            good.average_of,
            good.kind,
            good.algorithm,
            good.problem,
            good.predictor,
            good.certificate,
        )


def forged(folder: Path, changes: dict[str, Any], params: np.ndarray | None = None) -> None:
    """The model of that folder with other facts, and the digest that belongs to them."""
    arrays, facts = unpack((folder / MODEL).read_bytes(), "it")
    params = arrays["params"] if params is None else params
    facts = {key: text for key, text in (facts | changes).items() if text is not None}
    facts["digest"] = digest({k: v for k, v in facts.items() if k != "digest"}, params)
    (folder / MODEL).write_bytes(b"".join(pack({"params": params}, facts)))


def network(**changes: Any) -> str:
    known = {"loss": "NeuralLoss", "model": "mlp", "shape": [8], "classification": True}
    return json.dumps({**known, "compute": "tf32", "named": True, "classes": 2, **changes})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"average_of": None}, "must be a whole hearsay released model 1, got 'average_of'"),
        ({"certificate": None}, "must be a whole hearsay released model 1, got 'certificate'"),
        ({"model": "nothing"}, "must be a whole hearsay released model 1, got Expecting value"),
        ({"accuracy": "high"}, "must be a whole hearsay released model 1, got could not convert"),
        ({"warnings": "5"}, "warnings of .* must be a list of texts, got 5"),
        ({"warnings": '"NOT PRIVATE"'}, "warnings of .* must be a list of texts"),
        ({"model": "[]"}, "model of the released model must be facts by name"),
        ({"model": '{"loss": "Logistic"}'}, "shape of the released model"),
        (
            {"model": '{"loss": "Logistic", "shape": [7], "classification": true}'},
            r"shape of the released model must be \(30,\), as its numbers",
        ),
        ({"model": network()}, "parameters of the released model must be 30"),
        ({"model": network(parameters=30)}, "model must be of 30 parameters, got '9,538'"),
        # More than any memory holds.
        ({"model": network(parameters=30, classes=10**12)}, "model must be of 30 parameters"),
        ({"model": network(parameters=30, shape=[10**9])}, "model must be of 30 parameters"),
        ({"model": network(parameters=30, model="../x")}, "model of the released model must be"),
    ],
)
def test_a_file_from_anybody_is_refused_in_words(run, tmp_path, changes, text) -> None:
    run.release(folder=tmp_path)
    forged(tmp_path, changes)
    with pytest.raises((ValueError, TypeError), match=text):
        hs.load_model(tmp_path)


@pytest.mark.parametrize("params", [np.zeros((2, 2)), np.zeros(30, np.int64), np.ones(30, bool)])
def test_parameters_are_one_vector_of_numbers(run, tmp_path, params) -> None:
    run.release(folder=tmp_path)
    forged(tmp_path, {}, params)
    with pytest.raises(ValueError, match="must be one vector of floating-point numbers"):
        hs.load_model(tmp_path)


def test_several_seeds_are_several_runs(run: hs.Run) -> None:
    """Their models together would show more than one certificate counts."""
    assert any("has 2: the models of several seeds" in text for text in run.release().warnings)
    one = hs.simulate(run.algorithm, PROBLEM, GRAPH, steps=4, seeds=[3], delta=1e-5)
    assert len(one.release().warnings) == 1


def test_an_agents_own_model_is_no_released_model(run: hs.Run, tmp_path: Path) -> None:
    run.save(tmp_path)
    own = tmp_path / "alice.private-model.npy"
    np.save(own, run.models[0, 0])
    instead = "hearsay network release net.toml"
    for path in (own, tmp_path / "private-models.npz", tmp_path):
        with pytest.raises(ValueError, match=f"must be .*released model, got .*{instead}"):
            hs.load_model(path)
    # Under the name of a model it is known by how it begins.
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / MODEL).write_bytes(own.read_bytes())
    with pytest.raises(ValueError, match="got a NumPy array, as an agent's own model is"):
        hs.load_model(tmp_path / "taken")
    with closing(sqlite3.connect(tmp_path / "alice.ledger")) as ledger:
        ledger.execute("create table t (x)")
    with pytest.raises(ValueError, match="got a ledger, which holds an agent's state"):
        hs.load_model(tmp_path / "alice.ledger")
    run.release(folder=tmp_path / "released")
    with pytest.raises(ValueError, match=f"the released model is in {tmp_path / 'released'}"):
        hs.load_model(tmp_path)


def test_a_seed_that_anybody_guesses_hides_nobodys_rows():
    """Whoever repeats the command with the default seeds has the noise of the released model."""
    schema = hs.Schema({"age": hs.Number(0, 120), "ill": hs.Category(["no", "yes"])}, target="ill")
    table = {"age": [20, 70, 30, 80], "ill": ["no", "yes", "no", "yes"]}
    problem = hs.problems.tabular([table, table], schema)
    for seed, private in ((0, False), (2**30 + 1, True)):
        run = hs.simulate(
            hs.dsgd(noise=0.1), problem, hs.graphs.ring(2), steps=2, seeds=[seed], reference=False
        )
        assert run.release().private == private
