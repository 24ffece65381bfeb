"""Virtual devices and real processes: a run on eight devices, and on two processes of four devices
each, is the run on one; its checkpoints go from one layout to another; and processes that are about
to run different things refuse.

Every process here has JAX's virtual CPU devices, so they are processes of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
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


def free_port(lowest: int = 0) -> int:
    """One that nobody listens on, from there on; 0: any."""
    for port in range(lowest, 2**16):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("localhost", port))
            return free.getsockname()[1]
    raise AssertionError("all ports are taken")


def two(*commands: tuple[object, ...], devices: int) -> list[tuple[int, str, str]]:
    """Two processes that find each other; both run the same command unless there are two."""
    common = {
        "JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}",
        "JAX_NUM_PROCESSES": "2",
    }
    pair = commands * 2 if len(commands) == 1 else commands
    return ended(
        *(
            started(*command, devices=devices, **common, JAX_PROCESS_ID=str(number))
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
    """Two processes of four devices, one device, eight, and two processes again."""
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
    out = tmp_path / "run"
    first, second = two((*COMMAND, "--steps", 4, "--out", out, "--json"), devices=1)
    assert first[0] == second[0] == 0, first[2] + second[2]
    assert json.loads(first[1])["steps"] == 4 and second[1] == ""
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


@pytest.mark.slow
def test_processes_that_slurm_starts_find_each_other(tmp_path):
    """With the variables of srun, on one machine: jax takes the port from the job's number."""
    lowest = 2**16 - 2**12
    common = {
        "SLURM_JOB_ID": str(free_port(lowest) - lowest),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
    }
    tasks = (
        started(
            *script(tmp_path, 4, "P1"),
            devices=2,
            **common,
            SLURM_PROCID=str(number),
            SLURM_LOCALID=str(number),
        )
        for number in range(2)
    )
    assert_all_well(ended(*tasks))
    assert_same(tmp_path, "P1", 4, processes=2)


@pytest.mark.slow
def test_the_example_of_the_page_runs(tmp_path):
    page = (ROOT / "docs" / "many-machines.md").read_text(encoding="utf-8")
    [block] = [b for b in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "PROCESS_ID=1" in b]
    command = f"{sys.executable} -m hearsay.cli run"
    block = block.replace("hearsay run", command).replace("9400", str(free_port()))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        ["bash", "-ec", block], cwd=tmp_path, env=environment, capture_output=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr.decode()
    # The certificate is printed once, by the first.
    assert done.stdout.decode().count("Privacy certificate") == 1
    assert (tmp_path / "two" / "certificate.json").exists()


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
