"""The folder of a command, held for as long as the command runs,
and how a command ends that is interrupted.
"""

from __future__ import annotations

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


@contextmanager
def command() -> Iterator[None]:
    """Around a whole command: releases its folder at the end, and turns Ctrl-C into a line that
    says how to go on, and exit code 130.
    """
    with ExitStack() as stack:
        token = _stack.set(stack)
        try:
            yield
        except KeyboardInterrupt:
            interrupted("Nothing is left of it.")
        finally:
            _stack.reset(token)


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


def interrupted(kept: str) -> NoReturn:
    """End a command that Ctrl-C has ended: what is left of it, and how to go on."""
    again = shlex.join(["hearsay", *sys.argv[1:]])
    errors.print(
        f"Interrupted. {kept} To start it again: {again}",
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
