"""Whole numbers beyond all sense are refused by name, wherever they are given."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

import hearsay as hs
from hearsay import _validate as require
from hearsay import graphs
from hearsay.cli import commands

HUGE = 10**400
PROBLEM, GRAPH = hs.problems.ridge(agents=3, records=20, dimension=2), hs.graphs.ring(3)
LARGEST = 2**53


@pytest.mark.parametrize("rule", [require.count, require.natural, require.horizon])
def test_the_largest_whole_number_is_exact_as_a_float(rule):
    assert rule("n", LARGEST) == LARGEST
    with pytest.raises(ValueError, match=r"^n must be at most 2\^53, got 9007199254740993$"):
        rule("n", LARGEST + 1)


@pytest.mark.parametrize("digits", [400, 5000])
def test_long_numbers_are_not_written_out(digits):
    with pytest.raises(ValueError, match=f"got a whole number of about {digits} digits$"):
        require.count("n", 10**digits)


@pytest.mark.parametrize("value", [1e20, Decimal("1e500"), np.longdouble("1e4000"), HUGE])
def test_a_finite_horizon_never_means_an_infinite_one(value):
    with pytest.raises(ValueError, match="^horizon must be at most"):
        require.horizon("horizon", value)


def test_infinity_stays_infinite():
    for value in (math.inf, Decimal("inf"), np.float32("inf")):
        assert require.horizon("horizon", value) == math.inf


def test_seeds_may_be_as_long_as_they_like():
    assert hs.problems.ridge(agents=2, records=4, dimension=1, seed=10**30).seed == 10**30


@pytest.mark.parametrize(
    ("name", "call"),
    {
        "horizon": lambda: hs.certify(hs.ldp_online(), PROBLEM, GRAPH, HUGE),
        "horizon, calibrated": lambda: hs.calibrate(
            hs.ldp_online(), PROBLEM, GRAPH, HUGE, epsilon=1.0
        ),
        "head_start": lambda: hs.problems.logistic("digits", head_start=HUGE),
        "agents": lambda: hs.problems.logistic("digits", agents=HUGE),
        "horizon, S1": lambda: hs.scheme_s1(HUGE),
        "horizon, planned": lambda: hs.correlated_federated(horizon=HUGE),
        "steps": lambda: hs.simulate(hs.dsgd(), PROBLEM, GRAPH, steps=HUGE),
    }.items(),
)
def test_huge_numbers_are_refused_by_name(name, call):
    with pytest.raises(ValueError, match=rf"^{name.split(',')[0]} must be at most 2\^53, got"):
        call()


@pytest.mark.parametrize(
    ("name", "call"),
    {
        "horizon": lambda: hs.certify(hs.ldp_online(), PROBLEM, GRAPH, LARGEST),
        "agents": lambda: hs.problems.logistic("digits", agents=LARGEST),
        "dimension": lambda: hs.problems.ridge(agents=2, records=2, dimension=LARGEST),
        "records": lambda: hs.problems.ridge(agents=2, records=2**50, dimension=4),
    }.items(),
)
def test_what_memory_cannot_hold_is_refused_by_name(name, call):
    """64 pebibytes: more than a process can address."""
    rule = "(small enough for the memory|at most about [0-9,]+ in [0-9]+ GiB of memory)"
    with pytest.raises(ValueError, match=f"^{name} must be {rule}"):
        call()


@pytest.mark.parametrize("sampling", [hs.Cyclic(1), hs.Subset(3), hs.Poisson(0.5)])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_messages_that_are_promised_memory_that_is_not_there_are_refused_by_name(
    monkeypatch, sampling, law
):
    """A system that promises more than it has ends the process instead: 10^9 messages took all of
    24 GB.
    """
    algorithm = hs.gradient_perturbation(mechanism=law, sampling=sampling)
    monkeypatch.setattr(require, "_memory", lambda: 2.0**20)
    rule = "^horizon must be at most about 16,000 in 0 GiB of memory, got 16385$"
    with pytest.raises(ValueError, match=rule):
        hs.certify(algorithm, PROBLEM, GRAPH, 2**14 + 1, delta=1e-5)
    assert require.room("horizon", 2**14, lambda n: 64.0 * n) == 2**14


def test_a_system_that_does_not_say_how_much_memory_it_has_refuses_nothing(monkeypatch):
    def unknown(name):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(require.os, "sysconf", unknown, raising=False)
    assert require.room("horizon", 2**53, lambda n: 64.0 * n) == 2**53


@pytest.mark.parametrize("words", [["certify", "dsgd", "--horizon"], ["run", "dsgd", "--steps"]])
def test_commands_name_the_option_too(words, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["hearsay", *words, str(10**21)])
    with pytest.raises(SystemExit) as end:
        commands.main()
    name = words[-1].removeprefix("--")
    assert end.value.code == 2
    assert f"error: {name} must be at most 2^53, got {10**21}" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted({*graphs.BUILDERS} - {"five-agents"}))
def test_graphs_that_no_memory_holds_say_how_many_agents_would_fit(name):
    for agents in (10**12, 2**53):
        with pytest.raises(
            ValueError, match=r"^agents must be at most about [0-9,]+ in [0-9]+ GiB"
        ):
            graphs.BUILDERS[name](agents)
    with pytest.raises(ValueError, match=r"^agents must be at most about"):
        graphs.edges(10**12, [[0, 1]])


def test_seeds_that_no_memory_holds_say_how_many_would_fit():
    with pytest.raises(ValueError, match=r"^seeds must be at most about [0-9,]+ in [0-9]+ GiB"):
        hs.simulate(hs.dsgd(), PROBLEM, GRAPH, steps=2, seeds=10**13)


def test_room_is_what_fits(monkeypatch):
    monkeypatch.setattr(require.os, "sysconf", lambda name: 2**10)  # a megabyte
    assert require.room("n", 1024, lambda n: n * 1024) == 1024
    with pytest.raises(ValueError, match="^n must be at most about 1,000 in 0 GiB .*got 1025"):
        require.room("n", 1025, lambda n: n * 1024)


def test_a_command_that_runs_out_of_memory_says_so(monkeypatch, capsys):
    def full(**_):
        raise MemoryError("Unable to allocate 64 PiB")

    monkeypatch.setattr(commands, "app", full)
    with pytest.raises(SystemExit) as end:
        commands.main()
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said == "error: there is not enough memory for this. Unable to allocate 64 PiB\n"


def test_large_but_sensible_horizons_are_not_refused():
    """Where the account has a closed form, or the horizon is only planned for."""
    assert require.horizon("horizon", 10**9) == 10**9
    assert hs.correlated_federated(horizon=10**9).rounds == 10**9
    assert hs.scheme_s1(10**9).step(0) > 0
