"""Ctrl-C: the first one asks, the second one ends; and what the commands keep."""

from __future__ import annotations

import importlib
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

import hearsay as hs
from hearsay import _interrupts, config
from hearsay._files import held
from hearsay._interrupts import Request, stopping
from hearsay.audit import checking, dlg
from hearsay.cli import commands
from hearsay.experiments import EXPERIMENTS, parts
from hearsay.simulation.regret import Regret

# hearsay.simulate itself is the function.
simulation = importlib.import_module("hearsay.simulation.simulating")
TINY = [
    "--loss",
    "ridge",
    "--agents",
    "3",
    "--set",
    "problem.records=20",
    "--set",
    "problem.dimension=2",
    "--steps",
    "4",
    "--seeds",
    "1",
    "--epsilon",
    "4",
]
PROBLEM = hs.problems.ridge(agents=3, records=20, dimension=2)
GRAPH = hs.graphs.ring(3)


def call(monkeypatch, *words: str):
    monkeypatch.setattr(sys, "argv", ["hearsay", *map(str, words)])
    return CliRunner().invoke(commands.app, [str(w) for w in words])


def stop(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_one_ends(number):
    request, outer = Request(), signal.getsignal(number)
    with stopping(request) as asked:
        assert not asked.requested and not request.wait(0)
        signal.raise_signal(number)
        assert asked.requested and request.is_set() and request.wait(3600)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is outer


# A signal before every line of `wait`, and one while it waits.
WITHIN = """
import os, runpy, signal, sys, threading
found = runpy.run_path(sys.argv[1])

def signalled(at):
    request, lines = found["Request"](), 0
    def trace(frame, what, _):
        nonlocal lines
        lines += 1
        if lines == at:
            signal.raise_signal(signal.SIGTERM)
        return trace
    with found["stopping"](request):
        sys.settrace(trace)
        request.wait(0)
        sys.settrace(None)
    assert request.is_set() == (lines >= at)
    return lines >= at

number = 1
while signalled(number):
    number += 1
request = found["Request"]()
with found["stopping"](request):
    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert request.wait(3600)
print(number > 5)
"""


def test_a_signal_may_come_anywhere_in_a_wait():
    """An Event would hang: its `set` waits for the lock that its `wait`, which was interrupted,
    holds.
    """
    script = [sys.executable, "-c", WITHIN, str(_interrupts.__file__)]
    found = subprocess.run(script, capture_output=True, text=True, timeout=100)
    assert (found.stdout, found.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ["certify"],
        ["plan"],
        ["run"],
        ["attack"],
        ["compare", "dsgd", "dola"],
        ["frontier", "digits"],
        ["demo"],
    ],
    ids=lambda w: w[0],
)
def test_an_interrupted_command_says_how_to_start_it_again(words, tmp_path, monkeypatch):
    monkeypatch.setattr(config, "build", stop)
    monkeypatch.setattr(config, "build_problem", stop)
    options = {
        "certify": [],
        "plan": ["--epsilon", "1", "--out", str(tmp_path / "x" / "plan.toml")],
    }
    given = [*words, *options.get(words[0], ["--out", f"{tmp_path / 'a b'}"])]
    result = call(monkeypatch, *given)
    assert result.exit_code == 130, result.output
    assert "Traceback" not in result.output
    assert (
        f"Interrupted. Nothing is left of it. To start it again: hearsay {words[0]}"
        in result.output
    )
    assert "plan" in words or "certify" in words or f"'{tmp_path / 'a b'}'" in result.output
    assert list(tmp_path.iterdir()) == [], "nor does an empty folder stay behind"


def test_an_interrupted_check_says_that_nothing_was_noted(monkeypatch):
    monkeypatch.setattr(checking, "check_algorithm", stop)
    result = call(monkeypatch, "check-algorithm", "dsgd", "--quick")
    assert result.exit_code == 130
    assert result.output.strip() == (
        "Interrupted. Nothing was noted. To start it again: hearsay check-algorithm dsgd --quick"
    )


# What happens inside the import of a module: an interrupt, as an exception and as a signal.
INTERRUPTED = """
import importlib.abc, runpy, signal, sys

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {where!r}:
            {what}

sys.meta_path.insert(0, Interrupt())
sys.argv[0] = {script!r}
sys.orig_argv = [sys.executable, *{words}]
{start}
raise SystemExit("it went on")
"""
SIGNAL, EXCEPTION = "signal.raise_signal(signal.SIGINT)", "raise KeyboardInterrupt"
SCRIPT = {
    "script": "/usr/bin/hearsay",
    "words": ["/usr/bin/hearsay"],
    "start": "from hearsay.cli import main; main()",
}
MODULE = {
    "script": "-m",
    "words": ["-m", "hearsay.cli"],
    "start": "runpy.run_module('hearsay.cli', run_name='__main__')",
}


@pytest.mark.parametrize("entry", [SCRIPT, MODULE], ids=["script", "module"])
@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("hearsay.graphs", SIGNAL),
        ("jax", SIGNAL),
        ("hearsay.cli.commands", SIGNAL),
        ("hearsay.cli.commands", EXCEPTION),
    ],
)
def test_an_interrupt_during_the_imports_leaves_no_traceback(entry, where, what):
    code = INTERRUPTED.format(where=where, what=what, **entry)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")


def test_a_program_that_imports_the_library_is_interrupted_as_ever():
    code = INTERRUPTED.format(
        where="hearsay.graphs", what=SIGNAL, script="-c", words=["-c"], start="import hearsay"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "KeyboardInterrupt" in found.stderr and found.returncode != 130


def test_an_interrupted_comparison_reports_what_is_done(tmp_path, monkeypatch):
    original = simulation.simulate

    def second_is_cut(algorithm, *rest, **options):
        if algorithm.name == "dola":
            raise KeyboardInterrupt
        return original(algorithm, *rest, **options)

    monkeypatch.setattr(simulation, "simulate", second_is_cut)
    result = call(monkeypatch, "compare", "dsgd", "dola", "pdop", *TINY, "--out", tmp_path)
    assert result.exit_code == 130
    assert (
        "The report has what is done. To start it again: hearsay compare dsgd dola pdop"
        in result.output
    )
    page = (tmp_path / "private-report.html").read_text()
    assert "INTERRUPTED: dola, pdop did not come to the end." in page and "dsgd" in page


def test_an_interrupted_sweep_keeps_its_whole_levels(monkeypatch):
    done = []

    def reconstruct(algorithm, *_, **__):
        done.append(algorithm)
        if len(done) == 4:
            raise KeyboardInterrupt
        return "found"

    monkeypatch.setattr(dlg, "reconstruct", reconstruct)
    sweep = dlg.against_noise(hs.dsgd(), PROBLEM, GRAPH, levels=(0, 1, 2), targets=2)
    assert (sweep.levels, sweep.found, sweep.left) == ((0.0,), (("found", "found"),), (1.0, 2.0))
    done.clear()
    with pytest.raises(KeyboardInterrupt):
        dlg.against_noise(hs.dsgd(), PROBLEM, GRAPH, levels=(0, 1), targets=5)


def experiment(folder, *, data_dir, seeds, scale, progress):
    """Two runs and a page, as the real ones."""
    runs = [
        parts.simulate(hs.dsgd(noise=n), PROBLEM, GRAPH, steps=4, seeds=seeds, reference=False)
        for n in (1, 2)
    ]
    page = folder / "report.html"
    page.write_text(" ".join(repr(float(run.models.sum())) for run in runs))
    return page


def test_reproduce_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "p1-mushrooms", experiment)
    calls, original = [], parts.library_simulate

    def counted(*args, **options):
        calls.append(args[0])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*args, **options)

    monkeypatch.setattr(parts, "library_simulate", counted)
    words = ["reproduce", "p1-mushrooms", "--seeds", "1", "--out", tmp_path / "cut"]
    result = call(monkeypatch, *words)
    assert result.exit_code == 130
    assert (
        "1 runs are kept" in result.output
        and "To start it again: hearsay reproduce p1-mushrooms" in result.output
    )
    assert "INTERRUPTED: this is no report" in (tmp_path / "cut" / parts.PAGE).read_text()
    assert not (tmp_path / "cut" / "report.html").exists()

    result = call(monkeypatch, *words)
    assert result.exit_code == 0, result.output
    assert "1 of 2 runs were there from before" in result.output
    assert len(calls) == 3, "the first run was not repeated"
    assert [p.name for p in (tmp_path / "cut").iterdir()] == ["report.html"]
    call(monkeypatch, *words[:-1], tmp_path / "whole")
    assert (tmp_path / "cut" / "report.html").read_text() == (
        tmp_path / "whole" / "report.html"
    ).read_text()


def test_a_kept_run_is_the_run_itself(tmp_path, monkeypatch):
    algorithm = hs.ldp_online(noise=0.5)
    with pytest.raises(KeyboardInterrupt), parts.keeping(tmp_path):
        first = parts.simulate(algorithm, PROBLEM, GRAPH, steps=4, seeds=2)
        raise KeyboardInterrupt
    with parts.keeping(tmp_path) as kept:
        again = parts.simulate(algorithm, PROBLEM, GRAPH, steps=4, seeds=2)
        assert kept.found == 1
        parts.simulate(algorithm, PROBLEM, GRAPH, steps=5, seeds=2)
        assert kept.found == 1 and len(kept.done) == 2
    assert (
        again.certificate == first.certificate
        and again.seeds == first.seeds
        and again.stopped is None
    )
    assert again.to_csv() == first.to_csv() and again.spent_csv() == first.spent_csv()
    assert (again.models == first.models).all()
    assert list(tmp_path.iterdir()) == []


def test_a_kept_regret_is_the_regret_itself(tmp_path, monkeypatch):
    draws = np.random.default_rng(0).normal(size=(4, 2, 2))
    first = Regret(5, draws, draws[0], draws[1], None)
    monkeypatch.setattr(parts, "library_regret", lambda *_, **__: first)
    asked = (hs.correlated_federated(horizon=2), PROBLEM, GRAPH, 2, 2, first.comparators)
    with pytest.raises(KeyboardInterrupt), parts.keeping(tmp_path):
        assert parts.regret(*asked) is first
        raise KeyboardInterrupt
    monkeypatch.setattr(parts, "library_regret", stop)
    with parts.keeping(tmp_path) as kept:
        again = parts.regret(*asked)
        parts.regret(*asked)
        assert (kept.found, [part.steps for part in kept.done.values()]) == (1, [2])
        with pytest.raises(KeyboardInterrupt):
            parts.regret(*asked[:4], 3, None)
    assert again is not first and again.local_steps == first.local_steps
    for name in ("models", "losses", "accuracy"):
        assert np.array_equal(getattr(again, name), getattr(first, name))


def test_a_kept_attack_is_the_attack_itself(tmp_path, monkeypatch):
    def reconstruct(algorithm, problem, graph, *, agent, seed):
        level = float(algorithm.noise_for(0)(0))
        if level > 1:
            raise KeyboardInterrupt
        guess = dlg.Guess(np.full((1, 2, 2), level), np.array([seed]), 0.1, np.array([0.1, 0.3]))
        truth = np.ones((1, 2, 2))
        return dlg.Reconstruction(agent, 0, seed, truth, np.array([7]), guess, 1 / 3, 0.5, 0.01)

    monkeypatch.setattr(dlg, "reconstruct", reconstruct)
    algorithm = hs.dsgd(noise=1.0)
    with pytest.raises(KeyboardInterrupt), parts.keeping(tmp_path):
        first = parts.attacked(algorithm, PROBLEM, GRAPH, 1.0, targets=2)
        parts.attacked(algorithm, PROBLEM, GRAPH, 2.0, targets=2)
    monkeypatch.setattr(dlg, "reconstruct", stop)
    with parts.keeping(tmp_path) as kept:
        again = parts.attacked(algorithm, PROBLEM, GRAPH, 1.0, targets=2)
        assert kept.found == 1
    for one, other in zip(first, again, strict=True):
        for name in ("agent", "step", "seed", "error", "blind", "seconds"):
            assert getattr(one, name) == getattr(other, name)
        assert (one.truth == other.truth).all() and (one.true_labels == other.true_labels).all()
        assert all(np.array_equal(x, y) for x, y in zip(one.guess, other.guess, strict=True))


@pytest.mark.parametrize(
    "words",
    [
        ["run", *TINY],
        ["compare", "dsgd", "dola", *TINY],
        ["attack"],
        ["audit"],
        ["reproduce", "p1-mushrooms"],
        ["frontier", "digits"],
        ["demo"],
    ],
    ids=lambda w: w[0],
)
def test_two_commands_do_not_share_a_folder(words, tmp_path, monkeypatch):
    for name in ("build", "build_problem"):
        monkeypatch.setattr(config, name, lambda *_: pytest.fail("the second command has begun"))
    monkeypatch.setitem(
        EXPERIMENTS, "p1-mushrooms", lambda *_, **__: pytest.fail("the second command has begun")
    )
    found = []

    def second():
        found.append(CliRunner().invoke(commands.app, [*words, "--out", str(tmp_path)]))

    with held(tmp_path):
        # A folder is held by a thread, or by another process.
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert re.search(
        f"the folder must be free, got {tmp_path}, into which .* is writing",
        str(found[0].exception),
    )


def test_a_library_run_holds_its_folder(tmp_path):
    found = []

    def second():
        with pytest.raises(ValueError, match="the folder must be free"):
            hs.simulate(hs.dsgd(), PROBLEM, GRAPH, steps=2, folder=tmp_path)
        found.append(True)

    with held(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert found
