"""The context of a job without models or plan, for stages that are called without Ray."""

from __future__ import annotations

from typing import Any

from sapiens_batch.records import ViewKind, ViewSpec
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.storage import Store
from tests.small_tasks import SCHEMAS

VIEWS = {"seg": ViewSpec(ViewKind.STRETCH, 8, 6), "pose": ViewSpec(ViewKind.CROP, 8, 6)}


def small_context(store: Store, **sections: Any) -> JobContext:
    """A job with the tasks of `tests.small_tasks`, two samples a chunk, whole images as persons."""
    spec = parse_spec(
        {
            "name": "small",
            "source": {"format": "webdataset", "uri": "in.tar"},
            "persons": {"from": "whole_image"},
            "tasks": {name: {"checkpoint": "demo"} for name in SCHEMAS},
            "output": {"uri": store.uri, "chunk_samples": 2},
            **sections,
        }
    )
    return JobContext(spec, {}, SCHEMAS, VIEWS, True, "0" * 64, store)
