"""A command that several processes run together: the first one speaks for all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hearsay.cli.folders import until_the_end
from hearsay.cli.screen import console, errors


def taking_part(devices: str | None) -> tuple[Any, int | str | None]:
    """(the processes that run this command, the devices that it is to use), found before anything
    is computed.

    Args:
      devices: as typed: a number, "all", or None for one device of one process.
    """
    from hearsay.simulation.processes import Crew, join

    if devices is None:
        return Crew(), None
    join()
    import jax

    crew = Crew(jax.process_count() > 1)
    if crew.several:
        until_the_end(_for_python_alone())
        console.quiet = errors.quiet = not crew.first
    return crew, int(devices) if devices.isdigit() else devices


@contextmanager
def _for_python_alone() -> Iterator[None]:
    """Standard output is for answers: libraries that connect processes write lines of their own to
    it, which go to standard error meanwhile.
    """
    out, said = 1, sys.stdout
    said.flush()
    own = os.dup(out)
    os.dup2(2, out)
    # With --json what is printed meanwhile is dropped already.
    if said is sys.__stdout__:
        sys.stdout = os.fdopen(os.dup(own), "w", buffering=1, encoding="utf-8")
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = said
        os.dup2(own, out)
        os.close(own)
