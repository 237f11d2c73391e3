"""Delta tables, their log read through the deltalake library."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sapiens_batch.errors import DependencyError, InputError
from sapiens_batch.records import Sample
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from tests.conformance.source_contract import SourceContract, samples_of
from tests.sources.corpora import good_keys

deltalake = pytest.importorskip("deltalake", reason="the extra `delta` is not installed")


def write(folder: Path, keys: str, **options: object) -> str:
    table = pa.table({"jpg": [key.encode() for key in keys], "key": list(keys)})
    deltalake.write_deltalake(str(folder), table, mode="append", **options)
    return str(folder)


def read(uri: str, **fields: object) -> list[Sample]:
    source = make_source(SourceSpec.model_validate({"format": "delta", "uri": uri, **fields}))
    return [sample for shard in source.plan() for sample in samples_of(source, shard)]


class TestDeltaSource(SourceContract):
    SHARD_KEYS = ("key=a/0.parquet", "key=b/0.parquet")
    SAMPLE_KEYS = (("0", "1"), ("0",))

    def write_corpus(self, folder: Path) -> None:
        """Written by hand, because the library gives the files random names."""
        table = pa.table({"jpg": [b"1", b"2"]})
        for name, part in (("key=a", table), ("key=b", table.slice(1))):
            (folder / "t" / name).mkdir(parents=True)
            pq.write_table(part, folder / "t" / name / "0.parquet")
        write_log(folder / "t")

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="delta", uri=str(folder / "t"))


INLINE_DELETIONS = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000625c8Xg0@@D72lj-7",
    "sizeInBytes": 38,
    "cardinality": 3,
}
"""Rows 3, 4 and 7, as a roaring bitmap in Z85."""


def write_log(
    folder: Path, deletions: dict[str, object] | None = None, **configuration: str
) -> None:
    protocol: dict[str, object] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if deletions:
        features = ["deletionVectors"]
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": features, "writerFeatures": features}
    fields = [
        {"name": "jpg", "type": "binary", "nullable": True, "metadata": {}},
        {"name": "key", "type": "string", "nullable": True, "metadata": {}},
    ]
    metadata = {
        "id": "0",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["key"],
        "configuration": configuration,
    }
    actions: list[dict[str, object]] = [
        {"protocol": protocol},
        {"metaData": metadata},
    ]
    for path in sorted(folder.rglob("*.parquet")):
        values = {"key": path.parent.name.removeprefix("key=")}
        actions.append(
            {
                "add": {
                    "path": str(path.relative_to(folder)),
                    "partitionValues": values,
                    "size": path.stat().st_size,
                    "modificationTime": 0,
                    "dataChange": True,
                    "deletionVector": deletions,
                    "stats": json.dumps({"numRecords": pq.read_metadata(path).num_rows}),
                }
            }
        )
    log = folder / "_delta_log" / "00000000000000000000.json"
    log.parent.mkdir()
    log.write_text("\n".join(map(json.dumps, actions)))


def test_an_append_adds_a_shard_and_leaves_the_others_alone(tmp_path: Path) -> None:
    uri = write(tmp_path / "t", "ab")
    source = make_source(SourceSpec(format="delta", uri=uri))
    before = {shard.shard_id for shard in source.plan()}
    write(tmp_path / "t", "c")
    after = {shard.shard_id for shard in source.plan()}
    assert (len(before), len(after), before <= after) == (1, 2, True)


def test_a_snapshot_is_a_version_of_the_table(tmp_path: Path) -> None:
    uri = write(tmp_path / "t", "ab")
    write(tmp_path / "t", "c")
    assert sorted(good_keys(read(uri))) == ["a", "b", "c"]
    assert good_keys(read(uri, snapshot=0)) == ["a", "b"]
    with pytest.raises(InputError, match="no readable Delta table"):
        read(uri, snapshot=9)


def test_removed_files_are_not_read(tmp_path: Path) -> None:
    uri = write(tmp_path / "t", "ab")
    deltalake.DeltaTable(uri).delete("key = 'a'")
    assert good_keys(read(uri)) == ["b"]


def test_partitions_with_odd_names_are_found(tmp_path: Path) -> None:
    table = pa.table({"jpg": [b"1", b"2"], "part": ["x y", "é=1"]})
    deltalake.write_deltalake(str(tmp_path / "t"), table, partition_by=["part"])
    assert sorted(sample.encoded or b"" for sample in read(str(tmp_path / "t"))) == [b"1", b"2"]


def test_hidden_rows_are_refused_rather_than_read(tmp_path: Path) -> None:
    (tmp_path / "t" / "key=a").mkdir(parents=True)
    table = pa.table({"jpg": [b"x"] * 40})
    pq.write_table(table, tmp_path / "t" / "key=a" / "0.parquet")
    write_log(tmp_path / "t", INLINE_DELETIONS)
    with pytest.raises(InputError, match="deletion vectors hide rows of 1 files"):
        read(str(tmp_path / "t"))


def test_column_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    write_log(tmp_path / "t", **{"delta.columnMapping.mode": "name"})
    with pytest.raises(InputError, match="maps column names"):
        read(str(tmp_path / "t"))


def test_a_vacuumed_file_is_named(tmp_path: Path) -> None:
    uri = write(tmp_path / "t", "ab")
    next((tmp_path / "t").glob("*.parquet")).unlink()
    with pytest.raises(InputError, match=r"1 of 1 data files of .* do not exist"):
        read(uri)


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(DependencyError, match=r"pip install 'sapiens-batch\[delta\]'"):
        read(str(tmp_path))
