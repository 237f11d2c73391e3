"""The local backend: the store contract, crashes, unwritable folders (I6)."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sapiens_batch.errors import StorageError
from sapiens_batch.storage import Store
from sapiens_batch.storage.local import LocalStore
from tests.conformance.store_contract import StoreContract


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "job")


def test_opening_a_store_makes_no_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "job")
    assert list(store.list("")) == []
    assert not (tmp_path / "job").exists()


def test_what_a_killed_writer_left_is_not_listed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a/whole", b"x")
    (tmp_path / "a" / ".0123.partial").write_bytes(b"half an obj")
    assert [one.key for one in store.list("")] == ["a/whole"]


def test_no_temporary_file_stays_behind(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a/x", b"1")
    store.create("a/x", b"2")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "x"]


@pytest.fixture
def disk_without_space() -> Iterator[None]:
    """No file of this process grows beyond 64 KiB: the kernel refuses the rest of a write."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("disk_without_space")
def test_a_write_that_the_disk_has_no_space_for_leaves_nothing_behind(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for number in range(3):
        with pytest.raises(StorageError, match=r"cannot write .*a/.*free space"):
            store.create(f"a/{number}", bytes(100_000))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_copy_takes_no_space(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a/one", bytes(100_000))
    assert store.copy("a/one", "b/two") is True
    assert (tmp_path / "a/one").samefile(tmp_path / "b/two")


@pytest.mark.slow
def test_bytes_are_copied_where_a_file_has_as_many_names_as_it_may(tmp_path: Path) -> None:
    limit = os.pathconf(tmp_path, "PC_LINK_MAX")
    if limit > 100_000:
        pytest.skip(f"this file system allows {limit} names of a file")
    store = LocalStore(tmp_path)
    store.create("one", b"payload")
    (tmp_path / "names").mkdir()
    for number in range(1, limit):
        os.link(tmp_path / "one", tmp_path / "names" / str(number))
    assert store.copy("one", "b/two") is True
    assert store.copy("one", "b/two") is False
    assert store.read("b/two") == b"payload"
    assert not (tmp_path / "one").samefile(tmp_path / "b/two")


def test_a_writer_killed_at_any_time_leaves_whole_objects_only(tmp_path: Path) -> None:
    code = (
        "import sys, itertools\n"
        "from sapiens_batch.storage.local import LocalStore\n"
        "store = LocalStore(sys.argv[1])\n"
        "for i in itertools.count():\n"
        "    store.create(f'k/{i}', bytes([i % 251]) * 200_000)\n"
        "    print(i, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        confirmed = [int(process.stdout.readline()) for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        confirmed += [int(line) for line in process.stdout if line.endswith("\n")]
    store = LocalStore(tmp_path)
    listed = {int(one.key.removeprefix("k/")): one.size_bytes for one in store.list("k/")}
    assert set(confirmed) <= set(listed)
    assert set(listed.values()) == {200_000}
    for number in listed:
        assert store.read(f"k/{number}") == bytes([number % 251]) * 200_000


def test_a_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = LocalStore(tmp_path / "file" / "job")
    with pytest.raises(StorageError, match=r"file/job.*check that the folder"):
        store.probe()
    with pytest.raises(StorageError, match=r"cannot write .*file/job/a"):
        store.create("a", b"x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="Permission denied"):
            LocalStore(tmp_path).probe()
    finally:
        tmp_path.chmod(0o700)
