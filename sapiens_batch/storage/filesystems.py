"""Reach the store of an address through fsspec.

Finding inputs is left to `storage.inputs`, reading them to `storage.reading`, the objects of a job
directory to `storage.fsspec_store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import known_implementations

from sapiens_batch.errors import DependencyError, InputError, SapiensBatchError
from sapiens_batch.storage.addresses import absolute_uri, public_text, public_uri, with_secrets

Options = Mapping[str, Any]

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
"""What of this package installs the driver of a scheme."""


def is_local(system: Any) -> bool:
    """Whether the filesystem is this machine's."""
    return isinstance(system, LocalFileSystem)


def is_s3(system: Any) -> bool:
    """Whether the filesystem is that of `s3fs`."""
    return hasattr(system, "call_s3")


def open_filesystem(uri: str, storage_options: Options | None) -> tuple[Any, str]:
    """The filesystem and the path in it; a name without a scheme is local, whatever its letters.

    Raises:
        DependencyError: The package for the scheme is not installed.
        InputError: fsspec does not know the scheme or the options.
    """
    if "://" not in uri:
        return LocalFileSystem(use_listings_cache=False), absolute_uri(uri)
    if "::" in uri:
        raise InputError(f"{uri}: chained addresses are not supported; name the object itself")
    options = dict(storage_options or {})
    if uri.startswith(("s3://", "s3a://")):
        # compare the etag of every answer with the opened one, also where servers ignore If-Match
        options.setdefault("local_expiry_check", True)
    return connect(uri, options, InputError)


def connect(
    uri: str, storage_options: Options, refusal: type[SapiensBatchError]
) -> tuple[Any, str]:
    """The filesystem of an address with a scheme, without caches of listings, and the path in it.

    Raises:
        DependencyError: The package for the scheme is not installed.
        SapiensBatchError: fsspec does not know the scheme or the options; a `refusal`.
    """
    address, options = with_secrets(uri, storage_options)
    protocol, shown = uri.partition("://")[0], public_uri(uri)
    try:
        system, path = url_to_fs(address, **{**options, "use_listings_cache": False})
    except ImportError as error:
        extra = EXTRAS.get(protocol)
        known = known_implementations.get(protocol, {}).get("err", str(error))
        hint = f"{error}; pip install 'sapiens-batch[{extra}]'" if extra else known
        raise DependencyError(
            f"{shown}: {hint} (addresses that start with {protocol}://)"
        ) from error
    except (ValueError, TypeError) as error:
        cause = public_text(str(error))
        raise refusal(
            f"{shown}: {cause}; check what stands before '://', and storage_options"
        ) from None
    return system, str(path)
