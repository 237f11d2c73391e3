"""The ledger counts attempts that never came through, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from sapiens_batch.errors import StorageError
from sapiens_batch.pipeline.attempts import AttemptLedger, SuspectChunkError
from sapiens_batch.pipeline.cells import ChunkHeader
from sapiens_batch.storage import keys
from sapiens_batch.storage.memory import MemoryStore
from tests.pipeline.conftest import SHARD

HEADER = ChunkHeader(SHARD.shard_id, 3, 12, 16, last=False)


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> AttemptLedger:
    return AttemptLedger(MemoryStore(request.node.name), max_attempts=2)


def marks(ledger: AttemptLedger) -> list[str]:
    return [info.key for info in ledger.store.list(keys.ATTEMPTS)]


def test_attempts_that_died_make_a_chunk_suspect(ledger: AttemptLedger) -> None:
    attempts = [ledger.begin(HEADER) for _ in range(3)]
    assert [one.num_before for one in attempts] == [0, 1, 2]
    assert [ledger.is_suspect(one) for one in attempts] == [False, False, True]


def test_an_attempt_that_came_through_leaves_no_mark(ledger: AttemptLedger) -> None:
    prepared = ledger.begin(HEADER)
    written = ledger.begin(HEADER, taken_over=prepared.write_id)
    assert written.num_before == 0
    ledger.end(replace(HEADER, attempt=written.write_id))
    assert marks(ledger) == []


def test_a_stage_that_ray_repeats_counts_its_deaths(ledger: AttemptLedger) -> None:
    prepared = ledger.begin(HEADER)
    first = ledger.begin(HEADER, taken_over=prepared.write_id)
    again = ledger.begin(HEADER, taken_over=prepared.write_id)
    assert (first.num_before, again.num_before) == (0, 1)


def test_chunks_and_generations_have_accounts_of_their_own(ledger: AttemptLedger) -> None:
    ledger.begin(HEADER)
    assert ledger.begin(replace(HEADER, index=4)).num_before == 0
    assert ledger.begin(replace(HEADER, generation=1)).num_before == 0


def test_trouble_with_storage_is_not_held_against_the_chunk(ledger: AttemptLedger) -> None:
    attempt = ledger.begin(HEADER)
    with pytest.raises(StorageError), ledger.excusing(replace(HEADER, attempt=attempt.write_id)):
        raise StorageError("the bucket is gone")
    assert marks(ledger) == []


def test_any_other_failure_is(ledger: AttemptLedger) -> None:
    attempt = ledger.begin(HEADER)
    with pytest.raises(ValueError), ledger.excusing(replace(HEADER, attempt=attempt.write_id)):
        raise ValueError("odd image")
    assert len(marks(ledger)) == 1


def test_a_stage_that_needs_whole_chunks_sends_a_suspect_back(ledger: AttemptLedger) -> None:
    for _ in range(2):
        ledger.begin(HEADER)
    attempt = ledger.begin(HEADER)
    refuse = partial(ledger.refuse_suspect, replace(HEADER, attempt=attempt.write_id), attempt)
    with pytest.raises(SuspectChunkError, match="begun 2 times and never finished"):
        refuse()
    assert len(marks(ledger)) == 2, "sending it back is no attempt"
