"""Expanding and listing input addresses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from sapiens_batch.errors import DependencyError, InputError
from sapiens_batch.storage.input_errors import listing_errors
from sapiens_batch.storage.inputs import expand, find_inputs, list_folder, stat_input
from sapiens_batch.storage.reading import read_inputs


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("a/0.tar", "a/1.tar", "b/0.tar", "b/.hidden.tar", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


@pytest.fixture
def memory() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    for number in range(20):
        system.pipe_file(f"/bucket/in/{number:02d}.tar", str(number).encode())
    yield "memory://bucket/in"
    system.rm("/bucket", recursive=True)


def keys(*uris: str) -> list[str]:
    return [item.key for item in expand(uris)]


def test_keys_are_relative_to_the_constant_folder_and_sorted(corpus: Path) -> None:
    assert keys(f"{corpus}/a/{{1..0}}.tar") == ["0.tar", "1.tar"]
    assert keys(f"{corpus}/{{b,a}}/0.tar") == ["a/0.tar", "b/0.tar"]
    assert keys(f"{corpus}/*/*.tar") == ["a/0.tar", "a/1.tar", "b/0.tar"]
    assert keys(f"{corpus}/**/*.tar") == ["a/0.tar", "a/1.tar", "b/0.tar"]
    assert keys(f"{corpus}/a/0.tar") == ["0.tar"]
    assert keys(f"{corpus}/a/0.tar", f"{corpus}/c.txt") == ["0.tar", "c.txt"]


def test_relative_paths_become_absolute(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus / "a")
    assert [item.uri for item in expand(["../b/*.tar"])] == [f"{corpus}/b/0.tar"]
    assert [item.uri for item in expand(["0.tar"])] == [f"{corpus}/a/0.tar"]


def test_list_files_name_objects_relative_to_their_folder(corpus: Path) -> None:
    outside = corpus.parent / f"{corpus.name}-outside.tar"
    outside.write_bytes(b"x")
    (corpus / "list.txt").write_text(f"b/0.tar\n\n a/0.tar\r\n{outside}\n")
    found = {item.key: item.uri for item in expand([f"@{corpus}/list.txt"])}
    assert found == {
        "a/0.tar": f"{corpus}/a/0.tar",
        "b/0.tar": f"{corpus}/b/0.tar",
        str(outside).lstrip("/"): str(outside),
    }


def test_version_is_size_and_time_where_the_store_has_no_etag(corpus: Path) -> None:
    path = corpus / "c.txt"
    os.utime(path, ns=(0, 1_500_000_000_500_000_000))
    assert stat_input(str(path)).version == "5-1500000000500000000"
    assert expand([str(path)])[0].version == "5-1500000000500000000"


def test_a_link_has_the_version_of_what_it_points_to(corpus: Path) -> None:
    (corpus / "d").mkdir()
    (corpus / "d" / "link.tar").symlink_to(corpus / "a" / "0.tar")
    version = stat_input(f"{corpus}/a/0.tar").version
    assert expand([f"{corpus}/d/*.tar"])[0].version == version
    assert expand([f"{corpus}/d/link.tar"])[0].version == version
    assert list_folder(f"{corpus}/d")[0].version == version


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a/{0..3}.tar", r"2 of the 4 objects of .*a/\{0\.\.3\}\.tar' do not exist: .*/a/2\.tar"),
        ("a/{00..99}.tar", r"100 of the 100 objects"),
        ("zip/*.tar", r"nothing matches '.*zip/\*\.tar'"),
        ("gone.tar", r"gone\.tar"),
        ("a", r"/a is a folder, not a file: name its files"),
        ("{a,a}/0.tar", r"have the same key"),
        ("@gone.txt", r"gone\.txt does not exist"),
    ],
)
def test_an_address_that_finds_nothing_says_what(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, message: str
) -> None:
    monkeypatch.chdir(corpus)
    with pytest.raises(InputError, match=message):
        expand([pattern])


def test_equal_keys_from_two_addresses_are_refused(corpus: Path) -> None:
    with pytest.raises(InputError, match=r"same key '0\.tar'.*corpus/\{a,b\}"):
        expand([f"{corpus}/a/0.tar", f"{corpus}/b/0.tar"])


def test_remote_stores_keep_their_scheme(memory: str) -> None:
    by_braces = expand([f"{memory}/{{00..19}}.tar"])
    assert expand([f"{memory}/*.tar"]) == by_braces
    assert [item.uri for item in by_braces][:2] == [f"{memory}/00.tar", f"{memory}/01.tar"]
    assert by_braces[0].key == "00.tar"
    assert [item.key for item in list_folder(memory)] == [item.key for item in by_braces]
    assert read_inputs([item.uri for item in by_braces]) == [b"%d" % n for n in range(20)]


def test_an_unknown_scheme_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"nosuch://b/x.*check what stands before"):
        expand(["nosuch://b/x"])


def test_a_missing_driver_names_what_to_install() -> None:
    with pytest.raises(DependencyError, match="adlfs"):
        expand(["abfs://container/x.tar"])


def test_folders_are_listed_deep_and_by_suffix_in_any_case(corpus: Path) -> None:
    (corpus / "b" / "2.TAR").write_bytes(b"x")
    assert [item.key for item in list_folder(str(corpus), ["tar"])] == [
        "a/0.tar",
        "a/1.tar",
        "b/.hidden.tar",
        "b/0.tar",
        "b/2.TAR",
    ]
    with pytest.raises(InputError, match="is a file, not a folder"):
        list_folder(str(corpus / "c.txt"))


def test_those_that_exist_are_found_in_any_folder(corpus: Path, memory: str) -> None:
    present = [f"{corpus}/a/0.tar", f"{corpus}/b/0.tar", f"{memory}/07.tar"]
    absent = [f"{corpus}/a/9.tar", f"{corpus}/none/0.tar", f"{corpus}/a", f"{memory}/99.tar"]
    found = find_inputs(present + absent)
    assert sorted(found) == sorted(present)
    assert found[present[0]].version == stat_input(present[0]).version
    many = [f"{memory}/{number:02d}.tar" for number in range(40)]
    assert sorted(find_inputs(many)) == many[:20]


def test_a_remote_store_that_refuses_points_to_its_options() -> None:
    remote = pytest.raises(InputError, match=r"cannot be listed.*endpoint in storage_options")
    with remote, listing_errors("s3://bucket/a.tar"):
        raise OSError("Unable to locate credentials")
    with pytest.raises(InputError, match=r"connection$"), listing_errors("/data/a.tar"):
        raise OSError("broken disk")
