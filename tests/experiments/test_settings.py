"""The experiments' data files: complete, readable, and wrong names in them are errors."""

from __future__ import annotations

import importlib

import pytest

from hearsay.experiments import EXPERIMENTS, NEURAL, settings
from hearsay.experiments.runner import Experiment, quick_look
from hearsay.experiments.settings import HERE, Settings, listed


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_what_the_runner_asks_for(name):
    found = settings.read(name)
    file, function = found["measure"].split(":")
    assert callable(getattr(importlib.import_module(f"hearsay.experiments.{file}"), function))
    assert (HERE / f"{found.keys.get('notes', name)}.txt").is_file()
    assert found.title(data="MNIST").startswith(f"Paper P{name[1]}: ")
    for table in found["tables"].values():
        assert table["caption"] and table["header"]
    for key in found["algorithms"]:
        assert found.algorithm(key, 4).step_size(0) > 0


def test_the_files_hold_the_experiments_and_no_others():
    assert {HERE / f"{name}.toml" for name in settings.FILES} == {
        file for file in HERE.iterdir() if file.name.endswith(".toml")
    }
    notes = {settings.read(name).keys.get("notes", name) for name in EXPERIMENTS}
    assert {f"{name}.txt" for name in notes} == {
        file.name for file in HERE.iterdir() if file.name.endswith(".txt")
    }
    assert [name for name in EXPERIMENTS if name not in NEURAL] == [
        "p1-mushrooms",
        "p2-convex",
        "p3-estimation",
        "p4-logistic",
    ]


def test_an_experiment_is_like_another_key_by_key():
    mnist, cifar = settings.read("p1-mnist"), settings.read("p1-cifar")
    assert cifar["problem"] == {**mnist["problem"], "data": "cifar10"}
    assert cifar["clip"] == mnist["clip"] == settings.read("networks")["clip"]
    assert cifar["algorithms"] == mnist["algorithms"]
    smaller = mnist.replaced(problem={"agents": 3})
    assert (smaller["problem"]["agents"], mnist["problem"]["agents"]) == (3, 5)


def test_wrong_names_are_named():
    found = Settings("mine", {"texts": {"a": "{{ step }} of {{ stpes }}"}, "algorithms": {}})
    with pytest.raises(ValueError, match="texts.a of mine must use known names: 'stpes'"):
        found.text("a", step=1)
    with pytest.raises(ValueError, match="key of mine must be one of"):
        found["problem"]
    with pytest.raises(ValueError, match="experiment must be one of"):
        settings.read("p5-mnist")


def test_words_in_a_row():
    assert [listed(words) for words in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == [
        "none",
        "a",
        "a and b",
        "a, b and c",
    ]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_shortened_experiment_says_so_first(name):
    found = settings.read(name)
    (said,) = quick_look(Experiment(found, scale=0.25))
    whole = "small scale" if name in NEURAL else "paper's iterations"
    assert said.startswith(f"A quick look, at 0.25 times the {whole}:")
    for scale in ("small", "paper") if name in NEURAL else (1.0,):
        assert quick_look(Experiment(found, scale=scale)) == []
