"""Workers per stage follow from the cluster and the job file."""

from __future__ import annotations

from sapiens_batch.driver.sizing import (
    LABEL_CPUS,
    PREPARE_CPUS,
    READ_CPUS,
    WRITE_CPUS,
    Cluster,
    decide,
)
from sapiens_batch.spec.job import RuntimeSpec


def test_a_small_machine_without_gpu_gets_one_actor_with_all_threads() -> None:
    sizing = decide(Cluster(num_cpus=4, num_gpus=0), RuntimeSpec(), physical_cpus=2)
    assert (sizing.label_actors, sizing.gpus_per_actor, sizing.threads_per_actor) == (1, 0, 2)
    assert sizing.prepare_tasks >= 1
    assert sizing.read_tasks >= 1
    assert sizing.write_tasks >= 1


def test_every_gpu_gets_an_actor_and_torch_threads_are_left_alone() -> None:
    sizing = decide(Cluster(num_cpus=96, num_gpus=8), RuntimeSpec(), physical_cpus=96)
    assert (sizing.label_actors, sizing.gpus_per_actor, sizing.threads_per_actor) == (8, 1, None)


def test_numbers_in_the_job_file_win() -> None:
    runtime = RuntimeSpec(label_actors=3, prepare_tasks=5)
    sizing = decide(Cluster(num_cpus=96, num_gpus=8), runtime, physical_cpus=96)
    assert (sizing.label_actors, sizing.prepare_tasks) == (3, 5)


def test_cpu_labels_are_made_on_request_although_there_is_a_gpu() -> None:
    sizing = decide(Cluster(8, 1), RuntimeSpec(device="cpu"), physical_cpus=8)
    assert (sizing.label_actors, sizing.gpus_per_actor) == (1, 0)


def test_all_stages_fit_the_cpus_of_a_small_machine_at_once() -> None:
    sizing = decide(Cluster(num_cpus=4, num_gpus=0), RuntimeSpec(), physical_cpus=2)
    asked = (
        sizing.label_actors * LABEL_CPUS
        + sizing.prepare_tasks * PREPARE_CPUS
        + sizing.read_tasks * READ_CPUS
        + sizing.write_tasks * WRITE_CPUS
    )
    assert asked <= 4


def test_no_two_stages_ask_for_the_same_cpus_so_that_ray_does_not_fuse_them() -> None:
    assert len({READ_CPUS, PREPARE_CPUS, LABEL_CPUS, WRITE_CPUS}) == 4
