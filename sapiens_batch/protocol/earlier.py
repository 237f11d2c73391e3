"""What a later generation of a shard builds on: the newest commit before it.

Its labels stay where they are (I2); who copies rows of it checks them first (I8).
"""

from __future__ import annotations

from sapiens_batch.errors import ProtocolError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.documents import StoredObject
from sapiens_batch.storage import MissingObjectError, Store


def newest_commit(store: Store, shard_id: str, *, before: int) -> Commit:
    """The newest commit of a shard below a generation.

    Raises:
        ProtocolError: There is none, though samples of it were ordered again, or it is damaged.
    """
    for generation in range(before - 1, -1, -1):
        key = keys.commit(shard_id, generation)
        try:
            return Commit.from_bytes(store.read(key), key=key)
        except MissingObjectError:
            continue
    raise ProtocolError(
        f"shard {shard_id}: generation {before} labels some of its samples again, but no earlier "
        "one is committed; run `verify`"
    )


def read_base(store: Store, stored: StoredObject) -> bytes:
    """An object that a commit names, checked before anything of it is copied.

    Raises:
        ProtocolError: It is damaged or gone.
    """
    try:
        return stored.read(store)
    except MissingObjectError as error:
        raise ProtocolError(f"{stored.key}: {error}; run `verify --repair`") from error
