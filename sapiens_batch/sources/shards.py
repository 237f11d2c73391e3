"""Make shards out of listed objects: one object each, or slices of a listing.

A shard's id comes from content addresses only: its source-relative key, its version and the names
of its members (invariant I4), never from a position, so that a corpus can move as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from sapiens_batch.errors import InputError
from sapiens_batch.records import Shard
from sapiens_batch.storage.input_errors import changed
from sapiens_batch.storage.inputs import InputObject, find_inputs


def make_shard_id(key: str, version: str, members: Sequence[str] = ()) -> str:
    """32 hex digits from the shard's key, version and member names."""
    return digest([key, version, *members])


def digest(names: Iterable[str]) -> str:
    """32 hex digits from strings, order kept."""
    whole = hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape"))
    return whole.hexdigest()[:32]


def object_shard(item: InputObject, *others: str) -> Shard:
    """The shard that is one whole object.

    Args:
        item: The object.
        others: Versions of what else decides its samples (a companion, a selection), or "".
    """
    version = joined_version(item.version, *others)
    shard_id = make_shard_id(item.key, version)
    return Shard(shard_id, item.key, item.uri, version, item.size_bytes)


def data_files(
    root: str, uris: Sequence[str], storage_options: Mapping[str, Any]
) -> list[InputObject]:
    """The data files that a table's metadata names, sorted by their names below the table.

    Raises:
        InputError: There is none, one is missing, or they cannot be listed.
    """
    found = find_inputs(uris, storage_options)
    if missing := [uri for uri in uris if uri not in found]:
        raise InputError(
            f"{len(missing)} of {len(uris)} data files of {root} do not exist, the first is "
            f"{missing[0]}: was an old snapshot vacuumed?"
        )
    if not found:
        raise InputError(f"{root} has no data file: the table is empty")
    folder = root.rstrip("/") + "/"
    objects = [replace(item, key=uri.removeprefix(folder)) for uri, item in found.items()]
    return sorted(objects, key=lambda item: item.key)


def joined_version(*versions: str) -> str:
    """One version for several objects; empty ones do not count."""
    return "+".join(filter(None, versions))


def slice_shards(
    root: str,
    names: Iterable[str],
    shard_samples: int,
    *,
    listed: Mapping[str, InputObject] | None = None,
    base_version: str = "",
) -> Iterator[Shard]:
    """Cut a listing into shards of `shard_samples` names, in the order given.

    Args:
        root: Folder or listing that the names are relative to.
        names: Source-relative image names.
        shard_samples: Names per shard.
        listed: What is known of the images by name; a change of size or version gives a new shard.
            None where looking up every image would be too slow.
        base_version: Version of the file that lists the names; `<base_version>-` starts the
            version of every slice, for `check_base_version`.
    """
    known = listed or {}
    remaining = iter(names)
    while members := tuple(islice(remaining, shard_samples)):
        objects = [known.get(name) for name in members]
        facts = [f"{item.size_bytes} {item.version}" if item else "missing" for item in objects]
        version = digest([*members, *facts]) if listed is not None else digest(members)
        if base_version:
            version = f"{digest([base_version])}-{version}"
        key = f"{members[0]}..{members[-1]}"
        size_bytes = sum(item.size_bytes for item in objects if item)
        shard_id = make_shard_id(key, version, members)
        fingerprints = tuple(item.fingerprint if item else "" for item in objects)
        yield Shard(shard_id, key, root, version, size_bytes, members, fingerprints)


def check_version(shard: Shard, *found: str) -> None:
    """Refuse to read what has changed since it was planned.

    Args:
        shard: The shard as it was planned.
        found: The versions that make up the shard's, found now.

    Raises:
        ChangedInputError: They are others.
    """
    if (version := joined_version(*found)) != shard.version:
        raise changed(shard.uri, shard.version, version)


def check_base_version(shard: Shard, base_version: str) -> None:
    """Refuse to read a slice whose listing has changed since it was planned.

    Raises:
        ChangedInputError: The listing has another version.
    """
    planned = shard.version.partition("-")[0]
    if (found := digest([base_version])) != planned:
        raise changed(shard.uri, planned, found)
