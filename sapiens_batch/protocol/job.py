"""The job's own document, `job.json`: what binds a directory to what it was made by.

When it is written, and what may be changed between two runs, is left to the driver. It is created
once and never changed (I6).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from sapiens_batch.protocol.documents import Document, Sha256, now
from sapiens_batch.records import FORMAT_VERSION, LabelSchema
from sapiens_batch.sinks import label_schema as schema
from sapiens_batch.storage import Capabilities


class JobDocument(Document):
    """`job.json`: everything that binds a job directory to what it was made by.

    Attributes:
        format_version: Version of the job directory's format.
        name: The job's name.
        created: ISO 8601 time in UTC.
        spec: The resolved spec as JSON values, without secrets.
        spec_digest: Digest of the part of the spec that changes labels.
        schemas: Label schemas as JSON values, in the order of their tasks.
        extra_columns: Columns of the source that `images` keeps.
        capabilities: What the output store was probed to do.
        licences: Licence notes by checkpoint.
        versions: Versions of the packages that made the job, for people.
    """

    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)] = FORMAT_VERSION
    name: str
    created: str = Field(default_factory=now)
    spec: dict[str, Any]
    spec_digest: Sha256
    schemas: tuple[dict[str, Any], ...]
    extra_columns: tuple[str, ...] = ()
    capabilities: dict[str, Any] = Field(default_factory=dict)
    licences: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)

    @property
    def probed(self) -> Capabilities | None:
        """What the store was probed to do, or None where that is not recorded."""
        return Capabilities(**self.capabilities) if self.capabilities else None

    @property
    def label_schemas(self) -> tuple[LabelSchema, ...]:
        """The label schemas as records."""
        return tuple(schema.from_json(one) for one in self.schemas)
