"""An algorithm whose proof needs more trust says so, wherever its certificate is read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from typer.testing import CliRunner

import hearsay as hs
from hearsay.algorithms.baselines.noisy_average import NoisyAverage
from hearsay.base import State
from hearsay.cli.commands import app
from hearsay.privacy.certificate import Certificate
from hearsay.privacy.description import Adversary
from hearsay.privacy.verification import verify_text
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.report.certificate import certificate_section

HONEST = "the other agents follow the protocol, and may pool what they know"
NARROW = "nobody sees more than the messages that one other agent hears"


@dataclass(frozen=True, kw_only=True)
class Trusting(NoisyAverage):
    """DSGD that is said to be safe from honest agents, each of whom hears its neighbours alone."""

    adversary: ClassVar[Adversary] = Adversary("the messages that one other agent hears", "honest")

    name: str = "trusting"
    sampling: Sampling = field(default_factory=Cyclic)

    def update(self, state, sent, inbox, batch, rates, domain):
        return State(domain.project(self.heard(sent, inbox)))


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    data = hs.problems.ridge(agents=4, records=12, dimension=3, seed=0, radius=3.0)
    return hs.certify(Trusting(), data, hs.graphs.ring(4), 5)


def test_its_text_and_page_name_the_adversary(certificate):
    said = f"someone who sees the messages that one other agent hears; {HONEST}"
    assert f"against {said}" in " ".join(str(certificate).split())
    assert ("Against", said) in certificate_section(certificate)["scope"]
    assert "arbitrarily" not in str(certificate)


def test_its_json_holds_it_and_verify_lists_what_is_trusted(certificate, tmp_path):
    text = certificate.to_json()
    stored = json.loads(text)["descriptions"][0]["adversary"]
    assert stored == {
        "sees": "the messages that one other agent hears",
        "others": "honest",
        "colluders": None,
    }
    assert Certificate.from_json(text) == certificate
    _, verdict = verify_text(text)
    assert verdict.holds
    assert verdict.trusted[:2] == (NARROW, HONEST)
    file = tmp_path / "certificate.json"
    file.write_text(text, encoding="utf-8")
    shown = CliRunner().invoke(app, ["verify", str(file)])
    assert shown.exit_code == 0
    assert HONEST in " ".join(shown.output.split())


def test_an_adversary_that_nobody_has_proved_anything_about_is_refused(certificate):
    with pytest.raises(ValueError, match="sees must be one of"):
        Adversary(sees="nothing")
    text = certificate.to_json().replace('"others": "honest"', '"others": "asleep"')
    found, verdict = verify_text(text)
    assert found is None
    assert not verdict.holds
    # Another adversary that is known: the numbers may hold, the file was changed.
    text = certificate.to_json().replace('"others": "honest"', '"others": "arbitrary"')
    assert not verify_text(text)[1].holds


def test_the_default_is_the_strongest():
    assert Adversary().trust == ()
    assert str(Adversary()) == (
        "sees every message of every agent; the other agents may behave arbitrarily"
    )
    assert {hs.REGISTRY[name]().adversary for name in hs.REGISTRY} == {Adversary()}
