"""The photos of samples on a sheet, read again from where the job found them.

Labels hold no pictures. A photo that cannot be read again is missing, never another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sapiens_batch.errors import SampleError
from sapiens_batch.images.decode import decode
from sapiens_batch.labelset.draw import Place
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Array, Problem, Shard
from sapiens_batch.sources.lookup import iter_encoded


def iter_photos(
    manifest: Manifest,
    places: Iterable[Place],
    source_options: Mapping[str, Any] | None,
    problems: list[Problem],
) -> Iterator[tuple[Place, Array | None]]:
    """Every place once, with its photo where it can be read again; one is in memory at a time.

    Args:
        manifest: The job.
        places: The samples.
        source_options: What the source's storage needs, passed to fsspec.
        problems: Gets an entry for each shard that cannot be read again.

    Yields:
        The place and (height, width, 3) uint8, upright; photos that are missing come last.

    Raises:
        InputError: The source is not known.
    """
    missing = dict.fromkeys(places)
    wanted: dict[str, set[int]] = {}
    for shard_id, index in missing:
        wanted.setdefault(shard_id, set()).add(index)

    def note(shard: Shard, error: Exception) -> None:
        problems.append(Problem("source.unreadable", f"{shard.key}: {error}"))

    for shard_id, sample in iter_encoded(
        manifest.job,
        manifest.shards(),
        wanted,
        storage_options=source_options,
        on_unreadable=note,
    ):
        if (place := (shard_id, sample.index)) in missing:
            del missing[place]
            yield place, decode_photo(sample.encoded)
    for place in missing:
        yield place, None


def decode_photo(encoded: bytes | None) -> Array | None:
    """(height, width, 3) uint8 of a source picture, or None where there is no whole picture."""
    if encoded is None:
        return None
    try:
        return decode(encoded).pixels
    except SampleError:
        return None
