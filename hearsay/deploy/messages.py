"""What a message looks like on the wire, and everything that is not one.

A message is a safetensors file: eight bytes with the length of a JSON header, the header, the
numbers. Its metadata say schema, run, config (the hash of what all agents must agree on), agent,
instance (the ledger that it comes from) and round. Nothing in it is ever executed, and nothing is
believed: `Format.decode` checks every byte of the layout against what this run's messages must look
like and raises `Rejected` with a reason from a short list otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hearsay.deploy.settings import SCHEMA
from hearsay.release.tensors import KINDS, pack

HEADER = 4096  # bytes: more than any header of ours has


class Rejected(Exception):
    """Not a message of this run. The reason is one of a few words that a log can count."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass(frozen=True)
class Format:
    """The messages of one run: the hash of its configuration, and the shape of every field."""

    run: str
    config: str
    shapes: Mapping[str, tuple[int, ...]]
    dtype: np.dtype

    @property
    def largest(self) -> int:
        """No message of this run has more bytes."""
        return 8 + HEADER + sum(self._bytes(shape) for shape in self.shapes.values())

    def _bytes(self, shape: tuple[int, ...]) -> int:
        return int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize

    def encode(self, agent: str, step: int, fields: Mapping[str, Any], instance: str = "") -> bytes:
        # Adding 0 turns -0 into 0: whether a zero is negative says something of what it
        # was made from.
        arrays = {
            name: np.add(fields[name], 0.0, dtype=self.dtype).reshape(shape)
            for name, shape in self.shapes.items()
        }
        return b"".join(pack(arrays, self._metadata(agent, step, instance)))

    def decode(
        self, payload: bytes | memoryview, agent: str, step: int, instance: str = ""
    ) -> dict[str, np.ndarray]:
        """The fields of that agent's message of that round, as read-only views of the payload."""
        payload = memoryview(payload)
        header, start = self._header(payload)
        self._check_metadata(
            header.pop("__metadata__", None), self._metadata(agent, step, instance)
        )
        if set(header) != set(self.shapes):
            raise Rejected("wrong fields")
        found, filled = {}, []
        for name, shape in self.shapes.items():
            about = header[name]
            kind = KINDS.get(str(about.get("dtype"))) if isinstance(about, dict) else None
            if kind is None or kind != self.dtype:  # NumPy takes None for float64
                raise Rejected("wrong type", name)
            if about.get("shape") != list(shape):
                raise Rejected("wrong shape", name)
            begin, end = self._offsets(about.get("data_offsets"), shape, len(payload) - start)
            filled.append((begin, end))
            found[name] = np.frombuffer(payload[start + begin : start + end], self.dtype).reshape(
                shape
            )
        filled.sort()
        if [begin for begin, _ in filled] != [0, *(end for _, end in filled[:-1])] or filled[-1][
            1
        ] != len(payload) - start:
            raise Rejected("not safetensors", "gaps, overlaps or bytes after the end")
        for name, values in found.items():
            if not np.isfinite(values).all():
                raise Rejected("not finite", name)
        return found

    def _metadata(self, agent: str, step: int, instance: str) -> dict[str, str]:
        who = {"agent": agent, "instance": instance, "round": str(step)}
        return {"schema": str(SCHEMA), "run": self.run, "config": self.config, **who}

    def _header(self, payload: memoryview) -> tuple[dict[str, Any], int]:
        if len(payload) > self.largest:
            raise Rejected("oversized", f"{len(payload)} bytes")
        size = int.from_bytes(payload[:8], "little")
        if len(payload) < 8 or not 2 <= size <= min(HEADER, len(payload) - 8):
            raise Rejected("not safetensors", "length of the header")
        try:
            header = json.loads(bytes(payload[8 : 8 + size]))
        except (ValueError, RecursionError):
            raise Rejected("not safetensors", "header") from None
        if not isinstance(header, dict):
            raise Rejected("not safetensors", "header")
        return header, 8 + size

    def _check_metadata(self, metadata: Any, wanted: dict[str, str]) -> None:
        if not isinstance(metadata, dict):
            raise Rejected("not safetensors", "metadata")
        for key, reason in (
            ("schema", "wrong schema"),
            ("run", "wrong run"),
            ("config", "wrong configuration"),
            ("agent", "wrong agent"),
            ("instance", "another process of this name"),
            ("round", "wrong round"),
        ):
            if metadata.get(key, "") != wanted[key]:
                raise Rejected(reason)

    def _offsets(self, given: Any, shape: tuple[int, ...], available: int) -> tuple[int, int]:
        if (
            not isinstance(given, list)
            or len(given) != 2
            or not all(type(place) is int for place in given)
        ):
            raise Rejected("not safetensors", "offsets")
        begin, end = given
        if not 0 <= begin <= end <= available or end - begin != self._bytes(shape):
            raise Rejected("not safetensors", "offsets")
        return begin, end
