"""The commits of a job as a mapping that reads a document when it is asked for.

Which shards are visible is fixed when the mapping is made. Documents of large shards are large, so
only the last few are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.manifest import Manifest

KEPT_COMMITS: Final = 256


class CommitReader(Mapping[str, Commit]):
    """Newest commits by shard id.

    Args:
        manifest: The job.
        generations: The generation to read of every visible shard.
    """

    def __init__(self, manifest: Manifest, generations: Mapping[str, int]) -> None:
        self._manifest = manifest
        self._generations = generations
        self._kept: dict[str, Commit] = {}

    def __getitem__(self, shard_id: str) -> Commit:
        """The commit of one shard.

        Raises:
            KeyError: The shard was not visible.
            ProtocolError: The commit is damaged.
        """
        found = self._kept.get(shard_id)
        if found is None:
            found = self._manifest.commit(shard_id, self._generations[shard_id])
            while len(self._kept) >= KEPT_COMMITS:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[shard_id] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._generations)

    def __len__(self) -> int:
        return len(self._generations)

    def __contains__(self, shard_id: object) -> bool:
        return shard_id in self._generations
