"""What Ray passes over in silence, and what rots before its shard is sealed, is mended."""

from __future__ import annotations

import signal
from dataclasses import replace

import pyarrow as pa
import pytest
import ray.data

from sapiens_batch.driver import graph
from sapiens_batch.protocol import keys
from tests.chaos.jobs import Messages, check_whole, run_apart, run_here
from tests.chaos.matrix import Arena


def fail(table: pa.Table) -> pa.Table:
    raise ModuleNotFoundError("No module named 'of_this_worker'")


def test_a_pass_that_brings_nothing_ends_with_its_first_exception(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = arena.job("silent")

    def build(*_: object) -> ray.data.Dataset:
        return ray.data.from_items([1, 2]).map_batches(fail, batch_size=1, batch_format="pyarrow")

    with monkeypatch.context() as patch:
        patch.setattr(graph, "build", build)
        errors = job.spec.errors.model_copy(update={"max_attempts": 1})
        silent = run_here(replace(job, spec=job.spec.model_copy(update={"errors": errors})))
    assert silent.exit_code == 5
    (failure,) = silent.failures
    assert "3 shards did not give all their chunks and no reason" in failure.message
    assert "of_this_worker" in failure.message
    assert run_here(job).exit_code == 0
    check_whole(job, arena.expected)


def test_a_receipt_that_rots_before_its_shard_is_sealed_has_the_shard_labeled_anew(
    arena: Arena,
) -> None:
    job = arena.job("rotten-receipt")
    arena.cluster.arm("before-seal", "kill-driver")
    assert run_apart(job, arena.cluster) == -signal.SIGKILL
    for info in list(job.store.list(keys.RECEIPTS)):
        data = bytearray(job.store.read(info.key))
        data[len(data) // 2] ^= 1
        job.store.delete(info.key)
        job.store.create(info.key, bytes(data))
    messages = Messages()
    assert run_here(job, messages=messages).exit_code == 0
    assert any("is labeled anew" in text for text in messages.texts)
    check_whole(job, arena.expected)
