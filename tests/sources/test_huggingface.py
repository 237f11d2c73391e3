"""Hugging Face datasets, as the `datasets` library writes them."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as PilImage

from sapiens_batch.errors import InputError
from sapiens_batch.records import Sample
from sapiens_batch.sources import make_source
from sapiens_batch.sources.huggingface import split_of
from sapiens_batch.spec.job import SourceSpec
from tests.conformance.source_contract import SourceContract, samples_of
from tests.sources.hub_server import serve_hub

STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write_parquet(path: Path, names: str) -> None:
    cells = [{"bytes": name.encode(), "path": f"{name}.jpg"} for name in names]
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"image": pa.array(cells, STRUCT)})
    features = {"info": {"features": {"image": {"_type": "Image"}}}}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), path)


def write_saved(folder: Path, names: str, batch_rows: int = 2) -> None:
    """A dataset as `save_to_disk` lays it out, in two Arrow stream files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [f"data-{number:05d}-of-00002.arrow" for number in range(2)]
    for file, part in zip(files, (names[:-1], names[-1:]), strict=True):
        cells = [{"bytes": name.encode(), "path": None} for name in part]
        table = pa.table({"image": pa.array(cells, STRUCT), "text": list(part)})
        with pa.ipc.new_stream(str(folder / file), table.schema) as writer:
            writer.write_table(table, max_chunksize=batch_rows)
    state = {"_data_files": [{"filename": file} for file in files], "_split": folder.name}
    (folder / "state.json").write_text(json.dumps(state))


def read(folder: Path, **fields: object) -> list[Sample]:
    spec = SourceSpec.model_validate({"format": "huggingface", "uri": str(folder), **fields})
    source = make_source(spec)
    return [sample for shard in source.plan() for sample in samples_of(source, shard)]


class TestHubLayout(SourceContract):
    SHARD_KEYS = ("data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet")
    SAMPLE_KEYS = (("a.jpg", "b.jpg"), ("c.jpg",))

    def write_corpus(self, folder: Path) -> None:
        write_parquet(folder / self.SHARD_KEYS[0], "ab")
        write_parquet(folder / self.SHARD_KEYS[1], "c")
        write_parquet(folder / "data" / "test-00000-of-00001.parquet", "d")
        (folder / "README.md").write_text("---\n---\n")

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="huggingface", uri=str(folder))


class TestSavedLayout(SourceContract):
    SHARD_KEYS = ("train/data-00000-of-00002.arrow", "train/data-00001-of-00002.arrow")
    SAMPLE_KEYS = (("0", "1", "2"), ("0",))

    def write_corpus(self, folder: Path) -> None:
        write_saved(folder / "train", "abcd")
        write_saved(folder / "test", "xy")
        (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="huggingface", uri=str(folder))


def test_a_split_is_chosen_by_name(tmp_path: Path) -> None:
    TestHubLayout().write_corpus(tmp_path / "hub")
    TestSavedLayout().write_corpus(tmp_path / "saved")
    assert [sample.encoded for sample in read(tmp_path / "hub", split="test")] == [b"d"]
    assert [sample.encoded for sample in read(tmp_path / "saved", split="test")] == [b"x", b"y"]
    assert [sample.encoded for sample in read(tmp_path / "saved" / "test")] == [b"x", b"y"]
    for folder, known in (("hub", "test, train"), ("saved", "test, train")):
        with pytest.raises(InputError, match=f"has no split 'dev'.*it has {known}"):
            read(tmp_path / folder, split="dev")


@pytest.mark.parametrize(
    ("key", "split"),
    [
        ("data/train-00000-of-00002.parquet", "train"),
        ("data/all_people-00000-of-00001-a1b2c3.parquet", "all_people"),
        ("default/test/0000.parquet", "test"),
        ("my_validation.parquet", "validation"),
        ("dev/part.parquet", "validation"),
        ("constraints.parquet", "train"),
        ("0000.parquet", "train"),
    ],
)
def test_splits_are_told_by_names_as_the_datasets_library_does(key: str, split: str) -> None:
    assert split_of(key) == split


def test_configurations_are_not_mixed(tmp_path: Path) -> None:
    write_parquet(tmp_path / "faces" / "train-00000-of-00001.parquet", "a")
    write_parquet(tmp_path / "hands" / "train-00000-of-00001.parquet", "b")
    with pytest.raises(InputError, match=r"several folders \(faces, hands\).*/faces"):
        read(tmp_path)
    assert [sample.encoded for sample in read(tmp_path / "hands")] == [b"b"]


def test_a_dataset_of_the_hub_is_read_through_its_own_client(tmp_path: Path) -> None:
    TestHubLayout().write_corpus(tmp_path)
    with serve_hub(tmp_path) as endpoint:
        spec = SourceSpec(
            format="huggingface",
            uri="hf://datasets/me/people",
            storage_options={"endpoint": endpoint, "token": False},
        )
        source = make_source(spec)
        shards = list(source.plan())
        samples = [sample for shard in shards for sample in samples_of(source, shard)]
    assert [shard.key for shard in shards] == list(TestHubLayout.SHARD_KEYS)
    assert [shard.version for shard in shards] == [
        hashlib.sha1((tmp_path / key).read_bytes()).hexdigest() for key in TestHubLayout.SHARD_KEYS
    ]
    assert [(sample.key, sample.encoded) for sample in samples] == [
        ("a.jpg", b"a"),
        ("b.jpg", b"b"),
        ("c.jpg", b"c"),
    ]


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no Parquet and was not written by save_to_disk"):
        read(tmp_path / "empty")
    write_saved(tmp_path / "cut", "abc")
    (tmp_path / "cut" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(InputError, match=r"names files that are not there.*data-00001"):
        read(tmp_path / "cut")
    write_saved(tmp_path / "picked", "abc")
    (tmp_path / "picked" / "state.json").write_text('{"_indices_data_files": [{"filename": "i"}]}')
    with pytest.raises(InputError, match=r"flatten_indices"):
        read(tmp_path / "picked")


def test_what_the_datasets_library_writes_reads_the_same_from_disk_and_parquet(
    tmp_path: Path,
) -> None:
    datasets = pytest.importorskip("datasets", reason="the dev extra has datasets")
    pictures = []
    for shade in range(5):
        buffer = io.BytesIO()
        PilImage.new("L", (4, 4), shade).save(buffer, "PNG")
        pictures.append({"bytes": buffer.getvalue(), "path": f"{shade}.png"})
    features = datasets.Features({"image": datasets.Image(), "id": datasets.Value("string")})
    columns = {"image": pictures, "id": [f"id{number}" for number in range(5)]}
    dataset = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict({"train": dataset}).save_to_disk(
        tmp_path / "saved", num_shards={"train": 2}
    )
    (tmp_path / "hub" / "data").mkdir(parents=True)
    dataset.to_parquet(tmp_path / "hub" / "data" / "train-00000-of-00001.parquet")
    saved = read(tmp_path / "saved", key="id")
    hub = read(tmp_path / "hub", key="id")
    assert [sample.key for sample in saved] == ["id0", "id1", "id2", "id3", "id4"]
    assert [sample.encoded for sample in saved] == [cell["bytes"] for cell in pictures]
    assert [(item.key, item.encoded) for item in hub] == [(s.key, s.encoded) for s in saved]
