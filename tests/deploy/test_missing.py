"""A budget file that is not the one in which an agent's runs were entered is refused, be it lost,
swapped, put back or left behind; and what an operator can do then.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest

from hearsay.cli import commands
from hearsay.deploy import book, lifetime, mark, missing, spending
from hearsay.deploy.agent import Agent
from hearsay.deploy.book import Spent
from hearsay.deploy.deployment import deployment
from hearsay.deploy.ledger import Ledger, LedgerError
from hearsay.deploy.settings import load
from tests.deploy.networks import run_threads
from tests.deploy.test_lifetime import account, files


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return deployment(load(files(tmp_path_factory.mktemp("plan"))), 0)


def begin(folder, plan, run: str, rows: slice | None = None):
    """A run of alice's with its first message."""
    one = account(folder, plan, run, rows=rows)
    with Ledger(load(folder / f"{run}.toml").members[0].ledger, {"run": run}) as ledger:
        assert one.enter(ledger.instance) == ""
        ledger.commit(0, b"message", 1.0, {}, {"x": np.zeros(1)})
    return ledger.path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "alice.budget"


def as_format_1(path) -> None:
    """As earlier versions wrote it: it does not say whose it is."""
    kind, line, rest = path.read_bytes()[:-32].split(b"\n", 2)
    assert kind == b"hearsay budget 2"
    head = json.loads(line)
    del head["agent"]
    body = b"hearsay budget 1\n" + json.dumps(head).encode() + b"\n" + rest
    path.write_bytes(body + hashlib.sha256(body).digest())


def test_a_file_says_whose_it_is_and_another_agents_is_refused(tmp_path, plan, path):
    account(tmp_path, plan).enter("a" * 32)
    assert book.read(path).agent == "alice"
    bobs = path.with_name("bob.budget")
    shutil.copy(path, bobs)
    for one in (lambda: book.read(bobs), lambda: missing.checked(bobs)):
        with pytest.raises(
            LedgerError,
            match=r"bob\.budget must be the budget file of bob, got that of alice: put bob's own in"
            r" its place\. If alice goes by the name of bob now: hearsay network adopt .*/bob\.bud",
        ):
            one()
    assert missing.adopt(bobs) == ("alice", [])
    assert missing.checked(bobs).agent == "bob"
    assert missing.checked(bobs).runs == missing.checked(path).runs, "all that it knows is kept"


def test_files_of_earlier_versions_are_read_and_say_whose_they_are_from_the_next_run_on(
    tmp_path, plan, path
):
    begin(tmp_path, plan, "one")
    as_format_1(path)
    assert missing.checked(path).agent == "" and len(missing.checked(path).runs) == 1
    begin(tmp_path, plan, "two")
    assert missing.checked(path).agent == "alice"
    assert [run.run for run in missing.checked(path).runs] == ["one", "two"]
    # Swapped before it could say whose it is: its ledgers tell.
    as_format_1(path)
    path.rename(path.with_name("bob.budget"))
    with pytest.raises(LedgerError, match=r"alice\.budget is not there, and should know"):
        account(tmp_path, plan, "three")


def test_files_of_later_versions_are_not_called_damaged(tmp_path, plan, path):
    account(tmp_path, plan).enter("a" * 32)
    body = path.read_bytes()[:-32].replace(b"hearsay budget 2", b"hearsay budget 3")
    path.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(LedgerError, match=r"was written in format 3: this version reads 1 and 2"):
        account(tmp_path, plan)


def test_a_lost_file_is_missed_where_a_ledger_lies_beside(tmp_path, plan, path):
    ledger = begin(tmp_path, plan, "one")
    two = account(tmp_path, plan, "two")
    kept = path.read_bytes()
    path.unlink()
    message = r"alice\.budget is not there, and should know .* \(.*/state/one/alice\.ledger\): it"
    for run in ("two", "one"):  # another run, and the one that would go on
        with pytest.raises(LedgerError, match=message):
            account(tmp_path, plan, run)
    with pytest.raises(LedgerError, match=message):
        two.enter("b" * 32)
    assert not path.exists(), "nothing begins anew"
    found, wrong = spending.spent([path.parent])
    assert found["alice"]["total"] is None and found["alice"]["runs"][0]["spent"] == 1.0
    assert len(wrong) == 1 and "alice.budget is not there, and should know" in wrong[0]
    ledger.unlink()
    with pytest.raises(LedgerError, match=message):
        account(tmp_path, plan, "two")  # its mark tells as well
    path.write_bytes(kept)
    assert account(tmp_path, plan, "two").lifetime.runs == ("one",)


def test_an_older_copy_is_missed(tmp_path, plan, path):
    begin(tmp_path, plan, "one")
    old = path.read_bytes()
    begin(tmp_path, plan, "two")
    begin(tmp_path, plan, "three")
    new = path.read_bytes()
    path.write_bytes(old)
    with pytest.raises(
        LedgerError, match=r"alice\.budget does not know what has sent messages"
    ) as raised:
        account(tmp_path, plan, "four")
    assert "two/alice.ledger" in str(raised.value) and "three/alice.ledger" in str(raised.value)
    assert "one/alice.ledger" not in str(raised.value)
    found, wrong = spending.spent([path.parent])
    assert found["alice"]["total"] is None and len(found["alice"]["runs"]) == 3 and len(wrong) == 1
    path.write_bytes(new)
    assert account(tmp_path, plan, "four").lifetime.runs == ("one", "two", "three")


@pytest.mark.parametrize("sent", [False, True])
def test_whatever_moment_a_process_dies_at_the_file_knows_its_ledger(tmp_path, plan, path, sent):
    """Before it is entered; between that and its message; after."""
    one = account(tmp_path, plan)
    with Ledger(load(tmp_path / "one.toml").members[0].ledger, {"run": "one"}) as ledger:
        instance = ledger.instance
    account(tmp_path, plan)
    account(tmp_path, plan, "two")
    one.enter(instance)
    if sent:
        with Ledger(ledger.path, {"run": "one"}) as ledger:
            ledger.commit(0, b"message", 1.0, {}, {"x": np.zeros(1)})
    assert account(tmp_path, plan).lifetime.runs == ()
    assert account(tmp_path, plan, "two").lifetime.runs == ("one",)


def test_a_ledger_without_a_message_asks_for_no_file(tmp_path, plan, path):
    one = account(tmp_path, plan)
    with Ledger(load(tmp_path / "one.toml").members[0].ledger, {"run": "one"}) as ledger:
        one.enter(ledger.instance)
    path.unlink()
    assert account(tmp_path, plan, "two").lifetime.runs == ()


def test_a_run_that_begins_while_another_one_looks(tmp_path, plan, path, monkeypatch):
    """Ledgers are looked for first: what has a message by then has been entered before."""
    begin(tmp_path, plan, "one")
    first = missing.beside

    def beside(path):
        found = first(path)
        monkeypatch.setattr(missing, "beside", first)
        begin(tmp_path, plan, "two")
        return found

    monkeypatch.setattr(missing, "beside", beside)
    assert account(tmp_path, plan, "three").lifetime.runs == ("one", "two")


def test_an_agent_with_two_folders_of_states_is_told_of_both(tmp_path, plan, path):
    begin(tmp_path, plan, "one")
    other = path.parent.with_name("other")
    shutil.copytree(path.parent, other)
    found, wrong = spending.spent([other, path.parent])
    assert list(found) == ["alice", f"alice in {path.parent}"] and wrong == []


def test_a_copy_of_a_run_that_lies_beside_is_known(tmp_path, plan, path):
    ledger = begin(tmp_path, plan, "one")
    shutil.copytree(ledger.parent, path.parent / "evidence")
    assert account(tmp_path, plan, "two").lifetime.runs == ("one",)


def test_a_ledger_that_cannot_be_read_is_known_by_its_run(tmp_path, plan, path):
    ledger = begin(tmp_path, plan, "one")
    mark.place(ledger).write_bytes(b"nonsense")
    assert account(tmp_path, plan, "two").lifetime.runs == ("one",)
    # In another folder the ledger itself still says which one it is.
    other = ledger.parent.rename(path.parent / "evidence")
    assert account(tmp_path, plan, "two").lifetime.runs == ("one",)
    kept = (other / ledger.name).read_bytes()
    (other / ledger.name).write_bytes(b"nonsense")
    with pytest.raises(LedgerError, match=r"does not know .*evidence/alice\.ledger"):
        account(tmp_path, plan, "two")
    other.rename(ledger.parent)
    ledger.write_bytes(kept)
    assert account(tmp_path, plan, "two").lifetime.runs == ("one",)
    path.unlink()
    with pytest.raises(LedgerError, match=r"should know .*one/alice\.ledger"):
        account(tmp_path, plan, "two")
    mark.place(ledger).unlink()  # then the ledger itself is looked at
    with pytest.raises(LedgerError, match=r"should know .*one/alice\.ledger"):
        account(tmp_path, plan, "two")
    ledger.write_bytes(b"nonsense")
    with pytest.raises(LedgerError, match=r"should know .*one/alice\.ledger"):
        account(tmp_path, plan, "two")


def test_what_is_lost_for_good_counts_as_infinite_for_all_records(tmp_path, plan, path):
    ledger = begin(tmp_path, plan, "one", rows=slice(0, 10))
    path.unlink()
    assert missing.adopt(path) == ("alice", ["one"])
    assert path.stat().st_mode & 0o777 == 0o600
    # The run itself goes on, and its own plan is not all that its records have spent.
    for run, rows in (("one", slice(0, 10)), ("two", slice(10, 40))):
        found = account(tmp_path, plan, run, rows=rows).lifetime
        assert (found.before, found.total) == (math.inf, math.inf) and "one" in found.runs
        assert str(found).startswith("spent before infinite (run one; ")
    with pytest.raises(ValueError, match=r"lifetime in \[privacy\] must be at least infinite"):
        account(tmp_path, plan, "two", limit=100.0)
    account(tmp_path, plan, rows=slice(0, 10)).enter(mark.instance_of(ledger))
    assert account(tmp_path, plan, "two").lifetime.before == math.inf
    assert lifetime.worst(book.read(path))[0] == math.inf
    assert missing.adopt(path) == ("alice", []), "it knows them now"


def test_a_book_without_any_records_is_infinite(tmp_path, plan, path):
    begin(tmp_path, plan, "one")
    path.unlink()
    missing.adopt(path)
    assert lifetime.worst(book.read(path))[0] == math.inf
    assert spending.spent([path.parent])[0]["alice"]["total"] == math.inf


def test_there_must_be_something_to_adopt(tmp_path, plan, path):
    account(tmp_path, plan).enter("a" * 32)
    with pytest.raises(FileNotFoundError, match="there is nothing to adopt"):
        missing.adopt(path.with_name("carol.budget"))
    for wrong in (path.parent, path.parent / "one" / "alice.ledger", tmp_path / "no" / "a.budget"):
        with pytest.raises(ValueError, match=r"must be NAME\.budget in a folder of states, got"):
            missing.adopt(wrong)
    path.write_bytes(b"nonsense")
    with pytest.raises(LedgerError, match="is damaged"):
        missing.adopt(path)
    assert path.read_bytes() == b"nonsense" and not (tmp_path / "no").exists()


def test_an_agent_under_a_new_name_is_told_where_its_records_were_before(
    tmp_path, plan, path, caplog
):
    begin(tmp_path, plan, "one", rows=slice(0, 10))
    assert caplog.text == ""
    member = replace(load(tmp_path / "one.toml").members[0], name="anna")
    first = lifetime.Account(member, plan, 0, "two", None, rehearsed=False)
    assert first.lifetime.runs == ()
    assert f"10 of these records were in runs of alice ({path}), and anna has no" in caplog.text
    renamed = path.with_name("anna.budget")
    path.rename(renamed)
    with pytest.raises(LedgerError, match="must be the budget file of anna, got that of alice"):
        lifetime.Account(member, plan, 0, "two", None, rehearsed=False)
    assert missing.adopt(renamed) == ("alice", [])
    found = lifetime.Account(member, plan, 0, "two", None, rehearsed=False)
    assert found.lifetime.runs == ("one",) and found.lifetime.records == 10


def test_ledgers_of_a_name_that_was_given_up_are_no_loss(tmp_path, plan, path):
    begin(tmp_path, plan, "one")
    anna = path.with_name("anna.budget")
    path.rename(anna)
    assert len(spending.spent([path.parent])[1]) == 2, "not before it says whose it is"
    missing.adopt(anna)
    found, wrong = spending.spent([path.parent])
    assert wrong == [] and list(found) == ["anna"]
    (run,) = found["anna"]["runs"]
    assert (run["run"], run["spent"], run["counted"]) == ("one", 1.0, pytest.approx(2.0))
    # Its file would be empty.
    message = (
        r"alice\.budget is not there, and .*anna\.budget knows what has sent messages beside it"
        r" \(.*/one/alice\.ledger\): alice goes by the name of anna now"
    )
    for run in ("one", "two"):
        with pytest.raises(LedgerError, match=message):
            account(tmp_path, plan, run)
    anna.rename(path)
    missing.adopt(path)
    assert account(tmp_path, plan, "two").lifetime.runs == ("one",)


def test_another_agents_run_of_that_name_is_not_ones_own(tmp_path, plan, path):
    """A ledger that cannot be read is known by its run's name, and others have run it, too."""
    ledger = begin(tmp_path, plan, "one")
    bob = Spent("b" * 32, "one", 0.0, 5, "gaussian", 2.0, 1e-5)
    book.write(path.with_name("bob.budget"), book.Book(bytes(32), [bob], []))
    mark.place(ledger).write_bytes(b"nonsense")
    path.unlink()
    with pytest.raises(LedgerError, match=r"alice\.budget is not there, and should know"):
        account(tmp_path, plan, "two")


def test_commands(tmp_path, monkeypatch, capsys):
    """As an operator meets it."""

    def command(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["hearsay", *words])
        monkeypatch.setattr(
            sys.modules["hearsay.simulation.simulating"], "enable_compilation_cache", lambda: None
        )
        with pytest.raises(SystemExit) as ended:
            commands.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), " ".join((said.out + said.err).split())

    run_threads(load(files(tmp_path, "one")), None)
    config = files(tmp_path, "two")
    alice, bob = (tmp_path / "state" / f"{name}.budget" for name in ("alice", "bob"))
    alice.rename(tmp_path / "x")
    bob.rename(alice)
    (tmp_path / "x").rename(bob)
    words = ("agent", "--config", str(config), "--name", "alice", "--check")
    code, said = command(*words)
    assert code == 6 and "alice.budget must be the budget file of alice, got that of bob" in said
    bob.rename(alice)
    assert command(*words)[0] == 0
    alice.unlink()
    code, said = command(*words)
    assert code == 6 and f"lost for good: hearsay network adopt {alice}" in said
    code, said = command("network", "spent", str(tmp_path / "state"))
    assert code == 6 and "alice.budget is not there, and should know" in said
    code, said = command("network", "adopt", str(alice))
    assert (code, said) == (
        0,
        f"{alice} is the budget file of alice. Run one was entered as infinite: what it and runs"
        " before it spent is not known.",
    )
    code, said = command(*words)
    assert code == 0 and "spent before infinite (run one; 40 of these records)" in said
    monkeypatch.chdir(tmp_path)
    shutil.copy(alice, "state/anna.budget")
    code, said = command("network", "adopt", "state/anna.budget", "--json")
    assert json.loads(said) == {"agent": "anna", "was": "alice", "entered": []} and code == 0
    # A run that was done goes on being done, whatever became of the file.
    assert Agent(load(tmp_path / "one.toml"), "alice").account.lifetime.before == math.inf


@pytest.mark.parametrize("place", ["state", "state/one"])
@pytest.mark.parametrize(
    "words",
    [("agent", "--name", "alice", "--config"), ("network", "up", "--config"), ("network", "spent")],
    ids=lambda words: words[-2],
)
def test_a_file_where_states_should_be_is_a_mistake_in_net_toml(tmp_path, capsys, place, words):
    """No waiting mends that, so a service manager is not to try again."""
    config, there = files(tmp_path, "one"), tmp_path / place
    there.parent.mkdir(exist_ok=True)
    there.write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["hearsay", *words, str(config)])
        with pytest.raises(SystemExit) as ended:
            commands.main()
    said = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2
    assert f"state of alice must be a folder, got a file: {there} is in the way of" in said
