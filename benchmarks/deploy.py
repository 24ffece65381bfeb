"""A deployed round beside a bare Zenoh exchange of the same bytes: python -m benchmarks.deploy
[--quick]

Five processes in a ring on this machine, plain TCP. Turn by turn, so that all meet the same load:

    bare      put the bytes, wait for the two neighbours' bytes of the same round, next: Zenoh and
              nothing else
    exchange  what hearsay does with a message that is given: encode, ledger (state, bytes, budget,
              synced to disk), publish, wait, check, add up
    unsynced  the same without waiting for the disk, which is no way to run it: the difference is
              what durability costs here
    round     a whole round of dsgd: gradient, lattice noise, exchange, update

Milliseconds per round are medians over turns; ratios are of those to bare.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

NAMES = ("alice", "bob", "carol", "dave", "erin")
QUICK = "--quick" in sys.argv
TURNS = 2 if QUICK else 5
ROUNDS = {1000: 200 if QUICK else 1000, 1_000_000: 10 if QUICK else 40}
WARM = 5


def main() -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hearsay.deploy.agent"])
    print(
        f"five processes in a ring, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; ms per"
        " round, ratio to bare"
    )
    kinds = {"bare": bare, "exchange": exchange, "unsynced": unsynced, "round": whole}
    print(f"  {'d':>9}" + "".join(f"{kind:>18}" for kind in kinds))
    for dimension, rounds in ROUNDS.items():
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for turn in range(TURNS):
            for number, (kind, worker) in enumerate(kinds.items()):
                times[kind].append(
                    together(context, worker, dimension, rounds, 20_000 + 100 * turn + 10 * number)
                )
        base = median(times["bare"])
        cells = (
            f"{1e3 * median(values):>10.2f} ({median(values) / base:.2f}x)"
            for values in times.values()
        )
        print(f"  {dimension:>9,}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


def together(context: Any, worker: Any, dimension: int, rounds: int, port: int) -> float:
    """Seconds per round, the slowest agent's."""
    with tempfile.TemporaryDirectory() as folder:
        results = context.SimpleQueue()
        processes = [
            context.Process(
                target=_guarded, args=(worker, results, number, dimension, rounds, port, folder)
            )
            for number in range(5)
        ]
        for process in processes:
            process.start()
        found = [results.get() for _ in processes]
        for process in processes:
            process.join()
    if any(isinstance(one, str) for one in found):
        raise RuntimeError(next(one for one in found if isinstance(one, str)))
    return max(found)


def _guarded(worker: Any, results: Any, *args: Any) -> None:
    try:
        results.put(worker(*args))
    except BaseException as error:
        results.put(f"{type(error).__name__}: {error}")


def bare(number: int, dimension: int, rounds: int, port: int, folder: str) -> float:
    import zenoh

    neighbours = [(number + 1) % 5, (number - 1) % 5]
    config = {
        "mode": "peer",
        "listen": {"endpoints": [f"tcp/127.0.0.1:{port + number}"]},
        "connect": {
            "endpoints": [f"tcp/127.0.0.1:{port + j}" for j in neighbours if j < number],
            "timeout_ms": -1,
            "exit_on_failure": False,
        },
        "scouting": {"delay": 0, "multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {"shared_memory": {"enabled": False}},
    }
    arrived, seen = threading.Condition(), set()

    def heard(sample: Any) -> None:
        _, source, step = str(sample.key_expr).split("/")
        sample.payload.to_bytes()
        with arrived:
            seen.add((int(source), int(step)))
            arrived.notify_all()

    payload = np.random.default_rng(number).normal(size=dimension).tobytes()
    with zenoh.open(zenoh.Config.from_json5(json.dumps(config))) as session:
        subscribers = [session.declare_subscriber(f"bench/{j}/*", heard) for j in neighbours]
        alive = session.liveliness().declare_token(f"alive/{number}")
        while len(list(session.liveliness().get("alive/*"))) < 3:  # itself and both neighbours
            time.sleep(0.05)
        time.sleep(1.0)
        for step in range(rounds + WARM):
            if step == WARM:
                began = time.perf_counter()
            session.put(
                f"bench/{number}/{step}",
                payload,
                congestion_control=zenoh.CongestionControl.BLOCK,
                express=True,
            )
            with arrived:
                arrived.wait_for(lambda step=step: all((j, step) in seen for j in neighbours))  # type: ignore[misc]
        taken = (time.perf_counter() - began) / rounds
        time.sleep(1.0)  # the neighbours' last messages
        del subscribers, alive
    return taken


def exchange(number: int, dimension: int, rounds: int, port: int, folder: str) -> float:
    return _agent(number, dimension, rounds, port, folder, computing=False)


def unsynced(number: int, dimension: int, rounds: int, port: int, folder: str) -> float:
    from hearsay.deploy.ledger import Ledger

    opened = Ledger._open

    def careless(self: Ledger, *args: Any) -> None:
        opened(self, *args)
        self._db.execute("PRAGMA synchronous = OFF")

    Ledger._open = careless  # type: ignore[method-assign]
    os.fdatasync = os.fsync = lambda handle: None  # type: ignore[assignment]
    return _agent(number, dimension, rounds, port, folder, computing=False)


def whole(number: int, dimension: int, rounds: int, port: int, folder: str) -> float:
    return _agent(number, dimension, rounds, port, folder, computing=True)


def _agent(
    number: int, dimension: int, rounds: int, port: int, folder: str, computing: bool
) -> float:
    import jax

    jax.config.update("jax_enable_x64", True)
    from hearsay.deploy.agent import Agent
    from hearsay.deploy.settings import read

    data = Path(folder) / f"{number}.npz"
    np.savez(data, features=np.eye(2, dimension), labels=np.ones(2))
    own = {"data": str(data), "records": 2}
    tables = {
        "network": {"run": "bench", "deadline": 120},
        "agents": {
            name: {"endpoint": f"tcp/127.0.0.1:{port + i}", **own} for i, name in enumerate(NAMES)
        },
        "problem": {
            "loss": "ridge",
            "dimension": dimension,
            "feature_bound": 1.0,
            "label_bound": 1.0,
        },
        "algorithm": {"name": "dsgd", "noise": 1.0},
        "graph": {"kind": "ring"},
        "run": {"steps": rounds + WARM},
    }
    agent, began = Agent(read(tables, Path(folder)), NAMES[number]), [0.0, 0.0]
    publish = agent._publish

    def timed(step: int, payload: bytes) -> None:
        if step == WARM:
            began[0] = time.perf_counter()
        began[1] = time.perf_counter()
        publish(step, payload)

    agent._publish = timed  # type: ignore[method-assign]
    if not computing:
        kind, shapes = agent.steps.message()
        message = kind(
            **{
                name: np.random.default_rng(number).normal(size=shape)
                for name, shape in shapes.items()
            }
        )
        _given(message)
    agent.run()
    return (began[1] - began[0]) / (rounds - 1)


def _given(message: Any) -> None:
    """Messages that cost nothing to make, and an update that adds up what was
    heard and stops there.
    """
    from hearsay.deploy.privatize import Lattice
    from hearsay.deploy.steps import Steps

    Lattice.message = lambda self, step, carry: (message, carry)  # type: ignore[method-assign]
    Steps.update = lambda self, step, carry, sent, inbox: carry  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
