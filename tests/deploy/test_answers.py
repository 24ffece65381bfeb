"""What an agent answers about itself: taken as it is, or not at all."""

from __future__ import annotations

import json
import math

import pytest

from hearsay.deploy import launch
from hearsay.deploy.answers import understood
from hearsay.deploy.settings import load
from tests.deploy.networks import write
from tests.deploy.test_watching import says


def test_what_is_right_is_taken_as_it_is():
    facts = says(
        3, waiting_for=["bob"], dropped={"old": 2, "size": 3}, spent=0.5, relay=1, relays=2
    )
    said = understood(json.loads(json.dumps(facts)))
    assert (said.round, said.of, said.done, said.private, said.spent) == (3, 100, False, True, 0.5)
    assert (said.unit, said.config, said.dropped) == ("epsilon", "abc", 5)
    assert said.waiting_for == {"bob"} and said.alive == said.hears == {"alice", "bob"}
    assert understood(says(spent=math.inf)).spent == math.inf, "that of no noise"
    assert understood(says(300)).round == 100


WRONG = {
    "round": [None, -1, 2**53, 10**400, 1.0, "1", True, [1]],
    "of": [None, 0, -1, 1.0, "1", True],
    "done": [None, 1, "yes"],
    "private": [None, 0, "no"],
    "spent": [None, -1.0, math.nan, "0.1", 10**400, True, [0.1]],
    "unit": [None, "<script>", 3, ["epsilon"]],
    "config": [None, 3, ["abc"]],
    "waiting_for": [None, "bob", [["bob"]], {"bob": 1}, [3]],
    "alive": [None, "bob", [None]],
    "hears": [None, "bob", [{}]],
    "dropped": [None, 3, [], {"x": -1}, {"x": "9"}, {"x": True}, {"x": 10**400}],
    "relay": [-1, "1", 1.0, None, True],
    "relays": [-1, "1", 1.0, None, True],
}


@pytest.mark.parametrize(("key", "values"), WRONG.items())
def test_what_is_wrong_in_one_place_is_no_answer(key, values):
    for value in values:
        assert understood({**says(3), key: value}) is None, value
    if not key.startswith("relay"):
        without = says(3)
        del without[key]
        assert understood(without) is None


@pytest.mark.parametrize("facts", [None, 7, "round", [], {}, [says()]])
def test_what_is_no_object_is_no_answer(facts):
    assert understood(facts) is None


def test_who_does_not_answer_as_an_agent_does_is_not_reached(tmp_path):
    """Nothing that shows answers has to look at them again."""
    found = load(write(tmp_path, names=("alice", "bob", "carol")))
    said = {"alice": says(1), "bob": {**says(1), "spent": "x"}}

    class Asked:
        def hello(self, name, timeout):
            return json.dumps(said[name]).encode() if name in said else b"{" * 10_000

    seen = launch.statuses(found, Asked())
    assert [(one.name, one.facts is not None) for one in seen] == [
        ("alice", True),
        ("bob", False),
        ("carol", False),
    ]
