"""Small networks for tests: net.toml files on free ports of this machine, agents as threads or as real processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hearsay.config import _toml
from hearsay.deploy.agent import Agent
from hearsay.deploy.settings import Network, load
from tests.deploy import worker

NAMES = ("alice", "bob", "carol", "dave", "erin")


_ports = itertools.count(0)


def free_ports(count: int) -> list[int]:
    """Below the range from which the system gives out ports to connections, and another part of it for every test process."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    found: list[int] = []
    while len(found) < count:
        port = 15000 + 3000 * (worker % 5) + (os.getpid() * 37 + next(_ports)) % 3000
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
                found.append(port)
            except OSError:
                continue
    return found


def write(
    folder: Path,
    *,
    run: str = "test",
    names: Sequence[str] = NAMES,
    network: Mapping[str, Any] | None = None,
    agents: Mapping[str, Mapping[str, Any]] | None = None,
    secure: bool = False,
    file: str = "net.toml",
    run_table: Mapping[str, Any] | None = None,
    **tables: Mapping[str, Any],
) -> Path:
    """A net.toml; by default ridge regression in four dimensions, epsilon = 8, 50 rounds, on a ring."""
    usual: dict[str, Mapping[str, Any]] = {
        "problem": {"loss": "ridge", "records": 60, "dimension": 4, "radius": 3.0},
        "graph": {"kind": "ring"},
        "algorithm": {"name": "ldp-online"},
        "privacy": {"epsilon": 8.0, "delta": 1e-5},
        "run": run_table or {"steps": 50},
    }
    protocol = "tls" if secure else "tcp"
    lines = [
        "[network]",
        *_keys(
            {
                "run": run,
                "deadline": 60,
                "state": f"state-{run}",
                **({"keys": "keys"} if secure else {}),
                **(network or {}),
            }
        ),
    ]
    for name, port in zip(names, free_ports(len(names)), strict=True):
        lines += [
            f"[agents.{name}]",
            *_keys({"endpoint": f"{protocol}/127.0.0.1:{port}", **((agents or {}).get(name, {}))}),
        ]
    for table, values in {**usual, **tables}.items():
        lines += [f"[{table}]", *_keys(values)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    path.write_text("\n".join(lines) + "\n")
    return path


def _keys(values: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items()]


def run_threads(network: Network, rehearsal: int | None, **options: Any) -> dict[str, Agent]:
    """All agents in this process; their models are in `.model`."""
    agents = {name: Agent(network, name, rehearsal=rehearsal, no_privacy=True, **options) for name in network.names}
    failures: dict[str, BaseException] = {}

    def run(name: str) -> None:
        try:
            agents[name].model = agents[name].run()  # type: ignore[attr-defined]
        except BaseException as error:
            failures[name] = error

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in network.names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if failures:
        raise next(iter(failures.values()))
    assert not any(thread.is_alive() for thread in threads), "an agent hangs"
    return agents


class Processes:
    """One real process per agent, each running the given configurations one after the other (worker.py)."""

    def __init__(
        self, configs: Sequence[Path], *, seed: int | None = 3, names: Sequence[str] = NAMES, **options: Any
    ) -> None:
        self.configs, self.seed, self.names, self.options = [str(c) for c in configs], seed, list(names), options
        self.folder = Path(configs[0]).parent
        self.running: dict[str, Any] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.deploy.worker"])

    def start(self, name: str, configs: Sequence[str] | None = None, **more: Any) -> Any:
        options = {"log": str(self.log(name)), **self.options, **more}
        kills = options.pop("kills", {}).get(name, ())
        process = self._context.Process(
            target=worker.run,
            args=(name, self.seed, configs or self.configs),
            kwargs={**options, "kills": kills},
            daemon=True,
        )
        process.start()
        self.running[name] = process
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)

    def watch(self, seconds: float) -> int:
        """Until all are done, starting again what was killed; how often that was."""
        end, restarts = time.monotonic() + seconds, 0
        while any(process.exitcode != 0 for process in self.running.values()):
            for name, process in list(self.running.items()):
                if process.exitcode == -signal.SIGKILL:
                    self.start(name)
                    restarts += 1
                assert process.exitcode in (None, 0, -signal.SIGKILL), f"{name}: {process.exitcode}\n{self.tail(name)}"
            assert time.monotonic() < end, "not done in time:\n" + "\n".join(map(self.tail, self.running))
            time.sleep(0.02)
        return restarts

    def tail(self, name: str) -> str:
        return f"--- {name}\n" + self.log(name).read_text()[-1500:]

    def kill(self) -> None:
        for process in self.running.values():
            if process.is_alive():
                process.kill()
            process.join()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def models(path: Path) -> np.ndarray:
    """The models that the agents of that net.toml kept."""
    network = load(path)
    return np.stack([np.load(member.state / f"{member.name}.model.npy") for member in network.members])
