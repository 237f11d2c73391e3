"""Reference tensors, and the models that they belong to."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sapiens_batch.models.configs import RopeDtype
from sapiens_batch.models.encoder import Encoding, Stage
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.models.weights import (
    Checkpoint,
    load_encoder,
    load_head,
    resolve_checkpoint,
)
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs

torch.set_num_threads(1)


@dataclass(frozen=True)
class Golden:
    """One case: its checkpoint, its expected tensors, and the photos' geometry."""

    checkpoint: Checkpoint
    expected: dict[str, Tensor]
    sizes: list[tuple[int, int]]
    boxes: list[tuple[int, list[float]]]

    def spec(self, **settings: object) -> TaskSpec:
        return TaskSpec(checkpoint=self.checkpoint.id, **settings)

    def encode(
        self, pixels: Tensor, *, rope_dtype: RopeDtype = "float32", stages: Collection[Stage] = ()
    ) -> Encoding:
        encoder = load_encoder(
            self.checkpoint,
            rope_dtype=rope_dtype,
            device=torch.device("cpu"),
            dtype=torch.float32,
        )
        with torch.inference_mode():
            return encoder(pixels, stages)

    def run_head(self, encoding: Encoding) -> HeadOutput:
        head = load_head(self.checkpoint, device=torch.device("cpu"), dtype=torch.float32)
        with torch.inference_mode():
            output: HeadOutput = head(encoding.features)
        return output

    def outputs(self, pixels: Tensor, *, rope_dtype: RopeDtype = "float32") -> Outputs:
        encoding = self.encode(pixels, rope_dtype=rope_dtype)
        return Outputs(encoding, self.run_head(encoding))


LoadGolden = Callable[[str], Golden]


@pytest.fixture
def golden(references: Path) -> LoadGolden:
    """Cases of the transformers port, by name."""
    root = references / "port"
    inputs = json.loads((root / "inputs.json").read_text())
    boxes = [(photo, box) for photo, given in enumerate(inputs["boxes_xywh"]) for box in given]
    sizes = [(height, width) for height, width in inputs["sizes_hw"]]

    def load(name: str) -> Golden:
        checkpoint = resolve_checkpoint(str(root / name))
        return Golden(checkpoint, load_file(root / name / "expected.safetensors"), sizes, boxes)

    return load


@pytest.fixture
def pixels(references: Path) -> dict[str, Tensor]:
    """The port's own pixel values: stretch, letterbox, crops."""
    return load_file(references / "port" / "preprocess.safetensors")


@pytest.fixture
def original(references: Path) -> LoadGolden:
    """Cases of the original code, by name."""
    root = references / "original"

    def load(name: str) -> Golden:
        checkpoint = resolve_checkpoint(str(root / name / "weights.safetensors"))
        return Golden(checkpoint, load_file(root / name / "expected.safetensors"), [], [])

    return load


@pytest.fixture
def original_inputs(references: Path) -> dict[str, Tensor]:
    """Model inputs of the original code's cases."""
    stored = load_file(references / "original" / "inputs" / "inputs.safetensors")
    return {name: values.float() / 32 for name, values in stored.items()}
