"""The contract of a source: plan shards, read one shard's samples.

A source neither decodes images nor looks at the state of a job. Reading is deterministic: the same
shard at the same version gives the same samples in the same order with the same keys, which is what
makes retries and resumption exact. Damage is data: a bad sample is a `Sample` with a `problem`,
damage that belongs to no sample is a `Problem`; only trouble that a retry may mend is raised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from sapiens_batch.errors import InputError
from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage.addresses import absolute_uri


class Source(ABC):
    """One way in which a corpus is stored. Subclasses are picklable.

    Args:
        spec: The validated `source` section of the job file.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self.spec = spec

    def only_uri(self, what: str) -> str:
        """The address, of a format that takes one of `what`.

        Raises:
            InputError: The job names several.
        """
        if len(self.spec.uris) != 1:
            raise InputError(f"{self.spec.format} takes one {what}, not {len(self.spec.uris)}")
        return absolute_uri(self.spec.uris[0]).rstrip("/")

    def root(self, default: str) -> str:
        """The folder that image paths are relative to: the job's `root`, or the default."""
        return absolute_uri(self.spec.root) if self.spec.root else default

    @abstractmethod
    def plan(self) -> Iterator[Shard]:
        """List the shards, sorted by key, without opening them.

        Raises:
            InputError: Nothing matches the address, it cannot be listed, or the content that every
                shard must have (an image column) is missing from the first shard.
        """

    @abstractmethod
    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        """Stream one shard's samples in stored order, indices counting from 0.

        Raises:
            InputError: The object is gone or not the planned version.
            OSError: The store failed in a way that a retry may mend.
        """
