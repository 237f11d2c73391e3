"""Iceberg tables, their metadata read through the pyiceberg library with a local SQL catalog."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sapiens_batch.errors import DependencyError, InputError
from sapiens_batch.records import Sample
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from tests.conformance.source_contract import samples_of
from tests.sources.corpora import good_keys

catalogs = pytest.importorskip("pyiceberg.catalog", reason="the extra `iceberg` is not installed")


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }


@pytest.fixture
def table(options: dict[str, str]) -> Iterator[Any]:
    """A table with the rows a, b and, appended, c."""
    catalog = catalogs.load_catalog("local", **options)
    catalog.create_namespace("people")
    rows = pa.table({"jpg": [b"a", b"b"], "key": ["a", "b"]})
    table = catalog.create_table("people.photos", schema=rows.schema)
    table.append(rows)
    table.append(pa.table({"jpg": [b"c"], "key": ["c"]}))
    yield table
    catalog.close()


def read(uri: str, **fields: object) -> list[Sample]:
    source = make_source(SourceSpec.model_validate({"format": "iceberg", "uri": uri, **fields}))
    return [sample for shard in source.plan() for sample in samples_of(source, shard)]


def test_a_table_is_named_by_its_metadata_file_or_through_a_catalog(
    table: Any, options: dict[str, str]
) -> None:
    metadata = table.metadata_location.removeprefix("file://")
    for uri, fields in (
        (metadata, {}),
        (table.metadata_location, {}),
        ("iceberg://local/people.photos", {"catalog_options": options}),
    ):
        assert sorted(good_keys(read(uri, **fields))) == ["a", "b", "c"]


def test_each_data_file_is_a_shard_with_a_name_below_the_table(table: Any) -> None:
    source = make_source(SourceSpec(format="iceberg", uri=table.metadata_location))
    shards = list(source.plan())
    assert [shard.key for shard in shards] == sorted(shard.key for shard in shards)
    assert [shard.key.startswith("data/") for shard in shards] == [True, True]
    assert list(source.plan()) == shards


def test_an_append_adds_a_shard_and_leaves_the_others_alone(table: Any) -> None:
    before = make_source(SourceSpec(format="iceberg", uri=table.metadata_location)).plan()
    ids = {shard.shard_id for shard in before}
    table.append(pa.table({"jpg": [b"d"], "key": ["d"]}))
    after = make_source(SourceSpec(format="iceberg", uri=table.metadata_location)).plan()
    later = {shard.shard_id for shard in after}
    assert (len(ids), len(later), ids <= later) == (2, 3, True)


def test_a_snapshot_is_chosen_by_its_id(table: Any) -> None:
    first, last = (snapshot.snapshot_id for snapshot in table.snapshots())
    assert good_keys(read(table.metadata_location, snapshot=first)) == ["a", "b"]
    with pytest.raises(InputError, match=f"has no snapshot 5; the last: {first}, {last}"):
        read(table.metadata_location, snapshot=5)


def test_a_table_that_is_not_there_is_an_input_error(
    tmp_path: Path, table: Any, options: dict[str, str]
) -> None:
    with pytest.raises(InputError, match=r"nowhere\.metadata\.json is no readable Iceberg table"):
        read(f"{tmp_path}/nowhere.metadata.json")
    with pytest.raises(InputError, match=r"people\.nobody is no readable Iceberg table"):
        read("iceberg://local/people.nobody", catalog_options=options)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(DependencyError, match=r"pip install 'sapiens-batch\[iceberg\]'"):
        read("x.metadata.json")
