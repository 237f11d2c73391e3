"""The Parquet that img2dataset writes beside a tar: a row for every URL, downloaded or not.

Gives the columns that a job keeps, joined by key, and what the tar should hold. A URL that could
not be downloaded is no sample: the tar has nothing under its key. It is counted in a note. A row
that says `success` without a member in the tar is damage, and is reported with its key.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from sapiens_batch.errors import InputError
from sapiens_batch.records import Problem
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage.addresses import join_uri, parent_uri
from sapiens_batch.storage.input_errors import MissingInputError, changed
from sapiens_batch.storage.inputs import InputObject, find_inputs, stat_input
from sapiens_batch.storage.reading import open_input

SUCCESS = "success"
"""What img2dataset writes into `status` for an image that is in the shard."""

SHOWN_KEYS = 10


@dataclass(frozen=True, slots=True)
class Companion:
    """What a companion says about the samples of its tar; empty where there is none.

    Attributes:
        name: Its file name, for messages.
        fields: Columns that it gives, of those that the job needs.
        rows: Their values, by the key of each sample that the tar should hold.
        failed: How many rows have each other status.
        damage: Why it cannot be used, or what is wrong with it.
    """

    name: str = ""
    fields: frozenset[str] = frozenset()
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    damage: Problem | None = None

    def problems(self, seen: Set[str]) -> Iterator[Problem]:
        """What is wrong with the companion, and where it and the tar disagree.

        Args:
            seen: Keys that the tar holds.
        """
        if self.damage is not None:
            yield self.damage
        if self.failed:
            yield not_downloaded(self.name, self.failed)
        if missing := sorted(self.rows.keys() - seen):
            shown = ", ".join(map(repr, missing[:SHOWN_KEYS]))
            yield Problem(
                "source.missing_member",
                f"{self.name}: {len(missing)} rows say {SUCCESS!r} but the tar has nothing under "
                f"their keys: {shown}{', …' if len(missing) > SHOWN_KEYS else ''}",
            )


def not_downloaded(where: str, failed: Mapping[str, int]) -> Problem:
    """The note on rows whose image was never downloaded, by status."""
    counts = ", ".join(f"{failed[status]} {status}" for status in sorted(failed))
    return Problem(
        "source.not_downloaded",
        f"{where}: {sum(failed.values())} rows have no image because its download failed "
        f"({counts}); they are no samples of the shard",
    )


def companion_uri(tar_uri: str, spec: SourceSpec) -> str | None:
    """Where the companion of a tar is, if there is one; None where the job wants none."""
    if spec.companion == "none":
        return None
    stem = posixpath.basename(tar_uri).partition(".")[0]
    pattern = "{stem}.parquet" if spec.companion == "auto" else spec.companion
    return join_uri(parent_uri(tar_uri), pattern.replace("{stem}", stem))


def companion_versions(tars: Sequence[InputObject], spec: SourceSpec) -> list[str]:
    """The version of each tar's companion, empty where it has none; for planning.

    Raises:
        InputError: A companion that the job names does not exist, or they cannot be listed.
    """
    uris = [companion_uri(tar.uri, spec) or "" for tar in tars]
    found = find_inputs([uri for uri in uris if uri], spec.storage_options)
    missing = [uri for uri in uris if uri and uri not in found]
    if missing and spec.companion != "auto":
        raise InputError(
            f"{len(missing)} of {len(tars)} companions do not exist, the first is {missing[0]}: "
            f"check `companion: {spec.companion}`"
        )
    return [found[uri].version if uri in found else "" for uri in uris]


def companion_version(tar_uri: str, spec: SourceSpec) -> str:
    """The version of one tar's companion, asked of the store now; empty where it has none.

    Raises:
        OSError: The store failed in a way that a retry may mend.
    """
    uri = companion_uri(tar_uri, spec)
    try:
        return stat_input(uri, spec.storage_options).version if uri else ""
    except MissingInputError:
        return ""


def read_companion(
    tar_uri: str, spec: SourceSpec, needed: Collection[str], version: str
) -> Companion:
    """Read a companion that exists; one that cannot be used is empty and says why.

    Args:
        tar_uri: Address of the tar.
        spec: The source section of the job.
        needed: Columns to take, as far as it has them.
        version: Its version, as `companion_version` found it.

    Raises:
        ChangedInputError: It is another version by now.
        OSError: The store failed in a way that a retry may mend.
    """
    uri = companion_uri(tar_uri, spec) or ""
    name = posixpath.basename(uri)
    with open_input(uri, spec.storage_options) as stream:
        if stream.version != version:
            raise changed(uri, version, stream.version)
        try:
            file = pq.ParquetFile(cast("IO[bytes]", stream))
            names = file.schema_arrow.names
            fields = [field for field in dict.fromkeys(needed) if field in names]
            if "key" not in names:
                return _without_keys(name, names, spec)
            status = ["status"] if "status" in names else []
            table = file.read(columns=list(dict.fromkeys(["key", *status, *fields])))
        except (pa.ArrowException, OSError) as error:
            stream.raise_failure()
            return Companion(name, damage=Problem("source.corrupt", f"{name}: {error}"))
    return _companion(name, table, fields)


def _without_keys(name: str, names: Sequence[str], spec: SourceSpec) -> Companion:
    """A Parquet that is no companion: passed over, unless the job says that it is one."""
    if spec.companion == "auto":
        return Companion()
    message = f"{name} has no column 'key' to join by, only {', '.join(names)}"
    return Companion(name, damage=Problem("source.missing_column", message))


def _companion(name: str, table: pa.Table, fields: Sequence[str]) -> Companion:
    rows: dict[str, Mapping[str, Any]] = {}
    failed: Counter[str] = Counter()
    num_repeated = 0
    for row in table.to_pylist():
        key, status = str(row["key"]), row.get("status", SUCCESS)
        if status != SUCCESS:
            failed[str(status)] += 1
            continue
        num_repeated += key in rows
        rows.setdefault(key, {field: row[field] for field in fields})
    damage = None
    if num_repeated:
        message = f"{name}: {num_repeated} rows repeat the key of an earlier row and were ignored"
        damage = Problem("source.duplicate_key", message)
    return Companion(name, frozenset(fields), rows, failed, damage)
