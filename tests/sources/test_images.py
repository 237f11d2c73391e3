"""Reading a folder of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from tests.conformance.source_contract import SourceContract, samples_of


class TestImagesSource(SourceContract):
    SHARD_KEYS = ("a/1.jpg..a/1.png", "b/1.JPG..c.webp")
    SAMPLE_KEYS = (("a/1.jpg", "a/1.png"), ("b/1.JPG", "c.webp"))

    def write_corpus(self, folder: Path) -> None:
        for name in ["a/1.jpg", "a/1.png", "b/1.JPG", "c.webp", "a/1.txt", ".x.jpg", "._c/1.jpg"]:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(name.encode())

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="images", uri=str(folder), shard_samples=2)


def plan_ids(folder: Path) -> list[str]:
    source = make_source(SourceSpec(format="images", uri=str(folder), shard_samples=2))
    return [shard.shard_id for shard in source.plan()]


def test_a_vanished_file_is_one_quarantined_sample(tmp_path: Path) -> None:
    for name in ("0.jpg", "1.jpg", "2.jpg"):
        (tmp_path / name).write_bytes(name.encode())
    source = make_source(SourceSpec(format="images", uri=str(tmp_path)))
    (shard,) = source.plan()
    (tmp_path / "1.jpg").unlink()
    samples = samples_of(source, shard)
    assert [sample.encoded for sample in samples] == [b"0.jpg", None, b"2.jpg"]
    assert samples[1].problem is not None
    assert samples[1].problem.reason == "source.missing_file"


def test_a_changed_or_new_image_gives_a_new_shard(tmp_path: Path) -> None:
    for name in ("0.jpg", "1.jpg", "2.jpg"):
        (tmp_path / name).write_bytes(b"x")
    before = plan_ids(tmp_path)
    (tmp_path / "2.jpg").write_bytes(b"longer")
    changed = plan_ids(tmp_path)
    assert changed[0] == before[0]
    assert changed[1] != before[1]
    (tmp_path / "3.jpg").write_bytes(b"x")
    assert plan_ids(tmp_path)[1] not in {before[1], changed[1]}


def test_several_folders_keep_their_names_in_the_keys(tmp_path: Path) -> None:
    for folder in ("a", "b", "ab"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.jpg").write_bytes(folder.encode())
    source = make_source(SourceSpec(format="images", uri=f"{tmp_path}/{{a,b}}"))
    (shard,) = source.plan()
    assert shard.members == ("a/1.jpg", "b/1.jpg")
    assert [sample.encoded for sample in samples_of(source, shard)] == [b"a", b"b"]


def test_a_folder_inside_another_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").write_bytes(b"x")
    source = make_source(SourceSpec(format="images", uri=[str(tmp_path), str(tmp_path / "a")]))
    with pytest.raises(InputError, match="name only the outer folder"):
        list(source.plan())


def test_linked_files_and_folders_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "1.jpg").write_bytes(b"1")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "folder").symlink_to(tmp_path / "real")
    (corpus / "file.jpg").symlink_to(tmp_path / "real" / "1.jpg")
    (corpus / "loop").symlink_to(corpus)
    (corpus / "broken.jpg").symlink_to(tmp_path / "gone.jpg")
    source = make_source(SourceSpec(format="images", uri=str(corpus)))
    (shard,) = source.plan()
    assert shard.members == ("broken.jpg", "file.jpg", "folder/1.jpg")
    assert [sample.encoded for sample in samples_of(source, shard)] == [None, b"1", b"1"]


def test_names_that_look_like_patterns_or_addresses_are_plain(tmp_path: Path) -> None:
    names = ["a[1].jpg", "b*.jpg", "c::d.jpg", "e#%20 ?.jpg", "{f,g}.jpg"]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    source = make_source(SourceSpec(format="images", uri=str(tmp_path)))
    (shard,) = source.plan()
    assert [sample.encoded for sample in samples_of(source, shard)] == [
        name.encode() for name in names
    ]


def test_a_folder_without_images_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no image"):
        list(make_source(SourceSpec(format="images", uri=str(tmp_path))).plan())
