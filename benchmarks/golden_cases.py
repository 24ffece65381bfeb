"""What the golden recording is made of: simulations of every registered algorithm, and networks.

Only public names are used, because these cases must outlive any refactoring of the package.
Problems are small and few: cases of one algorithm, problem and sampler share a compiled program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hearsay as hs
from hearsay.experiments.printed_tracking import PrintedTracking

AGENTS, STEPS, EVERY, DELTA = 5, 60, 20, 1e-5
# Those of the first recording: an algorithm that is new has nothing to be compared with.
ALGORITHMS = (
    "ldp-online",
    "gradient-tracking",
    "output-perturbation",
    "gradient-perturbation",
    "correlated-federated",
    "dsgd",
    "dola",
    "pdop",
    "adp2sgd",
    "sdm-dsgd",
    "ternary-dsgd",
    "quantized-dsgd",
    "weighted-erm",
    "federated-independent",
    "federated-noiseless",
)
FEDERATED = ("correlated-federated", "federated-independent", "federated-noiseless")
RANDOM = ("ldp-online", "gradient-tracking", "gradient-perturbation", "adp2sgd")
GAUSSIAN = ("adp2sgd", "sdm-dsgd", "weighted-erm")


def _digits(**options: Any) -> Any:
    known = hs.problems.load("digits")
    bound = known.feature_bound
    few = hs.problems.from_arrays(known.features[:150], known.labels[:150], feature_bound=bound)
    return hs.problems.logistic(few, agents=AGENTS, **options)


def _network(**options: Any) -> Any:
    """One hidden layer, written as a user would."""
    rng = np.random.default_rng(5)
    records, labels = rng.normal(size=(120, 6)), rng.integers(0, 3, 120)
    params = {
        "in": jnp.asarray(rng.normal(size=(6, 4))),
        "out": jnp.asarray(rng.normal(size=(4, 3))),
    }

    def scores(params: Any, feature: jax.Array) -> jax.Array:
        return jnp.tanh(feature @ params["in"]) @ params["out"]

    def loss(params: Any, record: tuple) -> jax.Array:
        feature, label = record
        return -jax.nn.log_softmax(scores(params, feature))[label.astype(int)]

    model = hs.problems.from_function(loss, params, scores=scores, name="small")
    images = hs.problems.from_records(records, labels)
    return hs.problems.neural(images, model=model, agents=AGENTS, **options)


def _uneven() -> Any:
    arriving = {"head_start": 3, "per_step": 2}
    return _digits(clip=0.5, partition="dominant:0.4", radius=20.0, **arriving)


def _ridge() -> Any:
    return hs.problems.ridge(agents=AGENTS, records=80, dimension=4, radius=3.0, ridge=0.1)


PROBLEMS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: _digits(radius=20.0),
    "clipped": _uneven,
    "polynomial": lambda: _digits(approximate=True, radius=5.0, ridge=0.05),
    "ridge": _ridge,
    "estimation": lambda: hs.problems.estimation(agents=AGENTS, clip=2.0, radius=10.0),
    "declared": lambda: hs.problems.estimation(agents=AGENTS, change=0.2),
    "frozen": lambda: hs.problems.estimation(agents=AGENTS, change=0.2, frozen=True),
    "bounded": lambda: hs.problems.estimation(agents=AGENTS, feature_bound=3.0, radius=10.0),
    "synthetic": lambda: hs.problems.synthetic(agents=AGENTS, records=80, dimension=6),
    "emptied": lambda: _digits(clip=0.5, radius=20.0, adjacency="zero-out"),
    "neural": lambda: _network(clip=1.0),
    "neural-l1": lambda: _network(clip=1.0, norm="l1"),
}
_HOUSE = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [1, 4]]
GRAPHS: dict[str, Callable[[], Any]] = {
    "ring": lambda: hs.graphs.ring(AGENTS),
    "star": lambda: hs.graphs.star(AGENTS),
    "house": lambda: hs.graphs.edges(AGENTS, _HOUSE),
    "exponential": lambda: hs.graphs.exponential(AGENTS),
    "directed-ring": lambda: hs.graphs.directed_ring(AGENTS),
    "random-digraph": lambda: hs.graphs.random_digraph(AGENTS),
    "five-agents": lambda: hs.graphs.five_agents(weight=0.4),
    "pair": lambda: hs.graphs.pair(hs.graphs.directed_ring(AGENTS), hs.graphs.star(AGENTS)),
}


@dataclass(frozen=True)
class Case:
    """The certificates of a configuration, and a simulation of it.

    Args:
      label: what is special about it; with the three names it is the case's key.
      options: the algorithm's own.
      run: further options of `simulate`.
      bits: the precision, 32 or 64.
      runs: simulate it; most of a recording's time is the compilation of such programs.
      endless: also convert an infinite Laplace budget to one at delta, which may take seconds.
    """

    algorithm: str
    problem: str
    graph: str
    label: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    bits: int = 64
    runs: bool = True
    endless: bool = False
    make: Callable[[], Any] | None = None

    @property
    def key(self) -> str:
        kind = "simulate" if self.runs else "certify"
        parts = (kind, self.algorithm, self.problem, self.graph, self.label, str(self.bits))
        return " ".join(part for part in parts if part)

    def build(self) -> Any:
        return self.make() if self.make else hs.REGISTRY[self.algorithm](**self.options)


def cases() -> Iterator[Case]:
    for name in ALGORITHMS:
        yield from _federated(name) if name in FEDERATED else _gossip(name)
    yield from _special()
    yield from _secret()


def _gossip(name: str) -> Iterator[Case]:
    """The same six for every algorithm whose agents talk to their neighbours; for RANDOM ones
    all of them run, one in single precision too."""
    other = "laplace" if name in GAUSSIAN else "gaussian"
    swapped = {} if name == "ternary-dsgd" else {"mechanism": other}
    base = 5.0 if name == "ternary-dsgd" else 0.5
    each = [hs.PowerLaw(base * (1 + 0.25 * i), 0.05 * i) for i in range(AGENTS)]
    often = name in RANDOM
    yield Case(name, "logistic", "ring", "own sampler", endless=name == "ldp-online")
    yield Case(name, "ridge", "star", "history", {"sampling": hs.History(), **swapped})
    growing = hs.Fresh("(k+1)^0.6")
    yield Case(name, "estimation", "exponential", "fresh growing", {"sampling": growing})
    drawn = {"sampling": hs.Subset("(k+1)^0.6"), "average": True, "noise": each}
    yield Case(name, "ridge", "house", "subset, average, noise per agent", drawn, runs=often)
    again = {"sampling": hs.Resample(3), **swapped}
    yield Case(name, "clipped", "ring", "resample", again, runs=False)
    if often:
        yield Case(name, "clipped", "ring", "resample", again, bits=32)
    fresh = {"sampling": hs.Fresh(1)}
    yield Case(name, "synthetic", "star", "fresh", fresh, runs=name == "ldp-online")


def _federated(name: str) -> Iterator[Case]:
    each = [0.5 * (1 + 0.25 * i) for i in range(AGENTS)]
    noise = {} if name == "federated-noiseless" else {"noise": each}
    rounds = {"horizon": STEPS}
    yield Case(name, "logistic", "star", "cyclic", {"sampling": hs.Cyclic(2), **rounds})
    drawn = {"sampling": hs.Subset(3), "average": True, **rounds, **noise}
    yield Case(name, "ridge", "ring", "subset, average, noise per agent", drawn)
    yield Case(name, "synthetic", "directed-ring", "fresh", {"sampling": hs.Fresh(1), **rounds})
    local = {"sampling": hs.Cyclic(2), **rounds}
    yield Case(name, "clipped", "ring", "cyclic", local, runs=False)
    if name == "correlated-federated":
        yield Case(name, "clipped", "ring", "cyclic", local, bits=32)


def _special() -> Iterator[Case]:
    """What one algorithm alone has, and problems and graphs that not every one needs to see."""
    cyclic, subset = hs.Cyclic("(k+1)^0.6"), hs.Subset(4)
    for name in ("ldp-online", "output-perturbation"):
        yield Case(name, "ridge", "ring", "feedback", {"feedback": True, "sampling": cyclic})
    yield Case("ldp-online", "polynomial", "house", "statistics", {}, {"spread": 0.5})
    yield Case("ldp-online", "clipped", "star", "in full", {"mechanism": "gaussian"})
    stopping = {"budget": 64.5, "every": 5}
    yield Case("ldp-online", "ridge", "star", "budget", {"sampling": hs.Fresh(1)}, stopping)
    yield Case("ldp-online", "neural", "ring", "subset", {"sampling": subset})
    yield Case("dsgd", "neural-l1", "star", "subset", {"sampling": subset, "step": 0.05})
    neural = {"sampling": cyclic}
    yield Case("gradient-perturbation", "neural", "house", "cyclic", neural, runs=False)
    local = {"sampling": hs.Cyclic(3), "horizon": STEPS}
    yield Case("correlated-federated", "neural", "ring", "cyclic", local)
    growing = {"sampling": hs.Fresh("(k+1)^0.6")}
    for problem in ("declared", "frozen", "bounded"):
        runs = problem != "bounded"
        yield Case("output-perturbation", problem, "ring", "fresh growing", growing, runs=runs)
    yield Case("gradient-perturbation", "declared", "house", "fresh", growing, runs=False)
    for kind in ("tree", "dense", "blt", "banded", "identity"):
        shaped = {"factorization": kind, "sampling": hs.Cyclic(2), "horizon": STEPS}
        yield Case("correlated-federated", "ridge", "ring", kind, shaped, runs=kind != "identity")
    for graph in ("directed-ring", "random-digraph", "five-agents", "pair"):
        yield Case("gradient-tracking", "ridge", graph)
    printed = partial(PrintedTracking, tracker_noise=0.2)
    yield Case("gradient-tracking", "ridge", "five-agents", "printed", make=printed)
    for number, scheme in enumerate((hs.scheme_s1, hs.scheme_s2), 1):
        label, make = f"scheme {number}", lambda scheme=scheme: scheme(2000)
        yield Case("gradient-tracking", "ridge", "five-agents", label, runs=False, make=make)
    weights = {"weights": [1.0, 2.0, 3.0, 4.0, 5.0]}
    yield Case("weighted-erm", "ridge", "star", "weights", weights)
    yield Case("adp2sgd", "ridge", "star", "always awake", {"activity": 1.0}, runs=False)
    everything = {"keep": 1.0, "coupling": 0.9}
    yield Case("sdm-dsgd", "ridge", "star", "everything kept", everything, runs=False)
    alone = {"noise": None, "resolution": 0.01}
    yield Case("quantized-dsgd", "ridge", "house", "quantization alone", alone, runs=False)
    yield Case("dsgd", "ridge", "house", "no noise", {"noise": None}, runs=False)


def _secret() -> Iterator[Case]:
    """Secret batches, which cost less, and shared secrets."""
    name, gaussian = "gradient-perturbation", {"mechanism": "gaussian"}
    coins, subset = {"sampling": hs.Poisson(0.2)}, {"sampling": hs.Subset(4)}
    for problem in ("emptied", "clipped", "ridge"):
        yield Case(name, problem, "ring", "poisson", {**coins, **gaussian})
        yield Case(name, problem, "ring", "poisson, laplace", coins, runs=False)
        yield Case(name, problem, "ring", "subset", {**subset, **gaussian}, runs=False)
        yield Case(name, problem, "ring", "subset, laplace", subset, runs=False)
    fading = {**coins, **gaussian, "noise": hs.PowerLaw(1.0, 0.1)}
    yield Case(name, "emptied", "star", "poisson, noise that grows", fading, runs=False)
    own = {**coins, **gaussian}
    for sharing in ({"weights": [1.0, 2.0, 3.0, 4.0, 5.0]}, {"secrets": hs.Secrets(colluders=1)}):
        yield Case(
            "weighted-erm", "emptied", "star", f"poisson, {next(iter(sharing))}", own | sharing
        )


def networks() -> dict[str, dict[str, dict[str, Any]]]:
    """The tables of net.toml, by key: every algorithm, and a few of them with other settings."""
    ridge = {"loss": "ridge", "records": 24, "dimension": 4, "radius": 3.0}
    usual = {"problem": ridge, "graph": {"kind": "ring"}, "run": {"steps": 8}}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in ALGORITHMS:
        table: dict[str, Any] = {"name": name}
        if name in FEDERATED:
            table |= {"sampling": "cyclic", "sample_size": 2}
        if name in ("ternary-dsgd", "federated-noiseless", "quantized-dsgd"):
            table["noise"] = 0.0 if name == "federated-noiseless" else 5.0
            found[name] = {**usual, "algorithm": table}
        else:
            found[name] = {**usual, "algorithm": table, "privacy": {"epsilon": 8.0}}
        if name in ("ldp-online", "output-perturbation", "dsgd", "adp2sgd"):
            patient = {"policy": "skip", "patience": 300.0}
            found[f"{name} skip"] = {**found[name], "network": patient}
    directed = {**found["gradient-tracking"], "graph": {"kind": "directed-ring"}}
    noisy = {**usual, "algorithm": {"name": "ldp-online", "mechanism": "gaussian", "noise": 0.5}}
    short = {**usual, "algorithm": {"name": "ldp-online"}}
    short["privacy"] = {"epsilon": 8.0, "delta": DELTA}
    short["run"] = {"steps": 5}
    stopped = {**usual, "algorithm": {"name": "dsgd", "noise": 5.0}, "privacy": {"budget": 4.0}}
    stopped["graph"] = {"kind": "star"}
    secret = {"name": "gradient-perturbation", "mechanism": "gaussian", "sampling": "poisson"}
    emptied = {**ridge, "clip": 0.5, "adjacency": "zero-out"}
    coins = {**short, "problem": emptied, "algorithm": {**secret, "sample_rate": 0.5}}
    return {
        **found,
        "gradient-tracking directed": directed,
        "ldp-online gaussian": noisy,
        "ldp-online at delta": short,
        "dsgd budget": stopped,
        "gradient-perturbation poisson": coins,
    }
