"""What left the agents of a run (worker.py, `capture`), and whether it is as loud and as quiet as a
certificate with shared noise says.

Records are zeros and, in P1 and P2, everything that moves a state is tiny, so that every value
before its noise is known from outside: zero. Elsewhere values are noted by the agents themselves.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from hearsay.privacy.coalitions import Shared
from tests.deploy.networks import NAMES, write

DIMENSION = 400
# Of every number that is compared: a run has fewer than 200 of them.
FALSE_ALARM = 1e-8
STILL = {
    "P1": {"name": "ldp-online", "step": 1e-9, "coupling": 1e-9},
    "P2": {
        "name": "gradient-tracking",
        "step": 1e-9,
        "coupling": 1e-9,
        "tracking": 1e-9,
        "tracker_noise": 0.3,
    },
    "P3": {
        "name": "gradient-perturbation",
        "step": 0.5,
        "coupling": 1e-9,
        "sampling": "cyclic",
        "sample_size": 2,
    },
    "P4": {
        "name": "correlated-federated",
        "factorization": "identity",
        "sampling": "cyclic",
        "sample_size": 2,
    },
}


def still(folder: Path, keys: Path, which: str = "P1", names=NAMES, rounds=4, **more) -> Path:
    """A net.toml over TLS of agents with nothing to say, whose noise has scale 1."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "zeros.npz", features=np.zeros((20, DIMENSION)), labels=np.zeros(20))
    secrets = {"colluders": 1, "ratio": 2.0, **more.pop("secrets", {})}
    law = {} if which == "P4" else {"mechanism": "gaussian"}
    given = {
        "names": names,
        "secure": True,
        "problem": {
            "loss": "ridge",
            "dimension": DIMENSION,
            "radius": 1000.0,
            "ridge": 0.0,
            "feature_bound": 1.0,
            "label_bound": 1.0,
        },
        "agents": {name: {"data": "zeros.npz", "records": 20} for name in names},
        "algorithm": {**law, "noise": 1.0, **STILL[which]},
        "privacy": {"delta": 1e-5},
        "run_table": {"steps": rounds},
        "secrets": secrets,
        **more,
    }
    given["network"] = {"keys": str(keys), **given.get("network", {})}
    return write(folder, **given)


def unpacked(payload: bytes) -> dict[str, np.ndarray]:
    """A message's fields, read as safetensors are, by nothing of hearsay's."""
    size = int.from_bytes(payload[:8], "little")
    head, data = json.loads(payload[8 : 8 + size]), payload[8 + size :]
    head.pop("__metadata__", None)
    assert {one["dtype"] for one in head.values()} == {"F64"}
    return {
        field: np.frombuffer(data[slice(*one["data_offsets"])], "<f8").reshape(one["shape"])
        for field, one in head.items()
    }


class Capture:
    """Of the agents of a run.

    Args:
      folder: that their processes had for it.
      names: of all agents.
    """

    def __init__(self, folder: Path, names=NAMES) -> None:
        self.folder, self.names = folder, list(names)

    def payload(self, name: str, step: int) -> bytes:
        """The only one that left, however often."""
        (found,) = self.folder.glob(f"{name}.{step}.*.message")
        return found.read_bytes()

    def message(self, name: str, step: int) -> dict[str, np.ndarray]:
        return unpacked(self.payload(name, step))

    def messages(self, rounds: int, field: str = "params") -> np.ndarray:
        """(round, agent, coordinate)."""
        return np.array(
            [[self.message(name, step)[field] for name in self.names] for step in range(rounds)]
        )

    def noise(self, steps: Sequence[int], field: str) -> np.ndarray:
        """(round, agent, coordinate): what was added to the values that agents noted."""
        return np.array(
            [
                [
                    self.message(name, step)[field] - self.drawn(name, step, field)["value"]
                    for name in self.names
                ]
                for step in steps
            ]
        )

    def drawn(self, name: str, step: int, field: str) -> dict[str, np.ndarray]:
        """`value`, and in steps of the grid `own` and `shared` (partner, coordinate)."""
        return dict(np.load(self.folder / f"{name}.{step}.{field}.npz"))


def require_opposite(capture: Capture, steps: Sequence[int], fields=("params",)) -> None:
    """Of a complete graph: both ends of every pair have drawn the same whole numbers, and in the
    sum of all messages nothing but own noise is left, to the last bit.
    """
    names, seen = capture.names, set()
    for step, field in itertools.product(steps, fields):
        drawn = [capture.drawn(name, step, field) for name in names]
        for i, j in itertools.combinations(range(len(names)), 2):
            here, there = drawn[i]["shared"][j - 1], drawn[j]["shared"][i]
            np.testing.assert_array_equal(here, there)
            seen.add(here.tobytes())
        sent = np.array([capture.message(name, step)[field] for name in names])
        own = np.array([one["own"] for one in drawn])
        grid = grid_of(sent)
        alone = np.array([np.rint(one["value"] / grid) for one in drawn]) + own
        assert np.all(sent / grid == np.rint(sent / grid))
        np.testing.assert_array_equal((sent / grid).astype(np.int64).sum(axis=0), alone.sum(axis=0))
        assert np.abs(sent / grid - alone).max() > 2**36, "sharing must have done something"
    pairs = len(names) * (len(names) - 1) // 2
    assert len(seen) == len(steps) * len(fields) * pairs, "noise was drawn twice"


def grid_of(sent: np.ndarray) -> float:
    """The largest power of two of which all are multiples."""
    grid = 2.0 ** np.floor(np.log2(np.abs(sent).max()))
    while not np.all(sent / grid == np.rint(sent / grid)):
        grid /= 2
    return grid


def require_variance(numbers: np.ndarray, variance: float) -> None:
    """Chi-squared, on both sides."""
    total = np.sum(numbers**2) / variance
    law = stats.chi2(numbers.size)
    assert min(law.cdf(total), law.sf(total)) > FALSE_ALARM / 2, (total / numbers.size, variance)


def require_as_promised(sent: np.ndarray, shared: Shared, scale: float) -> None:
    """Messages (round, agent, coordinate) of agents with own noise of that scale.

    Each is as loud as own and shared noise together, their sum as quiet as own noise alone, in
    every round; and rounds have nothing to do with each other.
    """
    agents = sent.shape[1]
    for messages in sent:
        require_variance(messages.sum(axis=0), agents * scale**2)
        for agent, message in enumerate(messages):
            require_variance(message, scale**2 * shared.variance(agent))
    for one, other in itertools.combinations(range(len(sent)), 2):
        for agent in range(agents):
            require_unrelated(sent[one, agent], sent[other, agent])


def require_unrelated(one: np.ndarray, other: np.ndarray) -> None:
    """By the correlation of normal numbers."""
    found = np.arctanh(stats.pearsonr(one, other).statistic) * np.sqrt(one.size - 3)
    assert abs(found) < stats.norm.isf(FALSE_ALARM / 2), found
