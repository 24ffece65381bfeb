"""Small networks for tests: net.toml files on free ports of this machine, agents as threads or as
real processes.

Nothing here waits for a time: an agent is held before it publishes a given message (`Gate`, or
`hold` for processes), the test acts, and lets it go. `SECONDS` only ends what hangs.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hearsay.config import build_problem, toml_item
from hearsay.deploy import book
from hearsay.deploy.agent import Agent
from hearsay.deploy.deployment import Deployment, deployment
from hearsay.deploy.ledger import Ledger
from hearsay.deploy.settings import Network, load
from tests.deploy import worker

NAMES = ("alice", "bob", "carol", "dave", "erin")
SECONDS = 300.0


_ports = itertools.count(0)


def free_ports(count: int) -> list[int]:
    """Below the range from which the system gives out ports to connections, and another part of it
    for every test process.
    """
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
    """A net.toml; by default ridge regression in four dimensions, epsilon = 8,
    12 rounds, on a ring.
    """
    usual: dict[str, Mapping[str, Any]] = {
        "problem": {"loss": "ridge", "records": 60, "dimension": 4, "radius": 3.0},
        "graph": {"kind": "ring"},
        "algorithm": {"name": "ldp-online"},
        # Without a delta: a plan is worked out a hundred times as fast.
        "privacy": {"epsilon": 8.0},
        "run": run_table or {"steps": 12},
    }
    protocol = "tls" if secure else "tcp"
    lines = [
        "[network]",
        *_keys(
            {
                "run": run,
                "deadline": SECONDS,
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
    return [f"{key} = {toml_item(value).as_string()}" for key, value in values.items()]


def entered(ledger: Ledger) -> None:
    """In the budget file, as an agent does it before the first message of that ledger."""
    path = ledger.path.parent.with_name(f"{ledger.path.stem}{book.SUFFIX}")
    found, run = book.read(path), ledger.path.parent.name
    spent = book.Spent(ledger.instance, run, 0.0, 1, "laplace", 1.0, 0.0, records=0)
    sets = found.sets or [np.array([1], np.uint64)]
    book.write(path, found._replace(runs=[*found.runs, spent], sets=sets))


def wait_for(condition: Callable[[], Any], what: str = "it did not happen") -> Any:
    end = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.005)
    return found


class Gate:
    """Holds an agent before it publishes its message of that round, which is in the ledger by then,
    until it is opened.
    """

    def __init__(self, step: int) -> None:
        self.step, self.reached, self.opened = step, threading.Event(), threading.Event()

    def guard(self, agent: Agent) -> None:
        plain = agent._publish

        def publish(step: int, payload: bytes) -> None:
            if step == self.step:
                self.reached.set()
                assert self.opened.wait(SECONDS)
            plain(step, payload)

        agent._publish = publish  # type: ignore[method-assign]

    def __enter__(self) -> Gate:
        assert self.reached.wait(SECONDS), "nobody came"
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.set()


class Threads:
    """Agents in this process.

    `with fleet:` stops whoever still runs; an agent's model or what ended it is in `ended`.
    """

    def __init__(self, network: Network, seed: int | None = 3) -> None:
        self.network, self.seed = network, seed
        self.agents, self.ended = dict[str, Agent](), dict[str, Any]()
        self._threads: dict[str, threading.Thread] = {}
        # All work out the same plan, unless each has read a file of its own.
        self._plan: Deployment | None = None
        if not network.from_files:
            self._plan = deployment(network, None, rehearsed=seed is not None)
            self._dealt = build_problem(network.config, agents=len(network.members)).records

    def start(
        self, name: str, *gates: Gate, network: Network | None = None, called: str = ""
    ) -> Agent:
        """`called`: under which name it is kept here, where there are two of one name."""
        key, plan = called or name, None
        if network is None and self._plan is not None:
            own = self._dealt.of(self.network.index(name))
            plan = replace(self._plan, records=own)
        agent = Agent(
            network or self.network, name, rehearsal=self.seed, no_privacy=True, plan=plan
        )
        for gate in gates:
            gate.guard(agent)
        self.agents[key] = agent
        self.ended.pop(key, None)

        def run() -> None:
            try:
                self.ended[key] = agent.run()
            except BaseException as error:
                self.ended[key] = error

        self._threads[key] = threading.Thread(target=run, daemon=True)
        self._threads[key].start()
        return agent

    def start_all(self) -> None:
        for name in self.network.names:
            self.start(name)

    def join(self, *names: str) -> Any:
        """Until they have ended (all, unless named): how the last of them did."""
        found = None
        for name in names or list(self._threads):
            self._threads[name].join(SECONDS)
            assert not self._threads[name].is_alive(), f"{name} hangs"
            found = self.ended[name]
        return found

    def runs(self, name: str) -> bool:
        return self._threads[name].is_alive()

    def stop(self, *names: str) -> None:
        for name in names or list(self._threads):
            self.agents[name]._stop.set()
        self.join(*names)

    def models(self) -> np.ndarray:
        self.join()
        for found in self.ended.values():
            if isinstance(found, BaseException):
                raise found
        return np.stack([self.ended[name] for name in self.network.names])

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run_threads(network: Network, rehearsal: int | None) -> dict[str, Agent]:
    """All agents in this process, to their end; their models are in `.model`."""
    with Threads(network, rehearsal) as fleet:
        fleet.start_all()
        for name, model in zip(network.names, fleet.models(), strict=True):
            fleet.agents[name].model = model  # type: ignore[attr-defined]
        return fleet.agents


def size_of(network: Network, number: int) -> int:
    """How many messages are in a ledger that is in use, or is only being made."""
    if not (path := network.members[number].ledger).exists():
        return 0
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'rounds'").fetchone():
            return 0
        return db.execute("SELECT count(*) FROM rounds").fetchone()[0]


def session(endpoint: str, folder: Path, name: str, seconds: float = SECONDS) -> Any:
    """A peer of somebody's own making, with that certificate."""
    import zenoh

    config = {
        "mode": "peer",
        "listen": {"endpoints": []},
        "connect": {
            "endpoints": [endpoint],
            "timeout_ms": int(1000 * seconds),
            "exit_on_failure": True,
        },
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {
            "link": {
                "tls": {
                    "root_ca_certificate": str(folder / "ca.pem"),
                    "enable_mtls": True,
                    "connect_certificate": str(folder / f"{name}.pem"),
                    "connect_private_key": str(folder / f"{name}.key"),
                }
            }
        },
    }
    return zenoh.open(zenoh.Config.from_json5(json.dumps(config)))


class Wire:
    """A TCP wire to a port of this machine that can be cut: bytes stop, and nobody is told.

    `calls` counts those who connect.
    """

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self.target, self.cut, self._ends = target, threading.Event(), list[socket.socket]()
        self._listener = socket.create_server((host, 0))
        self.port, self.calls = self._listener.getsockname()[1], 0
        self._guard, self._closed = threading.Lock(), False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            self.calls += 1
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            with self._guard:
                self._ends += [near, far]
                if self._closed:
                    near.close()
                    far.close()
                    return
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                while self.cut.is_set():
                    time.sleep(0.01)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            self._listener.shutdown(socket.SHUT_RDWR)
            for end in (self._listener, *self._ends):
                end.close()


def worker_context() -> Any:
    """Processes that are forked from a server which has imported everything once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.deploy.worker"])
    return context


class Processes:
    """One real process per agent, each running the given configurations one after
    the other (worker.py).
    """

    def __init__(
        self,
        configs: Sequence[Path],
        *,
        seed: int | None = 3,
        names: Sequence[str] = NAMES,
        **options: Any,
    ) -> None:
        self.configs, self.seed, self.names, self.options = (
            [str(c) for c in configs],
            seed,
            list(names),
            options,
        )
        self.folder = Path(configs[0]).parent
        self.running: dict[str, Any] = {}
        self._context = worker_context()

    def start(self, name: str, configs: Sequence[str] | None = None, **more: Any) -> Any:
        options = {"log": str(self.log(name)), **self.options, **more}
        one_each = ("kills", "hold", "attack")
        kills, hold, attack = (options.pop(what, {}).get(name) for what in one_each)
        process = self._context.Process(
            target=worker.run,
            args=(name, self.seed, configs or self.configs),
            kwargs={**options, "kills": kills or (), "hold": hold, "attack": attack},
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

    def wait_until_held(self, name: str) -> None:
        wait_for(Path(f"{self.log(name)}.held").exists, "nobody came")

    def watch(self, seconds: float = SECONDS) -> int:
        """Until all are done, starting again what was killed; how often that was."""
        end, restarts = time.monotonic() + seconds, 0
        while any(process.exitcode != 0 for process in self.running.values()):
            for name, process in list(self.running.items()):
                if process.exitcode == -signal.SIGKILL:
                    self.start(name)
                    restarts += 1
                assert process.exitcode in (None, 0, -signal.SIGKILL), (
                    f"{name}: {process.exitcode}\n{self.tail(name)}"
                )
            assert time.monotonic() < end, "not done in time:\n" + "\n".join(
                map(self.tail, self.running)
            )
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
    return np.stack(
        [np.load(member.state / f"{member.name}.private-model.npy") for member in network.members]
    )
