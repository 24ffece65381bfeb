"""Networks that fail, in the compiled loop: what every agent hears is what a plain loop over links
would give it, who is away does nothing, and neither chunks nor resuming change a fault.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.certification import epsilon_after
from hearsay.graphs.channels import Dense, Edges, Padded, channel
from hearsay.release.readouts import Last
from hearsay.simulation.delivery import delivery
from hearsay.simulation.faults import Faults, links
from hearsay.simulation.rounds import Rounds

STEPS, N = 14, 6
GRAPH = hs.graphs.ring(N, weight=0.3)


def problem(agents: int = N) -> hs.problems.Problem:
    return hs.problems.ridge(agents=agents, records=40, dimension=3)


PROBLEM = problem()
EVERYTHING = Faults(
    loss=0.2,
    burst=3.0,
    asleep=0.2,
    nap=3.0,
    stragglers=0.5,
    latency=(0, 2),
    churn=0.99995,
    away=2.0,
    leave=[(1, 9)],
    join=[(3, 4)],
    partitions=[(2, 5, [[0, 1, 2]])],
    links=[(4, 5, 0, 7)],
    seed=3,
)


def weather(faults: Faults, algorithm=None, graph=GRAPH, steps: int = STEPS, n=None):
    """(heard (step, link), present, back (step, agent)) of every round, and the network."""
    algorithm, task = algorithm or hs.ldp_online(), n or PROBLEM
    network = delivery(faults, algorithm, task, graph)
    shape = jax.ShapeDtypeStruct((task.dimension,), task.dtype)
    memory = network.begin(algorithm.message(*(shape for _ in algorithm.channels)), 1)

    def one(memory, step):
        found, memory = network.round(step, memory, ())
        return memory, found

    return jax.lax.scan(one, memory, jnp.arange(steps))[1], network


GRAPHS = {
    "ring of 6": (GRAPH, Dense),
    "random regular 300": (hs.graphs.random(300, degree=6), Padded),
    "star of 300": (hs.graphs.star(300), Edges),
}


@pytest.mark.parametrize("latency", [0, (0, 2)])
@pytest.mark.parametrize("kind", ["coupling", "mixing", "pushing"])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_layout_weighs_what_is_heard(name, kind, latency):
    """Against the channel's own words for one agent: the row of whom it heard, and its own weight
    once it has heard those.
    """
    graph, layout = GRAPHS[name]
    n, rng = graph.agents, np.random.default_rng(0)

    class Method(type(hs.ldp_online())):
        channels = {"params": kind}

    algorithm = Method()
    network = delivery(Faults(latency=latency, seed=1), algorithm, problem(n), graph)
    assert isinstance(network.wires[0].weights, layout)
    hearer, sender = np.asarray(network.hearer), np.asarray(network.sender)
    heard = rng.random(len(hearer)) < 0.6
    ages = np.zeros(len(hearer), int) if network.ages is None else np.asarray(network.ages)
    assert set(ages) == (set(range(3)) if latency else {0})
    values = rng.normal(size=(3, n, 2))
    past = algorithm.message(jnp.asarray(values[1:])) if latency else ()
    found = network.mixers(type("Weather", (), {"heard": jnp.asarray(heard)}), past)[0]
    total = np.asarray(found.total(jnp.asarray(values[0])))
    by_hand, own = np.zeros((n, 2)), np.zeros(n)
    told = [[] for _ in range(n)]
    for i, j, up, age in zip(hearer, sender, heard, ages, strict=True):
        if up:
            told[i].append((j, age))
    for i in range(n):
        row = channel(kind).row(graph, i)
        by_hand[i] = sum((row[j] * values[age, j] for j, age in told[i]), np.zeros(2))
        own[i] = channel(kind).own(graph, i, sum(row[j] for j, _ in told[i]))
    np.testing.assert_allclose(total, by_hand, atol=1e-12)
    np.testing.assert_allclose(np.asarray(found.own), own, atol=1e-12)


def test_an_edge_that_wakes_may_be_deaf_on_one_side():
    algorithm = hs.asynchronous_gossip()
    network = delivery(Faults(loss=0.5), algorithm, PROBLEM, GRAPH)
    hearer, sender = np.asarray(network.hearer), np.asarray(network.sender)
    deaf = (hearer == 0) & (sender == 1)
    up = type("Weather", (), {"heard": jnp.asarray(~deaf)})
    values = np.arange(float(N))[:, None] + 1.0
    for coin in (0.01, 0.5):
        row = {i: channel("waking").row_at(GRAPH, i, coin) for i in range(N)}
        (woken,) = {frozenset({i, *row[i]}) for i in range(N) if row[i]}
        mix = network.mixers(up, ())[0].at(coin)
        total, own = np.asarray(mix.total(jnp.asarray(values))).ravel(), np.asarray(mix.own)
        for i in range(N):
            mine = {j: w for j, w in row[i].items() if (i, j) != (0, 1)}
            assert total[i] == sum(w * values[j, 0] for j, w in mine.items())
            assert own[i] == channel("waking").own(GRAPH, i, sum(mine.values()))
        assert (woken == {0, 1}) == (coin == 0.01)


def everything(seen):
    return seen.states, seen.sent, seen.inbox


def test_the_loop_does_what_a_plain_loop_over_links_does():
    """All faults at once: what is heard, from when, and what becomes of those who are away."""
    algorithm = hs.ldp_online(noise=0.3)
    rounds = Rounds(algorithm, PROBLEM, GRAPH, [0, 7], faults=EVERYTHING)
    start = np.asarray(PROBLEM.domain.project(jnp.asarray(PROBLEM.first_models)))
    states, sent, inbox = jax.device_get(rounds.advance(STEPS, tap=everything))
    (heard, present, back), network = weather(EVERYTHING)
    heard, present, back = map(np.asarray, (heard, present, back))
    hearer, sender, ages = map(np.asarray, (network.hearer, network.sender, network.ages))
    assert 0.1 < heard.mean() < 0.9
    assert set(ages) == {0, 1, 2}
    assert back.any()
    for k in range(STEPS):
        total, weight = np.zeros((2, N, 3)), np.zeros(N)
        for link in np.flatnonzero(heard[k]):
            i, j, then = hearer[link], sender[link], k - ages[link]
            assert then >= 0
            assert present[then, j]
            total[:, i] += 0.3 * sent.params[then, :, j]
            weight[i] += 0.3
        np.testing.assert_allclose(inbox.total.params[k], total, atol=1e-12)
        np.testing.assert_allclose(inbox.own.params[k], np.tile(-weight, (2, 1)), atol=1e-12)
        for i in np.flatnonzero(back[k]):
            np.testing.assert_array_equal(states.params[k, :, i], np.tile(start[i], (2, 1)))
        if k + 1 < STEPS:
            for i in np.flatnonzero(~present[k] & ~back[k + 1]):
                np.testing.assert_array_equal(states.params[k + 1, :, i], states.params[k, :, i])
    memory = rounds.carry.memory
    np.testing.assert_array_equal(memory.heard, heard.sum(axis=0))
    np.testing.assert_array_equal(memory.sent, present.sum(axis=0))
    last = [np.flatnonzero(row)[-1] + 1 for row in present.T]
    np.testing.assert_array_equal(memory.charged, last)


def test_listed_faults_mean_what_they_say():
    faults = Faults(
        leave=[(1, 9)], join=[(3, 4)], partitions=[(2, 5, [[0, 1, 2]])], links=[(4, 5, 1, 7)]
    )
    (heard, present, _), network = weather(faults)
    for k in range(STEPS):
        here = {i for i in range(N) if not (i == 1 and k >= 9) and not (i == 3 and k < 4)}
        assert set(np.flatnonzero(present[k])) == here
        for number, (i, j) in enumerate(zip(network.hearer, network.sender, strict=True)):
            i, j = int(i), int(j)
            apart = 2 <= k < 5 and (i in (0, 1, 2)) != (j in (0, 1, 2))
            out = (i, j) == (4, 5) and 1 <= k < 7
            assert bool(heard[k, number]) == ({i, j} <= here and not apart and not out)


@pytest.mark.parametrize("catches_up", [True, False])
def test_who_sleeps_is_not_heard_and_hears_only_if_it_catches_up(catches_up):
    faults = Faults(asleep=0.4, nap=3.0, catches_up=catches_up)
    (heard, present, _), network = weather(faults)
    heard, hearer, sender = map(np.asarray, (heard, network.hearer, network.sender))
    assert present is None
    spoken = {(k, j): set(heard[k, sender == j]) for k in range(STEPS) for j in range(N)}
    asleep = {key for key, found in spoken.items() if found == {False}}
    if catches_up:
        # Whoever is awake is heard by everybody, asleep or not.
        assert all(len(found) == 1 for found in spoken.values())
    else:
        for k, i in asleep:
            assert not heard[k, hearer == i].any()
    assert 0.2 < len(asleep) / (STEPS * N) < 0.6


def test_a_plan_is_followed_link_by_link():
    class Told:
        def heard(self, step: int) -> np.ndarray:
            return np.arange(GRAPH.edges) % (step + 2) > 0

    rounds = Rounds(hs.ldp_online(), PROBLEM, GRAPH, [0], faults=Faults(plan=Told()))
    rounds.advance(5)
    rounds.advance(3)
    expected = sum(Told().heard(k).astype(int) for k in range(8))
    np.testing.assert_array_equal(rounds.carry.memory.heard, expected)

    class Short(Told):
        def heard(self, step: int) -> np.ndarray:
            return np.ones(3, bool)

    with pytest.raises(ValueError, match="one truth value for each of the 12 links"):
        Rounds(hs.ldp_online(), PROBLEM, GRAPH, [0], faults=Faults(plan=Short())).advance(1)


def test_only_a_checkpoint_must_know_its_plan_again(tmp_path):
    class Told:
        def heard(self, step: int) -> np.ndarray:
            return np.ones(GRAPH.edges, bool)

    given = {"steps": 2, "reference": False, "regret": False, "faults": Faults(plan=Told())}
    run = hs.simulate(hs.ldp_online(), PROBLEM, GRAPH, **given)
    assert run.hearing is not None and run.hearing.share == 1
    with pytest.raises(ValueError, match=r"plan in faults must have a method digest\(\)"):
        hs.simulate(hs.ldp_online(), PROBLEM, GRAPH, folder=tmp_path, **given)


def test_chunks_do_not_change_a_fault():
    one, two = (Rounds(hs.dsgd(), PROBLEM, GRAPH, [2], faults=EVERYTHING) for _ in range(2))
    one.advance(STEPS)
    for part in (3, 1, STEPS - 4):
        two.advance(part)
    for a, b in zip(jax.tree.leaves(one.carry), jax.tree.leaves(two.carry), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


def test_a_resumed_run_goes_on_with_the_same_faults(tmp_path):
    options = {"seeds": [4], "every": 3, "faults": EVERYTHING, "regret": False}
    whole = hs.simulate(hs.ldp_online(), PROBLEM, GRAPH, steps=12, **options)
    hs.simulate(hs.ldp_online(), PROBLEM, GRAPH, steps=6, folder=tmp_path, **options)
    resumed = hs.simulate(
        hs.ldp_online(), PROBLEM, GRAPH, steps=12, folder=tmp_path, resume=True, **options
    )
    np.testing.assert_allclose(whole.models, resumed.models, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(whole.hearing.heard, resumed.hearing.heard)
    np.testing.assert_array_equal(whole.spent, resumed.spent)
    np.testing.assert_allclose(whole.averages["tail"], resumed.averages["tail"], atol=1e-13)
    other = options | {"faults": replace(EVERYTHING, seed=4)}
    with pytest.raises(ValueError, match="another configuration"):
        hs.simulate(
            hs.ldp_online(), PROBLEM, GRAPH, steps=12, folder=tmp_path, resume=True, **other
        )


def test_nothing_of_faults_is_carried_where_there_are_none():
    rounds = Rounds(hs.dsgd(), PROBLEM, GRAPH, [0])
    assert rounds.carry.memory == rounds.setting.faults == ()


def test_faults_that_never_happen_change_no_model():
    plain = Rounds(hs.ldp_online(), PROBLEM, GRAPH, [0])
    failing = Rounds(hs.ldp_online(), PROBLEM, GRAPH, [0], faults=Faults(links=[(0, 1, 90, 99)]))
    plain.advance(STEPS)
    failing.advance(STEPS)
    np.testing.assert_allclose(plain.models, failing.models, rtol=0, atol=1e-13)


def test_what_is_drawn_has_the_shares_and_lengths_that_were_asked_for():
    """On 3,600 links (1,200 agents for sleeping and churn) over 400 rounds. Stretches of mean
    length 5 leave about 400 / 12 independent ones per link: the standard deviation of each share
    is below 0.0012 (links) and 0.003 (agents), so that six of them are a false alarm with
    probability below 1e-8.
    """
    graph, n = hs.graphs.random(600, degree=6), problem(600)
    (heard, *_), _ = weather(Faults(loss=0.2), graph=graph, steps=400, n=n)
    heard = np.asarray(heard)
    assert abs(heard.mean() - 0.8) < 0.002
    pairs = (~heard[1:] & ~heard[:-1]).mean()
    assert abs(pairs - 0.04) < 0.002, "losses must be independent of each other"
    (heard, *_), _ = weather(Faults(loss=0.2, burst=5.0), graph=graph, steps=400, n=n)
    down = ~np.asarray(heard)
    assert abs(down.mean() - 0.2) < 0.008
    ended = (down[:-1] & ~down[1:]).sum() / down[:-1].sum()
    assert abs(1 / ended - 5) < 0.25
    (heard, *_), network = weather(Faults(asleep=0.25, nap=8.0), graph=graph, steps=400, n=n)
    asleep = ~np.asarray(heard)[:, np.unique(np.asarray(network.sender), return_index=True)[1]]
    assert abs(asleep.mean() - 0.25) < 0.02
    assert abs(asleep[:-1].sum() / (asleep[:-1] & ~asleep[1:]).sum() - 8) < 0.8


def test_a_tenth_leaves_in_a_hundred_rounds():
    """Of 2,000 agents: the standard deviation of the share is 0.0067, six of them are a false
    alarm of 1e-9.
    """
    _, leaves = Faults(churn=0.1, seed=5).presence(2000)
    assert abs((leaves < 100).mean() - 0.1) < 0.041
    graph, n = hs.graphs.random(2000, degree=4), problem(2000)
    (_, present, back), _ = weather(Faults(churn=0.1, away=20.0), graph=graph, steps=101, n=n)
    present = np.asarray(present)
    assert abs((~present).any(axis=0).mean() - 0.1) < 0.041
    ends = (~present[:-1] & present[1:]).sum()
    assert ends == np.asarray(back).sum() > 0


def test_who_is_away_pays_for_what_it_has_sent_and_no_more():
    faults = Faults(leave=[(1, 5)], join=[(3, 4)])
    run = hs.simulate(
        hs.ldp_online(), PROBLEM, GRAPH, steps=12, every=2, faults=faults, regret=False
    )
    lossy = replace(GRAPH, lossy=True)
    full = epsilon_after(hs.ldp_online(), PROBLEM, lossy, run.steps.tolist())
    five = epsilon_after(hs.ldp_online(), PROBLEM, lossy, [5])
    np.testing.assert_array_equal(run.spent[:, 0], full[:, 0])
    np.testing.assert_array_equal(run.spent[run.steps >= 6, 1], five[0, 1])
    np.testing.assert_array_equal(run.spent[run.steps <= 4, 3], 0.0)
    np.testing.assert_array_equal(run.spent[run.steps > 4, 3], full[run.steps > 4, 3])
    assert run.certificate.epsilon == hs.certify(hs.ldp_online(), PROBLEM, lossy, 12).epsilon
    assert run.certificate.epsilon[0] > hs.certify(hs.ldp_online(), PROBLEM, GRAPH, 12).epsilon[0]


def test_nothing_is_released_of_who_is_away_but_its_last_message():
    """What an agent would send of its state while it is away is not charged."""
    faults = Faults(leave=[(1, 5)], join=[(3, 8)])
    rounds = Rounds(hs.dsgd(), PROBLEM, GRAPH, [1], readouts=(Last(),), faults=faults)
    sent = Rounds(hs.dsgd(), PROBLEM, GRAPH, [1], faults=faults).advance(7, tap=everything)[1]
    rounds.advance(7)
    kept = np.asarray(rounds.carry.kept.slots)[0, 0]
    np.testing.assert_array_equal(kept[1], sent.params[4, 0, 1])
    np.testing.assert_array_equal(kept[3], np.asarray(PROBLEM.first_models)[3])
    np.testing.assert_array_equal(kept[0], sent.params[6, 0, 0])


def test_links_of_models_and_trackers_are_counted_together():
    graph = hs.graphs.five_agents(weight=0.2)
    found = links(hs.gradient_tracking(), graph)
    union = (graph.weights.toarray() + graph.pushed.toarray()) > 0
    np.testing.assert_array_equal(found.toarray() > 0, union)
