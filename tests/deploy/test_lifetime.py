"""Runs on the same records add up, whatever they are called: what is printed, what is refused,
and what a crash leaves behind.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from hearsay.cli import commands
from hearsay.deploy import book as books
from hearsay.deploy import lifetime, mark, spending
from hearsay.deploy.agent import Agent
from hearsay.deploy.book import Book, Spent, read
from hearsay.deploy.deployment import deployment
from hearsay.deploy.host import save_model
from hearsay.deploy.ledger import Ledger, LedgerError
from hearsay.deploy.lifetime import Account, compose
from hearsay.deploy.records import hashed_rows, own
from hearsay.deploy.settings import load
from hearsay.mechanisms import MECHANISMS, convert
from hearsay.privacy.certificate import Certificate
from tests.deploy.networks import NAMES, entered, run_threads, write

RHO = MECHANISMS["gaussian"].number(2.0, 1e-5)
PURE = Spent("p", "pure", 0.0, 10, "laplace", 2.0, 0.0)
GAUSSIAN = Spent("g", "gauss", 0.0, 10, "gaussian", 2.0, 1e-5, RHO, 100)
TERNARY = Spent("t", "ternary", 0.0, 10, "ternary", 0.0, 0.3)


def files(folder, run: str = "one", rows: slice = slice(None), **tables):
    """Two agents with forty records each, of which the given rows are in the files."""
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES[:2]:
        features, labels = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
        np.savez(folder / f"{name}.npz", features=features[rows], labels=labels[rows])
    usual = {
        "problem": {"loss": "logistic", "dimension": 3, "feature_bound": 1.0, "radius": 10.0},
        "algorithm": {"name": "ldp-online", "mechanism": "gaussian"},
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
    }
    count = len(range(40)[rows])
    agents = {name: {"data": f"{name}.npz", "records": count} for name in NAMES[:2]}
    network = {"state": "state", "deadline": 60}
    # Plans with secrets need certificates, which no plan opens.
    network |= {"keys": "keys"} if "secrets" in tables else {}
    return write(
        folder,
        secure="secrets" in tables,
        run=run,
        names=NAMES[:2],
        file=f"{run}.toml",
        network=network,
        agents=agents,
        graph={"kind": "complete"},
        run_table={"steps": 5},
        **{**usual, **tables},
    )


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return deployment(load(files(tmp_path_factory.mktemp("plan"))), 0)


def account(folder, plan, run="one", *, rows=None, limit=None, rehearsed=False) -> Account:
    member = load(files(folder, run)).members[0]
    given = plan if rows is None else replace(plan, rows=plan.rows[rows])
    return Account(member, given, 0, run, limit, rehearsed=rehearsed)


def test_budgets_of_one_kind_add_up():
    assert compose([PURE], None) == (2.0, 0.0) and compose([GAUSSIAN], 1e-5)[0] == pytest.approx(
        2.0, abs=1e-5
    )
    assert compose([PURE, PURE], None) == (pytest.approx(4.0), 0.0)
    epsilon, delta = compose([GAUSSIAN, GAUSSIAN], 1e-5)
    assert epsilon == pytest.approx(
        convert.gaussian_epsilon(2 * RHO, 1e-5), rel=1e-5
    ) and delta == pytest.approx(1e-5)
    assert 2.95 < epsilon < 2.96, "by rho, and not 4"
    assert compose([TERNARY, TERNARY], None) == (0.0, pytest.approx(0.6))
    assert compose([TERNARY] * 4, None) == (math.inf, 1.0)


def test_budgets_of_several_kinds_add_up():
    epsilon, delta = compose([PURE, GAUSSIAN, TERNARY, GAUSSIAN], 1e-5)
    assert epsilon == pytest.approx(2 + convert.gaussian_epsilon(2 * RHO, 1e-5), rel=1e-5)
    assert delta == pytest.approx(0.3 + 1e-5)
    other = GAUSSIAN._replace(delta=1e-7)
    assert compose([PURE, GAUSSIAN, other], None)[1] == pytest.approx(1e-7), (
        "at the smallest of their own"
    )
    assert compose([GAUSSIAN, PURE._replace(epsilon=math.inf)], 1e-5)[0] == math.inf


def emptied(run: Spent) -> Spent:
    return run._replace(adjacency="zero-out")


def test_runs_under_zero_out_count_more_under_replace():
    """Twice the shift for Gaussian noise, (2 epsilon, (1 + e^epsilon) delta) for all else."""
    assert compose([emptied(PURE)], None) == (4.0, 0.0)
    assert compose([emptied(PURE)], None, "zero-out") == (2.0, 0.0)
    doubled = convert.gaussian_epsilon(4 * RHO, 1e-5)
    assert compose([emptied(GAUSSIAN)], 1e-5)[0] == pytest.approx(doubled, rel=1e-5)
    assert compose([emptied(GAUSSIAN)], 1e-5, "zero-out") == compose([GAUSSIAN], 1e-5)
    assert compose([emptied(TERNARY)], None) == (0.0, pytest.approx(0.6))
    mixed = PURE._replace(delta=1e-6)
    assert compose([emptied(mixed)], None) == (4.0, pytest.approx((1 + math.e**2) * 1e-6))
    several = compose([GAUSSIAN, emptied(GAUSSIAN)], 1e-5)[0]
    assert several == pytest.approx(convert.gaussian_epsilon(5 * RHO, 1e-5), rel=1e-5)
    assert compose([emptied(PURE._replace(epsilon=math.inf))], None)[0] == math.inf


def test_runs_under_replace_count_the_same_under_zero_out_unless_declared():
    assert compose([PURE, emptied(PURE)], None, "zero-out") == (pytest.approx(4.0), 0.0)
    declared = GAUSSIAN._replace(adjacency=lifetime.DECLARED)
    assert compose([declared], 1e-5) == compose([GAUSSIAN], 1e-5)
    assert compose([declared], 1e-5, "zero-out")[0] == math.inf


def test_totals_of_a_book_say_what_they_are_about():
    rows = np.array([1], np.uint64)
    here = [run._replace(records=0) for run in (PURE, emptied(PURE))]
    alike, mixed = (Book(b"k" * 32, runs, [rows]) for runs in (here[1:], here))
    assert (lifetime.adjacency_of(alike), lifetime.worst(alike)[0]) == ("zero-out", 2.0)
    assert lifetime.adjacency_of(mixed) == "replace"
    assert lifetime.worst(mixed)[0] == pytest.approx(6.0)
    assert lifetime.adjacency_of(Book(b"k" * 32, [], [])) == "replace"


def test_a_second_run_under_the_other_adjacency_is_counted_in_its_own(tmp_path, plan):
    """The same plan, whose numbers are said to be about emptied records."""
    task = plan.task.under("zero-out")
    other = replace(plan, task=task)
    account(tmp_path, other, "one").enter("first")
    rho = plan.certificate.budgets[0].rho
    second = account(tmp_path, plan, "two")
    assert second.lifetime.total == pytest.approx(convert.gaussian_epsilon(5 * rho, 1e-5), rel=1e-5)
    third = account(tmp_path, other, "three", limit=100.0)
    assert third.lifetime.total == pytest.approx(convert.gaussian_epsilon(2 * rho, 1e-5), rel=1e-5)
    with pytest.raises(ValueError, match=r"got 2\.5 \(under zero-out adjacency\): spent before"):
        account(tmp_path, other, "four", limit=2.5)
    table, wrong = spending.spent([tmp_path / "state"])
    assert not wrong and table["alice"]["adjacency"] == "zero-out"
    assert [run["adjacency"] for run in table["alice"]["runs"]] == ["zero-out"]


def test_a_plan_under_zero_out_has_its_own_noise_and_says_so(tmp_path, plan):
    """Half the change of a logistic gradient, so half the noise; in the hash that all share."""
    privacy = {"epsilon": 2.0, "delta": 1e-5, "adjacency": "zero-out"}
    network = load(files(tmp_path, privacy=privacy))
    found = deployment(network, 0)
    assert found.certificate.adjacency == "zero-out" and found.task.adjacency == "zero-out"
    assert max(found.certificate.epsilon) <= 2.0
    scales = [float(one.algorithm.noise_for(0)(0)) for one in (found, plan)]
    assert scales[0] == pytest.approx(scales[1] / 2, rel=1e-4)
    assert network.digest != load(files(tmp_path / "other")).digest
    spent = lifetime.planned_spending(found, 0, "one", "instance", rehearsed=False)
    assert spent.adjacency == "zero-out"


@pytest.mark.slow
def test_secret_batches_are_entered_with_the_delta_that_their_epsilon_holds_at(tmp_path):
    """They have no rho: without its delta the epsilon would read as a pure one."""
    algorithm = {"name": "gradient-perturbation", "mechanism": "gaussian", "noise": 1.0}
    algorithm |= {"sampling": "poisson", "sample_rate": 0.3}
    found = deployment(load(files(tmp_path, algorithm=algorithm)), 0)
    spent = lifetime.planned_spending(found, 0, "one", "instance", rehearsed=False)
    assert found.certificate.budgets[0].rho is None
    assert (spent.rho, spent.delta) == (None, 1e-5)
    assert compose([spent, spent], 1e-5)[1] == pytest.approx(2e-5)


@pytest.mark.slow
def test_secret_batches_that_are_charged_in_full_are_entered_with_their_rho(tmp_path):
    """A rate at which a record in every batch costs no more than a secret one, replaced."""
    algorithm = {"name": "gradient-perturbation", "mechanism": "gaussian", "noise": 1.0}
    algorithm |= {"sampling": "poisson", "sample_rate": 0.98}
    problem = {"loss": "ridge", "dimension": 3, "feature_bound": 1.0, "radius": 10.0}
    tables = {"algorithm": algorithm, "problem": {**problem, "label_bound": 1.0}}
    found = deployment(load(files(tmp_path, **tables)), 0)
    assert found.certificate.budgets[0].rho is not None
    spent = lifetime.planned_spending(found, 0, "one", "instance", rehearsed=False)
    assert (spent.rho, spent.numbers) == (found.certificate.budgets[0].rho, 5 * 3)


def test_a_book_of_an_earlier_version_is_about_replaced_records(tmp_path, plan):
    account(tmp_path, plan, "one").enter("first")
    path = tmp_path / "state" / "alice.budget"
    found = read(path)
    books.write(path, found._replace(runs=[tuple(run)[:-1] for run in found.runs]))
    assert [run.adjacency for run in read(path).runs] == ["replace"]


def test_the_largest_epsilon_and_the_largest_delta_may_be_of_different_records(tmp_path, plan):
    """A delta must not vanish because another record has spent more epsilon without one."""
    one, two = np.array([1], np.uint64), np.array([2], np.uint64)
    book = Book(b"k" * 32, [PURE._replace(records=0), TERNARY._replace(records=1)], [one, two])
    found = lifetime.together(
        book, PURE._replace(instance="own", run="own"), np.append(one, two), None
    )
    assert (found.total, found.delta) == (
        pytest.approx(4.0),
        pytest.approx(0.3),
    ) and found.runs == ("pure",)
    assert lifetime.worst(book) == (2.0, 0.3)
    ternary = account(tmp_path, plan, limit=9.0)
    ternary._limit = 0.5
    ternary.lifetime = replace(ternary.lifetime, total=0.1, delta=0.6)
    assert "must be at least 0.6" in ternary._exceeded(), "an epsilon besides does not hide it"


def test_a_ledger_that_was_copied_before_its_first_message_is_another_run(tmp_path, plan):
    one = account(tmp_path, plan, "one")
    ledger = load(tmp_path / "one.toml").members[0].ledger
    with Ledger(ledger, {}) as found:
        instance = found.instance
    shutil.copytree(ledger.parent, ledger.parent.with_name("two"))
    one.enter(instance)
    two = account(tmp_path, plan, "two")
    assert mark.instance_of(load(tmp_path / "two.toml").members[0].ledger) == instance
    assert two.lifetime.runs == ("one",) and two.enter(instance) == ""
    assert [run.run for run in read(tmp_path / "state" / "alice.budget").runs] == [
        "one",
        "two",
    ]


def test_a_ledger_that_has_lost_messages_is_said_where_spending_is_printed(tmp_path):
    path = tmp_path / "state" / "one" / "alice.ledger"
    with Ledger(path, {"run": "one"}) as ledger:
        entered(ledger)
        ledger.commit(0, b"message", 0.5, {}, {"x": np.zeros(1)})
    shutil.copy(path, tmp_path)
    with Ledger(path, {"run": "one"}) as ledger:
        ledger.commit(1, b"message", 1.0, {}, {"x": np.zeros(1)})
        found, wrong = spending.spent([path.parent.parent])
        assert found["alice"]["runs"][0]["spent"] == 1.0 and wrong == []
    shutil.copy(tmp_path / path.name, path)
    there = sorted(path.parent.iterdir())
    found, wrong = spending.spent([path.parent.parent])
    assert sorted(path.parent.iterdir()) == there, "looking leaves nothing behind"
    assert found["alice"]["runs"][0]["spent"] == 0.5
    assert (
        len(wrong) == 1
        and "has 1 messages, and message 1 may have left: more was spent" in wrong[0]
    )


def test_a_second_run_on_the_same_records(tmp_path, plan):
    first = account(tmp_path, plan)
    epsilon, rho = plan.certificate.budgets[0].epsilon, plan.certificate.budgets[0].rho
    assert (first.lifetime.before, first.lifetime.total, first.lifetime.runs) == (0.0, epsilon, ())
    assert not (tmp_path / "state").exists(), "looking leaves nothing behind"
    assert first.enter("a" * 32) == ""
    for _ in range(2):  # the same ledger goes on
        assert account(tmp_path, plan).enter("a" * 32) == ""
    second = account(tmp_path, plan, "two")
    assert second.lifetime.runs == ("one",) and second.lifetime.records == 40
    assert second.lifetime.before == pytest.approx(epsilon)
    assert second.lifetime.total == pytest.approx(convert.gaussian_epsilon(2 * rho, 1e-5), rel=1e-5)
    assert (
        str(second.lifetime)
        == "spent before 2.000 (run one; 40 of these records); with this run 2.954 at delta = 1e-05"
    )
    second.enter("b" * 32)
    again = account(tmp_path, plan, "one")  # its folder was deleted: another ledger
    assert again.lifetime.runs == ("one", "two")
    assert again.lifetime.total == pytest.approx(convert.gaussian_epsilon(3 * rho, 1e-5), rel=1e-5)


def test_the_run_that_a_ledger_belongs_to_is_not_counted_twice(tmp_path, plan):
    one = account(tmp_path, plan)
    ledger = load(tmp_path / "one.toml").members[0].ledger
    with Ledger(ledger, {}) as found:
        one.enter(found.instance)
    assert account(tmp_path, plan).lifetime.runs == ()
    shutil.rmtree(ledger.parent)
    assert account(tmp_path, plan).lifetime.runs == ("one",)


def test_a_ledger_that_became_another_run_before_its_first_message(tmp_path, plan):
    """It was entered and then died; nothing had been sent, so plan and records may have changed
    since: what is sent is counted.
    """
    account(tmp_path, plan, rows=slice(0, 20)).enter("a" * 32)
    account(tmp_path, plan, rows=slice(20, 40)).enter("a" * 32)
    assert account(tmp_path, plan, "two", rows=slice(30, 40)).lifetime.runs == ("one",)
    dearer = replace(
        plan,
        certificate=replace(
            plan.certificate, budgets=(replace(plan.certificate.budgets[0], rho=7.0, epsilon=30.0),)
        ),
    )
    account(tmp_path, dearer, rows=slice(20, 40)).enter("a" * 32)
    assert account(tmp_path, plan, "two", rows=slice(30, 40)).lifetime.before > 18


def test_records_that_overlap_in_part(tmp_path, plan):
    """Each record has spent what the runs spent that it was in; the largest counts."""
    for name, rows in (("one", slice(0, 10)), ("two", slice(5, 15)), ("three", slice(30, 40))):
        account(tmp_path, plan, name, rows=rows).enter(name.ljust(32))
    rho = plan.certificate.budgets[0].rho

    def total(runs: int) -> object:
        return pytest.approx(convert.gaussian_epsilon(runs * rho, 1e-5), rel=1e-5)

    for rows, runs, records, spent in (
        (slice(15, 30), (), 0, 1),
        (slice(0, 5), ("one",), 5, 2),
        (slice(14, 31), ("two",), 2, 2),
        (slice(0, 40), ("one", "two"), 25, 3),
        (slice(39, 2, -1), ("one", "two"), 22, 3),
    ):
        found = account(tmp_path, plan, "four", rows=rows).lifetime
        assert found.records == records and found.total == total(spent), rows
        assert found.runs == runs or (spent == 2 and len(found.runs) == 1)


def test_a_rehearsal_counts_as_infinite(tmp_path, plan):
    one = account(tmp_path, plan, rehearsed=True)
    assert one.lifetime.total == math.inf
    one.enter("a" * 32)
    assert account(tmp_path, plan, "two").lifetime.before == math.inf
    with pytest.raises(ValueError, match=r"lifetime in \[privacy\] must be at least infinite"):
        account(tmp_path, plan, "two", limit=100.0)


def test_a_limit(tmp_path, plan):
    account(tmp_path, plan, limit=2.0).enter("a" * 32)
    with pytest.raises(
        ValueError,
        match=(
            r"lifetime in \[privacy\] must be at least 2\.954 for this run of alice, got 2\.9:"
            r" spent before 2\.000"
        ),
    ):
        account(tmp_path, plan, "two", limit=2.9)
    # Two runs that were looked at before either was entered: the second one is told when it
    # wants to begin.
    both = [account(tmp_path, plan, name, limit=3.0) for name in ("two", "three")]
    assert both[0].enter("b" * 32) == ""
    assert "must be at least 3.722 for this run of alice, got 3" in both[1].enter("c" * 32)
    assert [run.run for run in read(tmp_path / "state" / "alice.budget").runs] == [
        "one",
        "two",
    ]


def test_runs_that_begin_at_the_same_time(tmp_path, plan):
    accounts = [account(tmp_path, plan, f"run-{number}") for number in range(8)]
    threads = [
        threading.Thread(target=one.enter, args=(f"{n:032}",)) for n, one in enumerate(accounts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    book = read(tmp_path / "state" / "alice.budget")
    assert sorted(run.run for run in book.runs) == [f"run-{number}" for number in range(8)]
    assert len(book.sets) == 1, "the same records are kept once"


def test_a_damaged_file_is_refused_and_a_lost_one_forgets(tmp_path, plan):
    account(tmp_path, plan).enter("a" * 32)
    path, rng = tmp_path / "state" / "alice.budget", random.Random(3)
    content = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    for trial in range(200):
        damaged = bytearray(content)
        if trial % 2:
            damaged[rng.randrange(len(content))] ^= rng.randint(1, 255)
        else:
            del damaged[rng.randrange(len(content)) :]
        path.write_bytes(bytes(damaged))
        with pytest.raises(LedgerError, match="alice.budget is damaged"):
            read(path)
    with pytest.raises(LedgerError, match="alice.budget is damaged"):
        account(tmp_path, plan, "two")
    path.unlink()
    assert account(tmp_path, plan, "two").lifetime.runs == ()


def test_a_record_is_known_by_its_numbers(tmp_path):
    """From whatever file, and whatever bounds a run puts on it; not by its place."""
    features, labels = np.arange(12.0).reshape(4, 3) - 1, np.array([0, 1, 1, 0])
    whole = hashed_rows(features, labels)
    assert whole.shape == (4, 32) and len({row.tobytes() for row in whole}) == 4
    np.testing.assert_array_equal(hashed_rows(features[::-1], labels[::-1]), whole[::-1])
    np.testing.assert_array_equal(
        hashed_rows((features + 1).astype(np.uint8), labels), hashed_rows(features + 1, labels)
    )
    np.testing.assert_array_equal(
        hashed_rows(-0.0 * features, labels), hashed_rows(0.0 * features, labels)
    )
    assert not np.array_equal(hashed_rows(features, 1 - labels), whole)
    loose = load(files(tmp_path))
    tight = load(
        files(
            tmp_path,
            problem={"loss": "logistic", "dimension": 3, "feature_bound": 0.5, "radius": 10.0},
        )
    )
    one, two = own(loose, 0), own(tight, 0)
    assert not np.array_equal(one.records.features, two.records.features)
    np.testing.assert_array_equal(one.rows, two.rows)


def test_records_that_come_in_another_form_are_not_known_again_and_that_is_said(
    tmp_path, plan, caplog
):
    account(tmp_path, plan).enter("a" * 32)
    assert "none of these records" not in caplog.text
    rounded = replace(plan, rows=plan.rows[::-1] ^ 1)
    assert account(tmp_path, rounded, "two").lifetime.before == 0
    assert (
        "none of these records was in the earlier runs of alice (one): if they are the same in"
        in caplog.text
    )


def test_fingerprints_confirm_no_guess(tmp_path, plan):
    found = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        account(folder, plan).enter("a" * 32)
        found.append(read(folder / "state" / "alice.budget"))
    assert not np.intersect1d(found[0].sets[0], found[1].sets[0]).size
    plain = np.frombuffer(np.ascontiguousarray(plan.rows[:, :8]).tobytes(), np.uint64)
    assert not np.intersect1d(found[0].sets[0], plain).size


def test_real_agents(tmp_path, monkeypatch, capsys, caplog):
    """Two runs on one file, and a third that goes too far."""
    caplog.set_level("INFO", logger="hearsay.agent")
    for run in ("one", "two"):
        agents = run_threads(load(files(tmp_path, run)), None)
    alice = agents["alice"]
    save_model(alice.member.state, "alice", alice.model, alice.plan)
    kept = Certificate.from_json(
        (alice.member.state / "alice.certificate.json").read_text()
    ).budgets[0]
    assert kept.epsilon <= 2.0 and kept.lifetime.runs == ("one",)
    assert kept.lifetime.total == pytest.approx(
        convert.gaussian_epsilon(2 * kept.rho, 1e-5), rel=1e-5
    )
    assert "with this run 2.954 at delta = 1e-05" in caplog.text
    book = read(tmp_path / "state" / "alice.budget")
    assert [(run.run, run.instance) for run in book.runs][1] == (
        "two",
        mark.instance_of(alice.member.ledger),
    )
    assert Agent(load(tmp_path / "two.toml"), "alice").account.lifetime.runs == ("one",), (
        "done before: it counts once"
    )

    def command(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["hearsay", *words])
        monkeypatch.setattr(
            sys.modules["hearsay.simulation.simulating"], "enable_compilation_cache", lambda: None
        )
        with pytest.raises(SystemExit) as ended:
            commands.main()
        return int(ended.value.code or 0)

    third = files(
        tmp_path, "three", privacy={"epsilon": 2.0, "delta": 1e-5, "lifetime": [3.5, 9.0]}
    )
    assert command("agent", "--config", str(third), "--name", "alice") == 2
    assert (
        "must be at least 3.722 for this run of alice, got 3.5"
        in capsys.readouterr().err.replace("\n", " ")
    )
    assert not (tmp_path / "state" / "three").exists()
    assert command("agent", "--config", str(third), "--name", "bob", "--check") == 0
    said = capsys.readouterr().out
    assert (
        "spent before 2.954 (runs one, two; 40 of these records); with this run 3.722"
        in " ".join(said.split())
    )
    (tmp_path / "state" / "bob.budget").write_bytes(b"nonsense")
    assert command("agent", "--config", str(third), "--name", "bob", "--check") == 6
    assert "bob.budget is damaged" in capsys.readouterr().err

    assert command("network", "spent", str(tmp_path / "two.toml"), "--json") == 6
    said = capsys.readouterr()
    assert "bob.budget is damaged" in said.err and list(json.loads(said.out)) == ["alice", "bob"]
    (tmp_path / "state" / "bob.budget").unlink()
    assert command("network", "spent", str(tmp_path / "two.toml"), "--json") == 6
    said = capsys.readouterr()
    assert "bob.budget is not there, and should know" in said.err
    found = json.loads(said.out)
    assert [(run["run"], run["messages"], run["of"]) for run in found["alice"]["runs"]] == [
        ("one", 5, 5),
        ("two", 5, 5),
    ]
    assert found["alice"]["runs"][0]["spent"] == pytest.approx(kept.epsilon)
    assert found["alice"]["total"] == pytest.approx(kept.lifetime.total) and found["alice"][
        "delta"
    ] == pytest.approx(1e-5)
    assert found["bob"]["total"] is None and [run["messages"] for run in found["bob"]["runs"]] == [
        5,
        5,
    ]
    assert command("network", "spent", str(tmp_path)) == 2, "an empty table would say: nothing"
    assert "holds no budget file and no run's ledger" in capsys.readouterr().err
    assert command("network", "spent", str(tmp_path / "state")) == 6
    table = capsys.readouterr().out
    mark.place(alice.member.ledger).write_bytes(b"nonsense")
    assert (
        command("agent", "--config", str(tmp_path / "two.toml"), "--name", "alice", "--check") == 6
    )
    assert "alice.ledger.mark is damaged" in capsys.readouterr().err
    assert "alice" in table and "2.954" in table and "not entered" in table


@pytest.mark.parametrize("batches", ["whole", "secret"])
def test_a_run_with_secrets_counts_as_planned_and_keeps_what_all_colluding_costs(tmp_path, batches):
    """By its rho, and by its epsilon where secret batches give none."""
    more = {"noise": 1.0}
    more |= {} if batches == "whole" else {"sampling": "poisson", "sample_rate": 0.2}
    name = "ldp-online" if batches == "whole" else "gradient-perturbation"
    tables = {
        "algorithm": {"name": name, "mechanism": "gaussian", **more},
        "problem": {
            "loss": "logistic",
            "dimension": 3,
            "feature_bound": 1.0,
            "radius": 10.0,
            "clip": 1.0,
            "adjacency": "zero-out",
        },
        "privacy": {"delta": 1e-5},
        "secrets": {"colluders": 0, "ratio": 3.0},
    }
    network = load(files(tmp_path, **tables))
    plan = deployment(network, 0)
    budget = plan.certificate.budgets[0]
    assert 1.2 * budget.epsilon < budget.all_collude < 10
    assert (budget.rho is None) == (batches == "secret")
    first = Account(network.members[0], plan, 0, "one", None, rehearsed=False)
    known = first.lifetime
    assert (known.total, known.colluders) == (pytest.approx(budget.epsilon), 0)
    assert known.all_collude == pytest.approx(budget.all_collude, rel=1e-6)
    assert "if nobody colludes in any of them" in str(known)
    assert "if all others collude)" in str(known)
    assert first.enter("ledger one") == ""
    # A second run, without secrets: the total still holds against nobody colluding in the first.
    later = files(tmp_path, "two", **{k: v for k, v in tables.items() if k != "secrets"})
    plain = deployment(load(later), 0)
    second = Account(load(later).members[0], plain, 0, "two", None, rehearsed=False).lifetime
    assert second.colluders == 0 and second.total < second.all_collude
    book = read(network.members[0].spent)
    assert book.runs[0].alone.epsilon == budget.all_collude
    assert lifetime.worst_alone(book) == pytest.approx(budget.all_collude, rel=1e-6)
    assert lifetime.worst(book)[0] == pytest.approx(budget.epsilon, rel=1e-6)
    certified = first.certified(plan, 0).certificate
    assert "if all others collude)" in str(certified)
    with pytest.raises(ValueError, match=r"if all others collude\)"):
        Account(network.members[0], plan, 0, "three", 1e-3, rehearsed=False)


def test_a_book_without_secrets_speaks_of_no_colluders(tmp_path, plan):
    kept = account(tmp_path, plan)
    assert kept.lifetime.colluders is None and "collude" not in str(kept.lifetime)
    assert kept.enter("ledger") == ""
    book = read(load(files(tmp_path)).members[0].spent)
    assert lifetime.worst_alone(book) is None and book.runs[0].alone == book.runs[0]
    # As an earlier version wrote it.
    assert Spent(*book.runs[0][:11]) == book.runs[0]


def test_a_ledger_that_was_entered_for_other_colluders_is_entered_again(tmp_path, plan):
    """Calibrated to the same epsilon against other numbers of colluders before its first message:
    what it costs if all collude is another number.
    """
    kept = account(tmp_path, plan)
    careful = kept._own._replace(colluders=5, own_epsilon=3.0, own_rho=2 * RHO)
    trusting = careful._replace(colluders=0, own_epsilon=9.0, own_rho=9 * RHO)
    for planned in (careful, careful, trusting):
        kept._own = planned
        assert not kept.enter("one ledger")
    book = read(kept._path)
    assert [run.colluders for run in book.runs] == [5, 0]
    first = lifetime.worst_alone(book._replace(runs=book.runs[:1]))
    assert lifetime.worst_alone(book) > 1.2 * first
