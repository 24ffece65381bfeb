"""Runs of agents that share noise: equal to simulated ones where the noise is the simulator's; as
real processes unmoved by kills; and, from what left, as loud and as quiet as the certificate says.
"""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("zenoh")

from hearsay.config import build_problem
from hearsay.deploy import budget, tls
from hearsay.deploy.deployment import deployment
from hearsay.deploy.host import Refused, Stopped
from hearsay.deploy.ledger import Ledger
from hearsay.deploy.pair_noise import message_scale
from hearsay.deploy.settings import load
from hearsay.privacy.coalitions import Shared
from hearsay.simulation.rounds import Rounds
from tests.deploy import worker
from tests.deploy.captures import (
    DIMENSION,
    Capture,
    require_as_promised,
    require_opposite,
    require_unrelated,
    require_variance,
    still,
    unpacked,
)
from tests.deploy.networks import (
    NAMES,
    SECONDS,
    Gate,
    Processes,
    Threads,
    models,
    run_threads,
    wait_for,
    write,
)

SEED, STEPS = 3, 8
BATCHES = {"sampling": "cyclic", "sample_size": 3}
# With more noise: the accountant of secret batches is slow where epsilon is large.
POISSON = {"sampling": "poisson", "sample_rate": 0.2, "noise": 5.0}
ALGORITHMS = {
    "P2": {"name": "gradient-tracking"},
    "P1": {"name": "ldp-online"},
    "P3, output": {"name": "output-perturbation", **BATCHES},
    "P3, gradient": {"name": "gradient-perturbation", **BATCHES},
    "P3, gradient, Poisson": {"name": "gradient-perturbation", **POISSON},
    "P3, gradient, averaged": {"name": "gradient-perturbation", "averaging": 2, **BATCHES},
    "P4": {"name": "correlated-federated", "factorization": "identity", **BATCHES},
    "P4, by name": {"name": "federated-independent", **BATCHES},
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority") / "keys"
    tls.make(folder, {name: ["127.0.0.1"] for name in NAMES})
    return folder


def tables(which: str, **secrets) -> dict:
    algorithm = {"noise": 0.5, **ALGORITHMS[which]}
    if "federated" not in algorithm["name"]:
        algorithm["mechanism"] = "gaussian"
    directed = {"kind": "five-agents", "weight": 0.4}
    return {
        "algorithm": algorithm,
        "graph": directed if which == "P2" else {"kind": "ring"},
        "privacy": {"delta": 1e-5},
        "run_table": {"steps": STEPS},
        "secrets": {"colluders": 1, **secrets},
    }


def simulated(path, plan) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(models, messages of the last round), with the noise of every pair by itself, as deployed
    agents have it.
    """
    problem = build_problem(load(path).config, agents=len(NAMES))
    rounds = Rounds(plan.algorithm, problem, plan.graph, [SEED], apart=True)
    sent = rounds.advance(plan.messages, tap=lambda seen: seen.sent)
    last = {name: np.asarray(values[-1, 0]) for name, values in sent._asdict().items()}
    return np.asarray(rounds.models[0]), last


def require_equal(path, plan, deployed: np.ndarray) -> None:
    models, sent = simulated(path, plan)
    np.testing.assert_allclose(deployed, models, rtol=0, atol=1e-9)
    network, last = load(path), (STEPS - 1) * plan.phases.count
    _, alone = simulated(path, replace(plan, algorithm=replace(plan.algorithm, secrets=None)))
    for number, member in enumerate(network.members):
        with Ledger(member.ledger, {}) as ledger:
            message = unpacked(ledger.message(last))
        for name, values in message.items():
            np.testing.assert_allclose(values, sent[name][number], rtol=0, atol=1e-9)
            assert np.abs(values - alone[name][number]).max() > 0.01, "nothing was shared"


@pytest.mark.parametrize("which", ALGORITHMS)
def test_shared_noise_deployed_equals_simulated(which, tmp_path):
    """Models, and the messages of the last round: where everybody averages over everybody (P4),
    models are those without secrets.
    """
    path = write(tmp_path, **tables(which))
    agents = run_threads(load(path), SEED)
    deployed = np.stack([agents[name].model for name in NAMES])
    require_equal(path, agents["alice"].plan, deployed)


@pytest.mark.slow
def test_five_processes_that_share_noise_equal_the_simulator(tmp_path):
    paths = [
        write(tmp_path / f"{n}", run=f"run-{n}", **tables(which, ratio=3.0))
        for n, which in enumerate(set(ALGORITHMS) - {"P3, gradient, Poisson"})
    ]
    with Processes(paths, seed=SEED) as fleet:
        fleet.start_all()
        assert fleet.watch() == 0
    for path in paths:
        require_equal(path, deployment(load(path), None, rehearsed=True), models(path))


# `step` of the last ones counts calls: keys are written, kept in the ledger and gathered before the
# first message.
POINTS = [
    *((1, point) for point in worker.POINTS),
    *((step, f"{when} erasing") for step in (0, 1) for when in ("before", "after")),
    *((call, f"{when} write") for call in (0, 1) for when in ("before", "after")),
    *((call, f"{when} keep") for call in (0, 1) for when in ("before", "after")),
    *((0, f"{when} gather") for when in ("before", "after")),
]
FEW = {"alice": [(1, "before write")], "bob": [(0, "in ledger")], "carol": [(0, "after gather")]}
MANY = {name: POINTS[number::5] + POINTS[number + 1 :: 5] for number, name in enumerate(NAMES)}


@pytest.mark.parametrize(
    ("which", "names", "kills", "at_random"),
    [
        ("P2", NAMES[:3], FEW, 0),
        pytest.param("P1", NAMES, MANY, 8, marks=pytest.mark.slow),
        pytest.param("P2", NAMES, MANY, 8, marks=pytest.mark.slow),
        pytest.param("P3", NAMES[:3], FEW, 0, marks=pytest.mark.slow),
        pytest.param("P4", NAMES[:3], FEW, 0, marks=pytest.mark.slow),
    ],
    ids=["few, P2", "many, P1", "many, P2", "few, P3", "few, P4"],
)
def test_what_leaves_is_as_loud_and_as_quiet_as_promised_whoever_is_killed(
    which, names, kills, at_random, tmp_path, keys
):
    """Real processes over TLS, with real noise: SIGKILL at planned moments, also while keys are
    agreed on, and at random ones. Whatever left more than once is the same bytes.

    False alarms: 1 in 100 million for each of fewer than 200 numbers.
    """
    path, rounds = still(tmp_path, keys, which, names), 4
    (folder := tmp_path / "capture").mkdir()
    options = {"names": names, "kills": kills, "capture": str(folder)}
    with Processes([path], seed=None, **options) as fleet:
        fleet.start_all()
        with killing(fleet, at_random) as killed:
            restarts = fleet.watch(2 * SECONDS)
    # A random one may come just as the process kills itself.
    assert restarts >= (30 if killed else sum(map(len, kills.values())))
    capture, shared = Capture(folder, names), Shared(len(names), (2.0,))
    algorithm = deployment(load(path), None).algorithm
    fields, steps = list(algorithm.channels), range(algorithm.delay, rounds)
    require_opposite(capture, steps, fields)
    known = which in ("P1", "P2")
    noise = [capture.messages(rounds, f) if known else capture.noise(steps, f) for f in fields]
    for field, added in zip(fields, noise, strict=True):
        require_as_promised(added, shared, float(message_scale(algorithm, field, 0, len(names))(0)))
    if len(fields) == 2:
        for one, other in zip(*(each.reshape(-1, DIMENSION) for each in noise), strict=True):
            require_unrelated(one, other)


@contextmanager
def killing(fleet: Processes, count: int):
    """So many agents at random moments, as long as some still run; those that were."""
    rng, stop, killed = random.Random("killing"), threading.Event(), list[str]()

    def kill() -> None:
        while len(killed) < count and not stop.wait(rng.uniform(0.2, 1.5)):
            name = rng.choice(fleet.names)
            if (victim := fleet.running[name]).is_alive():
                victim.kill()
                killed.append(name)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


def from_ledgers(path, steps) -> np.ndarray:
    """(round, agent, coordinate), of those who have sent a message in these rounds."""
    found = []
    for member in load(path).members:
        with Ledger(member.ledger, {}) as ledger:
            payloads = [ledger.message(step) for step in steps]
        if None not in payloads:
            found.append([unpacked(payload)["params"] for payload in payloads])
    return np.array(found).swapaxes(0, 1)


@contextmanager
def until_carol_ends(fleet, names):
    """All are in the middle of the run, alice is held there, and carol has ended; what is done
    inside is done before alice goes on.
    """
    gate = Gate(2)
    for name in names[1:]:
        fleet.start(name)
    fleet.start("alice", gate)
    with gate:
        fleet.stop("carol")
        yield


def test_whoever_waits_for_a_partner_in_vain_stops_in_words_and_goes_on_later(tmp_path, keys):
    """Policy wait: carol ends in the middle of the run, and comes back."""
    names = NAMES[:3]
    path = still(tmp_path, keys, names=names, graph={"kind": "complete"})
    network = load(path)
    with Threads(network, None) as fleet:
        with until_carol_ends(fleet, names):
            object.__setattr__(network, "deadline", 0.3)
        for name in names[:2]:
            ended = fleet.join(name)
            assert isinstance(ended, Stopped) and not isinstance(ended, Refused)
            assert "from carol (not connected) within 0.3 s" in str(ended)
            assert "start this agent again" in str(ended)
        object.__setattr__(network, "deadline", SECONDS)
        fleet.start_all()
        fleet.models()
    require_as_promised(from_ledgers(path, range(4)), Shared(3, (2.0,)), 1.0)


def test_whoever_never_comes_back_costs_accuracy_and_nobodys_privacy(tmp_path, keys):
    """Policy skip: carol's part of the noise is left over in the sum of the others. Each is as loud
    as ever, and has spent what was planned.
    """
    names = NAMES[:3]
    skip = {"policy": "skip", "patience": SECONDS}
    path = still(tmp_path, keys, names=names, graph={"kind": "complete"}, network=skip)
    network, shared = load(path), Shared(3, (2.0,))
    with Threads(network, None) as fleet:
        with until_carol_ends(fleet, names):
            pass
        wait_for(lambda: all(fleet.agents[name]._done for name in names[:2]))
        # At the end they would wait for her to say that she is done.
        object.__setattr__(network, "deadline", 0.1)
        fleet.join(*names[:2])
    whole, lacking = from_ledgers(path, [0, 1]), from_ledgers(path, [3])
    require_as_promised(whole, shared, 1.0)
    assert lacking.shape[1] == 2, "carol was away"
    for agent in range(2):
        require_variance(lacking[:, agent], shared.variance(agent))
    require_variance(lacking.sum(axis=1), 2 + 2 * 2.0**2)
    plan = deployment(network, 0)
    with Ledger(network.members[0].ledger, {}) as ledger:
        spent = [row[1] for row in ledger.history()]
    np.testing.assert_array_equal(spent, budget.curve(plan, 0))
    final = fleet.agents["alice"].plan.certificate
    assert final.secrets == plan.certificate.secrets
    assert [b.curve for b in final.budgets] == [b.curve for b in plan.certificate.budgets]
