"""Building an index: what is read, what is kept, and what a later build adds."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

from sapiens_batch.errors import DriftError, InputError, ProtocolError, StorageError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import Array
from sapiens_batch.search import SearchIndex, Segment, build_index, open_index
from sapiens_batch.search.build import opened_view
from sapiens_batch.search.documents import newest_view, segment_key
from sapiens_batch.storage import Store, open_store
from tests.search.embedded_job import Row, commit_shard, shard_id, start_job

DIMENSION = 8


def memory() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


def vectors(shard: int, num: int = 10) -> Array:
    unit: Array = np.random.default_rng(shard).normal(size=(num, DIMENSION))
    return unit / np.linalg.norm(unit, axis=1, keepdims=True)


def add_shards(store: Store, numbers: range, num: int = 10) -> LabelSet:
    manifest = start_job(store, DIMENSION)
    for number in numbers:
        commit_shard(store, number, [Row(vector) for vector in vectors(number, num)], DIMENSION)
    return LabelSet(manifest)


def test_an_index_has_a_row_for_every_embedding_in_stored_order() -> None:
    view = build_index(add_shards(memory(), range(3)), index := memory())
    assert (view.number, view.num_rows, view.dimension, view.recall) == (0, 30, DIMENSION, 1.0)
    places = SearchIndex(index, view).places()
    assert places["shard_id"].to_pylist() == [shard_id(n) for n in range(3) for _ in range(10)]
    assert places["index"].to_pylist() == list(range(10)) * 3
    assert places["key"].to_pylist()[:2] == ["0-0", "0-1"]


def test_samples_without_a_finite_embedding_are_left_out() -> None:
    job = memory()
    manifest = start_job(job, 2)
    commit_shard(job, 0, [Row([3, 4]), Row(None), Row([np.nan, 1]), Row([0, 0]), Row([1, 0])], 2)
    view = build_index(LabelSet(manifest), index := memory())
    found = SearchIndex(index, view)
    assert found.places()["index"].to_pylist() == [0, 4]
    (_, first), *_ = found.vectors()
    np.testing.assert_allclose(first.values[0], [0.6, 0.8], atol=1e-6)


def test_building_again_without_news_changes_nothing() -> None:
    labels, index = add_shards(memory(), range(2)), memory()
    first = build_index(labels, index)
    objects = [info.key for info in index.list("")]
    assert build_index(labels, index) == first
    assert [info.key for info in index.list("")] == objects


def test_a_later_build_reads_only_new_shards() -> None:
    job, index, new = memory(), memory(), list[Segment]()
    build_index(add_shards(job, range(4)), index)
    view = build_index(add_shards(job, range(4, 5)), index, on_segment=new.append)
    assert [list(segment.shards) for segment in new] == [[shard_id(4)]]
    assert [segment.num_rows for segment in view.segments] == [40, 10]
    assert view.number == 1
    assert newest_view(index) == view


def test_small_segments_are_folded_into_a_later_one() -> None:
    job, index = memory(), memory()
    for number in range(8):
        view = build_index(add_shards(job, range(number, number + 1)), index)
    assert [segment.num_rows for segment in view.segments] == [80]
    assert len(SearchIndex(index, view).places()) == 80


def test_segments_are_no_larger_than_told() -> None:
    view = build_index(add_shards(memory(), range(5)), memory(), segment_rows=25)
    assert [segment.num_rows for segment in view.segments] == [20, 20, 10]


def test_a_shard_that_was_labeled_again_is_read_again() -> None:
    job, index = memory(), memory()
    labels = add_shards(job, range(2))
    before = build_index(labels, index)
    stale = before.segments[0].model_copy(update={"shards": {shard_id(0): 0, shard_id(9): 0}})
    other = memory()
    other.create("views/000000.json", before.model_copy(update={"segments": (stale,)}).to_bytes())
    view = build_index(labels, other)
    assert view.number == 1
    assert [dict(segment.shards) for segment in view.segments] == [{shard_id(0): 0, shard_id(1): 0}]


def test_a_build_that_was_cut_short_continues() -> None:
    labels, index, other = add_shards(memory(), range(2)), memory(), memory()
    view = build_index(labels, index)
    for info in index.list("segments/"):
        other.create(info.key, index.read(info.key))
    again = build_index(labels, other)
    assert again.segments == view.segments


def test_data_of_a_segment_without_its_document_is_not_trusted() -> None:
    labels, index, other = add_shards(memory(), range(1)), memory(), memory()
    view = build_index(labels, index)
    document = segment_key(view.segments[0].segment_id)
    for info in index.list("segments/"):
        if info.key != document:
            other.create(info.key, b"torn")
    again = build_index(labels, other)
    assert len(SearchIndex(other, again).search(vectors(0)[0], 3)) == 3


def test_the_index_of_another_job_is_refused() -> None:
    index = memory()
    build_index(add_shards(memory(), range(1)), index)
    with pytest.raises(DriftError, match=r"holds the index .*\(spec 7777.*not of .*\(spec 8888"):
        build_index(LabelSet(start_job(memory(), DIMENSION, digest="8" * 64)), index)


def test_a_column_that_holds_no_vectors_is_refused() -> None:
    with pytest.raises(InputError, match=r"no column of vectors 'key'.*it has embedding"):
        build_index(add_shards(memory(), range(1)), memory(), column="key")


def test_a_folder_without_an_index_is_reported() -> None:
    with pytest.raises(StorageError, match="holds no index; make one with `search build`"):
        open_index("memory://nothing")
    with pytest.raises(StorageError, match="holds no index"):
        opened_view(add_shards(memory(), range(1)), memory())


def test_a_job_without_commits_has_an_empty_index() -> None:
    view = build_index(LabelSet(start_job(memory(), DIMENSION)), index := memory())
    assert view.num_rows == 0
    assert len(SearchIndex(index, view).search(np.ones(DIMENSION))) == 0


def test_a_damaged_object_of_a_segment_is_named_and_not_searched() -> None:
    labels, index = add_shards(memory(), range(1)), memory()
    (segment,) = build_index(labels, index).segments
    for stored in (segment.places, segment.vectors):
        data = index.read(stored.key)
        index.delete(stored.key)
        index.create(stored.key, data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        with pytest.raises(ProtocolError, match=rf"^{stored.key}: .*delete the index folder"):
            SearchIndex(index, opened_view(labels, index)).search(vectors(0)[0], 3).to_pylist()
        index.delete(stored.key)
        index.create(stored.key, data)
