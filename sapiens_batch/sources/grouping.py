"""Gather the members of a tar that make one sample, and judge what came of them.

Holds one image at most. A sample that is ambiguous, doubled or cut is quarantined with its key and
the offset of the member at fault, never mended by guessing. In what order members come, and where a
sample begins, is for `sources.webdataset` to say.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sapiens_batch.errors import SampleError
from sapiens_batch.records import Problem, Sample
from sapiens_batch.sources.fields import bad_sample, make_sample
from sapiens_batch.sources.img2dataset import Companion
from sapiens_batch.sources.names import image_rank, is_junk, is_unsafe, split_name
from sapiens_batch.sources.selection import ShardSelection
from sapiens_batch.sources.tar import TarMember
from sapiens_batch.spec.job import SourceSpec


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of one shard.

    Attributes:
        spec: The source section of the job.
        shard_key: The shard's key, for messages.
        needed: Names of the fields that samples are to have.
        companion: Gives some of them.
        selection: Which samples to read.
    """

    spec: SourceSpec
    shard_key: str
    needed: Collection[str]
    companion: Companion
    selection: ShardSelection

    def keeps(self, name: str) -> bool:
        """Whether the content of the member of this name is needed."""
        if is_junk(name) or is_unsafe(name):
            return False
        key, suffix = split_name(name)
        if not self.selection.may_take(key):
            return False
        return (
            suffix in self.spec.columns
            or (suffix == "json" and not self.companion.fields.issuperset(self.needed))
            or image_rank(suffix, self.spec.image) is not None
        )


class Grouping:
    """The members of one sample while they stream by.

    Args:
        key: The sample's key.
        wanted: What is read of the shard.
        returned: Whether the key began a sample before.
    """

    def __init__(self, key: str, wanted: Wanted, *, returned: bool) -> None:
        self.key = key
        self._where = f"sample {key!r} of {wanted.shard_key}"
        self._wanted = wanted
        self._suffixes: set[str] = set()
        self._texts: dict[str, bytes] = {}
        self._image: TarMember | None = None
        self._rank = (2, 0)
        self._rivals: list[str] = []
        self._problem: Problem | None = None
        self._returned = returned

    def add(self, member: TarMember, suffix: str) -> None:
        """Take one member in."""
        if self._returned:
            self._returned = False
            self._fail("source.duplicate_key", "comes again, apart from its other members", member)
        if suffix in self._suffixes:
            self._fail("source.duplicate_member", f"has {suffix!r} twice, again", member)
        if member.cut:
            self._fail("source.truncated", f"is cut inside {member.name!r}", member)
        self._suffixes.add(suffix)
        rank = image_rank(suffix, self._wanted.spec.image)
        if rank is not None and rank < self._rank:
            self._image, self._rank, self._rivals = member, rank, [suffix]
        elif rank == self._rank:
            self._rivals.append(suffix)
        elif member.content is not None and rank is None:
            self._texts[suffix] = member.content

    def sample(self, index: int) -> Sample | None:
        """The finished sample; None where it is not selected."""
        record = dict(self._wanted.companion.rows.get(self.key, {}))
        failure: SampleError | None = None
        try:
            record = self._completed(record)
        except SampleError as error:
            failure = error
        if not self._wanted.selection.takes(self.key, record):
            return None
        try:
            encoded = self._encoded()
        except SampleError as error:
            failure = error
        if failure is not None:
            return bad_sample(self.key, index, failure)
        return make_sample(self.key, index, encoded, record, self._wanted.spec)

    def _encoded(self) -> bytes:
        if self._problem is not None:
            raise SampleError(self._problem.reason, self._problem.message)
        if self._image is None:
            found = ", ".join(sorted(self._suffixes))
            raise SampleError("source.missing_image", f"{self._where} has no image, only {found}")
        if len(self._rivals) > 1:
            raise SampleError(
                "source.ambiguous_image",
                f"{self._where} has several images ({', '.join(self._rivals)}): "
                f"name one, such as `image: [{self._rivals[0]}]`",
            )
        if self._image.content is None:
            raise SampleError(
                "source.too_large", f"{self._where}: image of {self._image.size_bytes} bytes"
            )
        return self._image.content

    def _completed(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The companion's fields, then members of the names asked for, then those of the json."""
        texts = [name for name in self._wanted.spec.columns if name in self._texts]
        completed = {**record, **{name: self._decoded(name) for name in texts}}
        if any(name not in completed for name in self._wanted.needed):
            completed = self._json() | completed
        return completed

    def _decoded(self, suffix: str) -> str:
        try:
            return self._texts[suffix].decode()
        except UnicodeDecodeError as error:
            raise SampleError(
                "source.bad_text", f"{self._where}: {suffix!r} is not UTF-8: {error}"
            ) from error

    def _json(self) -> dict[str, Any]:
        if "json" not in self._texts:
            return {}
        try:
            record = json.loads(self._texts["json"])
        except (ValueError, RecursionError) as error:
            raise SampleError(
                "source.bad_json", f"{self._where}: its json cannot be read: {error}"
            ) from error
        if not isinstance(record, dict):
            raise SampleError("source.bad_json", f"{self._where}: its json is not an object")
        return record

    def _fail(self, reason: str, what: str, member: TarMember) -> None:
        if self._problem is None:
            self._problem = Problem(reason, f"{self._where} {what} at byte {member.offset}")
