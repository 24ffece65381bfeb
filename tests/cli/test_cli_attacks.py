"""Neural networks, audits and attacks from the command line, with tiny arguments."""

from __future__ import annotations

import csv
import json

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from hearsay.audit.residuals import Residuals
from hearsay.cli import commands

SMALL = [
    "--data",
    "digits",
    "--model",
    "mlp",
    "--agents",
    "3",
    "--set",
    "problem.records=60",
    "--set",
    "problem.test_records=20",
]
SCALAR = [
    "--loss",
    "ridge",
    "--agents",
    "3",
    "--set",
    "problem.records=6",
    "--set",
    "problem.dimension=1",
    "--clip",
    "1",
]


def call(*words: str):
    return CliRunner().invoke(commands.app, [str(w) for w in words])


@pytest.mark.slow
def test_a_network_trains_and_states_device_memory_and_time(tmp_path):
    result = call(
        "run", "dsgd", *SMALL, "--noise", "0.1", "--steps", "5", "--seeds", "1", "--out", tmp_path
    )
    assert result.exit_code == 0, result.output
    for text in (
        "cpu device",
        "MiB in all with the gradients of",
        "expected time:",
        "clip bound 1",
        "accuracy",
    ):
        assert text in result.output
    page = (tmp_path / "private-report.html").read_text(encoding="utf-8")
    assert "training accuracy" in page and "no known Lipschitz constant" in page
    with open(tmp_path / "private-metrics.csv", encoding="utf-8") as file:
        assert {"accuracy", "train_accuracy", "test_loss"} <= set(next(csv.reader(file)))


def test_a_network_without_a_clip_needs_to_be_asked_for():
    result = call("run", "dsgd", *SMALL, "--clip", "none", "--noise", "0.1", "--steps", "3")
    assert isinstance(result.exception, ValueError) and "give the problem a clip" in str(
        result.exception
    )


def test_mnist_means_a_network(monkeypatch):
    from hearsay.config import Config, build

    wanted = Config(problem={"data": "mnist", "model": "resnet-18"})
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        build(wanted)


def test_a_gpu_that_is_not_there_is_refused():
    result = call("run", "dsgd", *SMALL, "--device", "gpu", "--noise", "0.1")
    assert isinstance(result.exception, ValueError) and "device must be one that jax finds" in str(
        result.exception
    )


AUDIT = [
    "audit",
    "gradient-perturbation",
    *SCALAR,
    "--sample-size",
    "3",
    "--epsilon",
    "1.01",
    "--steps",
    "2",
    "--runs",
    "4000",
    "--agent",
    "0",
]


def test_an_audit_says_what_it_tested_and_what_that_means(tmp_path):
    result = call(*AUDIT, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    for text in (
        "holds",
        "passes",
        "residuals",
        "what the certificate allows",
        "could have shown",
        "never prove it",
    ):
        assert text in result.output
    with open(tmp_path / "private-audit.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert 0.3 < float(rows[0]["lower_bound"]) <= 1.01


@pytest.mark.slow
def test_an_audit_that_finds_too_much_ends_with_code_4(tmp_path, monkeypatch):
    """Noise of a third of the scale that the certificate speaks of: every part sees it."""
    from hearsay.mechanisms import MECHANISMS

    law = type(MECHANISMS["laplace"])
    right = law.add
    monkeypatch.setattr(
        law, "add", lambda self, value, draw, scale: right(self, value, draw, scale / 3)
    )
    jax.clear_caches()  # compiled with the right noise
    result = call(*AUDIT, "--out", tmp_path)
    jax.clear_caches()
    assert result.exit_code == 4, result.output
    said = " ".join(result.output.split())
    assert "EXCEEDED" in said and "The noise is NOT what" in said and "scale 33" in said
    data = json.loads((tmp_path / "private-audit.json").read_text(encoding="utf-8"))
    assert (
        len(data["failed"]) == 3 and not data["noise"]["holds"] and not data["search"][0]["holds"]
    )


def test_an_interrupted_audit_keeps_what_is_done(tmp_path, monkeypatch):
    """Ctrl-C while the second agent is told apart."""
    from hearsay.audit import whole

    def interrupted(*args, agent, **options):
        raise KeyboardInterrupt

    noise = Residuals((), 1e-3, "laplace", "laplace", 2, 2, 0, np.empty(0))
    monkeypatch.setattr(whole, "residuals", lambda *args, **options: noise)
    monkeypatch.setattr(whole, "_searched", lambda *args: whole.Searched(args[3], 0.5, 0.5, 0.5, 0))
    monkeypatch.setattr(whole, "distinguish", interrupted)
    result = call(*AUDIT, "--agent", "2", "--out", tmp_path)
    assert result.exit_code == 130, result.output
    assert (
        "this audit is partial" in result.output
        and "--only runs --agent 0 --agent 2" in result.output
    )
    assert "PARTIAL" in (tmp_path / "private-report.html").read_text(encoding="utf-8")
    data = json.loads((tmp_path / "private-audit.json").read_text(encoding="utf-8"))
    assert data["not_finished"] == {"runs": [0, 2]} and len(data["search"]) == 2


@pytest.mark.slow
def test_an_attack_leaves_pictures(tmp_path):
    result = call(
        "attack",
        "dsgd",
        *SMALL,
        "--noise",
        "0.01",
        "--levels",
        "0,2",
        "--targets",
        "1",
        "--restarts",
        "1",
        "--iterations",
        "20",
        "--out",
        tmp_path,
    )
    assert result.exit_code == 0, result.output
    assert "blind guess" in result.output and (tmp_path / "private-reconstructions.csv").exists()
    page = (tmp_path / "private-report.html").read_text(encoding="utf-8")
    assert "<svg" in page and "<image" in page, "a curve, and the images themselves"
