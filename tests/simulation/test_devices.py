"""Virtual devices and real processes: a run on eight devices, and on two processes of four devices
each, is the run on one; its checkpoints go from one layout to another; and processes that are about
to run different things refuse.

Every process here has JAX's virtual CPU devices, so they are processes of their own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.simulation.on_devices import CASES, numbers, simulated

ROOT = Path(__file__).resolve().parents[2]
# Beyond it something hangs.
LIMIT = 900


def started(*args: object, devices: int, **environment: str) -> subprocess.Popen:
    """A process of this Python with so many virtual devices."""
    return subprocess.Popen(
        [sys.executable, *map(str, args)],
        cwd=ROOT,
        env={
            **os.environ,
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(ROOT),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(*processes: subprocess.Popen) -> list[tuple[int, str, str]]:
    """(exit code, output, errors) of each, once all have come to their end."""
    try:
        said = [process.communicate(timeout=LIMIT) for process in processes]
        return [(p.returncode, *text) for p, text in zip(processes, said, strict=True)]
    finally:
        for process in processes:
            process.kill()


def two(*commands: tuple[object, ...], devices: int) -> list[tuple[int, str, str]]:
    """Two processes that find each other; both run the same command unless there are two."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    pair = commands * 2 if len(commands) == 1 else commands
    return ended(
        *(
            started(
                *command,
                devices=devices,
                JAX_COORDINATOR_ADDRESS=address,
                JAX_NUM_PROCESSES="2",
                JAX_PROCESS_ID=str(number),
            )
            for number, command in enumerate(pair)
        )
    )


def script(folder: Path, steps: int, *cases: str) -> tuple[object, ...]:
    return ("-m", "tests.simulation.on_devices", folder, steps, *cases)


def assert_all_well(found: list[tuple[int, str, str]]) -> None:
    for code, _, errors in found:
        assert code == 0, errors


def assert_same(folder: Path, case: str, steps: int, processes: int = 1) -> None:
    """What every process has found is what one device finds without a break, here and now."""
    # Batches of a network are computed in float32.
    close = {"rtol": 1e-5, "atol": 1e-6} if case == "network" else {"rtol": 1e-9, "atol": 1e-10}
    wanted = numbers(simulated(case, steps))
    for process in range(processes):
        with np.load(folder / f"{case}-{process}.npz") as found:
            assert set(found) == set(wanted)
            for name, value in wanted.items():
                np.testing.assert_allclose(found[name], value, err_msg=f"{case} {name}", **close)


def test_eight_devices_equal_one(tmp_path):
    assert_all_well(ended(started(*script(tmp_path, 4, "P1"), devices=8)))
    assert_same(tmp_path, "P1", 4)


@pytest.mark.slow
def test_every_case_on_eight_devices_equals_one(tmp_path):
    assert_all_well(ended(started(*script(tmp_path, 4, *CASES), devices=8)))
    for case in CASES:
        assert_same(tmp_path, case, 4)


@pytest.mark.slow
def test_two_processes_equal_one_and_any_layout_continues_a_run(tmp_path):
    """Two processes of four devices, then one device, then eight, then two processes again."""
    cases = ("P1", "P2", "P3", "P4", "secrets")
    assert_all_well(two(script(tmp_path, 4, *cases), devices=4))
    for case in cases:
        assert_same(tmp_path, case, 4, processes=2)
    assert_all_well(ended(started(*script(tmp_path, 6, *cases), devices=1)))
    assert_all_well(ended(started(*script(tmp_path, 8, *cases), devices=8)))
    assert_all_well(two(script(tmp_path, 10, *cases), devices=4))
    for case in cases:
        assert_same(tmp_path, case, 10, processes=2)


COMMAND = (
    *("-m", "hearsay.cli", "run", "ldp-online", "--data", "linear", "--loss", "ridge"),
    *("--agents", "4", "--noise", "1", "--devices", "all", "--set", "run.every=2"),
)


@pytest.mark.slow
def test_the_command_runs_in_two_processes_and_the_first_one_speaks(tmp_path):
    from hearsay.cli.json_output import library

    out = tmp_path / "run"
    first, second = two((*COMMAND, "--steps", 4, "--out", out, "--json"), devices=1)
    assert first[0] == second[0] == 0, first[2] + second[2]
    assert library.loads(first[1])["steps"] == 4 and second[1] == ""
    assert (out / "private-report.html").exists() and not (out / ".lock").exists()
    resumed = two(
        ("-m", "hearsay.cli", "run", "--resume", "--devices", "all", "--out", out), devices=1
    )
    assert_all_well(resumed)


@pytest.mark.slow
def test_processes_that_differ_refuse_and_leave_nothing(tmp_path):
    commands = [(*COMMAND, "--steps", steps, "--out", tmp_path / "run") for steps in (4, 6)]
    for code, _, errors in two(*commands, devices=1):
        assert code == 2
        assert "all processes must run the same configuration" in errors
        assert "process 1 of 2 differ" in errors
    assert not (tmp_path / "run" / "private-checkpoint.npz").exists()


@pytest.mark.slow
def test_what_stops_one_process_stops_all(tmp_path):
    """A folder that cannot be had, and data that one process does not find."""
    (tmp_path / "file").write_text("no folder")
    first, second = two((*COMMAND, "--steps", 4, "--out", tmp_path / "file"), devices=1)
    assert first[0] == second[0] == 2
    assert "file is not a folder" in first[2] and "process 0 could not go on" in second[2]
    fine = (*COMMAND, "--steps", 4, "--out", tmp_path / "run")
    broken = (*fine, "--budget", "0.000001", "--set", "graph.kind=none")
    first, second = two(fine, broken, devices=1)
    assert first[0] == second[0] == 2
    assert "process 1 could not go on" in first[2]


@pytest.mark.parametrize(
    "environment, message",
    [
        ({}, "JAX_NUM_PROCESSES and JAX_PROCESS_ID must be set where JAX_COORDINATOR_ADDRESS is"),
        ({"JAX_NUM_PROCESSES": "x", "JAX_PROCESS_ID": "0"}, "JAX_NUM_PROCESSES must be"),
        ({"PMI_SIZE": "2", "PMI_RANK": "2"}, "PMI_RANK must be below PMI_SIZE = 2, got 2"),
    ],
)
def test_an_environment_that_does_not_say_who_we_are_is_refused(environment, message, monkeypatch):
    from hearsay.simulation.processes import join

    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "localhost:1")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises((ValueError, TypeError), match=message):
        join()
