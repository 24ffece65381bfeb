"""Partitions: nobody's row is lost or shared, and each rule gives the split its paper
or docstring states.
"""

from __future__ import annotations

import numpy as np
import pytest

from hearsay.problems.data.partition import by_label, dirichlet, dominant, iid, partition

RULES = ["iid", "by_label", "dirichlet:5", "dominant:0.4"]


def blocks(*counts: int) -> np.ndarray:
    return np.repeat(np.arange(len(counts), dtype=np.float64), counts)


def held(labels: np.ndarray, rows: np.ndarray) -> dict[float, int]:
    values, counts = np.unique(labels[rows], return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("agents", [2, 3, 7])
def test_every_row_is_held_exactly_once(rule, agents):
    labels = blocks(101, 53, 47)
    parts = partition(rule, labels, agents, seed=3)
    assert len(parts) == agents
    assert all(part.size > 0 and np.issubdtype(part.dtype, np.integer) for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(labels.size))


@pytest.mark.parametrize("rule", RULES)
def test_seed_decides_everything(rule):
    labels = blocks(60, 60)
    first, again, other = (partition(rule, labels, 4, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("rule", ["iid", "dirichlet:50", "dominant:0.4"])
def test_streams_mix_the_classes(rule):
    labels = blocks(500, 500)
    for rows in partition(rule, labels, 2, seed=0):
        early, late = (
            np.mean(labels[rows[: rows.size // 2]]),
            np.mean(labels[rows[rows.size // 2 :]]),
        )
        # A class-by-class stream would differ by nearly 1; a shuffled one has deviation about 0.05.
        assert abs(early - late) < 0.3
        assert not np.array_equal(rows, np.sort(rows))


def test_several_labels_at_one_agent_are_mixed_too():
    labels = blocks(200, 200)
    (rows,) = partition("by_label", labels, 1, seed=0)
    assert 0.3 < labels[rows[:100]].mean() < 0.7


def test_nan_labels_are_a_class_and_lose_no_rows():
    labels = np.array([0.0, np.nan, 1.0, np.nan])
    parts = partition("by_label", labels, 2, seed=0)
    assert sorted(np.concatenate(parts).tolist()) == [0, 1, 2, 3]


def test_iid_shares_differ_by_at_most_one():
    sizes = [rows.size for rows in iid(np.zeros(103), 10, np.random.default_rng(0))]
    assert sorted(sizes) == [10] * 7 + [11] * 3


def test_by_label_is_the_split_of_p1():
    labels = blocks(90, 40)
    parts = by_label(labels, 5, np.random.default_rng(0))
    assert [held(labels, rows) for rows in parts] == [{0: 30}] * 3 + [{1: 20}] * 2


def test_by_label_gives_extra_agents_to_the_first_labels():
    labels = blocks(12, 12, 12)
    parts = by_label(labels, 8, np.random.default_rng(0))
    assert [next(iter(held(labels, rows))) for rows in parts] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_by_label_with_fewer_agents_than_labels_groups_labels():
    labels = blocks(4, 5, 6, 7, 8)
    parts = by_label(labels, 2, np.random.default_rng(0))
    assert [held(labels, rows) for rows in parts] == [{0: 4, 1: 5, 2: 6}, {3: 7, 4: 8}]


def test_by_label_uses_label_values_in_order_whatever_the_row_order():
    labels = np.array([7, -1, 7, -1])
    parts = by_label(labels, 2, np.random.default_rng(0))
    assert [sorted(rows.tolist()) for rows in parts] == [[1, 3], [0, 2]]


def test_dominant_counts_for_as_many_agents_as_classes():
    labels = blocks(*[100] * 5)
    parts = dominant(labels, 5, np.random.default_rng(0), share=0.4)
    for agent, rows in enumerate(parts):
        assert held(labels, rows) == {label: 40 if label == agent else 15 for label in range(5)}


def test_dominant_splits_classes_without_an_agent_over_all():
    labels = blocks(100, 100, 90)
    first, second = dominant(labels, 2, np.random.default_rng(0), share=0.4)
    assert held(labels, first) == {0: 40, 1: 60, 2: 45}
    assert held(labels, second) == {0: 60, 1: 40, 2: 45}


def test_dominant_default_share_is_forty_percent():
    labels = blocks(100, 100)
    parts = partition("dominant", labels, 2, seed=0)
    assert held(labels, parts[0]) == {0: 40, 1: 60}


def test_dirichlet_follows_alpha():
    labels = blocks(*[300] * 10)
    spread = {}
    for alpha in (0.1, 1000.0):
        parts = dirichlet(labels, 5, np.random.default_rng(0), alpha)
        counts = np.array(
            [[held(labels, rows).get(label, 0) for label in range(10)] for rows in parts]
        )
        spread[alpha] = counts.std()
    # Even shares of 60 have deviation 60 * sqrt(4 / (5 alpha + 1)), about 2 at alpha = 1000
    # and 98 at 0.1.
    assert spread[1000.0] < 5
    assert spread[0.1] > 60


def test_text_and_keyword_name_the_same_rule():
    labels = blocks(50, 50)
    pairs = [
        ("dirichlet:0.5", "dirichlet", {"alpha": 0.5}),
        ("dominant:0.7", "dominant", {"share": 0.7}),
    ]
    for text, name, options in pairs:
        a, b = partition(text, labels, 2, 0), partition(name, labels, 2, 0, **options)
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("rule", "labels", "agents", "message"),
    [
        ("iid", blocks(1, 1), 4, r"'iid' leaves agents 2, 3 empty"),
        ("by_label", blocks(1, 5), 4, r"'by_label' leaves agent 1 empty"),
        ("dominant:1", blocks(5, 5), 3, r"'dominant:1' leaves agent 2 empty"),
        ("dirichlet:0.0001", blocks(9), 3, r"'dirichlet:0.0001' leaves agents \d, \d empty"),
    ],
)
def test_empty_agents_are_named_with_the_rule(rule, labels, agents, message):
    with pytest.raises(ValueError, match=message):
        partition(rule, labels, agents, seed=0)


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        ("by_labels", {}, "did you mean 'by_label'"),
        ("dirichelt:0.5", {}, "got 'dirichelt'; did you mean 'dirichlet'"),
        ("zzz", {}, "must be one of iid, by_label, dirichlet, dominant, half_by_label, got 'zzz'$"),
        ("iid:3", {}, "'iid' takes no number"),
        ("iid", {"alpha": 1.0}, "'iid' takes no options, got alpha=1.0"),
        ("dominant", {"alpha": 1.0}, "only the option share, got alpha=1.0"),
        ("dirichlet", {}, "needs alpha"),
        ("dirichlet:x", {}, "alpha must be a number, got 'x'"),
        ("dirichlet:1", {"alpha": 1.0}, "alpha must be given once"),
        ("dirichlet:0", {}, "alpha must be positive, got 0.0"),
        ("dirichlet:nan", {}, "alpha must be finite, got nan"),
        ("dominant:1.5", {}, "share must be above 0 and at most 1, got 1.5"),
    ],
)
def test_bad_rules_say_what_is_wrong(rule, options, message):
    with pytest.raises(ValueError, match=message):
        partition(rule, blocks(20, 20), 2, 0, **options)


@pytest.mark.parametrize(
    ("labels", "agents", "seed", "message"),
    [
        (blocks(4), 0, 0, "agents must be at least 1, got 0"),
        (blocks(4), 2.0, 0, "agents must be a whole number, got 2.0"),
        (blocks(4), 1, -1, "seed must be at least 0, got -1"),
        (np.zeros((2, 2)), 1, 0, r"one axis \(records\), got shape \(2, 2\)"),
        (np.zeros(0), 1, 0, "at least one record, got none"),
    ],
)
def test_bad_arguments_are_named(labels, agents, seed, message):
    with pytest.raises((ValueError, TypeError), match=message):
        partition("iid", labels, agents, seed)


def test_dominant_needs_somebody_to_take_the_rest():
    with pytest.raises(ValueError, match="agents must be at least 2 for dominant.*got 1"):
        partition("dominant", blocks(5, 5), 1, 0)


def test_very_many_empty_agents_are_not_all_listed():
    with pytest.raises(ValueError, match="leaves agents 12–99999 empty") as caught:
        iid(blocks(6, 6), 100_000, np.random.default_rng(0))
    assert len(str(caught.value)) < 200
