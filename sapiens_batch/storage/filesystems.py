"""Reach the store of an input address through fsspec, and tell its failures apart.

What a person must mend is an `InputError` (or a `DependencyError` where a driver is not installed),
what a retry may mend stays an `OSError`. Output stores have their own access, because they must
know how to create; listing and reading inputs is left to `storage.inputs`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import known_implementations

from sapiens_batch.errors import DependencyError, InputError
from sapiens_batch.storage.addresses import absolute_uri
from sapiens_batch.storage.streams import as_os_error

Options = Mapping[str, Any]


_REFUSED = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 414, 416, 451})
"""HTTP answers that asking again does not change."""


class MissingInputError(InputError):
    """The object does not exist."""


def is_local(system: Any) -> bool:
    """Whether the filesystem is this machine's."""
    return isinstance(system, LocalFileSystem)


def open_filesystem(uri: str, storage_options: Options | None) -> tuple[Any, str]:
    """The filesystem and the path in it; a name without a scheme is local, whatever its letters."""
    if "://" not in uri:
        system = LocalFileSystem(use_listings_cache=False)
        return system, absolute_uri(uri)
    protocol = uri.partition("://")[0]
    if "::" in uri:
        raise InputError(f"{uri}: chained addresses are not supported; name the object itself")
    options = {**(storage_options or {}), "use_listings_cache": False}
    try:
        system, path = fsspec.core.url_to_fs(uri, **options)
    except ImportError as error:
        hint = known_implementations.get(protocol, {}).get("err", str(error))
        raise DependencyError(f"{uri}: {hint} (addresses that start with {protocol}://)") from error
    except ValueError as error:
        raise InputError(f"{uri}: {error}; check what stands before '://'") from error
    return system, str(path)


@contextlib.contextmanager
def translated_errors(uri: str) -> Iterator[None]:
    """Tell what a person must mend (`InputError`) from what a retry may mend (`OSError`)."""
    try:
        yield
    except (InputError, DependencyError):
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingInputError(f"{uri} does not exist: check the address") from error
    except IsADirectoryError as error:
        raise InputError(f"{uri} is a folder, not a file") from error
    except PermissionError as error:
        raise InputError(
            f"{uri} may not be read ({error}): check rights and credentials{_options_hint(uri)}"
        ) from error
    except OSError:
        raise
    except Exception as error:  # drivers raise their own types, for example botocore's
        if getattr(error, "status", 0) in _REFUSED:
            raise InputError(f"{uri} is refused by its server ({error})") from error
        raise as_os_error(error, uri) from error


@contextlib.contextmanager
def listing_errors(uri: str) -> Iterator[None]:
    """As `translated_errors`, for planning, where every failure is shown to a person at once."""
    try:
        with translated_errors(uri):
            yield
    except OSError as error:
        raise InputError(
            f"{uri} cannot be listed ({error}): check address and connection{_options_hint(uri)}"
        ) from error


def _options_hint(uri: str) -> str:
    """Where credentials and endpoints of remote stores are given."""
    return ", and the credentials and endpoint in storage_options" if "://" in uri else ""
