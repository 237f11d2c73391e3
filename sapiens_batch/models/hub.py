"""Where the files of a checkpoint are: on this machine, or on the model hub.

The hub client does downloading, caching, locking between processes and offline mode; this module
finds the one weights file and pins the revision. Reading it is left to `weights`. Only safetensors
files are accepted, because other formats can run code when they are opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download
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

WEIGHTS_NAME = "model.safetensors"
CONFIG_NAME = "config.json"
_SUFFIX = ".safetensors"
_UNSAFE_SUFFIXES = (".pth", ".pt", ".pt2", ".bin", ".ckpt")
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """Files of a checkpoint on this machine.

    Attributes:
        weights: The safetensors file.
        config: The `config.json` beside it, if there is one.
        revision: Commit of the hub repository, None for files that were given by path.
    """

    weights: Path
    config: Path | None
    revision: str | None


def locate(checkpoint: str, revision: str | None) -> CheckpointFiles:
    """Find the files of a checkpoint, downloading them where they are not here yet.

    Args:
        checkpoint: Path of a safetensors file or of a folder with one, or a hub id `owner/name`.
        revision: Branch, tag or commit of the hub repository.

    Raises:
        WeightsError: When there is no such file, or the hub cannot give it.
    """
    path = Path(checkpoint).expanduser()
    if path.is_dir():
        return _beside(_only_weights(path))
    if path.is_file():
        return _beside(path)
    if path.suffix in (_SUFFIX, *_UNSAFE_SUFFIXES) or not _HUB_ID.fullmatch(checkpoint):
        raise WeightsError(
            f"checkpoint {checkpoint} does not exist: give a {_SUFFIX} file, a folder with one, a "
            "hub id like facebook/sapiens2-pose-0.4b, or `demo`"
        )
    return _download(checkpoint, revision)


def _beside(weights: Path) -> CheckpointFiles:
    if weights.suffix != _SUFFIX:
        raise WeightsError(
            f"{weights} is not a {_SUFFIX} file: formats that can run code when opened "
            f"({', '.join(_UNSAFE_SUFFIXES)}) are not read; convert it to safetensors"
        )
    config = weights.with_name(CONFIG_NAME)
    return CheckpointFiles(weights.absolute(), config if config.is_file() else None, None)


def _only_weights(folder: Path) -> Path:
    found = sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX)
    preferred = [path for path in found if path.name == WEIGHTS_NAME]
    if len(found) != 1 and not preferred:
        names = ", ".join(path.name for path in found) or "none"
        raise WeightsError(
            f"folder {folder} needs one {_SUFFIX} file or a {WEIGHTS_NAME}, it has {names}: "
            "give the path of the file"
        )
    return (preferred or found)[0]


def _download(repo: str, revision: str | None) -> CheckpointFiles:
    try:
        weights = _download_weights(repo, revision)
        return CheckpointFiles(weights, _download_config(repo, weights), weights.parent.name)
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
            "read: check the spelling, or log in with `hf auth login`"
        ) from error
    except (EntryNotFoundError, HFValidationError) as error:
        raise WeightsError(_unreachable(repo, revision, error)) from error
    except (HfHubHTTPError, OfflineModeIsEnabled, OSError) as error:
        raise WeightsError(_unreachable(repo, revision, error)) from error


def _download_weights(repo: str, revision: str | None) -> Path:
    try:
        return Path(hf_hub_download(repo, WEIGHTS_NAME, revision=revision))
    except LocalEntryNotFoundError:
        raise
    except EntryNotFoundError:
        names = HfApi().list_repo_files(repo, revision=revision)
        found = [name for name in names if name.endswith(_SUFFIX)]
        if len(found) != 1:
            raise WeightsError(
                f"hub repository {repo} needs one {_SUFFIX} file, it has {found or 'none'}: "
                "download the one you want and give its path"
            ) from None
        return Path(hf_hub_download(repo, found[0], revision=revision))


def _download_config(repo: str, weights: Path) -> Path | None:
    try:
        return Path(hf_hub_download(repo, CONFIG_NAME, revision=weights.parent.name))
    except EntryNotFoundError:
        return None


def _unreachable(repo: str, revision: str | None, error: Exception) -> str:
    at = f" at revision {revision}" if revision else ""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"checkpoint {repo}{at} is not in the local hub cache and the hub could not give it "
        f"({reason}): check the connection and HF_HUB_OFFLINE, download it once with "
        f"`hf download {repo}`, or give the path of a {_SUFFIX} file"
    )
