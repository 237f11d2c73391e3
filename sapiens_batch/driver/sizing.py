"""How many workers each stage gets: a pure decision over what the cluster has.

The stages ask for different fractions of a CPU on purpose: Ray fuses neighbouring stages that ask
for the same, and a fused read and decode would run inside the GPU actor.
"""

from __future__ import annotations

from dataclasses import dataclass

from sapiens_batch.spec.job import RuntimeSpec

READ_CPUS = 0.2
PREPARE_CPUS = 0.9
WRITE_CPUS = 0.5
LABEL_CPUS = 0.3

MIN_LOCAL_CPUS = 4
"""Logical CPUs of a local Ray, so that every stage can run on a small machine."""

OBJECT_STORE_CHUNKS = 14
"""Dense chunks that the object store of a node must hold per label actor; at half of that a GPU
starves (measured: 0.81 of ideal at 7, 0.999 at 14)."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What Ray reports, summed over nodes."""

    num_cpus: float
    num_gpus: float


@dataclass(frozen=True, slots=True)
class Sizing:
    """Workers of each stage.

    Attributes:
        label_actors: Actors that hold the models.
        gpus_per_actor: 1 on GPUs, 0 where labels are made on the CPU.
        threads_per_actor: torch threads on the CPU, None on GPUs.
        prepare_tasks: Concurrent decoding tasks.
        read_tasks: Concurrent reading tasks.
        write_tasks: Concurrent writing tasks.
    """

    label_actors: int
    gpus_per_actor: int
    threads_per_actor: int | None
    prepare_tasks: int
    read_tasks: int
    write_tasks: int


def decide(cluster: Cluster, runtime: RuntimeSpec, *, physical_cpus: int) -> Sizing:
    """Size the stages.

    Args:
        cluster: What there is.
        runtime: What the job file asks for; numbers there win.
        physical_cpus: CPUs of one node, for torch threads when labels are made on the CPU.
    """
    on_gpu = cluster.num_gpus >= 1 and runtime.device in ("auto", "cuda")
    per_gpu = int(cluster.num_gpus) if on_gpu else 1
    actors = per_gpu if runtime.label_actors == "auto" else runtime.label_actors
    spare = max(1.0, cluster.num_cpus - actors * LABEL_CPUS)
    fitting = max(1, int(0.6 * spare / PREPARE_CPUS))
    prepare = fitting if runtime.prepare_tasks == "auto" else runtime.prepare_tasks
    return Sizing(
        label_actors=actors,
        gpus_per_actor=1 if on_gpu else 0,
        threads_per_actor=None if on_gpu else max(1, physical_cpus // actors),
        prepare_tasks=prepare,
        read_tasks=max(1, min(prepare, actors + 1)),
        write_tasks=max(1, int(0.3 * spare / WRITE_CPUS)),
    )
