"""Write small tar and Parquet shards, whole or damaged, for the source tests."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from sapiens_batch.records import Problem, Sample
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec

Members = Sequence[tuple[str, bytes]]


def tar_bytes(members: Members, tar_format: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar archive of regular files, ended as it should be."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def read_shard(
    path: Path | str, source_format: str = "webdataset", **fields: object
) -> tuple[list[Sample], list[Problem]]:
    """Samples and problems of the only shard at `path`."""
    spec = SourceSpec.model_validate({"format": source_format, "uri": str(path), **fields})
    source = make_source(spec)
    (shard,) = source.plan()
    items = list(source.read(shard))
    samples = [item for item in items if isinstance(item, Sample)]
    return samples, [item for item in items if isinstance(item, Problem)]


def read_tar(
    folder: Path, content: bytes | Members, **fields: object
) -> tuple[list[Sample], list[Problem]]:
    """Samples and problems of a tar with this content."""
    path = folder / "shard.tar"
    path.write_bytes(content if isinstance(content, bytes) else tar_bytes(content))
    return read_shard(path, **fields)


def good_keys(samples: Sequence[Sample]) -> list[str]:
    """Keys of the samples that can be labeled."""
    return [sample.key for sample in samples if sample.problem is None]


def reasons(samples: Sequence[Sample]) -> dict[str, str]:
    """Reason by key of the samples that cannot; the last one where a key is repeated."""
    return {sample.key: sample.problem.reason for sample in samples if sample.problem}
