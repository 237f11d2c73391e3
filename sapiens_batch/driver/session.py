"""A Ray session for one job: the cluster that was asked for, or a quiet local one.

Ray is imported inside the functions so that its environment variables are set first.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from sapiens_batch.errors import SpecError
from sapiens_batch.failpoints import forwarded_environment
from sapiens_batch.spec.job import RuntimeSpec

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


CONNECT_TIMEOUT_S = 20.0
"""Seconds in which a cluster that was named must answer."""


class StopRequested(BaseException):
    """SIGINT or SIGTERM arrived; the job ends cleanly and can be resumed.

    Not an `Exception`, so that no worker boundary takes it for a failure.
    """


@contextmanager
def ray_session(runtime: RuntimeSpec) -> Iterator[None]:
    """Join or start a cluster, and leave it.

    A local Ray is started unless this process is connected already, or the job file or RAY_ADDRESS
    names a cluster.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    # what Ray deprecates is settled when its version is raised, not while a job runs
    for category in (DeprecationWarning, FutureWarning):
        warnings.filterwarnings("ignore", category=category, module=r"ray(\.|$)")
    import ray

    if ray.is_initialized():
        yield
        return
    address = runtime.ray_address or os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {"address": address} if address else _local_options()
    logging.getLogger("ray").setLevel(logging.ERROR)
    if address:
        _check_answers(address)
    with _silent_stderr(), _same_signal_handlers():
        try:
            ray.init(
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": forwarded_environment()},
                **options,
            )
        except ConnectionError as error:
            raise _no_cluster(address or "local", error) from error
    # Each process that dies is reported on stdout, in the midst of ours and of --json, whatever
    # log_to_driver says. A chunk that keeps ending its worker is counted.
    ray._private.worker._worker_logs_enabled = False
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Ray itself tries for minutes, without a word."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # `auto` and `local`
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: OSError) -> SpecError:
    return SpecError(
        f"runtime.ray_address, or RAY_ADDRESS: there is no Ray cluster at {address} ({error}); "
        f"`ray status --address {address}` shows whether it runs. Without an address a local Ray "
        "is started"
    )


@contextmanager
def _same_signal_handlers() -> Iterator[None]:
    """Keep our handlers: Ray installs its own for SIGTERM, which ends the process on the spot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Drop what Ray's native code prints while it starts: no setting silences its first line."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _local_options() -> dict[str, Any]:
    return {
        "address": "local",
        "num_cpus": os.cpu_count() or 1,
        "include_dashboard": False,
    }


@contextmanager
def stop_signals() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into `StopRequested`; a second one kills as usual.

    Does nothing outside the main thread, where Python delivers no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in _STOP_SIGNALS}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def stop(number: int, frame: FrameType | None) -> None:
        restore()
        raise StopRequested(signal.Signals(number).name)

    for number in previous:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()
