"""Read images that are files of their own, named by a folder, a listing or a column.

A file that cannot be read becomes a `Problem` of its sample; a failing store is raised, because a
retry may mend it. Listing the files is left to the sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sapiens_batch.records import Problem
from sapiens_batch.storage.addresses import join_uri
from sapiens_batch.storage.filesystems import MissingInputError
from sapiens_batch.storage.inputs import read_inputs

READ_TOGETHER = 16
"""Files held in memory at once; enough to hide the latency of an object store."""


def iter_images(
    root: str, names: Sequence[str], storage_options: Mapping[str, Any]
) -> Iterator[tuple[str, bytes | Problem]]:
    """Stream files by name, in order, a few at a time.

    Raises:
        OSError: The store failed in a way that a retry may mend.
    """
    for start in range(0, len(names), READ_TOGETHER):
        group = names[start : start + READ_TOGETHER]
        yield from zip(group, read_images(root, group, storage_options), strict=True)


def read_images(
    root: str, names: Sequence[str], storage_options: Mapping[str, Any]
) -> list[bytes | Problem]:
    """Bytes of each file, or why there are none; absolute names and addresses are taken as such.

    Raises:
        OSError: The store failed in a way that a retry may mend.
    """
    contents: list[bytes | Problem] = []
    uris = [join_uri(root, name) for name in names]
    for name, uri, content in zip(names, uris, read_inputs(uris, storage_options), strict=True):
        if isinstance(content, bytes):
            contents.append(content)
        elif isinstance(content, MissingInputError):
            contents.append(Problem("source.missing_file", f"{name!r}: {uri} does not exist"))
        else:
            contents.append(Problem("source.unreadable_file", f"{name!r}: {content}"))
    return contents
