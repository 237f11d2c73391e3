"""Workers follow from what the cluster has and can have, and spans from how much there is to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sapiens_batch.driver.sizing import (
    LABEL_CPUS,
    MAX_AUTO_ACTORS,
    MAX_SPANS,
    MIN_OBJECT_STORE_BYTES,
    READ_CPUS,
    READ_TASKS,
    SPAN_BYTES,
    Cluster,
    cut_spans,
    decide,
    group_tasks,
    object_store_bytes,
)
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import Shard, ViewKind, ViewSpec
from sapiens_batch.spec.job import RuntimeSpec

SMALL = Cluster(num_cpus=4, num_gpus=0)


def test_a_small_machine_without_gpu_gets_one_actor_with_all_threads() -> None:
    sizing = decide(SMALL, RuntimeSpec(), physical_cpus=2)
    assert (sizing.label_actors, sizing.gpus_per_actor, sizing.threads_per_actor) == (1, 0, 2)
    assert (sizing.max_label_actors, sizing.read_tasks, sizing.slots) == (1, 1, 1)


def test_every_gpu_that_node_types_can_bring_is_asked_for() -> None:
    cluster = Cluster(num_cpus=96, num_gpus=8, max_cpus=192, max_gpus=16)
    sizing = decide(cluster, RuntimeSpec(), physical_cpus=96)
    assert (sizing.label_actors, sizing.max_label_actors) == (16, 16)
    assert (sizing.gpus_per_actor, sizing.threads_per_actor, sizing.slots) == (1, None, 192)


@pytest.mark.parametrize("max_gpus", [None, float("inf")])
def test_where_nobody_says_how_many_there_can_be_more_are_used_as_they_come(
    max_gpus: float | None,
) -> None:
    sizing = decide(Cluster(4, 1, None, max_gpus), RuntimeSpec(), physical_cpus=4)
    assert (sizing.label_actors, sizing.max_label_actors) == (1, MAX_AUTO_ACTORS)


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_gpu_that_is_wanted_is_asked_for_where_there_is_none(device: str) -> None:
    sizing = decide(SMALL, RuntimeSpec(device=device), physical_cpus=4)
    assert (sizing.gpus_per_actor, sizing.label_actors) == (1, 1)
    assert sizing.max_label_actors == MAX_AUTO_ACTORS


def test_auto_takes_gpus_where_a_node_type_has_them_though_none_is_there() -> None:
    cluster = Cluster(num_cpus=4, num_gpus=0, max_cpus=16, max_gpus=3)
    assert decide(cluster, RuntimeSpec(), physical_cpus=4).label_actors == 3
    assert decide(cluster, RuntimeSpec(), physical_cpus=4).gpus_per_actor == 1


def test_numbers_in_the_job_file_win() -> None:
    runtime = RuntimeSpec(label_actors=3, prepare_tasks=5)
    sizing = decide(Cluster(96, 8, 96, 16), runtime, physical_cpus=96)
    assert (sizing.label_actors, sizing.max_label_actors) == (3, 3)
    assert (sizing.read_tasks, sizing.slots) == (5, 5)


def test_cpu_labels_are_made_on_request_although_there_is_a_gpu() -> None:
    sizing = decide(Cluster(8, 1), RuntimeSpec(device="cpu"), physical_cpus=8)
    assert (sizing.label_actors, sizing.gpus_per_actor) == (1, 0)


@pytest.mark.parametrize("node_cpus", [1, 2, 4, 8, 12, 48, 96])
def test_a_node_full_of_readers_has_room_for_a_label_actor(node_cpus: int) -> None:
    readers = int(node_cpus / READ_CPUS)
    assert node_cpus - readers * READ_CPUS >= LABEL_CPUS - 1e-9


def test_ray_cannot_fuse_the_stages() -> None:
    assert READ_CPUS != LABEL_CPUS


def test_room_for_prepared_chunks_grows_with_actors_and_views() -> None:
    one = decide(SMALL, RuntimeSpec(), physical_cpus=2)
    views = [ViewSpec(ViewKind.STRETCH, 1024, 768)]
    chunk_bytes = 32 * 1024 * 768 * 3
    assert object_store_bytes(one, views, 32) == 14 * chunk_bytes
    eight = replace(one, max_label_actors=8)
    assert object_store_bytes(eight, views * 2, 32) == 8 * 14 * 2 * chunk_bytes
    assert object_store_bytes(one, [ViewSpec(ViewKind.CROP, 8, 6)], 2) == MIN_OBJECT_STORE_BYTES


def todo(number: int, size_bytes: int) -> ShardTodo:
    return ShardTodo(
        Shard(f"{number:032x}", f"{number}.tar", f"file:///{number}.tar", "1", size_bytes)
    )


LARGE = 100 * SPAN_BYTES


def test_a_single_large_shard_is_read_by_all_slots() -> None:
    spans = [one.span for one in cut_spans([todo(0, LARGE)], slots=8, chunk_samples=32)]
    assert spans == [(number, 8) for number in range(8)]


def test_a_shard_is_not_passed_over_more_often_than_that_pays() -> None:
    assert len(cut_spans([todo(0, LARGE)], slots=1000, chunk_samples=32)) == MAX_SPANS


def test_shards_are_whole_where_there_are_enough_of_them() -> None:
    shards = [todo(number, LARGE) for number in range(8)]
    assert cut_spans(shards, slots=8, chunk_samples=32) == shards


def test_few_shards_share_the_slots_and_small_ones_stay_whole() -> None:
    shards = [todo(0, LARGE), todo(1, SPAN_BYTES), todo(2, 0)]
    cut = cut_spans(shards, slots=8, chunk_samples=32)
    assert [one.span for one in cut] == [(0, 3), (1, 3), (2, 3), (0, 1), (0, 1)]
    assert [one.shard.key for one in cut] == ["0.tar"] * 3 + ["1.tar", "2.tar"]


def test_no_shard_is_cut_into_more_spans_than_it_has_chunks_to_label() -> None:
    ordered = replace(todo(0, LARGE), samples=frozenset({1, 40}), done_chunks=frozenset({0}))
    assert cut_spans([ordered], slots=8, chunk_samples=32) == [ordered]


def test_many_shards_share_read_tasks_and_none_is_lost() -> None:
    shards = [todo(number, 1) for number in range(2 * READ_TASKS + 3)]
    tasks = group_tasks(shards)
    assert len(tasks) <= READ_TASKS
    assert [one for task in tasks for one in task] == shards
    assert [len(task) for task in group_tasks(shards[:5])] == [1] * 5
    assert group_tasks([]) == []
