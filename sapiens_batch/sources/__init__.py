"""Where the images come from: one module for each way in which a corpus is stored.

`SOURCES` is the whole registry. Sources read bytes and metadata; decoding images is left to
`images`, judging boxes to `persons`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sapiens_batch.job.spec import SourceSpec
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.coco import CocoSource
from sapiens_batch.sources.images import ImagesSource
from sapiens_batch.sources.listing import ListingSource
from sapiens_batch.sources.parquet import ParquetSource
from sapiens_batch.sources.webdataset import WebDatasetSource
from sapiens_batch.storage.addresses import absolute_uri

SOURCES: Mapping[str, type[Source]] = MappingProxyType(
    {
        "webdataset": WebDatasetSource,
        "parquet": ParquetSource,
        "images": ImagesSource,
        "listing": ListingSource,
        "coco": CocoSource,
    }
)


def make_source(spec: SourceSpec) -> Source:
    """The source for a spec's `format`."""
    return SOURCES[spec.format](spec)


def with_absolute_addresses(spec: SourceSpec) -> SourceSpec:
    """The spec with paths that no longer depend on the working folder, for workers elsewhere."""
    root = None if spec.root is None else absolute_uri(spec.root)
    return spec.model_copy(update={"uri": [absolute_uri(uri) for uri in spec.uris], "root": root})
