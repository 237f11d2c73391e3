"""What no job ever does to its objects: change one, as failing hardware or a person would."""

from __future__ import annotations

from sapiens_batch.storage import Store


def overwrite(store: Store, key: str, data: bytes | bytearray) -> None:
    """Put other bytes under a key."""
    store.delete(key)
    store.create(key, bytes(data))
