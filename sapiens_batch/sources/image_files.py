"""Read images that are files of their own, named by a folder, a listing or a column.

A file that cannot be read becomes a `Problem` of its sample; a failing store is raised, because a
retry may mend it. Listing the files is left to the sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sapiens_batch.records import Problem, Shard
from sapiens_batch.storage.addresses import join_uri
from sapiens_batch.storage.input_errors import MissingInputError
from sapiens_batch.storage.reading import read_inputs

READ_TOGETHER = 16
"""Files held in memory at once; enough to hide the latency of an object store."""


def iter_images(
    shard: Shard, storage_options: Mapping[str, Any]
) -> Iterator[tuple[str, bytes | Problem]]:
    """Stream the members of a slice, in order, a few at a time.

    Raises:
        ChangedInputError: A file is another version than the planned one.
        OSError: The store failed in a way that a retry may mend.
    """
    for start in range(0, len(shard.members), READ_TOGETHER):
        part = slice(start, start + READ_TOGETHER)
        names, planned = shard.members[part], shard.fingerprints[part]
        yield from zip(names, read_images(shard.uri, names, storage_options, planned), strict=True)


def read_images(
    root: str,
    names: Sequence[str],
    storage_options: Mapping[str, Any],
    planned: Sequence[str] = (),
) -> list[bytes | Problem]:
    """Bytes of each file, or why there are none; absolute names and addresses are taken as such.

    Args:
        root: What other names are relative to.
        names: The files.
        storage_options: Passed to fsspec.
        planned: The fingerprint that each must have, as for `read_inputs`.

    Raises:
        ChangedInputError: One is another version than the planned one.
        OSError: The store failed in a way that a retry may mend.
    """
    contents: list[bytes | Problem] = []
    uris = [join_uri(root, name) for name in names]
    found = read_inputs(uris, storage_options, planned)
    for name, uri, content in zip(names, uris, found, strict=True):
        if isinstance(content, bytes):
            contents.append(content)
        elif isinstance(content, MissingInputError):
            contents.append(Problem("source.missing_file", f"{name!r}: {uri} does not exist"))
        else:
            contents.append(Problem("source.unreadable_file", f"{name!r}: {content}"))
    return contents
