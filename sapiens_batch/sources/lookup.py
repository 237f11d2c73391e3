"""The encoded pictures of chosen samples, read again from where the job found them.

Labels hold no pictures. Which samples are wanted is left to the caller, decoding to `images`. A
picture is only given if its shard is still the planned version, so that it is the labeled one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from sapiens_batch.errors import InputError, SapiensBatchError
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.records import Sample, Shard
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec

OnUnreadable = Callable[[Shard, Exception], None]


def source_spec(job: JobDocument, storage_options: Mapping[str, Any] | None = None) -> SourceSpec:
    """The source section of a job.

    Args:
        job: The job's document, which holds no secrets.
        storage_options: What the source's storage needs, passed to fsspec.

    Raises:
        InputError: The document has no source that this version knows.
    """
    try:
        spec = SourceSpec.model_validate(job.spec.get("source"))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"job.json of {job.name!r}: its source cannot be read again: "
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error
    return spec.model_copy(update={"storage_options": dict(storage_options or {})})


def iter_encoded(
    job: JobDocument,
    shards: Iterable[Shard],
    wanted: Mapping[str, Collection[int]],
    *,
    storage_options: Mapping[str, Any] | None = None,
    on_unreadable: OnUnreadable | None = None,
) -> Iterator[tuple[str, Sample]]:
    """Stream the wanted samples, shard by shard, in stored order.

    One sample is in memory at a time. A shard is read up to its last wanted sample.

    Args:
        job: The job's document.
        shards: Planned shards; those without a wanted sample are skipped.
        wanted: Indices of samples by shard id.
        storage_options: What the source's storage needs, passed to fsspec.
        on_unreadable: Called for a shard that is gone, changed or cannot be read on; without it
            the error is raised.

    Yields:
        (shard_id, sample); the sample's `encoded` is None where the source has no bytes.

    Raises:
        InputError: The source is not known, or a shard is gone or has changed.
        OSError: The store failed in a way that a retry may mend.
    """
    source = make_source(source_spec(job, storage_options))
    for shard in shards:
        indices = set(wanted.get(shard.shard_id, ()))
        if not indices:
            continue
        last = max(indices)
        try:
            for item in source.read(shard):
                if not isinstance(item, Sample):
                    continue
                if item.index in indices:
                    yield shard.shard_id, item
                if item.index >= last:
                    break
        except (SapiensBatchError, OSError) as error:
            if on_unreadable is None:
                raise
            on_unreadable(shard, error)
