"""The mailbox: holds the one message that each neighbour owes for the rounds to come,
and nothing else.
"""

from __future__ import annotations

import logging
import sys
import threading
import time

import numpy as np
import pytest

from hearsay.deploy import mailbox as module
from hearsay.deploy.mailbox import Mailbox
from hearsay.deploy.messages import Format

FORMAT = Format("wards", "c" * 64, {"params": (3,)}, np.dtype("<f8"))
LAST = 1000
HEARS = ("bob", "carol")


def message(sender: str, step: int, value: float = 0.0, form: Format = FORMAT) -> bytes:
    return form.encode(sender, step, {"params": np.full(form.shapes["params"], value)})


def box(heard: dict[str, int] | None = None, form: Format = FORMAT) -> Mailbox:
    return Mailbox(form, HEARS, LAST, heard or {})


def put(mail: Mailbox, sender: str, step: int, value: float = 0.0) -> None:
    mail.put(sender, str(step), message(sender, step, value))


def held(mail: Mailbox, step: int) -> dict[str, float]:
    return {sender: float(fields["params"][0]) for sender, fields in mail.take(step).items()}


def test_the_right_messages_are_kept_until_their_round_is_over():
    mail = box()
    put(mail, "bob", 0, 1.5)
    put(mail, "bob", 1, 2.5)
    put(mail, "carol", 1, 3.5)
    assert held(mail, 0) == {"bob": 1.5}
    assert held(mail, 1) == {"bob": 2.5, "carol": 3.5}
    assert held(mail, 1) == {"bob": 2.5, "carol": 3.5}, "taking changes nothing"
    assert held(mail, 2) == {}
    assert (mail.dropped, mail.ignored()) == ({}, {})
    mail.begin(1)
    assert held(mail, 0) == {}
    assert held(mail, 1) == {"bob": 2.5, "carol": 3.5}
    mail.begin(2)
    assert held(mail, 1) == {}


def test_what_is_taken_does_not_change_when_more_arrives():
    mail = box()
    put(mail, "bob", 0)
    taken = mail.take(0)
    put(mail, "carol", 0)
    assert list(taken) == ["bob"]
    taken.clear()
    assert set(held(mail, 0)) == {"bob", "carol"}


def test_who_is_missing():
    mail = box()
    assert mail.wait(0, 0.0) == ["bob", "carol"]
    put(mail, "carol", 0)
    assert mail.wait(0, 0.0) == ["bob"]
    put(mail, "bob", 1)
    assert mail.wait(0, 0.01) == ["bob"]
    put(mail, "bob", 0)
    assert mail.wait(0, 60.0) == []
    assert Mailbox(FORMAT, (), LAST, {}).wait(0, 60.0) == [], "nobody to wait for"


def test_waiting_lasts_as_long_as_it_must_and_no_longer():
    mail = box()
    began = time.monotonic()
    assert mail.wait(0, 0.05) == ["bob", "carol"]
    assert time.monotonic() - began >= 0.045

    def later() -> None:
        for sender in HEARS:
            put(mail, sender, 0)

    thread = threading.Thread(target=later)
    thread.start()
    assert mail.wait(0, 300.0) == []
    assert time.monotonic() - began < 200
    thread.join()


def test_heard_is_the_latest_round_of_each_also_before_a_restart():
    mail = box({"bob": 4})
    mail.begin(3)
    assert mail.heard == {"bob": 4}
    put(mail, "bob", 3)
    assert mail.heard == {"bob": 4}
    put(mail, "bob", 5)
    put(mail, "carol", 3)
    assert mail.heard == {"bob": 5, "carol": 3}
    mail.heard["bob"] = 99
    assert mail.heard["bob"] == 5


def test_what_comes_too_late_or_too_early_has_been_heard_and_unreadable_bytes_have_not():
    """Its sender must not add noise to it again, whether it was of use here or not."""
    mail = box()
    mail.begin(5)
    mail.put("bob", "5", b"nonsense")
    assert mail.heard == {}
    put(mail, "bob", 2)
    put(mail, "carol", 5 + 16)
    assert mail.heard == {"bob": 2, "carol": 21}
    put(mail, "carol", 6)
    assert mail.heard == {"bob": 2, "carol": 21}


OTHER = Format("other", "c" * 64, FORMAT.shapes, FORMAT.dtype)
CHANGED = Format("wards", "d" * 64, FORMAT.shapes, FORMAT.dtype)
LONGER = Format("wards", "c" * 64, {"params": (4,)}, FORMAT.dtype)
MORE = Format("wards", "c" * 64, {"params": (3,), "x": ()}, FORMAT.dtype)
SINGLE = Format("wards", "c" * 64, {"params": (3,)}, np.dtype("<f4"))

DROPS = {
    "unknown sender": ("mallory", "0", message("mallory", 0)),
    "wrong agent": ("bob", "0", message("carol", 0)),
    "wrong round": ("bob", "0", message("bob", 1)),
    "wrong run": ("bob", "0", message("bob", 0, form=OTHER)),
    "wrong configuration": ("bob", "0", message("bob", 0, form=CHANGED)),
    "wrong shape": ("bob", "0", message("bob", 0, form=LONGER)),
    "wrong type": ("bob", "0", message("bob", 0, form=SINGLE)),
    "wrong fields": ("bob", "0", MORE.encode("bob", 0, {"params": np.zeros(3), "x": 0.0})),
    "not finite": ("bob", "0", message("bob", 0, np.nan)),
    "not safetensors": ("bob", "0", b"nonsense"),
    "oversized": ("bob", "0", bytes(FORMAT.largest + 1)),
    "wrong key": ("bob", str(LAST), message("bob", LAST)),
}


@pytest.mark.parametrize("reason", DROPS)
def test_everything_else_is_dropped_counted_and_named_in_the_log(reason, caplog):
    mail = box()
    with caplog.at_level(logging.WARNING, "hearsay.agent"):
        for _ in range(120):
            mail.put(*DROPS[reason])
    assert mail.dropped == {reason: 120}
    assert mail.take(0) == {}
    assert mail.heard == {}
    sender = DROPS[reason][0]
    text = "dropped a message that claims to be from {}: {} ({} so far)"
    assert [record.getMessage() for record in caplog.records] == [
        text.format(sender, reason, n) for n in (1, 10, 100)
    ]


def test_drops_are_logged_by_sender_and_counted_together(caplog):
    mail = box()
    with caplog.at_level(logging.WARNING, "hearsay.agent"):
        mail.put("bob", "0", b"x")
        mail.put("carol", "0", b"x")
        mail.put("carol", "0", message("bob", 0))
    assert mail.dropped == {"not safetensors": 2, "wrong agent": 1}
    assert len(caplog.records) == 3


def test_a_flood_is_logged_by_powers_of_ten(caplog):
    mail = box()
    with caplog.at_level(logging.WARNING, "hearsay.agent"):
        for _ in range(10_500):
            mail.put("bob", "0", b"x")
    assert [record.args[2] for record in caplog.records] == [1, 10, 100, 1000, 10_000]  # type: ignore[index]


def test_whoever_waits_looks_up_when_there_is_news():
    mail = box()
    mail.wake()
    assert mail.wait(0, 300.0) == ["bob", "carol"], "also when the news came before"
    assert mail.wait(0, 0.0) == ["bob", "carol"]
    put(mail, "bob", 1)
    assert mail.wait(0, 300.0) == ["bob", "carol"], "a later round: the one before is lost"
    put(mail, "carol", 0)
    put(mail, "carol", 1)
    thread = threading.Thread(target=mail.wake)
    thread.start()
    mail.rest(300.0)
    thread.join()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        "01",
        "1.0",
        "0x1",
        " 1",
        "1 ",
        "1\n",
        "١",
        "1e0",
        "99999999999",
        "9" * 5000,
        str(LAST),
        "alive",
    ],
)
def test_keys_that_are_no_round_of_this_run(text):
    mail = box()
    mail.put("bob", text, message("bob", 1))
    assert mail.dropped == {"wrong key": 1}
    assert mail.take(1) == {}


def test_the_last_round_is_one():
    mail = box()
    mail.begin(LAST - 1)
    put(mail, "bob", LAST - 1, 2.0)
    assert held(mail, LAST - 1) == {"bob": 2.0}


def test_messages_of_old_rounds_change_nothing(caplog):
    mail = box()
    put(mail, "bob", 0, 1.0)
    mail.begin(2)
    put(mail, "bob", 0, 1.0)
    put(mail, "carol", 1, 1.0)
    assert mail.ignored() == {"old round": 2}
    assert mail.dropped == {}
    assert [mail.take(step) for step in range(3)] == [{}, {}, {}]
    assert caplog.records == []


def test_messages_too_far_ahead_are_not_held(caplog):
    mail = box()
    mail.begin(10)
    for step in range(10, 200):
        put(mail, "bob", step)
    window = [step for step in range(LAST) if mail.take(step)]
    assert window == list(range(10, 26))
    assert mail.ignored() == {"too early": 190 - 16}
    assert mail.dropped == {}
    assert mail.heard == {"bob": 199}
    assert caplog.records == []
    mail.begin(11)
    put(mail, "bob", 26)
    assert set(mail.take(26)) == {"bob"}, "the window moves with the rounds"


@pytest.mark.parametrize(("numbers", "window"), [(10, 16), (2**20, 7), (2**22, 2), (2**26, 2)])
def test_the_window_is_narrower_for_large_messages(numbers, window):
    """At most 64 MiB a neighbour, but two rounds at least: a neighbour may be one ahead."""
    mail = box(form=Format("wards", "c" * 64, {"params": (numbers,)}, np.dtype("<f8")))
    assert mail._ahead == window


def test_what_is_held_is_bounded_however_much_arrives():
    mail = box()
    for start in range(0, 200, 7):
        mail.begin(start)
        for step in range(max(0, start - 5), start + 40):
            for sender in (*HEARS, "mallory"):
                for _ in range(2):
                    put(mail, sender, step)
        assert len(mail._held) <= 16
        assert all(set(kept) <= set(HEARS) for kept in mail._held.values())
        assert min(mail._held) >= start
    assert len(mail._dropped) + len(mail._quiet) <= 3


def test_a_message_of_a_process_that_has_not_been_greeted_must_wait():
    instances: dict[str, str] = {}
    mail = Mailbox(FORMAT, HEARS, LAST, {}, instances)
    payload = FORMAT.encode("bob", 0, {"params": np.ones(3)}, "b1")
    mail.put("bob", "0", payload)
    assert (mail.take(0), mail.ignored(), mail.dropped) == ({}, {"not greeted": 1}, {})
    instances["bob"] = "b1"
    mail.put("bob", "0", payload)
    assert held(mail, 0) == {"bob": 1.0}


def test_a_second_process_of_the_same_name_is_not_believed():
    mail = Mailbox(FORMAT, HEARS, LAST, {}, {"bob": "b1", "carol": "c1"})
    mail.put("bob", "0", FORMAT.encode("bob", 0, {"params": np.ones(3)}, "b2"))
    mail.put("carol", "0", FORMAT.encode("carol", 0, {"params": np.ones(3)}, "b1"))
    mail.put("bob", "0", message("bob", 0))
    assert mail.take(0) == {}
    assert mail.dropped == {"another process of this name": 3}


def test_the_same_message_twice_is_fine():
    mail = box()
    for _ in range(3):
        mail.put("bob", "0", message("bob", 0, 1.0))
    assert held(mail, 0) == {"bob": 1.0}
    assert mail.dropped == {}


def test_of_two_different_messages_the_first_counts(caplog):
    """An agent that noises a round twice, or somebody who forges:
    what has been used must not change.
    """
    mail = box()
    put(mail, "bob", 0, 1.0)
    with caplog.at_level(logging.WARNING, "hearsay.agent"):
        put(mail, "bob", 0, 2.0)
        put(mail, "bob", 0, 1.0)
        put(mail, "bob", 0, 3.0)
    assert held(mail, 0) == {"bob": 1.0}
    assert mail.dropped == {"second message for one round": 2}
    assert len(caplog.records) == 1
    assert "claims to be from bob: second message for one round (1 so far)" in caplog.text


def test_a_message_for_a_round_that_ends_while_it_is_read_is_left_out(monkeypatch):
    mail = box()
    decode = Format.decode

    def slow(self, *arguments):
        found = decode(self, *arguments)
        mail.begin(1)
        return found

    monkeypatch.setattr(module.Format, "decode", slow)
    put(mail, "bob", 0)
    assert mail._held == {}


def test_many_threads_at_once():
    """Four threads for each neighbour send everything, some of it wrong,
    while the agent goes through the rounds.
    """
    rounds, seen = 60, list[dict[str, float]]()
    mail = box()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    payloads = {
        (sender, step): message(sender, step, step + 0.5)
        for sender in HEARS
        for step in range(rounds)
    }

    def send(sender: str) -> None:
        for step in range(rounds):
            while sender not in mail.take(step) and mail._round <= step:
                mail.put(sender, str(step), payloads[sender, step])
            mail.put(sender, str(step), b"x")
            mail.put("mallory", str(step), b"x")

    threads = [threading.Thread(target=send, args=(sender,)) for sender in HEARS for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for step in range(rounds):
            assert mail.wait(step, 30.0) == []
            seen.append(held(mail, step))
            mail.begin(step + 1)
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(before)
    assert seen == [dict.fromkeys(HEARS, step + 0.5) for step in range(rounds)]
    assert mail.heard == dict.fromkeys(HEARS, rounds - 1)
    assert mail.dropped["unknown sender"] == 8 * rounds
    wrong = (
        mail.dropped.get("not safetensors", 0)
        + mail.ignored().get("old round", 0)
        + mail.ignored().get("too early", 0)
    )
    assert wrong >= 8 * rounds, "nothing was lost from the counts"


def test_counts_of_threads_add_up():
    mail = box()
    mail.begin(500)
    late = message("bob", 3)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def send() -> None:
        for _ in range(2000):
            mail.put("bob", "3", late)
            mail.put("bob", "x", b"")

    threads = [threading.Thread(target=send) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(before)
    assert mail.ignored() == {"old round": 8000}
    assert mail.dropped == {"wrong key": 8000}


def test_two_different_messages_of_one_process_for_one_round_are_never_forgotten():
    """Two processes run from copies of one ledger."""
    mail = box()
    put(mail, "bob", 0, 1.0)
    put(mail, "bob", 0, 1.0)
    assert mail.twofold == set()
    put(mail, "bob", 0, 2.0)
    assert mail.twofold == {"bob"}
    mail.begin(1)
    assert mail.twofold == {"bob"}
    assert mail.dropped == {"second message for one round": 1}


def test_who_has_let_a_message_go_is_not_waited_for(caplog):
    mail = box()
    for step in (3, 5):
        mail.put("bob", str(step), module.let_go(7))
    mail.put("bob", "4", module.let_go(6))
    mail.put("mallory", "4", module.let_go(9))
    assert (mail.lost(6), mail.lost(7), mail.wait(6, 0.0)) == ({"bob"}, set(), ["bob", "carol"])
    assert [
        record.getMessage() for record in caplog.records if "discarded" in record.getMessage()
    ] == ["bob has discarded its messages before 7, and what is missing of them is lost"]
    mail.put("carol", "1", module.let_go(10**9))
    assert mail.lost(LAST - 1) == {"carol"} and mail.lost(LAST) == set()
    mail.put("carol", "1", b"hearsay: messages before 99999999999 were let go")
    assert mail.dropped == {"unknown sender": 1, "not safetensors": 1}
