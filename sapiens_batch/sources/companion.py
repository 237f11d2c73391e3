"""The Parquet that img2dataset writes beside a tar: a row for every URL, downloaded or not.

Gives the columns that a job keeps, joined by key, and what the tar should hold. A URL that could
not be downloaded is no sample: the tar has nothing under its key. It is counted in a note. A row
that says `success` without a member in the tar is damage, and is reported with its key.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from sapiens_batch.errors import InputError
from sapiens_batch.job.spec import SourceSpec
from sapiens_batch.records import Problem
from sapiens_batch.storage.addresses import join_uri, parent_uri
from sapiens_batch.storage.inputs import find_inputs, open_input

SUCCESS = "success"
"""What img2dataset writes into `status` for an image that is in the shard."""

SHOWN_KEYS = 10


@dataclass(frozen=True, slots=True)
class Companion:
    """What a companion says about the samples of its tar.

    Attributes:
        name: Its file name, for messages.
        fields: Columns that it gives, of those that the job needs.
        rows: Their values, by sample key.
        expected: Keys that the tar should hold.
        failed: How many rows have each other status.
        problem: Why it cannot be used, or what is wrong with it.
    """

    name: str = ""
    fields: frozenset[str] = frozenset()
    rows: Mapping[str, Mapping[str, Any]] = dataclass_field(default_factory=dict)
    expected: frozenset[str] = frozenset()
    failed: Mapping[str, int] = dataclass_field(default_factory=dict)
    problem: Problem | None = None

    def problems(self, seen: Collection[str]) -> Iterator[Problem]:
        """What is wrong with the companion, and where it and the tar disagree.

        Args:
            seen: Keys that the tar holds.
        """
        if self.problem is not None:
            yield self.problem
        if self.failed:
            yield not_downloaded(self.name, self.failed)
        if missing := sorted(self.expected.difference(seen)):
            shown = ", ".join(map(repr, missing[:SHOWN_KEYS]))
            yield Problem(
                "source.missing_member",
                f"{self.name}: {len(missing)} rows say {SUCCESS!r} but their images are not in the "
                f"tar: {shown}{', …' if len(missing) > SHOWN_KEYS else ''}",
            )
