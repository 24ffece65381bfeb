"""What an algorithm of one's own sends, held against the noise that its releases declare, before a
run begins.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import hearsay as hs
from hearsay.audit.contract import Broken, subject
from hearsay.simulation import engine
from hearsay.simulation.scales import require_declared

SOURCE = Path(hs.__file__).parents[1] / "examples" / "gossip_package" / "plain_gossip.py"
PROBLEM, GRAPH = hs.problems.ridge(agents=3, records=9, dimension=2), hs.graphs.ring(3, weight=0.3)
SENT = "Private(state.params, rates.noise)"
GRAPHS = "from hearsay.graphs import Graph"
JNP = (GRAPHS, f"import jax\nimport jax.numpy as jnp\n{GRAPHS}")
STATE = """class Counted(NamedTuple):
    params: Any
    k: Any
    heard: Any


@final
"""
# The same with a state that counts its rounds, and keeps what it heard.
COUNTS = (
    ("@final\n", STATE),
    ("import Any, ClassVar, final", "import Any, ClassVar, NamedTuple, final"),
    (
        "    def leak(",
        "    def init(self, params):\n"
        "        return Counted(params, jnp.zeros(()), params)\n\n    def leak(",
    ),
    (
        "return State(domain.project(moved))",
        "return Counted(domain.project(moved), state.k + 1, inbox.total.params)",
    ),
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def kind(tmp_path):
    """The class of the example's file with some of its text replaced."""

    def load(*changes: tuple[str, str]):
        text = SOURCE.read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path = tmp_path / "scaled_gossip.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("scaled_gossip", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["scaled_gossip"] = module  # annotations are looked up there
        spec.loader.exec_module(module)
        return module.PlainGossip

    yield load
    sys.modules.pop("scaled_gossip", None)


def run(algorithm, problem=PROBLEM, graph=GRAPH, steps=8, **options):
    return hs.simulate(
        algorithm, problem, graph, steps=steps, reference=False, regret=False, **options
    )


def test_less_noise_than_is_declared_is_refused_before_the_run(kind):
    half = kind((SENT, "Private(state.params, 0.5 * rates.noise)"))
    words = r"noise of params must be at least the 1.0 that releases .* got 0.5 from prepare"
    with pytest.raises(ValueError, match=words):
        run(half())
    assert len(run(kind((SENT, "Private(state.params, 2 * rates.noise)"))()).models)


def test_the_round_and_the_agent_in_which_it_is_too_little_are_named(kind):
    late = kind((SENT, "Private(state.params, rates.noise * (rates.step > 0.05))"))
    run(late(step="(k+1)^-1"), steps=19)
    with pytest.raises(ValueError, match=r"round 19, agent 0\), got 0\.0"):
        run(late(step="(k+1)^-1"), steps=40)
    single = kind((SENT, "Private(state.params, jnp.minimum(rates.noise, 2.0))"), JNP)
    run(single(noise=[1.0, 2.0, 2.0]))
    with pytest.raises(ValueError, match=r"the 3\.0 that .*agent 1\), got 2\.0"):
        run(single(noise=[1.0, 3.0, 2.0]))


@pytest.mark.parametrize(
    "scale",
    [
        "rates.noise * (1 + jnp.abs(state.params).max())",
        "rates.noise + jnp.linalg.norm(batch.gradient(state.params))",
        "jnp.where(state.params[0] > 0, 2.0, 1.0) * rates.noise",
        "rates.noise * (1 + (state.params[0] > 0).astype(int))",
    ],
)
def test_a_scale_that_shows_something_private_is_refused(kind, scale):
    shows = kind((SENT, f"Private(state.params, {scale})"), JNP)
    with pytest.raises(ValueError, match="of params must follow from rates alone in prepare of"):
        run(shows())


@pytest.mark.parametrize(
    "scale",
    [
        "rates.noise * jnp.ones_like(state.params)",
        "jnp.full_like(state.params, rates.noise)",
        "jax.jit(lambda r, x: (r, x))(rates.noise, state.params)[0]",
        "jax.lax.scan(lambda c, _: (c, state.params), rates.noise, None, length=2)[0]",
    ],
)
def test_a_scale_that_only_has_the_shape_of_it_is_not(kind, scale):
    plain = kind((SENT, f"Private(state.params, {scale})"), JNP)
    run(plain())


def test_parts_of_the_state_that_nothing_private_enters_may_set_it(kind):
    """A counter of rounds, followed for all of them; not what was heard."""
    scaled = "Private(state.params, rates.noise * (1 + 0.1 * (state.k - 5)))"
    growing = kind(*COUNTS, (SENT, scaled), JNP)
    with pytest.raises(ValueError, match=r"1\.0 that .* \(round 0, agent 0\), got 0\.5"):
        run(growing())
    shrinking = kind(
        *COUNTS,
        (SENT, scaled.replace("+ 0.1 * (state.k - 5)", "* (state.k < 5)")),
        JNP,
    )
    run(shrinking(), steps=5)
    with pytest.raises(ValueError, match=r"\(round 5, agent 0\), got 0\.0"):
        run(shrinking(), steps=6)
    heard = kind(*COUNTS, (SENT, "Private(state.params, rates.noise + 0 * state.heard[0])"), JNP)
    with pytest.raises(ValueError, match="must follow from rates alone"):
        run(heard())


@pytest.mark.parametrize("name", hs.REGISTRY)
def test_hearsays_own_send_what_they_declare(name):
    try:
        one = subject(hs.REGISTRY[name]())
    except Broken:
        pytest.skip("it runs on no small problem")
    require_declared(one.algorithm, one.problem, one.graph, 12)


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        (hs.problems.estimation(agents=3), {"sampling": hs.Fresh()}),
        (hs.problems.ridge(agents=3, records=30), {"sampling": hs.Poisson(0.2)}),
        (hs.problems.ridge(agents=3, records=30), {"sampling": hs.History()}),
        (hs.problems.softmax(agents=3), {}),
    ],
)
def test_it_is_held_on_problems_and_samplers_of_every_kind(kind, problem, options):
    half = kind((SENT, "Private(state.params, 0.5 * rates.noise)"))
    require_declared(kind()(**options), problem, GRAPH, 6)
    with pytest.raises(ValueError, match="must be at least"):
        require_declared(half(**options), problem, GRAPH, 6)


def test_nothing_of_it_is_in_the_program_that_runs(kind, monkeypatch):
    """The loop is compiled once, and gives what it gives without the check."""
    found = run(kind()(), steps=6, seeds=2)
    monkeypatch.setattr("hearsay.simulation.promise.require_declared", lambda *given: None)
    before = engine.TRACES["advance"]
    again = run(kind()(), steps=6, seeds=2)
    assert np.array_equal(found.models, again.models)
    assert engine.TRACES["advance"] - before <= 1


def test_many_agents_are_looked_at_column_by_column(kind):
    """Blocks of steps, with a column for each of many agents where their noise differs."""
    agents = 1500
    problem = hs.problems.ridge(agents=agents, records=2, dimension=2)
    graph = hs.graphs.ring(agents, weight=0.3)
    low = kind((SENT, "Private(state.params, jnp.minimum(rates.noise, 2.0))"), JNP)
    noise = [1.0] * agents
    require_declared(low(noise=noise), problem, graph, 2000)
    noise[1234] = 2.5
    with pytest.raises(ValueError, match=r"the 2\.5 .*round 0, agent 1234\), got 2\.0"):
        require_declared(low(noise=noise), problem, graph, 2000)
