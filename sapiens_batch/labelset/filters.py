"""Row filters as text: the part of SQL's WHERE that decides on one row of one table.

A filter becomes a pyarrow expression, so that files and row groups it rules out are not read.
Functions, arithmetic and joins are left to DuckDB on the same tables. A filter that parses can be
evaluated on every row of its table.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sapiens_batch.errors import InputError

Filter = ds.Expression | str
"""A pyarrow expression, or text for `parse_filter`."""

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<text>'(?:[^']|'')*')
    |(?P<word>[A-Za-z_]\w*)
    |"(?P<quoted>[^"]+)"
    |(?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,))""",
    re.VERBOSE,
)
_KEYWORDS: Final = {
    "AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "BETWEEN", "TRUE", "FALSE",
}  # fmt: skip
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq, "!=": operator.ne, "<>": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def as_expression(wanted: Filter | None, schema: pa.Schema) -> ds.Expression | None:
    """The expression of a filter; None stays None.

    Raises:
        InputError: As for `parse_filter`.
    """
    return parse_filter(wanted, schema) if isinstance(wanted, str) else wanted


def parse_filter(text: str, schema: pa.Schema) -> ds.Expression:
    """The expression of a filter such as `status = 'ok' AND num_persons >= 1`.

    Comparisons, AND, OR, NOT, IN, BETWEEN, LIKE and IS NULL over columns, numbers, 'strings', TRUE
    and FALSE; keywords in any case, names with odd characters in double quotes.

    Raises:
        InputError: It is no such filter, or does not fit the columns; the message says where.
    """
    parser = _Parser(text, schema)
    expression = parser.whole()
    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"filter {text!r} does not fit the columns: {error}") from error
    return expression


class _Token(NamedTuple):
    kind: str
    value: Any
    start: int


class _Parser:
    """Recursive descent, one method for each rule of the grammar."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._names = schema.names
        self._tokens = list(self._split())
        self._position = 0

    def whole(self) -> ds.Expression:
        found = self._any()
        if self._next.kind != "end":
            raise self._unexpected("AND, OR or the end")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _any(self) -> ds.Expression:
        found = self._all()
        while self._takes("OR"):
            found = found | self._all()
        return found

    def _all(self) -> ds.Expression:
        found = self._one()
        while self._takes("AND"):
            found = found & self._one()
        return found

    def _one(self) -> ds.Expression:
        if self._takes("NOT"):
            return ~self._one()
        if self._takes("("):
            found = self._any()
            self._expect(")")
            return found
        return self._predicate(self._column())

    def _predicate(self, column: ds.Expression) -> ds.Expression:
        token = self._next
        if token.kind in _COMPARISONS:
            self._position += 1
            compared: ds.Expression = _COMPARISONS[token.kind](column, self._literal())
            return compared
        if self._takes("IS"):
            absent = not self._takes("NOT")
            self._expect("NULL")
            tested: ds.Expression = pc.is_null(column) if absent else pc.is_valid(column)
            return tested
        if self._takes("NOT"):
            return ~self._membership(column)
        if token.kind in ("IN", "LIKE", "BETWEEN"):
            return self._membership(column)
        return column

    def _membership(self, column: ds.Expression) -> ds.Expression:
        if self._takes("IN"):
            self._expect("(")
            values = [self._literal()]
            while self._takes(","):
                values.append(self._literal())
            self._expect(")")
            # equalities, since null IN (…) is null: a row without a value is in no list and in no
            # list's complement
            found: ds.Expression = reduce(operator.or_, [column == value for value in values])
            return found
        if self._takes("LIKE"):
            like: ds.Expression = pc.match_like(column, pattern=str(self._literal()))
            return like
        if self._takes("BETWEEN"):
            low = self._literal()
            self._expect("AND")
            between: ds.Expression = (column >= low) & (column <= self._literal())
            return between
        raise self._unexpected("IN, LIKE or BETWEEN")

    def _column(self) -> ds.Expression:
        token = self._next
        if token.kind != "name":
            raise self._unexpected("a column")
        if token.value not in self._names:
            raise InputError(
                f"filter {self._text!r}: no column {token.value!r}; there are "
                f"{', '.join(self._names)}"
            )
        self._position += 1
        return ds.field(token.value)

    def _literal(self) -> Any:
        token = self._next
        if token.kind not in ("literal", "TRUE", "FALSE"):
            raise self._unexpected("a number, a 'string', TRUE or FALSE")
        self._position += 1
        return token.value if token.kind == "literal" else token.kind == "TRUE"

    def _takes(self, kind: str) -> bool:
        if self._next.kind != kind:
            return False
        self._position += 1
        return True

    def _expect(self, kind: str) -> None:
        if not self._takes(kind):
            raise self._unexpected(kind)

    def _unexpected(self, wanted: str) -> InputError:
        token = self._next
        found = "the end" if token.kind == "end" else repr(self._text[token.start :][:20])
        return InputError(
            f"filter {self._text!r}, character {token.start + 1}: expected {wanted}, found {found}"
        )

    def _split(self) -> Iterator[_Token]:
        position, stop = 0, len(self._text.rstrip())
        while position < stop:
            match = _TOKEN.match(self._text, position)
            if match is None:
                raise InputError(
                    f"filter {self._text!r}, character {position + 1}: "
                    f"{self._text[position:].strip()[:1]!r} has no meaning here"
                )
            yield _token(match)
            position = match.end()
        yield _Token("end", None, stop)


def _token(match: re.Match[str]) -> _Token:
    kind = match.lastgroup or ""
    text, start = match[kind], match.start(kind)
    if kind == "number":
        return _Token("literal", int(text) if text.lstrip("+-").isdigit() else float(text), start)
    if kind == "text":
        return _Token("literal", text[1:-1].replace("''", "'"), start)
    if kind == "word" and text.upper() in _KEYWORDS:
        return _Token(text.upper(), None, start)
    return _Token(text, None, start) if kind == "sign" else _Token("name", text, start)
