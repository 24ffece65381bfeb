"""Schedules: their values, how they are read from what people write,
and upper bounds that really lie above.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearsay.schedules import (
    Constant,
    Geometric,
    PowerLaw,
    SampleSize,
    Schedule,
    Share,
    nonnegative,
    sample_size,
    schedule,
)

STEPS = np.arange(3000)


def test_values_follow_the_formulas():
    for k in (0, 1, 7, 1000):
        assert float(Constant(0.3)(k)) == 0.3
        assert float(PowerLaw(2.0, -0.7)(k)) == pytest.approx(2.0 * (k + 1) ** -0.7)
        assert float(PowerLaw(2.0, -0.7, shift=20.0)(k)) == pytest.approx(2.0 * (k + 20) ** -0.7)
        assert float(Geometric(3.0, 0.9)(k)) == pytest.approx(3.0 * 0.9**k)


@pytest.mark.parametrize(
    "law",
    [
        Constant(2),
        PowerLaw(1, -0.5),
        Geometric(1, 0.9),
        SampleSize(PowerLaw(1, 0.5)),
        Share(1, Constant(4)),
    ],
)
def test_arrays_of_steps_keep_their_shape_and_are_float64(law):
    values = law(np.arange(6).reshape(2, 3))
    assert values.shape == (2, 3)
    assert values.dtype == np.float64
    assert [float(law(k)) for k in range(6)] == values.ravel().tolist()


@pytest.mark.parametrize(
    "law",
    [Constant(2.0), PowerLaw(1.5, -0.5, 3.0), Geometric(2.0, 0.9), Share(2.0, PowerLaw(1, 1))],
)
def test_scaled_multiplies_every_value(law):
    np.testing.assert_allclose(law.scaled(2.5)(STEPS[:50]), 2.5 * law(STEPS[:50]), rtol=1e-15)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (0.5, Constant(0.5)),
        (3, Constant(3.0)),
        ("0.5", Constant(0.5)),
        ("1e-3", Constant(1e-3)),
        ("0.5*(k+1)^-0.9", PowerLaw(0.5, -0.9)),
        ("0.5 * (k + 20)^-0.9", PowerLaw(0.5, -0.9, 20.0)),
        ("2(k+1)**0.1", PowerLaw(2.0, 0.1)),
        ("(k+1)^(-0.5)", PowerLaw(1.0, -0.5)),
        ("1e-2*(k+.5)^1.5e-1", PowerLaw(0.01, 0.15, 0.5)),
        ("0.5*0.98^k", Geometric(0.5, 0.98)),
        ("0.98 ** k", Geometric(1.0, 0.98)),
        ({"value": 2.0}, Constant(2.0)),
        ({"scale": 1.0, "exponent": -0.5}, PowerLaw(1.0, -0.5)),
        ({"scale": 1.0, "exponent": -0.5, "shift": 4.0}, PowerLaw(1.0, -0.5, 4.0)),
        ({"scale": 1.0, "ratio": 0.9}, Geometric(1.0, 0.9)),
        ({"kind": "PowerLaw", "scale": 1.0, "exponent": 0.0}, PowerLaw(1.0, 0.0)),
    ],
)
def test_reading_what_people_write(written, meant):
    assert schedule("step", written) == meant
    assert schedule("step", meant) is meant


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("fast", r"step must be a number, \"c\*\(k\+s\)\^p\" or \"c\*r\^k\", got 'fast'"),
        ("1/(k+1)", "step must be a number"),
        ("k^-1", "step must be a number"),
        ("2*(k+1)^-0.5 + 1", "step must be a number"),
        ("nan", "step must be finite"),
        (math.inf, "step must be finite"),
        (
            {"scale": 1.0, "exponnent": -0.5, "kind": "PowerLaw"},
            "step key must be one of .* did you mean 'exponent'",
        ),
        (
            {"scale": 1.0, "ratio": 0.5, "shift": 2},
            "step key must be one of scale, ratio, got 'shift'",
        ),
        (
            {"kind": "Powerlaw", "scale": 1, "exponent": 1},
            "step.kind must be one of .* did you mean 'PowerLaw'",
        ),
        ({"scale": 1.0, "exponent": -0.5, "shift": 0.0}, "shift must be positive, got 0.0"),
        ({"scale": 1.0, "ratio": -0.5}, "ratio must be positive"),
        ({"scale": math.nan, "exponent": 1.0}, "scale must be finite"),
    ],
)
def test_bad_schedules_are_named(written, message):
    with pytest.raises(ValueError, match=message):
        schedule("step", written)


@pytest.mark.parametrize("written", [None, True, [1.0], {"value": "2"}, {"value": True}])
def test_what_is_no_number_is_a_type_error(written):
    with pytest.raises(TypeError, match="must be a number, got"):
        schedule("step", written)


@pytest.mark.parametrize("law", [Constant(0.25), PowerLaw(0.1, -0.77, 3.0), Geometric(0.3, 0.97)])
def test_to_dict_round_trip(law):
    assert law.to_dict()["kind"] == type(law).__name__
    assert schedule("x", law.to_dict()) == law


def test_to_dict_of_nested_schedules_is_plain_data():
    assert Share(2.0, SampleSize(PowerLaw(3.0, 0.5)), 10.0).to_dict() == {
        "kind": "Share",
        "scale": 2.0,
        "size": {
            "kind": "SampleSize",
            "law": {"kind": "PowerLaw", "scale": 3.0, "exponent": 0.5, "shift": 1.0},
            "rounding": "ceil",
        },
        "held": 10.0,
        "repeats": False,
    }
    assert Share(2.0, Constant(3.0), repeats=True).to_dict()["repeats"] is True


@pytest.mark.parametrize(
    "law", [Constant(0.25), PowerLaw(0.5, -0.9), PowerLaw(2, 0.1, 20), Geometric(0.5, 0.98)]
)
def test_what_a_schedule_prints_can_be_read_back(law):
    assert schedule("x", str(law)) == law


@pytest.mark.parametrize("power", [1 / 2, 1 / 3, 2 / 3, 3 / 2, 2.0])
def test_sample_sizes_that_are_whole_powers_are_not_bumped(power):
    """(base^root)^power with power * root whole: integer arithmetic is the oracle."""
    root = {1 / 2: 2, 1 / 3: 3, 2 / 3: 3, 3 / 2: 2, 2.0: 1}[power]
    raised = round(power * root)
    for base in range(1, 300 if root < 3 else 60):
        k, exact = base**root - 1, base**raised
        assert float(SampleSize(PowerLaw(1.0, power))(k)) == exact
        assert float(SampleSize(PowerLaw(1.0, power), rounding="floor+1")(k)) == exact + 1


def test_sample_sizes_between_whole_numbers_are_rounded_up():
    size = SampleSize(PowerLaw(1.0, 0.5))
    k = np.arange(5000)
    exact = np.array([math.isqrt(n - 1) + 1 for n in range(1, 5001)])  # ceil(sqrt(n))
    np.testing.assert_array_equal(size(k), exact)
    np.testing.assert_array_equal(
        SampleSize(PowerLaw(1.0, 0.5), "floor+1")(k), [math.isqrt(n) + 1 for n in k + 1]
    )


def test_sample_sizes_never_fall_below_one_and_are_not_scaled():
    assert SampleSize(PowerLaw(0.5, -1.0))(STEPS).min() == 1.0
    with pytest.raises(ValueError, match="law must be positive at step 0"):
        SampleSize(Constant(0.0))
    with pytest.raises(ValueError, match="rounding must be one of ceil, floor"):
        SampleSize(Constant(1.0), "round")
    with pytest.raises(TypeError, match="cannot be scaled"):
        SampleSize(Constant(2.0)).scaled(2.0)


def test_share_is_the_weight_of_one_record_in_a_mean():
    share = Share(3.0, PowerLaw(2.0, 1.0), held=11)
    for k in range(20):
        assert float(share(k)) == pytest.approx(3.0 / min(2 * (k + 1), 11), rel=1e-15)
    assert share.upper() is None, "a mean that stops widening lies above every decaying power law"


@settings(max_examples=150, deadline=None)
@given(
    scale=st.floats(0.01, 100),
    law_scale=st.floats(0.05, 50),
    exponent=st.floats(-1.5, 2.0),
    shift=st.floats(0.1, 50),
    rounding=st.sampled_from(["ceil", "floor+1", None]),
)
def test_the_upper_bound_of_a_share_lies_above_it(scale, law_scale, exponent, shift, rounding):
    law: Schedule = PowerLaw(law_scale, exponent, shift)
    share = Share(scale, law if rounding is None else SampleSize(law, rounding))
    bound = share.upper()
    assert bound is not None
    assert np.all(bound(STEPS) >= share(STEPS))


@pytest.mark.parametrize("power", [1 / 2, 1 / 3, 2 / 3])
def test_the_upper_bound_holds_where_a_sample_size_was_nudged_down(power):
    share = Share(1.0, SampleSize(PowerLaw(1.0, power)))
    assert np.all(share.upper()(np.arange(200_000)) >= share(np.arange(200_000)))


@pytest.mark.parametrize(
    "law",
    [
        Constant(0.4),
        PowerLaw(2.0, -0.7, 3.0),
        PowerLaw(2.0, 0.3),
        Geometric(2.0, 0.97),
        Share(2.0, Constant(2.5)),
        Share(2.0, SampleSize(Constant(2.5))),
    ],
)
def test_upper_bounds_lie_above(law):
    bound = law.upper()
    assert isinstance(bound, PowerLaw)
    assert np.all(bound(STEPS) >= law(STEPS))


@pytest.mark.parametrize(
    "law", [Geometric(1.0, 1.01), Geometric(-1.0, 0.9), Share(1.0, Geometric(1.0, 1.1))]
)
def test_no_upper_bound_is_offered_where_there_is_none(law):
    assert law.upper() is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (5, SampleSize(Constant(5.0))),
        (5.0, SampleSize(Constant(5.0))),
        ("5", SampleSize(Constant(5.0))),
        (1, SampleSize(Constant(1.0))),
        ("(k+1)^1.1", SampleSize(PowerLaw(1.0, 1.1))),
        ("2.5*(k+1)^0.5", SampleSize(PowerLaw(2.5, 0.5))),
        ("1.1^k", SampleSize(Geometric(1.0, 1.1))),
        ("3*1.1^k", SampleSize(Geometric(3.0, 1.1))),
        ("ceil((k+1)^1.1)", SampleSize(PowerLaw(1.0, 1.1))),
        (" ceil( 2*(k+3)^0.5 ) ", SampleSize(PowerLaw(2.0, 0.5, 3.0))),
        ("ceil(2.5)", SampleSize(Constant(2.5))),
        ("floor((k+1)^0.5)+1", SampleSize(PowerLaw(1.0, 0.5), "floor+1")),
        ("floor( 0.2*(k+1)^0.5 ) + 1", SampleSize(PowerLaw(0.2, 0.5), "floor+1")),
        ("floor(2*1.1^k)+1", SampleSize(Geometric(2.0, 1.1), "floor+1")),
        ("floor(0.5)+1", SampleSize(Constant(0.5), "floor+1")),
        (PowerLaw(2.0, 0.5), SampleSize(PowerLaw(2.0, 0.5))),
        (Constant(4.0), SampleSize(Constant(4.0))),
        ({"value": 4}, SampleSize(Constant(4))),
        ({"scale": 2.0, "exponent": 0.5}, SampleSize(PowerLaw(2.0, 0.5))),
        ({"kind": "Geometric", "scale": 2.0, "ratio": 1.5}, SampleSize(Geometric(2.0, 1.5))),
        ({"kind": "SampleSize", "law": "2*(k+1)^0.5"}, SampleSize(PowerLaw(2.0, 0.5))),
        (
            {"kind": "SampleSize", "law": {"scale": 0.5, "exponent": 1.0}, "rounding": "floor+1"},
            SampleSize(PowerLaw(0.5, 1.0), "floor+1"),
        ),
    ],
)
def test_reading_a_sample_size(written, meant):
    assert sample_size("size", written) == meant
    assert sample_size("size", meant) is meant


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (0, "size must be at least 1 record at every step, got '0 at step 0'"),
        (-3, "size must be at least 1 record at every step, got '-3 at step 0'"),
        (0.5, "size must be at least 1 record at every step, got '0.5 at step 0'"),
        ("0.9*(k+1)^2", "size must be at least 1 record at every step, got '0.9 at step 0'"),
        ("0.9*1.5^k", "size must be at least 1 record at every step, got '0.9 at step 0'"),
        ("ceil(0.9*(k+1)^2)", "size must be at least 1 record at every step, got '0.9 at step 0'"),
        (
            SampleSize(PowerLaw(0.5, 1.0)),
            "size must be at least 1 record at every step, got '0.5 at step 0'",
        ),
        (
            "4*(k+1)^-0.5",
            (
                r"size must be at least 1 record at every step, so it must not fall, got"
                r" PowerLaw\(scale=4.0"
            ),
        ),
        ("20*0.9^k", r"so it must not fall, got Geometric\(scale=20.0, ratio=0.9\)"),
        ("floor(9*0.9^k)+1", "so it must not fall"),
        (SampleSize(PowerLaw(9.0, -0.01)), "so it must not fall"),
        (2.5, "size must be a whole number of records, or a law that grows, got 2.5"),
        ("2.5", "size must be a whole number of records, or a law that grows, got 2.5"),
        ({"value": 2.5}, "size must be a whole number of records, or a law that grows, got 2.5"),
        ("many", r"size must be a number, \"c\*\(k\+s\)\^p\" or \"c\*r\^k\", got 'many'"),
        ("ceil(many)", "size must be a number, .* got 'many'"),
        ("floor((k+1)^0.5)", "size must be a number, .* got 'floor"),
        ("floor((k+1)^0.5)+2", "size must be a number, .* got 'floor"),
        ("nan", "size must be finite"),
        (
            {"scale": 1.0, "exponnent": 1.0, "kind": "PowerLaw"},
            "size key must be one of .* did you mean 'exponent'",
        ),
        (
            {"kind": "SampleSize", "law": 3, "rounding": "flor"},
            "rounding must be one of ceil, .* did you mean 'floor",
        ),
        ("ceil(0)", "size must be at least 1 record at every step"),
        ("floor(-1)+1", "size must be at least 1 record at every step"),
        (
            {"kind": "SampleSize", "law": 3, "roundin": "floor+1"},
            "size key must be one of law, rounding, got 'roundin'",
        ),
    ],
)
def test_bad_sample_sizes_are_named(written, message):
    with pytest.raises(ValueError, match=message):
        sample_size("size", written)


@pytest.mark.parametrize("written", [None, True, [3], "ceil", {"value": "2"}])
def test_what_is_no_sample_size_at_all(written):
    with pytest.raises((TypeError, ValueError), match="must be a number"):
        sample_size("size", written)


@pytest.mark.parametrize(
    "size",
    [
        "(k+1)^1.1",
        "floor(0.3*(k+1)^0.5)+1",
        "2*1.1^k",
        "7",
        "ceil(2.5)",
        "1.5*(k+20)^0.7",
        "floor(0.5)+1",
    ],
)
def test_a_sample_size_is_read_back_from_what_it_prints_and_from_its_table(size):
    meant = sample_size("size", size)
    assert sample_size("size", str(meant)) == meant
    assert sample_size("size", meant.to_dict()) == meant


@settings(max_examples=150, deadline=None)
@given(
    scale=st.floats(1.0, 50),
    exponent=st.floats(0, 2.0),
    shift=st.floats(1.0, 50),
    ratio=st.floats(1.0, 1.2),
    rounding=st.sampled_from(["ceil", "floor+1"]),
)
def test_accepted_sample_sizes_are_whole_and_never_fall(scale, exponent, shift, ratio, rounding):
    """What the samplers and the certificate rely on: whole numbers, at least one, not falling,
    within one of the law.
    """
    for law in (PowerLaw(scale, exponent, shift), Geometric(scale, ratio)):
        size = sample_size("size", SampleSize(law, rounding))(STEPS)
        assert np.array_equal(size, np.rint(size))
        assert size.min() >= 1
        assert np.all(np.diff(size) >= 0)
        assert np.all(np.abs(size - law(STEPS)) <= 1 + 1e-9 * size)


@pytest.mark.parametrize("held", [11, 20, 1000, math.inf])
def test_a_share_with_repeats_is_everything_until_all_records_are_in_the_mean(held):
    """Draws with replacement may all hit the same record;
    a batch of the whole data set holds it once.
    """
    share = Share(3.0, SampleSize(PowerLaw(2.0, 1.0)), held, repeats=True)
    for k in range(20):
        assert float(share(k)) == (3.0 if 2 * (k + 1) < held else 3.0 / held)
    np.testing.assert_array_equal(share(STEPS), [float(share(k)) for k in STEPS])
    assert np.all(share(STEPS) >= Share(3.0, SampleSize(PowerLaw(2.0, 1.0)), held)(STEPS))
    assert np.all(share.upper()(STEPS) >= share(STEPS))
    np.testing.assert_array_equal(share.scaled(2.0)(STEPS), 2 * share(STEPS))
    assert share.scaled(2.0).repeats


def test_repeats_can_be_read_from_what_a_share_prints():
    """A certificate that prints its exposure must not show c / size where the bound is c."""
    size = SampleSize(PowerLaw(2.0, 1.0))
    assert str(Share(3.0, size, 10.0, repeats=True)) != str(Share(3.0, size, 10.0))


def test_zero_has_no_sign():
    """1 / -0.0 was an epsilon of minus infinity on the way to a budget."""
    for zero in (-0.0, "-0", {"scale": -0.0, "exponent": 0.5}):
        assert not np.signbit(nonnegative("noise", zero)(0))
