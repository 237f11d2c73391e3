"""Every error that sapiens_batch raises, grouped by what the reader does next.

A message says what is wrong, which value, where, and what to do. Failures of single samples are
not exceptions: they are `records.Problem` values that become rows (`status = quarantined`). Only
`SampleError` carries one across a function boundary until the worker turns it into a row.
"""

from __future__ import annotations


class SapiensBatchError(Exception):
    """Base of every error raised on purpose by this package.

    `exit_code` is what the command line returns when the error reaches the top.
    """

    exit_code: int = 1


class SpecError(SapiensBatchError):
    """The job file is wrong: mend the job file."""

    exit_code = 2


class InputError(SapiensBatchError):
    """The input (shards, listings, columns) cannot be used: mend the input or its address."""

    exit_code = 2


class WeightsError(SapiensBatchError):
    """A checkpoint does not fit its architecture or cannot be read: use other weights."""

    exit_code = 2


class StorageError(SapiensBatchError):
    """The object store refused or failed: check address, rights and connection, then run again."""

    exit_code = 2


class DependencyError(SapiensBatchError):
    """An optional package is missing: install the extra that the message names."""

    exit_code = 2


class DriftError(SapiensBatchError):
    """The spec or the input is not what the job was started with: use another output."""

    exit_code = 3


class ProtocolError(SapiensBatchError):
    """Stored objects contradict each other or the format: run `verify`."""

    exit_code = 1


class DamagedReceiptError(ProtocolError):
    """Receipts of an open shard are damaged or gone: order the whole shard to be labeled again."""


class SampleError(SapiensBatchError):
    """One sample cannot be labeled; the worker turns it into a quarantined row.

    Args:
        reason: Dotted name from the taxonomy, for example `decode.truncated`.
        message: What a person needs to find and mend the sample.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
