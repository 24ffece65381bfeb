"""hearsay network init --schema: what it writes, and what it leaves when it cannot."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hearsay as hs
from hearsay.deploy.own_tables import initialise_tables
from tests.deploy.networks import free_ports

pytest.importorskip("zenoh")
SCHEMA = hs.Schema({"age": hs.Number(0, 120), "ill": hs.Category(["no", "yes"])}, target="ill")
SECONDS = 300


def tables(folder: Path, rows: int = 30) -> list[Path]:
    found = []
    for name in ("north", "south", "east"):
        path = folder / f"{name}.csv"
        lines = [f"{20 + (7 * i) % 70},{'yes' if (7 * i) % 70 > 35 else 'no'}" for i in range(rows)]
        path.write_text("\n".join(["age,ill", *lines]))
        found.append(path)
    SCHEMA.save(folder / "schema.toml")
    return found


def test_a_network_of_own_tables(tmp_path):
    found, said = tables(tmp_path), []
    config = initialise_tables(
        tmp_path / "net",
        tmp_path / "schema.toml",
        found,
        epsilon=2.0,
        colluders=1,
        secure=False,
        notify=said.append,
    )
    read = tomllib.loads(config.read_text(encoding="utf-8"))
    assert list(read["agents"]) == ["north", "south", "east"]
    assert {one["records"] for one in read["agents"].values()} == {30}
    assert read["privacy"]["epsilon"] == 2.0 and read["secrets"]["colluders"] == 1
    assert read["algorithm"]["name"] and read["run"]["steps"] >= 1
    assert any(line.startswith("rehearsed: ") for line in said)
    with pytest.raises(ValueError, match="is there already"):
        initialise_tables(tmp_path / "net", tmp_path / "schema.toml", found, epsilon=2.0)


def test_owners_hear_of_a_range_that_is_far_too_wide_before_anything_is_sent(tmp_path):
    found, said = tables(tmp_path), []
    columns = {"age": hs.Number(0, 10_000), "ill": SCHEMA.columns["ill"]}
    hs.Schema(columns, SCHEMA.target).save(tmp_path / "schema.toml")
    given = {"epsilon": 2.0, "secure": False, "notify": said.append}
    config = initialise_tables(tmp_path / "net", tmp_path / "schema.toml", found, **given)
    assert sum("age: nine tenths in a tenth of 0..10000" in line for line in said) == 3
    assert sum('scale = "log"' in line for line in said) == 1, "once for all of them"
    assert "nine tenths" not in config.read_text(encoding="utf-8")


def test_what_cannot_be_planned_leaves_nothing_in_the_way(tmp_path):
    found = tables(tmp_path)
    with pytest.raises(ValueError, match="colluders"):
        initialise_tables(
            tmp_path / "net",
            tmp_path / "schema.toml",
            found[:2],
            epsilon=2.0,
            colluders=1,
            secure=False,
        )
    assert not list((tmp_path / "net").iterdir())


def test_many_levels_are_warned_of(tmp_path):
    found, said = tables(tmp_path), []
    many = hs.Category([f"person {i}" for i in range(300)], gap="other")
    hs.Schema({**SCHEMA.columns, "name": many}, "ill").save(tmp_path / "schema.toml")
    with pytest.raises(ValueError, match="name"):
        initialise_tables(
            tmp_path / "net", tmp_path / "schema.toml", found, epsilon=2.0, notify=said.append
        )
    assert any("300" in line for line in said)


@pytest.mark.slow
def test_an_agent_that_refuses_its_file_ends_the_network_in_words(tmp_path):
    found = tables(tmp_path)
    config = initialise_tables(
        tmp_path / "net",
        tmp_path / "schema.toml",
        found,
        epsilon=2.0,
        port=free_ports(3)[0],
        secure=False,
    )
    found[0].write_text("age,ill\n31,no\n")
    ended = subprocess.run(
        [sys.executable, "-m", "hearsay.cli", "network", "up", "--config", config, "--insecure"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == 5
    assert "must hold the 30 records that net.toml says" in ended.stderr
