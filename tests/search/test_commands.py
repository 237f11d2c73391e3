"""`search build`, `search query` and `curate` as people run them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from sapiens_batch.cli import app
from sapiens_batch.errors import InputError, SpecError
from sapiens_batch.sources.selection import load_selection
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage import open_store
from tests.labeled_job import make_labeled_job
from tests.search.embedded_job import Row, commit_shard, start_job


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four samples; the first two are near-duplicates, the last has nobody."""
    path = tmp_path_factory.mktemp("labels")
    store = open_store(str(path))
    start_job(store, 2)
    rows = [Row([1, 0]), Row([1, 0.01]), Row([0.6, 0.8]), Row([0, 1], persons=[])]
    commit_shard(store, 0, rows, 2)
    return str(path)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_an_index_is_built_then_up_to_date(job: str, tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    first = run("search", "build", job, "--index", index).output
    assert "4 vectors of 2" in first
    assert "new: 4 vectors of 1 shards, exact" in first
    assert "up to date" in run("search", "build", job, "--index", index).output
    told = json.loads(run("search", "build", job, "--index", index, "--json").output)
    assert (told["rows"], told["new_rows"], told["recall"]) == (4, 0, 1.0)


def test_a_query_by_key_is_told_as_table_json_and_files(job: str, tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    run("search", "build", job, "--index", index)
    query = ("search", "query", job, "--index", index, "--key", "0-0", "-n", "2")
    assert run(*query).output.split("\n")[1].split()[:3] == ["1", "1.0000", "0-1"]
    found = json.loads(run(*query, "--json").output)
    assert [row["key"] for row in found] == ["0-1", "0-2"]
    run(*query, "--keys", str(tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_text()) == ["0-1", "0-2"]
    run(*query, "--keys", str(tmp_path / "a.parquet"))
    assert pq.read_table(tmp_path / "a.parquet")["key"].to_pylist() == ["0-1", "0-2"]
    chosen = load_selection(
        SourceSpec(format="webdataset", uri="x.tar", select=str(tmp_path / "a.parquet"))
    )
    assert chosen is not None
    assert "0-2" in chosen


def test_a_query_by_vectors_answers_each(job: str, tmp_path: Path) -> None:
    run("search", "build", job)
    np.save(tmp_path / "q.npy", np.array([[0, 2], [3, 0]]))
    output = run("search", "query", job, "--vector", str(tmp_path / "q.npy"), "-n", "1", "--json")
    assert [row["key"] for row in json.loads(output.output)] == ["0-3", "0-0"]


def test_a_query_needs_exactly_one_question(job: str) -> None:
    with pytest.raises(InputError, match="give one of --key, --image and --vector"):
        run("search", "query", job)


def test_a_sheet_shows_the_photos_best_first(tmp_path: Path) -> None:
    job = make_labeled_job(
        tmp_path / "job", num_samples=14, chunk_samples=7, shard_samples=7, tasks=("embedding",)
    )
    run("search", "build", str(job))
    page = tmp_path / "hits.html"
    key = "sample-000000"
    found = run("search", "query", str(job), "--key", key, "-n", "4", "--html", str(page), "--json")
    keys = [row["key"] for row in json.loads(found.output)]
    text = page.read_text()
    assert [text.index(f"<h3>{one}</h3>") for one in keys] == sorted(
        text.index(f"<h3>{one}</h3>") for one in keys
    )
    assert text.count('src="data:image/jpeg;base64,') == 4
    assert "http:" not in text
    assert "https:" not in text
    assert f"like {key}" in text


def test_a_selection_is_written_with_its_account(job: str, tmp_path: Path) -> None:
    path = tmp_path / "chosen.parquet"
    arguments = ("curate", job, str(path), "--where", "num_persons >= 1")
    told = json.loads(run(*arguments, "--near-duplicates", "0.999", "--json").output)
    assert told["uri"] == str(path)
    assert told["counts"]["selected"] == 2
    assert pq.read_table(path)["key"].to_pylist() == ["0-0", "0-2"]
    with pytest.raises(InputError, match="exists and is not overwritten"):
        run(*arguments)


def test_options_replace_fields_of_a_recipe(job: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("where: num_persons >= 1\nlimit: 2\n")
    output = run(
        "curate", job, str(tmp_path / "a.parquet"), "--recipe", str(recipe), "--limit", "1"
    ).output
    assert [line.split()[-1] for line in output.splitlines()[:3]] == ["4", "3", "1"]


def test_clusters_and_samples_go_together(job: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--clusters and --samples go together"):
        run("curate", job, str(tmp_path / "a.parquet"), "--clusters", "2")
