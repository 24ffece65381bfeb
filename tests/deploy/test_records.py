"""What an agent knows: the task, and its own file as records; and errors that never show what is in
the file.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hearsay as hs
from hearsay.config import Config, build_problem
from hearsay.deploy.deployment import deployment
from hearsay.deploy.launch import initialise
from hearsay.deploy.records import NEEDS_SCHEMA, own, read
from hearsay.deploy.settings import Network, load
from hearsay.deploy.settings import read as settings
from hearsay.problems.task import Task

SECRET = 31337.25
COUNTS = (6, 9, 4)
NAMES = ("alice", "bob", "carol")


def network(
    folder: Path, problem: dict[str, Any], *, counts=COUNTS, suffix: str = ".npz"
) -> Network:
    agents = {
        name: {"endpoint": f"tcp/127.0.0.1:{7000 + i}", "records": count, "data": f"{name}{suffix}"}
        for i, (name, count) in enumerate(zip(NAMES, counts, strict=True))
    }
    return settings({"network": {"run": "wards"}, "agents": agents, "problem": problem}, folder)


LOGISTIC = {"loss": "logistic", "dimension": 3, "feature_bound": 1.0}
RIDGE = {"loss": "ridge", "dimension": 3, "feature_bound": 2.0, "label_bound": 1.5}
SOFTMAX = {"loss": "softmax", "dimension": 3, "feature_bound": 1.0, "classes": 3}
NEURAL = {"loss": "neural", "model": "mlp", "shape": [4, 4, 1], "classes": 3}
NOT_A_CLASS = (
    "data of agent bob: labels must be whole numbers from 0 to 2, and that of row 2 is not (rows"
    " are counted from 0)"
)


def save(folder: Path, name: str, features: Any, labels: Any, suffix: str = ".npz") -> Path:
    path = folder / f"{name}{suffix}"
    if suffix == ".npz":
        np.savez(path, features=features, labels=labels)
    else:
        rows = np.column_stack([np.asarray(features).reshape(len(labels), -1), labels])
        path.write_text(
            "# a comment\n"
            + "\n".join(",".join(repr(float(v)) for v in row) for row in rows)
            + "\n"
        )
    return path


def drawn(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3)) * 0.3, rng.integers(0, 2, count).astype(float)


@pytest.mark.parametrize("problem", [LOGISTIC, RIDGE])
def test_npz_and_csv_give_the_same_problem(tmp_path, problem):
    features, labels = drawn(9)
    found = []
    for suffix in (".npz", ".csv"):
        save(tmp_path, "bob", features, labels, suffix)
        found.append(own(network(tmp_path, problem, suffix=suffix), 1))
    one, two = found
    np.testing.assert_array_equal(one.records.features, two.records.features)
    np.testing.assert_array_equal(one.records.labels, two.records.labels)
    assert one.task.digest() == two.task.digest()
    assert one.task.assumptions == two.task.assumptions


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_records_keep_their_order_and_are_padded_as_in_a_simulation(tmp_path, suffix):
    features, labels = drawn(6)
    features *= 0.1  # none of them is too long
    save(tmp_path, "alice", features, labels, suffix)
    task, records, _ = own(network(tmp_path, LOGISTIC, suffix=suffix), 0)
    assert records.features.shape == (9, 3)
    np.testing.assert_array_equal(records.features[:6], features)
    np.testing.assert_array_equal(records.labels[:6], labels)
    assert not records.features[6:].any()
    assert not records.labels[6:].any()
    assert records.held == 6
    np.testing.assert_array_equal(task.counts, COUNTS)
    assert (task.dimension, task.agents, task.dtype) == (3, 3, np.float64)


def test_only_as_many_records_as_announced_are_used(tmp_path, caplog):
    features, labels = drawn(20)
    save(tmp_path, "carol", features, labels)
    records = own(network(tmp_path, LOGISTIC), 2).records
    assert not records.features[4:].any(), "the rest is padding, not records that nobody knows of"
    np.testing.assert_array_equal(records.labels[:4], labels[:4])
    assert "carol.npz has 20 records, and net.toml says 4: the last 16 are not used" in caplog.text


def test_long_records_are_shortened_and_the_others_left_alone(tmp_path):
    features = np.array([[0.1, 0.2, 0.3], [3.0, 4.0, 0.0], [1e200, 1e200, -1e200], [0.0, 0.0, 1.0]])
    save(tmp_path, "carol", features, np.ones(4))
    kept = own(network(tmp_path, LOGISTIC), 2).records.features[:4]
    np.testing.assert_array_equal(kept[[0, 3]], features[[0, 3]])
    np.testing.assert_allclose(kept[1], [0.6, 0.8, 0], rtol=1e-12)
    np.testing.assert_allclose(kept[2], np.array([1, 1, -1]) / np.sqrt(3), rtol=1e-12)
    assert np.linalg.norm(kept, axis=1).max() <= 1.0


def test_labels_are_clipped_to_their_bound(tmp_path):
    save(tmp_path, "carol", np.zeros((4, 3)), [-SECRET, -1.0, 1.4, SECRET])
    np.testing.assert_array_equal(
        own(network(tmp_path, RIDGE), 2).records.labels[:4], [-1.5, -1.0, 1.4, 1.5]
    )


def test_the_bounds_are_in_the_certificate_as_enforced(tmp_path):
    problem = own(network(tmp_path, RIDGE), None).task
    assert [a.kind for a in problem.assumptions] == ["enforced"]
    assert (
        "l2 norm above 2 down to it and clips labels to 1.5 in size" in problem.assumptions[0].text
    )
    assert problem.linear.feature_bound == 2.0


def test_whole_numbers_and_single_precision_are_read_as_float64(tmp_path):
    for kind in (np.int64, np.float32, np.uint8, bool):
        save(tmp_path, "carol", np.eye(3)[[0, 1, 2, 0]].astype(kind), np.array([0, 1, 1, 0], kind))
        records = own(network(tmp_path, LOGISTIC), 2).records
        assert records.features.dtype == records.labels.dtype == np.float64
        np.testing.assert_array_equal(records.labels[:4], [0, 1, 1, 0])


@pytest.mark.parametrize("agent", [0, 1, 2, None])
def test_only_an_agents_own_file_is_read_and_there_is_no_room_for_others(tmp_path, agent):
    if agent is not None:
        save(tmp_path, NAMES[agent], *drawn(9))
    found = own(network(tmp_path, LOGISTIC), agent)  # the other files do not exist
    assert type(found.task) is Task
    if agent is None:
        assert found.records is None
        assert found.rows.shape == (0, 32)
    else:
        assert found.records.features.shape == (9, 3)
        assert found.rows.shape == (COUNTS[agent], 32)


def test_the_plan_of_nobody_is_that_of_everybody(tmp_path):
    """Budgets follow from what is public: they are the same whoever works them out."""
    found = network(tmp_path, {**RIDGE, "radius": 3.0})
    found.config.privacy["epsilon"] = 3.0  # type: ignore[index]
    found.config.run["steps"] = 10  # type: ignore[index]
    plans = [deployment(found, None)]
    for agent, name in enumerate(NAMES):
        save(tmp_path, name, *drawn(9, agent))
        plans.append(deployment(found, agent))
    assert len({plan.certificate.to_json() for plan in plans}) == 1
    assert len({plan.algorithm for plan in plans}) == 1


def test_another_file_may_be_given_on_the_command_line(tmp_path):
    features, labels = drawn(6, seed=5)
    elsewhere = save(tmp_path, "elsewhere", features * 0.1, labels)
    found = network(tmp_path, LOGISTIC)
    found.config.privacy["epsilon"] = 3.0  # type: ignore[index]
    found.config.run["steps"] = 5  # type: ignore[index]
    np.testing.assert_array_equal(
        deployment(found, 0, elsewhere).records.features[:6], features * 0.1
    )


@pytest.mark.parametrize(("data", "partition"), [("digits", "iid"), ("breast-cancer", "dominant")])
def test_dealt_out_files_are_the_simulators_problem(tmp_path, data, partition):
    found = load(
        initialise(
            tmp_path / "net", agents=5, data=data, steps=200, partition=partition, secure=False
        )
    )
    simulated = hs.problems.logistic(
        data,
        agents=5,
        partition=partition,
        head_start=found.config.problem["head_start"],
        radius=found.config.problem["radius"],
    )
    for agent in range(5):
        problem, records, _ = own(found, agent)
        assert problem.digest() == simulated.task.digest()
        np.testing.assert_array_equal(records.features, simulated.features[agent])
        np.testing.assert_array_equal(records.labels, simulated.labels[agent])
        assert (problem.loss, problem.domain, problem.arrivals, problem.change, problem.seed) == (
            simulated.loss, simulated.domain, simulated.arrivals, simulated.change, simulated.seed,
        )  # fmt: skip


def pixels(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 4, 4, 1)).astype(np.uint8), rng.integers(0, 3, count)


def test_images_from_a_file_stay_bytes(tmp_path):
    features, labels = pixels(9)
    for shape in ((9, 4, 4, 1), (9, 16), (9, 4, 4)):
        save(tmp_path, "bob", features.reshape(shape), labels)
        problem, records, _ = own(network(tmp_path, NEURAL), 1)
        assert records.features.dtype == np.uint8
        np.testing.assert_array_equal(records.features, features)
        np.testing.assert_array_equal(records.labels, labels)
    images = hs.problems.Images("x", features, labels, features[:0], labels[:0], 3)
    simulated = build_problem(Config({"loss": "neural", "model": "mlp"}), data=images, agents=1)
    assert (problem.dimension, problem.loss) == (simulated.dimension, simulated.loss)
    np.testing.assert_array_equal(problem.start, simulated.start)


def test_a_csv_of_bytes_means_the_same(tmp_path):
    features, labels = pixels(9)
    save(tmp_path, "bob", features, labels, ".csv")
    records = own(network(tmp_path, NEURAL, suffix=".csv"), 1).records
    assert records.features.dtype == np.uint8
    np.testing.assert_array_equal(records.features, features)


def test_records_of_any_shape_as_plain_numbers(tmp_path):
    features, labels = pixels(9)
    for given in (features, features / 7):
        save(tmp_path, "bob", given, labels)
        task, records, _ = own(network(tmp_path, {**NEURAL, "bytes": False}), 1)
        assert not task.bytes
        assert records.features.dtype == np.float64
        np.testing.assert_array_equal(records.features, given)


@pytest.mark.parametrize("bad", [0.5, -1.0, 256.0, SECRET])
def test_numbers_that_are_no_bytes(tmp_path, bad):
    features, labels = pixels(9)
    wrong = features.astype(float)
    wrong[4, 0, 0, 0] = bad
    save(tmp_path, "bob", wrong, labels)
    said = refused(lambda: own(network(tmp_path, NEURAL), 1))
    assert (
        "features must be whole numbers from 0 to 255 (or bytes = false in [problem]), and row"
        " 4 has" in said
    )


@pytest.mark.parametrize("bad", [-1.0, 3.0, 1.5, SECRET])
def test_classes_that_there_are_not(tmp_path, bad):
    features, labels = pixels(9)
    save(tmp_path, "bob", features, np.where(np.arange(9) == 2, bad, labels))
    assert refused(lambda: own(network(tmp_path, NEURAL), 1)) == NOT_A_CLASS


def test_several_classes_of_a_linear_model(tmp_path):
    features = np.random.default_rng(0).normal(size=(9, 3))
    labels = np.arange(9.0) % 3
    save(tmp_path, "bob", features, labels)
    task, records, _ = own(network(tmp_path, SOFTMAX), 1)
    assert task.loss.classes == 3 and task.dimension == 9 and task.classification
    assert np.linalg.norm(records.features, axis=1).max() <= 1
    np.testing.assert_array_equal(records.labels, labels)
    # What a simulation of the same files has.
    each = [(features[: min(n, 9)].repeat(2, 0)[:n], np.zeros(n)) for n in COUNTS]
    same = hs.problems.softmax(each, classes=3, feature_bound=1.0)
    assert task.digest() == same.task.digest()
    assert task.change == same.task.change
    save(tmp_path, "bob", features, np.where(np.arange(9) == 2, SECRET, labels))
    said = refused(lambda: own(network(tmp_path, SOFTMAX), 1))
    assert said == NOT_A_CLASS


def test_public_data_gives_everybody_its_share():
    tables: dict[str, Any] = {
        "network": {"run": "wards"},
        "agents": {name: {"endpoint": f"tcp/127.0.0.1:{7000 + i}"} for i, name in enumerate(NAMES)},
        "problem": {"loss": "ridge", "records": 12, "dimension": 2, "seed": 4},
    }
    found = settings(tables, Path("/nowhere"))
    whole = hs.problems.ridge(agents=3, records=12, dimension=2, seed=4)
    assert own(found, None).records is None
    for agent in range(3):
        task, records, _ = own(found, agent)
        assert task.digest() == whole.task.digest()
        np.testing.assert_array_equal(records.features, whole.features[agent])
        np.testing.assert_array_equal(records.labels, whole.labels[agent])
        assert records.features.base is None, "nobody else's records are held on to"


def test_public_streams_have_no_records_to_take_out():
    tables: dict[str, Any] = {
        "network": {"run": "wards"},
        "agents": {name: {"endpoint": f"tcp/127.0.0.1:{7000 + i}"} for i, name in enumerate(NAMES)},
        "problem": {"loss": "estimation"},
    }
    task, records, rows = own(settings(tables, Path("/nowhere")), 1)
    assert (task.agents, task.endless, len(rows)) == (3, True, 1)
    assert records.target.shape == (6,)


@pytest.mark.parametrize(
    ("problem", "key"),
    [
        (LOGISTIC, "dimension"),
        (LOGISTIC, "feature_bound"),
        (RIDGE, "label_bound"),
        (RIDGE, "dimension"),
        (SOFTMAX, "classes"),
        (NEURAL, "shape"),
        (NEURAL, "classes"),
    ],
)
def test_what_no_file_can_say_must_be_given(tmp_path, problem, key):
    missing = {k: v for k, v in problem.items() if k != key}
    with pytest.raises(
        ValueError,
        match=rf"{key} in \[problem\] must be given where agents read files of their own",
    ):
        own(network(tmp_path, missing), None)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        (
            {"loss": "estimation"},
            (
                r"loss in \[problem\] where agents read files of their own must be one of logistic,"
                r" ridge, softmax, neural, tabular, got 'estimation'"
            ),
        ),
        ({"dimension": 0}, r"dimension in \[problem\] must be at least 1, got 0"),
        ({"feature_bound": -1.0}, r"feature_bound in \[problem\] must be positive, got -1"),
        (
            {"per_step": 5},
            r"per_step in \[problem\] must be at most the 4 records of agent 2, got 5",
        ),
        ({"per_step": 0}, r"per_step in \[problem\] must be at least 1, got 0"),
        ({"label_bound": 1.0}, r"key in \[problem\] must be one of .* got 'label_bound'"),
    ],
)
def test_wrong_keys_of_the_problem(tmp_path, replaced, message):
    with pytest.raises(ValueError, match=message):
        own(network(tmp_path, {**LOGISTIC, **replaced}), None)


def refused(call: Any) -> str:
    """The message of a refusal, which shows nothing that is in the file,
    itself or in what it was raised from.
    """
    with pytest.raises(ValueError) as caught:
        call()
    error: BaseException | None = caught.value
    assert error is not None
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None, (
        "a traceback in a log would show what NumPy says"
    )
    for shape in ("31337", "3.1337", "0x1.e9a5"):
        assert shape not in str(error)
    return str(error)


def row_with_secret(count: int = 9, width: int = 3) -> np.ndarray:
    features = np.zeros((count, width))
    features[5, 1] = SECRET
    return features


BAD: dict[str, tuple[Any, Any, str]] = {
    "too few columns": (
        row_with_secret(width=2),
        np.zeros(9),
        r"records must have shape \(3,\) and a label each, got \(2,\)",
    ),
    "too many columns": (
        row_with_secret(width=4),
        np.zeros(9),
        r"records must have shape \(3,\).*got \(4,\)",
    ),
    "too few records": (
        row_with_secret(8),
        np.zeros(8),
        r"bob.npz must hold the 9 records that net.toml says, got 8",
    ),
    "a label too few": (
        row_with_secret(),
        np.full(8, SECRET),
        r"a label each, got \(3,\) and labels \(8,\)",
    ),
    "labels in a column": (
        row_with_secret(),
        np.full((9, 1), SECRET),
        r"a label each, got \(3,\) and labels \(9, 1\)",
    ),
    "not a number": (
        np.where(np.arange(27).reshape(9, 3) == 14, np.nan, SECRET),
        np.zeros(9),
        "finite, and row 4 has one",
    ),
    "infinite": (
        np.where(np.arange(27).reshape(9, 3) == 5, np.inf, SECRET),
        np.zeros(9),
        "finite, and row 1 has one",
    ),
    "a label that is none": (
        row_with_secret(),
        np.where(np.arange(9) == 7, np.nan, SECRET),
        "finite, and row 7 has one",
    ),
    "a wrong label": (
        row_with_secret(),
        np.where(np.arange(9) == 3, SECRET, 0),
        "labels must be 0 or 1, and that of row 3 is not",
    ),
    "a label of 2": (
        row_with_secret(),
        np.where(np.arange(9) == 8, 2, 0),
        "labels must be 0 or 1, and that of row 8 is not",
    ),
    "words": (
        np.full((9, 3), "31337.25"),
        np.zeros(9),
        "features and labels must be arrays of numbers",
    ),
    "words as labels": (
        row_with_secret(),
        np.full(9, "31337.25"),
        "features and labels must be arrays of numbers",
    ),
    "complex numbers": (
        row_with_secret() + 1j,
        np.zeros(9),
        "features and labels must be arrays of numbers",
    ),
    "dates": (
        np.full((9, 3), 31337, "datetime64[s]"),
        np.zeros(9),
        "features and labels must be arrays of numbers",
    ),
    "one number": (
        np.float64(SECRET),
        np.float64(SECRET),
        "features and labels must be arrays of numbers",
    ),
    "one row": (np.full(9, SECRET), np.zeros(9), r"records must have shape \(3,\).*got \(\)"),
    "nothing": (np.zeros((0, 3)), np.zeros(0), "must hold the 9 records that net.toml says, got 0"),
    "objects": (
        np.full((9, 3), SECRET, object),
        np.zeros(9),
        r"data of agent bob: it cannot be read \(ValueError\): .*bob.npz",
    ),
}
if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
    BAD["beyond float64"] = (
        np.full((9, 3), np.longdouble(10) ** 400),
        np.zeros(9),
        "finite, and row 0 has one",
    )


@pytest.mark.parametrize("what", BAD)
def test_bad_records_are_refused_and_not_quoted(tmp_path, what):
    features, labels, message = BAD[what]
    save(tmp_path, "bob", features, labels)
    assert re.search(message, refused(lambda: own(network(tmp_path, LOGISTIC), 1)))


def as_npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, row_with_secret())
    return buffer.getvalue()


def as_npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def as_zip(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("features.npy", content)
        archive.writestr("labels.npy", content)
    return buffer.getvalue()


WHOLE = as_npz(features=row_with_secret(), labels=np.zeros(9))


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('31337.25: code from a data file was run')",))


UNREADABLE = {
    "empty.npz": b"",
    "text.npz": b"31337.25," * 20,
    "pickled.npz": pickle.dumps(Bomb()),
    "a single array.npz": as_npy(),
    "cut short.npz": WHOLE[:200],
    "half.npz": WHOLE[: len(WHOLE) // 2],
    "like a zip.npz": b"PK\x03\x04" + b"31337.25" * 20,
    "damaged.npz": WHOLE.replace(np.float64(SECRET).tobytes(), np.float64(SECRET + 1).tobytes()),
    "other names.npz": as_npz(x=row_with_secret(), y=np.zeros(9)),
    "no labels.npz": as_npz(features=row_with_secret()),
    "words.csv": b"0,0,31337.25x,1\n" * 9,
    "ragged.csv": b"0,0,31337.25,1\n0,31337.25,1\n" * 9,
    "semicolons.csv": b"0;0;31337.25;1\n" * 9,
    "a heading.csv": b"age,weight,31337.25,label\n" + b"0,0,0,1\n" * 9,
    "bytes.csv": b"\xff\xfe31337.25\n" * 9,
    "zeros.csv": b"\x00" * 100,
    "gap.csv": b"0,,31337.25,1\n" * 9,
}


@pytest.mark.parametrize("file", UNREADABLE)
def test_unreadable_files_are_named_and_not_quoted(tmp_path, file):
    path = tmp_path / f"data-{file}"
    path.write_bytes(UNREADABLE[file])
    said = refused(lambda: read(path, "bob", (3,), 9))
    assert said.startswith("data of agent bob: it cannot be read (")
    assert said.endswith(f"): {path}{NEEDS_SCHEMA if path.suffix == '.csv' else ''}")


def test_an_archive_without_arrays(tmp_path):
    (tmp_path / "bob.npz").write_bytes(as_zip(b"31337.25" * 20))
    assert "must be arrays of numbers" in refused(
        lambda: read(tmp_path / "bob.npz", "bob", (3,), 9)
    )


@pytest.mark.filterwarnings("ignore:loadtxt. input contained no data")
@pytest.mark.parametrize("content", [b"", b"# 31337.25,1\n"])
def test_a_csv_without_records(tmp_path, content):
    (tmp_path / "bob.csv").write_bytes(content)
    refused(lambda: read(tmp_path / "bob.csv", "bob", (3,), 9))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_csv_of_another_system(tmp_path, end):
    """Its line ends, and spaces that are no ASCII."""
    path = tmp_path / "bob.csv"
    path.write_bytes(end.join(["# größer", "1, 2,3,1", "4,5,6\u00a0,0", ""]).encode())
    np.testing.assert_array_equal(read(path, "bob", (3,), 2)[0], [[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    "line", ["31337,oops,1,0", "1,2,31337", "1,2,3,0,31337", "1,,31337,0", "1_0,2,31337,0"]
)
def test_a_csv_with_a_line_that_cannot_be_read(tmp_path, line):
    """It is named as an editor counts, and not quoted."""
    path = tmp_path / "bob.csv"
    path.write_text(f"# a comment\n1,2,3,1\n\n1,2,3,0  # another\n{line}\n1,2,3,0\n")
    said = refused(lambda: read(path, "bob", (3,), 4))
    assert "it cannot be read (ValueError, line 5)" in said


def test_a_file_of_another_kind(tmp_path):
    for name in ("bob.txt", "bob.parquet", "bob", "bob.npy"):
        (tmp_path / name).write_bytes(b"31337.25")
        said = refused(lambda name=name: read(tmp_path / name, "bob", (3,), 9))
        assert said == f"data of agent bob: it must be a .npz or a .csv file: {tmp_path / name}"


def test_no_file(tmp_path):
    with pytest.raises(
        ValueError,
        match=(
            r"data in \[agents.bob\] must name the file with this agent's records \(or give"
            r" --data\)"
        ),
    ):
        read(None, "bob", (3,), 9)
    with pytest.raises(FileNotFoundError, match=r"data of agent bob: .*none.npz is not there"):
        read(tmp_path / "none.npz", "bob", (3,), 9)
    with pytest.raises(FileNotFoundError, match="data of agent bob"):
        read(tmp_path, "bob", (3,), 9)


def test_rows_after_the_announced_ones_are_not_looked_at(tmp_path):
    features = np.full((10, 3), np.nan)
    features[:9] = 0.25
    assert read(save(tmp_path, "bob", features, np.zeros(10)), "bob", (3,), 9)[0].shape == (9, 3)
