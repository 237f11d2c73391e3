"""Labels as torch datasets: map-style for samplers, iterable for reading in stored order.

The only module here that imports torch, and only `LabelSet.to_torch` imports it. Every wanted
sample is read once an epoch, by one worker of one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sapiens_batch.errors import DependencyError
from sapiens_batch.labelset.filters import Filter
from sapiens_batch.labelset.items import Item, Size, labeled_rows, sample_item, span_items, spans

try:
    import torch
    import torch.distributed
    from torch.utils.data import Dataset, IterableDataset, get_worker_info
except ImportError as error:
    raise DependencyError(f"to_torch needs torch: pip install torch ({error})") from error

if TYPE_CHECKING:
    from sapiens_batch.labelset.labels import LabelSet


class LabelDataset(Dataset[Item]):
    """Random access to the labels of samples, in stored order; see `LabelSet.to_torch`."""

    def __init__(
        self, labels: LabelSet, tasks: Sequence[str], wanted: Filter | None, *, size: Size
    ) -> None:
        self._labels = labels
        self._tasks = tuple(tasks)
        self._size = size
        self._places = labels.images.to_table(
            columns=["shard_id", "index"], filter=labeled_rows(labels, tasks, wanted)
        )

    def __len__(self) -> int:
        return int(self._places.num_rows)

    def __getitem__(self, position: int) -> Item:
        place = [column[position].as_py() for column in self._places.columns]
        return _tensors(sample_item(self._labels.sample_at(*place), self._tasks, self._size))


class LabelStream(IterableDataset[Item]):
    """Labels of samples in stored order, split among the workers of all processes.

    See `LabelSet.to_torch_stream` for the arguments.

    Attributes:
        epoch: Part of the seed; set it before each pass for another order.
    """

    def __init__(
        self,
        labels: LabelSet,
        tasks: Sequence[str],
        wanted: Filter | None,
        *,
        size: Size,
        seed: int | None,
    ) -> None:
        self._labels = labels
        self._tasks = tuple(tasks)
        self._size = size
        self._seed = seed
        self._filter = labeled_rows(labels, tasks, wanted)
        self.epoch = 0

    def __iter__(self) -> Iterator[Item]:
        reader, num_readers = _place_among_readers()
        found = spans(self._labels, self._filter, num_readers)
        if self._seed is not None:
            order = np.random.default_rng((self._seed, self.epoch)).permutation(len(found))
            found = [found[position] for position in order]
        for span in found[reader::num_readers]:
            for item in span_items(self._labels, span, self._tasks, self._filter, self._size):
                yield _tensors(item)


def collate(items: Sequence[Item]) -> dict[str, Any]:
    """A batch: values of equal shape are stacked, the others stay a list; for `DataLoader`.

    Raises:
        ValueError: Items have different names, as those of different tasks have.
    """
    names = items[0].keys()
    if any(item.keys() != names for item in items):
        raise ValueError(f"items of one batch have the names {[sorted(item) for item in items]}")
    return {name: _together([item[name] for item in items]) for name in names}


def _together(values: Sequence[Any]) -> Any:
    if isinstance(values[0], torch.Tensor) and len({value.shape for value in values}) == 1:
        return torch.stack(list(values))
    return list(values)


def _place_among_readers() -> tuple[int, int]:
    """(number of this reader, number of readers) over all processes and their workers."""
    worker = get_worker_info()
    number, num_workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
    rank, num_ranks = 0, 1
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, num_ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    return rank * num_workers + number, num_ranks * num_workers


def _tensors(item: Item) -> Item:
    return {name: _tensor(value) for name, value in item.items()}


def _tensor(value: Any) -> Any:
    if isinstance(value, list):
        return [_tensor(one) for one in value]
    if not isinstance(value, np.ndarray):
        return value
    # a copy where Arrow or zarr lent the memory, because torch refuses what is not writable
    return torch.from_numpy(np.require(value, requirements=["C", "W"]))
