"""Where the files of a checkpoint are: on this machine, or on the model hub.

The hub client does downloading, caching and offline mode, and locks each file while it downloads:
of all processes of a node one downloads, the others wait and find it. This module finds the one
weights file and pins the revision; a process asks the hub about a repository once. Reading the file
is left to `tensor_files`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from huggingface_hub import (
    _CACHED_NO_EXIST,
    HfApi,
    constants,
    get_session,
    hf_hub_download,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.catalog import unknown_release
from sapiens_batch.models.described import CONFIG_NAME, PROCESSOR_NAME
from sapiens_batch.models.tensor_files import (
    ARCHIVE_SUFFIXES,
    INDEX_SUFFIX,
    SAFETENSORS_SUFFIX,
    weights_parts,
)

WEIGHTS_NAME = "model.safetensors"
_SUFFIXES = (SAFETENSORS_SUFFIX, *ARCHIVE_SUFFIXES)
_CONNECT_TIMEOUTS_S = (5.0, 10.0)
"""Seconds to wait for a connection before the first download, by try."""

_NOT_CONNECTED = ("ConnectError", "ConnectTimeout", "ProxyError")
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """Files of a checkpoint on this machine.

    Attributes:
        weights: The weights file.
        config: The `config.json` beside it, if there is one.
        processor: The `preprocessor_config.json` beside it, if there is one.
        revision: Commit of the hub repository, None for files that were given by path.
        file: Name of the weights in the repository or folder, where they are in one.
    """

    weights: Path
    config: Path | None
    processor: Path | None
    revision: str | None
    file: str | None = None


def locate(checkpoint: str, revision: str | None, file: str | None = None) -> CheckpointFiles:
    """Find the files of a checkpoint, downloading them where they are not here yet.

    Args:
        checkpoint: Path of a weights file or of a folder with one, or a hub id `owner/name`.
        revision: Branch, tag or commit of the hub repository.
        file: Which weights file of a folder or repository, relative to it.

    Raises:
        WeightsError: When there is no such file, or the hub cannot give it.
    """
    path = Path(checkpoint).expanduser()
    if path.is_dir():
        names = [file] if file else [entry.name for entry in path.iterdir()]
        return _beside(path / _only_weights(names, f"folder {path}"))
    if path.is_file():
        if file is not None:
            raise WeightsError(f"checkpoint {path} is a file itself: leave out file: {file}")
        return _beside(path)
    if path.suffix in _SUFFIXES or not _HUB_ID.fullmatch(checkpoint):
        raise WeightsError(
            f"checkpoint {checkpoint} does not exist: give a {SAFETENSORS_SUFFIX} or .pth file, a "
            "folder with one, a hub id like facebook/sapiens2-pose-0.4b, or `demo`"
        )
    return _download(checkpoint, revision, file)


def _beside(weights: Path) -> CheckpointFiles:
    if not weights.name.endswith((*_SUFFIXES, INDEX_SUFFIX)):
        raise WeightsError(
            f"{weights} is no weights file: give one of {', '.join(_SUFFIXES)}, or "
            f"*{INDEX_SUFFIX}, in a layout that `models check` reads"
        )
    if not weights.is_file():
        raise WeightsError(f"{weights} does not exist: check the name of the file")
    beside = [weights.with_name(name) for name in (CONFIG_NAME, PROCESSOR_NAME)]
    config, processor = (path if path.is_file() else None for path in beside)
    return CheckpointFiles(weights.absolute(), config, processor, None)


def _only_weights(names: Iterable[str], where: str) -> str:
    """The one weights file of a folder; safetensors go before archives."""
    listed = sorted(names)
    for usual in (WEIGHTS_NAME, WEIGHTS_NAME + ".index.json"):
        if usual in listed:
            return usual
    for suffixes in ((INDEX_SUFFIX,), (SAFETENSORS_SUFFIX,), ARCHIVE_SUFFIXES):
        found = [name for name in listed if name.endswith(suffixes)]
        if len(found) == 1:
            return found[0]
        if found:
            break
    raise WeightsError(
        f"{where} needs one {SAFETENSORS_SUFFIX} or .pth file or a {WEIGHTS_NAME}, it has "
        f"{', '.join(found) or 'none'}: say which with `file`"
    )


@cache
def _download(repo: str, revision: str | None, file: str | None) -> CheckpointFiles:
    # remembered, so that tasks with one checkpoint get one commit although a branch may move on
    try:
        weights, commit = _download_weights(repo, revision, file)
        config, processor = (
            _download_beside(repo, commit, _in_folder_of(weights, commit, name))
            for name in (CONFIG_NAME, PROCESSOR_NAME)
        )
        name = _in_folder_of(weights, commit, weights.name)
        return CheckpointFiles(weights, config, processor, commit, name)
    except RevisionNotFoundError as error:
        raise WeightsError(f"hub repository {repo} has no revision {revision}") from error
    except GatedRepoError as error:
        raise WeightsError(
            f"hub repository {repo} asks for consent: accept its terms on its page and log in "
            "with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise WeightsError(
            f"checkpoint {repo} is neither a file here nor a hub repository that this account can "
            f"read: check the spelling, or log in with `hf auth login`{unknown_release(repo)}"
        ) from error
    except (EntryNotFoundError, HFValidationError) as error:
        raise WeightsError(_unreachable(repo, revision, error)) from error
    except (HfHubHTTPError, OfflineModeIsEnabled, OSError) as error:
        raise WeightsError(_unreachable(repo, revision, error)) from error


def _download_weights(repo: str, revision: str | None, file: str | None) -> tuple[Path, str]:
    """The weights file, with all that an index names, and the commit that it is of."""
    try:
        weights = _fetch_weights(repo, revision, file)
    except (LocalEntryNotFoundError, ConnectionError):
        # what the cache happens to hold may choose only where the hub cannot be asked
        kept = _kept_weights(repo, revision, file)
        if kept is None:
            raise
        weights = kept
    commit = _commit_of(weights)
    for part in weights_parts(weights):
        hf_hub_download(repo, _in_folder_of(weights, commit, part), revision=commit)
    return weights, commit


def _fetch_weights(repo: str, revision: str | None, file: str | None) -> Path:
    name = file or WEIGHTS_NAME
    if not isinstance(try_to_load_from_cache(repo, name, revision=revision), str):
        _check_connection()
    try:
        return Path(hf_hub_download(repo, name, revision=revision))
    except LocalEntryNotFoundError:
        raise
    except EntryNotFoundError as error:
        names = HfApi().list_repo_files(repo, revision=revision)
        if file is not None:
            has = ", ".join(one for one in names if one.endswith(_SUFFIXES)) or "no weights"
            raise WeightsError(f"hub repository {repo} has no file {file}; it has {has}") from error
        name = _only_weights(names, f"hub repository {repo}")
        return Path(hf_hub_download(repo, name, revision=revision))


def _kept_weights(repo: str, revision: str | None, file: str | None) -> Path | None:
    """The weights file in the cache of the hub client, whatever it is called, or None."""
    try:
        snapshot = Path(snapshot_download(repo, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*")]
    if file is not None:
        return snapshot / file if file in names else None
    try:
        return snapshot / _only_weights(names, f"snapshot {snapshot}")
    except WeightsError:
        if any(name.endswith(_SUFFIXES) for name in names):
            raise
        return None


def _commit_of(path: Path) -> str:
    """The commit of a file in the cache: the folder below `snapshots`."""
    parts = path.parts
    return parts[len(parts) - 1 - parts[::-1].index("snapshots") + 1]


def _in_folder_of(weights: Path, commit: str, name: str) -> str:
    """Name in its repository of a file in the folder of the weights."""
    folders = weights.parts[weights.parts.index(commit) + 1 : -1]
    return "/".join((*folders, name))


def _check_connection() -> None:
    """Find out soon whether the hub can be connected to: its client would try for half a minute.

    Raises:
        ConnectionError: It cannot. Slow or odd answers are left to the client.
    """
    refusal: Exception | None = None
    for timeout_s in _CONNECT_TIMEOUTS_S:
        try:
            get_session().request("HEAD", constants.ENDPOINT, timeout=timeout_s)
        except OfflineModeIsEnabled:
            raise
        except Exception as error:  # of httpx or httpx2, whichever the client is built on
            if type(error).__name__ not in _NOT_CONNECTED:
                return
            refusal = error
        else:
            return
    assert refusal is not None, "every try was refused"
    raise ConnectionError(str(refusal)) from refusal


def _download_beside(repo: str, commit: str, name: str) -> Path | None:
    # the client would ask again for a file of which its cache knows that the commit has none
    if try_to_load_from_cache(repo, name, revision=commit) is _CACHED_NO_EXIST:
        return None
    try:
        return Path(hf_hub_download(repo, name, revision=commit))
    except EntryNotFoundError:
        return None


def _unreachable(repo: str, revision: str | None, error: Exception) -> str:
    at = f" at revision {revision}" if revision else ""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"checkpoint {repo}{at} is not in the local hub cache and the hub could not give it "
        f"({reason}): check the connection and HF_HUB_OFFLINE, download it once with "
        f"`hf download {repo}`, or give the path of a {SAFETENSORS_SUFFIX} file"
        f"{unknown_release(repo)}"
    )
