"""Agents at the ends of slow, long and lossy lines: each in a network namespace of its own, with a
router in between that delays, drops and throttles packets.

The router is `wan.c`, which lies beside the repository (shared/tools); it needs root, a C compiler
and /dev/net/tun, and these tests are skipped where one of them is missing.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from hearsay.deploy.settings import load
from tests.deploy.networks import NAMES, models, run_threads, write

ROOT = Path(__file__).resolve().parents[2]
ROUTER = ROOT.parent / "shared" / "tools" / "wan.c"
MISSING = [
    what
    for what, there in {
        "root": hasattr(os, "geteuid") and os.geteuid() == 0,
        "a C compiler": shutil.which("cc"),
        "ip": shutil.which("ip"),
        "/dev/net/tun": Path("/dev/net/tun").exists(),
        "shared/tools/wan.c": ROUTER.exists(),
    }.items()
    if not there
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}"),
]
AGENT = (
    "import sys; from tests.deploy import worker; worker.run(sys.argv[1], 3, [sys.argv[2]],"
    " sys.argv[3], witness=sys.argv[4])"
)


class Line:
    """Namespaces, one per agent, with addresses 192.0.2.11 and so on,
    and the line between all of them.
    """

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.folder, self.names = folder, names
        self.spaces = {name: f"hs{os.getpid()}-{i}" for i, name in enumerate(names)}
        self.running: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> Line:
        router = self.folder / "wan"
        subprocess.run(["cc", "-O2", "-w", "-o", str(router), str(ROUTER)], check=True)
        self.set()
        try:
            for space in self.spaces.values():
                subprocess.run(["ip", "netns", "add", space], check=True)
            self.router = subprocess.Popen(
                [str(router), str(self.folder / "line"), *self.spaces.values()],
                stderr=subprocess.DEVNULL,
            )
            for number, space in enumerate(self.spaces.values()):
                self._wait_for_device(space)
                for command in (
                    "link set lo up",
                    f"addr add 192.0.2.{11 + number}/24 dev wan0",
                    "link set wan0 up",
                ):
                    subprocess.run(["ip", "-n", space, *command.split()], check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_for_device(self, space: str) -> None:
        end = time.monotonic() + 60
        while subprocess.run(
            ["ip", "-n", space, "link", "show", "wan0"], capture_output=True
        ).returncode:
            assert self.router.poll() is None and time.monotonic() < end, "the router does not run"
            time.sleep(0.02)

    def set(
        self, delay: float = 0.0, jitter: float = 0.0, loss: float = 0.0, rate: float = 0.0
    ) -> None:
        """One way: milliseconds, per cent, Mbit/s (0: as fast as it goes)."""
        (self.folder / "line.new").write_text(f"{delay} {jitter} {loss} {rate}\n")
        (self.folder / "line.new").replace(self.folder / "line")

    def run(self, path: Path, seconds: float = 600) -> list[list[str]]:
        """All agents until they are done: what left, in order (name, round, hash, how, when)."""
        witness = self.folder / f"{path.stem}.witness"
        for name in self.names:
            words = [
                sys.executable,
                "-c",
                AGENT,
                name,
                str(path),
                str(self.folder / f"{name}.log"),
                str(witness),
            ]
            inside = ["ip", "netns", "exec", self.spaces[name], *words]
            self.running[name] = subprocess.Popen(
                inside, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
        for name, process in self.running.items():
            assert process.wait(seconds) == 0, (self.folder / f"{name}.log").read_text()[-2000:]
        return [line.split() for line in witness.read_text().splitlines()]

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        if hasattr(self, "router"):
            self.router.kill()
            self.router.wait()
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False, stderr=subprocess.DEVNULL)


def network(folder: Path, names: tuple[str, ...], **more) -> Path:
    ends = {name: {"endpoint": f"tcp/192.0.2.{11 + i}:7447"} for i, name in enumerate(names)}
    return write(folder, names=names, agents=ends, network={"deadline": 300}, **more)


def left_once(left: list[list[str]], names: tuple[str, ...], rounds: int, since: int = 0) -> None:
    times = Counter((name, int(step)) for name, step, *_ in left)
    assert set(times) == {(name, step) for name in names for step in range(rounds)}
    twice = {what: number for what, number in times.items() if number > 1}
    assert all(step < since for _, step in twice), twice


def round_times(left: list[list[str]]) -> list[float]:
    """Seconds between two messages of one agent."""
    sent = defaultdict(list)
    for name, _, _, how, when in left:
        if how == "sent":
            sent[name].append(float(when))
    return [
        after - before for times in sent.values() for before, after in itertools.pairwise(times[1:])
    ]


def test_a_round_takes_one_way_and_no_more(tmp_path):
    """Fifty milliseconds, give or take ten, five agents in a ring:
    the later of two neighbours is 54 ms away; 158 ms when every message was asked for after 50.
    """
    settings = {
        "problem": {"loss": "ridge", "records": 60, "dimension": 64, "radius": 3.0},
        "run_table": {"steps": 50},
    }
    path = network(tmp_path, NAMES, **settings)
    with Line(tmp_path, NAMES) as line:
        line.set(delay=50, jitter=10)
        left = line.run(path)
    # Message 0 of one who starts seconds later is asked for meanwhile, and may cross the question.
    left_once(left, NAMES, 50, since=1)
    times = round_times(left)
    print(f"\n50 ± 10 ms: median {1e3 * statistics.median(times):.0f} ms a round")
    assert statistics.median(times) < 0.08
    calm = run_threads(load(write(tmp_path / "calm", **settings)), 3)
    np.testing.assert_array_equal(models(path), np.stack([calm[name].model for name in NAMES]))


@pytest.mark.parametrize("rate", [20, 5])
def test_large_messages_leave_once_on_a_slow_line(tmp_path, rate):
    """1.6 MB at 5 Mbit/s take 2.6 s. Asked for again every two seconds, they never arrived."""
    two, rounds = NAMES[:2], 6
    path = network(
        tmp_path,
        two,
        graph={"kind": "complete"},
        problem={"loss": "ridge", "records": 4, "dimension": 200_000, "radius": 3.0},
        algorithm={"name": "dsgd"},
        run_table={"steps": rounds},
    )
    with Line(tmp_path, two) as line:
        line.set(delay=20, rate=rate)
        left = line.run(path)
    left_once(left, two, rounds)
    print(f"\n{rate} Mbit/s, 1.6 MB: median {statistics.median(round_times(left)):.2f} s a round")


@pytest.mark.parametrize(("delay", "loss"), [(500, 0), (350, 5)])
def test_links_come_up_and_hold_on_long_lines(tmp_path, delay, loss):
    """A round trip of a second; one of 0.7 s on which every twentieth packet is lost."""
    two, rounds = NAMES[:2], 12
    path = network(tmp_path, two, graph={"kind": "complete"}, run_table={"steps": rounds})
    with Line(tmp_path, two) as line:
        line.set(delay=delay, loss=loss)
        left = line.run(path)
        said = "".join((tmp_path / f"{name}.log").read_text() for name in two)
    print(
        f"\n{delay} ms one way, {loss} % lost: median {statistics.median(round_times(left)):.2f} s"
        f" a round, {len(left)} messages left"
    )
    assert "not connected" not in said, "a link was lost"
    if not loss:
        left_once(left, two, rounds)
