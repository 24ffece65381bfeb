"""A network that somebody watches: what makes an alarm and what does not, how long it will take.
Time is given, nobody waits for it.
"""

from __future__ import annotations

import pytest

from hearsay.deploy import answers, watching
from hearsay.deploy.watching import Watch

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
    assert told(watched(*moments)) == [("alice", "1 things came to it that were no messages", 3)]
    moments.append((9.0, says(9, dropped={}), says(9), says(9)))
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
        watch.agents[name].ended(100, 2.0, private=True)
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


def test_a_process_that_begins_anew_counts_anew_though_nothing_was_dropped_at_first():
    drops = [{}, {"size": 7}, {}]
    moments = [(float(i), says(i, dropped=d), says(i), says(i)) for i, d in enumerate(drops)]
    assert len(told(watched(*moments[:2]))) == 1
    assert told(watched(*moments)) == []


def test_a_ledger_says_of_whom_the_noise_is_no_secret():
    watch = watched((0.0, None, None, says(3)), (1.0, None, None, says(4)))
    watch.agents["alice"].ended(100, 2.0, private=False)
    watch.agents["bob"].ended(100, 2.0, private=True)
    assert told(watch) == [("alice", "its noise follows from a seed: NOT PRIVATE", 0.0)]


def test_who_vanishes_near_the_end_may_be_done():
    gone = None, None, None
    start = (0.0, says(0), says(0), says(99))
    watch = watched(start, (10.0, says(80), says(10), says(99)), (11.0, *gone), (71.0, *gone))
    assert told(watch) == [
        ("alice", "is not reached, and was in round 80 of 100 before: it may be done", 11.0),
        ("bob", "is not reached, and was in round 10 of 100 before", 11.0),
        ("carol", "is not reached, and was in round 99 of 100 before", 11.0),
    ]


def test_one_look_has_no_patience_with_who_is_not_there():
    watch = Watch(NAMES, CONFIG, once=True)
    watch.saw(5.0, dict(zip(NAMES, (says(1), says(1, waiting_for=["carol"]), None), strict=True)))
    assert told(watch) == [("carol", "was never reached", 5.0)]


def test_rounds_that_take_an_hour_may_take_an_hour():
    """As where records arrive while the network runs; waiting for those is no alarm at all."""
    hour = 3600.0
    waits = {"waiting_for": [answers.OWN_RECORDS]}
    moments = [(k * hour, *(says(k, **waits),) * 3) for k in range(5)]
    end = says(4, waiting_for=["alice"])
    late = [(4 * hour + 60.0 * k, says(4, **waits), says(4), end) for k in range(1, 179)]
    assert told(watched(*moments, *late)) == []
    late.append((7.1 * hour, says(4, **waits), says(4), end))
    assert ("bob", "stands in round 4", 4 * hour) in told(watched(*moments, *late))
    longer = (7.2 * hour, says(4, **waits), says(4), end)
    assert [name for name, *_ in told(watched(*moments, *late, longer))] == ["bob", "carol"]


def test_an_outage_does_not_make_patience_longer():
    quick = [(float(k), *(says(k),) * 3) for k in range(30)]
    outage = [(500.0, *(says(30),) * 3), (501.0, *(says(31),) * 3), (565.0, *(says(31),) * 3)]
    assert ("bob", "stands in round 31", 501.0) in told(watched(*quick, *outage))


def test_other_names_than_those_of_agents_are_nobodys():
    evil = says(3, waiting_for=["<b>", "bob"], hears=["x" * 1000, "bob"], alive=["eve"])
    said = watched((0.0, evil, says(3), says(3))).agents["alice"].said
    assert (said.waiting_for, said.hears, said.alive) == ({"bob"}, {"bob"}, frozenset())
