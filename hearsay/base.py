"""The contract that every algorithm fulfils.

An algorithm is a frozen dataclass of schedules and options, with a few pure functions of ONE agent.
The simulator adds the agent and seed axes; a deployed agent calls the very same functions in its
own process. A file writes

    channels                                      which matrix each message field travels over
    prepare(state, batch, rates)                  what is to go out, each field with its noise scale
    update(state, sent, inbox, batch, rates, domain)          one step, once everybody is heard
    leak(heard), releases(agent, curvature)       the coefficients of the privacy recursion
    magnitudes(agent, agents)                     how large its numbers get: needed to deploy it

and has the rest from here: a state that is the model, one draw of noise per message field, rates
from the fields that are annotated as schedules. `finish`, `draw`, `draws`, `rates`, `init`,
`predict` and `shown` are for those that need more.

`send(draws, state, batch, rates)` is the one place where noise goes in, between `prepare` and
`finish`: a simulation adds the draws in floating point, a deployed agent the noise of a lattice
(deploy/privatize.py). What comes out of `finish` is all that ever leaves an agent.

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
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay._parts import (
    Inbox,
    Keys,
    Message,
    Noise,
    Private,
    State,
    as_noise,
    noise_fields,
    noise_rates,
    per_agent_rates,
    rates_type,
    relative_scales,
    schedule_fields,
)
from hearsay.graphs import Graph
from hearsay.graphs.channels import channel
from hearsay.graphs.secrets import Secrets
from hearsay.mechanisms import MECHANISMS, Mechanism
from hearsay.mechanisms.factorized.kinds import Factorization
from hearsay.mechanisms.factorized.stream import COINS, draw_rounds, stream_key
from hearsay.privacy.account import Account, Assumption
from hearsay.privacy.coalitions import Shared
from hearsay.privacy.description import Adversary
from hearsay.privacy.float64 import Magnitudes
from hearsay.privacy.recursion import Release
from hearsay.problems.losses.domains import Domain
from hearsay.problems.sampling.samplers import Sampling
from hearsay.problems.task import Task
from hearsay.schedules import Schedule, nonnegative

if TYPE_CHECKING:
    from hearsay.algorithms.theory.findings import Finding

__all__ = [
    "Algorithm",
    "Inbox",
    "Keys",
    "Magnitudes",
    "Message",
    "Noise",
    "Private",
    "State",
    "noise_fields",
    "noise_rates",
    "per_agent_rates",
    "schedule_fields",
]


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """What all algorithms share.

    A concrete class is final. It may be built under another name, with other defaults, by a
    function (a preset, such as baselines/dola.py), which `presets` lists.

    Args:
      name: what certificates, reports and configurations call it.
      step: the step size.
      noise: the scale of the noise, one schedule for all agents or one for each.
      mechanism: the distribution of the noise.
      sampling: which records a step uses.
      average: read out an average of the agent's own past models: like them it never leaves
        the agent.
      secrets: Gaussian noise that pairs of agents share and that cancels in the sum over all.
    """

    # Message field -> the matrix it travels over: "coupling", "mixing", "pushing", "average".
    channels: ClassVar[Mapping[str, str]] = {"params": "coupling"}
    # The type of a message, with the fields of `channels`.
    message: ClassVar[type] = Message
    # Fields of draws and messages that are drawn from [0, 1] without looking at the data and may
    # be known to anybody: who is awake, which coordinates are kept, which way to round.
    coins: ClassVar[tuple[str, ...]] = ()
    # The kinds of key that `draw` needs: "own", and, where it says so, "pairs" (one for each
    # neighbour) and "public" (one for all).
    keys: ClassVar[tuple[str, ...]] = ("own",)
    # Message k carries the noise of step k - delay. It is 1 where a step's noisy gradient is sent
    # with the next message, so that the first message is public and has no noise.
    delay: ClassVar[int] = 0
    # False: the gradient is taken at a point that the transcript determines.
    gradient_at_state: ClassVar[bool] = True
    # True: besides, nothing private is carried on, so that every message is a function of the
    # transcript and of its own step's batch. Secret batches then cost less
    # (privacy/sampled.py).
    amplifies: ClassVar[bool] = False
    # Whom its budgets protect against, and what they rest on beside the facts of the problem.
    adversary: ClassVar[Adversary] = Adversary()
    assumptions: ClassVar[tuple[Assumption, ...]] = ()
    # What an agent's messages show is made of everybody's: its neighbours' would add nothing.
    shows_all: ClassVar[bool] = False
    # Why noise that pairs of agents share would not cancel in what it makes of messages.
    no_secrets: ClassVar[str] = ""
    # Why no configuration has a budget, whatever its noise.
    uncertified: ClassVar[str] = ""
    # Why agents do not arrive at the optimum even without noise, if they do not.
    inexact: ClassVar[str] = ""
    # What `leak`, `releases`, `own_accounts`, `paper_epsilon` and `magnitudes` look up of an agent
    # beside its records, its noise and its entry in fields that are tuples of one per agent: sums
    # of weights, "heard" (which `leak` is given), "pushed", "handed_out", or () for nothing. Agents
    # for whom all of it is the same are certified once (certification/kinds.py). None: the methods
    # may ask for more, and every agent is certified by itself. A subclass does not inherit it.
    agent_facts: ClassVar[tuple[str, ...] | None] = None
    # Names under which functions build it -> the options that such a name stands for.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    # The laws of noise that the algorithm can run with, and those that its paper's budget is about.
    mechanisms: ClassVar[tuple[str, ...]] = tuple(MECHANISMS)
    paper_mechanisms: ClassVar[tuple[str, ...]] = ()

    name: str
    step: Schedule
    noise: Noise
    mechanism: str
    sampling: Sampling
    average: bool = False
    secrets: Secrets | None = None

    def __new__(cls, *args: Any, **options: Any) -> Algorithm:
        """Options that are unknown are answered with those that there are; __init__ takes them."""
        # Copying and unpickling give none.
        if args or options:
            taken = require.signature(cls.__init__)
            require.bound_arguments(cls.__name__, taken, (cls, *args), options)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Schedules from what people write; a subclass calls this before its own checks."""
        noises = noise_fields(type(self))
        rules = {n: as_noise if n in noises else nonnegative for n in schedule_fields(type(self))}
        require.settle(self, **rules)
        require.flag("average", self.average)
        require.one_of("mechanism", self.mechanism, self.mechanisms)
        if not isinstance(self.sampling, Sampling):
            require.fail("sampling", "a sampler such as hearsay.History()", self.sampling)
        if self.secrets is not None:
            self._require_secrets()
        usual: Any = type(self).__dataclass_fields__["name"].default
        require.one_of("name", self.name, (usual, *self.presets))
        for option, fixed in self.presets.get(self.name, {}).items():
            if (given := getattr(self, option)) != fixed:
                text = [str(g) for g in given] if isinstance(given, tuple) else str(given)
                require.fail(option, f"left out for {self.name}, where it is {fixed}", text)

    def _require_secrets(self) -> None:
        require.instance("secrets", self.secrets, Secrets, "hearsay.Secrets(colluders=...)")
        if self.no_secrets:
            require.fail("secrets", f"left out for {self.name}: {self.no_secrets}", self.secrets)
        if not self.law.shares:
            require.fail(
                "secrets",
                f"left out with {self.mechanism} noise: only sums of Gaussian noise are of the same"
                " law, which the proof rests on (mechanism = gaussian)",
                self.secrets,
            )

    # What one agent does.

    def init(self, params: jax.Array) -> Any:
        """The state of an agent that starts at the public model `params`."""
        return State(params)

    def draw(self, key: Any, params: jax.Array) -> Any:
        """The randomness of one step, before its scale is known: for every message field the noise
        in a field of the same name, and whatever coins `finish` needs. It must depend on nothing
        but the key and the shape and type of `params`. Where `keys` declares more than an agent's
        own, `key` is a `Keys`.
        """
        return self.message(*(self.fresh_noise(key, params, i) for i in range(len(self.channels))))

    @abstractmethod
    def prepare(self, state: Any, batch: Any, rates: Any) -> tuple[Any, Any]:
        """(message of `Private` fields, state): the value that is to go out in each field, and the
        scale of the noise that it gets. It adds no noise itself. `batch.gradient(params)` is the
        mean gradient of the step's records (problems/sampling/), for messages that hold gradients.
        """

    def finish(self, noised: Any, draws: Any, state: Any) -> tuple[Any, Any]:
        """(message, state): what is done to a message once it is noised (rounding, sleeping). It
        must not use anything private: the state is there to be carried on, not to be sent.
        """
        return noised, state

    @abstractmethod
    def update(
        self, state: Any, sent: Any, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> Any:
        """The next state, from what the agent sent and what it heard. Pure: no draw, no schedule
        but through `rates`. Everything that `leak` and `releases` take to be on the transcript
        must come from `sent` and `inbox` here.
        """

    def predict(self, state: Any) -> jax.Array:
        """The model that an agent reads out for itself; it never leaves the agent."""
        return state.params

    def shown(self, model: Any, sent: Any, inbox: Inbox, rates: Any, domain: Domain) -> jax.Array:
        """The model that an agent's messages show once a round is over: what it may release, and
        what averages over rounds are taken of (release/readouts.py).

        It must be a function of `sent` and `inbox` (what `update` gets: bytes that have left, and
        bytes that were heard), of public numbers and of what was shown before; there is no state
        among its arguments, because nothing private may enter.

        Args:
          model: what was shown before; None where this method is the one here, which needs none.
        """
        return sent.params

    @property
    def shows(self) -> bool:
        """Its messages show a model: a field `params`, or a `shown` of its own."""
        return "params" in self.channels or self.remembers

    @property
    def remembers(self) -> bool:
        """What a round shows may depend on what was shown before it."""
        return type(self).shown is not Algorithm.shown

    def rates(self, steps: np.ndarray, agents: int) -> Any:
        """A NamedTuple of arrays (time, agent), float64, of which `prepare` and `update` receive
        one step and agent at a time: here all fields that are schedules. One that is written by
        hand must hold the noise scales under the names of their fields.
        """
        names = schedule_fields(type(self))
        laws = (per_agent_rates(getattr(self, name), steps, agents) for name in names)
        return rates_type(type(self))._make(laws)

    def coin(self, draws: Any) -> Any:
        """The public coin from which channels take the weights of a round (graphs/channels.py),
        out of anybody's draws: it must come from the public key. None: weights stay as they are.
        """
        return None

    def relays(self, graph: Graph) -> np.ndarray:
        """The phases of a round after its message, (phase, 2): in each, everybody passes on v,
        which the message was at first, and goes on with first * (v averaged over the channel) -
        second * (v of the phase before). What `update` sees is the last v, as sent and as heard.
        Nothing is drawn and no record is used: what is passed on follows from messages that were
        sent (algorithms/averaging.py).
        """
        return np.empty((0, 2))

    # Noise that is correlated over rounds.

    @property
    def factors(self) -> Factorization | None:
        """Its factorization; None where every message's noise is its own."""
        return None

    def draws(self, key: Any, steps: jax.Array, params: jax.Array, constants: Any) -> Any:
        """`draw` for several steps in a row, with a leading axis. Noise that is correlated over
        rounds (`factors`) takes the place of a field's own: message k has row k - `delay` of it.
        """
        keys = key if isinstance(key, Keys) else Keys(key)
        factored = self.factors is not None
        coins = keys._replace(own=stream_key(keys.own, COINS)) if factored else keys
        found = jax.vmap(lambda step: self.draw(coins.at(step).given, params))(steps)
        if not factored:
            return found
        noise = {
            name: self._rows(constants, stream_key(keys.own, field), steps, params)
            for field, name in enumerate(self.channels)
            if name not in self.coins
        }
        return found._replace(**noise)

    def _rows(self, constants: Any, key: Any, steps: jax.Array, params: jax.Array) -> jax.Array:
        """The correlated noise of those messages; none before the first row."""
        if not self.delay:
            return draw_rounds(constants, key, steps, params.shape, params.dtype)
        rows = steps - self.delay
        drawn = draw_rounds(constants, key, jnp.maximum(rows, 0), params.shape, params.dtype)
        return jnp.where((rows >= 0).reshape(-1, *(1 for _ in params.shape)), drawn, 0)

    def constants(self, dtype: Any) -> Any:
        """Arrays that `draws` needs and that are too large to compile in."""
        return () if self.factors is None else self.factors.device_rows(dtype)

    @property
    def rounds(self) -> float:
        """How many messages an agent can send at all."""
        return math.inf

    # What the privacy engine needs.

    @abstractmethod
    def leak(self, heard: float) -> Schedule:
        """1 - a_k: how much of the private state a step replaces by what the transcript says, for
        an agent that hears with weights of sum `heard`. It must be affine in `heard`: what lies
        between hearing all and hearing nobody is then covered by the two ends (recursion.py).
        """

    @abstractmethod
    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        """How far each message field moves, given that gradients react to the state with a
        curvature in that interval: one for every field that is not a coin.
        """

    @property
    def step_size(self) -> Schedule:
        """What the recursion multiplies a gradient by."""
        return self.step

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        """How large the numbers of that agent's `update` get (privacy/float64.py). There is no
        default: what is not declared cannot be counted, so it cannot be deployed.
        """
        raise ValueError(
            f"{self.name} must declare its magnitudes to be deployed (Algorithm.magnitudes): what"
            " the rounding of its updates costs follows from them"
        )

    def own_accounts(self, graph: Graph, agent: int, problem: Task) -> tuple[Account, ...] | None:
        """Every true bound on this agent's messages, for an algorithm with a proof of its own;
        None: they are those of the recursion (certification/).
        """
        return None

    # What the source paper says.

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Task, horizon: int, delta: float | None = None
    ) -> float | None:
        """The source paper's own budget formula, or None where it gives none."""
        return None

    def theory(self, graph: Graph, problem: Task) -> list[Finding]:
        """The source paper's conditions and rates for this configuration,
        on a loss of known curvature.
        """
        return []

    def check(self, graph: Graph, problem: Task) -> None:
        """Raise ValueError for what cannot be run; a subclass adds its own conditions."""
        require.instance(
            "problem", problem, Task, "a problem such as hearsay.problems.logistic(...)"
        )
        require.instance(
            "graph",
            graph,
            Graph,
            "a graph such as hearsay.graphs.ring(5), or from_networkx(...) of one",
        )
        graph.require_agents(problem.agents)
        for one in map(channel, self.channels.values()):
            if graph.lossy and not one.may_skip:
                raise ValueError(
                    f"{self.name} cannot do without a message (policy skip): {one.needs_all}"
                )
        self.sampling.check(problem.counts)
        if self.secrets is not None:
            self.secrets.check(graph.agents)
            self.shared(graph.agents)
        for name in noise_fields(type(self)):
            if isinstance(law := getattr(self, name), tuple) and len(law) != graph.agents:
                require.fail(
                    name,
                    f"one schedule, or one for each of the {graph.agents} agents",
                    f"{len(law)} schedules",
                )

    # What follows from the above.

    @property
    def options(self) -> dict[str, Any]:
        """What the builder of that name takes, with the values it has here."""
        fixed = {"name", *self.presets.get(self.name, {})}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in fixed}

    def send(self, draws: Any, state: Any, batch: Any, rates: Any) -> tuple[Any, Any]:
        """(message, state): a field's noise is in the field of the draws that has its name."""
        fields, state = self.prepare(state, batch, rates)
        noised = (
            self.law.add(f.value, getattr(draws, name), f.scale)
            for name, f in fields._asdict().items()
        )
        return self.finish(type(fields)(*noised), draws, state)

    def noise_for(self, agent: int, field: str = "noise") -> Schedule:
        """The scale of that agent's noise, from the field that holds it."""
        law = getattr(self, field)
        return law[agent] if isinstance(law, tuple) else law

    def shared(self, agents: int) -> Shared | None:
        """Who shares what noise in a network of so many agents, in units of the agents' own; None
        without secrets.
        """
        if self.secrets is None:
            return None
        found = {relative_scales(name, getattr(self, name)) for name in noise_fields(type(self))}
        if len(found) > 1:
            raise ValueError(
                "with secrets the agents' noise must be in the same proportion in every message"
                f" field, and is not in {', '.join(noise_fields(type(self)))}"
            )
        scales, factors = found.pop(), self.noise_weights(agents)
        if np.any(factors != factors[0]):
            scales = tuple((np.broadcast_to(scales, agents) * factors / factors[0]).tolist())
        return self.secrets.shared(agents, scales)

    def noise_weights(self, agents: int) -> np.ndarray:
        """By what each agent's noise is multiplied on its way into a message, up to a common
        factor: what pairs share is in proportion to the noise of messages.
        """
        return np.ones(agents)

    def facing(self, colluders: int, agents: int) -> Algorithm:
        """The same algorithm and noise, with budgets stated for that many colluders.

        Args:
          colluders: of the other agents.
          agents: how many there are.
        """
        if self.secrets is None:
            require.fail(
                "colluders",
                "left out without secrets: the budget then holds against all other agents",
                colluders,
            )
        return replace(self, secrets=self.secrets.facing(colluders, agents))

    def with_noise(self, factors: Sequence[float]) -> Algorithm:
        """The same algorithm with all noise scales of agent i multiplied by factors[i]."""
        factors = require.each(require.nonnegative)("factors", factors)
        found: dict[str, Any] = {}
        for name in noise_fields(type(self)):
            # Agents with the same noise and factor share a schedule.
            known: dict[tuple[Schedule, float], Schedule] = {}
            pairs = ((self.noise_for(i, name), factor) for i, factor in enumerate(factors))
            scaled = tuple(
                known[pair] if pair in known else known.setdefault(pair, pair[0].scaled(pair[1]))
                for pair in pairs
            )
            found[name] = scaled[0] if len(set(scaled)) == 1 else scaled
        return replace(self, **found)

    @property
    def law(self) -> Mechanism:
        """The mechanism, and all that follows from its law."""
        return MECHANISMS[self.mechanism]

    @property
    def in_paper(self) -> bool:
        """The source paper's budget formula is about this law of noise."""
        return self.mechanism in self.paper_mechanisms

    def fresh_noise(self, key: jax.Array, params: jax.Array, field: int = 0) -> jax.Array:
        """Noise of scale 1 for one message field, from the step's key and the field's place."""
        return self.law.draw(jax.random.fold_in(key, field), params.shape, params.dtype)
