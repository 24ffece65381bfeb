"""`hearsay verify`: a certificate is checked from its file alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hearsay as hs
from hearsay.cli import commands

PROBLEM = hs.problems.ridge(agents=3, records=30, dimension=2, radius=3.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    certificate = hs.certify(hs.ldp_online(noise=50.0), PROBLEM, hs.graphs.ring(3), 12)
    found = tmp_path / "certificate.json"
    found.write_text(certificate.to_json(), encoding="utf-8")
    return found


def run(*files: Path):
    return CliRunner().invoke(commands.app, ["verify", *map(str, files)])


def test_a_certificate_that_holds(path: Path):
    result = run(path)
    assert result.exit_code == 0
    assert "all 3 numbers follow from the descriptions in this file" in result.output
    assert "that the run was as described is its issuer's word" in result.output
    assert "paper_epsilon is the paper's own formula and no guarantee" in result.output


def test_every_wrong_number_is_listed(path: Path):
    body = json.loads(path.read_text())
    del body["digest"]
    for budget in body["budgets"][1:]:
        budget["epsilon"] *= 0.999
    path.write_text(json.dumps(body))
    result = run(path)
    assert result.exit_code == 2
    assert result.output.count("WRONG") == 2 and "proved" not in result.output
    for agent in (1, 2):
        assert f"agent {agent}: epsilon must be at least" in result.output


def test_one_bad_file_among_several(path: Path):
    whole = path.read_text()
    cut, binary = path.with_name("cut.json"), path.with_name("binary.json")
    cut.write_text(whole[: len(whole) // 2])
    binary.write_bytes(b"\xff\xfe\x00")
    result = run(path, cut, binary)
    assert result.exit_code == 2
    assert result.output.count("proved") == 1 and result.output.count("WRONG") == 2
    assert str(cut) in result.output and "must be text" in result.output
    assert run(path.with_name("nobody.json")).exit_code == 2


def test_old_certificates_say_that_they_cannot_be_recomputed(path: Path):
    body = json.loads(path.read_text())
    del body["digest"], body["descriptions"]
    for budget in body["budgets"]:
        del budget["description"]
    path.write_text(json.dumps(body))
    result = run(path)
    assert result.exit_code == 2 and "cannot be recomputed" in result.output
