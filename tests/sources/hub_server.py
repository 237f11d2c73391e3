"""A stand-in for the Hugging Face Hub: serves a folder as the dataset `me/people`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

_API = "/api/datasets/me/people"


@contextlib.contextmanager
def serve_hub(folder: Path) -> Iterator[str]:
    """Serve on loopback; yields the endpoint."""
    handler = type("Handler", (_Handler,), {"folder": folder})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    folder: ClassVar[Path]

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path == _API or path.startswith(f"{_API}/revision/"):
            self._json({"id": "me/people", "sha": "a" * 40})
        elif path.startswith(f"{_API}/tree/"):
            below = path.removeprefix(f"{_API}/tree/").partition("/")[2]
            self._json([self._entry(item) for item in sorted((self.folder / below).iterdir())])
        elif "/resolve/" in path:
            self._file(self.folder / path.partition("/resolve/")[2].partition("/")[2])
        else:
            self._reply(404, b"")

    def do_POST(self) -> None:
        """`paths-info`, which comes as JSON or as a form."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        paths = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body)["paths"]
        found = [self.folder / path for path in paths if (self.folder / path).exists()]
        self._json([self._entry(item) for item in found])

    def _entry(self, item: Path) -> dict[str, Any]:
        path = str(item.relative_to(self.folder))
        if item.is_dir():
            return {"type": "directory", "path": path, "oid": "0" * 40, "size": 0}
        content = item.read_bytes()
        oid = hashlib.sha1(content).hexdigest()
        return {"type": "file", "path": path, "oid": oid, "size": len(content)}

    def _file(self, item: Path) -> None:
        content = item.read_bytes()
        wanted = self.headers.get("Range")
        if wanted is None:
            self._reply(200, content)
            return
        start, stop = wanted.removeprefix("bytes=").split("-")
        self._reply(206, content[int(start) : int(stop) + 1])

    def _json(self, value: object) -> None:
        self._reply(200, json.dumps(value).encode())

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""
