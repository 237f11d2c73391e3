"""What member names say."""

from __future__ import annotations

import pytest

from sapiens_batch.sources.names import image_rank, is_junk, is_unsafe, split_name


@pytest.mark.parametrize(
    ("name", "key", "suffix"),
    [
        ("000.jpg", "000", "jpg"),
        ("a.b.jpg", "a", "b.jpg"),
        ("dir.v1/img.JPG", "dir.v1/img", "jpg"),
        ("/some/path/22.0/1.1.png", "/some/path/22.0/1", "1.png"),
        ("./x/0.Seg.PNG", "./x/0", "seg.png"),
        ("noext", "noext", ""),
    ],
)
def test_keys_end_at_the_first_dot_of_the_base_name(name: str, key: str, suffix: str) -> None:
    assert split_name(name) == (key, suffix)


def test_junk_is_what_operating_systems_leave_behind() -> None:
    names = ["._a.jpg", "a/._b.jpg", "__MACOSX/a.jpg", "Thumbs.db", ".git/x.jpg", "./a.jpg", "a.b"]
    assert [is_junk(name) for name in names] == [True] * 5 + [False] * 2


def test_names_that_leave_their_folder_are_unsafe() -> None:
    names = ["/a.jpg", "../a.jpg", "a/../../b.jpg", "a..b.jpg", "a/b.jpg"]
    assert [is_unsafe(name) for name in names] == [True, True, True, False, False]


def test_whole_suffixes_rank_before_last_parts() -> None:
    assert image_rank("jpg") == (0, 0)
    assert image_rank("seg.png") == (1, 2)
    assert image_rank("rgb.png", ["rgb.png", "jpg"]) == (0, 0)
    assert image_rank("png", ["rgb.png", "jpg"]) is None
    assert image_rank("json") is None
