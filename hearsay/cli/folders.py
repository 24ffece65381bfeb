"""The folder of a command, held for as long as the command runs,
and how a command ends that is interrupted.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

import typer

from hearsay._files import held
from hearsay.cli.screen import errors

_stack: ContextVar[ExitStack] = ContextVar("stack")
# The folder of a run, and the checkpoint of an earlier one that is to be replaced.
_run: ContextVar[tuple[Path, tuple[int, int] | None] | None] = ContextVar("run", default=None)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
KEPT = "Its checkpoint is kept."


@contextmanager
def command() -> Iterator[None]:
    """Around a whole command: releases its folder at the end, and turns Ctrl-C into a line that
    says how to go on, and exit code 130. A full disk says how to go on, too.
    """
    with ExitStack() as stack:
        token, run = _stack.set(stack), _run.set(None)
        try:
            yield
        except KeyboardInterrupt:
            interrupted("Nothing is left of it.")
        except OSError as error:
            if error.errno not in _FULL or (folder := _begun()) is None:
                raise
            said = f"{KEPT} Make room, then go on: {_going_on(folder)}"
            raise ValueError(f"{error}. {said}") from error
        finally:
            _stack.reset(token)
            _run.reset(run)


def claim(folder: Path) -> None:
    """Hold the folder until the command ends; refused where it cannot be written or another
    command writes into it.
    """
    require_writable(folder)
    until_the_end(held(folder))


def until_the_end(context: AbstractContextManager[Any]) -> None:
    """Enter it, and leave it when the command ends."""
    _stack.get().enter_context(context)


def claim_run(folder: Path, resume: bool, overwrite: bool) -> None:
    """Hold it for a run; refused where another run is in it, unless it is to be continued or
    replaced.
    """
    from hearsay.simulation import checkpoint

    claim(folder)
    checkpoint.require_free(folder, resume, overwrite, ("--resume", "--overwrite"))
    _run.set((folder, _state(folder) if overwrite else None))


def _state(folder: Path) -> tuple[int, int] | None:
    """Which checkpoint is there."""
    from hearsay.simulation import checkpoint

    try:
        found = (folder / checkpoint.NAME).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _begun() -> Path | None:
    """The folder in which this command has left a checkpoint to go on from."""
    if (run := _run.get()) is None:
        return None
    folder, before = run
    after = _state(folder)
    return None if after is None or after == before else folder


def _going_on(folder: Path) -> str:
    """The command as it was typed, to be continued: --resume needs the folder, and takes the seed
    from there.
    """
    words, kept = list(sys.argv[1:]), ["hearsay"]
    while words:
        word = words.pop(0)
        if word == "--seed" and words:
            words.pop(0)
        elif word not in ("--resume", "--overwrite") and not word.startswith("--seed="):
            kept.append(word)
    named = any(word in ("--out", "-o") or word.startswith("--out=") for word in kept)
    return shlex.join([*kept, *([] if named else ["--out", str(folder)]), "--resume"])


def interrupted(kept: str) -> NoReturn:
    """End a command that Ctrl-C has ended: what is left of it, and how to go on."""
    folder = _begun()
    kept = kept if folder is None else KEPT
    again = f"To start it again: {shlex.join(['hearsay', *sys.argv[1:]])}"
    again = again if folder is None else f"To go on: {_going_on(folder)}"
    errors.print(
        f"Interrupted. {kept} {again}",
        style="yellow",
        markup=False,
        soft_wrap=True,
    )
    raise typer.Exit(130) from None


def require_writable(folder: Path) -> None:
    """Fail before the run, not after it; nothing is made yet,
    so that a typo leaves no empty folder behind.
    """
    nearest = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not nearest.is_dir():
        raise ValueError(f"cannot write to {folder}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to {folder}: no permission in {nearest}")
