"""Arithmetic on addresses."""

from __future__ import annotations

import pytest

from sapiens_batch.storage.addresses import (
    join_uri,
    keep_secrets_apart,
    parent_uri,
    public_text,
    public_uri,
    with_secrets,
)


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


@pytest.mark.parametrize(
    ("uri", "public"),
    [
        ("https://user:pa55@host/a.tar", "https://host/a.tar"),
        ("https://user@host:8080/a.tar", "https://host:8080/a.tar"),
        ("@sftp://user:pa55@host/list.txt", "@sftp://host/list.txt"),
        ("s3://AKIA:se/cret/x@bucket/a@b.tar", "s3://bucket/a@b.tar"),
        ("https://host/a.tar?X-Amz-Date=1&X-Amz-Signature=f00", "https://host/a.tar"),
        ("https://a.blob.core.windows.net/c/{0..9}.tar?sv=1&sig=f00%3D",
         "https://a.blob.core.windows.net/c/{0..9}.tar"),
        ("https://host/a.tar?AWSAccessKeyId=A&Expires=1&Signature=f00", "https://host/a.tar"),
        ("https://host/a.tar?access_token=f00", "https://host/a.tar"),
        ("https://host/image?id=7&width=3", "https://host/image?id=7&width=3"),
        ("https://host:8080/a@v1/x.tar", "https://host:8080/a@v1/x.tar"),
        ("hf://datasets/owner/name@main/x.parquet", "hf://datasets/owner/name@main/x.parquet"),
        ("abfs://container@account.dfs.core.windows.net/x",
         "abfs://container@account.dfs.core.windows.net/x"),
        ("s3://bucket/part?/[0-9].tar", "s3://bucket/part?/[0-9].tar"),
        ("/data/user:pa55@x?sig=1", "/data/user:pa55@x?sig=1"),
    ],
)  # fmt: skip
def test_an_address_is_shown_without_its_secrets(uri: str, public: str) -> None:
    assert public_uri(uri) == public
    assert public_text(f"403 for url='{uri}', twice") == f"403 for url='{public}', twice"


SIGNED = "https://user:pa55@host/a.tar?X-Amz-Signature=f00"


def test_secrets_are_put_back_for_whoever_has_the_options() -> None:
    section = keep_secrets_apart(
        {"uri": [SIGNED, "https://other/{0..9}.tar?sig=bar"], "storage_options": {"ssl": True}},
        "uri",
    )
    options = section["storage_options"]
    assert section["uri"] == ["https://host/a.tar", "https://other/{0..9}.tar"]
    assert with_secrets("https://host/a.tar", options) == (SIGNED, {"ssl": True})
    assert with_secrets("https://host/b.tar", options)[0] == "https://user:pa55@host/b.tar"
    assert with_secrets("https://other/7.tar", options)[0] == "https://other/7.tar?sig=bar"
    assert with_secrets("https://third/7.tar", options)[0] == "https://third/7.tar"


def test_the_signature_of_a_folder_serves_what_lies_in_it() -> None:
    options = keep_secrets_apart({"uri": "https://host/in?sig=f00"}, "uri")["storage_options"]
    assert with_secrets("https://host/in/a.jpg", options)[0] == "https://host/in/a.jpg?sig=f00"
    assert with_secrets("https://host/inner", options)[0] == "https://host/inner"


def test_a_section_without_secrets_stays_as_it_is() -> None:
    section = {"uri": "s3://bucket/{0..9}.tar", "root": None, "storage_options": {"key": "k"}}
    assert keep_secrets_apart(section, "uri", "root") == section


def test_an_address_in_an_escaped_text_ends_with_its_line() -> None:
    text = r'{"trace": "GET https://user:pa55@host/a?sig=f00\nnext"}'
    assert public_text(text) == r'{"trace": "GET https://host/a\nnext"}'
