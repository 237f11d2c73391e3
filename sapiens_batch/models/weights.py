"""Checkpoints: which weights a job uses, what they are, and loading them into modules.

Resolving needs no accelerator and keeps no tensors, so a driver can do it for a whole cluster.
Loading is strict: a tensor that is missing, superfluous or misshaped is an error that names it.
Finding files is left to `hub`, opening them to `tensor_files`, reading configurations from shapes
to `shapes`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sapiens_batch.errors import WeightsError
from sapiens_batch.models import hub
from sapiens_batch.models.configs import EncoderV1Config, HeadKind, ModelConfig, RopeDtype
from sapiens_batch.models.configs_v1 import PATCH_PADDING
from sapiens_batch.models.demo import DEMO_ID, demo_config, demo_tensors
from sapiens_batch.models.described import read_described
from sapiens_batch.models.encoder import Encoder
from sapiens_batch.models.encoder_v1 import EncoderV1
from sapiens_batch.models.heads import Head
from sapiens_batch.models.layers import rope_periods
from sapiens_batch.models.licences import CC_BY_NC_4, NO_LICENCE_NAME, SAPIENS2
from sapiens_batch.models.shapes import Shapes, infer_config, split_names
from sapiens_batch.models.tensor_files import open_tensors, weights_parts

PERIODS = "rope_embed.periods"
"""The only tensor that a file may lack: it follows from the head width."""
AnyEncoder = Encoder | EncoderV1
_CPU = torch.device("cpu")


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
        licence: Name of the licence that the weights are known under. Files without a name get
            that of their generation, as derivatives of the released weights.
        demo: Whether the weights are random.
        accepted_by: The field or variable in which the licence was accepted; empty where it was
            not, or need not be.
        file: Which file of a folder or repository it is, so that other nodes need not choose.
        vocabulary: What the job file says of the head's channels, JSON values; None where nothing.
    """

    id: str
    path: Path | None
    revision: str | None
    weights_sha256: str
    encoder_sha256: str
    config: ModelConfig
    licence: str
    demo: bool
    accepted_by: str = ""
    vocabulary: Mapping[str, Any] | None = None
    file: str | None = None

    @property
    def digest(self) -> str:
        """Of all that the checkpoint contributes to labels.

        Besides the weights these are the facts that files beside them can change.
        """
        facts = json.dumps(
            [self.weights_sha256, asdict(self.config), self.vocabulary], sort_keys=True
        )
        return hashlib.sha256(facts.encode()).hexdigest()

    @property
    def patch_padding(self) -> int:
        """Zeros around the image before patches are cut, as these weights were trained, px."""
        kind = self.config.head.kind if self.config.head else None
        return PATCH_PADDING[kind] if self.config.is_v1 else 0


def resolve_checkpoint(
    checkpoint: str,
    revision: str | None = None,
    *,
    file: str | None = None,
    head: HeadKind | None = None,
) -> Checkpoint:
    """Find, identify and check weights without keeping them in memory.

    Args:
        checkpoint: Hub id, folder, weights file, or `demo`.
        revision: Branch, tag or commit of the hub repository.
        file: Which weights file of a folder or repository.
        head: The head that the demo is wanted for; other checkpoints say themselves what they are.

    Raises:
        WeightsError: When the weights cannot be found or read, or do not fit their architecture.
    """
    if checkpoint == DEMO_ID:
        return _resolve_demo(head)
    files = hub.locate(checkpoint, revision, file)
    described = read_described(files.config, files.processor)
    with open_tensors(files.weights) as opened:
        shapes = dict(opened.shapes)
        config = infer_config(shapes, described, where=str(files.weights))
        check_shapes(shapes, config, where=str(files.weights))
        names, _ = split_names(shapes)
        digest = _tensors_sha256((name, opened.read(names[name], _CPU)) for name in sorted(names))
    return Checkpoint(
        id=checkpoint,
        file=files.file or file,
        path=files.weights,
        revision=files.revision,
        weights_sha256=_file_sha256(files.weights),
        encoder_sha256=digest,
        config=config,
        licence=(CC_BY_NC_4 if config.is_v1 else SAPIENS2).name,
        demo=False,
    )


def load_encoder(
    checkpoint: Checkpoint,
    *,
    rope_dtype: RopeDtype,
    device: torch.device,
    dtype: torch.dtype,
    patch_padding: int | None = None,
) -> AnyEncoder:
    """The checkpoint's encoder, frozen, in evaluation mode, its projections fused.

    Args:
        checkpoint: Resolved weights.
        rope_dtype: Precision of the rotary embedding of Sapiens2.
        device: Where the module is to be.
        dtype: Precision of its parameters.
        patch_padding: Zeros around the image in Sapiens v1, px; None: as the weights were trained.

    Raises:
        WeightsError: When the file is gone, or is no longer the one that was resolved.
    """
    padding = checkpoint.patch_padding if patch_padding is None else patch_padding
    module = _empty_encoder(checkpoint.config, rope_dtype, padding)
    tensors = _encoder_tensors(checkpoint, _expected(module), device)
    periods = tensors.pop(PERIODS, None)
    tensors = {name: tensor.to(device, dtype) for name, tensor in tensors.items()}
    if isinstance(module, Encoder):
        if periods is None:
            periods = rope_periods(module.config.head_dim, module.config.rope_theta)
        tensors[PERIODS] = periods.to(device, torch.float32)
    module.load_state_dict(tensors, assign=True)
    if isinstance(module, Encoder):
        module.fuse()
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
        with open_tensors(_verified(checkpoint)) as file:
            _, names = split_names(file.shapes)
            tensors = {name: file.read(names[name], device) for name in shapes}
    tensors = {name: tensor.to(device, dtype) for name, tensor in tensors.items()}
    module.load_state_dict(tensors, assign=True)
    for parameter in module.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return module.eval().requires_grad_(False)


def count_parameters(config: ModelConfig) -> tuple[int, int]:
    """Tensors in a file of this configuration, and parameters of encoder and head together."""
    modules: list[nn.Module] = [_empty_encoder(config, "float32", 0)]
    if config.head is not None:
        with torch.device("meta"):
            modules.append(Head(config.head))
    tensors = sum(len(module.state_dict()) for module in modules)
    return tensors, sum(value.numel() for module in modules for value in module.parameters())


def check_shapes(shapes: Shapes, config: ModelConfig, *, where: str) -> None:
    """Compare a file's tensors with what its configuration asks for.

    Raises:
        WeightsError: Naming every missing, superfluous and misshaped tensor.
    """
    encoder_names, head_names = split_names(shapes)
    wanted = _expected(_empty_encoder(config, "float32", 0))
    with torch.device("meta"):
        head = _expected(Head(config.head)) if config.head else {}
    found = {name: shapes[stored] for name, stored in encoder_names.items()}
    if PERIODS in wanted:
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


def _empty_encoder(config: ModelConfig, rope_dtype: RopeDtype, patch_padding: int) -> AnyEncoder:
    with torch.device("meta"):
        if isinstance(config.encoder, EncoderV1Config):
            return EncoderV1(config.encoder, patch_padding=patch_padding)
        return Encoder(config.encoder, rope_dtype=rope_dtype)


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
    encoder_shapes = _expected(_empty_encoder(config, "float32", 0))
    with torch.device("meta"):
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
        licence=NO_LICENCE_NAME,
        demo=True,
    )


def _encoder_tensors(
    checkpoint: Checkpoint, shapes: Shapes, device: torch.device
) -> dict[str, Tensor]:
    if checkpoint.demo:
        return demo_tensors({name: shapes[name] for name in shapes if name != PERIODS}, None)
    with open_tensors(_verified(checkpoint)) as file:
        names, _ = split_names(file.shapes)
        return {name: file.read(names[name], device) for name in shapes if name in names}


def _verified(checkpoint: Checkpoint) -> Path:
    """The file of a checkpoint on this machine, which must be the resolved one."""
    path = checkpoint.path
    if path is None or not path.is_file():
        path = hub.locate(checkpoint.id, checkpoint.revision, checkpoint.file).weights
    digest = _file_sha256(path)
    if digest != checkpoint.weights_sha256:
        raise WeightsError(
            f"{path} has SHA-256 {digest}, the job was planned with {checkpoint.weights_sha256}: "
            "put the same file on every node"
        )
    return path


def _file_sha256(path: Path) -> str:
    """Digest of a file, of an index with all that it names; unchanged files are read once."""
    status = path.stat()
    own = _hash_file(path, status.st_size, status.st_mtime_ns)
    parts = [_file_sha256(path.with_name(name)) for name in weights_parts(path)]
    return hashlib.sha256("".join([own, *parts]).encode()).hexdigest() if parts else own


@lru_cache(maxsize=64)
def _hash_file(path: Path, size_bytes: int, mtime_ns: int) -> str:
    del size_bytes, mtime_ns  # part of the cache's key only
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _tensors_sha256(tensors: Iterable[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
