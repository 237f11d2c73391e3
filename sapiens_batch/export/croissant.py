"""Croissant 1.1: the tables of a job as Parquet, described so that `mlcroissant` loads records.

The tables are copied, with the chosen samples only, so that the folder stands for itself. Every
file is listed with its checksum; the columns follow from the label schemas, as do their types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from sapiens_batch.export.base import Exporter, ExportOptions, Labeled, Made, ShardToExport
from sapiens_batch.export.documents import Finished
from sapiens_batch.export.provenance import summary
from sapiens_batch.export.records import as_lists, columns, values
from sapiens_batch.export.spool import Spool
from sapiens_batch.records import ColumnField, Level
from sapiens_batch.sinks.parquet import column_type

_GROUP_ROWS: Final = 1024
_PARQUET: Final = "application/x-parquet"
_TYPES: Final = {"i": "sc:Integer", "u": "sc:Integer", "f": "sc:Float"}
_CROISSANT = (
    "annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract",
    "field", "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray",
    "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "readLines", "recordSet",
    "references", "regex", "repeated", "replace", "samplingRate", "sdVersion", "separator",
    "source", "subField", "transform", "unArchive", "value",
)  # fmt: skip
_CONTEXT: Final[Mapping[str, Any]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _CROISSANT},
}
"""The JSON-LD context that the specification recommends."""


class CroissantOptions(ExportOptions):
    """Options of `croissant`."""

    creator: str = Field(default="unknown", description="Who publishes the dataset.")
    licence: str = Field(
        default="", description="URL or SPDX id of the licence; default: those of the models."
    )
    url: str = Field(default="", description="Where the dataset is described.")
    cite_as: str = Field(default="", description="How to cite the dataset, BibTeX.")
    version: str = Field(default="1.0.0", description="Version of the dataset.")


class CroissantExporter(Exporter[CroissantOptions]):
    """`images/`, `persons/` and `croissant.json`."""

    name = "croissant"
    options_type = CroissantOptions

    def prepare(self) -> None:
        """Decide the columns of both tables."""
        images, persons = (columns(self.labels, level) for level in Level)
        identity = [one for one in images if one.name in ("key", "shard_id", "index")]
        self._columns = {Level.IMAGE: images, Level.PERSON: [*identity, *persons]}

    def shard(self, shard: ShardToExport) -> Iterator[Made]:
        """The tables of a shard; none without rows."""
        schemas = {
            level: pa.schema([(one.name, column_type(one)) for one in fields])
            for level, fields in self._columns.items()
        }
        counts = dict.fromkeys(Level, 0)
        samples = iter(shard.samples)
        with Spool() as images, Spool() as persons:
            spools = {Level.IMAGE: images, Level.PERSON: persons}
            writers = {
                level: pq.ParquetWriter(spools[level].file, schemas[level], compression="zstd")
                for level in Level
            }
            while group := list(islice(samples, _GROUP_ROWS)):
                for level in Level:
                    rows = [row for sample in group for row in self._rows(level, sample)]
                    writers[level].write_table(pa.Table.from_pylist(rows, schemas[level]))
                    counts[level] += len(rows)
            for level in Level:
                writers[level].close()
                if counts[level]:
                    key = f"{level.table}/{shard.number:06d}.parquet"
                    yield Made(key, spools[level].view(), counts[level])

    def finish(self, finished: Finished) -> Iterator[Made]:
        """`croissant.json`."""
        document = json.dumps(self._document(finished), indent=1, ensure_ascii=False)
        yield Made("croissant.json", document.encode())

    def _rows(self, level: Level, sample: Labeled) -> Iterator[dict[str, Any]]:
        if level is Level.IMAGE:
            yield as_lists(values(self.labels, level, sample.labels.row))
            return
        for person in sample.labels.persons:
            yield {**sample.identity, **as_lists(values(self.labels, level, person))}

    def _document(self, finished: Finished) -> dict[str, Any]:
        files = [
            _file(stored.key, stored.size_bytes, stored.sha256)
            for receipt in finished.receipts()
            for stored in receipt.objects
        ]
        tables = [one for one in Level if any(f["@id"].startswith(one.table + "/") for f in files)]
        licences = sorted(set(self.origin["licences"].values()))
        return {
            "@context": dict(_CONTEXT),
            "@type": "sc:Dataset",
            "conformsTo": "http://mlcommons.org/croissant/1.1",
            "name": self.origin["job"],
            "description": summary(self.origin),
            "license": [self.options.licence] if self.options.licence else licences,
            "url": self.options.url or f"urn:sapiens-batch:{self.origin['spec_digest']}",
            "citeAs": self.options.cite_as or self._bibtex(),
            "version": self.options.version,
            "datePublished": self.origin["created"],
            "creator": {"@type": "sc:Organization", "name": self.options.creator},
            "prov:wasGeneratedBy": {
                "@type": "prov:Activity",
                "prov:label": self.origin["made_by"],
                "prov:used": [
                    f"{one.get('model')} {one.get('weights_sha256') or ''}".strip()
                    for one in self.origin["tasks"].values()
                ],
            },
            "distribution": [*(_file_set(level) for level in tables), *files],
            "recordSet": [self._record_set(level) for level in tables],
        }

    def _bibtex(self) -> str:
        digest, name = self.origin["spec_digest"][:12], self.origin["job"]
        return f"@misc{{{digest}, title = {{{name}}}, note = {{{self.origin['made_by']}}}}}"

    def _record_set(self, level: Level) -> dict[str, Any]:
        table = level.table
        keys = ["shard_id", "index"] + (["person"] if level is Level.PERSON else [])
        return {
            "@type": "cr:RecordSet",
            "@id": table,
            "name": table,
            "description": "one row a sample" if level is Level.IMAGE else "one row a person",
            "key": [{"@id": f"{table}/{name}"} for name in keys],
            "field": [_field(table, column) for column in self._columns[level]],
        }


def _file(key: str, size_bytes: int, sha256: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject", "@id": key, "name": key, "contentUrl": key,
        "contentSize": f"{size_bytes} B", "encodingFormat": _PARQUET, "sha256": sha256,
    }  # fmt: skip


def _file_set(level: Level) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet", "@id": f"{level.table}-files", "name": f"{level.table}-files",
        "encodingFormat": _PARQUET, "includes": f"{level.table}/*.parquet",
    }  # fmt: skip


def _field(table: str, column: ColumnField) -> dict[str, Any]:
    text = column.dtype == "string"
    unit = f" [{column.unit}]" if column.unit else ""
    field: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"{table}/{column.name}",
        "name": f"{table}/{column.name}",
        "description": (column.description or column.name) + unit,
        "dataType": "sc:Text" if text else _TYPES[np.dtype(column.dtype).kind],
        "source": {
            "fileSet": {"@id": f"{table}-files"},
            "extract": {"column": column.name},
        },
    }
    if column.shape:
        field |= {"isArray": True, "arrayShape": ",".join(str(size) for size in column.shape)}
    return field
