"""The command line, with tiny arguments: what it writes, what it refuses, and how it says so."""

from __future__ import annotations

import csv
import errno
import importlib
import json
import math
import os
import re
import runpy
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import hearsay as hs
from hearsay import _files, config
from hearsay.algorithms import REGISTRY
from hearsay.cli import commands, options, screen
from hearsay.cli.network import network
from hearsay.experiments import EXPERIMENTS, NEURAL, scale_and_seeds
from hearsay.graphs import BUILDERS
from hearsay.problems import PROBLEMS
from hearsay.problems.data import files
from hearsay.problems.sampling.samplers import SAMPLERS
from hearsay.simulation import checkpoint, engine

# hearsay.simulate itself is the function.
simulation = importlib.import_module("hearsay.simulation.simulating")

PROBLEM = [
    "--loss",
    "ridge",
    "--agents",
    "3",
    "--set",
    "problem.records=20",
    "--set",
    "problem.dimension=2",
]
TINY = [*PROBLEM, "--steps", "12", "--seeds", "2", "--set", "run.every=4"]
FILES = {
    "config.toml",
    "certificate.json",
    "certificate.txt",
    "run.json",
    "private-metrics.csv",
    "budget.csv",
    "private-models.npz",
    "private-checkpoint.npz",
    "private-report.html",
    "released",
}


def call(*words: str, code: int = 0):
    result = CliRunner().invoke(commands.app, [str(w) for w in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("module", ["hearsay", "hearsay.cli"])
def test_the_command_line_is_there_without_its_script(module, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hearsay", "--version"])
    monkeypatch.delitem(sys.modules, f"{module}.__main__", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("hearsay ")


def test_certify_prints_and_writes_both_adjacencies(tmp_path):
    words = ["certify", "gradient-perturbation", *PROBLEM, "--clip", "1", "--noise", "2"]
    words += ["--horizon", "5", "--no-theory"]
    shown = call(*words, "--adjacency", "both", "--out", tmp_path).output
    assert "The same run under both adjacencies, epsilon:" in shown
    files = [tmp_path / f"certificate-{one}.json" for one in ("replace", "zero-out")]
    found = [json.loads(file.read_text()) for file in files]
    assert [one["descriptions"][0]["adjacency"]["relation"] for one in found] == [
        "replace", "zero-out",
    ]  # fmt: skip
    ratio = found[0]["budgets"][0]["epsilon"] / found[1]["budgets"][0]["epsilon"]
    assert ratio == pytest.approx(2.0), "a clipped gradient at a public point, Laplace noise"
    call("verify", *files)
    whole = json.loads(call(*words, "--adjacency", "both", "--json").output)
    assert list(whole) == ["replace", "zero-out"] and [*whole.values()] == found
    single = call(*words, "--adjacency", "zero-out", "--json", "--out", tmp_path).output
    assert json.loads(single) == found[1]
    assert json.loads((tmp_path / "certificate.json").read_text()) == found[1]


def test_both_adjacencies_are_for_certify_with_noise_that_is_given():
    for words in (["run", *TINY], ["plan", *PROBLEM, "--epsilon", "1"]):
        with pytest.raises(ValueError, match="adjacency must be one of replace, zero-out, got"):
            call(*words, "--adjacency", "both")
    with pytest.raises(ValueError, match="--adjacency must be replace or zero-out where --epsilon"):
        call("certify", *PROBLEM, "--epsilon", "1", "--adjacency", "both")


def test_a_run_under_zero_out_says_so_and_keeps_it(tmp_path):
    shown = call("run", *TINY, "--adjacency", "zero-out", "--out", tmp_path / "one").output
    assert "(zero-out)" in shown and "empty record" in shown
    assert 'adjacency = "zero-out"' in (tmp_path / "one" / "config.toml").read_text()
    page = (tmp_path / "one" / "private-report.html").read_text()
    assert "(2 epsilon, (1 + e^epsilon) delta)" in page and "being there or empty" in page
    again = call("certify", "--config", tmp_path / "one" / "config.toml", "--horizon", "12").output
    assert "empty record" in again


def plain(text: str) -> str:
    """Without colours, boxes and line breaks."""
    return re.sub(r"[\s│╭╮╰╯─┃━]+", " ", re.sub(r"\x1b\[[0-9;]*m", "", text))


def error_of(monkeypatch, capsys, *words: str) -> str:
    """What the installed command prints for a mistake: one line on stderr, exit code 2,
    no traceback.
    """
    monkeypatch.delenv("HEARSAY_DEBUG", raising=False)
    monkeypatch.setattr(sys, "argv", ["hearsay", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        commands.main()
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    # Notes may stand above it.
    return re.sub(r"\x1b\[[0-9;]*m", "", captured.err).strip().splitlines()[-1]


def nothing_may_run(monkeypatch) -> None:
    monkeypatch.setattr(
        simulation, "simulate", lambda *_, **__: pytest.fail("a simulation was started")
    )
    monkeypatch.setattr(engine, "advance", lambda *_, **__: pytest.fail("a simulation was started"))


def models(folder) -> np.ndarray:
    with np.load(folder / "private-models.npz") as stored:
        return stored["models"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "new" / "run"
    result = call("run", "ldp-online", *TINY, "--epsilon", "4", "--out", folder)
    return folder, result.output


def test_run_leaves_a_complete_folder(finished):
    folder, output = finished
    assert {p.name for p in folder.iterdir()} - {checkpoint.PREVIOUS} == FILES
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["horizon"] == 12
    assert max(b["epsilon"] for b in certificate["budgets"]) <= 4.0
    rows = list(csv.DictReader((folder / "private-metrics.csv").read_text().splitlines()))
    assert [r["step"] for r in rows] == ["0", "0", "4", "4", "8", "8", "12", "12"]
    assert float(rows[-1]["spent_max"]) == pytest.approx(4.0, rel=1e-6)
    assert models(folder).shape == (2, 3, 2)
    assert (
        (folder / "private-report.html").read_text().lstrip().lower().startswith("<!doctype html>")
    )
    assert "Privacy certificate: ldp-online, 12 messages, laplace noise" in output
    assert "private-report.html" in output
    model = hs.load_model(folder / "released")
    assert model.average_of == "the mean of messages 4 to 11 of all 3 agents"
    assert model.accuracy is None, "it is about records"
    assert "Released model: ldp-online" in output
    # On the screen it is the root mean squared one.
    assert f"test error  {math.sqrt(float(rows[-2]['released_error'])):.4g}" in output


def test_a_run_is_repeated_exactly_by_its_own_config(finished, tmp_path):
    folder, _ = finished
    kept = (folder / "config.toml").read_text()
    assert hs.__version__ in kept.splitlines()[0] and 'kind = "ring"' in kept
    call("run", "--config", folder / "config.toml", "--out", tmp_path)
    for name in ("private-metrics.csv", "budget.csv", "certificate.json", "config.toml"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name
    np.testing.assert_array_equal(models(tmp_path), models(folder))


def test_options_are_laid_over_the_config(finished, tmp_path, monkeypatch):
    def begun(*_, **__):
        raise KeyboardInterrupt  # the configuration has been written by then

    monkeypatch.setattr(simulation, "fulfil", begun)
    call(
        "run",
        "dsgd",
        "--config",
        finished[0] / "config.toml",
        "--steps",
        "8",
        "--out",
        tmp_path,
        code=130,
    )
    again = config.load(tmp_path / "config.toml")
    assert (again.algorithm["name"], again.steps, again.privacy["epsilon"]) == ("dsgd", 8, 4.0)


def test_an_interrupted_run_says_how_to_continue_and_does(finished, tmp_path, monkeypatch):
    original = simulation.fulfil

    def interrupted(*args, progress, **options):
        def stop(done, total, spent):
            progress(done, total, spent)
            if done == 8:
                raise KeyboardInterrupt

        return original(*args, progress=stop, **options)

    monkeypatch.setattr(simulation, "fulfil", interrupted)
    result = call("run", "ldp-online", *TINY, "--epsilon", "4", "--out", tmp_path, code=130)
    monkeypatch.undo()
    assert "Stopped early: interrupted after 8 of 12 steps" in result.output
    assert f"hearsay run --resume --out {tmp_path}" in result.output
    assert json.loads((tmp_path / "certificate.json").read_text())["horizon"] == 8
    call("run", "--resume", "--out", tmp_path)
    np.testing.assert_array_equal(models(tmp_path), models(finished[0]))
    for name in ("budget.csv", "certificate.json", "config.toml"):
        assert (tmp_path / name).read_bytes() == (finished[0] / name).read_bytes(), name


def test_resume_needs_the_folder_of_a_run(tmp_path, monkeypatch, capsys):
    for words in ([], ["--out", tmp_path]):
        message = error_of(monkeypatch, capsys, "run", "--resume", *words)
        assert message.startswith("error: --resume needs --out with the folder of a run, got")


def test_resume_refuses_a_damaged_checkpoint(tmp_path, finished, monkeypatch, capsys):
    (tmp_path / "config.toml").write_bytes((finished[0] / "config.toml").read_bytes())
    content = bytearray((finished[0] / "private-checkpoint.npz").read_bytes())
    content[100] ^= 1
    (tmp_path / "private-checkpoint.npz").write_bytes(content)
    assert "private-checkpoint.npz is damaged" in error_of(
        monkeypatch, capsys, "run", "--resume", "--out", tmp_path
    )


def test_resume_does_not_ignore_other_settings_silently(finished, monkeypatch, capsys):
    message = error_of(
        monkeypatch,
        capsys,
        "run",
        "--resume",
        "--out",
        finished[0],
        "--steps",
        "99",
        "--epsilon",
        "1",
    )
    assert "--resume" in message


def test_without_noise_or_epsilon_every_agent_spends_ten(tmp_path):
    call("run", *TINY, "--out", tmp_path)
    epsilon = [
        b["epsilon"] for b in json.loads((tmp_path / "certificate.json").read_text())["budgets"]
    ]
    np.testing.assert_allclose(epsilon, 10.0, rtol=1e-6)


def test_a_budget_stops_the_run_and_says_so(tmp_path):
    result = call("run", *TINY, "--epsilon", "4", "--budget", "2", "--out", tmp_path)
    assert re.search(
        r"Stopped early: agent \d may spend epsilon = 2: message \d+ would exceed it and was not"
        r" sent",
        plain(result.output),
    )
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert certificate["horizon"] < 12
    assert max(b["epsilon"] for b in certificate["budgets"]) <= 2.0


def test_an_infinite_budget_is_refused_unless_asked_for(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        nothing_may_run(patch)
        message = error_of(patch, capsys, "run", *TINY, "--noise", "none", "--out", tmp_path)
    assert (
        message
        == "error: the privacy budget would be infinite (messages carry no noise); use --no-privacy"
        " to run anyway"
    )
    result = call("run", *TINY, "--noise", "none", "--no-privacy", "--out", tmp_path)
    assert "infinite" in result.output
    assert (
        json.loads((tmp_path / "certificate.json").read_text())["budgets"][0]["epsilon"]
        == "infinite"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["run", *TINY],
        ["compare", "dsgd", "dola", *TINY],
        ["reproduce", "p1-mushrooms"],
        ["frontier", "digits"],
        ["demo"],
    ],
    ids=lambda words: words[0],
)
def test_a_folder_that_cannot_be_written_fails_before_any_computation(
    words, tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").write_text("not a folder")
    nothing_may_run(monkeypatch)
    for name in ("build", "build_problem"):
        monkeypatch.setattr(config, name, lambda *_: pytest.fail("the problem was built"))
    out = tmp_path / "file" / "run"
    message = error_of(monkeypatch, capsys, *words, "--out", out)
    assert message == f"error: cannot write to {out}: {out.parent} is not a folder"


def test_a_full_disk_is_said_with_the_path(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # the system does not say which file

    nothing_may_run(monkeypatch)
    monkeypatch.setattr(_files.os, "fsync", full)
    message = error_of(monkeypatch, capsys, "run", *TINY, "--out", tmp_path / "new")
    assert (
        message == "error: [Errno 28] cannot write it: No space left on device:"
        f" '{tmp_path / 'new' / 'config.toml'}'"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_hundred_thousand_agents_are_refused_in_a_few_words(monkeypatch, capsys):
    message = error_of(
        monkeypatch, capsys, "certify", "--data", "breast-cancer", "--agents", "100000"
    )
    assert "leaves agents" in message and len(message) < 300


def test_ternary_messages_end_at_delta(tmp_path):
    words = ["run", "ternary-dsgd", *TINY, "--noise", "500", "--budget", "2", "--out", tmp_path]
    output = plain(call(*words, "--delta", "0.05", "--set", "algorithm.sampling=history").output)
    assert re.search(r"agent \d may spend delta = 0.05: message \d+ would exceed it", output)
    assert re.search(r"0\.0000 \(δ =.*? 0\.04\d+\)", output), "the summary says at which delta"
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert all(b["epsilon"] == 0 and b["delta"] <= 0.05 for b in certificate["budgets"])
    page = (tmp_path / "private-report.html").read_text()
    assert "delta spent per agent" in page and ">delta</th>" in page


def test_certify_as_text():
    output = call(
        "certify", "ldp-online", *PROBLEM, "--noise", "0.5*(k+1)^0.1", "--horizon", "12"
    ).output
    assert "Privacy certificate: ldp-online, 12 messages, laplace noise" in output
    assert "Assumption 2" in output
    assert (
        "Assumption 2"
        not in call("certify", *PROBLEM, "--noise", "0.5", "--horizon", "12", "--no-theory").output
    )


def test_certify_as_json():
    words = ["certify", *PROBLEM, "--noise", "0.5*(k+1)^0.1", "--json"]
    finite = json.loads(call(*words, "--horizon", "12").stdout)
    assert finite["horizon"] == 12
    assert [b["agent"] for b in finite["budgets"]] == [0, 1, 2]
    forever = json.loads(call(*words).stdout)
    assert forever["horizon"] == "infinite"
    for short, long in zip(finite["budgets"], forever["budgets"], strict=True):
        assert 0 < short["epsilon"] < long["epsilon"]
    at_delta = json.loads(call(*words, "--horizon", "12", "--delta", "1e-5").stdout)
    assert all(b["epsilon_at_delta"] <= b["epsilon"] for b in at_delta["budgets"])


def test_an_infinite_certificate_has_exit_code_3():
    infinite = json.loads(
        call("certify", *PROBLEM, "--noise", "none", "--horizon", "12", "--json", code=3).stdout
    )
    assert {b["epsilon"] for b in infinite["budgets"]} == {"infinite"}
    assert "infinite" in call("certify", "dsgd", *PROBLEM, "--noise", "0.5", code=3).output


def test_certify_calibrates_to_a_target():
    words = ["certify", *PROBLEM, "--noise", "0.5*(k+1)^0.1", "--epsilon", "3", "--json"]
    for horizon in ("12", "inf"):
        budgets = json.loads(call(*words, "--horizon", horizon).stdout)["budgets"]
        np.testing.assert_allclose([b["epsilon"] for b in budgets], 3.0, rtol=1e-6)
        assert all(b["epsilon"] <= 3.0 for b in budgets)


@pytest.mark.slow
def test_compare_two_algorithms(tmp_path):
    result = call("compare", "ldp-online", "dsgd", *TINY, "--epsilon", "4", "--out", tmp_path)
    page = (tmp_path / "private-report.html").read_text()
    for name in ("ldp-online", "dsgd"):
        assert name in result.output
        assert name in page


def test_compare_checks_all_names_before_it_runs_any(tmp_path, monkeypatch, capsys):
    started = []
    original = simulation.simulate
    monkeypatch.setattr(
        simulation, "simulate", lambda *a, **o: started.append(1) or original(*a, **o)
    )
    assert "did you mean 'dola'" in error_of(
        monkeypatch, capsys, "compare", "dsgd", "dolla", *TINY, "--out", tmp_path
    )
    assert not started


def test_data_says_what_is_there_and_what_is_not(tmp_path, monkeypatch):
    for name in ("HEARSAY_DATA", "HEARSAY_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    output = plain(call("data", "--data-dir", tmp_path).output)
    assert output.count("missing") == len(files.FILES)
    (tmp_path / "mushrooms").mkdir()
    (tmp_path / files.FILES["mushrooms"].path).write_text("p,x,s\n")
    assert "WRONG" in plain(call("data", "--data-dir", tmp_path).output)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["run", "ldp_online"],
            (
                f"name in [algorithm] must be one of {', '.join(REGISTRY)}, got 'ldp_online'; did"
                " you mean 'ldp-online'?"
            ),
        ),
        (["run", "--set", "algorithm.copling=1"], "got 'copling'; did you mean 'coupling'?"),
        (
            ["run", "--set", "algorithm"],
            (
                "--set must be table.key=value with a table of problem, graph, algorithm, privacy,"
                " run, secrets, faults, costs, got 'algorithm'"
            ),
        ),
        (["run", "--set", "algorythm.step=1"], "--set must be table.key=value"),
        (
            ["run", "--set", "run.step=1"],
            (
                "key in [run] must be one of steps, seeds, every, precision, device, release, got"
                " 'step'; did you mean 'steps'?"
            ),
        ),
        (
            ["run", "--noise", "loud"],
            'noise must be a number, "c*(k+s)^p" or "c*r^k", got \'loud\'',
        ),
        (["run", "--graph", "rign"], "kind in [graph] must be one of"),
        (["run", "--steps", "0"], "steps must be at least 1, got 0"),
        (["certify", "--horizon", "soon"], "horizon must be a whole number, got 'soon'"),
        (["certify", "--horizon", "-5"], "horizon must be at least 0, got -5"),
        (
            ["certify", "--set", "algorithm.mechanism=gaussian"],
            "delta must be given for Gaussian noise",
        ),
        (["reproduce", "p1-mushroom"], "did you mean 'p1-mushrooms'?"),
        (
            ["reproduce", "p1-mushrooms", "--scale", "0"],
            "scale must be small, paper, or a number above 0 and at most 1, got '0'",
        ),
        (
            ["reproduce", "p1-mnist", "--scale", "large"],
            "scale must be small, paper, or a number above 0 and at most 1, got 'large'",
        ),
        (["reproduce", "p4-mnist", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["data", "--fetch", "mushroom"], "fetch must be one of"),
        (
            ["run", "--config", "/nowhere/some.toml"],
            "/nowhere/some.toml is not there: it must be a configuration",
        ),
    ],
)
def test_mistakes_are_one_clear_line(words, message, tmp_path, monkeypatch, capsys):
    nothing_may_run(monkeypatch)
    tiny = PROBLEM if words[0] in ("run", "certify") else []
    out = ["--out", str(tmp_path / "out")] if words[0] == "run" else []
    line = error_of(monkeypatch, capsys, *words, *tiny, *out)
    assert line.startswith("error: ")
    assert message in line
    assert "\n" not in line


def test_bad_toml_is_named(tmp_path, monkeypatch, capsys):
    path = tmp_path / "bad.toml"
    path.write_text("[run\n")
    line = error_of(monkeypatch, capsys, "run", "--config", path, "--out", tmp_path / "out")
    assert line.startswith(f"error: {path} is not valid TOML")


def test_a_traceback_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("HEARSAY_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["hearsay", "reproduce", "nothing"])
    with pytest.raises(ValueError, match="experiment must be one of"):
        commands.main()


def test_help_names_everything_that_can_be_chosen():
    for command in ("run", "certify", "compare"):
        text = plain(call(command, "--help").output)
        for name in (*REGISTRY, *BUILDERS, *PROBLEMS, *SAMPLERS):
            assert name in text, f"{command} --help does not mention {name}"
    text = plain(call("reproduce", "--help").output)
    for name in (*EXPERIMENTS, "small", "paper"):
        assert name in text, f"reproduce --help does not mention {name}"
    first = plain(call("--help").output)
    for command in ("run", "certify", "compare", "frontier", "reproduce", "data", "demo"):
        assert command in first
    assert "hearsay demo" in first


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_scales_and_seeds_in_the_terms_of_an_experiment(name):
    network = name in NEURAL
    assert scale_and_seeds(name) == (
        {"scale": "small", "seeds": 1} if network else {"scale": 1.0, "seeds": 10}
    )
    assert scale_and_seeds(name, "paper") == (
        {"scale": "paper", "seeds": 3} if network else {"scale": 1.0, "seeds": 10}
    )
    assert scale_and_seeds(name, "small", 2) == {"scale": "small" if network else 0.1, "seeds": 2}
    assert scale_and_seeds(name, "0.25") == {"scale": 0.25, "seeds": 1 if network else 10}


def test_reproduce_hands_over_what_was_asked_for(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setitem(
        EXPERIMENTS,
        "p3-mnist",
        lambda folder, **options: asked.append(options) or folder / "report.html",
    )
    call(
        "reproduce", "p3-mnist", "--out", tmp_path / "out", "--scale", "0.5", "--data-dir", tmp_path
    )
    assert {k: asked[0][k] for k in ("scale", "seeds", "data_dir")} == {
        "scale": 0.5,
        "seeds": 1,
        "data_dir": str(tmp_path),
    }


def test_a_report_that_is_there_is_replaced_only_when_asked(tmp_path, monkeypatch, capsys):
    """A quick look has the same folder as the hour before it."""
    asked = []
    monkeypatch.setitem(
        EXPERIMENTS,
        "p3-mnist",
        lambda folder, **options: asked.append(options["scale"]) or folder / "report.html",
    )
    (tmp_path / "report.html").write_text("an hour's work")
    words = ["reproduce", "p3-mnist", "--out", tmp_path]
    message = error_of(monkeypatch, capsys, *words, "--scale", "0.5")
    assert message == f"error: {tmp_path} holds a report: --overwrite replaces it"
    assert asked == []
    call(*words, "--overwrite")
    assert asked == ["small"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("uniform", "uniform"),
    ],
)
def test_words_become_numbers_and_truth_values(text, value):
    assert options.word(text) == value
    assert type(options.word(text)) is type(value)


def test_a_run_is_not_overwritten_unasked(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    assert call("run", "ldp-online", *TINY, "--out", out).exit_code == 0
    kept = (out / "config.toml").read_bytes()
    message = error_of(monkeypatch, capsys, "run", "ldp-online", *TINY, "--out", out)
    assert message == f"error: {out} holds a run: --resume continues it, --overwrite replaces it"
    message = error_of(
        monkeypatch, capsys, "run", "ldp-online", *TINY, "--seeds", "0", "--out", out, "--overwrite"
    )
    assert "seeds must be at least 1" in message
    assert (out / "config.toml").read_bytes() == kept, (
        "a command that fails must leave the run as it was"
    )
    assert call("run", "ldp-online", *TINY, "--out", out, "--overwrite").exit_code == 0


def test_words_that_are_no_numbers_are_refused_in_one_line(monkeypatch, capsys):
    message = error_of(monkeypatch, capsys, "fit", "s.toml", "a.csv", "--epsilon", "two")
    assert message.startswith("error: --epsilon must be a number, got 'two' (")
    message = error_of(monkeypatch, capsys, "run", "--steps=x")
    assert message.startswith("error: --steps must be a whole number, got 'x' (")
    message = error_of(monkeypatch, capsys, "predict", "model")
    assert message.startswith("error: TABLE must be given (")
    assert "No such option: --nosuch" in error_of(monkeypatch, capsys, "run", "--nosuch")


def test_a_cache_that_cannot_be_written_is_one_line(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(sys, "argv", ["hearsay", "algorithms"])
    kept = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    _files.warn_once.cache_clear()

    def twice(**words):
        simulation.enable_compilation_cache()
        simulation.enable_compilation_cache()
        assert jax.config.jax_compilation_cache_dir is None

    try:
        monkeypatch.setattr(commands, "app", twice)
        with pytest.raises(SystemExit):
            commands.main()
    finally:
        jax.config.update("jax_compilation_cache_dir", kept)
    said = plain(capsys.readouterr().err)
    assert said.count("cannot be written: compiled programs are not kept") == 1
    assert "Warning" not in said and "HEARSAY_CACHE names another folder" in said


def test_help_lists_every_command_by_what_it_is_for():
    shown = call("--help").output
    for panel in ("First", "Tables of your own", "Agents on machines of their own"):
        assert f"─ {panel} ─" in shown
    assert "─ Commands ─" not in shown, "a command without a panel"
    for each in (*commands.app.registered_commands, *network.registered_commands):
        assert each.help and not re.search(r"[^\n]\n[^\n]", each.help)


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_seed_has_no_spread(seeds, tmp_path):
    words = ["run", "dsgd", "--steps", "3", "--epsilon", "5", "--seeds", f"{seeds}"]
    shown = plain(call(*words, "--out", tmp_path / "run").output)
    table = shown.partition("After the last step")[2].partition("time")[2].partition("released")[0]
    assert ("±" in table) == (seeds > 1) and ("standard deviation" in shown) == (seeds > 1)


def guesser(guessing, accuracy, algorithm=None):
    return SimpleNamespace(
        algorithm=algorithm or hs.dsgd(),
        problem=SimpleNamespace(agents=3, schema=None),
        beside=None,
        tested=guessing is not None,
        guessing=guessing,
        metrics=("accuracy", "released_accuracy"),
        final=lambda metric: (accuracy if metric == "released_accuracy" else 0.9, 0.0),
    )


def test_only_a_model_that_only_guesses_is_called_so(capsys):
    for guessing, accuracy, called in ((0.5, 0.505, True), (0.5, 0.52, False), (None, 0.1, False)):
        screen.hint({"dsgd": guesser(guessing, accuracy)})
        assert ("no better than always naming" in plain(capsys.readouterr().err)) == called
    # Of several it is said which.
    screen.hint({"a": guesser(0.5, 0.5), "b": guesser(0.5, 0.9), "c": guesser(0.5, 0.4)})
    said = plain(capsys.readouterr().err)
    assert "the models of a, c are no better than always naming the commoner label (50%)" in said


def test_only_what_is_not_done_yet_is_advised(capsys):
    plainly = hs.dsgd(mechanism="laplace")
    screen.hint({"dsgd": guesser(0.5, 0.5, plainly)})
    said = plain(capsys.readouterr().err)
    assert all(word in said for word in ("--colluders", "--mechanism gaussian", "by rehearsal"))
    shared = hs.gradient_perturbation(mechanism="gaussian", secrets=hs.Secrets(1))
    screen.hint({"fit": guesser(0.5, 0.5, shared)}, rehearsed=True)
    said = plain(capsys.readouterr().err)
    assert "What helps: a larger epsilon and more records or agents; hearsay demo" in said
    table = {"x": [0.1, 0.9], "y": ["a", "b"]}
    schema = hs.Schema({"x": hs.Number(0, 1), "y": hs.Category(["a", "b"])}, "y")
    for model, linear in (("mlp", True), (None, False)):
        run = guesser(0.5, 0.5, shared)
        run.problem = hs.problems.tabular([table, table], schema, model=model)
        screen.hint({"fit": run}, rehearsed=True)
        said = plain(capsys.readouterr().err)
        assert ("a linear model (leave --model out)" in said) == linear


def test_a_comparison_says_whose_models_only_guess(tmp_path):
    result = call("compare", "ldp-online", "dsgd", *TINY, "--epsilon", "0.001", "--out", tmp_path)
    assert "the models of ldp-online, dsgd are no better than always" in plain(result.output)


@pytest.mark.slow
def test_a_run_that_only_guesses_is_called_so(tmp_path):
    result = call(
        "run", "ldp-online", "--steps", "5", "--epsilon", "0.001", "--out", tmp_path / "run"
    )
    assert "no better than always naming the commoner label" in plain(result.output)


@pytest.mark.parametrize(
    "name", [pytest.param("adp2sgd", marks=pytest.mark.slow), "correlated-federated"]
)
def test_gaussian_methods_run_without_a_delta(name, tmp_path):
    """A first run works: delta has a default that is printed, and planned noise covers the run."""
    out = tmp_path / "run"
    extra = ["--sample-size", "2"] if name == "correlated-federated" else []
    result = call("run", name, *PROBLEM, "--steps", "3", "--seeds", "1", "--out", str(out), *extra)
    assert result.exit_code == 0, result.output
    assert "delta = 1e-05, because none was given" in result.output
    assert "delta = 1e-05" in (out / "certificate.txt").read_text()


SECRET = ["--loss", "ridge", "--agents", "5", "--set", "problem.records=20", "--clip", "0.5"]
SECRET += ["--set", "problem.dimension=2", "--mechanism", "gaussian", "--delta", "1e-5"]


def stated(text: str) -> hs.Certificate:
    return hs.Certificate.from_json(text)


def test_certify_states_other_numbers_of_colluders_of_the_same_noise(tmp_path):
    words = ["certify", "gradient-perturbation", *SECRET, "--horizon", "5", "--noise", "1"]
    shown = call(*words, "--colluders", "1", "--no-theory").output
    assert "all others collude" in shown and "worst coalitions: closed form" in shown
    assert "planned for 1 colluder (usual graph, planned ratio)" in plain(shown)
    planned = stated(call(*words, "--colluders", "1", "--json", "--out", tmp_path).output)
    assert planned.colluders == 1 and planned.secrets == hs.Secrets(1).shared(5)
    assert "if all others collude" in call("verify", tmp_path / "certificate.json").output
    file = tmp_path / "some.toml"
    file.write_text("[secrets]\ncolluders = 1\n")
    of_file = [*words, "--config", file, "--json"]
    assert stated(call(*of_file).output) == planned
    # Of the noise of the file, not of noise that is planned anew.
    other = stated(call(*of_file, "--colluders", "3").output)
    assert other.colluders == 3 and other.secrets == planned.secrets
    assert other.epsilon == planned.at(3) and other.all_collude == planned.all_collude
    louder = stated(call(*words, "--colluders", "1", "--ratio", "4", "--json").output)
    assert louder.secrets == hs.Secrets(1, 4.0).shared(5)
    assert louder.epsilon < planned.epsilon and louder.all_collude == planned.all_collude
    target = [*words[:-2], "--epsilon", "1", "--colluders", "2", "--json"]
    met = stated(call(*target).output)
    assert max(met.epsilon) == pytest.approx(1.0, rel=1e-6) and max(met.all_collude) > 1.5


def test_a_plan_with_secrets_says_what_all_others_colluding_costs(tmp_path):
    file = tmp_path / "plan.toml"
    words = ["plan", "gradient-perturbation", *SECRET, "--horizon", "6", "--epsilon", "1"]
    shown = plain(call(*words, "--colluders", "2", "--out", file).output)
    assert re.search(r"if 2 collude, \d\.\d+ if all others collude", re.sub(r"\s+", " ", shown))
    kept = config.load(file)
    assert kept.secrets["colluders"] == 2 and kept.secrets["ratio"] > 0
    assert kept.run["steps"] == 6 and "epsilon" not in kept.privacy


def test_a_run_with_secrets_keeps_them_and_shows_the_curve(tmp_path):
    words = ["run", "gradient-perturbation", *SECRET, "--steps", "6", "--seeds", "1"]
    out = tmp_path / "run"
    shown = plain(call(*words, "--epsilon", "1", "--colluders", "2", "--out", out).output)
    assert "all others collude" in shown
    assert config.load(out / "config.toml").secrets == {"colluders": 2}
    certificate = stated((out / "certificate.json").read_text())
    assert max(certificate.epsilon) == pytest.approx(1.0, rel=1e-6)
    page = (out / "private-report.html").read_text()
    assert "If others collude" in page and "all others collude" in page
    assert "planned for 2 colluders" in page
    call("verify", out / "certificate.json", out / "released" / "certificate.json")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--colluders", "4"], "colluders must be below 4: if all other agents collude"),
        (["--ratio", "2"], "colluders in [secrets] must be given"),
        (["--colluders", "1", "--ratio", "-1"], "ratio must be positive"),
        (["--colluders", "1", "--mechanism", "laplace"], "left out with laplace noise: only sums"),
        (["--colluders", "1", "--set", "secrets.graph=ring"], "graph must be one of complete"),
        (["--colluders", "1", "--set", "secrets.size=3"], "key in [secrets] must be one of"),
    ],
)
def test_secrets_that_cannot_be_are_refused_in_one_line(words, message, monkeypatch, capsys):
    nothing_may_run(monkeypatch)
    given = ["run", "gradient-perturbation", *SECRET, "--noise", "1", *words]
    assert message in error_of(monkeypatch, capsys, *given)


def test_frontier_does_not_ignore_secrets_of_a_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "some.toml"
    file.write_text("[secrets]\ncolluders = 1\n")
    words = ["frontier", "breast-cancer", "--config", file, "--out", tmp_path / "out"]
    assert "[secrets] must be left out for hearsay frontier" in error_of(
        monkeypatch, capsys, *words
    )
