"""docs/five-hospitals.md: its commands run one after the other, from raw files to predictions, with
the same epsilon simulated and deployed.
"""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hearsay as hs
from tests.deploy.networks import free_ports
from tests.test_examples import blocks, lines

pytest.importorskip("zenoh")
PAGE = "docs/five-hospitals.md"
FILES = Path(__file__).resolve().parents[2] / "examples" / "hospitals"
HOSPITALS = ("north", "south", "east", "west", "central")
SECONDS = 500  # for one command, at most


def commands() -> list[list[str]]:
    return [words for block in blocks(PAGE) if block.kind == "sh" for words in lines(block)]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_files_are_what_the_page_says():
    schema = hs.Schema.load(FILES / "schema.toml")
    assert schema.classes == ("benign", "malignant") and len(schema.inputs) == 30
    held = {name: schema.encode(FILES / f"{name}.csv").counted.rows for name in HOSPITALS}
    assert set(held.values()) == {91}
    assert len(rows(FILES / "held-out.csv")) == 100 and len(rows(FILES / "new-patients.csv")) == 14
    everybody = [r["patient"] for f in FILES.glob("*.csv") for r in rows(f)]
    assert len(set(everybody)) == len(everybody) == 569


@pytest.mark.slow
def test_from_raw_files_to_predictions_simulated_and_deployed(tmp_path):
    home = shutil.copytree(FILES, tmp_path / "hospitals")
    said = {}
    for words in commands():
        assert words[0] == "hearsay"
        if words[1:3] == ["network", "init"]:
            words = [*words, "--port", str(free_ports(5)[0])]
        ended = subprocess.run(
            [sys.executable, "-m", "hearsay.cli", *words[1:]],
            cwd=home,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert ended.returncode == 0, f"{shlex.join(words)}\n{ended.stdout}\n{ended.stderr}"
        said[shlex.join(words[1:4])] = ended.stdout + ended.stderr
    with pytest.raises(ValueError, match="must be filled in"):
        hs.Schema.load(home / "draft.toml")
    simulated, deployed = hs.load_model(home / "trial/released"), hs.load_model(home / "published")
    for model in (simulated, deployed):
        assert max(model.certificate.epsilon) <= 2.0 and min(model.certificate.epsilon) > 1.999
        assert model.schema == hs.Schema.load(home / "schema.toml")
    assert "alone" in said["fit schema.toml north.csv"]
    for name in ("guesses.csv", "predictions.csv"):
        found = rows(home / name)
        assert [r["patient"] for r in found] == [
            r["patient"] for r in rows(home / "new-patients.csv")
        ]
        assert {r["predicted_diagnosis"] for r in found} <= {"benign", "malignant"}
    # Guessing is right for 66 of the 100; 80 is more than six deviations below what was measured
    # over seeds (0.93, the deviation of noise and of held-out patients being 0.02 together).
    for model in (simulated, deployed):
        truth = [r["diagnosis"] for r in rows(home / "held-out.csv")]
        right = (model.predict(home / "held-out.csv") == truth).mean()
        assert right >= 0.8
    config = tomllib.loads((home / "wards/net.toml").read_text(encoding="utf-8"))
    assert [config["agents"][name]["records"] for name in HOSPITALS] == [91] * 5
    # What may be published says nothing of anybody's rows.
    public = b"".join(p.read_bytes() for p in (home / "published").iterdir())
    assert b"private" not in public and b"3 gaps" not in public
    assert json.loads((home / "published/certificate.json").read_text())
