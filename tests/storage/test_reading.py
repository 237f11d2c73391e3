"""Reading input objects, one version of each (I4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.storage import reading
from sapiens_batch.storage.input_errors import ChangedInputError, MissingInputError
from sapiens_batch.storage.inputs import stat_input
from sapiens_batch.storage.reading import open_input, read_input, read_inputs

Put = Callable[[bytes], None]
OLD, NEW = b"old" * 1000, b"new" * 1000


@pytest.fixture(params=["local", "memory"])
def rewritable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Put]]:
    """An object, and how to overwrite it in place with one of the same size."""
    if request.param == "memory":
        system = fsspec.filesystem("memory")
        system.pipe_file("/bucket/x", OLD)
        yield "memory://bucket/x", lambda data: system.pipe_file("/bucket/x", data)
        system.rm("/bucket", recursive=True)
        return
    path = tmp_path / "x"
    path.write_bytes(OLD)

    def put(data: bytes) -> None:
        before = path.stat().st_mtime
        while path.stat().st_mtime == before:  # clocks of file systems tick every few milliseconds
            time.sleep(0.005)
            with path.open("r+b") as file:
                file.write(data)

    yield str(path), put


def test_reads_tell_missing_objects_from_others(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_bytes(b"c.txt")
    assert read_input(f"{tmp_path}/c.txt") == b"c.txt"
    with open_input(f"{tmp_path}/c.txt") as stream:
        assert (stream.read(2), stream.tell(), stream.read()) == (b"c.", 2, b"txt")
    first, second = read_inputs([f"{tmp_path}/c.txt", f"{tmp_path}/gone"])
    assert first == b"c.txt"
    assert isinstance(second, MissingInputError)
    for read in (stat_input, read_input, open_input):
        with pytest.raises(MissingInputError, match=r"gone does not exist"):
            read(f"{tmp_path}/gone")
        with pytest.raises(InputError, match="is a folder"):
            read(str(tmp_path))


def test_a_stream_has_the_version_that_was_listed(rewritable: tuple[str, Put]) -> None:
    uri, _ = rewritable
    with open_input(uri) as stream:
        assert stream.version == stat_input(uri).version
        assert stream.read() == OLD


def test_an_object_that_is_overwritten_while_it_is_read_fails(rewritable: tuple[str, Put]) -> None:
    uri, put = rewritable

    def read() -> bytes:
        with open_input(uri) as stream:
            version = stream.version
            data = stream.read(1000)
            put(NEW)
            data += stream.read(2000)
            assert version == stream.version
            return data

    with pytest.raises(ChangedInputError, match=r"/x has changed since it was planned"):
        read()


def test_a_local_stream_hands_out_no_byte_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(OLD)
    with open_input(str(path)) as stream:
        assert stream.version
        assert stream.read(10) == OLD[:10]
        path.write_bytes(NEW * 2)
        with pytest.raises(ChangedInputError):
            stream.read(10)
        with pytest.raises(ChangedInputError):
            stream.raise_failure()


def test_a_reader_that_stops_early_is_told_nothing(rewritable: tuple[str, Put]) -> None:
    uri, put = rewritable

    def pieces() -> Generator[bytes]:
        with open_input(uri) as stream:
            assert stream.version
            while piece := stream.read(10):
                yield piece

    reader = pieces()
    assert next(reader) == OLD[:10]
    put(NEW)
    reader.close()


def test_a_whole_object_must_be_the_planned_one(rewritable: tuple[str, Put]) -> None:
    uri, put = rewritable
    planned = stat_input(uri).fingerprint
    assert read_input(uri, planned=planned) == OLD
    assert read_inputs([uri, uri], {}, [planned, ""]) == [OLD, OLD]
    put(NEW)
    with pytest.raises(ChangedInputError, match=r"put the old object back"):
        read_input(uri, planned=planned)
    with pytest.raises(ChangedInputError):
        read_inputs([uri, uri], {}, ["", planned])
    assert read_input(uri) == NEW


class Web(BaseHTTPRequestHandler):
    """Answers `/<status>` with that status; `/flaky` fails the first time."""

    answered: list[str]

    def do_GET(self) -> None:
        type(self).answered.append(self.path)
        if self.path == "/flaky":
            status = 200 if self.answered.count(self.path) > 1 else 500
        else:
            status = int(self.path.strip("/"))
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(reading, "WEB_PAUSE_S", 0.0)
    Web.answered = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_images_on_the_web_fail_one_by_one(web: str) -> None:
    names = ["200", "404", "403", "500", "flaky"]
    contents = read_inputs([*(f"{web}/{name}" for name in names), "http://127.0.0.1:9/x"])
    assert contents[0] == contents[4] == b"ok"
    assert isinstance(contents[1], MissingInputError)
    assert "is refused by its server (403" in str(contents[2])
    assert f"{web}/500 failed 3 times" in str(contents[3])
    assert "http://127.0.0.1:9/x failed 3 times" in str(contents[5])
    assert sorted(Web.answered) == sorted(
        ["/200", "/404", "/403", "/500", "/500", "/500", "/flaky", "/flaky"]
    )
