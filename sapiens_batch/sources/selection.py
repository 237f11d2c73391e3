"""Read only some samples of a corpus: a list of keys or of DataComp's 128-bit uids.

A sample that is not selected is no sample of the job: it has no row. What the list holds is part of
a shard's version, so a changed list cannot change what a planned shard means. Applying a selection
to rows or members is left to the sources.
"""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sapiens_batch.errors import InputError
from sapiens_batch.records import Array, Problem
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage.addresses import absolute_uri
from sapiens_batch.storage.input_errors import errors_of_field
from sapiens_batch.storage.inputs import stat_input
from sapiens_batch.storage.reading import read_input

UID = "uid"
"""The column or JSON field that holds DataComp's uid, 32 hex digits."""

_PAIR = np.dtype("u8,u8")
_COLUMNS = (UID, "key", "__key__")


@dataclass(frozen=True, slots=True)
class Selection:
    """What to read.

    Attributes:
        by: Column or JSON field whose value is listed; None for the sample's own key.
        digest: 32 hex digits over what is listed, whatever file it came in.
        kind: `uid` where the list has 128-bit numbers, `text` where it has hashes of strings.
        table: Sorted pairs of 64-bit halves; may be a memory map.
    """

    by: str | None
    digest: str
    kind: Literal["uid", "text"]
    table: Array = field(compare=False, repr=False)

    def __contains__(self, value: str) -> bool:
        pair = uid_pair(value) if self.kind == "uid" else _text_pair(value)
        if pair is None:
            return False
        position = bisect_left(self.table, pair, key=_pair_of)
        return position < len(self.table) and _pair_of(self.table[position]) == pair


class ShardSelection:
    """Applies the job's selection, if it has one, to the samples of one shard.

    Args:
        spec: The source section of the job.
        where: The shard's key, for messages.

    Raises:
        InputError, OSError: As for `load_selection`.
    """

    def __init__(self, spec: SourceSpec, where: str) -> None:
        self._selection = load_selection(spec)
        self._where = where
        self._num_unknown = 0
        self._first_unknown = ""

    @property
    def by(self) -> str | None:
        """The column or field that decides; None where none is needed."""
        return None if self._selection is None else self._selection.by

    @property
    def digest(self) -> str:
        """Of what is selected; empty where everything is."""
        return "" if self._selection is None else self._selection.digest

    def may_take(self, key: str) -> bool:
        """Whether the key alone does not rule the sample out."""
        return self._selection is None or self.by is not None or key in self._selection

    def takes(self, key: str, record: Mapping[str, Any]) -> bool:
        """Whether the sample is selected; one without the deciding field is counted and is not."""
        if self._selection is None:
            return True
        if self._selection.by is None:
            return key in self._selection
        value = record.get(self._selection.by)
        if value is None:
            self._first_unknown = self._first_unknown or key
            self._num_unknown += 1
            return False
        return str(value) in self._selection

    def problems(self) -> Iterable[Problem]:
        """What could not be judged."""
        if self._num_unknown:
            yield Problem(
                "source.not_selectable",
                f"{self._where}: {self._num_unknown} samples have no {self.by!r} and were not "
                f"selected; the first is {self._first_unknown!r}",
            )


def load_selection(spec: SourceSpec) -> Selection | None:
    """What the job selects, or None; each process reads a list once for each of its versions.

    Raises:
        InputError: The list is missing, or is no list of keys or uids.
        OSError: The store failed in a way that a retry may mend.
    """
    if spec.select is None:
        return None
    uri = absolute_uri(spec.select)
    with errors_of_field("source.select"):
        version = stat_input(uri, spec.storage_options).version
    return _load(_Address(uri, version, spec.select_by, spec.storage_options))


def selection_digest(spec: SourceSpec) -> str | None:
    """Digest of what the job selects, for the spec digest; None where it selects nothing.

    Raises:
        InputError: As for `load_selection`.
    """
    return ShardSelection(spec, "").digest or None


@dataclass(frozen=True, slots=True)
class _Address:
    uri: str
    version: str
    by: str | None
    storage_options: Mapping[str, Any] = field(compare=False)


@lru_cache(maxsize=2)
def _load(address: _Address) -> Selection:
    is_numpy = address.uri.lower().endswith(".npy")
    by, values = _numpy_values(address) if is_numpy else _parquet_values(address)
    if isinstance(values, np.ndarray):
        kind: Literal["uid", "text"] = "uid"
        table = values if _is_sorted(values) else np.sort(values)
    else:
        kind = "text"
        table = np.sort(np.array([_text_pair(value) for value in values], _PAIR))
    by = address.by or by
    content = hashlib.sha256(f"{kind} {by}\n".encode())
    content.update(np.ascontiguousarray(table).data.cast("B"))
    return Selection(by, content.hexdigest()[:32], kind, table)


def _numpy_values(address: _Address) -> tuple[str | None, Array | list[str]]:
    """Pairs of uids, or keys as strings; a local file of uids is mapped, not read."""
    try:
        if "://" in address.uri:
            data = io.BytesIO(read_input(address.uri, address.storage_options))
            values = np.load(data, allow_pickle=False)
        else:
            values = np.load(address.uri, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{address.uri} is no readable .npy file: {error}") from error
    if values.ndim == 1 and values.dtype.names and values.dtype == _PAIR:
        return UID, values
    if values.ndim == 1 and values.dtype.kind in "US":
        return None, [str(key) for key in values.astype(str)]
    raise InputError(
        f"{address.uri} has {values.ndim} dimension(s) of {values.dtype}: a selection is one "
        "dimension of keys (strings) or of uids (dtype 'u8,u8')"
    )


def _parquet_values(address: _Address) -> tuple[str | None, list[str]]:
    try:
        file = pq.ParquetFile(io.BytesIO(read_input(address.uri, address.storage_options)))
        names = file.schema_arrow.names
        wanted = (address.by,) if address.by in names else _COLUMNS
        column = next((name for name in wanted if name in names), None)
        values = file.read(columns=[column]).column(0) if column else None
    except pa.ArrowException as error:
        raise InputError(f"{address.uri} is no readable Parquet file: {error}") from error
    if values is None:
        raise InputError(
            f"{address.uri} has no column {' or '.join(_COLUMNS)}, only {', '.join(names)}: "
            "name the one to use in `select_by`"
        )
    by = UID if column == UID else None
    return by, [str(value) for value in values.to_pylist() if value is not None]


def _is_sorted(table: Array) -> bool:
    high, low = (table[name] for name in table.dtype.names or ())
    ties = (high[:-1] == high[1:]) & (low[:-1] <= low[1:])
    return bool(np.all((high[:-1] < high[1:]) | ties))


def _pair_of(row: Any) -> tuple[int, int]:
    high, low = row.item()
    return int(high), int(low)


def uid_pair(value: str) -> tuple[int, int] | None:
    """Both halves of a uid; None where the text is none."""
    try:
        number = int(value, 16) if len(value) == 32 else None
    except ValueError:
        return None
    return None if number is None else (number >> 64, number & (1 << 64) - 1)


def _text_pair(value: str) -> tuple[int, int]:
    """128 bits that stand for a string: 16 bytes a key, however long it is."""
    data = hashlib.blake2b(value.encode("utf-8", "surrogateescape"), digest_size=16).digest()
    return int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big")
