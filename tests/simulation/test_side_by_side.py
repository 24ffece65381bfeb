"""Agents side by side compute what each of them computes alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hearsay.simulation import convolutions
from hearsay.simulation.side_by_side import side_by_side


def alone(function, *args):
    found = [function(*(x[i] for x in args)) for i in range(len(args[0]))]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *found)


def same(function, *args, rtol=1e-5):
    ours, wanted = jax.jit(side_by_side(function))(*args), alone(function, *args)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max()),
        ours,
        wanted,
    )


def normal(*shape):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


@pytest.mark.parametrize("full", [0, 10**9], ids=["each its own", "patches"])
@pytest.mark.parametrize("side, taps, stride", [(7, 3, 2), (6, 1, 2), (5, 5, 1)])
def test_convolutions_and_their_gradients(monkeypatch, full, side, taps, stride):
    monkeypatch.setattr(convolutions, "FULL", full)

    def both(images, weights):
        def values(images, weights):
            return lax.conv_general_dilated(
                images,
                weights,
                (stride, stride),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )

        out, back = jax.vjp(values, images, weights)
        return out, back(jnp.sin(out))

    images, weights = normal(2, 3, side, side, 3), normal(2, taps, taps, 3, 4)
    same(both, images, weights, rtol=1e-4)
    # Not by way of groups.
    program = str(jax.make_jaxpr(side_by_side(both))(images, weights))
    assert ("conv_general_dilated" in program) == (full == 0)
    assert "feature_group_count=2" not in program


def test_many_agents_take_turns(monkeypatch):
    monkeypatch.setattr(convolutions, "FULL", 0)
    monkeypatch.setattr(convolutions, "COPIES", 1)
    numbers = ("NHWC", "HWIO", "NHWC")
    same(
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers),
        normal(3, 1, 4, 4, 2),
        normal(3, 3, 3, 2, 2),
    )


def test_loops_of_one_length_and_of_the_agents_own():
    rounds = jnp.array([1, 3])

    def function(x, own):
        # The counter and `fixed` are the same for all agents, the total becomes each one's own.
        total = lax.fori_loop(0, 3, lambda i, t: t + i * x, jnp.zeros(()))
        fixed, rows = lax.scan(lambda c, row: (c + 1, row * x + c), 0, jnp.arange(4.0))
        mine = lax.while_loop(lambda c: c[0] < own, lambda c: (c[0] + 1, c[1] * x), (0, x))
        return total, fixed, rows, mine[1]

    same(function, jnp.array([2.0, 5.0]), rounds)


@pytest.mark.parametrize("signs", [[1.0, 2.0], [-1.0, -2.0], [-1.0, 2.0]])
def test_a_branch_is_taken_together_or_by_each_agent(signs):
    def function(x):
        return lax.cond(x > 0, lambda: jnp.sqrt(x), lambda: -x), jax.nn.relu(x)

    same(function, jnp.array(signs))


def test_branches_that_all_agree_on_run_once():
    """`jax.vmap` would run both branches for every agent."""
    text = str(
        jax.make_jaxpr(side_by_side(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x)))(normal(2))
    )
    assert "cond" in text and "select_n" not in text
