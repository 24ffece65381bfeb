"""All agents of a network as processes of this machine, for trying out and for tests; and a look at
a network from outside.

Every agent is the very command that runs on a host of its own (`hearsay agent`). One that is killed
is started again, as a service manager would.
"""

from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay._files import write_atomically
from hearsay.config import DELTA, EPSILON
from hearsay.deploy.answers import understood
from hearsay.deploy.settings import Network
from hearsay.deploy.transport import Observer
from hearsay.problems.data import datasets
from hearsay.problems.data.partition import partition as split

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy")
_RESTARTS = 100
_MOMENT = 0.02
_MEMORY = 200 * 2**20  # bytes that an agent takes for itself, and a little more
_FREE = Path("/proc/meminfo")
_LATER = 5  # the exit code of an agent that was stopped and may go on later
_STARTER = Path(__file__).with_name("starter.toml")
# What is chosen by rehearsal instead.
_RULED = (
    ("problem", "ridge"),
    ("problem", "head_start"),
    ("graph", "kind"),
    ("algorithm", "name"),
    ("algorithm", "step"),
    ("algorithm", "mechanism"),
    ("run", "steps"),
)


class Status(NamedTuple):
    """What an agent says of itself; None where it cannot be reached."""

    name: str
    facts: dict[str, Any] | None


class Fleet:
    """The processes. Logs go to <state>/<name>.log."""

    def __init__(self, config: Path, network: Network, options: Sequence[str] = ()) -> None:
        self.config, self.network, self.options = config, network, list(options)
        self.processes: dict[str, subprocess.Popen] = {}
        self.restarts = dict.fromkeys(network.names, 0)
        self.failed: dict[str, int] = {}

    def start(self) -> None:
        for name in self.network.names:
            self._start(name)

    def _start(self, name: str) -> None:
        command = [
            sys.executable,
            "-m",
            "hearsay.cli",
            "agent",
            "--config",
            str(self.config),
            "--name",
            name,
            *self.options,
        ]
        with os.fdopen(self._log(name), "ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _log(self, name: str) -> int:
        path = self.network.members[self.network.index(name)].state / f"{name}.log"
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise OSError(
                error.errno, f"cannot write it ({error.strerror}): see to the disk", str(path)
            ) from error

    def watch(self) -> bool:
        """Start again what was killed; False when all have ended."""
        for name, process in list(self.processes.items()):
            code = process.poll()
            if code is None:
                continue
            if code < 0 and self.restarts[name] < _RESTARTS:
                self.restarts[name] += 1
                self._start(name)
            elif code != 0:
                self.failed[name] = code
        return any(process.poll() is None for process in self.processes.values())

    @property
    def refused(self) -> dict[str, int]:
        """Those that have ended for a reason which starting them again does not change."""
        return {name: code for name, code in self.failed.items() if code != _LATER}

    def stop(self, seconds: float = 10.0, at_once: Callable[[], bool] = lambda: False) -> None:
        """Terminate all of them, and kill those that have not ended after so many seconds, or as
        soon as that is asked for: their ledgers survive it.
        """
        for process in self.processes.values():
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.terminate()
        end = time.monotonic() + seconds
        for process in self.processes.values():
            while process.poll() is None:
                if at_once() or time.monotonic() > end:
                    process.kill()
                    process.wait()
                else:
                    time.sleep(_MOMENT)


def crowded(agents: int) -> str:
    """Why so many agents may bring this machine to a stand, or nothing.

    Without room for them it does no more than fetch pages from the disk, or kills agents, which are
    started again.
    """
    try:
        lines = dict(line.split(":") for line in _FREE.read_text().splitlines())
        free = sum(int(lines[key].split()[0]) for key in ("MemAvailable", "SwapFree")) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return ""  # another system has other ways
    if agents * _MEMORY <= free:
        return ""
    return (
        f"{agents} agents take up to {agents * _MEMORY / 2**30:.1f} GiB of memory, and"
        f" {free / 2**30:.1f} GiB are free: this machine may come to a stand. Ctrl-C, and fewer"
        " agents or several machines"
    )


@require.plain_arguments
def statuses(network: Network, observer: Observer, seconds: float = 2.0) -> list[Status]:
    """What every agent says of itself now; all are asked at once."""

    def ask(name: str) -> Status:
        answer = observer.hello(name, timeout=seconds)
        try:
            facts = None if answer is None else json.loads(answer)
        except (ValueError, RecursionError):
            facts = None
        return Status(name, facts if understood(facts) else None)

    with ThreadPoolExecutor(min(32, len(network.names))) as pool:
        return list(pool.map(ask, network.names))


def observe(network: Network) -> Observer:
    secure = network.members[0].credentials is not None
    if secure and network.observer is None:
        raise ValueError(
            "keys in [network] must name the folder with ca.pem, observer.pem and observer.key to"
            " look at this network"
        )
    return Observer(
        network.run,
        [member.peer for member in network.members],
        network.observer if secure else None,
    )


def initialise(
    folder: Path,
    *,
    agents: int = 5,
    data: str = "digits",
    run: str = "first-run",
    port: int = 7447,
    epsilon: float = EPSILON,
    delta: float = DELTA,
    steps: int | None = None,
    partition: str = "iid",
    secure: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> Path:
    """A folder to start from: net.toml, a file of records for every agent, certificates.

    The records are a public data set, dealt out. Settings are rehearsed (choosing.py) and written
    into the file; with `steps` they are those of starter.toml, for so many messages.
    """
    agents = require.count("agents", agents, 2)
    config = folder / "net.toml"
    if config.exists():
        raise ValueError(f"{config} is there already: choose another folder")
    names = [NAMES[i] if i < len(NAMES) else f"agent{i:03d}" for i in range(agents)]
    known = datasets.load(data)
    parts = split(partition, known.labels, agents, 0)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for name, rows in zip(names, parts, strict=True):
        file = folder / "data" / f"{name}.npz"
        buffer = io.BytesIO()
        np.savez(buffer, features=known.features[rows], labels=known.labels[rows])
        write_atomically(file, buffer.getvalue())
        file.chmod(0o600)
    held = {name: len(rows) for name, rows in zip(names, parts, strict=True)}
    values = {
        ("network", "run"): run,
        ("problem", "dimension"): known.features.shape[1],
        ("problem", "feature_bound"): known.feature_bound,
        ("problem", "head_start"): min(held.values()) // 2,
        ("privacy", "epsilon"): epsilon,
        ("privacy", "delta"): delta,
        ("run", "steps"): steps,
    }
    write_atomically(config, _filled(values, held, port, secure).encode())
    if steps is None:
        choose(config, progress)
    progress(f"wrote {config} and the records of {agents} agents")
    if secure:
        make_keys(folder / "keys", config)
        progress(f"wrote certificates to {folder / 'keys'}")
    return config


def _filled(
    values: Mapping[tuple[str, str], Any], held: Mapping[str, int], port: int, secure: bool
) -> str:
    """starter.toml with these values, and a table for every agent, its comments kept."""
    import tomlkit

    found = tomlkit.parse(_STARTER.read_text(encoding="utf-8"))
    for (table, key), value in values.items():
        # What is there already keeps its spelling.
        if found[table][key] != value:
            found[table][key] = value if value is not None else 0
    if values["run", "steps"] is None:
        for table, key in _RULED:
            del found[table][key]
    if not secure:
        del found["network"]["keys"]
    agents = tomlkit.table(is_super_table=True)
    for number, (name, records) in enumerate(held.items()):
        one = copy.deepcopy(found["agents"]["NAME"])
        one["endpoint"] = f"{'tls' if secure else 'tcp'}/127.0.0.1:{port + number}"
        one["data"] = f"data/{name}.npz"
        one["records"] = records
        agents.append(name, one)
    found["agents"] = agents
    return found.as_string()


def choose(config: Path, progress: Callable[[str], None]) -> None:
    """Rehearse, and write what was chosen into the file."""
    from hearsay.deploy.choosing import write
    from hearsay.deploy.settings import load

    network = load(config)
    assert network.chosen is not None
    write(config, network)
    for line in (network.chosen.words, *network.chosen.warnings):
        progress(line)


def make_keys(folder: Path, config: Path, *, overwrite: bool = False) -> None:
    """A test certificate authority, and a certificate for every agent in the file."""
    from hearsay.deploy import tls
    from hearsay.deploy.settings import load

    network = load(config, settle=False)
    hosts = {
        m.name: sorted({m.peer.host.strip("[]"), "127.0.0.1", "localhost"}) for m in network.members
    }
    tls.make(folder, hosts, overwrite=overwrite)
