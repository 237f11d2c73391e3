"""Arithmetic on addresses."""

from __future__ import annotations

import pytest

from sapiens_batch.storage.addresses import join_uri, parent_uri


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b.jpg", "/root/a/b.jpg"),
        ("/a/b.jpg", "/a/b.jpg"),
        ("s3://bucket/a.jpg", "s3://bucket/a.jpg"),
        ("file:///a/b.jpg", "file:///a/b.jpg"),
        ("file://localhost/a.jpg", "file://localhost/a.jpg"),
        ("file://a/b.jpg", "/root/a/b.jpg"),
    ],
)
def test_names_are_seen_from_the_root_unless_they_are_absolute(name: str, expected: str) -> None:
    assert join_uri("/root/", name) == expected


def test_the_parent_is_the_folder() -> None:
    assert [parent_uri(uri) for uri in ("/a/b", "/a", "s3://b/x/y")] == ["/a", "/", "s3://b/x"]
