"""Reading only the samples that a list names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapiens_batch.errors import InputError
from sapiens_batch.sources import make_source, selection_digest
from sapiens_batch.sources.selection import load_selection
from sapiens_batch.spec.job import SourceSpec
from tests.sources.corpora import read_shard, tar_bytes

UIDS = [f"{number:032x}" for number in (1, 1 << 64, (7 << 64) + 5, (1 << 128) - 1)]


def write_uids(path: Path, uids: list[str]) -> Path:
    pairs = [(int(uid[:16], 16), int(uid[16:], 16)) for uid in uids]
    np.save(path, np.array(pairs, np.dtype("u8,u8")))
    return path


def write_corpora(folder: Path) -> dict[str, Path]:
    """Four samples k0 to k3 with the uids above, as tar, Parquet, folder and CSV."""
    keys = [f"k{number}" for number in range(4)]
    members = []
    for key, uid in zip(keys, UIDS, strict=True):
        members += [
            (f"{key}.jpg", key.encode()),
            (f"{key}.json", json.dumps({"uid": uid}).encode()),
        ]
        (folder / "images").mkdir(exist_ok=True)
        (folder / "images" / f"{key}.jpg").write_bytes(key.encode())
    (folder / "a.tar").write_bytes(tar_bytes(members))
    images = [key.encode() for key in keys]
    pq.write_table(pa.table({"jpg": images, "key": keys, "uid": UIDS}), folder / "a.parquet")
    lines = [f"images/{key}.jpg,{key},{uid}\n" for key, uid in zip(keys, UIDS, strict=True)]
    (folder / "a.csv").write_text("url,key,uid\n" + "".join(lines))
    return {
        "webdataset": folder / "a.tar",
        "parquet": folder / "a.parquet",
        "images": folder / "images",
        "listing": folder / "a.csv",
    }


@pytest.mark.parametrize("source_format", ["webdataset", "parquet", "listing"])
def test_uids_of_datacomp_choose_by_the_uid_field(tmp_path: Path, source_format: str) -> None:
    path = write_corpora(tmp_path)[source_format]
    select = write_uids(tmp_path / "uids.npy", [UIDS[1], UIDS[3], "0" * 32])
    samples, problems = read_shard(path, source_format, select=str(select))
    assert [(sample.key, sample.index, sample.encoded) for sample in samples] == [
        ("k1", 0, b"k1"),
        ("k3", 1, b"k3"),
    ]
    assert problems == []


@pytest.mark.parametrize("source_format", ["webdataset", "parquet", "listing", "images"])
@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_a_list_of_keys_chooses_by_key(tmp_path: Path, source_format: str, suffix: str) -> None:
    path = write_corpora(tmp_path)[source_format]
    keys = ["k2.jpg", "k0.jpg"] if source_format == "images" else ["k2", "k0"]
    select = tmp_path / f"keys.{suffix}"
    if suffix == "npy":
        np.save(select, np.array(keys))
    else:
        pq.write_table(pa.table({"key": keys}), select)
    samples, _ = read_shard(path, source_format, select=str(select))
    assert [sample.encoded for sample in samples] == [b"k0", b"k2"]


def test_any_column_may_decide(tmp_path: Path) -> None:
    path = write_corpora(tmp_path)["parquet"]
    pq.write_table(pa.table({"uid": UIDS[:1]}), tmp_path / "s.parquet")
    samples, _ = read_shard(path, "parquet", select=str(tmp_path / "s.parquet"))
    assert [sample.key for sample in samples] == ["k0"]
    pq.write_table(pa.table({"chosen": ["k3"]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="no column uid or key or __key__, only chosen"):
        read_shard(path, "parquet", select=str(tmp_path / "t.parquet"))
    pq.write_table(pa.table({"key": ["k3"]}), tmp_path / "u.parquet")
    samples, _ = read_shard(path, "parquet", select=str(tmp_path / "u.parquet"), select_by="key")
    assert [sample.key for sample in samples] == ["k3"]


def test_samples_without_the_deciding_field_are_counted(tmp_path: Path) -> None:
    content = [("a.jpg", b"a"), ("a.json", b"{"), ("b.jpg", b"b"), ("b.json", b"{}")]
    (tmp_path / "a.tar").write_bytes(tar_bytes(content))
    select = write_uids(tmp_path / "uids.npy", UIDS)
    samples, problems = read_shard(tmp_path / "a.tar", select=str(select))
    assert samples == []
    assert [problem.reason for problem in problems] == ["source.not_selectable"]
    assert "2 samples have no 'uid'" in problems[0].message
    assert "'a'" in problems[0].message


def test_a_table_without_the_deciding_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"jpg": [b"a"]}), path)
    with pytest.raises(InputError, match="has no column 'uid'"):
        read_shard(path, "parquet", select=str(write_uids(tmp_path / "uids.npy", UIDS)))


@pytest.mark.parametrize("source_format", ["webdataset", "parquet", "listing", "images"])
def test_another_list_gives_other_shards(tmp_path: Path, source_format: str) -> None:
    path = write_corpora(tmp_path)[source_format]
    spec = SourceSpec.model_validate(
        {"format": source_format, "uri": str(path), "select": str(tmp_path / "s.npy")}
    )
    ids = []
    for keys in (["k0", "k0.jpg"], ["k0", "k0.jpg", "k1", "k1.jpg"]):
        np.save(tmp_path / "s.npy", np.array(keys))
        ids.append([shard.shard_id for shard in make_source(spec).plan()])
    assert ids[0] != ids[1]


def test_a_list_that_changed_after_planning_is_refused(tmp_path: Path) -> None:
    path = write_corpora(tmp_path)["webdataset"]
    write_uids(tmp_path / "uids.npy", UIDS[:1])
    spec = SourceSpec(format="webdataset", uri=str(path), select=str(tmp_path / "uids.npy"))
    source = make_source(spec)
    (shard,) = source.plan()
    write_uids(tmp_path / "uids.npy", UIDS[:2])
    with pytest.raises(InputError, match="has changed since it was planned"):
        list(source.read(shard))


def test_the_digest_is_of_what_is_listed_and_not_of_the_file(tmp_path: Path) -> None:
    def digest(uids: list[str]) -> str | None:
        select = write_uids(tmp_path / f"{len(list(tmp_path.iterdir()))}.npy", uids)
        return selection_digest(SourceSpec(format="parquet", uri="x", select=str(select)))

    assert digest(UIDS) == digest(UIDS[::-1])
    assert digest(UIDS) != digest(UIDS[1:])
    assert selection_digest(SourceSpec(format="parquet", uri="x")) is None


@settings(max_examples=50, deadline=None)
@given(
    numbers=st.lists(st.integers(0, (1 << 128) - 1), unique=True, max_size=12),
    others=st.lists(st.integers(0, (1 << 128) - 1), max_size=12),
)
def test_holds_what_is_listed_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], others: list[int]
) -> None:
    path = tmp_path_factory.mktemp("select") / "uids.npy"
    write_uids(path, [f"{number:032x}" for number in numbers])
    selection = load_selection(SourceSpec(format="parquet", uri="x", select=str(path)))
    assert selection is not None
    assert all(f"{number:032x}" in selection for number in numbers)
    assert [f"{number:032x}" in selection for number in others] == [
        number in numbers for number in others
    ]
    assert "not a uid" not in selection


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(3), r"1 dimension\(s\) of float64: a selection is"),
        (np.array([["a"]]), r"2 dimension\(s\) of <U1"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, values: np.ndarray, message: str) -> None:
    np.save(tmp_path / "s.npy", values)
    with pytest.raises(InputError, match=message):
        load_selection(SourceSpec(format="parquet", uri="x", select=str(tmp_path / "s.npy")))


@pytest.mark.parametrize("name", ["s.npy", "s.parquet"])
def test_damaged_lists_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not a list")
    with pytest.raises(InputError, match=f"{name} is no readable"):
        load_selection(SourceSpec(format="parquet", uri="x", select=str(tmp_path / name)))
    with pytest.raises(InputError, match=r"source\.select: .*gone\.npy does not exist"):
        load_selection(SourceSpec(format="parquet", uri="x", select=str(tmp_path / "gone.npy")))
