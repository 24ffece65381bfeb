"""The page of a network that somebody watches: what it says, when it is written, how it ends."""

from __future__ import annotations

import errno
import re
from contextlib import nullcontext

import pytest

from hearsay.cli import network_state, network_watch
from hearsay.cli.network_watch import WatchedPage
from hearsay.deploy import launch, rows
from hearsay.deploy.launch import Status
from hearsay.deploy.rows import LedgerError
from hearsay.deploy.settings import load
from hearsay.deploy.watching import Watch
from hearsay.report import watched
from hearsay.report.watched import watched_page
from tests.deploy.test_history import begin, budgets, network, send
from tests.deploy.test_watching import NAMES, says
from tests.deploy.test_watching import watched as watch_of
from tests.report.test_html import Balanced

pytest.importorskip("zenoh")


def text(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def page_of(watch, folder, every=5.0) -> str:
    page = watched_page(watch, folder / "watch.html", "Run first", every).read_text("utf-8")
    assert Balanced(page).loads == []
    return page


def test_it_says_where_everybody_is_and_what_deserves_a_look(tmp_path):
    waits = says(8, waiting_for=["carol"], spent=0.5)
    moments = [(60.0 * k, says(9), waits, None) for k in range(3)]
    watch = watch_of((-5.0, says(1), says(1), says(1)), *moments)
    page = page_of(watch, tmp_path)
    assert '<meta http-equiv="refresh" content="5">' in page
    said = text(page)
    assert "As of 1970-01-01 00:02:00 UTC" in said and "2 of 3 reached" in said
    assert "bob waits for carol (since 1970-01-01 00:00:00)" in said
    assert "carol is not reached, and was in round 1 of 100 before" in said
    assert "1 to 9 of 100" in said and "Largest epsilon so far 0.5000 bob" in said
    assert "bob 8 of 100 0.5000 2 of 2 carol 0" in said and "carol 1 of 100" in said
    assert page.count("<svg ") == 2 and "nobody knows yet for how long" in said


def test_the_end_of_the_watching_is_no_standstill(tmp_path):
    going = page_of(watch_of((0.0, *(says(4),) * 3), (2.0, *(says(8),) * 3)), tmp_path, None)
    assert 'http-equiv="refresh"' not in going and "Nobody watches any more" in going
    assert "about 46 s more" in text(going)
    done = page_of(watch_of((0.0, *(says(100, done=True),) * 3)), tmp_path)
    assert "All agents are done" in done and "Nobody watches" not in done
    assert "Worth a look" not in done


def test_links_that_are_down_are_seen_from_both_ends():
    one, two = says(hears=["bob"], alive=["bob"]), says(hears=["alice"], alive=[])
    watch = watch_of((0.0, one, two, says(hears=["alice"], alive=["alice"])))
    found = watched._pairs(list(watch.agents.values()))
    assert found == {frozenset(("alice", "bob")): False, frozenset(("alice", "carol")): True}


def watched_by(names, **facts):
    watch = Watch(names, "abc", 60.0)
    for at in (0.0, 100.0):
        watch.saw(at, {name: says(3, **facts) for name in names})
    return watch


def test_thousands_of_agents_have_a_page_too(tmp_path):
    names = [f"agent-{k}" for k in range(2000)]
    page = page_of(watched_by(names), tmp_path)
    assert "and 1,900 more" in page and page.count("<svg ") == 2
    everybody = watched_by(names[:120], hears=names[:120])
    assert page_of(everybody, tmp_path).count("<svg ") == 1, "7,140 links are no picture"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path):
    return network(tmp_path)


@pytest.fixture
def limit(path):
    return budgets(path)[0]


@pytest.fixture
def shown(path, limit, tmp_path):
    """alice is done by her ledger, bob is on his way by his, carol's is elsewhere."""
    with begin(path, "alice") as ledger:
        send(ledger, 4, [0.0, limit / 4, limit / 2, limit])
        ledger.finish(3, {})
    with begin(path, "bob") as ledger:
        send(ledger, 2, [0.0, limit / 8])
    return WatchedPage(load(path), tmp_path / "pages" / "watch.html", 10.0, Clock())


def answers(shown, **facts):
    digest = shown.network.digest
    return [
        Status(n, f and f | {"config": digest})
        for n, f in {**dict.fromkeys(NAMES), **facts}.items()
    ]


@pytest.mark.parametrize(("every", "said"), [(2.0, "2"), (1000.0, "1000"), (86400.0, "86400")])
def test_browsers_are_told_seconds_as_they_read_them(tmp_path, every, said):
    page = page_of(watch_of((0.0, *(says(4),) * 3)), tmp_path, every)
    assert f'http-equiv="refresh" content="{said}"' in page


def test_a_page_must_be_a_file(shown, tmp_path):
    with pytest.raises(ValueError, match="--page must be a file, got the folder"):
        WatchedPage(shown.network, tmp_path, 5.0)


@pytest.mark.parametrize("error", [LedgerError("damaged"), PermissionError(13, "no")])
def test_a_ledger_that_cannot_be_read_does_not_end_the_watching(shown, monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr(rows, "overview", fail)
    shown.saw(answers(shown))
    assert not shown.watch.agents["alice"].done and shown.file.exists()


def test_it_is_written_at_once_and_then_as_often_as_asked(shown):
    times = []
    for second in range(25):
        shown.clock.now = 1000.0 + second
        before = shown.file.stat().st_mtime_ns if shown.file.exists() else None
        shown.saw(answers(shown, alice=says(second), bob=says(second), carol=says(second)))
        if not shown.file.exists() or shown.file.stat().st_mtime_ns != before:
            times.append(second)
    assert times == [0, 10, 20]
    shown.finish()
    assert "Nobody watches any more" in shown.file.read_text("utf-8")


def test_whose_ledger_says_so_has_ended(shown, limit):
    shown.saw(answers(shown, bob=says(1)))
    alice, bob, carol = shown.watch.agents.values()
    assert alice.done and alice.said.round == 4 and alice.said.spent == limit
    assert not bob.done and not carol.done
    shown.saw(answers(shown))
    assert not bob.done, "his ledger is not at its end"


def test_ledgers_are_looked_at_less_and_less(shown, monkeypatch):
    looked = []
    monkeypatch.setattr(network_watch, "_ended", lambda member, _: looked.append(member.name))
    for second in range(200):
        shown.clock.now = 1000.0 + second
        shown.saw(answers(shown, alice=says(3), carol=says(3)))
    assert looked == ["bob"] * 8  # at 0, 2, 6, 14, 30, 62, 122, 182 s


def test_a_full_disk_does_not_end_the_watching(shown, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(watched, "watched_page", full)
        for second in (0, 10, 20):
            shown.clock.now = 1000.0 + second
            shown.saw(answers(shown, bob=says(1)))
    assert capsys.readouterr().err.count("No space left") == 1
    with pytest.raises(ValueError, match="was not written"):
        shown.require_written()
    shown.clock.now += 10
    shown.saw(answers(shown, bob=says(1)))
    assert shown.file.exists()
    shown.require_written()


def test_what_goes_wrong_leaves_no_page_that_looks_alive(path, tmp_path, monkeypatch):
    digest, page = load(path).digest, tmp_path / "watch.html"
    said = iter([1, 2])

    def statuses(found, observer, seconds=2.0):
        if (round := next(said, None)) is None:
            raise RuntimeError("the session is gone")
        return [Status(name, says(round, config=digest)) for name in found.names]

    monkeypatch.setattr(launch, "statuses", statuses)
    monkeypatch.setattr(launch, "observe", lambda found: nullcontext())
    monkeypatch.setattr(network_state.time, "sleep", lambda _: None)
    with pytest.raises(RuntimeError, match="the session is gone"):
        network_state.status(place=path, page=page, every=1.0, json=False)
    assert "Nobody watches any more" in page.read_text("utf-8")


def test_the_command_ends_with_the_network_and_leaves_the_page(path, tmp_path, monkeypatch, capsys):
    digest = load(path).digest
    said = iter([(1, False), (2, False), (100, True)])

    def statuses(found, observer, seconds=2.0):
        round, done = next(said)
        return [Status(name, says(round, done=done, config=digest)) for name in found.names]

    monkeypatch.setattr(launch, "statuses", statuses)
    monkeypatch.setattr(launch, "observe", lambda found: nullcontext())
    monkeypatch.setattr(network_state.time, "sleep", lambda _: None)
    page = tmp_path / "pages" / "watch.html"
    network_state.status(place=path, page=page, every=1.0, json=False)
    assert "All agents are done" in page.read_text("utf-8")
    assert "watch.html" in " ".join(capsys.readouterr().out.split())
