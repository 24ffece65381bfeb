"""What an agent knows of the problem: the task, from net.toml, and its own records, from a file on
its own host.

    NAME.npz    arrays `features` (records, ...) and `labels` (records,)
    NAME.csv    numbers, one record a line, the label last; lines that begin with # are skipped

With a schema in [problem] it is a table, a row for every record: a .csv with a header or a
.parquet (tables/reading.py). What was clipped, unknown or missing is in the agent's own log.

A file that is followed while it grows (following.py) is a .csv, of which whole lines are read: what
stands after the last line end is still being written.

The task counts all agents, because weights, schedules and certificates do; how many records each of
them has is public and in net.toml. Nobody else's records are here. Errors name rows, never values:
they end up in logs.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.config import build_problem, build_task, loss_of
from hearsay.deploy.growing import (
    BLANK,
    EMPTY,
    first_of,
    lines_of,
    odd_line,
    require_growing,
    whole_lines,
)
from hearsay.deploy.settings import Network
from hearsay.problems import TASKS, table_facts
from hearsay.problems.data import datasets
from hearsay.problems.data.holdings import Facts, bounded, served
from hearsay.problems.data.records import Records
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.loss import BoundedLoss
from hearsay.problems.sampling.samplers import Arrivals
from hearsay.problems.task import Task
from hearsay.tables.csv_files import CsvFile
from hearsay.tables.encoding import encode
from hearsay.tables.fingerprints import Hashing
from hearsay.tables.reading import TEXT, read_table
from hearsay.tables.schema import Schema

log = logging.getLogger("hearsay.agent")
# What was counted in a table is private: `hearsay agent --check` shows it, and no log keeps it.
owner = logging.getLogger("hearsay.owner")
NEEDS_SCHEMA = " (a table with a header needs a schema in [problem]: docs/tables.md)"
_BLOCK = 1024  # records that are turned into float64 at once
_FROM_0 = " (rows are counted from 0)"
# What no file can say, because it must hold for all of them.
_FILE_KEYS = {
    "logistic": ("dimension", "feature_bound"),
    "ridge": ("dimension", "feature_bound", "label_bound"),
    "softmax": ("dimension", "feature_bound", "classes"),
    "neural": ("shape", "classes"),
}


class Own(NamedTuple):
    """The task, which is public; the agent's own records; and a hash of every one of them as it is
    in the file: before it is scaled or clipped, so that it is known again in a run with other
    bounds, or with another schema (all columns of a table are in it, whatever is read of them).
    Records that have yet to arrive are zeros, and have no hash.
    """

    task: Task
    records: Records | Stream | None
    rows: np.ndarray


def own(network: Network, agent: int | None) -> Own:
    """What that agent knows; None: what everybody does, which is all that a certificate needs."""
    nothing = hashed_rows(np.zeros((0, 1)), np.zeros(0))
    if not network.from_files:
        whole = build_problem(network.config, agents=len(network.members))
        if agent is None:
            return Own(whole.task, None, nothing)
        dealt = whole.records.of(agent)
        return Own(whole.task, dealt, _hashed(dealt))
    task = public_task(network)
    if agent is None:
        return Own(task, None, nothing)
    member, count = network.members[agent], int(task.counts[agent])
    size = whole_lines(_there(member.data, member.name)) if network.follow else None
    if task.schema is not None:
        features, labels, rows = read_rows(member.data, member.name, task.schema, count, size)
    else:
        features, labels = read(member.data, member.name, task.shape, count, size)
        rows = hashed_rows(features, labels)
        try:
            features, labels = _bounded(network, features, labels)
        except ValueError as error:
            raise ValueError(f"data of agent {member.name}: {error}") from None
    if isinstance(task.loss, BoundedLoss):
        task.loss.require_admissible(features, labels)
    # As in a simulation, where all agents' records are one array.
    missing = task.most - len(labels)
    features = np.concatenate([features, np.zeros((missing, *task.shape), features.dtype)])
    labels = np.concatenate([labels, np.zeros(missing)])
    return Own(task, Records(features, labels, np.array(count)), rows)


def public_task(network: Network) -> Task:
    """The task of agents that read files of their own, from what net.toml says of all of them."""
    keys, loss = network.config.problem, loss_of(network.config)
    require.one_of("loss in [problem] where agents read files of their own", loss, TASKS)
    counts = np.array([member.records for member in network.members])
    if loss == "tabular":
        if "schema" not in keys:
            raise ValueError("schema in [problem] must be given with loss = 'tabular'")
        known = table_facts(Schema.of(keys["schema"]), counts, network.run)
        return build_task(network.config, known, ("schema",))
    for key in _FILE_KEYS[loss]:
        if key not in keys:
            raise ValueError(
                f"{key} in [problem] must be given where agents read files of their own: it must"
                " hold for all of them"
            )
    steps = require.count("per_step in [problem]", keys.get("per_step", 1))
    served(Arrivals(steps), counts, "per_step in [problem]")
    if loss == "neural":
        shape = tuple(require.count("shape in [problem]", size) for size in keys["shape"])
        classes = require.count("classes in [problem]", keys["classes"], 2)
        plain = require.flag("bytes in [problem]", keys.get("bytes", True))
        known = Facts(network.run, shape, counts, classes=classes, bytes=plain)
        return build_task(network.config, known, (*_FILE_KEYS[loss], "bytes"))
    shape = (require.count("dimension in [problem]", keys["dimension"]),)
    bound = require.bound("feature_bound in [problem]", keys["feature_bound"])
    reason, size = f"each agent scales a record with an l2 norm above {bound:g} down to it", 1.0
    classes = 2
    if loss == "softmax":
        classes = require.count("classes in [problem]", keys["classes"], 2)
        size = float(classes - 1)
    if loss == "ridge":
        size = require.bound("label_bound in [problem]", keys["label_bound"])
        reason += f" and clips labels to {size:g} in size"
    why = (bounded("enforced", bound, f"{reason}."),)
    known = Facts(network.run, shape, counts, bound, size, why, loss != "ridge", classes)
    return build_task(network.config, known, _FILE_KEYS[loss])


def _hashed(records: Records | Stream) -> np.ndarray:
    # What an endless stream is made from stands for all of its records.
    if isinstance(records, Stream):
        parts = [np.asarray(part, np.float64).reshape(-1) for part in records]
        return hashed_rows(np.concatenate(parts)[None], np.zeros(1))
    count = int(records.held)
    return hashed_rows(records.features[:count], records.labels[:count])


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


def read_rows(
    path: Path | None, name: str, schema: Schema, records: int, size: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first `records` rows of the agent's table as records, and a hash of each; of a file that
    grows those that are there, in its first `size` bytes.
    """
    path = _there(path, name)
    if size is not None:
        require_growing(path, name, TEXT)
        if lines_of(path, size, EMPTY) <= 1:  # no more than a header
            return np.zeros((0, schema.width)), np.zeros(0), np.zeros((0, 32), np.uint8)
    try:
        table = Hashing(read_table(path) if size is None else CsvFile(path, str(path), size))
        found = encode(schema, table)
    except ValueError as error:
        raise ValueError(f"data of agent {name}: {error}") from None
    for line in found.counted.lines:
        owner.info("%s", line)
    assert found.labels is not None
    _require_enough(path, name, len(found.labels), records, size)
    return found.features[:records], found.labels[:records], table.hashes[:records]


def _there(path: Path | None, name: str) -> Path:
    if path is None:
        raise ValueError(
            f"data in [agents.{name}] must name the file with this agent's records (or give --data)"
        )
    if not path.is_file():
        raise FileNotFoundError(f"data of agent {name}: {path} is not there")
    return path


def _require_enough(path: Path, name: str, found: int, records: int, size: int | None) -> None:
    if found > records:
        log.warning(
            "%s has %d records, and net.toml says %d: the last %d are not used",
            path,
            found,
            records,
            found - records,
        )
    if found < records and size is None:
        raise ValueError(
            f"data of agent {name}: {path} must hold the {records} records that net.toml says, got"
            f" {found}"
        )


def read(
    path: Path | None, name: str, shape: tuple[int, ...], records: int, size: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The first `records` records of the file, as numbers that are finite; of a file that grows
    those that are there, in its first `size` bytes.
    """
    path = _there(path, name)
    if size is not None:
        require_growing(path, name, (".csv",))
        if not lines_of(path, size, BLANK, b"#"):
            return np.zeros((0, *shape)), np.zeros(0)
    try:
        if path.suffix == ".npz":
            # NumPy leaves a bad one open.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                features, labels = stored["features"], stored["labels"]
        elif path.suffix == ".csv":
            lines = path if size is None else first_of(path, size)
            table = np.loadtxt(lines, delimiter=",", ndmin=2)
            features, labels = table[:, :-1], table[:, -1]
        else:
            raise ValueError("it must be a .npz or a .csv file")
    except Exception as error:
        # What NumPy says of a bad file quotes it, and it may say it with any exception there is.
        text = path.suffix == ".csv"
        where = odd_line(path) if text and isinstance(error, ValueError) else ""
        reason = (
            str(error)
            if str(error).startswith("it must")
            else f"it cannot be read ({type(error).__name__}{where})"
        )
        hint = NEEDS_SCHEMA if text else ""
        raise ValueError(f"data of agent {name}: {reason}: {path}{hint}") from None
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
    _require_enough(path, name, len(labels), records, size)
    features, labels = features[:records], labels[:records]
    finite = np.isfinite(labels) & np.isfinite(features.reshape(len(labels), -1)).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"data of agent {name}: every number must be finite, and row {int(np.argmin(finite))}"
            f" has one that is not{_FROM_0}"
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
    else:
        kept = datasets.shorten(features, keys["feature_bound"])
    classes = {"logistic": 2, "ridge": None}.get(loss, keys.get("classes"))
    allowed, rule = datasets.allowed_labels(labels, classes)
    if not allowed.all():
        row = int(np.argmin(allowed))
        raise ValueError(f"labels must be {rule}, and that of row {row} is not{_FROM_0}")
    bound = require.optional(require.bound)("label_bound in [problem]", keys.get("label_bound"))
    return kept, labels if bound is None else np.clip(labels, -bound, bound)


def _as_bytes(features: np.ndarray) -> np.ndarray:
    """What a model reads as v / 255; a .csv has no bytes, and means the same."""
    if features.dtype == np.uint8:
        return features
    each = (features >= 0) & (features <= 255) & (features == np.floor(features))
    whole = each.all(axis=tuple(range(1, features.ndim)))
    if not whole.all():
        row = int(np.argmin(whole))
        raise ValueError(
            "features must be whole numbers from 0 to 255 (or bytes = false in [problem]), and row"
            f" {row} has one that is not{_FROM_0}"
        )
    return features.astype(np.uint8)
