"""Whatever stops the writing of a budget file, and at whatever step: the file is the old one or the
new one, an agent that was refused is refused still, and the same call goes on.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hearsay.deploy import lifetime, mark, missing
from hearsay.deploy.deployment import deployment
from hearsay.deploy.rows import LedgerError, LedgerUnavailable
from hearsay.deploy.settings import load
from tests.deploy.test_lifetime import account, files
from tests.deploy.test_missing import begin

STEPS = ("open", "fsync", "replace", "unlink", "mkdir")


class Killed(BaseException):
    """kill -9."""


class Faults:
    """Stops at the given call to the system: a dead process does nothing more, not even tidy up;
    on a full disk, or after an error of a program, others are still made.
    """

    def __init__(self, patch: pytest.MonkeyPatch, at: int, error: BaseException) -> None:
        self.at, self.error, self.calls, self.reached = at, error, 0, ""
        for name in STEPS:
            patch.setattr(os, name, self._watched(name, getattr(os, name)))
        patch.setattr(os, "fdopen", self._halving(os.fdopen))

    def step(self, name: str) -> None:
        self.calls += 1
        if self.calls == self.at or (self.reached and isinstance(self.error, Killed)):
            self.reached = self.reached or name
            raise self.error

    def _watched(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.step(name)
            return plain(*args, **options)

        return call

    def _halving(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Files of which only half may get to the disk."""

        def opened(*args: Any) -> Any:
            handle = plain(*args)

            class Halving:
                __enter__ = lambda self: self  # noqa: E731
                __exit__ = lambda self, *_: handle.close()  # noqa: E731
                fileno, flush = handle.fileno, handle.flush

                def write(_, content: bytes) -> None:
                    half = len(content) // 2
                    handle.write(content[:half])
                    handle.flush()
                    self.step("write")
                    handle.write(content[half:])

            return Halving()

        return opened


def standing(path: Path) -> float:
    """What all runs have cost; -1 where agents are refused."""
    try:
        return lifetime.worst(missing.checked(path))[0]
    except LedgerError:
        return -1.0


def enter(folder: Path, plan: Any, path: Path) -> tuple[Path, Callable[[], Any]]:
    two = account(folder, plan, "two")
    return path, lambda: two.enter("b" * 32)


def adopt_lost(folder: Path, plan: Any, path: Path) -> tuple[Path, Callable[[], Any]]:
    path.unlink()
    return path, lambda: missing.adopt(path)


def adopt_older(folder: Path, plan: Any, path: Path) -> tuple[Path, Callable[[], Any]]:
    older = path.read_bytes()
    begin(folder, plan, "three")
    path.write_bytes(older)
    return path, lambda: missing.adopt(path)


def adopt_renamed(folder: Path, plan: Any, path: Path) -> tuple[Path, Callable[[], Any]]:
    new = path.rename(path.with_name("anna.budget"))
    return new, lambda: missing.adopt(new)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return deployment(load(files(tmp_path_factory.mktemp("plan"))), 0)


@pytest.mark.parametrize(
    "error",
    [Killed(), OSError(errno.ENOSPC, "No space left on device"), RuntimeError("injected")],
    ids=["killed", "full", "failed"],
)
@pytest.mark.parametrize("scene", [enter, adopt_lost, adopt_older, adopt_renamed])
def test_a_budget_never_shrinks_and_the_same_call_goes_on(tmp_path, plan, scene, error):
    begin(tmp_path / "kept", plan, "one")
    reached = list[str]()
    for at in range(1, 50):
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "kept", folder)
        path, act = scene(folder, plan, folder / "state" / "alice.budget")
        before, why = standing(path), ""
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(patch, at, error)
            try:
                act()
            except (LedgerUnavailable, Killed, RuntimeError) as stopped:
                why = str(stopped)
        if not faults.reached:
            break
        reached.append(faults.reached)
        if isinstance(error, OSError) and why:
            again = "start this agent again" if scene is enter else f"adopt {path} again"
            assert "No space left" in why and again in why
        middle = standing(path)
        act()
        after = standing(path)
        assert after > before and middle in (before, after)
    assert {"open", "write", "fsync", "replace"} <= set(reached)


def test_a_run_that_was_entered_by_a_dead_process_is_synced_before_it_begins(
    tmp_path, plan, monkeypatch
):
    """Else a power cut after its first message could take the entry away, and leave the ledger."""
    path, act = enter(tmp_path, plan, tmp_path / "state" / "alice.budget")
    with monkeypatch.context() as patch:
        patch.setattr(mark, "sync", lambda _: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            act()
    synced = list[Path]()
    monkeypatch.setattr(mark, "sync", synced.append)
    assert act() == "" and synced == [path.parent]
