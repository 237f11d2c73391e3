"""Records survive the trip through an Arrow block, and their arrays are views, not copies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sapiens_batch.records import Chunk, Sample
from sapiens_batch.stages.flow import Outcome, failure_of, pack, unpack


def test_a_record_with_arrays_comes_back_equal() -> None:
    record = {
        "floats": np.arange(12, dtype=np.float32).reshape(3, 4),
        "none": np.zeros((0, 4), np.uint8),
        "text": "key \udc80 é",
    }
    found = unpack(pack(record))
    assert found["text"] == record["text"]
    np.testing.assert_array_equal(found["floats"], record["floats"])
    assert found["none"].shape == (0, 4)


def test_arrays_of_a_record_are_read_only_views_of_the_block() -> None:
    found = unpack(pack({"x": np.arange(1000)}))
    assert not found["x"].flags.writeable
    assert not found["x"].flags.owndata


def test_a_row_of_a_larger_table_is_unpacked_with_its_own_arrays() -> None:
    table = pa.concat_tables([pack({"x": np.arange(3)}), pack({"x": np.arange(5)})])
    np.testing.assert_array_equal(unpack(table.slice(1, 1))["x"], np.arange(5))


def test_a_block_of_two_records_is_refused() -> None:
    table = pa.concat_tables([pack(1), pack(2)])
    with pytest.raises(ValueError, match="2 rows"):
        unpack(table)


def test_a_chunk_knows_where_it_ends() -> None:
    chunk = Chunk("ab" * 16, 2, 8, (Sample("a", 8, b"x"), Sample("b", 9, None)), last=True)
    found = unpack(pack(chunk))
    assert found == chunk
    assert found.stop == 10


def test_a_failure_carries_type_text_and_traceback() -> None:
    try:
        raise OSError("disk gone")
    except OSError as error:
        outcome = Outcome(None, failure_of(error, "ab" * 16, 3, "write"))
    found = unpack(pack(outcome)).failure
    assert found.message == "OSError: disk gone"
    assert (found.chunk, found.stage) == (3, "write")
    assert "test_flow.py" in found.trace
