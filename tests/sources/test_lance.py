"""Lance datasets, read through the lance library."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from sapiens_batch.errors import DependencyError, InputError
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from tests.conformance.source_contract import SourceContract, samples_of
from tests.sources.corpora import good_keys, reasons

lance = pytest.importorskip("lance", reason="the extra `lance` is not installed")


def write(folder: Path, keys: str, **columns: list[object]) -> Path:
    path = folder / "c.lance"
    table = pa.table({"jpg": [key.encode() for key in keys], "key": list(keys), **columns})
    lance.write_dataset(table, str(path), mode="append" if path.exists() else "create")
    return path


class TestLanceSource(SourceContract):
    SHARD_KEYS = ("c.lance/fragment-000000000", "c.lance/fragment-000000001")
    SAMPLE_KEYS = (("a", "c"), ("d",))

    def write_corpus(self, folder: Path) -> None:
        write(folder, "abc")
        lance.dataset(str(write(folder, "d"))).delete("key = 'b'")

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="lance", uri=str(folder / "c.lance"))


def test_an_append_adds_a_shard_and_leaves_the_others_alone(tmp_path: Path) -> None:
    source = make_source(SourceSpec(format="lance", uri=str(write(tmp_path, "ab"))))
    before = [shard.shard_id for shard in source.plan()]
    write(tmp_path, "c")
    after = [shard.shard_id for shard in source.plan()]
    assert (len(after), after[:1]) == (2, before)


def test_a_planned_shard_survives_deletion_and_compaction(tmp_path: Path) -> None:
    path = write(tmp_path, "ab")
    write(tmp_path, "c")
    source = make_source(SourceSpec(format="lance", uri=str(path)))
    planned = list(source.plan())
    dataset = lance.dataset(str(path))
    dataset.delete("key = 'a'")
    dataset.optimize.compact_files()
    assert [good_keys(samples_of(source, shard)) for shard in planned] == [["a", "b"], ["c"]]
    assert not {shard.shard_id for shard in source.plan()} & {one.shard_id for one in planned}


def test_a_snapshot_is_a_version_of_the_dataset(tmp_path: Path) -> None:
    path = write(tmp_path, "ab")
    write(tmp_path, "c")
    source = make_source(SourceSpec(format="lance", uri=str(path), snapshot=1))
    assert [good_keys(samples_of(source, shard)) for shard in source.plan()] == [["a", "b"]]
    with pytest.raises(InputError, match="no readable Lance dataset"):
        list(make_source(SourceSpec(format="lance", uri=str(path), snapshot=9)).plan())


def test_columns_boxes_and_nulls_are_as_in_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {"image": pa.array([b"a", None], pa.binary()), "boxes": [[[1, 2, 3, 4]], []], "n": [7, 8]}
    )
    lance.write_dataset(table, str(tmp_path / "d.lance"))
    spec = SourceSpec(
        format="lance", uri=str(tmp_path / "d.lance"), boxes="boxes", columns=["n"], key="n"
    )
    source = make_source(spec)
    (shard,) = source.plan()
    first, second = samples_of(source, shard)
    assert first.boxes is not None and first.boxes.tolist() == [[1, 2, 3, 4]]
    assert first.extra == {"n": 7}
    assert reasons([second]) == {"8": "source.missing_image"}


def test_blob_columns_give_their_bytes(tmp_path: Path) -> None:
    blob = pa.field("jpg", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table({"jpg": [b"a" * 5000, b"b"]}, schema=pa.schema([blob]))
    lance.write_dataset(table, str(tmp_path / "d.lance"))
    source = make_source(SourceSpec(format="lance", uri=str(tmp_path / "d.lance")))
    (shard,) = source.plan()
    assert [sample.encoded for sample in samples_of(source, shard)] == [b"a" * 5000, b"b"]


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(DependencyError, match=r"pip install 'sapiens-batch\[lance\]'"):
        list(make_source(SourceSpec(format="lance", uri=str(tmp_path / "c.lance"))).plan())
