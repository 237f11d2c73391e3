"""Cutting a shard into chunks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.chunks import iter_chunks
from sapiens_batch.spec.job import SourceSpec

SHARD = Shard("0" * 32, "s", "/s", "v", 0)
DAMAGE = Problem("source.truncated", "cut")


class CountingSource(Source):
    """Gives a number of samples with a problem in front, and counts how many were asked for."""

    def __init__(self, num_samples: int) -> None:
        super().__init__(SourceSpec(format="images", uri="/s"))
        self.num_samples = num_samples
        self.num_read = 0

    def plan(self) -> Iterator[Shard]:
        yield SHARD

    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        yield DAMAGE
        for index in range(self.num_samples):
            self.num_read += 1
            yield Sample(str(index), index, b"x")


@settings(max_examples=80, deadline=None)
@given(
    num_samples=st.integers(0, 12),
    chunk_samples=st.integers(1, 5),
    skip=st.frozensets(st.integers(0, 12)),
)
def test_skipping_leaves_out_whole_chunks_and_changes_no_other(
    num_samples: int, chunk_samples: int, skip: frozenset[int]
) -> None:
    every = list(iter_chunks(CountingSource(num_samples), SHARD, chunk_samples))
    some = list(iter_chunks(CountingSource(num_samples), SHARD, chunk_samples, skip.__contains__))
    assert some == [chunk for chunk in every if chunk.index not in skip]
    assert [chunk.index for chunk in every] == list(range(len(every)))
    assert [key.key for chunk in every for key in chunk.samples] == [
        str(index) for index in range(num_samples)
    ]
    assert all(chunk.start == chunk.index * chunk_samples for chunk in every)
    assert [chunk.last for chunk in every][-1:] == [True]
    assert [chunk.problems for chunk in every] == [()] * (len(every) - 1) + [(DAMAGE,)]


def test_an_empty_shard_is_a_single_chunk_without_samples() -> None:
    (chunk,) = iter_chunks(CountingSource(0), SHARD, 4)
    assert (chunk.index, chunk.start, chunk.samples, chunk.last) == (0, 0, (), True)


@pytest.mark.parametrize(("num_samples", "num_chunks"), [(3, 1), (4, 1), (5, 2), (8, 2)])
def test_a_full_last_chunk_is_known_to_be_the_last(num_samples: int, num_chunks: int) -> None:
    chunks = list(iter_chunks(CountingSource(num_samples), SHARD, 4))
    assert len(chunks) == num_chunks
    assert [chunk.last for chunk in chunks] == [False] * (num_chunks - 1) + [True]


def test_reads_ahead_by_one_sample_only() -> None:
    source = CountingSource(100)
    next(iter_chunks(source, SHARD, 4))
    assert source.num_read == 5
