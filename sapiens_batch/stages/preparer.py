"""What decodes the samples of a job and cuts the views that it needs.

Apart from `prepare`, because which person finder a job has follows from its spec; imports no ray,
so that processes that do nothing but prepare stay light.
"""

from __future__ import annotations

from sapiens_batch.persons import make_person_finder
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.prepare import ChunkPreparer


def make_preparer(context: JobContext) -> ChunkPreparer:
    """The preparer of a job."""
    finder = (
        make_person_finder(context.spec.persons_section, context.detector_digest)
        if context.finds_persons
        else None
    )
    return ChunkPreparer(finder, context.view_specs, context.spec.decode)
