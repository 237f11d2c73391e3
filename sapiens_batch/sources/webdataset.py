"""WebDataset: tar shards whose members are grouped into samples by name.

Members `dir/key.suffix` that stand side by side make one sample. Every sample of a shard gives
exactly one row, whatever is wrong with it, and nothing crosses from one shard into another. Tar
damage is found by `sources.tar`; boxes and columns are judged by `sources.fields`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sapiens_batch.errors import SampleError
from sapiens_batch.job.spec import SourceSpec
from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.fields import bad_sample, make_sample
from sapiens_batch.sources.names import image_rank, is_junk, is_unsafe, split_name
from sapiens_batch.sources.shards import check_object_version, object_shard
from sapiens_batch.sources.tar import TarMember, iter_members
from sapiens_batch.storage.inputs import expand, open_input

_SKIPPED = {
    "source.unsupported_member": "links, devices, pipes or sparse files",
    "source.unsafe_name": "named with an absolute path or '..'",
    "source.no_suffix": "named without a suffix",
}


class WebDatasetSource(Source):
    """Tar shards of images with optional `.json` and text members, plain or compressed."""

    def plan(self) -> Iterator[Shard]:
        """One shard per tar, sorted by key; see `Source.plan`."""
        objects = expand(self.spec.uris, self.spec.storage_options)
        return map(object_shard, islice(objects, self.spec.limit))

    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        """Samples in stored order, then the damage of the shard; see `Source.read`."""
        check_object_version(shard, self.spec.storage_options)
        account = _Account(shard.key)
        index = 0
        with open_input(shard.uri, self.spec.storage_options) as stream:
            gathering: _Gathering | None = None
            for member in iter_members(stream, self._is_wanted):
                if isinstance(member, Problem):
                    account.damage = member
                elif not account.skips(member):
                    key, suffix = split_name(member.name)
                    if gathering is None or key != gathering.key:
                        if gathering is not None:
                            yield gathering.sample(index)
                            index += 1
                        gathering = _Gathering(key, shard.key, self.spec, account.is_known(key))
                    gathering.add(member, suffix)
            if gathering is not None:
                yield gathering.sample(index)
        yield from account.problems()

    def _is_wanted(self, name: str) -> bool:
        if is_junk(name) or is_unsafe(name):
            return False
        _, suffix = split_name(name)
        return (
            suffix in self.spec.columns
            or (suffix == "json" and bool(self.spec.boxes or self.spec.columns))
            or image_rank(suffix, self.spec.image) is not None
        )


@dataclass(slots=True)
class _Account:
    """Keys seen in a shard, members that belong to no sample, and damage."""

    shard_key: str
    damage: Problem | None = None
    keys: set[str] = field(default_factory=set)
    skipped: dict[str, TarMember] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def is_known(self, key: str) -> bool:
        """Whether the key began a sample before."""
        known = key in self.keys
        self.keys.add(key)
        return known

    def skips(self, member: TarMember) -> bool:
        """Whether the member belongs to no sample; all but folders and junk are counted."""
        if member.kind == "folder" or is_junk(member.name):
            return True
        if member.kind == "other":
            reason = "source.unsupported_member"
        elif is_unsafe(member.name):
            reason = "source.unsafe_name"
        elif not split_name(member.name)[1]:
            reason = "source.no_suffix"
        else:
            return False
        self.skipped.setdefault(reason, member)
        self.counts[reason] += 1
        return True

    def problems(self) -> Iterator[Problem]:
        """One problem for each kind of skipped member, then the damage."""
        for reason, first in self.skipped.items():
            yield Problem(
                reason,
                f"{self.shard_key}: {self.counts[reason]} members are {_SKIPPED[reason]} and were "
                f"skipped; the first is {first.name!r} at byte {first.offset}",
            )
        if self.damage is not None:
            yield Problem(self.damage.reason, f"{self.shard_key}: {self.damage.message}")


class _Gathering:
    """The members of one sample while they stream by; holds one image at most."""

    def __init__(self, key: str, shard_key: str, spec: SourceSpec, returned: bool) -> None:
        self.key = key
        self._where = f"sample {key!r} of {shard_key}"
        self._spec = spec
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
        rank = image_rank(suffix, self._spec.image)
        if rank is not None and rank < self._rank:
            self._image, self._rank, self._rivals = member, rank, [suffix]
        elif rank == self._rank:
            self._rivals.append(suffix)
        elif member.content is not None and rank is None:
            self._texts[suffix] = member.content

    def sample(self, index: int) -> Sample:
        """The finished sample."""
        try:
            encoded = self._encoded()
            record = self._record()
        except SampleError as error:
            return bad_sample(self.key, index, error.reason, error.message)
        return make_sample(self.key, index, encoded, record, self._spec)

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

    def _record(self) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for suffix in self._spec.columns:
            if suffix in self._texts:
                record[suffix] = self._decoded(suffix)
        if self._spec.boxes or any(name not in record for name in self._spec.columns):
            record |= self._json()
        return record

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
