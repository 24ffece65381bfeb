"""An agent's own records as the problem that its algorithm sees, read from a file on its own host.

    NAME.npz    arrays `features` (records, ...) and `labels` (records,)
    NAME.csv    numbers, one record a line, the label last; lines that begin with # are skipped

The problem has all agents in it, because weights, schedules and certificates count them, but
only this agent's records: the others' are views of its own, which nothing reads. How many records
each agent has is public and comes from net.toml. Errors here name rows, never values: they
end up in logs.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.config import build_problem, loss_of
from hearsay.deploy.settings import Network
from hearsay.problems.data import datasets
from hearsay.problems.data.images import Images
from hearsay.problems.problem import Problem

log = logging.getLogger("hearsay.agent")
_BLOCK = 1024  # records that are turned into float64 at once
_FILE_KEYS = {
    "logistic": ("dimension", "feature_bound"),
    "ridge": ("dimension", "feature_bound", "label_bound"),
    "neural": ("shape", "classes"),
}


def own_problem(network: Network, agent: int | None) -> Problem:
    """The problem with that agent's records in it; None:
    with nobody's, which is all that a certificate needs.
    """
    return own(network, agent)[0]


def own(network: Network, agent: int | None) -> tuple[Problem, np.ndarray]:
    """The problem, and a hash of every record of the agent as it is in the file:
    before it is scaled or clipped, so that it is known again in a run with other bounds.
    """
    if not network.from_files:
        whole = build_problem(network.config, agents=len(network.members))
        if agent is None:
            return whole, hashed_rows(np.zeros((0, 1)), np.zeros(0))
        if whole.stream is not None:  # endless: what it is made from stands for all of its records
            parts = [np.asarray(part[agent], np.float64).reshape(-1) for part in whole.stream]
            return whole, hashed_rows(np.concatenate(parts)[None], np.zeros(1))
        features, labels = whole.features[agent], whole.labels[agent]
        count = int(whole.counts[agent])
        return _holding(whole, features, labels, whole.counts), hashed_rows(
            features[:count], labels[:count]
        )
    problem, shape = _empty(network)
    counts = np.array([member.records for member in network.members])
    if agent is None:
        nobody = _holding(
            problem, np.zeros((1, *shape), problem.features.dtype), np.zeros(1), counts
        )
        return nobody, hashed_rows(np.zeros((0, 1)), np.zeros(0))
    features, labels = read(
        network.members[agent].data, network.members[agent].name, shape, int(counts[agent])
    )
    rows = hashed_rows(features, labels)
    features, labels = _bounded(network, features, labels)
    # As in a simulation, where all agents' records are one array.
    padded = int(counts.max()) - len(labels)
    features = np.concatenate([features, np.zeros((padded, *shape), features.dtype)])
    return _holding(problem, features, np.concatenate([labels, np.zeros(padded)]), counts), rows


def hashed_rows(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(records, 32) bytes: equal where features and label are the same numbers, whatever kind of
    file they come from. They would confirm a guess of a record, and stay in memory.
    """
    found = np.empty((len(labels), 32), np.uint8)
    for start in range(0, len(labels), _BLOCK):
        block = slice(start, start + _BLOCK)
        numbers = np.column_stack(
            [features[block].reshape(len(labels[block]), -1), labels[block]]
        ).astype(np.float64)
        numbers += 0.0  # -0 is 0
        for row, content in enumerate(numbers, start):
            found[row] = np.frombuffer(hashlib.sha256(content).digest(), np.uint8)
    return found


def read(
    path: Path | None, name: str, shape: tuple[int, ...], records: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first `records` records of the file, as numbers that are finite."""
    if path is None:
        raise ValueError(
            f"data in [agents.{name}] must name the file with this agent's records (or give --data)"
        )
    if not path.is_file():
        raise FileNotFoundError(f"data of agent {name}: {path} is not there")
    try:
        if path.suffix == ".npz":
            # NumPy leaves a bad one open.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                features, labels = stored["features"], stored["labels"]
        elif path.suffix == ".csv":
            table = np.loadtxt(path, delimiter=",", ndmin=2)
            features, labels = table[:, :-1], table[:, -1]
        else:
            raise ValueError("it must be a .npz or a .csv file")
    except Exception as error:
        # What NumPy says of a bad file quotes it, and it may say it with any exception there is.
        reason = (
            str(error)
            if str(error).startswith("it must")
            else f"it cannot be read ({type(error).__name__})"
        )
        raise ValueError(f"data of agent {name}: {reason}: {path}") from None
    if not all(
        isinstance(part, np.ndarray) and part.dtype.kind in "biuf" and part.ndim
        for part in (features, labels)
    ):
        raise ValueError(
            f"data of agent {name}: features and labels must be arrays of numbers: {path}"
        )
    # What float64 cannot hold becomes infinite, and is found below.
    with np.errstate(over="ignore"):
        features = features if features.dtype == np.uint8 else features.astype(np.float64)
        labels = labels.astype(np.float64)
    features = (
        features.reshape(len(features), *shape) if features[:1].size == np.prod(shape) else features
    )
    if features.shape[1:] != shape or labels.shape != features.shape[:1]:
        raise ValueError(
            f"data of agent {name}: records must have shape {shape} and a label each, got"
            f" {features.shape[1:]} and labels {labels.shape}"
        )
    if len(labels) > records:
        log.warning(
            "%s has %d records, and net.toml says %d: the last %d are not used",
            path,
            len(labels),
            records,
            len(labels) - records,
        )
    if len(labels) < records:
        raise ValueError(
            f"data of agent {name}: {path} must hold the {records} records that net.toml says, got"
            f" {len(labels)}"
        )
    features, labels = features[:records], labels[:records]
    whole = np.isfinite(labels) & np.isfinite(features.reshape(records, -1)).all(axis=1)
    if not whole.all():
        raise ValueError(
            f"data of agent {name}: every number must be finite, and row {int(np.argmin(whole))}"
            " has one that is not"
        )
    return features, labels


def _bounded(
    network: Network, features: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    keys, loss = network.config.problem, loss_of(network.config)
    if loss == "neural":
        kept = (
            _as_bytes(features)
            if keys.get("bytes", True)
            else features.astype(np.float64, copy=False)
        )
        allowed, rule = (
            (labels == np.floor(labels)) & (labels >= 0) & (labels < keys["classes"]),
            f"0 to {keys['classes'] - 1}",
        )
    else:
        kept = datasets.shorten(features, keys["feature_bound"])
        allowed, rule = (
            (np.isin(labels, (0, 1)), "0 or 1")
            if loss == "logistic"
            else (np.ones(len(labels), bool), "")
        )
    if not allowed.all():
        raise ValueError(f"labels must be {rule}, and that of row {int(np.argmin(allowed))} is not")
    bound = require.optional(require.bound)("label_bound in [problem]", keys.get("label_bound"))
    return kept, labels if bound is None else np.clip(labels, -bound, bound)


def _as_bytes(features: np.ndarray) -> np.ndarray:
    """What a model reads as v / 255; a .csv has no bytes, and means the same."""
    if features.dtype == np.uint8:
        return features
    whole = (
        ((features >= 0) & (features <= 255) & (features == np.floor(features)))
        .reshape(len(features), -1)
        .all(axis=1)
    )
    if not whole.all():
        row = int(np.argmin(whole))
        raise ValueError(
            "features must be whole numbers from 0 to 255 (or bytes = false in [problem]), and row"
            f" {row} has one that is not"
        )
    return features.astype(np.uint8)


def _empty(network: Network) -> tuple[Problem, tuple[int, ...]]:
    """The problem of one agent whose records are all zero, and the shape of a record."""
    keys, loss = network.config.problem, loss_of(network.config)
    require.one_of("loss in [problem] where agents read files of their own", loss, _FILE_KEYS)
    for key in _FILE_KEYS[loss]:
        if key not in keys:
            raise ValueError(
                f"{key} in [problem] must be given where agents read files of their own: it must"
                " hold for all of them"
            )
    rows = require.count("per_step in [problem]", keys.get("per_step", 1))
    config = network.config
    for key in _FILE_KEYS[loss]:
        config = config.without("problem", key)
    data: Any
    if loss == "neural":
        shape = tuple(require.count("shape in [problem]", size) for size in keys["shape"])
        kind = np.uint8 if keys.get("bytes", True) else np.float64
        zeros, config = np.zeros((rows, *shape), kind), config.without("problem", "bytes")
        data = Images(
            network.run,
            zeros,
            np.zeros(rows, np.int64),
            zeros[:0],
            np.zeros(0, np.int64),
            keys["classes"],
        )
    else:
        shape = (require.count("dimension in [problem]", keys["dimension"]),)
        zeros, bound = (
            np.zeros((rows, *shape)),
            require.bound("feature_bound in [problem]", keys["feature_bound"]),
        )
        size = (
            1.0
            if loss == "logistic"
            else require.bound("label_bound in [problem]", keys["label_bound"])
        )
        reason = f"each agent scales a record with an l2 norm above {bound:g} down to it"
        reason += "" if loss == "logistic" else f" and clips labels to {size:g} in size"
        data = datasets.Dataset(
            network.run,
            zeros,
            np.zeros(rows),
            zeros[:0],
            np.zeros(0),
            bound,
            size,
            "enforced",
            f"{reason}.",
        )
    return build_problem(config, data=data, agents=1), shape


def _holding(
    problem: Problem, features: np.ndarray, labels: np.ndarray, counts: np.ndarray
) -> Problem:
    """The problem of len(counts) agents in which every one's records are views of the same."""
    if counts.min() < problem.arrivals.per_step:
        short = int(np.argmin(counts))
        require.fail(
            "per_step in [problem]",
            f"at most the {counts[short]} records of agent {short}",
            problem.arrivals.per_step,
        )
    agents = len(counts)
    return replace(
        problem,
        features=np.broadcast_to(features, (agents, *features.shape)),
        labels=np.broadcast_to(labels, (agents, *labels.shape)),
        counts=counts,
    )
