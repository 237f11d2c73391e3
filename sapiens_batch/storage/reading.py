"""Read input objects: streams of large ones, whole small ones, several at once from far away.

Whoever names the version that an object must have gets bytes of no other one (I4). What the bytes
mean is left to the sources, finding the objects to `storage.inputs`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO

from sapiens_batch.errors import InputError
from sapiens_batch.storage.filesystems import Options, is_local, is_s3, open_filesystem
from sapiens_batch.storage.input_errors import ChangedInputError, changed, translated_errors
from sapiens_batch.storage.streams import InputStream
from sapiens_batch.storage.versions import fingerprint, local_info, size_of, version_of

READ_THREADS = 8
"""Objects fetched at once from a remote store, where latency rather than bandwidth limits."""

WEB_ATTEMPTS = 3
"""An image on a web server is asked for so often; one dead host must not hold up a whole job."""

WEB_PAUSE_S = 1.0
"""Seconds between these attempts."""


def open_input(uri: str, storage_options: Options | None = None) -> InputStream:
    """Open one object for streaming reads; its `version` is that of the bytes that are read.

    Raises:
        MissingInputError: The object does not exist.
        InputError: It is a folder or may not be read.
        OSError: The store failed.
    """
    with translated_errors(uri):
        system, path = open_filesystem(uri, storage_options)
        return _opened(system, path, uri)


def _opened(system: Any, path: str, uri: str) -> InputStream:
    stream: BinaryIO = system.open(path, "rb")
    if is_local(system):
        return InputStream(stream, uri, lambda: version_of(local_info(os.fstat(stream.fileno()))))
    if is_s3(system):
        # the etag of each answer is compared with this one
        version = version_of(stream.details)  # type: ignore[attr-defined]
        return InputStream(stream, uri, lambda: version)

    def look() -> str:
        with translated_errors(uri):
            return version_of(system.info(path))

    return InputStream(stream, uri, look, is_cheap=False)


def read_input(uri: str, storage_options: Options | None = None, *, planned: str = "") -> bytes:
    """The whole object.

    Args:
        uri: Its address.
        storage_options: Passed to fsspec.
        planned: The `InputObject.fingerprint` that it must have; empty for any.

    Raises:
        MissingInputError: The object does not exist.
        ChangedInputError: It is another version than the planned one.
        InputError: It is a folder or may not be read.
        OSError: The store failed.
    """
    with translated_errors(uri):
        if "://" not in uri:
            # three times as fast as through fsspec, which matters for folders of small images
            with Path(uri).open("rb") as file:
                data = file.read()
                info = local_info(os.fstat(file.fileno())) if planned else {}
        else:
            system, path = open_filesystem(uri, storage_options)
            data, info = _fetched(system, path, uri, with_info=bool(planned))
    if planned and (found := fingerprint(size_of(info), version_of(info))) != planned:
        raise changed(uri, planned, found)
    return data


def read_json(
    uri: str,
    storage_options: Options | None = None,
    *,
    planned: str = "",
    what: str = "a JSON object",
) -> dict[str, Any]:
    """The object of keys that a JSON file holds, called `what`; otherwise as `read_input`.

    Raises:
        InputError: It is none, or as for `read_input`.
    """
    try:
        document = json.loads(read_input(uri, storage_options, planned=planned))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{uri} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{uri} is not {what}")
    return document


def _fetched(system: Any, path: str, uri: str, *, with_info: bool) -> tuple[bytes, Any]:
    """A whole object, and what the store says about it once it is read."""
    if with_info and is_s3(system):
        with _opened(system, path, uri) as stream:
            data = stream.read(stream.size_bytes or -1)
            return data, {"size": len(data), "etag": stream.version}
    return bytes(system.cat_file(path)), system.info(path) if with_info else {}


def read_inputs(
    uris: Sequence[str], storage_options: Options | None = None, planned: Sequence[str] = ()
) -> list[bytes | InputError]:
    """Whole objects in the order asked for, several at once where the store is remote.

    An object that is missing or may not be read gives its error instead of bytes, and so does one
    on a web server that keeps failing: web servers, unlike stores, fail one by one and for good.

    Args:
        uris: Their addresses.
        storage_options: Passed to fsspec.
        planned: As for `read_input`, one for each, or none at all.

    Raises:
        ChangedInputError: One is another version than the planned one.
        OSError: The store failed in a way that a retry may mend.
    """

    def read(uri: str, fingerprint: str) -> bytes | InputError:
        try:
            return read_input(uri, storage_options, planned=fingerprint)
        except ChangedInputError:
            raise
        except InputError as error:
            return error
        except OSError:
            if not uri.startswith(("http://", "https://")):
                raise
            return _read_from_web(uri, storage_options)

    wanted = planned or repeat("", len(uris))
    if all("://" not in uri for uri in uris):
        return list(map(read, uris, wanted))
    with ThreadPoolExecutor(READ_THREADS) as pool:
        return list(pool.map(read, uris, wanted))


def _read_from_web(uri: str, options: Options | None) -> bytes | InputError:
    """Ask again for what a web server failed to give."""
    failure: OSError | None = None
    for _ in range(WEB_ATTEMPTS - 1):
        time.sleep(WEB_PAUSE_S)
        try:
            return read_input(uri, options)
        except InputError as error:
            return error
        except OSError as error:
            failure = error
    return InputError(f"{uri} failed {WEB_ATTEMPTS} times: {failure}")
