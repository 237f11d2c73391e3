"""The JOB argument of commands that read labels: a job directory, or the job file that made it.

A job directory holds no secrets, so storage that needs options is reached through the job file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapiens_batch.errors import SpecError
from sapiens_batch.spec.loading import load_spec
from sapiens_batch.storage import Store, open_store
from sapiens_batch.storage.addresses import keep_secrets_apart

if TYPE_CHECKING:
    from sapiens_batch.protocol.manifest import Manifest

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="A job directory, or the job file that made it.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of the job file."),
]


@dataclass(frozen=True, slots=True)
class JobAddress:
    """Where a job is, and what its storage needs.

    Attributes:
        uri: The job directory.
        storage_options: Passed to fsspec for the job directory.
        source_options: Passed to fsspec for the corpus.
    """

    uri: str
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    source_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, job: str, overrides: Sequence[str] | None = None) -> JobAddress:
        """The address that a JOB argument means.

        Args:
            job: A job directory, or a job file.
            overrides: As for `load_spec`.

        Raises:
            SpecError: It is a job file that breaks a rule, or a directory with overrides.
        """
        if not job.endswith((".yaml", ".yml")):
            if overrides:
                raise SpecError(
                    f"--set {overrides[0]}: {job} is a job directory, which has no field to "
                    "override; give the job file, or leave --set out"
                )
            kept = keep_secrets_apart({"uri": job}, "uri")
            return cls(kept["uri"], kept.get("storage_options", {}))
        spec = load_spec(Path(job), overrides or ())
        return cls(spec.output.uri, spec.output.storage_options, spec.source.storage_options)

    def open(self) -> Manifest:
        """The job.

        Raises:
            StorageError: There is no job, or it cannot be read.
        """
        from sapiens_batch.protocol.manifest import Manifest

        return Manifest.open(open_store(self.uri, self.storage_options))

    def folder(self, name: str) -> Store:
        """A folder inside the job directory, for data that is derived from the labels."""
        return open_store(f"{self.uri.rstrip('/')}/{name}", self.storage_options)
