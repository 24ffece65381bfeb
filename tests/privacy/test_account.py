"""What every account must do, whatever its proof; nobody asks which one it is (test_house.py)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hearsay.mechanisms.convert import OUTWARD
from hearsay.mechanisms.factorized.kinds import factorization
from hearsay.privacy import (
    Account,
    Every,
    FactorizedAccount,
    Once,
    Periodic,
    Recursion,
    RecursionAccount,
    Release,
    codec,
)
from hearsay.privacy.account import most_messages
from hearsay.privacy.participation import PATTERNS, Rolling, Sampled
from hearsay.schedules import Constant, PowerLaw, Share

RECURSION = Recursion(
    PowerLaw(0.4, -0.6), PowerLaw(0.7, -0.8), Share(2.0, PowerLaw(3.0, 1.0), 40), (0.01, 1.0)
)
RELEASES = (Release("x", PowerLaw(20.0, 0.1)), Release("y", Constant(30.0), 0.5, 1.0))


def accounts() -> list[Account]:
    found: list[Account] = [
        RecursionAccount(RECURSION, RELEASES, pattern, 3, law)  # type: ignore[arg-type]
        for law in ("laplace", "gaussian", "ternary")
        for pattern in (Every(), Once(), Periodic(4), Rolling(Constant(7.0), 40))
    ]
    for kind in ("toeplitz", "blt", "banded", "dense", "tree", "identity"):
        more = {"bands": 4} if kind == "banded" else {}
        factors = factorization(kind, 30, **more).written()
        found.append(FactorizedAccount(factors, 0.4, 9.0, Once(), 3, "a clip"))
        found.append(FactorizedAccount(factors, 0.4, 9.0, Periodic(5), 3, "a clip", (), 5))
        found.append(FactorizedAccount(factors, 0.4, 9.0, Every(), 3, "a clip", (), 1, delay=1))
    return found


ids = [f"{type(a).__name__}-{a.mechanism.name}-{i}" for i, a in enumerate(accounts())]


@pytest.mark.parametrize("account", accounts(), ids=ids)
def test_what_every_account_does(account: Account):
    counts = list(range(31))
    spent = account.spent(counts)
    assert spent[0] == 0 and np.all(np.diff(spent) >= -1e-12 * spent[-1])
    costs = [account.cost(n).value for n in counts]
    np.testing.assert_allclose(spent, costs, rtol=1e-9)
    assert account.cost(30).reason == "" and account.dominated_by(account.cost(30), 30)
    assert account.dominated_by(account.cost(0), 0) == ""
    # More noise costs less: in proportion, or to its square.
    power = 1 if account.mechanism.additive else 2
    assert account.scaled(4.0).cost(30).value == pytest.approx(costs[30] / 4**power, rel=1e-9)
    assert account.scaled(0.0).cost(30).value == math.inf
    assert codec.decode(Account, codec.encode(account), "account") == account
    each = account.message_costs(30)
    if each is not None:
        assert each.sum(axis=1).max() == pytest.approx(costs[30], rel=1e-8)


def test_noise_that_was_planned_for_so_many_rounds():
    account = FactorizedAccount(factorization("tree", 8), 1.0, 2.0, Once(), 3, "a clip")
    assert account.cost(9).reason == "the noise is planned for 8 rounds"
    assert account.cost(math.inf).value == math.inf
    np.testing.assert_array_equal(np.isinf(account.spent([0, 8, 9])), [False, False, True])


def test_the_first_rounds_cost_their_leading_block():
    """And all rounds what they cost before there were leading blocks, to the last bit."""
    for separation, pattern in ((None, Once()), (5, Periodic(5))):
        factors = factorization("toeplitz", 30)
        account = FactorizedAccount(factors, 0.4, 9.0, pattern, 3, "a clip", (), separation)
        column = factors.sensitivity
        if separation:
            column = factors.sensitivity_repeated(separation, 6)
        assert account.cost(30).value == (0.4 * column / 9.0) ** 2 / 2 * OUTWARD
        first = factorization("toeplitz", 12)
        shorter = FactorizedAccount(first, 0.4, 9.0, pattern, 3, "a clip", (), separation)
        assert account.cost(12).value == pytest.approx(shorter.cost(12).value, rel=1e-12)
        assert account.dominated_by(account.cost(12), 12) == (
            "one mechanism for the first 12 of 30 rounds"
        )


def test_descriptions_of_earlier_versions_have_no_delay():
    account = FactorizedAccount(factorization("tree", 8), 1.0, 2.0, Once(), 3, "a clip")
    written = codec.encode(account)
    assert written.pop("delay") == 0
    assert codec.decode(Account, written, "account") == account
    del written["separation"]
    with pytest.raises(ValueError, match="account.separation must be given, and is missing"):
        codec.decode(Account, written, "account")
    with pytest.raises(ValueError, match="delay must be 0 or 1, got 2"):
        FactorizedAccount(factorization("tree", 8), 1.0, 2.0, Once(), 3, "a clip", delay=2)


def test_why_a_factorized_budget_is_infinite():
    """And before the first message nothing is spent, whatever follows."""
    for moved, scale, reason in ((1.0, 0.0, "messages carry no noise"), (math.inf, 2.0, "a clip")):
        account = FactorizedAccount(factorization("tree", 8), moved, scale, Once(), 3, "a clip")
        np.testing.assert_array_equal(account.spent([0, 1, 8]), [0, np.inf, np.inf])
        assert account.cost(3).reason.endswith(reason) and account.cost(0).reason == ""


def test_a_separation_is_what_the_pattern_keeps():
    tree = factorization("tree", 8)
    with pytest.raises(ValueError, match="separation must be given where a record is used again"):
        FactorizedAccount(tree, 1.0, 2.0, Periodic(3), 3, "a clip")
    with pytest.raises(ValueError, match="separation must be at most 3"):
        FactorizedAccount(tree, 1.0, 2.0, Periodic(3), 3, "a clip", (), 4)


@pytest.mark.parametrize("last", [0, 1, 6, 7, 20])
def test_most_messages_is_the_last_that_is_affordable(last: int):
    asked: list[int] = []

    def affordable(messages: int) -> bool:
        asked.append(messages)
        return messages <= last

    assert most_messages(affordable, 13) == min(last, 13)
    assert all(1 <= n <= 13 for n in asked) and len(asked) <= 4


def test_patterns_answer_for_themselves():
    """The three answers against the sets of uses that a pattern allows."""
    examples = {
        "Periodic": Periodic(3),
        "Rolling": Rolling(Constant(2.0), 5),
        "Sampled": Sampled(0.3),
    }
    for name, kind in PATTERNS.items():
        pattern = examples.get(name) or kind()
        uses = pattern.uses(12)
        assert pattern.every == bool(np.all(uses))
        assert pattern.single == bool(np.all(uses.sum(axis=1) == 1))
        gaps = [np.diff(np.flatnonzero(row)) for row in uses if row.sum() > 1]
        assert pattern.gap <= min((int(g.min()) for g in gaps), default=math.inf)
        prices = np.random.default_rng(0).random(12)
        near, far = pattern.total(prices[:5]), max(float(prices[5:] @ row[5:]) for row in uses)
        assert pattern.total(prices) <= pattern.joined(near, far) + 1e-12
