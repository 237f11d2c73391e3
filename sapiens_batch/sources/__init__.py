"""Where the images come from: one module for each way in which a corpus is stored.

`SOURCES` is the whole registry. Sources read bytes and metadata; decoding images is left to
`images`, judging boxes to `persons`. From an address to chunks:

- `shards` makes shards of what was found and says when one has changed, `selection` says which
  samples are wanted;
- tars: `tar` streams members, `names` judges them, `grouping` makes samples of them, `img2dataset`
  adds what lies beside the tar;
- tables: `table_files` streams rows, `columns` says what columns mean, `rows` makes samples;
- images that are files of their own: `image_files`;
- boxes, scores and kept columns of any of them: `fields`;
- `chunks` cuts what a source yields into the rows that flow; `lookup` reads chosen samples again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sapiens_batch.sources.base import Source
from sapiens_batch.sources.coco import CocoSource
from sapiens_batch.sources.delta import DeltaSource
from sapiens_batch.sources.huggingface import HuggingFaceSource
from sapiens_batch.sources.iceberg import IcebergSource
from sapiens_batch.sources.images import ImagesSource
from sapiens_batch.sources.lance import LanceSource
from sapiens_batch.sources.listing import ListingSource
from sapiens_batch.sources.parquet import ParquetSource
from sapiens_batch.sources.selection import selection_digest
from sapiens_batch.sources.webdataset import WebDatasetSource
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage.addresses import absolute_uri

__all__ = ["SOURCES", "Source", "make_source", "selection_digest", "with_absolute_addresses"]

SOURCES: Mapping[str, type[Source]] = MappingProxyType(
    {
        "webdataset": WebDatasetSource,
        "parquet": ParquetSource,
        "images": ImagesSource,
        "listing": ListingSource,
        "coco": CocoSource,
        "huggingface": HuggingFaceSource,
        "lance": LanceSource,
        "delta": DeltaSource,
        "iceberg": IcebergSource,
    }
)


def make_source(spec: SourceSpec) -> Source:
    """The source for a spec's `format`."""
    return SOURCES[spec.format](spec)


def with_absolute_addresses(spec: SourceSpec) -> SourceSpec:
    """The spec with paths that no longer depend on the working folder, for workers elsewhere."""
    update: dict[str, object] = {"uri": [absolute_uri(uri) for uri in spec.uris]}
    for name in ("root", "select"):
        if value := getattr(spec, name):
            update[name] = absolute_uri(value)
    return spec.model_copy(update=update)
