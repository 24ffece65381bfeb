"""A network that somebody watches: what is understood of its agents' words, what makes an alarm and
what does not, how long it will take. Time is given, nobody waits for it.
"""

from __future__ import annotations

import json
import math

import pytest

from hearsay.deploy import watching
from hearsay.deploy.watching import Watch, understood

NAMES = ("alice", "bob", "carol")
CONFIG = "abc"


def says(round=0, **more):
    usual = {"round": round, "of": 100, "done": False, "private": True, "spent": 0.01 * round}
    usual |= {"unit": "epsilon", "config": CONFIG, "waiting_for": [], "dropped": {}}
    return {**usual, "alive": ["alice", "bob"], "hears": ["alice", "bob"], **more}


def watched(*moments, patience=60.0):
    """Moments: (time, what each of the three says)."""
    watch = Watch(NAMES, CONFIG, patience)
    for at, *facts in moments:
        watch.saw(at, dict(zip(NAMES, facts, strict=True)))
    return watch


def told(watch):
    return [(alarm.name, alarm.why, alarm.since) for alarm in watch.alarms()]


def test_while_all_goes_well_there_is_no_alarm():
    watch = watched(*[(at, says(at), says(at), says(at)) for at in range(0, 100, 5)])
    assert told(watch) == [] and not watch.all_done
    assert watch.left == pytest.approx(5.0)


GONE = says(9), None, says(9)
WAITING = says(9), says(9, waiting_for=["carol"]), says(9)
STANDING = says(9), says(9), says(9)


@pytest.mark.parametrize(
    ("moment", "alarm"),
    [
        (GONE, ("bob", "is not reached, and was in round 8 of 100 before", 10.0)),
        (WAITING, ("bob", "waits for carol", 10.0)),
        (STANDING, ("alice", "stands in round 9", 10.0)),
    ],
)
def test_what_lasts_is_an_alarm_and_what_passes_is_none(moment, alarm):
    start = (0.0, says(8), says(8), says(8))
    assert told(watched(start, (10.0, *moment), (69.0, *moment))) == []
    assert alarm in told(watched(start, (10.0, *moment), (70.0, *moment)))
    over = (71.0, says(50), says(50), says(50))
    assert told(watched(start, (10.0, *moment), (70.0, *moment), over)) == []


def test_the_same_name_is_waited_for_since_it_first_was():
    waits = [says(3, waiting_for=w) for w in (["bob"], ["bob", "carol"], ["carol"])]
    moments = [(60.0 * i, one, says(3 + i), says(3 + i)) for i, one in enumerate(waits)]
    assert told(watched(*moments[:2])) == [("alice", "waits for bob", 0.0)]
    assert told(watched(*moments)) == [("alice", "waits for carol", 60.0)]


def test_who_was_never_there():
    watch = watched((5.0, says(1), says(1), None), (65.0, says(2), says(2), None))
    assert told(watch) == [("carol", "was never reached", 5.0)] and watch.left is None


def test_what_is_dropped_counts_since_the_watching_began():
    drops = [{"old": 3}, {"old": 3}, {"old": 3, "size": 2}, {"old": 1}, {"old": 1}]
    moments = [(float(i), says(i, dropped=d), says(i), says(i)) for i, d in enumerate(drops)]
    assert told(watched(*moments[:2])) == []
    assert told(watched(*moments[:3])) == [
        ("alice", "2 things came to it that were no messages", 2)
    ]
    assert told(watched(*moments)) == [], "a process that began anew counts anew"


def test_what_no_time_mends_is_said_at_once():
    watch = watched((7.0, says(1, private=False), says(1, config="other"), says(1)))
    assert told(watch) == [
        ("alice", "its noise follows from a seed: NOT PRIVATE", 7.0),
        ("bob", "it has another configuration", 7.0),
    ]


def test_who_is_done_is_never_an_alarm_and_nobody_waits_for_the_end():
    done = says(100, done=True)
    watch = watched((0.0, done, says(98), says(98)), (500.0, None, says(99), says(99)))
    assert [alarm.name for alarm in watch.alarms()] == [] and watch.left == pytest.approx(500.0)
    watch = watched((0.0, done, done, done), (500.0, None, None, None))
    assert watch.all_done and told(watch) == [] and watch.left == 0.0


def test_a_ledger_says_who_has_ended():
    gone = None, None, None
    watch = watched((0.0, says(97), says(97), None), (500.0, *gone), (600.0, *gone))
    assert len(told(watch)) == 3
    for name in NAMES:
        watch.agents[name].ended(100, 2.0)
    assert watch.all_done and told(watch) == []
    assert {(a.said.round, a.said.of, a.said.spent) for a in watch.agents.values()} == {
        (100, 100, 2.0)
    }


def test_months_take_no_more_room_than_days(monkeypatch):
    monkeypatch.setattr(watching, "_MOST", 10)
    watch = watched(*[(float(at), says(at), says(at), says(at)) for at in range(100)])
    rounds = watch.agents["bob"].rounds
    assert len(rounds) <= 11 and rounds[0] == (0.0, 0) and rounds[-1] == (99.0, 99)
    assert rounds == sorted(rounds)


HOSTILE = [
    None, 7, "round", [], {}, {"of": "9"}, {"of": True}, {"of": -3}, {"of": math.nan},
]  # fmt: skip


@pytest.mark.parametrize("facts", HOSTILE)
def test_what_is_no_answer_is_none(facts):
    assert understood(facts, frozenset(NAMES)) is None


def test_nothing_strange_gets_through():
    evil = says() | {"round": 10**400, "spent": 10**400, "unit": "<script>", "alive": "alice"}
    evil |= {"waiting_for": ["<b>", "bob", ["bob"], {}, 3], "hears": {"bob": 1}, "done": "yes"}
    evil |= {"dropped": {"x": "9", "y": -2, "z": 4, "w": True}, "private": 0, "config": ["abc"]}
    said = understood(json.loads(json.dumps(evil)), frozenset(NAMES))
    assert said.round == 2**53 and math.isfinite(said.spent) and said.unit == "epsilon"
    assert said.waiting_for == {"bob"} and said.alive == said.hears == frozenset()
    assert (said.dropped, said.done, said.config) == (4, False, "")
    assert said.private, "only what says that it is not private is not"
    infinite = understood(says(spent=math.inf), frozenset(NAMES))
    assert infinite.spent == math.inf and understood(says(spent=math.nan), frozenset()).spent == 0
