"""A wrong argument is answered with those that there are, for whatever people build."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import dataclass, fields

import pytest

import hearsay as hs
from hearsay import _validate as require
from hearsay import graphs, problems
from hearsay.base import Algorithm, State
from hearsay.schedules import Constant

BUILDERS = {
    **hs.REGISTRY,
    **graphs.BUILDERS,
    **problems.PROBLEMS,
    **problems.SAMPLERS,
    **{f"{name}-task": task for name, task in problems.TASKS.items()},
    **{f.__name__: f for f in (hs.simulate, hs.certify, hs.calibrate)},
    **{f.__name__: f for f in (graphs.edges, graphs.pair, graphs.from_weights, graphs.from_mixing)},
    **{f.__name__: f for f in (problems.load, problems.from_arrays, problems.load_images)},
    **{c.__name__: c for c in (hs.Faults, hs.Costs, hs.Secrets, hs.Schema, hs.Number, hs.Category)},
    **{f.__name__: f for f in (hs.budget_by_horizon, hs.frontier, hs.rehearse)},
}


@pytest.mark.parametrize("name", BUILDERS)
def test_an_unknown_argument_is_answered_with_the_known_ones(name):
    known = list(inspect.signature(BUILDERS[name]).parameters)
    if not known:  # a history takes nothing
        with pytest.raises(TypeError, match="takes no arguments, got 'size'"):
            BUILDERS[name](size=1)
        return
    wanted = max(known, key=len)
    wrong = wanted[1:] if wanted[1:] not in known else f"{wanted}x"
    with pytest.raises(TypeError) as error:
        BUILDERS[name](**{wrong: 1})
    said = str(error.value)
    assert said.startswith("argument of ")
    assert f"must be one of {', '.join(known)}, got {wrong!r}" in said
    assert f"did you mean {wanted!r}?" in said or len(wanted) < 5


def test_what_is_missing_too_many_or_said_twice():
    with pytest.raises(TypeError, match=r"agents must be given: ring\(agents, weight\)"):
        hs.graphs.ring()
    with pytest.raises(
        TypeError, match="ring without a name must be at most agents, weight, got 3"
    ):
        hs.graphs.ring(3, 0.3, 1)
    with pytest.raises(
        TypeError, match=r"of Dsgd without a name must be left out .*step=.*, got 1"
    ):
        hs.dsgd(0.5)
    with pytest.raises(TypeError, match="agents must be given once, got it twice in ring"):
        hs.graphs.ring(3, agents=3)
    with pytest.raises(TypeError, match=r"rate must be given: Poisson\(rate, cap\)"):
        hs.Poisson()


@dataclass(frozen=True, kw_only=True)
class Own(Algorithm):
    name: str = "own"
    step: hs.schedules.Schedule = Constant(1.0)
    noise: hs.base.Noise = Constant(1.0)
    mechanism: str = "laplace"
    sampling: hs.problems.sampling.samplers.Sampling = hs.Cyclic()
    coupling: float = 0.3

    def prepare(self, state, batch, rates):
        return state, state

    def update(self, state, sent, inbox, batch, rates, domain):
        return State(state.params)

    def leak(self, heard):
        return Constant(0.0)

    def releases(self, agent, curvature):
        return ()


def test_an_algorithm_of_ones_own_has_it_too():
    with pytest.raises(TypeError, match="argument of Own must be one of .*did you mean 'coupling'"):
        Own(couplng=0.2)
    with pytest.raises(TypeError, match="argument of Own"):
        hs.algorithm(f"{__name__}:Own", couplng=0.2)
    with pytest.raises(TypeError, match="argument of GradientTracking must be one of"):
        hs.scheme_s1(100, couplng=0.2)


def test_algorithms_are_copied_and_their_signatures_kept():
    for build in (hs.dsgd, hs.gradient_tracking):
        one = build(step=0.1)
        assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one) == copy.copy(one)
        assert list(inspect.signature(build).parameters) == [f.name for f in fields(build)]
    assert str(inspect.signature(hs.graphs.star)).startswith("(agents: 'int', weight")
    assert inspect.signature(hs.Cyclic).parameters.keys() == {"size"}


def test_what_goes_wrong_inside_is_not_taken_for_a_wrong_argument():
    def inner():
        raise TypeError("inside() got an unexpected keyword argument 'x'")

    with pytest.raises(TypeError, match=r"^inside\(\) got"):
        require.known_arguments(inner)()


def test_a_name_that_hearsay_does_not_have_is_answered_with_the_nearest():
    with pytest.raises(AttributeError) as error:
        hs.gradient_perturbtion()
    assert error.value.obj is hs  # what Python's suggestion is made from
    assert error.value.name == "gradient_perturbtion"
