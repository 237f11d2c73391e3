"""Every path of a job directory, and the inverse for the keys that are listed.

Nothing else in the package writes a key as a string literal. `<xx>` is the first two hex digits of
a shard id and keeps folders small. Objects of a later generation of a shard carry its number, so
that no two generations share a key; tables, and roots of arrays beside the first one, carry the id
of the attempt that wrote them. Whether an object exists, and what is in it, is left to others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

JOB = "job.json"
PLAN = "plan/"
RECEIPTS = "receipts/"
TABLES = "tables/"
ARRAYS = "arrays/"
COMMITS = "commits/"
RELABEL = "relabel/"
SNAPSHOTS = "snapshots/"
RUNS = "runs/"

_SHARD = r"(?P<shard_id>[0-9a-f]{32})(?:\.(?!0000\b)(?P<generation>\d{4,}))?"
_CHUNK = r"(?P<chunk>\d{6,})"
_WRITE_ID = r"(?P<write_id>[0-9a-f]{32})"
_PLAN_DOCUMENT = re.compile(r"plan/(?P<number>\d{4,})\.json")
_RECEIPT = re.compile(rf"receipts/{_SHARD}/{_CHUNK}\.receipt")
_COMMIT = re.compile(rf"commits/[0-9a-f]{{2}}/{_SHARD}\.json")
_RELABEL = re.compile(rf"relabel/[0-9a-f]{{2}}/{_SHARD}\.json")
_SNAPSHOT = re.compile(r"snapshots/(?P<number>\d{8,})-(?P<digest>[0-9a-f]{64})\.parquet")
_JOURNAL = re.compile(
    r"runs/(?P<run>\d{8}T\d{6}Z-[0-9a-f]{8})/(?:(?P<writer>[a-z]+)-)?(?P<number>\d{4,})\.jsonl"
)
_TABLE = re.compile(rf"tables/(?P<name>[a-z]+)/[0-9a-f]{{2}}/{_SHARD}-{_WRITE_ID}\.parquet")
_ROOT = rf"arrays/(?P<name>[a-z]+)/[0-9a-f]{{2}}/{_SHARD}(?:-{_WRITE_ID})?\.zarr"
_ARRAY_CHUNK = re.compile(rf"{_ROOT}/c/(?P<chunk>\d+)(?:/0)*")
_ARRAY_DOCUMENT = re.compile(rf"{_ROOT}/zarr\.json")

Kind = Literal["receipt", "commit", "relabel", "table", "array_chunk", "array_document"]


@dataclass(frozen=True, slots=True)
class ObjectName:
    """What a listed key says about its object.

    Attributes:
        kind: What the object is.
        shard_id: The shard that it belongs to.
        chunk: The chunk that it belongs to, or None for objects of a whole shard.
        name: Table or task, or empty.
        write_id: The attempt whose own table or array root it is, or empty.
        generation: The generation of the shard, 0 for its first labels.
    """

    kind: Kind
    shard_id: str
    chunk: int | None = None
    name: str = ""
    write_id: str = ""
    generation: int = 0


def prefix(shard_id: str) -> str:
    """The folder `<xx>` of a shard."""
    return shard_id[:2]


def stem(shard_id: str, generation: int = 0) -> str:
    """The name under which a generation of a shard keeps its objects."""
    return shard_id if generation == 0 else f"{shard_id}.{generation:04d}"


def plan_table(number: int, write_id: str) -> str:
    """The Parquet file that lists the shards of one planning."""
    return f"{PLAN}{number:04d}-{write_id}.parquet"


def plan_document(number: int) -> str:
    """The document that makes a plan table valid."""
    return f"{PLAN}{number:04d}.json"


def receipts(shard_id: str, generation: int = 0) -> str:
    """The folder of a shard's receipts."""
    return f"{RECEIPTS}{stem(shard_id, generation)}/"


def receipt(shard_id: str, chunk: int, generation: int = 0) -> str:
    """The receipt of one chunk."""
    return f"{receipts(shard_id, generation)}{chunk:06d}.receipt"


def table(name: str, shard_id: str, write_id: str, generation: int = 0) -> str:
    """The rows of one shard."""
    return f"{TABLES}{name}/{prefix(shard_id)}/{stem(shard_id, generation)}-{write_id}.parquet"


def array(task: str, shard_id: str, generation: int = 0, write_id: str = "") -> str:
    """The root folder of a shard's Zarr array, without a trailing slash.

    With a `write_id` it is one attempt's own; without, the one that attempts try first.
    """
    own = f"-{write_id}" if write_id else ""
    return f"{ARRAYS}{task}/{prefix(shard_id)}/{stem(shard_id, generation)}{own}.zarr"


def array_document(root: str) -> str:
    """The `zarr.json` of the array under a root."""
    return f"{root}/zarr.json"


def array_chunk(root: str, chunk: int, row_ndim: int) -> str:
    """The Zarr shard object of one chunk under a root, for rows of `row_ndim` axes."""
    return f"{root}/c/{chunk}{'/0' * row_ndim}"


def array_root(key: str) -> str:
    """The root of the array that an object belongs to; the inverse of the two above."""
    return key.partition(".zarr/")[0] + ".zarr"


def commit(shard_id: str, generation: int = 0) -> str:
    """The commit of a shard."""
    return f"{COMMITS}{prefix(shard_id)}/{stem(shard_id, generation)}.json"


def relabel_order(shard_id: str, generation: int) -> str:
    """The order that asks for a later generation of a shard."""
    return f"{RELABEL}{prefix(shard_id)}/{stem(shard_id, generation)}.json"


def snapshot(number: int, digest: str) -> str:
    """A compaction of `number` commits with the given digest of its bytes."""
    return f"{SNAPSHOTS}{number:08d}-{digest}.parquet"


def journal(run: str, number: int, writer: str = "") -> str:
    """A segment of the journal of a run; each writer of a run counts its own."""
    return f"{RUNS}{run}/{writer}{'-' if writer else ''}{number:04d}.jsonl"


def parse_plan_document(key: str) -> int | None:
    """The number of a plan document, or None for any other key."""
    match = _PLAN_DOCUMENT.fullmatch(key)
    return int(match["number"]) if match else None


def parse_receipt(key: str) -> tuple[str, int, int] | None:
    """(shard_id, generation, chunk) of a receipt, or None for any other key."""
    match = _RECEIPT.fullmatch(key)
    return (match["shard_id"], _generation(match), int(match["chunk"])) if match else None


def parse_commit(key: str) -> tuple[str, int] | None:
    """(shard_id, generation) of a commit, or None for any other key."""
    match = _COMMIT.fullmatch(key)
    return (match["shard_id"], _generation(match)) if match else None


def parse_relabel_order(key: str) -> tuple[str, int] | None:
    """(shard_id, generation) of a relabel order, or None for any other key."""
    match = _RELABEL.fullmatch(key)
    return (match["shard_id"], _generation(match)) if match and match["generation"] else None


def parse_snapshot(key: str) -> tuple[int, str] | None:
    """(number of commits, digest) of a snapshot, or None for any other key."""
    match = _SNAPSHOT.fullmatch(key)
    return (int(match["number"]), match["digest"]) if match else None


def parse_journal(key: str) -> tuple[str, str, int] | None:
    """(run, writer, number) of a segment of a journal, or None for any other key."""
    match = _JOURNAL.fullmatch(key)
    return (match["run"], match["writer"] or "", int(match["number"])) if match else None


def parse(key: str) -> ObjectName | None:
    """What a key of a shard's object says, or None for keys that belong to no shard."""
    for kind, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(key):
            found = match.groupdict()
            chunk = found.get("chunk")
            return ObjectName(
                kind=kind,
                shard_id=found["shard_id"],
                chunk=None if chunk is None else int(chunk),
                name=found.get("name", ""),
                write_id=found.get("write_id") or "",
                generation=_generation(match),
            )
    return None


def _generation(match: re.Match[str]) -> int:
    return int(match["generation"] or 0)


_PATTERNS: dict[Kind, re.Pattern[str]] = {
    "receipt": _RECEIPT,
    "commit": _COMMIT,
    "relabel": _RELABEL,
    "table": _TABLE,
    "array_chunk": _ARRAY_CHUNK,
    "array_document": _ARRAY_DOCUMENT,
}
