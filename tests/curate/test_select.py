"""Recipes carried out, and the files they give."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sapiens_batch.curate import (
    Balance,
    NearDuplicates,
    Recipe,
    Selection,
    load_recipe,
    read_selection,
    save_selection,
    select,
)
from sapiens_batch.errors import InputError, SpecError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.sources.selection import load_selection
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage import Store, open_store
from tests.search.embedded_job import Row, commit_shard, shard_id, start_job


def memory() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture(scope="module")
def labels() -> LabelSet:
    """Two shards: around (1, 0, 0) three near-duplicates and two more; two around (0, 1, 0)."""
    job = memory()
    manifest = start_job(job, 3)
    first = [
        Row([1, 0, 0]),
        Row([1, 0.01, 0], size=(200, 200)),
        Row([1, 0.3, 0]),
        Row(None),
        Row([0, 1, 0], persons=[]),
    ]
    second = [Row([1, 0, 0.01]), Row([1, 0, 0.4]), Row([0, 1, 0.3])]
    commit_shard(job, 0, first, 3)
    commit_shard(job, 1, second, 3)
    return LabelSet(manifest)


def test_a_selection_has_the_samples_that_match_in_stored_order(labels: LabelSet) -> None:
    chosen = select(labels, Recipe(where="num_persons >= 1"))
    assert chosen.table.column_names == ["key", "shard_id", "index"]
    assert chosen.table["key"].to_pylist() == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]
    assert chosen.made["counts"] == {"committed": 8, "matching": 6, "selected": 6}


def test_one_of_each_group_of_near_duplicates_stays(labels: LabelSet) -> None:
    chosen = select(labels, Recipe(near_duplicates=NearDuplicates(similarity=0.99)))
    assert chosen.table["key"].to_pylist() == ["0-1", "0-2", "0-4", "1-1", "1-2"]
    assert chosen.table["near_duplicates"].to_pylist() == [3, 1, 1, 1, 1]
    assert chosen.made["counts"]["without_near_duplicates"] == 5


def test_near_duplicates_are_looked_for_among_what_matches(labels: LabelSet) -> None:
    recipe = Recipe(
        where="height < 200 AND status = 'ok'", near_duplicates=NearDuplicates(similarity=0.99)
    )
    chosen = select(labels, recipe)
    assert chosen.table["key"].to_pylist() == ["0-0", "0-2", "0-4", "1-1", "1-2"]


def test_samples_without_an_embedding_stay_until_they_are_balanced(labels: LabelSet) -> None:
    everything = Recipe(where="true", near_duplicates=NearDuplicates(similarity=0.99))
    assert "0-3" in select(labels, everything).table["key"].to_pylist()
    balanced = everything.model_copy(update={"balance": Balance(clusters=2, samples=99)})
    assert "0-3" not in select(labels, balanced).table["key"].to_pylist()


def test_a_balanced_selection_takes_as_many_of_each_kind(labels: LabelSet) -> None:
    chosen = select(labels, Recipe(balance=Balance(clusters=2, samples=4), seed=7))
    keys = chosen.table["key"].to_pylist()
    assert len(keys) == 4
    assert {"0-4", "1-2"} < set(keys)
    assert sorted(chosen.table["cluster"].to_pylist()) == [0, 0, 1, 1]


def test_a_limit_takes_a_random_sample_that_the_seed_decides(labels: LabelSet) -> None:
    chosen = [
        select(labels, Recipe(limit=3, seed=seed)).table["key"].to_pylist() for seed in (1, 1, 2)
    ]
    assert [len(keys) for keys in chosen] == [3, 3, 3]
    assert chosen[0] == chosen[1] != chosen[2]


def test_the_same_recipe_gives_the_same_bytes(labels: LabelSet) -> None:
    recipe = Recipe(
        near_duplicates=NearDuplicates(similarity=0.99),
        balance=Balance(clusters=2, samples=3),
        seed=4,
    )
    store = memory()
    assert select(labels, recipe, store).to_parquet() == select(labels, recipe).to_parquet()
    assert any(store.list("views/"))


def test_a_selection_file_says_how_it_was_made(labels: LabelSet, tmp_path: Path) -> None:
    recipe = Recipe(where="num_persons >= 1", limit=2, seed=9)
    path = tmp_path / "chosen.parquet"
    assert save_selection(select(labels, recipe), str(path)) == str(path)
    made = json.loads(pq.read_metadata(path).metadata[b"sapiens_batch_selection"])
    assert made["recipe"]["where"] == "num_persons >= 1"
    assert (made["recipe"]["seed"], made["job"]) == (9, "embedded")
    assert made["spec_digest"] == "7" * 64
    assert made["num_shards"] == 2
    back = read_selection(str(path))
    assert back.made == made
    assert len(back) == 2


def test_a_source_reads_only_what_a_selection_has(labels: LabelSet, tmp_path: Path) -> None:
    path = tmp_path / "chosen.parquet"
    save_selection(select(labels, Recipe(where="num_persons = 0")), str(path))
    loaded = load_selection(SourceSpec(format="webdataset", uri="x.tar", select=str(path)))
    assert loaded is not None
    assert "0-4" in loaded
    assert "0-0" not in loaded


def test_uids_are_saved_as_datacomp_saves_them(tmp_path: Path) -> None:
    uids = ["ff" * 16, "00" * 15 + "07", "0f" * 16]
    job = memory()
    manifest = start_job(job, 2)
    commit_shard(job, 0, [Row([1, 0])] * 3, 2)
    table = select(LabelSet(manifest), Recipe()).table.set_column(0, "key", [uids])
    path = tmp_path / "uids.npy"
    save_selection(Selection(table, {}), str(path))
    saved = np.load(path)
    assert saved.dtype == np.dtype("u8,u8")
    assert saved.tolist() == [
        (0, 7),
        (0x0F0F0F0F0F0F0F0F, 0x0F0F0F0F0F0F0F0F),
        (0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF),
    ]
    loaded = load_selection(SourceSpec(format="webdataset", uri="x.tar", select=str(path)))
    assert loaded is not None
    assert uids[0] in loaded


def test_a_selection_is_not_overwritten(labels: LabelSet, tmp_path: Path) -> None:
    chosen = select(labels, Recipe())
    save_selection(chosen, str(tmp_path / "a.parquet"))
    with pytest.raises(InputError, match="exists and is not overwritten"):
        save_selection(chosen, str(tmp_path / "a.parquet"))
    with pytest.raises(InputError, match=r"ends with \.parquet, or \.npy"):
        save_selection(chosen, str(tmp_path / "a.csv"))
    with pytest.raises(InputError, match="key '0-0' is no uid of 32 hex digits"):
        save_selection(chosen, str(tmp_path / "a.npy"))


def test_any_parquet_file_is_no_selection(labels: LabelSet, tmp_path: Path) -> None:
    pq.write_table(select(labels, Recipe()).table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match="is no selection file"):
        read_selection(str(tmp_path / "a.parquet"))


def test_a_cut_selection_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"a\.parquet is no readable selection file: .*Parquet"):
        read_selection(str(tmp_path / "a.parquet"))


def test_keys_of_several_samples_are_counted() -> None:
    job = memory()
    manifest = start_job(job, 2)
    commit_shard(job, 0, [Row([1, 0])], 2)
    chosen = select(LabelSet(manifest), Recipe())
    assert chosen.made["repeated_keys"] == 0
    assert chosen.table["shard_id"].to_pylist() == [shard_id(0)]


def test_a_recipe_is_read_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "where: num_persons >= 1\nnear_duplicates: {similarity: 0.95}\n"
        "balance: {clusters: 8, samples: 100}\nseed: 3\n"
    )
    assert load_recipe(path) == Recipe(
        where="num_persons >= 1",
        near_duplicates=NearDuplicates(similarity=0.95),
        balance=Balance(clusters=8, samples=100),
        seed=3,
    )


def test_a_recipe_that_breaks_rules_lists_every_fault(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("near_duplicates: {similarity: 2}\nsize: 3\n")
    with pytest.raises(SpecError, match=r"2 fault\(s\)(?s:.*)similarity(?s:.*)size"):
        load_recipe(path)
    with pytest.raises(SpecError, match="cannot be read"):
        load_recipe(tmp_path / "missing.yaml")
