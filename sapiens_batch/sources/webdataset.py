"""WebDataset: tar shards whose members are grouped into samples by name.

Members `dir/key.suffix` that stand side by side make one sample. Every selected sample of a shard
gives exactly one row, whatever is wrong with it, and nothing crosses from one shard into another.
Tar damage is found by `sources.tar`, what img2dataset says beside a tar by `sources.img2dataset`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.fields import needed_fields
from sapiens_batch.sources.grouping import Grouping, Wanted
from sapiens_batch.sources.img2dataset import (
    Companion,
    companion_version,
    companion_versions,
    read_companion,
)
from sapiens_batch.sources.names import is_junk, is_unsafe, split_name
from sapiens_batch.sources.selection import ShardSelection
from sapiens_batch.sources.shards import check_version, object_shard
from sapiens_batch.sources.tar import TarMember, iter_members
from sapiens_batch.storage.input_errors import errors_of_field
from sapiens_batch.storage.inputs import expand
from sapiens_batch.storage.reading import open_input

_SKIPPED = {
    "source.unsupported_member": "links, devices, pipes or sparse files",
    "source.unsafe_name": "named with an absolute path or '..'",
    "source.no_suffix": "named without a suffix",
}


class WebDatasetSource(Source):
    """Tar shards of images with optional `.json` and text members, plain or compressed."""

    def plan(self) -> Iterator[Shard]:
        """One shard per tar, sorted by key; see `Source.plan`."""
        with errors_of_field("source.uri"):
            objects = expand(self.spec.uris, self.spec.storage_options, instead="'{}/*.tar'")
        tars = list(islice(objects, self.spec.limit))
        selected = ShardSelection(self.spec, "").digest
        for tar, companion in zip(tars, companion_versions(tars, self.spec), strict=True):
            yield object_shard(tar, companion, selected)

    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        """Samples in stored order, then the damage of the shard; see `Source.read`."""
        selection = ShardSelection(self.spec, shard.key)
        beside = companion_version(shard.uri, self.spec)
        needed = needed_fields(self.spec, selection.by)
        companion = read_companion(shard.uri, self.spec, needed, beside) if beside else Companion()
        wanted = Wanted(self.spec, shard.key, needed, companion, selection)
        account = _Account(shard.key)
        index = 0
        with open_input(shard.uri, self.spec.storage_options) as stream:
            check_version(shard, stream.version, beside, selection.digest)
            for grouping in _group(iter_members(stream, wanted.keeps), wanted, account):
                if (sample := grouping.sample(index)) is not None:
                    yield sample
                    index += 1
        yield from account.problems()
        yield from companion.problems(account.keys)
        yield from selection.problems()


def _group(
    members: Iterator[TarMember | Problem], wanted: Wanted, account: _Account
) -> Iterator[Grouping]:
    """The samples of a shard, each once all of its members have come."""
    grouping: Grouping | None = None
    for member in members:
        if isinstance(member, Problem):
            account.damage = member
        elif not account.skips(member):
            key, suffix = split_name(member.name)
            if grouping is None or key != grouping.key:
                if grouping is not None:
                    yield grouping
                grouping = Grouping(key, wanted, returned=account.is_known(key))
            grouping.add(member, suffix)
    if grouping is not None:
        yield grouping


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
