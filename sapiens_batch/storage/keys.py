"""Every path of a job directory, and the inverse for the keys that are listed.

Nothing else in the package writes a key as a string literal. `<xx>` is the first two hex digits of
a shard id and keeps folders small. Whether an object exists, and what is in it, is left to others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

JOB = "job.json"
PLAN = "plan/"
ATTEMPTS = "attempts/"
RECEIPTS = "receipts/"
PARTS = "parts/"
TABLES = "tables/"
ARRAYS = "arrays/"
COMMITS = "commits/"
SNAPSHOTS = "snapshots/"

TableName = Literal["images", "persons"]

_SHARD = r"(?P<shard_id>[0-9a-f]{32})"
_CHUNK = r"(?P<chunk>\d{6,})"
_WRITE_ID = r"(?P<write_id>[0-9a-f]{32})"
_PLAN_DOCUMENT = re.compile(r"plan/(?P<number>\d{4,})\.json")
_RECEIPT = re.compile(rf"receipts/{_SHARD}/{_CHUNK}\.json")
_COMMIT = re.compile(rf"commits/[0-9a-f]{{2}}/{_SHARD}\.json")
_ATTEMPT = re.compile(rf"attempts/{_SHARD}/{_CHUNK}/{_WRITE_ID}")
_PART = re.compile(rf"parts/(?P<name>[a-z]+)/{_SHARD}/{_CHUNK}-{_WRITE_ID}\.parquet")
_TABLE = re.compile(rf"tables/(?P<name>[a-z]+)/[0-9a-f]{{2}}/{_SHARD}-{_WRITE_ID}\.parquet")
_ARRAY_CHUNK = re.compile(
    rf"arrays/(?P<name>[a-z]+)/[0-9a-f]{{2}}/{_SHARD}\.zarr/c/(?P<chunk>\d+)(?:/0)*"
)
_ARRAY_DOCUMENT = re.compile(rf"arrays/(?P<name>[a-z]+)/[0-9a-f]{{2}}/{_SHARD}\.zarr/zarr\.json")


@dataclass(frozen=True, slots=True)
class ObjectName:
    """What a listed key says about its object.

    Attributes:
        kind: What the object is.
        shard_id: The shard that it belongs to.
        chunk: The chunk that it belongs to, or None for objects of a whole shard.
        name: Table or task, or empty.
        write_id: The attempt that wrote it, or empty for deterministic keys.
    """

    kind: Literal["receipt", "commit", "attempt", "part", "table", "array_chunk", "array_document"]
    shard_id: str
    chunk: int | None = None
    name: str = ""
    write_id: str = ""


def prefix(shard_id: str) -> str:
    """The folder `<xx>` of a shard."""
    return shard_id[:2]


def plan_table(number: int) -> str:
    """The Parquet file that lists the shards of one planning."""
    return f"{PLAN}{number:04d}.parquet"


def plan_document(number: int) -> str:
    """The document that makes a plan table valid."""
    return f"{PLAN}{number:04d}.json"


def receipts(shard_id: str) -> str:
    """The folder of a shard's receipts."""
    return f"{RECEIPTS}{shard_id}/"


def receipt(shard_id: str, chunk: int) -> str:
    """The receipt of one chunk."""
    return f"{RECEIPTS}{shard_id}/{chunk:06d}.json"


def attempts(shard_id: str, chunk: int) -> str:
    """The folder of a chunk's attempts."""
    return f"{ATTEMPTS}{shard_id}/{chunk:06d}/"


def attempt(shard_id: str, chunk: int, write_id: str) -> str:
    """The mark that an attempt at a chunk began."""
    return f"{attempts(shard_id, chunk)}{write_id}"


def part(table: str, shard_id: str, chunk: int, write_id: str) -> str:
    """The rows of one chunk, until the shard is sealed."""
    return f"{PARTS}{table}/{shard_id}/{chunk:06d}-{write_id}.parquet"


def table(name: str, shard_id: str, write_id: str) -> str:
    """The rows of one shard."""
    return f"{TABLES}{name}/{prefix(shard_id)}/{shard_id}-{write_id}.parquet"


def array(task: str, shard_id: str) -> str:
    """The root folder of a shard's Zarr array, without a trailing slash."""
    return f"{ARRAYS}{task}/{prefix(shard_id)}/{shard_id}.zarr"


def array_document(task: str, shard_id: str) -> str:
    """The `zarr.json` of a shard's array."""
    return f"{array(task, shard_id)}/zarr.json"


def array_chunk(task: str, shard_id: str, chunk: int, row_ndim: int) -> str:
    """The Zarr shard object of one chunk, for rows of `row_ndim` axes."""
    return f"{array(task, shard_id)}/c/{chunk}{'/0' * row_ndim}"


def commit(shard_id: str) -> str:
    """The commit of a shard."""
    return f"{COMMITS}{prefix(shard_id)}/{shard_id}.json"


def parse_plan_document(key: str) -> int | None:
    """The number of a plan document, or None for any other key."""
    match = _PLAN_DOCUMENT.fullmatch(key)
    return int(match["number"]) if match else None


def parse_receipt(key: str) -> tuple[str, int] | None:
    """(shard_id, chunk) of a receipt, or None for any other key."""
    match = _RECEIPT.fullmatch(key)
    return (match["shard_id"], int(match["chunk"])) if match else None


def parse_commit(key: str) -> str | None:
    """The shard id of a commit, or None for any other key."""
    match = _COMMIT.fullmatch(key)
    return match["shard_id"] if match else None


def parse(key: str) -> ObjectName | None:
    """What a key of a shard's object says, or None for keys that belong to no shard."""
    if match := _RECEIPT.fullmatch(key):
        return ObjectName("receipt", match["shard_id"], int(match["chunk"]))
    if match := _COMMIT.fullmatch(key):
        return ObjectName("commit", match["shard_id"])
    if match := _ATTEMPT.fullmatch(key):
        return ObjectName(
            "attempt", match["shard_id"], int(match["chunk"]), write_id=match["write_id"]
        )
    if match := _PART.fullmatch(key):
        return ObjectName(
            "part", match["shard_id"], int(match["chunk"]), match["name"], match["write_id"]
        )
    if match := _TABLE.fullmatch(key):
        return ObjectName("table", match["shard_id"], None, match["name"], match["write_id"])
    if match := _ARRAY_CHUNK.fullmatch(key):
        return ObjectName("array_chunk", match["shard_id"], int(match["chunk"]), match["name"])
    if match := _ARRAY_DOCUMENT.fullmatch(key):
        return ObjectName("array_document", match["shard_id"], None, match["name"])
    return None
