"""Where exported labels come from: job, models, licences, and a warning where they mean nothing.

Every exporter puts this beside its data, in the place that its format has for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sapiens_batch import __version__
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.records import LabelSchema
from sapiens_batch.sinks.base import CONVENTIONS

_MODEL_FIELDS = ("model", "revision", "weights_sha256", "architecture", "licence", "warning")


def provenance(job: JobDocument, schemas: Mapping[str, LabelSchema]) -> dict[str, Any]:
    """The origin of a job's labels as JSON values."""
    tasks = {
        task: {name: schema.metadata[name] for name in _MODEL_FIELDS if name in schema.metadata}
        for task, schema in schemas.items()
    }
    return {
        "job": job.name,
        "created": job.created,
        "spec_digest": job.spec_digest,
        "made_by": f"sapiens_batch {job.versions.get('sapiens-batch', __version__)}",
        "exported_by": f"sapiens_batch {__version__}",
        "warning": _warning(schemas),
        "tasks": tasks,
        "licences": dict(job.licences),
        "conventions": dict(CONVENTIONS),
    }


def _warning(schemas: Mapping[str, LabelSchema]) -> str:
    """What a reader must know before using the labels; empty where there is nothing."""
    demo = ", ".join(task for task, schema in schemas.items() if schema.metadata.get("demo"))
    return demo and f"{demo}: random demonstration weights, these labels mean nothing"


def summary(origin: Mapping[str, Any]) -> str:
    """The origin in one paragraph, for places that take text only."""
    models = sorted({f"{one.get('model', '?')}" for one in origin["tasks"].values()})
    text = (
        f"Labels of job {origin['job']!r} (spec digest {origin['spec_digest']}, "
        f"{origin['created']}), made by {origin['made_by']} with {', '.join(models) or 'no model'}."
    )
    return f"{text} WARNING: {origin['warning']}." if origin["warning"] else text
