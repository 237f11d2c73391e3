"""The fsspec backend on fsspec's own memory file system, with and without faults.

The faulty file system below is registered with fsspec and does what object stores were seen to do:
it loses answers, is busy for a while, and refuses with errors that differ from store to store.
"""

from __future__ import annotations

import errno
import logging
import threading
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from sapiens_batch.errors import DependencyError, StorageError
from sapiens_batch.storage import Store
from sapiens_batch.storage.fsspec_store import ATTEMPTS, FsspecStore
from tests.conformance.store_contract import StoreContract


class BucketFileSystem(MemoryFileSystem):
    """Memory with an atomic create, and one planned fault per request while any are left."""

    protocol = "faultybucket"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    lock = threading.Lock()
    faults: ClassVar[list[Exception | str]] = []
    requests: ClassVar[list[str]] = []
    ignores_condition: ClassVar[bool] = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        fault = self._next_fault("put")
        mode = "overwrite" if self.ignores_condition else mode
        with self.lock:
            super().pipe_file(path, value, mode=mode)
        if fault == "lost answer":
            raise TimeoutError("the answer never came")

    def cat_file(self, path: str, start: Any = None, end: Any = None, **kwargs: Any) -> bytes:
        fault = self._next_fault("get")
        with self.lock:
            data: bytes = super().cat_file(path, start=start, end=end, **kwargs)
        return data[:-1] if fault == "short read" else data

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        fault = self._next_fault("copy")
        super().cp_file(path1, path2, **kwargs)
        if fault == "lost answer":
            raise TimeoutError("the answer never came")

    def _next_fault(self, request: str) -> Exception | str | None:
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        return fault


@pytest.fixture
def bucket() -> Iterator[type[BucketFileSystem]]:
    fsspec.register_implementation("faultybucket", BucketFileSystem, clobber=True)
    BucketFileSystem.store.clear()
    BucketFileSystem.pseudo_dirs[:] = [""]
    BucketFileSystem.requests.clear()
    BucketFileSystem.faults.clear()
    yield BucketFileSystem
    BucketFileSystem.faults.clear()
    BucketFileSystem.ignores_condition = False


def open_bucket(**options: Any) -> FsspecStore:
    return FsspecStore(f"faultybucket://{uuid.uuid4().hex}/job", retry_delay_s=0.001, **options)


class TestFsspecStore(StoreContract):
    @pytest.fixture
    def store(self, bucket: type[BucketFileSystem]) -> Store:
        return open_bucket()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EBUSY, "Please reduce your request rate."),
        OSError(errno.EIO, "503 Service Unavailable"),
        OSError(errno.EREMOTEIO, "We encountered an internal error."),
        TimeoutError(),
        ConnectionResetError(),
        RuntimeError("SlowDown"),
    ],
)
def test_a_busy_store_is_asked_again(bucket: type[BucketFileSystem], error: Exception) -> None:
    store = open_bucket()
    bucket.faults[:] = [error, error, error]
    assert store.create("a", b"data") is True
    bucket.faults[:] = [error]
    assert store.read("a") == b"data"


def test_the_log_says_what_was_tried_again(
    bucket: type[BucketFileSystem], caplog: pytest.LogCaptureFixture
) -> None:
    bucket.faults[:] = [OSError(errno.EBUSY, "slow down"), TimeoutError("late")]
    with caplog.at_level(logging.DEBUG, "sapiens_batch.storage"):
        open_bucket().create("a", b"data")
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("DEBUG", "cannot write a, tried again: OSError: [Errno 16] slow down"),
        ("WARNING", "cannot write a, tried again: TimeoutError: late"),
    ]


def test_a_store_that_stays_busy_is_given_up_after_a_bounded_number_of_requests(
    bucket: type[BucketFileSystem],
) -> None:
    store = open_bucket()
    bucket.faults[:] = [OSError(errno.EBUSY, "slow down")] * 100
    with pytest.raises(StorageError, match=r"cannot write .*/job/a.*slow down"):
        store.create("a", b"data")
    assert bucket.requests == ["put"] * ATTEMPTS


def test_a_create_whose_answer_was_lost_is_recognised_as_won(
    bucket: type[BucketFileSystem],
) -> None:
    store = open_bucket()
    bucket.faults[:] = ["lost answer"]
    assert store.create("a", b"mine, with a unique id") is True
    assert bucket.requests == ["put", "put", "get"]


def test_a_create_that_meets_another_object_of_equal_size_has_lost(
    bucket: type[BucketFileSystem],
) -> None:
    store = open_bucket()
    store.create("a", b"theirs")
    assert store.create("a", b"mine!!") is False


@pytest.mark.parametrize(
    "refusal",
    [
        OSError(22, "At least one of the pre-conditions you specified did not hold"),
        OSError(errno.EIO, "An error occurred (PreconditionFailed) when calling PutObject"),
        FileExistsError("taken"),
    ],
)
def test_every_way_of_saying_taken_is_understood(
    bucket: type[BucketFileSystem], refusal: Exception
) -> None:
    store = open_bucket()
    store.create("a", b"theirs")
    bucket.faults[:] = [refusal]
    assert store.create("a", b"mine") is False


def test_a_conflict_between_two_creates_in_flight_is_tried_again(
    bucket: type[BucketFileSystem],
) -> None:
    store = open_bucket()
    bucket.faults[:] = [OSError(errno.EBUSY, "ConditionalRequestConflict")]
    assert store.create("a", b"mine") is True


def test_a_short_read_is_repeated(bucket: type[BucketFileSystem]) -> None:
    store = open_bucket()
    store.create("a", b"0123456789")
    bucket.faults[:] = ["short read"]
    assert store.read_range("a", 2, 6) == b"2345"


def test_refused_credentials_are_looked_up_afresh_once(bucket: type[BucketFileSystem]) -> None:
    store = open_bucket()
    before = store._fs
    bucket.faults[:] = [PermissionError("The provided token has expired.")]
    assert store.create("a", b"x") is True
    assert store._fs is not before


def test_credentials_that_stay_refused_are_reported_at_once(bucket: type[BucketFileSystem]) -> None:
    store = open_bucket()
    bucket.faults[:] = [PermissionError("Access Denied")] * 9
    with pytest.raises(StorageError, match=r"Access Denied; check the address.*credentials"):
        store.create("a", b"x")
    # the second with fresh credentials, and a look at whether the object is there after all
    assert bucket.requests == ["put", "put"]


def test_a_store_that_ignores_the_condition_is_found_out_and_never_overwritten(
    bucket: type[BucketFileSystem],
) -> None:
    bucket.ignores_condition = True
    store = open_bucket()
    assert store.probe().conditional_create is False
    single_writer = FsspecStore(store.uri, conditional_create=False)
    assert single_writer.create("a", b"first") is True
    assert single_writer.create("a", b"second") is False
    assert single_writer.read("a") == b"first"


@pytest.mark.parametrize(
    "fault", [["lost answer"], [OSError(errno.EBUSY, "slow down"), TimeoutError()]]
)
def test_a_copy_that_failed_for_a_while_is_made(
    bucket: type[BucketFileSystem], fault: list[Exception | str]
) -> None:
    store = open_bucket()
    store.create("one", b"payload")
    bucket.faults[:] = fault
    assert store.copy("one", "two") is True
    assert store.read("two") == b"payload"


def test_a_probe_whose_answer_was_lost_finds_out_what_the_store_does(
    bucket: type[BucketFileSystem],
) -> None:
    store = open_bucket()
    bucket.faults[:] = ["lost answer"]
    assert store.probe().conditional_create is True
    assert list(store.list("")) == []


def test_a_store_without_times_has_no_clock(
    bucket: type[BucketFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_bucket()
    monkeypatch.setattr(bucket, "info", lambda *_, **__: {"type": "file", "size": 1})
    assert store.now_s() is None


def test_credentials_are_in_neither_address_nor_representation(
    bucket: type[BucketFileSystem],
) -> None:
    store = FsspecStore("faultybucket://user:password@bucket/job", {"secret": "token"})
    assert store.uri == "faultybucket://bucket/job"
    assert "password" not in repr(store)
    assert "token" not in repr(store)


def test_a_scheme_whose_package_is_missing_names_the_extra() -> None:
    with pytest.raises(DependencyError, match=r"sapiens-batch\[gcs\]"):
        FsspecStore("gs://bucket/job")


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(StorageError, match=r"nosuchscheme://.*storage_options"):
        FsspecStore("nosuchscheme://bucket/job")
