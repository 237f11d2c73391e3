"""Filters as text: what they mean, also for rows without a value, and how faults are told."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.labelset.filters import as_expression, parse_filter

TABLE = pa.table(
    {
        "row": pa.array([0, 1, 2, 3]),
        "status": pa.array(["ok", "ok", "empty", None]),
        "num_persons": pa.array([3, 1, 0, None], pa.int32()),
        "share": pa.array([0.5, None, 0.25, 1.0], pa.float32()),
        "is_day": pa.array([True, False, None, True]),
        "what's odd": pa.array(["it's", "a_b", "axb", "%"]),
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("status = 'ok'", [0, 1]),
        ("status <> 'ok'", [2]),
        ("status != 'ok'", [2]),
        ("num_persons > 1", [0]),
        ("num_persons >= 1 AND share > .4", [0]),
        ("num_persons < 1 or share = 1", [2, 3]),
        ("num_persons = 3 OR num_persons = 1 AND share > 0", [0]),
        ("(num_persons = 3 OR num_persons = 1) AND share > 0", [0]),
        ("NOT status = 'ok'", [2]),
        ("num_persons IN (0, 3)", [0, 2]),
        ("num_persons NOT IN (0, 3)", [1]),
        ("share BETWEEN 0.25 AND 5e-1", [0, 2]),
        ("share NOT BETWEEN 0 AND +0.5", [3]),
        ("status IS NULL", [3]),
        ("share is not null", [0, 2, 3]),
        ("status LIKE 'e%'", [2]),
        ("status NOT LIKE '_k'", [2]),
        ("is_day", [0, 3]),
        ("is_day = FALSE", [1]),
        ("num_persons > -1.5", [0, 1, 2]),
        ("\"what's odd\" = 'it''s'", [0]),
    ],
)
def test_a_filter_takes_the_rows_that_sql_takes(text: str, expected: list[int]) -> None:
    found = TABLE.filter(parse_filter(text, TABLE.schema))
    assert found["row"].to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope = 1", "no column 'nope'; there are row, status"),
        ("status = ", r"character 9: expected a number, a 'string'.*found the end"),
        ("status ; 1", "character 7: ';' has no meaning here"),
        ("status = 'ok' num_persons", "character 15: expected AND, OR or the end, found 'num_pers"),
        ("(status = 'ok'", r"expected \), found the end"),
        ("status NOT 'ok'", "expected IN, LIKE or BETWEEN, found \"'ok'\""),
        ("= 1", "character 1: expected a column"),
        ("status IS 3", "expected NULL, found '3'"),
        ("", "expected a column, found the end"),
        ("status = 3", "does not fit the columns"),
        ("num_persons", "does not fit the columns"),
    ],
)
def test_a_fault_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_filter(text, TABLE.schema)


def test_an_expression_stays_what_it_is() -> None:
    expression = ds.field("row") > 1
    assert as_expression(expression, TABLE.schema) is expression
    assert as_expression(None, TABLE.schema) is None
