"""How many workers there may be, and what each reads: pure decisions over what a cluster can have.

Numbers are ceilings. What there is at some moment is Ray's to know: actors and tasks without a
place wait for one, which is what makes an autoscaler bring it.

The two stages ask for different fractions of a CPU on purpose: Ray fuses neighbours that ask for
the same, and images would then be decoded inside the label actor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.records import ViewSpec
from sapiens_batch.spec.job import RuntimeSpec

LABEL_CPUS = 0.01
READ_CPUS = 0.99
"""A node whose CPUs all read has room for its label actors nevertheless: readers wait for actors,
so that actors that waited for readers would wait for ever."""

THREADS_PER_READER = 2
"""Where labels are made on the CPU, of the threads that make them: those take an image at least 5
times as long as reading it, and a reader costs 2 s of CPU and 300 MB until it reads."""

MAX_AUTO_ACTORS = 1024
"""Ceiling of `label_actors: auto` on a cluster that does not say how many GPUs it can have."""

OBJECT_STORE_CHUNKS = 14
"""Prepared chunks that may lie ready for each label actor; at half of that a GPU starves
(measured: 0.81 of ideal at 7, 0.999 at 14)."""
MIN_OBJECT_STORE_BYTES = 256 << 20

SPAN_BYTES = 16 << 20
"""A part of a shard that is worth a task of its own: some hundred photos, seconds of decoding."""

MAX_SPANS = 32
"""Of one shard: passing over takes about a fortieth of what preparing takes."""

READ_TASKS = 4096
"""Read tasks of one Ray graph. Ray plans every task before the first one starts."""
TASK_SHARDS = 16
"""Shards of one read task where there are many; a lost block means that its task runs again."""
WAVE_SHARDS = READ_TASKS * TASK_SHARDS


@dataclass(frozen=True, slots=True)
class Cluster:
    """What Ray reports, summed over nodes.

    Attributes:
        num_cpus: CPUs that are there.
        num_gpus: GPUs that are there.
        max_cpus: CPUs that node types can bring; None where the cluster does not say.
        max_gpus: The same for GPUs.
    """

    num_cpus: float
    num_gpus: float
    max_cpus: float | None = None
    max_gpus: float | None = None


@dataclass(frozen=True, slots=True)
class Sizing:
    """Workers of a job.

    Attributes:
        label_actors: Label actors that are asked for at the start.
        max_label_actors: Label actors that there may be.
        gpus_per_actor: 1 on GPUs, 0 where labels are made on the CPU.
        threads_per_actor: torch threads on the CPU, None on GPUs.
        read_tasks: Concurrent tasks that read and prepare; None for as many as there are CPUs, to
            keep GPUs busy.
        slots: Such tasks that could run at once, to cut large shards by.
    """

    label_actors: int
    max_label_actors: int
    gpus_per_actor: int
    threads_per_actor: int | None
    read_tasks: int | None
    slots: int


def decide(cluster: Cluster, runtime: RuntimeSpec, *, physical_cpus: int) -> Sizing:
    """Size the stages.

    Args:
        cluster: What there is and can be.
        runtime: What the job file asks for; numbers there win.
        physical_cpus: CPUs of one node, for torch threads when labels are made on the CPU.
    """
    on_gpu = _on_gpu(cluster, runtime)
    first, most = _label_actors(cluster, runtime, on_gpu)
    threads = None if on_gpu else max(1, physical_cpus // first)
    cpus = max(cluster.num_cpus, cluster.max_cpus or 0.0)
    read_tasks = None if runtime.prepare_tasks == "auto" else runtime.prepare_tasks
    if read_tasks is None and threads is not None:
        read_tasks = max(1, first * threads // THREADS_PER_READER)
    return Sizing(
        label_actors=first,
        max_label_actors=most,
        gpus_per_actor=1 if on_gpu else 0,
        threads_per_actor=threads,
        read_tasks=read_tasks,
        slots=read_tasks or max(1, int(cpus)),
    )


def _on_gpu(cluster: Cluster, runtime: RuntimeSpec) -> bool:
    if runtime.device == "auto":
        return max(cluster.num_gpus, cluster.max_gpus or 0.0) >= 1
    return runtime.device.startswith("cuda")


def _label_actors(cluster: Cluster, runtime: RuntimeSpec, on_gpu: bool) -> tuple[int, int]:
    """Actors at the start, and at most."""
    if runtime.label_actors != "auto":
        return runtime.label_actors, runtime.label_actors
    if not on_gpu:
        return 1, 1
    present = max(1, int(cluster.num_gpus))
    if cluster.max_gpus is None or cluster.max_gpus > MAX_AUTO_ACTORS:
        return present, max(present, MAX_AUTO_ACTORS)
    most = max(present, int(cluster.max_gpus))
    return most, most


def object_store_bytes(sizing: Sizing, views: Sequence[ViewSpec], chunk_samples: int) -> int:
    """Bytes of prepared chunks that may lie ready, for all label actors together."""
    chunk_bytes = chunk_samples * sum(view.canvas_bytes for view in views)
    wanted = sizing.max_label_actors * OBJECT_STORE_CHUNKS * chunk_bytes
    return max(MIN_OBJECT_STORE_BYTES, wanted)


def cut_spans(todo: Sequence[ShardTodo], slots: int, chunk_samples: int) -> list[ShardTodo]:
    """Shards as the spans that tasks read: whole ones, unless there are fewer than could be read.

    Each span reads through its whole shard and prepares its own chunks, so cutting pays only where
    no other shard can fill a slot.

    Args:
        todo: Shards.
        slots: Tasks that could run at once.
        chunk_samples: Samples per chunk.
    """
    wanted = -(-slots // max(1, len(todo)))
    return [span for one in todo for span in _spans(one, wanted, chunk_samples)]


def _spans(todo: ShardTodo, wanted: int, chunk_samples: int) -> list[ShardTodo]:
    count = min(wanted, MAX_SPANS, todo.shard.size_bytes // SPAN_BYTES)
    ordered = todo.ordered_chunks(chunk_samples)
    if ordered is not None:
        count = min(count, len(ordered - todo.done_chunks))
    if count <= 1:
        return [todo]
    return [replace(todo, span=(number, count)) for number in range(count)]


def group_tasks(spans: Sequence[ShardTodo]) -> list[list[ShardTodo]]:
    """Spans of each read task, at most `READ_TASKS` of them."""
    size = -(-len(spans) // READ_TASKS)
    return [list(spans[start : start + size]) for start in range(0, len(spans), max(1, size))]
