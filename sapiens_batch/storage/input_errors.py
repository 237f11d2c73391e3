"""Failures while reading inputs, told apart by who can mend them.

What a person must mend is an `InputError` (or a `DependencyError` where a driver is not installed),
what a retry may mend stays an `OSError`. Failures of output stores are told apart by
`storage.failures`, because those must know what became of a create.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sapiens_batch.errors import DependencyError, InputError
from sapiens_batch.storage.addresses import public_text

_REFUSED = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 414, 416, 451})
"""HTTP answers that asking again does not change."""


class MissingInputError(InputError):
    """The object does not exist."""


class ChangedInputError(InputError):
    """The object is not the version that was planned, or became another while it was read."""


def changed(uri: str, planned: str, found: str) -> ChangedInputError:
    """The refusal of an object that is another version."""
    return ChangedInputError(
        f"{uri} has changed since it was planned: version {found}, planned {planned}; "
        "put the old object back, or start a job with another output"
    )


def as_os_error(error: Exception, uri: str) -> OSError:
    """The failure of a store as an `OSError` that names the object, and no secret."""
    return OSError(public_text(f"reading {uri} failed: {type(error).__name__}: {error}"))


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
        cause = public_text(str(error))
        raise InputError(
            f"{uri} may not be read ({cause}): check rights and credentials{_options_hint(uri)}"
        ) from error
    except OSError as error:
        if public_text(str(error)) == str(error):
            raise
        raise as_os_error(error, uri) from None  # the error itself shows the address with secrets
    except Exception as error:  # drivers raise their own types, for example botocore's
        if getattr(error, "status", 0) in _REFUSED:
            cause = public_text(str(error))
            raise InputError(f"{uri} is refused by its server ({cause})") from None
        raise as_os_error(error, uri) from None


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


@contextlib.contextmanager
def errors_of_field(name: str) -> Iterator[None]:
    """Say which field of the job file named what an input error is about; its type stays."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error
