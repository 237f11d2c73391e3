"""Reading a job back: tables, arrays, samples; only what commits name is seen (I2, I3)."""

from __future__ import annotations

import pickle
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pytest

from sapiens_batch.errors import InputError, ProtocolError, StorageError
from sapiens_batch.labelset import LabelSet, open_labels
from sapiens_batch.storage import open_store
from tests.labelset.built_job import LABELED, SHARDS, normal_row, seg_row, write_job

FIRST, SECOND, UNCOMMITTED = (shard.shard_id for shard in SHARDS)


@pytest.fixture(scope="module", params=["memory", "local"])
def labels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LabelSet:
    local = request.param == "local"
    uri = str(tmp_path_factory.mktemp("job")) if local else f"memory://{uuid.uuid4().hex}"
    write_job(open_store(uri))
    return open_labels(uri)


def test_tables_hold_committed_rows_only(labels: LabelSet) -> None:
    table = labels.images.to_table(columns=["shard_id", "index", "status"])
    assert table.num_rows == 12
    assert table["shard_id"].to_pylist() == [FIRST] * 6 + [SECOND] * 6
    assert labels.persons.count_rows() == 10
    assert set(labels.commits) == {FIRST, SECOND}


def test_a_filter_on_the_shard_opens_its_file_only(labels: LabelSet) -> None:
    wanted = ds.field("shard_id") == SECOND
    assert [one.path for one in labels.images.get_fragments(wanted)] == [
        labels.commits[SECOND].tables["images"].key
    ]
    assert labels.images.to_table(filter=wanted)["key"].to_pylist()[-1] == "only-1"


def test_datasets_carry_the_footer(labels: LabelSet) -> None:
    assert b"sapiens_batch" in labels.images.schema.metadata


def test_a_row_of_an_array_is_read_by_its_place(labels: LabelSet) -> None:
    seg, normal = labels.array("seg"), labels.array("normal")
    for index in LABELED:
        np.testing.assert_array_equal(seg[SECOND, index], seg_row(1, index))
        np.testing.assert_array_equal(normal[FIRST, index], normal_row(0, index))


def test_a_row_without_labels_is_none(labels: LabelSet) -> None:
    seg = labels.array("seg")
    assert seg.row(FIRST, 1) is None
    with pytest.raises(KeyError, match="has no seg labels"):
        seg[FIRST, 1]
    with pytest.raises(IndexError, match="row 6 of an array of 6 rows"):
        seg.row(FIRST, 6)


def test_an_array_of_an_uncommitted_shard_is_not_seen(labels: LabelSet) -> None:
    with pytest.raises(KeyError, match="not committed"):
        labels.array("seg").row(UNCOMMITTED, 0)


def test_all_rows_of_a_shard_are_streamed(labels: LabelSet) -> None:
    rows = dict(labels.array("seg").rows(FIRST))
    assert list(rows) == LABELED
    np.testing.assert_array_equal(rows[5], seg_row(0, 5))


def test_unknown_tasks_are_named(labels: LabelSet) -> None:
    with pytest.raises(KeyError, match=r"\['embedding', 'normal', 'pose', 'seg'\], not 'depth'"):
        labels.array("depth")
    with pytest.raises(ValueError, match="pose fills table columns only"):
        labels.array("pose")


def test_a_sample_is_found_by_its_key(labels: LabelSet) -> None:
    sample = labels.sample("only-1")
    assert sample.row["shard_id"] == SECOND
    assert sample.row["status"] == "ok"
    assert sample.row["caption"] == "a photo"
    assert sample.row["embedding"].dtype == np.float16
    assert sample.row["embedding"].tolist() == [1, 0, 0, 0]
    assert [person["person"] for person in sample.persons] == [0]
    assert sample.persons[0]["keypoints"].shape == (5, 2)
    assert sample.persons[0]["bbox_score"] is None


def test_persons_of_a_sample_are_those_of_its_shard(labels: LabelSet) -> None:
    sample = labels.sample("k3", shard_id=SECOND)
    assert [(one["shard_id"], one["person"]) for one in sample.persons] == [
        (SECOND, 0),
        (SECOND, 1),
    ]


def test_a_key_of_two_shards_asks_for_the_shard(labels: LabelSet) -> None:
    with pytest.raises(InputError, match=rf"2 samples.*{FIRST} \(0\.tar\).*{SECOND} \(1\.tar\)"):
        labels.sample("k0")
    assert labels.sample("k0", FIRST).row["shard_id"] == FIRST
    assert labels.sample("k0", FIRST, 0).row["index"] == 0


def test_an_unknown_key_is_reported(labels: LabelSet) -> None:
    with pytest.raises(InputError, match="no sample 'k9' among the 2 committed shards"):
        labels.sample("k9")


def test_a_samples_arrays_are_cropped_to_their_frame(labels: LabelSet) -> None:
    sample = labels.sample("only-0")
    seg, normal = sample.array("seg"), sample.array("normal")
    assert seg is not None
    assert normal is not None
    np.testing.assert_array_equal(seg, np.arange(12).reshape(4, 3) + 5)
    assert normal.shape == (3, 4, 3)
    assert np.isfinite(normal).all()


def test_class_maps_come_back_to_source_pixels_unmixed(labels: LabelSet) -> None:
    seg = labels.sample("only-0").to_source("seg")
    assert seg is not None
    assert seg.dtype == np.uint8
    expected = (np.arange(12).reshape(4, 3) + 5).repeat(2, axis=0).repeat(2, axis=1)
    np.testing.assert_array_equal(seg, expected)


def test_normals_come_back_to_source_pixels_as_unit_vectors(labels: LabelSet) -> None:
    normal = labels.sample("only-0").to_source("normal")
    assert normal is not None
    assert normal.shape == (3, 8, 6)
    lengths = np.linalg.norm(normal.astype(np.float32), axis=0)
    np.testing.assert_allclose(lengths, 1, atol=2e-3)


def test_a_quarantined_sample_has_its_row_and_no_arrays(labels: LabelSet) -> None:
    sample = labels.sample("k1", FIRST)
    assert sample.row["reason"] == "decode.truncated"
    assert sample.row["seg_affine"] is None
    assert sample.row["embedding"] is None
    assert sample.array("seg") is None
    assert sample.to_source("normal") is None
    assert sample.persons == ()


def test_asking_for_a_person_of_an_image_task_is_refused(labels: LabelSet) -> None:
    with pytest.raises(ValueError, match="leave out person"):
        labels.sample("only-0").array("seg", person=0)


def test_a_label_set_can_be_sent_to_another_process(labels: LabelSet) -> None:
    array = pickle.loads(pickle.dumps(labels.array("seg")))
    np.testing.assert_array_equal(array[FIRST, 0], seg_row(0, 0))


def test_a_job_without_commits_has_empty_tables_with_their_schema(tmp_path: Path) -> None:
    write_job(open_store(str(tmp_path)), committed=())
    labels = open_labels(str(tmp_path))
    assert labels.images.count_rows() == 0
    assert labels.persons.to_table().num_rows == 0
    assert "seg_affine" in labels.images.schema.names
    with pytest.raises(InputError, match="among the 0 committed shards"):
        labels.sample("k0")


def test_a_folder_without_a_job_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a job directory"):
        open_labels(str(tmp_path))


def test_a_damaged_array_object_is_reported_with_its_key(tmp_path: Path) -> None:
    write_job(open_store(str(tmp_path)))
    labels = open_labels(str(tmp_path))
    stored = labels.commits[FIRST].arrays["seg"].chunks[0]
    data = bytearray((tmp_path / stored.key).read_bytes())
    data[-6] ^= 1
    (tmp_path / stored.key).write_bytes(data)
    with pytest.raises(ProtocolError, match=rf"{stored.key}: the digest .*run `verify --repair`"):
        labels.array("seg").row(FIRST, 0)


def test_reading_labels_imports_neither_ray_nor_torch() -> None:
    code = (
        "import sys, sapiens_batch.labelset\n"
        "heavy = {'ray', 'torch', 'transformers', 'cv2', 'fsspec'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_task_or_person_that_is_not_there_is_told_with_those_that_are(labels: LabelSet) -> None:
    sample = next(labels.samples())
    for ask in (sample.array, sample.to_source, lambda name: sample.mask([1], task=name)):
        with pytest.raises(KeyError, match=r"no task 'sed'; there are .*pose.*did you mean `seg`"):
            ask("sed")
