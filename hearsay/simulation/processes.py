"""Several processes, on one machine or on many, that run one simulation together (layout.py).

They are JAX's own (`jax.distributed`): a launcher starts the same command once for every process,
and each finds the others (`join`). Every process reads the same configuration and the same data;
devices exchange what agents send. Before the first round they compare what they are about to run:
processes that differ in it refuse. The first process alone writes files and reports progress.

What one process decides (that a checkpoint is due, that it was asked to stop) all must do in the
same round, or they would wait for each other forever; and where the first cannot write or read, all
must end. So such decisions and errors are exchanged: `Crew` is how, and `Crew(False)`, a process by
itself, exchanges nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from hearsay import _validate as require

# Of what is sent to all at once.
_PART = 2**26
# Where launchers say how many processes there are, and which one this is.
_NUMBERS = (
    ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    ("SLURM_NTASKS", "SLURM_PROCID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
)
_ADDRESS = "JAX_COORDINATOR_ADDRESS"
# Of which jax finds the address of the first process by itself.
_FOUND = (
    ("SLURM_STEP_NODELIST", "SLURM_NTASKS"),
    ("OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_SIZE"),
)


def join() -> None:
    """Find the other processes, if a launcher has started any; before anything is computed.

    The environment says who they are: JAX_COORDINATOR_ADDRESS (host:port of the first process) with
    JAX_NUM_PROCESSES and JAX_PROCESS_ID, or what SLURM and MPI set (docs/many-machines.md).
    """
    if jax.distributed.is_initialized():
        return
    if address := os.environ.get(_ADDRESS):
        count, number = _numbers(address)
        jax.distributed.initialize(address, count, number, cluster_detection_method="deactivate")
    elif any(here in os.environ and int(os.environ.get(n, 1)) > 1 for here, n in _FOUND):
        jax.distributed.initialize()


def _numbers(address: str) -> tuple[int, int]:
    for names in _NUMBERS:
        if all(name in os.environ for name in names):
            count = require.count(names[0], _whole(os.environ[names[0]]))
            number = require.natural(names[1], _whole(os.environ[names[1]]))
            if number >= count:
                require.fail(names[1], f"below {names[0]} = {count}", number)
            return count, number
    raise ValueError(
        f"{_NUMBERS[0][0]} and {_NUMBERS[0][1]} must be set where {_ADDRESS} is (it is {address}):"
        " how many processes there are, and which of them this is, from 0"
    )


def _whole(text: str) -> int | str:
    return int(text) if text.isdigit() else text


@dataclass(frozen=True)
class Crew:
    """The processes of one run.

    Args:
      several: there are others, and all of them run it.
    """

    several: bool = False

    @property
    def first(self) -> bool:
        """The process that writes and speaks."""
        return not self.several or jax.process_index() == 0

    def agree(self, *what: Any) -> None:
        """Refuse unless all processes are about to run the same.

        Args:
          what: it is, with readable reprs.
        """
        if not self.several:
            return
        digest = hashlib.sha256(repr(what).encode()).digest()
        every = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
        other = np.flatnonzero((every != every[0]).any(axis=1))
        if len(other):
            raise ValueError(
                "all processes must run the same configuration, data and version of hearsay, but"
                f" {_listed(other)} of {len(every)} differ from process 0: start the same command"
                " everywhere"
            )

    def together(self, call: Callable[[], Any]) -> Any:
        """What the call gives, made by every process; where it fails in one, all refuse."""
        if not self.several:
            return call()
        found, error = None, None
        try:
            found = call()
        except Exception as caught:
            error = caught
        failed = np.flatnonzero(multihost_utils.process_allgather(np.int32(error is not None)))
        if error is not None:
            raise error
        if len(failed):
            raise ValueError(f"{_listed(failed)} could not go on, and has said why: nor can this")
        return found

    def by_first(self, call: Callable[[], bytes | None]) -> bytes:
        """What the call gives, made by the first process and told to all, as its error is."""
        if not self.several:
            return call() or b""
        found: bytes = b""
        error: Exception | None = None
        if self.first:
            try:
                found = call() or b""
            except Exception as caught:
                error, found = caught, str(caught).encode()
        told = self._told(found, error is not None)
        if error is not None:
            raise error
        return told

    def _told(self, content: bytes, failed: bool) -> bytes:
        parts, rest = divmod(len(content), _PART)
        head = np.array([parts, rest, failed], np.int32)
        parts, rest, failed = multihost_utils.broadcast_one_to_all(head).tolist()
        found = []
        for start, size in [*((p * _PART, _PART) for p in range(parts)), (parts * _PART, rest)]:
            mine = np.zeros(max(1, size), np.uint8)
            mine[:size] = (
                np.frombuffer(content[start : start + size], np.uint8) if self.first else 0
            )
            found.append(multihost_utils.broadcast_one_to_all(mine)[:size].tobytes())
        whole = b"".join(found)
        if failed and not self.first:
            raise ValueError(f"process 0 could not go on: {whole.decode()}")
        return whole

    def decided(self, due: bool, stop: bool) -> tuple[bool, bool]:
        """(what the first process says is due, whether any of them is to stop)."""
        if not self.several:
            return due, stop
        every = multihost_utils.process_allgather(np.array([due, stop], np.int32))
        return bool(every[0, 0]), bool(every[:, 1].any())

    def least(self, amount: int) -> int:
        """The smallest that any of them has, in whole MiB."""
        if not self.several:
            return amount
        return int(multihost_utils.process_allgather(np.int32(amount >> 20)).min()) << 20


def _listed(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:8].tolist())) + (", ..." if len(numbers) > 8 else "")
    return f"process {shown}" if len(numbers) == 1 else f"processes {shown}"
