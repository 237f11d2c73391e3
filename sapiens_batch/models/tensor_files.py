"""Tensors by name out of a weights file, without running anything that is in it.

Two layouts are read: safetensors, also in several files that an index names, and the zip archives
of torch (`.pth` checkpoints and TorchScript models), which `torch_archive` takes apart. What the
names mean is left to `shapes` and `weights`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.torch_archive import TorchArchive

SAFETENSORS_SUFFIX: Final = ".safetensors"
ARCHIVE_SUFFIXES: Final = (".pth", ".pt", ".pt2", ".ckpt", ".bin")
_ZIP_MAGIC = b"PK\x03\x04"
INDEX_SUFFIX: Final = ".safetensors.index.json"
_DTYPES: Final = ("F64", "F32", "F16", "BF16")


class TensorFile(Protocol):
    """An open weights file."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every tensor."""

    def read(self, name: str, device: torch.device) -> Tensor:
        """One tensor, in the precision of the file."""


@contextmanager
def open_tensors(path: Path) -> Iterator[TensorFile]:
    """Open a weights file of either layout.

    Raises:
        WeightsError: When the file is damaged, is of neither layout, or holds numbers that are not
            floating point.
    """
    if path.name.endswith(INDEX_SUFFIX):
        with ExitStack() as stack:
            parts = [path.with_name(name) for name in weights_parts(path)]
            yield _Parts([stack.enter_context(open_tensors(part)) for part in parts])
        return
    if _starts_with(path, _ZIP_MAGIC):
        with TorchArchive.open(path) as archive:
            yield archive
        return
    if path.suffix != SAFETENSORS_SUFFIX:
        raise WeightsError(
            f"{path} is neither a {SAFETENSORS_SUFFIX} file nor a zip archive of torch: pickles of "
            "the old layout are not read, because opening one runs what is in it"
        )
    try:
        with safe_open(path, framework="pt") as file:
            yield _Safetensors(file, path)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} cannot be read ({error}): fetch the file again") from error


def weights_parts(path: Path) -> list[str]:
    """Names of the files beside an index that hold its tensors; none for other files.

    Raises:
        WeightsError: The index is damaged.
    """
    if not path.name.endswith(INDEX_SUFFIX):
        return []
    try:
        names = sorted({str(name) for name in json.loads(path.read_text())["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsError(
            f"{path} is no index of safetensors ({error!r}): fetch it again"
        ) from error
    if any(Path(name).name != name for name in names):
        raise WeightsError(f"{path} names files outside its folder: {', '.join(names[:3])}")
    return names


class _Parts:
    """Several weights files as one."""

    def __init__(self, files: Sequence[TensorFile]) -> None:
        self._files = {name: file for file in files for name in file.shapes}
        self.shapes = {name: file.shapes[name] for name, file in self._files.items()}

    def read(self, name: str, device: torch.device) -> Tensor:
        return self._files[name].read(name, device)


class _Safetensors:
    def __init__(self, file: Any, path: Path) -> None:
        self._file = file
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name in file.keys():  # noqa: SIM118 (the file is not a mapping)
            entry = file.get_slice(name)
            if entry.get_dtype() not in _DTYPES:
                raise WeightsError(
                    f"tensor `{name}` of {path} is {entry.get_dtype()}, not one of "
                    f"{', '.join(_DTYPES)}: quantised weights are not read"
                )
            self.shapes[name] = tuple(entry.get_shape())

    def read(self, name: str, device: torch.device) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        return tensor.to(device)


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(magic)) == magic
    except OSError as error:
        raise WeightsError(f"{path} cannot be read ({error}): fetch the file again") from error
