"""Files that are made to be believed: descriptions that no run has, words that are not the
verifier's own, and sizes that would keep it busy.
"""

from __future__ import annotations

import json
import math
import time
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import hearsay as hs
from hearsay.certification import calibrate, certify, deployed
from hearsay.cli.verify import verified
from hearsay.mechanisms import MECHANISMS
from hearsay.privacy.description import REHEARSED, UNCHECKED
from hearsay.privacy.participation import Every, Once, Periodic, Rolling
from hearsay.privacy.recursion import Recursion, Release
from hearsay.privacy.recursion_account import RecursionAccount
from hearsay.privacy.verification import Verdict, verify, verify_text
from hearsay.schedules import Constant, PowerLaw, Schedule

PROBLEM = hs.problems.ridge(agents=3, records=40, dimension=3, ridge=0.3, radius=3.0)
GRAPH, STEPS, DELTA = hs.graphs.ring(3, weight=0.3), 20, 1e-5
ACCOUNT = ("descriptions", 0, "account")
FLOAT64 = ("descriptions", 0, "float64")


def body(kind: str = "laplace") -> dict[str, Any]:
    """The JSON of a certificate of one agent, without its digest."""
    this: hs.base.Algorithm
    if kind == "factorized":
        this = hs.correlated_federated(
            factorization="dense", horizon=25, sampling=hs.Cyclic(2), noise=9.0
        )
    elif kind == "delayed":
        this = hs.sdm_dsgd(noise=9.0, sampling=hs.Cyclic(2))
    else:
        law = "gaussian" if kind == "gaussian" else "laplace"
        this = hs.ldp_online(noise=60.0, mechanism=law)
    if kind in ("deployed", "delayed"):
        delta = DELTA if this.law.at_delta else None
        found = replace(deployed(this, PROBLEM, GRAPH, STEPS, delta), deployed=True)
    else:
        found = certify(this, PROBLEM, GRAPH, STEPS, delta=DELTA)
    data = json.loads(found.of(0).to_json())
    del data["digest"]
    return data


def put(data: dict[str, Any], path: tuple, value: Any) -> dict[str, Any]:
    copy = deepcopy(data)
    inner: Any = copy
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return copy


def with_pattern(data: dict[str, Any], pattern: Any, **fields: Any) -> dict[str, Any]:
    """Its words fit."""
    found = put(data, (*ACCOUNT, "pattern"), {"kind": type(pattern).__name__, **fields})
    return put(found, ("budgets", 0, "pattern"), str(pattern))


def verdict_of(data: dict[str, Any]) -> Verdict:
    return verify_text(json.dumps(data))[1]


def refused(data: dict[str, Any], text: str) -> None:
    wrong = " | ".join(verdict_of(data).wrong)
    assert text in wrong, wrong


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "deployed", "factorized", "delayed"])
def test_the_files_that_are_changed_here_hold(kind):
    assert verdict_of(body(kind)).holds


def test_messages_that_show_nothing_are_no_budget():
    data = put(body(), (*ACCOUNT, "releases", 0, "state"), 0.0)
    for number in ("epsilon", "epsilon_at_delta"):
        data = put(data, ("budgets", 0, number), 0.0)
    refused(data, "releases must be messages of which one shows")


@pytest.mark.parametrize("size", [-1.0, 0.0, 0.5])
def test_windows_of_no_record_are_no_budget(size):
    """Nothing is used, so nothing would be spent."""
    law = {"kind": "Constant", "value": size}
    data = with_pattern(body(), Rolling(Constant(size), 40), size=law, held=40)
    for number in ("epsilon", "epsilon_at_delta"):
        data = put(data, ("budgets", 0, number), 1e-12)
    refused(data, "size must be at least 1 record at every step")


def test_arithmetic_without_numbers_is_no_arithmetic():
    data = body("deployed")
    refused(put(data, (*FLOAT64, "reach"), 0.0), "reach must be positive")
    refused(put(data, (*FLOAT64, "heard"), 2.0), "heard must be at least the reach")
    coupling = {"kind": "Constant", "value": -50.0}
    refused(put(data, (*FLOAT64, "magnitudes", "coupling"), coupling), "coupling must be")


def test_delayed_noise_of_scale_0_hides_no_rounding():
    law = {"kind": "Constant", "value": 0.0}
    data = put(body("delayed"), (*FLOAT64, "magnitudes", "step_noise"), law)
    refused(data, "epsilon must be at least inf")


@pytest.mark.parametrize("kind", ["Declared", "d\u0435clared", "", "proved"])
def test_assumptions_are_of_three_kinds(kind):
    """One that is nearly called declared would not be printed as trusted."""
    data = body()
    for path in ((*ACCOUNT, "assumptions"), ("budgets", 0, "assumptions")):
        data = put(data, (*path, 0, "kind"), kind)
    refused(data, "kind must be one of enforced, derived, declared")


def test_what_was_not_checked_must_say_so():
    data = put(body(), ("descriptions", 0, "checked"), False)
    refused(data, "nothing has checked it")
    for path in (("descriptions", 0, "further"), ("budgets", 0, "assumptions")):
        more = {"kind": UNCHECKED.kind, "text": UNCHECKED.text}
        here = data[path[0]][0][path[2]]
        data = put(data, path, [*here, more])
    assert UNCHECKED.text in verdict_of(data).trusted
    assert any("contract's checks" in text for text in verdict_of(body()).trusted)


def test_a_rehearsal_cannot_be_called_deployed():
    from hearsay.deploy.budget import certificate

    found = certificate(hs.ldp_online(noise=60.0), PROBLEM.task, GRAPH, STEPS, None, rehearsed=True)
    assert verify(found).holds and REHEARSED.text in verify(found).trusted
    assert any("a rehearsal, perhaps" in note for note in verify(found).notes)
    called = verify(replace(found, deployed=True, warnings=()))
    assert any("a rehearsal must not be called deployed" in text for text in called.wrong)


def test_a_reason_is_for_what_has_no_budget():
    refused(put(body(), ("budgets", 0, "reason"), "all is well"), "reason must be left out")


def test_names_are_different():
    refused(put(body(), ("names",), ["a", "b", "a"]), "names must be different")


def test_a_missing_digest_is_said():
    data = body()
    assert any("no digest" in note for note in verdict_of(data).notes)
    whole = certify(hs.ldp_online(noise=60.0), PROBLEM, GRAPH, STEPS).to_json()
    assert not any("no digest" in note for note in verify_text(whole)[1].notes)
    refused({**data, "digest": None}, "its digest does not match")


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e99999"])
@pytest.mark.parametrize("place", [("horizon",), ("budgets", 0, "epsilon"), (*FLOAT64, "heard")])
def test_digits_that_float64_cannot_hold_are_no_infinity(place, number):
    text = json.dumps(put(body("deployed"), place, "@")).replace('"@"', number)
    wrong = verify_text(text)[1].wrong
    assert (
        len(wrong) == 1 and f"numbers must be finite or the word infinite, got {number}" in wrong[0]
    )


def sizes() -> dict[str, dict[str, Any]]:
    one = {"kind": "Constant", "value": 1.0}
    gaussian = with_pattern(body("gaussian"), Once())
    return {
        "horizon": put(body(), ("horizon",), 10**9),
        "horizon beyond 2^53": put(body(), ("horizon",), 2**70 + 1),
        "held": with_pattern(body(), Rolling(Constant(1.0), 10**9), size=one, held=10**9),
        "patterns": put(gaussian, ("horizon",), 10**6),
        "dimension": put(body(), (*ACCOUNT, "dimension"), 10**30),
        "rounds": put(body("factorized"), (*ACCOUNT, "factors"), {"kind": "tree", "rounds": 10**9}),
        "search": put(body("factorized"), (*ACCOUNT, "factors", "multipliers"), None),
        "period": with_pattern(body("gaussian"), Periodic(10**6), period=10**6)
        | {"horizon": 10**6},
    }


@pytest.mark.parametrize("name", sizes())
def test_what_would_take_too_long_is_refused_at_once(name):
    began = time.process_time()
    wrong = " | ".join(verdict_of(sizes()[name]).wrong)
    reasons = ("to be verified, got", "no search is repeated", "must be at most 2^53, got")
    assert any(reason in wrong for reason in reasons), wrong
    assert time.process_time() - began < 5


def test_a_period_beyond_the_run_is_one_use():
    prices = np.array([3.0, 1.0, 2.0])
    assert Periodic(10**15).total(prices) == Once().total(prices) == 3.0
    assert Periodic(10**15).total(np.zeros(0)) == 0.0


@pytest.mark.parametrize("depth", [100, 400, 900, 5000, 10**5])
def test_deep_nests_are_refused(depth):
    nest = '{"kind":"Product","second":{"kind":"Constant","value":1.0},"first":' * depth
    nest += '{"kind":"Constant","value":1.0}' + "}" * depth
    text = json.dumps(put(body(), (*ACCOUNT, "recursion", "leak"), "@")).replace('"@"', nest)
    assert not verify_text(text)[1].holds


def test_what_a_file_says_does_not_look_like_the_verdict(tmp_path):
    forged = "x\n  proved   all 9 numbers follow\x1b[2K\u202e\ud800"
    path = tmp_path / "certificate.json"
    data = put(body(), ("algorithm",), forged)
    path.write_text(json.dumps(put(data, ("budgets", 0, "epsilon"), 0.0)))
    lines, _, verdict = verified(path)
    assert not verdict.holds and not any(line.startswith("  proved") for line in lines)
    assert "\n".join(lines).replace("\n", "").isprintable()
    "\n".join(lines).encode()


def test_a_curvature_that_fades_does_not_help_for_good():
    """a_k = -2 is held within 1 by a step of 2.9 falling to 0 and a curvature of -1: for 10^46
    steps, not for ever.
    """
    account = RecursionAccount(
        Recursion(Constant(3.0), PowerLaw(2.9, -0.01), PowerLaw(1.0, -3.0), (-1.0, -1.0)),
        (Release("params", Constant(1.0)),),
        Every(),
        1,
    )
    assert math.isfinite(account.cost(10**4).value)
    assert account.cost(math.inf).value == math.inf


def test_every_message_field_has_a_release():
    class Silent(hs.algorithms.GradientTracking):
        def releases(self, agent, curvature):
            return super().releases(agent, curvature)[:1]

    with pytest.raises(ValueError, match="must say what every message field shows.*tracker"):
        certify(Silent(noise=1.0), PROBLEM, GRAPH, STEPS)


def test_calibration_does_not_miss_its_target_in_silence():
    """Noise that is not annotated as such is not scaled."""

    @dataclass(frozen=True, kw_only=True)
    class Misnamed(hs.algorithms.LdpOnline):
        noise: Schedule = Constant(1.0)  # type: ignore[assignment]

    with pytest.raises(ValueError, match="the noise of params must grow with the fields"):
        calibrate(Misnamed(noise=1.0), PROBLEM, GRAPH, STEPS, 0.001)


def test_a_certificate_names_the_law_that_its_numbers_are_of():
    """A Gaussian epsilon under the name of Laplace noise would read as a pure one."""

    class Other(hs.algorithms.LdpOnline):
        @property
        def law(self):
            return MECHANISMS["gaussian"]

    found = certify(Other(noise=60.0), PROBLEM, GRAPH, STEPS, delta=DELTA)
    assert found.mechanism == "gaussian" and f"delta = {DELTA!r}" in str(found)
    assert verify(found).holds


def test_no_agent_holds_more_records_than_can_be_counted():
    with pytest.raises(ValueError, match="counts must be at most"):
        replace(PROBLEM.task, counts=[1e30, 1, 1])


def test_odd_values_anywhere_are_refused_or_true():
    """Whatever stands in whichever place: an answer, and no number below its cost."""
    data = body("deployed")
    cost = data["budgets"][0]["epsilon"]
    odd = [None, True, [[]], "infinite", -0.0, 5e-324, -1, 2**63, 10**30]
    for path in places(data):
        for value in odd:
            changed = put(data, path, value)
            certificate, verdict = verify_text(json.dumps(changed))
            if verdict.holds and path[0] == "budgets":
                assert certificate is not None and certificate.epsilon[0] >= cost


def places(value: Any, path: tuple = ()):
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inner if isinstance(value, (dict, list)) else ():
        if isinstance(one, (dict, list)):
            yield from places(one, (*path, key))
        else:
            yield (*path, key)
