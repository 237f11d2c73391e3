"""The processes of a simulated job: drivers with their workers, repair, retry and gc.

A driver is the shape of `driver.run` without Ray: open, plan, what is to do, label in passes, seal,
order damaged shards anew. Everything that is stored goes through `protocol` and `verify`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sapiens_batch.errors import DamagedReceiptError, ProtocolError, StorageError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.open_shard import OpenShard
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.protocol.receipt import Receipt
from sapiens_batch.protocol.seal import seal_shard
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Shard
from sapiens_batch.verify.garbage import collect_garbage
from sapiens_batch.verify.job import check_job
from sapiens_batch.verify.repair import order_repairs
from tests.simulation.faults import Faults
from tests.simulation.store import Objects, SimulatedStore
from tests.simulation.truth import CHUNK_SAMPLES, NORMAL, SEG, Truth
from tests.simulation.world import Actor, World

PASSES: Final = 4
JOB: Final = JobDocument(
    name="simulated",
    created="2027-01-01T00:00:00+00:00",
    spec={},
    spec_digest="5" * 64,
    schemas=(),
)
