"""The contract that every algorithm fulfils.

An algorithm is a frozen dataclass of schedules and options, with a few pure functions of ONE agent.
The simulator adds the agent and seed axes; a deployed agent calls the very same functions in its
own process.

    init(params) -> State
        what the agent keeps, private
    draw(key, params) -> Message of draws
        randomness of one step, before its scale is known
    prepare(state, batch, rates) -> Message of Private, State
        what is to go out, each field with the scale of its noise
    finish(noised, draws, state) -> Message, State
        what is done to it once it is noised; nothing, unless overridden
    update(state, sent, inbox, batch, rates, domain) -> State
        pure
    predict(state) -> params
        the model an agent reads out for itself

`send(draws, state, batch, rates)` is the one place where noise goes in, between `prepare`
and `finish`: a simulation adds the draws in floating point, a deployed agent the noise of a
lattice (deploy/privatize.py). What comes out of `finish` is all that ever leaves an agent.
`batch.gradient(params)` is the mean gradient of the step's records (problems/sampling/samplers.py);
`prepare` has it too, for algorithms that share gradients or trackers.

Every algorithm here is linear in what it hears, so `Inbox` holds, per message field, `total` = sum
over the in-neighbours j of w_ij message_j, and `own`, the agent's own weight in that field's
matrix: -sum_j w_ij for a "coupling" field, 1 - sum_j w_ij for a "mixing" field (graphs/).

The proof lives next to the update: `leak`, `step_size` and `releases` hand the privacy engine
(privacy/recursion.py) the coefficients of the recursion, read from the same schedules that
drive the run.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.graphs import Graph
from hearsay.mechanisms import MECHANISMS, Mechanism
from hearsay.mechanisms.factorized.kinds import Factorization
from hearsay.privacy.account import Account
from hearsay.privacy.float64 import Magnitudes
from hearsay.privacy.recursion import Release
from hearsay.problems.losses.domains import Domain
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Sampling
from hearsay.schedules import Constant, Schedule, nonnegative


class Inbox(NamedTuple):
    """What an agent hears in one round: one entry per message field in each part."""

    total: Any
    own: Any


class Private(NamedTuple):
    """A message field before its noise: the value, which must not leave the agent,
    and the scale of the noise that lets it.
    """

    value: Any
    scale: Any


class Finding(NamedTuple):
    """One condition of a paper's theory: does it hold, and by how much.
    margin > 0 means it holds with that much to spare.
    """

    name: str
    holds: bool
    detail: str
    margin: float | None = None


Noise = Schedule | tuple[Schedule, ...]


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """Options shared by all: the noise scale (one schedule for all agents, or one per agent),
    its distribution, and the sampler.
    """

    name: ClassVar[str]
    # message field -> the matrix it travels over, "coupling" or "mixing"
    channels: ClassVar[Mapping[str, str]]
    # message field -> the interval in which it lies, for fields that are no models or gradients
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}

    noise: Noise
    mechanism: str
    sampling: Sampling
    # Read out an average of the agent's own past models: like them it never leaves the agent.
    average: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", as_noise(self.noise))
        require.flag("average", self.average)
        require.one_of("mechanism", self.mechanism, MECHANISMS)
        if not isinstance(self.sampling, Sampling):
            require.fail("sampling", "a sampler such as hearsay.History()", self.sampling)

    # What one agent does.

    @abstractmethod
    def init(self, params: jax.Array) -> Any: ...

    @abstractmethod
    def draw(self, key: jax.Array, params: jax.Array) -> Any: ...

    @abstractmethod
    def prepare(self, state: Any, batch: Any, rates: Any) -> tuple[Any, Any]: ...

    def finish(self, noised: Any, draws: Any, state: Any) -> tuple[Any, Any]:
        return noised, state

    @abstractmethod
    def update(
        self, state: Any, sent: Any, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> Any: ...

    @abstractmethod
    def predict(self, state: Any) -> jax.Array: ...

    @abstractmethod
    def rates(self, steps: np.ndarray, agents: int) -> Any:
        """A NamedTuple of arrays (time, agent), float64:
        what send and update receive one step and agent at a time.
        """

    def draws(self, key: jax.Array, steps: jax.Array, params: jax.Array, constants: Any) -> Any:
        """`draw` for several steps in a row, with a leading axis;
        noise that is correlated over time overrides this instead of `draw`.
        """
        return jax.vmap(lambda step: self.draw(jax.random.fold_in(key, step), params))(steps)

    def constants(self, dtype: Any) -> Any:
        """Arrays that `draws` needs and that are too large to compile in."""
        return ()

    @property
    def rounds(self) -> float:
        """How many messages an agent can send at all."""
        return math.inf

    def step_noise(self, steps: np.ndarray, agent: int, agents: int) -> np.ndarray | None:
        """Where a message carries the noise of the step that made it: its scale on message k + 1,
        for every k. None: a field's scale is its release's.
        """
        return None

    @property
    def factors(self) -> Factorization | None:
        """The factorization of noise that is correlated over rounds;
        None where every message's noise is its own.
        """
        return None

    # What the privacy engine needs.

    @abstractmethod
    def leak(self, graph: Graph, agent: int) -> Schedule:
        """1 - a_k: how much of the private state a step replaces by what the transcript says.

        Of the graph it may depend on the sum of the agent's own weights only, and on that
        affinely: what lies between hearing all and hearing nobody is then covered by the two ends
        (recursion.py).
        """

    @abstractmethod
    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        """How far each message field moves, given that gradients react to the state with a
        curvature in that interval.
        """

    @property
    @abstractmethod
    def step_size(self) -> Schedule: ...

    @property
    def uncertified(self) -> str:
        """Why this configuration has no budget, if it has none whatever its noise."""
        return ""

    def own_accounts(
        self, graph: Graph, agent: int, problem: Problem
    ) -> tuple[Account, ...] | None:
        """Every true bound on this agent's messages, for an algorithm with a proof of its own;
        None: they are those of the recursion (certification/).
        """
        return None

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        """How large the numbers of an update can become: what a deployed run needs to count the
        rounding of its arithmetic (privacy/float64.py).
        """
        raise ValueError(
            f"{type(self).__name__} must declare `magnitudes` to be deployed: without it the"
            " rounding of its arithmetic cannot be counted"
        )

    # False: the gradient is taken at a point that the transcript determines.
    gradient_at_state: ClassVar[bool] = True

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Problem, horizon: int, delta: float | None = None
    ) -> float | None:
        """The source paper's own budget formula, or None where it gives none."""
        return None

    def check(self, graph: Graph, problem: Problem) -> None:
        """Raise ValueError for what cannot be run."""
        require.instance(
            "problem", problem, Problem, "a problem such as hearsay.problems.logistic(...)"
        )
        require.instance(
            "graph",
            graph,
            Graph,
            "a graph such as hearsay.graphs.ring(5), or from_networkx(...) of one",
        )
        graph.require_agents(problem.agents)
        if graph.lossy and (stuck := set(self.channels.values()) - {"coupling", "mixing"}):
            why = (
                "everybody must apply the same average"
                if "average" in stuck
                else (
                    "a share of a tracker that is not heard is lost for good, and the trackers no"
                    " longer add up to the gradients"
                )
            )
            raise ValueError(f"{self.name} cannot do without a message (policy skip): {why}")
        self.sampling.check(problem.counts)
        if isinstance(self.noise, tuple) and len(self.noise) != graph.agents:
            require.fail(
                "noise",
                f"one schedule, or one for each of the {graph.agents} agents",
                f"{len(self.noise)} schedules",
            )

    def theory(self, graph: Graph, problem: Problem) -> list[Finding]:
        """The source paper's conditions and rates for this configuration,
        on a loss of known curvature.
        """
        return []

    # What follows from the above.

    def findings(self, graph: Graph, problem: Problem) -> list[Finding]:
        """What the source paper's theory says of this configuration."""
        if not math.isfinite(problem.smoothness[1]):
            text = (
                "the gradients of a neural network have no known Lipschitz constant: the paper's"
                " theorems say nothing of this run"
            )
            return [Finding("smoothness", False, text)]
        return self.theory(graph, problem)

    def send(self, draws: Any, state: Any, batch: Any, rates: Any) -> tuple[Any, Any]:
        """(message, state): a field's noise is in the field of the draws that has its name."""
        fields, state = self.prepare(state, batch, rates)
        noised = (
            self.law.add(f.value, getattr(draws, name), f.scale)
            for name, f in fields._asdict().items()
        )
        return self.finish(type(fields)(*noised), draws, state)

    def noise_for(self, agent: int) -> Schedule:
        return self.noise[agent] if isinstance(self.noise, tuple) else self.noise

    def with_noise(self, factors: Sequence[float]) -> Algorithm:
        """The same algorithm with agent i's noise scale multiplied by factors[i]."""
        scaled = tuple(
            self.noise_for(i).scaled(f)
            for i, f in enumerate(require.each(require.nonnegative)("factors", factors))
        )
        return replace(self, noise=scaled[0] if len(set(scaled)) == 1 else scaled)

    @property
    def kernel(self) -> Algorithm:
        """The same algorithm with its schedules blanked out: what is compiled. send and update
        see schedules through `rates` only, so runs that differ in nothing but schedules (a sweep,
        calibrated noise) share one compiled program.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        blank: dict[str, Any] = {n: Constant(0.0) for n, v in values.items() if _is_noise(v)}
        return replace(self, sampling=self.sampling.kernel, **blank)

    def averaged(self, average: jax.Array, state: Any, step: jax.Array) -> jax.Array:
        """The running read-out, weighted in proportion to the step so that early models
        fade (Polyak averaging).
        """
        share = 2.0 / (step + 2.0)
        return average + share.astype(average.dtype) * (self.predict(state) - average)

    @property
    def law(self) -> Mechanism:
        """The mechanism, and all that follows from its law."""
        return MECHANISMS[self.mechanism]

    def fresh_noise(self, key: jax.Array, params: jax.Array, field: int = 0) -> jax.Array:
        return self.law.draw(jax.random.fold_in(key, field), params.shape, params.dtype)


@require.plain_arguments
def per_agent_rates(law: Noise, steps: np.ndarray, agents: int) -> np.ndarray:
    """One schedule for all or one per agent, evaluated: (time, agent)."""
    if isinstance(law, tuple):
        return np.stack([s(steps) for s in law], axis=1)
    return np.broadcast_to(law(steps)[:, None], (len(steps), agents))


def held_rates(rates: Any, dtype: Any) -> Any:
    """Rates as the run's precision holds them.

    Noise that compiled programs would flush to 0 is raised to what they keep:
    never less than a certificate counts.
    """
    least = float(np.finfo(dtype).tiny) * 2.0**24

    def held(name: str, law: np.ndarray) -> np.ndarray:
        raised = np.where(law > 0, np.maximum(law, least), law) if "noise" in name else law
        return np.ascontiguousarray(raised, dtype)

    return type(rates)(**{name: held(name, law) for name, law in rates._asdict().items()})


def _is_noise(value: Any) -> bool:
    """A schedule, or one per agent; other tuples (weights) are structure."""
    return isinstance(value, Schedule) or (
        isinstance(value, tuple) and all(isinstance(v, Schedule) for v in value)
    )


def as_noise(value: Any) -> Noise:
    """One schedule or a tuple of them, from what people write; None means no noise at all."""
    if value is None:
        return Constant(0.0)
    if isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 1:
        return tuple(nonnegative("noise", v) for v in value)
    return nonnegative("noise", value)
