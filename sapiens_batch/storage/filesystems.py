"""Reach the store of an input address through fsspec.

Output stores have their own access, because they must know how to create; listing inputs is left to
`storage.inputs`, reading them to `storage.reading`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import known_implementations

from sapiens_batch.errors import DependencyError, InputError
from sapiens_batch.storage.addresses import absolute_uri, public_text, with_secrets

Options = Mapping[str, Any]


def is_local(system: Any) -> bool:
    """Whether the filesystem is this machine's."""
    return isinstance(system, LocalFileSystem)


def is_s3(system: Any) -> bool:
    """Whether the filesystem is that of `s3fs`."""
    return hasattr(system, "call_s3")


def open_filesystem(uri: str, storage_options: Options | None) -> tuple[Any, str]:
    """The filesystem and the path in it; a name without a scheme is local, whatever its letters."""
    if "://" not in uri:
        system = LocalFileSystem(use_listings_cache=False)
        return system, absolute_uri(uri)
    protocol = uri.partition("://")[0]
    if "::" in uri:
        raise InputError(f"{uri}: chained addresses are not supported; name the object itself")
    address, options = with_secrets(uri, storage_options)
    options["use_listings_cache"] = False
    if protocol in ("s3", "s3a"):
        # compare the etag of every answer with the opened one, also where servers ignore If-Match
        options.setdefault("local_expiry_check", True)
    try:
        system, path = fsspec.core.url_to_fs(address, **options)
    except ImportError as error:
        hint = known_implementations.get(protocol, {}).get("err", str(error))
        raise DependencyError(f"{uri}: {hint} (addresses that start with {protocol}://)") from error
    except ValueError as error:
        message = f"{uri}: {error}; check what stands before '://'"
        raise InputError(public_text(message)) from None
    return system, str(path)
