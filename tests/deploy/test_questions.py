"""Cards that were asked of somebody who died over the question are asked of it again."""

from __future__ import annotations

import pytest

pytest.importorskip("zenoh")
pytest.importorskip("cryptography")

from hearsay.deploy import gossip


class Held:
    """An exchange that holds everything of itself and the introduction of carol."""

    names = ("alice", "carol")

    def stages(self) -> str:
        return "21"


class Asking:
    """Neighbours of whom all questions are kept, and `open` are under way."""

    def __init__(self) -> None:
        self.asked, self.open = list[tuple[str, str]](), False

    def unasked(self, names: set[str], what: str) -> set[str]:
        return set() if self.open else names

    def ask(self, name: str, what: str, answered) -> None:
        self.asked.append((name, what))


def test_a_question_that_nobody_answered_is_asked_again(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(gossip.time, "monotonic", lambda: now[0])
    neighbours = Asking()
    talk = gossip.Gossip(Held(), neighbours)
    talk._digits["carol"] = "22"
    question = ("carol", f"{gossip.WORD}-1")
    talk._ask_for({"carol"})
    assert neighbours.asked == [question]
    # Not while it may still be answered, nor while the network has it under way.
    talk._ask_for({"carol"})
    now[0] += 10 * gossip._PATIENCE
    neighbours.open = True
    talk._ask_for({"carol"})
    assert neighbours.asked == [question]
    neighbours.open = False
    talk._ask_for({"carol"})
    assert neighbours.asked == [question] * 2
    # What was answered is not asked for again: it was not good enough.
    talk._take(1, "carol", b"a card")
    now[0] += 10 * gossip._PATIENCE
    talk._ask_for({"carol"})
    assert neighbours.asked == [question] * 2
