"""Who holds which records: rules that split the rows of a data set over agents.

Every rule is a pure function (labels, agents, rng, ...) -> one array of row indices per agent. The
arrays are disjoint and together hold every row; each is in the order in which that agent's stream
delivers its records.

Apart from `iid` the rules read the labels. They build an experiment's starting point and are not
part of any private mechanism: neighbouring data sets differ in one record of one agent, once all
have been partitioned.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.certificate import who

Indices = list[np.ndarray]


def iid(labels: np.ndarray, agents: int, rng: np.random.Generator) -> Indices:
    """Rows dealt out at random, in shares that differ by at most one row."""
    labels, agents = _check(labels, agents)
    return _refuse_empty(np.array_split(rng.permutation(labels.size), agents), "iid")


def by_label(labels: np.ndarray, agents: int, rng: np.random.Generator) -> Indices:
    """Each agent sees as few distinct labels as possible: the hardest split for agreement.

    Agents are given to labels in order, the first labels taking the extra agents (5 agents and 2
    labels: agents 0-2 hold the first label and agents 3-4 the second, as in P1, Section VII-A).
    With fewer agents than labels it is labels that are given to agents, the first agents taking the
    extra labels.
    """
    labels, agents = _check(labels, agents)
    classes = _shuffled_classes(labels, rng)
    held: list[list[np.ndarray]] = [[] for _ in range(agents)]
    if agents >= len(classes):
        for rows, group in zip(
            classes, np.array_split(np.arange(agents), len(classes)), strict=True
        ):
            _deal(rows, group, held)
    else:
        for agent, group in enumerate(np.array_split(np.arange(len(classes)), agents)):
            held[agent] = [classes[label] for label in group]
    return _refuse_empty(_streams(held, rng), "by_label")


def dirichlet(labels: np.ndarray, agents: int, rng: np.random.Generator, alpha: float) -> Indices:
    """Each label's rows split in proportions drawn from a symmetric Dirichlet distribution.

    A large `alpha` is close to `iid`; a small one gives each label to few agents and may leave
    an agent with nothing, which is an error and not redrawn, because redrawing would change the
    distribution.
    """
    labels, agents = _check(labels, agents)
    alpha = require.positive("alpha", alpha)
    held: list[list[np.ndarray]] = [[] for _ in range(agents)]
    for rows in _shuffled_classes(labels, rng):
        shares = np.cumsum(rng.dirichlet(np.full(agents, alpha)))[:-1]
        cuts = np.minimum(np.floor(shares * rows.size).astype(np.intp), rows.size)
        for agent, part in enumerate(np.split(rows, cuts)):
            held[agent].append(part)
    return _refuse_empty(_streams(held, rng), f"dirichlet:{alpha:g}")


def dominant(
    labels: np.ndarray, agents: int, rng: np.random.Generator, share: float = 0.4
) -> Indices:
    """A `share` of class i at agent i, the rest evenly among the other agents (P1, Section VII-B).

    Class i is the i-th label in increasing order. A class with no agent of that index is
    split over all.
    """
    labels, agents = _check(labels, agents)
    share = require.share("share", share)
    if agents < 2:
        raise ValueError(
            f"agents must be at least 2 for dominant, which gives the rest to others, got {agents}"
        )
    held: list[list[np.ndarray]] = [[] for _ in range(agents)]
    everyone = np.arange(agents)
    for index, rows in enumerate(_shuffled_classes(labels, rng)):
        if index >= agents:
            _deal(rows, everyone, held)
            continue
        own = round(share * rows.size)
        held[index].append(rows[:own])
        _deal(rows[own:], everyone[everyone != index], held)
    return _refuse_empty(_streams(held, rng), f"dominant:{share:g}")


def half_by_label(labels: np.ndarray, agents: int, rng: np.random.Generator) -> Indices:
    """Half of all rows dealt out evenly, of the other half all rows of class i at agent i modulo
    agents (P4, Section V-B).
    """
    labels, agents = _check(labels, agents)
    order = rng.permutation(labels.size)
    even, rest = np.split(order, [labels.size // 2])
    held: list[list[np.ndarray]] = [[] for _ in range(agents)]
    _deal(even, np.arange(agents), held)
    for index, label in enumerate(np.unique(labels)):
        held[index % agents].append(rest[labels[rest] == label])
    return _refuse_empty(_streams(held, rng), "half_by_label")


RULES: dict[str, Callable[..., Indices]] = {
    "iid": iid,
    "by_label": by_label,
    "dirichlet": dirichlet,
    "dominant": dominant,
    "half_by_label": half_by_label,
}

_OPTION = {"dirichlet": "alpha", "dominant": "share"}


def partition(rule: str, labels: np.ndarray, agents: int, seed: int, **options: float) -> Indices:
    """Splits rows by a rule named in text: "iid", "by_label", "dirichlet:0.5", "dominant:0.4".

    The number after the colon is `alpha` or `share`, which may be given as a keyword instead.

    Example:
        >>> [rows.size for rows in partition("iid", np.zeros(10), agents=3, seed=0)]
        [4, 3, 3]
    """
    name, colon, value = str(rule).partition(":")
    require.one_of("partition", name, RULES)
    option = _OPTION.get(name)
    for given in options:
        if given != option:
            takes = f"only the option {option}" if option else "no options"
            raise ValueError(f"partition {name!r} takes {takes}, got {given}={options[given]!r}")
    if colon:
        options = {**options, **_number(rule, name, value, option, options)}
    if name == "dirichlet" and not options:
        raise ValueError(f"partition 'dirichlet' needs alpha, as in 'dirichlet:0.5', got {rule!r}")
    # The purpose is part of the seed: other draws from the same user seed must not repeat these.
    rng = np.random.default_rng([require.seed("seed", seed), *b"partition"])
    with require.fits("agents", agents):
        return RULES[name](labels, agents, rng, **options)


def _number(
    rule: str, name: str, value: str, option: str | None, options: dict[str, float]
) -> dict[str, float]:
    if option is None:
        raise ValueError(f"partition {name!r} takes no number, got {rule!r}")
    if option in options:
        raise ValueError(
            f"{option} must be given once, got {rule!r} and {option}={options[option]!r}"
        )
    try:
        return {option: float(value)}
    except ValueError:
        raise ValueError(
            f"{option} must be a number, got {value!r} in partition {rule!r}"
        ) from None


def _check(labels: np.ndarray, agents: int) -> tuple[np.ndarray, int]:
    agents = require.count("agents", agents)
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"labels must have one axis (records), got shape {labels.shape}")
    if labels.size == 0:
        raise ValueError("labels must hold at least one record, got none")
    return labels, agents


def _shuffled_classes(labels: np.ndarray, rng: np.random.Generator) -> Indices:
    values, index = np.unique(labels, return_inverse=True)
    return [rng.permutation(np.flatnonzero(index == label)) for label in range(values.size)]


def _deal(rows: np.ndarray, to: np.ndarray, held: list[list[np.ndarray]]) -> None:
    for agent, part in zip(to, np.array_split(rows, to.size), strict=True):
        held[agent].append(part)


def _streams(held: list[list[np.ndarray]], rng: np.random.Generator) -> Indices:
    # Without this shuffle a stream would deliver one class after the other.
    return [rng.permutation(np.concatenate([np.empty(0, dtype=np.intp), *parts])) for parts in held]


def _refuse_empty(parts: Indices, rule: str) -> Indices:
    empty = [agent for agent, rows in enumerate(parts) if rows.size == 0]
    if empty:
        raise ValueError(
            f"every agent must hold at least one record, but partition {rule!r} leaves"
            f" {who(empty, 0)} empty; use fewer agents, another seed or a milder rule"
        )
    return parts
