"""A store whose objects are all old: what is left of a job days later."""

from __future__ import annotations

from sapiens_batch.storage.memory import MemoryStore


class LateStore(MemoryStore):
    """Memory whose clock is two days ahead of its objects."""

    ahead_s = 2 * 24 * 3600.0

    def now_s(self) -> float:
        return super().now_s() + self.ahead_s
