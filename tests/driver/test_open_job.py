"""Opening a job: one driver or many, listings that lag, plans that others wrote (I9)."""

from __future__ import annotations

from typing import Any

import pytest

from sapiens_batch.driver.open_job import ResolvedJob, open_job, resolve
from sapiens_batch.errors import StorageError
from sapiens_batch.protocol import keys
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.samples import build
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.storage import open_store
from tests.storage.lagging import fresh_lagging_store

LAG_S = 8.0


def resolved(**output: Any) -> ResolvedJob:
    return resolve(
        parse_spec(
            {
                "name": "opened",
                "source": {"format": "webdataset", "uri": str(build.SHARD)},
                "tasks": {"embedding": {"checkpoint": "demo"}},
                "output": {"uri": "lagging://bucket/job", **output},
            }
        )
    )


def test_what_was_just_planned_is_to_do_though_no_listing_shows_it() -> None:
    fresh_lagging_store(lag_s=LAG_S)
    _, manifest = open_job(resolved(), print)
    assert list(manifest.store.list("")) == []
    assert [shard.key for shard in manifest.shards()] == [build.SHARD.name]
    assert [one.shard.key for one in manifest.todo()] == [build.SHARD.name]


def test_a_second_driver_finds_the_plan_that_no_listing_shows() -> None:
    fresh_lagging_store(lag_s=LAG_S)
    open_job(resolved(), print)
    _, manifest = open_job(resolved(), print)
    assert [document.number for document in manifest.plans()] == [0]
    assert len(list(manifest.todo())) == 1


def test_an_order_that_was_just_given_is_known_though_no_listing_shows_it() -> None:
    fresh_lagging_store(lag_s=LAG_S)
    _, manifest = open_job(resolved(), print)
    (shard,) = manifest.shards()
    manifest.relabel(shard.shard_id, None, cause="repair")
    assert [one.generation for one in manifest.todo()] == [1]


def test_an_empty_plan_is_no_reason_to_call_a_job_with_input_complete() -> None:
    fresh_lagging_store(lag_s=LAG_S)
    write_plan(open_store("lagging://bucket/job"), [])
    _, manifest = open_job(resolved(), print)
    assert [document.num_shards for document in manifest.plans()] == [0, 1]


def test_a_plan_that_another_driver_wrote_meanwhile_is_completed() -> None:
    fresh_lagging_store()
    store = open_store("lagging://bucket/job")
    write_plan(store, [])
    _, manifest = open_job(resolved(), print)
    assert [document.num_shards for document in manifest.plans()] == [0, 1]


def test_a_plan_whose_driver_died_before_its_document_is_made_anew() -> None:
    fresh_lagging_store()
    store = open_store("lagging://bucket/job")
    write_plan(store, [])
    store.delete(keys.plan_document(0))
    _, manifest = open_job(resolved(), print)
    assert [document.num_shards for document in manifest.plans()] == [1]


def test_a_store_that_overwrites_is_refused_before_anything_is_written() -> None:
    fresh_lagging_store(ignores_condition=True)
    with pytest.raises(StorageError, match=r"lagging://bucket/job .*output.single_driver: true"):
        open_job(resolved(), print)
    assert list(open_store("lagging://bucket/job").list("")) == []
    assert StorageError.exit_code == 2


def test_a_promise_of_one_driver_is_recorded_and_warned_about_each_time() -> None:
    fresh_lagging_store(ignores_condition=True)
    said: list[str] = []
    job = resolved(single_driver=True)
    _, manifest = open_job(job, said.append)
    assert manifest.job.capabilities["conditional_create"] is False
    assert manifest.job.spec["output"]["single_driver"] is True
    assert manifest.store.create("job.json", b"another") is False
    open_job(job, said.append)
    assert len(said) == 2
    assert all("output.single_driver" in text for text in said)


def test_a_job_that_was_started_with_the_promise_is_not_resumed_without_it() -> None:
    fresh_lagging_store(ignores_condition=True)
    open_job(resolved(single_driver=True), print)
    with pytest.raises(StorageError, match="single_driver"):
        open_job(resolved(), print)
