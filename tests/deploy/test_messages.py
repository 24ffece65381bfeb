"""Messages: `decode` gives what went into `encode`, and rejects everything else with a
reason and nothing worse.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from hearsay.deploy.messages import HEADER, Format, Rejected

F64, F32 = np.dtype("<f8"), np.dtype("<f4")
FORMAT = Format("wards", "c" * 64, {"params": (3,), "tracker": (2, 2), "scale": ()}, F64)
FIELDS = {
    "params": np.array([1.5, -2.0, 1e300]),
    "tracker": np.array([[0.0, -1.0], [5e-324, 7.0]]),
    "scale": np.array(3.25),
}
ABOUT = {
    "schema": "1",
    "run": "wards",
    "config": "c" * 64,
    "agent": "alice",
    "instance": "a1",
    "round": "7",
}
SPANS = {"params": (0, 24), "tracker": (24, 56), "scale": (56, 64)}
BODY = b"".join(FIELDS[name].tobytes() for name in SPANS)

fuzz = settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def header(**replaced) -> dict[str, Any]:
    """A valid header as Python sees it; None takes a key out."""
    found: dict[str, Any] = {"__metadata__": dict(ABOUT)}
    for name, span in SPANS.items():
        found[name] = {
            "dtype": "F64",
            "shape": list(FORMAT.shapes[name]),
            "data_offsets": list(span),
        }
    found.update(replaced)
    return {key: value for key, value in found.items() if value is not None}


def packed(head, body: bytes = BODY) -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + body


def field(name, **replaced):
    return {name: {**header()[name], **replaced}}


def assert_valid(found) -> None:
    assert found.keys() == FIELDS.keys()
    for name, value in FIELDS.items():
        assert found[name].dtype == F64
        assert found[name].shape == value.shape
        assert found[name].tobytes() == value.tobytes()


def decode(payload: bytes):
    return FORMAT.decode(payload, "alice", 7, "a1")


def reason(payload: bytes) -> str:
    with pytest.raises(Rejected) as caught:
        decode(payload)
    return caught.value.reason


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(
    "shapes", [{"params": (5,)}, {"a": (2, 3), "b": (), "c": (1,)}, {"scale": ()}]
)
def test_round_trip(dtype, shapes):
    rng, form = np.random.default_rng(0), Format("r", "d" * 64, shapes, dtype)
    fields = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    payload = form.encode("bob", 0, fields)
    assert isinstance(payload, bytes)
    assert len(payload) <= form.largest
    found = form.decode(payload, "bob", 0)
    assert list(found) == list(shapes)
    for name, value in fields.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == dtype
        assert found[name].shape == value.shape
        assert not found[name].flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            found[name][...] = 0


def test_fields_are_views_of_the_payload():
    payload = FORMAT.encode("alice", 7, FIELDS, "a1")
    found = decode(payload)
    assert_valid(found)
    assert all(not value.flags.owndata for value in found.values())
    assert_valid(FORMAT.decode(memoryview(payload), "alice", 7, "a1"))


def test_the_sign_of_a_zero_does_not_leave_the_agent():
    """It would say something of the number that was rounded to it."""
    values = {
        "params": np.array([-0.0, 0.0, -0.0]),
        "tracker": np.full((2, 2), -0.0),
        "scale": np.array(-0.0),
    }
    payload = FORMAT.encode("alice", 7, values, "a1")
    found = decode(payload)
    assert not any(np.signbit(value).any() for value in found.values())
    assert b"\x00\x80" not in payload


def test_arrays_in_any_order_in_memory_and_plain_lists_are_written_row_by_row():
    values = {
        "params": np.arange(6.0)[::2],
        "tracker": np.asfortranarray(np.arange(4.0).reshape(2, 2)),
        "scale": 3.5,
    }
    found = decode(FORMAT.encode("alice", 7, values, "a1"))
    np.testing.assert_array_equal(found["params"], [0, 2, 4])
    np.testing.assert_array_equal(found["tracker"], [[0, 1], [2, 3]])
    found = decode(
        FORMAT.encode(
            "alice", 7, {"params": [1, 2, 3], "tracker": [[1, 2], [3, 4]], "scale": 3}, "a1"
        )
    )
    np.testing.assert_array_equal(found["tracker"], [[1, 2], [3, 4]])
    assert found["scale"] == 3.0


def test_the_header_built_here_is_valid():
    """The games below change one thing of a message that is accepted."""
    assert_valid(decode(packed(header())))


def test_the_order_of_fields_in_the_file_does_not_matter():
    spans = {"scale": (0, 8), "tracker": (8, 40), "params": (40, 64)}
    moved = {name: {**header()[name], "data_offsets": list(span)} for name, span in spans.items()}
    assert_valid(
        decode(packed(header(**moved), b"".join(FIELDS[name].tobytes() for name in spans)))
    )


def test_a_message_of_the_safetensors_library_is_accepted():
    assert_valid(decode(save(FIELDS, ABOUT)))
    single = Format("wards", "c" * 64, {"params": (3,)}, F32)
    payload = save({"params": np.arange(3, dtype=np.float32)}, ABOUT)
    np.testing.assert_array_equal(single.decode(payload, "alice", 7, "a1")["params"], [0, 1, 2])


def test_a_long_message_with_the_longest_names_fits_its_header():
    shapes = dict.fromkeys(("params", "tracker", "gradient", "update"), (1000, 1000))
    form = Format("r" * 64, "c" * 64, shapes, F32)
    zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    assert form.decode(form.encode("a" * 64, 10**9, zeros, "f" * 32), "a" * 64, 10**9, "f" * 32)[
        "params"
    ].shape == (
        1000,
        1000,
    )


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("schema", "2", "wrong schema"),
        ("schema", None, "wrong schema"),
        ("schema", 1, "wrong schema"),
        ("run", "other", "wrong run"),
        ("config", "d" * 64, "wrong configuration"),
        ("agent", "bob", "wrong agent"),
        ("agent", ["alice"], "wrong agent"),
        ("instance", "a2", "another process of this name"),
        ("instance", None, "another process of this name"),
        ("round", "8", "wrong round"),
        ("round", "07", "wrong round"),
        ("round", 7, "wrong round"),
    ],
)
def test_another_runs_agents_or_rounds_message(key, value, expected):
    about = {k: v for k, v in {**ABOUT, key: value}.items() if v is not None}
    assert reason(packed(header(__metadata__=about))) == expected


@pytest.mark.parametrize("metadata", [None, [], "x", 5])
def test_no_metadata(metadata):
    assert reason(packed(header(__metadata__=metadata))) == "not safetensors"


@pytest.mark.parametrize(
    "kind",
    [
        "BF16",
        "F16",
        "F32",
        "I64",
        "U64",
        "BOOL",
        "f64",
        "<f8",
        ">f8",
        "",
        None,
        64,
        ["F64"],
        {"F64": 1},
    ],
)
def test_wrong_types(kind):
    assert reason(packed(header(**field("params", dtype=kind)))) == "wrong type"


@pytest.mark.parametrize("kind", ["F64", "I64", "BF16", "F16"])
def test_wrong_types_of_a_single_precision_run(kind):
    form = Format("wards", "c" * 64, {"params": (2,)}, F32)
    one = {"__metadata__": ABOUT, "params": {"dtype": kind, "shape": [2], "data_offsets": [0, 8]}}
    with pytest.raises(Rejected, match="wrong type: params"):
        form.decode(packed(one, bytes(8)), "alice", 7, "a1")


@pytest.mark.parametrize("about", [None, [], "F64", 5, True])
def test_a_field_that_is_no_table(about):
    head = json.dumps(header(params="PLACE")).replace('"PLACE"', json.dumps(about)).encode()
    assert reason(packed(head)) == "wrong type"


@pytest.mark.parametrize(
    "shape", [[2], [4], [3, 1], [1, 3], [], None, 3, "3", [-3], [3.5], ["3"], [[3]]]
)
def test_wrong_shapes(shape):
    assert reason(packed(header(**field("params", shape=shape)))) == "wrong shape"


@pytest.mark.parametrize(
    "replaced",
    [{"params": None}, {"more": header()["scale"]}, {"params": None, "Params": header()["params"]}],
)
def test_wrong_fields(replaced):
    assert reason(packed(header(**replaced))) == "wrong fields"


@pytest.mark.parametrize(
    "offsets",
    [
        [-24, 0],
        [8, 32],
        [0, 32],
        [0, 16],
        [24, 0],
        [0],
        [0, 24, 48],
        [],
        None,
        "0,24",
        {"0": 24},
        [False, 24],
        [0, 24.0],
        ["0", "24"],
        [0, None],
        [40, 64],
        [10**30, 10**30 + 24],
        [64, 88],
        [2**63, 2**63 + 24],
        [1, 25],
        [0, True],
    ],
)
def test_wrong_offsets(offsets):
    """Negative, overlapping, reversed, beyond the end, with gaps, and no offsets at all."""
    assert reason(packed(header(**field("params", data_offsets=offsets)))) == "not safetensors"


def test_truth_values_are_no_offsets():
    one = Format("wards", "c" * 64, {"a": (1,)}, F64)
    head = {"__metadata__": ABOUT, "a": {"dtype": "F64", "shape": [1], "data_offsets": [False, 8]}}
    with pytest.raises(Rejected, match="not safetensors: offsets"):
        one.decode(packed(head, bytes(8)), "alice", 7, "a1")


@pytest.mark.parametrize("body", [BODY + b"\0", BODY + bytes(8), BODY[:-1], BODY[:-8], b""])
def test_bytes_too_many_or_too_few(body):
    assert reason(packed(header(), body)) == "not safetensors"


def test_bytes_before_the_first_field():
    head = header(
        **{
            name: {**header()[name], "data_offsets": [begin + 8, end + 8]}
            for name, (begin, end) in SPANS.items()
        }
    )
    assert reason(packed(head, bytes(8) + BODY)) == "not safetensors"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", FIELDS)
def test_not_finite(name, bad):
    values = {n: v.copy() for n, v in FIELDS.items()}
    values[name][...] = bad
    assert reason(FORMAT.encode("alice", 7, values, "a1")) == "not finite"


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"5 ",
        b'"x"',
        b"nu",
        b"{}",
        b'{"a":',
        b"{}{}",
        b"\xff\xfe{}",
        b"\0" * 20,
        b"9" * 4000,
        b'{"a":' + b"9" * 4000 + b"}",
        b"[" * 4000,
        b'{"a":' * 800,
        b'{"a":' * 600 + b"1" + b"}" * 600,
        b"NaN",
        b'{"__metadata__": NaN}',
        b'"\\ud800"',
        b"\xf0\x9f",
    ],
)
def test_headers_that_are_none(text):
    assert reason(packed(text)) == "not safetensors"


@pytest.mark.parametrize("length", [0, 1, HEADER + 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
def test_lengths_of_the_header_that_cannot_be(length):
    valid = packed(header())
    assert reason(length.to_bytes(8, "little") + valid[8:]) == "not safetensors"


def test_a_length_in_the_wrong_byte_order():
    valid = packed(header())
    assert reason(valid[:8][::-1] + valid[8:]) == "not safetensors"


@pytest.mark.parametrize("size", range(0, 12))
def test_too_short_for_a_header(size):
    assert reason(packed(header())[:size]) == "not safetensors"


def test_a_header_longer_than_any_of_ours():
    padded = json.dumps(header()).encode()
    assert reason(packed(padded + b" " * (HEADER + 1 - len(padded)))) == "oversized"
    small = Format("wards", "c" * 64, {"params": (1000,)}, F64)
    with pytest.raises(Rejected, match="not safetensors: length of the header"):
        small.decode(packed(padded + b" " * (HEADER + 1 - len(padded))), "alice", 7, "a1")


def test_padding_that_the_library_may_add_is_fine():
    assert_valid(decode(packed(json.dumps(header()).encode() + b"  ")))


def test_oversized():
    assert reason(bytes(FORMAT.largest + 1)) == "oversized"
    assert reason(bytes(FORMAT.largest)) == "not safetensors"


def test_numbers_in_the_wrong_byte_order_are_never_rearranged():
    """Nothing marks them, so they are other numbers;
    those that are still finite are decoded as they stand.
    """
    swapped = b"".join(FIELDS[name].astype(">f8").tobytes() for name in SPANS)
    found = decode(packed(header(), swapped))
    assert b"".join(found[name].tobytes() for name in SPANS) == swapped


def test_of_two_keys_with_one_name_the_last_counts_and_must_be_right():
    text = json.dumps(header())
    once = text[:-1] + ', "params": {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}}'
    assert_valid(decode(packed(once.encode())))
    twice = text[:-1] + ', "params": {"dtype": "F64", "shape": [3], "data_offsets": [24, 48]}}'
    assert reason(packed(twice.encode())) == "not safetensors"
    other = text[:-1] + ', "__metadata__": {"agent": "mallory"}}'
    assert reason(packed(other.encode())) == "wrong schema"


def test_reasons_are_few_and_words_of_the_sender_are_not_among_them():
    """Reasons are counted and logged: a sender must not be able to choose them."""
    for payload in (
        packed(header(mallory=5)),
        packed(header(__metadata__={**ABOUT, "run": "mallory"})),
    ):
        with pytest.raises(Rejected) as caught:
            decode(payload)
        assert "mallory" not in str(caught.value)


def survives(payload: bytes) -> None:
    """Rejected, or read as exactly what it says: the bytes that its own header points to."""
    try:
        found = decode(payload)
    except Rejected as rejection:
        assert rejection.reason
        return
    size = int.from_bytes(payload[:8], "little")
    head, body = json.loads(payload[8 : 8 + size]), payload[8 + size :]
    assert found.keys() == FIELDS.keys()
    assert len(body) == len(BODY)
    for name, value in found.items():
        begin, end = head[name]["data_offsets"]
        assert value.tobytes() == body[begin:end]
        assert value.shape == FIELDS[name].shape
        assert np.isfinite(value).all()
        assert not value.flags.writeable
    assert {key: head["__metadata__"].get(key) for key in ABOUT} == ABOUT


@fuzz
@given(st.binary(max_size=600))
def test_random_bytes(payload):
    survives(payload)


@fuzz
@given(st.binary(max_size=200), st.integers(0, 300))
def test_random_bytes_behind_a_length(text, length):
    survives(length.to_bytes(8, "little") + text)


VALID = save(FIELDS, ABOUT)


@fuzz
@given(
    st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(1, 255)), min_size=1, max_size=4)
)
def test_flipped_bytes(places):
    payload = bytearray(VALID)
    for place, bits in places:
        payload[place] ^= bits
    survives(bytes(payload))


@fuzz
@given(st.integers(0, len(VALID)), st.binary(min_size=1, max_size=40))
def test_inserted_bytes(place, more):
    survives(VALID[:place] + more + VALID[place:])


@fuzz
@given(st.integers(0, len(VALID) - 1), st.integers(1, 40))
def test_deleted_bytes(place, count):
    survives(VALID[:place] + VALID[place + count :])


def test_truncated_anywhere():
    for size in range(len(VALID)):
        with pytest.raises(Rejected):
            decode(VALID[:size])


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["F64", "BF16", [3], [0, 24]]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@fuzz
@given(
    st.sampled_from([*SPANS, "__metadata__", "more"]),
    st.sampled_from(["dtype", "shape", "data_offsets", "agent", None]),
    values,
)
def test_headers_with_anything_in_the_place_of_anything(name, key, value):
    head = header()
    if key is None or name not in head:
        head[name] = value
    else:
        head[name][key] = value
    survives(packed(head))


@fuzz
@given(st.permutations(list(SPANS)), st.lists(st.integers(-8, 72), min_size=6, max_size=6))
def test_offsets_at_random(names, places):
    spans = {
        name: {**header()[name], "data_offsets": places[2 * i : 2 * i + 2]}
        for i, name in enumerate(names)
    }
    survives(packed(header(**spans)))


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * (HEADER - 8),
        b'{"a":' * (HEADER // 5 - 1),
        b'{"params":{"shape":[' + b"9" * 4000,
        b'{"params":{"dtype":"F64","shape":[999999999999],"data_offsets":[0,7999999999992]}}',
    ],
)
def test_no_header_takes_much_memory_or_time(payload):
    """A header is at most 4 KiB and no array is made before its size is known to be right."""
    whole = packed(payload)[: FORMAT.largest]
    tracemalloc.start()
    began = time.perf_counter()
    for _ in range(20):
        with pytest.raises(Rejected):
            decode(whole)
    seconds, (_, peak) = time.perf_counter() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5e6
    assert seconds < 5


def test_an_oversized_message_is_not_even_looked_at():
    payload = bytes(50_000_000)
    tracemalloc.start()
    assert reason(payload) == "oversized"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6


def test_decoding_copies_nothing():
    form = Format("wards", "c" * 64, {"params": (1_000_000,)}, F64)
    payload = form.encode("alice", 7, {"params": np.zeros(1_000_000)}, "a1")
    tracemalloc.start()
    form.decode(payload, "alice", 7, "a1")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000  # isfinite needs a byte per number
