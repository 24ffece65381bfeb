"""From an algorithm, a problem and a graph to descriptions: what a certificate needs, as data.

The algorithm gives the coefficients (leak, step, releases), the problem the public facts (how far
one record moves a gradient, the curvature of the loss), the sampler how often a record is used.
What comes out knows nothing of where it came from (privacy/).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.outside import is_own
from hearsay.base import Algorithm, noise_rates
from hearsay.certification.stamps import standing
from hearsay.graphs import Graph
from hearsay.graphs.channels import channel
from hearsay.graphs.relaying import growth
from hearsay.privacy import coalition_words, float64
from hearsay.privacy.account import Account, Assumption, Bound
from hearsay.privacy.adjacency import Adjacency
from hearsay.privacy.coalitions import Gain
from hearsay.privacy.description import Description
from hearsay.privacy.float64 import Float64
from hearsay.privacy.participation import FromArrival, Participation
from hearsay.privacy.recursion import MEMORYLESS, Recursion
from hearsay.privacy.recursion_account import RecursionAccount
from hearsay.problems.losses.loss import BoundedLoss
from hearsay.problems.task import Task, public
from hearsay.schedules import Constant

_PUBLIC_POINT = "gradient at a public point"
_ENDLESS = Assumption(
    "declared", "the stream never ends: every step brings each agent its new records"
)
# What a budget rests on where a sampler is from outside hearsay.
SAMPLER = (
    "which records are in a batch, and with what weight and chance, is as the author of the sampler"
    " {} says: nothing has checked it"
)
# What a budget rests on where messages may be missing (`Graph.lossy`).
SKIPPED = (
    Assumption(
        "enforced",
        "any neighbour may be left out in any round: the largest coefficient over all such cases is"
        " counted",
    ),
    Assumption("declared", "which messages arrive in time does not depend on the records"),
)


@lru_cache(maxsize=4096)
def account_cost(account: Account, horizon: float, delta: float | None = None) -> Bound:
    with require.fits("horizon", horizon):
        return account.cost(horizon, delta)


@lru_cache(maxsize=4096)
def account_epsilon(account: Account, horizon: float, delta: float | None) -> float:
    """What a target or a budget is compared with: at delta where one is given."""
    with require.fits("horizon", horizon):
        found = account.certified(horizon, delta)
    return found.epsilon if found.epsilon_at_delta is None else found.epsilon_at_delta


@lru_cache(maxsize=1024)
def account_spent(
    account: Account, messages: tuple[int, ...], delta: float | None = None
) -> np.ndarray:
    """Budget used after those numbers of messages, in the account's own number."""
    with require.fits("messages", max(messages, default=0)):
        return account.spent(messages, delta)


def accounts(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int, *, endless: bool = False
) -> tuple[Account, ...]:
    """Every true bound on this agent's messages that holds whichever batches are drawn; the
    certificate takes the smallest, or one of `amplified`.

    Args:
      endless: the stream keeps delivering new records, instead of the records at hand.
    """
    own = own_accounts(algorithm, problem, graph, agent, endless=endless)
    return _protected(algorithm, graph, agent, own)


def own_accounts(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int, *, endless: bool = False
) -> tuple[Account, ...]:
    """The same of the agent's own noise alone: what holds if everybody else colludes."""
    problem, agent = public(problem), _of(graph, agent)
    own = algorithm.own_accounts(graph, agent, problem)
    return own if own is not None else tuple(_recursions(algorithm, problem, graph, agent, endless))


def gain(algorithm: Algorithm, graph: Graph, agent: int) -> Gain:
    """By how much shared noise makes that agent's own worth more, against the worst coalition of
    as many others as its secrets are planned for: 1 without secrets.
    """
    shared = algorithm.shared(graph.agents)
    if shared is None or algorithm.secrets is None:
        return Gain(1.0, "")
    return shared.gain(_of(graph, agent), algorithm.secrets.colluders)


def _protected(
    algorithm: Algorithm, graph: Graph, agent: int, own: tuple[Account, ...]
) -> tuple[Account, ...]:
    """Accounts of own noise, with what the agent shares. Given the noise of all other honest
    agents, which tells nothing of its records, the agent's is independent noise of its own that
    is so much louder (privacy/coalitions.py): every proof holds as it stands.
    """
    louder = gain(algorithm, graph, agent).value
    return own if louder == 1 else tuple(account.scaled(louder) for account in own)


def amplified(algorithm: Algorithm, problem: Task, graph: Graph, agent: int) -> tuple[Account, ...]:
    """Bounds that rest on batches being secret; none where the algorithm or the sampler has no such
    proof.
    """
    own = own_amplified(algorithm, problem, graph, agent)
    return _protected(algorithm, graph, agent, own)


def own_amplified(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int
) -> tuple[Account, ...]:
    """The same of the agent's own noise alone."""
    problem, agent = public(problem), _of(graph, agent)
    if not algorithm.amplifies or algorithm.factors is not None or not algorithm.law.amplifies:
        return ()
    # Any neighbour may be left out where messages get lost.
    heard = {float(graph.row_sums[agent]), *((0.0,) if graph.lossy else ())}
    if algorithm.gradient_at_state or any(algorithm.leak(one) != MEMORYLESS for one in heard):
        raise ValueError(
            f"amplifies of {algorithm.name} must be False: its gradients are taken at a private"
            " point, or it carries a private state on, and secret batches do not help there"
        )
    held, law = float(problem.counts[agent]), algorithm.law

    def charged(change: float) -> RecursionAccount:
        exposure = algorithm.sampling.exposure(change, held, problem.arrivals)
        return RecursionAccount(
            Recursion(MEMORYLESS, algorithm.step_size, exposure, (0.0, 0.0)),
            algorithm.releases(agent, (0.0, 0.0)),
            algorithm.sampling.pattern(held, problem.arrivals),
            problem.dimension,
            law,
            _PUBLIC_POINT,
            problem.privacy_assumptions(),
            algorithm.uncertified,
            problem.norm,
        )

    if not math.isfinite(problem.change):
        return ()
    return algorithm.sampling.amplified(charged, problem, held)


def best_account(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    agent: int,
    horizon: float,
    delta: float | None = None,
) -> tuple[Account, Bound]:
    """The account with the smallest bound, and that bound in the account's own number."""
    return _best(algorithm, problem, graph, agent, horizon, delta)[1:]


def _best(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    agent: int,
    horizon: float,
    delta: float | None,
) -> tuple[Account, Account, Bound]:
    """(the account of own noise, with what is shared, its bound) with the smallest bound."""
    problem = public(problem)
    horizon = require.horizon("horizon", horizon)
    delta = require.optional(require.fraction)("delta", delta)
    own = own_accounts(algorithm, problem, graph, agent, endless=math.isinf(horizon))
    each = zip(own, _protected(algorithm, graph, agent, own), strict=True)
    best = min(
        ((alone, account, account_cost(account, horizon, delta)) for alone, account in each),
        key=lambda found: found[2].value,
    )
    # Numbers of different proofs have different meanings: what is read is compared.
    own = own_amplified(algorithm, problem, graph, agent)
    for alone, account in zip(own, _protected(algorithm, graph, agent, own), strict=True):
        found = account_epsilon(account, horizon, delta)
        # Where neither is finite, why a record in every batch has no budget is what helps.
        if math.isfinite(found) and found <= account_epsilon(best[1], horizon, delta):
            best = alone, account, account_cost(account, horizon, delta)
    return best


def describe(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    agent: int,
    horizon: float,
    delta: float | None = None,
) -> tuple[Description, Bound]:
    """What the agent's budget over that horizon follows from, and that budget in the account's own
    number.
    """
    delta = require.optional(require.fraction)("delta", delta)
    own, _, found = _best(algorithm, problem, graph, agent, horizon, delta)
    known, louder = standing(algorithm), gain(algorithm, graph, agent)
    said = [Assumption("declared", known.declared)] if known.declared else []
    if not is_own(drawn := type(algorithm.sampling)):
        said.append(Assumption("declared", SAMPLER.format(drawn.__name__)))
    adversary, shared = algorithm.adversary, algorithm.shared(graph.agents)
    if shared is not None and algorithm.secrets is not None:
        planned = algorithm.secrets.colluders
        said += coalition_words.assumptions(planned, shared, louder.how, own.amplified)
        adversary = replace(adversary, colluders=planned)
    description = Description(
        own,
        (*algorithm.assumptions, *said),
        checked=known.checked,
        adversary=adversary,
        adjacency=Adjacency(problem.adjacency),
        gain=louder.value,
    )
    return description, found


def rounded(algorithm: Algorithm, problem: Task, graph: Graph, agent: int, heard: float) -> Float64:
    """What bounds the rounding of the agent's arithmetic in a run.

    Args:
      heard: what is heard is clipped to it (`message_bound`).
    """
    agent = _of(graph, agent)
    weight = graph.row_sums[agent] + graph.handed_out[agent] + graph.pushed_sums[agent]
    weight = max(weight, *(channel(name).weight for name in algorithm.channels.values()))
    held = float(problem.counts[agent])
    load = algorithm.sampling.load(held, problem.arrivals)
    return Float64(
        algorithm.magnitudes(agent, graph.agents),
        heard,
        _reach(problem),
        _gradient(problem, load),
        _curvature(problem, load),
        float(weight),
        algorithm.sampling.terms(held, problem.arrivals),
        held,
    )


def message_bound(algorithm: Algorithm, problem: Task, graph: Graph, messages: int) -> float:
    """No honest agent sends a model, gradient or tracker beyond it in so many messages, nor passes
    on more while everybody else is honest.
    """
    reach, messages = _reach(problem), require.count("messages", messages)
    held, arrivals = problem.counts.tolist(), problem.arrivals
    load = max(algorithm.sampling.load(count, arrivals) for count in set(held))
    relayed = growth(graph, algorithm.channels.values(), algorithm.relays(graph))
    return relayed * float64.message_bound(
        reach,
        _gradient(problem, load) if gradients_bounded(problem) else reach,
        _noise(algorithm, graph, messages),
        algorithm.magnitudes(0, graph.agents).resolution,
        graph.agents,
        messages,
    )


def gradients_bounded(problem: Task) -> bool:
    """A bound on gradients is known."""
    return math.isfinite(problem.change) and problem.declared is None


def _recursions(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int, endless: bool
) -> list[RecursionAccount]:
    held, arrivals = float(problem.counts[agent]), problem.arrivals
    load = algorithm.sampling.load(held, arrivals)
    endless = endless and algorithm.sampling.grows
    shared, least = (algorithm.leak(float(graph.row_sums[agent])), algorithm.step_size), None
    if graph.lossy and (unheard := algorithm.leak(0.0)) != shared[0]:
        least = unheard
    stream = (_ENDLESS,) if endless and math.isfinite(held) else ()
    curvature, basis = (0.0, 0.0), _PUBLIC_POINT
    reacts = algorithm.gradient_at_state and not problem.frozen
    if reacts:
        curvature = _curvature(problem, load)
        basis = f"curvature interval [{curvature[0]:.4g}, {curvature[1]:.4g}]"
    elif algorithm.gradient_at_state:
        basis = "gradients declared not to react to the state"
    facts, found = problem.privacy_assumptions() + stream, list[RecursionAccount]()

    def add(recursion: Recursion, pattern: Participation, norm: str, void: str = "") -> None:
        releases = algorithm.releases(agent, recursion.curvature)
        uncounted = {*algorithm.channels} - {*algorithm.coins} - {r.name for r in releases}
        if uncounted:
            raise ValueError(
                f"releases of {algorithm.name} must say what every message field shows, got none"
                f" for {', '.join(sorted(uncounted))}"
            )
        found.append(
            RecursionAccount(
                recursion,
                releases,
                pattern,
                problem.dimension,
                algorithm.law,
                basis,
                facts,
                void or algorithm.uncertified,
                norm,
            )
        )

    if math.isfinite(problem.change) and (problem.loss.convex or not reacts):
        exposure = algorithm.sampling.exposure(
            problem.change, math.inf if endless else held, arrivals
        )
        # A change that is bounded in l1 stays one where nothing but clipping of coordinates
        # happens to it; curvature intervals are about l2.
        pattern = algorithm.sampling.pattern(held, arrivals)
        add(
            Recursion(*shared, exposure, curvature, least),
            pattern,
            "l2" if reacts else problem.norm,
        )
    if problem.loss.clip is not None and algorithm.gradient_at_state:
        # No curvature of the data: from its first use on the record may move every later
        # gradient by the full clip range, under zero-out too: once the states differ, so may the
        # gradients of all OTHER records, by 2 B each. The regulariser is not clipped; it is the
        # same in both runs and moves the states by its own, exactly known curvature.
        known = problem.loss.regulariser
        moved = Constant(2 * problem.loss.clip * load[1])
        worst = Recursion(*shared, moved, (known, known), least)
        facts = problem.privacy_assumptions(curvature=False) + stream
        basis = f"clip bound {problem.loss.clip:g}"
        add(worst, FromArrival(), problem.norm)
    if not found:
        basis = "nothing"
        none = Recursion(*shared, Constant(0.0), (0.0, 0.0))
        reason = "no bound on the gradients is known: give the problem a clip"
        add(none, FromArrival(), "l2", reason)
    return found


def _of(graph: Graph, agent: int) -> int:
    agent = require.natural("agent", agent)
    if agent >= graph.agents:
        require.fail("agent", f"below the {graph.agents} agents of the graph", agent)
    return agent


def _curvature(problem: Task, load: tuple[float, float]) -> tuple[float, float]:
    """An interval that holds all eigenvalues of the Hessian of a batch whose weights sum to
    between load[0] and load[1].
    """
    low, high = problem.loss.curvature
    if load == (1.0, 1.0) or not math.isfinite(high - low):
        return low, high
    known = problem.loss.regulariser
    return (
        known + min(part * (low - known) for part in load),
        known + max(part * (high - known) for part in load),
    )


def _gradient(problem: Task, load: tuple[float, float]) -> float:
    """No mean gradient, nor the mean of the sizes of its terms, is larger in any coordinate, for
    batches whose weights sum to at most load[1].
    """
    if not gradients_bounded(problem):
        return 0.0
    loss, known = problem.loss, []
    if loss.clip is not None:
        known.append(loss.clip)
    if isinstance(loss, BoundedLoss):
        known.append(loss.unclipped_change(_reach(problem)))
    return load[1] * min(known) + abs(loss.regulariser) * _reach(problem)


def _reach(problem: Task) -> float:
    return problem.domain.reach(problem.dimension)


def _noise(algorithm: Algorithm, graph: Graph, messages: int) -> float:
    """The largest scale of anybody's noise, on the message, what is shared with others included."""
    rates = algorithm.rates(np.arange(messages), graph.agents)
    shared, louder = algorithm.shared(graph.agents), np.ones(graph.agents)
    if shared is not None:
        louder = np.sqrt([shared.variance(agent) for agent in range(graph.agents)])
    scales = [np.max(louder * value) for value in noise_rates(type(algorithm), rates).values()]
    factor = max(1.0, float(np.max(rates.step)))
    if algorithm.factors is not None:
        diagonal, _, others = algorithm.factors.rows()
        factor *= float(np.max(np.abs(diagonal) + others))
    return factor * float(max(scales))
