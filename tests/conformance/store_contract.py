"""What every store must do; a backend's test subclasses `StoreContract` and gives it a store."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from sapiens_batch.errors import ProtocolError, StorageError
from sapiens_batch.storage import MissingObjectError, Store


class StoreContract:
    """Subclasses define a fixture `store` that is empty at the start of each test.

    Attributes:
        race_rounds: How often writers race; fewer where a race takes seconds.
    """

    race_rounds = 5

    def test_it_satisfies_the_protocol(self, store: Store) -> None:
        assert isinstance(store, Store)

    def test_what_was_created_is_read_back_at_once(self, store: Store) -> None:
        assert store.create("a/b/c.bin", b"\x00payload\xff") is True
        assert store.read("a/b/c.bin") == b"\x00payload\xff"
        assert store.exists("a/b/c.bin")
        assert store.size("a/b/c.bin") == 9

    def test_a_memoryview_is_stored_like_its_bytes(self, store: Store) -> None:
        store.create("view", memoryview(b"0123456789")[2:5])
        assert store.read("view") == b"234"

    def test_an_empty_object_exists(self, store: Store) -> None:
        assert store.create("empty", b"") is True
        assert store.exists("empty")
        assert store.size("empty") == 0
        assert store.read("empty") == b""

    def test_a_second_create_loses_and_changes_nothing(self, store: Store) -> None:
        assert store.create("taken", b"first") is True
        assert store.create("taken", b"second") is False
        assert store.read("taken") == b"first"

    def test_one_of_sixteen_racing_writers_wins(self, store: Store) -> None:
        for round_number in range(self.race_rounds):
            key = f"race/{round_number}"
            barrier = Barrier(16)

            def write(writer: int, key: str = key, barrier: Barrier = barrier) -> bool:
                barrier.wait()
                return store.create(key, f"writer {writer}".encode() * 1000)

            with ThreadPoolExecutor(16) as pool:
                won = list(pool.map(write, range(16)))
            assert won.count(True) == 1
            assert store.read(key) == f"writer {won.index(True)}".encode() * 1000

    def test_ranges_are_read_from_either_end(self, store: Store) -> None:
        store.create("range", b"0123456789")
        assert store.read_range("range", 2, 5) == b"234"
        assert store.read_range("range", 7) == b"789"
        assert store.read_range("range", -3) == b"789"
        assert store.read_range("range", 0, 10) == b"0123456789"
        assert store.read_range("range", 4, 4) == b""

    def test_a_range_beyond_the_end_is_an_error(self, store: Store) -> None:
        store.create("short", b"0123")
        with pytest.raises(StorageError, match="short"):
            store.read_range("short", 2, 9)
        with pytest.raises(StorageError, match="short"):
            store.read_range("short", -9)

    def test_a_missing_object_is_named(self, store: Store) -> None:
        with pytest.raises(MissingObjectError, match=r"not/there"):
            store.read("not/there")
        with pytest.raises(MissingObjectError, match=r"not/there"):
            store.read_range("not/there", 0, 1)
        assert store.exists("not/there") is False
        assert store.size("not/there") is None

    def test_a_folder_is_not_an_object(self, store: Store) -> None:
        store.create("folder/object", b"x")
        assert store.exists("folder") is False
        assert store.size("folder") is None

    def test_listing_is_complete_sorted_and_fresh(self, store: Store) -> None:
        assert list(store.list("")) == []
        for key in ("b/2", "a.b", "a/z", "a/b/c", "b/10", "ab", "b/1"):
            store.create(key, key.encode())
        assert sorted(one.key for one in store.list("")) == [
            "a.b", "a/b/c", "a/z", "ab", "b/1", "b/10", "b/2",
        ]  # fmt: skip
        store.create("b/11", b"later")
        assert [(one.key, one.size_bytes) for one in store.list("b/")] == [
            ("b/1", 3),
            ("b/10", 4),
            ("b/11", 5),
            ("b/2", 3),
        ]

    def test_a_listing_says_when_an_object_was_made(self, store: Store) -> None:
        before = time.time()
        store.create("when/x", b"1")
        (found,) = store.list("when/")
        # servers keep whole seconds, and their clock is not ours
        assert before - 5 <= found.modified_s <= time.time() + 5

    def test_listing_a_missing_folder_gives_nothing(self, store: Store) -> None:
        store.create("present/x", b"x")
        assert list(store.list("absent/")) == []
        assert list(store.list("pres/")) == []

    def test_keys_may_be_any_unicode(self, store: Store) -> None:
        for key in ("é/東京 100%.json", "a+b=c&d?#/x", "sp ace/[0]*"):
            assert store.create(key, key.encode()) is True
            assert store.read(key) == key.encode()
            assert key in [one.key for one in store.list("")]

    @pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/../b", "a/", "./a", "a\0b"])
    def test_a_key_that_leaves_the_store_is_refused(self, store: Store, key: str) -> None:
        with pytest.raises(ProtocolError, match="verify"):
            store.read(key)
        with pytest.raises(ProtocolError, match="verify"):
            store.create(key, b"x")

    def test_a_deleted_object_is_gone_and_may_be_created_again(self, store: Store) -> None:
        store.create("gone/x", b"1")
        store.delete("gone/x")
        assert not store.exists("gone/x")
        assert list(store.list("gone/")) == []
        store.delete("gone/x")
        assert store.create("gone/x", b"2") is True

    def test_a_pickled_store_is_the_same_store(self, store: Store) -> None:
        store.create("before", b"1")
        copy = pickle.loads(pickle.dumps(store))
        assert copy.uri == store.uri
        assert copy.read("before") == b"1"
        assert copy.create("after", b"2") is True
        assert store.read("after") == b"2"

    def test_a_copy_is_another_whole_object(self, store: Store) -> None:
        store.create("from/one", b"payload")
        assert store.copy("from/one", "to/a/two") is True
        store.delete("from/one")
        assert store.read("to/a/two") == b"payload"
        assert [one.key for one in store.list("")] == ["to/a/two"]

    def test_a_copy_replaces_nothing(self, store: Store) -> None:
        store.create("one", b"first")
        store.create("two", b"second")
        assert store.copy("one", "two") is False
        assert store.read("two") == b"second"

    def test_a_copy_of_what_is_gone_names_it(self, store: Store) -> None:
        with pytest.raises(MissingObjectError, match=r"not/there"):
            store.copy("not/there", "to/it")
        assert list(store.list("")) == []

    def test_a_copy_may_be_copied_and_deleted_alone(self, store: Store) -> None:
        store.create("one", b"payload")
        assert store.copy("one", "two") is True
        assert store.copy("two", "three") is True
        store.delete("two")
        assert store.read("one") == store.read("three") == b"payload"

    def test_a_copy_is_as_old_as_its_making(self, store: Store) -> None:
        store.create("one", b"payload")
        time.sleep(1.1)  # servers keep whole seconds
        store.copy("one", "two")
        made_s = {one.key: one.modified_s for one in store.list("")}
        assert made_s["two"] >= (store.now_s() or 0) - 1

    def test_its_own_clock_dates_its_objects(self, store: Store) -> None:
        store.create("when", b"1")
        (found,) = store.list("")
        now_s = store.now_s()
        assert now_s is not None
        # servers keep whole seconds
        assert found.modified_s - 1 <= now_s <= found.modified_s + 60
        assert [one.key for one in store.list("")] == ["when"]

    def test_adapting_to_what_it_can_do_changes_nothing(self, store: Store) -> None:
        adapted = store.adapted(store.probe())
        assert adapted.create("a", b"1") is True
        assert adapted.create("a", b"2") is False
        assert list(adapted.unfinished()) == []

    def test_a_probe_leaves_nothing_behind(self, store: Store) -> None:
        assert store.probe().conditional_create is True
        assert list(store.list("")) == []
