"""Torch archives taken apart, and what they must not be able to do."""

from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.tensor_files import open_tensors

CPU = torch.device("cpu")


class Small(nn.Module):
    """Two named layers, for a trace."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
        self.decode_head = nn.ModuleDict({"conv_seg": nn.Conv2d(4, 2, 1)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.decode_head["conv_seg"](self.backbone(x))
        return out


def test_the_tensors_of_a_torchscript_model_have_their_names(tmp_path: Path) -> None:
    model = Small().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(model, torch.zeros(1, 3, 4, 4)), tmp_path / "model.pt2")
    with open_tensors(tmp_path / "model.pt2") as file:
        expected = model.state_dict()
        assert set(file.shapes) == set(expected)
        for name, tensor in expected.items():
            assert torch.equal(file.read(name, CPU), tensor)


def test_views_and_half_precision_are_read_as_they_were_saved(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    saved = {"turned": base.t(), "part": base[1:3, 2:5], "half": base.bfloat16(), "one": base[2, 3]}
    torch.save({"state_dict": saved}, tmp_path / "model.pth")
    with open_tensors(tmp_path / "model.pth") as file:
        for name, tensor in saved.items():
            assert file.shapes[name] == tuple(tensor.shape)
            assert torch.equal(file.read(name, CPU), tensor)


class Payload:
    """Runs a command when an ordinary unpickler meets it."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (self.command,)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    weights = {"weight": torch.ones(2)}
    torch.save({"state_dict": weights, "meta": Payload(f"touch {mark}")}, tmp_path / "model.pth")
    with open_tensors(tmp_path / "model.pth") as file:
        assert torch.equal(file.read("weight", CPU), torch.ones(2))
    assert not mark.exists()


def test_quantised_tensors_are_refused_by_name(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2, dtype=torch.int8)}, tmp_path / "model.pth")
    with (
        pytest.raises(WeightsError, match=r"tensor `weight`.*quantised"),
        open_tensors(tmp_path / "model.pth"),
    ):
        pass


def test_an_archive_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2000)}, tmp_path / "model.pth")
    whole = (tmp_path / "model.pth").read_bytes()
    (tmp_path / "model.pth").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match="cannot be read"), open_tensors(tmp_path / "model.pth"):
        pass


def test_another_zip_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt2", "w") as archive:
        archive.writestr("model/data/weights/0", b"")
    with pytest.raises(WeightsError, match=r"torch\.export"), open_tensors(tmp_path / "model.pt2"):
        pass


def test_a_tensor_that_reaches_beyond_its_bytes_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(8)}, tmp_path / "whole.pth")
    with (
        zipfile.ZipFile(tmp_path / "whole.pth") as whole,
        zipfile.ZipFile(tmp_path / "model.pth", "w") as damaged,
    ):
        for name in whole.namelist():
            damaged.writestr(name, whole.read(name)[: 8 if "/data/" in name else None])
    with (
        pytest.raises(WeightsError, match="beyond its bytes"),
        open_tensors(tmp_path / "model.pth") as file,
    ):
        file.read("weight", CPU)


def test_a_checkpoint_without_named_tensors_is_refused(tmp_path: Path) -> None:
    torch.save([1, 2, 3], tmp_path / "model.pth")
    with (
        pytest.raises(WeightsError, match="no tensors by name"),
        open_tensors(tmp_path / "model.pth"),
    ):
        pass


def test_a_pickle_in_a_zip_that_is_damaged_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pth", "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps({"a": 1})[:-3])
    with pytest.raises(WeightsError, match="cannot be read"), open_tensors(tmp_path / "model.pth"):
        pass
