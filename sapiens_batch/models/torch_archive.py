"""Torch's own zip archives taken apart: `.pth` checkpoints and TorchScript models.

Such an archive is a pickle that describes objects, and raw bytes for the tensors. Opening it the
usual way runs whatever the pickle names. Here a name is only ever looked up in the short table
below; every other one becomes an inert object, so that old metadata (numpy arrays, training logs)
does no harm and gets in nobody's way. Torch's `weights_only` loading refuses such files, and reads
no TorchScript.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from sapiens_batch.errors import WeightsError

MAX_DESCRIPTION_BYTES: Final = 64 << 20
"""A description lists names and shapes; those of the largest released model have under 1 MB."""
_STATE_DICT = "state_dict"
_STORAGES: Final = {
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "DoubleStorage": torch.float64,
    "BFloat16Storage": torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: torch.dtype | None


@dataclass(frozen=True, slots=True)
class _StoredTensor:
    """Where a tensor's numbers are: elements of a storage, from `offset` on, with strides."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _Inert:
    """Stands for any object that is not a tensor: remembers its state, does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.state: Any = None

    def __new__(cls, *_: Any, **__: Any) -> _Inert:
        return object.__new__(cls)

    def __call__(self, *_: Any, **__: Any) -> _Inert:
        return _Inert()

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, name: Any, value: Any) -> None:
        del name, value

    def append(self, value: Any) -> None:
        """Pickles fill lists through this."""
        del value

    def extend(self, values: Any) -> None:
        """Pickles fill lists through this."""
        del values


def _rebuild_tensor(
    storage: _Storage, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> _StoredTensor:
    return _StoredTensor(storage, offset, tuple(shape), tuple(stride))


def _rebuild_parameter(tensor: _StoredTensor, *_: Any) -> _StoredTensor:
    return tensor


_KNOWN: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
}


class _Describer(pickle.Unpickler):
    """Reads a description; calls nothing but what `_KNOWN` has."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name.endswith("Storage"):
            return _STORAGES.get(name, _Inert)
        return _KNOWN.get((module, name), _Inert)

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key = pid[:3]
        if kind != "storage" or not isinstance(key, str):
            raise pickle.UnpicklingError(f"unknown persistent id {kind!r}")
        return _Storage(key, dtype if isinstance(dtype, torch.dtype) else None)


class TorchArchive:
    """An open archive; make one with `TorchArchive.open`.

    Args:
        archive: The zip file.
        root: Folder inside it, with a slash.
        tensors: Where each tensor is.
    """

    def __init__(
        self, archive: zipfile.ZipFile, root: str, tensors: Mapping[str, _StoredTensor]
    ) -> None:
        self._archive = archive
        self._root = root
        self._tensors = tensors

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[TorchArchive]:
        """Open an archive and read its description.

        Raises:
            WeightsError: When it is damaged, or describes no floating-point tensors by name.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                root = _root(archive, path)
                yield cls(archive, root, _tensors(_describe(archive, root, path), path))
        except (zipfile.BadZipFile, pickle.UnpicklingError, EOFError, OSError) as error:
            raise WeightsError(f"{path} cannot be read ({error}): fetch the file again") from error

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every tensor."""
        return {name: stored.shape for name, stored in self._tensors.items()}

    def read(self, name: str, device: torch.device) -> Tensor:
        """One tensor, in the precision of the file."""
        stored = self._tensors[name]
        dtype = stored.storage.dtype
        assert dtype is not None, "checked when the archive was opened"
        raw = bytearray(self._archive.read(f"{self._root}data/{stored.storage.key}"))
        reach = sum((n - 1) * step for n, step in zip(stored.shape, stored.stride, strict=True))
        if math.prod(stored.shape) and (stored.offset + reach + 1) * dtype.itemsize > len(raw):
            raise WeightsError(f"tensor `{name}` reaches beyond its bytes: fetch the file again")
        flat = torch.frombuffer(raw, dtype=dtype)
        strided = flat.as_strided(stored.shape, stored.stride, stored.offset)
        return strided.contiguous().to(device)


def _root(archive: zipfile.ZipFile, path: Path) -> str:
    found = [name for name in archive.namelist() if name.count("/") == 1]
    roots = [name.removesuffix("data.pkl") for name in found if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise WeightsError(
            f"{path} is a zip archive without a torch checkpoint or TorchScript model in it; "
            "archives of torch.export are not read: use the .pth or TorchScript file"
        )
    return roots[0]


def _describe(archive: zipfile.ZipFile, root: str, path: Path) -> Any:
    entry = archive.getinfo(f"{root}data.pkl")
    if entry.file_size > MAX_DESCRIPTION_BYTES:
        raise WeightsError(f"{path}: its description has {entry.file_size} bytes, that is no model")
    return _Describer(io.BytesIO(archive.read(entry))).load()


def _tensors(described: Any, path: Path) -> dict[str, _StoredTensor]:
    if isinstance(described, Mapping) and _STATE_DICT in described:
        described = described[_STATE_DICT]
    tensors = dict(_walk(described, ""))
    if not tensors:
        raise WeightsError(f"{path} holds no tensors by name, nor under `{_STATE_DICT}`")
    for name, stored in tensors.items():
        if stored.storage.dtype is None:
            raise WeightsError(
                f"tensor `{name}` of {path} is not float32, float16 or bfloat16: quantised weights "
                "are not read"
            )
    return tensors


def _walk(value: Any, name: str) -> Iterator[tuple[str, _StoredTensor]]:
    """Tensors below a state dict, or below the attributes of a TorchScript module."""
    if isinstance(value, _StoredTensor):
        yield name, value
        return
    children = value.state if isinstance(value, _Inert) else value
    if isinstance(children, Mapping):
        for key, child in children.items():
            if isinstance(key, str):
                yield from _walk(child, f"{name}.{key}" if name else key)
