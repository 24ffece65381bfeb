"""Every number that anybody can give, in every type of number there is: what is computed from it is
what is computed from the plain float of the same value.

Parameters are found, not listed: all fields of all public dataclasses and all arguments of all
public functions that are annotated as numbers. A new field or argument of a known class or function
is tested at once; a new class or function makes `test_nothing_is_left_out` fail until it has an
example here.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
import re
import warnings
from decimal import Decimal
from fractions import Fraction

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from scipy import sparse

import hearsay as hs
from hearsay import _validate as require
from hearsay import graphs, problems
from hearsay.algorithms.averaging import chebyshev_weights
from hearsay.certification import accounts, certifying, describing, spending
from hearsay.config import Config
from hearsay.graphs.halo import Blocks
from hearsay.mechanisms import (
    MECHANISMS,
    amplification,
    convert,
    lattice,
    opposed,
    rounding,
    shared_rounding,
)
from hearsay.mechanisms.factorized import kinds
from hearsay.planning import plan
from hearsay.privacy import (
    FactorizedAccount,
    account,
    adjacency,
    coalitions,
    curve,
    description,
    float64,
    participation,
    sampled,
)
from hearsay.privacy.certificate import AgentBudget, Lifetime
from hearsay.problems import task
from hearsay.problems.data import datasets, images, partition
from hearsay.problems.data.holdings import Facts
from hearsay.problems.losses import domains, linear, per_record
from hearsay.problems.sampling import samplers
from hearsay.release.readouts import Exponential, Tail
from hearsay.schedules import Arrived, Product, Quotient, Schedule, Share
from hearsay.simulation import regret
from hearsay.simulation.promise import promise

# The name in the package is the function.
certificates = importlib.import_module("hearsay.certification")

# The types, each with a value that its own arithmetic gets wrong: doubled it overflows, or it is
# not the decimal that was typed.
KINDS = {
    "int8": (np.int8, 100),
    "uint8": (np.uint8, 200),
    "int16": (np.int16, 30_000),
    "int32": (np.int32, 2_000_000_000),
    "float16": (np.float16, 0.1),
    "float32": (np.float32, 0.1),
    "longdouble": (np.longdouble, 0.1),
    "array": (np.array, 0.3),
    "int8 array": (lambda v: np.array(int(v), np.int8), 100),
    "jax array": (jnp.asarray, 0.3),
    "jax int8": (lambda v: jnp.asarray(int(v), jnp.int8), 100),
    "int": (int, 7),
    "Fraction": (lambda v: Fraction(v).limit_denominator(1000), 1 / 3),
    "Decimal": (lambda v: Decimal(str(v)), 0.1),
}
REFUSED = (
    True,
    np.True_,
    np.array(True),
    "1",
    b"1",
    1j,
    np.complex64(1),
    np.timedelta64(1, "s"),
    np.array([1.0]),
    math.nan,
    object(),
)
NUMBER = re.compile(r"(?:float|int|None|Rule|[\s|])+")
SCHEDULE = re.compile(r"(?:Schedule|Noise|None|[\s|])+")


def plain(given):
    """The same value as Python's own number."""
    whole = isinstance(given, int) or getattr(getattr(given, "dtype", None), "kind", "") in (
        "i",
        "u",
    )
    return int(given) if whole else float(given)


def values(base, kind):
    """Of that type: the value that a parameter has now, and the one that is awkward."""
    make, awkward = KINDS[kind]
    found = [make(awkward)]
    if (
        isinstance(base, (int, float))
        and not isinstance(base, bool)
        and math.isfinite(base)
        and abs(base) <= 100
    ):
        unsigned = base < 0 and kind == "uint8"
        found += [] if unsigned else [make(base)]
    return found


def outcome(call):
    try:
        return call(), None
    except (TypeError, ValueError) as error:
        return None, error


def same(one, two) -> bool:
    if dataclasses.is_dataclass(one):
        names = [f.name for f in dataclasses.fields(one)]
        return type(one) is type(two) and all(same(getattr(one, n), getattr(two, n)) for n in names)
    if sparse.issparse(one):
        return same(one.toarray(), two.toarray())
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    if hasattr(one, "shape"):
        return one.dtype == two.dtype and np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
    if callable(one) and not isinstance(one, Schedule):
        return True
    return one == two or (one != one and two != two)


def numbers_are_plain(value) -> bool:
    """No number of NumPy's or JAX's anywhere inside."""
    if dataclasses.is_dataclass(value):
        return all(numbers_are_plain(getattr(value, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, (list, tuple)):
        return all(map(numbers_are_plain, value))
    return not hasattr(value, "dtype") or value.ndim > 0


def hold(name, build, base, kind):
    """`build(value)` is the same for a value of that type as for the plain number,
    or it names the parameter in refusing the type.
    """
    for given in values(base, kind):
        expected, wrong = outcome(lambda given=given: build(plain(given)))
        found, refused = outcome(lambda given=given: build(given))
        if wrong is not None and refused is not None:
            # `replace` may trip over another field first, so the words are not compared.
            assert type(refused) in (TypeError, ValueError)
        elif refused is not None:
            assert re.search(rf"\b{re.escape(name)}\b.* must be a (whole )?number", str(refused)), (
                given,
                refused,
            )
        else:
            assert wrong is None, (name, given, wrong)
            assert same(found, expected), (name, given, found, expected)


def public(skipped=r"hearsay\.(cli|report|experiments|deploy|_validate)"):
    for module in pkgutil.walk_packages(hs.__path__, "hearsay."):
        if re.match(skipped, module.name):
            continue
        for name, item in vars(importlib.import_module(module.name)).items():
            if not name.startswith("_") and getattr(item, "__module__", None) == module.name:
                yield item


def parameters(item) -> dict[str, str]:
    """The numbers (or schedules) that it takes, with their annotations."""
    if inspect.isclass(item):
        found = {f.name: str(f.type) for f in dataclasses.fields(item) if f.init}
    else:
        named = [
            p for p in inspect.signature(item).parameters.values() if p.kind is not p.VAR_KEYWORD
        ]
        found = {p.name: str(p.annotation) for p in named}
    return {
        n: a
        for n, a in found.items()
        if a != "None" and (NUMBER.fullmatch(a) or SCHEDULE.fullmatch(a))
    }


CLASSES = [
    c for c in public() if inspect.isclass(c) and dataclasses.is_dataclass(c) and parameters(c)
]
FUNCTIONS = [f for f in public() if inspect.isfunction(f) and parameters(f)]

GRAPH = graphs.ring(3)
FEATURES, LABELS = np.linspace(-1, 1, 60).reshape(30, 2), np.arange(30.0) % 2
DATA = datasets.from_arrays(FEATURES, LABELS, feature_bound=2.0, test_fraction=0.2)
PROBLEM = problems.logistic(DATA, agents=3, clip=0.5)
IMAGES = images.from_records(np.zeros((40, 4, 4, 1), np.uint8), np.arange(40) % 2)
FACTS = Facts("custom", (2,), PROBLEM.counts, 2.0, 1.0)
SCHEMA = hs.Schema({"x": hs.Number(0, 2), "y": hs.Category(["a", "b"])}, "y")
IMAGE_FACTS = Facts("custom", (4, 4, 1), PROBLEM.counts, classes=2, bytes=True)
NETWORK = problems.neural(IMAGES, model="mlp", agents=3)
ACCOUNT = accounts(hs.ldp_online(), PROBLEM, GRAPH, 0)[0]
MEMORYLESS_ACCOUNT = accounts(hs.gradient_perturbation(sampling=hs.Subset(2)), PROBLEM, GRAPH, 0)[0]
FACTORIZED = FactorizedAccount(
    kinds.factorization("toeplitz", 5), 0.3, 2.0, participation.Periodic(2), 3, "basis", (), 2
)
CORRELATED = hs.gradient_perturbation(
    correlation="banded",
    width=3,
    horizon=6,
    noise=1.0,
    mechanism="gaussian",
    sampling=hs.Cyclic(2),
)
SECRET = hs.gradient_perturbation(mechanism="gaussian", noise=1.0, secrets=hs.Secrets(1))
ONLINE = hs.federated_independent(horizon=4, sampling=hs.Fresh(2), noise=1.0)
BUDGET = AgentBudget(0, 1.0, "basis", "pattern", "dominated", 2.0, 0.5, 0.1, delta=0.1)
EXAMPLES = [
    *(cls() for cls in hs.REGISTRY.values()),
    hs.correlated_federated(factorization="banded", width=3),
    CORRELATED,
    hs.weighted_erm(weights=(1.0, 2.0)),
    hs.Constant(0.3),
    hs.PowerLaw(0.3, -0.7, 2.0),
    hs.Geometric(0.3, 0.9),
    hs.Number(-200.0, 300.0, 2.0),
    Share(0.3, hs.Constant(4.0), 20.0),
    Product(hs.Constant(0.3), hs.Constant(4.0)),
    Quotient(hs.Constant(0.3), hs.Constant(4.0)),
    hs.gradient_perturbation().magnitudes(0, 3),
    hs.SampleSize(hs.Constant(3.0)),
    Blocks(50, 3),
    Tail(0.3),
    Exponential(0.9),
    hs.Fresh(2),
    hs.Cyclic(2),
    hs.Subset(2),
    hs.Poisson(0.3, 5),
    hs.Resample(2),
    samplers.Arrivals(2, 3, 16),
    domains.Ball(3.0),
    domains.Box(-1.0, 2.0),
    task.Declared(0.3),
    PROBLEM.task,
    PROBLEM,
    DATA,
    IMAGES,
    NETWORK.loss,
    NETWORK.loss.model,
    linear.Logistic(1.5, 0.1, 1.0, 0.5),
    linear.Squared(1.5, 0.1, 2.0, 0.5),
    linear.HalfSquared(1.5, 0.1, 2.0, 0.5),
    linear.PolynomialLogistic(1.5, 0.1, 1.0, margin_bound=3.0),
    problems.Softmax(1.5, 3, 0.1, 0.5),
    *(
        kinds.factorization(n, 6, **({"bands": 3} if n == "banded" else {}))
        for n in kinds.FACTORIZATIONS
    ),
    account.Bound(1.0, 3, 0.5),
    FACTORIZED,
    describing.rounded(hs.ldp_online(), PROBLEM, GRAPH, 0, 3.0),
    float64.Magnitudes(
        step=hs.Constant(0.5),
        coupling=hs.Constant(1.0),
        tracking=hs.Constant(0.0),
        resolution=0.1,
    ),
    Arrived(3, 2),
    Product(hs.Constant(0.5), hs.Constant(2.0)),
    Quotient(hs.Constant(0.5), hs.Constant(2.0)),
    participation.Sampled(0.3),
    participation.Periodic(3),
    participation.Rolling(hs.Constant(2.0), 9),
    ACCOUNT,
    sampled.PoissonAccount(MEMORYLESS_ACCOUNT, 20, 0.3, 9),
    sampled.SubsetAccount(MEMORYLESS_ACCOUNT, 20, 3),
    ACCOUNT.recursion,
    ACCOUNT.releases[0],
    BUDGET,
    hs.Certificate("a", 5, "laplace", (BUDGET,), 0.1),
    Lifetime(0.5, 1.5, 0.1, ("one",), 3, 2, 4.5),
    curve.Colluding(1, 0.5, "exact"),
    description.Adversary(colluders=1),
    description.Description(FACTORIZED, adversary=description.Adversary(colluders=1), gain=1.5),
    hs.Secrets(2, 0.5, "random", 4, 1),
    hs.Costs(0.1, 1e6, 0.2, per_record=0.1, server=5.0, patience=0.5, seed=1),
    hs.Faults(
        loss=0.2,
        burst=3.0,
        asleep=0.1,
        nap=10.0,
        stragglers=0.1,
        late=0.5,
        churn=0.1,
        away=20.0,
        seed=1,
    ),
    coalitions.Shared(5, (0.3,), ((0, 1), (1, 2)), (0.5, 1.0, 1.0, 1.0, 2.0)),
]
# What functions return and nobody gives; a model that is traced, and the abstract parents
# of the above.
RESULTS = {
    # What devices make of a graph.
    "LocalEdges",
    # What a rehearsal has tried and found.
    "Situation",
    "Choice",
    "Kind",
    "Scores",
    "Rehearsal",
    "Asked",
    "Single",
    "Column",
    "Exchange",
    "Count",
    "Counted",
    "Colluded",
    "Delivery",
    "Candidate",
    "Frontier",
    "Point",
    "Setting",
    "Promise",
    "ReleasedModel",
    "Stored",
    "AgentAudit",
    "Audit",
    "Claim",
    "DataFile",
    "Found",
    "OneRun",
    "Plan",
    "Prefix",
    "Reconstruction",
    "Regret",
    "Residuals",
    "Run",
    "Searched",
    "Sweep",
    "Test",
    "Thrown",
}
PARENTS = {
    "WithEmpty",
    "SampledAccount",
    "Algorithm",
    "AveragedGradient",
    "NoisyAverage",
    "NoisyGradient",
    "Tracking",
    "Factorization",
    "LinearLoss",
    "Sampling",
    "Sized",
    "Conv",
    "Factored",
    "GroupNorm",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: type(e).__name__)
def test_fields(example):
    for name, annotation in parameters(type(example)).items():
        base = getattr(example, name)
        for kind in KINDS:
            hold(
                name,
                lambda value, name=name: dataclasses.replace(example, **{name: value}),
                base,
                kind,
            )
            for given in values(base, kind):
                found, _ = outcome(
                    lambda given=given, name=name: dataclasses.replace(example, **{name: given})
                )
                if found is not None:
                    stored = getattr(found, name)
                    assert numbers_are_plain(stored), (name, kind, stored)
                    assert type(stored) in (int, float) or SCHEDULE.fullmatch(annotation), (
                        name,
                        kind,
                        stored,
                    )
        for bad in REFUSED:
            # Schedules may be written so.
            text = isinstance(bad, str) and SCHEDULE.fullmatch(annotation)
            if (
                text
                or ("Noise" in annotation and np.ndim(bad))
                or (name == "paper_epsilon" and bad is math.nan)
            ):
                continue
            with pytest.raises((TypeError, ValueError), match=r"must be|needs"):
                dataclasses.replace(example, **{name: bad})


DIRECTED = nx.cycle_graph(3, create_using=nx.DiGraph)
COMMON = {"algorithm": hs.ldp_online(), "problem": PROBLEM, "graph": GRAPH}
CALLS = {
    hs.dola: {},
    hs.federated_independent: {"horizon": 20},
    hs.federated_noiseless: {"horizon": 20},
    chebyshev_weights: {"modulus": 0.5, "rounds": 3},
    hs.scheme_s1: {"horizon": 20},
    hs.scheme_s2: {"horizon": 20},
    certificates.certify: {**COMMON, "horizon": 8, "delta": 0.1},
    certificates.calibrate: {**COMMON, "horizon": 8, "epsilon": 1.0, "delta": 0.1},
    certificates.budget_by_horizon: {
        "make": lambda h: hs.scheme_s1(h),
        **COMMON,
        "horizons": [3, 5],
        "delta": 0.1,
    },
    certificates.epsilon_after: {**COMMON, "messages": [3], "delta": 0.1},
    spending.epsilon_by_kind: {**COMMON, "messages": [3], "delta": 0.1},
    certificates.allowance: {"algorithm": hs.ternary_dsgd(), "budget": [1.0], "delta": 0.1},
    certificates.messages_within: {**COMMON, "horizon": 8, "budget": [0.1, 0.1, 0.1], "delta": 0.1},
    certificates.best_account: {**COMMON, "agent": 1, "horizon": 8},
    certificates.amplified: {**COMMON, "agent": 1},
    certificates.spent_after: {**COMMON, "messages": [3]},
    certificates.deployed: {**COMMON, "messages": 8, "delta": 0.1},
    certificates.accounts: {**COMMON, "agent": 1},
    describing.own_accounts: {**COMMON, "agent": 1},
    describing.own_amplified: {**COMMON, "agent": 1},
    describing.gain: {"algorithm": SECRET, "graph": GRAPH, "agent": 1},
    certificates.describe: {**COMMON, "agent": 1, "horizon": 8},
    certifying.describe_deployed: {**COMMON, "agent": 1, "messages": 8},
    certifying.deployed_numbers: {**COMMON, "messages": 8, "delta": 0.1},
    shared_rounding.totals_bits: {"pairs": 10, "degree": 4},
    describing.message_bound: {**COMMON, "messages": 8},
    describing.rounded: {**COMMON, "agent": 1, "heard": 3.0},
    account.most_messages: {"affordable": lambda messages: messages < 5, "most": 8},
    account.marked: {"messages": 8, "most": 3},
    description.numbers: {
        "description": certifying.describe_deployed(**COMMON, agent=0, messages=8),
        "horizon": 8,
        "delta": 0.1,
    },
    description.spending: {
        "description": certifying.describe_deployed(**COMMON, agent=0, messages=8),
        "messages": 8,
        "delta": 0.1,
    },
    float64.shifts: {
        "float64": describing.rounded(hs.ldp_online(), PROBLEM, GRAPH, 0, 3.0),
        "recursion": ACCOUNT.recursion,
        "releases": ACCOUNT.releases,
        "mechanism": ACCOUNT.mechanism,
        "dimension": 3,
        "messages": 8,
    },
    plan: {**COMMON, "horizon": 8, "epsilon": 1.0, "delta": 0.1, "samples": 100},
    graphs.from_networkx: {"graph": DIRECTED, "weight": 0.3},
    **{b: {"agents": 5, "weight": 0.1} for b in graphs.BUILDERS.values()},
    graphs.edges: {"agents": 3, "edges": [[0, 1], [1, 2]], "weight": 0.2},
    graphs.random: {"agents": 6, "weight": 0.1, "degree": 3, "seed": 1},
    lattice.grid: {"scale": 0.3},
    lattice.quantize: {"value": np.ones(2), "grid": 0.5},
    lattice.rounding_sensitivity: {"grid": 0.5, "dimension": 3, "norm": "l2"},
    convert.laplace_epsilon: {"parameters": np.full((2, 3), 0.1), "delta": 0.1},
    convert.gaussian_epsilon: {"rho": 0.5, "delta": 0.1},
    certificates.limit_in_words: {"algorithm": hs.ldp_online(), "limit": 0.5, "delta": 0.1},
    amplification.amplified_pure: {"pure": np.full(3, 0.3), "rate": 0.1},
    amplification.subset_epsilon: {
        "law": MECHANISMS["gaussian"],
        "shifts": np.full(3, 0.3),
        "held": 20,
        "size": 3,
        "delta": 0.1,
    },
    opposed.opposed_pure: {"shift": np.full(3, 0.3), "other": 0.1, "rate": 0.1},
    adjacency.implied: {"epsilon": 0.5, "delta": 0.1},
    coalitions.planned_ratio: {"agents": 7, "colluders": 2},
    sampled.overflow: {"held": 20, "rate": 0.3, "slots": 9},
    rounding.with_slack: {
        "curve": lambda delta: -math.log(delta) / 9,
        "delta": 0.1,
        "numbers": 5,
        "otherwise": 3.0,
        "distance": 0.001,
    },
    kinds.factorization: {"name": "tree", "rounds": 6},
    ACCOUNT.prices: {"horizon": 8, "terminal": 0.5},
    ACCOUNT.curve: {"horizon": 8},
    ACCOUNT.message_costs: {"horizon": 8},
    ACCOUNT.spent: {"messages": [3, 8]},
    ACCOUNT.cost: {"horizon": 8},
    FACTORIZED.spent: {"messages": [1, 8]},
    FACTORIZED.cost: {"horizon": 5},
    float64.message_bound: {
        "reach": 1.0,
        "gradient": 2.0,
        "noise": 0.5,
        "resolution": 0.1,
        "agents": 3,
        "messages": 8,
    },
    float64.update_error: {
        "float64": describing.rounded(hs.ldp_online(), PROBLEM, GRAPH, 0, 3.0),
        "dimension": 3,
    },
    float64.step_errors: {
        "float64": describing.rounded(hs.ldp_online(), PROBLEM, GRAPH, 0, 3.0),
        "dimension": 3,
        "rounds": 8,
    },
    rounding.laplace: {"epsilon": 0.5, "numbers": 8},
    rounding.gaussian: {"rho": 0.5, "numbers": 8},
    rounding.ternary: {"delta": 0.1, "numbers": 8},
    rounding.factorized: {
        "rho": 0.5,
        "factorization": kinds.factorization("tree", 6),
        "dimension": 3,
    },
    rounding.curve_slack: {"coordinates": 8, "epsilon": 0.5},
    rounding.gaussian_epsilon: {"rho": 0.5, "delta": 0.1, "numbers": 8},
    rounding.laplace_epsilon: {"parameters": np.full((2, 3), 0.1), "delta": 0.1, "numbers": 8},
    datasets.load: {"name": "digits", "seed": 1, "test_fraction": 0.3},
    datasets.from_arrays: {
        "features": FEATURES,
        "labels": LABELS,
        "feature_bound": 0.5,
        "label_bound": 0.5,
        "test_fraction": 0.2,
        "seed": 1,
    },
    datasets.linear_stream: {
        "records": 9,
        "dimension": 2,
        "noise": 0.1,
        "seed": 1,
        "feature_bound": 0.7,
        "label_bound": 0.5,
        "test_records": 3,
    },
    datasets.shorten: {"features": FEATURES, "bound": 0.5},
    images.from_records: {
        "features": np.zeros((9, 2), np.uint8),
        "labels": np.arange(9) % 2,
        "classes": 2,
    },
    linear.polynomial: {"loss": linear.Logistic(1.0), "domain": domains.Ball(2.0), "dimension": 2},
    **{
        r: {"labels": LABELS, "agents": 3}
        for r in (partition.iid, partition.by_label, partition.half_by_label)
    },
    partition.dirichlet: {"labels": LABELS, "agents": 3, "alpha": 9.0},
    partition.dominant: {"labels": LABELS, "agents": 3, "share": 0.4},
    partition.partition: {"rule": "iid", "labels": LABELS, "agents": 3, "seed": 1},
    per_record.fitting_microbatch: {"bytes_per_record": 10, "available_bytes": 99},
    datasets.in_order: {
        "features": FEATURES,
        "labels": LABELS,
        "feature_bound": 2.0,
        "label_bound": 1.0,
    },
    images.in_order: {
        "features": np.zeros((40, 4, 4, 1), np.uint8),
        "labels": np.arange(40) % 2,
        "classes": 2,
    },
    problems.logistic_task: {"data": FACTS, "clip": 0.5},
    problems.softmax_task: {"data": FACTS, "clip": 0.5},
    problems.ridge_task: {"data": FACTS, "clip": 0.5},
    problems.neural_task: {"data": IMAGE_FACTS, "model": "mlp"},
    problems.tabular_task: {
        "data": problems.table_facts(SCHEMA, PROBLEM.counts),
        "clip": 0.5,
        "ridge": 0.1,
        "radius": 3.0,
        "head_start": 1,
    },
    problems.tabular: {
        "data": [{"x": [0, 1], "y": ["a", "b"]}] * 3,
        "schema": SCHEMA,
        "agents": 3,
        "clip": 0.5,
        "ridge": 0.1,
        "radius": 3.0,
        "head_start": 1,
        "seed": 1,
    },
    problems.logistic: {
        "data": DATA,
        "agents": 3,
        "ridge": 0.1,
        "per_step": 2,
        "head_start": 1,
        "radius": 3.0,
        "clip": 0.5,
        "seed": 1,
    },
    problems.softmax: {
        "data": [(FEATURES, LABELS)] * 3,
        "classes": 3,
        "feature_bound": 2.0,
        "ridge": 0.1,
        "per_step": 2,
        "head_start": 1,
        "radius": 3.0,
        "clip": 0.5,
        "seed": 1,
    },
    problems.ridge: {
        "agents": 3,
        "ridge": 0.1,
        "per_step": 2,
        "head_start": 1,
        "radius": 3.0,
        "clip": 0.5,
        "dimension": 2,
        "records": 20,
        "seed": 1,
    },
    problems.estimation: {
        "agents": 3,
        "target": 0.5,
        "noise": 0.3,
        "change": 0.4,
        "feature_bound": 0.5,
        "radius": 3.0,
        "seed": 1,
    },
    problems.synthetic: {
        "agents": 2,
        "records": 9,
        "dimension": 2,
        "clip": 0.5,
        "feature_bound": 0.5,
        "radius": 3.0,
        "seed": 1,
    },
    problems.neural: {
        "data": IMAGES,
        "model": "mlp",
        "agents": 3,
        "records": 20,
        "test_records": 5,
        "microbatch": 2,
    },
    regret.comparators: {
        "problem": problems.synthetic(agents=2, records=9, dimension=2),
        "rounds": 2,
        "local_steps": 2,
    },
    promise: {**COMMON, "steps": 4, "budget": 1.0, "delta": 0.1},
    hs.simulate: {
        **COMMON,
        "steps": 4,
        "every": 2,
        "budget": 1.0,
        "delta": 0.1,
        "spread": 0.5,
        "reference": False,
        "regret": False,
    },
}
# The types differ in nothing but time there.
COSTLY = (
    hs.simulate,
    problems.neural,
    problems.neural_task,
    datasets.load,
    regret.comparators,
    amplification.subset_epsilon,
)
# Large counts are refused late, or would be followed: what is awkward about them is left
# to the others.
SMALL = {
    "agents",
    "records",
    "dimension",
    "test_records",
    "rounds",
    "local_steps",
    "steps",
    "horizon",
    "horizons",
    "messages",
    "degree",
    "head_start",
    "numbers",
    "coordinates",
}
# They work on traced values inside compiled programs, on shapes, or on what a public function has
# checked before; or they draw and are tested where they are.
INTERNAL = {
    "hearsay.estimators.arrays",
    "hearsay.estimators.fitting",
    "hearsay.problems.losses.hosts",
    "hearsay.problems.losses.torch_clipping",
    "hearsay.tradeoff.advice",
    "hearsay.tradeoff.arriving",
    "hearsay.tradeoff.choices",
    "hearsay.tradeoff.contest",
    "hearsay.tradeoff.made_up",
    "hearsay.tradeoff.settled",
    "hearsay.tradeoff.trial",
    "hearsay.audit.coalitions",
    "hearsay.audit.collecting",
    "hearsay.audit.shared_noise",
    "hearsay.audit.likelihood",
    "hearsay.audit.matching",
    "hearsay.audit.noise_tests",
    "hearsay.audit.standard_form",
    "hearsay.simulation.clock",
    "hearsay.simulation.delivery",
    "hearsay.simulation.fault_rules",
    "hearsay.simulation.engine",
    "hearsay.simulation.layout",
    "hearsay.simulation.sharded",
    "hearsay.simulation.keys",
    "hearsay.simulation.metrics",
    "hearsay.simulation.own_unit",
    "hearsay.simulation.shared",
    "hearsay.mechanisms.factorized.stream",
    "hearsay.mechanisms.words",
    "hearsay.mechanisms.factorized.fit",
    "hearsay.mechanisms.factorized.leading",
    "hearsay.certification.colluding",
    "hearsay.privacy.coalition_balls",
    "hearsay.privacy.coalition_prices",
    "hearsay.privacy.tails",
    "hearsay.release.predicting",
    "hearsay.algorithms.correlation",
    "hearsay.problems.losses.factors",
    "hearsay.problems.losses.layers",
    "hearsay.problems.losses.models",
    "hearsay.problems.losses.per_record",
    "hearsay.schedules",
    "hearsay.base",
    "hearsay._parts",
    "hearsay.simulation.program",
    # What `frontier` hands on.
    "hearsay.tradeoff.measuring",
    "hearsay.tradeoff.points",
    "hearsay.tradeoff.rehearsal",
    "hearsay.tradeoff.rule",
    "hearsay.tradeoff.series",
    "hearsay.tradeoff.sharing",
    "hearsay.tradeoff.sizes",
    "hearsay.tradeoff.weighing",
}
ALSO_INTERNAL = {
    # Of a lattice (as many numbers as are asked for); of an audit; of a certificate.
    "shared_noise",
    "noised_shared",
    "among",
    # What `rehearse` and a run hand on.
    "by_themselves",
    "assumptions",
    # What `simulate` hands on, and what a configuration has read.
    "failing",
    "fulfil",
    "named_algorithm",
    "backward",
    "with_noise_draws",
    "allowed_steps",
    "minima",
    "released",
    "online_regret",
    "as_seeds",
    "exp_bounds",
    # Of an account of secret batches, which has seen to its numbers.
    "read",
    "opposed_deltas",
    "opposed_losses",
    "subset_losses",
    "connected",
    "loss",
    "discrete_laplace",
    "discrete_gaussian",
    "ternary",
    "noised",
}


@pytest.mark.parametrize("function", CALLS, ids=lambda f: f.__name__)
def test_arguments(function):
    base = CALLS[function]
    seeded = (
        partition.iid,
        partition.by_label,
        partition.half_by_label,
        partition.dirichlet,
        partition.dominant,
    )
    if function is certificates.budget_by_horizon:
        base = {**base, "problem": PROBLEM}
        base.pop("algorithm")
    wanted = {n: a for n, a in parameters(function).items() if NUMBER.fullmatch(a)}
    for name in wanted:
        default = inspect.signature(function).parameters[name].default
        value = base.get(name, None if default is inspect.Parameter.empty else default)

        def call(given, name=name):
            extra = {"rng": np.random.default_rng(0)} if function in seeded else {}
            result = function(**{**base, name: given}, **extra)
            return (result.models, result.certificate) if function is hs.simulate else result

        for kind in ("int8", "float32") if function in COSTLY else KINDS:
            if name in SMALL and values(None, kind)[0] >= 1000:
                continue
            hold(name, call, value, kind)
        for bad in REFUSED[:2] if function in COSTLY else REFUSED:
            word = isinstance(bad, str) and "Rule" in wanted[name]  # a rule for weights
            if word or (name == "rho" and bad is math.nan and function is convert.gaussian_epsilon):
                continue  # an undefined rho is no budget
            with pytest.raises((TypeError, ValueError), match=r"must be|needs"):
                call(bad)


def test_nothing_is_left_out():
    classes = (
        {c.__name__ for c in CLASSES} - {type(e).__name__ for e in EXAMPLES} - RESULTS - PARENTS
    )
    assert not classes, "give each an example in EXAMPLES"
    plainly = [
        f for f in FUNCTIONS if not set(parameters(f)) <= getattr(f, "plain_arguments", set())
    ]
    missing = {
        f"{f.__module__}.{f.__name__}"
        for f in plainly
        if f not in CALLS
        and not f.__module__.startswith(tuple(INTERNAL))
        and f.__name__ not in ALSO_INTERNAL
    }
    assert not missing, (
        "give each a call in CALLS, or let require.plain_arguments see to its numbers"
    )


def test_numbers_that_no_float_can_hold():
    for huge in (10**400, Fraction(10**400), np.longdouble("1e400"), Decimal("1e400")):
        with pytest.raises(ValueError, match="clip must be"):
            linear.Logistic(1.0, clip=huge)
    assert hs.Constant(2**53 + 1).value == 2.0**53
    assert hs.Constant(np.float16(0.1)).value == 0.0999755859375
    for bad in (Decimal("sNaN"), np.ma.masked):
        with (
            warnings.catch_warnings(),
            pytest.raises((TypeError, ValueError), match="value must be"),
        ):
            warnings.simplefilter("ignore")
            hs.Constant(bad)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.float16, np.float32, np.longdouble, bool, object]
)
def test_arrays_are_widened_before_anything_is_computed_from_them(dtype):
    whole = np.array([[0, 1], [1, 1], [1, 0], [0, 1]] * 5)
    given, wide = whole.astype(dtype), whole.astype(dtype).astype(np.float64)
    labels = np.arange(20) % 2
    for data in (
        datasets.from_arrays(given, labels.astype(dtype), feature_bound=1.2),
        datasets.Dataset(
            "d", given, labels.astype(dtype), given, labels.astype(dtype), 2.0, 1.0, "declared", ""
        ),
    ):
        assert {
            a.dtype for a in (data.features, data.labels, data.test_features, data.test_labels)
        } == {np.dtype(float)}
    one = dataclasses.replace(
        PROBLEM,
        records=PROBLEM.records._replace(
            features=np.stack([given] * 3),
            labels=np.stack([labels.astype(dtype)] * 3),
            held=np.array([20] * 3, np.int8),
        ),
        counts=np.array([20] * 3, np.int8),
    )
    assert one.features.dtype == one.labels.dtype == np.float64 and one.counts.dtype == np.int64
    assert same(one.features[0], wide)
    matrix = (np.ones((3, 3)) - np.eye(3)).astype(dtype)
    for built in (
        graphs.from_weights(matrix),
        graphs.Graph(sparse.csr_array(matrix.astype(float)).astype(bool)),
    ):
        assert built.weights.dtype == np.float64 and built.row_sums.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="features must be an array of real numbers"):
        datasets.from_arrays(given.astype(complex), labels, feature_bound=1.0)
    with pytest.raises(ValueError, match="labels must be an array of real numbers"):
        datasets.from_arrays(wide, labels.astype(str), feature_bound=1.0)
    with pytest.raises(ValueError, match="weights must be an array of real numbers"):
        graphs.from_weights(matrix.astype(complex))


def test_sums_of_narrow_weights():
    """Nine weights of 1/8 + 1/1024 add up to more than 1; in float16 they would not all count."""
    matrix = np.full((10, 10), 0.125 + 2**-10, np.float16)
    with pytest.raises(ValueError, match="doubly stochastic"):
        graphs.from_mixing(sparse.csr_array(matrix.astype(np.float32)))
    given = nx.complete_graph(3)
    nx.set_edge_attributes(given, np.uint8(200), "weight")
    assert graphs.from_networkx(given, "given").row_sums.tolist() == [400.0] * 3
    nx.set_edge_attributes(given, "heavy", "weight")
    with pytest.raises(TypeError, match="weight of the edge from 0 to 1 must be a number"):
        graphs.from_networkx(given, "given")


def test_lists_of_numbers():
    noise = [np.int8(100), np.float16(0.1), Fraction(1, 3)]
    algorithm = hs.dsgd(noise=noise)
    assert algorithm == hs.dsgd(noise=[100.0, 0.0999755859375, 1 / 3]) and numbers_are_plain(
        algorithm
    )
    assert numbers_are_plain(algorithm.with_noise(np.array([2, 3, 4], np.float32)))
    assert numbers_are_plain(hs.weighted_erm(weights=np.array([1, 2], np.int8)))
    targets = hs.calibrate(algorithm, PROBLEM, GRAPH, np.int8(8), np.array([1, 2, 3], np.uint8))
    assert targets == hs.calibrate(algorithm, PROBLEM, GRAPH, 8, [1.0, 2.0, 3.0])
    config = Config(
        privacy={"epsilon": np.array([1, 2], np.int8), "delta": np.float32(0.1)},
        run={"seeds": np.array([1, 2]), "steps": np.int8(9)},
    )
    assert (
        config.privacy["epsilon"] == [1.0, 2.0]
        and type(config.delta) is float
        and config.seeds == [1, 2]
    )
    assert type(config.steps) is int


# What was reported: each of these certified less than an attack takes.


def test_a_narrow_clip():
    certified = [
        hs.certify(
            hs.ldp_online(noise=1.0), problems.logistic(DATA, agents=3, clip=clip), GRAPH, 20
        ).epsilon
        for clip in (np.int8(100), 100.0)
    ]
    assert certified[0] == certified[1] and min(certified[0]) > 1


@pytest.mark.parametrize("bound", [np.uint8(255), np.float16(255), np.int16(255)])
def test_narrow_bounds(bound):
    def boxed(high):
        return dataclasses.replace(
            PROBLEM, loss=linear.Squared(2.0), domain=domains.Box(np.int8(-3), high)
        )

    def ridge(size):
        data = datasets.from_arrays(FEATURES, LABELS, feature_bound=size, label_bound=size)
        return problems.ridge(data, agents=3, radius=size)

    def estimation(size):
        return problems.estimation(agents=3, change=size, feature_bound=size, radius=size)

    for build in (boxed, ridge, estimation):
        assert build(bound).change == build(255.0).change >= 255


@pytest.mark.parametrize("name", ["feature_bound", "label_bound", "clip", "radius"])
@pytest.mark.parametrize("value", [1e-160, 1e-40, 1e-31, 1e31, 1e300])
def test_bounds_whose_squares_would_be_lost_are_refused(name, value):
    with pytest.raises(
        ValueError,
        match=rf"{name} must be between 1e-30 and 1e\+30 .*, got {re.escape(repr(value))}",
    ):
        if name in ("feature_bound", "label_bound"):
            datasets.from_arrays(FEATURES, LABELS, **{"feature_bound": 1.0, name: value})
        else:
            problems.logistic(DATA, agents=3, **{name: value})


@pytest.mark.parametrize("bound", [1e-30, 1e-3, 1.0, 1e30])
@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e-31, 1.0, 1e200, 1.7e308])
def test_nothing_is_longer_than_its_bound(bound, size):
    """Lengths by way of whole-number ratios, which neither vanish nor overflow:
    after shortening no row is longer, and short rows are as they were.
    """
    rows = size * np.array([[1.0, -0.7, 0.3], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1e-3, 1e-9]])
    limit = Fraction(bound) ** 2

    def squared(row):
        return sum(Fraction(float(x)) ** 2 for x in row)

    device = np.stack([np.asarray(domains.shortened(jnp.asarray(row), bound)) for row in rows])
    for found, slack in (
        (datasets.shorten(rows, bound), 0),
        (domains.shortened(rows, bound), 2**-50),
        (device, 2**-50),
    ):
        for before, after in zip(rows, found, strict=True):
            # A compiled program may flush numbers below 2e-308 to zero.
            assert squared(after) <= limit * (1 + Fraction(slack))
            assert squared(before) > limit or np.allclose(after, before, rtol=0, atol=2.3e-308)
            if squared(before) > limit:
                assert squared(after) >= limit * (1 - Fraction(1, 10**12))


def test_a_clip_holds_for_tiny_and_huge_records():
    rng = np.random.default_rng(0)
    for clip in (1e-30, 1e-3, 1e30):
        loss = linear.Squared(math.inf, 0.0, math.inf, clip)
        for size in 10.0 ** np.array([-300, -200, -100, -31, 0, 31, 100, 140]):
            features, labels = size * rng.normal(size=(20, 3)), rng.normal(size=20) / size
            residual = loss.clipped_residual(features @ np.ones(3), labels, features)
            length = [
                abs(Fraction(float(r))) ** 2 * sum(Fraction(float(x)) ** 2 for x in f)
                for r, f in zip(residual, features, strict=True)
            ]
            assert max(length) <= Fraction(clip) ** 2 * (1 + Fraction(1, 2**48))


def test_no_sensitivity_is_zero_and_no_budget_negative():
    for bad in (0, -1.0, math.nan, np.int8(-5)):
        with pytest.raises(ValueError, match="change must be"):
            task.Declared(bad)
        with pytest.raises((ValueError, TypeError), match="epsilon must be"):
            hs.calibrate(hs.ldp_online(), PROBLEM, GRAPH, 5, bad)

        @dataclasses.dataclass(frozen=True)
        class Wrong(linear.Logistic):
            def change(self, domain, dimension, bad=bad):
                return bad

        with pytest.raises(ValueError, match="the loss's change must be"):
            hs.certify(
                hs.ldp_online(), dataclasses.replace(PROBLEM, loss=Wrong(10.0, clip=1.0)), GRAPH, 5
            )
    for name in ("epsilon", "rho", "epsilon_at_delta", "delta"):
        for bad in (-0.1, math.nan):
            with pytest.raises(ValueError, match=f"{name} must be"):
                dataclasses.replace(BUDGET, **{name: bad})
    certificate = hs.certify(hs.ldp_online(), PROBLEM, GRAPH, 5)
    assert hs.Certificate.from_json(certificate.to_json()) == certificate
    for written in ("-1.0", '"nan"'):
        with pytest.raises(ValueError, match="epsilon must be"):
            hs.Certificate.from_json(
                re.sub(
                    r'"epsilon": [0-9.e+-]+',
                    f'"epsilon": {written}',
                    certificate.to_json(),
                    count=1,
                )
            )
    for moved in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="moved must be"):
            dataclasses.replace(FACTORIZED, moved=moved)
    with pytest.raises(ValueError, match="parameters must be zero or positive"):
        convert.laplace_epsilon(np.array([0.1, -0.1]), 0.1)


def test_settle_and_plain_arguments():
    @require.plain_arguments
    def formula(a: float, b: int | None, *, c: tuple[float, ...] = (1.0,), d: str = "") -> tuple:
        return a, b, c, d

    found = formula(np.float16(0.1), np.int8(100), c=[np.float32(0.5), np.int8(3)], d="text")
    assert found == (0.0999755859375, 100, (0.5, 3), "text") and numbers_are_plain(found)
    with pytest.raises(TypeError, match="a must be a number, got 'x'"):
        formula("x", 1)
