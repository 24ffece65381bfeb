"""The pages on real networks say what is true: their commands run, and every option, key,
exit code and message on them exists.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import typer

import hearsay as hs
from hearsay.cli import agent, network, network_state
from hearsay.cli import commands as cli
from hearsay.config import PRIVACY_KEYS, RUN_KEYS, SECRETS_KEYS
from hearsay.deploy import budget, settings
from hearsay.deploy.deployment import deployment
from hearsay.deploy.launch import initialise
from hearsay.deploy.ledger import Ledger
from tests.deploy.networks import entered, free_ports

pytest.importorskip("zenoh")

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    name: (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("network.md", "operations.md")
}
UNIT = ROOT / "docs" / "hearsay-agent@.service"
STEPS = 300
SECONDS = 300  # for one command, at most
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGES[page], flags=re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[str]:
    """The lines of all shell blocks."""
    return [line for block in blocks(page, "sh") for line in block.splitlines()]


def section(page: str, heading: str) -> str:
    return PAGES[page].partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


class Terminal:
    """Runs lines of the page in a folder, `hearsay` being the one that is tested."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self._monkeypatch, self._capfd = folder, monkeypatch, capfd
        self.started: list[subprocess.Popen] = []

    def start(self, line: str) -> subprocess.Popen:
        """As a process of its own."""
        words = shlex.split(line)
        assert words[0] == "hearsay", line
        process = subprocess.Popen(
            [sys.executable, "-m", "hearsay.cli", *words[1:]],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen, code: int = 0) -> str:
        said, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == code, f"{process.args}: {process.returncode}\n{said}"
        return said

    def run(self, line: str, code: int = 0) -> str:
        """In this process, which has imported everything already; what it printed."""
        if line.startswith("cd "):
            self.folder /= line[3:]
            return ""
        if line.startswith("sed "):
            return subprocess.run(
                line, shell=True, cwd=self.folder, check=True, capture_output=True, text=True
            ).stdout
        words, outer = shlex.split(line), list(logging.root.handlers)
        assert words[0] == "hearsay", line
        self._capfd.readouterr()
        try:
            with self._monkeypatch.context() as patch:
                patch.chdir(self.folder)
                patch.setattr(sys, "argv", words)
                patch.setattr(
                    sys.modules["hearsay.simulation.simulating"],
                    "enable_compilation_cache",
                    lambda: None,
                )
                cli.main()
            found: int | str | None = 0
        except SystemExit as ended:
            found = ended.code
        finally:
            logging.root.handlers[:] = outer
        said = self._capfd.readouterr()
        assert (found or 0) == code, f"{line}: {found}\n{said.out}{said.err}"
        return said.out + said.err

    def close(self) -> None:
        """Ctrl-C for what still runs."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def shorten(self, file: str, steps: int) -> None:
        """Free ports and fewer steps; nothing else that the page says is changed."""
        path = self.folder / file
        text = re.sub(r"^steps = .*", f"steps = {steps}", path.read_text(), flags=re.MULTILINE)
        ports = iter(free_ports(text.count("127.0.0.1:")))
        path.write_text(
            re.sub(r"(127\.0\.0\.1:)\d+", lambda found: f"{found[1]}{next(ports)}", text)
        )


@pytest.fixture
def terminal(tmp_path, monkeypatch, capfd):
    """A terminal in a new folder; whatever was started from there must be gone at the end,
    and is ended if it is not.
    """
    one = Terminal(tmp_path, monkeypatch, capfd)
    yield one
    one.close()
    left = running_in(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"left behind: {left}"


def running_in(folder: Path) -> dict[int, str]:
    """Processes of hearsay whose working folder is there, with their command lines."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            where, state = (
                Path(os.readlink(entry / "cwd")),
                (entry / "stat").read_text().rpartition(")")[2].split()[0],
            )
            line = (entry / "cmdline").read_bytes().decode().replace("\0", " ")
            if where.is_relative_to(folder) and state != "Z" and " -m hearsay.cli " in line:
                found[int(entry.name)] = line
        except OSError:  # somebody else's, or just gone
            continue
    return found


def agents_in(folder: Path) -> dict[str, int]:
    """The agents that a `hearsay network up` has started there:
    nobody else's processes are touched.
    """
    named = {re.search(r" --name (\w+)", line): pid for pid, line in running_in(folder).items()}
    return {match[1]: pid for match, pid in named.items() if match}


def wait_for(condition, what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


(
    INIT,
    CD,
    CHECK,
    UP,
    STATUS,
    LONGER,
    UP_LONGER,
    KILL,
    REHEARSE,
    UP_REHEARSED,
    SHARE,
    CHECK_SHARED,
    UP_SHARED,
    KEYS,
    AGENT_CHECK,
    AGENT,
) = commands("network.md")


@pytest.mark.slow
@LINUX
def test_the_tutorial(terminal):
    one = terminal
    one.run(f"{INIT} --agents 3")
    one.run(CD)
    written = {
        str(path.relative_to(one.folder)) for path in one.folder.rglob("*") if path.is_file()
    }
    assert {"net.toml", "keys/ca.pem", "keys/ca.key", "keys/observer.pem"} < written
    assert {f"data/{name}.npz" for name in ("alice", "bob", "carol")} < written
    one.shorten("net.toml", 20)
    assert "rests on" in one.run(CHECK)

    # The second run stands for the first: the same command, and long enough to be killed in.
    assert UP_LONGER.replace("second.toml", "net.toml") == UP
    one.run(LONGER)
    assert "steps = 3000" in (one.folder / "second.toml").read_text()
    one.shorten("second.toml", STEPS)
    process, state = one.start(UP_LONGER), one.folder / "state" / "second-run"
    wait_for(
        lambda: process.poll() is not None or _size(state / "carol.ledger-wal") > 60_000,
        "rounds go on",
    )
    running = agents_in(one.folder)
    assert "pgrep -f 'second.toml --name carol'" in KILL and set(running) == {
        "alice",
        "bob",
        "carol",
    }
    os.kill(running["bob"], signal.SIGSTOP)  # so that the run lasts until it has been looked at
    os.kill(running["carol"], signal.SIGKILL)
    seen = {"alice": None}
    while not seen["alice"]:  # a busy machine may not answer within the two seconds of the command
        seen = json.loads(one.run(STATUS.replace("net.toml", "second.toml") + " --json", code=5))
    os.kill(running["bob"], signal.SIGCONT)
    assert "state/second-run" in one.end(process)
    log = (state / "carol.log").read_text()
    assert re.search(r"goes on from message \d+", log) and f"done: {STEPS} messages sent" in log
    listed = set(re.findall(r"^\| `(alice\.[a-z.-]+)` \|", PAGES["network.md"], flags=re.MULTILINE))
    assert {path.name for path in state.glob("alice.*")} == listed
    modes = {
        name: (state / name).stat().st_mode & 0o777
        for name in ("", "bob.ledger", "bob.private-model.npy", "bob.log")
    }
    assert list(modes.values()) == [0o700, 0o600, 0o600, 0o600]
    fields = "".join(row[0] for row in rows(section("operations.md", "Logs and monitoring")))
    assert seen["bob"] is None and set(seen["alice"]) == set(re.findall(r"`(\w+)`", fields))
    assert seen["alice"]["private"] is True


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@LINUX
@pytest.mark.slow
def test_the_rehearsal_and_the_code_of_the_page(terminal, monkeypatch):
    terminal.folder = initialise(terminal.folder / "wards", agents=2, steps=200).parent
    terminal.run(REHEARSE)
    terminal.shorten("rehearsal.toml", 40)
    terminal.end(terminal.start(UP_REHEARSED))
    assert "NOT PRIVATE" in (terminal.folder / "state" / "rehearsal" / "alice.log").read_text()
    monkeypatch.chdir(terminal.folder)
    assert len(blocks("network.md", "python")) == 2
    for index, block in enumerate(blocks("network.md", "python")):
        exec(compile(block, f"network.md[{index}]", "exec"), {})


@LINUX
@pytest.mark.parametrize("run", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_page_shares_noise(run, terminal):
    terminal.folder = initialise(terminal.folder / "wards", agents=3, steps=200).parent
    terminal.run(SHARE)
    terminal.shorten("shared.toml", 5)
    assert "epsilon if that many of the others collude" in terminal.run(CHECK_SHARED)
    if not run:
        return
    terminal.end(terminal.start(UP_SHARED))
    state = terminal.folder / "state" / "shared-run"
    assert "shares noise with bob, carol\n" in (state / "alice.log").read_text()
    assert "shares noise with bob, carol, dave, erin" in PAGES["network.md"]
    kept = state / "alice.ledger.keys"
    assert kept.stat().st_mode & 0o777 == 0o600 and b"chains" not in kept.read_bytes()


@LINUX
def test_a_host_needs_what_the_page_says(terminal):
    folder = initialise(terminal.folder / "wards", agents=2, steps=200).parent
    terminal.folder = folder
    terminal.run(f"{KEYS} --overwrite")
    terminal.folder = folder.parent / "host"
    for file in ("net.toml", "keys/ca.pem", "keys/alice.pem", "keys/alice.key", "data/alice.npz"):
        (terminal.folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / file, terminal.folder / file)
    assert f"{AGENT} --check" == AGENT_CHECK and "alice" in terminal.run(AGENT_CHECK)
    assert not (terminal.folder / "state").exists()
    (terminal.folder / "keys" / "alice.key").unlink()
    assert "alice.key" in terminal.run(AGENT_CHECK, code=2)


@LINUX
def test_a_few_steps_can_be_certified_too(terminal):
    """The noise for 20 messages was not found once: what rounding costs was taken off the
    target again and again.
    """
    config = initialise(terminal.folder / "wards", agents=3, steps=20, epsilon=5.0, secure=False)
    terminal.folder = config.parent
    assert "20 messages of alice, bob, carol" in terminal.run(CHECK)
    spent = deployment(settings.load(config), None).certificate.epsilon
    assert max(spent) <= 5.0 and min(spent) > 4.999


@LINUX
def test_the_exit_codes_of_an_agent(terminal):
    """5: the neighbour did not come; 6: the ledger is in use, or has messages of another
    configuration. Without any it may be begun again.
    """
    config = initialise(terminal.folder / "wards", agents=2, steps=20, secure=False)
    terminal.folder = config.parent
    terminal.shorten("net.toml", 20)
    text = config.read_text().replace("deadline = 300", "deadline = 0.2")
    config.write_text(text)
    assert "did not answer within" in terminal.run(AGENT, code=5)
    config.write_text(text.replace("ridge = 0.01", "ridge = 0.02"))
    assert "did not answer within" in terminal.run(AGENT, code=5), (
        "nothing was sent: another configuration may come"
    )
    network = settings.load(config)
    about = {
        "run": network.run,
        "agent": "alice",
        "configuration": network.digest,
        "noise": "lattice",
    }
    with Ledger(network.members[0].ledger, about) as ledger:
        assert "is in use: this agent is already running" in terminal.run(AGENT, code=6)
        entered(ledger)
        ledger.commit(0, b"a message", 1.0, {}, {})
    config.write_text(text)
    assert "belongs to another configuration" in terminal.run(AGENT, code=6)


def test_what_a_radius_costs(tmp_path):
    text = initialise(tmp_path / "wards", steps=200, secure=False).read_text()
    page = re.search(
        r"`radius` is (\d+) unless given\. .* takes ([\d.]+) % more noise than (\d+), and (\d+)"
        r" takes ([\d.]+) %",
        " ".join(PAGES["network.md"].split()),
    )
    assert page is not None

    def noise(radius: str) -> float:
        tables = tomllib.loads(text.replace("radius = 100.0", radius))
        return float(deployment(settings.read(tables, Path()), None).algorithm.noise_for(0)(0))

    base = noise(f"radius = {page[3]}.0")
    assert (
        noise("")
        == noise(f"radius = {page[1]}.0")
        == pytest.approx(base * (1 + float(page[2]) / 100), rel=5e-6)
    )
    assert noise(f"radius = {page[4]}.0") == pytest.approx(
        base * (1 + float(page[5]) / 100), rel=5e-4
    )


def test_pages_have_what_is_tested():
    assert not blocks("operations.md", "sh") and not blocks("operations.md", "python")
    assert len(commands("network.md")) == 16 and len(blocks("network.md", "toml")) == 7


def known() -> dict[tuple[str, ...], set[str]]:
    """Every command with its options."""
    found: dict[tuple[str, ...], set[str]] = {}

    def walk(command, path: tuple[str, ...]) -> None:
        found[path] = {
            option
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("--")
        }
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*path, name))

    walk(typer.main.get_command(cli.app), ("hearsay",))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_exists(page):
    options = known()
    inline = [
        text
        for text in re.findall(r"`([^`\n]+)`", PAGES[page])
        if text.startswith(("hearsay ", "--"))
    ]
    lines = [line for line in commands(page) if line.startswith("hearsay")] + inline
    assert len(lines) > 5
    for line in lines:
        words = shlex.split(line)
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        if words[0] == "hearsay":
            path = max((p for p in options if tuple(words[: len(p)]) == p), key=len)
            assert len(path) == 3 or path[1:] != ("network",), line
            assert path != ("hearsay",), f"{line}: no such command"
            assert given <= options[path], line
        else:
            assert given <= set().union(*options.values()), line


def test_every_key_of_the_table_exists_and_none_is_missing():
    found = re.findall(
        r"^\| `\[(\w+)(?:\.NAME)?\]` `(\w+)` \|.*\| (yes|no) \|$",
        section("network.md", "net.toml"),
        re.M,
    )
    keys = {
        table: {key for t, key, _ in found if t == table}
        for table in ("network", "agents", "privacy", "run", "secrets")
    }
    assert keys["secrets"] == set(SECRETS_KEYS)
    assert keys["network"] == set(settings._NETWORK_KEYS) and keys["agents"] == set(
        settings._AGENT_KEYS
    )
    assert keys["privacy"] == {*PRIVACY_KEYS, *settings.PRIVACY_KEYS} and keys["run"] == {
        "steps",
        "precision",
        "device",
        "release",
    } <= set(RUN_KEYS)


def test_which_keys_are_the_same_everywhere():
    """The last column of the table, key by key: does the hash change?"""
    base = tomllib.loads(blocks("network.md", "toml")[0])
    base["secrets"] = {"colluders": 1}
    other = {
        "run": "x",
        "policy": "skip",
        "deadline": 7,
        "patience": 7,
        "keys": "x",
        "state": "x",
        "steps": 9,
    }
    other |= {
        "endpoint": "tls/x:1",
        "records": 9,
        "data": "x",
        "certificate": "x",
        "key": "x",
        "ca": "x",
    }
    other |= {
        "keep": 9,
        "follow": True,
        "lifetime": 9.0,
        "epsilon": 9.0,
        "delta": 0.1,
        "budget": 9.0,
        "adjacency": "zero-out",
        "precision": 32,
        "device": "cpu",
        "release": "exponential",
    }
    other |= {
        "colluders": 0,
        "ratio": 2.0,
        "graph": "random",
        "edges": [["alice", "bob"]],
        "degree": 2,
        "seed": 1,
    }
    found = re.findall(
        r"^\| `\[(\w+)(?:\.NAME)?\]` `(\w+)` \|.*\| (yes|no) \|$",
        section("network.md", "net.toml"),
        re.M,
    )
    digest = settings.read(base, Path()).digest
    for table, key, same in found:
        changed = json.loads(json.dumps(base))
        (changed["agents"]["alice"] if table == "agents" else changed[table])[key] = other[key]
        assert (settings.read(changed, Path()).digest != digest) == (same == "yes"), (
            f"[{table}] {key}"
        )


@pytest.mark.parametrize("index", range(7))
def test_every_net_toml_is_accepted_and_has_a_finite_budget(index):
    """Pieces of a net.toml replace those tables of the whole one."""
    whole, *pieces = (tomllib.loads(block) for block in blocks("network.md", "toml"))
    tables = {**whole, **([{}, *pieces][index])}
    plan = deployment(settings.read(tables, Path()), None)
    assert plan.certificate.finite and plan.messages == 200
    # A target holds at delta, where one is given.
    assert all(
        b.compared <= e
        for b, e in zip(plan.certificate.budgets, whole["privacy"]["epsilon"], strict=True)
    )


def test_exit_codes():
    listed = {int(row[0].strip("| ")) for row in rows(section("operations.md", "Exit codes"))[2:]}
    source = "".join(map(inspect.getsource, (agent, network, network_state, cli._main)))
    assert listed == {
        0,
        *(int(code) for code in re.findall(r"(?:typer\.Exit|sys\.exit)\((\d+)\)", source)),
    }


def test_messages_are_those_that_are_logged():
    source = "".join(path.read_text() for path in (ROOT / "hearsay" / "deploy").glob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # literals that go on in the next line
    table = section("operations.md", "What to do when").partition("| message |")[2]
    firsts = re.findall(r"^\| (`[^|]+`) \|", table, flags=re.MULTILINE)
    messages = [text for first in firsts for text in re.findall(r"`([^`]+)`", first)]
    assert len(messages) >= 30
    for message in messages:
        assert message in source, message


def test_what_the_pages_say_of_algorithms():
    """Which ones take directed graphs, which ones refuse policy skip, and what it costs."""
    whole = tomllib.loads(blocks("network.md", "toml")[0])
    table = [row for row in rows(section("network.md", "Choosing")) if "`" in row[0]]
    listed = [name for row in table for name in re.findall(r"`([\w-]+)`", row[0])]
    assert set(listed) == set(hs.REGISTRY) - {"federated-noiseless"}

    def cost(name: str, policy: str, kind: str = "ring") -> float:
        algorithm = {"name": name, "mechanism": "gaussian", "noise": 5.0}
        network, privacy = {**whole["network"], "policy": policy}, {"delta": 1e-5}
        tables = {
            **whole,
            "network": network,
            "algorithm": algorithm,
            "graph": {"kind": kind},
            "privacy": privacy,
        }
        tables["run"] = {"steps": 20}
        return budget.sizes(deployment(settings.read(tables, Path()), None).certificate)[0]

    for first, graph, skip in table:
        for name in re.findall(r"`([\w-]+)`", first):
            if graph.startswith("undirected"):
                with pytest.raises(ValueError, match="symmetric"):
                    cost(name, "wait", "directed-ring")
            else:
                assert math.isfinite(cost(name, "wait", "directed-ring"))
            if skip.startswith("refused: "):
                reason = re.escape(skip.removeprefix("refused: ").rstrip(" |"))
                with pytest.raises(ValueError, match=reason):
                    cost(name, "skip")
            elif "at no cost" in skip:
                assert cost(name, "skip") == cost(name, "wait") < math.inf
            else:
                assert cost(name, "wait") < cost(name, "skip") < math.inf


def test_the_service_file(tmp_path):
    text = UNIT.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart="))
    assert (
        words[1] == "agent"
        and {w for w in words if w.startswith("--")} <= known()[("hearsay", "agent")]
    )
    keys = dict(
        line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#")
    )
    assert keys["RestartPreventExitStatus"] == "2 3 6"
    assert keys["RestartForceExitStatus"] == "5" == keys["SuccessExitStatus"]
    assert (
        keys["LimitCORE"] == "0" and keys["UMask"] == "0077" and keys["NoNewPrivileges"] == "true"
    )
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace(words[0], "/bin/sh"))
    found = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=30
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
