"""Grouping tar members into samples."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from tests.conformance.source_contract import SourceContract
from tests.sources.corpora import good_keys, read_tar, reasons, tar_bytes


class TestWebDatasetSource(SourceContract):
    SHARD_KEYS = ("00.tar", "01.tar", "02.tar")
    SAMPLE_KEYS = (("a/0", "a/1", "b/0"), (), ("x",))

    def write_corpus(self, folder: Path) -> None:
        members = [("a/0.jpg", b"A0"), ("a/0.json", b"{}"), ("a/1.PNG", b"A1"), ("b/0.webp", b"B0")]
        (folder / "00.tar").write_bytes(tar_bytes(members))
        (folder / "01.tar").write_bytes(tar_bytes([]))
        (folder / "02.tar").write_bytes(tar_bytes([("x.txt", b"no image")]))

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="webdataset", uri=f"{folder}/{{00..02}}.tar")


def test_image_suffixes_count_in_any_case(tmp_path: Path) -> None:
    samples, problems = read_tar(tmp_path, [("a.jpg", b"1"), ("b.png", b"2"), ("d.JPEG", b"3")])
    assert [(sample.key, sample.encoded) for sample in samples] == [
        ("a", b"1"),
        ("b", b"2"),
        ("d", b"3"),
    ]
    assert problems == []


def test_image_preference_chooses_among_members(tmp_path: Path) -> None:
    members = [("0.png", b"png"), ("0.rgb.png", b"rgb"), ("0.jpg", b"jpg")]
    for preference, expected in [([], b"jpg"), (["png"], b"png"), (["rgb.png", "jpg"], b"rgb")]:
        samples, _ = read_tar(tmp_path, members, image=preference)
        assert [sample.encoded for sample in samples] == [expected]


def test_last_part_of_a_suffix_counts_where_no_plain_image_is(tmp_path: Path) -> None:
    samples, _ = read_tar(tmp_path, [("v1.2.img.jpg", b"1"), ("v1.json", b"{}")])
    assert [(sample.key, sample.encoded) for sample in samples] == [("v1", b"1")]


def test_two_equally_good_images_are_refused_rather_than_one_dropped(tmp_path: Path) -> None:
    samples, _ = read_tar(tmp_path, [("1.left.jpg", b"l"), ("1.right.jpg", b"r")])
    assert reasons(samples) == {"1": "source.ambiguous_image"}
    samples, _ = read_tar(
        tmp_path, [("1.left.jpg", b"l"), ("1.right.jpg", b"r")], image=["right.jpg"]
    )
    assert [sample.encoded for sample in samples] == [b"r"]


def test_boxes_scores_and_columns_come_from_the_json_member(tmp_path: Path) -> None:
    record = b'{"people": [[1, 2, 3, 4], [5, 6, 7, 8]], "conf": [0.5, 1], "url": "u", "n": 1}'
    samples, _ = read_tar(
        tmp_path,
        [("0.json", record), ("0.jpg", b"j"), ("0.txt", "größe".encode())],
        boxes="people",
        box_scores="conf",
        columns=["url", "txt", "absent"],
    )
    (sample,) = samples
    assert sample.boxes is not None and sample.boxes.dtype == np.float32
    assert sample.boxes.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert sample.box_scores is not None and sample.box_scores.tolist() == [0.5, 1.0]
    assert sample.extra == {"url": "u", "txt": "größe", "absent": None}


def test_missing_boxes_are_not_taken_for_nobody(tmp_path: Path) -> None:
    members = [
        ("0.jpg", b"j"),
        ("1.jpg", b"j"),
        ("1.json", b"{}"),
        ("2.jpg", b"j"),
        ("2.json", b'{"boxes": []}'),
        ("3.jpg", b"j"),
        ("3.json", b'{"boxes": [[1, 2, 3]]}'),
    ]
    samples, _ = read_tar(tmp_path, members, boxes="boxes")
    assert reasons(samples) == {
        "0": "source.missing_boxes",
        "1": "source.missing_boxes",
        "3": "source.bad_boxes",
    }
    assert samples[2].boxes is not None and samples[2].boxes.shape == (0, 4)


@pytest.mark.parametrize("content", [b'{"boxes": [[', b"\xff\xfe\xfa", b"", b"[" * 100_000, b"3"])
def test_bad_json_matters_only_where_the_job_needs_it(tmp_path: Path, content: bytes) -> None:
    members = [("0.jpg", b"j"), ("0.json", content)]
    assert good_keys(read_tar(tmp_path, members)[0]) == ["0"]
    samples, _ = read_tar(tmp_path, members, boxes="boxes")
    assert reasons(samples) == {"0": "source.bad_json"}


def test_members_without_an_image_make_a_quarantined_sample(tmp_path: Path) -> None:
    samples, _ = read_tar(tmp_path, [("0.json", b"{}"), ("0.txt", b"t"), ("1.jpg", b"j")])
    assert reasons(samples) == {"0": "source.missing_image"}
    assert good_keys(samples) == ["1"]


def test_a_repeated_member_is_refused_with_shard_key_and_offset(tmp_path: Path) -> None:
    samples, _ = read_tar(tmp_path, [("0.jpg", b"1"), ("0.jpg", b"2"), ("1.jpg", b"3")])
    assert reasons(samples) == {"0": "source.duplicate_member"}
    problem = samples[0].problem
    assert problem is not None
    assert "'0'" in problem.message
    assert "shard.tar" in problem.message
    assert "byte 1024" in problem.message
    assert good_keys(samples) == ["1"]


def test_a_key_that_returns_never_merges_nor_overwrites(tmp_path: Path) -> None:
    samples, _ = read_tar(tmp_path, [("0.jpg", b"a"), ("1.jpg", b"b"), ("0.json", b"{}")])
    assert [(sample.key, sample.encoded) for sample in samples[:2]] == [("0", b"a"), ("1", b"b")]
    assert [sample.key for sample in samples] == ["0", "1", "0"]
    assert samples[2].problem is not None
    assert samples[2].problem.reason == "source.duplicate_key"


def test_junk_and_folders_are_skipped_without_a_word(tmp_path: Path) -> None:
    names = ["._0.jpg", "__MACOSX/0.jpg", "a/Thumbs.db", ".DS_Store", "a/.hidden.jpg"]
    samples, problems = read_tar(tmp_path, [*[(name, b"x") for name in names], ("./0.jpg", b"j")])
    assert good_keys(samples) == ["./0"]
    assert problems == []


def test_members_that_are_no_samples_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind in [("link.jpg", tarfile.SYMTYPE), ("pipe.jpg", tarfile.FIFOTYPE)]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        for name in ["../up.jpg", "/abs.jpg", "README", "0.jpg"]:
            archive.addfile(tarfile.TarInfo(name))
    samples, problems = read_tar(tmp_path, path.read_bytes())
    assert [(sample.key, sample.encoded) for sample in samples] == [("0", b"")]
    assert {problem.reason: problem.message.split(":")[1][:4] for problem in problems} == {
        "source.unsupported_member": " 2 m",
        "source.unsafe_name": " 2 m",
        "source.no_suffix": " 1 m",
    }


def test_a_name_that_is_not_utf8_stays_readable(tmp_path: Path) -> None:
    content = tar_bytes([("abcd.jpg", b"j")]).replace(b"abcd.jpg", b"ab\xe4d.jpg")
    checksum = 256 + sum(content[:148]) + sum(content[156:512])
    content = content[:148] + f"{checksum:06o}\0 ".encode() + content[156:]
    samples, problems = read_tar(tmp_path, content)
    assert good_keys(samples) == ["ab\\xe4d"]
    assert problems == []


def test_no_sample_mixes_shards(tmp_path: Path) -> None:
    first = tar_bytes([("0.jpg", b"a0"), ("1.jpg", b"a1"), ("1.json", b"x" * 600)])
    (tmp_path / "a.tar").write_bytes(first[:2600])
    (tmp_path / "b.tar").write_bytes(tar_bytes([("1.json", b"{}"), ("2.jpg", b"b2")]))
    source = make_source(SourceSpec(format="webdataset", uri=str(tmp_path / "*.tar")))
    found = [
        (shard.key, item.key, item.problem and item.problem.reason)
        for shard in source.plan()
        for item in source.read(shard)
        if hasattr(item, "key")
    ]
    assert found == [
        ("a.tar", "0", None),
        ("a.tar", "1", "source.truncated"),
        ("b.tar", "1", "source.missing_image"),
        ("b.tar", "2", None),
    ]


def test_a_shard_that_changed_after_planning_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    path.write_bytes(tar_bytes([("0.jpg", b"a")]))
    source = make_source(SourceSpec(format="webdataset", uri=str(path)))
    (shard,) = source.plan()
    path.write_bytes(tar_bytes([("0.jpg", b"a"), ("1.jpg", b"b"), ("2.jpg", b"c")] * 9))
    with pytest.raises(InputError, match=r"0\.tar has changed since it was planned"):
        list(source.read(shard))
    path.unlink()
    with pytest.raises(InputError, match=r"0\.tar does not exist"):
        list(source.read(shard))
