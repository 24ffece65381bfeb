"""Agents (or seeds) side by side on an accelerator: like `jax.vmap`, but for convolutions.

A network's step is hundreds of short kernels. One agent after the other has all of them as many
times as there are agents, each too small to fill the device; side by side every kernel has all
agents' numbers. So the function is traced for one agent, and its program is gone through line by
line: everything is vectorised as `jax.vmap` does it, but convolutions (convolutions.py) and what
has other lines inside:

- loops whose length is the same for all agents stay loops;
- a branch is taken where all agents agree; where they do not, each agent goes its own way, one
  after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from hearsay.simulation.convolutions import convolved

Values = Sequence[Any]
# Which values are each agent's own, with a leading axis of agents; the others serve all.
Flags = Sequence[bool]
Found = tuple[list[Any], list[bool]]


def side_by_side(function: Callable) -> Callable:
    """The function for all agents: every array of its arguments has a leading axis of them, and
    every array that it returns.
    """

    def run(*args: Any) -> Any:
        leaves = jax.tree.leaves(args)
        agents = len(leaves[0])
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), args)
        program, shapes = jax.make_jaxpr(function, return_shape=True)(*one)
        found, own = _evaluate(program, leaves, [True] * len(leaves), agents)
        every = _spread(found, own, [True] * len(own), agents)
        return jax.tree.unflatten(jax.tree.structure(shapes), every)

    return run


def _spread(values: Values, own: Flags, wanted: Flags, agents: int) -> list[Any]:
    """With an axis of agents wherever one is wanted."""
    return [
        jnp.broadcast_to(value, (agents, *jnp.shape(value))) if want and not mine else value
        for value, mine, want in zip(values, own, wanted, strict=True)
    ]


def _evaluate(program: Any, args: Values, own: Flags, agents: int) -> Found:
    """(what the program returns, which of it is each agent's own)."""
    jaxpr = program.jaxpr if isinstance(program, core.ClosedJaxpr) else program
    consts = program.consts if isinstance(program, core.ClosedJaxpr) else ()
    known: dict[Any, tuple[Any, bool]] = {}
    known.update(zip(jaxpr.constvars, ((value, False) for value in consts), strict=True))
    known.update(zip(jaxpr.invars, zip(args, own, strict=True), strict=True))

    def read(names: Values) -> Found:
        pairs = [(n.val, False) if isinstance(n, core.Literal) else known[n] for n in names]
        return [value for value, _ in pairs], [mine for _, mine in pairs]

    for line in jaxpr.eqns:
        values, mine = read(line.invars)
        rule = RULES.get(line.primitive.name, _plain)
        # Not all functions that are called can be bound again as they are.
        chosen = rule if any(mine) or rule is _called else _plain
        results, flags = chosen(line, values, mine, agents)
        known.update(zip(line.outvars, zip(results, flags, strict=True), strict=True))
    return read(jaxpr.outvars)


def _plain(line: Any, values: Values, own: Flags, agents: int) -> Found:
    """As `jax.vmap` does it."""
    run = partial(line.primitive.bind, **line.params)
    if any(own):
        run = jax.vmap(run, in_axes=tuple(0 if mine else None for mine in own))
    found = run(*values)
    results = list(found) if line.primitive.multiple_results else [found]
    return results, [any(own)] * len(results)


def _convolution(line: Any, values: Values, own: Flags, agents: int) -> Found:
    if not all(own):
        return _plain(line, values, own, agents)
    return [convolved(line, *values)], [True]


def _called(line: Any, values: Values, own: Flags, agents: int) -> Found:
    """A function that is called: its lines."""
    inner = line.params.get("jaxpr") or line.params["call_jaxpr"]
    return _evaluate(inner, values, own, agents)


def _flags_after(program: Any, own: Flags, agents: int) -> list[bool]:
    """Which results are each agent's own if those arguments are."""
    found: list[bool] = []

    def look(*values: Any) -> list[Any]:
        results, found[:] = _evaluate(program, values, own, agents)
        return results

    names = program.jaxpr.invars
    jax.eval_shape(
        look,
        *(
            jax.ShapeDtypeStruct((agents, *n.aval.shape) if mine else n.aval.shape, n.aval.dtype)
            for n, mine in zip(names, own, strict=True)
        ),
    )
    return found


def _settled(after: Callable[[list[bool]], list[bool]], own: Flags) -> list[bool]:
    """Which carried arrays are each agent's own: those that begin so, or become so."""
    now = list(own)
    while (then := [a or b for a, b in zip(now, after(now), strict=True)]) != now:
        now = then
    return now


def _scan(line: Any, values: Values, own: Flags, agents: int) -> Found:
    inner, (fixed, carried) = line.params["jaxpr"], _counts(line.params)
    consts, held = values[:fixed], own[:fixed]
    start, begun = values[fixed : fixed + carried], own[fixed : fixed + carried]
    rows, mine = values[fixed + carried :], own[fixed + carried :]

    def after(now: list[bool]) -> list[bool]:
        return _flags_after(inner, [*held, *now, *mine], agents)

    flags = _settled(lambda now: after(now)[:carried], begun)
    shown = after(flags)[carried:]

    def body(carry: Values, row: Values) -> tuple[list[Any], list[Any]]:
        every = [*held, *flags, *mine]
        found, now = _evaluate(inner, [*consts, *carry, *row], every, agents)
        found = _spread(found, now, [*flags, *shown], agents)
        return found[:carried], found[carried:]

    # Rows have the axis of agents after that of time.
    rows = [jnp.moveaxis(x, 0, 1) if m else x for x, m in zip(rows, mine, strict=True)]
    options = {key: line.params[key] for key in ("length", "reverse", "unroll")}
    end, seen = lax.scan(body, _spread(start, begun, flags, agents), rows, **options)
    seen = [jnp.moveaxis(y, 1, 0) if m else y for y, m in zip(seen, shown, strict=True)]
    return [*end, *seen], [*flags, *shown]


def _counts(params: Any) -> tuple[int, int]:
    """How many constants a scan has, and how many arrays it carries: releases of jax differ in how
    they say it.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carried, _ = params["ft_in"].unpack()
    return len(consts), len(carried)


def _while(line: Any, values: Values, own: Flags, agents: int) -> Found:
    """A loop that ends for all agents at once; any other one is left to `jax.vmap`."""
    first = line.params["cond_nconsts"]
    last = first + line.params["body_nconsts"]
    test, inner = line.params["cond_jaxpr"], line.params["body_jaxpr"]
    asked, consts, start = values[:first], values[first:last], values[last:]
    held, begun = own[first:last], own[last:]
    flags = _settled(lambda now: _flags_after(inner, [*held, *now], agents), begun)
    known = [*own[:first], *flags]
    if _flags_after(test, known, agents)[0]:
        return _plain(line, values, own, agents)

    def goes_on(carry: Values) -> Any:
        return _evaluate(test, [*asked, *carry], known, agents)[0][0]

    def body(carry: Values) -> list[Any]:
        found, now = _evaluate(inner, [*consts, *carry], [*held, *flags], agents)
        return _spread(found, now, flags, agents)

    return lax.while_loop(goes_on, body, _spread(start, begun, flags, agents)), flags


def _cond(line: Any, values: Values, own: Flags, agents: int) -> Found:
    index, rest = values[0], list(values[1:])
    branches, every = line.params["branches"], [True] * len(line.outvars)

    def together(branch: Any, *rest: Any) -> list[Any]:
        found, flags = _evaluate(branch, rest, own[1:], agents)
        return _spread(found, flags, every, agents)

    def alone(one: tuple[Any, list[Any]]) -> list[Any]:
        return lax.switch(one[0], [core.jaxpr_as_fun(branch) for branch in branches], *one[1])

    choices = [partial(together, branch) for branch in branches]
    index = index.astype(jnp.int32)
    if not own[0]:
        return list(lax.switch(index, choices, *rest)), every
    spread = _spread(rest, own[1:], [True] * len(rest), agents)
    found = lax.cond(
        jnp.all(index == index[0]),
        lambda: lax.switch(index[0], choices, *rest),
        lambda: lax.map(alone, (index, spread)),
    )
    return list(found), every


RULES: dict[str, Callable[[Any, Values, Flags, int], Found]] = {
    "conv_general_dilated": _convolution,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    **dict.fromkeys(
        (
            "jit",
            "pjit",
            "closed_call",
            "core_call",
            "checkpoint",
            "custom_jvp_call",
            "custom_vjp_call",
            "custom_vjp_call_jaxpr",
            "eval_jaxpr",
        ),
        _called,
    ),
}
