"""How `hearsay network up` ends: however often it is asked, all agents end first and it says how to
go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import typer

from hearsay._interrupts import counting
from hearsay.cli import network_up
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
