"""How `hearsay network up` ends: however often it is asked, all agents end first and it says how to
go on.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import typer
from rich.console import Console

from hearsay._interrupts import counting
from hearsay.cli import network_up
from hearsay.cli.network_watch import WatchedPage
from hearsay.cli.screen import network_table
from hearsay.deploy import launch
from hearsay.deploy.launch import Fleet
from hearsay.deploy.settings import load
from tests.deploy.networks import write

pytest.importorskip("zenoh")
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True);"
    " signal.pause()"
)


def stubborn() -> subprocess.Popen:
    """A process that does not end when it is asked to."""
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


class Few(Fleet):
    """Two processes that do not end by themselves."""

    def start(self) -> None:
        self.processes = {name: stubborn() for name in self.network.names}


@pytest.fixture
def fleet(tmp_path):
    config = write(tmp_path, names=("alice", "bob"))
    found = Few(config, load(config))
    yield found
    for process in found.processes.values():
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def first(request):
    """Not ignored, as it may be where tests run under nohup."""
    outer = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    signal.signal(request.param, outer)


def test_however_often_it_is_interrupted_it_says_how_to_go_on(fleet, monkeypatch, capsys, first):
    """Once while it watches, and then whenever it waits for an agent to end."""

    def statuses(*_, **__):
        signal.raise_signal(first)
        return []

    def sleep(seconds):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("hearsay.deploy.launch.statuses", statuses)
    monkeypatch.setattr("hearsay.deploy.launch.time", SimpleNamespace(sleep=sleep, monotonic=int))
    monkeypatch.setattr(network_up, "time", SimpleNamespace(sleep=lambda _: None))
    before = signal.getsignal(first)
    with pytest.raises(typer.Exit) as ended:
        network_up._run(fleet, {})
    assert ended.value.exit_code == 130
    said = capsys.readouterr()
    assert "stopping all agents" in said.err and "Continue with: hearsay network up" in said.out
    codes = [process.returncode for process in fleet.processes.values()]
    assert codes == [-signal.SIGKILL] * 2, "the second one did not wait for them"
    assert signal.getsignal(first) is before


@pytest.mark.parametrize("seed", [None, 3])
def test_when_all_are_done_it_says_how_to_get_the_model(tmp_path, monkeypatch, capsys, seed):
    config = write(tmp_path, names=("alice", "bob"))
    monkeypatch.setattr(network_up, "_run", lambda *_: {})
    network_up.up(place=config, simulate_noise=seed, insecure=True, json=False)
    said = " ".join(capsys.readouterr().out.split())
    asked = f"hearsay network release {config}"
    assert f"All 2 agents are done. Models, certificates, logs and ledgers: {tmp_path}" in said
    assert said.endswith(asked if seed is None else f"{asked} --rehearsal")


def test_a_page_is_finished_whatever_ends_the_command(fleet, monkeypatch, tmp_path):
    page = WatchedPage(fleet.network, tmp_path / "watch.html", 1.0)

    def seen_once(*_):
        page.saw([])
        raise ValueError("no port")

    monkeypatch.setattr(network_up, "_watched", seen_once)
    with pytest.raises(ValueError, match="no port"):
        network_up._run(fleet, {}, page)
    assert "Nobody watches any more" in page.file.read_text("utf-8")


def test_agents_end_with_the_command_whatever_it_fails_at(fleet, monkeypatch):
    def fail(*_):
        raise ValueError("no port")

    monkeypatch.setattr(network_up, "_watched", fail)
    hours = SimpleNamespace(sleep=lambda _: None, monotonic=iter(range(0, 10**9, 3600)).__next__)
    monkeypatch.setattr("hearsay.deploy.launch.time", hours)
    with pytest.raises(ValueError, match="no port"):
        network_up._run(fleet, {})
    assert all(process.returncode is not None for process in fleet.processes.values())


def test_what_is_ignored_stays_ignored():
    """SIGHUP under nohup: the network goes on when the terminal is closed."""
    outer = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with counting() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.times == 0
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupts.times == 2
    finally:
        signal.signal(signal.SIGHUP, outer)


def test_a_log_that_breaks_off_is_said(fleet, capsys):
    """The disk that is full has no room for the reason either."""
    fleet.failed = {"alice": 5, "bob": 5}
    for name, text in (("alice", "one\nERROR sto"), ("bob", "one\nERROR stopped: full\n")):
        log = network_up._log(fleet.network, name)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text)
    network_up._say_why(fleet)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("breaks off: its disk may be full.") == 1 and "alice.log breaks off" in said


def test_a_log_that_cannot_be_written(fleet, tmp_path):
    (tmp_path / "state-test").write_text("in the way")
    with pytest.raises(OSError, match=r"cannot write it .*: see to the disk: '.*alice\.log'"):
        Fleet(fleet.config, fleet.network).start()


def facts(round: int) -> dict:
    return {
        "unit": "epsilon",
        "done": round == 9,
        "alive": ["bob"],
        "hears": ["bob"],
        "spent": 1.0,
        "private": True,
        "dropped": {},
        "round": round,
        "of": 9,
        "waiting_for": [f"agent{i}" for i in range(50)],
    }


def test_of_many_agents_a_small_screen_has_those_that_deserve_a_look(fleet):
    """A hundred agents, of which one never came, one has gone and one is behind."""
    rows = [(f"agent{i:02d}", facts(7 + i % 2), True) for i in range(100)]
    rows[40] = (rows[40][0], None, False)
    rows[60] = (rows[60][0], facts(8), False)
    rows[80] = (rows[80][0], facts(2), True)
    screen = Console(width=100, record=True, file=io.StringIO())
    screen.print(network_table(fleet.network, rows, lines=10))
    said = screen.export_text()
    assert [row.split()[1] for row in said.splitlines() if row.startswith("│")] == [
        "agent40",
        "agent60",
        "agent80",
    ]
    assert "and 97 more, in rounds 7 to 8" in said and len(said.splitlines()) <= 10
    assert "agent1, ... and 48 more" in " ".join(said.split())
    gone = [(name, None, False) for name, *_ in rows]
    screen.print(network_table(fleet.network, gone, lines=10))
    assert "and 97 more, of which some are not reached either" in screen.export_text()
    screen.print(network_table(fleet.network, rows))
    assert screen.export_text().count("agent99") == 1


def test_more_agents_than_the_memory_has_room_for_are_warned_of(tmp_path, monkeypatch):
    free = tmp_path / "meminfo"
    free.write_text("MemTotal: 99999999 kB\nMemAvailable: 1048576 kB\nSwapFree: 1048576 kB\n")
    monkeypatch.setattr(launch, "_FREE", free)
    assert launch.crowded(10) == ""
    assert "100 agents take up to 19.5 GiB of memory, and 2.0 GiB are free" in launch.crowded(100)
    monkeypatch.setattr(launch, "_FREE", tmp_path / "none")
    assert launch.crowded(10**6) == "", "another system has other ways"
