"""Records that arrive while the network runs: a round waits for its own, what it computes is what
it would have computed with all records there, and nothing that was read may change.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hearsay as hs
from hearsay.deploy import agent as module
from hearsay.deploy import book
from hearsay.deploy.deployment import deployment
from hearsay.deploy.growing import whole_lines
from hearsay.deploy.host import Refused, Stopped
from hearsay.deploy.ledger import LedgerError
from hearsay.deploy.records import own
from hearsay.deploy.settings import load
from hearsay.tradeoff import contest
from hearsay.tradeoff.made_up import KINDS
from tests.deploy.networks import (
    Processes,
    Threads,
    models,
    run_threads,
    size_of,
    wait_for,
    write,
)

NAMES = ("alice", "bob", "carol")
HEAD, STEPS, SEED = 3, 6, 3
RECORDS = HEAD + STEPS
SCHEMA = hs.Schema({"age": hs.Number(0, 120), "cost": hs.Number(0, 100)}, "cost")
PROBLEMS = {
    "numbers": {
        "loss": "ridge",
        "dimension": 2,
        "feature_bound": 2.0,
        "label_bound": 1.5,
        "radius": 3.0,
    },
    "table": {"schema": "schema.toml", "ridge": 0.01, "radius": 3.0, "clip": 0.5},
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "_LOOK", 0.005)


def lines(kind: str, agent: int, count: int = RECORDS) -> list[str]:
    """Those of the agent's file, the header too."""
    rng = np.random.default_rng(agent)
    if kind == "table":
        ages = rng.uniform(0, 120, count).round(1)
        return ["age,cost", *(f"{age},{(age / 2 + rng.uniform(0, 9)):.2f}" for age in ages)]
    return [",".join(repr(float(v)) for v in row) for row in rng.normal(0, 0.5, (count, 3))]


class Files:
    """The agents' files, of which so many records are there."""

    def __init__(self, folder: Path, kind: str, there: int = 0) -> None:
        self.kind, self.there = kind, 0
        self.paths = [folder / f"{name}.csv" for name in NAMES]
        folder.mkdir(parents=True, exist_ok=True)
        for path in self.paths:
            path.write_text("age,cost\n" if kind == "table" else "")
        self.grow(there)

    def grow(self, count: int = 1) -> None:
        first = self.there + (self.kind == "table")
        for agent, path in enumerate(self.paths):
            with path.open("a") as file:
                more = lines(self.kind, agent)[first : first + count]
                file.write("".join(f"{line}\n" for line in more))
        self.there += count


def network(folder: Path, kind: str = "numbers", *, follow: bool = True, **tables):
    SCHEMA.save(folder / "schema.toml")
    usual = {
        "problem": {**PROBLEMS[kind], "head_start": HEAD},
        "run_table": {"steps": STEPS},
        "network": {"follow": follow, **tables.pop("network", {})},
        "run": "followed" if follow else "whole",
    }
    agents = {name: {"data": f"{name}.csv", "records": RECORDS} for name in NAMES}
    return load(write(folder, names=NAMES, agents=agents, **{**usual, **tables}))


ALGORITHMS = {
    "history": {"name": "ldp-online"},
    "fresh": {"name": "dsgd", "sampling": "fresh"},
}


# The history of the numbers is two moments, that of the table, which has a clip, all records.
@pytest.mark.parametrize(
    ("kind", "algorithm"), [("numbers", "history"), ("table", "history"), ("numbers", "fresh")]
)
def test_rounds_wait_for_their_records_and_compute_the_same(tmp_path, kind, algorithm):
    head = 0 if algorithm == "fresh" else HEAD
    tables = {
        "algorithm": ALGORITHMS[algorithm],
        "problem": {**PROBLEMS[kind], "head_start": head},
    }
    whole = Files(tmp_path / "whole", kind, RECORDS)
    expected = run_threads(network(whole.paths[0].parent, kind, follow=False, **tables), SEED)
    files = Files(tmp_path / "grows", kind)
    found = network(files.paths[0].parent, kind, **tables)
    with Threads(found, SEED) as fleet:
        fleet.start_all()
        for there in range(RECORDS):
            sent = [size_of(found, number) for number in range(3)]
            assert max(sent) <= max(0, there - head)
            files.grow()
            done = min(STEPS, max(0, there + 1 - head))
            wait_for(lambda many=done: least(fleet) >= many)
        models = fleet.models()
    np.testing.assert_array_equal(models, [expected[name].model for name in NAMES])


def test_the_certificate_is_that_of_a_file_that_was_there_and_says_what_it_rests_on(tmp_path):
    Files(tmp_path, "numbers", RECORDS)
    follows, whole = (deployment(network(tmp_path, follow=given), None) for given in (True, False))
    assert follows.certificate.epsilon == whole.certificate.epsilon
    said, usual = (
        {one.text for one, _ in plan.certificate.shared_assumptions()} for plan in (follows, whole)
    )
    (more,) = said - usual
    assert "messages wait for records" in more and usual < said


def test_all_agents_follow_or_none(tmp_path):
    Files(tmp_path, "numbers", RECORDS)
    follows, whole = (network(tmp_path, follow=given, run="one") for given in (True, False))
    assert follows.digest != whole.digest and "follow" not in whole.public


def test_a_line_counts_once_it_is_whole(tmp_path):
    files = Files(tmp_path, "table", 2)
    found, path = network(tmp_path, "table"), files.paths[0]
    before = own(found, 0)
    for part in ("5", "0,", "2"):
        with path.open("a") as file:
            file.write(part)
        np.testing.assert_array_equal(own(found, 0).rows, before.rows)
    with path.open("a") as file:
        file.write("5\n")
    after = own(found, 0)
    assert len(after.rows) == 3 and after.records.labels[2] != 0
    np.testing.assert_array_equal(after.rows[:2], before.rows)
    np.testing.assert_array_equal(after.records.features[:2], before.records.features[:2])


@pytest.mark.parametrize("chunk", [1, 3, 2**16])
def test_whole_lines_against_all_of_the_content(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr("hearsay.deploy.growing._CHUNK", chunk)
    path = tmp_path / "some.csv"
    for content in (b"", b"a", b"\n", b"a\nb", b"a,b\r\n1,2\r\n", b"a\n\n", b"a\nlonger line"):
        path.write_bytes(content)
        assert whole_lines(path) == content.rfind(b"\n") + 1


@pytest.mark.parametrize(
    ("kind", "content"),
    [(kind, content) for kind in PROBLEMS for content in ("", "\n", "age,co")]
    + [("numbers", "# nothing yet\n"), ("table", "age,cost\n"), ("table", "age,cost\n,\n")],
)
def test_nothing_may_be_there_yet(tmp_path, kind, content):
    files = Files(tmp_path, kind)
    files.paths[0].write_text(content)
    found = own(network(tmp_path, kind), 0)
    assert found.rows.shape == (0, 32) and found.records.held == RECORDS
    assert not found.records.features.any() and len(found.records.features) == RECORDS


@pytest.mark.parametrize("plain", [True, False])
def test_nothing_may_be_there_yet_of_records_of_any_shape(tmp_path, plain):
    shape = {"loss": "neural", "model": "mlp", "shape": [4, 4, 1], "classes": 3, "bytes": plain}
    Files(tmp_path, "numbers")
    found = own(network(tmp_path, problem=shape), 0)
    assert found.rows.shape == (0, 32) and found.records.features.shape == (RECORDS, 4, 4, 1)
    assert found.records.features.dtype == (np.uint8 if plain else np.float64)


def test_records_beyond_those_that_are_planned_are_not_used(tmp_path):
    files = Files(tmp_path, "numbers", RECORDS)
    with files.paths[0].open("a") as file:
        file.write("0.1,0.2,0.3\n" * 4)
    assert len(own(network(tmp_path), 0).rows) == RECORDS


def least(fleet: Threads) -> int:
    """How many messages everybody has sent."""
    errors = [one for one in fleet.ended.values() if isinstance(one, BaseException)]
    assert not errors, errors
    return min(size_of(fleet.network, number) for number in range(3))


class Held:
    """All agents with so many records there, waiting for the next."""

    def __init__(self, folder: Path, there: int, **tables) -> None:
        self.files = Files(folder, "numbers", there)
        self.network = network(folder, **tables)
        self.sent = max(0, there - HEAD)
        self.fleet = Threads(self.network, None)

    def __enter__(self) -> Held:
        self.fleet.__enter__()
        self.fleet.start_all()
        self.wait()
        return self

    def wait(self) -> None:
        wait_for(lambda: least(self.fleet) >= self.sent)
        wait_for(lambda: all(self.waits(name) for name in NAMES))

    def waits(self, name: str) -> bool:
        neighbours = getattr(self.fleet.agents[name], "neighbours", None)
        return neighbours is not None and neighbours.waiting_for == ["its own records"]

    def __exit__(self, *_: object) -> None:
        self.fleet.__exit__()


def changed(path: Path, row: int) -> None:
    content = path.read_text().splitlines(keepends=True)
    content[row] = "0.25,0.25,0.25\n"
    path.write_text("".join(content))


def test_a_record_that_was_read_must_stay_as_it_is(tmp_path):
    with Held(tmp_path, HEAD + 2) as held:
        changed(held.files.paths[0], 1)
        held.files.grow()
        assert isinstance(held.fleet.join("alice"), Stopped)
        assert "record 2" in str(held.fleet.ended["alice"])
        assert size_of(held.network, 0) == 2
        # Nor may it be another one when the agent is started again.
        held.fleet.start("alice")
        ended = held.fleet.join("alice")
        assert isinstance(ended, LedgerError) and f"first {HEAD + 2} records" in str(ended)
        assert size_of(held.network, 0) == 2


def test_a_cell_that_counts_as_the_same_may_not_become_another_record(tmp_path):
    """To the budget NA is a gap like any other, to this schema a level of its own."""
    hs.Schema(
        {"paid": hs.Category(["cash", "NA"], gap="cash"), "cost": hs.Number(0, 9)}, "cost"
    ).save(tmp_path / "levels.toml")
    files = Files(tmp_path, "numbers")
    for path in files.paths:
        path.write_text("paid,cost\nNA,1\ncash,2\n")
    problem = {"schema": "levels.toml", "ridge": 0.01, "radius": 3.0, "head_start": 0}
    found = network(tmp_path, problem=problem)
    with Threads(found, None) as fleet:
        fleet.start_all()
        wait_for(lambda: least(fleet) >= 2)
        fleet.stop("alice")
        before, path = own(found, 0), files.paths[0]
        path.write_text(path.read_text().replace("NA", ""))
        after = own(found, 0)
        np.testing.assert_array_equal(before.rows, after.rows)
        assert (before.records.features != after.records.features).any()
        fleet.start("alice")
        ended = fleet.join("alice")
        assert isinstance(ended, LedgerError) and "first 2 records" in str(ended)


def test_a_file_that_lost_records_is_refused(tmp_path):
    with Held(tmp_path, HEAD + 2) as held:
        held.fleet.stop("alice")
        path = held.files.paths[0]
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        held.fleet.start("alice")
        assert isinstance(held.fleet.join("alice"), LedgerError)


def test_an_agent_that_was_stopped_goes_on_with_what_has_come_since(tmp_path):
    with Held(tmp_path, HEAD + 1) as held:
        held.fleet.stop("bob")
        assert isinstance(held.fleet.ended["bob"], Stopped)
        held.files.grow(RECORDS - held.files.there)
        held.fleet.start("bob")
        held.fleet.models()
        assert [size_of(held.network, n) for n in range(3)] == [STEPS] * 3


# The number of the call in its process: the first is about what was there when it began.
KILLS = {
    "alice": [(call, f"{when} enter") for call in (0, 1) for when in ("before", "after")],
    "bob": [(call, f"{when} pin_rows") for call in (0, 1) for when in ("before", "after")],
    "carol": [(2, "before enter"), (2, "after pin_rows")],
}


def test_kills_between_what_is_written_down_of_records_change_nothing(tmp_path):
    """Nor is a record shown that the budget file has not, or a run entered twice."""
    tables = {"run": "killed", "network": {"state": "state"}}
    whole = Files(tmp_path / "whole", "numbers", RECORDS)
    calm = network(whole.paths[0].parent, follow=False, **tables)
    expected, rows = run_threads(calm, SEED), own(calm, 0).rows
    files = Files(tmp_path / "grows", "numbers", HEAD)
    found = network(files.paths[0].parent, **tables)
    spent = found.members[0].spent

    def arrive() -> None:
        for there in range(HEAD, RECORDS):
            files.grow()
            wait_for(lambda many=there + 1 - HEAD: min(size_of(found, n) for n in range(3)) >= many)
            known = book.read(spent)
            (run,) = known.runs
            assert np.isin(known.fingerprints(rows[: there + 1]), known.sets[run.records]).all()

    with Processes([tmp_path / "grows" / "net.toml"], names=NAMES, kills=KILLS) as fleet:
        fleet.start_all()
        with ThreadPoolExecutor(1) as pool:
            arriving = pool.submit(arrive)
            restarts = fleet.watch()
            arriving.result()
    assert restarts == sum(map(len, KILLS.values()))
    known = book.read(spent)
    assert [len(one) for one in known.sets] == [RECORDS] and len(known.runs) == 1
    got = models(tmp_path / "grows" / "net.toml")
    np.testing.assert_array_equal(got, [expected[name].model for name in NAMES])


def test_a_bad_line_stops_the_agent_in_words_that_do_not_show_it(tmp_path):
    with Held(tmp_path, HEAD + 1) as held:
        with held.files.paths[2].open("a") as file:
            file.write("31337.25,oops,1\n")
        ended = held.fleet.join("carol")
        assert type(ended) is Stopped and "agent carol" in str(ended)
        assert f"line {HEAD + 2})" in str(ended) and f"Mend {held.files.paths[2]}" in str(ended)
        assert "31337" not in str(ended) and "oops" not in str(ended)


def test_the_budget_file_has_every_record_before_a_message_shows_it(tmp_path):
    with Held(tmp_path, HEAD + 1) as held:
        path = held.network.members[0].spent
        first = book.read(path)
        assert [len(one) for one in first.sets] == [HEAD + 1] and len(first.runs) == 1
        held.files.grow(2)
        held.sent += 2
        held.wait()
        second = book.read(path)
        (run,) = second.runs
        assert len(second.sets) == 1 and np.isin(first.sets[0], second.sets[run.records]).all()
        assert len(second.sets[run.records]) == HEAD + 3
        held.files.grow(RECORDS - held.files.there)
        held.fleet.models()
    # A later run of other records on the same host has nothing to do with them.
    whole = network(tmp_path, follow=False, run="later", network={"state": "state-followed"})
    rows = own(whole, 0).rows
    known, own_set = book.read(path), book.read(path).fingerprints(rows)
    assert known.within(known.runs[0], own_set).all()
    assert not known.within(known.runs[0], known.fingerprints(rows + np.uint8(1))).any()


def test_records_that_have_spent_too_much_elsewhere_are_refused_when_they_come(tmp_path):
    """The limit is looked at again with every record, before anything of it is shown."""
    folder = tmp_path / "other"
    late = lines("numbers", 0)[HEAD + 1]
    Files(folder, "numbers", RECORDS)
    (folder / "alice.csv").write_text("".join(f"{late}\n" for _ in range(RECORDS)))
    state = {"state": str(tmp_path / "state")}
    with Threads(network(folder, follow=False, run="before", network=state), None) as before:
        before.start_all()
        before.models()
    privacy = {"epsilon": 8.0, "lifetime": [9.0, 99.0, 99.0]}
    with Held(tmp_path / "here", HEAD + 1, network=state, privacy=privacy) as held:
        held.files.grow()
        ended = held.fleet.join("alice")
        assert isinstance(ended, Refused) and "lifetime" in str(ended)
        assert size_of(held.network, 0) == 1


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"algorithm": {"name": "gradient-perturbation", "sampling": "poisson"}}, "sampling"),
        ({"algorithm": {"name": "dsgd", "sampling": "cyclic"}}, "sampling"),
        ({"network": {"follow": "yes"}}, "follow"),
        ({"problem": {"schema": "schema.toml"}}, "head_start"),
    ],
)
def test_what_cannot_be_followed_is_said(tmp_path, tables, words):
    Files(tmp_path, "numbers", RECORDS)
    with pytest.raises((ValueError, TypeError), match=words):
        deployment(network(tmp_path, **tables), None, rehearsed=True)


def test_other_files_cannot_be_followed(tmp_path):
    Files(tmp_path, "numbers", RECORDS)
    np.savez(tmp_path / "alice.npz", features=np.zeros((RECORDS, 2)), labels=np.zeros(RECORDS))
    with pytest.raises(ValueError, match="line by line"):
        deployment(network(tmp_path), 0, tmp_path / "alice.npz", rehearsed=True)
    (tmp_path / "wide.csv").write_text("age,cost\n1,2\n", encoding="utf-16")
    with pytest.raises(ValueError, match="UTF-8"):
        deployment(network(tmp_path, "table"), 0, tmp_path / "wide.csv", rehearsed=True)


def test_settings_are_rehearsed_for_records_that_arrive(tmp_path, monkeypatch):
    """Where net.toml names none: until all have arrived, and a few more."""
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(contest, "KINDS", KINDS[:1])
    monkeypatch.setattr(contest, "LATER", (1,))
    monkeypatch.setattr(contest, "SEEDS", 1)
    Files(tmp_path, "numbers", RECORDS)
    tables = {
        "algorithm": {},
        "run_table": {"precision": 64},
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
    }
    found = network(tmp_path, **tables)
    assert found.chosen is not None and found.chosen.choice.begun == HEAD
    assert found.config.problem["head_start"] == HEAD
    plan = deployment(found, None)
    assert plan.messages >= STEPS and max(plan.certificate.epsilon) <= 2.0
    with Threads(found, None) as fleet:
        fleet.start_all()
        fleet.models()
    assert size_of(found, 0) == plan.messages * plan.phases.count


@pytest.mark.parametrize("kind", PROBLEMS)
def test_line_ends_that_no_line_is_known_whole_by_are_named(tmp_path, kind):
    """A file without a line feed has no line that counts: the agent would wait for ever."""
    files = Files(tmp_path, kind)
    found, path = network(tmp_path, kind), files.paths[0]
    path.write_bytes("\r".join(lines(kind, 0)[:3]).encode())
    with pytest.raises(ValueError, match="agent alice.*end with a return alone"):
        own(found, 0)
    path.write_bytes(lines(kind, 0)[0].encode() + b"\r")  # half of a line end
    assert len(own(found, 0).rows) == 0


def test_a_file_that_takes_the_place_of_another_one_is_read(tmp_path):
    """It is as long as that was: the first record is written with fewer digits."""
    files = Files(tmp_path, "numbers")
    path, there = files.paths[0], "0.500000000000,0,0\n"
    path.write_text(there)
    following = deployment(network(tmp_path), 0, rehearsed=True).following
    assert following is not None and not following.look()
    (new := tmp_path / "new").write_text("0.5,0,0\n0.250,0,0\n\n")
    assert new.stat().st_size == len(there)
    new.replace(path)
    wait_for(following.look)  # it does not look too often
    assert len(following.rows) == 2


def test_public_data_that_is_dealt_out_does_not_arrive(tmp_path):
    with pytest.raises(ValueError, match="records"):
        load(write(tmp_path, network={"follow": True}))
