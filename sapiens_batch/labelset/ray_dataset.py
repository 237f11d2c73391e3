"""Labels as a Ray dataset.

The only module here that imports ray, and only `LabelSet.to_ray` imports it. The driver reads no
labels: it hands out spans of samples, which tasks of the cluster read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from sapiens_batch.errors import DependencyError
from sapiens_batch.labelset.filters import Filter
from sapiens_batch.labelset.items import Size, Span, labeled_rows, span_items, spans

try:
    import ray.data
except ImportError as error:
    raise DependencyError(f"to_ray needs ray: pip install 'ray[data]' ({error})") from error

if TYPE_CHECKING:
    from sapiens_batch.labelset.labels import LabelSet

NUM_READERS: Final = 16
"""Spans are cut for so many readers at least; a larger cluster has larger jobs, of more shards."""


def ray_dataset(
    labels: LabelSet, tasks: Sequence[str], wanted: Filter | None, *, size: Size
) -> ray.data.Dataset:
    """See `LabelSet.to_ray`.

    Raises:
        InputError: The job has no such task, or the text is no filter.
    """
    expression = labeled_rows(labels, tasks, wanted)
    names = tuple(tasks)

    def read(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        span = Span(row["shard_id"], row["start"], row["stop"])
        yield from span_items(labels, span, names, expression, size)

    found = [span._asdict() for span in spans(labels, expression, NUM_READERS)]
    return ray.data.from_items(found, override_num_blocks=max(1, len(found))).flat_map(read)
