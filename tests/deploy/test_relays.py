"""Averaging rounds of deployed agents: what is passed on, what it costs, and what people are told.

That they equal simulated ones is in test_equivalence.py, that a kill in any exchange changes
nothing in test_chaos.py.
"""

from __future__ import annotations

import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from hearsay.base import Message
from hearsay.cli.screen import network_table
from hearsay.deploy import budget, spending
from hearsay.deploy.agent import Agent
from hearsay.deploy.deployment import deployment
from hearsay.deploy.history import read
from hearsay.deploy.host import Refused
from hearsay.deploy.ledger import Ledger, LedgerError
from hearsay.deploy.phases import Phases, of_ledger
from hearsay.deploy.rows import overview
from hearsay.deploy.settings import load
from hearsay.graphs.channels import mixer
from hearsay.privacy.verification import verify_text
from hearsay.report.deployed import deployed_report
from hearsay.simulation import engine
from tests.deploy.networks import NAMES, SECONDS, Gate, Threads, run_threads, wait_for, write
from tests.deploy.test_chaos import AVERAGED, THREE
from tests.report.test_html import checked

ROUNDS = 3


def written(folder, names=THREE, rounds=ROUNDS, run="test", **more):
    """A network that averages; `more` are options of its algorithm."""
    algorithm = AVERAGED["algorithm"] | more
    settings = {"graph": AVERAGED["graph"], "algorithm": algorithm}
    return write(
        folder, names=names, run=run, file=f"{run}.toml", run_table={"steps": rounds}, **settings
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A run with real noise, to its end."""
    path = written(tmp_path_factory.mktemp("relays"))
    network, gate = load(path), Gate(4)
    with Threads(network, None) as fleet:
        for name in THREE[1:]:
            fleet.start(name)
        alice = fleet.start("alice", gate)
        with gate:
            wait_for(lambda: alice._hello("hello") is not None)
            told = alice._hello("hello")
        fleet.models()
    return path, told


def said(path) -> np.ndarray:
    """(agent, exchange, coordinate): what left, by the ledgers."""
    network = load(path)
    found = []
    for number, member in enumerate(network.members):
        agent = Agent(network, member.name)
        with Ledger(member.ledger, {}) as ledger:
            payloads = [ledger.message(n) for n in range(agent.phases.first(agent.total))]
            found.append(
                [
                    agent.format.decode(payload, member.name, n, ledger.instance)["params"]
                    for n, payload in enumerate(payloads)
                    if payload is not None
                ]
            )
        assert agent.number == number
    return np.array(found)


def test_whoever_hears_the_messages_can_compute_every_relay(ran):
    """Which is why relays cost nothing: real noise, and not a bit in them that the messages of the
    gradients do not have.
    """
    path, _ = ran
    plan, values = deployment(load(path), None), said(path)
    assert values.shape[1] == 3 * ROUNDS
    weights = jnp.asarray(plan.algorithm.relays(plan.graph))
    channel = [mixer(plan.graph, "mixing", jnp.float64)]
    for round in range(ROUNDS):
        first = Message(jnp.asarray(values[:, 3 * round]))
        before, now = first, first
        for phase in range(2):
            heard = engine.heard(channel, now)
            each = [
                engine.passed_on(weights[phase], *engine.pick((now, before, heard), i))
                for i in range(3)
            ]
            before, now = now, engine.stacked(each)
            relayed = values[:, 3 * round + phase + 1]
            np.testing.assert_allclose(relayed, now.params, rtol=0, atol=1e-15)
            # Nobody takes the mean of the agents away.
            np.testing.assert_allclose(relayed.mean(0), first.params.mean(0), atol=1e-14)
    assert np.ptp(values[:, 2], axis=0).max() < 0.5 * np.ptp(values[:, 3], axis=0).max()


def test_people_are_told_of_rounds_and_relays(ran, tmp_path):
    path, told = ran
    status = json.loads(told)
    assert (status["round"], status["of"], status["relay"], status["relays"]) == (1, ROUNDS, 1, 2)
    network = load(path)
    wide = Console(width=200)
    with wide.capture() as captured:
        wide.print(network_table(network, [("alice", status, True)]))
    assert "1 of 3, relay 1 of 2" in captured.get()

    found, wrong = spending.spent([network.state.parent])
    runs = found["alice"]["runs"]
    assert not wrong and [(run["messages"], run["of"]) for run in runs] == [(ROUNDS, ROUNDS)]

    history = read(path)
    alice = history.agents[0]
    assert (alice.messages, alice.relays, alice.done) == (ROUNDS, 2 * ROUNDS, True)
    curve = budget.curve(deployment(network, 0), 0)
    np.testing.assert_array_equal(alice.spent, curve)
    page = checked(deployed_report(history, tmp_path))
    assert "3 messages from each, each passed on 2 times (averaging)," in page
    assert "18 relays of 18 beside" in page


@pytest.mark.parametrize("chebyshev", [False, True])
def test_the_certificate_is_that_without_averaging(chebyshev, tmp_path):
    """To the last bit, where relays are no larger than messages; it says why, and is verified."""
    once = written(tmp_path, run="once", averaging=0, chebyshev=False)
    found = deployment(load(written(tmp_path, run="many", averaging=9, chebyshev=chebyshev)), None)
    plain = deployment(load(once), None)
    assert found.phases == Phases(10) and plain.phases == Phases()
    numbers = [
        [replace(one, assumptions=()) for one in plan.certificate.budgets]
        for plan in (found, plain)
    ]
    assert numbers[0] == numbers[1]
    np.testing.assert_array_equal(budget.curve(found, 1), budget.curve(plain, 1))
    for plan, kinds in ((found, ["enforced"]), (plain, [])):
        facts = plan.certificate.budgets[1].assumptions
        assert [fact.kind for fact in facts if "is passed on" in fact.text] == kinds
    assert verify_text(found.certificate.to_json())[1].holds


def test_relays_that_may_exceed_messages_round_more_coarsely_and_that_is_counted(tmp_path):
    """On a long ring, with Chebyshev's weights: larger by what the larger clip rounds, no less."""
    names = tuple(f"agent-{i}" for i in range(16))
    found, plain = (
        deployment(load(written(tmp_path, names, run=run, averaging=m, chebyshev=m > 0)), None)
        for run, m in (("many", 6), ("once", 0))
    )
    same = replace(found.algorithm, averaging=0, chebyshev=False)
    cost = [
        budget.sizes(budget.certificate(one, plain.task, plain.graph, ROUNDS, None))
        for one in (found.algorithm, same)
    ]
    assert all(a > b for a, b in zip(*cost, strict=True))
    np.testing.assert_allclose(*cost, rtol=1e-9)


@pytest.mark.slow
def test_another_number_of_relays_is_another_plan(tmp_path):
    path = written(tmp_path, NAMES[:2])
    other = tmp_path / "other.toml"
    other.write_text(path.read_text().replace("averaging = 2", "averaging = 3"))
    with Threads(load(path)) as fleet:
        fleet.start("alice")
        fleet.start("bob", network=load(other))
        ended = [fleet.join(name) for name in NAMES[:2]]
    assert all(isinstance(end, Refused) for end in ended)
    assert "[algorithm] averaging is 2 here and 3 there" in str(ended[0])


def test_skip_averages_those_who_are_there(tmp_path):
    """carol ends for good in the middle of a round: the others finish it, and every later one,
    without her. Chebyshev's weights do not allow that.
    """
    settings = {
        "names": THREE,
        "network": {"policy": "skip", "patience": SECONDS},
        "graph": {"kind": "complete", "weight": 0.25},
        "run_table": {"steps": 4},
    }
    plain = {**AVERAGED["algorithm"], "chebyshev": False}
    sharp = write(tmp_path, file="sharp.toml", **(settings | {"algorithm": AVERAGED["algorithm"]}))
    with pytest.raises(ValueError, match='must be false with policy = "skip", got true'):
        deployment(load(sharp), None)
    network, gate = load(write(tmp_path, algorithm=plain, **settings)), Gate(4)
    with Threads(network, None) as fleet:
        for name in THREE[1:]:
            fleet.start(name)
        fleet.start("alice", gate)
        with gate:
            fleet.stop("carol")
        wait_for(lambda: all(fleet.agents[name]._done for name in THREE[:2]))
        # At the end they would wait for her to say that she is done.
        object.__setattr__(network, "deadline", 0.1)
        fleet.join(*THREE[:2])
    history = read(tmp_path / "net.toml")
    alice = history.agents[0]
    assert (alice.messages, alice.relays) == (4, 8)
    # Once for a round, however often in it; also for the last one, whose relays tell.
    assert set(alice.skipped) >= {(2, "carol"), (3, "carol")}
    assert len(set(alice.skipped)) == len(alice.skipped)
    checked(deployed_report(history, tmp_path / "page"))


def test_a_ledger_says_how_many_exchanges_a_round_has(tmp_path):
    """Until a message is in it, it may become another run's."""
    path = tmp_path / "alice.ledger"
    for configuration, phases in (("a", Phases(3)), ("b", Phases()), ("c", Phases(2))):
        about = {"run": "one", "configuration": configuration} | phases.about
        with Ledger(path, about):
            assert of_ledger(overview(path).about) == phases
    with Ledger(path, about | {"run": "two"}) as ledger:
        assert of_ledger(overview(path).about) == Phases(2)
        ledger.commit(0, b"x", 0.0, {"skipped": [], "heard": {}}, {"a": np.zeros(1)})
    with pytest.raises(LedgerError, match="belongs to another phases"):
        Ledger(path, about | {"run": "two"} | Phases(4).about)


def test_a_relay_that_lacks_the_message_before_it_is_refused(tmp_path):
    """Nothing discards that message; if somebody does, the agent does not go on with another."""
    network, gate = load(written(tmp_path, NAMES[:2])), Gate(4)
    with Threads(network, None) as fleet:
        fleet.start("bob")
        alice = fleet.start("alice", gate)
        with gate:
            assert alice.ledger.message(3) is not None
            alice.ledger.forget(4)
            alice._stop.set()
        fleet.join("alice")
        fleet.start("alice")
        with pytest.raises(LedgerError, match="lacks message 3, which the next relay follows from"):
            raise fleet.join("alice")


DRAWN = {
    "secret batches": {"sampling": "poisson", "sample_rate": 0.3},
    "correlated noise": {
        "sampling": "cyclic",
        "sample_size": 3,
        "mechanism": "gaussian",
        "correlation": "toeplitz",
        "horizon": ROUNDS,
    },
}


@pytest.mark.parametrize("what", DRAWN)
def test_what_a_round_has_drawn_is_there_after_a_stop_in_a_relay(what, tmp_path):
    """The coins of its batch, which the update after the relays uses; noise that later rounds take
    back, which is kept by round and not by exchange.
    """
    common = {"name": "gradient-perturbation", "noise": 1.0, "averaging": 2, "chebyshev": True}
    path = write(
        tmp_path,
        names=NAMES[:2],
        graph={"kind": "complete"},
        algorithm={**common, **DRAWN[what]},
        privacy={"delta": 1e-5},
        run_table={"steps": ROUNDS},
    )

    def drawn(agent: Agent) -> bytes:
        if what == "correlated noise":
            return agent.noise.secret(1)
        return np.asarray(agent.steps.batches.at(1).values).tobytes()

    gates, found = (Gate(4), Gate(5)), []
    with Threads(load(path), None) as fleet:
        fleet.start("bob")
        for gate in gates:
            alice = fleet.start("alice", gate)
            with gate:
                found.append(drawn(alice))
                alice._stop.set()
            fleet.join("alice")
        fleet.start("alice")
        fleet.models()
    assert found[0] == found[1] and len(found[0]) >= 32


def test_a_run_with_one_exchange_is_written_and_told_as_before(tmp_path):
    """No new word on the wire, in the ledger or in the certificate."""
    path = written(tmp_path, NAMES[:2], averaging=0, chebyshev=False)
    agents = run_threads(load(path), None)
    assert "phases" not in overview(load(path).members[0].ledger).about
    assert Phases().about == {} and Phases().name(7) == "7"
    assert agents["alice"].phases == Phases()
