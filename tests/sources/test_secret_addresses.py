"""Addresses with passwords and signatures: read with them, stored and shown without (I4)."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sapiens_batch.driver.open_job import open_job, resolve
from sapiens_batch.errors import InputError, SapiensBatchError, SpecError
from sapiens_batch.records import Sample
from sapiens_batch.samples import build
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import JobSpec, SourceSpec
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.storage.inputs import expand
from tests.sources.corpora import tar_bytes

SECRETS = ("user", "PASSW0RD", "SIGSECRET", "OUTSECRET")


class Guarded(SimpleHTTPRequestHandler):
    """Gives files to whoever has both the password and the signature."""

    def do_HEAD(self) -> None:
        if self._may_enter():
            super().do_HEAD()

    def do_GET(self) -> None:
        if self._may_enter():
            super().do_GET()

    def _may_enter(self) -> bool:
        password = "Basic " + base64.b64encode(b"user:PASSW0RD").decode()
        if self.headers["Authorization"] == password and self.path.endswith("sig=SIGSECRET"):
            return True
        self.send_error(403)
        return False

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "a.tar").write_bytes(tar_bytes([("1.jpg", b"one"), ("2.jpg", b"two")]))
    (tmp_path / "real.tar").write_bytes(build.SHARD.read_bytes())
    handler = partial(Guarded, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def source_spec(host: str, name: str, password: str = "PASSW0RD") -> SourceSpec:
    uri = f"http://user:{password}@{host}/{name}?se=2030&sig=SIGSECRET"
    return SourceSpec(format="webdataset", uri=uri, companion="none")


def test_a_shard_is_read_by_workers_that_have_the_spec(host: str) -> None:
    spec = source_spec(host, "a.tar")
    (shard,) = make_source(spec).plan()
    assert (shard.uri, shard.key) == (f"http://{host}/a.tar", "a.tar")
    worker = SourceSpec.model_validate(spec.model_dump())
    samples = [item for item in make_source(worker).read(shard) if isinstance(item, Sample)]
    assert [sample.encoded for sample in samples] == [b"one", b"two"]


def test_what_goes_wrong_is_told_without_the_secrets(host: str) -> None:
    for spec in (source_spec(host, "gone.tar"), source_spec(host, "a.tar", "PASSW0RD-wrong")):
        with pytest.raises(SapiensBatchError) as refused:
            list(make_source(spec).plan())
        assert f"http://{host}/" in str(refused.value)
        assert not any(secret in str(refused.value) for secret in SECRETS)


def job(host: str, output: str) -> JobSpec:
    source = {"format": "webdataset", "companion": "none"}
    return parse_spec(
        {
            "name": "guarded",
            "source": {**source, "uri": f"http://user:PASSW0RD@{host}/real.tar?sig=SIGSECRET"},
            "tasks": {"embedding": {"checkpoint": "demo"}},
            "output": {"uri": output},
        }
    )


def test_nothing_of_a_job_directory_holds_a_secret(host: str, tmp_path: Path) -> None:
    spec = job(host, str(tmp_path / "out"))
    context, manifest = open_job(resolve(spec), print)
    for info in manifest.store.list(""):
        data = manifest.store.read(info.key)
        assert not any(secret.encode() in data for secret in SECRETS), info.key
    (todo,) = manifest.todo()
    source = make_source(context.spec.source)
    assert len([item for item in source.read(todo.shard) if isinstance(item, Sample)]) > 0
    open_job(resolve(spec), print)


def test_neither_spec_nor_store_shows_a_secret(host: str) -> None:
    spec = job(host, f"https://AKIA:OUTSECRET@{host}/out")
    shown = f"{spec!r} {spec} {spec.public_dict()} {spec.source.uris} {spec.output.uri}"
    assert not any(secret in shown for secret in SECRETS)


def test_a_list_of_addresses_may_hold_none(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("https://user:PASSW0RD@host/a.tar\n")
    with pytest.raises(InputError, match=r"https://host/a\.tar .*`storage_options`") as refused:
        expand([f"@{tmp_path}/list.txt"])
    assert "PASSW0RD" not in str(refused.value)


def test_formats_with_a_library_of_their_own_take_them_as_options() -> None:
    with pytest.raises(SpecError, match=r"catalog_options") as refused:
        parse_spec({"name": "x", "source": {"format": "delta", "uri": "s3://AK:PASSW0RD@bucket/t"}})
    assert "PASSW0RD" not in str(refused.value)


def test_the_users_name_alone_is_taken_out_too() -> None:
    spec = SourceSpec(format="webdataset", uri=["sftp://user@host/a.tar", "s3://bucket/b.tar"])
    assert spec.uris == ["sftp://host/a.tar", "s3://bucket/b.tar"]
