"""Our bytes and the safetensors library's are the same format."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load, save

from hearsay.release.tensors import KINDS, pack, unpack


@pytest.mark.parametrize("kind", KINDS)
def test_the_library_reads_what_is_written_here(kind):
    dtype = KINDS[kind]
    arrays = {
        "matrix": np.arange(12).reshape(3, 4).astype(dtype),
        "scalar": np.asarray(1, dtype),
        "empty": np.zeros((0, 2), dtype),
        "turned": np.arange(12).reshape(3, 4).T.astype(dtype)[::2],
    }
    found = load(b"".join(pack(arrays, {"who": "alice"})))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == dtype
        assert found[name].shape == array.shape


def test_numbers_are_aligned_and_metadata_are_text():
    parts = pack({"x": np.ones(3)}, {"a": "1"})
    assert len(parts[0]) % 8 == 0
    assert b'"__metadata__":{"a":"1"}' in bytes(parts[0])


def test_nothing_is_copied():
    array = np.ones(1000)
    assert np.shares_memory(np.frombuffer(pack({"x": array})[1]), array)


def test_the_other_way_round():
    """What the library writes is what a mailbox accepts: the same header fields."""
    theirs, ours = (
        save({"x": np.ones(3)}, {"a": "1"}),
        b"".join(pack({"x": np.ones(3)}, {"a": "1"})),
    )
    assert len(theirs) == len(ours)
    assert theirs[-24:] == ours[-24:]


@pytest.mark.parametrize(
    "array",
    [
        {"dtype": "F64", "shape": [1], "data_offsets": [0.0, 8.0]},
        {"dtype": "F64", "shape": [1], "data_offsets": ["0", "8"]},
        {"dtype": "F64", "shape": [1], "data_offsets": [0, 8, 8]},
        {"dtype": "F64", "shape": [1.0], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [True], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": ["1"], "data_offsets": [0, 8]},
    ],
)
def test_places_are_whole_numbers(array):
    text = json.dumps({"x": array}).encode()
    with pytest.raises(ValueError, match="it must be a whole safetensors file, got one whose"):
        unpack(len(text).to_bytes(8, "little") + text + bytes(8), "it")
