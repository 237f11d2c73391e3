"""The job as a Ray Data graph of two stages: read and prepare, label and store.

With a target block size of one byte every row is its own block, so a chunk is one block, one call
and one receipt whatever the cluster does. The graph keeps no state; what is done is in the store.

The pool of label actors starts with all that are asked for. Those without a GPU wait for one, which
costs nothing and is what makes an autoscaler bring it, and a node that leaves takes none for good.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Sequence
from typing import cast

import pyarrow as pa
import ray
import ray.data
from ray.data import ExecutionResources

from sapiens_batch.driver.sizing import (
    LABEL_CPUS,
    READ_CPUS,
    Sizing,
    cut_spans,
    group_tasks,
    object_store_bytes,
)
from sapiens_batch.protocol.todo import ShardTodo
from sapiens_batch.sources import with_absolute_addresses
from sapiens_batch.stages.attempts import Attempts
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.flow import Outcome, unpack
from sapiens_batch.stages.label import LabelChunk
from sapiens_batch.stages.preparer import make_preparer
from sapiens_batch.stages.read import ShardReader
from sapiens_batch.stages.source import SpanSource
from sapiens_batch.stages.span import SpanReader
from sapiens_batch.stages.view_labeler import LoadLabeler

STALL_FRACTION = 0.75
"""Of the time without progress: a read that hangs is named before the whole pass is given up."""

CHUNKS_PER_ACTOR = 3
"""One on the device, one being stored, one waiting: two leave a device idle where storing takes
longer than labeling (measured), more only take memory."""

WORKER_TASKS = 32
"""Read tasks after which Ray replaces a process, so that what libraries leak stays bounded."""

ACTOR_INIT_DEATHS = 5
"""In a row, before a pass is given up: a node can leave while its actor loads."""


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
    context.memory_usage_poll_interval_s = None  # else a thread is started for each chunk
    context.max_consecutive_actor_init_deaths = ACTOR_INIT_DEATHS
    # an actor that is let go while readers are slow would load its models again
    context.autoscaling_config.actor_pool_util_downscaling_threshold = -1.0
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # true of every small job, and nothing that a user can or should change
    warnings.filterwarnings("ignore", message="The maximum number of concurrent tasks")


def build(
    context: JobContext,
    todo: Sequence[ShardTodo],
    sizing: Sizing,
    load: LoadLabeler,
    attempts: Attempts,
) -> ray.data.Dataset:
    """The graph over some shards; nothing runs until it is iterated.

    Args:
        context: The job.
        todo: The shards.
        sizing: How many workers there may be.
        load: Loads the models.
        attempts: Counts attempts; one for all graphs of a run.
    """
    limit = object_store_bytes(sizing, context.view_specs, context.chunk_samples)
    options = ray.data.DataContext.get_current().execution_options
    options.resource_limits = ExecutionResources.for_limits(object_store_memory=limit)
    spans = cut_spans(todo, sizing.slots, context.chunk_samples)
    dataset: ray.data.Dataset = ray.data.read_datasource(
        SpanSource(_span_reader(context, attempts), group_tasks(spans)),
        override_num_blocks=1,
        concurrency=sizing.read_tasks,
        num_cpus=READ_CPUS,
        max_calls=WORKER_TASKS,
    ).map_batches(
        LabelChunk,
        fn_constructor_args=(context, sizing.threads_per_actor, load, attempts),
        batch_size=1,
        batch_format="pyarrow",
        num_cpus=LABEL_CPUS,
        num_gpus=sizing.gpus_per_actor,
        compute=ray.data.ActorPoolStrategy(
            initial_size=sizing.label_actors,
            min_size=1,
            max_size=sizing.max_label_actors,
            max_concurrent_calls_per_actor=CHUNKS_PER_ACTOR,
            enable_true_multi_threading=True,
        ),
    )
    return dataset


def _span_reader(context: JobContext, attempts: Attempts) -> SpanReader:
    # relative addresses mean the driver's folder, which workers do not share
    addressed = with_absolute_addresses(context.spec.source)
    stall_timeout_s = STALL_FRACTION * context.spec.runtime.no_progress_timeout_s
    reader = ShardReader(addressed, context.chunk_samples, stall_timeout_s)
    return SpanReader(reader, make_preparer(context), attempts, context.spec.errors.max_attempts)


def outcomes(dataset: ray.data.Dataset) -> Generator[Outcome]:
    """Run the graph and yield what became of each chunk, in order of completion."""
    batches = dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
    for table in batches:
        outcome: Outcome = unpack(cast(pa.Table, table))
        yield outcome
