"""Every way to read a finished job, each as a digest of all values that it hands out."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from sapiens_batch.curate.select import matching
from sapiens_batch.export import ExportRequest, export_labels
from sapiens_batch.labelset import LabelSet, quarantined
from sapiens_batch.labelset.joined import join_labels
from sapiens_batch.preview import PreviewOptions, Selection, write_preview
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.report.tally import tally
from sapiens_batch.search.vectors import read_vectors
from sapiens_batch.sheets.panels import PanelOptions
from sapiens_batch.storage import open_store

Read = Callable[[Path, LabelSet], Iterator[Any]]


def digest(read: Read, job: Path, labels: LabelSet) -> str:
    """Digest of everything that a read gives, in order."""
    found = hashlib.sha256()
    for value in read(job, labels):
        _add(found, value)
    return found.hexdigest()


def tables(job: Path, labels: LabelSet) -> Iterator[Any]:
    yield labels.images.to_table()
    yield labels.persons.to_table()


def columns(job: Path, labels: LabelSet) -> Iterator[Any]:
    yield labels.images.to_table(columns=["key", "num_persons"])
    yield labels.persons.to_table(columns=["bbox"], filter=ds.field("index") > 2)
    yield labels.images.count_rows()
    yield tuple(one.key for one in quarantined(Manifest.open(open_store(str(job)))))


def samples(job: Path, labels: LabelSet) -> Iterator[Any]:
    """Sample by sample, each array by ranges."""
    shard_id = sorted(labels.shards)[0]
    for sample in (
        labels.sample("sample-000001"),
        labels.sample_at(shard_id, 0),
        labels.sample_at(shard_id, 3),
    ):
        yield from _sample_values(sample)


def walk(job: Path, labels: LabelSet) -> Iterator[Any]:
    """All samples in order, each array object as a whole."""
    for sample in labels.samples():
        yield from _sample_values(sample)


def ranges(job: Path, labels: LabelSet) -> Iterator[Any]:
    """Every row of every array by ranges, as objects of some size are read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sapiens_batch.labelset.arrays.SMALL_OBJECT_BYTES", 0)
        yield from arrays(job, labels)


def arrays(job: Path, labels: LabelSet) -> Iterator[Any]:
    """Every row of every array: one, selected, and in one go."""
    for task, schema in labels.schemas.items():
        if schema.array is None:
            continue
        array = labels.array(task)
        for shard_id, shard in labels.shards.items():
            for row in range(shard.num_samples):
                yield array.row(shard_id, row)
            yield array[shard_id, 0:3]
            yield from (values for _, values in array.rows(shard_id))


def statistics(job: Path, labels: LabelSet) -> Iterator[Any]:
    """What reports, curating, search and comparing two jobs read."""
    yield repr(tally(labels))
    yield matching(labels, "num_persons > 0 AND body_score > 0.1")
    _, vectors = read_vectors(labels, sorted(labels.shards), "embedding")
    yield vectors
    yield join_labels(labels, labels).places


def torch(job: Path, labels: LabelSet) -> Iterator[Any]:
    dataset: Any = labels.to_torch(["seg", "pose"], size="frame")
    yield from (_flat(dataset[position]) for position in range(len(dataset)))
    yield from map(_flat, labels.to_torch_stream(["normal"], seed=1))


def exported(format_name: str) -> Read:
    """The objects of an export."""

    def read(job: Path, labels: LabelSet) -> Iterator[Any]:
        with tempfile.TemporaryDirectory() as name:
            export_labels(format_name, ExportRequest(str(job), name, {}))
            for path in sorted(Path(name).rglob("*")):
                if path.is_file() and ".export" not in path.parts:
                    yield path.relative_to(name).as_posix()
                    yield path.read_bytes()

    return read


def preview(job: Path, labels: LabelSet) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as name:
        options = PreviewOptions(Selection(count=2, wanted="status = 'ok'"), PanelOptions(side=48))
        shown = write_preview(Manifest.open(open_store(str(job))), Path(name) / "p.html", options)
        yield (Path(name) / "p.html").read_bytes() if shown.cards else b""


QUICK: dict[str, Read] = {
    read.__name__: read for read in (tables, columns, samples, walk, arrays, ranges)
}
SLOW: dict[str, Read] = {
    "statistics": statistics,
    "torch": torch,
    "coco": exported("coco"),
    "webdataset": exported("webdataset"),
    "huggingface": exported("huggingface"),
    "croissant": exported("croissant"),
    "png": exported("png"),
    "preview": preview,
}


def _sample_values(sample: Any) -> Iterator[Any]:
    yield _flat(sample.row)
    yield from map(_flat, sample.persons)
    for task in sample.arrays:
        yield sample.array(task)


def _flat(item: Any) -> list[Any]:
    return [value for pair in sorted(item.items()) for value in pair]


def _add(found: Any, value: Any) -> None:
    if isinstance(value, pa.Table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value.combine_chunks())
        found.update(sink.getvalue())
    elif isinstance(value, list):
        for one in value:
            _add(found, one)
    elif hasattr(value, "shape"):
        array = np.asarray(value)
        found.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    else:
        found.update(value if isinstance(value, bytes) else repr(value).encode())
