"""Labels in the formats of other tools: one module for each, all streamed, sharded and resumable.

`EXPORTERS` is the whole registry. Exports are made from committed labels and never change a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sapiens_batch.errors import SpecError
from sapiens_batch.export.base import Exporter
from sapiens_batch.export.clip_retrieval import ClipRetrievalExporter
from sapiens_batch.export.coco import CocoExporter
from sapiens_batch.export.croissant import CroissantExporter
from sapiens_batch.export.datacomp import DataCompExporter
from sapiens_batch.export.fiftyone import FiftyOneExporter
from sapiens_batch.export.huggingface import HuggingFaceExporter
from sapiens_batch.export.ply import PlyExporter
from sapiens_batch.export.png import PngExporter
from sapiens_batch.export.run import ExportRequest, ExportSummary, run_export
from sapiens_batch.export.webdataset import WebDatasetExporter

__all__ = ["EXPORTERS", "ExportRequest", "ExportSummary", "export_labels"]

EXPORTERS: Mapping[str, type[Exporter[Any]]] = {
    one.name: one
    for one in (
        CocoExporter,
        FiftyOneExporter,
        HuggingFaceExporter,
        WebDatasetExporter,
        ClipRetrievalExporter,
        DataCompExporter,
        PngExporter,
        PlyExporter,
        CroissantExporter,
    )
}


def export_labels(format_name: str, request: ExportRequest) -> ExportSummary:
    """Export a job, or continue an export that was interrupted.

    Raises:
        SpecError: The format or an option is unknown.
        SapiensBatchError: As for `run_export`.
    """
    return run_export(exporter(format_name), request)


def exporter(format_name: str) -> type[Exporter[Any]]:
    """The exporter of a format.

    Raises:
        SpecError: There is none.
    """
    if format_name not in EXPORTERS:
        raise SpecError(f"export: unknown format {format_name!r}; known are {', '.join(EXPORTERS)}")
    return EXPORTERS[format_name]
