"""Which samples an export takes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sapiens_batch.curate import Recipe, save_selection, select
from sapiens_batch.errors import DriftError, InputError
from sapiens_batch.export.choice import Choice, SelectionFile
from sapiens_batch.labelset import LabelSet
from tests.export.conftest import NUM_LABELED, ExportTo, run


def chosen_keys(labels: LabelSet, choice: Choice) -> list[str]:
    found = []
    table = labels.images.to_table(columns=["key", "shard_id", "index"]).to_pylist()
    places = {(row["shard_id"], row["index"]): row["key"] for row in table}
    for shard_id in labels.commits:
        found += [places[shard_id, int(index)] for index in choice.indices(labels, shard_id)]
    return sorted(found)


def test_without_a_choice_all_but_the_quarantined_samples_are_taken(labels: LabelSet) -> None:
    taken = chosen_keys(labels, Choice())
    assert "sample-000000" in taken
    assert not {"sample-000007", "sample-000013"} & set(taken)
    assert len(taken) == NUM_LABELED


def test_a_filter_is_a_condition_on_images(labels: LabelSet) -> None:
    table = labels.images.to_table(columns=["key", "num_persons"]).to_pylist()
    expected = sorted(row["key"] for row in table if row["num_persons"] >= 2)
    assert chosen_keys(labels, Choice(where="num_persons >= 2")) == expected != []


def test_a_filter_that_names_no_column_is_refused(labels: LabelSet) -> None:
    with pytest.raises(InputError, match="num_people"):
        chosen_keys(labels, Choice(where="num_people >= 2"))


def test_a_curated_selection_is_taken_by_place(labels: LabelSet, tmp_path: Path) -> None:
    table = labels.images.to_table(columns=["key", "shard_id", "index"])
    wanted = table.filter(pa.compute.is_in(table["key"], pa.array(["sample-000020"])))
    path = tmp_path / "chosen.parquet"
    pq.write_table(wanted, path)
    selection = SelectionFile(str(path))
    assert chosen_keys(labels, Choice(selection=selection)) == ["sample-000020"]
    narrowed = Choice(where="num_persons > 100", selection=selection)
    assert chosen_keys(labels, narrowed) == []


@pytest.mark.parametrize("suffix", ["parquet", "npy"])
def test_a_list_of_keys_is_taken_too(labels: LabelSet, tmp_path: Path, suffix: str) -> None:
    keys = ["sample-000002", "sample-000013", "sample-000025", "no such sample"]
    path = tmp_path / f"keys.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"key": keys}), path)
    else:
        np.save(path, np.array(keys))
    taken = chosen_keys(labels, Choice(selection=SelectionFile(str(path))))
    assert taken == ["sample-000002", "sample-000025"]  # 13 is quarantined


def test_what_curate_selects_is_exported(
    labels: LabelSet, export_to: ExportTo, tmp_path: Path
) -> None:
    selection = select(labels, Recipe(where="num_persons >= 2"))
    path = save_selection(selection, str(tmp_path / "chosen.parquet"))
    folder = export_to(tmp_path / "out", "clip-retrieval", select=path)
    tables = [pq.read_table(one) for one in sorted((folder / "metadata").iterdir())]
    found = pa.concat_tables(tables)["key"].to_pylist()
    assert sorted(found) == chosen_keys(labels, Choice(where="num_persons >= 2"))


def test_a_missing_selection_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no selection file"):
        SelectionFile(str(tmp_path / "nothing.parquet"))


def test_a_changed_selection_is_another_export(
    job: Path, export_to: ExportTo, tmp_path: Path
) -> None:
    first, second = tmp_path / "1.parquet", tmp_path / "2.parquet"
    pq.write_table(pa.table({"key": ["sample-000000"]}), first)
    pq.write_table(pa.table({"key": ["sample-000001"]}), second)
    folder = export_to(tmp_path / "out", "croissant", select=str(first))
    summary = json.loads((folder / ".export/done.json").read_text())
    assert summary["samples"] == 1
    with pytest.raises(DriftError, match="select_sha256"):
        run(job, folder, "croissant", select=str(second))
