"""Checkpoints: which weights a job uses, what they are, and loading them into modules.

Resolving needs no accelerator and keeps no tensors, so a driver can do it for a whole cluster.
Loading is strict: a tensor that is missing, superfluous or misshaped is an error that names it.
Finding files is left to `hub`, reading configurations from shapes to `shapes`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from sapiens_batch.errors import WeightsError
from sapiens_batch.models import hub
from sapiens_batch.models.configs import HeadKind, ModelConfig, RopeDtype
from sapiens_batch.models.demo import DEMO_ID, demo_config, demo_tensors
from sapiens_batch.models.encoder import Encoder
from sapiens_batch.models.heads import Head
from sapiens_batch.models.layers import rope_periods
from sapiens_batch.models.shapes import Shapes, infer_config, split_names

PERIODS = "rope_embed.periods"
"""The only tensor that a file may lack: it follows from the head width."""
_SAFETENSORS_DTYPES = ("F32", "F16", "BF16")
_SAPIENS2_LICENCE = "Sapiens2 License"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Resolved weights of one task; small, picklable, free of tensors.

    Attributes:
        id: What the job file named: hub id, path, or `demo`.
        path: The weights file on the machine that resolved it; None for the demo.
        revision: Commit of the hub repository, None for local files and the demo.
        weights_sha256: Of the file's bytes; for the demo, of its tensors.
        encoder_sha256: Of the encoder's tensor names, dtypes, shapes and bytes. Equal digests mean
            that one encoder serves both tasks, whatever else is in the files.
        config: What the weights are.
        licence: Name of the licence that the weights are known under.
        demo: Whether the weights are random.
    """

    id: str
    path: Path | None
    revision: str | None
    weights_sha256: str
    encoder_sha256: str
    config: ModelConfig
    licence: str
    demo: bool


def resolve_checkpoint(
    checkpoint: str, revision: str | None = None, *, head: HeadKind | None = None
) -> Checkpoint:
    """Find, identify and check weights without keeping them in memory.

    Args:
        checkpoint: Hub id, folder, safetensors file, or `demo`.
        revision: Branch, tag or commit of the hub repository.
        head: The head that the demo is wanted for; other checkpoints say themselves what they are.

    Raises:
        WeightsError: When the weights cannot be found or read, or do not fit their architecture.
    """
    if checkpoint == DEMO_ID:
        return _resolve_demo(head)
    files = hub.locate(checkpoint, revision)
    described = _read_config(files.config)
    shapes = read_shapes(files.weights)
    config = infer_config(shapes, described, where=str(files.weights))
    check_shapes(shapes, config, where=str(files.weights))
    names, _ = split_names(shapes)
    with _opened(files.weights) as get_tensor:
        digest = _tensors_sha256((name, get_tensor(names[name])) for name in sorted(names))
    return Checkpoint(
        id=checkpoint,
        path=files.weights,
        revision=files.revision,
        weights_sha256=_file_sha256(files.weights),
        encoder_sha256=digest,
        config=config,
        licence=_SAPIENS2_LICENCE,
        demo=False,
    )


def load_encoder(
    checkpoint: Checkpoint, *, rope_dtype: RopeDtype, device: torch.device, dtype: torch.dtype
) -> Encoder:
    """The checkpoint's encoder, frozen, in evaluation mode.

    Raises:
        WeightsError: When the file is gone, or is no longer the one that was resolved.
    """
    with torch.device("meta"):
        module = Encoder(checkpoint.config.encoder, rope_dtype=rope_dtype)
    tensors = _encoder_tensors(checkpoint, _expected(module), device)
    periods = tensors.pop(PERIODS, rope_periods(checkpoint.config.encoder.head_dim))
    tensors = {name: tensor.to(device, dtype) for name, tensor in tensors.items()}
    tensors[PERIODS] = periods.to(device, torch.float32)
    module.load_state_dict(tensors, assign=True)
    return module.eval().requires_grad_(False)


def load_head(checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> Head:
    """The checkpoint's head, frozen, in evaluation mode.

    Raises:
        WeightsError: When the weights have no head, or the file is not the one that was resolved.
    """
    config = checkpoint.config.head
    if config is None:
        raise WeightsError(f"checkpoint {checkpoint.id} is an encoder without a head")
    with torch.device("meta"):
        module = Head(config)
    shapes = _expected(module)
    if checkpoint.demo:
        tensors = demo_tensors(shapes, config.kind)
    else:
        path, stored = _verified(checkpoint)
        _, names = split_names(stored)
        with _opened(path, device) as get_tensor:
            tensors = {name: get_tensor(names[name]) for name in shapes}
    tensors = {name: tensor.to(device, dtype) for name, tensor in tensors.items()}
    module.load_state_dict(tensors, assign=True)
    return module.eval().requires_grad_(False)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of a safetensors file, from its header.

    Raises:
        WeightsError: When the file is damaged or holds numbers that are not floating point.
    """
    shapes = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (the file is not a mapping)
                entry = file.get_slice(name)
                if entry.get_dtype() not in _SAFETENSORS_DTYPES:
                    raise WeightsError(
                        f"tensor `{name}` of {path} is {entry.get_dtype()}, not one of "
                        f"{', '.join(_SAFETENSORS_DTYPES)}: quantised weights are not read"
                    )
                shapes[name] = tuple(entry.get_shape())
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} cannot be read ({error}): fetch the file again") from error
    return shapes


def check_shapes(shapes: Shapes, config: ModelConfig, *, where: str) -> None:
    """Compare a file's tensors with what its configuration asks for.

    Raises:
        WeightsError: Naming every missing, superfluous and misshaped tensor.
    """
    encoder_names, head_names = split_names(shapes)
    with torch.device("meta"):
        wanted = _expected(Encoder(config.encoder))
        head = _expected(Head(config.head)) if config.head else {}
    found = {name: shapes[stored] for name, stored in encoder_names.items()}
    found.setdefault(PERIODS, wanted[PERIODS])
    problems = _differences(found, wanted, "")
    stored_head = {name: shapes[stored] for name, stored in head_names.items()}
    problems += _differences(stored_head, head, "decode_head.")
    if problems:
        name = config.encoder.name
        raise WeightsError(
            f"{where} does not fit the architecture {name}: {len(problems)} tensors differ\n  "
            + "\n  ".join(problems)
        )


def _differences(found: Shapes, wanted: Shapes, prefix: str) -> list[str]:
    missing = [f"missing {prefix}{name} {wanted[name]}" for name in wanted if name not in found]
    extra = [f"extra {prefix}{name} {found[name]}" for name in found if name not in wanted]
    misshaped = [
        f"misshaped {prefix}{name}: {found[name]}, should be {wanted[name]}"
        for name in wanted
        if name in found and found[name] != wanted[name]
    ]
    return missing + extra + misshaped


def _expected(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def _resolve_demo(head: HeadKind | None) -> Checkpoint:
    config = demo_config(head)
    with torch.device("meta"):
        encoder_shapes = _expected(Encoder(config.encoder))
        head_shapes = _expected(Head(config.head)) if config.head else {}
    del encoder_shapes[PERIODS]
    encoder = sorted(demo_tensors(encoder_shapes, None).items())
    tensors = sorted(demo_tensors(head_shapes, head).items())
    return Checkpoint(
        id=DEMO_ID,
        path=None,
        revision=None,
        weights_sha256=_tensors_sha256([*encoder, *tensors]),
        encoder_sha256=_tensors_sha256(encoder),
        config=config,
        licence="none (random weights)",
        demo=True,
    )


def _encoder_tensors(
    checkpoint: Checkpoint, shapes: Shapes, device: torch.device
) -> dict[str, Tensor]:
    if checkpoint.demo:
        return demo_tensors({name: shapes[name] for name in shapes if name != PERIODS}, None)
    path, stored = _verified(checkpoint)
    names, _ = split_names(stored)
    with _opened(path, device) as get_tensor:
        return {name: get_tensor(names[name]) for name in shapes if name in names}


def _verified(checkpoint: Checkpoint) -> tuple[Path, Shapes]:
    """The file of a checkpoint on this machine, which must be the resolved one, and its shapes."""
    path = checkpoint.path
    if path is None or not path.is_file():
        path = hub.locate(checkpoint.id, checkpoint.revision).weights
    digest = _file_sha256(path)
    if digest != checkpoint.weights_sha256:
        raise WeightsError(
            f"{path} has SHA-256 {digest}, the job was planned with {checkpoint.weights_sha256}: "
            "put the same file on every node"
        )
    return path, read_shapes(path)


def _file_sha256(path: Path) -> str:
    """Digest of a file; files that did not change are read once per process."""
    status = path.stat()
    return _hash_file(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _hash_file(path: Path, size_bytes: int, mtime_ns: int) -> str:
    del size_bytes, mtime_ns  # part of the cache's key only
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _opened(path: Path, device: torch.device | None = None) -> Iterator[Callable[[str], Tensor]]:
    try:
        with safe_open(path, framework="pt", device=str(device or "cpu")) as file:
            yield file.get_tensor
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} cannot be read ({error}): fetch the file again") from error


def _read_config(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    try:
        described = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} is not JSON ({error}): fetch it again or remove it") from error
    return described if isinstance(described, dict) else {}


def _tensors_sha256(tensors: Iterable[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
