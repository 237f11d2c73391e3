"""The ledger counts attempts that never came through, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from sapiens_batch.errors import StorageError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.put import ChunkHeader
from sapiens_batch.stages.attempts import AttemptLedger, IsolationError, SuspectChunkError
from sapiens_batch.stages.flow import Outcome, pack, unpack
from sapiens_batch.stages.stage import write_chunk
from sapiens_batch.stages.write import ChunkWriter
from sapiens_batch.storage.memory import MemoryStore
from tests.small_tasks import CHUNK_SAMPLES, SCHEMAS, SHARD, labeled_chunk

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


def test_a_chunk_that_ends_its_workers_in_isolation_as_well_fails_and_says_why(
    ledger: AttemptLedger,
) -> None:
    for _ in range(2):
        ledger.begin_isolated(HEADER)
    for _ in range(2):  # and in the passes that follow
        with pytest.raises(IsolationError, match=r"ended 2 workers.*output\.chunk_samples"):
            ledger.begin_isolated(HEADER)
    assert len(marks(ledger)) == 2, "an attempt that was refused is none that died"


def test_drivers_that_were_killed_do_not_keep_a_chunk_from_being_isolated(
    ledger: AttemptLedger,
) -> None:
    for _ in range(9):
        AttemptLedger(ledger.store, ledger.max_attempts).begin_isolated(HEADER)
    attempt = ledger.begin(HEADER)
    assert ledger.is_suspect(attempt)
    isolated = ledger.begin_isolated(replace(HEADER, attempt=attempt.write_id))
    ledger.end(isolated)
    assert len(marks(ledger)) == 9, "the mark of the stage before was not taken over"


def test_a_failure_in_isolation_is_no_death(ledger: AttemptLedger) -> None:
    header = ledger.begin_isolated(HEADER)
    with pytest.raises(ValueError), ledger.excusing(header):
        raise ValueError("odd image")
    assert marks(ledger) == []


class OverwhelmedStore(MemoryStore):
    """Memory that ends whoever writes a receipt."""

    def create(self, key: str, data: bytes) -> bool:
        if key.startswith(keys.RECEIPTS):
            raise SystemExit
        return super().create(key, data)


def test_a_writer_that_dies_of_an_isolated_chunk_does_not_get_it_for_ever(
    ledger: AttemptLedger, request: pytest.FixtureRequest
) -> None:
    chunk = labeled_chunk([1, 0, 2])
    header = replace(
        chunk.header, isolated=True, attempt=ledger.begin_isolated(chunk.header).attempt
    )
    table = pack(replace(chunk, header=header))
    store = OverwhelmedStore(request.node.name)
    writer = ChunkWriter(store, SCHEMAS, [], CHUNK_SAMPLES)
    for _ in range(2):
        with pytest.raises(SystemExit):
            write_chunk(table, writer=writer, ledger=ledger)
    outcome: Outcome = unpack(write_chunk(table, writer=writer, ledger=ledger))
    assert outcome.failure is not None
    assert "IsolationError" in outcome.failure.message
    writer = ChunkWriter(ledger.store, SCHEMAS, [], CHUNK_SAMPLES)
    next_run = AttemptLedger(ledger.store, ledger.max_attempts)
    outcome = unpack(write_chunk(table, writer=writer, ledger=next_run))
    assert outcome.receipt is not None
