"""An HTTP proxy in front of a real S3 server that fails on demand, over real connections.

Each planned fault strikes the next request whose method it names, once. The server behind is
untouched by the fault itself: a lost answer is lost after the server has done what was asked.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Kind = Literal["lost answer", "503", "SlowDown", "short body", "ExpiredToken"]

_HOP_HEADERS = {"connection", "transfer-encoding", "keep-alive"}
_REFUSALS = {
    "503": (503, "ServiceUnavailable", "Service is unable to handle request."),
    "SlowDown": (503, "SlowDown", "Please reduce your request rate."),
    "ExpiredToken": (403, "ExpiredToken", "The provided token has expired."),
}


@dataclass(slots=True)
class Faults:
    """What is to go wrong, and what was asked.

    Attributes:
        planned: (method, kind) of the faults that are left, struck in order.
        requests: (method, path) of every request.
        always: A fault for every request of these methods, until it is taken away.
    """

    planned: list[tuple[str, Kind]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    always: dict[str, Kind] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def strike(self, method: str, path: str) -> Kind | None:
        """The fault that strikes a request."""
        with self.lock:
            self.requests.append((method, path))
            for position, (wanted, kind) in enumerate(self.planned):
                if wanted == method:
                    del self.planned[position]
                    return kind
            return self.always.get(method)

    def count(self, method: str) -> int:
        """Requests of a method so far."""
        return sum(one == method for one, _ in self.requests)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream: str
    faults: Faults

    def log_message(self, *_: object) -> None:
        """Stay quiet."""

    def _serve(self) -> None:
        body = self._body()
        kind = self.faults.strike(self.command, self.path)
        if kind in _REFUSALS:
            self._refuse(*_REFUSALS[kind])
            return
        status, reason, headers, data = self._ask(body)
        if kind == "lost answer":
            self.close_connection = True
            return
        self.send_response_only(status, reason)
        for name, value in headers:
            if name.lower() not in {*_HOP_HEADERS, "content-length"}:
                self.send_header(name, value)
        length = dict(headers).get("Content-Length", str(len(data)))
        self.send_header("Content-Length", length)
        self.end_headers()
        if kind == "short body":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        else:
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - named by http.server

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def _ask(self, body: bytes) -> tuple[int, str, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            # the Host header is part of the signature and goes on as it came
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in {*_HOP_HEADERS, "content-length", "expect"}:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return response.status, response.reason, response.getheaders(), response.read()
        finally:
            connection.close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(0 if self.command == "HEAD" else len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)


@contextlib.contextmanager
def faulty_proxy(endpoint: str) -> Iterator[tuple[str, Faults]]:
    """A proxy in front of a server; yields its address and its faults."""
    faults = Faults()
    handler = type(
        "Handler", (_Handler,), {"upstream": urlsplit(endpoint).netloc, "faults": faults}
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", faults
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
