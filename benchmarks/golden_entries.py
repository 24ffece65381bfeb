"""One case of the golden recording: numbers to the last bit, and texts apart from them.

`adapt` is the one function that knows where things are inside the package.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import numpy as np

import hearsay as hs
from benchmarks.golden_cases import DELTA, EVERY, GRAPHS, PROBLEMS, STEPS, Case

MOST = 64
BUDGET = ("epsilon", "paper_epsilon", "epsilon_at_delta", "rho", "delta")
WORDS = ("basis", "pattern", "dominated_by", "reason", "assumptions")
NAMES = ("alice", "bob", "carol")


def adapt() -> SimpleNamespace:
    """All that is not reached through `import hearsay as hs`: the one place to adapt."""
    from hearsay.algorithms.theory.findings import findings
    from hearsay.certification import messages_within, spent_after
    from hearsay.cli.commands import app

    return SimpleNamespace(
        certify=hs.certify,
        calibrate=hs.calibrate,
        planned=hs.budget_by_horizon,
        spent_after=spent_after,
        messages_within=messages_within,
        findings=lambda algorithm, problem, graph: findings(algorithm, graph, problem),
        lossy=lambda graph: dataclasses.replace(graph, lossy=True),
        command=lambda *words: app(list(words), standalone_mode=False),
        module="hearsay.cli",
    )


# What is kept.


def packed(value: Any) -> Any:
    """Numbers to the last bit, as JSON: arrays as bytes, others in hexadecimal."""
    if isinstance(value, (list, tuple)):
        return [packed(one) for one in value]
    if isinstance(value, (np.ndarray, jax.Array)):
        array = np.ascontiguousarray(value)
        shape = ",".join(map(str, array.shape))
        return f"{array.dtype.str} {shape} {base64.b64encode(array.tobytes()).decode()}"
    return float(value).hex() if isinstance(value, (float, np.floating)) else value


class Entry:
    """The numbers and texts of one case."""

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}
        self.texts: dict[str, Any] = {}

    def attempt(self, name: str, call: Callable[[], Any]) -> Any:
        """A refusal is a result too; its wording is a text. None if it was one."""
        try:
            return call()
        except ValueError as error:
            self.numbers[name], self.texts[name] = "refused", str(error)
            return None

    def add(self, **numbers: Any) -> None:
        self.numbers |= {name: packed(value) for name, value in numbers.items()}

    def models(self, models: np.ndarray) -> None:
        """All of them as a digest, and (of large ones) evenly spread coordinates."""
        models = np.ascontiguousarray(models)
        some = np.unique(np.linspace(0, models.shape[-1] - 1, MOST).astype(int))
        self.numbers["models, sha256"] = hashlib.sha256(models.tobytes()).hexdigest()
        self.add(models=models[..., some])

    def certificate(self, name: str, text: str | None) -> None:
        """From its JSON: that is what a deployed agent leaves too."""
        if text is None:
            return
        found = json.loads(text)
        for kind in BUDGET:
            values = [_number(budget.get(kind)) for budget in found["budgets"]]
            self.add(**{f"{name}: {kind}": values})
        lives = [budget.get("lifetime") for budget in found["budgets"]]
        for kind in ("before", "total") if any(lives) else ():
            self.add(**{f"{name}: {kind}": [_number(life[kind]) for life in lives]})
        self.add(**{f"{name}: delta of all": _number(found["delta"])})
        self.add(**{f"{name}: horizon": _number(found["horizon"])})
        words = {kind: [budget[kind] for budget in found["budgets"]] for kind in WORDS}
        self.texts[name] = {**words, "warnings": found["warnings"]}


def _number(value: Any) -> float | None:
    return None if value is None else float(str(value).replace("infinite", "inf"))


def simulated(case: Case, problem: Any, internals: SimpleNamespace) -> Entry:
    entry, graph, algorithm = Entry(), GRAPHS[case.graph](), case.build()
    if case.runs:
        options = {"steps": STEPS, "seeds": 2, "every": EVERY, "delta": DELTA, **case.run}
        run = hs.simulate(algorithm, problem, graph, **options)
        entry.models(run.models)
        entry.add(steps=run.steps, spent=run.spent)
        entry.add(**{f"metric {name}": values for name, values in run.metrics.items()})
        entry.texts["stopped"] = run.stopped
    # Certificates are computed in float64 whatever a run's precision is.
    if case.bits == 64:
        certified(case, entry, algorithm, problem, graph, internals)
    return entry


def certified(
    case: Case,
    entry: Entry,
    algorithm: Any,
    problem: Any,
    graph: Any,
    internals: SimpleNamespace,
) -> None:
    def at(name: str, horizon: float, delta: float | None, graph: Any = graph) -> None:
        def call() -> str:
            return internals.certify(algorithm, problem, graph, horizon, delta=delta).to_json()

        entry.certificate(name, entry.attempt(name, call))

    at("certificate at delta", STEPS, DELTA)
    at("certificate", STEPS, None)
    at("certificate inf", math.inf, DELTA if algorithm.mechanism == "gaussian" else None)
    if case.endless:
        at("certificate inf at delta", math.inf, DELTA)
    lossy = internals.lossy(graph)
    at("certificate lossy", STEPS, DELTA, lossy)
    target = entry.attempt(
        "calibrated",
        lambda: internals.calibrate(algorithm, problem, graph, STEPS, 2.0, delta=DELTA),
    )
    if target is not None:
        levels = target.noise if isinstance(target.noise, tuple) else (target.noise,)
        entry.add(noise=[float(law(k)) for law in levels for k in (0, 1, STEPS)])
        exact = internals.certify(target, problem, graph, STEPS, delta=DELTA)
        entry.certificate("calibrated", exact.to_json())
    after = internals.spent_after(algorithm, problem, graph, list(range(0, STEPS + 1, 6)))
    entry.add(spent_after=after)
    for budget in (0.5, 4.0, 32.0):

        def within(budget: float = budget) -> list[int]:
            found = internals.messages_within(algorithm, problem, graph, STEPS, budget, DELTA)
            return [int(part) for part in found]

        name = f"messages within {budget}"
        if (found := entry.attempt(name, within)) is not None:
            entry.add(**{name: found})
    findings = internals.findings(algorithm, problem, graph)
    entry.add(findings=[[bool(f.holds), f.margin] for f in findings])
    entry.texts["findings"] = [[f.name, f.detail] for f in findings]


def horizons(internals: SimpleNamespace) -> Entry:
    """What runs that are planned for different horizons cost."""
    entry, problem, graph = Entry(), PROBLEMS["ridge"](), GRAPHS["five-agents"]()
    found = internals.planned(hs.scheme_s2, problem, graph, [500, 1000, 2000])
    entry.add(epsilon=found.epsilon, peak=found.peak, slope=found.slope, limit=found.limit)
    return entry


# Networks.


def write_network(folder: Path, tables: Mapping[str, Mapping[str, Any]]) -> Path:
    """net.toml for three agents on free ports of this machine."""
    network = {"run": "golden", "deadline": 300.0, "state": "state", **tables.get("network", {})}
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in NAMES]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in sockets]
    text = {"network": network}
    for name, port in zip(NAMES, ports, strict=True):
        text[f"agents.{name}"] = {"endpoint": f"tcp/127.0.0.1:{port}"}
    text |= {name: dict(table) for name, table in tables.items() if name != "network"}
    lines: list[str] = []
    for name, table in text.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    path = folder / "net.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def secret(length: int) -> bytes:
    """In place of the system's random bytes: always the same ones for an agent's thread."""
    name = threading.current_thread().name
    return hashlib.shake_128(name.encode()).digest(length) if name in NAMES else URANDOM(length)


URANDOM = os.urandom


def deployed(tables: Mapping, seed: int | None, internals: Any, processes: bool = False) -> Entry:
    """The command `hearsay agent` for every agent, as threads; or `hearsay network up`."""
    entry, ended = Entry(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as home:
        config = str(write_network(Path(home), tables))
        options = ["--config", config, "--no-privacy"]
        options += [] if seed is None else ["--simulate-noise", str(seed)]
        if processes:
            command = [sys.executable, "-m", internals.module, "network", "up", *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        else:

            def agent(name: str) -> None:
                try:
                    code = internals.command("agent", "--name", name, "--quiet", *options)
                    ended[name] = code or None
                except BaseException as error:
                    ended[name] = error

            threads = [threading.Thread(target=agent, args=(n,), name=n) for n in NAMES]
            # Agents set the process's umask and put it back: as threads they may leave it.
            umask = os.umask(0o022)
            with mock.patch("os.urandom", secret), contextlib.redirect_stdout(None):
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            os.umask(umask)
        if failed := {name: why for name, why in ended.items() if why is not None}:
            raise RuntimeError(f"agents must end well, got {failed}")
        (alice,) = Path(home).rglob(f"{NAMES[0]}.private-model.npy")
        state = alice.parent
        entry.models(np.stack([np.load(state / f"{name}.private-model.npy") for name in NAMES]))
        for name in NAMES:
            entry.certificate(name, (state / f"{name}.certificate.json").read_text())
    return entry
