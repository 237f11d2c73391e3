"""An S3 server that loses answers, pushes back, cuts bodies short and lets credentials expire."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sapiens_batch.errors import StorageError
from sapiens_batch.storage import open_store
from sapiens_batch.storage.fsspec_store import FsspecStore
from tests.s3.faulty_proxy import Faults, faulty_proxy
from tests.s3.servers import KEY, SECRET, S3Server


@pytest.fixture
def proxy(weed: S3Server) -> Iterator[tuple[FsspecStore, Faults]]:
    with faulty_proxy(weed.endpoint) as (endpoint, faults):
        server = weed.through(endpoint)
        store = FsspecStore(server.uri(uuid.uuid4().hex), server.options, retry_delay_s=0.01)
        assert list(store.list("")) == []
        faults.requests.clear()
        yield store, faults


def test_a_create_whose_answer_was_lost_has_won(proxy: tuple[FsspecStore, Faults]) -> None:
    store, faults = proxy
    faults.planned.append(("PUT", "lost answer"))
    assert store.create("commits/a", b"mine, with a unique write id") is True
    assert faults.count("PUT") == 2  # the second met the first one's object
    assert store.read("commits/a") == b"mine, with a unique write id"


def test_a_create_whose_answer_was_lost_to_a_rival_has_lost(
    proxy: tuple[FsspecStore, Faults],
) -> None:
    store, faults = proxy
    store.create("commits/a", b"theirs")
    faults.planned.append(("PUT", "lost answer"))
    assert store.create("commits/a", b"mine!!") is False


def test_a_copy_is_made_by_the_server_though_answers_are_lost(
    proxy: tuple[FsspecStore, Faults],
) -> None:
    store, faults = proxy
    data = bytes(300_000)
    store.create("a", data)
    faults.requests.clear()
    faults.planned += [("PUT", "lost answer"), ("PUT", "SlowDown")]
    assert store.copy("a", "b") is True
    assert not any(method == "GET" and "/a" in path for method, path in faults.requests)
    assert store.read("b") == data


def test_a_probe_whose_answer_was_lost_finds_the_condition(
    proxy: tuple[FsspecStore, Faults],
) -> None:
    store, faults = proxy
    faults.planned += [("PUT", "lost answer")]
    assert store.probe().conditional_create is True
    assert list(store.list("")) == []


@pytest.mark.parametrize("kind", ["503", "SlowDown"])
def test_a_burst_of_refusals_is_waited_out(proxy: tuple[FsspecStore, Faults], kind: str) -> None:
    store, faults = proxy
    faults.planned += [("PUT", kind)] * 3 + [("GET", kind)] * 3  # type: ignore[list-item]
    assert store.create("a", b"data") is True
    assert store.read("a") == b"data"
    assert faults.planned == []
    assert [info.key for info in store.list("")] == ["a"]


def test_a_server_that_stays_busy_is_given_up_with_its_own_words(
    weed: S3Server,
) -> None:
    with faulty_proxy(weed.endpoint) as (endpoint, faults):
        server = weed.through(endpoint)
        # the client's own retries are set to none, so that the test is quick
        options = {**server.options, "config_kwargs": {"retries": {"max_attempts": 0}}}
        store = FsspecStore(server.uri(uuid.uuid4().hex), options, retry_delay_s=0.001)
        store._fs.retries = 1
        faults.always["PUT"] = "SlowDown"
        with pytest.raises(StorageError, match=r"cannot write .*reduce your request rate"):
            store.create("a", b"data")


def test_a_body_that_was_cut_short_is_read_again(proxy: tuple[FsspecStore, Faults]) -> None:
    store, faults = proxy
    data = bytes(range(256)) * 400
    store.create("a", data)
    faults.planned += [("GET", "short body")] * 2
    assert store.read("a") == data
    faults.planned += [("GET", "short body")]
    assert store.read_range("a", 10, 50_000) == data[10:50_000]


def test_expired_credentials_are_refreshed_once(proxy: tuple[FsspecStore, Faults]) -> None:
    store, faults = proxy
    faults.planned += [("PUT", "ExpiredToken")]
    assert store.create("a", b"x") is True
    faults.planned += [("GET", "ExpiredToken")]
    assert store.read("a") == b"x"
    faults.always["PUT"] = "ExpiredToken"
    with pytest.raises(StorageError, match="token has expired"):
        store.create("b", b"x")


def test_credentials_that_were_renewed_meanwhile_are_picked_up(
    weed: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    profile = "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
    shared.write_text(profile.format("oldkey", "oldsecret"))
    options = {name: weed.options[name] for name in ("endpoint_url", "client_kwargs")}
    store = open_store(weed.uri(uuid.uuid4().hex), options)
    with pytest.raises(StorageError, match="credentials"):
        store.create("a", b"x")
    shared.write_text(profile.format(KEY, SECRET))
    assert store.create("a", b"x") is True
