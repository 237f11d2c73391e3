"""The job as a Ray Data graph: read, prepare, label, write.

With a target block size of one byte every row is its own block, so a chunk is one block, one task
and one receipt whatever the cluster does. The graph keeps no state; what is done is in the store.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Sequence
from typing import cast

import pyarrow as pa
import ray
import ray.data

from sapiens_batch.driver.sizing import LABEL_CPUS, PREPARE_CPUS, READ_CPUS, WRITE_CPUS, Sizing
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.sources import with_absolute_addresses
from sapiens_batch.stages.attempts import AttemptLedger
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import Outcome, unpack
from sapiens_batch.stages.label import LabelChunk
from sapiens_batch.stages.read import ShardReader
from sapiens_batch.stages.source import ShardSource
from sapiens_batch.stages.stage import make_preparer, prepare_chunk, write_chunk
from sapiens_batch.stages.view_labeler import LoadLabeler
from sapiens_batch.stages.write import ChunkWriter

STALL_FRACTION = 0.75
"""Of the time without progress: a read that hangs is named before the whole pass is given up."""


def configure_ray_data(no_progress_timeout_s: float) -> None:
    """Set the data context that the graph relies on; call once before `build`.

    Args:
        no_progress_timeout_s: A graph without progress for so long fails.
    """
    context = ray.data.DataContext.get_current()
    context.target_max_block_size = 1
    context.max_errored_blocks = -1
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = no_progress_timeout_s
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # true of every small job, and nothing that a user can or should change
    warnings.filterwarnings("ignore", message="The maximum number of concurrent tasks")


def build(
    context: JobContext,
    todo: Sequence[ShardTodo],
    sizing: Sizing,
    load: LoadLabeler,
    ledger: AttemptLedger,
) -> ray.data.Dataset:
    """The graph over some shards; nothing runs until it is iterated.

    Args:
        context: The job.
        todo: The shards.
        sizing: How many of each stage.
        load: Loads the models.
        ledger: Counts attempts; one for all graphs of a run.
    """
    max_calls = context.spec.runtime.worker_max_chunks
    strategy = {
        name: ray.data.TaskPoolStrategy(size=size)
        for name, size in (("prepare", sizing.prepare_tasks), ("write", sizing.write_tasks))
    }
    actors = ray.data.ActorPoolStrategy(
        size=sizing.label_actors,
        max_concurrent_calls_per_actor=2,
    )
    # relative addresses mean the driver's folder, which workers do not share
    addressed = with_absolute_addresses(context.spec.source)
    stall_timeout_s = STALL_FRACTION * context.spec.runtime.no_progress_timeout_s
    reader = ShardReader(addressed, context.chunk_samples, stall_timeout_s)
    source = ShardSource(reader, ledger, todo)
    fixed = {"batch_size": 1, "batch_format": "pyarrow"}
    dataset: ray.data.Dataset = (
        ray.data.read_datasource(
            source,
            override_num_blocks=1,
            concurrency=min(sizing.read_tasks, len(todo)),
            num_cpus=READ_CPUS,
        )
        .map_batches(
            prepare_chunk,
            fn_kwargs={"preparer": make_preparer(context), "ledger": ledger},
            num_cpus=PREPARE_CPUS,
            max_calls=max_calls,
            compute=strategy["prepare"],
            **fixed,
        )
        .map_batches(
            LabelChunk,
            fn_constructor_args=(context, sizing.threads_per_actor, load, ledger),
            num_cpus=LABEL_CPUS,
            num_gpus=sizing.gpus_per_actor,
            compute=actors,
            **fixed,
        )
        .map_batches(
            write_chunk,
            fn_kwargs={"writer": _writer(context), "ledger": ledger},
            num_cpus=WRITE_CPUS,
            max_calls=max_calls,
            compute=strategy["write"],
            **fixed,
        )
    )
    return dataset


def _writer(context: JobContext) -> ChunkWriter:
    columns = context.spec.source.columns
    return ChunkWriter(context.store, context.schemas, columns, context.chunk_samples)


def outcomes(dataset: ray.data.Dataset) -> Generator[Outcome]:
    """Run the graph and yield what became of each chunk, in order of completion."""
    batches = dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
    for table in batches:
        outcome: Outcome = unpack(cast(pa.Table, table))
        yield outcome
