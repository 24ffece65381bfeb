"""The simulator against a plain loop over agents, and against itself with other numbers for them.

Both are checks of check_algorithm (checking.py): an update that looks at more than its own agent,
or at an agent's number, shows here.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.audit.contract import AGENTS, ONE, STEPS, Broken, NotDone, Subject
from hearsay.audit.messages import batch_key
from hearsay.base import Inbox, noise_fields
from hearsay.graphs import from_weights
from hearsay.graphs.channels import channel
from hearsay.problems.sampling.samplers import Cyclic, Window
from hearsay.schedules import Constant
from hearsay.simulation import keys, shared
from hearsay.simulation.simulating import simulate

_SEED = 3


def plain_loop(one: Subject) -> str:
    """The simulator gives what a loop over agents gives, one agent at a time."""
    algorithm, problem, graph = one.algorithm, one.problem, one.graph
    found = simulate(
        algorithm, problem, graph, steps=STEPS, seeds=[_SEED], every=STEPS, delta=1e-5,
        reference=False, regret=False,
    ).models[0]  # fmt: skip
    expected = np.stack([algorithm.predict(s) for s in _by_hand(one)])
    gap = float(np.max(np.abs(found - expected)))
    if not gap <= 1e-9 * (1 + float(np.abs(expected).max())):
        raise Broken(f"the simulator and a loop over agents must agree, and differ by {gap:.3g}")
    return f"{STEPS} steps of {AGENTS} agents, models differ by {gap:.1g}"


def relabelled(one: Subject) -> str:
    """Numbering the agents otherwise numbers the models otherwise, and changes nothing else."""
    algorithm, problem = one.algorithm, one.problem
    if algorithm.coins:
        raise NotDone("its coins belong to the agents' numbers")
    order = np.array([2, 0, 3, 1])
    per_agent = [f.name for f in fields(algorithm) if type(getattr(algorithm, f.name)) is tuple]
    if per_agent:
        raise NotDone(f"{', '.join(per_agent)} belong(s) to the agents' numbers")
    if "noise" not in algorithm.options:
        silent = algorithm
    else:
        none: dict[str, Any] = {n: Constant(0.0) for n in noise_fields(type(algorithm))}
        silent = replace(algorithm, **none)
    size = ONE if algorithm.sampling.in_order is not None else None
    silent = replace(silent, sampling=Cyclic(size))
    held: Any = problem.records
    shuffled = replace(
        problem,
        records=held._replace(
            features=problem.features[order], labels=problem.labels[order],
            held=problem.counts[order],
        ),
        counts=problem.counts[order],
    )  # fmt: skip
    weights = one.graph.weights.toarray()
    options: dict[str, Any] = {"steps": STEPS, "every": STEPS, "delta": 1e-5, "reference": False}
    two = [
        simulate(silent, data, from_weights(w), regret=False, **options).models[0]
        for data, w in ((problem, weights), (shuffled, weights[np.ix_(order, order)]))
    ]
    gap = float(np.max(np.abs(two[1] - two[0][order])))
    if not gap <= 1e-9:
        raise Broken(f"agents must not depend on their numbers, and models differ by {gap:.3g}")
    return f"models differ by {gap:.1g}"


def _by_hand(one: Subject) -> list[Any]:
    """The states after all steps: one agent at a time, messages summed one by one."""
    algorithm, problem = one.algorithm, one.problem
    law, dtype = algorithm.sampling, problem.dtype
    every = keys.of(algorithm.keys, one.graph, jnp.asarray([_SEED]))
    noise = [jax.tree.map(lambda x, i=i: x[0, i], every).given for i in range(AGENTS)]
    drawn_from = [batch_key(algorithm, problem, i, _SEED) for i in range(AGENTS)]
    constants = algorithm.constants(dtype)
    records = [jax.tree.map(lambda x, i=i: x[i], problem.device_records) for i in range(AGENTS)]
    start = jnp.asarray(problem.first_models, dtype)
    states = [algorithm.init(problem.domain.project(start[i])) for i in range(AGENTS)]
    samplers = [law.prepare(problem.loss, mine, problem.arrivals) for mine in records]

    sharing = shared.of(algorithm, AGENTS, [_SEED], dtype)

    @jax.jit
    def drawn(k: Any) -> list[Any]:
        """Everybody's randomness, with what agents share."""
        each = [algorithm.draws(key, k[None], start[0], constants) for key in noise]
        every = jax.tree.map(lambda *parts: jnp.stack([part[0] for part in parts]), *each)
        every = shared.mixed(algorithm, every, sharing)
        return [jax.tree.map(lambda x, i=i: x[i], every) for i in range(AGENTS)]

    @jax.jit
    def say(state: Any, sampler: Any, mine: Any, k: Any, window: Any, own: Any, rate: Any) -> Any:
        batch, sampler = law.batch(sampler, problem.loss, mine, k, window, problem.arrivals, own[1])
        draws = own[0]
        coin = algorithm.coin(draws)
        return (*algorithm.send(draws, state, batch, rate), sampler, batch, coin)

    @jax.jit
    def hear(state: Any, sent: Any, inbox: Any, batch: Any, rate: Any) -> Any:
        return algorithm.update(state, sent, inbox, batch, rate, problem.domain)

    for k in range(STEPS):
        rates, now = algorithm.rates(np.array([k]), AGENTS), jnp.asarray(k, jnp.int32)
        windows = law.windows(np.array([k]), problem.counts, problem.arrivals)
        said, each = (
            [],
            [jax.tree.map(lambda r, i=i: jnp.asarray(r[0, i]), rates) for i in range(4)],
        )
        draws = drawn(now)
        for i in range(AGENTS):
            window = Window(
                jnp.asarray(windows.start[0, i]),
                jnp.asarray(windows.size[0, i]),
                jnp.asarray(windows.blocks[0]),
            )
            own = draws[i], keys.at(drawn_from[i], now)
            said.append(say(states[i], samplers[i], records[i], now, window, own, each[i]))
            samplers[i] = said[i][2]
        sent, inboxes = _phases(one, [s[0] for s in said], said[0][4])
        states = [hear(said[i][1], sent[i], inboxes[i], said[i][3], each[i]) for i in range(AGENTS)]
    return states


def _phases(one: Subject, sent: list[Any], coin: Any) -> tuple[list[Any], list[Inbox]]:
    """What everybody sends and hears in the last phase of a round that these messages begin."""

    def heard(sent: list[Any]) -> list[Inbox]:
        return [_inbox(one, i, sent, coin) for i in range(AGENTS)]

    before, inboxes = sent, heard(sent)
    for now, back in one.algorithm.relays(one.graph):
        after = [
            jax.tree.map(
                lambda v, old, total, own, now=now, back=back: now * (total + own * v) - back * old,
                sent[i],
                before[i],
                *inboxes[i],
            )
            for i in range(AGENTS)
        ]
        before, sent, inboxes = sent, after, heard(after)
    return sent, inboxes


def _inbox(one: Subject, agent: int, sent: list[Any], coin: Any) -> Inbox:
    rows = {
        name: channel(kind).row_at(one.graph, agent, coin)
        for name, kind in one.algorithm.channels.items()
    }
    total, own = [], []
    for (name, row), kind in zip(rows.items(), one.algorithm.channels.values(), strict=True):
        silent = jnp.zeros_like(getattr(sent[agent], name))
        total.append(sum((w * getattr(sent[j], name) for j, w in row.items()), silent))
        own.append(jnp.asarray(channel(kind).own(one.graph, agent, sum(row.values()))))
    make = type(sent[agent])
    return Inbox(make(*total), make(*own))
