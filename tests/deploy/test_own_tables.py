"""hearsay network init --schema: what it writes, and what it leaves when it cannot."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hearsay as hs
from hearsay.deploy.deployment import deployment
from hearsay.deploy.own_tables import initialise_tables
from hearsay.deploy.settings import load
from tests.deploy.networks import free_ports, size_of, wait_for

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


def grown(folder: Path) -> Path:
    """A network of tables that have 12 rows, and 30 in the end."""
    for path in (paths := tables(folder)):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:13]))
    return initialise_tables(
        folder / "net", folder / "schema.toml", paths,
        epsilon=2.0, records=30, per_step=2, port=free_ports(3)[0], secure=False,
    )  # fmt: skip


def test_a_network_of_tables_that_grow(tmp_path):
    read = tomllib.loads(grown(tmp_path).read_text(encoding="utf-8"))
    assert read["network"]["follow"] is True
    assert {one["records"] for one in read["agents"].values()} == {30}
    assert read["problem"]["head_start"] == 12 and read["problem"]["per_step"] == 2
    assert read["algorithm"]["step"]["exponent"] == 1.0 and read["run"]["steps"] >= 9
    with pytest.raises(ValueError, match="more than the 12 rows"):
        initialise_tables(
            tmp_path / "more", tmp_path / "schema.toml", tables(tmp_path, 12), epsilon=2, records=12
        )


@pytest.mark.slow
def test_processes_whose_tables_grow_go_on_after_a_kill(tmp_path):
    """Rows come while `network up` runs, south dies and is started again by a second `up`."""
    config = grown(tmp_path)
    (tmp_path / "rest").mkdir()
    more = tables(tmp_path / "rest")
    up = [sys.executable, "-m", "hearsay.cli", "network", "up", "--config", str(config)]
    up.append("--insecure")
    network = load(config)

    def append(rows: range) -> None:
        for path, whole in zip(("north", "south", "east"), more, strict=True):
            lines = whole.read_text().splitlines()
            with (tmp_path / f"{path}.csv").open("a") as file:
                file.write("".join(f"{lines[1 + row]}\n" for row in rows))

    first = subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    append(range(12, 20))
    wait_for(lambda: min(size_of(network, number) for number in range(3)) >= 4)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    subprocess.run(["pkill", "-9", "-f", f"{config} --name"], check=False)
    append(range(20, 30))
    second = subprocess.run(up, capture_output=True, text=True, timeout=SECONDS)
    assert second.returncode == 0, second.stdout + second.stderr
    phases = deployment(network, None).phases.count
    assert [size_of(network, n) for n in range(3)] == [network.config.steps * phases] * 3
    log = network.members[1].ledger.with_name("south.log").read_text()
    assert "goes on from message" in log


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
